"""Readers on a store with the latencies of S3: delays, requests, and the order of events.

A reader at the tail: the delay until it returns flushed events, and the cost of a restart.

Stores have the latencies of `LatencyModel`; writers have none, so that a flush has an exact time. All settings are the
defaults.

    seen_latency, found   from the return of a flush until the reader returns the event, without a notification. The
                          peer is a simple poller: each second it lists new objects, and gets them
    seen_latency, told    the same if the reader is notified of each commit (`image_changed`); the peer sends three GETs
    reader_restart        ranged GETs of a reader that begins with an empty cache at the tail of 430 flushes of 16
                          segments; the peer opens each object

`order_latency`: how far out of the order of time events are returned, and the cost of order.

Readers, catalog and lookups are unchanged, with default settings; each request has the latency of `LatencyModel`.
Threads wait in real time.

    | reader  | reads                                                        | the peer                            |
    |---------|--------------------------------------------------------------|-------------------------------------|
    | history | 200,000 events of 100 bytes, which arrived within 100 s in 8 | `Order.SEGMENT`, which does not     |
    |         | segments, with three scales                                  | wait                                |
    | behind  | the same, with a reader that follows                         | the same                            |
    | tail    | 8 segments while they are written, up to 2,000 events a      | the segment with the most data in   |
    |         | second, flushed each 0.1 s                                   | memory first, without waiting       |

`order_slow`: a store 1, 10 and 30 times as slow as the model, 8 and 64 segments. Buffers are small, in the proportion
of the defaults, and the stream has four times as many bytes, so that segments are read in many requests. Three lines
each: the furthest that an event is out of order, the time to read all, and the most bytes in memory compared with the
limit, with one batch a request.

Both sides of a line run alternately; at the tail they run at the same time on one stream. An event is out of order by
the highest value returned before it minus its own value, or by 0 if that is negative. If ours is 0, the ratio is
computed with 1 ms.
"""

from __future__ import annotations

import random
import statistics
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from threading import Condition, Event, Thread
from typing import Final, NamedTuple, TypeVar

import numpy as np

from accel import (
    FormatRecord,
    ObjectCatalog,
    ObjectSegments,
    ObjectSegmentSource,
    ReadAccelerator,
    Settings,
    StreamConfiguration,
    StreamReader,
    StreamStore,
    StreamWriter,
)
from accel.history.rules.segments import split_range
from accel.history.store import Stream
from accel.streams.reader import Order
from accel.streams.rules.frontier import Frontier
from accel.streams.rules.settings import ReaderSettings
from accel.system import SYSTEM
from accel.testing import LatencyStore
from benchmarks.harness import AnswersDiffer, Comparison, Spread, Timings, interleave
from benchmarks.time_order import DELAY_GOAL, GOAL, FullestFirst, ratio
from loaders.store import CountingStore, MemoryStore, ObjectStore

NODE: Final = 4
SCOPE, NAME = "bench", "tail"
SEGMENTS: Final = 4
RESTART_SEGMENTS: Final = 16
RESTART_FLUSHES: Final = 430
RESTART_GOAL_GETS: Final = 20
POLL_SECONDS: Final = 1.0
SEEN_EACH_ROUND: Final = 5
MARK: Final = b"event "
MARK_DIGITS: Final = 6


class Writing:
    """A stream in memory, and its writer. One thread."""

    def __init__(self, segments: int) -> None:
        self.store = MemoryStore()
        ObjectCatalog.init(self.store, FormatRecord(namespace="bench"))
        self.catalog = ObjectCatalog.open(self.store)
        self.host = ObjectSegments(self.catalog, self.store, NODE)
        streams = StreamStore.open(self.store, host=self.host)
        streams.create_scope(SCOPE)
        created_ms = int(SYSTEM.clock() * 1000)
        self.stream = streams.create_stream(
            SCOPE, NAME, StreamConfiguration(min_segments=1), created_ms, segments=segments
        )
        self.writer = StreamWriter(self.stream, self.host)

    def flush(self, payload: bytes, keys: int = 1) -> None:
        """Write an event for each key, and flush.

        Args:
            payload: of each event.
            keys: the number of keys.
        """
        for key in range(keys):
            self.writer.write(payload, b"%d" % key)
        self.writer.flush()

    def close(self) -> None:
        """End the session."""
        self.writer.close()
        self.host.close()
        self.catalog.close()


