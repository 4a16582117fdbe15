"""The accelerator for asyncio: the methods of `accelerator.py` as coroutines.

Loads run in the accelerator's own threads, and the image source is asked in the background (`following.py`), so that
one event loop can run thousands of lookups. Cancelling a waiting task does not cancel the load or the query: other
tasks may wait for it, and its result is kept. The event loop itself never waits for either.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from accel.errors import AccelError
from accel.image import OPEN_END, ImageVersion, MetadataImage, is_newer
from accel.lookup.accelerator import AcceleratorBase
from accel.lookup.answer import Answer, Request, checked_arguments
from accel.lookup.drivers import (
    AT_ONCE_MAX,
    Deadline,
    ReadingBase,
    Script,
    checked_requests,
    current_image,
)
from accel.lookup.following import WAIT_SECONDS_MAX
from accel.lookup.hints import WarmReport
from accel.lookup.reading import BYTES_MAX, Ranges
from loaders.awaiting import ended, in_thread, outcome
from loaders.format import RecordBatch
from loaders.settings import TimeLimit

if TYPE_CHECKING:
    from accel.lookup.explain import Explanation

T = TypeVar("T")


@checked_arguments
class AsyncReadAccelerator(AcceleratorBase):
    """Lookups and reads for asyncio, with the methods of `ReadAccelerator` as coroutines.

    A source that polls for its images (`PolledImages`, `ObjectCatalog.images`) is asked in a thread, and lookups
    continue with the current image. Only the constructor may block, if the source is due to poll; on a running event
    loop construct source and accelerator together, or in a thread.

    Threads: any, and any event loops, one after the other or side by side. Close it, or use it as an asynchronous
    context manager.
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop loading; returns when the running requests have ended. Calls that need further requests raise Closed."""
        self._is_closed = True
        await outcome(in_thread(self._close_engine))  # begins, also if this task is cancelled

    async def refresh(self) -> bool:
        """Ask the image source for a newer image now, and install it; see `ReadAccelerator.refresh`.

        Tasks that call this during a query share the next query, since the current one may have begun before the
        commits that they need. Cancelling a task does not cancel the query.
        """
        return await outcome(self._engine.images.ask_refresh()) is not None

    async def follow(self) -> bool:
        """Ask for a newer image unless a query was just made, and install it; see `ReadAccelerator.follow`."""
        engine = self._engine
        image = await self._run(current_image(engine, Deadline(engine.system.timer, None)))
        if not engine.images.may_ask(image.version):
            return False
        asked = engine.images.ask_newer(image.version)
        await ended([asked])
        return isinstance(engine.images.newer(asked, image.version), MetadataImage)

    def newer_images(self, version: ImageVersion | None = None) -> NewerImages:
        """Each newer image, for ``async for``, without an end; images that are replaced between two steps are skipped.

        The source is asked in a thread, as often as for a waiting fetch, and at once after `image_changed`. A source
        that fails is asked again.

        Args:
            version: images newer than this; None = newer than the current one.
        """
        return NewerImages(self, self._engine.images.image.version if version is None else version)

    async def next_newer(self, version: ImageVersion) -> MetadataImage | None:
        """Wait up to 5 seconds for an image newer than this; None if there was none; see `newer_images`.

        Raises:
            ImageTooOld: the current image may not be used, and the source has no younger one.
            Closed: the accelerator was closed.
        """
        images = self._engine.images
        if not is_newer(images.image.version, version):
            await outcome(self.next_image(version, WAIT_SECONDS_MAX))
        return images.image if is_newer(images.image.version, version) else None

    async def warm(self, nodes: Iterable[int] | None = None) -> WarmReport:
        """Load the hints of these nodes before the first lookup; see `ReadAccelerator.warm`."""
        return await asyncio.to_thread(self._engine.warm, nodes)

    async def get_objects(
        self,
        stream_id: int,
        start: int,
        end: int = OPEN_END,
        limit: int = 4,
        *,
        deadline_seconds: TimeLimit = None,
        max_fill_rounds: int | None = None,
    ) -> Answer:
        """The objects that hold offsets [start, end) of a stream; see `ReadAccelerator.get_objects`."""
        request = Request(stream_id, start, end, limit, max_fill_rounds)
        begun = self._begin(self._engine, request)
        if isinstance(begun, Answer):
            return begun
        return await self._run(self._look_up(request, deadline_seconds, begun=begun))

    async def get_objects_many(
        self, requests: Iterable[Request], *, deadline_seconds: TimeLimit = None
    ) -> list[Answer | AccelError]:
        """As `get_objects`, for many requests, whose loads share rounds; see `ReadAccelerator.get_objects_many`."""
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
        deadline_seconds: TimeLimit = None,
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
        return AsyncReading(self._engine, stream_id, start, end, max_bytes, ranges)

    async def _run(self, script: Script[T]) -> T:
        try:
            waiting = next(script)
            while True:
                waiting = script.send(await ended(waiting.futures, waiting.timeout_seconds))
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            script.close()  # a cancelled call ends here, not when its traceback is freed


class NewerImages(AsyncIterator[MetadataImage]):
    """Iterates over newer images; returned by `AsyncReadAccelerator.newer_images`. One task at a time.

    After a cancelled wait the iteration may continue. Raises as `AsyncReadAccelerator.next_newer`.

    Args:
        accelerator: its source is asked.
        version: of the last image that the caller has.
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

    After a cancelled wait for a batch (`asyncio.wait_for`) the iteration may continue, and no batch is lost. As an
    asynchronous context manager the reading is closed at the end.
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __anext__(self) -> RecordBatch:
        while (waiting := self._advance()) is not None:
            self._came(await ended(waiting.futures, waiting.timeout_seconds))
        if self._columns:
            return self._take()
        raise StopAsyncIteration
