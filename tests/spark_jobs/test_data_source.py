"""The metadata as tables: they say what the catalog and the objects say, and conditions spare requests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from accel import tables
from accel.catalog import ObjectCatalog
from accel.catalog.job_runs import GC, recorded
from accel.tables import TABLES
from loaders.errors import KeyMissing
from spark_jobs.source import SourceOptions, StreamSetReader
from spark_jobs.tasks import StoreSpec
from tests.accel.history.store.bench import Bench
from tests.conformance.history_world import SCOPE
from tests.spark_jobs.worlds import fill, live_rows, lose, make_catalog, split_off

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OBJECTS_OF_4 = [
    [(1, 0, 10), (1, 10, 12), (2, 0, 5)],
    [(1, 12, 20), (3, 0, 7)],
    [(1, 20, 30), (2, 5, 9)],
]
OBJECTS_OF_7 = [[(8, 0, 100), (9, 0, 1)], [(9, 1, 2)]]


def two_nodes(bucket: StoreSpec) -> StoreSpec:
    """Two nodes, five objects, and one of a stream of its own."""
    store = bucket.open()
    make_catalog(store)
    fill(store, 4, OBJECTS_OF_4)
    fill(store, 7, OBJECTS_OF_7)
    split_off(store, 7, 8)
    return bucket


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> StoreSpec:
    """For tests that only read."""
    return two_nodes(StoreSpec(f"file://{tmp_path_factory.mktemp('filled')}/store"))


def read(spark: SparkSession, bucket: StoreSpec, table: str, **options: str) -> DataFrame:
    """A table of the source; names of options in some other case than the documented one."""
    reader = spark.read.format("streamset").option("TABLE", table)
    if bucket.settings.endpoint_url:
        reader = reader.option("endPoint", bucket.settings.endpoint_url)
    for name, value in options.items():
        reader = reader.option(name.replace("_", "-"), value)
    return reader.load(bucket.url)


def test_objects_are_those_that_the_catalog_lists(spark: SparkSession, filled: StoreSpec) -> None:
    rows = read(spark, filled, "objects").collect()
    with ObjectCatalog.open(filled.open()) as catalog:
        image, layout = catalog.image(), catalog.parts.layout
    listed = {
        (node.node_id, object_id, order_id, size)
        for node in image.nodes.values()
        for object_id, order_id, size in zip(node.object_ids, node.order_ids, node.sizes_bytes, strict=True)
    }
    sets = [row for row in rows if row.kind == "stream_set"]
    [one] = [row for row in rows if row.kind == "stream"]
    assert {(row.node_id, row.object_id, row.order_id, row.size_bytes) for row in sets} == listed
    assert all(row.stream_id is None and row.start_offset is None for row in sets)
    assert (one.node_id, one.order_id, one.stream_id, one.start_offset, one.end_offset) == (7, None, 8, 0, 100)
    assert all(row.key == layout.object_key(row.object_id) for row in rows)
    assert all(row.data_time is not None for row in rows)


def test_ranges_are_those_of_each_object(spark: SparkSession, filled: StoreSpec) -> None:
    rows = read(spark, filled, "stream_ranges").orderBy("stream_id", "start_offset").collect()
    found = [(row.node_id, row.stream_id, row.start_offset, row.end_offset, row.holed) for row in rows]
    assert found == [
        (4, 1, 0, 12, False),
        (4, 1, 12, 20, False),
        (4, 1, 20, 30, False),
        (4, 2, 0, 5, False),
        (4, 2, 5, 9, False),
        (4, 3, 0, 7, False),
        (7, 8, 0, 100, False),
        (7, 9, 0, 1, False),
        (7, 9, 1, 2, False),
    ]
    assert rows[0].record_count == 2
    assert [row.kind for row in rows if row.stream_id == 8] == ["stream"]


def test_blocks_are_the_rows_of_each_index(spark: SparkSession, filled: StoreSpec) -> None:
    rows = read(spark, filled, "blocks").filter("node_id = 4").orderBy("object_id", "position").collect()
    assert [(row.stream_id, row.start_offset, row.end_offset) for row in rows] == [
        row for rows in OBJECTS_OF_4 for row in rows
    ]
    assert rows[0].position == 0
    assert rows[1].position == rows[0].size_bytes
    assert all(row.holder_id == row.object_id for row in rows)


def test_ranges_add_up_to_their_blocks(spark: SparkSession, filled: StoreSpec) -> None:
    sums: defaultdict[tuple[int, int], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for row in read(spark, filled, "blocks").collect():
        size_bytes, records = sums[row.object_id, row.stream_id]
        sums[row.object_id, row.stream_id] = size_bytes + row.size_bytes, records + row.record_count
    ranges = read(spark, filled, "stream_ranges").collect()
    assert {(row.object_id, row.stream_id): (row.data_size_bytes, row.record_count) for row in ranges} == sums


def test_records_are_those_that_were_written(spark: SparkSession, filled: StoreSpec) -> None:
    rows = read(spark, filled, "records").orderBy("stream_id", "start_offset").collect()
    written = sorted(row for rows in OBJECTS_OF_4 + OBJECTS_OF_7 for row in rows)
    assert [(row.stream_id, row.start_offset, row.end_offset) for row in rows] == written
    assert all(isinstance(row.payload, bytes | bytearray) and not row.is_link for row in rows)


CONDITIONS = [
    "stream_id = 1",
    "stream_id IN (2, 9)",
    "stream_id > 2 AND start_offset < 50",
    "start_offset >= 12 AND end_offset <= 20",
    "end_offset > 5 AND stream_id <> 1",
    "node_id = 7",
    "object_id < 2 OR stream_id = 9",
    "order_id >= 1",
    "stream_id = 12345",
    "stream_id = 1 AND stream_id = 2",
    "order_id IS NULL",
]


PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def pushdown(spark: SparkSession) -> Iterator[None]:
    """Spark hands conditions over."""
    spark.conf.set(PUSHDOWN, "true")
    yield
    spark.conf.unset(PUSHDOWN)


@pytest.mark.usefixtures("pushdown")
@pytest.mark.parametrize("table", ["stream_ranges", "blocks", "records"])
def test_conditions_give_what_filtering_afterwards_gives(spark: SparkSession, filled: StoreSpec, table: str) -> None:
    rows = read(spark, filled, table)
    everything = rows.collect()
    meets = (
        spark.createDataFrame(everything, rows.schema).selectExpr(*CONDITIONS).collect()
    )  # what Spark says of each row
    for at, condition in enumerate(CONDITIONS):
        expected = sorted(str(row) for row, met in zip(everything, meets, strict=True) if met[at])
        found = read(spark, filled, table, push_filters="TRUE").filter(condition).collect()
        assert sorted(map(str, found)) == expected, condition


@pytest.mark.usefixtures("pushdown")
def test_spark_still_keeps_conditions_of_an_earlier_use_that_were_handed_over(
    spark: SparkSession, filled: StoreSpec
) -> None:
    """Why handing over conditions is off by default; once this fails it may be turned on, and the documents changed."""
    for options, count in (({"push_filters": "true"}, 3), ({}, 6)):
        rows = read(spark, filled, "objects", **options)
        assert len(rows.filter("node_id = 7").collect()) == 3
        assert len(rows.collect()) == count


@pytest.mark.usefixtures("pushdown")
def test_objects_that_no_row_is_asked_of_are_not_opened(spark: SparkSession, bucket: StoreSpec) -> None:
    filled = two_nodes(bucket)
    kept = without_first_object(filled)
    ranges = read(spark, filled, "stream_ranges", push_filters="true")
    assert len(ranges.filter(f"object_id = {kept}").collect()) == 2
    with pytest.raises(PySparkException, match="KeyMissing"):
        ranges.filter("node_id = 4").collect()


def test_options_choose_rows_and_spare_requests(spark: SparkSession, bucket: StoreSpec) -> None:
    filled = two_nodes(bucket)
    kept = without_first_object(filled)
    assert len(read(spark, filled, "stream_ranges", object_id=f"{kept}, 9999").collect()) == 2
    assert len(read(spark, filled, "blocks", node_id="7", stream_id="8,9").collect()) == 3
    found = read(spark, filled, "records", node_id="7", stream_id="9").collect()
    assert {(row.stream_id, row.start_offset) for row in found} == {(9, 0), (9, 1)}


def without_first_object(bucket: StoreSpec) -> int:
    """Delete the first object of node 4; gives the id of the next."""
    store = bucket.open()
    with ObjectCatalog.open(store) as catalog:
        node = catalog.image().nodes[4]
        store.delete(catalog.parts.layout.object_key(int(node.object_ids[0])))
    return int(node.object_ids[1])


def test_objects_are_divided_among_tasks(spark: SparkSession, filled: StoreSpec) -> None:
    assert read(spark, filled, "stream_ranges").rdd.getNumPartitions() == 1
    assert read(spark, filled, "stream_ranges", objects_per_task="2").rdd.getNumPartitions() == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"table": "ranges"}, "one of the tables objects, stream_ranges"),
        ({"object-id": "7,x"}, "a number of at least 0"),
        ({"tabel": "x"}, "tabel"),
        ({"table": "epochs", "node-id": "4"}, "table epochs: expected options of this table, found node-id"),
        ({"scope": "shop"}, "table objects: expected options of this table, found scope"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    spark: SparkSession, bucket: StoreSpec, options: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        spark.read.format("streamset").options(**options).load(bucket.url)


def test_a_plan_whose_objects_were_deleted_since_says_to_load_again(bucket: StoreSpec) -> None:
    store = bucket.open()
    make_catalog(store)
    ids = fill(store, 4, [[(1, 0, 10)], [(1, 10, 20)]])
    options = SourceOptions.of({"path": bucket.url, "table": "stream_ranges"})
    reader = StreamSetReader(options, options.chosen)
    [part] = reader.partitions()
    lose(store, ids[0])
    with pytest.raises(KeyMissing, match=r"a frame of load\(\), .*: load again"):
        list(reader.read(part))


def test_an_empty_catalog_has_empty_tables(spark: SparkSession, bucket: StoreSpec) -> None:
    make_catalog(bucket.open())
    for table in TABLES.keys() - {"events"}:
        assert read(spark, bucket, table).collect() == []


def test_histories_and_runs_are_the_tables_that_arrow_has(spark: SparkSession, bucket: StoreSpec) -> None:
    store = bucket.open()
    make_catalog(store)
    bench = Bench(store=store)
    bench.create()
    bench.scale_once()
    bench.stream().retention.run(bench.tick())
    for name in ("a", "b"):
        bench.streams().create_stream(SCOPE, name, time_ms=bench.now_ms)
    for table in ("epochs", "segments", "cuts"):
        expected = getattr(tables, table)(store).read_all()
        found = read(spark, bucket, table, streams_per_task="2").toArrow()
        assert found.cast(expected.schema).sort_by("stream").equals(expected.sort_by("stream"))
    with ObjectCatalog.open(store) as catalog, recorded(catalog.parts, GC) as job:
        job.add(items=3)
    assert read(spark, bucket, "job_runs").toArrow().to_pylist() == tables.job_runs(store).read_all().to_pylist()
    assert read(spark, bucket, "epochs", streams_per_task="2").rdd.getNumPartitions() == 2
    assert {row.stream for row in read(spark, bucket, "segments", scope=SCOPE, stream="b").collect()} == {"b"}
    [one] = read(spark, bucket, "segments", stream_id="1").collect()
    assert one.stream_id == 1
    assert read(spark, bucket, "cuts", scope="nobody's").collect() == []


def test_a_table_may_be_created_once_and_asked_by_its_name(spark: SparkSession, bucket_on_s3: StoreSpec) -> None:
    filled = two_nodes(bucket_on_s3)
    options = f"endpoint '{filled.settings.endpoint_url}', path '{filled.url}', table 'stream_ranges'"
    spark.sql(f"CREATE TABLE ranges_of_shop USING streamset OPTIONS ({options})")
    frame = read(spark, filled, "stream_ranges")
    frame.createOrReplaceTempView("ranges_of_a_frame")

    def counted(what: str) -> int:
        return int(spark.sql(f"SELECT count(*) AS found FROM {what}").collect()[0].found)  # noqa: S608 - our own

    try:
        found = counted("ranges_of_shop")
        assert found == frame.count() == counted("ranges_of_a_frame") > 0
        fill(filled.open(), 9, [[(77, 0, 5)]])
        assert counted("ranges_of_shop") == found + 1, "a table plans each query anew"
        assert frame.count() == counted("ranges_of_a_frame") == found, "a frame of load, and its view, keep their plan"
        lose(filled.open(), int(live_rows(filled.open(), 4)["object_id"][0]))
        with pytest.raises(PySparkException, match=r"KeyMissing.*load again, or query a table of CREATE TABLE"):
            counted("ranges_of_a_frame")
    finally:
        spark.sql("DROP TABLE ranges_of_shop")
