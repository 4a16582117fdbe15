"""Ctrl-C, SIGTERM and SIGHUP: noted where they arrive, and acted on where a command can end with nothing half-done.

    with noted_signals() as signals:
        ...                                     between two steps: if signals: end
    def work(signals):
        report = merge(progress=signals.at(tell))   it ends at its next step, and returns what it has done
    return until_signal(output, work)               128 and the number of the signal, as shells do

Work that a progress callback may end catches `StopRequested`. A second signal ends the command at once.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from accel.cli.ending import NUMBERS, SIGNALLED, Stopped
from accel.cli.options import EXIT_FAILED
from accel.rendering import Output, Shown
from accel.system import StopRequested


class Signals(list[int]):
    """Ctrl-C and SIGTERM in the order of arrival; replaces their default actions. One thread."""

    _is_waiting = False

    def note(self, number: int, _: object) -> None:
        """Note a signal. A second one interrupts, and so does the first one while `interrupted` waits."""
        is_first, is_waiting = not self, self._is_waiting
        self.append(number)
        if is_waiting or not is_first:
            raise Stopped(number)

    def interrupted(self, read: Callable[[], bytes]) -> bytes:
        """The result of a call that may wait for long; empty if a signal came before the call, or ended it."""
        try:
            try:
                self._is_waiting = True
                return b"" if self else read()
            finally:
                self._is_waiting = False
        except KeyboardInterrupt:
            if len(self) != 1:  # not from this call, or the second signal
                raise
            return b""

    def at(self, tell: Callable[..., object]) -> Callable[..., None]:
        """The same callback of a progress; it raises `StopRequested` once a signal has arrived."""

        def told(*args: Any) -> None:
            tell(*args)
            self.check()

        return told

    def check(self) -> None:
        """Raise `StopRequested` if a signal has arrived."""
        if self:
            raise StopRequested

    def code(self, code: int) -> int:
        """The exit code of the command: 128 and the number of the first signal; without one, the given code."""
        return SIGNALLED + self[0] if self else code


@contextmanager
def noted_signals() -> Iterator[Signals]:
    """Note signals; their earlier handlers are restored at the end. Within another such block, its signals are used."""
    before = signal.getsignal(signal.SIGTERM)
    outer = getattr(before, "__self__", None)
    if isinstance(outer, Signals):
        yield outer
        return
    noted = Signals()
    numbers = NUMBERS if threading.current_thread() is threading.main_thread() else ()
    handlers = {number: signal.getsignal(number) for number in numbers}
    caught = [number for number, handler in handlers.items() if handler is not signal.SIG_IGN]
    for number in caught:
        signal.signal(number, noted.note)
    try:
        yield noted
    finally:
        for number in caught:
            signal.signal(number, handlers[number])


def until_signal(output: Output, work: Callable[[Signals], int]) -> int:
    """The exit code of work that checks for signals, and may raise `StopRequested` until it changes something."""
    with noted_signals() as signals:
        try:
            return signals.code(work(signals))
        except StopRequested:
            said = "stopped by a signal before anything was changed"
            output.show(Shown({"stopped": True, "report": None}, (said,)))
            return signals.code(EXIT_FAILED)