@dataclass
class Seen:
    """The times at which payloads were returned. Any thread."""

    at: dict[bytes, float] = field(default_factory=dict)
    changed: Condition = field(default_factory=Condition)

    def note(self, payload: bytes) -> None:
        """Record that a payload is returned now."""
        with self.changed:
            self.at[payload] = SYSTEM.timer()
            self.changed.notify_all()

    def wait(self, payload: bytes) -> float:
        """The time at which a payload was returned; waits for it."""
        with self.changed:
            if not self.changed.wait_for(lambda: payload in self.at, 30):
                raise AnswersDiffer(f"expected {payload!r} within 30 s, found no event")
            return self.at[payload]


def slow(store: ObjectStore, seed: int) -> LatencyStore:
    """The same store with the latencies of S3."""
    return LatencyStore(store, random.Random(seed), _sleep)


def _sleep(seconds: float) -> None:
    SYSTEM.sleep(seconds)


@contextmanager
def following(store: ObjectStore, seen: Seen) -> Iterator[ReadAccelerator]:
    """A reader in a thread that follows the stream, with its defaults."""
    with ObjectCatalog.open(store) as catalog, ReadAccelerator(catalog.images(), store) as accelerator:
        stream = StreamStore.open(store).stream(SCOPE, NAME)
        source = ObjectSegmentSource(stream, accelerator, store)
        reader = StreamReader(stream, source, follow=True)
        is_over = Event()
        thread = Thread(target=_follow, args=(reader, seen, is_over))
        thread.start()
        try:
            yield accelerator
        finally:
            is_over.set()
            thread.join()
            reader.close()


def _follow(reader: StreamReader, seen: Seen, is_over: Event) -> None:
    while not is_over.is_set():
        batch = reader.next_batch(timeout_seconds=0.2)
        for event in batch or ():
            seen.note(event.payload)


@contextmanager
def polling(store: ObjectStore, seen: Seen) -> Iterator[None]:
    """A thread that lists the objects each second, and gets each new object; the catalog's keys are left out."""
    is_over = Event()
    thread = Thread(target=_poll, args=(store, seen, is_over))
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _poll(store: ObjectStore, seen: Seen, is_over: Event) -> None:
    known: set[str] = set()
    due = SYSTEM.timer()
    while not is_over.wait(max(0.0, due - SYSTEM.timer())):
        due += POLL_SECONDS
        for info in store.list(""):
            if info.key not in known and not info.key.startswith("accel/"):
                known.add(info.key)
                body = bytes(store.get(info.key, size_bytes_max=1 << 20).body)
                for mark in range(body.count(MARK)):
                    start = body.split(MARK)[mark + 1]
                    seen.note(MARK + start[:MARK_DIGITS])


def run_seen(rounds: int = 7) -> list[Comparison]:
    """The delay until events are returned, without notifications and with them."""
    samples = SEEN_EACH_ROUND * rounds
    writing, seen, polled = Writing(SEGMENTS), Seen(), Seen()
    try:
        with following(slow(writing.store, 1), seen) as accelerator:
            with polling(slow(writing.store, 2), polled):
                found = _seen_seconds(writing, range(samples), [seen, polled], lambda: None)
            told = _seen_seconds(writing, range(samples, 2 * samples), [seen], accelerator.image_changed)
    finally:
        writing.close()
    gets = _three_gets(writing.store, samples)
    sides = Timings(found[0], found[1]), Timings(told[0], gets)
    return [
        sides[0].compare("seen_latency, found", peer="a LIST each second, a GET an object", unit="ms", goal=1.0),
        sides[1].compare("seen_latency, told", peer="three GETs, one after the other", unit="ms", goal=1.0),
    ]


def _seen_seconds(writing: Writing, numbers: range, sides: list[Seen], tell: Callable[[], object]) -> list[list[float]]:
    """For each side, the delay from each event's flush until the reader returned it."""
    waits = random.Random(3)
    seconds: list[list[float]] = [[] for _ in sides]
    for number in numbers:
        SYSTEM.sleep(waits.uniform(0.6, 1.6))
        payload = MARK + b"%0*d" % (MARK_DIGITS, number)
        writing.flush(payload)
        flushed = SYSTEM.timer()
        tell()
        for each, side in zip(seconds, sides, strict=True):
            each.append(side.wait(payload) - flushed)
    return seconds


