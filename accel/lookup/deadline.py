"""The time that a call may take."""

from __future__ import annotations

from collections.abc import Callable


class Deadline:
    """The time that a call may take; None for as long as it takes."""

    def __init__(self, timer: Callable[[], float], seconds: float | None) -> None:
        self._timer = timer
        self._end = None if seconds is None else timer() + seconds

    def left_seconds(self) -> float | None:
        """Seconds left, at least 0; None for as long as it takes."""
        return None if self._end is None else max(0.0, self._end - self._timer())
