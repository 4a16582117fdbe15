"""A source that fails is forgiven until its image is too old; then lookups say so, until it answers again."""

from __future__ import annotations

import math
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from accel import ImageTooOld, MetadataImage, PolledImages, ReadAccelerator, StaticImages
from loaders.errors import StoreUnavailable
from tests.accel.lookup.cluster import BOTH_DRIVERS, STREAM, line_image, line_store, system
from tests.accel.lookup.driving import Clock

MAX_AGE_SECONDS = 10.0
POLL_SECONDS = 1.0


class Truth:
    """Where images are fetched from: answers, or fails; asking may take time."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.image = line_image([0, 1])
        self.error: Exception | None = None
        self.takes_seconds = 0.0
        self.asked = 0

    def __call__(self) -> MetadataImage:
        self.asked += 1
        image = self.image
        self.clock.seconds += self.takes_seconds
        if self.error is not None:
            raise self.error
        return image


class Scene:
    """A polled source, its truth, and the clock of both."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.truth = Truth(self.clock)
        self.system = system(self.clock)
        self.source = PolledImages(
            self.truth,
            timer=self.clock,
            sleep=self.system.sleep,
            poll_seconds=POLL_SECONDS,
            max_age_seconds=MAX_AGE_SECONDS,
        )

    def breaks(self) -> None:
        self.truth.error = StoreUnavailable("get", "a-list", "503 for the ninth time")


def test_an_image_is_given_until_it_is_too_old() -> None:
    scene = Scene()
    scene.breaks()
    scene.clock.seconds = MAX_AGE_SECONDS
    with pytest.raises(StoreUnavailable):
        scene.source.current()
    assert scene.source.current().version == 0  # asked just now: what is at hand is still young enough
    scene.clock.seconds += 0.1
    with pytest.raises(ImageTooOld, match=r"at most 10 s ago, found version 0, of 10.1 s ago.*503 for the ninth time"):
        scene.source.current()


def test_a_source_that_answers_again_serves_again() -> None:
    scene = Scene()
    scene.breaks()
    scene.clock.seconds = 99
    with pytest.raises(ImageTooOld) as caught:
        scene.source.current()
    assert isinstance(caught.value.__cause__, StoreUnavailable)
    assert caught.value.retryable
    scene.truth.error = None
    with pytest.raises(ImageTooOld):
        scene.source.current()  # not asked again so soon
    scene.clock.seconds += POLL_SECONDS
    assert scene.source.current().version == 0
    assert scene.source.age_seconds() == 0


def test_a_broken_source_is_not_asked_more_often_than_a_whole_one() -> None:
    scene = Scene()
    scene.breaks()
    scene.clock.seconds = 99
    for _ in range(5):
        with pytest.raises(ImageTooOld):
            scene.source.current()
    assert scene.truth.asked == 2


def test_age_counts_from_the_start_of_the_question() -> None:
    scene = Scene()
    scene.truth.takes_seconds = 4.0
    scene.clock.seconds = 5.0
    assert scene.source.current().version == 0
    assert scene.source.age_seconds() == 4.0
    scene.truth.takes_seconds = 11.0
    with pytest.raises(ImageTooOld):
        scene.source.wait_newer(0, 0)


def test_an_older_image_does_not_make_the_one_at_hand_younger() -> None:
    scene = Scene()
    scene.truth.image = line_image([0], version=3)
    assert scene.source.wait_newer(0, 0) is not None
    scene.truth.image = line_image([0], version=2)
    scene.clock.seconds = 6.0
    assert scene.source.current().version == 3
    assert scene.source.age_seconds() == 6.0
    scene.clock.seconds = 11.0
    with pytest.raises(ImageTooOld):
        scene.source.current()


def test_waiting_for_a_newer_image_ends_when_the_one_at_hand_is_too_old() -> None:
    scene = Scene()
    scene.breaks()
    with pytest.raises(StoreUnavailable):
        scene.source.wait_newer(0, 60)
    scene.clock.seconds = 11.0
    with pytest.raises(ImageTooOld):
        scene.source.wait_newer(0, 60)
    scene.truth.error = None
    assert scene.source.wait_newer(0, 60) is None


def test_without_an_age_images_are_given_for_ever() -> None:
    scene = Scene()
    source = PolledImages(scene.truth, timer=scene.clock, sleep=scene.system.sleep)
    scene.breaks()
    scene.clock.seconds = 1e9
    with pytest.raises(StoreUnavailable):
        source.current()
    assert source.current().version == 0


@pytest.mark.parametrize("max_age_seconds", [-1.0, 0.0, 1.0])
def test_an_age_below_the_time_between_two_questions_is_refused(max_age_seconds: float) -> None:
    scene = Scene()
    with pytest.raises(ValueError, match="max_age_seconds above poll_seconds"):
        PolledImages(scene.truth, timer=scene.clock, sleep=scene.system.sleep, max_age_seconds=max_age_seconds)


@pytest.mark.parametrize("name", ["poll_seconds", "idle_poll_seconds", "max_age_seconds"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 0.0])
def test_a_time_that_no_clock_reaches_is_refused(name: str, value: float) -> None:
    scene = Scene()
    with pytest.raises(ValueError, match=name):
        PolledImages(scene.truth, timer=scene.clock, sleep=scene.system.sleep, **{name: value})  # type: ignore[arg-type]


