"""Every key of a stream's history: its table, its name, and the form of its records; and the counters of ids.

    | table                                                  | key                   | value                      |
    |--------------------------------------------------------|-----------------------|----------------------------|
    | _system/scopes                                         | entry/scope           | which scope, and its phase |
    |                                                        | listed/scope/id       | nothing                    |
    | _system/deletedStreams                                 | scope/stream          | its last segment number    |
    | _system/counters                                       | what is counted       | the next id                |
    | _system/completedTransactionsBatches                   | batch                 | nothing                    |
    | _system/completedTransactionsBatch-<batch>             | scope/stream/id       | how the transaction ended  |
    | <scope>/streamsInScope.#.<scope id>                    | entry/stream          | which stream, its phase    |
    |                                                        | listed/stream/id      | nothing                    |
    | <scope>/<stream>/metadata.#.<stream id>                | see `StreamKeys`      |                            |
    | <scope>/<stream>/epochsWithTransactions.#.<stream id>  | epoch                 | nothing                    |
    | <scope>/<stream>/readerGroups.#.<stream id>            | group                 | where its readers stand    |
    | <scope>/<stream>/transactionsInEpoch-<e>.#.<stream id> | transaction id        | the transaction            |

A scope or stream that is deleted and created again gets another unique id, so that no remainder of the first can be
mistaken for the second. Numbers in keys are not padded: these keys are read one by one, and never listed in order.

An entry is written again when its name is used again, so it is deleted by a tombstone, and entries are never listed. A
listed key has the unique id in its name: it is written once, and erased without a tombstone.

**Counters** allocate ids (`loaders.tables.IdBlocks`). They are created together with the tables that all streams share
(`make_system_tables`), and never again. `pass_over_ids` repairs a counter that is missing or went back, if the caller
says that the store was restored.

Source: PDP-35.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar
from uuid import UUID

from accel.errors import CatalogDamaged, InvalidArgument
from accel.history import records as forms
from accel.history.rules.configuration import ConfigurationRecord, HistoryLayout
from accel.history.rules.epochs import EpochRecord, EpochTransition, HistoryChunk
from accel.history.rules.requests import WorkflowRequest
from accel.history.rules.retention import RetentionSet, StreamCutRecord, TruncationRecord
from accel.history.rules.states import ScopeEntry, StreamEntry, StreamStatus
from accel.history.rules.transactions import (
    ActiveTransaction,
    CommitOrder,
    CommittingTransactions,
    CompletedTransaction,
)
from accel.history.rules.values import IdMap
from loaders.errors import TableMissing
from loaders.tables import Table, Tables, check_counter
from loaders.tables.records import Codec
from loaders.tables.typed_key import RecordCache, TypedKey, always, never
from range_index.epoch_times import Block, BlockTimes, EpochTimesRoot

SCOPES: Final = "_system/scopes"
DELETED_STREAMS: Final = "_system/deletedStreams"
COUNTERS: Final = "_system/counters"
COMPLETED_BATCHES: Final = "_system/completedTransactionsBatches"
SYSTEM_TABLES: Final = (DELETED_STREAMS, COUNTERS, COMPLETED_BATCHES, SCOPES)
"""In the order in which they are made: a process that finds the last one finds all."""

OWNED: Final = ".#."
"""Stands before the unique id in the name of each table of a scope or a stream, and in no other name."""

TRANSACTION_IDS: Final = "transactionIds"
SEGMENT_STREAMS: Final = "segmentStreams"

CREATION_TIME: Final = "creationTime"
LAYOUT: Final = "layout"
CONFIGURATION: Final = "configuration"
STATE: Final = "state"
TRANSITION: Final = "epochTransition"
TRUNCATION: Final = "truncation"
COMMITTING: Final = "committingTxns"
COMMIT_ORDER: Final = "commitOrder"
CURRENT_EPOCH: Final = "currentEpochRecord"
TIMES_ROOT: Final = "historyIndex"
RETENTION: Final = "retention"
WAITING_PROCESSOR: Final = "waitingRequestProcessor"
REQUESTS_PREFIX: Final = "request-"

MARK: Final = b""
"""The value of keys that say by being there what they say."""

LISTED: Final = "listed/"
"""What the keys that are listed begin with."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", re.ASCII)


