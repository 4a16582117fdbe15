"""Which transactions are committed next: all of the oldest epoch that has any, in the order in which they came.

    commit order        0: a (epoch 0)   1: a   2: b (epoch 0)   3: c (epoch 0)   4: d (epoch 1)
    a is COMMITTING at position 0, b ABORTING, c still OPEN, d COMMITTING at position 4
    committed next      a
    purged              1 (a came before), 2 (b is not committed any more)
    kept                3: c has its place, and is marked COMMITTING in a moment; 4: epoch 0 comes first

A transaction is entered here before it is marked COMMITTING with its position. Who crashes in between enters it once
more later, so only the position that the transaction itself names counts.

Complexity: linear in the positions.

Source: the upstream system.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from accel.errors import InvalidArgument
from accel.history.ids import transaction_epoch
from accel.history.records import COMMITTED_AT_ONCE_MAX, NO_COMMIT, CommittingTransactions
from accel.history.transactions import ActiveTransaction, CommitOrder, TransactionStatus

ReadTransactions = Callable[[Sequence[UUID]], Mapping[UUID, ActiveTransaction]]
"""The transactions with these ids that are not finished; those that are not there any more are left out."""


@dataclass(frozen=True, slots=True)
class NextCommit:
    """What to commit next, and what the order does not need any more.

    Args:
        committing: the transactions; empty if there are none.
        to_purge: positions that lead to nothing; may be removed at any time.
    """

    committing: CommittingTransactions
    to_purge: frozenset[int]


def with_transaction(order: CommitOrder, transaction_id: UUID) -> tuple[CommitOrder, int]:
    """The order with a transaction at its end, and the position that it got."""
    position = order.next_position
    positions, ids = (*order.positions, position), (*order.transaction_ids, transaction_id)
    return CommitOrder(position + 1, positions, ids), position


def without_positions(order: CommitOrder, positions: Collection[int]) -> CommitOrder | None:
    """The order without some positions; None if it has none of them. The next position stays as it is."""
    known = frozenset(positions)
    kept = [each for each in zip(order.positions, order.transaction_ids, strict=True) if each[0] not in known]
    if len(kept) == len(order.positions):
        return None
    return CommitOrder(order.next_position, tuple(at for at, _ in kept), tuple(each for _, each in kept))


def next_commit(order: CommitOrder, read: ReadTransactions, limit: int = COMMITTED_AT_ONCE_MAX) -> NextCommit:
    """Choose what is committed next.

    Args:
        order: as it stands.
        read: called once an epoch, from the oldest on, until one has something to commit.
        limit: so many transactions at most.

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

    They are removed once `committing` is stored, also by whoever takes that commit up after a crash.
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
