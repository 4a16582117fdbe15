"""A position after the end of a stream: the answer names the end, and a fetch does not wait for it."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel import Ending, StillPending
from accel.errors import OffsetBeyondEnd
from accel.image import GivenUpRange, MetadataImage
from accel.lookup.answer import Request
from tests.accel.lookup.cluster import BOTH_DRIVERS, STREAM, accelerator, line_image, line_store
from tests.accel.lookup.driving import Driver, index_cache, look_up, ranges_of
from tests.accel.lookup.test_accelerator import PushOnWait
from tests.accel.lookup.test_search_property import POLICIES
from tests.examples import examples
from tests.models.worlds import World, with_ties, worlds


def true_end(world: World, stream_id: int) -> int:
    """One past the last offset of a stream in any object, or where its last owner or the stream itself begins."""
    stream = next(each for each in world.metadata["streams"] if each["stream_id"] == stream_id)
    own = [each["end"] for each in stream["stream_objects"]]
    owners = [each["start"] for each in stream["ranges"][-1:]]
    listed = {each["object_id"] for node in world.metadata["nodes"] for each in node["stream_set_objects"]}
    held = [
        spans[stream_id][1] for object_id, spans in world.contents.items() if object_id in listed and stream_id in spans
    ]
    ends: list[int] = [stream["start_offset"], *own, *owners, *held]
    return max(ends)


@settings(max_examples=examples(200))
@given(worlds(), st.integers(0, 2**32), st.booleans())
def test_an_end_that_an_answer_names_is_the_end_of_all_data(world: World, seed: int, has_ties: bool) -> None:
    rng = random.Random(seed)
    world = with_ties(world, rng) if has_ties else world
    image = MetadataImage.from_dict(world.metadata)
    driver = Driver(ranges_of(world), index_cache())
    for stream in world.metadata["streams"]:
        end = true_end(world, stream["stream_id"])
        for start in (end, end + 1, end + rng.randrange(2, 1000), rng.randint(stream["start_offset"], end)):
            answer = look_up(image, driver, Request(stream["stream_id"], start), policy=rng.choice(POLICIES))
            assert answer.stream_end in (None, end)
            if start >= end:
                assert (answer.objects, answer.ending, answer.stream_end) == ((), Ending.HOLE, end)
                assert answer.is_beyond_end == (start > end)
            else:
                assert not answer.is_beyond_end


@BOTH_DRIVERS
def test_a_hole_with_data_after_it_is_not_the_end(driver: Any) -> None:
    with accelerator(line_store(30), line_image([0, 1, 2, 5, 6], end=-1), driver=driver) as one:
        answer = one.get_objects(STREAM, 25)
        assert (answer.resume_offset, answer.ending, answer.stream_end) == (30, Ending.HOLE, None)
        answer = one.get_objects(STREAM, 55, limit=9)
        assert (answer.resume_offset, answer.ending, answer.stream_end) == (70, Ending.HOLE, 70)
        assert not answer.is_beyond_end
        assert one.get_objects(STREAM, 0, 10).stream_end is None


def test_offsets_that_were_given_up_count_as_written() -> None:
    image = line_image([0, 1, 2], end=-1)
    stream = replace(image.streams[STREAM], given_up=(GivenUpRange(30, 50, 9),))
    with accelerator(line_store(30), replace(image, streams={STREAM: stream})) as one:
        assert one.get_objects(STREAM, 50).stream_end == 50
        with pytest.raises(StillPending):
            one.fetch(STREAM, 50, 60, timeout_seconds=0)
        with pytest.raises(OffsetBeyondEnd):
            one.fetch(STREAM, 51, 60, timeout_seconds=1e9)


@BOTH_DRIVERS
def test_a_fetch_that_begins_after_the_end_does_not_wait(driver: Any) -> None:
    with accelerator(line_store(30), line_image([0, 1, 2], end=-1), driver=driver) as one:
        with pytest.raises(OffsetBeyondEnd, match=r"stream 7: .* the end of the stream, 30, found 31"):
            one.fetch(STREAM, 31, 40, timeout_seconds=1e9)
        with pytest.raises(StillPending):
            one.fetch(STREAM, 30, 40, timeout_seconds=0)
        assert one.fetch(STREAM, 31, timeout_seconds=1e9).is_beyond_end


def test_a_fetch_asks_for_the_newest_image_before_it_says_so() -> None:
    source = PushOnWait(line_image([0, 1, 2], end=-1), line_image([0, 1, 2, 3, 4], 1, end=-1))
    with accelerator(line_store(30), source) as one:
        assert [each.object_id for each in one.fetch(STREAM, 40, 50, timeout_seconds=0).objects] == [4]


@BOTH_DRIVERS
def test_a_read_names_the_end_where_it_stopped(driver: Any) -> None:
    with accelerator(line_store(30), line_image([0, 1, 2, 5], end=-1), driver=driver) as one:
        for start, end, expected in ((61, -1, 60), (55, -1, 60), (60, 90, 60), (25, -1, None), (0, 10, None)):
            reading = one.read(STREAM, start, end)
            list(reading)
            assert reading.stream_end == expected, start


def test_an_explanation_says_where_the_stream_ends() -> None:
    with accelerator(line_store(30), line_image([0, 1, 2], end=-1)) as one:
        beyond, tail = one.explain(STREAM, 99), one.explain(STREAM, 30)
    assert "no object: the stream ends at 30, before offset 99" in beyond.text()
    assert "no object: no listed object holds offset 30" in tail.text()
    assert beyond.to_dict()["answer"]["stream_end"] == 30
