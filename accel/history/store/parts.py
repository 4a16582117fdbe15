"""What the questions and workflows of one stream, and of one store, share: settings, tables, clock, cache and host.

The cache of decoded records is bounded in bytes. Columns and tuples of a record count (`record_size_bytes`); the few
objects around them are the overhead of keeping a record at all. A column that is a part of a larger array counts as
the whole array, since that stays in memory for it.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Final, TypeVar
from uuid import UUID

import numpy as np

from accel.errors import CatalogDamaged, HostMissing, InvalidArgument
from accel.history.rules.configuration import DEFAULT_LAYOUT, HistoryLayout, ShardBy
from accel.history.rules.states import ACTIVE, StreamState, StreamStatus, after_step_by_hand, start_number
from accel.history.rules.transactions import COMMITTED_AT_ONCE_MAX
from accel.history.rules.values import TIME_MS_END, checked_time
from accel.history.store.hosts import NoHost, SegmentHost, StreamName
from accel.history.store.keys import (
    SEGMENT_STREAMS,
    STATE,
    TRANSACTION_IDS,
    StreamIdentity,
    StreamKeys,
    SystemKeys,
)
from accel.system import Components
from accel.units import milliseconds
from loaders.backoff import DEFAULT_RETRY, Backoff
from loaders.errors import DataNotFound
from loaders.lifetime import InlineElsewhere, Lazy
from loaders.parallel import map_bounded
from loaders.settings import check_settings
from loaders.tables import IdBlocks, RecordCache, Tables, Versioned
from range_index.epoch_times import LEAF_PARTS, PART_EPOCHS

MILLISECONDS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySettings:
    """How histories are kept. The first group holds for streams that are created; others keep what they have.

    Attributes:
        chunk_size: epochs in a chunk of the history.
        shard_size: epochs, or segment numbers, whose sealed sizes lie in one shard.
        shard_by: which of both.
        part_epochs: times in a part of the index of times.
        leaf_parts: parts that are merged into a leaf.

        ids_block: ids that are taken from a counter at once.
        committed_at_once_max: transactions of one commit.
        lease_ms: how long a transaction lives unless somebody asks for more.
        longest_ms: how long it lives at most.
        completed_batch_seconds: ends of transactions are remembered for this long at least, and twice that at most.
        records_cache_bytes: memory for decoded records, of all streams together. Those that never change (epochs, full
            chunks, blocks of times) cost neither a call nor decoding when they are asked for again, the others a call
            without a body. 64 MiB; 0 = none is kept.

    Raises:
        ValueError: a number out of bounds.
    """

    chunk_size: int = DEFAULT_LAYOUT.chunk_size
    shard_size: int = DEFAULT_LAYOUT.shard_size
    shard_by: ShardBy = DEFAULT_LAYOUT.shard_by
    part_epochs: int = PART_EPOCHS
    leaf_parts: int = LEAF_PARTS
    ids_block: int = 1000
    committed_at_once_max: int = 1000
    lease_ms: int = 60 * MILLISECONDS
    longest_ms: int = 24 * 3600 * MILLISECONDS
    completed_batch_seconds: float = 24 * 3600.0
    records_cache_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        check_settings(
            self,
            least={"completed_batch_seconds": 1, "records_cache_bytes": 0},
            most={"committed_at_once_max": COMMITTED_AT_ONCE_MAX, "longest_ms": TIME_MS_END - 1}
            | {"completed_batch_seconds": TIME_MS_END - 1},
        )
        if self.lease_ms > self.longest_ms:
            raise ValueError(f"expected lease_ms of at most longest_ms = {self.longest_ms}, found {self.lease_ms}")

    @property
    def layout(self) -> HistoryLayout:
        """How the histories of new streams are cut into pieces."""
        return HistoryLayout(self.chunk_size, self.shard_size, self.shard_by)


ITEM_SIZE_BYTES: Final = 120
"""Of what a tuple holds: an id or a short text."""


def record_size_bytes(record: object) -> int:
    """Memory that the columns and tuples of a record take; 0 for one without any. O(fields)."""
    match record:
        case array():
            return len(record) * record.itemsize
        case np.ndarray():
            # A view keeps alive what it was cut from.
            return record.base.nbytes if isinstance(record.base, np.ndarray) else record.nbytes
        case tuple():
            return ITEM_SIZE_BYTES * len(record)
        case _:
            names = getattr(type(record), "__slots__", ())
            return sum(record_size_bytes(getattr(record, name, None)) for name in names)


Item = TypeVar("Item")
Answer = TypeVar("Answer")


@dataclass(frozen=True, eq=False)
class StoreParts:
    """What all streams of one store share. Threads: any.

    Args:
        tables: where everything lies.
        settings: choices of this process.
        system: clock, sleep and chance.
        executor: sends calls of one step side by side; None = one after the other.
        is_initialised: whether the tables that all streams share were made with the bucket: then none may be missing.

    Attributes:
        records: the records of all streams, decoded: one cache for every key.
    """

    tables: Tables
    settings: HistorySettings
    system: Components
    executor: Executor | None = None
    is_initialised: bool = False
    records: RecordCache = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Not made when it is first asked for: two threads would make two, and neither would hear what the other erased.
        records = RecordCache(self.settings.records_cache_bytes, record_size_bytes)
        object.__setattr__(self, "records", records)
        object.__setattr__(self, "executor", self.executor and InlineElsewhere(self.executor))

    @Lazy
    def backoff(self) -> Backoff:
        """Pauses between attempts."""
        return Backoff(DEFAULT_RETRY, self.system.sleep, self.system.jitter)

    @Lazy
    def keys(self) -> SystemKeys:
        """Keys that streams share."""
        return SystemKeys(self.tables, self.records)

    @Lazy
    def transaction_counters(self) -> IdBlocks:
        """Allocates the lower parts of transaction ids."""
        return IdBlocks(self.keys.counter(TRANSACTION_IDS), self.settings.ids_block, CatalogDamaged)

    @Lazy
    def segment_streams(self) -> IdBlocks:
        """Allocates streams of the object layer."""
        return IdBlocks(self.keys.counter(SEGMENT_STREAMS), self.settings.ids_block, CatalogDamaged)

    def drop_table(self, name: str) -> None:
        """Delete a table with all its keys; what was read of it before is not given out any more.

        Raises:
            StoreUnavailable: some keys are still there; the table is not. Drop it again.
        """
        try:
            self.tables.drop_table(name)
        finally:
            self.records.forget_table(name)

    def drawn_id(self) -> UUID:
        """An id that nothing has had before."""
        return UUID(bytes=self.system.nonce())

    def now_ms(self) -> int:
        """Milliseconds since 1970; InvalidArgument if the clock tells no time of 0 <= ms < 10^14."""
        seconds = self.system.clock()
        if not math.isfinite(seconds):
            raise InvalidArgument(f"expected a clock that tells seconds since 1970, found {seconds}")
        return checked_time("the clock's time", milliseconds(seconds))

    def each(self, act: Callable[[Item], Answer], items: Iterable[Item]) -> list[Answer]:
        """Do something for each of several keys, side by side if there is an executor; answers in their order."""
        return list(map(act, items)) if self.executor is None else map_bounded(self.executor, act, items)


@dataclass(frozen=True, eq=False)
class StreamParts:
    """The parts of one opened stream. Threads: any.

    Args:
        store: what it shares with others.
        stream: which one.
        layout: how its history is cut into pieces.
        host: holds its segments.
    """

    store: StoreParts
    stream: StreamIdentity
    layout: HistoryLayout
    host: SegmentHost

    @Lazy
    def keys(self) -> StreamKeys:
        """Its keys."""
        return StreamKeys(self.store.tables, self.stream, self.store.records)

    @property
    def name(self) -> StreamName:
        """Its scope and name, as hosts know it."""
        return self.stream.scope, self.stream.name

    def status(self) -> Versioned[StreamStatus]:
        """Where the stream stands, and which workflow has it. One call.

        Raises:
            DataNotFound: it was never created, or is deleted.
        """
        return self.keys.state().get()

    def state(self) -> StreamState:
        """Where the stream stands. One call. Raises as `status`."""
        return self.status().value.state

    def set_state(self, wanted: StreamState) -> None:
        """Move the stream to a state, for a caller who carries a workflow out step by step. 2 calls.

        Raises:
            OperationNotAllowed: the step is not allowed, or a workflow has the stream that only its own id ends.
            DataNotFound: as `status`.
        """

        def step(now: StreamStatus | None) -> StreamStatus | None:
            if now is None:
                raise DataNotFound(self.stream.metadata_table, STATE, "expected a stream, found none")
            return after_step_by_hand(now, wanted)

        self.keys.state().change(step)

    def leave_by_hand(self, workflow: StreamState) -> None:
        """End a workflow that its caller carries out step by step; nothing if another one has the stream. 2 calls."""
        self.keys.state().change(lambda now: ACTIVE if now == StreamStatus(workflow) else None)

    @property
    def has_host(self) -> bool:
        """Whether there is one; else the history is read, and asked for changes."""
        return not isinstance(self.host, NoHost)

    def require_host(self, what: str) -> None:
        """Refuse what cannot be done without a host, before anything is written.

        Raises:
            HostMissing: there is none.
        """
        if not self.has_host:
            raise HostMissing(what, str(self.stream))

    def first_number(self) -> int:
        """The lowest number that its first segment may have: above those of earlier streams of its name. 1 call."""
        versioned = self.store.keys.last_number(*self.name).read()
        return start_number(None if versioned is None else versioned.value)

    def each(self, act: Callable[[Item], Answer], items: Iterable[Item]) -> list[Answer]:
        """As `StoreParts.each`."""
        return self.store.each(act, items)
