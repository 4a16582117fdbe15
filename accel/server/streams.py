"""Histories over HTTP: the segments of a stream now and in the past, recorded cuts, and the lag of groups.

All routes read tables of the bucket, in threads of the sidecar. Segments are written number@epoch, cuts are objects of
offsets by segment, times are milliseconds since 1970, offsets have the stream's own unit (docs/explanation/history.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Annotated, Any, Final, TypeVar

from msgspec import Meta, Struct
from starlette.responses import Response

from accel.errors import NotInHistory
from accel.history.rules.epochs import EpochRecord, EpochSummary
from accel.history.rules.segments import SegmentRecord
from accel.history.rules.values import read_id, segment_text
from accel.history.store import Stream
from accel.server.operations import Asked, Operation, json_response
from accel.server.sidecar import Sidecar
from accel.streams.groups import ReaderGroup
from accel.streams.segment_source import cut_at

T = TypeVar("T")

Moment = Annotated[int, Meta(ge=0, lt=10**14)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]

EPOCHS_MAX: Final = 1_000
"""Epochs, scopes or streams of one answer."""

CUTS_MAX: Final = 100
"""Recorded cuts of one answer."""


class SegmentsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Without a time: the segments of the present."""

    at_ms: Moment | None = None


class SegmentQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """One segment, as number@epoch."""

    segment: Name


class EpochsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The epochs from one time to another; the first `limit` of them."""

    from_ms: Moment = 0
    to_ms: Moment = 10**14 - 1
    limit: Annotated[int, Meta(ge=1, le=EPOCHS_MAX)] = 100


class CutsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The maximum number of recorded cuts, the last ones; each is a request to the store."""

    limit: Annotated[int, Meta(ge=1, le=CUTS_MAX)] = 20


class PageQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The maximum number of names."""

    limit: Annotated[int, Meta(ge=1, le=EPOCHS_MAX)] = 100


class LagQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Of a reader group."""

    group: Name


class Segment(Struct, frozen=True):
    """A segment and its keys; `offset` is its first offset at the requested time."""

    segment: str
    key_start: float
    key_end: float
    creation_time_ms: int
    offset: int | None = None


class Segments(Struct, frozen=True):
    """The segments of an epoch, or of a time."""

    segments: list[Segment]
    epoch: int | None = None
    at_ms: int | None = None


class Epoch(Struct, frozen=True):
    """An epoch: when it began, how many splits and merges led to it, and its segments."""

    epoch: int
    time_ms: int
    splits: int
    merges: int
    segments: list[Segment]


class Epochs(Struct, frozen=True):
    """Epochs in order; `more` is true if others follow."""

    epochs: list[Epoch]
    more: bool


class SegmentObjects(Struct, frozen=True):
    """A segment, and the id of its stream in lookups: `stream_id` of /v1/objects."""

    segment: str
    stream_id: int


class Neighbours(Struct, frozen=True):
    """The successors of a segment, each with all its predecessors."""

    segment: str
    neighbours: dict[str, list[str]]


class Head(Struct, frozen=True):
    """The cut at which the stream begins, and whether data before it are still being deleted."""

    cut: dict[str, int]
    is_deleting: bool


class RecordedCut(Struct, frozen=True):
    """A cut that retention recorded: its time, the size of the stream before it, and its offsets by segment."""

    recorded_ms: int
    size: int
    cut: dict[str, int]


class RecordedCuts(Struct, frozen=True):
    """The last recorded cuts, the newest last; `more` is true if there are older ones. Sizes have the stream's unit."""

    cuts: list[RecordedCut]
    more: bool
    unit: str


class Lag(Struct, frozen=True):
    """The lag of a group in milliseconds, by its slowest reader; and those of its readers.

    `lag_ms` is null if it is unknown: no reader reported its lag within its lease, or segments belong to a reader that
    did not; a reader that did not is null, too. `behind` is how much is unread, in `unit`, with readers or without.
    """

    group: str
    lag_ms: int | None
    behind: int
    unit: str
    readers: dict[str, int | None]


class Names(Struct, frozen=True):
    """Names in order; `more` is true if others follow."""

    names: list[str]
    more: bool


async def _ask(sidecar: Sidecar, asked: Asked, question: Callable[[Stream], T]) -> T:
    def work() -> T:
        stream = sidecar.connection.stream_store.stream(asked.path["scope"], asked.path["stream"])
        return question(stream)

    return await sidecar.in_thread(work)


def _segment(row: SegmentRecord, offset: int | None = None) -> Segment:
    return Segment(str(row), row.key_start, row.key_end, row.creation_time_ms, offset)


def _named(cut: Mapping[int, int]) -> dict[str, int]:
    return {segment_text(segment_id): offset for segment_id, offset in cut.items()}


def _epoch(epoch: EpochRecord | EpochSummary, time_ms: int) -> Epoch:
    return Epoch(epoch.epoch, time_ms, epoch.splits, epoch.merges, [_segment(row) for row in epoch.segments])


async def segments(sidecar: Sidecar, asked: Asked) -> Response:
    """`GET .../segments`: of the present, or of a time."""
    at_ms = asked.query.at_ms

    def question(stream: Stream) -> Segments:
        if at_ms is None:
            current = stream.current_epoch()
            return Segments([_segment(row) for row in current.segments], epoch=current.epoch)
        offsets = stream.segments_at(at_ms)
        rows = stream.cuts.span(offsets).segments
        return Segments([_segment(row, offsets[row.id]) for row in rows], at_ms=at_ms)

    return json_response(await _ask(sidecar, asked, question))


