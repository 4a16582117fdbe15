"""The state machine of a node's list: all rules that make the next list from the current list.

The states of an object in a list:

    (an id) -> prepared -> live -> retired -> delete pending -> (gone)
                  |          ^---------|
                  |            undone
                  '-> (gone)

    sessions      with_new_session
    taking over   with_released, refuse_released, without_released
    writers       with_prepared, with_extended, with_upload, with_compaction, refuse_clones
    leaving       without_expired, without_prepared, without_stream_objects, without_withdrawn; with_delete_pending and
                  without_collected, which apply to stream shards, too, are in `records`
    sketching     with_sketches
    undoing       undone, undoable_commits, is_led_back
    checking      check_list

All rules are pure: they take a list and facts and return the next list, or None if the list needs no change. A writer
whose reply was lost applies the same rule to the current list, and so finds out whether the first write was made. A
rule refuses facts that contradict the list, and changes nothing then. This module neither reads nor writes lists.

- **An id must be prepared before its object is written, and must still be prepared when the object is committed.** The
  collector removes expired ids from the list before it deletes their objects. So a writer that was too slow is refused
  here, and never lists an object that is gone.
- **Objects are deleted in two steps**, so that nothing can be listed again while it is being deleted:

      retired ---- with_delete_pending ---> delete pending ---- the objects are deleted ---> without_collected
      prepared --- without_expired -------> (not in the list) - the objects are deleted

  Rows that are delete pending stay until their objects are gone: after a collector has crashed, the next collector
  finds the rows. Only an undo restores rows, and never rows that are delete pending.
- **An undo follows the numbers of commits**, because later commits may be based on the bad commit. Its result is an
  earlier version of the list, plus all uploads since:

      an object of the earlier version is not live now    -> the commit that retired the object is undone
      an undone commit had an output                      -> the output is withdrawn; if another commit has retired the
                                                             output since, that commit is undone, too
      an undone commit had sources                        -> the sources are restored, except withdrawn outputs

  Compactions among objects that were uploaded later stay. Each commit can be undone once: an object that an undo has
  withdrawn is never restored, so a version that an undo has left cannot be reached any more. The result must list
  exactly the objects of the earlier version below its next order id; otherwise the undo is refused.
- **Stream objects of an undone commit** are in the stream shards, or wait in the list to be moved there. Those in the
  list are removed at once; for the others the list keeps the commits (`withdrawn_commits`) until
  `stream_shards.without_commits` has been applied to all shards. In between readers find both the sources and the
  outputs: offsets are found twice, but never not at all. No stream object of an undone commit was merged into another
  object meanwhile: see `shard_writes.refuse_undoable`.

Complexity of each rule: O(n log n) in the rows of the list and the added rows, no loop over rows in Python. A list
shares no writable memory with the next list. Times are milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from accel.catalog.problems import Mismatches, Problem, ProblemKind
from accel.catalog.records import (
    CHECKSUM_MAX,
    LIVE,
    NO_COMMIT,
    NO_STREAM,
    PREPARED,
    RELEASED,
    RETIRED,
    STREAM_OBJECT,
    WRITER_NUMBER,
    NodeList,
    ObjectFacts,
    Rows,
    StreamShard,
    by_stream,
    check_new_rows,
    describe_row,
    join_rows,
    make_rows,
    no_rows,
    overlapping,
    positions_of,
    refuse_other_bytes,
    refuse_overlaps,
    retype_rows,
    some,
    starts_of,
)
from accel.catalog.sketches_and_ends import sketch_columns, sketch_rows, sketches_of
from accel.errors import CommitRefused, SessionFenced, StreamsReleased
from loaders.object_ref import UNKNOWN

# Writers

PREPARED_MAX = 10_000
"""The maximum number of prepared ids in one list."""

TIMES_MAX = 32_768
"""The maximum number of time records that wait in a list for a checkpoint, some 5 bytes each, and of writer numbers.
A commit that would exceed it adds none; they are made again from the data if they are needed."""

STREAM_OBJECTS_A_COMMIT_MAX = 10_000
"""The maximum as in the production system, where a larger commit once stopped the controllers."""

NO_STREAM_OBJECTS = no_rows(STREAM_OBJECT)
NONE_RELEASED = no_rows(RELEASED)
NEVER_RELEASED = -1
"""Below the index of every range."""


def with_new_session(now: NodeList) -> NodeList:
    """Begin a new session: its number is one higher, and sessions of lower numbers may not commit any more."""
    return replace(now, epoch=now.epoch + 1, released=NONE_RELEASED)


# Taking over: see `takeover`


def with_released(now: NodeList, released: Rows) -> NodeList | None:
    """Release ranges of streams: from then on no commit of the newest session may contain data of these streams.

    Args:
        now: the list of the node that has the streams open.
        released: RELEASED rows in any order, each stream once.

    Returns:
        None if all of these ranges, or later ranges of their streams, are released already.
    """
    at = positions_of(now.released["stream_id"], released["stream_id"])
    known = now.released["range_index"][np.maximum(at, 0)] if len(now.released) else np.full(len(at), -1)
    new = released[(at < 0) | (known < released["range_index"])]
    if not len(new):
        return None
    kept = now.released[~np.isin(now.released["stream_id"], new["stream_id"])]
    return replace(now, released=np.sort(join_rows(kept, new), order="stream_id"))


def refuse_released(now: NodeList, stream_ids: NDArray[np.int64], heeded: Mapping[int, int]) -> None:
    """Refuse a commit of streams that were released.

    Args:
        now: the list.
        stream_ids: the streams that the commit has data of.
        heeded: stream id -> the highest index of a released range that the session had read before it opened the stream
            again; the session ignores such a release.

    Raises:
        StreamsReleased: some of the streams are released in the list.
    """
    rows = now.released[np.isin(now.released["stream_id"], stream_ids)] if len(now.released) else now.released
    binding = [
        (stream_id, index) for stream_id, index in rows.tolist() if index > heeded.get(stream_id, NEVER_RELEASED)
    ]
    if binding:
        raise StreamsReleased(now.node_id, tuple(stream_id for stream_id, _ in binding))


def without_released(now: NodeList, heeded: Mapping[int, int]) -> NodeList:
    """The list without the releases that its session has read; see `refuse_released`."""
    if not len(now.released):
        return now
    kept = [index > heeded.get(stream_id, NEVER_RELEASED) for stream_id, index in now.released.tolist()]
    return replace(now, released=now.released[np.array(kept, dtype=np.bool_)])


def with_prepared(
    now: NodeList, object_ids: Iterable[int] | NDArray[np.int64], deadline_ms: int, session_number: int | None
) -> NodeList | None:
    """Prepare ids: until the deadline the collector does not delete objects with these ids.

    Ids that are prepared already keep the later of both deadlines.

    Args:
        now: the list.
        object_ids: never used before; in any order.
        deadline_ms: milliseconds since 1970.
        session_number: of the calling session; None for a caller without a session, such as a compactor.

    Returns:
        None if all ids are prepared with at least this deadline already.

    Raises:
        SessionFenced: a newer session writes for the node.
        CommitRefused: an id that an object has already, a negative id, or more than 10,000 prepared ids in all.
    """
    refuse_fenced(now, session_number)
    ids = np.unique(np.fromiter(object_ids, dtype=np.int64))
    if len(ids) and ids[0] < 0:
        raise CommitRefused(f"{now.where}: expected object ids of at least 0, found {int(ids[0])}")
    taken = ids[_listed(now, ids)]
    if len(taken):
        raise CommitRefused(f"{now.where}: expected ids that no object has, found {some(taken)} listed")
    known = positions_of(now.prepared["object_id"], ids)
    later = known[known >= 0][now.prepared["deadline_ms"][known[known >= 0]] < deadline_ms]
    new = ids[known < 0]
    if not len(later) and not len(new):
        return None
    if len(now.prepared) + len(new) > PREPARED_MAX:
        found = f"{len(now.prepared)} and {len(new)} more"
        raise CommitRefused(f"{now.where}: expected at most {PREPARED_MAX} prepared ids, found {found}")
    rows = join_rows(now.prepared, make_rows(PREPARED, object_id=new, deadline_ms=deadline_ms))
    rows["deadline_ms"][later] = deadline_ms
    return replace(now, prepared=np.sort(rows, order="object_id"))


def with_extended(
    now: NodeList, object_ids: Iterable[int] | NDArray[np.int64], deadline_ms: int, session_number: int | None
) -> NodeList | None:
    """Move the deadline of prepared ids. Unlike `with_prepared` it adds no id: an expired id stays expired.

    Args:
        now, object_ids, deadline_ms, session_number: as for `with_prepared`.

    Returns:
        None if all ids are prepared with at least this deadline already.

    Raises:
        SessionFenced: a newer session writes for the node.
        CommitRefused: an id that is not prepared (any more).
    """
    refuse_fenced(now, session_number)
    ids = np.unique(np.fromiter(object_ids, dtype=np.int64))
    _refuse_unprepared(now, ids)
    return with_prepared(now, ids, deadline_ms, session_number)


def with_upload(
    now: NodeList, session_number: int, added: ObjectFacts | None, stream_objects: Rows = NO_STREAM_OBJECTS
) -> NodeList | None:
    """List the objects that a node has uploaded: an object of many streams, objects of one stream each, or both.

    The object's order id is the number of this commit, higher than all before it. Whether the ranges continue their
    streams is not checked here: the session, which knows the ends of the streams, checks it (`session.StreamEnds`).

    Args:
        now: the list.
        session_number: of the session that commits.
        added: the object of many streams, if there is one.
        stream_objects: STREAM_OBJECT rows; `node_id` and `added_by` are filled in here.

    Returns:
        None if these objects were committed here before; some may have moved to their streams' shards since.

    Raises:
        SessionFenced: a newer session writes for the node, and these objects are not listed.
        CommitRefused: an id that is not prepared (any more), an id that is listed with another size or checksum or
            while other ids are prepared, an overlap of stream objects, more than 10,000 stream objects, a negative
            number, or nothing to commit.
    """
    ids = _new_ids(now, added, stream_objects)
    if not len(ids):
        raise CommitRefused(f"{now.where}: expected at least one object to commit, found none")
    if _is_done(now, ids, added, stream_objects):
        return None
    refuse_fenced(now, session_number)
    _refuse_unprepared(now, ids)
    live = now.live if added is None else join_rows(now.live, _live_row(added, now.next_order_id))
    return _with_commit(now, live, ids, stream_objects, added)


def refuse_clones(now: NodeList, session_number: int, known_commits: int, own: Sequence[NDArray[np.int64]]) -> None:
    """Refuse a list with an upload of a clone: a copy of the session's process with the same session number.

    Only sessions upload, and a compaction keeps the order ids of its sources. So a row of a commit that the session
    has not checked yet was added by the session itself, or by a clone.

    Args:
        now: the list; the list of a later session is refused elsewhere.
        session_number: of the session.
        known_commits: the number of the first commit that the session has not checked.
        own: ids of objects that the session has tried to commit since.

    Raises:
        SessionFenced: the list has an upload of a clone.
    """
    if now.next_order_id == known_commits or now.epoch != session_number:
        return
    waiting = now.stream_objects[~np.isin(now.stream_objects["added_by"], now.retired["retired_by"])]
    found = [(rows["object_id"], rows["last_order_id"]) for rows in (now.live, now.retired)]
    for ids, commits in [*found, (waiting["object_id"], waiting["added_by"])]:
        later = ids[commits >= known_commits]
        foreign = later[~np.isin(later, np.concatenate(own))] if own else later
        if len(foreign):
            raise SessionFenced(
                f"{now.where}: expected uploads of this process alone in session {now.epoch}, found {some(foreign)} of "
                "another process: a clone of this process continues the session"
            )


def with_compaction(
    now: NodeList,
    removed: Sequence[tuple[int, int]],
    added: ObjectFacts | None,
    stream_objects: Rows,
    now_ms: int,
    tail_checksums: Mapping[int, int] | None = None,
) -> NodeList | None:
    """Replace neighbouring objects by the objects that were merged from them, and retire the sources.

    The successor gets the lowest order id, the highest last order id and the oldest data time of the sources.

    Args:
        now: the list.
        removed: (object id, size) of each source; neighbours in the list.
        added: the successor; None if all data went to objects of one stream, or none of it is needed any more.
        stream_objects: STREAM_OBJECT rows made from the sources; `node_id` and `added_by` are filled in here.
        now_ms: milliseconds since 1970; the sources are retired at that time.
        tail_checksums: of sources, by id; rows that have none get them, so that their objects can be proven.

    Returns:
        None if the compaction was committed before.

    Raises:
        CommitRefused: a source that is gone or of another size, sources that are not neighbours, an id that is not
            prepared (any more), or stream objects as in `with_upload`. The caller then gives up the group; the list
            shows which outputs are not needed.

    Source: docs/explanation/catalog.md, "Commits".
    """
    sources = np.array([object_id for object_id, _ in removed], dtype=np.int64)
    ids = _new_ids(now, added, stream_objects)
    if _is_done(now, ids, added, stream_objects) if len(ids) else _are_retired(now, sources):
        return None
    first, last = _run_of(now, sources, np.array([size for _, size in removed], dtype=np.int64))
    _refuse_unprepared(now, ids)
    group = now.live[first : last + 1]
    successor = no_rows(LIVE) if added is None else _successor(added, group, now.next_order_id)
    live = np.concatenate((now.live[:first], successor, now.live[last + 1 :]))
    going = retired_rows(group, now_ms, now.next_order_id)
    for at in np.flatnonzero(going["tail_checksum"] == UNKNOWN):
        going["tail_checksum"][at] = (tail_checksums or {}).get(int(going["object_id"][at]), UNKNOWN)
    retired = join_rows(now.retired, going)
    return _with_commit(replace(now, retired=retired), live, ids, stream_objects, added)


def retired_rows(rows: Rows, now_ms: int, commit: int) -> Rows:
    """RETIRED rows for the LIVE rows that a commit removes from the list.

    Args:
        rows: LIVE rows.
        now_ms: the time of the removal, milliseconds since 1970.
        commit: the number of the commit; `NO_COMMIT` for an undo.
    """
    return retype_rows(rows, RETIRED, {"retired_at_ms": now_ms, "retired_by": commit, "delete_pending": 0})


def _with_commit(
    now: NodeList, live: Rows, ids: NDArray[np.int64], stream_objects: Rows, added: ObjectFacts | None
) -> NodeList:
    commit = now.next_order_id
    named = retype_rows(stream_objects, STREAM_OBJECT)
    named["node_id"], named["added_by"] = now.node_id, commit
    waiting = by_stream(join_rows(now.stream_objects, named), "start")
    refuse_overlaps(waiting, now.where)
    times, numbers = _times_and_numbers(now, added)
    new = [] if added is None else [sketch_rows([(added.object_id, added.sketch)])]
    return replace(
        now,
        next_order_id=commit + 1,
        emptied=now.emptied_after(live),
        live=live,
        prepared=now.prepared[~np.isin(now.prepared["object_id"], ids)],
        stream_objects=waiting,
        sketches=sketches_of(live, *new, now.sketches),
        set_aside=now.set_aside[np.isin(now.set_aside["object_id"], live["object_id"])],
        times=times,
        numbers=numbers,
    )


def _times_and_numbers(now: NodeList, added: ObjectFacts | None) -> tuple[Rows, Rows]:
    """Times and numbers after a commit. Above the maximum the commit's rows are left out; a NO_STREAM row marks it."""
    if added is None or added.times is None:
        return now.times, now.numbers
    told = no_rows(WRITER_NUMBER) if added.numbers is None else added.numbers
    times = now.times[now.times["commit"] > added.counted]
    numbers = now.numbers[now.numbers["commit"] > added.counted]
    if len(times) + len(added.times) <= TIMES_MAX and len(numbers) + len(told) <= TIMES_MAX:
        times, numbers = join_rows(times, added.times), join_rows(numbers, told)
        times["commit"][len(times) - len(added.times) :] = now.next_order_id
        numbers["commit"][len(numbers) - len(told) :] = now.next_order_id
    elif len(told):
        left_out = np.zeros(1, dtype=WRITER_NUMBER)
        left_out["stream_id"], left_out["commit"] = NO_STREAM, now.next_order_id
        numbers = join_rows(numbers[numbers["stream_id"] != NO_STREAM], left_out)
    return times, numbers


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
    check_new_rows(stream_objects, now.where)
    if len(stream_objects) > STREAM_OBJECTS_A_COMMIT_MAX:
        most = f"at most {STREAM_OBJECTS_A_COMMIT_MAX} stream objects in a commit"
        raise CommitRefused(f"{now.where}: expected {most}, found {len(stream_objects)}")
    own = [] if added is None else [added.checked().object_id]
    ids = np.concatenate((np.array(own, dtype=np.int64), stream_objects["object_id"]))
    if own and own[0] in stream_objects["object_id"]:
        raise CommitRefused(f"{now.where}: expected each object once, found {own[0]} twice")
    return ids


