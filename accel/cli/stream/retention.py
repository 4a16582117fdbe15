"""`accel stream retention`: record cuts, and truncate streams by their policies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from accel.cli.options import EXIT_FAILED, command, end_with, option, yes_option
from accel.cli.stream.notation import Moment, given_ms, moment_ms_text
from accel.cli.stream.options import (
    ScopeChoice,
    StreamChoice,
    cut_options,
    holder_option,
    moment_option,
    parse_name,
    read_by,
    scope_options,
)
from accel.rendering import Column, Fields, Output, Rendered, Shown, table_of, word
from accel.units import count_text

if TYPE_CHECKING:
    from accel.history.store import StreamRetention

SHOWN_STREAMS_MAX: Final = 50
"""Limit of streams in the text; JSON has all of them."""


def _shown(streams: Sequence[StreamRetention], *, is_dry_run: bool) -> Shown:
    """The result for each stream; unchanged streams are only counted in the text."""
    from accel.history.store.stream_store import totals  # noqa: PLC0415 - only some commands need it

    counts, rows = totals(streams), list(map(_data, streams))
    counted = [f"{count} {name}" for name, count in counts.items() if count]
    sentence = f"{count_text(len(streams), 'stream')}: {', '.join(counted)}" if counted else "no streams"
    sentence = f"dry run: {sentence} (--yes does it)" if is_dry_run else sentence
    data = {"dry_run": is_dry_run, "streams": rows, "totals": counts}
    return Shown(data, _lines(rows, sentence, is_dry_run=is_dry_run))


def _lines(streams: Sequence[Fields], sentence: str, *, is_dry_run: bool) -> Iterator[Rendered]:
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
    output.show(_shown(streams, is_dry_run=not yes))
    from accel.history.store.retention_workflow import Retained  # noqa: PLC0415 - likewise

    failed = any(each.outcome in (Retained.FAILED, Retained.NO_CLOCK) for each in streams)
    end_with(EXIT_FAILED if failed else 0)


def _data(stream: StreamRetention) -> dict[str, Any]:
    point = stream.point
    return {
        "stream": stream.stream,
        "outcome": stream.outcome.value,
        "recording_time_ms": None if point is None else point.recording_time_ms,
        "size": None if point is None else point.recorded_size,
        "error": stream.error,
    }
