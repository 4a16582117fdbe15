"""The contents of one object: for each stream one range of offsets.

The most frequent query of an object of many streams is whether it holds a stream, and which range of it. The ranges of
all its streams are three arrays of equal length, ascending by stream id:

    | array      | type             | entry i                                              |
    |------------|------------------|------------------------------------------------------|
    | stream_ids | int64            | a stream of this object, each once                   |
    | starts     | int64            | the first offset of the stream in this object        |
    | lengths    | uint32 (*)       | the number of offsets; end = start + length          |
    | holed      | int64, few       | the positions i whose range has a hole inside        |

    (*) int64 for the whole object if a length does not fit: a range of more than 4,294,967,295 offsets.

This is 20 bytes a stream; a dictionary of tuples takes about 200. The arrays are built once, from whole columns, and
never change; so an index can copy them without a step per stream. The index packs them to 12 bytes (see range_chunk);
this form is for passing them between modules.

In a range with a *hole* some offsets between start and end are missing. Such a range must never prove that the object
holds an offset; therefore it is marked as holed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

_INT64_MAX = 2**63 - 1
_UINT32_MAX = 2**32 - 1

_NOWHERE: NDArray[np.int64] = np.empty(0, dtype=np.int64)
_NOWHERE.flags.writeable = False


class StreamRange(NamedTuple):
    """The offsets ``[start, end)`` of one stream in one object; ``holed`` if some of them are missing."""

    start: int
    end: int
    holed: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ObjectRanges:
    """The range of offsets of each stream in an object; build it with ``from_columns`` or ``from_ranges``.

    Threads: immutable with read-only arrays, so any thread may read it.
    """

    stream_ids: NDArray[np.int64]
    """Ascending, each once; contiguous, native byte order."""

    starts: NDArray[np.int64]
    """The first offset of each stream."""

    lengths: NDArray[np.uint32] | NDArray[np.int64]
    """The number of offsets that each range spans, including holes."""

    holed: NDArray[np.int64]
    """Ascending positions of the streams with a hole inside; nearly always empty."""

    @classmethod
    def from_columns(
        cls,
        stream_ids: NDArray[np.int64],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        holed: NDArray[np.bool_] | None = None,
    ) -> Self:
        """Check whole columns and build the ranges from them.

        Columns that own their memory and are native int64 are used without a copy: do not write to them afterwards.

        Complexity: O(streams), no loop in Python.

        Args:
            stream_ids: ascending, each once, none negative.
            starts: the first offset of each stream, none negative.
            ends: one past the last offset of each stream, at least its start.
            holed: true where a range has a hole inside; None if no range has one.

        Raises:
            ValueError: columns of different lengths, or a value that violates a rule above.
        """
        if not (stream_ids.shape == starts.shape == ends.shape == (len(stream_ids),)):
            found = f"{stream_ids.shape}, {starts.shape}, {ends.shape}"
            raise ValueError(f"expected columns of equal length, found {found}")
        if holed is not None and holed.shape != stream_ids.shape:
            raise ValueError(f"expected a hole flag for each of {len(stream_ids)} streams, found shape {holed.shape}")
        _check(stream_ids, starts, ends)
        positions = _NOWHERE if holed is None or not holed.any() else np.flatnonzero(holed)
        return cls(_frozen(stream_ids), _frozen(starts), _narrowed(ends - starts), _frozen(positions))

    @classmethod
    def from_ranges(cls, ranges: Iterable[tuple[int, int, int]]) -> Self:
        """Build from ``(stream id, start, end)`` in any order; for few streams, and for tests.

        Complexity: O(n log n), one Python tuple a stream.

        Raises:
            ValueError: a value that is not an integer of 64 bits, a repeated stream, or a range that ``from_columns``
                refuses.
        """
        rows = list(ranges)
        _refuse_other_than_integers(rows)
        ordered = sorted(rows)
        try:
            table = np.array(ordered, dtype=np.int64).reshape(len(ordered), 3)
        except OverflowError as error:
            raise ValueError(f"expected numbers of 64 bits: {error}") from error
        return cls.from_columns(table[:, 0], table[:, 1], table[:, 2])

    @classmethod
    def of(cls, ranges: RangesGiven) -> ObjectRanges:
        """Build from ranges in any supported form; an `ObjectRanges` is returned itself.

        Raises:
            ValueError: ranges that repeat a stream or are inverted.
        """
        if isinstance(ranges, ObjectRanges):
            return ranges
        rows = [(key, *span) for key, span in ranges.items()] if isinstance(ranges, Mapping) else ranges
        return cls.from_ranges((stream_id, start, end) for stream_id, start, end in rows)

    @property
    def ends(self) -> NDArray[np.int64]:
        """One past the last offset of each stream; computed on each access, in O(streams)."""
        return self.starts + self.lengths.astype(np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays: 20 a stream if every length fits 32 bits."""
        return self.stream_ids.nbytes + self.starts.nbytes + self.lengths.nbytes + self.holed.nbytes

    def __len__(self) -> int:
        """The number of streams in the object."""
        return len(self.stream_ids)

    def range_of(self, stream_id: int) -> StreamRange | None:
        """The range of one stream, or None if the object does not hold it; O(log streams).

        >>> ObjectRanges.from_ranges([(7, 100, 180), (3, 0, 20)]).range_of(7)
        StreamRange(start=100, end=180, holed=False)
        """
        if not 0 <= stream_id <= _INT64_MAX:
            return None
        position = int(self.stream_ids.searchsorted(stream_id))
        if position == len(self.stream_ids) or int(self.stream_ids[position]) != stream_id:
            return None
        start = int(self.starts[position])
        return StreamRange(start, start + int(self.lengths[position]), self._is_holed(position))

    def _is_holed(self, position: int) -> bool:
        if not len(self.holed):
            return False
        place = int(self.holed.searchsorted(position))
        return place < len(self.holed) and int(self.holed[place]) == position


