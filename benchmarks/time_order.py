"""How far out of the order of time records come from a reader of many segments, in a simulation.

    how far     of a record: the highest value given before it, less its own value, in milliseconds; 0 if that is less
    ours        `StreamReader` and `ReaderCore` as they are: the lowest value first, and a wait for what is on its way
    the peer    the same reader with another rule: the segment with the most data in memory first, without waiting

Both read the same streams (`order_world`) with the same bounds on buffers and requests, in virtual time:
`SimulatedReader` replaces threads and waiting, nothing else. A peer that waits does worse: it falls behind, so that
more lies in memory to be taken out of order.

Three readers are simulated, on five streams each:

| reader   | begins                         | takes so many records a second       |
|----------|--------------------------------|--------------------------------------|
| tail     | with the stream                | 1.3 x what arrives on average        |
| behind   | when it is 60 s old, and grows | 2 x                                  |
| history  | when it has ended              | 10 x                                 |

Printed are medians over the streams, and the stream where the ratio is worst. Values are milliseconds, so of less than
one nothing is known: where ours is 0, the ratio is that to 1 ms.

Source: PDP-28, on the amount of data in memory as "the only criteria".
"""

from __future__ import annotations

import heapq
import itertools
import math
import statistics
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from accel.history.rules.configuration import StreamConfiguration
from accel.history.store import Stream, StreamStore
from accel.streams.reader import StreamReader
from accel.streams.rules.events import EventBatch
from accel.streams.rules.reader_core import (
    Fill,
    Frontier,
    Learn,
    ReaderCore,
    ReaderSettings,
    SegmentEnd,
    SegmentEvents,
    Step,
)
from accel.system import SYSTEM
from benchmarks.harness import AnswersDiffer, Comparison, Spread
from benchmarks.order_world import SEGMENTS, World, latencies_ms
from loaders.store import MemoryStore

SEEDS: Final = range(1, 6)
SECONDS: Final = 120
GOAL: Final = 20
RESOLUTION_MS: Final = 1.0
PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9, 100.0)
TICK_SECONDS: Final = 1e-3
"""Time passes by at least so much, however short a wait is."""

Answer: TypeAlias = SegmentEvents | SegmentEnd
Due: TypeAlias = tuple[float, int, Future[Answer], Answer]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Scenario:
    """When and how fast a reader reads.

    Args:
        name: of it.
        start: when it begins, as a share of the time in which the stream grows.
        speed: records that it takes, as a multiple of what arrives.
        follow: whether the stream may still grow.
    """

    name: str
    start: float
    speed: float
    follow: bool = True


SCENARIOS: Final = (
    Scenario("tail", 0.0, 1.3),
    Scenario("behind", 0.5, 2.0),
    Scenario("history", 1.0, 10.0, follow=False),
)


class FullestFirst(ReaderCore):
    """The peer: of all segments the one with the most data in memory goes first."""

    def take(self) -> EventBatch | None:
        """The next events of the fullest buffer."""
        ready = [(-each.size_bytes, number) for number, each in self._buffers.items() if each.batches]
        if ready:
            _, segment_id = min(ready)
            self._ready = [(0, segment_id, 0, self._buffers[segment_id])]
        return super().take()


