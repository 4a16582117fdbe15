"""`accel job compact`: plan a compaction and carry it out, or show the plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click
from rich import box
from rich.table import Table

from accel.catalog import ObjectCatalog
from accel.cli.options import SIZE, TIME, examples
from accel.compaction import CompactionPlan, CompactionReport, CompactionSettings
from accel.compaction.settings import MIB
from accel.lookup.explain import count_text
from accel.rendering import Rendered
from accel.units import size_text, time_text
from loaders.merge.reading import MergeSettings
from spark_jobs.cli.options import EXIT_PARTIAL, JobChoice, job_options
from spark_jobs.compact import compact_on_spark, plan_on_spark

GROUPS_SHOWN_MAX = 50
_DEFAULTS = CompactionSettings()


@dataclass(frozen=True, slots=True)
class ShownCompaction:
    """What a compaction would do, or did.

    Args:
        plan: what was decided.
        report: what became of it; None for a dry run.
    """

    plan: CompactionPlan
    report: CompactionReport | None

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "dry_run": self.report is None,
            "plan": self.plan.to_dict(),
            "report": None if self.report is None else self.report.to_dict(),
        }

    def render(self) -> Iterator[Rendered]:
        """A table of the nodes, the groups, what is left alone, what failed, and a sentence."""
        if self.plan.nodes:
            yield self._node_table()
            yield ""
        for group in self.plan.groups[:GROUPS_SHOWN_MAX]:
            outputs = f"{group.set_objects} and {count_text(group.stream_objects, 'stream object')}"
            yield f"{group.name}: {len(group.sources)} objects, {size_text(group.source_bytes)} -> {outputs}"
        if len(self.plan.groups) > GROUPS_SHOWN_MAX:
            yield f"... and {len(self.plan.groups) - GROUPS_SHOWN_MAX} more groups"
        for each in self.plan.skipped[:GROUPS_SHOWN_MAX]:
            yield f"left alone: {count_text(len(each.object_ids), 'object')} of node {each.node_id}: {each.reason}"
        yield from self._failures()
        yield self._sentence()

    def _node_table(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for name in ("node", "objects", "target", "afterwards", "groups"):
            table.add_column(name, justify="right", no_wrap=True)
        for node in self.plan.nodes:
            numbers = (node.node_id, node.objects, node.target_objects, node.objects_after, len(node.groups))
            table.add_row(*map(str, numbers))
        return table

    def _failures(self) -> Iterator[str]:
        for each in self.report.groups if self.report is not None else ():
            if each.is_failure:
                yield f"{each.status}: {each.group.name}: {each.reason}"

    def _sentence(self) -> str:
        if self.report is None:
            sources = sum(len(group.sources) for group in self.plan.groups)
            outputs = sum(group.set_objects for group in self.plan.groups)
            own = count_text(self.plan.stream_objects, "stream object")
            what = f"{count_text(sources, 'object')} of {size_text(self.plan.source_bytes)}"
            return f"dry run: {what} would become {outputs} and {own}"
        row = self.report
        what = f"{count_text(row.rewritten_objects, 'object')} of {size_text(row.rewritten_bytes)}"
        own = count_text(row.added_stream_objects, "stream object")
        cost = f"{count_text(row.requests, 'request')}, {time_text(row.seconds)}"
        failed = f"{count_text(row.failed_groups, 'group')} and {count_text(row.failed_tasks, 'task')} failed"
        return f"{what} became {row.added_objects} and {own} of {size_text(row.added_bytes)}; {failed}; {cost}"


@click.command(
    short_help="Make few large objects of many small ones.",
    epilog=examples(
        "accel job compact s3://bucket/prefix --dry-run",
        "accel job compact s3://bucket/prefix --max-objects-per-node 500 --max-bytes 50GiB",
        "accel job compact s3://bucket/prefix --node 4 --rewrite-all --target-objects 1",
    ),
)
@click.option(
    "--max-objects-per-node",
    type=click.IntRange(min=1),
    default=_DEFAULTS.max_objects_per_node,
    show_default=True,
    help="A node with more is compacted.",
)
@click.option("--target-objects", type=click.IntRange(min=1), help="... down to so many; default: 8 tenths of that.")
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
@click.option("--node", "nodes", type=click.IntRange(min=0), multiple=True, help="Only this node; may be repeated.")
@click.option("--rewrite-all", is_flag=True, help="Compact nodes below the trigger, too.")
@click.option("--server-side", is_flag=True, help="Let the store copy data itself where it can.")
@click.option("--dry-run", is_flag=True, help="Show the plan; change nothing.")
@job_options
@click.pass_context
def compact(ctx: click.Context, /, *, job: JobChoice, dry_run: bool, **choices: Any) -> None:
    """Make few large objects of many small ones, node by node.

    Neighbours in a node's list are merged, those first that cost least for each object less. Every record stays; what a
    stream was trimmed of goes. Readers with an older image still find the old objects until gc. Ends with 4 if some
    groups could not be compacted; running it again takes up what is left.
    """
    settings = _settings(**choices)
    with ObjectCatalog.open(job.store.open()):
        pass  # a bucket without a catalog is told before Spark is started
    with job.spark() as spark:
        with job.progress("planning nodes", 0) as tell:
            plan = plan_on_spark(spark, job.store, settings, at_once=job.tasks, progress=tell)
        if dry_run:
            job.output.show(ShownCompaction(plan, None))
            return
        with job.progress("merging groups", len(plan.groups)) as tell:
            report = compact_on_spark(spark, job.store, plan, at_once=job.tasks, progress=tell)
    job.output.show(ShownCompaction(plan, report))
    ctx.exit(EXIT_PARTIAL if report.is_partial else 0)


def _settings(
    *,
    min_age: float,
    target_object_size: int,
    split_size: int,
    nodes: tuple[int, ...],
    server_side: bool,
    **others: Any,
) -> CompactionSettings:
    try:
        return CompactionSettings(
            min_age_seconds=min_age,
            target_object_size_bytes=target_object_size,
            split_size_bytes=split_size,
            nodes=frozenset(nodes) or None,
            merging=MergeSettings(server_side=server_side),
            **others,
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
