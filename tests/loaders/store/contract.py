"""What every store promises, as tests: a class that runs on the fixture `store`."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product, repeat
from threading import Barrier

import pytest

from accel.system import SYSTEM
from loaders.errors import (
    CorruptObject,
    KeyMissing,
    PreconditionFailed,
    RangeInvalid,
    RequestRefused,
    StoreError,
    WriteConflict,
)
from loaders.store import CountingStore, CreateOnly, Fetched, IfMatch, ObjectStore, PrefixedStore, S3Store
from loaders.store.base import DatedStore
from loaders.store.clouds import is_plain
from tests.examples import examples

BODY = bytes(range(100))
MARK = f"{'0a' * 16}.42.{'f9' * 16}"
PART = b"p" * (5 * 1024 * 1024)
ODD_KEYS = [
    "a b",
    "a+b",
    "a%41b",
    "100%",
    "ü/日本語",
    "😀",
    "a//b",
    "//",
    "/leading",
    "trailing/",
    "dots/./and/../more",
    "a?b=c&d#e",
    "a\\b'c\"d",
    "~!@$^*()_-=;:,.<>[]{}|",
    "tab\there",
    "no-break\u00a0space",
]


def etag_of(body: bytes) -> str:
    return hashlib.md5(body, usedforsecurity=False).hexdigest()


class StoreContract:
    """Inherited by a test class; each test gets an empty store.

    Attributes:
        etags_are_hashes: whether an ETag is the MD5 of the bytes, as on S3.
        takes_odd_keys: whether keys may have empty parts, `.`, `..` and characters that cannot be printed.
        refused_characters: that no key may have.
        order: the encoding whose bytes order a listing.
        can_copy_parts: whether parts are copied inside the store.
        pages_are_whole: whether a page of a listing has as many keys as were asked for.
        clock_key: what is written to find out the store's time; empty = nothing.
    """

    etags_are_hashes = True
    takes_odd_keys = True
    refused_characters = ""
    order = "utf-8"
    can_copy_parts = True
    pages_are_whole = True
    clock_key = ""

    def _taken(self, *keys: str) -> list[str]:
        known = [key for key in keys if self.takes_odd_keys or is_plain(key)]
        return [key for key in known if not set(key) & set(self.refused_characters)]

    # Its time

    def test_a_store_reports_its_time_or_none(self, store: ObjectStore) -> None:
        asked = store if isinstance(store, DatedStore) else CountingStore(store)
        before = math.floor(SYSTEM.clock())
        date = asked.date_seconds()
        assert (date is None) == (not self._is_dated(store))
        assert date is None or before <= date <= SYSTEM.clock() + 1
        assert [each.key for each in store.list("")] == ([self.clock_key] if self.clock_key else [])

    def test_the_time_of_a_part_of_a_store_is_written_in_that_part_or_not_at_all(self, store: ObjectStore) -> None:
        part = PrefixedStore(CountingStore(PrefixedStore(store, "a/")), "b/")
        assert part.date_seconds(None) is None or not self.clock_key
        assert [*store.list("")] == []
        assert (part.date_seconds() is None) == (not self._is_dated(store))
        assert [each.key for each in store.list("")] == ([f"a/b/{self.clock_key}"] if self.clock_key else [])

    def _is_dated(self, store: ObjectStore) -> bool:
        return bool(self.clock_key) or isinstance(store, S3Store)

    # Reading

    def test_what_is_put_is_got(self, store: ObjectStore) -> None:
        for body in (BODY, b"", b"\x00" * 300_000):
            etag = store.put("k", body)
            found = store.get("k")
            assert (found.body, found.start, found.object_size_bytes, found.etag) == (body, 0, len(body), etag)
            assert type(found.body) is bytes

    def test_an_etag_has_no_quotes_and_is_the_md5_of_the_bytes(self, store: ObjectStore) -> None:
        etag = store.put("k", BODY)
        assert etag == etag_of(BODY) if self.etags_are_hashes else etag.strip('"') == etag != ""

    def test_any_bytes_can_be_put(self, store: ObjectStore) -> None:
        for body in (bytearray(BODY), memoryview(BODY)):
            store.put("k", body)
            assert store.get("k").body == BODY

    def test_a_range_is_half_open_and_clamped_at_the_end(self, store: ObjectStore) -> None:
        etag = store.put("k", BODY)
        for start, end in [(0, 10), (0, 1), (99, 100), (90, 1000), (0, 10**12)]:
            found = store.get_range("k", start, end)
            assert found.body == BODY[start : min(end, 100)]
            assert (found.start, found.object_size_bytes, found.etag) == (start, len(BODY), etag)

    def test_a_range_that_starts_past_the_end_is_invalid(self, store: ObjectStore) -> None:
        for size, starts in {100: (100, 101, 10**9), 0: (0, 5)}.items():
            store.put("k", BODY[:size])
            for start in starts:
                with pytest.raises(RangeInvalid):
                    store.get_range("k", start, start + 10)

    def test_a_range_that_makes_no_sense_is_a_mistake_of_the_caller(self, store: ObjectStore) -> None:
        for start, end in [(-1, 5), (5, 5), (6, 5)]:
            with pytest.raises(ValueError, match="range"):
                store.get_range("k", start, end)

    def test_a_tail_longer_than_the_object_is_the_object(self, store: ObjectStore) -> None:
        etag = store.put("k", BODY)
        for length in (1, 10, 100, 101, 10**9):
            found = store.get_tail("k", length)
            assert found.body == BODY[-length:]
            assert (found.start, found.object_size_bytes, found.etag) == (max(0, 100 - length), 100, etag)

    def test_the_tail_of_an_empty_object_is_empty(self, store: ObjectStore) -> None:
        etag = store.put("k", b"")
        found = store.get_tail("k", 10)
        assert (found.body, found.start, found.object_size_bytes, found.etag) == (b"", 0, 0, etag)

    def test_a_tail_has_at_least_one_byte(self, store: ObjectStore) -> None:
        for length in (0, -1):
            with pytest.raises(ValueError, match="tail"):
                store.get_tail("k", length)

    def test_an_object_longer_than_its_key_may_hold_is_refused_and_named(self, store: ObjectStore) -> None:
        for key in self._taken("k", "/odd//key"):
            etag = store.put(key, BODY)
            reads: list[Callable[..., Fetched | None]]
            reads = [partial(store.get, key), partial(store.get_if_changed, key, "another")]
            for read in reads:
                for most in (100, 101, 10**12):
                    found = read(size_bytes_max=most)
                    assert found is not None
                    assert (found.body, found.etag) == (BODY, etag)
                for most in (99, 1, 0):
                    with pytest.raises(CorruptObject, match=f"100 bytes.*at most {most} bytes, found 100") as caught:
                        read(size_bytes_max=most)
                    assert caught.value.key.endswith(key)
            assert store.get_if_changed(key, etag, size_bytes_max=0) is None, "nothing was to be read"
            store.put(key, b"")
            assert store.get(key, size_bytes_max=0).body == b""

    def test_what_has_not_changed_is_not_sent(self, store: ObjectStore) -> None:
        etag = store.put("k", BODY)
        assert store.get_if_changed("k", etag) is None
        store.put("k", b"new")
        found = store.get_if_changed("k", etag)
        assert found is not None
        assert (found.body, found.object_size_bytes) == (b"new", 3)
        assert store.get_if_changed("k", found.etag) is None

    def test_a_missing_key_is_named_whatever_is_asked_of_it(self, store: ObjectStore) -> None:
        asks: dict[str, Callable[[str], object]] = {
            "get": store.get,
            "get_range": lambda key: store.get_range(key, 0, 1),
            "get_tail": lambda key: store.get_tail(key, 1),
            "get_if_changed": lambda key: store.get_if_changed(key, "etag"),
        }
        for key in self._taken("k", "a/b", "/odd//key"):
            for operation, ask in asks.items():
                with pytest.raises(KeyMissing, match=operation) as caught:
                    ask(key)
                assert caught.value.key.endswith(key)

    def test_an_odd_key_is_a_key_like_any_other(self, store: ObjectStore) -> None:
        for key in ODD_KEYS:
            if not self._taken(key):
                with pytest.raises(RequestRefused):
                    store.put(key, BODY)
                with pytest.raises(RequestRefused):
                    store.get(key)
                continue
            etag = store.put(key, BODY, condition=CreateOnly())
            with pytest.raises(PreconditionFailed):
                store.put(key, b"", condition=CreateOnly())
            assert store.get(key).body == BODY
            assert store.get_range(key, 1, 3).body == BODY[1:3]
            assert store.get_tail(key, 3).body == BODY[-3:]
            assert store.get_if_changed(key, etag) is None
            assert [found.key for found in store.list("")] == [key]
            assert [found.key for found in store.list(key)] == [key]
            assert list(store.list("", start_after=key)) == []
            store.put(key, b"", condition=IfMatch(etag))
            store.delete(key)
            assert list(store.list("")) == []

    def test_the_empty_key_is_refused(self, store: ObjectStore) -> None:
        if isinstance(store, PrefixedStore):
            return  # below a prefix it is a key like any other
        with pytest.raises(RequestRefused):
            store.put("", BODY)

    # Writing

    def test_create_only_writes_once(self, store: ObjectStore) -> None:
        etag = store.put("k", BODY, condition=CreateOnly())
        with pytest.raises(PreconditionFailed):
            store.put("k", b"new", condition=CreateOnly())
        assert store.get("k").etag == etag

    def test_a_large_body_is_created_once(self, store: ObjectStore) -> None:
        body = bytes(range(256)) * (17 << 12)  # 17 MiB, in one request
        etag = store.put("k", body, condition=CreateOnly())
        with pytest.raises(PreconditionFailed):
            store.put("k", body[:-1], condition=CreateOnly())
        found = store.get("k")
        assert (found.etag, found.object_size_bytes) == (etag, len(body))
        assert found.body == body

    def test_what_was_deleted_can_be_created_again(self, store: ObjectStore) -> None:
        store.put("k", BODY, condition=CreateOnly())
        store.delete("k")
        store.put("k", b"new", condition=CreateOnly())
        assert store.get("k").body == b"new"

    def test_if_match_writes_over_that_version_only(self, store: ObjectStore) -> None:
        first = store.put("k", BODY)
        second = store.put("k", b"new", condition=IfMatch(first))
        with pytest.raises(PreconditionFailed):
            store.put("k", b"newer", condition=IfMatch(first))
        assert store.get("k").etag == second != first
        assert second == etag_of(b"new") or not self.etags_are_hashes

    def test_if_match_on_a_missing_key_is_lost(self, store: ObjectStore) -> None:
        etag = store.put("another", BODY)
        with pytest.raises(PreconditionFailed):
            store.put("k", BODY, condition=IfMatch(etag))
        with pytest.raises(KeyMissing):
            store.get("k")

    def test_of_eight_creators_exactly_one_wins(self, store: ObjectStore) -> None:
        for round_ in range(5):
            barrier = Barrier(8)
            with ThreadPoolExecutor(8) as pool:
                won = list(pool.map(_create, repeat(store), repeat(f"race/{round_}"), range(8), repeat(barrier)))
            assert sum(won) == 1
            assert store.get(f"race/{round_}").body == str(won.index(True)).encode()

    def test_eight_threads_of_compare_and_set_lose_nothing(self, store: ObjectStore) -> None:
        store.put("counter", b"0")
        count = 8 * examples(8)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(_increment, repeat(store, count), range(count)))
        assert int(store.get("counter").body.split()[0]) == count

    # Marks

    def test_every_get_returns_the_mark_that_an_object_was_written_with(self, store: ObjectStore) -> None:
        for key, body, mark in product(self._taken("k", "/odd//key"), (BODY, b""), (MARK, "x", None, "~" * 128)):
            etag = store.put(key, body, mark=mark)
            answers = [store.get(key), store.get_tail(key, 3), store.get_if_changed(key, "another")]
            if body:
                answers += [store.get_range(key, 0, 1), store.get_range(key, 5, 10**6), store.get_tail(key, 10**6)]
            assert [answer.mark for answer in answers if answer is not None] == [mark] * len(answers)
            assert store.get(key).body == body
            assert [(each.size_bytes, each.etag) for each in store.list(key)] == [(len(body), etag)]

    def test_a_refused_write_changes_no_mark_and_the_next_one_sets_its_own(self, store: ObjectStore) -> None:
        stale = store.put("k", b"old", mark="of-the-old-one")
        etag = store.put("k", BODY, condition=IfMatch(stale), mark=MARK)
        with pytest.raises(PreconditionFailed):
            store.put("k", BODY, condition=CreateOnly(), mark="another")
        with pytest.raises(PreconditionFailed):
            store.put("k", BODY, condition=IfMatch(stale), mark="another")
        assert store.get_range("k", 0, 1).mark == MARK
        store.put("k", b"new", condition=IfMatch(etag), mark="another")
        assert store.get_range("k", 0, 1).mark == "another"
        store.put("k", BODY)
        assert store.get_range("k", 0, 1).mark is None

    def test_an_upload_in_parts_has_the_mark_that_it_was_begun_with_and_not_that_of_a_source(
        self, store: ObjectStore
    ) -> None:
        store.put("source", PART + BODY, mark="of-the-source")
        for mark, is_copied in product((MARK, None), (False, True)):
            upload = store.start_multipart("k", mark=mark)
            first = upload.copy_part(1, "source", 0, len(PART)) if is_copied else upload.upload_part(1, PART)
            upload.complete([first, upload.upload_part(2, b"end")])
            assert (store.get_range("k", 0, 1).mark, store.get_tail("k", 3).mark) == (mark, mark)
        assert store.get_range("source", 0, 1).mark == "of-the-source"

    def test_a_mark_that_no_header_holds_is_refused_before_anything_is_sent(self, store: ObjectStore) -> None:
        for mark in ("", " ", "two words", "line\nfeed", "ü", "x" * 129):
            with pytest.raises(ValueError, match="mark"):
                store.put("k", BODY, mark=mark)
            with pytest.raises(ValueError, match="mark"):
                store.start_multipart("k", mark=mark)
        assert list(store.list("")) == []

    # Deleting

    def test_a_missing_key_is_deleted_already(self, store: ObjectStore) -> None:
        store.delete("k")
        store.put("k", BODY)
        store.delete("k")
        store.delete("k")
        with pytest.raises(KeyMissing):
            store.get("k")

    def test_many_are_deleted_at_once_present_or_not(self, store: ObjectStore) -> None:
        keys = self._taken("a", "b//c", "d%20+ü", "e")
        for key in [*keys, "stays"]:
            store.put(key, BODY)
        assert store.delete_many(iter([*keys, "missing", *keys[:1]])) == []
        assert [found.key for found in store.list("")] == ["stays"]

    # Listing, and more than 1,000 of everything

    def test_a_listing_is_in_the_order_of_utf8_bytes_and_tells_sizes_and_versions(self, store: ObjectStore) -> None:
        keys = self._taken("b", "a", "a/b", "a-b", "a//", "Z", "ä", "\U0001f600", "\uffee", "a b", "aa")
        etags = {key: store.put(key, key.encode()) for key in keys}
        found = list(store.list(""))
        assert [each.key for each in found] == sorted(keys, key=lambda key: key.encode(self.order))
        assert {each.key: each.etag for each in found} == etags
        assert all(each.size_bytes == len(each.key.encode()) for each in found)
        assert all(each.modified_seconds > 0 for each in found)

    def test_a_prefix_is_a_string_not_a_folder(self, store: ObjectStore) -> None:
        for key in ["a", "a/1", "a/2", "ab/1", "b"]:
            store.put(key, BODY)
        assert [each.key for each in store.list("a")] == ["a", "a/1", "a/2", "ab/1"]
        assert [each.key for each in store.list("a/")] == ["a/1", "a/2"]
        assert list(store.list("c")) == []

    def test_a_listing_of_more_than_a_thousand_keys_is_complete(self, store: ObjectStore) -> None:
        keys = [f"n/{number:05}" for number in range(0, 2200, 2)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(store.put, keys, repeat(b"")))

        assert [each.key for each in store.list("n/")] == keys
        assert [each.key for each in store.list("n/", start_after="n/00100")] == keys[51:], "on a key"
        assert [each.key for each in store.list("n/", start_after="n/00101")] == keys[51:], "off a key"
        assert [each.key for each in store.list("n/", start_after="a")] == keys, "before the prefix"
        assert list(store.list("n/", start_after="o")) == [], "after the prefix"
        assert [each.key for each in store.list("n/", limit=1050)] == keys[:1050]
        assert [each.key for each in store.list("n/", start_after=keys[9], limit=3)] == keys[10:13]
        assert list(store.list("n/", limit=0)) == []

        if self.pages_are_whole:
            page = store.list_page("n/", limit=7)
            assert ([each.key for each in page.objects], page.more) == (keys[:7], True)
            last = store.list_page("n/", start_after=keys[-2])
            assert ([each.key for each in last.objects], last.more) == (keys[-1:], False)

        assert store.delete_many(keys) == []
        assert list(store.list("")) == []

    def test_a_page_has_one_to_a_thousand_keys(self, store: ObjectStore) -> None:
        for limit in (0, -1, 1001):
            with pytest.raises(ValueError, match="page"):
                store.list_page("", limit=limit)

    def test_a_negative_limit_is_a_mistake_of_the_caller(self, store: ObjectStore) -> None:
        with pytest.raises(ValueError, match="limit"):
            store.list("", limit=-1)

    # Multipart

    def test_parts_become_one_object_at_the_end_and_not_before(self, store: ObjectStore) -> None:
        upload = store.start_multipart("big")
        receipts = [upload.upload_part(2, memoryview(b"tail")), upload.upload_part(1, bytearray(PART))]
        assert list(store.list("")) == []
        etag = upload.complete(receipts)
        found = store.get("big")
        assert found.body == PART + b"tail"
        assert found.etag == etag
        assert etag.endswith("-2") or not self.etags_are_hashes
        assert store.get_range("big", len(PART) - 2, len(PART) + 2).body == b"ppta"

    def test_a_part_sent_again_replaces_the_earlier_one(self, store: ObjectStore) -> None:
        upload = store.start_multipart("k")
        upload.upload_part(1, b"first")
        upload.complete([upload.upload_part(1, b"second")])
        assert store.get("k").body == b"second"

    def test_parts_may_be_sent_by_many_threads(self, store: ObjectStore) -> None:
        upload = store.start_multipart("k")
        bodies = [PART, PART.replace(b"p", b"q"), b"end"]
        with ThreadPoolExecutor(3) as pool:
            receipts = list(pool.map(upload.upload_part, (1, 2, 3), bodies))
        upload.complete(receipts)
        assert store.get("k").body == b"".join(bodies)

    def test_an_aborted_upload_leaves_nothing(self, store: ObjectStore) -> None:
        upload = store.start_multipart("k")
        receipt = upload.upload_part(1, BODY)
        upload.abort()
        upload.abort()
        assert list(store.list("")) == []
        with pytest.raises(StoreError):
            upload.complete([receipt])
        with pytest.raises(KeyMissing):
            store.get("k")

    def test_another_process_aborts_an_upload_by_its_id(self, store: ObjectStore) -> None:
        upload = store.start_multipart("k")
        receipt = upload.upload_part(1, BODY)
        if not upload.upload_id:  # then the parts are not in the store
            upload.abort()
            return
        store.abort_multipart("another", "unknown-upload")
        store.abort_multipart("k", upload.upload_id)
        store.abort_multipart("k", upload.upload_id)
        with pytest.raises(StoreError):
            upload.complete([receipt])
        assert [*store.list("")] == []

    def test_a_small_part_that_is_not_the_last_is_refused(self, store: ObjectStore) -> None:
        upload = store.start_multipart("k")
        receipts = [upload.upload_part(number, BODY) for number in (1, 2)]
        with pytest.raises(RequestRefused):
            upload.complete(receipts)
        upload.abort()
        assert list(store.list("")) == []

    def test_parts_are_numbered_from_one_to_ten_thousand(self, store: ObjectStore) -> None:
        upload = store.start_multipart("k")
        for number in (0, 10_001):
            with pytest.raises(ValueError, match="10000"):
                upload.upload_part(number, BODY)
            with pytest.raises(ValueError, match="10000"):
                upload.copy_part(number, "source", 0, 1)
        upload.abort()

    def test_a_part_can_be_copied_inside_the_store(self, store: ObjectStore) -> None:
        assert store.can_copy_parts is self.can_copy_parts
        source = PART + BODY
        for at, source_key in enumerate(self._taken("source", "so//ur+ce ü"), 7):
            store.put(source_key, source)
            upload = store.start_multipart("k")
            receipts = [upload.copy_part(1, source_key, at, at + len(PART)), upload.upload_part(2, b"end")]
            upload.complete(receipts)
            assert store.get("k").body == source[at : at + len(PART)] + b"end"

    def test_a_copy_of_what_is_not_there_is_refused(self, store: ObjectStore) -> None:
        store.put("source", BODY)
        upload = store.start_multipart("k")
        with pytest.raises(KeyMissing):
            upload.copy_part(1, "missing", 0, 10)
        with pytest.raises(ValueError, match="range"):
            upload.copy_part(1, "source", 10, 10)
        upload.abort()


def _create(store: ObjectStore, key: str, number: int, barrier: Barrier) -> bool:
    barrier.wait()
    while True:
        try:
            store.put(key, str(number).encode(), condition=CreateOnly())
        except PreconditionFailed:
            return False
        except WriteConflict:
            continue  # undecided: whoever asks again learns who won
        return True


def _increment(store: ObjectStore, nonce: int) -> None:
    while True:
        found = store.get("counter")
        count = int(found.body.split()[0]) + 1
        try:
            # Without the nonce, equal counts would have equal ETags.
            store.put("counter", f"{count} {nonce}".encode(), condition=IfMatch(found.etag))
        except (PreconditionFailed, WriteConflict):
            continue
        return
