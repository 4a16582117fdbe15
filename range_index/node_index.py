"""What is known of one node: its objects' ranges, its streams' views, and what happened since each view was made.

`NodeRanges` has the ranges of the objects that are in memory, in chunks (see range_chunk), and gives one stream's
entries in all of them.

`ChangeLog` lets a view that was made earlier catch up. Inserting or removing an object must cost nothing per stream, so
no view is told of it. Instead the node counts its changes, its *revision*, and remembers the last of them. A view knows
the revision it was made at; when it is asked for again, it takes in what was noted since. The memory is bounded: a view
that missed more than is remembered has to be filled anew.
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
"""Changes that are noted before the older half of them is forgotten: at most 64 KiB a node."""


class ChangeLog:
    """The latest changes of one node, each with its number.

    An insertion is noted as the object's id, a removal as the complement of it (``~object_id``, which is negative).

    Threads: the caller's lock guards it.
    """

    __slots__ = ("_first", "_noted", "revision")

    def __init__(self) -> None:
        self.revision = 0
        """How many changes there ever were."""
        self._first = 0
        self._noted = array("q")

    def inserted(self, object_id: int) -> None:
        """Note that an object came; O(1) amortised."""
        self._note(object_id)

    def removed(self, object_id: int) -> None:
        """Note that an object went, wherever an entry of it may stand; O(1) amortised."""
        self._note(~object_id)

    def since(self, revision: int) -> array[int] | None:
        """The changes after that revision, oldest first, or None if some of them are forgotten; O(changes)."""
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
        """Bytes of the memory."""
        return sys.getsizeof(self._noted)

    def check(self) -> None:
        """Walk every invariant.

        Raises:
            AssertionError: one is broken; the message has the state.
        """
        noted = len(self._noted)
        require(self._first + noted == self.revision, "every change has a number", self._first, noted, self.revision)
        require(noted <= REMEMBERED_MAX, "the memory is bounded", noted)


CHUNK_ENTRIES_MIN: Final = 1 << 15
"""The first chunk of a node has room for this many entries, and takes memory for those only that come."""

CHUNK_GROWTH: Final = 3
"""A further chunk has room for this many times the entries of all before it: so there are few, also of a large node."""


class NodeRanges:
    """Objects' ranges in chunks, in order of arrival.

    Args:
        chunk_bytes_max: no chunk has room for more bytes of entries, unless it is for one object.

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
        packing = Packing.of(ranges)
        chunk = self._open_chunk(ranges, packing)
        chunk.add(object_id, ranges, packing)
        chunk.used = now
        self._places[object_id] = chunk

    def _open_chunk(self, ranges: ObjectRanges, packing: Packing) -> RangeChunk:
        newest = self._chunks[-1] if self._chunks else None
        if newest is not None and newest.takes(ranges, packing):
            return newest
        # Once wide, always wide: else objects of both kinds in turn would open a chunk each.
        widths = packing.widths.joined(Widths() if newest is None else newest.widths)
        # Room is reserved and not grown into: to move a chunk would hold up an insertion for milliseconds.
        entries_max = self._chunk_bytes_max // widths.entry_bytes
        capacity = min(max(CHUNK_GROWTH * self.entries, CHUNK_ENTRIES_MIN), entries_max)
        chunk = RangeChunk(max(capacity, len(ranges)), widths)
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
        entries = [self.entry_of(object_id, stream_id, now) for object_id in object_ids]
        return [entry for entry in entries if entry is not None]

    def rows(self, stream_id: int, now: float) -> Rows:
        """The entries of one stream in all objects, in order of arrival; O(objects x log streams of one)."""
        parts = []
        for chunk in self._chunks:
            rows = chunk.find(stream_id)
            if len(rows.starts):
                chunk.used = now
                parts.append(rows)
        return joined(parts)

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


NEW_OBJECTS_MAX: Final = SINGLE_SEARCHES_MAX
"""Insertions that a view takes in one by one, before they are searched together."""

NODE_OVERHEAD_BYTES: Final = 1024
"""What a node takes besides its arrays, views and changes."""

_INT64_MAX: Final = 2**63 - 1


class NodeIndex:
    """One node's part of the index; the bounds and the time to live are its owner's.

    Args:
        chunk_bytes_max: see NodeRanges.

    Threads: the caller's lock guards it.
    """

    __slots__ = ("changes", "ranges", "views")

    def __init__(self, chunk_bytes_max: int) -> None:
        self.ranges: Final = NodeRanges(chunk_bytes_max)
        self.changes: Final = ChangeLog()
        self.views: Final[dict[int, LiveView]] = {}
        """By stream id; their owner puts them in and takes them out."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known of the node."""
        return not self.views and not self.ranges.object_ids

    @property
    def log_bytes(self) -> int:
        """Bytes of what is neither array nor view."""
        return NODE_OVERHEAD_BYTES + self.changes.nbytes

    def insert(self, object_id: int, ranges: ObjectRanges, now: float) -> None:
        """Take in an object, in place of what was known of it; nothing per stream, nothing per view."""
        if self.views:  # without views there is nobody to catch up
            if object_id in self.ranges.object_ids:
                self.changes.removed(object_id)
            self.changes.inserted(object_id)
        self.ranges.insert(object_id, ranges, now)

    def remove(self, object_ids: Iterable[int]) -> None:
        """Let objects go; nothing per stream, nothing per view."""
        for object_id in object_ids:
            self.ranges.discard(object_id)
            if self.views and 0 <= object_id <= _INT64_MAX:
                self.changes.removed(object_id)

    def make_view(self, stream_id: int, now: float, *, version: int, expires: float) -> LiveView:
        """A new view of all that the arrays say; O(objects x log streams of one)."""
        rows = self.ranges.rows(stream_id, now)
        return LiveView.of(rows, version=version, revision=self.changes.revision, expires=expires, used=now)

    def caught_up(self, stream_id: int, view: LiveView, now: float, *, version: int) -> LiveView | None:
        """The view with all that happened since; the same one if that does not concern it.

        Complexity: about 2 us for each new object and a copy of the view; where other things happened than new objects,
        O(entries of the view).

        Returns:
            None if the view missed more than is remembered: then it has to be filled again.
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
        # An object that came and lost its arrays again says nothing about the entry that the view may have of it.
        loaded = [object_id for object_id in reversed(inserted) if object_id in self.ranges.object_ids]
        without = removed.union(loaded)
        rows = self.ranges.rows_of(stream_id, loaded, now)
        if not len(rows.starts) and without.isdisjoint(view.object_ids):
            return view
        return view.with_rows(rows, without=without, version=version)

    def check(self) -> None:
        """Walk every invariant; O(everything held).

        Raises:
            AssertionError: one is broken; the message has the state.
        """
        require(not self.is_empty, "a node has something", self)
        self.ranges.check()
        self.changes.check()
        for stream_id, view in self.views.items():
            view.check()
            require(view.revision <= self.changes.revision, "no view is ahead of its node", stream_id, view)


def _are_new(changes: array[int], view: LiveView) -> bool:
    """Whether the changes are a few insertions of objects that the view surely lacks, each once."""
    before = view.object_id_max
    if len(changes) > NEW_OBJECTS_MAX:
        return False
    for object_id in changes:
        if object_id <= before:
            return False
        before = object_id
    return True
