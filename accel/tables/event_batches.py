"""The events of a stream as Arrow batches, column by column: no event becomes an object of Python.

    bytes of blocks    header | lengths | event event event | header | lengths | event event
    offsets in Arrow                    ^     ^     ^       ^                  ^     ^     ^
    rows                                x     x     x       -                  x     x

The fetched bytes are the values of the column `payload`, and the bounds of the events are its offsets. The bytes
between two appends would be a row, too; a mask leaves it out, and the events outside of the range with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack

import numpy as np
import pyarrow as pa

from accel.history.rules.values import TIME_MS_END, Cut, segment_text
from accel.streams.connection import connect
from accel.streams.rules.events import EventColumns
from accel.tables.bounds import Bounds, Condition
from accel.tables.event_ranges import SegmentRange, StreamEvents
from accel.tables.history_batches import joined, times
from accel.tables.reading import selected
from accel.tables.schemas import TABLES
from loaders.store import ObjectStore


def event_batches(events: StreamEvents, ranges: Iterable[SegmentRange]) -> Iterator[pa.RecordBatch]:
    """The rows of these ranges, one range after the other, each in the order of offsets.

    Memory: what is read ahead, 32 MiB, and one batch: 8 MiB, or a block of an object if that is larger.

    Raises (while iterating):
        AccelError: as `StreamEvents.columns`.
    """
    pieces = (piece for part in ranges for piece in events.columns(part))
    return joined(_rows(events, part, columns) for part, columns in pieces)


def read_events(
    store: ObjectStore,
    name: tuple[str, str],
    places: Sequence[Cut | int | None],
    columns: Sequence[str] | None,
    filters: Sequence[Condition],
) -> pa.RecordBatchReader:
    """The events between two places as a stream of Arrow batches; see `accel.tables.events`.

    Args:
        store: the store of the catalog.
        name: scope and name of the stream.
        places: the first and the last: a cut, a time in milliseconds since 1970, or None = the stream's head, its end.
        columns, filters: as for the other tables.
    """

    def rows(bounds: Bounds, _used: object) -> Iterator[pa.RecordBatch]:
        with ExitStack() as stack:
            events = StreamEvents(stack.enter_context(connect(store)), *name)
            start, end = (_cut(events, place) for place in places)
            ranges = events.between(
                dict(events.stream.head()) if start is None else start, events.tail() if end is None else end
            )
            return _read(stack.pop_all(), event_batches(events, _bounded(ranges, bounds)))

    return selected(TABLES["events"], columns, filters, rows)


def _cut(events: StreamEvents, place: Cut | int | None) -> dict[int, int] | None:
    if place is None:
        return None
    return events.at_time(place) if isinstance(place, int) else events.checked(place)


def _read(streams: ExitStack, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with streams:
        yield from batches


def _bounded(ranges: Iterable[SegmentRange], bounds: Bounds) -> Iterator[SegmentRange]:
    low, high = bounds.span("offset")
    for segment_id, start, end in ranges:
        if bounds.allows_text("segment", segment_text(segment_id)):
            yield SegmentRange(segment_id, max(start, low), min(end, high + 1))


def _rows(events: StreamEvents, part: SegmentRange, columns: EventColumns) -> pa.RecordBatch:
    """The events of some appends that begin in a range. O(events), without a loop over events or appends."""
    offsets, bounds, firsts = columns.offsets[:-1], columns.bounds, columns.firsts
    chosen = (offsets >= part.start) & (offsets < part.end)
    chosen[firsts[1:-1] - 1] = False  # the bytes between two appends
    buffers = [None, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(columns.data)]  # a block has less than 2 GiB
    payloads = pa.Array.from_buffers(pa.binary(), len(chosen), buffers)
    values = np.repeat(columns.values, np.diff(firsts))[:-1][chosen]
    is_known = (values > 0) & (values < TIME_MS_END)
    count = int(chosen.sum())
    scope, name = events.name
    return pa.RecordBatch.from_pydict(
        {
            "scope": pa.repeat(scope, count),
            "stream": pa.repeat(name, count),
            "segment": pa.repeat(segment_text(part.segment_id), count),
            "offset": pa.array(offsets[chosen]),
            "time": times(np.where(is_known, values, 0).astype(np.int64) - (~is_known)),
            "payload": payloads if count == len(chosen) else payloads.filter(pa.array(chosen)),
        },
        schema=TABLES["events"].columns,
    )
