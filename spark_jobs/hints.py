"""Filter packs and index snapshots on Spark: one task plans a node, and one task builds it.

    plan = plan_hints_on_spark(spark, store, HintChoice())       a dry run ends here
    report = build_hints_on_spark(spark, store, plan)

A task does for its node what `accel catalog build-hints` does for all nodes (`accel.hint_building`): it opens new
objects, 32 at a time, copies the rest from the previous generation, and writes the hints. So nodes are built in
parallel, and all data of a node stays on one machine: 128 MiB of entries in memory, briefly three times as much, and
about 7 bytes an entry on its disk.

Spark retries a failed task, and may run a slow task twice. Each attempt writes files under a unique name; the root that
is written last is used, and a later attempt finds most of the work done.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from accel.catalog.from_image import ImageCatalog
from accel.hint_building import (
    HintChoice,
    HintPlan,
    HintReport,
    ListedNode,
    NodeFilters,
    NodePlan,
    NodeReport,
    NodeSnapshot,
    build_node_hints,
    nodes_to_plan,
    opened_catalog,
    plan_node_hints,
    remember_failures,
)
from accel.image import MetadataImage
from spark_jobs.tasks import StoreSpec, TaskOutcome, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS_AT_ONCE = 8
"""Nodes that are built at the same time."""

Progress = Callable[[int, int], object]
"""Called with (number done, total number)."""


def plan_hints_on_spark(
    spark: SparkSession,
    store: StoreSpec,
    choice: HintChoice,
    *,
    nodes: frozenset[int] | None = None,
    image: MetadataImage | None = None,
    at_once: int = TASKS_AT_ONCE,
    progress: Progress | None = None,
) -> HintPlan:
    """Find the missing hints, each node in its own task. Requests: as `accel.hint_building.plan_hints`.

    Args:
        spark: the session; a classic one, not Spark Connect.
        store: the store of the catalog.
        choice: which hints.
        nodes: only these nodes; all by default.
        image: a controller's metadata; None = the metadata of the catalog.
        at_once: tasks that run at the same time.
        progress: called with the number of planned nodes.

    Raises:
        ValueError: the catalog does not have one of the nodes.
        TaskFailed: a task could not be run.
        CatalogMissing, StoreError: the catalog cannot be read now. The plan names nodes whose hints could not be read.
        MaintenanceRefused: an image does not have the size of each object.
    """
    with opened_catalog(store.open(), image) as catalog:
        listed, namespace = nodes_to_plan(catalog, nodes), catalog.parts.layout.namespace
    planned: list[NodePlan] = []
    work = partial(_plan_node, store, namespace, choice)
    for outcome in run_tasks(spark, work, listed, at_once=at_once, label=_plan_label):
        planned.append(outcome.required())
        if progress is not None:
            progress(len(planned), len(listed))
    return HintPlan(tuple(sorted(planned, key=lambda node: node.node_id)))


def build_hints_on_spark(
    spark: SparkSession,
    store: StoreSpec,
    plan: HintPlan,
    *,
    image: MetadataImage | None = None,
    at_once: int = TASKS_AT_ONCE,
    progress: Progress | None = None,
) -> HintReport:
    """Build the hints of a plan; it is safe to repeat.

    Args:
        spark: the session; a classic one, not Spark Connect.
        store: the store of the catalog.
        plan: of `plan_hints_on_spark`.
        image: the image of the plan; None = the metadata of the catalog.
        at_once: nodes that are built at the same time.
        progress: called with the number of nodes that are done.

    Raises:
        CatalogMissing, StoreError: the catalog cannot be read now. Later failures are in the report.
    """
    with opened_catalog(store.open(), image) as catalog:
        timer, namespace = catalog.parts.system.timer, catalog.parts.layout.namespace
    started = timer()
    built: list[NodeReport] = []
    failed_tasks = 0
    for outcome in run_tasks(
        spark, partial(_build_node, store, namespace), plan.nodes, at_once=at_once, label=_build_label
    ):
        built.append(_node_report(outcome))
        failed_tasks += outcome.failed_attempts
        if progress is not None:
            progress(len(built), len(plan.nodes))
    nodes = tuple(sorted(built, key=lambda node: node.node_id))
    with opened_catalog(store.open(), image) as catalog:
        remember_failures(catalog, plan, nodes)
    return HintReport(nodes, sum(node.requests for node in nodes), failed_tasks, timer() - started)


def _plan_node(store: StoreSpec, namespace: str, choice: HintChoice, node: ListedNode) -> NodePlan:
    with ImageCatalog(store.open(), namespace=namespace) as catalog:
        return plan_node_hints(catalog.parts, node, choice)


def _build_node(store: StoreSpec, namespace: str, plan: NodePlan) -> NodeReport:
    with ImageCatalog(store.open(), namespace=namespace) as catalog:
        return build_node_hints(catalog.parts, plan)


def _node_report(outcome: TaskOutcome[NodePlan, NodeReport]) -> NodeReport:
    if outcome.result is not None:
        return outcome.result
    plan, error = outcome.value, str(outcome.error)
    filters = None if plan.filters is None else NodeFilters(error=error)
    snapshot = None if plan.snapshot is None else NodeSnapshot(error=error)
    return NodeReport(plan.node_id, len(plan.live), 0, filters, snapshot, requests=plan.requests)


def _plan_label(node: ListedNode) -> str:
    return f"accel: plan the hints of node {node.node_id}, {len(node.live)} objects"


def _build_label(plan: NodePlan) -> str:
    return f"accel: build hints of node {plan.node_id}, {len(plan.to_open)} objects to open"
