"""GETs of a cold lookup with sketches in the list, without filters and snapshots, on lists of 5,000 objects.

Counts are exact. Each object holds ids from a population of 500,000 streams, and in some objects also the requested
stream (`cold_requests.make_cold_node`):

- *anywhere*: each id is drawn independently.
- *neighbours*: ids come in runs of 16, like those of one topic's partitions.

The peer is the same list without sketches, with lookups of the same offsets. The rows *bytes* contain the bytes that
sketches add to the encoded list, for each of its objects; the peer is the bound of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from accel.catalog.facts import NodeFacts, sketch_rows
from accel.catalog.records import LIVE, NODE_LIST, NodeList, make_rows
from accel.image import MetadataImage
from benchmarks.cold_requests import (
    NODE_ID,
    STREAM_ID,
    Node,
    empty_knowledge,
    make_cold_node,
    mean_cost,
    measure,
    offsets,
)
from benchmarks.harness import Comparison
from bloom import StreamSketch
from loaders.plan import Spread

OBJECTS = 5_000
STREAMS = 500_000
STREAMS_AN_OBJECT = (10, 30, 100, 300, 1_000, 9_000)
NEIGHBOURS = {"anywhere": 1, "neighbours": 16}
RANDOM_OFFSETS = 24
BYTES_MAX = 16
SEED = 20261121


def nodes(objects: int = OBJECTS) -> dict[str, Node]:
    """The nodes of the lookups, by name."""
    return {
        "10 %": make_cold_node(objects, 0.1, SEED + 1),
        "1 %": make_cold_node(objects, 0.01, SEED + 2),
        "1 % bursty": make_cold_node(objects, 0.01, SEED + 3, clusters=5),
    }


def contents(node: Node, streams: int, neighbours: int) -> Iterator[NDArray[np.int64]]:
    """The ids of each object, ascending: about as many as `streams`."""
    chance = np.random.default_rng(SEED)
    holders = {position for position, _, _ in node.holders}
    for position in range(node.objects):
        runs = chance.integers(0, STREAMS // neighbours, max(1, streams // neighbours))
        if position in holders:
            runs[0] = STREAM_ID // neighbours
        else:
            runs[runs == STREAM_ID // neighbours] -= 1
        yield np.unique(runs[:, None] * neighbours + np.arange(min(neighbours, streams)))


def listed(node: Node) -> NodeList:
    """The node's list as a catalog stores it, without sketches."""
    numbers = np.arange(node.objects)
    live = make_rows(
        LIVE,
        object_id=numbers,
        order_id=numbers,
        last_order_id=numbers,
        data_time_ms=0,
        size_bytes=8 << 20,
        index_size_bytes=36,
        attributes=-1,
        tail_checksum=-1,
        added_by=numbers,
    )
    return NodeList(NODE_ID, next_order_id=node.objects, live=live)


def sketched(node: Node, streams: int, neighbours: int) -> tuple[Node, float]:
    """The node with facts of its commits, and their bytes for each object."""
    plain = listed(node)
    built = enumerate(StreamSketch.build(ids) for ids in contents(node, streams, neighbours))
    told = replace(plain, sketches=sketch_rows(built))
    more_bytes = len(NODE_LIST.encode(told)) - len(NODE_LIST.encode(plain))
    image = node.image
    ends = image.nodes[NODE_ID].facts  # recorded with sketches and without
    end_of = None if ends is None else ends.end_of
    nodes_told = {NODE_ID: replace(image.nodes[NODE_ID], facts=NodeFacts(told, end_of))}
    told_image = MetadataImage(image.version, image.namespace, image.streams, nodes_told)
    return replace(node, image=told_image), more_bytes / node.objects


def gets(node: Node) -> float:
    """Mean GETs of lookups at random offsets, each with an empty cache."""
    starts = offsets(node, "random", RANDOM_OFFSETS, SEED)
    return mean_cost(measure(node, Spread(), starts, empty_knowledge()))[0]


def run(rounds: int = 7) -> list[Comparison]:  # noqa: ARG001 - counts are exact, so there is nothing to repeat
    """Mean GETs with sketches and without, and the bytes of the sketches."""
    return [row for name, node in nodes().items() for row in _of_node(name, node)]


def _of_node(name: str, node: Node) -> Iterator[Comparison]:
    without = gets(node)
    for ids, neighbours in NEIGHBOURS.items():
        for streams in STREAMS_AN_OBJECT:
            told, size_bytes = sketched(node, streams, neighbours)
            row = f"cold_sketches: {name}, {streams} streams an object, {ids}"
            yield Comparison.exact(f"{row}, bytes", size_bytes, "bytes", "bound", BYTES_MAX)
            yield Comparison.exact(row, gets(told), "GETs", "no sketches", without)
