"""The commands `accel scope`, `accel stream` and `accel txn`: streams that have a history."""

from __future__ import annotations

import click

from accel.cli.groups import CommandGroup
from accel.cli.stream import (
    changes,
    cuts,
    events,
    history,
    reader_groups,
    repair,
    retention,
    streams,
    transactions,
)

scope_group = streams.scope_group
transaction_group = transactions.transaction_group


@click.group("stream", cls=CommandGroup)
def stream_group() -> None:
    """Create streams, show their history, and change them.

    A broker, or a program with its own SegmentHost, holds the data of the segments. `scale` leaves a request for it;
    other commands that need the segments are refused. If you hold the segments yourself, outside this bucket's catalog,
    give their sizes with --size, or use --data-elsewhere if sizes do not matter.
    """


for command in (
    *(streams.create, streams.configure, streams.list_streams, streams.describe),
    *(events.write, events.read, reader_groups.groups_group),
    *(history.epochs, history.history, history.segments, history.successors, cuts.cuts_group),
    *(changes.scale, changes.split, changes.merge, changes.scale_status),
    *(changes.seal, changes.truncate, changes.recover, changes.delete, changes.requests),
    *(repair.repair, retention.retention_group),
):
    stream_group.add_command(command)
