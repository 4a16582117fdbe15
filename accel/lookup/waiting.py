"""What a lookup or a read waits for, in words that threads and asyncio share.

    | please                                            | answered with                     |
    |---------------------------------------------------|-----------------------------------|
    | `Wait`: for loads and questions under way         | whether any is done               |
    | `Call`: a function that may block                 | what it returns                   |

`Script` is a generator that yields these, and an accelerator a driver that waits in its own way. `Deadline` is the time
that there is for it. Pure but for the timer that is passed in; a `Deadline` may be asked from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


class Deadline:
    """The time that a call may take; None for as long as it takes.

    Args:
        timer: seconds, from any start.
        seconds: from now on.
        answer_seconds: the source of images has at least so long to answer.
    """

    def __init__(self, timer: Callable[[], float], seconds: float | None, answer_seconds: float = 0.0) -> None:
        self._timer = timer
        self._end = None if seconds is None else timer() + seconds
        self._answer_seconds = answer_seconds

    def left_seconds(self) -> float | None:
        """Seconds left, at least 0; None for as long as it takes."""
        return None if self._end is None else max(0.0, self._end - self._timer())

    def answer_seconds(self) -> float | None:
        """Seconds that the source of images has to answer; None for as long as it takes."""
        left_seconds = self.left_seconds()
        return None if left_seconds is None else max(left_seconds, self._answer_seconds)


@dataclass(frozen=True, slots=True)
class Wait:
    """Please wait until one of these is done, or so many seconds have passed; None for as long as it takes."""

    futures: Sequence[Future[Any]]
    timeout_seconds: float | None


@dataclass(frozen=True, slots=True)
class Call:
    """Please call this; it may block."""

    function: Callable[[], Any]


Waiting = Wait | Call
Script = Generator[Waiting, Any, T]
"""What an accelerator does, but for the waiting."""
