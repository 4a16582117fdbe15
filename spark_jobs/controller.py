"""Compaction for a controller on Spark: nodes are planned, and groups merged and checked, in tasks.

    elsewhere = controller_on_spark(spark, store, image.namespace)
    plan = plan_for_controller(..., elsewhere=elsewhere)
    report = compact_for_controller(..., elsewhere=elsewhere)

The driver takes ids before the query, and passes the swaps on after it, so a callback runs in the driver alone. If the
driver is lost in between, the outputs lie unlisted under ids that the controller supplied; nothing else has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from accel.adoption.controller import Elsewhere, MergedGroup, MergeItem, merge_for_controller
from accel.catalog.from_image import ImageCatalog
from accel.compaction import CompactionSettings, FailedNode, NodePlan, NodeSurvey
from spark_jobs.compact import bare, planned
from spark_jobs.tasks import ItemOutcome, StoreSpec, run_items, this_attempt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def controller_on_spark(spark: SparkSession, store: StoreSpec, namespace: str) -> Elsewhere:
    """The planning and merging of a controller's objects on Spark.

    Args:
        spark: the session, classic or of Spark Connect. With `spark.speculation` the controller is asked for ids twice
            for each group, as two attempts may run at once.
        store: the store of the objects.
        namespace: of their keys.
    """

    def plan(surveys: Sequence[NodeSurvey], settings: CompactionSettings) -> Iterator[NodePlan | FailedNode]:
        return planned(spark, store, namespace, settings, surveys)

    def merge(items: Iterable[MergeItem], settings: CompactionSettings) -> Iterator[MergedGroup]:
        work = partial(_merge, store, namespace, settings)
        ordered = sorted(items, key=lambda item: item.group.source_bytes, reverse=True)
        return map(_merged, run_items(spark, work, ordered, name="merge groups"))

    is_speculative = spark.conf.get("spark.speculation", "false") == "true"
    return Elsewhere(plan, merge, 2 if is_speculative else 1)


def _merge(store: StoreSpec, namespace: str, settings: CompactionSettings, item: MergeItem) -> MergedGroup:
    with ImageCatalog(store.open(), namespace=namespace) as foreign:
        merged = merge_for_controller(foreign.parts, item, settings, attempt=this_attempt().number)
    return replace(merged, group=bare(merged.group))


def _merged(outcome: ItemOutcome[MergeItem, MergedGroup]) -> MergedGroup:
    group = outcome.item.group
    if outcome.result is None:
        return MergedGroup(group, reason=str(outcome.error), is_retryable=True, written_ids=None)
    return replace(outcome.result, group=group)
