"""How much a lookup costs: the requests of a cold one, and the time of one whose answer is in memory.

`cold_requests`: the number of requests of a cold lookup on live streams, under each policy, with and without filters.

Counts are exact, not measured: they are the same on every machine. The peer opens all objects at once; further rows
have the method of the production system. Rows are means over five generated nodes each:

- *dense*: every object holds the stream; *10 %* and *1 %*: this share does; *1 % bursty*: in five clusters.
- *head*, *middle*, *tail*: offsets in the first, the middle and the last object of the stream; *random*: anywhere.

An image has one of three kinds of ends of a stream (`End`). A live stream's last ownership range is open; its end is
*told*, that is, recorded by commits (images from a catalog), or *unknown* (other images). A *closed* range contains its
end.

Opening an object index is one request, so the objects that a search opens are its GETs: no store, no threads and no
time are needed. A round of n GETs over 64 connections takes as long as ceil(n / 64) sequential GETs; this number is
called *latencies* here.

`cold_hints`: requests of a cold lookup with a snapshot or a pack in the bucket, on nodes of 5,000 objects.

Counts are exact: the objects that a search opens, and the requests of a counting store under the hints. Each lookup
begins with an empty cache except for the contents that its column names, and ends with the first object (limit 1).

- *no hints*: the root of a snapshot is requested once, and its absence cached: not counted here.
- *snapshot*: it covers all objects; with its root still to be read, and with the root in memory.
- *pack*: the filters of all objects are in memory, and there is no snapshot.
- *persisted index*: the method of the production system, `persisted_cost`: its node file, then all
  objects from the best entry to the end of the list. It is as recent as the snapshot: written when the last object was
  committed; in the rows *+ 16 newer*, 16 objects before that.

`warm_lookup`: a lookup whose answer is in memory, against the algorithm of the production system with everything in
memory too.

That algorithm, without a start hint, looks up the stream in the object index of each of the node's objects, and then
goes through the list. Here each of 5,000 indexes has 9,000 streams, as a sorted list of ids; the indexes share the
list, which keeps it in the processor's caches, in the peer's favour. Ours is the public call,
`ReadAccelerator.get_objects`, which finds the floor of the offset in the stream's view. Both return the same four
objects, which is checked between the rounds.

`warm_many`: `get_objects_many` of 1, 10 and 1,000 streams whose answers are in memory, against `get_objects` once for
each stream. Each stream has an entry in each of 40 objects, and the lookup is for four objects in the middle.

`warm_recorded`: the lookup of `warm_lookup` with traces of slow lookups and with the counts of hot streams, as in a
sidecar, against the same without both. At most 3 % may be added: a ratio of 0.97.

All are measured in processor time of the thread: neither side waits, and on a shared machine the peer's rounds of
milliseconds would be interrupted more often than ours, in our favour.
"""

from __future__ import annotations

import enum
import math
import random
import statistics
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, pairwise
from typing import Final

import numpy as np

from accel import ReadAccelerator, StaticImages
from accel.image import OPEN_END, MetadataImage, ObjectRef, OwnershipRange, make_node, make_stream
from accel.lookup.answer import Answer, Request
from accel.lookup.hints import HintLoader, HintStore
from accel.lookup.index_cache import SharedIndexCache
from accel.lookup.known_ranges import Flags
from accel.lookup.search import search
from accel.lookup.search_requests import HintReply, ReadEntries, ReadFilters, ReadRoot, Reply, Sent
from accel.lookup.stats import count_answer
from accel.settings import Settings
from benchmarks.harness import Comparison, Timings, interleave
from bloom import StreamFilter
from loaders.hints import CoveredObjects, EntryColumns, SnapshotFileWriter, finish_snapshot
from loaders.plan import LoadAll, Policy, Spread, Window, WindowPreload
from loaders.store import CountingStore, MemoryStore
from range_index import ObjectRanges

STREAM_ID = 420_000
OTHER_STREAM_ID = 7
NODE_ID = 4
CONNECTIONS = 64
OBJECTS_MAX = 5_000
SMALL = Settings(hashed_ids_max=1024)


