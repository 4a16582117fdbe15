"""The order of arrival: replies with clock values, the choice of the next segment, and the wait for slow segments.

A reader knows the clock value of the next data of each of its segments; the `Orderer` chooses by it:

    | segment                       | standing                    | result                               |
    |-------------------------------|-----------------------------|--------------------------------------|
    | sealed, and read to its end   | `is_drained`                | chosen at once, so that it finishes  |
    | has data in its buffer        | `value` of its next data    | lowest value first, then lowest id   |
    | has an empty buffer           | `value` None                | never chosen, and delays no other    |

    a 10  b 20  c not ready   -> a
    a 30  b 20  c not ready   -> b
    a 30  b 40  c 40          -> a, later b, then c

A sealed segment that was read to its end is chosen first: its successors can only be read once it is finished, and it
has no value that could be the lowest.

`reader_core` decides whether the chosen data is returned at once, or waits because a segment that is not ready may have
older data. At the tail of a stream the longest such wait depends on the durations of earlier requests
(`ObservedTimes`); in history it is a setting.

Source: PDP-28, "Cross Routing Key Ordering".
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from enum import Enum, unique
from itertools import count
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from range_index.segment_times import NO_TOKEN, NO_VALUE, TimesRead


class SegmentRead(NamedTuple):
    """The answer to a read of a segment.

    Args:
        data: the bytes.
        values: clock values of the time index records that cover the bytes, never falling; shape (records,), u8.
        token: where the read ended, to be passed to the next read; `NO_TOKEN` from a peer without a time index.

    Source: PDP-28, "SegmentRead".
    """

    data: bytes
    values: NDArray[np.uint64]
    token: int = NO_TOKEN

    @classmethod
    def of(cls, data: bytes, times: TimesRead) -> SegmentRead:
        """Return the answer for bytes and their records of the time index."""
        return cls(data, times.values, times.token)

    @property
    def value(self) -> int:
        """The clock value of the first record, by which the data is ordered; 0 if unknown."""
        return int(self.values[0]) if len(self.values) else NO_VALUE


class StreamSegmentInfo(NamedTuple):
    """The state of a segment, as reported to readers.

    Args:
        end_offset: the present end of the segment.
        value: the clock value that data would get if it were added now; so no later data has a lower one. 0 from a peer
            without a time index.
        is_sealed: whether no more data can be added.

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
    """The state of one segment of a reader, by which the `Orderer` chooses.

    Args:
        segment: the segment's id.
        value: clock value of the next data in its buffer; None = the buffer is empty.
        is_drained: whether the segment is sealed and was read to its end.
    """

    segment: Id
    value: int | None
    is_drained: bool = False

    @property
    def is_ready(self) -> bool:
        """Whether the segment may be chosen."""
        return self.is_drained or self.value is not None


_SLACK: Final = 16
"""How many more stale than current entries the heap may contain."""


class Orderer(Generic[Id]):
    """Chooses the segment that is read, or finished, next. Threads: one at a time.

    Args:
        standings: the states of segments, one for each segment.

    Source: PDP-28, "the orderer to select the segment returning the lowest value"; Pravega issue 2739 for sealed ones.
    """

    def __init__(self, standings: Iterable[Standing[Id]] = ()) -> None:
        self._standings: dict[Id, Standing[Id]] = {}
        self._heap: list[tuple[tuple[bool, int, Id], int, Standing[Id]]] = []
        self._serials = count()  # a tie-break, so that standings themselves are never compared
        for standing in standings:
            self.put(standing)

    def put(self, standing: Standing[Id]) -> None:
        """Set the state of a segment. Amortised O(log segments)."""
        if not standing.is_ready:
            self.forget(standing.segment)
            return
        if self._standings.get(standing.segment) == standing:
            return
        self._standings[standing.segment] = standing
        heapq.heappush(self._heap, (_rank(standing), next(self._serials), standing))
        if len(self._heap) > 2 * len(self._standings) + _SLACK:
            self._heap = [(_rank(each), next(self._serials), each) for each in self._standings.values()]
            heapq.heapify(self._heap)

    def forget(self, segment: Id) -> None:
        """Remove a segment, so that it is not chosen; does nothing for an unknown segment. O(1)."""
        self._standings.pop(segment, None)

    def choose(self) -> Standing[Id] | None:
        """Return the segment that is read, or finished, next, without removing it; None if no segment is ready.

        Complexity: amortised O(log segments).
        """
        while self._heap:
            standing = self._heap[0][-1]
            if self._standings.get(standing.segment) is standing:
                return standing
            heapq.heappop(self._heap)
        return None


def _rank(standing: Standing[Id]) -> tuple[bool, int, Id]:
    value = 0 if standing.is_drained or standing.value is None else standing.value
    return not standing.is_drained, value, standing.segment


@unique
class PassCause(Enum):
    """Why a reader did not wait for a segment that might have had older data than the returned data."""

    TIMED_OUT = "timed out"
    """In history, events waited for it for `history_wait_seconds`. The reader waits again once it was answered."""

    FAILED = "failed"
    """Its request raised an error, in history for good. The reader waits again once a request of it was answered."""

    TAIL = "tail"
    """Its last answer was empty, and its next request was not answered within the wait at the tail."""


FIRST_SECONDS: Final = 0.1
"""The wait at the tail before any request was observed."""

_GAIN: Final = 1 / 8
_DEVIATION_GAIN: Final = 1 / 4
_DEVIATIONS: Final = 4


class ObservedTimes:
    """How long requests take: a smoothed mean, and a smoothed deviation from it. Threads: one at a time.

    Source: RFC 6298, section 2: mean + 4 deviations, with gains of 1/8 and 1/4.
    """

    def __init__(self) -> None:
        self._mean: float | None = None
        self._deviation = 0.0

    def observe(self, seconds: float) -> None:
        """Note the duration of a request."""
        if self._mean is None:
            self._mean, self._deviation = seconds, seconds / 2
            return
        self._deviation += _DEVIATION_GAIN * (abs(seconds - self._mean) - self._deviation)
        self._mean += _GAIN * (seconds - self._mean)

    @property
    def seconds(self) -> float:
        """The time in which nearly all requests are answered; `FIRST_SECONDS` if no request was observed."""
        return FIRST_SECONDS if self._mean is None else self._mean + _DEVIATIONS * self._deviation


class Lag:
    """The lag of a reader, or of one of its segments. Threads: one at a time.

    Source: PDP-28, "getLag() ... can return the data from the time index".
    """

    def __init__(self) -> None:
        self._last: int | None = None

    def read(self, value: int) -> None:
        """Note the clock value of the last record that was read; 0 is ignored, because it means unknown."""
        if value != NO_VALUE:
            self._last = value

    def at(self, now: int) -> int:
        """Return the time since that record arrived, in the clock's unit; 0 before the first read, never negative.

        Args:
            now: the time of the clock.
        """
        return 0 if self._last is None else max(0, now - self._last)