def _three_gets(store: ObjectStore, samples: int) -> list[float]:
    slowed, seconds = slow(store, 5), []
    key = next(iter(store.list(""))).key
    for _ in range(samples):
        started = SYSTEM.timer()
        for _ in range(3):
            slowed.get(key, size_bytes_max=1 << 20)
        seconds.append(SYSTEM.timer() - started)
    return seconds


def run_restart(rounds: int = 7) -> list[Comparison]:  # noqa: ARG001 - requests do not vary
    """Ranged GETs of a cold reader at the tail."""
    writing = Writing(RESTART_SEGMENTS)
    try:
        for number in range(RESTART_FLUSHES - 1):
            writing.flush(b"%d" % number, keys=8 * RESTART_SEGMENTS)
        position = _restart(writing, None, Settings())[1]
        writing.flush(b"the last", keys=8 * RESTART_SEGMENTS)
    finally:
        writing.close()
    (ours, at), (peer, same) = (
        _restart(writing, position, settings) for settings in (Settings(), Settings(policy="load-all"))
    )
    if at != same:
        raise AnswersDiffer(f"expected ours to read to {same}, as the peer, found {at}")
    name = f"reader_restart: at the tail of {RESTART_FLUSHES} flushes, {RESTART_SEGMENTS} segments"
    goal = peer / RESTART_GOAL_GETS
    return [Comparison.exact(name, ours, "ranged GETs", "opening each object", peer, goal)]


def _restart(writing: Writing, position: Mapping[int, int] | None, settings: Settings) -> tuple[int, dict[int, int]]:
    """Read from a position to the end with an empty cache; returns the number of ranged GETs, and the last position."""
    store = CountingStore(writing.store)
    with (
        ObjectCatalog.open(store) as catalog,
        ReadAccelerator(catalog.images(), store, settings=settings) as accelerator,
    ):
        stream = StreamStore.open(store).stream(SCOPE, NAME)
        with StreamReader(stream, ObjectSegmentSource(stream, accelerator, store), from_cut=position) as reader:
            for _ in reader:
                pass
            return store.snapshot().of("get_range").requests, dict(reader.position())


ORDER_SEGMENTS, KEYS = 8, 1_000
EVENTS, EVENT_BYTES, APPENDED, FLUSHED = 200_000, 100, 200, 2_000
STEP_SECONDS: Final = 0.1
"""The time between two appends of `APPENDED` events."""

TAIL_SECONDS: Final = 10.0
TIME_GOAL: Final = 1 / 1.2

SLOW_SEGMENTS, SLOWNESSES, SLOW_EVENTS, SLOW_ROUNDS_MAX = (8, 64), (1, 10, 30), 40_000, 3
SLOW_BUFFERS: Final = ReaderSettings(fill_bytes=1 << 14, buffer_bytes_max=1 << 20, read_ahead_bytes=1 << 19)

Result = TypeVar("Result")


class Given(NamedTuple):
    """The result of a reader.

    Args:
        out_of_order_ms: for each event, how far it was out of order.
        delays_ms: for each event, the time from its arrival until it was returned.
    """

    out_of_order_ms: np.ndarray[tuple[int], np.dtype[np.int64]]
    delays_ms: np.ndarray[tuple[int], np.dtype[np.int64]]

    @classmethod
    def of(cls, rows: list[tuple[int, int, int]]) -> Given:
        """Compute the result from the value, time and number of events of each batch."""
        values, times_ms, counts = np.array(rows, dtype=np.int64).reshape(-1, 3).T
        behind = np.maximum.accumulate(values) - values
        return cls(np.repeat(behind, counts), np.repeat(times_ms - values, counts))

    @property
    def high_ms(self) -> float:
        """How far 99 of 100 events are out of order at most."""
        return float(np.percentile(self.out_of_order_ms, 99))

    @property
    def delay_ms(self) -> float:
        """The median delay."""
        return float(np.median(self.delays_ms))


