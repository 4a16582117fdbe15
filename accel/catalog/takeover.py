"""Taking streams over from a node that is believed to be dead, but may be alive.

All commits of a node write its list, so the take-over begins there. "The taker" is the node that takes over:

    1. the ranges     the open ranges of the streams are read from their shards
    2. the release    one conditional write marks these ranges as released in the owner's list. From then on a commit
                      with data of such a stream is refused, in every session and after any pause; a commit in flight
                      has a condition on an older version of the list, and fails
    3. the ends       the ends of the streams are taken from that version of the list, the checkpoint and the objects
                      since then; no commit can raise them any more. The writers' numbers in the list and the checkpoint
                      are passed to the taker, which keeps them, because the owner's next checkpoint drops them
    4. the move       one conditional write of each shard: the owner's range gets its end, and a range of the taker's
                      session begins there; only if the range is as it was in step 1: same index, same session, open

The take-over is safe even if the owner is alive: the taker's belief decides when to try, the two conditional writes
decide which node may write. Acknowledged data of the owner was in its list before the release, and so is below the end.
Of two takers one moves the range, and the other finds that the range has changed.

**After a crash** between release and move no node can write the stream. Any node can repeat the four steps. The owner
can, too: it takes the stream over from itself, ends its range, and continues with a range of the next index. A new
session of the owner begins without releases (`with_new_session`) and raises the session number of its open ranges
before its first commit; so the move of a slow taker fails, or the session finds that the range was moved.

**A late release** is of a range that is not the current one: the taker had read the shard before the stream was opened
again. The taker's move fails. A session that reads such a release finds in the shard that its range is a later one, and
removes the release with its next commit (`NodeWriter`).

**A release stays** in the list until the owner's session has opened the stream again, or a new session begins. A
session that reads the release drops the stream, and commits no data of it before that.

**A session that closes its streams** releases them in its list, too, before it ends their ranges: a clone of its
process, which has the same session number and knows nothing of the end, is refused from then on. The next upload
removes this release: after it a clone is recognized by the upload (`refuse_clones`).

Requests, for streams in b shards of one node: b GETs of shards; GET and PUT of the list; the checkpoint; the indexes of
those objects since the checkpoint whose sketches do not exclude all the streams, newest first, until each stream was
found; then a GET and a PUT of each shard. With parallel requests, one after another: 3 GETs, the PUT, 1 to 5 GETs, the
GET and the PUT.

Source: docs/decisions/0015-owners-and-scaling.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from accel.catalog.keys import require
from accel.catalog.node_list import refuse_fenced, with_released
from accel.catalog.parts import CatalogParts
from accel.catalog.records import (
    NO_STREAM,
    OPEN,
    OWNED_RANGE,
    RELEASED,
    WRITER_NUMBER,
    NodeList,
    Rows,
    StreamShard,
    join_rows,
    no_rows,
    refs_of,
    retype_rows,
    some,
)
from accel.catalog.session import StreamEnds, columns_of, refuse_behind
from accel.catalog.shard_writes import edit_shards, read_last_ranges
from accel.catalog.sketches_and_ends import NodeFacts
from accel.catalog.stream_shards import last_ranges, with_moved_ranges
from accel.errors import CommitRefused, StreamsReleased
from loaders.versions import Versioned

Ids = NDArray[np.int64]
KeepNumbers = Callable[[Mapping[int, int], Rows], object]
"""Called with {stream id: its end} and the WRITER_NUMBER rows of these streams, before the streams are moved; and with
a row of `NO_STREAM` if rows are missing."""

OBJECTS_AT_ONCE = 16
"""The number of objects that are opened in parallel before the next check whether all streams were found."""


def move_streams(
    parts: CatalogParts,
    node_id: int,
    session_number: int,
    streams: Mapping[int, int],
    keep: KeepNumbers | None = None,
) -> Rows:
    """Take streams over for a session of a node; returns their open ranges, OWNED_RANGE rows.

    The call may be repeated after any failure, and may stop half-way: see the module's docstring.

    Args:
        parts: of the catalog.
        node_id: the node that continues the streams.
        session_number: of that node's session.
        streams: {stream id: the node that loses the stream}; that may be this node.
        keep: see `KeepNumbers`; None = the numbers are not needed.

    Raises:
        CommitRefused: a stream is not open on that node (any more), or its range changed meanwhile: another node took
            it over first, or its node is alive and opened it again. Other streams may have been moved.
        CatalogDamaged: the node's list is gone, or went back.
        StoreError, CorruptObject, TableError: it stopped half-way.
    """
    last = read_last_ranges(parts, streams)
    is_done = (last["node_id"] == node_id) & (last["epoch"] == session_number) & (last["end"] == OPEN)
    is_done &= last["node_id"] != np.array([streams[stream_id] for stream_id in last["stream_id"].tolist()], dtype=int)
    taken = last[~is_done]
    _refuse_others(taken, streams, set(streams) - set(last["stream_id"].tolist()))
    ends: dict[int, int] = {}
    for owner_id in np.unique(taken["node_id"]).tolist():
        released = taken[taken["node_id"] == owner_id]
        found, numbers = _ends_of(parts, _released(parts, owner_id, released), released)
        ends |= found
        if keep is not None and len(numbers):
            keep(found, numbers)

    def rule(shard: StreamShard, ids: Ids, offsets: Ids) -> StreamShard | None:
        order = np.argsort(ids)
        seen = taken[np.isin(taken["stream_id"], ids)]
        moved = with_moved_ranges(shard, seen, offsets[order], node_id, session_number)
        return None if moved is shard else moved

    shards = edit_shards(parts, ends, rule) if ends else []
    moved = [rows[rows["end"] == OPEN] for rows in (last_ranges(shard, list(ends)) for shard in shards)]
    return np.concatenate([no_rows(OWNED_RANGE), last[is_done], *moved])


def _refuse_others(last: Rows, streams: Mapping[int, int], unknown: set[int]) -> None:
    if unknown:
        raise CommitRefused(
            f"expected streams that are open on a node, found {some(sorted(unknown))} in no stream shard"
        )
    for row in last:
        owner_id = streams[int(row["stream_id"])]
        if row["end"] != OPEN or row["node_id"] != owner_id:
            found = f"[{row['start']}, {row['end']}) of node {row['node_id']}"
            raise CommitRefused(f"stream {row['stream_id']}: expected to be open on node {owner_id}, found {found}")


def _released(parts: CatalogParts, owner_id: int, ranges: Rows) -> NodeList:
    """Step 2: release ranges in the owner's list; returns the list afterwards."""
    key = parts.keys.node_list(owner_id)
    rows = retype_rows(ranges, RELEASED)
    return key.change(lambda now: with_released(require(now, key.where), rows)).value


