"""Where the value of an option comes from: a flag, else a variable, else a file in TOML, else the default.

click reads flags, variables and defaults. This module gives click the file as a `default_map`, and refuses unknown
names: with an ignored typo, a command would run on another bucket than the user expects.

    store = "s3://bucket/prefix"          # for every command that has the option --store
    endpoint-url = "https://host:9000"    # a key has the name of the flag

    [commands.get-objects]                # for one command; wins over the keys above
    limit = 20
    [commands.catalog]                    # for all commands of a group
    namespace = "cluster"

One file is read: `--config FILE`, else ACCEL_CONFIG, else ./accel.toml, else config.toml in the user's settings folder
(~/.config/accel). Files are not combined. A value is a text, a number, true, false, or a list of these, and is parsed
as on the command line.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

import click
from click.core import ParameterSource

from accel.cli.groups import CONFIG_META, defaults_of, key_of, options_of
from loaders.errors import redacted

PREFIX = "ACCEL"
"""The first characters of each variable."""

WORKING_FILE = "accel.toml"
USER_FILE = "config.toml"
FILE_SIZE_BYTES_MAX = 1 << 20
COMMANDS_KEY = "commands"

COMMON = ("client", "endpoint-url", "image", "no-sign-request", "output", "policy", "profile", "region", "store")
"""Options that most commands have, listed here so that no command must be loaded."""

HIDDEN = "(hidden)"
_SECRET_WORDS = ("token", "secret", "password", "credential")
_DEFAULT = "default"

_OF_TESTS = "ACCEL_TEST_"
_NO_OPTIONS = ("ACCEL_CONFIG", "ACCEL_TOKEN")  # the second is a secret: never an option, never in a file
# Kubernetes sets variables for each Service in the namespace. One named "accel" or "accel-..." yields names of ours.
_SERVICE_LINK = re.compile(r"ACCEL(_[A-Z0-9_]+)?_(SERVICE_(HOST|PORT)(_.+)?|PORT(_\d+_(TCP|UDP|SCTP)(_.+)?)?)")
_SERVICE_VALUE = re.compile(r"(tcp|udp|sctp)://.+|[0-9a-fA-F.:]+|tcp|udp|sctp")


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The settings file that was read. Any thread.

    Args:
        path: of the file; None where there is none.
        common: values by key, for every command that has such an option.
        commands: the table of commands; tables of groups are nested.
    """

    path: str | None = None
    common: Mapping[str, Any] = field(default_factory=dict)
    commands: Mapping[str, Any] = field(default_factory=dict)

    def values_for(self, words: tuple[str, ...]) -> dict[str, Any]:
        """The file's values for the command of this path, by key; the innermost table has priority."""
        values = dict(self.common)
        table: Any = self.commands
        for word in words:
            table = table.get(word, {})
            values |= {key: value for key, value in table.items() if not isinstance(value, Mapping)}
        return values

    def check(self, root: click.Group) -> None:
        """Refuse keys that no option has, and tables that no command has.

        Raises:
            click.UsageError: an unknown key or table; names the nearest known one.
        """
        unusual = [key for key in self.common if key not in COMMON]
        known = {key for key, _ in all_keys(root)} if unusual else set()
        for key in unusual:
            if key not in known:
                raise self._unknown(f"the key {key!r}", key, known)
        self._check_table(self.commands, root, (COMMANDS_KEY,))

    def _check_table(self, table: Mapping[str, Any], command: click.Command, path: tuple[str, ...]) -> None:
        ctx = click.Context(command)
        names = command.list_commands(ctx) if isinstance(command, click.Group) else []
        for key, value in table.items():
            place = ".".join((*path, key))
            if not isinstance(value, Mapping):
                known = {key for key, _ in all_keys(command)}
                if key not in known and not _is_replaced(command):
                    raise self._unknown(f"the key {place!r}", key, known)
                continue
            inner = command.get_command(ctx, key) if isinstance(command, click.Group) else None
            if inner is None:
                raise self._unknown(f"the table [{place}]", key, set(names))
            self._check_table(value, inner, (*path, key))

    def _unknown(self, what: str, name: str, known: set[str]) -> click.UsageError:
        return click.UsageError(f"{self.path}: {what} is unknown{_nearest(name, known)}")


