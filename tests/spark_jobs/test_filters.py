"""Filter packs on Spark: what is listed gets a filter, what has one keeps it, and nothing is lost with an object."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from accel.catalog import ObjectCatalog
from bloom import StreamFilter
from loaders.hints import PackRoot, load_pack, read_pack_root, write_pack
from loaders.object_ref import ObjectRef
from loaders.store import ObjectStore
from spark_jobs.filters import Depth, FilterReport, build_filters_on_spark, plan_filters_on_spark
from spark_jobs.tasks import StoreSpec, row_frame
from tests.spark_jobs.worlds import NAMESPACE, fill, job, live_rows, lose, make_catalog, split_off

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAMS = [[(1, at, at + 1), (100 + at, 0, 9)] for at in range(6)]


@pytest.fixture
def filled(bucket: StoreSpec) -> StoreSpec:
    """Two nodes."""
    store = bucket.open()
    make_catalog(store)
    fill(store, 4, STREAMS)
    fill(store, 7, [[(8, 0, 5), (9, 0, 5)], [(9, 5, 6)]])
    return bucket


def rebuild(spark: SparkSession, bucket: StoreSpec, depth: Depth = Depth.MISSING) -> FilterReport:
    """Plan and build."""
    return build_filters_on_spark(spark, bucket, plan_filters_on_spark(spark, bucket, depth=depth))


def filters(store: ObjectStore, node_id: int) -> dict[int, bytes]:
    """What a reader finds for the objects that are listed."""
    live = live_rows(store, node_id)
    found = load_pack(store, root_of(store, node_id), live["object_id"], live["size_bytes"])
    return {object_id: each.to_bytes() for object_id, each in found}


def root_of(store: ObjectStore, node_id: int) -> PackRoot:
    """A node's pack."""
    return read_pack_root(store, NAMESPACE, node_id)


def expected(store: ObjectStore, node_id: int) -> dict[int, bytes]:
    """The filters of what each listed object holds."""
    with ObjectCatalog.open(store) as catalog:
        opened = catalog.parts.open_all(node_id, catalog.image().nodes[node_id].refs)
        return {each.ref.object_id: StreamFilter.build(each.ranges.stream_ids).to_bytes() for each in opened}


def test_each_listed_object_gets_the_filter_of_its_streams(spark: SparkSession, filled: StoreSpec) -> None:
    store = filled.open()
    report = rebuild(spark, filled)
    assert filters(store, 4) == expected(store, 4)
    assert filters(store, 7) == expected(store, 7)
    [row] = row_frame(spark, report.row()).collect()
    assert (row.nodes, row.objects, row.added_filters, row.dropped_filters, row.kept_filters) == (2, 8, 8, 0, 0)
    assert row.requests == 8 + 2 + 2 * 6 + 1, "one an object, one a task, a node's root and pack, and the format"
    assert not report.is_partial


def test_what_is_current_is_left_alone(spark: SparkSession, filled: StoreSpec) -> None:
    store = filled.open()
    rebuild(spark, filled)
    before = root_of(store, 4)
    report = rebuild(spark, filled)
    assert root_of(store, 4).generation == before.generation
    assert (report.row()["kept_filters"], report.row()["added_filters"]) == (8, 0)


def test_new_objects_are_added_and_old_ones_dropped(spark: SparkSession, filled: StoreSpec) -> None:
    store = filled.open()
    rebuild(spark, filled)
    before = root_of(store, 7)
    fill(store, 4, [[(200, 0, 4)]])
    split_off(store, 7, 8)
    report = rebuild(spark, filled)
    row = report.row()
    assert (row["added_filters"], row["dropped_filters"], row["kept_filters"]) == (2, 1, 7)
    assert filters(store, 4) == expected(store, 4)
    assert filters(store, 7) == expected(store, 7)
    assert root_of(store, 7).generation > before.generation
    assert len(root_of(store, 4).parts) == 2, "what was there is not written again"


def test_a_filter_of_an_object_of_another_size_is_replaced(spark: SparkSession, filled: StoreSpec) -> None:
    store = filled.open()
    rebuild(spark, filled)
    first = int(live_rows(store, 4)["object_id"][0])
    misplace(store, ObjectRef(first, 17), StreamFilter.build(np.array([5])))
    report = rebuild(spark, filled)
    assert (report.row()["bad_filters"], report.row()["added_filters"]) == (1, 1)
    assert filters(store, 4) == expected(store, 4)


