"""A value is bound to its table and key: under another one it is corrupt, wherever it is read. A prefix may move."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from accel.testing import Fault
from loaders.errors import AmbiguousWrite, CorruptObject
from loaders.store import MemoryStore, PrefixedStore
from loaders.tables import FormatRecord, create_format, read_format
from tests.loaders.tables.worlds import Values, World, items_of, new_nonce

MINE = "accel/tables/lists/0000000004"
SIBLING = "accel/tables/lists/0000000006"
REFUSED = rf"{MINE!r}.*over 'lists/0000000004' and these bytes.*another key"


def swapped(*, final: bool = False, deleted: bool = False) -> World:
    """A table of two keys; the first has the bytes of the second, which may be a tombstone."""
    world = World(MemoryStore())
    table = world.table("lists")
    table.create("0000000004", b"four")
    table.create("0000000006", b"six", final=final)
    if deleted:
        table.delete("0000000006")
    world.store.put(MINE, world.store.get(SIBLING).body)
    return world


TOUCHES: dict[str, Callable[[Values], object]] = {
    "get": lambda table: table.get("0000000004"),
    "find": lambda table: table.find("0000000004"),
    "items": lambda table: list(items_of(table)),
    "create": lambda table: table.create("0000000004", b"x"),
    "create_if_absent": lambda table: table.create_if_absent("0000000004", b"x"),
    "change": lambda table: table.change("0000000004", lambda _: b"x"),
    "delete": lambda table: table.delete("0000000004"),
}


@pytest.mark.parametrize("touch", TOUCHES.values(), ids=TOUCHES)
@pytest.mark.parametrize("final", [False, True])
def test_the_bytes_of_a_sibling_are_corrupt_in_every_read_and_are_not_written_over(
    touch: Callable[[Values], object], final: bool
) -> None:
    world = swapped(final=final)
    before = world.store.get(MINE)
    with pytest.raises(CorruptObject, match=REFUSED):
        touch(world.tables().table("lists"))
    assert world.store.get(MINE) == before


@pytest.mark.parametrize("touch", [each for name, each in TOUCHES.items() if name != "items"])
def test_the_tombstone_of_a_sibling_deletes_nothing(touch: Callable[[Values], object]) -> None:
    with pytest.raises(CorruptObject, match=REFUSED):
        touch(swapped(deleted=True).tables().table("lists"))


def test_a_write_whose_reply_was_lost_does_not_take_the_bytes_of_a_sibling_for_its_own() -> None:
    world = World(MemoryStore())
    table = world.table("lists")
    version = table.create("0000000004", b"four")
    table.create("0000000006", b"six")

    def swap() -> None:
        world.store.put(MINE, world.store.get(SIBLING).body)

    unlucky = world.unlucky(Fault.LOST_REPLY, third=swap).table("lists")
    with pytest.raises(AmbiguousWrite) as caught:
        unlucky.update("0000000004", b"new", version)
    assert isinstance(caught.value.__cause__, CorruptObject)
    assert MINE in str(caught.value.__cause__)


def test_a_table_and_its_marker_are_bound_to_the_table() -> None:
    world = World(MemoryStore())
    world.table("lists").create("k", b"1")
    for key in ("!table", "k"):
        world.store.put(f"accel/tables/other/{key}", world.store.get(f"accel/tables/lists/{key}").body)
    with pytest.raises(CorruptObject, match="'other/k'"):
        world.tables().table("other").get("k")
    for read in (lambda tables: tables.table_exists("other"), lambda tables: list(tables.table("other").keys())):
        with pytest.raises(CorruptObject, match="'other/!table'"):
            read(world.tables())


def test_neither_a_value_stands_for_the_format_record_nor_it_for_a_value() -> None:
    store = MemoryStore()
    create_format(store, FormatRecord(namespace="shop"), new_nonce)
    table = World(store).table()
    table.create("k", b"1")
    value, record = store.get("accel/tables/t/k").body, store.get("accel/format").body
    store.put("accel/tables/t/k", record)
    with pytest.raises(CorruptObject, match="'t/k'"):
        table.get("k")
    store.put("accel/format", value)
    with pytest.raises(CorruptObject, match="'format'"):
        read_format(store)


def test_a_prefix_may_be_copied_and_goes_on_where_it_lies() -> None:
    bucket = MemoryStore()
    old = PrefixedStore(bucket, "eu/shop/")
    create_format(old, FormatRecord(namespace="shop"), new_nonce)
    table = World(old).table("größe/1")
    version = table.create("a.b", b"1")
    table.create("gone", b"2")
    table.delete("gone")
    for info in list(bucket.list("eu/shop/")):
        bucket.put(info.key.replace("eu/shop/", "us/"), bucket.get(info.key).body)
    new = PrefixedStore(bucket, "us/")
    assert read_format(new) == read_format(old)
    moved = World(new).tables().table("größe/1")
    assert moved.get("a.b") == (b"1", version)
    assert (moved.find("gone"), list(moved.keys())) == (None, ["a.b"])
    moved.update("a.b", b"3", version)
    assert (moved.get("a.b").value, table.get("a.b").value) == (b"3", b"1")
