"""`accel stream retention`: record cuts, and truncate streams as their owners want."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from accel.cli.options import examples, option, output_options
from accel.cli.stream.notation import moment_ms_text
from accel.cli.stream.options import (
    ScopeChoice,
    cut_options,
    moment_option,
    parse_name,
    read_by,
    scope_options,
    size_options,
)
from accel.lookup.explain import count_text
from accel.rendering import Output, Rendered, table_of

if TYPE_CHECKING:
    from accel.history.store.retention_workflow import StreamRetention

SHOWN_STREAMS_MAX: Final = 50
"""Streams in the text; JSON has all of them."""

EXIT_FAILED: Final = 1

_COLUMNS: Final = {"stream": False, "outcome": False, "cut": False, "size before it": True}


@dataclass(frozen=True, slots=True)
class ShownRetention:
    """What became of streams; those to which nothing happened are only counted in the text.

    Args:
        streams: in the order in which they were looked at.
        is_dry_run: whether this is what would become of them.
        cost: what it took, for machines.
        cost_text: the same for people; empty = nothing is said of it.
    """

    streams: Sequence[StreamRetention]
    is_dry_run: bool
    cost: Mapping[str, int | float] | None = None
    cost_text: str = ""

    @property
    def exit_code(self) -> int:
        """1 if something failed."""
        from accel.history.store.retention_workflow import Retained  # noqa: PLC0415 - only for who needs it

        return EXIT_FAILED if any(each.outcome is Retained.FAILED for each in self.streams) else 0

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "dry_run": self.is_dry_run,
            "streams": list(map(_data, self.streams)),
            "totals": self._totals(),
            **(self.cost or {}),
        }

    def render(self) -> Iterator[Rendered]:
        """A table, what is wrong, and a sentence."""
        told = [each for each in self.streams if each.point is not None or each.error]
        if told:
            yield table_of(_COLUMNS, (self._cells(each) for each in islice(told, SHOWN_STREAMS_MAX)))
            yield ""
        if len(told) > SHOWN_STREAMS_MAX:
            yield f"... and {len(told) - SHOWN_STREAMS_MAX} more"
        wrong = (each for each in told if each.error)
        yield from (f"{each.outcome.value}: {each.stream}: {each.error}" for each in islice(wrong, SHOWN_STREAMS_MAX))
        yield self._sentence()

    def _totals(self) -> dict[str, int]:
        from accel.history.store.retention_workflow import totals  # noqa: PLC0415 - likewise

        return totals(self.streams)

    def _sentence(self) -> str:
        counted = [f"{count} {name}" for name, count in self._totals().items() if count]
        found = f"{count_text(len(self.streams), 'stream')}: {', '.join(counted)}" if counted else "no streams"
        found = f"dry run: {found} (--yes does it)" if self.is_dry_run else found
        return f"{found}; {self.cost_text}" if self.cost_text else found

    def _cells(self, found: StreamRetention) -> tuple[str, ...]:
        cut, size = "", ""
        if found.point is not None:
            cut, size = moment_ms_text(found.point.recording_time_ms), str(found.point.recorded_size)
        would_be = self.is_dry_run and not found.error
        return found.stream, f"would be {found.outcome.value}" if would_be else found.outcome.value, cut, size


@click.group("retention")
def retention_group() -> None:
    """Record cuts, and truncate streams as their owners want."""


yes_option = click.option("--yes", is_flag=True, help="Do it; without it nothing is changed.")


@retention_group.command(
    short_help="Record a cut, and truncate to what shall be kept; a dry run without --yes.",
    epilog=examples(
        "accel stream retention run --store s3://bucket --scope shop",
        "accel stream retention run --store s3://bucket --scope shop --stream orders --size 2@1=5000 --yes",
    ),
)
@yes_option
@option("--stream", callback=read_by(parse_name), help="The stream; all of the scope without it.")
@moment_option("--time", "When; now by default.")
@size_options
@cut_options("--read-by-all", "--read-at", "read_by_all", "The cut up to which all readers have read", required=False)
@scope_options
@output_options
@click.pass_context
def run(
    ctx: click.Context,
    /,
    *,
    yes: bool,
    stream: str | None,
    time: int | None,
    sizes: dict[int, int] | None,
    read_by_all: dict[int, int],
    scope: ScopeChoice,
    output: Output,
) -> None:
    """Record a cut at the end of one stream, or of all in a scope, and truncate each as its policy asks for.

    Without --yes it writes nothing, and shows what would be recorded and truncated, in the same form.
    Streams without a policy, and sealed ones, are left alone; in a whole scope also those that another workflow has.
    A stream that fails does not hold up the others; the command then ends with 1.

    How far segments reach is for those to say who hold them, as with --size. With --data-elsewhere segments that are
    not named count as empty until they are sealed, so that streams are truncated by whole segments.
    """
    if stream is None and (sizes or read_by_all):
        raise click.UsageError("Expected --stream with --size and --read-by-all: segments of which stream?")
    if not read_by_all and ctx.get_parameter_source("read_by_all_file") is not ParameterSource.DEFAULT:
        raise click.UsageError("Expected a cut with segments with --read-by-all: nothing is truncated on a guess.")
    store = scope.open(output, sizes)
    if stream is None:
        shown = ShownRetention(store.run_retention(scope.scope, time, is_dry_run=not yes), not yes)
    else:
        from accel.history.store.retention_workflow import StreamRetention  # noqa: PLC0415 - only for who needs it

        workflow = store.stream(scope.scope, stream).retention
        act = workflow.retain if yes else workflow.plan
        outcome, point = act(time, read_by_all or None)
        shown = ShownRetention([StreamRetention(f"{scope.scope}/{stream}", outcome, point)], not yes)
    output.show(shown)
    ctx.exit(shown.exit_code)


def _data(found: StreamRetention) -> dict[str, Any]:
    point = found.point
    return {
        "stream": found.stream,
        "outcome": found.outcome.value,
        "recording_time_ms": None if point is None else point.recording_time_ms,
        "size": None if point is None else point.recorded_size,
        "error": found.error,
    }
