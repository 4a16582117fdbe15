"""Opens object indexes: one ranged GET each, never twice at the same time; the number of concurrent loads is bounded.

An index is at the end of its object. If the size of the index is known, exactly the index is read. Otherwise the size
is guessed: the production reader reads about 8 KiB, but objects of many streams need much more (324,048 bytes for
9,000). The objects of one node are alike, so the guess follows from the index sizes of the objects opened last. A guess
that is too large costs a few bytes; a guess that is too small costs a request for the missing bytes. So guesses are
rather too large. The whole object is never read for its index, and there is no HEAD and no LIST.

A call for an object that is being opened waits for the same request. A waiter that gives up (a deadline, a cancelled
task) does not cancel the load: the load continues and its result is kept. Failures are not kept; the next call tries
again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace

from cachetools import LRUCache

from loaders.counting import SECONDS_BOUNDS, CacheStats, Histogram, HistogramStats
from loaders.errors import CorruptObject, RangeInvalid
from loaders.format import (
    FOOTER_SIZE_BYTES,
    BlockIndex,
    CompositeObject,
    MissingBytes,
    check_tail,
    decode_composite,
    decode_footer,
    guess_tail_size_bytes,
    open_tail,
    tail_checksum,
)
from loaders.layout import ObjectLayout
from loaders.object_ref import UNKNOWN, ObjectRef
from loaders.settings import BLOCK_INDEXES_SIZE_BYTES_MAX
from loaders.shared_loads import SharedLoads
from loaders.store import Fetched, ObjectStore
from loaders.tracing import traced
from range_index import ObjectRanges

INDEX_SIZE_BYTES_MAX = 256 << 20
"""An index larger than this is refused; the format allows 2 GiB, but 20,000 streams need less than a mebibyte."""


@dataclass(frozen=True, slots=True, eq=False)
class OpenedObject:
    """The index of one object.

    Args:
        ref: the object, with its true sizes and the checksum of its tail.
        index: its rows.
        ranges: one range for each stream.
        composite: the links, if this object only links others; its rows then refer to bytes of the linked objects.
        requests: the number of requests that opened it.
        bytes_read: the number of bytes that these requests fetched.
    """

    ref: ObjectRef
    index: BlockIndex
    ranges: ObjectRanges
    composite: CompositeObject | None
    requests: int
    bytes_read: int

    @property
    def nbytes(self) -> int:
        """Bytes of memory of the index and the ranges."""
        return self.index.nbytes + self.ranges.nbytes


@dataclass(frozen=True, slots=True)
class Load:
    """An object that is being opened, or has been opened.

    Args:
        ref: the object.
        result: done once the object is opened; cannot be cancelled.
        started: whether this call caused requests; false for a cached index, or one that another call loads.
    """

    ref: ObjectRef
    result: Future[OpenedObject]
    started: bool


@dataclass(frozen=True, slots=True)
class LoaderStats:
    """Counts since the start.

    Args:
        opened: objects that requests opened.
        failed: openings that failed.
        joined: openings that waited for the request of another caller.
        cached: openings answered from the cache of block indexes.
        second_requests: openings with a second request, as the guessed size of the index was too small.
        bytes_read: bytes of openings.
        open_seconds: durations of successful openings.
    """

    opened: int
    failed: int
    joined: int
    cached: int
    second_requests: int
    bytes_read: int
    open_seconds: HistogramStats


@dataclass(frozen=True, slots=True, eq=False)
class OpenedTail:
    """The index of an object with blocks of its own, the object with its true sizes, and the cost of opening it."""

    ref: ObjectRef
    index: BlockIndex
    requests: int
    bytes_read: int


def fetch_tail(store: ObjectStore, key: str, ref: ObjectRef, size_bytes: int) -> Fetched:
    """Read this many bytes from the end of an object; by a suffix range if its size is not known. One request.

    Raises:
        CorruptObject: the object has another size than its metadata says, or is too short for a footer.
        KeyMissing, StoreUnavailable and the like: from the store.
    """
    known_size = ref.size_bytes
    if known_size == UNKNOWN:
        return store.get_tail(key, size_bytes)
    if known_size < FOOTER_SIZE_BYTES:
        expected = f"at least the {FOOTER_SIZE_BYTES} bytes of a footer"
        raise CorruptObject(key, known_size, expected=expected, found=f"a size of {known_size} in its metadata")
    try:
        return store.get_range(key, max(0, known_size - size_bytes), known_size)
    except RangeInvalid as error:
        expected = f"{known_size} bytes, as in its metadata"
        found = "an object that ends before its tail"
        raise CorruptObject(key, known_size, expected=expected, found=found) from error


def open_fetched(store: ObjectStore, key: str, ref: ObjectRef, tail: Fetched) -> OpenedTail | None:
    """Open the index at the end of the bytes read from an object; None if the object is composite.

    If the index is longer than these bytes, one more request reads the rest.

    Raises:
        CorruptObject: the object contradicts the format or its metadata.
        KeyMissing, StoreUnavailable and the like: from the store.
    """
    size_bytes = tail.object_size_bytes
    if ref.size_bytes not in (UNKNOWN, size_bytes):
        expected = f"{ref.size_bytes} bytes, as in its metadata"
        raise CorruptObject(key, size_bytes, expected=expected, found=f"{size_bytes}")
    if decode_footer(tail.body, object_size_bytes=size_bytes, key=key).composite:
        return None
    requests, body = 1, tail.body
    index = open_tail(body, object_size_bytes=size_bytes, key=key)
    if isinstance(index, MissingBytes):
        index, body = _complete(store, key, tail, index)
        requests = 2
    checksum = tail_checksum(body, object_size_bytes=size_bytes, index_size_bytes=index.nbytes)
    check_tail(ref.tail_checksum, checksum, object_size_bytes=size_bytes, key=key)
    true_ref = ObjectRef(ref.object_id, size_bytes, index.nbytes, ref.attributes, checksum)
    return OpenedTail(true_ref, index, requests, len(body))


def _complete(store: ObjectStore, key: str, tail: Fetched, missing: MissingBytes) -> tuple[BlockIndex, bytes]:
    size_bytes = tail.object_size_bytes
    if missing.end - missing.start > INDEX_SIZE_BYTES_MAX:
        expected = f"an index of at most {INDEX_SIZE_BYTES_MAX} bytes"
        raise CorruptObject(key, size_bytes, expected=expected, found=f"{missing.end - missing.start} bytes more")
    before = store.get_range(key, missing.start, missing.end)
    body = before.body + tail.body
    index = open_tail(body, object_size_bytes=size_bytes, key=key)
    if isinstance(index, MissingBytes):  # the store returned fewer bytes than requested, as if they were complete
        found = f"bytes [{before.start}, {before.start + len(before.body)})"
        raise CorruptObject(key, size_bytes, expected=f"bytes [{missing.start}, {missing.end})", found=found)
    return index, body


class ObjectIndexLoader:
    """Opens object indexes over a store.

    Args:
        store: the store of the objects.
        layout: the keys of the objects in the store.
        executor: runs the loads; its size bounds the number of concurrent loads.
        cache_bytes_max: bound on the memory of parsed indexes; 64 MiB by default. The least recently used are evicted.
        on_opened: called with (group, opened) in the loading thread before any caller gets the result.
        timer: seconds from any start, to time openings; None = no times.

    Threads: any. No lock is held over I/O.
    """

    def __init__(
        self,
        store: ObjectStore,
        layout: ObjectLayout,
        executor: Executor,
        *,
        cache_bytes_max: int = BLOCK_INDEXES_SIZE_BYTES_MAX,
        on_opened: Callable[[int, OpenedObject], None] | None = None,
        timer: Callable[[], float] | None = None,
    ) -> None:
        self._store = store
        self._layout = layout
        self._executor = executor
        self._on_opened = on_opened
        self._loads: SharedLoads[ObjectRef, OpenedObject] = SharedLoads(cache_bytes_max, lambda kept: kept.nbytes)
        self._lock = threading.Lock()  # guards the attributes below
        self._guess = TailGuess()
        self._second_requests = self._bytes_read = 0
        self._timer = timer
        self._open_seconds = Histogram(SECONDS_BOUNDS)

    def open(self, group: int, ref: ObjectRef, executor: Executor | None = None) -> Load:
        """Start to open an object, or join the call that is opening it.

        Args:
            group: objects of one group (a node) are alike; sizes of indexes are guessed from others of the group.
            ref: the object.
            executor: runs the load; None = that of the loader.

        The result raises:
            KeyMissing, AccessDenied, StoreUnavailable and the like: from the store.
            CorruptObject: the object contradicts the format or its metadata.
        """
        result, started = self._loads.start(ref, executor or self._executor, lambda: self._open(group, ref))
        return Load(ref, result, started)

    def holds(self, ref: ObjectRef) -> bool:
        """Whether the object's index is in memory."""
        return ref in self._loads

    def stats(self) -> LoaderStats:
        """Counts so far."""
        counts = self._loads.counts()
        with self._lock:
            return LoaderStats(
                opened=counts.landed,
                failed=counts.failed,
                joined=counts.joined,
                cached=counts.cache.hits,
                second_requests=self._second_requests,
                bytes_read=self._bytes_read,
                open_seconds=self._open_seconds.stats(),
            )

    def cache_stats(self) -> CacheStats:
        """The block indexes in memory; an opening is a miss."""
        return self._loads.cache_stats()

    def _open(self, group: int, ref: ObjectRef) -> OpenedObject:
        started_seconds = 0.0 if self._timer is None else self._timer()
        with traced("accel.load", node_id=group, object_id=ref.object_id):
            opened = self._load(group, ref)
        if self._on_opened is not None:
            self._on_opened(group, opened)
        with self._lock:
            self._guess.learn(group, opened.index.nbytes)
            self._bytes_read += opened.bytes_read
            self._second_requests += opened.requests - 1
            if self._timer is not None:
                self._open_seconds.add(self._timer() - started_seconds)
        return opened

    def _load(self, group: int, ref: ObjectRef) -> OpenedObject:
        key = self._layout.object_key(ref.object_id)
        if ref.is_composite:
            return self._load_composite(ref, key)
        tail = self._fetch_tail(group, ref, key)
        opened = open_fetched(self._store, key, ref, tail)
        if opened is None:
            return self._load_composite(ref, key, 1, len(tail.body))
        return OpenedObject(
            opened.ref, opened.index, opened.index.object_ranges(), None, opened.requests, opened.bytes_read
        )

    def _fetch_tail(self, group: int, ref: ObjectRef, key: str) -> Fetched:
        known_size = None if ref.size_bytes == UNKNOWN else ref.size_bytes
        if ref.index_size_bytes != UNKNOWN:
            length = ref.index_size_bytes + FOOTER_SIZE_BYTES
        else:
            with self._lock:
                length = self._guess.size_bytes(group, known_size)
        return fetch_tail(self._store, key, ref, length)

    def _load_composite(self, ref: ObjectRef, key: str, requests: int = 0, bytes_read: int = 0) -> OpenedObject:
        whole = self._store.get(key, size_bytes_max=INDEX_SIZE_BYTES_MAX)
        composite = decode_composite(whole.body, key=key)
        index, size_bytes = composite.index, len(whole.body)
        footer = decode_footer(whole.body, object_size_bytes=size_bytes, key=key)
        checksum = tail_checksum(whole.body, object_size_bytes=size_bytes, index_size_bytes=footer.index_size_bytes)
        check_tail(ref.tail_checksum, checksum, object_size_bytes=size_bytes, key=key)
        ref = replace(ref, tail_checksum=checksum)
        return OpenedObject(ref, index, index.object_ranges(), composite, requests + 1, bytes_read + len(whole.body))


