"""The commands `accel catalog ...`: make, look at, check, clean up and repair the catalog of a bucket.

`verify` and `gc` lend what they show to the jobs of the same names.
"""

from __future__ import annotations

import click

from accel.cli.catalog import gc, importing, status, undo, verify
from accel.cli.options import CommandGroup


@click.group("catalog", cls=CommandGroup)
def catalog_group() -> None:
    """Make the object catalog of a bucket, and look at it."""


for command in (status.init, status.status, status.refresh, importing.import_command, verify.verify, gc.gc, undo.undo):
    catalog_group.add_command(command)
catalog_group.add_command(undo.restored_command, "restored")