def _is_done(now: NodeList, ids: NDArray[np.int64], added: ObjectFacts | None, stream_objects: Rows) -> bool:
    # A commit is one write: after it, some of its ids are listed and none is prepared. Objects of one stream may have
    # moved to their shards since.
    listed = _listed(now, ids)
    prepared = np.isin(ids, now.prepared["object_id"])
    if listed.any() and prepared.any():
        raise CommitRefused(
            f"{now.where}: expected objects of one commit, found {some(ids[listed])} listed and "
            f"{some(ids[prepared])} prepared"
        )
    if not listed.any():
        return False
    where = now.where
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


def refuse_fenced(now: NodeList, session_number: int | None) -> None:
    """Raises SessionFenced unless the session is the node's newest one; None = no session."""
    if session_number is not None and session_number != now.epoch:
        found = f"{now.epoch}: another session was opened"
        raise SessionFenced(f"{now.where}: expected session number {session_number}, found {found}")


def _refuse_unprepared(now: NodeList, ids: NDArray[np.int64]) -> None:
    missing = ids[~np.isin(ids, now.prepared["object_id"])]
    if len(missing):
        raise CommitRefused(
            f"{now.where}: expected prepared ids, found none for {some(missing)}: never prepared, or "
            "their deadline passed and their objects may be deleted by now"
        )


