"""The order of arrival: the replies that carry clock values, and the segment whose data is next.

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

from collections.abc import Iterable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

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
