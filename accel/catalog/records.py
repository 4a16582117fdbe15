"""The records that the catalog keeps, one a key of its tables, and their bytes.

    NodeList            what a node has: live objects in order, prepared ids, retired objects
    ListVersion         a node's list as it was, so that a bad commit can be undone
    StreamShard         a part of all streams: first offsets, owners, objects of their own
    Checkpoint          where a node's streams ended some commits ago
    NodeDirectory       which nodes have a list
    ObjectIdCounter     the next id that no object has
    ReadBatch           an import under way: what the indexes of neighbouring objects say; never written again
    ImportRun           an import under way: what the counter of object ids said before

A record holds arrays of rows (see `rows`). It takes them over and makes them read-only; a change makes a new record
(`node_list`, `stream_shards`). Making a record checks types and the order of rows, because all searches rely on it:
bytes from outside are checked by the same code as the program's own, in O(n). What else must be true, `check_list` and
`check_shard` look at.

Each record has one named, versioned form. Numbers and names stand as MessagePack fields; rows stand in it as packed
columns (see `loaders.tables.columns`). A list of 5,000 objects takes about 64 kB, 20 kB of it checksums of tails. How
many rows a value can become follows from its bytes (4,096, and 8 more a byte, 1,048,576 at most), or from its key: a
directory has 65,536 nodes. Where each lies, its fields and their units: docs/formats.md, "Records".

Threads: all records are immutable, any thread may read them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Final, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from accel.catalog.rows import (
    LIVE,
    OWNED_RANGE,
    PREPARED,
    RETIRED,
    RETIRED_STREAM_OBJECT,
    STREAM,
    STREAM_END,
    STREAM_OBJECT,
    Dtype,
    Rows,
    frozen,
    no_rows,
)
from loaders.errors import FormatLimit
from loaders.tables.columns import ROWS_MAX, is_packed, pack_columns, unpack_any, unpack_columns
from loaders.tables.converted import ConvertedForm
from loaders.tables.format_record import check_generation
from loaders.tables.forms import FormRegistry, RecordForm, RowsView

INT64_MAX = 2**63 - 1

NODES_MAX = 1 << 16
"""Nodes in one catalog; a refresh asks for the list of each."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeList:
    """A node's stream set objects and what is on its way to become one or to be deleted.

    Args:
        node_id: the node.
        epoch: of the newest session that writes for the node; 0 = never opened.
        next_order_id: the number of the next commit; above every order id in the list.
        live: LIVE rows, ascending by order id; the spans [order_id, last_order_id] do not overlap.
        prepared: PREPARED rows, ascending by object id.
        retired: RETIRED rows; `doomed` ones are being deleted and never come back.
        stream_objects: STREAM_OBJECT rows that were committed here and have not been moved to their buckets yet.
        withdrawn_commits: commits that were undone, whose stream objects are still to be withdrawn from the buckets.

    Raises:
        ValueError: rows of the wrong type or out of order, or a number below 0.
    """

    node_id: int
    epoch: int = 0
    next_order_id: int = 0
    live: Rows = field(default_factory=lambda: no_rows(LIVE))
    prepared: Rows = field(default_factory=lambda: no_rows(PREPARED))
    retired: Rows = field(default_factory=lambda: no_rows(RETIRED))
    stream_objects: Rows = field(default_factory=lambda: no_rows(STREAM_OBJECT))
    withdrawn_commits: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        where = f"list of node {self.node_id}"
        _check_least(where, 0, node_id=self.node_id, epoch=self.epoch, next_order_id=self.next_order_id)
        _take_over(where, live=(self.live, LIVE), prepared=(self.prepared, PREPARED), retired=(self.retired, RETIRED))
        _take_over(where, stream_objects=(self.stream_objects, STREAM_OBJECT))
        _check_order(f"{where}, live", self.live["order_id"])
        _check_order(f"{where}, prepared", self.prepared["object_id"])
        _check_stream_order(f"{where}, stream objects", self.stream_objects, "start")
        if len(self.live) and int(self.live["order_id"][-1]) >= self.next_order_id:
            found = f"{self.next_order_id} after order id {int(self.live['order_id'][-1])}"
            raise ValueError(f"{where}: expected next_order_id above all order ids, found {found}")


