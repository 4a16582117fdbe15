"""The index of one node: its objects' ranges, its streams' views, and the changes since each view was made.

`NodeRanges` contains the ranges of the objects in memory, in chunks (see range_chunk), and returns one stream's entries
in all of them.

`ChangeLog` lets an older view catch up. Inserting or removing an object must need no work per stream, so it does not
change any view. Instead the node counts its changes, its *revision*, and keeps the last of them. A view has the
revision at which it was made; when it is queried again, the changes since then are applied. The log is limited: a view
with more missing changes than the log has must be filled again.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, KeysView, Sequence
from typing import Final

import numpy as np

from range_index.object_ranges import ObjectRanges
from range_index.range_chunk import SINGLE_SEARCHES_MAX, Packing, RangeChunk, Widths
from range_index.runs import require
from range_index.stream_view import Entry, LiveView, Rows, joined, rows_of_entries

REMEMBERED_MAX: Final = 8192
"""The maximum number of changes in the log, whose older half is then dropped: at most 64 KiB a node."""


class ChangeLog:
    """The latest changes of one node, each with its number.

    An insertion is recorded as the object's id, a removal as its complement (``~object_id``, which is negative).

    Threads: the caller's lock guards it.
    """

    __slots__ = ("_first", "_noted", "revision")

    def __init__(self) -> None:
        self.revision = 0
        """The number of all changes so far."""
        self._first = 0
        self._noted = array("q")

    def inserted(self, object_id: int) -> None:
        """Record that an object was inserted; O(1) amortised."""
        self._note(object_id)

    def removed(self, object_id: int) -> None:
        """Record that an object was removed; views drop their entries of it; O(1) amortised."""
        self._note(~object_id)

    def since(self, revision: int) -> array[int] | None:
        """The changes after that revision, oldest first, or None if some of them were dropped; O(changes)."""
        return self._noted[revision - self._first :] if revision >= self._first else None

    def _note(self, change: int) -> None:
        if len(self._noted) == REMEMBERED_MAX:
            forgotten = REMEMBERED_MAX // 2
            self._noted = self._noted[forgotten:]
            self._first += forgotten
        self._noted.append(change)
        self.revision += 1

    @property
    def nbytes(self) -> int:
        """Bytes of the log."""
        return sys.getsizeof(self._noted)

    def check(self) -> None:
        """Check every invariant.

        Raises:
            AssertionError: an invariant is broken; the message contains the state.
        """
        noted = len(self._noted)
        require(self._first + noted == self.revision, "every change has a number", self._first, noted, self.revision)
        require(noted <= REMEMBERED_MAX, "the log is bounded", noted)


CHUNK_ENTRIES_MIN: Final = 1 << 15
"""The capacity of a node's first chunk in entries; it takes memory only for entries that are added."""

CHUNK_GROWTH: Final = 3
"""The capacity of a further chunk, as a multiple of all entries before it: so also a large node has few chunks."""