class End(enum.Enum):
    """What an image contains on the end of the stream."""

    TOLD = "live"
    """The last range is open; each commit records the end of the stream at that time."""
    UNKNOWN = "live, end unknown"
    """The last range is open, and no commit records the end."""
    CLOSED = "closed"
    """The last range has an end."""


@dataclass(frozen=True)
class ToldEnd:
    """The facts that commits recorded for a node: the end of its stream, and no sketches."""

    end: int

    def excludes(self, stream_id: int) -> Flags | None:  # noqa: ARG002 - of thousands of streams, a list says nothing
        """Nothing is excluded."""
        return None

    def end_of(self, stream_id: int) -> int | None:
        """The end of the one stream."""
        return self.end if stream_id == STREAM_ID else None


@dataclass(frozen=True)
class Node:
    """One node: its image, the contents of each object, and the stream's ranges."""

    image: MetadataImage
    ranges: Mapping[int, ObjectRanges]
    holders: list[tuple[int, int, int]]
    """(position, start, end) of each object that holds the stream, in order."""

    @property
    def objects(self) -> int:
        """The number of objects in the node's list."""
        return len(self.ranges)

    @property
    def end(self) -> int:
        """One past the stream's last offset."""
        return self.holders[-1][2]


@dataclass(frozen=True)
class Cost:
    """The cost of a lookup."""

    gets: int
    rounds: int
    latencies: int


