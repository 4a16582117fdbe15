"""A listed object that is gone: lost if the newest image lists it, and only perhaps lost if nobody knows the newest."""

from __future__ import annotations

from typing import Any

import pytest

from accel import MetadataImage, PolledImages, ReadAccelerator
from accel.errors import ObjectLost, StoreUnavailable
from accel.system import Components
from loaders.layout import ObjectLayout
from loaders.store import CountingStore
from tests.accel.lookup.cluster import BOTH_DRIVERS, STREAM, line_image, line_store, system
from tests.accel.lookup.driving import Clock


class Scene:
    """Two objects of which the second is gone, and a source of images that can fail."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.system: Components = system(self.clock)
        self.store: CountingStore = line_store(2)
        self.fails = False
        self.source = PolledImages(self.fetch, timer=self.clock, sleep=self.system.sleep, poll_seconds=60.0)

    def fetch(self) -> MetadataImage:
        if self.fails:
            raise StoreUnavailable("get", "a-list", "503")
        return line_image([0, 1])

    def lose(self) -> None:
        self.store.delete(ObjectLayout().object_key(1))
        self.clock.seconds = 12.5

    def breaks(self) -> None:
        self.lose()
        self.fails = True


def check_uncertain(error: ObjectLost) -> None:
    """What is said where a newer image could not be had."""
    assert str(error) == (
        "object 1 at '10000000/DEFAULT/1' is listed for node 1 in an image that was last known to be the newest "
        "12.5 s ago, and is gone; a newer one could not be had: StoreUnavailable: get 'a-list': 503"
    )
    assert error.unconfirmed_seconds == 12.5
    assert error.retryable
    assert "source of images" in error.advice


@BOTH_DRIVERS
def test_a_lookup_says_that_the_image_could_not_be_refreshed_and_since_when(driver: Any) -> None:
    scene = Scene()
    with driver(scene.source, scene.store, system=scene.system) as one:
        scene.breaks()
        with pytest.raises(ObjectLost) as caught:
            one.get_objects(STREAM, 10, 20)
    check_uncertain(caught.value)


@BOTH_DRIVERS
def test_a_read_says_so_too(driver: Any) -> None:
    scene = Scene()
    with driver(scene.source, scene.store, system=scene.system) as one:
        one.get_objects(STREAM, 0, 20)  # known from here on: only reading its bytes finds it gone
        scene.breaks()
        with pytest.raises(ObjectLost) as caught:
            list(one.read(STREAM, 10, 20))
    check_uncertain(caught.value)


def test_nothing_is_uncertain_where_the_source_answered() -> None:
    scene = Scene()
    with ReadAccelerator(scene.source, scene.store, system=scene.system) as one:
        scene.lose()
        for _ in range(2):  # whatever an earlier failure said
            with pytest.raises(ObjectLost, match=r"in the newest image, and is gone$") as caught:
                one.get_objects(STREAM, 10, 20)
            assert not caught.value.retryable
            assert not ObjectLost.retryable
            assert "restore the object" in caught.value.advice
