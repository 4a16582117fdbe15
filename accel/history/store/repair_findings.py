"""What is wrong with the records of a stream, what each can be rebuilt from, and the writes that do it.

A finding is made while records are read, and written afterwards, once it is known that no workflow began or ended
meanwhile (`repairing`). Until then the new record is held in memory, so findings are bounded by count and bytes: a
stream with more damage is repaired in several runs.

Each write replaces exactly what was found: nothing (create only), bytes (a compare-and-set on their ETag), or another
record (likewise). If something else stands there by then, that is left, and the finding says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum, unique
from typing import Final, TypeVar

from accel.history.store.cell import Cell, Inspected
from accel.history.store.record_sizes import record_size_bytes
from loaders.errors import AmbiguousWrite, DataConflict, DataExists, DataNotFound

T = TypeVar("T")

FINDINGS_MAX: Final = 1_000
"""Findings of one run."""

HELD_BYTES_MAX: Final = 64 << 20
"""Memory for the records that one run is to write."""

MISSING: Final = "there is no record"
NOTHING: Final = "nothing: from now on no record stands there"


@unique
class RepairOutcome(Enum):
    """What becomes of a record that is damaged, missing, or contradicts others."""

    REBUILDABLE = "can be rebuilt"
    REBUILT = "rebuilt"
    CHANGED = "changed meanwhile"
    LOST = "cannot be rebuilt"


@dataclass(frozen=True, slots=True)
class Finding:
    """A record that is damaged, missing, or contradicts others.

    Args:
        table: its table.
        key: in that table.
        problem: what was expected there, and what was found.
        remedy: what it follows from; of one that cannot be rebuilt, what is known of it and what can be done.
        outcome: what became of it.
    """

    table: str
    key: str
    problem: str
    remedy: str
    outcome: RepairOutcome


class RunIsFull(Exception):
    """So much was found that the rest is left to the next run."""


@dataclass(slots=True)
class _Draft:
    finding: Finding
    write: Callable[[], None] | None = None


@dataclass(slots=True)
class Findings:
    """Findings of one run, in the order in which they are to be written. Threads: one."""

    _drafts: list[_Draft] = field(default_factory=list)
    _held_bytes: int = 0

    def rebuild(self, cell: Cell[T], found: Inspected[T], value: T | None, source: str, problem: str = "") -> None:
        """A record that follows from others; None as its value: it is to be deleted.

        Args:
            cell: where it lies.
            found: what stands there.
            value: what is to stand there.
            source: what that follows from.
            problem: what is wrong with a record that can be read.
        """
        if found.is_newer:
            self.lose(
                cell, found, "upgrade this program; if no newer release has run here, restore the key from a copy"
            )
            return
        self._held_bytes += record_size_bytes(value)
        finding = Finding(cell.table, cell.key, problem or _problem(found), source, RepairOutcome.REBUILDABLE)
        self._add(_Draft(finding, lambda: cell.restore(value, found)))

    def lose(self, cell: Cell[T], found: Inspected[T], advice: str, problem: str = "") -> None:
        """A record that follows from nothing that is known."""
        self._add(_Draft(Finding(cell.table, cell.key, problem or _problem(found), advice, RepairOutcome.LOST)))

    def seen(self) -> tuple[Finding, ...]:
        """All findings; nothing is written."""
        return tuple(each.finding for each in self._drafts)

    def written(self) -> tuple[Finding, ...]:
        """Write what can be rebuilt, in order; gives the findings with what became of each.

        Raises:
            StoreError: some are written; to be repeated as it is.
        """
        return tuple(replace(each.finding, outcome=_outcome(each)) for each in self._drafts)

    def _add(self, draft: _Draft) -> None:
        self._drafts.append(draft)
        if len(self._drafts) >= FINDINGS_MAX or self._held_bytes >= HELD_BYTES_MAX:
            raise RunIsFull


def _outcome(draft: _Draft) -> RepairOutcome:
    if draft.write is None:
        return draft.finding.outcome
    try:
        draft.write()
    except (DataConflict, DataExists, DataNotFound, AmbiguousWrite):
        return RepairOutcome.CHANGED
    return RepairOutcome.REBUILT


def _problem(found: Inspected[T]) -> str:
    return MISSING if found.error is None else str(found.error)
