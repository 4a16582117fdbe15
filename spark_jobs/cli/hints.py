"""`accel job build-filters`, `build-snapshot` and `build-hints`: what `accel catalog` does of these names, on Spark."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy

from accel.cli.catalog.hints import HintWork, hint_options
from accel.cli.options import command, end_with
from accel.hint_building import HintPlan, HintReport
from spark_jobs.cli.options import JobChoice, job_options
from spark_jobs.hints import build_hints_on_spark, plan_hints_on_spark


@command(
    "Write filter packs, so that readers start warm.",
    "accel job build-filters s3://bucket/prefix",
    "accel job build-filters s3://bucket/prefix --node 4 --only-bad --dry-run",
)
@hint_options(filters=True, snapshots=False)
@job_options
def build_filters(*, job: JobChoice, work: HintWork) -> None:
    """Bring each node's filter pack up to date: `accel catalog build-filters`, a task a node.

    Ends with 4 if some filters could not be built.
    """
    _on_spark(job, work)


@command(
    "Write index snapshots, so that a cold read is one request.",
    "accel job build-snapshot s3://bucket/prefix",
    "accel job build-snapshot s3://bucket --node 4",
)
@hint_options(filters=False, snapshots=True)
@job_options
def build_snapshot(*, job: JobChoice, work: HintWork) -> None:
    """Sort what the objects of each node hold by stream: `accel catalog build-snapshot`, a task a node.

    Ends with 4 if an object cannot be opened, which is left out, or a node's snapshot could not be built.
    """
    _on_spark(job, work)


@command(
    "Write filter packs and index snapshots, opening each new object once.",
    "accel job build-hints s3://bucket/prefix",
    "accel job build-hints s3://bucket/prefix --dry-run",
)
@hint_options(filters=True, snapshots=True)
@job_options
def build_both(*, job: JobChoice, work: HintWork) -> None:
    """Do what build-filters and build-snapshot do, in one pass: `accel catalog build-hints`, a task a node.

    Ends with 4 if some of it could not be built.
    """
    _on_spark(job, work)


rebuild_filters = copy(build_filters)
rebuild_filters.name, rebuild_filters.hidden = "rebuild-filters", True  # its former name


def _on_spark(job: JobChoice, work: HintWork) -> None:
    job.check_nodes(work.nodes)
    with job.spark() as spark:

        def plan_with(work: HintWork, tell: Callable[..., object]) -> HintPlan:
            return plan_hints_on_spark(
                spark, job.store, work.choice, nodes=work.nodes, at_once=job.tasks, progress=tell
            )

        def build_with(plan: HintPlan, tell: Callable[..., object]) -> HintReport:
            return build_hints_on_spark(spark, job.store, plan, at_once=job.tasks, progress=tell)

        code = work.carry_out(plan_with, build_with, job.output)
    end_with(code)
