"""A crash comes in place of the chosen write, and nothing is asked for after it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from accel.testing import Crash, CrashStore
from loaders.store import MemoryStore, ObjectStore


def workflow(store: ObjectStore) -> None:
    store.put("a", b"1")
    assert store.get("a").body == b"1"
    upload = store.start_multipart("b")
    upload.complete([upload.upload_part(1, b"x")])
    store.start_multipart("c").abort()
    assert [each.key for each in store.list("")] == ["a", "b"]
    store.delete_many(["a", "missing"])
    store.delete("b")


def test_every_request_that_changes_the_store_is_a_write_and_no_other() -> None:
    store = CrashStore(MemoryStore(), None)
    workflow(store)
    assert (store.writes, store.has_crashed) == (8, False)


# What lies there after so many writes: keys, and uploads that were begun and not ended.
LEFT_BEHIND = [("", 0), ("a", 0), ("a", 1), ("a", 1), ("ab", 0), ("ab", 1), ("ab", 0), ("b", 0), ("", 0)]


@pytest.mark.parametrize(("number", "keys", "uploads"), [(each, *left) for each, left in enumerate(LEFT_BEHIND)])
def test_what_was_written_before_the_crash_stands(number: int, keys: str, uploads: int) -> None:
    inner = MemoryStore()
    store = CrashStore(inner, number)
    if number < 8:
        with pytest.raises(Crash, match=f"before write {number}"):
            workflow(store)
        assert (store.writes, store.has_crashed) == (number + 1, True)
    else:
        workflow(store)
    assert [each.key for each in inner.list("")] == list(keys)
    assert inner.open_uploads == uploads


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.get("a"),
        lambda store: list(store.list("")),
        lambda store: store.put("a", b"2"),
        lambda store: store.delete_many(["a"]),
    ],
)
def test_the_dead_ask_for_nothing(ask: Callable[[ObjectStore], object]) -> None:
    inner = MemoryStore()
    inner.put("a", b"1")
    store = CrashStore(inner, 0)
    with pytest.raises(Crash):
        store.delete("a")
    with pytest.raises(Crash):
        ask(store)
    assert inner.get("a").body == b"1"
    assert store.writes == 1


def test_a_crash_is_not_an_error_to_be_handled() -> None:
    assert not issubclass(Crash, Exception)


def test_a_negative_number_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="0 or more"):
        CrashStore(MemoryStore(), -1)