def _run_of(now: NodeList, sources: NDArray[np.int64], sizes_bytes: NDArray[np.int64]) -> tuple[int, int]:
    where = now.where
    if not len(sources) or len(np.unique(sources)) < len(sources):
        raise CommitRefused(f"{where}: expected one or more sources, each once, found {some(sources)}")
    positions = positions_of(now.live["object_id"], sources)
    gone = sources[positions < 0]
    if len(gone):
        retired = gone[np.isin(gone, now.retired["object_id"])]
        raise CommitRefused(
            f"{where}: expected sources that are live, found {some(gone)} gone, {len(retired)} of them retired"
        )
    listed_sizes = now.live["size_bytes"][positions]
    wrong = np.flatnonzero(listed_sizes != sizes_bytes)
    if len(wrong):
        at = int(wrong[0])
        raise CommitRefused(
            f"{where}: expected object {sources[at]} of {sizes_bytes[at]} bytes, found {listed_sizes[at]} in the list"
        )
    first, last = int(positions.min()), int(positions.max())
    if last - first + 1 != len(sources):
        between = np.setdiff1d(now.live["object_id"][first : last + 1], sources)
        raise CommitRefused(f"{where}: expected neighbouring sources, found {some(between)} between them")
    return first, last


# Leaving the list


def without_expired(now: NodeList, now_ms: int) -> tuple[NodeList | None, NDArray[np.int64]]:
    """Remove prepared ids whose deadline has passed; from then on no writer can commit them.

    Args:
        now: the list.
        now_ms: the time; a deadline equal to this time has passed.

    Returns:
        The list without these ids (None: there are none), and the ids.
    """
    expired = now.prepared["deadline_ms"] <= now_ms
    ids: NDArray[np.int64] = now.prepared["object_id"][expired]
    return (replace(now, prepared=now.prepared[~expired]) if len(ids) else None), ids