@dataclass(frozen=True, slots=True, eq=False)
class ListVersion:
    """A node's list as it stood.

    Args:
        sequence: of the key at that time, 1 or above.
        node_list: the whole list.

    Raises:
        ValueError: a sequence below 1.
    """

    sequence: int
    node_list: NodeList

    def __post_init__(self) -> None:
        _check_least("list version", 1, sequence=self.sequence)


@dataclass(frozen=True, slots=True, eq=False)
class StreamBucket:
    """The streams whose ids hash to one bucket.

    Args:
        bucket: its number, from 0.
        streams: STREAM rows, ascending by stream id.
        ranges: OWNED_RANGE rows, ascending by (stream id, range index); an end of -1 is open.
        stream_objects: STREAM_OBJECT rows, ascending by (stream id, start).
        retired: RETIRED_STREAM_OBJECT rows, ascending by (stream id, object id).

    Raises:
        ValueError: rows of the wrong type or out of order.
    """

    bucket: int
    streams: Rows = field(default_factory=lambda: no_rows(STREAM))
    ranges: Rows = field(default_factory=lambda: no_rows(OWNED_RANGE))
    stream_objects: Rows = field(default_factory=lambda: no_rows(STREAM_OBJECT))
    retired: Rows = field(default_factory=lambda: no_rows(RETIRED_STREAM_OBJECT))

    def __post_init__(self) -> None:
        where = f"bucket {self.bucket} of streams"
        _check_least(where, 0, bucket=self.bucket)
        _take_over(where, streams=(self.streams, STREAM), ranges=(self.ranges, OWNED_RANGE))
        _take_over(
            where, stream_objects=(self.stream_objects, STREAM_OBJECT), retired=(self.retired, RETIRED_STREAM_OBJECT)
        )
        _check_order(f"{where}, streams", self.streams["stream_id"])
        _check_stream_order(f"{where}, ranges", self.ranges, "range_index")
        _check_stream_order(f"{where}, stream objects", self.stream_objects, "start")
        _check_stream_order(f"{where}, retired stream objects", self.retired, "object_id")


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """Where a node's streams ended after some commit.

    Args:
        node_id: the node.
        order_id: all objects whose last order id is at most this are in it; -1 = none is.
        ends: STREAM_END rows, ascending by stream id.

    Raises:
        ValueError: rows of the wrong type or out of order, or an order id below -1.
    """

    node_id: int
    order_id: int
    ends: Rows = field(default_factory=lambda: no_rows(STREAM_END))

    def __post_init__(self) -> None:
        where = f"checkpoint of node {self.node_id}"
        _check_least(where, 0, node_id=self.node_id)
        _check_least(where, -1, order_id=self.order_id)
        _take_over(where, ends=(self.ends, STREAM_END))
        _check_order(f"{where}, ends", self.ends["stream_id"])


@dataclass(frozen=True, slots=True, eq=False)
class NodeDirectory:
    """Which nodes have a list.

    Args:
        node_ids: ascending, each once, 0 or above.
        generation: which life of the catalog this is, as the format record says; readers look at it here, because they
            read the directory at each refresh anyhow.

    Raises:
        FormatLimit: more than 65,536 nodes.
        ValueError: ids out of order, or a generation that is none.
    """

    node_ids: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    generation: str = ""

    def __post_init__(self) -> None:
        self.node_ids.flags.writeable = False
        if len(self.node_ids) > NODES_MAX:
            raise FormatLimit(f"expected at most {NODES_MAX} nodes in one catalog, found {len(self.node_ids)}")
        _check_order("directory of nodes", self.node_ids)
        check_generation(self.generation)


@dataclass(frozen=True, slots=True)
class ObjectIdCounter:
    """The next id that no object has; all below it are given out.

    Raises:
        ValueError: below 0, or beyond 63 bits.
    """

    next_object_id: int

    def __post_init__(self) -> None:
        _check_least("counter of object ids", 0, next_object_id=self.next_object_id)


def _check_least(where: str, least: int, **numbers: int) -> None:
    for name, number in numbers.items():
        if not least <= number <= INT64_MAX:
            raise ValueError(f"{where}: expected {name} of {least} to {INT64_MAX}, found {number}")