def test_who_comes_while_a_too_old_image_is_being_asked_for_waits_for_the_answer() -> None:
    clock, asked, answers = Clock(), threading.Semaphore(0), threading.Semaphore(1)

    def fetch() -> MetadataImage:
        asked.release()
        answers.acquire()
        return line_image([0])

    source = PolledImages(fetch, timer=clock, sleep=lambda _: None, max_age_seconds=MAX_AGE_SECONDS)
    asked.acquire()
    clock.seconds = 99
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(source.current) for _ in range(4)]
        asked.acquire()
        answers.release()
        assert [each.result(60).version for each in waiting] == [0] * 4
    assert not asked.acquire(blocking=False)  # one question for all four


@BOTH_DRIVERS
def test_lookups_go_on_until_the_image_is_too_old_and_after_the_source_is_back(driver: Any) -> None:
    scene = Scene()
    with driver(scene.source, line_store(3), system=scene.system) as one:

        def look() -> list[int]:
            return [each.object_id for each in one.get_objects(STREAM, 0, 40, 9).objects]

        assert look() == [0, 1]
        scene.breaks()
        scene.clock.seconds = MAX_AGE_SECONDS
        assert look() == [0, 1]
        assert one.stats().lookups.source_failures > 0
        assert one.stats().image_unconfirmed_seconds == MAX_AGE_SECONDS
        failed = one.stats().lookups.failed
        scene.clock.seconds += 0.5
        with pytest.raises(ImageTooOld):
            look()
        assert one.stats().lookups.failed == failed + 1
        assert one.stats().image_unconfirmed_seconds == MAX_AGE_SECONDS + 0.5
        scene.truth.error = None
        scene.truth.image = line_image([0, 1, 2], version=1)
        scene.clock.seconds += POLL_SECONDS
        assert look() == [0, 1, 2]
        assert one.stats().image_unconfirmed_seconds == 0
        scene.clock.seconds += 3.0
        assert look() == [0, 1, 2]
        assert (one.stats().image_age_seconds, one.stats().image_unconfirmed_seconds) == (3.0, 0.0)


@BOTH_DRIVERS
def test_waiting_fetches_fail_with_it_too(driver: Any) -> None:
    scene = Scene()
    scene.truth.takes_seconds = 0.5
    with driver(scene.source, line_store(2), system=scene.system) as one:
        for error in (StoreUnavailable("get", "a-list", "503"), ImageTooOld("said by the source itself")):
            scene.truth.error = error
            scene.clock.seconds += 99
            with pytest.raises(ImageTooOld):
                one.fetch(STREAM, 0, 40, 9, timeout_seconds=60)


def test_a_lookup_that_needs_a_newer_image_fails_if_even_that_question_makes_it_too_old() -> None:
    scene = Scene()
    with ReadAccelerator(scene.source, line_store(2), system=scene.system) as one:
        scene.breaks()
        scene.truth.takes_seconds = 11.0
        with pytest.raises(ImageTooOld):
            one.get_objects(STREAM, 0, 40, 9)  # comes out short, and asks
        assert one.stats().lookups.failed == 1


def test_a_lookup_without_an_image_can_be_explained() -> None:
    scene = Scene()
    with ReadAccelerator(scene.source, line_store(2), system=scene.system) as one:
        scene.breaks()
        scene.clock.seconds = 99
        told = one.explain(STREAM, 0)
    assert isinstance(told.error, ImageTooOld)
    assert "image none" in told.text()
    assert "failed   ImageTooOld: expected an image that was the newest at most 10 s ago" in told.text()
    assert told.to_dict()["image_versions"] == []


def test_a_long_read_takes_the_image_of_each_time_and_ends_when_there_is_none() -> None:
    scene = Scene()
    objects, length = 400, 10
    with ReadAccelerator(scene.source, line_store(objects), system=scene.system) as one:
        scene.truth.image = line_image(list(range(objects)), version=1)
        scene.clock.seconds = 2.0
        reading = one.read(STREAM, 0, objects * length)
        assert next(reading).base_offset == 0
        scene.breaks()
        scene.clock.seconds = 99
        with pytest.raises(ImageTooOld):
            list(reading)
        # What threads had found by then is read to its end, and no more.
        assert length <= reading.next_offset <= 140 * length
        assert reading.next_offset % length == 0


def test_a_source_that_cannot_tell_its_age_is_as_old_as_its_last_answer() -> None:
    class Failing(StaticImages):
        error: Exception | None = None

        def current(self) -> MetadataImage:
            if self.error is not None:
                raise self.error
            return super().current()

    clock, source = Clock(), Failing(line_image([0, 1]))
    with ReadAccelerator(source, line_store(2), system=system(clock)) as one:
        clock.seconds = 5.0
        one.get_objects(STREAM, 0, 20)
        assert (one.stats().image_age_seconds, one.stats().image_unconfirmed_seconds) == (5.0, 0.0)
        source.error = OSError("no metadata today")
        clock.seconds = 7.0
        one.get_objects(STREAM, 0, 20)
        assert one.stats().image_unconfirmed_seconds == 2.0
