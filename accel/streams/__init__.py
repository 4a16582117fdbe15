"""Streams: written to segments by key, read back in the order in which the data arrived.

Data of one segment comes in order. A stream of many segments has no order across them, only the times at which their
data arrived. A reader that takes the segment first whose next data arrived first comes close to the order in which the
stream was written, and keeps no part of the keys far ahead of the others. This is best effort: nothing bounds how far
out of order data may come, and the times are of arrival, not of events.

    connection      `connect`: one call that wires all of the following
    writer          `StreamWriter`: routes events by key; each write gives a future; `async_writer` for asyncio
    group_commit    what many callers write becomes few objects; with `acknowledgements` and `uploads`
    segments_host   `ObjectSegments`: a host of segments in a bucket; with `open_segments`
    auto_scale      streams are split and merged as their policies say, by the hosts of their segments
    owners          which process has which node id, where it is reached, and for how long it is taken to live;
                    `SharedSegments`: the segments of this process, and those of the other owners
    forwarding      events go to the process that owns the segment of their key, which takes them by `SegmentService`
    time_index      when the data of a segment arrived: in memory, and in objects once it has moved there
    segment_source  reads the events of segments
    reader          `StreamReader` for threads, `AsyncStreamReader` for asyncio
    groups          `ReaderGroup`, `GroupReader`, `AsyncGroupReader`: several readers that share a stream
    rules/          pure: the order of arrival, the reader's decisions, groups, routing, and the bytes of events

`range_index.segment_times` has the bytes of a time index, and how an offset is found in it.
docs/explanation/order.md is the page for users.

Source: PDP-28, "Cross Routing Key Ordering".
"""
