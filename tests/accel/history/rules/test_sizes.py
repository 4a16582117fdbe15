"""Sizes of sealed segments, in shards, and what they add up to."""

from __future__ import annotations

import pytest

from accel.errors import InvalidArgument
from accel.history.rules import retention
from accel.history.rules.configuration import ShardBy
from accel.history.rules.segments import Segments
from accel.history.rules.values import IdMap, make_id

SEGMENTS = Segments.make([0, 1, 2, 3, 4], 0, 0.0, 1.0)


def test_shards_go_by_epoch_or_by_number() -> None:
    known = IdMap.of({make_id(0, 5): 1, make_id(1, 1): 2, make_id(2, 0): 3, make_id(5, 3): 4})
    assert retention.by_shard(known, 2) == {0: {5: 1, make_id(1, 1): 2}, 1: {make_id(2, 0): 3}, 2: {make_id(5, 3): 4}}
    by_number = retention.by_shard(known, 2, ShardBy.NUMBER)
    assert by_number == {0: {make_id(1, 1): 2, make_id(2, 0): 3}, 1: {make_id(5, 3): 4}, 2: {5: 1}}


def test_a_size_that_is_written_stays() -> None:
    shard = IdMap([1, 3], [10, 30])
    assert retention.with_sizes(shard, IdMap([1, 3], [99, 99])) is None
    assert retention.with_sizes(shard, IdMap([1, 2, 9], [99, 20, 90])) == IdMap([1, 2, 3, 9], [10, 20, 30, 90])
    assert retention.with_sizes(IdMap(), IdMap([4], [0])) == IdMap([4], [0])


def test_each_segment_counts_by_who_names_it() -> None:
    start, end = IdMap.of({0: 3, 1: 4, 3: -1}), IdMap.of({0: 9, 2: 5, 3: 6, 4: -1})
    known = IdMap.of({1: 10})
    each = [retention.size_of(SEGMENTS[at : at + 1], start, end, known) for at in range(5)]
    assert each == [6, 6, 5, 6, 0]
    assert retention.size_of(SEGMENTS, start, end, known) == 23


def test_what_is_not_known_or_would_be_negative_counts_nothing() -> None:
    assert retention.size_of(SEGMENTS, IdMap(), IdMap(), IdMap()) == 0
    assert retention.size_of(SEGMENTS, IdMap([0], [9]), IdMap([0], [3]), IdMap()) == 0
    assert retention.size_of(SEGMENTS, IdMap([0], [9]), IdMap(), IdMap([0], [3])) == 0


def test_only_sizes_that_are_needed_are_read() -> None:
    asked = []

    def read(ids: object) -> dict[int, int]:
        asked.append(ids)
        return {1: 7}

    assert retention.size_between([SEGMENTS[:2]], IdMap(), IdMap([0], [3]), read) == 10
    assert [list(each) for each in asked] == [[1]]  # type: ignore[call-overload]  # columns of ids
    assert retention.size_between([SEGMENTS[:1]], IdMap(), IdMap([0], [3]), read) == 3
    assert len(asked) == 1


def test_a_size_till_goes_on_from_one_that_was_recorded() -> None:
    assert retention.size_till(5, 37) == 42
    with pytest.raises(InvalidArgument):
        retention.size_till(5, -1)
