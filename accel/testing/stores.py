"""Stores that wrap a store, for tests: failing, ending with its process, as slow as S3, with a clock of its own.

    store = FaultStore(MemoryStore())
    store.schedule(None, Fault.LOST_REPLY)          # the first request passes, the reply to the second one is lost
    store = CrashStore(MemoryStore(), 3)            # the process ends before its fourth write
    store = LatencyStore(MemoryStore(), random.Random(7), VirtualClock().sleep)
    store = ClockStore(MemoryStore(), clock)        # reports its time as S3 does; a process's clock may differ

They may be nested in any order, and are safe for many threads. Each class documents what it simulates.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto
from statistics import NormalDist
from typing import TYPE_CHECKING, Generic, TypeVar

from loaders.errors import StoreError, StoreUnavailable
from loaders.lifetime import ProcessLock
from loaders.store.decorated import GETS, OPERATIONS, WRITES, DecoratedStore, StoreCall, received_bytes
from loaders.store.error_table import store_error, store_error_of

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection, Iterator, Mapping

    from loaders.store.base import ObjectStore


Answer = TypeVar("Answer")


class Fault(Enum):
    """The faults of one request; `FaultStore` has the table."""

    SLOW_DOWN = auto()
    SERVER_ERROR = auto()
    TIMEOUT = auto()
    RESET = auto()
    SHORT_BODY = auto()
    LOST_REPLY = auto()
    CONFLICT = auto()
    PRECONDITION = auto()

    def hits(self, call: StoreCall) -> bool:
        """Whether this fault can occur in such a request."""
        if self is Fault.SHORT_BODY:
            return call.operation in GETS
        if self is Fault.LOST_REPLY:
            return call.operation in WRITES
        return call.conditional or self not in {Fault.CONFLICT, Fault.PRECONDITION}

    @property
    def is_after(self) -> bool:
        """Whether the inner store carries out the request before the fault."""
        return self in {Fault.SHORT_BODY, Fault.LOST_REPLY}


_ANSWERS = {
    Fault.SLOW_DOWN: ("SlowDown", 503),
    Fault.SERVER_ERROR: ("InternalError", 500),
    Fault.CONFLICT: ("ConditionalRequestConflict", 409),
    Fault.PRECONDITION: ("PreconditionFailed", 412),
}
_CAUSES = {Fault.TIMEOUT: TimeoutError, Fault.LOST_REPLY: TimeoutError, Fault.RESET: ConnectionResetError}


Kind = TypeVar("Kind")


class Chances(Generic[Kind]):
    """Draws what happens in a request. Threads: one at a time.

    Args:
        rng: decides; one draw for each request in which anything can happen.
        probabilities: of each kind in a request in which it can occur; together at most 1.

    Raises:
        ValueError: other probabilities, or no rng.
    """

    def __init__(self, rng: random.Random | None, probabilities: Mapping[Kind, float]) -> None:
        self._rng = rng
        self._probabilities = dict(probabilities)
        if min(self._probabilities.values(), default=0) < 0 or sum(self._probabilities.values()) > 1:
            raise ValueError(f"probabilities are 0 or more and at most 1 together: {self._probabilities}")
        if self._probabilities and rng is None:
            raise ValueError("probabilities need a random.Random to decide by")

    def drawn(self, hits: Callable[[Kind], bool]) -> Kind | None:
        """One of the kinds that can occur, or None."""
        possible = {kind: chance for kind, chance in self._probabilities.items() if hits(kind)}
        if not possible or self._rng is None:
            return None
        point = self._rng.random()
        for kind, chance in possible.items():
            if point < chance:
                return kind
            point -= chance
        return None


class FaultStore(DecoratedStore):
    """Makes requests to the inner store fail. Safe for many threads; repeatable if one thread sends requests.

    There are two ways to inject faults, which may be combined: `schedule` sets the faults of the next requests one by
    one (None lets a request pass), and `probabilities` draws for each further request from an injected `random.Random`.
    Each fault is the result that a client of S3 would have after its last retry, by the same table of errors:

        | fault        | hits               | done? | raises                                                       |
        |--------------|--------------------|-------|--------------------------------------------------------------|
        | SLOW_DOWN    | everything         | no    | StoreUnavailable: 503                                        |
        | SERVER_ERROR | everything         | no    | StoreUnavailable: 500; WriteConflict for a conditional write |
        | TIMEOUT      | everything         | no    | StoreUnavailable from TimeoutError                           |
        | RESET        | everything         | no    | StoreUnavailable from ConnectionResetError                   |
        | SHORT_BODY   | gets               | yes   | StoreUnavailable: fewer bytes than promised                  |
        | LOST_REPLY   | writes             | yes   | StoreUnavailable from TimeoutError                           |
        | CONFLICT     | conditional writes | no    | WriteConflict: 409                                           |
        | PRECONDITION | conditional writes | no    | PreconditionFailed: 412, whether the condition holds or not  |

    "Done" means that the inner store carried out the request. A caller cannot distinguish TIMEOUT and RESET from
    LOST_REPLY: tests need this uncertainty.

    Args:
        store: the inner store.
        rng: decides by `probabilities`; one draw for each request in which any of them can occur.
        probabilities: of each fault in a request in which it can occur; together at most 1.
        operations: the operations in which faults may occur; others pass and use no entry of the schedule.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        rng: random.Random | None = None,
        probabilities: Mapping[Fault, float] | None = None,
        operations: Collection[str] = OPERATIONS,
    ) -> None:
        super().__init__(store)
        self._chances = Chances(rng, probabilities or {})
        self._operations = frozenset(operations)
        self._lock = ProcessLock()
        self._schedule: deque[Fault | None] = deque()
        self._injected: Counter[Fault] = Counter()
        self._check_arguments()

    def schedule(self, *faults: Fault | None) -> None:
        """Set the faults of the next requests; None lets a request pass. The schedule precedes any probability."""
        with self._lock:
            self._schedule.extend(faults)

    def clear(self) -> None:
        """Delete the rest of the schedule: from here on requests fail only by probability."""
        with self._lock:
            self._schedule.clear()

    @property
    def injected(self) -> Counter[Fault]:
        """The number of occurrences of each fault."""
        with self._lock:
            return Counter(self._injected)

    def _check_arguments(self) -> None:
        if unknown := self._operations - OPERATIONS:
            raise ValueError(f"no such operations: {sorted(unknown)}; there are {sorted(OPERATIONS)}")

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        fault = self._next_fault(call)
        if fault is None:
            return send()
        if fault.is_after:
            with suppress(StoreError):  # a refusal is lost like any other answer
                send()
        raise _error(fault, call)

    def _next_fault(self, call: StoreCall) -> Fault | None:
        if call.operation not in self._operations:
            return None
        with self._lock:
            fault = self._scheduled(call) if self._schedule else self._chances.drawn(lambda each: each.hits(call))
            if fault is not None:
                self._injected[fault] += 1
        return fault

    def _scheduled(self, call: StoreCall) -> Fault | None:
        fault = self._schedule.popleft()
        if fault is not None and not fault.hits(call):
            raise ValueError(f"{fault.name} is scheduled for {call}, which it cannot hit")
        return fault


