"""Order across segments: which of several segments holds the oldest data that was not read yet?

Data of one segment comes in order. A stream of many segments has no order across them, only the times at which their
data arrived; reading the segment first whose next data arrived first comes close to the order in which it was written,
and keeps any part of the keys from getting far ahead of the others. It is best effort: nothing bounds how far out of
order data may come, and these are times of arrival, not of events.

    clock, events       when something arrived: one clock for all segments of a host, logged with the data
    times/              the time index of a segment: in memory, and in objects once it has moved there
    orderer, frontier   which segment is read next; which segments a reader stands in, and which follow
    reader_core         all that a reader decides, without I/O; `steps` is what it asks for
    reader              `StreamReader` for threads, `async_reader` for asyncio; `segment_source` reads for them
    groups/             several readers that share a stream
    writing/            `ObjectSegments`, a host of segments in a bucket, and `StreamWriter`, which routes events by key

`range_index.segment_times` has the bytes of a time index, `range_index.time_search` how an offset is found in it.
docs/reading.md tells it from the outside.

Source: PDP-28, "Cross Routing Key Ordering".
"""

from __future__ import annotations

from accel.streams.clock import HostClock
from accel.streams.orderer import Lag, Standing, choose
from accel.streams.replies import SegmentRead, StreamSegmentInfo
from accel.streams.times.part_cache import PartCache
from accel.streams.times.segment_index import SegmentTimeIndex
from range_index.time_search import NO_TOKEN, NO_VALUE, TimesRead

__all__ = [
    "NO_TOKEN",
    "NO_VALUE",
    "HostClock",
    "Lag",
    "PartCache",
    "SegmentRead",
    "SegmentTimeIndex",
    "Standing",
    "StreamSegmentInfo",
    "TimesRead",
    "choose",
]
