"""Transactions of a stream: their records.

    OPEN -> COMMITTING -> COMMITTED
      |
      +---> ABORTING ---> ABORTED

    ActiveTransaction        one that is not finished
    CompletedTransaction     how one ended                                                  written once
    CommitOrder              in which order transactions that shall be committed came

What may become of them: `transaction_rules` and `commit_order`.

Threads: all records are immutable, any thread may read them.

Source: PDP-35, and the upstream system for the order of commits.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, unique
from itertools import pairwise
from uuid import UUID

from accel.history.checks import check_least
from accel.history.id_columns import NOTHING, IdMap


@unique
class TransactionStatus(Enum):
    """Where a transaction stands."""

    UNKNOWN = "UNKNOWN"
    OPEN = "OPEN"
    COMMITTING = "COMMITTING"
    COMMITTED = "COMMITTED"
    ABORTING = "ABORTING"
    ABORTED = "ABORTED"


@dataclass(frozen=True, slots=True)
class ActiveTransaction:
    """A transaction that is not finished. Times are milliseconds since 1970.

    Args:
        created_ms: when it began.
        lease_expiry_ms: it is aborted if nobody asks for more time until then.
        max_execution_expiry_ms: it is aborted then in any case.
        status: where it stands.
        writer_id: who writes it, if they said so.
        commit_time_ms: the time that its writer gave with the commit.
        commit_position: its place in the commit order; other places that name it do not count.
        commit_offsets: where it was merged, by segment id.

    Raises:
        ValueError: a status that only finished ones have, a negative number, or one committing without a position.
    """

    created_ms: int
    lease_expiry_ms: int
    max_execution_expiry_ms: int
    status: TransactionStatus = TransactionStatus.OPEN
    writer_id: str | None = None
    commit_time_ms: int | None = None
    commit_position: int | None = None
    commit_offsets: IdMap = NOTHING

    def __post_init__(self) -> None:
        check_least("transaction", 0, created_ms=self.created_ms, position=self.commit_position or 0)
        expiry_ms = min(self.lease_expiry_ms, self.max_execution_expiry_ms)
        check_least("transaction", self.created_ms, expiry_ms=expiry_ms)
        if self.status is TransactionStatus.COMMITTING and self.commit_position is None:
            raise ValueError("transaction: expected a position in the commit order of one that is committing")


@dataclass(frozen=True, slots=True)
class CompletedTransaction:
    """How a transaction ended.

    Args:
        complete_time_ms: when, milliseconds since 1970.
        status: COMMITTED or ABORTED.

    Raises:
        ValueError: another status.
    """

    complete_time_ms: int
    status: TransactionStatus

    def __post_init__(self) -> None:
        if self.status not in (TransactionStatus.COMMITTED, TransactionStatus.ABORTED):
            raise ValueError(f"completed transaction: expected COMMITTED or ABORTED, found {self.status.value}")


@dataclass(frozen=True, slots=True)
class CommitOrder:
    """In which order transactions that shall be committed came.

    A transaction enters here first and is marked COMMITTING with its position afterwards, so there are positions of
    transactions that never came so far, and several positions of one. `commit_order` tells which count.

    Args:
        next_position: the position of the next one; never falls, so a position never comes twice.
        positions: ascending, all below the next one.
        transaction_ids: the transaction at each of them.

    Raises:
        ValueError: positions out of order or bounds, or another count of transactions.
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
