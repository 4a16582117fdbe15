"""`accel stream write`: write the lines of stdin to a stream, to try things with; `accel read --scope` reads them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from accel.cli.options import command
from accel.cli.stream.options import StreamChoice, stream_options
from accel.rendering import Output, said
from accel.units import count_text

if TYPE_CHECKING:
    from accel.streams.writer import StreamWriter


@command(
    "Write lines of stdin to a stream.",
    "seq 100 | accel stream write --store s3://bucket --scope shop --stream orders",
    "accel stream write --store s3://bucket --scope shop --stream orders --key anna < orders.txt",
    "accel stream write --store s3://bucket --scope shop --stream orders --key-separator : < keyed.txt",
)
@click.option("--key", help="The key of all lines; each line's own text by default.")
@click.option("--key-separator", metavar="TEXT", help="What stands between the key of a line and the event.")
@click.option(
    "--node-id", type=click.IntRange(0), help="The node to write as: its session is fenced; drawn by default."
)
@stream_options
def write(
    *, key: str | None, key_separator: str | None, node_id: int | None, stream: StreamChoice, output: Output
) -> None:
    """Write each line of stdin as an event, without its end; all are durable when the command has ended.

    Nobody else may have the stream's segments open. Where that is so, the command says which node has them.
    """
    from accel.streams.connection import connect  # noqa: PLC0415 - other commands start without it

    if key is not None and key_separator is not None:
        raise click.UsageError("Expected '--key' or '--key-separator', found both.")
    if key_separator == "":
        raise click.UsageError("Expected a text with '--key-separator', found nothing.")
    with (
        connect(stream.scope.store.open(), node_id=node_id) as streams,
        streams.writer(stream.scope.scope, stream.name) as writer,
    ):
        count = _written(writer, key, key_separator)
    output.show(said(f"{count_text(count, 'event')} written to {stream}", stream=str(stream), events=count))


def _written(writer: StreamWriter, key: str | None, separator: str | None) -> int:
    count = 0
    for line in _lines():
        own, event = (key or line, line) if separator is None else _divided(line, separator.encode())
        writer.write(event, own)
        count += 1
    return count


def _lines() -> Iterator[bytes]:
    for line in sys.stdin.buffer:
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def _divided(line: bytes, separator: bytes) -> tuple[bytes, bytes]:
    key, found, event = line.partition(separator)
    if not found:
        raise click.UsageError(f"Expected a key and {separator.decode()!r} in each line, found {line[:40]!r}.")
    return key, event
