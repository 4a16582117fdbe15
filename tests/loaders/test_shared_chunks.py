"""Shared chunks: the bytes that were asked for, from few requests, in bounded memory, and only where it is worth it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Event

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loaders.errors import KeyMissing, RangeInvalid, StoreUnavailable
from loaders.shared_loads import OBJECTS_COUNTED_MAX, TRIED_EACH, SharedChunks
from loaders.store import CountingStore, Fetched, MemoryStore
from tests.examples import examples

SIZE = 100


def store_of(objects: int, size: int = SIZE) -> CountingStore:
    memory = MemoryStore()
    for number in range(objects):
        memory.put(str(number), bytes((number + at) % 256 for at in range(size)))
    return CountingStore(memory)


def requests(store: CountingStore) -> int:
    return store.snapshot().total.requests


@settings(max_examples=examples(200), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 40), st.integers(0, 200), st.floats(0, 1))
def test_ranges_are_those_of_the_object(random: Random, chunk: int, kept: int, least: float) -> None:
    store = store_of(3)
    chunks = SharedChunks(store, chunk_bytes=chunk, size_bytes_max=kept, used_least=least)
    for _ in range(60):
        key, start = str(random.randrange(3)), random.randrange(SIZE)
        end = random.randint(start + 1, SIZE + 20)
        before, cached = requests(store), chunks.cached(key, start, end)
        assert requests(store) == before
        assert cached is None or bytes(cached) == store.get_range(key, start, end).body
        assert bytes(chunks.get_range(key, start, end)) == store.get_range(key, start, end).body


@settings(max_examples=examples(100), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 40), st.integers(0, 200), st.integers(0, 200))
def test_what_was_announced_is_what_the_object_has(random: Random, chunk: int, kept: int, ahead: int) -> None:
    store = store_of(3)
    chunks = SharedChunks(store, chunk_bytes=chunk, size_bytes_max=kept, ahead_bytes_max=ahead)
    with ThreadPoolExecutor(2) as pool:
        for _ in range(20):
            key, start = str(random.randrange(3)), random.randrange(SIZE)
            end = random.randint(start + 1, SIZE + 20)
            if random.random() < 0.5:
                chunks.announce(key, start, end, pool)
            else:
                assert bytes(chunks.begin(key, start, end, pool).result(10)) == store.get_range(key, start, end).body
            cached = chunks.cached(key, start, end)
            assert cached is None or bytes(cached) == store.get_range(key, start, end).body


def test_what_is_announced_is_on_its_way_before_it_is_asked_for_and_costs_one_request() -> None:
    store = Gated()
    store.put("0", bytes(range(SIZE)))
    chunks = SharedChunks(store, chunk_bytes=SIZE)
    with ThreadPoolExecutor(4) as pool:
        chunks.announce("0", 0, SIZE, pool)
        assert store.asked.wait(10)
        asked = [chunks.begin("0", at, at + 10, pool) for at in range(0, SIZE, 10)]
        store.go.set()
        assert b"".join(bytes(each.result(10)) for each in asked) == bytes(range(SIZE))
    assert store.count == 1


def test_what_is_announced_is_bounded_whatever_is_said() -> None:
    store = Gated()
    store.put("0", bytes(SIZE))
    store.put("1", bytes(SIZE))
    chunks = SharedChunks(store, chunk_bytes=16, size_bytes_max=64, ahead_bytes_max=32)
    with ThreadPoolExecutor(16) as pool:
        chunks.announce("0", 0, 1 << 60, pool)  # as a damaged index may say
        for at in range(0, SIZE, 16):
            chunks.announce("0", at, at + 16, pool)
            chunks.announce("1", at, at + 16, pool)
        store.go.set()
    assert store.count == 2
    assert chunks.stats().fetched_bytes == 32
    assert len(chunks.get_range("1", 32, 48)) == 16  # whoever asks gets it all the same


def test_what_was_announced_and_asked_for_makes_room_for_more() -> None:
    store = store_of(1)
    chunks = SharedChunks(store, chunk_bytes=16, size_bytes_max=64, ahead_bytes_max=16)
    with ThreadPoolExecutor(1) as pool:
        for at in range(0, 96, 16):
            chunks.announce("0", at, at + 16, pool)
            pool.submit(int).result(10)
            before = requests(store)
            assert len(chunks.get_range("0", at, at + 16)) == 16
            assert requests(store) == before


def test_an_announcement_that_failed_is_asked_for_again() -> None:
    store = store_of(1)
    chunks = SharedChunks(store, chunk_bytes=16, size_bytes_max=64, ahead_bytes_max=16)
    with ThreadPoolExecutor(1) as pool:
        chunks.announce("none", 0, 16, pool)
        pool.submit(int).result(10)
        chunks.announce("0", 0, 16, pool)  # there is room: what could not be fetched counts no more
    assert requests(store) == 2
    assert chunks.cached("0", 0, 16) is not None
    with pytest.raises(KeyMissing):
        chunks.get_range("none", 0, 16)


def test_long_ranges_fetch_no_more_than_their_pages() -> None:
    store = store_of(1, size=640)
    chunks = SharedChunks(store, chunk_bytes=160)
    assert len(chunks.get_range("0", 90, 330)) == 240
    assert chunks.stats().fetched_bytes == 240


class Gated(MemoryStore):
    """Answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.go = Event(), Event()
        self.count = 0

    def get_range(self, key: str, start: int, end: int) -> Fetched:
        self.count += 1
        self.asked.set()
        self.go.wait(10)
        return super().get_range(key, start, end)


