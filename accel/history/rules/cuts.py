"""Stream cuts: positions in a stream, and the order of two of them.

A cut contains segments and an offset in each; together they are the position of a reader. An offset of -1 marks a
*future* segment: it was not read yet, because a segment that it continues is still being read:

    epoch 0     0@0 [0, 0.5)      1@0 [0.5, 1)
    epoch 1     2@1 [0, 1)                             {0@0: 10, 2@1: -1}: all of 1@0 was read, and 10 of 0@0

If a segment that is being read and a future segment overlap, the position is in the former: future segments determine
the position only at keys that no other segment of the cut holds. Without this rule, such a cut would be both before and
after itself.

A cut is *possible* if a reader can be at it: a reader reads each segment to its end before the segments that continue
it. So at all keys of a segment the position is after the segment, or at none of them:

    epoch 0     0@0 [0, 0.5)      1@0 [0.5, 1)
    epoch 1     2@1 [0, 1)
    epoch 2     3@2 [0, 0.5)      4@2 [0.5, 1)             {1@0: 5, 3@2: 0} is impossible: 2@1 is after 1@0, and is read

If two segments overlap, the segment with the higher id is later. So two cuts are compared key by key: first the ids,
and then, if both contain the same segment, the offsets.

A reader that cannot continue at a truncated position continues at the later of two positions, key by key (`later`):

    position      0@0 |==        1@0 |=====                     0@0 was half read, 1@0 further
    head          2@1 |===       1@0 |==                        0@0 was truncated
    continues at  2@1 |===       1@0 |=====

A segment stays unless the other position is in a later segment at any of its keys: then the other position is after the
end of the segment. Of a segment in both positions the higher offset counts. The segments that are being read determine
a position; future segments count only at keys that none of them has (`PlacedCut.position`): a position in 0@0 that also
waits for 9@4 at the same keys has not read 5@2 in between.

Complexity: O(n log n) in the segments of both cuts.

Source: PDP-32, "streamCutComparison"; docs/explanation/history.md for details that it leaves out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, unique
from typing import Final

import numpy as np
from numpy.typing import NDArray

from accel.errors import InvalidArgument
from accel.history.rules.segments import (
    NO_SEGMENTS,
    NONE_HIGHEST,
    KeyProfile,
    Keys,
    Segments,
    bounds_of,
    overlap_counts,
)
from accel.history.rules.values import EPOCH_MAX, NOTHING, IdMap


@dataclass(frozen=True, slots=True)
class CutSpan:
    """The segments of a stream cut, and the highest epoch of each, up to the creation epoch of the newest segment.

    Args:
        segments: ascending by id.
        epochs: the highest epoch of each segment, by id.

    Raises:
        ValueError: other ids, or an epoch before the creation of its segment.
    """

    segments: Segments = NO_SEGMENTS
    epochs: IdMap = NOTHING

    def __post_init__(self) -> None:
        if not np.array_equal(self.segments.ids, self.epochs.ids):
            raise ValueError(f"expected an epoch for each of {self.segments}, found {self.epochs}")
        if (self.epochs.values_array < self.segments.epochs).any():
            raise ValueError(f"expected epochs from the creation of each segment on, found {self.epochs}")

    @property
    def low(self) -> int:
        """The lowest of the epochs; 0 without segments."""
        return int(self.epochs.values_array.min(initial=EPOCH_MAX)) if len(self.epochs) else 0

    @property
    def high(self) -> int:
        """The highest of the epochs; 0 without segments."""
        return int(self.epochs.values_array.max(initial=0))

    @property
    def is_of_one_epoch(self) -> bool:
        """Whether all of its segments belong to the creation epoch of the newest one."""
        return int(self.segments.epochs.max(initial=0)) <= self.low


NO_SPAN: Final = CutSpan()


@unique
class CutOrder(Enum):
    """The order of a cut and another one."""

    BEFORE = "Before"
    EQUAL_OR_AFTER = "EqualOrAfter"
    OVERLAPS = "Overlaps"
    """The cut is before the other one at some keys, and after it at others."""


@dataclass(frozen=True, slots=True)
class PlacedCut:
    """A cut with its segments (see `epochs.place`). Threads: immutable.

    Args:
        cut: offsets by segment id; below 0 for future segments.
        span: its segments.

    Raises:
        ValueError: the span of another cut.
    """

    cut: IdMap = NOTHING
    span: CutSpan = NO_SPAN

    def __post_init__(self) -> None:
        if not np.array_equal(self.cut.ids, self.span.segments.ids):
            raise ValueError(f"expected the segments of {self.cut}, found {self.span.segments}")

    @property
    def segments(self) -> Segments:
        """All of its segments, ascending by id."""
        return self.span.segments

    @property
    def live(self) -> Segments:
        """The segments that are being read."""
        return self.segments.where(self.cut.values_array >= 0)

    @property
    def future(self) -> Segments:
        """The segments that were not read yet."""
        return self.segments.where(self.cut.values_array < 0)

    def position(self, bounds: Keys | None = None) -> KeyProfile:
        """Ids of the segments of the position, key by key; several at a key only if live segments overlap.

        Args:
            bounds: all bounds of this cut's segments, and perhaps of other segments.
        """
        known = bounds_of((self.segments.ranges,)) if bounds is None else bounds
        live = KeyProfile.of(self.live.ranges, self.live.ids, known)
        future = KeyProfile.of(self.future.ranges, self.future.ids, known)
        awaited = np.where(future.is_empty, NONE_HIGHEST, future.lowest)
        return KeyProfile(
            known,
            np.where(live.is_empty, future.lowest, live.lowest),
            np.where(live.is_empty, awaited, live.highest),
        )


NO_CUT: Final = PlacedCut()


def compare(one: PlacedCut, other: PlacedCut) -> CutOrder:
    """The order of a cut and another one.

    >>> halves = Segments.make([0, 1], 0, [0.0, 0.5], [0.5, 1.0])
    >>> def cut(first: int, second: int) -> PlacedCut:
    ...     return PlacedCut(IdMap([0, 1], [first, second]), CutSpan(halves, IdMap([0, 1], [0, 0])))
    >>> compare(cut(0, 10), cut(10, 10)), compare(cut(20, 20), cut(10, 10)), compare(cut(1, 11), cut(10, 10))
    (<CutOrder.BEFORE: 'Before'>, <CutOrder.EQUAL_OR_AFTER: 'EqualOrAfter'>, <CutOrder.OVERLAPS: 'Overlaps'>)
    """
    bounds = bounds_of((one.segments.ranges, other.segments.ranges))
    mine, yours = one.position(bounds), other.position(bounds)
    both = ~mine.is_empty & ~yours.is_empty
    is_before = bool((mine.lowest < yours.highest)[both].any())
    is_after = bool((mine.highest > yours.lowest)[both].any())
    _, at_mine, at_yours = np.intersect1d(one.cut.ids, other.cut.ids, assume_unique=True, return_indices=True)
    offsets = one.cut.values_array[at_mine] - other.cut.values_array[at_yours]
    is_before |= bool((offsets < 0).any())
    is_after |= bool((offsets > 0).any())
    if is_before:
        return CutOrder.OVERLAPS if is_after else CutOrder.BEFORE
    return CutOrder.EQUAL_OR_AFTER


def is_equal_or_after(one: PlacedCut, other: PlacedCut) -> bool:
    """Whether a cut is equal to or after another one at every key."""
    return compare(one, other) is CutOrder.EQUAL_OR_AFTER


def is_valid(cut: PlacedCut, segments: Iterable[Segments]) -> bool:
    """Whether a cut is a possible position of a reader.

    - No two live segments overlap, and no future segment is older than a live segment that it overlaps.
    - Keys that no live segment holds (gaps) are held by future segments.
    - A segment that is older than the position at some of its keys was read to its end. So the cut contains no segment
      that is older than such a segment and overlaps it anywhere. A future segment that is the position at no key counts
      in all gaps that it touches.

    Args:
        cut: the cut with its segments; `epochs.place` refuses segments that the stream does not have.
        segments: all segments of the stream from the oldest to the newest creation epoch of the cut's segments, in
            parts (`epochs.segments_of`). Read only if the cut's segments are of several epochs.
    """
    live, future = cut.live, cut.future
    if (overlap_counts(live.ranges, live.ranges) > 1).any():
        return False
    bounds = bounds_of((cut.segments.ranges,))
    held = KeyProfile.of(live.ranges, live.ids, bounds)
    awaited = KeyProfile.of(future.ranges, future.ids, bounds)
    if (held.highest_over(future.ranges) > future.ids).any() or (held.is_empty & awaited.is_empty).any():
        return False
    if cut.span.is_of_one_epoch:
        return True
    reached = _reached(future, held, awaited)
    named = KeyProfile.of(cut.segments.ranges, cut.segments.ids, bounds)
    return not any(_skips(part, cut, reached, named) for part in segments)


def refuse_invalid(cut: PlacedCut, *, is_valid: bool) -> None:
    """Refuse a cut that is no possible position of a reader.

    Args:
        cut: the cut.
        is_valid: the answer of `is_valid`.

    Raises:
        InvalidArgument: it is not valid.
    """
    if not is_valid:
        expected = "expected a cut that covers all keys once, with segments that a reader can be at together"
        raise InvalidArgument(f"{expected}, found {cut.cut}")


def refuse_unordered(start: PlacedCut | None, end: PlacedCut | None) -> None:
    """Refuse a query between two cuts if the end is before the start.

    Args:
        start: None = the stream's beginning.
        end: None = its end.

    Raises:
        InvalidArgument: the end is before the start at some key.
    """
    if start is not None and end is not None and not is_equal_or_after(end, start):
        raise InvalidArgument(f"expected an end at or after the start, found {end.cut} after {start.cut}")


def between(segments: Iterable[Segments], start: PlacedCut | None, end: PlacedCut | None) -> Iterator[Segments]:
    """The segments between two cuts, including the segments of both cuts, in the given parts.

    A segment is between the cuts if at each of its keys the start is not in a later segment and the end not in an
    earlier one. The order of the cuts is not checked: `refuse_unordered` does that.

    Args:
        segments: the segments of the epochs from the lowest of the start's span to the highest of the end's, in parts.
        start: None = the stream's beginning.
        end: None = its end.
    """
    lower = None if start is None else start.position()
    upper = None if end is None else end.position()
    for part in segments:
        chosen = np.ones(len(part), dtype=np.bool_)
        if start is not None and lower is not None:
            chosen &= (lower.highest_over(part.ranges) <= part.ids) | np.isin(part.ids, start.cut.ids)
        if end is not None and upper is not None:
            chosen &= (upper.lowest_over(part.ranges) >= part.ids) | np.isin(part.ids, end.cut.ids)
        if chosen.any():
            yield part.where(chosen)


FUTURE: Final = -1
"""The offset of a segment that has not begun yet."""


def place_offsets(segments: Segments, offsets: IdMap) -> PlacedCut:
    """A position, given its segments, ascending by id.

    The last epochs of the segments are not known here; `later` and `compare` do not need them.
    """
    return PlacedCut(offsets, CutSpan(segments, IdMap(segments.ids, segments.epochs)))


def later(one: PlacedCut, other: PlacedCut) -> PlacedCut:
    """The later of two cuts at each key. Their order does not matter. O(n log n) in both."""
    parts = [one.segments.where(_is_kept(one, other)), other.segments.where(_is_kept(other, one))]
    segments = Segments.join(parts).ascending()
    offsets = np.maximum(one.cut.get_many(segments.ids, FUTURE), other.cut.get_many(segments.ids, FUTURE))
    return place_offsets(segments, IdMap(segments.ids, offsets))


def _reached(future: Segments, held: KeyProfile, awaited: KeyProfile) -> KeyProfile:
    """For each key, the id below which all segments were read to their ends."""
    positions = np.where(held.is_empty, awaited.lowest, held.lowest)
    idle = future.where(~np.isin(future.ids, positions))
    above = np.where(held.is_empty, KeyProfile.of(idle.ranges, idle.ids, held.bounds).highest, NONE_HIGHEST)
    return KeyProfile(held.bounds, positions, np.maximum(positions, above))


def _skips(part: Segments, cut: PlacedCut, reached: KeyProfile, named: KeyProfile) -> bool:
    is_read = (reached.highest_over(part.ranges) > part.ids) & ~np.isin(part.ids, cut.cut.ids)
    return bool((is_read & (named.lowest_over(part.ranges) < part.ids)).any())


def _is_kept(cut: PlacedCut, other: PlacedCut) -> NDArray[np.bool_]:
    return other.position().highest_over(cut.segments.ranges) <= cut.cut.ids
