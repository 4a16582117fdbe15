"""Any name becomes one segment of a key, and comes back from it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaders.layout import decode_name, encode_name, encode_prefix
from loaders.store import MemoryStore
from tests.loaders.tables.worlds import World

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)


@given(NAMES)
def test_a_name_comes_back(name: str) -> None:
    encoded = encode_name(name)
    assert decode_name(encoded) == name
    assert encoded.isascii()
    assert not set(encoded) & set("/!.\\ ?#&+")


@given(NAMES, NAMES)
def test_two_names_have_two_encoded_forms(one: str, other: str) -> None:
    assert (encode_name(one) == encode_name(other)) == (one == other)


@given(NAMES, NAMES)
def test_a_prefix_of_a_name_is_encoded_to_a_prefix(one: str, other: str) -> None:
    assert encode_name(one + other).startswith(encode_prefix(one))
    assert encode_name(other).startswith(encode_prefix(one)) == other.startswith(one)


@given(st.text(st.sampled_from("abcAZ09%2F4Ef._~-!/é"), max_size=12))
def test_only_what_was_encoded_is_decoded(segment: str) -> None:
    try:
        name = decode_name(segment)
    except ValueError:
        return
    assert encode_name(name) == segment


@pytest.mark.parametrize(
    ("name", "encoded"),
    [
        ("stream-42_a~b", "stream-42_a~b"),
        ("a.b", "a%2Eb"),
        (".", "%2E"),
        ("..", "%2E%2E"),
        ("t/x", "t%2Fx"),
        ("100%", "100%25"),
        ("!table", "%21table"),
        ("ü 日", "%C3%BC%20%E6%97%A5"),
        ("\x00", "%00"),
    ],
)
def test_the_form_is_pinned(name: str, encoded: str) -> None:
    assert encode_name(name) == encoded


@pytest.mark.parametrize(
    "segment", ["", "a.b", "%2f", "%2", "%", "%41", "!table", "a/b", "%C3", "%ED%A0%80", "a b", "é"]
)
def test_what_no_name_is_encoded_to_is_refused(segment: str) -> None:
    with pytest.raises(ValueError, match=r"expected|decode"):
        decode_name(segment)


@pytest.mark.parametrize("name", ["", "\ud800", "a\udfffb"])
def test_what_has_no_utf8_form_is_no_name(name: str) -> None:
    with pytest.raises(ValueError, match="a name"):
        encode_name(name)


def test_a_key_too_long_for_s3_is_refused_before_anything_is_sent() -> None:
    world = World(MemoryStore())
    table = world.table("t")
    fitting = 1024 - len("accel/tables/t/")
    table.create("k" * fitting, b"x")
    assert list(table.keys()) == ["k" * fitting]
    for touch in (lambda key: table.create(key, b""), table.find, table.delete, table.erase):
        with pytest.raises(ValueError, match="at most 1024 bytes, found 1025"):
            touch("k" * (fitting + 1))
    with pytest.raises(ValueError, match="at most 1024"):
        table.find("ü" * 400)
    with pytest.raises(ValueError, match="at most 1024"):
        world.tables().create_table("t" * 1010)


def test_names_that_are_none_are_refused_everywhere() -> None:
    world = World(MemoryStore())
    with pytest.raises(ValueError, match="empty"):
        world.tables().table("")
    with pytest.raises(ValueError, match="empty"):
        world.table().find("")
    with pytest.raises(ValueError, match="UTF-8"):
        list(world.table().keys("\ud800"))


def test_what_nobody_wrote_through_a_table_is_not_listed() -> None:
    world = World(MemoryStore())
    table = world.table()
    table.create("k", b"x")
    for key in ("t/a.txt", "t/a/b", "t/%2f", "loose", "x.y/!table", "other/a/!table"):
        world.store.put(f"accel/tables/{key}", b"foreign")
    assert list(table.keys()) == ["k"]
    assert list(world.tables().table_names()) == ["t"]
