"""`accel stream create`, `configure`, `list` and `describe`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from accel.cli.options import TIME, Command, command, limit_option
from accel.cli.stream.notation import Moment, cut_text, given_ms, moment_ms_text, numbers_by_segment
from accel.cli.stream.options import ScopeChoice, StreamChoice, moment_option, scope_options, stream_options
from accel.history.rules.configuration import (
    SEGMENTS_MAX,
    OffsetUnit,
    RetentionKind,
    RetentionPolicy,
    ScalingKind,
    ScalingPolicy,
    StreamConfiguration,
)
from accel.rendering import Column, Fields, Output, Shown, field_lines, shown_names
from accel.units import age_text, count_text

if TYPE_CHECKING:
    from accel.history.store import Stream

HEAD_SHOWN_MAX: Final = 8
"""Limit of segments of a head in the text; JSON has all of them."""


def configuration_options(command: Command) -> Command:
    """Options of a stream's configuration; `_configuration` reads them."""
    for decorate in (
        click.option("--tag", "tags", multiple=True, help="A word to find the stream by; may be repeated."),
        click.option(
            "--unit",
            type=click.Choice([unit.value for unit in OffsetUnit]),
            default=OffsetUnit.RECORDS.value,
            show_default=True,
            help="The unit of offsets and sizes; it never changes.",
        ),
        click.option("--keep-size-max", type=int, metavar="SIZE", help="Keep no more than this, with --keep-size."),
        click.option("--keep-size", type=int, metavar="SIZE", help="Keep at least this size, in the offset unit."),
        click.option("--keep-max", type=TIME, metavar="TIME", help="Keep no more than this, with --keep."),
        click.option("--keep", type=TIME, metavar="TIME", help="Keep at least this much time, such as 7d."),
        click.option(
            "--scale-factor", type=int, metavar="N", help="Number of parts that a hot segment is split into; default 2."
        ),
        click.option(
            "--scale-kilobytes", type=int, metavar="RATE", help="Target rate of a segment, in kilobytes a second."
        ),
        click.option("--scale-events", type=int, metavar="RATE", help="Target rate of a segment, in events a second."),
        click.option("--min-segments", type=int, default=1, show_default=True, help="Minimum number of segments."),
    ):
        command = decorate(command)
    return command


@command(
    "Create a stream.",
    "accel stream create --store s3://bucket --scope shop --stream orders --min-segments 2",
    "accel stream create --store s3://bucket --scope shop --stream clicks --keep 7d --tag web",
)
@configuration_options
@click.option(
    "--segments", type=click.IntRange(1, SEGMENTS_MAX), help="Number of segments at first; --min-segments by default."
)
@moment_option("--time", "Time of its creation; now by default.")
@stream_options
def create(*, segments: int | None, time: Moment | None, stream: StreamChoice, output: Output, **wanted: Any) -> None:
    """Create a stream, or finish one that was not completely created; an existing stream is not changed.

    A missing scope is created.
    If options are given, an existing stream with another configuration is refused.
    """
    asked = _configuration(wanted) if _given(wanted) else None
    store = stream.scope.open()
    time_ms = given_ms(time, store.now_ms)
    store.create_scope(stream.scope.scope)
    made = store.create_stream(stream.scope.scope, stream.name, asked, time_ms, segments=segments)
    data = {**described(made).data, "created": made.is_new}
    since = moment_ms_text(data["epoch_time_ms"])
    what = "created" if made.is_new else "was there"
    sentence = (
        f"stream {stream} {what}: {count_text(data['segments'], 'segment')} of epoch {data['epoch']}, since {since}"
    )
    output.show(Shown(data, (sentence,)))