def find_file(given: str | None) -> str | None:
    """The path of the settings file: the given one, else the first that exists; one that cannot be read is named.

    >>> find_file("here.toml")
    'here.toml'
    """
    if given is not None:
        return given
    for path in (Path(WORKING_FILE), Path(click.get_app_dir("accel")) / USER_FILE):
        # Without a home folder the last one would be in the working directory, in a folder "~".
        if path.is_absolute() or path.name == WORKING_FILE:
            try:
                if path.is_file():
                    with path.open("rb"):
                        return str(path)
            except OSError as error:
                click.echo(f"note: passed over a settings file, as it cannot be read: {error}", err=True)
    return None


def read_file(path: str | None) -> ConfigFile:
    """Read a settings file; without a path the result is empty.

    Raises:
        click.UsageError: it cannot be read, is too large, is not TOML, or holds a value that no option accepts.
    """
    if path is None:
        return ConfigFile()
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - /dev/null and pipes are files here, too
            body = file.read(FILE_SIZE_BYTES_MAX + 1)
        if len(body) > FILE_SIZE_BYTES_MAX:
            raise click.UsageError(f"{path}: expected at most {FILE_SIZE_BYTES_MAX} bytes, found more.")
        parsed = tomllib.loads(body.decode("utf-8-sig"))
    except OSError as error:
        raise click.UsageError(f"the settings file cannot be read: {error}.") from error
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"{path}: expected TOML: {error}.") from error
    commands = parsed.pop(COMMANDS_KEY, {})
    if not isinstance(commands, dict):
        raise click.UsageError(f"{path}: expected a table [{COMMANDS_KEY}.NAME], found {commands!r}.")
    for key, value in parsed.items():
        if isinstance(value, dict):
            raise click.UsageError(f"{path}: tables of commands are named [{COMMANDS_KEY}.NAME], found [{key}].")
    return ConfigFile(path, _as_typed(parsed, path), _as_typed(commands, path))


def _as_typed(table: Mapping[str, Any], path: str) -> dict[str, Any]:
    # As on the command line: numbers and sizes are parsed in one way, whatever their source.
    return {key: _typed(key, value, path) for key, value in table.items()}


def _typed(key: str, value: Any, path: str) -> Any:
    if isinstance(value, dict):
        return _as_typed(value, path)
    if isinstance(value, list):
        return [_typed(key, each, path) for each in value]
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return str(value).lower()  # true is no number
    raise click.UsageError(f"{path}: expected a text, a number, true, false or a list for {key!r}, found {value!r}.")


def config_option() -> click.Option:
    """`--config` of the whole command line: reads the file, and stores it for all commands."""
    return click.Option(
        ["--config"],
        metavar="FILE",
        envvar=f"{PREFIX}_CONFIG",
        show_envvar=True,
        is_eager=True,
        expose_value=False,
        callback=_keep_file,
        help=f"Values of options, in TOML; else ./{WORKING_FILE}, else {USER_FILE} in the user's settings folder.",
    )


