"""Decoders of objects: footer, tail, index, blocks, records, composites, events, transactions, time indexes, filters.

A block is read by the row of the index that names it, and a committed tail by its checksum: such an input begins with
what is needed besides the bytes, as each seed's builder says.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from accel.errors import AccelError
from accel.history.rules.configuration import OffsetUnit
from accel.streams.rules.events import (
    EventBatch,
    EventColumns,
    WriterRun,
    decode_columns,
    decode_events,
    encode_events,
    run_of,
)
from accel.streams.rules.transaction_data import TransactionEvents, decode_transaction, encode_transaction
from bloom import StreamFilter
from loaders.format import (
    BatchColumns,
    BlockIndex,
    BlockRow,
    CompositeObject,
    Footer,
    LinkedObject,
    MissingBytes,
    RecordBatch,
    check_tail,
    decode_block_bytes,
    decode_block_columns,
    decode_block_index,
    decode_composite,
    decode_footer,
    encode_block,
    open_tail,
    tail_checksum,
)
from range_index.segment_times import TimeRecords
from tests.builders import encode_composite, write_set_object
from tests.fuzzing.judging import Decoder, of

OBJECTS = Path(__file__).parents[1] / "data" / "stream_set_objects"
KEY = "an object"
OURS = (AccelError,)

_ROW = struct.Struct(">qqiiqi")
_CHECKSUM = struct.Struct(">I")
_BASE = struct.Struct(">qi")


@cache
def production() -> tuple[bytes, ...]:
    """The two smallest objects that a production writer wrote."""
    paths = sorted(OBJECTS.glob("*.bin"), key=lambda path: (path.stat().st_size, path.name))
    return tuple(path.read_bytes() for path in paths[:2])


@cache
def own() -> bytes:
    """An object of three streams, one of them with a hole."""
    return write_set_object([(7, 0, 9), (233, 100, 164), (420_000, 5, 50)], gaps={233: (120, 130)})


def _wholes() -> Mapping[str, bytes]:
    return {"own": own(), **{f"production-{at}": data for at, data in enumerate(production())}}


def _read_tail(data: bytes) -> BlockIndex | MissingBytes:
    return open_tail(data, object_size_bytes=len(data), key=KEY)


def _write_tail(value: BlockIndex | MissingBytes) -> bytes:
    if isinstance(value, MissingBytes):
        raise TypeError("expected an index: the tail was the whole object")
    blocks = sum(row.size_bytes for row in value)
    end = max([blocks, *(row.position + row.size_bytes for row in value)])
    return bytes(end) + value.data + Footer(end, len(value.data)).encode()


def _read_cut_tail(data: bytes) -> object:
    """The first 8 bytes say how much of the object was not read."""
    if len(data) < 8:
        raise AccelError("expected 8 bytes")
    missing = int.from_bytes(data[:8], "big", signed=True)
    return open_tail(data[8:], object_size_bytes=missing + len(data) - 8, key=KEY)


def _cut_tails() -> Mapping[str, bytes]:
    found = {}
    for name, data in _wholes().items():
        for size in {48, min(120, len(data))}:
            found[f"{name}-{size}"] = (len(data) - size).to_bytes(8, "big") + data[-size:]
    return found


def _read_footer(data: bytes) -> Footer:
    return decode_footer(data, object_size_bytes=len(data), key=KEY)


def _write_footer(footer: Footer) -> bytes:
    return bytes(footer.index_end) + footer.encode()


def _footers() -> Mapping[str, bytes]:
    small = {"empty": Footer(0, 0).encode(), "one": bytes(10 + 36) + Footer(10, 36).encode()}
    return {**small, "composite": bytes(41) + Footer(5, 36, composite=True).encode()}


def _read_committed(data: bytes) -> object:
    """A checksum as a list keeps it, then the whole object: what a reader of a committed object checks."""
    if len(data) < _CHECKSUM.size:
        raise AccelError("expected a checksum")
    whole = data[_CHECKSUM.size :]
    found = _read_tail(whole)
    if isinstance(found, MissingBytes):
        raise TypeError("the tail is the whole object")
    checksum = tail_checksum(whole, object_size_bytes=len(whole), index_size_bytes=found.nbytes)
    check_tail(int.from_bytes(data[: _CHECKSUM.size], "big"), checksum, object_size_bytes=len(whole), key=KEY)
    return found


def _committed() -> Mapping[str, bytes]:
    found = {}
    for name, data in _wholes().items():
        footer = _read_footer(data)
        size = footer.index_size_bytes
        checksum = tail_checksum(data, object_size_bytes=len(data), index_size_bytes=size)
        found[name] = _CHECKSUM.pack(checksum) + data
    return found


def _indexes() -> Mapping[str, bytes]:
    found = {}
    for name, data in _wholes().items():
        footer = _read_footer(data)
        found[name] = data[footer.index_position : footer.index_end]
    return found


def _read_index(data: bytes) -> tuple[object, ...]:
    index = decode_block_index(data, data_size_bytes=None, key=KEY, object_size_bytes=len(data))
    ranges = index.object_ranges()
    return (index, ranges, list(index) if len(index) < 100 else ())


def _blocks() -> Mapping[str, bytes]:
    found = {}
    for name, data in _wholes().items():
        index = _read_tail(data)
        assert isinstance(index, BlockIndex)
        for row in list(index)[:1]:
            found[name] = row.encode() + data[row.position : row.position + row.size_bytes]
    return found


def _row_and_block(data: bytes) -> tuple[BlockRow, bytes]:
    """The row of the index, then the bytes that it names; the index has checked the row."""
    if len(data) < _ROW.size:
        raise AccelError("expected a row")
    decode_block_index(data[: _ROW.size], data_size_bytes=None, key=KEY, object_size_bytes=len(data))
    return BlockIndex(data[: _ROW.size]).row(0), data[_ROW.size :]


def _read_block(data: bytes) -> list[RecordBatch]:
    row, block = _row_and_block(data)
    return decode_block_bytes(block, row, key=KEY, object_size_bytes=len(data))


def _read_block_columns(data: bytes) -> BatchColumns:
    row, block = _row_and_block(data)
    return decode_block_columns(block, [row], key=KEY, object_size_bytes=len(data))


def _write_block(found: list[RecordBatch]) -> bytes:
    block, first, last = encode_block(found), found[0], found[-1]
    row = BlockRow(first.stream_id, first.base_offset, last.end_offset, len(found), 0, len(block))
    return row.encode() + block


def _composites() -> Mapping[str, bytes]:
    rows = [BlockRow(7, 0, 10, 1, 0, 100), BlockRow(7, 10, 30, 2, 100, 200), BlockRow(7, 30, 31, 1, 0, 60)]
    index = BlockIndex(b"".join(row.encode() for row in rows))
    links = (LinkedObject(5, 0, 0), LinkedObject(9, 2, -1))
    return {"two-links": encode_composite(links, index), "one-link": encode_composite(links[:1], index)}


def _read_composite(data: bytes) -> CompositeObject:
    return decode_composite(data, key=KEY)


def _write_composite(found: CompositeObject) -> bytes:
    return encode_composite(found.links, found.index)


PAYLOADS = (b"one", b"", b"three" * 20)
RUN = WriterRun(bytes(range(16)), 5, 9, 3)


def _event_lists() -> Mapping[str, bytes]:
    lists = {"plain": encode_events(PAYLOADS, 1_700_000_000_000), "numbered": encode_events(PAYLOADS, 7, RUN)}
    return {name: _BASE.pack(100, len(PAYLOADS)) + data for name, data in lists.items()} | {
        "none": _BASE.pack(0, 1) + b"x"
    }


def _batch(data: bytes) -> RecordBatch:
    """Base offset and count, then the payload, as the block's decoder gives them."""
    if len(data) < _BASE.size:
        raise AccelError("expected a batch")
    base, count = _BASE.unpack_from(data)
    if base < 0 or not count >= 0 or base + max(1, count) >= 1 << 63:
        raise AccelError("the block's decoder refuses it")
    return RecordBatch(7, 1, base, count, data[_BASE.size :])