@command(
    "Change the configuration of a stream.",
    "accel stream configure --store s3://bucket --scope shop --stream orders --min-segments 4 --keep 7d",
)
@configuration_options
@click.option("--no-tags", is_flag=True, help="Remove all tags.")
@click.option("--no-retention", is_flag=True, help="Remove the retention policy: all data are kept.")
@click.option("--no-scaling", is_flag=True, help="Remove the scaling policy; manual scales still work.")
@stream_options
def configure(*, stream: StreamChoice, output: Output, **wanted: Any) -> None:
    """Change the configuration of a stream, and show it before and after; fields without an option are not changed.

    --scale-events, --scale-kilobytes and --scale-factor replace the scaling policy as a whole, and --keep... the
    retention policy; --no-scaling and --no-retention remove them. The offset unit never changes.
    """
    off = {field: wanted.pop(f"no_{field}") for field in ("scaling", "retention", "tags")}
    given, asked = _given(wanted), _configuration(wanted)
    changed = {field: getattr(asked, field) for field, options in _OPTIONS_OF.items() if given & options}
    for field in (field for field, is_off in off.items() if is_off):
        if field in changed:
            raise click.UsageError(f"Expected --no-{field}, or options that say which, found both.")
        changed[field] = getattr(StreamConfiguration(), field)
    if not changed:
        raise click.UsageError("Expected something to change, such as '--min-segments'.")
    opened = stream.open()
    before = opened.configuration()
    opened.configure(replace(before, **changed))
    output.show(_shown_change(opened, _configuration_data(before)))


def _shown_change(stream: Stream, was: Fields) -> Shown:
    after = described(stream)
    now = after.data["configuration"]
    lines = {each.title: f"{each.of(was)} -> {each.of(now)}" for each in _CONFIGURATION if each.of(was) != each.of(now)}
    sentence = f"stream {stream.name}: {count_text(len(lines), 'setting')} changed"
    found, least = after.data["segments"], now["min_segments"]
    if found < least:
        sentence += f"; it has {count_text(found, 'segment')}: the process that writes it splits some, until there are "
        sentence += f"{least}, when it next looks for requests"
    return Shown({**after.data, "before": was}, (*field_lines(lines), sentence))


def _given(wanted: dict[str, Any]) -> set[str]:
    """The options that were given, whatever their values."""
    context = click.get_current_context()
    return {name for name in wanted if context.get_parameter_source(name) is not ParameterSource.DEFAULT}


_OPTIONS_OF = {
    "min_segments": {"min_segments"},
    "scaling": {"scale_events", "scale_kilobytes", "scale_factor"},
    "retention": {"keep", "keep_max", "keep_size", "keep_size_max"},
    "offset_unit": {"unit"},
    "tags": {"tags"},
}


@command(
    "List the streams of a scope, or all scopes.",
    "accel stream list --store s3://bucket --scope shop",
    "accel stream list --store s3://bucket --output json",
    name="list",
)
@limit_option(1000, "The maximum number; 0 for all.")
@scope_options
def list_streams(*, limit: int, scope: ScopeChoice, output: Output) -> None:
    """List the streams of a scope, half-created ones included, in the order of their encoded names.

    Without --scope and ACCEL_SCOPE: all scopes.
    """
    store = scope.open()
    if scope.name is None:
        output.show(shown_names("scopes", store.scopes(), limit))
    else:
        output.show(shown_names("streams", store.streams(scope.name), limit))


@command(
    "Show the configuration and state of a stream.",
    "accel stream describe --store s3://bucket --scope shop --stream orders",
)
@stream_options
def describe(*, stream: StreamChoice, output: Output) -> None:
    """Show a stream's state, configuration, current epoch, and head.

    Times after now, of the current epoch or of events in sealed segments, were written by a process with a wrong clock.
    No workflow waits for them.
    """
    output.show(described(stream.open()))


def described(stream: Stream) -> Shown:
    """A stream and its state."""
    current, truncation = stream.current_epoch(), stream.truncation()
    wanted, created_ms, state, head = stream.configuration(), stream.creation_time_ms(), stream.state(), stream.head()
    until_ms = max(current.creation_time_ms, current.sealed_until_ms)
    ahead_ms = until_ms if until_ms > stream.parts.store.latest_ms() else None
    data = {
        "stream": stream.name,
        "unique_id": str(stream.unique_id),
        "state": state.value,
        "creation_time_ms": created_ms,
        "epoch": current.epoch,
        "epoch_time_ms": current.creation_time_ms,
        "times_ahead_until_ms": ahead_ms,
        "segments": len(current.segments),
        "head": numbers_by_segment(head),
        "truncated_size": truncation.size_till,
        "deleted_segments": truncation.deleted_count,
        "truncating": truncation.updating,
        "configuration": _configuration_data(wanted),
    }
    fields = {
        "stream": stream.name,
        "unique id": stream.unique_id,
        "state": state.value,
        "created": moment_ms_text(created_ms),
        "epoch": f"{current.epoch}, since {moment_ms_text(current.creation_time_ms)}",
        "times ahead": None if ahead_ms is None else f"until {moment_ms_text(ahead_ms)}, by a wrong clock",
        "segments": len(current.segments),
        "begins at": cut_text(head) if len(head) <= HEAD_SHOWN_MAX else count_text(len(head), "segment"),
        "truncated": f"{truncation.size_till} {wanted.offset_unit.value}" if len(truncation.cut) else None,
        **{each.title: each.of(data["configuration"]) for each in _CONFIGURATION},
    }
    return Shown(data, field_lines(fields))


