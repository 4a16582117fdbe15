"""Chooses the neighbours to merge, so that enough objects are removed and few bytes are rewritten, now and later.

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
from collections.abc import Sequence
from itertools import accumulate

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
