"""`accel adopt`: for who comes with a bucket, or with metadata in a controller of its own.

`import` creates a catalog for a bucket of existing objects. `convert` converts AutoMQ's metadata to an image. `compact`
merges objects of such an image, and passes the result to a function of the controller or writes it to a file that the
controller applies (docs/how-to/brokers.md).
"""

from __future__ import annotations

import csv
import json
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import click

from accel.adoption.automq import read_automq
from accel.adoption.controller import (
    ControllerReport,
    Swap,
    SwapStatus,
    compact_for_controller,
    plan_for_controller,
    swaps_to_json,
)
from accel.adoption.import_plan import ImportPlan, ImportReport
from accel.adoption.importing import (
    ImportChoice,
    Nodes,
    abandon_import,
    bucket_objects,
    commit_import,
    plan_import,
)
from accel.catalog import ObjectCatalog
from accel.catalog.argument_checks import NODE_ID_MAX
from accel.cli.catalog.compact import CompactionWork, compaction_options, show_foreign_plan
from accel.cli.catalog.status import image_data
from accel.cli.engines import Engine, engine_options
from accel.cli.groups import CommandGroup
from accel.cli.options import (
    EXIT_PARTIAL,
    StoreChoice,
    command,
    end_with,
    image_option,
    output_options,
    store_options,
    wrong_place,
    yes_option,
)
from accel.image import MetadataImage
from accel.image_source import IMAGE_FILE_SIZE_BYTES_MAX
from accel.rendering import Column, Fields, Output, Rendered, Shown, said, table_of
from accel.system import SYSTEM
from accel.units import count_text, size_text

EXIT_REFUSED = 1
SHOWN_MAX = 10


@click.group("adopt", cls=CommandGroup)
def adopt_group() -> None:
    """Bring existing objects into a catalog, or compact those of a controller."""


