"""`accel read`: what a stream holds, one line each.

    --stream ID --start N              record batches of a stream of the object layer, by offsets
    --scope NAME --stream NAME         events of a stream that has a history, from cut to cut

Payloads are printed only if a form is asked for that a terminal or a program can take.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from accel.cli.options import (
    SIZE,
    Command,
    ReaderChoice,
    command,
    reader_options,
    slow_log_option,
    telling_slow,
    told_from_lost,
)
from accel.cli.stream.notation import cut_text, moment_ms_text, numbers_by_segment, parse_number, read_cut
from accel.cli.stream.options import ScopeChoice, StreamChoice, parse_name, read_by
from accel.errors import PositionTruncated
from accel.history.rules.values import segment_text
from accel.lookup.accelerator import Reading
from accel.lookup.answer import Ending
from accel.rendering import Output, Shown, printable
from accel.units import count_text, size_text
from loaders.format import RecordBatch

if TYPE_CHECKING:
    from accel.streams.reader import StreamReader
    from accel.streams.rules.events import Event


PAYLOAD_FORMS = click.Choice(["none", "text", "hex", "base64"])


def payload_text(payload: bytes, form: str) -> str | None:
    """A payload in one of the forms; None for no payload."""
    if form == "text":
        return payload.decode("utf-8", "backslashreplace")
    if form == "hex":
        return payload.hex()
    return base64.b64encode(payload).decode("ascii") if form == "base64" else None


ORDERS = ("time", "segment")
INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it."""


@dataclass(frozen=True, slots=True)
class StreamRead:
    """What is to be read of a stream.

    Args:
        scope: its scope; None = no stream with a history is meant.
        start: the cut to begin at; None = the stream's head.
        stop: the cut to end at; None = where the stream ends now, or nowhere if it follows.
        order: "time" or "segment".
        reorder_wait_seconds: how long events are held back for one request of a segment that may have older ones; None
            = as readers do by default.
        follow: whether to wait for more.
        events_max: no more events than that; 0 = all.
        skip_truncated: whether to go on at the head where the stream begins behind the start.
    """

    scope: str | None = None
    start: dict[int, int] | None = None
    stop: dict[int, int] | None = None
    order: str = ORDERS[0]
    reorder_wait_seconds: float | None = None
    follow: bool = False
    events_max: int = 0
    skip_truncated: bool = False

    def run(self, name: str, reader: ReaderChoice, form: str, output: Output, slow_seconds: float | None) -> None:
        """Print the events of the stream of this name; on stderr, how lookups went that took so long."""
        # Loaded here, so that other commands start without them.
        from accel.streams.reader import Order, StreamReader  # noqa: PLC0415
        from accel.streams.rules.reader_core import ReaderSettings  # noqa: PLC0415
        from accel.streams.segment_source import ObjectSegmentSource  # noqa: PLC0415

        wait = self.reorder_wait_seconds
        settings = ReaderSettings() if wait is None else ReaderSettings(reorder_wait_seconds=wait)
        stream = StreamChoice(ScopeChoice(reader.store, self.scope), name).open()
        store = reader.store.open()
        with (
            reader.open(store, slow_seconds=slow_seconds) as opened,
            telling_slow(opened.accelerator, output),
            StreamReader(
                stream,
                ObjectSegmentSource(stream, opened.accelerator, store),
                from_cut=self.start,
                to_cut=self.stop,
                follow=self.follow,
                order=Order(self.order),
                settings=settings,
            ) as events,
        ):
            counted = _Printed()
            try:
                output.show_each(self._shown(events, counted, form), at_once=self.follow)
            except KeyboardInterrupt as interrupt:  # who follows has no other end
                raise click.exceptions.Exit(INTERRUPTED) from interrupt
            finally:  # whatever ended it: what was printed is read
                output.summary(_event_summary(events, counted))

    def _shown(self, reader: StreamReader, counted: _Printed, form: str) -> Iterator[Shown]:
        for event in islice(self._events(reader), self.events_max or None):
            counted.add(event.payload)
            yield _shown_event(event, form)

    def _events(self, reader: StreamReader) -> Iterator[Event]:
        while True:
            try:
                yield from reader
            except PositionTruncated:
                if not self.skip_truncated:
                    raise
                reader.skip_to_head()
            else:
                return


@dataclass(slots=True)
class _Printed:
    """How much was printed so far."""

    items: int = 0
    payload_bytes: int = 0

    def add(self, payload: bytes) -> None:
        """One batch or event more."""
        self.items += 1
        self.payload_bytes += len(payload)


