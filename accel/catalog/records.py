"""The records that the catalog keeps, one a key of its tables, and their bytes.

    NodeList            what a node has: live objects in order, prepared ids, retired objects
    ListVersion         a node's list as it was, so that a bad commit can be undone
    StreamShard        a part of all streams: first offsets, owners, objects of their own
    Checkpoint          where a node's streams ended some commits ago
    NodeDirectory       which nodes have a list
    ObjectIdCounter     the next id that no object has
    ReadBatch           of an import: the indexes of neighbouring objects, so that a repeated import does not read them
    ImportRun           of an import: what the counter of object ids said before it

A record holds arrays of rows (see `rows`). It takes them over and makes them read-only; a change of a list or a bucket
makes a new one (`node_list`, `stream_shards`). Making a record checks that its rows stand in their order, because all
searches rely on it. That is O(n), and checks order and types only; what else must be true, `check_list` and
`check_shard` look at.

The bytes follow from the annotations (`loaders.tables.records`): numbers and names stand as MessagePack fields, rows
as packed columns. Every field with its unit, and which release writes which version: docs/formats.md, "Records". A list
of 5,000 objects takes about 64 kB, 20 kB of it checksums of tails. How many rows a value can become follows from its
bytes (`loaders.tables.columns`), or from its key: a directory has 65,536 nodes.

Threads: all records are immutable, any thread may read them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import numpy as np
from msgspec import Meta
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
from loaders.tables.columns import ROWS_MAX
from loaders.tables.format_record import check_generation
from loaders.tables.records import Columns, Listed, RecordForm

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
    live: Annotated[Rows, Columns(LIVE)] = field(default_factory=lambda: no_rows(LIVE))
    prepared: Annotated[Rows, Columns(PREPARED)] = field(default_factory=lambda: no_rows(PREPARED))
    retired: Annotated[Rows, Columns(RETIRED)] = field(default_factory=lambda: no_rows(RETIRED))
    stream_objects: Annotated[Rows, Columns(STREAM_OBJECT)] = field(default_factory=lambda: no_rows(STREAM_OBJECT))
    withdrawn_commits: Annotated[tuple[int, ...], Meta(max_length=ROWS_MAX)] = ()

    @property
    def where(self) -> str:
        """Names it in errors."""
        return f"list of node {self.node_id}"

    def __post_init__(self) -> None:
        where = self.where
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
class StreamShard:
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
    streams: Annotated[Rows, Columns(STREAM)] = field(default_factory=lambda: no_rows(STREAM))
    ranges: Annotated[Rows, Columns(OWNED_RANGE)] = field(default_factory=lambda: no_rows(OWNED_RANGE))
    stream_objects: Annotated[Rows, Columns(STREAM_OBJECT)] = field(default_factory=lambda: no_rows(STREAM_OBJECT))
    retired: Annotated[Rows, Columns(RETIRED_STREAM_OBJECT)] = field(
        default_factory=lambda: no_rows(RETIRED_STREAM_OBJECT)
    )

    @property
    def where(self) -> str:
        """Names it in errors."""
        return f"bucket {self.bucket}"

    def __post_init__(self) -> None:
        where = f"{self.where} of streams"
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
    ends: Annotated[Rows, Columns(STREAM_END)] = field(default_factory=lambda: no_rows(STREAM_END))

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

    node_ids: Annotated[NDArray[np.int64], Listed(NODES_MAX)] = field(
        default_factory=lambda: np.empty(0, dtype=np.int64)
    )
    generation: Annotated[str, Meta(max_length=47)] = ""

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


def ids_of(record: NodeList | StreamShard) -> NDArray[np.int64]:
    """All object ids that stand in a list or a bucket, in no order. O(rows)."""
    rows = [record.stream_objects, record.retired]
    if isinstance(record, NodeList):
        rows += [record.live, record.prepared]
    return np.concatenate([some_rows["object_id"] for some_rows in rows])


def highest_id(*records: NodeList | StreamShard) -> int:
    """The highest object id that stands anywhere in lists and buckets; -1 if none does. O(rows)."""
    return max((int(ids_of(record).max(initial=-1)) for record in records), default=-1)


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

    objects: Annotated[Rows, Columns(READ_OBJECT)]
    ranges: Annotated[Rows, Columns(READ_RANGE)]

    def __post_init__(self) -> None:
        _take_over("read batch", objects=(self.objects, READ_OBJECT), ranges=(self.ranges, READ_RANGE))
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
    raised_to: Annotated[tuple[int, ...], Meta(max_length=ROWS_MAX)]

    def __post_init__(self) -> None:
        if self.counter_before < 0 or not all(number > self.counter_before for number in self.raised_to):
            raise ValueError(f"expected a counter that rises, found {self.counter_before} to {self.raised_to}")


NODE_LIST: Final = RecordForm("node-list", 1, NodeList)
LIST_VERSION: Final = RecordForm("list-version", 1, ListVersion)
STREAM_BUCKET: Final = RecordForm("stream-bucket", 1, StreamShard)
CHECKPOINT: Final = RecordForm("node-checkpoint", 1, Checkpoint)
NODE_DIRECTORY: Final = RecordForm("node-directory", 1, NodeDirectory)
OBJECT_ID_COUNTER: Final = RecordForm("object-id-counter", 1, ObjectIdCounter)
IMPORT_BATCH: Final = RecordForm("import-batch", 1, ReadBatch)
IMPORT_RUN: Final = RecordForm("import-run", 1, ImportRun)

ALL_FORMS: Final[tuple[RecordForm[Any], ...]] = (
    NODE_LIST,
    LIST_VERSION,
    STREAM_BUCKET,
    CHECKPOINT,
    NODE_DIRECTORY,
    OBJECT_ID_COUNTER,
    IMPORT_BATCH,
    IMPORT_RUN,
)


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
