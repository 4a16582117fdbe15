"""Findings of a repair: wrong records, the records that replace them, and the outcome of each.

Findings (`Findings`) are collected first, and written afterwards. Until then the new records are held in memory, so
findings are bounded by count and bytes: what has more damage is repaired in several runs. Each write replaces exactly
the content that was read: a missing key (create only), bytes (a compare-and-set on their ETag), or another record
(likewise). If the key has changed by then, it is not written, and the finding says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum, unique
from typing import Final, TypeVar

from accel.history.store.parts import record_size_bytes
from loaders.errors import AmbiguousWrite, DataConflict, DataExists, DataNotFound
from loaders.tables import TypedKey
from loaders.tables.typed_key import Inspected

T = TypeVar("T")

FINDINGS_MAX: Final = 1_000
"""Maximum number of findings of one run."""

HELD_BYTES_MAX: Final = 64 << 20
"""Maximum memory for the records that one run is to write."""

MISSING: Final = "there is no record"
NOTHING: Final = "nothing: from now on there is no record"


@unique
class RepairOutcome(Enum):
    """The outcome of a record that is damaged, missing, or contradicts others."""

    REBUILDABLE = "can be rebuilt"
    REBUILT = "rebuilt"
    CHANGED = "changed meanwhile"
    LOST = "cannot be rebuilt"


@dataclass(frozen=True, slots=True)
class Finding:
    """A record that is damaged, missing, or contradicts others.

    Args:
        table: its table.
        key: its key in the table.
        problem: the expected content, and the content that was found.
        remedy: the source of the new record; advice for a record that cannot be rebuilt.
        outcome: the outcome of the record.
    """

    table: str
    key: str
    problem: str
    remedy: str
    outcome: RepairOutcome


class RunIsFull(Exception):
    """The findings reached a limit; the next run finds the remaining ones."""


@dataclass(slots=True)
class _Draft:
    finding: Finding
    write: Callable[[], object] | None = None


@dataclass(slots=True)
class Findings:
    """Findings of one run, in the order in which they are to be written. Threads: one."""

    _drafts: list[_Draft] = field(default_factory=list)
    _held_bytes: int = 0

    def rebuild(self, key: TypedKey[T], found: Inspected[T], value: T | None, source: str, problem: str = "") -> None:
        """Add a record that follows from others; a value of None deletes the record.

        Args:
            key: the key of the record.
            found: the stored content.
            value: the new record.
            source: the source of the new record.
            problem: the error in a record that can be read.
        """
        if found.is_newer:
            self.lose(key, found, "upgrade this program; if no newer release has run here, restore the key from a copy")
            return
        self._held_bytes += record_size_bytes(value)
        finding = Finding(key.table_name, key.key, problem or _problem(found), source, RepairOutcome.REBUILDABLE)
        self._add(_Draft(finding, lambda: key.restore(value, found)))

    def lose(self, key: TypedKey[T], found: Inspected[T], advice: str, problem: str = "") -> None:
        """Add a record that does not follow from any other."""
        self.name(Finding(key.table_name, key.key, problem or _problem(found), advice, RepairOutcome.LOST))

    def name(self, finding: Finding) -> None:
        """Add a finding without a new record."""
        self._add(_Draft(finding))

    def mend(self, finding: Finding, write: Callable[[], object]) -> None:
        """Add a finding that `write` repairs, such as a table without a marker."""
        self._add(_Draft(finding, write))

    def seen(self) -> tuple[Finding, ...]:
        """Return all findings; nothing is written."""
        return tuple(draft.finding for draft in self._drafts)

    def written(self) -> tuple[Finding, ...]:
        """Write the new records, in order; return the findings with their outcomes.

        Raises:
            StoreError: some records are written; repeat the repair.
        """
        return tuple(replace(draft.finding, outcome=_outcome(draft)) for draft in self._drafts)

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


@dataclass(frozen=True, slots=True)
class Repair:
    """The wrong records of a stream, and the outcome of each.

    Args:
        stream: scope and name.
        applied: whether rebuilt records were written.
        findings: wrong records, in the order in which they were found.
        is_complete: whether all records were read; if False, the limit of findings was reached: repair again.
    """

    stream: str
    applied: bool
    findings: tuple[Finding, ...]
    is_complete: bool

    def count(self, outcome: RepairOutcome) -> int:
        """The number of findings with an outcome."""
        return sum(finding.outcome is outcome for finding in self.findings)
