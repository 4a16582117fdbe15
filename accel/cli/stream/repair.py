"""`accel stream repair`: find damaged records of a stream, and rebuild those that can be derived from others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from accel.cli.options import command, end_with, yes_option
from accel.cli.stream.options import StreamChoice, sizes_option, stream_options
from accel.rendering import Output, Shown
from accel.units import count_text
from loaders.layout import TABLE_MARKER

if TYPE_CHECKING:
    from accel.repair.findings import Repair, RepairOutcome

SHOWN_FINDINGS_MAX: Final = 50
"""Limit of findings in the text; JSON has all of them."""

EXIT_FAILED: Final = 1


@command(
    "Rebuild damaged records of a stream; a dry run without --yes.",
    "accel stream repair --store s3://bucket --scope shop --stream orders",
    "accel stream repair --store s3://bucket --scope shop --stream orders --size 0@0=100 --yes",
)
@yes_option("Write what can be rebuilt; without it nothing is changed.")
@sizes_option
@stream_options
def repair(*, yes: bool, sizes: dict[int, int], stream: StreamChoice, output: Output) -> None:
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
    output.show(Shown(data, _lines(done, what, counts)))
    left = counts[RepairOutcome.LOST] + counts[RepairOutcome.CHANGED]
    end_with(EXIT_FAILED if left or not done.is_complete else 0)


def _lines(done: Repair, what: str, counts: Mapping[RepairOutcome, int]) -> Iterator[str]:
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
