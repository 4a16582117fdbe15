"""Arithmetic of key ranges: dividing them, joining them, counting who overlaps whom.

Keys are 64-bit floats, and bounds are compared exactly: two ranges touch if the end of one *is* the start of the other,
digit by digit. So whoever divides a range must give its last part the stored end, not a sum that comes close to it: a
range whose parts miss its end by the last bit can never be replaced by them.

Complexity: O(n log n) in the ranges; none loops over them in Python.

Source: PDP-32.
"""

from __future__ import annotations

import numpy as np

from accel.history.configuration import SEGMENTS_MAX
from accel.history.id_columns import Integers
from accel.history.segments import KeyRanges


def initial_ranges(count: int) -> KeyRanges:
    """The key ranges of a new stream: [i * (1/n), (i + 1) * (1/n)), and the last one ends at 1.

    The product for the last end is below 1 for 82 of the counts up to 1,000, the first of them 49; then the highest
    keys would belong to nobody.

    Raises:
        ValueError: no range, or more than 750,000.
    """
    if not 1 <= count <= SEGMENTS_MAX:
        raise ValueError(f"expected 1 to {SEGMENTS_MAX} segments, found {count}")
    bounds = np.arange(count + 1) * (1.0 / count)
    bounds[-1] = 1.0
    return KeyRanges(bounds[:-1].copy(), bounds[1:].copy())


def split_range(start: float, end: float, count: int) -> KeyRanges:
    """A range in equal parts, whose first start and last end are exactly those of the range.

    Raises:
        ValueError: less than one part, or a range with too few floats in it for so many.
    """
    if not 1 <= count <= SEGMENTS_MAX:
        raise ValueError(f"expected 1 to {SEGMENTS_MAX} parts, found {count}")
    bounds = start + np.arange(count + 1) * ((end - start) / count)
    bounds[0], bounds[-1] = start, end
    if not (bounds[1:] > bounds[:-1]).all():
        raise ValueError(f"expected a range that can be divided by {count}, found [{start}, {end})")
    return KeyRanges(bounds[:-1].copy(), bounds[1:].copy())


def merged(ranges: KeyRanges) -> KeyRanges:
    """Ranges in order of their starts, neighbours that touch exactly as one. Those that overlap stay as they are."""
    order = np.lexsort((ranges.ends, ranges.starts))
    starts, ends = ranges.starts[order], ranges.ends[order]
    begins = np.ones(len(starts), dtype=np.bool_)
    begins[1:] = starts[1:] != ends[:-1]
    lasts = np.append(begins[1:], np.ones(min(len(begins), 1), dtype=np.bool_))
    return KeyRanges(starts[begins], ends[lasts])


def replaces(new: KeyRanges, old: KeyRanges) -> bool:
    """Whether new ranges cover exactly the keys that old ones cover, which do not overlap: nothing twice, no gap."""
    if not len(new) or not (new.starts < new.ends).all():
        return False
    return merged(new) == merged(old)


def overlap_counts(ranges: KeyRanges, others: KeyRanges) -> Integers:
    """With how many of the others each range shares a key; those that only touch do not count."""
    begun = np.searchsorted(np.sort(others.starts), ranges.ends, side="left")
    over = np.searchsorted(np.sort(others.ends), ranges.starts, side="right")
    counts: Integers = (begun - over).astype(np.int64)
    return counts


def splits_and_merges(old: KeyRanges, new: KeyRanges) -> tuple[int, int]:
    """How many of the old ranges were split, and how many of the new ones were merged from several.

    Args:
        old: ranges that were replaced; those that stayed may be among both.
        new: what replaced them.
    """
    splits = np.count_nonzero(overlap_counts(old, new) > 1)
    merges = np.count_nonzero(overlap_counts(new, old) > 1)
    return int(splits), int(merges)
