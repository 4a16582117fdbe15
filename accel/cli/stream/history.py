"""`accel stream history`, `segments`, `cuts` and `retention`: the past of a stream, and what is kept of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from accel.cli.options import EXIT_FAILED, command, end_with, limit_option, option, yes_option
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
from accel.cli.stream.options import (
    ScopeChoice,
    StreamChoice,
    cut_options,
    holder_option,
    moment_option,
    parse_name,
    read_by,
    scope_options,
    stream_options,
)
from accel.history.rules.values import parse_segment, segment_text
from accel.rendering import Column, Fields, Output, Rendered, Shown, said, shown_rows, table_of, word
from accel.units import count_text

if TYPE_CHECKING:
    from accel.history.rules.epochs import EpochRecord, EpochSummary
    from accel.history.store import Stream, StreamRetention

EPOCHS_SHOWN = 20
SHOWN_STREAMS_MAX: Final = 50
"""Limit of streams in the text; JSON has all of them."""


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


def _shown_retention(streams: Sequence[StreamRetention], *, is_dry_run: bool) -> Shown:
    """The result for each stream; unchanged streams are only counted in the text."""
    from accel.history.store.stream_store import totals  # noqa: PLC0415 - only some commands need it

    counts, rows = totals(streams), list(map(_retention_data, streams))
    counted = [f"{count} {name}" for name, count in counts.items() if count]
    sentence = f"{count_text(len(streams), 'stream')}: {', '.join(counted)}" if counted else "no streams"
    sentence = f"dry run: {sentence} (--yes does it)" if is_dry_run else sentence
    data = {"dry_run": is_dry_run, "streams": rows, "totals": counts}
    return Shown(data, _retention_lines(rows, sentence, is_dry_run=is_dry_run))


def _retention_lines(streams: Sequence[Fields], sentence: str, *, is_dry_run: bool) -> Iterator[Rendered]:
    """A table, the failures, and a summary line."""
    told = [stream for stream in streams if stream["recording_time_ms"] is not None or stream["error"]]
    if told:
        would_be = "would be " if is_dry_run else ""
        yield table_of(
            told[:SHOWN_STREAMS_MAX],
            word("stream", "stream"),
            word("outcome", lambda row: ("" if row["error"] else would_be) + row["outcome"]),
            word("cut", lambda row: "" if row["size"] is None else moment_ms_text(row["recording_time_ms"])),
            Column("size before it", lambda row: "" if row["size"] is None else row["size"]),
        )
        yield ""
    if len(told) > SHOWN_STREAMS_MAX:
        yield f"... and {len(told) - SHOWN_STREAMS_MAX} more"
    wrong = [stream for stream in told if stream["error"]]
    yield from (f"{row['outcome']}: {row['stream']}: {row['error']}" for row in wrong[:SHOWN_STREAMS_MAX])
    yield sentence


@command(
    "Record a cut, and truncate by policy; a dry run without --yes.",
    "accel stream retention --store s3://bucket --scope shop",
    "accel stream retention --store s3://bucket --scope shop --stream orders --read-at 2@1=5000 --yes",
)
@yes_option()
@option("--stream", callback=read_by(parse_name), help="The stream; without it, all streams of the scope.")
@moment_option("--time", "Time of the cut; now by default.")
@holder_option
@cut_options("--read-by-all", "--read-at", "read_by_all", "The cut up to which all readers have read", required=False)
@scope_options
@click.pass_context
def retention(
    ctx: click.Context,
    /,
    *,
    yes: bool,
    stream: str | None,
    time: Moment | None,
    is_held: bool,
    read_by_all: dict[int, int],
    scope: ScopeChoice,
    output: Output,
) -> None:
    """Record a cut at the end of one stream, or of all streams in a scope, and truncate each by its policy.

    Without --yes it writes nothing, and shows what would be recorded and truncated, in the same form.
    Streams without a policy, and sealed ones, are skipped; with a whole scope also those in another workflow.
    A stream that fails does not stop the others; the command then exits with 1. So it does if the store does not report
    its time: this machine's clock may be wrong, and nothing is recorded or deleted.

    The sizes of segments come from the process that holds them. With --data-elsewhere, an unsealed segment counts as
    empty, so that streams are truncated by whole segments. Streams whose data is in the bucket's catalog fail then.
    """
    if stream is None and read_by_all:
        raise click.UsageError("Expected --stream with --read-by-all: segments of which stream?")
    if not read_by_all and ctx.get_parameter_source("read_by_all_file") is not ParameterSource.DEFAULT:
        raise click.UsageError("Expected a cut with segments with --read-by-all: nothing is truncated on a guess.")
    store = scope.open(is_held=is_held)
    time_ms = given_ms(time, store.now_ms)
    if stream is None:
        streams = store.run_retention(scope.scope, time_ms, is_dry_run=not yes)
    else:
        from accel.history.store.stream_store import StreamRetention  # noqa: PLC0415 - only some commands need it

        opened = store.stream(scope.scope, stream)
        StreamChoice(scope, stream).refuse_beyond(opened, output, read_by_all)
        workflow = opened.retention
        act = workflow.retain if yes else workflow.plan
        outcome, point = act(time_ms, read_by_all or None)
        streams = [StreamRetention(f"{scope.scope}/{stream}", outcome, point)]
    output.show(_shown_retention(streams, is_dry_run=not yes))
    from accel.history.store.retention_workflow import Retained  # noqa: PLC0415 - likewise

    failed = any(each.outcome in (Retained.FAILED, Retained.NO_CLOCK) for each in streams)
    end_with(EXIT_FAILED if failed else 0)


def _retention_data(stream: StreamRetention) -> dict[str, Any]:
    point = stream.point
    return {
        "stream": stream.stream,
        "outcome": stream.outcome.value,
        "recording_time_ms": None if point is None else point.recording_time_ms,
        "size": None if point is None else point.recorded_size,
        "error": stream.error,
    }
