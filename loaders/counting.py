"""Counting: histograms of values, and caches that count hits, misses and evictions.

`Histogram` and `CountedCache` are changed under the lock of their owner; the stats that they return
(`HistogramStats`, `CacheStats`) are immutable, so that an exporter reads them without a lock.

    | bounds            | the values                                          |
    |-------------------|-----------------------------------------------------|
    | `SECONDS_BOUNDS`  | a request to a store, or a load: 1 ms to 60 s       |
    | `COUNT_BOUNDS`    | rounds of a lookup, objects that it opened          |

A bound belongs to its bucket (``value <= bound``), as Prometheus counts (`le`); the last bucket has no bound.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, NamedTuple, Self, TypeVar

from cachetools import LRUCache

K = TypeVar("K")
V = TypeVar("V")

SECONDS_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
COUNT_BOUNDS: Final = (0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0, 64.0, 128.0, 512.0, 2048.0, 8192.0)


class HistogramStats(NamedTuple):
    """A histogram at one moment.

    Args:
        bounds: upper bounds of the buckets but the last, ascending.
        counts: the number of values in each bucket, not cumulated; one more than there are bounds.
        total: the sum of all values.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float

    @property
    def values(self) -> int:
        """The number of values."""
        return sum(self.counts)

    def cumulated(self) -> Iterator[tuple[float, int]]:
        """Each bound, with the number of values at or below it; the last bound is infinity."""
        yield from zip((*self.bounds, float("inf")), accumulate(self.counts), strict=True)

    def with_zeros(self, count: int) -> Self:
        """The same histogram with this number of additional zeros."""
        return self._replace(counts=(self.counts[0] + count, *self.counts[1:]))


class Histogram:
    """Counts values by bucket. Threads: the lock of its owner guards it.

    Args:
        bounds: upper bounds of the buckets, ascending; values above the last one are counted, too.
    """

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def add(self, value: float) -> None:
        """Count a value. O(log buckets)."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def stats(self) -> HistogramStats:
        """The counts until now."""
        return HistogramStats(self._bounds, tuple(self._counts), self._total)


@dataclass(frozen=True, slots=True)
class CacheStats:
    """The content of a cache now, and its counts since it was created.

    Args:
        entries: number of entries now.
        size_bytes: their size now.
        size_bytes_max: bound on that size.
        hits: calls that the cache answered.
        misses: calls that the cache did not answer.
        evicted: entries that were dropped because of the bound.
        evicted_bytes: size of the dropped entries.
    """

    entries: int
    size_bytes: int
    size_bytes_max: int
    hits: int = 0
    misses: int = 0
    evicted: int = 0
    evicted_bytes: int = 0


class CountedCache(LRUCache[K, V]):
    """An LRU cache that counts the entries that its bound evicts. Threads: the lock of its owner guards it.

    Args:
        size_bytes_max: bound on the sum of all sizes.
        size_of: bytes that an entry takes.

    The owner counts hits and misses, since only the owner can decide whether an entry suffices.
    """

    def __init__(self, size_bytes_max: int, size_of: Callable[[V], int]) -> None:
        super().__init__(size_bytes_max, getsizeof=size_of)
        self.hits = self.misses = self.evicted = self.evicted_bytes = 0

    def popitem(self) -> tuple[K, V]:
        """Evict and return the least recently used entry."""
        before = int(self.currsize)
        gone: tuple[K, V] = super().popitem()
        self.evicted += 1
        self.evicted_bytes += before - int(self.currsize)
        return gone

    def found(self, thing: V | None) -> V | None:
        """Return the same value, counted as a hit, or as a miss if it is None."""
        if thing is None:
            self.misses += 1
        else:
            self.hits += 1
        return thing

    def stats(self) -> CacheStats:
        """Sizes and counts now."""
        return CacheStats(
            len(self), int(self.currsize), int(self.maxsize), self.hits, self.misses, self.evicted, self.evicted_bytes
        )
