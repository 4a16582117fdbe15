"""From a store to the rows of a table, in two steps, so that a cluster can divide the second one.

    catalog      chosen_objects: read the list, leave out objects    object_rows: open objects, make batches
    histories    chosen_streams: list streams, leave some out        history_batches: read histories, make batches

Spark's driver runs the first step and its tasks the second; `read_table` runs both, the second while rows are read.

Memory: the list of objects (96 bytes each), 8 opened objects, and one batch: the ranges of an object, 8 MiB of record
batches (or one block, if that is larger), 16,384 rows of a history, 32 MiB of events. It does not grow with the size of
a table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
from pyarrow.parquet import filters_to_expression

from accel.catalog import ObjectCatalog
from accel.catalog.job_runs import read_runs
from accel.history.store import StreamStore
from accel.tables.bounds import Bounds, Condition
from accel.tables.history_batches import chosen_streams, history_batches
from accel.tables.object_batches import (
    Listed,
    OpenedListed,
    block_batch,
    chosen_columns,
    listed_objects,
    object_batch,
    range_batch,
    record_batches,
    ref_of,
)
from accel.tables.schemas import RowSource, TableSchema
from loaders.layout import ObjectLayout
from loaders.object_index import ObjectIndexLoader
from loaders.store import ObjectStore
from loaders.threads import Threads, run_bounded

AT_ONCE = 8
"""The number of objects that are opened in parallel, and of calls of a history that are sent in parallel."""

_KEYS_OF_OBJECTS = ("node_id", "object_id", "order_id")
_KEYS_OF_THE_LIST = (*_KEYS_OF_OBJECTS, "stream_id", "start_offset", "end_offset", "size_bytes", "index_size_bytes")


def chosen_objects(store: ObjectStore, table: TableSchema, bounds: Bounds) -> tuple[Listed, ObjectLayout]:
    """The objects of the current catalog that may have rows, and the layout of their keys.

    Requests: those of opening and reading a catalog.

    Raises:
        CatalogMissing: the store contains no catalog; and as `ObjectCatalog.open`.
    """
    with ObjectCatalog.open(store) as catalog:
        listed = listed_objects(catalog.refresh_state())
        layout = ObjectLayout(namespace=catalog.format.namespace)
    opens = table.source is RowSource.OBJECTS
    listed = listed[bounds.mask(chosen_columns(listed, _KEYS_OF_OBJECTS if opens else _KEYS_OF_THE_LIST))]
    if opens:
        # The stream of an object of one stream is listed; an object of many streams may hold any stream.
        listed = listed[(listed["stream_id"] < 0) | bounds.mask({"stream_id": listed["stream_id"]})]
    return listed, layout


def object_rows(
    store: ObjectStore, layout: ObjectLayout, listed: Listed, table: TableSchema, bounds: Bounds
) -> Iterator[pa.RecordBatch]:
    """The rows of listed objects, a batch for each object or span of blocks.

    Raises:
        KeyMissing: an object is gone: compaction replaced it longer ago than the bucket keeps such objects.
    """
    if table.source is RowSource.CATALOG:
        yield object_batch(listed, layout)
        return
    with _threads() as threads:
        loader = ObjectIndexLoader(store, layout, threads, cache_bytes_max=1)
        opening = run_bounded(lambda row: loader.open(int(row["node_id"]), ref_of(row)).result, listed, AT_ONCE)
        for row, opened in zip(listed, opening, strict=True):
            object_ = OpenedListed(row, opened.result())
            if table.name == "stream_ranges":
                yield range_batch(object_, bounds)
            elif table.name == "blocks":
                yield block_batch(object_, bounds)
            else:
                yield from record_batches(object_, bounds, store, layout)


def history_rows(
    store: ObjectStore,
    table: TableSchema,
    bounds: Bounds,
    *,
    names: Sequence[tuple[str, str]] | None = None,
    needed: Collection[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of histories.

    Args:
        store: the store of the histories.
        table: of histories.
        bounds: streams and epochs without requested rows are not read.
        names: scope and name of the streams; None = all that the bounds allow.
        needed: columns that are used; None = all.
    """
    with _threads() as threads:
        streams = StreamStore.open(store, executor=threads)
        chosen = chosen_streams(streams, bounds) if names is None else names
        columns = table.columns.names if needed is None else needed
        yield from history_batches(streams, chosen, table.name, bounds, columns)