REMEMBERED_SIZES = 64
REMEMBERED_GROUPS_MAX = 1024
TAIL_SIZE_BYTES_MAX = 8 << 20
"""Largest guess: the index of 233,000 rows."""


class TailGuess:
    """Records index sizes by group (a node) and guesses the next one. Not thread-safe: its owner's lock guards it."""

    def __init__(self) -> None:
        self._sizes: LRUCache[int, deque[int]] = LRUCache(REMEMBERED_GROUPS_MAX)

    def learn(self, group: int, index_size_bytes: int) -> None:
        """Record the size of the index of an object of this group."""
        sizes = self._sizes.setdefault(group, deque(maxlen=REMEMBERED_SIZES))
        sizes.append(index_size_bytes)

    def size_bytes(self, group: int, object_size_bytes: int | None) -> int:
        """Bytes to read from the end of an object, footer included; the object's size is None if it is not known.

        The largest of the last 64 indexes of the group and an eighth more, at least the size that the production reader
        reads. Complexity: O(64).
        """
        sizes = self._sizes.get(group)
        learnt = max(sizes) * 9 // 8 + FOOTER_SIZE_BYTES if sizes else 0
        if object_size_bytes is None:
            return max(min(learnt, TAIL_SIZE_BYTES_MAX), guess_tail_size_bytes(1 << 20))
        wanted = max(min(learnt, TAIL_SIZE_BYTES_MAX), guess_tail_size_bytes(object_size_bytes))
        return min(wanted, object_size_bytes)
