"""The tail of an object gives its index, or says exactly which bytes are missing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaders.errors import CorruptObject
from loaders.format import FOOTER_SIZE_BYTES, BlockIndex, Footer, MissingBytes, guess_tail_size_bytes, open_tail
from tests.loaders.format.objects import Case, Written, opened, production_bytes, production_cases, written_objects


@pytest.mark.parametrize(
    ("object_size_bytes", "guess"),
    [(0, 0), (48, 48), (8191, 8191), (1 << 20, 8228), (16 << 20, 8768), (100 << 20, 11_792), (10 << 30, 376_832)],
)
def test_the_guess_is_that_of_the_production_reader(object_size_bytes: int, guess: int) -> None:
    assert guess_tail_size_bytes(object_size_bytes) == guess


@pytest.mark.parametrize("case", production_cases(), ids=lambda case: str(case["objectId"]))
def test_production_objects_open_with_the_reads_of_their_own_reader(case: Case) -> None:
    data = production_bytes(case["objectId"])
    tail_start = len(data) - guess_tail_size_bytes(len(data))
    reads = [[tail_start, len(data)]]
    found = open_tail(data[tail_start:], object_size_bytes=len(data), key="k")
    if isinstance(found, MissingBytes):
        reads.append([found.start, len(data)])  # its own reader asks for the whole index again, we for the gap
        found = open_tail(data[found.start : found.end] + data[tail_start:], object_size_bytes=len(data), key="k")
    assert isinstance(found, BlockIndex)
    assert reads == case["readerRangeReads"]
    assert found.data == opened(data).data


@given(written_objects(), st.data())
def test_a_tail_of_any_length_opens_with_at_most_one_more_read(written: Written, draw: st.DataObject) -> None:
    data = written.data
    tail_start = draw.draw(st.integers(0, len(data) - FOOTER_SIZE_BYTES))
    found = open_tail(data[tail_start:], object_size_bytes=len(data), key="k")
    if isinstance(found, MissingBytes):
        assert found.end == tail_start
        found = open_tail(memoryview(data)[found.start :], object_size_bytes=len(data), key="k")
    assert isinstance(found, BlockIndex)
    assert found.data == opened(data).data


def test_a_footer_that_claims_more_rows_than_the_blocks_have_room_for_causes_no_read() -> None:
    footer = Footer(index_position=42, index_size_bytes=36 * 1_000_000)
    size_bytes = footer.index_end + FOOTER_SIZE_BYTES
    with pytest.raises(CorruptObject, match="at most 0 rows, found 1000000 rows for 42 bytes"):
        open_tail(footer.encode(), object_size_bytes=size_bytes, key="k")


def test_a_composite_object_is_not_mistaken_for_a_normal_one() -> None:
    footer = Footer(index_position=5, index_size_bytes=0, composite=True)
    data = bytes(5) + footer.encode()
    with pytest.raises(CorruptObject, match="composite"):
        open_tail(data, object_size_bytes=len(data), key="k")
