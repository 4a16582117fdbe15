"""The accelerator for asyncio answers as the one for threads does, and a cancelled task leaves loads alone."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from accel import AsyncReadAccelerator, Ending, MetadataImage, Settings, StaticImages, StillPending
from accel.errors import CorruptObject, ObjectLost
from accel.image import ImageVersion
from loaders.layout import ObjectLayout
from loaders.store import CountingStore
from tests.accel.lookup.cluster import STREAM, line_image, line_store, system
from tests.accel.lookup.test_accelerator import Gate, PushOnWait

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(coroutine, 60))


def make(store: CountingStore, objects: int) -> AsyncReadAccelerator:
    images = StaticImages(line_image(list(range(objects))))
    return AsyncReadAccelerator(images, store, settings=Settings(hedge_percent=0), system=system())


def test_lookups_and_reads_are_awaited() -> None:
    async def scenario() -> None:
        async with make(line_store(30), 30) as one:
            answer = await one.get_objects(STREAM, 55, 75)
            assert [each.object_id for each in answer.objects] == [5, 6, 7]
            reading = one.read(STREAM, 55, 75)
            assert [batch.base_offset async for batch in reading] == [50, 60, 70]
            assert reading.ending is Ending.END
            assert (await one.explain(STREAM, 55, 75)).answer.objects == answer.objects

    run(scenario())


def test_a_thousand_tasks_open_no_object_twice() -> None:
    async def scenario() -> None:
        store = line_store(100)
        async with make(store, 100) as one:
            answers = await asyncio.gather(*(one.get_objects(STREAM, start, limit=1) for start in range(1000)))
        assert [each.objects[0].object_id for each in answers] == [start // 10 for start in range(1000)]
        assert store.snapshot().gets <= 100

    run(scenario())


def test_a_cancelled_task_does_not_cancel_the_load_that_others_wait_for() -> None:
    async def scenario() -> None:
        gate = Gate(line_store(1))
        async with make(gate, 1) as one:
            first = asyncio.create_task(one.get_objects(STREAM, 0, limit=1))
            second = asyncio.create_task(one.get_objects(STREAM, 0, limit=1))
            await asyncio.to_thread(gate.waiting.acquire)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            gate.opened.set()
            assert [each.object_id for each in (await second).objects] == [0]
        assert gate.snapshot().gets == 1

    run(scenario())


def test_a_deadline_gives_a_partial_answer() -> None:
    async def scenario() -> None:
        gate = Gate(line_store(1))
        async with make(gate, 1) as one:
            answer = await one.get_objects(STREAM, 0, deadline_seconds=0.01)
            assert answer.partial
            gate.opened.set()

    run(scenario())


def test_a_fetch_waits_for_a_newer_image() -> None:
    async def scenario() -> None:
        source = PushOnWait(line_image([0, 1]), line_image([0, 1, 2], version=1))
        async with AsyncReadAccelerator(source, line_store(3), system=system()) as one:
            answer = await one.fetch(STREAM, 0, 30, 9, timeout_seconds=1)
            assert [each.object_id for each in answer.objects] == [0, 1, 2]
            with pytest.raises(StillPending):
                await one.fetch(STREAM, 0, 31, 9, timeout_seconds=0)

    run(scenario())


def test_many_waiting_fetches_hold_one_thread_and_keep_their_time() -> None:
    class Counted(StaticImages):
        waiting = 0
        waiting_max = 0

        def wait_newer(self, version: ImageVersion, timeout_seconds: float) -> MetadataImage | None:
            if timeout_seconds:
                self.waiting += 1
                self.waiting_max = max(self.waiting, self.waiting_max)
            try:
                return super().wait_newer(version, timeout_seconds)
            finally:
                self.waiting -= bool(timeout_seconds)

    async def scenario() -> None:
        source = Counted(line_image([0, 1]))
        async with AsyncReadAccelerator(source, line_store(3)) as one:
            fetches = [asyncio.create_task(one.fetch(STREAM, 0, 30, 9, timeout_seconds=60)) for _ in range(50)]
            late = [asyncio.create_task(one.fetch(STREAM, 0, 31, 9, timeout_seconds=0.01)) for _ in range(50)]
            for each in await asyncio.gather(*late, return_exceptions=True):
                assert isinstance(each, StillPending)
            source.push(line_image([0, 1, 2], version=1))
            for answer in await asyncio.gather(*fetches):
                assert [each.object_id for each in answer.objects] == [0, 1, 2]
            assert source.waiting_max == 1

    run(scenario())


def test_errors_are_raised_where_they_are_awaited() -> None:
    async def scenario() -> None:
        store = line_store(2)
        store.delete(ObjectLayout().object_key(0))
        store.put(ObjectLayout().object_key(1), b"not an object" * 9)
        async with make(store, 2) as one:
            with pytest.raises(ObjectLost):
                await one.get_objects(STREAM, 0, 10)
            with pytest.raises((CorruptObject, ObjectLost)):
                await one.get_objects(STREAM, 15, 20)

    run(scenario())
