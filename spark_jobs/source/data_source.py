"""The metadata as tables of Spark: `spark.read.format("streamset")`.

    from spark_jobs.source import register
    register(spark)
    spark.read.format("streamset").option("table", "stream_ranges").load("s3://bucket/prefix")

    | option           | meaning                                                            | default         |
    |------------------|--------------------------------------------------------------------|-----------------|
    | path             | s3://bucket/prefix, where the catalog lies; the argument of `load` |                 |
    | table            | one of `accel.tables.TABLES`                                       | objects         |
    | node-id          | only rows of these nodes: numbers with commas between              | all             |
    | object-id        | only rows of these objects                                         | all             |
    | stream-id        | only rows of these streams of the object layer                     | all             |
    | scope, stream    | epochs, segments, cuts: only rows of this scope, of this stream    | all             |
    | push-filters     | true: let Spark hand over the conditions of a query, see below     | false           |
    | objects-per-task | how many objects one task opens                                    | 64 (records: 4) |
    | streams-per-task | epochs, segments, cuts: of how many streams one task reads         | 64              |
    | endpoint         | an S3 endpoint other than AWS                                      |                 |
    | region, profile  | as AWS's configuration has them                                    |                 |
    | client           | boto3 or obstore                                                   | boto3           |

Names of options are read without regard to case. The catalog is read once, when a query is planned; tasks open objects
of that one image. An object that compaction replaces meanwhile is still there for the time that the bucket keeps it for
such readers (an hour by default), so long queries are safe up to that; one that runs longer fails, and says of which
object.

Conditions of a query (`WHERE stream_id = 7`) spare requests, too, where Spark hands them over: that takes the option
`push-filters` and `spark.sql.python.filterPushdown.enabled`. Both are off by default, and for a reason: up to Spark 4.3
a DataFrame that was read once with a condition keeps it, and gives too few rows when it is used again without one. So
who turns them on loads a DataFrame anew for each query. The options `node-id`, `object-id` and `stream-id` are always
safe.

What is read, and how, is `accel.tables`: this module divides it among tasks.
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
from accel.tables.listing import Listed
from accel.tables.reading import chosen_objects, history_rows, object_rows
from accel.tables.schemas import RowSource, TableSchema, table_of
from loaders.layout import ObjectLayout
from loaders.store import S3Settings
from loaders.store.open import Client
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
    }
)
_TABLE_PROPERTIES = frozenset(
    {"location", "is_managed_location", "provider", "owner", "external", "comment", "collation"}
)
_OPTION_PREFIX = "option."
_REMEMBERED = "streamset"


def register(spark: SparkSession) -> None:
    """Make the format "streamset" known to a session."""
    spark.dataSource.register(StreamSetSource)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What the options of a query say.

    Args:
        store: where the catalog lies.
        table: which table.
        objects_a_task: how many objects one task opens.
        streams_a_task: the histories of how many streams one task reads.
        chosen: the rows that are wanted, as the options have it.
        pushes_filters: whether Spark hands over the conditions of a query.
    """

    store: StoreSpec
    table: TableSchema
    objects_a_task: int
    streams_a_task: int
    chosen: Bounds
    pushes_filters: bool

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SourceOptions:
        """Read and check options.

        Raises:
            ValueError: an unknown option or table, no path, or a number that is none.
        """
        given = _without_properties({name.lower(): value for name, value in options.items()})
        unknown = sorted(given.keys() - _OPTIONS)
        if unknown:
            raise ValueError(f"expected options of {', '.join(sorted(_OPTIONS))}, found {', '.join(unknown)}")
        if "path" not in given:
            raise ValueError('expected a path: .load("s3://bucket/prefix")')
        table = _table(given.get("table", "objects"))
        settings = S3Settings(
            client=cast("Client", given.get("client", "boto3")),
            endpoint_url=given.get("endpoint"),
            profile=given.get("profile"),
            region=given.get("region"),
        )
        pushes = _flag("push-filters", given.get("push-filters", "false"))
        objects = given.get("objects-per-task", str(_OBJECTS_A_TASK.get(table.name, _OBJECTS_A_TASK_ELSE)))
        streams = given.get("streams-per-task", str(_STREAMS_A_TASK))
        return cls(
            StoreSpec(given["path"], settings),
            table,
            max(1, _number("objects-per-task", objects)),
            max(1, _number("streams-per-task", streams)),
            _chosen_rows(table, given),
            pushes,
        )


def _table(name: str) -> TableSchema:
    try:
        return table_of(name)
    except ValueError as error:
        raise ValueError(f"the option table: {error}") from error


