"""A filter's bits tell how often it errs."""

from __future__ import annotations

import numpy as np
import pytest

from bloom import Geometry, StreamFilter, hash_ids
from loaders.hints import expected_false_positives, is_bad
from tests.loaders.hints.builders import filter_of


def overfilled(ids: int, capacity: int) -> StreamFilter:
    """What a writer makes that adds more ids than a filter was made for."""
    shape, bits = Geometry(capacity), np.zeros((7, Geometry(capacity).bits_per_slice), dtype=np.uint8)
    for row, pieces in zip(bits, hash_ids(np.arange(ids)).T, strict=False):
        row[pieces % shape.bits_per_slice] = 1
    return StreamFilter(shape, 0, np.packbits(bits, bitorder="little").tobytes())


@pytest.mark.parametrize("count", [1, 90, 1000, 9000, 20_000])
def test_a_filter_within_its_capacity_is_good(count: int) -> None:
    assert not is_bad(StreamFilter.build(np.arange(count)))
    assert not is_bad(StreamFilter.build(np.arange(count), max(count, 50)))


@pytest.mark.parametrize("capacity", [100, 1000, 10_000])
def test_a_filter_with_a_tenth_too_many_ids_is_bad(capacity: int) -> None:
    assert is_bad(overfilled(capacity * 11 // 10, capacity))


def test_what_the_bits_say_is_what_comes_of_it() -> None:
    for ids in (500, 1000, 1500, 2000):
        stream_filter = overfilled(ids, 1000)
        absent = np.arange(10**6, 10**6 + 50_000)
        share = float(stream_filter.may_hold(absent).mean())
        assert share == pytest.approx(expected_false_positives(stream_filter), rel=0.15, abs=0.0005)


def test_a_filter_without_a_bit_never_errs_and_one_of_ones_always_does() -> None:
    shape = Geometry(100)
    assert expected_false_positives(StreamFilter(shape, 0, bytes(shape.filter_size_bytes))) == 0.0
    assert expected_false_positives(StreamFilter(shape, 0, b"\xff" * shape.filter_size_bytes)) == 1.0
    assert expected_false_positives(filter_of(3)) < 1e-10
