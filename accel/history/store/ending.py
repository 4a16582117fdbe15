"""Sealing a stream, and deleting it.

    seal      state SEALING: no scale and no transaction begins any more
              open transactions are aborted, those that shall be committed are, rolling where needed
              the host seals the active segments; their sizes; no marks
              state SEALED, for good

    delete    the stream's entry in its scope: DELETING, for good; whoever finds it goes on from here
              the host forgets the segments that no truncation has deleted
              the last segment number is remembered, for a stream of this name that may come
              tables of transactions, of their epochs, of everything else
              the key that it is listed by
              the stream's entry: FREE

Both can be repeated, and whatever is missing already is tolerated: a stream whose creation was cut short is deleted
likewise. The entry is written by `names`; here stands what lies between. A late repeat is harmless: ids of segments do
not come again, as numbers go on, and no other stream has tables with this unique id in their names.

Source: PDP-35 and the upstream system.
"""

from __future__ import annotations

from contextlib import suppress

from accel.errors import IllegalState, NotInHistory, OperationNotAllowed
from accel.history.rules.checks import checked_time
from accel.history.rules.creation import last_number
from accel.history.rules.ids import Integers
from accel.history.rules.retention import placed
from accel.history.rules.states import StreamState, StreamStatus, refuse_undeletable, sealed, sealing
from accel.history.rules.transactions import TransactionStatus
from accel.history.store.commit_workflow import CommitWorkflow
from accel.history.store.cut_reading import CutReading
from accel.history.store.epoch_reading import EpochReading
from accel.history.store.epoch_writing import EpochWriting
from accel.history.store.parts import StreamParts
from accel.history.store.transaction_store import TransactionStore
from loaders.errors import TableMissing

SEAL_ROUNDS_MAX = 100
"""Commits of one sealing; transactions do not begin any more, so that each round leaves fewer."""


class Ending:
    """Seals and deletes one stream. Threads: any.

    Args:
        parts: of the stream.
        epochs: reads its epochs.
        cuts: finds its segments.
        writing: writes epochs.
        transactions: its transactions.
        commits: commits them.
    """

    def __init__(
        self,
        parts: StreamParts,
        epochs: EpochReading,
        cuts: CutReading,
        writing: EpochWriting,
        transactions: TransactionStore,
        commits: CommitWorkflow,
    ) -> None:
        self._parts = parts
        self._cells = parts.cells
        self._epochs = epochs
        self._cuts = cuts
        self._writing = writing
        self._transactions = transactions
        self._commits = commits

    def seal(self, time_ms: int | None = None) -> None:
        """Seal the stream. To be repeated as it is after a crash.

        Args:
            time_ms: milliseconds since 1970, for epochs that commits add; None = now.

        Raises:
            OperationNotAllowed: another workflow has the stream.
        """
        if time_ms is not None:
            time_ms = checked_time("the time of a sealing", time_ms)
        self._parts.require_host("seal")
        if not self._is_sealing():
            return
        for _ in range(SEAL_ROUNDS_MAX):
            self._end_transactions(time_ms)
            current = self._epochs.current()
            self._writing.write_sizes(self._parts.host.seal(self._parts.name, current.segments.ids))
            self._writing.remove_markers(current.segments.ids)
            status = self._cells.state().change(sealed).value
            if status.workflow_id is None:
                return
            # A commit of another process has not given the stream back: it is carried out, and given back, here.
            self._commits.run(time_ms)
        raise OperationNotAllowed("expected the last commit of the stream to end, found one again and again: try again")

    def refuse_undeletable(self) -> None:
        """Only what is sealed is deleted; that is final. 1 call.

        Raises:
            IllegalState: it is not.
        """
        try:
            state = self._cells.state().read()
        except TableMissing:
            return
        if state is not None:
            refuse_undeletable(state.value.state)

    def delete_segments(self, first_ids: Integers) -> None:
        """Let the host forget all segments that are left, a chunk of history at a time. Calls: 2, and 1 a chunk.

        Args:
            first_ids: segments that its creation may have made before it was cut short.
        """
        try:
            truncation = self._cells.truncation().read()
            current = self._cells.current_epoch().read()
            if current is not None and truncation is not None:
                for part in self._cuts.between(placed(truncation.value), None):
                    self._parts.host.delete(self._parts.name, part.ids)
                return
        except TableMissing:
            return  # a process that died before it was done let the host forget them first
        self._parts.host.delete(self._parts.name, first_ids)

    def last_number(self) -> int:
        """The highest number of its segments, as far as its records tell; -1 if they tell none. 1 call."""
        try:
            seen = self._cells.current_epoch().read()
        except TableMissing:
            return -1
        return -1 if seen is None else last_number(seen.value)

    def drop_tables(self) -> None:
        """Drop all tables of the stream; those of transactions first, that of everything else last."""
        tables, stream = self._parts.store.tables, self._parts.stream
        try:
            epochs = self._transactions.epochs()
        except TableMissing:
            epochs = self._transactions.epochs_with_table()  # dropped by a process that died before it was done
        for epoch in epochs:
            tables.drop_table(stream.transactions_table(epoch))
        tables.drop_table(stream.epochs_table)
        tables.drop_table(stream.reader_groups_table)
        self._parts.store.drop_table(stream.metadata_table)

    def _is_sealing(self) -> bool:
        """Bring the stream to SEALING; False if it is sealed already."""

        def begun(now: StreamStatus | None) -> StreamStatus | None:
            return None if now is None else sealing(now)

        return self._cells.state().change(begun).value.state is not StreamState.SEALED

    def _end_transactions(self, time_ms: int | None) -> None:
        for _ in range(SEAL_ROUNDS_MAX):
            active = self._transactions.active()
            for each, value in active.items():
                if value.status is TransactionStatus.OPEN:
                    # Sealed by its writer or ended meanwhile: the next round sees that.
                    with suppress(IllegalState, NotInHistory):
                        self._transactions.seal(each, commit=False)
            self._transactions.end_aborting()
            committing = self._commits.run(time_ms)
            if committing.is_empty and not self._transactions.active():
                return
        raise OperationNotAllowed("expected all transactions to end, found some that do not: try again")
