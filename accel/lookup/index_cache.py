"""The index cache: the known contents of objects, in the range index and the filters, behind one lock.

The entries are correct for their objects, whether or not an image lists these. A lookup uses only entries of objects
that its image lists, so the cache cannot change an answer; dropping entries of unlisted objects only saves memory. If
an image no longer lists an object, its entries are dropped. Entries may also be added for objects that no image lists:
for uploads of this process before an image lists them, and for objects that a compaction removes while they are opened,
or while their filters are read. Such entries stay until two consecutive images do not list the object.

`EmptyIndexCache`, for the bypass switch and for comparison, is always empty: a lookup with it opens all objects.
"""

from __future__ import annotations

import threading
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accel.image import MetadataImage, NodeImage, ObjectRef, generation_of
from accel.lookup.known_ranges import Flags, covered_objects, facts_of, is_ordered
from accel.lookup.search_requests import IndexFacts
from accel.lookup.stats import IndexCacheStats
from accel.settings import Settings
from bloom import FilterStore, Geometry, PieceCache, StreamFilter, class_for
from loaders.counting import CacheStats
from loaders.hints import SnapshotRoot, StreamEntries
from range_index import ObjectRanges, StreamRangeIndex, StreamView

FILTERS_AT_ONCE = 64
"""The number of filters that are added while the lock is held."""

LEARNED_BITS = 1 << 18
"""One bit for each object id modulo this number: whether the object was ever added."""

TOLD_MAX = 1 << 18
"""The maximum number of objects of a node that are watched until an image lists them."""


