"""The number of requests of a cold lookup on live streams, under each policy, with and without filters.

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
"""

from __future__ import annotations

import enum
import math
import random
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from accel.image import OPEN_END, MetadataImage, ObjectRef, OwnershipRange, make_node, make_stream
from accel.lookup.answer import Answer, Request
from accel.lookup.index_cache import SharedIndexCache
from accel.lookup.known_ranges import Flags
from accel.lookup.search import search
from accel.lookup.steps import Reply
from accel.settings import Settings
from benchmarks.harness import Comparison
from bloom import StreamFilter
from loaders.plan import LoadAll, Policy, Spread, Window, WindowPreload
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


def production_cost(node: Node, start: int) -> Cost:
    """The method of the production system: a persisted index of the first and last 3 entries a stream, then a scan.

    One GET of the node's index file, and one for each object from the floor's position to the end of the list.
    """
    kept = node.holders[:3] + node.holders[-3:]
    below = [position for position, first, _ in kept if first <= start]
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
    return mean_cost([production_cost(node, start) for node in measured for start in places_of(node, place)])


def run(rounds: int = 7) -> list[Comparison]:  # noqa: ARG001 - counts are exact, so there is nothing to repeat
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
