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
    collect,
    plan_collection,
    total_of,
)
from accel.catalog.survey import BulkScan
from accel.catalog.unfinished import UnfinishedUpload, abort_unfinished, find_unfinished
from accel.cli.options import StoreChoice, command, end_with, limit_option, store_options, yes_option
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
        help="Accept an empty list of this node, although it has committed objects; may be repeated.",
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
)
@collection_options
@store_options
def gc(*, wanted: Collection, store: StoreChoice, output: Output) -> None:
    """Delete retired objects after their retention, prepared ones after their deadline, and old orphans.

    Objects whose streams are all deleted, or trimmed beyond them, are retired first. Multipart uploads that a dead
    process left are aborted.
    Without --yes it shows what would be deleted, in the same form. It stops before the first deletion if a list is
    unexpectedly empty, or a key cannot be read. It reads the whole catalog again before each 1,000 objects, and first
    writes a journal of the deletions and their reasons. Exits with 1 if an object could not be deleted.
    """
    with ObjectCatalog.open(store.open()) as catalog:
        code = wanted.carry_out(catalog, output)
    end_with(code)


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

    def carry_out(self, catalog: ObjectCatalog, output: Output, scan: BulkScan | None = None) -> int:
        """Plan, collect if ``yes`` is set, and print; returns the exit code.

        Args:
            catalog: the catalog of the bucket.
            output: prints the result.
            scan: lists the bucket; this process does by default.
        """
        output.note("listing the bucket")

        def carried_out(signals: Signals) -> int:
            with output.progress("keys seen") as tell:
                plan = plan_collection(
                    catalog, allow_empty_nodes=self.empty_nodes, progress=signals.at(tell), scan=scan
                )
            uploads = Uploads(find_unfinished(catalog.parts))
            if not self.yes:
                output.show(shown_collection(plan, None, self.limit, uploads))
                return 0
            try:
                with output.progress("deleting", len(plan.objects)) as tell:
                    report = collect(catalog, plan, progress=signals.at(tell))
            except MaintenanceStopped as error:
                output.show(shown_collection(plan, error.report, self.limit, uploads))
                raise
            if not signals:
                uploads = replace(uploads, failed=abort_unfinished(catalog.parts, uploads.planned))
            output.show(shown_collection(plan, report, self.limit, uploads))
            return int(bool(report.failed or uploads.failed))

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


def shown_collection(plan: CollectionPlan, report: CollectionReport | None, limit: int, uploads: Uploads) -> Shown:
    """What a collection did or would do.

    Args:
        plan: what may be deleted.
        report: the result for each object; None for a dry run.
        limit: objects to show; 0 for all.
        uploads: unfinished ones.
    """
    planned, totals, shown = plan.tallies(), _totals(report), _outcomes(plan, report, limit)
    data = {
        "dry_run": report is None,
        "planned_at_ms": plan.planned_at_ms,
        "planned": {reason.value: _tally(planned[reason]) for reason in Reason},
        "done": {outcome: _tally(tally) for outcome, tally in totals.items()},
        "objects": [{**asdict(entry), "outcome": outcome, "error": error} for entry, outcome, error in shown],
        "objects_left_out": len(plan.objects) - len(shown),
        "dead": _tally(plan.dead_total()),
        "retired": _tally(total_of(report.retired if report is not None else ())),
        "young_orphans": _tally(plan.young),
        "foreign": _tally(plan.foreign),
        "journals": list(report.journals) if report is not None else [],
        "uploads": uploads.counts(),
    }
    return Shown(data, [*_lines(plan, report, totals, shown), *uploads.lines()])


def _lines(
    plan: CollectionPlan, report: CollectionReport | None, totals: Mapping[str, ObjectTotals], shown: Sequence[Outcome]
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
    ):
        if tally.objects:
            yield f"left alone  {_text(tally)} {what}"
    if report is None:
        if plan.dead:
            yield f"dead        {_text(plan.dead_total())} of deleted or trimmed streams would be retired"
        yield f"dry run: {_text(_sum(plan.objects))} would be deleted (--yes does it)"
        return
    if report.retired:
        total = _text(total_of(report.retired))
        yield f"retired     {total} of deleted or trimmed streams; they are deleted after the retention"
    yield from (f"journal     {key}" for key in report.journals)
    others = [f"{tally.objects} {what}" for what, tally in totals.items() if what != "deleted" and tally.objects]
    yield ", ".join([f"{_text(totals['deleted'])} deleted", *others])


def _totals(report: CollectionReport | None) -> dict[str, ObjectTotals]:
    """Tally of each result; empty for a dry run."""
    return {
        "deleted": _sum(report.deleted if report else ()),
        "spared": _sum(report.spared if report else ()),
        "failed": _sum([entry for entry, _ in report.failed] if report else ()),
        "not reached": _sum(report.not_reached if report else ()),
    }


def _outcomes(plan: CollectionPlan, report: CollectionReport | None, limit: int) -> list[Outcome]:
    """The first objects, the result for each, and the error where one failed."""
    first = plan.objects[: limit or None]
    if report is None:
        return [(entry, "planned", "") for entry in first]
    ended = dict.fromkeys(report.deleted, ("deleted", ""))
    ended |= dict.fromkeys(report.spared, ("spared", ""))
    ended |= {entry: ("failed", error) for entry, error in report.failed}
    ended |= dict.fromkeys(report.not_reached, ("not reached", ""))
    return [(entry, *ended[entry]) for entry in first]


def _sum(objects: tuple[Collectable, ...] | list[Collectable]) -> ObjectTotals:
    return ObjectTotals(len(objects), sum(collectable.size_bytes for collectable in objects))


def _tally(tally: ObjectTotals) -> dict[str, int]:
    return {"objects": tally.objects, "bytes": tally.size_bytes}


def _text(tally: ObjectTotals) -> str:
    return f"{count_text(tally.objects, 'object')} of {size_text(tally.size_bytes)}"
