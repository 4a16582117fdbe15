"""The page reference/records.md of the site: each form's fields, each kind of rows, and the versions, from the code.

Names, types, order and versions are those of the forms; meanings are those of the docstrings of their classes. Only
what has no docstring of its own is explained here: columns of the catalog's rows, forms of one field, reader groups.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from enum import Enum
from types import NoneType
from typing import Any, Final, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec
import numpy as np

from accel.adoption import controller
from accel.catalog import job_runs
from accel.catalog import records as catalog
from accel.history import columns
from accel.history import records as history
from accel.history.rules import configuration, epochs, retention, states, transactions
from accel.streams import groups, uploads, writer_numbers
from accel.streams.rules import events, transaction_data
from accel.streams.shared import owners
from loaders.hints import COLUMN_NAMES
from loaders.hints.packs import PACK_ENTRY, PACK_ROOT_FORM
from loaders.hints.snapshots import GROUP as SNAPSHOT_GROUP
from loaders.hints.snapshots import SNAPSHOT_ROOT_FORM
from loaders.tables import FORMAT_FORM
from loaders.tables.columns import VERSION
from loaders.tables.conditional_write import ENVELOPE_VERSION
from loaders.tables.format_record import FORMAT_VERSION, FormatRecord
from loaders.tables.records import RecordForm
from range_index import epoch_times

Dtype = np.dtype[np.void]

CATALOG_FORMS: Final[tuple[RecordForm[Any], ...]] = (FORMAT_FORM, *catalog.ALL_FORMS, job_runs.JOB_RUNS_FORM)
STREAM_FORMS: Final[tuple[RecordForm[Any], ...]] = (
    groups.READER_GROUP,
    owners.OWNER,
    uploads.MERGE_INTENT,
    writer_numbers.NUMBER_TABLE,
)
HISTORY_FORMS: Final[tuple[RecordForm[Any], ...]] = tuple(history.ALL_FORMS)

HINT_FORMS: Final[tuple[RecordForm[Any], ...]] = (PACK_ROOT_FORM, SNAPSHOT_ROOT_FORM)

EXPLAINED_BY: Final[dict[str, type[Any]]] = {
    "format": FormatRecord,
    "node-list": catalog.NodeList,
    "list-version": catalog.ListVersion,
    "stream-bucket": catalog.StreamShard,
    "node-checkpoint": catalog.Checkpoint,
    "node-directory": catalog.NodeDirectory,
    "job-runs": job_runs.JobRuns,
    "segment-owner": owners.Owner,
    "merge-intent": uploads.MergeIntent,
    "writer-numbers": writer_numbers.NumberTable,
    "epoch-record": epochs.EpochRecord,
    "epoch-transition": epochs.EpochTransition,
    "history-chunk": columns.StoredChunk,
    "epoch-times": epoch_times.EpochTimesRoot,
    "epoch-times-block": epoch_times.BlockTimes,
    "truncation": retention.TruncationRecord,
    "stream-cut": retention.StreamCutRecord,
    "active-transaction": transactions.ActiveTransaction,
    "completed-transaction": transactions.CompletedTransaction,
    "committing-transactions": transactions.CommittingTransactions,
    "commit-order": transactions.CommitOrder,
    "stream-state": states.StreamStatus,
    "configuration": configuration.ConfigurationRecord,
    "history-layout": configuration.HistoryLayout,
    "scope-entry": states.ScopeEntry,
    "stream-entry": states.StreamEntry,
    "workflow-request": history.StoredRequest,
}
"""The class whose docstring explains a form's fields."""

SINGLE: Final[dict[str, str]] = {
    "object-id-counter": "the lowest id that nobody has",
    "sealed-epoch": "the epoch that sealed the segment of the key",
    "retention-set": "recorded cuts, strictly ascending by time",
    "sealed-sizes": "one shard: sizes by segment id, ascending",
    "creation-time": "when the stream was created, milliseconds since 1970",
    "last-number": "the highest segment number that a stream of this name had",
    "id-counter": "the first id that nobody has",
    "segment-stream": "the stream of the object layer that holds the segment's data",
}
"""What the only field of a form means."""

