"""Whatever lies in a bucket, readers raise errors of ours and no others: a search over every decoder of stored bytes.

Flipped bytes rarely get past a checksum, and never far into a record. So besides bytes, the fields of records and the
rows of packed columns are changed, and sealed again, as somebody does who may write to the bucket.
"""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from accel.catalog import records
from accel.errors import AccelError
from accel.history import records as codecs
from accel.image_source import load_image_file
from accel.streams import groups
from accel.streams.rules.transaction_data import TransactionEvents, decode_transaction, encode_transaction
from accel.streams.uploads import MERGE_INTENT
from loaders.errors import CorruptObject, FormatTooNew
from loaders.format import (
    BlockIndex,
    decode_block_bytes,
    decode_block_index,
    decode_composite,
    decode_footer,
    open_tail,
)
from loaders.hints import HintProblem, decode_pack_root, decode_snapshot_root
from loaders.hints.packs import PACK_ROOT_FORM
from loaders.hints.roots import seal_root
from loaders.hints.snapshots import SNAPSHOT_ROOT_FORM
from loaders.hints.sorted_entries import decode_group, encode_group
from loaders.tables import FORMAT_FORM, FormatRecord, FormRegistry, RecordForm
from tests.accel.catalog.golden import FOLDER as CATALOG
from tests.accel.history.records.golden import FOLDER as HISTORY
from tests.examples import examples
from tests.loaders.hints.builders import columns_of

DATA = Path(__file__).parents[1] / "data"
NUMBERS = st.sampled_from([0, 1, -1, 2, 255, 4096, 2**31, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63), 2**64 - 1])
LEAVES = NUMBERS | st.integers(-(2**63), 2**64 - 1) | st.none() | st.booleans() | st.floats() | st.text(max_size=8)
VALUES = st.recursive(
    LEAVES | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
)


