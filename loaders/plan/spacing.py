"""Ways to pick a few out of many: evenly, or densely at one end and ever wider towards the other."""

from __future__ import annotations

import numpy as np

from loaders.plan.bracket import Positions

GAPS_MAX = 6
"""Objects of one round that look further ahead than the run."""


def evenly(candidates: Positions, count: int) -> Positions:
    """``count`` of the candidates with equal gaps before, between and after them; all of them if there are no more.

    Complexity: O(count).
    """
    size = len(candidates)
    if size <= count:
        return candidates
    # One of every (size / (count + 1)): the part that is left to search is the same wherever the answer lies.
    picks = (np.arange(1, count + 1) * size) // (count + 1)
    return candidates.take(picks)


def from_low(candidates: Positions, count: int) -> Positions:
    """Most of ``count`` one by one from the low end, the last few with gaps that double.

    The run finds a neighbour at once where the stream is in every object; the widening gaps bracket it within a few
    more where it is in few. Complexity: O(count).
    """
    size = len(candidates)
    if size <= count:
        return candidates
    run = count - min(count // 2, GAPS_MAX)
    widening = run - 1 + (1 << np.arange(1, count - run + 1, dtype=np.int64))
    picks = np.concatenate([np.arange(run), widening[widening < size]])
    return candidates.take(picks)


def from_high(candidates: Positions, count: int) -> Positions:
    """As :func:`from_low`, seen from the high end. Complexity: O(candidates)."""
    size = len(candidates)
    if size <= count:
        return candidates
    mirrored = from_low(np.arange(size), count)
    picks: Positions = (size - 1 - mirrored)[::-1]
    return candidates.take(picks)
