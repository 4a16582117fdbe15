"""What docs/reference/events.md says of the bytes of events is what the code has."""

from __future__ import annotations

import re
import struct
from uuid import UUID

import pytest

from accel.history.rules.configuration import OffsetUnit
from accel.streams.groups import READER_GROUP
from accel.streams.rules.events import HEADER, MAGIC, WriterRun, decode_events, encode_events, run_of
from loaders.errors import CorruptObject
from loaders.format import RecordBatch
from loaders.layout import merging_key, number_table_key, time_part_key, transaction_key
from tests.docs.pages import code, dumps, fields, section
from tests.docs.test_history_bytes import tables

HEADING = "Events"
TEXT = section(HEADING)
PAYLOADS = [b"paid", b"", b"shipped"]
ARRIVED = 1_760_000_000_123


RUN = WriterRun(UUID("00112233-4455-6677-8899-aabbccddeeff").bytes, 40, 44, 38)


def dump() -> bytes:
    """The example."""
    return dumps(HEADING)[0]


def numbered_dump() -> bytes:
    """The example of events with numbers."""
    return dumps(HEADING)[1]


def test_the_example_is_what_comes_of_the_events_that_the_page_names() -> None:
    assert str(ARRIVED) in TEXT
    assert encode_events(PAYLOADS, ARRIVED) == dump()
    assert str(UUID(bytes=RUN.writer_id)) in TEXT
    assert encode_events(PAYLOADS, ARRIVED, RUN) == numbered_dump()


def test_events_with_numbers_are_the_same_events() -> None:
    batches = [RecordBatch(7, 1, 100, 3, data) for data in (dump(), numbered_dump())]
    plain, numbered = (decode_events(batch, segment_id=3, unit=OffsetUnit.RECORDS) for batch in batches)
    assert [list(plain[0]), plain[1]] == [list(numbered[0]), numbered[1]]
    assert [run_of(batch) for batch in batches] == [None, (RUN, ARRIVED)]
    assert run_of(RecordBatch(7, 1, 100, 3, b"AEv")) is None


@pytest.mark.parametrize(("unit", "ends"), [(OffsetUnit.RECORDS, [101, 102, 103]), (OffsetUnit.BYTES, [108, 112, 123])])
def test_the_example_takes_the_offsets_that_the_page_says(unit: OffsetUnit, ends: list[int]) -> None:
    batch = RecordBatch(7, 1, 100, ends[-1] - 100, dump())
    found, is_logged = decode_events(batch, segment_id=3, unit=unit)
    assert is_logged
    assert [(each.payload, each.next_offset, each.value) for each in found] == [
        (payload, end, ARRIVED) for payload, end in zip(PAYLOADS, ends, strict=True)
    ]


def test_fields_stand_where_the_page_says() -> None:
    rows = {row[2]: row for row in fields(TEXT)}
    places = [(rows[name][0], rows[name][1]) for name in WriterRun._fields[1:]]
    assert [(rows["writer"][0], rows["writer"][1]), *places] == [("20", "16"), ("36", "8"), ("44", "8"), ("52", "8")]
    assert HEADER.size == int(rows["lengths"][0])
    assert struct.unpack_from(">I", dump(), int(rows["count"][0])) == (len(PAYLOADS),)
    assert struct.unpack_from(">Q", dump(), int(rows["value"][0])) == (ARRIVED,)
    assert rows["magic"][3] == MAGIC.decode()


def test_data_of_other_producers_is_one_event_as_the_page_says() -> None:
    found, is_logged = decode_events(RecordBatch(7, 1, 100, 5, b"AEv"), segment_id=3, unit=OffsetUnit.RECORDS)
    assert not is_logged
    assert [(each.offset, each.next_offset, each.value, each.payload) for each in found] == [(100, 105, 0, b"AEv")]


@pytest.mark.parametrize(
    "damaged",
    [
        dump()[:4] + b"\x03" + dump()[5:],
        dump()[:19],
        dump()[:16] + bytes(4) + dump()[20:],
        dump()[:16] + b"\x00\x00\x00\x06" + dump()[20:],
        dump()[:-1],
    ],
    ids=["version", "header", "no event", "too many events", "lengths"],
)
def test_what_the_page_says_is_refused(damaged: bytes) -> None:
    with pytest.raises(CorruptObject):
        decode_events(RecordBatch(7, 1, 100, 3, damaged), segment_id=3, unit=OffsetUnit.RECORDS)


@pytest.mark.parametrize(
    "damaged",
    [
        dump()[:4] + b"\x02" + dump()[5:],
        numbered_dump()[:59],
        numbered_dump()[:20] + bytes(16) + numbered_dump()[36:],
        numbered_dump()[:36] + (43).to_bytes(8, "big") + numbered_dump()[44:],
        numbered_dump()[:44] + (2**63 - 1).to_bytes(8, "big") + numbered_dump()[52:],
        numbered_dump()[:52] + (41).to_bytes(8, "big") + numbered_dump()[60:],
        numbered_dump()[:-1],
    ],
    ids=["version", "header", "no writer", "first", "last", "settled", "lengths"],
)
def test_numbers_that_events_cannot_have_are_refused(damaged: bytes) -> None:
    with pytest.raises(CorruptObject):
        decode_events(RecordBatch(7, 1, 100, 3, damaged), segment_id=3, unit=OffsetUnit.RECORDS)


def test_events_that_do_not_end_where_the_batch_ends_are_refused() -> None:
    with pytest.raises(CorruptObject):
        decode_events(RecordBatch(7, 1, 100, 4, dump()), segment_id=3, unit=OffsetUnit.RECORDS)


def test_keys_of_readers_and_writers_stand_in_the_tables() -> None:
    keys = set(re.findall(r"^- `([^`]+)`: ", section("Keys of the catalog"), re.MULTILINE))
    stream, transaction = UUID(int=7), UUID(int=9)
    shown = {
        number_table_key(7, 9): ("<stream id>", "7", "<end offset>", f"{9:020}"),
        time_part_key(7, 0): ("<stream id>", "7", "<first record>", f"{0:020}"),
        transaction_key(stream, transaction): (
            "<stream's unique id>",
            str(stream),
            "<transaction id>",
            str(transaction),
        ),
        merging_key(4, 2, 3): ("<node>", "4", "<epoch>-<number>", f"{2:020}-3"),
    }
    for key, (one, first, other, second) in shown.items():
        assert key in {each.replace(one, first).replace(other, second) for each in keys}
    assert code(tables()["<scope>/<stream>/readerGroups.#.<stream id>"]) == [READER_GROUP.name]
