"""The accelerator for asyncio: the same steps as `accelerator.py`, awaited instead of waited for.

Loads run in the accelerator's own threads, and so does every question to the source of images that may take a while, so
that one event loop can have thousands of lookups under way. A task that is cancelled while it waits leaves the load
alone: others may wait for the same one, and its result is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from accel.errors import AccelError, InvalidRequest, UnknownStream
from accel.image import OPEN_END
from accel.image_source import ImageSource
from accel.lookup.answer import Answer, Request
from accel.lookup.async_images import AsyncImages
from accel.lookup.base import AcceleratorBase, ReadingBase, refuse_unknown, still_pending
from accel.lookup.deadline import Deadline
from accel.lookup.engine import Engine
from accel.lookup.explain import Explanation
from accel.lookup.reading import BYTES_MAX, CurrentImage, FetchSpan, OpenObject, ReadSent, Step
from accel.lookup.story import Story
from accel.lookup.wanted import Wanted
from accel.lookup.warming import WarmReport
from accel.lookup.whole_lookup import NeedImage, Sent
from accel.settings import Settings
from accel.system import SYSTEM, Components
from loaders.format import RecordBatch
from loaders.lifetime import PerProcess
from loaders.store import ObjectStore

T = TypeVar("T")


class AsyncReadAccelerator(AcceleratorBase):
    """Lookups and reads for asyncio; the methods are those of `ReadAccelerator`, to be awaited.

    A source that asks for its images itself (`PolledImages`, `ObjectCatalog.images`) is asked in a thread: the task
    whose lookup finds its image due waits for that, the others go on with the image at hand. Only making an accelerator
    may block, if its source is due then; on a running loop make both together, or in a thread.

    Threads: one event loop. Close it, or use it as an asynchronous context manager.
    """

    def __init__(
        self,
        source: ImageSource,
        store: ObjectStore,
        *,
        settings: Settings | None = None,
        system: Components = SYSTEM,
    ) -> None:
        super().__init__(source, store, settings=settings, system=system)
        self._images_of = PerProcess("an accelerator", lambda: AsyncImages(self._engines()), system.process_id)

    @property
    def _images(self) -> AsyncImages:
        return self._images_of()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop loading; ends when the requests that are under way have ended. Calls that need more raise Closed."""
        self._is_closed = True
        if (images := self._images_of.here()) is not None:
            images.close()
        await asyncio.to_thread(self._close_engine)

    async def warm(self, nodes: Iterable[int] | None = None) -> WarmReport:
        """Load what hints there are for these nodes before serving; see `ReadAccelerator.warm`."""
        return await asyncio.to_thread(self._engine.warm, nodes)

    async def get_objects(
        self,
        stream_id: int,
        start: int,
        end: int = OPEN_END,
        limit: int = 4,
        *,
        deadline_seconds: float | None = None,
        max_fill_rounds: int | None = None,
    ) -> Answer:
        """Which objects hold offsets [start, end) of a stream; see `ReadAccelerator.get_objects`."""
        return await self._look_up(Request(stream_id, start, end, limit, max_fill_rounds), deadline_seconds)

    async def explain(
        self,
        stream_id: int,
        start: int,
        end: int = OPEN_END,
        limit: int = 4,
        *,
        deadline_seconds: float | None = None,
        max_fill_rounds: int | None = None,
    ) -> Explanation:
        """The same lookup with its story; see `ReadAccelerator.explain`."""
        request = Request(stream_id, start, end, limit, max_fill_rounds)
        story = Story()
        engine = self._engine
        timer = engine.system.timer
        started = timer()
        outcome: Answer | AccelError
        try:
            outcome = await self._look_up(request, deadline_seconds, story)
        except InvalidRequest:
            raise
        except AccelError as error:
            outcome = error
        return Explanation(request, outcome, story, timer() - started, engine.policy_name)

    async def fetch(
        self, stream_id: int, start: int, end: int = OPEN_END, limit: int = 4, *, timeout_seconds: float
    ) -> Answer:
        """Wait for newer images while there is a hole; see `ReadAccelerator.fetch`."""
        waiting = Deadline(self._engine.system.timer, timeout_seconds)
        while True:
            try:
                answer = await self.get_objects(stream_id, start, end, limit)
            except UnknownStream as error:
                await _in_pool(self._engine, partial(refuse_unknown, self._engine, error))
                continue
            if answer.satisfies_fetch:
                return answer
            newer = await self._images.newer(answer.image_version, waiting)
            if newer is None:
                raise still_pending(answer)
            await _in_pool(self._engine, partial(self._engine.replace_image, newer))

    def read(self, stream_id: int, start: int, end: int = OPEN_END, *, max_bytes: int = BYTES_MAX) -> AsyncReading:
        """The record batches of offsets [start, end), for ``async for``; see `ReadAccelerator.read`."""
        return AsyncReading(self._engine, self._images, stream_id, start, end, max_bytes)

    async def _look_up(self, request: Request, deadline_seconds: float | None, story: Story | None = None) -> Answer:
        engine = self._engine
        deadline = Deadline(engine.system.timer, deadline_seconds)
        sent: Sent = None
        try:
            steps = engine.start_lookup(request, await self._images.current(), story)
            while True:
                step = steps.send(sent)
                sent = await _answer_step(engine, step, deadline, story)
        except StopIteration as stop:
            answer: Answer = stop.value
            return engine.finished(answer)
        except AccelError:
            engine.counters.failed()
            raise