def test_an_error_goes_to_who_asked_and_is_not_kept() -> None:
    store = store_of(1)
    chunks = SharedChunks(store, chunk_bytes=50)
    with pytest.raises(KeyMissing):
        chunks.get_range("none", 0, 10)
    with pytest.raises(RangeInvalid):
        chunks.get_range("0", 150, 160)

    class Broken(MemoryStore):
        failures = 1

        def get_range(self, key: str, start: int, end: int) -> Fetched:
            if self.failures:
                self.failures -= 1
                raise StoreUnavailable("get", key, "throttled")
            return super().get_range(key, start, end)

    broken = Broken()
    broken.put("0", bytes(SIZE))
    again = SharedChunks(broken, chunk_bytes=50)
    with pytest.raises(StoreUnavailable):
        again.get_range("0", 0, 10)
    assert not broken.failures
    assert len(again.get_range("0", 0, 10)) == 10


def test_what_is_kept_is_bounded() -> None:
    store = store_of(10)
    chunks = SharedChunks(store, chunk_bytes=48, size_bytes_max=96)
    for number in range(10):
        chunks.get_range(str(number), 0, 48)
    before = requests(store)
    chunks.get_range("9", 0, 10)
    chunks.get_range("8", 0, 10)
    assert requests(store) == before
    chunks.get_range("7", 0, 10)
    assert requests(store) == before + 1


def test_where_little_is_used_ranges_are_fetched_as_asked_for_and_chunks_are_tried_again() -> None:
    count = 6 * OBJECTS_COUNTED_MAX
    store = store_of(count)
    chunks = SharedChunks(store, chunk_bytes=48)
    for number in range(count):
        chunks.get_range(str(number), 0, 5)
    found = chunks.stats()
    assert found.is_exact
    wasteful = OBJECTS_COUNTED_MAX + 3 + count // TRIED_EACH
    assert found.fetched_bytes <= wasteful * 48 + (count - wasteful) * 5
    more = 40 * TRIED_EACH
    for number in range(count, count + more):
        store.put(str(number), bytes(SIZE))
        for at in range(0, SIZE, 10):
            chunks.get_range(str(number), at, at + 10)
    assert not chunks.stats().is_exact


def test_bounds_that_make_no_sense_are_refused() -> None:
    for wrong in ({"chunk_bytes": -1}, {"size_bytes_max": -1}, {"ahead_bytes_max": -1}, {"used_least": 1.5}):
        with pytest.raises(ValueError, match="expected"):
            SharedChunks(MemoryStore(), **wrong)
