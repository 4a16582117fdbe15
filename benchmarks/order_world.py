"""A stream of uneven segments, made whole from a seed: what readers of the benchmark `time_order` read.

    16 key ranges    records a second from 1 to 100, each the same factor above the one before; shuffled over the keys
    bursts           for 0.1 to 1 s a range gets ten times as many, each about once in 20 s
    writers stall    what would have come in 1 to 3 s comes at their end, each range about once in 60 s
    reads stall      a read of a segment that begins within 2 to 5 s answers at their end, each range once in 600 s
    scales           each 10 s the segment that got the most since the last one is split in half, and the two
                     neighbours that got the least are merged: one more epoch, as many segments

Any other read takes what a log-normal distribution says: 20 ms in the middle, 80 ms for one in a hundred. The n-th read
of a segment takes as long for one reader as for another.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from accel.history.rules.ids import make_id
from accel.history.rules.segments import SegmentRecord
from accel.streams.rules.events import EventBatch
from accel.streams.rules.reader_core import Fill, SegmentEnd, SegmentEvents

SEGMENTS = 16
RATE_MIN, RATE_MAX = 1.0, 100.0
RECORD_BYTES = 1000
SCALE_MS = 10_000
BURST_FACTOR = 10
BURST_MS, BURST_EACH_MS = (100, 1_000), 20_000
WRITE_STALL_MS, WRITE_STALL_EACH_MS = (1_000, 3_000), 60_000
READ_STALL_MS, READ_STALL_EACH_MS = (2_000, 5_000), 600_000
LATENCY_MS, LATENCY_SIGMA = 20.0, 0.6

Integers = NDArray[np.int64]

_PAYLOAD = bytes(RECORD_BYTES)
_BOUNDS = np.array([0, RECORD_BYTES], dtype=np.int64)


@dataclass
class WorldSegment:
    """One segment, with all that it ever gets.

    Attributes:
        record: what the history says of it.
        sealed_ms: when it was sealed; None = never.
        following: what took its place.
        numbers: of its records, counted over the stream in the order of their arrival.
        times_ms: when each arrived, which is its value; ascending.
        offsets: from 0 to one past the last.
    """

    record: SegmentRecord
    sealed_ms: int | None = None
    following: list[SegmentRecord] = field(default_factory=list)
    numbers: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    times_ms: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    offsets: Integers = field(default_factory=lambda: np.zeros(1, np.int64))


class World:
    """All of a stream. Threads: one at a time.

    Args:
        seed: everything follows from it.
        seconds: how long records arrive.

    Attributes:
        times_ms: when each record of the stream arrived; ascending.
        keys: of each.
        segments: all there ever are, by id.
    """

    def __init__(self, seed: int, seconds: float) -> None:
        self.seed, self.seconds, self.end_ms = seed, seconds, int(seconds * 1000)
        chance = np.random.default_rng(seed)
        rates = chance.permutation(np.geomspace(RATE_MIN, RATE_MAX, SEGMENTS))
        arrivals = [_arrivals(chance, rate, self.end_ms) for rate in rates]
        keys = [(each + chance.random(len(times))) / SEGMENTS for each, times in enumerate(arrivals)]
        order = np.argsort(np.concatenate(arrivals), kind="stable")
        self.times_ms, self.keys = np.concatenate(arrivals)[order], np.concatenate(keys)[order]
        self.stalls = [list(_windows(chance, self.end_ms, READ_STALL_EACH_MS, READ_STALL_MS)) for _ in range(SEGMENTS)]
        self.segments: dict[int, WorldSegment] = {}
        self._number = itertools.count()
        self._grow()

    @property
    def records(self) -> int:
        """How many arrive in all."""
        return len(self.times_ms)

    def fill(self, fill: Fill, now_ms: float) -> SegmentEvents:
        """What a read gives that begins now."""
        segment = self.segments[fill.segment_id]
        seen = int(np.searchsorted(segment.times_ms, now_ms, side="right"))
        end = min(seen, fill.offset + max(1, fill.max_bytes // RECORD_BYTES), seen if fill.end is None else fill.end)
        batches = tuple(_batch(segment, offset) for offset in range(fill.offset, end))
        return SegmentEvents(batches, max(fill.offset, end), max(fill.offset, end))

    def end(self, segment_id: int, now_ms: float) -> SegmentEnd:
        """Whether a segment is sealed now, and what follows it."""
        segment = self.segments[segment_id]
        if segment.sealed_ms is None or segment.sealed_ms > now_ms:
            return SegmentEnd(None)
        return SegmentEnd(len(segment.times_ms), tuple(segment.following))

    def stalled_until(self, segment_id: int, now_ms: float) -> float:
        """When a read answers at the earliest that begins now."""
        where = int(self.segments[segment_id].record.key_start * SEGMENTS)
        return max((end for start, end in self.stalls[where] if start <= now_ms < end), default=now_ms)

    def _grow(self) -> None:
        active = [self._create(0, 0, each / SEGMENTS, (each + 1) / SEGMENTS) for each in range(SEGMENTS)]
        bounds = [*range(0, self.end_ms, SCALE_MS), self.end_ms + 1]
        for epoch, (start, end) in enumerate(itertools.pairwise(bounds)):
            if epoch:
                active = self._scale(active, epoch, start)
            first, last = np.searchsorted(self.times_ms, [start, end])
            self._give(active, slice(int(first), int(last)))

    def _give(self, active: list[WorldSegment], chosen: slice) -> None:
        owners = np.searchsorted([each.record.key_start for each in active], self.keys[chosen], side="right") - 1
        for place, each in enumerate(active):
            each.numbers = np.concatenate((each.numbers, np.flatnonzero(owners == place) + chosen.start))
            each.times_ms = self.times_ms[each.numbers]
            each.offsets = np.arange(len(each.numbers) + 1)

    def _scale(self, active: list[WorldSegment], epoch: int, now_ms: int) -> list[WorldSegment]:
        recent = np.array([np.count_nonzero(each.times_ms >= now_ms - SCALE_MS) for each in active])
        hot = int(recent.argmax())
        pairs = recent[:-1] + recent[1:]
        pairs[max(0, hot - 1) : hot + 1] = self.records + 1
        cold = int(pairs.argmin())
        middle = (active[hot].record.key_start + active[hot].record.key_end) / 2
        left = self._create(epoch, now_ms, active[hot].record.key_start, middle)
        right = self._create(epoch, now_ms, middle, active[hot].record.key_end)
        merged = self._create(epoch, now_ms, active[cold].record.key_start, active[cold + 1].record.key_end)
        for sealed, following in ((active[hot], [left, right]), (active[cold], [merged]), (active[cold + 1], [merged])):
            sealed.sealed_ms, sealed.following = now_ms, [each.record for each in following]
        kept = [each for each in active if each.sealed_ms is None]
        return sorted([*kept, left, right, merged], key=lambda each: each.record.key_start)

    def _create(self, epoch: int, now_ms: int, start: float, end: float) -> WorldSegment:
        segment = WorldSegment(SegmentRecord(make_id(epoch, next(self._number)), now_ms, start, end))
        self.segments[segment.record.id] = segment
        return segment


def latencies_ms(seed: int, segment_id: int) -> Iterator[float]:
    """How long the first request for a segment takes, the second one, and so on."""
    chance = np.random.default_rng([seed, segment_id])
    while True:
        yield from (LATENCY_MS * np.exp(LATENCY_SIGMA * chance.standard_normal(64))).tolist()


def _batch(segment: WorldSegment, offset: int) -> EventBatch:
    value = int(segment.times_ms[offset])
    return EventBatch(segment.record.id, value, segment.offsets[offset : offset + 2], _PAYLOAD, _BOUNDS)


def _windows(
    chance: np.random.Generator, end_ms: int, each_ms: int, length_ms: tuple[int, int]
) -> Iterator[tuple[float, float]]:
    at = chance.exponential(each_ms)
    while at < end_ms:
        length = chance.uniform(*length_ms)
        yield at, at + length
        at += length + chance.exponential(each_ms)


def _arrivals(chance: np.random.Generator, rate: float, end_ms: int) -> Integers:
    times = [chance.uniform(0, end_ms, chance.poisson(rate * end_ms / 1000))]
    for start, end in _windows(chance, end_ms, BURST_EACH_MS, BURST_MS):
        more = (BURST_FACTOR - 1) * rate * (end - start) / 1000
        times.append(chance.uniform(start, min(end, end_ms), chance.poisson(more)))
    all_times = np.concatenate(times)
    for start, end in _windows(chance, end_ms, WRITE_STALL_EACH_MS, WRITE_STALL_MS):
        all_times[(all_times >= start) & (all_times < end)] = min(end, end_ms)
    return np.sort(all_times).astype(np.int64)
