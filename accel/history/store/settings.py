"""Choices of whoever opens a store of streams."""

from __future__ import annotations

from dataclasses import dataclass

from accel.history.rules.checks import TIME_MS_END, check_settings, checked_duration
from accel.history.rules.configuration import HistoryLayout, ShardBy
from accel.history.rules.transactions import COMMITTED_AT_ONCE_MAX
from range_index.epoch_times import LEAF_PARTS, PART_EPOCHS

MILLISECONDS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySettings:
    """How histories are kept. The first group holds for streams that are created; others keep what they have.

    Attributes:
        chunk_size: epochs in a chunk of the history.
        shard_size: epochs, or segment numbers, whose sealed sizes lie in one shard.
        shard_by: which of both.
        part_epochs: times in a part of the index of times.
        leaf_parts: parts that are merged into a leaf.

        ids_block: ids that are taken from a counter at once.
        committed_at_once_max: transactions of one commit.
        lease_ms: how long a transaction lives unless somebody asks for more.
        longest_ms: how long it lives at most.
        completed_batch_seconds: ends of transactions are remembered for this long at least, and twice that at most.
        records_cache_bytes: memory for decoded records, of all streams together: epochs, chunks, blocks of times. They
            cost neither a call nor decoding when they are asked for again. 64 MiB; 0 = none is kept.

    Raises:
        ValueError: a number out of bounds.
    """

    chunk_size: int = 1000
    shard_size: int = 1000
    shard_by: ShardBy = ShardBy.EPOCH
    part_epochs: int = PART_EPOCHS
    leaf_parts: int = LEAF_PARTS
    ids_block: int = 1000
    committed_at_once_max: int = 1000
    lease_ms: int = 60 * MILLISECONDS
    longest_ms: int = 24 * 3600 * MILLISECONDS
    completed_batch_seconds: float = 24 * 3600.0
    records_cache_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        check_settings(self)
        for name in ("lease_ms", "longest_ms"):
            checked_duration(name, getattr(self, name))
        if self.ids_block < 1 or not 1 <= self.committed_at_once_max <= COMMITTED_AT_ONCE_MAX:
            raise ValueError(f"expected blocks of ids and commits of at least 1, found {self}")
        if not 1 <= self.lease_ms <= self.longest_ms or not 1 <= self.completed_batch_seconds < TIME_MS_END:
            raise ValueError(f"expected leases of at least 1 ms and batches of at least 1 s, found {self}")
        if self.records_cache_bytes < 0:
            raise ValueError(f"expected a cache of 0 or more bytes, found {self}")

    @property
    def layout(self) -> HistoryLayout:
        """How the histories of new streams are cut into pieces."""
        return HistoryLayout(self.chunk_size, self.shard_size, self.shard_by)
