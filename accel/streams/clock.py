"""The clock of a host: it never goes back, whatever the clock behind it does.

    source      100   90   90  130
    now()       100  100  100  130

All segments of a host share one, so that their values can be compared. Across hosts they can be compared as well as
the clocks behind them agree. After a restart the clock goes on from the highest value that was stored.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_VALUE_MAX = 2**64 - 1


class HostClock:
    """Gives values that never fall. Threads: any.

    Args:
        source: the clock behind it: an integer, by default milliseconds since 1970. It may be set back, and may be
            asked by many threads at once.
        highest_stored: no value will be lower; what the host stored before it was restarted.

    Source: PDP-28, "a monotonic clock class ... shared across segment".
    """

    def __init__(self, source: Callable[[], int], highest_stored: int = 0) -> None:
        _check(highest_stored)
        self._source = source
        self._lock = Lock()
        self._last = highest_stored

    @classmethod
    def of_seconds(cls, clock: Callable[[], float], highest_stored: int = 0) -> HostClock:
        """A clock in milliseconds over one that gives seconds since 1970, such as `accel.system.SYSTEM.clock`."""
        return cls(lambda: int(clock() * 1000), highest_stored)

    def now(self) -> int:
        """The value for what arrives now: the highest one that the source, or a segment, ever had.

        Raises:
            ValueError: the source says more than 64 bits can hold.
        """
        return self._raised_to(self._source())

    def seed(self, value: int) -> None:
        """Take notice of a stored value: none that is given from now on is lower.

        Raises:
            ValueError: a value below 0 or beyond 64 bits.
        """
        _check(value)
        self._raised_to(value)

    def _raised_to(self, value: int) -> int:
        if value > _VALUE_MAX:
            _check(value)
        with self._lock:
            self._last = max(self._last, value)
            return self._last


def _check(value: int) -> None:
    if not 0 <= value <= _VALUE_MAX:
        raise ValueError(f"expected a clock value of 0 to {_VALUE_MAX}, found {value}")
