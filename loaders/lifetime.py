"""Lifetimes of objects: in which process an object may be used, and until when; the effects of fork and close.

A fork copies the memory of a process, but only the forking thread. In the child a lock that another thread held is
never released, a pool has no threads, a load that was under way never ends, and connections belong to the parent. Ids
and sessions exist twice. So

| objects                                             | in another process                           | by             |
|-----------------------------------------------------|----------------------------------------------|----------------|
| clients, caches, pools, loads under way, free ids   | are created again at their first use         | `PerProcess`   |
| numbers and dicts that one statement changes        | continue as a copy, behind a separate lock   | `ProcessLock`  |
| sessions, writers, uploads, readers with a position | refuse with `WrongProcess`                   | `Lifetime`     |

The process id is read before a lock is taken. It distinguishes processes of one machine. A machine that is cloned while
it runs has the same id; there only conditional writes decide (docs/operations/operations.md, "Processes").

The child keeps the parent's objects, unused: to release them would run destructors over their sockets.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Executor, Future, InvalidStateError, wait
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from threading import RLock, Thread, active_count, current_thread
from typing import Any, Final, Generic, NoReturn, ParamSpec, Protocol, Self, TypeVar, overload
from weakref import ref

from loaders.errors import Closed, NoThread, WrongProcess
from loaders.host_limits import threads_text

T = TypeVar("T")
P = ParamSpec("P")

ProcessId = Callable[[], int]

EXIT_SECONDS: Final = 10.0
"""For how long the end of the program waits for what is finished then."""

FINISHED_AT_ONCE: Final = 16
"""How many objects are finished side by side at the end of the program."""


class PerProcess(Generic[T]):
    """A value that each process creates for itself. Threads: any; it takes no lock.

    Args:
        what: the owner of the value, for errors.
        make: creates the value: now, and in another process at its first use there. Two concurrent threads may both
            create a value; all threads get the same one.
        process_id: of the calling process.
    """

    def __init__(self, what: str, make: Callable[[], T], process_id: ProcessId = os.getpid) -> None:
        self._what = what
        self._make = make
        self._process_id = process_id
        self._made: dict[int, T] = {process_id(): make()}

    def __call__(self) -> T:
        """The value of this process."""
        process_id = self._process_id()
        try:
            return self._made[process_id]
        except KeyError:
            return self._made.setdefault(process_id, self._make())

    def here(self) -> T | None:
        """The value of this process; None if it was not created yet."""
        return self._made.get(self._process_id())

    def __reduce__(self) -> NoReturn:
        raise _not_sent(self._what)


class ProcessLock:
    """A lock that no other process inherits locked. Threads: any."""

    def __init__(self) -> None:
        self._lock = PerProcess("a lock", RLock)

    def acquire(self, *, blocking: bool = True) -> bool:
        """As `threading.Lock.acquire`; returns whether the lock was acquired."""
        return self._lock().acquire(blocking)

    def release(self) -> None:
        """As `threading.Lock.release`."""
        self._lock().release()

    def _enter(self) -> Callable[[], bool]:
        return self._lock().__enter__

    def _exit(self) -> Callable[..., None]:
        return self._lock().__exit__

    # Properties: `with` acquires the lock itself, so that no interrupt comes between that and the block.
    __enter__ = property(_enter)
    __exit__ = property(_exit)

    def __reduce__(self) -> tuple[type[ProcessLock], tuple[()]]:
        return type(self), ()


class Lifetime:
    """Whether an object may still be used: in the process that opened it, until it is closed. Threads: any; no lock.

    Args:
        what: the object, for errors.
        process_id: of the calling process.
    """

    def __init__(self, what: str, process_id: ProcessId = os.getpid) -> None:
        self.what = what
        self._process_id = process_id
        self._opened_in = process_id()
        self.is_closed = False

    @property
    def is_here(self) -> bool:
        """Whether this is the process that opened it."""
        return self._process_id() == self._opened_in

    def check(self) -> None:
        """Check that the object may be used in this process now.

        Raises:
            WrongProcess: another process opened it.
            Closed: it was closed.
        """
        self.check_process()
        if self.is_closed:
            raise Closed(f"expected {self.what} that is open, found it closed")

    def check_process(self) -> None:
        """Check that the object was opened in this process; for calls that are also allowed after `close`.

        Raises:
            WrongProcess: another process opened it.
        """
        process_id = self._process_id()
        if process_id != self._opened_in:
            raise WrongProcess(
                f"expected {self.what} in the process that opened it, {self._opened_in}, found process {process_id}"
            )

    def close(self) -> None:
        """Close the object: from now on `check` raises."""
        self.is_closed = True

    def __reduce__(self) -> NoReturn:
        raise _not_sent(self.what)


class Lazy(Generic[T]):
    """A method whose result becomes an attribute of its object at the first access. Threads: any; no lock.

    As `functools.cached_property`, which before Python 3.12 holds a lock that all objects of the class share, and that
    a process forked at that moment would inherit. Two threads may both compute a result; all get the same.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._name = make.__name__
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> Self | T:
        if instance is None:
            return self
        made: T = instance.__dict__.setdefault(self._name, self._make(instance))
        return made


