"""The store in memory: what it adds to the contract."""

from __future__ import annotations

import pytest

from loaders.errors import RangeInvalid, RequestRefused
from loaders.store import CreateOnly, IfMatch, MemoryStore


def test_modification_times_come_from_the_injected_clock() -> None:
    times = iter([10.5, 99.0])
    store = MemoryStore(clock=lambda: next(times))
    store.put("a", b"")
    upload = store.start_multipart("b")
    upload.complete([upload.upload_part(1, b"x")])
    assert [each.modified_seconds for each in store.list("")] == [10.5, 99.0]


def test_a_version_that_comes_back_looks_unchanged_as_on_s3() -> None:
    store = MemoryStore()
    first = store.put("k", b"A")
    store.put("k", b"B")
    store.put("k", b"A")
    store.put("k", b"C", condition=IfMatch(first))


def test_small_parts_are_allowed_unless_the_setting_forbids_them() -> None:
    upload = MemoryStore().start_multipart("k")
    upload.complete([upload.upload_part(number, b"x") for number in (1, 2)])
    strict = MemoryStore(part_size_bytes_min=10).start_multipart("k")
    with pytest.raises(RequestRefused, match="part 1 of 2 has 1 bytes"):
        strict.complete([strict.upload_part(number, b"x") for number in (1, 2)])


def test_open_uploads_are_counted_until_they_are_completed_or_aborted() -> None:
    store = MemoryStore()
    first, second = store.start_multipart("a"), store.start_multipart("a")
    assert store.open_uploads == 2
    first.complete([first.upload_part(1, b"x")])
    second.abort()
    assert store.open_uploads == 0
    with pytest.raises(RequestRefused, match="no such upload"):
        first.complete([first.upload_part(1, b"y")])
    assert store.get("a").body == b"x"


def test_an_upload_is_completed_with_parts_that_it_has() -> None:
    upload = MemoryStore().start_multipart("k")
    stale = upload.upload_part(1, b"x")
    upload.upload_part(1, b"y")
    with pytest.raises(RequestRefused, match="no such part"):
        upload.complete([stale])
    with pytest.raises(RequestRefused, match="at least one part"):
        upload.complete([])


def test_a_copied_range_lies_within_its_source() -> None:
    store = MemoryStore()
    store.put("source", b"0123456789")
    upload = store.start_multipart("k")
    with pytest.raises(RangeInvalid):
        upload.copy_part(1, "source", 5, 11)
    upload.complete([upload.copy_part(1, "source", 5, 10)])
    assert store.get("k").body == b"56789"


def test_keys_are_limited_as_on_s3() -> None:
    store = MemoryStore()
    store.put("ü" * 512, b"")
    with pytest.raises(RequestRefused, match="1025"):
        store.put("ü" * 512 + "x", b"", condition=CreateOnly())
    with pytest.raises(RequestRefused):
        store.start_multipart("")
    assert len(store) == 1
