"""Transactions of a stream: their records, their possible ends, and the order of their commits.

    OPEN -> COMMITTING -> COMMITTED
      |
      +---> ABORTING ---> ABORTED

    ActiveTransaction         a transaction that is not finished
    CompletedTransaction      the end of a transaction                                       written once
    CommitOrder               the order in which commits were requested
    CommittingTransactions    the transactions that are being committed

**Life.** A transaction is sealed by one write, and ends when its completed entry is written; only then its active entry
is removed. So at any time at least one of both entries exists, and a repeated request gets the same answer:

    | request      | OPEN                              | COMMITTING | COMMITTED | ABORTING  | ABORTED   |
    |--------------|-----------------------------------|------------|-----------|-----------|-----------|
    | commit       | enters the order, then COMMITTING | unchanged  | unchanged | refused   | refused   |
    | abort        | ABORTING                          | refused    | refused   | unchanged | unchanged |
    | give up      | refused                           | ABORTING   | refused   | unchanged | unchanged |

**Contents.** The writer stores the events, and then decides the commit together with their number and size. So a
process that commits knows which events it must find: an object that is missing or has other contents is damage, and the
transaction is neither committed nor lost without a word. `is_merged` is written after the events have entered the
segments and before their object is deleted. Only a person gives a transaction up whose events cannot be read.

**Order.** The next commit takes all transactions of the oldest epoch that has any, in the order of their positions:

    commit order        0: a (epoch 0)   1: a   2: b (epoch 0)   3: c (epoch 0)   4: d (epoch 1)
    a is COMMITTING at position 0, b ABORTING, c still OPEN, d COMMITTING at position 4
    committed next      a
    purged              1 (a has position 0 already), 2 (b will not be committed)
    kept                3: c has its position, and will be marked COMMITTING; 4: epoch 0 is committed first

A transaction enters the order before it is marked COMMITTING with its position. If the process crashes in between, the
transaction enters the order again later, so only the position in the transaction's own record counts.

**Rolling commits.** A transaction's data is in separate segments, with the key ranges of the epoch in which it began.
If the stream has other segments by now, the data cannot be merged into them directly. So two epochs follow the active
epoch, A:

    | epoch          | segments                  | reference             | begins                     |
    |----------------|---------------------------|-----------------------|----------------------------|
    | T = A + 1      | those of the transactions | the transactions' one | now, but later than A      |
    | N = A + 2      | those of A                | that of A             | one millisecond after T    |

Order of writes: T, its history, N, its history, the sealing epochs of the segments of A and of T, sizes of T; then the
segments of A are sealed, their sizes are written, and N becomes the current epoch. Both epochs are created if absent,
perhaps earlier by a process with another clock. So **T is read back, and all later times follow from the stored
record**; otherwise the epoch's record would contain the first time and the history the second.

Threads: all records are immutable, any thread may read them.

Source: PDP-35; the upstream system for the order of commits; PDP-32 for the duplicates.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, unique
from itertools import pairwise
from typing import Final
from uuid import UUID

from accel.errors import IllegalState, InvalidArgument, NotInHistory, Sought
from accel.history.rules.epochs import NO_EVENTS, EpochRecord, LastEvents, duplicate_of, start_after
from accel.history.rules.states import StreamState, refuse_sealed
from accel.history.rules.values import EPOCH_MAX, NOTHING, IdMap, check_epoch, check_least, transaction_epoch
from accel.units import moment_text

COMMITTED_AT_ONCE_MAX: Final = 10_000
"""Maximum number of transactions in one `CommittingTransactions`; others wait for the next commit."""


@dataclass(frozen=True, slots=True)
class CommittingTransactions:
    """Transactions of one epoch that are being committed, in this order.

    Args:
        epoch: the epoch in which they began.
        transaction_ids: in the order of the commit; empty = no commit is under way.
        active_epoch: for a rolling commit, the epoch that was active at its start. Two duplicate epochs follow it; the
            transactions are merged into the first. None = the stream has the segments with which they began.

    Raises:
        ValueError: too many transactions, a transaction twice, or an active epoch without transactions.
    """

    epoch: int = 0
    transaction_ids: tuple[UUID, ...] = ()
    active_epoch: int | None = None

    def __post_init__(self) -> None:
        check_epoch("committing transactions", self.epoch, 0)
        if len(set(self.transaction_ids)) < len(self.transaction_ids):
            raise ValueError("committing transactions: expected each transaction once")
        if len(self.transaction_ids) > COMMITTED_AT_ONCE_MAX:
            found = len(self.transaction_ids)
            raise ValueError(f"committing transactions: expected at most {COMMITTED_AT_ONCE_MAX}, found {found}")
        if self.active_epoch is not None and (self.is_empty or not 0 <= self.active_epoch <= EPOCH_MAX - 2):
            raise ValueError(f"committing transactions: expected an active epoch of a commit, found {self}")

    @property
    def is_empty(self) -> bool:
        """Whether no commit is under way."""
        return not self.transaction_ids

    @property
    def is_rolling(self) -> bool:
        """Whether the commit rolls: the transactions began with other segments than the stream has now."""
        return self.active_epoch is not None

    def with_active_epoch(self, active_epoch: int) -> CommittingTransactions:
        """The same transactions, as a rolling commit after this active epoch."""
        return replace(self, active_epoch=active_epoch)


NO_COMMIT: Final = CommittingTransactions()
"""The record while no commit is under way."""


@unique
class TransactionStatus(Enum):
    """The status of a transaction."""

    UNKNOWN = "UNKNOWN"
    OPEN = "OPEN"
    COMMITTING = "COMMITTING"
    COMMITTED = "COMMITTED"
    ABORTING = "ABORTING"
    ABORTED = "ABORTED"


@dataclass(frozen=True, slots=True)
class TransactionContents:
    """The events of a transaction, as its writer stored them.

    Args:
        events: their number.
        size_bytes: the size of the object that has them; 0 without events, as there is no object then.

    Raises:
        ValueError: a number below 0, or only one of both is 0.
    """

    events: int
    size_bytes: int

    def __post_init__(self) -> None:
        check_least("contents of a transaction", 0, events=self.events, size_bytes=self.size_bytes)
        if bool(self.events) != bool(self.size_bytes):
            raise ValueError(f"contents of a transaction: expected events with a size, found {self}")

    def __str__(self) -> str:
        return f"{self.events} events in {self.size_bytes} bytes" if self.events else "no events"


NO_CONTENTS: Final = TransactionContents(0, 0)
"""The contents of a transaction without events."""

REASON_SIZE_MAX: Final = 1_000
"""Maximum number of characters of the reason of an abort."""


def _contents(events: int | None, size_bytes: int | None) -> TransactionContents | None:
    if events is None or size_bytes is None:
        if events is not size_bytes:
            raise ValueError(f"transaction: expected a number of events with a size, found {events} and {size_bytes}")
        return None
    return TransactionContents(events, size_bytes)


@dataclass(frozen=True, slots=True)
class ActiveTransaction:
    """A transaction that is not finished. Times are milliseconds since 1970.

    Args:
        created_ms: time at which it began.
        lease_expiry_ms: it is aborted at this time, unless its lease is extended before.
        max_execution_expiry_ms: it is aborted at this time in any case.
        status: the status of the transaction.
        writer_id: name of its writer, if known.
        commit_time_ms: the writer's time of the commit.
        commit_position: its position in the commit order; other positions of this transaction do not count.
        commit_offsets: start offsets of its merged data, by segment id.
        lease_ms: the length of the lease, as it was last requested; 0 = not known.
        event_count: the number of its events, once its writer has stored them for the commit; None = not known: they
            are not stored yet, another program decided, or a host of another kind keeps them.
        size_bytes: the size of the object with them; None = not known.
        is_merged: whether the events are in the segments, so that their object is not needed any more.
        reason: why it is to be aborted, if not its writer asked for it.

    Raises:
        ValueError: a negative number, an expiry before the creation, or status COMMITTING without a position.
    """

    created_ms: int
    lease_expiry_ms: int
    max_execution_expiry_ms: int
    status: TransactionStatus = TransactionStatus.OPEN
    writer_id: str | None = None
    commit_time_ms: int | None = None
    commit_position: int | None = None
    commit_offsets: IdMap = NOTHING
    lease_ms: int = 0
    event_count: int | None = None
    size_bytes: int | None = None
    is_merged: bool = False
    reason: str = ""

    def __post_init__(self) -> None:
        check_least(
            "transaction", 0, created_ms=self.created_ms, position=self.commit_position or 0, lease_ms=self.lease_ms
        )
        _contents(self.event_count, self.size_bytes)
        check_least("transaction", self.created_ms, expiry_ms=self.expiry_ms)
        if self.status is TransactionStatus.COMMITTING and self.commit_position is None:
            raise ValueError("transaction: expected a position in the commit order with status COMMITTING, found none")

    @property
    def contents(self) -> TransactionContents | None:
        """Its events; None = not known."""
        return _contents(self.event_count, self.size_bytes)

    @property
    def expiry_ms(self) -> int:
        """The time after which it is aborted, unless its lease is extended."""
        return min(self.lease_expiry_ms, self.max_execution_expiry_ms)


@dataclass(frozen=True, slots=True)
class CompletedTransaction:
    """The end of a transaction.

    Args:
        complete_time_ms: time of its end, milliseconds since 1970.
        status: COMMITTED or ABORTED.
        event_count: the number of its events, committed or given up; None = not known.
        size_bytes: the size of the object that had them; None = not known.
        reason: why it was aborted, if not its writer asked for it.

    Raises:
        ValueError: another status.
    """

    complete_time_ms: int
    status: TransactionStatus
    event_count: int | None = None
    size_bytes: int | None = None
    reason: str = ""

    @property
    def contents(self) -> TransactionContents | None:
        """Its events; None = not known."""
        return _contents(self.event_count, self.size_bytes)

    def __post_init__(self) -> None:
        _contents(self.event_count, self.size_bytes)
        if self.status not in (TransactionStatus.COMMITTED, TransactionStatus.ABORTED):
            raise ValueError(f"completed transaction: expected COMMITTED or ABORTED, found {self.status.value}")


@dataclass(frozen=True, slots=True)
class CommitOrder:
    """The order in which commits of transactions were requested.

    A transaction gets a position first and is then marked COMMITTING with it. So there may be positions of transactions
    that were never marked, and several positions of one transaction; `next_commit` ignores both.

    Args:
        next_position: the position of the next transaction; never falls, so no position is used twice.
        positions: ascending, all below the next position.
        transaction_ids: the transaction at each position.

    Raises:
        ValueError: positions out of order or bounds, or another number of transactions.
    """

    next_position: int = 0
    positions: tuple[int, ...] = ()
    transaction_ids: tuple[UUID, ...] = ()

    def __post_init__(self) -> None:
        if len(self.positions) != len(self.transaction_ids):
            raise ValueError("commit order: expected a transaction for each position")
        bounds = (-1, *self.positions, self.next_position)
        if any(later <= earlier for earlier, later in pairwise(bounds)):
            raise ValueError(f"commit order: expected ascending positions below {self.next_position}")


COMPLETED_BATCHES_KEPT: Final = 2

_COMMITS: Final = frozenset({TransactionStatus.COMMITTING, TransactionStatus.COMMITTED})
_ABORTS: Final = frozenset({TransactionStatus.ABORTING, TransactionStatus.ABORTED})
_ENDED: Final = {
    TransactionStatus.COMMITTING: TransactionStatus.COMMITTED,
    TransactionStatus.ABORTING: TransactionStatus.ABORTED,
}


def epoch_to_begin_in(state: StreamState, current: EpochRecord) -> int:
    """The epoch in a new transaction's id: the reference of the current epoch, so that duplicates share it.

    Raises:
        IllegalState: the stream is sealed, or is being sealed.
    """
    refuse_sealed(state)
    return current.reference_epoch


def opened(now_ms: int, lease_ms: int, longest_ms: int, writer_id: str | None = None) -> ActiveTransaction:
    """A new transaction.

    Args:
        now_ms: milliseconds since 1970.
        lease_ms: time until it is aborted, unless its lease is extended.
        longest_ms: its maximum lifetime.
        writer_id: name of its writer.

    Raises:
        InvalidArgument: a lease below 1 ms, or longer than the maximum lifetime.
    """
    _refuse_lease(lease_ms, longest_ms)
    longest_until_ms = now_ms + longest_ms
    lease_until_ms = min(now_ms + lease_ms, longest_until_ms)
    return ActiveTransaction(now_ms, lease_until_ms, longest_until_ms, writer_id=writer_id, lease_ms=lease_ms)


def with_lease(transaction: ActiveTransaction, now_ms: int, lease_ms: int) -> ActiveTransaction:
    """A transaction with an extended lease.

    Raises:
        IllegalState: it is not open any more.
        InvalidArgument: a lease below 1 ms, or beyond the maximum lifetime.
    """
    _refuse_sealed_lease(transaction)
    _refuse_lease(lease_ms, transaction.max_execution_expiry_ms - now_ms)
    return replace(transaction, lease_expiry_ms=now_ms + lease_ms, lease_ms=lease_ms)


def with_renewed_lease(transaction: ActiveTransaction, now_ms: int) -> ActiveTransaction | None:
    """A transaction whose lease is extended by its own length, at most to the end of its maximum lifetime.

    None if the lease lasts as long already, or the transaction is being committed.

    Raises:
        IllegalState: it is to be aborted.
    """
    if transaction.status is TransactionStatus.COMMITTING:
        return None
    _refuse_sealed_lease(transaction)
    expiry_ms = min(now_ms + transaction.lease_ms, transaction.max_execution_expiry_ms)
    return None if expiry_ms <= transaction.lease_expiry_ms else replace(transaction, lease_expiry_ms=expiry_ms)


def _refuse_sealed_lease(transaction: ActiveTransaction) -> None:
    if transaction.status is not TransactionStatus.OPEN:
        raise IllegalState(
            f"expected an open transaction, found {transaction.status.value}{_because(transaction.reason)}"
        )


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""


def is_sealed(status: TransactionStatus, *, commit: bool, reason: str = "") -> bool:
    """Whether a transaction is sealed already, for the same decision; False if it is open.

    Args:
        status: the status of the transaction.
        commit: whether to commit it; otherwise to abort it.
        reason: why it was aborted, for the error.

    Raises:
        IllegalState: it was sealed for the opposite decision.
    """
    if status in (_COMMITS if commit else _ABORTS):
        return True
    if status is TransactionStatus.OPEN:
        return False
    wanted = "commit" if commit else "abort"
    raise IllegalState(f"expected a transaction to {wanted}, found {status.value}{_because(reason)}")


def after_commit_start(
    transaction: ActiveTransaction, position: int, commit_time_ms: int | None = None
) -> ActiveTransaction:
    """The record of an open transaction that is to be committed, after it got a position in the commit order."""
    return replace(
        transaction,
        status=TransactionStatus.COMMITTING,
        commit_position=position,
        commit_time_ms=commit_time_ms,
    )


def with_contents(transaction: ActiveTransaction, contents: TransactionContents | None) -> ActiveTransaction | None:
    """The record of an open or committing transaction with its contents; None if it has them, or `contents` is None.

    Raises:
        IllegalState: it has other contents, or is merged without known contents.
    """
    if contents is None or transaction.contents == contents:
        return None
    if transaction.contents is not None or transaction.is_merged:
        refuse_other_contents(transaction.contents, contents)
    return replace(transaction, event_count=contents.events, size_bytes=contents.size_bytes)


def refuse_other_contents(known: TransactionContents | None, contents: TransactionContents | None) -> None:
    """Refuse a writer whose events are not those that are committed: another process decided before they were stored.

    Args:
        known: the contents that were, or will be, committed; None = not known.
        contents: the stored events of the writer; None = the caller is no writer.

    Raises:
        IllegalState: other contents.
    """
    if contents is not None and known != contents and (contents.events or known is not None):
        found = "unknown contents" if known is None else str(known)
        raise IllegalState(
            f"expected a transaction with {contents} to commit, found that another process decided to commit it with"
            f" {found}: write its events again"
        )


def after_abort_start(transaction: ActiveTransaction, reason: str = "") -> ActiveTransaction:
    """The record of an open transaction that is to be aborted."""
    return replace(transaction, status=TransactionStatus.ABORTING, reason=reason[:REASON_SIZE_MAX])


def after_expiry(transaction: ActiveTransaction, now_ms: int) -> ActiveTransaction | None:
    """The record of an expired open transaction, which is to be aborted; None if it has not expired, or is sealed."""
    if not is_expired(transaction, now_ms):
        return None
    if transaction.max_execution_expiry_ms <= transaction.lease_expiry_ms:
        lasted_ms = transaction.max_execution_expiry_ms - transaction.created_ms
        what = f"its maximum lifetime of {lasted_ms} ms"
    else:
        what = f"its lease of {transaction.lease_ms} ms" if transaction.lease_ms else "its lease"
    return after_abort_start(transaction, f"{what} expired at {moment_text(transaction.expiry_ms)}")


def after_giving_up(transaction: ActiveTransaction) -> ActiveTransaction | None:
    """The record of a transaction to commit whose events a person gives up; None if it was given up before.

    Raises:
        IllegalState: it is open, and can be aborted; or its events are in the segments.
    """
    if transaction.status is TransactionStatus.ABORTING:
        return None
    if (
        transaction.status is not TransactionStatus.COMMITTING
        or transaction.is_merged
        or len(transaction.commit_offsets)
    ):
        found = "its events in the segments" if transaction.status is TransactionStatus.COMMITTING else "it open"
        raise IllegalState(f"expected a transaction that cannot be committed, found {found}")
    lost = "its events" if transaction.contents is None else str(transaction.contents)
    return after_abort_start(transaction, f"{lost} were given up by hand")


def after_merge(transaction: ActiveTransaction, contents: TransactionContents | None) -> ActiveTransaction | None:
    """The record of a transaction whose events are in the segments; None if it says so, or does not take the note.

    A transaction that was given up meanwhile is to be committed again if it has events: they are in the segments.

    Args:
        transaction: the stored record.
        contents: the merged events; None = not known.
    """
    is_given_up = transaction.status is TransactionStatus.ABORTING and transaction.commit_position is not None
    is_due = transaction.status is TransactionStatus.COMMITTING or (is_given_up and contents != NO_CONTENTS)
    known = transaction.contents
    if transaction.is_merged or not is_due or (None not in (known, contents) and known != contents):
        return None
    merged = replace(transaction, status=TransactionStatus.COMMITTING, is_merged=True, reason="")
    if contents is None:
        return merged
    return replace(merged, event_count=contents.events, size_bytes=contents.size_bytes)


def with_commit_offsets(transaction: ActiveTransaction, offsets: IdMap) -> ActiveTransaction:
    """The record of a committing transaction with the start offsets of its merged data."""
    return replace(transaction, commit_offsets=offsets)


def with_offsets(transaction: ActiveTransaction, offsets: IdMap) -> ActiveTransaction | None:
    """The record with start offsets; None if it has offsets already, or the transaction is not being committed."""
    if transaction.status is not TransactionStatus.COMMITTING or len(transaction.commit_offsets):
        return None
    return with_commit_offsets(transaction, offsets)


def completion_of(transaction: ActiveTransaction, now_ms: int) -> CompletedTransaction:
    """The end of a sealed transaction.

    Raises:
        IllegalState: it is open.
    """
    if transaction.status not in _ENDED:
        raise IllegalState(f"expected a sealed transaction, found {transaction.status.value}")
    return CompletedTransaction(
        now_ms, _ENDED[transaction.status], transaction.event_count, transaction.size_bytes, transaction.reason
    )


def refuse_other_end(
    known: CompletedTransaction | None, *, commit: bool, contents: TransactionContents | None = None
) -> TransactionStatus:
    """The final status of a transaction without an active entry.

    Args:
        known: its completed entry, if there is one.
        commit: whether the caller wants to commit it; otherwise to abort it.
        contents: the events that the caller wants to commit; None = any.

    Raises:
        NotInHistory: it is not stored any more.
        IllegalState: it ended in the opposite way, or with other events.
    """
    if known is None:
        raise NotInHistory(
            "expected a transaction of this stream, found none: it never began, or ended long ago", Sought.TRANSACTION
        )
    is_sealed(known.status, commit=commit, reason=known.reason)
    refuse_other_contents(known.contents, contents)
    return known.status


def is_expired(transaction: ActiveTransaction, now_ms: int) -> bool:
    """Whether the lease of an open transaction has expired, so that it is to be aborted."""
    return transaction.status is TransactionStatus.OPEN and now_ms > transaction.expiry_ms


def droppable_epochs(epochs: Collection[int], current: EpochRecord) -> list[int]:
    """Epochs before the reference of the current epoch: their transaction tables are dropped once they are empty."""
    return sorted(epoch for epoch in epochs if epoch < current.reference_epoch)


def droppable_batches(batches: Collection[int]) -> list[int]:
    """Batches of completed transactions that are to be dropped: all but the newest two."""
    return sorted(batches)[:-COMPLETED_BATCHES_KEPT]


def _refuse_lease(lease_ms: int, longest_ms: int) -> None:
    if not 1 <= lease_ms <= longest_ms:
        raise InvalidArgument(f"expected a lease of 1 to {longest_ms} ms, found {lease_ms}")


ReadTransactions = Callable[[Sequence[UUID]], Mapping[UUID, ActiveTransaction]]
"""Returns the transactions with these ids that are not finished; missing ones are left out."""


@dataclass(frozen=True, slots=True)
class NextCommit:
    """The next commit, and the positions that the order does not need any more.

    Args:
        committing: the transactions; empty if there are none.
        to_purge: positions that lead to no commit; may be removed at any time.
    """

    committing: CommittingTransactions
    to_purge: frozenset[int]


def with_transaction(order: CommitOrder, transaction_id: UUID) -> tuple[CommitOrder, int]:
    """The order with a transaction at its end, and the transaction's position."""
    position = order.next_position
    positions, ids = (*order.positions, position), (*order.transaction_ids, transaction_id)
    return CommitOrder(position + 1, positions, ids), position


