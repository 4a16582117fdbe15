"""Histories are small: bytes an epoch, of the index a change of the stream, of a shard."""

from __future__ import annotations

from array import array

import numpy as np
import pytest

from accel.history.records import (
    EPOCH_RECORD,
    EPOCH_TIMES,
    EPOCH_TIMES_BLOCK,
    HISTORY_CHUNK,
    RETENTION_SET,
    SEALED_SIZES,
)
from accel.history.rules.epochs import EpochRecord
from accel.history.rules.retention import RetentionSet
from accel.history.rules.segments import Segments
from accel.history.rules.values import make_id
from range_index.epoch_times import Block, BlockKind, BlockTimes, EpochTimesRoot, append, show_epochs
from tests.accel.history.records.building import START_MS, chunk_of_scales, jittered_times, shard_of_sizes


@pytest.mark.parametrize("halves", [True, False], ids=["halves", "anywhere"])
@pytest.mark.parametrize("segments", [2, 64, 1_000])
def test_a_chunk_of_single_operations_takes_at_most_20_bytes_an_epoch(segments: int, halves: bool) -> None:
    chunk = chunk_of_scales(1, segments=segments, halves=halves)
    assert len(chunk) == 1_000
    assert len(HISTORY_CHUNK.encode(chunk)) <= 20 * 1_000


def test_a_chunk_of_thirty_operations_takes_at_most_600_bytes_an_epoch() -> None:
    chunk = chunk_of_scales(30, segments=200)
    assert len(chunk.sealed) >= 45 * 1_000
    assert len(HISTORY_CHUNK.encode(chunk)) <= 600 * 1_000


def test_a_full_leaf_of_jittered_times_takes_at_most_170_kilobytes() -> None:
    leaf = BlockTimes(Block(BlockKind.LEAF, 314, 100_000), jittered_times(100_000))
    assert len(EPOCH_TIMES_BLOCK.encode(leaf)) <= 170_000


def test_a_leaf_of_regular_times_takes_a_bit_an_epoch() -> None:
    regular = array("q", range(START_MS, START_MS + 100_000 * 1_000, 1_000))
    leaf = BlockTimes(Block(BlockKind.LEAF, 0, 100_000), regular)
    assert len(EPOCH_TIMES_BLOCK.encode(leaf)) < 100_000 / 8
    assert EPOCH_TIMES_BLOCK.decode(EPOCH_TIMES_BLOCK.encode(leaf), "here").times == regular


def root_after_a_year() -> EpochTimesRoot:
    """315 leaves, 99 parts, and a tail of one: from here on, a thousand changes make it as large as it gets."""
    leaf_starts = jittered_times(315, step_ms=100_000_000)
    parts_start_ms = START_MS + 315 * 100_000_000
    part_starts = jittered_times(99, start_ms=parts_start_ms, step_ms=1_000_000)
    tail = jittered_times(1, start_ms=parts_start_ms + 99 * 1_000_000)
    root = EpochTimesRoot(tail, part_starts, leaf_starts)
    return show_epochs(root, root.epochs)


def test_a_change_of_the_stream_writes_at_most_10_kilobytes_of_index() -> None:
    """The root twice (with the new epoch, and when it is visible), and every thousandth time a part."""
    root = root_after_a_year()
    last_ms = root.tail[-1]
    written = []
    for late_ms in np.random.default_rng(3).integers(800, 1_201, 1_000).tolist():
        last_ms += late_ms
        plan = append(root, root.epochs, last_ms)
        root = show_epochs(plan.root, plan.root.epochs)
        if plan.part is None and root.epochs % 100:
            continue  # one root in a hundred is enough to look at
        part_bytes = len(EPOCH_TIMES_BLOCK.encode(plan.part)) if plan.part else 0
        written.append(2 * len(EPOCH_TIMES.encode(root)) + part_bytes)
    assert len(written) >= 10
    assert max(written) <= 10_000
    assert sum(written) <= 5_000 * len(written)


def test_a_shard_of_1000_sealed_sizes_takes_at_most_6_kilobytes() -> None:
    assert len(SEALED_SIZES.encode(shard_of_sizes(1_000))) <= 6_000


def test_a_year_of_recorded_cuts_takes_at_most_9_bytes_a_cut() -> None:
    sizes = np.random.default_rng(5).integers(1 << 30, 1 << 32, 17_520).cumsum()
    cuts = RetentionSet(jittered_times(17_520, step_ms=1_800_000), sizes)
    assert len(RETENTION_SET.encode(cuts)) <= 9 * len(cuts)


def test_an_epoch_of_three_segments_takes_less_than_400_bytes_and_one_of_50000_at_most_12_a_segment() -> None:
    for count, limit in ((3, 400), (50_000, 12 * 50_000)):
        keys = np.sort(np.random.default_rng(9).random(count - 1))
        numbers = np.arange(count)
        segments = Segments.make(
            [make_id(5, number) for number in numbers.tolist()], START_MS, [0.0, *keys], [*keys, 1.0]
        )
        size_bytes = len(EPOCH_RECORD.encode(EpochRecord(5, 5, segments, START_MS, 0, 0)))
        assert size_bytes <= limit, size_bytes
