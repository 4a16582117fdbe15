"""Calls that run in threads, awaited by tasks of any event loop, which may be cancelled.

A future of asyncio belongs to one event loop, and ends with the task that awaits it. Objects outlive both: a program
may use them in the loops of several `asyncio.run`, and several tasks may wait for one call. So objects keep futures of
threads (`concurrent.futures.Future`), and nothing of a loop after a wait:

    | function    | returns                         | if the task is cancelled, or its loop ends                |
    |-------------|---------------------------------|-----------------------------------------------------------|
    | `in_thread` | the future of a new call        |                                                           |
    | `ended`     | whether one of the calls ended  | the calls continue, for others that wait                  |
    | `outcome`   | the result of a call            | likewise                                                  |
    | `opened`    | what a new call has opened      | it is closed: at once, or when the call ends              |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

from loaders.threads import settle, start_thread

T = TypeVar("T")


def in_thread(work: Callable[[], T]) -> Future[T]:
    """Begin work in a thread of the running loop's pool, in the caller's context. The future cannot be cancelled."""
    call: Future[T] = Future()
    call.set_running_or_notify_cancel()
    asyncio.get_running_loop().run_in_executor(None, copy_context().run, settle, call, work)
    return call


async def ended(calls: Collection[Future[Any]], timeout_seconds: float | None = None) -> bool:
    """Wait until one of these calls has ended; returns False if none has after the time-out. Other tasks run first."""
    loop, woken = asyncio.get_running_loop(), asyncio.Event()
    for call in calls:
        call.add_done_callback(lambda _: wake(loop, woken))
    # Not `wait_for`: before Python 3.12 it loses a cancellation that comes together with the wake-up.
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_seconds):
            await woken.wait()
    return any(call.done() for call in calls)


async def outcome(call: Future[T]) -> T:
    """Wait until a call has ended; returns its result, or raises its error."""
    await ended([call])
    return call.result()


async def opened(opening: Callable[[], T], undo: Callable[[T], object]) -> T:
    """Open something in a thread; if this task is cancelled meanwhile, undo it, in a thread.

    Args:
        opening: opens it.
        undo: closes what was opened, and has no owner yet; its errors are passed to `threading.excepthook`.
    """
    call = in_thread(opening)
    try:
        return await outcome(call)
    except BaseException:
        undo_late(call, undo)
        raise


def undo_late(call: Future[T], undo: Callable[[T], object]) -> None:
    """Undo in a thread what a call has opened, when it has ended; for a task that does not wait for it any more."""

    def begin(_: Future[T]) -> None:
        if call.exception() is None:  # in another thread, because this may be the thread of an event loop
            start_thread(partial(undo, call.result()), "accel-closing")

    call.add_done_callback(begin)


def wake(loop: asyncio.AbstractEventLoop, woken: asyncio.Event) -> None:
    """Set an event of a loop. Threads: any."""
    with suppress(RuntimeError):  # the loop was closed meanwhile: no task waits
        loop.call_soon_threadsafe(woken.set)
