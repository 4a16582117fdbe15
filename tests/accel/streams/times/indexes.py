"""Time indexes for tests, and the plain list that they are compared with."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from accel.streams.rules.events import HostClock
from accel.streams.time_index import PartCache, SegmentTimeIndex
from loaders.backoff import Backoff

if TYPE_CHECKING:
    from loaders.store import ObjectStore
    from range_index.segment_times import TimesRead

STREAM_ID = 7
SETTLE_ATTEMPTS = 4

NO_PAUSES = Backoff(lambda _: None, lambda: 0.0, settle_attempts=SETTLE_ATTEMPTS)

Answer = tuple[int, list[int], int]


@dataclass
class Source:
    """A clock that says what it is told to say."""

    time: int = 0

    def __call__(self) -> int:
        return self.time


def open_index(
    store: ObjectStore,
    source: Source | None = None,
    *,
    moved_records_max: int = 1000,
    cache: PartCache | None = None,
    stream_id: int = STREAM_ID,
) -> SegmentTimeIndex:
    clock = HostClock(source or Source())
    return SegmentTimeIndex.open(
        store, stream_id, clock, cache=cache, backoff=NO_PAUSES, moved_records_max=moved_records_max
    )


def filled(store: ObjectStore, ends: list[int], *, moved_records_max: int = 1000) -> SegmentTimeIndex:
    """An index with records in memory whose values are a tenth of their ends."""
    source = Source()
    index = open_index(store, source, moved_records_max=moved_records_max)
    for end in ends:
        source.time = end // 10
        index.append(end)
    return index


def encoded_memory(index: SegmentTimeIndex) -> bytes:
    """The records in memory in their stored form."""
    return index._view().memory.encode()


@dataclass
class Plain:
    """Every record in a list: the definition of all answers."""

    records: list[tuple[int, int]] = field(default_factory=list)

    @property
    def ends(self) -> list[int]:
        return [end for end, _ in self.records]

    @property
    def end_offset(self) -> int:
        return self.records[-1][0] if self.records else 0

    def read(self, offset: int, count: int) -> Answer:
        ends = self.ends
        if offset >= self.end_offset:
            return 0, [], len(ends)
        end = min(offset + count, self.end_offset)
        covering = sorted({bisect_right(ends, each) for each in range(offset, end)})
        return end - offset, [self.records[each][1] for each in covering], bisect_right(ends, end)

    def locate(self, offset: int) -> int:
        return bisect_right(self.ends, offset)


def plain(answer: TimesRead) -> Answer:
    return answer.covered, answer.values.tolist(), answer.token


def everything(index: SegmentTimeIndex) -> list[tuple[int, int]]:
    return [(end, value) for piece in index.pieces() for end, value in piece.rows.tolist()]
