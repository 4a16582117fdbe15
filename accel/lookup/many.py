"""Many lookups in one call: those that have to wait do so side by side, so that they share rounds and loads.

Each lookup is the script that it would be by itself; nothing here decides an answer. What two of them open at the same
time is opened once, as for lookups of two threads. A lookup that memory answers waits for nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, wait
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from accel.errors import AccelError, InvalidRequest
from accel.lookup.answer import Answer, Request

if TYPE_CHECKING:
    from accel.lookup.waiting import Script, Wait

REQUESTS_MAX: Final = 10_000
"""Requests of one call."""

AT_ONCE_MAX: Final = 256
"""Lookups of one call that wait at the same time."""


def checked_requests(requests: Iterable[Request]) -> list[Request]:
    """The requests as a list.

    Raises:
        InvalidRequest: more than `REQUESTS_MAX`.
    """
    checked = list(islice(requests, REQUESTS_MAX + 1))
    if len(checked) > REQUESTS_MAX:
        raise InvalidRequest(f"expected at most {REQUESTS_MAX} requests in one call, found more")
    return checked


class SideBySide:
    """Runs scripts of lookups side by side in the calling thread.

    Args:
        timer: seconds, from any start.

    Threads: one.
    """

    def __init__(self, timer: Callable[[], float]) -> None:
        self._timer = timer
        self._scripts: dict[int, Script[Answer]] = {}
        self._waiting: dict[int, tuple[Wait, float | None]] = {}
        self.outcomes: dict[int, Answer | AccelError] = {}
        """By the number of the script; complete after `finish`."""

    def start(self, number: int, script: Script[Answer]) -> None:
        """Take in a script; where too many wait already, this waits until one of them is done."""
        while len(self._waiting) >= AT_ONCE_MAX:
            self._wait()
        self._scripts[number] = script
        self._go_on(number, None)

    def finish(self) -> None:
        """Wait until all are done."""
        while self._waiting:
            self._wait()

    def _wait(self) -> None:
        futures = {future for waiting, _ in self._waiting.values() for future in waiting.futures}
        ends = [end for _, end in self._waiting.values() if end is not None]
        first_end = min(ends, default=None)
        timeout_seconds = None if first_end is None else max(0.0, first_end - self._timer())
        done = wait(futures, timeout_seconds, FIRST_COMPLETED).done
        for number, (waiting, end) in list(self._waiting.items()):
            has_come = not done.isdisjoint(waiting.futures)
            if has_come or (not done and end == first_end):
                self._go_on(number, has_come)

    def _go_on(self, number: int, sent: Any) -> None:
        """Let a script go on until it waits, or is done."""
        script = self._scripts[number]
        self._waiting.pop(number, None)
        try:
            step: Any = script.send(sent)  # a Wait or a Call
            while not hasattr(step, "futures"):
                step = self._call(script, step.function)
        except StopIteration as stop:
            self._end(number, stop.value)
        except AccelError as error:
            self._end(number, error)
        else:
            seconds = step.timeout_seconds
            self._waiting[number] = (step, None if seconds is None else self._timer() + seconds)

    def _call(self, script: Script[Answer], function: Callable[[], Any]) -> Any:
        try:
            sent = function()
        except Exception as error:  # noqa: BLE001 - whatever it is, the script decides about it
            return script.throw(error)
        return script.send(sent)

    def _end(self, number: int, outcome: Answer | AccelError) -> None:
        self.outcomes[number] = outcome
        del self._scripts[number]
