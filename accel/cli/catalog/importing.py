"""`accel catalog import`: create a catalog for a bucket of existing objects."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import click

from accel.adoption.import_plan import ImportedNode, ImportPlan, ImportReport, Overlap, StreamHole
from accel.adoption.importing import (
    ImportChoice,
    Nodes,
    abandon_import,
    bucket_objects,
    commit_import,
    plan_import,
)
from accel.catalog import ObjectCatalog
from accel.catalog.edges import NODE_ID_MAX
from accel.cli.options import StoreChoice, command, end_with, store_options, wrong_place, yes_option
from accel.rendering import Column, Output, Rendered, Shown, said, table_of
from accel.units import count_text, size_text

EXIT_REFUSED = 1
SHOWN_MAX = 10


@command(
    "Build a catalog from a bucket of existing objects.",
    "accel catalog import --store s3://bucket --node 4",
    "accel catalog import --store s3://bucket --nodes nodes.csv --skip-bad --yes",
    "accel catalog import --store s3://bucket --abandon",
    name="import",
)
@click.option("--node", type=click.IntRange(0, NODE_ID_MAX), help="The node that owns all objects.")
@click.option(
    "--nodes",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help='The node of each object: {"object id": node id} as JSON, or lines of object_id,node_id.',
)
@click.option("--leave-out", type=click.IntRange(min=0), multiple=True, metavar="ID", help="Do not list this object.")
@click.option("--skip-bad", is_flag=True, help="Leave out objects that cannot be listed, instead of importing nothing.")
@yes_option("Write; without it, only show what would be written.")
@click.option("--abandon", is_flag=True, help="Undo an import that was interrupted before it listed any object.")
@store_options
def import_command(
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

    The catalog must be empty, and no other process may write meanwhile. The import reads each object index, reports
    what it found, and writes with --yes. Repeat an interrupted import: it reads the indexes again. Exits with 1 if
    offsets are held twice, or objects cannot be listed. Missing offsets are reported and do not prevent the import.
    """
    if sum((node is not None, nodes is not None, abandon)) != 1:
        raise click.UsageError("Expected one of --node, --nodes and --abandon.")
    owners = _nodes(node, nodes)
    opened = store.open()
    with ObjectCatalog.open(opened) as catalog:
        if owners is None:
            was_there = abandon_import(catalog)
            what = "abandoned; no object was touched" if was_there else "no import was under way"
            output.show(said(what, abandoned=was_there))
            return
        choice = ImportChoice(owners, frozenset(leave_out), skip_bad)
        plan = _planned(catalog, store, choice, output, begin=yes, moved=opened.moved_bytes)
        is_possible = not plan.report.hindrances
        if yes and is_possible:
            commit_import(catalog, plan)
        output.show(shown_import(plan.report, is_written=yes and is_possible))
        if yes and not is_possible:
            output.note("gc deletes nothing until the import is repeated; see --abandon")
    end_with(0 if is_possible else EXIT_REFUSED)


def _planned(
    catalog: ObjectCatalog,
    store: StoreChoice,
    choice: ImportChoice,
    output: Output,
    *,
    begin: bool,
    moved: Callable[[], int],
) -> ImportPlan:
    with output.progress("keys seen") as tell:
        objects = bucket_objects(catalog, tell)
    if not len(objects.ids) and (wrong := wrong_place(store, catalog.parts.layout)) is not None:
        raise wrong
    with output.progress("reading indexes", len(objects.ids), moved=moved) as tell:
        return plan_import(catalog, objects, choice, begin=begin, progress=tell)


def _nodes(node: int | None, path: Path | None) -> Nodes | None:
    if path is None:
        return node
    try:
        text = path.read_text()
        return _from_json(text) if text.lstrip().startswith("{") else _from_lines(text.splitlines())
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"{path}: {error}", param_hint="'--nodes'") from error


def _from_json(text: str) -> Mapping[int, int]:
    owners: dict[str, Any] = json.loads(text)
    return dict(_pair(object_id, node_id) for object_id, node_id in owners.items())


