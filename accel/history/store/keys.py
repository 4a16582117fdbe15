"""All keys of a stream's history, with their tables, names and forms of records; and the counters of ids.

    | table                                                  | key                   | value                      |
    |--------------------------------------------------------|-----------------------|----------------------------|
    | _system/scopes                                         | entry/scope           | the scope's id and phase   |
    |                                                        | listed/scope/id       | nothing                    |
    | _system/deletedStreams                                 | scope/stream          | its last segment number    |
    | _system/counters                                       | kind of id            | the next id                |
    | _system/completedTransactionsBatches                   | batch                 | nothing                    |
    | _system/completedTransactionsBatch-<batch>             | scope/stream/id       | how the transaction ended  |
    | <scope>/streamsInScope.#.<scope id>                    | entry/stream          | the stream's id and phase  |
    |                                                        | listed/stream/id      | nothing                    |
    | <scope>/<stream>/metadata.#.<stream id>                | see `StreamKeys`      |                            |
    | <scope>/<stream>/epochsWithTransactions.#.<stream id>  | epoch                 | nothing                    |
    | <scope>/<stream>/readerGroups.#.<stream id>            | group                 | positions of its readers   |
    | <scope>/<stream>/transactionsInEpoch-<e>.#.<stream id> | transaction id        | the transaction            |

A scope or stream that is deleted and created again gets another unique id, so that remaining keys of the first cannot
be mistaken for keys of the second. Numbers in keys are not padded: these keys are read one by one, and never listed in
order.

An entry is written again when its name is used again, so it is deleted by a tombstone, and entries are never listed. A
listed key has the unique id in its name: it is written once, and erased without a tombstone.

**Counters** allocate ids (`loaders.tables.IdBlocks`). They are created together with the tables that all streams share
(`make_system_tables`), and never again. `pass_over_ids` repairs a counter that is missing or went back, if the caller
says that the store was restored.

Source: PDP-35.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeVar
from uuid import UUID

from accel.errors import CatalogDamaged, InvalidArgument
from accel.history import records as forms
from accel.history.rules.configuration import ConfigurationRecord, HistoryLayout
from accel.history.rules.epochs import EpochRecord, HistoryChunk
from accel.history.rules.requests import WorkflowRequest
from accel.history.rules.retention import RetentionSet, StreamCutRecord, TruncationRecord
from accel.history.rules.states import ScopeEntry, StreamEntry, StreamStatus
from accel.history.rules.transactions import (
    ActiveTransaction,
    CommitOrder,
    CompletedTransaction,
)
from accel.history.rules.values import IdMap
from loaders.errors import TableMissing
from loaders.settings import taker
from loaders.tables import Table, Tables, check_counter
from loaders.tables.records import Codec
from loaders.tables.typed_key import RecordCache, TypedKey, always, never, raw_key
from range_index.epoch_times import Block, BlockTimes, EpochTimesRoot

SCOPES: Final = "_system/scopes"
DELETED_STREAMS: Final = "_system/deletedStreams"
COUNTERS: Final = "_system/counters"
COMPLETED_BATCHES: Final = "_system/completedTransactionsBatches"
SYSTEM_TABLES: Final = (DELETED_STREAMS, COUNTERS, COMPLETED_BATCHES, SCOPES)
"""In the order of their creation: if the last table exists, all exist."""

OWNED: Final = ".#."
"""The text before the unique id in the name of each table of a scope or a stream; no other name contains it."""

TRANSACTION_IDS: Final = "transactionIds"
SEGMENT_STREAMS: Final = "segmentStreams"

CREATION_TIME: Final = "creationTime"
LAYOUT: Final = "layout"
CONFIGURATION: Final = "configuration"
STATE: Final = "state"
TRUNCATION: Final = "truncation"
COMMIT_ORDER: Final = "commitOrder"
CURRENT_EPOCH: Final = "currentEpochRecord"
TIMES_ROOT: Final = "historyIndex"
RETENTION: Final = "retention"
REQUESTS_PREFIX: Final = "request-"

MARK: Final = b""
"""The value of keys whose existence is their meaning."""

LISTED: Final = "listed/"
"""The prefix of listed keys."""

logger = logging.getLogger(__name__)

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", re.ASCII)


@dataclass(frozen=True, slots=True)
class StreamIdentity:
    """A stream's name, and the id that distinguishes the stream from earlier streams of that name.

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
        """The table of groups of readers; created with the first group."""
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
        """The prefix of the names of all tables of transactions, including those of earlier streams of this name."""
        return f"{self}/transactionsInEpoch-"

    def epoch_of_table(self, table: str) -> int | None:
        """The epoch of a table of transactions; None for a table of another stream."""
        epoch, _, unique_id = table.removeprefix(self.transactions_prefix).partition(".#.")
        return int(epoch) if unique_id == str(self.unique_id) and epoch.isdecimal() else None

    def _table(self, name: str) -> str:
        return f"{self}/{name}.#.{self.unique_id}"


