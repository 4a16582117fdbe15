"""Filters side by side answer as each by itself, whatever comes and goes."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bloom import FilterMatrix, Geometry, StreamFilter, hash_ids
from tests.bloom.peer import sorted_ids
from tests.examples import examples

PROBES = range(40)
GEOMETRIES = [Geometry(3), Geometry(5), Geometry(4, 0.1), Geometry(6, 1 / 256), Geometry(40, 0.5), Geometry(23_930)]


def small_filter(seed: int, geometry: Geometry) -> StreamFilter:
    stream_ids = np.random.default_rng(seed).choice(len(PROBES), min(3, geometry.capacity), replace=False)
    return StreamFilter.from_pieces(hash_ids(np.sort(stream_ids), is_wide=geometry.is_wide), geometry)


class MatrixAgainstDict(RuleBasedStateMachine):
    """The same filters in a matrix and in a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = FilterMatrix()
        self.model: dict[int, StreamFilter] = {}
        self.next_object_id = 0

    @rule(count=st.integers(1, 100), geometry=st.sampled_from(GEOMETRIES), seed=st.integers(0, 10_000))
    def add_new_objects(self, count: int, geometry: Geometry, seed: int) -> None:
        for number in range(count):
            self.add(self.next_object_id, small_filter(seed + number, geometry))
            self.next_object_id += 1

    @precondition(lambda self: self.model)
    @rule(data=st.data(), geometry=st.sampled_from(GEOMETRIES), seed=st.integers(0, 10_000))
    def replace_an_object(self, data: st.DataObject, geometry: Geometry, seed: int) -> None:
        self.add(data.draw(st.sampled_from(sorted(self.model))), small_filter(seed, geometry))

    @rule(share=st.floats(0, 1), seed=st.integers(0, 10_000))
    def discard_a_share_of_all(self, share: float, seed: int) -> None:
        chosen = np.random.default_rng(seed).random(self.next_object_id) < share
        self.discard(np.flatnonzero(chosen).tolist())

    @rule(first=st.integers(0, 300), count=st.integers(0, 300))
    def discard_neighbours(self, first: int, count: int) -> None:
        self.discard(list(range(first, first + count)))

    @rule(keep=st.none() | st.integers(0, 300))
    def drop_a_tile(self, keep: int | None) -> None:
        others = [object_id for object_id in self.model if object_id != keep]
        dropped = self.matrix.drop_tile(keep)
        assert bool(dropped) == bool(self.model)
        for object_id in dropped:
            del self.model[object_id]
        if keep in dropped:
            assert not self.matrix._all_tiles(), f"{others} lay elsewhere"

    @invariant()
    def the_matrix_answers_as_each_filter_does(self) -> None:
        self.matrix.check()
        assert len(self.matrix) == len(self.model)
        assert set(self.matrix.object_ids) == set(self.model)
        for stream_id in PROBES[:: max(1, len(self.model) // 20)]:
            held = {object_id for object_id, one in self.model.items() if stream_id in one}
            assert sorted(self.matrix.may_hold(stream_id).tolist()) == sorted(held)
            assert sorted(self.matrix.absent(stream_id).tolist()) == sorted(set(self.model) - held)

    def add(self, object_id: int, stream_filter: StreamFilter) -> None:
        self.matrix.add(object_id, stream_filter)
        self.model[object_id] = stream_filter

    def discard(self, object_ids: list[int]) -> None:
        self.matrix.discard(object_ids)
        for object_id in object_ids:
            self.model.pop(object_id, None)


TestMatrixAgainstDict = MatrixAgainstDict.TestCase
TestMatrixAgainstDict.settings = settings(max_examples=examples(100), stateful_step_count=12, deadline=None)


@given(st.dictionaries(st.integers(0, 2**63 - 1), st.sets(st.integers(0, 2**63 - 1), min_size=1), max_size=20))
def test_an_object_is_never_excluded_for_a_stream_that_it_holds(objects: dict[int, set[int]]) -> None:
    matrix = FilterMatrix()
    for object_id, stream_ids in objects.items():
        matrix.add(object_id, StreamFilter.build(sorted_ids(stream_ids)))
    for object_id, stream_ids in objects.items():
        for stream_id in stream_ids:
            assert object_id not in matrix.absent(stream_id)
            assert object_id in matrix.may_hold(stream_id)


def test_an_empty_matrix_excludes_nothing() -> None:
    matrix = FilterMatrix()
    assert matrix.absent(7).tolist() == matrix.may_hold(7).tolist() == []
    assert matrix.drop_tile() == []
    matrix.discard([1, 2])
    matrix.check()
    assert matrix.nbytes == 0


@pytest.mark.parametrize("stream_id", [-1, 2**63])
def test_an_impossible_stream_id_is_refused(stream_id: int) -> None:
    with pytest.raises(ValueError, match="stream id"):
        FilterMatrix().absent(stream_id)


def filled(objects: int, streams: int = 100) -> FilterMatrix:
    matrix = FilterMatrix()
    generator = np.random.default_rng(7)
    for object_id in range(objects):
        matrix.add(object_id, StreamFilter.build(np.sort(generator.choice(100_000, streams, replace=False))))
    return matrix


def test_all_objects_that_leave_give_all_their_memory_back() -> None:
    matrix = filled(300)
    matrix.discard(range(300))
    matrix.check()
    assert matrix.nbytes == 0
    assert matrix.absent(1).tolist() == []


def columns_of(matrix: FilterMatrix) -> int:
    """The columns of all tiles, occupied and free."""
    return sum(tile.width for tile in matrix._all_tiles())


def test_columns_of_objects_that_left_are_used_again() -> None:
    matrix = filled(64)
    columns, nbytes = columns_of(matrix), matrix.nbytes
    for round_number in range(20):
        matrix.discard(range(round_number * 10, round_number * 10 + 10))
        for object_id in range(64 + round_number * 10, 74 + round_number * 10):
            matrix.add(object_id, StreamFilter.build(np.arange(100)))
    assert (columns_of(matrix), matrix.nbytes) == (columns, nbytes)


@pytest.mark.parametrize("objects", [1, 2, 8, 9, 17, 40, 64, 65, 200, 640])
def test_a_family_takes_memory_in_proportion_to_its_filters(objects: int) -> None:
    matrix = filled(objects)
    assert len(matrix) == objects
    assert columns_of(matrix) <= max(8, 2 * objects)


def test_few_filters_left_of_many_take_little() -> None:
    matrix = filled(640)
    matrix.discard(set(range(640)) - {5, 300, 639})
    matrix.check()
    assert set(matrix.object_ids) == {5, 300, 639}
    assert columns_of(matrix) == 8


def test_the_tile_with_the_most_bytes_a_filter_goes_first_and_that_of_the_kept_object_last() -> None:
    matrix = FilterMatrix()
    for object_id in range(8):
        matrix.add(object_id, StreamFilter.build(np.arange(100)))
    matrix.add(100, StreamFilter.build(np.arange(5_000)))
    assert sorted(matrix.drop_tile(keep=100)) == list(range(8))
    assert matrix.drop_tile(keep=100) == [100]
    for object_id in (1, 100):
        matrix.add(object_id, StreamFilter.build(np.arange(5_000 if object_id == 100 else 100)))
    assert matrix.drop_tile() == [100]


def test_nbytes_is_what_the_interpreter_allocates() -> None:
    filters = [StreamFilter.build(np.arange(size)) for size in (90, 900, 3_000)]
    filled(3).absent(1)  # whatever is made once
    tracemalloc.start()
    try:
        matrix = FilterMatrix()
        for object_id in range(10**6, 10**6 + 600):
            matrix.add(object_id, filters[object_id % 3])
        matrix.absent(1)
        allocated = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert allocated <= matrix.nbytes * 1.05
    assert matrix.nbytes <= allocated * 1.15


def test_growing_works_while_something_else_refers_to_the_words() -> None:
    matrix = filled(8)
    views = [bank.words[:0] for bank in matrix._banks.values()]
    for object_id in range(8, 100):
        matrix.add(object_id, StreamFilter.build(np.arange(100)))
        views += [bank.words[:0] for bank in matrix._banks.values()]
    matrix.check()
    assert len(matrix.may_hold(50)) >= 92
    matrix.discard(range(90))
    matrix.check()


def test_check_notices_a_bit_that_no_filter_set() -> None:
    matrix = filled(3)
    matrix._banks[8].words[0] = 0b1000
    with pytest.raises(AssertionError, match="bank of width 8"):
        matrix.check()


def test_check_notices_an_object_that_no_tile_holds() -> None:
    matrix = filled(3)
    matrix._tiles[99] = matrix._tiles[0]
    with pytest.raises(AssertionError, match="expected \\[0, 1, 2, 99\\]"):
        matrix.check()
