"""Small reads, one after the other: a block is fetched once for all of them, and kept no longer than allowed."""

from __future__ import annotations

import gc
import random
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel import Ending, ReadAccelerator, StaticImages
from accel.errors import CorruptObject
from accel.image import VersionVector
from loaders.format import ObjectEncoder, RecordBatch
from loaders.layout import ObjectLayout
from loaders.shared_loads import LastChunks, SharedChunks
from loaders.store import CountingStore, MemoryStore
from loaders.store.decorated import Answer, DecoratedStore, StoreCall
from tests.accel.lookup.cluster import BOTH_DRIVERS, STREAM, accelerator, line_image, settled
from tests.accel.lookup.driving import Clock
from tests.examples import examples

LAYOUT = ObjectLayout()


def object_of(blocks: list[list[int]], start: int = 0, fill: bytes = b"x") -> bytes:
    """An object with blocks of the stream, each with batches of one record and of so many bytes."""
    encoder, parts = ObjectEncoder(), []
    for sizes in blocks:
        held = [RecordBatch(STREAM, 1, start + at, 1, fill * size) for at, size in enumerate(sizes)]
        parts.append(encoder.write(STREAM, held))
        start += len(sizes)
    return b"".join([*parts, encoder.finish()])


def store_of(bodies: list[bytes]) -> CountingStore:
    store = MemoryStore()
    for object_id, body in enumerate(bodies):
        store.put(LAYOUT.object_key(object_id), body)
    return CountingStore(store)


def polled(one: ReadAccelerator, max_bytes: int | random.Random, end: int = -1) -> list[RecordBatch]:
    """All batches, by reads of at most so many bytes."""
    found: list[RecordBatch] = []
    at = 0
    while True:
        budget = max_bytes if isinstance(max_bytes, int) else max_bytes.choice([1, 50, 150, 400, 3000])
        reading = one.read(STREAM, at, end, max_bytes=budget)
        found += reading
        at = reading.next_offset
        if reading.ending is not Ending.LIMIT:
            return found


@pytest.mark.parametrize("max_bytes", [1, 250, 4096])
def test_reads_of_any_size_fetch_each_block_once(max_bytes: int) -> None:
    bodies = [object_of([[100] * 30] * 4, 120 * number) for number in range(3)]
    store = store_of(bodies)
    with settled(store, line_image([0, 1, 2], end=-1)) as one:
        one.get_objects(STREAM, 0, limit=9)
        store.reset()
        assert len(polled(one, max_bytes)) == 360
        assert store.reset().total.received_bytes <= sum(map(len, bodies))
        chunks = one.stats().caches["chunks"]
        assert 0 < chunks.size_bytes <= sum(map(len, bodies))
        assert chunks.hits > 0


blocks = st.lists(st.lists(st.integers(0, 200), min_size=1, max_size=12), min_size=1, max_size=6)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(blocks, min_size=1, max_size=3), st.integers(0, 2**32), st.sampled_from([0, 300, 32 << 20]))
def test_whatever_is_kept_reads_give_the_same_batches(objects: list[list[list[int]]], seed: int, most: int) -> None:
    rng, start, bodies = random.Random(seed), 0, []
    for each in objects:
        bodies.append(object_of(each, start))
        start += sum(map(len, each))
    store, clock = store_of(bodies), Clock()
    image = line_image(list(range(len(bodies))), end=-1)
    span = rng.choice([1, 500, 8 << 20])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("accel.lookup.engine.CHUNKS_SIZE_BYTES_MAX", most)
        patch.setattr("accel.lookup.reading.SPAN_SIZE_BYTES_MAX", span)
        with accelerator(store, image, clock) as one:
            expected = list(one.read(STREAM, 0))
            assert [batch.base_offset for batch in expected] == list(range(start))
            for _ in range(3):
                assert polled(one, rng, rng.choice([-1, start])) == expected
                clock.seconds += rng.choice([0, 6, 11])
            with one.read(STREAM, rng.randrange(start)) as left:
                next(left)
            at = rng.randrange(start)
            few = list(one.read(STREAM, at, max_bytes=100))
            assert few == expected[at : at + len(few)]


def polls(clock_step: float, **options: Any) -> int:
    """The requests of ten reads of a batch each, with so many seconds between two."""
    store, clock = store_of([object_of([[100] * 30])]), Clock()
    with accelerator(store, line_image([0], end=-1), clock, **options) as one:
        one.get_objects(STREAM, 0)
        store.reset()
        for at in range(10):
            assert [batch.base_offset for batch in one.read(STREAM, at, max_bytes=1)] == [at]
            clock.seconds += clock_step
        return store.reset().gets


@BOTH_DRIVERS
def test_a_block_is_kept_for_its_time(driver: Any) -> None:
    assert polls(0.0, driver=driver) == 1
    assert polls(2.0, driver=driver) == 2
    assert polls(10.0) == 10


def test_a_bypass_keeps_nothing() -> None:
    assert polls(0.0, bypass=True) == 10


def test_the_bound_of_bytes_holds_and_evictions_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accel.lookup.engine.CHUNKS_SIZE_BYTES_MAX", 3000)
    store = store_of([object_of([[100] * 10] * 20)])
    with settled(store, line_image([0], end=-1)) as one:
        assert len(polled(one, 1)) == 200
        chunks = one.stats().caches["chunks"]
    assert 0 < chunks.size_bytes <= chunks.size_bytes_max == 3000
    assert (chunks.entries, chunks.evicted) == (2, 18)
    assert chunks.evicted_bytes == 9 * chunks.size_bytes