def _error(fault: Fault, call: StoreCall) -> StoreError:
    detail = f"injected fault {fault.name}"
    if fault in _ANSWERS:
        code, status = _ANSWERS[fault]
        return store_error(call.operation, call.key, detail, code=code, status=status, conditional=call.conditional)
    if fault in _CAUSES:
        cause = _CAUSES[fault](detail)
        error = store_error_of(call.operation, call.key, cause)
        error.__cause__ = cause
        return error
    return StoreUnavailable(call.operation, call.key, f"{detail}: fewer bytes than promised")


class Crash(BaseException):
    """The end of the process. Not an Exception, so that no error handler catches it."""


class CrashStore(DecoratedStore):
    """Raises `Crash` in place of one write and of every later request: the process has ended.

    A test of all places where the process may end runs a workflow once to count its writes, then once for each write:

        whole = CrashStore(MemoryStore(), None)
        workflow(whole)
        for number in range(whole.writes):
            inner = MemoryStore()
            with pytest.raises(Crash):
                workflow(CrashStore(inner, number))
            workflow(inner)  # repeated by another process: must end as if there had been no crash

    Safe for many threads; if several write at once, any of them may crash.

    Args:
        store: the inner store.
        crash_before_write: number of the write that is not done, from 0 on; None = all are done. Each request that
            changes the store is a write: puts, deletes (a batch is one write), and all steps of a multipart upload.
    """

    def __init__(self, store: ObjectStore, crash_before_write: int | None) -> None:
        if crash_before_write is not None and crash_before_write < 0:
            raise ValueError(f"crash_before_write is 0 or more, or None: {crash_before_write}")
        super().__init__(store)
        self._crash_before_write = crash_before_write
        self._lock = ProcessLock()
        self._writes = 0
        self._has_crashed = False

    @property
    def writes(self) -> int:
        """The number of writes so far, including the write that was not done."""
        with self._lock:
            return self._writes

    @property
    def has_crashed(self) -> bool:
        """Whether the process has ended."""
        with self._lock:
            return self._has_crashed

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        with self._lock:
            if not self._has_crashed and call.operation in WRITES:
                self._has_crashed = self._writes == self._crash_before_write
                self._writes += 1
            if self._has_crashed:
                raise Crash(f"{call.operation} {call.key!r}: the process ended before write {self._crash_before_write}")
        return send()


