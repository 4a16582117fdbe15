"""Every request is counted once, with its bytes, under its operation."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

import pytest

from loaders.errors import KeyMissing
from loaders.store import CountingStore, CreateOnly, Fetched, MemoryStore, OperationCount, StoreCounts


def test_requests_and_bytes_are_counted_by_operation() -> None:
    store = CountingStore(MemoryStore())
    etag = store.put("k", b"0123456789")
    store.get("k")
    store.get_range("k", 2, 5)
    store.get_tail("k", 4)
    store.get_if_changed("k", etag)
    store.get_if_changed("k", "another")
    store.delete("k")
    assert store.snapshot().by_operation == {
        "put": OperationCount(1, 0, 10, 0),
        "get": OperationCount(1, 0, 0, 10),
        "get_range": OperationCount(1, 0, 0, 3),
        "get_tail": OperationCount(1, 0, 0, 4),
        "get_if_changed": OperationCount(2, 0, 0, 10),
        "delete": OperationCount(1),
    }
    assert store.snapshot().gets == 5
    assert store.snapshot().total == OperationCount(7, 0, 10, 27)


def test_a_failure_is_a_request_too() -> None:
    store = CountingStore(MemoryStore())
    store.put("k", b"123", condition=CreateOnly())
    with pytest.raises(KeyMissing):
        store.get("missing")
    assert store.snapshot().of("get") == OperationCount(requests=1, failures=1)


def test_a_listing_counts_its_pages_as_they_are_fetched() -> None:
    store = CountingStore(MemoryStore())
    for number in range(2000):
        store.put(f"{number:04}", b"")
    store.reset()
    listing = store.list("")
    assert store.snapshot().total.requests == 0
    next(listing)
    assert store.snapshot().of("list").requests == 1
    list(listing)
    assert store.snapshot().of("list").requests == 2, "two full pages, and no empty third"


def test_a_delete_of_many_counts_a_request_a_thousand() -> None:
    store = CountingStore(MemoryStore())
    assert store.delete_many(str(number) for number in range(2001)) == []
    assert store.delete_many([]) == []
    assert store.snapshot().by_operation == {"delete_many": OperationCount(3)}


def test_a_multipart_upload_counts_each_of_its_requests() -> None:
    store = CountingStore(MemoryStore())
    store.put("source", b"source")
    store.reset()
    upload = store.start_multipart("k")
    upload.complete([upload.upload_part(1, b"12345"), upload.copy_part(2, "source", 0, 6)])
    store.start_multipart("k").abort()
    counts = store.snapshot()
    assert counts.of("upload_part") == OperationCount(1, 0, 5, 0)
    assert counts.of("copy_part") == OperationCount(1), "the bytes of a copy do not pass here"
    assert counts.of("start_multipart", "complete", "abort").requests == 4


def test_two_snapshots_subtract_and_reset_begins_anew() -> None:
    store = CountingStore(MemoryStore())
    store.put("a", b"12")
    before = store.snapshot()
    store.put("b", b"345")
    store.get("a")
    since = store.snapshot() - before
    assert since.by_operation == {"put": OperationCount(1, 0, 3, 0), "get": OperationCount(1, 0, 0, 2)}
    assert store.reset().of("put").requests == 2
    assert store.snapshot() == StoreCounts()


def test_no_request_is_lost_between_threads() -> None:
    store = CountingStore(MemoryStore())
    store.put("k", b"x")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(store.get, repeat("k", 4000)))
    assert store.snapshot().of("get") == OperationCount(4000, 0, 0, 4000)


class Asking(MemoryStore):
    """Looks at the store around it while a request is under way."""

    def __init__(self) -> None:
        super().__init__()
        self.now_seconds, self.seen_seconds = 0.0, -1.0
        self.outer = CountingStore(self, lambda: self.now_seconds)

    def get(self, key: str, *, size_bytes_max: int | None = None) -> Fetched:
        self.now_seconds += 3
        self.seen_seconds = self.outer.oldest_request_seconds()
        return super().get(key, size_bytes_max=size_bytes_max)


def test_a_request_under_way_is_told_with_the_time_that_it_has_taken() -> None:
    inner = Asking()
    store = inner.outer
    assert store.oldest_request_seconds() == 0
    with pytest.raises(KeyMissing):
        store.get("k")
    assert (inner.seen_seconds, store.oldest_request_seconds()) == (3, 0)
    assert CountingStore(inner).oldest_request_seconds() == 0
