"""`accel catalog verify`: check the catalog of a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from accel.catalog import ObjectCatalog
from accel.catalog.problems import Severity
from accel.catalog.verify import NOT_LOOKED_AT, Verdict, Verification
from accel.catalog.verify import verify as verify_catalog
from accel.catalog.whole_catalog import BulkScan
from accel.cli.engines import Engine, engine_options
from accel.cli.objects.verify import EXIT_PROBLEMS
from accel.cli.options import command, end_with, log_option, store_options
from accel.rendering import Output, Shown, finding_lines, left_out
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
        opened, scan = engine.store.open(), engine.scan()
        moved = opened.moved_bytes if scan is None else None
        with ObjectCatalog.open(opened) as catalog, output.progress("verifying", moved=moved) as tell:
            verification = verify_catalog(catalog, progress=tell, scan=scan)
    total, there = opened.snapshot().total, scan or BulkScan()
    requests, bytes_read = total.requests + there.requests, total.received_bytes + there.bytes_read
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
        kind = problem.kind.upper() if problem.severity is Severity.DAMAGE else problem.kind
        yield from finding_lines(kind, problem.where, f"expected {problem.expected}, found {problem.found}")
    yield from left_out(len(verification.problems), SHOWN_MAX, "problems")
    for unchecked in verification.unchecked[:SHOWN_MAX]:
        yield from finding_lines("UNCHECKED", unchecked.where, unchecked.reason)
    yield from left_out(len(verification.unchecked), SHOWN_MAX, "things that could not be checked")
    for orphan in verification.orphans[:ORPHANS_SHOWN_MAX]:
        what = f"object {orphan.object_id} at {orphan.key}"
        whose = ", not proven to be this catalog's" if orphan.is_ours is False else ""
        yield f"orphan        {what}: {size_text(orphan.size_bytes)}, {age_text(orphan.age_seconds)} old{whose}"
    yield from left_out(verification.counts["orphans"], ORPHANS_SHOWN_MAX, "orphans, not as old")
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
