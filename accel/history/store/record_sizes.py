"""How much memory the records of a history take, so that a bound in bytes can hold.

What counts are columns; the few objects around them are the overhead of keeping a record at all. Where a record holds
a part of a larger array, that array counts as a whole, since it stays for it.
"""

from __future__ import annotations

from array import array
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from accel.history.rules.epochs import EpochRecord, HistoryChunk
from accel.history.rules.ids import IdMap
from accel.history.rules.retention import StreamCutRecord
from accel.history.rules.segments import Segments
from range_index.epoch_times import BlockTimes, EpochTimesRoot

Column: TypeAlias = "NDArray[Any] | array[int]"


def record_size_bytes(record: object) -> int:
    """Memory that a record's columns take; 0 for one without columns. O(1)."""
    return sum(map(_held_bytes, _columns(record)))


def _columns(record: object) -> tuple[Column, ...]:
    match record:
        case EpochRecord(segments=Segments(rows=rows)):
            return (rows,)
        case HistoryChunk():
            stops = record.sealed_stops, record.created_stops
            return record.sealed.rows, record.created.rows, record.reference_epochs, record.times_ms, *stops
        case BlockTimes():
            return (record.times,)
        case EpochTimesRoot():
            return record.tail, record.part_starts, record.leaf_starts
        case IdMap() | StreamCutRecord(cut=IdMap()):
            numbers = record if isinstance(record, IdMap) else record.cut
            return numbers.ids, numbers.values_array
        case _:
            return ()


def _held_bytes(column: Column) -> int:
    if isinstance(column, array):
        return len(column) * column.itemsize
    # A view keeps alive what it was cut from.
    return column.base.nbytes if isinstance(column.base, np.ndarray) else column.nbytes
