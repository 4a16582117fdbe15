"""`accel read`: the record batches of a stream of the object layer, one line each.

Payloads are printed only with `--payload`, in a form for a terminal or a program. `accel stream read` reads events of a
stream that has a history; with `--scope` this command does the same, as in earlier releases.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import click

from accel.cli.options import (
    PAYLOAD_FORMS,
    SIZE,
    Command,
    ReaderChoice,
    command,
    payload_text,
    reader_options,
    slow_log_option,
    telling_slow,
    told_from_lost,
)
from accel.cli.stream.events import FIELDS, EventPrinter, StreamRead, stream_read_options
from accel.cli.stream.options import ScopeChoice, StreamChoice, parse_name, read_by
from accel.lookup.accelerator import Reading
from accel.lookup.answer import Ending
from accel.rendering import Output, Shown, printable
from accel.units import size_text
from loaders.format import RecordBatch


@dataclass(slots=True)
class _Printed:
    """The amount printed so far."""

    items: int = 0
    payload_bytes: int = 0

    def add(self, payload: bytes) -> None:
        """Count one more batch or event."""
        self.items += 1
        self.payload_bytes += len(payload)


_ENDINGS = {
    Ending.END: "the end is reached",
    Ending.LIMIT: "--max-bytes are reached",
    Ending.HOLE: "a hole: no listed object continues there",
}


@dataclass(frozen=True, slots=True)
class Offsets:
    """What to read of a stream of the object layer.

    Args:
        start: the first offset; None if not given.
        end: one past the last; -1 for no end.
        max_bytes: the maximum payload to read.
    """

    start: int | None
    end: int
    max_bytes: int

    def read(self, stream_id: int, reader: ReaderChoice, form: str, output: Output, slow_seconds: float | None) -> None:
        """Print the batches; on stderr, the trace of slow lookups."""
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

    @click.option("--start", "first", type=int, help="The first offset to read.")
    @click.option("--end", type=int, default=-1, help="One past the last offset; -1, the default, means no end.")
    @click.option("--max-bytes", type=SIZE, default="64MiB", show_default=True, help="Payload at most.")
    @functools.wraps(command)
    def wrapped(*args: Any, first: int | None, end: int, max_bytes: int, **others: Any) -> Any:
        return command(*args, offsets=Offsets(first, end, max_bytes), **others)

    return wrapped  # type: ignore[return-value]  # the same command with other arguments


@command(
    "Read the records of a stream.",
    "accel read s3://bucket --stream 420000 --start 1000 --end 1600 --image image.json",
)
@click.option("--stream", required=True, callback=read_by(parse_name), help="The stream's id.")
@_offset_options
@click.option("--scope", callback=read_by(parse_name))
@stream_read_options
@slow_log_option
@click.option("--payload", type=PAYLOAD_FORMS, default="none", show_default=True, help="How to print payloads.")
@reader_options
def read(
    *,
    stream: str,
    offsets: Offsets,
    scope: str | None,
    events: StreamRead,
    payload: str,
    slow_log: float | None,
    reader: ReaderChoice,
    output: Output,
) -> None:
    """Read the record batches of one stream of the object layer, one a line (JSON lines with --output json).

    Batches are whole: the first may begin before --start, the last may end after --end. The next offset, and the reason
    why the read ended, are printed on stderr. `accel stream read` reads the events of a stream that has a history.
    """
    if scope is not None:
        if offsets.start is not None:
            raise click.UsageError("Expected '--from' with '--scope', found '--start'.")
        choice = StreamChoice(ScopeChoice(reader.store, scope), stream)
        events.run(choice, reader, EventPrinter(output, payload, FIELDS), slow_log)
        return
    if events != StreamRead():
        raise click.UsageError("Missing option '--scope': other given options need it.")
    offsets.read(_stream_id(stream), reader, payload, output, slow_log)


for _param in read.params:  # the earlier spelling still works, and is not shown
    if isinstance(_param, click.Option) and _param.name in {"scope", *(each.name for each in fields(StreamRead))}:
        _param.hidden = True


def _stream_id(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        expected = "expected the id of a stream of the object layer; 'accel stream read --scope' takes names"
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
    """The result of a read."""
    data = {
        "batches": counted.items,
        "payload_bytes": counted.payload_bytes,
        "start_offset": start,
        "next_offset": reading.next_offset,
        "ending": None if reading.ending is None else reading.ending.value,
        "stream_end": reading.stream_end,
    }
    why = "it was interrupted" if reading.ending is None else _ENDINGS[reading.ending]
    if reading.stream_end is not None:
        why = f"the stream ends at {reading.stream_end}"
    what = f"{counted.items} {'batch' if counted.items == 1 else 'batches'}, {size_text(counted.payload_bytes)}"
    return Shown(data, (f"{what}; next offset {reading.next_offset}: {why}",))
