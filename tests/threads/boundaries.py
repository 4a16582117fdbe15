"""A lock at whose boundaries threads switch, and a look at which functions several threads were in.

A thread that comes to a boundary (before it takes a lock, after it has released one) may be held there until another
thread comes to a boundary: the seed draws whether. Where code reads within one lock and writes within the next, others
are in between. A thread that is held goes on by itself after a moment, as all others may wait for it.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from types import CodeType, FrameType, ModuleType
from typing import Any
from unittest.mock import patch

import accel
import loaders
from loaders.threads import DaemonThreads

THREADS = 16
SWITCH_SECONDS = 1e-5
HELD_PERCENT = 30
HELD_SECONDS_MAX = 0.001

_RealLock = threading.Lock


class Boundaries:
    """Holds threads at boundaries. Threads: any.

    Args:
        seed: draws who is held.
    """

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._lock = _RealLock()
        self._held: deque[Any] = deque()

    def come(self) -> None:
        """The calling thread is at a boundary: the one that was held first goes on, and this one may be held."""
        with self._lock:
            freed = self._held.popleft() if self._held else None
            gate = None
            if self._random.randrange(100) < HELD_PERCENT:
                gate = _RealLock()
                gate.acquire()
                self._held.append(gate)
        if freed is not None:
            freed.release()
        if gate is not None and not gate.acquire(timeout=HELD_SECONDS_MAX):
            with self._lock:
                if gate in self._held:
                    self._held.remove(gate)


def lock_class(boundaries: Boundaries) -> type:
    """A class as `threading.Lock`, with these boundaries."""

    class SwitchingLock:
        def __init__(self) -> None:
            self._lock = _RealLock()

        def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
            boundaries.come()
            return self._lock.acquire(blocking, timeout)

        def release(self) -> None:
            self._lock.release()
            boundaries.come()

        def locked(self) -> bool:
            return self._lock.locked()

        def __enter__(self) -> bool:
            return self.acquire()

        def __exit__(self, *_: object) -> None:
            self.release()

    return SwitchingLock


class _Threading(ModuleType):
    """`threading`, but for its lock."""

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)


def our_modules() -> list[ModuleType]:
    """All modules of `accel` and `loaders` that can be shared by threads; commands are for one."""
    names = [
        each.name
        for package in (accel, loaders)
        for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ]
    return [
        importlib.import_module(name)
        for name in names
        if not name.startswith("accel.cli") and not name.endswith("__main__")
    ]


@contextmanager
def switching(seed: int) -> Iterator[None]:
    """While it lasts, locks that our modules make are such locks, and the interpreter switches often."""
    lock = lock_class(Boundaries(seed))
    changed = _Threading("threading")
    changed.__dict__["Lock"] = lock
    interval = sys.getswitchinterval()
    with ExitStack() as until:
        for module in our_modules():
            for name, value, ours in (("Lock", _RealLock, lock), ("threading", threading, changed)):
                if getattr(module, name, None) is value:
                    until.enter_context(patch.object(module, name, ours))
        until.callback(sys.setswitchinterval, interval)
        sys.setswitchinterval(SWITCH_SECONDS)
        yield


class Calls:
    """Which threads were in which function, of those threads that begin while it looks. Threads: any."""

    def __init__(self) -> None:
        self._threads: defaultdict[int, set[int]] = defaultdict(set)

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Look, while this lasts."""
        threading.setprofile(self._note)
        try:
            with patch("loaders.threads.start_thread", DaemonThreads()):  # idle threads began before
                yield
        finally:
            threading.setprofile(None)

    def threads_in(self, kind: type) -> int:
        """How many threads were in functions of this class: codes are compared by identity, as equal ones exist."""
        codes = [code for value in vars(kind).values() for code in _codes(value)]
        return len(set().union(*(self._threads.get(id(code), set()) for code in codes)))

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            self._threads[id(frame.f_code)].add(threading.get_ident())


def _codes(value: object) -> Iterator[CodeType]:
    if isinstance(value, property):
        value = value.fget
    for each in (value, getattr(value, "__func__", None), getattr(value, "_make", None)):
        code = getattr(getattr(each, "__wrapped__", each), "__code__", None)  # what wraps many is of no one class
        if isinstance(code, CodeType):
            yield code


def side_by_side(act: Callable[[int, Random], object], seed: int, rounds: int, calls: Calls | None = None) -> None:
    """Have sixteen threads do something so many times each, all at once.

    Args:
        act: what; it is given the number of its thread, and that thread's chance.
        seed: of all chances.
        rounds: how often each does it.
        calls: looks at them.

    Raises:
        ExceptionGroup: of what they raised.
    """
    begin, errors = threading.Barrier(THREADS), []

    def run(number: int) -> None:
        chance = Random(f"{seed} {number}")
        begin.wait()
        try:
            for _ in range(rounds):
                act(number, chance)
        except Exception as error:  # noqa: BLE001 - the caller raises it
            errors.append(error)

    with ExitStack() as until:
        if calls is not None:
            until.enter_context(calls.looking())
        threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if errors:
        raise ExceptionGroup("of threads", errors)
