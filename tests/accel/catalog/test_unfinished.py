"""An upload in parts that its process left is found by its record, and aborted when it is old; no other one is."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import pytest

from accel.catalog import ObjectCatalog
from accel.catalog.collect import abort_unfinished, find_unfinished
from accel.testing import Crash, CrashStore, Fault, FaultStore
from loaders.errors import StoreUnavailable
from loaders.format import RecordBatch
from loaders.layout import UPLOADS_PREFIX, ObjectLayout, upload_key
from loaders.object_writer import ObjectWriter, start_upload
from loaders.store import CountingStore, MemoryStore, ObjectStore
from loaders.tables import FormatRecord
from tests.accel.lookup.cluster import system
from tests.accel.lookup.driving import Clock
from tests.world import START_SECONDS, Watched

Answer = TypeVar("Answer")

DAYS = 86_400
PART = 1000
LAYOUT = ObjectLayout(namespace="shop", catalog_id="c" * 32)
MARK = str(LAYOUT.mark(7, lambda: bytes(16)))


class Bucket:
    """A store with a clock, and a catalog in it."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.clock.seconds = START_SECONDS
        self.memory = MemoryStore(clock=lambda: self.clock.seconds)
        self.system = replace(system(self.clock), clock=lambda: self.clock.seconds)
        ObjectCatalog.init(self.memory, FormatRecord(namespace="shop"), system=self.system)

    def records(self) -> list[str]:
        return [info.key for info in self.memory.list(UPLOADS_PREFIX)]

    def gc(self, store: ObjectStore | None = None) -> tuple[int, int]:
        """The number of uploads that were found, and that failed."""
        with ObjectCatalog.open(store or self.memory, system=self.system) as catalog:
            found = find_unfinished(catalog.parts)
            return len(found), len(abort_unfinished(catalog.parts, found))


def write_large(store: ObjectStore) -> None:
    """An object of five parts."""
    nonces = iter(number.to_bytes(16, "big") for number in range(100))
    with ObjectWriter(store, LAYOUT, 7, part_size_bytes=PART, nonce=lambda: next(nonces)) as writer:
        writer.write(1, [RecordBatch(1, 1, 0, 1, bytes(5 * PART - 200))])


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


def test_an_upload_is_recorded_before_its_first_part_and_until_its_end() -> None:
    asked: list[str] = []
    store = Watched(MemoryStore(), lambda call: asked.append(f"{call.operation} {call.key.partition('/0')[0]}"))
    write_large(store)
    key = LAYOUT.object_key(7)
    first, last = asked.index(f"upload_part {key}"), asked.index(f"complete {key}")
    assert asked[:first] == [f"start_multipart {key}", "put accel/uploads"]
    assert asked[last:] == [f"complete {key}", "delete accel/uploads"]
    assert [info.key for info in store.list("")] == [key]


def test_an_object_of_one_part_is_not_recorded() -> None:
    store = CountingStore(MemoryStore())
    with ObjectWriter(store, LAYOUT, 7, nonce=lambda: bytes(16)) as writer:
        writer.write(1, [RecordBatch(1, 1, 0, 1, bytes(PART))])
    assert store.snapshot().total.requests == 1


def test_what_a_dead_process_left_is_aborted_when_it_is_old() -> None:
    whole = CrashStore(MemoryStore(), None)
    write_large(whole)
    assert whole.writes == 9, "create, record, five parts, complete, forget"
    left = 0
    for number in range(whole.writes):
        bucket = Bucket()
        with pytest.raises(Crash):
            write_large(CrashStore(bucket.memory, number))
        objects = [info.key for info in bucket.memory.list(LAYOUT.object_key(7))]
        assert bucket.gc() == (0, 0), "it may go on"
        was_open, was_recorded = bucket.memory.open_uploads, len(bucket.records())
        bucket.clock.seconds += 4 * DAYS
        assert bucket.gc() == (was_recorded, 0)
        assert bucket.records() == []
        assert bucket.memory.open_uploads == was_open - (was_recorded if was_open else 0)
        assert [info.key for info in bucket.memory.list(LAYOUT.object_key(7))] == objects
        left += was_open - bucket.memory.open_uploads
        assert bucket.memory.open_uploads == (1 if number == 1 else 0), "only an upload without a part stays"
    assert left == 6


def test_uploads_of_others_are_left_alone(bucket: Bucket) -> None:
    bucket.memory.start_multipart("another/key").upload_part(1, b"part")
    bucket.memory.start_multipart(LAYOUT.object_key(8)).upload_part(1, b"part")
    for odd in ("notes", "1/x", f"{9:020}/", f"{9:020}/a.b"):
        bucket.memory.put(f"{UPLOADS_PREFIX}{odd}", b"of somebody")
    records = bucket.records()
    bucket.clock.seconds += 4 * DAYS
    assert bucket.gc() == (0, 0)
    assert bucket.memory.open_uploads == 2
    assert bucket.records() == records


def test_an_upload_that_cannot_be_aborted_stays_recorded(bucket: Bucket) -> None:
    for _ in range(2):
        start_upload(bucket.memory, LAYOUT.object_key(7), MARK).upload_part(1, b"part")
    bucket.clock.seconds += 4 * DAYS
    faults = FaultStore(bucket.memory, operations={"abort"})
    faults.schedule(Fault.SLOW_DOWN)
    assert bucket.gc(faults) == (2, 1)
    assert (len(bucket.records()), bucket.memory.open_uploads) == (1, 1)
    assert bucket.gc() == (1, 0)
    assert (len(bucket.records()), bucket.memory.open_uploads) == (0, 0)


def test_an_upload_that_cannot_be_recorded_is_not_begun() -> None:
    memory = MemoryStore()
    faults = FaultStore(memory, operations={"put"})
    faults.schedule(Fault.SLOW_DOWN)
    with pytest.raises(StoreUnavailable):
        start_upload(faults, LAYOUT.object_key(7), MARK)
    assert memory.open_uploads == 0


def test_an_upload_whose_end_is_lost_is_aborted_without_harm(bucket: Bucket) -> None:
    faults = FaultStore(bucket.memory, operations={"delete"})
    faults.schedule(Fault.SLOW_DOWN)
    upload = start_upload(faults, LAYOUT.object_key(7), MARK)
    upload.complete([upload.upload_part(1, b"part")])
    assert bucket.records() == [upload_key(7, upload.upload_id)]
    bucket.clock.seconds += 4 * DAYS
    assert bucket.gc() == (1, 0)
    assert bucket.memory.get(LAYOUT.object_key(7)).body == b"part"
