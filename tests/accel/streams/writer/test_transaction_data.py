"""The bytes of a transaction: what was written is read, and damage is refused."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.streams.rules.transaction_data import HEADER, TransactionEvents, decode_transaction, encode_transaction
from accel.streams.uploads import MERGE_INTENT, MergeIntent
from loaders.errors import CorruptObject

EVENTS = st.lists(st.tuples(st.floats(0.0, 1.0, exclude_max=True), st.binary(max_size=30)), min_size=1, max_size=20)


def events(pairs: list[tuple[float, bytes]]) -> TransactionEvents:
    positions, payloads = zip(*pairs, strict=True)
    return TransactionEvents(np.array(positions, dtype=np.float64), payloads)


@given(EVENTS)
def test_events_come_back(pairs: list[tuple[float, bytes]]) -> None:
    data = encode_transaction(events(pairs))
    assert len(data) == events(pairs).size_bytes
    found = decode_transaction(data, "key")
    assert list(zip(found.positions.tolist(), found.payloads, strict=True)) == pairs


@given(EVENTS, st.data())
def test_every_changed_byte_is_found(pairs: list[tuple[float, bytes]], draw: st.DataObject) -> None:
    data = bytearray(encode_transaction(events(pairs)))
    places = [at for at in range(len(data)) if at not in (5, 6, 7)]
    data[draw.draw(st.sampled_from(places))] ^= draw.draw(st.integers(1, 255))
    with pytest.raises(CorruptObject):
        decode_transaction(bytes(data), "key")


@given(EVENTS, st.data())
def test_a_part_of_the_bytes_is_refused(pairs: list[tuple[float, bytes]], draw: st.DataObject) -> None:
    data = encode_transaction(events(pairs))
    with pytest.raises(CorruptObject):
        decode_transaction(data[: draw.draw(st.integers(0, len(data) - 1))], "key")


def test_a_count_is_not_believed() -> None:
    data = HEADER.pack(b"ATxn", 1, 2**32 - 1, 0) + bytes(24)
    with pytest.raises(CorruptObject, match="1 to 2 events"):
        decode_transaction(data, "key")


def test_no_event_is_no_transaction() -> None:
    with pytest.raises(ValueError, match="expected events"):
        encode_transaction(TransactionEvents(np.empty(0), []))


@pytest.mark.parametrize("field", ["node_id", "epoch", "number", "stream_id", "start", "end"])
def test_an_intent_to_merge_has_no_negative_number(field: str) -> None:
    intent = MergeIntent(4, 2, 3, 7, 0, 9, ())
    assert MERGE_INTENT.decode(MERGE_INTENT.encode(intent), "an intent") == intent
    with pytest.raises(CorruptObject, match="an intent"):
        MERGE_INTENT.decode(MERGE_INTENT.encode(msgspec.structs.replace(intent, **{field: -1})), "an intent")
