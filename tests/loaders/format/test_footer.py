"""A footer is read back as it was written, and no other bytes pass for one."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from loaders.errors import CorruptObject
from loaders.format import FOOTER_SIZE_BYTES, ROW_SIZE_BYTES, Footer, decode_footer

footers = st.builds(
    Footer,
    index_position=st.integers(0, 2**40),
    index_size_bytes=st.integers(0, 50_000).map(lambda rows: rows * ROW_SIZE_BYTES),
    composite=st.booleans(),
)


@given(footers, st.binary(max_size=64))
def test_a_footer_is_read_back_from_any_tail_that_holds_it(footer: Footer, before: bytes) -> None:
    size_bytes = footer.index_end + FOOTER_SIZE_BYTES
    assume(len(before) <= footer.index_end)
    assert decode_footer(before + footer.encode(), object_size_bytes=size_bytes, key="k") == footer


@given(footers, st.integers(0, 2**40))
def test_a_size_that_is_not_the_object_s_is_noticed(footer: Footer, claimed: int) -> None:
    assume(claimed != footer.index_end + FOOTER_SIZE_BYTES)
    with pytest.raises(CorruptObject):
        decode_footer(footer.encode(), object_size_bytes=claimed, key="k")


@pytest.mark.parametrize(
    ("footer", "size_bytes", "words"),
    [
        (Footer(100, 36), 130, "runs past the end of the object"),
        (Footer(100, 36), 150, "runs into the footer"),
        (Footer(100, 36), 200, "leaves a gap"),
        (Footer(-36, 72), 84, "position -36, size 72"),
        (Footer(100, -36), 112, "position 100, size -36"),
        (Footer(100, 37), 185, "37 bytes"),
        (Footer(0, 0), 47, "48 bytes"),
    ],
)
def test_an_error_says_in_which_way_the_index_is_misplaced(footer: Footer, size_bytes: int, words: str) -> None:
    with pytest.raises(CorruptObject, match=words) as caught:
        decode_footer(footer.encode(), object_size_bytes=size_bytes, key="k")
    assert (caught.value.key, caught.value.size_bytes) == ("k", size_bytes)
