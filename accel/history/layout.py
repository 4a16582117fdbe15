"""How a stream's history is cut into pieces; recorded with the stream, so that all who open it find the same pieces.

The index of times records its own pieces in its root.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from accel.history.checks import checked_integer
from accel.history.sizes import ShardBy

PIECE_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class HistoryLayout:
    """How a history is cut into pieces. Threads: immutable.

    Args:
        chunk_size: epochs in a chunk of the history.
        shard_size: epochs, or segment numbers, whose sealed sizes lie in one shard.
        shard_by: which of both.

    Raises:
        ValueError: pieces of less than 1, or more than 1,000,000.
    """

    chunk_size: int = 1000
    shard_size: int = 1000
    shard_by: ShardBy = ShardBy.EPOCH

    def __post_init__(self) -> None:
        for name, what in (("chunk_size", "epochs in a chunk"), ("shard_size", "a shard's size")):
            object.__setattr__(self, name, checked_integer(what, getattr(self, name), 1, PIECE_MAX))
