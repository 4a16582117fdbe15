"""A source that has to ask for its images never blocks an event loop, and is asked once for however many tasks.

The sources here answer only once the loop has done something, so a loop that waited for them itself would never end.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from accel import AsyncReadAccelerator, ImageTooOld, MetadataImage, PolledImages, StillPending
from accel.errors import Closed
from accel.image_source import PollingSource, StaticImages
from loaders.errors import StoreUnavailable
from loaders.store import CountingStore
from loaders.threads import start_thread
from tests.accel.lookup.cluster import STREAM, line_image, line_store, system
from tests.accel.lookup.driving import Clock
from tests.accel.lookup.test_accelerator import Gate
from tests.world import World

POLL_SECONDS = 1.0


class Slow:
    """A truth that answers at once the first time, and from then on only when the loop lets it."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.image = line_image([0, 1])
        self.error: Exception | None = None
        self.asked = 0
        self.blocked_loop = False
        self.asking = threading.Event()
        self.let = threading.Event()
        self.let.set()
        self.source = PolledImages(self, timer=self.clock, sleep=lambda _: None, max_age_seconds=10.0)
        self.let.clear()

    def __call__(self) -> MetadataImage:
        self.asked += 1
        self.asking.set()
        if not self.let.wait(20):
            self.blocked_loop = True  # nobody else lets it; an error here would be forgiven, as any of a source
        if self.error is not None:
            raise self.error
        return self.image

    def falls_due(self) -> None:
        self.asking.clear()
        self.clock.seconds += POLL_SECONDS

    def accelerator(self, store: CountingStore | None = None) -> AsyncReadAccelerator:
        threads = replace(system(self.clock), start=start_thread)
        return AsyncReadAccelerator(self.source, store or line_store(3), system=threads)


