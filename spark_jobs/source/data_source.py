"""The metadata as tables of Spark: `spark.read.format("streamset")`.

    from spark_jobs.source import register
    register(spark)
    spark.read.format("streamset").option("table", "stream_ranges").load("s3://bucket/prefix")

    | option           | meaning                                                            | default         |
    |------------------|--------------------------------------------------------------------|-----------------|
    | path             | s3://bucket/prefix, where the catalog lies; the argument of `load` |                 |
    | table            | objects, stream_ranges, blocks or records; see `TABLES`           | objects         |
    | node-id          | only rows of these nodes: numbers with commas between              | all             |
    | object-id        | only rows of these objects                                         | all             |
    | stream-id        | only rows of these streams                                         | all             |
    | push-filters     | true: let Spark hand over the conditions of a query, see below     | false           |
    | objects-per-task | how many objects one task opens                                    | 64 (records: 4) |
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
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from accel.catalog import ObjectCatalog
from loaders.layout import ObjectLayout
from loaders.object_index import ObjectIndexLoader
from loaders.store import S3Settings
from loaders.store.open import Client
from spark_jobs.source.batches import OpenedListed, block_batch, object_batch, range_batch, record_batches
from spark_jobs.source.listing import AllowedIntegers, Bounds, Listed, chosen_columns, listed_objects, ref_of
from spark_jobs.tasks import StoreSpec

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


OBJECT_COLUMNS = "node_id BIGINT, object_id BIGINT, order_id BIGINT"


@dataclass(frozen=True, slots=True)
class TableSchema:
    """One table.

    Args:
        name: as the option `table` has it.
        ddl: its columns, as Spark reads them.
        opens_objects: whether a row takes more than the catalog; then the objects are divided among tasks.
        objects_a_task: how many of them a task opens.
    """

    name: str
    ddl: str
    opens_objects: bool
    objects_a_task: int = 1_000_000


TABLES: dict[str, TableSchema] = {
    table.name: table
    for table in (
        TableSchema(
            "objects",
            f"{OBJECT_COLUMNS}, kind STRING, stream_id BIGINT, start_offset BIGINT, end_offset BIGINT, "
            "size_bytes BIGINT, index_size_bytes BIGINT, data_time TIMESTAMP, key STRING",
            opens_objects=False,
        ),
        TableSchema(
            "stream_ranges",
            f"{OBJECT_COLUMNS}, kind STRING, stream_id BIGINT, start_offset BIGINT, end_offset BIGINT, holed BOOLEAN, "
            "data_size_bytes BIGINT, record_count BIGINT",
            opens_objects=True,
            objects_a_task=64,
        ),
        TableSchema(
            "blocks",
            f"{OBJECT_COLUMNS}, kind STRING, stream_id BIGINT, start_offset BIGINT, end_offset BIGINT, "
            "record_count BIGINT, position BIGINT, size_bytes BIGINT, holder_id BIGINT",
            opens_objects=True,
            objects_a_task=64,
        ),
        TableSchema(
            "records",
            f"{OBJECT_COLUMNS}, stream_id BIGINT, start_offset BIGINT, end_offset BIGINT, epoch BIGINT, "
            "is_link BOOLEAN, payload BINARY",
            opens_objects=True,
            objects_a_task=4,
        ),
    )
}
"""By name."""


def table_of(name: str) -> TableSchema:
    """The table of a name, in any case.

    Raises:
        ValueError: there is no such table; the message has those that there are.
    """
    table = TABLES.get(name.lower())
    if table is None:
        raise ValueError(f"expected the option table to be one of {', '.join(TABLES)}, found {name!r}")
    return table


OPEN_AT_ONCE = 8
"""Objects that one task opens side by side."""

_CHOICES = {"node-id": "node_id", "object-id": "object_id", "stream-id": "stream_id"}
_OPTIONS = frozenset(
    {"path", "table", "push-filters", "objects-per-task", "endpoint", "region", "profile", "client", *_CHOICES}
)
_TABLE_PROPERTIES = frozenset(
    {"location", "is_managed_location", "provider", "owner", "external", "comment", "collation"}
)
_OPTION_PREFIX = "option."
_REMEMBERED = "streamset"
_KEYS_OF_OBJECTS = ("node_id", "object_id", "order_id")
_KEYS_OF_THE_LIST = (*_KEYS_OF_OBJECTS, "stream_id", "start_offset", "end_offset", "size_bytes", "index_size_bytes")


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
        chosen: the rows that are wanted, as the options have it.
        pushes_filters: whether Spark hands over the conditions of a query.
    """

    store: StoreSpec
    table: TableSchema
    objects_a_task: int
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
        table = table_of(given.get("table", "objects"))
        settings = S3Settings(
            client=cast("Client", given.get("client", "boto3")),
            endpoint_url=given.get("endpoint"),
            profile=given.get("profile"),
            region=given.get("region"),
        )
        count = _number("objects-per-task", given.get("objects-per-task", str(table.objects_a_task)))
        chosen = {column: _chosen(name, given[name]) for name, column in _CHOICES.items() if name in given}
        pushes = _flag("push-filters", given.get("push-filters", "false"))
        return cls(StoreSpec(given["path"], settings), table, max(1, count), Bounds(chosen), pushes)


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
    "BIGINT": LongType(),
    "STRING": StringType(),
    "BOOLEAN": BooleanType(),
    "TIMESTAMP": TimestampType(),
    "BINARY": BinaryType(),
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
        columns = [column.split() for column in SourceOptions.of(given).table.ddl.split(", ")]
        fields = [StructField(name, _SPARK_TYPES[kind]) for name, kind in columns]
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
    namespace: str


