"""The facts about a node's objects that planning needs, found in one pass over their ranges in list order.

    position   0          1          2          3
    stream 7   [0, 10)    [10, 20)              [30, 40)      barrier of 3: position 1, where the stream broke off
    stream 8   [5, 9)                [9, 12)    [12, 20)
    seen last  -          7: 0       8: 0       7: 1, 8: 2    "at which position did this stream occur before?"

**A barrier** is the last position that an object must not share a group with. An object has one [start, end) a stream,
so a group with both sides of a hole would claim offsets that it does not hold. A stream whose offsets go back is a
barrier as well: a list that is out of order is not used.

**Distinct streams of any run of neighbours** follow from where each stream occurred before, counted by position: a run
that begins at a already has those streams of object b that occurred at a or later. The count is exact. It needs neither
the streams of all objects in memory nor a second pass.

**Slots** number the streams in order of first occurrence: an index into columns that only grow. Sorted ids are fast to
search and slow to insert into. So most ids are in one long sorted array, and new ones in a short one beside it; when
that reaches an eighth of the long one, both are merged. Every step works on whole arrays of ids; a dictionary would
need a step and 100 bytes an id.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from range_index import ObjectRanges

Integers = NDArray[np.int64]

NOWHERE = -1
"""As a position: none. As an offset: below all."""

NO_POSITIONS: Integers = np.empty(0, dtype=np.int64)
NO_POSITIONS.flags.writeable = False


@dataclass(frozen=True, slots=True, eq=False)
class MergeCandidate:
    """One object of a list.

    Args:
        size_bytes: that remain of the object: without data below first kept offsets.
        index_size_bytes: of its block index.
        streams: the number of its streams.
        barrier: the last position that it must not share a group with; -1 = none.
        seen_at: ascending positions at which some of its streams occurred last before.
        seen_counts: for each of these, the number of such streams.
        is_excluded: whether no group contains it, whatever it holds.
    """

    size_bytes: int
    index_size_bytes: int = 0
    streams: int = 0
    barrier: int = NOWHERE
    seen_at: Integers = field(default_factory=lambda: NO_POSITIONS)
    seen_counts: Integers = field(default_factory=lambda: NO_POSITIONS)
    is_excluded: bool = False


class StreamTrail:
    """The last position of each stream, updated along a list. Threads: one.

    Memory: up to 80 bytes a distinct stream of the list.

    Args:
        trimmed_ids: streams whose first kept offset is above 0, ascending.
        trimmed_starts: these offsets.
        split_holes: whether holes are no barriers, because a merge gives each run an object of its own.
    """

    def __init__(self, trimmed_ids: Integers, trimmed_starts: Integers, *, split_holes: bool = False) -> None:
        self._trimmed_ids = trimmed_ids
        self._trimmed_starts = trimmed_starts
        self._split_holes = split_holes
        self._slots = StreamSlots()
        self._columns = np.empty((4, 1024), dtype=np.int64)

    def add(self, position: int, ranges: ObjectRanges, size_bytes: int, index_size_bytes: int) -> MergeCandidate:
        """Add the next object. Complexity: O(streams log distinct), and at times O(distinct).

        Args:
            position: in the list; higher than all before.
            ranges: the ranges of the object.
            size_bytes: that remain of the object.
            index_size_bytes: of its block index.
        """
        ids, starts, ends = ranges.stream_ids, ranges.starts, ranges.ends
        slots = self._slots_of(ids)
        first_kept, ended_at, seen_at, kept_at = self._columns
        firsts, before = first_kept[slots], ended_at[slots]
        goes_back = starts < before
        jumps = (starts > before) & (before > firsts)
        apart = goes_back if self._split_holes else goes_back | jumps
        barrier = int(seen_at[slots][apart].max()) if apart.any() else NOWHERE
        is_kept = (ends > firsts) | (starts >= firsts)
        counted = _counted(kept_at[slots][is_kept])
        ended_at[slots], seen_at[slots] = ends, position
        kept_at[slots[is_kept]] = position
        return MergeCandidate(size_bytes, index_size_bytes, int(is_kept.sum()), barrier, *counted)

    def _slots_of(self, ids: Integers) -> Integers:
        known = len(self._slots)
        slots, new = self._slots.slots_of(ids)
        if len(self._slots) > self._columns.shape[1]:
            more = np.empty((4, len(self._slots)), dtype=np.int64)
            self._columns = np.concatenate((self._columns, more), axis=1)
        self._columns[:, known : len(self._slots)] = NOWHERE
        self._columns[0, known : len(self._slots)] = self._first_offsets(new)
        return slots

    def _first_offsets(self, ids: Integers) -> Integers:
        if not len(self._trimmed_ids):
            return np.full(len(ids), NOWHERE, dtype=np.int64)
        slots = np.minimum(self._trimmed_ids.searchsorted(ids), len(self._trimmed_ids) - 1)
        return np.where(self._trimmed_ids[slots] == ids, self._trimmed_starts[slots], NOWHERE)


def _counted(positions: Integers) -> tuple[Integers, Integers]:
    counts = np.bincount(positions[positions >= 0])
    occupied = np.flatnonzero(counts)
    return occupied, counts[occupied]


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """Limits for the sources of one group."""

    size_bytes: int
    index_size_bytes: int
    streams: int
    sources: int


def earliest_starts(facts: list[MergeCandidate], limits: GroupLimits) -> list[int]:
    """For each position b, the lowest a for which the objects of [a, b] may be a group; b itself if there is none.

    Every run within a permitted one is permitted, so these numbers ascend and describe all permitted runs.

    Complexity: O(objects + all their `seen_at`).
    """
    window = _Window(facts, limits)
    return list(window.starts())


EXCLUDED = "with an object that is left alone"
BROKEN = "with a hole or a step back between them"
TOO_LARGE = "above the size of a group together"
TOO_WIDE = "above the limit of its index or its streams together"
PERMITTED = "that may be merged, but would soon be rewritten to remove few objects"


def obstacles(facts: list[MergeCandidate], limits: GroupLimits, runs: Iterable[tuple[int, int]]) -> dict[str, int]:
    """How many pairs of neighbours outside of these runs do not share one, each under its first reason. O(objects)."""
    found = dict.fromkeys((EXCLUDED, BROKEN, TOO_LARGE, TOO_WIDE, PERMITTED), 0)
    joined = {position for first, end in runs for position in range(first, end - 1)}
    for position, (before, after) in enumerate(pairwise(facts)):
        if position in joined:
            continue
        seen = dict(zip(after.seen_at.tolist(), after.seen_counts.tolist(), strict=True)).get(position, 0)
        if before.is_excluded or after.is_excluded:
            found[EXCLUDED] += 1
        elif after.barrier >= position:
            found[BROKEN] += 1
        elif before.size_bytes + after.size_bytes > limits.size_bytes:
            found[TOO_LARGE] += 1
        elif (
            before.index_size_bytes + after.index_size_bytes > limits.index_size_bytes
            or before.streams + after.streams - seen > limits.streams
        ):
            found[TOO_WIDE] += 1
        else:
            found[PERMITTED] += 1
    return found


class _Window:
    """A run of neighbours that moves through the list, and its sums."""

    def __init__(self, facts: list[MergeCandidate], limits: GroupLimits) -> None:
        self._facts = facts
        self._limits = limits
        self._first = self._size_bytes = self._index_size_bytes = self._streams = 0
        self._last_excluded = NOWHERE
        self._occur_later: Integers = np.zeros(len(facts), dtype=np.int64)
        """For each position: the number of its streams that occur again, up to the window's end."""

    def starts(self) -> Iterator[int]:
        for last, facts in enumerate(self._facts):
            self._append(facts)
            while self._first < last and self._is_too_much(facts, last):
                self._drop_first()
            yield self._first
            if facts.is_excluded:
                self._last_excluded = last

    def _append(self, facts: MergeCandidate) -> None:
        self._size_bytes += facts.size_bytes
        self._index_size_bytes += facts.index_size_bytes
        self._occur_later[facts.seen_at] += facts.seen_counts
        have_already = facts.seen_counts[facts.seen_at.searchsorted(self._first) :]
        self._streams += facts.streams - int(have_already.sum())

    def _drop_first(self) -> None:
        gone = self._facts[self._first]
        self._size_bytes -= gone.size_bytes
        self._index_size_bytes -= gone.index_size_bytes
        self._streams -= gone.streams - int(self._occur_later[self._first])
        self._first += 1

    def _is_too_much(self, last: MergeCandidate, position: int) -> bool:
        return (
            last.is_excluded
            or self._first <= max(last.barrier, self._last_excluded)
            or self._size_bytes > self._limits.size_bytes
            or self._index_size_bytes > self._limits.index_size_bytes
            or self._streams > self._limits.streams
            or position - self._first >= self._limits.sources
        )


