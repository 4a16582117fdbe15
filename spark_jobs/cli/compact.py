"""`accel job compact`: plan a compaction and carry it out, or show the plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from accel.catalog import ObjectCatalog
from accel.cli.options import SIZE, TIME, command, end_with
from accel.compaction import CompactionPlan, CompactionReport, CompactionSettings
from accel.compaction.plan import NodePlan
from accel.rendering import Column, Rendered, Shown, table_of
from accel.units import count_text, size_text, time_text
from loaders.merge.reading import MergeSettings
from loaders.settings import MIB
from spark_jobs.cli.options import EXIT_PARTIAL, JobChoice, job_options, node_option
from spark_jobs.compact import compact_on_spark, plan_on_spark

GROUPS_SHOWN_MAX = 50
_DEFAULTS = CompactionSettings()


def shown_compaction(plan: CompactionPlan, report: CompactionReport | None) -> Shown:
    """What a compaction would do, or did; without a report it was a dry run."""
    report_data = None if report is None else report.to_dict()
    data = {"dry_run": report is None, "plan": plan.to_dict(), "report": report_data}
    return Shown(data, _lines(plan, report))


def _lines(plan: CompactionPlan, report: CompactionReport | None) -> Iterator[Rendered]:
    """A table of the nodes, the groups, what is left alone, what failed, and a sentence."""
    if plan.nodes:
        columns: tuple[Column[NodePlan], ...] = (
            Column("node", lambda node: node.node_id),
            Column("objects", lambda node: node.objects),
            Column("target", lambda node: node.target_objects),
            Column("afterwards", lambda node: node.objects_after),
            Column("groups", lambda node: len(node.groups)),
        )
        yield table_of(plan.nodes, *columns)
        yield ""
    for group in plan.groups[:GROUPS_SHOWN_MAX]:
        outputs = f"{group.set_objects} and {count_text(group.stream_objects, 'stream object')}"
        yield f"{group.name}: {len(group.sources)} objects, {size_text(group.source_bytes)} -> {outputs}"
    if len(plan.groups) > GROUPS_SHOWN_MAX:
        yield f"... and {len(plan.groups) - GROUPS_SHOWN_MAX} more groups"
    for skipped in plan.skipped[:GROUPS_SHOWN_MAX]:
        yield f"left alone: {count_text(len(skipped.object_ids), 'object')} of node {skipped.node_id}: {skipped.reason}"
    if report is None:
        sources = sum(len(group.sources) for group in plan.groups)
        outputs = str(sum(group.set_objects for group in plan.groups))
        own = count_text(plan.stream_objects, "stream object")
        what = f"{count_text(sources, 'object')} of {size_text(plan.source_bytes)}"
        yield f"dry run: {what} would become {outputs} and {own}"
        return
    for ended in report.groups:
        if ended.is_failure:
            yield f"{ended.status}: {ended.group.name}: {ended.reason}"
    what = f"{count_text(report.rewritten_objects, 'object')} of {size_text(report.rewritten_bytes)}"
    own = count_text(report.added_stream_objects, "stream object")
    cost = f"{count_text(report.requests, 'request')}, {time_text(report.seconds)}"
    failed = f"{count_text(report.failed_groups, 'group')} and {count_text(report.failed_tasks, 'task')} failed"
    yield f"{what} became {report.added_objects} and {own} of {size_text(report.added_bytes)}; {failed}; {cost}"


@command(
    "Make few large objects of many small ones.",
    "accel job compact s3://bucket/prefix --dry-run",
    "accel job compact s3://bucket/prefix --max-objects-per-node 500 --max-bytes 50GiB",
    "accel job compact s3://bucket/prefix --node 4 --rewrite-all --target-objects 1",
)
@click.option(
    "--max-objects-per-node",
    type=click.IntRange(min=1),
    default=_DEFAULTS.max_objects_per_node,
    show_default=True,
    help="A node with more is compacted.",
)
@click.option(
    "--target-objects", type=click.IntRange(min=1), help="... down to this number; default: 8 tenths of that."
)
@click.option("--max-objects", type=click.IntRange(min=1), help="For all nodes together; each gives its share.")
@click.option("--max-bytes", type=SIZE, metavar="SIZE", help="Bytes that this run may rewrite; cheapest first.")
@click.option(
    "--min-age",
    type=TIME,
    metavar="TIME",
    default=f"{_DEFAULTS.min_age_seconds:g}s",
    show_default=True,
    help="Younger objects are left alone.",
)
@click.option(
    "--target-object-size",
    type=SIZE,
    metavar="SIZE",
    default=f"{_DEFAULTS.target_object_size_bytes // MIB}MiB",
    show_default=True,
    help="No group is larger.",
)
@click.option(
    "--split-size",
    type=SIZE,
    metavar="SIZE",
    default=f"{_DEFAULTS.split_size_bytes // MIB}MiB",
    show_default=True,
    help="A stream with so much in a group gets an object of its own.",
)
@click.option(
    "--max-stream-objects",
    type=click.IntRange(min=0),
    default=_DEFAULTS.max_stream_objects,
    show_default=True,
    help="A plan that makes more of them is refused.",
)
@node_option
@click.option("--rewrite-all", is_flag=True, help="Compact nodes below the trigger, too.")
@click.option("--server-side", is_flag=True, help="Let the store copy data itself where it can.")
@click.option("--dry-run", is_flag=True, help="Show the plan; change nothing.")
@job_options
def compact(*, job: JobChoice, dry_run: bool, **choices: Any) -> None:
    """Make few large objects of many small ones, node by node.

    Neighbours in a node's list are merged, those first that cost least for each object less. Every record stays; what a
    stream was trimmed of goes. Readers with an older image still find the old objects until gc. Ends with 4 if some
    groups could not be compacted; running it again takes up what is left.
    """
    settings = _settings(**choices)
    with ObjectCatalog.open(job.store.open()):
        pass  # a bucket without a catalog is told before Spark is started
    with job.spark() as spark:
        with job.output.progress("planning nodes") as tell:
            plan = plan_on_spark(spark, job.store, settings, at_once=job.tasks, progress=tell)
        if dry_run:
            job.output.show(shown_compaction(plan, None))
            return
        with job.output.progress("merging groups", len(plan.groups)) as tell:
            report = compact_on_spark(spark, job.store, plan, at_once=job.tasks, progress=tell)
    job.output.show(shown_compaction(plan, report))
    end_with(EXIT_PARTIAL if report.is_partial else 0)


def _settings(
    *,
    min_age: float,
    target_object_size: int,
    split_size: int,
    server_side: bool,
    **others: Any,
) -> CompactionSettings:
    try:
        return CompactionSettings(
            min_age_seconds=min_age,
            target_object_size_bytes=target_object_size,
            split_size_bytes=split_size,
            merging=MergeSettings(server_side=server_side),
            **others,
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
