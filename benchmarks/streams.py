"""The client of streams with much data: reading whole streams, durable writes, the resume of a writer.

`stream_read_slow`: reading a whole stream batch by batch, merged in the order of time, against reading the same objects
front to back.

A stream of 16 segments, 256 MiB of events of 1 KiB appended up to 64 at a time, in objects of 16 and of 64 MiB, on
`LatencyStore`, which takes no processor time. The peer reads the objects that hold the stream by plain ranged GETs of
the reader's size, one or eight at once. It neither decodes nor merges nor returns events, so no reader can be faster.
Both sides begin with an empty cache; ours also opens the catalog and reads its image and the stream's history. Each
side counts what it has read; ours must have read each event.

`stream_decode`: processor time of one core for each event of 100 bytes, and of 10 kB, in memory, 64 to a batch: reading
a stream batch by batch, against event by event.

The next two write a stream durably on a store with the latencies of S3, and measure the throughput and the latency of
an event: 8 segments on `LatencyStore` (half of all requests within 15 ms, 99 % within 100 ms), default settings.

    write_durable   events of 100 bytes from 32 threads that share a writer and each keep up to 256 futures open; the
                    peer writes and flushes event by event, in the same number of threads. Both run for the same time,
                    and durable events are counted
    ack_latency     from `write` until the future reports that the event is durable: of one event at a time, whose peer
                    is one plain put of an object of the size of an upload; and of 10 to 5,000 events a second at even
                    intervals, median and 99th percentile. Their peer is the minimum time of the protocol, drawn from
                    the same model: a put, the rest of the commit under way, and a commit; of 10 events a second, which
                    rarely meet a commit under way, a put and a commit

`writer_resume`: a producer that was killed after 1,000 flushes of 50 events needs the number of its last durable event,
on such a store. Ours opens a writer by its id and calls `resume`; the peer opens a writer and reads the stream, as a
producer without an id must. Both must find the same flush: ours repeats at most the events of one flush.

    writer_resume: seconds    from the start to the number of the next event
    writer_resume: requests   after the opening of the session

A reader at the tail: the delay until it returns flushed events, and the cost of a restart.

Stores have the latencies of `LatencyModel`; writers have none, so that a flush has an exact time. All settings are the
defaults.

    seen_latency, found   from the return of a flush until the reader returns the event, without a notification. The
                          peer is a simple poller: each second it lists new objects, and gets them
    seen_latency, told    the same if the reader is notified of each commit (`image_changed`); the peer sends three GETs
    reader_restart        ranged GETs of a reader that begins with an empty cache at the tail of 430 flushes of 16
                          segments; the peer opens each object
"""

from __future__ import annotations

import random
import statistics
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Condition, Event, Thread
from time import perf_counter, process_time
from typing import Any, Final
from uuid import UUID

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
from accel.history.store import Stream
from accel.streams.acknowledgements import WriteFuture
from accel.streams.settings import SegmentsSettings
from accel.system import SYSTEM
from accel.testing import LatencyModel, LatencyStore
from benchmarks.harness import AnswersDiffer, Comparison, Spread, Timings, interleave
from loaders.store import CountingStore, MemoryStore, ObjectStore

MEBIBYTE: Final = 1 << 20
SEGMENTS: Final = 16
EVENT_BYTES: Final = 1024
EVENTS: Final = 256 * 1024
KEYS_STEP: Final = 7919
SPAN_BYTES: Final = 4 * MEBIBYTE
AT_ONCE: Final = 8
NODE: Final = 4
SCOPE, NAME = "bench", "events"


@contextmanager
def new_stream(
    store: ObjectStore, segments: int, *, is_killed: bool = False, **options: Any
) -> Iterator[tuple[Stream, ObjectSegments]]:
    """A new stream, and the host of its segments, which at the end is closed or killed.

    Args:
        store: an empty store.
        segments: of the stream.
        is_killed: whether the host ends without closing its session.
        options: of the host.
    """
    ObjectCatalog.init(store, FormatRecord(namespace=SCOPE))
    with ObjectCatalog.open(store) as catalog:
        host = ObjectSegments(catalog, store, NODE, **options)
        streams = StreamStore.open(store, host=host)
        streams.create_scope(SCOPE)
        yield streams.create_stream(SCOPE, NAME, StreamConfiguration(min_segments=1), segments=segments), host
        (host.stop if is_killed else host.close)()