def _ends_of(parts: CatalogParts, node_list: NodeList, ranges: Rows) -> tuple[dict[int, int], Rows]:
    """Step 3: the ends of streams, and the numbers of their writers, from a list that has released the streams."""
    ends = dict(zip(ranges["stream_id"].tolist(), ranges["start"].tolist(), strict=True))

    def raise_to(stream_ids: Ids, offsets: Ids) -> list[int]:
        found = np.isin(stream_ids, ranges["stream_id"])
        for stream_id, offset in zip(stream_ids[found].tolist(), offsets[found].tolist(), strict=True):
            ends[stream_id] = max(ends[stream_id], offset)
        ids: list[int] = stream_ids[found].tolist()
        return ids

    raise_to(node_list.stream_objects["stream_id"], node_list.stream_objects["end"])
    checkpoint = parts.keys.checkpoint(node_list.node_id).read()
    covered, numbers = -1, no_rows(WRITER_NUMBER)
    if checkpoint is not None:
        covered, numbers = checkpoint.value.order_id, checkpoint.value.numbers
        refuse_behind(parts, node_list, covered, "its checkpoint")
        raise_to(checkpoint.value.ends["stream_id"], checkpoint.value.ends["end"])
    wanted = set(ends)
    for rows in _newest_first(node_list, covered, ranges["stream_id"]):
        for opened in parts.open_all(node_list.node_id, refs_of(rows)):
            stream_ids, _, offsets = columns_of(opened.ranges)
            wanted.difference_update(raise_to(stream_ids, offsets))
        if not wanted:
            break
    numbers = join_rows(numbers, node_list.numbers)
    return ends, numbers[np.isin(numbers["stream_id"], [*ranges["stream_id"].tolist(), NO_STREAM])]


