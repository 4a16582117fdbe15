"""The cost of a run of `build-hints` after a few uploads, against building the same hints from all objects.

A node of 2,000 objects of 100 streams each, in a store in memory. Both sides write the same pack and the same snapshot
of 2,000 objects; ours finds the hints of the 1,984 older objects in the bucket and copies them, the peer opens all
objects (`--all`). Requests are counted, so they are the same in each run and on each machine; seconds are those of the
work itself, without network latency.

The large variant is a node of 20,000 objects of 1,000 of 200,000 streams each, listed in a controller's image, with the
latencies of `LatencyModel`. The objects are not stored: the end of each object, its index, is generated from the
object's number when it is read. The pack and the snapshot, of 20,000,000 entries, are written and read as usual.
"""

from __future__ import annotations

import random
import time

import numpy as np

from accel.catalog import ObjectCatalog
from accel.catalog.foreign import ForeignCatalog
from accel.catalog.records import LIVE, Rows
from accel.hint_building import Depth, HintChoice, ListedNode, NodeReport, build_node_hints, plan_node_hints
from accel.image import MetadataImage, make_node
from accel.system import SYSTEM
from accel.testing import LatencyStore
from benchmarks.harness import AnswersDiffer, Comparison, Timings, interleave
from loaders.format import ObjectEncoder, RecordBatch
from loaders.format.index import FOOTER_SIZE_BYTES, ROW_DTYPE, ROW_SIZE_BYTES, Footer
from loaders.hints import SnapshotReader, read_pack_root
from loaders.layout import HINTS_PREFIX, ObjectLayout
from loaders.object_ref import ObjectRef
from loaders.store import Fetched, MemoryStore, ObjectStore
from loaders.store.decorated import DecoratedStore
from loaders.tables import FormatRecord

OBJECTS = 2_000
STREAMS = 100
NEWER_OBJECTS = 16
NODE_ID = 4
NAMESPACE = "bench"


