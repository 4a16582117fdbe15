"""The ranges of many objects in one block of memory, in which one stream is searched in all objects at once.

Finding a stream in one object is a binary search. Finding it in thousands of objects, one after the other, means
thousands of calls and of cache misses. In a chunk the columns of many objects (see object_ranges) are concatenated, so
that one stream is searched in all objects in parallel: each step probes every object, in one numpy call, and the
accesses to memory overlap. For 5,000 objects of 9,000 streams this takes 2 ms; single searches take 12 ms.

    | column     | type             | object 7          | object 9       | free   |
    |------------|------------------|-------------------|----------------|--------|
    | stream ids | uint32           | 3 8 11 20         | 3 9 20         | . . .  |
    | spans      | int64            | 0:25 0:10 40:5 .. | 25:10 0:7 ..   | . . .  |
    |            |                  | ^ begin     end ^ | ^ begin  end ^ |        |

A *span* is a start and a length in one number, `start << length_bits | length`, so an entry takes 12 bytes. The longest
range of each object determines the number of bits of its lengths; the starts have the rest of 63 bits. So starts below
2**47 fit with lengths up to 65,535, and starts below 2**39 with lengths up to 16,777,215.

Larger numbers are stored in a chunk that is wide in that column: ids of 2**32 and more take 64 bits there, and if a
start and a length do not fit into one span, the spans are starts, and the lengths are in a separate column of 64 bits.

A removed object leaves a gap: its end is set to its begin, so that no search finds an entry of it. When more than half
of a chunk is gaps, they are closed.
"""

from __future__ import annotations

from array import array
from collections.abc import KeysView
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from range_index.object_ranges import ObjectRanges
from range_index.runs import require, unpack
from range_index.stream_view import NO_HOLES, Entry, Rows, rows_of_entries

SINGLE_SEARCHES_MAX: Final = 24
"""Up to this number objects are searched one by one: a parallel search takes as long as about 30 single ones."""

OBJECTS_MAX: Final = 4096
"""The maximum number of objects in a chunk, so that a chunk of tiny objects can be dropped in a millisecond."""

OBJECT_OVERHEAD_BYTES: Final = 200
"""Bytes of the bookkeeping of one object: two dictionary entries, four array elements, two numbers."""

CHUNK_OVERHEAD_BYTES: Final = 2048
"""Bytes of an empty chunk: its own object and those of its columns and dictionaries."""

_SPAN_BITS: Final = 63
_UINT32_MAX: Final = 2**32 - 1


class Widths(NamedTuple):
    """The columns that need 64 bits a number because 12 bytes an entry do not suffice."""

    wide_ids: bool = False
    wide_spans: bool = False

    @property
    def entry_bytes(self) -> int:
        """Bytes of one entry: 12, and 4 more for wide ids, 8 for wide spans."""
        return 12 + 4 * self.wide_ids + 8 * self.wide_spans

    def fit(self, other: Widths) -> bool:
        """Whether columns of these widths can contain numbers that need the other widths."""
        return self.wide_ids >= other.wide_ids and self.wide_spans >= other.wide_spans

    def joined(self, other: Widths) -> Widths:
        """The smallest widths that can contain both."""
        return Widths(self.wide_ids or other.wide_ids, self.wide_spans or other.wide_spans)


class Packing(NamedTuple):
    """The packing of an object's ranges: the widths of the columns, and the number of bits of its lengths in a span."""

    widths: Widths
    length_bits: int

    @classmethod
    def of(cls, ranges: ObjectRanges) -> Self:
        """The narrowest packing; O(streams), no loop in Python."""
        if not len(ranges):
            return cls(Widths(), 0)
        length_bits = int(ranges.lengths.max()).bit_length()
        start_bits = int(ranges.starts.max()).bit_length()
        wide_ids = int(ranges.stream_ids[-1]) > _UINT32_MAX
        return cls(Widths(wide_ids, start_bits + length_bits > _SPAN_BITS), length_bits)


