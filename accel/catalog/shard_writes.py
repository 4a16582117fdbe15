"""Writes to stream shards: opening, closing and trimming streams, and moving stream objects into their shards.

Shards are independent keys: one conditional write for each touched shard, in parallel. A change of several shards may
stop half-way, with some streams changed and others not. Every change may be repeated; a repetition skips the streams
that are changed already.

**Moving.** Stream objects are committed to a node's list, so that one conditional write commits a whole upload or
compaction, and a fenced writer can commit none. They are then moved to the shards, because a list is read and written
often and must be small. Each step may be repeated, by this process or another one:

    1. stream objects of undone commits are retired in the shards, whether they were moved there or still wait
    2. a shard is read, then the list; rows that the list still has are added to the shard
    3. when all shards have their rows, the rows are removed from the list

A slow mover cannot restore objects that were moved, replaced and deleted meanwhile: the other mover wrote the shard
after the slow mover had read it, so the write of step 2 loses its race, and the list, read again, has no row to move
any more. The same holds for rows that an undo removed from the list before they had moved: step 1 finds these rows in
the version of the list that the undo kept, and writes them into their shards as retired, even if no process moves them
there; only then are the undone commits removed from the list. Readers see an object twice for a while, in the list and
in the shard, but never not at all, because they read lists first.

**Versions of a list** are kept for this, and for undoing: each version is an immutable key, written before each commit
that removes objects from the list, and before each undo.

**Merging** stream objects is refused while an undo can remove one of them. A compaction can be undone as long as its
sources exist; then the sources are restored, and the stream objects that it made are retired. A stream object that had
been merged with others could not be retired, and its offsets would be found twice for ever. So the stream objects of a
compaction are not merged until the collector has made its sources delete pending. The objects of uploads may be merged
at once: uploads are never undone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from accel.catalog.keys import NODE_LIST_HISTORY, list_version_prefix, must_read, parse_list_version_key, require
from accel.catalog.node_list import undoable_commits, without_stream_objects, without_withdrawn
from accel.catalog.parts import MILLISECONDS, CatalogParts
from accel.catalog.records import (
    OPEN,
    OWNED_RANGE,
    STREAM_OBJECT,
    ListVersion,
    NodeList,
    Rows,
    StreamShard,
    no_rows,
    some,
)
from accel.catalog.stream_shards import (
    last_ranges,
    shards_of,
    with_closed_ranges,
    with_open_ranges,
    with_starts,
    with_stream_objects,
    with_withdrawn,
    without_commits,
)
from accel.errors import CatalogMissing, CommitRefused, SessionFenced, StreamsReleased
from loaders.layout import TABLES_PREFIX, encode_prefix, table_folder
from loaders.store import ObjectInfo
from loaders.tables.typed_key import TypedKey
from loaders.threads import map_bounded
from loaders.versions import Versioned

# Opening, closing and trimming streams


Ids = NDArray[np.int64]
EditRule = Callable[[StreamShard, Ids, Ids], StreamShard | None]
"""(shard, stream ids, an offset for each) -> the next shard, or None."""


def open_ranges(
    parts: CatalogParts, node_id: int, session_number: int, wanted: Mapping[int, int | None], *, reopens: bool = True
) -> Rows:
    """Open streams on a node; returns their open ranges, OWNED_RANGE rows. Without `reopens`, closed ones stay closed.

    Raises:
        CommitRefused: see `stream_shards.with_open_ranges`.
    """

    def rule(shard: StreamShard, ids: Ids, offsets: Ids) -> StreamShard | None:
        return with_open_ranges(shard, ids, node_id, session_number, offsets, reopens=reopens)

    asked = {stream_id: OPEN if start is None else start for stream_id, start in wanted.items()}
    shards = edit_shards(parts, asked, rule)
    rows = np.concatenate([shard.ranges for shard in shards]) if shards else StreamShard(0).ranges
    opened: Rows = rows[(rows["end"] == OPEN) & np.isin(rows["stream_id"], np.fromiter(asked, dtype=np.int64))]
    return opened


def close_ranges(parts: CatalogParts, node_id: int, session_number: int, ends: Mapping[int, int]) -> None:
    """Close streams on a node at these ends.

    Raises:
        SessionFenced: a newer session has taken the streams over.
        StreamsReleased: another node has continued some streams, at exactly these ends; the others are closed.
        CommitRefused: see `stream_shards.with_closed_ranges`.
    """

    def rule(shard: StreamShard, ids: Ids, offsets: Ids) -> StreamShard | None:
        _refuse_fenced(shard, ids, node_id, session_number)
        return with_closed_ranges(shard, ids, node_id, offsets)

    shards = edit_shards(parts, ends, rule)
    last = [last_ranges(shard, list(ends)).tolist() for shard in shards]
    moved = tuple(row[0] for rows in last for row in rows if row[-1] != node_id or row[-2] != ends[row[0]])
    if moved:
        raise StreamsReleased(node_id, moved)


def read_last_ranges(parts: CatalogParts, stream_ids: Collection[int]) -> Rows:
    """The last OWNED_RANGE row of each of these streams that exists, ascending by stream id. 1 request a shard."""
    ids = np.fromiter(stream_ids, dtype=np.int64)

    def read(number: int) -> Rows:
        return last_ranges(must_read(parts.keys.shard(number)).value, ids)

    numbers = np.unique(shards_of(ids, parts.format.stream_buckets)).tolist()
    rows = np.concatenate([no_rows(OWNED_RANGE), *map_bounded(parts.executor, read, numbers)])
    return np.sort(rows, order="stream_id")


def trim_streams(parts: CatalogParts, offsets: Mapping[int, int]) -> None:
    """Trim streams to these offsets; the caller checks that the offsets are within the streams.

    Raises:
        CommitRefused: an unknown stream, or an offset beyond the end of a closed stream.
    """

    def rule(shard: StreamShard, ids: Ids, starts: Ids) -> StreamShard | None:
        return with_starts(shard, ids, starts, parts.now_ms())

    edit_shards(parts, offsets, rule)


def edit_shards(parts: CatalogParts, offsets: Mapping[int, int], rule: EditRule) -> list[StreamShard]:
    """Apply a rule to the streams of each shard; returns the changed shards.

    Requests: two a shard that is touched.
    """
    ids = np.fromiter(offsets.keys(), dtype=np.int64)
    values = np.fromiter(offsets.values(), dtype=np.int64)
    numbers = shards_of(ids, parts.format.stream_buckets)

    def edit(number: int) -> StreamShard:
        here = numbers == number

        key = parts.keys.shard(number)

        def change(now: StreamShard | None) -> StreamShard | None:
            return rule(require(now, key.where), ids[here], values[here])

        return key.change(change).value

    return map_bounded(parts.executor, edit, np.unique(numbers).tolist())


def _refuse_fenced(shard: StreamShard, ids: Ids, node_id: int, session_number: int) -> None:
    ranges = shard.ranges
    taken = (ranges["node_id"] == node_id) & (ranges["end"] == OPEN) & (ranges["epoch"] > session_number)
    taken &= np.isin(ranges["stream_id"], ids)
    if taken.any():
        first = ranges[int(taken.argmax())]
        raise SessionFenced(
            f"stream {first['stream_id']}: expected to be open for session {session_number} of node {node_id}, "
            f"found session {first['epoch']}: another session was opened"
        )


# Moving stream objects


def move_stream_objects(parts: CatalogParts, node_id: int) -> Versioned[NodeList]:
    """Move all stream objects that wait in a node's list; returns the list afterwards.

    Requests: one for the list; if objects wait, three a touched shard and one or two for the list; after an unfinished
    undo one or two a shard, and one a kept version of the list.

    Raises:
        CatalogMissing: the node has no list.
        StoreError, TableError: the move stopped half-way; repeating it is safe.
    """
    key = parts.keys.node_list(node_id)
    seen = read_list(key, node_id)
    if seen.value.withdrawn_commits:
        seen = _withdraw(parts, key, seen)
    waiting = seen.value.stream_objects
    if len(waiting):
        numbers = np.unique(shards_of(waiting["stream_id"], parts.format.stream_buckets)).tolist()
        map_bounded(parts.executor, partial(_move_into, parts, key, node_id), numbers)
        ids = waiting["object_id"]
        seen = key.change(lambda now: without_stream_objects(require(now, key.where), ids), seen=seen)
    return seen


def read_list(key: TypedKey[NodeList], node_id: int) -> Versioned[NodeList]:
    """Read a list that must exist.

    Raises:
        CatalogMissing: it does not exist.
    """
    seen = key.read()
    if seen is None:
        raise CatalogMissing(f"expected a list of node {node_id}, found none: the node was never opened")
    return seen


def _move_into(parts: CatalogParts, key: TypedKey[NodeList], node_id: int, number: int) -> None:
    shard = parts.keys.shard(number)

    def change(now: StreamShard | None) -> StreamShard | None:
        waiting = read_list(key, node_id).value.stream_objects  # read after the shard: see the module's docstring
        here = shards_of(waiting["stream_id"], parts.format.stream_buckets) == number
        return with_stream_objects(require(now, shard.where), waiting[here], parts.now_ms())

    shard.change(change)


def _withdraw(parts: CatalogParts, key: TypedKey[NodeList], seen: Versioned[NodeList]) -> Versioned[NodeList]:
    """Retire the stream objects of undone commits in all shards, those that were not moved there yet included."""
    node_id, commits = seen.value.node_id, seen.value.withdrawn_commits
    waited = waited_for(kept_lists(parts, node_id), commits)
    numbers = shards_of(waited["stream_id"], parts.format.stream_buckets)

    def change(number: int) -> None:
        shard_key = parts.keys.shard(number)

        def rule(now: StreamShard | None) -> StreamShard | None:
            shard, now_ms = require(now, shard_key.where), parts.now_ms()
            barred = with_withdrawn(shard, waited[numbers == number], now_ms)
            return without_commits(barred or shard, node_id, commits, now_ms) or barred

        shard_key.change(rule)

    map_bounded(parts.executor, change, range(parts.format.stream_buckets))
    return key.change(lambda now: without_withdrawn(require(now, key.where), commits), seen=seen)


# Merging


def refuse_undoable(parts: CatalogParts, rows: Rows) -> None:
    """Refuse to merge objects that an undo may still remove.

    Args:
        parts: of the catalog.
        rows: STREAM_OBJECT rows of their shard, which was read before: an undo after that read changes the shard, and
            the write of the merge loses its race.

    Requests: one for each node whose commits made the objects.

    Raises:
        CommitRefused: the compaction that made one of the objects can still be undone, or was undone.
        CatalogMissing: a node has no list.
    """
    for node_id in np.unique(rows["node_id"]).tolist():
        now = read_list(parts.keys.node_list(node_id), node_id).value
        mine = rows[rows["node_id"] == node_id]
        undone = np.array(now.withdrawn_commits, dtype=np.int64)
        wrong = mine[np.isin(mine["added_by"], np.concatenate((undoable_commits(now), undone)))]
        if len(wrong):
            raise CommitRefused(
                f"stream {wrong['stream_id'][0]}: expected objects to merge that no undo removes, found "
                f"{some(wrong['object_id'])} of node {node_id}, made by a compaction whose sources are still there"
            )


# Versions of a node's list


@dataclass(frozen=True, slots=True, eq=False)
class KeptList:
    """A version of a list, and when it was kept: just before its replacement, by the store's clock, ms since 1970."""

    version: ListVersion
    kept_at_ms: int