def _keep_file(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if not ctx.resilient_parsing:
        ctx.meta[CONFIG_META] = read_file(find_file(value))


def config_of(ctx: click.Context) -> ConfigFile:
    """The file that supplies the values of the running command."""
    found = ctx.meta.get(CONFIG_META)
    return found if isinstance(found, ConfigFile) else ConfigFile()


def check_names(root: click.Group, ctx: click.Context, environment: Mapping[str, str]) -> None:
    """Refuse variables ACCEL_... and keys of the file that match no option. Loads commands only to check a name.

    Raises:
        click.UsageError: an unknown name; names the nearest known one.
    """
    config_of(ctx).check(root)
    quick = {*_NO_OPTIONS, *map(variable_of, COMMON)}
    for name, value in environment.items():
        if not name.startswith(f"{PREFIX}_") or name in quick or name.startswith(_OF_TESTS) or not value:
            continue
        if _SERVICE_LINK.fullmatch(name) and _SERVICE_VALUE.fullmatch(value):
            continue
        if not _is_variable(root, name):
            known = {variable for command, path in commands_of(root) for variable in variables_of(command, path)}
            raise click.UsageError(f"the variable {name} is unknown{_nearest(name, known)}")


def _is_variable(root: click.Group, name: str) -> bool:
    # First the command that the variable's name begins with: then the others need not be loaded.
    if any(name in variables_of(command, path) or _is_replaced(command) for command, path in _named_by(root, name)):
        return True
    return any(name in variables_of(command, path) for command, path in commands_of(root))


def _named_by(
    root: click.Group, name: str, path: tuple[str, ...] = ()
) -> Iterator[tuple[click.Command, tuple[str, ...]]]:
    ctx = click.Context(root)
    for word in root.list_commands(ctx):
        if not name.startswith(f"{_prefix((*path, word))}_"):
            continue
        command = root.get_command(ctx, word)
        if command is not None:
            yield command, (*path, word)
            if isinstance(command, click.Group):
                yield from _named_by(command, name, (*path, word))


def _is_replaced(command: click.Command) -> bool:
    # A command of another package that could not be loaded accepts any argument: its options are unknown.
    return bool(command.context_settings.get("ignore_unknown_options"))


def commands_of(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[click.Command, tuple[str, ...]]]:
    """Each command of a tree that is not a group, with the words of its name. Loads them all."""
    ctx = click.Context(group)
    for word in group.list_commands(ctx):
        command = group.get_command(ctx, word)
        if isinstance(command, click.Group):
            yield from commands_of(command, (*path, word))
        elif command is not None:
            yield command, (*path, word)


def all_keys(command: click.Command) -> Iterator[tuple[str, click.Option]]:
    """The keys that a file may contain for a command, or for commands of a group, with the option of each."""
    leaves = (each for each, _ in commands_of(command)) if isinstance(command, click.Group) else iter((command,))
    for leaf in leaves:
        for option in options_of(leaf):
            yield key_of(option), option


def variable_of(key: str) -> str:
    """The variable of an option, if it is the same for all commands."""
    return f"{PREFIX}_{key.upper().replace('-', '_')}"


def _prefix(path: tuple[str, ...]) -> str:
    return "_".join((PREFIX, *path)).upper().replace("-", "_")


def variables_of(command: click.Command, path: tuple[str, ...]) -> dict[str, click.Option]:
    """The variables that set options of a command; those for all commands precede those of the command."""
    found: dict[str, click.Option] = {}
    for option in options_of(command):
        named = option.envvar or ()
        for variable in (named,) if isinstance(named, str) else named:
            found.setdefault(variable, option)
        found.setdefault(f"{_prefix(path)}_{str(option.name).upper()}", option)
    return found


def _nearest(name: str, known: set[str]) -> str:
    near = get_close_matches(name, sorted(known), 1)
    return f"; did you mean {near[0]}?" if near else "."


def origin(ctx: click.Context, param: click.Parameter | None) -> str | None:
    """The source of an invalid value, if not the command line: the name of the variable or of the file."""
    if param is None or param.name is None:
        return None
    source = ctx.get_parameter_source(param.name)
    if source is ParameterSource.DEFAULT_MAP:
        return config_of(ctx).path
    if source is ParameterSource.ENVIRONMENT:
        named = param.envvar or ()
        names = [*((named,) if isinstance(named, str) else named), f"{ctx.auto_envvar_prefix}_{param.name.upper()}"]
        return next((name for name in names if os.environ.get(name)), None)
    return None


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


def all_settings(root: click.Context) -> list[SettingShown]:
    """The options that most commands have, and those that a variable or the file sets for one command only.

    Values are those without any flag.
    """
    rows = [
        row for each, path in commands_of(cast("click.Group", root.command)) for row in _settings_of(root, each, path)
    ]
    found: dict[tuple[str, str], SettingShown] = {}
    for row in rows:
        if row.key in COMMON:
            found.setdefault(("", row.key), replace(row, command=""))
    for row in rows:
        if row.source != _DEFAULT and found.get(("", row.key)) != replace(row, command=""):
            found[row.command, row.key] = row
    return sorted(found.values(), key=lambda row: (row.command, row.key))


def _settings_of(root: click.Context, shown: click.Command, path: tuple[str, ...]) -> Iterator[SettingShown]:
    config = config_of(root)
    defaults = defaults_of(config, path, shown)
    ctx = click.Context(shown, info_name=path[-1], default_map=defaults, auto_envvar_prefix=_prefix(path))
    ctx.resilient_parsing = True  # a value that a command refuses is also shown
    with ctx.scope(cleanup=False):
        shown.parse_args(ctx, [])
    for option in options_of(shown):
        name, source = str(option.name), ctx.get_parameter_source(str(option.name))
        value, place = ctx.params.get(name), _DEFAULT
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
        return str(value).lower()
    return redacted(", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value))
