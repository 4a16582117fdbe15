"""Rounds of which only a part has come: no order, delay or number of replies changes an answer or adds requests."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from accel import Ending, MetadataImage, ReadAccelerator, Settings, StaticImages
from accel.lookup.answer import Answer, Request
from accel.lookup.known_ranges import KnownRanges
from accel.lookup.search import search
from accel.lookup.search_requests import (
    AwaitMore,
    OpenObjects,
    ReadEntries,
    ReadFilters,
    ReadRoot,
    Reply,
    Searching,
    Sent,
)
from loaders.layout import ObjectLayout
from loaders.plan import Policy, Spread, Window, WindowPreload, in_run
from loaders.store import MemoryStore
from tests.accel.lookup.cluster import BOTH_DRIVERS, STREAM, line_image, line_store
from tests.accel.lookup.driving import Driver, index_cache, look_up, ranges_of
from tests.accel.lookup.hinting import HintedDriver, Mischief, give_sizes
from tests.accel.lookup.test_search_property import POLICIES, queries_of
from tests.examples import examples
from tests.models.plain_scan import plain_scan
from tests.models.worlds import World, grow_world, worlds
from tests.world import Watched

Objects = list[tuple[str, int, int, int]]


class Straggling:
    """Answers steps with some of what was asked for, in any order, or says that it is slow."""

    def __init__(self, driver: Driver, rng: random.Random, *, slow_share: float = 0.2) -> None:
        self.driver = driver
        self.rng = rng
        self.slow_share = slow_share
        self.under_way: dict[int, Reply] = {}
        self.hint: OpenObjects | None = None
        self.node: object = None
        self.asked: list[int] = []

    def run(self, steps: Searching[Answer]) -> Answer:
        sent: Sent = None
        try:
            while True:
                sent = self.answer(steps.send(sent))
        except StopIteration as stop:
            answer: Answer = stop.value
            return answer

    def answer(self, step: OpenObjects) -> Sent:
        if step.node is not self.node:
            self.node, self.under_way, self.hint = step.node, {}, None
        if isinstance(step, AwaitMore):
            assert not step.positions
        self.asked += [ref.object_id for ref in step.refs()]
        self.under_way |= self.driver.replies(step)
        if isinstance(step, ReadRoot | ReadEntries | ReadFilters):
            self.hint = step
        assert self.under_way or self.hint is not None, "it waits for nothing"
        if self.rng.random() < self.slow_share:
            return {}
        count = self.rng.randint(0 if self.hint is not None else 1, len(self.under_way)) if self.under_way else 0
        came = {at: self.under_way.pop(at) for at in self.rng.sample(sorted(self.under_way), count)}
        if self.hint is not None and (not came or self.rng.random() < 0.5):
            step, self.hint = self.hint, None
            return self._hint_of(step, came)
        return came

    def _hint_of(self, step: OpenObjects, came: dict[int, Reply]) -> Sent:
        assert isinstance(self.driver, HintedDriver)
        if isinstance(step, ReadEntries):
            return self.driver.loader.read_entries(step).result.result().beside(came)
        if isinstance(step, ReadFilters):
            return self.driver.load_filters(step).beside(came)
        return self.driver.loader.read_root(step.node.node_id).result.result().beside(came)


def objects_of(answer: Answer) -> Objects:
    return [(each.kind.value, each.object_id, each.start, each.end) for each in answer.objects]


@settings(max_examples=examples(100))
@given(worlds(steps_max=40), st.integers(0, 2**32), st.sampled_from(POLICIES))
def test_whatever_has_come_of_a_round_the_answer_is_that_of_a_plain_scan(
    world: World, seed: int, policy: Policy
) -> None:
    rng = random.Random(seed)
    image, contents = MetadataImage.from_dict(world.metadata), ranges_of(world)
    for query in queries_of(world, rng, 4):
        expected = plain_scan(world.metadata, world.contents, query)
        if expected.status == "invalid":
            continue
        driver = Driver(contents, index_cache() if rng.random() < 0.5 else None)
        late = Straggling(driver, rng)
        steps = search(Request(*query), image, driver.known or index_cache(), policy)
        assert objects_of(late.run(steps)) == expected.objects
        if driver.known is not None:
            assert len(late.asked) == len(set(late.asked)), "what is remembered is not asked for twice"


@settings(max_examples=examples(60))
@given(worlds(steps_max=40), st.integers(0, 2**32))
def test_hints_that_come_before_or_after_objects_change_no_answer(world: World, seed: int) -> None:
    rng = random.Random(seed)
    give_sizes(world, rng)
    image = MetadataImage.from_dict(world.metadata)
    store = MemoryStore()
    Mischief(world, store, rng).play()
    for query in queries_of(world, rng, 3):
        expected = plain_scan(world.metadata, world.contents, query)
        if expected.status == "invalid":
            continue
        driver = HintedDriver(ranges_of(world), index_cache(), store=store, image=image)
        assert driver.known is not None
        steps = search(Request(*query), image, driver.known, Spread(2, 4), hints=driver.hints)
        assert objects_of(Straggling(driver, rng).run(steps)) == expected.objects


@pytest.mark.parametrize("policy", [Spread(), Spread(2, 4), WindowPreload(2), Window()], ids=str)
def test_replies_that_straggle_cost_no_more_requests_than_whole_rounds(policy: Policy) -> None:
    asked = whole = 0
    for seed in range(examples(60)):
        rng = random.Random(seed)
        world = grow_world(seed, steps=rng.randint(1, 40), streams=rng.randint(1, 4), nodes=rng.randint(1, 3))
        image, contents = MetadataImage.from_dict(world.metadata), ranges_of(world)
        for stream_id, start, end, _ in queries_of(world, rng, 3):
            query = (stream_id, start, end, 4)  # a scan asks ahead: another rule, and another test
            if plain_scan(world.metadata, world.contents, query).status == "invalid":
                continue
            driver = Driver(contents)
            look_up(image, driver, Request(*query), policy=policy)
            late = Straggling(Driver(contents), rng, slow_share=0.0)
            late.run(search(Request(*query), image, index_cache(), policy))
            asked, whole = asked + len(late.asked), whole + driver.gets
    # In all: what comes first may make the next round another one, which in a rare world costs more.
    assert asked <= whole > 0


# -- scans -------------------------------------------------------------------------------------------------------------


def dense(count: int) -> tuple[MetadataImage, Driver]:
    rows = {each: {STREAM: (each * 10, each * 10 + 10)} for each in range(count)}
    world = World({}, rows, {each: {} for each in rows})
    return line_image(list(range(count)), end=-1), Driver(ranges_of(world), index_cache())


def test_a_scan_that_has_proven_to_be_one_opens_more_a_round() -> None:
    image, driver = dense(1000)
    answer = look_up(image, driver, Request(STREAM, 0, -1, 1000))
    assert len(answer.objects) == 1000
    assert driver.gets == 1000
    assert [len(opened) for opened in driver.opened][:5] == [8, 12, 64, 64, 64]
    assert len(driver.opened) <= 20


def test_a_scan_asks_for_no_more_than_it_wants() -> None:
    image, driver = dense(1000)
    look_up(image, driver, Request(STREAM, 0, -1, 100))
    assert driver.gets <= 110
    image, driver = dense(1000)
    look_up(image, driver, Request(STREAM, 0, 1500, 1000))
    assert driver.gets <= 160


def test_a_scan_keeps_objects_under_way_while_it_waits_for_the_next_one() -> None:
    image, driver = dense(1000)
    driver.known = None  # what was asked for is known when it comes, and not before
    steps = search(Request(STREAM, 0, -1, 1000), image, index_cache(), Spread())
    waiting: dict[int, Reply] = {}
    sent: Sent = None
    most = least = 0
    found = None
    while found is None:
        try:
            step = steps.send(sent)
        except StopIteration as stop:
            found = stop.value
            continue
        waiting |= driver.replies(step)
        most = max(most, len(waiting))
        if step.positions and 300 <= step.positions[0] < 900:
            least = min(least or len(waiting), len(waiting))
        first = min(waiting)
        sent = {first: waiting.pop(first)}
    assert len(found.objects) == 1000
    assert found.objects_opened == 1000
    assert 64 <= least <= most <= 128


def test_a_slow_object_does_not_stop_a_young_scan() -> None:
    image, driver = dense(1000)
    late = Held(driver, 2)
    answer = late.run(search(Request(STREAM, 0, -1, 1000), image, index_cache(), Spread()))
    assert [each.object_id for each in answer.objects] == list(range(1000))
    assert late.asked_by_then >= 8 + 12
    assert len(late.asked) == 1000


class Held(Straggling):
    """Answers in any order, and one object only when nothing else is under way."""

    def __init__(self, driver: Driver, slow: int) -> None:
        super().__init__(driver, random.Random(slow), slow_share=0.0)
        self.slow = slow
        self.asked_by_then = 0

    def answer(self, step: OpenObjects) -> Sent:
        self.asked += [ref.object_id for ref in step.refs()]
        self.under_way |= self.driver.replies(step)
        rest = sorted(self.under_way.keys() - {self.slow})
        chosen = self.rng.choice(rest) if rest else self.slow
        if chosen == self.slow:
            self.asked_by_then = len(self.asked)
        return {chosen: self.under_way.pop(chosen)}


@settings(max_examples=examples(100))
@given(st.lists(st.sampled_from("hhhhp.ug"), min_size=1, max_size=40), st.data())
def test_a_run_goes_on_over_objects_under_way_and_ends_at_any_other_gap(kinds: list[str], data: st.DataObject) -> None:
    # h: holds the stream. p: is under way and holds some. u: the same, not asked for. g: lacks some. Others: lack none.
    rows, offset = [], 0
    for position, kind in enumerate(kinds):
        if kind == "h":
            rows.append((offset, offset + 10, position))
        offset += {"h": 10, "p": 10, "u": 5, "g": 1}.get(kind, 0)
    assume(rows)
    chosen = data.draw(st.integers(0, len(rows) - 1))
    gaps = [kinds[a[2] : b[2]] for a, b in pairwise(rows)]
    lost = ["u" in gap or ("g" in gap and "p" not in gap) for gap in gaps]
    first = max((at + 1 for at in range(chosen) if lost[at]), default=0)
    last = min((at for at in range(chosen, len(lost)) if lost[at]), default=len(rows) - 1)
    between = kinds[rows[first][2] : rows[last][2] + 1]
    known = known_ranges(rows, [kind in "pu" for kind in kinds])
    run = known.run_to(rows[chosen][1], np.array([kind == "p" for kind in kinds]))
    assert run == (between.count("h") + between.count("p"), len(between), rows[last][1] - rows[first][0])


def known_ranges(rows: list[tuple[int, int, int]], unknown: list[bool]) -> KnownRanges:
    starts, ends, positions = np.array(rows, dtype=np.int64).T
    return KnownRanges(starts, ends, positions, np.zeros(len(rows), dtype=np.bool_), np.array(unknown), ordered=True)


@pytest.mark.parametrize(
    ("objects", "positions", "wanted", "expected"),
    [(1, 1, 1000, 4), (10, 10, 1000, 40), (10, 10, 12, 12), (10, 100, 12, 120), (3, 30, 1000, 120), (10, 10, 8, 0)],
)
def test_a_run_asks_for_four_times_what_it_proved(objects: int, positions: int, wanted: int, expected: int) -> None:
    assert in_run(objects, positions, wanted) == expected


# -- over a store ------------------------------------------------------------------------------------------------------


@contextmanager
def stuck(
    object_id: int, policy: str, driver: Any = ReadAccelerator, **chosen: Any
) -> Iterator[tuple[threading.Event, ReadAccelerator]]:
    """A lookup for which requests for one object hang until they are let go."""
    go, key = threading.Event(), ObjectLayout().object_key(object_id)
    store = Watched(line_store(60), lambda call: call.key == key and go.wait(20))
    one = driver(
        StaticImages(line_image(list(range(60)))), store, settings=Settings(policy=policy, hashed_ids_max=64, **chosen)
    )
    try:
        yield go, one
    finally:
        go.set()
        one.close()


@BOTH_DRIVERS
@pytest.mark.parametrize("policy", ["spread", "window+preload", "load-all"])
def test_an_answer_does_not_wait_for_an_object_that_it_does_not_need(policy: str, driver: Any) -> None:
    with stuck(46, policy, driver) as (go, one):
        answer = one.get_objects(STREAM, 5, 15)
        assert ([each.object_id for each in answer.objects], answer.ending) == ([0, 1], Ending.END)
        assert not go.is_set()


def test_a_slow_object_that_others_may_stand_in_for_is_not_waited_for() -> None:
    with stuck(26, "spread", max_wait_load_seconds=0.05) as (_, one):
        answer = one.get_objects(STREAM, 285, limit=1)  # object 26 bounds the bracket, and another one can
        assert [each.object_id for each in answer.objects] == [28]


@BOTH_DRIVERS
def test_a_deadline_gives_what_is_proven_by_then_and_where_to_go_on(driver: Any) -> None:
    with stuck(12, "load-all", driver) as (go, one):
        answer = one.get_objects(STREAM, 0, limit=100, deadline_seconds=0.5)
        assert answer.ending is Ending.PARTIAL
        assert [each.object_id for each in answer.objects] == list(range(12))
        assert answer.resume_offset == 120
        go.set()
        rest = one.get_objects(STREAM, answer.resume_offset, limit=100)
        assert [each.object_id for each in rest.objects] == list(range(12, 60))
