"""The output of commands.

A command passes on one `Shown`: plain data, and lines and tables for people. Results are written to stdout, as text or
as JSON; progress, notes and errors to stderr, so that a pipe receives only data.

    |          | text                          | json                                                     |
    |----------|-------------------------------|----------------------------------------------------------|
    | result   | lines and tables              | one document; of streams of results one a line           |
    | note     | a line; not with --quiet      | the same                                                 |
    | summary  | a line; not with --quiet      | one line of JSON; not with --quiet                       |
    | error    | error: ... and advice: ...    | {"type", "message", "advice", "retryable"}               |

A result that cannot be written, to a full disk or to a reader that has gone, stops no work: the error is kept, and
raised when the command has ended. Of results that are printed as they are computed, no further one is.

Printed names, tags and keys come from a bucket, where other users may have written them. So all text is passed through
`shown_text`: characters that would move the cursor, change the terminal or the direction of writing are escaped, as in
JSON.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

import click
from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from accel.errors import AccelError
from accel.units import size_text
from loaders.errors import redacted

_KEPT = "\n\t"

PIPE_WIDTH = 160
"""Columns of a table without a terminal."""

FOLDED_WIDTH = 8
"""Minimum width of a table's column whose values are wrapped."""

_GAP = "   "
_RULE = "─"


@dataclass(frozen=True, slots=True)
class Folded:
    """A line that continues on further rows if a terminal is too narrow for it.

    It is broken first at gaps of three spaces or more, then at single spaces, then within long words.

    Args:
        line: the line.
        indent: columns of its label, which further rows leave empty.
        is_drawing: each character after the label has its own column, spaces as well.
    """

    line: Text
    indent: int = 0
    is_drawing: bool = False

    def __str__(self) -> str:
        return self.line.plain

    def rows(self, console: Console) -> Iterator[Text]:
        """The rows for a terminal."""
        line = self.line if self.line.plain.isprintable() else Text(shown_text(self.line.plain).expandtabs())
        if line.cell_len <= console.width or not line.plain.strip(_RULE):
            yield line[: console.width]  # further rows of a rule would add nothing
            return
        room = console.width - self.indent
        has_label = self.is_drawing or line.plain[: self.indent].endswith(" ")
        label, body = (line[: self.indent], line[self.indent :]) if has_label else (Text(), line)
        cut = _cut_drawing(body, room) if self.is_drawing else _cut_words(body, room, console)
        for number, row in enumerate(cut):
            yield (Text(" " * self.indent) if number else label).append_text(row)


def _cut_drawing(body: Text, room: int) -> list[Text]:
    return [body[start : start + room] for start in range(0, len(body), room)]


def _cut_words(body: Text, room: int, console: Console) -> list[Text]:
    rows: list[Text] = []
    for part in re.finditer(r"\S.*?(?=\s{3}|\s*$)", body.plain):
        words = body[part.start() : part.end()]
        if rows and rows[-1].cell_len + len(_GAP) + words.cell_len <= room:
            rows[-1].append(_GAP).append_text(words)
        else:
            rows += words.wrap(console, room, overflow="fold")
    for row in rows:
        row.rstrip()
    return rows


Rendered: TypeAlias = str | Folded | Table
"""A part of the text output. A terminal wraps a string wherever its row ends."""


Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Shown:
    """The result of a command.

    Args:
        data: for machines; its keys are part of the interface.
        lines: for people; created only for text output.
    """

    data: Mapping[str, Any]
    lines: Iterable[Rendered]


def said(sentence: str, **data: Any) -> Shown:
    """One sentence, and the same as data."""
    return Shown(data, (sentence,))


