"""A stream of many epochs whose history was written chunk by chunk, without a single scale.

Each epoch seals all segments and creates as many with the same keys, so that with 30 segments it has 30 operations:

    epoch e      segments  e*n, e*n + 1, ..., e*n + n - 1     at the keys  0/n, 1/n, ..., (n-1)/n
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accel.history.rules.configuration import StreamConfiguration
from accel.history.rules.epochs import EpochRecord, HistoryChunk
from accel.history.rules.segments import Segments
from accel.history.rules.values import NUMBER_BITS
from accel.history.store import HistorySettings, Stream, StreamStore
from accel.history.store.keys import StreamIdentity, StreamKeys
from accel.history.store.parts import StoreParts
from accel.system import SYSTEM
from loaders.store import MemoryStore
from loaders.tables import Tables

SCOPE, NAME = "scope", "long"
START_MS = 1_000_000
CHUNK = 1_000

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class LongHistory:
    """A bucket with one such stream.

    Args:
        epochs: how many; whole thousands.
        segments: of each.
    """

    epochs: int
    segments: int
    store: MemoryStore

    @classmethod
    def write(cls, epochs: int, segments: int) -> LongHistory:
        """In a new bucket: epochs 0 and the last one, and all chunks."""
        store = MemoryStore()
        streams = StreamStore.open(store)
        streams.create_scope(SCOPE)
        wanted = StreamConfiguration(min_segments=segments)
        unique_id = streams.create_stream(SCOPE, NAME, wanted, START_MS).unique_id
        made = cls(epochs, segments, store)
        tables = Tables(store, nonce=SYSTEM.nonce, sleep=SYSTEM.sleep, jitter=SYSTEM.jitter)
        parts = StoreParts(tables, HistorySettings(), SYSTEM)
        keys = StreamKeys(tables, StreamIdentity(SCOPE, NAME, unique_id), parts.records)
        for number in range(epochs // CHUNK):
            chunk = made.chunk(number)
            keys.chunk(number, CHUNK).change(lambda _, chunk=chunk: chunk)  # type: ignore[misc]  # bound for the loop
        last = made.record(epochs - 1)
        keys.epoch(last.epoch).create_if_absent(last)
        keys.current_epoch().change(lambda _: last)
        return made

    def ids(self, first: int, last: int) -> Integers:
        """The segments that epochs from one to another created."""
        numbers = np.arange(first * self.segments, (last + 1) * self.segments, dtype=np.int64)
        return (numbers // self.segments << NUMBER_BITS) + numbers

    def cut(self, epoch: int) -> dict[int, int]:
        """A cut through all segments of an epoch."""
        return dict.fromkeys(self.ids(epoch, epoch).tolist(), 1)

    def rows(self, first: int, last: int) -> Segments:
        """The segments that epochs created, in full."""
        ids = self.ids(first, last)
        lanes = np.arange(len(ids)) % self.segments
        times = START_MS + (ids >> NUMBER_BITS)
        return Segments.make(ids, times, lanes / self.segments, (lanes + 1) / self.segments)

    def record(self, epoch: int) -> EpochRecord:
        """An epoch."""
        return EpochRecord(epoch, epoch, self.rows(epoch, epoch), START_MS + epoch, 0, 0)

    def chunk(self, number: int) -> HistoryChunk:
        """What changed in a thousand epochs."""
        epochs = np.arange(number * CHUNK, (number + 1) * CHUNK, dtype=np.int64)
        sealing = epochs[epochs > 0]
        return HistoryChunk(
            number * CHUNK,
            epochs,
            START_MS + epochs,
            sealed=self.rows(int(sealing[0]) - 1, int(sealing[-1]) - 1),
            sealed_stops=np.cumsum(epochs > 0) * self.segments,
            created=self.rows(int(epochs[0]), int(epochs[-1])),
            created_stops=np.arange(1, CHUNK + 1) * self.segments,
        )

    def opened(self, streams: StreamStore | None = None) -> Stream:
        """The stream, opened by a client that has read nothing."""
        return (StreamStore.open(self.store) if streams is None else streams).stream(SCOPE, NAME)
