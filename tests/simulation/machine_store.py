"""The bucket as one process sees it: each request takes its time, may go wrong, and may be the last one.

    request   -- latency -->  effect  -- latency -->  reply
                 another process may come first      the process may die here, and the reply may be lost

What the store does happens at one moment in between, so requests that are under way at the same time take effect in any
order. Faults are those of `accel.testing.FaultStore`, and besides: a 500 or 503 although the store did what was asked,
bytes that were changed on the way, and a listing that is behind. In an outage all requests of all machines suffer.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from random import Random
from typing import Any, TypeVar, cast

from accel.catalog.keys import TABLES
from accel.testing import Fault, FaultStore
from loaders.errors import StoreError, StoreUnavailable
from loaders.layout import TABLES_PREFIX
from loaders.store import CountingStore, ObjectStore
from loaders.store.base import Fetched, ListPage
from loaders.store.decorated import GETS, WRITES, DecoratedStore, StoreCall, received_bytes
from loaders.store.error_table import store_error
from tests.simulation.scheduler import Died, Mortal, Scheduler, Violation

Answer = TypeVar("Answer")

LATENCY_SECONDS_MAX = 0.9
REPLY_IS_SLOW = 0.2
SERVER_ERROR_AFTER = 0.004
CHANGED_BODY = 0.003
HELD_UP = 0.0005
HELD_UP_SECONDS = (600.0, 4 * 3600.0)
SHORTLY_HELD_UP_SECONDS = (5.0, 60.0)
"""Of one thread of a process that has others, which look again and again what has become of it."""

LAGGING = 0.3
REPEATS_MAX = 3
READS = GETS | {"list"}

SLOW_SECONDS = (1.0, 5.0)


class Outage(Enum):
    """What is wrong with the store for everybody."""

    AWAY = "refused while the store was away"
    BUSY = "a third refused while the store was busy"
    SLOW = "slow while the store was slow"

    def refuses(self, random: Random) -> bool:
        """Whether the next request is answered with 503."""
        return self is Outage.AWAY or (self is Outage.BUSY and random.random() < 1 / 3)


RETIRES = (f"{TABLES_PREFIX}node-lists/", f"{TABLES_PREFIX}stream-buckets/")
"""Keys whose writers say when something was retired. A pause between the saying and the write is taken off readers'
time, so nobody is held up there for longer than `Machine.stall_seconds_max`. Everywhere else it may be for hours."""


class Listings(DecoratedStore):
    """A store whose listings may show what it held some time ago. The store of the world: one for all machines.

    Args:
        store: the store.
        lag_seconds: how far behind they may be.
    """

    def __init__(self, store: ObjectStore, lag_seconds: float) -> None:
        super().__init__(store)
        self.lag_seconds = lag_seconds
        self.injected: Counter[str] = Counter()
        self.writes = self.history_writes = 0
        self.outage: Outage | None = None
        self._pages: dict[tuple[str, str, int, str], deque[tuple[float, ListPage]]] = {}

    def note_write(self, key: str) -> None:
        """That something is about to be written."""
        table = key.removeprefix(TABLES_PREFIX).partition("/")[0]
        if key.startswith(TABLES_PREFIX) and table not in TABLES:
            self.history_writes += 1
        else:
            self.writes += 1

    def page_of_before(self, asked: tuple[str, str, int, str], now_seconds: float, random: Random) -> ListPage:
        """A page as it was now or, seldom, as somebody saw it a while ago."""
        page = self.list_page(*asked)
        if self.lag_seconds:
            seen = self._pages.setdefault(asked, deque(maxlen=8))
            seen.append((now_seconds, page))
            old = [each for then, each in seen if now_seconds - self.lag_seconds <= then < now_seconds]
            if old and random.random() < LAGGING:
                self.injected["listings that lag"] += 1
                return random.choice(old)
        return page


class MachineStore(CountingStore):
    """See the module. Used by the tasks of one process.

    It counts its requests a second time, past causes: after each request both counts must agree.

    Args:
        listings: the bucket.
        name: of the machine.
        scheduler: of the world.
        random: decides about latencies and faults.
        faults: how likely each fault is.

    Attributes:
        nearness: times the usual latency.
        reply_seconds_max: how much longer each reply may take than usual, after the effect.
        away_until_seconds: until then requests of this process are refused.
        after_write: called after each write whose reply came.
    """

    process: Mortal

    def __init__(
        self, listings: Listings, name: str, scheduler: Scheduler, random: Random, faults: Mapping[Fault, float]
    ) -> None:
        self.faults = FaultStore(listings, rng=random, probabilities=faults)
        super().__init__(self.faults)
        self._listings, self._name, self._scheduler, self._random = listings, name, scheduler, random
        self._goes_wrong = sum(faults.values()) > 0
        self.requests_to_live: int | None = None
        self.stall: tuple[int, float] | None = None
        self.is_held_up_for_long = False
        self.nearness = 1.0
        self.reply_seconds_max = 0.0
        self.away_until_seconds = 0.0
        self.after_write: Callable[[StoreCall], None] | None = None
        self.changed_bodies = 0
        self._ended: tuple[int, ...] = (0, 0, 0)  # requests, bytes sent, bytes received

    def list_page(self, prefix: str, start_after: str = "", limit: int = 1000, token: str = "") -> ListPage:
        """See `ObjectStore.list_page`."""
        asked = prefix, start_after, limit, token
        return self._around(
            StoreCall("list", prefix),
            lambda: self._listings.page_of_before(asked, self._scheduler.seconds, self._random),
        )

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        received = 0
        try:
            answer = super()._around(call, lambda: self._repeated(call, send))
            received = received_bytes(answer)
        finally:
            ended = 1, call.sent_bytes, received
            self._ended = tuple(one + other for one, other in zip(self._ended, ended, strict=True))
            self._check_causes()
        return answer

    def _check_causes(self) -> None:
        counts = self.snapshot().by_cause.values()
        added = tuple(
            sum(figures)
            for figures in zip(*((each.requests, each.sent_bytes, each.received_bytes) for each in counts), strict=True)
        )
        if added != self._ended:
            raise Violation(f"expected causes that add up to {self._ended} requests and bytes, found {counts}")

    def _repeated(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        """Reads are repeated, as the clients of real stores repeat them, so that long workflows come to their ends."""
        for _ in range(self._random.randint(0, REPEATS_MAX) if call.operation in READS else 0):
            try:
                return self._once(call, send)
            except StoreUnavailable:
                continue
        return self._once(call, send)

    def _once(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        self._wait(call)
        self._scheduler.steps += 1
        trace, line = self._scheduler.trace, f"{self._scheduler.seconds:.3f} {self._name}: {call.operation} {call.key}"
        try:
            answer = self._sent(call, send)
        except StoreError as error:
            trace.note(f"{line} -> {type(error).__name__}: {str(error).rpartition(': ')[2][:60]}")
            raise
        trace.note(f"{line} -> {'ok' if answer is not None else 'none'}")
        if self.after_write is not None and call.operation in WRITES:
            self.after_write(call)
        if self._random.random() < REPLY_IS_SLOW:
            self._scheduler.sleep(self._latency())
        if self.reply_seconds_max:
            self._scheduler.sleep(self._random.uniform(0, self.reply_seconds_max))
        return answer

    def _wait(self, call: StoreCall) -> None:
        seconds = self._latency()
        if self.stall is not None:
            requests, held_up = self.stall
            self.stall = (requests - 1, held_up) if requests else None
            seconds += 0.0 if requests else held_up
        if self.is_held_up_for_long and self._random.random() < HELD_UP and not _says_when(call):
            self._listings.injected["held up for hours"] += 1
            seconds += self._random.uniform(*(SHORTLY_HELD_UP_SECONDS if self.process.has_threads else HELD_UP_SECONDS))
        if self._listings.outage is Outage.SLOW and not _says_when(call):
            self._listings.injected[Outage.SLOW.value] += 1
            seconds += self._random.uniform(*SLOW_SECONDS)
        self._scheduler.sleep(seconds)
        if self.requests_to_live is not None:
            self.requests_to_live -= 1
            if self.requests_to_live <= 0:
                self.process.is_dead = True
                self._scheduler.end_tasks_of(self.process)
                raise Died(self._name)

    def wait_for_other(self, what: str) -> None:
        """A call of somebody else than the store: it takes its time, and the process may die before it."""
        self._wait(StoreCall("list", what))

    def _latency(self) -> float:
        return self._random.random() ** 2 * LATENCY_SECONDS_MAX * self.nearness

    def _sent(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        outage = Outage.AWAY if self._scheduler.seconds < self.away_until_seconds else self._listings.outage
        if outage is not None and outage.refuses(self._random):
            self._listings.injected[outage.value] += 1
            raise store_error(call.operation, call.key, outage.value, code="SlowDown", status=503)
        if call.operation in WRITES:
            self._listings.note_write(call.key)
        if not self._goes_wrong:
            return send()
        answer = send()
        point = self._random.random()
        if point < SERVER_ERROR_AFTER:
            self._listings.injected["server error after the effect"] += 1
            code, status = ("InternalError", 500) if point < SERVER_ERROR_AFTER / 2 else ("SlowDown", 503)
            detail = "injected after the effect"
            raise store_error(call.operation, call.key, detail, code=code, status=status, conditional=call.conditional)
        if point > 1 - CHANGED_BODY and call.operation in GETS and _tells_changes(call):
            return cast("Answer", self._changed(answer))
        return answer

    def _changed(self, answer: Any) -> Any:
        if not isinstance(answer, Fetched) or not answer.body:
            return answer
        body = bytearray(answer.body)
        body[self._random.randrange(len(body))] ^= 1 << self._random.randrange(8)
        self._listings.injected["bodies changed on the way"] += 1
        self.changed_bodies += 1
        return replace(answer, body=bytes(body))


def _says_when(call: StoreCall) -> bool:
    return call.operation == "put" and call.key.startswith(RETIRES)


def _tells_changes(call: StoreCall) -> bool:
    """Whether what lies there has a checksum over all of it."""
    return call.key.startswith(TABLES_PREFIX)
