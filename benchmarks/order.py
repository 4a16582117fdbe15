"""How far out of the order of time a reader of many segments returns records, and what order costs.

`time_order` is a simulation:

    how far     of a record: the highest value returned before it minus its own value, in milliseconds; at least 0
    ours        `StreamReader` and `ReaderCore` unchanged: the lowest value first, and a wait for data under way
    the peer    the same reader with another rule: the segment with the most data in memory first, without waiting

Both read the same streams (`World`) with the same bounds on buffers and requests, in virtual time:
`SimulatedReader` replaces only threads and waiting. A peer that waits is worse: it falls behind, so that it has more
data in memory to return out of order.

Three readers are simulated, on five streams each:

| reader   | begins                         | records that it takes a second       |
|----------|--------------------------------|--------------------------------------|
| tail     | with the stream                | 1.3 x the average arrivals           |
| behind   | when it is 60 s old, and grows | 2 x                                  |
| history  | when it has ended              | 10 x                                 |

The results are medians over the streams, and the stream with the worst ratio. Values are whole milliseconds: if ours is
0, the ratio is computed with 1 ms.

Source: PDP-28, on the amount of data in memory as "the only criteria".

The readers read a stream of uneven segments, which is generated from a seed.

    16 key ranges    records a second from 1 to 100, each the same factor above the one before; shuffled over the keys
    bursts           for 0.1 to 1 s a range gets ten times as many records, each about once in 20 s
    writers stall    the records of 1 to 3 s arrive at the end of this time, each range about once in 60 s
    reads stall      a read of a segment that begins within 2 to 5 s is answered at their end, each range once in 600 s
    scales           each 10 s the segment that got the most records since the last scale is split in half, and the two
                     neighbours that got the fewest are merged: one more epoch, the same number of segments

A step of a reader takes the number of sequential requests that `ObjectSegmentSource` sends for it on a warm catalog,
each with the latency of `LatencyModel`: 15 ms in the median, 100 ms for one in a hundred, and 80 MB/s.

    a segment for the first time    1    its stream of the object layer
    events                          2    the index of an object; its data
    no more in the image            0
    is it sealed?                   4    once in `POLL_SECONDS` for all: the stream's state, its segments, a newer image
    it is sealed                    4    its size, the state again, its successors

A record is visible in images that are requested after its arrival. Random choices follow from the seed, by segment.

`order_slow`: what order in time costs a reader of history. The peer is the same reader with `Order.SEGMENT`, which does
not wait; both run alternately, on a store 1, 10 and 30 times as slow as the model. 40,000 events of 100 bytes arrived
within 20 s in 8 and 64 segments, with three scales. Buffers are small, in the proportion of the defaults, and the
stream has four times as many bytes, so that segments are read in many requests. Three lines each: the furthest that an
event is out of order (the highest value returned before it minus its own value), the time to read all, and the most
bytes in memory compared with the limit, with one batch a request.
"""

from __future__ import annotations

import heapq
import itertools
import math
import statistics
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import cache, partial
from random import Random
from typing import Final, NamedTuple, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from accel import (
    StreamConfiguration,
    StreamReader,
    StreamStore,
    StreamWriter,
)
from accel.history.rules.segments import SegmentRecord, split_range
from accel.history.rules.values import make_id
from accel.history.store import Stream
from accel.streams.reader import Order
from accel.streams.rules.events import EventBatch
from accel.streams.rules.frontier import Frontier
from accel.streams.rules.reader_core import AskEnd, Fill, ReaderCore, SegmentEnd, SegmentEvents, Step
from accel.streams.rules.settings import ReaderSettings
from accel.system import SYSTEM
from accel.testing import LatencyModel, LatencyStore
from benchmarks.harness import AnswersDiffer, Comparison, Spread, interleave
from benchmarks.streams import new_stream, reading
from loaders.store import MemoryStore

