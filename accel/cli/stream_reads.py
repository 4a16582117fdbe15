"""`accel read --scope ... --stream ...`: the events of a stream between two cuts, one line an event."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from accel.cli.history_options import ScopeChoice, StreamChoice, parse_name, read_by
from accel.cli.history_texts import cut_text, moment_ms_text, numbers_by_segment, parse_number, read_cut
from accel.cli.options import Command, ReaderChoice
from accel.cli.output import Output, printable
from accel.cli.payloads import payload_text
from accel.errors import PositionTruncated
from accel.history.ids import segment_text
from accel.lookup.explain import count_text
from accel.units import size_text

if TYPE_CHECKING:
    from accel.streams.reader import StreamReader
    from accel.streams.rules.events import Event

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
        follow: whether to wait for more.
        events_max: no more events than that; 0 = all.
        skip_truncated: whether to go on at the head where the stream begins behind the start.
    """

    scope: str | None = None
    start: dict[int, int] | None = None
    stop: dict[int, int] | None = None
    order: str = ORDERS[0]
    follow: bool = False
    events_max: int = 0
    skip_truncated: bool = False

    def run(self, name: str, reader: ReaderChoice, form: str, output: Output) -> None:
        """Print the events of the stream of this name."""
        # Loaded here, so that other commands start without them.
        from accel.streams.reader import Order, StreamReader  # noqa: PLC0415
        from accel.streams.segment_source import ObjectSegmentSource  # noqa: PLC0415

        stream = StreamChoice(ScopeChoice(reader.store, self.scope), name).open(output)
        store = reader.store.open(output)
        with (
            reader.open(store) as opened,
            StreamReader(
                stream,
                ObjectSegmentSource(stream, opened.accelerator, store),
                from_cut=self.start,
                to_cut=self.stop,
                follow=self.follow,
                order=Order(self.order),
            ) as events,
        ):
            summary = EventSummary(events)
            try:
                output.show_each(self._lines(events, summary, form), at_once=self.follow)
            except KeyboardInterrupt as interrupt:  # who follows has no other end
                output.summary(summary)
                raise click.exceptions.Exit(INTERRUPTED) from interrupt
            output.summary(summary)

    def _lines(self, reader: StreamReader, summary: EventSummary, form: str) -> Iterator[EventLine]:
        events = self._events(reader)
        for event in islice(events, self.events_max or None):
            summary.add(event)
            yield EventLine(event, payload_text(event.payload, form))

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


@dataclass(frozen=True, slots=True)
class EventLine:
    """One event, with its payload in the form that was asked for; None for no payload."""

    event: Event
    payload: str | None

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        event = self.event
        return {
            "segment": segment_text(event.segment_id),
            "offset": event.offset,
            "next_offset": event.next_offset,
            "time_ms": event.value,
            "payload_bytes": len(event.payload),
            "payload": self.payload,
        }

    def render(self) -> Iterator[str]:
        """As one line."""
        event = self.event
        when = moment_ms_text(event.value) if event.value else "-"
        place = f"{segment_text(event.segment_id)} {event.offset}"
        line = f"{when:<24}  {place:<16} {size_text(len(event.payload)):>10}"
        yield "  ".join([line, *([printable(self.payload)] if self.payload else [])])


@dataclass(slots=True)
class EventSummary:
    """How a read went."""

    reader: StreamReader
    events: int = 0
    payload_bytes: int = 0

    def add(self, event: Event) -> None:
        """One event more."""
        self.events += 1
        self.payload_bytes += len(event.payload)

    def to_dict(self) -> dict[str, Any]:
        """As plain data; the position is a cut as `--from` takes it."""
        return {
            "events": self.events,
            "payload_bytes": self.payload_bytes,
            "position": numbers_by_segment(self.reader.position()),
            "lag_seconds": self.reader.lag(),
        }

    def render(self) -> Iterator[str]:
        """As one line."""
        what = f"{count_text(self.events, 'event')}, {size_text(self.payload_bytes)}"
        yield f"{what}; goes on at {cut_text(self.reader.position())}"


def stream_read_options(command: Command) -> Command:
    """`--scope`, `--from`, `--to`, `--order` and others -> ``events``: what to read; None without `--scope`."""

    @click.option("--scope", callback=read_by(parse_name), help="Of a stream with a history; --stream is its name.")
    @click.option("--from", "start", metavar="CUT", callback=read_by(parse_cut), help="Where to begin; else its head.")
    @click.option("--to", "stop", metavar="CUT", callback=read_by(parse_cut), help="Where to end; else its end now.")
    @click.option("--order", type=click.Choice(ORDERS), default="time", show_default=True, help="Across segments.")
    @click.option("--follow", is_flag=True, help="Wait for more at the end; not with --to.")
    @click.option("--events", "events_max", type=click.IntRange(min=0), default=0, help="At most so many; 0 for all.")
    @click.option("--skip-truncated", is_flag=True, help="Go on at the head if the stream begins behind --from.")
    @functools.wraps(command)
    def wrapped(*args: Any, **others: Any) -> Any:
        wanted = StreamRead(**{name: others.pop(name) for name in _names()})
        if wanted.scope is None and wanted != StreamRead():
            raise click.UsageError("Missing option '--scope': the others that were given need it.")
        if wanted.stop is not None and wanted.follow:
            raise click.UsageError("Expected '--to' or '--follow', found both.")
        return command(*args, events=None if wanted.scope is None else wanted, **others)

    return wrapped  # type: ignore[return-value]  # the same command with other arguments


def _names() -> list[str]:
    return [each.name for each in fields(StreamRead)]


def parse_cut(text: str) -> dict[int, int]:
    """A cut: a JSON file, or offsets by segment.

    >>> parse_cut("0@0=120 1@0=7")
    {0: 120, 1: 7}

    Raises:
        ValueError: neither.
    """
    if _is_file(text):
        return read_cut(text)
    numbers = [parse_number(each) for each in text.replace(",", " ").split()]
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