async def segment_stream(sidecar: Sidecar, asked: Asked) -> Response:
    """`GET .../segment`: one request to the store, as the id never changes."""
    segment_id = read_id(asked.query.segment)

    def question(stream: Stream) -> SegmentObjects:
        return SegmentObjects(segment_text(segment_id), stream.segment_stream(segment_id))

    return json_response(await _ask(sidecar, asked, question))


async def epochs(sidecar: Sidecar, asked: Asked) -> Response:
    """`GET .../epochs`."""
    query: EpochsQuery = asked.query

    def question(stream: Stream) -> Epochs:
        found = list(islice(stream.epochs.scales(query.from_ms, query.to_ms), query.limit + 1))
        return Epochs([_epoch(each, each.time_ms) for each in found[: query.limit]], len(found) > query.limit)

    return json_response(await _ask(sidecar, asked, question))


async def successors(sidecar: Sidecar, asked: Asked) -> Response:
    """`GET .../successors`."""
    segment = read_id(asked.query.segment)

    def question(stream: Stream) -> Neighbours:
        rows = stream.epochs.successors(segment)
        named = {segment_text(each): [segment_text(other) for other in others] for each, others in rows.items()}
        return Neighbours(segment_text(segment), named)

    return json_response(await _ask(sidecar, asked, question))


async def head(sidecar: Sidecar, asked: Asked) -> Response:
    """`GET .../head`."""

    def question(stream: Stream) -> Head:
        return Head(_named(stream.head()), bool(stream.truncation().updating))

    return json_response(await _ask(sidecar, asked, question))


async def recorded_cuts(sidecar: Sidecar, asked: Asked) -> Response:
    """`GET .../cuts`."""
    limit = asked.query.limit

    def question(stream: Stream) -> RecordedCuts:
        found, more = stream.retention.last_cuts(limit)
        cuts = [RecordedCut(each.recording_time_ms, each.recorded_size, _named(each.cut)) for each in found]
        return RecordedCuts(cuts, more, stream.configuration().offset_unit.value)

    return json_response(await _ask(sidecar, asked, question))


async def lag(sidecar: Sidecar, asked: Asked) -> Response:
    """`GET .../lag`."""
    group = asked.query.group
    scope, stream = asked.path["scope"], asked.path["stream"]

    def work() -> Lag:
        opened = sidecar.connection.stream_store.stream(scope, stream)
        if group not in ReaderGroup.names(opened):  # opening a group that does not exist would create it
            raise NotInHistory(f"expected a reader group of {opened.name}, found none named {group!r}")
        found, now_ms = ReaderGroup.open(opened, group), opened.parts.store.now_ms()
        state = found.state()
        sidecar.connection.accelerator.refresh()
        tail = cut_at(opened, sidecar.connection.source(opened), None)
        behind = opened.cuts.unread_size(state.position(), tail)
        readers = {each.name: each.lag_at(now_ms) for each in state.readers}
        return Lag(group, state.lag(now_ms), behind, opened.configuration().offset_unit.value, readers)

    return json_response(await sidecar.in_thread(work))


async def scopes(sidecar: Sidecar, asked: Asked) -> Response:
    """`GET /v1/scopes`."""
    most = asked.query.limit
    found = await sidecar.in_thread(lambda: list(islice(sidecar.connection.stream_store.scopes(), most + 1)))
    return json_response(Names(found[:most], len(found) > most))


async def streams(sidecar: Sidecar, asked: Asked) -> Response:
    """`GET /v1/scopes/{scope}/streams`."""
    most, scope = asked.query.limit, asked.path["scope"]
    found = await sidecar.in_thread(lambda: list(islice(sidecar.connection.stream_store.streams(scope), most + 1)))
    return json_response(Names(found[:most], len(found) > most))


def _of_stream(path: str, summary: str, answer: Any, *, reply: type[Struct], query: Any = None) -> Operation:
    full = f"/v1/streams/{{scope}}/{{stream}}/{path}"
    return Operation("GET", full, f"stream_{path}", summary, answer, query=query, reply=reply)


OPERATIONS: Final = (
    Operation("GET", "/v1/scopes", "scopes", "The scopes.", scopes, query=PageQuery, reply=Names),
    Operation(
        "GET", "/v1/scopes/{scope}/streams", "streams", "The streams of a scope.", streams, query=PageQuery, reply=Names
    ),
    _of_stream(
        "segments",
        "The segments of the present, or of a time, each with its offset at that time.",
        segments,
        query=SegmentsQuery,
        reply=Segments,
    ),
    _of_stream(
        "segment",
        "The id of a segment in lookups.",
        segment_stream,
        query=SegmentQuery,
        reply=SegmentObjects,
    ),
    _of_stream("epochs", "The epochs from one time to another.", epochs, query=EpochsQuery, reply=Epochs),
    _of_stream("successors", "The successors of a segment.", successors, query=SegmentQuery, reply=Neighbours),
    _of_stream("head", "The cut at which the stream begins.", head, reply=Head),
    _of_stream("cuts", "The last cuts that retention recorded.", recorded_cuts, query=CutsQuery, reply=RecordedCuts),
    _of_stream("lag", "The lag of a reader group.", lag, query=LagQuery, reply=Lag),
)
