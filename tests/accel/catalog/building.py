"""Builds lists, buckets and rows of the catalog for tests."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TypeVar

import numpy as np

from accel.catalog.node_list import NO_STREAM_OBJECTS, with_compaction, with_new_session, with_prepared, with_upload
from accel.catalog.records import NO_COMMIT, STREAM_OBJECT, NodeList, ObjectFacts, Rows, StreamShard, make_rows, no_rows
from accel.catalog.stream_shards import with_open_ranges
from bloom import StreamSketch

T = TypeVar("T")

NODE = 4
EPOCH = 1
FAR_MS = 10**15


def facts(
    object_id: int, size_bytes: int | None = None, data_time_ms: int | None = None, stream_ids: Iterable[int] = ()
) -> ObjectFacts:
    """An object whose facts follow from its id; with a sketch if it is said which streams it holds."""
    return ObjectFacts(
        object_id,
        data_time_ms=1000 + object_id if data_time_ms is None else data_time_ms,
        size_bytes=size_of(object_id) if size_bytes is None else size_bytes,
        index_size_bytes=36 * (object_id + 1),
        tail_checksum=checksum_of(object_id),
        sketch=sketch_of(tuple(sorted(stream_ids))),
    )


@lru_cache
def sketch_of(stream_ids: tuple[int, ...]) -> StreamSketch | None:
    """The sketch of ascending ids, if there are any."""
    return StreamSketch.build(np.array(stream_ids, dtype=np.int64)) if stream_ids else None


def size_of(object_id: int) -> int:
    """The size of such an object."""
    return 100_000 + object_id


def checksum_of(object_id: int) -> int:
    """The checksum of such an object's tail."""
    return object_id * 2_654_435_761 % 2**32


def stream_objects(*ranges: tuple[int, int, int, int]) -> Rows:
    """STREAM_OBJECT rows of (object id, stream id, start, end)."""
    if not ranges:
        return no_rows(STREAM_OBJECT)
    ids, streams, starts, ends = zip(*ranges, strict=True)
    return make_rows(
        STREAM_OBJECT,
        object_id=ids,
        stream_id=streams,
        start=starts,
        end=ends,
        size_bytes=[size_of(each) for each in ids],
        index_size_bytes=36,
        attributes=-1,
        tail_checksum=[checksum_of(each) for each in ids],
        data_time_ms=1000,
        node_id=NODE,
        added_by=NO_COMMIT,
    )


def prepared(now: NodeList, *object_ids: int) -> NodeList:
    """The list with these ids promised for a long time."""
    return done(with_prepared(now, object_ids, FAR_MS, None))


def uploaded(now: NodeList, object_id: int | None, rows: Rows = NO_STREAM_OBJECTS) -> NodeList:
    """The list after an upload, its ids promised just before."""
    own = [] if object_id is None else [object_id]
    promised = prepared(now, *own, *rows["object_id"].tolist())
    return done(with_upload(promised, now.epoch, None if object_id is None else facts(object_id), rows))


def compacted(
    now: NodeList, sources: Iterable[int], target: int | None, rows: Rows = NO_STREAM_OBJECTS, now_ms: int = 5000
) -> NodeList:
    """The list after a compaction, its ids promised just before."""
    own = [] if target is None else [target]
    promised = prepared(now, *own, *rows["object_id"].tolist()) if own or len(rows) else now
    removed = [(source, size_of(source)) for source in sources]
    return done(with_compaction(promised, removed, None if target is None else facts(target), rows, now_ms))


def list_of(*object_ids: int) -> NodeList:
    """An opened list with these objects uploaded one after another."""
    now = with_new_session(NodeList(NODE))
    for object_id in object_ids:
        now = uploaded(now, object_id)
    return now


def bucket_of_streams(*stream_ids: int) -> StreamShard:
    """A bucket with these streams open on the node."""
    return done(with_open_ranges(StreamShard(0), stream_ids, NODE, EPOCH))


def live_ids(now: NodeList) -> list[int]:
    """Ids of the live objects in order."""
    ids: list[int] = now.live["object_id"].tolist()
    return ids


def spans(now: NodeList) -> list[tuple[int, int]]:
    """(order id, last order id) of the live objects in order."""
    return list(zip(now.live["order_id"].tolist(), now.live["last_order_id"].tolist(), strict=True))


def done(result: T | None) -> T:
    """What a rule gave; fails if it says that nothing was left to do."""
    assert result is not None
    return result