def _read_events(data: bytes) -> tuple[EventBatch, bool, object]:
    batch = _batch(data)
    return (*decode_events(batch, 7, OffsetUnit.RECORDS), run_of(batch))


def _read_event_columns(data: bytes) -> EventColumns:
    """Twice the same batch, one behind the other, as a block has them; and both decoders say the same."""
    batch = _batch(data)
    body = encode_block([batch])
    row = BlockRow(7, batch.base_offset, batch.end_offset, 1, 0, len(body))
    columns = decode_block_columns(body, [row], key=KEY, object_size_bytes=len(body))
    found = decode_columns(columns, 7, OffsetUnit.RECORDS)
    alone, _ = decode_events(batch, 7, OffsetUnit.RECORDS)
    if [list(each) for each in found.batches()] != [list(alone)]:
        raise ValueError("columns and batches are read differently")
    return found


def _transactions() -> Mapping[str, bytes]:
    events = TransactionEvents(np.array([0.25, 0.5, 0.0]), PAYLOADS)
    return {"three": encode_transaction(events), "one": encode_transaction(TransactionEvents(np.array([0.5]), [b"x"]))}


def _seal_transaction(data: bytes) -> bytes:
    return data[:12] + _CHECKSUM.pack(zlib.crc32(data[16:])) + data[16:] if len(data) >= 16 else data


