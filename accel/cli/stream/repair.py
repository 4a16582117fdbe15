"""`accel stream repair`: find damaged records of a stream, and rebuild those that follow from others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from accel.cli.options import examples, output_options
from accel.cli.stream.options import StreamChoice, size_options, stream_options
from accel.lookup.explain import count_text
from accel.rendering import Output, Rendered

if TYPE_CHECKING:
    from accel.history.store.repair import Repair

SHOWN_FINDINGS_MAX: Final = 50
"""Findings in the text; JSON has all of them."""

EXIT_FAILED: Final = 1


@dataclass(frozen=True, slots=True)
class ShownRepair:
    """What is wrong with a stream, and what became of it.

    Args:
        repair: the findings.
    """

    repair: Repair

    @property
    def exit_code(self) -> int:
        """1 if a record cannot be rebuilt, or is to be looked at again."""
        from accel.history.store.repair_epochs import RepairOutcome  # noqa: PLC0415 - only for who needs it

        left = self.repair.count(RepairOutcome.LOST) + self.repair.count(RepairOutcome.CHANGED)
        return EXIT_FAILED if left or not self.repair.is_complete else 0

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        found = self.repair.findings
        return {
            "stream": self.repair.stream,
            "dry_run": not self.repair.applied,
            "is_complete": self.repair.is_complete,
            "findings": [
                {
                    "table": each.table,
                    "key": each.key,
                    "outcome": each.outcome.value,
                    "problem": each.problem,
                    "remedy": each.remedy,
                }
                for each in found
            ],
        }

    def render(self) -> Iterator[Rendered]:
        """Three lines for each finding, and a sentence."""
        found = self.repair.findings
        for each in found[:SHOWN_FINDINGS_MAX]:
            yield f"{each.key}: {each.outcome.value}"
            yield f"  found: {each.problem}"
            yield f"  from:  {each.remedy}"
        if len(found) > SHOWN_FINDINGS_MAX:
            yield f"... and {len(found) - SHOWN_FINDINGS_MAX} more"
        if not self.repair.is_complete:
            yield "not all records were read: repair these first, and then run the command again"
        yield self._sentence()

    def _sentence(self) -> str:
        from accel.history.store.repair_epochs import RepairOutcome  # noqa: PLC0415 - likewise

        if not self.repair.findings:
            return f"stream {self.repair.stream}: nothing is damaged"
        counted = [f"{count} {each.value}" for each in RepairOutcome if (count := self.repair.count(each))]
        text = f"{count_text(len(self.repair.findings), 'record')} of {self.repair.stream}: {', '.join(counted)}"
        return text if self.repair.applied else f"dry run: {text} (--yes rebuilds)"


@click.command(
    short_help="Rebuild damaged records of a stream; a dry run without --yes.",
    epilog=examples(
        "accel stream repair --store s3://bucket --scope shop --stream orders",
        "accel stream repair --store s3://bucket --scope shop --stream orders --size 0@0=100 --yes",
    ),
)
@click.option("--yes", is_flag=True, help="Write what can be rebuilt; without it nothing is changed.")
@size_options
@stream_options
@output_options
@click.pass_context
def repair(ctx: click.Context, /, *, yes: bool, sizes: dict[int, int], stream: StreamChoice, output: Output) -> None:
    """Find records that cannot be read, are missing, or contradict others, and rebuild those that follow from others.

    It may run at any time, beside those who work, and reads all records of the stream. It names what cannot be rebuilt,
    with what is known of it, and then ends with 1. A lost shard of sealed sizes is rebuilt from --size.
    """
    store = stream.scope.open(output)
    shown = ShownRepair(store.repair_stream(stream.scope.scope, stream.name, apply=yes, sizes=sizes))
    output.show(shown)
    ctx.exit(shown.exit_code)
