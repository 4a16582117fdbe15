"""Locks, conditions and events of the code under test, as tasks of a scheduler see them.

A task that waits for another one must hand the baton on, or nobody would ever run again: a real lock that a parked task
holds would stop the world. So while a run lasts, the names `Lock`, `Condition`, `Event`, `SimpleQueue`, `Threads` and
`SharedThreads` in the modules of `accel` and `loaders` mean the classes of this module, and futures wait by them.

Only one thread runs at a time, so none of them needs a lock of its own. Outside of a task (the thread that looks at the
world between two steps) nothing is ever waited for: what is not free there is a mistake of the test.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from functools import partial
from itertools import product
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest.mock import patch

import accel.compaction.running
import accel.hint_building
import accel.history.store.lifecycle
import accel.streams.writer  # noqa: F401 - their names are replaced, too
from loaders import threads
from loaders.lifetime import Lifetime
from tests.simulation.scheduler import Scheduler, Task

Answer = TypeVar("Answer")

_running: list[Scheduler] = []
"""Of the run that lasts."""


def current() -> Task | None:
    """Who has the baton."""
    return _running[-1].current if _running else None


def now() -> float:
    """Seconds of simulated time."""
    return _running[-1].seconds if _running else 0.0


class Waiters:
    """Tasks that wait for something, in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: deque[Task] = deque()

    def wait(self, timeout_seconds: float | None) -> bool:
        """Wait until woken, or for so long; says which."""
        task = current()
        if task is None:
            raise RuntimeError("expected nothing to wait for outside of a task, found it taken")
        self._waiting.append(task)
        try:
            return _running[-1].block(timeout_seconds)
        finally:
            if task in self._waiting:
                self._waiting.remove(task)

    def wait_for(self, is_there: Callable[[], object], timeout_seconds: float | None) -> bool:
        """Wait until it is there, or for so long; says which. To wait takes time, however short the time-out is.

        Outside of a run the time-out may be less than what the clock can tell apart, and the clock moves on by itself.
        A task that asks again and again until its time has come would otherwise ask for ever.
        """
        deadline_seconds = None if timeout_seconds is None else now() + timeout_seconds
        left_seconds = timeout_seconds
        while not is_there():
            self.wait(left_seconds)
            if deadline_seconds is not None and (left_seconds := deadline_seconds - now()) <= 0:
                return bool(is_there())
        return True

    def wake(self, count: int) -> None:
        """End the wait of so many."""
        for task in list(self._waiting)[:count]:
            _running[-1].wake(task)


class Lock:
    """As `threading.Lock`."""

    def __init__(self) -> None:
        self._is_taken = False
        self._waiters = Waiters()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if not blocking and self._is_taken:
            return False
        if not self._waiters.wait_for(lambda: not self._is_taken, None if timeout < 0 else timeout):
            return False
        self._is_taken = True
        return True

    def release(self) -> None:
        if not self._is_taken:
            raise RuntimeError("release unlocked lock")
        self._is_taken = False
        self._waiters.wake(1)

    def locked(self) -> bool:
        return self._is_taken

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class RLock(Lock):
    """As `threading.RLock`: its owner may take it again."""

    def __init__(self) -> None:
        super().__init__()
        self._owner: Task | None = None
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self._depth and self._owner is current():
            self._depth += 1
            return True
        if not super().acquire(blocking, timeout):
            return False
        self._owner, self._depth = current(), 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
            super().release()


class Condition:
    """As `threading.Condition`."""

    def __init__(self, lock: Lock | None = None) -> None:
        self._lock = lock or RLock()
        self._waiters = Waiters()
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        self._lock.release()
        try:
            return self._waiters.wait(timeout)
        finally:
            self._lock.acquire()

    def wait_for(self, predicate: Callable[[], Answer], timeout: float | None = None) -> Answer:
        deadline = None if timeout is None else now() + timeout
        while not (found := predicate()):
            self.wait(timeout if deadline is None else deadline - now())
            if deadline is not None and deadline <= now():
                return predicate()
        return found

    def notify(self, n: int = 1) -> None:
        self._waiters.wake(n)

    def notify_all(self) -> None:
        self._waiters.wake(sys.maxsize)


