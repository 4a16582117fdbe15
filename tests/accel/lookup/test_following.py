"""The source of images is asked beside lookups: a lookup that can be answered never waits for it, whatever it does.

Threads are handed in: here a question runs when the test says so, or hangs until it does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from accel import ImageTooOld, MetadataImage, PolledImages, ReadAccelerator, StaticImages, StillPending
from accel.errors import Closed
from accel.image import ImageVersion
from accel.lookup.answer import Ending
from accel.system import SYSTEM
from loaders.errors import StoreUnavailable
from loaders.threads import start_thread
from tests.accel.lookup.cluster import BOTH_DRIVERS, STREAM, line_image, line_store, system
from tests.accel.lookup.driving import Clock

MAX_AGE_SECONDS = 10.0


class Scene:
    """A polled source whose truth may change, fail, or hang; and questions that run when they are told to."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.image = line_image([0, 1])
        self.error: Exception | None = None
        self.asked = 0
        self.started: list[Callable[[], object]] = []
        self.asking = threading.Event()
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.source = PolledImages(self.fetch, timer=self.clock, sleep=lambda _: None, max_age_seconds=MAX_AGE_SECONDS)
        self.later = replace(system(self.clock), start=lambda work, _: self.started.append(work))
        self.threads = replace(system(self.clock), start=start_thread)

    def fetch(self) -> MetadataImage:
        self.asked += 1
        self.asking.set()
        assert self.may_answer.wait(60)
        if self.error is not None:
            raise self.error
        return self.image

    def run_started(self) -> int:
        started, self.started = self.started, []
        for work in started:
            work()
        return len(started)

    @contextmanager
    def hanging(self, driver: Any = ReadAccelerator) -> Iterator[ReadAccelerator]:
        """An accelerator whose source hangs when it is asked the next time, until the test is over."""
        one = driver(self.source, line_store(3), system=self.threads)
        self.asking.clear()
        self.may_answer.clear()
        try:
            yield one
        finally:
            self.may_answer.set()
            one.close()


def test_a_lookup_starts_the_question_for_a_due_image_and_goes_on_with_the_one_at_hand() -> None:
    scene = Scene()
    with ReadAccelerator(scene.source, line_store(3), system=scene.later) as one:
        scene.image = line_image([0, 1, 2], version=1)
        assert one.get_objects(STREAM, 0, 10).image_version == 0
        assert not scene.started, "it is not due"
        scene.clock.seconds += 1.0
        assert {one.get_objects(STREAM, 0, 10).image_version for _ in range(100)} == {0}
        assert (scene.run_started(), scene.asked) == (1, 2)
        assert one.get_objects(STREAM, 0, 10).image_version == 1
        scene.clock.seconds += 1.0
        one.get_objects(STREAM, 0, 10)
        assert (scene.run_started(), scene.asked) == (1, 3)


@BOTH_DRIVERS
def test_a_question_that_hangs_delays_no_lookup_that_can_be_answered(driver: Any) -> None:
    scene = Scene()
    with scene.hanging(driver) as one:
        scene.clock.seconds += 1.0
        one.get_objects(STREAM, 0, 10)
        assert scene.asking.wait(60)
        assert [one.get_objects(STREAM, 0, 10).ending for _ in range(9)] == [Ending.END] * 9
        assert scene.asked == 2


@BOTH_DRIVERS
def test_a_short_answer_waits_for_the_source_no_longer_than_its_deadline(driver: Any) -> None:
    scene = Scene()
    with scene.hanging(driver) as one:
        answer = one.get_objects(STREAM, 0, 20)
        assert [each.object_id for each in answer.objects] == [0, 1]
        short = one.get_objects(STREAM, 0, 30, deadline_seconds=0)
        assert scene.asking.wait(60)
        assert ([each.object_id for each in short.objects], short.ending) == ([0, 1], Ending.HOLE)


def test_of_short_answers_that_find_a_question_under_way_one_waits_for_it() -> None:
    scene = Scene()
    with scene.hanging() as one:
        scene.clock.seconds += 1.0
        one.get_objects(STREAM, 0, 10)
        assert scene.asking.wait(60)
        assert one.get_objects(STREAM, 0, 30, deadline_seconds=0.01).ending is not Ending.END
        assert one.get_objects(STREAM, 0, 20).ending is Ending.END
        shorts = [one.get_objects(STREAM, 0, 30) for _ in range(9)]  # these would hang
        assert [each.ending for each in shorts] == [Ending.HOLE] * 9
        assert scene.asked == 2


def test_a_short_answer_does_not_ask_again_what_was_asked_because_the_image_was_due() -> None:
    scene = Scene()
    with ReadAccelerator(scene.source, line_store(3), system=system(scene.clock)) as one:
        for _ in range(5):
            scene.clock.seconds += 1.0
            one.get_objects(STREAM, 0, 30)
        assert scene.asked == 6


def test_an_image_that_is_too_old_is_refused_when_the_deadline_is_over() -> None:
    scene = Scene()
    with scene.hanging() as one:
        scene.clock.seconds = 99
        with pytest.raises(ImageTooOld, match=r"known to be the newest 99\.0 s ago.*within the deadline"):
            one.get_objects(STREAM, 0, 10, deadline_seconds=0)
        with pytest.raises(ImageTooOld):
            one.fetch(STREAM, 0, 10, timeout_seconds=0)
        scene.may_answer.set()
        assert one.get_objects(STREAM, 0, 10).ending is Ending.END, "without a deadline it waits"


