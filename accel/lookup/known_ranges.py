"""What a lookup knows of one stream in one node's list, and what follows from it.

`KnownRanges` puts together what the range index, the arrays in memory, the filters and a snapshot say, all taken at one
moment, as positions in one image's list. Asked for an offset it gives one of three answers:

- *found*: this object holds the offset, or starts there. A known range is a proof, since in a node's list a stream's
  offsets ascend and do not overlap; nothing between need be opened.
- *hole*: no object of the list starts there or (for a first pick) holds it, and everything that could is known.
- *between*: it must lie between two known holders, and these candidates there are not known yet.

Two kinds of ranges prove less. A range with a hole inside is believed only when everything before it in the list is
known too. And where a stream's ranges do not ascend through the list at all, nothing is inferred: everything is opened
and the list is walked in order, as a plain scan would.

A snapshot speaks of objects by id and size. Through the list of an image this becomes positions: of the objects that
the snapshot covers, those with an entry hold the stream, the others lack it. Of an object that the list has with
another size, or not at all, it says nothing.

    list position     0  1  2  3  4  5  6  7
    covered           x  x  x  x  x  x            6 and 7 came after the snapshot: candidates as ever
    entries              x        x               1 and 4 hold the stream: their ranges are known
    settled           x  x  x  x  x  x            nothing more is to be learnt of these

Of a stream so large that only a part of its entries was read, absence proves nothing: then only the objects with an
entry are settled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accel.image import NodeImage
from accel.lookup.answer import NONE_SPARED, Spared
from loaders.hints import SnapshotRoot, StreamEntries
from range_index import StreamRange, StreamView

Column = NDArray[np.int64]

Flags = NDArray[np.bool_]
"""One a position of a node's list."""


class RangeColumns(NamedTuple):
    """Known ranges of one stream as columns: start, end, position in the list, and whether there is a hole inside."""

    starts: Column
    ends: Column
    positions: Column
    holed: Flags

    def take(self, chosen: Flags | NDArray[np.intp]) -> RangeColumns:
        """Some of the rows."""
        return RangeColumns(self.starts[chosen], self.ends[chosen], self.positions[chosen], self.holed[chosen])


def columns_of(view: StreamView, node: NodeImage) -> RangeColumns:
    """What the range index knows of a stream, by position in a node's list."""
    object_ids = np.asarray(view.object_ids, dtype=np.int64)
    holed = (
        np.fromiter((object_id in view.holed for object_id in view.object_ids), np.bool_, len(object_ids))
        if view.holed
        else np.zeros(len(object_ids), dtype=np.bool_)
    )
    starts, ends = np.asarray(view.starts, dtype=np.int64), np.asarray(view.ends, dtype=np.int64)
    return RangeColumns(starts, ends, node.positions(object_ids), holed)


class Found(NamedTuple):
    """The object at a position holds [start, end) of the stream; as an answer, it is the next one."""

    position: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Hole:
    """This list has no object to follow; proven."""


@dataclass(frozen=True, slots=True, eq=False)
class Between:
    """The next object, if there is one, stands among the candidates.

    Args:
        candidates: ascending positions between two known holders; never empty.
        listed: the length of the list.
        before: the known holder before them; None where there is none.
        after: the known holder after them; None where there is none.
    """

    candidates: Column
    listed: int
    before: Found | None = None
    after: Found | None = None

    @property
    def low(self) -> int:
        """Position of the known holder before the candidates, or -1."""
        return -1 if self.before is None else self.before.position

    @property
    def high(self) -> int:
        """Position of the known holder after the candidates, or the length of the list."""
        return self.listed if self.after is None else self.after.position


class Run(NamedTuple):
    """Objects that follow one another: how many, how many positions of the list they span, how many offsets."""

    objects: int
    positions: int
    offsets: int


