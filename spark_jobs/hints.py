"""Filter packs and index snapshots on Spark: one task plans a node, and one task builds it.

    plan = plan_hints_on_spark(spark, store, HintChoice())       a dry run ends here
    report = build_hints_on_spark(spark, store, plan)

A task does for its node what `accel catalog build-hints` does for all nodes (`accel.hint_building`): it opens new
objects, 32 at a time, copies the rest from the previous generation, and writes the hints. So nodes are built in
parallel, and all data of a node stays on one machine: 64 MiB of entries in memory, briefly three times as much, and
about 7 bytes an entry on its disk.

All nodes are one query of Spark, those with most new objects first (`spark_jobs.tasks`). A node whose hints cannot be
planned or built is named in the report, and the others are done. Spark may run a task again, or twice at once. Each
attempt writes files under a unique name; the root that is written last is used, and a later attempt finds most of the
work done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from accel.catalog.from_image import ImageCatalog
from accel.catalog.job_runs import BUILD_HINTS, SPARK, recorded
from accel.hint_building import (
    HintChoice,
    HintPlan,
    HintReport,
    ListedNode,
    NodeFilters,
    NodePlan,
    NodeReport,
    NodeSnapshot,
    build_hints,
    build_node_hints,
    nodes_to_plan,
    opened_catalog,
    plan_node_hints,
)
from accel.image import MetadataImage
from spark_jobs.tasks import ItemOutcome, Progress, StoreSpec, node_seconds, run_items

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def plan_hints_on_spark(
    spark: SparkSession,
    store: StoreSpec,
    choice: HintChoice,
    *,
    nodes: frozenset[int] | None = None,
    image: MetadataImage | None = None,
    progress: Progress | None = None,
) -> HintPlan:
    """Find the missing hints, each node in its own task. Requests: as `accel.hint_building.plan_hints`.

    Args:
        spark: the session, classic or of Spark Connect.
        store: the store of the catalog.
        choice: which hints.
        nodes: only these nodes; all by default.
        image: a controller's metadata; None = the metadata of the catalog.
        progress: called with the number of planned nodes.

    Raises:
        UnknownNode: the catalog does not have one of the nodes.
        CatalogMissing, StoreError: the catalog cannot be read now. The plan names nodes whose hints could not be read.
        MaintenanceRefused: an image does not have the size of each object.
    """
    with opened_catalog(store.open(), image) as catalog:
        listed, namespace = nodes_to_plan(catalog, nodes), catalog.parts.layout.namespace
    work = partial(_plan_node, store, namespace, choice)
    weights = [node_seconds(len(node.live)) for node in listed]
    outcomes = run_items(spark, work, listed, name="plan hints of nodes", weights=weights, progress=progress)
    return HintPlan(tuple(sorted(map(_node_plan, outcomes), key=lambda node: node.node_id)))


def build_hints_on_spark(
    spark: SparkSession,
    store: StoreSpec,
    plan: HintPlan,
    *,
    image: MetadataImage | None = None,
    progress: Progress | None = None,
) -> HintReport:
    """Build the hints of a plan; it is safe to repeat. The run is recorded (`accel.catalog.job_runs`).

    Args:
        spark: the session, classic or of Spark Connect.
        store: the store of the catalog.
        plan: of `plan_hints_on_spark`.
        image: the image of the plan; None = the metadata of the catalog.
        progress: called with the number of nodes that are done.

    Raises:
        CatalogMissing, StoreError: the catalog cannot be read now. Later failures are in the report.
    """
    with opened_catalog(store.open(), image) as catalog, recorded(catalog.parts, BUILD_HINTS, SPARK):
        work = partial(_build_node, store, catalog.parts.layout.namespace)

        def run(nodes: Sequence[NodePlan]) -> Iterator[NodeReport]:
            weights = [node_seconds(len(node.to_open)) for node in nodes]
            name = "build hints of nodes"
            return map(_node_report, run_items(spark, work, nodes, name=name, weights=weights, progress=progress))

        return build_hints(catalog, plan, run=run)


def _plan_node(store: StoreSpec, namespace: str, choice: HintChoice, node: ListedNode) -> NodePlan:
    with ImageCatalog(store.open(), namespace=namespace) as catalog:
        return plan_node_hints(catalog.parts, node, choice)


def _build_node(store: StoreSpec, namespace: str, plan: NodePlan) -> NodeReport:
    with ImageCatalog(store.open(), namespace=namespace) as catalog:
        return build_node_hints(catalog.parts, plan)


def _node_plan(outcome: ItemOutcome[ListedNode, NodePlan]) -> NodePlan:
    if outcome.result is not None:
        return outcome.result
    node = outcome.item
    return NodePlan(node.node_id, node.live, None, None, 0, tuple(node.set_aside.tolist()), str(outcome.error))


def _node_report(outcome: ItemOutcome[NodePlan, NodeReport]) -> NodeReport:
    plan, error = outcome.item, str(outcome.error)
    filters = None if plan.filters is None else NodeFilters(error=error)
    snapshot = None if plan.snapshot is None else NodeSnapshot(error=error)
    failed = NodeReport(plan.node_id, len(plan.live), 0, filters, snapshot, requests=plan.requests)
    return replace(outcome.result or failed, failed_attempts=outcome.failures)
