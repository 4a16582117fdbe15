"""Opening object indexes: one request each where the size is known or guessed right, never twice at a time."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor

import pytest

from loaders.errors import CorruptObject
from loaders.format import FOOTER_SIZE_BYTES, ROW_SIZE_BYTES, tail_checksum
from loaders.layout import ObjectLayout
from loaders.object_index import REMEMBERED_GROUPS_MAX, TAIL_SIZE_BYTES_MAX, ObjectIndexLoader, OpenedObject, TailGuess
from loaders.object_ref import ObjectRef
from loaders.store import CountingStore, MemoryStore
from tests.builders import write_set_object

LAYOUT = ObjectLayout()


@pytest.fixture
def pool() -> Iterator[Executor]:
    with ThreadPoolExecutor(4) as executor:
        yield executor


def wide_object(streams: int) -> bytes:
    return write_set_object([(stream, 0, 1) for stream in range(streams)])


def store_of(*bodies: bytes) -> CountingStore:
    store = MemoryStore()
    for object_id, body in enumerate(bodies):
        store.put(LAYOUT.object_key(object_id), body)
    return CountingStore(store)


def open_one(loader: ObjectIndexLoader, ref: ObjectRef, group: int = 0) -> OpenedObject:
    return loader.open(group, ref).result.result(60)


def test_a_known_index_size_costs_one_request_of_just_these_bytes(pool: Executor) -> None:
    body = wide_object(1000)
    store = store_of(body)
    opened = open_one(ObjectIndexLoader(store, LAYOUT, pool), ObjectRef(0, len(body), 1000 * ROW_SIZE_BYTES))
    assert len(opened.ranges) == 1000
    assert (store.snapshot().gets, opened.requests) == (1, 1)
    assert opened.bytes_read == 1000 * ROW_SIZE_BYTES + FOOTER_SIZE_BYTES


def test_a_guess_that_falls_short_costs_one_more_request_for_just_the_missing_bytes(pool: Executor) -> None:
    body = wide_object(1000)
    store = store_of(body)
    opened = open_one(ObjectIndexLoader(store, LAYOUT, pool), ObjectRef(0, len(body)))
    assert len(opened.ranges) == 1000
    assert store.snapshot().gets == 2
    assert opened.bytes_read == 1000 * ROW_SIZE_BYTES + FOOTER_SIZE_BYTES


def test_an_object_of_unknown_size_is_opened_by_its_suffix(pool: Executor) -> None:
    body = wide_object(10)
    store = store_of(body)
    opened = open_one(ObjectIndexLoader(store, LAYOUT, pool), ObjectRef(0))
    index_size = 10 * ROW_SIZE_BYTES
    checksum = tail_checksum(body, object_size_bytes=len(body), index_size_bytes=index_size)
    assert opened.ref == ObjectRef(0, len(body), index_size, tail_checksum=checksum)
    assert store.snapshot().of("get_tail").requests == 1


def test_another_object_of_the_same_size_under_the_key_is_refused(pool: Executor) -> None:
    """The bytes of an object do not name its key: the metadata's checksum of the tail does."""
    mine, other = (write_set_object([(stream, 0, 1)]) for stream in (1, 2))
    assert len(mine) == len(other)
    checksum = tail_checksum(mine, object_size_bytes=len(mine), index_size_bytes=ROW_SIZE_BYTES)
    ref = ObjectRef(0, len(mine), ROW_SIZE_BYTES, tail_checksum=checksum)
    assert open_one(ObjectIndexLoader(store_of(mine), LAYOUT, pool), ref).ref == ref
    loader = ObjectIndexLoader(store_of(other), LAYOUT, pool)
    with pytest.raises(CorruptObject, match=f"committed under this key, with CRC-32 {checksum:#010x}, found those of"):
        open_one(loader, ref)
    assert open_one(loader, ObjectRef(0, len(mine))).ref.tail_checksum != checksum  # nobody knows: nothing is refused


def test_a_checksum_of_a_tail_costs_no_request_even_where_the_guess_falls_short(pool: Executor) -> None:
    body = wide_object(2000)
    checksum = tail_checksum(body, object_size_bytes=len(body), index_size_bytes=2000 * ROW_SIZE_BYTES)
    store = store_of(body)
    assert open_one(ObjectIndexLoader(store, LAYOUT, pool), ObjectRef(0, len(body))).ref.tail_checksum == checksum
    requests = store.snapshot().total.requests
    opened = open_one(ObjectIndexLoader(store, LAYOUT, pool), ObjectRef(0, len(body), tail_checksum=checksum))
    assert store.snapshot().total.requests - requests == opened.requests == 2


