"""A stretch of bytes of one object, and how many small stretches become few large ones.

A request costs about as much as a few hundred kilobytes of transfer. So stretches that lie close to each other are
read together, the bytes between them thrown away, as long as the gaps and the whole stay small.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


class ByteSpan(NamedTuple):
    """Bytes ``[start, end)`` of the object at a key: one ranged GET.

    Attributes:
        key: the object.
        start: first byte.
        end: one past the last byte.
        object_size_bytes: how long the object is; one of another length is another object.
        first: number of the first item (a row group, or an entry of a pack in the order of its plan) in the span.
        stop: one past the number of the last item.
    """

    key: str
    start: int
    end: int
    object_size_bytes: int
    first: int
    stop: int

    @property
    def size_bytes(self) -> int:
        """How many bytes."""
        return self.end - self.start


def join_stretches(
    starts: Numbers, ends: Numbers, *, gap_size_bytes_max: int, span_size_bytes_max: int
) -> list[tuple[int, int]]:
    """Which neighbours to read together: ``(first, stop)`` numbers of stretches.

    Complexity: O(stretches), a loop in Python over the few spans that come out.

    Args:
        starts: first byte of each stretch, ascending.
        ends: one past the last byte of each, ascending.
        gap_size_bytes_max: bytes that may be read in vain between two neighbours.
        span_size_bytes_max: length of a span; one stretch alone may be longer.
    """
    breaks = np.flatnonzero(starts[1:] - ends[:-1] > gap_size_bytes_max) + 1
    spans: list[tuple[int, int]] = []
    first, runs = 0, [*breaks.tolist(), len(starts)]
    for run_stop in runs:
        while first < run_stop:
            limit = int(starts[first]) + span_size_bytes_max
            stop = min(max(int(ends.searchsorted(limit, side="right")), first + 1), run_stop)
            spans.append((first, stop))
            first = stop
    return spans
