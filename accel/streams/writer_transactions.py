"""The transactions of one writer: from the first event to the commit, or the abort.

    begun here     `add`: events wait in memory, with one future for all of them
    end begun      `commit` or `abort` was called: the transaction takes no more events, also if that call fails
    kept           the events are durable, in an object of their own
    decided        the stream's records say that the transaction is committed, and how many events it has; or aborted
    ended          the events are in the segments, or dropped; the future is settled

The writer first makes the events durable and records *afterwards* that the transaction is to be committed, so the
process that finishes the commit finds the events. The first step of the end comes before everything else: so the object
has all events that were accepted, and a repeated commit finds the object that an earlier call has written.

Source: docs/explanation/history.md, "A commit".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from threading import RLock
from typing import Final
from uuid import UUID

from accel.errors import AccelError, CommitRefused, IllegalState, InvalidArgument, NotInHistory, OperationNotAllowed
from accel.history.rules.states import StreamState
from accel.history.rules.transactions import TransactionContents, TransactionStatus
from accel.history.store import Stream
from accel.streams.acknowledgements import WriteFuture
from accel.streams.open_segments import SegmentSealed
from accel.streams.rules.routing import OpenTransactions
from accel.streams.rules.transaction_data import TransactionEvents
from accel.streams.segments_host import ObjectSegments
from accel.streams.settings import StreamWriterSettings
from accel.streams.uploads import TransactionName, contents_of
from accel.system import Components
from loaders.errors import DataConflict
from loaders.lifetime import Lifetime
from loaders.settings import MIB

TRANSACTIONS_BYTES_MAX: Final = 64 * MIB
"""The limit of memory for the open transactions of one writer together."""


class WriterTransactions:
    """Transactions that one writer began. Threads: any; its lock is held for memory accesses only.

    Args:
        stream: the stream of the writer.
        host: keeps the events of transactions.
        settings, system: those of the writer.
        lifetime: of the writer.
        check: raises if the writer takes no more events; it is also called under the lock.
    """

    def __init__(
        self,
        stream: Stream,
        host: ObjectSegments,
        settings: StreamWriterSettings,
        system: Components,
        lifetime: Lifetime,
        check: Callable[[], None],
    ) -> None:
        self._stream, self._host, self._settings, self._system = stream, host, settings, system
        self._lifetime, self._check = lifetime, check
        self._lock = RLock()  # guards the attributes below; never held over a request; see `OpenTransactions`
        self._open = OpenTransactions(TRANSACTIONS_BYTES_MAX)
        self._outcomes: dict[UUID, WriteFuture] = {}
        self._turns: dict[UUID, RLock] = {}

    def ids(self) -> list[UUID]:
        """Return the transactions that have not ended."""
        with self._lock:
            return self._open.ids()

    def events(self, transaction: UUID) -> TransactionEvents:
        """Return the events of a transaction; none if it is not open here."""
        with self._lock:
            return self._open.events(transaction)

    def paused(self) -> AbstractContextManager[object]:
        """Let no transaction begin and take no events while the caller is in the block."""
        return self._lock

    def begin(self, lease_ms: int | None, writer_id: str | None) -> UUID:
        """See `StreamWriter.begin_transaction`."""
        self._check()
        self._host.leases.drive()
        transaction = self._stream.transactions.begin(lease_ms=lease_ms, writer_id=writer_id)
        with self._lock:
            self._check()
            self._open.begin(transaction)
            self._outcomes[transaction] = WriteFuture(self._host.commits.acks)
            self._turns[transaction] = RLock()
        history = self._stream.parts.store.settings
        self._host.leases.hold(self._stream, transaction, history.lease_ms if lease_ms is None else lease_ms, self)
        return transaction

    def add(self, transaction: UUID, positions: Sequence[float], payloads: Sequence[bytes]) -> WriteFuture:
        """Add events to a transaction, and return its future.

        Raises:
            InvalidArgument: as `OpenTransactions.add`; and the errors of `check`.
        """
        self._check()  # before the lock is taken, too, for a forked process
        with self._lock:
            self._check()
            self._open.add(transaction, positions, payloads)
            outcome = self._outcomes[transaction]
        self._host.leases.remind(transaction)
        return outcome

    def commit(self, transaction: UUID, flush: Callable[[], None]) -> None:
        """See `StreamWriter.commit_transaction`.

        Args:
            transaction: the transaction.
            flush: makes earlier events of the writer durable.
        """
        self._lifetime.check()
        with self._lock:
            self._open.begin_end(transaction)
        flush()  # earlier events come before the transaction's events
        with self._alone(transaction):
            self._commit(transaction)

    def abort(self, transaction: UUID) -> None:
        """See `StreamWriter.abort_transaction`."""
        self._lifetime.check()
        self._abort(transaction)

    def end_all(self) -> AccelError | None:
        """Abort all transactions that have not ended, as the writer is closed; return the error of one that was lost.

        A transaction that will be committed is left to the stream's commits.

        Raises:
            AccelError: a retryable error; call again.
        """
        lost: AccelError | None = None
        for transaction in self.ids():
            try:
                self._abort(transaction)
            except (IllegalState, NotInHistory) as error:  # it was decided before, or its lease had expired
                self._drop(transaction, self._outcome(transaction, error))
            except AccelError as error:
                if error.retryable:
                    raise
                self._drop(transaction, error)
                lost = error
        return lost

    def fail(self, error: BaseException) -> None:
        """Settle the futures of all transactions with an error; it is in doubt whether those are committed that end."""
        with self._lock:
            outcomes = [(each, self._open.is_ending(transaction)) for transaction, each in self._outcomes.items()]
        doubt = CommitRefused(f"{error}; whether the transaction is committed is not known here: ask for its status")
        for outcome, is_ending in outcomes:
            self._host.commits.settle_alone(outcome, doubt if is_ending else error)

    # Steps

    def _commit(self, transaction: UUID) -> None:
        with self._lock:
            is_begun_here = transaction in self._open
        with self._dropped_if_missing(transaction):
            status = self._stream.transactions.status(transaction)
        if status is TransactionStatus.OPEN:
            if not is_begun_here:
                raise InvalidArgument(f"expected a transaction that this writer began, found {transaction}")
            self.decide(transaction, self.keep(transaction))
        elif (lost := self._at_risk(transaction)) > 0:
            self.decide(transaction)  # raises if it was aborted
            refused = IllegalState(
                f"expected transaction {transaction} to be open until its {lost} events are durable, found that"
                " another process decided to commit it before: write them again"
            )
            self._drop(transaction, refused)
            raise refused
        else:
            self.decide(transaction, contents_of(self.events(transaction)) if is_begun_here else None)
        self._carry_out(transaction)
        self._drop(transaction, None)

    def _alone(self, transaction: UUID) -> AbstractContextManager[object]:
        """Let one thread at a time end a transaction; the next one finds the end. Held over requests.

        Otherwise a thread could write the events again after another one has merged and deleted them.
        """
        return self._turns.get(transaction) or RLock()

    def _at_risk(self, transaction: UUID) -> int:
        with self._lock:
            return self._open.at_risk(transaction)

    def keep(self, transaction: UUID) -> TransactionContents:
        """Make the events durable, and record which: all that were accepted, or none if another thread has ended it."""
        contents = self._host.keep_transaction(self._name_of(transaction), self.events(transaction))
        with self._lock:
            self._open.keep(transaction)
        with self._dropped_if_refused(transaction), suppress(NotInHistory):  # the decision finds how it ended
            self._stream.workflows.transactions.record_contents(transaction, contents)
        return contents

    def decide(self, transaction: UUID, contents: TransactionContents | None = None) -> None:
        """Record that a transaction is to be committed, with the contents that were kept; None = not known here.

        Raises:
            IllegalState: it was aborted, or another process decided to commit it before its events were kept.
        """
        with self._dropped_if_refused(transaction):
            self._stream.transactions.seal(transaction, commit=True, contents=contents)
        self._host.leases.release(transaction)

    @contextmanager
    def _dropped_if_refused(self, transaction: UUID) -> Iterator[None]:
        """Settle the future, and delete the events that were kept, if the transaction cannot be committed any more."""
        try:
            yield
        except (IllegalState, NotInHistory) as error:
            self._drop(transaction, error)
            self._host.drop_transaction(self._name_of(transaction))
            raise

    def _carry_out(self, transaction: UUID) -> None:
        """Commit the stream's transactions until this one is committed."""
        waited, is_done = 0, False
        last: AccelError | None = None
        while (status := self._stream.transactions.status(transaction)) is not TransactionStatus.COMMITTED:
            if status in (TransactionStatus.ABORTING, TransactionStatus.ABORTED):
                self.decide(transaction)  # raises: it was given up by hand
            try:
                is_done = not self._stream.commit().is_empty  # may be other transactions, committed before this one
            except (OperationNotAllowed, DataConflict, CommitRefused, SegmentSealed) as error:
                is_done, last = False, error  # another thread or process may carry out the same commit, and be further
            if not is_done:
                waited = self._pause(waited, transaction, last)
        if not is_done and self._stream.state() is StreamState.COMMITTING_TXN:
            # The commit stopped after this transaction was recorded as committed, for instance by an error of an
            # earlier call: finish the commit, so that the stream is free again. An error does not matter: this
            # transaction is committed.
            with suppress(OperationNotAllowed, DataConflict):
                self._stream.commit()

    def _abort(self, transaction: UUID) -> None:
        with self._lock:
            self._open.begin_end(transaction)
        with self._alone(transaction):
            with self._dropped_if_missing(transaction):
                self._stream.transactions.abort(transaction)
            aborted = IllegalState(f"expected a transaction that is committed, found {transaction} aborted")
            self._drop(transaction, aborted)

    def _drop(self, transaction: UUID, error: BaseException | None) -> None:
        """Forget a transaction that ended, and settle its future."""
        self._host.leases.release(transaction)
        outcome = self._outcomes.get(transaction)
        if outcome is not None:  # settled before it is forgotten: this call may be interrupted, and repeated
            self._host.commits.settle_alone(outcome, error)
        with self._lock:
            self._open.drop(transaction)
            self._turns.pop(transaction, None)
            self._outcomes.pop(transaction, None)

    @contextmanager
    def _dropped_if_missing(self, transaction: UUID) -> Iterator[None]:
        """Settle the future if there is no such transaction: it ended long ago, or its stream was deleted."""
        try:
            yield
        except NotInHistory as error:
            self._drop(transaction, error)
            raise

    def _outcome(self, transaction: UUID, error: AccelError) -> AccelError | None:
        """Return the outcome of a transaction that cannot be aborted any more: None if it is committed."""
        if isinstance(error, NotInHistory):
            return error
        status = self._stream.transactions.status(transaction)
        if status is TransactionStatus.COMMITTING:
            found = "that its writer was closed before: any process that commits or recovers the stream commits it"
            return OperationNotAllowed(f"expected {transaction} committed, found {found}")
        return None if status is TransactionStatus.COMMITTED else error

    def _pause(self, waited: int, transaction: UUID, last: AccelError | None) -> int:
        """Wait once more; return the number of waits."""
        settings = self._settings
        if waited * settings.pause_seconds >= settings.wait_seconds:
            expected = f"a stream that commits {transaction}: its events are durable"
            refused = f"expected {expected}; waited {settings.wait_seconds} s for it: try again"
            raise OperationNotAllowed(refused) from last
        self._system.sleep(settings.pause_seconds)
        return waited + 1

    def _name_of(self, transaction: UUID) -> TransactionName:
        return TransactionName(self._stream.unique_id, transaction)