GROUP: Final[dict[str, str]] = {
    "segments": "those that are not read to their ends, or that end the stream; ascending by id",
    "places": "for each segment how far it was read, and who reads it",
    "readers": "names of the readers, ascending, each once",
    "reports": "for each reader the last one",
    "leases": "for each reader; no bytes where no reader has one",
    "hosts": "of the readers; none where no reader has one",
    "replaced": "earlier readers of these names; no bytes where there are none",
    "replaced_hosts": "of these",
    "moved": "ids of segments, ascending",
}
"""What the fields of a reader group mean."""

HINTS: Final[dict[str, dict[str, str]]] = {
    "pack-root": {
        "namespace": "of the cluster's objects",
        "node_id": "the node",
        "generation": "of this root",
        "parts": "data objects: `generation`, `name`, `size_bytes`",
        "entries": "a row a filter, ascending by object id",
    },
    "snapshot-root": {
        "namespace": "of the cluster's objects",
        "node_id": "the node",
        "generation": "of its files",
        "covered": "objects all of whose entries are included",
        "files": "`name` and `size_bytes`, in the order of their streams",
        "groups": "a row a group, in the order of their entries",
    },
}
"""What the fields of the roots of hints mean."""

KINDS: Final[dict[str, Dtype]] = {
    "live object": catalog.LIVE,
    "prepared id": catalog.PREPARED,
    "retired object": catalog.RETIRED,
    "stream": catalog.STREAM,
    "owned range": catalog.OWNED_RANGE,
    "stream object": catalog.STREAM_OBJECT,
    "retired stream object": catalog.RETIRED_STREAM_OBJECT,
    "stream end": catalog.STREAM_END,
    "sketch": catalog.SKETCH,
    "released range": catalog.RELEASED,
    "object set aside": catalog.SET_ASIDE,
    "range given up": catalog.GIVEN_UP,
    "time record": catalog.TIME_RECORD,
    "writer number": catalog.WRITER_NUMBER,
}
"""Rows of the catalog."""

HISTORY_KINDS: Final[dict[str, Dtype]] = {
    "segment": columns.ROW,
    "key": columns.KEY,
    "id": columns.SET_ROW,
    "number by id": columns.MAP_ROW,
    "key range": history.RANGE,
    "epoch": columns.EPOCH_ROW,
    "created segment": columns.CREATED_ROW,
    "sealed segment": columns.SEALED_ROW,
    "time": history.TIME,
    "recorded cut": history.RETENTION_ENTRY,
    "position": history.POSITION,
    "place of a reader group": groups.PLACE,
    "report": groups.REPORT,
    "lease": groups.LEASE,
    "replaced reader": groups.REPLACED,
}
"""Rows of histories and of reader groups."""

HINT_KINDS: Final[dict[str, Dtype]] = {
    "filter": PACK_ENTRY,
    "covered object": np.dtype([("object_id", "<i8"), ("size_bytes", "<i8")]),
    "group": SNAPSHOT_GROUP,
    "entry of a group": np.dtype([(name, "<i8") for name in COLUMN_NAMES]),
}
"""Rows of hints; those of the last kind are the bytes of a group, and in no field."""

HINT_COLUMNS: Final[dict[tuple[str, str], str]] = {
    ("filter", "object_id"): "the filter's object",
    ("filter", "size_bytes"): "its size",
    ("filter", "part"): "number of the data object",
    ("filter", "offset"): "where the filter begins in it",
    ("filter", "length"): "bytes of the filter",
    ("filter", "crc32"): "of these bytes",
    ("filter", "capacity"): "ids that the filter was made for",
    ("covered object", "object_id"): "the object",
    ("covered object", "size_bytes"): "its size",
    ("group", "file"): "number of its file in `files`",
    ("group", "first_stream"): "stream of its least entry",
    ("group", "first_start"): "start of its least entry",
    ("group", "last_stream"): "stream of its greatest entry",
    ("group", "last_start"): "start of its greatest entry",
    ("group", "byte_start"): "where its bytes begin in the file",
    ("group", "size_bytes"): "how many they are",
    ("group", "crc32"): "of these bytes",
    ("group", "rows"): "entries in it",
    ("entry of a group", "stream_id"): "the stream",
    ("entry of a group", "start_offset"): "first offset of the stream in the object",
    ("entry of a group", "end_offset"): "one past the last one",
    ("entry of a group", "object_id"): "the object",
    ("entry of a group", "order_id"): "its place in the list",
    ("entry of a group", "position"): "where the stream's blocks begin in the object; -1: they are apart",
    ("entry of a group", "size_bytes"): "bytes of these blocks; 0: they are apart",
    ("entry of a group", "record_count"): "record batches in them",
    ("entry of a group", "holed"): "1: offsets in between are missing",
}
"""Meaning of the columns of hints."""

