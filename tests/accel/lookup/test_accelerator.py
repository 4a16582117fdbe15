"""The accelerator over a store: requests counted, images replaced, deadlines kept, many threads at once."""

from __future__ import annotations

import random
import threading
from asyncio import CancelledError
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from accel import Ending, MetadataImage, ObjectRef, ReadAccelerator, Settings, StaticImages, StillPending
from accel.errors import ImageRefused, ObjectLost
from accel.image import ImageVersion
from accel.image_source import PolledImages
from loaders.layout import ObjectLayout
from loaders.store import CountingStore, Fetched, MemoryStore
from loaders.store.decorated import DecoratedStore
from tests.accel.lookup.cluster import (
    BOTH_DRIVERS,
    NODE,
    STREAM,
    accelerator,
    image_of,
    line_image,
    line_store,
    put,
    system,
)
from tests.accel.lookup.driving import Clock


def found(one: ReadAccelerator, start: int, end: int = -1, limit: int = 4) -> list[int]:
    return [each.object_id for each in one.get_objects(STREAM, start, end, limit).objects]


def test_a_warm_lookup_costs_no_request() -> None:
    store = line_store(100)
    with accelerator(store, line_image(list(range(100)))) as one:
        cold = found(one, 555)
        store.reset()
        assert found(one, 555) == cold
        assert store.snapshot().gets == 0
        assert one.stats().lookups.warm == 1


def test_a_lookup_of_another_stream_in_opened_objects_costs_no_request() -> None:
    store = MemoryStore()
    put(store, 1, [(STREAM, 0, 10), (8, 0, 5)])
    counting = CountingStore(store)
    with accelerator(counting, image_of({STREAM: (NODE, 10), 8: (NODE, 5)}, {NODE: [1]})) as one:
        found(one, 0)
        counting.reset()
        assert [each.object_id for each in one.get_objects(8, 0).objects] == [1]
        assert counting.snapshot().gets == 0


def test_what_a_broker_committed_itself_is_never_opened() -> None:
    store = line_store(30)
    with accelerator(store, line_image(list(range(30)))) as one:
        for each in range(30):
            one.object_committed(NODE, ObjectRef(each), {STREAM: (each * 10, each * 10 + 10), 1: (each, each + 1)})
        assert found(one, 0, 300, 30) == list(range(30))
        assert found(one, 300) == []  # the hole at the end is proven from memory, too
        assert store.snapshot().gets == 0


def test_an_image_of_another_namespace_is_refused() -> None:
    with accelerator(line_store(1), line_image([0])) as one, pytest.raises(ImageRefused, match="elsewhere"):
        one.replace_image(MetadataImage.from_dict({"streams": []}, version=9, namespace="elsewhere"))


def test_compacted_objects_are_replaced_and_forgotten() -> None:
    store = line_store(4)
    put(store, 50, [(STREAM, 0, 20)])
    source = StaticImages(line_image([0, 1, 2, 3]))
    with accelerator(store, source) as one:
        assert found(one, 0, 40, 9) == [0, 1, 2, 3]
        newer = line_image([50, 2, 3], version=1)
        source.push(newer)
        assert one.replace_image(newer)
        assert found(one, 0, 40, 9) == [50, 2, 3]
        assert one.stats().caches["object_indexes"].entries == 3
        assert one.stats().caches["filters"].entries == 3


def test_an_object_that_leaves_the_image_while_it_is_opened_is_not_remembered() -> None:
    gate = Gate(line_store(2))
    source = StaticImages(line_image([0, 1]))
    with ReadAccelerator(source, gate) as one, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(one.get_objects, STREAM, 0, 20)
        gate.waiting.acquire()
        one.replace_image(line_image([1], version=1))
        gate.opened.set()
        assert [each.object_id for each in waiting.result(60).objects] == [0, 1]  # true of the image it began with
        assert one.stats().caches["filters"].entries == 1
        assert one.stats().caches["object_indexes"].entries == 1


@BOTH_DRIVERS
def test_a_listed_object_that_is_gone_is_looked_for_in_a_newer_image(driver: Any) -> None:
    store = line_store(4)
    put(store, 50, [(STREAM, 0, 20)])
    for gone in (0, 1):
        store.delete(ObjectLayout().object_key(gone))
    source = PushOnWait(line_image([0, 1, 2, 3]), line_image([50, 2, 3], version=1))
    with driver(source, store, system=system()) as one:
        assert found(one, 0, 40, 9) == [50, 2, 3]
        assert one.stats().lookups.refreshes == 1


class PushOnWait(StaticImages):
    """A source whose truth is ahead of what is at hand."""

    def __init__(self, image: MetadataImage, newest: MetadataImage) -> None:
        super().__init__(image)
        self.newest = newest

    def wait_newer(self, version: ImageVersion, timeout_seconds: float) -> MetadataImage | None:
        self.push(self.newest)
        return super().wait_newer(version, timeout_seconds)