@dataclass(frozen=True, slots=True)
class StreamIdentity:
    """Which stream: its name, and what tells it from earlier ones of that name.

    Args:
        scope: its scope.
        name: within the scope.
        unique_id: drawn when it was created.
    """

    scope: str
    name: str
    unique_id: UUID

    def __str__(self) -> str:
        return f"{self.scope}/{self.name}"

    @property
    def metadata_table(self) -> str:
        """The table of everything but transactions."""
        return self._table("metadata")

    @property
    def reader_groups_table(self) -> str:
        """The table of groups of readers; made when there is the first one."""
        return self._table("readerGroups")

    @property
    def epochs_table(self) -> str:
        """The table of epochs that may have transactions."""
        return self._table("epochsWithTransactions")

    def transactions_table(self, epoch: int) -> str:
        """The table of transactions that began in an epoch."""
        return self._table(f"transactionsInEpoch-{epoch}")

    @property
    def transactions_prefix(self) -> str:
        """What the names of all tables of transactions begin with; those of earlier streams of this name, too."""
        return f"{self}/transactionsInEpoch-"

    def epoch_of_table(self, table: str) -> int | None:
        """The epoch whose transactions a table holds; None for a table of another stream."""
        epoch, _, unique_id = table.removeprefix(self.transactions_prefix).partition(".#.")
        return int(epoch) if unique_id == str(self.unique_id) and epoch.isdecimal() else None

    def _table(self, name: str) -> str:
        return f"{self}/{name}.#.{self.unique_id}"


def entry_key(name: str) -> str:
    """Where it is told which scope, or which stream, has a name."""
    return f"entry/{name}"


def listed_key(name: str, unique_id: UUID) -> str:
    """What a scope or a stream is listed by; in the order of names, since no character of a name comes before "%"."""
    return f"{LISTED}{name}/{unique_id}"


def listed_name(key: str) -> tuple[str, UUID]:
    """The name and the unique id in such a key.

    Raises:
        ValueError: another key.
    """
    name, _, unique_id = key.removeprefix(LISTED).partition("/")
    return name, UUID(unique_id)


def checked_name(what: str, name: object) -> str:
    """The name of a scope or a stream.

    Raises:
        InvalidArgument: anything but 1 to 200 ASCII letters, digits, dots, dashes and underscores, of which the first
            is a letter or a digit.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidArgument(f"expected a {what} of letters, digits, '.', '-' and '_', found {name!r}")
    return name


def streams_table(scope: str, scope_id: UUID) -> str:
    """The table of a scope's streams."""
    return f"{scope}/streamsInScope.#.{scope_id}"


def completed_table(batch: int) -> str:
    """The table of one batch of completed transactions."""
    return f"_system/completedTransactionsBatch-{batch}"


def completed_key(identity: StreamIdentity, transaction_id: UUID) -> str:
    """Where the end of a transaction is told."""
    return f"{identity}/{transaction_id}"


def epoch_key(epoch: int) -> str:
    """An epoch's record."""
    return f"epochRecord-{epoch}"


def chunk_key(chunk: int) -> str:
    """A chunk of the history."""
    return f"historyTimeSeriesChunk-{chunk}"


def times_key(block: Block) -> str:
    """A block of the index of times."""
    return f"{TIMES_ROOT}-{block.kind.value}-{block.number}"


def sealed_epoch_key(segment_id: int) -> str:
    """Which epoch sealed a segment."""
    return f"segmentSealedEpochPath-{segment_id}"


def shard_key(shard: int) -> str:
    """A shard of sealed sizes."""
    return f"segmentsSealedSizeMapShard-{shard}"


def cut_key(recording_time_ms: int) -> str:
    """A recorded cut."""
    return f"retentionCuts-{recording_time_ms}"


def request_key(workflow_id: UUID) -> str:
    """What a workflow is to do."""
    return f"{REQUESTS_PREFIX}{workflow_id}"


def marker_key(segment_id: int) -> str:
    """Until when a segment has little load."""
    return f"markers-{segment_id}"


def segment_stream_key(segment_id: int) -> str:
    """Which stream of the object layer holds a segment's data."""
    return f"segmentStream-{segment_id}"


T = TypeVar("T")


class _Bytes:
    """The form of keys without a form: they say by being there what they say."""

    def encode(self, value: bytes) -> bytes:
        return value

    def decode(self, data: bytes, where: str) -> bytes:  # noqa: ARG002 - anything may stand there
        return data


_BYTES: Final = _Bytes()


