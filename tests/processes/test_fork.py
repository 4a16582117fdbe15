"""A forked process reads on by itself, and touches no session of its parent; to spawned ones, S3 stores are sent."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from threading import Thread
from typing import Any, Self

import pytest

from accel import AsyncReadAccelerator, ReadAccelerator, StaticImages
from accel.catalog import NodeWriter, ObjectCatalog
from accel.errors import SessionFenced, WrongProcess
from accel.image_source import PolledImages
from accel.system import SYSTEM
from loaders.format import RecordBatch
from loaders.layout import ObjectLayout
from loaders.object_writer import ObjectWriter
from loaders.shared_loads import SharedChunks
from loaders.store import CountingStore, MemoryStore, ObjectStore
from loaders.tables import FormatRecord
from tests.accel.lookup.cluster import STREAM, accelerator, line_image, line_store
from tests.processes.children import Held, every_lock_held, in_child
from tests.servers.stores import S3_STORES, store_on_s3

NODE = 4
LAYOUT = ObjectLayout(namespace="shop")
STORES = ["memory", *(each for each in S3_STORES if "named" not in each)]


def catalog_of(store: ObjectStore, **options: Any) -> ObjectCatalog:
    """A new catalog."""
    ObjectCatalog.init(store, FormatRecord(namespace="shop", stream_buckets=2), **options)
    return ObjectCatalog.open(store, **options)


class Bucket:
    """A catalog with one session, and twelve objects of two streams."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.catalog = catalog_of(store)
        self.writer = self.catalog.open_node(NODE)
        self.writer.open_streams([1, 2])
        self.accelerator = ReadAccelerator(self.catalog.images(), store)
        for number in range(12):
            self.upload(f"{number}".encode())
        self.accelerator.refresh()

    def upload(self, payload: bytes, writer: NodeWriter | None = None) -> int:
        """Write and commit ten records of each stream; gives the object's id."""
        session = writer or self.writer
        [object_id] = session.prepare()
        with ObjectWriter(self.store, LAYOUT, object_id) as upload:
            for stream_id in (1, 2):
                upload.write(stream_id, [RecordBatch(stream_id, 1, session.end(stream_id) or 0, 10, payload)])
        session.commit_upload(upload.ref, upload.ranges)
        return object_id

    def payloads(self) -> list[bytes]:
        """What stands in the first stream."""
        return [each.payload for each in self.accelerator.read(1, 0)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.accelerator.close()
        self.catalog.close()


@pytest.fixture(params=STORES)
def bucket(request: pytest.FixtureRequest) -> Iterator[Bucket]:
    """A bucket in each store that keeps connections or locks."""
    in_memory = nullcontext(MemoryStore(clock=SYSTEM.clock))
    with (
        in_memory if request.param == "memory" else store_on_s3(request, request.param) as store,
        Bucket(store) as made,
    ):
        yield made


@pytest.fixture
def in_memory() -> Iterator[Bucket]:
    """A bucket in memory."""
    with Bucket(MemoryStore(clock=SYSTEM.clock)) as made:
        yield made


def test_an_acknowledged_object_is_not_overwritten_by_a_child(bucket: Bucket) -> None:
    with pytest.raises(WrongProcess, match="session of node 4"):
        in_child(lambda: bucket.upload(b"child"))
    bucket.upload(b"parent")
    bucket.accelerator.refresh()
    assert bucket.payloads() == [*(f"{each}".encode() for each in range(12)), b"parent"]


def test_everything_that_reads_goes_on_in_a_child_whatever_lock_was_held(bucket: Bucket) -> None:
    expected = bucket.payloads()
    ids = [each.object_id for each in bucket.accelerator.get_objects(2, 50, 120, limit=20).objects]
    before = bucket.catalog.refresh().streams[1].stream_id

    def read() -> tuple[object, ...]:
        child = bucket.accelerator
        found = [each.object_id for each in child.get_objects(2, 50, 120, limit=20).objects]
        child.warm()
        child.refresh()
        fetched = len(child.fetch(1, 0, 40, timeout_seconds=0).objects)
        read = bucket.payloads()
        streams = bucket.catalog.refresh().streams[1].stream_id
        child.close()
        bucket.catalog.close()
        return found, read, fetched, streams

    with every_lock_held(bucket.accelerator, bucket.catalog, bucket.store) as held:
        assert held > 5
        assert in_child(read) == (ids, expected, 4, before)
    assert bucket.payloads() == expected  # closing it there closed nothing here


def test_an_asynchronous_accelerator_goes_on_in_a_child(bucket: Bucket) -> None:
    async def read(shared: AsyncReadAccelerator) -> list[bytes]:
        return [each.payload async for each in shared.read(1, 0)]

    shared = AsyncReadAccelerator(bucket.catalog.images(), bucket.store)
    expected = asyncio.run(read(shared))
    with every_lock_held(shared, bucket.store):
        assert in_child(lambda: asyncio.run(read(shared))) == expected
    assert asyncio.run(read(shared)) == expected
    asyncio.run(shared.close())


SESSION_CALLS: dict[str, Callable[[NodeWriter], object]] = {
    "end": lambda writer: writer.end(1),
    "prepare": lambda writer: writer.prepare(),
    "commit_upload": lambda writer: writer.commit_upload(None),
    "open_streams": lambda writer: writer.open_streams([3]),
    "close_streams": lambda writer: writer.close_streams([1]),
    "trim": lambda writer: writer.trim({1: 10}),
    "checkpoint": lambda writer: writer.checkpoint(),
    "close": lambda writer: writer.close(),
}


@pytest.mark.parametrize("name", SESSION_CALLS)
def test_a_session_refuses_each_call_before_it_takes_a_lock(in_memory: Bucket, name: str) -> None:
    with every_lock_held(in_memory.writer, in_memory.catalog), pytest.raises(WrongProcess, match="session") as caught:
        in_child(lambda: SESSION_CALLS[name](in_memory.writer))
    assert not caught.value.retryable
    assert "open a session" in caught.value.advice
    assert in_memory.writer.end(1) == 120


def test_a_child_opens_a_session_of_its_own_and_fences_the_one_before(bucket: Bucket) -> None:
    def write() -> int:
        with bucket.catalog.open_node(NODE) as writer:
            return bucket.upload(b"child", writer)

    child = in_child(write)
    if isinstance(bucket.store, MemoryStore):
        assert child not in bucket.writer.prepare(100)  # its bucket is a copy
        return
    with pytest.raises(SessionFenced):
        bucket.upload(b"parent")
    bucket.accelerator.refresh()
    assert bucket.payloads()[-1] == b"child"


def test_a_child_gives_out_no_id_that_its_parent_may_give_out(in_memory: Bucket) -> None:
    with every_lock_held(in_memory.catalog):
        child = in_child(lambda: in_memory.catalog.parts.ids.take(100))
    assert isinstance(child, list)
    assert set(child).isdisjoint(in_memory.catalog.parts.ids.take(20))


def test_a_child_does_not_wait_for_a_load_of_its_parent() -> None:
    store = Held(line_store(8), is_holding=False)
    image = line_image(list(range(8)))
    with ReadAccelerator(StaticImages(image), store) as shared:
        chunks = SharedChunks(store)
        key = ObjectLayout().object_key(0)
        first_bytes = bytes(store.get_range(key, 0, 20).body)
        store.is_holding = True
        found: list[object] = []

        def look() -> list[int]:
            return [each.object_id for each in shared.get_objects(STREAM, 30, 50).objects]

        thread = Thread(target=lambda: found.append(look()))
        other = Thread(target=lambda: found.append(bytes(chunks.get_range(key, 0, 20))))
        thread.start()
        other.start()
        store.begun.wait()
        try:
            assert in_child(look) == [3, 4]
            assert in_child(lambda: bytes(chunks.get_range(key, 0, 20))) == first_bytes
        finally:
            store.may_go_on.set()
            thread.join()
            other.join()
        assert [3, 4] in found


def test_a_read_that_was_begun_belongs_to_the_process_that_began_it() -> None:
    with accelerator(line_store(3), line_image([0, 1, 2])) as shared:
        reading = shared.read(STREAM, 0, 30)
        first = next(reading)
        with pytest.raises(WrongProcess):
            in_child(lambda: next(reading))
        assert [first, *reading][-1].end_offset == 30


def test_sources_of_images_go_on_in_a_child() -> None:
    pushed = StaticImages(line_image([0]))
    polled = PolledImages(pushed.current, timer=SYSTEM.timer, sleep=SYSTEM.sleep)

    def follow() -> tuple[object, ...]:
        newer = line_image([0, 1], version=1)
        was_newer = pushed.push(newer)
        return was_newer, polled.wait_newer(0, 0) is newer, polled.current() is newer, pushed.wait_newer(1, 0)

    with every_lock_held(pushed, polled):
        assert in_child(follow) == (True, True, True, None)
    assert pushed.current().version == 0


def test_an_upload_that_was_begun_belongs_to_the_process_that_began_it() -> None:
    store = MemoryStore()
    batch = RecordBatch(1, 1, 0, 10, b"x" * 100)
    with ObjectWriter(store, LAYOUT, 0, part_size_bytes=50) as upload:
        upload.write(1, [batch])

        def abort() -> int:
            with pytest.raises(WrongProcess), upload:
                upload.write(1, [RecordBatch(1, 1, 10, 10, b"x" * 100)])
            return store.open_uploads

        assert in_child(abort) == 1  # it was not ended there
    assert len(store) == 1
    assert store.open_uploads == 0


@pytest.mark.parametrize("name", [each for each in STORES if each != "memory"])
def test_a_store_on_s3_is_sent_and_the_catalog_opened_there(request: pytest.FixtureRequest, name: str) -> None:
    with store_on_s3(request, name) as store, catalog_of(store) as catalog, catalog.open_node(NODE) as writer:
        writer.open_streams([1, 2])
        sent = pickle.loads(pickle.dumps(CountingStore(store)))  # noqa: S301 - made here
        with ObjectCatalog.open(sent) as other:
            assert sorted(other.refresh().streams) == [1, 2]
            assert set(writer.prepare()).isdisjoint(other.open_node(NODE).prepare())


def test_sessions_and_accelerators_refuse_to_be_copied() -> None:
    store = MemoryStore()
    with (
        catalog_of(store) as catalog,
        catalog.open_node(NODE) as writer,
        ReadAccelerator(StaticImages(line_image([])), store) as accelerator,
    ):
        for each in (store, catalog, writer, accelerator, catalog.images(), accelerator.read(7, 0)):
            with pytest.raises(WrongProcess, match="copied") as caught:
                pickle.dumps(each)
            assert "send the store" in caught.value.advice
    error = pickle.loads(pickle.dumps(WrongProcess("expected this")))  # noqa: S301 - made here
    assert (type(error), str(error)) == (WrongProcess, "expected this")


def test_a_session_goes_by_the_process_id_that_it_is_given() -> None:
    now = [100]
    with catalog_of(MemoryStore(), system=replace(SYSTEM, process_id=lambda: now[0])) as catalog:
        writer = catalog.open_node(4)
        now[0] = 101
        with pytest.raises(WrongProcess, match="opened it, 100, found process 101"):
            writer.prepare()
        assert catalog.refresh().version == catalog.image().version
        with catalog.open_node(5) as other:
            other.prepare()
        now[0] = 100
        assert writer.prepare()