def entry_key(name: str) -> str:
    """The key of a name's entry."""
    return f"entry/{name}"


def listed_key(name: str, unique_id: UUID) -> str:
    """The listed key of a scope or stream. Keys sort by name, since no character of a name sorts before "%"."""
    return f"{LISTED}{name}/{unique_id}"


def listed(table: Table, prefix: str = LISTED, after: str = "") -> Iterator[tuple[str, str, UUID]]:
    """Listed keys with the name and the unique id in each; a key of no valid name is passed over, with a warning.

    Args:
        table: the table of scopes, or of a scope's streams.
        prefix: the beginning of the keys.
        after: the key that precedes them.

    Raises:
        TableMissing: there is no such table.
    """
    for key in table.keys(prefix, after):
        name, _, unique_id = key.removeprefix(LISTED).rpartition("/")
        try:
            yield key, checked_name("name", name), UUID(unique_id)
        except ValueError as error:
            pass_over(table.name, key, str(error))


@lru_cache(maxsize=1000)
def pass_over(table: str, key: str, reason: str) -> None:
    """Log once that a listing leaves out a key."""
    logger.warning("table %s: the key %r is left out of listings: %s", table, key, reason)


def checked_name(what: str, name: object) -> str:
    """Check and return the name of a scope or a stream.

    Raises:
        InvalidArgument: anything but 1 to 200 ASCII letters, digits, dots, dashes and underscores, of which the first
            is a letter or a digit.
    """
    text: str = taker(what, "str", InvalidArgument)(name)
    if not _NAME.fullmatch(text):
        raise InvalidArgument(f"expected a {what} of letters, digits, '.', '-' and '_', found {text!r}")
    return text


def streams_table(scope: str, scope_id: UUID) -> str:
    """The table of a scope's streams."""
    return f"{scope}/streamsInScope.#.{scope_id}"


def completed_table(batch: int) -> str:
    """The table of one batch of completed transactions."""
    return f"_system/completedTransactionsBatch-{batch}"


def completed_key(identity: StreamIdentity, transaction_id: UUID) -> str:
    """The key of a completed transaction."""
    return f"{identity}/{transaction_id}"


def epoch_key(epoch: int) -> str:
    """The key of an epoch's record."""
    return f"epochRecord-{epoch}"


def chunk_key(chunk: int) -> str:
    """The key of a chunk of the history."""
    return f"historyTimeSeriesChunk-{chunk}"


def times_key(block: Block) -> str:
    """The key of a block of the index of times."""
    return f"{TIMES_ROOT}-{block.kind.value}-{block.number}"


def sealed_epoch_key(segment_id: int) -> str:
    """The key of the epoch that sealed a segment."""
    return f"segmentSealedEpochPath-{segment_id}"


def shard_key(shard: int) -> str:
    """The key of a shard of sealed sizes."""
    return f"segmentsSealedSizeMapShard-{shard}"


def cut_key(recording_time_ms: int) -> str:
    """The key of a recorded cut."""
    return f"retentionCuts-{recording_time_ms}"


def request_key(workflow_id: UUID) -> str:
    """The key of a workflow's request."""
    return f"{REQUESTS_PREFIX}{workflow_id}"


def segment_stream_key(segment_id: int) -> str:
    """The key of the stream of the object layer with a segment's data."""
    return f"segmentStream-{segment_id}"


