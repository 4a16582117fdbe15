"""The limits of views: a maximum number, maximum bytes, and the time to live.

The views are stored in their nodes, where queries find them with the fewest steps. This module counts them and chooses
the views to evict. A view is evicted as a whole: a part of a view would return wrong results for its stream.

**Order of use.** The usual list in order of use is rewritten at every use, which is slow if uses are many and the
elements are scattered in memory. Here a view only has the time of its last use, so that recording a use costs one
assignment. A heap contains the time at which each view was examined last; the view at the top may have been used since,
and is then pushed again with the time of that use. A view at the top that was not used since is the least recently used
of all.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from range_index.runs import require
from range_index.stream_view import LiveView

EXAMINED_MAX: Final = 64
"""The maximum number of views that are examined to find the least recently used."""

SWEPT_MAX: Final = 2
"""The number of views that are examined whenever a view is made, to drop expired ones that are not queried."""


class ViewBounds:
    """Counts the views of all nodes and evicts the least recently used.

    Args:
        streams_max: the maximum number of views.
        bytes_max: the maximum bytes of all views.

    Threads: the caller's lock guards it.
    """

    __slots__ = (
        "_bytes_max",
        "_nodes",
        "_order",
        "_streams_max",
        "entries",
        "evicted",
        "evicted_bytes",
        "expired",
        "nbytes",
    )

    def __init__(self, streams_max: int, bytes_max: int) -> None:
        self._streams_max = streams_max
        self._bytes_max = bytes_max
        self._nodes: dict[int, dict[int, LiveView]] = {}
        self._order = UseOrder()
        self.nbytes = 0
        """Bytes of all views."""
        self.entries = 0
        """Entries of all views."""
        self.expired = 0
        """Views that reached the end of their time to live."""
        self.evicted = 0
        """Views evicted to keep the limits."""
        self.evicted_bytes = 0
        """Bytes of the evicted views."""

    def __len__(self) -> int:
        """The number of views."""
        return len(self._order)

    @property
    def is_exceeded(self) -> bool:
        """Whether there are too many views, or too many bytes."""
        return len(self._order) > self._streams_max or self.nbytes > self._bytes_max

    def put(self, node_id: int, views: dict[int, LiveView], stream_id: int, view: LiveView) -> None:
        """Add a view to those of its node, where it replaces the stream's previous view; O(log views).

        Args:
            node_id: of the node.
            views: of this node, by stream; always the same dictionary for one node while the node has views.
            stream_id: of the view.
            view: to be kept; ``shrink`` may evict it again.
        """
        old = views.get(stream_id)
        if old is None:
            self._nodes[node_id] = views
            self._order.add(view.used, node_id, stream_id)
        else:
            self._count(old, -1)
        views[stream_id] = view
        self._count(view, 1)

    def shrink(self, now: float) -> set[int]:
        """Evict views until the limits are kept, and drop some expired ones; O(log views) for each.

        Returns:
            The nodes that lost a view.
        """
        losers = set()
        for _ in range(min(SWEPT_MAX, len(self._order))):
            node_id, stream_id = self._order.pop(self._last_use, examined_max=SWEPT_MAX)
            view = self._nodes[node_id][stream_id]
            if now >= view.expires:
                self.expired += 1
                self._drop(node_id, stream_id)
                losers.add(node_id)
            else:
                self._order.add(view.used, node_id, stream_id)
        while self.is_exceeded:
            node_id, stream_id = self._order.pop(self._last_use, examined_max=EXAMINED_MAX)
            self.evicted += 1
            self.evicted_bytes += self._nodes[node_id][stream_id].size_bytes
            self._drop(node_id, stream_id)
            losers.add(node_id)
        return losers

    def _last_use(self, node_id: int, stream_id: int) -> float:
        return self._nodes[node_id][stream_id].used

    def _drop(self, node_id: int, stream_id: int) -> None:
        views = self._nodes[node_id]
        self._count(views.pop(stream_id), -1)
        if not views:
            del self._nodes[node_id]

    def _count(self, view: LiveView, sign: int) -> None:
        self.nbytes += sign * view.size_bytes
        self.entries += sign * len(view)

    def check(self) -> None:
        """Check every invariant; O(views).

        Raises:
            AssertionError: an invariant is broken; the message contains the state.
        """
        views = [view for of_node in self._nodes.values() for view in of_node.values()]
        keys = [(node_id, stream_id) for node_id, of_node in self._nodes.items() for stream_id in of_node]
        require(all(self._nodes.values()), "each node has views", list(self._nodes))
        require(sorted(keys) == sorted(self._order.keys()), "each view has one place in the use order", keys)
        entries, nbytes = sum(map(len, views)), sum(view.size_bytes for view in views)
        require(entries == self.entries, "view entries are counted", entries, self.entries)
        require(nbytes == self.nbytes, "view bytes are counted", nbytes, self.nbytes)
        require(not self.is_exceeded, "views are bounded", len(keys), nbytes)


class UseOrder:
    """Keys of two numbers (a node and a stream), approximately in order of use.

    Threads: the caller's lock guards it.
    """

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int]] = []

    def add(self, used: float, node_id: int, stream_id: int) -> None:
        """Add a key that is not in the order; O(log n)."""
        heappush(self._heap, (used, node_id, stream_id))

    def pop(self, used: Callable[[int, int], float], *, examined_max: int) -> tuple[int, int]:
        """Remove and return the least recently used key.

        It examines at most ``examined_max`` keys, so that no call is long. If all of these were used since they were
        last examined, the least recently used of these is returned.

        Complexity: O(examined_max log n).

        Args:
            used: returns the time of the last use of a key.
            examined_max: at least 1.

        Raises:
            IndexError: there are no keys.
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
        """The number of keys."""
        return len(self._heap)

    def keys(self) -> list[tuple[int, int]]:
        """All keys, in no order; O(n)."""
        return [(node_id, stream_id) for _, node_id, stream_id in self._heap]