@contextmanager
def reading(
    store: ObjectStore, lookups: Settings | None = None, **options: Any
) -> Iterator[tuple[StreamReader, ReadAccelerator]]:
    """A reader of the stream with an empty cache, and its lookups.

    Args:
        store: the store.
        lookups: their settings.
        options: of the reader.
    """
    with (
        ObjectCatalog.open(store) as catalog,
        ReadAccelerator(catalog.images(), store, settings=lookups) as accelerator,
    ):
        stream = StreamStore.open(store).stream(SCOPE, NAME)
        with StreamReader(stream, ObjectSegmentSource(stream, accelerator, store), **options) as reader:
            yield reader, accelerator


def slow(store: ObjectStore, seed: int) -> LatencyStore:
    """The same store with the latencies of S3."""
    return LatencyStore(store, random.Random(seed), _sleep)


def _sleep(seconds: float) -> None:
    if seconds > 0:
        SYSTEM.sleep(seconds)


GOALS: Final = {1: 0.8, AT_ONCE: 0.7}


def run_read_slow(rounds: int = 7) -> list[Comparison]:
    """Seconds for a whole stream if only requests take time."""
    lines = []
    for object_mebibytes in (16, 64):
        written = written_stream(EVENT_BYTES, EVENTS, object_mebibytes * MEBIBYTE)
        for at_once, goal in GOALS.items():
            ours, peer = (
                partial(_read_slowly, read_batches, written),
                partial(_read_slowly, read_plainly, written, at_once),
            )
            timings = interleave(ours, peer, rounds=min(rounds, 5), same=_met)
            told = f"ranged GETs of {SPAN_BYTES // MEBIBYTE} MiB, {at_once} at once"
            name = f"stream_read_slow, objects of {object_mebibytes} MiB"
            lines.append(timings.compare(name, peer=told, unit="s", goal=goal))
    return lines


def _read_slowly(read: Callable[..., int], store: MemoryStore, *arguments: int) -> int:
    return read(slow(store, 7), *arguments)


def run_decode(rounds: int = 7) -> list[Comparison]:
    """Processor time of an event."""
    lines = []
    for event_bytes, events in ((100, 400_000), (10_000, 16_000)):
        written = written_stream(event_bytes, events, 16 * MEBIBYTE)
        ours, peer = partial(read_batches, written), partial(read_events, written)
        timings = interleave(ours, peer, rounds=rounds, timer=process_time)
        name = f"stream_decode, events of {event_bytes} bytes"
        lines.append(timings.compare(name, peer="event by event", unit="us", calls=events))
    return lines


def read_events(store: ObjectStore) -> int:
    """Read all events, one by one; returns their number."""
    with reading(store) as (reader, _):
        return sum(1 for _ in reader)


def read_batches(store: ObjectStore) -> int:
    """Read all events, batch by batch; returns their number."""
    with reading(store) as (reader, _):
        return sum(map(len, iter(reader.next_batch, None)))


def read_plainly(store: ObjectStore, at_once: int) -> int:
    """Read the objects front to back; returns the number of bytes."""
    objects = [info for info in store.list("") if not info.key.startswith("accel/")]
    spans = [(info.key, at, at + SPAN_BYTES) for info in objects for at in range(0, info.size_bytes, SPAN_BYTES)]
    with ThreadPoolExecutor(at_once) as pool:
        return sum(pool.map(lambda span: len(store.get_range(*span).body), spans))


def written_stream(event_bytes: int, events: int, object_bytes: int) -> MemoryStore:
    """A store with a stream, in objects of `object_bytes`."""
    store, random_bytes = MemoryStore(), random.Random(1).randbytes
    payloads = [random_bytes(event_bytes) for _ in range(64)]
    more_bytes = 4 * object_bytes
    settings = SegmentsSettings(linger_seconds=5.0, batch_bytes=more_bytes, waiting_bytes_max=more_bytes)
    with new_stream(store, SEGMENTS, settings=settings) as (stream, host), StreamWriter(stream, host) as writer:
        waiting_bytes = 0
        for first in range(0, events, 1000):
            numbers = range(first, min(events, first + 1000))
            writer.write_many((payloads[number % 64], b"%d" % (number * KEYS_STEP)) for number in numbers)
            waiting_bytes += len(numbers) * event_bytes
            if waiting_bytes >= object_bytes:
                writer.flush()
                waiting_bytes = 0
    return store


def _met(ours: object, peers: object) -> bool:
    return ours == EVENTS and isinstance(peers, int) and peers >= EVENTS * EVENT_BYTES


WRITTEN_SEGMENTS: Final = 8
THREADS: Final = 32
OPEN_FUTURES: Final = 256
PAYLOAD: Final = bytes(100)
SECONDS: Final = 2.0
DURABLE_GOAL: Final = 5_000
ALONE: Final = 100
RATES: Final = (10, 100, 1_000, 5_000)
BUSY_RATE: Final = 50
BOUND_EVENTS: Final = 20_000
STEADY_EVENTS_MIN: Final = 100
ACK_GOAL: Final = 2.5
PUT_BYTES: Final = 4096


