"""Parts that contradict the format, their listing or their neighbours are refused, and none is trusted."""

from __future__ import annotations

import pytest

from accel.streams.time_index import part_cache
from loaders.errors import CorruptObject
from loaders.layout import time_part_key
from loaders.store import MemoryStore
from range_index.segment_times import RECORD_SIZE_BYTES
from tests.accel.streams.times.indexes import STREAM_ID, everything, filled, open_index

TENS = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]


@pytest.mark.parametrize(
    ("kept", "added", "text"),
    [
        (slice(0, -1), 0, "47 bytes"),
        (slice(0, 0), 0, "0 bytes"),
        (slice(16, None), 0, "a part from record 2 on"),
        (slice(0, None), 16, "a part from record 4 on"),
    ],
)
def test_a_listing_with_holes_overlaps_or_pieces_of_records_is_refused(kept: slice, added: int, text: str) -> None:
    store = MemoryStore()
    filled(store, TENS, moved_records_max=3).move(90)
    key = time_part_key(STREAM_ID, 0)
    store.put(key, store.get(key).body[kept] + bytes(added))
    with pytest.raises(CorruptObject, match=text):
        open_index(store)


@pytest.mark.parametrize("at", [0, 16, 32])
def test_a_part_whose_records_do_not_ascend_is_refused_when_it_is_read(at: int) -> None:
    store = MemoryStore()
    filled(store, TENS, moved_records_max=3).move(90)
    key = time_part_key(STREAM_ID, 3)
    body = store.get(key).body
    store.put(key, body[:at] + bytes(8) + body[at + 8 :])
    index = open_index(store)
    with pytest.raises(CorruptObject, match="00003"):
        everything(index)


def with_end(store: MemoryStore, first_record: int, record: int, end: int) -> None:
    """Damage a part: one of its records ends elsewhere."""
    key = time_part_key(STREAM_ID, first_record)
    body, at = store.get(key).body, (record - first_record) * RECORD_SIZE_BYTES
    store.put(key, body[:at] + end.to_bytes(8, "big") + body[at + 8 :])


@pytest.mark.parametrize("end", [0, 5, 8])
def test_a_last_part_that_ends_before_it_can_is_refused_at_once(end: int) -> None:
    store = MemoryStore()
    filled(store, TENS, moved_records_max=3).move(90)
    with_end(store, 6, 8, end)
    with pytest.raises(CorruptObject, match="00006"):
        open_index(store)


@pytest.mark.parametrize(
    ("part", "record", "end", "read_first"),
    [
        (3, 3, 5, 0),  # begins before part 0 ends
        (3, 3, 30, 0),
        (3, 5, 75, 89),  # ends after part 6 begins
        (3, 5, 70, 89),
        (6, 6, 55, 0),
        (6, 8, 95, 0),  # ends elsewhere than it did
    ],
)
def test_a_part_that_does_not_fit_its_neighbours_is_refused(part: int, record: int, end: int, read_first: int) -> None:
    store = MemoryStore()
    filled(store, TENS, moved_records_max=3).move(90)
    index = open_index(store)
    index.read(read_first, 1)
    with_end(store, part, record, end)
    index._parts._cache = part_cache(0)
    with pytest.raises(CorruptObject, match=f"0000{part}"):
        everything(index)


def test_a_part_that_is_not_as_long_as_it_was_listed_is_refused() -> None:
    store = MemoryStore()
    filled(store, TENS, moved_records_max=3).move(90)
    index = open_index(store)
    key = time_part_key(STREAM_ID, 3)
    store.put(key, store.get(key).body[:32])
    with pytest.raises(CorruptObject, match="expected 3 records"):
        everything(index)
