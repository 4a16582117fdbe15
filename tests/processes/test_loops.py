"""Objects for asyncio outlive loops and tasks: what was cancelled, or ended with its loop, stops nothing later."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from accel import AsyncReadAccelerator, Settings
from accel.image import MetadataImage
from accel.image_source import PolledImages
from loaders.lifetime import start_thread
from tests.accel.lookup.cluster import STREAM, line_image, line_store, system
from tests.accel.lookup.driving import Clock

Answer = TypeVar("Answer")

LIMIT_SECONDS = 60
"""No wait of these tests comes near it; it ends those that would hang."""


def in_a_loop(work: Callable[[], Awaitable[Answer]]) -> Answer:
    """Run this in a loop of its own."""

    async def limited() -> Answer:
        async with asyncio.timeout(LIMIT_SECONDS):
            return await work()

    return asyncio.run(limited())


# Lookups


class Held:
    """A source of images that answers when it may."""

    def __init__(self) -> None:
        self.asked, self.may_answer = threading.Semaphore(0), threading.Event()
        self.may_answer.set()
        self.queries = 0
        self.source = PolledImages(self, timer=Clock(), sleep=lambda _: None)
        self.asked.acquire()

    def __call__(self) -> MetadataImage:
        self.queries += 1
        self.asked.release()
        assert self.may_answer.wait(LIMIT_SECONDS)
        return line_image([0, 1, 2], version=self.queries)

    def accelerator(self) -> AsyncReadAccelerator:
        """An accelerator of three objects."""
        settings = Settings(hedge_percent=0, parallel_loads=4)
        threads = replace(system(), start=start_thread)
        return AsyncReadAccelerator(self.source, line_store(3), settings=settings, system=threads)


async def found(accelerator: AsyncReadAccelerator) -> list[int]:
    return [each.object_id for each in (await accelerator.get_objects(STREAM, 0, 30, 9)).objects]


def test_refreshes_that_were_all_cancelled_stop_no_later_one() -> None:
    held = Held()

    async def scenario() -> None:
        async with held.accelerator() as one:
            held.may_answer.clear()
            first = [asyncio.create_task(one.refresh()) for _ in range(3)]
            await asyncio.to_thread(held.asked.acquire)
            second = [asyncio.create_task(one.refresh()) for _ in range(3)]  # wait for the query after that one
            await asyncio.sleep(0)
            for task in asyncio.all_tasks() - {asyncio.current_task()}:  # as at the end of `asyncio.run`
                task.cancel()
            ends = await asyncio.gather(*first, *second, return_exceptions=True)
            assert [type(each) for each in ends] == [asyncio.CancelledError] * 6
            held.may_answer.set()
            assert await one.refresh()
            assert await one.refresh()
            assert one.image_version == held.queries

    in_a_loop(scenario)


@pytest.mark.parametrize("waits", [False, True], ids=["at once", "while it waits"])
def test_a_refresh_whose_loop_ended_stops_none_in_the_next_loop(*, waits: bool) -> None:
    held = Held()
    one = held.accelerator()

    async def ended_early() -> None:
        held.may_answer.clear()
        task = asyncio.create_task(one.refresh())
        await (asyncio.to_thread(held.asked.acquire) if waits else asyncio.sleep(0))
        held.may_answer.set()
        del task  # `asyncio.run` cancels it

    async def later() -> None:
        before = held.queries
        await asyncio.gather(*(one.refresh() for _ in range(4)))
        assert held.queries - before <= 2
        assert await found(one) == [0, 1, 2]

    for _ in range(2):
        in_a_loop(ended_early)
        in_a_loop(later)
    in_a_loop(one.close)


def test_loops_in_several_threads_share_an_accelerator() -> None:
    one = Held().accelerator()

    async def many() -> None:
        for _ in range(50):
            assert await found(one) == [0, 1, 2]
            await one.refresh()

    with ThreadPoolExecutor(4) as threads:
        for running in [threads.submit(in_a_loop, many) for _ in range(4)]:
            running.result()
    in_a_loop(one.close)


def test_a_call_that_ends_after_its_loop_was_closed_troubles_nobody(caplog: pytest.LogCaptureFixture) -> None:
    held = Held()
    one = held.accelerator()
    held.may_answer.clear()
    loop = asyncio.new_event_loop()
    task: asyncio.Task[Any] = loop.create_task(one.refresh())
    loop.run_until_complete(asyncio.sleep(0))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()
    held.may_answer.set()
    in_a_loop(one.refresh)
    in_a_loop(one.close)
    assert caplog.records == []
