"""How transactions ended: remembered in batches, of which all but the newest two are dropped as time goes by.

A batch is named by its time. Ends are told to those who ask again whether their commit went through, and nobody asks
for days: with batches of a day, an end is remembered for one day at least.

Source: PDP-35.
"""

from __future__ import annotations

from uuid import UUID

from accel.history.rules.transactions import CompletedTransaction, droppable_batches
from accel.history.store import places
from accel.history.store.epoch_writing import MARK
from accel.history.store.parts import StoreParts
from accel.history.store.settings import MILLISECONDS
from loaders.errors import TableMissing


class CompletedTransactions:
    """The ends of all streams' transactions. Threads: any.

    Args:
        parts: of the store.
    """

    def __init__(self, parts: StoreParts) -> None:
        self._parts = parts

    def find(self, stream: places.StreamIdentity, transaction_id: UUID) -> CompletedTransaction | None:
        """How a transaction ended; None if it has not, or nobody knows it any more. 3 calls at most."""
        for batch in reversed(self.batches()):
            try:
                seen = self._parts.cells.completed(batch, stream, transaction_id).read()
            except TableMissing:
                continue
            if seen is not None:
                return seen.value
        return None

    def add(
        self, stream: places.StreamIdentity, transaction_id: UUID, ended: CompletedTransaction
    ) -> CompletedTransaction:
        """Tell how a transaction ended; gives what is told, by this process or another one. 1 call, 3 for a new batch.

        A process that dies before the transaction's entry is removed, and is followed in another batch, tells it twice.
        """
        period_ms = int(self._parts.settings.completed_batch_seconds * MILLISECONDS)
        batch = ended.complete_time_ms // period_ms
        cell = self._parts.cells.completed(batch, stream, transaction_id)
        try:
            return cell.create(ended).value
        except TableMissing:
            self._make(batch)
        return cell.create(ended).value

    def batches(self) -> list[int]:
        """All batches, ascending. 1 call."""
        return sorted(map(int, self._parts.cells.batches.keys()))

    def drop_old(self) -> list[int]:
        """Drop all batches but the newest two; gives which. 1 call if there are none to drop."""
        dropped = droppable_batches(self.batches())
        for batch in dropped:
            self._parts.tables.drop_table(places.completed_table(batch))
            self._parts.cells.batches.erase(str(batch))
        return dropped

    def _make(self, batch: int) -> None:
        # The mark first: a table without one would never be dropped.
        self._parts.cells.batches.create_if_absent(str(batch), MARK)
        self._parts.tables.create_table(places.completed_table(batch))
        self.drop_old()
