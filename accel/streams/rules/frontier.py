"""The position of a reader: the segments that it stands in or waits for, and the later of two positions.

A `Frontier` is the position: the segments that are being read, those still to come, and so a stream cut.

    epoch 0        epoch 1          a reader that has read 0@0, and half of 1@0
    0@0 |======|   2@1 |=====       2@1  being read, from offset 0
    1@0 |============3@2 |===       1@0  being read, at its middle
                                    3@2  not known yet

At each key the reader stands in exactly one segment, the oldest one there that it has not read to its end. When it has,
the successors take its place. One of those begins once no older segment is left at any of its keys: where two segments
were merged, both must have been read. So the events of each key come in the order in which they were written.

A reader that may not begin at a truncated position goes on at the later of two positions, key by key (`later`):

    stood at    0@0 |==        1@0 |=====                       0@0 was half read, 1@0 further
    head        2@1 |===       1@0 |==                          0@0 was truncated
    goes on at  2@1 |===       1@0 |=====

A segment stays unless the other position is in a later one at any of its keys: then the other has read it to its end.
The higher offset counts of a segment that both name. The segments that are being read tell which segment a position is
in; future ones count only at keys that none of them holds (`PlacedCut.position`): a position in 0@0 that also waits for
9@4 at the same keys has not read 5@2 in between.

Source: PDP-32, on stream cuts and successors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from accel.errors import InvalidArgument
from accel.history.rules.cuts import CutSpan, PlacedCut
from accel.history.rules.segments import KeyProfile, SegmentRecord, Segments
from accel.history.rules.values import IdMap, segment_text

# The later of two positions

FUTURE: Final = -1
"""As the offset of a segment that has not begun yet, in cuts as here."""


def place_offsets(segments: Segments, offsets: IdMap) -> PlacedCut:
    """A position whose segments are known, ascending by id.

    Up to which epoch segments last is not known here, and matters to neither `later` nor `cuts.compare`.
    """
    return PlacedCut(offsets, CutSpan(segments, IdMap(segments.ids, segments.epochs)))


def later(one: PlacedCut, other: PlacedCut) -> PlacedCut:
    """The later of two cuts at each key. Which way round they are given does not matter. O(n log n) in both."""
    parts = [one.segments.where(_is_kept(one, other)), other.segments.where(_is_kept(other, one))]
    segments = Segments.join(parts).ascending()
    offsets = np.maximum(one.cut.get_many(segments.ids, FUTURE), other.cut.get_many(segments.ids, FUTURE))
    return place_offsets(segments, IdMap(segments.ids, offsets))


def _is_kept(cut: PlacedCut, other: PlacedCut) -> NDArray[np.bool_]:
    return other.position().highest_over(cut.segments.ranges) <= cut.cut.ids


# The position of a reader


class Frontier:
    """The segments that a reader stands in or waits for. Threads: one at a time.

    Args:
        segments: those of a cut.
        offsets: where it stands in each; below 0 for those that have not begun.

    Raises:
        InvalidArgument: offsets of other segments.
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
        """Ids of those that are still to come, ascending."""
        return sorted(segment_id for segment_id, offset in self._offsets.items() if offset < 0)

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
        for segment in successors:
            if segment.id not in self._segments:
                self._segments[segment.id] = segment
                self._offsets[segment.id] = FUTURE
        return self.begin()

    def begin(self) -> list[int]:
        """Let all those begin that nothing older is left of at their keys; gives their ids, ascending. O(segments)."""
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
        ahead = later(self._placed(), head._placed())
        self._segments = {segment.id: segment for segment in ahead.segments}
        self._offsets = dict(ahead.cut)
        self.begin()

    def cut(self) -> IdMap:
        """The stream cut that the reader stands at: a reader that starts there goes on from here."""
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
