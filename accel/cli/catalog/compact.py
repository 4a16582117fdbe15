"""`accel catalog compact`: plan a compaction and run it, or show the plan."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import click

from accel.adoption.controller import plan_for_controller
from accel.catalog.job_runs import COMPACT
from accel.cli.catalog.hints import node_option
from accel.cli.engines import Compaction, Engine, engine_options, recording
from accel.cli.options import (
    EXIT_PARTIAL,
    SIZE,
    TIME,
    command,
    end_with,
    image_option,
    log_option,
    store_options,
)
from accel.cli.signals import Signals, until_signal
from accel.compaction import (
    CompactionPlan,
    CompactionReport,
    CompactionSettings,
    Done,
    Status,
)
from accel.image import MetadataImage
from accel.rendering import Column, Fields, Output, Rendered, Shown, table_of
from accel.system import SYSTEM, StopRequested
from accel.units import count_text, size_text, time_text
from loaders.settings import MIB, MergeSettings
from loaders.store import ObjectStore

GROUPS_SHOWN_MAX = 50
_DEFAULTS = CompactionSettings()

Command = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class CompactionWork:
    """The options of a compaction.

    Args:
        settings: limits and targets.
        is_dry_run: show the plan only.
    """

    settings: CompactionSettings
    is_dry_run: bool

    def carry_out(self, engine: Engine, output: Output) -> int:
        """Plan, compact unless it is a dry run, and print; returns the exit code."""

        def recorded_run(signals: Signals) -> int:
            with recording(engine, COMPACT, signals, is_recorded=not self.is_dry_run):
                return self._carried_out(compaction, output, signals)

        with engine.compaction() as compaction:
            return until_signal(output, recorded_run)

    def _carried_out(self, compaction: Compaction, output: Output, signals: Signals) -> int:
        done = Done()
        if compaction.merge_slices is not None and not self.is_dry_run:
            with output.progress("compacting slices", moved=compaction.moved) as tell:
                done = compaction.merge_slices(self.settings, signals.at(tell))
        try:
            self._carry_out_rest(done, compaction, output, signals)
        except StopRequested:
            if not done.reports:
                raise
        if not done.reports:
            return 0
        report = done.report()
        output.show(shown_compaction(done.plan(self.settings), report))
        return EXIT_PARTIAL if report.is_partial else 0

    def _carry_out_rest(self, done: Done, compaction: Compaction, output: Output, signals: Signals) -> None:
        """Plan what the slices have left, and carry it out; a dry run prints the plan."""
        signals.check()
        with output.progress("planning nodes", moved=compaction.moved) as tell:
            plan = compaction.plan(done.settings_left(self.settings), signals.at(tell))
        if self.is_dry_run:
            output.show(shown_compaction(plan, None))
            return
        with output.progress("merging groups", plan.source_bytes, is_bytes=True) as tell:
            report = compaction.merge(plan, signals.at(tell))
        done.plans.append(plan)
        done.reports.append(report)


def compaction_options(command: Command) -> Command:
    """The options of the settings, and `--dry-run` -> ``work``."""

    @click.option(
        "--max-objects-per-node",
        type=click.IntRange(min=1),
        default=_DEFAULTS.max_objects_per_node,
        show_default=True,
        help="Compact a node that lists more objects than this, or will within an hour.",
    )
    @click.option(
        "--target-objects",
        type=click.IntRange(min=1),
        help="Objects to reduce a node to; default: 80 % of --max-objects-per-node.",
    )
    @click.option(
        "--max-objects", type=click.IntRange(min=1), help="Limit for all nodes together, divided among the nodes."
    )
    @click.option(
        "--max-bytes", type=SIZE, metavar="SIZE", help="Bytes that this run may rewrite; cheapest groups first."
    )
    @click.option(
        "--min-age",
        type=TIME,
        metavar="TIME",
        default=f"{_DEFAULTS.min_age_seconds:g}s",
        show_default=True,
        help="Do not compact younger objects.",
    )
    @click.option(
        "--target-object-size",
        type=SIZE,
        metavar="SIZE",
        default=f"{_DEFAULTS.target_object_size_bytes // MIB}MiB",
        show_default=True,
        help="Largest size of a group.",
    )
    @click.option(
        "--split-size",
        type=SIZE,
        metavar="SIZE",
        default=f"{_DEFAULTS.split_size_bytes // MIB}MiB",
        show_default=True,
        help="A stream with at least this much data in a group gets its own object.",
    )
    @click.option(
        "--max-stream-objects",
        type=click.IntRange(min=0),
        default=_DEFAULTS.max_stream_objects,
        show_default=True,
        help="Refuse a plan that creates more stream objects than this.",
    )
    @click.option(
        "--dead-share",
        type=click.FloatRange(min=0, max=1, min_open=True),
        default=_DEFAULTS.dead_share,
        show_default=True,
        help="Rewrite an object of which this share is deleted or truncated data.",
    )
    @node_option
    @click.option("--rewrite-all", is_flag=True, help="Also compact nodes that list fewer objects.")
    @click.option("--retry-set-aside", is_flag=True, help="Also read unchanged objects that were set aside.")
    @click.option("--server-side", is_flag=True, help="Let the store copy data, if it can.")
    @click.option("--dry-run", is_flag=True, help="Show the plan; change nothing.")
    @functools.wraps(command)
    def wrapped(*args: Any, dry_run: bool, **options: Any) -> Any:
        given = {name: options.pop(name) for name in _CHOICES}
        return command(*args, work=CompactionWork(_settings(**given), dry_run), **options)

    return wrapped


_CHOICES = (
    "max_objects_per_node",
    "target_objects",
    "max_objects",
    "max_bytes",
    "dead_share",
    "min_age",
    "target_object_size",
    "split_size",
    "max_stream_objects",
    "nodes",
    "rewrite_all",
    "retry_set_aside",
    "server_side",
)
"""Names of the options in Python, without `--dry-run`."""


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


@command(
    "Merge many small objects into few large ones.",
    "accel catalog compact --dry-run --store s3://bucket",
    "accel catalog compact --max-objects-per-node 500 --max-bytes 50GiB --store s3://bucket",
    "accel catalog compact --node 4 --rewrite-all --target-objects 1 --store s3://bucket",
    "accel catalog compact --spark --master yarn --store s3://bucket",
    name="compact",
)
@compaction_options
@image_option
@store_options
@engine_options()
@log_option
def compact_command(*, work: CompactionWork, image: MetadataImage | None, engine: Engine, output: Output) -> None:
    """Merge many small objects into few large ones, node by node.

    A group consists of neighbours in a node's list; groups with the fewest bytes per object saved are merged first. All
    records are kept, except truncated ones. Readers with an older image find the old objects until gc deletes them.
    Groups that another run is compacting are left to that run. An object that cannot be read is set aside: its
    neighbours are merged, and later runs read it again only after it has changed. Exits with 4 if some groups or nodes
    could not be compacted, or an object was set aside; run it again to retry them. Ctrl-C and SIGTERM end it after the
    present group: it prints what was done, and exits with 130 or 143. With --image, only --dry-run is possible: use
    `accel adopt compact`.
    """
    if image is not None:
        show_foreign_plan(work, image, engine.store.open(), output)
        return
    with engine.running():
        code = work.carry_out(engine, output)
    end_with(code)


def show_foreign_plan(work: CompactionWork, image: MetadataImage, store: ObjectStore, output: Output) -> None:
    """Show the plan of a compaction of a controller's objects.

    Raises:
        click.UsageError: it is not a dry run.
    """
    if not work.is_dry_run:
        raise click.UsageError(
            "With an image only '--dry-run' is possible here: 'accel adopt compact --image' merges its objects, "
            "and the controller commits them."
        )
    output.show(shown_compaction(plan_for_controller(store, image, work.settings, system=SYSTEM), None))


def shown_compaction(plan: CompactionPlan, report: CompactionReport | None) -> Shown:
    """The result of a compaction or, without a report, its plan."""
    report_data = None if report is None else report.to_dict()
    data: dict[str, Any] = {"dry_run": report is None, "plan": plan.to_dict(), "report": report_data}
    return Shown(data, _lines(data["plan"], plan, report))


_NODES: tuple[Column[Fields], ...] = (
    Column("node", "node_id"),
    Column("objects", "objects"),
    Column("target", "target_objects"),
    Column("afterwards", "objects_after"),
    Column("groups", "groups"),
    Column("dead", "dead_objects"),
)


def _lines(planned: Fields, plan: CompactionPlan, report: CompactionReport | None) -> Iterator[Rendered]:
    """A table of the nodes, the groups, what is left alone, what failed, and a summary line."""
    if plan.nodes:
        yield table_of(planned["nodes"], *_NODES)
        yield ""
    for group in plan.groups[:GROUPS_SHOWN_MAX]:
        outputs = f"{group.set_objects} and {count_text(group.stream_objects, 'stream object')}"
        yield f"{group.name}: {len(group.sources)} objects, {size_text(group.source_bytes)} -> {outputs}"
    if len(plan.groups) > GROUPS_SHOWN_MAX:
        yield f"... and {len(plan.groups) - GROUPS_SHOWN_MAX} more groups"
    yield from _left_alone(plan)
    yield from (
        f"failed: node {node.node_id}, {count_text(node.objects, 'object')}: {node.reason}" for node in plan.failed
    )
    if report is None:
        yield f"dry run: {_planned(planned)}"
        return
    yield from _not_done(report)
    what = f"{count_text(report.rewritten_objects, 'object')} of {size_text(report.rewritten_bytes)}"
    own = count_text(report.added_stream_objects, "stream object")
    cost = f"{count_text(report.requests, 'request')}, {time_text(report.seconds)}"
    if report.retired_objects:
        what += f" ({count_text(report.retired_objects, 'more object')} retired, of which nothing is needed)"
    failed = _failed_text(report)
    yield f"{what} became {report.added_objects} and {own} of {size_text(report.added_bytes)}; {failed}; {cost}"


def _failed_text(report: CompactionReport) -> str:
    failed = f"{count_text(report.failed_groups, 'group')} and {count_text(report.failed_tasks, 'task')} failed"
    if report.failed_retirements:
        failed += f", objects of {count_text(report.failed_retirements, 'node')} not retired"
    if report.failed_nodes:
        failed += f", {count_text(report.failed_nodes, 'node')} could not be planned"
    if report.set_aside_objects:
        failed += f", {count_text(report.set_aside_objects, 'object')} set aside"
    if report.lost_groups:
        failed += f", {report.lost_groups} left to another run"
    if report.done_elsewhere_groups:
        failed += f", {count_text(report.done_elsewhere_groups, 'group')} done by attempts that did not report it"
    return failed


def _not_done(report: CompactionReport) -> Iterator[str]:
    for bad in report.set_aside[:GROUPS_SHOWN_MAX]:
        yield f"set aside: object {bad.object_id} of node {bad.node_id}, {bad.cause.text}: {bad.reason}"
    for ended in report.groups:
        if ended.is_failure or ended.status in (Status.LOST, Status.DONE_ELSEWHERE):
            yield f"{ended.status}: {ended.group.name}: {ended.reason}"


def _left_alone(plan: CompactionPlan) -> Iterator[str]:
    for skipped in plan.skipped[:GROUPS_SHOWN_MAX]:
        yield f"left alone: {count_text(len(skipped.object_ids), 'object')} of node {skipped.node_id}: {skipped.reason}"
    for reason in plan.reasons[: 0 if plan.groups else GROUPS_SHOWN_MAX]:
        yield f"left alone: {reason}"


def _planned(plan: Fields) -> str:
    dead = f"{count_text(plan['dead_objects'], 'object')} of {size_text(plan['dead_bytes'])}"
    retired = f"{dead}, of which nothing is needed any more, would be retired" if plan["dead_objects"] else ""
    if not plan["groups"]:
        why = "nothing to do, for the reasons above" if plan["reasons"] else "nothing to do: no node has a list"
        return retired or why
    sources = f"{count_text(plan['rewritten_objects'], 'object')} of {size_text(plan['rewritten_bytes'])}"
    own = count_text(plan["added_stream_objects"], "stream object")
    merged = f"{sources} would become {plan['added_objects']} and {own}"
    return f"{retired}; {merged}" if retired else merged
