"""The accelerator for asyncio: the same steps as `accelerator.py`, awaited instead of waited for.

Loads run in the accelerator's own threads, so that one event loop can have thousands of lookups under way. A task that
is cancelled while it waits leaves the load alone: others may wait for the same one, and its result is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Self, TypeVar

from accel.answer import Answer, Ending, Request
from accel.base import AcceleratorBase, still_pending
from accel.deadline import Deadline
from accel.engine import Engine
from accel.errors import AccelError, InvalidRequest
from accel.explain import Explanation
from accel.image import OPEN_END
from accel.image_source import ImageSource
from accel.lookup import NeedImage, Sent
from accel.newer_images import NewerImages
from accel.reading import BYTES_MAX, Batches, FetchSpan, OpenObject, ReadEnd, ReadSent
from accel.search import Wanted
from accel.settings import Settings
from accel.story import Story
from accel.system import SYSTEM, Components
from loaders.format import RecordBatch
from loaders.object_index import OpenedObject
from loaders.store import ObjectStore

T = TypeVar("T")


class AsyncReadAccelerator(AcceleratorBase):
    """Lookups and reads for asyncio; the methods are those of `ReadAccelerator`, to be awaited.

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
        self._newer = NewerImages(source)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop loading; ends when what is under way has ended."""
        self._newer.close()
        await asyncio.to_thread(self._engine.close)

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
        timer = self._engine.system.timer
        started = timer()
        outcome: Answer | AccelError
        try:
            outcome = await self._look_up(request, deadline_seconds, story)
        except InvalidRequest:
            raise
        except AccelError as error:
            outcome = error
        return Explanation(request, outcome, story, timer() - started, self._engine.policy_name)

    async def fetch(
        self, stream_id: int, start: int, end: int = OPEN_END, limit: int = 4, *, timeout_seconds: float
    ) -> Answer:
        """Wait for newer images while there is a hole; see `ReadAccelerator.fetch`."""
        waiting = Deadline(self._engine.system.timer, timeout_seconds)
        while True:
            answer = await self.get_objects(stream_id, start, end, limit)
            if answer.satisfies_fetch:
                return answer
            newer = await self._newer.wait(answer.image_version, waiting)
            if newer is None:
                raise still_pending(answer)
            self._engine.replace_image(newer)

    def read(self, stream_id: int, start: int, end: int = OPEN_END, *, max_bytes: int = BYTES_MAX) -> AsyncReading:
        """The record batches of offsets [start, end), for ``async for``; see `ReadAccelerator.read`."""
        return AsyncReading(self._engine, stream_id, start, end, max_bytes)

    async def _look_up(self, request: Request, deadline_seconds: float | None, story: Story | None = None) -> Answer:
        deadline = Deadline(self._engine.system.timer, deadline_seconds)
        sent: Sent = None
        try:
            steps = self._engine.start_lookup(request, story)
            while True:
                step = steps.send(sent)
                sent = await _answer_step(self._engine, step, deadline, story)
        except StopIteration as stop:
            answer: Answer = stop.value
            return self._engine.finished(answer)
        except AccelError:
            self._engine.counters.failed()
            raise


class AsyncReading(AsyncIterator[RecordBatch]):
    """Record batches as they are read; `next_offset` and `ending` as in `Reading`. One task at a time."""

    def __init__(self, engine: Engine, stream_id: int, start: int, end: int, max_bytes: int) -> None:
        self._engine = engine
        self._steps = engine.start_read(stream_id, start, end, max_bytes)
        self._ready: list[RecordBatch] = []
        self._sent: ReadSent = None
        self.next_offset = start
        self.ending: Ending | None = None

    async def __anext__(self) -> RecordBatch:
        while not self._ready:
            await self._advance()
        batch = self._ready.pop()
        self.next_offset = max(self.next_offset, batch.end_offset)
        return batch

    async def _advance(self) -> None:
        if self.ending is not None:
            raise StopAsyncIteration
        try:
            step = self._steps.send(self._sent)
        except StopIteration as stop:
            end: ReadEnd = stop.value
            self.ending, self.next_offset = end.ending, end.next_offset
            raise StopAsyncIteration from None
        if isinstance(step, Batches):
            self._ready, self._sent = step.batches[::-1], None
        else:
            self._sent = await _answer_read_step(self._engine, step)


async def _answer_step(engine: Engine, step: Wanted | NeedImage, deadline: Deadline, story: Story | None) -> Sent:
    """Do what a step of a lookup asks, awaiting it; None if the time is over."""
    if isinstance(step, NeedImage):
        return await _in_pool(engine, lambda: engine.newer_image(step.version))
    started = engine.system.timer()
    pending = engine.open(step)
    # The loads cannot be cancelled, so a cancelled task, or one that is out of time, only stops waiting for them.
    waiters = [asyncio.wrap_future(future) for future in pending.futures()]
    for waiter in waiters:
        waiter.add_done_callback(_look_at)
    _, late = await asyncio.wait(waiters, timeout=deadline.left_seconds())
    if late:
        return None
    if story is not None:
        story.measured(*pending.cost(), engine.system.timer() - started)
    return pending.replies()


async def _answer_read_step(engine: Engine, step: Wanted | NeedImage | OpenObject | FetchSpan) -> ReadSent:
    try:
        if isinstance(step, OpenObject):
            return await asyncio.wrap_future(engine.open_one(step))
        if isinstance(step, FetchSpan):
            return await _in_pool(engine, lambda: engine.fetch(step))
    except AccelError as error:
        return error
    return await _answer_step(engine, step, Deadline(engine.system.timer, None), None)


async def _in_pool(engine: Engine, call: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(engine.executor, call)


def _look_at(waiter: asyncio.Future[OpenedObject]) -> None:
    # The replies carry the errors; asyncio would warn of one that nobody looked at.
    if not waiter.cancelled():
        waiter.exception()
