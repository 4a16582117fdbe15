"""`accel stream cuts`: list recorded cuts, and show one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from accel.cli.options import command, limit_option
from accel.cli.stream.notation import (
    Moment,
    cut_text,
    given_ms,
    moment_ms_text,
    numbers_by_segment,
)
from accel.cli.stream.options import StreamChoice, moment_option, stream_options
from accel.rendering import Column, Output, Shown, said, table_of, word
from accel.units import count_text

if TYPE_CHECKING:
    from accel.history.rules.retention import RetentionEntry
    from accel.history.store import Stream


@command(
    "List recorded cuts, or show a cut.",
    "accel stream cuts --store s3://bucket --scope shop --stream orders",
    "accel stream cuts --store s3://bucket --scope shop --stream orders --recorded 1800000000000",
    "accel stream cuts --store s3://bucket --scope shop --stream orders --head --output json > head.json",
)
@limit_option(20, "Show this many of the newest; 0 for all.")
@click.option("--head", is_flag=True, help="Show the cut at which the stream begins.")
@moment_option("--recorded", "Show the cut that was recorded at this time.")
@stream_options
def cuts(*, limit: int, head: bool, recorded: Moment | None, stream: StreamChoice, output: Output) -> None:
    """List when cuts were recorded, and the size of the stream before each; or show one.

    A cut is shown in the JSON form that --cut reads.
    """
    if head and recorded is not None:
        raise click.UsageError("Expected '--head' or '--recorded', found both.")
    opened = stream.open()
    recorded_ms = given_ms(recorded, opened.parts.store.now_ms)
    if recorded_ms is None and not head:
        output.show(_recorded(opened, limit))
        return
    cut = opened.head() if recorded_ms is None else opened.retention.cut(recorded_ms).cut
    output.show(said(cut_text(cut), stream=str(stream), recording_time_ms=recorded_ms, cut=numbers_by_segment(cut)))


def _recorded(stream: Stream, limit: int) -> Shown:
    recorded = stream.retention.read()
    entries = recorded[-limit:] if limit else recorded
    data: dict[str, Any] = {
        "cuts": [{"recording_time_ms": entry.recording_time_ms, "size": entry.recorded_size} for entry in entries],
        "left_out": len(recorded) - len(entries),
    }
    columns: tuple[Column[RetentionEntry], ...] = (
        word("recorded", lambda entry: moment_ms_text(entry.recording_time_ms)),
        Column("size before", lambda entry: entry.recorded_size),
    )
    return Shown(data, (table_of(entries, *columns), "", count_text(len(recorded), "recorded cut")))