@st.composite
def damages(draw: st.DrawFn, whole: bytes) -> bytes:
    """The bytes with a few of them changed, added or gone."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        kind = draw(st.sampled_from(["flip", "write", "insert", "cut", "end"]))
        if kind == "flip" and at < len(data):
            data[at] ^= draw(st.integers(1, 255))
        elif kind == "write":
            data[at : at + 8] = struct.pack(">q", draw(st.integers(-(2**63), 2**63 - 1)))[-draw(st.integers(1, 8)) :]
        elif kind == "insert":
            data[at:at] = draw(st.binary(max_size=9))
        elif kind == "cut":
            del data[at : at + draw(st.integers(1, 40))]
        else:
            del data[at:]
    return bytes(data)


@st.composite
def changed_columns(draw: st.DrawFn, packed: bytes) -> bytes:
    """Packed columns with other bytes in the frame, whose size is right."""
    raw = draw(damages(zstandard.ZstdDecompressor().decompress(packed[9:], max_output_size=1 << 20)))
    size = draw(st.sampled_from([len(raw), len(raw) + 1, 0, 2**32 - 1])) if draw(st.integers(0, 9)) == 0 else len(raw)
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(raw)
    return struct.pack(">4sBI", b"ACol", 1, size) + frame


@st.composite
def changed_fields(draw: st.DrawFn, fields: dict[str, Any]) -> dict[str, Any]:
    """A map with some of its values replaced, gone or added, or changed within."""
    found = dict(fields)
    for name in draw(st.lists(st.sampled_from(sorted(found)), min_size=1, max_size=3, unique=True)):
        value = found[name]
        if isinstance(value, dict) and value:
            found[name] = draw(changed_fields(value))
        elif isinstance(value, bytes) and value.startswith(b"ACol") and draw(st.integers(0, 3)):
            found[name] = draw(changed_columns(value))
        elif draw(st.integers(0, 9)):
            found[name] = draw(NUMBERS if isinstance(value, int) and draw(st.booleans()) else VALUES)
        else:
            del found[name]
    return found


def resealed(form: RecordForm[Any], fields: bytes, version: int | None = None) -> bytes:
    """A record of these bytes with the head of its form, in its newest version."""
    head = bytes([len(form.name)]) + form.name.encode() + struct.pack(">H", version or form.version)
    return head + fields


def fields_of(form: RecordForm[Any], record: bytes) -> bytes:
    """The bytes of a record behind its head."""
    return record[3 + len(form.name) :]


def registry() -> FormRegistry:
    """Every form that a person can look at."""
    known = FormRegistry()
    known.register(FORMAT_FORM)
    known.register(*records.ALL_FORMS)
    known.register(*codecs.ALL_FORMS)
    known.register(groups.READER_GROUP)
    return known


REGISTRY = registry()
READERS: dict[str, tuple[RecordForm[Any], Callable[[bytes, str], object]]] = {
    **{each.name: (each, each.decode) for each in records.ALL_FORMS},
    **{each.name: (each, each.decode) for each in (*codecs.ALL_FORMS, groups.READER_GROUP)},
    FORMAT_FORM.name: (FORMAT_FORM, FORMAT_FORM.decode),
}
STORED = {
    path.stem.removesuffix("-1"): path.read_bytes() for folder in (CATALOG, HISTORY) for path in folder.glob("*-1.bin")
}
STORED["reader-group"] = (DATA / "reader_group" / "reader-group-1.bin").read_bytes()
STORED["format"] = FORMAT_FORM.encode(FormatRecord(namespace="shop"))


def is_ours(read: Callable[[], object]) -> bool:
    """Whether bytes were read, or refused by a short error of ours; any other error passes through."""
    try:
        read()
    except (AccelError, HintProblem) as error:
        return len(str(error)) < 5000
    return True


def test_every_form_is_searched() -> None:
    assert STORED.keys() == READERS.keys() == set(REGISTRY.names())


@settings(max_examples=examples(300))
@given(st.data())
def test_records_of_the_tables_raise_errors_of_ours_and_no_others(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(READERS)))
    form, decode = READERS[name]
    fields = fields_of(form, STORED[name])
    if data.draw(st.booleans()):
        found = resealed(form, data.draw(damages(fields)))
    else:
        found = resealed(form, msgspec.msgpack.encode(data.draw(changed_fields(msgspec.msgpack.decode(fields)))))
    assert is_ours(lambda: decode(found, "key"))
    assert is_ours(lambda: REGISTRY.decode_any(found, "key", 1))
    assert is_ours(lambda: REGISTRY.decode_any(found, "key"))
    assert is_ours(lambda: REGISTRY.decode_any(data.draw(damages(STORED[name])), "key"))


ROOTS: dict[str, tuple[RecordForm[Any], Callable[..., object]]] = {
    "pack": (PACK_ROOT_FORM, decode_pack_root),
    "snapshot": (SNAPSHOT_ROOT_FORM, decode_snapshot_root),
}


@settings(max_examples=examples(150))
@given(st.data())
def test_roots_of_hints_are_problems_and_nothing_else(data: st.DataObject) -> None:
    kind, version = data.draw(st.sampled_from([("pack", 1), ("snapshot", 1)]))
    form, decode = ROOTS[kind]
    record = (DATA / "hints" / f"{kind}-root-{version}.bin").read_bytes()[16:]
    fields = msgspec.msgpack.decode(fields_of(form, record))
    if data.draw(st.booleans()):
        found = data.draw(damages(record))
    else:
        found = resealed(form, msgspec.msgpack.encode(data.draw(changed_fields(fields))), version)
    assert is_ours(lambda: decode(seal_root(found), namespace=fields["namespace"], node_id=fields["node_id"]))


ROWS = [(4, 10 * each, 10 * each + 5, each, each, 0, 100, 5, False) for each in range(20)]


@settings(max_examples=examples(100))
@given(st.data())
def test_a_group_raises_the_errors_of_its_contract_and_no_others(data: st.DataObject) -> None:
    packed = encode_group(columns_of(ROWS))
    body = data.draw(st.just(packed) | damages(packed) | changed_columns(packed))
    rows = data.draw(st.sampled_from([20, 0, 1, 19]))
    found = rows
    with contextlib.suppress(ValueError, FormatTooNew):
        found = len(decode_group(body, rows, "key"))
    assert found == rows


OBJECTS = sorted((DATA / "stream_set_objects").glob("*.bin"), key=lambda path: path.stat().st_size)[-6:]


@settings(max_examples=examples(150))
@given(st.data())
def test_objects_of_production_are_corrupt_and_nothing_else(data: st.DataObject) -> None:
    whole = data.draw(st.sampled_from(OBJECTS)).read_bytes()
    found = data.draw(damages(whole[-200:]))
    found = whole[:-200] + found
    size = len(found)
    for read in (
        lambda: decode_footer(found, object_size_bytes=size, key="key"),
        lambda: open_tail(found, object_size_bytes=size, key="key"),
        lambda: decode_composite(found, key="key"),
        lambda: decode_block_index(found[: size - size % 36], data_size_bytes=None, key="key", object_size_bytes=size),
        lambda: decode_transaction(found, "key"),
    ):
        assert is_ours(read)


EVENTS = encode_transaction(TransactionEvents(np.array([0.25, 0.5]), [b"one", b"two"]))


@given(damages(EVENTS))
def test_data_of_a_transaction_is_corrupt_and_nothing_else(found: bytes) -> None:
    assert is_ours(lambda: decode_transaction(found, "key"))


IMAGE: dict[str, Any] = {
    "version": 3,
    "namespace": "shop",
    "streams": [
        {
            "stream_id": 1,
            "start_offset": 0,
            "ranges": [{"range_index": 0, "start": 0, "end": 9, "node_id": 4}],
            "stream_objects": [{"object_id": 5, "start": 0, "end": 4, "size": 100}],
        }
    ],
    "nodes": [{"node_id": 4, "stream_set_objects": [{"object_id": 6, "order_id": 1, "index_size": 36}]}],
    "unordered_streams": [1],
}


@st.composite
def changed_images(draw: st.DrawFn) -> str:
    """The text of an image with something wrong in it, at any depth."""
    image = json.loads(json.dumps(IMAGE))
    places = [image, image["streams"][0], image["nodes"][0], image["streams"][0]["ranges"][0]]
    places += [image["streams"][0]["stream_objects"][0], image["nodes"][0]["stream_set_objects"][0]]
    place = draw(st.sampled_from(places))
    place[draw(st.sampled_from([*sorted(place), "more"]))] = draw(
        st.recursive(NUMBERS | st.none() | st.booleans() | st.floats() | st.text(max_size=5), st.lists, max_leaves=5)
    )
    text = json.dumps(image)
    return draw(st.just(text) | damages(text.encode()).map(lambda data: data.decode("latin-1")))


@given(changed_images())
@example('{"streams": [' * 100_000)
@example("[" * 100_000 + "]" * 100_000)
@example('{"streams": ' + "9" * 10_000 + "}")
def test_a_json_image_is_refused_and_nothing_else(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "image.json"
    path.write_bytes(text.encode("latin-1", errors="replace"))
    assert is_ours(lambda: load_image_file(path))


def layout_by(name: str) -> bytes:
    """The record of a layout that is sharded by something that this release does not know."""
    form = codecs.HISTORY_LAYOUT
    fields = msgspec.msgpack.decode(fields_of(form, STORED["history-layout"]))
    return resealed(form, msgspec.msgpack.encode({**fields, "shard_by": name}))


def test_a_record_that_cannot_be_shown_is_corrupt() -> None:
    with pytest.raises(CorruptObject, match=r"'key' .*form 'history-layout' that can be shown.*NO_SUCH_WAY"):
        REGISTRY.decode_any(layout_by("NO_SUCH_WAY"), "key")


def test_what_an_error_shows_of_the_bytes_is_bounded() -> None:
    with pytest.raises(CorruptObject, match=r"XXX\.\.\. \(1000\d+ characters\)") as caught:
        codecs.HISTORY_LAYOUT.decode(layout_by("X" * 1_000_000), "key")
    assert len(str(caught.value)) < 3000


@settings(max_examples=examples(50))
@given(st.data())
def test_an_intent_of_a_merge_is_corrupt_and_nothing_else(data: st.DataObject) -> None:
    fields = {"node_id": 4, "epoch": 2, "stream_id": 7, "start": 0, "end": 9, "transactions": []}
    found = resealed(MERGE_INTENT, msgspec.msgpack.encode(data.draw(changed_fields(fields))))
    assert is_ours(lambda: MERGE_INTENT.decode(found, "key"))


@settings(max_examples=examples(60))
@given(st.data())
def test_blocks_of_production_are_corrupt_and_nothing_else(data: st.DataObject) -> None:
    whole = data.draw(st.sampled_from(OBJECTS)).read_bytes()
    index = open_tail(whole, object_size_bytes=len(whole), key="key")
    assert isinstance(index, BlockIndex)
    row = next(iter(index))
    block = whole[row.position : row.position + row.size_bytes]
    assert is_ours(lambda: decode_block_bytes(data.draw(damages(block)), row, key="key", object_size_bytes=len(whole)))
