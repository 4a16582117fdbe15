"""A sketch never excludes what it was built from, is as small as it says, and pays where it should."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bloom import SketchColumns, StreamSketch
from bloom.geometry import hash_id

stream_ids = st.one_of(st.integers(0, 200), st.integers(0, 200_000), st.integers(0, 2**63 - 1))


def sketch_of(ids: set[int]) -> StreamSketch:
    return StreamSketch.build(np.array(sorted(ids), dtype=np.int64))


def columns_of(sketches: list[StreamSketch]) -> SketchColumns:
    rows = np.array([(one.form, one.low, one.rest) for one in sketches], dtype=np.int64).reshape(-1, 3)
    return SketchColumns(*np.ascontiguousarray(rows.T))


def drawn(count: int, seed: int, neighbours: int = 1) -> NDArray[np.int64]:
    """Ids below 200,000, in runs of so many neighbours."""
    chance = np.random.default_rng(seed)
    runs = chance.integers(0, 200_000 // neighbours, max(1, count // neighbours))
    ids: NDArray[np.int64] = np.unique(runs[:, None] * neighbours + np.arange(neighbours))
    return ids


def share_excluded(sketch: StreamSketch) -> float:
    return sum(sketch.excludes(stream_id) for stream_id in range(0, 200_000, 97)) / len(range(0, 200_000, 97))


@given(st.sets(stream_ids, min_size=1, max_size=60))
def test_what_a_sketch_was_built_from_is_never_excluded(ids: set[int]) -> None:
    sketch = sketch_of(ids)
    assert not [stream_id for stream_id in ids if sketch.excludes(stream_id)]


@pytest.mark.parametrize("neighbours", [1, 16, 500])
@pytest.mark.parametrize("count", [1, 10, 400, 401, 9_000])
def test_nor_of_many_ids(count: int, neighbours: int) -> None:
    ids = drawn(count, 7, neighbours)
    sketch = StreamSketch.build(ids)
    assert not [stream_id for stream_id in ids.tolist() if sketch.excludes(stream_id)]


@given(st.lists(st.sets(stream_ids, min_size=1, max_size=40), max_size=8), stream_ids)
def test_many_sketches_at_once_say_what_each_says(sets: list[set[int]], asked: int) -> None:
    sketches = [sketch_of(ids) for ids in sets]
    asked_ids = {asked, *(stream_id for ids in sets for stream_id in ids)}
    columns = columns_of(sketches)
    assert len(columns) == len(sketches)
    for stream_id in asked_ids:
        assert columns.excludes(stream_id).tolist() == [one.excludes(stream_id) for one in sketches]


def test_an_id_that_no_stream_has_is_excluded_by_none() -> None:
    assert columns_of([sketch_of({3})]).excludes(-1).tolist() == [False]


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        # By place: width 1, first 420,000; cells 0, 1 and 64.
        ({420_000, 420_001, 420_064}, StreamSketch(0, 3, 420_000 << 24 | 1)),
        # Width 4 (code 8): 64 // 4 = 16 is the first cell; 400 is in cell 84.
        (set(range(64, 401)), StreamSketch(8, -1, 16 << 24 | 2**21 - 1)),
        # An id beyond 2**24 has wider cells: 2**26 // 4 is 2**24, one too many; so width 5 (code 9).
        ({2**26}, StreamSketch(9, 1, 2**26 // 5 << 24)),
        ({2**63 - 1}, StreamSketch(156, 1, (2**63 - 1) // 2**39 << 24)),
    ],
)
def test_the_bytes_of_a_sketch_by_place(ids: set[int], expected: StreamSketch) -> None:
    assert sketch_of(ids) == expected


def test_the_bytes_of_a_sketch_by_hash() -> None:
    ids = {3, 17_000, 420_000, 2_000_000}
    cells = 0
    for stream_id in ids:
        for piece in hash_id(stream_id):
            cells |= 1 << int(piece) % 112
    low = int(np.array([cells % 2**64], dtype=np.uint64).view(np.int64)[0])
    assert sketch_of(ids) == StreamSketch(-8, low, cells >> 64)


@pytest.mark.parametrize(
    ("count", "neighbours", "least"),
    [(1, 1, 0.999), (10, 1, 0.98), (30, 1, 0.78), (100, 1, 0.3), (10, 16, 0.999), (100, 16, 0.9), (300, 16, 0.7)],
)
def test_small_objects_and_those_of_neighbouring_ids_exclude_most_streams(
    count: int, neighbours: int, least: float
) -> None:
    shares = [share_excluded(StreamSketch.build(drawn(count, seed, neighbours))) for seed in range(8)]
    assert np.mean(shares) >= least, shares


@pytest.mark.parametrize("count", [3_000, 9_000])
def test_sketches_of_ids_from_everywhere_are_all_alike(count: int) -> None:
    sketches = [StreamSketch.build(drawn(count, seed)) for seed in range(20)]
    assert len({(one.form, one.low) for one in sketches}) <= 3


@pytest.mark.parametrize("ids", [[], [4, 3], [-1, 5]])
def test_ids_that_are_none_or_out_of_order_are_refused(ids: list[int]) -> None:
    with pytest.raises(ValueError, match="expected ascending stream ids"):
        StreamSketch.build(np.array(ids, dtype=np.int64))


@pytest.mark.parametrize(
    "numbers", [(-9, 0, 0), (236, 0, 0), (0, 2**63, 0), (0, -(2**63) - 1, 0), (0, 0, -1), (0, 0, 2**48)]
)
def test_numbers_that_no_sketch_has_are_refused(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="expected the numbers of a sketch"):
        StreamSketch(*numbers)


@pytest.mark.parametrize("wrong", [(-9, 0, 0), (236, 0, 0), (0, 0, -1), (0, 0, 2**48), (-(2**63), 5, 5)])
def test_rows_with_such_numbers_exclude_nothing(wrong: tuple[int, int, int]) -> None:
    columns = SketchColumns(*np.array([(0, 1, 5 << 24), wrong], dtype=np.int64).T)
    assert columns.excludes(7).tolist() == [True, False]
    assert columns.wrong.tolist() == [1]
