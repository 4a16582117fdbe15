"""How far a reader has come: which segments it reads, which are still to come, and so the cut that it stands at.

    epoch 0        epoch 1          a reader that has read 0@0, and half of 1@0
    0@0 |======|   2@1 |=====       2@1  being read, from offset 0
    1@0 |============3@2 |===       1@0  being read, at its middle
                                    3@2  not known yet

At each key the reader stands in exactly one segment, the oldest one there that it has not read to its end. When it has,
the successors take its place. One of those begins once no older segment is left at any of its keys: where two segments
were merged, both must have been read. So each key's events come in the order in which they were written.

Source: PDP-32, on stream cuts; `accel.history.rules.cuts`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from accel.errors import InvalidArgument
from accel.history.rules.cuts import PlacedCut
from accel.history.rules.ids import IdMap, segment_text
from accel.history.rules.segments import KeyProfile, SegmentRecord, Segments
from accel.streams.later import later, placed

FUTURE: Final = -1
"""As the offset of a segment that has not begun yet, in cuts as here."""


class Frontier:
    """The segments that a reader stands in or waits for. Threads: one at a time.

    Args:
        segments: those of a cut.
        offsets: where it stands in each; below 0 for those that have not begun.

    Raises:
        InvalidArgument: offsets of other segments.
    """

    def __init__(self, segments: Iterable[SegmentRecord] = (), offsets: Mapping[int, int] | None = None) -> None:
        self._segments = {each.id: each for each in segments}
        self._offsets = {each: max(offset, FUTURE) for each, offset in (offsets or {}).items()}
        if self._segments.keys() != self._offsets.keys():
            raise InvalidArgument(f"expected offsets of {list(self._segments)}, found {offsets}")

    @property
    def started(self) -> list[int]:
        """Ids of the segments that are being read, ascending."""
        return sorted(each for each, offset in self._offsets.items() if offset >= 0)

    @property
    def waiting(self) -> list[int]:
        """Ids of those that are still to come, ascending."""
        return sorted(each for each, offset in self._offsets.items() if offset < 0)

    def segment(self, segment_id: int) -> SegmentRecord:
        """One of the segments.

        Raises:
            InvalidArgument: it is not among them.
        """
        self._check(segment_id)
        return self._segments[segment_id]

    def offset(self, segment_id: int) -> int:
        """Where the reader stands in a segment; below 0 if it has not begun. Raises as `segment`."""
        self._check(segment_id)
        return self._offsets[segment_id]

    def advance(self, segment_id: int, offset: int) -> None:
        """The reader has read a segment up to an offset. Raises as `segment`."""
        self._check(segment_id)
        self._offsets[segment_id] = offset

    def reach(self, segment_id: int, offset: int) -> None:
        """The same, unless it is further already. Raises as `segment`."""
        self.advance(segment_id, max(offset, self.offset(segment_id)))

    def finish(self, segment_id: int, successors: Iterable[SegmentRecord]) -> list[int]:
        """The reader has read a segment to its end.

        Complexity: O(segments).

        Args:
            segment_id: which.
            successors: the segments that follow it; those that are known already count once.

        Returns:
            Ids of the segments that begin now, ascending.

        Raises:
            InvalidArgument: the segment is not being read.
        """
        self._check(segment_id)
        del self._segments[segment_id], self._offsets[segment_id]
        for each in successors:
            if each.id not in self._segments:
                self._segments[each.id] = each
                self._offsets[each.id] = FUTURE
        return self.begin()

    def begin(self) -> list[int]:
        """Let all those begin that nothing older is left of at their keys; gives their ids, ascending. O(segments)."""
        waiting = self.waiting
        if not waiting:
            return []
        known = Segments.of(self._segments[each] for each in sorted(self._segments))
        chosen = known.where(known.positions_of(waiting))
        oldest = KeyProfile.of(known.ranges, known.ids).lowest_over(chosen.ranges)
        begun = [int(each) for each in chosen.ids[oldest >= chosen.ids]]
        self._offsets.update(dict.fromkeys(begun, 0))
        return begun

    def add(self, segment: SegmentRecord, offset: int) -> None:
        """Take a segment in that is to be read from an offset on.

        Raises:
            InvalidArgument: it is here already, or the offset is below 0.
        """
        if segment.id in self._offsets or offset < 0:
            raise InvalidArgument(f"expected a new segment and an offset of at least 0, found {segment} at {offset}")
        self._segments[segment.id] = segment
        self._offsets[segment.id] = offset

    def remove(self, segment_id: int) -> int:
        """Let a segment go, without anything that follows it; gives where the reader stood. Raises as `segment`."""
        self._check(segment_id)
        del self._segments[segment_id]
        return self._offsets.pop(segment_id)

    def skip(self, head: Frontier) -> None:
        """Go on at another position, wherever that one lies behind this one at some key. O(segments of both).

        Args:
            head: that position.
        """
        found = later(self._placed(), head._placed())
        self._segments = {each.id: each for each in found.segments}
        self._offsets = dict(found.cut)
        self.begin()

    def cut(self) -> IdMap:
        """The stream cut that the reader stands at: a reader that starts there goes on from here."""
        return IdMap.of(self._offsets)

    def __len__(self) -> int:
        return len(self._offsets)

    def __contains__(self, segment_id: int) -> bool:
        return segment_id in self._offsets

    def _placed(self) -> PlacedCut:
        return placed(Segments.of(self._segments[each] for each in sorted(self._segments)), self.cut())

    def _check(self, segment_id: int) -> None:
        if segment_id not in self._offsets:
            known = ", ".join(map(segment_text, sorted(self._offsets)[:20]))
            raise InvalidArgument(f"expected one of {known}, found {segment_text(segment_id)}")