T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class SystemKeys:
    """Keys that streams share. Threads: any.

    Args:
        tables: contain the keys.
        records: the cache of decoded records; None = records are read and decoded each time.
    """

    tables: Tables
    records: RecordCache | None = None

    @property
    def scopes(self) -> Table:
        """The table of scopes."""
        return self.tables.table(SCOPES)

    def scope(self, name: str) -> TypedKey[ScopeEntry]:
        """The entry of a scope's name."""
        return TypedKey(self.scopes, entry_key(name), forms.SCOPE_ENTRY, cache=self.records)

    def stream(self, scope: str, scope_id: UUID, name: str) -> TypedKey[StreamEntry]:
        """The entry of a stream's name."""
        table = self.streams(scope, scope_id)
        return TypedKey(table, entry_key(name), forms.STREAM_ENTRY, cache=self.records)

    def streams(self, scope: str, scope_id: UUID) -> Table:
        """The table of a scope's streams."""
        return self.tables.table(streams_table(scope, scope_id))

    def last_number(self, scope: str, name: str) -> TypedKey[int]:
        """The last segment number of a deleted stream."""
        table = self.tables.table(DELETED_STREAMS)
        return TypedKey(table, f"{scope}/{name}", forms.LAST_NUMBER, cache=self.records)

    def counter(self, what: str) -> TypedKey[int]:
        """The next unused id."""
        return TypedKey(self.tables.table(COUNTERS), what, forms.ID_COUNTER, cache=self.records)

    @property
    def batches(self) -> Table:
        """The table of batches of completed transactions."""
        return self.tables.table(COMPLETED_BATCHES)

    def batch_mark(self, batch: int) -> TypedKey[bytes]:
        """The mark of a batch of completed transactions."""
        return raw_key(self.batches, str(batch))

    def completed(self, batch: int, stream: StreamIdentity, transaction_id: UUID) -> TypedKey[CompletedTransaction]:
        """The end of a transaction, in one of the batches."""
        table, key = self.tables.table(completed_table(batch)), completed_key(stream, transaction_id)
        return TypedKey(table, key, forms.COMPLETED_TRANSACTION, is_final=always, cache=self.records)


class StreamKeys:
    """The keys of one stream. Threads: any.

    Args:
        tables: contain the keys.
        stream: the stream.
        records: the cache of its decoded records.
    """

    def __init__(self, tables: Tables, stream: StreamIdentity, records: RecordCache) -> None:
        self.tables = tables
        self.stream = stream
        self._records = records
        self._metadata = tables.table(stream.metadata_table)

    def creation_time(self) -> TypedKey[int]:
        """The time of the stream's creation."""
        return self._key(CREATION_TIME, forms.CREATION_TIME, always)

    def layout(self) -> TypedKey[HistoryLayout]:
        """The layout of the stream's history."""
        return self._key(LAYOUT, forms.HISTORY_LAYOUT, always)

    def configuration(self) -> TypedKey[ConfigurationRecord]:
        """The stream's configuration."""
        return self._key(CONFIGURATION, forms.CONFIGURATION)

    def state(self) -> TypedKey[StreamStatus]:
        """The stream's state, and the workflow that has the stream."""
        return self._key(STATE, forms.STREAM_STATE)

    def request(self, workflow_id: UUID) -> TypedKey[WorkflowRequest]:
        """The request of a workflow."""
        return self._key(request_key(workflow_id), forms.WORKFLOW_REQUEST)

    def request_ids(self) -> list[UUID]:
        """The ids of the workflows with a request, in order. 1 call for 1,000 ids."""
        prefix = REQUESTS_PREFIX
        return [UUID(key.removeprefix(prefix)) for key in self._metadata.keys(prefix)]

    def truncation(self) -> TypedKey[TruncationRecord]:
        """The cut at which the stream begins."""
        return self._key(TRUNCATION, forms.TRUNCATION)

    def commit_order(self) -> TypedKey[CommitOrder]:
        """Transactions in the order in which they are to be committed."""
        return self._key(COMMIT_ORDER, forms.COMMIT_ORDER)

    def current_epoch(self) -> TypedKey[EpochRecord]:
        """The current epoch."""
        return self._key(CURRENT_EPOCH, forms.EPOCH_RECORD)

    def epoch(self, number: int) -> TypedKey[EpochRecord]:
        """An epoch's record."""
        return self._key(epoch_key(number), forms.EPOCH_RECORD, always)

    def chunk(self, number: int, chunk_size: int) -> TypedKey[HistoryChunk]:
        """The changes in the epochs of one chunk; immutable once the chunk is full."""
        return self._key(chunk_key(number), forms.HISTORY_CHUNK, lambda chunk: len(chunk) == chunk_size)

    def times(self) -> TypedKey[EpochTimesRoot]:
        """The root of the index of times."""
        return self._key(TIMES_ROOT, forms.EPOCH_TIMES)

    def times_block(self, block: Block) -> TypedKey[BlockTimes]:
        """A block of the index of times."""
        return self._key(times_key(block), forms.EPOCH_TIMES_BLOCK, always)

    def sealed_epoch(self, segment_id: int) -> TypedKey[int]:
        """The epoch that sealed a segment."""
        return self._key(sealed_epoch_key(segment_id), forms.SEALED_EPOCH, always)

    def shard(self, number: int) -> TypedKey[IdMap]:
        """A shard of sealed sizes."""
        return self._key(shard_key(number), forms.SEALED_SIZES)

    def retention(self) -> TypedKey[RetentionSet]:
        """The list of recorded cuts."""
        return self._key(RETENTION, forms.RETENTION_SET)

    def cut(self, recording_time_ms: int) -> TypedKey[StreamCutRecord]:
        """A recorded cut."""
        return self._key(cut_key(recording_time_ms), forms.STREAM_CUT, always)

    def segment_stream(self, segment_id: int) -> TypedKey[int]:
        """The stream of the object layer with a segment's data."""
        return self._key(segment_stream_key(segment_id), forms.SEGMENT_STREAM, always)

    @property
    def metadata(self) -> Table:
        """The table of everything but transactions."""
        return self._metadata

    @property
    def epochs(self) -> Table:
        """The table of epochs that may have transactions."""
        return self.tables.table(self.stream.epochs_table)

    def epoch_mark(self, epoch: int) -> TypedKey[bytes]:
        """The mark of an epoch that may have transactions."""
        return raw_key(self.epochs, str(epoch))

    def transactions(self, epoch: int) -> Table:
        """The table of transactions that began in an epoch."""
        return self.tables.table(self.stream.transactions_table(epoch))

    def transaction(self, epoch: int, transaction_id: UUID) -> TypedKey[ActiveTransaction]:
        """A transaction that began in an epoch."""
        return TypedKey(self.transactions(epoch), str(transaction_id), forms.ACTIVE_TRANSACTION, cache=self._records)

    def _key(self, key: str, codec: Codec[T], is_final: Callable[[T], bool] = never) -> TypedKey[T]:
        return TypedKey(self._metadata, key, codec, is_final=is_final, cache=self._records)


