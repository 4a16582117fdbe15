"""Streams that grew at random, and readers that are somewhere in them, for properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

import hypothesis.strategies as st

from accel.history.rules.epochs import EpochRecord
from accel.history.rules.scaling import ScaleRequest
from accel.history.rules.segments import KeyRanges, split_range
from tests.accel.history.rules.naive import Reader
from tests.accel.history.rules.world import World

SIZE_MAX = 9


@dataclass
class Stream:
    """A stream, all of its epochs, and how large each of its segments is."""

    world: World
    sizes: Mapping[int, int]

    @property
    def records(self) -> list[EpochRecord]:
        return [self.world.epoch(number) for number in range(self.world.current.epoch + 1)]

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


def grown(random: Random, changes: int, chunk_size: int) -> Stream:
    """A stream that was scaled, and to which transactions were committed, at random."""
    world = World(chunk_size, shard_size=random.choice([1, 2, 1000]))
    world.initialize(random.randint(1, 3), 1000, min_segments=1)
    sizes: dict[int, int] = {}
    waiting = []
    for step in range(changes):
        chosen = random.random()
        if chosen < 0.25:
            waiting.append(world.create_transaction())
        elif chosen < 0.45 and waiting:
            world.seal_transaction(waiting.pop(0), commit=True)
            after = world.current.epoch
            _draw_sizes(random, sizes, world.current)
            drawn = {each << 32 | number: random.randint(0, SIZE_MAX) for each in (after + 1,) for number in range(200)}
            world.commit(1000 + step, drawn, sizes)
            if world.current.epoch > after:
                sizes |= {each: drawn[each] for each in world.epoch(after + 1).segments.ids.tolist()}
        else:
            _draw_sizes(random, sizes, world.current)
            world.scale(some_scale(random, world.current, 1000 + step), sizes)
    _draw_sizes(random, sizes, world.current)
    return Stream(world, sizes)


def some_scale(random: Random, current: EpochRecord, time_ms: int) -> ScaleRequest:
    """Neighbours of the current epoch, replaced by one to three parts."""
    tiles = sorted(current.segments, key=lambda each: each.key_start)
    first = random.randrange(len(tiles))
    sealed = tiles[first : first + random.randint(1, 3)]
    parts = split_range(sealed[0].key_start, sealed[-1].key_end, random.randint(1, 3))
    return ScaleRequest(tuple(each.id for each in sealed), parts, time_ms)


def whole(current: EpochRecord, count: int, time_ms: int) -> ScaleRequest:
    """All segments, replaced by equal parts of the key space."""
    ranges = split_range(0.0, 1.0, count)
    return ScaleRequest(tuple(current.segments.ids.tolist()), KeyRanges(ranges.starts, ranges.ends), time_ms)


def _draw_sizes(random: Random, sizes: dict[int, int], current: EpochRecord) -> None:
    for each in current.segments.ids.tolist():
        sizes.setdefault(each, random.randint(0, SIZE_MAX))


@st.composite
def streams(draw: st.DrawFn, changes_max: int = 9) -> tuple[Stream, Random]:
    """A stream, and the source of chance that goes on with it."""
    random = draw(st.randoms(use_true_random=False))
    chunk_size = draw(st.sampled_from([1, 2, 3, 1000]))
    return grown(random, draw(st.integers(0, changes_max)), chunk_size), random
