"""What the catalog says of streams: whether they are known, where they begin, and where closed ones end."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from accel.catalog.parts import CatalogParts
from accel.catalog.rows import OPEN
from accel.catalog.stream_shards import buckets_of


class StreamSpan(NamedTuple):
    """What a catalog says of a stream.

    Args:
        stream_id: the stream.
        start: its first kept offset.
        end: where it ends; `OPEN` if a node has it open, which alone knows.
        node_id: the node that wrote it last.
    """

    stream_id: int
    start: int
    end: int
    node_id: int

    @property
    def is_open(self) -> bool:
        """Whether a node has it open."""
        return self.end == OPEN

    def is_open_beside(self, node_id: int) -> bool:
        """Whether another node than this one has it open."""
        return self.is_open and self.node_id != node_id


def stream_spans(parts: CatalogParts, stream_ids: Collection[int]) -> dict[int, StreamSpan]:
    """What the catalog says of those of these streams that it knows. One request for each bucket that they lie in."""
    ids = np.fromiter(stream_ids, dtype=np.int64)
    if not len(ids):
        return {}
    numbers = np.unique(buckets_of(ids, parts.format.stream_buckets)).tolist()
    found: dict[int, StreamSpan] = {}
    for seen in parts.executor.map(lambda number: parts.cells.bucket(number).read(), numbers):
        if seen is None:
            continue
        streams, ranges = seen.value.streams, seen.value.ranges
        starts = dict(zip(streams["stream_id"].tolist(), streams["start_offset"].tolist(), strict=True))
        rows = ranges[np.isin(ranges["stream_id"], ids)]  # ascending, so that the last range of each stream counts
        for stream_id, end, node_id in rows[["stream_id", "end", "node_id"]].tolist():
            found[stream_id] = StreamSpan(stream_id, starts[stream_id], end, node_id)
    return found
