"""The page reference/metadata-tables.md of the site: the columns of each table that `accel.tables` reads.

Names, order and types are those of `accel.tables.schemas`. Only the meanings are written here, since a schema has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from accel.tables.schemas import TABLES, RowSource, TableSchema

COMMON: Final[dict[RowSource, dict[str, str]]] = {
    source: {
        "node_id": "the node that wrote the object",
        "object_id": "never used twice: tables join on it",
        "order_id": "place in the node's list; null for an object of one stream",
        "stream_id": "the stream",
        "start_offset": "the first offset",
        "end_offset": "one past the last offset",
    }
    for source in (RowSource.CATALOG, RowSource.OBJECTS)
} | {
    RowSource.HISTORIES: {
        "scope": "name of the scope",
        "stream": "name of the stream",
        "segment_id": "number and epoch in one integer",
        "segment": "number and epoch as text, such as `3@1`",
    },
    RowSource.EVENTS: {"scope": "name of the scope", "stream": "name of the stream"},
}
"""Meanings of columns that several tables of a source have."""

OWN: Final[dict[tuple[str, str], str]] = {
    ("objects", "kind"): "`stream_set`, or `stream` for an object of one stream",
    ("objects", "stream_id"): "the stream; null for a stream set object",
    ("objects", "start_offset"): "the first offset; null for a stream set object",
    ("objects", "end_offset"): "one past the last offset; null for a stream set object",
    ("objects", "size_bytes"): "size of the object",
    ("objects", "index_size_bytes"): "size of its block index; null if it is not known",
    ("objects", "data_time"): "when its oldest data was written",
    ("objects", "key"): "its key in the bucket",
    ("stream_ranges", "kind"): "as in `objects`",
    ("stream_ranges", "holed"): "whether offsets between start and end are missing",
    ("stream_ranges", "data_size_bytes"): "bytes of the stream's blocks",
    ("stream_ranges", "record_count"): "record batches of the stream",
    ("blocks", "kind"): "as in `objects`",
    ("blocks", "record_count"): "record batches of the block",
    ("blocks", "position"): "first byte of the block in the object that holds it",
    ("blocks", "size_bytes"): "size of the block",
    ("blocks", "holder_id"): "the object that holds the block's bytes: another one if this object only links them",
    ("records", "epoch"): "epoch of the writer",
    ("records", "is_link"): "whether the batch only links another one",
    ("records", "payload"): "bytes of the batch",
    ("epochs", "epoch"): "number of the epoch",
    ("epochs", "reference_epoch"): "the epoch itself; of a duplicate the epoch that it repeats",
    ("epochs", "begin_time"): "when it began",
    ("epochs", "splits"): "segments that were split when it began",
    ("epochs", "merges"): "segments that were merged when it began",
    ("epochs", "segment_count"): "its segments",
    ("segments", "creation_epoch"): "the epoch that created it",
    ("segments", "creation_time"): "when that epoch began",
    ("segments", "sealed_epoch"): "the epoch that followed its sealing; null in the last epoch, sealed or not",
    ("segments", "sealed_time"): "when that epoch began: after the sealing, and after its last event by a right clock",
    ("segments", "key_start"): "start of its keys, within [0, 1)",
    ("segments", "key_end"): "end of its keys, exclusive",
    ("segments", "size"): "its size in the stream's offset unit; null while it takes writes",
    ("segments", "stream_id"): "the stream of the object layer that holds its events; joins with the other tables",
    ("cuts", "kind"): "`recorded` by retention, or `head`: where the stream begins now",
    ("cuts", "recording_time"): "when it was recorded; null for the head",
    ("cuts", "size_before"): "size of the stream before the cut, in the stream's offset unit",
    ("cuts", "offset"): "offset of the cut in this segment",
    ("events", "segment"): "number and epoch of the segment as text, such as `3@1`",
    ("events", "offset"): "offset of the event in its segment",
    ("events", "time"): "when it arrived; null if it was written without a time",
    ("events", "payload"): "its bytes",
    ("job_runs", "kind"): "`compact`, `build-hints`, `gc` or `maintain`",
    ("job_runs", "run_id"): "of this run alone",
    ("job_runs", "version"): "release of Accel",
    ("job_runs", "engine"): "`local` or `spark`",
    ("job_runs", "begin_time"): "when it began, by the store's clock",
    ("job_runs", "end_time"): "when it ended; null: it still runs, or was killed",
    ("job_runs", "outcome"): "`done`, `partial` (with failures), `stopped`, `failed` or `not ended`",
    ("job_runs", "items"): "objects that were merged or retired, opened for hints, or deleted",
    ("job_runs", "size_bytes"): "of merged and retired objects, written hints or deleted objects",
    ("job_runs", "requests"): "that the job has counted",
    ("job_runs", "failures"): "what could not be done",
    ("job_runs", "reason"): "the first of these failures",
    ("job_runs", "trigger"): "why maintenance began it; empty if a person or a program did",
    ("job_runs", "max_objects_per_node"): "of a compaction of all nodes: nodes with more objects are compacted",
}
"""Meanings of the other columns, by table and column."""

_TYPES: Final[dict[pa.DataType, str]] = {
    pa.int64(): "bigint",
    pa.string(): "string",
    pa.timestamp("us", tz="UTC"): "timestamp",
    pa.bool_(): "boolean",
    pa.binary(): "binary",
    pa.float64(): "double",
}
"""Types by their names in SQL."""


def columns(table: TableSchema) -> Iterator[tuple[str, str, str]]:
    """Name, type and meaning of each column, in order; the meaning is empty if none is written."""
    for each in table.columns:
        meaning = OWN.get((table.name, each.name)) or COMMON[table.source].get(each.name, "")
        yield each.name, _TYPES[each.type], meaning


def page() -> str:
    parts = ["# Tables of the metadata\n\n[Query the metadata](../how-to/querying.md) shows how to read them.\n"]
    for table in TABLES.values():
        rows = "".join(f"| `{name}` | {kind} | {meaning} |\n" for name, kind, meaning in columns(table))
        parts.append(f"## {table.name}\n\n| column | type | meaning |\n|---|---|---|\n{rows}")
    return "\n".join(parts)
