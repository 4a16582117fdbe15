"""`--log-format`: what long commands log goes to stderr as JSON where nobody sits, as text where somebody does."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from accel.cli.options import log_option, output_options
from accel.rendering import JsonLines, Output, TextLines, log_as, log_lines
from tests.accel.cli.test_one_convention import COMMANDS

LONG = (
    "serve",
    "stream write",
    "stream read",
    "catalog compact",
    "catalog build-hints",
    "catalog gc",
    "catalog run-all",
    "catalog verify",
)


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    log_as(TextLines())


@click.command()
@output_options
@log_option
def act(output: Output) -> None:
    """Log something, as it is logged where no application has set a log up."""
    assert logging.lastResort is not None
    record = logging.LogRecord("accel.lookup", logging.WARNING, __file__, 1, "slow: %s", ("\x1b[31m",), None)
    logging.lastResort.handle(record)
    output.note("done")


@pytest.mark.parametrize(
    ("words", "variable", "is_json"),
    [
        ((), None, True),  # no terminal
        (("--log-format", "json"), None, True),
        (("--log-format", "text"), None, False),
        ((), "text", False),
        (("--log-format", "json"), "text", True),
    ],
)
def test_a_long_command_logs_as_it_is_told(words: tuple[str, ...], variable: str | None, is_json: bool) -> None:
    done = CliRunner().invoke(act, [*words, "--quiet"], env={"ACCEL_LOG_FORMAT": variable})
    assert done.exit_code == 0
    line = done.stderr.rstrip("\n")
    assert line.isprintable()
    if is_json:
        told = json.loads(line)
        assert (told["level"], told["logger"], told["message"]) == ("warning", "accel.lookup", "slow: \x1b[31m")
    else:
        assert line == "slow: \\x1b[31m"


def test_a_terminal_gets_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert isinstance(log_lines(None), TextLines)
    assert isinstance(log_lines("json"), JsonLines)


@pytest.mark.parametrize("path", LONG)
def test_each_command_that_runs_for_long_has_the_option(path: str) -> None:
    assert "log_format" in {each.name for each in COMMANDS[path].params}
