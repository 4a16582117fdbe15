"""What commands print, and where.

A command hands over one result, which knows its plain data and how a person wants to see it. Results go to stdout, as
text or as JSON; progress, notes and errors go to stderr, so that a pipe gets nothing but data.

    |          | text                          | json                                                     |
    |----------|-------------------------------|----------------------------------------------------------|
    | result   | lines and tables              | one document; of streams of results one a line           |
    | note     | a line; not with --quiet      | the same                                                 |
    | summary  | a line; not with --quiet      | one line of JSON; not with --quiet                       |
    | error    | error: ... and advice: ...    | {"type", "message", "advice", "retryable"}               |
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from accel.errors import AccelError

PIPE_WIDTH = 160
"""Columns of a table that no terminal limits."""

Rendered: TypeAlias = str | Text | Table
"""What a person can be shown."""


class Result(Protocol):
    """What a command found."""

    def to_dict(self) -> dict[str, Any]:
        """As plain data; its keys are part of the interface."""
        ...

    def render(self) -> Iterable[Rendered]:
        """As lines and tables."""
        ...


@dataclass(frozen=True, slots=True)
class Output:
    """Prints results and notes the way the user wants them. One thread at a time.

    Args:
        is_json: JSON instead of text.
        is_quiet: no notes, no progress, nothing that only says that all is well.
        is_verbose: details such as each request.
    """

    is_json: bool = False
    is_quiet: bool = False
    is_verbose: bool = False

    def show(self, result: Result) -> None:
        """Print the result of a command."""
        if self.is_json:
            click.echo(json.dumps(result.to_dict(), indent=2))
            return
        for each in result.render():
            _print(each)

    def show_each(self, results: Iterable[Result], *, at_once: bool = False) -> None:
        """Print results as they come, one a line.

        Args:
            results: what is printed.
            at_once: whether each is to reach who reads it before the next one comes, through a pipe as well.
        """
        stdout = sys.stdout
        for result in results:
            lines = [json.dumps(result.to_dict())] if self.is_json else result.render()
            stdout.writelines(f"{line}\n" for line in lines)
            if at_once:
                stdout.flush()
        stdout.flush()  # here, where a closed pipe can still be answered for

    def summary(self, result: Result) -> None:
        """Say in the end how it went, beside the data."""
        if self.is_quiet:
            return
        lines = [json.dumps(result.to_dict())] if self.is_json else result.render()
        for line in lines:
            click.echo(str(line), err=True)

    def note(self, text: str) -> None:
        """Tell what is going on."""
        if not self.is_quiet:
            click.echo(text, err=True)

    def detail(self, text: str) -> None:
        """Tell what only those who look for a fault want to know."""
        if self.is_verbose:
            click.secho(text, err=True, dim=True)

    @contextmanager
    def progress(self, what: str, total: int) -> Iterator[Callable[[], None]]:
        """A bar on stderr while something long runs, if a person watches; gives a function that moves it on by one."""
        if self.is_quiet or not sys.stderr.isatty():
            yield lambda: None
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=total)
            yield lambda: bar.advance(task)


def show_error(error: BaseException, *, is_json: bool) -> None:
    """Print an error and what to do about it."""
    advice = _advice(error)
    retryable = isinstance(error, AccelError) and error.retryable
    message = "; ".join([_message(error), *getattr(error, "__notes__", ())])
    if is_json:
        row = {"type": type(error).__name__, "message": message, "advice": advice, "retryable": retryable}
        click.echo(json.dumps(row), err=True)
        return
    click.echo(click.style("error: ", fg="red", bold=True) + message, err=True)
    if advice:
        click.echo(click.style("advice: ", bold=True) + advice, err=True)


def _advice(error: BaseException) -> str:
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return f"see {error.ctx.command_path} --help"
    return error.advice if isinstance(error, AccelError) else ""


def _message(error: BaseException) -> str:
    return error.format_message() if isinstance(error, click.ClickException) else str(error)


def _print(each: Rendered) -> None:
    if isinstance(each, str):
        click.echo(each)
        return
    console = Console(markup=False, highlight=False, soft_wrap=isinstance(each, Text))
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    console.print(each)