@BOTH_DRIVERS
def test_an_object_that_the_newest_image_still_lists_is_lost(driver: Any) -> None:
    store = line_store(4)
    store.delete(ObjectLayout().object_key(1))
    with accelerator(store, line_image([0, 1, 2, 3]), driver=driver) as one:
        with pytest.raises(ObjectLost, match="10000000/DEFAULT/1") as caught:
            found(one, 10)
        assert caught.value.object_id == 1
        assert found(one, 20, 30, 1) == [2]  # and nothing that does not need it suffers


def test_a_lookup_that_fails_can_be_explained_all_the_same() -> None:
    store = line_store(4)
    store.delete(ObjectLayout().object_key(1))
    with accelerator(store, line_image([0, 1, 2, 3])) as one:
        told = one.explain(STREAM, 10)
    assert isinstance(told.error, ObjectLost)
    assert "failed   ObjectLost: object 1" in told.text()
    assert told.to_dict()["answer"] is None
    assert told.to_dict()["error"]["type"] == "ObjectLost"
    with pytest.raises(ObjectLost):
        _ = told.answer


def test_a_short_answer_asks_once_for_a_newer_image_and_not_again_at_once() -> None:
    store = line_store(4)
    clock = Clock()
    source = PushOnWait(line_image([0, 1]), line_image([0, 1, 2], version=1))
    with ReadAccelerator(source, store, settings=Settings(refresh_seconds=1.0), system=system(clock)) as one:
        assert found(one, 0, 40, 9) == [0, 1, 2]
        source.newest = line_image([0, 1, 2, 3], version=2)
        assert found(one, 0, 40, 9) == [0, 1, 2]
        clock.seconds += 1.0
        assert found(one, 0, 40, 9) == [0, 1, 2, 3]
        assert one.stats().lookups.refreshes == 2


def test_a_short_answer_is_not_believed_if_a_newer_image_came_while_objects_were_opened() -> None:
    """The lookup had started the query that returned it, and neither waited for it nor asked again at once."""
    clock = Clock()
    offered = [line_image([0, 1])]
    under_way: list[Callable[[], object]] = []

    class Slow(DecoratedStore):
        def get_tail(self, key: str, length: int) -> Fetched:
            while under_way:
                under_way.pop()()
            return super().get_tail(key, length)

    def start(work: Callable[[], object], name: str) -> None:
        if name == "accel-image" and not has_started:
            has_started.append(name)
            under_way.append(work)
        else:
            work()

    has_started: list[str] = ["the first image"]
    source = PolledImages(lambda: offered[-1], timer=clock, sleep=lambda _: None)
    parts = replace(system(clock), start=start)
    with ReadAccelerator(source, Slow(line_store(4)), settings=Settings(refresh_seconds=1.0), system=parts) as one:
        clock.seconds += 5.0  # nobody asked for anything since
        offered.append(line_image([0, 1, 2, 3], version=1))
        has_started.clear()
        assert found(one, 0, 40, 9) == [0, 1, 2, 3]
        assert not under_way


