"""In which order transactions are committed: one key, written by compare-and-set.

A transaction gets a position first, and is marked COMMITTING with it afterwards; `accel.history.rules.transactions` has
the rules. Positions never fall, so one that was removed does not come again.
"""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from accel.history.rules.transactions import (
    CommitOrder,
    CommittingTransactions,
    ReadTransactions,
    next_commit,
    with_transaction,
    without_positions,
)
from accel.history.store.parts import StreamParts


class CommitOrdering:
    """The order of commits of one stream. Threads: any.

    Args:
        parts: of the stream.
    """

    def __init__(self, parts: StreamParts) -> None:
        self._parts = parts
        self._cell = parts.cells.commit_order()

    def read(self) -> CommitOrder:
        """The order as it stands. 1 call."""
        return self._cell.get().value

    def add(self, transaction_id: UUID) -> int:
        """Give a transaction a position at the end; after a lost reply perhaps two, of which it names one. 2 calls."""
        taken = 0

        def longer(order: CommitOrder | None) -> CommitOrder:
            nonlocal taken
            changed, taken = with_transaction(order or CommitOrder(), transaction_id)
            return changed

        self._cell.change(longer)
        return taken

    def next_commit(self, read: ReadTransactions, limit: int | None = None) -> CommittingTransactions:
        """What is to be committed next; purges positions that lead to nothing. 1 call, 2 to purge, and what is read.

        Args:
            read: gives transactions by their ids.
            limit: so many at most; None = as the settings say.

        Raises:
            InvalidArgument: a limit out of bounds.
        """
        most = self._parts.store.settings.committed_at_once_max if limit is None else limit
        chosen = next_commit(self.read(), read, most)
        self._remove(chosen.to_purge)
        return chosen.committing

    def remove(self, ids: Collection[UUID]) -> None:
        """Take all positions of some transactions out. 1 call, 3 if there are any."""
        order, known = self.read(), frozenset(ids)
        pairs = zip(order.positions, order.transaction_ids, strict=True)
        self._remove([position for position, each in pairs if each in known])

    def _remove(self, positions: Collection[int]) -> None:
        if positions:
            self._cell.change(lambda order: None if order is None else without_positions(order, positions))
