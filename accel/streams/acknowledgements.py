"""Futures of single events, and the points of flushes, by which callers wait until events are durable.

    future = writer.write(b"an event", key)      future.result()        in a thread
                                                 await future           in an event loop
                                                 future.done()          anywhere

Millions of events can be under way at one time, and most futures are never read. So a future is three words, and
callbacks and a lock to wait on are created only for a caller that waits. A flush waits for no future: it counts the
events that were written before it and the settled ones among them (`FlushPoint`).

A caller may be interrupted anywhere: by a signal handler that raises, or that calls a future in turn. So callers take
no lock of the machine that settles futures: each step of theirs is one operation on a dict or a deque.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from threading import Lock, local
from typing import Any, Final, NamedTuple

from accel.errors import IllegalState
from accel.history.rules.values import checked_arguments, segment_text
from loaders.awaiting import wake
from loaders.lifetime import Lifetime
from loaders.settings import TimeLimit

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
    """Counts the events of a flush. Threads: those of `GroupCommit` set it; any may read it.

    Attributes:
        written: the number of its events.
        settled: the number of its events whose result is known.
        error: why one of the events will never be durable.
        is_reported: whether a flush has waited for all of them, and has raised the error.
    """

    __slots__ = ("error", "is_reported", "settled", "written")

    def __init__(self) -> None:
        self.written = 0
        self.settled = 0
        self.is_reported = False
        self.error: BaseException | None = None

    @property
    def is_open(self) -> bool:
        """Whether the next flush has to wait for it, or to raise its error."""
        return not self.is_reported and (self.settled < self.written or self.error is not None)


Outcome = EventPlace | None
_PENDING: Final = object()


@checked_arguments
class WriteFuture:
    """The result of one event: its place once it is durable, or the error because of which it will never be durable.

    Threads: any may wait; ``await`` it in any event loop. A future cannot be cancelled: a task that waits for it can
    be, and the event still becomes durable. For an event of a transaction the result is None once the transaction is
    committed; its place is not reported.

    Attributes:
        outcome, point: used by `Acknowledgements` and the writer only.
    """

    __slots__ = ("acks", "outcome", "point")

    def __init__(self, acks: Acknowledgements) -> None:
        self.acks = acks
        self.outcome: object = _PENDING
        self.point: FlushPoint | None = None

    def __repr__(self) -> str:
        return f"WriteFuture({'pending' if self.outcome is _PENDING else self.outcome!r})"

    def done(self) -> bool:
        """Whether the result of the event is known."""
        return self.outcome is not _PENDING

    def result(self, timeout: TimeLimit = None) -> Outcome:
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
            IllegalState: called by a callback of a future, whose thread makes the event durable.
            WrongProcess: another process wrote the event.
        """
        self._wait(timeout)
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome  # type: ignore[return-value]  # `_wait` has seen it settled

    def exception(self, timeout: TimeLimit = None) -> BaseException | None:
        """Wait, and return the error that `result` would raise; None if the event is durable.

        Raises:
            TimeoutError, IllegalState, WrongProcess: as `result`.
        """
        self._wait(timeout)
        return self.outcome if isinstance(self.outcome, BaseException) else None

    def add_done_callback(self, callback: Callable[[WriteFuture], object]) -> None:
        """Call the callback with the future when it is settled (now if it is), in any thread. It must not wait.

        Whatever it raises is logged, also an exception that is no `Exception`: it reaches no other caller.
        """
        self.acks.listen(self, callback)

    def __await__(self) -> Generator[Any, None, Outcome]:
        if not self.done():
            loop, woken = asyncio.get_running_loop(), asyncio.Event()
            self.add_done_callback(callback := lambda _: wake(loop, woken))
            try:
                yield from woken.wait().__await__()
            finally:
                self.acks.forget(self, callback)  # as in `_wait`
        return self.result()

    def _wait(self, timeout: TimeLimit) -> None:
        if self.outcome is not _PENDING:
            return
        self.acks.drive()
        woken = Lock()
        woken.acquire()

        def wake(_: WriteFuture) -> None:
            woken.release()

        self.add_done_callback(wake)
        if not woken.acquire(timeout=-1 if timeout is None else timeout):
            self.acks.forget(self, wake)  # else one that asks again and again would pile them up
            raise TimeoutError(f"expected an event that is durable within {timeout} s, found it still under way")


