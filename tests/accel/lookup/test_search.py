"""The rules of the lookup, one by one, and how few objects a search opens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from accel.errors import AccessDenied, CorruptObject, InconsistentAnswer, InvalidRequest, KeyMissing
from accel.image import MetadataImage, ObjectRef
from accel.lookup.answer import Ending, Request
from accel.lookup.search import search
from accel.lookup.search_requests import ImageStale
from loaders.plan import LoadAll, Policy, Spread, Window
from range_index import ObjectRanges
from tests.accel.lookup.driving import Driver, index_cache, look_up, make_ranges

STREAM = 7


def image_of(
    objects: list[int],
    *,
    ranges: list[tuple[int, int, int]] | None = None,
    stream_objects: list[tuple[int, int, int]] | None = None,
    start_offset: int = 0,
    **more: Any,
) -> MetadataImage:
    """An image of node 1 with these objects in this order, and other nodes' objects in `more` as node_2=[...]."""
    owned = ranges or [(0, 10_000, 1)]
    stream = {
        "stream_id": STREAM,
        "start_offset": start_offset,
        "ranges": [
            {"range_index": number, "start": start, "end": end, "node_id": node}
            for number, (start, end, node) in enumerate(owned)
        ],
        "stream_objects": [
            {"object_id": each, "start": start, "end": end} for each, start, end in stream_objects or []
        ],
    }
    lists = {1: objects, **{int(name.removeprefix("node_")): listed for name, listed in more.items()}}
    nodes = [
        {
            "node_id": node,
            "stream_set_objects": [{"object_id": each, "order_id": order} for order, each in enumerate(listed)],
        }
        for node, listed in lists.items()
    ]
    return MetadataImage.from_dict({"streams": [stream], "nodes": nodes})


def holding(spans: dict[int, tuple[int, int] | None]) -> dict[int, ObjectRanges]:
    """What each object holds of the stream; None for nothing of it. Each holds another stream besides."""
    return {
        object_id: make_ranges([(1, 0, 1), *([(STREAM, *span)] if span else [])]) for object_id, span in spans.items()
    }


def ids(
    image: MetadataImage, contents: dict[int, ObjectRanges], start: int, end: int = -1, limit: int = 9, **how: Any
) -> list[int]:
    answer = look_up(image, Driver(contents, index_cache()), Request(STREAM, start, end, limit), **how)
    return [each.object_id for each in answer.objects]


def test_a_hole_is_never_jumped() -> None:
    contents = holding({10: (0, 5), 11: (6, 9)})
    answer = look_up(image_of([10, 11]), Driver(contents), Request(STREAM, 0, 9, 9))
    assert [each.object_id for each in answer.objects] == [10]
    assert answer.ending is Ending.HOLE
    assert answer.resume_offset == 5


def test_a_stream_object_fills_a_hole_of_the_list() -> None:
    contents = holding({10: (0, 5), 11: (6, 9)})
    assert ids(image_of([10, 11], stream_objects=[(99, 5, 6)]), contents, 0) == [10, 99, 11]


def test_stream_objects_come_first() -> None:
    contents = holding({10: (0, 5)})
    assert ids(image_of([10], stream_objects=[(99, 0, 5)]), contents, 0) == [99]


def test_only_the_first_pick_may_begin_before_the_offset() -> None:
    contents = holding({10: (3, 8)})
    image = image_of([10], stream_objects=[(99, 0, 5)])
    assert ids(image, contents, 0) == [99]
    assert ids(image, contents, 5) == [10]


def test_a_stream_that_moves_back_and_forth_is_followed() -> None:
    ranges = [(0, 5, 1), (5, 8, 2), (8, 10, 1)]
    contents = holding({10: (0, 5), 20: (5, 8), 11: (8, 10)})
    assert ids(image_of([10, 11], ranges=ranges, node_2=[20]), contents, 0) == [10, 20, 11]


def test_an_owner_without_a_list_ends_the_lookup() -> None:
    assert ids(image_of([], ranges=[(0, 5, 3), (5, 9, 1)]), {}, 0) == []


def test_a_range_that_nobody_owns_ends_the_lookup() -> None:
    contents = holding({10: (0, 5), 11: (7, 9)})
    assert ids(image_of([10, 11], ranges=[(0, 5, 1), (7, 9, 1)]), contents, 0) == [10]


def test_the_last_range_is_open_whatever_its_end_says() -> None:
    contents = holding({10: (0, 5), 11: (5, 900)})
    assert ids(image_of([10, 11], ranges=[(0, 5, 1)]), contents, 600) == [11]


