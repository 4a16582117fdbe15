"""Giving up an object that cannot be read, and that no copy of the bucket has.

The ranges that it held, or may have held (`catalog.lost_objects`), are written to the shards of their streams, then the
object is retired, by one conditional write of the list each. After a crash in between the command is repeated. From
then on `accel catalog verify` and compaction do not miss the object any more, and a reader that comes to such a range
gets `OffsetsGivenUp`, which names its end, until the stream is trimmed beyond it. `accel catalog undo` brings the
object back until the collector deletes it; lookups ignore the ranges then, as they find the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from accel.catalog.bad_objects import Cause, cause_of
from accel.catalog.catalog import ObjectCatalog
from accel.catalog.dead_objects import DeadObjects, FirstKept, retire_dead
from accel.catalog.keys import require
from accel.catalog.lost_objects import NO_END, RANGE, possible_ranges
from accel.catalog.parts import CatalogParts, open_each
from accel.catalog.records import GIVEN_UP, OPEN, NodeList, Rows, StreamShard, make_rows, refs_of
from accel.catalog.stream_shards import shards_of, with_given_up
from accel.errors import MaintenanceRefused
from loaders.object_index import OpenedObject
from loaders.tables.typed_key import TypedKey
from range_index import ObjectRanges


@dataclass(frozen=True, slots=True)
class LostRange:
    """Offsets [start, end) of a stream that an object held, or may have held; an end of -1 is not known."""

    stream_id: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class GivenUp:
    """An object that is given up.

    Args:
        node_id: the node whose list has it.
        object_id: its id.
        size_bytes: in the list.
        reason: why it cannot be read.
        is_exact: whether its index could be read, so that the ranges are those that it held.
        lost: the ranges that are kept, and in no other object.
    """

    node_id: int
    object_id: int
    size_bytes: int
    reason: str
    is_exact: bool
    lost: tuple[LostRange, ...]


def give_up(catalog: ObjectCatalog, object_ids: Sequence[int], *, apply: bool) -> tuple[GivenUp, ...]:
    """Give live objects of nodes' lists up that cannot be read, or would give up without `apply`.

    Requests: a refresh, one or two an object, one for each object of its list; with `apply` two for each shard of the
    lost ranges, and three or four for the list.

    Args:
        catalog: the catalog of the objects.
        object_ids: the objects.
        apply: whether to write.

    Raises:
        MaintenanceRefused: an object is not in a list, can be read, or the store does not answer for it now. Nothing
            was written.
        StoreError, TableError: the objects may be given up or not; repeat the call.
    """
    state, parts = catalog.refresh_state(), catalog.parts
    lists, shards = state.node_lists(), [seen.value for seen in state.shards]
    found = tuple(_given_up(parts, lists, shards, object_id) for object_id in dict.fromkeys(object_ids))
    if apply:
        for each in found:
            _record(parts, each)
            node_list = lists[each.node_id]
            rows = node_list.live[node_list.live["object_id"] == each.object_id]
            retire_dead(parts, DeadObjects(each.node_id, refs_of(rows)))
    return found


def _given_up(
    parts: CatalogParts, lists: dict[int, NodeList], shards: Sequence[StreamShard], object_id: int
) -> GivenUp:
    holders = [node_list for node_list in lists.values() if (node_list.live["object_id"] == object_id).any()]
    if not holders:
        raise MaintenanceRefused(f"object {object_id}: expected it in a node's list, found it in none")
    node_list = holders[0]
    at = int(np.flatnonzero(node_list.live["object_id"] == object_id)[0])
    [ref] = refs_of(node_list.live[at : at + 1])
    rows = node_list.set_aside[node_list.set_aside["object_id"] == object_id]
    cause = Cause(int(rows["cause"][0])) if len(rows) else None
    [(_, opened)] = open_each(parts, [(node_list.node_id, ref)])
    ranges = None
    if isinstance(opened, OpenedObject):
        if cause is not Cause.BLOCK:
            raise MaintenanceRefused(f"object {object_id}: expected one that cannot be read, found that it can")
        ranges, reason = opened.ranges, Cause.BLOCK.text
    elif cause_of(opened) is None or (opened.retryable and cause is not Cause.UNAVAILABLE):
        raise MaintenanceRefused(f"object {object_id}: expected one that is lost for good, found {opened}") from opened
    else:
        reason = f"{type(opened).__name__}: {opened}"
    if ranges is None:
        possible = possible_ranges(parts, node_list, at, shards, [len(node_list.live)]).rows()
    else:
        possible = _exact(ranges, FirstKept.of(shards))
    own = np.concatenate(
        [*(shard.stream_objects for shard in shards), *(each.stream_objects for each in lists.values())]
    )
    lost = tuple(piece for row in possible.tolist() for piece in _not_in_objects(LostRange(*row), own))
    ids = (node_list.node_id, object_id, ref.size_bytes)
    return GivenUp(*ids, reason, ranges is not None, lost)


def _exact(ranges: ObjectRanges, first_kept: FirstKept) -> Rows:
    starts = np.maximum(ranges.starts, first_kept.of_streams(ranges.stream_ids))
    rows = np.empty(len(ranges), dtype=RANGE)
    rows["stream_id"], rows["start"], rows["end"] = ranges.stream_ids, starts, ranges.ends
    return rows[rows["start"] < rows["end"]]


def _not_in_objects(lost: LostRange, own: Rows) -> Iterator[LostRange]:
    """The parts of a range that no object of the stream alone holds; an unknown end becomes -1."""
    rows = own[own["stream_id"] == lost.stream_id]
    start = lost.start
    for held_from, held_to in np.sort(rows[["start", "end"]]).tolist():
        if start < min(held_from, lost.end):
            yield LostRange(lost.stream_id, start, min(held_from, lost.end))
        start = max(start, held_to)
    if start < lost.end:
        yield LostRange(lost.stream_id, start, OPEN if lost.end == NO_END else lost.end)


def _record(parts: CatalogParts, each: GivenUp) -> None:
    known = [row for row in each.lost if row.end != OPEN]
    if not known:
        return
    rows = make_rows(
        GIVEN_UP,
        stream_id=[row.stream_id for row in known],
        start=[row.start for row in known],
        end=[row.end for row in known],
        object_id=np.full(len(known), each.object_id),
        given_up_at_ms=np.full(len(known), parts.now_ms()),
    )
    numbers = shards_of(rows["stream_id"], parts.format.stream_buckets)
    for number in np.unique(numbers).tolist():
        _record_in(parts.keys.shard(number), rows[numbers == number])


def _record_in(key: TypedKey[StreamShard], rows: Rows) -> None:
    key.change(lambda now: with_given_up(require(now, key.where), rows))
