"""The range index of all nodes: the object that holds an offset of a stream, if it is known.

Such an index has two problems. Each object has thousands of streams, so work for each stream on insertion would be done
thousands of times for streams that are never queried. And there are many streams, so data for each of them would fill
the memory. Hence two levels:

    insert(node, object, ranges)                 one copy of packed arrays, no work for any stream
          |
          v
    node -> chunks of objects' ranges            12 bytes an entry, limited by bytes; least used chunks are evicted
          |
          |  on the first query of a stream, one search over all objects of the node
          v
    (node, stream) -> view                       24 bytes an entry, for queried streams; limited by number, by bytes
          |                                      and by time, the views of the least used streams are evicted
          v
    floor(node, stream, offset) -> entry         a dictionary, a read of the timer, a bisection

A view is made from the arrays, and outlives them: evicting arrays removes no entry from a view. Objects that are
inserted or removed later are recorded in the node's log of changes, and a view applies them when it is queried again.
So removing an object needs no work for any stream, and yet no later query returns it.

All entries are hints: evictions make the index incomplete, but every entry is correct for its object. The caller
decides by the image whether an object is still listed; hence a view can return the next lower entry.

Source: AutoMQ issue 2731, section 1.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, KeysView
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from range_index.node_index import NodeIndex
from range_index.object_ranges import ObjectRanges
from range_index.range_chunk import RangeChunk
from range_index.runs import require
from range_index.stream_view import NO_HOLES, Entry, LiveView, Rows, StreamView, ViewBounds


@dataclass(frozen=True, slots=True)
class IndexStatistics:
    """Statistics of a stream range index at one time. Counters count since the index was created.

    Args:
        nodes: nodes in the index.
        objects: objects whose arrays are in memory.
        entries: entries in these arrays.
        streams: views in memory, including expired ones that were not queried since.
        view_entries: entries in these views.
        array_bytes: of the objects' arrays and their bookkeeping.
        view_bytes: of the views and their bookkeeping.
        log_bytes: of the nodes and their logs of changes.
        hits: queries answered by a live view.
        misses: queries that found no live view.
        fills: views that were filled from the arrays.
        catch_ups: views that applied changes of their node.
        expired: views that reached the end of their time to live.
        evicted_views: views evicted to keep the limits.
        evicted_objects: objects whose arrays were evicted to keep the limits.
        evicted_view_bytes: bytes of the evicted views.
        evicted_array_bytes: bytes of the evicted arrays.
    """

    nodes: int
    objects: int
    entries: int
    streams: int
    view_entries: int
    array_bytes: int
    view_bytes: int
    log_bytes: int
    hits: int
    misses: int
    fills: int
    catch_ups: int
    expired: int
    evicted_views: int
    evicted_objects: int
    evicted_view_bytes: int
    evicted_array_bytes: int


TTL_SECONDS: Final = 600.0
STREAMS_MAX: Final = 200_000
ARRAY_BYTES_MAX: Final = 256 * 1024 * 1024
VIEW_BYTES_MAX: Final = 256 * 1024 * 1024

JITTER_SHARE: Final = 0.1
"""The lifetime of a view is longer or shorter than the time to live by at most this share."""

CHUNKS_OF_ALL: Final = 16
"""A chunk, which is evicted as a whole, takes at most the array bytes divided by this number."""

INT64_MAX: Final = 2**63 - 1

_NOTHING: Final = StreamView(array("q"), array("q"), array("q"), NO_HOLES, 0)


class StreamRangeIndex:
    """(node, stream) -> floor by start offset -> (start, end, object).

    Fill: ``insert``, ``add_entries``. Query: ``floor``, ``view``, ``holds``, ``loaded``. Remove: ``remove``. Observe:
    ``stats``, ``nbytes``, ``check``.

    Args:
        timer: returns seconds, never falling.
        jitter: returns a number in [0, 1), so that views filled at the same time do not expire at the same time.
        ttl_seconds: the lifetime of a view after it was filled, up to a tenth more or less by jitter.
        streams_max: the maximum number of views of all nodes; the least recently used view is evicted.
        array_bytes_max: the maximum bytes of objects' arrays; the least recently used are evicted, at most a 16th of
            the limit at a time.
        view_bytes_max: the maximum bytes of views; the least recently used view is evicted.

    Raises:
        ValueError: a limit that is not positive.

    Threads: one at a time; the caller's lock guards it. A returned view may be read by any thread.

    >>> from range_index import ObjectRanges
    >>> index = StreamRangeIndex(timer=lambda: 0.0, jitter=lambda: 0.5)
    >>> index.insert(4, 7, ObjectRanges.from_ranges([(420000, 0, 100), (420001, 0, 20)]))
    >>> index.insert(4, 9, ObjectRanges.from_ranges([(420000, 100, 180)]))
    >>> index.floor(4, 420000, 150)
    Entry(start=100, end=180, object_id=9, holed=False)
    """

    def __init__(
        self,
        *,
        timer: Callable[[], float],
        jitter: Callable[[], float],
        ttl_seconds: float = TTL_SECONDS,
        streams_max: int = STREAMS_MAX,
        array_bytes_max: int = ARRAY_BYTES_MAX,
        view_bytes_max: int = VIEW_BYTES_MAX,
    ) -> None:
        if min(ttl_seconds, streams_max, array_bytes_max, view_bytes_max) <= 0:
            bounds = (ttl_seconds, streams_max, array_bytes_max, view_bytes_max)
            raise ValueError(f"expected bounds above 0, found {bounds}")
        self._timer = timer
        self._jitter = jitter
        self._ttl_seconds = ttl_seconds
        self._array_bytes_max = array_bytes_max
        self._nodes: dict[int, NodeIndex] = {}
        self._views = ViewBounds(streams_max, view_bytes_max)
        self._versions = 0
        self._array_bytes = self._evicted_objects = self._evicted_array_bytes = 0
        self._asked = self._misses = self._fills = self._catch_ups = 0

    # -- fill ----------------------------------------------------------------------------------------------------------

    def insert(self, node_id: int, object_id: int, ranges: ObjectRanges) -> None:
        """Add all streams of an object; they replace earlier entries of that object.

        Complexity: one copy of the arrays; no work per stream or view.

        Raises:
            ValueError: an object id that is negative or has more than 63 bits.
        """
        if not 0 <= object_id <= INT64_MAX:
            raise ValueError(f"expected an object id of 0 to 2**63 - 1, found {object_id}")
        node = self._node(node_id)
        before = node.ranges.nbytes
        node.insert(object_id, ranges, self._timer())
        self._array_bytes += node.ranges.nbytes - before
        while self._array_bytes > self._array_bytes_max:
            self._evict_chunk()

    def add_entries(
        self,
        node_id: int,
        stream_id: int,
        starts: ArrayLike,
        ends: ArrayLike,
        object_ids: ArrayLike,
        *,
        holed_object_ids: Iterable[int] = (),
    ) -> None:
        """Add entries of one stream that were not read from objects, for example those of a snapshot.

        They are added to the stream's view, where they replace entries of the same objects, and are evicted with it.

        Complexity: O(entries of the view), and a fill if there is no view yet.

        Args:
            node_id: the node that owns the objects.
            stream_id: the stream.
            starts: first offset of each entry, in any order.
            ends: one past the last offset of each entry.
            object_ids: the object of each entry; if an object has several entries, the last one is used.
            holed_object_ids: the objects whose entry has a hole inside.

        Raises:
            ValueError: columns of different lengths, numbers that are not 63-bit integers, an end before its start.
        """
        if not 0 <= stream_id <= INT64_MAX:
            raise ValueError(f"expected a stream id of 0 to 2**63 - 1, found {stream_id}")
        rows = hint_rows(starts, ends, object_ids, holed_object_ids)
        node, now = self._node(node_id), self._timer()
        view = self._current(node, stream_id, now)
        if view is None:
            view = self._filled(node, stream_id, now)
        self._keep(node_id, node, stream_id, view.with_rows(rows, without=(), version=self._next_version()), now)

    # -- query ---------------------------------------------------------------------------------------------------------

    def floor(self, node_id: int, stream_id: int, offset: int) -> Entry | None:
        """The entry with the greatest start at or before ``offset``, if one is known.

        Complexity: O(log entries) if the stream has a live view; else as ``view``.
        """
        # This is view(...).floor(...), inlined. With many streams the processor's caches do not hold their views, and
        # each access to memory costs as much as ten steps of the interpreter.
        self._asked += 1
        try:
            node = self._nodes[node_id]
            view = node.views[stream_id]
        except KeyError:
            return self._view(node_id, stream_id).floor(offset)
        now = self._timer()
        if view.revision != node.changes.revision or now >= view.expires:
            return self._view(node_id, stream_id).floor(offset)
        view.used = now
        packed, rows, holed = view.packed, view.rows, view.holed
        position = bisect_right(packed, offset, 0, rows) - 1
        if position < 0:
            return None
        object_id = packed[2 * rows + position]
        fields = (packed[position], packed[rows + position], object_id, object_id in holed if holed else False)
        # The base constructor of the class, without the call of a Python function.
        return _new_entry(Entry, fields)

    def view(self, node_id: int, stream_id: int) -> StreamView:
        """All entries of one stream in one node, as of now.

        Complexity: O(1) if the stream has a live view and the node has not changed; a copy of the view if an object was
        added; else O(objects x log streams of one object), about 0.2 us an object.
        """
        self._asked += 1
        try:
            node = self._nodes[node_id]
            view = node.views[stream_id]
        except KeyError:
            return self._view(node_id, stream_id)
        now = self._timer()
        if view.revision != node.changes.revision or now >= view.expires:
            return self._view(node_id, stream_id)
        view.used = now
        return view

    def holds(self, node_id: int, object_id: int) -> bool:
        """Whether the arrays of an object are in memory; O(1)."""
        node = self._nodes.get(node_id)
        return node is not None and object_id in node.ranges.object_ids

    def loaded(self, node_id: int) -> KeysView[int]:
        """The ids of a node's objects whose arrays are in memory, in order of arrival; valid until the next change.

        Complexity: O(1).
        """
        node = self._nodes.get(node_id)
        return node.ranges.object_ids if node is not None else _NO_OBJECTS

    # -- remove --------------------------------------------------------------------------------------------------------

    def remove(self, node_id: int, object_ids: Iterable[int]) -> None:
        """Remove objects: no later query returns them. Unknown objects are ignored.

        Complexity: O(objects) amortised; no work per stream or view.
        """
        node = self._nodes.get(node_id)
        if node is None:
            return
        before = node.ranges.nbytes
        node.remove(object_ids)
        self._array_bytes += node.ranges.nbytes - before
        self._drop_if_empty(node_id, node)

    # -- observe -------------------------------------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """Bytes of arrays, views, changes, and the estimated overhead of their containers; O(nodes)."""
        return self._array_bytes + self._views.nbytes + sum(node.log_bytes for node in self._nodes.values())

    def stats(self) -> IndexStatistics:
        """Sizes now, and counts since the index was created; O(nodes)."""
        nodes = self._nodes.values()
        return IndexStatistics(
            nodes=len(nodes),
            objects=sum(len(node.ranges.object_ids) for node in nodes),
            entries=sum(node.ranges.entries for node in nodes),
            streams=len(self._views),
            view_entries=self._views.entries,
            array_bytes=self._array_bytes,
            view_bytes=self._views.nbytes,
            log_bytes=sum(node.log_bytes for node in nodes),
            hits=self._asked - self._misses,
            misses=self._misses,
            fills=self._fills,
            catch_ups=self._catch_ups,
            expired=self._views.expired,
            evicted_views=self._views.evicted,
            evicted_objects=self._evicted_objects,
            evicted_view_bytes=self._views.evicted_bytes,
            evicted_array_bytes=self._evicted_array_bytes,
        )

    def check(self) -> None:
        """Check every invariant; O(size of the index).

        Raises:
            AssertionError: an invariant is broken; the message contains the state.
        """
        for node in self._nodes.values():
            node.check()
        self._views.check()
        views = sum(len(node.views) for node in self._nodes.values())
        require(views == len(self._views), "the views are those of the nodes", views, self.stats())
        array_bytes = sum(node.ranges.nbytes for node in self._nodes.values())
        require(array_bytes == self._array_bytes, "array bytes are counted", array_bytes, self.stats())
        require(array_bytes <= self._array_bytes_max, "array bytes are bounded", self.stats())

    # -- views ---------------------------------------------------------------------------------------------------------

    def _view(self, node_id: int, stream_id: int) -> StreamView:
        node = self._nodes.get(node_id)
        if node is None or not 0 <= stream_id <= INT64_MAX:
            self._misses += 1
            return _NOTHING
        now = self._timer()
        view = node.views.get(stream_id)
        if view is not None and view.revision == node.changes.revision and now < view.expires:
            view.used = now
            return view
        current = self._current(node, stream_id, now)
        if current is None:
            self._misses += 1
            current = self._filled(node, stream_id, now)
        self._keep(node_id, node, stream_id, current, now)
        return current

    def _current(self, node: NodeIndex, stream_id: int, now: float) -> LiveView | None:
        """The live view of a stream with all changes of its node, or None if it has to be filled."""
        view = node.views.get(stream_id)
        if view is None:
            return None
        if now >= view.expires:
            self._views.expired += 1
            return None
        newer = node.caught_up(stream_id, view, now, version=self._next_version())
        self._catch_ups += newer is not None and newer is not view
        return newer

    def _filled(self, node: NodeIndex, stream_id: int, now: float) -> LiveView:
        self._fills += 1
        lifetime = self._ttl_seconds * (1 - JITTER_SHARE + 2 * JITTER_SHARE * self._jitter())
        return node.make_view(stream_id, now, version=self._next_version(), expires=now + lifetime)

    def _next_version(self) -> int:
        self._versions += 1
        return self._versions

    # -- bounds --------------------------------------------------------------------------------------------------------

    def _keep(self, node_id: int, node: NodeIndex, stream_id: int, view: LiveView, now: float) -> None:
        view.used = now
        self._views.put(node_id, node.views, stream_id, view)
        for loser_id in self._views.shrink(now):
            self._drop_if_empty(loser_id, self._nodes[loser_id])

    def _evict_chunk(self) -> None:
        chunks = [(node_id, chunk) for node_id, node in self._nodes.items() for chunk in node.ranges.chunks]
        node_id, chunk = min(chunks, key=_chunk_use)
        node = self._nodes[node_id]
        self._array_bytes -= chunk.nbytes
        self._evicted_array_bytes += chunk.nbytes
        self._evicted_objects += node.ranges.drop(chunk)
        self._drop_if_empty(node_id, node)

    def _node(self, node_id: int) -> NodeIndex:
        node = self._nodes.get(node_id)
        if node is None:
            node = self._nodes[node_id] = NodeIndex(self._array_bytes_max // CHUNKS_OF_ALL)
        return node

    def _drop_if_empty(self, node_id: int, node: NodeIndex) -> None:
        if node.is_empty:
            self._nodes.pop(node_id, None)


_NO_OBJECTS: Final[KeysView[int]] = {}.keys()
_new_entry: Final = tuple.__new__


def _chunk_use(place: tuple[int, RangeChunk]) -> float:
    return place[1].used


_INT64_MAX: Final = 2**63 - 1


def hint_rows(starts: ArrayLike, ends: ArrayLike, object_ids: ArrayLike, holed_object_ids: Iterable[int]) -> Rows:
    """Check entries given as columns; if an object has several entries, keep the last one.

    Complexity: O(n log n), no loop in Python.

    Raises:
        ValueError: columns of different lengths, numbers that are not 63-bit integers, an end before its start.
    """
    columns = [_column(values) for values in (starts, ends, object_ids)]
    lengths = [len(column) for column in columns]
    if len(set(lengths)) != 1:
        raise ValueError(f"expected starts, ends and objects of equal length, found lengths {lengths}")
    inverted = columns[1] < columns[0]
    if inverted.any():
        at = int(inverted.argmax())
        raise ValueError(
            f"expected entries that do not end before they start, found [{columns[0][at]}, {columns[1][at]})"
        )
    # The first of the reversed column is the last of the column.
    _, last_places = np.unique(columns[2][::-1], return_index=True)
    kept = np.sort(lengths[0] - 1 - last_places)
    holed = frozenset(holed_object_ids).intersection(columns[2].tolist())
    return Rows(columns[0][kept], columns[1][kept], columns[2][kept], holed)


def _column(values: ArrayLike) -> NDArray[np.int64]:
    column = np.atleast_1d(np.asarray(values))
    if not column.size:
        return np.empty(0, dtype=np.int64)
    if column.ndim != 1 or column.dtype.kind not in "iu" or column.min() < 0 or column.max() > _INT64_MAX:
        raise ValueError(f"expected integers of 0 to 2**63 - 1, found {column!r}")
    return column.astype(np.int64)