def run_durable(rounds: int = 7) -> list[Comparison]:
    """Durable events a second."""
    ours, peers = [], []
    with stream_writer() as (writer, _):
        for number in range(min(rounds, 3) + 1):
            measured = _events_a_second(writer, _keep_open), _events_a_second(writer, _flush_each)
            if number:  # the first round warms up
                ours.append(measured[0])
                peers.append(measured[1])
    value, peer = statistics.median(ours), statistics.median(peers)
    return [
        Comparison(
            name=f"write_durable: {THREADS} threads, {OPEN_FUTURES} futures each",
            value=value,
            unit="events a second",
            peer="write and flush each",
            peer_value=peer,
            ratio=value / peer,
            runs=len(ours),
            goal=DURABLE_GOAL / peer,
            spread=Spread.of(ours),
            peer_spread=Spread.of(peers),
        )
    ]


def run_ack(rounds: int = 7) -> list[Comparison]:  # noqa: ARG001 - medians over many events
    """Milliseconds until an event is durable."""
    with stream_writer() as (writer, store):
        alone, puts = [], []
        for number in range(ALONE):
            puts.append(_milliseconds(lambda number=number: store.put(f"bench/{number}", bytes(PUT_BYTES))))  # type: ignore[misc]
            alone.append(_milliseconds(lambda number=number: writer.write(PAYLOAD, b"%d" % number).result()))  # type: ignore[misc]
        steady = {rate: _steady(writer, rate) for rate in RATES}
    put = statistics.median(puts)
    lines = [_ack("one event at a time, median", alone, puts, 50, f"a put of 4 KiB, of which it may take {ACK_GOAL}")]
    lines[0] = replace(lines[0], goal=1 / ACK_GOAL)
    for rate, latencies in steady.items():
        least = _least(rate)
        for percent, told in ((50, "median"), (99, "99th percentile")):
            peer = f"put and commit at least; {np.percentile(latencies, percent) / put:.1f} medians of a put"
            lines.append(_ack(f"{rate:,} events a second, {told}", latencies, least, percent, peer))
    return lines


def _ack(name: str, latencies: list[float], peers: list[float], percent: int, peer: str) -> Comparison:
    value, peer_value = (float(np.percentile(each, percent)) for each in (latencies, peers))
    return Comparison(
        name=f"ack_latency: {name}",
        value=value,
        unit="ms",
        peer=peer,
        peer_value=peer_value,
        ratio=peer_value / value,
        runs=len(latencies),
        spread=Spread.of(latencies),
        peer_spread=Spread.of(peers),
    )


def _least(rate: int) -> list[float]:
    """The minimum time of the protocol, in milliseconds, for many events: see the module."""
    chance, model = random.Random(2), LatencyModel()
    draws = np.array([[model.seconds(chance, 0) * 1e3 for _ in range(BOUND_EVENTS)] for _ in range(2)])
    if rate < BUSY_RATE:
        return list(draws.sum(axis=0))
    begins = np.concatenate(([0.0], np.cumsum(draws[0])))
    written = np.linspace(0, begins[-1] / 2, BOUND_EVENTS)
    commits = np.searchsorted(begins, written + draws[1])
    known = commits < BOUND_EVENTS
    return list(begins[commits[known] + 1] - written[known])


@contextmanager
def stream_writer() -> Iterator[tuple[StreamWriter, ObjectStore]]:
    """A writer with default settings, and its store."""
    store = slow(MemoryStore(), 1)
    with new_stream(store, WRITTEN_SEGMENTS) as (stream, host), StreamWriter(stream, host) as writer:
        writer.write(PAYLOAD, b"first").result()
        yield writer, store


def _events_a_second(writer: StreamWriter, work: Callable[[StreamWriter, int, float], int]) -> float:
    started = perf_counter()
    with ThreadPoolExecutor(THREADS) as threads:
        done = sum(threads.map(lambda thread: work(writer, thread, started + SECONDS), range(THREADS)))
    return done / (perf_counter() - started)


def _keep_open(writer: StreamWriter, thread: int, until: float) -> int:
    """Write, with up to `OPEN_FUTURES` open; returns the number of durable events at the end."""
    futures: deque[WriteFuture] = deque()
    done = 0
    while perf_counter() < until:
        while len(futures) < OPEN_FUTURES:
            futures.append(writer.write(PAYLOAD, b"%d" % (thread * OPEN_FUTURES + len(futures))))
        done += _resolved(futures)
    while futures:
        done += _resolved(futures)
    return done


