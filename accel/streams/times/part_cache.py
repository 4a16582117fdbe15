"""Parts of time indexes that were read, kept within a bound of bytes."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final

from cachetools import LRUCache

from loaders.lifetime import PerProcess

if TYPE_CHECKING:
    from range_index.segment_times import TimeRecords

CACHE_BYTES_MAX: Final = 64 << 20
ENTRY_OVERHEAD_BYTES: Final = 400


class PartCache:
    """Parts that were read, of any number of segments in one store; the least recently used ones go. Threads: any.

    Args:
        size_bytes_max: bound on what all of them take.
    """

    def __init__(self, size_bytes_max: int = CACHE_BYTES_MAX) -> None:
        if size_bytes_max < 0:
            raise ValueError(f"expected size_bytes_max of 0 or more, found {size_bytes_max}")
        self.size_bytes_max = size_bytes_max
        self._kept = PerProcess("parts of time indexes", lambda: _Kept(size_bytes_max))

    def get(self, key: str) -> TimeRecords | None:
        """The part at a key, if it is here."""
        with (kept := self._kept()).lock:
            return kept.parts.get(key)

    def keep(self, key: str, part: TimeRecords) -> None:
        """Keep a part, unless it alone is larger than the cache."""
        if _size_bytes(part) <= self.size_bytes_max:
            with (kept := self._kept()).lock:
                kept.parts[key] = part

    @property
    def size_bytes(self) -> int:
        """What all parts take."""
        with (kept := self._kept()).lock:
            return int(kept.parts.currsize)


class _Kept:
    """The parts that one process keeps."""

    def __init__(self, size_bytes_max: int) -> None:
        self.lock = Lock()
        self.parts: LRUCache[str, TimeRecords] = LRUCache(size_bytes_max, getsizeof=_size_bytes)


def _size_bytes(part: TimeRecords) -> int:
    return int(part.rows.nbytes) + ENTRY_OVERHEAD_BYTES
