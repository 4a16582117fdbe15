"""What docs/reference/events.md says of the bytes of time indexes is what the code has."""

from __future__ import annotations

from accel.streams.time_index import MOVED_RECORDS_MAX, PART_RECORDS_MAX
from loaders.layout import time_part_key
from loaders.store import MemoryStore
from range_index.segment_times import NO_TOKEN, RECORD_SIZE_BYTES
from tests.accel.streams.times.indexes import Source, open_index
from tests.docs.pages import dumps, fields, section

HEADING = "The time index of a segment"
TEXT = section(HEADING)


def test_the_part_in_full_is_what_comes_of_the_appends_that_the_page_names() -> None:
    store, source = MemoryStore(), Source(1_760_000_000_123)
    index = open_index(store, source)
    for length in (10, 248):
        index.append(index.end_offset + length)
    source.time -= 23
    index.append(index.end_offset + 5)
    source.time = 1_760_000_004_096
    index.merge(index.end_offset + 4000)
    index.move(index.end_offset)
    key = time_part_key(7, 0)
    assert f"`{key}`" in TEXT
    assert [store.get(key).body] == dumps(HEADING)
    assert len(dumps(HEADING)[0]) == 4 * RECORD_SIZE_BYTES


def test_the_fields_are_those_of_the_page() -> None:
    rows = fields(TEXT)
    assert [row[:3] for row in rows] == [["0", "8", "end offset"], ["8", "8", "value"]]
    assert sum(int(row[1]) for row in rows) == RECORD_SIZE_BYTES
    assert f"Records are {RECORD_SIZE_BYTES} bytes" in TEXT


def test_keys_and_bounds_are_those_of_the_page() -> None:
    text = " ".join(TEXT.split())
    assert time_part_key(7, 65536) in text
    assert f"up to {MOVED_RECORDS_MAX:,} records" in text
    assert f"more than {PART_RECORDS_MAX:,}" in text
    assert f"{NO_TOKEN} says that there is none" in text
    assert "`CorruptObject`" in text
