"""Every key of a stream's history with the form of its records: the one place that joins tables, keys and forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar
from uuid import UUID

from accel.history import codecs
from accel.history.rules.configuration import ConfigurationRecord, HistoryLayout
from accel.history.rules.creation import ScopeEntry, StreamEntry
from accel.history.rules.epochs import EpochRecord, EpochTransition, HistoryChunk
from accel.history.rules.ids import IdMap
from accel.history.rules.requests import WorkflowRequest
from accel.history.rules.retention import RetentionSet, StreamCutRecord, TruncationRecord
from accel.history.rules.states import StreamStatus
from accel.history.rules.transactions import (
    ActiveTransaction,
    CommitOrder,
    CommittingTransactions,
    CompletedTransaction,
)
from accel.history.store import places
from accel.history.store.cell import Cell, always, never
from loaders.backoff import Backoff
from loaders.epoch_records import EpochRecords
from loaders.tables import Table, Tables
from loaders.tables.records import Codec
from range_index.epoch_times import Block, BlockTimes, EpochTimesRoot

T = TypeVar("T")


class _Bytes:
    """The form of keys without a form: they say by being there what they say."""

    def encode(self, value: bytes) -> bytes:
        return value

    def decode(self, data: bytes, where: str) -> bytes:  # noqa: ARG002 - anything may stand there
        return data


_BYTES: Final = _Bytes()


class SystemCells:
    """Keys that streams share. Threads: any.

    Args:
        tables: where they lie.
        backoff: pauses between attempts.
    """

    def __init__(self, tables: Tables, backoff: Backoff) -> None:
        self.tables = tables
        self._backoff = backoff

    @property
    def scopes(self) -> Table:
        """All scopes."""
        return self.tables.table(places.SCOPES)

    def scope(self, name: str) -> Cell[ScopeEntry]:
        """Which scope has a name."""
        return Cell(self.scopes, places.entry_key(name), codecs.SCOPE_ENTRY, self._backoff)

    def stream(self, scope: str, scope_id: UUID, name: str) -> Cell[StreamEntry]:
        """Which stream has a name."""
        table = self.streams(scope, scope_id)
        return Cell(table, places.entry_key(name), codecs.STREAM_ENTRY, self._backoff)

    def streams(self, scope: str, scope_id: UUID) -> Table:
        """The streams of a scope."""
        return self.tables.table(places.streams_table(scope, scope_id))

    def last_number(self, scope: str, name: str) -> Cell[int]:
        """The last segment number of a deleted stream."""
        table = self.tables.table(places.DELETED_STREAMS)
        return Cell(table, f"{scope}/{name}", codecs.LAST_NUMBER, self._backoff)

    def counter(self, what: str) -> Cell[int]:
        """The next id that nobody has."""
        return Cell(self.tables.table(places.COUNTERS), what, codecs.ID_COUNTER, self._backoff)

    @property
    def batches(self) -> Table:
        """Batches of completed transactions."""
        return self.tables.table(places.COMPLETED_BATCHES)

    def completed(self, batch: int, stream: places.StreamIdentity, transaction_id: UUID) -> Cell[CompletedTransaction]:
        """How a transaction ended, in one of the batches."""
        table, key = self.tables.table(places.completed_table(batch)), places.completed_key(stream, transaction_id)
        return Cell(table, key, codecs.COMPLETED_TRANSACTION, self._backoff, always)


class StreamCells:
    """The keys of one stream. Threads: any.

    Args:
        tables: where they lie.
        stream: which one.
        backoff: pauses between attempts.
        records: reads and keeps the records of its history.
    """

    def __init__(self, tables: Tables, stream: places.StreamIdentity, backoff: Backoff, records: EpochRecords) -> None:
        self.tables = tables
        self.stream = stream
        self._backoff = backoff
        self._records = records
        self._metadata = tables.table(stream.metadata_table)

    def creation_time(self) -> Cell[int]:
        """When the stream was created."""
        return self._kept(places.CREATION_TIME, codecs.CREATION_TIME, always)

    def layout(self) -> Cell[HistoryLayout]:
        """How its history is cut into pieces."""
        return self._kept(places.LAYOUT, codecs.HISTORY_LAYOUT, always)

    def configuration(self) -> Cell[ConfigurationRecord]:
        """What its owner wants."""
        return self._cell(places.CONFIGURATION, codecs.CONFIGURATION)

    def state(self) -> Cell[StreamStatus]:
        """Where it stands, and which workflow has it."""
        return self._cell(places.STATE, codecs.STREAM_STATE)

    def request(self, workflow_id: UUID) -> Cell[WorkflowRequest]:
        """What a workflow is to do."""
        return self._cell(places.request_key(workflow_id), codecs.WORKFLOW_REQUEST)

    def request_ids(self) -> list[UUID]:
        """The workflows that have a request, in the order of their ids. 1 call for 1,000 of them."""
        prefix = places.REQUESTS_PREFIX
        return [UUID(key.removeprefix(prefix)) for key in self._metadata.keys(prefix)]

    def transition(self) -> Cell[EpochTransition]:
        """The scale that was submitted step by step."""
        return self._cell(places.TRANSITION, codecs.EPOCH_TRANSITION)

    def truncation(self) -> Cell[TruncationRecord]:
        """Where it begins."""
        return self._cell(places.TRUNCATION, codecs.TRUNCATION)

    def committing(self) -> Cell[CommittingTransactions]:
        """The commit that was started step by step."""
        return self._cell(places.COMMITTING, codecs.COMMITTING_TRANSACTIONS)

    def commit_order(self) -> Cell[CommitOrder]:
        """Transactions in the order in which they are to be committed."""
        return self._cell(places.COMMIT_ORDER, codecs.COMMIT_ORDER)

    def current_epoch(self) -> Cell[EpochRecord]:
        """Its segments now."""
        return self._kept(places.CURRENT_EPOCH, codecs.EPOCH_RECORD)

    def epoch(self, number: int) -> Cell[EpochRecord]:
        """Its segments in one epoch."""
        return self._kept(places.epoch_key(number), codecs.EPOCH_RECORD, always)

    def chunk(self, number: int, chunk_size: int) -> Cell[HistoryChunk]:
        """What changed in the epochs of one chunk; immutable once it is full."""
        return self._kept(places.chunk_key(number), codecs.HISTORY_CHUNK, lambda chunk: len(chunk) == chunk_size)

    def times(self) -> Cell[EpochTimesRoot]:
        """The root of the index of times."""
        return self._kept(places.TIMES_ROOT, codecs.EPOCH_TIMES)

    def times_block(self, block: Block) -> Cell[BlockTimes]:
        """A block of it."""
        return self._kept(places.times_key(block), codecs.EPOCH_TIMES_BLOCK, always)

    def sealed_epoch(self, segment_id: int) -> Cell[int]:
        """Which epoch sealed a segment."""
        return self._kept(places.sealed_epoch_key(segment_id), codecs.SEALED_EPOCH, always)

    def shard(self, number: int) -> Cell[IdMap]:
        """Sealed sizes."""
        return self._kept(places.shard_key(number), codecs.SEALED_SIZES)

    def retention(self) -> Cell[RetentionSet]:
        """Which cuts were recorded."""
        return self._cell(places.RETENTION, codecs.RETENTION_SET)

    def cut(self, recording_time_ms: int) -> Cell[StreamCutRecord]:
        """A recorded cut."""
        return self._kept(places.cut_key(recording_time_ms), codecs.STREAM_CUT, always)

    def marker(self, segment_id: int) -> Cell[int]:
        """Until when a segment has little load."""
        return self._cell(places.marker_key(segment_id), codecs.COLD_MARKER)

    def waiting_processor(self) -> Cell[str]:
        """Who waits for the stream."""
        return self._cell(places.WAITING_PROCESSOR, codecs.WAITING_PROCESSOR)

    def segment_stream(self, segment_id: int) -> Cell[int]:
        """Which stream of the object layer holds a segment's data."""
        return self._kept(places.segment_stream_key(segment_id), codecs.SEGMENT_STREAM, always)

    @property
    def metadata(self) -> Table:
        """Everything but transactions."""
        return self._metadata

    @property
    def epochs(self) -> Table:
        """Epochs that may have transactions."""
        return self.tables.table(self.stream.epochs_table)

    def epoch_mark(self, epoch: int) -> Cell[bytes]:
        """What says that an epoch may have transactions."""
        return Cell(self.epochs, str(epoch), _BYTES, self._backoff)

    def transactions(self, epoch: int) -> Table:
        """Transactions that began in an epoch."""
        return self.tables.table(self.stream.transactions_table(epoch))

    def transaction(self, epoch: int, transaction_id: UUID) -> Cell[ActiveTransaction]:
        """One of them."""
        return Cell(self.transactions(epoch), str(transaction_id), codecs.ACTIVE_TRANSACTION, self._backoff)

    def _cell(self, key: str, codec: Codec[T], is_final: Callable[[T], bool] = never) -> Cell[T]:
        return Cell(self._metadata, key, codec, self._backoff, is_final)

    def _kept(self, key: str, codec: Codec[T], is_final: Callable[[T], bool] = never) -> Cell[T]:
        return Cell(self._metadata, key, codec, self._backoff, is_final, self._records)
