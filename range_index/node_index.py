"""What is known of one node: its objects' ranges, its streams' views, and what happened since each view was made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from range_index.change_log import ChangeLog
from range_index.checking import require
from range_index.live_view import LiveView
from range_index.node_ranges import NodeRanges
from range_index.range_chunk import SINGLE_SEARCHES_MAX

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterable

    from range_index.object_ranges import ObjectRanges

NODE_OVERHEAD_BYTES: Final = 1024
"""What a node takes besides its arrays, views and changes."""

_INT64_MAX: Final = 2**63 - 1


class NodeIndex:
    """One node's part of the index; the bounds and the time to live are its owner's.

    Args:
        chunk_entries_max: see NodeRanges.

    Threads: the caller's lock guards it.
    """

    __slots__ = ("changes", "ranges", "views")

    def __init__(self, chunk_entries_max: int) -> None:
        self.ranges: Final = NodeRanges(chunk_entries_max)
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

    def filled(self, stream_id: int, now: float, *, version: int, expires: float) -> LiveView:
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
                return view.appended(entries, version=version)
        removed = {~change for change in changes if change < 0}
        inserted = dict.fromkeys(change for change in reversed(changes) if change >= 0)
        # An object that came and lost its arrays again says nothing about the entry that the view may have of it.
        loaded = [object_id for object_id in reversed(inserted) if object_id in self.ranges.object_ids]
        without = removed.union(loaded)
        rows = self.ranges.rows_of(stream_id, loaded, now)
        if not len(rows.starts) and without.isdisjoint(view.object_ids):
            return view
        return view.merged(rows, without=without, version=version)

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
    if len(changes) > SINGLE_SEARCHES_MAX:
        return False
    for object_id in changes:
        if object_id <= before:
            return False
        before = object_id
    return True
