"""`accel config`: the value of each option, and its source."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, cast

import click
from click.core import ParameterSource

from accel.cli.config_file import COMMON, ConfigFile, commands_of, config_of, origin
from accel.cli.groups import CommandGroup, defaults_of, key_of, options_of
from accel.cli.options import command, output_options
from accel.rendering import Column, Output, Shown, table_of, word
from loaders.errors import redacted

HIDDEN = "(hidden)"
_SECRET_WORDS = ("token", "secret", "password", "credential")
_DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class SettingShown:
    """An option, its value, and the source of the value.

    Args:
        command: the name of the command; empty for an option that most commands have.
        key: the key in a file; the flag is the key after two dashes.
        value: as text, without passwords; None if there is none.
        source: the name of the variable or of the file, or ``default``.
    """

    command: str
    key: str
    value: str | None
    source: str


@click.group("config", cls=CommandGroup)
def config_group() -> None:
    """Show where the values of options come from."""


@command(
    "Show the values of options, and the source of each.",
    "accel config show",
    "accel config show get-objects",
    "accel --config accel.toml config show --output json",
    name="show",
    group=config_group,
)
@click.argument("words", metavar="[COMMAND]...", nargs=-1)
@output_options
def show(*, words: tuple[str, ...], output: Output) -> None:
    """Show the value of each option when no flag sets it: from a variable, else the file, else the default.

    With a command: all its options. Without: the options that most commands have, and those set for one command only.
    """
    root = click.get_current_context().find_root()
    config = config_of(root)
    chosen = [
        (each, path) for each, path in commands_of(cast("click.Group", root.command)) if path[: len(words)] == words
    ]
    if not chosen:
        raise click.UsageError(f"expected a command, found {' '.join(words)!r}.")
    rows = [row for each, path in chosen for row in settings_of(root, each, path, config)]
    if not words:
        rows = _summary(rows)
    data = {"file": config.path, "settings": [asdict(row) for row in rows]}
    columns: list[Column[SettingShown]] = [
        *([word("command", lambda row: row.command)] if any(row.command for row in rows) else []),
        word("option", lambda row: row.key),
        Column("value", lambda row: "" if row.value is None else row.value, "left", no_wrap=False),
        Column("source", lambda row: row.source, "left", no_wrap=False),
    ]
    output.show(Shown(data, (f"file: {config.path or 'none'}", table_of(rows, *columns))))


def settings_of(
    root: click.Context, shown: click.Command, path: tuple[str, ...], config: ConfigFile
) -> Iterator[SettingShown]:
    """The options of one command as click resolves them, without those that are given only by flags."""
    defaults = defaults_of(config, path, shown)
    prefix = "_".join((str(root.auto_envvar_prefix), *path)).upper().replace("-", "_")
    ctx = click.Context(shown, info_name=path[-1], default_map=defaults, auto_envvar_prefix=prefix)
    ctx.resilient_parsing = True  # a value that a command refuses is also shown
    with ctx.scope(cleanup=False):
        shown.parse_args(ctx, [])
    for option in options_of(shown):
        name, source = str(option.name), ctx.get_parameter_source(str(option.name))
        value, place = ctx.params.get(name), _DEFAULT
        if isinstance(option.default, str):
            value = option.default  # as a person writes it: a size, not its bytes
        if source is ParameterSource.ENVIRONMENT:
            place = origin(ctx, option) or str(option.envvar)
            value = os.environ[place]
        elif source is ParameterSource.DEFAULT_MAP:
            place, value = str(config.path), defaults[name]
        yield SettingShown(" ".join(path), key_of(option), _text(option, value), place)


def _text(option: click.Option, value: Any) -> str | None:
    if value is None or callable(value):
        return None
    if option.hide_input or any(each in key_of(option) for each in _SECRET_WORDS):
        return HIDDEN
    if isinstance(value, bool):
        return "true" if value else "false"
    return redacted(", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value))


def _summary(rows: list[SettingShown]) -> list[SettingShown]:
    """The options of most commands once, and those that are set to another value for one command."""
    found: dict[tuple[str, str], SettingShown] = {}
    for row in rows:
        if row.key in COMMON:
            found.setdefault(("", row.key), SettingShown("", row.key, row.value, row.source))
    for row in rows:
        common = found.get(("", row.key))
        same = common is not None and (common.value, common.source) == (row.value, row.source)
        if row.source != _DEFAULT and not same:
            found[row.command, row.key] = row
    return sorted(found.values(), key=lambda row: (row.command, row.key))