def _resolved(futures: deque[WriteFuture]) -> int:
    """Wait for the first future, and remove it and all finished ones after it."""
    count = 0
    while futures and (count == 0 or futures[0].done()):
        if futures.popleft().result() is None:
            raise AnswersDiffer("expected a place of each event, found none")
        count += 1
    return count


def _flush_each(writer: StreamWriter, thread: int, until: float) -> int:
    done = 0
    while perf_counter() < until:
        writer.write(PAYLOAD, b"%d" % thread)
        writer.flush()
        done += 1
    return done


def _steady(writer: StreamWriter, rate: int) -> list[float]:
    """Write events at even intervals; returns the milliseconds of each until it was durable."""
    latencies: list[float] = []
    left = threading.Semaphore(0)
    count = max(int(2 * SECONDS * rate), STEADY_EVENTS_MIN)
    started = perf_counter()
    for number in range(count):
        due = started + number / rate
        _sleep(max(0.0, due - perf_counter()))
        began = perf_counter()

        def told(_: WriteFuture, began: float = began) -> None:
            latencies.append((perf_counter() - began) * 1e3)
            left.release()

        writer.write(PAYLOAD, b"%d" % number).add_done_callback(told)
    for _ in range(count):
        left.acquire()
    return latencies


def _milliseconds(work: Callable[[], object]) -> float:
    began = perf_counter()
    work()
    return (perf_counter() - began) * 1e3


FLUSHES, FLUSHED = 1_000, 50
RESUME_REQUESTS_GOAL: Final = 30
PRODUCER: Final = UUID(int=0xACCE1)
ROUNDS_MAX: Final = 3


class Producer:
    """A stream whose only producer was killed; each of its events contains its number."""

    def __init__(self) -> None:
        self._memory = MemoryStore()
        self._chance = random.Random(1)
        self.requests: dict[str, int] = {}
        with new_stream(self._memory, WRITTEN_SEGMENTS, is_killed=True) as (stream, host):
            writer = StreamWriter(stream, host, writer_id=PRODUCER)
            for first in range(0, FLUSHES * FLUSHED, FLUSHED):
                numbers = range(first, first + FLUSHED)
                writer.write_many(
                    (number.to_bytes(8, "big") + PAYLOAD[8:], f"key-{number - first}") for number in numbers
                )
                writer.flush()

    def resume(self) -> int:
        """Find the next event by the writer's id."""
        with self._opened() as (stream, host, store):
            number = StreamWriter(stream, host, writer_id=PRODUCER).resume()
            self.requests["resume"] = store.snapshot().total.requests
        return _flush_of(number)

    def read(self) -> int:
        """Find the next event by reading the stream."""
        with self._opened() as (stream, host, store), ObjectCatalog.open(store) as catalog:
            StreamWriter(stream, host)
            catalog.refresh()
            with (
                ReadAccelerator(catalog.images(), store) as accelerator,
                StreamReader(stream, ObjectSegmentSource(stream, accelerator, store)) as reader,
            ):
                last = max(int.from_bytes(batch[-1].payload[:8], "big") for batch in iter(reader.next_batch, None))
            self.requests["read"] = store.snapshot().total.requests
        return _flush_of(last + 1)

    @contextmanager
    def _opened(self) -> Iterator[tuple[Stream, ObjectSegments, CountingStore]]:
        store = CountingStore(LatencyStore(self._memory, self._chance, _sleep))
        with ObjectCatalog.open(store) as catalog:
            host = ObjectSegments(catalog, store, node_id=NODE)
            stream = StreamStore.open(store, host=host).stream(SCOPE, NAME)
            store.reset()
            yield stream, host, store
            host.stop()