class SimulatedSource:
    """Answers from a world, as of the time when it is asked. Threads: one at a time."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.now_seconds = 0.0
        self._latencies: dict[int, Iterator[float]] = {}

    def timer(self) -> float:
        """The virtual time."""
        return self.now_seconds

    def fill(self, fill: Fill) -> SegmentEvents:
        """See `SegmentSource.fill`."""
        return self.world.fill(fill, self.now_seconds * 1000)

    def learn(self, learn: Learn) -> SegmentEnd:
        """See `SegmentSource.learn`."""
        return self.world.end(learn.segment_id, self.now_seconds * 1000)

    def answers_at(self, segment_id: int) -> float:
        """When a request for a segment answers that is sent now, in seconds."""
        if segment_id not in self._latencies:
            self._latencies[segment_id] = latencies_ms(self.world.seed, segment_id)
        return (
            self.world.stalled_until(segment_id, self.now_seconds * 1000) + next(self._latencies[segment_id])
        ) / 1000


class SimulatedReader(StreamReader):
    """The reader in virtual time: answers come when they are due, and waiting costs nothing. Threads: one.

    Args:
        world: what it reads, from the head.
        scenario: when and how fast.
        settings: bounds.
        core: what decides.
    """

    def __init__(self, world: World, scenario: Scenario, settings: ReaderSettings, core: type[ReaderCore]) -> None:
        self._simulated = SimulatedSource(world)
        self._simulated.now_seconds = scenario.start * world.seconds
        system = replace(SYSTEM, timer=self._simulated.timer, clock=self._simulated.timer)
        super().__init__(_stream(), self._simulated, settings=settings, system=system)
        head = [world.segments[each].record for each in range(SEGMENTS)]
        frontier = Frontier(head, dict.fromkeys(range(SEGMENTS), 0))
        self._core = core(frontier, settings, follow=scenario.follow)
        self._due: list[Due] = []
        self._serial = itertools.count()

    def let_pass(self, seconds: float) -> None:
        """Time passes, and answers come meanwhile."""
        until = self._simulated.now_seconds + seconds
        while self._due and self._due[0][0] <= until:
            self._arrive()
        self._simulated.now_seconds = until

    def _ask(self, step: Step) -> Future[Answer]:
        source, future = self._simulated, Future[Answer]()
        answer = source.fill(step) if isinstance(step, Fill) else source.learn(step)
        heapq.heappush(self._due, (source.answers_at(step.segment_id), next(self._serial), future, answer))
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
    """What a reader gave, record by record.

    Args:
        segment_ids: where each stood.
        offsets: and at which offset.
        values: when each arrived.
        given_ms: when it was given.
    """

    segment_ids: Integers
    offsets: Integers
    values: Integers
    given_ms: Integers

    def out_of_order_ms(self) -> Integers:
        """Of each record how far out of order it came."""
        highest: Integers = np.maximum.accumulate(self.values)
        return highest - self.values


def read(world: World, scenario: Scenario, core: type[ReaderCore], settings: ReaderSettings) -> Given:
    """Read a world to its end.

    Raises:
        AnswersDiffer: some record was not given, or not once.
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
    """What ours gives, and what the peer gives."""
    ours = settings or ReaderSettings()
    peer = replace(ours, reorder_wait_seconds=0.0)
    return read(world, scenario, ReaderCore, ours), read(world, scenario, FullestFirst, peer)


def run(rounds: int = 7) -> list[Comparison]:  # noqa: ARG001 - the same each time
    """All lines."""
    lines = []
    for scenario in SCENARIOS:
        given = [both(World(seed, SECONDS), scenario) for seed in SEEDS]
        ours, peers = ([each.out_of_order_ms() for each in side] for side in zip(*given, strict=True))
        lines += compare(list(map(_high, ours)), list(map(_high, peers)), f"99th percentile, {scenario.name}", GOAL)
        lines += compare(list(map(_mean, ours)), list(map(_mean, peers)), f"mean, {scenario.name}")[:1]
        delays, peer_delays = ([_delay(each) for each in side] for side in zip(*given, strict=True))
        lines += compare(delays, peer_delays, f"median delay, {scenario.name}")[:1]
    return lines


def compare(ours: list[float], peers: list[float], name: str, goal: float | None = None) -> list[Comparison]:
    """Lines from milliseconds of each stream: the medians, and the stream where the ratio is worst."""
    worst = min(range(len(ours)), key=lambda each: ratio(ours[each], peers[each]))
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
    """How many times better ours is, as far as milliseconds tell."""
    return peer_ms / max(ours_ms, RESOLUTION_MS)


@cache
def _stream() -> Stream:
    """A stream to begin with; the world tells everything that happens to it."""
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