@pytest.mark.parametrize("kind", [OSError, SystemExit, KeyboardInterrupt, GeneratorExit, CancelledError])
def test_an_image_source_that_fails_does_not_fail_lookups(
    kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(StaticImages):
        def current(self) -> MetadataImage:
            if asked:
                raise kind("no metadata today")
            return super().current()

        def wait_newer(self, version: ImageVersion, timeout_seconds: float) -> MetadataImage | None:
            raise kind("no metadata today", version, timeout_seconds)

    asked: list[int] = []
    with ReadAccelerator(Broken(line_image([0, 1])), line_store(2), system=system()) as one:
        asked.append(1)
        assert found(one, 0, 40, 9) == [0, 1]
        assert one.stats().lookups.source_failures == 2
    assert "image version 0 stays" in caplog.text


def test_an_answer_that_finds_nothing_counts_what_it_might_have_opened() -> None:
    with accelerator(line_store(3), line_image([0, 1, 2])) as one:
        assert found(one, 999) == []
        assert one.stats().lookups.objects_listed == 3


@BOTH_DRIVERS
def test_a_waiting_fetch_is_done_at_the_limit_the_end_or_an_open_end(driver: Any) -> None:
    with accelerator(line_store(4), line_image([0, 1, 2, 3]), driver=driver) as one:
        assert one.fetch(STREAM, 0, 400, 2, timeout_seconds=0).ending is Ending.LIMIT
        assert one.fetch(STREAM, 0, 40, 9, timeout_seconds=0).ending is Ending.END
        assert one.fetch(STREAM, 0, -1, 9, timeout_seconds=0).ending is Ending.HOLE
        assert one.fetch(STREAM, 999, -1, 9, timeout_seconds=0).objects == ()
        with pytest.raises(StillPending, match="none from 40 on"):
            one.fetch(STREAM, 0, 41, 9, timeout_seconds=0)


@BOTH_DRIVERS
def test_a_waiting_fetch_ends_when_the_data_is_committed(driver: Any) -> None:
    store, source = line_store(4), StaticImages(line_image([0, 1]))
    with driver(source, store) as one, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(one.fetch, STREAM, 0, 40, 9, timeout_seconds=60)
        source.push(line_image([0, 1, 2], version=1))
        source.push(line_image([0, 1, 2, 3], version=2))
        assert [each.object_id for each in waiting.result(60).objects] == [0, 1, 2, 3]


class Gate(CountingStore):
    """A store whose reads wait until they are let through."""

    def __init__(self, store: CountingStore) -> None:
        super().__init__(store)
        self.opened = threading.Event()
        self.waiting = threading.Semaphore(0)

    def get_tail(self, key: str, length: int) -> Fetched:
        self.waiting.release()
        self.opened.wait(60)
        return super().get_tail(key, length)


@BOTH_DRIVERS
def test_a_deadline_gives_what_there_is_and_where_to_resume(driver: Any) -> None:
    gate = Gate(line_store(4))
    with driver(StaticImages(line_image([0, 1, 2, 3])), gate) as one:
        answer = one.get_objects(STREAM, 15, deadline_seconds=0.01)
        assert answer.partial
        assert answer.objects == ()
        assert answer.resume_offset == 15
        gate.opened.set()
        assert found(one, 15) == [1, 2, 3]  # the loads went on, and are joined or were kept


@BOTH_DRIVERS
def test_a_thousand_parallel_cold_lookups_open_no_object_twice(driver: Any) -> None:
    store = line_store(200)
    with (
        accelerator(store, line_image(list(range(200))), parallel_loads=16, driver=driver) as one,
        ThreadPoolExecutor(32) as pool,
    ):
        starts = [random.Random(seed).randrange(2000) for seed in range(1000)]
        answers = list(pool.map(lambda start: one.get_objects(STREAM, start, limit=1), starts))
    assert [each.objects[0].object_id for each in answers] == [start // 10 for start in starts]
    assert store.snapshot().gets <= 200


def test_sixteen_threads_are_answered_rightly_while_images_are_replaced() -> None:
    """Objects are compacted in pairs underneath the readers; every answer must be true of some image of the time."""
    store = line_store(64)
    for pair in range(32):
        put(store, 100 + pair, [(STREAM, pair * 20, pair * 20 + 20)])
    images = [_compacted(step) for step in range(33)]
    source = StaticImages(images[0])
    done = threading.Event()
    errors: list[str] = []

    def read(seed: int) -> None:
        rng = random.Random(seed)
        while not done.is_set():
            start = rng.randrange(640)
            answer = one.get_objects(STREAM, start, start + 50, 9)
            _check_answer(answer.start_offset, answer.end_offset, start, errors, answer.ending)

    with accelerator(store, source, parallel_loads=8) as one, ThreadPoolExecutor(16) as pool:
        readers = [pool.submit(read, seed) for seed in range(16)]
        for image in images[1:]:
            source.push(image)
            threading.Event().wait(0.01)
        done.set()
        for reader in readers:
            reader.result(60)
        assert errors == []
        assert found(one, 0, 640, 99) == list(range(100, 132))
        assert store.snapshot().gets <= 64 + 32


def _compacted(step: int) -> MetadataImage:
    objects = [each for pair in range(32) for each in ([100 + pair] if pair < step else [2 * pair, 2 * pair + 1])]
    return line_image(objects, version=step)


def _check_answer(first: int, last: int, start: int, errors: list[str], ending: Ending) -> None:
    wanted = min(start + 50, 640)
    if not first <= start < last or last < wanted:
        errors.append(f"asked for [{start}, {wanted}), found [{first}, {last}), {ending}")


@BOTH_DRIVERS
def test_errors_that_are_not_ours_reach_the_caller_as_they_are(driver: Any) -> None:
    class Broken(MemoryStore):
        def get_tail(self, key: str, length: int) -> Fetched:
            raise ZeroDivisionError(key, length)

    with accelerator(Broken(), line_image([0]), driver=driver) as one, pytest.raises(ZeroDivisionError):
        found(one, 0)


def test_settings_that_make_no_sense_are_refused() -> None:
    for change in ({"parallel_loads": 0}, {"view_size_bytes_max": 0}, {"refresh_seconds": -1.0}):
        with pytest.raises(ValueError, match="expected"):
            Settings(**change)


def test_stats_show_memory_against_its_bounds() -> None:
    with accelerator(line_store(30), line_image(list(range(30)))) as one:
        before = one.stats()
        found(one, 0, 300, 30)
        after = one.stats()
        assert before.memory_bytes < after.memory_bytes < after.memory_bytes_max
        assert after.to_dict()["lookups"]["lookups"] == 1
