"""A composite object says which object holds the blocks of each row, and links nothing it cannot mean."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaders.errors import CorruptObject
from loaders.format import BlockIndex, BlockRow, CompositeObject, LinkedObject, decode_composite
from tests.builders import encode_composite

INDEX = BlockIndex(b"".join(BlockRow(7, 10 * number, 10 * number + 10, 1, 0, 50).encode() for number in range(5)))
LINKS = (LinkedObject(41, 0, 0), LinkedObject(42, 2, -1), LinkedObject(2**40, 4, 7))


def test_the_bytes_are_the_links_the_rows_and_the_footer() -> None:
    index = BlockIndex(BlockRow(7, 0, 10, 1, 99, 50).encode())
    assert encode_composite((LinkedObject(41, 0, 3),), index).hex() == (
        "5200000001"  # magic and number of links
        "0000000000000029000000000003"  # object 41 from row 0 on, in bucket 3
        "000000000000000700000000000000000000000a0000000100000000000000630000003200000000000000130000002400000000"
        "00000000000000000000000000000000000000000000000088e241b785f4cff8"
    )


@given(st.data())
def test_each_row_belongs_to_the_last_link_that_begins_before_or_at_it(draw: st.DataObject) -> None:
    firsts = sorted({0, *draw.draw(st.sets(st.integers(0, 4)))})
    links = tuple(LinkedObject(100 + first, first, 0) for first in firsts)
    found = decode_composite(encode_composite(links, INDEX), key="k")
    assert found.links == links
    assert found.index.data == INDEX.data
    for number in range(5):
        assert found.locate(number).first_row == max(first for first in firsts if first <= number)


@pytest.mark.parametrize("number", [-1, 5])
def test_a_row_that_is_not_there_lies_nowhere(number: int) -> None:
    with pytest.raises(IndexError, match="below 5"):
        CompositeObject(LINKS, INDEX).locate(number)


def test_an_empty_composite_object_links_nothing() -> None:
    found = decode_composite(encode_composite((), BlockIndex(b"")), key="k")
    assert (found.links, len(found.index)) == ((), 0)


@pytest.mark.parametrize(
    ("links", "expected"),
    [
        ((), "a link that begins at row 0"),
        ((LinkedObject(41, 1, 0),), "a link that begins at row 0"),
        ((LinkedObject(41, 0, 0), LinkedObject(42, 0, 0)), "links ascending"),
        ((LinkedObject(41, 0, 0), LinkedObject(42, 3, 0), LinkedObject(43, 2, 0)), "links ascending"),
        ((LinkedObject(-1, 0, 0),), "rows below 5"),
        ((LinkedObject(41, -1, 0),), "rows below 5"),
        ((LinkedObject(41, 0, 0), LinkedObject(42, 5, 0)), "rows below 5"),
    ],
)
def test_links_that_do_not_divide_the_rows_are_refused(links: tuple[LinkedObject, ...], expected: str) -> None:
    with pytest.raises(CorruptObject, match=expected):
        decode_composite(encode_composite(links, INDEX), key="k")


@pytest.mark.parametrize(
    ("at", "value", "expected"),
    [
        (0, b"\x53", "links magic"),
        (1, b"\xff\xff\xff\xff", "each of -1 links"),
        (1, b"\x7f\xff\xff\xff", "each of 2147483647 links"),
        (1, b"\x00\x00\x00\x02", "each of 2 links"),
        (-8, b"\x88\xe2\x41\xb7\x85\xf4\xcf\xf7", "found the footer of a normal one"),
    ],
)
def test_a_composite_object_that_lies_is_refused(at: int, value: bytes, expected: str) -> None:
    data = bytearray(encode_composite(LINKS, INDEX))
    data[at : (at + len(value)) or None] = value
    with pytest.raises(CorruptObject, match=expected) as caught:
        decode_composite(bytes(data), key="k")
    assert caught.value.size_bytes == len(data)


def test_an_object_without_room_for_links_is_refused() -> None:
    data = encode_composite((), BlockIndex(b""))
    damaged = data[5:].replace(b"\x00\x05", b"\x00\x00", 1)
    with pytest.raises(CorruptObject, match="5 bytes or more before the index, found 0"):
        decode_composite(damaged, key="k")
