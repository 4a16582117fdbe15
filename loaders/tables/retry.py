"""How often something is tried again, and how long it waits in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from loaders.errors import StoreUnavailable

Answer = TypeVar("Answer")

_DOUBLINGS_MAX = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings:
    """Bounds on repetition.

    Attributes:
        attempts: how often `update_with` applies its change before it gives up.
        settle_attempts: how often one write is sent, and how often it is read again to learn what became of it.
        backoff_seconds: longest pause before the first repetition; doubled with each further one.
        backoff_seconds_max: where the doubling ends.
    """

    attempts: int = 32
    settle_attempts: int = 8
    backoff_seconds: float = 0.02
    backoff_seconds_max: float = 2.0

    def __post_init__(self) -> None:
        for name in ("attempts", "settle_attempts"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is at least 1: {getattr(self, name)}")
        if not 0 <= self.backoff_seconds <= self.backoff_seconds_max:
            bounds = f"{self.backoff_seconds} and {self.backoff_seconds_max}"
            raise ValueError(f"backoff_seconds lies between 0 and backoff_seconds_max: {bounds}")


@dataclass(frozen=True, slots=True)
class Patience:
    """Settings, and what makes them happen.

    Args:
        settings: the bounds.
        sleep: waits for so many seconds.
        jitter: a number in [0, 1), each time another; the pause is that part of the longest one ("full jitter"), so
            that writers who lost one race together do not meet in the next one.
    """

    settings: RetrySettings
    sleep: Callable[[float], object]
    jitter: Callable[[], float]

    def pause(self, attempt: int) -> None:
        """Wait before repetition number `attempt`, the first of which is 1."""
        longest = self.settings.backoff_seconds * 2 ** min(attempt - 1, _DOUBLINGS_MAX)
        self.sleep(self.jitter() * min(longest, self.settings.backoff_seconds_max))


def patiently(patience: Patience, ask: Callable[[], Answer]) -> Answer:
    """Ask the store something that may be asked twice, until it answers; `settle_attempts` times at most."""
    attempt = 0
    while True:
        try:
            return ask()
        except StoreUnavailable:
            attempt += 1
            if attempt >= patience.settings.settle_attempts:
                raise
        patience.pause(attempt)