def shown_names(what: str, names: Iterable[str], limit: int) -> Shown:
    """The first names, one a line, and whether there are more.

    Args:
        what: the noun for them.
        names: all names; read no further than needed.
        limit: how many to show; 0 for all.
    """
    taken = list(islice(names, limit + 1 if limit else None))
    more = 0 < limit < len(taken)
    shown = taken[:limit] if more else taken
    return Shown({what: shown, "more": more}, map(printable, shown))


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """A column of a table, or a field.

    Args:
        title: its head.
        value: a key of the row, or returns the text for a row.
        justify: numbers are on the right, words on the left.
        no_wrap: whether its values are wrapped only if the other columns cannot become narrower.
    """

    title: str
    value: str | Callable[[Row], object]
    justify: Literal["left", "right"] = "right"
    no_wrap: bool = True

    def of(self, row: Any) -> object:
        """The value of a row."""
        return row[self.value] if isinstance(self.value, str) else self.value(row)


def word(title: str, value: str | Callable[[Row], object]) -> Column[Row]:
    """A column of words, which are wrapped last."""
    return Column(title, value, "left")


def table_of(rows: Iterable[Row], *columns: Column[Row]) -> Table:
    """A table with a line for each row."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in columns:
        table.add_column(column.title, justify=column.justify, no_wrap=column.no_wrap, overflow="fold")
    for row in rows:
        table.add_row(*(str(column.of(row)) for column in columns))
    return table


Fields: TypeAlias = Mapping[str, Any]
"""A result, or a row of one, as data."""


def shown_rows(data: Fields, what: str, columns: Sequence[Column[Fields]], *sentences: str) -> Shown:
    """Rows under a key of the data: as a table, with sentences below."""
    return Shown(data, (table_of(data[what], *columns), "", *sentences))


def field_lines(fields: Fields) -> tuple[str, ...]:
    """A line for each existing field."""
    return tuple(f"{name:<20}{value}" for name, value in fields.items() if value is not None)


def finding_lines(label: str, where: str, what: str) -> tuple[str, str]:
    """Two lines for a finding: its label with the place, and what was found there."""
    return f"{label:<14}{where}", f"{'':<14}{what}"


def left_out(count: int, shown: int, what: str) -> Iterator[str]:
    """A line on what a list does not show."""
    if count > shown:
        yield f"              … and {count - shown} more {what}"


class StdoutClosed(BrokenPipeError):
    """The reader of stdout wants no more: `| head`. No failure of the command."""


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise StdoutClosed(*error.args) from error


class Tell(Protocol):
    """Receives the progress of a long operation."""

    def __call__(self, done: int | None = None, total: int | None = None) -> None:
        """The number done, and the total; without arguments, one more."""


@dataclass(frozen=True, slots=True)
class Output:
    """Prints results and notes in the form that the user chose. One thread at a time.

    Args:
        is_json: JSON instead of text.
        is_quiet: no notes, no progress, no message that only confirms success.
        is_verbose: details such as each request.
        unwritten: errors of results that could not be printed.
    """

    is_json: bool = False
    is_quiet: bool = False
    is_verbose: bool = False
    unwritten: list[OSError] = field(default_factory=list, init=False, repr=False, compare=False)

    @contextmanager
    def raised_at_end(self) -> Iterator[None]:
        """Raise the first error of `show` when the block has ended; another exit code of the block remains."""
        code = 0
        try:
            yield
        except click.exceptions.Exit as ended:
            code = ended.exit_code
            if not self.unwritten:
                raise
        if not self.unwritten:
            return
        if not code:
            raise self.unwritten[0]
        if not isinstance(self.unwritten[0], StdoutClosed):
            show_error(self.unwritten[0], is_json=self.is_json)
        raise click.exceptions.Exit(code)

    def show(self, result: Shown) -> None:
        """Print the result of a command."""
        try:
            with _writing():
                if self.is_json:
                    click.echo(json.dumps(result.data, indent=2))
                    return
                for line in result.lines:
                    _print(line)
        except OSError as error:
            self.unwritten.append(error)

    def show_each(self, results: Iterable[Shown], *, at_once: bool = False) -> None:
        """Print results when they arrive, one a line.

        Args:
            results: the results.
            at_once: whether each is flushed before the next one is read, also into a pipe.
        """
        stdout = sys.stdout
        with _writing():
            for result in results:
                lines = [json.dumps(result.data)] if self.is_json else result.lines
                stdout.writelines(f"{shown_text(str(line))}\n" for line in lines)
                if at_once:
                    stdout.flush()
            stdout.flush()  # here, where the error of a closed pipe is still handled

    def show_raw(self, lines: Iterable[bytes], *, at_once: bool = False) -> None:
        """Print bytes unchanged, each followed by a line feed: for programs and files. Otherwise as `show_each`."""
        stdout = sys.stdout.buffer
        with _writing():
            for line in lines:
                stdout.write(line + b"\n")
                if at_once:
                    stdout.flush()
            stdout.flush()

    def summary(self, result: Shown) -> None:
        """Print a summary at the end, beside the data."""
        if self.is_quiet:
            return
        if self.is_json:
            click.echo(json.dumps(result.data), err=True)
            return
        for line in result.lines:
            _print(line, is_error=True)

    def note(self, text: str) -> None:
        """Print what is being done."""
        if not self.is_quiet:
            click.echo(shown_text(redacted(text)), err=True)

    def detail(self, text: str) -> None:
        """Print a detail that is needed only to find a fault."""
        if self.is_verbose:
            click.echo(_styled(shown_text(redacted(text)), dim=True), err=True)

    @contextmanager
    def progress(
        self, what: str, total: int | None = None, *, is_bytes: bool = False, moved: Callable[[], int] | None = None
    ) -> Iterator[Tell]:
        """A bar on stderr while a long operation runs on a terminal: amount, rate, and the time left.

        A signal that ends the operation is noted with the amount that was done.

        Yields a function that is called with the number done, and the total if it was not known; without arguments it
        adds one. On a pipe nothing is printed, and no value is read.

        Args:
            what: the operation.
            total: the total, if it is known.
            is_bytes: whether the numbers are bytes; else pieces.
            moved: returns the bytes sent over the network so far; any thread may call it.
        """
        is_shown = not self.is_quiet and sys.stderr.isatty()
        console = Console(stderr=True)
        with Progress(
            *_progress_columns(is_bytes, moved), console=console, transient=True, disable=not is_shown
        ) as bar:
            task = bar.add_task(printable(what), total=total)

            def tell(done: int | None = None, total: int | None = None) -> None:
                bar.update(task, advance=1 if done is None else None, completed=done, total=total)

            try:
                yield tell
            except KeyboardInterrupt as stopped:
                shown = bar.tasks[0]
                of_all = "" if shown.total is None else f" of {shown.total:.0f}"
                stopped.add_note(f"{what}: {shown.completed:.0f}{of_all} done")
                raise


class _MovedColumn(ProgressColumn):
    """Bytes sent over the network, and their rate."""

    max_refresh = 0.5

    def __init__(self, moved: Callable[[], int]) -> None:
        super().__init__()
        self._moved = moved

    def render(self, task: Task) -> Text:
        moved, seconds = self._moved(), task.elapsed
        return Text(f"{size_text(moved)}, {size_text(int(moved / seconds))}/s" if seconds else size_text(moved))


class _LeftColumn(TimeRemainingColumn):
    """The time left, if the total is known."""

    def render(self, task: Task) -> Text:
        left = super().render(task)
        return left if task.total is None else left.append(" left")


def _progress_columns(is_bytes: bool, moved: Callable[[], int] | None) -> list[ProgressColumn]:
    amounts = [DownloadColumn(binary_units=True), TransferSpeedColumn()] if is_bytes else [MofNCompleteColumn()]
    network = [] if moved is None else [_MovedColumn(moved)]
    return [TextColumn("{task.description}"), BarColumn(), *amounts, *network, TimeElapsedColumn(), _LeftColumn()]


def show_error(error: BaseException, *, is_json: bool) -> None:
    """Print an error and what to do about it."""
    advice = _advice(error)
    retryable = isinstance(error, AccelError) and error.retryable
    message = redacted("; ".join([_message(error), *getattr(error, "__notes__", ())]))
    if is_json:
        row = {"type": type(error).__name__, "message": message, "advice": advice, "retryable": retryable}
        click.echo(json.dumps(row), err=True)
        return
    click.echo(_styled("error: ", fg="red", bold=True) + shown_text(message), err=True)
    if advice:
        click.echo(_styled("advice: ", bold=True) + advice, err=True)


def _is_plain() -> bool:
    """Whether the terminal gets no styles at all: NO_COLOR (no-color.org) also disables bold and dim text."""
    return bool(os.environ.get("NO_COLOR"))


def _styled(text: str, **styles: Any) -> str:
    return text if _is_plain() else click.style(text, **styles)


def printable(text: str) -> str:
    """Text for one line: no character moves a terminal's cursor, changes the direction of writing or ends the line."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in text
    )


