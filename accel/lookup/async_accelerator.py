"""The accelerator for asyncio: what `accelerator.py` does, awaited instead of waited for.

Loads run in the accelerator's own threads, and the source of images is asked beside lookups (`following.py`), so that
one event loop can have thousands of lookups under way. A task that is cancelled while it waits leaves the load or the
question alone: others may wait for the same one, and its result is kept. The loop itself never waits for either.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from accel.errors import AccelError
from accel.image import OPEN_END, ImageVersion, MetadataImage, is_newer
from accel.lookup.accelerator import AcceleratorBase
from accel.lookup.answer import Answer, Request, check_seconds
from accel.lookup.engine import Engine
from accel.lookup.following import WAIT_SECONDS_MAX
from accel.lookup.reading import BYTES_MAX, Ranges
from accel.lookup.scripts import (
    AT_ONCE_MAX,
    Deadline,
    ReadingBase,
    Script,
    Wait,
    Waiting,
    checked_requests,
    current_image,
)
from accel.lookup.warming import WarmReport
from loaders.format import RecordBatch

if TYPE_CHECKING:
    from accel.lookup.explain import Explanation

T = TypeVar("T")


class AsyncReadAccelerator(AcceleratorBase):
    """Lookups and reads for asyncio; the methods are those of `ReadAccelerator`, to be awaited.

    A source that asks for its images itself (`PolledImages`, `ObjectCatalog.images`) is asked in a thread, and lookups
    go on with the image at hand. Only making an accelerator may block, if its source is due then; on a running loop
    make both together, or in a thread.

    Threads: one event loop. Close it, or use it as an asynchronous context manager.
    """

    _refreshing: asyncio.Future[Any] | None = None
    _refresh_next: asyncio.Task[bool] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop loading; ends when the requests that are under way have ended. Calls that need more raise Closed."""
        self._is_closed = True
        await asyncio.to_thread(self._close_engine)

    async def refresh(self) -> bool:
        """Ask the source of images for a newer one now, and install it; see `ReadAccelerator.refresh`.

        Tasks that ask while a question is under way share the next one, since the one under way may have begun before
        what they want to see was committed. A task that is cancelled leaves the question alone.
        """
        if self._refresh_next is None:
            self._refresh_next = asyncio.ensure_future(self._refresh())
            self._refresh_next.add_done_callback(_look_at)
        return await asyncio.shield(self._refresh_next)

    async def _refresh(self) -> bool:
        """Ask when the question before has ended; who comes from then on begins another one."""
        if self._refreshing is not None:
            await asyncio.wait([self._refreshing])
        self._refresh_next = None
        self._refreshing = _waiter(self._engine.images.ask_refresh())
        await asyncio.wait([asked := self._refreshing])
        return asked.result() is not None

    async def follow(self) -> bool:
        """Ask for a newer image unless somebody has just asked, and install it; see `ReadAccelerator.follow`."""
        engine = self._engine
        image = await self._run(current_image(engine, Deadline(engine.system.timer, None)))
        if not engine.images.may_ask():
            return False
        asked = engine.images.ask_newer(image.version)
        await _done(asked)
        return isinstance(engine.images.newer(asked, image.version), MetadataImage)

    def newer_images(self, version: ImageVersion | None = None) -> NewerImages:
        """Each newer image as it comes, for ``async for``, without an end; what comes between two looks is left out.

        The source is asked in a thread, as often as for a fetch that waits, and at once after `image_changed`. A source
        that fails is asked again.

        Args:
            version: images newer than this; None = than the one at hand.
        """
        return NewerImages(self, self._engine.images.image.version if version is None else version)

    async def next_newer(self, version: ImageVersion) -> MetadataImage | None:
        """Wait some seconds for an image newer than this; None if there was none; see `newer_images`.

        Raises:
            ImageTooOld: nothing may be served from what is at hand, and the source has nothing younger.
            Closed: the accelerator was closed.
        """
        images = self._engine.images
        if not is_newer(images.image.version, version):
            asked = self.next_image(version, WAIT_SECONDS_MAX)
            await _done(asked)
            asked.result()
        return images.image if is_newer(images.image.version, version) else None

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
        check_seconds("deadline_seconds", deadline_seconds)
        request = Request(stream_id, start, end, limit, max_fill_rounds)
        begun = self._begin(request)
        if isinstance(begun, Answer):
            return begun
        return await self._run(self._look_up(request, deadline_seconds, begun=begun))

    async def get_objects_many(
        self, requests: Iterable[Request], *, deadline_seconds: float | None = None
    ) -> list[Answer | AccelError]:
        """As `get_objects`, of many requests, whose loads share rounds; see `ReadAccelerator.get_objects_many`."""
        check_seconds("deadline_seconds", deadline_seconds)
        places = asyncio.Semaphore(AT_ONCE_MAX)
        asked = checked_requests(requests)
        outcomes, rest = self._begin_many(asked)

        async def look_up(number: int) -> None:
            async with places:
                try:
                    outcomes[number] = await self._run(
                        self._look_up(asked[number], deadline_seconds, begun=rest[number])
                    )
                except AccelError as error:
                    outcomes[number] = error

        await asyncio.gather(*map(look_up, rest))
        return [outcomes[number] for number in range(len(asked))]

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
        check_seconds("deadline_seconds", deadline_seconds)
        request = Request(stream_id, start, end, limit, max_fill_rounds)
        return await self._run(self._explain(request, deadline_seconds))

    async def fetch(
        self, stream_id: int, start: int, end: int = OPEN_END, limit: int = 4, *, timeout_seconds: float
    ) -> Answer:
        """Wait for newer images while there is a hole; see `ReadAccelerator.fetch`."""
        check_seconds("timeout_seconds", timeout_seconds)
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
        return AsyncReading(self._engine, stream_id, start, end, max_bytes, ranges)

    async def _run(self, script: Script[T]) -> T:
        engine = self._engine
        try:
            waiting = next(script)
            while True:
                try:
                    sent = await _wait_for(engine, waiting)
                except Exception as error:  # noqa: BLE001 - whatever it is, the script decides about it
                    waiting = script.throw(error)
                else:
                    waiting = script.send(sent)
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            script.close()  # who is cancelled ends here, not when the last frame of his traceback is forgotten


