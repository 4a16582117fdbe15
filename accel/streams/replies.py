"""What crosses between a reader and whoever holds a segment: the words of PDP-28.

A peer without a time index sends neither values nor a token. That is read as the value 0 and no token: its data comes
before everything else, as if there were no order, and the next read goes without a token as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from range_index.time_search import NO_TOKEN, NO_VALUE, TimesRead

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
