"""`accel catalog undo` and `restored`: return to an earlier state, or recover after a restored backup.

`undo` reverts bad compactions of one node. `restored` records that keys of the bucket were restored from a copy, so
that readers discard data that they cached in the lost time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

import click

from accel.catalog import ObjectCatalog
from accel.catalog.argument_checks import NODE_ID_MAX
from accel.catalog.undo import (
    IDS_PASSED_OVER,
    KeptVersion,
    RestorePlan,
    UndoReport,
    finish_undo,
    plan_restored,
    plan_undo,
    restored,
    unfinished_commits,
    versions,
)
from accel.catalog.undo import undo as undo_commits
from accel.cli.options import StoreChoice, command, store_options, yes_option
from accel.rendering import Column, Fields, Output, Rendered, Shown, table_of, word
from accel.units import count_text, moment_text, size_text

IDS_SHOWN_MAX = 20


@command(
    "Restore an earlier version of a node's list; a dry run without --yes.",
    "accel catalog undo --node 4 --store s3://bucket",
    "accel catalog undo --node 4 --to 1713 --store s3://bucket",
    "accel catalog undo --node 4 --to 1713 --yes --store s3://bucket",
)
@click.option("--node", "node_id", type=click.IntRange(0, NODE_ID_MAX), required=True, help="The node of the list.")
@click.option("--to", "sequence", type=click.IntRange(min=1), help="The version, by its sequence number.")
@yes_option()
@store_options
def undo(*, node_id: int, sequence: int | None, yes: bool, store: StoreChoice, output: Output) -> None:
    """Revert bad compactions of a node's objects, while the objects that they replaced still exist.

    Without --to it lists the kept versions of the node's list, and which of them can be restored: those with no object
    deleted or being deleted. With --to it shows the objects that would return and those that would be withdrawn; with
    --yes it restores that version. Objects uploaded since are kept. --yes without --to finishes an undo that stopped
    half-way.
    """
    with ObjectCatalog.open(store.open()) as catalog:
        if sequence is not None:
            act = undo_commits if yes else plan_undo
            output.show(_shown_undo(act(catalog, node_id, sequence), is_dry_run=not yes))
            return
        unfinished = unfinished_commits(catalog, node_id)
        if not yes:
            output.show(_shown_versions(node_id, versions(catalog, node_id), unfinished))
            return
        if not unfinished:
            raise click.UsageError("Missing option '--to': which version? (No undo of this node ended half-way.)")
        output.show(_shown_undo(finish_undo(catalog, node_id), is_dry_run=False))


def _shown_versions(node_id: int, kept: list[KeptVersion], unfinished: tuple[int, ...]) -> Shown:
    """The earlier versions of a list, and the unfinished work of an undo that stopped half-way."""
    rows = [
        {
            "sequence": version.sequence,
            "kept_at_ms": version.kept_at_ms,
            "objects": version.live,
            "bytes": version.size_bytes,
            "way": version.way.value,
            "reason": version.reason,
        }
        for version in kept
    ]
    data = {"node_id": node_id, "versions": rows, "unfinished_commits": list(unfinished)}
    return Shown(data, _version_lines(data))


def _version_lines(data: Fields) -> Iterator[Rendered]:
    """A table, oldest first, and below it the reasons why a version cannot be restored."""
    if data["versions"]:
        yield table_of(data["versions"], *_VERSIONS)
        yield ""
    else:
        yield f"node {data['node_id']}: no earlier version is kept"
    yield from (f"{version['sequence']}: {version['reason']}" for version in data["versions"] if version["reason"])
    if data["unfinished_commits"]:
        half = f"an earlier undo of {_commits(data['unfinished_commits'])} ended half-way"
        yield f"node {data['node_id']}: {half} (--yes without --to finishes it)"


_VERSIONS: tuple[Column[Fields], ...] = (
    Column("sequence", "sequence"),
    word("replaced at", lambda version: moment_text(version["kept_at_ms"])),
    Column("objects", "objects"),
    Column("size", lambda version: size_text(version["bytes"])),
    word("put back", "way"),
)


def _shown_undo(report: UndoReport, *, is_dry_run: bool) -> Shown:
    """What an undo did or would do."""
    data = {"dry_run": is_dry_run, **asdict(report), "changed": report.is_changed}
    return Shown(data, _undo_lines(report, is_dry_run=is_dry_run))


def _undo_lines(report: UndoReport, *, is_dry_run: bool) -> Iterator[str]:
    """The objects that return, those that are withdrawn, and a summary line."""
    if report.revived:
        yield f"back    {_objects(report.revived)}"
    if report.withdrawn:
        yield f"gone    {_objects(report.withdrawn)}"
    where, ending = f"node {report.node_id}", " (--yes does it)" if is_dry_run else ""
    if report.finished:
        verb = "would be finished" if is_dry_run else "is finished"
        yield f"{where}: an earlier undo of {_commits(report.finished)} had ended half-way and {verb}"
    if report.commits:
        verb = "would be taken back" if is_dry_run else "taken back"
        yield f"{where}: {_commits(report.commits)} {verb}, which leads to version {report.sequence}{ending}"
    elif report.sequence is not None:
        yield f"{where}: the list has exactly the objects of version {report.sequence} and those uploaded since"


def _commits(numbers: Sequence[int]) -> str:
    return count_text(len(numbers), "commit")


def _objects(ids: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, ids[:IDS_SHOWN_MAX]))
    more = f", … and {len(ids) - IDS_SHOWN_MAX} more" if len(ids) > IDS_SHOWN_MAX else ""
    return f"{count_text(len(ids), 'object')}: {shown}{more}"


@command(
    "Recover after a bucket was restored from a copy; a dry run without --yes.",
    "accel catalog restored --store s3://bucket",
    "accel catalog restored --store s3://bucket --yes",
)
@yes_option()
@store_options
def restored_command(*, yes: bool, store: StoreChoice, output: Output) -> None:
    """Record that the bucket, or keys of its catalog, were restored from a copy. Stop all writers before.

    The catalog gets a new generation: readers discard their caches and read the present state. Counters of ids are
    raised far above the highest id found, and writer sessions from before the restore are fenced. Nothing is deleted.
    Without --yes it shows what would change.
    """
    with ObjectCatalog.open(store.open()) as catalog:
        output.note("listing the bucket")
        with output.progress("keys seen") as tell:
            plan = plan_restored(catalog, progress=tell)
        if not yes:
            output.show(_shown_restore(plan, "", {}))
            return
        counters = _history_counters(catalog, plan.highest_stream_id + 1)
        report = restored(catalog, plan)
        output.show(_shown_restore(plan, report.generation, counters))


def _shown_restore(plan: RestorePlan, generation: str, counters: dict[str, tuple[int | None, int]]) -> Shown:
    """The changes, or for a dry run the planned changes.

    Args:
        plan: of the changes.
        generation: the new generation; empty for a dry run.
        counters: of histories: name -> (before, after).
    """
    data = {
        "dry_run": not generation,
        "generation_before": plan.generation,
        "generation": generation,
        "highest_object_id": plan.highest_object_id,
        "next_object_id_before": plan.next_object_id,
        "next_object_id": plan.next_object_id_after,
        "epochs_before": {str(node_id): epoch for node_id, epoch in plan.epochs.items()},
        "unnamed_nodes": list(plan.unnamed_nodes),
        "counters": {name: {"before": before, "after": after} for name, (before, after) in counters.items()},
    }
    verb = "is" if generation else "would be"
    lines = [
        f"highest object id found {plan.highest_object_id}",
        f"next object id          {plan.next_object_id} {verb} {plan.next_object_id_after}",
        *(f"{name:<24}{before} {verb} {after}" for name, (before, after) in counters.items()),
    ]
    if plan.unnamed_nodes:
        lines.append(f"directory of nodes      nodes {', '.join(map(str, plan.unnamed_nodes))} {verb} named again")
    nodes = count_text(len(plan.epochs), "node")
    lines.append(f"sessions                of {nodes} {'are' if generation else verb} fenced")
    done = f"generation {generation}: readers read the present state; open writers again"
    return Shown(data, (*lines, done if generation else "dry run: nothing was changed (--yes does it)"))


def _history_counters(catalog: ObjectCatalog, least_stream_id: int) -> dict[str, tuple[int | None, int]]:
    """Raise the counters of streams and transactions; creates missing ones, and the missing marker of their table."""
    from accel.history.store import keys  # noqa: PLC0415 - only for the commands that need it
    from accel.history.store.keys import pass_over_ids  # noqa: PLC0415 - likewise

    tables = catalog.parts.keys.tables
    tables.create_table(keys.COUNTERS)
    shared = keys.SystemKeys(tables)
    least = {keys.SEGMENT_STREAMS: least_stream_id, keys.TRANSACTION_IDS: 0}
    return {name: pass_over_ids(shared.counter(name), least_id, IDS_PASSED_OVER) for name, least_id in least.items()}