SEGMENTS = 16
RATE_MIN, RATE_MAX = 1.0, 100.0
RECORD_BYTES = 1000
SCALE_MS = 10_000
BURST_FACTOR = 10
BURST_MS, BURST_EACH_MS = (100, 1_000), 20_000
WRITE_STALL_MS, WRITE_STALL_EACH_MS = (1_000, 3_000), 60_000
READ_STALL_MS, READ_STALL_EACH_MS = (2_000, 5_000), 600_000
FIRST_REQUESTS, READ_REQUESTS, POLL_REQUESTS, SEALED_REQUESTS = 1, 2, 4, 3
POLL_SECONDS = 1.0

Integers = NDArray[np.int64]

_PAYLOAD = bytes(RECORD_BYTES)
_BOUNDS = np.array([0, RECORD_BYTES], dtype=np.int64)


@dataclass
class WorldSegment:
    """One segment, with all its records.

    Attributes:
        record: its record in the history.
        sealed_ms: the time when it was sealed; None = never.
        following: its successors.
        numbers: of its records, counted over the stream in the order of their arrival.
        times_ms: the arrival of each record, which is its value; ascending.
        offsets: from 0 to one past the last.
    """

    record: SegmentRecord
    sealed_ms: int | None = None
    following: list[SegmentRecord] = field(default_factory=list)
    numbers: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    times_ms: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    offsets: Integers = field(default_factory=lambda: np.zeros(1, np.int64))