class DaemonThreads:
    """Runs work beside the caller, in daemon threads: the process does not wait for them at its end.

    An idle thread gets the next work, so a call costs some microseconds; after a time without work all idle threads but
    one end. That one serves the handlers of `atexit`, in which no thread can be started from Python 3.12 on. There is
    one thread for each work that is under way. A call may be interrupted by an exception of a signal handler, and may
    be made by the handler: then the work runs, or does not, and other calls are not affected.

    Args:
        idle_seconds: time for which an idle thread waits for more work.

    Threads: any; no lock. A forked process starts its own threads.
    """

    def __init__(self, idle_seconds: float = 10.0) -> None:
        self._idle_seconds = idle_seconds
        self._idle: PerProcess[deque[SimpleQueue[tuple[Callable[[], object], str]]]] = PerProcess("threads", deque)

    def __call__(self, work: Callable[[], object], name: str) -> None:
        """Run work in a thread of this name, in the caller's context. Errors are passed to `threading.excepthook`.

        Raises:
            NoThread: no thread could be started.
            RuntimeError: the program ends, and starts no threads any more.
        """
        idle = self._idle()
        named = partial(copy_context().run, work), name
        try:
            inbox = idle.pop()
        except IndexError:
            inbox = SimpleQueue()
            inbox.put(named)  # first: if the start is interrupted, no thread waits for it
            try:
                Thread(target=self._serve, args=(inbox, idle), name=name, daemon=True).start()
            except RuntimeError as error:
                if "shutdown" in str(error):
                    raise
                raise no_thread() from error
        else:
            inbox.put(named)

    def _serve(
        self,
        inbox: SimpleQueue[tuple[Callable[[], object], str]],
        idle: deque[SimpleQueue[tuple[Callable[[], object], str]]],
    ) -> None:
        is_taken = False
        while True:
            try:
                work, name = inbox.get(timeout=self._idle_seconds)
            except Empty:
                was_taken, is_taken = is_taken, inbox not in idle
                if was_taken and is_taken:  # by a caller that was interrupted before it gave it work
                    idle.append(inbox)
                with suppress(ValueError):  # a caller has just taken this thread, to give it work
                    if len(idle) > 1:
                        idle.remove(inbox)
                        return
                continue
            is_taken = False
            current_thread().name = name
            work()
            del work  # otherwise it would stay in memory until the next work
            current_thread().name = "accel-idle"
            idle.append(inbox)


start_thread = DaemonThreads()
"""Runs a function in another thread; for the whole program."""


@dataclass(frozen=True, slots=True, eq=False)
class Submitted:
    """A call that was submitted to threads, and the group that it is of."""

    group: Hashable
    work: Callable[[], Any]
    result: Future[Any]


