"""`accel stream epochs`, `history`, `segments` and `successors`: the past and present segments of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from accel.cli.options import command
from accel.cli.stream.notation import (
    CREATED,
    MOMENT_MS_MAX,
    SEGMENT_COLUMNS,
    Moment,
    given_ms,
    moment_ms_text,
    segment_data,
    segments_text,
)
from accel.cli.stream.options import StreamChoice, moment_option, read_by, stream_options
from accel.history.rules.values import parse_segment, segment_text
from accel.rendering import Column, Output, Shown, table_of
from accel.units import count_text

if TYPE_CHECKING:
    from accel.history.rules.epochs import EpochRecord, EpochSummary
    from accel.history.store import Stream

EPOCHS_SHOWN = 20


@command(
    "Show epochs by number.",
    "accel stream epochs --store s3://bucket --scope shop --stream orders",
    "accel stream epochs --store s3://bucket --scope shop --stream orders --from 0 --to 9 --output json",
)
@click.option(
    "--from", "first", type=click.IntRange(min=0), help=f"The first epoch; {EPOCHS_SHOWN - 1} before --to by default."
)
@click.option("--to", "last", type=click.IntRange(min=0), help="The last epoch; the current one by default.")
@stream_options
def epochs(*, first: int | None, last: int | None, stream: StreamChoice, output: Output) -> None:
    """Show the epochs from one number to another, one a line, each with its segments."""
    opened = stream.open()
    high = opened.current_epoch().epoch if last is None else last
    low = max(high - EPOCHS_SHOWN + 1, 0) if first is None else first
    if low > high:
        raise click.UsageError(f"Expected --from at or before --to, found {low} after {high}.")
    output.show_each(map(shown_epoch, opened.epochs.between(low, high)))


@command(
    "Show epochs by time, with splits and merges.",
    "accel stream history --store s3://bucket --scope shop --stream orders --from '24h ago'",
    "accel stream history --store s3://bucket --scope shop --stream orders --to 2026-11-21T17:00:00Z",
)
@moment_option("--from", "The earliest time; the stream's beginning by default.", default="0", show_default=False)
@moment_option("--to", "The latest time; now by default.")
@stream_options
def history(*, stream: StreamChoice, output: Output, **bounds: Moment | None) -> None:
    """Show the epochs from one time to another, one a line, with the numbers of segments split and merged.

    The first is the epoch at --from, without its splits and merges.
    """
    opened = stream.open()
    low, high = (given_ms(bounds[each], opened.parts.store.now_ms) for each in ("from", "to"))
    low = low or 0
    if high is not None and low > high:
        raise click.UsageError("Expected --from at or before --to.")
    scales = opened.epochs.scales(low, MOMENT_MS_MAX if high is None else high)
    output.show_each(map(_shown_summary, scales))


@command(
    "Show the segments of the present, or of another time.",
    "accel stream segments --store s3://bucket --scope shop --stream orders",
    "accel stream segments --store s3://bucket --scope shop --stream orders --at '24h ago'",
)
@moment_option("--at", "A time; without it, the segments that accept writes now.")
@stream_options
def segments(*, at: Moment | None, stream: StreamChoice, output: Output) -> None:
    """Show a stream's segments and their keys.

    With --at: the segments of that time that still exist, each with its first offset. If one of them was deleted, the
    command shows the segments at the head of the stream instead.
    """
    opened = stream.open()
    at_ms = given_ms(at, opened.parts.store.now_ms)
    output.show(_active(opened) if at_ms is None else _segments_at(opened, at_ms))


@command(
    "Show the successors of a segment.",
    "accel stream successors --store s3://bucket --scope shop --stream orders --segment 1@0",
)
@click.option(
    "--segment", metavar="N@E", required=True, callback=read_by(parse_segment), help="The segment, such as 3@1."
)
@click.option("--before", is_flag=True, help="Show its predecessors instead.")
@stream_options
def successors(*, segment: int, before: bool, stream: StreamChoice, output: Output) -> None:
    """Show the successors of a segment, each with all its predecessors; an active segment has none.

    With --before: its predecessors, each with all their successors.
    """
    opened = stream.open()
    neighbours = opened.epochs.predecessors(segment) if before else opened.epochs.successors(segment)
    relation = "followed by" if before else "follows"
    rows = [(segment_text(segment_id), list(map(segment_text, others))) for segment_id, others in neighbours.items()]
    data: dict[str, Any] = {"segment": segment_text(segment), "predecessors" if before else "successors": dict(rows)}
    nothing = f"{segment_text(segment)} follows no other" if before else f"nothing follows {segment_text(segment)} yet"
    lines = [f"{name}  {relation} {', '.join(others)}" for name, others in rows]
    output.show(Shown(data, tuple(lines or [nothing])))


def shown_epoch(record: EpochRecord) -> Shown:
    """An epoch in one line."""
    note = f"repeats {record.reference_epoch}: " if record.is_duplicate else ""
    return _epoch_line(record, record.creation_time_ms, note, reference_epoch=record.reference_epoch)


def _shown_summary(summary: EpochSummary) -> Shown:
    note = f"{count_text(summary.splits, 'split')}, {count_text(summary.merges, 'merge')}: "
    return _epoch_line(summary, summary.time_ms, note)


def _epoch_line(epoch: EpochRecord | EpochSummary, time_ms: int, note: str, **more: int) -> Shown:
    data: dict[str, Any] = {
        "epoch": epoch.epoch,
        **more,
        "time_ms": time_ms,
        "splits": epoch.splits,
        "merges": epoch.merges,
    }
    data["segments"] = [segment_data(row) for row in epoch.segments]
    text = segments_text(epoch.segments, len(epoch.segments))
    return Shown(data, (f"epoch {epoch.epoch:<6}{moment_ms_text(time_ms)}  {note}{text}",))


def _active(stream: Stream) -> Shown:
    current = stream.current_epoch()
    table = table_of(current.segments, *SEGMENT_COLUMNS, CREATED)
    sentence = f"{count_text(len(current.segments), 'segment')} of epoch {current.epoch}"
    data = {"epoch": current.epoch, "segments": [segment_data(segment) for segment in current.segments]}
    return Shown(data, (table, "", sentence))


def _segments_at(stream: Stream, time_ms: int) -> Shown:
    offsets = stream.segments_at(time_ms)
    rows = stream.cuts.span(offsets).segments
    data = {"at_ms": time_ms, "segments": [{**segment_data(row), "offset": offsets[row.id]} for row in rows]}
    table = table_of(rows, *SEGMENT_COLUMNS, CREATED, Column("offset", lambda row: offsets[row.id]))
    return Shown(data, (table, "", f"{count_text(len(rows), 'segment')} at {moment_ms_text(time_ms)}"))
