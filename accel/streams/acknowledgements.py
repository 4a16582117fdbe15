"""Futures of single events, and the points of flushes, by which callers wait until events are durable.

    future = writer.write(b"an event", key)      future.result()        in a thread
                                                 await future           in an event loop
                                                 future.done()          anywhere

Millions of events can be under way at one time, and most futures are never read. So a future is four words, all futures
of a host share one lock, and a lock to wait on is created only for a caller that waits. A flush waits for no future: it
counts the events that were written before it and the settled ones among them (`FlushPoint`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from threading import Condition, Lock
from typing import Any, Final, NamedTuple

from accel.history.rules.values import segment_text
from loaders.lifetime import Lifetime

logger = logging.getLogger(__name__)


class EventPlace(NamedTuple):
    """The place of a durable event.

    Args:
        segment_id: the segment of the event.
        offset: the event's offset in the segment; `REPEATED` (-1) if the event was durable before it was sent again to
            its owner, and the owner no longer has the offset.
    """

    segment_id: int
    offset: int

    def __repr__(self) -> str:
        return f"EventPlace({segment_text(self.segment_id)} at {self.offset})"


class FlushPoint:
    """Counts the events of a flush. Threads: the writer sets `written`; `GroupCommit` sets the rest.

    Attributes:
        written: the number of its events.
        settled: the number of its events whose result is known.
        error: why one of the events will never be durable.
    """

    __slots__ = ("error", "settled", "written")

    def __init__(self) -> None:
        self.written = 0
        self.settled = 0
        self.error: BaseException | None = None


Outcome = EventPlace | None
_PENDING: Final = object()


class WriteFuture:
    """The result of one event: its place once it is durable, or the error because of which it will never be durable.

    Threads: any may wait; ``await`` it in any event loop. A future cannot be cancelled: a task that waits for it can
    be, and the event still becomes durable. For an event of a transaction the result is None once the transaction is
    committed; its place is not reported.

    Attributes:
        outcome, callbacks, point: used by `Acknowledgements` only.
    """

    __slots__ = ("acks", "callbacks", "outcome", "point")

    def __init__(self, acks: Acknowledgements, point: FlushPoint | None = None) -> None:
        self.acks = acks
        self.outcome: object = _PENDING
        self.callbacks: list[Callable[[WriteFuture], object]] | None = None
        self.point = point

    def __repr__(self) -> str:
        return f"WriteFuture({'pending' if self.outcome is _PENDING else self.outcome!r})"

    def done(self) -> bool:
        """Whether the result of the event is known."""
        return self.outcome is not _PENDING

    def result(self, timeout: float | None = None) -> Outcome:
        """Wait, and return the event's place.

        Args:
            timeout: seconds to wait at most; None = without limit.

        Raises:
            TimeoutError: the result is not known yet; the event is still under way.
            SessionFenced, CommitRefused, Closed, IllegalState, NotInHistory: the event is not durable and will not be
                unless it is written again; if this is not certain, the text of `CommitRefused` says so. After `Closed`
                because a host was stopped, not closed, objects under way may be durable.
            ForwardInDoubt: the event was sent to another owner, and may be durable.
            OperationNotAllowed: the transaction will be committed; its writer was closed before.
            WrongProcess: another process wrote the event.
        """
        self._wait(timeout)
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome  # type: ignore[return-value]  # `_wait` has seen it settled

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait, and return the error that `result` would raise; None if the event is durable.

        Raises:
            TimeoutError, WrongProcess: as `result`.
        """
        self._wait(timeout)
        return self.outcome if isinstance(self.outcome, BaseException) else None

    def add_done_callback(self, callback: Callable[[WriteFuture], object]) -> None:
        """Call the callback with the future when it is settled (now if it is), in any thread. It must not wait."""
        if not self.acks.listen(self, callback):
            callback(self)

    def __await__(self) -> Generator[Any, None, Outcome]:
        if not self.done():
            loop = asyncio.get_running_loop()
            woken = loop.create_future()
            self.add_done_callback(lambda _: _wake_in(loop, woken))
            yield from woken.__await__()
        return self.result()

    def _wait(self, timeout: float | None) -> None:
        if self.outcome is not _PENDING:
            return
        self.acks.drive()
        woken = Lock()
        woken.acquire()
        self.add_done_callback(lambda _: woken.release())
        if not woken.acquire(timeout=-1 if timeout is None else timeout):
            raise TimeoutError(f"expected an event that is durable within {timeout} s, found it still under way")


def _wake_in(loop: asyncio.AbstractEventLoop, woken: asyncio.Future[None]) -> None:
    def wake() -> None:
        if not woken.done():  # else the task that waited was cancelled
            woken.set_result(None)

    with suppress(RuntimeError):  # the loop was closed meanwhile: no task waits
        loop.call_soon_threadsafe(wake)


class Acknowledgements:
    """Settles futures. Threads: any; its lock is held for memory accesses only, and never while a callback runs.

    Args:
        lifetime: the lifetime of the host.
        lock: guards outcomes and the counts of flush points.
    """

    def __init__(self, lifetime: Lifetime, lock: Condition) -> None:
        self._lifetime = lifetime
        self._lock = lock
        self._drive: Callable[[], object] | None = None

    def drive_by(self, drive: Callable[[], object]) -> None:
        """Set the work that a waiting caller does; for hosts without background threads."""
        self._drive = drive

    def drive(self) -> None:
        """Do the pending work before waiting, if there are no background threads.

        Raises:
            WrongProcess: another process opened the host.
        """
        self._lifetime.check_process()
        if self._drive is not None:
            self._drive()

    def listen(self, future: WriteFuture, callback: Callable[[WriteFuture], object]) -> bool:
        """Register a callback; returns False, without registering it, if the future is settled."""
        self._lifetime.check_process()
        with self._lock:
            if future.outcome is not _PENDING:
                return False
            future.callbacks = [*(future.callbacks or ()), callback]
            return True

    def settle(self, outcomes: Iterable[tuple[WriteFuture, object]]) -> list[WriteFuture]:
        """Set the results of futures, under the lock; returns the futures with callbacks, for `tell`."""
        heard = []
        for future, outcome in outcomes:
            if future.outcome is not _PENDING:
                continue
            future.outcome = outcome
            if future.point is not None:
                future.point.settled += 1
                if isinstance(outcome, BaseException):
                    future.point.error = outcome
            if future.callbacks is not None:
                heard.append(future)
        return heard

    @staticmethod
    def tell(heard: Iterable[WriteFuture]) -> None:
        """Call the callbacks of futures, without holding the lock."""
        for future in heard:
            callbacks, future.callbacks = future.callbacks or (), None
            for callback in callbacks:
                try:
                    callback(future)
                except Exception:
                    logger.exception("a callback of %r failed", future)