def test_a_node_of_like_objects_is_opened_by_one_request_each(pool: Executor) -> None:
    """99 of 100 cold opens in one GET, though the first guess is far too small for 2,000 streams."""
    body = wide_object(2000)
    store = store_of(*[body] * 200)
    loader = ObjectIndexLoader(store, LAYOUT, pool)
    for object_id in range(200):
        open_one(loader, ObjectRef(object_id, len(body)), group=4)
    assert store.snapshot().gets <= 202
    assert loader.stats().second_requests <= 2


def test_an_open_object_is_not_asked_for_again(pool: Executor) -> None:
    store = store_of(wide_object(3))
    loader = ObjectIndexLoader(store, LAYOUT, pool)
    first = open_one(loader, ObjectRef(0))
    assert open_one(loader, ObjectRef(0)) is first
    assert store.snapshot().gets == 1
    assert loader.stats().cached == 1


def test_the_cache_is_bounded_by_bytes(pool: Executor) -> None:
    store = store_of(*[wide_object(100)] * 20)
    loader = ObjectIndexLoader(store, LAYOUT, pool, cache_bytes_max=20_000)
    for object_id in range(20):
        open_one(loader, ObjectRef(object_id))
    stats = loader.cache_stats()
    assert 0 < stats.size_bytes <= stats.size_bytes_max == 20_000
    assert stats.entries < 20


def test_what_is_opened_is_told_before_anybody_gets_it(pool: Executor) -> None:
    told: list[tuple[int, int]] = []
    store = store_of(wide_object(3))
    loader = ObjectIndexLoader(
        store, LAYOUT, pool, on_opened=lambda group, opened: told.append((group, opened.ref.object_id))
    )
    open_one(loader, ObjectRef(0), group=4)
    assert told == [(4, 0)]


@pytest.mark.parametrize("claimed", [10, 47, 48, 100, 100_000])
def test_an_object_of_another_size_than_its_metadata_says_is_refused(pool: Executor, claimed: int) -> None:
    body = wide_object(3)
    assert claimed != len(body)
    loader = ObjectIndexLoader(store_of(body), LAYOUT, pool)
    with pytest.raises(CorruptObject, match="00000000/DEFAULT/0"):
        open_one(loader, ObjectRef(0, claimed))


def test_a_wrong_index_size_in_the_metadata_costs_a_request_and_no_more(pool: Executor) -> None:
    body = wide_object(100)
    for claimed in (0, 36, 50 * 36):
        store = store_of(body)
        opened = open_one(ObjectIndexLoader(store, LAYOUT, pool), ObjectRef(0, len(body), claimed))
        assert len(opened.ranges) == 100
        assert store.snapshot().gets == 2
    too_large = open_one(ObjectIndexLoader(store_of(body), LAYOUT, pool), ObjectRef(0, len(body), 10**9))
    assert too_large.requests == 1


def test_a_closed_pool_is_an_error_and_not_a_hang() -> None:
    with ThreadPoolExecutor(1) as pool:
        pass
    with pytest.raises(RuntimeError):
        open_one(ObjectIndexLoader(store_of(wide_object(3)), LAYOUT, pool), ObjectRef(0))


def test_a_guess_learns_and_forgets_and_has_a_limit() -> None:
    guess = TailGuess()
    first = guess.size_bytes(1, 1 << 30)
    guess.learn(1, 324_000)
    assert guess.size_bytes(1, 1 << 30) >= 324_000 + FOOTER_SIZE_BYTES > first
    assert guess.size_bytes(1, 1000) == 1000
    assert guess.size_bytes(1, None) >= 324_000
    guess.learn(1, 1 << 30)
    assert guess.size_bytes(1, 1 << 40) <= max(TAIL_SIZE_BYTES_MAX, 8192 + 36 * (1 << 20))
    for group in range(2, REMEMBERED_GROUPS_MAX + 2):
        guess.learn(group, 36)
    assert guess.size_bytes(1, 1 << 30) == first