class NodeRanges:
    """Objects' ranges in chunks, in order of arrival.

    Args:
        chunk_bytes_max: the maximum bytes of entries in a chunk, unless it contains a single object.

    Threads: the caller's lock guards it.
    """

    __slots__ = ("_chunk_bytes_max", "_chunks", "_places")

    def __init__(self, chunk_bytes_max: int) -> None:
        self._chunk_bytes_max = chunk_bytes_max
        self._chunks: list[RangeChunk] = []
        self._places: dict[int, RangeChunk] = {}

    @property
    def object_ids(self) -> KeysView[int]:
        """The ids of the objects, as a live view."""
        return self._places.keys()

    @property
    def entries(self) -> int:
        """The number of entries of all objects."""
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
        """Copy an object's ranges, which replace earlier ones of it; O(its bytes), no work per stream."""
        self.discard(object_id)
        packing = Packing.of(ranges)
        chunk = self._open_chunk(ranges, packing)
        chunk.add(object_id, ranges, packing)
        chunk.used = now
        self._places[object_id] = chunk

    def _open_chunk(self, ranges: ObjectRanges, packing: Packing) -> RangeChunk:
        newest = self._chunks[-1] if self._chunks else None
        if newest is not None and newest.takes(ranges, packing):
            return newest
        # After a wide chunk all chunks are wide: else alternating objects of both kinds would open a chunk each.
        widths = packing.widths.joined(Widths() if newest is None else newest.widths)
        # The capacity is reserved, as growing a chunk would copy it and delay an insertion for milliseconds.
        entries_max = self._chunk_bytes_max // widths.entry_bytes
        capacity = min(max(CHUNK_GROWTH * self.entries, CHUNK_ENTRIES_MIN), entries_max)
        chunk = RangeChunk(max(capacity, len(ranges)), widths)
        self._chunks.append(chunk)
        return chunk

    def discard(self, object_id: int) -> bool:
        """Remove an object's ranges; False if there are none. O(1) amortised."""
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
        """Remove a chunk with all its objects; O(objects of it).

        Returns:
            The number of its objects.
        """
        self._chunks.remove(chunk)
        for object_id in chunk.object_ids:
            del self._places[object_id]
        return len(chunk.object_ids)

    def entry_of(self, object_id: int, stream_id: int, now: float) -> Entry | None:
        """The entry of one stream in one object, if the object is in memory and holds the stream; O(log streams)."""
        chunk = self._places.get(object_id)
        entry = chunk.entry_of(object_id, stream_id) if chunk is not None else None
        if chunk is not None and entry is not None:
            chunk.used = now
        return entry

    def entries_of(self, object_ids: Iterable[int], stream_id: int, now: float) -> list[Entry]:
        """The entries of one stream in these objects, if in memory and holding it; O(objects x log streams)."""
        entries = [self.entry_of(object_id, stream_id, now) for object_id in object_ids]
        return [entry for entry in entries if entry is not None]

    def rows(self, stream_id: int, now: float) -> Rows:
        """The entries of one stream in all objects, in order of arrival; O(objects x log streams of one object)."""
        parts = []
        for chunk in self._chunks:
            rows = chunk.find(stream_id)
            if len(rows.starts):
                chunk.used = now
                parts.append(rows)
        return joined(parts)

    def rows_of(self, stream_id: int, object_ids: Sequence[int], now: float) -> Rows:
        """The entries of one stream in some objects, in the given order if they are few, else in order of arrival."""
        if len(object_ids) <= SINGLE_SEARCHES_MAX:
            return rows_of_entries(self.entries_of(object_ids, stream_id, now))
        rows = self.rows(stream_id, now)
        wanted = np.isin(rows.object_ids, np.array(object_ids, dtype=np.int64))
        holed = rows.holed.intersection(object_ids)
        return Rows(rows.starts[wanted], rows.ends[wanted], rows.object_ids[wanted], holed)

    def check(self) -> None:
        """Check every invariant; O(entries).

        Raises:
            AssertionError: an invariant is broken; the message contains the state.
        """
        for chunk in self._chunks:
            chunk.check()
            require(len(chunk.object_ids) > 0, "a chunk has objects", chunk)
            for object_id in chunk.object_ids:
                require(self._places.get(object_id) is chunk, "an object refers to its chunk", object_id)
        held = sum(len(chunk.object_ids) for chunk in self._chunks)
        require(held == len(self._places), "every object is in one chunk", held, len(self._places))


NEW_OBJECTS_MAX: Final = SINGLE_SEARCHES_MAX
"""The maximum number of inserted objects that are searched one by one for a view; more are searched together."""

NODE_OVERHEAD_BYTES: Final = 1024
"""Bytes of a node besides its arrays, views and changes."""

_INT64_MAX: Final = 2**63 - 1


