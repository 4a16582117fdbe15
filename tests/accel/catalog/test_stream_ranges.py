"""Streams are opened, closed and trimmed, many at once: one writer at a time, no offset without an owner."""

from __future__ import annotations

import numpy as np
import pytest

from accel.catalog.records import OPEN, StreamShard
from accel.catalog.stream_shards import (
    check_shard,
    with_closed_ranges,
    with_moved_ranges,
    with_open_ranges,
    with_starts,
)
from accel.errors import CommitRefused
from tests.accel.catalog.building import bucket_of_streams, done

NODE, OTHER = 4, 7


def ranges_of(bucket: StreamShard, stream_id: int) -> list[tuple[int, int, int, int]]:
    """(index, start, end, node) of each range of a stream."""
    rows = bucket.ranges[bucket.ranges["stream_id"] == stream_id]
    return [tuple(row) for row in rows[["range_index", "start", "end", "node_id"]].tolist()]


def starts(bucket: StreamShard) -> dict[int, int]:
    """Stream id -> first kept offset."""
    return dict(bucket.streams.tolist())


def moved_twice() -> StreamShard:
    """Stream 3 on node 4 up to 10, on node 7 up to 25, on node 4 again; stream 5 on node 4."""
    bucket = bucket_of_streams(3, 5)
    bucket = done(with_closed_ranges(bucket, 3, NODE, 10))
    bucket = done(with_open_ranges(bucket, 3, OTHER, 1))
    bucket = done(with_closed_ranges(bucket, 3, OTHER, 25))
    return done(with_open_ranges(bucket, 3, NODE, 2, 25))


def test_a_new_stream_begins_at_0_or_where_it_is_told_to() -> None:
    bucket = done(with_open_ranges(StreamShard(0), [8, 3], NODE, 1, [100, OPEN]))
    assert starts(bucket) == {3: 0, 8: 100}
    assert ranges_of(bucket, 8) == [(0, 100, OPEN, NODE)]
    assert bucket.ranges["epoch"].tolist() == [1, 1]


def test_ranges_move_once_to_one_session() -> None:
    bucket = bucket_of_streams(3, 5)
    seen = bucket.ranges.copy()
    moved = with_moved_ranges(bucket, seen, [10, 7], OTHER, 6)
    assert ranges_of(moved, 3) == [(0, 0, 10, NODE), (1, 10, OPEN, OTHER)]
    assert with_moved_ranges(moved, seen, [10, 7], OTHER, 6) is moved
    for node_id, session_number in ((OTHER, 5), (NODE, 6)):
        with pytest.raises(CommitRefused, match="expected the range that was released, still open"):
            with_moved_ranges(moved, seen, [10, 7], node_id, session_number)


def test_closed_streams_stay_closed_where_they_are_not_to_be_continued() -> None:
    bucket = done(with_closed_ranges(bucket_of_streams(3, 5), 3, NODE, 10))
    assert with_open_ranges(bucket, [3], OTHER, 6, reopens=False) is None
    opened = done(with_open_ranges(bucket, [3, 9], OTHER, 6, reopens=False))
    assert ranges_of(opened, 3) == [(0, 0, 10, NODE)]
    assert ranges_of(opened, 9) == [(0, 0, OPEN, OTHER)]


def test_a_stream_that_is_open_on_another_node_is_refused() -> None:
    with pytest.raises(
        CommitRefused,
        match=r"stream shard 0, stream 3: expected a stream that is open on no node but 7, found node 4 \(2 streams",
    ):
        with_open_ranges(moved_twice(), [3, 5], OTHER, 1)


def test_a_stream_that_ended_elsewhere_than_the_caller_believes_is_refused() -> None:
    bucket = done(with_closed_ranges(bucket_of_streams(3), 3, NODE, 10))
    with pytest.raises(CommitRefused, match="stream 3: expected a start where the stream ended, found start 9, end 10"):
        with_open_ranges(bucket, 3, OTHER, 1, 9)


def test_closing_at_another_end_or_on_another_node_is_refused() -> None:
    with pytest.raises(
        CommitRefused, match=r"stream 3: expected a range of node 7 that is open or ends at 26, found \["
    ):
        with_closed_ranges(moved_twice(), 3, OTHER, 26)
    with pytest.raises(
        CommitRefused, match="stream 3: expected an end at or above the start of the range, found end 24"
    ):
        with_closed_ranges(moved_twice(), 3, NODE, 24)
    with pytest.raises(CommitRefused, match="stream 77: expected a stream that was opened before, found none"):
        with_closed_ranges(moved_twice(), 77, NODE, 0)


def test_if_one_of_many_streams_is_refused_none_is_changed() -> None:
    with pytest.raises(CommitRefused):
        with_closed_ranges(moved_twice(), [3, 5], NODE, [30, -1])


def test_trimming_a_stream_leaves_the_ranges_of_others_alone() -> None:
    bucket = done(with_closed_ranges(bucket_of_streams(3, 5), 5, NODE, 0))
    bucket = done(with_open_ranges(bucket, 5, OTHER, 1))
    bucket = done(with_starts(bucket, 3, 1, 1000))
    assert ranges_of(bucket, 5) == [(0, 0, 0, NODE), (1, 0, OPEN, OTHER)]
    assert with_closed_ranges(bucket, 5, NODE, 0) is None  # who closed it may say so once more


def test_a_start_beyond_the_end_of_a_closed_stream_is_refused() -> None:
    bucket = done(with_closed_ranges(bucket_of_streams(3), 3, NODE, 10))
    with pytest.raises(CommitRefused, match="expected a first kept offset within the stream, found offset 11, end 10"):
        with_starts(bucket, 3, 11, 1000)
    with pytest.raises(CommitRefused, match="stream 4: expected a stream that was opened before"):
        with_starts(bucket, 4, 0, 1000)


def test_a_stream_is_named_once_in_a_call_and_its_numbers_are_not_negative() -> None:
    with pytest.raises(CommitRefused, match="expected each stream once, found 3 twice"):
        with_open_ranges(StreamShard(0), [3, 5, 3], NODE, 1)
    with pytest.raises(CommitRefused, match="expected stream ids of at least 0, found -3"):
        with_open_ranges(StreamShard(0), [-3], NODE, 1)
    with pytest.raises(CommitRefused, match="expected an offset of at least 0, found offset -7"):
        with_open_ranges(StreamShard(0), [3], NODE, 1, -7)


def test_nine_thousand_streams_are_opened_closed_and_trimmed_as_columns() -> None:
    ids = np.arange(9_000, dtype=np.int64) * 3
    bucket = done(with_open_ranges(StreamShard(0), ids, NODE, 1))
    bucket = done(with_closed_ranges(bucket, ids, NODE, ids + 5))
    bucket = done(with_open_ranges(bucket, ids[::-1], OTHER, 1, (ids + 5)[::-1]))
    bucket = done(with_starts(bucket, ids, ids + 5, 1000))
    assert len(bucket.ranges) == len(ids)
    assert check_shard(bucket) == []