@dataclass(frozen=True, slots=True, eq=False)
class SystemKeys:
    """Keys that streams share. Threads: any.

    Args:
        tables: where they lie.
        records: keeps their records; None = they are read and decoded each time.
    """

    tables: Tables
    records: RecordCache | None = None

    @property
    def scopes(self) -> Table:
        """All scopes."""
        return self.tables.table(SCOPES)

    def scope(self, name: str) -> TypedKey[ScopeEntry]:
        """Which scope has a name."""
        return TypedKey(self.scopes, entry_key(name), forms.SCOPE_ENTRY, cache=self.records)

    def stream(self, scope: str, scope_id: UUID, name: str) -> TypedKey[StreamEntry]:
        """Which stream has a name."""
        table = self.streams(scope, scope_id)
        return TypedKey(table, entry_key(name), forms.STREAM_ENTRY, cache=self.records)

    def streams(self, scope: str, scope_id: UUID) -> Table:
        """The streams of a scope."""
        return self.tables.table(streams_table(scope, scope_id))

    def last_number(self, scope: str, name: str) -> TypedKey[int]:
        """The last segment number of a deleted stream."""
        table = self.tables.table(DELETED_STREAMS)
        return TypedKey(table, f"{scope}/{name}", forms.LAST_NUMBER, cache=self.records)

    def counter(self, what: str) -> TypedKey[int]:
        """The next id that nobody has."""
        return TypedKey(self.tables.table(COUNTERS), what, forms.ID_COUNTER, cache=self.records)

    @property
    def batches(self) -> Table:
        """Batches of completed transactions."""
        return self.tables.table(COMPLETED_BATCHES)

    def completed(self, batch: int, stream: StreamIdentity, transaction_id: UUID) -> TypedKey[CompletedTransaction]:
        """How a transaction ended, in one of the batches."""
        table, key = self.tables.table(completed_table(batch)), completed_key(stream, transaction_id)
        return TypedKey(table, key, forms.COMPLETED_TRANSACTION, is_final=always, cache=self.records)


class StreamKeys:
    """The keys of one stream. Threads: any.

    Args:
        tables: where they lie.
        stream: which one.
        records: keeps its records, decoded.
    """

    def __init__(self, tables: Tables, stream: StreamIdentity, records: RecordCache) -> None:
        self.tables = tables
        self.stream = stream
        self._records = records
        self._metadata = tables.table(stream.metadata_table)

    def creation_time(self) -> TypedKey[int]:
        """When the stream was created."""
        return self._key(CREATION_TIME, forms.CREATION_TIME, always)

    def layout(self) -> TypedKey[HistoryLayout]:
        """How its history is cut into pieces."""
        return self._key(LAYOUT, forms.HISTORY_LAYOUT, always)

    def configuration(self) -> TypedKey[ConfigurationRecord]:
        """What its owner wants."""
        return self._key(CONFIGURATION, forms.CONFIGURATION)

    def state(self) -> TypedKey[StreamStatus]:
        """Where it stands, and which workflow has it."""
        return self._key(STATE, forms.STREAM_STATE)

    def request(self, workflow_id: UUID) -> TypedKey[WorkflowRequest]:
        """What a workflow is to do."""
        return self._key(request_key(workflow_id), forms.WORKFLOW_REQUEST)

    def request_ids(self) -> list[UUID]:
        """The workflows that have a request, in the order of their ids. 1 call for 1,000 of them."""
        prefix = REQUESTS_PREFIX
        return [UUID(key.removeprefix(prefix)) for key in self._metadata.keys(prefix)]

    def transition(self) -> TypedKey[EpochTransition]:
        """The scale that was submitted step by step."""
        return self._key(TRANSITION, forms.EPOCH_TRANSITION)

    def truncation(self) -> TypedKey[TruncationRecord]:
        """Where it begins."""
        return self._key(TRUNCATION, forms.TRUNCATION)

    def committing(self) -> TypedKey[CommittingTransactions]:
        """The commit that was started step by step."""
        return self._key(COMMITTING, forms.COMMITTING_TRANSACTIONS)

    def commit_order(self) -> TypedKey[CommitOrder]:
        """Transactions in the order in which they are to be committed."""
        return self._key(COMMIT_ORDER, forms.COMMIT_ORDER)

    def current_epoch(self) -> TypedKey[EpochRecord]:
        """Its segments now."""
        return self._key(CURRENT_EPOCH, forms.EPOCH_RECORD)

    def epoch(self, number: int) -> TypedKey[EpochRecord]:
        """Its segments in one epoch."""
        return self._key(epoch_key(number), forms.EPOCH_RECORD, always)

    def chunk(self, number: int, chunk_size: int) -> TypedKey[HistoryChunk]:
        """What changed in the epochs of one chunk; immutable once it is full."""
        return self._key(chunk_key(number), forms.HISTORY_CHUNK, lambda chunk: len(chunk) == chunk_size)

    def times(self) -> TypedKey[EpochTimesRoot]:
        """The root of the index of times."""
        return self._key(TIMES_ROOT, forms.EPOCH_TIMES)

    def times_block(self, block: Block) -> TypedKey[BlockTimes]:
        """A block of it."""
        return self._key(times_key(block), forms.EPOCH_TIMES_BLOCK, always)

    def sealed_epoch(self, segment_id: int) -> TypedKey[int]:
        """Which epoch sealed a segment."""
        return self._key(sealed_epoch_key(segment_id), forms.SEALED_EPOCH, always)

    def shard(self, number: int) -> TypedKey[IdMap]:
        """Sealed sizes."""
        return self._key(shard_key(number), forms.SEALED_SIZES)

    def retention(self) -> TypedKey[RetentionSet]:
        """Which cuts were recorded."""
        return self._key(RETENTION, forms.RETENTION_SET)

    def cut(self, recording_time_ms: int) -> TypedKey[StreamCutRecord]:
        """A recorded cut."""
        return self._key(cut_key(recording_time_ms), forms.STREAM_CUT, always)

    def marker(self, segment_id: int) -> TypedKey[int]:
        """Until when a segment has little load."""
        # Not kept: of a deleted one the tombstone must be known, or marking anew takes a call more.
        return TypedKey(self._metadata, marker_key(segment_id), forms.COLD_MARKER)

    def waiting_processor(self) -> TypedKey[str]:
        """Who waits for the stream."""
        return self._key(WAITING_PROCESSOR, forms.WAITING_PROCESSOR)

    def segment_stream(self, segment_id: int) -> TypedKey[int]:
        """Which stream of the object layer holds a segment's data."""
        return self._key(segment_stream_key(segment_id), forms.SEGMENT_STREAM, always)

    @property
    def metadata(self) -> Table:
        """Everything but transactions."""
        return self._metadata

    @property
    def epochs(self) -> Table:
        """Epochs that may have transactions."""
        return self.tables.table(self.stream.epochs_table)

    def epoch_mark(self, epoch: int) -> TypedKey[bytes]:
        """What says that an epoch may have transactions."""
        return TypedKey(self.epochs, str(epoch), _BYTES)

    def transactions(self, epoch: int) -> Table:
        """Transactions that began in an epoch."""
        return self.tables.table(self.stream.transactions_table(epoch))

    def transaction(self, epoch: int, transaction_id: UUID) -> TypedKey[ActiveTransaction]:
        """One of them."""
        return TypedKey(self.transactions(epoch), str(transaction_id), forms.ACTIVE_TRANSACTION, cache=self._records)

    def _key(self, key: str, codec: Codec[T], is_final: Callable[[T], bool] = never) -> TypedKey[T]:
        return TypedKey(self._metadata, key, codec, is_final=is_final, cache=self._records)


