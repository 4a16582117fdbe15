"""`accel catalog gc`: delete objects that are no longer needed, or show which they are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import click

from accel.catalog import ObjectCatalog
from accel.catalog.collect import (
    Collectable,
    CollectionPlan,
    CollectionReport,
    ObjectTotals,
    Reason,
    Stray,
    UnfinishedUpload,
    abort_unfinished,
    collect,
    delete_stray,
    find_stray,
    find_unfinished,
    foresee,
    plan_collection,
    total_of,
)
from accel.cli.engines import Engine, engine_options
from accel.cli.options import (
    INTEGER,
    command,
    end_with,
    limit_option,
    log_option,
    store_options,
    yes_option,
)
from accel.cli.signals import Signals, until_signal
from accel.errors import MaintenanceStopped
from accel.rendering import Column, Output, Rendered, Shown, table_of, word
from accel.units import count_text, moment_text, size_text

Command = Callable[..., Any]

_WHY = {
    Reason.RETIRED: "replaced, trimmed or withdrawn",
    Reason.PREPARED: "prepared and not committed in time",
    Reason.ORPHAN: "named nowhere in the catalog",
}
Outcome = tuple[Collectable, str, str]
"""An object, its result, and the error if it failed."""

_SINCE = {Reason.RETIRED: "retired", Reason.PREPARED: "prepared until", Reason.ORPHAN: "written"}


def collection_options(command: Command) -> Command:
    """`--yes`, `--allow-empty-node`, `--limit` -> ``wanted``."""

    @yes_option("Delete; without it nothing is changed.")
    @click.option(
        "--allow-empty-node",
        "empty_nodes",
        type=click.IntRange(min=0),
        multiple=True,
        metavar="NODE",
        help="Accept an empty list of this node, although it has committed objects, if nothing else is in doubt; may "
        "be repeated.",
    )
    @limit_option(20, "Objects to show; 0 for all.")
    @functools.wraps(command)
    def wrapped(*args: Any, yes: bool, empty_nodes: tuple[int, ...], limit: int, **others: Any) -> Any:
        return command(*args, wanted=Collection(yes, frozenset(empty_nodes), limit), **others)

    return wrapped


@command(
    "Delete objects that are no longer needed; a dry run without --yes.",
    "accel catalog gc --store s3://bucket",
    "accel catalog gc --store s3://bucket --yes --quiet",
    "accel catalog gc --store s3://bucket --id 4711",
)
@collection_options
@click.option(
    "--id",
    "object_id",
    type=INTEGER,
    metavar="ID",
    help="Show one object that the catalog does not need.",
)
@store_options
@engine_options(lists=True)
@log_option
def gc(*, wanted: Collection, object_id: int | None, engine: Engine, output: Output) -> None:
    """Delete retired objects after their retention, prepared ones after their deadline, and old orphans.

    Objects whose streams are all deleted, or trimmed beyond them, are retired first. Multipart uploads that a dead
    process left are aborted.
    Without --yes it shows what would be deleted, in the same form. A node whose list is missing, unreadable,
    behind other keys or unexpectedly empty is left alone, with all objects that no key names; it stops before the first
    deletion if all are, or another key cannot be read. It reads the whole catalog again before each 1,000 objects, and
    first writes a journal of the deletions and their reasons. Exits with 1 if a node was left alone, or an object could
    not be deleted.

    An object is deleted only if its mark, or the size and checksum of its row, prove that this catalog wrote or listed
    it. Others are counted as unproven and stay. --id shows one of them; with --yes it is deleted without a proof.
    """
    if object_id is not None:
        with ObjectCatalog.open(engine.store.open()) as catalog:
            stray = find_stray(catalog, object_id)
            output.show(shown_stray(stray, delete_stray(catalog, stray) if wanted.yes else None))
        return
    with engine.running():
        code = wanted.carry_out(engine, output)
    end_with(code)


def shown_stray(stray: Stray, journal: str | None) -> Shown:
    """One object that nothing proves to be ours.

    Args:
        stray: the object.
        journal: the key of the journal of its deletion; None if it was not deleted.
    """
    found, row = stray.found, stray.row
    data = {
        "object_id": found.object_id,
        "key": found.key,
        "size_bytes": found.size_bytes,
        "modified_ms": stray.modified_ms,
        "mark": stray.mark,
        "tail": stray.tail,
        "row": None if row is None else {"size_bytes": row.size_bytes, "tail_checksum": row.tail_checksum},
        "dry_run": journal is None,
        "journal": journal,
    }
    named = "named nowhere"
    if row is not None:
        named = f"delete pending in {found.table} {found.number}: {size_text(row.size_bytes)}, "
        named += f"CRC-32 {row.tail_checksum:#010x}" if row.tail_checksum >= 0 else "no checksum"
    lines = [
        f"object      {found.object_id} at {found.key}",
        f"size        {size_text(found.size_bytes)}",
        f"written     {moment_text(stray.modified_ms)}",
        f"mark        {stray.mark or 'none'}",
        f"tail        {stray.tail}",
        f"catalog     {named}",
        "dry run: it would be deleted without a proof (--yes does it)" if journal is None else f"deleted     {journal}",
    ]
    return Shown(data, lines)


@dataclass(frozen=True, slots=True)
class Collection:
    """The options of a collection.

    Args:
        yes: delete; otherwise only show.
        empty_nodes: nodes whose list may be empty.
        limit: objects to show; 0 for all.
    """

    yes: bool
    empty_nodes: frozenset[int]
    limit: int

    def carry_out(self, engine: Engine, output: Output) -> int:
        """Plan, collect if ``yes`` is set, and print; returns the exit code."""

        def carried_out(signals: Signals) -> int:
            with output.progress("keys seen") as tell:
                plan = plan_collection(
                    catalog, allow_empty_nodes=self.empty_nodes, progress=signals.at(tell), scan=engine.scan()
                )
            uploads = Uploads(find_unfinished(catalog.parts))
            carry_out = collect if self.yes else foresee
            try:
                with output.progress("deleting" if self.yes else "looking at objects", len(plan.objects)) as tell:
                    report = carry_out(catalog, plan, progress=signals.at(tell))
            except MaintenanceStopped as error:
                output.show(shown_collection(plan, error.report, self.limit, uploads))
                raise
            if self.yes and not signals:
                uploads = replace(uploads, failed=abort_unfinished(catalog.parts, uploads.planned))
            output.show(shown_collection(plan, report, self.limit, uploads, is_dry_run=not self.yes))
            return int(bool(plan.doubts) or (self.yes and bool(report.failed or uploads.failed)))

        with ObjectCatalog.open(engine.store.open()) as catalog:
            output.note("listing the bucket")
            return until_signal(output, carried_out)


@dataclass(frozen=True, slots=True)
class Uploads:
    """Unfinished multipart uploads.

    Args:
        planned: to be aborted.
        failed: those that were not aborted, with the error; None as long as it was not tried.
    """

    planned: list[UnfinishedUpload]
    failed: list[tuple[UnfinishedUpload, str]] | None = None

    def counts(self) -> dict[str, int]:
        """The number of uploads by what became of them."""
        failed = len(self.failed or ())
        return {
            "planned": len(self.planned),
            "aborted": 0 if self.failed is None else len(self.planned) - failed,
            "failed": failed,
        }

    def lines(self) -> Iterator[str]:
        """What a person reads."""
        if self.planned:
            done = "would be aborted" if self.failed is None else f"aborted, {len(self.failed)} failed"
            yield f"uploads     {count_text(len(self.planned), 'unfinished multipart upload')}: {done}"
        yield from (f"            {error}" for _, error in self.failed or ())


def shown_collection(
    plan: CollectionPlan, report: CollectionReport, limit: int, uploads: Uploads, *, is_dry_run: bool = False
) -> Shown:
    """What a collection did or would do.

    Args:
        plan: what may be deleted.
        report: the result for each object, of `collect` or `foresee`.
        limit: objects to show; 0 for all.
        uploads: unfinished ones.
        is_dry_run: whether nothing was changed.
    """
    planned, totals, shown = plan.tallies(), _totals(report), _outcomes(plan, report, limit, is_dry_run=is_dry_run)
    data = {
        "dry_run": is_dry_run,
        "planned_at_ms": plan.planned_at_ms,
        "planned": {reason.value: _tally(planned[reason]) for reason in Reason},
        "done": {outcome: _tally(ObjectTotals(0, 0) if is_dry_run else tally) for outcome, tally in totals.items()},
        "unproven": _tally(totals["unproven"]),
        "objects": [{**asdict(entry), "outcome": outcome, "error": error} for entry, outcome, error in shown],
        "objects_left_out": len(plan.objects) - len(shown),
        "dead": _tally(plan.dead_total()),
        "retired": _tally(total_of(report.retired)),
        "young_orphans": _tally(plan.young),
        "foreign": _tally(plan.foreign),
        "held_back": _tally(plan.held_back),
        "doubts": [{"node": node_id, "reason": reason} for node_id, reason in plan.doubts.items()],
        "journals": list(report.journals),
        "uploads": uploads.counts(),
    }
    return Shown(data, [*_lines(plan, report, totals, shown, is_dry_run=is_dry_run), *uploads.lines()])


def _lines(
    plan: CollectionPlan,
    report: CollectionReport,
    totals: Mapping[str, ObjectTotals],
    shown: Sequence[Outcome],
    *,
    is_dry_run: bool,
) -> Iterator[Rendered]:
    """A table of the reasons, the first objects, what is left alone, and the result."""
    reasons: tuple[Column[tuple[Reason, ObjectTotals]], ...] = (
        word("reason", lambda row: row[0].value),
        Column("objects", lambda row: row[1].objects),
        Column("size", lambda row: size_text(row[1].size_bytes)),
        Column("which are", lambda row: _WHY[row[0]], "left", no_wrap=False),
    )
    yield table_of(plan.tallies().items(), *reasons)
    yield ""
    for entry, outcome, error in shown:
        since = f"{_SINCE[entry.reason]} {moment_text(entry.since_ms)}"
        yield f"{outcome:<12}object {entry.object_id} at {entry.key}: {size_text(entry.size_bytes)}, {since}"
        if error:
            yield f"            {error}"
    if len(shown) < len(plan.objects):
        yield f"            … and {len(plan.objects) - len(shown)} more (--limit 0 shows all)"
    for tally, what in (
        (plan.young, "named nowhere in the catalog, and not old enough"),
        (plan.foreign, "with ids that this catalog never allocated"),
        (plan.held_back, "named nowhere in the catalog: they may be of a node in doubt"),
        (totals["unproven"], "that nothing proves to be of this catalog: does another system write here? (gc --id ID)"),
    ):
        if tally.objects:
            yield f"left alone  {_text(tally)} {what}"
    yield from (f"in doubt    node {node_id}: {reason}" for node_id, reason in plan.doubts.items())
    if is_dry_run:
        if plan.dead:
            yield f"dead        {_text(plan.dead_total())} of deleted or trimmed streams would be retired"
        yield f"dry run: {_text(totals['deleted'])} would be deleted (--yes does it)"
        return
    if report.retired:
        total = _text(total_of(report.retired))
        yield f"retired     {total} of deleted or trimmed streams; they are deleted after the retention"
    yield from (f"journal     {key}" for key in report.journals)
    others = [f"{tally.objects} {what}" for what, tally in totals.items() if what != "deleted" and tally.objects]
    yield ", ".join([f"{_text(totals['deleted'])} deleted", *others])


def _totals(report: CollectionReport) -> dict[str, ObjectTotals]:
    """Tally of each result."""
    return {
        "deleted": _sum(report.deleted),
        "spared": _sum(report.spared),
        "failed": _sum([entry for entry, _ in report.failed]),
        "unproven": _sum([entry for entry, _ in report.unproven]),
        "not reached": _sum(report.not_reached),
    }


def _outcomes(plan: CollectionPlan, report: CollectionReport, limit: int, *, is_dry_run: bool) -> list[Outcome]:
    """The first objects, the result for each, and the error or what was found where it was not deleted."""
    first = plan.objects[: limit or None]
    ended = dict.fromkeys(report.deleted, ("planned" if is_dry_run else "deleted", ""))
    ended |= dict.fromkeys(report.spared, ("spared", ""))
    ended |= {entry: ("failed", error) for entry, error in report.failed}
    ended |= {entry: ("unproven", found) for entry, found in report.unproven}
    ended |= dict.fromkeys(report.not_reached, ("not reached", ""))
    return [(entry, *ended[entry]) for entry in first]


def _sum(objects: tuple[Collectable, ...] | list[Collectable]) -> ObjectTotals:
    return ObjectTotals(len(objects), sum(collectable.size_bytes for collectable in objects))


def _tally(tally: ObjectTotals) -> dict[str, int]:
    return {"objects": tally.objects, "bytes": tally.size_bytes}


def _text(tally: ObjectTotals) -> str:
    return f"{count_text(tally.objects, 'object')} of {size_text(tally.size_bytes)}"
