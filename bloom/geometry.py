"""How large a filter is: from the ids it shall hold to slices and bits.

A filter consists of ``slices`` equal runs of bits, one hash value choosing one bit in each. For a capacity of n ids and
an error rate p:

    slices          k = ceil(log2(1 / p))                                7 at 1 %
    bits per slice  m = ceil(n * |ln p| / (k * (ln 2) ** 2))             12,324 for 9,000 ids at 1 %
    bits                k * m                                            86,268, so 10,784 bytes

These are the formulas of pybloom_live, floating point operation by floating point operation, because a stored filter
must have the size that its reader computes.

Two limits follow from the hash (bloom/hashing.py), which yields eight values of 16 bits: at most eight slices, and
fewer than 2 ** 15 bits a slice. Beyond, pybloom_live changes to another hash, and such filters are neither built nor
read here. At 1 % the largest capacity is 23,929.

Filters that shall be probed together (bloom/filter_matrix.py) must have equal geometry, so a filter is not made for the
exact number of its ids but for the next of a fixed list of capacities, the classes. They are the preferred numbers of
ISO 3 (the R10 series, ten a decade, about x 1.25 apart) from 100 on, and the largest possible capacity at the end.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final

ERROR_RATE: Final = 0.01
"""The share of absent streams that a full filter may fail to exclude."""

SLICES_MAX: Final = 8
"""A digest has eight pieces, one a slice."""

SLICE_BITS_MAX: Final = 2**15 - 1
"""From 2 ** 15 bits a slice on, pybloom_live takes another hash."""

CAPACITY_MAX: Final = 23_929
"""The largest capacity at 1 % whose slices stay under ``SLICE_BITS_MAX``."""

# fmt: off
CAPACITY_CLASSES: Final = (
    100, 125, 160, 200, 250, 315, 400, 500, 630, 800,
    1_000, 1_250, 1_600, 2_000, 2_500, 3_150, 4_000, 5_000, 6_300, 8_000,
    10_000, 12_500, 16_000, 20_000, CAPACITY_MAX,
)
# fmt: on
"""The capacities that filters are built for unless a caller asks for another."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """The shape of a filter; filters of equal geometry use the same bit for the same id.

    Immutable: any thread may use it.

    Args:
        capacity: how many ids the filter is made for, at least 1.
        error_rate: false positives at that many ids, between 0 and 1.

    Raises:
        ValueError: not a possible capacity or error rate, or one that needs another hash than ours.
    """

    capacity: int
    error_rate: float = ERROR_RATE
    slices: int = field(init=False, compare=False)
    bits_per_slice: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        # A comparison with NaN is false, so the conditions say what is allowed, not what is refused.
        if not 2.0**-SLICES_MAX <= self.error_rate < 1.0 or 1.0 / self.error_rate <= 1.0:
            raise ValueError(f"expected an error rate from 1/{2**SLICES_MAX} to below 1, found {self.error_rate}")
        if self.capacity < 1:
            raise ValueError(f"expected a capacity of at least 1, found {self.capacity}")
        slices = math.ceil(math.log(1.0 / self.error_rate, 2))  # noqa: FURB163 - log2 may round otherwise than the reader
        bits = math.ceil(self.capacity * abs(math.log(self.error_rate)) / (slices * math.log(2) ** 2))
        if bits > SLICE_BITS_MAX:
            found = f"{bits} for a capacity of {self.capacity}"
            raise ValueError(f"expected at most {SLICE_BITS_MAX} bits a slice, found {found} at {self.error_rate}")
        object.__setattr__(self, "slices", slices)
        object.__setattr__(self, "bits_per_slice", bits)

    @property
    def bits(self) -> int:
        """All bits of the filter."""
        return self.slices * self.bits_per_slice

    @property
    def filter_size_bytes(self) -> int:
        """The bits in whole bytes, without any header."""
        return (self.bits + 7) // 8


def class_for(count: int) -> int | None:
    """The capacity class for an object of ``count`` distinct streams: the smallest that holds them.

    None means that such an object has no filter. One with more than 23,929 streams is always a candidate; an empty one
    is excluded by its empty index.

    Complexity: O(1).
    """
    if not 0 < count <= CAPACITY_MAX:
        return None
    return CAPACITY_CLASSES[bisect_left(CAPACITY_CLASSES, count)]