def _newest_first(node_list: NodeList, covered: int, stream_ids: Ids) -> Iterator[Rows]:
    """Live objects after a commit that may hold any of the streams, in groups, newest first."""
    may_hold = node_list.live["last_order_id"] > covered
    facts = NodeFacts(node_list)
    excluded = [facts.excludes(stream_id) for stream_id in stream_ids.tolist()]
    known = [places for places in excluded if places is not None]
    if known and len(known) == len(excluded):
        may_hold &= ~np.logical_and.reduce(known)
    rows = node_list.live[may_hold][::-1]
    return (rows[at : at + OBJECTS_AT_ONCE] for at in range(0, len(rows), OBJECTS_AT_ONCE))


class SessionReleases:
    """The releases of a session's streams. Threads: one at a time, like the session.

    Args:
        node_id: the node.
        session_number: of the session.

    Attributes:
        heeded: stream id -> the highest range index whose release the session ignores (see `refuse_released`).
        ends: the committed ends of streams that were released and not opened again.
    """

    def __init__(self, node_id: int, session_number: int) -> None:
        self._node_id, self._session_number = node_id, session_number
        self.heeded: dict[int, int] = {}
        self.ends = StreamEnds()

    def adopt(self, ranges: Rows) -> None:
        """Note ranges that the session has opened: it ignores releases of earlier ranges."""
        indexes = (ranges["range_index"] - 1).tolist()
        self.heeded |= dict(zip(ranges["stream_id"].tolist(), indexes, strict=True))
        self.ends = self.ends.without(ranges["stream_id"])

    def release(
        self,
        parts: CatalogParts,
        seen: Versioned[NodeList],
        stream_ids: Collection[int],
        check: Callable[[NodeList], object],
    ) -> tuple[Versioned[NodeList], Rows]:
        """Release the session's own streams, which it is about to close. 1 request a shard, and one write of the list.

        Args:
            parts: of the catalog.
            seen: the list as the session knows it.
            stream_ids: of the streams.
            check: refuses a list that the session must not change.

        Returns:
            The list, and the RELEASED rows: none for streams that are not open here any more.
        """
        rows = retype_rows(self._here(read_last_ranges(parts, stream_ids)), RELEASED)
        key = parts.keys.node_list(self._node_id)

        def change(found: NodeList | None) -> NodeList | None:
            now = require(found, key.where)
            refuse_fenced(now, self._session_number)
            check(now)
            return with_released(now, rows)

        return key.change(change, seen=seen), rows

    def heed(
        self, parts: CatalogParts, node_list: NodeList, stream_ids: Collection[int], ends: StreamEnds
    ) -> list[int]:
        """Note releases; returns the released streams that the session has lost. 1 request a shard.

        Args:
            parts: of the catalog.
            node_list: the list that was read last.
            stream_ids: streams that were reported as released.
            ends: the ends of the session's streams.
        """
        released = dict(node_list.released.tolist())
        current = {row[0]: row[1] for row in self._here(read_last_ranges(parts, stream_ids)).tolist()}
        self.heeded |= {stream_id: index - 1 for stream_id, index in current.items()}
        lost = [
            stream_id
            for stream_id in stream_ids
            if stream_id in released and current.get(stream_id, -1) <= released[stream_id]
        ]
        here = ends.without_others(np.array(lost, dtype=np.int64))
        self.ends = self.ends.with_higher_ends(here.stream_ids, here.ends)
        return lost

    def to_take_back(self, parts: CatalogParts, stream_ids: Iterable[int]) -> dict[int, int]:
        """The streams among these that were released and not moved to another node, for `move_streams`.

        1 request a shard if any stream was released, else none.
        """
        lost = [stream_id for stream_id in stream_ids if self.ends.end(stream_id) is not None]
        rows = self._here(read_last_ranges(parts, lost)) if lost else no_rows(OWNED_RANGE)
        return dict.fromkeys(rows["stream_id"].tolist(), self._node_id)

    def refuse_lost(self, stream_ids: Ids) -> None:
        """Refuse streams that the session has lost and not opened again.

        Raises:
            StreamsReleased: some of these streams are lost.
        """
        lost = tuple(np.intersect1d(stream_ids, self.ends.stream_ids).tolist())
        if lost:
            raise StreamsReleased(self._node_id, lost)

    def _here(self, ranges: Rows) -> Rows:
        is_mine = (ranges["node_id"] == self._node_id) & (ranges["epoch"] == self._session_number)
        mine: Rows = ranges[is_mine & (ranges["end"] == OPEN)]
        return mine