@dataclass(frozen=True, slots=True, eq=False)
class KnownRanges:
    """Known ranges of one stream by start offset, and the positions that are not known.

    Args:
        starts, ends, positions: one row a known holder, ascending by start.
        holed: which of these ranges have a hole inside.
        unknown: for each position of the list, whether it may hold the stream and is not known.
        ordered: whether positions ascend with the ranges and no two overlap.
    """

    starts: Column
    ends: Column
    positions: Column
    holed: Flags
    unknown: Flags
    ordered: bool

    def place(self, offset: int, *, first: bool) -> Found | Hole | Between:
        """Where the object for ``offset`` is; ``first`` if it may also begin before it.

        Only where `ordered`. Complexity: O(log holders + list length / 64).
        """
        index = int(np.searchsorted(self.starts, offset, side="right")) - 1
        if index >= 0 and self.ends[index] > offset:
            return self._covering(index, offset, first=first)
        return self._between(index, index + 1) or Hole()

    def scan(self, offset: int, from_position: int, *, first: bool) -> tuple[Found | Hole | Between, int]:
        """As :meth:`place`, by walking the list in order from a position; also gives the position to go on from.

        For ranges that are not ordered. Complexity: O(holders log holders).
        """
        candidates = np.flatnonzero(self.unknown)
        if len(candidates):
            return Between(candidates, len(self.unknown)), from_position
        for row in np.argsort(self.positions, kind="stable").tolist():
            position, start, end = int(self.positions[row]), int(self.starts[row]), int(self.ends[row])
            if position < from_position or end <= offset:
                continue
            if start == offset or (first and start < offset):
                return Found(position, start, end), position + 1
            return Hole(), position
        return Hole(), len(self.unknown)

    def run_to(self, offset: int, awaited: Flags) -> Run:
        """The known holders that follow one another around an offset, at which one of them ends. O(list).

        Two follow one another if nothing lies between them, or nothing but objects that are under way: then it is these
        that are expected to hold what is missing, and they count as holders.

        Args:
            offset: where a known holder ends.
            awaited: by position, whether the object is under way.
        """
        expected = _counts_between(self.positions, awaited)
        expected[expected != _counts_between(self.positions, self.unknown)] = 0
        joined = self.ends[:-1] == self.starts[1:]
        expected[joined] = 0
        breaks = np.flatnonzero(~joined & (expected == 0))
        at = int(np.searchsorted(self.starts, offset, side="right")) - 1
        split = int(np.searchsorted(breaks, at))
        first = int(breaks[split - 1]) + 1 if split else 0
        last = int(breaks[split]) if split < len(breaks) else len(self.starts) - 1
        objects = last - first + 1 + int(expected[first:last].sum())
        spanned = int(self.positions[last] - self.positions[first]) + 1
        return Run(objects, spanned, int(self.ends[last] - self.starts[first]))

    def _covering(self, index: int, offset: int, *, first: bool) -> Found | Hole | Between:
        if self.holed[index]:
            # Another object may fill the hole; the list decides, so all that stands before this one must be known.
            between = self._between(index - 1, index)
            if between is not None:
                return between
        found = self._row(index)
        return found if found.start == offset or first else Hole()

    def _between(self, below: int, above: int) -> Between | None:
        before = self._row(below) if below >= 0 else None
        after = self._row(above) if above < len(self.positions) else None
        low = -1 if before is None else before.position
        high = len(self.unknown) if after is None else after.position
        candidates = np.flatnonzero(self.unknown[low + 1 : high]) + (low + 1)
        return Between(candidates, len(self.unknown), before, after) if len(candidates) else None

    def _row(self, index: int) -> Found:
        return Found(int(self.positions[index]), int(self.starts[index]), int(self.ends[index]))


def join_ranges(
    entries: RangeColumns,
    unknown: Flags,
    seen: Mapping[int, StreamRange | None],
    *,
    hinted: RangeColumns | None = None,
) -> KnownRanges:
    """All that is known: an index's entries, what this lookup has seen itself, and what a snapshot says.

    Args:
        entries: ascending by start; a position of -1 is not listed by the image.
        unknown: by position; a copy that may be changed.
        seen: position -> what the object there holds of the stream, None for nothing.
        hinted: rows of a snapshot, all of them listed.

    Complexity: O(entries log entries + list length).
    """
    listed = entries.positions >= 0
    if not listed.all():
        entries = entries.take(listed)
    unknown[entries.positions] = False
    known = np.zeros(len(unknown), dtype=np.bool_)
    known[entries.positions] = True
    parts = [entries]
    if hinted is not None and len(hinted.positions):
        parts.append(hinted.take(~known[hinted.positions]))
        known[hinted.positions] = True
        unknown[hinted.positions] = False
    if seen:
        unknown[list(seen)] = False
        parts.append(_rows_seen(seen, known))
    starts, ends, positions, holed = entries if len(parts) == 1 else _merged(parts)
    return KnownRanges(starts, ends, positions, holed, unknown, is_ordered(starts, ends, positions))


def _counts_between(positions: Column, flags: Flags) -> Column:
    """How many flags are set between each two neighbours of these positions."""
    counts = np.concatenate(([0], np.cumsum(flags)))
    between: Column = counts[positions[1:]] - counts[positions[:-1] + 1]
    return between


def is_ordered(starts: Column, ends: Column, positions: Column) -> bool:
    """Whether ranges that ascend by start also ascend through the list, and do not overlap."""
    return bool((positions[1:] > positions[:-1]).all() and (ends[:-1] <= starts[1:]).all())


