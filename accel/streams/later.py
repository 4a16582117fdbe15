"""Of two positions in a stream the later one, key by key: where somebody goes on who may begin at neither's past.

    stood at    0@0 |==        1@0 |=====                       0@0 was half read, 1@0 further
    head        2@1 |===       1@0 |==                          0@0 was truncated
    goes on at  2@1 |===       1@0 |=====

A segment stays unless the other position is in a later one at any of its keys: then the other has read it to its end.
Of one that both name the higher offset counts. What waited for a segment that has gone may begin by that: that is for
`Frontier.begin` to find out.

Which segment a position is in is told by those that are being read; future ones count only at keys that none of them
holds (`PlacedCut.position`). A position in 0@0 that also waits for 9@4 at the same keys has not read 5@2 in between.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from accel.history.rules.cuts import CutSpan, PlacedCut
from accel.history.rules.ids import IdMap
from accel.history.rules.segments import Segments

_FUTURE: Final = -1


def placed(segments: Segments, offsets: IdMap) -> PlacedCut:
    """A position whose segments are known, ascending by id.

    Up to which epoch segments last is not known here, and matters to neither `later` nor `cuts.compare`.
    """
    return PlacedCut(offsets, CutSpan(segments, IdMap(segments.ids, segments.epochs)))


def later(one: PlacedCut, other: PlacedCut) -> PlacedCut:
    """The later of two cuts at each key. Which way round they are given does not matter. O(n log n) in both."""
    parts = [one.segments.where(_is_kept(one, other)), other.segments.where(_is_kept(other, one))]
    segments = Segments.joined(parts).ascending()
    offsets = np.maximum(one.cut.get_many(segments.ids, _FUTURE), other.cut.get_many(segments.ids, _FUTURE))
    return placed(segments, IdMap(segments.ids, offsets))


def _is_kept(cut: PlacedCut, other: PlacedCut) -> NDArray[np.bool_]:
    return other.position().highest_over(cut.segments.ranges) <= cut.cut.ids
