"""`accel stream cuts`: list and show recorded cuts, check a cut, compare two, and list the segments between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from accel.cli.groups import CommandGroup
from accel.cli.options import command, limit_option
from accel.cli.stream.notation import (
    SEGMENT_COLUMNS,
    Moment,
    cut_text,
    given_ms,
    moment_ms_text,
    numbers_by_segment,
    segment_data,
)
from accel.cli.stream.options import StreamChoice, cut_options, moment_option, stream_options
from accel.errors import InvalidArgument
from accel.history.rules.values import segment_text
from accel.rendering import Column, Output, Shown, said, table_of, word
from accel.units import count_text

if TYPE_CHECKING:
    from accel.history.rules.retention import RetentionEntry
    from accel.history.rules.segments import SegmentRecord

_SAID = {"Before": "before", "EqualOrAfter": "equal to or after", "Overlaps": "before and after"}


@click.group("cuts", cls=CommandGroup, short_help="Show and check cuts of a stream.")
def cuts_group() -> None:
    """Show and check a stream's cuts: recorded ones, and given ones."""


@command(
    "List recorded cuts.",
    "accel stream cuts list --store s3://bucket --scope shop --stream orders",
    name="list",
    group=cuts_group,
)
@limit_option(20, "Show this many of the newest; 0 for all.")
@stream_options
def list_cuts(*, limit: int, stream: StreamChoice, output: Output) -> None:
    """List when cuts were recorded, and the size of the stream before each."""
    recorded = stream.open().retention.read()
    entries = recorded[-limit:] if limit else recorded
    data: dict[str, Any] = {
        "cuts": [{"recording_time_ms": entry.recording_time_ms, "size": entry.recorded_size} for entry in entries],
        "left_out": len(recorded) - len(entries),
    }
    columns: tuple[Column[RetentionEntry], ...] = (
        word("recorded", lambda entry: moment_ms_text(entry.recording_time_ms)),
        Column("size before", lambda entry: entry.recorded_size),
    )
    output.show(Shown(data, (table_of(entries, *columns), "", count_text(len(recorded), "recorded cut"))))


@command(
    "Show a cut: a recorded one, or the stream's head.",
    "accel stream cuts show --store s3://bucket --scope shop --stream orders --recorded 1800000000000",
    "accel stream cuts show --store s3://bucket --scope shop --stream orders --output json > head.json",
    group=cuts_group,
)
@moment_option("--recorded", "Time of its record; without it, the cut at which the stream begins.")
@stream_options
def show(*, recorded: Moment | None, stream: StreamChoice, output: Output) -> None:
    """Show a cut, in the JSON form that --cut reads."""
    opened = stream.open()
    recorded_ms = given_ms(recorded, opened.parts.store.now_ms)
    cut = opened.head() if recorded_ms is None else opened.retention.cut(recorded_ms).cut
    output.show(said(cut_text(cut), stream=str(stream), recording_time_ms=recorded_ms, cut=numbers_by_segment(cut)))


@command(
    "Show whether a cut is valid, and its epochs.",
    "accel stream cuts check --store s3://bucket --scope shop --stream orders --at 0@0=10 --at 1@0=5",
    group=cuts_group,
)
@cut_options()
@stream_options
def check(*, cut: dict[int, int], stream: StreamChoice, output: Output) -> None:
    """Show whether a reader of the stream can be at a cut, and the epochs of its segments.

    Exits with 1 if the cut is not valid.
    """
    opened = stream.open()
    span = opened.cuts.span(cut)
    if not opened.cuts.is_valid(cut):
        raise InvalidArgument(f"expected a cut that a reader can be at, found {cut_text(cut)}")
    stream.refuse_beyond(opened, output, cut)
    rows = list(span.segments)
    data = [{**segment_data(row), "epoch": span.epochs[row.id], "offset": cut[row.id]} for row in rows]
    columns: tuple[Column[SegmentRecord], ...] = (
        Column("epoch", lambda row: span.epochs[row.id]),
        Column("offset", lambda row: cut[row.id]),
    )
    lines = (table_of(rows, *SEGMENT_COLUMNS, *columns), "", f"valid, in epochs {span.low} to {span.high}")
    output.show(Shown({"valid": True, "low": span.low, "high": span.high, "segments": data}, lines))


@command(
    "Compare two cuts.",
    "accel stream cuts compare --store s3://bucket --scope shop --stream orders --cut a.json --other b.json",
    group=cuts_group,
)
@cut_options("--other", "--other-at", "other", "The other cut")
@cut_options()
@stream_options
def compare(*, cut: dict[int, int], other: dict[int, int], stream: StreamChoice, output: Output) -> None:
    """Show whether a cut is before another one, equal to or after it, or both, at different keys."""
    opened = stream.open()
    order = opened.cuts.compare(cut, other).value
    stream.refuse_beyond(opened, output, cut, other)
    output.show(said(f"{cut_text(cut)} is {_SAID[order]} {cut_text(other)}", order=order))


@command(
    "List the segments between two cuts.",
    "accel stream cuts between --store s3://bucket --scope shop --stream orders",
    "accel stream cuts between --store s3://bucket --scope shop --stream orders --start a.json --end b.json",
    group=cuts_group,
)
@cut_options("--end", "--end-at", "end", "Where to end (the stream's end by default)", required=False)
@cut_options("--start", "--start-at", "start", "Where to begin (the stream's head by default)", required=False)
@stream_options
def between(*, start: dict[int, int], end: dict[int, int], stream: StreamChoice, output: Output) -> None:
    """List the segments between two cuts, including those of both cuts, and the size of the stream between them.

    Sizes come from sealed segments and from the cuts.
    """
    opened = stream.open()
    begin = start or opened.truncation().cut
    names = [segment_text(segment_id) for segment_id in opened.cuts.segments_between(begin, end).tolist()]
    stream.refuse_beyond(opened, output, start, end)
    size, unit = opened.cuts.size_between(begin, end), opened.configuration().offset_unit.value
    sentence = f"{count_text(len(names), 'segment')}, {size} {unit}"
    output.show(Shown({"segments": names, "size": size, "unit": unit}, (*names, sentence)))
