"""Sizes of filters: equal to pybloom_live's, within the limits of the hash, in classes."""

from __future__ import annotations

import itertools
import math

import pybloom_live
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloom import CAPACITY_CLASSES, CAPACITY_MAX, NARROW_CAPACITY_MAX, Geometry, class_for


@pytest.mark.parametrize("capacity", [*range(1, 200), *CAPACITY_CLASSES, 9_000, CAPACITY_MAX - 1])
def test_slices_and_bits_are_those_of_pybloom_live(capacity: int) -> None:
    peer = pybloom_live.BloomFilter(capacity, 0.01)
    geometry = Geometry(capacity)
    assert (geometry.slices, geometry.bits_per_slice) == (peer.num_slices, peer.bits_per_slice)
    assert geometry.bits == peer.num_bits


@given(st.integers(1, 5_000), st.floats(1 / 256, 0.99))
def test_other_error_rates_have_their_slices_and_bits_too(capacity: int, error_rate: float) -> None:
    peer = pybloom_live.BloomFilter(capacity, error_rate)
    geometry = Geometry(capacity, error_rate)
    assert (geometry.slices, geometry.bits_per_slice) == (peer.num_slices, peer.bits_per_slice)


@pytest.mark.parametrize(("capacity", "size_bytes"), [(9_000, 10_784), (900, 1_079), (90, 109)])
def test_the_sizes_of_the_documented_example(capacity: int, size_bytes: int) -> None:
    assert Geometry(capacity).filter_size_bytes == size_bytes


@pytest.mark.parametrize(("ids", "size_bytes"), [(9_000, 10_784), (900, 1_080), (90, 112)])
def test_the_documented_sizes_of_the_other_library_are_bits_in_words_of_8_bytes(ids: int, size_bytes: int) -> None:
    bits = int(-ids * math.log(0.01) / math.log(2) ** 2)
    assert math.ceil(bits / 64) * 8 == size_bytes


def test_filters_are_wide_from_where_pybloom_live_takes_another_hash() -> None:
    assert pybloom_live.BloomFilter(NARROW_CAPACITY_MAX, 0.01).hashfn().digest_size == 16
    assert not Geometry(NARROW_CAPACITY_MAX).is_wide
    assert pybloom_live.BloomFilter(NARROW_CAPACITY_MAX + 1, 0.01).hashfn().digest_size == 32
    assert Geometry(NARROW_CAPACITY_MAX + 1).is_wide
    assert pybloom_live.BloomFilter(CAPACITY_MAX, 0.01).hashfn().digest_size == 32


@pytest.mark.parametrize("error_rate", [0.04, 0.1, 0.5])
def test_wide_filters_of_fewer_slices_have_a_third_hash_and_are_refused(error_rate: float) -> None:
    assert pybloom_live.BloomFilter(200_000, error_rate).hashfn().digest_size not in (2, 32)
    with pytest.raises(ValueError, match=r"expected at least 6 slices of [0-9]+ bits, found [1-5] at"):
        Geometry(200_000, error_rate)


def test_no_filter_is_larger_than_two_to_the_21_bits_a_slice() -> None:
    with pytest.raises(ValueError, match="at most 2097151 bits a slice, found 2738589 for a capacity of 2000000"):
        Geometry(2_000_000)


@pytest.mark.parametrize("error_rate", [0.0, -0.01, 1.0, 2.0, math.nan, math.inf, -math.inf, 1 / 257, 5e-324])
def test_impossible_error_rates_are_refused(error_rate: float) -> None:
    with pytest.raises(ValueError, match="error rate"):
        Geometry(100, error_rate)


@pytest.mark.parametrize("capacity", [0, -1, -(2**63)])
def test_a_capacity_below_1_is_refused(capacity: int) -> None:
    with pytest.raises(ValueError, match="capacity of at least 1"):
        Geometry(capacity)


@pytest.mark.parametrize("capacity", [2**31, 2**63, 2**64 - 1])
def test_an_absurd_capacity_is_refused_and_nothing_is_allocated(capacity: int) -> None:
    with pytest.raises(ValueError, match="bits a slice"):
        Geometry(capacity)


def test_classes_ascend_by_about_a_quarter_up_to_the_largest_capacity() -> None:
    ratios = [larger / smaller for smaller, larger in itertools.pairwise(CAPACITY_CLASSES)]
    last_narrow = CAPACITY_CLASSES.index(NARROW_CAPACITY_MAX)
    assert all(1.19 < ratio < 1.29 for number, ratio in enumerate(ratios) if number != last_narrow)
    assert CAPACITY_CLASSES[last_narrow + 1] == 25_000
    assert CAPACITY_CLASSES[-1] == CAPACITY_MAX == 1_000_000


@given(st.integers(1, CAPACITY_MAX))
def test_the_class_is_the_smallest_that_holds_the_streams(count: int) -> None:
    assert class_for(count) == min(capacity for capacity in CAPACITY_CLASSES if capacity >= count)


@pytest.mark.parametrize("count", [0, CAPACITY_MAX + 1, 2**40])
def test_empty_and_very_large_objects_have_no_class(count: int) -> None:
    assert class_for(count) is None
