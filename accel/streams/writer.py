"""Writes a stream: each event goes to the segment that has the event's key now.

    with ObjectSegments(catalog, store, node_id=4) as host:
        stream = StreamStore.open(store, host=host).stream("shop", "orders")
        with StreamWriter(stream, host) as writer:
            future = writer.write(b"an event", key=b"order-17")
            print(future.result())                          the event is durable: prints its segment and offset
            writer.write(b"another", key=b"order-17")
            writer.flush()                                  this event and all events before it are durable

`write` waits for no upload. The writer collects events by segment until the host writes the events of all its writers
as one object (`group_commit`). When a segment is sealed because the stream is scaled, the events that the segment
refused go to its successors: the events of a key stay in order, no event is lost, and no event is written twice.

Events of a transaction wait in memory until the transaction is committed (`writer_transactions`). They enter the
segments all at once, with one clock value.

A process without a host, or a process of another node, stores requests for workflows. When it flushes, the writer also
looks for such requests and carries them out (`carry_out_requests`).

Source: PDP-32; PDP-28; docs/explanation/history.md, "A commit".
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from threading import Lock
from typing import Final
from uuid import UUID

from accel.errors import (
    AccelError,
    FormatError,
    IllegalState,
    InvalidArgument,
    NotInHistory,
    OperationNotAllowed,
)
from accel.history.rules.segments import Segments
from accel.history.rules.states import StreamState
from accel.history.rules.values import checked_arguments, segment_text
from accel.history.store import Stream
from accel.streams.acknowledgements import FlushPoint, WriteFuture
from accel.streams.open_segments import SegmentSealed
from accel.streams.rules.events import check_append
from accel.streams.rules.routing import (
    OVERHEAD_BYTES,
    Events,
    KeyRouter,
    PendingEvents,
    grouped,
    in_order_of_numbers,
    key_position,
    size_bytes_of,
)
from accel.streams.segments_host import Host
from accel.streams.settings import StreamWriterSettings
from accel.streams.writer_numbers import EventLostError, NumberedEvents, Progress, WriterNumbering
from accel.streams.writer_transactions import WriterTransactions
from accel.system import Components
from loaders.lifetime import Closing, Lifetime
from loaders.settings import MIB, taker
from loaders.threads import finish_at_exit

logger = logging.getLogger(__name__)

BATCH_BYTES_MAX: Final = MIB
"""The limit of the bytes of single writes to one segment that become one append."""

LOOKS_OF_A_WAIT: Final = 6
"""How often, per `wait_seconds`, a writer whose segments are sealed without successors looks for workflow requests."""

Key = bytes | str


@checked_arguments
class StreamWriter(Closing):
    """Writes events to one stream.

    Args:
        stream: a stream that was opened with this host.
        host: the host of all its segments, `ObjectSegments`; or one that has some segments and sends events of the
            others to their owners. Writers may share a host. Closing the writer does not close the host.
        settings: bounds of the writer.
        system: clock and sleep; None = those of the host.
        writer_id: identifies this writer permanently: its events have numbers, and an event that is written again, by
            any process, is stored once (see `resume`). Only one process at a time may use an id. None = no numbers.

    Raises:
        InvalidArgument: the stream was opened with another host, or an id of zeros.
        CommitRefused: another node has some of the segments, and they are not shared.

    Threads: any. Events of several threads are stored in the order in which `write` took them; the lock of the writer
    is held for memory accesses only. The writer belongs to the process that opened it.

    Attributes:
        pause_seconds, troubles, trouble: used by `GroupCommit`; the writer is an `EventSource`.
    """

    def __init__(
        self,
        stream: Stream,
        host: Host,
        *,
        settings: StreamWriterSettings = StreamWriterSettings(),  # noqa: B008 - immutable
        system: Components | None = None,
        writer_id: UUID | None = None,
    ) -> None:
        if writer_id is not None and not writer_id.int:
            raise InvalidArgument("expected the id of a writer, found zeros")
        if stream.parts.host is not host:  # a commit through another host would lose the writer's events
            raise InvalidArgument(f"expected {stream.name} opened with the host of its writer, found another host")
        self._segments, self._host = host, host.own
        own = host.own
        self._lifetime = Lifetime(f"a writer of {stream.name}", own.system.process_id)
        self.settings = settings
        self._stream = stream
        self._system = own.system if system is None else system
        scope, _, name = stream.name.partition("/")
        self._name = scope, name
        self._commits = own.commits
        self._outboxes = host.outboxes(self._name, self, self._numbers_of, self._give_back)
        self._lock = Lock()  # guards the attributes below; never held over a request, nor taken by callers
        self._pending = PendingEvents(settings.batch_events_max, BATCH_BYTES_MAX)
        self._transactions = WriterTransactions(stream, own, settings, self._system, self._lifetime, self._check_open)
        self._point = FlushPoint()
        self._open_points: list[FlushPoint] = []
        self._refused: dict[int, None] = {}
        self._appending = Lock()  # from taking events out until they are appended; held for memory accesses only
        self._looking = Lock()  # one thread at a time looks for segments, so that no thread routes by an older epoch
        self._stuck_since: float | None = None
        self._end_of_writes: BaseException | None = None  # why no event can become durable any more, once it is known
        self._looked_seconds = self._now()
        self.pause_seconds = settings.pause_seconds
        self.troubles, self.trouble = 0, None
        self.writer_id = writer_id
        self._are_numbered = writer_id is not None or self._outboxes is not None
        self._numbering: WriterNumbering | None = None
        segments = stream.active_segments()
        self._adopt(segments)
        if writer_id is not None:
            progress = host.progress_of(self._name, segments, writer_id.bytes)
            self._numbering = WriterNumbering(writer_id.bytes, progress)
            if progress.has_forgotten:
                logger.warning(
                    "%s: writer %s is not known in all segments, and these have forgotten writers: there its events"
                    " count as new; it continues at %d",
                    stream.name,
                    writer_id,
                    progress.next_number,
                )
        elif self._are_numbered:  # for owners, which skip events that they already have
            self._numbering = WriterNumbering(self._system.nonce(), Progress(), is_resumable=False)
        self._commits.know(self)
        if self._commits.has_threads:
            finish_at_exit(self)

    trouble: BaseException | None

    def _end_block(self, error: BaseException | None) -> None:
        if error is None:
            self.close()

    def __repr__(self) -> str:
        return f"StreamWriter({self._stream.name!r}, {len(self._pending)} events waiting)"

    # Events

    def resume(self, expected: int | None = None) -> int:
        """Return the number to continue at: all events of this writer with lower numbers are durable. No request.

        The producer writes again from this number on, each event with its earlier number; an event that is durable is
        not written again:

            writer = connection.writer("shop", "orders", writer_id=PRODUCER)
            first = writer.resume()
            for number, line in enumerate(lines):
                if number >= first:
                    writer.write(line, key_of(line), number=number)

        Args:
            expected: one above the last number of this writer that was acknowledged to the producer, which keeps it
                itself; None, the default: it does not know. A stream remembers `SegmentsSettings.writers_max` writers
                of a segment, for `writer_idle_seconds`, and logs a warning for a writer that it may have forgotten.

        Raises:
            InvalidArgument: the writer has no id, events were written already, or an invalid number.
            IllegalState: the stream does not know events below `expected`, for instance because it has forgotten the
                writer: it would store repeated events again.
        """
        self._lifetime.check()
        return self._numbered().resume(expected)

    def write(
        self, payload: bytes, key: Key, *, transaction: UUID | None = None, number: int | None = None
    ) -> WriteFuture:
        """Write an event; it becomes durable soon, without a flush. Waits for no upload; waits while buffers are full.

        Args:
            payload: the bytes of the event.
            key: events of one key stay in the order of writing. Text is encoded as UTF-8.
            transaction: the transaction of the event; None = none. Events of transactions have no numbers.
            number: the event's number, higher than all earlier ones of this writer object; for a writer with an id.
                None = the next number: above all durable ones, or after `resume` from its result on.

        Returns:
            The future of the event's place, known once the event is durable. `flush` covers all events without their
            futures. All events of a transaction share one future, which is settled when the transaction is committed.
            For an event that was durable before, by its number, the place has the offset -1.

        Raises:
            WriterStalled: the buffers stayed full for `room_seconds`.
            InvalidArgument: the transaction is not open here, its commit or abort has begun, or it has no room for
                more; or the number is invalid, or the event is not bytes.
            IllegalState, NotInHistory: the stream is sealed, or was deleted. The writer knows it once an earlier event
                was refused: that event's future has the same error.
            The error of an earlier event of a writer with an id, if that event will never be durable: no later event
                is written before it. Open the writer again, and `resume`.
            SessionFenced, CommitRefused: an upload has failed permanently; all later calls fail, too.
            FormatLimit: an event of more than 1 GiB.
            Closed, WrongProcess: the writer is closed, or another process opened it.
            AccelError: the errors of `ObjectSegments.flush`, if the host has no threads of its own.

        After any error this event was not taken; earlier events still wait. After an exception of a signal handler, as
        by a time limit of the caller, that is not known: write it again with its `number`, and it is stored once;
        InvalidArgument, of the call or of its future, says that the number was taken before. A signal handler, a
        ``__del__``, or a handler of logging may write, too.
        """
        self._lifetime.check()
        check_append([payload])
        position = key_position(_key_bytes(key))
        _check_number(transaction, number)
        if transaction is not None:
            return self._transactions.add(transaction, [position], [payload])
        size_bytes = len(payload) + OVERHEAD_BYTES
        self._commits.await_room(size_bytes, self.settings.room_seconds)
        return self._hand_over([position], [payload], size_bytes, number)[0]

    def write_many(
        self,
        events: Iterable[tuple[bytes, Key]],
        *,
        transaction: UUID | None = None,
        number: int | None = None,
    ) -> list[WriteFuture]:
        """Write events, all or none of them. The events of one segment become one append, if they fit into one.

        Args:
            events: pairs of payload and key.
            transaction: the transaction of the events; None = none.
            number: the number of the first event; each further event has the next number; see `write`.

        Returns:
            The future of each event.

        Raises:
            AccelError: as `write`.
        """
        self._lifetime.check()
        payloads, positions = _checked_events(events)
        _check_number(transaction, number)
        if transaction is not None:
            return [self._transactions.add(transaction, positions, payloads)] * len(payloads)
        if not payloads:
            return []
        size_bytes = size_bytes_of(payloads)
        self._commits.await_room(size_bytes, self.settings.room_seconds)
        return self._hand_over(positions, payloads, size_bytes, number)

    def write_now(self, payload: bytes, key: Key, *, number: int | None = None) -> WriteFuture | None:
        """As `write` outside of transactions, without waiting: returns None if the buffers are full."""
        self._lifetime.check()
        check_append([payload])
        position = key_position(_key_bytes(key))
        size_bytes = len(payload) + OVERHEAD_BYTES
        if not self._commits.has_room(size_bytes):
            return None
        return self._hand_over([position], [payload], size_bytes, number)[0]

    def write_many_now(
        self, events: Iterable[tuple[bytes, Key]], *, number: int | None = None
    ) -> list[WriteFuture] | None:
        """As `write_many` outside of transactions, without waiting: returns None if the buffers are full."""
        self._lifetime.check()
        payloads, positions = _checked_events(events)
        size_bytes = size_bytes_of(payloads)
        if not payloads:
            return []
        if not self._commits.has_room(size_bytes):
            return None
        return self._hand_over(positions, payloads, size_bytes, number)

    def flush(self) -> None:
        """Make all events durable that this writer wrote before outside of transactions, and wait for them.

        Afterwards, once in `requests_seconds`, looks for requests as `carry_out_requests` does; errors of the requests
        are logged only, because the events are durable. So do `commit_transaction` and `abort_transaction`.

        Raises:
            AccelError: as `write`, and `ObjectSegments.flush`. After a retryable error the events that are not durable
                still wait and are tried again; after another error its events are lost, and their futures raise it.
        """
        self._lifetime.check()
        self._commits.flush(self)
        self._look_if_due()

    def carry_out_requests(self) -> list[str]:
        """Carry out workflows that other processes requested or that wait for this node; returns their descriptions.

        For the loop of a broker that does not flush its streams for long periods. A workflow that another process has
        begun is left to that process until the second look. If the stream has fewer segments than its configuration
        asks for, some are split. 4 requests if there is nothing to do, 5 for a minimum above 1: a listing, and GETs;
        once a minute a listing more: expired transactions of dead writers are aborted.

        Raises:
            AccelError: the errors of the workflows; a workflow that another process blocks waits for the next look.
        """
        self._lifetime.check()
        self._looked_seconds = self._now()
        self._host.leases.renew_due()  # else the look could take them for transactions of a dead writer
        return self._stream.carry_out_requests()

    def close(self) -> None:
        """Flush, and abort the transactions that are open here. Events and transactions of other threads are included.

        Raises:
            AccelError: as `flush`. After a retryable error events still wait, and another call continues. After another
                error the writer is closed: the error is that of events that will never be durable and that no flush has
                reported yet.
        """
        self._lifetime.check_process()
        self._commits.acks.check_outside()
        is_left = any(point.is_open for point in self._open_points)
        if self._lifetime.is_closed and not (is_left or self._transactions.ids()):
            return
        lost = [self._flush_left(), self._transactions.end_all()]
        with self._transactions.paused():
            self._lifetime.close()
        lost += [self._flush_left(), self._transactions.end_all()]  # what other threads have written or begun meanwhile
        if (error := next(filter(None, lost), None)) is not None:
            raise error

    # Transactions

    def begin_transaction(self, *, lease_ms: int | None = None, writer_id: str | None = None) -> UUID:
        """Begin a transaction; see `TransactionStore.begin`.

        Args:
            lease_ms: how long it stays open after the end of this process: until then this writer extends the lease, up
                to the transaction's maximum lifetime; None = the value of the history settings.
            writer_id: the name of the transaction's writer.
        """
        return self._transactions.begin(lease_ms, writer_id)

    def commit_transaction(self, transaction: UUID) -> None:
        """Commit a transaction: its events enter the stream, all at once, and are durable. May be repeated.

        From the beginning of the first call on the transaction takes no more events, even if the call fails.

        Args:
            transaction: a transaction that this writer began; or one whose commit failed half-way in any process.

        Raises:
            IllegalState: the transaction was aborted, perhaps because its lease expired; or another process decided to
                commit it before its events were durable: the events are not in the stream; write them again.
            NotInHistory: there is no such transaction.
            OperationNotAllowed: the transaction will be committed, but another workflow had the stream for too long:
                repeat the call, or let any process commit or recover the stream.
            DataConflict: another process has stored other events of this transaction; abort it, and write them again.
            AccelError: the errors of `write` and `ObjectSegments.flush`.
        """
        self._transactions.commit(transaction, partial(self._commits.flush, self))
        self._look_if_due()

    def abort_transaction(self, transaction: UUID) -> None:
        """Abort a transaction: its events are dropped. May be repeated. As of now the transaction takes no more events.

        Raises:
            IllegalState: the transaction was committed, or will be.
            NotInHistory: there is no such transaction.
        """
        self._transactions.abort(transaction)
        self._look_if_due()

    def _look_if_due(self) -> None:
        self._host.leases.drive()
        if self._is_look_due(self.settings.requests_seconds):
            self._look()

    def _is_look_due(self, pause_seconds: float) -> bool:
        now = self._now()
        is_due = now - self._looked_seconds >= pause_seconds
        if is_due:
            self._looked_seconds = now
        return is_due

    def _look(self) -> None:
        self._host.leases.renew_due()  # else the look could take them for transactions of a dead writer
        try:
            self._stream.carry_out_requests()
        except AccelError:
            logger.warning(
                "%s: requests of other processes are left to the next look", self._stream.name, exc_info=True
            )

    # At the end of the program: `loaders.threads.finish_at_exit`

    @property
    def is_left(self) -> bool:
        """Whether events wait, or are under way."""
        return self._lifetime.is_here and self._unsettled() > 0

    def finish(self) -> None:
        """Make the events durable; errors as `flush`."""
        self._commits.flush(self)

    def tell_left(self, why: str) -> None:
        """Log how many events are not known to be stored; on stderr, too, if the log goes elsewhere."""
        if left := self._unsettled():
            text = f"{left} events of {self._stream.name} are not known to be stored as the program ends: {why}"
            text += "; close the writer before the program ends"
            logger.warning(text)
            if logger.hasHandlers():
                sys.stderr.write(f"{text}\n")

    def _unsettled(self) -> int:
        def count() -> int:
            return sum(point.written - point.settled for point in (*self._open_points, self._point))

        return self._commits.ask(count)  # after the events that were handed over before

    # For `GroupCommit`

    def end_points(self, points: list[FlushPoint]) -> None:
        """See `EventSource.end_points`."""
        with self._lock:
            self._note_lost()
            left = [point for point in self._open_points if point.is_open]
            self._open_points = [*left, self._point]
            self._point = FlushPoint()
            points += self._open_points

    def drain(self) -> bool:
        """See `EventSource.drain`."""
        while True:
            with self._appending:
                with self._lock:
                    taken = self._pending.next_run(but=self._refused)
                    if taken is None:
                        return bool(self._refused) or (self._outboxes is not None and self._outboxes.has_waiting)
                self._append(*taken)

    def settle(self) -> bool:
        """See `EventSource.settle`: finds the epoch without the refusing segments, and routes the events by it.

        Raises:
            OperationNotAllowed: a scale has not ended within `wait_seconds`.
            AccelError: the store could not be read.
        """
        has_gone_on = self._outboxes is None or self._outboxes.pump()
        with self._lock:
            refused = list(self._refused)
            if self._stuck_since is None:
                self._stuck_since = self._now()
        try:
            with self._looking:
                return self._has_found_segments(refused) and has_gone_on
        except AccelError as error:
            if error.retryable:
                raise
            self._fail_waiting(error, is_end=isinstance(error, (IllegalState, NotInHistory)))
            return True

    def return_events(self, segment_id: int, runs: Sequence[Events]) -> None:
        """See `EventSource.return_events`."""
        with self._appending, self._lock:
            for run in reversed(runs):
                self._pending.add_run(segment_id, run, is_first=True)
            self._refused[segment_id] = None

    def fail(self, error: BaseException) -> None:
        """See `EventSource.fail`."""
        if left := self._unsettled():
            logger.warning("%d events of %s are not known to be stored: %s", left, self._stream.name, error)
        self._fail_waiting(error, is_end=True)
        self._transactions.fail(error)

    def _fail_waiting(self, error: BaseException, *, is_end: bool) -> None:
        """Fail all waiting events; if this is the end of writing, later events are refused with the same error."""
        if self._outboxes is not None:
            self._outboxes.fail(error)
        with self._appending, self._lock:
            if is_end and self._end_of_writes is None:
                self._end_of_writes = error
            runs = [run for segment_id in self._pending.segments() for run in self._pending.take(segment_id)]
            self._refused.clear()
            self._stuck_since = None
        futures = [future for run in runs for future in run.futures]
        self._commits.fail(futures, error, sum(run.size_bytes for run in runs))

    def _append(self, segment_id: int, run: Events) -> None:
        if self._outboxes is not None and self._outboxes.add(segment_id, run):
            return
        try:
            source = self if self._segments.are_shared else None
            self._host.append_open(self._name, segment_id, run, self._numbered_events(run), source)
        except EventLostError as lost:
            self._commits.fail(run.futures, lost.error, run.size_bytes)
        except SegmentSealed:
            with self._lock:
                self._pending.add_run(segment_id, run, is_first=True)
                self._refused[segment_id] = None
        except FormatError as error:
            self._commits.fail(run.futures, error, run.size_bytes)

    def _give_back(self, segment_id: int, left: Callable[[], Sequence[Events]]) -> None:
        """See `GiveBack`."""
        with self._appending, self._lock:
            for run in reversed(left()):
                self._pending.add_run(segment_id, run, is_first=True)
            self._refused[segment_id] = None
        self._commits.add(self)

    def _has_found_segments(self, refused: Sequence[int]) -> bool:
        refused = self._still_refused(refused)
        if not refused:
            with self._lock:
                self._stuck_since = None
            return True
        segments = self._stream.active_segments()
        ids = segments.ids.tolist()
        if set(refused).isdisjoint(ids) and self._is_settled_but(ids):
            if not self._segments.are_shared:
                self._open_segments(ids)
            self._route_anew(segments)
            return True
        is_sent = self._outboxes is None or self._outboxes.are_idle(())  # else replies may report durable events
        if is_sent and self._stream.state() in (StreamState.SEALING, StreamState.SEALED):
            raise IllegalState(f"expected a stream that takes writes, found {self._stream.name} sealed")
        self._check_waited(f"successors of {segment_text(refused[0])}, which is sealed")
        if self._is_look_due(self.settings.wait_seconds / LOOKS_OF_A_WAIT):
            self._look()  # the process that scales the stream may be dead
        return False

    def _still_refused(self, refused: Sequence[int]) -> list[int]:
        """Return the segments that still take no events, mostly sealed ones; open the others, or find their owners.

        Raises:
            OwnerUnreachable: one of the segments belongs to another node, which cannot be reached.
        """
        sealed = [each for each in refused if self._host.is_sealed(self._name, each)]
        to_open = [each for each in refused if each not in sealed and self._host.is_settled(self._name, each)]
        trouble: AccelError | None = None
        if to_open:
            owners, trouble = self._segments.find(self._name, to_open, are_numbered=self._are_numbered)
            if self._outboxes is not None:
                self._outboxes.open(owners)
            to_open = [each for each in to_open if each not in owners]
        left = [*sealed, *(each for each in to_open if not self._host.takes_appends(self._name, each))]
        with self._lock:
            for segment_id in set(refused).difference(left):
                self._refused.pop(segment_id, None)
        if trouble is not None:
            self._check_owner(left, trouble)
            self._commits.add(self)  # the other segments continue
            raise trouble
        return left

    def _check_owner(self, refused: Sequence[int], error: AccelError) -> None:
        """Fail the events of segments whose owners cannot be reached, if they have waited for too long."""
        with self._appending, self._lock:
            since = self._stuck_since
            if since is None or self._now() - since < self.settings.wait_seconds:
                return
            self._stuck_since = None
            runs = [run for segment_id in refused for run in self._pending.take(segment_id)]
            for segment_id in refused:
                self._refused.pop(segment_id, None)
        futures = [future for run in runs for future in run.futures]
        self._commits.fail(futures, error, sum(run.size_bytes for run in runs))

    def _is_settled_but(self, ids: Collection[int]) -> bool:
        """Whether no event is under way to replaced segments, so that later events in the present ones follow them."""
        before = set(self._router.segments.ids.tolist()).difference(ids)
        is_settled = all(self._host.is_settled(self._name, segment_id) for segment_id in before)
        return is_settled and (self._outboxes is None or self._outboxes.are_idle(ids))

    def _check_waited(self, expected: str) -> None:
        with self._lock:
            since = self._stuck_since
            if since is None or self._now() - since < self.settings.wait_seconds:
                return
            self._stuck_since = None
        raise OperationNotAllowed(f"expected {expected}; waited {self.settings.wait_seconds} s for it: try again")

    def _route_anew(self, segments: Segments) -> None:
        """Move events of replaced segments to the segments that have their keys now, before any later event."""
        known = set(segments.ids.tolist())
        with self._appending, self._lock:
            self._router = KeyRouter(segments)
            gone = [waiting_id for waiting_id in self._pending.segments() if waiting_id not in known]
            for run in in_order_of_numbers([run for waiting_id in gone for run in self._pending.take(waiting_id)]):
                for new, places in grouped(self._router.route(run.positions)):
                    self._pending.add_run(new, run.chosen(places))
            self._refused.clear()
            self._stuck_since = None

    # Inside

    def _check_open(self) -> None:
        """Check that the writer takes work: it is open, and the stream takes writes as far as it is known."""
        self._lifetime.check()
        if self._end_of_writes is not None:
            raise self._end_of_writes.with_traceback(None)  # else each `raise` would add to the traceback

    def _open_segments(self, ids: Collection[int]) -> None:
        is_shared = self._segments.are_shared
        self._host.open_segments(self._name, ids, are_numbered=self._are_numbered, is_shared=is_shared)

    def _numbered(self) -> WriterNumbering:
        if self._numbering is None or self.writer_id is None:
            raise InvalidArgument("expected a writer with an id, found one without: writer_id=...")
        return self._numbering

    def _numbers_of(self, run: Events) -> NumberedEvents:
        """Return the numbers of events to be sent; errors as `_numbered_events`."""
        numbered = self._numbered_events(run)
        if numbered is None:
            raise AssertionError("a writer that forwards numbers its events")
        return numbered

    def _numbered_events(self, run: Events) -> NumberedEvents | None:
        """Return the numbers of events to be appended.

        Raises:
            EventLostError: an earlier event will never be durable.
        """
        with self._lock:
            if self._numbering is None:
                return None
            self._note_lost()
            if self._numbering.error is not None:
                raise EventLostError(self._numbering.error)
            return self._numbering.events(run.numbers, run.positions)

    def _note_lost(self) -> None:
        """Note the error of a lost event of a writer with an id."""
        if self._numbering is not None and self._numbering.is_resumable and self._numbering.error is None:
            errors = (point.error for point in (*self._open_points, self._point))
            self._numbering.error = next((error for error in errors if error is not None), None)

    def _checked_number(self, count: int, number: int | None) -> int | None:
        """Check that the writer takes this number of events now; returns the number of the first, if it was given."""
        self._check_open()
        numbering = self._numbering if number is None else self._numbered()
        if numbering is None:
            return None
        self._note_lost()
        return numbering.check(count, number)

    def _adopt(self, segments: Segments) -> None:
        if self._outboxes is None:  # else other owners may open some of them
            self._open_segments(segments.ids.tolist())
        self._router = KeyRouter(segments)

    def _now(self) -> float:
        return self._system.timer()

    def _hand_over(
        self, positions: list[float], payloads: list[bytes], size_bytes: int, number: int | None
    ) -> list[WriteFuture]:
        if self._end_of_writes is not None or self._numbering is not None or number is not None:
            number = self._checked_number(len(payloads), number)
        acks = self._commits.acks
        futures = [WriteFuture(acks) for _ in payloads]
        self._commits.hand_over(size_bytes, partial(self._take_in, positions, payloads, futures, size_bytes, number))
        if self._numbering is not None:
            self._numbering.note_handed(len(payloads), number)
        return futures

    def _take_in(
        self,
        positions: list[float],
        payloads: list[bytes],
        futures: list[WriteFuture],
        size_bytes: int,
        number: int | None,
    ) -> None:
        """Take events that were handed over, in the order in which they were."""
        numbers: range | None = None
        with self._lock:
            error = self._end_of_writes
            try:
                if self._numbering is not None:
                    numbers = self._numbering.take(futures, number)
            except InvalidArgument as refused:  # the number was taken by a call that was interrupted, or is a thread's
                error = refused
            else:
                for future in futures:
                    future.point = self._point
                self._point.written += len(futures)
            if error is not None:
                pass
            elif len(payloads) == 1:
                its_number = None if numbers is None else numbers[0]
                segment_id = self._router.segment_at(positions[0])
                self._pending.add(segment_id, positions[0], payloads[0], futures[0], its_number)
            else:
                events = Events(positions, payloads, futures, size_bytes, list(numbers or ()))
                for segment_id, places in grouped(self._router.route(positions)):
                    self._pending.add_run(segment_id, events.chosen(places))
        self._commits.note(self, size_bytes)
        if error is not None:
            self._commits.fail(futures, error, size_bytes)

    def _flush_left(self) -> AccelError | None:
        """Flush; return the error of events that will never be durable.

        Raises:
            AccelError: a retryable error; the events still wait.
        """
        try:
            self._commits.flush(self)
        except AccelError as error:
            if error.retryable:
                raise
            return error
        return None


def _check_number(transaction: UUID | None, number: int | None) -> None:
    if transaction is not None and number is not None:
        raise InvalidArgument("expected a number or a transaction, found both")


def _checked_events(events: Iterable[tuple[bytes, Key]]) -> tuple[list[bytes], list[float]]:
    """Return payloads and positions; InvalidArgument and FormatLimit as `StreamWriter.write`."""
    payloads, positions = [], []
    for given, key in events:
        payload = _payload(given)
        check_append([payload])
        payloads.append(payload)
        positions.append(key_position(_key_bytes(key)))
    return payloads, positions


def _key_bytes(key: Key) -> bytes:
    try:
        return str.encode(key) if isinstance(key, str) else _key(key)
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"expected a key that UTF-8 can encode, found {key!r}") from error


_payload: Final = taker("payload", "bytes", InvalidArgument)
_key: Final = taker("key", "bytes", InvalidArgument)
