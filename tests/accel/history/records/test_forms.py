"""Every record is read back as it was written, also from bytes of earlier releases; damage is always noticed."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest

from accel.history.records import ALL_FORMS
from loaders.errors import CorruptObject, FormatTooNew
from loaders.tables.records import FormRegistry, form_of, shown_rows
from tests.accel.history.records.golden import CASES, WORKFLOW, golden_bytes
from tests.examples import places

every_form = pytest.mark.parametrize("name", CASES)


def test_there_is_a_golden_file_for_every_form() -> None:
    assert [form.name for form in ALL_FORMS] == list(CASES)


@every_form
def test_bytes_of_version_1_are_read_for_ever(name: str) -> None:
    form, make = CASES[name]
    assert form.decode(golden_bytes(f"{name}-1"), "golden") == make()


@every_form
def test_a_record_is_read_back_as_it_was_written_and_equal_records_have_equal_bytes(name: str) -> None:
    form, make = CASES[name]
    again = form.decode(form.encode(make()), "here")
    assert again == make()
    assert form.encode(again) == form.encode(make())


@every_form
def test_each_form_names_itself_and_its_version(name: str) -> None:
    form, make = CASES[name]
    assert form_of(form.encode(make())) == (name, 1)
    assert repr(form) == f"HistoryForm('{name}', 1)"


@every_form
def test_bytes_that_end_early_are_refused_with_the_place_in_the_message(name: str) -> None:
    form, make = CASES[name]
    whole = form.encode(make())
    for cut in range(len(whole)):
        with pytest.raises(CorruptObject, match="table 'x', key 'y'"):
            form.decode(whole[:cut], "table 'x', key 'y'")


@every_form
def test_a_flipped_bit_is_noticed_or_makes_another_valid_record(name: str) -> None:
    """The envelope around the record has the checksum. Each place of a bit in each byte comes, or all of them."""
    form, make = CASES[name]
    whole = form.encode(make())
    for bit in places(8 * len(whole), len(name), every=5):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        with suppress(CorruptObject, FormatTooNew):
            form.decode(bytes(damaged), "here")


@every_form
def test_bytes_behind_the_end_are_refused(name: str) -> None:
    form, make = CASES[name]
    with pytest.raises(CorruptObject, match="trailing"):
        form.decode(form.encode(make()) + b"\0", "here")


@every_form
def test_a_newer_version_is_refused_as_too_new(name: str) -> None:
    form, make = CASES[name]
    of_next = bytearray(form.encode(make()))
    of_next[len(name) + 2] = 2
    with pytest.raises(FormatTooNew, match=name):
        form.decode(bytes(of_next), "here")


@every_form
def test_a_record_of_another_form_is_refused(name: str) -> None:
    form, _ = CASES[name]
    other, make_other = CASES["last-number" if name != "last-number" else "id-counter"]
    with pytest.raises(CorruptObject, match=f"expected a record of form '{name}'"):
        form.decode(other.encode(make_other()), "here")


@every_form
def test_a_person_can_look_at_every_form(name: str) -> None:
    registry = FormRegistry()
    registry.register(*ALL_FORMS)
    shown = registry.decode_any(golden_bytes(f"{name}-1"), "golden")
    assert shown[:2] == (name, 1)
    assert msgspec.json.decode(msgspec.json.encode(shown[2])) == shown[2]


def shown(name: str) -> object:
    form, make = CASES[name]
    return shown_rows(form.expand(form.decode_fields(form.encode(make()), "here")))


def test_segments_are_shown_as_people_write_them() -> None:
    epoch = shown("epoch-record")
    assert isinstance(epoch, dict)
    assert [each["id"] for each in epoch["segments"]] == ["0@0", "2@3", "3@3"]
    assert epoch["segments"][1] == {
        "id": "2@3",
        "creation_time_ms": 1_760_003_600_007,
        "key_start": 0.7,
        "key_end": 1.0,
    }
    cut = shown("stream-cut")
    assert isinstance(cut, dict)
    assert cut["cut"] == {"0@0": 2**40, "2@3": -1, "3@3": 17}
    assert shown("sealed-sizes") == {"0@0": 0, "1@0": 2**62, "2147483647@999": 17}


def test_a_chunk_is_shown_epoch_by_epoch() -> None:
    deltas = shown("history-chunk")
    assert isinstance(deltas, list)
    assert [each["epoch"] for each in deltas] == [40, 41, 42]
    assert [[segment["id"] for segment in each["sealed"]] for each in deltas] == [["9@2"], [], ["10@40", "11@40"]]


def test_a_single_value_is_shown_with_its_name() -> None:
    assert shown("sealed-epoch") == {"epoch": 2**31 - 1}
    assert shown("stream-state") == {"state": "COMMITTING_TXN", "workflow_id": str(WORKFLOW)}