ID_COUNTERS: Final = (TRANSACTION_IDS, SEGMENT_STREAMS)
"""The counters of histories, as keys of their table."""


def make_system_tables(shared: SystemKeys, *, is_initialised: bool = False) -> None:
    """Create the tables that all streams share, and their counters. May be repeated, also after a crash.

    The table of scopes is created last. While it does not exist, there is no scope, so the other tables may be created
    anew; once it exists, a missing table was deleted.

    Args:
        shared: the keys of the store.
        is_initialised: whether `accel catalog init` created the tables before: then none may be missing.

    Requests: 3 if all exist, else 2, those of a listing of tables, and 1 for each table and counter.

    Raises:
        CatalogDamaged: a table or counter is missing.
        StoreError, TableError.
    """
    tables = shared.tables
    if tables.table_exists(SCOPES):
        refuse_lost_counters(shared)
        return
    if is_initialised:
        raise CatalogDamaged(f"expected table {SCOPES!r}, which is created with the bucket, found none")
    owned = next((name for name in tables.table_names() if OWNED in name), None)
    if owned is not None:
        if tables.table_exists(SCOPES):  # another process created it meanwhile, and then a scope
            return
        found = f"none, and table {owned!r} of a scope or stream"
        raise CatalogDamaged(f"expected table {SCOPES!r}, found {found}")
    for name in SYSTEM_TABLES:
        tables.create_table(name)
        for what in ID_COUNTERS if name == COUNTERS else ():
            shared.counter(what).create_if_absent(0)


def refuse_lost_counters(shared: SystemKeys) -> None:
    """Check that all counters exist. One request each.

    Raises:
        CatalogDamaged: a counter is missing.
        StoreError, CorruptObject, FormatTooNew: a counter cannot be read.
    """
    for what in ID_COUNTERS:
        counter = shared.counter(what)
        try:
            versioned = counter.read()
        except TableMissing:
            versioned = None
        check_counter(None if versioned is None else versioned.value, -1, counter.where, CatalogDamaged)


def pass_over_ids(counter: TypedKey[int], least: int, count: int) -> tuple[int | None, int]:
    """Raise a counter far above all ids in use, after a store was restored from a copy. Two calls.

    Args:
        counter: the counter; a missing counter is created.
        least: a number above all ids that were found in use.
        count: number of ids that are passed over: processes may have taken them since the copy was made.

    Returns:
        The previous value of the counter, None if it was missing, and its new value.

    Raises:
        StoreError, TableError: the counter could not be raised.
    """
    before: list[int | None] = []

    def raised(now: int | None) -> int:
        before.append(now)
        return max(least, now or 0) + count

    after = counter.change(raised).value
    return before[0], after
