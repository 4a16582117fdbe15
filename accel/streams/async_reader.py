"""Reads a stream from cut to cut, its segments merged in the order of time: for asyncio.

    async with AsyncStreamReader(stream, source) as reader:
        async for event in reader:
            ...

The same as `StreamReader`, decided by the same `reader_core` and filled by the same threads; only the waiting differs.
Cuts are looked up when it is made, which asks the store: make it in a thread (`asyncio.to_thread`) where that matters.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from types import TracebackType
from typing import Self

from accel.history.rules.ids import IdMap
from accel.streams.events import Event, EventBatch
from accel.streams.reader_base import CutReader


class AsyncStreamReader(CutReader, AsyncIterator[Event]):
    """Events of a stream, for ``async for``; arguments and errors are those of `StreamReader`. One task at a time.

    A task that was cancelled while it waited may ask again, and misses nothing.
    """

    _loop: asyncio.AbstractEventLoop | None = None
    _woken: asyncio.Event | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Read no more; requests under way are not waited for."""
        self._close()

    async def __anext__(self) -> Event:
        self._check()
        while (event := self._next_event()) is None:
            batch = await self.next_batch()
            if batch is None:
                raise StopAsyncIteration
            self._open_batch(batch)
        return event

    async def next_batch(self, timeout_seconds: float | None = None) -> EventBatch | None:
        """The events that were appended together next; None at the end, or when the time is over.

        They count as given. Of a batch whose first events were given one by one, these are the others.

        Args:
            timeout_seconds: how long to wait at most; None = as long as it takes.
        """
        self._check()
        rest = self._rest()
        deadline = None if timeout_seconds is None else self._system.timer() + timeout_seconds
        woken = self._listen()
        while rest is None and not self.is_finished:
            self._check()
            woken.clear()
            self._hand_on()
            rest = self._take()
            if rest is not None or self.is_finished:
                break
            left = None if deadline is None else max(0.0, deadline - self._system.timer())
            if left == 0:
                break
            waits = [each for each in (self._wait_seconds(), left) if each is not None]
            # Not `wait_for`: before Python 3.12 it loses a cancellation that comes together with the wake-up.
            with suppress(TimeoutError):
                async with asyncio.timeout(min(waits, default=None)):
                    await woken.wait()
        return rest

    async def skip_to_head(self) -> IdMap:
        """Go on at the stream's head wherever that lies behind the position; gives the new position."""
        return await asyncio.to_thread(self._skip_to_head)

    def _listen(self) -> asyncio.Event:
        loop = asyncio.get_running_loop()
        if self._woken is None or self._loop is not loop:
            self._loop, self._woken = loop, asyncio.Event()
        return self._woken

    def _wake(self) -> None:
        loop, woken = self._loop, self._woken
        if loop is not None and woken is not None:
            with suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits
                loop.call_soon_threadsafe(woken.set)
