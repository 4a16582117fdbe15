"""The end of a segment's time index, made again from the data.

Records of the index that did not move to an object are lost with the process that had them in memory. But each stands
in the data as well: a batch is what one append brought, ends where its record ends, and has its clock value logged. So
the batches behind the last moved record give the lost records, the same as they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from accel.errors import InconsistentAnswer
from accel.history.rules.configuration import OffsetUnit
from accel.lookup.accelerator import ReadAccelerator
from accel.streams.events import decode_events
from accel.streams.times.segment_index import SegmentTimeIndex
from loaders.format import RecordBatch
from range_index.segment_times import TimeRecords


def times_of(
    batches: Iterable[RecordBatch], unit: OffsetUnit, end_offset: int = 0, value: int = 0
) -> Iterator[tuple[int, int]]:
    """The records of a time index that batches stand for: (end offset, clock value), one each.

    Args:
        batches: of one stream, in order.
        unit: what its offsets count.
        end_offset: where the last known record ends; batches up to there are passed over.
        value: its clock value. Batches of producers that log none get that of the one before.

    Raises:
        CorruptObject: damaged events.
    """
    for batch in batches:
        if batch.end_offset > end_offset:
            value = max(value, decode_events(batch, 0, unit)[0].value)
            yield batch.end_offset, value


def restore_times(
    index: SegmentTimeIndex, accelerator: ReadAccelerator, stream_id: int, unit: OffsetUnit, start: int, end: int
) -> int:
    """Give an index the records that its data has behind its end.

    Reads that data once; keeps 16 bytes a batch.

    Args:
        index: of the stream.
        accelerator: reads the data.
        stream_id: the stream.
        unit: what its offsets count.
        start: the stream's first kept offset.
        end: where its data ends.

    Returns:
        How many records.

    Raises:
        InconsistentAnswer: the data does not reach so far.
        CorruptObject, StoreError.
    """
    known = max(index.end_offset, start)
    if known >= end:
        return 0
    reading = accelerator.read(stream_id, known, end)
    rows = list(times_of(reading, unit, index.end_offset, index.last_value))
    if not rows or rows[-1][0] != end:
        found = rows[-1][0] if rows else known
        raise InconsistentAnswer(f"stream {stream_id}: expected batches up to offset {end}, found them up to {found}")
    return index.extend(TimeRecords(np.array(rows, dtype=">u8")).encode())
