"""`accel read`: the records of a range, one line a batch."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click

from accel.accelerator import Reading
from accel.answer import Ending
from accel.cli.options import SIZE, ReaderChoice, examples, output_options, range_options, reader_options
from accel.cli.output import Output
from accel.units import size_text
from loaders.format import RecordBatch

_FORMS = click.Choice(["none", "text", "hex", "base64"])

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
            [line, *(["link"] if batch.is_link else []), *([_printable(self.payload)] if self.payload else [])]
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


@click.command(
    short_help="Read the record batches of a stream's offsets.",
    epilog=examples(
        "accel read --store s3://bucket --image image.json --stream 420000 --start 1000 --end 1600",
        "accel read --store s3://bucket --image image.json --stream 420000 --start 0 --payload base64 --output json",
    ),
)
@range_options
@click.option("--max-bytes", type=SIZE, default="64MiB", show_default=True, help="Payload to read at most.")
@click.option("--payload", type=_FORMS, default="none", show_default=True, help="How to print what the records hold.")
@reader_options
@output_options
def read(
    *, stream_id: int, start: int, end: int, max_bytes: int, payload: str, reader: ReaderChoice, output: Output
) -> None:
    """Read the record batches of a stream's offsets, one a line (JSON lines with --output json).

    Batches are whole: the first may begin before --start, the last may end after --end. What comes next, and why the
    read ended, stands on stderr.
    """
    if max_bytes < 1:
        raise click.BadParameter(f"expected at least 1 byte, found {max_bytes}", param_hint="'--max-bytes'")
    with reader.open(reader.store.open(output)) as opened:
        reading = opened.accelerator.read(stream_id, start, end, max_bytes=max_bytes)
        summary = ReadSummary(start, reading)
        output.show_each(_lines(reading, summary, payload))
    output.summary(summary)


def _lines(reading: Reading, summary: ReadSummary, form: str) -> Iterator[BatchLine]:
    for batch in reading:
        summary.add(batch)
        yield BatchLine(batch, _payload_text(batch.payload, form))


def _payload_text(payload: bytes, form: str) -> str | None:
    if form == "text":
        return payload.decode("utf-8", "backslashreplace")
    if form == "hex":
        return payload.hex()
    return base64.b64encode(payload).decode("ascii") if form == "base64" else None


def _printable(text: str) -> str:
    # No payload may move a terminal's cursor, or break a line in two.
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text)