class Threads(Executor):
    """Bounded threads of `start_thread` that raise `Closed` after shutdown, and `WrongProcess` in another process.

    Work runs in the context (`contextvars`) of the caller that submits it. At the end of the program work is taken
    until the very end, also in handlers of `atexit`, where `ThreadPoolExecutor` takes none; if there is no thread any
    more, it is done in the calling one. Without work there are no threads: a pool that is dropped leaves none.

    The thread that submits a call only puts it down, and starts a thread that takes it. So a caller that is interrupted
    there takes nothing from others, and a signal handler that interrupts it may submit calls, too.

    Args:
        threads_max: largest number of threads.
        name: the name of its threads.
        lifetime: of the pool's owner; None = a new one. It is closed with the pool.
        process_id: of the calling process.
    """

    def __init__(
        self, threads_max: int, name: str, *, lifetime: Lifetime | None = None, process_id: ProcessId = os.getpid
    ) -> None:
        self._lifetime = Lifetime(f"threads {name!r}", process_id) if lifetime is None else lifetime
        self._at_once, self._name = threads_max, name
        self._under_way: set[Future[Any]] = set()
        self._serving: set[Future[None]] = set()  # one for each thread, done when it leaves
        self._starting: set[Future[None]] = set()  # of threads that have not looked for a call yet
        self._lock = RLock()  # guards the attributes below; never held over work
        self._inbox: deque[Submitted] = deque()
        self._is_shut_down = False
        _add(_POOLS(), self)

    def submit(self, work: Callable[P, T], /, *args: P.args, **options: P.kwargs) -> Future[T]:
        """As `Executor.submit`.

        Raises:
            WrongProcess: another process created the pool and has its threads.
            Closed: the pool was shut down.
            NoThread: no thread could be started, and none is at work.
        """
        return self.submit_to(None, partial(work, *args, **options))

    def submit_to(self, group: Hashable, work: Callable[[], T]) -> Future[T]:
        """As `submit`, for a call of a group; here, groups are all alike."""
        self._lifetime.check()
        result: Future[T] = Future()
        try:
            self._under_way.add(result)
            result.add_done_callback(self._under_way.discard)
            with self._lock:
                self._check_open()
                self._put(Submitted(group, partial(copy_context().run, work), result))
            self.go_on()
        except BaseException:
            result.cancel()
            self._under_way.discard(result)
            raise
        return result

    def go_on(self) -> None:
        """Start threads for the calls that wait and may begin by now."""
        while self._may_begin():
            thread: Future[None] = Future()
            try:
                self._serving.add(thread)
                self._starting.add(thread)
                start_thread(partial(self._serve, thread), self._name)
            except BaseException as error:
                self._leave(thread)
                if not isinstance(error, RuntimeError):
                    raise
                if self._serving:
                    return  # one of the others takes the call
                if "shutdown" not in str(error):
                    raise
                self._serve(thread)  # the program ends

    def wait_idle(self) -> None:
        """Wait until all work that was submitted before this call has ended, also with an error."""
        wait(self.under_way())

    def under_way(self) -> set[Future[Any]]:
        """The results of the work that was submitted and has not ended."""
        return self._under_way.copy()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """As `Executor.shutdown`; does nothing in another process, where the pool has no threads."""
        self._lifetime.close()
        if not self._lifetime.is_here:
            return
        self._is_shut_down = True
        if cancel_futures:
            for result in self.under_way():
                result.cancel()
        elif wait:
            self.wait_idle()
        for thread in self._serving.copy() if wait else ():
            thread.result()

    def _check_open(self) -> None:
        if self._is_shut_down:
            raise Closed(f"expected {self._lifetime.what} that is open, found it closed")

    def _put(self, call: Submitted) -> None:
        """Put a call down; the lock is held."""
        self._inbox.append(call)

    def _may_begin(self) -> bool:
        """Whether one more thread would find a call that may begin."""
        return len(self._inbox) > len(self._starting) and len(self._serving) < self._at_once

    def _take(self) -> Submitted | None:
        """Take and begin the next call that may begin; None if there is none. Only the threads call this."""
        with suppress(IndexError):
            while True:
                call = self._inbox.popleft()
                if call.result.set_running_or_notify_cancel():
                    return call
        return None

    def _make(self, call: Submitted) -> Any:
        """Make a call, and return its result."""
        return call.work()

    def _serve(self, thread: Future[None]) -> None:
        self._starting.discard(thread)
        try:
            while (call := self._take()) is not None:
                with suppress(RuntimeError):  # there is no further thread: this one goes on
                    self.go_on()
                settle(call.result, partial(self._make, call))
                del call  # otherwise it would stay in memory until the next one
        finally:
            self._leave(thread)
        with suppress(RuntimeError):
            self.go_on()  # for a call that came after the last look

    def _leave(self, thread: Future[None]) -> None:
        self._starting.discard(thread)
        self._serving.discard(thread)
        if not thread.done():
            thread.set_result(None)

    def __reduce__(self) -> NoReturn:
        raise _not_sent(self._lifetime.what)


