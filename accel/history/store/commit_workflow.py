"""Committing transactions, in steps that can each be repeated, by the same process or another one.

    take               the plan: which transactions, and whether the commit rolls; state COMMITTING_TXN, or SEALING
                       still if the stream is being sealed                                      see `ownership`
    merge              the transactions leave the order of commits; the host appends their data to the segments of the
                       epoch that the plan names, and where that begins is noted in their records; or, if the stream has
                       other segments than when they began:

      create duplicates        the host creates the segments of T = A + 1 and N = A + 2, and merges the data into T's
      create_duplicate_epochs  records of T and N; sizes of T
      complete_rolling         the host seals the segments of A; sizes, markers, the current epoch becomes N

    complete           say how each ended, remove its entry, drop older epochs' tables
    end                state ACTIVE, or SEALING

A transaction is said to be committed only when its data can be read. `accel.history.rules.transactions` says what T and
N are.

A commit can be carried out step by step, too, as PDP-32 describes: `start` stores which transactions, `start_rolling`
from which epoch it rolls, `complete` empties the record. `run` and `recover` carry out one that was started so.

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
from loaders.tables import Versioned


@dataclass(frozen=True, slots=True, eq=False)
class CommitWorkflow:
    """Commits transactions of one stream. Threads: any.

    Args:
        parts: of the stream.
        epochs: reads its epochs.
        writing: writes them.
        transactions: its transactions.
        ownership: takes the stream.
    """

    _parts: StreamParts
    _epochs: EpochReading
    _writing: EpochWriting
    _transactions: TransactionStore
    _ownership: Ownership

    def stored(self) -> Versioned[CommittingTransactions]:
        """The commit that was started step by step, or the empty one. 1 call."""
        return self._parts.keys.committing().get()

    def start(self, limit: int | None = None) -> CommittingTransactions:
        """Choose what to commit, and store it, step by step; if one is stored, that one. Empty if there is nothing.

        Args:
            limit: the maximum number; None = as the settings say.

        Raises:
            DataConflict: another process started a commit meanwhile.
        """
        if limit is not None:
            limit = checked_integer("a limit", limit, 1)
        versioned = self.stored()
        order = self._transactions.order
        if versioned.value.is_empty:
            committing = order.next_commit(self._transactions.read_many, limit)
            if committing.is_empty:
                return committing
            versioned = self._parts.keys.committing().write(committing, versioned)
        order.remove(versioned.value.transaction_ids)
        return versioned.value

    def start_rolling(self, active_epoch: int) -> CommittingTransactions:
        """Store that the commit rolls from an epoch. 2 calls.

        Raises:
            IllegalState: no commit is under way, or one that rolls from another epoch.
        """

        def rolling(now: CommittingTransactions | None) -> CommittingTransactions | None:
            return with_rolling(now or NO_COMMIT, active_epoch)

        return self._parts.keys.committing().change(rolling).value

    def create_duplicate_epochs(
        self, committing: CommittingTransactions, time_ms: int, sizes: Mapping[int, int]
    ) -> None:
        """The records of both epochs of a rolling commit, and sizes; nothing if the stream has moved there already.

        Args:
            committing: the commit, which rolls.
            time_ms: milliseconds since 1970; not used if another process has written them.
            sizes: of the segments of the first one, by id; those that are missing count 0.
        """
        time_ms = checked_time("the time of a commit", time_ms)
        if is_rolled(committing, self._epochs.current()):
            return
        active = self._epochs.epoch(_active_epoch(committing))
        wanted = repeat_transaction_epoch(active, self._epochs.epoch(committing.epoch), time_ms)
        merged = self._writing.write(wanted, active)
        again = self._writing.write(repeat_active_epoch(active, merged), merged)
        self._writing.seal_epochs(merged, active)
        self._writing.seal_epochs(again, merged)
        self._writing.write_sizes({segment_id: sizes.get(segment_id, 0) for segment_id in merged.segments.ids.tolist()})

    def complete_rolling(self, committing: CommittingTransactions, sizes: Mapping[int, int]) -> None:
        """The stream moves on to the second epoch of a rolling commit.

        Args:
            committing: the commit, which rolls.
            sizes: of the segments that were active before, by id; those that are missing count 0.
        """
        active = self._epochs.epoch(_active_epoch(committing))
        self._writing.write_sizes({segment_id: sizes.get(segment_id, 0) for segment_id in active.segments.ids.tolist()})
        self._writing.remove_markers(active.segments.ids)
        self._writing.advance(self._epochs.epoch(active.epoch + 2))

    def complete(self, committing: CommittingTransactions) -> None:
        """All transactions of a commit that was started step by step are ended, and its record is emptied."""
        self._end_all(committing)
        self._empty(committing)

    def run(self, time_ms: int | None = None, limit: int | None = None) -> CommittingTransactions:
        """All of it, for the transactions that come next; or the commit that is under way. To be repeated as it is.

        Args:
            time_ms: milliseconds since 1970; None = now.
            limit: the maximum number of transactions; None = as the settings say.

        Returns:
            What was committed; empty if there was nothing.

        Raises:
            OperationNotAllowed: another workflow has the stream; nothing was changed.
            InvalidArgument: a limit out of bounds.
        """
        self._parts.require_host("commit transactions")
        now_ms = self._parts.store.now_ms() if time_ms is None else checked_time("the time of a commit", time_ms)
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
        """All steps of a commit that has the stream; gives what was committed. May be repeated at any time."""
        plan = request.plan_of(CommitPlan)
        committing = plan.committing
        self._transactions.order.remove(committing.transaction_ids)
        if committing.is_rolling:
            self._roll(committing, plan.time_ms)
        else:
            self._merge(self._epochs.epoch(plan.into_epoch), committing)
        self._end_all(committing)
        if plan.is_submitted:
            self._empty(committing)
        self._ownership.end(request)
        self._writing.merge_times_after()
        return committing

    def _end_all(self, committing: CommittingTransactions) -> None:
        for transaction_id in committing.transaction_ids:
            with suppress(NotInHistory):  # ended so long ago that nobody remembers
                self._transactions.end(transaction_id)
        self._transactions.drop_epochs()

    def _empty(self, committing: CommittingTransactions) -> None:
        same = committing.transaction_ids
        self._parts.keys.committing().change(
            lambda now: NO_COMMIT if now is not None and same and now.transaction_ids == same else None
        )

    def _plan(self, time_ms: int, limit: int | None) -> CommitPlan | None:
        stored = self.stored().value
        order = self._transactions.order
        committing = order.next_commit(self._transactions.read_many, limit) if stored.is_empty else stored
        if committing.is_empty:
            return None
        current = self._epochs.current()
        if not committing.is_rolling and needs_rolling(current, self._epochs.epoch(committing.epoch)):
            committing = with_rolling(committing, current.epoch) or committing
        return CommitPlan(committing, current.epoch, time_ms, is_submitted=not stored.is_empty)

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
        # Noted at once: a process that goes on after a crash does not merge any more if the stream has moved on.
        offsets = self._parts.host.merge(self._parts.name, epoch.segments.ids, committing.transaction_ids)
        self._transactions.record_offsets(offsets or {})

    def _duplicates(
        self, committing: CommittingTransactions, active: EpochRecord, time_ms: int
    ) -> tuple[EpochRecord, EpochRecord]:
        # Only segments and ids matter here: whatever times are recorded, they are the same.
        merged = repeat_transaction_epoch(active, self._epochs.epoch(committing.epoch), time_ms)
        return merged, repeat_active_epoch(active, merged)


def _active_epoch(committing: CommittingTransactions) -> int:
    if committing.active_epoch is None:
        raise ValueError(f"expected a commit that rolls, found {committing}")
    return committing.active_epoch
