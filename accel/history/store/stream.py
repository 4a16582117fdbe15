"""One stream: its questions and its workflows, by their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar
from uuid import UUID

from accel.errors import IllegalState, InvalidArgument, NotInHistory, Sought, StreamDeleted
from accel.history.checks import (
    checked_integer,
    checked_keys,
    checked_text,
    checked_time,
    checked_uuid,
)
from accel.history.configuration import StreamConfiguration
from accel.history.cuts import CutOrder
from accel.history.epochs import EpochSummary
from accel.history.id_columns import IdMap, Integers
from accel.history.ids import segment_text
from accel.history.records import (
    CommittingTransactions,
    CutSpan,
    EpochRecord,
    RetentionEntry,
    RetentionSet,
    StreamCutRecord,
    TruncationRecord,
)
from accel.history.requests import WorkflowRequest
from accel.history.scaling import ScaleRequest
from accel.history.segments import KeyRanges, SegmentRecord, Segments
from accel.history.states import StreamState
from accel.history.store.cut_reading import as_cut
from accel.history.store.parts import StreamParts
from accel.history.store.recovering import Recovering, Requested, Workflows
from accel.history.transactions import ActiveTransaction, TransactionStatus
from loaders.errors import DataNotFound

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")


def _asked(method: Callable[Concatenate[Stream, Asked], Answer]) -> Callable[Concatenate[Stream, Asked], Answer]:
    """Tell that the stream was deleted in place of errors, and of answers of nothing, that come of that."""

    @wraps(method)
    def asked(self: Stream, /, *args: Asked.args, **kwargs: Asked.kwargs) -> Answer:
        with self._told_if_deleted():
            found = method(self, *args, **kwargs)
        if found is None or (isinstance(found, bool | int | list | dict) and not found):
            self._refuse_deleted()
        return found

    return asked


def _asked_surely(
    method: Callable[Concatenate[Stream, Asked], Answer],
) -> Callable[Concatenate[Stream, Asked], Answer]:
    """The same where an answer does not tell: it may come from elsewhere, or mean that nothing is there."""

    @wraps(method)
    def asked(self: Stream, /, *args: Asked.args, **kwargs: Asked.kwargs) -> Answer:
        with self._told_if_deleted():
            found = method(self, *args, **kwargs)
        self._refuse_deleted()
        return found

    return asked


def _asked_each(
    method: Callable[Concatenate[Stream, Asked], Iterator[Answer]],
) -> Callable[Concatenate[Stream, Asked], Iterator[Answer]]:
    """The same for answers that come one by one; arguments are checked at once."""

    @wraps(method)
    def asked(self: Stream, /, *args: Asked.args, **kwargs: Asked.kwargs) -> Iterator[Answer]:
        with self._told_if_deleted():
            found = method(self, *args, **kwargs)
        return self._told_each(found)

    return asked


class Stream:
    """A stream that is there; `StreamStore.stream` opens it. Threads: any.

    Every call asks the tables anew, except for what never changes. Cuts are offsets by segment id, in the stream's
    offset unit; times are milliseconds since 1970, 0 <= ms < 10^14. Single steps of the workflows: `workflows`.

    Numbers and texts are checked before anything is written (`accel.history.checks`): InvalidArgument. When the stream
    was deleted, every method raises StreamDeleted, also when there is another one of its name. What never changes and
    was read before (`epoch`, `segment`, `predecessors`, `creation_time_ms`, where cuts lie) is still answered from
    memory: it says what was, and stays true.

    Args:
        parts: of the stream.
    """

    def __init__(self, parts: StreamParts) -> None:
        self._parts = parts
        self.workflows = Workflows.of(parts)
        self._recovering = Recovering(parts, self.workflows)
        self._requested = Requested(parts, self.workflows, self._recovering.carry_out)

    def __repr__(self) -> str:
        return f"Stream({str(self._parts.stream)!r})"

    # What it is

    @property
    def parts(self) -> StreamParts:
        """What its questions and workflows are made of: for other parts of this library, as groups of readers."""
        return self._parts

    @property
    def name(self) -> str:
        """Scope and name."""
        return str(self._parts.stream)

    @property
    def unique_id(self) -> UUID:
        """What tells it from earlier streams of its name."""
        return self._parts.stream.unique_id

    @_asked
    def state(self) -> StreamState:
        """Where it stands. 1 call."""
        return self._parts.state()

    @_asked
    def set_state(self, wanted: StreamState) -> None:
        """Move the stream to a state, for a caller who carries a workflow out step by step. 2 calls.

        Raises:
            OperationNotAllowed: the step is not allowed, or a workflow has the stream that only its own id ends.
        """
        if not isinstance(wanted, StreamState):
            raise InvalidArgument(f"expected a state of a stream, found {wanted!r}")
        self._parts.set_state(wanted)

    @_asked
    def configuration(self) -> StreamConfiguration:
        """What its owner wants. 1 call."""
        return self.workflows.updating.read().configuration

    @_asked
    def creation_time_ms(self) -> int:
        """When it was created. 1 call."""
        return self._parts.cells.creation_time().get().value

    @_asked
    def segment_stream(self, segment_id: int) -> int:
        """Which stream of the object layer holds a segment's data; NotInHistory if there is no such segment. 1 call."""
        segment_id = checked_integer("a segment id", segment_id)
        seen = self._parts.cells.segment_stream(segment_id).read()
        if seen is None:
            raise NotInHistory(f"expected a segment of {self}, found {segment_text(segment_id)}", Sought.SEGMENT)
        self._parts.store.segment_streams.note([seen.value])
        return seen.value

    # Epochs and segments; `EpochReading` says more

    @_asked
    def current_epoch(self) -> EpochRecord:
        """The current epoch. 1 call."""
        return self.workflows.epochs.current()

    @_asked
    def active_segments(self) -> Segments:
        """The segments that take writes now, ascending by id. 1 call."""
        return self.workflows.epochs.active_segments()

    @_asked
    def epoch(self, number: int) -> EpochRecord:
        """An epoch; NotInHistory if there is none. 1 call."""
        return self.workflows.epochs.epoch(checked_integer("an epoch", number))

    @_asked_each
    def epochs(self, low: int, high: int) -> Iterator[EpochRecord]:
        """The epochs from one to another, both included. 1 call, 1 a chunk, 1 a duplicate."""
        return self.workflows.epochs.epochs(checked_integer("an epoch", low), checked_integer("an epoch", high))

    @_asked
    def segment(self, segment_id: int) -> SegmentRecord:
        """A segment; NotInHistory if there is none. 1 call."""
        return self.workflows.epochs.segment(checked_integer("a segment id", segment_id))

    @_asked
    def successors(self, segment_id: int) -> dict[int, list[int]]:
        """The segments that follow one, each with all that it follows. 3 calls."""
        return self.workflows.epochs.successors(checked_integer("a segment id", segment_id))

    @_asked
    def predecessors(self, segment_id: int) -> dict[int, list[int]]:
        """The segments that one follows, each with all that follow it. 2 calls."""
        return self.workflows.epochs.predecessors(checked_integer("a segment id", segment_id))

    @_asked
    def epoch_at(self, time_ms: int) -> int:
        """Which epoch it was at a time. 2 calls at most."""
        return self.workflows.epochs.epoch_at(checked_time("a time", time_ms))

    @_asked
    def segments_at(self, time_ms: int) -> IdMap:
        """The segments at a time as far as they are still there, each with the offset it begins with. 4 calls."""
        return self.workflows.epochs.segments_at(checked_time("a time", time_ms))

    @_asked
    def head(self) -> IdMap:
        """The cut that the stream begins with. 1 call, 2 if it was never truncated."""
        return self.workflows.epochs.head()

    @_asked
    def truncation(self) -> TruncationRecord:
        """Where the stream begins, and whether something before it is still being deleted. 1 call."""
        return self.workflows.epochs.truncation()

    @_asked
    def sealed_size(self, segment_id: int) -> int | None:
        """How much a segment holds, in the stream's offset unit; None while it is not sealed. 1 call."""
        return self.workflows.cuts.sealed_size(segment_id)

    @_asked_each
    def deleted_segments(self) -> Iterator[Segments]:
        """The segments that truncations deleted, in parts: a walk through the history before. 1 call, 1 a chunk."""
        return self.workflows.cuts.deleted(self.truncation())

    @_asked_each
    def segments_being_deleted(self) -> Iterator[Segments]:
        """Those that a truncation which is under way deletes, in parts; none if none is. As `deleted_segments`."""
        return self.workflows.cuts.being_deleted(self.truncation())

    @_asked_each
    def scales(self, from_ms: int, to_ms: int) -> Iterator[EpochSummary]:
        """The epochs from one time to another, with splits and merges. 5 calls, 1 a chunk, 1 a duplicate."""
        return self.workflows.epochs.scales(checked_time("a time", from_ms), checked_time("a time", to_ms))

    # Cuts; `CutReading` says more

    @_asked
    def recorded_cuts(self) -> RetentionSet:
        """When cuts were recorded for retention, and the size before each. 1 call."""
        return self.workflows.retention.read()

    @_asked
    def recorded_cut(self, recording_time_ms: int) -> StreamCutRecord:
        """A recorded cut; NotInHistory if there is none of that time. 1 call."""
        return self.workflows.retention.cut(checked_time("the time of a recorded cut", recording_time_ms))

    @_asked
    def compare(self, one: Mapping[int, int], other: Mapping[int, int]) -> CutOrder:
        """How a cut lies to another one."""
        return self.workflows.cuts.compare(one, other)

    @_asked
    def is_valid(self, cut: Mapping[int, int]) -> bool:
        """Whether somebody who reads the stream can stand at a cut."""
        return self.workflows.cuts.is_valid(as_cut(cut))

    @_asked
    def span(self, cut: Mapping[int, int]) -> CutSpan:
        """The segments of a cut, and the highest epoch that each belongs to."""
        return self.workflows.cuts.span(cut)

    @_asked
    def segments_between(self, start: Mapping[int, int], end: Mapping[int, int]) -> Integers:
        """Ids of the segments between two cuts, ascending; an empty one is the stream's beginning, or its end."""
        return self.workflows.cuts.segments_between(start, end)

    @_asked
    def size_between(self, start: Mapping[int, int], end: Mapping[int, int]) -> int:
        """How much of the stream lies between two cuts."""
        return self.workflows.cuts.size_between(start, end)

    # Workflows; each is to be repeated as it is after a crash, by any process, or finished by `recover`

    @_asked
    def configure(self, wanted: StreamConfiguration) -> None:
        """Change what the owner wants; OperationNotAllowed while another workflow has the stream."""
        if not isinstance(wanted, StreamConfiguration):
            raise InvalidArgument(f"expected a StreamConfiguration, found {type(wanted).__name__}")
        self.workflows.updating.run(wanted)

    @_asked
    def scale(
        self,
        seal: Sequence[int],
        new_ranges: Sequence[Sequence[float]],
        time_ms: int | None = None,
        *,
        is_manual: bool = True,
    ) -> EpochRecord:
        """Seal some segments and create others in their place; gives the epoch that follows.

        Args:
            seal: ids of active segments.
            new_ranges: pairs of start and end that replace theirs exactly, in the order in which they are numbered.
            time_ms: None = now.
            is_manual: whether a person asks; a scale that was asked for by load is dropped if a commit came between.

        Raises:
            ScalePrecondition, ScaleInputInvalid, ScaleConflict: see `accel.history.scaling`.
            IllegalState: the stream is sealed, or the scale was dropped.
            OperationNotAllowed: another workflow has the stream.
            HostMissing: this process holds no segments: `request_scale`. Whatever of these is raised, nothing of the
                stream was changed.
        """
        request = ScaleRequest(_each(seal), KeyRanges.of(checked_keys(new_ranges)), self._time(time_ms))
        return self.workflows.scales.run(request, is_manual=is_manual)

    @_asked
    def request_scale(
        self,
        seal: Sequence[int],
        new_ranges: Sequence[Sequence[float]],
        time_ms: int | None = None,
        *,
        is_manual: bool = True,
    ) -> UUID:
        """Ask for a scale, which a process that holds the segments carries out: for processes without a host. 5 calls.

        The request is a key of its own; nothing of the stream changes before it is carried out, by `recover` or
        `carry_out_request`. It is refused then if the stream has moved on.

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
    def scale_status(self, request_id: UUID) -> WorkflowRequest:
        """Where a requested scale stands; its `reason` says why it was refused. 1 call.

        Raises:
            NotInHistory: there is no such request; those that ended are kept as long as they are among the last 100.
        """
        found = self.workflows.ownership.read(checked_uuid("a request's id", request_id))
        if found is None:
            raise NotInHistory(f"expected a request of {self.name}, found none {request_id}", Sought.REQUEST)
        return found

    @_asked
    def requests(self) -> list[WorkflowRequest]:
        """All requests: those that wait, that are being carried out, and the last that ended. 1 call, 1 each."""
        found = map(self.workflows.ownership.read, self._parts.cells.request_ids())
        return [each for each in found if each is not None]

    @_asked
    def carry_out_request(self, request_id: UUID) -> WorkflowRequest:
        """Carry out a requested scale, unless it has ended; gives it as it stands then.

        Raises:
            NotInHistory: as `scale_status`.
            OperationNotAllowed: another workflow has the stream; the request still waits.
            HostMissing: this process holds no segments.
        """
        return self.workflows.scales.carry_out_request(checked_uuid("a request's id", request_id))

    @_asked
    def carry_out_requests(self) -> list[str]:
        """Carry out what other processes asked for, and what waits for this one; gives what that was. 3 calls if none.

        For the process that holds the segments, from time to time: `StreamWriter` does it beside flushing. See
        `accel.history.store.recovering`.

        Raises:
            HostMissing: this process holds no segments.
        """
        return self._requested.run()

    @_asked
    def truncate(self, cut: Mapping[int, int]) -> TruncationRecord:
        """Let the stream begin at a cut.

        Raises:
            InvalidArgument: the cut is not valid, or lies before the stream's beginning.
            IllegalState: the stream is sealed.
            OperationNotAllowed: another workflow has the stream.
            HostMissing: this process holds no segments; nothing was changed.
        """
        return self.workflows.truncations.run(as_cut(cut))

    @_asked
    def run_retention(
        self, time_ms: int | None = None, read_by_all: Mapping[int, int] | None = None
    ) -> RetentionEntry | None:
        """Record a cut, and truncate the stream as its owner wants; gives the cut to which it was truncated.

        Raises:
            HostMissing: the stream has a policy, and this process does not know how far its segments reach.
            What `truncate` raises.
        """
        return self.workflows.retention.run(time_ms, read_by_all)

    @_asked
    def purge_cuts(self) -> int:
        """Delete recorded cuts that retention needs no more and left behind, 10,000 at most; gives how many."""
        return self.workflows.retention.purge()

    @_asked
    def begin_transaction(self, *, lease_ms: int | None = None, writer_id: str | None = None) -> UUID:
        """Begin a transaction; IllegalState if the stream is sealed."""
        return self.workflows.transactions.begin(lease_ms=lease_ms, writer_id=writer_id)

    @_asked_surely
    def end_transaction(self, transaction_id: UUID, *, commit: bool) -> TransactionStatus:
        """Decide what becomes of a transaction; it is carried out by `commit` or `abort_transactions`.

        Without a host this is how a commit is asked for: a process with one makes it (`carry_out_requests`).
        """
        return self.workflows.transactions.seal(checked_uuid("a transaction's id", transaction_id), commit=commit)

    @_asked_each
    def transactions(self) -> Iterator[tuple[UUID, ActiveTransaction]]:
        """The transactions that have not ended, ascending by id. 1 call, 1 an epoch that has some, 1 each."""
        return self.workflows.transactions.each_active()

    @_asked
    def ping_transaction(self, transaction_id: UUID, lease_ms: int) -> ActiveTransaction:
        """Give an open transaction more time; IllegalState if it is not open any more. 2 calls."""
        return self.workflows.transactions.ping(checked_uuid("a transaction's id", transaction_id), lease_ms)

    @_asked_surely
    def transaction_status(self, transaction_id: UUID) -> TransactionStatus:
        """Where a transaction stands; UNKNOWN if nobody knows it any more."""
        return self.workflows.transactions.status(checked_uuid("a transaction's id", transaction_id))

    @_asked
    def commit(self, time_ms: int | None = None, limit: int | None = None) -> CommittingTransactions:
        """Commit the transactions that come next.

        Raises:
            OperationNotAllowed: another workflow has the stream.
            HostMissing: this process holds no segments: a transaction that shall be committed is, by one that does.
        """
        return self.workflows.commits.run(self._time(time_ms), limit)

    @_asked_surely
    def abort_transaction(self, transaction_id: UUID) -> TransactionStatus:
        """Abort a transaction at once.

        Without a host it gives ABORTING: `abort_transactions` of a process with one deletes the data.

        Raises:
            IllegalState: it is to be committed.
            NotInHistory: nobody knows it.
        """
        return self.workflows.transactions.abort(checked_uuid("a transaction's id", transaction_id))

    @_asked
    def abort_transactions(self) -> list[UUID]:
        """Abort transactions whose time is up, and end all that are to be aborted; gives the former."""
        return self.workflows.transactions.abort_expired()

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
        """Finish what dead processes left behind, and requested scales; gives what that was. See `Recovering`.

        Raises:
            HostMissing: something is to be carried out, and this process holds no segments.
        """
        return self._recovering.run()

    # Notes of processors; `ColdMarkers` says more

    @_asked
    def mark_cold(self, segment_id: int, until_ms: int) -> None:
        """Say until when an active segment has little load; IllegalState if it is not active."""
        self.workflows.cold_markers.mark_cold(segment_id, until_ms)

    @_asked
    def cold_until(self, segment_id: int) -> int | None:
        """Until when a segment has little load; None if nobody said so, or it was sealed. 1 call."""
        return self.workflows.cold_markers.cold_until(segment_id)

    @_asked
    def remove_cold(self, segment_id: int) -> None:
        """Say that a segment has load again. 2 calls."""
        self.workflows.cold_markers.remove_cold(segment_id)

    @_asked
    def await_turn(self, processor: str) -> bool:
        """Let others know who waits for the stream; False if another one waits already. 2 calls, 3 then."""
        self.state()  # a name that is left with a stream which is gone would stay for ever
        return self.workflows.cold_markers.wait(processor) == processor

    @_asked
    def awaited_by(self) -> str | None:
        """Who waits for the stream; whoever is not that one lets it go first. 1 call."""
        return self.workflows.cold_markers.waiting()

    @_asked_surely
    def end_turn(self, processor: str) -> bool:
        """Do not wait any longer; False, and nothing changes, if another one waits. 2 calls."""
        return self.workflows.cold_markers.stop_waiting(checked_text("a processor's name", processor))

    def _time(self, time_ms: int | None) -> int:
        return self._parts.store.now_ms() if time_ms is None else checked_time("a time", time_ms)

    # Deleted?

    @contextmanager
    def _told_if_deleted(self) -> Iterator[None]:
        try:
            yield
        except StreamDeleted:
            raise
        except (DataNotFound, NotInHistory, IllegalState) as error:
            self._refuse_deleted(error)
            raise

    def _told_each(self, found: Iterator[Answer]) -> Iterator[Answer]:
        is_empty = True
        with self._told_if_deleted():
            for each in found:
                is_empty = False
                yield each
        if is_empty:
            self._refuse_deleted()

    def _refuse_deleted(self, error: Exception | None = None) -> None:
        """The table of everything but transactions goes last, and never comes again. 1 request for its marker."""
        stream = self._parts.stream
        if not self._parts.store.tables.table_exists(stream.metadata_table):
            raise StreamDeleted(str(stream), str(stream.unique_id)) from error


def _each(ids: Iterable[int]) -> tuple[int, ...]:
    try:
        return tuple(ids)
    except TypeError as error:
        raise InvalidArgument(f"expected segment ids, found {type(ids).__name__}") from error
