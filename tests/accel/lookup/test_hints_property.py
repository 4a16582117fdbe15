"""Hints of the bucket never change an answer: fresh, old, foreign, mixed up, damaged or missing ones."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import accel.lookup.node_visit
import accel.lookup.search
from accel import ReadAccelerator
from accel.errors import InvalidRequest
from accel.image import MetadataImage, make_node
from accel.lookup.answer import Request
from accel.lookup.explain import Trace
from accel.lookup.hints import HintStore
from accel.lookup.search import search
from accel.settings import Settings
from loaders.hints import plan_entries
from loaders.layout import ObjectLayout
from loaders.plan import Policy
from loaders.store import MemoryStore
from tests.accel.lookup.cluster import accelerator, store_of
from tests.accel.lookup.driving import Clock, index_cache, ranges_of
from tests.accel.lookup.hinting import HintedDriver, Mischief, give_sizes, put_real_hints
from tests.accel.lookup.test_search_property import POLICIES, ROOMY, TINY, queries_of, stir
from tests.examples import examples
from tests.models.plain_scan import Scanned, plain_scan
from tests.models.worlds import World, with_ties, worlds

FORGETFUL: Final = partial(HintStore, entries_size_bytes_max=700, roots_size_bytes_max=1)
"""Makes hints that keep next to nothing."""


@pytest.fixture(autouse=True)
def _hints_are_worth_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worlds are small, and yet their snapshots shall be asked."""
    monkeypatch.setattr(accel.lookup.search, "ROOT_WORTH_OBJECTS", 0)
    monkeypatch.setattr(accel.lookup.search, "ENTRIES_WORTH_OBJECTS", 1)
    monkeypatch.setattr(accel.lookup.node_visit, "FILTERS_WORTH_OBJECTS", 1)


def ask(
    image: MetadataImage, driver: HintedDriver, policy: Policy, query: tuple[int, int, int, int], trace: Trace | None
) -> Scanned:
    assert driver.known is not None
    try:
        steps = search(Request(*query), image, driver.known, policy, hints=driver.hints, trace=trace)
        answer = driver.run(steps)
    except InvalidRequest:
        return Scanned("invalid", [])
    return Scanned("ok", [(each.kind.value, each.object_id, each.start, each.end) for each in answer.objects])


def read_in_part(monkeypatch: pytest.MonkeyPatch, span_size_bytes_max: int) -> None:
    """Let streams count as too large to be read whole."""
    monkeypatch.setattr(
        accel.lookup.search, "plan_entries", partial(plan_entries, span_size_bytes_max=span_size_bytes_max)
    )


@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(worlds(), st.integers(0, 2**32), st.sampled_from([(ROOMY, HintStore), (TINY, HintStore), (ROOMY, FORGETFUL)]))
def test_whatever_lies_in_the_bucket_every_policy_answers_as_a_plain_scan_does(
    world: World, seed: int, bounds: tuple[Settings, Callable[..., HintStore]]
) -> None:
    rng = random.Random(seed)
    world = with_ties(world, rng) if rng.random() < 0.3 else world
    give_sizes(world, rng)
    image = MetadataImage.from_dict(world.metadata)
    clock, store = Clock(), MemoryStore()
    mischief = Mischief(world, store, rng)
    mischief.play()
    for policy in rng.sample(POLICIES, 2):
        known = index_cache(bounds[0], clock)
        driver = HintedDriver(ranges_of(world), known, store=store, make_hints=bounds[1], clock=clock, image=image)
        if rng.random() < 0.3:
            driver.warm(image)
        for query in queries_of(world, rng, 3):
            if rng.random() < 0.3:
                stir(known, world, driver, clock, rng)
            if rng.random() < 0.2:
                mischief.play()
                clock.seconds += rng.choice([0, 6, 61, 601])
            trace = Trace() if rng.random() < 0.3 else None
            assert ask(image, driver, policy, query, trace) == plain_scan(world.metadata, world.contents, query)


@settings(max_examples=examples(120), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(worlds(streams_max=2, nodes_max=2), st.integers(0, 2**32), st.sampled_from([1, 1_000, 2_000]))
def test_of_a_stream_that_is_read_in_part_only_what_was_read_is_believed(
    monkeypatch: pytest.MonkeyPatch, world: World, seed: int, span_size_bytes_max: int
) -> None:
    rng = random.Random(seed)
    read_in_part(monkeypatch, span_size_bytes_max)
    give_sizes(world, rng, unknown=0)
    image = MetadataImage.from_dict(world.metadata)
    store = MemoryStore()
    Mischief(world, store, rng).play(groups=(2,))
    driver = HintedDriver(ranges_of(world), index_cache(), store=store, image=image)
    for query in queries_of(world, rng, 6):
        policy = rng.choice(POLICIES)
        assert ask(image, driver, policy, query, None) == plain_scan(world.metadata, world.contents, query)


def give_true_sizes(world: World, store: MemoryStore) -> None:
    for node in world.metadata["nodes"]:
        for each in node["stream_set_objects"]:
            each["size"] = len(store.get(ObjectLayout().object_key(each["object_id"])).body)


def earlier(image: MetadataImage, rng: random.Random) -> MetadataImage:
    """An image of some of the objects."""
    nodes = {}
    for node_id, node in image.nodes.items():
        kept = [at for at in range(len(node)) if rng.random() < 0.8]
        nodes[node_id] = make_node(node_id, [(int(node.order_ids[at]), node.ref(at)) for at in kept])
    return replace(image, nodes={node_id: node for node_id, node in nodes.items() if len(node)})


def told(one: ReadAccelerator, stream_id: int, start: int, end: int, max_bytes: int) -> tuple[object, ...]:
    reading = one.read(stream_id, start, end, max_bytes=max_bytes)
    return list(reading), reading.ending, reading.next_offset


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(worlds(steps_max=30), st.integers(0, 2**32))
def test_lookups_and_reads_of_real_objects_are_the_same_with_hints_and_without(world: World, seed: int) -> None:
    rng = random.Random(seed)
    for stream in world.metadata["streams"]:
        stream["stream_objects"] = []  # these are not written here
    world = with_ties(world, rng) if rng.random() < 0.3 else world
    store = store_of(world)
    give_true_sizes(world, store)
    image = MetadataImage.from_dict(world.metadata)
    put_real_hints(store, image if rng.random() < 0.5 else earlier(image, rng))
    mischief = Mischief(world, store, rng)
    for _ in range(rng.choice([0, 0, 1, 3])):
        mischief.harm()
    with pytest.MonkeyPatch.context() as patch:
        if rng.random() < 0.3:
            patch.setattr("accel.lookup.engine.HintStore", FORGETFUL)
        hinted = accelerator(store, image)
    with hinted as one, accelerator(store, image, use_hints=False) as without:
        if rng.random() < 0.3:
            one.warm()
        for query in queries_of(world, rng, 4):
            assert one.get_objects(*query).objects == without.get_objects(*query).objects
            stream_id, start, end, _ = query
            budget = rng.choice([1, 15, 60, 1 << 20])
            assert told(one, stream_id, start, end, budget) == told(without, stream_id, start, end, budget)
