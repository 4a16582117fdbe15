"""A store that is as slow as S3, in real or in simulated time.

What is modelled, per request:
- the time to the first byte: lognormal, by default half of all requests within 15 ms and 99 % within 100 ms, which is
  about what clients in the same region see for small objects;
- the transfer of the body, either way, at a fixed rate a connection (80 MB/s by default).

What is not: connections being opened, throttling, a client's own retries, slow hours, faster answers to repeated
requests. Failed requests take their first byte too. The request takes effect at its start.

With a real sleeper, threads wait. With a `VirtualClock` nobody waits and the clock says how long it would have taken;
what happens side by side has to be said, because a simulation has no other way to know it:

    clock = VirtualClock(connections=64)
    store = LatencyStore(store, random.Random(7), clock.sleep)
    with clock.round():          # these reads go out together
        for key in keys:
            store.get(key)
    store.get("next")            # this one follows them
    clock.now_seconds            # the slowest of the round, and then one more
"""

from __future__ import annotations

import heapq
import math
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, TypeVar

from loaders.errors import StoreError
from loaders.lifetime import ProcessLock
from loaders.store.decorated import Call, DecoratedStore, received_bytes

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from loaders.store.base import ObjectStore

Answer = TypeVar("Answer")

_NINETY_NINTH = NormalDist().inv_cdf(0.99)


@dataclass(frozen=True, slots=True)
class LatencyModel:
    """How long a request takes.

    Attributes:
        first_byte_median_seconds: half of all first bytes arrive within this time.
        first_byte_p99_seconds: 99 % of them within this.
        bytes_per_second: rate of one connection once the bytes flow.
    """

    first_byte_median_seconds: float = 0.015
    first_byte_p99_seconds: float = 0.100
    bytes_per_second: float = 80e6

    def __post_init__(self) -> None:
        if not 0 < self.first_byte_median_seconds <= self.first_byte_p99_seconds:
            raise ValueError(f"the median is above 0 and at most the 99th percentile: {self}")
        if not self.bytes_per_second > 0:
            raise ValueError(f"bytes flow at more than 0 a second: {self}")

    def seconds(self, rng: random.Random, body_bytes: int) -> float:
        """Draw the time of one request. One lognormal draw."""
        mu = math.log(self.first_byte_median_seconds)
        sigma = (math.log(self.first_byte_p99_seconds) - mu) / _NINETY_NINTH
        return rng.lognormvariate(mu, sigma) + body_bytes / self.bytes_per_second


class LatencyStore(DecoratedStore):
    """Makes each request take its time. Safe for many threads; repeatable from the seed if one thread asks.

    Args:
        store: the store that does the work.
        rng: draws the first bytes' times.
        sleep: waits for so many seconds: a real sleeper, or `VirtualClock.sleep`.
        model: how long requests take.
    """

    def __init__(
        self,
        store: ObjectStore,
        rng: random.Random,
        sleep: Callable[[float], None],
        model: LatencyModel | None = None,
    ) -> None:
        super().__init__(store)
        self._rng = rng
        self._sleep = sleep
        self._model = model or LatencyModel()
        self._lock = ProcessLock()

    def _around(self, call: Call, send: Callable[[], Answer]) -> Answer:
        try:
            answer = send()
        except StoreError:
            self._spend(call.sent_bytes)
            raise
        self._spend(call.sent_bytes + received_bytes(answer))
        return answer

    def _spend(self, body_bytes: int) -> None:
        with self._lock:
            seconds = self._model.seconds(self._rng, body_bytes)
        self._sleep(seconds)


class VirtualClock:
    """Simulated time: `sleep` returns at once and the clock goes on. Safe for many threads.

    Outside a round each sleep follows the one before. Inside, all sleeps start together on at most `connections`
    connections, each taking the one that is free first; the round ends with the last of them. (Two requests of one
    round that depend on each other count as if they did not.) Rounds do not nest.

    Args:
        connections: requests that can be under way at once in a round.
    """

    def __init__(self, connections: int = 64) -> None:
        if connections < 1:
            raise ValueError(f"a clock has at least one connection: {connections}")
        self._connections = connections
        self._lock = ProcessLock()
        self._now_seconds = 0.0
        self._free_at: list[float] | None = None

    @property
    def now_seconds(self) -> float:
        """Simulated seconds since the clock was made; within a round, when the round began."""
        return self._now_seconds

    def sleep(self, seconds: float) -> None:
        """Let simulated time pass, without waiting."""
        with self._lock:
            if self._free_at is None:
                self._now_seconds += seconds
            elif len(self._free_at) < self._connections:
                heapq.heappush(self._free_at, self._now_seconds + seconds)
            else:
                heapq.heapreplace(self._free_at, self._free_at[0] + seconds)

    @contextmanager
    def round(self) -> Iterator[None]:
        """Everything slept in here, by whatever thread, happens side by side."""
        with self._lock:
            if self._free_at is not None:
                raise RuntimeError("a round is under way already: rounds do not nest")
            self._free_at = []
        try:
            yield
        finally:
            with self._lock:
                self._now_seconds = max(self._free_at, default=self._now_seconds)
                self._free_at = None
