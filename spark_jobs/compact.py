"""Compaction on Spark: nodes are planned, and groups merged and committed, in tasks.

    plan = plan_on_spark(spark, store, settings)        a task a node; a dry run ends here
    report = compact_on_spark(spark, store, plan)       a task a group

Each task is an attempt at its group (`accel.compaction.attempts`), whatever Spark does with it: it may run twice at
once, be killed before or after its commit, or be started again on another machine. Nothing depends on what reaches the
driver, which looks up in the list what became of a group whose task did not return.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from io import StringIO
from typing import TYPE_CHECKING

from accel.catalog import CatalogSettings, ObjectCatalog
from accel.catalog.from_image import ImageCatalog
from accel.catalog.job_runs import COMPACT, SPARK, recorded
from accel.compaction import (
    CompactionPlan,
    CompactionReport,
    CompactionSettings,
    FailedNode,
    Group,
    GroupItem,
    GroupResult,
    NodePlan,
    NodeSurvey,
    Status,
    compact,
    plan_compaction,
    plan_node,
    work_on,
)
from accel.compaction.attempts import is_open
from accel.errors import AccelError
from spark_jobs.tasks import ItemOutcome, Progress, StoreSpec, node_seconds, row_frame, run_items, this_attempt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

POLL_SECONDS = 5.0
"""While groups are merged, the lists are read this often, for the progress."""

TASKS_AT_ONCE = 32
"""The assumed number of tasks that run at once, where Spark's settings do not say it."""

_IDS_BLOCK = 16
"""The number of ids that a task takes from the shared counter; small, since unused ids are lost."""


def plan_on_spark(
    spark: SparkSession,
    store: StoreSpec,
    settings: CompactionSettings,
    *,
    progress: Progress | None = None,
) -> CompactionPlan:
    """Plan a compaction, each node in its own task, those with most objects first.

    Args:
        spark: the session, classic or of Spark Connect.
        store: the store of the catalog.
        settings: limits and targets of the compaction.
        progress: called with the number of planned nodes.

    Raises:
        MaintenanceRefused: the plan would make too many objects of one stream.
        CatalogMissing, StoreError: the catalog cannot be read now. The plan names nodes that could not be planned.
    """
    with ObjectCatalog.open(store.open()) as catalog:
        run = partial(planned, spark, store, catalog.parts.layout.namespace, settings, progress=progress)
        return plan_compaction(catalog, settings, run=run)


def planned(
    spark: SparkSession,
    store: StoreSpec,
    namespace: str,
    settings: CompactionSettings,
    surveys: Sequence[NodeSurvey],
    progress: Progress | None = None,
) -> Iterator[NodePlan | FailedNode]:
    """Plan nodes, each in its own task; those that no attempt could plan are returned as failed."""
    work = partial(_plan_node, store, namespace, settings)
    weights = [node_seconds(len(survey.live)) for survey in surveys]
    for outcome in run_items(spark, work, surveys, name="plan nodes", weights=weights, progress=progress):
        error = outcome.error or AssertionError("an outcome has a result or an error")
        yield outcome.result or FailedNode.of(outcome.item.node_id, len(outcome.item.live), error)


def compact_on_spark(
    spark: SparkSession,
    store: StoreSpec,
    plan: CompactionPlan,
    *,
    progress: Progress | None = None,
) -> CompactionReport:
    """Run a plan; it is safe to repeat. The run is recorded (`accel.catalog.job_runs`).

    If this process is killed, tasks that are under way end with it (a classic driver), or go on and commit (a client of
    Spark Connect); either way the next run does the rest.

    Args:
        spark: the session, classic or of Spark Connect.
        store: the store of the catalog.
        plan: of `plan_on_spark`.
        progress: called with the bytes of the groups that are done. If it raises `StopRequested`, the query is
            cancelled, and the report has the groups that were done.

    Requests: those of `accel.compaction.compact`; for each task one more, for the catalog's format record; and while
    groups are merged those of a refresh each `POLL_SECONDS` for the progress.

    Raises:
        CatalogMissing, StoreError: the catalog cannot be read now. Groups that fail later are in the report.
    """
    work = partial(_work_on, store, plan.settings)
    with ObjectCatalog.open(store.open()) as catalog, recorded(catalog.parts, COMPACT, SPARK):

        def run(items: Sequence[GroupItem]) -> Iterator[GroupResult]:
            watch = None if progress is None else _Watch(catalog, plan, progress).look
            return map(_result, run_items(spark, work, items, name="merge groups", progress=watch))

        return compact(catalog, plan, run=run, at_once=tasks_at_once(spark), progress=progress)


