"""Blocks give back the batches that were put in, however many blocks a row covers, and must agree with their row."""

import tracemalloc

import pytest

from loaders.errors import CorruptObject
from loaders.format import BlockRow, RecordBatch, decode_block_bytes, encode_block

FIRST = RecordBatch(233, 1, 10, 5, b"hello")
SECOND = RecordBatch(233, 1, 15, 2, b"ab")


def row_of(data: bytes | bytearray, *batches: RecordBatch) -> BlockRow:
    return BlockRow(233, batches[0].base_offset, batches[-1].end_offset, len(batches), 1000, len(data))


def decoded(data: bytes, row: BlockRow) -> list[RecordBatch]:
    return decode_block_bytes(data, row, key="node/5", object_size_bytes=9_000)


@pytest.mark.parametrize(("count", "end", "link"), [(5, 15, False), (1, 11, False), (0, 10, True), (-3, 13, True)])
def test_a_link_record_stands_for_the_offsets_that_its_count_denies(count: int, end: int, link: bool) -> None:
    batch = RecordBatch(233, 1, 10, count, b"")
    assert (batch.end_offset, batch.is_link) == (end, link)


def test_a_row_may_cover_one_block_or_several() -> None:
    for data in (encode_block([FIRST, SECOND]), encode_block([FIRST]) + encode_block([SECOND])):
        assert decoded(data, row_of(data, FIRST, SECOND)) == [FIRST, SECOND]
        assert decoded(bytes(bytearray(data)), row_of(data, FIRST, SECOND)) == [FIRST, SECOND]


def test_payloads_are_copies_that_keep_no_block_in_memory() -> None:
    data = bytearray(encode_block([FIRST]))
    (batch,) = decode_block_bytes(memoryview(data), row_of(data, FIRST), key="k", object_size_bytes=99)
    data[:] = bytes(len(data))
    assert batch == FIRST
    assert type(batch.payload) is bytes


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"stream_id": 234}, "stream 234"),
        ({"start": 9}, "offsets"),
        ({"start": 11}, "offsets"),
        ({"end": 16}, "offsets"),
        ({"end": 18}, "offsets"),
        ({"record_count": 1}, "record count of 1 to 1"),
        ({"record_count": 3}, "3 batches"),
        ({"size_bytes": 82}, "82 bytes of blocks"),
    ],
)
def test_a_row_that_says_anything_else_than_its_block_is_refused(changes: dict[str, int], expected: str) -> None:
    data = encode_block([FIRST, SECOND])
    with pytest.raises(CorruptObject, match=expected) as caught:
        decoded(data, row_of(data, FIRST, SECOND)._replace(**changes))
    assert (caught.value.key, caught.value.size_bytes) == ("node/5", 9_000)


@pytest.mark.parametrize(
    ("at", "value", "expected"),
    [
        (0, b"\x5b", "block magic"),
        (1, b"\x00", "flags"),
        (2, b"\x00\x00\x00\x00", "record count"),
        (2, b"\x00\x00\x00\x01", "fill the block"),
        (2, b"\x7f\xff\xff\xff", "record count"),
        (2, b"\xff\xff\xff\xff", "record count"),
        (6, b"\xff\xff\xff\xff", "data length"),
        (6, b"\x7f\xff\xff\xff", "data length"),
        (6, b"\x00\x00\x00\x40", "record count"),
        (6, b"\x00\x00\x00\x48", "payload length"),
        (10, b"\x23", "batch magic"),
        (11, b"\x01", "stream 233"),
        (27, b"\xff", "offsets within"),
        (35, b"\x7f\xff\xff\xff", "offsets within"),
        (35, b"\x80\x00\x00\x00", "offsets within"),
        (35, b"\x00\x00\x00\x06", "offsets within"),
        (39, b"\xff\xff\xff\xff", "payload length"),
        (39, b"\x7f\xff\xff\xff", "payload length"),
        (39, b"\x00\x00\x00\x20", "batch header"),
        (39, b"\x00\x00\x00\x04", "batch magic"),
    ],
)
def test_a_block_that_lies_is_refused_before_anything_is_allocated(at: int, value: bytes, expected: str) -> None:
    data = bytearray(encode_block([FIRST, SECOND]))
    data[at : at + len(value)] = value
    tracemalloc.start()
    try:
        with pytest.raises(CorruptObject, match=expected):
            decoded(bytes(data), row_of(data, FIRST, SECOND))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_a_row_that_ends_within_a_header_is_refused() -> None:
    data = encode_block([FIRST]) + bytes(9)
    with pytest.raises(CorruptObject, match="block header of 10 bytes at byte 1048"):
        decoded(data, row_of(data, FIRST))


def test_batches_that_go_back_are_refused() -> None:
    data = encode_block([FIRST, FIRST])
    with pytest.raises(CorruptObject, match=r"offsets within \[15, 15\)"):
        decoded(data, row_of(data, FIRST, FIRST))


def test_a_row_without_bytes_holds_no_records() -> None:
    with pytest.raises(CorruptObject, match="found none"):
        decoded(b"", BlockRow(233, 0, 0, 0, 0, 0))
