"""Sends slow reads a second time: reads that take longer than 95 of 100 others.

A few of many reads of a store take a hundred times as long as the others, without a reason that the reader can detect.
A second request mostly returns at once. So a read is sent a second time if it is not answered within the time in which
95 of 100 others are, and the first answer counts:

    sent     ├─────────────────────────────── slow ─────────────────────────────── abandoned: ends by itself
             │        p95
    again    │         ├──────── answer
             └─────────┴────────┘  the reader waits

Three bounds limit the cost: a share of all requests (5 % by default, saved up for a burst of 8), the number of
abandoned requests that still run, and the size: a read of more than a mebibyte is slow because it is large. Only keys
whose bytes never change are read twice, so both answers are the same. Source: "The Tail at Scale" (Dean and Barroso,
2013), hedged requests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from threading import Lock
from typing import Final

from loaders.errors import StoreError
from loaders.settings import CONNECTIONS
from loaders.store.base import Fetched, ObjectStore
from loaders.store.decorated import DecoratedStore
from loaders.threads import Threads
from loaders.tracing import request_times

QUANTILE: Final = 0.95
SAMPLES_MIN: Final = 64
"""The number of reads that are timed before the first one is sent twice."""

SAMPLES_MAX: Final = 512
SAMPLES_EACH: Final = 16
"""The number of reads after which the quantile is computed again."""

SIZE_BYTES_MAX: Final = 1 << 20
BURST: Final = 8.0

AFTER_SECONDS_MIN: Final = 0.05
"""The shortest time before the second request."""

ABANDONED_MAX: Final = 16
"""The number of abandoned requests under way at which no read is sent twice."""


@dataclass(frozen=True, slots=True)
class HedgeStats:
    """Counts of second requests.

    Args:
        reads: the number of reads that could be sent twice.
        hedged: the number of reads that were sent twice.
        won: the number of these whose second answer arrived first.
        abandoned: the number of abandoned requests that still run now.
        after_milliseconds: the present time before a second request; 0 before enough reads were timed.
    """

    reads: int = 0
    hedged: int = 0
    won: int = 0
    abandoned: int = 0
    after_milliseconds: int = 0


class HedgedStore(DecoratedStore):
    """Sends slow reads of immutable keys twice. Threads: any; no lock is held over a request.

    Args:
        store: the inner store; safe for many threads.
        timer: seconds from any start.
        is_immutable: returns whether the bytes at a key never change.
        share: bound on second requests, as a share of the first ones; 0 = none.
        threads_max: bound on reads under way in threads; further reads are sent once, in the caller's thread.
    """

    def __init__(
        self,
        store: ObjectStore,
        timer: Callable[[], float],
        is_immutable: Callable[[str], bool],
        *,
        share: float = 0.05,
        threads_max: int = CONNECTIONS,
    ) -> None:
        super().__init__(store)
        self._timer = timer
        self._is_immutable = is_immutable
        self._share = share
        self._threads_max = threads_max
        self._lock = Lock()  # guards the attributes below
        self._times: deque[float] = deque(maxlen=SAMPLES_MAX)
        self._timed = self._running = self._reads = self._hedged = self._won = self._abandoned = 0
        self._credit = 0.0
        self._after_seconds: float | None = None
        self._threads = Threads(threads_max + ABANDONED_MAX, "accel-hedge")

    def get_range(self, key: str, start: int, end: int) -> Fetched:
        """See `ObjectStore.get_range`."""
        return self._read(key, end - start, lambda: self._store.get_range(key, start, end))

    def get_tail(self, key: str, length: int) -> Fetched:
        """See `ObjectStore.get_tail`."""
        return self._read(key, length, lambda: self._store.get_tail(key, length))

    def stats(self) -> HedgeStats:
        """Counts so far."""
        with self._lock:
            after = 0 if self._after_seconds is None else round(self._after_seconds * 1000)
            return HedgeStats(self._reads, self._hedged, self._won, self._abandoned, after)

    def close(self) -> None:
        """Wait until all requests under way have ended, abandoned ones too. Later reads are sent once."""
        with self._lock:
            self._running = self._threads_max
        self._threads.shutdown(wait=True)

    def _read(self, key: str, size_bytes: int, send: Callable[[], Fetched]) -> Fetched:
        if size_bytes > SIZE_BYTES_MAX or not self._share or not self._is_immutable(key):
            return send()
        after_seconds = self._begin()
        if after_seconds is None:
            return self._timed_send(send)
        try:
            first = self._threads.submit(self._timed_send, send)
            if not wait([first], after_seconds).done and self._take_credit():
                return self._race(first, send)
            return first.result()
        finally:
            self._end()

    def _race(self, first: Future[Fetched], send: Callable[[], Fetched]) -> Fetched:
        if (times := request_times()) is not None:
            times.hedged.append(None)
        second = self._threads.submit(send)
        done, late = wait([first, second], return_when=FIRST_COMPLETED)
        if late and all(_may_be_better_luck(each) for each in done):
            done, late = wait([first, second])
        for each in late:
            self._abandon(each)
        ended = [each for each in (first, second) if each in done]
        answer = next((each for each in ended if not each.exception()), ended[0])
        with self._lock:
            self._won += answer is second
        return answer.result()

    def _timed_send(self, send: Callable[[], Fetched]) -> Fetched:
        begun = self._timer()
        answer = send()
        self._note(self._timer() - begun)
        return answer

    def _note(self, seconds: float) -> None:
        with self._lock:
            self._times.append(seconds)
            self._timed += 1
            if self._timed < SAMPLES_MIN or self._timed % SAMPLES_EACH:
                return
            times = sorted(self._times)
            self._after_seconds = max(times[int(len(times) * QUANTILE)], AFTER_SECONDS_MIN)

    def _begin(self) -> float | None:
        """The seconds after which the new read is sent a second time; None to send it once, without a thread."""
        with self._lock:
            self._reads += 1
            self._credit = min(self._credit + self._share, BURST)
            if self._after_seconds is None or self._credit < 1 or self._running >= self._threads_max:
                return None
            self._running += 1
            return self._after_seconds

    def _end(self) -> None:
        with self._lock:
            self._running -= 1

    def _take_credit(self) -> bool:
        with self._lock:
            if self._credit < 1 or self._abandoned >= ABANDONED_MAX:
                return False
            self._credit -= 1
            self._hedged += 1
            return True

    def _abandon(self, late: Future[Fetched]) -> None:
        with self._lock:
            self._abandoned += 1
        late.add_done_callback(self._came_late)

    def _came_late(self, _: Future[Fetched]) -> None:
        with self._lock:
            self._abandoned -= 1


def _may_be_better_luck(done: Future[Fetched]) -> bool:
    """Whether the other request may succeed although this one failed."""
    error = done.exception()
    return isinstance(error, StoreError) and error.retryable