def _rows_seen(seen: Mapping[int, StreamRange | None], known: Flags) -> RangeColumns:
    held = [(span.start, span.end, at, span.holed) for at, span in seen.items() if span is not None and not known[at]]
    numbers = np.array([row[:3] for row in held], dtype=np.int64).reshape(len(held), 3)
    holed = np.array([row[3] for row in held], dtype=np.bool_)
    return RangeColumns(numbers[:, 0], numbers[:, 1], numbers[:, 2], holed)


def _merged(parts: list[RangeColumns]) -> RangeColumns:
    joined = RangeColumns(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    return joined.take(np.lexsort((joined.positions, joined.starts)))


@dataclass(frozen=True, slots=True, eq=False)
class SnapshotFacts:
    """Facts about one stream in one node's list. Threads: immutable.

    Args:
        rows: ranges of listed objects, ascending by start.
        settled: by position, whether all is known of the object that a lookup of the stream may ask.
        low: of which starts all entries are included: ``[low, high)``.
        high: see ``low``.
    """

    rows: RangeColumns
    settled: Flags
    low: int
    high: int

    def answers(self, offset: int) -> bool:
        """Whether the snapshot has no more to say for this offset."""
        return self.low <= offset < self.high


def covered_objects(node: NodeImage, root: SnapshotRoot) -> Flags:
    """By position, whether the snapshot covers the object, size included; O(list log covered)."""
    return root.covers(node.object_ids, node.sizes_bytes)


def facts_of(node: NodeImage, covered: Flags, entries: StreamEntries) -> SnapshotFacts:
    """The entries as facts about this list; O(entries log list).

    Args:
        node: the list.
        covered: by position, which objects the snapshot covers.
        entries: of one stream.
    """
    columns = entries.columns
    positions = node.positions(columns.object_ids)
    usable = positions >= 0
    usable[usable] = covered[positions[usable]]
    rows = RangeColumns(columns.starts[usable], columns.ends[usable], positions[usable], columns.holed[usable])
    settled = covered.copy() if entries.complete else np.zeros(len(node), dtype=np.bool_)
    settled[rows.positions] = True
    return SnapshotFacts(rows, settled, entries.low, entries.high)


class OpenedTally:
    """What spared one visit of a list the opening of its objects, and how filters fared. One thread at a time.

    Attributes:
        loaded: by position, whether the index knew the object when it was asked last.
        filtered: by position, whether a filter or the list's sketch excluded it then.
        holders: positions that were known to hold the stream then.
        with_filter: positions that were asked for, and whose filter had said that they may hold the stream.
    """

    __slots__ = ("filtered", "holders", "loaded", "with_filter")

    def __init__(self) -> None:
        self.loaded: Flags | None = None
        self.filtered: Flags | None = None
        self.holders: Column = np.empty(0, dtype=np.int64)
        self.with_filter: set[int] = set()

    def note(self, loaded: Flags, filtered: Flags, excluded: Flags | None, holders: Column) -> None:
        """This is known now."""
        self.loaded = loaded
        self.filtered = filtered if excluded is None else filtered | excluded
        self.holders = holders

    def spared(self, was_asked: Flags | None, settled: Flags | None, seen: Mapping[int, StreamRange | None]) -> Spared:
        """What a filter spared, and what the bounds of the question did; the index spared all others. O(list).

        Args:
            was_asked: by position, whether the object was opened; None = none was.
            settled: by position, whether a snapshot told all of it; None = none was asked.
            seen: position -> what an object that came holds of the stream, None for nothing. What the index took in
                sooner than it came here counts as well.
        """
        if self.loaded is None or self.filtered is None:
            return NONE_SPARED
        left = ~self.loaded if was_asked is None else ~(self.loaded | was_asked)
        beyond = left & ~self.filtered if settled is None else left & ~(self.filtered | settled)
        by_filter, by_bounds = int(np.count_nonzero(left & self.filtered)), int(np.count_nonzero(beyond))
        came = {position for position in self.with_filter if position in seen or self.loaded[position]}
        holders = {*self.holders.tolist(), *(position for position, held in seen.items() if held is not None)}
        return Spared(0, by_filter, by_bounds, len(came), len(came - holders))


def spared_by(visits: Iterable[Spared], unopened: int) -> Spared:
    """The sum of visits of one lookup.

    Args:
        visits: each without what the index spared it.
        unopened: how many objects were not opened, in all of them.
    """
    by_filter = by_bounds = passed = wrong = 0
    for each in visits:
        by_filter += each.by_filter
        by_bounds += each.by_bounds
        passed += each.filters_passed
        wrong += each.filters_wrong
    return Spared(unopened - by_filter - by_bounds, by_filter, by_bounds, passed, wrong)