def without_prepared(now: NodeList, object_ids: Iterable[int] | NDArray[np.int64]) -> NodeList | None:
    """Remove prepared ids before their deadline: their writer returns them unused.

    Ids that are not prepared are ignored; None if no id is prepared.
    """
    given_back = np.isin(now.prepared["object_id"], np.fromiter(object_ids, dtype=np.int64))
    return replace(now, prepared=now.prepared[~given_back]) if given_back.any() else None


def without_stream_objects(now: NodeList, object_ids: Iterable[int] | NDArray[np.int64]) -> NodeList | None:
    """Remove stream objects that are in their shards now; None if the list has none of these ids."""
    moved = np.isin(now.stream_objects["object_id"], np.fromiter(object_ids, dtype=np.int64))
    return replace(now, stream_objects=now.stream_objects[~moved]) if moved.any() else None


def without_withdrawn(now: NodeList, commits: Iterable[int]) -> NodeList | None:
    """Remove undone commits whose stream objects have been withdrawn from all shards; None if there are none."""
    done = set(commits)
    left = tuple(commit for commit in now.withdrawn_commits if commit not in done)
    return replace(now, withdrawn_commits=left) if left != now.withdrawn_commits else None


# Sketching


def with_sketches(now: NodeList, sketches: Rows) -> NodeList | None:
    """Set or replace the sketches of live objects; None if the objects have exactly these sketches already.

    Args:
        now: the list.
        sketches: SKETCH rows; rows of objects that are not live are left out.
    """
    following = sketches_of(now.live, sketches, now.sketches)
    return None if np.array_equal(following, now.sketches) else replace(now, sketches=following)


