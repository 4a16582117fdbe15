"""What a collection is made of: each object that may go and why, the plan of all of them, and what came of it.

plan      what would be deleted, and why; a dry run ends here
report    what of it was deleted, spared, not deleted, and where it is written down
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

NO_SEQUENCE = -1
"""As the sequence of an orphan: no key names it."""


class Reason(StrEnum):
    """Why an object may go."""

    RETIRED = "retired"
    PREPARED = "prepared"
    ORPHAN = "orphan"


@dataclass(frozen=True, slots=True)
class Collectable:
    """One object that may go.

    Args:
        object_id: which.
        key: where it lies.
        size_bytes: as the bucket's listing says; 0 if it does not lie there (any more).
        reason: why it may go.
        since_ms: when it was retired, its promise ran out, or it was written; milliseconds since 1970.
        table: where it is named: `node-lists`, `stream-buckets`, or empty for an orphan.
        number: the node or bucket there; -1 for an orphan.
        sequence: of that key when it was read; -1 for an orphan.
    """

    object_id: int
    key: str
    size_bytes: int
    reason: Reason
    since_ms: int
    table: str = ""
    number: int = -1
    sequence: int = NO_SEQUENCE


@dataclass(frozen=True, slots=True)
class Tally:
    """So many objects, and their bytes together."""

    objects: int
    size_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class CollectionPlan:
    """What a collection would delete.

    Args:
        planned_at_ms: when it was made, milliseconds since 1970; promises with a deadline up to it are void.
        retired_before_ms: what was retired before that may go.
        objects: retired ones first, then prepared ones, then orphans.
        young: objects that stand nowhere in the catalog and are not old enough.
        foreign: objects with ids that this catalog never gave out; they are left alone.
        allow_empty_nodes: nodes whose list may have no live object although the node has committed before.
    """

    planned_at_ms: int
    retired_before_ms: int
    objects: tuple[Collectable, ...]
    young: Tally
    foreign: Tally
    allow_empty_nodes: frozenset[int]

    def tallies(self) -> dict[Reason, Tally]:
        """For each reason, how much."""
        return tallies_of(self.objects)


@dataclass(frozen=True, slots=True, eq=False)
class CollectionReport:
    """What a collection did.

    Args:
        deleted: gone now.
        spared: planned, and not touched: needed again, or collected by somebody else meanwhile.
        failed: not deleted, and what the store said; the next collection tries again.
        journals: keys of what was written about the deleted ones.
        not_reached: planned, and not dealt with, because the collection ended half-way; empty if it did not.
    """

    deleted: tuple[Collectable, ...]
    spared: tuple[Collectable, ...]
    failed: tuple[tuple[Collectable, str], ...]
    journals: tuple[str, ...]
    not_reached: tuple[Collectable, ...] = ()

    def tallies(self) -> dict[Reason, Tally]:
        """For each reason, how much was deleted."""
        return tallies_of(self.deleted)


def tallies_of(objects: Iterable[Collectable]) -> dict[Reason, Tally]:
    """For each reason, how many objects and bytes."""
    sizes: dict[Reason, list[int]] = {reason: [] for reason in Reason}
    for each in objects:
        sizes[each.reason].append(each.size_bytes)
    return {reason: Tally(len(found), sum(found)) for reason, found in sizes.items()}
