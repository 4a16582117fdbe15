"""`accel stream write` and `accel stream read`: write lines as events, and print events as lines; for trials.

    seq 100 | accel stream write ...         each line is an event
    accel stream read --payload raw ...      each event is a line: the same lines, in the order of time

A read ends at the stream's present end, after `--limit` events, or at Ctrl-C and SIGTERM; it then prints where the next
read starts. A signal is noted and checked between two events, so the events that count as read are exactly those that
were printed. A second signal ends the command at once.
"""

from __future__ import annotations

import codecs
import functools
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from accel.cli.options import (
    PAYLOAD_FORMS,
    Command,
    ReaderChoice,
    command,
    log_option,
    payload_text,
    slow_log_option,
    telling_slow,
)
from accel.cli.signals import Signals, noted_signals
from accel.cli.stream.notation import Place, cut_text, moment_ms_text, numbers_by_segment, parse_place
from accel.cli.stream.options import (
    StreamChoice,
    parse_name,
    read_by,
    stream_options,
    stream_reader_options,
)
from accel.errors import AccelError, FormatLimit, IllegalState, PositionBeyondEnd, PositionTruncated
from accel.history.rules.values import segment_text
from accel.rendering import Output, Shown, printable, said
from accel.system import SYSTEM
from accel.units import count_text, size_text

if TYPE_CHECKING:
    from uuid import UUID

    from accel.history.store import Stream
    from accel.streams.group_readers import GroupReader
    from accel.streams.reader import StreamReader
    from accel.streams.rules.events import Event
    from accel.streams.segment_source import ObjectSegmentSource
    from accel.streams.writer import StreamWriter

# Lines to events


@command(
    "Write lines of stdin to a stream.",
    "seq 100 | accel stream write --store s3://bucket --scope shop --stream orders",
    "accel stream write --store s3://bucket --scope shop --stream orders --key anna < orders.txt",
    "accel stream write --store s3://bucket --scope shop --stream orders --key-separator : < keyed.txt",
)
@click.option("--key", help="The key of all lines; each line's own text by default.")
@click.option("--key-separator", metavar="TEXT", help="The text between the key and the event in a line.")
@click.option(
    "--node-id",
    type=click.IntRange(0),
    help="The node to write as: an earlier session of it is fenced; random by default.",
)
@click.option(
    "--writer-id",
    type=click.UUID,
    help="Makes a repetition safe: lines are numbered, and of lines that are written again each is stored once.",
)
@stream_options
@log_option
def write(
    *,
    key: str | None,
    key_separator: str | None,
    node_id: int | None,
    writer_id: UUID | None,
    stream: StreamChoice,
    output: Output,
) -> None:
    """Write each line of stdin as an event, without its line end; all are durable when the command has ended.

    No other process may have the stream's segments open; if one has, the error names its node. Ctrl-C and SIGTERM stop
    the reading of lines: the lines read so far are written, and the command prints how many are durable. A line that
    is not accepted ends the command, too; the error names the line, and how many lines before it are durable. The
    whole input can be written again with the same --writer-id, which belongs to this input.
    """
    from accel.streams.connection import connect  # noqa: PLC0415 - other commands start without it

    if key is not None and key_separator is not None:
        raise click.UsageError("Expected '--key' or '--key-separator', found both.")
    if key_separator == "":
        raise click.UsageError("Expected a text with '--key-separator', found nothing.")
    with (
        connect(stream.scope.store.open(), node_id=node_id) as streams,
        streams.writer(stream.scope.scope, stream.name, writer_id=writer_id) as writer,
        noted_signals() as signals,
    ):
        count = _written(writer, key, key_separator, signals)
    output.show(said(f"{count_text(count, 'event')} written to {stream}", stream=str(stream), events=count))
    if signals:
        raise click.exceptions.Exit(128 + signals[0])


def _written(writer: StreamWriter, key: str | None, separator: str | None, signals: Signals) -> int:
    """Write lines, and wait until they are durable; returns how many.

    Raises:
        click.UsageError: a line without a key, or one that cannot be an event; those before it are durable.
        AccelError: an unknown part of the lines that were read is durable; a note says how many were read.
    """
    count = 0
    try:
        for line in _lines(signals):
            try:
                own, event = (key or line, line) if separator is None else _divided(line, separator.encode())
                writer.write(event, own, number=None if writer.writer_id is None else count)
            except (ValueError, FormatLimit) as error:
                writer.flush()
                durable = f"{count_text(count, 'line')} before it {'is' if count == 1 else 'are'} durable"
                raise click.UsageError(f"Line {count + 1}: {error}; {durable}.") from error
            count += 1
        writer.flush()
    except AccelError as error:
        error.add_note(f"of {count_text(count, 'line')} that were read, an unknown part is durable")
        raise
    return count