# Undoing


@dataclass(frozen=True, slots=True, eq=False)
class Undo:
    """The result of an undo.

    Args:
        node_list: the list after the undo.
        revived: LIVE rows that were restored.
        withdrawn: ids of objects that were live and are retired now.
        withdrawn_stream_objects: STREAM_OBJECT rows that waited in the list; the caller adds them to their shards as
            retired, so that they are collected later.
        commits: the undone commits, ascending; their stream objects must be withdrawn from all shards.
    """

    node_list: NodeList
    revived: Rows
    withdrawn: NDArray[np.int64]
    withdrawn_stream_objects: Rows
    commits: tuple[int, ...]


def after_undo(now: NodeList, earlier: NodeList, now_ms: int) -> Undo | None:
    """Return the list to an earlier version, keeping the uploads since.

    The session number and the prepared ids stay as they are.

    Args:
        now: the list.
        earlier: an earlier version of the same list.
        now_ms: milliseconds since 1970; withdrawn objects are retired at that time.

    Returns:
        None if all objects of the earlier version are live, and no other object is below its next order id.

    Raises:
        CommitRefused: an object that must be restored is delete pending or collected, the versions are not of the same
            list, or another undo was made between them.
    """
    where = _checked_place(now, earlier)
    commits = _commits_to_undo(now, earlier, where)
    if not commits:
        _refuse_differences(now.live, earlier, where)
        return None
    numbers = np.array(sorted(commits), dtype=np.int64)
    goes = np.isin(now.live["added_by"], numbers)
    revived = retype_rows(_revivable(now, numbers, where), LIVE)
    live = np.sort(join_rows(now.live[~goes], revived), order="order_id")
    _refuse_differences(live, earlier, where)
    waiting = np.isin(now.stream_objects["added_by"], numbers)
    following = replace(
        now,
        next_order_id=now.next_order_id + 1,
        emptied=now.emptied_after(live),
        live=live,
        retired=_retired(now, numbers, revived, retired_rows(now.live[goes], now_ms, NO_COMMIT)),
        stream_objects=now.stream_objects[~waiting],
        sketches=sketches_of(live, now.sketches, earlier.sketches),
        withdrawn_commits=tuple(sorted(commits | set(now.withdrawn_commits))),
    )
    return Undo(
        following,
        revived,
        now.live["object_id"][goes],
        now.stream_objects[waiting],
        tuple(int(number) for number in numbers),
    )


