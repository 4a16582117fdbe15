"""A machine that is cloned while it writes: both have one process id and one session, and one of them is refused.

`cloned` copies all that a session has in memory, so nothing there tells the two apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from accel import ReadAccelerator
from accel.catalog import NodeWriter, ObjectCatalog
from accel.catalog.verify import Verdict, verify
from accel.errors import SessionFenced, StreamsReleased
from accel.image import StreamObject
from accel.system import SYSTEM
from loaders.format import RecordBatch
from loaders.layout import ObjectLayout
from loaders.object_writer import ObjectWriter
from loaders.store import MemoryStore, ObjectStore
from loaders.tables import FormatRecord
from tests.simulation.clones import cloned

NODE = 4
STREAMS = (1, 2)
LAYOUT = ObjectLayout(namespace="shop")


@pytest.fixture
def store() -> ObjectStore:
    store = MemoryStore(clock=SYSTEM.clock)
    ObjectCatalog.init(store, FormatRecord(namespace="shop", stream_buckets=2))
    return store


@pytest.fixture
def catalog(store: ObjectStore) -> Iterator[ObjectCatalog]:
    with ObjectCatalog.open(store) as catalog:
        yield catalog


@pytest.fixture
def writer(catalog: ObjectCatalog) -> NodeWriter:
    """A session with two streams, that has committed an object."""
    writer = catalog.open_node(NODE)
    writer.open_streams(STREAMS)
    writer.upload({each: [RecordBatch(each, 1, 0, 10, b"before")] for each in STREAMS})
    return writer


def told(writer: NodeWriter, payload: bytes) -> Mapping[int, list[RecordBatch]]:
    """Ten records of each stream, where the session believes that it ends."""
    return {each: [RecordBatch(each, 1, writer.end(each) or 0, 10, payload)] for each in STREAMS}


Upload = Callable[[ObjectStore, NodeWriter, bytes], object]


def upload(_: ObjectStore, writer: NodeWriter, payload: bytes) -> None:
    """All streams in one object."""
    writer.upload(told(writer, payload))


def upload_apart(store: ObjectStore, writer: NodeWriter, payload: bytes) -> None:
    """Each stream in an object of its own."""
    objects = {}
    for object_id, (stream_id, batches) in zip(
        writer.prepare(len(STREAMS)), told(writer, payload).items(), strict=True
    ):
        with ObjectWriter(store, LAYOUT, object_id) as writing:
            writing.write(stream_id, batches)
        start = batches[0].base_offset
        objects[stream_id] = StreamObject(writing.ref, start, start + batches[0].count)
    writer.commit_upload(None, stream_objects=objects)


def payloads(store: ObjectStore) -> list[list[bytes]]:
    with ObjectCatalog.open(store) as catalog, ReadAccelerator(catalog.images(), store) as reader:
        assert verify(catalog).outcome in (Verdict.CLEAN, Verdict.ADVICE)
        return [[batch.payload for batch in reader.read(each, 0)] for each in STREAMS]


@pytest.mark.parametrize("uploads", [upload, upload_apart])
def test_what_a_clone_has_uploaded_is_not_doubled(store: ObjectStore, writer: NodeWriter, uploads: Upload) -> None:
    twin = cloned(writer)
    uploads(store, twin, b"clone")
    writer.prepare(len(STREAMS))  # the next ids of both: objects of the clone are there
    with pytest.raises(SessionFenced, match="a clone of this process continues the session"):
        uploads(store, writer, b"original")
    assert payloads(store) == [[b"before", b"clone"]] * 2


def test_a_clone_is_refused_whatever_it_has_prepared(store: ObjectStore, writer: NodeWriter) -> None:
    twin = cloned(writer)
    writer.prepare(2)
    upload(store, writer, b"original")
    with pytest.raises(SessionFenced, match="a clone of this process continues the session"):
        upload(store, twin, b"clone")
    later = cloned(writer)  # knows all that was before it
    upload(store, later, b"later")
    with pytest.raises(SessionFenced, match="a clone of this process continues the session"):
        upload(store, writer, b"late")
    assert payloads(store) == [[b"before", b"original", b"later"]] * 2


@pytest.mark.parametrize("uploads", [upload, upload_apart])
def test_a_clone_commits_no_data_of_a_stream_that_was_closed(
    store: ObjectStore, catalog: ObjectCatalog, writer: NodeWriter, uploads: Upload
) -> None:
    twin, slow = cloned(writer), cloned(writer)
    assert writer.close_streams(STREAMS) == dict.fromkeys(STREAMS, 10)
    with pytest.raises(StreamsReleased):
        uploads(store, twin, b"clone")
    for each in (writer, slow):
        each.prepare(len(STREAMS))  # the next ids of all: objects of the clone are there
    other = catalog.open_node(NODE + 1)
    other.open_streams(STREAMS)
    upload(store, other, b"other")
    writer.open_streams([3])
    writer.upload({3: [RecordBatch(3, 1, 0, 10, b"after")]})
    assert not len(writer.node_list.released)  # a clone is recognized by the upload from now on
    with pytest.raises(SessionFenced, match="a clone of this process continues the session"):
        upload(store, slow, b"clone")
    assert payloads(store) == [[b"before", b"other"]] * 2


def test_a_stream_of_which_a_clone_has_committed_data_is_not_closed(store: ObjectStore, writer: NodeWriter) -> None:
    upload(store, cloned(writer), b"clone")
    with pytest.raises(SessionFenced, match="a clone of this process continues the session"):
        writer.close_streams(STREAMS)
    assert payloads(store) == [[b"before", b"clone"]] * 2


def test_an_upload_is_not_taken_for_done_because_a_clone_has_prepared_its_next_ids(
    store: ObjectStore, catalog: ObjectCatalog, writer: NodeWriter
) -> None:
    longer_seconds = 2 * catalog.format.prepared_seconds
    cloned(writer).prepare(8, longer_seconds)
    upload(store, writer, b"original")
    assert payloads(store) == [[b"before", b"original"]] * 2
