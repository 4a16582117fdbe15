"""One task at a time, in simulated time: who goes next follows from the times at which tasks wake up, and nothing else.

Tasks run in threads of their own, because the code under test is plain blocking code; but of all threads only one ever
runs, from one point where it waits (a request, a sleep, a lock) to its next. So a run is the same whenever the same
times are drawn, and nobody waits for real.

    main        the task that wakes up first -> it runs until it waits again -> look at the world -> the next one ...
    task        ... runs until its next request, or until it sleeps, finishes or fails -> hands the baton back

Each machine draws its latencies from a random source of its own. So a run without one of its actors differs from the
whole run only by what that actor did, and a failing run can be made shorter by leaving actors out.
"""

from __future__ import annotations

import ctypes
import heapq
import math
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import count
from typing import Any

TRACE_LINES = 60
TURNS_WITHOUT_STEP_MAX = 20_000
TURN_SECONDS_MAX = 60.0
"""Of real time: a task that takes longer from one wait to the next goes round in a circle. Turns take milliseconds."""
TICK_SECONDS = 1e-6
"""The shortest wait: less would be lost in the rounding of the clock, which would stand still."""


class Halted(BaseException):
    """The run is over; raised in place of every further wait of a task."""


class Died(BaseException):
    """The process that a task belongs to has died; raised in place of this wait and of all later ones of it."""


class Violation(AssertionError):
    """Something that must always be true is not."""


class Mortal:
    """What a task belongs to: a process. Its tasks end when it is dead; it may have threads beside its callers."""

    is_dead = False
    has_threads = False


@dataclass(eq=False)
class Task:
    """A thread of a simulated process.

    Args:
        name: for messages.
        body: what it does.
        process: that it belongs to.
    """

    name: str
    body: Callable[[], None]
    process: Mortal
    go: threading.Lock = field(default_factory=threading.Lock)
    wakes_at_seconds: float = 0.0
    turn: int = 0
    is_done: bool = False
    is_woken: bool = False
    thread_id: int = 0
    error: BaseException | None = None


