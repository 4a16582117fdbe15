"""The settings of the histories of streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from accel.history.rules.configuration import DEFAULT_LAYOUT, HistoryLayout, ShardBy
from loaders.settings import check_settings
from range_index.epoch_times import LEAF_PARTS, PART_EPOCHS

MILLISECONDS: Final = 1000

LIFETIME_MS_MAX: Final = 24 * 3600 * MILLISECONDS
"""Maximum lifetime of a transaction."""


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
        lease_ms: lease of a transaction whose caller requests no other, in milliseconds, at most a day.
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
    lease_ms: int = 60 * MILLISECONDS
    records_cache_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        check_settings(self, least={"records_cache_bytes": 0}, most={"lease_ms": LIFETIME_MS_MAX})

    @property
    def layout(self) -> HistoryLayout:
        """The layout of the histories of new streams."""
        return HistoryLayout(self.chunk_size, self.shard_size, self.shard_by)