SWAPS: Final = (controller.Swap, controller.SwapSource, controller.SwapOutput, controller.SwapStreamObject)
"""What a file of swaps contains, as JSON."""

ROWS: Final[dict[tuple[str, str], str]] = {
    ("pack-root", "entries"): "filter",
    ("snapshot-root", "covered"): "covered object",
    ("snapshot-root", "groups"): "group",
    ("node-list", "live"): "live object",
    ("node-list", "prepared"): "prepared id",
    ("node-list", "retired"): "retired object",
    ("node-list", "stream_objects"): "stream object",
    ("node-list", "sketches"): "sketch",
    ("node-list", "released"): "released range",
    ("node-list", "set_aside"): "object set aside",
    ("node-list", "times"): "time record",
    ("node-list", "numbers"): "writer number",
    ("stream-bucket", "streams"): "stream",
    ("stream-bucket", "ranges"): "owned range",
    ("stream-bucket", "stream_objects"): "stream object",
    ("stream-bucket", "retired"): "retired stream object",
    ("stream-bucket", "given_up"): "range given up",
    ("node-checkpoint", "ends"): "stream end",
    ("node-checkpoint", "times"): "time record",
    ("node-checkpoint", "numbers"): "writer number",
    ("writer-numbers", "rows"): "writer number",
    ("reader-group", "places"): "place of a reader group",
    ("reader-group", "reports"): "report",
    ("reader-group", "leases"): "lease",
    ("reader-group", "replaced"): "replaced reader",
    ("epoch-transition", "segments_to_seal"): "id",
    ("epoch-transition", "new_ranges"): "key range",
    ("history-chunk", "epochs"): "epoch",
    ("history-chunk", "created"): "created segment",
    ("history-chunk", "sealed"): "sealed segment",
    ("history-chunk", "older"): "segment",
    ("history-chunk", "keys"): "key",
    ("epoch-times", "leaf_starts"): "time",
    ("epoch-times", "part_starts"): "time",
    ("epoch-times", "tail"): "time",
    ("epoch-times-block", "times"): "time",
    ("truncation", "cut"): "number by id",
    ("truncation", "last_cut"): "number by id",
    ("retention-set", "entries"): "recorded cut",
    ("stream-cut", "cut"): "number by id",
    ("sealed-sizes", "sizes"): "number by id",
    ("active-transaction", "commit_offsets"): "number by id",
    ("commit-order", "positions"): "position",
}
"""Fields that hold packed columns, and the kind of their rows."""

