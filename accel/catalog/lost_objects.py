"""Objects that cannot be read: which offsets they may hold, and how they leave the list by trimming.

The index of such an object is not known. But the offsets of a stream ascend through a node's list, so that its
neighbours bound what it may hold of a stream (`PossibleRanges`):

    object 30   7: [0, 40)     9: [0, 8)
    object 31   cannot be read               7: [40, 90), between its neighbours; of 9 nothing
    object 32   7: [90, 120)   9: [8, 20)

    at least     the end of the stream in the last object before it that has the stream, and the first kept offset
    at most      its start in the next object that has the stream; its end in the node's checkpoint, or in the time
                 records of the object's commit; the ends of the node's ranges
    not at all   streams that its sketch excludes, and offsets that objects of the stream alone hold

**Trimming.** Where nothing of what it may hold is kept, the object is dead (`find_lost_dead`): the collector retires it
as it retires other dead objects, although it is gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from accel.catalog.bad_objects import Cause
from accel.catalog.dead_objects import DeadObjects, FirstKept
from accel.catalog.parts import CatalogParts, open_each
from accel.catalog.records import (
    OPEN,
    Checkpoint,
    NodeList,
    Rows,
    StreamShard,
    make_rows,
    refs_of,
)
from accel.catalog.sketches_and_ends import sketch_of
from loaders.object_index import OpenedObject
from range_index import ObjectRanges

Ids = NDArray[np.int64]
Flags = NDArray[np.bool_]

NO_END = 2**63 - 1
"""As the end of a possible range: not known."""

NEIGHBOURS = (2, 6, 56)
"""How many neighbours of an object are opened at once, to find out whether it is dead: mostly the first ones tell."""


class PossibleRanges:
    """What an object that cannot be read may hold, narrowed by each neighbour. Threads: one.

    Args:
        node_list: the list.
        at: the position of the object in it.
        shards: all stream shards.
        checkpoint: of the node; None if there is none.
    """

    def __init__(
        self, node_list: NodeList, at: int, shards: Sequence[StreamShard], checkpoint: Checkpoint | None
    ) -> None:
        row = node_list.live[at]
        ranges = np.concatenate([shard.ranges for shard in shards])
        mine = ranges[ranges["node_id"] == node_list.node_id]
        sketch, streams = sketch_of(node_list, int(row["object_id"])), np.unique(mine["stream_id"])
        is_possible = [sketch is None or not sketch.excludes(stream_id) for stream_id in streams.tolist()]
        self.streams: Ids = streams[np.array(is_possible, dtype=np.bool_)]
        self._ranges = mine[np.isin(mine["stream_id"], self.streams)]
        self._low = FirstKept.of(shards).of_streams(self.streams).copy()
        self._high = np.full(len(self.streams), NO_END, dtype=np.int64)
        self._is_seen_before = np.zeros(len(self.streams), dtype=np.bool_)
        self._is_seen_after = np.zeros(len(self.streams), dtype=np.bool_)
        if checkpoint is not None and int(row["last_order_id"]) <= checkpoint.order_id:
            self._lower(checkpoint.ends["stream_id"], checkpoint.ends["end"])
        times = node_list.times[node_list.times["commit"] == row["order_id"]]
        self._lower(times["stream_id"], times["end"])

    def see_after(self, ranges: ObjectRanges) -> None:
        """Take the ranges of a later object of the list into account; nearer ones come first."""
        self._lower(ranges.stream_ids, ranges.starts)
        self._is_seen_after |= np.isin(self.streams, ranges.stream_ids)

    def see_before(self, ranges: ObjectRanges) -> None:
        """Take the ranges of an earlier object of the list into account; nearer ones come first."""
        at, theirs = self._places(ranges.stream_ids)
        self._low[at] = np.maximum(self._low[at], ranges.ends[theirs])
        self._is_seen_before |= np.isin(self.streams, ranges.stream_ids)

    def rows(self) -> Rows:
        """(stream id, start, end) rows of the ranges that it may hold; an end of `NO_END` is not known."""
        return self._possible()[0]

    @property
    def is_settled(self) -> bool:
        """Whether no further neighbour changes anything, or some range is certainly between two neighbours."""
        rows, at = self._possible()
        return not len(rows) or bool((self._is_seen_before & self._is_seen_after)[at].any())

    def _possible(self) -> tuple[Rows, Ids]:
        at = np.searchsorted(self.streams, self._ranges["stream_id"])
        own_ends = np.where(self._ranges["end"] == OPEN, NO_END, self._ranges["end"])
        starts, ends = np.maximum(self._ranges["start"], self._low[at]), np.minimum(own_ends, self._high[at])
        chosen = np.flatnonzero(starts < ends)
        rows = (
            make_rows(RANGE, stream_id=self._ranges["stream_id"][chosen], start=starts[chosen], end=ends[chosen])
            if len(chosen)
            else np.empty(0, dtype=RANGE)
        )
        return rows, at[chosen]

    def _lower(self, stream_ids: Ids, ends: Ids) -> None:
        at, theirs = self._places(stream_ids)
        np.minimum.at(self._high, at, ends[theirs])

    def _places(self, stream_ids: Ids) -> tuple[Ids, Ids]:
        theirs = np.flatnonzero(np.isin(stream_ids, self.streams))
        return np.searchsorted(self.streams, stream_ids[theirs]), theirs


RANGE = np.dtype([("stream_id", "<i8"), ("start", "<i8"), ("end", "<i8")])
"""A range of offsets that an object may hold."""


def possible_ranges(
    parts: CatalogParts,
    node_list: NodeList,
    at: int,
    shards: Sequence[StreamShard],
    chunks: Sequence[int] = NEIGHBOURS,
) -> PossibleRanges:
    """What an object that cannot be read may hold, from as many of its neighbours as it takes.

    Requests: one for the node's checkpoint, and one for each neighbour; neighbours that cannot be read tell nothing.

    Args:
        parts: of the catalog.
        node_list: the list.
        at: the position of the object in it.
        shards: all stream shards.
        chunks: how many neighbours are opened at once, the nearest first.
    """
    seen = parts.keys.checkpoint(node_list.node_id).read()
    checkpoint = None if seen is None or seen.value.order_id >= node_list.next_order_id else seen.value
    possible = PossibleRanges(node_list, at, shards, checkpoint)
    places = sorted((place for place in range(len(node_list.live)) if place != at), key=lambda place: abs(place - at))
    for size in chunks:
        if possible.is_settled:
            break
        chunk, places = places[:size], places[size:]
        wanted = [(node_list.node_id, ref) for ref in refs_of(node_list.live[np.array(chunk, dtype=np.int64)])]
        for place, (_, opened) in zip(chunk, open_each(parts, wanted), strict=True):
            if isinstance(opened, OpenedObject):
                (possible.see_after if place > at else possible.see_before)(opened.ranges)
    return possible


def find_lost_dead(
    parts: CatalogParts, lists: Sequence[NodeList], shards: Sequence[StreamShard]
) -> Iterator[DeadObjects]:
    """The objects of each node that were set aside, and of whose possible contents nothing is kept.

    Requests: those of `possible_ranges` for each object that was set aside, if any stream is trimmed.

    Raises:
        StoreError: a checkpoint could not be read now.
    """
    if not len(FirstKept.of(shards).stream_ids):
        return
    for node_list in lists:
        aside = node_list.set_aside["object_id"][node_list.set_aside["cause"] != Cause.BLOCK]
        places = np.flatnonzero(np.isin(node_list.live["object_id"], aside)).tolist()
        dead = [at for at in places if not len(possible_ranges(parts, node_list, at, shards).rows())]
        if dead:
            yield DeadObjects(node_list.node_id, refs_of(node_list.live[np.array(dead, dtype=np.int64)]))
