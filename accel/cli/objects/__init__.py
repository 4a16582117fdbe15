"""The commands `accel object inspect` and `verify`: inspect single objects, and check them."""

from __future__ import annotations

import click

from accel.cli.groups import CommandGroup
from accel.cli.objects import inspect, verify


@click.group("object", cls=CommandGroup)
def object_group() -> None:
    """Inspect objects, and verify them.

    An object is named by its id (digits), by its key, or as a local file that exists.
    """


for command in (inspect.inspect, verify.verify):
    object_group.add_command(command)