class HintedBucket:
    """A catalog whose hints cover all objects except the newest."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        ObjectCatalog.init(self.store, FormatRecord(namespace=NAMESPACE))
        self.catalog = ObjectCatalog.open(self.store)
        self.live = np.zeros(OBJECTS, dtype=LIVE)
        for position in range(OBJECTS):
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
        if (covered.entries, len(filters.entries)) != (OBJECTS * STREAMS, OBJECTS):
            raise AnswersDiffer(f"expected hints of {OBJECTS} objects, found {covered.entries} entries")
        return report

    def _put(self, position: int) -> None:
        encoder = ObjectEncoder()
        batches = (RecordBatch(stream_id, 0, position, 1, b"one") for stream_id in range(STREAMS))
        body = b"".join([*(encoder.write(batch.stream_id, [batch]) for batch in batches), encoder.finish()])
        self.store.put(self.catalog.parts.layout.object_key(position), body)
        self.live[position] = (position, position, position, 0, len(body), -1, -1, -1, position)


def _delete_hints(store: ObjectStore) -> None:
    for key in [info.key for info in store.list(HINTS_PREFIX)]:
        store.delete(key)


LARGE_OBJECTS = 20_000
LARGE_STREAMS = 1_000
LARGE_NEWER = 200
POPULATION = 200_000
BLOCK_SIZE_BYTES = 100
OFFSETS_MAX = 1_000
INDEX_SIZE_BYTES = LARGE_STREAMS * ROW_SIZE_BYTES
LARGE_SIZE_BYTES = LARGE_STREAMS * BLOCK_SIZE_BYTES + INDEX_SIZE_BYTES + FOOTER_SIZE_BYTES


class MadeObjects(DecoratedStore):
    """Objects whose ends are generated when they are read, over a store with the hints. Threads: any."""

    def __init__(self, store: ObjectStore, layout: ObjectLayout) -> None:
        super().__init__(store)
        self._numbers = {layout.object_key(number): number for number in range(LARGE_OBJECTS)}

    def get_range(self, key: str, start: int, end: int) -> Fetched:
        """The end of an object, or bytes of another stored key."""
        number = self._numbers.get(key)
        if number is None:
            return super().get_range(key, start, end)
        index_start = LARGE_SIZE_BYTES - INDEX_SIZE_BYTES - FOOTER_SIZE_BYTES
        if start < index_start:
            raise ValueError(f"expected a read of the index, from {index_start} on, found one from {start} on")
        return Fetched(_end_of_object(number)[start - index_start : end - index_start], "made", LARGE_SIZE_BYTES)


def _end_of_object(number: int) -> bytes:
    # Each object holds one stream of every 200 consecutive ids; offsets, lengths and sizes are drawn from its number.
    rng, stretch = np.random.default_rng(number), POPULATION // LARGE_STREAMS
    sizes = rng.integers(BLOCK_SIZE_BYTES // 2, BLOCK_SIZE_BYTES + 1, LARGE_STREAMS)
    rows = np.zeros(LARGE_STREAMS, dtype=ROW_DTYPE)
    rows["stream_id"] = np.arange(LARGE_STREAMS) * stretch + rng.integers(0, stretch, LARGE_STREAMS)
    rows["start"] = number * OFFSETS_MAX + rng.integers(0, OFFSETS_MAX // 2, LARGE_STREAMS)
    rows["end_delta"] = rng.integers(1, OFFSETS_MAX // 2, LARGE_STREAMS)
    rows["record_count"], rows["size_bytes"], rows["position"] = 1, sizes, np.cumsum(sizes) - sizes
    return rows.tobytes() + Footer(LARGE_STREAMS * BLOCK_SIZE_BYTES, INDEX_SIZE_BYTES).encode()


def _sleep(seconds: float) -> None:
    SYSTEM.sleep(seconds)


class LargeNode:
    """A node of 20,000 objects, and hints of all except the newest."""

    def __init__(self) -> None:
        layout = ObjectLayout(namespace=NAMESPACE)
        self._stored = MemoryStore()
        slow = LatencyStore(MadeObjects(self._stored, layout), random.Random(7), _sleep)
        refs = [ObjectRef(number, LARGE_SIZE_BYTES, INDEX_SIZE_BYTES) for number in range(LARGE_OBJECTS)]
        image = MetadataImage(1, NAMESPACE, {}, {NODE_ID: make_node(NODE_ID, enumerate(refs))})
        self._catalog = ForeignCatalog(slow, image)
        self._live = self._catalog.live_rows()[NODE_ID]
        self.first_seconds, self.first = self._timed(self._live[:-LARGE_NEWER], Depth.ALL)
        self._before = {info.key: self._stored.get(info.key).body for info in self._stored.list(HINTS_PREFIX)}

    def run(self, depth: Depth) -> tuple[float, NodeReport]:
        """Restore the hints, and run over all objects; returns the seconds of the run, and its report."""
        _delete_hints(self._stored)
        for key, body in self._before.items():
            self._stored.put(key, body)
        return self._timed(self._live, depth)

    def close(self) -> None:
        """End the threads."""
        self._catalog.close()

    def _timed(self, live: Rows, depth: Depth) -> tuple[float, NodeReport]:
        parts = self._catalog.parts
        started = time.perf_counter()
        report = build_node_hints(parts, plan_node_hints(parts, ListedNode(NODE_ID, live), HintChoice(depth=depth)))
        seconds = time.perf_counter() - started
        entries = 0 if report.snapshot is None else report.snapshot.entries
        if entries != len(live) * LARGE_STREAMS or report.failures or report.errors:
            raise AnswersDiffer(f"expected entries of {len(live)} objects, found {entries}; {report.errors}")
        return seconds, report


def run_large(rounds: int = 7) -> list[Comparison]:
    """A node of 20,000 objects: the first run, and one after 200 uploads, against opening all. At most two rounds."""
    node = LargeNode()
    timings = Timings([], [])
    reports = {}
    for _ in range(min(rounds, 2)):
        for depth, seconds in ((Depth.MISSING, timings.ours_seconds), (Depth.ALL, timings.peer_seconds)):
            took, reports[depth] = node.run(depth)
            seconds.append(took)
    node.close()
    ours, peer = reports[Depth.MISSING], reports[Depth.ALL]
    name, whole = f"hint_build_large: {LARGE_NEWER} of {LARGE_OBJECTS:,} objects are new", "all objects opened"
    first = f"hint_build_large: the first {LARGE_OBJECTS - LARGE_NEWER:,} objects"
    return [
        Comparison.exact(f"{first}, requests", node.first.requests, "requests", whole, peer.requests),
        Comparison.exact(f"{name}, requests", ours.requests, "requests", whole, peer.requests),
        timings.compare(f"{name}, time", peer=whole, unit="s"),
    ]


def run(rounds: int = 7) -> list[Comparison]:
    """Requests and seconds of a run after 16 uploads, against opening all objects."""
    bucket = HintedBucket()
    ours, peer = bucket.run(Depth.MISSING), bucket.run(Depth.ALL)
    name, whole = f"hint_build: {NEWER_OBJECTS} of {OBJECTS} objects are new", "all objects opened"
    timings = interleave(
        lambda: bucket.run(Depth.MISSING).objects, lambda: bucket.run(Depth.ALL).objects, rounds=rounds
    )
    return [
        Comparison.exact(f"{name}, requests", ours.requests, "requests", whole, peer.requests),
        timings.compare(f"{name}, time", peer=whole, unit="s"),
    ]
