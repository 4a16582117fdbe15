"""A machine that is cloned while it writes: both have one process id and one session, and one of them is refused.

A forked child that believes to have its parent's process id is such a clone: nothing in its memory tells them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import pytest

from accel import ReadAccelerator
from accel.catalog import CatalogSettings, NodeWriter, ObjectCatalog
from accel.catalog.verify import Verdict, verify
from accel.errors import SessionFenced
from accel.image import StreamObject
from accel.system import SYSTEM
from loaders.format import RecordBatch
from loaders.layout import ObjectLayout
from loaders.object_writer import ObjectWriter
from loaders.store import ObjectStore
from loaders.tables import FormatRecord
from tests.processes.children import in_child
from tests.servers.stores import store_on_s3

NODE = 4
STREAMS = (1, 2)
LAYOUT = ObjectLayout(namespace="shop")
CLONED = replace(SYSTEM, process_id=lambda: 7)
ONE_AFTER_THE_OTHER = CatalogSettings(parallel_requests=1)


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Iterator[ObjectStore]:
    with store_on_s3(request, "boto3-moto") as store:
        ObjectCatalog.init(store, FormatRecord(namespace="shop", stream_buckets=2))
        yield store


@pytest.fixture
def catalog(store: ObjectStore) -> Iterator[ObjectCatalog]:
    with ObjectCatalog.open(store, settings=ONE_AFTER_THE_OTHER, system=CLONED) as catalog:
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
    for object_id, (stream_id, batches) in zip(writer.prepare(len(STREAMS)), told(writer, payload).items(), strict=True):
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
    in_child(lambda: uploads(store, writer, b"clone"))
    writer.prepare(len(STREAMS))  # the next ids of both: objects of the clone are there
    with pytest.raises(SessionFenced, match="a clone of it continues the session"):
        uploads(store, writer, b"original")
    assert payloads(store) == [[b"before", b"clone"]] * 2


def test_a_clone_is_refused_whatever_it_has_prepared(store: ObjectStore, writer: NodeWriter) -> None:
    writer.prepare(2)
    upload(store, writer, b"original")
    in_child(lambda: upload(store, writer, b"clone"))  # knows all that was before it
    with pytest.raises(SessionFenced, match="a clone of it continues the session"):
        upload(store, writer, b"late")
    assert payloads(store) == [[b"before", b"original", b"clone"]] * 2


def test_who_was_refused_goes_on_with_a_session_of_its_own(
    store: ObjectStore, catalog: ObjectCatalog, writer: NodeWriter
) -> None:
    in_child(lambda: upload(store, writer, b"clone"))
    with pytest.raises(SessionFenced):
        upload(store, writer, b"original")
    with catalog.open_node(NODE) as again:
        again.open_streams(STREAMS)
        upload(store, again, b"later")
    assert payloads(store) == [[b"before", b"clone", b"later"]] * 2
