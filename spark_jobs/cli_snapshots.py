"""`accel job build-snapshot`: sort what the objects of nodes hold by stream, so that a cold read is one request."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import click
from rich import box
from rich.table import Table

from accel.cli.options import examples
from accel.cli.output import Rendered
from accel.lookup.explain import count_text
from accel.units import size_text, time_text
from spark_jobs.cli_options import EXIT_PARTIAL, JobChoice, job_options, node_option
from spark_jobs.snapshots import ENTRIES_A_FILE, NodeSnapshot, SnapshotReport, build_snapshots_on_spark

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