def without_positions(order: CommitOrder, positions: Collection[int]) -> CommitOrder | None:
    """The order without some positions; None if it has none of them. The next position is unchanged."""
    known = frozenset(positions)
    kept = [entry for entry in zip(order.positions, order.transaction_ids, strict=True) if entry[0] not in known]
    if len(kept) == len(order.positions):
        return None
    return CommitOrder(
        order.next_position, tuple(at for at, _ in kept), tuple(transaction_id for _, transaction_id in kept)
    )


def next_commit(order: CommitOrder, read: ReadTransactions, limit: int = COMMITTED_AT_ONCE_MAX) -> NextCommit:
    """Choose the transactions of the next commit.

    Args:
        order: the present order.
        read: called once an epoch, from the oldest on, until an epoch has transactions to commit.
        limit: the maximum number of transactions.

    Raises:
        InvalidArgument: a limit below 1, or above 10,000.
    """
    if not 1 <= limit <= COMMITTED_AT_ONCE_MAX:
        raise InvalidArgument(f"expected a limit of 1 to {COMMITTED_AT_ONCE_MAX}, found {limit}")
    to_purge: set[int] = set()
    for epoch, entries in _by_epoch(order).items():
        transactions = read(sorted(set(entries.values())))
        chosen = {}
        for position, transaction_id in entries.items():
            transaction = transactions.get(transaction_id)
            if _counts(transaction, position):
                chosen[position] = transaction_id
            elif transaction is None or transaction.status is not TransactionStatus.OPEN:
                to_purge.add(position)
        if chosen:
            committing = CommittingTransactions(epoch, tuple(chosen.values())[:limit])
            return NextCommit(committing, frozenset(to_purge))
    return NextCommit(NO_COMMIT, frozenset(to_purge))


