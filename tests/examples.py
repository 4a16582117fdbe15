"""How many examples a property test runs: a quarter of those written, or times ACCEL_TEST_EXAMPLES_FACTOR.

The written number is what a test deserves when it is looked at by itself; all of them together have a few minutes.
"""

from __future__ import annotations

import os


def examples(count: int) -> int:
    """The number of examples to run.

    >>> examples(2000) >= 1
    True
    """
    return max(1, round(count * float(os.environ.get("ACCEL_TEST_EXAMPLES_FACTOR", "0.25"))))
