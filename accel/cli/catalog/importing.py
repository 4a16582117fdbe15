"""`accel catalog import`: a catalog for a bucket of objects that exist already."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.table import Table

from accel.catalog import ObjectCatalog
from accel.catalog.import_plan import ImportedNode, ImportPlan, ImportReport
from accel.catalog.import_read import NODE_ID_MAX, ImportChoice, Nodes
from accel.catalog.import_write import abandon_import, bucket_objects, commit_import, plan_import
from accel.cli.options import StoreChoice, examples, output_options, store_options
from accel.lookup.explain import count_text
from accel.rendering import Output, Rendered
from accel.units import size_text

EXIT_REFUSED = 1
SHOWN_MAX = 10


@dataclass(frozen=True, slots=True)
class ShownImport:
    """What an import found, and whether it was written."""

    report: ImportReport
    is_written: bool

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        report = self.report
        return {
            "written": self.is_written,
            **report.counts,
            "nodes": [asdict(each) for each in report.nodes],
            "in_order_of_ids": report.is_by_id,
            "hindrances": report.hindrances,
            "overlapping": [asdict(each) for each in report.overlaps],
            "crossed_streams": list(report.crossed),
            "missing": [asdict(each) for each in report.holes],
            "not_listable": [asdict(each) for each in report.unlistable],
        }

    def render(self) -> Iterator[Rendered]:
        """A table of the nodes, what is wrong, and a sentence."""
        report, counts = self.report, self.report.counts
        if report.nodes:
            yield _node_table(report.nodes)
            yield ""
        yield from _first(
            "UNLISTABLE", (f"{each.key}: {each.reason}" for each in report.unlistable), counts["unlistable"]
        )
        yield from _first("OVERLAP", _overlap_lines(report), counts["overlaps"])
        yield from _first("CROSSED", (f"stream {each}" for each in report.crossed), counts["crossed"])
        yield from _first("HOLE", _hole_lines(report), counts["holes"])
        yield from self._sentences()

    def _sentences(self) -> Iterator[str]:
        counts = self.report.counts
        what = f"{count_text(counts['objects'], 'object')}, {size_text(counts['bytes'])}"
        where = f"{count_text(len(self.report.nodes), 'node')}, {count_text(counts['streams'], 'stream')}"
        found = f"{count_text(counts['overlaps'], 'overlap')}, {count_text(counts['holes'], 'hole')}"
        yield f"{what}, {where}: {found}"
        if counts["left_out"]:
            yield f"{count_text(counts['left_out'], 'object')} left out; promised, so that no collection deletes them"
        if not self.report.is_by_id:
            yield "lists are not in the order of ids, so that the offsets of each stream ascend"
        if self.report.hindrances:
            yield from (f"cannot be imported: {each}" for each in self.report.hindrances)
        else:
            yield "imported" if self.is_written else "nothing is written without --yes"


@dataclass(frozen=True, slots=True)
class Abandoned:
    """Whether an import was there to be abandoned."""

    was_there: bool

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {"abandoned": self.was_there}

    def render(self) -> Iterator[Rendered]:
        """One line."""
        yield "abandoned; no object was touched" if self.was_there else "no import was under way"


@click.command(
    "import",
    short_help="Build a catalog from a bucket of existing objects.",
    epilog=examples(
        "accel catalog import --store s3://bucket --node 4",
        "accel catalog import --store s3://bucket --nodes nodes.csv --skip-bad --yes",
        "accel catalog import --store s3://bucket --abandon",
    ),
)
@click.option("--node", type=click.IntRange(0, NODE_ID_MAX), help="All objects are this node's.")
@click.option(
    "--nodes",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help='Whose each object is: {"object id": node id} as JSON, or lines of object_id,node_id.',
)
@click.option("--leave-out", type=click.IntRange(min=0), multiple=True, metavar="ID", help="Do not list this object.")
@click.option("--skip-bad", is_flag=True, help="Leave out what cannot be listed, instead of importing nothing.")
@click.option("--yes", is_flag=True, help="Write; otherwise only tell what would be written.")
@click.option("--abandon", is_flag=True, help="Undo an import that was broken off before it had listed anything.")
@store_options
@output_options
@click.pass_context
def import_command(  # noqa: PLR0913 - each is an option of the command
    ctx: click.Context,
    *,
    node: int | None,
    nodes: Path | None,
    leave_out: tuple[int, ...],
    skip_bad: bool,
    yes: bool,
    abandon: bool,
    store: StoreChoice,
    output: Output,
) -> None:
    """Build a catalog from a bucket of existing objects.

    The catalog must be empty, and nobody may write meanwhile. Each object index is read; what is found is told, and
    with --yes written. If it breaks off, repeat it: what was read is not read again. Ends with 1 if offsets are held
    twice, or objects cannot be listed; missing offsets are told and do not hinder.
    """
    if sum((node is not None, nodes is not None, abandon)) != 1:
        raise click.UsageError("Expected one of --node, --nodes and --abandon.")
    owners = _nodes(node, nodes)
    with ObjectCatalog.open(store.open(output)) as catalog:
        if owners is None:
            output.show(Abandoned(abandon_import(catalog)))
            return
        plan = _planned(catalog, ImportChoice(owners, frozenset(leave_out), skip_bad), output, keep=yes)
        is_possible = not plan.report.hindrances
        if yes and is_possible:
            commit_import(catalog, plan)
        output.show(ShownImport(plan.report, yes and is_possible))
        if yes and not is_possible:
            output.note("what was read is kept for the next attempt, and nothing is collected meanwhile; see --abandon")
    ctx.exit(0 if is_possible else EXIT_REFUSED)


def _planned(catalog: ObjectCatalog, choice: ImportChoice, output: Output, *, keep: bool) -> ImportPlan:
    objects = bucket_objects(catalog)
    with output.progress("reading indexes", len(objects.ids)) as advance:
        return plan_import(catalog, objects, choice, keep=keep, progress=lambda _: advance())


def _nodes(node: int | None, path: Path | None) -> Nodes | None:
    if path is None:
        return node
    try:
        text = path.read_text()
        return _from_json(text) if text.lstrip().startswith("{") else _from_lines(text.splitlines())
    except ValueError as error:
        raise click.BadParameter(f"{path}: {error}", param_hint="'--nodes'") from error


def _from_json(text: str) -> Mapping[int, int]:
    found: dict[str, Any] = json.loads(text)
    return dict(_pair(object_id, node_id) for object_id, node_id in found.items())


def _from_lines(lines: Iterable[str]) -> Mapping[int, int]:
    found: dict[int, int] = {}
    for number, row in enumerate(csv.reader(lines), start=1):
        if not row or (number == 1 and [each.strip() for each in row] == ["object_id", "node_id"]):
            continue
        if len(row) != 2:
            raise ValueError(f"line {number}: expected object_id,node_id, found {','.join(row)!r}")
        object_id, node_id = _pair(*row)
        if found.setdefault(object_id, node_id) != node_id:
            raise ValueError(f"line {number}: expected one node for object {object_id}, found another one")
    return found


def _pair(object_id: str, node_id: object) -> tuple[int, int]:
    texts = (object_id.strip(), str(node_id).strip())
    if not all(text.isascii() and text.isdigit() for text in texts):
        raise ValueError(f"expected an object id and a node id, found {object_id!r} and {node_id!r}")
    return int(texts[0]), int(texts[1])


def _overlap_lines(report: ImportReport) -> Iterator[str]:
    for each in report.overlaps:
        places = f"{_objects_text(each.earlier_ids)} and in {_objects_text(each.later_ids)}"
        yield f"stream {each.stream_id}: [{each.start}, {each.end}) in {places}"


def _objects_text(ids: tuple[int, int]) -> str:
    first, last = ids
    return f"object {first}" if first == last else f"one of objects {first} to {last}"


def _hole_lines(report: ImportReport) -> Iterator[str]:
    for each in report.holes:
        where = f"offsets missing within [{each.start}, {each.end}) of object {each.object_id}"
        yield f"stream {each.stream_id}: {where if each.object_id >= 0 else f'[{each.start}, {each.end})'}"


def _first(name: str, lines: Iterable[str], count: int) -> Iterator[str]:
    shown = 0
    for line, _ in zip(lines, range(SHOWN_MAX), strict=False):
        shown += 1
        yield f"{name:<12}{line}"
    if count > shown:
        yield f"{'':<12}… and {count - shown} more of the kind"


def _node_table(nodes: Iterable[ImportedNode]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in ("node", "objects", "open streams", "size"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in nodes:
        table.add_row(str(each.node_id), str(each.objects), str(each.open_streams), size_text(each.size_bytes))
    return table