def _checked_place(now: NodeList, earlier: NodeList) -> str:
    where = now.where
    if earlier.node_id != now.node_id:
        raise CommitRefused(f"{where}: expected an earlier version of this list, found one of node {earlier.node_id}")
    if earlier.next_order_id > now.next_order_id:
        found = f"{earlier.next_order_id} as its next order id, now {now.next_order_id}"
        raise CommitRefused(f"{where}: expected an earlier version of this list, found {found}")
    return where


def _commits_to_undo(now: NodeList, earlier: NodeList, where: str) -> set[int]:
    missing = np.setdiff1d(earlier.live["object_id"], now.live["object_id"])
    lost = np.setdiff1d(missing, now.retired["object_id"])
    if len(lost):
        raise CommitRefused(f"{where}: expected the objects that must be restored, found {some(lost)} collected")
    is_gone = np.isin(now.retired["object_id"], missing)
    withdrawn = now.retired["object_id"][is_gone & (now.retired["retired_by"] == NO_COMMIT)]
    if len(withdrawn):
        raise CommitRefused(f"{where}: expected commits to undo, found {some(withdrawn)} withdrawn by an earlier undo")
    commits: set[int] = set()
    while fresh := set(now.retired["retired_by"][is_gone].tolist()) - commits:
        commits |= fresh
        # Another commit that has retired an output of these commits since is based on them, and is undone, too.
        is_gone = np.isin(now.retired["added_by"], sorted(commits))
    return commits


