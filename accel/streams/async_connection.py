"""A connection for asyncio: what ``async with accel.connect(...)`` gives, and its readers and writers.

Each part is opened in a thread. If the task that waits for it is cancelled, the part is closed: by the thread that
opened it, when it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack
from uuid import UUID
from weakref import WeakSet

from accel.history.rules.configuration import StreamConfiguration
from accel.history.rules.values import Cut, checked_arguments
from accel.history.store import Stream
from accel.streams.async_writer import AsyncStreamWriter
from accel.streams.group_readers import AsyncGroupReader
from accel.streams.groups import ReaderGroup
from accel.streams.reader import AsyncStreamReader
from accel.streams.settings import StreamWriterSettings
from loaders.awaiting import opened
from loaders.lifetime import Lifetime

if TYPE_CHECKING:
    from accel.streams.connection import Connection, GroupReaderOptions, ReaderOptions

Opened = TypeVar("Opened", bound=AbstractAsyncContextManager[Any])
Given = TypeVar("Given", AsyncStreamWriter, AsyncGroupReader)


@checked_arguments
class AsyncConnection:
    """The streams of a bucket, for asyncio, as returned by ``async with accel.connect(...)``. Tasks: any.

    Requests to the store are made in threads; readers and writers wait in the event loop. At the end of the block its
    writers are flushed, and its readers leave their groups; also if its task is cancelled. After an error in the block
    writers are not flushed.

    Args:
        connection: the connection for threads, which has the parts.

    Attributes:
        connection: as the argument.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._given: WeakSet[AsyncStreamWriter | AsyncGroupReader] = WeakSet()
        self._lifetime = Lifetime("a connection")

    async def close_given(self, *, is_failed: bool = False) -> None:
        """Close its writers and readers of groups, side by side; the end of the block calls this.

        Args:
            is_failed: whether writers stay unflushed and errors are ignored.

        Raises:
            AccelError: as `AsyncStreamWriter.close` and `AsyncGroupReader.close`; the first error, after all were
                closed.
        """
        self._lifetime.close()
        closing = [each for each in self._given if not (is_failed and isinstance(each, AsyncStreamWriter))]
        begun = [asyncio.ensure_future(each.close()) for each in closing]
        try:
            await asyncio.sleep(0)  # all of them begin, also if this task is cancelled now
        finally:
            ends = await asyncio.gather(*begun, return_exceptions=True)
        failed = next((end for end in ends if isinstance(end, BaseException)), None)
        if failed is not None and not is_failed:
            raise failed

    def __repr__(self) -> str:
        return f"AsyncConnection({self.connection.store!r})"

    async def _kept(self, opening: Callable[[], Given]) -> Given:
        made = await asyncio.to_thread(opening)
        self._lifetime.check()  # it would not be closed; it has sent nothing yet
        self._given.add(made)
        return made

    async def create_scope(self, scope: str) -> bool:
        """See `Connection.create_scope`."""
        return await asyncio.to_thread(self.connection.create_scope, scope)

    async def create_stream(
        self, scope: str, name: str, wanted: StreamConfiguration | None = None, *, segments: int | None = None
    ) -> Stream:
        """See `Connection.create_stream`."""
        return await asyncio.to_thread(self.connection.create_stream, scope, name, wanted, segments=segments)

    async def stream(self, scope: str, name: str) -> Stream:
        """See `Connection.stream`. Calls of a stream ask the store: make them by `asyncio.to_thread`."""
        return await asyncio.to_thread(self.connection.stream, scope, name)

    async def refresh(self) -> bool:
        """Load the newest image for readers; returns whether it was new. See `ReadAccelerator.refresh`."""

        def refreshed() -> bool:
            return self.connection.accelerator.refresh()  # this may open the accelerator

        return await asyncio.to_thread(refreshed)

    def reader(self, scope: str, name: str, **options: Unpack[ReaderOptions]) -> Opening[AsyncStreamReader]:
        """A reader, by ``async with`` or ``await``; see `Connection.reader`."""
        opening = partial(self.connection.open_reader, AsyncStreamReader, scope, name, **options)
        return Opening(partial(opened, opening, AsyncStreamReader.close))

    def writer(
        self,
        scope: str,
        name: str,
        *,
        writer_id: UUID | None = None,
        settings: StreamWriterSettings | None = None,
    ) -> Opening[AsyncStreamWriter]:
        """A writer, by ``async with`` or ``await``; see `Connection.writer`."""
        connection = self.connection

        def opening() -> AsyncStreamWriter:
            segments = connection.segments()
            stream = connection.stream_store.stream(scope, name, host=segments)
            return AsyncStreamWriter(stream, segments, settings=settings or StreamWriterSettings(), writer_id=writer_id)

        return Opening(partial(self._kept, opening))

    def group_reader(
        self, scope: str, name: str, group: str, reader: str, **options: Unpack[GroupReaderOptions]
    ) -> Opening[AsyncGroupReader]:
        """A reader of a group, by ``async with`` or ``await``; see `Connection.group_reader`."""
        opening = partial(self.connection.open_group_reader, AsyncGroupReader, scope, name, group, reader, **options)
        return Opening(partial(self._kept, opening))

    async def group(self, scope: str, name: str, group: str, from_cut: Cut | None = None) -> ReaderGroup:
        """See `Connection.group`."""
        return await asyncio.to_thread(self.connection.group, scope, name, group, from_cut)


class Opening(Generic[Opened]):
    """A reader or writer that is opened in a thread: ``async with`` opens and closes it; ``await`` opens it. Once.

    Args:
        opening: opens the reader or writer.
    """

    _opened: Opened

    def __init__(self, opening: Callable[[], Coroutine[Any, Any, Opened]]) -> None:
        self._opening = opening

    def __await__(self) -> Generator[Any, None, Opened]:
        return self._opening().__await__()

    async def __aenter__(self) -> Opened:
        self._opened = await self
        await self._opened.__aenter__()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._opened.__aexit__(kind, error, trace)
