"""`accel stream cuts`: look at recorded cuts, check a cut, compare two, and tell what lies between them."""

from __future__ import annotations

from typing import Any

import click

from accel.cli.options import examples, output_options
from accel.cli.stream.notation import cut_text, keys_text, moment_ms_text, numbers_by_segment, segment_data
from accel.cli.stream.options import StreamChoice, cut_options, moment_option, stream_options
from accel.errors import InvalidArgument
from accel.history.ids import segment_text
from accel.lookup.explain import count_text
from accel.rendering import Output, Shown, said, table_of

_SAID = {"Before": "before", "EqualOrAfter": "equal to or after", "Overlaps": "before and after"}


@click.group("cuts", short_help="Look at cuts of a stream.")
def cuts_group() -> None:
    """Look at a stream's cuts: recorded ones, and those that are given."""


@cuts_group.command(
    "list",
    short_help="List recorded cuts.",
    epilog=examples("accel stream cuts list --store s3://bucket --scope shop --stream orders"),
)
@click.option("--limit", type=click.IntRange(min=0), default=20, show_default=True, help="The newest; 0 for all.")
@stream_options
@output_options
def list_cuts(*, limit: int, stream: StreamChoice, output: Output) -> None:
    """List when cuts were recorded, and how much of the stream lay before each."""
    recorded = stream.open(output).retention.read()
    entries = recorded[-limit:] if limit else recorded
    data: dict[str, Any] = {
        "cuts": [{"recording_time_ms": each.recording_time_ms, "size": each.recorded_size} for each in entries],
        "left_out": len(recorded) - len(entries),
    }
    rows = ((moment_ms_text(each.recording_time_ms), str(each.recorded_size)) for each in entries)
    sentence = count_text(len(recorded), "recorded cut")
    output.show(Shown(data, (table_of({"recorded": False, "size before": True}, rows), "", sentence)))


@cuts_group.command(
    short_help="Show a cut: a recorded one, or the stream's head.",
    epilog=examples(
        "accel stream cuts show --store s3://bucket --scope shop --stream orders --recorded 1800000000000",
        "accel stream cuts show --store s3://bucket --scope shop --stream orders --output json > head.json",
    ),
)
@moment_option("--recorded", "When it was recorded; without it, the cut that the stream begins with.")
@stream_options
@output_options
def show(*, recorded: int | None, stream: StreamChoice, output: Output) -> None:
    """Show a cut; its JSON is what --cut takes."""
    opened = stream.open(output)
    cut = opened.head() if recorded is None else opened.retention.cut(recorded).cut
    output.show(said(cut_text(cut), stream=str(stream), recording_time_ms=recorded, cut=numbers_by_segment(cut)))


@cuts_group.command(
    short_help="Tell whether a cut is valid, and where it lies.",
    epilog=examples("accel stream cuts check --store s3://bucket --scope shop --stream orders --at 0@0=10 --at 1@0=5"),
)
@cut_options()
@stream_options
@output_options
def check(*, cut: dict[int, int], stream: StreamChoice, output: Output) -> None:
    """Tell whether somebody who reads the stream can stand at a cut, and which epochs its segments belong to.

    Ends with 1 if nobody can.
    """
    opened = stream.open(output)
    span = opened.cuts.span(cut)
    if not opened.cuts.is_valid(cut):
        raise InvalidArgument(f"expected a cut that somebody can stand at, found {cut_text(cut)}")
    rows = [(each, span.epochs[each.id], cut[each.id]) for each in span.segments]
    data = [{**segment_data(each), "epoch": epoch, "offset": offset} for each, epoch, offset in rows]
    cells = ((str(each), keys_text(each), str(epoch), str(offset)) for each, epoch, offset in rows)
    names = {"segment": False, "keys": False, "epoch": True, "offset": True}
    lines = (table_of(names, cells), "", f"valid, in epochs {span.low} to {span.high}")
    output.show(Shown({"valid": True, "low": span.low, "high": span.high, "segments": data}, lines))


@cuts_group.command(
    short_help="Compare two cuts.",
    epilog=examples(
        "accel stream cuts compare --store s3://bucket --scope shop --stream orders --cut a.json --other b.json"
    ),
)
@cut_options("--other", "--other-at", "other", "The other cut")
@cut_options()
@stream_options
@output_options
def compare(*, cut: dict[int, int], other: dict[int, int], stream: StreamChoice, output: Output) -> None:
    """Tell whether a cut lies before another one, is equal to or after it, or both, at different keys."""
    found = stream.open(output).cuts.compare(cut, other).value
    output.show(said(f"{cut_text(cut)} is {_SAID[found]} {cut_text(other)}", order=found))


@cuts_group.command(
    short_help="Tell what lies between two cuts.",
    epilog=examples(
        "accel stream cuts between --store s3://bucket --scope shop --stream orders",
        "accel stream cuts between --store s3://bucket --scope shop --stream orders --start a.json --end b.json",
    ),
)
@cut_options("--end", "--end-at", "end", "Where to end (the stream's end by default)", required=False)
@cut_options("--start", "--start-at", "start", "Where to begin (the stream's head by default)", required=False)
@stream_options
@output_options
def between(*, start: dict[int, int], end: dict[int, int], stream: StreamChoice, output: Output) -> None:
    """List the segments between two cuts, both cuts' own included, and how much of the stream lies there.

    Sizes are those of sealed segments, and those that the cuts tell.
    """
    opened = stream.open(output)
    begin = start or opened.truncation().cut
    names = [segment_text(each) for each in opened.cuts.segments_between(begin, end).tolist()]
    size, unit = opened.cuts.size_between(begin, end), opened.configuration().offset_unit.value
    sentence = f"{count_text(len(names), 'segment')}, {size} {unit}"
    output.show(Shown({"segments": names, "size": size, "unit": unit}, (*names, sentence)))
