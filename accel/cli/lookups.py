"""For who builds a broker: `accel get-objects` finds objects, `explain` shows how, and `read` prints record batches.

Payloads are printed only with `--payload`, in a form for a terminal or a program. `accel stream read` reads events of a
stream that has a history.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO, TypeVar

import click
from msgspec import structs
from rich.text import Text

from accel.cli.explanations import explanation_lines
from accel.cli.options import (
    PAYLOAD_FORMS,
    SIZE,
    TIME,
    ReaderChoice,
    command,
    payload_text,
    range_options,
    reader_options,
    slow_log_option,
    telling_slow,
    told_from_lost,
)
from accel.image import version_number
from accel.lookup.accelerator import Reading
from accel.lookup.answer import Answer, Ending, FoundObject
from accel.lookup.explain import answer_text, cost_text
from accel.rendering import Column, Fields, Folded, Output, Shown, printable, table_of
from accel.system import SYSTEM
from accel.units import count_text, size_text
from loaders.format import RecordBatch
from loaders.layout import ObjectLayout
from loaders.store.decorated import OperationCount

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Question:
    """The request, and its limits."""

    stream_id: int
    start: int
    end: int
    limit: int
    deadline_seconds: float | None
    max_fill_rounds: int | None


def question_options(command: Command) -> Command:
    """All options of a lookup -> ``question``."""

    @range_options
    @click.option(
        "--limit", type=click.IntRange(min=1), default=4, show_default=True, help="The maximum number of objects."
    )
    @click.option("--deadline", type=TIME, metavar="TIME", help="Return what is found within this time, such as 2s.")
    @click.option(
        "--max-fill-rounds", type=click.IntRange(min=0), help="Rounds of loading once the first object is found."
    )
    @functools.wraps(command)
    def wrapped(*, stream_id: int, start: int, end: int, limit: int, **others: Any) -> Any:
        bounds = others.pop("deadline"), others.pop("max_fill_rounds")
        return command(question=Question(stream_id, start, end, limit, *bounds), **others)

    return wrapped  # type: ignore[return-value]  # the same command with other arguments


def _shown_lookup(answer: Answer, layout: ObjectLayout, policy: str, total: OperationCount, seconds: float) -> Shown:
    """An answer, the keys of its objects, and its cost."""
    data: dict[str, Any] = {
        "request": structs.asdict(answer.request),
        "image_version": version_number(answer.image_version),
        "policy": policy,
        "objects": [_object_data(item, layout) for item in answer.objects],
        "start_offset": answer.start_offset,
        "end_offset": answer.end_offset,
        "ending": answer.ending.value,
        "resume_offset": answer.resume_offset,
        "stream_end": answer.stream_end,
        "cost": {
            "rounds": answer.rounds,
            "requests": total.requests,
            "bytes": total.received_bytes,
            "seconds": seconds,
        },
    }
    cost = cost_text(total.requests, total.received_bytes, seconds)
    sentences = (answer_text(answer), f"{count_text(answer.rounds, 'round')}, {cost}")
    lines = [Folded(Text(sentence)) for sentence in sentences]
    return Shown(data, (table_of(data["objects"], *_OBJECTS), "", *lines) if answer.objects else lines)


_OBJECTS: tuple[Column[Fields], ...] = (
    Column("object", "object_id"),
    Column("node", lambda item: "" if item["node_id"] is None else item["node_id"]),
    Column("kind", lambda item: item["kind"].replace("_", " "), "left", no_wrap=False),
    Column("offsets", lambda item: f"[{item['start']}, {item['end']})", "left", no_wrap=False),
    Column("key", "key", "left", no_wrap=False),
)


def _object_data(item: FoundObject, layout: ObjectLayout) -> dict[str, Any]:
    return {
        "object_id": item.object_id,
        "kind": item.kind.value,
        "node_id": item.node_id,
        "start": item.start,
        "end": item.end,
        "key": layout.object_key(item.object_id),
        "size_bytes": item.ref.size_bytes,
    }


@command(
    None,
    "accel get-objects --store s3://bucket --image image.json --stream 420000 --start 1000 --end 1600",
    "accel get-objects --store s3://bucket --image image.json --stream 420000 --start 1980 --output json",
    name="get-objects",
)
@question_options
@slow_log_option
@reader_options
def get_objects(question: Question, slow_log: float | None, reader: ReaderChoice, output: Output) -> None:
    """Find the objects that hold a stream's offsets."""
    store = reader.store.open()
    with (
        reader.open(store, slow_seconds=slow_log) as opened,
        told_from_lost(reader.store, opened.layout),
        telling_slow(opened.accelerator, output),
    ):
        started = SYSTEM.timer()
        answer = opened.accelerator.get_objects(**asdict(question))
        seconds = SYSTEM.timer() - started
    output.show(_shown_lookup(answer, opened.layout, reader.policy, store.snapshot().total, seconds))


