"""The life of a stream: created, configured, sealed, deleted.

    create     tables, creation time        the first process decides on the time; it is read back
               layout, configuration        sizes of chunks and shards; the stream's configuration
               truncation, order of commits, retention, shard 0                           all empty
               state CREATING
               epoch 0                      its segments are bound and created first; the record is read back
               transactions, history, time  as of every epoch
               current epoch                then the state is ACTIVE

    configure  take                         the plan is the new configuration; state UPDATING         see `workflows`
               write                        only over the configuration that the plan was drawn up from
               end                          state ACTIVE

    seal       state SEALING: no scale and no transaction begins any more
               open transactions are aborted, sealed ones are committed or aborted, rolling where needed
               the host seals the active segments; their sizes
               state SEALED, for good

    delete     the stream's entry in its scope: DELETING, for good; any process that finds it continues from here
               the host deletes the segments that no truncation has deleted
               the last segment number is stored, for a later stream of this name
               tables of transactions, of their epochs, of everything else are dropped
               the listed key is erased
               the stream's entry: FREE

Every step can be repeated, by any process, after a crash: keys are created if absent, other data follows from those
keys, and deletion tolerates missing keys. `names` writes the entry. A late repeat is harmless: ids of segments are not
used again, as numbers ascend, and no other stream has tables with this unique id in their names.

Source: PDP-35 and the upstream system; docs/explanation/history.md, "Creation, sealing and deletion".
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from accel.errors import IllegalState, InvalidArgument, NotInHistory, OperationNotAllowed
from accel.history.rules.configuration import ConfigurationRecord, StreamConfiguration
from accel.history.rules.requests import UpdatePlan, WorkflowRequest
from accel.history.rules.retention import NO_TRUNCATION, RetentionSet, place_truncation
from accel.history.rules.states import (
    ACTIVE,
    CreationOutcome,
    StreamState,
    StreamStatus,
    after_seal_end,
    after_seal_start,
    creation_outcome,
    first_epoch,
    last_number,
    refuse_undeletable,
)
from accel.history.rules.transactions import CommitOrder, TransactionStatus
from accel.history.rules.values import NOTHING, Integers
from accel.history.store.cut_reading import CutReading
from accel.history.store.epoch_store import EpochReading, EpochWriting
from accel.history.store.parts import StreamParts
from accel.history.store.transaction_store import TransactionStore
from accel.history.store.workflows import CommitWorkflow, Ownership
from loaders.errors import TableMissing


@dataclass(frozen=True, slots=True, eq=False)
class Creating:
    """Creates one stream whose unique id is in its entry. Threads: any.

    Args:
        parts: the parts of the stream.
        writing: writes its epochs.
    """

    _parts: StreamParts
    _writing: EpochWriting

    def run(
        self, wanted: StreamConfiguration, time_ms: int, *, segments: int | None = None, start_number: int = 0
    ) -> CreationOutcome:
        """Create the stream, or continue an interrupted creation.

        Args:
            wanted: its configuration, unless one is stored.
            time_ms: time of its creation, milliseconds since 1970, unless one is stored.
            segments: number of segments at first; None = the configured minimum.
            start_number: number of the first segment.

        Raises:
            InvalidArgument: numbers out of bounds.
        """
        state = self._parts.keys.state().read() if self._tables_exist() else None
        if state is not None and state.value.state is not StreamState.CREATING:
            stored_ms = self._parts.keys.creation_time().get().value
            return creation_outcome(state.value.state, stored_ms, time_ms)
        first_epoch(segments or wanted.min_segments, time_ms, start_number)  # refused before anything is written
        self._make_tables()
        stored_ms = self._parts.keys.creation_time().create_if_absent(time_ms).value
        stored = self._create_records(wanted)
        self._create_epoch(segments or stored.min_segments, stored_ms, start_number)
        # Only from CREATING: a late process must not end a workflow that has begun since.
        creating = StreamStatus(StreamState.CREATING)
        self._parts.keys.state().change(lambda now: ACTIVE if now == creating else None)
        return creation_outcome(StreamState.CREATING, stored_ms, time_ms)

    def finish(self, start_number: int) -> None:
        """Continue an interrupted creation, with the stored configuration and time.

        Raises:
            DataNotFound: there is no stored configuration.
        """
        self.run(
            self._parts.keys.configuration().get().value.configuration,
            self._parts.keys.creation_time().get().value,
            start_number=start_number,
        )

    def _tables_exist(self) -> bool:
        return self._parts.store.tables.table_exists(self._parts.stream.metadata_table)

    def _make_tables(self) -> None:
        for name in (self._parts.stream.metadata_table, self._parts.stream.epochs_table):
            self._parts.store.tables.create_table(name)

    def _create_records(self, wanted: StreamConfiguration) -> StreamConfiguration:
        keys = self._parts.keys
        keys.layout().create_if_absent(self._parts.store.settings.layout)
        stored = keys.configuration().create_if_absent(ConfigurationRecord(wanted)).value.configuration
        keys.truncation().create_if_absent(NO_TRUNCATION)
        keys.commit_order().create_if_absent(CommitOrder())
        keys.retention().create_if_absent(RetentionSet())
        keys.shard(0).create_if_absent(NOTHING)
        keys.state().create_if_absent(StreamStatus(StreamState.CREATING))
        return stored

    def _create_epoch(self, segments: int, time_ms: int, start_number: int) -> None:
        wanted = first_epoch(segments, time_ms, start_number)
        known = self._parts.keys.epoch(0).read()
        record = wanted if known is None else known.value
        self._writing.create_segments(record)
        self._parts.keys.current_epoch().create_if_absent(self._writing.write(record, None))


@dataclass(frozen=True, slots=True, eq=False)
class Updating:
    """Changes the configuration of one stream. Threads: any.

    Args:
        parts: the parts of the stream.
        ownership: takes the stream.
    """

    _parts: StreamParts
    _ownership: Ownership

    def read(self) -> ConfigurationRecord:
        """The configuration, and the id of the change that wrote it. 1 call."""
        return self._parts.keys.configuration().get().value

    def run(self, wanted: StreamConfiguration) -> None:
        """Change the configuration. 10 calls. After a crash, repeat the same call.

        Raises:
            InvalidArgument: another offset unit, which never changes; nothing was changed.
            OperationNotAllowed: another workflow has the stream; nothing was changed.
        """

        def plan(_: UUID) -> UpdatePlan:
            now = self.read()
            if now.configuration.offset_unit is not wanted.offset_unit:
                unit = now.configuration.offset_unit.value
                raise InvalidArgument(f"expected the offset unit {unit}, found {wanted.offset_unit.value}")
            return UpdatePlan(wanted, now.workflow_id)

        def adopt(running: WorkflowRequest) -> None:
            if running.plan_of(UpdatePlan).configuration != wanted:
                raise OperationNotAllowed("expected no change of the configuration under way, found another change")

        taken = self._ownership.take(StreamState.UPDATING, plan, adopt)
        if taken is not None:
            self.carry_out(taken)

    def carry_out(self, request: WorkflowRequest) -> None:
        """Write the configuration of a change that has the stream. May be repeated at any time. 5 calls."""
        plan = request.plan_of(UpdatePlan)
        wanted = ConfigurationRecord(plan.configuration, request.workflow_id)
        self._parts.keys.configuration().change(
            lambda now: wanted if now is not None and now.workflow_id == plan.base_id else None
        )
        self._ownership.end(request)


SEAL_ROUNDS_MAX = 100
"""Maximum number of commits of one sealing; no transaction begins any more, so each round leaves fewer."""


@dataclass(frozen=True, slots=True, eq=False)
class StreamEnding:
    """Seals and deletes one stream. Threads: any.

    Args:
        parts: the parts of the stream.
        epochs: reads its epochs.
        cuts: finds its segments.
        writing: writes epochs.
        transactions: its transactions.
        commits: commits them.
    """

    _parts: StreamParts
    _epochs: EpochReading
    _cuts: CutReading
    _writing: EpochWriting
    _transactions: TransactionStore
    _commits: CommitWorkflow

    def seal(self, time_ms: int | None = None) -> None:
        """Seal the stream. After a crash, repeat the same call.

        Args:
            time_ms: milliseconds since 1970, for epochs that commits add; None = now.

        Raises:
            OperationNotAllowed: another workflow has the stream.
        """
        if time_ms is not None:
            time_ms = self._parts.store.time_ms("the time of a sealing", time_ms)
        self._parts.require_host("seal")
        if not self._is_sealing():
            return
        for _ in range(SEAL_ROUNDS_MAX):
            self._end_transactions(time_ms)
            current = self._epochs.current()
            self._writing.write_sizes(self._parts.host.seal(self._parts.name, current.segments.ids))
            status = self._parts.keys.state().change(after_seal_end).value
            if status.workflow_id is None:
                return
            # A commit of another process still has the stream: carry the commit out, and release the stream.
            self._commits.run(time_ms)
        raise OperationNotAllowed("expected the last commit of the stream to end, found new ones: try again")

    def refuse_undeletable(self) -> None:
        """Refuse to delete a stream that is not sealed; sealing is final. 1 call.

        Raises:
            IllegalState: the stream is not sealed.
        """
        try:
            state = self._parts.keys.state().read()
        except TableMissing:
            return
        if state is not None:
            refuse_undeletable(state.value.state)

    def delete_segments(self, first_ids: Integers) -> None:
        """Let the host delete all remaining segments, a chunk of history at a time. Calls: 2, and 1 a chunk.

        Args:
            first_ids: segments that an interrupted creation may have created.
        """
        try:
            truncation = self._parts.keys.truncation().read()
            current = self._parts.keys.current_epoch().read()
            if current is not None and truncation is not None:
                for part in self._cuts.between(place_truncation(truncation.value), None):
                    self._parts.host.delete(self._parts.name, part.ids)
                return
        except TableMissing:
            return  # an interrupted deletion: its segments are deleted before its tables
        self._parts.host.delete(self._parts.name, first_ids)

    def last_number(self) -> int:
        """The highest number of its recorded segments; -1 if no segment is recorded. 1 call."""
        try:
            versioned = self._parts.keys.current_epoch().read()
        except TableMissing:
            return -1
        return -1 if versioned is None else last_number(versioned.value)

    def drop_tables(self) -> None:
        """Drop all tables of the stream: the tables of transactions first, the table of metadata last."""
        store, stream = self._parts.store, self._parts.stream
        try:
            epochs = self._transactions.epochs()
        except TableMissing:
            epochs = self._transactions.epochs_with_table()  # an interrupted deletion dropped the table of epochs
        for epoch in epochs:
            store.drop_table(stream.transactions_table(epoch))
        store.drop_table(stream.epochs_table)
        store.drop_table(stream.reader_groups_table)
        store.drop_table(stream.metadata_table)

    def _is_sealing(self) -> bool:
        """Set the stream to SEALING; return False if it is sealed already."""

        def begun(now: StreamStatus | None) -> StreamStatus | None:
            return None if now is None else after_seal_start(now)

        return self._parts.keys.state().change(begun).value.state is not StreamState.SEALED

    def _end_transactions(self, time_ms: int | None) -> None:
        for _ in range(SEAL_ROUNDS_MAX):
            active = self._transactions.active()
            for transaction_id, value in active.items():
                if value.status is TransactionStatus.OPEN:
                    # Its writer sealed it, or it ended meanwhile: the next round finds that.
                    with suppress(IllegalState, NotInHistory):
                        self._transactions.seal(transaction_id, commit=False)
            self._transactions.end_aborting()
            committing = self._commits.run(time_ms)
            if committing.is_empty and not self._transactions.active():
                return
        raise OperationNotAllowed("expected all transactions to end, found some still open: try again")
