"""Which views are kept: a maximum of streams and of bytes, none longer than it lives.

The views themselves stand in their nodes, where questions find them with the fewest steps. Here they are counted, and
here is decided which of them go. A view goes whole: half a view would answer for a stream and be wrong.

**Order of use.** The usual list in order of use is rewritten at every use, which is dear when uses are many and things
lie scattered in memory. Here a view only carries the time of its last use, so that noting a use costs one assignment. A
heap holds the time at which each was looked at last; what stands at its top may have been used since, and is then put
back with the time of that use. A view at the top that was not used since is the least recently used of all.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from range_index.runs import require
from range_index.stream_view import LiveView

EXAMINED_MAX: Final = 64
"""Views that are looked at to find the least recently used."""

SWEPT_MAX: Final = 2
"""Views that are looked at whenever one is made, to let go those that expired unasked."""


class ViewBounds:
    """Counts the views of all nodes and lets the least recently used go.

    Args:
        streams_max: how many there may be.
        bytes_max: how many bytes they may take.

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
        """Views that left for want of room."""
        self.evicted_bytes = 0
        """Bytes of these."""

    def __len__(self) -> int:
        """How many views there are."""
        return len(self._order)

    @property
    def is_exceeded(self) -> bool:
        """Whether there are too many, or they take too much."""
        return len(self._order) > self._streams_max or self.nbytes > self._bytes_max

    def put(self, node_id: int, views: dict[int, LiveView], stream_id: int, view: LiveView) -> None:
        """Put a view among those of its node, in place of the stream's former one if there is one; O(log views).

        Args:
            node_id: of the node.
            views: of this node, by stream; always the same dictionary for one node as long as it has any.
            stream_id: of the view.
            view: to be kept; ``shrink`` lets it go again if there is no room.
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
        """Let go what is too much, and some of what is too old; O(log views) for each that goes.

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
        """Walk every invariant; O(views).

        Raises:
            AssertionError: one is broken; the message has the state.
        """
        views = [view for of_node in self._nodes.values() for view in of_node.values()]
        keys = [(node_id, stream_id) for node_id, of_node in self._nodes.items() for stream_id in of_node]
        require(all(self._nodes.values()), "a node that is known has views", list(self._nodes))
        require(sorted(keys) == sorted(self._order.keys()), "each view has one place in the use order", keys)
        entries, nbytes = sum(map(len, views)), sum(view.size_bytes for view in views)
        require(entries == self.entries, "view entries are counted", entries, self.entries)
        require(nbytes == self.nbytes, "view bytes are counted", nbytes, self.nbytes)
        require(not self.is_exceeded, "views are bounded", len(keys), nbytes)


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
