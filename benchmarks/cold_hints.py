"""Requests of a cold lookup with a snapshot or a pack in the bucket, on nodes of 5,000 objects.

Counts are exact: the objects that a search opens, and the requests of a counting store under the hints. Each lookup
begins with an empty cache except for the contents that its column names, and ends with the first object (limit 1).

- *no hints*: the root of a snapshot is requested once, and its absence cached: not counted here.
- *snapshot*: it covers all objects; with its root still to be read, and with the root in memory.
- *pack*: the filters of all objects are in memory, and there is no snapshot.
- *persisted index*: the method of the production system, `cold_requests.production_cost`: its node file, then all
  objects from the best entry to the end of the list. It is as recent as the snapshot: written when the last object was
  committed; in the rows *+ 16 newer*, 16 objects before that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from accel.image import MetadataImage, ObjectRef, make_node
from accel.lookup.answer import Answer, Request
from accel.lookup.hints import HintLoader, HintStore
from accel.lookup.index_cache import SharedIndexCache
from accel.lookup.search import search
from accel.lookup.steps import HintReply, ReadEntries, ReadFilters, ReadRoot, Reply, Sent
from benchmarks.cold_requests import (
    CONNECTIONS,
    NODE_ID,
    OBJECTS_MAX,
    SMALL,
    STREAM_ID,
    Cost,
    Node,
    empty_knowledge,
    filters_known,
    make_cold_node,
    mean_cost,
    measure,
    offsets,
)
from benchmarks.harness import Comparison
from loaders.hints import CoveredObjects, EntryColumns, SnapshotFileWriter, finish_snapshot
from loaders.plan import Spread
from loaders.store import CountingStore, MemoryStore

PLACES = ("head", "middle", "tail", "random")
SEED = 20261121
RANDOM_OFFSETS = 56
NEWER_OBJECTS = 16
GROUP_ROWS_MAX = 2_000
NAMESPACE = "DEFAULT"


@dataclass(frozen=True)
class HintedNode:
    """A node whose objects have sizes, and a bucket with its snapshot.

    Args:
        node: the node.
        image: with sizes.
        store: holds only the snapshot; counts its requests.
        newer: the number of the list's last objects that are newer than the snapshot.
    """

    node: Node
    image: MetadataImage
    store: CountingStore
    newer: int


def nodes(objects: int = OBJECTS_MAX) -> dict[str, Node]:
    """The nodes of the lookups, by name."""
    return {
        "dense": make_cold_node(objects, 1.0, SEED),
        "10 %": make_cold_node(objects, 0.1, SEED + 1),
        "1 %": make_cold_node(objects, 0.01, SEED + 2),
    }


def with_snapshot(node: Node, newer: int = 0) -> HintedNode:
    """The same node with a snapshot of all its objects except the newest."""
    store = CountingStore(MemoryStore())
    refs = [ObjectRef(position, 1 << 20) for position in range(node.objects)]
    list_image = make_node(NODE_ID, list(enumerate(refs)), facts=node.image.nodes[NODE_ID].facts)
    image = MetadataImage(0, NAMESPACE, node.image.streams, {NODE_ID: list_image})
    covered = refs[: node.objects - newer]
    with SnapshotFileWriter(store, node_id=NODE_ID, generation=1, name="0", group_rows_max=GROUP_ROWS_MAX) as writer:
        writer.write(_entries(node, covered))
    finish_snapshot(
        store,
        namespace=NAMESPACE,
        node_id=NODE_ID,
        generation=1,
        files=[writer.file],
        covered=CoveredObjects.of(covered),
    )
    store.reset()
    return HintedNode(node, image, store, newer)


def _entries(node: Node, refs: list[ObjectRef]) -> EntryColumns:
    rows = []
    for ref in refs:
        held = node.ranges[ref.object_id]
        for at, stream_id in enumerate(held.stream_ids.tolist()):
            rows.append((stream_id, int(held.starts[at]), int(held.ends[at]), ref.object_id))
    stream_ids, starts, ends, object_ids = np.array(sorted(rows), dtype=np.int64).T.copy()
    nothing, ones = np.zeros(len(rows), np.int64), np.ones(len(rows), np.int64)
    holed = np.zeros(len(rows), np.bool_)
    return EntryColumns.of((stream_ids, starts, ends, object_ids, object_ids, nothing - 1, nothing, ones, holed))


class ColdReader:
    """A reader with an empty cache, or with the root of the node's snapshot."""

    def __init__(self, hinted: HintedNode, *, root_known: bool) -> None:
        self.hinted = hinted
        self.known = SharedIndexCache(SMALL, lambda: 0.0, lambda: 0.5)
        self.hints = HintStore(NAMESPACE, lambda: 0.0, SMALL)
        self.executor = ThreadPoolExecutor(1)
        self.loader = HintLoader(hinted.store, self.hints, lambda _: self.executor, lambda *_: None)
        if root_known:
            self.loader.read_root(NODE_ID).result.result()

    def look_up(self, start: int, end: int = -1) -> tuple[Answer, Cost]:
        """One lookup of the first object, and the number of all its requests."""
        self.hinted.store.reset()
        steps = search(Request(STREAM_ID, start, end, 1), self.hinted.image, self.known, Spread(), hints=self.hints)
        opened, rounds, latencies = 0, 0, 0
        sent: Sent = None
        try:
            while True:
                wanted = steps.send(sent)
                objects: dict[int, Reply] = {at: self.hinted.node.ranges[at] for at in wanted.positions}
                opened, rounds = opened + len(objects), rounds + 1
                latencies += max(1, math.ceil(len(objects) / CONNECTIONS))
                if isinstance(wanted, ReadRoot):
                    sent = self.loader.read_root(NODE_ID).result.result().beside(objects)
                elif isinstance(wanted, ReadEntries):
                    sent = self.loader.read_entries(wanted).result.result().beside(objects)
                elif isinstance(wanted, ReadFilters):
                    sent = HintReply(None, None, None)  # the node has no pack
                else:
                    sent = objects
        except StopIteration as stop:
            answer: Answer = stop.value
            return answer, Cost(opened + self.hinted.store.snapshot().total.requests, rounds, latencies)
        finally:
            self.executor.shutdown()


