"""A read is given the rows that a patient person would pick one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaders.format import OPEN_END, BlockIndex, FoundRows, RecordBatch, find
from tests.loaders.format.objects import Written, encoded, opened, written_objects


def patient(index: BlockIndex, stream_id: int, start: int, end: int, max_bytes: int) -> FoundRows:
    """Look at all rows from the first one again for each pick."""
    picked: list[int] = []
    offset, left = start, max_bytes
    while True:
        holding = [
            number
            for number, row in enumerate(index)
            if row.stream_id == stream_id and row.start <= offset < row.end and number not in picked
        ]
        if not holding:
            return FoundRows(tuple(picked), fulfilled=False, next_offset=offset, bytes_left=left)
        (number,) = holding
        row = index.row(number)
        left -= min(left, row.payload_bytes) if row.start == offset else 0
        offset = row.end
        picked.append(number)
        if left == 0 or (end != -1 and offset >= end):
            return FoundRows(tuple(picked), fulfilled=True, next_offset=offset, bytes_left=left)


@given(
    written_objects(), st.integers(-1, 12), st.integers(0, 60), st.integers(-1, 60), st.integers(0, 60), st.booleans()
)
def test_find_picks_what_the_patient_search_picks(
    written: Written, stream_id: int, start: int, end: int, max_bytes: int, far: bool
) -> None:
    index = opened(written.data)
    shift = 2**40 if far else 0
    question = (stream_id, start + shift, end + shift if end != OPEN_END else end, max_bytes)
    assert find(index, *question) == patient(index, *question)


def test_a_row_without_offsets_is_passed_over_and_costs_nothing() -> None:
    writes = [[RecordBatch(7, 1, 0, 5, b"12345")], [RecordBatch(7, 1, 5, 0, b"link")], [RecordBatch(7, 1, 5, 5, b"12")]]
    index = opened(encoded(writes, 100))
    assert find(index, 7, 0, OPEN_END, 100) == FoundRows((0, 2), fulfilled=False, next_offset=10, bytes_left=93)


def test_a_budget_below_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="found -1"):
        find(BlockIndex(b""), 7, 0, 10, -1)