def _time_records() -> Mapping[str, bytes]:
    rows = np.array([[10, 5], [11, 5], [400, 1_700_000_000_000]], dtype=">u8")
    return {"three": rows.tobytes(), "none": b""}


def _read_times(data: bytes) -> tuple[object, ...]:
    """Records, and what every token and offset near them answers."""
    records = TimeRecords.decode(data, first_record=3, start_offset=2, value=1)
    return (records, len(records), records.records, records.end_offset)


def _filters() -> Mapping[str, bytes]:
    ids = np.arange(7, 7 + 90 * 13, 13, dtype=np.int64)
    return {"ninety": StreamFilter.build(ids).to_bytes(), "one": StreamFilter.build(ids[:1], 3).to_bytes()}


def _read_filter(data: bytes) -> tuple[StreamFilter, bool]:
    found = StreamFilter.from_bytes(data)
    return found, 7 in found


def _decoder(name: str, function: Callable[..., object] | None, read: Any, seeds: Any, **more: Any) -> Decoder:
    """One that is registered for a function, whose errors are ours unless it says others."""
    return Decoder(name, () if function is None else (of(function),), read, seeds, more.pop("errors", OURS), **more)


def decoders() -> list[Decoder]:
    """All of them."""
    transaction = {"write": encode_transaction, "seal": _seal_transaction, "is_checked": True}
    values = {"errors": (ValueError,)}
    return [
        _decoder("footer", decode_footer, _read_footer, _footers, write=_write_footer),
        _decoder("tail", open_tail, _read_tail, _wholes, write=_write_tail),
        _decoder("cut-tail", None, _read_cut_tail, _cut_tails),
        _decoder("committed-tail", None, _read_committed, _committed),
        _decoder("index", decode_block_index, _read_index, _indexes, write=lambda value: value[0].data),
        _decoder("block", decode_block_bytes, _read_block, _blocks, write=_write_block),
        _decoder("block-columns", decode_block_columns, _read_block_columns, _blocks),
        _decoder("composite", decode_composite, _read_composite, _composites, write=_write_composite),
        _decoder("events", decode_events, _read_events, _event_lists),
        _decoder("event-columns", decode_columns, _read_event_columns, _event_lists),
        _decoder(
            "transaction", decode_transaction, lambda data: decode_transaction(data, KEY), _transactions, **transaction
        ),
        _decoder(
            "time-records",
            TimeRecords.decode,
            _read_times,
            _time_records,
            write=lambda each: each[0].encode(),
            **values,
        ),
        _decoder(
            "filter", StreamFilter.from_bytes, _read_filter, _filters, write=lambda each: each[0].to_bytes(), **values
        ),
    ]
