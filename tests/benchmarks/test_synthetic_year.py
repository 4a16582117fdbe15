"""The stream that is computed from its epochs' numbers agrees with itself, as one that was really scaled."""

from __future__ import annotations

import numpy as np
import pytest

from accel.history.rules.epochs import delta_of
from benchmarks.history_year import (
    CHUNK,
    EPOCHS,
    chunk_of,
    cut_at,
    epoch_record,
    size_till,
    sizes_of,
    times_block,
    times_of,
    times_root,
)


@pytest.mark.parametrize("number", [0, 1, 17, EPOCHS // CHUNK - 1])
def test_a_chunk_tells_what_changed_between_the_records(number: int) -> None:
    chunk = chunk_of(number)
    for epoch in range(max(chunk.first_epoch, 0), chunk.first_epoch + 9):
        before = epoch_record(epoch - 1) if epoch else None
        assert chunk.delta(epoch) == delta_of(epoch_record(epoch), before)


def test_times_ascend_by_a_second_that_jitters() -> None:
    steps = np.diff(times_of(np.arange(100_000)))
    assert 600 <= steps.min() < 700
    assert 1300 < steps.max() <= 1400


def test_the_index_names_the_time_of_each_block() -> None:
    root = times_root()
    assert root.epochs == EPOCHS
    assert times_block(root, "leaf", 7).times[0] == root.leaf_starts[7]
    assert times_block(root, "part", root.first_part + 3).times[0] == root.part_starts[3]


def test_from_one_cut_to_the_next_lies_a_half_of_a_segment_twice() -> None:
    for epoch in (0, 1, 5, 1_000):
        gone, new = (epoch - 3, epoch + 1)
        left = sizes_of(np.array([gone])) - sizes_of(np.array([gone])) // 2
        begun = sizes_of(np.array([new])) // 2
        assert size_till(epoch + 1) - size_till(epoch) == int(left[0] + begun[0])
    assert size_till(0) == sum(cut_at(0).values())