def kept_lists(parts: CatalogParts, node_id: int) -> list[KeptList]:
    """The kept versions of a node's list, oldest first. One listing, and a request for each that is not cached.

    Raises:
        StoreError, CorruptObject, FormatTooNew: a version could not be read.
    """
    versions = []
    for info, place in _listed(parts, list_version_prefix(node_id)):
        seen = None if place is None else parts.keys.list_version(*place).read()
        if seen is not None:  # a version may be erased meanwhile
            versions.append(KeptList(seen.value, int(info.modified_seconds * MILLISECONDS)))
    return versions


def kept_places(parts: CatalogParts) -> Iterator[tuple[int, int]]:
    """(node, sequence) of all kept versions, even without the table's marker. One request for 1,000 versions."""
    return (place for _, place in _listed(parts, "") if place is not None)


def _listed(parts: CatalogParts, prefix: str) -> Iterator[tuple[ObjectInfo, tuple[int, int] | None]]:
    folder = table_folder(TABLES_PREFIX, NODE_LIST_HISTORY)
    for info in parts.store.list(folder + encode_prefix(prefix)):
        yield info, parse_list_version_key(info.key.removeprefix(folder))


def waited_for(kept: list[KeptList], commits: tuple[int, ...]) -> Rows:
    """STREAM_OBJECT rows of these commits in any of the versions, each once, in no order."""
    waiting = np.concatenate(
        [no_rows(STREAM_OBJECT), *(kept_list.version.node_list.stream_objects for kept_list in kept)]
    )
    waiting = waiting[np.isin(waiting["added_by"], np.array(commits, dtype=np.int64))]
    rows: Rows = waiting[np.unique(waiting["object_id"], return_index=True)[1]]
    return rows
