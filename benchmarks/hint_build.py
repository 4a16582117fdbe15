"""The cost of a run of `build-hints` after a few uploads, against building the same hints from all objects.

A node of 2,000 objects of 100 streams each, in a store in memory. Both sides write the same pack and the same snapshot
of 2,000 objects; ours finds the hints of the 1,984 older objects in the bucket and copies them, the peer opens all
objects (`--all`). Requests are counted, so they are the same in each run and on each machine; seconds are those of the
work itself, without network latency.
"""

from __future__ import annotations

import numpy as np

from accel.catalog import ObjectCatalog
from accel.catalog.records import LIVE, Rows
from accel.hint_building import Depth, HintChoice, ListedNode, NodeReport, build_node_hints, plan_node_hints
from benchmarks.harness import AnswersDiffer, Comparison, interleave
from loaders.format import ObjectEncoder, RecordBatch
from loaders.hints import SnapshotReader, read_pack_root
from loaders.layout import HINTS_PREFIX
from loaders.store import MemoryStore, ObjectStore
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
