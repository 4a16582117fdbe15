"""How much a catalog costs: a reader of it, and the hints of a node.

`catalog_refresh`: a reader of a catalog of 10 nodes of 5,000 objects and 200,000 streams in 32 stream shards.

Ours is a refresh: conditional GETs, which return a body only for changed keys; and following: two listings, and
conditional GETs of the keys that they show as changed. The peer reads all keys again, like a reader without ETags.
Requests and bytes are counted, not timed; the bytes are those of bodies.

`hint_build`: the cost of a run of `build-hints` after a few uploads, against building the same hints from all objects.

A node of 2,000 objects of 100 streams each, in a store in memory. Both sides write the same pack and the same snapshot
of 2,000 objects; ours finds the hints of the 1,984 older objects in the bucket and copies them, the peer opens all
objects (`--all`). Requests are counted, so they are the same in each run and on each machine; seconds are those of the
work itself, without network latency.

`spark_nodes`: the hints of five nodes, of which one has half of all objects, on Spark with two cores, against one
process that builds one node after another. Both open all objects, of 300 streams each, in a folder. As Spark begins
with the largest node, its time is about that of this node, with the start of tasks.
"""

from __future__ import annotations

import random
import tempfile
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
    Rows,
    StreamShard,
    make_rows,
)
from accel.catalog.stream_shards import shards_of
from accel.hint_building import (
    Depth,
    HintChoice,
    ListedNode,
    NodeReport,
    build_hints,
    build_node_hints,
    plan_hints,
    plan_node_hints,
)
from accel.system import SYSTEM
from benchmarks.harness import AnswersDiffer, Comparison, interleave
from loaders.format import ObjectEncoder, RecordBatch
from loaders.hints import SnapshotReader, read_pack_root
from loaders.layout import HINTS_PREFIX
from loaders.object_writer import ObjectWriter
from loaders.store import CountingStore, MemoryStore, ObjectStore
from loaders.tables import FormatRecord
from spark_jobs.hints import build_hints_on_spark, plan_hints_on_spark
from spark_jobs.session import session
from spark_jobs.tasks import StoreSpec

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


HINTED_OBJECTS = 2_000
HINTED_STREAMS = 100
NEWER_OBJECTS = 16
NODE_ID = 4
NAMESPACE = "bench"


class HintedBucket:
    """A catalog whose hints cover all objects except the newest."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        ObjectCatalog.init(self.store, FormatRecord(namespace=NAMESPACE))
        self.catalog = ObjectCatalog.open(self.store)
        self.live = np.zeros(HINTED_OBJECTS, dtype=LIVE)
        for position in range(HINTED_OBJECTS):
            self._put(position)
        self.build(self.live[:-NEWER_OBJECTS], Depth.ALL)
        self._before = {info.key: self.store.get(info.key).body for info in self.store.list(HINTS_PREFIX)}

    def build(self, live: Rows, depth: Depth) -> NodeReport:
        """Plan and build."""
        parts = self.catalog.parts
        return build_node_hints(parts, plan_node_hints(parts, ListedNode(NODE_ID, live), HintChoice(depth=depth)))

    def restore(self) -> None:
        """Restore the hints to their first state."""
        _delete_hints(self.store)
        for key, body in self._before.items():
            self.store.put(key, body)

    def run(self, depth: Depth) -> NodeReport:
        """One run over all objects; its result is checked."""
        self.restore()
        report = self.build(self.live, depth)
        covered = SnapshotReader(self.store, NAMESPACE, lambda: 0.0).read_root(NODE_ID)
        filters = read_pack_root(self.store, NAMESPACE, NODE_ID)
        if (covered.entries, len(filters.entries)) != (HINTED_OBJECTS * HINTED_STREAMS, HINTED_OBJECTS):
            raise AnswersDiffer(f"expected hints of {HINTED_OBJECTS} objects, found {covered.entries} entries")
        return report

    def _put(self, position: int) -> None:
        encoder = ObjectEncoder()
        batches = (RecordBatch(stream_id, 0, position, 1, b"one") for stream_id in range(HINTED_STREAMS))
        body = b"".join([*(encoder.write(batch.stream_id, [batch]) for batch in batches), encoder.finish()])
        self.store.put(self.catalog.parts.layout.object_key(position), body)
        self.live[position] = (position, position, position, 0, len(body), -1, -1, -1, position)


def _delete_hints(store: ObjectStore) -> None:
    for key in [info.key for info in store.list(HINTS_PREFIX)]:
        store.delete(key)


def run_hint_build(rounds: int = 7) -> list[Comparison]:
    """Requests and seconds of a run after 16 uploads, against opening all objects."""
    bucket = HintedBucket()
    ours, peer = bucket.run(Depth.MISSING), bucket.run(Depth.ALL)
    name, whole = f"hint_build: {NEWER_OBJECTS} of {HINTED_OBJECTS} objects are new", "all objects opened"
    timings = interleave(
        lambda: bucket.run(Depth.MISSING).objects, lambda: bucket.run(Depth.ALL).objects, rounds=rounds
    )
    return [
        Comparison.exact(f"{name}, requests", ours.requests, "requests", whole, peer.requests),
        timings.compare(f"{name}, time", peer=whole, unit="s"),
    ]


OBJECTS_OF_NODES = (2_000, 500, 500, 500, 500)
STREAMS_OF_OBJECT = 300
ALL_HINTS = HintChoice(depth=Depth.ALL)


def run_spark_nodes(rounds: int = 7) -> list[Comparison]:
    """Seconds for the hints of all nodes."""
    with tempfile.TemporaryDirectory() as folder, session("local[2]") as spark:
        spec = StoreSpec(f"file://{folder}")
        for node_id, objects in enumerate(OBJECTS_OF_NODES):
            _write_node(spec, node_id, objects)

        def ours() -> int | float:
            plan = plan_hints_on_spark(spark, spec, ALL_HINTS)
            return build_hints_on_spark(spark, spec, plan).row()["covered_objects"]

        def one_process() -> int | float:
            with ObjectCatalog.open(spec.open()) as catalog:
                return build_hints(catalog, plan_hints(catalog, ALL_HINTS)).row()["covered_objects"]

        timings = interleave(ours, one_process, rounds=min(rounds, 3))
    return [timings.compare("spark_nodes: hints of five nodes, two cores", peer="one process", unit="s")]


def _write_node(spec: StoreSpec, node_id: int, objects: int) -> None:
    store, streams = spec.open(), range(node_id * STREAMS_OF_OBJECT, (node_id + 1) * STREAMS_OF_OBJECT)
    if not node_id:
        ObjectCatalog.init(store, FORMAT, system=SYSTEM)
    with ObjectCatalog.open(store) as catalog, catalog.open_node(node_id) as writer:
        writer.open_streams(streams)
        for first in range(0, objects, OBJECTS_A_COMMIT):
            uploads = []
            for number, object_id in enumerate(writer.prepare(OBJECTS_A_COMMIT), first):
                with ObjectWriter(store, catalog.parts.layout, object_id, nonce=SYSTEM.nonce) as upload:
                    for stream_id in streams:
                        upload.write(stream_id, [RecordBatch(stream_id, 1, number, 1, b"record")])
                uploads.append((upload.ref, upload.ranges))
            writer.commit_uploads(uploads, ids_ahead=0)


OBJECTS_A_COMMIT = 250