def _lines(signals: Signals) -> Iterator[bytes]:
    """Lines of stdin without their ends, until a signal arrives; an incomplete last line is then not an event."""
    from accel.streams.rules.events import APPEND_SIZE_BYTES_MAX  # noqa: PLC0415 - other commands start without it

    mark = codecs.BOM_UTF8  # editors and shells of Windows write it before the first line
    while line := signals.interrupted(partial(sys.stdin.buffer.readline, APPEND_SIZE_BYTES_MAX)):
        yield line.removeprefix(mark).removesuffix(b"\n").removesuffix(b"\r")
        mark = b""


def _divided(line: bytes, separator: bytes) -> tuple[bytes, bytes]:
    key, found, event = line.partition(separator)
    if not found:
        raise ValueError(f"expected a key and {separator.decode()!r}, found {line[:40]!r}")
    return key, event


# Events to lines

ORDERS: Final = ("time", "segment")
FIELDS: Final = ("time", "segment", "offset", "size")
RAW: Final = "raw"

LOOK_SECONDS: Final = 0.5
"""Interval at which a waiting read checks whether to end."""

REJOIN_PAUSE_SECONDS: Final = 1.0
"""Pause before the group is called again after a failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRead:
    """What to read of a stream.

    Args:
        start: where to begin; None = the stream's head. For a group: where a new group begins.
        stop: where to end; None = the stream's present end, or no end if ``follow`` is set.
        group: read as a reader of this group; None = no group.
        name: of the reader of a group; None = a random name.
        order: "time" or "segment".
        reorder_wait_seconds: how long events are held back at the tail for a segment that may have older ones; 0 = not
            at all, in history neither; None = the default of readers.
        follow: whether to wait for more events.
        events_max: the maximum number of events; 0 = all.
        skip_truncated: whether to continue at the head if the stream begins after the start.
    """

    start: Place | None = None
    stop: Place | None = None
    group: str | None = None
    name: str | None = None
    order: str = ORDERS[0]
    reorder_wait_seconds: float | None = None
    follow: bool = False
    events_max: int = 0
    skip_truncated: bool = False

    def refuse_contradictions(self) -> None:
        """Refuse options that contradict each other.

        Raises:
            click.UsageError: two of them do.
        """
        if self.stop is not None and self.follow:
            raise click.UsageError("Expected '--to' or '--follow', found both.")
        if self.group is None and self.name is not None:
            raise click.UsageError("Expected '--group' with '--reader'.")
        if self.group is not None and (self.stop is not None or self.order != ORDERS[0]):
            raise click.UsageError("Expected neither '--to' nor '--order segment' with '--group'.")

    def run(
        self, choice: StreamChoice, reader: ReaderChoice, printer: EventPrinter, slow_seconds: float | None
    ) -> None:
        """Print the events; on stderr, where the next read starts, and the trace of slow lookups.

        A read that fails says so, too, unless its position is the reason: no read starts there.
        """
        from accel.streams.segment_source import ObjectSegmentSource  # noqa: PLC0415 - other commands start without it

        stream = choice.open()
        if self.group is not None and self.start is not None and not self.start.needs_data:
            choice.refuse_beyond(stream, printer.output, self.start.cut(stream), is_read_here=True)
        store, has_next = reader.store.open(), True
        with (
            reader.open(store, slow_seconds=slow_seconds) as opened,
            telling_slow(opened.accelerator, printer.output),
            self._opened(stream, ObjectSegmentSource(stream, opened.accelerator, store)) as events,
            noted_signals() as signals,
        ):
            try:
                printer.show(self._events(events, signals), at_once=self.follow)
                _commit(events)
            except PositionBeyondEnd:
                has_next = False
                raise
            except PositionTruncated:
                has_next = printer.events > 0  # other segments were read: a read that skips goes on there
                raise
            finally:  # printed events count as read, also after an error
                if has_next:
                    printer.output.summary(_summary(events, printer, self.group, self._position(stream, events)))
        if signals:
            raise click.exceptions.Exit(128 + signals[0])

    def _opened(self, stream: Stream, source: ObjectSegmentSource) -> StreamReader | GroupReader:
        from accel.streams.group_readers import GroupReader  # noqa: PLC0415 - likewise
        from accel.streams.groups import ReaderGroup  # noqa: PLC0415 - likewise
        from accel.streams.reader import Order, StreamReader  # noqa: PLC0415 - likewise
        from accel.streams.rules.settings import ReaderSettings  # noqa: PLC0415 - likewise

        wait = self.reorder_wait_seconds
        settings = None if wait is None else ReaderSettings(reorder_wait_seconds=wait)
        start = None if self.start is None else self.start.cut(stream, source)
        if self.group is None:
            stop = None if self.stop is None else self.stop.cut(stream, source)
            return StreamReader(
                stream,
                source,
                from_cut=start,
                to_cut=stop,
                follow=self.follow,
                order=Order(self.order),
                settings=settings,
            )
        group = ReaderGroup.open(stream, self.group, start)
        name = self.name or f"cli-{SYSTEM.nonce().hex()[:12]}"
        return GroupReader(stream, source, group, name, follow=self.follow, settings=settings)

    def _position(self, stream: Stream, reader: StreamReader | GroupReader) -> Mapping[int, int]:
        """Where the next read starts; for a group, the position that all its readers reported."""
        from accel.streams.groups import ReaderGroup  # noqa: PLC0415 - likewise

        if self.group is None:
            return reader.position()
        try:
            return ReaderGroup.open(stream, self.group).position()
        except AccelError:  # the error that ended the read may occur here, too
            return reader.position()

    def _events(self, reader: StreamReader | GroupReader, signals: list[int]) -> Iterator[Event]:
        """Events until the end, or a signal."""
        left = self.events_max or -1
        failing_since: float | None = None
        while left and not signals:
            try:
                event = reader.next_event(LOOK_SECONDS)
            except PositionTruncated:
                if not self.skip_truncated:
                    raise
                reader.skip_to_head()
                continue
            except AccelError as error:
                now = SYSTEM.timer()
                failing_since = now if failing_since is None else failing_since
                if not self._may_ask_again(error) or now - failing_since >= reader.settings.retry_seconds:
                    raise
                SYSTEM.sleep(REJOIN_PAUSE_SECONDS)
                continue
            failing_since = None
            if event is not None:
                left -= 1
                yield event
            elif reader.is_finished:
                return

    def _may_ask_again(self, error: AccelError) -> bool:
        """Whether to call a group again: readers retry their own requests, but not their calls to the group."""
        was_taken_for_dead = isinstance(error, IllegalState) and self.name is None
        return self.group is not None and (error.retryable or was_taken_for_dead)


def _commit(reader: StreamReader | GroupReader) -> None:
    from accel.streams.group_readers import GroupReader  # noqa: PLC0415 - likewise

    if isinstance(reader, GroupReader) and not reader.is_finished:
        reader.commit()  # the last event was printed, too


@dataclass(slots=True)
class EventPrinter:
    """How events are printed, and a count of them.

    Args:
        output: prints.
        form: of payloads: one of `PAYLOAD_FORMS`, or "raw".
        names: fields before each payload: some of `FIELDS`.
    """

    output: Output
    form: str
    names: tuple[str, ...]
    events: int = field(default=0, init=False)
    payload_bytes: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.form != RAW:
            return
        if self.output.is_json or self.names:
            raise click.UsageError("Expected '--payload raw' with '--output text' and without '--fields'.")

    def show(self, events: Iterator[Event], *, at_once: bool) -> None:
        """Print events as they arrive.

        Args:
            events: the events.
            at_once: as of `Output.show_each`.
        """
        counted = self._counted(events)
        if self.form == RAW:
            self.output.show_raw((event.payload for event in counted), at_once=at_once)
        else:
            self.output.show_each(map(self._shown, counted), at_once=at_once)

    def _counted(self, events: Iterator[Event]) -> Iterator[Event]:
        for event in events:
            self.events += 1
            self.payload_bytes += len(event.payload)
            yield event

    def _shown(self, event: Event) -> Shown:
        payload = payload_text(event.payload, self.form)
        data = {
            "segment": segment_text(event.segment_id),
            "offset": event.offset,
            "next_offset": event.next_offset,
            "time_ms": event.value,
            "payload_bytes": len(event.payload),
            "payload": payload,
        }
        return Shown(data, self._line(event, payload))

    def _line(self, event: Event, payload: str | None) -> Iterator[str]:
        place = {
            "time": f"{moment_ms_text(event.value) if event.value else '-':<24}",
            "segment": f"{segment_text(event.segment_id):<7}",
            "offset": f"{event.offset:<8}",
            "size": f"{size_text(len(event.payload)):>10}",
        }
        words = [place[name] for name in FIELDS if name in self.names]
        if payload is not None:
            words.append("\t".join(map(printable, payload.split("\t"))))
        yield "  ".join(words)


def _summary(
    reader: StreamReader | GroupReader, printer: EventPrinter, group: str | None, position: Mapping[int, int]
) -> Shown:
    """The result of a read; the position is a cut in the form of `--from`."""
    data: dict[str, Any] = {
        "events": printer.events,
        "payload_bytes": printer.payload_bytes,
        "position": numbers_by_segment(position),
        "lag_seconds": reader.lag(),
    }
    what = f"{count_text(printer.events, 'event')}, {size_text(printer.payload_bytes)}"
    if group is None:
        return Shown(data, (f"{what}; the next read starts at {cut_text(position)}",))
    return Shown({**data, "group": group}, (f"{what}; group {group} continues at {cut_text(position)}",))


def stream_read_options(command: Command) -> Command:
    """`--from`, `--to`, `--group`, `--order` and others -> ``events``: what to read."""

    @click.option(
        "--from",
        "--from-position",
        "start",
        metavar="PLACE",
        callback=read_by(parse_place),
        help="Where to begin; by default the stream's head.",
    )
    @click.option(
        "--to",
        "stop",
        metavar="PLACE",
        callback=read_by(parse_place),
        help="Where to end; by default the stream's present end.",
    )
    @click.option("--group", callback=read_by(parse_name), help="Read as one reader of this group.")
    @click.option(
        "--reader", "name", callback=read_by(parse_name), help="The reader's name in its group; random by default."
    )
    @click.option("--order", type=click.Choice(ORDERS), default="time", show_default=True, help="Across segments.")
    @click.option(
        "--reorder-wait",
        "reorder_wait_seconds",
        type=click.FloatRange(min=0, max=60),
        metavar="SECONDS",
        help="At the tail, the longest wait for a segment that may have older events; 10 by default, 0 for no order.",
    )
    @click.option("--follow", is_flag=True, help="Wait for more events at the end; not with --to.")
    @click.option(
        "--limit",
        "--events",
        "events_max",
        type=click.IntRange(min=0),
        default=0,
        help="The maximum number; 0 for all.",
    )
    @click.option("--skip-truncated", is_flag=True, help="Continue at the head if the stream begins after --from.")
    @functools.wraps(command)
    def wrapped(*args: Any, **others: Any) -> Any:
        wanted = StreamRead(**{each.name: others.pop(each.name) for each in fields(StreamRead)})
        wanted.refuse_contradictions()
        return command(*args, events=wanted, **others)

    return wrapped  # type: ignore[return-value]  # the same command with other arguments


def parse_fields(text: str) -> tuple[str, ...]:
    """The fields before each payload.

    >>> parse_fields("time,offset"), parse_fields("all")
    (('time', 'offset'), ('time', 'segment', 'offset', 'size'))

    Raises:
        ValueError: an unknown field.
    """
    names = FIELDS if text == "all" else tuple(text.split(","))
    if unknown := set(names) - {*FIELDS}:
        raise ValueError(f"expected all, or some of {', '.join(FIELDS)}, found {min(unknown)!r}")
    return names


@command(
    "Read the events of a stream, one a line.",
    "accel stream read s3://bucket --scope shop --stream orders",
    "accel stream read s3://bucket --scope shop --stream orders --from '1h ago' --follow --fields time,segment",
    "accel stream read s3://bucket --scope shop --stream orders --group billing --limit 100 --output json",
)
@stream_read_options
@click.option(
    "--fields",
    "names",
    metavar="NAMES",
    callback=read_by(parse_fields),
    help=f"Fields before each event: all, or some of {', '.join(FIELDS)}.",
)
@slow_log_option
@click.option(
    "--payload",
    type=click.Choice([*PAYLOAD_FORMS.choices, RAW]),
    default="text",
    show_default=True,
    help="How to print payloads; raw prints the bytes that were written.",
)
@stream_reader_options
@log_option
def read(
    *,
    events: StreamRead,
    names: tuple[str, ...] | None,
    payload: str,
    slow_log: float | None,
    stream: StreamChoice,
    reader: ReaderChoice,
    output: Output,
) -> None:
    """Print the events of a stream, one a line (JSON lines with --output json), in the order of time.

    A PLACE is a cut, as a JSON file or as offsets such as '0@0=120 1@0=7'; a time of arrival, such as '1h ago'; head,
    or tail. On stderr the command prints where the next read starts, in the form of --from.

    With --group it reads as one reader of a group. A group that does not exist is created, and begins at --from. The
    printed events count as read when the command ends.
    """
    shown = (FIELDS if payload == "none" else ()) if names is None else names
    events.run(stream, reader, EventPrinter(output, payload, shown), slow_log)
