"""One filter: the bytes of pybloom_live, no false negative, few false positives, nothing believed unchecked."""

from __future__ import annotations

import io
import math
import struct

import numpy as np
import pybloom_live
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bloom import (
    CAPACITY_CLASSES,
    CAPACITY_MAX,
    NARROW_CAPACITY_MAX,
    Geometry,
    PieceCache,
    StreamFilter,
    class_for,
    hash_ids,
)
from tests.bloom.peer import pybloom_filter, sorted_ids, stored

STREAM_IDS = st.one_of(st.integers(0, 300), st.integers(0, 200_000), st.integers(0, 2**63 - 1))
EXTREME_IDS = [0, 1, 9, 10, 2**31 - 1, 2**31, 2**53 + 1, 10**16 - 1, 10**16, 2**63 - 2, 2**63 - 1]
SIZES_AT_THE_EDGES = sorted({1, 2, *(size for edge in CAPACITY_CLASSES for size in (edge - 1, edge, edge + 1))})


def random_ids(count: int, seed: int = 0) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.sort(np.random.default_rng(seed).choice(200_000, count, replace=False))


@given(st.sets(STREAM_IDS, min_size=1, max_size=150), st.integers(0, 100))
def test_the_stored_bytes_are_those_of_pybloom_live(stream_ids: set[int], room: int) -> None:
    capacity = len(stream_ids) + room
    peer = pybloom_filter(list(stream_ids), capacity)
    assert StreamFilter.build(sorted_ids(stream_ids), capacity).to_bytes() == stored(peer)


@pytest.mark.parametrize("count", [90, 900, 9_000, 9_999, NARROW_CAPACITY_MAX, 25_000])
def test_the_stored_bytes_of_large_filters_are_those_of_pybloom_live(count: int) -> None:
    stream_ids = random_ids(count)
    stream_filter = StreamFilter.build(stream_ids, count)
    peer = pybloom_filter(stream_ids.tolist(), count)
    assert stream_filter.to_bytes() == stored(peer)
    assert stream_filter.count == len(peer)


def test_the_count_leaves_out_ids_that_changed_no_bit() -> None:
    stream_filter = StreamFilter.build(random_ids(9_000), 9_000)
    assert 8_900 < stream_filter.count < 9_000


@given(st.sets(st.integers(0, 500), min_size=1, max_size=60), st.sampled_from([0.5, 0.25, 0.1, 0.05, 1 / 256, 0.9]))
def test_other_error_rates_give_the_bytes_of_pybloom_live_too(stream_ids: set[int], error_rate: float) -> None:
    geometry = Geometry(len(stream_ids), error_rate)
    stream_filter = StreamFilter.from_pieces(hash_ids(sorted_ids(stream_ids)), geometry)
    assert stream_filter.to_bytes() == stored(pybloom_filter(list(stream_ids), len(stream_ids), error_rate))


def test_more_ids_than_sixteen_bits_count_are_numbered_rightly() -> None:
    geometry = Geometry(70_000, 0.9)
    stream_filter = StreamFilter.from_pieces(hash_ids(np.arange(70_000)), geometry)
    assert stream_filter.to_bytes() == stored(pybloom_filter(list(range(70_000)), 70_000, 0.9))


@given(st.sets(STREAM_IDS, max_size=80), st.integers(0, 50), st.sampled_from([0.01, 0.1, 0.3]))
def test_filters_of_pybloom_live_are_read(stream_ids: set[int], room: int, error_rate: float) -> None:
    peer = pybloom_filter(list(stream_ids), len(stream_ids) + room + 1, error_rate)
    stream_filter = StreamFilter.from_bytes(stored(peer))
    assert stream_filter.to_bytes() == stored(peer)
    assert all(stream_id in stream_filter for stream_id in stream_ids)
    assert [number in stream_filter for number in range(200)] == [number in peer for number in range(200)]


def test_copies_and_unions_that_pybloom_live_stores_with_a_count_of_0_are_read() -> None:
    union = pybloom_filter([1, 2], 100) | pybloom_filter([3], 100)
    stream_filter = StreamFilter.from_bytes(stored(union))
    assert stream_filter.count == 0
    assert all(stream_id in stream_filter for stream_id in (1, 2, 3))


def test_pybloom_live_reads_ours() -> None:
    stream_ids = random_ids(800)
    peer = pybloom_live.BloomFilter.fromfile(io.BytesIO(StreamFilter.build(stream_ids).to_bytes()))
    assert peer.capacity == 800
    assert all(stream_id in peer for stream_id in stream_ids.tolist())


@given(st.sets(STREAM_IDS, max_size=60), st.integers(0, 50), st.sets(STREAM_IDS, max_size=20))
def test_a_filter_goes_to_pybloom_live_and_back_with_equal_bits(held: set[int], room: int, asked: set[int]) -> None:
    ours = StreamFilter.build(sorted_ids(held), len(held) + room + 1)
    theirs = ours.to_pybloom()
    assert stored(theirs) == ours.to_bytes()
    assert theirs.bitarray.tobytes() == ours.bits
    assert (theirs.capacity, theirs.error_rate, theirs.count) == (ours.geometry.capacity, 0.01, ours.count)
    assert [number in theirs for number in held | asked] == [number in ours for number in held | asked]
    assert (
        StreamFilter.from_pybloom(theirs)
        == ours
        == StreamFilter.from_pybloom(pybloom_filter(list(held), len(held) + room + 1))
    )