RangesGiven = ObjectRanges | Mapping[int, tuple[int, int]] | Iterable[tuple[int, int, int]]
"""The forms of an object's ranges: `ObjectRanges`, {stream id: (start, end)}, or (stream id, start, end) rows."""


def _refuse_other_than_integers(rows: Iterable[Sequence[int]]) -> None:
    # An array would convert a float, a text or a boolean to an integer.
    for kind in set(map(type, chain.from_iterable(rows))) - {int, np.int64}:
        if issubclass(kind, bool | np.bool_) or not hasattr(kind, "__index__"):
            raise ValueError(f"expected integers as stream id, start and end, found a {kind.__name__}")


def _check(stream_ids: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
    if not len(stream_ids):
        return
    if stream_ids[0] < 0:
        raise ValueError(f"expected stream ids of at least 0, found {int(stream_ids[0])}")
    unsorted = stream_ids[1:] <= stream_ids[:-1]
    if unsorted.any():
        at = int(unsorted.argmax())
        found = f"{int(stream_ids[at])} before {int(stream_ids[at + 1])}"
        raise ValueError(f"expected ascending stream ids, each once, found {found}")
    # Ends are not negative either, since they are checked to be at least their starts.
    if starts.min() < 0:
        raise ValueError(f"expected starts of at least 0, found {int(starts.min())}")
    inverted = ends < starts
    if inverted.any():
        at = int(inverted.argmax())
        found = f"[{int(starts[at])}, {int(ends[at])}) of stream {int(stream_ids[at])}"
        raise ValueError(f"expected ranges with start <= end, found {found}")


def _narrowed(lengths: NDArray[np.int64]) -> NDArray[np.uint32] | NDArray[np.int64]:
    narrow = lengths.astype(np.uint32) if not len(lengths) or lengths.max() <= _UINT32_MAX else lengths
    narrow.flags.writeable = False
    return narrow


def _frozen(column: NDArray[np.int64]) -> NDArray[np.int64]:
    own = np.ascontiguousarray(column, dtype=np.int64)
    if own.base is not None:  # a view would keep its whole base array in memory, and nbytes would not include it
        own = own.copy()
    own.flags.writeable = False
    return own