class World:
    """A whole stream. Threads: one at a time.

    Args:
        seed: determines the stream.
        seconds: the time during which records arrive.

    Attributes:
        times_ms: the arrival of each record of the stream; ascending.
        keys: of each record.
        segments: all segments, by id.
    """

    def __init__(self, seed: int, seconds: float) -> None:
        self.seed, self.seconds, self.end_ms = seed, seconds, int(seconds * 1000)
        chance = np.random.default_rng(seed)
        rates = chance.permutation(np.geomspace(RATE_MIN, RATE_MAX, SEGMENTS))
        arrivals = [_arrivals(chance, rate, self.end_ms) for rate in rates]
        keys = [(number + chance.random(len(times))) / SEGMENTS for number, times in enumerate(arrivals)]
        order = np.argsort(np.concatenate(arrivals), kind="stable")
        self.times_ms, self.keys = np.concatenate(arrivals)[order], np.concatenate(keys)[order]
        self.stalls = [list(_windows(chance, self.end_ms, READ_STALL_EACH_MS, READ_STALL_MS)) for _ in range(SEGMENTS)]
        self.segments: dict[int, WorldSegment] = {}
        self._number = itertools.count()
        self._grow()

    @property
    def records(self) -> int:
        """The number of all records."""
        return len(self.times_ms)

    def fill(self, fill: Fill, now_ms: float) -> SegmentEvents:
        """The result of a read that begins now."""
        segment = self.segments[fill.segment_id]
        seen = int(np.searchsorted(segment.times_ms, now_ms, side="right"))
        end = min(seen, fill.offset + max(1, fill.max_bytes // RECORD_BYTES), seen if fill.end is None else fill.end)
        batches = tuple(_batch(segment, offset) for offset in range(fill.offset, end))
        return SegmentEvents(batches, max(fill.offset, end), max(fill.offset, end))

    def end(self, segment_id: int, now_ms: float) -> SegmentEnd:
        """Whether a segment is sealed now, and what follows it."""
        segment = self.segments[segment_id]
        if segment.sealed_ms is None or segment.sealed_ms > now_ms:
            return SegmentEnd(None)
        return SegmentEnd(len(segment.times_ms), tuple(segment.following))

    def stalled_until(self, segment_id: int, now_ms: float) -> float:
        """The earliest time at which a read that begins now is answered."""
        where = int(self.segments[segment_id].record.key_start * SEGMENTS)
        return max((end for start, end in self.stalls[where] if start <= now_ms < end), default=now_ms)

    def _grow(self) -> None:
        active = [self._create(0, 0, number / SEGMENTS, (number + 1) / SEGMENTS) for number in range(SEGMENTS)]
        bounds = [*range(0, self.end_ms, SCALE_MS), self.end_ms + 1]
        for epoch, (start, end) in enumerate(itertools.pairwise(bounds)):
            if epoch:
                active = self._scale(active, epoch, start)
            first, last = np.searchsorted(self.times_ms, [start, end])
            self._give(active, slice(int(first), int(last)))

    def _give(self, active: list[WorldSegment], chosen: slice) -> None:
        owners = np.searchsorted([segment.record.key_start for segment in active], self.keys[chosen], side="right") - 1
        for place, segment in enumerate(active):
            segment.numbers = np.concatenate((segment.numbers, np.flatnonzero(owners == place) + chosen.start))
            segment.times_ms = self.times_ms[segment.numbers]
            segment.offsets = np.arange(len(segment.numbers) + 1)

    def _scale(self, active: list[WorldSegment], epoch: int, now_ms: int) -> list[WorldSegment]:
        recent = np.array([np.count_nonzero(segment.times_ms >= now_ms - SCALE_MS) for segment in active])
        hot = int(recent.argmax())
        pairs = recent[:-1] + recent[1:]
        pairs[max(0, hot - 1) : hot + 1] = self.records + 1
        cold = int(pairs.argmin())
        middle = (active[hot].record.key_start + active[hot].record.key_end) / 2
        left = self._create(epoch, now_ms, active[hot].record.key_start, middle)
        right = self._create(epoch, now_ms, middle, active[hot].record.key_end)
        merged = self._create(epoch, now_ms, active[cold].record.key_start, active[cold + 1].record.key_end)
        for sealed, following in ((active[hot], [left, right]), (active[cold], [merged]), (active[cold + 1], [merged])):
            sealed.sealed_ms, sealed.following = now_ms, [segment.record for segment in following]
        kept = [segment for segment in active if segment.sealed_ms is None]
        return sorted([*kept, left, right, merged], key=lambda segment: segment.record.key_start)

    def _create(self, epoch: int, now_ms: int, start: float, end: float) -> WorldSegment:
        segment = WorldSegment(SegmentRecord(make_id(epoch, next(self._number)), now_ms, start, end))
        self.segments[segment.record.id] = segment
        return segment


def _batch(segment: WorldSegment, offset: int) -> EventBatch:
    value = int(segment.times_ms[offset])
    return EventBatch(segment.record.id, value, segment.offsets[offset : offset + 2], _PAYLOAD, _BOUNDS)


def _windows(
    chance: np.random.Generator, end_ms: int, each_ms: int, length_ms: tuple[int, int]
) -> Iterator[tuple[float, float]]:
    at = chance.exponential(each_ms)
    while at < end_ms:
        length = chance.uniform(*length_ms)
        yield at, at + length
        at += length + chance.exponential(each_ms)


def _arrivals(chance: np.random.Generator, rate: float, end_ms: int) -> Integers:
    times = [chance.uniform(0, end_ms, chance.poisson(rate * end_ms / 1000))]
    for start, end in _windows(chance, end_ms, BURST_EACH_MS, BURST_MS):
        more = (BURST_FACTOR - 1) * rate * (end - start) / 1000
        times.append(chance.uniform(start, min(end, end_ms), chance.poisson(more)))
    all_times = np.concatenate(times)
    for start, end in _windows(chance, end_ms, WRITE_STALL_EACH_MS, WRITE_STALL_MS):
        all_times[(all_times >= start) & (all_times < end)] = min(end, end_ms)
    return np.sort(all_times).astype(np.int64)


SEEDS: Final = range(1, 6)
SECONDS: Final = 120
GOAL: Final = 20
DELAY_GOAL: Final = 1 / 1.3
RESOLUTION_MS: Final = 1.0
TICK_SECONDS: Final = 1e-3
"""The least time by which any wait advances the clock."""

Answer: TypeAlias = SegmentEvents | SegmentEnd
Due: TypeAlias = tuple[float, int, Future[Answer], Answer]


@dataclass(frozen=True, slots=True)
class Scenario:
    """The start and the speed of a reader.

    Args:
        name: of the scenario.
        start: of the reader, as a share of the time in which the stream grows.
        speed: records that it takes, as a multiple of the arriving records.
        follow: whether the stream may still grow.
        delay_goal: the goal of the ratio of median delays; None if there is no goal.
    """

    name: str
    start: float
    speed: float
    follow: bool = True
    delay_goal: float | None = None


SCENARIOS: Final = (
    Scenario("tail", 0.0, 1.3, delay_goal=DELAY_GOAL),
    Scenario("behind", 0.5, 2.0),
    Scenario("history", 1.0, 10.0, follow=False),
)


class FullestFirst(ReaderCore):
    """The peer: takes events from the segment with the most data in memory."""

    def take(self, opened: Callable[[EventBatch], object] = lambda _: None) -> EventBatch | None:
        """The next events of the fullest buffer."""
        self._let_go()
        ready = [(-buffer.size_bytes, number) for number, buffer in self._buffers.items() if buffer.batches]
        return self._take_from(min(ready)[1], opened) if ready else None


@dataclass(frozen=True, slots=True)
class Image:
    """The records that are visible to a reader.

    Args:
        as_of_ms: records that arrived up to this time are visible.
        from_seconds: the time from which the image is used.
        asked_seconds: the time when the image was requested.
    """

    as_of_ms: float
    from_seconds: float
    asked_seconds: float


class SimulatedSource:
    """Answers from a world like `ObjectSegmentSource`, and reports when each is due. Threads: one at a time."""

    def __init__(self, world: World, now_seconds: float = 0.0) -> None:
        self.world = world
        self.now_seconds = now_seconds
        self._model = LatencyModel()
        self._chances: dict[int, Random] = {}
        self._image = self._next = Image(now_seconds * 1000, now_seconds, now_seconds)
        self._read_as_of: dict[int, float] = {}

    def timer(self) -> float:
        """The virtual time."""
        return self.now_seconds

    def fill(self, fill: Fill) -> SegmentEvents:
        """See `SegmentSource.fill`."""
        return self.ask(fill)[0]

    def ask_end(self, step: AskEnd) -> SegmentEnd:
        """See `SegmentSource.ask_end`."""
        return self.ask(step)[0]

    @overload
    def ask(self, step: Fill) -> tuple[SegmentEvents, float]: ...
    @overload
    def ask(self, step: AskEnd) -> tuple[SegmentEnd, float]: ...
    def ask(self, step: Step) -> tuple[Answer, float]:
        """The answer to a step that is sent now, and the time when it is due, in seconds."""
        start = self.world.stalled_until(step.segment_id, self.now_seconds * 1000) / 1000
        if self._next.from_seconds <= self.now_seconds:
            self._image = self._next
        if isinstance(step, Fill):
            is_new = step.segment_id not in self._read_as_of
            self._read_as_of[step.segment_id] = self._image.as_of_ms
            found = self.world.fill(step, self._image.as_of_ms)._replace(as_of=int(self._image.as_of_ms))
            requests = FIRST_REQUESTS * is_new + READ_REQUESTS * bool(found.batches)
            return found, start + self._seconds(step.segment_id, requests, RECORD_BYTES * len(found.batches))
        if self._next.asked_seconds + POLL_SECONDS <= self.now_seconds:
            until = start + self._seconds(step.segment_id, POLL_REQUESTS)
            self._next = Image(self.now_seconds * 1000, until, self.now_seconds)
        known = max(start, self._next.from_seconds)
        if self._next.as_of_ms > self._read_as_of.get(step.segment_id, -1.0):
            return SegmentEnd(None, is_stale=True), known
        end = self.world.end(step.segment_id, self._next.as_of_ms)
        return end, known + self._seconds(step.segment_id, SEALED_REQUESTS * (end.size is not None))

    def _seconds(self, segment_id: int, requests: int, body_bytes: int = 0) -> float:
        chance = self._chances.setdefault(segment_id, Random(f"{self.world.seed} {segment_id}"))
        times = [self._model.seconds(chance, 0) for _ in range(requests)]
        return sum(times) + body_bytes / self._model.bytes_per_second


class SimulatedReader(StreamReader):
    """The reader in virtual time: answers arrive when they are due, and waiting takes no time. Threads: one.

    Args:
        world: the stream, which it reads from the head.
        scenario: its start and speed.
        settings: bounds.
        core: chooses the next events.
    """

    def __init__(self, world: World, scenario: Scenario, settings: ReaderSettings, core: type[ReaderCore]) -> None:
        self._simulated = SimulatedSource(world, scenario.start * world.seconds)
        system = replace(SYSTEM, timer=self._simulated.timer, clock=self._simulated.timer)
        super().__init__(_stream(), self._simulated, settings=settings, system=system)
        head = [world.segments[number].record for number in range(SEGMENTS)]
        frontier = Frontier(head, dict.fromkeys(range(SEGMENTS), 0))
        self._core = core(frontier, settings, follow=scenario.follow)
        self._due: list[Due] = []
        self._serial = itertools.count()

    def let_pass(self, seconds: float) -> None:
        """Advance the clock, and deliver the answers that are due."""
        until = self._simulated.now_seconds + seconds
        while self._due and self._due[0][0] <= until:
            self._arrive()
        self._simulated.now_seconds = until

    def _ask(self, step: Step) -> Future[Answer]:
        source, future = self._simulated, Future[Answer]()
        answer, at = source.ask(step)
        heapq.heappush(self._due, (at, next(self._serial), future, answer))
        return future

    def _wait(self, seconds: float | None) -> bool:
        until = math.inf if seconds is None else self._simulated.now_seconds + max(seconds, TICK_SECONDS)
        if not self._due or self._due[0][0] > until:
            self._simulated.now_seconds = until
            return False
        self._arrive()
        if (answered := self._answers.get()) is not None:
            self._answer(*answered)
        return True

    def _arrive(self) -> None:
        at, _, future, answer = heapq.heappop(self._due)
        self._simulated.now_seconds = max(at, self._simulated.now_seconds)
        future.set_result(answer)


@dataclass(frozen=True, slots=True)
class Given:
    """The records that a reader returned.

    Args:
        segment_ids: the segment of each record.
        offsets: the offset of each record.
        values: the arrival of each record.
        given_ms: the time when each record was returned.
    """

    segment_ids: Integers
    offsets: Integers
    values: Integers
    given_ms: Integers

    def out_of_order_ms(self) -> Integers:
        """For each record, how far it was out of order."""
        highest: Integers = np.maximum.accumulate(self.values)
        return highest - self.values


def read(world: World, scenario: Scenario, core: type[ReaderCore], settings: ReaderSettings) -> Given:
    """Read a world to its end.

    Raises:
        AnswersDiffer: a record was not returned exactly once.
    """
    reader = SimulatedReader(world, scenario, settings, core)
    pause_seconds = world.seconds / world.records / scenario.speed
    rows: list[tuple[int, int, int, int]] = []
    while len(rows) < world.records and (batch := reader.next_batch()) is not None:
        rows.append((batch.segment_id, batch.offset, batch.value, int(reader._simulated.now_seconds * 1000)))  # noqa: SLF001 - ours
        reader.let_pass(pause_seconds)
    reader.close()
    given = Given(*np.array(rows, dtype=np.int64).T)
    if len(rows) != world.records or len(np.unique(np.stack((given.segment_ids, given.offsets)), axis=1).T) != len(
        rows
    ):
        raise AnswersDiffer(f"{scenario.name}: expected {world.records} records once, found {len(rows)}")
    return given


def both(world: World, scenario: Scenario, settings: ReaderSettings | None = None) -> tuple[Given, Given]:
    """The records that ours and the peer return."""
    ours = settings or ReaderSettings()
    peer = replace(ours, reorder_wait_seconds=0.0)
    return read(world, scenario, ReaderCore, ours), read(world, scenario, FullestFirst, peer)


def run(rounds: int = 7) -> list[Comparison]:  # noqa: ARG001 - the same each time
    """Run all comparisons."""
    lines = []
    for scenario in SCENARIOS:
        given = [both(World(seed, SECONDS), scenario) for seed in SEEDS]
        ours, peers = ([reading.out_of_order_ms() for reading in side] for side in zip(*given, strict=True))
        lines += compare(list(map(_high, ours)), list(map(_high, peers)), f"99th percentile, {scenario.name}", GOAL)
        lines += compare(list(map(_mean, ours)), list(map(_mean, peers)), f"mean, {scenario.name}")[:1]
        delays, peer_delays = ([_delay(reading) for reading in side] for side in zip(*given, strict=True))
        lines += compare(delays, peer_delays, f"median delay, {scenario.name}", scenario.delay_goal)[:1]
    return lines


def compare(ours: list[float], peers: list[float], name: str, goal: float | None = None) -> list[Comparison]:
    """Lines from milliseconds of each stream: the medians, and the stream with the worst ratio."""
    worst = min(range(len(ours)), key=lambda number: ratio(ours[number], peers[number]))
    middle, peer_middle = statistics.median(ours), statistics.median(peers)
    line = Comparison(
        f"time_order: {name}",
        value=middle,
        unit="ms",
        peer="most data in memory first",
        peer_value=peer_middle,
        ratio=ratio(middle, peer_middle),
        runs=len(ours),
        goal=goal,
        spread=Spread.of(ours),
        peer_spread=Spread.of(peers),
    )
    one = replace(line, name=f"{line.name}, worst stream", runs=1, spread=None, peer_spread=None)
    low = ratio(ours[worst], peers[worst])
    return [line, replace(one, value=ours[worst], peer_value=peers[worst], ratio=low)]


def ratio(ours_ms: float, peer_ms: float) -> float:
    """The peer's milliseconds divided by ours, which count as at least 1 ms."""
    return peer_ms / max(ours_ms, RESOLUTION_MS)


@cache
def _stream() -> Stream:
    """A new stream, for the constructor of the reader; the world contains its further history."""
    streams = StreamStore.open(MemoryStore())
    streams.create_scope("bench")
    streams.create_stream("bench", "order", StreamConfiguration(min_segments=SEGMENTS), 0)
    return streams.stream("bench", "order")


def _high(out_of_order_ms: Integers) -> float:
    return float(np.percentile(out_of_order_ms, 99))


def _mean(out_of_order_ms: Integers) -> float:
    return float(out_of_order_ms.mean())


def _delay(given: Given) -> float:
    return float(np.median(given.given_ms - given.values))


EVENTS, EVENT_BYTES, APPENDED, FLUSHED, KEYS = 40_000, 100, 200, 2_000, 1_000


STEP_SECONDS: Final = 0.1
"""The time between two appends of `APPENDED` events."""


TIME_GOAL: Final = 1 / 1.2


SLOW_SEGMENTS, SLOWNESSES, SLOW_ROUNDS_MAX = (8, 64), (1, 10, 30), 3


SLOW_BUFFERS: Final = ReaderSettings(fill_bytes=1 << 14, buffer_bytes_max=1 << 20)


class SlowRead(NamedTuple):
    """The result of a reader of a slow store.

    Args:
        behind_ms: the furthest that an event was out of order.
        seconds: the time of the whole read.
        buffered_bytes: the most payload in memory.
    """

    behind_ms: int
    seconds: float
    buffered_bytes: int


def write_history(events: int = EVENTS, segments: int = SLOW_SEGMENTS[0]) -> MemoryStore:
    """A stream whose clock advances by `STEP_SECONDS` an append, with a scale after each quarter."""
    now = [1_000_000.0]
    store, chance = MemoryStore(clock=SYSTEM.clock), Random(1)
    system = replace(SYSTEM, clock=lambda: now[0])
    with new_stream(store, segments, system=system) as (stream, host), StreamWriter(stream, host) as writer:
        for start in range(0, events, APPENDED):
            now[0] += STEP_SECONDS
            writer.write_many([(bytes(EVENT_BYTES), f"key {chance.randrange(KEYS)}") for _ in range(APPENDED)])
            if (start + APPENDED) % FLUSHED == 0:
                writer.flush()
            if start and start % (events // 4) == 0:
                writer.flush()  # otherwise a thread may still have the events when the segment is sealed
                oldest = stream.active_segments()[0]
                stream.scale([oldest.id], list(split_range(oldest.key_start, oldest.key_end, 2)))
    return store


def _sleep(slowness: float, seconds: float) -> None:
    SYSTEM.sleep(slowness * seconds)


def read_slowly(memory: MemoryStore, slowness: float, order: Order, events: int = EVENTS) -> SlowRead:
    """Read the whole stream with small buffers, on a store with so many times the latencies of the model.

    Raises:
        AnswersDiffer: not all events were returned.
    """
    store = LatencyStore(memory, Random(1), partial(_sleep, slowness))
    with reading(store, order=order, settings=SLOW_BUFFERS) as (reader, _):
        began, latest, behind, most, left = SYSTEM.timer(), 0, 0, 0, events
        for batch in iter(reader.next_batch, None):
            behind, latest = max(behind, latest - batch.value), max(latest, batch.value)
            most, left = max(most, reader.buffered_bytes), left - len(batch)
        if left:
            raise AnswersDiffer(f"expected {events} events, found {events - left}")
        return SlowRead(behind, SYSTEM.timer() - began, most)


def run_order_slow(rounds: int = 7) -> list[Comparison]:
    """Run the comparisons of order on slow stores, at most `SLOW_ROUNDS_MAX` rounds."""
    lines = []
    for segments in SLOW_SEGMENTS:
        store = write_history(EVENTS, segments)
        for slowness in SLOWNESSES:
            lines += _slow(store, segments, slowness, min(rounds, SLOW_ROUNDS_MAX))
    return lines


def _slow(store: MemoryStore, segments: int, slowness: int, rounds: int) -> list[Comparison]:
    reads: dict[Order, list[SlowRead]] = {order: [] for order in Order}

    def read(order: Order) -> int:
        reads[order].append(read_slowly(store, slowness, order))
        return EVENTS

    timings = interleave(lambda: read(Order.TIME), lambda: read(Order.SEGMENT), rounds=rounds)
    behind, other = (max(each.behind_ms for each in reads[order]) for order in Order)
    most = max(each.buffered_bytes for each in reads[Order.TIME])
    limit = SLOW_BUFFERS.buffer_bytes_max + SLOW_BUFFERS.requests_max * APPENDED * EVENT_BYTES // segments
    name, peer = f"{segments} segments, latency x {slowness}", "Order.SEGMENT"
    return [
        Comparison(f"order_slow: out of order, {name}", behind, "ms", peer, other, ratio(behind, other), rounds),
        timings.compare(f"order_slow: total, {name}", peer=peer, unit="s", goal=TIME_GOAL),
        Comparison.exact(f"order_slow: memory, {name}", most, "B", "buffer_bytes_max", limit, 1.0),
    ]
