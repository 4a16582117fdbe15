"""The view of one stream in one node: its entries, sorted for searches, and the data that shows whether it is current.

An entry is a range of offsets of the stream and the object that holds it. A view contains all entries of one stream in
an index, as one sorted run ascending by start offset. When the index gets further entries, it makes a new view. A
`LiveView` is a view in the index: its entries never change, its bookkeeping does.

**Limits.** There is a maximum number of views, maximum bytes, and a time to live. The views are stored in their nodes,
where queries find them with the fewest steps. `ViewBounds` counts them and chooses the views to evict. A view is
evicted as a whole: a part of a view would return wrong results for its stream.

**Order of use.** The usual list in order of use is rewritten at every use, which is slow if uses are many and the
elements are scattered in memory. Here a view only has the time of its last use, so that recording a use costs one
assignment. A heap contains the time at which each view was examined last; the view at the top may have been used since,
and is then pushed again with the time of that use. A view at the top that was not used since is the least recently used
of all.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Collection, Iterator, Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from range_index.runs import Run, append, floor, require, seal, unpack


class Entry(NamedTuple):
    """The offsets ``[start, end)`` of a stream in one object; if ``holed`` is true, some of them are missing."""

    start: int
    end: int
    object_id: int
    holed: bool


class Rows(NamedTuple):
    """Entries of one stream as columns, in order of arrival."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    object_ids: NDArray[np.int64]
    holed: frozenset[int]
    """Ids of the objects whose entry has a hole inside."""


def rows_of_entries(entries: Sequence[Entry]) -> Rows:
    """The same entries as columns."""
    table = np.array([entry[:3] for entry in entries], dtype=np.int64).reshape(-1, 3)
    starts, ends, object_ids = table.T
    return Rows(starts, ends, object_ids, frozenset(entry.object_id for entry in entries if entry.holed))


def joined(parts: Sequence[Rows]) -> Rows:
    """The entries of all parts, one after the other."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return rows_of_entries([])
    starts, ends, object_ids, holed = zip(*parts, strict=True)
    return Rows(np.concatenate(starts), np.concatenate(ends), np.concatenate(object_ids), frozenset().union(*holed))


NO_HOLES: Final[frozenset[int]] = frozenset()


class StreamView:
    """The entries of one stream in one node, ascending by start, then by arrival; each object once.

    ``floor`` returns one entry. To step down from a floor whose object is not to be used, use ``floor_position`` and
    count down; ``entry`` returns the entry at a position. ``starts``, ``ends`` and ``object_ids`` are whole columns;
    read them once and not in a loop, as each access creates a memoryview. Fast code reads ``packed``: for the entry at
    position i it contains the start at ``i``, the end at ``rows + i``, the object id at ``2 * rows + i``.

    Args:
        starts: first offset of each entry.
        ends: one past the last offset of each entry.
        object_ids: the object of each entry.
        holed: ids of the objects whose entry has a hole inside; nearly always empty.
        version: of the content: two views of one index with the same version have the same entries of the same stream.

    Threads: a returned view never changes, so any thread may read it.
    """

    __slots__ = ("holed", "note", "packed", "rows", "version")

    def __init__(
        self, starts: array[int], ends: array[int], object_ids: array[int], holed: frozenset[int], version: int
    ) -> None:
        if not len(starts) == len(ends) == len(object_ids):
            lengths = (len(starts), len(ends), len(object_ids))
            raise ValueError(f"expected starts, ends and objects of equal length, found lengths {lengths}")
        self._set(Run(starts + ends + object_ids, len(starts)), holed, version)

    def _set(self, run: Run, holed: frozenset[int], version: int) -> None:
        self.packed = run.packed
        self.rows = run.rows
        # One empty set for all views: every operation on sets creates a new set of 216 bytes.
        self.holed = holed or NO_HOLES
        self.version = version
        self.note: object = None
        """Data of the view's user about the entries, kept as long as the view; any thread may set it."""

    @property
    def run(self) -> Run:
        """The entries as a sorted run; O(1)."""
        return Run(self.packed, self.rows)

    @property
    def starts(self) -> memoryview:
        """First offset of each entry, ascending, not copied; O(1)."""
        return memoryview(self.packed)[: self.rows].toreadonly()

    @property
    def ends(self) -> memoryview:
        """One past the last offset of each entry, not copied; O(1)."""
        return memoryview(self.packed)[self.rows : 2 * self.rows].toreadonly()

    @property
    def object_ids(self) -> memoryview:
        """The object of each entry, not copied; O(1)."""
        return memoryview(self.packed)[2 * self.rows :].toreadonly()

    def floor_position(self, offset: int) -> int:
        """The position of the entry with the greatest start at or before ``offset``, or -1; O(log entries)."""
        return floor(self.packed, self.rows, offset)

    def floor(self, offset: int) -> Entry | None:
        """The entry with the greatest start at or before ``offset``, if there is one; O(log entries)."""
        position = self.floor_position(offset)
        return self.entry(position) if position >= 0 else None

    def entry(self, position: int) -> Entry:
        """The entry at a position, counted from 0; O(1).

        Raises:
            IndexError: a position below 0 or after the last.
        """
        packed, rows = self.packed, self.rows
        if not 0 <= position < rows:
            raise IndexError(f"expected a position of 0 to {rows - 1}, found {position}")
        object_id = packed[2 * rows + position]
        return Entry(packed[position], packed[rows + position], object_id, object_id in self.holed)

    def __len__(self) -> int:
        """The number of entries."""
        return self.rows

    def __iter__(self) -> Iterator[Entry]:
        """The entries, ascending by start."""
        return map(self.entry, range(self.rows))

    def __repr__(self) -> str:
        return f"StreamView({list(self)!r}, version={self.version})"

    @property
    def nbytes(self) -> int:
        """Bytes of the packed entries, and of `holed` if it is not empty."""
        return sys.getsizeof(self.packed) + (sys.getsizeof(self.holed) if self.holed else 0)

    def check(self) -> None:
        """Check every invariant; O(entries).

        Raises:
            AssertionError: an invariant is broken; the message contains the state.
        """
        require(len(self.packed) == 3 * self.rows, "each entry has three numbers", self.packed, self.rows)
        entries = list(self)
        starts = [entry.start for entry in entries]
        require(starts == sorted(starts), "starts ascend", self)
        require(all(entry.start <= entry.end for entry in entries), "no end before start", self)
        object_ids = {entry.object_id for entry in entries}
        require(len(object_ids) == self.rows, "each object once", self)
        require(self.holed <= object_ids, "a hole flag is of an object of the view", self.holed, self)