def shown_text(text: str) -> str:
    """Text of several lines, with only `printable` characters and tabs."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in _KEPT else _escaped(letter) for letter in text)


class TextLines(logging.Formatter):
    """Lines of a log for people, without users and passwords of URLs. Threads: any.

    Only the first line of each record begins at the margin: no text from a bucket or a client looks like another
    record.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """The record's own line."""
        return printable(redacted(super().formatMessage(record)))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - likewise
        """The trace of its error, indented."""
        lines = shown_text(redacted(super().formatException(ei))).split("\n")
        return "\n".join(f"  {line}" for line in lines)


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and the error with its trace. Threads: any."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redacted(record.getMessage()),
        }
        if record.exc_info:
            line["error"] = redacted(self.formatException(record.exc_info))
        return json.dumps(line)  # in ASCII: some other characters control terminals


LogForm = Literal["text", "json"]


def log_lines(form: LogForm | None, text: str | None = None) -> logging.Formatter:
    """Configure the log on stderr.

    Args:
        form: `TextLines` or `JsonLines`; None = text on a terminal, else JSON, as collectors of logs expect.
        text: the format of the lines of text; None = only the message.
    """
    if form is None:
        form = "text" if sys.stderr.isatty() else "json"
    return JsonLines() if form == "json" else TextLines(text)


