"""Metadata and records as tables of Spark: `spark.read.format("streamset")`.

    from spark_jobs.source import register
    register(spark)
    spark.read.format("streamset").option("table", "stream_ranges").load("s3://bucket/prefix")

    | option           | meaning                                                            | default         |
    |------------------|--------------------------------------------------------------------|-----------------|
    | path             | s3://bucket/prefix of the catalog; the argument of `load`          |                 |
    | table            | one of `accel.tables.TABLES`                                       | objects         |
    | node-id          | only rows of these nodes: numbers with commas between              | all             |
    | object-id        | only rows of these objects                                         | all             |
    | stream-id        | only rows of these streams of the object layer                     | all             |
    | scope, stream    | epochs, segments, cuts: only rows of this scope, of this stream    | all             |
    | push-filters     | true: let Spark pass the conditions of a query, see below          | false           |
    | objects-per-task | the number of objects that one task opens                          | 64 (records: 4) |
    | streams-per-task | epochs, segments, cuts: the number of streams that one task reads  | 64              |
    | endpoint         | an S3 endpoint other than AWS                                      |                 |
    | region, profile  | as in AWS's configuration                                          |                 |
    | client           | boto3 or obstore                                                   | boto3           |

Names of options are case-insensitive. The catalog is read once, when a query is planned; tasks open objects of that
image. The bucket keeps an object that compaction replaces during the query for such readers (an hour by default); a
query that runs longer fails, with an error that names the object.

Conditions of a query (`WHERE stream_id = 7`) also save requests if Spark passes them to the data source, which needs
the option `push-filters` and `spark.sql.python.filterPushdown.enabled`. Both are off by default: up to Spark 4.3 a
DataFrame that was read once with a condition keeps the condition, and returns too few rows when it is used again
without it. With both options on, load a new DataFrame for each query. The options `node-id`, `object-id` and
`stream-id` are always safe.

The table `events`, also for `spark.readStream`, has options of its own: `spark_jobs.event_source`.

`accel.tables` reads the tables; this module divides the work among tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from accel.history.store import StreamStore
from accel.tables.bounds import AllowedIntegers, Bounds, Condition
from accel.tables.history_batches import chosen_streams
from accel.tables.object_batches import Listed
from accel.tables.reading import chosen_objects, history_rows, job_run_rows, object_rows
from accel.tables.schemas import RowSource, TableSchema, table_of
from loaders.errors import KeyMissing
from loaders.layout import ObjectLayout
from loaders.store import StoreSettings
from loaders.store.settings import Client
from spark_jobs.event_source import EVENT_OPTIONS, EventOptions, EventReader, EventStreamReader, flag_of, number_of
from spark_jobs.tasks import StoreSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OBJECTS_A_TASK = {"records": 4}
_OBJECTS_A_TASK_ELSE = 64
_STREAMS_A_TASK = 64

_CHOICES = {"node-id": "node_id", "object-id": "object_id", "stream-id": "stream_id"}
_NAMES = ("scope", "stream")
_OPTIONS = frozenset(
    {
        *("path", "table", "push-filters", "objects-per-task", "streams-per-task"),
        *("endpoint", "region", "profile", "client"),
        *_CHOICES,
        *_NAMES,
        *EVENT_OPTIONS,
    }
)
_NOT_OF_EVENTS = frozenset({"push-filters", "objects-per-task", "streams-per-task"})
_TABLE_PROPERTIES = frozenset(
    {"location", "is_managed_location", "provider", "owner", "external", "comment", "collation"}
)
_OPTION_PREFIX = "option."
_STALE = (
    "a frame of load(), and a view over it, keeps the plan of its first query: load again, or query a table of CREATE "
    "TABLE ... USING streamset, which plans each query anew"
)
_REMEMBERED = "streamset"


def register(spark: SparkSession) -> None:
    """Register the format "streamset" in a session."""
    spark.dataSource.register(StreamSetSource)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of a query.

    Args:
        store: the store of the catalog.
        table: the table to read.
        objects_a_task: the number of objects that one task opens.
        streams_a_task: the number of streams whose histories one task reads.
        chosen: the rows that the options select.
        pushes_filters: whether Spark passes the conditions of a query.
        events: what to read of a stream; None for the other tables.
    """

    store: StoreSpec
    table: TableSchema
    objects_a_task: int
    streams_a_task: int
    chosen: Bounds
    pushes_filters: bool
    events: EventOptions | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SourceOptions:
        """Read and check options.

        Raises:
            ValueError: an unknown option or table, no path, or an invalid number.
        """
        given = _without_properties({name.lower(): value for name, value in options.items()})
        unknown = sorted(given.keys() - _OPTIONS)
        if unknown:
            raise ValueError(f"expected options of {', '.join(sorted(_OPTIONS))}, found {', '.join(unknown)}")
        if "path" not in given:
            raise ValueError('expected a path: .load("s3://bucket/prefix")')
        table = _table(given.get("table", "objects"))
        settings = StoreSettings(
            client=cast("Client", given.get("client", "boto3")),
            endpoint_url=given.get("endpoint"),
            profile=given.get("profile"),
            region=given.get("region"),
        )
        objects = given.get("objects-per-task", str(_OBJECTS_A_TASK.get(table.name, _OBJECTS_A_TASK_ELSE)))
        streams = given.get("streams-per-task", str(_STREAMS_A_TASK))
        chosen, store = _chosen_rows(table, given), StoreSpec(given["path"], settings)
        return cls(
            store,
            table,
            max(1, number_of("objects-per-task", objects)),
            max(1, number_of("streams-per-task", streams)),
            chosen,
            flag_of("push-filters", given, "false"),
            EventOptions.of(store, given) if table.source is RowSource.EVENTS else None,
        )


