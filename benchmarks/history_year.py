"""The index of the times of a stream that was scaled once a second for a year: 31,536,000 epochs.

Epochs begin a second apart, give or take 200 ms. The peer is a list of 16 bytes an epoch, which each scale would write
as a whole.
"""

from __future__ import annotations

from array import array
from typing import Final

import numpy as np
from numpy.typing import NDArray

from accel.history import records as codecs
from benchmarks.harness import Comparison
from range_index.epoch_times import LEAF_PARTS, PART_EPOCHS, BlockTimes, EpochTimesRoot

EPOCHS: Final = 31_536_000
SECOND_MS: Final = 1_000
JITTER_MS: Final = 200
START_MS: Final = 1_760_000_000_000
MEGABYTE: Final = 1e6

Integers = NDArray[np.int64]

_MIXING = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
"""The rounds of SplitMix64, whose results cannot be compressed."""

_LEAF_EPOCHS = PART_EPOCHS * LEAF_PARTS


def times_of(epochs: Integers) -> Integers:
    """The starts of epochs, milliseconds since 1970; the jitter of each follows from its number."""
    mixed = (epochs.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in _MIXING:
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    jitter = ((mixed >> np.uint64(40)) % np.uint64(2 * JITTER_MS + 1)).astype(np.int64) - JITTER_MS
    times: Integers = START_MS + epochs * SECOND_MS + jitter
    return times


def times_block(root: EpochTimesRoot, kind: str, number: int) -> BlockTimes:
    """A block of the index of times."""
    block = root.leaf(number) if kind == "leaf" else root.part(number)
    epochs = np.arange(block.first_epoch, block.first_epoch + block.epochs, dtype=np.int64)
    return BlockTimes(block, _column(times_of(epochs)))


def times_root() -> EpochTimesRoot:
    """The root as appends would have left it: the tail is never empty."""
    leaves, rest = divmod(EPOCHS - 1, _LEAF_EPOCHS)
    parts, tail = divmod(rest, PART_EPOCHS)
    first_part = leaves * _LEAF_EPOCHS
    first_tail = first_part + parts * PART_EPOCHS
    return EpochTimesRoot(
        _column(times_of(np.arange(first_tail, first_tail + tail + 1, dtype=np.int64))),
        _column(times_of(np.arange(first_part, first_tail, PART_EPOCHS, dtype=np.int64))),
        _column(times_of(np.arange(0, first_part, _LEAF_EPOCHS, dtype=np.int64))),
        visible_epochs=EPOCHS,
    )


def _column(times: Integers) -> array[int]:
    return array("q", times.tobytes())


def run(rounds: int = 7) -> list[Comparison]:  # noqa: ARG001 - bytes do not vary
    """The size of the index of times."""
    root = times_root()
    first_part = root.first_part
    blocks = [times_block(root, "leaf", number) for number in range(len(root.leaf_starts))]
    blocks += [times_block(root, "part", first_part + number) for number in range(len(root.part_starts))]
    size_bytes = len(codecs.EPOCH_TIMES.encode(root)) + sum(map(len, map(codecs.EPOCH_TIMES_BLOCK.encode, blocks)))
    name, peer = "history_year: index of times", "16 B an epoch"
    return [Comparison.exact(name, size_bytes / MEGABYTE, "MB", peer, 16 * EPOCHS / MEGABYTE)]
