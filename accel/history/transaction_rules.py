"""What may become of a transaction: kept open, sealed to be committed or aborted, completed.

A transaction is sealed by one write, and ends when its entry among the completed ones is written; only then its active
entry is removed. So at any time one of both is there, and a request that comes twice gets the same answer twice:

    | asked for    | OPEN                              | COMMITTING | COMMITTED | ABORTING | ABORTED |
    |--------------|-----------------------------------|------------|-----------|----------|---------|
    | commit       | enters the order, then COMMITTING | as it is   | as it is  | refused  | refused |
    | abort        | ABORTING                          | refused    | refused   | as it is | as it is|

Source: PDP-35 and the upstream system.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from accel.errors import IllegalState, InvalidArgument, NotInHistory, Sought
from accel.history.id_columns import IdMap
from accel.history.records import EpochRecord
from accel.history.states import StreamState, refuse_sealed
from accel.history.transactions import ActiveTransaction, CompletedTransaction, TransactionStatus

COMPLETED_BATCHES_KEPT: Final = 2

_COMMITS: Final = frozenset({TransactionStatus.COMMITTING, TransactionStatus.COMMITTED})
_ABORTS: Final = frozenset({TransactionStatus.ABORTING, TransactionStatus.ABORTED})
_ENDED: Final = {
    TransactionStatus.COMMITTING: TransactionStatus.COMMITTED,
    TransactionStatus.ABORTING: TransactionStatus.ABORTED,
}


def epoch_to_begin_in(state: StreamState, current: EpochRecord) -> int:
    """The epoch that a new transaction's id carries: the reference of the current one, so that duplicates share it.

    Raises:
        IllegalState: the stream is sealed, or is being sealed.
    """
    refuse_sealed(state)
    return current.reference_epoch


def opened(now_ms: int, lease_ms: int, longest_ms: int, writer_id: str | None = None) -> ActiveTransaction:
    """A new transaction.

    Args:
        now_ms: milliseconds since 1970.
        lease_ms: how long it lives unless somebody asks for more.
        longest_ms: how long it lives at most.
        writer_id: who writes it.

    Raises:
        InvalidArgument: no time at all.
    """
    _refuse_lease(lease_ms, longest_ms)
    longest_until_ms = now_ms + longest_ms
    return ActiveTransaction(now_ms, min(now_ms + lease_ms, longest_until_ms), longest_until_ms, writer_id=writer_id)


def with_lease(transaction: ActiveTransaction, now_ms: int, lease_ms: int) -> ActiveTransaction:
    """A transaction with more time.

    Raises:
        IllegalState: it is not open any more.
        InvalidArgument: no time at all, or beyond the longest that it may live.
    """
    if transaction.status is not TransactionStatus.OPEN:
        raise IllegalState(f"expected an open transaction, found {transaction.status.value}")
    _refuse_lease(lease_ms, transaction.max_execution_expiry_ms - now_ms)
    return replace(transaction, lease_expiry_ms=now_ms + lease_ms)


def is_sealed(status: TransactionStatus, *, commit: bool) -> bool:
    """Whether a transaction was sealed so already; False if it is open.

    Args:
        status: where it stands.
        commit: whether it shall be committed; aborted otherwise.

    Raises:
        IllegalState: it was sealed the other way.
    """
    if status in (_COMMITS if commit else _ABORTS):
        return True
    if status is TransactionStatus.OPEN:
        return False
    wanted = "commit" if commit else "abort"
    raise IllegalState(f"expected a transaction to {wanted}, found {status.value}")


def committing(transaction: ActiveTransaction, position: int, commit_time_ms: int | None = None) -> ActiveTransaction:
    """An open transaction that shall be committed, after it got a position in the commit order."""
    return replace(
        transaction,
        status=TransactionStatus.COMMITTING,
        commit_position=position,
        commit_time_ms=commit_time_ms,
    )


def aborting(transaction: ActiveTransaction) -> ActiveTransaction:
    """An open transaction that shall be aborted."""
    return replace(transaction, status=TransactionStatus.ABORTING)


def merged_at(transaction: ActiveTransaction, offsets: IdMap) -> ActiveTransaction:
    """A committing transaction whose data is in the stream, with the offsets at which it was merged."""
    return replace(transaction, commit_offsets=offsets)


def with_offsets(transaction: ActiveTransaction, offsets: IdMap) -> ActiveTransaction | None:
    """The same, unless they are known already, or the transaction is not being committed: None."""
    if transaction.status is not TransactionStatus.COMMITTING or len(transaction.commit_offsets):
        return None
    return merged_at(transaction, offsets)


def ended(transaction: ActiveTransaction, now_ms: int) -> CompletedTransaction:
    """How a sealed transaction ends.

    Raises:
        IllegalState: it is open.
    """
    if transaction.status not in _ENDED:
        raise IllegalState(f"expected a transaction that is committed or aborted, found {transaction.status.value}")
    return CompletedTransaction(now_ms, _ENDED[transaction.status])


def refuse_other_end(known: CompletedTransaction | None, *, commit: bool) -> TransactionStatus:
    """How a transaction ended whose active entry is gone.

    Args:
        known: its completed entry, if there is one.
        commit: whether it was to be committed; aborted otherwise.

    Raises:
        NotInHistory: nobody knows it any more.
        IllegalState: it ended the other way.
    """
    if known is None:
        raise NotInHistory(
            "expected a transaction of this stream, found none: never begun, or ended long ago", Sought.TRANSACTION
        )
    is_sealed(known.status, commit=commit)
    return known.status


def is_expired(transaction: ActiveTransaction, now_ms: int) -> bool:
    """Whether an open transaction ran out of time and is to be aborted."""
    expiry_ms = min(transaction.lease_expiry_ms, transaction.max_execution_expiry_ms)
    return transaction.status is TransactionStatus.OPEN and now_ms > expiry_ms


def droppable_epochs(epochs: Collection[int], current: EpochRecord) -> list[int]:
    """Epochs before the current one's reference: their transaction tables are dropped once they are empty."""
    return sorted(epoch for epoch in epochs if epoch < current.reference_epoch)


def droppable_batches(batches: Collection[int]) -> list[int]:
    """Batches of completed transactions that are not needed any more: all but the newest two."""
    return sorted(batches)[:-COMPLETED_BATCHES_KEPT]


def _refuse_lease(lease_ms: int, longest_ms: int) -> None:
    if not 1 <= lease_ms <= longest_ms:
        raise InvalidArgument(f"expected a lease of 1 to {longest_ms} ms, found {lease_ms}")
