"""Many lookups in one call answer as one after the other, open each object once, and fail one by one."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from typing import Any

import pytest

import accel.lookup.drivers
from accel import MetadataImage, ReadAccelerator, Request, StaticImages
from accel.errors import AccelError, ImageTooOld, InvalidRequest, UnknownStream
from accel.lookup.answer import Answer, Ending
from loaders.store import CountingStore, MemoryStore
from tests.accel.lookup.cluster import BOTH_DRIVERS, image_of, put

STREAMS = range(1, 9)
OBJECTS = 12


def many_streams() -> tuple[MetadataImage, CountingStore]:
    """Each of 12 objects has ten offsets of each of 8 streams."""
    store = MemoryStore()
    for object_id in range(OBJECTS):
        put(store, object_id, [(stream, 10 * object_id, 10 * object_id + 10) for stream in STREAMS])
    return image_of(dict.fromkeys(STREAMS, (4, -1)), {4: range(OBJECTS)}), CountingStore(store)


REQUESTS = [Request(stream, start, limit=3) for stream in STREAMS for start in (0, 45, 95)]


def found(outcomes: list[Answer | AccelError]) -> list[list[int]]:
    return [[each.object_id for each in one.objects] if isinstance(one, Answer) else [] for one in outcomes]


def ask_one_by_one() -> list[list[int]]:
    image, store = many_streams()
    with ReadAccelerator(StaticImages(image), store) as accelerator:
        asked = [accelerator.get_objects(each.stream_id, each.start, limit=each.limit) for each in REQUESTS]
    return found([*asked])


@BOTH_DRIVERS
def test_they_answer_in_order_as_one_by_one_and_open_each_object_once(driver: Any) -> None:
    image, store = many_streams()
    with driver(StaticImages(image), store) as accelerator:
        outcomes = accelerator.get_objects_many(REQUESTS)
        assert accelerator.stats().lookups.lookups == len(REQUESTS)
        opened = accelerator.stats().loader
        again = accelerator.get_objects_many(REQUESTS)
    assert [one.request for one in outcomes if isinstance(one, Answer)] == REQUESTS
    assert found(outcomes) == found(again) == ask_one_by_one()
    assert opened.opened <= OBJECTS


def test_what_memory_answers_is_counted_as_one_by_one() -> None:
    """Asked again, by one call and by many, when nothing has to be opened: full answers, one at a hole, one error."""
    image, store = many_streams()
    requests = [*REQUESTS, Request(1, 115, limit=4), Request(2, 30, 20)]
    counts = []
    for together in (False, True):
        with ReadAccelerator(StaticImages(image), store) as accelerator:
            accelerator.get_objects_many(REQUESTS)
            before = accelerator.stats().lookups
            store.reset()
            if together:
                accelerator.get_objects_many(requests)
            else:
                for each in requests:
                    with contextlib.suppress(InvalidRequest):
                        accelerator.get_objects(each.stream_id, each.start, each.end, limit=each.limit)
            assert store.reset().gets == 0
            after = accelerator.stats().lookups
            numbers = {name: count for name, count in asdict(after).items() if isinstance(count, int)}
            counts.append({name: count - getattr(before, name) for name, count in numbers.items()})
    assert counts[0] == counts[1]
    assert counts[0]["warm"] == counts[0]["lookups"] == len(REQUESTS) + 1
    assert (counts[0]["refused"], counts[0]["holes"]) == (1, 1)


@BOTH_DRIVERS
def test_without_an_image_that_may_be_served_each_tells_why(driver: Any) -> None:
    class GoneImages(StaticImages):
        gone = False

        def current(self) -> MetadataImage:
            if self.gone:
                raise ImageTooOld("the image is an hour old")
            return super().current()

    image, store = many_streams()
    source = GoneImages(image)
    with driver(source, store) as accelerator:
        source.gone = True
        outcomes = accelerator.get_objects_many(REQUESTS[:3])
        assert accelerator.stats().lookups.failed == 3
    assert [type(each) for each in outcomes] == [ImageTooOld] * 3


@BOTH_DRIVERS
def test_one_that_fails_fails_none_of_the_others(driver: Any) -> None:
    image, store = many_streams()
    requests = [Request(1, 0, limit=1), Request(99, 0), Request(2, 30, 20), Request(3, 0, limit=1)]
    with driver(StaticImages(image), store) as accelerator:
        outcomes = accelerator.get_objects_many(requests)
        counted = accelerator.stats().lookups
        assert (counted.refused, counted.failed) == (2, 0)
    assert [type(each) for each in outcomes] == [Answer, UnknownStream, InvalidRequest, Answer]


@BOTH_DRIVERS
def test_one_call_takes_a_bounded_number_and_none_is_fine(driver: Any) -> None:
    image, store = many_streams()
    with driver(StaticImages(image), store) as accelerator:
        assert accelerator.get_objects_many([]) == []
        with pytest.raises(InvalidRequest, match="at most 10000"):
            accelerator.get_objects_many(Request(1, 0) for _ in range(10_001))


def test_no_more_than_a_bounded_number_wait_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accel.lookup.drivers, "AT_ONCE_MAX", 2)
    image, store = many_streams()
    with ReadAccelerator(StaticImages(image), store) as accelerator:
        assert found(accelerator.get_objects_many(REQUESTS)) == ask_one_by_one()


def test_a_deadline_gives_what_is_proven_by_then() -> None:
    image, store = many_streams()
    with ReadAccelerator(StaticImages(image), store) as accelerator:
        outcomes = accelerator.get_objects_many(REQUESTS[:2], deadline_seconds=0.0)
    assert {each.ending for each in outcomes if isinstance(each, Answer)} <= {Ending.PARTIAL, Ending.LIMIT}
    assert len(found(outcomes)) == 2