class RangeChunk:
    """Objects' ranges, up to a number of entries.

    Args:
        capacity: the maximum number of entries; memory is used only for entries that are added.
        widths: of its columns; objects that need wider columns do not fit.

    Threads: the caller's lock guards it.
    """

    __slots__ = (
        "_begins",
        "_bits",
        "_ends",
        "_filled",
        "_holed",
        "_holed_bytes",
        "_lengths",
        "_live",
        "_objects",
        "_slots",
        "_spans",
        "_stream_ids",
        "used",
        "widths",
    )

    def __init__(self, capacity: int, widths: Widths) -> None:
        self.used = 0.0
        """The last time an object was added or a search found an entry, by the owner's timer."""
        self.widths: Final = widths
        room = max(1, capacity)
        self._stream_ids: NDArray[np.int64] | NDArray[np.uint32] = np.empty(room, _ID_TYPES[widths.wide_ids])
        self._spans: NDArray[np.int64] = np.empty(room, dtype=np.int64)
        self._lengths: NDArray[np.int64] | None = np.empty(room, dtype=np.int64) if widths.wide_spans else None
        self._objects = array("q")
        self._begins = array("q")
        self._ends = array("q")
        self._bits = array("q")
        self._slots: dict[int, int] = {}
        self._holed: dict[int, NDArray[np.int64]] = {}
        self._holed_bytes = 0
        self._filled = 0
        self._live = 0

    @property
    def entries(self) -> int:
        """The number of entries of its objects."""
        return self._live

    @property
    def is_mostly_gaps(self) -> bool:
        """Whether more than half of the added entries, or of the added objects, were removed."""
        return 2 * self._live < self._filled or 2 * len(self._slots) < len(self._objects)

    @property
    def object_ids(self) -> KeysView[int]:
        """The ids of its objects, as a live view."""
        return self._slots.keys()

    @property
    def nbytes(self) -> int:
        """Bytes of the columns, gaps included, and of the bookkeeping.

        Free capacity does not count: until it is written to, it is reserved address space, not memory.
        """
        return (
            self._filled * self.widths.entry_bytes
            + self._holed_bytes
            + CHUNK_OVERHEAD_BYTES
            + OBJECT_OVERHEAD_BYTES * len(self._objects)
        )

    def takes(self, ranges: ObjectRanges, packing: Packing) -> bool:
        """Whether an object with this packing fits; O(1)."""
        return (
            len(self._objects) < OBJECTS_MAX
            and self._filled + len(ranges) <= len(self._stream_ids)
            and self.widths.fit(packing.widths)
        )

    def add(self, object_id: int, ranges: ObjectRanges, packing: Packing) -> None:
        """Copy the ranges of an object that fits and is not in the chunk; O(its bytes), no work per stream."""
        begin, end = self._filled, self._filled + len(ranges)
        self._stream_ids[begin:end] = ranges.stream_ids
        spans = self._spans[begin:end]
        if self._lengths is None:
            np.left_shift(ranges.starts, packing.length_bits, out=spans)
            np.bitwise_or(spans, ranges.lengths, out=spans)
        else:
            spans[:] = ranges.starts
            self._lengths[begin:end] = ranges.lengths
        self._slots[object_id] = len(self._objects)
        self._objects.append(object_id)
        self._begins.append(begin)
        self._ends.append(end)
        self._bits.append(packing.length_bits)
        if len(ranges.holed):
            self._holed[object_id] = ranges.holed
            self._holed_bytes += ranges.holed.nbytes
        self._filled = end
        self._live += len(ranges)

    def discard(self, object_id: int) -> None:
        """Remove the ranges of an object; O(1)."""
        slot = self._slots.pop(object_id)
        self._live -= self._ends[slot] - self._begins[slot]
        self._ends[slot] = self._begins[slot]
        if object_id in self._holed:
            self._holed_bytes -= self._holed.pop(object_id).nbytes

    def entry_of(self, object_id: int, stream_id: int) -> Entry | None:
        """The entry of one stream in one object of the chunk, if the object holds it; O(log streams)."""
        if stream_id > self._id_max:
            return None
        slot = self._slots[object_id]
        begin = self._begins[slot]
        ids = self._stream_ids[begin : self._ends[slot]]
        # A number of the column's own type: for another type numpy would convert the whole column.
        position = int(ids.searchsorted(ids.dtype.type(stream_id)))
        if position == len(ids) or int(ids[position]) != stream_id:
            return None
        start = int(self._spans[begin + position])
        if self._lengths is None:
            bits = self._bits[slot]
            start, length = start >> bits, start & ((1 << bits) - 1)
        else:
            length = int(self._lengths[begin + position])
        return Entry(start, start + length, object_id, object_id in self._holed and position in self._holed[object_id])

    def find(self, stream_id: int) -> Rows:
        """The entries of one stream in all objects, in order of arrival.

        Complexity: O(objects x log streams of one object), in about 60 numpy calls for any number of objects.
        """
        if stream_id > self._id_max:
            return rows_of_entries([])
        if len(self._slots) <= SINGLE_SEARCHES_MAX:
            entries = [self.entry_of(object_id, stream_id) for object_id in self._slots]
            return rows_of_entries([entry for entry in entries if entry is not None])
        begins, ends = unpack(self._begins), unpack(self._ends)
        positions = last_before(self._stream_ids, begins, ends, stream_id) + 1
        holds = positions < ends
        holds &= self._stream_ids.take(positions, mode="clip") == stream_id
        hits = holds.nonzero()[0]
        positions = positions[hits]
        starts, lengths = self._starts_and_lengths(hits, positions)
        object_ids = unpack(self._objects)[hits]
        return Rows(starts, starts + lengths, object_ids, self._holed_among(hits, positions))

    @property
    def _id_max(self) -> int:
        return _INT64_MAX if self.widths.wide_ids else _UINT32_MAX

    def _starts_and_lengths(
        self, slots: NDArray[np.int64], positions: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        spans = self._spans[positions]
        if self._lengths is not None:
            return spans, self._lengths[positions]
        bits = unpack(self._bits)[slots]
        starts = spans >> bits
        return starts, spans - (starts << bits)

    def _holed_among(self, hits: NDArray[np.int64], positions: NDArray[np.int64]) -> frozenset[int]:
        if not self._holed:
            return NO_HOLES
        position_by_object = dict(zip(hits.tolist(), positions.tolist(), strict=True))
        holed = []
        for object_id, places in self._holed.items():
            slot = self._slots[object_id]
            if slot in position_by_object and position_by_object[slot] - self._begins[slot] in places:
                holed.append(object_id)
        return frozenset(holed)

    def close_gaps(self) -> None:
        """Remove the gaps and free their memory; O(entries), no loop in Python over streams."""
        objects, begins, ends = unpack(self._objects), unpack(self._begins), unpack(self._ends)
        # Ascending, as objects are only added at the end. The lengths would not show which objects are left: an empty
        # object has the length 0, too.
        kept = np.fromiter(self._slots.values(), dtype=np.int64, count=len(self._slots))
        lengths = ends[kept] - begins[kept]
        new_ends = lengths.cumsum()
        new_begins = new_ends - lengths
        rows = np.arange(self._live) + np.repeat(begins[kept] - new_begins, lengths)
        if not len(rows):
            rows = np.zeros(1, dtype=np.int64)  # an empty column could not be probed
        self._stream_ids, self._spans = self._stream_ids.take(rows), self._spans.take(rows)
        self._lengths = self._lengths.take(rows) if self._lengths is not None else None
        self._objects = array("q", objects[kept].tobytes())
        self._bits = array("q", unpack(self._bits)[kept].tobytes())
        self._begins = array("q", new_begins.tobytes())
        self._ends = array("q", new_ends.tobytes())
        self._slots = {object_id: slot for slot, object_id in enumerate(self._objects)}
        self._filled = self._live

    def check(self) -> None:
        """Check every invariant; O(entries).

        Raises:
            AssertionError: an invariant is broken; the message contains the state.
        """
        capacity = len(self._stream_ids)
        require(capacity == len(self._spans), "columns have one length", capacity)
        require(
            (self._lengths is not None) == self.widths.wide_spans, "wide spans have a column of lengths", self.widths
        )
        require(len(self._bits) == len(self._objects), "each object has its length bits", len(self._bits))
        require(0 <= self._live <= self._filled <= capacity, "counts fit", self._live, self._filled, capacity)
        require(len(self._objects) <= OBJECTS_MAX, "objects are bounded", len(self._objects))
        live, before = 0, 0
        for slot, (begin, end) in enumerate(zip(self._begins, self._ends, strict=True)):
            require(before <= begin <= end <= self._filled, "objects do not overlap", slot, before, begin, end)
            ids = self._stream_ids[begin:end]
            require(bool((ids[1:] > ids[:-1]).all()), "stream ids ascend", slot)
            live, before = live + end - begin, end
        require(live == self._live, "entries are counted", live, self._live)
        slots = list(self._slots.values())
        require(slots == sorted(slots), "objects are in order of arrival", self._slots)
        for object_id, slot in self._slots.items():
            require(self._objects[slot] == object_id, "an object is in its slot", object_id, slot)
        require(
            self._holed.keys() <= self._slots.keys(), "hole flags are of objects of the chunk", self._holed, self._slots
        )
        holed_bytes = sum(positions.nbytes for positions in self._holed.values())
        require(holed_bytes == self._holed_bytes, "hole flags are counted", holed_bytes, self._holed_bytes)


_INT64_MAX: Final = 2**63 - 1
_ID_TYPES: Final = (np.dtype(np.uint32), np.dtype(np.int64))
"""The types of narrow and of wide ids."""


def last_before(
    values: NDArray[np.int64] | NDArray[np.uint32], begins: NDArray[np.int64], ends: NDArray[np.int64], wanted: int
) -> NDArray[np.int64]:
    """For each ascending slice ``[begin, end)`` of ``values``, the last position with a value below ``wanted``.

    All slices are searched in parallel: the position moves up by halving strides while the value there is below.

    Complexity: O(slices x log longest), 5 numpy calls a stride.

    Returns:
        One position for each slice; ``begin - 1`` if no value is below, as in an empty slice.
    """
    positions = begins - 1
    lasts = ends - 1
    longest = int((lasts - positions).max(initial=0))
    stride = 1 << longest.bit_length() >> 1
    probes = np.empty_like(positions)
    probed = np.empty(len(positions), dtype=values.dtype)
    while stride:
        np.add(positions, stride, out=probes)
        np.minimum(probes, lasts, out=probes)
        values.take(probes, out=probed, mode="clip")
        np.copyto(positions, probes, where=probed < wanted)
        stride >>= 1
    return positions
