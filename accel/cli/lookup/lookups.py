"""`accel get-objects` and `accel explain`: the lookup, and its story."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import click
from rich import box
from rich.table import Table
from rich.text import Text

from accel.cli.options import TIME, ReaderChoice, examples, output_options, range_options, reader_options
from accel.image import version_number
from accel.lookup.answer import Answer, FoundObject, Kind
from accel.lookup.explain import Explanation, answer_text, cost_text, count_text
from accel.rendering import Output, Rendered
from accel.system import SYSTEM
from loaders.layout import ObjectLayout

Command = TypeVar("Command", bound=Callable[..., Any])

_STYLES = {
    r"^(answer|cost) .*": "bold",
    r"^took .*": "green",
    r"^(warning|hole|again) .*": "yellow",
    r"^(─+|map .*)$": "dim",
    r"#": "bold green",
}


@dataclass(frozen=True, slots=True)
class Lookup:
    """An answer, where its objects lie, and what it cost."""

    answer: Answer
    layout: ObjectLayout
    policy: str
    requests: int
    bytes_read: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        answer = self.answer
        return {
            "request": asdict(answer.request),
            "image_version": version_number(answer.image_version),
            "policy": self.policy,
            "objects": [self._row(each) for each in answer.objects],
            "start_offset": answer.start_offset,
            "end_offset": answer.end_offset,
            "ending": answer.ending.value,
            "resume_offset": answer.resume_offset,
            "cost": {
                "rounds": answer.rounds,
                "requests": self.requests,
                "bytes": self.bytes_read,
                "seconds": self.seconds,
            },
        }

    def render(self) -> Iterator[Rendered]:
        """As a table and two sentences."""
        if self.answer.objects:
            yield self._table()
            yield ""
        yield answer_text(self.answer)
        rounds = count_text(self.answer.rounds, "round")
        yield f"{rounds}, {cost_text(self.requests, self.bytes_read, self.seconds)}"

    def _table(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for name in ("object", "node"):
            table.add_column(name, justify="right", no_wrap=True)
        for name in ("kind", "offsets", "key"):
            table.add_column(name, overflow="fold")
        for each in self.answer.objects:
            node = "" if each.node_id is None else str(each.node_id)
            kind = "stream" if each.kind is Kind.STREAM else "stream set"
            key = self.layout.object_key(each.object_id)
            table.add_row(str(each.object_id), node, kind, f"[{each.start}, {each.end})", key)
        return table

    def _row(self, each: FoundObject) -> dict[str, Any]:
        return {
            "object_id": each.object_id,
            "kind": each.kind.value,
            "node_id": each.node_id,
            "start": each.start,
            "end": each.end,
            "key": self.layout.object_key(each.object_id),
            "size_bytes": each.ref.size_bytes,
        }


@dataclass(frozen=True, slots=True)
class ToldLookup:
    """An explanation, with some colour where a terminal has it."""

    explanation: Explanation

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return self.explanation.to_dict()

    def render(self) -> Iterator[Rendered]:
        """As the text of the explanation."""
        for line in self.explanation.text().splitlines():
            text = Text(line)
            for pattern, style in _STYLES.items():
                text.highlight_regex(pattern, style)
            yield text


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and within which bounds."""

    stream_id: int
    start: int
    end: int
    limit: int
    deadline_seconds: float | None
    max_fill_rounds: int | None


def question_options(command: Command) -> Command:
    """All that a lookup can be asked -> ``question``."""

    @range_options
    @click.option("--limit", type=int, default=4, show_default=True, help="At most so many objects.")
    @click.option("--deadline", type=TIME, metavar="TIME", help="Give what is found by then, such as 2s.")
    @click.option(
        "--max-fill-rounds", type=click.IntRange(min=0), help="Rounds of loading once the first object is found."
    )
    @functools.wraps(command)
    def wrapped(*, stream_id: int, start: int, end: int, limit: int, **others: Any) -> Any:
        bounds = others.pop("deadline"), others.pop("max_fill_rounds")
        return command(question=Question(stream_id, start, end, limit, *bounds), **others)

    return wrapped  # type: ignore[return-value]  # the same command with other arguments


@click.command(
    "get-objects",
    epilog=examples(
        "accel get-objects --store s3://bucket --image image.json --stream 420000 --start 1000 --end 1600",
        "accel get-objects --store s3://bucket --image image.json --stream 420000 --start 1980 --output json",
    ),
)
@question_options
@reader_options
@output_options
def get_objects(question: Question, reader: ReaderChoice, output: Output) -> None:
    """Find the objects that hold a stream's offsets."""
    store = reader.store.open(output)
    with reader.open(store) as opened:
        started = SYSTEM.timer()
        answer = opened.accelerator.get_objects(**asdict(question))
        seconds = SYSTEM.timer() - started
    total = store.snapshot().total
    output.show(Lookup(answer, opened.layout, reader.policy, total.requests, total.received_bytes, seconds))


@click.command(
    short_help="Make a lookup and tell its story.",
    epilog=examples(
        "accel explain --store s3://bucket --image image.json --stream 420000 --start 1000 --end 1600",
        "accel explain --store s3://bucket --image image.json --stream 420000 --start 1980 --policy window",
    ),
)
@question_options
@reader_options
@output_options
def explain(question: Question, reader: ReaderChoice, output: Output) -> None:
    """Make a lookup and tell its story: what was considered, skipped, opened, and what it cost."""
    with reader.open(reader.store.open(output)) as opened:
        told = opened.accelerator.explain(**asdict(question))
    output.show(ToldLookup(told))
    if told.error is not None:
        raise told.error
