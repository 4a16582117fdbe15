"""An index gives one range a stream, as a loop over its rows would, and refuses rows that cannot be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaders.errors import CorruptObject
from loaders.format import ROW_SIZE_BYTES, BlockIndex, BlockRow, decode_block_index

SECTION = 10_000


def decoded(rows: list[BlockRow], data_size_bytes: int | None = SECTION) -> BlockIndex:
    data = b"".join(row.encode() for row in rows)
    return decode_block_index(data, data_size_bytes=data_size_bytes, key="node/3", object_size_bytes=20_000)


@st.composite
def sorted_rows(draw: st.DrawFn) -> list[BlockRow]:
    rows: list[BlockRow] = []
    for stream_id in sorted(draw(st.sets(st.one_of(st.integers(0, 9), st.just(2**63 - 1)), max_size=5))):
        offset = draw(st.sampled_from([0, 5, 2**62]))
        for _ in range(draw(st.integers(1, 4))):
            start = offset + draw(st.sampled_from([0, 0, 0, 2]))
            offset = start + draw(st.sampled_from([0, 1, 4, 2**31 - 1]))
            rows.append(BlockRow(stream_id, start, offset, 1, len(rows) * 50, 50))
    return rows


@given(sorted_rows())
def test_rows_fold_into_the_ranges_that_a_loop_finds(rows: list[BlockRow]) -> None:
    ranges: dict[int, tuple[int, int, bool]] = {}
    for row in rows:
        start, end, holed = ranges.get(row.stream_id, (row.start, row.start, False))
        ranges[row.stream_id] = (start, row.end, holed or row.start > end)
    found = decoded(rows).object_ranges()
    assert found.stream_ids.tolist() == list(ranges)
    assert {stream_id: found.range_of(stream_id) for stream_id in ranges} == ranges
    assert found.holed.tolist() == [place for place, (_, _, holed) in enumerate(ranges.values()) if holed]
    assert all(column.dtype.isnative for column in (found.stream_ids, found.starts, found.lengths))


@given(sorted_rows())
def test_rows_are_read_back_one_by_one_and_by_stream(rows: list[BlockRow]) -> None:
    index = decoded(rows)
    assert list(index) == rows
    assert len(index) == len(index.rows) == len(rows)
    for stream_id in {row.stream_id for row in rows} | {-1, 4, 2**70}:
        numbers = [number for number, row in enumerate(rows) if row.stream_id == stream_id]
        assert list(index.stream_rows(stream_id)) == numbers


def test_the_index_of_an_object_does_not_keep_the_bytes_around_it() -> None:
    data = bytearray(BlockRow(7, 0, 5, 1, 0, 50).encode() + b"footer")
    view = memoryview(data)[:ROW_SIZE_BYTES]
    index = decode_block_index(view, data_size_bytes=50, key="k", object_size_bytes=92)
    data[:8] = bytes(8)
    assert index.row(0).stream_id == 7


@pytest.mark.parametrize("number", [-1, 1])
def test_there_is_no_row_outside_the_index(number: int) -> None:
    with pytest.raises(IndexError, match="below 1"):
        decoded([BlockRow(7, 0, 5, 1, 0, 50)]).row(number)


GOOD = BlockRow(7, 10, 20, 2, 100, 76)


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        (GOOD._replace(stream_id=-1), "stream ids of at least 0"),
        (GOOD._replace(start=-5, end=5), "start offsets of at least 0"),
        (GOOD._replace(end=9), "end deltas of at least 0"),
        (GOOD._replace(record_count=-1), "at least one record a row"),
        (GOOD._replace(record_count=0), "at least one record a row"),
        (GOOD._replace(record_count=3), "a size that can hold the row's records"),
        (GOOD._replace(record_count=2**31 - 1), "a size that can hold the row's records"),
        (GOOD._replace(size_bytes=-76), "a size that can hold the row's records"),
        (GOOD._replace(size_bytes=75), "a size that can hold the row's records"),
        (GOOD._replace(position=-1), "positions of at least 0"),
        (GOOD._replace(position=2**63 - 1, size_bytes=2**31 - 1), "positions within the data section"),
        (GOOD._replace(position=SECTION - 75), "blocks within the data section"),
        (GOOD._replace(size_bytes=2**31 - 1), "blocks within the data section"),
    ],
)
def test_a_row_that_cannot_be_is_refused_wherever_it_stands(bad: BlockRow, expected: str) -> None:
    before, after = BlockRow(6, 0, 1, 1, 0, 50), BlockRow(8, 0, 1, 1, 200, 50)
    for rows in ([bad], [before, bad], [bad, after], [before, bad, after]):
        with pytest.raises(CorruptObject, match=expected) as caught:
            decoded(rows)
        assert "node/3" in str(caught.value)
        assert f"row {rows.index(bad)} of {len(rows)}: BlockRow(" in caught.value.found


def test_an_end_beyond_64_bits_is_refused() -> None:
    row = bytearray(GOOD.encode())
    row[8:16] = (2**63 - 5).to_bytes(8, "big")
    with pytest.raises(CorruptObject, match="end offsets below"):
        decode_block_index(bytes(row), data_size_bytes=SECTION, key="k", object_size_bytes=20_000)


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (GOOD._replace(stream_id=6), "rows sorted by stream id"),
        (GOOD._replace(start=19, end=30), "sorted by offset, without overlap"),
        (GOOD._replace(start=0, end=5), "sorted by offset, without overlap"),
        (GOOD, "sorted by offset, without overlap"),
    ],
)
def test_rows_out_of_order_are_refused_and_both_are_shown(second: BlockRow, expected: str) -> None:
    rows = [BlockRow(1, 0, 9, 1, 0, 50), GOOD, second._replace(position=300), BlockRow(9, 0, 9, 1, 400, 50)]
    with pytest.raises(CorruptObject, match=expected) as caught:
        decoded(rows)
    assert "row 1 of 4: BlockRow(" in caught.value.found
    assert ", then row 2 of 4: BlockRow(" in caught.value.found


def test_rows_that_share_bytes_cannot_claim_more_than_the_data_section_holds() -> None:
    rows = [BlockRow(stream_id, 0, 5, 1, 0, 50) for stream_id in range(3)]
    assert len(decoded(rows, 150)) == 3
    with pytest.raises(CorruptObject, match="at most 149 bytes in all blocks, found 150"):
        decoded(rows, 149)


def test_rows_of_a_composite_object_may_lie_anywhere_in_the_linked_ones() -> None:
    assert len(decoded([GOOD._replace(position=2**40)], None)) == 1
    with pytest.raises(CorruptObject, match="blocks within"):
        decoded([GOOD._replace(position=2**63 - 50)], None)


@pytest.mark.parametrize("size_bytes", [1, 35, 37])
def test_an_index_of_broken_rows_is_refused(size_bytes: int) -> None:
    with pytest.raises(CorruptObject, match=f"found {size_bytes} bytes"):
        decode_block_index(bytes(size_bytes), data_size_bytes=0, key="k", object_size_bytes=100)
