"""The settings of the histories of streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from accel.history.rules.configuration import DEFAULT_LAYOUT, HistoryLayout, ShardBy
from accel.history.rules.transactions import COMMITTED_AT_ONCE_MAX
from accel.history.rules.values import TIME_MS_END
from loaders.settings import check_settings
from range_index.epoch_times import LEAF_PARTS, PART_EPOCHS

MILLISECONDS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySettings:
    """Settings of histories. The first group applies to new streams; existing streams keep the layout they have.

    Attributes:
        chunk_size: number of epochs in a chunk of the history.
        shard_size: number of epochs, or of segment numbers, whose sealed sizes are in one shard.
        shard_by: whether shards count epochs or segment numbers.
        part_epochs: number of times in a part of the index of times.
        leaf_parts: number of parts that are merged into a leaf.

        ids_block: number of ids that are taken from a counter at once.
        committed_at_once_max: maximum number of transactions in one commit.
        lease_ms: lease of a transaction whose caller requests no other, in milliseconds.
        longest_ms: maximum lifetime of a transaction, in milliseconds.
        completed_batch_seconds: the ends of transactions are kept for at least this time, and at most twice this time.
        records_cache_bytes: memory for decoded records of all streams together. To read a cached record again takes
            no call if the record never changes (epochs, full chunks, blocks of times), otherwise a call without a
            body. 64 MiB; 0 = no cache.

    Raises:
        ValueError: a number out of bounds.
    """

    chunk_size: int = DEFAULT_LAYOUT.chunk_size
    shard_size: int = DEFAULT_LAYOUT.shard_size
    shard_by: ShardBy = DEFAULT_LAYOUT.shard_by
    part_epochs: int = PART_EPOCHS
    leaf_parts: int = LEAF_PARTS
    ids_block: int = 1000
    committed_at_once_max: int = 1000
    lease_ms: int = 60 * MILLISECONDS
    longest_ms: int = 24 * 3600 * MILLISECONDS
    completed_batch_seconds: float = 24 * 3600.0
    records_cache_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        check_settings(
            self,
            least={"completed_batch_seconds": 1, "records_cache_bytes": 0},
            most={"committed_at_once_max": COMMITTED_AT_ONCE_MAX, "longest_ms": TIME_MS_END - 1}
            | {"completed_batch_seconds": TIME_MS_END - 1},
        )
        if self.lease_ms > self.longest_ms:
            raise ValueError(f"expected lease_ms of at most longest_ms = {self.longest_ms}, found {self.lease_ms}")

    @property
    def layout(self) -> HistoryLayout:
        """The layout of the histories of new streams."""
        return HistoryLayout(self.chunk_size, self.shard_size, self.shard_by)