NEW_MIN = 4096
"""At least this many new ids are gathered before arrays are merged."""


class _Sorted:
    """Ascending ids, and the slot of each."""

    def __init__(self, ids: Integers, slots: Integers) -> None:
        self.ids = ids
        self.slots = slots

    def fill(self, wanted: Integers, slots: Integers) -> None:
        """Write the slots of those ids that are in this array to their places."""
        if not len(self.ids):
            return
        at = np.minimum(self.ids.searchsorted(wanted), len(self.ids) - 1)
        is_here = self.ids[at] == wanted
        slots[is_here] = self.slots[at[is_here]]

    def with_merged(self, ids: Integers, slots: Integers) -> _Sorted:
        """These and others."""
        at = self.ids.searchsorted(ids)
        return _Sorted(np.insert(self.ids, at, ids), np.insert(self.slots, at, slots))


_NOTHING = _Sorted(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


class StreamSlots:
    """Numbers the streams in order of first occurrence, from 0. Threads: one. Memory: 16 bytes a stream."""

    def __init__(self) -> None:
        self._long = _NOTHING
        self._new = _NOTHING
        self._count = 0

    def __len__(self) -> int:
        """The number of streams with a slot."""
        return self._count

    def slots_of(self, ids: Integers) -> tuple[Integers, Integers]:
        """The slots of streams, and which of these ids are new.

        Args:
            ids: ascending, each once.

        Complexity: O(ids log streams), and at times O(streams).
        """
        slots = np.full(len(ids), -1, dtype=np.int64)
        self._long.fill(ids, slots)
        self._new.fill(ids, slots)
        first_time = np.flatnonzero(slots < 0)
        if len(first_time):
            slots[first_time] = np.arange(self._count, self._count + len(first_time))
            self._count += len(first_time)
            self._add(ids[first_time], slots[first_time])
        return slots, ids[first_time]

    def _add(self, ids: Integers, slots: Integers) -> None:
        self._new = self._new.with_merged(ids, slots)
        if len(self._new.ids) > max(NEW_MIN, len(self._long.ids) // 8):
            self._long = self._long.with_merged(self._new.ids, self._new.slots)
            self._new = _NOTHING
