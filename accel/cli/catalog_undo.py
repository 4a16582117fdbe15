"""`accel catalog undo`: put an earlier version of a node's list back, or show which ones there are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import click
from rich import box
from rich.table import Table

from accel.catalog import ObjectCatalog
from accel.catalog.undo import KeptVersion, UndoReport, finish_undo, plan_undo, unfinished_commits, versions
from accel.catalog.undo import undo as undo_commits
from accel.cli.moments import moment_text
from accel.cli.options import StoreChoice, examples, output_options, store_options
from accel.cli.output import Output, Rendered
from accel.lookup.explain import count_text
from accel.units import size_text

IDS_SHOWN_MAX = 20


@dataclass(frozen=True, slots=True)
class ShownVersions:
    """The earlier versions of a list, and what an undo that ended half-way has left to do."""

    node_id: int
    versions: list[KeptVersion]
    unfinished: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        rows = [
            {
                "sequence": each.sequence,
                "kept_at_ms": each.kept_at_ms,
                "objects": each.live,
                "bytes": each.size_bytes,
                "way": each.way.value,
                "reason": each.reason,
            }
            for each in self.versions
        ]
        return {"node_id": self.node_id, "versions": rows, "unfinished_commits": list(self.unfinished)}

    def render(self) -> Iterator[Rendered]:
        """A table, oldest first, and the reasons why not below it."""
        if not self.versions:
            yield f"node {self.node_id}: no earlier version is kept"
        else:
            yield self._table()
            yield ""
        for each in self.versions:
            if each.reason:
                yield f"{each.sequence}: {each.reason}"
        if self.unfinished:
            half = f"an earlier undo of {_commits(self.unfinished)} ended half-way"
            yield f"node {self.node_id}: {half} (--yes without --to finishes it)"

    def _table(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        table.add_column("sequence", justify="right", no_wrap=True)
        table.add_column("replaced at", no_wrap=True)
        for name in ("objects", "size"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("put back", no_wrap=True)
        for each in self.versions:
            facts = (str(each.sequence), moment_text(each.kept_at_ms), str(each.live), size_text(each.size_bytes))
            table.add_row(*facts, each.way.value)
        return table


@dataclass(frozen=True, slots=True)
class ShownUndo:
    """What an undo did, or would do."""

    report: UndoReport
    is_dry_run: bool

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {"dry_run": self.is_dry_run, **asdict(self.report), "changed": self.report.is_changed}

    def render(self) -> Iterator[Rendered]:
        """What comes back, what goes, and a sentence."""
        report = self.report
        if report.revived:
            yield f"back    {_objects(report.revived)}"
        if report.withdrawn:
            yield f"gone    {_objects(report.withdrawn)}"
        where, ending = f"node {report.node_id}", " (--yes does it)" if self.is_dry_run else ""
        if report.finished:
            verb = "would be finished" if self.is_dry_run else "is finished"
            yield f"{where}: an earlier undo of {_commits(report.finished)} had ended half-way and {verb}"
        if report.commits:
            verb = "would be taken back" if self.is_dry_run else "taken back"
            yield f"{where}: {_commits(report.commits)} {verb}, which leads to version {report.sequence}{ending}"
        elif report.sequence is not None:
            yield f"{where}: the list has just the objects of version {report.sequence} and what was uploaded since"


@click.command(
    short_help="Put an earlier version of a node's list back; a dry run without --yes.",
    epilog=examples(
        "accel catalog undo --node 4 --store s3://bucket",
        "accel catalog undo --node 4 --to 1713 --store s3://bucket",
        "accel catalog undo --node 4 --to 1713 --yes --store s3://bucket",
    ),
)
@click.option("--node", "node_id", type=click.IntRange(min=0), required=True, help="Whose list.")
@click.option("--to", "sequence", type=click.IntRange(min=1), help="The version, by its sequence number.")
@click.option("--yes", is_flag=True, help="Do it; without it nothing is changed.")
@store_options
@output_options
def undo(*, node_id: int, sequence: int | None, yes: bool, store: StoreChoice, output: Output) -> None:
    """Take bad compactions of a node's objects back, while the objects that they replaced still exist.

    Without --to it lists the versions of the node's list that are kept, and which of them can be put back: no object of
    it is gone or being deleted. With --to it shows what would come back and what would go; with --yes besides it does
    that. What was uploaded since stays. An undo that ended half-way is finished by --yes without --to.
    """
    with ObjectCatalog.open(store.open(output)) as catalog:
        if sequence is not None:
            act = undo_commits if yes else plan_undo
            output.show(ShownUndo(act(catalog, node_id, sequence), is_dry_run=not yes))
            return
        unfinished = unfinished_commits(catalog, node_id)
        if not yes:
            output.show(ShownVersions(node_id, versions(catalog, node_id), unfinished))
            return
        if not unfinished:
            raise click.UsageError("Missing option '--to': which version? (No undo of this node ended half-way.)")
        output.show(ShownUndo(finish_undo(catalog, node_id), is_dry_run=False))


def _commits(numbers: tuple[int, ...]) -> str:
    return count_text(len(numbers), "commit")


def _objects(ids: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, ids[:IDS_SHOWN_MAX]))
    more = f", … and {len(ids) - IDS_SHOWN_MAX} more" if len(ids) > IDS_SHOWN_MAX else ""
    return f"{count_text(len(ids), 'object')}: {shown}{more}"