def _revivable(now: NodeList, commits: NDArray[np.int64], where: str) -> Rows:
    sources = now.retired[np.isin(now.retired["retired_by"], commits)]
    pending = sources["object_id"][sources["delete_pending"] != 0]
    if len(pending):
        raise CommitRefused(
            f"{where}: expected objects that are not delete pending, found {some(pending)} being deleted"
        )
    return sources[~np.isin(sources["added_by"], commits)]


def _retired(now: NodeList, commits: NDArray[np.int64], revived: Rows, went: Rows) -> Rows:
    kept = now.retired[~np.isin(now.retired["object_id"], revived["object_id"])]
    # Outputs that were merged into other outputs: all of their commits are undone, so no undo may restore them.
    kept["retired_by"][np.isin(kept["retired_by"], commits)] = NO_COMMIT
    return join_rows(kept, went)


def _refuse_differences(live: Rows, earlier: NodeList, where: str) -> None:
    overlaps = overlapping_spans(live)
    if len(overlaps):
        pair = live["object_id"][overlaps[0] : overlaps[0] + 2]
        raise CommitRefused(
            f"{where}: expected objects of disjoint order ids, found {some(pair)}: an earlier undo was made in between"
        )
    old = live["object_id"][live["order_id"] < earlier.next_order_id]
    differing = np.setxor1d(old, earlier.live["object_id"])
    if len(differing):
        raise CommitRefused(
            f"{where}: expected the objects of the earlier version as the result, found {some(differing)} to differ: "
            "an earlier undo was made in between"
        )


def undoable_commits(now: NodeList) -> NDArray[np.int64]:
    """The numbers of commits whose sources are retired and not delete pending: an undo can restore the sources.

    A commit that is not undoable any more never becomes undoable again.
    """
    commits = now.retired["retired_by"][now.retired["delete_pending"] == 0]
    numbers: NDArray[np.int64] = np.unique(commits[commits != NO_COMMIT])
    return numbers


def is_led_back(lists: Mapping[int, NodeList], shard: StreamShard) -> bool:
    """Whether a shard shows an undo that the lists do not show yet, because they were read before it.

    Then an object of one stream is retired in the shard, although the commit that made the object is in its list and
    can be undone. Trimming retires objects, too, but those end at or below their stream's start; and a merge does not
    use objects that an undo may remove (`shard_writes.refuse_undoable`).

    Args:
        lists: node id -> list, read before the shard.
        shard: a shard.

    Complexity: O(n log n) in the retired rows of the shard and the lists; without such rows O(1).
    """
    rows = shard.retired
    if not len(rows):
        return False
    rows = rows[(rows["added_by"] != NO_COMMIT) & (rows["end"] > starts_of(shard.streams, rows["stream_id"]))]
    return any(
        _is_undoable(lists[node_id], rows) for node_id in np.unique(rows["node_id"]).tolist() if node_id in lists
    )


