"""Compaction on Spark: nodes are planned and groups merged in tasks; only the driver commits.

    plan = plan_on_spark(spark, store, settings)        a task a node; a dry run ends here
    report = compact_on_spark(spark, store, plan)       a task a group, committed when its task ends

Spark retries a task that failed for a temporary reason (the store was busy, a machine was lost), under new ids. A task
that fails permanently affects only its own group; a source that cannot be read is set aside, as without Spark, and its
neighbours are merged by further tasks. The collector deletes objects under ids that are not committed, after
the deadline of these ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from accel.catalog import CatalogSettings, ObjectCatalog
from accel.compaction import (
    CompactionPlan,
    CompactionReport,
    CompactionSettings,
    FailedNode,
    Group,
    GroupFailure,
    GroupOutcome,
    NodePlan,
    NodeSurvey,
    assemble_plan,
    compact,
    plan_node,
    survey_catalog,
    try_group,
)
from spark_jobs.tasks import ItemOutcome, StoreSpec, row_frame, run_items

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Progress = Callable[[int, int], object]
"""Called with (number done, total number)."""

_IDS_BLOCK = 16
"""The number of ids that a task takes from the shared counter; small, since unused ids are lost."""


def plan_on_spark(
    spark: SparkSession,
    store: StoreSpec,
    settings: CompactionSettings,
    *,
    progress: Progress | None = None,
) -> CompactionPlan:
    """Plan a compaction, each node in its own task.

    Args:
        spark: the session.
        store: the store of the catalog.
        settings: limits and targets of the compaction.
        progress: called with the number of planned nodes.

    Raises:
        MaintenanceRefused: the plan would make too many objects of one stream.
        CatalogMissing, StoreError: the catalog cannot be read now. The plan names nodes that could not be planned.
    """
    with ObjectCatalog.open(store.open()) as catalog:
        found = survey_catalog(catalog, settings)
        now_ms = catalog.parts.now_ms()
    nodes: list[NodePlan] = []
    failed: list[FailedNode] = []
    work = partial(_plan_node, store, settings)
    for outcome in run_items(spark, work, found.nodes, name="plan nodes", progress=progress):
        if outcome.error is not None:
            failed.append(FailedNode.of(outcome.item.node_id, len(outcome.item.live), outcome.error))
        else:
            nodes.append(outcome.required())
    ordered = tuple(sorted(failed, key=lambda node: node.node_id))
    return assemble_plan(now_ms, settings, tuple(nodes), found.left_alone, ordered)


def compact_on_spark(
    spark: SparkSession,
    store: StoreSpec,
    plan: CompactionPlan,
    *,
    progress: Progress | None = None,
) -> CompactionReport:
    """Run a plan; it is safe to repeat.

    Args:
        spark: the session.
        store: the store of the catalog.
        plan: of `plan_on_spark`.
        progress: called with the number of bytes in the groups that are done.

    Raises:
        CatalogMissing, StoreError: the catalog cannot be read now. Groups that fail later are in the report.
    """
    merge = partial(_merge_group, store, plan.settings)

    def run(groups: Sequence[Group]) -> Iterator[GroupOutcome | GroupFailure]:
        for outcome in run_items(spark, merge, groups, name="merge groups"):
            yield from _attempts(outcome)

    with ObjectCatalog.open(store.open()) as catalog:
        return compact(catalog, plan, run=run, progress=progress)


def report_frame(spark: SparkSession, report: CompactionReport) -> DataFrame:
    """A report as one row of numbers."""
    return row_frame(spark, report.row())


def _attempts(outcome: ItemOutcome[Group, GroupOutcome | GroupFailure]) -> Iterator[GroupOutcome | GroupFailure]:
    reason = "the attempt failed, and was repeated" if outcome.error is None else str(outcome.error)
    for _ in range(outcome.failures):
        yield GroupFailure(outcome.item, reason)
    if outcome.result is not None:
        yield outcome.result
    elif not outcome.failures:
        yield GroupFailure(outcome.item, reason)


def _plan_node(store: StoreSpec, settings: CompactionSettings, survey: NodeSurvey) -> NodePlan:
    with ObjectCatalog.open(store.open()) as catalog:
        return plan_node(catalog.parts, survey, settings)


def _merge_group(store: StoreSpec, settings: CompactionSettings, group: Group) -> GroupOutcome | GroupFailure:
    with ObjectCatalog.open(store.open(), settings=CatalogSettings(ids_block=_IDS_BLOCK)) as catalog:
        return try_group(catalog, group, settings, is_repeated=True)