def test_a_filter_from_pybloom_live_does_not_change_with_it() -> None:
    theirs = pybloom_filter([1, 2], 100)
    ours = StreamFilter.from_pybloom(theirs)
    theirs.add(3)
    assert ours == StreamFilter.from_pybloom(pybloom_filter([1, 2], 100))


def test_a_filter_of_pybloom_live_that_needs_another_hash_is_refused() -> None:
    with pytest.raises(ValueError, match="expected"):
        StreamFilter.from_pybloom(pybloom_live.BloomFilter(100, 0.0001))


@given(st.sets(STREAM_IDS, max_size=20))
def test_wide_filters_go_to_pybloom_live_and_back(held: set[int]) -> None:
    ours = StreamFilter.build(sorted_ids(held), WIDE.capacity)
    assert StreamFilter.from_pybloom(ours.to_pybloom()) == ours


WIDE = Geometry(24_000)


@given(st.sets(STREAM_IDS, min_size=1, max_size=100))
def test_wide_filters_are_those_of_pybloom_live_both_ways(stream_ids: set[int]) -> None:
    built = StreamFilter.build(sorted_ids(stream_ids), WIDE.capacity)
    peer = pybloom_filter(list(stream_ids), WIDE.capacity)
    assert built.to_bytes() == stored(peer)
    assert StreamFilter.from_bytes(stored(peer)) == built
    assert built.may_hold(sorted_ids(stream_ids)).all()
    assert [number in built for number in range(100)] == [number in peer for number in range(100)]


def test_a_wide_filter_as_full_as_can_be_lets_one_in_a_hundred_pass() -> None:
    wide = StreamFilter.build(random_ids(40_000))
    assert wide.geometry.capacity == 40_000
    assert 0.008 < wide.may_hold(np.arange(1_000_000, 1_050_000)).mean() < 0.0125


@pytest.mark.parametrize("is_wide", [False, True])
def test_pieces_of_the_other_width_are_refused(*, is_wide: bool) -> None:
    geometry = Geometry(100) if is_wide else WIDE
    with pytest.raises(ValueError, match="expected pieces of uint"):
        StreamFilter.from_pieces(hash_ids(np.arange(3), is_wide=is_wide), geometry)


@given(st.sets(STREAM_IDS, min_size=1, max_size=300))
def test_a_filter_never_denies_what_it_holds(stream_ids: set[int]) -> None:
    stream_filter = StreamFilter.build(sorted_ids(stream_ids))
    assert all(stream_id in stream_filter for stream_id in stream_ids)
    assert stream_filter.may_hold(sorted_ids(stream_ids)).all()


@pytest.mark.parametrize("count", [size for size in SIZES_AT_THE_EDGES if size <= 40_000])
def test_a_filter_at_the_edge_of_a_class_never_denies_what_it_holds(count: int) -> None:
    stream_ids = random_ids(count, seed=count)
    stream_filter = StreamFilter.build(stream_ids)
    assert stream_filter.geometry.capacity == class_for(count)
    assert stream_filter.may_hold(stream_ids).all()
    assert StreamFilter.from_bytes(stream_filter.to_bytes()).may_hold(stream_ids).all()


def test_extreme_ids_are_held() -> None:
    stream_filter = StreamFilter.build(np.array(EXTREME_IDS))
    assert all(stream_id in stream_filter for stream_id in EXTREME_IDS)
    assert stream_filter.to_bytes() == stored(pybloom_filter(EXTREME_IDS, 100))


@given(st.sets(STREAM_IDS, min_size=1, max_size=50), st.lists(STREAM_IDS, max_size=50))
def test_asking_for_many_answers_as_asking_for_each(stream_ids: set[int], asked: list[int]) -> None:
    stream_filter = StreamFilter.build(sorted_ids(stream_ids), len(stream_ids))
    answers = stream_filter.may_hold(np.array(asked, dtype=np.int64))
    assert answers.tolist() == [stream_id in stream_filter for stream_id in asked]


def test_a_cache_changes_no_filter() -> None:
    cache = PieceCache(64)
    for seed in range(5):
        stream_ids = random_ids(500, seed)
        assert StreamFilter.build(stream_ids, cache=cache) == StreamFilter.build(stream_ids)


def test_ids_of_another_byte_order_or_width_give_the_same_filter() -> None:
    stream_ids = random_ids(100)
    for dtype in (">i8", "<i4", "<u8", ">u4"):
        assert StreamFilter.build(stream_ids.astype(dtype)) == StreamFilter.build(stream_ids)