class Bucket:
    """A bucket with one stream. Threads: any.

    Args:
        clock: of the host of its segments.
        segments: of the stream, at first.
    """

    def __init__(self, clock: Callable[[], float], segments: int = ORDER_SEGMENTS) -> None:
        self.store = MemoryStore(clock=SYSTEM.clock)
        ObjectCatalog.init(self.store, FormatRecord(namespace="order", stream_buckets=ORDER_SEGMENTS))
        self._system, self._segments = replace(SYSTEM, clock=clock), segments

    @contextmanager
    def writer(self) -> Iterator[tuple[Stream, StreamWriter]]:
        """Create the stream, and open a writer of it."""
        with (
            ObjectCatalog.open(self.store) as catalog,
            ObjectSegments(catalog, self.store, NODE, system=self._system) as host,
        ):
            streams = StreamStore.open(self.store, host=host)
            streams.create_scope("bench")
            stream = streams.create_stream(
                "bench", "order", StreamConfiguration(min_segments=1), segments=self._segments
            )
            with StreamWriter(stream, host) as writer:
                yield stream, writer

    def read(self, seed: int, reads: Callable[[Stream, ObjectSegmentSource], Result], slowness: float = 1.0) -> Result:
        """The result of a reader with an empty cache, on a store with so many times the latencies of the model."""
        store: ObjectStore = LatencyStore(self.store, Random(seed), lambda seconds: _sleep(slowness * seconds))
        with ObjectCatalog.open(store) as catalog, ReadAccelerator(catalog.images(), store) as accelerator:
            stream = StreamStore.open(store).stream("bench", "order")
            return reads(stream, ObjectSegmentSource(stream, accelerator, store))


def write_history(events: int = EVENTS, segments: int = ORDER_SEGMENTS) -> Bucket:
    """A stream whose clock advances by `STEP_SECONDS` an append, with a scale after each quarter."""
    now = [1_000_000.0]
    bucket, chance = Bucket(lambda: now[0], segments), Random(1)
    with bucket.writer() as (stream, writer):
        for start in range(0, events, APPENDED):
            now[0] += STEP_SECONDS
            writer.write_many([(bytes(EVENT_BYTES), f"key {chance.randrange(KEYS)}") for _ in range(APPENDED)])
            if (start + APPENDED) % FLUSHED == 0:
                writer.flush()
            if start and start % (events // 4) == 0:
                writer.flush()  # otherwise a thread may still have the events when the segment is sealed
                oldest = stream.active_segments()[0]
                stream.scale([oldest.id], list(split_range(oldest.key_start, oldest.key_end, 2)))
    return bucket


def read_history(bucket: Bucket, seed: int, order: Order, *, events: int = EVENTS, follow: bool = False) -> Given:
    """Read the whole stream in an order, by a reader that follows or one that does not."""

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
    """The results of ours and of the peer for one stream while it is written."""
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


def run_order(rounds: int = 7) -> list[Comparison]:
    """Run all comparisons of order."""
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


def read_slowly(bucket: Bucket, slowness: float, order: Order, events: int = SLOW_EVENTS) -> SlowRead:
    """Read the whole stream with small buffers.

    Raises:
        AnswersDiffer: not all events were returned.
    """

    def reads(stream: Stream, source: ObjectSegmentSource) -> SlowRead:
        began, latest, behind, most, left = SYSTEM.timer(), 0, 0, 0, events
        with StreamReader(stream, source, order=order, settings=SLOW_BUFFERS) as reader:
            for batch in iter(reader.next_batch, None):
                behind, latest = max(behind, latest - batch.value), max(latest, batch.value)
                most, left = max(most, reader.buffered_bytes), left - len(batch)
        if left:
            raise AnswersDiffer(f"expected {events} events, found {events - left}")
        return SlowRead(behind, SYSTEM.timer() - began, most)

    return bucket.read(1, reads, slowness)


def run_order_slow(rounds: int = 7) -> list[Comparison]:
    """Run the comparisons of order on slow stores, at most `SLOW_ROUNDS_MAX` rounds."""
    lines = []
    for segments in SLOW_SEGMENTS:
        bucket = write_history(SLOW_EVENTS, segments)
        for slowness in SLOWNESSES:
            lines += _slow(bucket, segments, slowness, min(rounds, SLOW_ROUNDS_MAX))
    return lines


def _slow(bucket: Bucket, segments: int, slowness: int, rounds: int) -> list[Comparison]:
    reads: dict[Order, list[SlowRead]] = {order: [] for order in Order}

    def read(order: Order) -> int:
        reads[order].append(read_slowly(bucket, slowness, order))
        return SLOW_EVENTS

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
