"""A lookup that memory answers is over at once; so does it answer as one that opens everything."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.errors import InvalidRequest, UnknownStream
from accel.image import MetadataImage, ObjectRef
from accel.lookup.answer import Answer, Ending, Request
from accel.lookup.explain import Trace
from accel.lookup.index_cache import EmptyIndexCache, SharedIndexCache
from accel.lookup.lookup import begin, lookup
from accel.lookup.search_requests import Inputs, NeedImage
from accel.settings import Settings
from loaders.plan import LoadAll, Spread
from tests.accel.lookup.cluster import image_of
from tests.accel.lookup.driving import Clock, Driver, index_cache, look_up, make_ranges, ranges_of
from tests.accel.lookup.test_search_property import ROOMY, TINY, queries_of, stir
from tests.examples import examples
from tests.models.worlds import World, worlds

Query = tuple[int, int, int, int]


def inputs_of(known: SharedIndexCache, *, may_refresh: bool = False) -> Inputs:
    return Inputs(known, Spread(), str, lambda _: may_refresh)


def run(request: Request, image: MetadataImage, driver: Driver, known: SharedIndexCache, trace: Trace | None) -> Answer:
    begun = begin(request, image, inputs_of(known), trace)
    return begun if isinstance(begun, Answer) else driver.run(begun)  # type: ignore[arg-type]  # no image is asked for


def told(answer: Answer) -> tuple[object, ...]:
    return answer.objects, answer.ending, answer.resume_offset, answer.image_version, answer.request


def expected_of(image: MetadataImage, driver: Driver, query: Query) -> Answer | None:
    """What opening everything gives, with nothing known."""
    try:
        plain = Driver(driver.contents)
        return look_up(image, plain, Request(*query), policy=LoadAll(), hints=EmptyIndexCache())
    except InvalidRequest:
        return None


@settings(max_examples=examples(100))
@given(worlds(), st.integers(0, 2**32), st.sampled_from([ROOMY, TINY]))
def test_it_answers_as_opening_everything_does(world: World, seed: int, bounds: Settings) -> None:
    rng = random.Random(seed)
    image = MetadataImage.from_dict(world.metadata)
    clock = Clock()
    known = index_cache(bounds, clock)
    driver = Driver(ranges_of(world), known)
    for query in queries_of(world, rng, 4):
        stir(known, world, driver, clock, rng)
        expected = expected_of(image, driver, query)
        for trace in (None, Trace()):
            if expected is None:
                with pytest.raises(InvalidRequest):
                    begin(Request(*query), image, inputs_of(known), trace)
            else:
                assert told(run(Request(*query), image, driver, known, trace)) == told(expected)


def two_objects() -> tuple[MetadataImage, SharedIndexCache]:
    """Stream 7 in two objects of node 4, [0, 10) and [10, 20), both known; the image has no more."""
    image = image_of({7: (4, -1)}, {4: [1, 2]})
    known = index_cache()
    for number in (1, 2):
        known.add_entries(4, 7, [10 * number - 10], [10 * number], [number])
    return image, known


@pytest.mark.parametrize(
    ("start", "end", "limit", "ending", "object_ids"),
    [(0, -1, 2, Ending.LIMIT, [1, 2]), (0, 20, 4, Ending.END, [1, 2]), (5, 8, 4, Ending.END, [1])],
)
def test_what_memory_proves_is_answered_without_a_step(
    start: int, end: int, limit: int, ending: Ending, object_ids: list[int]
) -> None:
    image, known = two_objects()
    answer = begin(Request(7, start, end, limit), image, inputs_of(known))
    assert isinstance(answer, Answer)
    assert [each.object_id for each in answer.objects] == object_ids
    assert (answer.ending, answer.rounds, answer.objects_listed) == (ending, 0, 2)
    assert answer.objects[0].ref == ObjectRef(1)


def test_a_hole_that_memory_proves_is_believed_after_a_newer_image_was_asked_for() -> None:
    image, known = two_objects()
    for number in (1, 2):
        known.learn(4, ObjectRef(number), make_ranges([(7, 10 * number - 10, 10 * number)]))
    steps = begin(Request(7, 0, -1, 4), image, inputs_of(known, may_refresh=True))
    assert not isinstance(steps, Answer)
    assert next(steps) == NeedImage(image.version)
    with pytest.raises(StopIteration) as stopped:
        steps.send(None)
    assert stopped.value.value.ending is Ending.HOLE
    assert [each.object_id for each in stopped.value.value.objects] == [1, 2]


def test_an_offset_that_nobody_owns_is_a_hole_at_once_unless_a_newer_image_may_be_asked_for() -> None:
    image = MetadataImage.from_dict({"streams": [{"stream_id": 7, "start_offset": 0}], "nodes": []})
    at_once = begin(Request(7, 0), image, inputs_of(index_cache()))
    assert isinstance(at_once, Answer)
    assert (at_once.ending, at_once.objects) == (Ending.HOLE, ())
    steps = begin(Request(7, 0), image, inputs_of(index_cache(), may_refresh=True))
    assert not isinstance(steps, Answer)
    assert next(steps) == NeedImage(image.version)


def test_an_unknown_stream_is_refused_by_a_step_that_asks_for_a_newer_image() -> None:
    image, known = two_objects()
    steps = begin(Request(8, 0), image, inputs_of(known, may_refresh=True))
    assert not isinstance(steps, Answer)
    assert next(steps) == NeedImage(image.version)
    with pytest.raises(UnknownStream):
        steps.send(None)


def test_a_lookup_as_steps_answers_from_memory_without_asking() -> None:
    image, known = two_objects()
    with pytest.raises(StopIteration) as stopped:
        next(lookup(Request(7, 0, 20), image, inputs_of(known)))
    assert [each.object_id for each in stopped.value.value.objects] == [1, 2]
