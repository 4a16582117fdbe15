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

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from threading import RLock
from types import TracebackType
from typing import Any, Generic, NoReturn, Self, TypeVar, overload

from loaders.errors import Closed, WrongProcess

T = TypeVar("T")


ProcessId = Callable[[], int]


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


class Closing(ABC):
    """An object of a `with` block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_block(error)

    @abstractmethod
    def _end_block(self, error: BaseException | None) -> None:
        """What is done at the end of the block, after this error."""


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


def _not_sent(what: str) -> WrongProcess:
    return WrongProcess(f"expected {what} to stay in the process that opened it, found it being copied (pickle)")


def unpickled(what: str) -> Callable[[Any], NoReturn]:
    """A `__reduce__` for classes whose objects must not be copied to another process."""

    def refuse(_: Any) -> NoReturn:
        raise _not_sent(what)

    return refuse
