"""Readers on a store with the latencies of S3: delays, requests, and the order of events.

A reader at the tail: the delay until it returns flushed events, and the cost of a restart.

Stores have the latencies of `LatencyModel`; writers have none, so that a flush has an exact time. All settings are the
defaults.

    seen_latency, found   from the return of a flush until the reader returns the event, without a notification. The
                          peer is a simple poller: each second it lists new objects, and gets them
    seen_latency, told    the same if the reader is notified of each commit (`image_changed`); the peer sends three GETs
    reader_restart        ranged GETs of a reader that begins with an empty cache at the tail of 430 flushes of 16
                          segments; the peer opens each object

`order_slow`: what order in time costs a reader of history. The peer is the same reader with `Order.SEGMENT`, which does
not wait; both run alternately, on a store 1, 10 and 30 times as slow as the model. 40,000 events of 100 bytes arrived
within 20 s in 8 and 64 segments, with three scales. Buffers are small, in the proportion of the defaults, and the
stream has four times as many bytes, so that segments are read in many requests. Three lines each: the furthest that an
event is out of order (the highest value returned before it minus its own value), the time to read all, and the most
bytes in memory compared with the limit, with one batch a request.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from threading import Condition, Event, Thread
from typing import Final, NamedTuple

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
from accel.streams.reader import Order
from accel.streams.rules.settings import ReaderSettings
from accel.system import SYSTEM
from accel.testing import LatencyStore
from benchmarks.harness import AnswersDiffer, Comparison, Timings, interleave
from benchmarks.time_order import ratio
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


EVENTS, EVENT_BYTES, APPENDED, FLUSHED, KEYS = 40_000, 100, 200, 2_000, 1_000
STEP_SECONDS: Final = 0.1
"""The time between two appends of `APPENDED` events."""

TIME_GOAL: Final = 1 / 1.2

SLOW_SEGMENTS, SLOWNESSES, SLOW_ROUNDS_MAX = (8, 64), (1, 10, 30), 3
SLOW_BUFFERS: Final = ReaderSettings(fill_bytes=1 << 14, buffer_bytes_max=1 << 20, read_ahead_bytes=1 << 19)


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
    ObjectCatalog.init(store, FormatRecord(namespace="order", stream_buckets=SLOW_SEGMENTS[0]))
    system = replace(SYSTEM, clock=lambda: now[0])
    with ObjectCatalog.open(store) as catalog, ObjectSegments(catalog, store, NODE, system=system) as host:
        streams = StreamStore.open(store, host=host)
        streams.create_scope(SCOPE)
        stream = streams.create_stream(SCOPE, NAME, StreamConfiguration(min_segments=1), segments=segments)
        with StreamWriter(stream, host) as writer:
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


def read_slowly(memory: MemoryStore, slowness: float, order: Order, events: int = EVENTS) -> SlowRead:
    """Read the whole stream with small buffers, on a store with so many times the latencies of the model.

    Raises:
        AnswersDiffer: not all events were returned.
    """
    store = LatencyStore(memory, Random(1), lambda seconds: _sleep(slowness * seconds))
    with ObjectCatalog.open(store) as catalog, ReadAccelerator(catalog.images(), store) as accelerator:
        stream = StreamStore.open(store).stream(SCOPE, NAME)
        source = ObjectSegmentSource(stream, accelerator, store)
        began, latest, behind, most, left = SYSTEM.timer(), 0, 0, 0, events
        with StreamReader(stream, source, order=order, settings=SLOW_BUFFERS) as reader:
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
