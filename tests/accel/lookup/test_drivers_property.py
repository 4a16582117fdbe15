"""Both drivers as they are, over a store whose replies come in any order, late, or only when asked for twice.

Partial rounds, second requests, replies that come after their lookup has ended, deadlines, and what commits told of
objects: none of them changes an answer or a record.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel import Ending, MetadataImage, ReadAccelerator, Settings, StaticImages
from accel.lookup.answer import Answer
from loaders.store import ObjectStore, hedged
from loaders.store.decorated import Answer as Came
from loaders.store.decorated import DecoratedStore, StoreCall
from tests.accel.lookup.cluster import BOTH_DRIVERS, store_of, system
from tests.accel.lookup.commit_facts import with_facts
from tests.accel.lookup.driving import ranges_of
from tests.accel.lookup.test_search_property import queries_of
from tests.examples import examples
from tests.models.plain_scan import Scanned, plain_scan
from tests.models.worlds import World, grow_world, worlds

Query = tuple[int, int, int, int]
AT_ONCE: Final = 4
STUCK_MAX: Final = 2
DELAYS: Final = (0.0, 0.0, 0.0, 0.001, 0.003)


class Scheduled(DecoratedStore):
    """Replies come after drawn delays; a few never do while the test runs, but the second request for the same does."""

    def __init__(self, store: ObjectStore, rng: random.Random) -> None:
        super().__init__(store)
        self.rng = rng
        self.lock = threading.Lock()
        self.seen: set[str] = set()
        self.stuck = 0
        self.over = threading.Event()

    def _around(self, call: StoreCall, send: Callable[[], Came]) -> Came:
        with self.lock:
            delay = self.rng.choice(DELAYS)
            is_first = call.key not in self.seen
            self.seen.add(call.key)
            if is_first and len(self.seen) > 2 and self.stuck < STUCK_MAX and self.rng.random() < 0.2:
                self.stuck += 1
                delay = 0.1  # where no second request may be sent, it does come
        self.over.wait(delay)
        return send()


@dataclass(frozen=True)
class Bench:
    """A world in a store with a schedule, and what is to be asked of it."""

    world: World
    store: Scheduled
    image: MetadataImage
    settings: Settings
    rng: random.Random

    @contextmanager
    def accelerator(self, driver: Any = ReadAccelerator) -> Iterator[ReadAccelerator]:
        """An accelerator whose late requests are let go before it is closed."""
        with driver(StaticImages(self.image), self.store, settings=self.settings, system=system()) as one:
            yield one
            self.store.over.set()

    def queries(self, count: int) -> list[Query]:
        made = queries_of(self.world, self.rng, count)
        return [each for each in made if self.scan(each).status != "invalid"]

    def ranges(self, count: int) -> list[tuple[int, int, int]]:
        """Such to be read: stream, start, end; none of them empty."""
        return [(each[0], each[1], each[2]) for each in self.queries(count) if each[1] != each[2]]

    def scan(self, query: Query) -> Scanned:
        return plain_scan(self.world.metadata, self.world.contents, query)

    def check(self, query: Query, answer: Answer) -> None:
        """That the answer is the plain one, or a part of it that says where the rest begins."""
        expected = self.scan(query).objects
        found = [(each.kind.value, each.object_id, each.start, each.end) for each in answer.objects]
        if answer.ending is Ending.PARTIAL:
            assert found == expected[: len(found)]
            assert answer.resume_offset == (found[-1][3] if found else query[1])
        else:
            assert found == expected

    def spans(self, stream_id: int, start: int, end: int) -> list[tuple[int, int]]:
        """What a read gives."""
        return [(first, last) for _, _, first, last in self.scan((stream_id, start, end, 10_000)).objects]


@contextmanager
def benched(world: World, seed: int) -> Iterator[Bench]:
    rng = random.Random(seed)
    image = with_facts(MetadataImage.from_dict(world.metadata), ranges_of(world), rng)
    chosen = Settings(
        policy=rng.choice(["spread", "spread:2", "window:2", "window+preload:2", "load-all"]),
        max_wait_load_seconds=rng.choice([0.001, 0.5]),
        parallel_loads=rng.choice([2, 8]),
        hedge_percent=100,
        hashed_ids_max=64,
        filter_size_bytes_max=rng.choice([2000, 1 << 20]),
    )
    store = Scheduled(store_of(world), rng)
    with pytest.MonkeyPatch.context() as patch:  # second requests from the second read on
        patch.setattr(hedged.HedgedStore, "_note", noted)
        try:
            yield Bench(world, store, image, chosen, rng)
        finally:
            store.over.set()


def noted(store: hedged.HedgedStore, seconds: float) -> None:  # noqa: ARG001 - in place of a method
    """A read is sent again after 2 ms, whatever the others took."""
    store._after_seconds = 0.002  # the least that may be set is 50 ms: too long for a hundred worlds


def without_gaps(world: World) -> World:
    """The same, such that a read gives what a lookup finds."""
    for stream in world.metadata["streams"]:
        stream["stream_objects"] = []
    world.gaps = {object_id: {} for object_id in world.contents}
    return world


WORLDS = worlds(steps_max=25)
SEEDS = st.integers(0, 2**32)


@BOTH_DRIVERS
@settings(max_examples=examples(60), deadline=None)
@given(world=WORLDS, seed=SEEDS)
def test_lookups_answer_as_a_plain_scan_does(world: World, seed: int, driver: Any) -> None:
    with benched(world, seed) as bench, bench.accelerator(driver) as one, ThreadPoolExecutor(AT_ONCE) as callers:

        def ask(query: Query, deadline_seconds: float | None) -> None:
            bench.check(query, one.get_objects(*query, deadline_seconds=deadline_seconds))

        for query in bench.queries(3):
            ask(query, bench.rng.choice([None, None, 0.001]))
        for asked in [callers.submit(ask, query, None) for query in bench.queries(AT_ONCE)]:
            asked.result()


@BOTH_DRIVERS
@settings(max_examples=examples(40), deadline=None)
@given(world=WORLDS.map(without_gaps), seed=SEEDS)
def test_reads_give_what_a_plain_scan_finds(world: World, seed: int, driver: Any) -> None:
    with benched(world, seed) as bench, bench.accelerator(driver) as one:
        for stream_id, start, end in bench.ranges(2):
            read = [(each.base_offset, each.end_offset) for each in one.read(stream_id, start, end)]
            assert read == bench.spans(stream_id, start, end)


def test_the_schedule_makes_second_requests_win_and_lookups_end_before_their_replies() -> None:
    won = partial = 0
    for seed in range(12):
        world = without_gaps(grow_world(seed, steps=25, streams=3, nodes=2))
        with benched(world, seed) as bench, bench.accelerator() as one:
            for query in bench.queries(6):
                answer = one.get_objects(*query, deadline_seconds=0.002)
                partial += answer.ending is Ending.PARTIAL
            for stream_id, start, end in bench.ranges(3):
                list(one.read(stream_id, start, end))
            won += one.stats().hedging.won
    assert won > 0 < partial
