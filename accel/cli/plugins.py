"""Commands of other packages: whoever installs a package that has some finds them under `accel`.

A package offers a command by an entry point of the group `accel.commands`, which names a click command:

    [project.entry-points."accel.commands"]
    compact = "spark_jobs.cli:compact"

A command that cannot be loaded stands in the list with the reason, and disturbs nobody else.
"""

from __future__ import annotations

from importlib import metadata

import click

GROUP = "accel.commands"


def find_plugins() -> dict[str, metadata.EntryPoint]:
    """The offered commands by name; of two with one name that of the package that comes first in the alphabet."""
    found: dict[str, metadata.EntryPoint] = {}
    for each in sorted(metadata.entry_points(group=GROUP), key=_package):
        found.setdefault(each.name, each)
    return found


def load_plugin(found: metadata.EntryPoint) -> click.Command:
    """The command behind an entry point, or one in its place that says why there is none."""
    try:
        command = found.load()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a stranger's module raises, ours go on
        return _broken(found, f"{type(error).__name__}: {error}")
    if not isinstance(command, click.Command):
        return _broken(found, f"expected a click command, found {type(command).__name__}")
    return command


def _package(found: metadata.EntryPoint) -> str:
    return found.dist.name if found.dist is not None else ""


def _broken(found: metadata.EntryPoint, reason: str) -> click.Command:
    def explain() -> None:
        where = f"{found.value} of package {_package(found)}"
        raise click.ClickException(f"the command {found.name} ({where}) could not be loaded: {reason}")

    return click.Command(
        found.name,
        callback=explain,
        help=f"Not available: {reason}",
        short_help=f"(not available: {reason})",
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
