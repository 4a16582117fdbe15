"""The arrays of an object answer like a dictionary of its ranges."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from range_index.object_ranges import ObjectRanges, StreamRange

INT64_MAX = 2**63 - 1

stream_ids = st.one_of(st.integers(0, 20), st.integers(0, INT64_MAX))


@st.composite
def spans(draw: st.DrawFn) -> tuple[int, int]:
    start = draw(st.one_of(st.integers(0, 100), st.integers(0, INT64_MAX)))
    end = draw(st.one_of(st.integers(start, min(start + 100, INT64_MAX)), st.integers(start, INT64_MAX)))
    return start, end


tables = st.dictionaries(stream_ids, spans(), max_size=12)


def column(*values: int) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


@given(tables, st.lists(st.one_of(stream_ids, st.integers()), max_size=5))
def test_ranges_answer_like_a_dictionary(table: dict[int, tuple[int, int]], others: list[int]) -> None:
    ranges = ObjectRanges.from_ranges((stream_id, start, end) for stream_id, (start, end) in table.items())
    assert len(ranges) == len(table)
    assert ranges.stream_ids.tolist() == sorted(table)
    assert (
        dict(
            zip(ranges.stream_ids.tolist(), zip(ranges.starts.tolist(), ranges.ends.tolist(), strict=True), strict=True)
        )
        == table
    )
    for stream_id in [*table, *others]:
        expected = StreamRange(*table[stream_id]) if stream_id in table else None
        assert ranges.range_of(stream_id) == expected


@given(tables)
def test_a_copy_through_pickle_is_the_same(table: dict[int, tuple[int, int]]) -> None:
    ranges = ObjectRanges.from_ranges((stream_id, start, end) for stream_id, (start, end) in table.items())
    copy = pickle.loads(pickle.dumps(ranges))  # noqa: S301 - our own bytes
    assert all(copy.range_of(stream_id) == (*span, False) for stream_id, span in table.items())


def test_nothing_can_be_written_to_the_arrays() -> None:
    for length in (5, 2**40):
        ranges = ObjectRanges.from_columns(column(1), column(0), column(length), np.array([True]))
        for array in (ranges.stream_ids, ranges.starts, ranges.lengths, ranges.holed):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1


def test_columns_are_kept_in_native_order_and_without_what_they_were_cut_from() -> None:
    table = np.array([[3, 10, 20], [5, 30, 40]], dtype=">i8")
    ranges = ObjectRanges.from_columns(table[:, 0], table[:, 1], table[:, 2])
    for array in (ranges.stream_ids, ranges.starts, ranges.lengths):
        assert array.dtype.isnative
        assert array.flags.c_contiguous
        assert array.base is None
    assert ranges.range_of(5) == (30, 40, False)


@pytest.mark.parametrize(
    ("ids", "starts", "ends", "words"),
    [
        ([3, 2], [0, 0], [1, 1], "ascending stream ids, each once, found 3 before 2"),
        ([3, 3], [0, 1], [1, 2], "found 3 before 3"),
        ([-1, 3], [0, 1], [1, 2], "stream ids of at least 0, found -1"),
        ([3, 4], [0, -1], [1, 2], "starts of at least 0, found -1"),
        ([3, 4], [0, 5], [1, 4], r"found \[5, 4\) of stream 4"),
        ([3, 4], [0, INT64_MAX], [1, -INT64_MAX - 1], "of stream 4"),
        ([3, 4], [0], [1, 2], "columns of equal length"),
        ([3, 4], [0, 1], [1], "columns of equal length"),
    ],
)
def test_columns_that_break_a_rule_are_refused(ids: list[int], starts: list[int], ends: list[int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ObjectRanges.from_columns(column(*ids), column(*starts), column(*ends))


def test_marks_for_other_streams_are_refused() -> None:
    with pytest.raises(ValueError, match="a hole flag for each of 1 streams"):
        ObjectRanges.from_columns(column(1), column(0), column(5), np.array([True, False]))


@pytest.mark.parametrize("ranges", [[(1, 0, 5), (1, 5, 9)], [(2**63, 0, 5)], [(1, 0, 2**63)]])
def test_ranges_that_cannot_be_are_refused(ranges: list[tuple[int, int, int]]) -> None:
    with pytest.raises(ValueError, match="expected"):
        ObjectRanges.from_ranges(ranges)
