"""Objects that no record is kept of: found, and retired from their node's list, so that the collector deletes them.

    stream 7   first kept offset 90, closed      object 31   7: [0, 40)  9: [0, 8)      dead: all of it is below
    stream 9   first kept offset 8               object 32   7: [40, 90) 9: [8, 20)     stream 9 is kept: it stays

A stream is trimmed when it is truncated, and a deleted stream is trimmed to its end. Compaction drops such data when it
merges objects for other reasons; an object of which nothing is left is retired here, whatever the number of objects.

**Proof.** An object is retired only if its index shows that each of its streams is kept from the end of the object's
range, or from a higher offset, by the stream shards that were read before. Objects never change, and a first kept
offset never falls. So the proof holds whatever is committed meanwhile, and by whom.

**One write a list.** All dead objects of a node are retired by one conditional write, as compactions of runs of
neighbours without an output (`node_list.with_compaction`); objects that have left the list meanwhile are left out. The
version before is kept, so that the write can be undone until the objects are deleted.

**What is opened.** Objects whose sketch excludes all trimmed streams of their node cannot be dead. Of the others the
last rows of the index are read, those of the youngest streams: one GET of a few KB. Where all of these are of data
below first kept offsets, the whole index is read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from accel.catalog.bad_objects import Cause
from accel.catalog.compact import erase_old_versions, keep_version
from accel.catalog.keys import require
from accel.catalog.node_list import with_compaction
from accel.catalog.parts import CatalogParts, open_each
from accel.catalog.records import STREAM_OBJECT, NodeList, Rows, StreamShard, no_rows, refs_of
from accel.catalog.shard_writes import read_list
from accel.catalog.sketches_and_ends import NodeFacts
from accel.errors import AccelError
from loaders.format import FOOTER_SIZE_BYTES, ROW_SIZE_BYTES, BlockIndex
from loaders.format.index import ROW_DTYPE
from loaders.object_index import OpenedObject
from loaders.object_ref import ObjectRef
from loaders.threads import map_bounded
from range_index import ObjectRanges

Integers = NDArray[np.int64]
logger = logging.getLogger(__name__)

LAST_ROWS = 100
"""The number of rows that are read of a large index, to find out whether the object may be dead."""


@dataclass(frozen=True, slots=True, eq=False)
class FirstKept:
    """The first kept offsets of the trimmed streams of a catalog. Threads: immutable.

    Args:
        stream_ids: streams whose first kept offset is above 0, ascending.
        starts: these offsets.
        is_gone: whether the stream is closed, and trimmed to its end: nothing of it is left, nor will be.
    """

    stream_ids: Integers
    starts: Integers
    is_gone: NDArray[np.bool_]

    @classmethod
    def of(cls, shards: Sequence[StreamShard]) -> FirstKept:
        """From all stream shards. O(n log n) in their rows."""
        streams = np.sort(np.concatenate([shard.streams for shard in shards]), order="stream_id")
        ranges = np.concatenate([shard.ranges for shard in shards])
        last = ranges[np.lexsort((ranges["range_index"], ranges["stream_id"]))]
        last = last[np.append(np.diff(last["stream_id"]) != 0, True)[: len(last)]]
        trimmed = streams[streams["start_offset"] > 0]
        ids, starts = trimmed["stream_id"].copy(), trimmed["start_offset"].copy()
        at = np.minimum(np.searchsorted(last["stream_id"], ids), max(len(last) - 1, 0))
        ends = last["end"][at] if len(last) else np.full(len(ids), -1)
        is_known = last["stream_id"][at] == ids if len(last) else np.zeros(len(ids), dtype=np.bool_)
        return cls(ids, starts, is_known & (ends >= 0) & (starts >= ends))

    def of_streams(self, stream_ids: Integers) -> Integers:
        """The first kept offsets of these streams; 0 for those that were never trimmed. O(n log streams)."""
        if not len(self.stream_ids):
            return np.zeros(len(stream_ids), dtype=np.int64)
        at = np.minimum(self.stream_ids.searchsorted(stream_ids), len(self.stream_ids) - 1)
        return np.where(self.stream_ids[at] == stream_ids, self.starts[at], 0)

    def dropped_bytes(self, index: BlockIndex) -> int:
        """Bytes of an object's blocks that are below first kept offsets, and of their rows. O(rows log streams)."""
        rows = index.rows
        starts = rows["start"].astype(np.int64)
        kept_from = self.of_streams(rows["stream_id"].astype(np.int64))
        is_dropped = (starts + rows["end_delta"].astype(np.int64) <= kept_from) & (starts < kept_from)
        return int(rows["size_bytes"][is_dropped].sum(dtype=np.int64)) + ROW_SIZE_BYTES * int(is_dropped.sum())

    def keeps_nothing_of(self, ranges: ObjectRanges) -> bool:
        """Whether all data of an object with these ranges is below first kept offsets; it has at least one stream."""
        return bool(len(ranges) and (ranges.ends <= self.of_streams(ranges.stream_ids)).all())


