"""`accel catalog build-hints`: write filter packs and index snapshots of nodes, so that readers start warm.

With `--image` the nodes are those of a controller's metadata; a catalog is not needed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import click

from accel.catalog.job_runs import BUILD_HINTS
from accel.cli.engines import Engine, engine_options, recording
from accel.cli.options import (
    EXIT_PARTIAL,
    INTEGER,
    command,
    end_with,
    image_option,
    log_option,
    store_options,
)
from accel.cli.signals import Signals, until_signal
from accel.hint_building import (
    Depth,
    HintChoice,
    HintPlan,
    HintReport,
    NodePlan,
)
from accel.image import MetadataImage
from accel.rendering import Column, Fields, Output, Rendered, Shown, table_of, word
from accel.units import count_text, size_text, time_text

FAILURES_SHOWN_MAX = 50

Command = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class HintWork:
    """The options of a build.

    Args:
        choice: which hints.
        nodes: build hints of these nodes; None for all.
        is_dry_run: show the plan only.
    """

    choice: HintChoice
    nodes: frozenset[int] | None
    is_dry_run: bool

    def carry_out(self, engine: Engine, image: MetadataImage | None, output: Output) -> int:
        """Plan, build unless it is a dry run, and print; returns the exit code."""

        def carried_out(signals: Signals) -> int:
            is_recorded = image is None and not self.is_dry_run
            with recording(engine, BUILD_HINTS, signals, is_recorded=is_recorded):
                return built(signals)

        def built(signals: Signals) -> int:
            with output.progress("looking at hints", moved=building.moved) as tell:
                plan = building.plan(self.choice, self.nodes, signals.at(tell))
            if self.is_dry_run:
                output.show(shown_hints(plan, None))
                return 0
            with output.progress("building hints", moved=building.moved) as tell:
                report = building.build(plan, signals.at(tell))
            output.show(shown_hints(plan, report))
            return EXIT_PARTIAL if report.is_partial else 0

        with engine.hint_building(image) as building:
            return until_signal(output, carried_out)


def node_option(command: Command) -> Command:
    """`--node`, which may be repeated -> ``nodes``; None for all."""

    @click.option("--node", "nodes", type=INTEGER, multiple=True, help="Only this node; may be repeated.")
    @functools.wraps(command)
    def wrapped(*args: Any, nodes: tuple[int, ...], **others: Any) -> Any:
        return command(*args, nodes=frozenset(nodes) or None, **others)

    return wrapped


@command(
    "Write filter packs and index snapshots, opening each new object once.",
    "accel catalog build-hints --store s3://bucket",
    "accel catalog build-hints --only filters --only-bad --dry-run --node 4 --store s3://bucket",
    "accel catalog build-hints --image image.json --store s3://bucket",
    "accel catalog build-hints --spark --store s3://bucket",
    name="build-hints",
)
@click.option("--only", type=click.Choice(["filters", "snapshots"]), help="Build only this kind of hints.")
@node_option
@click.option("--only-bad", is_flag=True, help="Also read the stored filters, and rebuild the bad ones.")
@click.option("--all", "everything", is_flag=True, help="Build all hints again, without using stored ones.")
@click.option("--dry-run", is_flag=True, help="Show what would be built; change nothing.")
@image_option
@store_options
@engine_options()
@log_option
def build_hints(
    *,
    only: str | None,
    nodes: frozenset[int] | None,
    only_bad: bool,
    everything: bool,
    dry_run: bool,
    image: MetadataImage | None,
    engine: Engine,
    output: Output,
) -> None:
    """Bring the filter pack and the index snapshot of each node up to date, opening each new object once.

    Builds filters for objects that have none with their id and size, drops filters of objects that are no longer
    listed, and keeps the others. --only-bad also reads the stored filters: it rebuilds those that cannot be read, or
    that pass more than 1.25 % of absent streams. A snapshot holds the ranges of a node's objects, sorted by stream:
    ranges of objects that the previous one covers are copied from it, and a snapshot that covers exactly the listed
    objects is kept. Exits with 4 if an object could not be opened (it is left out), or some hints could not be built.
    """
    if only_bad and everything:
        raise click.UsageError("Expected --only-bad or --all, found both.")
    if only_bad and only == "snapshots":
        raise click.UsageError("Expected --only-bad with filters, found --only snapshots.")
    depth = Depth.BAD if only_bad else Depth.ALL if everything else Depth.MISSING
    choice = HintChoice(filters=only != "snapshots", snapshots=only != "filters", depth=depth)
    with engine.running(nodes, image):
        code = HintWork(choice, nodes, dry_run).carry_out(engine, image, output)
    end_with(code)


def shown_hints(plan: HintPlan, report: HintReport | None) -> Shown:
    """The hints that were built or, without a report, would be built."""
    nodes = [node.to_dict() for node in plan.nodes]
    data = {"dry_run": report is None, "plan": {"nodes": nodes}, "report": report and report.to_dict()}
    return Shown(data, _lines(plan, report))


def _lines(plan: HintPlan, report: HintReport | None) -> Iterator[Rendered]:
    """A table of the nodes, the unusable hints, what failed, and a summary line."""
    if plan.nodes:
        yield table_of(plan.nodes, *_columns(plan))
        yield ""
    for node in plan.nodes:
        problems = [needs.problem for needs in (node.filters, node.snapshot) if needs is not None and needs.problem]
        if node.error:
            yield f"unusable: node {node.node_id}: {node.error}"
        yield from (f"unusable: node {node.node_id}: {problem}; built again" for problem in problems)
        for object_id in sorted({*node.set_aside}.difference(node.to_open["object_id"].tolist())):
            yield f"left alone: object {object_id} of node {node.node_id}: set aside by an earlier run (catalog status)"
    if report is None:
        yield f"dry run: {_planned(plan)}"
        return
    yield from _troubles(plan, report)
    yield _sentence(report)


def _columns(plan: HintPlan) -> list[Column[NodePlan]]:
    columns: list[Column[NodePlan]] = [
        Column("node", lambda node: node.node_id),
        Column("objects", lambda node: len(node.live)),
        Column("to open", lambda node: len(node.to_open)),
    ]
    if any(node.filters is not None for node in plan.nodes):
        columns += [
            Column("filters kept", lambda node: node.filters.kept if node.filters else 0),
            Column("bad", lambda node: node.filters.bad if node.filters else 0),
            Column("to drop", lambda node: len(node.filters.dropped) if node.filters else 0),
        ]
    if any(node.snapshot is not None for node in plan.nodes):
        columns.append(Column("entries kept of", lambda node: node.snapshot.kept if node.snapshot else 0))
    return [*columns, word("", lambda node: "current" if node.is_current else "new")]


def _planned(plan: HintPlan) -> str:
    busy = [node for node in plan.nodes if not node.is_current]
    if not plan.nodes:
        return "the catalog has no nodes"
    if not busy:
        return "nothing to do: the hints of all nodes cover exactly the listed objects"
    packs = [node.filters for node in busy if node.filters is not None]
    snapshots = [node.snapshot for node in busy if node.snapshot is not None and not node.snapshot.is_current]
    told = []
    if packs:
        built = count_text(sum(int(pack.wanted.sum()) for pack in packs), "filter")
        told.append(f"{built} would be built, {sum(len(pack.dropped) for pack in packs)} dropped")
    if snapshots:
        told.append(f"{count_text(len(snapshots), 'snapshot')} would be written")
    return f"{'; '.join(told)}; {count_text(plan.to_open, 'object')} would be opened"


def _troubles(plan: HintPlan, report: HintReport) -> Iterator[str]:
    planned = {node.node_id: node.snapshot.problem for node in plan.nodes if node.snapshot is not None}
    for node in report.nodes:
        found = node.snapshot.problem if node.snapshot is not None else ""
        if found and found != planned.get(node.node_id):
            yield f"unusable: node {node.node_id}: {found}; built again"
        for kind in node.overtaken:
            yield f"node {node.node_id}: another run wrote a newer {kind} meanwhile; that one is used"
        yield from (f"failed: node {node.node_id}: {error}" for error in node.errors)
    failures = [failure for node in report.nodes for failure in node.failures]
    for failure in failures[:FAILURES_SHOWN_MAX]:
        yield f"failed: object {failure.object_id} of node {failure.node_id}: {failure.reason}"
    if len(failures) > FAILURES_SHOWN_MAX:
        yield f"... and {len(failures) - FAILURES_SHOWN_MAX} more objects"


def _sentence(report: HintReport) -> str:
    row: Fields = report.row()
    parts = []
    if any(node.filters is not None for node in report.nodes):
        parts.append(
            f"filters: {row['added_filters']} added, {row['dropped_filters']} dropped, {row['kept_filters']} kept"
        )
    if any(node.snapshot is not None for node in report.nodes):
        parts.append(f"snapshots: {row['covered_objects']} of {count_text(row['objects'], 'object')} covered")
    failed = f"{count_text(row['failed_objects'], 'object')} and {count_text(row['failed_nodes'], 'node')} failed"
    parts.append(f"{count_text(row['opened_objects'], 'object')} opened, {failed}")
    cost = f"{size_text(row['written_bytes'])} written, {count_text(row['requests'], 'request')}"
    return f"{'; '.join(parts)}; {cost}, {time_text(row['seconds'])}"
