"""The cost of a reader of the catalog, of 10 nodes of 5,000 objects and 200,000 streams in 32 stream shards.

Ours is a refresh: conditional GETs, which return a body only for changed keys; and following: two listings, and
conditional GETs of the keys that they show as changed. The peer reads all keys again, like a reader without ETags.
Requests and bytes are counted, not timed; the bytes are those of bodies.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np

from accel.catalog import ObjectCatalog
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
from accel.system import SYSTEM
from benchmarks.harness import AnswersDiffer, Comparison
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
