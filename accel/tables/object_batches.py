"""The objects that a catalog lists, as one array; listed and opened objects as Arrow batches, column by column.

    node_id  object_id  order_id  kind  stream_id  start_offset  end_offset  sizes, attributes, time
    4        0          0         set   -1         -1            -1          ...
    4        17         -1        one   420000     0             900         ...

An object of one stream has no order id, and the catalog contains its range; the ranges of an object of many streams are
only in the object's index.

    listed objects                    -> objects
    an object's index                 -> stream_ranges, blocks
    an object's index and its blocks  -> records

Rows that the bounds of the query exclude are left out as early as possible: whole blocks before they are fetched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from accel.catalog.records import Rows
from accel.catalog.refresh import CatalogState
from accel.tables.bounds import Bounds
from loaders.format import decode_block_bytes
from loaders.format.index import join_spans
from loaders.layout import ObjectLayout
from loaders.object_index import OpenedObject
from loaders.object_ref import ObjectRef
from loaders.store import ObjectStore

NOTHING: Final = -1
"""The value of a column that does not apply to an object."""

STREAM_SET, STREAM = 0, 1

LISTED: Final = np.dtype(
    [
        (name, "<i8")
        for name in (
            "node_id",
            "object_id",
            "order_id",
            "kind",
            "stream_id",
            "start_offset",
            "end_offset",
            "size_bytes",
            "index_size_bytes",
            "attributes",
            "tail_checksum",
            "data_time_ms",
        )
    ]
)
"""One listed object."""

_FACTS = ("object_id", "size_bytes", "index_size_bytes", "attributes", "tail_checksum", "data_time_ms")
"""The columns that the catalog has for objects of both kinds."""

Listed: TypeAlias = NDArray[np.void]


def listed_objects(state: CatalogState) -> Listed:
    """All live objects of a catalog, ascending by node, kind, and order or stream and offset. No loop over objects."""
    lists = state.node_lists()
    sets = [_sets(node_id, node_list.live) for node_id, node_list in sorted(lists.items())]
    waiting = [node_list.stream_objects for node_list in lists.values()]
    ones = [_ones(rows) for rows in (*(seen.value.stream_objects for seen in state.shards), *waiting)]
    listed = np.concatenate([np.empty(0, dtype=LISTED), *sets, _each_once(ones)])
    ordered: Listed = listed[np.lexsort([listed[name] for name in ("start_offset", "order_id", "kind", "node_id")])]
    return ordered


def chosen_columns(listed: Listed, names: Sequence[str]) -> Mapping[str, NDArray[np.int64]]:
    """Some columns by name, to apply bounds to."""
    return {name: listed[name] for name in names}


def ref_of(row: np.void) -> ObjectRef:
    """The object of a row, in the form for loaders."""
    facts = int(row["attributes"]), int(row["tail_checksum"])
    return ObjectRef(int(row["object_id"]), int(row["size_bytes"]), int(row["index_size_bytes"]), *facts)


def _sets(node_id: int, live: Rows) -> Listed:
    rows = np.full(len(live), NOTHING, dtype=LISTED)
    for name in _FACTS:
        rows[name] = live[name]
    rows["order_id"] = live["order_id"]
    rows["node_id"], rows["kind"] = node_id, STREAM_SET
    return rows


def _ones(stream_objects: Rows) -> Listed:
    rows = np.full(len(stream_objects), NOTHING, dtype=LISTED)
    for name in ("node_id", "stream_id", *_FACTS):
        rows[name] = stream_objects[name]
    rows["kind"], rows["start_offset"], rows["end_offset"] = STREAM, stream_objects["start"], stream_objects["end"]
    return rows


def _each_once(parts: Sequence[Listed]) -> Listed:
    """Each object once: an object that is being moved from a list to its stream shard is in both for a while."""
    rows = np.concatenate([np.empty(0, dtype=LISTED), *parts])
    _, first = np.unique(rows["object_id"], return_index=True)
    once: Listed = rows[first]
    return once


SPAN_SIZE_BYTES = 8 << 20
"""The maximum bytes of blocks that one request fetches; also about the size of one batch of records."""

KINDS = ("stream_set", "stream")

Columns = Mapping[str, NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class OpenedListed:
    """A listed object that was opened."""

    row: np.void
    opened: OpenedObject

    def facts(self, count: int, *, with_kind: bool) -> dict[str, pa.Array]:
        """The columns that identify the object, for `count` rows."""
        facts = {name: _repeated(int(self.row[name]), count) for name in ("node_id", "object_id")}
        facts["order_id"] = _repeated(_optional(int(self.row["order_id"])), count)
        if with_kind:
            facts["kind"] = pa.repeat(pa.scalar(KINDS[int(self.row["kind"])]), count)
        return facts


def object_batch(listed: Listed, layout: ObjectLayout) -> pa.RecordBatch:
    """Rows of the table `objects`."""
    keys = [layout.object_key(object_id) for object_id in listed["object_id"].tolist()]
    is_set = listed["kind"] == STREAM_SET
    millis = pa.array(listed["data_time_ms"] * 1000, mask=listed["data_time_ms"] < 0)
    return pa.RecordBatch.from_pydict(
        {
            "node_id": pa.array(listed["node_id"]),
            "object_id": pa.array(listed["object_id"]),
            "order_id": pa.array(listed["order_id"], mask=~is_set),
            "kind": pa.array([KINDS[number] for number in listed["kind"].tolist()], pa.string()),
            "stream_id": pa.array(listed["stream_id"], mask=is_set),
            "start_offset": pa.array(listed["start_offset"], mask=is_set),
            "end_offset": pa.array(listed["end_offset"], mask=is_set),
            "size_bytes": pa.array(listed["size_bytes"], mask=listed["size_bytes"] < 0),
            "index_size_bytes": pa.array(listed["index_size_bytes"], mask=listed["index_size_bytes"] < 0),
            "data_time": millis.cast(pa.timestamp("us", tz="UTC")),
            "key": pa.array(keys, pa.string()),
        }
    )


def range_batch(listed: OpenedListed, bounds: Bounds) -> pa.RecordBatch:
    """Rows of the table `stream_ranges` of one object. No loop over streams."""
    ranges, rows = listed.opened.ranges, listed.opened.index.rows
    begins = np.searchsorted(rows["stream_id"].astype(np.int64), ranges.stream_ids)
    holed = np.zeros(len(ranges), dtype=np.bool_)
    holed[ranges.holed] = True
    columns = {
        "stream_id": ranges.stream_ids,
        "start_offset": ranges.starts,
        "end_offset": ranges.ends,
        "data_size_bytes": _sums(rows["size_bytes"], begins),
        "record_count": _sums(rows["record_count"], begins),
    }
    allowed = bounds.mask(columns)
    told = {name: pa.array(column[allowed]) for name, column in columns.items()}
    facts = listed.facts(int(allowed.sum()), with_kind=True)
    names = ("stream_id", "start_offset", "end_offset")
    return pa.RecordBatch.from_pydict(
        {
            **facts,
            **{name: told[name] for name in names},
            "holed": pa.array(holed[allowed]),
            "data_size_bytes": told["data_size_bytes"],
            "record_count": told["record_count"],
        }
    )


def block_batch(listed: OpenedListed, bounds: Bounds) -> pa.RecordBatch:
    """Rows of the table `blocks` of one object. No loop over blocks."""
    numbers = _row_numbers(listed.opened, bounds)
    columns = _block_columns(listed.opened, numbers)
    return pa.RecordBatch.from_pydict(
        {
            **listed.facts(len(numbers), with_kind=True),
            **{name: pa.array(column) for name, column in columns.items()},
            "holder_id": pa.array(_holders(listed.opened)[numbers]),
        }
    )


def record_batches(
    listed: OpenedListed, bounds: Bounds, store: ObjectStore, layout: ObjectLayout
) -> Iterator[pa.RecordBatch]:
    """Rows of the table `records` of one object: one batch for each span of blocks that a request fetches."""
    holders = _holders(listed.opened)
    for numbers in _spans(listed.opened, _row_numbers(listed.opened, bounds), holders):
        yield _records_of(listed, numbers, int(holders[numbers[0]]), bounds, store, layout)


def _records_of(
    listed: OpenedListed,
    numbers: list[int],
    holder: int,
    bounds: Bounds,
    store: ObjectStore,
    layout: ObjectLayout,
) -> pa.RecordBatch:
    rows = [listed.opened.index.row(number) for number in numbers]
    start, end = rows[0].position, rows[-1].position + rows[-1].size_bytes
    key = layout.object_key(holder)
    fetched = store.get_range(key, start, end)
    body = memoryview(fetched.body)
    batches = [
        batch
        for row in rows
        for batch in decode_block_bytes(
            body[row.position - start : row.position - start + row.size_bytes],
            row,
            key=key,
            object_size_bytes=fetched.object_size_bytes,
        )
    ]
    columns = {
        "stream_id": np.array([batch.stream_id for batch in batches], dtype=np.int64),
        "start_offset": np.array([batch.base_offset for batch in batches], dtype=np.int64),
        "end_offset": np.array([batch.end_offset for batch in batches], dtype=np.int64),
        "epoch": np.array([batch.epoch for batch in batches], dtype=np.int64),
    }
    allowed = np.flatnonzero(bounds.mask(columns))
    kept = [batches[number] for number in allowed.tolist()]
    return pa.RecordBatch.from_pydict(
        {
            **listed.facts(len(kept), with_kind=False),
            **{name: pa.array(column[allowed]) for name, column in columns.items()},
            "is_link": pa.array([batch.is_link for batch in kept], pa.bool_()),
            "payload": pa.array([batch.payload for batch in kept], pa.binary()),
        }
    )


def _row_numbers(opened: OpenedObject, bounds: Bounds) -> NDArray[np.int64]:
    """The index rows of blocks that may have requested rows."""
    rows = opened.index.rows
    starts = rows["start"].astype(np.int64)
    ends = starts + rows["end_delta"]
    spans = bounds.spans
    allowed = bounds.mask({"stream_id": rows["stream_id"].astype(np.int64)})
    # Batches of a block begin at or after its start and end at or before its end, and so do their bounds.
    if "start_offset" in spans:
        allowed &= starts <= spans["start_offset"].high
        allowed &= ends >= spans["start_offset"].low
    if "end_offset" in spans:
        allowed &= ends >= spans["end_offset"].low
        allowed &= starts <= spans["end_offset"].high
    numbers: NDArray[np.int64] = np.flatnonzero(allowed)
    return numbers


def _block_columns(opened: OpenedObject, numbers: NDArray[np.int64]) -> Columns:
    rows = opened.index.rows[numbers]
    starts = rows["start"].astype(np.int64)
    return {
        "stream_id": rows["stream_id"].astype(np.int64),
        "start_offset": starts,
        "end_offset": starts + rows["end_delta"],
        "record_count": rows["record_count"].astype(np.int64),
        "position": rows["position"].astype(np.int64),
        "size_bytes": rows["size_bytes"].astype(np.int64),
    }


def _holders(opened: OpenedObject) -> NDArray[np.int64]:
    """For each row of the index, the id of the object that contains its block: for a composite object, a linked one."""
    if opened.composite is None:
        return np.full(len(opened.index), opened.ref.object_id, dtype=np.int64)
    links = opened.composite.links
    firsts = np.array([link.first_row for link in links], dtype=np.int64)
    ids = np.array([link.object_id for link in links], dtype=np.int64)
    at = np.searchsorted(firsts, np.arange(len(opened.index)), side="right") - 1
    holders: NDArray[np.int64] = ids[at]
    return holders


def _spans(opened: OpenedObject, numbers: NDArray[np.int64], holders: NDArray[np.int64]) -> Iterator[list[int]]:
    """Groups of adjacent rows in one object, each up to the size of a span (or one row, if that is larger)."""
    rows = opened.index.rows[numbers]
    starts = rows["position"].astype(np.int64)
    ends = starts + rows["size_bytes"]
    for first, stop in join_spans(starts, ends, holders[numbers], span_size_bytes_max=SPAN_SIZE_BYTES):
        yield numbers[first:stop].tolist()


def _sums(column: NDArray[np.int32], begins: NDArray[np.int64]) -> NDArray[np.int64]:
    sums: NDArray[np.int64] = np.add.reduceat(column.astype(np.int64), begins) if len(begins) else begins
    return sums


def _repeated(value: int | None, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.int64()), count)


def _optional(value: int) -> int | None:
    return None if value < 0 else value
