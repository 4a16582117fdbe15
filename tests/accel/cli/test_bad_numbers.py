"""No number that an option of a command takes ends in a traceback: not a large one, and not one that is none."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from accel.catalog import ObjectCatalog
from accel.cli.main import main
from accel.cli.options import INTEGER
from accel.errors import AccelError
from loaders.format import RecordBatch
from loaders.store import open_store
from tests.accel.cli.test_one_convention import COMMANDS

BAD = (str(2**63), "9" * 5000, "nan", "inf", "1e6", "-1")
NUMBERS = (click.types.IntParamType, click.types.FloatParamType)
ELSEWHERE = {"serve", "demo"}
"""What listens, or makes its own bucket."""


def is_number(option: click.Parameter) -> bool:
    return isinstance(option, click.Option) and (
        isinstance(option.type, NUMBERS) or option.type.name in {"size", "time", "moment"}
    )


def arguments(command: click.Command, tried: click.Parameter) -> list[str]:
    """What a command needs besides the option that is tried."""
    needed = []
    for each in command.get_params(click.Context(command)):
        if each.required and each is not tried and isinstance(each, click.Option):
            kind = each.type
            value = kind.choices[0] if isinstance(kind, click.Choice) else "1" if isinstance(kind, NUMBERS) else "s"
            needed += [each.opts[0], str(value)]
    return needed


@pytest.mark.parametrize("path", sorted(set(COMMANDS) - ELSEWHERE))
def test_a_number_beyond_64_bits_or_another_bad_one_is_refused_or_taken(path: str) -> None:
    command, url = COMMANDS[path], f"memory://bad-numbers-{path.replace(' ', '-')}"
    store = open_store(url)
    ObjectCatalog.init(store, namespace="shop")
    with ObjectCatalog.open(store).open_node(4) as writer:
        writer.open_streams([1])
        writer.upload({1: [RecordBatch(1, 1, 0, 3, b"abc")]})
    for option in filter(is_number, command.get_params(click.Context(command))):
        for bad in BAD:
            given = [*path.split(), url, *arguments(command, option), f"{option.opts[0]}={bad}"]
            error = CliRunner().invoke(main, given).exception
            assert error is None or isinstance(error, SystemExit | AccelError | click.ClickException), (given, error)


@pytest.mark.parametrize("bad", ["nan", "inf", "0", "-1", "a"])
def test_a_price_of_the_console_that_is_none_is_refused_in_words(bad: str) -> None:
    result = CliRunner().invoke(main, ["serve", "memory://bad-price", f"--price-per-thousand-reads={bad}"])
    assert result.exit_code == 2
    assert "Error: " in result.output


def test_the_highest_number_of_64_bits_is_taken() -> None:
    assert INTEGER(str(2**63 - 1)) == 2**63 - 1
    with pytest.raises(click.BadParameter):
        INTEGER(str(2**63))
