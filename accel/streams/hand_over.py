"""Hands work of any thread over to one thread, so that no caller changes what others depend on.

    write     ┐
    write     ├─▶  work work work  ─▶  one thread, in this order
    flush     ┘    one queue           no signal handler runs in it

A signal handler may raise between any two steps of a caller's thread, or call the same object in turn while that thread
holds a lock; the collector may do so in any thread, by a ``__del__``. So a caller takes no lock here: it puts an entry
into a queue, which is one step and may be interrupted by another put, and waits on a lock of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Final
from weakref import WeakMethod

from accel.system import Components

Entry = tuple[int, Callable[[], object]]
"""The bytes of the events of some work, and the work."""

_LOOK: Final = 0, bool


class HandedOver:
    """Work that was handed over, and the callers that wait for its effects. Threads: any; callers take no lock.

    Args:
        timer: seconds from any start.

    Attributes:
        counted_bytes: as `size_bytes`; for a moment too high or too low, as threads change it without a lock.
    """

    def __init__(self, timer: Callable[[], float]) -> None:
        self._timer = timer
        self._entries: SimpleQueue[Entry | None] = SimpleQueue()
        self.counted_bytes = 0
        self._doing = Lock()
        self._waiting: deque[Lock] = deque()  # callers, each with a lock of its own

    @property
    def size_bytes(self) -> int:
        """Bytes of the events of its work."""
        return 0 if self._entries.empty() else max(0, self.counted_bytes)

    def add(self, size_bytes: int, work: Callable[[], object]) -> None:
        """Hand work over, with the bytes of its events; in one step, or not at all if the caller is interrupted."""
        self.counted_bytes += size_bytes
        self._entries.put((size_bytes, work))

    def look(self) -> None:
        """Let the thread look at what has changed."""
        self._entries.put(_LOOK)

    def begin(self, serve: Callable[[Entry], bool], system: Components, name: str) -> None:
        """Start the thread.

        Args:
            serve: does the work of an entry, and what follows from it; returns whether this was the last. Its object is
                not kept alive while there is no work.
            system: starts the thread.
            name: of the thread.
        """
        entries = self._entries
        method = WeakMethod(serve, lambda _: entries.put(None))

        def run() -> None:
            has_ended = False
            while not has_ended:
                entry, found = entries.get(), method()
                has_ended = entry is None or found is None or found(entry)
                del entry, found

        system.start(run, name)

    def do_next(self, seconds: float | None) -> None:
        """Do the work that was handed over by now; if there is none, wait for some, or without limit."""
        with suppress(Empty):
            self.do(self._entries.get(timeout=seconds))
            for _ in range(self._entries.qsize()):
                self.do(self._entries.get_nowait())
        if self._entries.empty():
            self.counted_bytes = 0  # exact again
        self.notify()

    def do(self, entry: Entry | None) -> None:
        """Do the work of an entry that was taken out."""
        size_bytes, work = entry or _LOOK
        work()
        self.counted_bytes -= size_bytes

    def do_rest(self) -> None:
        """Do all work, where no thread does it beside; one caller at a time."""
        while not self._entries.empty() and self._doing.acquire(blocking=False):
            try:
                self.do_next(0.0)
            finally:
                self._doing.release()

    def notify(self) -> None:
        """Let the callers that wait look again."""
        for _ in range(len(self._waiting)):
            with suppress(IndexError):
                self._waiting.popleft().release()

    def wait_until(self, is_so: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait in a caller's thread until something is so, at most these seconds; returns whether it is."""
        end = None if seconds is None else self._timer() + seconds
        while not is_so():
            woken = Lock()
            woken.acquire()
            self._waiting.append(woken)
            left = -1 if end is None else max(0.0, end - self._timer())
            if not is_so() and not woken.acquire(timeout=left):
                return is_so()
        return True
