"""How many examples a property test runs: as written, or times ACCEL_TEST_EXAMPLES_FACTOR for a long night."""

from __future__ import annotations

import os


def examples(count: int) -> int:
    """The number of examples to run.

    >>> examples(2000) >= 1
    True
    """
    return max(1, round(count * float(os.environ.get("ACCEL_TEST_EXAMPLES_FACTOR", "1"))))
