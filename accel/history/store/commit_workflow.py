"""Committing transactions, in steps that can each be repeated, by the same process or another one.

    start              choose transactions, store which, take them out of the order
    state              COMMITTING_TXN; while the stream is being sealed it stays SEALING
    merge              the host appends their data to the active segments, and where that begins is noted in their
                       records; or, if the stream has other segments by now:

      start_rolling            store that the commit rolls, and from which epoch A
      create duplicates        the host creates the segments of T = A + 1 and N = A + 2, and merges the data into T's
      create_duplicate_epochs  records of T and N; sizes of T
      complete_rolling         the host seals the segments of A; sizes, markers, the current epoch becomes N

    complete           tell how each ended, remove its entry, drop older epochs' tables; no commit is under way
    state ACTIVE

A transaction is told to be committed only when its data can be read. `accel.history.rolling` says what T and N are.

Source: the upstream system; PDP-32.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from accel.errors import NotInHistory
from accel.history.records import NO_COMMIT, CommittingTransactions, EpochRecord
from accel.history.rolling import (
    active_epoch_again,
    is_rolled,
    needs_rolling,
    transaction_epoch_again,
    with_rolling,
)
from accel.history.states import StreamState
from accel.history.store.cell import Seen
from accel.history.store.epoch_reading import EpochReading
from accel.history.store.epoch_writing import EpochWriting
from accel.history.store.parts import StreamParts
from accel.history.store.transaction_store import TransactionStore


class CommitWorkflow:
    """Commits transactions of one stream. Threads: any.

    Args:
        parts: of the stream.
        epochs: reads its epochs.
        writing: writes them.
        transactions: its transactions.
    """

    def __init__(
        self, parts: StreamParts, epochs: EpochReading, writing: EpochWriting, transactions: TransactionStore
    ) -> None:
        self._parts = parts
        self._cells = parts.cells
        self._epochs = epochs
        self._writing = writing
        self._transactions = transactions

    def stored(self) -> Seen[CommittingTransactions]:
        """The commit that is under way, or the empty one. 1 call."""
        return self._cells.committing().get()

    def start(self, limit: int | None = None) -> CommittingTransactions:
        """Choose what to commit, and store it; if a commit is under way, that one. Empty if there is nothing.

        Args:
            limit: so many at most; None = as the settings say.

        Raises:
            DataConflict: another process started a commit meanwhile.
        """
        seen = self.stored()
        order = self._transactions.order
        if seen.value.is_empty:
            committing = order.next_commit(self._transactions.read_many, limit)
            if committing.is_empty:
                return committing
            seen = self._cells.committing().write(committing, seen)
        order.remove(seen.value.transaction_ids)
        return seen.value

    def start_rolling(self, active_epoch: int) -> CommittingTransactions:
        """Store that the commit rolls from an epoch. 2 calls.

        Raises:
            IllegalState: no commit is under way, or one that rolls from another epoch.
        """

        def rolling(now: CommittingTransactions | None) -> CommittingTransactions | None:
            return with_rolling(now or NO_COMMIT, active_epoch)

        return self._cells.committing().change(rolling).value

    def create_duplicate_epochs(
        self, committing: CommittingTransactions, time_ms: int, sizes: Mapping[int, int]
    ) -> None:
        """The records of both epochs of a rolling commit, and sizes; nothing if the stream has moved there already.

        Args:
            committing: the commit, which rolls.
            time_ms: milliseconds since 1970; not used if another process has written them.
            sizes: of the segments of the first one, by id; those that are missing count 0.
        """
        if is_rolled(committing, self._epochs.current()):
            return
        active = self._epochs.epoch(_active_epoch(committing))
        wanted = transaction_epoch_again(active, self._epochs.epoch(committing.epoch), time_ms)
        merged = self._writing.write(wanted, active)
        again = self._writing.write(active_epoch_again(active, merged), merged)
        self._writing.seal_epochs(merged, active)
        self._writing.seal_epochs(again, merged)
        self._writing.write_sizes({each: sizes.get(each, 0) for each in merged.segments.ids.tolist()})

    def complete_rolling(self, committing: CommittingTransactions, sizes: Mapping[int, int]) -> None:
        """The stream moves on to the second epoch of a rolling commit.

        Args:
            committing: the commit, which rolls.
            sizes: of the segments that were active before, by id; those that are missing count 0.
        """
        active = self._epochs.epoch(_active_epoch(committing))
        self._writing.write_sizes({each: sizes.get(each, 0) for each in active.segments.ids.tolist()})
        self._writing.remove_markers(active.segments.ids)
        self._writing.advance(self._epochs.epoch(active.epoch + 2))

    def complete(self, committing: CommittingTransactions) -> None:
        """All transactions of the commit are ended, and no commit is under way any more."""
        for each in committing.transaction_ids:
            with suppress(NotInHistory):  # ended so long ago that nobody remembers
                self._transactions.end(each)
        self._transactions.drop_epochs()
        same = committing.transaction_ids
        self._cells.committing().change(
            lambda now: NO_COMMIT if now is not None and same and now.transaction_ids == same else None
        )

    def run(self, time_ms: int | None = None, limit: int | None = None) -> CommittingTransactions:
        """All of it, for the transactions that come next. To be repeated as it is after a crash.

        Args:
            time_ms: milliseconds since 1970; None = now.
            limit: so many transactions at most; None = as the settings say.

        Returns:
            What was committed; empty if there was nothing, or a commit had only to be ended.

        Raises:
            OperationNotAllowed: another workflow has the stream.
        """
        state = self._parts.state()
        if state.value is StreamState.COMMITTING_TXN and self.stored().value.is_empty:
            self._parts.back_to_active(state, StreamState.COMMITTING_TXN)
            return NO_COMMIT
        committing = self.start(limit)
        if not committing.is_empty:
            self._commit(committing, self._parts.store.now_ms() if time_ms is None else time_ms)
        return committing

    def _commit(self, committing: CommittingTransactions, time_ms: int) -> None:
        if self._parts.state().value is not StreamState.SEALING:
            self._parts.set_state(StreamState.COMMITTING_TXN)
        current = self._epochs.current()
        if committing.is_rolling or needs_rolling(current, self._epochs.epoch(committing.epoch)):
            self._roll(self.start_rolling(_active_epoch(committing, current)), time_ms)
        else:
            self._merge(current, committing)
        state = self._parts.state()
        self.complete(committing)
        self._parts.back_to_active(state, StreamState.COMMITTING_TXN)
        self._writing.merge_times()

    def _roll(self, committing: CommittingTransactions, time_ms: int) -> None:
        host, name = self._parts.host, self._parts.name
        active = self._epochs.epoch(_active_epoch(committing))
        if not is_rolled(committing, self._epochs.current()):
            merged, again = self._duplicates(committing, active, time_ms)
            self._writing.create_segments(merged)
            self._writing.create_segments(again)
            self._merge(merged, committing)
            self.create_duplicate_epochs(committing, time_ms, host.seal(name, merged.segments.ids))
        self.complete_rolling(committing, host.seal(name, active.segments.ids))

    def _merge(self, epoch: EpochRecord, committing: CommittingTransactions) -> None:
        # Noted at once: whoever goes on after a crash does not merge any more if the stream has moved on.
        offsets = self._parts.host.merge(self._parts.name, epoch.segments.ids, committing.transaction_ids)
        self._transactions.record_offsets(offsets or {})

    def _duplicates(
        self, committing: CommittingTransactions, active: EpochRecord, time_ms: int
    ) -> tuple[EpochRecord, EpochRecord]:
        # Only segments and ids matter here: whatever times are recorded, they are the same.
        merged = transaction_epoch_again(active, self._epochs.epoch(committing.epoch), time_ms)
        return merged, active_epoch_again(active, merged)


def _active_epoch(committing: CommittingTransactions, current: EpochRecord | None = None) -> int:
    if committing.active_epoch is not None:
        return committing.active_epoch
    if current is None:
        raise ValueError(f"expected a commit that rolls, found {committing}")
    return current.epoch