class SharedIndexCache:
    """Range index and filters for concurrent lookups.

    Args:
        settings: limits of memory.
        timer: seconds, from any start; for the time to live.
        jitter: random numbers in [0, 1); spreads expiry.

    Threads: any. The lock is held for lookups in memory only; filters are built outside it.
    """

    def __init__(self, settings: Settings, timer: Callable[[], float], jitter: Callable[[], float]) -> None:
        self._lock = threading.Lock()
        self._new_index = partial(
            StreamRangeIndex,
            timer=timer,
            jitter=jitter,
            array_bytes_max=settings.object_index_size_bytes_max,
            view_bytes_max=settings.view_size_bytes_max,
        )
        self._index = self._new_index()
        self._filters = FilterStore(settings.filter_size_bytes_max)
        self._settings = settings
        self._hash_lock = threading.Lock()
        self._pieces = PieceCache(settings.hashed_ids_max)
        self._unordered = 0
        self._told = _ToldSince()
        self._learned = bytearray(LEARNED_BITS // 8)

    def was_learned(self, object_id: int) -> bool:
        """Whether the object was added before, so that its contents were dropped if they are not in memory now.

        An estimate for reports: ids that differ by a multiple of `LEARNED_BITS` share a bit.
        """
        at = object_id % LEARNED_BITS
        return bool(self._learned[at >> 3] >> (at & 7) & 1)

    def view(self, node_id: int, stream_id: int) -> StreamView:
        """The entries of a stream, from memory."""
        with self._lock:
            return self._view(node_id, stream_id)

    def is_ordered(self, node: NodeImage, stream_id: int, view: StreamView) -> bool:  # noqa: ARG002 - see the protocol
        """Whether the view's listed entries ascend through the list without overlap.

        Complexity: O(1) while neither the view nor the list has changed, else O(entries log list).
        """
        note = view.note
        if type(note) is _Ordered and note.list_mark is node.mark:
            return note.is_ordered
        ordered = _view_is_ordered(node, view)
        view.note = _Ordered(node.mark, ordered)
        if not ordered:
            with self._lock:
                self._unordered += 1
        return ordered

    def facts(self, node: NodeImage, stream_id: int) -> IndexFacts:
        """View, loaded objects and filters, all taken at the same time. Complexity: O(list)."""
        with self._lock:
            view = self._view(node.node_id, stream_id)
            object_ids = self._index.loaded(node.node_id)
            loaded = np.fromiter(object_ids, np.int64, len(object_ids))
            absent = self._filters.absent(node.node_id, stream_id)
        return IndexFacts(view, _mask(node, loaded), _mask(node, absent))

    def with_filter(self, node: NodeImage, positions: Sequence[int]) -> set[int]:
        """The subset of these positions whose objects have a filter. O(positions)."""
        ids = [(position, int(node.object_ids[position])) for position in positions]
        with self._lock:
            return {position for position, object_id in ids if self._filters.holds(node.node_id, object_id)}

    def learn(self, node_id: int, ref: ObjectRef, ranges: ObjectRanges) -> None:
        """Add an object of a node: index its ranges and build its filter."""
        built = self._filter_of(ranges)
        with self._lock:
            self._index.insert(node_id, ref.object_id, ranges)
            self._told.add(node_id, (ref.object_id,))
            at = ref.object_id % LEARNED_BITS
            self._learned[at >> 3] |= 1 << (at & 7)
            if built is not None:
                self._filters.add(node_id, ref.object_id, built)

    def add_filters(self, node_id: int, built: Iterable[tuple[int, StreamFilter]]) -> None:
        """Add existing filters by object, each built for exactly this object."""
        rest = iter(built)
        while few := list(islice(rest, FILTERS_AT_ONCE)):
            with self._lock:
                self._told.add(node_id, (object_id for object_id, _ in few))
                for object_id, stream_filter in few:
                    self._filters.add(node_id, object_id, stream_filter)

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
        """Add entries of one stream, each of which must be correct for its object."""
        with self._lock:
            self._index.add_entries(node_id, stream_id, starts, ends, object_ids, holed_object_ids=holed_object_ids)
            self._told.add(node_id, np.asarray(object_ids, dtype=np.int64).tolist())

    def learn_snapshot(self, node: NodeImage, root: SnapshotRoot, entries: StreamEntries) -> None:
        """Add entries of a snapshot: those of objects that are listed with the same size as in the snapshot."""
        rows = facts_of(node, covered_objects(node, root), entries).rows
        if not len(rows.positions):
            return
        object_ids = node.object_ids[rows.positions]
        holed = object_ids[rows.holed].tolist()
        self.add_entries(node.node_id, entries.stream_id, rows.starts, rows.ends, object_ids, holed_object_ids=holed)

    def forget(self, node_id: int, object_ids: Sequence[int]) -> None:
        """Drop all entries and filters of these objects."""
        if not object_ids:
            return
        with self._lock:
            self._index.remove(node_id, object_ids)
            self._filters.discard(node_id, object_ids)
            self._told.discard(node_id, object_ids)

    def follow(self, before: MetadataImage, after: MetadataImage) -> None:
        """Drop objects that the newer image no longer lists, or lists with another size or attributes.

        Objects that were added and that neither image lists are dropped, too. If the newer image is of another
        generation, everything is dropped: in a restored catalog the same ids may be of other objects.

        Complexity: O(n log n) in the objects of the nodes that differ, and in the objects added since `before`.
        """
        if generation_of(before.version) != generation_of(after.version):
            for node_id, node in before.nodes.items():
                self.forget(node_id, node.object_ids.tolist())
            with self._lock:
                told = self._told.take_all()
                self._learned = bytearray(LEARNED_BITS // 8)
            for node_id, object_ids in told.items():
                self.forget(node_id, object_ids)
            return
        for node_id, change in before.changes(after).items():
            self.forget(node_id, change.removed.tolist())
        with self._lock:
            unlisted = self._told.settle(after)
        for node_id, object_ids in unlisted.items():
            self.forget(node_id, object_ids)

    def stats(self) -> IndexCacheStats:
        """Counts and sizes now, besides those of the caches."""
        with self._lock:
            return IndexCacheStats(self._unordered, self._index.stats().log_bytes, self._pieces.nbytes)

    def caches(self) -> dict[str, CacheStats]:
        """Sizes, hits and evictions of the caches: arrays of objects, views of streams, and filters."""
        filters, settings = self._filters, self._settings
        with self._lock:
            index = self._index.stats()
            return {
                "object_indexes": CacheStats(
                    index.objects,
                    index.array_bytes,
                    settings.object_index_size_bytes_max,
                    evicted=index.evicted_objects,
                    evicted_bytes=index.evicted_array_bytes,
                ),
                "views": CacheStats(
                    index.streams,
                    index.view_bytes,
                    settings.view_size_bytes_max,
                    index.hits,
                    index.misses,
                    index.evicted_views,
                    index.evicted_view_bytes,
                ),
                "filters": CacheStats(
                    len(filters),
                    filters.nbytes,
                    settings.filter_size_bytes_max,
                    evicted=filters.evicted,
                    evicted_bytes=filters.evicted_bytes,
                ),
            }

    def _view(self, node_id: int, stream_id: int) -> StreamView:
        try:
            return self._index.view(node_id, stream_id)
        except BaseException:  # interrupted: what is in memory may be half changed, and can be read again
            self._index = self._new_index()
            raise

    def _filter_of(self, ranges: ObjectRanges) -> StreamFilter | None:
        capacity = class_for(len(ranges))
        if capacity is None:
            return None  # too many streams for a filter: always a candidate; or no streams, as in its empty index
        geometry = Geometry(capacity)
        with self._hash_lock:
            pieces = self._pieces.hash_ids(ranges.stream_ids, is_wide=geometry.is_wide)
        return StreamFilter.from_pieces(pieces, geometry)


class _ToldSince:
    """Objects added since the last image, and earlier ones that the last image did not list.

    At most `TOLD_MAX` of a node; others are limited only by the byte limits. Threads: the caller's lock guards it.
    """

    def __init__(self) -> None:
        self._fresh: defaultdict[int, set[int]] = defaultdict(set)
        self._unlisted: dict[int, set[int]] = {}

    def add(self, node_id: int, object_ids: Iterable[int]) -> None:
        """Watch these objects, for which something was added."""
        fresh = self._fresh[node_id]
        if len(fresh) >= TOLD_MAX:
            fresh.clear()
        fresh.update(object_ids)

    def discard(self, node_id: int, object_ids: Iterable[int]) -> None:
        """Stop watching these objects, which were dropped."""
        for told in (self._fresh, self._unlisted):
            if node_id in told:
                told[node_id].difference_update(object_ids)

    def settle(self, image: MetadataImage) -> dict[int, list[int]]:
        """Node id -> objects that neither this image nor the previous one lists. O(n log list) in watched objects."""
        gone = {}
        before, fresh = self._unlisted, self._fresh
        self._unlisted, self._fresh = {}, defaultdict(set)
        for node_id in before.keys() | fresh.keys():
            missed, node = before.get(node_id, set()), image.node(node_id)
            if again := _not_listed(node, missed):
                gone[node_id] = list(again)
            if unlisted := _not_listed(node, fresh.get(node_id, set()) - missed):
                self._unlisted[node_id] = unlisted
        return gone

    def take_all(self) -> dict[int, list[int]]:
        """Remove all watched objects and return them by node."""
        told = self._fresh
        for node_id, object_ids in self._unlisted.items():
            told[node_id] |= object_ids
        self._unlisted, self._fresh = {}, defaultdict(set)
        return {node_id: list(object_ids) for node_id, object_ids in told.items()}


def _not_listed(node: NodeImage, object_ids: set[int]) -> set[int]:
    ids = np.fromiter(object_ids, np.int64, len(object_ids))
    return set(ids[node.positions(ids) < 0].tolist())


class _Ordered(NamedTuple):
    """The known order of a view in a list, which is identified by its mark: a reference would keep the list alive."""

    list_mark: object
    is_ordered: bool


def _view_is_ordered(node: NodeImage, view: StreamView) -> bool:
    positions = node.positions(np.asarray(view.object_ids, dtype=np.int64))
    listed = positions >= 0
    starts = np.asarray(view.starts, dtype=np.int64)[listed]
    ends = np.asarray(view.ends, dtype=np.int64)[listed]
    return is_ordered(starts, ends, positions[listed])


def _mask(node: NodeImage, object_ids: NDArray[np.int64]) -> Flags:
    mask = np.zeros(len(node), dtype=np.bool_)
    positions = node.positions(object_ids)
    mask[positions[positions >= 0]] = True
    return mask


EMPTY_VIEW = StreamView(array("q"), array("q"), array("q"), frozenset(), 0)


class EmptyIndexCache:
    """An index cache that stores nothing and excludes nothing. Threads: any."""

    def view(self, node_id: int, stream_id: int) -> StreamView:  # noqa: ARG002 - the protocol's arguments
        """No entries."""
        return EMPTY_VIEW

    def is_ordered(self, node: NodeImage, stream_id: int, view: StreamView) -> bool:  # noqa: ARG002 - likewise
        """Always true: an empty view is in order."""
        return True

    def facts(self, node: NodeImage, stream_id: int) -> IndexFacts:  # noqa: ARG002 - likewise
        """No object is known."""
        none = np.zeros(len(node), dtype=np.bool_)
        return IndexFacts(EMPTY_VIEW, none, none)

    def with_filter(self, node: NodeImage, positions: Sequence[int]) -> set[int]:  # noqa: ARG002 - likewise
        """There are no filters."""
        return set()
