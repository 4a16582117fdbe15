"""The known ranges of one stream in one node's list, and the place of an offset that follows from them.

`KnownRanges` combines the range index, the arrays in memory, the filters and a snapshot, all taken at the same time, as
positions in one image's list. For an offset it returns one of three results:

- *found*: this object holds the offset, or starts there. A known range is a proof, since in a node's list a stream's
  offsets ascend and do not overlap; no object between known ones need be opened.
- *hole*: no object of the list starts there or (for a first pick) holds it, and all objects that could are known.
- *between*: the object must be between two known holders, among these candidates, which are not known yet.

Three kinds of ranges prove less. A range with a hole inside is used only if all objects before it in the list are known
too. The range of an object that shares its order id with others is used only if all of these are known, since offsets
need not ascend from one of them to the next. And if a stream's ranges do not ascend through the list, nothing is
inferred: all objects are opened and the list is scanned in order.

A snapshot contains objects by id and size. The list of an image converts them to positions: of the objects that the
snapshot covers, those with an entry hold the stream, the others lack it. For an object with another size in the list,
or an object that is not listed, the snapshot is not used.

    list position     0  1  2  3  4  5  6  7
    covered           x  x  x  x  x  x            6 and 7 are newer than the snapshot: candidates
    entries              x        x               1 and 4 hold the stream: their ranges are known
    settled           x  x  x  x  x  x            these need not be opened

If only a part of the entries of a large stream was read, a missing entry proves nothing: then only the objects with an
entry are settled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accel.image import NodeImage
from accel.lookup.answer import NONE_UNOPENED, Unopened
from loaders.hints import SnapshotRoot, StreamEntries
from range_index import StreamRange, StreamView

Column = NDArray[np.int64]

Flags = NDArray[np.bool_]
"""One flag for each position of a node's list."""


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
    """A stream's ranges in the range index, by position in a node's list."""
    object_ids = np.asarray(view.object_ids, dtype=np.int64)
    holed = (
        np.fromiter((object_id in view.holed for object_id in view.object_ids), np.bool_, len(object_ids))
        if view.holed
        else np.zeros(len(object_ids), dtype=np.bool_)
    )
    starts, ends = np.asarray(view.starts, dtype=np.int64), np.asarray(view.ends, dtype=np.int64)
    return RangeColumns(starts, ends, node.positions(object_ids), holed)


class Found(NamedTuple):
    """The object at a position holds [start, end) of the stream; as a result, it is the next object."""

    position: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Hole:
    """The list provably has no next object.

    Args:
        end: where the stream ends in the list, 0 if the list lacks it; None if the list has data after the hole.
    """

    end: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Between:
    """The next object, if there is one, is among the candidates.

    Args:
        candidates: ascending positions between two known holders; never empty.
        listed: the length of the list.
        before: the known holder before the candidates; None if there is none.
        after: the known holder after the candidates; None if there is none.
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
    """A run of contiguous objects: the numbers of objects, of list positions spanned, and of offsets."""

    objects: int
    positions: int
    offsets: int


@dataclass(frozen=True, slots=True, eq=False)
class KnownRanges:
    """Known ranges of one stream by start offset, and the positions that are not known.

    Args:
        starts, ends, positions: one row for each known holder, ascending by start.
        holed: which of these ranges have a hole inside.
        unknown: for each position of the list, whether its object may hold the stream and is not known.
        ordered: whether positions ascend with the ranges and no two overlap.
        order_ids: of the objects of the list; None if no two objects share one.
    """

    starts: Column
    ends: Column
    positions: Column
    holed: Flags
    unknown: Flags
    ordered: bool
    order_ids: Column | None = None

    def place(self, offset: int, *, first: bool) -> Found | Hole | Between:
        """The place of the object for ``offset``; with ``first`` the object may also begin before the offset.

        Only if `ordered` is true. Complexity: O(log holders + list length / 64).
        """
        index = int(np.searchsorted(self.starts, offset, side="right")) - 1
        if index >= 0 and self.ends[index] > offset:
            return self._covering(index, offset, first=first)
        is_last = index + 1 == len(self.starts)
        return self._between(index, index + 1) or Hole(
            (int(self.ends[index]) if index >= 0 else 0) if is_last else None
        )

    def scan(self, offset: int, from_position: int, *, first: bool) -> tuple[Found | Hole | Between, int]:
        """As :meth:`place`, by a scan of the list in order from a position; also returns the position to continue from.

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
        return Hole(int(self.ends.max(initial=0))), len(self.unknown)

    def run_to(self, offset: int, awaited: Flags) -> Run:
        """The run of known holders around an offset at which one of them ends. O(list).

        Two holders belong to one run if the second starts where the first ends, or if all unknown objects between them
        are being opened: these are then expected to hold the missing offsets, and count as holders.

        Args:
            offset: the end of a known holder.
            awaited: by position, whether the object is being opened.
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
        if self.holed[index] or self.order_ids is not None:
            # Another object may fill the hole; the list decides, so all objects before this one must be known. Or
            # another one with the same order id may hold the offset, too.
            between = self._between(index - 1 if self.holed[index] else index, index)
            if between is not None:
                return between
        found = self._row(index)
        return found if found.start == offset or first else Hole()

    def _between(self, below: int, above: int) -> Between | None:
        low = int(self.positions[below]) if below >= 0 else -1
        high = int(self.positions[above]) if above < len(self.positions) else len(self.unknown)
        if self.order_ids is not None:
            if below >= 0 and (tied := self._unknown_ties(low)) is not None:
                low = tied[0] - 1
                below = int(self.positions.searchsorted(low, side="right")) - 1
            if above < len(self.positions) and (tied := self._unknown_ties(high)) is not None:
                high = tied[1]
                above = int(self.positions.searchsorted(high))
        candidates = np.flatnonzero(self.unknown[low + 1 : high]) + (low + 1)
        if not len(candidates):
            return None
        before = self._row(below) if below >= 0 else None
        after = self._row(above) if above < len(self.positions) else None
        return Between(candidates, len(self.unknown), before, after)

    def _unknown_ties(self, position: int) -> tuple[int, int] | None:
        """The positions [first, end) of the objects with the order id of this one, if one of them is not known."""
        if self.order_ids is None:
            return None
        first, end = (int(self.order_ids.searchsorted(self.order_ids[position], side)) for side in ("left", "right"))
        return (first, end) if self.unknown[first:end].any() else None

    def _row(self, index: int) -> Found:
        return Found(int(self.positions[index]), int(self.starts[index]), int(self.ends[index]))


def join_ranges(
    entries: RangeColumns,
    unknown: Flags,
    seen: Mapping[int, StreamRange | None],
    *,
    hinted: RangeColumns | None = None,
    order_ids: Column | None = None,
) -> KnownRanges:
    """All known ranges: the index's entries, the objects that this lookup has opened, and the rows of a snapshot.

    Args:
        entries: ascending by start; an entry with position -1 is not listed by the image.
        unknown: by position; a copy that may be changed.
        seen: position -> range of the stream in the object there, None if it lacks the stream.
        hinted: rows of a snapshot, all of listed objects.
        order_ids: of the objects of the list; None if no two objects share one.

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
    return KnownRanges(starts, ends, positions, holed, unknown, is_ordered(starts, ends, positions), order_ids)


