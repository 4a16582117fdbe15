"""The order of arrival: the clock that stamps data, the replies that carry its values, and the segment that is next.

A host stamps what arrives with values that never fall, whatever its clock does:

    source      100   90   90  130
    now()       100  100  100  130

All segments of a host share one clock, so their values can be compared. Across hosts values compare as well as the
clocks behind them agree. After a restart the clock goes on from the highest value that was stored.

A reader knows, of each of its segments, the value of the data that it would give next, and chooses among them:

    | segment                       | standing                    | result                               |
    |-------------------------------|-----------------------------|--------------------------------------|
    | sealed, and read to its end   | `is_drained`                | chosen at once, so that it is let go |
    | has data in its buffer        | `value` of its next data    | lowest value first, then lowest id   |
    | nothing in its buffer yet     | `value` None                | never chosen, and delays no other    |

    a 10  b 20  c not ready   -> a
    a 30  b 20  c not ready   -> b
    a 30  b 40  c 40          -> a, later b, then c

A sealed segment does not wait for its turn: its successors can only be read once it is let go, and it has no value
that would ever be the lowest.

Source: PDP-28, "Cross Routing Key Ordering".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Lock
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from range_index.segment_times import NO_TOKEN, NO_VALUE, TimesRead

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


class SegmentRead(NamedTuple):
    """The answer to a read of a segment.

    Args:
        data: the bytes.
        values: clock values of the records of the time index that cover them, never falling; shape (records,), u8.
        token: where the read left off, to be given with the next one; `NO_TOKEN` from a peer without a time index.

    Source: PDP-28, "SegmentRead".
    """

    data: bytes
    values: NDArray[np.uint64]
    token: int = NO_TOKEN

    @classmethod
    def of(cls, data: bytes, times: TimesRead) -> SegmentRead:
        """Bytes, and what the time index says about them."""
        return cls(data, times.values, times.token)

    @classmethod
    def without_times(cls, data: bytes) -> SegmentRead:
        """Bytes of a peer that has no time index."""
        return cls(data, np.array([NO_VALUE], dtype=np.uint64))

    @property
    def value(self) -> int:
        """How this data is ordered relative to other data: the clock value of its first record; 0 if unknown."""
        return int(self.values[0]) if len(self.values) else NO_VALUE


class StreamSegmentInfo(NamedTuple):
    """What is told of a segment.

    Args:
        end_offset: where it ends now.
        value: the clock value that data would get if it were added now; so no later data has a lower one. 0 from a peer
            without a time index.
        is_sealed: whether nothing can be added any more.

    Source: PDP-28, "StreamSegmentInfo".
    """

    end_offset: int
    value: int = NO_VALUE
    is_sealed: bool = False


class Ordered(Protocol):
    """Ids of segments: numbers or names."""

    def __lt__(self, other: Any, /) -> bool: ...


Id = TypeVar("Id", bound=Ordered)


class Standing(NamedTuple, Generic[Id]):
    """How one segment of a reader stands.

    Args:
        segment: its id.
        value: clock value of the next data in its buffer; None = nothing there.
        is_drained: whether it is sealed and read to its end.
    """

    segment: Id
    value: int | None
    is_drained: bool = False

    @property
    def is_ready(self) -> bool:
        """Whether it may be chosen."""
        return self.is_drained or self.value is not None


def choose(standings: Iterable[Standing[Id]]) -> Standing[Id] | None:
    """The segment that is read, or let go, next; None if none is ready. O(segments).

    Source: PDP-28, "the orderer to select the segment returning the lowest value"; Pravega issue 2739 for sealed ones.
    """
    return min(filter(_is_ready, standings), key=_rank, default=None)


def _is_ready(standing: Standing[Id]) -> bool:
    return standing.is_ready


def _rank(standing: Standing[Id]) -> tuple[bool, int, Id]:
    value = 0 if standing.is_drained or standing.value is None else standing.value
    return not standing.is_drained, value, standing.segment


class Lag:
    """How far behind a reader, or one segment of it, is. Threads: one at a time.

    Source: PDP-28, "getLag() ... can return the data from the time index".
    """

    def __init__(self) -> None:
        self._last: int | None = None

    def read(self, value: int) -> None:
        """Take notice of the clock value of the last record that was read; 0 says nothing: nobody knows it."""
        if value != NO_VALUE:
            self._last = value

    def at(self, now: int) -> int:
        """How much later it is than that record arrived, in the clock's unit; 0 before the first read, never negative.

        Args:
            now: what the clock says.
        """
        return 0 if self._last is None else max(0, now - self._last)
