"""`accel group`: create groups of readers, show them, move them to another position, and delete them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from accel.cli.groups import CommandGroup
from accel.cli.options import Command, ReaderChoice, command, limit_option, yes_option
from accel.cli.stream.notation import (
    SEGMENT_COLUMNS,
    TAIL,
    Place,
    cut_text,
    numbers_by_segment,
    parse_place,
    segment_data,
)
from accel.cli.stream.options import StreamChoice, parse_name, read_by, stream_options, stream_reader_options
from accel.errors import NotInHistory, Sought
from accel.rendering import Column, Fields, Output, Rendered, Shown, said, shown_names, table_of, word
from accel.units import count_text, time_text

if TYPE_CHECKING:
    from accel.history.store import Stream
    from accel.streams.groups import ReaderGroup
    from accel.streams.rules.group_state import GroupMember, GroupState

MILLISECONDS: Final = 1000


@click.group("group", cls=CommandGroup, short_help="Create, show, move and delete groups of readers.")
def groups_group() -> None:
    """Create groups of readers, show them, move them to another position, and delete them."""


def group_option(command: Command) -> Command:
    """`--group` -> ``group``: its name."""
    return click.option("--group", required=True, callback=read_by(parse_name), help="The group's name.")(command)


@command(
    "Create a group.",
    "accel group create --store s3://bucket --scope shop --stream orders --group billing --from '1h ago'",
    group=groups_group,
)
@click.option(
    "--from", "start", metavar="PLACE", callback=read_by(parse_place), help="Where it begins; else at the head."
)
@group_option
@stream_reader_options
def create(*, group: str, start: Place | None, stream: StreamChoice, reader: ReaderChoice, output: Output) -> None:
    """Create a group of readers; an existing group is not changed.

    A PLACE is a cut, as a JSON file or as offsets such as '0@0=120 1@0=7'; a time of arrival, such as '1h ago'; head,
    or tail.
    """
    from accel.streams.groups import ReaderGroup  # noqa: PLC0415 - likewise

    opened = stream.open()
    is_new = group not in ReaderGroup.names(opened)
    begins = _cut(start, stream, opened, reader, output) if is_new and start is not None else None
    made = ReaderGroup.open(opened, group, begins)
    position = made.position()
    what = "created" if is_new else "was there"
    output.show(
        said(
            f"group {group} of {stream} {what}: it continues at {cut_text(position)}",
            group=group,
            created=is_new,
            position=numbers_by_segment(position),
        )
    )


@command(
    "List the groups of a stream, or show one.",
    "accel group list --store s3://bucket --scope shop --stream orders",
    "accel group list --store s3://bucket --scope shop --stream orders --group billing --behind",
    name="list",
    group=groups_group,
)
@limit_option(1000, "The maximum number; 0 for all.")
@click.option("--behind", is_flag=True, help="Of one: how much is unread, also if the lag is known; reads some events.")
@click.option("--group", callback=read_by(parse_name), help="The name of one to show.")
@stream_reader_options
def list_groups(
    *, limit: int, behind: bool, group: str | None, stream: StreamChoice, reader: ReaderChoice, output: Output
) -> None:
    """List the groups of readers of a stream, in the order of their encoded names.

    With --group: the segments that it reads, its position, and its readers: shares, lag and leases. Other readers take
    over from a reader that is silent for longer than its lease. A lag is the last report, within the lease; it is
    unknown if there is none. Then, or with --behind, the command shows how much is unread: what exists after the
    group's position.
    """
    from accel.streams.groups import ReaderGroup  # noqa: PLC0415 - other commands start without it

    opened = stream.open()
    if group is None:
        output.show(shown_names("groups", ReaderGroup.names(opened), limit))
        return
    found = _existing(opened, group)
    state, now_ms = found.state(), opened.parts.store.now_ms()
    left: int | None = None
    if behind or state.lag(now_ms) is None:
        left = found.behind(_cut(Place(TAIL), stream, opened, reader, output))
    unit = opened.configuration().offset_unit.value
    output.show(_shown_state(group, state, left, unit, now_ms))


@command(
    "Move a group to another position; a dry run without --yes.",
    "accel group reset --store s3://bucket --scope shop --stream orders --group billing --to '1h ago' --yes",
    group=groups_group,
)
@click.option("--to", "place", metavar="PLACE", required=True, callback=read_by(parse_place), help="The new position.")
@click.option("--evict", is_flag=True, help="Remove the readers from the group; they join again.")
@yes_option("Move it; without it nothing is changed.")
@group_option
@stream_reader_options
def reset(
    *, group: str, place: Place, evict: bool, yes: bool, stream: StreamChoice, reader: ReaderChoice, output: Output
) -> None:
    """Move a group to another position, before or after its present one.

    A PLACE is as for `create`. The command is refused while the group has readers, unless --evict removes them.
    """
    opened = stream.open()
    found = _existing(opened, group)
    before, after = found.position(), _cut(place, stream, opened, reader, output)
    if yes:
        after = dict(found.reset(after, evict=evict))
    data = {"from": numbers_by_segment(before), "to": numbers_by_segment(after)}
    moved = f"{cut_text(before)} -> {cut_text(after)}"
    sentence = f"group {group}: {moved}" if yes else f"dry run: group {group}: {moved} (--yes does it)"
    output.show(said(sentence, group=group, dry_run=not yes, **data))


@command(
    "Declare a reader dead.",
    "accel group offline --store s3://bucket --scope shop --stream orders --group billing --reader one",
    group=groups_group,
)
@click.option("--reader", "name", required=True, callback=read_by(parse_name), help="The reader's name.")
@group_option
@stream_options
def offline(*, group: str, name: str, stream: StreamChoice, output: Output) -> None:
    """Assign the segments of a reader to the others now, before its lease expires, from its last reported position.

    A reader that is still running finds out with its next call, and joins again.
    """
    found = _existing(stream.open(), group)
    was_there = name in [each.name for each in found.state().readers]
    found.reader_offline(name)
    what = "is out of" if was_there else "was not in"
    output.show(said(f"reader {name} {what} group {group}", group=group, reader=name, was_there=was_there))


@command(
    "Delete a group; a dry run without --yes.",
    "accel group delete --store s3://bucket --scope shop --stream orders --group billing --yes",
    group=groups_group,
)
@yes_option("Delete; without it nothing is changed.")
@group_option
@stream_options
def delete(*, yes: bool, group: str, stream: StreamChoice, output: Output) -> None:
    """Delete a group and its position; a missing group counts as deleted."""
    from accel.streams.groups import ReaderGroup  # noqa: PLC0415 - likewise

    opened = stream.open()
    exists = group in ReaderGroup.names(opened)
    if not exists:
        output.show(said(f"there is no group {group} of {stream}", group=group, dry_run=not yes, exists=False))
        return
    found = ReaderGroup.open(opened, group)
    count = len(found.state().readers)
    if yes:
        found.delete()
    would = "deleted" if yes else f"with {count_text(count, 'reader')} would be deleted (--yes does it)"
    sentence = f"group {group} of {stream} {would}"
    output.show(said(sentence if yes else f"dry run: {sentence}", group=group, dry_run=not yes, exists=not yes))


def _existing(stream: Stream, name: str) -> ReaderGroup:
    """An existing group; does not create one.

    Raises:
        NotInHistory: it does not exist.
    """
    from accel.streams.groups import ReaderGroup  # noqa: PLC0415 - likewise

    if name not in ReaderGroup.names(stream):
        raise NotInHistory(f"expected a reader group of {stream.name}, found none named {name!r}", Sought.GROUP)
    return ReaderGroup.open(stream, name)


def _cut(place: Place, choice: StreamChoice, stream: Stream, reader: ReaderChoice, output: Output) -> dict[int, int]:
    if not place.needs_data:
        cut = place.cut(stream)
        stream.cuts.place_valid(cut)
        choice.refuse_beyond(stream, output, cut, is_read_here=True)
        return cut
    from accel.streams.segment_source import ObjectSegmentSource  # noqa: PLC0415 - likewise

    store = reader.store.open()
    with reader.open(store) as opened:
        return place.cut(stream, ObjectSegmentSource(stream, opened.accelerator, store))


def _shown_state(group: str, state: GroupState, left: int | None, unit: str, now_ms: int) -> Shown:
    readers, lag = state.readers, state.lag(now_ms)
    owners = [readers[owner].name if owner >= 0 else None for owner in state.owners.tolist()]
    segments = [
        segment_data(each, offset=offset, reader=owner)
        for each, offset, owner in zip(state.segments, state.offsets.tolist(), owners, strict=True)
    ]
    shares = Counter(owners)
    data = {
        "group": group,
        "position": numbers_by_segment(state.position()),
        "lag_seconds": None if lag is None else lag / MILLISECONDS,
        "behind": left,
        "unit": unit,
        "segments": segments,
        "readers": [_reader_data(each, shares[each.name], now_ms) for each in readers],
    }
    return Shown(data, _lines(data, cut_text(state.position())))


def _lines(data: Fields, position: str) -> Iterator[Rendered]:
    segments, readers, lag, left = (data[name] for name in ("segments", "readers", "lag_seconds", "behind"))
    yield table_of(
        segments, *SEGMENT_COLUMNS, Column("offset", "offset"), word("reader", lambda each: each["reader"] or "-")
    )
    yield ""
    if readers:
        yield table_of(
            readers,
            word("reader", "reader"),
            Column("segments", "segments"),
            Column("lag", lambda each: _lag_text(each["lag_seconds"])),
            Column("lease", lambda each: time_text(each["lease_seconds"]) if each["lease_seconds"] else "none"),
        )
        yield ""
    sentence = f"group {data['group']}: {count_text(len(segments), 'segment')}, {count_text(len(readers), 'reader')}"
    sentence += f", lag {_lag_text(lag)}" + (": not reported within a lease" if lag is None else "")
    yield sentence + ("" if left is None else f", {left} {data['unit']} behind the tail")
    yield f"continues at {position}"


def _lag_text(lag_seconds: float | None) -> str:
    return "unknown" if lag_seconds is None else time_text(lag_seconds)


def _reader_data(reader: GroupMember, segments: int, now_ms: int) -> dict[str, Any]:
    lease_seconds = reader.lease.milliseconds / MILLISECONDS if any(reader.lease) else None
    lag = reader.lag_at(now_ms)
    return {
        "reader": reader.name,
        "segments": segments,
        "host": reader.host or None,
        "lag_seconds": None if lag is None else lag / MILLISECONDS,
        "lease_seconds": lease_seconds,
        "renewals": reader.lease.renewals,
    }
