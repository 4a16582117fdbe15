"""Reading a whole stream, merged in the order of time, against reading the same objects front to back.

A stream of 16 segments, events of 1 KiB appended up to 64 at a time, in stream set objects of 16 MiB on an S3 server in
a process of its own (moto's, so requests are dear). The peer reads the objects that hold the stream with plain ranged
GETs, as large as the reader's own. It decodes nothing, merges nothing and gives no event: no
reader can be faster than that. Both sides begin with nothing cached; ours opens the catalog, reads its image and the
stream's history, too.

    stream_read, front to back   one event after the other; the peer asks for one range after the other
    stream_read, events          the same; the peer has eight requests under way at once
    stream_read, batches         what was appended at once, as one piece; the peer likewise

Each side counts the bytes of all payloads that it met; ours must have met each event.
"""

from __future__ import annotations

import multiprocessing
import os
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from typing import Final, NamedTuple
from unittest import mock

import boto3

from accel import (
    FormatRecord,
    ObjectCatalog,
    ObjectSegments,
    ObjectSegmentSource,
    ReadAccelerator,
    S3Settings,
    StreamConfiguration,
    StreamReader,
    StreamStore,
    StreamWriter,
    open_store,
)
from accel.cli.demo.embedded_s3 import embedded_s3
from accel.streams.settings import SegmentsSettings
from accel.system import SYSTEM
from benchmarks.harness import Comparison, interleave
from loaders.store import ObjectStore

MEBIBYTE: Final = 1 << 20
SEGMENTS: Final = 16
EVENT_BYTES: Final = 1024
EVENTS: Final = 384 * 1024
KEYS_STEP: Final = 7919
SPAN_BYTES: Final = 4 * MEBIBYTE
AT_ONCE: Final = 8
NODE: Final = 4
LARGE: Final = SegmentsSettings(linger_seconds=5.0)
GOAL: Final = 0.5
SCOPE, NAME, BUCKET = "bench", "events", "bench"
KEYS = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench", "AWS_DEFAULT_REGION": "us-east-1"}


class Written(NamedTuple):
    """A stream that was written.

    Args:
        url: of the store.
        settings: how to reach it.
        objects: keys and sizes of the objects that hold it.
    """

    url: str
    settings: S3Settings
    objects: list[tuple[str, int]]

    def open(self) -> ObjectStore:
        """A client that has read nothing."""
        return open_store(self.url, self.settings)


def run(rounds: int = 7) -> list[Comparison]:
    """All lines."""
    with server() as endpoint, mock.patch.dict(os.environ, KEYS):
        written = write(endpoint)
        lines = []
        for name, ours, at_once in (
            ("front to back", read_events, 1),
            ("events", read_events, AT_ONCE),
            ("batches", read_batches, AT_ONCE),
        ):
            peer = partial(read_plainly, written, at_once)
            timings = interleave(partial(ours, written), peer, rounds=rounds, same=_met_all)
            told = f"ranged GETs of {SPAN_BYTES // MEBIBYTE} MiB, {at_once} at once"
            goal = GOAL if at_once == 1 else None
            lines.append(timings.compare(f"stream_read, {name}", peer=told, unit="s", goal=goal))
        return lines


def read_events(written: Written) -> int:
    """Read all events, one by one; gives their number."""
    return _read(written, lambda reader: sum(1 for _ in reader))


def read_batches(written: Written) -> int:
    """Read all events, batch by batch; gives their number."""

    def count(reader: StreamReader) -> int:
        events = 0
        while (batch := reader.next_batch()) is not None:
            events += len(batch)
        return events

    return _read(written, count)


def read_plainly(written: Written, at_once: int) -> int:
    """Read the objects front to back; gives their bytes."""
    store = written.open()
    spans = [(key, at, at + SPAN_BYTES) for key, size in written.objects for at in range(0, size, SPAN_BYTES)]
    with ThreadPoolExecutor(at_once) as pool:
        return sum(pool.map(lambda span: len(store.get_range(*span).body), spans))


def write(endpoint: str) -> Written:
    """Write the stream."""
    settings = S3Settings(endpoint_url=endpoint)
    boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket=BUCKET)
    store = open_store(f"s3://{BUCKET}", settings)
    ObjectCatalog.init(store, FormatRecord(namespace="bench", stream_buckets=4))
    random_bytes = random.Random(1).randbytes
    payloads = [random_bytes(EVENT_BYTES) for _ in range(64)]
    with ObjectCatalog.open(store) as catalog, ObjectSegments(catalog, store, NODE, settings=LARGE) as host:
        streams = StreamStore.open(store, host=host)
        streams.create_scope(SCOPE)
        wanted = StreamConfiguration(min_segments=1)
        stream = streams.create_stream(SCOPE, NAME, wanted, int(SYSTEM.clock() * 1000), segments=SEGMENTS)
        with StreamWriter(stream, host) as writer:
            for first in range(0, EVENTS, 1000):
                numbers = range(first, min(EVENTS, first + 1000))
                writer.write_many((payloads[number % 64], b"%d" % (number * KEYS_STEP)) for number in numbers)
    objects = [(info.key, info.size_bytes) for info in store.list("") if not info.key.startswith("accel/")]
    return Written(f"s3://{BUCKET}", settings, objects)


@contextmanager
def server() -> Iterator[str]:
    """An S3 server in a process of its own; gives its endpoint."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there,), daemon=True)
    process.start()
    try:
        yield str(here.recv())
    finally:
        here.send(None)
        process.join()


def _serve(told: Connection) -> None:
    with embedded_s3() as endpoint:
        told.send(endpoint)
        told.recv()


def _read(written: Written, count: Callable[[StreamReader], int]) -> int:
    store = written.open()
    with ObjectCatalog.open(store) as catalog, ReadAccelerator(catalog.images(), store) as accelerator:
        stream = StreamStore.open(store).stream(SCOPE, NAME)
        with StreamReader(stream, ObjectSegmentSource(stream, accelerator, store)) as reader:
            return count(reader)


def _met_all(ours: object, peers: object) -> bool:
    return ours == EVENTS and isinstance(peers, int) and peers >= EVENTS * EVENT_BYTES
