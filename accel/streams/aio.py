"""For asyncio: the readers and the writer of streams, in event loops whose tasks may be cancelled.

    in the loop's thread    decides what to read, takes events, and waits: for answers, futures, and room in the buffers
    in other threads        everything that sends requests to the store: reads, openings, flushes, transactions, groups

A call in a thread continues if its task is cancelled: the next call waits for its end, and loses nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable
from concurrent.futures import Future, wait
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from threading import Lock
from types import TracebackType
from typing import Any, Generic, Self, TypeVar
from uuid import UUID

from accel.history.rules.values import (
    IdMap,
    checked_arguments,
)
from accel.history.store import Stream
from accel.streams.acknowledgements import WriteFuture
from accel.streams.group_readers import GroupMember
from accel.streams.reader import CutReader, ReaderBase
from accel.streams.rules.events import Event, EventBatch
from accel.streams.rules.routing import size_bytes_of
from accel.streams.segments_host import Host
from accel.streams.settings import StreamWriterSettings
from accel.streams.writer import Key, StreamWriter
from accel.system import Components
from loaders.awaiting import ended, in_thread, opened, outcome, undo_late, wake
from loaders.lifetime import Lifetime
from loaders.settings import TimeLimit

Answer = TypeVar("Answer")
Opened = TypeVar("Opened", bound=AbstractAsyncContextManager[Any])
Taken = TypeVar("Taken", WriteFuture, list[WriteFuture])


# Readers


@checked_arguments
class AsyncReader(ReaderBase, AsyncIterator[Event]):
    """A reader whose calls are awaited. One task at a time.

    A task that was cancelled while it waited may call again, and misses no event.
    """

    _woken: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
    _asking: Future[Any] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    async def _end(self) -> None:
        """End the ``async with`` block."""
        self._close()

    async def __anext__(self) -> Event:
        event = await self.next_event()
        if event is None:
            raise StopAsyncIteration
        return event

    async def next_event(self, timeout_seconds: TimeLimit = None) -> Event | None:
        """Return the next event; None if none arrived in time. See `next_batch` for the time-out, and for None."""
        self._check()
        await self._settle()
        while (event := self._next_event()) is None:
            if not await self._fill(timeout_seconds):
                return None
        return event

    async def next_batch(self, timeout_seconds: TimeLimit = None) -> EventBatch | None:
        """Return the next batch, which is events that were appended together; None if none arrived in time.

        The events count as returned. If the first events of a batch were returned one by one, the result is the rest of
        the batch. `is_finished` shows whether more may come; without a time-out the result is None at the end only.

        Args:
            timeout_seconds: how long to wait at most; None = until there is a batch, or the reader is at its end.
        """
        return self._rest() if await self._fill(timeout_seconds) else None

    async def _fill(self, timeout_seconds: float | None) -> bool:
        """Wait until there are events to return; returns whether there are."""
        deadline = None if timeout_seconds is None else self._system.timer() + timeout_seconds
        self._lifetime.check_process()
        woken = self._listen()
        with self._mended():
            await self._attend()
            self._check()
            self._batch = self._batch if self._is_open else None
            while self._batch is None and self._is_waited_for:
                self._check()
                woken.clear()
                self._hand_on()
                await self._attend()
                if self._take() is not None or not self._is_waited_for:
                    break
                left = None if deadline is None else max(0.0, deadline - self._system.timer())
                if left == 0:
                    break
                waits = [wait for wait in (self._wait_seconds(), left) if wait is not None]
                # Not `wait_for`: before Python 3.12 it loses a cancellation that comes together with the wake-up.
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(waits, default=None)):
                        await woken.wait()
        return self._batch is not None

    async def _attend(self) -> None:
        """Do the work that comes before the next event; a group reader calls its group here."""
        await self._settle()

    async def _ask_in_thread(self, work: Callable[[], Answer]) -> Answer:
        """Run work in a thread, after the work of a cancelled task has ended; cancelling this task does not stop it."""
        await self._settle()
        self._lifetime.check_process()
        asking = self._asking = in_thread(work)
        await self._settle()
        answer: Answer = asking.result()
        return answer

    async def _settle(self) -> None:
        """Wait for the end of work in a thread; the caller of the work, if it was not cancelled, gets the error."""
        if self._asking is not None:
            await ended([self._asking])
            self._asking = None

    def _listen(self) -> asyncio.Event:
        loop = asyncio.get_running_loop()
        if self._woken is None or self._woken[0] is not loop:
            self._woken = loop, asyncio.Event()
        return self._woken[1]

    def _wake(self) -> None:
        if self._woken is not None:
            wake(*self._woken)


class AsyncStreamReader(AsyncReader, CutReader):
    """Events of a stream, for ``async for``; arguments and errors are those of `StreamReader`. One task at a time.

    A task that was cancelled while it waited may call again, and misses no event.
    """

    async def __anext__(self) -> Event:
        self._check()
        event = None if self._asking is not None else self._next_event()  # as in `StreamReader`
        return await super().__anext__() if event is None else event

    def close(self) -> None:
        """Stop reading; does not wait for requests under way."""
        self._close()

    async def skip_to_head(self) -> IdMap:
        """Continue at the stream's head in segments where the position is before it; returns the new position."""
        return await self._ask_in_thread(self._skip_to_head)


@checked_arguments
class AsyncGroupReader(GroupMember, AsyncReader):
    """One reader of a group, for ``async for``; arguments, guarantees and errors are those of `GroupReader`.

    One task at a time. Calls of the group are made in a thread, and events are decoded in the reader's own threads. A
    task that was cancelled while it waited may call again, and misses no event: a call of the group that is under way
    continues, and the next request waits for it first.
    """

    async def _end(self) -> None:
        await self.close()

    async def next_event(self, timeout_seconds: TimeLimit = None) -> Event | None:
        """See `GroupReader.next_event`."""
        self._note_asked()
        await self._attend()
        event = await super().next_event(timeout_seconds)
        if event is None:
            self._member.refuse_uncommitted(self._stream.name)
        return event

    async def next_batch(self, timeout_seconds: TimeLimit = None) -> EventBatch | None:
        """See `GroupReader.next_batch`."""
        self._note_asked()
        return await super().next_batch(timeout_seconds)

    async def commit(self) -> None:
        """See `GroupReader.commit`."""
        await self._ask_in_thread(self._commit)

    async def rebalance(self) -> None:
        """See `GroupReader.rebalance`."""
        await self._ask_in_thread(self._rebalance)

    async def leave(self) -> None:
        """See `GroupReader.leave`."""
        await self._ask_in_thread(self._leave)

    async def close(self) -> None:
        """See `GroupReader.close`. A task that is cancelled meanwhile leaves the group all the same."""
        asking = self._asking

        def leave() -> None:
            if asking is not None:
                wait([asking])  # a member that is joining could not leave yet
            self._leave_for_good()

        self._asking = leaving = in_thread(leave)
        try:
            await outcome(leaving)
        finally:
            self._close()

    async def skip_to_head(self) -> IdMap:
        """See `GroupReader.skip_to_head`."""
        return await self._ask_in_thread(self._skip_to_head)

    async def _attend(self) -> None:
        await super()._attend()
        if (work := self._due()) is not None:
            await self._ask_in_thread(work)


# The writer


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


# Openings


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
