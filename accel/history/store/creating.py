"""Creating a stream, key by key, each created if absent.

    tables, creation time        who came first decides on the time; it is read back
    layout, configuration        how the history is cut into pieces; what the owner wants
    transition, truncation, commit, order of commits, retention, shard 0       all empty
    state CREATING
    epoch 0                      its segments are bound and created first; read back
    transactions, history, time  as of every epoch
    current epoch                then the state is ACTIVE

A process that dies in between is followed by any other one that creates the stream, or recovers it: all that was
written stays, and the rest follows from it. Calls: 36, and 1 for each segment.

Source: PDP-35, docs/history.md, "Creating, sealing, deleting".
"""

from __future__ import annotations

from accel.history.rules.configuration import ConfigurationRecord, StreamConfiguration
from accel.history.rules.creation import CreationOutcome, creation_outcome, first_epoch
from accel.history.rules.epochs import NO_TRANSITION
from accel.history.rules.ids import NOTHING
from accel.history.rules.retention import NO_TRUNCATION, RetentionSet
from accel.history.rules.states import StreamState, StreamStatus
from accel.history.rules.transactions import NO_COMMIT, CommitOrder
from accel.history.store.epoch_writing import EpochWriting
from accel.history.store.parts import StreamParts


class Creating:
    """Creates one stream whose unique id stands in its scope. Threads: any.

    Args:
        parts: of the stream.
        writing: writes its epochs.
    """

    def __init__(self, parts: StreamParts, writing: EpochWriting) -> None:
        self._parts = parts
        self._cells = parts.cells
        self._writing = writing

    def run(
        self, wanted: StreamConfiguration, time_ms: int, *, segments: int | None = None, start_number: int = 0
    ) -> CreationOutcome:
        """Create the stream, or go on where somebody stopped.

        Args:
            wanted: what its owner wants, unless a configuration is stored.
            time_ms: milliseconds since 1970, unless a time is stored.
            segments: how many it has at first; None = as many as the configuration wants at least.
            start_number: of the first segment.

        Raises:
            InvalidArgument: numbers out of bounds.
        """
        state = self._cells.state().read() if self._tables_exist() else None
        if state is not None and state.value.state is not StreamState.CREATING:
            stored_ms = self._cells.creation_time().get().value
            return creation_outcome(state.value.state, stored_ms, time_ms)
        first_epoch(segments or wanted.min_segments, time_ms, start_number)  # refused before anything is written
        self._make_tables()
        stored_ms = self._cells.creation_time().create(time_ms).value
        stored = self._create_records(wanted)
        self._create_epoch(segments or stored.min_segments, stored_ms, start_number)
        # Only from CREATING: a process that comes late must not end a workflow that has begun since.
        self._parts.leave_by_hand(StreamState.CREATING)
        return creation_outcome(StreamState.CREATING, stored_ms, time_ms)

    def finish(self, start_number: int) -> None:
        """Go on where somebody stopped, with what is stored.

        Raises:
            DataNotFound: that is not even what the owner wants.
        """
        self.run(
            self._cells.configuration().get().value.configuration,
            self._cells.creation_time().get().value,
            start_number=start_number,
        )

    def _tables_exist(self) -> bool:
        return self._parts.store.tables.table_exists(self._parts.stream.metadata_table)

    def _make_tables(self) -> None:
        for name in (self._parts.stream.metadata_table, self._parts.stream.epochs_table):
            self._parts.store.tables.create_table(name)

    def _create_records(self, wanted: StreamConfiguration) -> StreamConfiguration:
        cells = self._cells
        cells.layout().create(self._parts.store.settings.layout)
        stored = cells.configuration().create(ConfigurationRecord(wanted)).value.configuration
        cells.transition().create(NO_TRANSITION)
        cells.truncation().create(NO_TRUNCATION)
        cells.committing().create(NO_COMMIT)
        cells.commit_order().create(CommitOrder())
        cells.retention().create(RetentionSet())
        cells.shard(0).create(NOTHING)
        cells.state().create(StreamStatus(StreamState.CREATING))
        return stored

    def _create_epoch(self, segments: int, time_ms: int, start_number: int) -> None:
        wanted = first_epoch(segments, time_ms, start_number)
        known = self._cells.epoch(0).read()
        record = wanted if known is None else known.value
        self._writing.create_segments(record)
        self._cells.current_epoch().create(self._writing.write(record, None))
