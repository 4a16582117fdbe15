"""How a stream's history is cut into pieces; recorded with the stream, so that all who open it find the same pieces.

    | form           | fields                                                                                         |
    |----------------|------------------------------------------------------------------------------------------------|
    | history-layout | chunk_size: epochs in a chunk; shard_size: epochs or numbers in a shard; shard_by: EPOCH or  |
    |                | NUMBER                                                                                         |

The index of times records its own pieces in its root.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from accel.history.codecs.history_form import HistoryForm
from accel.history.codecs.numbers import checked, member
from accel.history.sizes import ShardBy
from loaders.tables import FormRegistry

PIECE_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class HistoryLayout:
    """How a history is cut into pieces.

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
        checked("epochs in a chunk", self.chunk_size, 1, PIECE_MAX)
        checked("a shard's size", self.shard_size, 1, PIECE_MAX)


class StoredLayout(msgspec.Struct, frozen=True):
    """The stored fields of a `HistoryLayout`."""

    chunk_size: int
    shard_size: int
    shard_by: str


def _stored(layout: HistoryLayout) -> StoredLayout:
    return StoredLayout(layout.chunk_size, layout.shard_size, layout.shard_by.name)


def _restored(fields: StoredLayout, _: str) -> HistoryLayout:
    return HistoryLayout(fields.chunk_size, fields.shard_size, member(ShardBy, fields.shard_by))


def register_forms(registry: FormRegistry) -> None:
    """Add the form to those that people can look at."""
    registry.register(HISTORY_LAYOUT.record, HISTORY_LAYOUT.expand)


HISTORY_LAYOUT: Final = HistoryForm("history-layout", 1, StoredLayout, _stored, _restored)