def test_a_damaged_block_is_not_kept() -> None:
    body = object_of([[100] * 10])
    store = store_of([bytes([body[0] ^ 1]) + body[1:]])
    with settled(store, line_image([0], end=-1)) as one:
        for _ in range(2):
            with pytest.raises(CorruptObject):
                list(one.read(STREAM, 3, max_bytes=1))
        store.put(LAYOUT.object_key(0), body)
        assert len(list(one.read(STREAM, 3, max_bytes=1))) == 1
        assert one.stats().caches["chunks"].entries == 1


def test_blocks_of_an_object_that_is_not_listed_any_more_are_not_served() -> None:
    store = store_of([object_of([[100] * 10], fill=fill) for fill in (b"x", b"y")])
    source = StaticImages(line_image([0], end=-1))
    with settled(store, source) as one:
        assert next(one.read(STREAM, 3, max_bytes=1)).payload == b"x" * 100
        source.push(line_image([1], 1, end=-1))
        one.refresh()
        assert next(one.read(STREAM, 3, max_bytes=1)).payload == b"y" * 100
        source.push(line_image([], 2, end=-1))
        one.refresh()
        assert list(one.read(STREAM, 3, max_bytes=1)) == []


def test_blocks_of_a_restored_catalog_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a restored catalog an id may be of another object; these two even have the same sizes."""
    monkeypatch.setattr("accel.lookup.engine.BLOCK_INDEXES_SIZE_BYTES_MAX", 1)
    store = store_of([object_of([[100] * 10])])
    source = StaticImages(replace(line_image([0], end=-1), version=VersionVector({"a": 1})))
    with settled(store, source) as one:
        assert next(one.read(STREAM, 3, max_bytes=1)).payload == b"x" * 100
        store.put(LAYOUT.object_key(0), object_of([[100] * 10], fill=b"y"))
        source.push(replace(line_image([0], end=-1), version=VersionVector({"a": 1}, "restored")))
        one.refresh()
        assert next(one.read(STREAM, 3, max_bytes=1)).payload == b"y" * 100


def test_an_abandoned_read_keeps_what_it_gave_out_last() -> None:
    store = store_of([object_of([[100] * 30])])
    with settled(store, line_image([0], end=-1)) as one:
        for at in range(10):
            reading = one.read(STREAM, at)
            assert next(reading).base_offset == at
            reading.close()
            gc.collect()
        assert store.reset().gets == 2


def test_reads_with_ranges_of_their_own_do_not_use_the_last_chunks() -> None:
    store = store_of([object_of([[100] * 30])])
    with settled(store, line_image([0], end=-1)) as one:
        list(one.read(STREAM, 3, max_bytes=1, ranges=SharedChunks(store)))
        assert one.stats().caches["chunks"].entries == 0


class Held(DecoratedStore):
    """Reads of blocks wait until they are let go; `begun` counts them."""

    def __init__(self, store: MemoryStore | CountingStore) -> None:
        super().__init__(store)
        self.go = threading.Event()
        self.begun = threading.Semaphore(0)
        self.count = 0
        self.holds = False

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:  # noqa: ARG002 - as of the class
        if self.holds:
            self.count += 1
            self.begun.release()
            assert self.go.wait(60)
        return send()


def test_reads_of_one_block_at_the_same_time_share_its_request() -> None:
    store = Held(store_of([object_of([[100] * 30])]))
    with accelerator(store, line_image([0], end=-1)) as one:
        one.get_objects(STREAM, 0)
        store.holds = True
        first, second = (one.read(STREAM, offset, max_bytes=1) for offset in (3, 5))
        assert first._advance() is not None  # it waits for the block, and has announced that others get it
        assert store.begun.acquire(timeout=60)
        assert second._advance() is not None  # it waits for the same block
        store.go.set()
        assert [batch.base_offset for batch in (*first, *second)] == [3, 5]
    assert store.count == 1


def test_a_caller_that_must_not_wait_never_blocks_within_a_call_of_the_cache() -> None:
    calls: list[str] = []

    def timer() -> float:
        calls.append("timer")  # the garbage collector may run here, and close a read
        if len(calls) < 9:
            chunks.keep("b", b"b", waits=False)
        return 0.0

    chunks = LastChunks(100, 10.0, timer)
    chunks.keep("a", b"a")
    assert chunks.find("a") == b"a"
    assert chunks.find("b") is None
    assert calls


def test_a_block_whose_rest_is_too_short_after_all_is_followed_by_the_next_one() -> None:
    """The first batches of the block are long: its rest seems to be enough, and is not."""
    store = store_of([object_of([[1000, 1000, 10, 10], [1000] * 4]), object_of([[1000] * 4], 8)])
    with settled(store, line_image([0, 1], end=-1)) as one:
        assert [batch.base_offset for batch in one.read(STREAM, 2, max_bytes=900)] == [2, 3, 4]
        assert [batch.base_offset for batch in one.read(STREAM, 2, max_bytes=6000)] == list(range(2, 10))