def _chosen_rows(table: TableSchema, given: Mapping[str, str]) -> Bounds:
    columns = {option: _CHOICES.get(option, option) for option in (*_CHOICES, *_NAMES) if option in given}
    foreign = [option for option, column in columns.items() if column not in table.columns.names]
    if foreign:
        raise ValueError(f"table {table.name}: expected options of its columns, found {', '.join(foreign)}")
    spans = {column: _chosen(option, given[option]) for option, column in columns.items() if option in _CHOICES}
    texts = {column: frozenset([given[option]]) for option, column in columns.items() if option in _NAMES}
    return Bounds(spans, texts)


def _without_properties(given: dict[str, str]) -> dict[str, str]:
    """The options without what Spark adds for a table of its catalog, made by CREATE TABLE: its properties.

    The path of such a table is its location, and each option comes a second time as ``option.<name>``.
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
    """The data source; Spark makes it."""

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return "streamset"

    def schema(self) -> StructType:
        """The columns of the table that the options name; the first one remembers the options, see `reader`."""
        given = _without_properties({name.lower(): value for name, value in self.options.items()})
        columns = SourceOptions.of(given).table.columns
        fields = [StructField(column.name, _SPARK_TYPES[str(column.type)]) for column in columns]
        fields[0].metadata = {_REMEMBERED: given}
        return StructType(fields)

    def reader(self, schema: StructType) -> StreamSetReader:
        """What plans a query, and reads its partitions.

        Spark gives the options of a table that was made by CREATE TABLE to `schema` alone, when it is made, and none
        here. What Spark keeps is the schema, so that is where they are remembered.
        """
        given = self.options or dict(schema.fields[0].metadata.get(_REMEMBERED, {}))
        options = SourceOptions.of(given)
        kind = FilteredReader if options.pushes_filters else StreamSetReader
        return kind(options, options.chosen)


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
    """Plans one query in the driver, and reads its partitions in tasks; it travels from one to the others."""

    options: SourceOptions
    bounds: Bounds

    def partitions(self) -> Sequence[InputPartition]:
        """List objects or streams, leave out those that no row is asked of, and divide the others among tasks."""
        table, store = self.options.table, self.options.store.open()
        if table.source is RowSource.HISTORIES:
            names, size = list(chosen_streams(StreamStore.open(store), self.bounds)), self.options.streams_a_task
            return [HistoryPartition(names[at : at + size]) for at in range(0, max(1, len(names)), size)]
        listed, layout = chosen_objects(store, table, self.bounds)
        size = self.options.objects_a_task if table.source is RowSource.OBJECTS else max(1, len(listed))
        parts = np.array_split(listed, max(1, -(-len(listed) // size)))
        return [ObjectPartition(part, layout) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, batch by batch."""
        table, store = self.options.table, self.options.store.open()
        if isinstance(partition, HistoryPartition):
            return self._kept(history_rows(store, table, self.bounds, names=partition.names))
        if isinstance(partition, ObjectPartition):
            return object_rows(store, partition.layout, partition.listed, table, self.bounds)
        raise TypeError(f"expected a partition of objects or of streams, found {type(partition).__name__}")

    def _kept(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows that options choose by a column which is not known before a history is read."""
        chosen = self.options.chosen
        for batch in batches:
            columns = {name: batch[name].fill_null(-1).to_numpy(zero_copy_only=False) for name in chosen.spans}
            yield batch.filter(pa.array(chosen.mask(columns))) if columns else batch


@dataclass
class FilteredReader(StreamSetReader):
    """One that is told the conditions of the query; Spark refuses it where handing them over is not turned on."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802 - Spark's name
        """Take what the query asks of its columns; Spark applies all of it again, so nothing rests on it here."""
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
    """Those of Spark's conditions that have one column and a value, in the words of `accel.tables.bounds`."""
    for condition in filters:
        path: tuple[str, ...] = getattr(condition, "attribute", ())
        operator = _OPERATORS.get(type(condition))
        if operator is not None and len(path) == 1:
            yield path[0].lower(), operator, getattr(condition, "value", None)


def _chosen(name: str, text: str) -> AllowedIntegers:
    return AllowedIntegers(chosen=frozenset(_number(name, part) for part in text.split(",")))


def _flag(name: str, text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError(f"expected the option {name} to be true or false, found {text!r}")
    return text.lower() == "true"


def _number(name: str, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise ValueError(f"expected the option {name} to have numbers of at least 0, found {text!r}")
    return number
