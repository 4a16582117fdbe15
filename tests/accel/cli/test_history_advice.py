"""Advice of errors names commands that there are."""

from __future__ import annotations

import re

import click
import pytest

from accel.cli.main import main
from accel.errors import HistoryError, Sought

ADVICE = {
    **{kind.__name__: kind.advice for kind in HistoryError.__subclasses__()},
    **{each.name: each.value for each in Sought},
}


@pytest.mark.parametrize("name", ADVICE)
def test_advice_names_commands_that_there_are(name: str) -> None:
    for words in re.findall(r"\baccel ((?:[a-z]+ ?)+)", ADVICE[name]):
        command: click.Command = main
        for word in words.split():
            if not isinstance(command, click.Group):
                break
            found = command.get_command(click.Context(command), word)
            assert found is not None, f"accel {words}"
            command = found
        assert not isinstance(command, click.Group), f"accel {words}"
