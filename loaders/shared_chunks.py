"""Ranges of objects, cut out of larger chunks that are fetched once for all who need a part of them.

Whoever reads all segments of a stream needs most of each object, but asks for it segment by segment:

    object      | seg 0 | seg 1 | seg 2 | seg 3 | seg 4 | ...
    asked for   |=======|=======|=======|                        three ranges, at about the same time
    fetched     |======= chunk 0 =======|======= chunk 1 ...     one request

A request costs much the same whatever it brings up to some MiB. Chunks are aligned, each is fetched once even if many
ask at once, and they are kept within a bound of bytes. Where an object holds little that anybody asks for, most of a
chunk would be fetched in vain: so it is counted how much of the chunks of the last objects was used, and where that is
too little, ranges are fetched as they are asked for. Now and then an object is tried with chunks again.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from loaders.errors import RangeInvalid
from loaders.lifetime import ProcessLock
from loaders.shared_loads import SharedLoads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loaders.store import ObjectStore

MEBIBYTE: Final = 1 << 20
OBJECTS_COUNTED_MAX: Final = 16
"""What is counted of an object is judged when so many others were asked for since."""

SHARE_OF_NEWEST: Final = 0.3
TRIED_EACH: Final = 16


class ChunkStats(NamedTuple):
    """How it went.

    Args:
        requests: sent to the store.
        fetched_bytes: by them.
        used_bytes: that were asked for.
        is_exact: whether ranges are fetched as they are asked for, for the time being.
    """

    requests: int
    fetched_bytes: int
    used_bytes: int
    is_exact: bool


@dataclass(slots=True)
class _Counted:
    """What was fetched and used of one object."""

    is_exact: bool
    fetched_bytes: int = 0
    used_bytes: int = 0


class SharedChunks:
    """Reads ranges of objects that never change. Threads: any; no lock is held over a request.

    Args:
        store: where the objects lie.
        chunk_bytes: of one chunk. 0 = ranges are always fetched as they are asked for.
        size_bytes_max: of the chunks that are kept.
        used_least: the share of fetched bytes that must be used for chunks to be worth it.

    Raises:
        ValueError: a bound below 0, or a share that is none.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        chunk_bytes: int = 4 * MEBIBYTE,
        size_bytes_max: int = 64 * MEBIBYTE,
        used_least: float = 0.5,
    ) -> None:
        if chunk_bytes < 0 or size_bytes_max < 0 or not 0 <= used_least <= 1:
            raise ValueError(f"expected bounds of at least 0, found {chunk_bytes}, {size_bytes_max} and {used_least}")
        self._store = store
        self._chunk_bytes = chunk_bytes
        self._used_least = used_least
        self._chunks: SharedLoads[tuple[str, int], bytes] = SharedLoads(size_bytes_max, len)
        self._lock = ProcessLock()
        self._objects: OrderedDict[str, _Counted] = OrderedDict()
        self._share_used = 1.0
        self._begun = self._requests = self._fetched = self._used = 0

    def get_range(self, key: str, start: int, end: int) -> bytes | memoryview:
        """Bytes [start, end) of an object; an end past the object is clamped. As few requests as chunks are missing.

        A view of a chunk keeps the whole chunk in memory for as long as it is held.

        Raises:
            StoreError: from the store; RangeInvalid also where the range begins past the end of the object.
        """
        counted = self._counted(key)
        body: bytes | memoryview
        if counted.is_exact or not self._chunk_bytes:
            body = self._fetch(key, start, end, counted)
        else:
            parts = list(self._parts(key, start, end, counted))
            body = parts[0] if len(parts) == 1 else b"".join(parts)
        with self._lock:
            counted.used_bytes += len(body)
            self._used += len(body)
        return body

    def stats(self) -> ChunkStats:
        """Counts so far."""
        with self._lock:
            is_exact = self._share_used < self._used_least
            return ChunkStats(self._requests, self._fetched, self._used, is_exact)

    def _parts(self, key: str, start: int, end: int, counted: _Counted) -> Iterator[memoryview]:
        size = self._chunk_bytes
        for number in range(start // size, max(start, end - 1) // size + 1):
            first = number * size
            try:
                chunk = self._chunk(key, number, counted)
            except RangeInvalid:
                if first <= start:
                    raise
                return  # the object ends where the last chunk did
            yield memoryview(chunk)[max(0, start - first) : end - first]
            if len(chunk) < size:
                return

    def _chunk(self, key: str, number: int, counted: _Counted) -> bytes:
        first = number * self._chunk_bytes
        return self._chunks.get((key, number), lambda: self._fetch(key, first, first + self._chunk_bytes, counted))

    def _fetch(self, key: str, start: int, end: int, counted: _Counted) -> bytes:
        body = self._store.get_range(key, start, end).body
        with self._lock:
            self._requests += 1
            self._fetched += len(body)
            counted.fetched_bytes += len(body)
        return body

    def _counted(self, key: str) -> _Counted:
        with self._lock:
            counted = self._objects.get(key)
            if counted is None:
                self._begun += 1
                is_exact = self._share_used < self._used_least and self._begun % TRIED_EACH != 0
                counted = self._objects[key] = _Counted(is_exact)
                if len(self._objects) > OBJECTS_COUNTED_MAX:
                    self._judge(self._objects.popitem(last=False)[1])
            self._objects.move_to_end(key)
            return counted

    def _judge(self, counted: _Counted) -> None:
        if not counted.is_exact and counted.fetched_bytes:
            share = min(1.0, counted.used_bytes / counted.fetched_bytes)
            self._share_used += SHARE_OF_NEWEST * (share - self._share_used)
