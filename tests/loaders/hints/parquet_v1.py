"""Snapshots as releases before version 2 of the root wrote them: groups in Parquet, their footers in the root.

Nothing but tests writes them any more; they have to be read as long as such snapshots may lie in buckets.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from loaders.hints import EntryColumns
from loaders.hints.entry_columns import COLUMN_NAMES
from loaders.hints.roots import seal_root, swap_root
from loaders.hints.snapshots import GROUP, SNAPSHOT_ROOT_FORM
from loaders.hints.sorted_entries import EncodedGroup
from loaders.layout import HintKind, hint_file_key
from loaders.store import ObjectStore
from loaders.tables.columns import pack_columns
from tests.loaders.hints.builders import GENERATION, NAMESPACE, NODE, Node, columns_of

_COVERED = np.dtype([("object_id", "<i8"), ("size_bytes", "<i8")])


def encode_parquet_group(columns: EntryColumns) -> EncodedGroup:
    """One row group alone, and the footer that makes it a file."""
    kinds = [pa.int64()] * (len(COLUMN_NAMES) - 1) + [pa.bool_()]
    schema = pa.schema([pa.field(name, kind, nullable=False) for name, kind in zip(COLUMN_NAMES, kinds, strict=True)])
    sink = io.BytesIO()
    with pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        use_dictionary=False,
        column_encoding=dict.fromkeys(COLUMN_NAMES[:-1], "DELTA_BINARY_PACKED"),
        write_statistics=list(COLUMN_NAMES[:2]),
        store_schema=False,
    ) as writer:
        writer.write_table(pa.table([pa.array(column) for column in columns.columns()], schema=schema))
        end = sink.tell()
    written = sink.getvalue()
    return EncodedGroup(written[4:end], written[end:])


def write_parquet_snapshot(
    store: ObjectStore, node: Node, *, node_id: int = NODE, namespace: str = NAMESPACE, group_rows: int = 1000
) -> None:
    """A node's snapshot in one file, with a root of version 1."""
    rows, file, footers = node.sorted_rows, b"PAR1", b""
    groups: list[tuple[int, ...]] = []
    for start in range(0, len(rows), group_rows):
        columns = columns_of(rows[start : start + group_rows])
        group = encode_parquet_group(columns)
        keys = [int(column[end]) for end in (0, -1) for column in (columns.stream_ids, columns.starts)]
        crc32 = zlib.crc32(group.body)
        groups.append((0, *keys, len(file), len(group.body), crc32, len(columns), len(group.footer)))
        file, footers = file + group.body, footers + group.footer
    store.put(hint_file_key(HintKind.SNAPSHOTS, node_id, GENERATION, "00000-a"), file)
    identity: dict[str, str | int] = {"namespace": namespace, "node_id": node_id, "generation": GENERATION}
    record = _root(identity, node, groups, footers, len(file))
    swap_root(store, HintKind.SNAPSHOTS, node_id, GENERATION, seal_root(record))


def _root(
    identity: dict[str, str | int], node: Node, groups: Sequence[tuple[int, ...]], footers: bytes, file_size: int
) -> bytes:
    covered = np.array([(each.object_id, each.size_bytes) for each in node.refs], dtype=_COVERED)
    fields = {
        **identity,
        "covered": pack_columns(np.sort(covered, order="object_id")),
        "files": [{"name": "00000-a", "size_bytes": file_size}],
        "groups": pack_columns(np.array(groups, dtype=GROUP)),
        "footers": zstandard.ZstdCompressor(write_content_size=False).compress(footers),
    }
    name = SNAPSHOT_ROOT_FORM.name.encode()
    return bytes([len(name)]) + name + b"\0\1" + msgspec.msgpack.encode(fields)
