"""The requests of each job on Spark and on one machine are those of docs/operations/cost.md."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from accel.catalog import ObjectCatalog
from accel.catalog.collect import collect, plan_collection
from accel.catalog.verify import verify
from accel.compaction import CompactionSettings, compact, plan_compaction
from accel.hint_building import HintChoice, build_hints, opened_catalog, plan_hints
from loaders.store import CountingStore, ObjectStore, open_store
from spark_jobs import compact as compact_module
from spark_jobs import hints as hints_module
from spark_jobs import survey as survey_module
from spark_jobs import tasks
from spark_jobs.compact import compact_on_spark, plan_on_spark
from spark_jobs.hints import build_hints_on_spark, plan_hints_on_spark
from spark_jobs.survey import SparkBulkScan
from spark_jobs.tasks import ItemOutcome, StoreSpec, run_items
from tests.docs.pages import page_named
from tests.spark_jobs.worlds import fill, make_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = CompactionSettings(max_objects_per_node=2, target_objects=1, min_age_seconds=0)
OBJECTS = 20

Job = tuple[str, Callable[[ObjectStore], object], Callable[["SparkSession", StoreSpec], object]]


def hints_here(store: ObjectStore) -> None:
    with opened_catalog(store, None) as catalog:
        build_hints(catalog, plan_hints(catalog, HintChoice()))


def compact_here(store: ObjectStore) -> None:
    with ObjectCatalog.open(store) as catalog:
        assert compact(catalog, plan_compaction(catalog, SETTINGS)).rewritten_objects == 2 * OBJECTS


def verify_here(store: ObjectStore) -> None:
    with ObjectCatalog.open(store) as catalog:
        verify(catalog)


def collect_here(store: ObjectStore) -> None:
    with ObjectCatalog.open(store) as catalog:
        collect(catalog, plan_collection(catalog))


def hints_on_spark(spark: SparkSession, spec: StoreSpec) -> None:
    build_hints_on_spark(spark, spec, plan_hints_on_spark(spark, spec, HintChoice()))


def compact_on(spark: SparkSession, spec: StoreSpec) -> None:
    assert compact_on_spark(spark, spec, plan_on_spark(spark, spec, SETTINGS)).rewritten_objects == 2 * OBJECTS


def verify_on_spark(spark: SparkSession, spec: StoreSpec) -> None:
    with ObjectCatalog.open(spec.open()) as catalog:
        verify(catalog, scan=SparkBulkScan(spark, spec))


def collect_on_spark(spark: SparkSession, spec: StoreSpec) -> None:
    with ObjectCatalog.open(spec.open()) as catalog:
        collect(catalog, plan_collection(catalog, scan=SparkBulkScan(spark, spec)))


JOBS: tuple[Job, ...] = (
    ("build-hints", hints_here, hints_on_spark),
    ("verify", verify_here, verify_on_spark),
    ("gc", collect_here, collect_on_spark),
    ("compact", compact_here, compact_on),
)


def test_the_requests_of_jobs_are_those_of_the_page(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = (StoreSpec((tmp_path / name).as_uri()) for name in ("here", "there"))
    for spec in (here, there):
        store = spec.open()
        make_catalog(store)
        for node_id in (4, 7):
            fill(store, node_id, [[(node_id, at, at + 1)] for at in range(OBJECTS)])
    in_tasks = 0

    def recorded(*arguments: Any, **named: Any) -> list[ItemOutcome[Any, Any]]:
        nonlocal in_tasks
        outcomes = run_items(*arguments, **named)
        in_tasks += sum(outcome.row["requests"] for outcome in outcomes if outcome.row is not None)
        return outcomes

    for module in (compact_module, hints_module, survey_module):
        monkeypatch.setattr(module, "run_items", recorded)
    driver = CountingStore(open_store(there.url))
    monkeypatch.setattr(tasks, "_shared_store", lambda _: driver)
    lines = [f"{'job':11}  {'one machine':>11}  {'driver':>6}  {'tasks':>5}"]
    for name, do_here, do_on_spark in JOBS:
        counted = CountingStore(open_store(here.url))
        do_here(counted)
        driver.reset()
        in_tasks = 0
        do_on_spark(spark, there)
        ours, theirs = counted.snapshot().total.requests, driver.snapshot().total.requests
        lines.append(f"{name:11}  {ours:11}  {theirs:6}  {in_tasks:5}")
    table = "\n".join(lines)
    assert table in page_named("cost").read_text(), table
