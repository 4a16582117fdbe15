"""`accel catalog verify`: check the catalog of a bucket.

`accel catalog sketch`: write missing sketches of the objects of a node's list, and correct wrong ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from accel.catalog import ObjectCatalog
from accel.catalog.edges import NODE_ID_MAX
from accel.catalog.problems import Severity
from accel.catalog.verify import NOT_LOOKED_AT, Verdict, Verification
from accel.cli.engines import Engine, engine_options
from accel.cli.objects.verify import EXIT_PROBLEMS
from accel.cli.options import StoreChoice, command, end_with, log_option, store_options, yes_option
from accel.cli.stream.repair import show_repair
from accel.rendering import Output, Shown
from accel.repair.catalog import THE_CATALOG, repair
from accel.repair.lost_objects import GivenUp, give_up
from accel.repair.sketches import SketchReport, sketch_list
from accel.units import age_text, count_text, size_text

SHOWN_MAX = 100
"""Limit of problems, and of failed checks, in the text output."""

ORPHANS_SHOWN_MAX = 10

EXIT_CODES = {Verdict.CLEAN: 0, Verdict.ADVICE: 0, Verdict.PROBLEMS: EXIT_PROBLEMS, Verdict.NOT_CHECKED: 1}
"""The exit code."""


@command(
    "Check a catalog against itself and its bucket.",
    "accel catalog verify --store s3://bucket",
    "accel catalog verify --store s3://bucket --output json",
)
@store_options
@engine_options(lists=True)
@log_option
def verify(*, engine: Engine, output: Output) -> None:
    """Check a whole catalog: its lists, its streams, and every object that is live. Nothing is written.

    Checks that each live object exists with its size, its checksum and a readable index; that the offsets of each
    stream ascend through a node's list and reach the ends in other keys; that no object is live in two places, or both
    live and retired; that no key is older than other keys require. Objects that the catalog does not name are reported
    with their age; they are not a problem. The report also names what was not checked. Exits with 3 if there is damage
    (in capital letters), else with 1 if a check failed to run; advice (in small letters) exits with 0.
    """
    with engine.running():
        verification, requests, bytes_read = engine.verify(output)
    counts = dict(verification.counts)
    orphans: dict[str, Any] = {"objects": counts.pop("orphans"), "bytes": counts.pop("orphan_bytes")}
    orphans["oldest"] = [asdict(orphan) for orphan in verification.orphans]
    data = {
        "outcome": verification.outcome.value,
        "checked": counts,
        "problems": [{**asdict(problem), "severity": problem.severity.value} for problem in verification.problems],
        "unchecked": [asdict(unchecked) for unchecked in verification.unchecked],
        "notices": verification.notices,
        "not_looked_at": list(NOT_LOOKED_AT),
        "orphans": orphans if verification.are_orphans_known else None,
        "requests": requests,
        "bytes": bytes_read,
    }
    is_silent = output.is_quiet and verification.outcome is Verdict.CLEAN
    output.show(Shown(data, () if is_silent else _lines(verification, requests, bytes_read)))
    end_with(EXIT_CODES[verification.outcome])


def _lines(verification: Verification, requests: int, bytes_read: int) -> Iterator[str]:
    """Two lines a problem, one an orphan, and a summary line."""
    for problem in verification.problems[:SHOWN_MAX]:
        is_damage = problem.severity is Severity.DAMAGE
        yield f"{problem.kind.upper() if is_damage else problem.kind:<14}{problem.where}"
        yield f"              expected {problem.expected}, found {problem.found}"
    yield from _left_out(len(verification.problems), SHOWN_MAX, "problems")
    for unchecked in verification.unchecked[:SHOWN_MAX]:
        yield f"UNCHECKED     {unchecked.where}"
        yield f"              {unchecked.reason}"
    yield from _left_out(len(verification.unchecked), SHOWN_MAX, "things that could not be checked")
    for orphan in verification.orphans[:ORPHANS_SHOWN_MAX]:
        what = f"object {orphan.object_id} at {orphan.key}"
        whose = ", not proven to be this catalog's" if orphan.is_ours is False else ""
        yield f"orphan        {what}: {size_text(orphan.size_bytes)}, {age_text(orphan.age_seconds)} old{whose}"
    yield from _left_out(verification.counts["orphans"], ORPHANS_SHOWN_MAX, "orphans, not as old")
    yield from (f"notice        {what}" for what in verification.notices)
    yield from (f"not looked at {what}" for what in NOT_LOOKED_AT)
    counts = verification.counts
    lists = f"{count_text(counts['lists'], 'list')}, {count_text(counts['shards'], 'stream shard')}"
    objects = f"{count_text(counts['objects'], 'object')} of {size_text(counts['bytes'])}"
    cost = f"{count_text(requests, 'request')}, {size_text(bytes_read)}"
    yield f"{lists}, {objects} checked ({cost}): {_verdict(verification)}"


def _verdict(verification: Verification) -> str:
    damage = len(verification.damage)
    verdict = count_text(damage, "problem") if damage else "no problem"
    if advice := len(verification.problems) - damage:
        verdict += f", {advice} to look after"
    if verification.unchecked:
        verdict += f", {len(verification.unchecked)} could not be checked"
    if not verification.are_orphans_known:
        return f"{verdict}, orphans not counted"
    counts = verification.counts
    return f"{verdict}, {count_text(counts['orphans'], 'orphan')} of {size_text(counts['orphan_bytes'])}"


def _left_out(count: int, shown: int, what: str) -> Iterator[str]:
    if count > shown:
        yield f"              … and {count - shown} more {what}"


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
        yield from _left_out(len(each.lost), SHOWN_MAX, "ranges")
        if not each.lost:
            yield "  nothing that is kept is lost"
    if is_dry_run:
        yield "nothing was written: repeat it with --yes"
