"""The position of a reader: the segments that it reads or waits for.

A `Frontier` is the position: the segments that are being read and those that have not begun, so it is a stream cut.

    epoch 0        epoch 1          a reader that has read 0@0, and half of 1@0
    0@0 |======|   2@1 |=====       2@1  being read, from offset 0
    1@0 |============3@2 |===       1@0  being read, at its middle
                                    3@2  not known yet

At each key the reader reads exactly one segment: the oldest segment with this key that it has not read to its end. When
a segment was read to its end, its successors replace it. A successor begins once all older segments of its keys are
read: if two segments were merged, both must have been read. So the events of each key come in the order of writing.

Source: PDP-32, on stream cuts and successors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from accel.errors import InvalidArgument
from accel.history.rules.cuts import FUTURE, PlacedCut, later, place_offsets
from accel.history.rules.segments import KeyProfile, SegmentRecord, Segments
from accel.history.rules.values import IdMap, segment_text

# The position of a reader


class Frontier:
    """The segments that a reader reads or waits for. Threads: one at a time.

    Args:
        segments: the segments of a cut.
        offsets: the reader's offset in each; below 0 for segments that have not begun.

    Raises:
        InvalidArgument: the offsets are of other segments.
    """

    def __init__(self, segments: Iterable[SegmentRecord] = (), offsets: Mapping[int, int] | None = None) -> None:
        self._segments = {segment.id: segment for segment in segments}
        self._offsets = {segment_id: max(offset, FUTURE) for segment_id, offset in (offsets or {}).items()}
        if self._segments.keys() != self._offsets.keys():
            raise InvalidArgument(f"expected offsets of {list(self._segments)}, found {offsets}")

    @property
    def started(self) -> list[int]:
        """Ids of the segments that are being read, ascending."""
        return sorted(segment_id for segment_id, offset in self._offsets.items() if offset >= 0)

    @property
    def waiting(self) -> list[int]:
        """Ids of the segments that have not begun, ascending."""
        return sorted(segment_id for segment_id, offset in self._offsets.items() if offset < 0)

    def segment(self, segment_id: int) -> SegmentRecord:
        """Return one of the segments.

        Raises:
            InvalidArgument: the position does not have this segment.
        """
        self._check(segment_id)
        return self._segments[segment_id]

    def offset(self, segment_id: int) -> int:
        """Return the reader's offset in a segment; below 0 if the segment has not begun. Raises as `segment`."""
        self._check(segment_id)
        return self._offsets[segment_id]

    def advance(self, segment_id: int, offset: int) -> None:
        """Set the reader's offset in a segment. Raises as `segment`."""
        self._check(segment_id)
        self._offsets[segment_id] = offset

    def reach(self, segment_id: int, offset: int) -> None:
        """Raise the reader's offset in a segment to this one, if it is lower. Raises as `segment`."""
        self.advance(segment_id, max(offset, self.offset(segment_id)))

    def finish(self, segment_id: int, successors: Iterable[SegmentRecord]) -> list[int]:
        """Replace a segment, which was read to its end, by its successors.

        Complexity: O(segments).

        Args:
            segment_id: the segment.
            successors: the segments that follow it; some may already be in the position.

        Returns:
            Ids of the segments that begin now, ascending.

        Raises:
            InvalidArgument: the segment is not being read.
        """
        self._check(segment_id)
        segments = {each: segment for each, segment in self._segments.items() if each != segment_id}
        new = [segment for segment in successors if segment.id not in segments]
        segments.update((segment.id, segment) for segment in new)
        offsets = {each: self._offsets.get(each, FUTURE) for each in segments}
        self._segments, self._offsets = segments, offsets  # together: an interrupt comes before or after it
        return self.begin()

    def begin(self) -> list[int]:
        """Begin all waiting segments whose older segments are all read; returns their ids, ascending. O(segments)."""
        waiting = self.waiting
        if not waiting:
            return []
        known = Segments.of(self._segments[segment_id] for segment_id in sorted(self._segments))
        chosen = known.where(known.positions_of(waiting))
        oldest = KeyProfile.of(known.ranges, known.ids).lowest_over(chosen.ranges)
        begun = [int(segment_id) for segment_id in chosen.ids[oldest >= chosen.ids]]
        self._offsets.update(dict.fromkeys(begun, 0))
        return begun

    def add(self, segment: SegmentRecord, offset: int) -> None:
        """Add a segment that is read from an offset on.

        Raises:
            InvalidArgument: the position already has the segment, or the offset is below 0.
        """
        if segment.id in self._offsets or offset < 0:
            raise InvalidArgument(f"expected a new segment and an offset of at least 0, found {segment} at {offset}")
        self._segments[segment.id] = segment
        self._offsets[segment.id] = offset

    def remove(self, segment_id: int) -> int:
        """Remove a segment without adding successors; returns the reader's offset in it. Raises as `segment`."""
        self._check(segment_id)
        del self._segments[segment_id]
        return self._offsets.pop(segment_id)

    def skip(self, head: Frontier) -> None:
        """Move to another position at the keys where it is later than this one. O(segments of both).

        Args:
            head: the other position.
        """
        ahead = later(self._placed(), head._placed())
        segments, offsets = {segment.id: segment for segment in ahead.segments}, dict(ahead.cut)
        self._segments, self._offsets = segments, offsets
        self.begin()

    def cut(self) -> IdMap:
        """Return the stream cut of the position, at which another reader can continue."""
        return IdMap.of(self._offsets)

    def __len__(self) -> int:
        return len(self._offsets)

    def __contains__(self, segment_id: int) -> bool:
        return segment_id in self._offsets

    def _placed(self) -> PlacedCut:
        return place_offsets(
            Segments.of(self._segments[segment_id] for segment_id in sorted(self._segments)), self.cut()
        )

    def _check(self, segment_id: int) -> None:
        if segment_id not in self._offsets:
            known = ", ".join(map(segment_text, sorted(self._offsets)[:20]))
            raise InvalidArgument(f"expected one of {known}, found {segment_text(segment_id)}")