def log_as(lines: logging.Formatter) -> None:
    """Format the lines that Python's logging writes to stderr if the application has not configured a log."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(lines)


def _escaped(letter: str) -> str:
    # As in JSON, so that a record shown as JSON does not change; beyond 16 bits JSON needs two.
    return json.dumps(letter)[1:-1] if not letter.isascii() or letter < " " else f"\\u{ord(letter):04x}"


def _advice(error: BaseException) -> str:
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return f"see {error.ctx.command_path} --help"
    return error.advice if isinstance(error, AccelError) else ""


def _message(error: BaseException) -> str:
    return error.format_message() if isinstance(error, click.ClickException) else str(error)


def _print(part: Rendered, *, is_error: bool = False) -> None:
    if isinstance(part, str):
        click.echo(shown_text(part), err=is_error)
        return
    plain = {"color_system": None} if _is_plain() else {}
    console = _Console(markup=False, highlight=False, stderr=is_error, **plain)  # type: ignore[arg-type]
    if isinstance(part, Folded):
        for row in part.rows(console) if console.is_terminal else [part.line]:
            console.print(_Shown(row), soft_wrap=True)
        return
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    _break_fixed_columns(part, console.width)
    console.print(_Shown(part))


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise  # noqa: PLE0704 - called where the error is handled; rich would end the process


def _break_fixed_columns(table: Table, width: int) -> None:
    """Let columns with `no_wrap` be wrapped where they would otherwise be cut."""
    fixed = [column for column in table.columns if column.no_wrap]
    widest = [max(cell_len(str(cell)) for cell in (column.header, *column.cells)) for column in fixed]
    broken = FOLDED_WIDTH * (len(table.columns) - len(fixed))
    if sum(widest) + broken + len(_GAP) * len(table.columns) > width:
        for column in fixed:
            column.no_wrap = False


class _Shown:
    """Text or a table whose words are passed through `shown_text` when rendered; its own styles are kept."""

    def __init__(self, inner: Text | Table) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self._inner, options):
            yield segment if segment.control else Segment(shown_text(segment.text), segment.style)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self._inner)