def make_cold_node(objects: int, share: float, seed: int, *, clusters: int = 0) -> Node:
    """A node whose objects hold the stream with a probability of ``share``, or in a few clusters.

    The rate of the stream varies, so that positions do not follow from offsets. The stream is live, and commits
    recorded its end.
    """
    rng = random.Random(seed)
    chosen = _clustered(rng, objects, share, clusters) if clusters else [rng.random() < share for _ in range(objects)]
    if not any(chosen):
        chosen[objects // 2] = True
    ranges, holders, offset, rate = {}, [], 0, 100.0
    for position, holds in enumerate(chosen):
        rate = min(10_000.0, max(1.0, rate * math.exp(rng.gauss(0, 0.2))))
        rows = [(OTHER_STREAM_ID, position, position + 1)]
        if holds:
            end = offset + rng.randint(1, int(rate) + 1)
            rows.append((STREAM_ID, offset, end))
            holders.append((position, offset, end))
            offset = end
        ranges[position] = ObjectRanges.from_ranges(rows)
    listed = make_node(NODE_ID, [(position, ObjectRef(position)) for position in range(objects)])
    image = MetadataImage(0, "DEFAULT", {}, {NODE_ID: listed})
    return with_end(Node(image, ranges, holders), End.TOLD)


def with_end(node: Node, end: End, *, behind: int = 0) -> Node:
    """The same node with an image with this kind of end of the stream.

    Args:
        node: the node.
        end: the kind of end.
        behind: the number of newer objects since the end was recorded.
    """
    last = OPEN_END if end is not End.CLOSED else node.end
    stream = make_stream(STREAM_ID, 0, [OwnershipRange(0, 0, last, NODE_ID)], [])
    told = max((stop for at, _, stop in node.holders if at < node.objects - behind), default=0)
    facts = ToldEnd(told) if end is End.TOLD else None
    listed = replace(node.image.nodes[NODE_ID], facts=facts)
    return replace(node, image=replace(node.image, streams={STREAM_ID: stream}, nodes={NODE_ID: listed}))


def _clustered(rng: random.Random, objects: int, share: float, clusters: int) -> list[bool]:
    length = max(1, int(objects * share / clusters))
    chosen = [False] * objects
    for _ in range(clusters):
        start = rng.randrange(objects - length)
        chosen[start : start + length] = [True] * length
    return chosen


def empty_knowledge() -> SharedIndexCache:
    """An empty index cache, with a clock that does not advance."""
    return SharedIndexCache(SMALL, lambda: 0.0, lambda: 0.5)


def filters_known(node: Node) -> SharedIndexCache:
    """An index cache with all filters, and nothing else."""
    known = empty_knowledge()
    built: dict[bytes, StreamFilter] = {}  # many objects hold the same streams, and a filter is built of these alone
    for position, held in node.ranges.items():
        ids = held.stream_ids.tobytes()
        if ids not in built:
            built[ids] = StreamFilter.build(held.stream_ids)
        known.add_filters(NODE_ID, [(position, built[ids])])
    return known


def cold_lookup(
    node: Node, known: SharedIndexCache, policy: Policy, start: int, end: int, limit: int
) -> tuple[Answer, Cost]:
    """One lookup; opened objects are not added to ``known``, so that the next lookup is as cold."""
    steps = search(Request(STREAM_ID, start, end, limit), node.image, known, policy)
    rounds = []
    try:
        wanted = next(steps)
        while True:
            rounds.append(len(wanted.positions))
            replies: dict[int, Reply] = {}
            for position in wanted.positions:
                replies[position] = node.ranges[position]
            wanted = steps.send(replies)
    except StopIteration as stop:
        answer: Answer = stop.value
        return answer, Cost(sum(rounds), len(rounds), sum(math.ceil(count / CONNECTIONS) for count in rounds))


def persisted_cost(node: Node, start: int, newer: int = 0) -> Cost:
    """The method of the production system: a persisted index of the first and last 3 entries a stream, then a scan.

    One GET of the node's index file, which may be older than the newest objects; then one for each object from the
    floor's position to the end of the list.
    """
    there = [holder for holder in node.holders if holder[0] < node.objects - newer]
    below = [position for position, first, _ in there[:3] + there[-3:] if first <= start]
    opened = node.objects - max(below, default=0)
    return Cost(1 + opened, 2, 1 + math.ceil(opened / CONNECTIONS))


def offsets(node: Node, place: str, count: int, seed: int) -> list[int]:
    """Offsets at the head (the first object), in the middle, at the tail (the last object), or anywhere."""
    rng = random.Random(seed)
    if place == "random":
        return [rng.randrange(node.end) for _ in range(count)]
    index = {"head": 0, "middle": len(node.holders) // 2, "tail": len(node.holders) - 1}[place]
    _, start, end = node.holders[index]
    return [rng.randrange(start, end) for _ in range(count)]


def mean_cost(costs: list[Cost]) -> tuple[float, float, float]:
    """Mean GETs, rounds and latencies."""
    return (
        statistics.fmean(cost.gets for cost in costs),
        statistics.fmean(cost.rounds for cost in costs),
        statistics.fmean(cost.latencies for cost in costs),
    )


def measure(node: Node, policy: Policy, places: list[int], known: SharedIndexCache, *, limit: int = 1) -> list[Cost]:
    """The cost of lookups at these offsets, each with the same index cache at its start."""
    costs = []
    for start in places:
        answer, cost = cold_lookup(node, known, policy, start, -1, limit)
        expected = _holder_of(node, start)
        if [(location.object_id, location.start, location.end) for location in answer.objects[:1]] != [expected]:
            raise AssertionError(f"offset {start}: expected {expected}, found {answer.objects[:1]}")
        costs.append(cost)
    return costs


def _holder_of(node: Node, start: int) -> tuple[int, int, int]:
    starts = np.array([first for _, first, _ in node.holders])
    return node.holders[int(np.searchsorted(starts, start, side="right")) - 1]


PLACES = ("head", "middle", "tail", "random")
SEED = 20261121
RANDOM_OFFSETS = 8
NODES_EACH = 5

KINDS: Final = {"dense": (1.0, 0), "10 %": (0.1, 0), "1 %": (0.01, 0), "1 % bursty": (0.01, 5)}
"""Name -> share of the objects that hold the stream, and the number of clusters (0: anywhere)."""

Means = tuple[float, float, float]
"""Mean GETs, rounds and latencies."""


def nodes_of(kind: str, objects: int = OBJECTS_MAX, count: int = NODES_EACH) -> list[Node]:
    """The nodes whose mean is a row."""
    share, clusters = KINDS[kind]
    first = SEED + 100 * list(KINDS).index(kind)
    return [make_cold_node(objects, share, first + number, clusters=clusters) for number in range(count)]


def places_of(node: Node, place: str) -> list[int]:
    """The offsets of the lookups in a node."""
    return offsets(node, place, RANDOM_OFFSETS if place == "random" else 1, SEED)


def mean_of(measured: list[Node], place: str, policy: Policy, *, filters: bool = False) -> Means:
    """The mean cost of a policy at a place of these nodes."""
    costs = []
    for node in measured:
        known = filters_known(node) if filters else empty_knowledge()
        costs += measure(node, policy, places_of(node, place), known)
    return mean_cost(costs)


def mean_production(measured: list[Node], place: str) -> Means:
    """The mean cost of the production system's method at a place of these nodes."""
    return mean_cost([persisted_cost(node, start) for node in measured for start in places_of(node, place)])


def run_requests(rounds: int = 7) -> list[Comparison]:  # noqa: ARG001 - counts are exact, so there is nothing to repeat
    """Mean GETs and latencies on live streams, of each policy against opening all objects, at the same offsets."""
    rows = [row for kind in KINDS for row in _all_policies(kind)]
    for objects in (OBJECTS_MAX, LONG_LIST_OBJECTS):
        rows += [row for kind in KINDS for row in _spread_only(kind, objects)]
    return rows


LONG_LIST_OBJECTS = 20_000


def _all_policies(kind: str) -> Iterator[Comparison]:
    measured = nodes_of(kind)
    for place in PLACES:
        everything = mean_of(measured[:1], place, LoadAll())
        for policy in (Window(), WindowPreload()):
            yield from _rows(f"{kind}, {place}, {policy.name}", mean_of(measured, place, policy), everything)
        yield from _rows(f"{kind}, {place}, persisted sparse index", mean_production(measured, place), everything)


def _spread_only(kind: str, objects: int) -> Iterator[Comparison]:
    measured = nodes_of(kind, objects)
    unknown = [with_end(node, End.UNKNOWN) for node in measured]
    for place in PLACES:
        everything = mean_of(measured[:1], place, LoadAll())
        name = f"{kind}, {objects} objects, {place}"
        yield from _rows(f"{name}, spread", mean_of(measured, place, Spread()), everything)
        filtered = mean_of(measured, place, Spread(), filters=True)
        yield from _rows(f"{name}, spread + filters", filtered, everything)
        yield from _rows(f"{name}, spread, end unknown", mean_of(unknown, place, Spread()), everything)


def _rows(name: str, ours: Means, everything: Means) -> Iterator[Comparison]:
    for column, unit in ((0, "GETs"), (2, "latencies")):
        yield Comparison.exact(f"cold_requests: {name}", ours[column], unit, "load-all", everything[column])


HINTED_OFFSETS = 56
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


def hinted_nodes(objects: int = OBJECTS_MAX) -> dict[str, Node]:
    """The nodes of the lookups, by name."""
    spread = [(kind, share) for kind, (share, clusters) in KINDS.items() if not clusters]
    return {kind: make_cold_node(objects, share, SEED + number) for number, (kind, share) in enumerate(spread)}


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
        self.hints = HintStore(NAMESPACE, lambda: 0.0)
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


HintMeans = dict[tuple[str, str], tuple[float, float, float]]
"""(place, way) -> mean GETs, rounds and latencies."""

PERSISTED, PERSISTED_OLDER = "persisted index", f"persisted index + {NEWER_OBJECTS} newer"
SNAPSHOT_OLDER = f"snapshot + {NEWER_OBJECTS} newer"


def measure_node(node: Node, places: tuple[str, ...] = PLACES) -> HintMeans:
    """Means of all methods at all places of a node."""
    pack, fresh, older = filters_known(node), with_snapshot(node), with_snapshot(node, NEWER_OBJECTS)
    means: HintMeans = {}
    for place in places:
        starts = offsets(node, place, HINTED_OFFSETS if place == "random" else 3, SEED)
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


def run_hints(rounds: int = 7) -> list[Comparison]:  # noqa: ARG001 - counts are exact, so there is nothing to repeat
    """Mean GETs and rounds of each method, against the persisted index at the same offsets."""
    comparisons: list[Comparison] = []
    for name, node in hinted_nodes().items():
        means = measure_node(node)
        for (place, way), ours in means.items():
            if way not in {PERSISTED, PERSISTED_OLDER}:
                peer = means[place, PERSISTED_OLDER if way == SNAPSHOT_OLDER else PERSISTED]
                comparisons += _hint_rows(f"{name}, {place}, {way}", ours, peer)
    return comparisons


def _hint_rows(name: str, ours: tuple[float, float, float], peer: tuple[float, float, float]) -> Iterator[Comparison]:
    for column, unit in ((0, "GETs"), (1, "rounds")):
        yield Comparison.exact(f"cold_hints: {name}", ours[column], unit, "persisted index", peer[column])


LIMIT = 4
LOOKUPS = 20
STREAMS_PER_OBJECT = 9_000
WARM_SEED = 20261122

Found = list[tuple[int, int, int]]


def run_warm(rounds: int = 7) -> list[Comparison]:
    """Limit 4 at the head, in the middle and at the tail of 5,000 objects, and the three together."""
    node = make_cold_node(OBJECTS_MAX, 1.0, WARM_SEED)
    plain = _PlainSearch(node)
    places = {"head": 2, "middle": len(node.holders) // 2, "tail": len(node.holders) - LIMIT}
    starts = {name: [node.holders[index][1]] for name, index in places.items()}
    starts["mean"] = [start for of_place in list(starts.values()) for start in of_place]
    with ReadAccelerator(StaticImages(node.image), MemoryStore(), settings=Settings(parallel_loads=1)) as accelerator:
        for position, held in node.ranges.items():
            accelerator.object_committed(NODE_ID, ObjectRef(position), held)
        return [_compare_warm(name, accelerator, plain, asked, rounds) for name, asked in starts.items()]


def _compare_warm(
    name: str, accelerator: ReadAccelerator, plain: _PlainSearch, starts: list[int], rounds: int
) -> Comparison:
    # Ours is too fast to be timed once: it runs 20 times a round, the peer once.
    def ours() -> list[Answer]:
        for _ in range(LOOKUPS - 1):
            for start in starts:
                accelerator.get_objects(STREAM_ID, start, limit=LIMIT)
        return [accelerator.get_objects(STREAM_ID, start, limit=LIMIT) for start in starts]

    def theirs() -> list[Found]:
        return [plain.get_objects(start) for start in starts]

    timings = interleave(ours, theirs, rounds=rounds, same=_same_objects, timer=time.thread_time)
    timings = Timings([seconds / LOOKUPS for seconds in timings.ours_seconds], timings.peer_seconds)
    peer = "look in all 5,000 objects, then walk"
    goal = 300 if name == "mean" else None
    return timings.compare(f"warm_lookup_{name}", peer=peer, unit="us", calls=len(starts), goal=goal)


def _same_objects(ours: object, theirs: object) -> bool:
    assert isinstance(ours, list)
    return [[(found.object_id, found.start, found.end) for found in answer.objects] for answer in ours] == theirs


class _PlainSearch:
    """The production algorithm over plain Python data: every object's index as a sorted list of stream ids."""

    def __init__(self, node: Node) -> None:
        others = (stream_id for stream_id in range(1, 10**9, 97) if stream_id != STREAM_ID)
        stream_ids = sorted([STREAM_ID, *islice(others, STREAMS_PER_OBJECT - 1)])
        self._slot = stream_ids.index(STREAM_ID)
        spans = {position: (first, end) for position, first, end in node.holders}
        self._indexes = [(stream_ids, {self._slot: spans[position]}) for position in node.ranges]

    def get_objects(self, start: int) -> Found:
        """Up to four objects from ``start`` on, without a gap."""
        held = [(position, *span) for position, index in enumerate(self._indexes) if (span := _look(index)) is not None]
        begin = next(number for number, (_, first, end) in enumerate(held) if first <= start < end)
        answer = held[begin : begin + LIMIT]
        for (_, _, end), (_, first, _) in pairwise(answer):
            if end != first:
                raise AssertionError(f"expected no gap, found one from {end} to {first}")
        return answer


def _look(index: tuple[list[int], dict[int, tuple[int, int]]]) -> tuple[int, int] | None:
    stream_ids, spans = index
    slot = bisect_left(stream_ids, STREAM_ID)
    return spans.get(slot) if slot < len(stream_ids) and stream_ids[slot] == STREAM_ID else None


RECORDED_LOOKUPS = 20_480
"""Lookups of a round, so that most of them are among those that `accel.lookup.hot` samples."""


def run_recorded(rounds: int = 7) -> list[Comparison]:
    """Limit 4 in the middle of 5,000 objects, with traces and hot streams, and without."""
    node = make_cold_node(OBJECTS_MAX, 1.0, WARM_SEED)
    start = node.holders[len(node.holders) // 2][1]
    recording = Settings(parallel_loads=1, slow_lookup_seconds=0.5)
    plain = Settings(parallel_loads=1)
    with (
        ReadAccelerator(StaticImages(node.image), MemoryStore(), settings=recording) as ours,
        ReadAccelerator(StaticImages(node.image), MemoryStore(), settings=plain) as peer,
    ):
        engine = peer._engine  # noqa: SLF001 - no setting turns the counts off

        def finished(answer: Answer) -> Answer:
            count_answer(engine.counters, answer)
            return answer

        engine.finished = finished  # type: ignore[method-assign]  # likewise
        for position, held in node.ranges.items():
            ours.object_committed(NODE_ID, ObjectRef(position), held)
            peer.object_committed(NODE_ID, ObjectRef(position), held)

        def lookups(accelerator: ReadAccelerator) -> list[int]:
            for _ in range(RECORDED_LOOKUPS - 1):
                accelerator.get_objects(STREAM_ID, start, limit=LIMIT)
            return [each.object_id for each in accelerator.get_objects(STREAM_ID, start, limit=LIMIT).objects]

        timings = interleave(partial(lookups, ours), partial(lookups, peer), rounds=rounds, timer=time.thread_time)
    peer_text = "without traces and hot streams"
    return [timings.compare("warm_recorded", peer=peer_text, unit="us", calls=RECORDED_LOOKUPS, goal=0.97)]


MANY_OBJECTS = 40
MANY_STREAMS = 1_000
MANY_GOALS = {1: None, 10: 1.0, MANY_STREAMS: 1.1}
"""Streams of one call -> the ratio to reach. A call of one has nothing to share."""

OFFSETS = 100
REPEATED_LOOKUPS = 1_000


def run_many(rounds: int = 7) -> list[Comparison]:
    """Calls of 1, 10 and 1,000 streams; the value is that of one stream."""
    ranges = [{"range_index": 0, "start": 0, "end": -1, "node_id": NODE_ID}]
    listed = [{"object_id": each, "order_id": each} for each in range(MANY_OBJECTS)]
    image = MetadataImage.from_dict(
        {
            "streams": [{"stream_id": each, "start_offset": 0, "ranges": ranges} for each in range(MANY_STREAMS)],
            "nodes": [{"node_id": NODE_ID, "stream_set_objects": listed}],
        }
    )
    with ReadAccelerator(StaticImages(image), MemoryStore(), settings=Settings(parallel_loads=1)) as accelerator:
        for each in range(MANY_OBJECTS):
            held = [(stream_id, each * OFFSETS, (each + 1) * OFFSETS) for stream_id in range(MANY_STREAMS)]
            accelerator.object_committed(NODE_ID, ObjectRef(each), held)
        return [_compare_many(accelerator, streams, goal, rounds) for streams, goal in MANY_GOALS.items()]


def _compare_many(accelerator: ReadAccelerator, streams: int, goal: float | None, rounds: int) -> Comparison:
    starts = [(stream_id, MANY_OBJECTS // 2 * OFFSETS + stream_id % OFFSETS) for stream_id in range(streams)]
    calls = REPEATED_LOOKUPS // streams  # so that a round of each size is long enough to be timed

    def ours() -> list[list[object]]:
        return [
            list(accelerator.get_objects_many([Request(stream_id, start, limit=LIMIT) for stream_id, start in starts]))
            for _ in range(calls)
        ]

    def theirs() -> list[list[object]]:
        return [
            [accelerator.get_objects(stream_id, start, limit=LIMIT) for stream_id, start in starts]
            for _ in range(calls)
        ]

    timings = interleave(ours, theirs, rounds=rounds, timer=time.thread_time)
    peer = f"get_objects once for each of {streams:,} streams"
    return timings.compare(f"warm_many_{streams}", peer=peer, unit="us", calls=calls * streams, goal=goal)