@command(
    "Build a catalog from a bucket of existing objects.",
    "accel adopt import --store s3://bucket --node 4",
    "accel adopt import --store s3://bucket --nodes nodes.csv --skip-bad --yes",
    "accel adopt import --store s3://bucket --abandon",
    name="import",
    group=adopt_group,
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
        text = path.read_text(encoding="utf-8-sig")
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
    data: dict[str, Any] = {
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
    return Shown(data, _import_lines(data))


_NODES: tuple[Column[Fields], ...] = (
    Column("node", "node_id"),
    Column("objects", "objects"),
    Column("open streams", "open_streams"),
    Column("size", lambda node: size_text(node["size_bytes"])),
)


def _import_lines(found: Fields) -> Iterator[Rendered]:
    """A table of the nodes, what is wrong, and a few sentences."""
    if found["nodes"]:
        yield table_of(found["nodes"], *_NODES)
        yield ""
    unlistable = (f"{item['key']}: {item['reason']}" for item in found["not_listable"])
    yield from _first("UNLISTABLE", unlistable, found["unlistable"])
    yield from _first("OVERLAP", map(_overlap_line, found["overlapping"]), found["overlaps"])
    yield from _first("CROSSED", (f"stream {stream_id}" for stream_id in found["crossed_streams"]), found["crossed"])
    yield from _first("HOLE", map(_hole_line, found["missing"]), found["holes"])
    what = f"{count_text(found['objects'], 'object')}, {size_text(found['bytes'])}"
    where = f"{count_text(len(found['nodes']), 'node')}, {count_text(found['streams'], 'stream')}"
    yield f"{what}, {where}: {count_text(found['overlaps'], 'overlap')}, {count_text(found['holes'], 'hole')}"
    if found["left_out"]:
        yield f"{count_text(found['left_out'], 'object')} left out; prepared, so that no collection deletes them"
    if not found["in_order_of_ids"]:
        yield "lists are not in the order of ids, so that the offsets of each stream ascend"
    if found["hindrances"]:
        yield from (f"cannot be imported: {hindrance}" for hindrance in found["hindrances"])
    else:
        yield "imported" if found["written"] else "nothing is written without --yes"


def _overlap_line(overlap: Fields) -> str:
    where = f"{_objects_text(*overlap['earlier_ids'])} and in {_objects_text(*overlap['later_ids'])}"
    return f"stream {overlap['stream_id']}: [{overlap['start']}, {overlap['end']}) in {where}"


def _objects_text(first: int, last: int) -> str:
    return f"object {first}" if first == last else f"one of objects {first} to {last}"


def _hole_line(hole: Fields) -> str:
    where = f"[{hole['start']}, {hole['end']})"
    if hole["object_id"] >= 0:
        where = f"offsets missing within {where} of object {hole['object_id']}"
    return f"stream {hole['stream_id']}: {where}"


def _first(name: str, lines: Iterable[str], count: int) -> Iterator[str]:
    first = list(islice(lines, SHOWN_MAX))
    yield from (f"{name:<12}{line}" for line in first)
    if count > len(first):
        yield f"{'':<12}… and {count - len(first)} more of the kind"


FILE = click.Path(dir_okay=False, path_type=Path)


@command(
    None,
    "accel adopt convert dump.json --namespace _kafka_rZdE0DjZSrqy96PXrMUZVw > image.json",
    group=adopt_group,
)
@click.argument("dump", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--namespace", required=True, help="The namespace in the objects' keys: _kafka_ and the cluster's id.")
@click.option(
    "--image-version",
    type=click.IntRange(min=0),
    default=0,
    help="Version of the image; a newer image has a higher one.",
)
@output_options
def convert(*, dump: Path, namespace: str, image_version: int, output: Output) -> None:
    """Convert AutoMQ's metadata, as one JSON document or as printed by kafka-dump-log, to an image.

    Writes the image to stdout, as JSON.
    """
    size_bytes = dump.stat().st_size
    if size_bytes > IMAGE_FILE_SIZE_BYTES_MAX:
        raise click.UsageError(f"expected a dump of at most {IMAGE_FILE_SIZE_BYTES_MAX} bytes, found {size_bytes}")
    metadata = read_automq(dump.read_bytes(), namespace=namespace, version=image_version)
    Output(is_json=True, is_quiet=output.is_quiet, is_verbose=False).show(Shown(image_data(metadata.image), ()))


@command(
    "Merge objects of an image; the controller commits.",
    "accel adopt compact s3://bucket --image image.json --dry-run",
    "accel adopt compact s3://bucket --image image.json --take-ids broker:take_ids --commit broker:commit",
    "accel adopt compact s3://bucket --image image.json --take-ids broker:take_ids --swaps swaps.json --spark",
    name="compact",
    group=adopt_group,
)
@click.option("--take-ids", metavar="MODULE:FUNCTION", help="Returns the requested number of new object ids.")
@click.option("--commit", metavar="MODULE:FUNCTION", help="Commits a swap, or raises SwapRefused.")
@click.option("--swaps", type=FILE, metavar="FILE", help="Write the swaps to this file, for the controller to apply.")
@compaction_options
@image_option
@store_options
@engine_options()
def compact_command(
    *,
    work: CompactionWork,
    take_ids: str | None,
    commit: str | None,
    swaps: Path | None,
    image: MetadataImage | None,
    engine: Engine,
    output: Output,
) -> None:
    """Merge many small objects into few large ones, where a controller keeps the metadata.

    This command merges and checks objects, and passes each result to --commit or writes it to --swaps. Accel changes no
    metadata and deletes nothing. It names the objects that were not committed, so that the controller can delete them.
    """
    if image is None:
        raise click.UsageError("Missing option '--image' (or ACCEL_IMAGE): the controller's metadata.")
    if not work.is_dry_run and (take_ids is None or (commit is None) == (swaps is None)):
        raise click.UsageError("Without --dry-run the command needs '--take-ids', and either '--commit' or '--swaps'.")
    opened = engine.store.open()
    if work.is_dry_run or take_ids is None:
        show_foreign_plan(work, image, opened, output)
        return
    takes = _function("--take-ids", take_ids)
    written: list[Swap] = []
    commits = written.append if commit is None else _function("--commit", commit)
    with engine.running(work.settings.nodes, image):
        elsewhere = engine.elsewhere(image)
        with output.progress("planning", moved=opened.moved_bytes):
            plan = plan_for_controller(opened, image, work.settings, system=SYSTEM, elsewhere=elsewhere)
        with output.progress("merging groups", len(plan.groups), moved=opened.moved_bytes) as tell:

            def commit_one(swap: Swap) -> object:
                tell()
                return commits(swap)

            report = compact_for_controller(
                opened, image, plan, take_ids=takes, commit=commit_one, system=SYSTEM, elsewhere=elsewhere
            )
    if swaps is not None:
        swaps.write_bytes(swaps_to_json(written))
    output.show(Shown({"plan": plan.to_dict(), "report": report.to_dict()}, _lines(report, swaps)))
    end_with(EXIT_PARTIAL if report.is_partial or plan.failed else 0)


def _function(name: str, place: str) -> Callable[..., Any]:
    try:
        found = pkgutil.resolve_name(place)
    except (ImportError, AttributeError, ValueError) as error:
        raise click.BadParameter(f"expected MODULE:FUNCTION, found {place!r}: {error}", param_hint=name) from error
    if not callable(found):
        raise click.BadParameter(f"expected a function, found {type(found).__name__} at {place!r}", param_hint=name)
    return found  # type: ignore[no-any-return]  # whatever the controller's module has there


def _lines(report: ControllerReport, swaps: Path | None) -> Iterator[Rendered]:
    """Results other than committed, the objects to delete, and a summary line."""
    for result in report.groups:
        if result.status is not SwapStatus.COMMITTED:
            yield f"{result.status}: {result.group.name}: {result.reason}"
    for bad in report.bad_objects:
        yield f"could not be read: object {bad.object_id} of node {bad.node_id}, {bad.cause.text}"
    if unlisted := [object_id for result in report.groups for object_id in result.unlisted_ids]:
        yield f"not listed, to be deleted by the controller: {', '.join(map(str, unlisted))}"
    done = sum(result.status is SwapStatus.COMMITTED for result in report.groups)
    what = "passed on" if swaps is None else f"written to {swaps}; nothing is committed yet"
    yield f"{count_text(done, 'swap')} of {count_text(len(report.groups), 'group')} {what}"
