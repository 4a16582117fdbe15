"""How many requests a cold lookup costs, under each policy and with or without filters, on nodes of 5,000 objects.

Counts are exact, not measured: they are the same on every machine. The peer is to open everything at once, as was done
before; beside it stands the production system's own way. Rows are means over random offsets of one node each:

- *dense*: every object holds the stream; *10 %* and *1 %*: so many do; *1 % bursty*: they lie in five clusters.
- *head*, *middle*, *tail*: offsets in the first, the middle and the last object of the stream; *random*: anywhere.

Generated nodes for counting the requests of cold lookups, and the counting itself.

Opening an object index is one request, so the objects that a search asks for are its GETs: no store, no threads and no
time are needed, and the counts are exact. A round of n GETs over 64 connections lasts as long as ceil(n / 64) of them
one after another; that number is called *latencies* here.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from accel.image import MetadataImage, ObjectRef, OwnershipRange, make_node, make_stream
from accel.lookup.answer import Answer, Request
from accel.lookup.index_cache import SharedIndexCache
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


@dataclass(frozen=True)
class Node:
    """One node: its image, what each object holds, and where the stream's ranges lie."""

    image: MetadataImage
    ranges: Mapping[int, ObjectRanges]
    holders: list[tuple[int, int, int]]
    """(position, start, end) of each object that holds the stream, in order."""

    @property
    def objects(self) -> int:
        """Objects that the node lists."""
        return len(self.ranges)

    @property
    def end(self) -> int:
        """One past the stream's last offset."""
        return self.holders[-1][2]


@dataclass(frozen=True)
class Cost:
    """What a lookup cost."""

    gets: int
    rounds: int
    latencies: int


def make_cold_node(objects: int, share: float, seed: int, *, clusters: int = 0) -> Node:
    """A node whose objects hold the stream with a probability of ``share``, or lie in a few clusters.

    The rate of the stream wanders, so that offsets do not tell positions.
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
    stream = make_stream(STREAM_ID, 0, [OwnershipRange(0, 0, offset, NODE_ID)], [])
    node = make_node(NODE_ID, [(position, ObjectRef(position)) for position in range(objects)])
    return Node(MetadataImage(0, "DEFAULT", {STREAM_ID: stream}, {NODE_ID: node}), ranges, holders)


def _clustered(rng: random.Random, objects: int, share: float, clusters: int) -> list[bool]:
    length = max(1, int(objects * share / clusters))
    chosen = [False] * objects
    for _ in range(clusters):
        start = rng.randrange(objects - length)
        chosen[start : start + length] = [True] * length
    return chosen


def empty_knowledge() -> SharedIndexCache:
    """Nothing known, and a clock that stands still."""
    return SharedIndexCache(SMALL, lambda: 0.0, lambda: 0.5)


def filters_known(node: Node) -> SharedIndexCache:
    """All filters known, and nothing else."""
    known = empty_knowledge()
    for position, held in node.ranges.items():
        known.add_filters(NODE_ID, [(position, StreamFilter.build(held.stream_ids))])
    return known


def cold_lookup(
    node: Node, known: SharedIndexCache, policy: Policy, start: int, end: int, limit: int
) -> tuple[Answer, Cost]:
    """One lookup; what it opens is not remembered in ``known``, so that the next one is as cold."""
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
    """The production system's way: a persisted index of the first and last 3 entries a stream, then load to the end.

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
    """The cost of lookups at these offsets, each knowing the same before it starts."""
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

STATELESS: tuple[Policy, ...] = (Window(), WindowPreload(), Spread())


def nodes() -> dict[str, Node]:
    """The nodes that are measured, by name."""
    return {
        "dense": make_cold_node(OBJECTS_MAX, 1.0, SEED),
        "10 %": make_cold_node(OBJECTS_MAX, 0.1, SEED + 1),
        "1 %": make_cold_node(OBJECTS_MAX, 0.01, SEED + 2),
        "1 % bursty": make_cold_node(OBJECTS_MAX, 0.01, SEED + 3, clusters=5),
    }


def run(rounds: int = 7) -> list[Comparison]:  # noqa: ARG001 - counts are exact, so there is nothing to repeat
    """Mean GETs and latencies of each policy against opening everything, at the same offsets for all."""
    return [row for name, node in nodes().items() for row in _of_node(name, node)]


def _of_node(name: str, node: Node) -> Iterator[Comparison]:
    known = filters_known(node)
    for place in PLACES:
        starts = offsets(node, place, RANDOM_OFFSETS if place == "random" else 3, SEED)
        everything = mean_cost(measure(node, LoadAll(), starts[:1], empty_knowledge()))
        for policy in STATELESS:
            ours = mean_cost(measure(node, policy, starts, empty_knowledge()))
            yield from _rows(f"{name}, {place}, {policy.name}", ours, everything)
        filtered = mean_cost(measure(node, Spread(), starts, known))
        yield from _rows(f"{name}, {place}, spread + filters", filtered, everything)
        production = mean_cost([production_cost(node, start) for start in starts])
        yield from _rows(f"{name}, {place}, persisted sparse index", production, everything)


def _rows(name: str, ours: tuple[float, float, float], everything: tuple[float, float, float]) -> Iterator[Comparison]:
    for column, unit in ((0, "GETs"), (2, "latencies")):
        yield Comparison.exact(f"cold_requests: {name}", ours[column], unit, "load-all", everything[column])