def _from_lines(lines: Iterable[str]) -> Mapping[int, int]:
    owners: dict[int, int] = {}
    for number, row in enumerate(csv.reader(lines), start=1):
        if not row or (number == 1 and [cell.strip() for cell in row] == ["object_id", "node_id"]):
            continue
        if len(row) != 2:
            raise ValueError(f"line {number}: expected object_id,node_id, found {','.join(row)!r}")
        object_id, node_id = _pair(*row)
        if owners.setdefault(object_id, node_id) != node_id:
            raise ValueError(f"line {number}: expected one node for object {object_id}, found another one")
    return owners


def _pair(object_id: str, node_id: object) -> tuple[int, int]:
    texts = (object_id.strip(), str(node_id).strip())
    if not all(text.isascii() and text.isdigit() for text in texts):
        raise ValueError(f"expected an object id and a node id, found {object_id!r} and {node_id!r}")
    return int(texts[0]), int(texts[1])


def shown_import(report: ImportReport, *, is_written: bool) -> Shown:
    """What an import found, and whether it was written."""
    data = {
        "written": is_written,
        **report.counts,
        "nodes": [asdict(node) for node in report.nodes],
        "in_order_of_ids": report.is_by_id,
        "hindrances": report.hindrances,
        "overlapping": [asdict(overlap) for overlap in report.overlaps],
        "crossed_streams": list(report.crossed),
        "missing": [asdict(hole) for hole in report.holes],
        "not_listable": [asdict(unlistable) for unlistable in report.unlistable],
    }
    return Shown(data, _lines(report, is_written=is_written))


def _lines(report: ImportReport, *, is_written: bool) -> Iterator[Rendered]:
    """A table of the nodes, what is wrong, and a few sentences."""
    counts = report.counts
    if report.nodes:
        columns: tuple[Column[ImportedNode], ...] = (
            Column("node", lambda node: node.node_id),
            Column("objects", lambda node: node.objects),
            Column("open streams", lambda node: node.open_streams),
            Column("size", lambda node: size_text(node.size_bytes)),
        )
        yield table_of(report.nodes, *columns)
        yield ""
    unlistable = (f"{item.key}: {item.reason}" for item in report.unlistable)
    yield from _first("UNLISTABLE", unlistable, counts["unlistable"])
    yield from _first("OVERLAP", map(_overlap_line, report.overlaps), counts["overlaps"])
    yield from _first("CROSSED", (f"stream {stream_id}" for stream_id in report.crossed), counts["crossed"])
    yield from _first("HOLE", map(_hole_line, report.holes), counts["holes"])
    what = f"{count_text(counts['objects'], 'object')}, {size_text(counts['bytes'])}"
    where = f"{count_text(len(report.nodes), 'node')}, {count_text(counts['streams'], 'stream')}"
    yield f"{what}, {where}: {count_text(counts['overlaps'], 'overlap')}, {count_text(counts['holes'], 'hole')}"
    if counts["left_out"]:
        yield f"{count_text(counts['left_out'], 'object')} left out; prepared, so that no collection deletes them"
    if not report.is_by_id:
        yield "lists are not in the order of ids, so that the offsets of each stream ascend"
    if report.hindrances:
        yield from (f"cannot be imported: {hindrance}" for hindrance in report.hindrances)
    else:
        yield "imported" if is_written else "nothing is written without --yes"


def _overlap_line(overlap: Overlap) -> str:
    where = f"{_objects_text(overlap.earlier_ids)} and in {_objects_text(overlap.later_ids)}"
    return f"stream {overlap.stream_id}: [{overlap.start}, {overlap.end}) in {where}"


def _objects_text(ids: tuple[int, int]) -> str:
    first, last = ids
    return f"object {first}" if first == last else f"one of objects {first} to {last}"


def _hole_line(hole: StreamHole) -> str:
    where = f"[{hole.start}, {hole.end})"
    if hole.object_id >= 0:
        where = f"offsets missing within {where} of object {hole.object_id}"
    return f"stream {hole.stream_id}: {where}"


def _first(name: str, lines: Iterable[str], count: int) -> Iterator[str]:
    first = list(islice(lines, SHOWN_MAX))
    yield from (f"{name:<12}{line}" for line in first)
    if count > len(first):
        yield f"{'':<12}… and {count - len(first)} more of the kind"