def _scaling_text(scaling: Fields) -> str:
    if scaling["kind"] == ScalingKind.FIXED.value:
        return "by hand only"
    return f"at {scaling['target_rate']} {scaling['kind']} a segment, into {scaling['scale_factor']}"


def _retention_text(kept: Fields | None) -> str:
    if kept is None:
        return "everything"

    def text(limit: int) -> str:
        return age_text(limit / 1000) if kept["kind"] == RetentionKind.TIME.value else str(limit)

    most = kept["maximum"]
    return f"at least {text(kept['minimum'])}" + ("" if most is None else f", at most {text(most)}")


_CONFIGURATION: Final[tuple[Column[Fields], ...]] = (
    Column("at least", lambda wanted: count_text(wanted["min_segments"], "segment")),
    Column("scales", lambda wanted: _scaling_text(wanted["scaling"])),
    Column("keeps", lambda wanted: _retention_text(wanted["retention"])),
    Column("offsets count", "offset_unit"),
    Column("tags", lambda wanted: ", ".join(wanted["tags"]) or "none"),
)


def _configuration(wanted: dict[str, Any]) -> StreamConfiguration:
    try:
        return StreamConfiguration(
            min_segments=wanted["min_segments"],
            scaling=_scaling(wanted["scale_events"], wanted["scale_kilobytes"], wanted["scale_factor"]),
            retention=_retention(wanted),
            offset_unit=OffsetUnit(wanted["unit"]),
            tags=tuple(sorted(set(wanted["tags"]))),
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _scaling(events: int | None, kilobytes: int | None, factor: int | None) -> ScalingPolicy:
    if events is not None and kilobytes is not None:
        raise click.UsageError("Expected --scale-events or --scale-kilobytes, found both.")
    rate = kilobytes if events is None else events
    if rate is None:
        if factor is not None:
            raise click.UsageError("Expected --scale-events or --scale-kilobytes with --scale-factor.")
        return ScalingPolicy()
    kind, into = ScalingKind.BYTES if events is None else ScalingKind.EVENTS, 2 if factor is None else factor
    if rate < 1 or into < 2:
        raise click.UsageError(f"Expected a rate of at least 1 and a factor of at least 2, found {rate} and {into}.")
    return ScalingPolicy(kind, rate, into)


def _retention(wanted: dict[str, Any]) -> RetentionPolicy | None:
    times, sizes = (wanted["keep"], wanted["keep_max"]), (wanted["keep_size"], wanted["keep_size_max"])
    if sum(least is not None for least in (times[0], sizes[0])) > 1:
        raise click.UsageError("Expected --keep or --keep-size, found both.")
    for (least, most), name in ((times, "--keep"), (sizes, "--keep-size")):
        if least is None and most is not None:
            raise click.UsageError(f"Expected {name} with {name}-max.")
    if times[0] is not None:
        most_ms = None if times[1] is None else round(times[1] * 1000)
        return RetentionPolicy(RetentionKind.TIME, round(times[0] * 1000), most_ms)
    return None if sizes[0] is None else RetentionPolicy(RetentionKind.SIZE, *sizes)


def _configuration_data(wanted: StreamConfiguration) -> dict[str, Any]:
    kept, scaling = wanted.retention, wanted.scaling
    rate, factor = scaling.target_rate, scaling.scale_factor
    return {
        "min_segments": wanted.min_segments,
        "scaling": {"kind": scaling.kind.value, "target_rate": rate, "scale_factor": factor},
        "retention": kept and {"kind": kept.kind.value, "minimum": kept.minimum, "maximum": kept.maximum},
        "offset_unit": wanted.offset_unit.value,
        "tags": list(wanted.tags),
    }