class Trace:
    """What happened, as a hash of all and as the last lines of it. One thread at a time."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=16)
        self.lines: deque[str] = deque(maxlen=TRACE_LINES)

    def note(self, line: str) -> None:
        """Add a line."""
        self._hash.update(line.encode())
        self.lines.append(line)

    @property
    def digest(self) -> str:
        """Of everything so far."""
        return self._hash.hexdigest()


class Scheduler:
    """Runs tasks. `sleep`, `block` and `current` are for tasks, all else is for any thread that has the baton."""

    def __init__(self) -> None:
        self._queue: list[tuple[float, int, Task]] = []
        self._tasks: dict[Task, None] = {}
        self._turns = count(1)
        self._back = threading.Lock()
        self._back.acquire()
        self._current: Task | None = None
        self._is_halting = False
        self.seconds = 0.0
        self.steps = 0
        self._last_step = self._turns_without_step = 0
        self.trace = Trace()

    @property
    def current(self) -> Task | None:
        """Who has the baton; None = the one who runs the tasks."""
        return self._current

    @property
    def has_tasks(self) -> bool:
        """Whether any has not ended."""
        return bool(self._tasks)

    @property
    def task_count(self) -> int:
        """How many have not ended."""
        return len(self._tasks)

    def spawn(self, name: str, body: Callable[[], None], process: Mortal | None = None) -> Task:
        """Add a task; it begins when its turn comes, now."""
        task = Task(name, body, process or Mortal())
        task.go.acquire()
        self._tasks[task] = None
        threading.Thread(target=self._play, args=(task,), name=name, daemon=True).start()
        self._wake_at(task, self.seconds)
        return task

    def run(self, steps: int, after_step: Callable[[], None]) -> None:
        """Let tasks run until they have taken so many steps, or until all have ended.

        Raises:
            Whatever a task or `after_step` raised first.
            Violation: all tasks wait for each other.
        """
        until = self.steps + steps
        while self.steps < until and self._tasks:
            self._resume(self._next())
            self._refuse_idling()
            after_step()

    def run_until_done(self, name: str, steps: int) -> None:
        """Let tasks run until one has ended; others may go on for ever, as threads beside it do.

        Raises:
            As `run`; and Violation: it takes more steps than that.
        """
        until = self.steps + steps
        while any(task.name == name for task in self._tasks):
            if self.steps >= until:
                raise Violation(f"expected {name!r} to end within {steps} steps, found it going on")
            self._resume(self._next())
            self._refuse_idling()

    def halt(self) -> None:
        """End all tasks that there are; new ones may be spawned afterwards."""
        self._is_halting = True
        try:
            while self._tasks:
                self._hand_over(next(iter(self._tasks)))
        finally:
            self._is_halting = False

    def sleep(self, seconds: float) -> None:
        """Let others go until the clock has moved so far.

        Raises:
            Halted, Died: the run is over, or the process of the task.
        """
        task = self._own()
        self._wake_at(task, self.seconds + max(TICK_SECONDS, seconds))
        self._park(task)

    def block(self, timeout_seconds: float | None = None) -> bool:
        """Wait until `wake` is called with this task, or for so long; says which.

        Raises:
            As `sleep`.
        """
        task = self._own()
        task.is_woken = False
        self._wake_at(task, math.inf if timeout_seconds is None else self.seconds + max(TICK_SECONDS, timeout_seconds))
        self._park(task)
        return task.is_woken

    def wake(self, task: Task) -> None:
        """End the wait of a task that is blocked; nothing if it is not."""
        if not task.is_done and task is not self._current and not task.is_woken:
            task.is_woken = True
            self._wake_at(task, self.seconds)

    def end_tasks_of(self, process: Mortal) -> None:
        """Let all tasks of a process that is dead notice that now."""
        for task in self._tasks:
            if task.process is process and task is not self._current:
                task.is_woken = True
                self._wake_at(task, self.seconds)

    def _refuse_idling(self) -> None:
        """That tasks do not go on for ever without a request."""
        if self.steps != self._last_step:
            self._last_step, self._turns_without_step = self.steps, 0
        self._turns_without_step += 1
        if self._turns_without_step > TURNS_WITHOUT_STEP_MAX:
            names = sorted({task.name for task in self._tasks})
            raise Violation(f"expected a request within {TURNS_WITHOUT_STEP_MAX} turns, found none of {names}")

    def _own(self) -> Task:
        if self._current is None:
            raise RuntimeError("expected a task that has the baton, found none")
        return self._current

    def _wake_at(self, task: Task, seconds: float) -> None:
        task.wakes_at_seconds, task.turn = seconds, next(self._turns)
        heapq.heappush(self._queue, (seconds, task.turn, task))

    def _next(self) -> Task:
        while True:
            seconds, turn, task = heapq.heappop(self._queue)
            if task.is_done or task.turn != turn:
                continue
            if math.isinf(seconds):
                waiting = sorted(each.name for each in self._tasks)
                raise Violation(f"expected a task that can go on, found that all wait for each other: {waiting}")
            self.seconds = max(self.seconds, seconds)
            return task

    def _park(self, task: Task) -> None:
        if not self._is_halting:
            self._current = None
            self._back.release()
            task.go.acquire()
        if self._is_halting:
            raise Halted
        if task.process.is_dead:
            raise Died(task.name)

    def _resume(self, task: Task) -> None:
        self._hand_over(task)
        if task.error is not None:
            raise task.error

    def _hand_over(self, task: Task) -> None:
        self._current = task
        task.go.release()
        if not self._back.acquire(timeout=TURN_SECONDS_MAX):
            self._end_circle(task)
        self._current = None
        if task.is_done:
            self._tasks.pop(task, None)

    def _end_circle(self, task: Task) -> None:
        """End a task that does not come to its next wait."""
        frames = sys._current_frames()
        where = "".join(traceback.format_stack(frames[task.thread_id], limit=12))
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(task.thread_id), ctypes.py_object(Halted))
        self._back.acquire()
        self._tasks.pop(task, None)
        raise Violation(f"expected {task.name!r} to wait within {TURN_SECONDS_MAX} s, found it still in\n{where}")

    def _play(self, task: Task) -> None:
        task.thread_id = threading.get_ident()
        task.go.acquire()
        try:
            if not self._is_halting and not task.process.is_dead:
                task.body()
        except (Halted, Died):
            pass
        except BaseException as error:  # noqa: BLE001 - the one who runs the tasks raises it
            task.error = error
        finally:
            task.is_done = True
            self._back.release()


def described(lines: Iterable[Any]) -> str:
    """Lines of a trace, for the text of a failure."""
    return "\n".join(f"    {line}" for line in lines)