def snapshot_cost(hinted: HintedNode, starts: list[int], *, root_known: bool) -> list[Cost]:
    """The cost of lookups at these offsets, all equally cold."""
    costs = []
    for start in starts:
        answer, cost = ColdReader(hinted, root_known=root_known).look_up(start)
        first = answer.objects[0]
        if not first.start <= start < first.end:
            raise AssertionError(f"offset {start}: found [{first.start}, {first.end})")
        costs.append(cost)
    return costs


def persisted_cost(node: Node, start: int, newer: int = 0) -> Cost:
    """The method of the production system, with an index file that is older than the newest objects.

    One GET of the file, which contains the first and last 3 entries of the stream at its time; then one for each object
    from the floor's position to the end of the list.
    """
    there = [holder for holder in node.holders if holder[0] < node.objects - newer]
    below = [position for position, first, _ in there[:3] + there[-3:] if first <= start]
    opened = node.objects - max(below, default=0)
    return Cost(1 + opened, 2, 1 + math.ceil(opened / CONNECTIONS))


Means = dict[tuple[str, str], tuple[float, float, float]]
"""(place, way) -> mean GETs, rounds and latencies."""

PERSISTED, PERSISTED_OLDER = "persisted index", f"persisted index + {NEWER_OBJECTS} newer"
SNAPSHOT_OLDER = f"snapshot + {NEWER_OBJECTS} newer"


def measure_node(node: Node, places: tuple[str, ...] = PLACES) -> Means:
    """Means of all methods at all places of a node."""
    pack, fresh, older = filters_known(node), with_snapshot(node), with_snapshot(node, NEWER_OBJECTS)
    means: Means = {}
    for place in places:
        starts = offsets(node, place, RANDOM_OFFSETS if place == "random" else 3, SEED)
        ways = {
            "no hints": measure(node, Spread(), starts, empty_knowledge()),
            "pack": measure(node, Spread(), starts, pack),
            "snapshot": snapshot_cost(fresh, starts, root_known=False),
            "snapshot, root known": snapshot_cost(fresh, starts, root_known=True),
            PERSISTED: [persisted_cost(node, start) for start in starts],
            SNAPSHOT_OLDER: snapshot_cost(older, starts, root_known=False),
            PERSISTED_OLDER: [persisted_cost(node, start, NEWER_OBJECTS) for start in starts],
        }
        means.update({(place, way): mean_cost(costs) for way, costs in ways.items()})
    return means


def run(rounds: int = 7) -> list[Comparison]:  # noqa: ARG001 - counts are exact, so there is nothing to repeat
    """Mean GETs and rounds of each method, against the persisted index at the same offsets."""
    comparisons: list[Comparison] = []
    for name, node in nodes().items():
        means = measure_node(node)
        for (place, way), ours in means.items():
            if way not in {PERSISTED, PERSISTED_OLDER}:
                peer = means[place, PERSISTED_OLDER if way == SNAPSHOT_OLDER else PERSISTED]
                comparisons += _rows(f"{name}, {place}, {way}", ours, peer)
    return comparisons


def _rows(name: str, ours: tuple[float, float, float], peer: tuple[float, float, float]) -> Iterator[Comparison]:
    for column, unit in ((0, "GETs"), (1, "rounds")):
        yield Comparison.exact(f"cold_hints: {name}", ours[column], unit, "persisted index", peer[column])
