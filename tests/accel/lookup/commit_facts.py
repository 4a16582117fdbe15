"""Facts of commits by hand: what an image from a catalog tells of its objects, for images that are made in tests."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import numpy as np

from accel.image import MetadataImage
from accel.lookup.known_ranges import Flags
from range_index import ObjectRanges


@dataclass(frozen=True, eq=False)
class Told:
    """Facts as they are given.

    Args:
        lacking: stream id -> by position, whether the object lacks the stream.
        ends: stream id -> where it ends.
    """

    lacking: dict[int, Flags] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)

    def excludes(self, stream_id: int) -> Flags | None:
        return self.lacking.get(stream_id)

    def end_of(self, stream_id: int) -> int | None:
        return self.ends.get(stream_id)


def with_facts(image: MetadataImage, contents: dict[int, ObjectRanges], rng: random.Random) -> MetadataImage:
    """The same image, some of whose commits told what they knew: a random part of the truth about what objects lack.

    Ends are true ones, none, and sometimes wrong ones: they only say where to look first.
    """
    nodes = {}
    for node_id, node in image.nodes.items():
        held = [contents[object_id] for object_id in node.object_ids.tolist()]
        lacking, ends = {}, {}
        for stream_id in image.streams:
            spans = [ranges.range_of(stream_id) for ranges in held]
            told = rng.choice([0.0, 0.5, 1.0])
            if rng.random() < 0.9:
                lacking[stream_id] = np.array([span is None and rng.random() < told for span in spans], dtype=np.bool_)
            if rng.random() < 0.8:
                true = max((span.end for span in spans if span is not None), default=0)
                ends[stream_id] = rng.choice([true, true, true - 3, 0, 10**9])
        nodes[node_id] = replace(node, facts=Told(lacking, ends))
    return replace(image, nodes=nodes)
