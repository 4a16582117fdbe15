"""A list of commands is printed without loading them, and says what they say of themselves."""

from __future__ import annotations

import click
from click.testing import CliRunner

from accel.cli.groups import CommandGroup, LazyCommand
from accel.cli.main import main


def test_the_list_says_of_a_command_what_it_says_itself() -> None:
    assert isinstance(main, CommandGroup)
    assert main.lazy
    said = {name: lazy.short_help for name, lazy in main.lazy.items()}
    loaded = {name: lazy.load() for name, lazy in main.lazy.items()}
    assert said == {name: each.get_short_help_str(limit=200) for name, each in loaded.items()}


def test_a_lazy_command_is_listed_unloaded_and_run_once_loaded() -> None:
    group = CommandGroup("group", lazy={"told": LazyCommand("tests.accel.cli.test_groups:told", "Say a word.")})
    group.add_command(click.Command("own", short_help="Its own."))
    listed = CliRunner().invoke(group, ["--help"])
    assert [line.split() for line in listed.output.splitlines()[-2:]] == [
        ["own", "Its", "own."],
        ["told", "Say", "a", "word."],
    ]
    assert "told" not in group.commands
    assert CliRunner().invoke(group, ["told"]).output == "a word\n"


def test_a_list_leaves_out_hidden_commands_and_cuts_long_lines() -> None:
    group = CommandGroup("group", lazy={"long": LazyCommand("nowhere:none", "word " * 40)})
    group.add_command(click.Command("hidden", hidden=True))
    listed = CliRunner().invoke(group, ["--help"]).output
    assert "hidden" not in listed
    assert listed.splitlines()[-1].endswith("word...")


@click.command()
def told() -> None:
    """Say a word."""
    click.echo("a word")
