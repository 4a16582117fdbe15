"""One stream's entries in one node, ready to be searched.

An entry says: "these offsets of the stream lie in that object". A view holds all that an index knows of one stream, as
three packed arrays ascending by start offset. It is a snapshot: when the index learns more, it makes a new view.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

from range_index.checking import require

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterator


class Entry(NamedTuple):
    """The offsets ``[start, end)`` of a stream lie in one object; if it is ``holed``, some of them are missing."""

    start: int
    end: int
    object_id: int
    holed: bool


NO_HOLES: Final[frozenset[int]] = frozenset()


class StreamView:
    """What is known of one stream in one node: its entries, ascending by start, then by arrival; each object once.

    For many steps of one lookup take the arrays themselves: ``bisect.bisect_right(view.starts, offset) - 1`` is the
    position of the floor, and position - 1 that of the next lower entry, for when the floor's object is not to be
    used.

    Args:
        starts: first offset of each entry.
        ends: one past the last offset of each entry.
        object_ids: the object of each entry.
        holed: ids of the objects whose entry has a hole inside; nearly always empty.
        version: of the content: two views of one index with the same version hold the same entries of the same stream.

    Threads: never changes once it is handed out, so any thread may read it.
    """

    __slots__ = ("ends", "holed", "object_ids", "starts", "version")

    def __init__(
        self, starts: array[int], ends: array[int], object_ids: array[int], holed: frozenset[int], version: int
    ) -> None:
        self.starts: Final = starts
        self.ends: Final = ends
        self.object_ids: Final = object_ids
        self.holed: Final = holed
        self.version: Final = version

    def floor_position(self, offset: int) -> int:
        """The position of the entry with the greatest start at or before ``offset``, or -1; O(log entries)."""
        return bisect_right(self.starts, offset) - 1

    def floor(self, offset: int) -> Entry | None:
        """The entry with the greatest start at or before ``offset``, if there is one; O(log entries)."""
        position = self.floor_position(offset)
        return self.entry(position) if position >= 0 else None

    def entry(self, position: int) -> Entry:
        """The entry at a position, counted from 0; O(1).

        Raises:
            IndexError: a position below 0 (an entry lower than the lowest), or past the last.
        """
        if position < 0:
            raise IndexError(f"expected a position of at least 0, found {position}")
        object_id = self.object_ids[position]
        return Entry(self.starts[position], self.ends[position], object_id, object_id in self.holed)

    def __len__(self) -> int:
        """How many entries there are."""
        return len(self.starts)

    def __iter__(self) -> Iterator[Entry]:
        """The entries, ascending by start."""
        return map(self.entry, range(len(self)))

    def __repr__(self) -> str:
        return f"StreamView({list(self)!r}, version={self.version})"

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays, headers included."""
        holed_bytes = sys.getsizeof(self.holed) if self.holed else 0
        return sys.getsizeof(self.starts) + sys.getsizeof(self.ends) + sys.getsizeof(self.object_ids) + holed_bytes

    def check(self) -> None:
        """Walk every invariant; O(entries).

        Raises:
            AssertionError: one is broken; the message has the state.
        """
        rows = len(self.starts)
        require(rows == len(self.ends) == len(self.object_ids), "columns have one length", self.starts, self.ends)
        starts = self.starts.tolist()
        require(starts == sorted(starts), "starts ascend", self)
        require(all(start <= end for start, end in zip(starts, self.ends, strict=True)), "no end before start", self)
        object_ids = set(self.object_ids)
        require(len(object_ids) == rows, "each object once", self)
        require(self.holed <= object_ids, "a mark names an object of the view", self.holed, self)
