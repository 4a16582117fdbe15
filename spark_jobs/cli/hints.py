"""`accel job rebuild-filters` and `accel job build-snapshot`: write the hints of nodes, so that readers start warm."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import click
from rich import box
from rich.table import Table

from accel.cli.options import examples
from accel.lookup.explain import count_text
from accel.rendering import Rendered
from accel.units import size_text, time_text
from spark_jobs.cli.options import EXIT_PARTIAL, JobChoice, job_options, node_option
from spark_jobs.filters import Depth, FilterPlan, FilterReport, NodeNeeds, build_filters_on_spark, plan_filters_on_spark
from spark_jobs.snapshots import ENTRIES_A_FILE, NodeSnapshot, SnapshotReport, build_snapshots_on_spark

FAILURES_SHOWN_MAX = 50


@dataclass(frozen=True, slots=True)
class ShownFilters:
    """What filters would be built, or were.

    Args:
        plan: what was wanted.
        report: what became of it; None for a dry run.
    """

    plan: FilterPlan
    report: FilterReport | None

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "dry_run": self.report is None,
            "plan": {"nodes": [_needs(each) for each in self.plan.nodes]},
            "report": None if self.report is None else _report(self.report),
        }

    def render(self) -> Iterator[Rendered]:
        """A table of the nodes, what failed, and a sentence."""
        if self.plan.nodes:
            yield self._table()
            yield ""
        for needs in self.plan.nodes:
            if needs.problem:
                yield f"of no use: {needs.problem}; built anew"
        yield from self._failures()
        yield self._sentence()

    def _table(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for name in ("node", "objects", "kept", "to build", "of them bad", "to drop"):
            table.add_column(name, justify="right", no_wrap=True)
        for each in self.plan.nodes:
            numbers = (each.node_id, each.objects, each.kept, len(each.wanted), each.bad, len(each.dropped))
            table.add_row(*map(str, numbers))
        return table

    def _failures(self) -> Iterator[str]:
        nodes = self.report.nodes if self.report is not None else ()
        yield from (f"failed: node {each.needs.node_id}: {each.error}" for each in nodes if each.error)
        failed = [each for node in nodes for each in node.failures]
        for each in failed[:FAILURES_SHOWN_MAX]:
            yield f"failed: object {each.object_id} of node {each.node_id}: {each.reason}"
        if len(failed) > FAILURES_SHOWN_MAX:
            yield f"... and {len(failed) - FAILURES_SHOWN_MAX} more objects"

    def _sentence(self) -> str:
        if self.report is None:
            wanted = sum(len(each.wanted) for each in self.plan.nodes)
            dropped = sum(len(each.dropped) for each in self.plan.nodes)
            return f"dry run: {count_text(wanted, 'filter')} would be built, {dropped} dropped"
        row = self.report.row()
        done = f"{row['added_filters']} added, {row['dropped_filters']} dropped, {row['kept_filters']} kept"
        what = f"filters of {count_text(int(row['nodes']), 'node')}: {done}"
        failed = f"{count_text(int(row['failed_objects']), 'object')} failed"
        cost = f"{size_text(self.report.written_bytes)} written, {count_text(self.report.requests, 'request')}"
        return f"{what}; {failed}; {cost}, {time_text(self.report.seconds)}"


@click.command(
    "rebuild-filters",
    short_help="Write filter packs, so that readers start warm.",
    epilog=examples(
        "accel job rebuild-filters s3://bucket/prefix",
        "accel job rebuild-filters s3://bucket/prefix --node 4 --only-bad --dry-run",
    ),
)
@node_option
@click.option("--only-bad", is_flag=True, help="Read the filters that there are, too, and build the bad ones anew.")
@click.option("--all", "everything", is_flag=True, help="Build all filters anew.")
@click.option("--dry-run", is_flag=True, help="Show what would be built; change nothing.")
@job_options
@click.pass_context
def rebuild_filters(
    ctx: click.Context,
    /,
    *,
    job: JobChoice,
    nodes: frozenset[int] | None,
    only_bad: bool,
    everything: bool,
    dry_run: bool,
) -> None:
    """Bring each node's filter pack up to date.

    Filters are built for objects that have none of their id and size, and those of objects that are listed no more are
    dropped; the others stay. With --only-bad the stored ones are looked at as well, and those that cannot be read or
    let more than 1.25 % of absent streams pass are built anew. Ends with 4 if some filters could not be built.
    """
    if only_bad and everything:
        raise click.UsageError("Expected --only-bad or --all, found both.")
    depth = Depth.BAD if only_bad else Depth.ALL if everything else Depth.MISSING
    job.check_nodes(nodes)
    with job.spark() as spark:
        with job.progress("looking at packs", 0) as tell:
            plan = plan_filters_on_spark(spark, job.store, nodes=nodes, depth=depth, at_once=job.tasks, progress=tell)
        if dry_run:
            job.output.show(ShownFilters(plan, None))
            return
        with job.progress("building filters", plan.tasks) as tell:
            report = build_filters_on_spark(spark, job.store, plan, at_once=job.tasks, progress=tell)
    job.output.show(ShownFilters(plan, report))
    ctx.exit(EXIT_PARTIAL if report.is_partial else 0)


def _needs(needs: NodeNeeds) -> dict[str, Any]:
    return {
        "node_id": needs.node_id,
        "objects": needs.objects,
        "kept": needs.kept,
        "to_build": len(needs.wanted),
        "bad": needs.bad,
        "to_drop": len(needs.dropped),
        "problem": needs.problem,
    }


def _report(report: FilterReport) -> dict[str, Any]:
    nodes = [
        {
            "node_id": each.needs.node_id,
            "added": each.added,
            "unfit": each.unfit,
            "failed_tasks": each.failed_tasks,
            "error": each.error,
            "failures": [{"object_id": one.object_id, "reason": one.reason} for one in each.failures],
        }
        for each in report.nodes
    ]
    return {**report.row(), "per_node": nodes}


FAILURES_SHOWN_MAX = 50


@dataclass(frozen=True, slots=True)
class ShownSnapshots:
    """What snapshots were built."""

    report: SnapshotReport

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {**self.report.row(), "per_node": [asdict(each) for each in self.report.nodes]}

    def render(self) -> Iterator[Rendered]:
        """A table of the nodes, what failed, and a sentence."""
        if self.report.nodes:
            yield self._table()
            yield ""
        for each in self.report.nodes:
            if each.problem:
                yield f"of no use: {each.problem}; built anew"
            if each.error:
                yield f"failed: node {each.node_id}: {each.error}"
        yield from self._failures()
        yield self._sentence()

    def _table(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for name in ("node", "objects", "covered", "entries", "files", "size"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("")
        for each in self.report.nodes:
            numbers = (each.node_id, each.objects, each.covered, each.entries, each.files)
            table.add_row(*map(str, numbers), size_text(each.size_bytes), _state(each))
        return table

    def _failures(self) -> Iterator[str]:
        failed = [each for node in self.report.nodes for each in node.failures]
        for each in failed[:FAILURES_SHOWN_MAX]:
            yield f"failed: object {each.object_id} of node {each.node_id}: {each.reason}"
        if len(failed) > FAILURES_SHOWN_MAX:
            yield f"... and {len(failed) - FAILURES_SHOWN_MAX} more objects"

    def _sentence(self) -> str:
        row = self.report.row()
        done = f"{row['covered_objects']} of {count_text(int(row['objects']), 'object')} covered"
        what = f"snapshots of {count_text(int(row['nodes']), 'node')}: {done}, {row['entries']} entries written"
        failed = f"{count_text(int(row['failed_objects']), 'object')} and {row['failed_nodes']} nodes failed"
        return f"{what}; {failed}; {count_text(self.report.requests, 'request')}, {time_text(self.report.seconds)}"


@click.command(
    "build-snapshot",
    short_help="Write index snapshots, so that a cold read is one request.",
    epilog=examples("accel job build-snapshot s3://bucket/prefix", "accel job build-snapshot s3://bucket --node 4"),
)
@node_option
@click.option("--all", "everything", is_flag=True, help="Also of nodes whose snapshot covers just what is listed.")
@click.option(
    "--entries-per-file",
    type=click.IntRange(min=1),
    default=ENTRIES_A_FILE,
    show_default=True,
    help="About how many; a file is written by one task.",
)
@job_options
@click.pass_context
def build_snapshot(
    ctx: click.Context,
    /,
    *,
    job: JobChoice,
    nodes: frozenset[int] | None,
    everything: bool,
    entries_per_file: int,
) -> None:
    """Sort what the objects of each node hold by stream, and write it as Parquet.

    A node whose snapshot covers just the objects that are listed is left alone. Objects that cannot be opened are left
    out of what the snapshot covers. Ends with 4 if there are such, or a node's snapshot could not be built.
    """
    job.check_nodes(nodes)
    with job.spark() as spark, job.progress("building snapshots", 0) as tell:
        report = build_snapshots_on_spark(
            spark, job.store, nodes=nodes, everything=everything, entries_a_file=entries_per_file, progress=tell
        )
    job.output.show(ShownSnapshots(report))
    ctx.exit(EXIT_PARTIAL if report.is_partial else 0)


def _state(node: NodeSnapshot) -> str:
    if node.error:
        return "failed"
    return "current" if node.is_current else "new"
