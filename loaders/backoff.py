"""Backoff: the number of attempts of an operation, and the pause before each repetition.

The longest pause doubles with each repetition up to a bound, and the pause is a random part of it ("full jitter"):
writers that lost one race together do not meet again in the next one. This module itself neither sleeps nor draws
random numbers.

    for attempt in backoff.attempts(8):
        if write():
            return
    raise DataConflict(...)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from loaders.errors import AccelError, StoreUnavailable

Answer = TypeVar("Answer")

ATTEMPTS: Final = 32
"""How often a change is applied before its writer gives up."""

SETTLE_ATTEMPTS: Final = 8
"""How often one write is sent, and how often its key is read to find the outcome."""

PAUSE_SECONDS: Final = 0.02
"""The longest pause before the first repetition; doubled with each further one."""

PAUSE_SECONDS_MAX: Final = 2.0
"""The bound of the doubled pause."""

_DOUBLINGS_MAX = 32


@dataclass(frozen=True, slots=True)
class Backoff:
    """Bounds of repetition, and the functions that apply them.

    Args:
        sleep: waits for this number of seconds.
        jitter: returns a random number in [0, 1).
        attempts_max: how often a change is applied.
        settle_attempts: how often one write is sent, and how often its key is read.
    """

    sleep: Callable[[float], object]
    jitter: Callable[[], float]
    attempts_max: int = ATTEMPTS
    settle_attempts: int = SETTLE_ATTEMPTS

    def pause(self, attempt: int) -> None:
        """Wait before repetition number `attempt`, the first of which is 1."""
        longest = PAUSE_SECONDS * 2 ** min(attempt - 1, _DOUBLINGS_MAX)
        self.sleep(self.jitter() * min(longest, PAUSE_SECONDS_MAX))

    def attempts(self, count: int | None = None) -> Iterator[int]:
        """Number attempts from 1, with a pause before each but the first; `attempts_max` of them by default."""
        for attempt in range(1, (self.attempts_max if count is None else count) + 1):
            if attempt > 1:
                self.pause(attempt - 1)
            yield attempt

    def repeat(
        self, request: Callable[[], Answer], helps: Callable[[AccelError], bool], count: int | None = None
    ) -> Answer:
        """Send a request until it succeeds, or fails with an error for which another attempt does not help.

        Args:
            request: may be sent any number of times.
            helps: whether another attempt may help after this error.
            count: bounds the attempts; None = `attempts_max`.

        Raises:
            AccelError: the error of the last attempt.
        """
        last = self.attempts_max if count is None else count
        for attempt in self.attempts(last):
            try:
                return request()
            except AccelError as error:
                if not helps(error) or attempt == last:  # called for each error, as it may record the error
                    raise
        raise ValueError(f"expected at least 1 attempt, found {last}")

    def ask(self, request: Callable[[], Answer]) -> Answer:
        """Send a request that may be sent twice until the store answers; `settle_attempts` times at most.

        Raises:
            StoreUnavailable: the error of the last attempt.
        """
        return self.repeat(request, lambda error: isinstance(error, StoreUnavailable), self.settle_attempts)
