"""Which of many things was used least recently, where noting a use may cost no more than one assignment.

The usual list in order of use is rewritten at every use, which is dear when uses are many and things lie scattered in
memory. Here a thing only carries the time of its last use. A heap holds the time at which each was looked at last; what
stands at its top may have been used since, and is then put back with the time of that use. A thing at the top that was
not used since is the least recently used of all.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class UseOrder:
    """Things known by two numbers (a node and a stream), roughly in order of use.

    Threads: the caller's lock guards it.
    """

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int]] = []

    def add(self, used: float, node_id: int, stream_id: int) -> None:
        """Take in a thing that is not in here; O(log n)."""
        heappush(self._heap, (used, node_id, stream_id))

    def pop(self, used: Callable[[int, int], float], *, examined_max: int) -> tuple[int, int]:
        """Take out the thing that was used least recently.

        It looks at ``examined_max`` things at most, so that no call is long. If all of these were used since they were
        looked at last, the least recently used of these is taken.

        Complexity: O(examined_max log n).

        Args:
            used: gives the time when a thing was used last.
            examined_max: at least 1.

        Raises:
            IndexError: there is nothing in here.
        """
        examined: list[tuple[float, int, int]] = []
        unused_since = False
        while not unused_since and len(examined) < examined_max and (self._heap or not examined):
            looked_at, node_id, stream_id = heappop(self._heap)
            last = used(node_id, stream_id)
            unused_since = last <= looked_at
            examined.append((last, node_id, stream_id))
        least = min(examined)
        for thing in examined:
            if thing is not least:
                heappush(self._heap, thing)
        return least[1:]

    def __len__(self) -> int:
        """How many things there are."""
        return len(self._heap)

    def keys(self) -> list[tuple[int, int]]:
        """All things, in no order; O(n)."""
        return [(node_id, stream_id) for _, node_id, stream_id in self._heap]
