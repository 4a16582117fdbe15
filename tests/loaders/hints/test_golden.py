"""Bytes of each version are read for ever, and the page about them says what stands in them."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from loaders.hints import COLUMN_NAMES, SnapshotReader, load_pack, read_pack_root, write_pack
from loaders.hints.packs import PACK_ENTRY, PACK_ROOT_FORM
from loaders.hints.roots import MAGIC, ROOT_VERSION
from loaders.hints.snapshots import GROUP, SNAPSHOT_ROOT_FORM
from loaders.layout import HintKind, hint_root_key
from loaders.store import MemoryStore
from loaders.tables.columns import unpack_any
from tests.docs import records
from tests.docs.pages import page_named
from tests.loaders.hints.builders import GENERATION, NAMESPACE, NODE, rows_of, write_snapshot
from tests.loaders.hints.golden import FILES, golden_filters, golden_node, golden_store

PAGE = page_named("hints").read_text()


def test_a_snapshot_is_read() -> None:
    reader, node = SnapshotReader(golden_store(), NAMESPACE, lambda: 0.0), golden_node()
    root = reader.read_root(NODE)
    assert (root.generation, len(root.groups), root.entries) == (GENERATION, 2, 6)
    assert root.covered.object_ids.tolist() == [40, 43, 71]
    for stream_id in (1, 233, 420_000):
        assert rows_of(reader.read_entries(NODE, stream_id).columns) == node.of_stream(stream_id)


def test_a_pack_of_version_1_is_read() -> None:
    store, filters = golden_store(), golden_filters()
    root = read_pack_root(store, NAMESPACE, NODE)
    ids = np.array([ref.object_id for ref, _ in filters])
    sizes = np.array([ref.size_bytes for ref, _ in filters])
    assert dict(load_pack(store, root, ids, sizes)) == {ref.object_id: built for ref, built in filters}


def test_entries_are_written_byte_for_byte_as_the_page_says() -> None:
    store = MemoryStore()
    root = write_snapshot(store, golden_node(), group_rows_max=4)
    for name in ("snapshot-root-1.bin", "snapshot-entries-1.bin"):
        written, stored = (each.get(FILES[name]).body for each in (store, golden_store()))
        assert written == stored
    body = golden_store().get(FILES["snapshot-entries-1.bin"]).body
    for row in root.groups:
        group = body[int(row["byte_start"]) : int(row["byte_start"] + row["size_bytes"])]
        assert unpack_any(group, "a group").dtype.names == COLUMN_NAMES
    assert int(root.groups["size_bytes"].sum()) == len(body)


def test_filters_are_packed_byte_for_byte_as_before() -> None:
    store = MemoryStore()
    write_pack(store, namespace=NAMESPACE, node_id=NODE, generation=GENERATION, added=golden_filters())
    key = FILES["pack-filters-1.bin"]
    assert store.get(key).body == golden_store().get(key).body


@pytest.mark.parametrize("kind", list(HintKind))
def test_a_root_begins_as_the_page_says(kind: HintKind) -> None:
    body = golden_store().get(hint_root_key(kind, NODE)).body
    assert body[:8] == MAGIC + bytes([ROOT_VERSION, 0, 0, 0])
    assert int.from_bytes(body[8:12], "big") == zlib.crc32(body[:8] + body[12:])
    assert int.from_bytes(body[12:16], "big") == len(body) - 16
    name = (PACK_ROOT_FORM if kind is HintKind.PACKS else SNAPSHOT_ROOT_FORM).name
    assert body[16:].startswith(bytes([len(name)]) + name.encode() + b"\0\1")
    assert MAGIC.hex(" ").upper() in PAGE


def test_the_generated_page_names_every_field_and_column() -> None:
    page = records.page()
    names = [*COLUMN_NAMES, *(GROUP.names or ()), *(PACK_ENTRY.names or ())]
    names += [*SNAPSHOT_ROOT_FORM.struct.__struct_fields__, *PACK_ROOT_FORM.struct.__struct_fields__]
    assert [name for name in names if f"`{name}`" not in page] == []