_NINETY_NINTH = NormalDist().inv_cdf(0.99)


@dataclass(frozen=True, slots=True)
class LatencyModel:
    """The durations of requests.

    Attributes:
        first_byte_median_seconds: half of all first bytes arrive within this time.
        first_byte_p99_seconds: 99 % of all first bytes arrive within this time.
        bytes_per_second: rate of one connection while it transfers the body.
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
    """Delays each request. Safe for many threads; repeatable from the seed if one thread sends requests.

    Simulated, for each request:
    - the time to the first byte: lognormal, by default half of all requests within 15 ms and 99 % within 100 ms, as
      clients in the same region see it for small objects;
    - the transfer of the body, either way, at a fixed rate a connection (80 MB/s by default).

    Not simulated: opening connections, throttling, a client's own retries, slow hours, faster answers to repeated
    requests. Failed requests also take their first byte. The request takes effect at its start.

    With a real sleeper, threads wait. With a `VirtualClock` no thread waits, and the clock has the simulated time;
    parallel requests must be marked, because a simulation has no other way to recognise them:

        clock = VirtualClock(connections=64)
        store = LatencyStore(store, random.Random(7), clock.sleep)
        with clock.round():          # these reads are sent in parallel
            for key in keys:
                store.get(key)
        store.get("next")            # this one is sent after them
        clock.now_seconds            # the slowest of the round, and then one more

    Args:
        store: the inner store.
        rng: draws the first bytes' times.
        sleep: waits for a number of seconds: a real sleeper, or `VirtualClock.sleep`.
        model: the durations of requests.
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

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
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
    """Simulated time: `sleep` returns at once and advances the clock. Safe for many threads.

    Outside a round, sleeps follow one another. Inside, all sleeps start together on at most `connections` connections,
    each on the first free connection; the round ends with the last sleep. (Two requests of one round that depend on
    each other count as independent.) Rounds do not nest.

    Args:
        connections: the maximum number of simultaneous requests in a round.
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
        """Simulated seconds since the clock was created; within a round, when the round began."""
        return self._now_seconds

    def sleep(self, seconds: float) -> None:
        """Advance the simulated time, without waiting."""
        with self._lock:
            if self._free_at is None:
                self._now_seconds += seconds
            elif len(self._free_at) < self._connections:
                heapq.heappush(self._free_at, self._now_seconds + seconds)
            else:
                heapq.heapreplace(self._free_at, self._free_at[0] + seconds)

    @contextmanager
    def round(self) -> Iterator[None]:
        """All sleeps in this context, of any thread, run in parallel."""
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


class ClockStore(DecoratedStore):
    """Reports its time, as S3 does, by a clock that may differ from those of the processes. Threads: those of `clock`.

    What uses a store that reports its time goes by it, whatever the clock of its process says (`accel.system`).

    Args:
        store: the inner store.
        clock: the time of the store, seconds since 1970.
    """

    def __init__(self, store: ObjectStore, clock: Callable[[], float]) -> None:
        super().__init__(store)
        self._clock = clock

    def date_seconds(self, prefix: str | None = "") -> float:  # noqa: ARG002 - nothing is written
        """The time of the store, in whole seconds."""
        return float(math.floor(self._clock()))

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:  # noqa: ARG002 - requests are unchanged
        return send()