def test_a_limit_of_zero_fails_if_there_is_something() -> None:
    contents = holding({10: (0, 5)})
    with pytest.raises(InconsistentAnswer, match="expected a limit of at least 1 where an object holds") as raised:
        ids(image_of([10]), contents, 0, limit=0)
    assert raised.value.advice == "ask with a limit of at least 1; nothing is damaged"
    assert ids(image_of([10]), contents, 5, limit=0) == []


def test_offsets_below_the_first_kept_one_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="at least 100"):
        look_up(image_of([10], start_offset=100), Driver({}), Request(STREAM, 99))


def test_known_neighbours_are_taken_without_opening_what_lies_between() -> None:
    contents = holding({each: (each, each + 1) for each in range(100)})
    known = index_cache()
    for each in (40, 41, 42):
        known.learn(1, ObjectRef(each), contents[each])
    driver = Driver(contents, known)
    answer = look_up(image_of(list(range(100))), driver, Request(STREAM, 40, 43, 4))
    assert [each.object_id for each in answer.objects] == [40, 41, 42]
    assert driver.opened == []


def test_what_is_known_of_overlapping_objects_is_taken_as_a_search_would() -> None:
    """Only the first pick may begin before the offset that is wanted: see "The rules of the answer"."""
    contents = holding({10: (0, 10), 11: (5, 15)})
    known = index_cache()
    for each, held in contents.items():
        known.learn(1, ObjectRef(each), held)
    image = image_of([10, 11])
    warm = look_up(image, Driver(contents, known), Request(STREAM, 0))
    cold = look_up(image, Driver(contents), Request(STREAM, 0))
    assert (warm.objects, warm.ending) == (cold.objects, cold.ending)
    assert [each.object_id for each in warm.objects] == [10]


def test_a_hole_between_two_neighbours_is_known_when_both_have_come() -> None:
    contents = holding({each: (each * 10, each * 10 + 9) for each in range(10)})
    known = index_cache()
    driver = Driver(contents, known)
    steps = search(Request(STREAM, 49), image_of(list(contents)), known, LoadAll())
    asked = next(steps)
    assert len(asked.refs()) == len(contents)
    for came in (0, 5):
        steps.send({came: driver.open(1, ObjectRef(came))})
    with pytest.raises(StopIteration) as over:
        steps.send({4: driver.open(1, ObjectRef(4))})
    assert over.value.value.ending is Ending.HOLE


def test_a_stale_floor_does_not_hide_the_entry_below_it() -> None:
    contents = holding({10: (0, 9)})
    known = index_cache()
    known.learn(1, ObjectRef(10), contents[10])
    known.add_entries(1, STREAM, [3, 4], [4, 9], [77, 78])  # compacted into 10 long ago
    driver = Driver(contents, known)
    assert [each.object_id for each in look_up(image_of([10]), driver, Request(STREAM, 5)).objects] == [10]
    assert driver.opened == []


def test_an_entry_of_another_node_is_no_hint_for_this_one() -> None:
    contents = holding({10: (0, 9), 20: (0, 9)})
    known = index_cache()
    known.learn(2, ObjectRef(20), contents[20])
    driver = Driver(contents, known)
    answer = look_up(image_of([10], node_2=[20]), driver, Request(STREAM, 0))
    assert [each.object_id for each in answer.objects] == [10]


def test_a_range_with_a_hole_proves_nothing_until_all_before_it_is_known() -> None:
    """The list decides who fills the hole: here an object that stands before the one with the hole."""
    contents = holding({10: (4, 6)}) | {11: make_ranges([(STREAM, 0, 9)], {STREAM})}
    image = image_of([10, 11])
    for hint in ([11], []):
        known = index_cache()
        for each in hint:
            known.learn(1, ObjectRef(each), contents[each])
        answer = look_up(image, Driver(contents, known), Request(STREAM, 4, 5, 1))
        assert [each.object_id for each in answer.objects] == [10]


def test_what_does_not_ascend_through_the_list_is_scanned_in_order() -> None:
    contents = holding({10: (5, 9), 11: (0, 5), 12: (9, 12)})
    known = index_cache()
    for each, held in contents.items():
        known.learn(1, ObjectRef(each), held)
    answer = look_up(image_of([10, 11, 12]), Driver(contents, known), Request(STREAM, 0))
    assert answer.objects == ()  # a plain scan stops at object 10, which starts after 0
    assert known.stats().unordered_views > 0


def test_of_a_stream_that_the_image_calls_unordered_memory_proves_nothing() -> None:
    """Memory knows one object of the list; a plain scan stops at the one before it, which starts after the offset."""
    contents = holding({10: (5, 9), 11: (0, 5)})
    known = index_cache()
    known.learn(1, ObjectRef(11), contents[11])
    image = image_of([10, 11])
    assert [each.object_id for each in look_up(image, Driver(contents, known), Request(STREAM, 0, 5)).objects] == [11]
    unordered = replace(image, unordered_streams=frozenset({STREAM}))
    assert look_up(unordered, Driver(contents, known), Request(STREAM, 0, 5)).objects == ()


