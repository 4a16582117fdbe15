"""Streams that are made by the rules alone, epoch by epoch in memory, and readers that are somewhere in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random

import hypothesis.strategies as st

from accel.errors import NotInHistory
from accel.history.rules import cuts, epochs, retention, scaling
from accel.history.rules.cuts import PlacedCut
from accel.history.rules.epochs import NO_TRANSITION, EpochRecord, HistoryChunk
from accel.history.rules.scaling import ScaleRequest
from accel.history.rules.segments import Segments, split_range
from accel.history.rules.states import StreamState, first_epoch
from accel.history.rules.transactions import needs_rolling, repeat_active_epoch, repeat_transaction_epoch
from accel.history.rules.values import IdMap, Integers, parse_segment
from tests.accel.history.rules.naive import Reader

SIZE_MAX = 9


@dataclass
class Stream:
    """All epochs of a stream, and how large each of its segments is."""

    records: list[EpochRecord]
    chunk_size: int = 1000
    sizes: dict[int, int] = field(default_factory=dict)

    @property
    def current(self) -> EpochRecord:
        return self.records[-1]

    def scale(self, request: ScaleRequest) -> None:
        """Seal some segments, and create those that replace them."""
        transition = scaling.with_request(request, StreamState.ACTIVE, NO_TRANSITION, self.current, 1)
        self.records.append(scaling.scaled_epoch(transition, self.current))

    def commit(self, epoch: int, time_ms: int) -> None:
        """Commit transactions that began in an epoch: duplicates of it and of the current one, if these differ."""
        active, begun_in = self.current, self.epoch(epoch)
        if needs_rolling(active, begun_in):
            self.records.append(repeat_transaction_epoch(active, begun_in, time_ms))
            self.records.append(repeat_active_epoch(active, self.current))

    # Questions

    def epoch(self, number: int) -> EpochRecord:
        if number >= len(self.records):
            raise NotInHistory(f"expected an epoch of the stream, found {number}")
        return self.records[number]

    def chunks(self, low: int, high: int) -> Iterator[HistoryChunk]:
        for number in epochs.chunk_numbers(low, high, self.chunk_size):
            first = number * self.chunk_size
            held = self.records[first : first + self.chunk_size]
            if held:
                before = [self.records[first - 1] if first else None, *held]
                yield HistoryChunk.of(list(map(epochs.delta_of, held, before)))

    def walk(self, low: int, high: int) -> Iterator[EpochRecord]:
        return epochs.replay(self.epoch(low), self.chunks(low, high), self.epoch, high)

    def segments_of(self, low: int, high: int) -> Iterator[Segments]:
        return epochs.segments_of(self.epoch(low), self.chunks(low, high), self.epoch, high)

    def place(self, cut: Mapping[int, int]) -> PlacedCut:
        offsets = IdMap.of(cut)
        low, high = epochs.creation_epochs(offsets)
        return epochs.place(offsets, self.epoch(low), self.chunks(low, high), self.epoch)

    def is_valid(self, cut: Mapping[int, int]) -> bool:
        try:
            placed = self.place(cut)
        except NotInHistory:
            return False
        return cuts.is_valid(placed, self.segments_of(*epochs.creation_epochs(placed.cut)))

    def between(self, start: PlacedCut | None, end: PlacedCut | None) -> Iterator[Segments]:
        low = 0 if start is None else start.span.low
        high = self.current.epoch if end is None else end.span.high
        return cuts.between(self.segments_of(low, high), start, end)

    def size_between(self, start: Mapping[int, int], end: Mapping[int, int]) -> int:
        first, last = (self.place(each) if each else None for each in (start, end))
        return retention.size_between(self.between(first, last), IdMap.of(start), IdMap.of(end), self._sealed_sizes)

    def _sealed_sizes(self, ids: Integers) -> dict[int, int]:
        return {each: self.sizes[each] for each in ids.tolist() if self.current.find(each) is None}

    # Readers

    def reader(self) -> Reader:
        return Reader(self.records)

    def advance(self, reader: Reader, random: Random) -> None:
        """Read somewhat further."""
        for _ in range(random.randint(0, 4)):
            chosen = random.choice(reader.live())
            left = self.sizes[chosen] - reader.offsets[chosen]
            if random.random() < 0.6 and left >= 0:
                reader.read(chosen, left)
                if reader.finish(chosen):
                    continue
            elif left > 0:
                reader.read(chosen, random.randint(0, left))

    def read_by(self, reader: Reader) -> int:
        """How much a reader has read."""
        return sum(self.sizes[each] for each in reader.finished) + sum(max(each, 0) for each in reader.offsets.values())


def new(segments: int, chunk_size: int = 1000) -> Stream:
    """A stream that was created at 1000."""
    return Stream([first_epoch(segments, 1000)], chunk_size)


def by_id(values: Mapping[str, int]) -> dict[int, int]:
    """Numbers by segment id, from those by what people write."""
    return {parse_segment(each): value for each, value in values.items()}


def replacing(names: list[str], start: float, end: float, parts: int = 1, time_ms: int = 1001) -> ScaleRequest:
    """Segments that are replaced by equal parts of a range."""
    return ScaleRequest(tuple(map(parse_segment, names)), split_range(start, end, parts), time_ms)


def whole(current: EpochRecord, count: int, time_ms: int) -> ScaleRequest:
    """All segments, replaced by equal parts of the key space."""
    return ScaleRequest(tuple(current.segments.ids.tolist()), split_range(0.0, 1.0, count), time_ms)


def some_scale(random: Random, current: EpochRecord, time_ms: int) -> ScaleRequest:
    """Neighbours of the current epoch, replaced by one to three parts."""
    tiles = sorted(current.segments, key=lambda each: each.key_start)
    first = random.randrange(len(tiles))
    sealed = tiles[first : first + random.randint(1, 3)]
    parts = split_range(sealed[0].key_start, sealed[-1].key_end, random.randint(1, 3))
    return ScaleRequest(tuple(each.id for each in sealed), parts, time_ms)


@st.composite
def streams(draw: st.DrawFn, changes_max: int = 9) -> tuple[Stream, Random]:
    """A stream that was scaled and rolled at random, and the source of chance that goes on with it."""
    random = draw(st.randoms(use_true_random=False))
    stream = new(random.randint(1, 3), draw(st.sampled_from([1, 2, 3, 1000])))
    for time_ms in range(1000, 1000 + draw(st.integers(0, changes_max))):
        if random.random() < 0.3:
            begun_in = random.choice(stream.records).reference_epoch
            stream.commit(begun_in, time_ms)
        else:
            stream.scale(some_scale(random, stream.current, time_ms))
    known = {each for record in stream.records for each in record.segments.ids.tolist()}
    stream.sizes = {each: random.randint(0, SIZE_MAX) for each in sorted(known)}
    return stream, random
