"""Committing transactions, in steps that can each be repeated, by the same process or another one.

    take               the plan: which transactions, and whether the commit rolls; state COMMITTING_TXN, or still
                       SEALING if the stream is being sealed                                    see `ownership`
    merge              the transactions are removed from the order of commits; the host appends their data to the
                       segments of the epoch in the plan, and the start offsets are stored in their records. Those that
                       are merged, have ended or were given up since are left out. Or, if the stream has other segments
                       than when the transactions began:

      create duplicates        the host creates the segments of T = A + 1 and N = A + 2, merges the data into T's, and
                               seals those of T and A
      create_duplicate_epochs  records of T and N, which begin after the last events of A and T; sizes of T
      complete_rolling         sizes of A, the current epoch becomes N

    complete           record the end of each transaction, remove its entry, drop tables of older epochs
    end                state ACTIVE, or SEALING

A transaction is recorded as committed only when its data can be read. `accel.history.rules.transactions` defines T and
N.

Source: the upstream system; PDP-32.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from accel.errors import NotInHistory, OperationNotAllowed
from accel.history.rules.epochs import EpochRecord
from accel.history.rules.requests import CommitPlan, WorkflowRequest
from accel.history.rules.states import StreamState
from accel.history.rules.transactions import (
    NO_COMMIT,
    CommittingTransactions,
    TransactionStatus,
    is_rolled,
    needs_rolling,
    repeat_active_epoch,
    repeat_transaction_epoch,
    with_rolling,
)
from accel.history.rules.values import checked_integer, checked_time
from accel.history.store.epoch_store import EpochReading, EpochWriting
from accel.history.store.ownership import Ownership
from accel.history.store.parts import StreamParts
from accel.history.store.transaction_store import TransactionStore


@dataclass(frozen=True, slots=True, eq=False)
class CommitWorkflow:
    """Commits transactions of one stream. Threads: any.

    Args:
        parts: the parts of the stream.
        epochs: reads its epochs.
        writing: writes its epochs.
        transactions: its transactions.
        ownership: takes the stream.
    """

    _parts: StreamParts
    _epochs: EpochReading
    _writing: EpochWriting
    _transactions: TransactionStore
    _ownership: Ownership

    def create_duplicate_epochs(
        self, committing: CommittingTransactions, time_ms: int, sizes: Mapping[int, int]
    ) -> None:
        """Write the records of both epochs of a rolling commit, and sizes, unless the stream has rolled already.

        The segments of both epochs are sealed, so that their last events are known.

        Args:
            committing: the commit, which rolls.
            time_ms: milliseconds since 1970; ignored if another process has written the records.
            sizes: sizes of the segments of the first epoch, by id; a missing segment has size 0.
        """
        time_ms = checked_time("the time of a commit", time_ms)
        if is_rolled(committing, self._epochs.current()):
            return
        active = self._epochs.epoch(_active_epoch(committing))
        ended = self._writing.last_events(active.segments.ids)
        wanted = repeat_transaction_epoch(active, self._epochs.epoch(committing.epoch), time_ms, ended)
        merged = self._writing.write(wanted, active)
        ended = self._writing.last_events(merged.segments.ids)
        again = self._writing.write(repeat_active_epoch(active, merged, ended), merged)
        self._writing.seal_epochs(merged, active)
        self._writing.seal_epochs(again, merged)
        self._writing.write_sizes({segment_id: sizes.get(segment_id, 0) for segment_id in merged.segments.ids.tolist()})

    def complete_rolling(self, committing: CommittingTransactions, sizes: Mapping[int, int]) -> None:
        """Make the second epoch of a rolling commit the current one.

        Args:
            committing: the commit, which rolls.
            sizes: sizes of the segments that were active before, by id; a missing segment has size 0.
        """
        active = self._epochs.epoch(_active_epoch(committing))
        self._writing.write_sizes({segment_id: sizes.get(segment_id, 0) for segment_id in active.segments.ids.tolist()})
        self._writing.advance(self._epochs.epoch(active.epoch + 2))

    def run(self, time_ms: int | None = None, limit: int | None = None) -> CommittingTransactions:
        """Commit the next transactions, or finish the commit that is under way. After a crash, repeat the same call.

        Args:
            time_ms: milliseconds since 1970; None = now.
            limit: the maximum number of transactions; None = that of the settings.

        Returns:
            The commit; empty if there was nothing to commit.

        Raises:
            OperationNotAllowed: another workflow has the stream; nothing was changed.
            InvalidArgument: a limit out of bounds.
        """
        self._parts.require_host("commit transactions")
        now_ms = self._parts.store.time_ms("the time of a commit", time_ms)
        if limit is not None:
            limit = checked_integer("a limit", limit, 1)
        try:
            taken = self._ownership.take(
                StreamState.COMMITTING_TXN, lambda _: self._plan(now_ms, limit), lambda running: running
            )
        except OperationNotAllowed:
            is_sealed = self._parts.status().value.state is StreamState.SEALED
            if not is_sealed or self._plan(now_ms, limit) is not None:
                raise
            return NO_COMMIT
        return NO_COMMIT if taken is None else self.carry_out(taken)

    def carry_out(self, request: WorkflowRequest) -> CommittingTransactions:
        """Carry out all steps of a commit that has the stream; return the commit. May be repeated at any time."""
        plan = request.plan_of(CommitPlan)
        committing = plan.committing
        self._transactions.order.remove(committing.transaction_ids)
        if committing.is_rolling:
            self._roll(committing, plan.time_ms)
        else:
            self._merge(self._epochs.epoch(plan.into_epoch), committing)
        self._end_all(committing)
        self._ownership.end(request)
        self._writing.merge_times_after()
        return committing

    def _end_all(self, committing: CommittingTransactions) -> None:
        for transaction_id in committing.transaction_ids:
            with suppress(NotInHistory):  # it ended so long ago that its end is not stored any more
                self._transactions.end(transaction_id)
        self._transactions.drop_epochs()

    def _plan(self, time_ms: int, limit: int | None) -> CommitPlan | None:
        committing = self._transactions.order.next_commit(self._transactions.read_many, limit)
        if committing.is_empty:
            return None
        current = self._epochs.current()
        if not committing.is_rolling and needs_rolling(current, self._epochs.epoch(committing.epoch)):
            committing = with_rolling(committing, current.epoch) or committing
        return CommitPlan(committing, current.epoch, time_ms)

    def _roll(self, committing: CommittingTransactions, time_ms: int) -> None:
        host, name = self._parts.host, self._parts.name
        active = self._epochs.epoch(_active_epoch(committing))
        if not is_rolled(committing, self._epochs.current()):
            merged, again = self._duplicates(committing, active, time_ms)
            self._writing.create_segments(merged)
            self._writing.create_segments(again)
            self._merge(merged, committing)
            merged_sizes = host.seal(name, merged.segments.ids)
            sizes = host.seal(name, active.segments.ids)
            self.create_duplicate_epochs(committing, time_ms, merged_sizes)
        else:
            sizes = host.seal(name, active.segments.ids)
        self.complete_rolling(committing, sizes)

    def _merge(self, epoch: EpochRecord, committing: CommittingTransactions) -> None:
        # Not those that ended, are merged, or were given up since the plan was drawn up.
        records = self._transactions.read_many(committing.transaction_ids)
        waiting = [
            transaction_id
            for transaction_id, record in records.items()
            if record.status is TransactionStatus.COMMITTING and not record.is_merged
        ]
        offsets = self._parts.host.merge(self._parts.name, epoch.segments.ids, waiting) if waiting else None
        # Stored at once: a process that continues after a crash does not merge again if the stream has rolled.
        self._transactions.record_offsets(offsets or {})

    def _duplicates(
        self, committing: CommittingTransactions, active: EpochRecord, time_ms: int
    ) -> tuple[EpochRecord, EpochRecord]:
        # Only segments and ids are used here; they do not depend on the recorded times.
        merged = repeat_transaction_epoch(active, self._epochs.epoch(committing.epoch), time_ms)
        return merged, repeat_active_epoch(active, merged)


def _active_epoch(committing: CommittingTransactions) -> int:
    if committing.active_epoch is None:
        raise ValueError(f"expected a commit that rolls, found {committing}")
    return committing.active_epoch
