"""Decoders of what tables and hints hold: envelopes, records of every form, packed columns, packs, snapshots, groups.

Threads: none is shared.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import zstandard

from accel.catalog import records
from accel.catalog.job_runs import JOB_RUNS_FORM
from accel.errors import AccelError
from accel.history import records as codecs
from accel.history.columns import unpack_keys, unpack_map, unpack_set
from accel.streams.groups import READER_GROUP
from accel.streams.shared.forwarding import AppendReply, AppendRequest, CarryOutRequest, Status
from accel.streams.shared.owners import OWNER, Owner
from accel.streams.uploads import MERGE_INTENT, MergeIntent
from accel.streams.writer_numbers import NUMBER_TABLE, Held, NumberTable
from loaders.errors import FormatTooNew
from loaders.hints import HintProblem, decode_pack_root, decode_snapshot_root
from loaders.hints.packs import PACK_ROOT_FORM, decode_pack_span, plan_pack_reads
from loaders.hints.roots import HintTrouble, open_root, seal_root
from loaders.hints.snapshots import SNAPSHOT_ROOT_FORM, decode_entries, plan_entries
from loaders.hints.sorted_entries import decode_group, encode_group
from loaders.tables import FORMAT_FORM, FormatRecord, FormRegistry, RecordForm
from loaders.tables.columns import MAGIC, pack_columns, unpack_any, unpack_arrays, unpack_columns
from loaders.tables.conditional_write import Stored, decode_stored, encode_stored
from loaders.versions import Version
from tests.fuzzing.judging import Decoder, of
from tests.fuzzing.mutations import damaged_columns, damaged_fields
from tests.loaders.hints.builders import NAMESPACE, NODE, columns_of

DATA = Path(__file__).parents[1] / "data"
OURS = (AccelError,)
HINT_ERRORS = (HintProblem,)
PLACE = "owners/stream%2F7"
_NUMBER = struct.Struct(">I")


# -- records -----------------------------------------------------------------------------------------------------------


@cache
def stored_records() -> Mapping[str, Mapping[str, bytes]]:
    """The bytes of a record of each form."""
    folders = (DATA / "tables" / "catalog", DATA / "history")
    found = {
        path.stem.removesuffix("-1"): {"golden": path.read_bytes()} for each in folders for path in each.glob("*-1.bin")
    }
    groups = DATA / "reader_group"
    found["reader-group"] = {path.stem: path.read_bytes() for path in groups.glob("*.bin")}
    found["format"] = {
        "plain": FORMAT_FORM.encode(
            FormatRecord(namespace="shop", generation="0" * 14 + "-" + "a" * 32, catalog_id="0a" * 16)
        )
    }
    found["segment-owner"] = {"plain": OWNER.encode(Owner(4, bytes(16), "http://localhost:1", 1_700_000_000_000))}
    numbers = np.zeros(2, dtype=records.WRITER_NUMBER)
    numbers["stream_id"] = 7
    found["writer-numbers"] = {"two": NUMBER_TABLE.encode(NumberTable(7, 100, numbers))}
    ids = next(
        iter(codecs.COMMITTING_TRANSACTIONS.decode(found["committing-transactions"]["golden"], "").transaction_ids)
    )
    found["merge-intent"] = {"one": MERGE_INTENT.encode(MergeIntent(4, 2, 3, 7, 0, 9, ((ids, ids),)))}
    return found


FORMS: Mapping[str, RecordForm[Any]] = {
    form.name: form
    for form in (
        *records.ALL_FORMS,
        JOB_RUNS_FORM,
        *codecs.ALL_FORMS,
        READER_GROUP,
        FORMAT_FORM,
        OWNER,
        NUMBER_TABLE,
        MERGE_INTENT,
    )
}
"""Every form of a record that is stored by itself; those of hints lie in roots."""


def registry() -> FormRegistry:
    """All of them for people."""
    known = FormRegistry()
    known.register(*FORMS.values())
    return known


def head_size(form: RecordForm[Any]) -> int:
    """Bytes before the fields."""
    return 3 + len(form.name)


def change_record(form: RecordForm[Any], rng: Random, data: bytes) -> bytes:
    """The record with other fields."""
    size = head_size(form)
    return data[:size] + damaged_fields(rng, data[size:])


def declared_bytes(data: bytes) -> int:
    """Rows that packed columns anywhere in these bytes declare, times their columns and 8 bytes."""
    total, at = 0, data.find(MAGIC)
    while at >= 0:
        total += _declared_by(data[at:])
        at = data.find(MAGIC, at + 1)
    return total


def _declared_by(packed: bytes) -> int:
    rest = packed[9:]
    if rest[:4] == b"\x50\x2a\x4d\x18":
        rest = rest[8 + int.from_bytes(rest[4:8], "little") :]
    try:
        head = zstandard.ZstdDecompressor().stream_reader(rest).read(5)
    except zstandard.ZstdError:
        return 0
    if len(head) < 5:
        return 0
    rows = int.from_bytes(head[:4], "big")
    return min(rows, 4096 + 8 * len(packed), 1 << 20) * min(head[4], 32) * 8


def _record_decoder(name: str) -> Decoder:
    form = FORMS[name]

    def read(data: bytes) -> object:
        value = form.decode(data, "key")
        REGISTRY.decode_any(data, "key", 3)  # what is read can be shown
        return value

    return Decoder(
        f"record-{name}",
        RECORD_FUNCTIONS,
        read,
        lambda: stored_records()[name],
        OURS,
        write=form.encode,
        change=partial(change_record, form),
        declared_bytes=declared_bytes,
    )


REGISTRY = registry()
RECORD_FUNCTIONS = (
    *map(of, (RecordForm.decode, RecordForm.decode_fields, FormRegistry.decode_any)),
    *map(of, (unpack_keys, unpack_map, unpack_set)),
)


# -- envelopes and columns ---------------------------------------------------------------------------------------------


def _envelopes() -> Mapping[str, bytes]:
    nonce = bytes(range(16))
    version = Version("etag", 3, nonce, final=False, ancestors=b"")
    whole = stored_records()["node-list"]["golden"]
    return {
        "value": encode_stored(Stored(whole, version), PLACE),
        "empty": encode_stored(Stored(b"", Version("etag", 1, nonce, final=True, ancestors=b"")), PLACE),
        "tombstone": encode_stored(Stored(None, version), PLACE),
    }


def _seal_envelope(data: bytes) -> bytes:
    if len(data) < 164:
        return data
    checksum = zlib.crc32(data[164:], zlib.crc32(data[:160], zlib.crc32(PLACE.encode())))
    return data[:160] + _NUMBER.pack(checksum) + data[164:]


ROWS = np.dtype([("stream_id", "<i8"), ("end", "<i8")])


def _columns() -> Mapping[str, bytes]:
    rows = np.zeros(5000, dtype=ROWS)
    rows["stream_id"] = np.arange(5000) * 3
    rows["end"] = 2**62
    return {"many": pack_columns(rows), "few": pack_columns(rows[:3]), "none": pack_columns(rows[:0])}


def _read_columns(data: bytes) -> object:
    found = unpack_columns(data, ROWS, "key")
    arrays = unpack_arrays(data, "key")
    if set(arrays) != set(ROWS.names or ()) or any((found[name] != arrays[name]).any() for name in arrays):
        raise TypeError("rows and arrays are read differently")
    return found


# -- hints -------------------------------------------------------------------------------------------------------------

HINTS = DATA / "hints"


def _hint(name: str) -> bytes:
    return (HINTS / name).read_bytes()


def _seal_root(data: bytes) -> bytes:
    if len(data) < 16:
        return data
    rest = _NUMBER.pack(len(data) - 16) + data[16:]
    return data[:8] + _NUMBER.pack(zlib.crc32(rest, zlib.crc32(data[:8]))) + rest


def _change_root(form: RecordForm[Any], rng: Random, data: bytes) -> bytes:
    return seal_root(change_record(form, rng, data[16:]))


def _root_decoder(name: str, read: Callable[..., Any], form: RecordForm[Any]) -> Decoder:
    return Decoder(
        name,
        (of(read), of(open_root)),
        lambda data: read(data, namespace=NAMESPACE, node_id=NODE),
        lambda: {f"{name}-1": _hint(f"{name}-1.bin")},
        HINT_ERRORS,
        write=lambda root: root.encode(),
        seal=_seal_root,
        change=partial(_change_root, form),
        is_checked=True,
        declared_bytes=declared_bytes,
    )


@cache
def _pack() -> tuple[Any, Any]:
    root = decode_pack_root(_hint("pack-root-1.bin"), namespace=NAMESPACE, node_id=NODE)
    return root, plan_pack_reads(root, root.covered.object_ids, root.covered.sizes)[0]


def _read_span(data: bytes) -> object:
    root, span = _pack()
    found = decode_pack_span(root, span, data)
    if found.bad:
        raise HintProblem(HintTrouble.CORRUPT, span.key, f"{found.bad} filters are left out")
    return found.filters


def _spans() -> Mapping[str, bytes]:
    _, span = _pack()
    return {"whole": _hint("pack-filters-1.bin")[span.start : span.end]}


@cache
def _snapshot() -> tuple[Any, Any]:
    root = decode_snapshot_root(_hint("snapshot-root-1.bin"), namespace=NAMESPACE, node_id=NODE)
    return root, plan_entries(root, 233)


def _read_entries(data: bytes) -> object:
    root, span = _snapshot()
    return decode_entries(root, span, data, 233)


def _entries() -> Mapping[str, bytes]:
    _, span = _snapshot()
    return {"whole": _hint("snapshot-entries-1.bin")[span.start : span.end]}


ENTRIES = [(4, 10 * each, 10 * each + 5, each, each, 0, 100, 5, False) for each in range(20)]


def _read_group(data: bytes) -> object:
    return decode_group(data, len(ENTRIES), "key")


# -- what owners of segments send each other ---------------------------------------------------------------------------

WIRE: Mapping[str, tuple[type[msgspec.Struct], msgspec.Struct]] = {
    "append-request": (
        AppendRequest,
        AppendRequest("shop", "orders", 1 << 32, bytes(16), bytes(16), [3, 4], [0.25, 0.5], 2, [b"one", b"two"]),
    ),
    "carry-out-request": (CarryOutRequest, CarryOutRequest("shop", "orders", bytes(16))),
    "append-reply": (AppendReply, AppendReply(Status.DURABLE, [1, 2], [Held(0.0, 0.5, 4)], 3)),
}


def _wire_decoder(name: str) -> Decoder:
    kind, example = WIRE[name]
    return Decoder(
        name,
        (),
        lambda data: msgspec.msgpack.decode(data, type=kind),
        lambda: {"plain": msgspec.msgpack.encode(example)},
        (msgspec.DecodeError, ValueError, RecursionError),  # each of which the server and the client tell as refusals
        write=msgspec.msgpack.encode,
        change=damaged_fields,
    )


def decoders() -> list[Decoder]:
    """All of them."""
    packed: dict[str, Any] = {"change": damaged_columns, "declared_bytes": declared_bytes}
    columns: dict[str, Any] = {"write": pack_columns, **packed}
    envelope: dict[str, Any] = {"seal": _seal_envelope, "is_checked": True}
    return [
        *map(_record_decoder, sorted(FORMS)),
        Decoder(
            "envelope",
            (of(decode_stored),),
            lambda data: decode_stored(data, PLACE, etag="etag", where="key"),
            _envelopes,
            OURS,
            write=lambda stored: encode_stored(stored, PLACE),
            **envelope,
        ),
        Decoder("columns", (of(unpack_columns), of(unpack_arrays)), _read_columns, _columns, OURS, **columns),
        Decoder("any-columns", (of(unpack_any),), lambda data: unpack_any(data, "key"), _columns, OURS, **columns),
        _root_decoder("pack-root", decode_pack_root, PACK_ROOT_FORM),
        _root_decoder("snapshot-root", decode_snapshot_root, SNAPSHOT_ROOT_FORM),
        Decoder("pack-span", (of(decode_pack_span),), _read_span, _spans, HINT_ERRORS, is_checked=True),
        Decoder("snapshot-entries", (of(decode_entries),), _read_entries, _entries, HINT_ERRORS, is_checked=True),
        Decoder(
            "entry-group",
            (of(decode_group),),
            _read_group,
            lambda: {"twenty": encode_group(columns_of(ENTRIES))},
            (ValueError, FormatTooNew),
            write=encode_group,
            **packed,
        ),
        *map(_wire_decoder, WIRE),
    ]
