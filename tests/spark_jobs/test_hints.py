"""Hints on Spark: each node in a task of its own, by the same code and with the same report as without."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from accel.catalog import ObjectCatalog
from accel.hint_building import HintChoice, HintReport, NodePlan, NodeReport, build_hints, plan_hints
from loaders.hints import EntryColumns, SnapshotReader, read_pack_root, read_snapshot
from loaders.store import ObjectStore
from spark_jobs.hints import build_hints_on_spark, plan_hints_on_spark
from spark_jobs.tasks import SECOND_PASS, StoreSpec, row_frame, this_attempt
from tests.loaders.hints.builders import Row, rows_of
from tests.spark_jobs.worlds import NAMESPACE, fill, job, live_rows, lose, make_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BOTH = HintChoice()


@pytest.fixture
def filled(bucket: StoreSpec) -> StoreSpec:
    """Two nodes."""
    store = bucket.open()
    make_catalog(store)
    fill(store, 4, [[(1, at, at + 1), (100 + at, 0, 9)] for at in range(6)])
    fill(store, 7, [[(8, 0, 5), (9, 0, 5)], [(9, 5, 6)]])
    return bucket


def build(spark: SparkSession, bucket: StoreSpec) -> HintReport:
    """Plan and build."""
    return build_hints_on_spark(spark, bucket, plan_hints_on_spark(spark, bucket, BOTH))


def state(store: ObjectStore, node_id: int) -> tuple[list[Row], list[int]]:
    """All entries of a node's snapshot, and the objects that have a filter."""
    root = SnapshotReader(store, NAMESPACE, lambda: 0.0).read_root(node_id)
    rows = rows_of(EntryColumns.join(list(read_snapshot(store, root))))
    return rows, read_pack_root(store, NAMESPACE, node_id).entries["object_id"].tolist()


def test_tasks_build_what_one_process_builds(spark: SparkSession, filled: StoreSpec) -> None:
    store = filled.open()
    report = build(spark, filled)
    by_tasks = [state(store, node_id) for node_id in (4, 7)]
    [row] = row_frame(spark, report.row()).collect()
    assert (row.nodes, row.objects, row.opened_objects, row.added_filters, row.covered_objects) == (2, 8, 8, 8, 8)
    assert row.failed_tasks == 0
    for info in list(store.list("accel/hints/")):
        store.delete(info.key)
    with ObjectCatalog.open(store) as catalog:
        build_hints(catalog, plan_hints(catalog, BOTH))
    assert [state(store, node_id) for node_id in (4, 7)] == by_tasks


def test_hints_of_an_image_from_elsewhere_are_those_of_the_catalog(spark: SparkSession, filled: StoreSpec) -> None:
    store = filled.open()
    with ObjectCatalog.open(store) as catalog:
        image = catalog.image()
    build(spark, filled)
    by_catalog = [state(store, node_id) for node_id in (4, 7)]
    for info in [*store.list("accel/hints/"), *store.list("accel/format")]:
        store.delete(info.key)
    plan = plan_hints_on_spark(spark, filled, BOTH, image=image)
    report = build_hints_on_spark(spark, filled, plan, image=image)
    assert [state(store, node_id) for node_id in (4, 7)] == by_catalog
    assert report.row()["opened_objects"] == 8


def test_only_what_is_new_is_opened(spark: SparkSession, filled: StoreSpec) -> None:
    build(spark, filled)
    fill(filled.open(), 4, [[(200, 0, 4)]])
    report = build(spark, filled)
    assert [node.opened for node in report.nodes] == [1, 0]
    assert state(filled.open(), 4)[1] == sorted(live_rows(filled.open(), 4)["object_id"].tolist())


@pytest.mark.parametrize(("failures", "is_built"), [(1, True), (2, False)])
def test_tasks_that_fail_are_counted_and_told(
    spark: SparkSession, filled: StoreSpec, monkeypatch: pytest.MonkeyPatch, failures: int, *, is_built: bool
) -> None:
    from spark_jobs import hints  # noqa: PLC0415 - to be changed

    whole = hints._build_node

    def broken(store: StoreSpec, namespace: str, plan: NodePlan) -> NodeReport:
        if this_attempt().number < failures * SECOND_PASS:
            raise OSError("no disk")
        return whole(store, namespace, plan)

    plan = plan_hints_on_spark(spark, filled, BOTH, nodes=frozenset({7}))
    monkeypatch.setattr(hints, "_build_node", broken)
    report = build_hints_on_spark(spark, filled, plan)
    assert (report.row()["failed_tasks"], report.is_partial) == (failures, not is_built)
    assert is_built or "no disk" in report.nodes[0].errors[0]


@pytest.mark.usefixtures("spark")
def test_the_commands_tell_what_they_did(filled: StoreSpec) -> None:
    planned = job(filled, "build-hints", "--dry-run")
    assert "dry run: 8 filters would be built, 0 dropped; 2 snapshots would be written" in planned.stdout
    gone = int(live_rows(filled.open(), 4)["object_id"][2])
    lose(filled.open(), gone)
    result = job(filled, "build-hints", "--output", "json")
    assert result.exit_code == 4
    report = json.loads(result.stdout)["report"]
    assert (report["covered_objects"], report["failed_objects"]) == (7, 1)
    assert job(filled, "build-hints", "--only", "filters", "--node", "7").exit_code == 0


def test_a_node_that_the_catalog_does_not_have_is_told_before_spark_starts(filled: StoreSpec) -> None:
    result = job(filled, "build-hints", "--node", "5")
    assert result.exit_code == 1
    assert "expected nodes of this catalog (4, 7), found 5" in result.stderr
