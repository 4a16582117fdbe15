"""Finds which neighbours may be merged, and chooses among them: enough objects are removed, and few bytes rewritten.

**Which may be merged** follows from facts about a node's objects, found in one pass over their ranges in list order:

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

**Which are merged** is chosen so that enough objects are removed, and few bytes are rewritten, now and later.

A group of k objects costs their bytes and removes k - 1 objects. The plan needs the groups that remove objects for the
least bytes. So an object gets a price: a group is worth (k - 1) * price minus its bytes, and the best groups for a
price are found in one pass over the list:

    best(i) = the least of   best(i - 1)                                     object i - 1 stays alone
                             best(a) + bytes[a, i) - price * (i - 1 - a)     it ends a group that begins at a

where a runs over the permitted starts of a group that ends at i. The starts move forward through the list, so a queue
yields the least of them, and a pass is O(objects). A higher price removes more objects; bisection finds the lowest
price that removes enough. The groups for it are the cheapest of all that remove as many.

**Growth.** What is cheapest now is rewritten again and again: where a list is at its limit, each run would add a few
small objects to the same large one. So groups are chosen that multiply the bytes of their largest source, if there are
enough of these:

    bytes     400  400 | 50  50  50  50 | 1 1 1 1 1 1 1 1      limit 8: each run has to remove some
    cheapest  50 and the 1s become 58, then 66, 74, ...        the bytes of 58 are rewritten in each run
    growth    50 50 50 50 and the 1s become 208                and are left alone until they are the small ones

An object is rewritten at most log(size of a group / its size) times, to the base of the growth. With m objects that
may be merged, no method rewrites n uploads less than w times where n > (m + w)! / (m! w!). The highest growth is taken
at which enough objects can be removed (`GROWTHS`). If the list cannot become as short as is wanted, it may stay
slightly longer than it could be: otherwise objects of such a list would be rewritten in each run to remove one or two.
The idea is that of size-tiered and universal compaction (Mathieu et al., "Bigtable merge compaction", 2014), for a list
in which only neighbours may be merged.

A price selects whole groups, which may remove more objects than needed. There are two ways to correct this, and the
cheaper one is used: objects at the ends of these groups are left out again, most expensive first; or the groups for the
next lower price, which remove too few, are joined with their neighbours, cheapest first. Where growth decides, ends are
left out only as long as the growth remains: else more objects are removed than are wanted.

Joining alone is simpler and may end too early: of objects with 6, 4, 4 and 6 bytes, and groups of at most 10, it joins
the middle ones, and no further join is possible.

If groups remove too few objects, neighbours are joined one by one, cheapest first:

    two single objects              removes one, and costs both
    a group and an object           removes one, and costs that object
    two groups                      removes one, and costs nothing

A join changes the cost of the joins beside it; their new costs are queued, and outdated entries are skipped. This is
O(n log n) in total.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

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


GROWTHS = (8.0, 4.0, 2.0, 1.5)
"""Growths of a group that are tried, from the best on: its bytes by those of its largest source."""

SLACK_PART, SLACK_OBJECTS = 20, 4
"""A list that cannot become as short as is wanted may stay longer than it could be: by a twentieth, or by 4 objects."""


def choose_groups(
    sizes_bytes: Sequence[int],
    earliest: Sequence[int],
    wanted: int,
    bytes_max: int | None = None,
    *,
    once: bool = False,
) -> list[Run]:
    """The groups that remove a number of objects for few bytes, or as many as can be removed.

    Args:
        sizes_bytes: of the objects, in list order: the bytes that would be written again.
        earliest: for each position, where a group that ends there may begin at the earliest (`earliest_starts`).
        wanted: objects to remove.
        bytes_max: of all groups together; None = no limit.
        once: whether to take the cheapest groups, however little they grow: for a list that is not compacted each day.

    Returns:
        Groups of at least two neighbours, ascending. They remove `wanted` objects, or more where only whole groups grow
        enough; fewer if no more can be removed, or if `bytes_max` does not permit it. Without `once`, and if `wanted`
        is out of reach, a few objects may stay that only a group of little growth could remove.

    Complexity: O(n log(n * bytes)).
    """
    if wanted < 1 or not sizes_bytes:
        return []
    market = _Market(sizes_bytes, earliest)
    bytes_max = market.total_bytes if bytes_max is None else bytes_max
    low, high = 0, market.price_max
    while low < high:
        middle = (low + high) // 2
        groups = market.groups(middle)
        if removed(groups) >= wanted or rewritten_bytes(groups, market.sums) > bytes_max:
            high = middle
        else:
            low = middle + 1
    trimmed = _trimmed(market.groups(high), sizes_bytes, market.sums, wanted, bytes_max)
    joined = join_neighbours(market.groups(high - 1) if high else [], sizes_bytes, earliest, wanted, bytes_max)
    cheapest = min(trimmed, joined, key=lambda groups: (-removed(groups), rewritten_bytes(groups, market.sums)))
    return cheapest if once else _grown(market, high, cheapest, wanted, bytes_max)


def _grown(market: _Market, price: int, cheapest: list[Run], wanted: int, bytes_max: int) -> list[Run]:
    """Groups that grow more than the cheapest ones, and remove as many objects; the cheapest ones if there are none."""
    sizes_bytes, sums = market.sizes_bytes, market.sums
    enough = removed(cheapest)
    if enough < wanted and bytes_max >= market.total_bytes:
        price = 0  # as `price` removes all that can be removed
        enough = max(1, enough - max(SLACK_OBJECTS, len(sizes_bytes) // SLACK_PART))
    tried = [cheapest]
    for least in GROWTHS:
        at = 0
        while at < len(tried) or price <= market.price_max:
            if at == len(tried):
                price = 2 * price + 1
                tried.append(market.groups(price))
            grown = [group for group in tried[at] if _growth(group, sizes_bytes, sums) >= least]
            if removed(grown) >= enough:
                trimmed = _trimmed(grown, sizes_bytes, sums, wanted, bytes_max)
                is_grown = all(_growth(group, sizes_bytes, sums) >= least for group in trimmed)
                found = trimmed if is_grown and removed(trimmed) >= enough else grown
                if rewritten_bytes(found, sums) <= bytes_max:
                    return found
            at += 1
    return cheapest


def _growth(group: Run, sizes_bytes: Sequence[int], sums: Sequence[int]) -> float:
    first, end = group
    return (sums[end] - sums[first]) / max(1, *sizes_bytes[first:end])


class _Market:
    """The best groups for a price.

    Bytes and prices are multiplied by a factor above the number of objects, and one is added to the price: of two sets
    of groups with the same worth, the one that removes more is chosen, in integers.
    """

    def __init__(self, sizes_bytes: Sequence[int], earliest: Sequence[int]) -> None:
        self.sizes_bytes = sizes_bytes
        self._scale = len(sizes_bytes) + 1
        self._earliest = earliest
        self.sums = [0, *accumulate(sizes_bytes)]
        self._scaled = [total * self._scale for total in self.sums]
        self.total_bytes = self.sums[-1]
        self.price_max = (self.total_bytes + 1) * self._scale

    def groups(self, price: int) -> list[Run]:
        """The best groups, ascending."""
        price += 1
        best = [0]
        begins: list[int] = []
        queue: deque[tuple[int, int]] = deque()  # (worth of a start, its position): both ascend
        for last in range(len(self._earliest)):
            if last:
                first = last - 1
                worth = best[first] - self._scaled[first] + price * first
                while queue and queue[-1][0] > worth:
                    queue.pop()
                queue.append((worth, first))
            while queue and queue[0][1] < self._earliest[last]:
                queue.popleft()
            joined = queue[0][0] + self._scaled[last + 1] - price * last if queue else best[last]
            is_joined = bool(queue) and joined < best[last]
            best.append(joined if is_joined else best[last])
            begins.append(queue[0][1] if is_joined else last)
        return _read_back(begins)


def _read_back(begins: Sequence[int]) -> list[Run]:
    groups: list[Run] = []
    end = len(begins)
    while end:
        first = begins[end - 1]
        if end - first > 1:
            groups.append((first, end))
        end = first
    return groups[::-1]


def _trimmed(
    groups: Sequence[Run], sizes_bytes: Sequence[int], sums: Sequence[int], wanted: int, bytes_max: int
) -> list[Run]:
    """Leave objects at the ends of groups out again, those that save most first, while too many are removed."""
    removes, size_bytes = removed(groups), rewritten_bytes(groups, sums)
    heap = [(-_saved(group, sizes_bytes), group) for group in groups]
    heapq.heapify(heap)
    while heap and (removes > wanted or size_bytes > bytes_max):
        saved, group = heapq.heappop(heap)
        removes, size_bytes = removes - 1, size_bytes + saved
        if (rest := _without_dearer_end(group, sizes_bytes)) is not None:
            heapq.heappush(heap, (-_saved(rest, sizes_bytes), rest))
    return sorted(group for _, group in heap)


def _saved(group: Run, sizes_bytes: Sequence[int]) -> int:
    """Bytes saved if one object is left out; a group of two then ceases to exist."""
    ends = (sizes_bytes[group[0]], sizes_bytes[group[1] - 1])
    return sum(ends) if group[1] - group[0] == 2 else max(ends)


def _without_dearer_end(group: Run, sizes_bytes: Sequence[int]) -> Run | None:
    first, end = group
    if end - first == 2:
        return None
    return (first + 1, end) if sizes_bytes[first] > sizes_bytes[end - 1] else (first, end - 1)


Run = tuple[int, int]
"""Positions [first, end) of a group."""


def removed(groups: Sequence[Run]) -> int:
    """The number of objects that these groups remove."""
    return sum(end - first - 1 for first, end in groups)


def rewritten_bytes(groups: Sequence[Run], sums: Sequence[int]) -> int:
    """Bytes of all objects in these groups; `sums[i]` are those of the first i objects of the list."""
    return sum(sums[end] - sums[first] for first, end in groups)


def join_neighbours(
    groups: Sequence[Run], sizes_bytes: Sequence[int], earliest: Sequence[int], wanted: int, bytes_max: int
) -> list[Run]:
    """Join further neighbours until `wanted` objects are removed, or no further join is permitted or affordable.

    Args:
        groups: ascending; they remove at most `wanted`, and cost at most `bytes_max`.
        sizes_bytes: of all objects, in list order.
        earliest: for each position, where a group that ends there may begin at the earliest.
        wanted: objects to remove.
        bytes_max: of all groups together.
    """
    joins = _Joins(groups, sizes_bytes, earliest)
    while joins.removed < wanted and joins.take_cheapest(bytes_max):
        pass
    return joins.groups()


class _Joins:
    """All objects as runs, single or grouped, and the cost of joining each run with the next."""

    def __init__(self, groups: Sequence[Run], sizes_bytes: Sequence[int], earliest: Sequence[int]) -> None:
        self._sums = [0, *accumulate(sizes_bytes)]
        self._earliest = earliest
        self._end_of = {first: first + 1 for first in range(len(sizes_bytes))}
        for first, end in groups:
            self._end_of[first] = end
            for inner in range(first + 1, end):
                del self._end_of[inner]
        self._first_of = {end: first for first, end in self._end_of.items()}
        self.removed = removed(groups)
        self._size_bytes = rewritten_bytes(groups, self._sums)
        self._heap = [join for first in self._end_of for join in self._join_after(first)]
        heapq.heapify(self._heap)

    def groups(self) -> list[Run]:
        """The runs of more than one object, ascending."""
        return sorted((first, end) for first, end in self._end_of.items() if end - first > 1)

    def take_cheapest(self, bytes_max: int) -> bool:
        """Make the cheapest join; false if there is none within the limit of bytes."""
        while self._heap:
            cost_bytes, first, middle, end = heapq.heappop(self._heap)
            is_current = self._end_of.get(first) == middle and self._end_of.get(middle) == end
            if is_current and self._size_bytes + cost_bytes <= bytes_max:
                self._join(first, middle, end)
                self._size_bytes += cost_bytes
                return True
        return False

    def _join(self, first: int, middle: int, end: int) -> None:
        del self._end_of[middle], self._first_of[middle]
        self._end_of[first], self._first_of[end] = end, first
        self.removed += 1
        for beginning in (first, self._first_of.get(first)):
            if beginning is not None:
                for join in self._join_after(beginning):
                    heapq.heappush(self._heap, join)

    def _join_after(self, first: int) -> list[tuple[int, int, int, int]]:
        middle = self._end_of[first]
        end = self._end_of.get(middle)
        if end is None or self._earliest[end - 1] > first:
            return []
        return [(self._alone_bytes(first, middle) + self._alone_bytes(middle, end), first, middle, end)]

    def _alone_bytes(self, first: int, end: int) -> int:
        return self._sums[end] - self._sums[first] if end - first == 1 else 0
