"""The state machine of a stream shard: all rules that make the next shard from the current shard.

    placing         shard_of, shards_of
    ownership       with_open_ranges, with_closed_ranges, with_moved_ranges, with_starts; last_ranges
    stream objects  with_stream_objects, with_replacement, without_commits, with_withdrawn; with_delete_pending and
                    without_collected are in `records`
    checking        check_shard

All rules are pure: they take a shard and facts and return the next shard, or None if the shard needs no change. They
take columns of streams, because a broker opens, closes and trims thousands of streams at once, and refuse the whole
call if one stream contradicts it. For m streams or objects and a shard of n rows each rule takes O((n + m) log n),
without a loop over rows in Python. Times are milliseconds since 1970.

- **A stream never changes its shard.** Streams are distributed over a fixed number of shards by a hash of their ids, so
  that ids allocated one after another, which tend to be busy at the same time, are in different shards. The hash is the
  finalizer of splitmix64 (public domain, S. Vigna). It is part of the format, and so the format record contains the
  number of shards (`stream_buckets`):

      z = id + 0x9E3779B97F4A7C15
      z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9
      z = (z ^ z >> 27) * 0x94D049BB133111EB
      shard = (z ^ z >> 31) mod shards                  all modulo 2**64, unsigned

- **Every offset has one owner.** Opening a stream on a node begins a range without an end; closing the stream there
  sets the end; the next node continues exactly at that end. So at most one node may write a stream at any time.
  Trimming raises the first kept offset; objects wholly below it are retired, and ranges wholly below it are removed.
- **No two objects of one stream overlap.** An object that is not needed any more is retired first, then delete pending,
  then deleted, like the objects in nodes' lists (see `node_list`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accel.catalog.problems import Mismatches, Problem, ProblemKind
from accel.catalog.records import (
    NO_COMMIT,
    OPEN,
    OWNED_RANGE,
    RETIRED_STREAM_OBJECT,
    STREAM,
    STREAM_OBJECT,
    Rows,
    StreamShard,
    by_stream,
    check_new_rows,
    describe_row,
    join_rows,
    make_rows,
    overlapping,
    positions_of,
    refuse_overlaps,
    retype_rows,
    some,
    starts_of,
)
from accel.errors import CommitRefused

# Placing

_STEP = 0x9E3779B97F4A7C15
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_MASK = 2**64 - 1


def shard_of(stream_id: int, shards: int) -> int:
    """The shard of one stream, 0 to shards - 1. Complexity: O(1).

    >>> [shard_of(stream_id, 32) for stream_id in (0, 1, 2, 420_000)]
    [15, 1, 14, 1]

    Args:
        stream_id: of at least 0, below 2**63.
        shards: the number of shards in the format record.

    Raises:
        ValueError: fewer than one shard.

    Source: docs/reference/catalog-records.md, "Stream shards".
    """
    _check_count(shards)
    # Plain integers: every lookup needs the shard of one stream, and arrays take 20 times as long.
    mixed = stream_id + _STEP & _MASK
    for shift, factor in _MIX:
        mixed = (mixed ^ mixed >> shift) * factor & _MASK
    return (mixed ^ mixed >> 31) % shards


def shards_of(stream_ids: NDArray[np.int64], shards: int) -> NDArray[np.int64]:
    """The shard of each of many streams; see `shard_of`. Complexity: O(n), no loop in Python.

    Args:
        stream_ids: n ids of at least 0.
        shards: the number of shards in the format record.

    Returns:
        n shard numbers, in the order of the ids.

    Raises:
        ValueError: fewer than one shard.

    Source: docs/reference/catalog-records.md, "Stream shards".
    """
    _check_count(shards)
    mixed = stream_ids.astype(np.uint64) + np.uint64(_STEP)
    for shift, factor in _MIX:
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    numbers: NDArray[np.int64] = (mixed % np.uint64(shards)).astype(np.int64)
    return numbers


def _check_count(shards: int) -> None:
    if shards < 1:
        raise ValueError(f"expected at least one stream shard, found {shards}")


# Ownership


Column = NDArray[np.int64]


def with_open_ranges(
    now: StreamShard,
    stream_ids: ArrayLike,
    node_id: int,
    session_number: int,
    starts: ArrayLike = OPEN,
    *,
    reopens: bool = True,
) -> StreamShard | None:
    """Open streams on a node: the node may write each stream from its end on.

    A stream that is open on this node already stays as it is. A new stream begins at the requested start, or at 0.

    Args:
        now: the shard of these streams; whether they hash to it is not checked.
        stream_ids: m ids in any order, each once.
        node_id: the node.
        session_number: of the node's session; stored in the range.
        starts: the expected end of each stream; -1 (the default, for all) = any end.
        reopens: whether closed streams are continued; else they stay closed.

    Raises:
        CommitRefused: a stream that is open on another node, or a closed stream with another end than expected.
    """
    where = now.where
    ids, (wanted,) = _sorted_columns(where, stream_ids, starts)
    last = _last_ranges(now.ranges, ids)
    known = last >= 0
    ranges = now.ranges[last[known]]
    is_open = ranges["end"] == OPEN
    foreign = is_open & (ranges["node_id"] != node_id)
    _refuse(where, ids[known], foreign, f"a stream that is open on no node but {node_id}", node=ranges["node_id"])
    beside = ~is_open & (wanted[known] != OPEN) & (wanted[known] != ranges["end"])
    _refuse(where, ids[known], beside, "a start where the stream ended", start=wanted[known], end=ranges["end"])
    begun = ids[~known]
    begin = np.where(wanted[~known] == OPEN, 0, wanted[~known])
    continued = ranges[~is_open] if reopens else ranges[:0]
    if not len(begun) and not len(continued):
        return None
    opened = make_rows(
        OWNED_RANGE,
        stream_id=np.concatenate((begun, continued["stream_id"])),
        range_index=np.concatenate((np.zeros_like(begun), continued["range_index"] + 1)),
        epoch=session_number,
        start=np.concatenate((begin, continued["end"])),
        end=OPEN,
        node_id=node_id,
    )
    new_streams = make_rows(STREAM, stream_id=begun, start_offset=begin)
    streams = np.sort(join_rows(now.streams, new_streams), order="stream_id")
    return replace(now, streams=streams, ranges=by_stream(join_rows(now.ranges, opened), "range_index"))


def with_closed_ranges(now: StreamShard, stream_ids: ArrayLike, node_id: int, ends: ArrayLike) -> StreamShard | None:
    """Close streams on a node: the node has written the streams up to these ends, and does not write them any more.

    Args:
        now: the shard of these streams.
        stream_ids: in any order, each once.
        node_id: the node.
        ends: one past the last offset of each stream.

    Raises:
        CommitRefused: a stream that is not open on the node, and was not closed there at that end either.
    """
    where = now.where
    ids, (closing,) = _sorted_columns(where, stream_ids, ends)
    last = _last_ranges(now.ranges, ids)
    _refuse(where, ids, last < 0, "a stream that was opened before")
    ranges = now.ranges[last]
    to_close = (ranges["node_id"] == node_id) & (ranges["end"] == OPEN)
    for stream_id, end in zip(ids[~to_close].tolist(), closing[~to_close].tolist(), strict=True):
        _refuse_unless_closed(now, stream_id, node_id, end)
    inverted = to_close & (closing < ranges["start"])
    _refuse(where, ids, inverted, "an end at or above the start of the range", end=closing, start=ranges["start"])
    if not to_close.any():
        return None
    closed = now.ranges.copy()
    closed["end"][last[to_close]] = closing[to_close]
    return replace(now, ranges=closed)


def last_ranges(now: StreamShard, stream_ids: ArrayLike) -> Rows:
    """The last OWNED_RANGE row of each of these streams that the shard contains, ascending by stream id."""
    ids = np.unique(np.asarray(stream_ids, dtype=np.int64))
    last = _last_ranges(now.ranges, ids)
    rows: Rows = now.ranges[last[last >= 0]]
    return rows


def with_moved_ranges(now: StreamShard, seen: Rows, ends: ArrayLike, node_id: int, session_number: int) -> StreamShard:
    """Move open ranges to a node: each range ends where its data ends, and the node's range begins there.

    Args:
        now: the shard of these streams.
        seen: OWNED_RANGE rows, ascending by stream id: the open ranges as they were before their release.
        ends: one past the last offset of each stream, from its node's list; the ends of objects of one stream in the
            shard and the first kept offset are taken if they are higher.
        node_id: the node that continues the streams.
        session_number: of that node's session.

    Returns:
        The shard itself if the ranges were moved before.

    Raises:
        CommitRefused: a range differs from `seen`: its node has a new session, has opened the stream again, has closed
            it, or another node took it over.
    """
    where = now.where
    ids, closing = seen["stream_id"], np.asarray(ends, dtype=np.int64)
    last = _last_ranges(now.ranges, ids)
    _refuse(where, ids, last < 0, "a stream that was opened before")
    rows = now.ranges[last]
    done = (rows["node_id"] == node_id) & (rows["epoch"] == session_number) & (rows["end"] == OPEN)
    done &= rows["range_index"] == seen["range_index"] + 1
    as_seen = rows == seen
    expected = "the range that was released, still open"
    _refuse(where, ids, ~done & ~as_seen, expected, node=rows["node_id"], start=rows["start"], end=rows["end"])
    if not as_seen.any():
        return now
    closing = np.maximum(closing, starts_of(now.streams, ids))
    for stream_id, end in now.stream_objects[["stream_id", "end"]][np.isin(now.stream_objects["stream_id"], ids)]:
        at = int(np.searchsorted(ids, stream_id))
        closing[at] = max(closing[at], end)
    ranges = now.ranges.copy()
    ranges["end"][last[as_seen]] = closing[as_seen]
    opened = make_rows(
        OWNED_RANGE,
        stream_id=ids[as_seen],
        range_index=rows["range_index"][as_seen] + 1,
        epoch=session_number,
        start=closing[as_seen],
        end=OPEN,
        node_id=node_id,
    )
    return replace(now, ranges=by_stream(join_rows(ranges, opened), "range_index"))


def with_starts(now: StreamShard, stream_ids: ArrayLike, offsets: ArrayLike, now_ms: int) -> StreamShard | None:
    """Trim streams: offsets below the given ones are not needed any more. A first kept offset never falls.

    Stream objects wholly below are retired; ranges wholly below are removed, except the last range of a stream.

    Args:
        now: the shard of these streams.
        stream_ids: in any order, each once.
        offsets: the first kept offset of each stream.
        now_ms: milliseconds since 1970.

    Raises:
        CommitRefused: an unknown stream, or an offset beyond the end of a closed stream.
    """
    where = now.where
    ids, (starts,) = _sorted_columns(where, stream_ids, offsets)
    last = _last_ranges(now.ranges, ids)
    _refuse(where, ids, last < 0, "a stream that was opened before")
    ends = now.ranges["end"][last]
    beyond = (ends != OPEN) & (starts > ends)
    _refuse(where, ids, beyond, "a first kept offset within the stream", offset=starts, end=ends)
    positions = np.searchsorted(now.streams["stream_id"], ids)
    raised = starts > now.streams["start_offset"][positions]
    if not raised.any():
        return None
    streams = now.streams.copy()
    streams["start_offset"][positions[raised]] = starts[raised]
    lost = now.given_up[now.given_up["end"] > starts_of(streams, now.given_up["stream_id"])]
    trimmed = replace(now, streams=streams, ranges=_without_trimmed(streams, now.ranges, ids[raised]), given_up=lost)
    return retire_trimmed(trimmed, now_ms)


GIVEN_UP_MAX = 65_536
"""The maximum number of ranges of one shard that were given up; trimming removes them."""


def with_given_up(now: StreamShard, rows: Rows) -> StreamShard | None:
    """Record ranges of streams that an object has lost for good (`lost_objects`).

    Args:
        now: the shard of these streams.
        rows: GIVEN_UP rows in any order; a range that begins where a recorded one of its stream does replaces it.

    Returns:
        None if all of them are recorded already, whatever the time.

    Raises:
        CommitRefused: more than `GIVEN_UP_MAX` ranges.
    """
    columns = ["stream_id", "start", "end", "object_id"]
    if {*rows[columns].tolist()} <= {*now.given_up[columns].tolist()}:
        return None
    pairs = {*rows[["stream_id", "start"]].tolist()}
    is_kept = [pair not in pairs for pair in now.given_up[["stream_id", "start"]].tolist()]
    kept = now.given_up[np.array(is_kept, dtype=np.bool_)]
    if len(kept) + len(rows) > GIVEN_UP_MAX:
        expected = f"at most {GIVEN_UP_MAX} ranges that were given up: trim streams first"
        raise CommitRefused(f"{now.where}: expected {expected}, found {len(kept)} and {len(rows)} more")
    return replace(now, given_up=by_stream(join_rows(kept, rows), "start"))


def _without_trimmed(streams: Rows, ranges: Rows, raised: Column) -> Rows:
    # Only ranges of the streams whose start was raised: other streams may have an empty range at the start (opened and
    # closed without a write), and the process that closed such a range may have to repeat the close.
    below = np.isin(ranges["stream_id"], raised) & (ranges["end"] != OPEN)
    below &= ranges["end"] <= starts_of(streams, ranges["stream_id"])
    below[_last_ranges(ranges, streams["stream_id"])] = False
    kept: Rows = ranges[~below]
    return kept


def _last_ranges(ranges: Rows, stream_ids: Column) -> Column:
    # The position of each stream's last range; -1 for a stream without ranges.
    last = np.searchsorted(ranges["stream_id"], stream_ids, side="right") - 1
    if not len(ranges):
        return np.full(len(stream_ids), -1, dtype=np.int64)
    return np.where(ranges["stream_id"][np.maximum(last, 0)] == stream_ids, last, -1)


def _refuse_unless_closed(now: StreamShard, stream_id: int, node_id: int, end: int) -> None:
    # Only for streams that are not open on the node: a repeated close, perhaps after other nodes opened the stream.
    first, stop = np.searchsorted(now.ranges["stream_id"], [stream_id, stream_id + 1])
    ranges = now.ranges[first:stop]
    if not ((ranges["node_id"] == node_id) & (ranges["end"] == end)).any():
        found = "; ".join(f"[{row['start']}, {row['end']}) of node {row['node_id']}" for row in ranges[-5:])
        raise CommitRefused(
            f"{now.where}, stream {stream_id}: expected a range of node {node_id} that is open "
            f"or ends at {end}, found {found}"
        )


def _sorted_columns(where: str, stream_ids: ArrayLike, *columns: ArrayLike) -> tuple[Column, list[Column]]:
    ids = np.atleast_1d(np.asarray(stream_ids, dtype=np.int64))
    order = np.argsort(ids, kind="stable")
    repeated = np.flatnonzero(ids[order][1:] == ids[order][:-1])
    if len(repeated):
        raise CommitRefused(f"{where}: expected each stream once, found {some(ids[order][repeated])} twice")
    if len(ids) and ids[order[0]] < 0:
        raise CommitRefused(f"{where}: expected stream ids of at least 0, found {ids[order[0]]}")
    values = [np.broadcast_to(np.asarray(column, dtype=np.int64), ids.shape)[order] for column in columns]
    for column in values:
        _refuse(where, ids[order], column < OPEN, "an offset of at least 0", offset=column)
    return ids[order], values


def _refuse(where: str, ids: Column, wrong: NDArray[np.bool_], expected: str, **facts: Column) -> None:
    if not wrong.any():
        return
    at = int(wrong.argmax())
    found = ", ".join(f"{name} {int(values[at])}" for name, values in facts.items()) or "none"
    alike = f" ({int(wrong.sum())} streams in all)" if wrong.sum() > 1 else ""
    raise CommitRefused(f"{where}, stream {int(ids[at])}: expected {expected}, found {found}{alike}")


# Stream objects

_IDENTITY = ("stream_id", "start", "end", "size_bytes")


def with_stream_objects(now: StreamShard, rows: Rows, now_ms: int) -> StreamShard | None:
    """Add objects; objects that are in the shard already, live or retired, are skipped.

    An object wholly below its stream's first kept offset is retired at once.

    Args:
        now: the shard of all their streams.
        rows: STREAM_OBJECT rows in any order.
        now_ms: milliseconds since 1970.

    Raises:
        CommitRefused: an unknown stream, overlapping objects, an id that is in the shard with other facts, an id twice,
            a negative number or an empty range.
        ValueError: rows of another type.
    """
    where = now.where
    check_new_rows(rows, where)
    _refuse_unknown_streams(now, rows)
    new = rows[~_lie_here(now, rows)]
    if not len(new):
        return None
    trimmed = new["end"] <= starts_of(now.streams, new["stream_id"])
    live = by_stream(join_rows(now.stream_objects, new[~trimmed]), "start")
    refuse_overlaps(live, where)
    return replace(now, stream_objects=live, retired=_retired_with(now, new[trimmed], now_ms))


def with_replacement(
    now: StreamShard, stream_id: int, added: Rows, removed: Iterable[int], now_ms: int
) -> StreamShard | None:
    """Replace neighbouring objects of a stream by an object that holds exactly their offsets.

    An undo of the commit that made a source would not remove the merged object; so `shard_writes.refuse_undoable`
    checks the sources before.

    Args:
        now: the shard of the stream.
        stream_id: the stream.
        added: one STREAM_OBJECT row; filled in here: `node_id` of the first source, the oldest `data_time_ms` of all
            sources, and NO_COMMIT as `added_by`.
        removed: ids of the objects that were merged.
        now_ms: milliseconds since 1970; the sources are retired at that time.

    Returns:
        None if the object is in the shard already.

    Raises:
        CommitRefused: a removed object that is gone, ranges that do not cover the new object exactly, more than one new
            row, or a row of another stream.
        ValueError: rows of another type.
    """
    where = now.where
    check_new_rows(added, where)
    if len(added) != 1 or int(added["stream_id"][0]) != stream_id:
        raise CommitRefused(f"{where}: expected one object of stream {stream_id}, found {added.tolist()[:3]}")
    if _lie_here(now, added).all():
        return None
    ids = np.unique(np.fromiter(removed, dtype=np.int64))
    sources = now.stream_objects[np.isin(now.stream_objects["object_id"], ids)]
    if len(sources) < len(ids) or not len(ids):
        gone = np.setdiff1d(ids, sources["object_id"])
        raise CommitRefused(f"{where}: expected live objects of stream {stream_id} to merge, found {some(gone)} gone")
    _refuse_other_coverage(sources, added[0], where)
    merged = retype_rows(added, STREAM_OBJECT)
    merged["added_by"], merged["node_id"] = NO_COMMIT, sources["node_id"][0]
    merged["data_time_ms"] = sources["data_time_ms"].min()
    swapped = _retire(now, np.isin(now.stream_objects["object_id"], ids), now_ms)
    return replace(swapped, stream_objects=by_stream(join_rows(swapped.stream_objects, merged), "start"))


def without_commits(now: StreamShard, node_id: int, commits: Iterable[int], now_ms: int) -> StreamShard | None:
    """Retire the objects of undone commits of a node's list (see `node_list`).

    Args:
        now: the shard.
        node_id: the node of the list.
        commits: the numbers of the undone commits.
        now_ms: milliseconds since 1970; the objects are retired at that time.

    Returns:
        None if the shard has no live object of these commits.
    """
    numbers = np.fromiter(commits, dtype=np.int64)
    made = (now.stream_objects["node_id"] == node_id) & np.isin(now.stream_objects["added_by"], numbers)
    return _retire(now, made, now_ms) if made.any() else None


def with_withdrawn(now: StreamShard, rows: Rows, now_ms: int) -> StreamShard | None:
    """Retire objects of undone commits that may not have been moved to the shard yet.

    A later move finds such an object retired, and does not list it. See `node_list`.

    Args:
        now: the shard of all their streams.
        rows: STREAM_OBJECT rows in any order.
        now_ms: milliseconds since 1970.

    Raises:
        CommitRefused: an unknown stream, or an id that is in the shard with other facts.
        ValueError: rows of another type.
    """
    check_new_rows(rows, now.where)
    _refuse_unknown_streams(now, rows)
    new = rows[~_lie_here(now, rows)]
    live = np.isin(now.stream_objects["object_id"], rows["object_id"])
    if not len(new) and not live.any():
        return None
    return _retire(replace(now, retired=_retired_with(now, new, now_ms)), live, now_ms)


def retire_trimmed(now: StreamShard, now_ms: int) -> StreamShard:
    """Retire the objects wholly below the first kept offsets of their streams; the same shard if there are none."""
    below = now.stream_objects["end"] <= starts_of(now.streams, now.stream_objects["stream_id"])
    return _retire(now, below, now_ms) if below.any() else now


def _retire(now: StreamShard, going: NDArray[np.bool_], now_ms: int) -> StreamShard:
    retired = _retired_with(now, now.stream_objects[going], now_ms)
    return replace(now, stream_objects=now.stream_objects[~going], retired=retired)


def _retired_with(now: StreamShard, going: Rows, now_ms: int) -> Rows:
    rows = retype_rows(going, RETIRED_STREAM_OBJECT, {"retired_at_ms": now_ms, "delete_pending": 0})
    return by_stream(join_rows(now.retired, rows), "object_id")


def _lie_here(now: StreamShard, rows: Rows) -> NDArray[np.bool_]:
    kept = join_rows(now.stream_objects, retype_rows(now.retired, STREAM_OBJECT))
    positions = positions_of(kept["object_id"], rows["object_id"])
    here = positions >= 0
    for name in _IDENTITY:
        differs = kept[name][positions[here]] != rows[name][here]
        if differs.any():
            at = int(differs.argmax())
            found = describe_row(kept[positions[here]][at])
            raise CommitRefused(f"{now.where}: expected {describe_row(rows[here][at])}, found {found} with this id")
    return here


def _refuse_unknown_streams(now: StreamShard, rows: Rows) -> None:
    unknown = ~np.isin(rows["stream_id"], now.streams["stream_id"])
    if unknown.any():
        found = describe_row(rows[int(unknown.argmax())])
        raise CommitRefused(f"{now.where}: expected objects of streams that were opened before, found {found}")


def _refuse_other_coverage(sources: Rows, added: np.void, where: str) -> None:
    starts, ends = sources["start"], sources["end"]
    covers = (sources["stream_id"] == added["stream_id"]).all() and (starts[1:] == ends[:-1]).all()
    if not covers or starts[0] != added["start"] or ends[-1] != added["end"]:
        found = ", ".join(describe_row(row) for row in sources[:5])
        raise CommitRefused(f"{where}: expected sources that cover {describe_row(added)} without a gap, found {found}")


# Checking: the rules above keep these conditions; other programs that write the shard may break them


def check_shard(shard: StreamShard, shards: int | None = None) -> list[Problem]:
    """The problems of a shard; empty if there are none. Complexity: O(n log n).

    Args:
        shard: the shard.
        shards: the number of shards, to check that the streams hash to this shard; None = not checked.
    """
    where = shard.where
    mismatches = [mismatch for rule in _RULES for mismatch in rule(shard)]
    if shards is not None:
        mismatches += _placement(shard, shards)
    return [Problem(ProblemKind.SHARD, where, *mismatch) for mismatch in mismatches]


def _placement(shard: StreamShard, shards: int) -> Mismatches:
    ids = shard.streams["stream_id"]
    unknown_streams = ids[shards_of(ids, shards) != shard.bucket]
    if len(unknown_streams):
        yield "streams that hash to it", some(unknown_streams)


def _known_streams(shard: StreamShard) -> Mismatches:
    places = {"ranges": shard.ranges, "stream objects": shard.stream_objects, "retired": shard.retired}
    known = shard.streams["stream_id"]
    for name, rows in places.items():
        unknown = np.setdiff1d(rows["stream_id"], known)
        if len(unknown):
            yield f"{name} of known streams", f"some of {some(unknown)}"
    ownerless = np.setdiff1d(known, shard.ranges["stream_id"])
    if len(ownerless):
        yield "an ownership range for each stream", f"none for {some(ownerless)}"


def _ranges(shard: StreamShard) -> Mismatches:
    rows = shard.ranges
    yield from _first(rows, rows["start"] < 0, "starts of at least 0")
    yield from _first(rows, (rows["end"] != OPEN) & (rows["end"] < rows["start"]), "ranges that end after they start")
    followed = np.zeros(len(rows), dtype=np.bool_)
    followed[:-1] = rows["stream_id"][1:] == rows["stream_id"][:-1]
    yield from _first(rows, followed & (rows["end"] == OPEN), "only the last range of a stream to be open")
    overlaps = followed.copy()
    overlaps[:-1] &= rows["end"][:-1] > rows["start"][1:]
    yield from _first(rows, overlaps, "each range to end at or before the start of the next one")


def _first(rows: Rows, wrong: NDArray[np.bool_], expected: str) -> Mismatches:
    if wrong.any():
        row = rows[int(wrong.argmax())]
        range_text = f"[{row['start']}, {row['end']}) of node {row['node_id']}"
        yield expected, f"range {row['range_index']} of stream {row['stream_id']}: {range_text}"


def _objects(shard: StreamShard) -> Mismatches:
    rows = shard.stream_objects
    for at in overlapping(rows):
        pair = f"{describe_row(rows[at])} and {describe_row(rows[at + 1])}"
        yield "objects of a stream that do not overlap", pair
    for row in rows[rows["end"] <= rows["start"]]:
        yield "an end above the start", describe_row(row)
    for row in rows[rows["end"] <= starts_of(shard.streams, rows["stream_id"])]:
        yield "objects above the first kept offset", describe_row(row)


def _one_place_each(shard: StreamShard) -> Mismatches:
    both = np.intersect1d(shard.stream_objects["object_id"], shard.retired["object_id"])
    if len(both):
        yield "each object live or retired", f"{some(both)} both"
    for name, rows in (("live", shard.stream_objects), ("retired", shard.retired)):
        ids, counts = np.unique(rows["object_id"], return_counts=True)
        if len(ids[counts > 1]):
            yield "each object once", f"{some(ids[counts > 1])} {name} more than once"


_RULES = (_known_streams, _ranges, _objects, _one_place_each)
