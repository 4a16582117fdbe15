"""Hints never change an answer: whatever is known, stale or forgotten, every policy answers as a plain scan does."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.errors import InvalidRequest
from accel.image import MetadataImage, ObjectRef
from accel.lookup.answer import Request
from accel.lookup.index_cache import SharedIndexCache
from accel.settings import Settings
from loaders.plan import LoadAll, Policy, Spread, Window, WindowPreload
from tests.accel.lookup.commit_facts import with_facts
from tests.accel.lookup.driving import Clock, Driver, index_cache, look_up, ranges_of
from tests.examples import examples
from tests.models.plain_scan import Scanned, plain_scan
from tests.models.worlds import World, grow_world, with_ties, worlds

POLICIES: list[Policy] = [
    LoadAll(),
    Window(1),
    Window(2),
    Window(5),
    WindowPreload(2),
    Spread(),
    Spread(2, 4),
    Spread(1, 1),
]

TINY = Settings(view_size_bytes_max=200, object_index_size_bytes_max=700, filter_size_bytes_max=2000, hashed_ids_max=4)
ROOMY = Settings(hashed_ids_max=64)


def queries_of(world: World, rng: random.Random, count: int) -> list[tuple[int, int, int, int]]:
    ends = world.stream_ends()
    made = []
    for _ in range(count):
        stream = rng.choice(world.metadata["streams"])
        last = max(ends.get(stream["stream_id"], 0), stream["start_offset"])
        start = rng.randint(stream["start_offset"], last + 2)
        end = rng.choice([-1, start, rng.randint(start, last + 10)])
        made.append((stream["stream_id"], start, end, rng.choice([1, 2, 4, 100])))
    return made


def check(image: MetadataImage, world: World, driver: Driver, policy: Policy, query: tuple[int, int, int, int]) -> None:
    expected = plain_scan(world.metadata, world.contents, query)
    assert ask(image, driver, policy, query) == expected


def ask(image: MetadataImage, driver: Driver, policy: Policy, query: tuple[int, int, int, int]) -> Scanned:
    try:
        answer = look_up(image, driver, Request(*query), policy=policy)
    except InvalidRequest:
        return Scanned("invalid", [])
    return Scanned("ok", [(each.kind.value, each.object_id, each.start, each.end) for each in answer.objects])


def stir(known: SharedIndexCache, world: World, driver: Driver, clock: Clock, rng: random.Random) -> None:
    """Let some hints be known, some stale, some expire, some be evicted."""
    listed = [
        (node["node_id"], each["object_id"]) for node in world.metadata["nodes"] for each in node["stream_set_objects"]
    ]
    for node_id, object_id in rng.sample(listed, rng.randint(0, len(listed))):
        if rng.random() < 0.5:
            known.learn(node_id, ObjectRef(object_id), driver.contents[object_id])
        else:
            hint(known, world, node_id, object_id)
    for (node_id, stream_id), entries in world.stale.items():
        if rng.random() < 0.7:
            starts, ends, ids = zip(*entries, strict=True)
            known.add_entries(node_id, stream_id, starts, ends, ids)
    if rng.random() < 0.2:
        clock.seconds += rng.choice([1, 500, 700])
    if listed and rng.random() < 0.2:
        node_id, object_id = rng.choice(listed)
        known.forget(node_id, [object_id])


def hint(known: SharedIndexCache, world: World, node_id: int, object_id: int) -> None:
    for stream_id, (start, end) in world.contents[object_id].items():
        if stream_id not in world.gaps[object_id]:
            known.add_entries(node_id, stream_id, [start], [end], [object_id])


@settings(max_examples=examples(600))
@given(worlds(), st.integers(0, 2**32), st.booleans(), st.sampled_from([ROOMY, TINY]))
def test_every_policy_answers_as_a_plain_scan_does(world: World, seed: int, has_ties: bool, bounds: Settings) -> None:
    """Also where commits told what objects lack, and where objects of one order id stand in the order of a broker."""
    rng = random.Random(seed)
    world = with_ties(world, rng) if has_ties else world
    contents = ranges_of(world)
    image = MetadataImage.from_dict(world.metadata)
    if rng.random() < 0.3:
        image = with_facts(image, contents, rng)
    clock = Clock()
    for policy in rng.sample(POLICIES, 3):
        known = index_cache(bounds, clock)
        driver = Driver(contents, known)
        for query in queries_of(world, rng, 3):
            if rng.random() < 0.5:
                stir(known, world, driver, clock, rng)
            check(image, world, driver, policy, query)


@settings(max_examples=examples(80))
@given(worlds(steps_max=25, nodes_max=2), st.integers(0, 2**32))
def test_a_stream_that_breaks_the_order_of_its_list_is_scanned_when_the_image_says_so(world: World, seed: int) -> None:
    rng = random.Random(seed)
    for node in world.metadata["nodes"]:
        rng.shuffle(node["stream_set_objects"])
        for order, each in enumerate(node["stream_set_objects"]):
            each["order_id"] = order
    streams = [stream["stream_id"] for stream in world.metadata["streams"]]
    image = MetadataImage.from_dict({**world.metadata, "unordered_streams": streams})
    driver = Driver(ranges_of(world), index_cache())
    for query in queries_of(world, rng, 4):
        check(image, world, driver, rng.choice(POLICIES), query)


@settings(max_examples=examples(80))
@given(worlds(steps_max=25), worlds(steps_max=25), st.integers(0, 2**32))
def test_what_was_learnt_of_one_image_changes_no_answer_of_another(one: World, other: World, seed: int) -> None:
    """Two unrelated worlds share nodes, streams and a cache; their object ids are kept apart, as ids never return."""
    rng = random.Random(seed)
    moved = {object_id: object_id + 100_000 for object_id in other.contents}
    for node in other.metadata["nodes"]:
        for each in node["stream_set_objects"]:
            each["object_id"] = moved[each["object_id"]]
    other.contents = {moved[object_id]: held for object_id, held in other.contents.items()}
    other.gaps = {moved[object_id]: gaps for object_id, gaps in other.gaps.items()}
    known = index_cache()
    driver = Driver(ranges_of(one) | ranges_of(other), known)
    images = [(one, MetadataImage.from_dict(one.metadata)), (other, MetadataImage.from_dict(other.metadata))]
    for _ in range(6):
        world, image = rng.choice(images)
        for query in queries_of(world, rng, 1):
            check(image, world, driver, rng.choice(POLICIES), query)


@settings(max_examples=examples(120))
@given(worlds(), st.integers(0, 2**32), st.integers(0, 3))
def test_a_bounded_answer_is_a_true_beginning_and_can_be_resumed(world: World, seed: int, rounds: int) -> None:
    rng = random.Random(seed)
    image = MetadataImage.from_dict(world.metadata)
    for query in queries_of(world, rng, 2):
        driver = Driver(ranges_of(world), index_cache())
        stream_id, start, end, limit = query
        whole = plain_scan(world.metadata, world.contents, query)
        taken: list[tuple[str, int, int, int]] = []
        for _ in range(200):
            request = Request(stream_id, start, end, limit - len(taken), max_fill_rounds=rounds)
            answer = look_up(image, driver, request, policy=Spread(1, 1))
            taken += [(each.kind.value, each.object_id, each.start, each.end) for each in answer.objects]
            if not answer.partial:
                break
            start = answer.resume_offset
        prefix = whole.objects[: len(taken)]
        assert taken[: len(prefix)] == prefix  # asking again may go past a blocked start, never elsewhere
        assert len(taken) >= len(whole.objects)


@pytest.mark.parametrize("seed", range(3))
def test_a_world_is_what_it_says(seed: int) -> None:
    """The model's own promise: through a node's list the offsets of each stream ascend without overlap."""
    world = grow_world(seed, steps=40, streams=4, nodes=3)
    for node in world.metadata["nodes"]:
        reached: dict[int, int] = {}
        for each in sorted(node["stream_set_objects"], key=lambda one: one["order_id"]):
            for stream_id, (start, end) in world.contents[each["object_id"]].items():
                assert reached.get(stream_id, 0) <= start < end
                reached[stream_id] = end