def _counts_between(positions: Column, flags: Flags) -> Column:
    """The number of flags set between each two neighbours of these positions."""
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
        settled: by position, whether the object need not be opened for this stream.
        low: all entries with starts in ``[low, high)`` are included.
        high: see ``low``.
    """

    rows: RangeColumns
    settled: Flags
    low: int
    high: int

    def answers(self, offset: int) -> bool:
        """Whether all entries for this offset are included."""
        return self.low <= offset < self.high


def covered_objects(node: NodeImage, root: SnapshotRoot) -> Flags:
    """By position, whether the snapshot covers the object, size included; O(list log covered)."""
    return root.covers(node.object_ids, node.sizes_bytes)


def facts_of(node: NodeImage, covered: Flags, entries: StreamEntries) -> SnapshotFacts:
    """The entries as facts about this list; O(entries log list).

    Args:
        node: the list.
        covered: by position, whether the snapshot covers the object.
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
    """Why the objects of one visited list were not opened, and the accuracy of filters. One thread at a time.

    Attributes:
        loaded: by position, whether the index contained the object at the last `note`.
        filtered: by position, whether a filter or the list's sketch excluded it then.
        holders: positions that were known to hold the stream then.
        with_filter: requested positions whose filter had not excluded the stream.
    """

    __slots__ = ("filtered", "holders", "loaded", "with_filter")

    def __init__(self) -> None:
        self.loaded: Flags | None = None
        self.filtered: Flags | None = None
        self.holders: Column = np.empty(0, dtype=np.int64)
        self.with_filter: set[int] = set()

    def note(self, loaded: Flags, filtered: Flags, excluded: Flags | None, holders: Column) -> None:
        """Store the current facts."""
        self.loaded = loaded
        self.filtered = filtered if excluded is None else filtered | excluded
        self.holders = holders

    def unopened(self, opened: Flags | None, settled: Flags | None, seen: Mapping[int, StreamRange | None]) -> Unopened:
        """The objects not opened because of filters and of bounds; the index is the reason for the others. O(list).

        Args:
            opened: by position, whether the object was opened; None = none was.
            settled: by position, whether a snapshot contained the object's facts; None = no snapshot was used.
            seen: position -> range of the stream in an arrived object, None if it lacks the stream. An object that the
                index received before this visit counts as arrived.
        """
        if self.loaded is None or self.filtered is None:
            return NONE_UNOPENED
        left = ~self.loaded if opened is None else ~(self.loaded | opened)
        beyond = left & ~self.filtered if settled is None else left & ~(self.filtered | settled)
        by_filter, by_bounds = int(np.count_nonzero(left & self.filtered)), int(np.count_nonzero(beyond))
        came = {position for position in self.with_filter if position in seen or self.loaded[position]}
        holders = {*self.holders.tolist(), *(position for position, held in seen.items() if held is not None)}
        return Unopened(0, by_filter, by_bounds, len(came), len(came - holders))


def unopened_by(visits: Iterable[Unopened], unopened: int) -> Unopened:
    """The sum of visits of one lookup.

    Args:
        visits: each without the objects not opened because of the index.
        unopened: the number of objects that were not opened, of all visits.
    """
    by_filter = by_bounds = passed = wrong = 0
    for each in visits:
        by_filter += each.by_filter
        by_bounds += each.by_bounds
        passed += each.filters_passed
        wrong += each.filters_wrong
    return Unopened(unopened - by_filter - by_bounds, by_filter, by_bounds, passed, wrong)
