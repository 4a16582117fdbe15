"""Hot streams and nodes: exact where there is little, within a bound where there is much, and only of 10 minutes."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from accel import AsyncReadAccelerator, Settings, StaticImages
from accel.image import ObjectRef
from accel.lookup.answer import Answer, Ending, FoundObject, Kind, Request
from accel.lookup.hot import EXACT, KEPT_MAX, SLOT_SECONDS, SLOTS, STEPS, TOP, HotStreams
from tests.accel.lookup.cluster import NODE, STREAM, accelerator, image_of, line_image, line_store, settled, system
from tests.accel.lookup.driving import Clock

MANY = 100_000


def answer_of(stream_id: int, node_id: int | None = 4) -> Answer:
    found = FoundObject(Kind.STREAM_SET, ObjectRef(1), 0, 10, node_id)
    return Answer(Request(stream_id, 0), (found,), Ending.END, 10, 0)


def test_lookups_gets_and_bytes_are_counted_by_stream_and_node() -> None:
    store = line_store(8)
    with settled(store, line_image(list(range(8))), use_hints=False) as one:
        for _ in range(5):
            one.get_objects(STREAM, 5, 25)
        [*one.get_objects_many([Request(STREAM, 5, 25)] * 3)]
        told = one.hot()
        counts = store.snapshot()
        assert told.streams.lookups == ((STREAM, 8),)
        assert told.nodes.lookups == ((NODE, 8),)
        assert (told.streams.gets, told.nodes.gets) == (((STREAM, counts.gets),), ((NODE, counts.gets),))
        assert told.streams.bytes == ((STREAM, counts.total.received_bytes),)
        assert told.totals == {"lookups": 8, "gets": counts.gets, "bytes": counts.total.received_bytes}
        assert (told.share("streams"), told.share("nodes")) == (1.0, 1.0)
        assert one.stats().hot_shares == {"streams": 1.0, "nodes": 1.0}


def test_a_read_counts_its_requests_and_bytes_for_its_stream() -> None:
    store = line_store(8)
    with settled(store, line_image(list(range(8))), use_hints=False) as one:
        list(one.read(STREAM, 0, 80))
        counts = store.snapshot()
        assert one.hot().streams.gets == ((STREAM, counts.gets),)
        assert one.hot().streams.bytes == ((STREAM, counts.total.received_bytes),)


def test_requests_for_hints_count_for_the_stream_that_needs_them() -> None:
    store = line_store(8)
    with settled(store, line_image(list(range(8)))) as one:
        one.get_objects(STREAM, 5, 25)
        assert one.hot().streams.gets == ((STREAM, store.snapshot().gets),)


def test_the_accelerator_for_asyncio_counts_the_same() -> None:
    async def scenario() -> None:
        source = StaticImages(line_image([0, 1]))
        async with AsyncReadAccelerator(source, line_store(2), settings=Settings(), system=system()) as one:
            for _ in range(3):
                await one.get_objects(STREAM, 0, 5)
            await one.get_objects_many([Request(STREAM, 0, 5)])
            assert one.hot().streams.lookups == ((STREAM, 4),)

    asyncio.run(scenario())


def test_a_request_that_failed_is_a_get_without_bytes() -> None:
    image = image_of({STREAM: (NODE, 10)}, {NODE: [0]})
    store = line_store(0)
    with settled(store, image, use_hints=False, refresh_seconds=1000.0) as one:
        one.get_objects_many([Request(STREAM, 0, 5)])
        told = one.hot()
        assert told.streams.gets == ((STREAM, store.snapshot().gets),)
        assert told.streams.bytes in ((), ((STREAM, 0),))


def test_what_is_older_than_10_minutes_is_not_reported() -> None:
    clock = Clock()
    hot = HotStreams(clock)
    for stream_id in range(1, 41):
        hot.count_all([answer_of(stream_id)])
        clock.seconds += SLOT_SECONDS
    told = hot.report()
    assert {stream_id for stream_id, _ in told.streams.lookups} == set(range(22, 41))
    assert told.totals["lookups"] == 19
    assert told.seconds <= SLOTS * SLOT_SECONDS
    clock.seconds += 100 * SLOT_SECONDS
    assert hot.report().streams.lookups == ()
    assert hot.report().share("streams") == 0.0


def test_few_lookups_are_exact_and_many_are_sampled_without_favour() -> None:
    hot = HotStreams(Clock())
    hot.count_all([answer_of(each % 7) for each in range(EXACT - 1)])
    assert dict(hot.report().streams.lookups) == Counter(each % 7 for each in range(EXACT - 1))
    for alternating in (2, 8, 29, 32, 37):
        hot = HotStreams(Clock())
        answers = [answer_of(each, each) for each in range(alternating)]
        hot.count_all(answers[each % alternating] for each in range(MANY))
        told = hot.report()
        assert abs(told.totals["lookups"] - MANY) <= max(STEPS)
        counts = [count for _, count in told.streams.lookups]
        assert len(counts) == min(alternating, TOP)
        assert max(counts) <= 1.3 * MANY / alternating
        assert min(counts) >= 0.7 * MANY / alternating


@given(st.lists(st.tuples(st.integers(0, 3 * KEPT_MAX), st.integers(1, 100)), max_size=3000), st.integers(1, 5000))
def test_a_count_is_never_too_high_and_too_low_by_less_than_its_bound(spent: list[tuple[int, int]], most: int) -> None:
    hot, true = HotStreams(Clock()), Counter[int]()
    spent = [*spent, *((each, 1) for each in range(2 * KEPT_MAX + 10)), (10**6, most)]
    for stream_id, gets in spent:
        hot.spend(stream_id, None, gets, 0)
        true[stream_id] += gets
    told = dict(hot.report().streams.gets)
    assert len(told) <= TOP
    total = sum(true.values())
    assert all(true[each] - total / KEPT_MAX <= count <= true[each] for each, count in told.items())
    least = min(told.values())
    assert all(count - total / KEPT_MAX <= least for each, count in true.items() if each not in told)


def test_memory_stays_within_its_bound_whatever_is_counted() -> None:
    clock = Clock()
    hot = HotStreams(clock)
    tracemalloc.start()
    try:
        for each in range(20_000):
            hot.spend(each, each, 1, 1)
            clock.seconds += 0.03
        assert tracemalloc.get_traced_memory()[0] < 4 << 20
    finally:
        tracemalloc.stop()
    told = hot.report()
    assert len(told.streams.gets) == len(told.nodes.bytes) == TOP


def test_hot_streams_are_known_after_the_end() -> None:
    with accelerator(line_store(2), line_image([0, 1])) as one:
        one.get_objects(STREAM, 0, 5)
    assert one.hot().streams.lookups == ((STREAM, 1),)
