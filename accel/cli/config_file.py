"""Where the values of options come from: a flag, a variable, a file in TOML, the default; the first that is there wins.

click looks for flags, variables and defaults. This module gives it the file as a `default_map`, and refuses names that
no option has: a typo would be ignored else, and the command would run on another bucket than its user thinks.

    store = "s3://bucket/prefix"          # for every command that has the option --store
    endpoint-url = "https://host:9000"    # a key is named as the flag is

    [commands.get-objects]                # for one command; wins over the keys above
    limit = 20
    [commands.catalog]                    # for all commands of a group
    namespace = "cluster"

One file is read: `--config FILE`, else ACCEL_CONFIG, else ./accel.toml, else config.toml in the user's own folder of
settings (~/.config/accel). Files are not mixed. A value is a text, a number, true, false, or a list of these, and is
read as it would be on the command line.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from accel.cli.groups import CONFIG_META, key_of, options_of

PREFIX = "ACCEL"
"""What the names of variables begin with."""

WORKING_FILE = "accel.toml"
USER_FILE = "config.toml"
FILE_SIZE_BYTES_MAX = 1 << 20
COMMANDS_KEY = "commands"

COMMON = ("client", "endpoint-url", "image", "no-sign-request", "output", "policy", "profile", "region", "store")
"""Options that most commands have: known without loading any command."""

_OF_TESTS = "ACCEL_TEST_"
_NO_OPTIONS = ("ACCEL_CONFIG", "ACCEL_TOKEN")  # the second is a secret: on no command line, in no file
# Kubernetes sets variables for each Service in the namespace. One named "accel" or "accel-..." yields names of ours.
_SERVICE_LINK = re.compile(r"ACCEL(_[A-Z0-9_]+)?_(SERVICE_(HOST|PORT)(_.+)?|PORT(_\d+_(TCP|UDP|SCTP)(_.+)?)?)")
_SERVICE_VALUE = re.compile(r"(tcp|udp|sctp)://.+|[0-9a-fA-F.:]+|tcp|udp|sctp")


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A file of settings that was read. Any thread.

    Args:
        path: of the file; None where there is none.
        common: values by key, for every command that has such an option.
        commands: the table of commands, with tables of groups within.
    """

    path: str | None = None
    common: Mapping[str, Any] = field(default_factory=dict)
    commands: Mapping[str, Any] = field(default_factory=dict)

    def values_for(self, words: tuple[str, ...]) -> dict[str, Any]:
        """What the file says for the command of this path, by key: the closest table wins."""
        values = dict(self.common)
        table: Any = self.commands
        for word in words:
            table = table.get(word, {})
            values |= {key: value for key, value in table.items() if not isinstance(value, Mapping)}
        return values

    def check(self, root: click.Group) -> None:
        """Refuse keys that no option has, and tables that no command has.

        Raises:
            click.UsageError: names the key, and the nearest one that there is.
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
    """The path of the file of settings: the one that is given, else the first that there is.

    >>> find_file("here.toml")
    'here.toml'
    """
    if given is not None:
        return given
    for path in (Path(WORKING_FILE), Path(click.get_app_dir("accel")) / USER_FILE):
        if path.is_file():
            return str(path)
    return None


def read_file(path: str | None) -> ConfigFile:
    """Read a file of settings; no path, no settings.

    Raises:
        click.UsageError: it cannot be read, is too large, is no TOML, or holds what no option can take.
    """
    if path is None:
        return ConfigFile()
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - /dev/null and pipes are files here, too
            body = file.read(FILE_SIZE_BYTES_MAX + 1)
        if len(body) > FILE_SIZE_BYTES_MAX:
            raise click.UsageError(f"{path}: expected at most {FILE_SIZE_BYTES_MAX} bytes, found more.")
        parsed = tomllib.loads(body.decode())
    except OSError as error:
        raise click.UsageError(f"the file of settings cannot be read: {error}.") from error
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
    # As on the command line: one way of reading a number or a size, whatever it comes from.
    return {key: _typed(key, value, path) for key, value in table.items()}


def _typed(key: str, value: Any, path: str) -> Any:
    if isinstance(value, dict):
        return _as_typed(value, path)
    if isinstance(value, list):
        return [_typed(key, each, path) for each in value]
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        return str(value)
    raise click.UsageError(f"{path}: expected a text, a number, true, false or a list for {key!r}, found {value!r}.")


def config_option() -> click.Option:
    """`--config` of the command as a whole: reads the file, and keeps it for the commands below."""
    return click.Option(
        ["--config"],
        metavar="FILE",
        envvar=f"{PREFIX}_CONFIG",
        show_envvar=True,
        is_eager=True,
        expose_value=False,
        callback=_keep_file,
        help=f"Values of options, in TOML; else ./{WORKING_FILE}, else {USER_FILE} in the user's folder of settings.",
    )


def _keep_file(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if not ctx.resilient_parsing:
        ctx.meta[CONFIG_META] = read_file(find_file(value))


def config_of(ctx: click.Context) -> ConfigFile:
    """The file that the running command's values come from."""
    found = ctx.meta.get(CONFIG_META)
    return found if isinstance(found, ConfigFile) else ConfigFile()


def check_names(root: click.Group, ctx: click.Context, environment: Mapping[str, str]) -> None:
    """Refuse variables ACCEL_... and keys of the file that no option has. Loads commands only where names need it.

    Raises:
        click.UsageError: names it, and the nearest one that there is.
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
    # First the command whose name the variable begins with: the others need not be loaded.
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
    # A command of another package that could not be loaded takes any argument; what it knows cannot be known.
    return bool(command.context_settings.get("ignore_unknown_options"))


def commands_of(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[click.Command, tuple[str, ...]]]:
    """Every command of a tree that does something, with the words that name it. Loads them all."""
    ctx = click.Context(group)
    for word in group.list_commands(ctx):
        command = group.get_command(ctx, word)
        if isinstance(command, click.Group):
            yield from commands_of(command, (*path, word))
        elif command is not None:
            yield command, (*path, word)


def all_keys(command: click.Command) -> Iterator[tuple[str, click.Option]]:
    """The keys that a file may have for a command, or for any below a group; with the option of each."""
    leaves = (each for each, _ in commands_of(command)) if isinstance(command, click.Group) else iter((command,))
    for leaf in leaves:
        for option in options_of(leaf):
            yield key_of(option), option


def variable_of(key: str) -> str:
    """The variable of an option that has one for all commands."""
    return f"{PREFIX}_{key.upper().replace('-', '_')}"


def _prefix(path: tuple[str, ...]) -> str:
    return "_".join((PREFIX, *path)).upper().replace("-", "_")


def variables_of(command: click.Command, path: tuple[str, ...]) -> dict[str, click.Option]:
    """The variables that give options of a command; those for all commands come before those of the command."""
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
    """Where a wrong value came from, if not from the command line: the variable's name, or the file's."""
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