def _take_over(where: str, **fields: tuple[Rows, Dtype]) -> None:
    for name, (rows, dtype) in fields.items():
        if rows.dtype != dtype or rows.ndim != 1:
            raise ValueError(f"{where}: expected {name} with the fields {dtype.names}, found {rows.dtype}")
        frozen(rows)


def _check_order(where: str, keys: NDArray[np.int64]) -> None:
    wrong = np.flatnonzero(keys[1:] <= keys[:-1])
    if len(wrong):
        before, after = keys[wrong[0] : wrong[0] + 2].tolist()
        raise ValueError(f"{where}: expected ascending keys, each once, found {before} before {after}")
    if len(keys) and keys[0] < 0:
        raise ValueError(f"{where}: expected keys of at least 0, found {int(keys[0])}")


def _check_stream_order(where: str, rows: Rows, then: str) -> None:
    streams, keys = rows["stream_id"], rows[then]
    steps = streams[1:] - streams[:-1]
    wrong = np.flatnonzero((steps < 0) | ((steps == 0) & (keys[1:] <= keys[:-1])))
    if len(wrong):
        pairs = [(int(streams[at]), int(keys[at])) for at in (wrong[0], wrong[0] + 1)]
        raise ValueError(f"{where}: expected ascending (stream_id, {then}), found {pairs[0]} before {pairs[1]}")


def ids_of(record: NodeList | StreamBucket) -> NDArray[np.int64]:
    """All object ids that stand in a list or a bucket, in no order. O(rows)."""
    rows = [record.stream_objects, record.retired]
    if isinstance(record, NodeList):
        rows += [record.live, record.prepared]
    return np.concatenate([each["object_id"] for each in rows])


def highest_id(*records: NodeList | StreamBucket) -> int:
    """The highest object id that stands anywhere in lists and buckets; -1 if none does. O(rows)."""
    return max((int(ids_of(each).max(initial=-1)) for each in records), default=-1)


# An import under way

READ_OBJECT: Final = np.dtype(
    [(name, "<i8") for name in ("object_id", "size_bytes", "index_size_bytes", "tail_checksum", "streams")]
)
"""An object that was opened; `streams` says how many rows of ranges are its own."""

READ_RANGE: Final = np.dtype([(name, "<i8") for name in ("stream_id", "start", "end", "holed")])
"""What an object holds of one stream; `holed` is 1 where offsets in between are missing."""


@dataclass(frozen=True, slots=True, eq=False)
class ReadBatch:
    """What the indexes of some objects say.

    Args:
        objects: READ_OBJECT rows, ascending by object id.
        ranges: READ_RANGE rows, those of the first object first.

    Raises:
        ValueError: rows of the wrong type or out of order, or numbers that contradict one another.
    """

    objects: Rows
    ranges: Rows

    def __post_init__(self) -> None:
        for rows, dtype in ((self.objects, READ_OBJECT), (self.ranges, READ_RANGE)):
            _check_type(rows, dtype)
            frozen(rows)
        counts, ids = self.objects["streams"], self.objects["object_id"]
        if (counts < 0).any() or int(counts.sum()) != len(self.ranges):
            raise ValueError(f"expected {counts.tolist()[:5]}... ranges of objects, found {len(self.ranges)} in all")
        if (ids[1:] <= ids[:-1]).any() or any(
            (self.objects[name] < 0).any() for name in self.objects.dtype.names or ()
        ):
            raise ValueError("expected objects ascending by id, and no number below 0")
        ranges = self.ranges
        if (ranges["start"] < 0).any() or (ranges["end"] < ranges["start"]).any() or (ranges["stream_id"] < 0).any():
            raise ValueError("expected ranges of streams that do not end before they start")


@dataclass(frozen=True, slots=True)
class ImportRun:
    """How far an import has come with the counter of object ids, so that it can be led back.

    Args:
        counter_before: what the counter said before it was raised.
        raised_to: what this import, or a repeated one, has raised it to or was about to.
    """

    counter_before: int
    raised_to: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.counter_before < 0 or not all(each > self.counter_before for each in self.raised_to):
            raise ValueError(f"expected a counter that rises, found {self.counter_before} to {self.raised_to}")


def _check_type(rows: Rows, dtype: Dtype) -> None:
    if rows.dtype != dtype or rows.ndim != 1:
        raise ValueError(f"expected rows with the fields {dtype.names}, found {rows.dtype}")


# Bytes

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
