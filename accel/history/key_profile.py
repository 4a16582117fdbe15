"""What lies at each key: for segments that may overlap, the lowest and the highest of their numbers, key by key.

    segments       5: [0, 0.5)   7: [0.25, 1)
    bounds         0       0.25       0.5        1
    lowest         |   5    |    5     |    7    |
    highest        |   5    |    7     |    7    |

The bounds of all segments cut the key space into intervals, and within an interval nothing changes. "Is every segment
of a cut that overlaps x older than x?" is then the highest number over the intervals of x: two look-ups in a table of
the highest of each 1, 2, 4, 8, ... neighbours. The same table filled from above gives each interval what covers it.

Complexity: O((n + m) log n) for n segments and m questions, in memory too; no loop over either in Python.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from accel.history.id_columns import Integers
from accel.history.segments import KeyRanges, Keys

NONE_LOWEST: Final = 2**63 - 1
"""As the lowest of no numbers at all."""

NONE_HIGHEST: Final = -1
"""As the highest of no numbers at all."""


def bounds_of(parts: Iterable[KeyRanges]) -> Keys:
    """All bounds of all ranges, ascending, each once; at least those of the key space."""
    bounds = [np.array([0.0, 1.0])]
    for part in parts:
        bounds += [part.starts, part.ends]
    return np.unique(np.concatenate(bounds))


class KeyProfile:
    """The lowest and highest numbers at each key. Threads: immutable after it is made.

    Args:
        bounds: cut the key space into intervals, ascending.
        lowest: of the numbers in each interval; `NONE_LOWEST` where there are none.
        highest: likewise; `NONE_HIGHEST`.
    """

    __slots__ = ("bounds", "highest", "lowest")

    def __init__(self, bounds: Keys, lowest: Integers, highest: Integers) -> None:
        self.bounds = bounds
        self.lowest = lowest
        self.highest = highest

    @classmethod
    def of(cls, ranges: KeyRanges, numbers: Integers, bounds: Keys | None = None) -> KeyProfile:
        """The profile of ranges with a number each, which is at least 0.

        Args:
            ranges: where the numbers lie.
            numbers: one for each.
            bounds: those of the ranges, and perhaps of others beside them.
        """
        known = bounds_of((ranges,)) if bounds is None else bounds
        first, stop = np.searchsorted(known, ranges.starts), np.searchsorted(known, ranges.ends)
        negated = _spread(first, stop, -numbers, len(known) - 1, -NONE_LOWEST)
        return cls(known, -negated, _spread(first, stop, numbers, len(known) - 1, NONE_HIGHEST))

    @property
    def is_empty(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which intervals nothing lies in."""
        return np.asarray(self.highest == NONE_HIGHEST)

    def lowest_over(self, ranges: KeyRanges) -> Integers:
        """The lowest number at any key of each range; `NONE_LOWEST` if nothing lies there."""
        return -_highest_within(-self.lowest, *self._intervals(ranges))

    def highest_over(self, ranges: KeyRanges) -> Integers:
        """The highest number at any key of each range; `NONE_HIGHEST` if nothing lies there."""
        return _highest_within(self.highest, *self._intervals(ranges))

    def _intervals(self, ranges: KeyRanges) -> tuple[Integers, Integers]:
        first = np.searchsorted(self.bounds, ranges.starts, side="right") - 1
        return np.maximum(first, 0), np.searchsorted(self.bounds, ranges.ends, side="left")


def _levels(first: Integers, stop: Integers) -> Integers:
    # Of each stretch of intervals: the largest power of two that it holds. Exact, as lengths are far below 2^53.
    exponents: Integers = np.frexp((stop - first).astype(np.float64))[1].astype(np.int64) - 1
    return exponents


def _highest_within(values: Integers, first: Integers, stop: Integers) -> Integers:
    if not len(first):
        return np.empty(0, dtype=np.int64)
    levels = _levels(first, stop)
    answers = np.full(len(first), NONE_HIGHEST, dtype=np.int64)
    table = values
    for level in range(int(levels.max()) + 1):
        width = 1 << level
        if level:
            table = np.maximum(table[: -width // 2], table[width // 2 :])
        asked = np.flatnonzero(levels == level)
        answers[asked] = np.maximum(table[first[asked]], table[stop[asked] - width])
    return answers


def _spread(first: Integers, stop: Integers, values: Integers, count: int, nothing: int) -> Integers:
    if not len(first):
        return np.full(count, nothing, dtype=np.int64)
    levels = _levels(first, stop)
    above = np.full(count, nothing, dtype=np.int64)
    for level in range(int(levels.max()), -1, -1):
        width = 1 << level
        table = np.full(count, nothing, dtype=np.int64)
        given = np.flatnonzero(levels == level)
        np.maximum.at(table, first[given], values[given])
        np.maximum.at(table, stop[given] - width, values[given])
        # A stretch of twice the width covers two of this one.
        table = np.maximum(table, above)
        table[width:] = np.maximum(table[width:], above[:-width])
        above = table
    return above
