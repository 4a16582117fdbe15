"""Writing a stream so that it is durable, on a store as slow as S3: how much a second, and how long one event takes.

A stream of 8 segments on `LatencyStore` (half of all requests within 15 ms, 99 % within 100 ms), default settings.

    write_durable   events of 100 bytes from 32 threads that share a writer and each keep up to 256 futures open; the
                    peer writes and flushes one event after the other, in as many threads. Both take the same time;
                    a durable event of each counts
    ack_latency     from `write` until the future says that the event is durable: of one event at a time, and of 1,000
                    events a second. The peer is the median of one plain put of an object of the size of an upload
"""

from __future__ import annotations

import random
import statistics
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import perf_counter
from typing import Final

from accel import FormatRecord, ObjectCatalog, ObjectSegments, StreamConfiguration, StreamStore, StreamWriter
from accel.streams.acknowledgements import WriteFuture
from accel.system import SYSTEM
from accel.testing import LatencyStore
from benchmarks.harness import AnswersDiffer, Comparison, Spread
from loaders.store import MemoryStore, ObjectStore

SEGMENTS: Final = 8
THREADS: Final = 32
OPEN_FUTURES: Final = 256
PAYLOAD: Final = bytes(100)
SECONDS: Final = 2.0
DURABLE_GOAL: Final = 5_000
ALONE: Final = 60
EVENTS_A_SECOND: Final = 1_000
ACK_GOAL: Final = 2.5
PUT_BYTES: Final = 4096


def run_durable(rounds: int = 7) -> list[Comparison]:
    """Durable events a second."""
    ours, peers = [], []
    with stream_writer() as (writer, _):
        for number in range(min(rounds, 3) + 1):
            measured = _events_a_second(writer, _keep_open), _events_a_second(writer, _flush_each)
            if number:  # the first one warms up
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
        steady = _steady(writer)
    put = statistics.median(puts)
    told = "a put of 4 KiB, of which an event alone may take 2.5"
    return [
        Comparison(
            name=f"ack_latency: {name}",
            value=statistics.median(latencies),
            unit="ms",
            peer=told,
            peer_value=put,
            ratio=put / statistics.median(latencies),
            runs=len(latencies),
            goal=1 / ACK_GOAL if latencies is alone else None,
            spread=Spread.of(latencies),
            peer_spread=Spread.of(puts),
        )
        for name, latencies in (("one event at a time", alone), (f"{EVENTS_A_SECOND:,} events a second", steady))
    ]


@contextmanager
def stream_writer() -> Iterator[tuple[StreamWriter, ObjectStore]]:
    """A writer with default settings, and its store."""
    memory = MemoryStore()
    ObjectCatalog.init(memory, FormatRecord(namespace="bench", stream_buckets=4))
    store = LatencyStore(memory, random.Random(1), _sleep)
    with ObjectCatalog.open(store) as catalog, ObjectSegments(catalog, store, node_id=4) as host:
        streams = StreamStore.open(store, host=host)
        streams.create_scope("bench")
        stream = streams.create_stream("bench", "events", StreamConfiguration(min_segments=1), segments=SEGMENTS)
        with StreamWriter(stream, host) as writer:
            writer.write(PAYLOAD, b"first").result()
            yield writer, store


def _events_a_second(writer: StreamWriter, work: Callable[[StreamWriter, int, float], int]) -> float:
    started = perf_counter()
    with ThreadPoolExecutor(THREADS) as threads:
        done = sum(threads.map(lambda thread: work(writer, thread, started + SECONDS), range(THREADS)))
    return done / (perf_counter() - started)


def _keep_open(writer: StreamWriter, thread: int, until: float) -> int:
    """Write, with so many futures open; gives how many events are durable in the end."""
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
    """Wait for the first one, and take out those that are done behind it."""
    count = 0
    while futures and (count == 0 or futures[0].done()):
        if futures.popleft().result() is None:
            raise AnswersDiffer("an event without a place")
        count += 1
    return count


def _flush_each(writer: StreamWriter, thread: int, until: float) -> int:
    done = 0
    while perf_counter() < until:
        writer.write(PAYLOAD, b"%d" % thread)
        writer.flush()
        done += 1
    return done


def _steady(writer: StreamWriter) -> list[float]:
    """Events at even intervals; milliseconds of each."""
    latencies: list[float] = []
    left = threading.Semaphore(0)
    count = int(2 * SECONDS * EVENTS_A_SECOND)
    started = perf_counter()
    for number in range(count):
        due = started + number / EVENTS_A_SECOND
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


def _sleep(seconds: float) -> None:
    if seconds > 0:
        SYSTEM.sleep(seconds)
