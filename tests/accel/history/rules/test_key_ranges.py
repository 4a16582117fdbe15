"""Arithmetic of key ranges, exact to the last bit."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from accel.history.rules.configuration import SEGMENTS_MAX
from accel.history.rules.segments import (
    NONE_HIGHEST,
    NONE_LOWEST,
    KeyProfile,
    KeyRanges,
    bounds_of,
    initial_ranges,
    merge_touching,
    overlap_counts,
    replaces,
    split_range,
    splits_and_merges,
)
from accel.history.rules.states import first_epoch
from tests.accel.history.rules.streams import new

KEYS = st.integers(0, 12).map(lambda each: each / 12)
RANGES = st.lists(st.tuples(KEYS, KEYS).filter(lambda each: each[0] < each[1]), max_size=6)


def test_segment_count_49() -> None:
    """The rounded reciprocal times 49 is below 1; so the last end is set, not computed."""
    assert 49 * (1.0 / 49) < 1.0
    assert new(49).is_valid(dict.fromkeys(range(49), 0))
    assert initial_ranges(49).ends[-1] == 1.0


@pytest.mark.parametrize("count", [1, 2, 3, 5, 49, 98, 103, 1000])
def test_the_segments_of_a_new_stream_tile_the_key_space(count: int) -> None:
    ranges = initial_ranges(count)
    assert len(ranges) == len(first_epoch(count, 1).segments) == count
    assert ranges.starts.tolist() == [i * (1.0 / count) for i in range(count)]
    assert merge_touching(ranges) == KeyRanges([0.0], [1.0])


def test_a_stream_has_a_segment_and_not_too_many() -> None:
    for count in (0, SEGMENTS_MAX + 1):
        with pytest.raises(ValueError, match=f"found {count}"):
            initial_ranges(count)
        with pytest.raises(ValueError, match=f"found {count}"):
            split_range(0.0, 1.0, count)


@given(st.floats(0.0, 0.9), st.floats(0.01, 0.1), st.integers(2, 50))
def test_parts_of_a_range_replace_it_exactly(start: float, width: float, count: int) -> None:
    """The sum of start and count times the width often misses the stored end by the last bit."""
    ranges = split_range(start, start + width, count)
    assert replaces(ranges, KeyRanges([start], [start + width]))
    assert len(ranges) == count


def test_a_range_without_room_is_not_divided() -> None:
    with pytest.raises(ValueError, match="can be divided by 3"):
        split_range(0.5, 0.5 + 2**-53, 3)


@given(RANGES)
def test_touching_neighbours_become_one_and_others_stay(ranges: list[tuple[float, float]]) -> None:
    found = list(merge_touching(KeyRanges.of(ranges)))
    assert found == sorted(found)
    assert all(later[0] != earlier[1] for earlier, later in pairwise(found))
    assert sum(Fraction(end) - Fraction(start) for start, end in found) == sum(
        Fraction(end) - Fraction(start) for start, end in ranges
    )


@pytest.mark.parametrize(
    "new",
    [
        [],
        [(0.2, 0.4), (0.3, 0.33)],
        [(0.2, 0.33), (0.2, 0.4)],
        [(0.2, 0.35), (0.3, 0.4)],
        [(0.2, 0.25), (0.3, 0.4)],
        [(0.2, 0.2), (0.2, 0.4)],
        [(0.2, 0.4), (0.0, 0.0)],
        [(0.2, float("nan"))],
        [(0.3, 0.2), (0.2, 0.4)],
        [(0.2, 0.4000000000000001)],
    ],
)
def test_ranges_with_overlaps_gaps_or_nothing_in_them_replace_nothing(new: list[tuple[float, float]]) -> None:
    assert not replaces(KeyRanges.of(new), KeyRanges([0.2], [0.4]))


@given(RANGES, RANGES)
def test_overlaps_are_counted_as_pairs(ranges: list[tuple[float, float]], others: list[tuple[float, float]]) -> None:
    found = overlap_counts(KeyRanges.of(ranges), KeyRanges.of(others))
    assert found.tolist() == [sum(a[0] < b[1] and b[0] < a[1] for b in others) for a in ranges]


def test_a_split_and_a_merge_may_be_one_change() -> None:
    old, new = KeyRanges.of([(0.0, 0.5), (0.5, 1.0)]), KeyRanges.of([(0.0, 0.25), (0.25, 1.0)])
    assert splits_and_merges(old, new) == (1, 1)
    assert splits_and_merges(old, old) == (0, 0)


@settings(deadline=None)
@given(RANGES, RANGES.filter(bool))
def test_a_profile_knows_the_lowest_and_highest_over_any_range(
    ranges: list[tuple[float, float]], asked: list[tuple[float, float]]
) -> None:
    known = KeyRanges.of(ranges)
    profile = KeyProfile.of(known, np.arange(len(ranges)), bounds_of((known, KeyRanges([0.3], [0.7]))))
    for (start, end), low, high in zip(
        asked, profile.lowest_over(KeyRanges.of(asked)), profile.highest_over(KeyRanges.of(asked)), strict=True
    ):
        over = [number for number, each in enumerate(ranges) if each[0] < end and start < each[1]]
        assert (low, high) == ((min(over), max(over)) if over else (NONE_LOWEST, NONE_HIGHEST))
