"""The accelerator for asyncio answers as the one for threads does, and a cancelled task leaves loads alone."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from accel import AsyncReadAccelerator, MetadataImage, Settings, StaticImages, StillPending
from accel.image import ImageVersion
from loaders.store import CountingStore
from tests.accel.lookup.cluster import STREAM, line_image, line_store, system
from tests.accel.lookup.test_accelerator import Gate

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(coroutine, 60))


def make(store: CountingStore, objects: int) -> AsyncReadAccelerator:
    images = StaticImages(line_image(list(range(objects))))
    return AsyncReadAccelerator(images, store, settings=Settings(hedge_percent=0), system=system())


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