COLUMNS: Final[dict[str, tuple[str, str]]] = {
    "cause": ("", "why it cannot be read: 1 missing, 2 index, 3 block, 4 denied, 5 unavailable"),
    "given_up_at_ms": ("ms since 1970", "when a person gave the object up that held the offsets"),
    "runs": ("", "that could not read it"),
    "since_ms": ("ms since 1970", "when the first of these runs was"),
    "tag": ("", "XXH3 of its ETag then, without the lowest bit; -1: not known"),
    "object_id": ("", "0 or above; given to one object only, for ever"),
    "order_id": (
        "commits",
        "the object's place in the list: the number of its commit; compacted: lowest of its sources",
    ),
    "last_order_id": ("commits", "of an upload its order id; of a compacted object the highest of its sources"),
    "data_time_ms": ("ms since 1970", "when the oldest data in the object was written"),
    "size_bytes": ("bytes", "of the whole object"),
    "index_size_bytes": ("bytes", "of its index, without the footer"),
    "attributes": ("bits", "kind and placement as the writing broker knows them; -1: not set"),
    "tail_checksum": ("CRC-32", "of the object's size (8 bytes, big endian), index and footer, in turn; -1: not known"),
    "added_by": ("commits", "the commit that listed the row; -1: no commit of a list did"),
    "deadline_ms": ("ms since 1970", "until then nobody deletes an object with this id"),
    "retired_at_ms": ("ms since 1970", "when it was replaced, trimmed or withdrawn"),
    "retired_by": ("commits", "the commit that did; -1: an undo, which is final"),
    "delete_pending": ("0 or 1", "1: delete pending; it never comes back"),
    "stream_id": ("", "0 or above"),
    "start_offset": ("offset", "the first one that is kept; never falls"),
    "range_index": ("", "0 for the first owner of a stream, one more for each that follows"),
    "epoch": ("", "of the session that owns the range"),
    "start": ("offset", "the first one"),
    "end": ("offset", "one past the last one; of an owned range -1: still open"),
    "node_id": ("", "0 to 9,999,999,999; of a stream object: in whose list `added_by` counts"),
    "record": ("", "number of a record in the stream's time index, from 0 on"),
    "value": ("", "the value of that record; of a writer number: the clock's value of its last event"),
    "writer_high": ("", "first 8 bytes of a writer's id, signed"),
    "writer_low": ("", "last 8 bytes of a writer's id, signed; both 0: no writer"),
    "keys_from": ("float bits", "the first key position"),
    "keys_to": ("float bits", "the end of the key positions, exclusive"),
    "number": ("", "the writer's events with such keys are durable up to this number"),
    "settled": ("", "all events of the writer below this number are durable, in any segment"),
    "commit": ("commits", "the commit that brought the append; without meaning outside lists"),
    "form": ("", "of a sketch: how its cells are given to streams"),
    "low": ("bits", "cells 0 to 63 of a sketch"),
    "rest": ("bits", "its other cells; by place also where they begin"),
}
"""Unit and meaning of the columns of the catalog's rows."""

_NAMES: Final[dict[Any, str]] = {
    int: "int",
    float: "float",
    str: "str",
    bool: "bool",
    bytes: "bin",
    NoneType: "nil",
    UUID: "bin: 16 bytes",
    tuple[tuple[UUID, UUID], ...]: "array of pairs of ids",
    columns.StoredSegments: "map: `rows` (rows: segment), `keys` (rows: key)",
}
"""Types as MessagePack has them."""

_ENTRY: Final = re.compile(
    r"^    (?P<name>[a-z_]+): (?P<text>.*?)(?=^    [a-z_]+: |^\S|^$|\Z)", re.MULTILINE | re.DOTALL
)


def meanings(explained: type[Any]) -> dict[str, str]:
    """What a class's docstring says of its fields."""
    entries = _ENTRY.finditer(inspect.getdoc(explained) or "")
    return {each["name"]: " ".join(each["text"].split()) for each in entries}


def fields(form: RecordForm[Any]) -> Iterator[tuple[str, str, str]]:
    """Name, type and meaning of a form's fields, in the order in which they are stored."""
    explained = EXPLAINED_BY.get(form.name)
    told = meanings(explained) if explained else GROUP if form is groups.READER_GROUP else HINTS.get(form.name, {})
    hints = get_type_hints(explained) if explained else {}
    for each in msgspec.structs.fields(form.struct):
        kind = ROWS.get((form.name, each.name))
        meant = told.get(each.name) or SINGLE.get(form.name, "")
        shown = f"rows: {kind}" if kind else _type(each.type, hints.get(each.name))
        yield each.name, shown, meant


def struct_fields(struct: type[msgspec.Struct]) -> Iterator[tuple[str, str]]:
    """Name and meaning of what a struct contains, in the order in which it is written."""
    entries = re.findall(
        r"^    ([a-z_, ]+): (.*?)(?=^    [a-z_, ]+: |\Z)", inspect.getdoc(struct) or "", re.MULTILINE | re.DOTALL
    )
    told = {name: " ".join(text.split()) for names, text in entries for name in names.split(", ")}
    return ((name, told[name]) for name in struct.__struct_fields__)