def may_hold(node_list: NodeList, stream_ids: Integers) -> NDArray[np.bool_]:
    """By position in the list, whether an object may hold any of these streams, by its sketch. O(streams * objects)."""
    facts, found = NodeFacts(node_list), np.zeros(len(node_list.live), dtype=np.bool_)
    for stream_id in stream_ids.tolist():
        excluded = facts.excludes(stream_id)
        if excluded is None:
            return np.ones(len(node_list.live), dtype=np.bool_)
        found |= ~excluded
        if found.all():
            break
    return found


def streams_of_node(shards: Sequence[StreamShard], node_id: int, stream_ids: Integers) -> Integers:
    """Those of these streams that the node may have written, ascending.

    A trimmed stream that moved has no record any more of its first nodes: it may be of any.
    """
    ranges = np.concatenate([shard.ranges for shard in shards])
    ranges = ranges[np.lexsort((ranges["range_index"], ranges["stream_id"]))]
    is_first = np.append(True, np.diff(ranges["stream_id"]) != 0)[: len(ranges)]
    may_be = (ranges["node_id"] == node_id) | (is_first & (ranges["range_index"] > 0))
    mine: Integers = np.intersect1d(stream_ids, ranges["stream_id"][may_be])
    return mine


@dataclass(frozen=True, slots=True)
class DeadObjects:
    """Objects of one node's list that no record is kept of.

    Args:
        node_id: the node.
        refs: the objects, with their sizes.
    """

    node_id: int
    refs: tuple[ObjectRef, ...]


def find_dead(parts: CatalogParts, lists: Sequence[NodeList], shards: Sequence[StreamShard]) -> Iterator[DeadObjects]:
    """The dead objects of each node that has some.

    An object that cannot be opened counts as one that is needed; one that was set aside because of that is not opened.

    Requests: one for each object whose sketch does not exclude all trimmed streams; for those whose last rows are of
    trimmed data one or two more.

    Args:
        parts: of the catalog.
        lists: the lists of the nodes.
        shards: all stream shards, in the order of their numbers.
    """
    first_kept = FirstKept.of(shards)
    for node_list in lists:
        trimmed = streams_of_node(shards, node_list.node_id, first_kept.stream_ids)
        aside = node_list.set_aside["object_id"][node_list.set_aside["cause"] != Cause.BLOCK]
        rows = node_list.live[may_hold(node_list, trimmed) & ~np.isin(node_list.live["object_id"], aside)]
        dead = tuple(_dead_of(parts, node_list.node_id, rows, first_kept))
        if dead:
            yield DeadObjects(node_list.node_id, dead)


def _dead_of(parts: CatalogParts, node_id: int, rows: Rows, first_kept: FirstKept) -> Iterator[ObjectRef]:
    looked_at = map_bounded(parts.executor, lambda ref: _may_be_dead(parts, ref, first_kept), refs_of(rows))
    refs = (ref for ref, may_be in zip(refs_of(rows), looked_at, strict=True) if may_be)
    for ref, opened in open_each(parts, ((node_id, ref) for ref in refs)):
        if isinstance(opened, OpenedObject) and first_kept.keeps_nothing_of(opened.ranges):
            yield ref


def _may_be_dead(parts: CatalogParts, ref: ObjectRef, first_kept: FirstKept) -> bool:
    """Whether the last rows of an index are of data below first kept offsets; a small index is not looked at."""
    if ref.is_composite or ref.index_size_bytes <= 2 * LAST_ROWS * ROW_SIZE_BYTES:
        return not ref.is_composite
    end = ref.size_bytes - FOOTER_SIZE_BYTES
    try:
        found = parts.store.get_range(parts.layout.object_key(ref.object_id), end - LAST_ROWS * ROW_SIZE_BYTES, end)
    except AccelError:
        return False
    index = np.frombuffer(found.body, dtype=ROW_DTYPE)
    ends = index["start"].astype(np.int64) + index["end_delta"].astype(np.int64)
    return bool((ends <= first_kept.of_streams(index["stream_id"].astype(np.int64))).all())


@dataclass(frozen=True, slots=True)
class Space:
    """The bytes of some objects.

    Args:
        size_bytes: of all objects that are listed.
        dead_bytes: of these, the data below first kept offsets.
        retired_bytes: of objects that have left the list, and that readers of old images or an undo may need.
        waiting_bytes: of objects that are being deleted (delete pending).
    """

    size_bytes: int
    dead_bytes: int
    retired_bytes: int
    waiting_bytes: int

    def to_dict(self) -> dict[str, int]:
        """Plain data, with the live bytes: listed and not dead."""
        return {"live_bytes": self.size_bytes - self.dead_bytes, **asdict(self)}

    @classmethod
    def of(cls, listed: Rows, dead_bytes: int, retired: Rows) -> Space:
        """Of rows with sizes, and retired rows."""
        is_pending = retired["delete_pending"] != 0
        sizes_bytes = retired["size_bytes"]
        left = int(sizes_bytes[~is_pending].sum()), int(sizes_bytes[is_pending].sum())
        return cls(int(listed["size_bytes"].sum()), dead_bytes, *left)


