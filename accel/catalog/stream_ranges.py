"""Who writes a stream from which offset on, and where it begins: ownership ranges and first kept offsets.

A stream is opened on a node, which begins a range without an end; it is closed there, which gives the range its end;
and the next node continues exactly at that end. So at any time at most one node may write a stream, and every offset
has one owner. Trimming raises the first kept offset; what lies wholly below it is retired or forgotten.

A broker opens, closes and trims thousands of streams at once: the rules take columns of streams, and loop over none. As
all rules they give None where everything is done already, and refuse the whole call if one stream contradicts it. For m
streams and a bucket of n rows each is O((n + m) log n), and copies the bucket's rows once.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accel.catalog.records import StreamBucket
from accel.catalog.rows import OWNED_RANGE, STREAM, Rows, by_stream, joined, make_rows, some, starts_of
from accel.catalog.stream_objects import retire_trimmed
from accel.errors import CommitRefused

OPEN = -1
"""As the end of a range: none yet. As a start that is asked for: wherever the stream ends."""

Column = NDArray[np.int64]


def with_open_ranges(
    now: StreamBucket, stream_ids: ArrayLike, node_id: int, epoch: int, starts: ArrayLike = OPEN
) -> StreamBucket | None:
    """Open streams on a node: it may write them from where they end.

    A stream that is open on this node already stays as it is. A new stream begins at the start that is asked for, or 0.

    Args:
        now: the bucket of these streams; that they hash to it is not checked.
        stream_ids: m ids in any order, each once.
        node_id: the node.
        epoch: of its session; stands in the range.
        starts: for each stream where the caller believes that it ends; -1 (the default, for all) = no matter where.

    Raises:
        CommitRefused: a stream that is open on another node, or that does not end where the caller believes.
    """
    where = f"bucket {now.bucket}"
    ids, (wanted,) = _sorted_columns(where, stream_ids, starts)
    last = _last_ranges(now.ranges, ids)
    known = last >= 0
    ranges = now.ranges[last[known]]
    is_open = ranges["end"] == OPEN
    foreign = is_open & (ranges["node_id"] != node_id)
    _refuse(where, ids[known], foreign, f"a stream that no node but {node_id} has open", node=ranges["node_id"])
    beside = ~is_open & (wanted[known] != OPEN) & (wanted[known] != ranges["end"])
    _refuse(where, ids[known], beside, "a start where the stream ended", start=wanted[known], end=ranges["end"])
    begun = ids[~known]
    begin = np.where(wanted[~known] == OPEN, 0, wanted[~known])
    if not len(begun) and is_open.all():
        return None
    continued = ranges[~is_open]
    opened = make_rows(
        OWNED_RANGE,
        stream_id=np.concatenate((begun, continued["stream_id"])),
        range_index=np.concatenate((np.zeros_like(begun), continued["range_index"] + 1)),
        epoch=epoch,
        start=np.concatenate((begin, continued["end"])),
        end=OPEN,
        node_id=node_id,
    )
    new_streams = make_rows(STREAM, stream_id=begun, start_offset=begin)
    streams = np.sort(joined(now.streams, new_streams), order="stream_id")
    return replace(now, streams=streams, ranges=by_stream(joined(now.ranges, opened), "range_index"))


def with_closed_ranges(now: StreamBucket, stream_ids: ArrayLike, node_id: int, ends: ArrayLike) -> StreamBucket | None:
    """Close streams on a node: it has written them up to these ends, and writes no more.

    Args:
        now: the bucket of these streams.
        stream_ids: in any order, each once.
        node_id: the node.
        ends: one past the last offset of each.

    Raises:
        CommitRefused: a stream that is not open on the node, and was not closed there at that end either.
    """
    where = f"bucket {now.bucket}"
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


def with_starts(now: StreamBucket, stream_ids: ArrayLike, offsets: ArrayLike, now_ms: int) -> StreamBucket | None:
    """Trim streams: offsets below these are not needed any more. A start never falls.

    Stream objects wholly below go to the retired ones, ranges wholly below are forgotten; the last one stays.

    Args:
        now: the bucket of these streams.
        stream_ids: in any order, each once.
        offsets: the first kept offset of each.
        now_ms: milliseconds since 1970.

    Raises:
        CommitRefused: a stream that is not known, or an offset beyond the end of a closed stream.
    """
    where = f"bucket {now.bucket}"
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
    trimmed = replace(now, streams=streams, ranges=_without_trimmed(streams, now.ranges, ids[raised]))
    return retire_trimmed(trimmed, now_ms)


def _without_trimmed(streams: Rows, ranges: Rows, raised: Column) -> Rows:
    # Only of the streams whose start was raised: elsewhere an empty range may lie at the start (opened and closed
    # without a write), and whoever closed it may have to say so once more.
    below = np.isin(ranges["stream_id"], raised) & (ranges["end"] != OPEN)
    below &= ranges["end"] <= starts_of(streams, ranges["stream_id"])
    below[_last_ranges(ranges, streams["stream_id"])] = False
    kept: Rows = ranges[~below]
    return kept


def _last_ranges(ranges: Rows, stream_ids: Column) -> Column:
    # Position of each stream's last range; -1 without one.
    found = np.searchsorted(ranges["stream_id"], stream_ids, side="right") - 1
    if not len(ranges):
        return np.full(len(stream_ids), -1, dtype=np.int64)
    return np.where(ranges["stream_id"][np.maximum(found, 0)] == stream_ids, found, -1)


def _refuse_unless_closed(now: StreamBucket, stream_id: int, node_id: int, end: int) -> None:
    # Only for streams that are not open on the node: an end that is told twice, perhaps after others have opened them.
    first, stop = np.searchsorted(now.ranges["stream_id"], [stream_id, stream_id + 1])
    ranges = now.ranges[first:stop]
    if not ((ranges["node_id"] == node_id) & (ranges["end"] == end)).any():
        found = "; ".join(f"[{each['start']}, {each['end']}) of node {each['node_id']}" for each in ranges[-5:])
        raise CommitRefused(
            f"bucket {now.bucket}, stream {stream_id}: expected a range of node {node_id} that is open "
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
    alike = f" ({int(wrong.sum())} streams alike)" if wrong.sum() > 1 else ""
    raise CommitRefused(f"{where}, stream {int(ids[at])}: expected {expected}, found {found}{alike}")
