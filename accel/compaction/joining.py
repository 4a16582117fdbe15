"""Joining neighbours one by one, cheapest first: how groups that remove too few objects are completed.

    two objects that stand alone    remove one, and cost both
    a group and an object           removes one, and costs that object
    two groups                      removes one, and costs nothing

A join changes what the joins beside it cost; those are looked at anew, and the outdated ones are skipped when they come
up. That is O(n log n) in all.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import accumulate

Run = tuple[int, int]
"""Positions [first, end) of a group."""


def removed(groups: Sequence[Run]) -> int:
    """How many objects fewer there are after these groups."""
    return sum(end - first - 1 for first, end in groups)


def rewritten_bytes(groups: Sequence[Run], sums: Sequence[int]) -> int:
    """Bytes of all objects in these groups; `sums[i]` are those of the first i objects of the list."""
    return sum(sums[end] - sums[first] for first, end in groups)


def join_neighbours(
    groups: Sequence[Run], sizes_bytes: Sequence[int], earliest: Sequence[int], wanted: int, bytes_max: int
) -> list[Run]:
    """Go on from some groups until `wanted` objects are removed, or no further join is permitted or affordable.

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
    """All objects as runs, alone or in groups, and what it costs to join each with the next one."""

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
        self._heap = [each for first in self._end_of for each in self._join_after(first)]
        heapq.heapify(self._heap)

    def groups(self) -> list[Run]:
        """The runs of more than one object, ascending."""
        return sorted((first, end) for first, end in self._end_of.items() if end - first > 1)

    def take_cheapest(self, bytes_max: int) -> bool:
        """Make the cheapest join; false if there is none, or none that keeps within the bytes."""
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
                for each in self._join_after(beginning):
                    heapq.heappush(self._heap, each)

    def _join_after(self, first: int) -> list[tuple[int, int, int, int]]:
        middle = self._end_of[first]
        end = self._end_of.get(middle)
        if end is None or self._earliest[end - 1] > first:
            return []
        return [(self._alone_bytes(first, middle) + self._alone_bytes(middle, end), first, middle, end)]

    def _alone_bytes(self, first: int, end: int) -> int:
        return self._sums[end] - self._sums[first] if end - first == 1 else 0
