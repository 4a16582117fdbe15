"""How long things may be used, and in which process: what a fork leaves behind, and what closing ends.

A fork copies the memory of a process, and of its threads only the one that forks. In the child a lock that another
thread held is never released, a pool has no threads, a load that was under way never ends, and connections are those
of the parent. Ids and sessions exist twice. So

| what                                                | in another process                           | by             |
|-----------------------------------------------------|----------------------------------------------|----------------|
| clients, caches, pools, loads under way, free ids   | is made anew when it is first used there     | `PerProcess`   |
| numbers and dicts that one statement changes        | goes on as a copy, behind a lock of its own  | `ProcessLock`  |
| sessions, writers, uploads, readers with a position | refuses with `WrongProcess`                  | `Lifetime`     |

The process id is looked at before a lock is taken. It tells processes of one machine apart: a machine that is cloned
while it runs has the same one, and there only conditional writes decide (docs/operations/operations.md, "Processes").

What was made for the parent is kept in the child, unused: to let go of it would run destructors over its sockets.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock, Thread, current_thread
from typing import Any, Generic, NoReturn, ParamSpec, Self, TypeVar, overload

from loaders.errors import Closed, WrongProcess

T = TypeVar("T")
P = ParamSpec("P")

ProcessId = Callable[[], int]


class PerProcess(Generic[T]):
    """A value of which each process makes its own. Threads: any; it takes no lock.

    Args:
        what: it belongs to, for errors.
        make: makes it: now, and in another process when it is first asked for there. Two threads that ask at the same
            time may both make one; all get the same.
        process_id: of the process that asks.
    """

    def __init__(self, what: str, make: Callable[[], T], process_id: ProcessId = os.getpid) -> None:
        self._what = what
        self._make = make
        self._process_id = process_id
        self._made: dict[int, T] = {process_id(): make()}

    def __call__(self) -> T:
        """That of this process."""
        process_id = self._process_id()
        try:
            return self._made[process_id]
        except KeyError:
            return self._made.setdefault(process_id, self._make())

    def here(self) -> T | None:
        """That of this process if it was made."""
        return self._made.get(self._process_id())

    def __reduce__(self) -> NoReturn:
        raise _not_sent(self._what)


class ProcessLock:
    """A lock that no other process inherits locked. Threads: any."""

    def __init__(self) -> None:
        self._lock = PerProcess("a lock", Lock)

    def acquire(self, *, blocking: bool = True) -> bool:
        """As that of a lock; says whether it has it."""
        return self._lock().acquire(blocking)

    def release(self) -> None:
        """As that of a lock."""
        self._lock().release()

    def __enter__(self) -> None:
        self._lock().acquire()

    def __exit__(self, *_: object) -> None:
        self._lock().release()

    def __reduce__(self) -> tuple[type[ProcessLock], tuple[()]]:
        return type(self), ()


class Lifetime:
    """Whether something may be used still: in the process that opened it, until it is closed. Threads: any; no lock.

    Args:
        what: is used, for errors.
        process_id: of the process that asks.
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
        """That it may be used, here and now.

        Raises:
            WrongProcess: another process opened it.
            Closed: it was closed.
        """
        self.check_process()
        if self.is_closed:
            raise Closed(f"expected {self.what} that is open, found it closed")

    def check_process(self) -> None:
        """That it was opened in this process; for what may be done when it is closed, too.

        Raises:
            WrongProcess: another process opened it.
        """
        process_id = self._process_id()
        if process_id != self._opened_in:
            raise WrongProcess(
                f"expected {self.what} in the process that opened it, {self._opened_in}, found process {process_id}"
            )

    def close(self) -> None:
        """From now on `check` refuses."""
        self.is_closed = True

    def __reduce__(self) -> NoReturn:
        raise _not_sent(self.what)


