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
from loaders.settings import RetrySettings

Answer = TypeVar("Answer")

_DOUBLINGS_MAX = 32


DEFAULT_RETRY: Final = RetrySettings()


@dataclass(frozen=True, slots=True)
class Backoff:
    """Settings, and the functions that apply them.

    Args:
        settings: the bounds.
        sleep: waits for this number of seconds.
        jitter: returns a random number in [0, 1).
    """

    settings: RetrySettings
    sleep: Callable[[float], object]
    jitter: Callable[[], float]

    def pause(self, attempt: int) -> None:
        """Wait before repetition number `attempt`, the first of which is 1."""
        longest = self.settings.backoff_seconds * 2 ** min(attempt - 1, _DOUBLINGS_MAX)
        self.sleep(self.jitter() * min(longest, self.settings.backoff_seconds_max))

    def attempts(self, count: int | None = None) -> Iterator[int]:
        """Number attempts from 1, with a pause before each but the first; `settings.attempts` of them by default."""
        for attempt in range(1, (self.settings.attempts if count is None else count) + 1):
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
            count: bounds the attempts; None = `settings.attempts`.

        Raises:
            AccelError: the error of the last attempt.
        """
        last = self.settings.attempts if count is None else count
        for attempt in self.attempts(last):
            try:
                return request()
            except AccelError as error:
                if not helps(error) or attempt == last:  # called for each error, as it may record the error
                    raise
        raise ValueError(f"expected at least 1 attempt, found {last}")

    def ask(self, request: Callable[[], Answer]) -> Answer:
        """Send a request that may be sent twice until the store answers; `settings.settle_attempts` times at most.

        Raises:
            StoreUnavailable: the error of the last attempt.
        """
        return self.repeat(request, lambda error: isinstance(error, StoreUnavailable), self.settings.settle_attempts)