@dataclass
class StreamSetReader(DataSourceReader):
    """Plans one query in the driver, and reads its partitions in tasks; it travels from one to the others."""

    options: SourceOptions
    bounds: Bounds

    def partitions(self) -> Sequence[InputPartition]:
        """Read the catalog, leave out objects that no row is asked of, and divide the others among tasks."""
        table = self.options.table
        with ObjectCatalog.open(self.options.store.open()) as catalog:
            listed = listed_objects(catalog.refresh_state())
            namespace = catalog.format.namespace
        names = _KEYS_OF_OBJECTS if table.opens_objects else _KEYS_OF_THE_LIST
        listed = listed[self.bounds.mask(chosen_columns(listed, names))]
        if table.opens_objects:
            listed = listed[_may_hold(listed, self.bounds)]
        count = max(1, -(-len(listed) // self.options.objects_a_task))
        return [ObjectPartition(part, namespace) for part in np.array_split(listed, count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, an Arrow batch for each object or span of blocks."""
        if not isinstance(partition, ObjectPartition):
            raise TypeError(f"expected a partition of objects, found {type(partition).__name__}")
        layout = ObjectLayout(namespace=partition.namespace)
        if not self.options.table.opens_objects:
            yield object_batch(partition.listed, layout)
            return
        store = self.options.store.open()
        threads = ThreadPoolExecutor(OPEN_AT_ONCE, thread_name_prefix="accel-source")
        try:
            loader = ObjectIndexLoader(store, layout, threads, cache_bytes_max=1)
            for opened in _opened(loader, partition.listed):
                if self.options.table.name == "stream_ranges":
                    yield range_batch(opened, self.bounds)
                elif self.options.table.name == "blocks":
                    yield block_batch(opened, self.bounds)
                else:
                    yield from record_batches(opened, self.bounds, store, layout)
        finally:
            threads.shutdown(wait=False, cancel_futures=True)  # not waited for: see `accel.catalog.parts`


@dataclass
class FilteredReader(StreamSetReader):
    """One that is told the conditions of the query; Spark refuses it where handing them over is not turned on."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802 - Spark's name
        """Take what the query asks of its columns; Spark applies all of it again, so nothing rests on it here."""
        self.bounds = self.options.chosen & Bounds.of(filters)
        return iter(filters)


def _opened(loader: ObjectIndexLoader, listed: Listed) -> Iterator[OpenedListed]:
    for at in range(0, len(listed), OPEN_AT_ONCE):
        some = listed[at : at + OPEN_AT_ONCE]
        loads = [loader.open(int(row["node_id"]), ref_of(row)) for row in some]
        for row, load in zip(some, loads, strict=True):
            yield OpenedListed(row, load.result.result())


def _may_hold(listed: Listed, bounds: Bounds) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """An object of one stream says itself what it holds; one of many may hold any."""
    of_many = listed["stream_id"] < 0
    return of_many | bounds.mask({"stream_id": listed["stream_id"]})


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