class AsyncReading(ReadingBase, AsyncIterator[RecordBatch]):
    """Record batches as they are read; `next_offset` and `ending` as in `Reading`. One task at a time.

    A task that was cancelled while it waited for a batch, as by `asyncio.wait_for`, may ask again and misses none.
    """

    def __init__(
        self, engine: Engine, images: AsyncImages, stream_id: int, start: int, end: int, max_bytes: int
    ) -> None:
        super().__init__(engine, stream_id, start, end, max_bytes)
        self._images = images

    async def __anext__(self) -> RecordBatch:
        while (step := self._wanted()) is not None:
            try:
                self._answer(await _answer_read_step(self._engine, self._images, step))
            except Exception as error:
                self._error = error
                raise
        if self._ready:
            return self._take()
        raise StopAsyncIteration


async def _answer_step(engine: Engine, step: Wanted | NeedImage, deadline: Deadline, story: Story | None) -> Sent:
    """Do what a step of a lookup asks, awaiting it; None if the time is over."""
    if isinstance(step, NeedImage):
        return await _in_pool(engine, lambda: engine.newer_image(step.version))
    started = engine.system.timer()
    pending = engine.open(step)
    # The loads cannot be cancelled, so a cancelled task, or one that is out of time, only stops waiting for them.
    waiters = [_waiter(future) for future in pending.futures()]
    _, late = await asyncio.wait(waiters, timeout=deadline.left_seconds())
    if late:
        return None
    if story is not None:
        story.measured(*pending.cost(), engine.system.timer() - started, hint=pending.hint_cost())
    return pending.replies()


async def _answer_read_step(engine: Engine, images: AsyncImages, step: Step) -> ReadSent:
    if isinstance(step, CurrentImage):
        return await images.current()
    try:
        if isinstance(step, OpenObject):
            opening = _waiter(engine.open_one(step))
            await asyncio.wait({opening})
            return opening.result()
        if isinstance(step, FetchSpan):
            return await _in_pool(engine, lambda: engine.fetch(step))
    except AccelError as error:
        return error
    return await _answer_step(engine, step, Deadline(engine.system.timer, None), None)


async def _in_pool(engine: Engine, call: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(engine.executor, call)


def _waiter(load: Future[T]) -> asyncio.Future[T]:
    """To be waited for by `asyncio.wait`, which leaves the load alone when its own task is cancelled."""
    waiter = asyncio.wrap_future(load)
    waiter.add_done_callback(_look_at)
    return waiter


def _look_at(waiter: asyncio.Future[Any]) -> None:
    # The replies carry the errors; asyncio would warn of one that nobody looked at.
    if not waiter.cancelled():
        waiter.exception()
