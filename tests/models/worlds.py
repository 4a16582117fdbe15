"""Random worlds: streams that move between nodes, with holes, stream objects between, and objects that lack a stream.

A world is grown the way a cluster grows it: in each step one node uploads an object with the next offsets of some of
the streams it owns; ownership moves; a piece may be lost (a hole), be split off into a stream object, or be written
with a gap inside its object. So the rule that every image keeps holds by construction: through a node's list the
offsets of each stream ascend. Order ids ascend, object ids do not follow them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from tests.models.plain_scan import Contents

Gaps = dict[int, dict[int, tuple[int, int]]]
"""Object id -> stream id -> the [start, end) that is missing inside its range."""


@dataclass
class World:
    """An image as plain data, what its set objects hold, and true hints about objects that are gone."""

    metadata: dict[str, Any]
    contents: Contents
    gaps: Gaps
    stale: dict[tuple[int, int], list[tuple[int, int, int]]] = field(default_factory=dict)

    def stream_ends(self) -> dict[int, int]:
        """One past the last offset that any object holds of each stream."""
        ends: dict[int, int] = {}
        for held in self.contents.values():
            for stream_id, (_, end) in held.items():
                ends[stream_id] = max(ends.get(stream_id, 0), end)
        return ends


@dataclass
class _Stream:
    owner: int
    next: int
    start: int
    range_start: int
    ranges: list[dict[str, int]] = field(default_factory=list)
    objects: list[dict[str, int]] = field(default_factory=list)


def grow_world(seed: int, *, steps: int, streams: int, nodes: int) -> World:
    """A world from a seed."""
    return _Grower(random.Random(seed), streams, nodes).grow(steps)


def worlds(*, steps_max: int = 40, streams_max: int = 4, nodes_max: int = 3) -> st.SearchStrategy[World]:
    """Worlds of up to so many uploads."""
    return st.builds(
        grow_world,
        st.integers(0, 2**32),
        steps=st.integers(0, steps_max),
        streams=st.integers(1, streams_max),
        nodes=st.integers(1, nodes_max),
    )


def with_ties(world: World, rng: random.Random) -> World:
    """The world with objects that share an order id, as a broker's compactions leave them, in any order of addition.

    Some neighbours get the order id of the last of them; some objects are joined by one that holds what they and their
    neighbours before them hold, which are gone. Through all other objects offsets ascend as before.
    """
    nodes = [{**node, "stream_set_objects": list(_tied(world, node, rng))} for node in world.metadata["nodes"]]
    return World({**world.metadata, "nodes": nodes}, world.contents, world.gaps, world.stale)


def _tied(world: World, node: dict[str, Any], rng: random.Random) -> Iterator[dict[str, int]]:
    listed = sorted(node["stream_set_objects"], key=lambda each: each["order_id"])
    while listed:
        few = listed[: rng.choice([1, 1, 2, 2, 3])]
        listed = listed[len(few) :]
        order_id = few[-1]["order_id"]
        if rng.random() < 0.3:
            merged = {"object_id": 2000 + few[-1]["object_id"], "order_id": order_id}
            _merge(world, merged["object_id"], few)
            few = [merged, few[-1]]
        rng.shuffle(few)
        yield from ({**each, "order_id": order_id} for each in few)


def _merge(world: World, object_id: int, sources: list[dict[str, int]]) -> None:
    held = world.contents[object_id] = {}
    gaps = world.gaps[object_id] = {}
    for source in sources:
        for stream_id, (start, end) in world.contents[source["object_id"]].items():
            first, last = held.get(stream_id, (start, start))
            if last < start:
                gaps[stream_id] = (last, start)
            if stream_id in world.gaps[source["object_id"]]:
                gaps[stream_id] = world.gaps[source["object_id"]][stream_id]
            held[stream_id] = (first, end)


class _Grower:
    def __init__(self, rng: random.Random, streams: int, nodes: int) -> None:
        self.rng = rng
        self.nodes: dict[int, list[dict[str, int]]] = {node: [] for node in range(nodes)}
        self.streams = {
            stream: _Stream(rng.randrange(nodes), first, first, first)
            for stream, first in ((stream * 7 + 1, rng.choice([0, 0, 5, 1000])) for stream in range(streams))
        }
        self.contents: Contents = {}
        self.gaps: Gaps = {}
        self.stale: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
        self.ids = rng.sample(range(10 * 100), 100 * 2)
        self.density = rng.choice([0.15, 0.5, 0.9])
        self.trouble = rng.choice([0.0, 0.05, 0.25])

    def grow(self, steps: int) -> World:
        for order in range(steps):
            self.upload(order)
            if self.rng.random() < 0.1:
                self.move(self.rng.choice(list(self.streams)))
        return self.world()

    def upload(self, order: int) -> None:
        node = self.rng.choice(list(self.nodes))
        held: dict[int, tuple[int, int]] = {}
        gaps: dict[int, tuple[int, int]] = {}
        object_id = self.ids.pop()
        for stream_id, stream in self.streams.items():
            if stream.owner == node and self.rng.random() < self.density:
                piece = self.piece(stream_id, stream, node)
                if piece is not None:
                    held[stream_id] = piece
                    if piece[1] - piece[0] > 2 and self.rng.random() < self.trouble:
                        gaps[stream_id] = (piece[0] + 1, piece[1] - 1)
        self.contents[object_id] = held
        self.gaps[object_id] = gaps
        self.nodes[node].append({"object_id": object_id, "order_id": order * 3})

    def piece(self, stream_id: int, stream: _Stream, node: int) -> tuple[int, int] | None:
        """The next offsets of a stream, if they end up in the object that is being written."""
        start, end = stream.next, stream.next + self.rng.randint(1, 9)
        stream.next = end
        fate = self.rng.random()
        if fate < self.trouble:
            return None  # lost: a hole
        if fate < 2 * self.trouble:
            stream.objects.append({"object_id": self.rng.randrange(1000), "start": start, "end": end})
            return None
        if fate < 3 * self.trouble:
            # compacted before: its source is gone, but somebody may still know of it
            self.stale.setdefault((node, stream_id), []).append((start, end, 5000 + len(self.stale)))
        return start, end

    def move(self, stream_id: int) -> None:
        stream = self.streams[stream_id]
        self.close_range(stream)
        stream.owner = self.rng.choice(list(self.nodes))

    def close_range(self, stream: _Stream) -> None:
        index = len(stream.ranges)
        stream.ranges.append(
            {"range_index": index, "start": stream.range_start, "end": stream.next, "node_id": stream.owner}
        )
        stream.range_start = stream.next

    def world(self) -> World:
        rows = []
        for stream_id, stream in self.streams.items():
            self.close_range(stream)
            if self.rng.random() < 0.3:
                stream.ranges[-1]["end"] = -1
            row = {"stream_id": stream_id, "start_offset": stream.start, "ranges": stream.ranges}
            rows.append({**row, "stream_objects": stream.objects})
        nodes = [{"node_id": node, "stream_set_objects": listed} for node, listed in self.nodes.items() if listed]
        return World({"streams": rows, "nodes": nodes}, self.contents, self.gaps, self.stale)
