"""A stream through many sessions: whatever happens between, what was made durable is there once and in order."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from uuid import UUID

import pytest

from accel.streams.settings import SegmentsSettings, StreamWriterSettings
from accel.streams.writer import StreamWriter
from tests.accel.streams.writer.world import MOVES, Process, World
from tests.examples import examples

KEYS = 7
SETTINGS = StreamWriterSettings(batch_events_max=4)
BOUNDS = SegmentsSettings(batch_bytes=300)


@pytest.fixture(autouse=True)
def _appends_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accel.streams.writer.BATCH_BYTES_MAX", 60)


class Life:
    """One stream, its processes, and what must be found in it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.world = World()
        self.world.create()
        self.number = 0
        self.durable: list[int] = []
        self.waiting: list[int] = []
        self.open: dict[UUID, list[int]] = {}
        self.start()

    def start(self) -> None:
        self.process: Process = self.world.start(settings=BOUNDS, moves=MOVES)
        self.process.stream().recover()
        self.writer: StreamWriter = self.process.writer(SETTINGS)

    def write(self) -> None:
        for _ in range(self.chance.randint(1, 9)):
            self.waiting.append(self.number)
            self.writer.write(*self.event())

    def write_many(self) -> None:
        numbers = range(self.number, self.number + self.chance.randint(0, 9))
        self.writer.write_many([self.event() for _ in numbers])
        self.waiting.extend(numbers)

    def flush(self) -> None:
        self.writer.flush()
        self.durable += self.waiting
        self.waiting = []

    def begin(self) -> None:
        self.open[self.writer.begin_transaction()] = []

    def write_to_transaction(self) -> None:
        for transaction, numbers in self.open.items():
            numbers.append(self.number)
            self.writer.write(*self.event(), transaction=transaction)

    def commit(self) -> None:
        for transaction in list(self.open)[:1]:
            self.writer.commit_transaction(transaction)
            self.durable += self.waiting + self.open.pop(transaction)
            self.waiting = []

    def abort(self) -> None:
        for transaction in list(self.open)[:1]:
            self.writer.abort_transaction(transaction)
            self.open.pop(transaction)

    def scale(self) -> None:
        stream = self.process.stream()
        segments = stream.active_segments()
        chosen = self.chance.choice(list(segments))
        middle = (chosen.key_start + chosen.key_end) / 2
        split = [(chosen.key_start, middle), (middle, chosen.key_end)]
        if len(segments) < 5:
            stream.scale([chosen.id], split)
        else:
            stream.scale(segments.ids.tolist(), [(0.0, 1.0)])

    def restart(self) -> None:
        self.process.die()
        self.waiting, self.open = [], {}
        self.world.seconds += 100
        self.start()

    def close(self) -> None:
        self.flush()
        self.process.host.close()
        self.restart()

    def event(self) -> tuple[bytes, bytes]:
        self.number += 1
        self.world.seconds += 0.01
        return b"%d" % (self.number - 1), b"key-%d" % ((self.number - 1) % KEYS)

    def live(self, steps: int) -> None:
        acts = [self.write, self.write_many, self.flush, self.begin, self.write_to_transaction]
        for _ in range(steps):
            self.chance.choice([*acts, *acts, self.commit, self.abort, self.scale, self.restart, self.close])()
        self.flush()
        self.process.die()


@pytest.mark.parametrize("seed", range(examples(12)))
def test_what_is_durable_is_there_once_whatever_came_between(seed: int) -> None:
    life = Life(seed)
    life.live(60)
    batches = life.world.batches()
    numbers = [int(event.payload) for each in batches.values() for batch in each for event in batch]
    counts = Counter(numbers)
    assert [each for each in life.durable if counts[each] != 1] == []
    assert max(counts.values()) == 1
    life.world.check_times()


@pytest.mark.parametrize("seed", range(100, 100 + examples(6)))
def test_without_transactions_each_key_stays_in_order(seed: int) -> None:
    life = Life(seed)
    life.begin = life.commit = life.abort = life.write  # type: ignore[method-assign]  # only plain events
    life.live(60)
    found: dict[int, list[int]] = defaultdict(list)
    for _, batches in sorted(life.world.batches().items()):
        for event in (event for batch in batches for event in batch):
            found[int(event.payload) % KEYS].append(int(event.payload))
    assert all(numbers == sorted(set(numbers)) for numbers in found.values())