MEASURED_OBJECTS_MAX = 1000
"""The number of objects that are opened to find out how much of them is dead; of more, every second, third, ..."""


def measure_space(
    parts: CatalogParts, lists: Sequence[NodeList], shards: Sequence[StreamShard], *, is_opened: bool = True
) -> tuple[dict[int, Space], Space]:
    """The space of each node's list, and of all stream objects.

    The dead bytes of lists with more than 1,000 objects that may hold data of trimmed streams are estimated from that
    number of them; those of a stream object follow from its offsets. An object that cannot be read counts as live, and
    so do all objects of lists unless `is_opened`; then there is no request.

    Requests: one for each object whose sketch does not exclude all trimmed streams, at most 1,000.
    """
    first_kept = FirstKept.of(shards)
    may_be = {
        each.node_id: each.live[
            may_hold(each, streams_of_node(shards, each.node_id, first_kept.stream_ids))
            & ~np.isin(each.live["object_id"], each.set_aside["object_id"])
        ]
        for each in lists
    }
    step = 1 + sum(map(len, may_be.values())) // MEASURED_OBJECTS_MAX
    refs = ((node_id, ref) for node_id, rows in may_be.items() for ref in refs_of(rows[::step]) if is_opened)
    wanted = [(node_id, ref) for node_id, ref in refs if not ref.is_composite]
    dead = dict.fromkeys(may_be, 0)
    for (node_id, ref), (_, opened) in zip(wanted, open_each(parts, wanted), strict=True):
        if isinstance(opened, OpenedObject):
            is_dead = first_kept.keeps_nothing_of(opened.ranges)
            dead[node_id] += ref.size_bytes if is_dead else first_kept.dropped_bytes(opened.index)
    opened_bytes = {node_id: int(rows["size_bytes"][::step].sum()) for node_id, rows in may_be.items()}
    spaces = {
        each.node_id: Space.of(
            each.live,
            dead[each.node_id] * int(may_be[each.node_id]["size_bytes"].sum()) // max(1, opened_bytes[each.node_id]),
            each.retired,
        )
        for each in lists
    }
    own = np.concatenate([shard.stream_objects for shard in shards])
    below = np.clip(first_kept.of_streams(own["stream_id"]) - own["start"], 0, own["end"] - own["start"])
    dead_bytes = int((own["size_bytes"] * (below / np.maximum(1, own["end"] - own["start"]))).sum())
    return spaces, Space.of(own, dead_bytes, np.concatenate([shard.retired for shard in shards]))


def retire_dead(parts: CatalogParts, dead: DeadObjects) -> tuple[ObjectRef, ...]:
    """Retire dead objects that are still in their node's list; returns those that this call retired.

    Requests: one or two for the list, and one for its version. Repeating it is safe.

    Args:
        parts: of the catalog.
        dead: of `find_dead`.

    Raises:
        CatalogMissing: the node has no list.
        StoreError, AmbiguousWrite, DataConflict: the objects may be retired or not.
    """
    key = parts.keys.node_list(dead.node_id)
    seen = read_list(key, dead.node_id)
    before, now_ms = seen.value, parts.now_ms()
    if with_dead_retired(before, dead.refs, now_ms) is None:
        return ()
    keep_version(parts, seen)
    after = key.change(lambda now: with_dead_retired(require(now, key.where), dead.refs, now_ms), seen=seen).value
    try:
        erase_old_versions(parts, dead.node_id)
    except AccelError:  # the next commit does it
        logger.warning("node %d: old versions of its list are kept for now", dead.node_id, exc_info=True)
    gone = np.setdiff1d(before.live["object_id"], after.live["object_id"])
    return tuple(ref for ref in dead.refs if ref.object_id in gone)


def with_dead_retired(now: NodeList, refs: Sequence[ObjectRef], now_ms: int) -> NodeList | None:
    """Retire objects of which nothing is kept; those that are not live, or of another size, are ignored.

    Args:
        now: the list.
        refs: the objects, with their sizes.
        now_ms: milliseconds since 1970; the objects are retired at that time.

    Returns:
        None if none of them is live.
    """
    sizes = {ref.object_id: ref.size_bytes for ref in refs}
    live = now.live[["object_id", "size_bytes"]].tolist()
    is_dead = np.array([sizes.get(object_id) == size_bytes for object_id, size_bytes in live], dtype=np.bool_)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], is_dead, [False]))))
    following: NodeList | None = None
    for first, end in edges.reshape(-1, 2).tolist():
        following = with_compaction(following or now, live[first:end], None, no_rows(STREAM_OBJECT), now_ms)
    return following