def versions() -> Iterator[tuple[str, str, str, str]]:
    """What has a version, where it is stored, and which ones this release reads and writes."""
    yield "layout of the bucket", "`version` in the format record", *_version(FORMAT_VERSION)
    # Version 1 of the envelope was never released.
    yield "envelope", "byte 4 of every value", str(ENVELOPE_VERSION), str(ENVELOPE_VERSION)
    yield "packed columns", "byte 4 of them", *_version(VERSION)
    numbered = events.NUMBERED_VERSION
    yield "list of events", "byte 4 of a payload", f"1 to {numbered}", f"{numbered}; 1 without numbers"
    yield "data of a transaction", "byte 4 of the object", *_version(transaction_data.VERSION)
    for form in (*CATALOG_FORMS, *STREAM_FORMS, *HISTORY_FORMS, *HINT_FORMS):
        yield f"`{form.name}`", "the form's version", *_version(form.version)


def page() -> str:
    parts = ["# Records\n\nFields of every record, columns of every kind of rows, and versions.\n"]
    groups_of_forms = (
        ("Catalog", CATALOG_FORMS),
        ("Streams", STREAM_FORMS),
        ("History", HISTORY_FORMS),
        ("Hints", HINT_FORMS),
    )
    for title, forms in groups_of_forms:
        parts.append(f"## {title}: fields\n")
        for form in forms:
            parts.append(f"### {form.name}\n")
            rows = ((f"`{name}`", shown, meant) for name, shown, meant in fields(form))
            parts.append(_table(("field", "type", "meaning"), rows))
    for title, kinds in (("Catalog", KINDS), ("Histories and reader groups", HISTORY_KINDS)):
        parts.append(f"## {title}: rows\n")
        rows_of = ((kind, ", ".join(f"`{name}`" for name in dtype.names or ())) for kind, dtype in kinds.items())
        parts.append(_table(("rows", "columns"), rows_of))
    parts.append("## Catalog: columns\n")
    parts.append(_table(("column", "unit", "meaning"), ((f"`{name}`", *told) for name, told in COLUMNS.items())))
    parts.append("## Hints: rows and columns\n")
    parts.append(
        _table(("rows", "column", "meaning"), ((of, f"`{name}`", s) for (of, name), s in HINT_COLUMNS.items()))
    )
    for title, structs in (("Runs of jobs", (job_runs.JobRun,)), ("Swaps for a controller", SWAPS)):
        parts.append(f"## {title}: fields\n")
        for each in structs:
            parts.append(f"### {each.__name__}\n")
            parts.append(_table(("field", "meaning"), ((f"`{name}`", meant) for name, meant in struct_fields(each))))
    parts.append("## Versions\n\nA higher version is refused with `FormatTooNew`, and nothing is changed.\n")
    parts.append(_table(("what", "where", "reads", "writes"), versions()))
    return "\n".join(parts)


def _version(newest: int) -> tuple[str, str]:
    return "1" if newest == 1 else f"1 to {newest}", str(newest)


def _table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |\n" for line in lines)


def _type(stored: Any, hint: Any) -> str:
    """A stored type as MessagePack has it; of an enumeration also the names that are stored."""
    if isinstance(hint, type) and issubclass(hint, Enum):
        return f"str: {', '.join(f'`{each.name}`' for each in hint)}"
    return _NAMES.get(stored) or _compound(stored)


def _compound(stored: Any) -> str:
    """The type of a map, an array, or of what may be missing."""
    if isinstance(stored, type) and (issubclass(stored, msgspec.Struct) or dataclasses.is_dataclass(stored)):
        return "map: a record of its own"
    parts = [_type(each, None) for each in get_args(stored) if isinstance(each, type) or get_args(each)]
    is_list = get_origin(stored) in (list, tuple)
    return f"array of {parts[0]}" if is_list and parts else " or ".join(dict.fromkeys(parts)) or "array of int"
