"""Transactions of a stream: begun, extended, sealed, added to the order of commits, ended.

An open transaction is an entry in the table of its epoch (`TransactionStore`). Its end is an entry in a batch of
completed transactions (`CompletedTransactions`), which is written before the open entry is removed. The number of a
batch follows from its time; all batches but the newest two are dropped. With batches of a day, an end is stored for at
least one day.

The order of commits (`CommitOrdering`) is one key. A transaction first gets a position, and is then marked COMMITTING
with it; `accel.history.rules.transactions` has the rules. Positions only rise, so a removed position is not used again.

Several keys cannot be written at once, so the order matters:

    begin    write the mark of the epoch, its table, the entry; then read the current epoch and the state again. If the
             current epoch has changed, or the stream is being sealed, erase the entry. Otherwise every process that
             drops the table or seals the stream afterwards finds the entry.
    drop     for a past epoch with an empty table: drop the table, then erase the mark
    commit   add a position to the order of commits, then write the entry: COMMITTING, with that position

Marks and tables are created on demand: a stream that is scaled for years without transactions has none.

Source: PDP-35 and the upstream system.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from threading import Lock
from typing import Final
from uuid import UUID

from accel.errors import CatalogDamaged, IllegalState, NotInHistory, OperationNotAllowed, Sought
from accel.history.rules import transactions as rules
from accel.history.rules.states import refuse_sealed
from accel.history.rules.transactions import (
    ActiveTransaction,
    CommitOrder,
    CommittingTransactions,
    CompletedTransaction,
    ReadTransactions,
    TransactionContents,
    TransactionStatus,
    droppable_batches,
    next_commit,
    with_transaction,
    without_positions,
)
from accel.history.rules.values import (
    checked_duration,
    checked_numbers,
    checked_text,
    checked_time,
    checked_uuid,
    make_transaction_id,
    transaction_epoch,
)
from accel.history.store import keys
from accel.history.store.epoch_store import EpochReading
from accel.history.store.keys import MARK
from accel.history.store.parts import StoreParts, StreamParts
from accel.history.store.settings import LIFETIME_MS_MAX
from loaders.errors import TableMissing
from loaders.tables import Versioned

COMMITTED_AT_ONCE: Final = 1_000
"""Transactions of one commit, unless its caller sets another limit."""

COMPLETED_BATCH_MS: Final = 24 * 3600 * 1000
"""The ends of transactions are kept for at least this time, and at most twice this time."""


@dataclass(frozen=True, slots=True, eq=False)
class CompletedTransactions:
    """The ends of all streams' transactions. Threads: any.

    Args:
        parts: the parts of the store.
    """

    _parts: StoreParts

    def find(self, stream: keys.StreamIdentity, transaction_id: UUID) -> CompletedTransaction | None:
        """The end of a transaction; None if it has not ended, or its end is not stored any more. 3 calls at most."""
        for batch in reversed(self.batches()):
            try:
                versioned = self._parts.keys.completed(batch, stream, transaction_id).read()
            except TableMissing:
                continue
            if versioned is not None:
                return versioned.value
        return None

    def add(
        self, stream: keys.StreamIdentity, transaction_id: UUID, ended: CompletedTransaction
    ) -> CompletedTransaction:
        """Store the end of a transaction; return the stored end, which another process may have written.

        1 call, 3 for a new batch. If a process dies before it removes the transaction's entry, and another process
        repeats this in the time of another batch, the end is stored twice.
        """
        batch = ended.complete_time_ms // COMPLETED_BATCH_MS
        key = self._parts.keys.completed(batch, stream, transaction_id)
        try:
            return key.create_if_absent(ended).value
        except TableMissing:
            self._make(batch)
        return key.create_if_absent(ended).value

    def batches(self) -> list[int]:
        """All batches, ascending. 1 call."""
        return sorted(map(int, self._parts.keys.batches.keys()))

    def drop_old(self) -> list[int]:
        """Drop all batches but the newest two; return the dropped batches. 1 call if there are none to drop."""
        dropped = droppable_batches(self.batches())
        for batch in dropped:
            self._parts.drop_table(keys.completed_table(batch))
            self._parts.keys.batch_mark(batch).erase()
        return dropped

    def _make(self, batch: int) -> None:
        # The mark first: a table without a mark would never be dropped.
        self._parts.keys.batch_mark(batch).create_if_absent(MARK)
        self._parts.tables.create_table(keys.completed_table(batch))
        self.drop_old()


@dataclass(frozen=True, slots=True, eq=False)
class CommitOrdering:
    """The order of commits of one stream. Threads: any.

    Args:
        parts: the parts of the stream.
    """

    _parts: StreamParts

    def read(self) -> CommitOrder:
        """The present order. 1 call."""
        return self._parts.keys.commit_order().get().value

    def add(self, transaction_id: UUID) -> int:
        """Add a transaction at the end; return its position. After a lost reply it may have two positions. 2 calls."""
        taken = 0

        def longer(order: CommitOrder | None) -> CommitOrder:
            nonlocal taken
            changed, taken = with_transaction(order or CommitOrder(), transaction_id)
            return changed

        self._parts.keys.commit_order().change(longer)
        return taken

    def next_commit(self, read: ReadTransactions, limit: int | None = None) -> CommittingTransactions:
        """The next commit; positions of no transaction are removed. 1 call, 2 more to remove, and those of `read`.

        Args:
            read: returns transactions by their ids.
            limit: the maximum number of transactions; None = 1,000.

        Raises:
            InvalidArgument: a limit out of bounds.
        """
        most = COMMITTED_AT_ONCE if limit is None else limit
        chosen = next_commit(self.read(), read, most)
        self._remove(chosen.to_purge)
        return chosen.committing

    def remove(self, ids: Collection[UUID]) -> None:
        """Remove all positions of some transactions. 1 call, 3 if there are any."""
        order, known = self.read(), frozenset(ids)
        pairs = zip(order.positions, order.transaction_ids, strict=True)
        self._remove([position for position, pair in pairs if pair in known])

    def _remove(self, positions: Collection[int]) -> None:
        if positions:
            self._parts.keys.commit_order().change(
                lambda order: None if order is None else without_positions(order, positions)
            )


BEGIN_ATTEMPTS_MAX = 16
READ_AT_ONCE_MAX = 1000
"""Maximum number of transactions of a listing in memory."""


@dataclass(frozen=True, slots=True, eq=False)
class TransactionStore:
    """Transactions of one stream. Threads: any.

    Args:
        parts: the parts of the stream.
        epochs: reads its epochs.
    """

    _parts: StreamParts
    _epochs: EpochReading

    @property
    def order(self) -> CommitOrdering:
        """Transactions in the order in which they are to be committed."""
        return CommitOrdering(self._parts)

    def begin(
        self, *, lease_ms: int | None = None, longest_ms: int | None = None, writer_id: str | None = None
    ) -> UUID:
        """Begin a transaction. 7 calls, and 2 for each block of ids.

        Args:
            lease_ms: the transaction expires after this time unless `ping` extends it; None = that of the settings.
            longest_ms: its maximum lifetime; None = a day.
            writer_id: name of its writer.

        Raises:
            IllegalState: the stream is sealed, or is being sealed.
            InvalidArgument: an invalid duration or name.
        """
        settings = self._parts.store.settings
        longest = LIFETIME_MS_MAX if longest_ms is None else checked_duration("the longest life", longest_ms)
        if lease_ms is not None:
            lease_ms = checked_duration("a lease", lease_ms)
        if writer_id is not None:
            checked_text("a writer's name", writer_id, low=0)
        for _ in range(BEGIN_ATTEMPTS_MAX):
            epoch = rules.epoch_to_begin_in(self._parts.state(), self._epochs.current())
            lease = min(settings.lease_ms, longest) if lease_ms is None else lease_ms
            transaction = rules.opened(self._parts.store.now_ms(), lease, longest, writer_id)
            transaction_id = make_transaction_id(epoch, self._parts.store.transaction_counters.take()[0])
            if self._begun(transaction_id, transaction):
                return transaction_id
        raise IllegalState(f"expected the same epoch after a begin, found another in {BEGIN_ATTEMPTS_MAX} attempts")

    def read(self, transaction_id: UUID) -> ActiveTransaction | None:
        """A transaction that has not ended; None if it has ended or does not exist. 1 call."""
        versioned = self._versioned(transaction_id)
        return None if versioned is None else versioned.value

    def _versioned(self, transaction_id: UUID) -> Versioned[ActiveTransaction] | None:
        try:
            return self._parts.keys.transaction(transaction_epoch(transaction_id), transaction_id).read()
        except TableMissing:
            return None

    def read_many(self, ids: Sequence[UUID]) -> dict[UUID, ActiveTransaction]:
        """Those of several transactions that have not ended. 1 call each."""
        transactions = self._parts.each(self.read, ids)
        return {pair: value for pair, value in zip(ids, transactions, strict=True) if value is not None}

    def status(self, transaction_id: UUID) -> TransactionStatus:
        """The status of a transaction; UNKNOWN if it is not stored any more. 1 call, 4 at most if it has ended."""
        active = self.read(checked_uuid("a transaction's id", transaction_id))
        if active is not None:
            return active.status
        ended = self._completed(transaction_id)
        return TransactionStatus.UNKNOWN if ended is None else ended.status

    def ping(self, transaction_id: UUID, lease_ms: int) -> ActiveTransaction:
        """Extend the lease of an open transaction. 2 calls.

        Raises:
            NotInHistory: it has ended, or does not exist.
            IllegalState: it is not open any more.
            InvalidArgument: an invalid duration, or one beyond its maximum lifetime.
        """
        transaction_id = checked_uuid("a transaction's id", transaction_id)
        lease_ms = checked_duration("a lease", lease_ms)
        now_ms = self._parts.store.now_ms()
        return self._change(transaction_id, lambda now: rules.with_lease(now, now_ms, lease_ms))

    def renew(self, transaction_id: UUID) -> ActiveTransaction:
        """Extend the lease of an open transaction by its length, at most to the end of its maximum lifetime. 2 calls.

        Raises:
            NotInHistory: it has ended, or does not exist.
            IllegalState: it is to be aborted.
        """
        transaction_id = checked_uuid("a transaction's id", transaction_id)
        now_ms = self._parts.store.now_ms()
        return self._change(transaction_id, lambda now: rules.with_renewed_lease(now, now_ms))

    def seal(
        self,
        transaction_id: UUID,
        *,
        commit: bool,
        commit_time_ms: int | None = None,
        contents: TransactionContents | None = None,
    ) -> TransactionStatus:
        """Decide to commit or abort an open transaction; a repeated call returns its present status.

        Args:
            transaction_id: the transaction.
            commit: whether to commit it; otherwise it is aborted.
            commit_time_ms: the writer's time.
            contents: the events that the caller has stored, which the commit must find; None = not known. To abort:
                None.

        Raises:
            NotInHistory: it is not stored any more.
            IllegalState: the opposite was decided before; or it is committed with other contents.
            InvalidArgument: an invalid time.
        """
        transaction_id = checked_uuid("a transaction's id", transaction_id)
        if commit_time_ms is not None:
            commit_time_ms = checked_time("the writer's time", commit_time_ms)
        record = self._sealed(transaction_id, commit=commit, commit_time_ms=commit_time_ms, contents=contents)
        return record if isinstance(record, TransactionStatus) else record.status

    def _sealed(
        self,
        transaction_id: UUID,
        *,
        commit: bool,
        commit_time_ms: int | None = None,
        contents: TransactionContents | None = None,
    ) -> ActiveTransaction | TransactionStatus:
        """As `seal`; return the record of the transaction, or its final status if it has ended."""
        seen = self._versioned(transaction_id)
        if seen is None:
            return rules.refuse_other_end(self._completed(transaction_id), commit=commit, contents=contents)
        position: int | None = None
        if not rules.is_sealed(seen.value.status, commit=commit, reason=seen.value.reason):
            position = self.order.add(transaction_id) if commit else None
        elif rules.with_contents(seen.value, contents) is None:
            return seen.value

        def sealed(now: ActiveTransaction) -> ActiveTransaction | None:
            if rules.is_sealed(now.status, commit=commit, reason=now.reason):
                return rules.with_contents(now, contents)
            if position is None:
                return rules.after_abort_start(now)
            return rules.after_commit_start(rules.with_contents(now, contents) or now, position, commit_time_ms)

        try:
            return self._change(transaction_id, sealed, seen)
        except NotInHistory:
            return rules.refuse_other_end(self._completed(transaction_id), commit=commit, contents=contents)

    def record_contents(self, transaction_id: UUID, contents: TransactionContents) -> ActiveTransaction:
        """Record which events of a transaction are stored, before the commit is decided. 2 calls.

        Raises:
            NotInHistory: it has ended, or does not exist.
            IllegalState: it is committed with other contents.
        """
        return self._change(transaction_id, lambda now: rules.with_contents(now, contents))

    def each_active(self) -> Iterator[tuple[UUID, ActiveTransaction]]:
        """All transactions that have not ended, ascending by id; at most 1,000 in memory. Calls as `active`."""
        ids = self.each_id()
        while some := list(islice(ids, READ_AT_ONCE_MAX)):
            yield from self.read_many(some).items()

    def each_id(self) -> Iterator[UUID]:
        """The ids of all transactions that have not ended, ascending. 1 call, 1 for 1,000 of each epoch with any."""
        for epoch in self.epochs():
            with suppress(TableMissing):
                yield from map(UUID, self._parts.keys.transactions(epoch).keys())

    def active(self) -> dict[UUID, ActiveTransaction]:
        """All transactions that have not ended. 1 call, 1 for 1,000 of each epoch with any, 1 a transaction."""
        return dict(self.each_active())

    def epochs(self) -> list[int]:
        """Epochs that may have transactions, ascending. 1 call for 1,000 epochs."""
        return sorted(map(int, self._parts.keys.epochs.keys()))

    def epochs_with_table(self) -> list[int]:
        """Epochs whose transactions have a table, ascending. 1 call for 1,000 tables."""
        stream = self._parts.stream
        names = self._parts.store.tables.table_names(stream.transactions_prefix)
        epochs = [stream.epoch_of_table(name) for name in names]
        return sorted(epoch for epoch in epochs if epoch is not None)

    def end(self, transaction_id: UUID) -> TransactionStatus:
        """Store the end of a sealed transaction, then remove its entry. 4 calls.

        The host, if there is one, first deletes the data of a transaction that is to be aborted.

        Raises:
            IllegalState: it is open.
            NotInHistory: it does not exist, or is not stored any more.
        """
        transaction = self.read(transaction_id)
        if transaction is None:
            known = self._completed(transaction_id)
            if known is None:
                raise NotInHistory(
                    f"expected a transaction of this stream, found none with id {transaction_id}", Sought.TRANSACTION
                )
            return known.status
        return self._ended(transaction_id, transaction)

    def _ended(self, transaction_id: UUID, record: ActiveTransaction) -> TransactionStatus:
        completion = rules.completion_of(record, self._parts.store.now_ms())
        if record.status is TransactionStatus.ABORTING and self._parts.has_host:
            is_given_up = record.commit_position is not None
            self._parts.host.abort(self._parts.name, transaction_id, is_given_up=is_given_up)
            if is_given_up and self.read(transaction_id) != record:
                return self.end(transaction_id)  # a session that had begun the merge has noted it meanwhile
        ended = CompletedTransactions(self._parts.store).add(self._parts.stream, transaction_id, completion)
        self._erase(transaction_id)
        return ended.status

    def record_offsets(self, offsets: Mapping[UUID, Mapping[int, int]]) -> None:
        """Store the start offsets of transactions that are being committed; stored offsets stay. 2 calls each.

        Args:
            offsets: offsets by transaction, and by segment id.
        """
        reported = {
            transaction_id: checked_numbers("offsets from the host", at, 0) for transaction_id, at in offsets.items()
        }

        def note(transaction_id: UUID) -> None:
            with suppress(NotInHistory):  # another process has ended it
                self._change(transaction_id, lambda now: rules.with_offsets(now, reported[transaction_id]))

        self._parts.each(note, [transaction_id for transaction_id, at in reported.items() if len(at)])

    def record_merged(self, contents: Mapping[UUID, TransactionContents | None]) -> dict[UUID, ActiveTransaction]:
        """Record that events of transactions are in the segments, before the host deletes them. 2 calls each.

        Args:
            contents: the merged events of each; None = not known.

        Returns:
            The records afterwards, without transactions that another process has ended. A record that says nothing of
            the merge names other contents.
        """

        def note(transaction_id: UUID) -> ActiveTransaction | None:
            try:
                return self._change(transaction_id, lambda now: rules.after_merge(now, contents[transaction_id]))
            except NotInHistory:
                return None

        ids = list(contents)
        noted = self._parts.each(note, ids)
        return {pair: value for pair, value in zip(ids, noted, strict=True) if value is not None}

    def give_up(self, transaction_id: UUID) -> TransactionStatus:
        """Abort a transaction that is to be committed, because its events cannot be read. May be repeated.

        Its commit then goes on without it. Without a host it stays ABORTING: the process that commits ends it.

        If a session has begun to merge it meanwhile, it stays ABORTING until it is known how the merge ended.

        Raises:
            NotInHistory: it is not stored any more.
            IllegalState: it is open, committed, or its events are in the segments.
        """
        transaction_id = checked_uuid("a transaction's id", transaction_id)
        try:
            self._change(transaction_id, rules.after_giving_up)
        except NotInHistory:
            return rules.refuse_other_end(self._completed(transaction_id), commit=False)
        return self._end_aborting(transaction_id)

    def abort(self, transaction_id: UUID) -> TransactionStatus:
        """Abort a transaction, let the host delete its data, and drop its table if it was the last of an older epoch.

        9 calls; no record of another transaction is read. Without a host it stays ABORTING: a process with a host ends
        it when it looks for requests, or with `abort_expired`.

        Raises:
            NotInHistory, IllegalState: as `seal`.
        """
        transaction_id = checked_uuid("a transaction's id", transaction_id)
        record = self._sealed(transaction_id, commit=False)
        if isinstance(record, TransactionStatus):
            status = record
        else:
            status = self._ended(transaction_id, record) if self._parts.has_host else record.status
        self._drop_epochs([transaction_epoch(transaction_id)])
        return status

    def abort_expired(self) -> list[UUID]:
        """Abort open transactions whose lease has expired; return their ids. Without a host they stay ABORTING."""
        now_ms = self._parts.store.now_ms()
        expired = [transaction_id for transaction_id, value in self.each_active() if rules.is_expired(value, now_ms)]
        for transaction_id in expired:
            self.expire(transaction_id, now_ms)
        self.end_aborting()
        return expired

    def expire(self, transaction_id: UUID, now_ms: int) -> TransactionStatus:
        """Decide to abort a transaction if its lease has expired; return its status. 2 calls."""
        with suppress(NotInHistory):  # another process has ended it
            return self._change(transaction_id, lambda now: rules.after_expiry(now, now_ms)).status
        return self.status(transaction_id)

    def end_aborting(self) -> None:
        """End all transactions that are to be aborted, and drop tables without transactions.

        Without a host it only drops tables.
        """
        for transaction_id, value in self.each_active() if self._parts.has_host else ():
            if value.status is TransactionStatus.ABORTING:
                self._end_aborting(transaction_id)
        self.drop_epochs()

    def drop_epochs(self) -> None:
        """Drop tables of older epochs without transactions. 1 call if there are no such tables."""
        self._drop_epochs(self.epochs())

    def _drop_epochs(self, epochs: Sequence[int]) -> None:
        for epoch in rules.droppable_epochs(epochs, self._epochs.current()):
            if self._is_empty(epoch):
                self._parts.store.drop_table(self._parts.stream.transactions_table(epoch))
                self._parts.keys.epoch_mark(epoch).erase()

    def _end_aborting(self, transaction_id: UUID) -> TransactionStatus:
        with suppress(OperationNotAllowed):  # given up, and its merge may be under way: a later look ends it
            if self._parts.has_host:
                return self.end(transaction_id)
        return TransactionStatus.ABORTING

    def _completed(self, transaction_id: UUID) -> CompletedTransaction | None:
        return CompletedTransactions(self._parts.store).find(self._parts.stream, transaction_id)

    def _begun(self, transaction_id: UUID, transaction: ActiveTransaction) -> bool:
        epoch = transaction_epoch(transaction_id)
        key = self._parts.keys.transaction(epoch, transaction_id)
        epoch_mark = self._parts.keys.epoch_mark(epoch)
        if epoch_mark.read() is None:
            epoch_mark.create_if_absent(MARK)
        try:
            stored = key.create_if_absent(transaction)
        except TableMissing:
            self._parts.store.tables.create_table(self._parts.stream.transactions_table(epoch))
            stored = key.create_if_absent(transaction)
        if stored.value != transaction:
            found = f"one that began at {stored.value.created_ms} ms: the counter of transaction ids went back"
            raise CatalogDamaged(f"transaction {transaction_id}: expected an id that no transaction has, found {found}")
        if self._epochs.current().reference_epoch != epoch:
            self._erase(transaction_id)
            return False
        try:
            refuse_sealed(self._parts.state())  # a sealing that begins later finds the entry
        except IllegalState:
            self._erase(transaction_id)
            raise
        return True

    def _erase(self, transaction_id: UUID) -> None:
        # Ids are not used again, and an entry to be removed is not changed any more: no tombstone is needed, and
        # listings contain only existing transactions.
        with suppress(TableMissing):
            self._parts.keys.transaction(transaction_epoch(transaction_id), transaction_id).erase()

    def _is_empty(self, epoch: int) -> bool:
        try:
            return next(self._parts.keys.transactions(epoch).keys(), None) is None
        except TableMissing:
            return True

    def _change(
        self,
        transaction_id: UUID,
        change: Callable[[ActiveTransaction], ActiveTransaction | None],
        seen: Versioned[ActiveTransaction] | None = None,
    ) -> ActiveTransaction:
        def step(now: ActiveTransaction | None) -> ActiveTransaction | None:
            if now is None:
                raise NotInHistory(
                    f"expected an active transaction, found none with id {transaction_id}", Sought.TRANSACTION
                )
            return change(now)

        key = self._parts.keys.transaction(transaction_epoch(transaction_id), transaction_id)
        try:
            return key.change(step, seen=seen).value
        except TableMissing as error:
            raise NotInHistory(
                f"expected an active transaction, found none with id {transaction_id}", Sought.TRANSACTION
            ) from error


SWEEP_PAUSE_MS: Final = 60_000
"""The least time between two sweeps of one process over the transactions of a stream."""

SWEEP_READS_MAX: Final = 1_000
"""How many records one sweep reads; others are left to the next sweep."""

SWEEP_ENDS_MAX: Final = 100
"""How many transactions one sweep ends."""

SWEEP_KNOWN_MAX: Final = 100_000
"""How many expiry times are remembered, so that a record is not read again before its transaction may have expired."""


class ExpirySweep:
    """Ends the transactions of dead writers: expired ones, and those whose abort was begun. Threads: any.

    Writers extend the leases of what they work on, so an expired transaction has no writer any more.

    Args:
        parts: the parts of the stream, with a host.
        transactions: its transactions.
    """

    def __init__(self, parts: StreamParts, transactions: TransactionStore) -> None:
        self._parts = parts
        self._transactions = transactions
        self._lock = Lock()
        self._swept_ms: int | None = None
        self._known: dict[UUID, int] = {}

    def run(self) -> list[UUID]:
        """Look once, and end a bounded number of transactions; return their ids.

        Calls: none within a minute of the last sweep. Otherwise 1 if there are no open transactions; else 2, 1 for
        each that is new or may have expired since it was read, and 9 for each that is ended.
        """
        now_ms = self._parts.store.now_ms()
        with self._lock:
            if self._swept_ms is not None and 0 <= now_ms - self._swept_ms < SWEEP_PAUSE_MS:
                return []
            self._swept_ms, known = now_ms, self._known
        found: dict[UUID, int] = {}
        ended: list[UUID] = []
        reads = 0
        for transaction_id in self._transactions.each_id():
            expiry_ms = known.get(transaction_id)
            if expiry_ms is None or now_ms > expiry_ms:
                if reads >= SWEEP_READS_MAX or len(ended) >= SWEEP_ENDS_MAX:
                    break
                reads += 1
                expiry_ms = self._looked_at(transaction_id, now_ms)
            if expiry_ms is None:
                ended.append(transaction_id)
            elif len(found) < SWEEP_KNOWN_MAX:
                found[transaction_id] = expiry_ms
        if ended:
            self._transactions.drop_epochs()
        with self._lock:
            self._known = found
        return ended

    def _looked_at(self, transaction_id: UUID, now_ms: int) -> int | None:
        """The time from which a transaction is to be looked at again; None if it was ended."""
        record = self._transactions.read(transaction_id)
        if record is None:
            return now_ms
        status = record.status
        if rules.is_expired(record, now_ms):
            status = self._transactions.expire(transaction_id, now_ms)
        if status is TransactionStatus.ABORTING:
            try:
                self._transactions.end(transaction_id)
            except NotInHistory:  # another process has ended it
                return None
            except OperationNotAllowed:  # it was given up, and its merge may be under way
                return now_ms + SWEEP_PAUSE_MS
            return None
        return record.expiry_ms if record.status is TransactionStatus.OPEN else now_ms + SWEEP_PAUSE_MS
