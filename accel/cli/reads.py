"""`accel read`: the records of a range, one line a batch."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import click

from accel.cli.history_options import parse_name, read_by
from accel.cli.options import SIZE, Command, ReaderChoice, examples, output_options, reader_options
from accel.cli.output import Output, printable
from accel.cli.payloads import PAYLOAD_FORMS, payload_text
from accel.cli.stream_reads import StreamRead, stream_read_options
from accel.lookup.accelerator import Reading
from accel.lookup.answer import Ending
from accel.units import size_text
from loaders.format import RecordBatch

_ENDINGS = {
    Ending.END: "the end is reached",
    Ending.LIMIT: "--max-bytes are reached",
    Ending.HOLE: "a hole: nothing listed goes on there",
}


@dataclass(frozen=True, slots=True)
class BatchLine:
    """One batch, with its payload in the form that was asked for; None for no payload."""

    batch: RecordBatch
    payload: str | None

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        batch = self.batch
        return {
            "stream_id": batch.stream_id,
            "epoch": batch.epoch,
            "base_offset": batch.base_offset,
            "end_offset": batch.end_offset,
            "count": batch.count,
            "is_link": batch.is_link,
            "payload_bytes": len(batch.payload),
            "payload": self.payload,
        }

    def render(self) -> Iterator[str]:
        """As one line."""
        batch = self.batch
        offsets = f"[{batch.base_offset}, {batch.end_offset})"
        line = f"{offsets:<24} epoch {batch.epoch:<4} {size_text(len(batch.payload)):>10}"
        yield "  ".join(
            [line, *(["link"] if batch.is_link else []), *([printable(self.payload)] if self.payload else [])]
        )


@dataclass(slots=True)
class ReadSummary:
    """How a read went."""

    start: int
    reading: Reading
    batches: int = 0
    payload_bytes: int = 0

    def add(self, batch: RecordBatch) -> None:
        """One batch more."""
        self.batches += 1
        self.payload_bytes += len(batch.payload)

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        ending = self.reading.ending
        return {
            "batches": self.batches,
            "payload_bytes": self.payload_bytes,
            "start_offset": self.start,
            "next_offset": self.reading.next_offset,
            "ending": None if ending is None else ending.value,
        }

    def render(self) -> Iterator[str]:
        """As one line."""
        ending = self.reading.ending
        text = "it was broken off" if ending is None else _ENDINGS[ending]
        batches = "batch" if self.batches == 1 else "batches"
        what = f"{self.batches} {batches}, {size_text(self.payload_bytes)}"
        yield f"{what}; next offset {self.reading.next_offset}: {text}"


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

    def read(self, stream_id: int, reader: ReaderChoice, form: str, output: Output) -> None:
        """Print the batches."""
        if self.start is None:
            raise click.UsageError("Missing option '--start'.")
        if self.max_bytes < 1:
            raise click.BadParameter(f"expected at least 1 byte, found {self.max_bytes}", param_hint="'--max-bytes'")
        with reader.open(reader.store.open(output)) as opened:
            reading = opened.accelerator.read(stream_id, self.start, self.end, max_bytes=self.max_bytes)
            summary = ReadSummary(self.start, reading)
            output.show_each(_lines(reading, summary, form))
        output.summary(summary)


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


@click.command(
    short_help="Read the records of a stream.",
    epilog=examples(
        "accel read s3://bucket --stream 420000 --start 1000 --end 1600 --image image.json",
        "accel read s3://bucket --scope shop --stream orders --from cut.json --order time",
        "accel read s3://bucket --scope shop --stream orders --follow --payload text --output json",
    ),
)
@click.argument("url", metavar="[URL]", required=False)
@click.option("--stream", required=True, callback=read_by(parse_name), help="The stream's id; its name with --scope.")
@_offset_options
@stream_read_options
@click.option("--payload", type=PAYLOAD_FORMS, default="none", show_default=True, help="How to print what they hold.")
@reader_options
@output_options
def read(
    *,
    url: str | None,
    stream: str,
    offsets: Offsets,
    events: StreamRead | None,
    payload: str,
    reader: ReaderChoice,
    output: Output,
) -> None:
    """Read the records of a stream, one a line (JSON lines with --output json). URL is another way to say --store.

    With --scope, the events of a stream that a history names: from cut to cut, its segments merged in the order of time
    as nearly as it is known. A CUT is a JSON file, or offsets such as '0@0=120 1@0=7'. Where the next read goes on
    stands on stderr.

    Without it, the record batches of one stream of the object layer. Batches are whole: the first may begin before
    --start, the last may end after --end. What comes next, and why the read ended, stands on stderr.
    """
    if url is not None:
        reader = replace(reader, store=replace(reader.store, url=url))
    if events is None:
        offsets.read(_stream_id(stream), reader, payload, output)
    elif offsets.start is not None:
        raise click.UsageError("Expected '--from' with '--scope', found '--start'.")
    else:
        events.run(stream, reader, payload, output)


def _stream_id(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        expected = "expected the id of a stream, or a name with '--scope'"
        raise click.BadParameter(f"{expected}, found {text!r}", param_hint="'--stream'") from error


def _lines(reading: Reading, summary: ReadSummary, form: str) -> Iterator[BatchLine]:
    for batch in reading:
        summary.add(batch)
        yield BatchLine(batch, payload_text(batch.payload, form))
