"""The parts that queries and workflows of a stream, or of a store, share: settings, tables, clock, cache and host.

The cache of decoded records is bounded in bytes. The size of a record is that of its columns and tuples
(`record_size_bytes`); the few objects around them belong to the overhead of a cache entry. A column that is a part of
a larger array counts as the whole array, since the column keeps the array in memory.
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
from accel.history.rules.configuration import HistoryLayout
from accel.history.rules.states import StreamState, StreamStatus, start_number
from accel.history.rules.values import checked_time
from accel.history.store.keys import (
    SEGMENT_STREAMS,
    TRANSACTION_IDS,
    StreamIdentity,
    StreamKeys,
    SystemKeys,
)
from accel.history.store.segment_host import GivenSizes, NoHost, SegmentHost, StreamName
from accel.history.store.settings import HistorySettings
from accel.system import Components, measured
from accel.units import milliseconds
from loaders.backoff import Backoff
from loaders.lifetime import Lazy
from loaders.settings import CLOCK_SKEW_SECONDS_MAX
from loaders.tables import IdBlocks, RecordCache, Tables, Versioned
from loaders.threads import InlineElsewhere, map_bounded

MILLISECONDS: Final = 1000

CLOCK_SKEW_MS_MAX: Final = int(CLOCK_SKEW_SECONDS_MAX * MILLISECONDS)
"""A time that is further ahead of now is from a wrong clock, or a mistake."""

RECORDS_CACHE_BYTES: Final = 64 << 20
"""Memory for decoded records of all streams together. To read a cached record again takes no call if the record never
changes (epochs, full chunks, blocks of times), otherwise a call without a body."""

ITEM_SIZE_BYTES: Final = 120
"""Assumed size of an item of a tuple: an id or a short text."""


def record_size_bytes(record: object) -> int:
    """Memory of the columns and tuples of a record; 0 if it has none. O(fields)."""
    match record:
        case array():
            return len(record) * record.itemsize
        case np.ndarray():
            # A view keeps its whole base array alive.
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
    """The parts that all streams of one store share. Threads: any.

    Args:
        tables: contain all data.
        settings: settings of this process.
        system: clock, sleep and random numbers.
        executor: sends calls of one step in parallel; None = one after the other.
        is_initialised: whether the tables that all streams share were created with the bucket: then none may be
            missing.

    Attributes:
        records: the cache of decoded records, for all keys of all streams.
    """

    tables: Tables
    settings: HistorySettings
    system: Components
    executor: Executor | None = None
    is_initialised: bool = False
    records: RecordCache = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Not lazy: two threads could create two caches, and an erasure in one would not reach the other.
        records = RecordCache(RECORDS_CACHE_BYTES, record_size_bytes)
        object.__setattr__(self, "records", records)
        object.__setattr__(self, "executor", self.executor and InlineElsewhere(self.executor))

    @Lazy
    def backoff(self) -> Backoff:
        """Pauses between attempts."""
        return Backoff(self.system.sleep, self.system.jitter)

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
        """Delete a table with all its keys, and its records in the cache.

        Raises:
            StoreUnavailable: some keys still exist; the table does not. Drop it again.
        """
        try:
            self.tables.drop_table(name)
        finally:
            self.records.forget_table(name)

    def drawn_id(self) -> UUID:
        """A new random id, never used before."""
        return UUID(bytes=self.system.nonce())

    def now_ms(self) -> int:
        """Milliseconds since 1970 by the store's clock; InvalidArgument if it returns no time of 0 <= ms < 10^14.

        One request each 10 minutes, if the store reports its time.
        """
        measured(self.system)
        seconds = self.system.clock()
        if not math.isfinite(seconds):
            raise InvalidArgument(f"expected a clock that returns seconds since 1970, found {seconds}")
        return checked_time("the clock's time", milliseconds(seconds))

    def is_clock_confirmed(self) -> bool:
        """Whether the store reported its time when it was last asked, or reports none. At most one request."""
        return measured(self.system, must_confirm=True)

    def latest_ms(self) -> int:
        """The latest time that a clock which is not wrong can report now: 5 minutes from now, in milliseconds."""
        return self.now_ms() + CLOCK_SKEW_MS_MAX

    def time_ms(self, what: str, given_ms: int | None) -> int:
        """A time that a caller gave, milliseconds since 1970; now if it gave none.

        Raises:
            InvalidArgument: no time in milliseconds, or one that is more than 5 minutes from now.
        """
        now_ms = self.now_ms()
        if given_ms is None:
            return now_ms
        given_ms = checked_time(what, given_ms)
        if given_ms > now_ms + CLOCK_SKEW_MS_MAX:
            latest = f"at most 5 minutes from now, which is {now_ms} for the store"
            raise InvalidArgument(f"expected {what} {latest}, found {given_ms}")
        return given_ms

    def each(self, act: Callable[[Item], Answer], items: Iterable[Item]) -> list[Answer]:
        """Call `act` for each item, in parallel if there is an executor; return the results in the items' order."""
        return list(map(act, items)) if self.executor is None else map_bounded(self.executor, act, items)


@dataclass(frozen=True, eq=False)
class StreamParts:
    """The parts of one opened stream. Threads: any.

    Args:
        store: the parts that it shares with other streams.
        stream: the stream.
        layout: the layout of its history.
        host: holds its segments.
    """

    store: StoreParts
    stream: StreamIdentity
    layout: HistoryLayout
    host: SegmentHost

    @Lazy
    def keys(self) -> StreamKeys:
        """The keys of the stream."""
        return StreamKeys(self.store.tables, self.stream, self.store.records)

    @property
    def name(self) -> StreamName:
        """The stream's scope and name, in the form that hosts use."""
        return self.stream.scope, self.stream.name

    def status(self) -> Versioned[StreamStatus]:
        """The state of the stream, and the workflow that has it. One call.

        Raises:
            DataNotFound: the stream was never created, or is deleted.
        """
        return self.keys.state().get()

    def state(self) -> StreamState:
        """The state of the stream. One call. Raises as `status`."""
        return self.status().value.state

    @property
    def has_host(self) -> bool:
        """Whether there is a host; without one, this process reads the history and requests changes."""
        return not isinstance(self.host, NoHost)

    def require_host(self, what: str) -> None:
        """Refuse an operation that needs a host, before anything is written.

        Raises:
            HostMissing: there is no host.
            InvalidArgument: the host has no data, and the data is not where the caller says.
        """
        if not self.has_host:
            raise HostMissing(what, str(self.stream))
        if isinstance(self.host, GivenSizes):
            self.host.refuse_data(self.name, what)

    def first_number(self) -> int:
        """The lowest number for the stream's first segment: above those of earlier streams of its name. 1 call."""
        versioned = self.store.keys.last_number(*self.name).read()
        return start_number(None if versioned is None else versioned.value)

    def each(self, act: Callable[[Item], Answer], items: Iterable[Item]) -> list[Answer]:
        """As `StoreParts.each`."""
        return self.store.each(act, items)
