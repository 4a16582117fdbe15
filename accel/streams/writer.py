"""Writes a stream: each event goes to the segment that holds its key now.

    with ObjectSegments(catalog, store, node_id=4) as host:
        stream = StreamStore.open(store, host=host).stream("shop", "orders")
        with StreamWriter(stream, host) as writer:
            writer.write(b"an event", key=b"order-17")
            writer.flush()                                  durable from here on

Single writes are gathered and appended together. When a segment is sealed, because the stream is scaled, the events
that it refused go to those that follow it: the events of a key stay in their order, none is lost, none comes twice.

Events of a transaction wait in memory until it is committed. Then they are made durable as an object of their own
*before* it is said that the transaction shall be committed; so the process that finishes the commit finds them. They
come into the segments all at once, with one clock value.

A process without a host, or one of another node, asks for workflows: the writer looks for these beside flushing, and
carries them out (`carry_out_requests`).

Source: PDP-32; PDP-28; docs/history.md, "A commit".
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Lock
from types import TracebackType
from typing import Self
from uuid import UUID

from accel.errors import AccelError, IllegalState, InvalidArgument, NotInHistory, OperationNotAllowed
from accel.history.rules.segments import Segments
from accel.history.rules.states import StreamState
from accel.history.rules.transactions import TransactionStatus
from accel.history.rules.values import segment_text
from accel.history.store import Stream
from accel.streams.open_segments import SegmentSealed
from accel.streams.rules.routing import KeyRouter, OpenTransactions, PendingEvents, grouped, key_position
from accel.streams.segments_host import ObjectSegments
from accel.streams.settings import StreamWriterSettings
from accel.streams.uploads import TransactionName
from accel.system import Components
from loaders.errors import DataConflict
from loaders.lifetime import Lifetime

logger = logging.getLogger(__name__)

Key = bytes | str


class StreamWriter:
    """Writes events to one stream.

    Args:
        stream: opened with this host.
        host: holds its segments; other writers may share it. It is not closed with the writer.
        settings: bounds.
        system: clock and sleep; None = those of the host.

    Raises:
        InvalidArgument: the stream was opened with another host.

    Threads: any; calls are taken one after the other, in the order in which they come. It is of the process that opened
    it.
    """

    def __init__(
        self,
        stream: Stream,
        host: ObjectSegments,
        *,
        settings: StreamWriterSettings = StreamWriterSettings(),  # noqa: B008 - immutable
        system: Components | None = None,
    ) -> None:
        if stream.parts.host is not host:  # a commit through another one would lose its events
            raise InvalidArgument(f"expected {stream.name} opened with the host that its writer has, found another one")
        self._lifetime = Lifetime(f"a writer of {stream.name}", host.system.process_id)
        self.settings = settings
        self._stream = stream
        self._host = host
        self._system = host.system if system is None else system
        scope, _, name = stream.name.partition("/")
        self._name = scope, name
        self._lock = Lock()  # around whole calls: it keeps their order
        self._pending = PendingEvents(settings)
        self._transactions = OpenTransactions(settings.transactions_bytes_max)
        self._looked_seconds = self._now()
        self._adopt(stream.active_segments())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()

    def __repr__(self) -> str:
        return f"StreamWriter({self._stream.name!r}, {len(self._pending)} events waiting)"

    # Events

    def write(self, payload: bytes, key: Key, *, transaction: UUID | None = None) -> None:
        """Write an event; it is durable after `flush`, or when its transaction is committed.

        Args:
            payload: of the event.
            key: events of one key stay in the order of writing. Text is taken as UTF-8.
            transaction: that it belongs to; None = none.

        Raises:
            InvalidArgument: a transaction that is not open here, or no room for more of it.
            IllegalState: the stream is sealed.
            Closed, WrongProcess: the writer is, or another process opened it.
            TypeError: an event that is not bytes.
            What `ObjectSegments.append` raises.

        Whatever is raised, this event was not taken; those before it still wait.
        """
        with self._turn():
            position = key_position(_key_bytes(key))
            if self._is_ready([position], [payload], transaction):
                self._pending.add(self._router.segment_at(position), [position], [payload], self._now())

    def write_many(self, events: Iterable[tuple[bytes, Key]], *, transaction: UUID | None = None) -> None:
        """Write events, all or none of them. Those that go to one segment become one append, if it holds so many.

        Args:
            events: pairs of payload and key.
            transaction: that they belong to; None = none.

        Raises:
            As `write`.
        """
        pairs = list(events)
        payloads = [payload for payload, _ in pairs]
        positions = [key_position(_key_bytes(key)) for _, key in pairs]
        with self._turn():
            if self._is_ready(positions, payloads, transaction):
                for segment_id, places in self._free(positions):
                    self._add(segment_id, places, positions, payloads)

    def flush(self) -> None:
        """Make everything durable that was written outside of transactions, by this writer and others of its host.

        Once in `requests_seconds` it looks for requests afterwards, as `carry_out_requests`; whatever goes wrong with
        those is logged, as the events are durable.

        Raises:
            As `write`, and `ObjectSegments.flush`; what is not durable still waits.
        """
        with self._turn():
            self._append_all()
            self._host.flush()
            is_due = self._now() - self._looked_seconds >= self.settings.requests_seconds
            if is_due:
                self._looked_seconds = self._now()  # here: of several threads one looks
        if is_due:
            self._look()

    def carry_out_requests(self) -> list[str]:
        """Carry out what other processes asked of the stream, and what waits for this node; gives what that was.

        For the loop of a broker whose streams are not flushed for long. A workflow that another process has under way
        is left to it until the second look. 3 requests if there is nothing: one listing, two GETs.

        Raises:
            What the workflows raise; what others stand in the way of is left to the next look.
        """
        with self._turn():
            self._looked_seconds = self._now()
        return self._stream.carry_out_requests()

    def close(self) -> None:
        """Flush, and abort the transactions that are open here."""
        self._lifetime.check_process()
        with self._lock:
            if self._lifetime.is_closed:
                return
            self._append_all()
            self._host.flush()
            for transaction in self._transactions.ids():
                with suppress(IllegalState, NotInHistory):  # its time was up before
                    self._abort(transaction)
            self._lifetime.close()

    # Transactions

    def begin_transaction(self, *, lease_ms: int | None = None, writer_id: str | None = None) -> UUID:
        """Begin a transaction; see `TransactionStore.begin`.

        Args:
            lease_ms: how long it lives unless it is committed; None = as the history's settings say.
            writer_id: who writes it.
        """
        self._lifetime.check()
        transaction = self._stream.transactions.begin(lease_ms=lease_ms, writer_id=writer_id)
        with self._turn():
            self._transactions.begin(transaction)
        return transaction

    def commit_transaction(self, transaction: UUID) -> None:
        """Commit a transaction: its events come into the stream, all at once, and are durable. May be repeated.

        Args:
            transaction: begun by this writer; or one whose commit failed half-way, wherever that was.

        Raises:
            IllegalState: it was aborted, perhaps because its time was up; or another process decided to commit it
                before its events were durable: they do not come, and are to be written again.
            NotInHistory: nobody knows it.
            OperationNotAllowed: it will be committed, but another workflow had the stream for too long: repeat it, or
                let anybody commit or recover the stream.
            What `write` and `ObjectSegments.flush` raise.
        """
        with self._turn():
            self._append_all()  # what was written before comes before
            if self._stream.transactions.status(transaction) is TransactionStatus.OPEN:
                self._keep(transaction)
            elif (lost := self._transactions.at_risk(transaction)) > 0:
                self._end(transaction)  # refuses one that was aborted
                self._transactions.drop(transaction)
                raise IllegalState(
                    f"expected transaction {transaction} to be open until its {lost} events are durable, found that"
                    " another process decided to commit it before: write them again"
                )
            self._end(transaction)
            self._transactions.drop(transaction)
            self._commit(transaction)

    def abort_transaction(self, transaction: UUID) -> None:
        """Abort a transaction: its events are gone. May be repeated.

        Raises:
            IllegalState: it was committed, or will be.
            NotInHistory: nobody knows it.
        """
        with self._turn():
            self._abort(transaction)

    def _look(self) -> None:
        try:
            self._stream.carry_out_requests()
        except AccelError:
            logger.warning(
                "%s: requests of other processes are left to the next look", self._stream.name, exc_info=True
            )

    # Inside; all of it within `_turn`

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """One call after the other; WrongProcess before the lock is taken, Closed also after others had their turn."""
        self._lifetime.check()
        with self._lock:
            self._lifetime.check()
            yield

    def _adopt(self, segments: Segments) -> None:
        self._host.open_segments(self._name, segments.ids.tolist())
        self._router = KeyRouter(segments)

    def _now(self) -> float:
        return self._system.timer()

    def _is_ready(self, positions: Sequence[float], payloads: Sequence[bytes], transaction: UUID | None) -> bool:
        """Whether events are to be routed now, and there is room; those of a transaction are put to it."""
        if not set(map(type, payloads)) <= {bytes}:
            raise TypeError(
                f"expected events of bytes, found {sorted({type(payload).__name__ for payload in payloads})}"
            )
        if transaction is not None:
            self._transactions.add(transaction, positions, payloads)
            return False
        while (due := self._pending.first_due(self._now())) is not None:
            self._append(due)
        return True

    def _free(self, positions: Sequence[float]) -> list[tuple[int, list[int]]]:
        """Where events go, after what waits for these segments was appended: it comes before, and by itself."""
        routed = self._routed(positions)
        while (
            before := next((segment_id for segment_id, _ in routed if segment_id in self._pending), None)
        ) is not None:
            self._append(before)
            routed = self._routed(positions)
        return routed

    def _add(
        self, segment_id: int, places: Iterable[int], positions: Sequence[float], payloads: Sequence[bytes]
    ) -> None:
        chosen = [positions[at] for at in places], [payloads[at] for at in places]
        self._pending.add(segment_id, *chosen, self._now(), is_due=True)

    def _routed(self, positions: Sequence[float]) -> list[tuple[int, list[int]]]:
        return list(grouped(self._router.route(positions)))

    def _append_all(self) -> None:
        while (first := self._pending.first()) is not None:
            self._append(first)

    def _append(self, segment_id: int) -> None:
        try:
            while segment_id in self._pending:
                payloads = self._pending.head(segment_id)
                self._host.append(self._name, segment_id, payloads)
                self._pending.drop(segment_id, len(payloads))
        except SegmentSealed:
            self._follow(segment_id)

    def _follow(self, segment_id: int) -> None:
        """A segment is sealed: wait for the epoch without it, and let what was refused go to its segments."""
        waited = 0
        while segment_id in (segments := self._stream.active_segments()).ids:
            if self._stream.state() in (StreamState.SEALING, StreamState.SEALED):
                raise IllegalState(f"expected a stream that takes writes, found {self._stream.name} sealed")
            waited = self._pause(waited, f"segments in the place of {segment_text(segment_id)}, which is sealed")
        self._adopt(segments)
        known = set(segments.ids.tolist())
        for waiting_id in self._pending.segments():
            if waiting_id not in known:
                refused = self._pending.take(waiting_id)
                for new, places in self._routed(refused.positions):
                    self._add(new, places, refused.positions, refused.payloads)

    def _keep(self, transaction: UUID) -> None:
        events = self._transactions.events(transaction)
        if transaction not in self._transactions:
            raise InvalidArgument(f"expected a transaction that this writer began, found {transaction}")
        self._host.keep_transaction(TransactionName(self._stream.unique_id, transaction), events)
        self._transactions.keep(transaction)

    def _end(self, transaction: UUID) -> None:
        try:
            self._stream.transactions.seal(transaction, commit=True)
        except (IllegalState, NotInHistory):
            self._transactions.drop(transaction)
            self._host.drop_transaction(TransactionName(self._stream.unique_id, transaction))
            raise

    def _commit(self, transaction: UUID) -> None:
        waited, is_done = 0, False
        while self._stream.transactions.status(transaction) is not TransactionStatus.COMMITTED:
            try:
                is_done = not self._stream.commit().is_empty  # perhaps others, which come before this one
            except (OperationNotAllowed, DataConflict):
                is_done = False
            if not is_done:
                waited = self._pause(waited, f"a stream that commits {transaction}: its events are durable, and come")
        if not is_done and self._stream.state() is StreamState.COMMITTING_TXN:
            # The commit stopped after it had told of this one, as by a fault of an earlier call: it is helped to its
            # end, so that the stream is free again. Whatever stands in its way, this one is committed.
            with suppress(OperationNotAllowed, DataConflict):
                self._stream.commit()

    def _abort(self, transaction: UUID) -> None:
        self._transactions.drop(transaction)
        self._stream.transactions.seal(transaction, commit=False)
        self._stream.transactions.abort_expired()

    def _pause(self, waited: int, expected: str) -> int:
        """Wait once more; gives how often that was."""
        if waited * self.settings.pause_seconds >= self.settings.wait_seconds:
            raise OperationNotAllowed(f"expected {expected}; waited {self.settings.wait_seconds} s for it: try again")
        self._system.sleep(self.settings.pause_seconds)
        return waited + 1


def _key_bytes(key: Key) -> bytes:
    return key.encode() if isinstance(key, str) else key