def _is_undoable(now: NodeList, rows: Rows) -> bool:
    commits = rows["added_by"][rows["node_id"] == now.node_id]
    return bool(np.isin(commits, undoable_commits(now)).any())


# Checking: the rules above keep these conditions; other programs that write the list may break them


def check_list(node_list: NodeList) -> list[Problem]:
    """The problems of a list; empty if there are none. Complexity: O(n log n)."""
    where = node_list.where
    return [Problem(ProblemKind.LIST, where, *mismatch) for rule in _RULES for mismatch in rule(node_list)]


def overlapping_spans(live: Rows) -> NDArray[np.int64]:
    """Positions of rows whose span of order ids overlaps the span of the next row; rows ascend by order id."""
    positions: NDArray[np.int64] = np.flatnonzero(live["last_order_id"][:-1] >= live["order_id"][1:])
    return positions


def _spans(now: NodeList) -> Mismatches:
    for at in overlapping_spans(now.live):
        pair = [tuple(now.live[place][["object_id", "order_id", "last_order_id"]].tolist()) for place in (at, at + 1)]
        yield "disjoint spans of order ids", f"(object, first, last) {pair[0]} and {pair[1]}"
    inverted = now.live["object_id"][now.live["last_order_id"] < now.live["order_id"]]
    if len(inverted):
        yield "last order ids of at least the order id", f"lower ones for {some(inverted)}"
    if len(now.live) and int(now.live["last_order_id"].max()) >= now.next_order_id:
        yield f"order ids below {now.next_order_id}", str(now.live["last_order_id"].max())


def _one_place_each(now: NodeList) -> Mismatches:
    places = {
        "live": now.live,
        "prepared": now.prepared,
        "retired": now.retired,
        "waiting for a stream shard": now.stream_objects,
    }
    names = list(places)
    for number, name in enumerate(names):
        ids, counts = np.unique(places[name]["object_id"], return_counts=True)
        if len(ids[counts > 1]):
            yield "each object once", f"{some(ids[counts > 1])} {name} more than once"
        for other in names[number + 1 :]:
            both = np.intersect1d(ids, places[other]["object_id"])
            if len(both):
                yield "each id in one place", f"{some(both)} both {name} and {other}"


def _commits(now: NodeList) -> Mismatches:
    for name, rows, column in (
        ("added", now.live, "added_by"),
        ("added", now.retired, "added_by"),
        ("retired", now.retired, "retired_by"),
        ("added", now.stream_objects, "added_by"),
    ):
        late = rows["object_id"][rows[column] >= now.next_order_id]
        if len(late):
            yield f"commits below {now.next_order_id}", f"later commits that {name} {some(late)}"


def _numbers(now: NodeList) -> Mismatches:
    for name in ("object_id", "size_bytes", "index_size_bytes", "data_time_ms"):
        wrong = now.live["object_id"][now.live[name] < 0]
        if len(wrong):
            yield f"{name} of at least 0", f"lower values for objects {some(wrong)}"
    checksums = now.live["tail_checksum"]
    wrong = now.live["object_id"][(checksums < UNKNOWN) | (checksums > CHECKSUM_MAX)]
    if len(wrong):
        yield "checksums of -1 to 2^32 - 1", f"others for objects {some(wrong)}"


def _stream_objects(now: NodeList) -> Mismatches:
    rows = now.stream_objects
    for at in overlapping(rows):
        pair = f"{describe_row(rows[at])} and {describe_row(rows[at + 1])}"
        yield "objects of a stream that do not overlap", pair
    foreign = rows["object_id"][rows["node_id"] != now.node_id]
    if len(foreign):
        yield "stream objects of this node", f"{some(foreign)} of another node"


def _sketches(now: NodeList) -> Mismatches:
    wrong = now.sketches["object_id"][sketch_columns(now.sketches).wrong]
    if len(wrong):
        yield "sketches with valid numbers", f"invalid ones for objects {some(wrong)}"


_RULES = (_spans, _one_place_each, _commits, _numbers, _stream_objects, _sketches)