class Lazy(Generic[T]):
    """A method whose answer becomes an attribute of its object when it is first asked for. Threads: any; no lock.

    As `functools.cached_property`, which before Python 3.12 holds a lock that all objects of the class share, and that
    a process which is forked at that moment would inherit. Two threads may both make an answer; all get the same.
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


class Threads(ThreadPoolExecutor):
    """A pool of threads that says with an error of ours that it takes no more, and no hang in another process.

    Work runs in the context (`contextvars`) of the one who submits it.

    Args:
        threads_max: how many there are at most.
        name: what names of its threads begin with.
        lifetime: of what the pool belongs to; None = one of its own. It is closed with the pool.
        process_id: of the process that asks.
    """

    def __init__(
        self, threads_max: int, name: str, *, lifetime: Lifetime | None = None, process_id: ProcessId = os.getpid
    ) -> None:
        super().__init__(threads_max, thread_name_prefix=name)
        self._lifetime = Lifetime(f"threads {name!r}", process_id) if lifetime is None else lifetime
        self._under_way: set[Future[Any]] = set()

    def submit(self, work: Callable[P, T], /, *args: P.args, **options: P.kwargs) -> Future[T]:
        """As that of an executor.

        Raises:
            WrongProcess: another process made it; its threads are there.
            Closed: it was shut down, or the program ends.
        """
        self._lifetime.check()
        try:
            result = super().submit(partial(copy_context().run, work), *args, **options)
        except RuntimeError as error:
            if "shutdown" not in str(error):
                raise  # no thread could be started
            raise Closed(f"expected {self._lifetime.what} that is open, found it closed") from error
        self._under_way.add(result)
        result.add_done_callback(self._under_way.discard)
        return result

    def wait_idle(self) -> None:
        """Wait until all work that was submitted up to now has ended, however it ended."""
        wait(self._under_way.copy())

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """As that of an executor; nothing in another process, where it has no threads to end."""
        self._lifetime.close()
        if self._lifetime.is_here:
            super().shutdown(wait=wait, cancel_futures=cancel_futures)

    def __reduce__(self) -> NoReturn:
        raise _not_sent(self._lifetime.what)


class DaemonThreads:
    """Does work beside the caller, in threads that do not keep the process alive: nobody waits for them at its end.

    A thread that has nothing to do is given the next work, so that handing it over costs some microseconds; it ends
    when there was none for a while. There are as many as works that are under way at once.

    Args:
        idle_seconds: so long a thread waits for more work.

    Threads: any; no lock. A process that is forked has threads of its own.
    """

    def __init__(self, idle_seconds: float = 10.0) -> None:
        self._idle_seconds = idle_seconds
        self._idle: PerProcess[deque[SimpleQueue[tuple[Callable[[], object], str]]]] = PerProcess("threads", deque)

    def __call__(self, work: Callable[[], object], name: str) -> None:
        """Do this in a thread of that name, in the caller's context. What it raises goes to `threading.excepthook`.

        Raises:
            RuntimeError: no thread could be started.
        """
        idle = self._idle()
        try:
            inbox = idle.pop()
        except IndexError:
            inbox = SimpleQueue()
            Thread(target=self._serve, args=(inbox, idle), name=name, daemon=True).start()
        inbox.put((partial(copy_context().run, work), name))

    def _serve(
        self,
        inbox: SimpleQueue[tuple[Callable[[], object], str]],
        idle: deque[SimpleQueue[tuple[Callable[[], object], str]]],
    ) -> None:
        while True:
            try:
                work, name = inbox.get(timeout=self._idle_seconds)
            except Empty:
                try:
                    idle.remove(inbox)
                except ValueError:
                    continue  # somebody has just taken it, to put work there
                return
            current_thread().name = name
            work()
            del work  # or it would live until the next one comes
            idle.append(inbox)


class InlineElsewhere(Executor):
    """An executor that was handed in; in another process, where it has no threads, who submits work does it.

    Args:
        executor: of the process that makes this.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._lifetime = Lifetime("an executor")

    def submit(self, work: Callable[P, T], /, *args: P.args, **options: P.kwargs) -> Future[T]:
        """As that of an executor."""
        if self._lifetime.is_here:
            return self._executor.submit(partial(copy_context().run, work), *args, **options)
        done: Future[T] = Future()
        try:
            done.set_result(work(*args, **options))
        except Exception as error:  # noqa: BLE001 - goes to the one who asks for the result
            done.set_exception(error)
        return done


def _not_sent(what: str) -> WrongProcess:
    return WrongProcess(f"expected {what} to stay in the process that opened it, found it being copied (pickle)")


def unpickled(what: str) -> Callable[[Any], NoReturn]:
    """A `__reduce__` for classes that no other process may get a copy of."""

    def refuse(_: Any) -> NoReturn:
        raise _not_sent(what)

    return refuse
