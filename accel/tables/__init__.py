"""The metadata as Arrow tables, without Spark and Java: for pandas, DuckDB, Polars and other programs that read Arrow.

    from accel import open_store, tables

    reader = tables.stream_ranges(open_store("s3://bucket/prefix"), filters=[("stream_id", "=", 420000)])
    reader.read_pandas()                                             or reader.read_all(), or batch by batch

| function        | a row is                                                                                    |
|-----------------|---------------------------------------------------------------------------------------------|
| `objects`       | an object that the catalog lists                                                            |
| `stream_ranges` | a stream in an object                                                                       |
| `blocks`        | a row of an object's block index                                                            |
| `records`       | a record batch                                                                              |
| `epochs`        | an epoch of a stream's history                                                              |
| `segments`      | a segment of a stream's history; `stream_id` joins it with the first four                   |
| `cuts`          | a segment in a recorded cut (kind `recorded`), or in the cut that its stream begins with    |
|                 | (kind `head`)                                                                               |
| `events`        | an event of one stream, between two cuts or times                                           |
| `job_runs`      | a recorded run of compact, build-hints or gc                                                |

Columns, and the requests of each table: `accel.tables.schemas`; the meanings of the columns are in the site's
reference, made by tests/docs/metadata_tables.py. docs/how-to/querying.md shows how to use the tables. All functions
take

    store       the store of the catalog; `open_store` opens one from a URL
    columns     the columns to return, in this order; None = all. Without `stream_id` and `size`, `segments` sends no
                requests for these columns
    filters     conditions, joined by AND, as for Parquet readers: [("stream_id", "=", 7), ("epoch", ">", 2)];
                operators =, ==, !=, <, <=, >, >=, in, not in. Ids, offsets, scopes, streams and epochs that they
                exclude are not read (`accel.tables.bounds`); the returned rows fulfil all conditions

and return a `pyarrow.RecordBatchReader`. It is lazy, and its memory does not grow with the table
(`accel.tables.reading`). A table of the catalog reads the catalog once, at the call: its rows are of one image. An
object that compaction replaces meanwhile is kept in the bucket for some time (an hour by default); after that, a reader
that still needs the object raises KeyMissing. Tables of histories list streams while rows are read. The cuts of
`events` are fixed at the call; its objects are looked up while rows are read, so that compaction does not matter.

The functions raise ValueError (columns or conditions that the table does not support) and CatalogMissing at the call,
and errors of the store while rows are read. pandas, DuckDB and Polars may replace errors of the store by their own
exceptions, with the same text.

Threads: one thread at a time may use a reader. Needs pyarrow, which the extra `arrow` installs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    import pyarrow as pa
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"tables of Arrow need pyarrow, which is not installed: pip install 'accel-streams[arrow]' ({error})",
        name=error.name,
    ) from error

from accel.tables.event_batches import read_events
from accel.tables.reading import read_table
from accel.tables.schemas import TABLES, TableSchema, table_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from accel.history.rules.values import Cut
    from accel.tables.bounds import Condition
    from loaders.store import ObjectStore

__all__ = [
    "TABLES",
    "TableSchema",
    "blocks",
    "cuts",
    "epochs",
    "events",
    "job_runs",
    "objects",
    "records",
    "segments",
    "stream_ranges",
    "table_of",
]


def objects(
    store: ObjectStore, *, columns: Sequence[str] | None = None, filters: Sequence[Condition] = ()
) -> pa.RecordBatchReader:
    """The objects that the catalog lists. Requests: those of the catalog."""
    return read_table(store, TABLES["objects"], columns, filters)


def stream_ranges(
    store: ObjectStore, *, columns: Sequence[str] | None = None, filters: Sequence[Condition] = ()
) -> pa.RecordBatchReader:
    """The offsets of each stream in each object. Requests: those of the catalog, 1 an object."""
    return read_table(store, TABLES["stream_ranges"], columns, filters)


def blocks(
    store: ObjectStore, *, columns: Sequence[str] | None = None, filters: Sequence[Condition] = ()
) -> pa.RecordBatchReader:
    """The rows of each object's block index. Requests: those of the catalog, 1 an object."""
    return read_table(store, TABLES["blocks"], columns, filters)


