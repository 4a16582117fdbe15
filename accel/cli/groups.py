"""Groups of commands: they accept `--output`, and load the module of a command only when it is used.

    main = CommandGroup("accel", lazy={"read": LazyCommand("accel.cli.lookups:read", "Read a range of a stream.")})

A list of commands needs one line on each. The group contains these lines, so that `accel --help` loads neither numpy
nor boto3 nor any command; a test compares them with the help of the commands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple, Protocol

import click
from click.shell_completion import CompletionItem


class LazyCommand(NamedTuple):
    """Where a command is, and its line in a list of commands.

    Args:
        place: module and name, as in an entry point: ``package.module:name``.
        short_help: one line, the same as the command's own.
    """

    place: str
    short_help: str

    def load(self) -> click.Command:
        """The command itself; imports its module."""
        module, _, name = self.place.partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command


OUTPUT_FORMS = click.Choice(["text", "json"])

OUTPUT_META = "accel.output"

CONFIG_META = "accel.config"

_COMPLETION_WIDTH = 120


class ValuesByCommand(Protocol):
    """Values of options from a file; stored in the context under `CONFIG_META`, if there is a file."""

    def values_for(self, words: tuple[str, ...]) -> Mapping[str, Any]:
        """Values by key, for the command with this name."""


def options_of(command: click.Command) -> Iterator[click.Option]:
    """The options of a command that a variable or a file may set."""
    for param in command.params:
        if isinstance(param, click.Option) and param.allow_from_autoenv:
            yield param


def key_of(option: click.Option) -> str:
    """The key of an option in a file: its longest flag."""
    return max(option.opts, key=len).lstrip("-")


def defaults_of(config: ValuesByCommand, words: tuple[str, ...], command: click.Command) -> dict[str, Any]:
    """A file's values for a command, as click's ``default_map``."""
    values = config.values_for(words)
    return {str(each.name): values[key_of(each)] for each in options_of(command) if key_of(each) in values}


def words_of(ctx: click.Context) -> tuple[str, ...]:
    """The words of a command's name, without the program's."""
    above = () if ctx.parent is None else words_of(ctx.parent)
    return above if ctx.parent is None else (*above, str(ctx.info_name))


@contextmanager
def help_shown(ctx: click.Context) -> Iterator[None]:
    """For a block that may show help: it is no failure that its reader wants only the first lines, as `head` does."""
    try:
        yield
    except BrokenPipeError:
        ctx.exit()


class CommandGroup(click.Group):
    """A group that accepts `--output` for its commands; `--output` after the command has priority.

    Args:
        lazy: commands by name, beside those that are added; each is loaded when it is used.
        args, attributes: as of `click.Group`.

    Threads: one.
    """

    def __init__(self, *args: Any, lazy: Mapping[str, LazyCommand] | None = None, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.lazy = dict(lazy or {})
        self.params.append(
            click.Option(
                ["--output"],
                type=OUTPUT_FORMS,
                expose_value=False,
                callback=_keep_output,
                allow_from_autoenv=False,
                help="The form of the result: text for people, json for programs; also after the command.",
            )
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, and show the help if it is wanted."""
        with help_shown(ctx):
            return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands."""
        return sorted({*super().list_commands(ctx), *self.lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command by name; loads it if needed."""
        if cmd_name in self.lazy and cmd_name not in self.commands:
            self.add_command(self.lazy[cmd_name].load(), cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, and pass it its values from the settings file."""
        name, command, rest = super().resolve_command(ctx, args)
        config: ValuesByCommand | None = ctx.meta.get(CONFIG_META)
        if config is not None and command is not None and name is not None:
            ctx.default_map = {name: defaults_of(config, (*words_of(ctx), name), command)}
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands; does not load them."""
        names = self.list_commands(ctx)
        width = formatter.width - 6 - max(map(len, names), default=0)
        rows = [(name, text) for name in names if (text := self._short_help(ctx, name, width)) is not None]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Completions for a shell: commands with their short help, without loading them; then options."""
        names = (name for name in self.list_commands(ctx) if name.startswith(incomplete))
        texts = ((name, self._short_help(ctx, name, _COMPLETION_WIDTH)) for name in names)
        commands = [CompletionItem(name, help=text) for name, text in texts if text is not None]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def _short_help(self, ctx: click.Context, name: str, width: int) -> str | None:
        lazy = self.lazy.get(name)
        command = self.get_command(ctx, name) if lazy is None else click.Command(name, help=lazy.short_help)
        return None if command is None or command.hidden else command.get_short_help_str(width)


def _keep_output(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.meta[OUTPUT_META] = value