def _shown_event(event: Event, form: str) -> Shown:
    payload = payload_text(event.payload, form)
    data = {
        "segment": segment_text(event.segment_id),
        "offset": event.offset,
        "next_offset": event.next_offset,
        "time_ms": event.value,
        "payload_bytes": len(event.payload),
        "payload": payload,
    }
    return Shown(data, _event_line(event, payload))


def _event_line(event: Event, payload: str | None) -> Iterator[str]:
    when = moment_ms_text(event.value) if event.value else "-"
    where = f"{segment_text(event.segment_id)} {event.offset}"
    line = f"{when:<24}  {where:<16} {size_text(len(event.payload)):>10}"
    yield f"{line}  {printable(payload)}" if payload else line


def _event_summary(reader: StreamReader, counted: _Printed) -> Shown:
    """How a read went; the position is a cut as `--from` takes it."""
    position = reader.position()
    data = {
        "events": counted.items,
        "payload_bytes": counted.payload_bytes,
        "position": numbers_by_segment(position),
        "lag_seconds": reader.lag(),
    }
    what = f"{count_text(counted.items, 'event')}, {size_text(counted.payload_bytes)}"
    return Shown(data, (f"{what}; goes on at {cut_text(position)}",))


def stream_read_options(command: Command) -> Command:
    """`--scope`, `--from`, `--to`, `--order` and others -> ``events``: what to read; None without `--scope`."""

    @click.option("--scope", callback=read_by(parse_name), help="Of a stream with a history; --stream is its name.")
    @click.option("--from", "start", metavar="CUT", callback=read_by(parse_cut), help="Where to begin; else its head.")
    @click.option("--to", "stop", metavar="CUT", callback=read_by(parse_cut), help="Where to end; else its end now.")
    @click.option("--order", type=click.Choice(ORDERS), default="time", show_default=True, help="Across segments.")
    @click.option(
        "--reorder-wait",
        "reorder_wait_seconds",
        type=click.FloatRange(min=0, max=60),
        metavar="SECONDS",
        help="How long to hold events back for one request of a segment that may have older ones; 10 by default.",
    )
    @click.option("--follow", is_flag=True, help="Wait for more at the end; not with --to.")
    @click.option(
        "--events", "events_max", type=click.IntRange(min=0), default=0, help="The maximum number; 0 for all."
    )
    @click.option("--skip-truncated", is_flag=True, help="Go on at the head if the stream begins behind --from.")
    @functools.wraps(command)
    def wrapped(*args: Any, **others: Any) -> Any:
        wanted = StreamRead(**{field.name: others.pop(field.name) for field in fields(StreamRead)})
        if wanted.scope is None and wanted != StreamRead():
            raise click.UsageError("Missing option '--scope': the others that were given need it.")
        if wanted.stop is not None and wanted.follow:
            raise click.UsageError("Expected '--to' or '--follow', found both.")
        return command(*args, events=None if wanted.scope is None else wanted, **others)

    return wrapped  # type: ignore[return-value]  # the same command with other arguments


def parse_cut(text: str) -> dict[int, int]:
    """A cut: a JSON file, or offsets by segment.

    >>> parse_cut("0@0=120 1@0=7")
    {0: 120, 1: 7}

    Raises:
        ValueError: neither.
    """
    if _is_file(text):
        return read_cut(text)
    numbers = [parse_number(part) for part in text.replace(",", " ").split()]
    cut = dict(numbers)
    if not numbers or len(cut) < len(numbers):
        raise ValueError(
            f"expected a JSON file, or offsets of each segment once, such as '0@0=5 1@0=7', found {text!r}"
        )
    return cut


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except OSError:  # longer than a name can be
        return False


_ENDINGS = {
    Ending.END: "the end is reached",
    Ending.LIMIT: "--max-bytes are reached",
    Ending.HOLE: "a hole: nothing listed goes on there",
}


@dataclass(frozen=True, slots=True)
class Offsets:
    """What is to be read of a stream of the object layer.

    Args:
        start: the first offset; None where none was given.
        end: one past the last; -1 for all there is.
        max_bytes: payload to read at most.
    """

    start: int | None
    end: int
    max_bytes: int

    def read(self, stream_id: int, reader: ReaderChoice, form: str, output: Output, slow_seconds: float | None) -> None:
        """Print the batches; on stderr, how lookups went that took so long."""
        if self.start is None:
            raise click.UsageError("Missing option '--start'.")
        if self.max_bytes < 1:
            raise click.BadParameter(f"expected at least 1 byte, found {self.max_bytes}", param_hint="'--max-bytes'")
        with (
            reader.open(reader.store.open(), slow_seconds=slow_seconds) as opened,
            told_from_lost(reader.store, opened.layout),
            telling_slow(opened.accelerator, output),
        ):
            reading = opened.accelerator.read(stream_id, self.start, self.end, max_bytes=self.max_bytes)
            counted = _Printed()
            output.show_each(_shown_batches(reading, counted, form))
        output.summary(_batch_summary(self.start, reading, counted))


