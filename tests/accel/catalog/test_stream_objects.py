"""Objects of one stream: added once, never overlapping, merged only where they fit, retired before they are deleted."""

from __future__ import annotations

import pytest

from accel.catalog.records import NO_COMMIT, Rows, StreamShard, with_delete_pending, without_collected
from accel.catalog.stream_shards import check_shard, with_replacement, with_stream_objects
from accel.errors import CommitRefused
from tests.accel.catalog.building import NODE, bucket_of_streams, done, stream_objects


def ids(rows: Rows) -> list[int]:
    found: list[int] = rows["object_id"].tolist()
    return found


def added_by(rows: Rows, *commits: int) -> Rows:
    named = rows.copy()
    named["added_by"] = commits
    return named


def filled() -> StreamShard:
    """Stream 3: objects 20 [0, 5) and 21 [5, 15); stream 5: object 22 [0, 4)."""
    rows = added_by(stream_objects((22, 5, 0, 4), (21, 3, 5, 15), (20, 3, 0, 5)), 8, 8, 7)
    return done(with_stream_objects(bucket_of_streams(3, 5), rows, 500))


def test_an_id_that_lies_here_with_other_facts_is_refused() -> None:
    with pytest.raises(
        CommitRefused, match=r"expected object 20 with \[0, 6\) of stream 3, found object 20 with \[0, 5\)"
    ):
        with_stream_objects(filled(), stream_objects((20, 3, 0, 6)), 500)


@pytest.mark.parametrize(("start", "end"), [(4, 6), (0, 1), (5, 15), (14, 99)])
def test_an_object_that_overlaps_another_is_refused_with_both_named(start: int, end: int) -> None:
    with pytest.raises(
        CommitRefused, match=r"stream shard 0: expected objects of a stream that do not overlap, found .*object 30"
    ):
        with_stream_objects(filled(), stream_objects((30, 3, start, end)), 500)


def test_objects_of_unknown_streams_are_refused() -> None:
    with pytest.raises(
        CommitRefused, match=r"streams that were opened before, found object 20 with \[0, 5\) of stream 9"
    ):
        with_stream_objects(bucket_of_streams(3), stream_objects((20, 9, 0, 5)), 500)


def test_neighbours_are_merged_into_one() -> None:
    merged = stream_objects((30, 3, 0, 15))
    bucket = done(with_replacement(filled(), 3, merged, [21, 20], 900))
    assert ids(bucket.stream_objects) == [30, 22]
    assert ids(bucket.retired) == [20, 21]
    assert bucket.stream_objects[["added_by", "node_id"]][0].tolist() == (NO_COMMIT, NODE)
    assert with_replacement(bucket, 3, merged, [21, 20], 950) is None
    assert check_shard(bucket) == []


@pytest.mark.parametrize(
    ("start", "end", "removed", "message"),
    [
        (
            0,
            16,
            [20, 21],
            r"expected sources that cover object 30 with \[0, 16\) of stream 3 without a gap, found object 20",
        ),
        (0, 5, [20, 21], "expected sources that cover"),
        (0, 15, [20], "expected sources that cover"),
        (0, 15, [20, 21, 22], "expected sources that cover"),
        (0, 15, [20, 99], "expected live objects of stream 3 to merge, found 99 gone"),
        (0, 15, [], "expected live objects of stream 3 to merge"),
    ],
)
def test_a_merged_object_holds_just_what_its_sources_hold(
    start: int, end: int, removed: list[int], message: str
) -> None:
    with pytest.raises(CommitRefused, match=message):
        with_replacement(filled(), 3, stream_objects((30, 3, start, end)), removed, 900)


def test_sources_with_a_gap_between_them_are_not_merged() -> None:
    rows = stream_objects((20, 3, 0, 5), (21, 3, 6, 15))
    bucket = done(with_stream_objects(bucket_of_streams(3), added_by(rows, 7, 8), 500))
    with pytest.raises(CommitRefused, match="without a gap"):
        with_replacement(bucket, 3, stream_objects((30, 3, 0, 15)), [20, 21], 900)


def test_a_merge_is_of_one_object_of_the_named_stream() -> None:
    with pytest.raises(CommitRefused, match="expected one object of stream 5"):
        with_replacement(filled(), 5, stream_objects((30, 3, 0, 15)), [20, 21], 900)


def test_retired_objects_are_delete_pending_before_they_are_forgotten() -> None:
    bucket = done(with_replacement(filled(), 3, stream_objects((30, 3, 0, 15)), [21, 20], 900))
    assert with_delete_pending(bucket, 900)[0] is None
    with pytest.raises(
        CommitRefused, match="expected deleted objects to be delete pending before, found 20, 21 that are not"
    ):
        without_collected(bucket, [20, 21])
    delete_pending, found = with_delete_pending(bucket, 901)
    assert found.tolist() == [20, 21]
    assert with_delete_pending(done(delete_pending), 901)[0] is None
    left = done(without_collected(done(delete_pending), [20]))
    assert ids(left.retired) == [21]
    assert without_collected(left, [20]) is None
    with pytest.raises(CommitRefused, match="found 30 that are not"):
        without_collected(done(delete_pending), [30])
