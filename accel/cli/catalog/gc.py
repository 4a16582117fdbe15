"""`accel catalog gc`: delete what nobody needs any more, or show what that would be."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain, repeat
from typing import Any

import click
from rich import box
from rich.table import Table

from accel.catalog import ObjectCatalog
from accel.catalog.collect import Collectable, CollectionPlan, CollectionReport, Reason, Tally, collect, plan_collection
from accel.catalog.survey import BulkScan
from accel.cli.options import StoreChoice, examples, output_options, store_options
from accel.errors import MaintenanceStopped
from accel.lookup.explain import count_text
from accel.rendering import Output, Rendered
from accel.units import moment_text, size_text

Command = Callable[..., Any]

_WHY = {
    Reason.RETIRED: "replaced, trimmed or withdrawn",
    Reason.PREPARED: "promised and not committed in time",
    Reason.ORPHAN: "named nowhere in the catalog",
}
_SINCE = {Reason.RETIRED: "retired", Reason.PREPARED: "promised until", Reason.ORPHAN: "written"}


@dataclass(frozen=True, slots=True)
class ShownCollection:
    """What a collection would do, or did.

    Args:
        plan: what may go.
        report: what became of it; None for a dry run.
        limit: objects to show; 0 for all.
    """

    plan: CollectionPlan
    report: CollectionReport | None
    limit: int

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        planned = self.plan.tallies()
        shown = self._shown()
        return {
            "dry_run": self.report is None,
            "planned_at_ms": self.plan.planned_at_ms,
            "planned": {reason.value: _tally(planned[reason]) for reason in Reason},
            "done": {outcome: _tally(tally) for outcome, tally in self._totals().items()},
            "objects": [{**asdict(each), "outcome": outcome, "error": error} for each, outcome, error in shown],
            "objects_left_out": len(self.plan.objects) - len(shown),
            "young_orphans": _tally(self.plan.young),
            "foreign": _tally(self.plan.foreign),
            "journals": list(self.report.journals) if self.report is not None else [],
        }

    def render(self) -> Iterator[Rendered]:
        """A table of the reasons, the first objects, what is left alone, and how it went."""
        yield self._table()
        yield ""
        shown = self._shown()
        for each, outcome, error in shown:
            since = f"{_SINCE[each.reason]} {moment_text(each.since_ms)}"
            yield f"{outcome:<12}object {each.object_id} at {each.key}: {size_text(each.size_bytes)}, {since}"
            if error:
                yield f"            {error}"
        if len(shown) < len(self.plan.objects):
            yield f"            … and {len(self.plan.objects) - len(shown)} more (--limit 0 shows all)"
        yield from self._left_alone()
        if self.report is not None:
            yield from (f"journal     {key}" for key in self.report.journals)
        yield self._sentence()

    def _table(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        table.add_column("reason", no_wrap=True)
        for name in ("objects", "size"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("which are")
        for reason, tally in self.plan.tallies().items():
            table.add_row(reason.value, str(tally.objects), size_text(tally.size_bytes), _WHY[reason])
        return table

    def _left_alone(self) -> Iterator[str]:
        for tally, what in (
            (self.plan.young, "named nowhere in the catalog, and not old enough"),
            (self.plan.foreign, "with ids that this catalog never gave out"),
        ):
            if tally.objects:
                yield f"left alone  {_text(tally)} {what}"

    def _sentence(self) -> str:
        if self.report is None:
            return f"dry run: {_text(_sum(self.plan.objects))} would be deleted (--yes does it)"
        deleted, *others = self._totals().items()
        said = [f"{_text(deleted[1])} deleted", *(f"{each.objects} {what}" for what, each in others if each.objects)]
        return ", ".join(said)

    def _totals(self) -> dict[str, Tally]:
        """What became of how much; nothing of a dry run."""
        return {
            "deleted": _sum(self.report.deleted if self.report else ()),
            "spared": _sum(self.report.spared if self.report else ()),
            "failed": _sum([each for each, _ in self.report.failed] if self.report else ()),
            "not reached": _sum(self.report.not_reached if self.report else ()),
        }

    def _shown(self) -> list[tuple[Collectable, str, str]]:
        """The first objects, what became of each, and why not where it failed."""
        if self.report is None:
            outcomes = dict(zip(self.plan.objects, repeat(("planned", ""))))
        else:
            outcomes = dict(
                chain(
                    zip(self.report.deleted, repeat(("deleted", "")), strict=False),
                    zip(self.report.spared, repeat(("spared", "")), strict=False),
                    ((each, ("failed", error)) for each, error in self.report.failed),
                    zip(self.report.not_reached, repeat(("not reached", "")), strict=False),
                )
            )
        first = self.plan.objects[: self.limit or None]
        return [(each, *outcomes[each]) for each in first]


def collection_options(command: Command) -> Command:
    """`--yes`, `--allow-empty-node`, `--limit` -> ``wanted``."""

    @click.option("--yes", is_flag=True, help="Delete; without it nothing is changed.")
    @click.option(
        "--allow-empty-node",
        "empty_nodes",
        type=click.IntRange(min=0),
        multiple=True,
        metavar="NODE",
        help="This node may have committed objects and have none now; may be repeated.",
    )
    @click.option(
        "--limit", type=click.IntRange(min=0), default=20, show_default=True, help="Objects to show; 0 for all."
    )
    @functools.wraps(command)
    def wrapped(*args: Any, yes: bool, empty_nodes: tuple[int, ...], limit: int, **others: Any) -> Any:
        return command(*args, wanted=Collection(yes, frozenset(empty_nodes), limit), **others)

    return wrapped


@click.command(
    short_help="Delete what nobody needs any more; a dry run without --yes.",
    epilog=examples("accel catalog gc --store s3://bucket", "accel catalog gc --store s3://bucket --yes --quiet"),
)
@collection_options
@store_options
@output_options
@click.pass_context
def gc(ctx: click.Context, /, *, wanted: Collection, store: StoreChoice, output: Output) -> None:
    """Delete retired objects past their time, promised ones past their deadline, and old orphans.

    Without --yes it shows what would be deleted, in the same form. It refuses to begin where a list is empty that
    should not be, or anything cannot be read, and looks at the whole catalog again before each 1,000 objects. Before
    they are deleted, a journal says which and why. Ends with 1 if something could not be deleted.
    """
    with ObjectCatalog.open(store.open(output)) as catalog:
        ctx.exit(wanted.carry_out(catalog, output))


@dataclass(frozen=True, slots=True)
class Collection:
    """What the user wants of a collection.

    Args:
        yes: delete, rather than show what would be.
        empty_nodes: nodes whose list may be empty.
        limit: objects to show; 0 for all.
    """

    yes: bool
    empty_nodes: frozenset[int]
    limit: int

    def carry_out(self, catalog: ObjectCatalog, output: Output, scan: BulkScan | None = None) -> int:
        """Plan, collect if that is wanted, and show it; gives the exit code.

        Args:
            catalog: whose objects.
            output: shows it.
            scan: who goes through the bucket; this process by default.
        """
        output.note("going through the bucket")
        plan = plan_collection(catalog, allow_empty_nodes=self.empty_nodes, scan=scan)
        if not self.yes:
            output.show(ShownCollection(plan, None, self.limit))
            return 0
        try:
            report = _collected(catalog, plan, output)
        except MaintenanceStopped as error:
            output.show(ShownCollection(plan, error.report, self.limit))
            raise
        output.show(ShownCollection(plan, report, self.limit))
        return int(bool(report.failed))


def _collected(catalog: ObjectCatalog, plan: CollectionPlan, output: Output) -> CollectionReport:
    shown = 0
    with output.progress("deleting", len(plan.objects)) as advance:

        def progress(done: int) -> None:
            nonlocal shown
            for _ in range(done - shown):
                advance()
            shown = done

        return collect(catalog, plan, progress=progress)


def _sum(objects: tuple[Collectable, ...] | list[Collectable]) -> Tally:
    return Tally(len(objects), sum(each.size_bytes for each in objects))


def _tally(tally: Tally) -> dict[str, int]:
    return {"objects": tally.objects, "bytes": tally.size_bytes}


def _text(tally: Tally) -> str:
    return f"{count_text(tally.objects, 'object')} of {size_text(tally.size_bytes)}"
