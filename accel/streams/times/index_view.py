"""A time index as one whole, whether its records lie in objects or in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from accel.streams.times.time_parts import TimeParts
from loaders.errors import PreconditionFailed
from range_index.segment_times import TimeRecords
from range_index.time_search import Bracket

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class IndexView:
    """A `TimeSource`: the index as it stood at one time. Threads: any; later changes of the index do not change it.

    Args:
        parts: the parts, of which those before the records in memory count here; they never change.
        memory: what was in memory then.
    """

    parts: TimeParts
    memory: TimeRecords

    @property
    def records(self) -> int:
        """How many there are."""
        return self.memory.records

    @property
    def end_offset(self) -> int:
        """Where the last one ends."""
        return self.memory.end_offset

    def end_of(self, record: int) -> int:
        """Where a record ends."""
        is_moved = record < self.memory.first_record
        return self.parts.end_of(record) if is_moved else self.memory.end_of(record)

    def start_of(self, record: int) -> int:
        """Where a record begins."""
        is_moved = record < self.memory.first_record
        return self.parts.start_of(record) if is_moved else self.memory.start_of(record)

    def values_of(self, first: int, after: int) -> NDArray[np.uint64]:
        """Clock values of the records from `first` up to, but without, `after`."""
        border = self.memory.first_record
        pieces = list(self.parts.values_of(first, min(after, border)))
        if after > border:
            pieces.append(self.memory.values_of(max(first, border), after))
        return np.concatenate(pieces)

    def bracket(self, offset: int) -> Bracket:
        """What is known of where the record lies that covers an offset."""
        is_moved = offset < self.memory.start_offset
        return self.parts.bracket(offset) if is_moved else self.memory.bracket(offset)


def check_same(key: str, piece: TimeRecords, memory: TimeRecords) -> None:
    """Compare a part that was found with what is in memory, as far as both go.

    Raises:
        PreconditionFailed: they differ.
    """
    known = memory.rows[piece.first_record - memory.first_record :][: len(piece)]
    differs = (piece.rows[: len(known)] != known).any(axis=1)
    if differs.any():
        at = int(differs.argmax())
        detail = (
            f"record {piece.first_record + at} ends at {piece.rows[at, 0]} with value {piece.rows[at, 1]}, and in "
            f"memory at {known[at, 0]} with {known[at, 1]}: does another process write this segment?"
        )
        raise PreconditionFailed("put", key, detail)