@BOTH_DRIVERS
def test_a_fetch_that_waits_keeps_its_time_while_the_source_hangs(driver: Any) -> None:
    scene = Scene()
    with scene.hanging(driver) as one, pytest.raises(StillPending):
        one.fetch(STREAM, 0, 30, timeout_seconds=0)


@BOTH_DRIVERS
def test_closing_waits_for_no_question_and_tells_those_who_do(driver: Any) -> None:
    scene = Scene()
    with scene.hanging(driver) as one:
        one.get_objects(STREAM, 0, 20)
        errors: list[BaseException] = []

        def look_up() -> None:
            try:
                one.get_objects(STREAM, 0, 30)
            except Closed as error:
                errors.append(error)

        waiting = threading.Thread(target=look_up)
        waiting.start()
        assert scene.asking.wait(60)
        questions = [each for each in threading.enumerate() if each.name == "accel-image"]
        assert all(each.daemon for each in questions)
        one.close()
        waiting.join(60)
        assert len(errors) == 1


def test_a_source_that_fails_is_counted_each_time_and_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(StaticImages):
        is_broken = False

        def current(self) -> MetadataImage:
            if self.is_broken:
                raise OSError("no metadata today")
            return super().current()

    clock, source = Clock(), Broken(line_image([0, 1]))
    with ReadAccelerator(source, line_store(2), system=system(clock)) as one:
        source.is_broken = True
        for _ in range(2_000):
            one.get_objects(STREAM, 0, 10)
        assert one.stats().lookups.source_failures == 2_000
        assert [each.getMessage() for each in caplog.records if "image source" in each.msg] == [
            "the image source failed (1 times since the last report); image version 0 stays in use"
        ]
        clock.seconds += 60
        one.get_objects(STREAM, 0, 10)
        assert "(2000 times" in caplog.records[-1].getMessage()


def test_failures_of_questions_beside_lookups_are_counted_and_logged_too(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    with ReadAccelerator(scene.source, line_store(3), system=scene.later) as one:
        scene.error = StoreUnavailable("list", "accel/tables/", "503")
        for _ in range(9):
            scene.clock.seconds += 1.0
            one.get_objects(STREAM, 0, 10)
            scene.run_started()
        assert one.stats().lookups.source_failures == 9
        assert len([each for each in caplog.records if "image source" in each.msg]) == 1


def test_one_who_hears_of_a_change_has_it_asked_for_at_once() -> None:
    scene = Scene()
    with ReadAccelerator(scene.source, line_store(3), system=scene.later) as one:
        scene.clock.seconds += 0.2
        scene.image = line_image([0, 1, 2], version=1)
        for _ in range(50):
            one.image_changed()
        assert (scene.run_started(), scene.asked) == (1, 2)
        assert one.get_objects(STREAM, 0, 10).image_version == 1
        one.image_changed()
        assert not scene.started, "asked a moment ago"
        scene.clock.seconds += 0.1
        one.get_objects(STREAM, 0, 10)
        assert (scene.run_started(), scene.asked) == (1, 3)


def test_a_source_that_cannot_be_told_is_asked_when_its_image_changed() -> None:
    class Plain:
        def __init__(self) -> None:
            self.image = line_image([0, 1])
            self.versions: list[ImageVersion] = []

        def current(self) -> MetadataImage:
            return self.image

        def wait_newer(self, version: ImageVersion, timeout_seconds: float) -> MetadataImage | None:
            assert timeout_seconds == 0
            self.versions.append(version)
            return None

    source = Plain()
    with ReadAccelerator(source, line_store(2), system=system()) as one:
        one.image_changed()
        assert source.versions == [0]


def test_a_waiting_fetch_is_woken_by_who_hears_of_a_change() -> None:
    images = [line_image([0, 1])]
    source = PolledImages(
        lambda: images[-1], timer=SYSTEM.timer, sleep=SYSTEM.sleep, wait=SYSTEM.wait, poll_seconds=1_000
    )
    with ReadAccelerator(source, line_store(3)) as one:
        found: list[int] = []
        waiting = threading.Thread(
            target=lambda: found.extend(
                each.object_id for each in one.fetch(STREAM, 0, 30, 9, timeout_seconds=500).objects
            )
        )
        waiting.start()
        images.append(line_image([0, 1, 2], version=1))
        one.image_changed()
        waiting.join(60)
        assert found == [0, 1, 2]


def test_an_idle_source_is_asked_less_often_until_its_image_changes() -> None:
    clock, asked = Clock(), []
    images = [line_image([0])]

    def fetch() -> MetadataImage:
        asked.append(clock.seconds)
        return images[-1]

    source = PolledImages(fetch, timer=clock, sleep=lambda _: None, poll_seconds=1.0, idle_poll_seconds=2.5)
    for _ in range(200):
        clock.seconds += 0.25
        source.current()
    assert asked[:11] == [float(second) for second in range(11)]
    assert asked[11:14] == [12.5, 15.0, 17.5]
    images.append(line_image([0, 1], version=1))
    clock.seconds = 52.5
    source.current()
    clock.seconds = 53.5
    source.current()
    assert asked[-2:] == [52.5, 53.5]
