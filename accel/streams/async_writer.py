"""`AsyncStreamWriter`: writes a stream from an event loop, by a `StreamWriter` whose calls never block the loop.

in the loop's thread    takes events, awaits futures, and awaits room while the buffers are full
in other threads        everything that sends requests to the store: opening, flushing, transactions, closing
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from threading import Lock
from types import TracebackType
from typing import Self, TypeVar
from uuid import UUID

from accel.history.rules.values import checked_arguments
from accel.history.store import Stream
from accel.streams.acknowledgements import WriteFuture
from accel.streams.rules.routing import size_bytes_of
from accel.streams.segments_host import Host
from accel.streams.settings import StreamWriterSettings
from accel.streams.writer import Key, StreamWriter
from accel.system import Components
from loaders.awaiting import in_thread, opened, outcome, undo_late, wake
from loaders.lifetime import Lifetime

Taken = TypeVar("Taken", WriteFuture, list[WriteFuture])


@checked_arguments
class AsyncStreamWriter:
    """Writes events to one stream from an event loop; arguments, results and errors are those of `StreamWriter`.

        async with AsyncStreamWriter(stream, host) as writer:
            future = await writer.write(b"an event", key=b"order-17")
            print(await future)                             the event is durable: prints its segment and offset

    A task that is cancelled while it waits for room has written nothing; a task that is cancelled while it waits for a
    future, or in `flush`, loses no event: the event is written once and becomes durable. Requests to the store are made
    in threads, and continue there if the task is cancelled.

    Threads: any, and any event loops; any number of tasks.
    """

    def __init__(
        self,
        stream: Stream,
        host: Host,
        *,
        settings: StreamWriterSettings = StreamWriterSettings(),  # noqa: B008 - immutable
        system: Components | None = None,
        writer_id: UUID | None = None,
    ) -> None:
        self.settings = settings
        self._lifetime = Lifetime(f"a writer of {stream.name}", host.own.system.process_id)
        self._open = partial(StreamWriter, stream, host, settings=settings, system=system, writer_id=writer_id)
        self._lock = Lock()  # guards the attribute below
        self._opening: Future[StreamWriter] | None = None
        self._commits = host.own.commits
        self._system = host.own.system if system is None else system

    async def __aenter__(self) -> Self:
        try:
            await self._writer()
        except BaseException:
            opening, self._opening = self._opening, None
            if opening is not None:
                undo_late(opening, StreamWriter.close)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()

    async def resume(self, expected: int | None = None) -> int:
        """See `StreamWriter.resume`."""
        return (await self._writer()).resume(expected)

    async def write(
        self, payload: bytes, key: Key, *, transaction: UUID | None = None, number: int | None = None
    ) -> WriteFuture:
        """See `StreamWriter.write`; waits only while the buffers are full, without blocking the loop's thread."""
        writer = await self._writer()
        if transaction is None:
            return await self._taken(partial(writer.write_now, payload, key, number=number), size_bytes_of([payload]))
        return writer.write(payload, key, transaction=transaction, number=number)

    async def write_many(
        self,
        events: Iterable[tuple[bytes, Key]],
        *,
        transaction: UUID | None = None,
        number: int | None = None,
    ) -> list[WriteFuture]:
        """See `StreamWriter.write_many`; waits as `write`."""
        writer = await self._writer()
        pairs = list(events)
        if transaction is None:
            size_bytes = size_bytes_of(each for each, _ in pairs)
            return await self._taken(partial(writer.write_many_now, pairs, number=number), size_bytes)
        return writer.write_many(pairs, transaction=transaction, number=number)

    async def flush(self) -> None:
        """See `StreamWriter.flush`."""
        await asyncio.to_thread((await self._writer()).flush)

    async def carry_out_requests(self) -> list[str]:
        """See `StreamWriter.carry_out_requests`."""
        return await asyncio.to_thread((await self._writer()).carry_out_requests)

    async def begin_transaction(self, *, lease_ms: int | None = None, writer_id: str | None = None) -> UUID:
        """See `StreamWriter.begin_transaction`. If the task is cancelled meanwhile, the transaction is aborted."""
        writer = await self._writer()
        begin = partial(writer.begin_transaction, lease_ms=lease_ms, writer_id=writer_id)
        return await opened(begin, writer.abort_transaction)

    async def commit_transaction(self, transaction: UUID) -> None:
        """See `StreamWriter.commit_transaction`."""
        await asyncio.to_thread((await self._writer()).commit_transaction, transaction)

    async def abort_transaction(self, transaction: UUID) -> None:
        """See `StreamWriter.abort_transaction`."""
        await asyncio.to_thread((await self._writer()).abort_transaction, transaction)

    async def close(self) -> None:
        """See `StreamWriter.close`. Sends nothing if the writer was never used."""
        self._lifetime.close()
        opening = self._opening
        if (
            opening is not None
        ):  # in one call, so that a task that is cancelled before it has opened leaves nothing open
            await outcome(in_thread(partial(_close, opening)))

    async def _writer(self) -> StreamWriter:
        """Return the writer; the first call opens it in a thread, because opening sends requests to the store."""
        with self._lock:
            opening = self._opening
            if opening is None or (opening.done() and opening.exception() is not None):
                if self._lifetime.is_closed:
                    self._lifetime.check()  # raises
                opening = self._opening = in_thread(self._open)
        return await outcome(opening)

    async def _taken(self, take: Callable[[], Taken | None], size_bytes: int) -> Taken:
        deadline = self._system.timer() + self.settings.room_seconds
        while (taken := take()) is None:
            loop, woken = asyncio.get_running_loop(), asyncio.Event()
            listener = partial(wake, loop, woken)
            self._commits.when_freed(listener)
            try:
                if (taken := take()) is not None:
                    break
                async with asyncio.timeout(max(0.0, deadline - self._system.timer())):
                    await woken.wait()
            except TimeoutError:
                raise self._commits.stalled(size_bytes, self.settings.room_seconds) from None
            finally:
                self._commits.forget(listener)  # else listeners of cancelled tasks would pile up while a store is down
        return taken


def _close(opening: Future[StreamWriter]) -> None:
    if opening.exception() is None:
        opening.result().close()
