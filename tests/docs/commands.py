"""The table of commands in docs/operations/operations.md; `python -m tests.docs.commands` writes it there."""

from __future__ import annotations

import re

import click

from accel.cli.groups import CommandGroup
from accel.cli.main import main
from tests.docs.pages import page_named

PAGE = page_named("operations")
TABLE = re.compile(r"(?<=\| command \| what it does \| its commands \|\n)(\|.*\n)+")


def command_table() -> str:
    """A row for each command of Accel's own, and for each group of commands."""
    rows = ["|---|---|---|"]
    ctx = click.Context(main)
    for name in sorted(main.lazy):
        command = main.get_command(ctx, name)
        assert command is not None
        below = command.list_commands(ctx) if isinstance(command, CommandGroup) else []
        rows.append(f"| `{name}` | {command.get_short_help_str(200)} | {', '.join(f'`{each}`' for each in below)} |")
    return "".join(f"{row}\n" for row in rows)


if __name__ == "__main__":
    PAGE.write_text(TABLE.sub(lambda _: command_table(), PAGE.read_text()))