def test_false_positives_stay_at_one_in_a_hundred_over_all_sizes() -> None:
    sizes = np.unique(np.geomspace(1, 20_000, 60).astype(int)).tolist()
    absent = np.arange(1_000_000, 1_030_000)
    rates = {}
    for size in sizes:
        stream_ids = random_ids(size, seed=size)
        rates[size] = np.mean([StreamFilter.build(stream_ids, size).may_hold(absent).mean()])
        assert StreamFilter.build(stream_ids).may_hold(absent).mean() <= 0.015, size  # with the room that classes give
    assert max(rate for size, rate in rates.items() if size >= 100) <= 0.02
    assert np.mean(list(rates.values())) <= 0.0125


@pytest.mark.parametrize(
    "stream_ids",
    [[3, 2], [2, 2], [1, 5, 4], [[1, 2]], [1.0, 2.0], [-1, 5], [2**63, 2**63 + 1]],
    ids=["descending", "twice", "unsorted", "two dimensions", "floats", "negative", "beyond 63 bits"],
)
def test_ids_that_are_not_ascending_stream_ids_are_refused(stream_ids: list[int]) -> None:
    with pytest.raises(ValueError, match=r"expected .*stream ids"):
        StreamFilter.build(np.array(stream_ids))


def test_more_ids_than_the_capacity_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 5 ids, found 6"):
        StreamFilter.build(np.arange(6), 5)


@pytest.mark.parametrize("count", [0, CAPACITY_MAX + 1])
def test_an_object_without_a_class_has_no_filter(count: int) -> None:
    with pytest.raises(ValueError, match=f"expected 1 to 1000000 streams for a filter, found {count}"):
        StreamFilter.build(np.arange(count))


def test_a_filter_of_nothing_holds_nothing() -> None:
    stream_filter = StreamFilter.build(np.array([], dtype=np.int64), 100)
    assert stream_filter.to_bytes() == stored(pybloom_filter([], 100))
    assert not stream_filter.may_hold(np.arange(1_000)).any()


def test_bits_of_another_length_than_the_geometry_are_refused() -> None:
    with pytest.raises(ValueError, match="expected 120 bytes of bits, found 3"):
        StreamFilter(Geometry(100), 0, b"abc")


GOOD = StreamFilter.build(np.arange(90)).to_bytes()


def with_field(number: int, value: float) -> bytes:
    fields = list(struct.unpack("<dQQQQ", GOOD[:40]))
    fields[number] = value
    return struct.pack("<dQQQQ", *fields) + GOOD[40:]


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "at least 40 bytes, found 0"),
        (GOOD[:39], "at least 40 bytes, found 39"),
        (GOOD[:40], "expected 160 bytes for a capacity of 100, found 40"),
        (GOOD[:-1], "found 159"),
        (GOOD + b"\0", "found 161"),
        (with_field(0, math.nan), "error rate"),
        (with_field(0, math.inf), "error rate"),
        (with_field(0, -math.inf), "error rate"),
        (with_field(0, 0.0), "error rate"),
        (with_field(0, -0.01), "error rate"),
        (with_field(0, 1.0), "error rate"),
        (with_field(0, 5e-324), "error rate"),
        (with_field(0, 1.0 - 2**-53), "found 7 of 137"),
        (with_field(0, 0.02), "found 7 of 137"),
        (with_field(1, 6), "expected 7 slices of 137 bits for a capacity of 100, found 6 of 137"),
        (with_field(1, 2**64 - 1), "expected 7 slices"),
        (with_field(2, 136), "found 7 of 136"),
        (with_field(2, 2**63), "expected 7 slices"),
        (with_field(3, 0), "capacity of at least 1"),
        (with_field(3, 101), "found 7 of 137"),
        (with_field(3, 2 * CAPACITY_MAX), "bits a slice"),
        (with_field(3, 2**64 - 1), "bits a slice"),
        (with_field(4, 102), "at most 101 ids in the filter, found 102"),
        (with_field(4, 2**64 - 1), "at most 101 ids"),
        (GOOD[:40] + bytes(120), "expected at least 90 bits set by 90 ids, found 0"),
        (GOOD[:-1] + bytes([GOOD[-1] | 0x80]), "expected zeros after the 959 bits"),
    ],
)
def test_a_stored_filter_that_contradicts_itself_is_refused(data: bytes, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        StreamFilter.from_bytes(data)


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_or_read_as_what_they_are(data: bytes) -> None:
    try:
        stream_filter = StreamFilter.from_bytes(data)
    except ValueError:
        return
    assert stream_filter.to_bytes() == data


@given(st.integers(0, 39), st.integers(0, 255))
def test_a_changed_header_is_refused_or_read_as_what_it_is(position: int, value: int) -> None:
    data = bytearray(GOOD)
    data[position] = value
    try:
        stream_filter = StreamFilter.from_bytes(data)
    except ValueError:
        return
    assert stream_filter.to_bytes() == bytes(data)


def test_stored_filters_are_read_from_any_buffer() -> None:
    for data in (GOOD, bytearray(GOOD), memoryview(b"x" + GOOD)[1:]):
        assert StreamFilter.from_bytes(data).to_bytes() == GOOD


def test_nbytes_is_the_length_of_the_stored_form() -> None:
    assert StreamFilter.from_bytes(GOOD).nbytes == len(GOOD) == 160
