"""One actor at a time: each request to the store waits for the baton, and a seeded choice says who gets it.

Actors run in threads of their own, because the code under test is plain blocking code; but of all threads only one
ever runs, from one request to its next. So a run is the same whenever it is made with the same seed.

    main        picks an actor -> waits until it stops again -> looks at the world -> picks the next one ...
    actor       ... runs until its next request, or until it sleeps, finishes or fails -> stops

The clock moves a little with every step; when all actors sleep, it moves to the first that wakes up.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

STEP_SECONDS_MAX = 0.08


class Halted(BaseException):
    """The run is over; raised in place of every further request of an actor."""


class Died(BaseException):
    """The process that an actor plays has died; raised in place of this request and of all later ones of it."""


@dataclass(eq=False)
class Task:
    """An actor, as the scheduler sees it.

    Args:
        name: for messages.
        body: what it does.
    """

    name: str
    body: Callable[[], None]
    wakes_at_seconds: float = 0.0
    requests_to_live: int | None = None
    stall: tuple[int, float] | None = None
    is_done: bool = False
    error: BaseException | None = None
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    thread: threading.Thread | None = None


class Scheduler:
    """Runs actors one step at a time. `step` and `sleep` are called by actors, all else by the one who runs them."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._tasks: list[Task] = []
        self._back = threading.Semaphore(0)
        self._current: Task | None = None
        self._is_halting = False
        self.seconds = 0.0
        self.steps = 0

    def spawn(self, name: str, body: Callable[[], None]) -> None:
        """Add an actor; it begins with the next run."""
        task = Task(name, body)
        task.thread = threading.Thread(target=self._play, args=(task,), name=name, daemon=True)
        self._tasks.append(task)
        task.thread.start()

    def run(self, steps: int, after_step: Callable[[], None]) -> None:
        """Take so many steps; afterwards all actors have ended.

        Raises:
            Whatever an actor or `after_step` raised first.
        """
        try:
            for _ in range(steps):
                task = self._next()
                self.seconds += self._random.uniform(0, STEP_SECONDS_MAX)
                self.steps += 1
                self._resume(task)
                if task.error is not None:
                    raise task.error
                after_step()
        finally:
            self._halt()

    def step(self) -> None:
        """Wait for the baton: an actor is about to send a request.

        Raises:
            Halted: the run is over.
            Died: this process is dead.
        """
        task = self._own()
        if task.stall is not None:
            requests, seconds = task.stall
            task.stall = (requests - 1, seconds) if requests else None
            task.wakes_at_seconds = self.seconds + (0.0 if requests else seconds)
        self._park(task)
        if task.requests_to_live is not None:
            task.requests_to_live = max(0, task.requests_to_live - 1)
            if task.requests_to_live == 0:
                raise Died(task.name)

    def sleep(self, seconds: float) -> None:
        """Let others go until the clock has moved so far."""
        task = self._own()
        task.wakes_at_seconds = self.seconds + seconds
        self._park(task)

    def doom(self, requests: int | None) -> None:
        """Let the current actor die in place of its n-th request from now; None = it lives."""
        self._own().requests_to_live = requests

    def stall(self, requests: int, seconds: float) -> None:
        """Let the current actor wait that long before its n-th request from now, as if its machine had paused."""
        self._own().stall = (requests, seconds)

    def _own(self) -> Task:
        if self._current is None:
            raise RuntimeError("expected an actor that has the baton, found none")
        return self._current

    def _park(self, task: Task) -> None:
        if not self._is_halting:
            self._back.release()
            task.go.acquire()
        if self._is_halting:
            raise Halted

    def _next(self) -> Task:
        alive = [task for task in self._tasks if not task.is_done]
        ready = [task for task in alive if task.wakes_at_seconds <= self.seconds]
        if not ready:
            first = min(alive, key=lambda task: task.wakes_at_seconds)
            self.seconds = first.wakes_at_seconds
            return first
        return self._random.choice(ready)

    def _resume(self, task: Task) -> None:
        self._current = task
        task.go.release()
        self._back.acquire()
        self._current = None

    def _halt(self) -> None:
        self._is_halting = True
        for task in self._tasks:
            if not task.is_done:
                self._resume(task)

    def _play(self, task: Task) -> None:
        task.go.acquire()
        try:
            if not self._is_halting:
                task.body()
        except Halted:
            pass
        except BaseException as error:  # noqa: BLE001 - the one who runs the actors raises it
            task.error = error
        finally:
            task.is_done = True
            self._back.release()