def positions_of(order: CommitOrder, committing: CommittingTransactions) -> frozenset[int]:
    """Positions of the transactions that are being committed.

    They are removed once `committing` is stored, also by a process that continues this commit after a crash.
    """
    known = frozenset(committing.transaction_ids)
    pairs = zip(order.positions, order.transaction_ids, strict=True)
    return frozenset(position for position, transaction_id in pairs if transaction_id in known)


def _by_epoch(order: CommitOrder) -> dict[int, dict[int, UUID]]:
    epochs: dict[int, dict[int, UUID]] = {}
    for position, transaction_id in zip(order.positions, order.transaction_ids, strict=True):
        epochs.setdefault(transaction_epoch(transaction_id), {})[position] = transaction_id
    return dict(sorted(epochs.items()))


def _counts(transaction: ActiveTransaction | None, position: int) -> bool:
    is_committing = transaction is not None and transaction.status is TransactionStatus.COMMITTING
    return is_committing and transaction is not None and transaction.commit_position == position


def needs_rolling(current: EpochRecord, transaction_epoch: EpochRecord) -> bool:
    """Whether the stream has other segments now than when the transactions began."""
    return current.reference_epoch != transaction_epoch.reference_epoch


def with_rolling(committing: CommittingTransactions, active_epoch: int) -> CommittingTransactions | None:
    """The record to write at the start of a rolling commit; None if it was written before.

    Raises:
        IllegalState: no commit is under way, the commit rolls from another epoch, or no epoch numbers are left.
    """
    if committing.is_empty or active_epoch > EPOCH_MAX - 2:
        raise IllegalState(f"expected a commit to roll from epoch {active_epoch}, found {committing}")
    if committing.active_epoch is None:
        return committing.with_active_epoch(active_epoch)
    if committing.active_epoch != active_epoch:
        found = committing.active_epoch
        raise IllegalState(f"expected a commit that rolls from epoch {active_epoch}, found one from {found}")
    return None


