"""Compaction on Spark, end to end: fewer objects, the same records, nothing lost on the way."""

from __future__ import annotations

import json
import sys
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from accel import tables
from accel.catalog import ObjectCatalog
from accel.catalog.verify import verify
from accel.compaction import CompactionSettings, GroupItem, GroupResult, Status
from accel.system import StopRequested
from spark_jobs import compact
from spark_jobs.compact import compact_on_spark, plan_on_spark, report_frame, tasks_at_once
from spark_jobs.tasks import StoreSpec, this_attempt
from tests.spark_jobs.clusters import HANG_SECONDS
from tests.spark_jobs.on_executors import Work
from tests.spark_jobs.worlds import Spans, fill, job, lose, make_catalog, records_crc

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def objects(count: int, first: int = 0) -> list[Spans]:
    """Objects in which streams go on: one is in all of them, one in every other, one ends half-way."""
    made = []
    for number in range(first, first + count):
        rows = [(1, number * 10, number * 10 + 10)]
        if number % 2 == 0:
            rows.append((2, number // 2 * 5, number // 2 * 5 + 5))
        if number < 8:
            rows.append((3, number, number + 1))
        made.append(rows)
    return made


def test_objects_become_as_few_as_planned_and_every_record_reads_back(spark: SparkSession, bucket: StoreSpec) -> None:
    store = bucket.open()
    make_catalog(store)
    fill(store, 4, objects(16))
    with ObjectCatalog.open(store) as catalog:
        old_image = catalog.image()
    before = records_crc(store, old_image)
    settings = CompactionSettings(max_objects_per_node=6, target_objects=4, min_age_seconds=0)
    plan = plan_on_spark(spark, bucket, settings)
    report = compact_on_spark(spark, bucket, plan)
    assert (report.failed_groups, report.failed_tasks) == (0, 0)
    assert all(each.status is Status.COMMITTED for each in report.groups)
    with ObjectCatalog.open(store) as catalog:
        image, layout = catalog.refresh(), catalog.parts.layout
    outputs = {*image.nodes[4].object_ids.tolist()} - {*old_image.nodes[4].object_ids.tolist()}
    assert outputs
    assert all(layout.is_ours(each, store.get_range(layout.object_key(each), 0, 1).mark) for each in outputs)
    assert len(image.nodes[4]) == 4 == plan.nodes[0].objects_after
    assert records_crc(store, image) == before
    assert records_crc(store, old_image) == before
    [row] = report_frame(spark, report).collect()
    assert (row.rewritten_objects, row.added_objects, row.failed_groups) == (13, len(plan.groups), 0)
    [run] = tables.job_runs(store).read_all().to_pylist()
    assert (run["kind"], run["engine"], run["items"], run["outcome"]) == ("compact", "spark", 13, "done")


class Configured:
    """A session of two cores, as far as the number of tasks at once needs it."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.conf = settings

    def range(self, _end: int) -> Configured:
        return self

    def explain(self) -> None:
        sys.stdout.write("*(1) Range (0, 1099511627776, step=1, splits=2)")


@pytest.mark.parametrize(
    ("settings", "expected"), [({}, 2), ({"enabled": "true"}, 32), ({"enabled": "true", "maxExecutors": "3"}, 12)]
)
def test_dynamic_allocation_has_as_many_tasks_at_once_as_its_maximum_says(
    settings: dict[str, str], expected: int
) -> None:
    given = {f"spark.dynamicAllocation.{name}": value for name, value in settings.items()}
    session: Any = Configured({"spark.executor.cores": "4", **given})
    assert tasks_at_once(session) == expected


@pytest.mark.usefixtures("spark")
def test_a_dry_run_prints_what_the_run_then_does(bucket: StoreSpec) -> None:
    store = bucket.open()
    make_catalog(store)
    fill(store, 4, objects(12))
    choices = ("--max-objects-per-node", "5", "--min-age", "0s", "--output", "json")
    dry = json.loads(job(bucket, "compact", *choices, "--dry-run").stdout)
    assert dry["dry_run"]
    assert dry["report"] is None
    with ObjectCatalog.open(store) as catalog:
        assert len(catalog.refresh().nodes[4]) == 12
    result = job(bucket, "compact", *choices)
    done = json.loads(result.stdout)
    assert result.exit_code == 0
    assert without_time(done["plan"]) == without_time(dry["plan"])
    assert done["report"]["rewritten_objects"] == dry["plan"]["rewritten_objects"]
    assert done["report"]["added_bytes"] == dry["plan"]["added_bytes"]
    again = json.loads(job(bucket, "compact", *choices).stdout)
    assert again["plan"]["groups"] == []


@pytest.mark.parametrize("place", ["bucket", "bucket_on_s3"])
def test_a_missing_source_is_set_aside_alone_in_a_folder_and_on_s3(
    spark: SparkSession, place: str, request: pytest.FixtureRequest
) -> None:
    bucket: StoreSpec = request.getfixturevalue(place)
    store = bucket.open()
    make_catalog(store)
    ids = fill(store, 4, objects(8))
    fill(store, 7, [[(9, at, at + 1)] for at in range(8)])
    settings = CompactionSettings(max_objects_per_node=2, target_objects=1, min_age_seconds=0)
    plan = plan_on_spark(spark, bucket, settings)
    lose(store, ids[3])
    report = compact_on_spark(spark, bucket, plan)
    assert sorted(each.status for each in report.groups) == [Status.COMMITTED] * 3 + [Status.SET_ASIDE]
    assert ([each.object_id for each in report.set_aside], report.failed_groups) == ([ids[3]], 0)
    with ObjectCatalog.open(store) as catalog:
        image = catalog.refresh()
        assert [len(image.nodes[node_id]) for node_id in (4, 7)] == [3, 1]
        assert verify(catalog).counts["orphans"] == 0  # nothing is left of what the failed attempts wrote


@pytest.mark.usefixtures("spark")
def test_a_partial_failure_ends_with_4(bucket_on_s3: StoreSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = bucket_on_s3
    store = bucket.open()
    make_catalog(store)
    ids = fill(store, 4, objects(4))

    def plan_then_lose(*arguments: Any, **named: Any) -> Any:
        plan = plan_on_spark(*arguments, **named)
        lose(store, ids[1])
        return plan

    monkeypatch.setattr("spark_jobs.engine.plan_on_spark", plan_then_lose)
    result = job(bucket, "compact", "--max-objects-per-node", "2", "--min-age", "0s")
    assert result.exit_code == 4
    assert f"set aside: object {ids[1]} of node 4, no object is at its key" in result.stdout
    assert "0 groups and 1 task failed, 1 object set aside" in result.stdout


def test_a_bucket_without_a_catalog_is_told_before_spark_starts(bucket: StoreSpec) -> None:
    result = job(bucket, "compact")
    assert result.exit_code == 1
    assert "accel catalog init" in result.stderr


def test_choices_that_make_no_sense_are_told_before_spark_starts(bucket: StoreSpec) -> None:
    result = job(bucket, "compact", "--max-objects-per-node", "5", "--target-objects", "9")
    assert result.exit_code == 2
    assert "target_objects" in result.stderr


def without_time(plan: dict[str, Any]) -> dict[str, Any]:
    """A plan but for when it was made."""
    return {name: value for name, value in plan.items() if name != "planned_at_ms"}


def test_a_damaged_source_is_set_aside_and_its_neighbours_are_merged_by_further_tasks(
    spark: SparkSession, bucket: StoreSpec
) -> None:
    store = bucket.open()
    make_catalog(store)
    victim = fill(store, 4, objects(20))[9]
    with ObjectCatalog.open(store) as catalog:
        key = catalog.parts.layout.object_key(victim)
        found = store.get(key)
        store.put(key, bytes([found.body[0] ^ 0xFF]) + found.body[1:], mark=found.mark)
    settings = CompactionSettings(max_objects_per_node=10, target_objects=2, min_age_seconds=0)
    report = compact_on_spark(spark, bucket, plan_on_spark(spark, bucket, settings))
    assert (report.failed_groups, [each.object_id for each in report.set_aside]) == (0, [victim])
    assert [each.status for each in report.groups].count(Status.SET_ASIDE) == 1
    assert report.rewritten_objects > 15
    assert report.requests > 0
    again = compact_on_spark(spark, bucket, plan_on_spark(spark, bucket, settings))
    assert (again.is_partial, again.set_aside) == (False, ())


def first_ones(work: Work, store: StoreSpec, settings: CompactionSettings, item: GroupItem) -> GroupResult:
    """The work on a group; that on the seventh and later ones has not ended when they are cancelled."""
    if this_attempt().partition >= 6:
        Event().wait(HANG_SECONDS)
    return work(store, settings, item)


def test_a_stop_cancels_the_query_and_the_report_has_what_was_done(
    spark: SparkSession, bucket: StoreSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = bucket.open()
    make_catalog(store)
    fill(store, 4, objects(24))
    settings = CompactionSettings(rewrite_all=True, min_age_seconds=0, max_sources_per_group=2)
    plan = plan_on_spark(spark, bucket, settings)

    def stop(done: int, _: int) -> None:
        if done:  # Spark Connect reports that none is, too
            raise StopRequested

    with monkeypatch.context() as patched:
        patched.setattr(compact, "_work_on", partial(first_ones, compact._work_on))
        patched.setattr(compact, "POLL_SECONDS", 1.0)  # all that end have ended before
        report = compact_on_spark(spark, bucket, plan, progress=stop)
    done = [each for each in report.groups if not each.is_failure]
    assert 0 < len(done) < len(report.groups) == len(plan.groups)
    assert report.failed_groups == len(report.groups) - len(done)
    again = compact_on_spark(spark, bucket, plan)
    assert (again.is_partial, len(again.groups)) == (False, len(plan.groups))
    with ObjectCatalog.open(store) as catalog:
        assert len(catalog.refresh().nodes[4]) == 24 - len(plan.groups)
        assert not verify(catalog).problems
