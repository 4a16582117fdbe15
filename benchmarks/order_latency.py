"""How far out of the order of time events come from a bucket as slow as S3, and what order costs: readers at work.

Readers, catalog and lookups are as they are, with default settings; each request takes as long as `LatencyModel` says.
Threads wait in real time.

    | reader  | reads                                                        | the peer                            |
    |---------|--------------------------------------------------------------|-------------------------------------|
    | history | 200,000 events of 100 bytes, which arrived within 100 s in 8 | `Order.SEGMENT`, which waits for    |
    |         | segments, with three scales                                  | nothing                             |
    | behind  | the same, as one that follows                                | the same                            |
    | tail    | 8 segments while they are written, up to 2,000 events a      | the segment with the most data in   |
    |         | second, flushed each 0.1 s                                   | memory first, without waiting       |

Both sides of a line run alternately, those at the tail beside each other on one stream. How far out of order an event
comes: the highest value given before it, less its own; 0 if that is less. Where ours is 0, the ratio is that to 1 ms.
"""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import Final, NamedTuple

import numpy as np

from accel import FormatRecord, ObjectCatalog, ObjectSegments, ObjectSegmentSource, ReadAccelerator, StreamWriter
from accel.history.rules.configuration import StreamConfiguration
from accel.history.rules.segments import split_range
from accel.history.store import Stream, StreamStore
from accel.streams.reader import Order, StreamReader
from accel.streams.rules.reader_core import Frontier, ReaderSettings
from accel.system import SYSTEM
from accel.testing import LatencyStore
from benchmarks.harness import Comparison, Spread, interleave
from benchmarks.time_order import DELAY_GOAL, GOAL, FullestFirst, ratio
from loaders.store import MemoryStore, ObjectStore

SEGMENTS, KEYS, NODE = 8, 1_000, 4
EVENTS, EVENT_BYTES, APPENDED, FLUSHED = 200_000, 100, 200, 2_000
STEP_SECONDS: Final = 0.1
"""So long lie between two appends of `APPENDED` events."""

TAIL_SECONDS: Final = 10.0
TIME_GOAL: Final = 1 / 1.2


class Given(NamedTuple):
    """What a reader gave.

    Args:
        out_of_order_ms: of each event, how far out of order it came.
        delays_ms: of each event, how long after its arrival it was given.
    """

    out_of_order_ms: np.ndarray[tuple[int], np.dtype[np.int64]]
    delays_ms: np.ndarray[tuple[int], np.dtype[np.int64]]

    @classmethod
    def of(cls, rows: list[tuple[int, int, int]]) -> Given:
        """From value, time and number of events of each batch."""
        values, times_ms, counts = np.array(rows, dtype=np.int64).reshape(-1, 3).T
        behind = np.maximum.accumulate(values) - values
        return cls(np.repeat(behind, counts), np.repeat(times_ms - values, counts))

    @property
    def high_ms(self) -> float:
        """How far out of order 99 of 100 events come at most."""
        return float(np.percentile(self.out_of_order_ms, 99))

    @property
    def delay_ms(self) -> float:
        """The median delay."""
        return float(np.median(self.delays_ms))


