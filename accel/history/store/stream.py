"""One stream: queries in five parts, and workflows by name; each call raises StreamDeleted if it was deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, cast
from uuid import UUID

from accel.errors import IllegalState, InvalidArgument, NotInHistory, ScalePrecondition, Sought, StreamDeleted
from accel.history.rules.configuration import SEGMENTS_MAX, StreamConfiguration
from accel.history.rules.epochs import EpochRecord
from accel.history.rules.requests import WorkflowRequest
from accel.history.rules.retention import TruncationRecord
from accel.history.rules.scaling import ScaleProgress, ScaleRequest
from accel.history.rules.segments import KeyRanges, Segments, merge_touching, split_range
from accel.history.rules.states import StreamState
from accel.history.rules.transactions import CommittingTransactions
from accel.history.rules.values import (
    Cut,
    IdMap,
    SegmentId,
    checked_arguments,
    checked_id,
    checked_integer,
    checked_keys,
    checked_uuid,
    read_id,
    segment_text,
    some_ids,
)
from accel.history.store.cut_reading import as_cut
from accel.history.store.parts import StreamParts
from accel.history.store.recovering import Recovering, Workflows
from loaders.errors import DataNotFound

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")
Part = TypeVar("Part")

TELL_NOTHING: Final = frozenset({"abort", "seal", "status"})
"""Calls that may return a result although the stream does not exist; a result of another call proves that it exists."""


class _CheckedPart:
    """A part of a stream; if the stream was deleted, its calls raise StreamDeleted, not other errors or empty results.

    Args:
        part: carries out the calls.
        parts: the parts of the stream.
    """

    def __init__(self, part: object, parts: StreamParts) -> None:
        self._part = part
        self._parts = parts

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._part, name)
        return partial(_answer, self._parts, name not in TELL_NOTHING, member) if callable(member) else member


def _asked(method: Callable[Concatenate[Stream, Asked], Answer]) -> Callable[Concatenate[Stream, Asked], Answer]:
    """Let a method of `Stream` raise StreamDeleted if the stream was deleted."""

    @wraps(method)
    def asked(self: Stream, /, *args: Asked.args, **kwargs: Asked.kwargs) -> Answer:
        return _answer(self.parts, True, partial(method, self), *args, **kwargs)

    return asked


def _answer(
    parts: StreamParts, proves: bool, call: Callable[Asked, Answer], /, *args: Asked.args, **kwargs: Asked.kwargs
) -> Answer:
    """The result of a call; `proves` = a result that is not empty means that the stream exists."""
    with _refused_if_deleted(parts):
        answer = call(*args, **kwargs)
    if isinstance(answer, Iterator):
        return cast("Answer", _one_by_one(parts, answer))
    if not proves or answer is None or (isinstance(answer, bool | int | list | dict) and not answer):
        _refuse_deleted(parts)
    return answer


def _one_by_one(parts: StreamParts, answers: Iterator[Answer]) -> Iterator[Answer]:
    is_empty = True
    with _refused_if_deleted(parts):
        for answer in answers:
            is_empty = False
            yield answer
    if is_empty:
        _refuse_deleted(parts)


@contextmanager
def _refused_if_deleted(parts: StreamParts) -> Iterator[None]:
    try:
        yield
    except StreamDeleted:
        raise
    except (DataNotFound, NotInHistory, IllegalState) as error:
        _refuse_deleted(parts, error)
        raise


def _refuse_deleted(parts: StreamParts, error: Exception | None = None) -> None:
    """Raise StreamDeleted if the stream's table of metadata is gone. 1 request.

    A deletion drops this table last, and it is never created again.
    """
    stream = parts.stream
    if not parts.store.tables.table_exists(stream.metadata_table):
        raise StreamDeleted(str(stream), str(stream.unique_id)) from error


@checked_arguments
class Stream:
    """An existing stream; `StreamStore.stream` opens it. Threads: any.

    Every call reads the tables again, except for data that never changes. Cuts are offsets by segment id, in the
    stream's offset unit; times are milliseconds since 1970, 0 <= ms < 10^14.

    Invalid numbers and texts raise InvalidArgument before anything is written (`accel.history.rules.values`). When the
    stream was deleted, every method raises StreamDeleted, also if there is a new stream of its name. Data that never
    changes and was read before is still returned from memory: an epoch, a segment, its predecessors,
    `creation_time_ms`, positions of cuts.

    Args:
        parts: the parts of the stream.
        is_new: whether the call that returned it created it.

    Attributes:
        is_new: as above; set by `StreamStore.create_stream`.
        parts: as above; used by other modules of this library, such as groups of readers.
        workflows: single steps of the workflows, which do not report that the stream was deleted.
        epochs: queries about epochs and segments.
        cuts: queries about stream cuts.
        retention: recorded cuts, and runs of retention.
        transactions: its transactions.
    """

    def __init__(self, parts: StreamParts, *, is_new: bool = False) -> None:
        self.parts = parts
        self.is_new = is_new
        self.workflows = Workflows.of(parts)
        self._recovering = Recovering(parts, self.workflows)
        self.epochs = self._checked(self.workflows.epochs)
        self.cuts = self._checked(self.workflows.cuts)
        self.retention = self._checked(self.workflows.retention)
        self.transactions = self._checked(self.workflows.transactions)

    def __repr__(self) -> str:
        return f"Stream({str(self.parts.stream)!r})"

    # State

    @property
    def name(self) -> str:
        """Scope and name."""
        return str(self.parts.stream)

    @property
    def unique_id(self) -> UUID:
        """The id that distinguishes it from earlier streams of its name."""
        return self.parts.stream.unique_id

    @_asked
    def state(self) -> StreamState:
        """The state of the stream. 1 call."""
        return self.parts.state()

    @_asked
    def configuration(self) -> StreamConfiguration:
        """The configuration of the stream. 1 call."""
        return self.workflows.updating.read().configuration

    @_asked
    def creation_time_ms(self) -> int:
        """The time of the stream's creation. 1 call."""
        return self.parts.keys.creation_time().get().value

    @_asked
    def segment_stream(self, segment_id: SegmentId) -> int:
        """The stream of the object layer with a segment's data; NotInHistory if there is no such segment. 1 call."""
        segment_id = read_id(segment_id)
        versioned = self.parts.keys.segment_stream(segment_id).read()
        if versioned is None:
            raise NotInHistory(f"expected a segment of {self}, found {segment_text(segment_id)}", Sought.SEGMENT)
        self.parts.store.segment_streams.note(versioned.value)
        return versioned.value

    @_asked
    def segment_streams(self, segment_ids: Iterable[SegmentId]) -> list[int | None]:
        """The streams of the object layer with the segments' data; None for a missing segment. 1 call each."""

        def read(segment_id: int) -> int | None:
            versioned = self.parts.keys.segment_stream(segment_id).read()
            return None if versioned is None else versioned.value

        return self.parts.each(read, list(map(checked_id, segment_ids)))

    @_asked
    def current_epoch(self) -> EpochRecord:
        """The current epoch. 1 call."""
        return self.workflows.epochs.current()

    @_asked
    def active_segments(self) -> Segments:
        """The segments that take writes now, ascending by id. 1 call."""
        return self.workflows.epochs.active_segments()

    @_asked
    def segments_at(self, time_ms: int) -> IdMap:
        """The segments at a time that still exist, each with its first offset. 4 calls."""
        return self.workflows.epochs.segments_at(time_ms)

    @_asked
    def head(self) -> IdMap:
        """The cut at which the stream begins. 1 call, 2 if it was never truncated."""
        return self.workflows.epochs.head()

    @_asked
    def truncation(self) -> TruncationRecord:
        """The cut at which the stream begins, and whether data before it is still being deleted. 1 call."""
        return self.workflows.epochs.truncation()

    # Workflows; after a crash, any process repeats the same call or finishes the workflow with `recover`

    @_asked
    def configure(self, wanted: StreamConfiguration) -> None:
        """Change the configuration; OperationNotAllowed while another workflow has the stream.

        If the stream has fewer segments than a raised minimum, the process that holds the segments splits some when it
        looks for requests: `carry_out_requests`. A lower minimum merges none.
        """
        if not isinstance(wanted, StreamConfiguration):
            raise InvalidArgument(f"expected a StreamConfiguration, found {type(wanted).__name__}")
        self.workflows.updating.run(wanted)

    @_asked
    def scale(
        self,
        seal: Sequence[SegmentId],
        new_ranges: Sequence[Sequence[float]],
        time_ms: int | None = None,
        *,
        is_manual: bool = True,
    ) -> EpochRecord:
        """Seal some segments and create others in their place; return the next epoch.

        Args:
            seal: active segments, by id or text ("3@1").
            new_ranges: pairs of start and end that replace their key ranges exactly, in the order of the new numbers.
            time_ms: None = now.
            is_manual: whether a person requested it; a scale because of load is dropped after a concurrent commit.

        Raises:
            ScalePrecondition, ScaleInputInvalid, ScaleConflict: see `accel.history.rules.scaling`.
            IllegalState: the stream is sealed, or the scale was dropped.
            OperationNotAllowed: another workflow has the stream.
            HostMissing: this process holds no segments: `request_scale`. With each of these errors, the stream is
                unchanged.
        """
        request = ScaleRequest(_each(seal), KeyRanges.of(checked_keys(new_ranges)), self._time(time_ms))
        return self.workflows.scales.run(request, is_manual=is_manual)

    @_asked
    def split(self, segment: SegmentId, parts: int = 2, time_ms: int | None = None) -> EpochRecord:
        """Seal an active segment and create others that divide its keys evenly; see `scale`. 1 call more.

        If the last scale was this split, its epoch is returned, for 3 more calls: it may be repeated, as `scale`.

        Args:
            segment: its id, or the text of the id ("3@1").
            parts: number of new segments, at least 2.
            time_ms: None = now.

        Raises:
            InvalidArgument: other numbers; a range with too few keys for this number.
            ScalePrecondition: the segment is not active.
            AccelError: as `scale`.
        """
        return self.workflows.scales.run(self._splitting(segment, parts, time_ms), is_manual=True)

    @_asked
    def merge(self, *segments: SegmentId, time_ms: int | None = None) -> EpochRecord:
        """Seal active segments with adjacent key ranges, and create one with all their keys; see `scale`.

        1 call more than `scale`; it may be repeated, as `split`.

        Args:
            segments: at least two, in any order, by id or text ("3@1").
            time_ms: None = now.

        Raises:
            InvalidArgument: fewer than two, a segment that is named twice, or a gap between their keys.
            ScalePrecondition: some are not active, or too few segments would remain.
            AccelError: as `scale`.
        """
        return self.workflows.scales.run(self._merging(segments, time_ms), is_manual=True)

    @_asked
    def scale_progress(self, epoch: int) -> ScaleProgress:
        """Whether the scale of an epoch is done, or under way: for callers that requested it. 2 calls.

        A scale counts as done only when the next one can begin.

        Args:
            epoch: the current epoch when the scale was requested.

        Raises:
            InvalidArgument: an epoch that the stream has not reached.
        """
        epoch = checked_integer("an epoch", epoch, 0)
        state = self.parts.state()  # read before the epoch: an epoch that was complete by now is then current
        current = self.workflows.epochs.current().epoch
        if epoch > current:
            raise InvalidArgument(f"expected an epoch of at most {current}, the current one, found {epoch}")
        if current - 1 <= epoch and state is StreamState.SCALING:
            return ScaleProgress.UNDER_WAY
        return ScaleProgress.NONE if epoch == current else ScaleProgress.DONE

    @_asked
    def request_scale(
        self,
        seal: Sequence[SegmentId],
        new_ranges: Sequence[Sequence[float]],
        time_ms: int | None = None,
        *,
        is_manual: bool = True,
    ) -> UUID:
        """Request a scale from a process that holds the segments: for processes without a host. 5 calls.

        The request is a separate key. The stream does not change before `recover` or `carry_out_request` carries the
        request out; either refuses it if the stream has changed since.

        Args:
            seal, new_ranges, time_ms, is_manual: as in `scale`.

        Returns:
            The request's id, for `scale_status`.

        Raises:
            ScalePrecondition, ScaleInputInvalid, IllegalState: as `scale`; nothing was written.
        """
        request = ScaleRequest(_each(seal), KeyRanges.of(checked_keys(new_ranges)), self._time(time_ms))
        return self.workflows.scales.ask(request, is_manual=is_manual).workflow_id

    @_asked
    def request_split(self, segment: SegmentId, parts: int = 2, time_ms: int | None = None) -> UUID:
        """Request a `split`, as `request_scale` requests a scale; 1 more call. Returns the id; raises as both."""
        return self.workflows.scales.ask(self._splitting(segment, parts, time_ms), is_manual=True).workflow_id

    @_asked
    def request_merge(self, *segments: SegmentId, time_ms: int | None = None) -> UUID:
        """Request a `merge`, as `request_scale` requests a scale; 1 more call. Returns the id; raises as both."""
        return self.workflows.scales.ask(self._merging(segments, time_ms), is_manual=True).workflow_id

    @_asked
    def scale_status(self, request_id: UUID) -> WorkflowRequest:
        """The status of a requested scale; its `reason` says why it was refused. 1 call.

        Raises:
            NotInHistory: there is no such request; of the ended requests, the last 100 are kept.
        """
        request = self.workflows.ownership.read(checked_uuid("a request's id", request_id))
        if request is None:
            raise NotInHistory(f"expected a request of {self.name}, found none with id {request_id}", Sought.REQUEST)
        return request

    @_asked
    def requests(self) -> list[WorkflowRequest]:
        """All requests: waiting, being carried out, and the last that ended. 1 call, and 1 for each request."""
        requests = map(self.workflows.ownership.read, self.parts.keys.request_ids())
        return [request for request in requests if request is not None]

    @_asked
    def carry_out_request(self, request_id: UUID) -> WorkflowRequest:
        """Carry out a requested scale, unless it has ended; return the request with its new status.

        Raises:
            NotInHistory: as `scale_status`.
            OperationNotAllowed: another workflow has the stream; the request still waits.
            HostMissing: this process holds no segments.
        """
        return self.workflows.scales.carry_out_request(checked_uuid("a request's id", request_id))

    @_asked
    def carry_out_requests(self) -> list[str]:
        """Carry out requests of other processes, and work that needs a host; return what was done. 4 calls if none.

        The process that holds the segments calls this from time to time: `StreamWriter` does so beside flushing. See
        `accel.history.store.recovering`.

        Raises:
            HostMissing: this process holds no segments.
        """
        return self._recovering.requested.run()

    @_asked
    def truncate(self, cut: Cut) -> TruncationRecord:
        """Let the stream begin at a cut.

        Raises:
            InvalidArgument: the cut is not valid, or is before the stream's beginning.
            PositionBeyondEnd: the cut is after the end of a segment; nothing was changed.
            IllegalState: the stream is sealed.
            OperationNotAllowed: another workflow has the stream.
            HostMissing: this process holds no segments; nothing was changed.
        """
        return self.workflows.truncations.run(as_cut(cut))

    @_asked
    def commit(self, time_ms: int | None = None, limit: int | None = None) -> CommittingTransactions:
        """Commit the next transactions.

        Raises:
            OperationNotAllowed: another workflow has the stream.
            HostMissing: this process holds no segments; a process that does commits the transactions later.
        """
        return self.workflows.commits.run(self._time(time_ms), limit)

    @_asked
    def seal(self) -> None:
        """End all transactions and seal the stream, for good.

        Raises:
            OperationNotAllowed: another workflow has the stream.
            HostMissing: this process holds no segments; nothing was changed.
        """
        self.workflows.ending.seal()

    @_asked
    def recover(self) -> list[str]:
        """Finish the workflows of dead processes, and requested scales; return what was done. See `Recovering`.

        Raises:
            HostMissing: a workflow must be carried out, and this process holds no segments.
        """
        return self._recovering.run()

    def _splitting(self, segment: SegmentId, parts: int, time_ms: int | None) -> ScaleRequest:
        segment_id = checked_id(segment)
        parts = checked_integer("a number of parts", parts, 2, SEGMENTS_MAX)
        [found] = self._scalable([segment_id])
        try:
            ranges = split_range(found.key_start, found.key_end, parts)
        except ValueError as error:
            raise InvalidArgument(f"segment {found}: {error}") from error
        return ScaleRequest((segment_id,), ranges, self._time(time_ms))

    def _merging(self, segments: Sequence[SegmentId], time_ms: int | None) -> ScaleRequest:
        ids = tuple(map(checked_id, segments))
        if len(set(ids)) < max(2, len(ids)):
            raise InvalidArgument(f"expected two segments or more, each once, found {some_ids(ids)}")
        merged = merge_touching(self._scalable(ids).ranges)
        if len(merged) > 1:
            raise InvalidArgument(f"expected segments with adjacent key ranges, found a gap between {some_ids(ids)}")
        return ScaleRequest(ids, merged, self._time(time_ms))

    def _scalable(self, ids: Sequence[int]) -> Segments:
        """Active segments; or the segments that the last scale sealed, so that a repeated call is recognised."""
        current = self.workflows.epochs.current()
        epochs = [current]
        if (current.segments.positions_of(ids) < 0).any() and current.epoch > 0:
            epochs.append(self.workflows.epochs.epoch(current.epoch - 1))
        found = Segments.join(each.segments for each in epochs).ascending()
        positions = found.positions_of(ids)
        if (positions < 0).any():
            missing = [segment_id for segment_id, at in zip(ids, positions.tolist(), strict=True) if at < 0]
            raise ScalePrecondition(f"expected active segments, found inactive ones: {some_ids(missing)}")
        return found.where(positions)

    def _checked(self, part: Part) -> Part:
        return cast("Part", _CheckedPart(part, self.parts))

    def _time(self, time_ms: int | None) -> int:
        return self.parts.store.time_ms("a time", time_ms)


def _each(ids: Iterable[SegmentId]) -> tuple[int, ...]:
    try:
        return tuple(read_id(each) if isinstance(each, str) else each for each in ids)
    except TypeError as error:
        raise InvalidArgument(f"expected segment ids, found {type(ids).__name__}") from error