def _flush_of(number: int) -> int:
    return -(-number // FLUSHED)


def run_resume(rounds: int = 3) -> list[Comparison]:
    """Seconds and requests until a producer has the number of its next event."""
    producer = Producer()
    timings = interleave(producer.resume, producer.read, rounds=min(rounds, ROUNDS_MAX))
    ours, peer = producer.requests["resume"], producer.requests["read"]
    told = "the stream is read"
    return [
        timings.compare("writer_resume: seconds", peer=told, unit="s"),
        Comparison.exact("writer_resume: requests", ours, "requests", told, peer, peer / RESUME_REQUESTS_GOAL),
    ]


SEEN_SEGMENTS: Final = 4
RESTART_SEGMENTS: Final = 16
RESTART_FLUSHES: Final = 430
RESTART_GOAL_GETS: Final = 20
POLL_SECONDS: Final = 1.0
SEEN_EACH_ROUND: Final = 5
MARK: Final = b"event "
MARK_DIGITS: Final = 6


def _flush(writer: StreamWriter, payload: bytes, keys: int = 1) -> None:
    """Write an event for each key, and flush."""
    for key in range(keys):
        writer.write(payload, b"%d" % key)
    writer.flush()


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


@contextmanager
def beside(work: Callable[[Event], None]) -> Iterator[None]:
    """A thread that works until the event is set, at the end of the context."""
    is_over = Event()
    thread = Thread(target=work, args=(is_over,))
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _follow(reader: StreamReader, seen: Seen, is_over: Event) -> None:
    while not is_over.is_set():
        batch = reader.next_batch(timeout_seconds=0.2)
        for event in batch or ():
            seen.note(event.payload)


def _poll(store: ObjectStore, seen: Seen, is_over: Event) -> None:
    """List the objects each second, and get each new object; the catalog's keys are left out."""
    known: set[str] = set()
    due = SYSTEM.timer()
    while not is_over.wait(max(0.0, due - SYSTEM.timer())):
        due += POLL_SECONDS
        for info in store.list(""):
            if info.key not in known and not info.key.startswith("accel/"):
                known.add(info.key)
                _, *marked = bytes(store.get(info.key, size_bytes_max=1 << 20).body).split(MARK)
                for each in marked:
                    seen.note(MARK + each[:MARK_DIGITS])


def run_seen(rounds: int = 7) -> list[Comparison]:
    """The delay until events are returned, without notifications and with them."""
    samples = SEEN_EACH_ROUND * rounds
    store, seen, polled = MemoryStore(), Seen(), Seen()
    with (
        new_stream(store, SEEN_SEGMENTS) as (stream, host),
        StreamWriter(stream, host) as writer,
        reading(slow(store, 1), follow=True) as (reader, accelerator),
        beside(partial(_follow, reader, seen)),
    ):
        with beside(partial(_poll, slow(store, 2), polled)):
            found = _seen_seconds(writer, range(samples), [seen, polled], lambda: None)
        told = _seen_seconds(writer, range(samples, 2 * samples), [seen], accelerator.image_changed)
    gets = _three_gets(store, samples)
    sides = Timings(found[0], found[1]), Timings(told[0], gets)
    return [
        sides[0].compare("seen_latency, found", peer="a LIST each second, a GET an object", unit="ms", goal=1.0),
        sides[1].compare("seen_latency, told", peer="three GETs, one after the other", unit="ms", goal=1.0),
    ]


def _seen_seconds(
    writer: StreamWriter, numbers: range, sides: list[Seen], tell: Callable[[], object]
) -> list[list[float]]:
    """For each side, the delay from each event's flush until the reader returned it."""
    waits = random.Random(3)
    seconds: list[list[float]] = [[] for _ in sides]
    for number in numbers:
        SYSTEM.sleep(waits.uniform(0.6, 1.6))
        payload = MARK + b"%0*d" % (MARK_DIGITS, number)
        _flush(writer, payload)
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


def run_reader_restart(rounds: int = 7) -> list[Comparison]:  # noqa: ARG001 - requests do not vary
    """Ranged GETs of a cold reader at the tail."""
    store, keys = MemoryStore(), 8 * RESTART_SEGMENTS
    with new_stream(store, RESTART_SEGMENTS) as (stream, host), StreamWriter(stream, host) as writer:
        for number in range(RESTART_FLUSHES - 1):
            _flush(writer, b"%d" % number, keys)
        position = _read_again(store, None, Settings())[1]
        _flush(writer, b"the last", keys)
    (ours, at), (peer, same) = (
        _read_again(store, position, settings) for settings in (Settings(), Settings(policy="load-all"))
    )
    if at != same:
        raise AnswersDiffer(f"expected ours to read to {same}, as the peer, found {at}")
    name = f"reader_restart: at the tail of {RESTART_FLUSHES} flushes, {RESTART_SEGMENTS} segments"
    goal = peer / RESTART_GOAL_GETS
    return [Comparison.exact(name, ours, "ranged GETs", "opening each object", peer, goal)]


def _read_again(
    memory: MemoryStore, position: Mapping[int, int] | None, settings: Settings
) -> tuple[int, dict[int, int]]:
    """Read from a position to the end with an empty cache; returns the number of ranged GETs, and the last position."""
    store = CountingStore(memory)
    with reading(store, settings, from_cut=position) as (reader, _):
        for _ in reader:
            pass
        return store.snapshot().of("get_range").requests, dict(reader.position())