class Bucket:
    """A bucket with one stream. Threads: any.

    Args:
        clock: of the host of its segments.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.store = MemoryStore(clock=SYSTEM.clock)
        ObjectCatalog.init(self.store, FormatRecord(namespace="order", stream_buckets=SEGMENTS))
        self._system = replace(SYSTEM, clock=clock)

    @contextmanager
    def writer(self) -> Iterator[tuple[Stream, StreamWriter]]:
        """Make the stream, and write it."""
        with (
            ObjectCatalog.open(self.store) as catalog,
            ObjectSegments(catalog, self.store, NODE, system=self._system) as host,
        ):
            streams = StreamStore.open(self.store, host=host)
            streams.create_scope("bench")
            stream = streams.create_stream("bench", "order", StreamConfiguration(min_segments=1), segments=SEGMENTS)
            with StreamWriter(stream, host) as writer:
                yield stream, writer

    def read(self, seed: int, reads: Callable[[Stream, ObjectSegmentSource], Given]) -> Given:
        """What a reader gives that has nothing cached, and whose requests take their time."""
        store: ObjectStore = LatencyStore(self.store, Random(seed), _sleep)
        with ObjectCatalog.open(store) as catalog, ReadAccelerator(catalog.images(), store) as accelerator:
            stream = StreamStore.open(store).stream("bench", "order")
            return reads(stream, ObjectSegmentSource(stream, accelerator, store))


def _sleep(seconds: float) -> None:
    SYSTEM.sleep(seconds)


def write_history(events: int = EVENTS) -> Bucket:
    """A stream whose clock goes on by `STEP_SECONDS` an append, with a scale after each quarter."""
    now = [1_000_000.0]
    bucket, chance = Bucket(lambda: now[0]), Random(1)
    with bucket.writer() as (stream, writer):
        for start in range(0, events, APPENDED):
            now[0] += STEP_SECONDS
            writer.write_many([(bytes(EVENT_BYTES), f"key {chance.randrange(KEYS)}") for _ in range(APPENDED)])
            if (start + APPENDED) % FLUSHED == 0:
                writer.flush()
            if start and start % (events // 4) == 0:
                oldest = stream.active_segments()[0]
                stream.scale([oldest.id], list(split_range(oldest.key_start, oldest.key_end, 2)))
    return bucket


def read_history(bucket: Bucket, seed: int, order: Order, *, events: int = EVENTS, follow: bool = False) -> Given:
    """All of it, in an order, by a reader that follows or does not."""

    def reads(stream: Stream, source: ObjectSegmentSource) -> Given:
        rows: list[tuple[int, int, int]] = []
        left = events
        with StreamReader(stream, source, order=order, follow=follow) as reader:
            while left > 0 and (batch := reader.next_batch()) is not None:
                left -= len(batch)
                rows.append((batch.value, int(SYSTEM.clock() * 1000), len(batch)))
        return Given.of(rows)

    return bucket.read(seed, reads)


def read_tail(seconds: float = TAIL_SECONDS, seed: int = 1) -> tuple[Given, Given]:
    """What ours and the peer give of one stream while it is written."""
    bucket, is_over, written = Bucket(SYSTEM.clock), threading.Event(), [0]

    def follow(core: type[FullestFirst] | None) -> Callable[[Stream, ObjectSegmentSource], Given]:
        def reads(stream: Stream, source: ObjectSegmentSource) -> Given:
            rows: list[tuple[int, int, int]] = []
            given = 0
            with StreamReader(stream, source, follow=True) as reader:
                if core is not None:
                    head = stream.cuts.place_valid(dict(stream.head()))
                    settings = ReaderSettings(reorder_wait_seconds=0.0)
                    reader._core = core(Frontier(head.segments, head.cut), settings)  # noqa: SLF001 - as the simulation
                while not is_over.is_set() or given < written[0]:
                    batch = reader.next_batch(timeout_seconds=STEP_SECONDS)
                    if batch is not None:
                        given += len(batch)
                        rows.append((batch.value, int(SYSTEM.clock() * 1000), len(batch)))
            return Given.of(rows)

        return reads

    with bucket.writer() as (_, writer), ThreadPoolExecutor(2) as threads:
        sides = [threads.submit(bucket.read, seed, follow(core)) for core in (None, FullestFirst)]
        chance, until = Random(seed), SYSTEM.timer() + seconds
        while SYSTEM.timer() < until:
            writer.write_many([(bytes(EVENT_BYTES), f"key {chance.randrange(KEYS)}") for _ in range(APPENDED)])
            writer.flush()
            written[0] += APPENDED
            SYSTEM.sleep(STEP_SECONDS)
        is_over.set()
        ours, peer = (side.result() for side in sides)
    return ours, peer


def run(rounds: int = 7) -> list[Comparison]:
    """All lines."""
    bucket = write_history()
    lines = [*_history(bucket, "history", rounds), *_history(bucket, "behind", rounds, follow=True)]
    tails = [read_tail(seed=seed) for seed in range(1, min(rounds, 3) + 1)]
    ours, peers = ([side.high_ms for side in sides] for sides in zip(*tails, strict=True))
    delays, peer_delays = ([side.delay_ms for side in sides] for sides in zip(*tails, strict=True))
    peer = "most data in memory first"
    return [
        *lines,
        _line("99th percentile out of order, tail", ours, peers, peer, GOAL),
        _line("median delay, tail", delays, peer_delays, peer, DELAY_GOAL),
    ]


def _history(bucket: Bucket, name: str, rounds: int, *, follow: bool = False) -> list[Comparison]:
    highs: dict[Order, list[float]] = {order: [] for order in Order}

    def read(order: Order) -> int:
        given = read_history(bucket, len(highs[order]), order, follow=follow)
        highs[order].append(given.high_ms)
        return len(given.delays_ms)

    timings = interleave(lambda: read(Order.TIME), lambda: read(Order.SEGMENT), rounds=rounds)
    peer = "Order.SEGMENT"
    return [
        _line(f"99th percentile out of order, {name}", highs[Order.TIME], highs[Order.SEGMENT], peer, GOAL),
        timings.compare(f"order_latency: total time, {name}", peer=peer, unit="s", goal=TIME_GOAL),
    ]


def _line(name: str, ours: list[float], peers: list[float], peer: str, goal: float) -> Comparison:
    """Milliseconds of each round."""
    middle, peer_middle = statistics.median(ours), statistics.median(peers)
    return Comparison(
        f"order_latency: {name}",
        value=middle,
        unit="ms",
        peer=peer,
        peer_value=peer_middle,
        ratio=ratio(middle, peer_middle),
        runs=len(ours),
        goal=goal,
        spread=Spread.of(ours),
        peer_spread=Spread.of(peers),
    )
