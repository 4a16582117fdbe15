"""How many examples a property test runs: a fifth of those written, or times ACCEL_TEST_EXAMPLES_FACTOR.

The written number is what a test deserves when it is looked at by itself; all of them together have a few minutes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar
from zlib import crc32

Case = TypeVar("Case")


def examples(count: int, few: int | None = None) -> int:
    """The number of examples to run.

    Args:
        count: what the test deserves.
        few: the number with a factor below 1, where an example takes long.

    >>> examples(2000) >= 1
    True
    """
    factor = float(os.environ.get("ACCEL_TEST_EXAMPLES_FACTOR", "0.2"))
    return few if few is not None and factor < 1 else max(1, round(count * factor))


def swept(cases: Iterable[Case]) -> list[Case]:
    """The cases of a sweep over all places: half of them, or all with ACCEL_TEST_EXAMPLES_FACTOR of 1 or more.

    Which half depends on the words of a case alone, so it is the same in each process, and no pattern of the sweep is
    left out as a whole.

    >>> len(swept(range(100))) in range(30, 101)
    True
    """
    found = list(cases)
    return found if examples(1000) >= 1000 else [each for each in found if crc32(repr(each).encode()) % 2]


def is_whole() -> bool:
    """Whether sweeps are gone through whole: with ACCEL_TEST_EXAMPLES_FACTOR above 1."""
    return examples(1) > 1


def places(count: int, part: int | None, every: int = 2) -> range:
    """The places of a sweep: all, or some, where other cases of the test take those between.

    Args:
        count: of places.
        part: the first place, where it is there; None = all.
        every: so many places further is the next one.
    """
    if part is None or is_whole():
        return range(count)
    return range(part % every % count, count, every)
