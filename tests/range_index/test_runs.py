"""A run answers like a sorted list of rows."""

from array import array

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from range_index.runs import Run, append, floor, pack, seal, unpack

numbers = st.integers(-(2**63), 2**63 - 1)
keys = st.one_of(st.integers(0, 20), numbers)
rows = st.lists(st.tuples(keys, numbers), max_size=30)


def column(values: list[int]) -> "np.typing.NDArray[np.int64]":
    return np.array(values, dtype=np.int64)


def sealed(table: list[tuple[int, int]]) -> Run:
    return seal(column([key for key, _ in table]), column([value for _, value in table]))


def rows_of(run: Run) -> list[tuple[int, int]]:
    return list(zip(run.packed[: run.rows], run.packed[run.rows :], strict=True))


@given(rows)
def test_a_sealed_run_has_its_rows_by_key_then_by_arrival(table: list[tuple[int, int]]) -> None:
    assert rows_of(sealed(table)) == sorted(table, key=lambda row: row[0])


@given(rows, keys)
def test_the_floor_is_the_last_row_at_or_before_the_key(table: list[tuple[int, int]], key: int) -> None:
    assert floor(*sealed(table), key) == len([row for row in table if row[0] <= key]) - 1


@given(rows, rows)
def test_appended_rows_stand_behind_those_before_and_the_old_run_stays(
    first: list[tuple[int, int]], more: list[tuple[int, int]]
) -> None:
    run = sealed(first)
    before = rows_of(run)
    last = before[-1][0] if before else -(2**63)
    behind = sorted(row for row in more if row[0] >= last)
    assert append(run, behind) == sealed([*before, *behind])
    assert rows_of(run) == before


@pytest.mark.parametrize("more", [[(4, 0)], [(6, 0), (5, 0)]])
def test_a_run_takes_no_row_before_its_last(more: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="the previous key"):
        append(sealed([(5, 0)]), more)


def test_a_run_takes_only_whole_rows() -> None:
    with pytest.raises(ValueError, match="columns of 2 rows"):
        seal(column([1, 2]), column([1]))
    with pytest.raises(ValueError, match="rows of 2 numbers"):
        append(sealed([(5, 0)]), [(6, 0, 0)])
    with pytest.raises(ValueError, match="zip"):
        append(sealed([(5, 0)]), [(6, 0), (7, 0, 0)])


@given(st.lists(numbers))
def test_packing_keeps_every_number_and_takes_8_bytes_for_each(values: list[int]) -> None:
    packed = pack(column(values))
    assert packed == array("q", values)
    assert unpack(packed).tolist() == values
    assert packed.__sizeof__() == array("q").__sizeof__() + 8 * len(values)