def _table(name: str) -> TableSchema:
    try:
        return table_of(name)
    except ValueError as error:
        raise ValueError(f"the option table: {error}") from error


def _chosen_rows(table: TableSchema, given: Mapping[str, str]) -> Bounds:
    columns = {option: _CHOICES.get(option, option) for option in (*_CHOICES, *_NAMES) if option in given}
    foreign = [option for option, column in columns.items() if column not in table.columns.names]
    foreign += sorted(given.keys() & (_NOT_OF_EVENTS if table.source is RowSource.EVENTS else EVENT_OPTIONS))
    if foreign:
        raise ValueError(f"table {table.name}: expected options of this table, found {', '.join(foreign)}")
    spans = {column: _chosen(option, given[option]) for option, column in columns.items() if option in _CHOICES}
    texts = {column: frozenset([given[option]]) for option, column in columns.items() if option in _NAMES}
    return Bounds(spans, texts)


def _without_properties(given: dict[str, str]) -> dict[str, str]:
    """The options without the properties that Spark adds for a table of its catalog, created by CREATE TABLE.

    The path of such a table is its location, and each option is repeated as ``option.<name>``.
    """
    if "location" in given and "is_managed_location" not in given:
        given.setdefault("path", given["location"])
    return {
        name: value
        for name, value in given.items()
        if name not in _TABLE_PROPERTIES and not name.startswith(_OPTION_PREFIX)
    }


_SPARK_TYPES: dict[str, DataType] = {
    "int64": LongType(),
    "string": StringType(),
    "bool": BooleanType(),
    "double": DoubleType(),
    "timestamp[us, tz=UTC]": TimestampType(),
    "binary": BinaryType(),
}


