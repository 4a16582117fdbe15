"""Segments as columns, the arithmetic of their key ranges, and the segments at each key.

    SegmentRecord     one segment
    Segments          segments as rows of one array; reads as a sequence of `SegmentRecord`s
    KeyRanges         key ranges [start, end) without segments
    KeyProfile        the lowest and the highest number of segments that may overlap, key by key

A stream may have tens of thousands of segments, and a chunk of its history may contain a hundred thousand. As columns
they take 32 bytes each, and are compared, sorted and searched as arrays. They are checked once, at construction.

Keys are 64-bit floats, and bounds are compared exactly: two ranges touch if the end of one *equals* the start of the
other, bit by bit. So the last part of a divided range must have the stored end, not a sum that is close to it: parts
that miss the end of a range by the last bit can never replace the range.

    segments       5: [0, 0.5)   7: [0.25, 1)
    bounds         0       0.25       0.5        1
    lowest         |   5    |    5     |    7    |
    highest        |   5    |    7     |    7    |

The bounds of all segments divide the key space into intervals; within an interval, the segments are the same. "Is every
segment of a cut that overlaps x older than x?" is then the highest number over the intervals of x: two look-ups in a
table of the highest number of each 1, 2, 4, 8, ... neighbours. The same table, filled from the largest ranges down,
yields the highest number that covers each interval.

Complexity: O(n log n) in the ranges, O((n + m) log n) for m queries of a profile; no loop over them in Python.
Threads: all are immutable, any thread may read them.

Source: PDP-32.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accel.history.rules.configuration import SEGMENTS_MAX
from accel.history.rules.values import (
    NUMBER_BITS,
    NUMBER_MASK,
    NUMBER_MAX,
    Integers,
    epoch_of,
    is_segment_id,
    number_of,
    positions_in,
    segment_text,
    some_ids,
)

Keys: TypeAlias = NDArray[np.float64]
Chosen: TypeAlias = NDArray[np.bool_] | Integers | Sequence[int] | slice
Array = TypeVar("Array", Keys, NDArray[np.void])

SEGMENT: Final = np.dtype([("id", "<i8"), ("creation_time_ms", "<i8"), ("key_start", "<f8"), ("key_end", "<f8")])


@dataclass(frozen=True, slots=True)
class SegmentRecord:
    """One segment: a part of the key space [0, 1), from its creation until it is sealed.

    Args:
        id: its id; contains the epoch of its creation and its number.
        creation_time_ms: milliseconds since 1970; that of its epoch.
        key_start: its lowest key.
        key_end: one past its highest key.

    Raises:
        ValueError: an invalid segment id, a time below 0, or keys that are not 0 <= start < end <= 1.
    """

    id: int
    creation_time_ms: int
    key_start: float
    key_end: float

    def __post_init__(self) -> None:
        if not is_segment_id(self.id):
            raise ValueError(f"expected a segment id, found {self.id}")
        if self.creation_time_ms < 0:
            raise ValueError(f"segment {self}: expected a creation time of at least 0, found {self.creation_time_ms}")
        if not 0.0 <= self.key_start < self.key_end <= 1.0:
            found = f"[{self.key_start}, {self.key_end})"
            raise ValueError(f"segment {self}: expected keys within [0, 1), start before end, found {found}")

    def __str__(self) -> str:
        return segment_text(self.id)

    def __repr__(self) -> str:
        return f"SegmentRecord({self}, [{self.key_start}, {self.key_end}), creation_time_ms={self.creation_time_ms})"

    @property
    def number(self) -> int:
        """Its number within the stream; duplicates share it."""
        return number_of(self.id)

    @property
    def creation_epoch(self) -> int:
        """The epoch in which it was created."""
        return epoch_of(self.id)

    def overlaps(self, other: SegmentRecord) -> bool:
        """Whether both segments have a key in common; segments that only touch do not overlap."""
        return self.key_start < other.key_end and other.key_start < self.key_end


class KeyRanges:
    """Key ranges [start, end) in the caller's order; they may overlap and have gaps.

    Args:
        starts: lowest keys.
        ends: one past the highest keys, one for each start. It is not checked that start < end.
    """

    __slots__ = ("ends", "starts")

    def __init__(self, starts: ArrayLike = (), ends: ArrayLike = ()) -> None:
        self.starts: Keys = _frozen(np.asarray(starts, dtype=np.float64))
        self.ends: Keys = _frozen(np.asarray(ends, dtype=np.float64))
        if self.starts.ndim != 1 or self.starts.shape != self.ends.shape:
            raise ValueError(f"expected a start for each end, found {self.starts.shape} and {self.ends.shape}")

    @classmethod
    def of(cls, ranges: Iterable[Sequence[float]]) -> KeyRanges:
        """Convert pairs of start and end."""
        pairs = np.array([tuple(key_range) for key_range in ranges], dtype=np.float64).reshape(-1, 2)
        return cls(pairs[:, 0].copy(), pairs[:, 1].copy())

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[tuple[float, float]]:
        return zip(self.starts.tolist(), self.ends.tolist(), strict=True)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, KeyRanges):
            return NotImplemented
        return np.array_equal(self.starts, other.starts) and np.array_equal(self.ends, other.ends)

    def __hash__(self) -> int:
        return hash((self.starts.tobytes(), self.ends.tobytes()))

    def __repr__(self) -> str:
        shown = ", ".join(map(str, islice(self, 5)))
        return f"<{len(self)} key ranges: {shown}{', ...' if len(self) > 5 else ''}>"


class Segments(Sequence[SegmentRecord]):
    """Segments as rows of one array; as a sequence they read as `SegmentRecord`s.

    Args:
        rows: rows of type SEGMENT; not copied, and made read-only. The order is kept; an id may occur twice.

    Raises:
        ValueError: another type, or a row that is not a valid segment (see `SegmentRecord`).
    """

    __slots__ = ("rows",)

    def __init__(self, rows: NDArray[np.void]) -> None:
        if rows.dtype != SEGMENT or rows.ndim != 1:
            raise ValueError(f"expected rows of {SEGMENT}, found {rows.dtype} of {rows.ndim} dimensions")
        self.rows = _frozen(rows)
        wrong = ~((self.key_starts >= 0) & (self.key_starts < self.key_ends) & (self.key_ends <= 1))
        wrong |= (self.ids < 0) | (self.numbers > NUMBER_MAX) | (self.creation_times_ms < 0)
        if wrong.any():
            raise ValueError(f"expected segments, found {tuple(self.rows[int(wrong.argmax())].tolist())}")

    @classmethod
    def make(cls, ids: ArrayLike, creation_times_ms: ArrayLike, key_starts: ArrayLike, key_ends: ArrayLike) -> Segments:
        """Convert columns; a single value is the value of every row."""
        columns = np.broadcast_arrays(ids, creation_times_ms, key_starts, key_ends)
        rows = np.empty(columns[0].shape, dtype=SEGMENT)
        for name, column in zip(SEGMENT.names or (), columns, strict=True):
            rows[name] = column
        return cls(rows)

    @classmethod
    def of(cls, segments: Iterable[SegmentRecord]) -> Segments:
        """Convert single records."""
        rows = [(part.id, part.creation_time_ms, part.key_start, part.key_end) for part in segments]
        return cls(np.array(rows, dtype=SEGMENT))

    @classmethod
    def join(cls, parts: Iterable[Segments]) -> Segments:
        """Concatenate segments."""
        rows = [np.empty(0, dtype=SEGMENT), *(part.rows for part in parts)]
        return cls(np.concatenate(rows))

    @property
    def ids(self) -> Integers:
        """Segment ids."""
        ids: Integers = self.rows["id"]
        return ids

    @property
    def creation_times_ms(self) -> Integers:
        """Creation times, milliseconds since 1970."""
        times: Integers = self.rows["creation_time_ms"]
        return times

    @property
    def key_starts(self) -> Keys:
        """Lowest keys."""
        starts: Keys = self.rows["key_start"]
        return starts

    @property
    def key_ends(self) -> Keys:
        """One past the highest keys."""
        ends: Keys = self.rows["key_end"]
        return ends

    @property
    def epochs(self) -> Integers:
        """Creation epochs."""
        return self.ids >> NUMBER_BITS

    @property
    def numbers(self) -> Integers:
        """Numbers within their stream."""
        return self.ids & NUMBER_MASK

    @property
    def ranges(self) -> KeyRanges:
        """Their key ranges."""
        return KeyRanges(self.key_starts.copy(), self.key_ends.copy())

    def where(self, chosen: Chosen) -> Segments:
        """The segments that a mask, positions or a slice select, in that order."""
        return Segments(self.rows[chosen])

    def ascending(self) -> Segments:
        """The segments ascending by id, each id once."""
        _, first = np.unique(self.ids, return_index=True)
        return self.where(first)

    def positions_of(self, ids: ArrayLike) -> Integers:
        """The positions of ids, -1 for missing ids; the segments must ascend by id. O(m log n)."""
        return positions_in(self.ids, np.asarray(ids, dtype=np.int64))

    def find(self, segment_id: int) -> SegmentRecord | None:
        """The segment with this id, or None; the segments must ascend by id. O(log n)."""
        position = int(self.positions_of([segment_id])[0])
        return None if position < 0 else self[position]

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> SegmentRecord: ...
    @overload
    def __getitem__(self, index: slice) -> Segments: ...
    def __getitem__(self, index: int | slice) -> SegmentRecord | Segments:
        if isinstance(index, slice):
            return self.where(index)
        return SegmentRecord(*self.rows[index].tolist())

    def __iter__(self) -> Iterator[SegmentRecord]:
        return (SegmentRecord(*row) for row in self.rows.tolist())

    def __eq__(self, other: object) -> bool:
        return np.array_equal(self.rows, other.rows) if isinstance(other, Segments) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.rows.tobytes())

    def __repr__(self) -> str:
        return f"<{len(self)} segments: {some_ids(self.ids)}>"


def _frozen(array: Array) -> Array:
    array.setflags(write=False)
    return array


NO_SEGMENTS: Final = Segments(np.empty(0, dtype=SEGMENT))
"""No segments."""


def initial_ranges(count: int) -> KeyRanges:
    """The key ranges of a new stream: [i * (1/n), (i + 1) * (1/n)), and the last one ends at 1.

    The product for the last end is below 1 for 82 of the counts up to 1,000, the first of them 49; without the
    exception, the highest keys would belong to no segment.

    Raises:
        ValueError: fewer than 1 or more than 750,000 ranges.
    """
    if not 1 <= count <= SEGMENTS_MAX:
        raise ValueError(f"expected 1 to {SEGMENTS_MAX} segments, found {count}")
    bounds = np.arange(count + 1) * (1.0 / count)
    bounds[-1] = 1.0
    return KeyRanges(bounds[:-1].copy(), bounds[1:].copy())


def split_range(start: float, end: float, count: int) -> KeyRanges:
    """Divide a range into equal parts; the first start and the last end are exactly those of the range.

    Raises:
        ValueError: fewer than 1 or more than 750,000 parts, or a range with too few floats for this number of parts.
    """
    if not 1 <= count <= SEGMENTS_MAX:
        raise ValueError(f"expected 1 to {SEGMENTS_MAX} parts, found {count}")
    bounds = start + np.arange(count + 1) * ((end - start) / count)
    bounds[0], bounds[-1] = start, end
    if not (bounds[1:] > bounds[:-1]).all():
        raise ValueError(f"expected a range that can be divided by {count}, found [{start}, {end})")
    return KeyRanges(bounds[:-1].copy(), bounds[1:].copy())


def merge_touching(ranges: KeyRanges) -> KeyRanges:
    """Ranges ascending by start; ranges that touch exactly are merged, ranges that overlap are unchanged."""
    order = np.lexsort((ranges.ends, ranges.starts))
    starts, ends = ranges.starts[order], ranges.ends[order]
    begins = np.ones(len(starts), dtype=np.bool_)
    begins[1:] = starts[1:] != ends[:-1]
    lasts = np.append(begins[1:], np.ones(min(len(begins), 1), dtype=np.bool_))
    return KeyRanges(starts[begins], ends[lasts])


def replaces(new: KeyRanges, old: KeyRanges) -> bool:
    """Whether new ranges cover exactly the keys of the old ones, without overlaps; the old ones must not overlap."""
    if not len(new) or not (new.starts < new.ends).all():
        return False
    return merge_touching(new) == merge_touching(old)


def overlap_counts(ranges: KeyRanges, others: KeyRanges) -> Integers:
    """For each range, the number of other ranges with a common key; ranges that only touch do not count."""
    begun = np.searchsorted(np.sort(others.starts), ranges.ends, side="left")
    over = np.searchsorted(np.sort(others.ends), ranges.starts, side="right")
    counts: Integers = (begun - over).astype(np.int64)
    return counts


def splits_and_merges(old: KeyRanges, new: KeyRanges) -> tuple[int, int]:
    """The number of old ranges that were split, and of new ranges that were merged from several.

    Args:
        old: the replaced ranges; unchanged ranges may be in both arguments.
        new: the ranges that replaced them.
    """
    splits = np.count_nonzero(overlap_counts(old, new) > 1)
    merges = np.count_nonzero(overlap_counts(new, old) > 1)
    return int(splits), int(merges)


NONE_LOWEST: Final = 2**63 - 1
"""The lowest number of an empty set."""

NONE_HIGHEST: Final = -1
"""The highest number of an empty set."""


def bounds_of(parts: Iterable[KeyRanges]) -> Keys:
    """The bounds of all ranges and of the key space, ascending, each once."""
    bounds = [np.array([0.0, 1.0])]
    for part in parts:
        bounds += [part.starts, part.ends]
    return np.unique(np.concatenate(bounds))


class KeyProfile:
    """The lowest and highest numbers at each key. Threads: immutable.

    Args:
        bounds: bounds that divide the key space into intervals, ascending.
        lowest: the lowest number in each interval; `NONE_LOWEST` if there is none.
        highest: the highest number in each interval; `NONE_HIGHEST` if there is none.
    """

    __slots__ = ("bounds", "highest", "lowest")

    def __init__(self, bounds: Keys, lowest: Integers, highest: Integers) -> None:
        self.bounds = bounds
        self.lowest = lowest
        self.highest = highest

    @classmethod
    def of(cls, ranges: KeyRanges, numbers: Integers, bounds: Keys | None = None) -> KeyProfile:
        """The profile of ranges with a number each.

        Args:
            ranges: the ranges.
            numbers: the number of each range, at least 0.
            bounds: the bounds of the ranges, and perhaps of other ranges; None = those of the ranges.
        """
        known = bounds_of((ranges,)) if bounds is None else bounds
        first, stop = np.searchsorted(known, ranges.starts), np.searchsorted(known, ranges.ends)
        negated = _spread(first, stop, -numbers, len(known) - 1, -NONE_LOWEST)
        return cls(known, -negated, _spread(first, stop, numbers, len(known) - 1, NONE_HIGHEST))

    @property
    def is_empty(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """The intervals without a segment."""
        return np.asarray(self.highest == NONE_HIGHEST)

    def lowest_over(self, ranges: KeyRanges) -> Integers:
        """The lowest number at any key of each range; `NONE_LOWEST` if there is none."""
        return -_highest_within(-self.lowest, *self._intervals(ranges))

    def highest_over(self, ranges: KeyRanges) -> Integers:
        """The highest number at any key of each range; `NONE_HIGHEST` if there is none."""
        return _highest_within(self.highest, *self._intervals(ranges))

    def _intervals(self, ranges: KeyRanges) -> tuple[Integers, Integers]:
        first = np.searchsorted(self.bounds, ranges.starts, side="right") - 1
        return np.maximum(first, 0), np.searchsorted(self.bounds, ranges.ends, side="left")


def _levels(first: Integers, stop: Integers) -> Integers:
    # For each run of intervals: the exponent of the largest power of two within its length. Exact, as lengths are far
    # below 2^53.
    exponents: Integers = np.frexp((stop - first).astype(np.float64))[1].astype(np.int64) - 1
    return exponents


def _highest_within(values: Integers, first: Integers, stop: Integers) -> Integers:
    if not len(first):
        return np.empty(0, dtype=np.int64)
    levels = _levels(first, stop)
    answers = np.full(len(first), NONE_HIGHEST, dtype=np.int64)
    table = values
    for level in range(int(levels.max()) + 1):
        width = 1 << level
        if level:
            table = np.maximum(table[: -width // 2], table[width // 2 :])
        asked = np.flatnonzero(levels == level)
        answers[asked] = np.maximum(table[first[asked]], table[stop[asked] - width])
    return answers


def _spread(first: Integers, stop: Integers, values: Integers, count: int, nothing: int) -> Integers:
    if not len(first):
        return np.full(count, nothing, dtype=np.int64)
    levels = _levels(first, stop)
    above = np.full(count, nothing, dtype=np.int64)
    for level in range(int(levels.max()), -1, -1):
        width = 1 << level
        table = np.full(count, nothing, dtype=np.int64)
        given = np.flatnonzero(levels == level)
        np.maximum.at(table, first[given], values[given])
        np.maximum.at(table, stop[given] - width, values[given])
        # A run of twice the width covers two runs of this width.
        table = np.maximum(table, above)
        table[width:] = np.maximum(table[width:], above[:-width])
        above = table
    return above
