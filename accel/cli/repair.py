"""For who has damage: rebuild keys of a catalog, sketches and records of streams; restore objects from a copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Final

import click

from accel.catalog import ObjectCatalog
from accel.catalog.argument_checks import NODE_ID_MAX
from accel.cli.catalog.verify import SHOWN_MAX
from accel.cli.options import EXIT_FAILED, StoreChoice, command, end_with, yes_option
from accel.cli.stream.options import ScopeChoice, parse_name, read_by, scope_options, sizes_option
from accel.rendering import Fields, Output, Shown, left_out
from accel.repair.catalog import THE_CATALOG
from accel.repair.catalog import repair as repair_catalog
from accel.repair.lost_objects import give_up
from accel.repair.objects import PutBackOutcome, PutBackReport, put_back
from accel.repair.sketches import sketch_list
from accel.units import count_text, size_text
from loaders.layout import TABLE_MARKER

if TYPE_CHECKING:
    from accel.repair.findings import Repair, RepairOutcome

SHOWN_FINDINGS_MAX: Final = 50
"""Limit of findings in the text; JSON has all of them."""

IDS_SHOWN_MAX: Final = 20


@command(
    "Rebuild what is damaged, or restore it from a copy; a dry run without --yes.",
    "accel repair --store s3://bucket",
    "accel repair --give-up 1234 --store s3://bucket",
    "accel repair --from s3://copy/prefix --store s3://bucket/prefix --yes",
    "accel repair --sketches 4 --store s3://bucket --yes",
    "accel repair --scope shop --stream orders --size 0@0=100 --store s3://bucket --yes",
)
@click.option(
    "--give-up",
    "object_ids",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="OBJECT",
    help="Only give up this object, which no copy of the bucket has; may be repeated.",
)
@click.option("--from", "copy", metavar="URL", help="Restore objects from this copy of the store, with the same keys.")
@click.option(
    "--sketches",
    "node_id",
    type=click.IntRange(0, NODE_ID_MAX),
    metavar="NODE",
    help="Rebuild the stream sketches of the objects in this node's list.",
)
@click.option("--stream", callback=read_by(parse_name), help="Rebuild records of this stream, within its scope.")
@sizes_option
@yes_option("Write what can be rebuilt or restored; without it nothing is changed.")
@scope_options
def repair(
    *,
    object_ids: tuple[int, ...],
    copy: str | None,
    node_id: int | None,
    stream: str | None,
    sizes: dict[int, int],
    yes: bool,
    scope: ScopeChoice,
    output: Output,
) -> None:
    """Find keys of the catalog that cannot be read or are missing, and rebuild those that can be derived from others.

    Derived keys are markers of tables, the copy of the choices, the directory of nodes, the counter of object ids,
    checkpoints and kept versions. Lists and stream shards cannot be derived: they are named, and the command exits with
    1. It may run at any time, and does not write keys that can be read.

    --give-up shows the ranges of streams that are lost with an object of a node's list that cannot be read. With --yes
    the object leaves the list, and readers of these ranges get an error that names the end of the hole.

    --from restores live objects that are missing or damaged from a copy of the bucket. All live objects are opened. An
    object is copied only if its size and checksum in the copy are those in the catalog. Readable objects and keys below
    accel/ are not touched. Exits with 1 if an object could not be restored.

    --sketches writes a correct sketch of each object in a node's list: the streams that the object certainly does not
    hold. An object has no sketch if its commit did not name its streams, or an older release wrote the list; lookups
    then open it unnecessarily. A sketch that hides a stream of its object is damage, which `accel catalog verify`
    finds. All live objects of the node are opened; with --yes the list is written once, if a sketch is to be changed.

    --stream finds records of a stream that cannot be read, are missing, or contradict others, and rebuilds those
    derivable from others. It may run at any time, beside other processes, and reads all records of the stream. It
    reports each record that cannot be rebuilt, and then exits with 1. A lost shard of sealed sizes is rebuilt from
    --size.
    """
    if sum((bool(object_ids), copy is not None, node_id is not None, stream is not None)) > 1:
        raise click.UsageError("Expected one of '--give-up', '--from', '--sketches' and '--stream'.")
    if sizes and stream is None:
        raise click.UsageError("Expected --stream with --size: segments of which stream?")
    if stream is not None:
        from accel.repair.streams import repair_stream  # noqa: PLC0415 - other kinds of repair start without it

        done = repair_stream(scope.open(), scope.scope, stream, apply=yes, sizes=sizes)
        _show_repair(done, f"stream {done.stream}", output)
    elif copy is not None:
        _put_back(scope.store, copy, output, yes=yes)
    else:
        with ObjectCatalog.open(scope.store.open()) as catalog:
            if object_ids:
                given_up = give_up(catalog, object_ids, apply=yes)
                data = {"dry_run": not yes, "given_up": [asdict(each) for each in given_up]}
                output.show(Shown(data, _given_up_lines(data)))
            elif node_id is not None:
                data = {"dry_run": not yes, **asdict(sketch_list(catalog, node_id, is_dry_run=not yes))}
                output.show(Shown(data, _sketch_lines(data)))
            else:
                _show_repair(repair_catalog(catalog, apply=yes), THE_CATALOG, output)


def _put_back(store: StoreChoice, copy: str, output: Output, *, yes: bool) -> None:
    copied = replace(store, url=copy).open()
    with ObjectCatalog.open(store.open()) as catalog, output.progress("looking") as tell:
        report = put_back(catalog, copied, is_dry_run=not yes, progress=tell)
    data = {
        "dry_run": report.is_dry_run,
        "objects": report.objects,
        "found": [{**asdict(each), "outcome": each.outcome.value} for each in report.found],
        "unchecked": report.unchecked,
    }
    output.show(Shown(data, _put_back_lines(report)))
    left = len(report.found) - report.count(PutBackOutcome.PUT_BACK) + report.unchecked
    end_with(EXIT_FAILED if left else 0)


def _put_back_lines(report: PutBackReport) -> Iterator[str]:
    for each in report.found:
        may = "can be " if report.is_dry_run and each.outcome is PutBackOutcome.PUT_BACK else ""
        yield f"object {each.object_id} at {each.key}: {may}{each.outcome.value}"
        yield f"  found: {each.problem}"
        if each.reason:
            yield f"  why:   {each.reason}"
    counted = [f"{number} {outcome.value}" for outcome in PutBackOutcome if (number := report.count(outcome))]
    if report.unchecked:
        counted.append(f"{report.unchecked} could not be read")
    text = f"{count_text(report.objects, 'object')} read: {', '.join(counted) or 'nothing is missing or damaged'}"
    yield f"dry run: {text} (--yes does it)" if report.is_dry_run and report.found else text


def _given_up_lines(data: Fields) -> Iterator[str]:
    for each in data["given_up"]:
        verb = "would be given up" if data["dry_run"] else "given up"
        yield f"object {each['object_id']} of node {each['node_id']}, {size_text(each['size_bytes'])}: {verb}"
        yield f"  found: {each['reason']}"
        what = "lost" if each["is_exact"] else "lost at most"
        for lost in each["lost"][:SHOWN_MAX]:
            known = f"{lost['end']})"
            end = known if lost["end"] >= 0 else "its end), which is not known: later appends get these offsets again"
            yield f"  {what}: stream {lost['stream_id']}, offsets [{lost['start']}, {end}"
        yield from left_out(len(each["lost"]), SHOWN_MAX, "ranges")
        if not each["lost"]:
            yield "  nothing that is kept is lost"
    if data["dry_run"]:
        yield "nothing was written: repeat it with --yes"


def _sketch_lines(data: Fields) -> Iterator[str]:
    where = f"node {data['node_id']}: {count_text(data['objects'], 'object')} opened"
    if not data["missing"] and not data["wrong"]:
        yield f"{where}, and all sketches are correct: nothing to do"
        return
    yield where
    verb = "would be sketched" if data["dry_run"] else "sketched"
    for ids, why in ((data["missing"], "had no sketch"), (data["wrong"], "had one that hides a stream")):
        if ids:
            shown = ", ".join(map(str, ids[:IDS_SHOWN_MAX])) + (", ..." if len(ids) > IDS_SHOWN_MAX else "")
            yield f"  {count_text(len(ids), 'object')} {verb} that {why}: {shown}"
    if data["dry_run"]:
        yield "nothing was written: repeat it with --yes"


def _show_repair(done: Repair, what: str, output: Output) -> None:
    """Print the findings and results of a repair, and exit with the code for its result."""
    from accel.repair.findings import RepairOutcome  # noqa: PLC0415 - only some commands need it

    data = {
        "stream": done.stream,
        "dry_run": not done.applied,
        "is_complete": done.is_complete,
        "findings": [
            {
                "table": finding.table,
                "key": finding.key,
                "outcome": finding.outcome.value,
                "problem": finding.problem,
                "remedy": finding.remedy,
            }
            for finding in done.findings
        ],
    }
    counts = {outcome: done.count(outcome) for outcome in RepairOutcome}
    output.show(Shown(data, _finding_lines(done, what, counts)))
    left = counts[RepairOutcome.LOST] + counts[RepairOutcome.CHANGED]
    end_with(EXIT_FAILED if left or not done.is_complete else 0)


def _finding_lines(done: Repair, what: str, counts: Mapping[RepairOutcome, int]) -> Iterator[str]:
    """Three lines for each finding, and a summary line."""
    for finding in done.findings[:SHOWN_FINDINGS_MAX]:
        place = f"{finding.table}/{finding.key}" if finding.key == TABLE_MARKER else finding.key
        yield f"{place}: {finding.outcome.value}"
        yield f"  found: {finding.problem}"
        yield f"  from:  {finding.remedy}"
    if len(done.findings) > SHOWN_FINDINGS_MAX:
        yield f"... and {len(done.findings) - SHOWN_FINDINGS_MAX} more"
    if not done.is_complete:
        yield "not all records were read: repair these first, and then run the command again"
    if not done.findings:
        yield f"{what}: nothing is damaged"
        return
    counted = [f"{count} {outcome.value}" for outcome, count in counts.items() if count]
    text = f"{count_text(len(done.findings), 'record')} of {done.stream}: {', '.join(counted)}"
    yield text if done.applied else f"dry run: {text} (--yes rebuilds)"
