"""What writers change in a node's list: open it, promise ids, add an upload, swap a group for its successor.

Every rule takes a list and gives the one that follows it, or None where its work is done already: a writer whose reply
was lost applies the same rule to what stands there now, and learns whether it had been carried out. What contradicts
the list is refused, and then nothing has changed.

**An id must be promised before its object is written, and the promise must stand when the object is committed.** The
collector takes expired promises out of the list before it deletes such objects. So a writer that was too slow is
refused here, and never lists an object that is gone.

Complexity of each rule: O(n log n) in the rows of the list and what is added, no loop over rows in Python; the list
that is given shares no writable memory with the one that follows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from accel.catalog.records import NodeList
from accel.catalog.rows import (
    LIVE,
    PREPARED,
    RETIRED,
    STREAM_OBJECT,
    ObjectFacts,
    Rows,
    by_stream,
    joined,
    make_rows,
    no_rows,
    positions_of,
    retyped,
    some,
)
from accel.catalog.stream_object_rows import check_new_rows, refuse_other_bytes, refuse_overlaps
from accel.errors import CommitRefused, SessionFenced

PREPARED_MAX = 10_000
"""Ids that may be promised at one time in one list."""

STREAM_OBJECTS_A_COMMIT_MAX = 10_000
"""As in the production system: a larger commit once stopped its controllers."""

NO_STREAM_OBJECTS = no_rows(STREAM_OBJECT)


def opened(now: NodeList) -> NodeList:
    """A new session begins: the epoch rises by one, and sessions of lower epochs may not commit any more."""
    return replace(now, epoch=now.epoch + 1)


def with_prepared(
    now: NodeList, object_ids: Iterable[int] | NDArray[np.int64], deadline_ms: int, epoch: int | None
) -> NodeList | None:
    """Promise ids: until the deadline nobody deletes objects that have them.

    Ids that are promised already keep the later one of both deadlines.

    Args:
        now: the list.
        object_ids: never used before; in any order.
        deadline_ms: milliseconds since 1970.
        epoch: of the session that asks; None for those that commit without one, such as compactors.

    Returns:
        None if all of them are promised at least so long already.

    Raises:
        SessionFenced: a newer session writes for the node.
        CommitRefused: an id that an object has already, a negative one, or more than 10,000 promises in all.
    """
    _refuse_fenced(now, epoch)
    ids = np.unique(np.fromiter(object_ids, dtype=np.int64))
    if len(ids) and ids[0] < 0:
        raise CommitRefused(f"list of node {now.node_id}: expected object ids of at least 0, found {int(ids[0])}")
    taken = ids[_listed(now, ids)]
    if len(taken):
        raise CommitRefused(f"list of node {now.node_id}: expected ids that no object has, found {some(taken)} listed")
    known = positions_of(now.prepared["object_id"], ids)
    later = known[known >= 0][now.prepared["deadline_ms"][known[known >= 0]] < deadline_ms]
    new = ids[known < 0]
    if not len(later) and not len(new):
        return None
    if len(now.prepared) + len(new) > PREPARED_MAX:
        found = f"{len(now.prepared)} and {len(new)} more"
        raise CommitRefused(f"list of node {now.node_id}: expected at most {PREPARED_MAX} promised ids, found {found}")
    rows = joined(now.prepared, make_rows(PREPARED, object_id=new, deadline_ms=deadline_ms))
    rows["deadline_ms"][later] = deadline_ms
    return replace(now, prepared=np.sort(rows, order="object_id"))


def with_extended(
    now: NodeList, object_ids: Iterable[int] | NDArray[np.int64], deadline_ms: int, epoch: int | None
) -> NodeList | None:
    """Give promises a later deadline. Unlike `with_prepared` it makes none anew: what has expired is lost.

    Args:
        now, object_ids, deadline_ms, epoch: as for `with_prepared`.

    Returns:
        None if all of them are promised at least so long already.

    Raises:
        SessionFenced: a newer session writes for the node.
        CommitRefused: an id that is not promised (any more).
    """
    _refuse_fenced(now, epoch)
    ids = np.unique(np.fromiter(object_ids, dtype=np.int64))
    _refuse_unpromised(now, ids)
    return with_prepared(now, ids, deadline_ms, epoch)


def with_upload(
    now: NodeList, epoch: int, added: ObjectFacts | None, stream_objects: Rows = NO_STREAM_OBJECTS
) -> NodeList | None:
    """List what a node has uploaded: an object of many streams, objects of one stream each, or both.

    The object's order id is the number of this commit, higher than all before it. That its streams go on where they
    ended is not looked at here: the session knows their ends (`stream_ends`).

    Args:
        now: the list.
        epoch: of the session that commits.
        added: the object of many streams, if there is one.
        stream_objects: STREAM_OBJECT rows; `node_id` and `added_by` are filled in here.

    Returns:
        None if exactly these objects were committed here before, and only their streams' buckets may know of some.

    Raises:
        SessionFenced: a newer session writes for the node, and these objects are not listed.
        CommitRefused: an id that is not promised (any more), one that is listed with another size or checksum or beside
            others that are promised, an overlap of stream objects, more than 10,000 of them, a negative number, or
            nothing to commit.
    """
    ids = _new_ids(now, added, stream_objects)
    if not len(ids):
        raise CommitRefused(f"list of node {now.node_id}: expected at least one object to commit, found none")
    if _is_done(now, ids, added, stream_objects):
        return None
    _refuse_fenced(now, epoch)
    _refuse_unpromised(now, ids)
    live = now.live if added is None else joined(now.live, _live_row(added, now.next_order_id))
    return _committed(now, live, ids, stream_objects)


def with_compaction(
    now: NodeList,
    removed: Sequence[tuple[int, int]],
    added: ObjectFacts | None,
    stream_objects: Rows,
    now_ms: int,
) -> NodeList | None:
    """Swap a run of objects for what was made of them, and retire them.

    The successor takes their place: the lowest order id, the highest last order id and the oldest data time of all.

    Args:
        now: the list.
        removed: (object id, size) of each source; in the list they stand side by side.
        added: their successor; None if all went to objects of one stream, or nothing of them is needed any more.
        stream_objects: STREAM_OBJECT rows made of the sources; `node_id` and `added_by` are filled in here.
        now_ms: milliseconds since 1970; the sources are retired at that time.

    Returns:
        None if this was done before.

    Raises:
        CommitRefused: a source that is gone or of another size, sources that are not neighbours, an id that is not
            promised (any more), or stream objects as in `with_upload`. Whoever gets this gives up the group; the list
            tells which objects nobody needs.

    Source: docs/catalog.md, "Commits".
    """
    sources = np.array([object_id for object_id, _ in removed], dtype=np.int64)
    ids = _new_ids(now, added, stream_objects)
    if _is_done(now, ids, added, stream_objects) if len(ids) else _are_retired(now, sources):
        return None
    first, last = _run_of(now, sources, np.array([size for _, size in removed], dtype=np.int64))
    _refuse_unpromised(now, ids)
    group = now.live[first : last + 1]
    successor = no_rows(LIVE) if added is None else _successor(added, group, now.next_order_id)
    live = np.concatenate((now.live[:first], successor, now.live[last + 1 :]))
    return _committed(now, live, ids, stream_objects, retired=retired_rows(group, now_ms, now.next_order_id))


def retired_rows(rows: Rows, now_ms: int, commit: int) -> Rows:
    """RETIRED rows of LIVE ones that a commit takes out of the list.

    Args:
        rows: LIVE rows.
        now_ms: milliseconds since 1970; when that is.
        commit: its number; `NO_COMMIT` for an undo.
    """
    return retyped(rows, RETIRED, {"retired_at_ms": now_ms, "retired_by": commit, "doomed": 0})


def _committed(
    now: NodeList, live: Rows, ids: NDArray[np.int64], stream_objects: Rows, *, retired: Rows | None = None
) -> NodeList:
    commit = now.next_order_id
    named = retyped(stream_objects, STREAM_OBJECT)
    named["node_id"], named["added_by"] = now.node_id, commit
    waiting = by_stream(joined(now.stream_objects, named), "start")
    refuse_overlaps(waiting, f"list of node {now.node_id}")
    return replace(
        now,
        next_order_id=commit + 1,
        live=live,
        prepared=now.prepared[~np.isin(now.prepared["object_id"], ids)],
        retired=now.retired if retired is None else joined(now.retired, retired),
        stream_objects=waiting,
    )


def _live_row(added: ObjectFacts, order_id: int) -> Rows:
    return make_rows(
        LIVE,
        object_id=added.object_id,
        order_id=order_id,
        last_order_id=order_id,
        data_time_ms=added.data_time_ms,
        size_bytes=added.size_bytes,
        index_size_bytes=added.index_size_bytes,
        attributes=added.attributes,
        tail_checksum=added.tail_checksum,
        added_by=order_id,
    )


def _successor(added: ObjectFacts, group: Rows, commit: int) -> Rows:
    row = _live_row(added, commit)
    row["order_id"] = group["order_id"].min()
    row["last_order_id"] = group["last_order_id"].max()
    row["data_time_ms"] = group["data_time_ms"].min()
    return row


def _new_ids(now: NodeList, added: ObjectFacts | None, stream_objects: Rows) -> NDArray[np.int64]:
    check_new_rows(stream_objects, f"list of node {now.node_id}")
    if len(stream_objects) > STREAM_OBJECTS_A_COMMIT_MAX:
        most = f"at most {STREAM_OBJECTS_A_COMMIT_MAX} stream objects in a commit"
        raise CommitRefused(f"list of node {now.node_id}: expected {most}, found {len(stream_objects)}")
    own = [] if added is None else [added.checked().object_id]
    ids = np.concatenate((np.array(own, dtype=np.int64), stream_objects["object_id"]))
    if own and own[0] in stream_objects["object_id"]:
        raise CommitRefused(f"list of node {now.node_id}: expected each object once, found {own[0]} twice")
    return ids


def _is_done(now: NodeList, ids: NDArray[np.int64], added: ObjectFacts | None, stream_objects: Rows) -> bool:
    # A commit is one write: once it was made, some of its ids are listed and none is promised. Objects of one stream
    # may have moved on to their buckets since.
    listed = _listed(now, ids)
    promised = np.isin(ids, now.prepared["object_id"])
    if listed.any() and promised.any():
        raise CommitRefused(
            f"list of node {now.node_id}: expected objects of one commit, found {some(ids[listed])} listed and "
            f"{some(ids[promised])} promised"
        )
    if not listed.any():
        return False
    where = f"list of node {now.node_id}"
    if added is not None:
        for rows in (now.live, now.retired):
            refuse_other_bytes(rows, _live_row(added, now.next_order_id), where)
    refuse_other_bytes(now.stream_objects, stream_objects, where)
    return True


def _listed(now: NodeList, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
    places = (now.live, now.retired, now.stream_objects)
    return np.isin(ids, np.concatenate([rows["object_id"] for rows in places]))


def _are_retired(now: NodeList, sources: NDArray[np.int64]) -> bool:
    return bool(len(sources)) and bool(np.isin(sources, now.retired["object_id"]).all())


def _refuse_fenced(now: NodeList, epoch: int | None) -> None:
    if epoch is not None and epoch != now.epoch:
        raise SessionFenced(
            f"list of node {now.node_id}: expected epoch {epoch} of this session, found {now.epoch}: another session "
            "was opened"
        )


def _refuse_unpromised(now: NodeList, ids: NDArray[np.int64]) -> None:
    missing = ids[~np.isin(ids, now.prepared["object_id"])]
    if len(missing):
        raise CommitRefused(
            f"list of node {now.node_id}: expected promised ids, found none for {some(missing)}: never prepared, or "
            "their time ran out and they may be deleted by now"
        )


def _run_of(now: NodeList, sources: NDArray[np.int64], sizes_bytes: NDArray[np.int64]) -> tuple[int, int]:
    where = f"list of node {now.node_id}"
    if not len(sources) or len(np.unique(sources)) < len(sources):
        raise CommitRefused(f"{where}: expected one or more sources, each once, found {some(sources)}")
    positions = positions_of(now.live["object_id"], sources)
    gone = sources[positions < 0]
    if len(gone):
        retired = gone[np.isin(gone, now.retired["object_id"])]
        raise CommitRefused(
            f"{where}: expected sources that are live, found {some(gone)} gone, {len(retired)} of them retired"
        )
    found = now.live["size_bytes"][positions]
    wrong = np.flatnonzero(found != sizes_bytes)
    if len(wrong):
        at = int(wrong[0])
        raise CommitRefused(
            f"{where}: expected object {sources[at]} of {sizes_bytes[at]} bytes, found {found[at]} in the list"
        )
    first, last = int(positions.min()), int(positions.max())
    if last - first + 1 != len(sources):
        between = np.setdiff1d(now.live["object_id"][first : last + 1], sources)
        raise CommitRefused(f"{where}: expected sources side by side, found {some(between)} between them")
    return first, last
