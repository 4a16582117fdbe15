"""Packed columns are read back as they were written, from any numbers; and damage is refused, not believed."""

from __future__ import annotations

import contextlib
import struct

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from loaders.errors import CorruptObject, FormatLimit, FormatTooNew
from loaders.tables.columns import (
    ROWS_FREE,
    ROWS_MAX,
    is_packed,
    pack_columns,
    rows_allowed,
    unpack_any,
    unpack_columns,
)

PAIR = np.dtype([("key", "<i8"), ("value", "<i8")])
INT64 = st.integers(-(2**63), 2**63 - 1)
NUMBERS = st.one_of(INT64, st.integers(-300, 300), st.sampled_from([-(2**63), 2**63 - 1, 0, -1, 255, 256, 2**32]))


def rows_of(pairs: list[tuple[int, int]]) -> NDArray[np.void]:
    return np.array(pairs, dtype=PAIR)


def unpack(data: bytes, rows_max: int = 1000) -> NDArray[np.void]:
    return unpack_columns(data, PAIR, "there", rows_max=rows_max)


def repacked(raw: bytes, *, version: int = 1, size: int | None = None, tell_size: bool = False) -> bytes:
    frame = zstandard.ZstdCompressor(write_content_size=tell_size).compress(raw)
    return struct.pack(">4sBI", b"ACol", version, len(raw) if size is None else size) + frame


def raw_of(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompress(data[9:], max_output_size=1 << 20)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=60))
def test_any_numbers_are_read_back_as_they_were_written(pairs: list[tuple[int, int]]) -> None:
    assert unpack(pack_columns(rows_of(pairs))).tolist() == pairs


@given(NUMBERS, st.lists(st.integers(0, 2**40), max_size=60))
def test_ascending_numbers_are_read_back_whatever_their_steps(first: int, steps: list[int]) -> None:
    keys = np.cumsum(np.array([first, *steps], dtype=np.int64))
    rows = rows_of([(key, 7) for key in keys.tolist()])
    assert unpack(pack_columns(rows)).tolist() == rows.tolist()


def test_steps_beyond_the_precision_of_floating_point_are_kept() -> None:
    pairs = [(0, 0), (0, 0), (0, 1), (0, 2**53 + 2)]
    assert unpack(pack_columns(rows_of(pairs))).tolist() == pairs


def test_even_steps_and_equal_values_take_no_bytes_a_row() -> None:
    few, many = (pack_columns(rows_of([(5 + 3 * i, -1) for i in range(count)])) for count in (2, 1000))
    assert len(raw_of(few)) == len(raw_of(many))


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=20), st.data())
def test_damaged_bytes_never_cause_another_error_than_the_two_of_the_contract(
    pairs: list[tuple[int, int]], data: st.DataObject
) -> None:
    packed = bytearray(pack_columns(rows_of(pairs)))
    at = data.draw(st.integers(0, len(packed) - 1))
    packed[at] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(packed)))
    for damaged in (bytes(packed), bytes(packed[:cut]), bytes(packed) + b"x"):
        with contextlib.suppress(CorruptObject, FormatTooNew):
            assert unpack(damaged).dtype == PAIR


def test_more_rows_than_the_reader_takes_are_refused_before_they_are_unpacked() -> None:
    packed = pack_columns(rows_of([(1, 1)] * 11))
    assert len(unpack(packed, rows_max=11)) == 11
    with pytest.raises(CorruptObject, match="expected at most 10 rows, found 11"):
        unpack(packed, rows_max=10)


def test_a_size_that_lies_is_refused_and_allocates_nothing() -> None:
    raw = raw_of(pack_columns(rows_of([(1, 2)])))
    for size in (len(raw) - 1, len(raw) + 1, 2**32 - 1, 0):
        with pytest.raises(CorruptObject, match="there"):
            unpack(repacked(raw, size=size))
    bomb = b"\0" * (1 << 20)  # its frame says how large it is, which a decompressor would believe
    with pytest.raises(CorruptObject, match="expected a frame of 100 bytes, found 1048576"):
        unpack(repacked(bomb, size=100, tell_size=True))


def test_a_frame_that_asks_for_more_memory_than_it_fills_is_refused() -> None:
    packed = bytearray(pack_columns(rows_of([(each * each, -each) for each in range(5000)])))
    window_at = 9 + 5  # behind the head of the columns: the frame's magic, its descriptor, then its window
    assert zstandard.get_frame_parameters(bytes(packed[9:])).window_size <= 1 << 23
    packed[window_at] = 17 << 3
    assert zstandard.get_frame_parameters(bytes(packed[9:])).window_size == 1 << 27
    with pytest.raises(CorruptObject, match="too much memory"):
        unpack(bytes(packed))


