"""A key is made of an id and gives the id back; no other key does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaders.layout import ObjectLayout

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


def test_a_prefix_stands_before_everything() -> None:
    assert ObjectLayout("tenants/7", "n").object_key(42) == "tenants/7/a2000000/n/42"


@given(layouts, st.text(max_size=40))
def test_other_keys_are_nobody_s(layout: ObjectLayout, key: str) -> None:
    found = layout.parse_object_key(key)
    assert found is None or layout.object_key(found) == key


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