def _show_saved(context: click.Context, _: click.Parameter, file: BinaryIO | None) -> None:
    """Print a saved log of slow lookups, and end, without a lookup."""
    if file is None:
        return
    try:
        with file:
            saved = _saved_lookups(file.read().decode("utf-8-sig"))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        expected = "expected the `to_dict()` of slow lookups: a JSON array of them, or one a line"
        raise click.BadParameter(f"{expected}, found {error!r}") from error
    for number, lines in enumerate(saved):
        Output().show(Shown({}, [*[""] * bool(number), *explanation_lines(lines)]))
    context.exit()


def _saved_lookups(text: str) -> list[list[str]]:
    """The lines of each saved lookup; other lines of a command's stderr are ignored."""
    try:
        whole = json.loads(text)
    except ValueError:
        whole = [json.loads(line) for line in text.splitlines() if line.strip()]
    if isinstance(whole, dict):
        whole = whole.get("lookups", [whole])  # as GET /v1/slow answers
    saved = [each["lines"] for each in whole if "lines" in each]
    if not saved:
        raise ValueError(text[:80])
    return [[str(line) for line in lines] for lines in saved]


@command(
    "Make a lookup and show its trace.",
    "accel explain --store s3://bucket --image image.json --stream 420000 --start 1000 --end 1600",
    "accel explain --store s3://bucket --image image.json --stream 420000 --start 1980 --policy window",
)
@click.option(
    "--from",
    type=click.File("rb"),
    metavar="FILE",
    is_eager=True,
    expose_value=False,
    callback=_show_saved,
    help="Show the slow lookups saved in this file ('-' for stdin) instead; no other option is used.",
)
@question_options
@reader_options
def explain(question: Question, reader: ReaderChoice, output: Output) -> None:
    """Make a lookup and show its trace: the objects considered, skipped and opened, and the cost."""
    with reader.open(reader.store.open()) as opened:
        told = opened.accelerator.explain(**asdict(question))
    output.show(Shown(told.to_dict(), explanation_lines(told.text().splitlines())))
    if told.error is not None:
        with told_from_lost(reader.store, opened.layout):
            raise told.error


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


@command(
    "Read the records of a stream.",
    "accel read s3://bucket --stream 420000 --start 1000 --end 1600 --image image.json",
)
@click.option("--stream", required=True, help="The stream's id.")
@click.option("--start", type=int, required=True, help="The first offset to read.")
@click.option("--end", type=int, default=-1, help="One past the last offset; -1, the default, means no end.")
@click.option("--max-bytes", type=SIZE, default="64MiB", show_default=True, help="Payload at most.")
@slow_log_option
@click.option("--payload", type=PAYLOAD_FORMS, default="none", show_default=True, help="How to print payloads.")
@reader_options
def read(
    *,
    stream: str,
    start: int,
    end: int,
    max_bytes: int,
    payload: str,
    slow_log: float | None,
    reader: ReaderChoice,
    output: Output,
) -> None:
    """Read the record batches of one stream of the object layer, one a line (JSON lines with --output json).

    Batches are whole: the first may begin before --start, the last may end after --end. The next offset, and the reason
    why the read ended, are printed on stderr. `accel stream read` reads the events of a stream that has a history.
    """
    stream_id = _stream_id(stream)
    if max_bytes < 1:
        raise click.BadParameter(f"expected at least 1 byte, found {max_bytes}", param_hint="'--max-bytes'")
    with (
        reader.open(reader.store.open(), slow_seconds=slow_log) as opened,
        told_from_lost(reader.store, opened.layout),
        telling_slow(opened.accelerator, output),
    ):
        reading = opened.accelerator.read(stream_id, start, end, max_bytes=max_bytes)
        counted = _Printed()
        output.show_each(_shown_batches(reading, counted, payload))
    output.summary(_batch_summary(start, reading, counted))


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