def report_frame(spark: SparkSession, report: CompactionReport) -> DataFrame:
    """A report as one row of numbers."""
    return row_frame(spark, report.row())


def tasks_at_once(spark: SparkSession) -> int:
    """How many tasks Spark may run at the same time, as far as it says: from it follow the time slots of commits.

    With dynamic allocation, that is `spark.dynamicAllocation.maxExecutors` times `spark.executor.cores`; where no
    maximum is set, at least `TASKS_AT_ONCE`.
    """
    with redirect_stdout(StringIO()) as explained:
        spark.range(1 << 40).explain()  # runs nothing, and works on Spark Connect, too
    found = re.search(r"splits=(\d+)", explained.getvalue())
    cores = TASKS_AT_ONCE if found is None else int(found[1])
    if spark.conf.get("spark.dynamicAllocation.enabled", "false") != "true":
        return cores
    most = spark.conf.get("spark.dynamicAllocation.maxExecutors", None)
    executor_cores = int(spark.conf.get("spark.executor.cores", "1") or 1)
    return max(cores, TASKS_AT_ONCE if most is None else int(most) * executor_cores)


class _Watch:
    """Reports the bytes of groups whose sources have left the lists. Threads: one at a time."""

    def __init__(self, catalog: ObjectCatalog, plan: CompactionPlan, progress: Progress) -> None:
        self._catalog = catalog
        self._plan = plan
        self._progress = progress
        self._timer = catalog.parts.system.timer
        self._looked_seconds = self._timer()
        self._done_bytes = 0

    def look(self, *_: int) -> None:
        """Called when tasks have ended."""
        if self._timer() - self._looked_seconds >= POLL_SECONDS:
            self._looked_seconds = self._timer()
            try:
                lists = self._catalog.refresh_state().node_lists()
            except AccelError:
                return  # the next look shows it
            left = sum(each.source_bytes for each in self._plan.groups if is_open(lists.get(each.node_id), each))
            self._done_bytes = self._plan.source_bytes - left
        self._progress(self._done_bytes, self._plan.source_bytes)


def _plan_node(store: StoreSpec, namespace: str, settings: CompactionSettings, survey: NodeSurvey) -> NodePlan:
    with ImageCatalog(store.open(), namespace=namespace) as objects:
        return plan_node(objects.parts, survey, settings)


def _work_on(store: StoreSpec, settings: CompactionSettings, item: GroupItem) -> GroupResult:
    counted = store.open()
    with ObjectCatalog.open(counted, settings=CatalogSettings(ids_block=_IDS_BLOCK)) as catalog:
        result = work_on(catalog, item, settings, attempt=this_attempt().number)
    counts = counted.snapshot()
    bared, conflicts = bare(item.group), counts.of("put").failures
    return replace(result, group=bared, requests=counts.total.requests, conflicts=conflicts)


def bare(group: Group) -> Group:
    """A group without what the driver has: it need not be sent back."""
    return replace(group, sources=(), trimmed_ids=group.trimmed_ids[:0], trimmed_starts=group.trimmed_starts[:0])


def _result(outcome: ItemOutcome[GroupItem, GroupResult]) -> GroupResult:
    group = outcome.item.group
    if outcome.result is None:
        return GroupResult(group, Status.UNKNOWN, str(outcome.error))
    return replace(outcome.result, group=group)
