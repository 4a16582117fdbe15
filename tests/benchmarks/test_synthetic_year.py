"""The times that are computed from epochs' numbers, and the index of them."""

from __future__ import annotations

import numpy as np

from benchmarks.indexes import EPOCHS, times_block, times_of, times_root


def test_times_ascend_by_a_second_that_jitters() -> None:
    steps = np.diff(times_of(np.arange(100_000)))
    assert 600 <= steps.min() < 700
    assert 1300 < steps.max() <= 1400


def test_the_index_names_the_time_of_each_block() -> None:
    root = times_root()
    assert root.epochs == EPOCHS
    assert times_block(root, "leaf", 7).times[0] == root.leaf_starts[7]
    assert times_block(root, "part", root.first_part + 3).times[0] == root.part_starts[3]
