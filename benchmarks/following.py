"""The cost of refreshing an image of the catalog, and of following the catalog.

`catalog_refresh`: the cost of a reader of the catalog: 10 nodes of 5,000 objects, 200,000 streams in 32 stream shards.

Ours is a refresh: conditional GETs, which return a body only for changed keys; and following: two listings, and
conditional GETs of the keys that they show as changed. The peer reads all keys again, like a reader without ETags.
Requests and bytes are counted, not timed; the bytes are those of bodies.

`follow_idle` counts the requests of a reader that makes ten lookups a second without commits, and of a reader that
reads new commits each second. The peer follows by refreshes, a conditional GET a key. Time is simulated, so the numbers
are the same in each run. `refresh` times the lookup whose image is due to be refreshed, on a store as slow as S3. The
peer refreshes within the lookup.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from accel import PolledImages, ReadAccelerator
from accel.catalog import NodeWriter, ObjectCatalog
from accel.catalog.node_list import with_prepared, with_upload
from accel.catalog.records import (
    LIVE,
    OWNED_RANGE,
    STREAM,
    NodeDirectory,
    NodeList,
    ObjectFacts,
    StreamShard,
    make_rows,
)
from accel.catalog.stream_shards import shards_of
from accel.image_source import ImageSource
from accel.system import SYSTEM, Components
from accel.testing import LatencyStore
from benchmarks.harness import AnswersDiffer, Comparison, interleave
from loaders.format import RecordBatch
from loaders.store import CountingStore, MemoryStore
from loaders.tables import FormatRecord

NODES = 10
OBJECTS = 5_000
STREAMS = 200_000
FORMAT = FormatRecord(namespace="bench")
START_MS = 1_800_000_000_000


def run_catalog_refresh(rounds: int = 7) -> list[Comparison]:  # noqa: ARG001 - requests and bytes do not vary, so there is one round
    """A refresh without changes, and with one changed node, against reading all keys."""
    store = CountingStore(MemoryStore())
    ObjectCatalog.init(store, FORMAT, system=SYSTEM)
    with ObjectCatalog.open(store) as catalog:
        fill(catalog)
        cold = _cost(store, catalog)
        nothing = _cost(store, catalog)
        _upload_unread(catalog, 3)
        one = _cost(store, catalog)
        catalog.follow()  # a new follower reads the checkpoints, once
        idle = _cost(store, catalog, catalog.follow)
        _upload_unread(catalog, 4)
        followed = _cost(store, catalog, catalog.follow)
        if len(catalog.image().nodes[4]) != OBJECTS + 1:
            raise AnswersDiffer("expected the commit in the followed image, found an older one")
        if len(catalog.image().nodes[3]) != OBJECTS + 1 or len(catalog.image().streams) != STREAMS:
            raise AnswersDiffer("expected the commit in the refreshed image, found an older one")
    return [
        *_lines("nothing new", nothing, cold),
        *_lines("one node of ten changed", one, cold),
        *_lines("following, nothing new", idle, cold),
        *_lines("following, one node of ten changed", followed, cold),
    ]


def _cost(store: CountingStore, catalog: ObjectCatalog, ask: Callable[[], object] | None = None) -> tuple[int, int]:
    store.reset()
    (ask or catalog.refresh)()
    counted = store.snapshot().total
    return counted.requests, counted.received_bytes


def _lines(name: str, ours: tuple[int, int], peer: tuple[int, int]) -> Iterator[Comparison]:
    for unit, mine, theirs in zip(("requests", "B"), ours, peer, strict=True):
        yield Comparison(
            name=f"catalog_refresh: {name}",
            value=mine,
            unit=unit,
            peer="reading everything",
            peer_value=theirs,
            ratio=theirs / max(mine, 1),
            runs=1,
        )


def fill(catalog: ObjectCatalog) -> None:
    """Ten nodes and their lists, and the streams."""
    rng = np.random.default_rng(1)
    keys = catalog.parts.keys
    for node_id in range(NODES):
        keys.node_list(node_id).create_if_absent(_list(node_id, rng))
    keys.directory().change(lambda _: NodeDirectory(np.arange(NODES, dtype=np.int64)))
    ids = np.arange(STREAMS, dtype=np.int64)
    numbers = shards_of(ids, FORMAT.stream_buckets)
    for number in range(FORMAT.stream_buckets):
        bucket = _bucket(number, ids[numbers == number], rng)
        keys.shard(number).change(lambda _, bucket=bucket: bucket)  # type: ignore[misc]  # bound now, not later


def _list(node_id: int, rng: np.random.Generator) -> NodeList:
    ids = np.cumsum(rng.integers(1, 50, OBJECTS))
    rows = rng.integers(200, 9_000, OBJECTS)
    live = make_rows(
        LIVE,
        object_id=ids,
        order_id=np.arange(OBJECTS),
        last_order_id=np.arange(OBJECTS),
        data_time_ms=START_MS + np.cumsum(rng.integers(55_000, 65_000, OBJECTS)),
        size_bytes=rng.normal(8 << 20, 1 << 20, OBJECTS).astype(np.int64),
        index_size_bytes=36 * rows,
        attributes=-1,
        tail_checksum=rng.integers(0, 2**32, OBJECTS),
        added_by=np.arange(OBJECTS),
    )
    return NodeList(node_id, epoch=1, next_order_id=OBJECTS, live=live)


def _bucket(number: int, ids: np.ndarray[tuple[int], np.dtype[np.int64]], rng: np.random.Generator) -> StreamShard:
    starts = rng.integers(0, 10_000_000, len(ids))
    ranges = make_rows(
        OWNED_RANGE, stream_id=ids, range_index=0, epoch=1, start=0, end=-1, node_id=rng.integers(0, NODES, len(ids))
    )
    return StreamShard(number, make_rows(STREAM, stream_id=ids, start_offset=starts), ranges)


def _upload_unread(catalog: ObjectCatalog, node_id: int) -> None:
    object_id = random.Random(1).randrange(1 << 30, 1 << 31)

    def change(now: NodeList | None) -> NodeList | None:
        promised = with_prepared(now or NodeList(node_id), [object_id], START_MS * 2, 1)
        facts = ObjectFacts(object_id, START_MS, 8 << 20, 36 * 9_000)
        return with_upload(promised or NodeList(node_id), 1, facts)

    catalog.parts.keys.node_list(node_id).change(change)


FOLLOWED_STREAM = 7
IDLE_SECONDS = 3_600
FOLLOWED_SECONDS = 25
LOOKUPS_A_SECOND = 10
RECORDS = 100

IDLE_GOAL_REQUESTS_A_SECOND = 1.0
FOLLOWED_GOAL_REQUESTS = 120
DUE_GOAL_RATIO = 20.0

Follow = Callable[[ObjectCatalog], ImageSource]


@dataclass
class Clock:
    """Simulated time."""

    seconds: float = 0.0

    def __call__(self) -> float:
        """Now."""
        return self.seconds

    def sleep(self, seconds: float) -> None:
        """Advance the time."""
        self.seconds += seconds

    def system(self) -> Components:
        """Components with this clock; background work of a lookup runs at once."""
        return replace(SYSTEM, timer=self, sleep=self.sleep, wait=None, start=lambda work, _: work())


def by_listings(catalog: ObjectCatalog) -> ImageSource:
    """Ours, with default settings."""
    return catalog.images()


def by_refreshes(catalog: ObjectCatalog) -> ImageSource:
    """A conditional GET a key, each second."""
    system = catalog.parts.system
    return PolledImages(catalog.refresh, timer=system.timer, sleep=system.sleep)


def run_idle(rounds: int = 7) -> list[Comparison]:  # noqa: ARG001 - requests do not vary, so there is one round
    """Requests of a follower without commits, and with a commit each second."""
    ours, peer = (_idle_requests(follow) / IDLE_SECONDS for follow in (by_listings, by_refreshes))
    goal = peer / IDLE_GOAL_REQUESTS_A_SECOND
    (mine, ends), (theirs, their_ends) = _followed(by_listings), _followed(by_refreshes)
    if ends != their_ends or ends != FOLLOWED_SECONDS * RECORDS:
        raise AnswersDiffer(f"expected ours to follow to {their_ends}, as the peer, found {ends}")
    name, other = "follow_idle: 10 nodes, 32 shards", "a conditional GET a key, each second"
    return [
        Comparison.exact(f"{name}, nothing happens", ours, "requests a second", other, peer, goal),
        Comparison.exact(
            f"follow_idle: 2 nodes, a commit each second, {FOLLOWED_SECONDS} s at the tail",
            mine,
            "requests",
            other,
            theirs,
            theirs / FOLLOWED_GOAL_REQUESTS,
        ),
    ]


def run_refresh(rounds: int = 7) -> list[Comparison]:
    """The time of a warm lookup whose image is due to be refreshed."""
    memory, clock = MemoryStore(), Clock()
    _make(memory)
    store = LatencyStore(memory, random.Random(1), _sleep)
    beside = replace(SYSTEM, timer=clock)
    sides = []
    for system in (beside, replace(beside, start=lambda work, _: work())):
        catalog = ObjectCatalog.open(store, system=system)
        accelerator = ReadAccelerator(catalog.images(), store, system=system)
        accelerator.get_objects(FOLLOWED_STREAM, 0, RECORDS, 1)
        sides.append(partial(accelerator.get_objects, FOLLOWED_STREAM, 0, RECORDS, 1))
    ours, peer = (_DueLookup(side, clock) for side in sides)
    timings = interleave(ours, peer, rounds=3 * rounds)
    seconds = replace(timings, ours_seconds=ours.seconds[1:], peer_seconds=peer.seconds[1:])
    return [
        seconds.compare("refresh: a lookup whose image is due", peer="asking within it", unit="ms", goal=DUE_GOAL_RATIO)
    ]


def _sleep(seconds: float) -> None:
    SYSTEM.sleep(seconds)


class _DueLookup:
    """Makes the image due, times one lookup, and waits for the refresh that it has started."""

    def __init__(self, look_up: Callable[[], object], clock: Clock) -> None:
        self._look_up = look_up
        self._clock = clock
        self.seconds: list[float] = []

    def __call__(self) -> object:
        self._clock.seconds += 3.0
        started = time.perf_counter()
        answer = self._look_up()
        self.seconds.append(time.perf_counter() - started)
        _sleep(0.3)
        return answer


def _idle_requests(follow: Follow) -> int:
    clock, store = Clock(), CountingStore(MemoryStore())
    system = clock.system()
    ObjectCatalog.init(store, FORMAT, system=system)
    with ObjectCatalog.open(store, system=system) as catalog:
        fill(catalog)
        with ReadAccelerator(follow(catalog), store, system=system) as accelerator:
            store.reset()
            for _ in range(IDLE_SECONDS * LOOKUPS_A_SECOND):
                clock.seconds += 1 / LOOKUPS_A_SECOND
                accelerator.image_version  # noqa: B018 - the first step of each lookup
            return store.snapshot().total.requests


def _followed(follow: Follow) -> tuple[int, int]:
    """Requests of a reader at the tail, and the offset that it has reached."""
    clock, memory = Clock(), MemoryStore()
    writer = _make(memory, system := clock.system())
    store = CountingStore(memory)
    with (
        ObjectCatalog.open(store, system=system) as catalog,
        ReadAccelerator(follow(catalog), store, system=system) as accelerator,
    ):
        store.reset()
        end = RECORDS
        for tick in range(FOLLOWED_SECONDS * LOOKUPS_A_SECOND):
            clock.seconds += 1 / LOOKUPS_A_SECOND
            if tick % LOOKUPS_A_SECOND == 0 and tick:
                _upload(writer)
            found = accelerator.get_objects(FOLLOWED_STREAM, end)
            end = found.resume_offset
        return store.snapshot().total.requests, end


def _make(store: MemoryStore, system: Components = SYSTEM) -> NodeWriter:
    """A catalog of two nodes, and the writer of one of them; it has uploaded once."""
    ObjectCatalog.init(store, FORMAT, system=system)
    catalog = ObjectCatalog.open(store, system=system)
    catalog.open_node(5).open_streams([FOLLOWED_STREAM + 1])
    writer = catalog.open_node(4)
    writer.open_streams([FOLLOWED_STREAM])
    _upload(writer)
    return writer


def _upload(writer: NodeWriter) -> None:
    start = writer.end(FOLLOWED_STREAM) or 0
    writer.upload(
        {FOLLOWED_STREAM: [RecordBatch(FOLLOWED_STREAM, epoch=1, base_offset=start, count=RECORDS, payload=b"x")]}
    )
