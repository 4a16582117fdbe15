"""Streams: written to segments by key, read back in the order in which the data arrived.

The data of one segment is in order. Data of different segments has no order except its arrival times. A reader that
always reads the segment whose next data arrived first comes close to the order of writing, and reads no part of the
keys far ahead of the others. This is best effort: the deviation from the order has no bound, and the times are those of
arrival, not of events.

    connection      `connect`: one call that makes all of the following parts; `AsyncConnection`
    writer          `StreamWriter`: routes events by key; each write returns a future
    group_commit    the events of many callers become few objects; with `acknowledgements` and `uploads`
    segments_host   `ObjectSegments`: a host of segments in a bucket; with `open_segments`
    time_index      the arrival times of a segment's data: in memory, and in objects once they have moved there
    segment_source  reads the events of segments
    reader          `StreamReader`
    groups          `ReaderGroup`: several readers that share a stream
    group_readers   `GroupReader`: the readers of a group
    aio             the same readers, and the writer, for asyncio
    shared/         several processes write one stream; streams scale by load
    rules/          without I/O: the order of arrival, the reader's decisions, groups, routing, the bytes of events

`range_index.segment_times` has the bytes of a time index, and the search for an offset in it.
docs/explanation/order.md is the page for users.

Source: PDP-28, "Cross Routing Key Ordering".
"""
