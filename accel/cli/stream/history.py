"""`accel stream history`, `segments` and `cuts`: the past and present segments of a stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import click

from accel.cli.options import command, limit_option
from accel.cli.stream.notation import (
    CREATED,
    MOMENT_MS_MAX,
    SEGMENT_COLUMNS,
    Moment,
    cut_text,
    given_ms,
    moment_ms_text,
    numbers_by_segment,
    segment_data,
    segments_text,
)
from accel.cli.stream.options import StreamChoice, moment_option, read_by, stream_options
from accel.history.rules.values import parse_segment, segment_text
from accel.rendering import Column, Fields, Output, Shown, said, shown_rows, word
from accel.units import count_text

if TYPE_CHECKING:
    from accel.history.rules.epochs import EpochRecord, EpochSummary
    from accel.history.store import Stream

EPOCHS_SHOWN = 20


@command(
    "Show epochs, by number or by time.",
    "accel stream history --store s3://bucket --scope shop --stream orders",
    "accel stream history --store s3://bucket --scope shop --stream orders --first 0 --last 9 --output json",
    "accel stream history --store s3://bucket --scope shop --stream orders --from '24h ago'",
    "accel stream history --store s3://bucket --scope shop --stream orders --to 2026-11-21T17:00:00Z",
)
@click.option(
    "--first", type=click.IntRange(min=0), help=f"The first epoch; {EPOCHS_SHOWN - 1} before --last by default."
)
@click.option("--last", type=click.IntRange(min=0), help="The last epoch; the current one by default.")
@moment_option("--from", "The earliest time; the stream's beginning by default.")
@moment_option("--to", "The latest time; now by default.")
@stream_options
def history(
    *, first: int | None, last: int | None, stream: StreamChoice, output: Output, **bounds: Moment | None
) -> None:
    """Show epochs of a stream, one a line, each with its segments.

    With --from or --to: the epochs from one time to another, with the numbers of segments split and merged. The first
    is the epoch at --from, without its splits and merges.
    """
    is_by_number, is_by_time = (first, last) != (None, None), set(bounds.values()) != {None}
    if is_by_number and is_by_time:
        raise click.UsageError("Expected '--first' and '--last', or '--from' and '--to', found both.")
    opened = stream.open()
    if is_by_time:
        output.show_each(map(_shown_summary, _scales(opened, bounds["from"], bounds["to"])))
        return
    high = opened.current_epoch().epoch if last is None else last
    low = max(high - EPOCHS_SHOWN + 1, 0) if first is None else first
    if low > high:
        raise click.UsageError(f"Expected --first at or before --last, found {low} after {high}.")
    output.show_each(map(shown_epoch, opened.epochs.between(low, high)))


def _scales(stream: Stream, start: Moment | None, end: Moment | None) -> Iterable[EpochSummary]:
    low, high = (given_ms(each, stream.parts.store.now_ms) for each in (start, end))
    if high is not None and (low or 0) > high:
        raise click.UsageError("Expected --from at or before --to.")
    return stream.epochs.scales(low or 0, MOMENT_MS_MAX if high is None else high)


@command(
    "Show segments, of now or another time, or what follows one.",
    "accel stream segments --store s3://bucket --scope shop --stream orders",
    "accel stream segments --store s3://bucket --scope shop --stream orders --at '24h ago'",
    "accel stream segments --store s3://bucket --scope shop --stream orders --successors 1@0",
)
@moment_option("--at", "A time; without it, the segments that accept writes now.")
@click.option("--successors", metavar="N@E", callback=read_by(parse_segment), help="Show what follows this segment.")
@click.option("--predecessors", metavar="N@E", callback=read_by(parse_segment), help="Show what this segment follows.")
@stream_options
def segments(
    *,
    at: Moment | None,
    successors: int | None,
    predecessors: int | None,
    stream: StreamChoice,
    output: Output,
) -> None:
    """Show a stream's segments and their keys.

    With --at: the segments of that time that still exist, each with its first offset. If one of them was deleted, the
    command shows the segments at the head of the stream instead.

    With --successors: the successors of a segment, each with all its predecessors; an active segment has none. With
    --predecessors: its predecessors, each with all their successors.
    """
    if sum(each is not None for each in (at, successors, predecessors)) > 1:
        raise click.UsageError("Expected one of '--at', '--successors' and '--predecessors'.")
    opened = stream.open()
    at_ms = given_ms(at, opened.parts.store.now_ms)
    if successors is not None:
        rows = opened.epochs.successors(successors)
        output.show(_neighbours(successors, rows, "successors", "follows", "nothing follows {} yet"))
    elif predecessors is not None:
        rows = opened.epochs.predecessors(predecessors)
        output.show(_neighbours(predecessors, rows, "predecessors", "followed by", "{} follows no other"))
    else:
        output.show(_active(opened) if at_ms is None else _segments_at(opened, at_ms))


def _neighbours(segment: int, found: Mapping[int, Iterable[int]], what: str, relation: str, nothing: str) -> Shown:
    rows = {segment_text(each): list(map(segment_text, others)) for each, others in found.items()}
    lines = [f"{name}  {relation} {', '.join(others)}" for name, others in rows.items()]
    data = {"segment": segment_text(segment), what: rows}
    return Shown(data, tuple(lines or [nothing.format(segment_text(segment))]))


def shown_epoch(record: EpochRecord) -> Shown:
    """An epoch in one line."""
    note = f"repeats {record.reference_epoch}: " if record.is_duplicate else ""
    return _epoch_line(record, record.creation_time_ms, note, reference_epoch=record.reference_epoch)


def _shown_summary(summary: EpochSummary) -> Shown:
    note = f"{count_text(summary.splits, 'split')}, {count_text(summary.merges, 'merge')}: "
    return _epoch_line(summary, summary.time_ms, note)


def _epoch_line(epoch: EpochRecord | EpochSummary, time_ms: int, note: str, **more: int) -> Shown:
    segments = list(map(segment_data, epoch.segments))
    data = {"epoch": epoch.epoch, **more, "time_ms": time_ms, "splits": epoch.splits, "merges": epoch.merges}
    line = f"epoch {epoch.epoch:<6}{moment_ms_text(time_ms)}  {note}{segments_text(segments)}"
    return Shown(data | {"segments": segments}, (line,))


def _active(stream: Stream) -> Shown:
    current = stream.current_epoch()
    data = {"epoch": current.epoch, "segments": list(map(segment_data, current.segments))}
    sentence = f"{count_text(len(current.segments), 'segment')} of epoch {current.epoch}"
    return shown_rows(data, "segments", (*SEGMENT_COLUMNS, CREATED), sentence)


def _segments_at(stream: Stream, time_ms: int) -> Shown:
    offsets = stream.segments_at(time_ms)
    rows = [segment_data(row, offset=offsets[row.id]) for row in stream.cuts.span(offsets).segments]
    sentence = f"{count_text(len(rows), 'segment')} at {moment_ms_text(time_ms)}"
    columns = (*SEGMENT_COLUMNS, CREATED, Column("offset", "offset"))
    return shown_rows({"at_ms": time_ms, "segments": rows}, "segments", columns, sentence)


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
    rows = [{"recording_time_ms": entry.recording_time_ms, "size": entry.recorded_size} for entry in entries]
    columns: tuple[Column[Fields], ...] = (
        word("recorded", lambda row: moment_ms_text(row["recording_time_ms"])),
        Column("size before", "size"),
    )
    data = {"cuts": rows, "left_out": len(recorded) - len(entries)}
    return shown_rows(data, "cuts", columns, count_text(len(recorded), "recorded cut"))
