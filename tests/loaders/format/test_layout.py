"""A key is made of an id and gives the id back; no other key does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaders.layout import Mark, ObjectLayout

BROKER = ObjectLayout(namespace="_kafka_rZdE0DjZSrqy96PXrMUZVw")

object_ids = st.one_of(st.integers(0, 2**63 - 1), st.integers(0, 2**33))
layouts = st.sampled_from([ObjectLayout(), BROKER, ObjectLayout("a/b", "n"), ObjectLayout("a", "0")])


@pytest.mark.parametrize(
    ("object_id", "key"),
    [
        (0, "00000000/_kafka_rZdE0DjZSrqy96PXrMUZVw/0"),
        (42, "a2000000/_kafka_rZdE0DjZSrqy96PXrMUZVw/42"),
        (506158751, "f9e5b2e1/_kafka_rZdE0DjZSrqy96PXrMUZVw/506158751"),
        (4294967313, "110000001/_kafka_rZdE0DjZSrqy96PXrMUZVw/4294967313"),
    ],
)
def test_keys_are_those_of_the_production_writer(object_id: int, key: str) -> None:
    assert BROKER.object_key(object_id) == key


@given(layouts, object_ids)
def test_a_key_gives_its_id_back(layout: ObjectLayout, object_id: int) -> None:
    assert layout.parse_object_key(layout.object_key(object_id)) == object_id


@pytest.mark.parametrize(
    "key",
    [
        "",
        "42",
        "a2000000/DEFAULT/",
        "a2000000/DEFAULT/x",
        "a2000000/DEFAULT/-42",
        "a2000000/DEFAULT/042",
        "a2000000/DEFAULT/٤٢",
        "a2000000/OTHER/42",
        "b2000000/DEFAULT/42",
        "/a2000000/DEFAULT/42",
        "00000000/DEFAULT/" + "9" * 5000,
        "8000000000000000/DEFAULT/9223372036854775808",
    ],
)
def test_a_key_that_is_almost_right_is_nobody_s(key: str) -> None:
    assert ObjectLayout().parse_object_key(key) is None


@pytest.mark.parametrize("object_id", [-1, 2**63])
def test_an_id_outside_64_bits_has_no_key(object_id: int) -> None:
    with pytest.raises(ValueError, match=str(object_id)):
        ObjectLayout().object_key(object_id)


@pytest.mark.parametrize(("prefix", "namespace"), [("/a", "n"), ("a/", "n"), ("", ""), ("", "a/b")])
def test_a_layout_of_ambiguous_keys_is_refused(prefix: str, namespace: str) -> None:
    with pytest.raises(ValueError, match="expected a"):
        ObjectLayout(prefix, namespace)


OURS = ObjectLayout(namespace="n", catalog_id="0a" * 16)
hex_digits = st.text("0123456789abcdef", min_size=32, max_size=32)


@given(hex_digits, object_ids, hex_digits)
def test_a_mark_gives_catalog_object_and_nonce_back(catalog_id: str, object_id: int, nonce: str) -> None:
    mark = Mark(catalog_id, object_id, nonce)
    assert Mark.of(str(mark)) == mark
    assert str(mark).isascii()
    assert len(str(mark)) <= 85


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "..",
        "0a.42.f9",
        f"{'0a' * 16}.42",
        f"{'0a' * 16}.042.{'f9' * 16}",
        f"{'0a' * 16}.-1.{'f9' * 16}",
        f"{'0a' * 16}.\u0664.{'f9' * 16}",
        f"{'0A' * 16}.42.{'f9' * 16}",
        f"{'0a' * 16}.42.{'f9' * 16}\n",
        f"{'0a' * 16}.42.{'f9' * 16}.",
        f"{'0a' * 16}.{2**63}.{'f9' * 16}",
    ],
)
def test_a_mark_that_is_almost_right_is_none(text: str | None) -> None:
    assert Mark.of(text) is None
    assert not OURS.is_ours(42, text)


@given(object_ids)
def test_an_object_is_ours_by_catalog_and_id_whatever_the_write(object_id: int) -> None:
    mark = OURS.mark(object_id, lambda: b"n" * 16)
    assert mark == f"{'0a' * 16}.{object_id}.{'6e' * 16}"
    assert OURS.is_ours(object_id, mark)
    assert not OURS.is_ours(object_id ^ 1, mark), "a copy at another key"
    assert not ObjectLayout(namespace="n", catalog_id="0b" * 16).is_ours(object_id, mark)


def test_without_a_catalog_id_nothing_is_ours() -> None:
    layout = ObjectLayout(namespace="n")
    mark = layout.mark(42, lambda: b"n" * 16)
    assert Mark.of(mark) == Mark("0" * 32, 42, "6e" * 16), "it says which write it was, and nothing else"
    assert not layout.is_ours(42, mark)
    assert not layout.is_ours(42, OURS.mark(42, lambda: b"n" * 16))
    assert layout == OURS, "the keys are the same"