VIEW_OVERHEAD_BYTES: Final = 336
"""Bytes of a view besides its arrays: the object and its numbers, its entries in a dictionary and in the use order."""


class LiveView(StreamView):
    """A view with its bookkeeping: its entries never change, its bookkeeping does.

    Args:
        run: the entries, keyed by start; the other columns are ends and object ids.
        holed: ids of the objects whose entry has a hole inside.
        object_id_max: the highest id of these objects, -1 if there is none.
        version: of the content.
        revision: of the node; the view includes all changes up to it.
        expires: the end of the view's lifetime, by the owner's timer.
        used: the time of the last query, by the owner's timer.

    Threads: callers use it as a StreamView; the owner changes the bookkeeping under its lock.
    """

    __slots__ = ("expires", "object_id_max", "revision", "used")

    def __init__(
        self,
        run: Run,
        holed: frozenset[int],
        object_id_max: int,
        *,
        version: int,
        revision: int,
        expires: float,
        used: float,
    ) -> None:
        self._set(run, holed, version)
        self.revision = revision
        self.expires = expires
        self.used = used
        self.object_id_max = object_id_max

    @classmethod
    def of(cls, rows: Rows, *, version: int, revision: int, expires: float, used: float) -> LiveView:
        """A view of these entries; O(entries) if their starts ascend already."""
        run = seal(rows.starts, rows.ends, rows.object_ids)
        highest = int(rows.object_ids.max(initial=-1))
        return cls(run, rows.holed, highest, version=version, revision=revision, expires=expires, used=used)

    @property
    def size_bytes(self) -> int:
        """Bytes of the view with its bookkeeping."""
        return self.nbytes + VIEW_OVERHEAD_BYTES

    def follow(self, entries: Sequence[Entry]) -> bool:
        """Whether these entries ascend and start at or after the last start of the view; O(new entries)."""
        before = self.packed[self.rows - 1] if self.rows else 0
        for entry in entries:
            if entry.start < before:
                return False
            before = entry.start
        return True

    def with_entries(self, entries: Sequence[Entry], *, version: int) -> LiveView:
        """A view with further entries, which `follow`, and are of ascending objects that this view lacks.

        Complexity: one copy of the arrays.
        """
        run = append(self.run, [entry[:3] for entry in entries])
        holed = [entry.object_id for entry in entries if entry.holed]
        return self._with(run, self.holed.union(holed), entries[-1].object_id, version)

    def with_rows(self, rows: Rows, *, without: Collection[int], version: int) -> LiveView:
        """A view without the entries of some objects, and with those of others.

        Complexity: O(entries log entries), no loop in Python over entries.

        Args:
            rows: entries to add; they replace those of the same objects.
            without: ids of objects whose entries are removed.
            version: of the new view.
        """
        gone = np.fromiter(without, dtype=np.int64, count=len(without))
        old = unpack(self.packed).reshape(3, self.rows)
        kept = old[:, ~np.isin(old[2], np.concatenate([gone, rows.object_ids]))]
        starts, ends, object_ids = np.concatenate([kept, np.stack(rows[:3])], axis=1)
        replaced = frozenset(rows.object_ids.tolist()).union(without)
        holed = (self.holed - replaced) | rows.holed
        return self._with(seal(starts, ends, object_ids), holed, int(object_ids.max(initial=-1)), version)

    def _with(self, run: Run, holed: frozenset[int], object_id_max: int, version: int) -> LiveView:
        return LiveView(
            run,
            holed,
            object_id_max,
            version=version,
            revision=self.revision,
            expires=self.expires,
            used=self.used,
        )

    def check(self) -> None:
        """Check every invariant; O(entries).

        Raises:
            AssertionError: an invariant is broken; the message contains the state.
        """
        super().check()
        highest = max(self.object_ids, default=-1)
        require(self.object_id_max == highest, "the highest object id is known", self.object_id_max, highest)


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
