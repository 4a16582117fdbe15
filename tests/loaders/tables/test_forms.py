"""Records say by themselves what they are; those of other versions are refused, damage is found."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaders.errors import CorruptObject, FormatTooNew
from loaders.tables import FormRegistry, RecordForm, form_of
from tests.loaders.tables.golden import golden


class Owner(msgspec.Struct, frozen=True):
    """An example: who owns a stream, the third version of it."""

    node_id: int
    since_ms: int
    tags: dict[str, str] = {}
    marks: bytes = b""

    def __post_init__(self) -> None:
        if self.node_id < 0:
            raise ValueError(f"expected a node id of 0 or more, found {self.node_id}")


OWNER = RecordForm("owner", 3, Owner)
RECORD = Owner(4, 1_700_000_000_000, {"zone": "b", "rack": "7"}, b"\x00\xff")


def of_version(version: int, fields: object) -> bytes:
    return b"\x05owner" + version.to_bytes(2, "big") + msgspec.msgpack.encode(fields)


def test_the_bytes_are_pinned() -> None:
    assert OWNER.encode(RECORD) == golden("form-example")
    assert OWNER.decode(golden("form-example"), "k") == RECORD
    assert form_of(golden("form-example")) == ("owner", 3)


@given(st.integers(0, 2**63 - 1), st.dictionaries(st.text(), st.text()), st.binary())
def test_a_record_comes_back_and_equal_ones_have_equal_bytes(number: int, tags: dict[str, str], marks: bytes) -> None:
    record = Owner(number, number, tags, marks)
    assert OWNER.decode(OWNER.encode(record), "k") == record
    backwards = Owner(number, number, dict(reversed(tags.items())), marks)
    assert OWNER.encode(backwards) == OWNER.encode(record)


@pytest.mark.parametrize("version", [1, 2])
def test_an_older_version_is_corrupt(version: int) -> None:
    with pytest.raises(CorruptObject, match=f"form 'owner', version 3, found version {version}"):
        OWNER.decode(of_version(version, {"node_id": 4, "since_ms": 5000}), "table 'owners', key 's'")


@pytest.mark.parametrize("version", [4, 65535])
def test_a_newer_version_is_refused_with_both_numbers(version: int) -> None:
    with pytest.raises(FormatTooNew, match=f"'k': expected form 'owner' of version 3, found {version}"):
        OWNER.decode(of_version(version, {"anything": 1}), "k")


def test_a_field_that_is_not_known_is_ignored_where_the_version_is() -> None:
    assert OWNER.decode(of_version(3, {"node_id": 4, "since_ms": 5000, "new": [1]}), "k") == Owner(4, 5000)


@pytest.mark.parametrize(
    ("version", "fields"),
    [
        (3, {"node_id": 4}),
        (3, {"node_id": "4", "since_ms": 1}),
        (3, {"node_id": -1, "since_ms": 1}),
        (3, [4, 5000]),
        (3, None),
        (0, {"node_id": 4, "since_ms": 5000}),
    ],
)
def test_a_record_of_other_fields_is_corrupt(version: int, fields: object) -> None:
    with pytest.raises(CorruptObject, match="'some key'"):
        OWNER.decode(of_version(version, fields), "some key")


def test_every_cut_is_found_and_so_is_what_follows() -> None:
    data = golden("form-example")
    for end in range(len(data)):
        with pytest.raises(CorruptObject):
            OWNER.decode(data[:end], "k")
    with pytest.raises(CorruptObject):
        OWNER.decode(data + b"\0", "k")


def test_records_nested_without_end_are_corrupt() -> None:
    with pytest.raises(CorruptObject):
        OWNER.decode(b"\x05owner\x00\x03\x81\xa1x" + b"\x91" * 100_000, "k")


def test_another_form_is_not_taken_for_this_one() -> None:
    other = RecordForm("another", 1, Owner)
    with pytest.raises(CorruptObject, match="expected a record of form 'owner', found one of 'another'"):
        OWNER.decode(other.encode(RECORD), "k")


@pytest.mark.parametrize("name", ["", "Owner", "a b", "ö", "-a", "a" * 256])
def test_names_are_short_and_plain(name: str) -> None:
    with pytest.raises(ValueError, match="form's name"):
        RecordForm(name, 1, Owner)


def test_a_form_has_a_version_and_field_names() -> None:
    class Row(msgspec.Struct, array_like=True):
        number: int

    with pytest.raises(ValueError, match="array_like"):
        RecordForm("row", 1, Row)
    for version in (0, 65536):
        with pytest.raises(ValueError, match="1 to 65535"):
            RecordForm("owner", version, Owner)


class ShortForm(RecordForm[Owner]):
    def expand(self, fields: Owner) -> object:
        return {"node": fields.node_id}


def test_a_registry_shows_any_record_as_plain_json() -> None:
    registry = FormRegistry()
    registry.register(OWNER, ShortForm("short", 1, Owner))
    assert registry.names() == ["owner", "short"]
    name, version, plain = registry.decode_any(golden("form-example"), "k")
    assert (name, version) == ("owner", 3)
    tags = {"zone": "b", "rack": "7"}
    assert json.loads(json.dumps(plain)) == {"node_id": 4, "since_ms": 1_700_000_000_000, "tags": tags, "marks": "AP8="}
    short = RecordForm("short", 1, Owner).encode(RECORD)
    assert registry.decode_any(short, "k") == ("short", 1, {"node": 4})


def test_a_registry_refuses_what_it_does_not_know() -> None:
    registry = FormRegistry()
    with pytest.raises(FormatTooNew, match="found 'owner'"):
        registry.decode_any(golden("form-example"), "k")
    registry.register(OWNER)
    with pytest.raises(ValueError, match="already"):
        registry.register(OWNER)
    with pytest.raises(CorruptObject, match="'k'"):
        registry.decode_any(b"\xffgarbage", "k")
    with pytest.raises(CorruptObject):
        form_of(b"")