class Event:
    """As `threading.Event`."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiters = Waiters()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        self._waiters.wake(sys.maxsize)

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._is_set:
            self._waiters.wait(timeout)
        return self._is_set


class SimpleQueue:
    """As `queue.SimpleQueue`."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._waiters = Waiters()

    def put(self, item: Any) -> None:
        self._items.append(item)
        self._waiters.wake(1)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if not block and not self._items:
            raise queue.Empty
        if not self._waiters.wait_for(lambda: self._items, timeout):
            raise queue.Empty
        return self._items.popleft()

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def empty(self) -> bool:
        return not self._items

    def qsize(self) -> int:
        return len(self._items)


class SimulatedThreads(futures.Executor):
    """In the place of pools. Work is a task of the caller's process; where that has no threads, it is done at once."""

    def __init__(self, threads_max: int = 1, name: str = "", **options: Any) -> None:
        self.threads_max = threads_max
        self._name = name
        self._under_way: set[futures.Future[Any]] = set()
        self.lifetime: Lifetime = options.get("lifetime") or Lifetime(f"threads {name!r}")

    def submit(self, fn: Callable[..., Answer], /, *args: Any, **kwargs: Any) -> futures.Future[Answer]:
        """See `Executor.submit`; the death of the process is not kept for later."""
        self.lifetime.check()
        future: futures.Future[Answer] = futures.Future()
        task = current()
        if task is None or not task.process.has_threads:
            _carry_out(future, partial(fn, *args, **kwargs))
            return future
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        work = partial(copy_context().run, fn, *args, **kwargs)
        _running[-1].spawn(f"{task.name} {self._name}", partial(_carry_out, future, work), task.process)
        return future

    def of(self, group: object) -> SimulatedThreads:
        """See `SharedThreads.of`: here no thread is short."""
        del group
        return self

    def go_on(self) -> None:
        """See `SharedThreads.go_on`: no call waits."""

    def wait_idle(self) -> None:
        """See `Threads.wait_idle`."""
        futures.wait(self._under_way.copy())

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """As that of `Threads`."""
        del wait, cancel_futures
        self.lifetime.close()


def _carry_out(future: futures.Future[Answer], work: Callable[[], Answer]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        answer = work()
    except Exception as error:  # noqa: BLE001 - who asks for the result gets it
        future.set_exception(error)
    else:
        future.set_result(answer)


REPLACED: dict[object, object] = {
    threading.Lock: Lock,
    threading.RLock: RLock,
    threading.Condition: Condition,
    threading.Event: Event,
    threading: SimpleNamespace(
        **{**vars(threading), "Lock": Lock, "RLock": RLock, "Condition": Condition, "Event": Event}
    ),
    queue.SimpleQueue: SimpleQueue,
    threads.Threads: SimulatedThreads,
    threads.SharedThreads: SimulatedThreads,
}
REPLACED_IN = ("accel.", "loaders.", "concurrent.futures._base")
NAMES = ("Lock", "RLock", "Condition", "Event", "threading", "SimpleQueue", "Threads", "SharedThreads")


@contextmanager
def simulated(scheduler: Scheduler) -> Iterator[None]:
    """For so long the code under test waits in simulated time."""
    begin = futures.Future.__init__

    def begun(future: futures.Future[Any]) -> None:
        begin(future)
        future._condition = Condition()  # type: ignore[assignment]

    with ExitStack() as until:
        _running.append(scheduler)
        until.callback(_running.pop)
        modules = [module for name, module in sys.modules.items() if name.startswith(REPLACED_IN)]
        for module, name in product(modules, NAMES):
            made = REPLACED.get(vars(module).get(name))
            if made is not None:
                until.enter_context(patch.object(module, name, made))
        yield
