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
    """Make streams, ask for their history, and change them.

    The segments' data are held by a broker, or by a program with a SegmentHost of its own. A scale is asked for, and
    carried out there; what else needs the segments is refused. If you hold them yourself, not in this bucket's catalog,
    --size says how far they reach, or --data-elsewhere that it does not matter.
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
