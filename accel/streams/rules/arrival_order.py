"""The order of arrival: replies with clock values, the segment whose data is next, and how long others are awaited.

A reader knows, of each of its segments, the value of the data that it would give next; the `Orderer` chooses:

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

Whether the chosen data is given at once, or held back while a segment that is not ready may bring older data, is
decided beside it (`reader_core`). At the tail of a stream the longest such wait follows the time that requests took
(`ObservedTimes`).

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


_SLACK: Final = 16
"""Stale entries that the heap may hold, in addition to as many as it has current ones."""


class Orderer(Generic[Id]):
    """Chooses the segment that is read, or let go, next. Threads: one at a time.

    Args:
        standings: of segments, each once.

    Source: PDP-28, "the orderer to select the segment returning the lowest value"; Pravega issue 2739 for sealed ones.
    """

    def __init__(self, standings: Iterable[Standing[Id]] = ()) -> None:
        self._standings: dict[Id, Standing[Id]] = {}
        self._heap: list[tuple[tuple[bool, int, Id], int, Standing[Id]]] = []
        self._serials = count()  # so that standings themselves are never compared
        for standing in standings:
            self.put(standing)

    def put(self, standing: Standing[Id]) -> None:
        """A segment stands so now, however it stood before. Amortised O(log segments)."""
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
        """A segment is not to be chosen; nothing if it is not here. O(1)."""
        self._standings.pop(segment, None)

    def choose(self) -> Standing[Id] | None:
        """The segment that is read, or let go, next; it stays here. None if none is ready.

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
    """Why a segment was passed over that might have had older data than what was given."""

    TIMED_OUT = "timed out"
    """Its request took longer than a reader waits. It is passed until one of its requests is in time again."""

    FAILED = "failed"
    """Its request raised an error. It is passed until one is answered."""

    TAIL = "tail"
    """It had nothing when it was last asked, and had not answered within a wait at the tail."""


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
        """A request took so long."""
        if self._mean is None:
            self._mean, self._deviation = seconds, seconds / 2
            return
        self._deviation += _DEVIATION_GAIN * (abs(seconds - self._mean) - self._deviation)
        self._mean += _GAIN * (seconds - self._mean)

    @property
    def seconds(self) -> float:
        """Within this time nearly all are answered; `FIRST_SECONDS` where none was observed."""
        return FIRST_SECONDS if self._mean is None else self._mean + _DEVIATIONS * self._deviation


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
