"""Segments, and many of them at once as immutable columns, so that no question loops over segments one by one.

    SegmentRecord     one segment
    Segments          segments as rows of one array; reads as a sequence of `SegmentRecord`s
    KeyRanges         key ranges [start, end) alone

A stream may have tens of thousands of segments, and a chunk of its history may tell of a hundred thousand. As columns
they take 32 bytes each, and compare, sort and search as arrays. All of them are checked once, when they are made; what
else must be true of them, the records say that hold them.

Threads: all are immutable, any thread may read them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accel.history.id_columns import Integers, positions_in, some_ids
from accel.history.ids import NUMBER_BITS, NUMBER_MASK, NUMBER_MAX, epoch_of, is_segment_id, number_of, segment_text

Keys: TypeAlias = NDArray[np.float64]
Chosen: TypeAlias = NDArray[np.bool_] | Integers | Sequence[int] | slice
Array = TypeVar("Array", Keys, NDArray[np.void])

SEGMENT: Final = np.dtype([("id", "<i8"), ("creation_time_ms", "<i8"), ("key_start", "<f8"), ("key_end", "<f8")])


@dataclass(frozen=True, slots=True)
class SegmentRecord:
    """One segment: a part of the key space [0, 1), from its creation until it is sealed.

    Args:
        id: its id; tells the epoch of its creation and its number.
        creation_time_ms: milliseconds since 1970; that of its epoch.
        key_start: its lowest key.
        key_end: one past its highest key.

    Raises:
        ValueError: no segment id, a time below 0, or keys that are not 0 <= start < end <= 1.
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

    @property
    def number(self) -> int:
        """Its number within the stream; duplicates share it."""
        return number_of(self.id)

    @property
    def creation_epoch(self) -> int:
        """The epoch in which it was created."""
        return epoch_of(self.id)

    def overlaps(self, other: SegmentRecord) -> bool:
        """Whether some key belongs to both; segments that only touch do not overlap."""
        return self.key_start < other.key_end and other.key_start < self.key_end


class KeyRanges:
    """Key ranges [start, end), in the order that they were given in; nothing is said about how they lie.

    Args:
        starts: lowest keys.
        ends: one past the highest keys, as many. Whether start < end holds is for those to check who need it.
    """

    __slots__ = ("ends", "starts")

    def __init__(self, starts: ArrayLike = (), ends: ArrayLike = ()) -> None:
        self.starts: Keys = _frozen(np.asarray(starts, dtype=np.float64))
        self.ends: Keys = _frozen(np.asarray(ends, dtype=np.float64))
        if self.starts.ndim != 1 or self.starts.shape != self.ends.shape:
            raise ValueError(f"expected a start for each end, found {self.starts.shape} and {self.ends.shape}")

    @classmethod
    def of(cls, ranges: Iterable[Sequence[float]]) -> KeyRanges:
        """From pairs of start and end."""
        pairs = np.array([tuple(each) for each in ranges], dtype=np.float64).reshape(-1, 2)
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
        rows: of type SEGMENT; taken over and made read-only. Its order is kept, an id may stand in it twice.

    Raises:
        ValueError: another type, a row that is no segment (see `SegmentRecord`).
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
        """From columns; a single value stands for a whole column."""
        columns = np.broadcast_arrays(ids, creation_times_ms, key_starts, key_ends)
        rows = np.empty(columns[0].shape, dtype=SEGMENT)
        for name, column in zip(SEGMENT.names or (), columns, strict=True):
            rows[name] = column
        return cls(rows)

    @classmethod
    def of(cls, segments: Iterable[SegmentRecord]) -> Segments:
        """From single records."""
        rows = [(each.id, each.creation_time_ms, each.key_start, each.key_end) for each in segments]
        return cls(np.array(rows, dtype=SEGMENT))

    @classmethod
    def joined(cls, parts: Iterable[Segments]) -> Segments:
        """One after the other."""
        rows = [np.empty(0, dtype=SEGMENT), *(part.rows for part in parts)]
        return cls(np.concatenate(rows))

    @property
    def ids(self) -> Integers:
        """Segment ids."""
        ids: Integers = self.rows["id"]
        return ids

    @property
    def creation_times_ms(self) -> Integers:
        """When each was created, milliseconds since 1970."""
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
        """Epochs of their creation."""
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
        """Those that a mask, positions or a slice choose, in that order."""
        return Segments(self.rows[chosen])

    def ascending(self) -> Segments:
        """The same, ascending by id, each id once."""
        _, first = np.unique(self.ids, return_index=True)
        return self.where(first)

    def positions_of(self, ids: ArrayLike) -> Integers:
        """Where in this sequence ids stand, -1 for those that do not; for ids that ascend. O(m log n)."""
        return positions_in(self.ids, np.asarray(ids, dtype=np.int64))

    def find(self, segment_id: int) -> SegmentRecord | None:
        """The segment with this id, if it is here; for ids that ascend. O(log n)."""
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
"""None at all."""