class StreamSetSource(DataSource):
    """The data source; created by Spark."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "streamset"

    def schema(self) -> StructType:
        """The columns of the table in the options; the metadata of the first column has the options, see `reader`."""
        given = _without_properties({name.lower(): value for name, value in self.options.items()})
        columns = SourceOptions.of(given).table.columns
        fields = [StructField(column.name, _SPARK_TYPES[str(column.type)]) for column in columns]
        fields[0].metadata = {_REMEMBERED: given}
        return StructType(fields)

    def reader(self, schema: StructType) -> StreamSetReader | EventReader:
        """The reader, which plans a query and reads its partitions.

        Spark passes the options of a table to `schema` only, during CREATE TABLE, and passes none to this method. Spark
        stores the schema, so the options are stored in it.
        """
        options = self._read_options(schema)
        if options.events is not None:
            return EventReader(options.events)
        kind = FilteredReader if options.pushes_filters else StreamSetReader
        return kind(options, options.chosen)

    def streamReader(self, schema: StructType) -> EventStreamReader:  # noqa: N802 - Spark's name
        """The reader of a streaming query."""
        options = self._read_options(schema)
        if options.events is None:
            raise ValueError(f"expected the table events for readStream, found the table {options.table.name}")
        return EventStreamReader(options.events)

    def _read_options(self, schema: StructType) -> SourceOptions:
        return SourceOptions.of(self.options or dict(schema.fields[0].metadata.get(_REMEMBERED, {})))


@dataclass
class ObjectPartition(InputPartition):
    """Objects that one task reads."""

    listed: Listed
    layout: ObjectLayout


@dataclass
class HistoryPartition(InputPartition):
    """Scope and name of the streams whose histories one task reads."""

    names: list[tuple[str, str]]


@dataclass
class StreamSetReader(DataSourceReader):
    """Plans one query in the driver, and reads its partitions in tasks; it is sent from the driver to the tasks."""

    options: SourceOptions
    bounds: Bounds

    def partitions(self) -> Sequence[InputPartition]:
        """List objects or streams, leave out those without requested rows, and divide the others among tasks."""
        table, store = self.options.table, self.options.store.open()
        if table.source is RowSource.HISTORIES:
            names, size = list(chosen_streams(StreamStore.open(store), self.bounds)), self.options.streams_a_task
            return [HistoryPartition(names[at : at + size]) for at in range(0, max(1, len(names)), size)]
        if table.source is RowSource.RUNS:
            return [HistoryPartition([])]
        listed, layout = chosen_objects(store, table, self.bounds)
        size = self.options.objects_a_task if table.source is RowSource.OBJECTS else max(1, len(listed))
        parts = np.array_split(listed, max(1, -(-len(listed) // size)))
        return [ObjectPartition(part, layout) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, batch by batch.

        Raises (while iterating):
            KeyMissing: an object of the plan was deleted since; the message says what to do.
        """
        try:
            yield from self._rows(partition)
        except KeyMissing as error:
            raise KeyMissing(error.operation, error.key, f"{error.detail}; {_STALE}") from error

    def _rows(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        table, store = self.options.table, self.options.store.open()
        if table.source is RowSource.RUNS:
            return job_run_rows(store, table)
        if isinstance(partition, HistoryPartition):
            return self._kept(history_rows(store, table, self.bounds, names=partition.names))
        if isinstance(partition, ObjectPartition):
            return object_rows(store, partition.layout, partition.listed, table, self.bounds)
        raise TypeError(f"expected a partition of objects or of streams, found {type(partition).__name__}")

    def _kept(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows that the options select by a column whose values are unknown before a history is read."""
        chosen = self.options.chosen
        for batch in batches:
            columns = {name: batch[name].fill_null(-1).to_numpy(zero_copy_only=False) for name in chosen.spans}
            yield batch.filter(pa.array(chosen.mask(columns))) if columns else batch


@dataclass
class FilteredReader(StreamSetReader):
    """A reader that receives the conditions of the query; Spark refuses it if filter pushdown is off."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802 - Spark's name
        """Use the query's conditions to save requests; Spark applies all again, so they need not be exact here."""
        self.bounds = self.options.chosen & Bounds.of(_conditions(filters))
        return iter(filters)


_OPERATORS: dict[type[Filter], str] = {
    EqualTo: "=",
    EqualNullSafe: "=",
    In: "in",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}


def _conditions(filters: Iterable[Filter]) -> Iterator[Condition]:
    """Spark's conditions of one column and a value, in the form of `accel.tables.bounds`; others are omitted."""
    for condition in filters:
        path: tuple[str, ...] = getattr(condition, "attribute", ())
        operator = _OPERATORS.get(type(condition))
        if operator is not None and len(path) == 1:
            yield path[0].lower(), operator, getattr(condition, "value", None)


def _chosen(name: str, text: str) -> AllowedIntegers:
    return AllowedIntegers(chosen=frozenset(number_of(name, part.strip()) for part in text.split(",")))