def uninterrupted(work: Callable[[], T]) -> T:
    """Do work in another thread, and wait for it: an interrupt of the caller does not leave the work half done."""
    call: Future[T] = Future()
    start_thread(partial(settle, call, work), "accel-change")
    return call.result()


def settle(call: Future[T], work: Callable[[], T]) -> None:
    """Do work, and set its result, or its error, as that of a call; nothing if the call has ended meanwhile."""
    try:
        made = work()
    except BaseException as error:  # noqa: BLE001 - goes to the waiting callers
        with suppress(InvalidStateError):
            call.set_exception(error)
    else:
        with suppress(InvalidStateError):
            call.set_result(made)


class Finished(Protocol):
    """What is finished when the program ends. Threads: any."""

    @property
    def is_left(self) -> bool:
        """Whether there is anything to finish. No request."""
        ...

    def finish(self) -> object:
        """Finish it."""
        ...

    def tell_left(self, why: str) -> object:
        """Say what could not be finished, and why."""
        ...


def finish_at_exit(thing: Finished) -> None:
    """Finish an object when the program ends, for at most `EXIT_SECONDS`, if it is not gone by then. Threads: any.

    At the end of the main thread, by `sys.exit` or by an error; in a child of `multiprocessing`, too. A forked child
    finishes nothing of its parent. Handlers of `atexit` that were registered after this module was imported run before.
    """
    process_id = os.getpid()
    if process_id not in _FINISHED:
        util = sys.modules.get("multiprocessing.util")
        if util is not None and util.process.parent_process() is not None:
            util.Finalize(None, _finish, exitpriority=0)  # a forked child runs no handlers of `atexit`
    _add(_FINISHED.setdefault(process_id, set()), thing)


def _finish() -> None:
    left = [thing for thing in _alive(_FINISHED.get(os.getpid(), ())) if thing.is_left]
    threads = Threads(FINISHED_AT_ONCE, "accel-exit")
    ends = [threads.submit(thing.finish) for thing in left]
    wait(ends, EXIT_SECONDS)
    for thing, end in zip(left, ends, strict=True):
        error = end.exception() if end.done() else f"it took longer than {EXIT_SECONDS:.0f} s"
        thing.tell_left(str(error or ""))
    # A thread that returns from code that is no Python when Python has ended may end in a crash.
    under_way = [each for pool in _alive(_POOLS.here() or ()) for each in pool.under_way()]
    wait(under_way, EXIT_SECONDS if all(end.done() for end in ends) else 0)


def _add(live: set[ref[T]], thing: T) -> None:
    live.add(ref(thing, live.discard))  # no lock: the collector may run this within itself


def _alive(live: Iterable[ref[T]]) -> list[T]:
    return [thing for each in tuple(live) if (thing := each()) is not None]


_POOLS: Final[PerProcess[set[ref[Threads]]]] = PerProcess("pools of threads", set)
_FINISHED: Final[dict[int, set[ref[Finished]]]] = {}  # by process
atexit.register(_finish)


class InlineElsewhere(Executor):
    """The caller's executor; in another process, where it has no threads, `submit` runs the work itself.

    Args:
        executor: of the process that creates this object.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._lifetime = Lifetime("an executor")

    def submit(self, work: Callable[P, T], /, *args: P.args, **options: P.kwargs) -> Future[T]:
        """As `Executor.submit`."""
        if self._lifetime.is_here:
            return self._executor.submit(partial(copy_context().run, work), *args, **options)
        done: Future[T] = Future()
        settle(done, partial(work, *args, **options))
        return done


def no_thread() -> NoThread:
    """The error of a thread that could not be started."""
    return NoThread(f"expected to start a thread besides {active_count()}, found the limit reached: {threads_text()}")


def _not_sent(what: str) -> WrongProcess:
    return WrongProcess(f"expected {what} to stay in the process that opened it, found it being copied (pickle)")


def unpickled(what: str) -> Callable[[Any], NoReturn]:
    """A `__reduce__` for classes whose objects must not be copied to another process."""

    def refuse(_: Any) -> NoReturn:
        raise _not_sent(what)

    return refuse