ID_COUNTERS: Final = (TRANSACTION_IDS, SEGMENT_STREAMS)
"""The counters of histories, as keys of their table."""


def make_system_tables(shared: SystemKeys, *, is_initialised: bool = False) -> None:
    """Make the tables that all streams share, and the counters in them. May be repeated, also after a crash.

    The table of scopes is made last. While it is not there, nobody has a scope, so the rest may be made anew; once it
    is there, what is missing was deleted.

    Args:
        shared: the keys of the store.
        is_initialised: whether `accel catalog init` has made them before: then none may be missing.

    Requests: 3 if all is there, else two, those of a listing of tables, and one for each table and counter.

    Raises:
        CatalogDamaged: some of it is gone.
        StoreError, TableError.
    """
    tables = shared.tables
    if tables.table_exists(SCOPES):
        refuse_lost_counters(shared)
        return
    if is_initialised:
        raise CatalogDamaged(f"expected table {SCOPES!r}, which is made with the bucket, found none")
    owned = next((name for name in tables.table_names() if OWNED in name), None)
    if owned is not None:
        if tables.table_exists(SCOPES):  # made by another process meanwhile, and a scope after it
            return
        found = f"none, and table {owned!r}, which a scope or stream has"
        raise CatalogDamaged(f"expected table {SCOPES!r}, found {found}")
    for name in SYSTEM_TABLES:
        tables.create_table(name)
        for what in ID_COUNTERS if name == COUNTERS else ():
            shared.counter(what).create_if_absent(0)


def refuse_lost_counters(shared: SystemKeys) -> None:
    """Look whether all counters are there. One request each.

    Raises:
        CatalogDamaged: one is not.
        StoreError, CorruptObject, FormatTooNew: one cannot be read.
    """
    for what in ID_COUNTERS:
        counter = shared.counter(what)
        try:
            versioned = counter.read()
        except TableMissing:
            versioned = None
        check_counter(None if versioned is None else versioned.value, -1, counter.where, CatalogDamaged)


def pass_over_ids(counter: TypedKey[int], least: int, count: int) -> tuple[int | None, int]:
    """Raise a counter far above every id that is in use: after a store was put back from a copy. Two calls.

    Args:
        counter: the counter; one that is not there is made.
        least: above every id that was found in use.
        count: how many ids above that are passed over: processes of the lost time may have had them.

    Returns:
        What it said before, None if it was not there, and what it says now.

    Raises:
        StoreError, TableError: the counter could not be raised.
    """
    before: list[int | None] = []

    def raised(now: int | None) -> int:
        before.append(now)
        return max(least, now or 0) + count

    after = counter.change(raised).value
    return before[0], after
