"""What is no id, offset, count, size or time is refused at the catalog's public edge: nothing is written before."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

from accel.catalog import NodeWriter, ObjectCatalog
from accel.errors import AccelError
from accel.image import StreamObject
from loaders.format import RecordBatch
from loaders.object_ref import ObjectRef
from loaders.store import MemoryStore
from loaders.tables import FormatRecord
from range_index import ObjectRanges

NO_INTEGERS: Final = (
    *(1.0, 1.5, math.nan, math.inf, True, "1", b"1", np.float64(1), np.bool_(True), [1], 2**63, -(2**70)),
)
NO_IDS: Final = (*NO_INTEGERS, -1, None, np.int64(-1))
NO_OFFSETS: Final = NO_IDS
NO_COUNTS: Final = (*NO_IDS, 0, 10**9)
NO_SIZES: Final = (*NO_INTEGERS, None, -2)
NO_DEADLINES: Final = (math.nan, math.inf, True, "1", b"1", [1], 1.7e12, 1_700_000_000_000_000_000, 2**63, 0, -1)
NO_TIMES: Final = (math.nan, math.inf, True, "1", b"1", [1], 1_700_000_000_000, 1.7e18, 2**63, 10**400, -1)
STREAM: Final = 7

Call = Callable[[ObjectCatalog, NodeWriter, Any], object]


def batch(base: Any = 3, count: Any = 3, epoch: Any = 1) -> RecordBatch:
    return RecordBatch(STREAM, epoch, base, count, b"abc")


def ref(object_id: Any = 99, size: Any = 100, index: Any = 36) -> ObjectRef:
    return ObjectRef(object_id, size, index)


def own(object_id: Any = 99, start: Any = 3, end: Any = 6) -> StreamObject:
    return StreamObject(ref(object_id), start, end)


EDGES: dict[str, tuple[tuple[object, ...], Call]] = {
    "open_node": (NO_IDS, lambda catalog, _, bad: catalog.open_node(bad)),
    "prepare for a node": (NO_IDS, lambda catalog, _, bad: catalog.prepare(bad, 1)),
    "prepare for a node, count": (NO_COUNTS, lambda catalog, _, bad: catalog.prepare(4, bad)),
    "prepare for a node, deadline": (NO_DEADLINES, lambda catalog, _, bad: catalog.prepare(4, 1, bad)),
    "prepare": (NO_COUNTS, lambda _, writer, bad: writer.prepare(bad)),
    "prepare, deadline": (NO_DEADLINES, lambda _, writer, bad: writer.prepare(1, bad)),
    "take_prepared": (NO_DEADLINES, lambda _, writer, bad: writer.take_prepared(bad)),
    "open_streams": (NO_IDS[:9] + NO_IDS[10:], lambda _, writer, bad: writer.open_streams([bad])),
    "open_streams, offset": (
        tuple(each for each in NO_OFFSETS if each is not None),
        lambda _, writer, bad: writer.open_streams({8: bad}),
    ),
    "take_over": (NO_IDS, lambda _, writer, bad: writer.take_over({STREAM: bad})),
    "close_streams": (NO_IDS, lambda _, writer, bad: writer.close_streams([bad])),
    "close_streams of the dead": (NO_IDS, lambda catalog, _, bad: catalog.close_streams([bad])),
    "trim": (NO_OFFSETS, lambda _, writer, bad: writer.trim({STREAM: bad})),
    "trim of any node's": (NO_OFFSETS, lambda catalog, _, bad: catalog.trim({STREAM: bad})),
    "stream_end": (NO_IDS, lambda catalog, _, bad: catalog.stream_end(bad)),
    "stream_ends": (NO_IDS, lambda catalog, _, bad: catalog.stream_ends([bad])),
    "discard": (NO_IDS, lambda catalog, _, bad: catalog.discard(4, [bad])),
    "discard, node": (NO_IDS, lambda catalog, _, bad: catalog.discard(bad, [1])),
    "upload": (NO_IDS[:9] + NO_IDS[10:], lambda _, writer, bad: writer.upload([(bad, [batch()])])),
    "upload, base": (NO_OFFSETS, lambda _, writer, bad: writer.upload({STREAM: [batch(base=bad)]})),
    "upload, count": ((*NO_INTEGERS, None, 2**31), lambda _, writer, bad: writer.upload({STREAM: [batch(count=bad)]})),
    "upload, epoch": ((*NO_INTEGERS, None), lambda _, writer, bad: writer.upload({STREAM: [batch(epoch=bad)]})),
    "upload, time": (NO_TIMES, lambda _, writer, bad: writer.upload({STREAM: [batch()]}, data_time_seconds=bad)),
    "upload, deadline": (NO_DEADLINES, lambda _, writer, bad: writer.upload({STREAM: [batch()]}, deadline_seconds=bad)),
    "commit_upload": (NO_IDS, lambda _, writer, bad: writer.commit_upload(ref(bad), {STREAM: (3, 6)})),
    "commit_upload, size": (NO_SIZES, lambda _, writer, bad: writer.commit_upload(ref(size=bad), {STREAM: (3, 6)})),
    "commit_upload, index": (NO_SIZES, lambda _, writer, bad: writer.commit_upload(ref(index=bad), {STREAM: (3, 6)})),
    "commit_upload, end": (NO_OFFSETS, lambda _, writer, bad: writer.commit_upload(ref(), {STREAM: (3, bad)})),
    "commit_upload, start": (NO_OFFSETS, lambda _, writer, bad: writer.commit_upload(ref(), {STREAM: (bad, 6)})),
    "commit_upload, time": (
        NO_TIMES,
        lambda _, writer, bad: writer.commit_upload(ref(), {STREAM: (3, 6)}, data_time_seconds=bad),
    ),
    "commit_uploads": (
        NO_IDS,
        lambda _, writer, bad: writer.commit_uploads([(ref(bad), ObjectRanges.from_ranges([(STREAM, 3, 6)]))]),
    ),
    "register_stream_object": (NO_IDS, lambda _, writer, bad: writer.register_stream_object(STREAM, own(bad))),
    "register_stream_object, end": (
        NO_OFFSETS,
        lambda _, writer, bad: writer.register_stream_object(STREAM, own(end=bad)),
    ),
    "register_stream_object, start": (
        NO_OFFSETS,
        lambda _, writer, bad: writer.register_stream_object(STREAM, own(start=bad)),
    ),
    "commit_compaction": (NO_IDS, lambda catalog, _, bad: catalog.commit_compaction(bad, [ref(1)], None)),
    "commit_compaction, source": (NO_IDS, lambda catalog, _, bad: catalog.commit_compaction(4, [ref(bad)], None)),
    "commit_compaction, output": (NO_IDS, lambda catalog, _, bad: catalog.commit_compaction(4, [ref(1)], ref(bad))),
    "replacement": (NO_IDS[:9] + NO_IDS[10:], lambda catalog, _, bad: catalog.register_stream_object(bad, own(), [1])),
    "replacement, object": (NO_IDS, lambda catalog, _, bad: catalog.register_stream_object(STREAM, own(bad), [1])),
    "replacement, sources": (NO_IDS, lambda catalog, _, bad: catalog.register_stream_object(STREAM, own(), [bad])),
    "init, shards": (NO_COUNTS, lambda catalog, _, bad: made(catalog, stream_buckets=bad)),
    "init, image age": (NO_DEADLINES[:6], lambda catalog, _, bad: made(catalog, max_image_age_seconds=bad)),
}
NO_NUMBERS: Final = {
    *("close", "init", "open", "refresh", "refresh_state", "follow", "image", "format", "parts"),
    *("images", "checkpoint", "upkeep", "node_list", "log_times", "end", "times", "numbers", "stop"),
}
"""Public names that take no number, or that read memory alone; `images` has settings of a reader."""


def made(_: ObjectCatalog, **fields: Any) -> None:
    ObjectCatalog.init(MemoryStore(), FormatRecord(namespace="shop", **fields))


def numpy_integers(*numbers: int) -> list[Any]:
    return [kind(number) for kind, number in zip((np.int64, np.int32, np.uint64, np.int16), numbers, strict=True)]


def bodies(store: MemoryStore) -> dict[str, bytes]:
    return {found.key: bytes(store.get(found.key).body) for found in store.list("")}


@pytest.mark.parametrize("name", EDGES)
def test_what_is_no_number_is_refused_and_nothing_is_written(name: str) -> None:
    bads, call = EDGES[name]
    store = MemoryStore()
    ObjectCatalog.init(store, namespace="shop")
    catalog = ObjectCatalog.open(store)
    writer = catalog.open_node(4)
    writer.open_streams([STREAM])
    writer.upload({STREAM: [batch(0)]})
    before = bodies(store)
    for bad in bads:
        with pytest.raises((ValueError, AccelError)):
            call(catalog, writer, bad)
        assert bodies(store) == before, bad
    writer.upload({STREAM: [batch(3)]})
    assert catalog.stream_end(STREAM) == 6


def test_integers_of_numpy_are_taken_for_what_they_are() -> None:
    store = MemoryStore()
    ObjectCatalog.init(store, namespace="shop")
    catalog = ObjectCatalog.open(store)
    four, eight, six, two = numpy_integers(4, 8, 6, 2)
    writer = catalog.open_node(four)
    writer.open_streams({eight: two})
    writer.upload({eight: [RecordBatch(8, 1, 2, 6, b"abcdef")]}, data_time_seconds=np.float64(1.7e9))
    writer.trim({eight: six})
    assert catalog.stream_end(eight) == 8
    assert len(writer.prepare(two)) == 2


def test_every_public_call_is_in_the_table_or_takes_no_number() -> None:
    named = {name.split(",")[0].split()[0] for name in EDGES} | {"register_stream_object", "close_streams"}
    for kind in (ObjectCatalog, NodeWriter):
        public = {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}
        assert public - named - NO_NUMBERS == set(), kind