def on_a_loop(scenario: Callable[[Slow, AsyncReadAccelerator], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test of a coroutine that is given the truth and an accelerator."""

    async def driven(slow: Slow) -> None:
        async with slow.accelerator() as one:
            await scenario(slow, one)

    def test() -> None:
        slow = Slow()
        asyncio.run(asyncio.wait_for(driven(slow), 120))
        assert not slow.blocked_loop

    test.__name__, test.__module__ = scenario.__name__, scenario.__module__
    return test


async def until(event: threading.Event) -> None:
    """Until a thread says so; the loop stays free."""
    assert await asyncio.to_thread(event.wait, 60)


@on_a_loop
async def test_a_short_answer_leaves_the_loop_free_while_the_source_is_asked(
    slow: Slow, one: AsyncReadAccelerator
) -> None:
    slow.image = line_image([0, 1, 2], version=1)
    waiting = asyncio.create_task(one.get_objects(STREAM, 0, 30, 9))
    await until(slow.asking)
    slow.let.set()  # by the loop itself
    assert [each.object_id for each in (await waiting).objects] == [0, 1, 2]


@on_a_loop
async def test_all_wait_for_one_question_where_the_image_at_hand_is_too_old(
    slow: Slow, one: AsyncReadAccelerator
) -> None:
    slow.falls_due()
    slow.clock.seconds = 99
    waiting = [asyncio.create_task(one.get_objects(STREAM, 0, 10)) for _ in range(50)]
    await until(slow.asking)
    slow.let.set()
    assert {each.image_version for each in await asyncio.gather(*waiting)} == {0}
    assert slow.asked == 2
    slow.error = StoreUnavailable("get", "a-list", "503")
    slow.clock.seconds = 999
    failed = await asyncio.gather(*(one.get_objects(STREAM, 0, 10) for _ in range(9)), return_exceptions=True)
    assert [type(each) for each in failed] == [ImageTooOld] * 9


@on_a_loop
async def test_reads_and_waiting_fetches_leave_the_loop_free_too(slow: Slow, one: AsyncReadAccelerator) -> None:
    slow.falls_due()
    slow.clock.seconds = 99
    reading = one.read(STREAM, 0, 20)
    batch = asyncio.create_task(anext(reading))
    await until(slow.asking)
    slow.let.set()
    assert (await batch).base_offset == 0
    slow.let.clear()
    slow.falls_due()
    fetch = asyncio.create_task(one.fetch(STREAM, 0, 40, 9, timeout_seconds=0))
    await until(slow.asking)
    slow.let.set()
    with pytest.raises(StillPending):
        await fetch


@on_a_loop
async def test_a_task_that_is_cancelled_while_the_source_is_asked_does_not_stop_the_question(
    slow: Slow, one: AsyncReadAccelerator
) -> None:
    slow.falls_due()
    slow.clock.seconds = 99
    first, second = (asyncio.create_task(one.get_objects(STREAM, 0, 10)) for _ in range(2))
    await until(slow.asking)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    slow.let.set()
    assert len((await second).objects) == 1
    assert slow.asked == 2


@on_a_loop
async def test_a_question_that_fails_after_everybody_left_is_nobodys_trouble(
    slow: Slow, one: AsyncReadAccelerator
) -> None:
    slow.clock.seconds = 99
    slow.error = StoreUnavailable("get", "a-list", "503")
    alone = asyncio.create_task(one.get_objects(STREAM, 0, 10))
    await until(slow.asking)
    alone.cancel()
    slow.let.set()


def test_a_read_that_was_cancelled_while_it_waited_goes_on_and_misses_nothing() -> None:
    async def scenario() -> None:
        gate = Gate(line_store(3))
        async with AsyncReadAccelerator(StaticImages(line_image([0, 1, 2])), gate, system=system()) as one:
            reading = one.read(STREAM, 0, 30)
            first = asyncio.create_task(anext(reading))
            await asyncio.to_thread(gate.waiting.acquire)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            gate.opened.set()
            assert [batch.base_offset async for batch in reading] == [0, 10, 20]

    asyncio.run(asyncio.wait_for(scenario(), 120))


def test_the_images_of_a_catalog_are_asked_for_in_a_thread() -> None:
    world = World()
    with world.open() as catalog:
        source = catalog.images(POLL_SECONDS)
        assert isinstance(source, PollingSource)
        assert source.cached() is source.current()
        assert not source.is_due()
        world.clock.seconds += POLL_SECONDS
        assert source.is_due()
        with catalog.open_node(4) as writer:
            writer.open_streams([STREAM])
            world.upload(writer, {STREAM: (0, 10)})

        async def scenario() -> list[int]:
            async with AsyncReadAccelerator(source, world.store, system=world.system) as one:
                return [each.end for each in (await one.get_objects(STREAM, 0)).objects]

        assert asyncio.run(scenario()) == [10]


@on_a_loop
async def test_a_refresh_leaves_the_loop_free_and_tells_whether_there_was_a_newer_image(
    slow: Slow, one: AsyncReadAccelerator
) -> None:
    slow.image = line_image([0, 1, 2], version=1)
    refreshing = asyncio.create_task(one.refresh())
    await until(slow.asking)
    assert len((await one.get_objects(STREAM, 0, 20)).objects) == 2  # with the image at hand
    slow.let.set()
    assert await refreshing
    assert one.stats().image_version == 1
    assert not await one.refresh()


@on_a_loop
async def test_a_refresh_shares_no_question_that_began_before_it(slow: Slow, one: AsyncReadAccelerator) -> None:
    first = asyncio.create_task(one.refresh())
    await until(slow.asking)
    others = [asyncio.create_task(one.refresh()) for _ in range(9)]
    await asyncio.sleep(0)
    slow.let.set()
    await asyncio.gather(first, *others)
    assert slow.asked == 3  # when it was made, for the first one, and once for all who came meanwhile


@on_a_loop
async def test_a_refresh_that_is_cancelled_leaves_its_question_to_others(slow: Slow, one: AsyncReadAccelerator) -> None:
    slow.image = line_image([0, 1, 2], version=1)
    first = asyncio.create_task(one.refresh())
    await until(slow.asking)
    waiting, cancelled = asyncio.create_task(one.refresh()), asyncio.create_task(one.refresh())
    await asyncio.sleep(0)
    for task in (first, cancelled):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    slow.let.set()
    await waiting
    assert one.stats().image_version == 1
    assert slow.asked == 3


@on_a_loop
async def test_a_refresh_that_hangs_ends_when_the_accelerator_is_closed(slow: Slow, one: AsyncReadAccelerator) -> None:
    refreshing = asyncio.create_task(one.refresh())
    await until(slow.asking)
    await one.close()
    with pytest.raises(Closed):
        await refreshing
    with pytest.raises(Closed):
        await one.refresh()
    slow.let.set()


@on_a_loop
async def test_a_source_is_followed_beside_the_loop_and_again_after_a_cancellation(
    slow: Slow, one: AsyncReadAccelerator
) -> None:
    images = one.newer_images()
    waiting = asyncio.ensure_future(anext(images))
    await until(slow.asking)
    assert len((await one.get_objects(STREAM, 0, 20)).objects) == 2
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    slow.image = line_image([0, 1, 2], version=1)
    slow.let.set()
    for later in (2, 3, 4):
        assert (await anext(images)).version == images.version == later - 1
        slow.image = line_image([0, 1, 2], version=later)
        one.image_changed()
    async for image in images:
        assert image.version == 4
        break


@on_a_loop
async def test_a_source_that_fails_is_followed_on(slow: Slow, one: AsyncReadAccelerator) -> None:
    slow.error = StoreUnavailable("get", "a-list", "503")
    waiting = asyncio.ensure_future(anext(one.newer_images()))
    await until(slow.asking)
    slow.let.set()
    while slow.asked < 4:  # noqa: ASYNC110 - a thread asks
        await asyncio.sleep(0)
    slow.image, slow.error = line_image([0, 1], version=1), None
    assert (await waiting).version == 1


@on_a_loop
async def test_a_task_follows_when_nobody_has_just_asked(slow: Slow, one: AsyncReadAccelerator) -> None:
    slow.let.set()
    slow.image = line_image([0, 1, 2], version=1)
    assert await one.follow()
    slow.image = line_image([0, 1, 2], version=2)
    assert not await one.follow()
    slow.clock.seconds += 5.0
    assert await one.follow()
