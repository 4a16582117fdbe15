"""The accelerator for asyncio: what `accelerator.py` does, awaited instead of waited for.

Loads run in the accelerator's own threads, and so does every question to the source of images that may take a while, so
that one event loop can have thousands of lookups under way. A task that is cancelled while it waits leaves the load
alone: others may wait for the same one, and its result is kept. Two threads suffice to ask for images, for any number
of tasks: one asks for the newest image where the one at hand is due (`AsyncImages.current`), the other one waits until
there is a newer one (`AsyncImages.newer`). Tasks wait for what these bring; the loop itself never does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast

from accel.image import OPEN_END, ImageVersion, MetadataImage, is_newer
from accel.image_source import ImageSource
from accel.lookup.accelerator import AcceleratorBase, Call, Deadline, ReadingBase, Script, Wait, Waiting
from accel.lookup.answer import Answer, Request
from accel.lookup.engine import Engine
from accel.lookup.explain import Explanation
from accel.lookup.reading import BYTES_MAX, Ranges, ReadSteps
from accel.lookup.steps import CurrentImage
from accel.lookup.warming import WarmReport
from accel.settings import Settings
from accel.system import SYSTEM, Components
from loaders.format import RecordBatch
from loaders.lifetime import PerProcess, Threads
from loaders.shared_loads import SharedLoads
from loaders.store import ObjectStore

T = TypeVar("T")

WAIT_SECONDS_MAX = 1.0
"""One question to the source waits no longer; so a thread that nobody needs any more soon ends."""

QUESTIONS: Final = 2
"""That can be under way at once: for the newest image, and for a newer one. Each is asked once for all tasks."""


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
        request = Request(stream_id, start, end, limit, max_fill_rounds)
        return await self._run(self._look_up(request, deadline_seconds))

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
        """The same lookup with its trace; see `ReadAccelerator.explain`."""
        request = Request(stream_id, start, end, limit, max_fill_rounds)
        return await self._run(self._explain(request, deadline_seconds))

    async def fetch(
        self, stream_id: int, start: int, end: int = OPEN_END, limit: int = 4, *, timeout_seconds: float
    ) -> Answer:
        """Wait for newer images while there is a hole; see `ReadAccelerator.fetch`."""
        return await self._run(self._fetch(Request(stream_id, start, end, limit), timeout_seconds))

    def read(
        self,
        stream_id: int,
        start: int,
        end: int = OPEN_END,
        *,
        max_bytes: int = BYTES_MAX,
        ranges: Ranges | None = None,
    ) -> AsyncReading:
        """The record batches of offsets [start, end), for ``async for``; see `ReadAccelerator.read`."""
        steps = self._engine.start_read(stream_id, start, end, max_bytes)
        return AsyncReading(self._engine, self._images, steps, start, ranges)

    async def _run(self, script: Script[T]) -> T:
        engine, images = self._engine, self._images
        try:
            waiting = next(script)
            while True:
                try:
                    sent = await _wait_for(engine, images, waiting)
                except Exception as error:  # noqa: BLE001 - whatever it is, the script decides about it
                    waiting = script.throw(error)
                else:
                    waiting = script.send(sent)
        except StopIteration as stop:
            result: T = stop.value
            return result


class AsyncReading(ReadingBase, AsyncIterator[RecordBatch]):
    """Record batches as they are read; `next_offset` and `ending` as in `Reading`. One task at a time.

    A task that was cancelled while it waited for a batch (`asyncio.wait_for`) may ask again and misses none. As an
    asynchronous context manager it is closed at the end.
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __init__(
        self, engine: Engine, images: AsyncImages, steps: ReadSteps, start: int, ranges: Ranges | None
    ) -> None:
        super().__init__(engine, steps, start, ranges)
        self._images = images

    async def __anext__(self) -> RecordBatch:
        while (waiting := self._advance()) is not None:
            try:
                self._came(await _wait_for(self._engine, self._images, waiting))
            except Exception as error:  # noqa: BLE001 - likewise
                self._failed(error)
        if self._ready:
            return self._take()
        raise StopAsyncIteration


async def _wait_for(engine: Engine, images: AsyncImages, waiting: Waiting) -> object:
    if isinstance(waiting, CurrentImage):
        return await images.current()
    if isinstance(waiting, Wait):
        waiters, timeout_seconds = map(_waiter, waiting.futures), waiting.timeout_seconds
        done, _ = await asyncio.wait(waiters, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    if isinstance(waiting, Call):
        return await asyncio.get_running_loop().run_in_executor(engine.executor, waiting.function)
    return await images.newer(waiting.version, waiting.deadline)


def _waiter(load: Future[T]) -> asyncio.Future[T]:
    """To be waited for by `asyncio.wait`, which leaves the load alone when its own task is cancelled."""
    waiter = asyncio.wrap_future(load)
    waiter.add_done_callback(_look_at)
    return waiter


def _look_at(waiter: asyncio.Future[Any]) -> None:
    # Whoever still waits raises the error; asyncio would warn of one that nobody looked at.
    if not waiter.cancelled():
        waiter.exception()


class AsyncImages:
    """Lets tasks have images without blocking the loop, and wait for them without holding a thread each.

    Args:
        engine: has the source of images; both are called in threads of this object's own.

    Threads: one event loop.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._asked: SharedLoads[str, MetadataImage | None] = SharedLoads(0, lambda _: 1)
        self._threads = Threads(QUESTIONS, "accel-image")

    async def current(self) -> MetadataImage:
        """The newest image at hand, installed; only where the source has to ask for it, this waits for that.

        Raises:
            ImageTooOld: nothing may be served from it, and there is no younger one.
        """
        image = self._engine.image_at_hand()
        if image is not None:
            return image
        asking, _ = self._asked.start("current", self._threads, self._engine.image)
        await asyncio.wait({_waiter(asking)})
        return cast("MetadataImage", asking.result())

    async def newer(self, version: ImageVersion, deadline: Deadline) -> MetadataImage | None:
        """An image newer than this version, or None when the time is over; asks once, however short the time.

        Raises:
            What the source raises.
        """
        while True:
            image = self._engine.image_at_hand()
            if image is not None and is_newer(image.version, version):
                return image
            left_seconds = deadline.left_seconds() or 0.0
            ask = partial(self._engine.source.wait_newer, version, min(left_seconds, WAIT_SECONDS_MAX))
            asking, is_own = self._asked.start("newer", self._threads, ask)
            done, _ = await asyncio.wait({_waiter(asking)}, timeout=None if is_own else left_seconds)
            newer = asking.result() if done else None
            if newer is not None and is_newer(newer.version, version):
                return newer
            if not deadline.left_seconds():
                return None

    def close(self) -> None:
        """Stop asking; a question that is under way ends by itself."""
        self._threads.shutdown(wait=False)