class NodeIndex:
    """One node's part of the index; its owner applies the limits and the time to live.

    Args:
        chunk_bytes_max: see NodeRanges.

    Threads: the caller's lock guards it.
    """

    __slots__ = ("changes", "ranges", "views")

    def __init__(self, chunk_bytes_max: int) -> None:
        self.ranges: Final = NodeRanges(chunk_bytes_max)
        self.changes: Final = ChangeLog()
        self.views: Final[dict[int, LiveView]] = {}
        """Views by stream id; the owner of the index adds and removes them."""

    @property
    def is_empty(self) -> bool:
        """Whether the node has no objects and no views."""
        return not self.views and not self.ranges.object_ids

    @property
    def log_bytes(self) -> int:
        """Bytes of the node besides arrays and views."""
        return NODE_OVERHEAD_BYTES + self.changes.nbytes

    def insert(self, object_id: int, ranges: ObjectRanges, now: float) -> None:
        """Add an object, which replaces earlier entries of it; no work per stream or view."""
        if self.views:  # without views the log is not needed
            if object_id in self.ranges.object_ids:
                self.changes.removed(object_id)
            self.changes.inserted(object_id)
        self.ranges.insert(object_id, ranges, now)

    def remove(self, object_ids: Iterable[int]) -> None:
        """Remove objects; no work per stream or view."""
        for object_id in object_ids:
            self.ranges.discard(object_id)
            if self.views and 0 <= object_id <= _INT64_MAX:
                self.changes.removed(object_id)

    def make_view(self, stream_id: int, now: float, *, version: int, expires: float) -> LiveView:
        """A new view of all entries in the arrays; O(objects x log streams of one object)."""
        rows = self.ranges.rows(stream_id, now)
        return LiveView.of(rows, version=version, revision=self.changes.revision, expires=expires, used=now)

    def caught_up(self, stream_id: int, view: LiveView, now: float, *, version: int) -> LiveView | None:
        """The view with all changes since it was made; the same view if they do not change its entries.

        Complexity: about 2 us for each new object and a copy of the view; O(entries of the view) for changes other than
        new objects.

        Returns:
            None if the log does not have all missing changes: then the view has to be filled again.
        """
        changes = self.changes.since(view.revision)
        if changes is None:
            return None
        newer = self._with_changes(stream_id, view, changes, now, version)
        newer.revision = self.changes.revision
        return newer

    def _with_changes(self, stream_id: int, view: LiveView, changes: array[int], now: float, version: int) -> LiveView:
        if _are_new(changes, view):  # the usual case: a few objects were uploaded
            entries = self.ranges.entries_of(changes, stream_id, now)
            if not entries:
                return view
            if view.follow(entries):
                return view.with_entries(entries, version=version)
        removed = {~change for change in changes if change < 0}
        inserted = dict.fromkeys(change for change in reversed(changes) if change >= 0)
        # An object that was inserted and whose arrays were evicted does not change its entry in the view.
        loaded = [object_id for object_id in reversed(inserted) if object_id in self.ranges.object_ids]
        without = removed.union(loaded)
        rows = self.ranges.rows_of(stream_id, loaded, now)
        if not len(rows.starts) and without.isdisjoint(view.object_ids):
            return view
        return view.with_rows(rows, without=without, version=version)

    def check(self) -> None:
        """Check every invariant; O(size of the node).

        Raises:
            AssertionError: an invariant is broken; the message contains the state.
        """
        require(not self.is_empty, "a node has objects or views", self)
        self.ranges.check()
        self.changes.check()
        for stream_id, view in self.views.items():
            view.check()
            require(view.revision <= self.changes.revision, "no view is newer than its node", stream_id, view)


def _are_new(changes: array[int], view: LiveView) -> bool:
    """Whether the changes are few insertions of objects that the view certainly lacks, each once."""
    before = view.object_id_max
    if len(changes) > NEW_OBJECTS_MAX:
        return False
    for object_id in changes:
        if object_id <= before:
            return False
        before = object_id
    return True