def records(
    store: ObjectStore, *, columns: Sequence[str] | None = None, filters: Sequence[Condition] = ()
) -> pa.RecordBatchReader:
    """The record batches. Requests: those of the catalog, 1 an object, 1 for 8 MiB of blocks that may have rows."""
    return read_table(store, TABLES["records"], columns, filters)


def epochs(
    store: ObjectStore, *, columns: Sequence[str] | None = None, filters: Sequence[Condition] = ()
) -> pa.RecordBatchReader:
    """The epochs of all streams. Requests: 5 a stream, 1 for 1,000 epochs, 1 a duplicate."""
    return read_table(store, TABLES["epochs"], columns, filters)


def segments(
    store: ObjectStore, *, columns: Sequence[str] | None = None, filters: Sequence[Condition] = ()
) -> pa.RecordBatchReader:
    """The segments of all streams. Requests: as `epochs`; 1 a segment for `stream_id`, 1 a shard for `size`."""
    return read_table(store, TABLES["segments"], columns, filters)


def cuts(
    store: ObjectStore, *, columns: Sequence[str] | None = None, filters: Sequence[Condition] = ()
) -> pa.RecordBatchReader:
    """The recorded cuts of all streams, and the cut that each stream begins with. Requests: 7 a stream, 1 a cut."""
    return read_table(store, TABLES["cuts"], columns, filters)


def events(  # noqa: PLR0913 - a stream and its two ends, beside what all tables take
    store: ObjectStore,
    scope: str,
    stream: str,
    *,
    from_cut: Cut | None = None,
    to_cut: Cut | None = None,
    from_time_ms: int | None = None,
    to_time_ms: int | None = None,
    columns: Sequence[str] | None = None,
    filters: Sequence[Condition] = (),
) -> pa.RecordBatchReader:
    """The events of a stream: segment by segment, ascending, those of each segment in order.

    They are those that `StreamReader` returns between the same cuts, read as columns. Requests: about 20 for the cuts,
    1 a segment, and those of `ReadAccelerator.read`; for a time also those of `accel.streams.segment_source.cut_at`.

    Args:
        store: the store of the catalog.
        scope, stream: scope and name of the stream.
        from_cut: where to begin; None = at the stream's head.
        to_cut: where to end; None = at the end of its durable data now.
        from_time_ms: begin at the last cut after which all events of this time or later are; milliseconds since 1970.
            Events of a segment are in order, so a few earlier ones may follow this cut only after a clock was wrong.
        to_time_ms: end at the cut of this time.
        columns, filters: as for the other tables. Conditions on `segment` and `offset` save requests.

    Raises:
        ValueError: a cut and a time for one end; columns or conditions that the table does not support.
        InvalidArgument: an invalid cut or time, or an end before the start.
        NotInHistory: no such stream, or a cut of another stream.
        PositionBeyondEnd: a cut is after the end of a segment.
        PositionTruncated: the stream begins after `from_cut`; also while rows are read, if it is truncated meanwhile.
        CatalogMissing: the store contains no catalog.
    """
    places = [_place("from", from_cut, from_time_ms), _place("to", to_cut, to_time_ms)]
    return read_events(store, (scope, stream), places, columns, filters)


def _place(name: str, cut: Cut | None, time_ms: int | None) -> Cut | int | None:
    if cut is not None and time_ms is not None:
        raise ValueError(f"expected {name}_cut or {name}_time_ms, found both")
    return time_ms if cut is None else cut


def job_runs(
    store: ObjectStore, *, columns: Sequence[str] | None = None, filters: Sequence[Condition] = ()
) -> pa.RecordBatchReader:
    """The last 100 runs of each job that the catalog records. Requests: 4."""
    return read_table(store, TABLES["job_runs"], columns, filters)
