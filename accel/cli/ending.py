"""Signals end every command, from its first moment on; as process 1 of a container, too.

The kernel passes to process 1 only the signals that it handles, so all commands handle SIGTERM, SIGHUP and Ctrl-C:

    | when                                  | what happens                                                           |
    |---------------------------------------|------------------------------------------------------------------------|
    | a signal arrives                      | `Stopped` is raised: what is open is closed, and a line is printed.    |
    |                                       | Commands that end between two steps note the signal (`signals`)        |
    | 3.5 s after SIGTERM or SIGHUP, or at  | a thread ends the process, with a line, though it waits for a name     |
    | a second signal                       | server in C, or at its end for threads that wait for a store           |

The exit code is 128 and the number of the signal. This module loads nothing else of Accel.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread, current_thread, main_thread
from typing import Final

SIGNALLED: Final = 128
"""An exit code above it is this and the number of a signal, as shells have it."""

NUMBERS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that end a command; those that its parent lets it ignore (nohup, jobs of scripts) are not among them."""

END_SECONDS: Final = 3.5
_LATER: Final = {"seconds": 0.0}
_ENDING: Final = set(NUMBERS)
SAME_SECONDS: Final = 0.5
"""Signals within this time are one: `timeout` and terminals send one to the process, and to its group."""


class Stopped(KeyboardInterrupt):
    """A signal ends the command. Like Ctrl-C it is no `Exception`, so that no handler of failures keeps it.

    Args:
        number: of the signal.
    """

    def __init__(self, number: int = signal.SIGINT) -> None:
        name = signal.Signals(number).name
        super().__init__(f"stopped by {name}: what it had written is whole, and the command can be run again")
        self.code = SIGNALLED + number


def end_on_signals() -> Callable[[], object]:
    """Let signals end this process as above, if it is not so already; in the main thread only.

    Returns:
        Puts back what was there before: for programs that run a command and go on.
    """
    if current_thread() is not main_thread() or signal.getsignal(signal.SIGTERM) is _stop:
        return bool
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    earlier_fd = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    handled = [number for number in NUMBERS if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    earlier = {number: signal.signal(number, _stop) for number in handled}
    with suppress(RuntimeError):  # no thread can be started: the handlers must do
        Thread(target=_watch, args=(reading,), name="accel-signals", daemon=True).start()

    def undo() -> None:
        _LATER["seconds"] = 0.0
        _ENDING.update(NUMBERS)
        for number, handler in earlier.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(earlier_fd)
        os.close(writing)  # the thread ends

    return undo


def end_later(seconds: float) -> None:
    """For a command that serves: it may take so much longer to end, and SIGHUP is not for its end."""
    _LATER["seconds"] = seconds
    _ENDING.discard(signal.SIGHUP)


def _stop(number: int, _: object) -> None:
    raise Stopped(number)


def _watch(reading: int) -> None:
    """End the process if its main thread does not."""
    number = 0
    while number not in _ENDING:
        if not (told := os.read(reading, 1)):
            return os.close(reading)
        number = told[0]
    Event().wait(SAME_SECONDS)
    os.set_blocking(reading, False)
    with suppress(BlockingIOError):
        os.read(reading, select.PIPE_BUF)
    limit_seconds = END_SECONDS + _LATER["seconds"]
    left = None if number == signal.SIGINT else limit_seconds - SAME_SECONDS
    why = f"the time limit, {limit_seconds} s"
    if select.select([reading], [], [], left)[0]:
        if not os.read(reading, 1):  # the command has ended, and its program goes on
            return os.close(reading)
        why = "a second signal"
    with suppress(OSError):
        os.write(2, f"error: {Stopped(number)}; it was ended in the middle of a step, by {why}\n".encode())
    os._exit(SIGNALLED + number)
