"""The commands `accel stream` and `accel group`: streams that have a history."""

from __future__ import annotations

import click

from accel.cli.groups import CommandGroup
from accel.cli.stream import (
    changes,
    events,
    history,
    reader_groups,
    streams,
)

groups_group = reader_groups.groups_group


@click.group("stream", cls=CommandGroup)
def stream_group() -> None:
    """Create streams, show their history, and change them.

    A broker, or a program with its own SegmentHost, holds the data of the segments. `scale` leaves a request for it;
    other commands that need the segments are refused. If you hold the segments yourself, outside this bucket's catalog,
    use --data-elsewhere.
    """


for command in (
    *(streams.create, streams.configure, streams.list_streams, streams.describe, events.write, events.read),
    *(history.history, history.segments, history.cuts, history.retention),
    *(changes.scale, changes.seal, changes.truncate, changes.recover, changes.delete, changes.requests),
):
    stream_group.add_command(command)
