"""`accel stream retention`: record cuts, and truncate streams as their owners want."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from accel.cli.history_options import ScopeChoice, moment_option, parse_name, read_by, scope_options, size_options
from accel.cli.history_shown import Shown
from accel.cli.history_texts import moment_ms_text
from accel.cli.options import examples, option, output_options
from accel.cli.output import Output

if TYPE_CHECKING:
    from accel.history.records import RetentionEntry


@click.group("retention")
def retention_group() -> None:
    """Record cuts, and truncate streams as their owners want."""


@retention_group.command(
    short_help="Record a cut, and truncate to what shall be kept.",
    epilog=examples(
        "accel stream retention run --store s3://bucket --scope shop",
        "accel stream retention run --store s3://bucket --scope shop --stream orders --size 2@1=5000",
    ),
)
@option("--stream", callback=read_by(parse_name), help="The stream; all of the scope without it.")
@moment_option("--time", "When; now by default.")
@size_options
@scope_options
@output_options
def run(*, stream: str | None, time: int | None, sizes: dict[int, int], scope: ScopeChoice, output: Output) -> None:
    """Record a cut at the end of one stream, or of all in a scope, and truncate each as its policy asks for.

    Streams without a policy, and sealed ones, are left alone; in a whole scope also those that another workflow has.
    """
    if stream is None and sizes:
        raise click.UsageError("Expected --stream with --size: segments of which stream?")
    store = scope.open(output, sizes)
    found: dict[str, RetentionEntry] = {}
    if stream is None:
        found = store.run_retention(scope.scope, time)
    elif (point := store.stream(scope.scope, stream).run_retention(time)) is not None:
        found = {stream: point}
    rows = {
        f"{scope.scope}/{each}": {"recording_time_ms": point.recording_time_ms, "size": point.recorded_size}
        for each, point in found.items()
    }
    lines = [
        f"{each} truncated to the cut of {moment_ms_text(point['recording_time_ms'])}" for each, point in rows.items()
    ]
    output.show(Shown({"truncated": rows}, tuple(lines or ["nothing truncated"])))