def repeat_transaction_epoch(
    active: EpochRecord, transaction_epoch: EpochRecord, now_ms: int, ended: LastEvents = NO_EVENTS
) -> EpochRecord:
    """T, which repeats the segments of the transactions. It is created if absent, and read back.

    Args:
        active: A, the epoch that was active when the commit began to roll.
        transaction_epoch: the epoch in which the transactions began.
        now_ms: the time of the commit, milliseconds since 1970; T begins no earlier.
        ended: the last events of the segments of A.
    """
    return duplicate_of(transaction_epoch, active, start_after(active, now_ms, ended))


def repeat_active_epoch(active: EpochRecord, stored: EpochRecord, ended: LastEvents = NO_EVENTS) -> EpochRecord:
    """N, which repeats the active segments.

    Args:
        active: A.
        stored: T, read back.
        ended: the last events of the segments of T.

    Raises:
        ValueError: another epoch than T.
    """
    if stored.epoch != active.epoch + 1:
        raise ValueError(f"expected epoch {active.epoch + 1}, found {stored.epoch}")
    return duplicate_of(active, stored, start_after(stored, stored.creation_time_ms + 1, ended))


def is_rolled(committing: CommittingTransactions, current: EpochRecord) -> bool:
    """Whether a later epoch than A is current already, so that no epoch is to be created any more."""
    return committing.active_epoch is not None and current.epoch > committing.active_epoch