def _offset_options(command: Command) -> Command:
    """`--start`, `--end`, `--max-bytes` -> ``offsets``."""

    @click.option("--start", "first", type=int, help="The first offset wanted; not with --scope.")
    @click.option("--end", type=int, default=-1, help="One past the last; -1, the default, for all there is.")
    @click.option(
        "--max-bytes", type=SIZE, default="64MiB", show_default=True, help="Payload at most; not with --scope."
    )
    @functools.wraps(command)
    def wrapped(*args: Any, first: int | None, end: int, max_bytes: int, **others: Any) -> Any:
        return command(*args, offsets=Offsets(first, end, max_bytes), **others)

    return wrapped  # type: ignore[return-value]  # the same command with other arguments


@command(
    "Read the records of a stream.",
    "accel read s3://bucket --stream 420000 --start 1000 --end 1600 --image image.json",
    "accel read s3://bucket --scope shop --stream orders --from cut.json --order time",
    "accel read s3://bucket --scope shop --stream orders --follow --payload text --output json",
)
@click.option("--stream", required=True, callback=read_by(parse_name), help="The stream's id; its name with --scope.")
@_offset_options
@stream_read_options
@slow_log_option
@click.option("--payload", type=PAYLOAD_FORMS, default="none", show_default=True, help="How to print what they hold.")
@reader_options
def read(
    *,
    stream: str,
    offsets: Offsets,
    events: StreamRead | None,
    payload: str,
    slow_log: float | None,
    reader: ReaderChoice,
    output: Output,
) -> None:
    """Read the records of a stream, one a line (JSON lines with --output json).

    With --scope, the events of a stream that a history names: from cut to cut, its segments merged in the order of time
    as nearly as it is known. A CUT is a JSON file, or offsets such as '0@0=120 1@0=7'. Where the next read goes on
    stands on stderr.

    Without it, the record batches of one stream of the object layer. Batches are whole: the first may begin before
    --start, the last may end after --end. What comes next, and why the read ended, stands on stderr.
    """
    if events is None:
        offsets.read(_stream_id(stream), reader, payload, output, slow_log)
    elif offsets.start is not None:
        raise click.UsageError("Expected '--from' with '--scope', found '--start'.")
    else:
        events.run(stream, reader, payload, output, slow_log)


def _stream_id(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        expected = "expected the id of a stream, or a name with '--scope'"
        raise click.BadParameter(f"{expected}, found {text!r}", param_hint="'--stream'") from error


def _shown_batches(reading: Reading, counted: _Printed, form: str) -> Iterator[Shown]:
    for batch in reading:
        counted.add(batch.payload)
        payload = payload_text(batch.payload, form)
        data = {
            "stream_id": batch.stream_id,
            "epoch": batch.epoch,
            "base_offset": batch.base_offset,
            "end_offset": batch.end_offset,
            "count": batch.count,
            "is_link": batch.is_link,
            "payload_bytes": len(batch.payload),
            "payload": payload,
        }
        yield Shown(data, _batch_line(batch, payload))


def _batch_line(batch: RecordBatch, payload: str | None) -> Iterator[str]:
    offsets = f"[{batch.base_offset}, {batch.end_offset})"
    line = f"{offsets:<24} epoch {batch.epoch:<4} {size_text(len(batch.payload)):>10}"
    line = f"{line}  link" if batch.is_link else line
    yield f"{line}  {printable(payload)}" if payload else line


def _batch_summary(start: int, reading: Reading, counted: _Printed) -> Shown:
    """How a read went."""
    data = {
        "batches": counted.items,
        "payload_bytes": counted.payload_bytes,
        "start_offset": start,
        "next_offset": reading.next_offset,
        "ending": None if reading.ending is None else reading.ending.value,
    }
    why = "it was broken off" if reading.ending is None else _ENDINGS[reading.ending]
    what = f"{counted.items} {'batch' if counted.items == 1 else 'batches'}, {size_text(counted.payload_bytes)}"
    return Shown(data, (f"{what}; next offset {reading.next_offset}: {why}",))
