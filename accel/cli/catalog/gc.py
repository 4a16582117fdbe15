"""`accel catalog gc`: delete objects that are no longer needed, or show which they are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
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
from accel.catalog.job_runs import GC, RunningJob
from accel.cli.engines import Engine, engine_options, recording
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
from accel.rendering import Column, Fields, Output, Rendered, Shown, table_of, word
from accel.units import count_text, moment_text, size_text

Command = Callable[..., Any]

_WHY = {
    Reason.RETIRED: "replaced, trimmed or withdrawn",
    Reason.PREPARED: "prepared and not committed in time",
    Reason.ORPHAN: "named nowhere in the catalog",
}
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
            with recording(engine, GC, signals, is_recorded=self.yes) as job:
                try:
                    return collected(signals, job)
                finally:
                    in_all = opened.snapshot().total.requests + (scan.requests if scan is not None else 0)
                    job.add(requests=in_all - job.requests)

        def collected(signals: Signals, job: RunningJob) -> int:
            with output.progress("keys seen") as tell:
                plan = plan_collection(
                    catalog, allow_empty_nodes=self.empty_nodes, progress=signals.at(tell), scan=scan
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
                failed = abort_unfinished(catalog.parts, uploads.planned)
                uploads = replace(uploads, failed=failed)
                for _, why in failed:
                    job.add(failures=1, reason=why)
            output.show(shown_collection(plan, report, self.limit, uploads, is_dry_run=not self.yes))
            return int(bool(plan.doubts) or (self.yes and bool(report.failed or uploads.failed)))

        opened, scan = engine.store.open(), engine.scan()
        with ObjectCatalog.open(opened) as catalog:
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
    outcomes = _outcomes(report)
    totals = {outcome: _tally(_sum(entries)) for outcome, entries in outcomes.items()}
    ended = {entry: (outcome, why) for outcome, entries in outcomes.items() for entry, why in entries.items()}
    if is_dry_run:
        ended |= {entry: ("planned", why) for entry, why in outcomes["deleted"].items()}
    first = plan.objects[: limit or None]
    data = {
        "dry_run": is_dry_run,
        "planned_at_ms": plan.planned_at_ms,
        "planned": {reason.value: _tally(tally) for reason, tally in plan.tallies().items()},
        "done": {outcome: _tally(ObjectTotals(0, 0)) for outcome in totals} if is_dry_run else totals,
        "unproven": totals["unproven"],
        "objects": [{**asdict(entry), "outcome": ended[entry][0], "error": ended[entry][1]} for entry in first],
        "objects_left_out": len(plan.objects) - len(first),
        "dead": _tally(plan.dead_total()),
        "retired": _tally(total_of(report.retired)),
        "young_orphans": _tally(plan.young),
        "foreign": _tally(plan.foreign),
        "held_back": _tally(plan.held_back),
        "doubts": [{"node": node_id, "reason": reason} for node_id, reason in plan.doubts.items()],
        "journals": list(report.journals),
        "uploads": uploads.counts(),
    }
    return Shown(data, [*_lines(data, totals), *uploads.lines()])


def _outcomes(report: CollectionReport) -> dict[str, dict[Collectable, str]]:
    """The objects by outcome, each with the error or with what was found where it was not deleted."""
    return {
        "deleted": dict.fromkeys(report.deleted, ""),
        "left_alone": dict.fromkeys(report.left_alone, ""),
        "failed": dict(report.failed),
        "unproven": dict(report.unproven),
        "not reached": dict.fromkeys(report.not_reached, ""),
    }


def _lines(data: Fields, totals: Fields) -> Iterator[Rendered]:
    """A table of the reasons, the first objects, what is left alone, and the result."""
    yield table_of(data["planned"].items(), *_REASONS)
    yield ""
    for row in data["objects"]:
        since = f"{_SINCE[row['reason']]} {moment_text(row['since_ms'])}"
        yield f"{row['outcome']:<12}object {row['object_id']} at {row['key']}: {size_text(row['size_bytes'])}, {since}"
        if row["error"]:
            yield f"            {row['error']}"
    if data["objects_left_out"]:
        yield f"            … and {data['objects_left_out']} more (--limit 0 shows all)"
    yield from (f"left alone  {_text(data[name])} {what}" for name, what in _LEFT.items() if data[name]["objects"])
    yield from (f"in doubt    node {doubt['node']}: {doubt['reason']}" for doubt in data["doubts"])
    if data["dry_run"]:
        if data["dead"]["objects"]:
            yield f"dead        {_text(data['dead'])} of deleted or trimmed streams would be retired"
        yield f"dry run: {_text(totals['deleted'])} would be deleted (--yes does it)"
        return
    if data["retired"]["objects"]:
        retired = f"{_text(data['retired'])} of deleted or trimmed streams"
        yield f"retired     {retired}; they are deleted after the retention"
    yield from (f"journal     {key}" for key in data["journals"])
    others = [f"{tally['objects']} {what}" for what, tally in totals.items() if what != "deleted" and tally["objects"]]
    yield ", ".join([f"{_text(totals['deleted'])} deleted", *others])


_REASONS: tuple[Column[tuple[Reason, Fields]], ...] = (
    word("reason", lambda row: row[0]),
    Column("objects", lambda row: row[1]["objects"]),
    Column("size", lambda row: size_text(row[1]["bytes"])),
    Column("which are", lambda row: _WHY[row[0]], "left", no_wrap=False),
)

_LEFT = {
    "young_orphans": "named nowhere in the catalog, and not old enough",
    "foreign": "with ids that this catalog never allocated",
    "held_back": "named nowhere in the catalog: they may be of a node in doubt",
    "unproven": "that nothing proves to be of this catalog: does another system write here? (gc --id ID)",
}
"""What is left alone, by its key."""


def _sum(objects: Iterable[Collectable]) -> ObjectTotals:
    sizes = [collectable.size_bytes for collectable in objects]
    return ObjectTotals(len(sizes), sum(sizes))


def _tally(tally: ObjectTotals) -> dict[str, int]:
    return {"objects": tally.objects, "bytes": tally.size_bytes}


def _text(tally: Fields) -> str:
    return f"{count_text(tally['objects'], 'object')} of {size_text(tally['bytes'])}"
