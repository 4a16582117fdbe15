"""`accel stream scale`, `seal`, `truncate`, `recover`, `delete` and `requests`: change a stream.

A scale leaves a request for the process that holds the segments; `requests` shows its state, and whether a scale is
under way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import click

from accel.cli.options import EXIT_FAILED, command, end_with, option, yes_option
from accel.cli.stream.history import shown_epoch
from accel.cli.stream.notation import Moment, cut_text, given_ms, moment_ms_text, numbers_by_segment, parse_range
from accel.cli.stream.options import (
    ScopeChoice,
    StreamChoice,
    cut_options,
    holder_option,
    moment_option,
    parse_name,
    read_by,
    scope_options,
    stream_options,
)
from accel.errors import InvalidArgument, NotInHistory
from accel.history.rules.requests import RequestStatus, ScalePlan
from accel.history.rules.retention import place_truncation, refuse_truncation
from accel.history.rules.states import refuse_undeletable
from accel.history.rules.values import parse_segment, segment_text, some_ids
from accel.rendering import Column, Fields, Output, Shown, said, shown_rows, word
from accel.units import count_text

if TYPE_CHECKING:
    from accel.history.rules.epochs import EpochRecord
    from accel.history.rules.requests import WorkflowRequest
    from accel.history.rules.segments import Segments
    from accel.history.store import Stream, StreamStore

PARTS = 2
SHOWN_IDS_MAX = 20
LISTED_IDS_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """What to scale of a stream: a segment is divided, or some are merged, or some are sealed for others of given keys.

    Args:
        divided: the segment to divide; None = another kind of scale.
        into: number of its parts; None = `PARTS`.
        merged: the segments to merge.
        sealed: the segments to seal.
        ranges: the keys of the new segments.
    """

    divided: int | None
    into: int | None
    merged: tuple[int, ...]
    sealed: tuple[int, ...]
    ranges: tuple[tuple[float, float], ...]

    def refuse_contradictions(self) -> None:
        """Refuse options that contradict each other.

        Raises:
            click.UsageError: some do.
        """
        if sum((self.divided is not None, bool(self.merged), bool(self.sealed or self.ranges))) != 1:
            raise click.UsageError("Expected one of '--split', '--merge', and '--seal' with '--range'.")
        if self.into is not None and self.divided is None:
            raise click.UsageError("Expected '--split' with '--into'.")
        if len(self.merged) == 1:
            raise click.UsageError("Expected two segments or more, such as --merge 2@1 --merge 3@1.")
        if bool(self.sealed) != bool(self.ranges):
            raise click.UsageError("Expected '--seal' and '--range' together.")

    @property
    def ids(self) -> Sequence[int]:
        """The segments that it seals."""
        return self.merged or self.sealed if self.divided is None else [self.divided]

    def ask(self, stream: Stream, time_ms: int | None) -> UUID:
        """Leave a request for it."""
        if self.divided is not None:
            return stream.request_split(self.divided, self.into or PARTS, time_ms)
        if self.merged:
            return stream.request_merge(*self.merged, time_ms=time_ms)
        return stream.request_scale(self.sealed, self.ranges, time_ms)

    def act(self, stream: Stream, time_ms: int | None) -> EpochRecord:
        """Do it."""
        if self.divided is not None:
            return stream.split(self.divided, self.into or PARTS, time_ms)
        if self.merged:
            return stream.merge(*self.merged, time_ms=time_ms)
        return stream.scale(self.sealed, self.ranges, time_ms)


@command(
    "Split or merge segments, or replace them by others.",
    "accel stream scale --store s3://bucket --scope shop --stream orders --split 0@0 --into 4",
    "accel stream scale --store s3://bucket --scope shop --stream orders --merge 2@1 --merge 3@1",
    "accel stream scale --store s3://bucket --scope shop --stream orders \\",
    "  --seal 0@0 --range 0.0:0.25 --range 0.25:0.5",
)
@click.option(
    "--split", "divided", metavar="N@E", callback=read_by(parse_segment), help="A segment to divide evenly by its keys."
)
@click.option(
    "--into", type=click.IntRange(min=2), metavar="PARTS", help=f"With --split: how many; {PARTS} by default."
)
@click.option(
    "--merge",
    "merged",
    metavar="N@E",
    multiple=True,
    callback=read_by(parse_segment),
    help="A segment to merge with others of adjacent keys; may be repeated.",
)
@click.option(
    "--seal",
    "sealed",
    metavar="N@E",
    multiple=True,
    callback=read_by(parse_segment),
    help="A segment to seal; may be repeated.",
)
@click.option(
    "--range",
    "ranges",
    metavar="START:END",
    multiple=True,
    callback=read_by(parse_range),
    help="Keys of a new segment; may be repeated. Together they are exactly those of the sealed ones.",
)
@moment_option("--time", "Time of the scale; now by default.")
@holder_option
@stream_options
def scale(*, time: Moment | None, is_held: bool, stream: StreamChoice, output: Output, **wanted: Any) -> None:
    """Seal some segments, and create others in their place.

    Leaves a request for the process that holds the segments, and prints its id. With --data-elsewhere it scales at
    once, and shows the next epoch; repeat it if it was interrupted.
    """
    scaling = Scaling(**wanted)
    scaling.refuse_contradictions()
    opened = stream.open(is_held=is_held, may_be_here=True)
    time_ms = given_ms(time, opened.parts.store.now_ms)
    if not is_held:
        asked = opened.scale_status(scaling.ask(opened, time_ms))
        output.show(shown_request(asked, waiting_note(asked)))
        return
    _refuse_ends_here(stream, opened, scaling.ids, output)
    output.show(shown_epoch(scaling.act(opened, time_ms)))


@command(
    "Seal a stream permanently; a dry run without --yes.",
    "accel stream seal --store s3://bucket --scope shop --stream orders --yes",
)
@yes_option("Seal; without it nothing is changed.")
@holder_option
@stream_options
def seal(*, yes: bool, is_held: bool, stream: StreamChoice, output: Output) -> None:
    """Seal a stream permanently: open transactions are aborted, and no event can be written to it any more."""
    opened = stream.open(is_held=is_held, may_be_here=True)
    if is_held:
        active = opened.active_segments().ids.tolist()
        _refuse_ends_here(stream, opened, active, output)
        if stream.ends_here(opened, active) and any(opened.transactions.each_active()):
            stream.open(is_held=True).parts.require_host("end transactions")
    if yes:
        opened.seal()
    would = f"dry run: stream {stream} would be sealed ({_who_does_it(is_held=is_held)})"
    done = f"stream {stream} sealed" if yes else would
    output.show(said(done, stream=str(stream), dry_run=not yes, state=opened.state().value))


@command(
    "Truncate a stream at a cut; a dry run without --yes.",
    "accel stream truncate --store s3://bucket --scope shop --stream orders --cut cut.json",
    "accel stream truncate --store s3://bucket --scope shop --stream orders --at 2@1=20 --at 4@2=0 --yes",
)
@yes_option("Truncate; without it nothing is changed.")
@cut_options()
@holder_option
@stream_options
def truncate(*, yes: bool, cut: dict[int, int], is_held: bool, stream: StreamChoice, output: Output) -> None:
    """Truncate a stream at a cut: the data before it are deleted.

    Without --yes it checks the cut, and shows what would be deleted. A cut after the end of a segment is refused, if
    the end is known: of sealed segments, and of data in the bucket's catalog. Otherwise a note says so.
    """
    opened = stream.open(is_held=is_held)
    stream.refuse_beyond(opened, output, cut)
    if opened.parts.has_host:
        opened.parts.require_host("truncate")
    if not yes:
        output.show(_planned_truncation(opened, cut))
        return
    done = opened.truncate(cut)
    sentence = f"{stream} begins at {cut_text(done.cut)}; {count_text(done.deleted_count, 'segment')} deleted so far"
    data = {"stream": str(stream), "dry_run": False, "cut": numbers_by_segment(done.cut)}
    data |= {"deleted_count": done.deleted_count, "truncated_size": done.size_till}
    output.show(Shown(data, (sentence,)))


@command(
    "Finish workflows of crashed processes.",
    "accel stream recover --store s3://bucket",
    "accel stream recover --store s3://bucket --scope shop --stream orders",
)
@option("--stream", callback=read_by(parse_name), help="The stream; without it, all streams of the scope.")
@holder_option
@scope_options
def recover(*, stream: str | None, is_held: bool, scope: ScopeChoice, output: Output) -> None:
    """Finish interrupted workflows in one stream, in all streams of --scope, or in all streams.

    It may run at any time, beside other processes. A stream that fails does not stop the others; the command then names
    it, and exits with 1. Workflows that need the process that holds the segments fail without --data-elsewhere.
    """
    store = scope.open(is_held=is_held)
    if stream is not None:
        done, failed = _recovered(store, scope.scope, stream), dict[str, str]()
    else:
        recovered = store.recover(scope.name)
        done, failed = recovered.done, recovered.failed
    lines = [f"{name}: {', '.join(what)}" for name, what in done.items()]
    lines += [f"failed: {name}: {error}" for name, error in failed.items()]
    output.show(Shown({"recovered": done, "failed": failed}, tuple(lines or ["nothing was left unfinished"])))
    if failed:
        end_with(EXIT_FAILED)


@command(
    "Delete a sealed stream; a dry run without --yes.",
    "accel stream delete --store s3://bucket --scope shop --stream orders --yes",
)
@yes_option("Delete; without it nothing is changed.")
@holder_option
@stream_options
def delete(*, yes: bool, is_held: bool, stream: StreamChoice, output: Output) -> None:
    """Delete a stream that is sealed or was not completely created; a missing stream counts as deleted."""
    store = stream.scope.open(is_held=is_held)
    if yes:
        store.delete_stream(stream.scope.scope, stream.name)
        output.show(said(f"stream {stream} deleted", stream=str(stream), dry_run=False, exists=False))
        return
    exists = _refuse_undeletable(store, stream)
    who = _who_does_it(is_held=is_held)
    would = f"stream {stream} would be deleted ({who})" if exists else f"there is no stream {stream}"
    output.show(said(f"dry run: {would}", stream=str(stream), dry_run=True, exists=exists))


def _refuse_ends_here(stream: StreamChoice, opened: Stream, sealed: Sequence[int], output: Output) -> None:
    """Refuse to seal segments that have data in the bucket's catalog; note which sizes count as 0.

    Raises:
        InvalidArgument: the catalog has data of a segment that is not sealed yet.
    """
    for segment_id, end in stream.ends_here(opened, sealed).items():
        if end:
            raise InvalidArgument(
                f"expected the size of segment {segment_text(segment_id)} in this bucket's catalog, {end}, found "
                f"0: leave a request, without --data-elsewhere"
            )
    output.note(f"the size of {_ids_text(sorted(sealed), len(sealed))} counts 0 unless it is recorded already")


def _refuse_undeletable(store: StreamStore, stream: StreamChoice) -> bool:
    """Refuse in the same cases as a deletion; returns whether the stream exists."""
    try:
        found = store.stream(stream.scope.scope, stream.name)
        refuse_undeletable(found.state())
        if found.parts.has_host:
            found.parts.require_host("delete")
    except NotInHistory:
        return _is_listed(store, stream)
    return True


def _is_listed(store: StreamStore, stream: StreamChoice) -> bool:
    try:
        return stream.name in store.streams(stream.scope.scope)
    except NotInHistory:
        return False


def _recovered(store: StreamStore, scope: str, name: str) -> dict[str, list[str]]:
    done = store.recover_stream(scope, name)
    return {f"{scope}/{name}": done} if done else {}


def _planned_truncation(stream: Stream, cut: dict[int, int]) -> Shown:
    now, reading = stream.truncation(), stream.cuts
    if now.updating and now.cut == cut:
        gone, count, size = reading.being_deleted(now), now.to_delete_count, 0
    else:
        last, wanted = place_truncation(now), reading.place(cut)
        refuse_truncation(now, wanted, stream.state(), is_valid=stream.cuts.is_valid(cut))
        count, size = stream.workflows.truncations.what_ends(last, wanted)
        gone = reading.ending(last, wanted)
    listed = _first_ids(gone, LISTED_IDS_MAX)
    unit = stream.configuration().offset_unit.value
    data = {
        "stream": stream.name,
        "dry_run": True,
        "cut": numbers_by_segment(cut),
        "to_delete_count": count,
        "to_delete": [segment_text(segment_id) for segment_id in listed],
        "size": size,
    }
    would = f"{_ids_text(listed, count)} and {size} {unit} in all would be deleted"
    return Shown(data, (f"dry run: {would} ({_who_does_it(is_held=stream.parts.has_host)})",))


def _who_does_it(*, is_held: bool) -> str:
    held = "the process that holds the segments does it; --yes only with --data-elsewhere, if their data is elsewhere"
    return "--yes does it" if is_held else held


def _first_ids(parts: Iterable[Segments], limit: int) -> list[int]:
    ids = chain.from_iterable(part.ids.tolist() for part in parts)
    return list(islice(ids, limit))


def _ids_text(ids: list[int], count: int) -> str:
    shown = ", ".join(segment_text(segment_id) for segment_id in ids[:SHOWN_IDS_MAX])
    more = ", ..." if count > SHOWN_IDS_MAX else ""
    return count_text(count, "segment") + (f" ({shown}{more})" if shown else "")


RANGES_SHOWN_MAX = 5


@command(
    "Show requests of workflows, and whether a scale is under way.",
    "accel stream requests --store s3://bucket --scope shop --stream orders --epoch 4",
    "accel stream requests --store s3://bucket --scope shop --stream orders --id ID",
)
@click.option("--id", "request_id", type=click.UUID, help="One request; without it, all requests of the stream.")
@click.option(
    "--epoch",
    type=click.IntRange(0),
    help="The epoch in which a scale was requested; the current one by default.",
)
@stream_options
def requests(*, request_id: UUID | None, epoch: int | None, stream: StreamChoice, output: Output) -> None:
    """Show the requests of a stream: those that wait, those under way, and the last 100 that ended.

    The process that holds the segments carries waiting requests out. The last line says whether the stream has left
    --epoch ("done"), is about to leave it ("under way"), or neither ("none"). The history stores when an epoch began,
    not its reason: the metrics of the process that holds the segments count scales by policies that are done.
    """
    opened = stream.open()
    if request_id is not None:
        output.show(shown_request(opened.scale_status(request_id)))
        return
    current = opened.current_epoch()
    since = current.epoch if epoch is None else epoch
    progress, known = opened.scale_progress(since).value, opened.requests()
    data = {
        "requests": [_data(request) for request in known],
        "epoch": since,
        "progress": progress,
        "current_epoch": current.epoch,
        "current_epoch_ms": current.creation_time_ms,
        "segments": len(current.segments),
    }
    count, waiting = len(current.segments), sum(_is_open_scale(request) for request in known)
    now = f"now epoch {current.epoch}, begun {moment_ms_text(current.creation_time_ms)}"
    sentence = f"scale since epoch {since}: {progress}; {now}, with {count_text(count, 'segment')};"
    sentence += f" {count_text(waiting, 'request')} open"
    output.show(shown_rows(data, "requests", _REQUEST_COLUMNS, count_text(len(known), "request"), sentence))


def _is_open_scale(request: WorkflowRequest) -> bool:
    return isinstance(request.plan, ScalePlan) and request.status in {RequestStatus.WAITING, RequestStatus.CLAIMED}


def shown_request(request: WorkflowRequest, note: str = "") -> Shown:
    """One request, with a note on the next step."""
    data = _data(request)
    reason = f": {request.reason}" if request.reason else ""
    lines = (f"{data['request']}  {data['status']}  {_what(data)}{reason}",)
    return Shown(data, (*lines, note) if note else lines)


def waiting_note(request: WorkflowRequest) -> str:
    """How to follow a request."""
    if request.status is not RequestStatus.WAITING:
        return ""
    return (
        "the process that holds the segments carries it out; accel stream requests"
        f" --id {request.workflow_id} shows its state"
    )


def _what(request: Fields) -> str:
    if "seal" not in request:
        return str(request["workflow"]).lower()
    shown = ", ".join(f"[{start}, {end})" for start, end in request["ranges"][:RANGES_SHOWN_MAX])
    more = ", ..." if len(request["ranges"]) > RANGES_SHOWN_MAX else ""
    who = ", by a policy" if request["by_policy"] else ""
    sealed = some_ids(list(map(parse_segment, request["seal"])))
    return f"scale of {sealed} to {shown}{more} of {moment_ms_text(request['time_ms'])}{who}"


_REQUEST_COLUMNS: Final[tuple[Column[Fields], ...]] = (
    word("request", "request"),
    word("status", "status"),
    word("workflow", _what),
)


def _data(request: WorkflowRequest) -> dict[str, Any]:
    data: dict[str, Any] = {
        "request": str(request.workflow_id),
        "status": request.status.value,
        "workflow": request.workflow.value,
        "asked_for": request.is_kept,
        "reason": request.reason,
    }
    if isinstance(request.plan, ScalePlan):
        transition = request.plan.transition
        data["time_ms"] = transition.time_ms
        data["by_policy"] = not request.plan.is_manual
        data["seal"] = [segment_text(segment_id) for segment_id in transition.segments_to_seal.ids.tolist()]
        data["ranges"] = [list(new_range) for new_range in transition.new_ranges]
    return data
