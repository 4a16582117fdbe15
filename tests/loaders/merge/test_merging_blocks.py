"""A row whose blocks are not what the index says is found before it is copied anywhere."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loaders.format import RecordBatch, encode_block
from loaders.merge.plan import MergeLimits, copies_of, find_bad_block
from tests.builders import write_set_object
from tests.examples import examples
from tests.loaders.format.objects import opened
from tests.loaders.merge.merged_objects import MergeGroup, merge_groups, written_by

LIMITS = MergeLimits()


def three_blocks() -> tuple[bytes, bytes]:
    """A row of two blocks and one of one block: the bytes, and the object that they are of."""
    group = MergeGroup([write_set_object([(3, 0, 4)]), write_set_object([(3, 4, 9), (4, 0, 1)])])
    (output,) = group.plan(LIMITS).outputs
    data = written_by(output, group.sources)
    return data[: output.data_size_bytes], data


def found_in(data: bytes, whole: bytes) -> tuple[int, int, str, str] | None:
    return find_bad_block(data, copies_of([opened(whole)]))


@given(merge_groups())
@settings(max_examples=examples(60))
def test_whole_blocks_pass(group: MergeGroup) -> None:
    for output in group.plan(LIMITS).outputs:
        assert find_bad_block(written_by(output, group.sources), output.copies) is None


FIRST, SECOND = 0, 10 + 33 + len(b"3:0-4")


@pytest.mark.parametrize(
    ("at", "value", "expected"),
    [
        (FIRST, b"\x5b", (0, 0, "block magic 0x5a and flags 0x2", "0x5b, 0x2")),
        (FIRST + 1, b"\x01", (0, 0, "block magic 0x5a and flags 0x2", "0x5a, 0x1")),
        (FIRST + 2, struct.pack(">i", 0), (0, 0, "a record count that fits the row", "0")),
        (FIRST + 2, struct.pack(">i", 2), (0, 0, "a record count that fits the row", "2")),
        (FIRST + 6, struct.pack(">i", 32), (0, 0, "a data length that fits the row", "32")),
        (FIRST + 6, struct.pack(">i", 87), (0, 0, "a data length that fits the row", "87")),
        (FIRST + 6, struct.pack(">i", 86), (0, 96, "the row's number of records", "1 fewer at the end of the row")),
        (FIRST + 6, struct.pack(">i", 80), (0, 90, "a block of at least 43 bytes", "6 bytes left")),
        (FIRST + 10, b"\x23", (0, 0, "batch magic 0x22 and the row's stream", "0x23, 3")),
        (SECOND + 11, struct.pack(">q", 4), (0, SECOND, "batch magic 0x22 and the row's stream", "0x22, 4")),
        (FIRST + 27, struct.pack(">q", 1), (0, 0, "a first batch within the row's offsets", "offset 1")),
        (SECOND + 27, struct.pack(">q", 10), (0, SECOND, "a first batch within the row's offsets", "offset 10")),
        (2 * SECOND + 27, struct.pack(">q", 1), (1, 0, "a first batch within the row's offsets", "offset 1")),
    ],
)
def test_each_kind_of_damage_is_told_where_it_is(at: int, value: bytes, expected: tuple[int, int, str, str]) -> None:
    data, whole = three_blocks()
    assert found_in(data, whole) is None
    assert found_in(data[:at] + value + data[at + len(value) :], whole) == expected


@given(merge_groups(), st.data())
@settings(max_examples=examples(60))
def test_no_damage_to_a_block_header_passes(group: MergeGroup, draw: st.DataObject) -> None:
    source = group.sources[0]
    row = opened(source).row(draw.draw(st.integers(0, len(opened(source)) - 1)))
    at = row.position + draw.draw(st.integers(0, 9))
    value = draw.draw(st.integers(0, 255).filter(lambda byte: byte != source[at]))
    damaged = source[:at] + bytes([value]) + source[at + 1 :]
    copies = copies_of([opened(source)])
    copies = copies[copies["position"].argsort(kind="stable")]
    assert find_bad_block(damaged, copies) is not None


def test_a_block_that_fills_its_row_to_the_byte_passes() -> None:
    assert len(encode_block([RecordBatch(3, 1, 0, 1, b"")])) == 43
    whole = write_set_object([(3, 0, 1)])
    assert found_in(whole, whole) is None