def test_what_spared_requests_adds_up_to_the_objects_that_were_not_opened() -> None:
    contents = holding({each: (each, each + 1) for each in range(100)})
    answer = look_up(image_of(list(range(100))), Driver(contents, index_cache()), Request(STREAM, 40, 41, 1))
    unopened = answer.unopened
    assert answer.objects_listed == 100
    assert answer.objects_opened + unopened.by_index + unopened.by_filter + unopened.by_bounds == 100
    assert min(answer.objects_opened, unopened.by_bounds) > 0


def test_an_object_that_cannot_be_opened_fails_only_lookups_that_need_it() -> None:
    contents = holding({each: (each, each + 1) for each in range(30)})
    image = image_of(list(range(30)))
    driver = Driver(contents, index_cache(), broken={12: CorruptObject("k", 9, expected="this", found="that")})
    for policy in (LoadAll(), Window(5), Spread()):
        assert ids_of(image, driver, 3, 5, policy) == [3, 4]
        with pytest.raises(CorruptObject):
            ids_of(image, driver, 12, 13, policy)


def ids_of(image: MetadataImage, driver: Driver, start: int, end: int, policy: Policy) -> list[int]:
    driver.known = index_cache()
    return [each.object_id for each in look_up(image, driver, Request(STREAM, start, end), policy=policy).objects]


@pytest.mark.parametrize("error", [KeyMissing, AccessDenied])
def test_a_listed_object_that_is_gone_asks_for_a_newer_image(error: type[KeyMissing | AccessDenied]) -> None:
    contents = holding({each: (each, each + 1) for each in range(30)})
    driver = Driver(contents, index_cache(), broken={12: error("get_range", "k", "gone")})
    with pytest.raises(ImageStale):
        look_up(image_of(list(range(30))), driver, Request(STREAM, 3), policy=LoadAll())


def test_the_second_time_a_missing_object_matters_only_if_it_is_needed() -> None:
    contents = holding({each: (each, each + 1) for each in range(30)})
    image = image_of(list(range(30)))
    for error, raised in ((KeyMissing, ImageStale), (AccessDenied, AccessDenied)):
        driver = Driver(contents, index_cache(), broken={12: error("get_range", "k", "gone")})
        answer = look_up(image, driver, Request(STREAM, 3, 5), policy=LoadAll(), tolerate_gone=True)
        assert [each.object_id for each in answer.objects] == [3, 4]
        with pytest.raises(raised):
            look_up(image, driver, Request(STREAM, 12, 13), policy=LoadAll(), tolerate_gone=True)


def test_a_search_that_is_told_to_stop_gives_what_it_has() -> None:
    contents = holding({each: (each, each + 1) for each in range(30)})
    driver = Driver(contents, stop_after_rounds=1)
    answer = look_up(image_of(list(range(30))), driver, Request(STREAM, 3, -1, 30), policy=Window(5))
    assert answer.ending is Ending.PARTIAL
    assert [each.object_id for each in answer.objects] == [3, 4]
    assert answer.resume_offset == 5


@pytest.mark.parametrize(("rounds", "end"), [(0, 5), (1, 10), (2, 15), (None, 30)])
def test_rounds_after_the_first_object_are_bounded(rounds: int | None, end: int) -> None:
    contents = holding({each: (each, each + 1) for each in range(30)})
    request = Request(STREAM, 3, -1, 27, max_fill_rounds=rounds)
    answer = look_up(image_of(list(range(30))), Driver(contents), request, policy=Window(5))
    assert [each.object_id for each in answer.objects] == list(range(3, end))
    assert answer.partial is (rounds is not None)


def test_of_stream_objects_that_begin_together_the_one_with_the_offset_is_taken() -> None:
    image = image_of([], stream_objects=[(98, 0, 5), (99, 0, 10)])
    assert ids(image, {}, 7) == [99]


def test_a_window_goes_on_in_order_and_spread_in_few_rounds() -> None:
    contents = holding({each: (each * 10, each * 10 + 10) for each in range(1000)})
    image = image_of(list(range(1000)))
    windowed, spread = Driver(contents), Driver(contents)
    request = Request(STREAM, 7777, -1, 1)
    assert look_up(image, windowed, request, policy=Window(5)).objects == look_up(image, spread, request).objects
    assert len(windowed.opened) == 156
    assert len(spread.opened) <= 4
    assert spread.gets <= 32
