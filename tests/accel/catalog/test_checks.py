"""Records refuse rows out of order, and the checks of lists and buckets find what foreign hands may break."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from accel.catalog.node_list import check_list
from accel.catalog.records import (
    LIVE,
    OBJECT_ID_COUNTER,
    PREPARED,
    STREAM,
    STREAM_END,
    Checkpoint,
    ListVersion,
    NodeDirectory,
    NodeList,
    StreamShard,
    make_rows,
    no_rows,
    positions_of,
    retype_rows,
    some,
)
from accel.catalog.stream_shards import check_shard, shard_of
from tests.accel.catalog.building import bucket_of_streams, compacted, list_of, prepared, stream_objects, uploaded


def test_rows_out_of_order_never_become_a_record() -> None:
    now = list_of(10, 11)
    with pytest.raises(ValueError, match="list of node 4, live: expected ascending keys, each once, found 1 before 0"):
        replace(now, live=now.live[::-1].copy())
    with pytest.raises(ValueError, match="prepared: expected ascending keys, each once, found 5 before 5"):
        NodeList(4, prepared=make_rows(PREPARED, object_id=[5, 5], deadline_ms=0))
    with pytest.raises(ValueError, match="stream shard 0, streams: expected keys of at least 0, found -1"):
        StreamShard(0, make_rows(STREAM, stream_id=-1, start_offset=0))
    with pytest.raises(
        ValueError, match=r"stream objects: expected ascending \(stream_id, start\), found \(7, 5\) before \(7, 0\)"
    ):
        NodeList(4, stream_objects=stream_objects((1, 7, 5, 6), (2, 7, 0, 5)))
    with pytest.raises(ValueError, match="directory of nodes: expected ascending keys"):
        NodeDirectory(np.array([2, 1]))


def test_rows_of_another_kind_never_become_a_record() -> None:
    with pytest.raises(ValueError, match="list of node 4: expected live with the fields"):
        NodeList(4, live=no_rows(PREPARED))


def test_numbers_below_their_bounds_never_become_a_record() -> None:
    with pytest.raises(ValueError, match="expected epoch of 0 to 9223372036854775807, found -1"):
        NodeList(4, epoch=-1)
    with pytest.raises(ValueError, match="expected next_object_id of 0 to"):
        OBJECT_ID_COUNTER.encode(-1)
    with pytest.raises(ValueError, match="expected sequence of 1 to"):
        ListVersion(0, NodeList(4))
    with pytest.raises(ValueError, match="checkpoint of node 4: expected order_id of -1 to"):
        Checkpoint(4, -2, make_rows(STREAM_END, stream_id=1, end=2))
    with pytest.raises(ValueError, match="expected next_order_id above all order ids, found 1 after order id 1"):
        replace(list_of(10, 11), next_order_id=1)


def test_the_arrays_of_a_record_cannot_be_written_to() -> None:
    bucket = bucket_of_streams(3)
    with pytest.raises(ValueError, match="read-only"):
        bucket.streams["start_offset"][0] = 5


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        (
            "last_order_id",
            [1, 1, 2],
            "expected disjoint spans of order ids, found (object, first, last) (10, 0, 1) and",
        ),
        ("last_order_id", [0, 0, 2], "expected last order ids of at least the order id, found lower ones for 11"),
        ("last_order_id", [0, 1, 9], "expected order ids below 3, found 9"),
        ("object_id", [10, 11, 10], "expected each object once, found 10 live more than once"),
        ("size_bytes", [1, -1, 1], "expected size_bytes of at least 0, found lower values for objects 11"),
        ("tail_checksum", [0, -2, 2**32], "expected checksums of -1 to 2^32 - 1, found others for objects 11, 12"),
        ("added_by", [0, 1, 3], "expected commits below 3, found later commits that added 12"),
    ],
)
def test_each_broken_rule_of_a_list_is_named(column: str, values: list[int], message: str) -> None:
    now = list_of(10, 11, 12)
    assert check_list(now) == []
    live = now.live.copy()
    live[column] = values
    assert any(message in str(problem) for problem in check_list(replace(now, live=live)))


def test_an_id_in_two_places_of_a_list_is_named() -> None:
    now = compacted(list_of(10, 11), [10], 20)
    both = replace(now, live=list_of(10, 11).live)
    assert list(map(str, check_list(both))) == [
        "list of node 4: expected each id in one place, found 10 both live and retired"
    ]
    promised = replace(prepared(now, 30), live=retype_rows(now.live, LIVE, {}))
    twice = replace(promised, stream_objects=stream_objects((30, 7, 0, 5)))
    assert list(map(str, check_list(twice))) == [
        "list of node 4: expected each id in one place, found 30 both prepared and waiting for a stream shard"
    ]


def test_stream_objects_that_overlap_or_belong_elsewhere_are_named() -> None:
    now = uploaded(list_of(), 10, stream_objects((11, 7, 0, 5)))
    foreign = now.stream_objects.copy()
    foreign["node_id"] = 9
    assert list(map(str, check_list(replace(now, stream_objects=foreign)))) == [
        "list of node 4: expected stream objects of this node, found 11 of another node"
    ]
    (problem,) = check_list(replace(now, stream_objects=stream_objects((11, 7, 0, 5), (12, 7, 4, 6))))
    assert "found object 11 with [0, 5) of stream 7 and object 12 with [4, 6) of stream 7" in str(problem)


def test_each_broken_rule_of_a_bucket_is_named() -> None:
    bucket = bucket_of_streams(3, 5)
    assert check_shard(bucket) == []
    broken = replace(
        bucket,
        ranges=bucket.ranges[:1],
        stream_objects=stream_objects((20, 3, 0, 5), (21, 3, 4, 6), (22, 9, 1, 1)),
        streams=make_rows(STREAM, stream_id=[3, 5], start_offset=[5, 0]),
    )
    found = check_shard(broken)
    for message in (
        "expected stream objects of known streams, found some of 9",
        "expected an ownership range for each stream, found none for 5",
        "expected objects of a stream that do not overlap, found object 20",
        "expected an end above the start, found object 22",
        "expected objects above the first kept offset, found object 20",
    ):
        assert any(message in str(problem) for problem in found), (message, found)


def test_an_object_in_two_places_of_a_shard_is_named() -> None:
    shard = bucket_of_streams(3, 5)
    twice = replace(shard, stream_objects=stream_objects((20, 3, 0, 5), (20, 5, 0, 5)))
    assert list(map(str, check_shard(twice))) == [
        "stream shard 0: expected each object once, found 20 live more than once"
    ]


def test_ranges_that_overlap_are_named() -> None:
    bucket = bucket_of_streams(3)
    ranges = np.concatenate([bucket.ranges, bucket.ranges])
    ranges["range_index"] = [0, 1]
    found = check_shard(replace(bucket, ranges=ranges.copy()))
    message = "expected only the last range of a stream to be open, found range 0 of stream 3: [0, -1) of node 4"
    assert list(map(str, found)) == [f"stream shard 0: {message}"]
    ranges = ranges.copy()
    ranges["end"], ranges["start"] = [10, -1], [0, 9]
    (problem,) = check_shard(replace(bucket, ranges=ranges))
    assert "expected each range to end at or before the start of the next one, found range 0 of stream 3" in str(
        problem
    )


def test_streams_in_the_wrong_bucket_are_named() -> None:
    stream_id = next(each for each in range(100) if shard_of(each, 32) == 0)
    assert check_shard(bucket_of_streams(stream_id), shards=32) == []
    stranger = next(each for each in range(100) if shard_of(each, 32) == 1)
    (problem,) = check_shard(bucket_of_streams(stranger), shards=32)
    assert str(problem) == f"stream shard 0: expected streams that hash to it, found {stranger}"


def test_rows_are_made_of_all_their_columns_and_no_others() -> None:
    with pytest.raises(ValueError, match="expected columns object_id, deadline_ms, found object_id"):
        make_rows(PREPARED, object_id=[1])
    with pytest.raises(ValueError, match="expected a column order_id, found object_id"):
        retype_rows(make_rows(PREPARED, object_id=[1], deadline_ms=2), LIVE)


def test_positions_are_found_in_any_order() -> None:
    ids = np.array([30, 10, 20])
    assert positions_of(ids, np.array([10, 99, 30, 5])).tolist() == [1, -1, 0, -1]
    assert positions_of(ids[:0], ids).tolist() == [-1, -1, -1]
    assert some(list(range(8))) == "0, 1, 2, 3, 4, ... (8 in all)"
