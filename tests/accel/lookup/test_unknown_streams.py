"""A stream that the image does not have: a newer image is asked for before that is believed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from accel import MetadataImage, ReadAccelerator, Settings, StaticImages
from accel.errors import InvalidRequest, StoreUnavailable, UnknownStream
from accel.image import ImageVersion
from tests.accel.lookup.cluster import BOTH_DRIVERS, STREAM, line_image, line_store, system
from tests.accel.lookup.driving import Clock

NEW = line_image([0, 1, 2], version=1)
OLD = MetadataImage.from_dict({"streams": [], "nodes": []}, 0)


class Source:
    """An image, and another one that it gives when it is asked for a newer one.

    Attributes:
        newer: the newest; None = the store is out of order.
        asked: how often it was asked for.
    """

    def __init__(self, newer: MetadataImage | None) -> None:
        self.newer = newer
        self.asked = 0

    def current(self) -> MetadataImage:
        return OLD

    def wait_newer(self, version: ImageVersion, timeout_seconds: float) -> MetadataImage | None:
        assert timeout_seconds == 0
        self.asked += 1
        if self.newer is None:
            raise StoreUnavailable("get", "accel/format", "503")
        return self.newer if self.newer.version != version else None


WAYS: dict[str, Callable[[ReadAccelerator], int]] = {
    "get_objects": lambda one: len(one.get_objects(STREAM, 0, 30).objects),
    "explain": lambda one: len(one.explain(STREAM, 0, 30).answer.objects),
    "fetch": lambda one: len(one.fetch(STREAM, 0, 30, timeout_seconds=0).objects),
    "read": lambda one: len(list(one.read(STREAM, 0, 30))),
}


def accelerator(source: Source, clock: Clock | None = None, driver: Any = ReadAccelerator) -> ReadAccelerator:
    made: ReadAccelerator = driver(source, line_store(3), settings=Settings(parallel_loads=4), system=system(clock))
    return made


@BOTH_DRIVERS
@pytest.mark.parametrize("way", WAYS)
def test_a_stream_that_is_newer_than_the_image_is_found_at_once(way: str, driver: Any) -> None:
    source = Source(NEW)
    with accelerator(source, driver=driver) as one:
        assert WAYS[way](one) == 3
    assert source.asked == 1


@BOTH_DRIVERS
@pytest.mark.parametrize("way", WAYS)
def test_a_stream_that_the_newest_image_does_not_have_is_no_stream(way: str, driver: Any) -> None:
    source, said = Source(OLD), f"found stream {STREAM}$"
    with accelerator(source, driver=driver) as one, pytest.raises(UnknownStream, match=said) as caught:
        WAYS[way](one)
    assert not caught.value.retryable
    assert isinstance(caught.value, InvalidRequest)
    assert source.asked == 1


@BOTH_DRIVERS
@pytest.mark.parametrize("way", WAYS)
def test_while_no_newer_image_can_be_had_it_helps_to_try_again(way: str, driver: Any) -> None:
    source, clock = Source(None), Clock()
    with accelerator(source, clock, driver) as one:
        with pytest.raises(UnknownStream, match=r"could not be had: StoreUnavailable.*503") as caught:
            WAYS[way](one)
        assert caught.value.retryable
        source.newer = NEW
        clock.seconds += 1
        assert WAYS[way](one) == 3


def test_lookups_ask_once_in_so_many_seconds_and_a_fetch_asks_for_itself() -> None:
    source, clock = Source(OLD), Clock()
    with accelerator(source, clock) as one:
        with pytest.raises(UnknownStream):
            one.get_objects(STREAM, 0)
        source.newer = NEW
        for _ in range(3):
            with pytest.raises(UnknownStream, match="a moment ago") as caught:
                one.get_objects(STREAM, 0)
            assert caught.value.retryable
        assert source.asked == 1
        assert len(one.fetch(STREAM, 0, 30, timeout_seconds=0).objects) == 3
        assert source.asked == 2


@pytest.mark.parametrize("newer", [OLD, None])
def test_a_fetch_that_asked_for_itself_tells_what_came_of_it(newer: MetadataImage | None) -> None:
    source = Source(OLD)
    with accelerator(source) as one:
        with pytest.raises(UnknownStream):
            one.get_objects(STREAM, 0)
        source.newer = newer
        with pytest.raises(UnknownStream) as caught:
            one.fetch(STREAM, 0, 30, timeout_seconds=0)
        assert caught.value.retryable == (newer is None)
    assert source.asked == 2


def test_other_mistakes_ask_for_nothing() -> None:
    source = Source(NEW)
    with accelerator(source) as one:
        for arguments in ((STREAM, 0, 10, -1), (STREAM, 10, 5, 1)):
            with pytest.raises(InvalidRequest):
                one.get_objects(*arguments)
    assert source.asked == 0


def test_a_pushed_image_ends_it_without_a_question() -> None:
    source = StaticImages(OLD)
    with ReadAccelerator(source, line_store(3)) as one:
        with pytest.raises(UnknownStream):
            one.get_objects(STREAM, 0)
        source.push(NEW)
        assert len(one.get_objects(STREAM, 0, 30).objects) == 3
