"""The bytes of the catalog's records: one named, versioned form each.

Numbers and names stand as MessagePack fields; rows stand in it as packed columns (see `loaders.tables.columns`). Bytes
that were read make the same checked records as the program's own; rows out of order or of unknown fields are refused.
Every field with its unit, and which release writes which version: docs/formats.md, "Records" and what follows it.

    | form              | fields                                                                                   |
    |-------------------|------------------------------------------------------------------------------------------|
    | node-list         | node_id, epoch, next_order_id, withdrawn_commits; columns live, prepared, retired,       |
    |                   | stream_objects                                                                           |
    | list-version      | sequence, node_list (as above)                                                           |
    | stream-bucket     | bucket; columns streams, ranges, stream_objects, retired                                 |
    | node-checkpoint   | node_id, order_id; columns ends                                                          |
    | node-directory    | node_ids, generation                                                                     |
    | object-id-counter | next_object_id                                                                           |
    | import-batch      | columns objects, ranges                                                                  |
    | import-run        | counter_before, raised_to                                                                |

A list of 5,000 objects takes about 64 kB, 20 kB of it checksums of tails. How many rows a value can become follows from
its bytes (see `loaders.tables.columns`: 4,096, and 8 more a byte, 1,048,576 at most), or from its key: a directory has
65,536 nodes.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np

from accel.catalog.import_records import READ_OBJECT, READ_RANGE, ImportRun, ReadBatch
from accel.catalog.records import (
    NODES_MAX,
    Checkpoint,
    ListVersion,
    NodeDirectory,
    NodeList,
    ObjectIdCounter,
    StreamBucket,
)
from accel.catalog.rows import (
    LIVE,
    OWNED_RANGE,
    PREPARED,
    RETIRED,
    RETIRED_STREAM_OBJECT,
    STREAM,
    STREAM_END,
    STREAM_OBJECT,
    Rows,
)
from loaders.tables.columns import ROWS_MAX, is_packed, pack_columns, unpack_any, unpack_columns
from loaders.tables.converted import ConvertedForm
from loaders.tables.forms import FormRegistry, RecordForm, RowsView

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)


class CatalogForm(ConvertedForm[T, S]):
    """The form of a record of the catalog. Threads: immutable."""

    def expand(self, fields: S) -> object:
        """Stored fields as dicts, lists, numbers and views of rows, for people: each row a dict."""
        return _expanded(msgspec.structs.asdict(fields))


class StoredList(msgspec.Struct, frozen=True):
    """The stored fields of a `NodeList`."""

    node_id: int
    epoch: int
    next_order_id: int
    live: bytes
    prepared: bytes
    retired: bytes
    stream_objects: bytes
    withdrawn_commits: Annotated[list[int], msgspec.Meta(max_length=ROWS_MAX)]


class StoredListVersion(msgspec.Struct, frozen=True):
    """The stored fields of a `ListVersion`."""

    sequence: int
    node_list: StoredList


class StoredBucket(msgspec.Struct, frozen=True):
    """The stored fields of a `StreamBucket`."""

    bucket: int
    streams: bytes
    ranges: bytes
    stream_objects: bytes
    retired: bytes


class StoredCheckpoint(msgspec.Struct, frozen=True):
    """The stored fields of a `Checkpoint`."""

    node_id: int
    order_id: int
    ends: bytes


class StoredDirectory(msgspec.Struct, frozen=True):
    """The stored fields of a `NodeDirectory`."""

    node_ids: Annotated[list[int], msgspec.Meta(max_length=NODES_MAX)]
    generation: Annotated[str, msgspec.Meta(max_length=47)]


class StoredCounter(msgspec.Struct, frozen=True):
    """The stored fields of an `ObjectIdCounter`."""

    next_object_id: int


class StoredBatch(msgspec.Struct, frozen=True):
    """The stored fields of a `ReadBatch`."""

    objects: bytes
    ranges: bytes


class StoredRun(msgspec.Struct, frozen=True):
    """The stored fields of an `ImportRun`."""

    counter_before: int
    raised_to: Annotated[list[int], msgspec.Meta(max_length=ROWS_MAX)]


def _stored_list(node_list: NodeList) -> StoredList:
    return StoredList(
        node_id=node_list.node_id,
        epoch=node_list.epoch,
        next_order_id=node_list.next_order_id,
        live=pack_columns(node_list.live),
        prepared=pack_columns(node_list.prepared),
        retired=pack_columns(node_list.retired),
        stream_objects=pack_columns(node_list.stream_objects),
        withdrawn_commits=list(node_list.withdrawn_commits),
    )


def _restored_list(fields: StoredList, where: str) -> NodeList:
    return NodeList(
        node_id=fields.node_id,
        epoch=fields.epoch,
        next_order_id=fields.next_order_id,
        live=unpack_columns(fields.live, LIVE, f"{where}, live"),
        prepared=unpack_columns(fields.prepared, PREPARED, f"{where}, prepared"),
        retired=unpack_columns(fields.retired, RETIRED, f"{where}, retired"),
        stream_objects=unpack_columns(fields.stream_objects, STREAM_OBJECT, f"{where}, stream_objects"),
        withdrawn_commits=tuple(fields.withdrawn_commits),
    )


def _stored_version(version: ListVersion) -> StoredListVersion:
    return StoredListVersion(version.sequence, _stored_list(version.node_list))


def _restored_version(fields: StoredListVersion, where: str) -> ListVersion:
    return ListVersion(fields.sequence, _restored_list(fields.node_list, where))


def _stored_bucket(bucket: StreamBucket) -> StoredBucket:
    packed = partial(map, pack_columns)
    return StoredBucket(bucket.bucket, *packed((bucket.streams, bucket.ranges, bucket.stream_objects, bucket.retired)))


def _restored_bucket(fields: StoredBucket, where: str) -> StreamBucket:
    return StreamBucket(
        fields.bucket,
        streams=unpack_columns(fields.streams, STREAM, f"{where}, streams"),
        ranges=unpack_columns(fields.ranges, OWNED_RANGE, f"{where}, ranges"),
        stream_objects=unpack_columns(fields.stream_objects, STREAM_OBJECT, f"{where}, stream_objects"),
        retired=unpack_columns(fields.retired, RETIRED_STREAM_OBJECT, f"{where}, retired"),
    )


def _stored_checkpoint(checkpoint: Checkpoint) -> StoredCheckpoint:
    return StoredCheckpoint(checkpoint.node_id, checkpoint.order_id, pack_columns(checkpoint.ends))


def _restored_checkpoint(fields: StoredCheckpoint, where: str) -> Checkpoint:
    return Checkpoint(fields.node_id, fields.order_id, unpack_columns(fields.ends, STREAM_END, f"{where}, ends"))


def _stored_directory(directory: NodeDirectory) -> StoredDirectory:
    return StoredDirectory(directory.node_ids.tolist(), directory.generation)


def _restored_directory(fields: StoredDirectory, where: str) -> NodeDirectory:  # noqa: ARG001 - the others' arguments
    return NodeDirectory(np.array(fields.node_ids, dtype=np.int64), fields.generation)


def _stored_counter(counter: ObjectIdCounter) -> StoredCounter:
    return StoredCounter(counter.next_object_id)


def _restored_counter(fields: StoredCounter, where: str) -> ObjectIdCounter:  # noqa: ARG001 - the others' arguments
    return ObjectIdCounter(fields.next_object_id)


def _stored_batch(batch: ReadBatch) -> StoredBatch:
    return StoredBatch(pack_columns(batch.objects), pack_columns(batch.ranges))


def _restored_batch(fields: StoredBatch, where: str) -> ReadBatch:
    return ReadBatch(
        objects=unpack_columns(fields.objects, READ_OBJECT, f"{where}, objects"),
        ranges=unpack_columns(fields.ranges, READ_RANGE, f"{where}, ranges"),
    )


def _stored_run(run: ImportRun) -> StoredRun:
    return StoredRun(run.counter_before, list(run.raised_to))


def _restored_run(fields: StoredRun, where: str) -> ImportRun:  # noqa: ARG001 - the others' arguments
    return ImportRun(fields.counter_before, tuple(fields.raised_to))


NODE_LIST = CatalogForm(RecordForm("node-list", 1, StoredList), _stored_list, _restored_list)
LIST_VERSION = CatalogForm(RecordForm("list-version", 1, StoredListVersion), _stored_version, _restored_version)
STREAM_BUCKET = CatalogForm(RecordForm("stream-bucket", 1, StoredBucket), _stored_bucket, _restored_bucket)
CHECKPOINT = CatalogForm(RecordForm("node-checkpoint", 1, StoredCheckpoint), _stored_checkpoint, _restored_checkpoint)
NODE_DIRECTORY = CatalogForm(RecordForm("node-directory", 1, StoredDirectory), _stored_directory, _restored_directory)
OBJECT_ID_COUNTER = CatalogForm(RecordForm("object-id-counter", 1, StoredCounter), _stored_counter, _restored_counter)

IMPORT_BATCH = CatalogForm(RecordForm("import-batch", 1, StoredBatch), _stored_batch, _restored_batch)
IMPORT_RUN = CatalogForm(RecordForm("import-run", 1, StoredRun), _stored_run, _restored_run)

ALL_FORMS: tuple[CatalogForm[Any, Any], ...] = (
    NODE_LIST,
    LIST_VERSION,
    STREAM_BUCKET,
    CHECKPOINT,
    NODE_DIRECTORY,
    OBJECT_ID_COUNTER,
    IMPORT_BATCH,
    IMPORT_RUN,
)


def register_forms(registry: FormRegistry) -> None:
    """Add the catalog's forms to those that people can look at."""
    for form in ALL_FORMS:
        _register(registry, form)


def _register(registry: FormRegistry, form: CatalogForm[Any, Any]) -> None:
    registry.register(form.record, form.expand)


def _expanded(value: object) -> object:
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, dict):
        return {name: _expanded(each) for name, each in value.items()}
    if isinstance(value, bytes) and is_packed(value):
        rows = unpack_any(value, "packed columns")
        return RowsView(len(rows), partial(_first_rows, rows))
    return value


def _first_rows(rows: Rows, count: int) -> list[dict[str, int]]:
    return [dict(zip(rows.dtype.names or (), row, strict=True)) for row in rows[:count].tolist()]
