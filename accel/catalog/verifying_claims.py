"""Which offsets the objects of a catalog claim, where these claims contradict one another, and what nobody claims."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from accel.catalog.problems import Kind, Problem
from accel.catalog.records import Checkpoint, StreamBucket
from accel.catalog.rows import Rows, highest_of_each, some
from accel.catalog.survey import Ids, joined_ids
from range_index import ObjectRanges

PROBLEMS_AN_OBJECT_MAX = 5

GAPS_MAX = 100_000
"""Gaps in a list that are compared with ranges and stream objects; with more of them it is not checked for holes."""

OPEN = -1


class Ends:
    """Where each stream has come to so far, on the way through a list. Threads: one.

    Args:
        where: names the list.
        node_id: whose it is.
    """

    def __init__(self, where: str, node_id: int) -> None:
        self.where = where
        self.node_id = node_id
        self.ids: Ids = np.empty(0, dtype=np.int64)
        self.ends: Ids = np.empty(0, dtype=np.int64)
        self.gaps: list[tuple[int, int, int]] = []
        """(stream, from, to) of offsets that the list passes over; one more than `GAPS_MAX` at most."""

    def follow(self, object_id: int, ranges: ObjectRanges, *, is_imported: bool) -> Iterator[Problem]:
        """What of an object does not follow the objects before it. O(streams so far).

        Args:
            object_id: the object.
            ranges: what it holds.
            is_imported: gaps before it are none of ours; the import has told of them.
        """
        _, mine, theirs = np.intersect1d(self.ids, ranges.stream_ids, assume_unique=True, return_indices=True)
        wrong = np.flatnonzero(ranges.starts[theirs] < self.ends[mine])
        for at in wrong[:PROBLEMS_AN_OBJECT_MAX].tolist():
            stream_id = int(ranges.stream_ids[theirs[at]])
            expected = f"stream {stream_id} to go on at {int(self.ends[mine[at]])} or above"
            seen = f"{int(ranges.starts[theirs[at]])} in object {object_id}"
            yield Problem(Kind.ORDER, self.where, expected, seen)
        after = np.flatnonzero(ranges.starts[theirs] > self.ends[mine])[: GAPS_MAX + 1 - len(self.gaps)]
        after = after[:0] if is_imported else after
        columns = (ranges.stream_ids[theirs[after]], self.ends[mine[after]], ranges.starts[theirs[after]])
        self.gaps += zip(*(column.tolist() for column in columns), strict=True)
        ids = np.union1d(self.ids, ranges.stream_ids)
        ends = np.full(len(ids), -1, dtype=np.int64)
        ends[np.searchsorted(ids, self.ids)] = self.ends
        places = np.searchsorted(ids, ranges.stream_ids)
        ends[places] = np.maximum(ends[places], ranges.ends)
        self.ids, self.ends = ids, ends


class Spans:
    """What is claimed of streams that have objects of their own. Threads: one.

    Args:
        rows: STREAM_OBJECT rows.
    """

    def __init__(self, rows: Rows) -> None:
        self._streams = np.unique(rows["stream_id"])
        self._columns = [[rows[name]] for name in ("stream_id", "start", "end", "object_id")]

    def add(self, object_id: int, ranges: ObjectRanges) -> None:
        """Note what an object of many streams claims; where it has a hole inside, its range does not say what."""
        chosen = np.isin(ranges.stream_ids, self._streams)
        chosen[ranges.holed] = False
        claimed = (ranges.stream_ids, ranges.starts, ranges.ends)
        for column, values in zip(self._columns, claimed, strict=False):
            column.append(values[chosen])
        self._columns[3].append(np.full(int(chosen.sum()), object_id, dtype=np.int64))

    def problems(self) -> Iterator[Problem]:
        """Neighbours that overlap, if any do. O(n log n)."""
        streams, starts, ends, objects = (np.concatenate(column) for column in self._columns)
        order = np.lexsort((starts, streams))
        streams, starts, ends, objects = streams[order], starts[order], ends[order], objects[order]
        for at in np.flatnonzero((streams[1:] == streams[:-1]) & (ends[:-1] > starts[1:])).tolist():
            seen = " and ".join(f"[{starts[each]}, {ends[each]}) of object {objects[each]}" for each in (at, at + 1))
            yield Problem(Kind.STREAM_OBJECT, f"stream {streams[at]}", "each offset in one live object", seen)


def strangers(all_ends: Iterable[Ends], buckets: Iterable[StreamBucket]) -> Iterator[Problem]:
    """Streams of which a list has data, and that no bucket knows. O(n log n)."""
    known = joined_ids(bucket.streams["stream_id"] for bucket in buckets)
    for ends in all_ends:
        unknown = np.setdiff1d(ends.ids, known)
        if len(unknown):
            yield Problem(Kind.STREAM, ends.where, "data of streams that a bucket knows", f"some of {some(unknown)}")


def unreached(
    all_ends: Iterable[Ends], rows: Rows, buckets: Iterable[StreamBucket], checkpoints: Iterable[Checkpoint]
) -> Iterator[Problem]:
    """Streams that end before the end that a checkpoint or a closed range knows. O(n log n).

    Args:
        all_ends: of all lists.
        rows: STREAM_OBJECT rows of all live objects of one stream.
        buckets: all of them.
        checkpoints: of all nodes.
    """
    buckets = list(buckets)
    have = [(ends.ids, ends.ends) for ends in all_ends] + [(rows["stream_id"], rows["end"])]
    have += [(each.streams["stream_id"], each.streams["start_offset"]) for each in buckets]
    ids, reached = np.array(highest_of_each(have), dtype=np.int64).reshape(-1, 2).T
    claims = [(f"checkpoint of node {each.node_id}", each.ends["stream_id"], each.ends["end"]) for each in checkpoints]
    for bucket in buckets:
        closed = bucket.ranges[bucket.ranges["end"] != OPEN]
        closed = closed[closed["end"] > closed["start"]]
        claims.append((f"bucket {bucket.bucket}", closed["stream_id"], closed["end"]))
    for where, streams, ends in claims:
        at = np.minimum(np.searchsorted(ids, streams), max(0, len(ids) - 1))
        is_known = ids[at] == streams if len(ids) else np.zeros(len(streams), dtype=np.bool_)
        short = np.flatnonzero(is_known & (reached[at] < ends)) if len(ids) else np.empty(0, dtype=np.int64)
        for each in short[:PROBLEMS_AN_OBJECT_MAX].tolist():
            expected = f"data of stream {streams[each]} up to {ends[each]}, where it says that it ends"
            yield Problem(Kind.END, where, expected, f"data up to {reached[at[each]]}")


def holes(ends: Ends, rows: Rows, buckets: Iterable[StreamBucket]) -> Iterator[Problem]:
    """Offsets within a range of the node that its list passes over, and that no object of one stream holds.

    A gap between two ranges is none: another node wrote there, or nobody. An import may bring holes; no writer does.

    Complexity: O(gaps * log n).
    """
    parts = list(buckets)
    ranges = np.concatenate([bucket.ranges for bucket in parts]) if parts else np.empty(0, dtype=rows.dtype)
    ranges = ranges[np.lexsort((ranges["start"], ranges["stream_id"]))] if len(ranges) else ranges
    starts = dict(pair for bucket in parts for pair in bucket.streams.tolist())
    rows = rows[np.lexsort((rows["start"], rows["stream_id"]))]
    shown = 0
    for stream_id, gap_start, gap_end in ends.gaps[:GAPS_MAX]:
        end = _within(ranges, ends.node_id, stream_id, gap_start, gap_end)
        start = _behind(rows, stream_id, max(gap_start, starts.get(stream_id, 0)))
        if start < end and shown < PROBLEMS_AN_OBJECT_MAX:
            shown += 1
            expected = f"stream {stream_id} without a hole within a range of this node"
            yield Problem(Kind.HOLE, ends.where, expected, f"no object from {start} to {end}")


def _within(ranges: Rows, node_id: int, stream_id: int, start: int, end: int) -> int:
    """Where a gap ends that begins where a node wrote last: with its range at the latest. At its start: it is none."""
    first, stop = np.searchsorted(ranges["stream_id"], [stream_id, stream_id + 1]) if len(ranges) else (0, 0)
    for each in ranges[first:stop][::-1]:
        if int(each["start"]) <= start:
            if int(each["node_id"]) != node_id:
                return start
            return end if int(each["end"]) == OPEN else min(end, max(start, int(each["end"])))
    return start


def _behind(rows: Rows, stream_id: int, start: int) -> int:
    """The first offset from here on that no object of this stream alone holds."""
    first, stop = np.searchsorted(rows["stream_id"], [stream_id, stream_id + 1])
    for each in rows[first:stop]:
        if int(each["start"]) <= start:
            start = max(start, int(each["end"]))
    return start