class NewerImages(AsyncIterator[MetadataImage]):
    """Each newer image as it comes; `AsyncReadAccelerator.newer_images` gives it. One task at a time.

    A task that was cancelled while it waited may ask again. Raises as `AsyncReadAccelerator.next_newer`.

    Args:
        accelerator: whose source is asked.
        version: of the image that is known.
    """

    def __init__(self, accelerator: AsyncReadAccelerator, version: ImageVersion) -> None:
        self._accelerator = accelerator
        self.version = version

    async def __anext__(self) -> MetadataImage:
        while (image := await self._accelerator.next_newer(self.version)) is None:
            pass
        self.version = image.version
        return image


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

    async def __anext__(self) -> RecordBatch:
        while (waiting := self._advance()) is not None:
            try:
                self._came(await _wait_for(self._engine, waiting))
            except Exception as error:  # noqa: BLE001 - likewise
                self._failed(error)
        if self._columns:
            return self._take()
        raise StopAsyncIteration


async def _wait_for(engine: Engine, waiting: Waiting) -> object:
    if isinstance(waiting, Wait):
        waiters, timeout_seconds = map(_waiter, waiting.futures), waiting.timeout_seconds
        done, _ = await asyncio.wait(waiters, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)
    return await asyncio.get_running_loop().run_in_executor(engine.executor, waiting.function)


async def _done(asked: Future[Any]) -> None:
    """Wait until this is done, whatever came of it."""
    await asyncio.wait([_waiter(asked)])


def _waiter(load: Future[T]) -> asyncio.Future[T]:
    """To be waited for by `asyncio.wait`, which leaves the load alone when its own task is cancelled."""
    waiter = asyncio.wrap_future(load)
    waiter.add_done_callback(_look_at)
    return waiter


def _look_at(waiter: asyncio.Future[Any]) -> None:
    # Callers that still wait raise the error; asyncio would warn of an error that nothing retrieved.
    if not waiter.cancelled():
        waiter.exception()