def test_bad_filters_are_found_when_they_are_looked_for(spark: SparkSession, filled: StoreSpec) -> None:
    store = filled.open()
    rebuild(spark, filled)
    live = live_rows(store, 4)
    full = StreamFilter.build(np.array([1, 100]))
    ones = np.packbits(np.ones(full.geometry.bits, dtype=np.uint8), bitorder="little").tobytes()
    first = ObjectRef(int(live["object_id"][0]), int(live["size_bytes"][0]))
    misplace(store, first, StreamFilter(full.geometry, 2, ones))
    assert rebuild(spark, filled).row()["added_filters"] == 0
    assert filters(store, 4) != expected(store, 4)
    report = rebuild(spark, filled, Depth.BAD)
    assert (report.row()["bad_filters"], report.row()["added_filters"]) == (1, 1)
    assert filters(store, 4) == expected(store, 4)


def test_filters_that_cannot_be_read_are_found_when_they_are_looked_for(spark: SparkSession, filled: StoreSpec) -> None:
    store = filled.open()
    rebuild(spark, filled)
    key = root_of(store, 4).part_key(0)
    store.put(key, bytes(len(store.get(key).body)))
    report = rebuild(spark, filled, Depth.BAD)
    assert (report.row()["bad_filters"], report.row()["kept_filters"]) == (6, 2)
    assert filters(store, 4) == expected(store, 4)


def test_filters_of_a_data_object_that_is_gone_are_built_again(spark: SparkSession, filled: StoreSpec) -> None:
    store = filled.open()
    rebuild(spark, filled)
    fill(store, 4, [[(200, 0, 4)]])
    rebuild(spark, filled)
    store.delete(root_of(store, 4).part_key(0))
    report = rebuild(spark, filled)
    assert (report.row()["bad_filters"], report.row()["added_filters"], report.row()["kept_filters"]) == (6, 6, 3)
    assert filters(store, 4) == expected(store, 4)


def test_a_root_that_is_of_no_use_is_told_and_replaced(spark: SparkSession, filled: StoreSpec) -> None:
    store = filled.open()
    rebuild(spark, filled)
    store.put(root_of(store, 4).key, b"not a root")
    plan = plan_filters_on_spark(spark, filled, nodes=frozenset({4}))
    assert "corrupt" in plan.nodes[0].problem
    build_filters_on_spark(spark, filled, plan)
    assert filters(store, 4) == expected(store, 4)


def test_old_generations_are_deleted(spark: SparkSession, filled: StoreSpec) -> None:
    store = filled.open()
    for _ in range(3):
        rebuild(spark, filled, Depth.ALL)
    parts = [each.key for each in store.list("accel/hints/packs/node-4/") if "filters-" in each.key]
    assert len(parts) == 2
    assert root_of(store, 4).part_key(0) in parts


@pytest.mark.usefixtures("spark")
def test_an_object_that_cannot_be_opened_costs_only_itself(filled: StoreSpec) -> None:
    store = filled.open()
    whole = expected(store, 4)
    lost = int(live_rows(store, 4)["object_id"][2])
    lose(store, lost)
    result = job(filled, "rebuild-filters", "--output", "json")
    assert result.exit_code == 4
    report = json.loads(result.stdout)["report"]
    assert (report["added_filters"], report["failed_objects"]) == (7, 1)
    [failure] = [each for node in report["per_node"] for each in node["failures"]]
    assert failure["object_id"] == lost
    assert "KeyMissing" in failure["reason"]
    assert filters(store, 4) == {object_id: each for object_id, each in whole.items() if object_id != lost}


@pytest.mark.usefixtures("spark")
def test_a_dry_run_changes_nothing(filled: StoreSpec) -> None:
    store = filled.open()
    result = job(filled, "rebuild-filters", "--node", "7", "--only-bad", "--dry-run")
    assert result.exit_code == 0
    assert "dry run: 2 filters would be built" in result.stdout
    assert not list(store.list("accel/hints/"))


def test_a_node_that_the_catalog_does_not_have_is_told_before_spark_starts(filled: StoreSpec) -> None:
    result = job(filled, "rebuild-filters", "--node", "5")
    assert result.exit_code == 2
    assert "expected nodes of this catalog (4, 7), found 5" in result.stderr


def misplace(store: ObjectStore, ref: ObjectRef, stream_filter: StreamFilter) -> None:
    """Put a filter into node 4's pack that does not belong there."""
    previous = root_of(store, 4)
    write_pack(
        store,
        namespace=NAMESPACE,
        node_id=4,
        generation=previous.generation + 1,
        added=[(ref, stream_filter)],
        previous=previous,
    )
