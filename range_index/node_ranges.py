"""The object ranges of one node that are in memory: which objects, and one stream's entries in all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from range_index.checking import require
from range_index.range_chunk import NARROW, SINGLE_SEARCHES_MAX, RangeChunk, Rows, joined, rows_of_entries
from range_index.stream_view import Entry

if TYPE_CHECKING:
    from collections.abc import Iterable, KeysView, Sequence

    from range_index.object_ranges import ObjectRanges

CHUNK_ENTRIES_MIN: Final = 1 << 15
"""The first chunk of a node has room for so many entries, and takes memory for those only that come."""

CHUNK_GROWTH: Final = 3
"""A further chunk has room for so many times the entries of all before it: so there are few, also of a large node."""


class NodeRanges:
    """Objects' ranges in chunks, in order of arrival.

    Args:
        chunk_entries_max: no chunk has room for more, unless it is for one object.

    Threads: the caller's lock guards it.
    """

    __slots__ = ("_chunk_entries_max", "_chunks", "_places")

    def __init__(self, chunk_entries_max: int) -> None:
        self._chunk_entries_max = chunk_entries_max
        self._chunks: list[RangeChunk] = []
        self._places: dict[int, RangeChunk] = {}

    @property
    def object_ids(self) -> KeysView[int]:
        """The ids of the objects, as a live view."""
        return self._places.keys()

    @property
    def entries(self) -> int:
        """How many entries these objects have together."""
        return sum(chunk.entries for chunk in self._chunks)

    @property
    def nbytes(self) -> int:
        """Bytes of the chunks; O(chunks)."""
        return sum(chunk.nbytes for chunk in self._chunks)

    @property
    def chunks(self) -> Sequence[RangeChunk]:
        """The chunks, oldest first."""
        return self._chunks

    def insert(self, object_id: int, ranges: ObjectRanges, now: float) -> None:
        """Copy in an object's ranges, in place of those it had; O(its bytes), nothing per stream."""
        self.discard(object_id)
        chunk = self._open_chunk(ranges)
        chunk.add(object_id, ranges)
        chunk.used = now
        self._places[object_id] = chunk

    def _open_chunk(self, ranges: ObjectRanges) -> RangeChunk:
        newest = self._chunks[-1] if self._chunks else None
        if newest is not None and newest.takes(ranges):
            return newest
        # Once wide, always wide: else objects of both kinds in turn would open a chunk each.
        wide = ranges.lengths.dtype != NARROW or (newest is not None and newest.is_wide)
        # Room is reserved and not grown into: to move a chunk would hold up an insertion for milliseconds.
        capacity = min(max(CHUNK_GROWTH * self.entries, CHUNK_ENTRIES_MIN), self._chunk_entries_max)
        chunk = RangeChunk(max(capacity, len(ranges)), wide=wide)
        self._chunks.append(chunk)
        return chunk

    def discard(self, object_id: int) -> bool:
        """Let an object's ranges go; False if they are not here. O(1) amortised."""
        chunk = self._places.pop(object_id, None)
        if chunk is None:
            return False
        chunk.discard(object_id)
        if not chunk.object_ids:
            self._chunks.remove(chunk)
        elif chunk.is_mostly_gaps:
            chunk.close_gaps()
        return True

    def drop(self, chunk: RangeChunk) -> int:
        """Let all objects of a chunk go; O(objects of it).

        Returns:
            How many they were.
        """
        self._chunks.remove(chunk)
        for object_id in chunk.object_ids:
            del self._places[object_id]
        return len(chunk.object_ids)

    def entry_of(self, object_id: int, stream_id: int, now: float) -> Entry | None:
        """The entry of one stream in one object, if the object is here and holds it; O(log streams)."""
        chunk = self._places.get(object_id)
        entry = chunk.entry_of(object_id, stream_id) if chunk is not None else None
        if chunk is not None and entry is not None:
            chunk.used = now
        return entry

    def entries_of(self, object_ids: Iterable[int], stream_id: int, now: float) -> list[Entry]:
        """The entries of one stream in those of the objects that are here and hold it; O(objects x log streams)."""
        found = [self.entry_of(object_id, stream_id, now) for object_id in object_ids]
        return [entry for entry in found if entry is not None]

    def rows(self, stream_id: int, now: float) -> Rows:
        """The entries of one stream in all objects, in order of arrival; O(objects x log streams of one)."""
        found = []
        for chunk in self._chunks:
            rows = chunk.find(stream_id)
            if len(rows.starts):
                chunk.used = now
                found.append(rows)
        return joined(found)

    def rows_of(self, stream_id: int, object_ids: Sequence[int], now: float) -> Rows:
        """The entries of one stream in some of the objects, in that order if they are few, else in order of arrival."""
        if len(object_ids) <= SINGLE_SEARCHES_MAX:
            return rows_of_entries(self.entries_of(object_ids, stream_id, now))
        rows = self.rows(stream_id, now)
        wanted = np.isin(rows.object_ids, np.array(object_ids, dtype=np.int64))
        holed = rows.holed.intersection(object_ids)
        return Rows(rows.starts[wanted], rows.ends[wanted], rows.object_ids[wanted], holed)

    def check(self) -> None:
        """Walk every invariant; O(entries).

        Raises:
            AssertionError: one is broken; the message has the state.
        """
        for chunk in self._chunks:
            chunk.check()
            require(len(chunk.object_ids) > 0, "a chunk has objects", chunk)
            for object_id in chunk.object_ids:
                require(self._places.get(object_id) is chunk, "an object is known by its chunk", object_id)
        held = sum(len(chunk.object_ids) for chunk in self._chunks)
        require(held == len(self._places), "every object is in one chunk", held, len(self._places))
