"""`accel job rebuild-filters` and `accel job build-snapshot`: write the hints of nodes, so that readers start warm."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from accel.cli.options import command, end_with
from accel.rendering import Column, Rendered, Shown, table_of
from accel.units import count_text, size_text, time_text
from spark_jobs.cli.options import EXIT_PARTIAL, JobChoice, failed_objects, job_options, node_option
from spark_jobs.filters import Depth, FilterPlan, FilterReport, NodeNeeds, build_filters_on_spark, plan_filters_on_spark
from spark_jobs.snapshots import ENTRIES_A_FILE, NodeSnapshot, SnapshotReport, build_snapshots_on_spark


@command(
    "Write filter packs, so that readers start warm.",
    "accel job rebuild-filters s3://bucket/prefix",
    "accel job rebuild-filters s3://bucket/prefix --node 4 --only-bad --dry-run",
    name="rebuild-filters",
)
@node_option
@click.option("--only-bad", is_flag=True, help="Read the filters that there are, too, and build the bad ones anew.")
@click.option("--all", "everything", is_flag=True, help="Build all filters anew.")
@click.option("--dry-run", is_flag=True, help="Show what would be built; change nothing.")
@job_options
def rebuild_filters(
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
        with job.output.progress("looking at packs") as tell:
            plan = plan_filters_on_spark(spark, job.store, nodes=nodes, depth=depth, at_once=job.tasks, progress=tell)
        if dry_run:
            job.output.show(shown_filters(plan, None))
            return
        with job.output.progress("building filters", plan.tasks) as tell:
            report = build_filters_on_spark(spark, job.store, plan, at_once=job.tasks, progress=tell)
    job.output.show(shown_filters(plan, report))
    end_with(EXIT_PARTIAL if report.is_partial else 0)


def shown_filters(plan: FilterPlan, report: FilterReport | None) -> Shown:
    """What filters would be built, or were; without a report it was a dry run."""
    nodes = [
        {
            "node_id": needs.node_id,
            "objects": needs.objects,
            "kept": needs.kept,
            "to_build": len(needs.wanted),
            "bad": needs.bad,
            "to_drop": len(needs.dropped),
            "problem": needs.problem,
        }
        for needs in plan.nodes
    ]
    data = {"dry_run": report is None, "plan": {"nodes": nodes}, "report": report and _report_data(report)}
    return Shown(data, _filter_lines(plan, report))


def _report_data(report: FilterReport) -> dict[str, Any]:
    nodes = [
        {
            "node_id": node.needs.node_id,
            "added": node.added,
            "unfit": node.unfit,
            "failed_tasks": node.failed_tasks,
            "error": node.error,
            "failures": [{"object_id": failure.object_id, "reason": failure.reason} for failure in node.failures],
        }
        for node in report.nodes
    ]
    return {**report.row(), "per_node": nodes}


def _filter_lines(plan: FilterPlan, report: FilterReport | None) -> Iterator[Rendered]:
    """A table of the nodes, what failed, and a sentence."""
    if plan.nodes:
        columns: tuple[Column[NodeNeeds], ...] = (
            Column("node", lambda needs: needs.node_id),
            Column("objects", lambda needs: needs.objects),
            Column("kept", lambda needs: needs.kept),
            Column("to build", lambda needs: len(needs.wanted)),
            Column("of them bad", lambda needs: needs.bad),
            Column("to drop", lambda needs: len(needs.dropped)),
        )
        yield table_of(plan.nodes, *columns)
        yield ""
    yield from (f"of no use: {needs.problem}; built anew" for needs in plan.nodes if needs.problem)
    if report is None:
        wanted = sum(len(needs.wanted) for needs in plan.nodes)
        dropped = sum(len(needs.dropped) for needs in plan.nodes)
        yield f"dry run: {count_text(wanted, 'filter')} would be built, {dropped} dropped"
        return
    yield from (f"failed: node {node.needs.node_id}: {node.error}" for node in report.nodes if node.error)
    yield from failed_objects([failure for node in report.nodes for failure in node.failures])
    row = report.row()
    done = f"{row['added_filters']} added, {row['dropped_filters']} dropped, {row['kept_filters']} kept"
    what = f"filters of {count_text(int(row['nodes']), 'node')}: {done}"
    failed = f"{count_text(int(row['failed_objects']), 'object')} failed"
    cost = f"{size_text(report.written_bytes)} written, {count_text(report.requests, 'request')}"
    yield f"{what}; {failed}; {cost}, {time_text(report.seconds)}"


@command(
    "Write index snapshots, so that a cold read is one request.",
    "accel job build-snapshot s3://bucket/prefix",
    "accel job build-snapshot s3://bucket --node 4",
    name="build-snapshot",
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
def build_snapshot(
    *,
    job: JobChoice,
    nodes: frozenset[int] | None,
    everything: bool,
    entries_per_file: int,
) -> None:
    """Sort what the objects of each node hold by stream, and write it as an index.

    A node whose snapshot covers just the objects that are listed is left alone. Objects that cannot be opened are left
    out of what the snapshot covers. Ends with 4 if there are such, or a node's snapshot could not be built.
    """
    job.check_nodes(nodes)
    with job.spark() as spark, job.output.progress("building snapshots") as tell:
        report = build_snapshots_on_spark(
            spark, job.store, nodes=nodes, everything=everything, entries_a_file=entries_per_file, progress=tell
        )
    job.output.show(shown_snapshots(report))
    end_with(EXIT_PARTIAL if report.is_partial else 0)


def shown_snapshots(report: SnapshotReport) -> Shown:
    """What snapshots were built."""
    data = {**report.row(), "per_node": [asdict(node) for node in report.nodes]}
    return Shown(data, _snapshot_lines(report))


def _snapshot_lines(report: SnapshotReport) -> Iterator[Rendered]:
    """A table of the nodes, what failed, and a sentence."""
    if report.nodes:
        columns: tuple[Column[NodeSnapshot], ...] = (
            Column("node", lambda node: node.node_id),
            Column("objects", lambda node: node.objects),
            Column("covered", lambda node: node.covered),
            Column("entries", lambda node: node.entries),
            Column("files", lambda node: node.files),
            Column("size", lambda node: size_text(node.size_bytes)),
            Column("", lambda node: "failed" if node.error else "current" if node.is_current else "new", "left", False),
        )
        yield table_of(report.nodes, *columns)
        yield ""
    for node in report.nodes:
        if node.problem:
            yield f"of no use: {node.problem}; built anew"
        if node.error:
            yield f"failed: node {node.node_id}: {node.error}"
    yield from failed_objects([failure for node in report.nodes for failure in node.failures])
    row = report.row()
    done = f"{row['covered_objects']} of {count_text(int(row['objects']), 'object')} covered"
    what = f"snapshots of {count_text(int(row['nodes']), 'node')}: {done}, {row['entries']} entries written"
    failed = f"{count_text(int(row['failed_objects']), 'object')} and {row['failed_nodes']} nodes failed"
    yield f"{what}; {failed}; {count_text(report.requests, 'request')}, {time_text(report.seconds)}"
