"""For who has damage: rebuild keys of a catalog, sketches and records of streams; restore objects from a copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Final

import click

from accel.catalog import ObjectCatalog
from accel.catalog.edges import NODE_ID_MAX
from accel.cli.catalog.verify import SHOWN_MAX, left_out
from accel.cli.options import EXIT_FAILED, StoreChoice, command, end_with, store_options, yes_option
from accel.cli.stream.options import StreamChoice, sizes_option, stream_options
from accel.rendering import Output, Shown
from accel.repair.catalog import THE_CATALOG, repair
from accel.repair.lost_objects import GivenUp, give_up
from accel.repair.objects import PutBackOutcome, PutBackReport, put_back
from accel.repair.sketches import SketchReport, sketch_list
from accel.units import count_text, size_text
from loaders.layout import TABLE_MARKER

if TYPE_CHECKING:
    from accel.repair.findings import Repair, RepairOutcome

SHOWN_FINDINGS_MAX: Final = 50
"""Limit of findings in the text; JSON has all of them."""


@command(
    "Rebuild damaged records of a stream; a dry run without --yes.",
    "accel stream repair --store s3://bucket --scope shop --stream orders",
    "accel stream repair --store s3://bucket --scope shop --stream orders --size 0@0=100 --yes",
    name="repair",
)
@yes_option("Write what can be rebuilt; without it nothing is changed.")
@sizes_option
@stream_options
def repair_stream(*, yes: bool, sizes: dict[int, int], stream: StreamChoice, output: Output) -> None:
    """Find records that cannot be read, are missing, or contradict others, and rebuild those derivable from others.

    It may run at any time, beside other processes, and reads all records of the stream. It reports each record that
    cannot be rebuilt, and then exits with 1. A lost shard of sealed sizes is rebuilt from --size.
    """
    from accel.repair.streams import repair_stream  # noqa: PLC0415 - only some commands need it

    done = repair_stream(stream.scope.open(), stream.scope.scope, stream.name, apply=yes, sizes=sizes)
    show_repair(done, f"stream {done.stream}", output)


def show_repair(done: Repair, what: str, output: Output) -> None:
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


IDS_SHOWN_MAX = 20


@command(
    "Rebuild the stream sketches of a node's objects; a dry run without --yes.",
    "accel catalog sketch --node 4 --store s3://bucket",
    "accel catalog sketch --node 4 --yes --store s3://bucket",
)
@click.option("--node", "node_id", type=click.IntRange(0, NODE_ID_MAX), required=True, help="The node of the list.")
@yes_option()
@store_options
def sketch(*, node_id: int, yes: bool, store: StoreChoice, output: Output) -> None:
    """Write a correct sketch of each object in a node's list: the streams that the object certainly does not hold.

    An object has no sketch if its commit did not name its streams, or an older release wrote the list; lookups then
    open it unnecessarily. A sketch that hides a stream of its object is damage, which `accel catalog verify` finds. The
    command opens all live objects of the node; with --yes it writes the list once, if a sketch is to be changed.
    """
    with ObjectCatalog.open(store.open()) as catalog:
        report = sketch_list(catalog, node_id, is_dry_run=not yes)
        data = {"dry_run": not yes, **asdict(report)}
        output.show(Shown(data, _sketch_lines(report, is_dry_run=not yes)))


def _sketch_lines(report: SketchReport, *, is_dry_run: bool) -> Iterator[str]:
    verb = "would be sketched" if is_dry_run else "sketched"
    opened = count_text(report.objects, "object")
    if not report.missing and not report.wrong:
        yield f"node {report.node_id}: {opened} opened, and all sketches are correct: nothing to do"
        return
    yield f"node {report.node_id}: {opened} opened"
    for ids, why in ((report.missing, "had no sketch"), (report.wrong, "had one that hides a stream")):
        if ids:
            shown = ", ".join(map(str, ids[:IDS_SHOWN_MAX])) + (", ..." if len(ids) > IDS_SHOWN_MAX else "")
            yield f"  {count_text(len(ids), 'object')} {verb} that {why}: {shown}"
    if is_dry_run:
        yield "nothing was written: repeat it with --yes"


@command(
    "Rebuild keys of a catalog that can be derived from others; a dry run without --yes.",
    "accel catalog repair --store s3://bucket",
    "accel catalog repair --yes --store s3://bucket",
    "accel catalog repair --give-up 1234 --store s3://bucket",
    name="repair",
)
@click.option(
    "--give-up",
    "object_ids",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="OBJECT",
    help="Only give up this object, which no copy of the bucket has; may be repeated.",
)
@yes_option("Write what can be rebuilt; without it nothing is changed.")
@store_options
def repair_command(*, object_ids: tuple[int, ...], yes: bool, store: StoreChoice, output: Output) -> None:
    """Find keys of the catalog that cannot be read or are missing, and rebuild those that can be derived from others.

    Derived keys are markers of tables, the copy of the choices, the directory of nodes, the counter of object ids,
    checkpoints and kept versions. Lists and stream shards cannot be derived: they are named, and the command exits with
    1. It may run at any time, and does not write keys that can be read.

    --give-up shows the ranges of streams that are lost with an object of a node's list that cannot be read. With --yes
    the object leaves the list, and readers of these ranges get an error that names the end of the hole.
    """
    with ObjectCatalog.open(store.open()) as catalog:
        if object_ids:
            given_up = give_up(catalog, object_ids, apply=yes)
            data = {"dry_run": not yes, "given_up": [asdict(each) for each in given_up]}
            output.show(Shown(data, _given_up_lines(given_up, is_dry_run=not yes)))
            return
        show_repair(repair(catalog, apply=yes), THE_CATALOG, output)


def _given_up_lines(given_up: tuple[GivenUp, ...], *, is_dry_run: bool) -> Iterator[str]:
    for each in given_up:
        verb = "would be given up" if is_dry_run else "given up"
        yield f"object {each.object_id} of node {each.node_id}, {size_text(each.size_bytes)}: {verb}"
        yield f"  found: {each.reason}"
        what = "lost" if each.is_exact else "lost at most"
        for lost in each.lost[:SHOWN_MAX]:
            end = (
                f"{lost.end})"
                if lost.end >= 0
                else "its end), which is not known: later appends get these offsets again"
            )
            yield f"  {what}: stream {lost.stream_id}, offsets [{lost.start}, {end}"
        yield from left_out(len(each.lost), SHOWN_MAX, "ranges")
        if not each.lost:
            yield "  nothing that is kept is lost"
    if is_dry_run:
        yield "nothing was written: repeat it with --yes"


@command(
    "Restore lost or damaged objects from a copy; a dry run without --yes.",
    "accel catalog put-back --from s3://copy/prefix --store s3://bucket/prefix",
    "accel catalog put-back --from s3://copy/prefix --yes --store s3://bucket/prefix",
    name="put-back",
)
@click.option("--from", "copy", metavar="URL", required=True, help="A copy of the store, with the same keys.")
@yes_option()
@store_options
def put_back_command(*, copy: str, yes: bool, store: StoreChoice, output: Output) -> None:
    """Restore live objects that are missing or damaged from a copy of the bucket.

    All live objects are opened. An object is copied only if its size and checksum in the copy are those in the catalog.
    Readable objects and keys below accel/ are not touched. Exits with 1 if an object could not be restored.
    """
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