class Acknowledgements:
    """Settles futures, and calls those who wait for them. Threads: any; callers take no lock.

    Args:
        lifetime: the lifetime of the host.
    """

    def __init__(self, lifetime: Lifetime) -> None:
        self._lifetime = lifetime
        self._callbacks: dict[WriteFuture, deque[Callable[[WriteFuture], object]]] = {}
        self._thread = local()
        self._drive: Callable[[], object] | None = None

    def drive_by(self, drive: Callable[[], object]) -> None:
        """Set the work that a waiting caller does; for hosts without background threads."""
        self._drive = drive

    def drive(self) -> None:
        """Do the pending work before waiting, if there are no background threads.

        Raises:
            WrongProcess: another process opened the host.
            IllegalState: as `check_outside`.
        """
        self._lifetime.check_process()
        self.check_outside()
        if self._drive is not None:
            self._drive()

    @property
    def is_inside(self) -> bool:
        """Whether the calling thread makes events durable, or calls their callbacks, at this moment."""
        return getattr(self._thread, "depth", 0) > 0

    def check_outside(self) -> None:
        """Check that the caller may wait for events.

        Raises:
            IllegalState: this thread makes the events durable: it would wait for itself.
        """
        if self.is_inside:
            raise IllegalState(
                "expected a call that waits for events from a thread of the caller's own, found one inside of the"
                " thread that makes them durable, as from a callback: it would wait for itself"
            )

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Mark the calling thread as one that makes events durable."""
        self._thread.depth = getattr(self._thread, "depth", 0) + 1
        try:
            yield
        finally:
            self._thread.depth -= 1

    def listen(self, future: WriteFuture, callback: Callable[[WriteFuture], object]) -> None:
        """Call the callback once the future is settled; now if it is."""
        self._lifetime.check_process()
        callbacks = self._callbacks.setdefault(future, deque())
        callbacks.append(callback)
        if future.done():  # perhaps meanwhile: who takes a callback out calls it
            self._call(future, callbacks)

    def forget(self, future: WriteFuture, callback: Callable[[WriteFuture], object]) -> None:
        """Do not call this callback any more."""
        with suppress(KeyError, ValueError):
            self._callbacks[future].remove(callback)

    def settle(self, outcomes: Iterable[tuple[WriteFuture, object]]) -> list[WriteFuture]:
        """Set the results of futures, under the lock of the host; returns the futures with callbacks, for `tell`."""
        heard = []
        for future, outcome in outcomes:
            if future.outcome is not _PENDING:
                continue
            future.outcome = outcome
            if future.point is not None:
                if isinstance(outcome, BaseException):
                    future.point.error = outcome
                future.point.settled += 1
            if future in self._callbacks:
                heard.append(future)
        return heard

    def tell(self, heard: Iterable[WriteFuture]) -> None:
        """Call the callbacks of futures, without holding the lock."""
        with self.inside():
            for future in heard:
                self._call(future, self._callbacks.get(future, deque()))

    def _call(self, future: WriteFuture, callbacks: deque[Callable[[WriteFuture], object]]) -> None:
        with suppress(IndexError):
            while True:
                call_guarded(partial(callbacks.popleft(), future), future)
        self._callbacks.pop(future, None)


def call_guarded(call: Callable[[], object], of: object) -> None:
    """Call a user's callback of an object, and log what it raises: it reaches no thread that others wait for."""
    try:
        call()
    except BaseException:
        with suppress(BaseException):  # a handler of logging is a function of the user, too
            logger.exception("a callback of %r failed", of)
