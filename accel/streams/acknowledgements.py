"""What those who write events wait for: futures of single events, and points that a flush has to come to.

    future = writer.write(b"an event", key)      future.result()        in a thread
                                                 await future           in an event loop
                                                 future.done()          anywhere

Millions of events are on their way at a time, and most futures are never looked at. So a future is four words, all
futures of a host share one lock, and something to wait on is made only for those who wait. A flush waits for no future:
it counts how many events were written up to it (`FlushPoint`), and what becomes of these.
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
    """Where a durable event stands.

    Args:
        segment_id: in which segment.
        offset: at which offset of it; `REPEATED` (-1) if it was durable already when its owner was asked again, and
            the owner does not know any more where.
    """

    segment_id: int
    offset: int

    def __repr__(self) -> str:
        return f"EventPlace({segment_text(self.segment_id)} at {self.offset})"


class FlushPoint:
    """Counts the events that were written up to a flush. Threads: `written` is its writer's; the rest `GroupCommit`'s.

    Attributes:
        written: how many events belong to it.
        settled: of how many is known what became of them.
        error: why one of them will never be durable.
    """

    __slots__ = ("error", "settled", "written")

    def __init__(self) -> None:
        self.written = 0
        self.settled = 0
        self.error: BaseException | None = None


Outcome = EventPlace | None
_PENDING: Final = object()


class WriteFuture:
    """What becomes of one event: its place once it is durable, or why it will never be.

    Threads: any may wait; ``await`` it in any event loop. Nobody can cancel it: what waits for it may be cancelled, and
    the event becomes durable all the same. Of an event of a transaction the result is None, once that is committed:
    nobody is told its place.

    Attributes:
        outcome, callbacks, point: for `Acknowledgements` alone.
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
        """Whether it is known what became of the event."""
        return self.outcome is not _PENDING

    def result(self, timeout: float | None = None) -> Outcome:
        """Wait, and give the event's place.

        Args:
            timeout: seconds to wait at most; None = as long as it takes.

        Raises:
            TimeoutError: it is not known yet; the event is still on its way.
            SessionFenced, CommitRefused, Closed, IllegalState: it is not durable, and never will be by itself; the
                text of `CommitRefused` says if that is not certain.
            WrongProcess: another process wrote the event.
        """
        self._wait(timeout)
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome  # type: ignore[return-value]  # `_wait` has seen it settled

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait, and give the error that `result` would raise; None if the event is durable.

        Raises:
            TimeoutError, WrongProcess: as `result`.
        """
        self._wait(timeout)
        return self.outcome if isinstance(self.outcome, BaseException) else None

    def add_done_callback(self, callback: Callable[[WriteFuture], object]) -> None:
        """Call this with the future when it is settled; at once if it is. In any thread; it must not wait."""
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
            raise TimeoutError(f"expected an event that is durable within {timeout} s, found it on its way")


def _wake_in(loop: asyncio.AbstractEventLoop, woken: asyncio.Future[None]) -> None:
    def wake() -> None:
        if not woken.done():  # else the task that waited was cancelled
            woken.set_result(None)

    with suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits
        loop.call_soon_threadsafe(wake)


class Acknowledgements:
    """Settles futures. Threads: any; its lock is held for memory alone, and never while a callback runs.

    Args:
        lifetime: of what the events are written to.
        lock: guards outcomes, and what is counted with them.
    """

    def __init__(self, lifetime: Lifetime, lock: Condition) -> None:
        self._lifetime = lifetime
        self._lock = lock
        self._drive: Callable[[], object] | None = None

    def drive_by(self, drive: Callable[[], object]) -> None:
        """What those do who wait, where nobody works beside them."""
        self._drive = drive

    def drive(self) -> None:
        """Before waiting: see to it that somebody does the work.

        Raises:
            WrongProcess: another process does it.
        """
        self._lifetime.check_process()
        if self._drive is not None:
            self._drive()

    def listen(self, future: WriteFuture, callback: Callable[[WriteFuture], object]) -> bool:
        """Whether the callback will be called: False if the future is settled."""
        self._lifetime.check_process()
        with self._lock:
            if future.outcome is not _PENDING:
                return False
            future.callbacks = [*(future.callbacks or ()), callback]
            return True

    def settle(self, outcomes: Iterable[tuple[WriteFuture, object]]) -> list[WriteFuture]:
        """Say what became of events, within the lock; gives those that somebody waits for, for `tell`."""
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
        """Call those who listen, outside of the lock."""
        for future in heard:
            callbacks, future.callbacks = future.callbacks or (), None
            for callback in callbacks:
                try:
                    callback(future)
                except Exception:
                    logger.exception("a callback of %r failed", future)