def test_a_field_that_the_reader_does_not_know_is_refused_as_too_new() -> None:
    wider = np.zeros(3, dtype=[("key", "<i8"), ("value", "<i8"), ("colour", "<i8")])
    with pytest.raises(FormatTooNew, match="there: expected columns among key, value, found also colour"):
        unpack(pack_columns(wider))


def test_bytes_with_a_missing_field_are_corrupt() -> None:
    narrower = pack_columns(np.array([(3,), (5,)], dtype=[("key", "<i8")]))
    with pytest.raises(CorruptObject, match="expected columns key, value, found none named value"):
        unpack(narrower)


def test_a_newer_version_is_refused_as_too_new() -> None:
    raw = raw_of(pack_columns(rows_of([(1, 2)])))
    with pytest.raises(FormatTooNew, match="version 1 or lower, found 2"):
        unpack(repacked(raw, version=2))


def regular(count: int) -> NDArray[np.void]:
    rows = np.zeros(count, dtype=PAIR)
    rows["key"] = np.arange(count)
    return rows


@pytest.mark.parametrize("count", [ROWS_FREE, ROWS_FREE + 1, ROWS_FREE + 5000, 200_000, ROWS_MAX])
def test_rows_that_take_less_than_a_bit_are_written_so_that_every_reader_takes_them(count: int) -> None:
    packed = pack_columns(regular(count))
    assert rows_allowed(len(packed)) >= count
    assert len(packed) <= 150 + count // 8
    assert (unpack(packed, rows_max=ROWS_MAX) == regular(count)).all()


@given(st.integers(0, 400), st.integers(-3, 3))
def test_few_bytes_never_become_many_rows(more_bytes: int, more_rows: int) -> None:
    def stored(count: int) -> bytes:
        heads = [struct.pack(">B3sBBqq", 3, name, 1, 0, 1, 0) for name in (b"one", b"two")]
        frame = zstandard.ZstdCompressor(write_content_size=False).compress(
            struct.pack(">IB", count, 2) + b"".join(heads)
        )
        skipped = struct.pack("<II", 0x184D2A50, more_bytes) + bytes(more_bytes) if more_bytes else b""
        return struct.pack(">4sBI", b"ACol", 1, 5 + 2 * 22) + skipped + frame

    allowed = ROWS_FREE + 8 * len(stored(ROWS_FREE))
    count = allowed + 24 + 8 * more_rows
    data = stored(count)
    allowed = rows_allowed(len(data))
    if count <= allowed:
        assert len(unpack_any(data, "there")) == count
    else:
        with pytest.raises(
            CorruptObject, match=f"expected at most {allowed} rows in this number of bytes, found {count}"
        ):
            unpack_any(data, "there")


@pytest.mark.parametrize("size", [1, 2**32 - 1])
def test_a_frame_to_skip_that_is_longer_than_what_is_there_is_refused(size: int) -> None:
    with pytest.raises(CorruptObject, match=f"expected {size} bytes to skip"):
        unpack(struct.pack(">4sBI", b"ACol", 1, 100) + struct.pack("<II", 0x184D2A50, size))


def test_other_bytes_are_not_taken_for_columns() -> None:
    assert is_packed(pack_columns(rows_of([])))
    assert not is_packed(b"ACo")
    with pytest.raises(CorruptObject, match="begin with b'ACol', found b'AAAA'"):
        unpack(b"A" * 50)


@pytest.mark.parametrize(
    "dtype",
    [[("key", "<i4")], [("k" * 64, "<i8")], [("schlüssel", "<i8")], [(f"f{number}", "<i8") for number in range(33)]],
)
def test_fields_that_have_no_form_are_refused(dtype: list[tuple[str, str]]) -> None:
    with pytest.raises(ValueError, match="expected 1 to 32 fields of type <i8 with ASCII names"):
        pack_columns(np.zeros(1, dtype=dtype))


def test_more_rows_than_the_format_allows_are_not_written() -> None:
    with pytest.raises(FormatLimit, match=f"expected at most {ROWS_MAX} rows .*found {ROWS_MAX + 1}"):
        pack_columns(np.zeros(ROWS_MAX + 1, dtype=PAIR))