def job_run_rows(store: ObjectStore, table: TableSchema) -> Iterator[pa.RecordBatch]:
    """The recorded runs of jobs, newest first; one batch. Requests: one for the catalog, one a kind.

    Raises:
        CorruptObject, FormatTooNew: the runs of a kind cannot be read.
    """
    with ObjectCatalog.open(store) as catalog:
        found = read_runs(catalog.parts.keys.tables)
    for error in found.unreadable.values():
        raise error
    rows = [
        {**row, "begin_time": _microseconds(row["began_ms"]), "end_time": _microseconds(row["ended_ms"])}
        for row in found.rows()
    ]
    return iter([pa.RecordBatch.from_pylist(rows, schema=table.columns)])


def _microseconds(milliseconds: int | None) -> int | None:
    return None if milliseconds is None else milliseconds * 1000


def read_table(
    store: ObjectStore, table: TableSchema, columns: Sequence[str] | None, filters: Sequence[Condition]
) -> pa.RecordBatchReader:
    """A table as a stream of Arrow batches; see `accel.tables`.

    Raises:
        ValueError: columns or conditions that the table does not support.
        CatalogMissing: the table is of the catalog, and the store contains no catalog.
    """

    def rows(bounds: Bounds, needed: Collection[str]) -> Iterator[pa.RecordBatch]:
        if table.source is RowSource.HISTORIES:
            return history_rows(store, table, bounds, needed=needed)
        if table.source is RowSource.RUNS:
            return job_run_rows(store, table)
        listed, layout = chosen_objects(store, table, bounds)
        return object_rows(store, layout, listed, table, bounds)

    return selected(table, columns, filters, rows)


def selected(
    table: TableSchema,
    columns: Sequence[str] | None,
    filters: Sequence[Condition],
    rows: Callable[[Bounds, Collection[str]], Iterator[pa.RecordBatch]],
) -> pa.RecordBatchReader:
    """Some columns of the rows that fulfil conditions.

    Args:
        table: the table.
        columns: the columns to return; None = all.
        filters: the conditions, joined by AND.
        rows: returns batches with all columns, given the bounds of the conditions and the columns that are used.

    Raises:
        ValueError: columns or conditions that the table does not support.
    """
    schema = table.columns
    chosen = list(schema.names if columns is None else columns)
    used = [*chosen, *(name for name, _, _ in filters)]
    _check_columns(table, used)
    if not chosen:
        raise ValueError(f"expected columns of {', '.join(schema.names)}, found none")
    expression = _expression(table, filters)
    batches = rows(Bounds.of(filters), set(used))
    shown = pa.schema([schema.field(name) for name in chosen])
    return pa.RecordBatchReader.from_batches(shown, _asked(batches, expression, chosen))


def _asked(batches: Iterator[pa.RecordBatch], expression: object, columns: list[str]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        kept = batch if expression is None else batch.filter(expression)
        if len(kept):
            yield kept.select(columns)


def _check_columns(table: TableSchema, names: Sequence[str]) -> None:
    known = table.columns.names
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"table {table.name}: expected columns of {', '.join(known)}, found {', '.join(unknown)}")


def _expression(table: TableSchema, filters: Sequence[Condition]) -> object:
    if not filters:
        return None
    try:
        expression = filters_to_expression(list(filters))
        table.columns.empty_table().filter(expression)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ValueError(
            f"table {table.name}: expected conditions on its columns, found {filters!r}: {error}"
        ) from error
    return expression


@contextmanager
def _threads() -> Iterator[Threads]:
    threads = Threads(AT_ONCE, "accel-tables")
    try:
        yield threads
    finally:
        threads.shutdown(wait=False, cancel_futures=True)  # not waited for: see `accel.catalog.parts`
