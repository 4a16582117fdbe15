"""The commands `accel catalog ...`: create, show, check, clean up and repair the catalog of a bucket."""

from __future__ import annotations

import click

from accel.cli.catalog import compact, gc, hints, run_all, runs, status, undo, verify
from accel.cli.groups import CommandGroup


@click.group("catalog", cls=CommandGroup)
def catalog_group() -> None:
    """Create, show and maintain the object catalog of a bucket."""


for command in (
    status.init,
    status.status,
    verify.verify,
    gc.gc,
    undo.undo,
    compact.compact_command,
    hints.build_hints,
    run_all.run_all,
    runs.runs,
):
    catalog_group.add_command(command)
catalog_group.add_command(undo.restored_command, "restored")
