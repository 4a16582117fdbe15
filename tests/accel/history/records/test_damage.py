"""Fields that contradict each other are refused before anything is computed or allocated of them."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import numpy as np
import pytest

from accel.history.columns import (
    CREATED_ROW,
    EPOCH_ROW,
    KEY,
    MAP_ROW,
    ROW,
    SEALED_ROW,
    StoredSegments,
    make_rows,
    pack_map,
)
from accel.history.records import TIME, HistoryForm
from accel.history.rules.values import IdMap
from loaders.errors import CorruptObject
from loaders.tables.columns import pack_columns, unpack_columns
from tests.accel.history.records.golden import CASES, SEGMENTS

HUGE = 2**62


def fields_of(name: str) -> Any:
    form, make = CASES[name]
    return form.decode_fields(form.encode(make()), "here")


def refused(name: str, fields: msgspec.Struct) -> str:
    """What a reader says of these fields, with a right checksum around them."""
    form: HistoryForm[Any] = CASES[name][0]
    with pytest.raises(CorruptObject, match="table 'x', key 'y'") as caught:
        form.decode(form.encode_fields(fields), "table 'x', key 'y'")
    return str(caught.value)


def changed(packed: bytes, dtype: np.dtype[np.void], **columns: Any) -> bytes:
    """Packed columns with some of them replaced."""
    rows = unpack_columns(packed, dtype, "here")
    for name, values in columns.items():
        rows[name] = values
    return pack_columns(rows)


@pytest.mark.parametrize(
    ("field", "dtype", "columns", "complaint"),
    [
        ("epochs", EPOCH_ROW, {"created": [HUGE, 0, 1]}, "segments created of 0 to 3"),
        ("epochs", EPOCH_ROW, {"created": [2, 1, 1]}, "expected 3 segments created, found counts of 4"),
        ("epochs", EPOCH_ROW, {"created": [2, 1, 0]}, "expected segments sealed and created"),
        ("epochs", EPOCH_ROW, {"sealed": [-1, 2, 2]}, "segments sealed of 0 to 3"),
        ("epochs", EPOCH_ROW, {"sealed": [0, 0, 3]}, "that the chunk created|expected segments sealed and created"),
        ("epochs", EPOCH_ROW, {"reference_back": [41, 0, 0]}, "references"),
        ("epochs", EPOCH_ROW, {"time_ms": [5, 5, 6]}, "found"),
        ("created", CREATED_ROW, {"start": [0, 1, 3]}, "positions of keys of 0 to 2"),
        ("created", CREATED_ROW, {"start": [0, 1, HUGE]}, "positions of keys of 0 to 2"),
        ("created", CREATED_ROW, {"span": [1, 1, HUGE]}, "positions of keys of 0 to 2"),
        ("created", CREATED_ROW, {"span": [1, 0, 2]}, "expected segments, found"),
        ("created", CREATED_ROW, {"number": [10, 2**31, 12]}, "segment numbers of 0 to 2147483647"),
        ("created", CREATED_ROW, {"lead_ms": [HUGE, 0, 0]}, "expected segments, found"),
        ("created", CREATED_ROW, {"number": [11, 10, 12]}, "expected ascending ids within an epoch"),
        ("sealed", SEALED_ROW, {"back": [1, 2, 1]}, "expected sealed segments that the chunk created before"),
        ("sealed", SEALED_ROW, {"back": [0, 3, 1]}, "expected sealed segments that the chunk created before"),
        ("sealed", SEALED_ROW, {"back": [0, -1, 1]}, "expected sealed segments that the chunk created before"),
        ("sealed", SEALED_ROW, {"back": [0, 0, 1]}, "expected 2 segments from before the chunk, found 1"),
        ("sealed", SEALED_ROW, {"back": [0, 1, 2]}, "expected ascending ids within an epoch"),
        ("older", ROW, {"creation_epoch": HUGE}, "epochs of 0 to 2147483647"),
        ("older", ROW, {"creation_epoch": 40}, "seal segments of earlier epochs"),
        ("older", ROW, {"start": -1}, "positions of keys of 0 to 2"),
        ("keys", KEY, {"key": -1}, "expected segments, found"),
    ],
)
def test_a_chunk_that_contradicts_itself_is_refused(
    field: str, dtype: np.dtype[np.void], columns: dict[str, Any], complaint: str
) -> None:
    fields = fields_of("history-chunk")
    wrong = msgspec.structs.replace(fields, **{field: changed(getattr(fields, field), dtype, **columns)})
    message = refused("history-chunk", wrong)
    assert any(each in message for each in complaint.split("|")), message


@pytest.mark.parametrize("first_epoch", [-1, 2**31 - 2, HUGE])
def test_a_chunk_of_epochs_that_cannot_be_is_refused(first_epoch: int) -> None:
    fields = fields_of("history-chunk")
    assert "expected an epoch of 0 to" in refused(
        "history-chunk", msgspec.structs.replace(fields, first_epoch=first_epoch)
    )


def test_a_chunk_without_epochs_is_refused() -> None:
    fields = fields_of("history-chunk")
    nothing = {name: pack_columns(np.empty(0, dtype)) for name, dtype in (
        ("epochs", EPOCH_ROW), ("created", CREATED_ROW), ("sealed", SEALED_ROW), ("older", ROW), ("keys", KEY),
    )}  # fmt: skip
    refused("history-chunk", msgspec.structs.replace(fields, **nothing))


def test_a_count_that_lies_allocates_nothing() -> None:
    fields = fields_of("history-chunk")
    epochs = changed(fields.epochs, EPOCH_ROW, created=[HUGE, HUGE, HUGE], sealed=[HUGE, HUGE, HUGE])
    tracemalloc.start()
    refused("history-chunk", msgspec.structs.replace(fields, epochs=epochs))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000


def packed_times(*times: int) -> bytes:
    return pack_columns(make_rows(TIME, time_ms=times))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"block": ("twig", 6, 5)}, "Invalid enum value 'twig'"),
        ({"block": ("leaf", -1, 5)}, "numbered from 0 on"),
        ({"block": ("leaf", 6, 0)}, "expected a block of 1 or more"),
        ({"block": ("leaf", 6, HUGE)}, f"expected {HUGE} times in Block"),
        ({"block": ("leaf", 6, 4)}, "expected 4 times in Block"),
        ({"times": packed_times(1, 2, 3, 3, 4)}, "found 3 after 3"),
        ({"times": b""}, "packed columns"),
    ],
)
def test_a_block_that_contradicts_itself_is_refused(change: dict[str, Any], complaint: str) -> None:
    assert complaint in refused("epoch-times-block", msgspec.structs.replace(fields_of("epoch-times-block"), **change))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"visible_epochs": 9}, "expected 1 to 8 visible epochs, found 9"),
        ({"part_epochs": 0}, "expected"),
        ({"leaf_parts": 1}, "leaves of 2 or more parts"),
        ({"part_epochs": HUGE}, "leaves of at most 1048576 epochs"),
        ({"leaf_parts": HUGE}, "leaves of at most 1048576 epochs"),
        ({"tail": packed_times()}, "expected 1 to 2 times in the tail, found 0"),
        ({"tail": packed_times(HUGE, HUGE + 1, HUGE + 2)}, "1 to 2 times in the tail, found 3"),
        ({"part_starts": packed_times(HUGE)}, "expected ascending times"),
        ({"leaf_starts": packed_times(HUGE)}, "expected ascending times"),
    ],
)
def test_a_root_that_contradicts_itself_is_refused(change: dict[str, Any], complaint: str) -> None:
    assert complaint in refused("epoch-times", msgspec.structs.replace(fields_of("epoch-times"), **change))


@pytest.mark.parametrize(
    ("name", "change", "complaint"),
    [
        ("epoch-record", {"epoch": 2}, "expected a reference of 0 to 2, found 3"),
        ("epoch-record", {"splits": -2}, "splits of at least -1"),
        ("epoch-record", {"segments": StoredSegments(b"", b"")}, "packed columns"),
        ("epoch-transition", {"first_number": -1}, "segment number"),
        ("sealed-epoch", {"epoch": 2**31}, "sealed-epoch of 0 to 2147483647"),
        ("truncation", {"updating": False}, "expected nothing to delete"),
        ("truncation", {"cut": b""}, "expected the span of"),
        ("truncation", {"last_cut": pack_map(IdMap([1], [2]))}, "expected the span of"),
        ("stream-cut", {"recorded_size": -1}, "recorded_size of at least 0"),
        ("active-transaction", {"status": "LOST"}, "expected one of UNKNOWN, OPEN"),
        ("active-transaction", {"commit_position": None}, "expected a position"),
        ("completed-transaction", {"status": "OPEN"}, "expected COMMITTED or ABORTED"),
        ("committing-transactions", {"transaction_ids": [bytes(17)]}, "Invalid UUID bytes"),
        ("committing-transactions", {"transaction_ids": [bytes(16)] * 2}, "expected each transaction once"),
        ("commit-order", {"transaction_ids": [bytes(16)]}, "a transaction for each position"),
        ("commit-order", {"next_position": 13}, "ascending positions below 13"),
        ("stream-state", {"state": "Active"}, "expected one of UNKNOWN, CREATING"),
        ("stream-state", {"state": "ACTIVE"}, "expected a state of a workflow, found ACTIVE"),
        ("stream-state", {"workflow_id": bytes(15)}, "Invalid UUID bytes"),
        ("workflow-request", {"workflow": "ACTIVE"}, "expected a state of a workflow, found ACTIVE"),
        ("workflow-request", {"workflow": "SCALING"}, "epoch-transition"),
        ("workflow-request", {"base": b""}, "expected a claim on a version of the status"),
        ("workflow-request", {"workflow_id": b""}, "Invalid UUID bytes"),
        ("creation-time", {"time_ms": -1}, "creation-time of 0 to"),
        ("scope-entry", {"unique_id": bytes(15)}, "Invalid UUID bytes"),
        ("scope-entry", {"phase": "GONE"}, "expected one of CREATING, LIVE"),
        ("stream-entry", {"unique_id": bytes(17)}, "Invalid UUID bytes"),
        ("stream-entry", {"segments": 0}, "a number of segments of 1 to"),
        ("stream-entry", {"last_number": 19}, "the highest number of a segment of 20 to"),
        ("last-number", {"number": 2**31}, "last-number of 0 to 2147483647"),
    ],
)
def test_fields_out_of_bounds_are_refused(name: str, change: dict[str, Any], complaint: str) -> None:
    assert complaint in refused(name, msgspec.structs.replace(fields_of(name), **change))


@pytest.mark.parametrize(
    ("name", "nested", "change", "complaint"),
    [
        ("truncation", "span", {"epochs": pack_map(IdMap([1], [2]))}, "expected an epoch for each of"),
        ("truncation", "span", {"epochs": pack_map(IdMap(SEGMENTS.ids, [0, 0, 0]))}, "expected epochs from"),
        ("configuration", "configuration", {"min_segments": 0}, "a least number of segments of 1 to 750000"),
        ("configuration", "configuration", {"tags": ["b", "a"]}, "expected tags in order"),
        ("stream-entry", "wanted", {"offset_unit": "EVENTS"}, "expected one of RECORDS, BYTES"),
    ],
)
def test_fields_of_fields_out_of_bounds_are_refused(
    name: str, nested: str, change: dict[str, Any], complaint: str
) -> None:
    fields = fields_of(name)
    inner = msgspec.structs.replace(getattr(fields, nested), **change)
    assert complaint in refused(name, msgspec.structs.replace(fields, **{nested: inner}))


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"number": [0, -1, 5]}, "segment numbers of 0 to"),
        ({"creation_epoch": [0, 2**31, 2**31]}, "epochs of 0 to"),
        ({"creation_epoch": 0, "number": [1, 1, 2]}, "expected ascending ids, each once"),
        ({"creation_epoch": 0, "number": [2, 1, 3]}, "expected ascending ids, each once"),
    ],
)
def test_a_map_with_wrong_ids_is_refused(columns: dict[str, Any], complaint: str) -> None:
    fields = fields_of("sealed-sizes")
    wrong = msgspec.structs.replace(fields, sizes=changed(fields.sizes, MAP_ROW, **columns))
    assert complaint in refused("sealed-sizes", wrong)


@pytest.mark.parametrize(("name", "value"), [("sealed-epoch", 2**31), ("last-number", -1), ("id-counter", 2**63)])
def test_what_could_not_be_read_is_not_written(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"expected {name} of 0 to"):
        CASES[name][0].encode(value)
