"""`accel get-objects` and `accel explain`: a lookup, and its trace."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO, TypeVar

import click
from msgspec import structs
from rich.table import Table
from rich.text import Text

from accel.cli.explanations import explanation_lines
from accel.cli.options import (
    TIME,
    ReaderChoice,
    command,
    range_options,
    reader_options,
    slow_log_option,
    telling_slow,
    told_from_lost,
)
from accel.image import version_number
from accel.lookup.answer import Answer, FoundObject, Kind
from accel.lookup.explain import answer_text, cost_text
from accel.rendering import Column, Folded, Output, Shown, table_of
from accel.system import SYSTEM
from accel.units import count_text
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
    data = {
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
    return Shown(data, (_table(answer, layout), "", *lines) if answer.objects else lines)


def _table(answer: Answer, layout: ObjectLayout) -> Table:
    columns: tuple[Column[FoundObject], ...] = (
        Column("object", lambda item: item.object_id),
        Column("node", lambda item: "" if item.node_id is None else item.node_id),
        _folded("kind", lambda item: "stream" if item.kind is Kind.STREAM else "stream set"),
        _folded("offsets", lambda item: f"[{item.start}, {item.end})"),
        _folded("key", lambda item: layout.object_key(item.object_id)),
    )
    return table_of(answer.objects, *columns)


def _folded(title: str, value: Callable[[FoundObject], str]) -> Column[FoundObject]:
    return Column(title, value, "left", no_wrap=False)


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
            saved = _saved_lookups(file.read().decode())
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
    saved = [each["lines"] for each in (whole if isinstance(whole, list) else [whole]) if "lines" in each]
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
