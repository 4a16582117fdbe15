"""The settings of the histories of streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from accel.history.rules.configuration import DEFAULT_LAYOUT, HistoryLayout
from loaders.settings import check_settings
from range_index.epoch_times import LEAF_PARTS, PART_EPOCHS

MILLISECONDS: Final = 1000

LIFETIME_MS_MAX: Final = 24 * 3600 * MILLISECONDS
"""Maximum lifetime of a transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySettings:
    """Settings of histories. The first group applies to new streams; existing streams keep the layout they have.

    Attributes:
        layout: the sizes of the chunks and shards of a history.
        part_epochs: number of times in a part of the index of times.
        leaf_parts: number of parts that are merged into a leaf.

        ids_block: number of ids that are taken from a counter at once.
        lease_ms: lease of a transaction whose caller requests no other, in milliseconds, at most a day.

    Raises:
        ValueError: a number out of bounds.
    """

    layout: HistoryLayout = DEFAULT_LAYOUT
    part_epochs: int = PART_EPOCHS
    leaf_parts: int = LEAF_PARTS
    ids_block: int = 1000
    lease_ms: int = 60 * MILLISECONDS

    def __post_init__(self) -> None:
        check_settings(self, most={"lease_ms": LIFETIME_MS_MAX})
