"""What docs/how-to/jobs.md says runs, and means what it says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import accel
from spark_jobs.tasks import StoreSpec
from tests.docs.pages import blocks, page_named
from tests.spark_jobs.worlds import fill, make_catalog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

PAGE = page_named("jobs")
RANGES = "node_id BIGINT, object_id BIGINT, stream_id BIGINT, start_offset BIGINT, end_offset BIGINT, holed BOOLEAN"


@pytest.fixture
def ranges(spark: SparkSession, bucket_on_s3: StoreSpec) -> DataFrame:
    """The ranges of a small catalog, as the queries' view."""
    bucket = bucket_on_s3
    make_catalog(bucket.open())
    fill(bucket.open(), 4, [[(1, 0, 10), (2, 0, 1)], [(1, 10, 20)], [(1, 20, 30), (3, 0, 1)]])
    fill(bucket.open(), 7, [[(8, 0, 5), (9, 0, 50)], [(9, 50, 51)]])
    reader = spark.read.format("streamset").option("table", "stream_ranges")
    found = reader.option("endpoint", str(bucket.settings.endpoint_url)).load(bucket.url)
    found.createOrReplaceTempView("ranges")
    return found


def query(spark: SparkSession, number: int) -> list[Row]:
    """The rows of one of the page's queries."""
    rows: list[Row] = spark.sql(
        [block for block in blocks(PAGE, "sql") if "SELECT" in block.text][number].text
    ).collect()
    return rows


@pytest.mark.usefixtures("ranges")
def test_the_queries_name_the_largest_streams_those_that_are_spread_most_and_nothing_that_is_wrong(
    spark: SparkSession,
) -> None:
    rows = query(spark, 0)
    assert [(row.node_id, row.objects) for row in rows if row.stream_id in {1, 9}] == [(4, 3), (7, 2)]
    assert [row.node_id for row in rows] == [4, 4, 4, 7, 7]
    assert [row.stream_id for row in rows][::3] == [1, 9]
    for node_id in (4, 7):
        sizes = [row.bytes for row in rows if row.node_id == node_id]
        assert sizes == sorted(sizes, reverse=True)
    rows = query(spark, 1)
    assert [(row.stream_id, row.objects, row.nodes) for row in rows[:2]] == [(1, 3, 1), (9, 2, 1)]
    assert all(row.bytes_an_object > 0 for row in rows)
    assert query(spark, 2) == []


def test_the_third_query_finds_overlaps_and_holes(spark: SparkSession) -> None:
    rows = [
        (4, 1, 1, 5, 10, False),
        (4, 2, 1, 10, 20, False),
        (4, 3, 1, 18, 25, False),
        (7, 4, 1, 30, 40, False),
        (7, 5, 2, 0, 9, False),
        (7, 6, 2, 9, 12, True),
    ]
    spark.createDataFrame(rows, RANGES).createOrReplaceTempView("ranges")
    found = [(row.stream_id, row.object_id, row.reached, row.finding) for row in query(spark, 2)]
    assert found == [(1, 3, 20, "overlap"), (1, 4, 25, "hole before"), (2, 6, 9, "hole inside")]


@pytest.mark.usefixtures("ranges")
def test_the_code_of_the_page_runs(
    spark: SparkSession, bucket_on_s3: StoreSpec, bucket: StoreSpec, tmp_path: Path
) -> None:
    with accel.connect(bucket.url, create=True) as streams:
        streams.create_scope("shop")
        streams.create_stream("shop", "orders", segments=2)
        with streams.writer("shop", "orders") as writer:
            for number in range(9):
                writer.write(b"tea", key=str(number))
    namespace: dict[str, Any] = {"BUCKET": bucket_on_s3, "ENDPOINT": bucket_on_s3.settings.endpoint_url}
    for block in blocks(PAGE, "python"):
        text = block.text.replace("s3://lake", f"file://{tmp_path}")
        if "readStream" in text:
            text = text.replace("s3://bucket/prefix", bucket.url)
        text = text.replace('StoreSpec("s3://bucket/prefix")', "BUCKET")
        text = text.replace('.load("s3://bucket/prefix")', '.option("endpoint", ENDPOINT).load(BUCKET.url)')
        exec(compile(text, str(PAGE), "exec"), namespace)  # noqa: S102 - our own page
    assert namespace["compacted"]["rewritten_objects"].tolist() == [0]
    assert namespace["built"].row()["covered_objects"] == 5
    assert namespace["total"] == 3
    assert spark.read.parquet(f"{tmp_path}/orders").count() == 9
