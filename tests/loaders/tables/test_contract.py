"""What tables promise on every store: in memory, and on S3 servers."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

import pytest

from accel.testing import Crash, CrashStore, Fault
from loaders.errors import AmbiguousWrite, DataConflict, DataExists, DataNotFound, TableMissing
from loaders.layout import TABLES_PREFIX
from loaders.tables import Version
from tests.examples import examples
from tests.loaders.tables.verbs import VERBS, picture, prepare
from tests.loaders.tables.worlds import ByteTables, Values, World, items_of

ODD_NAMES = [
    "a b",
    "a/b",
    "/",
    ".",
    "..",
    "../x",
    "a%2Fb",
    "%",
    "100%",
    "ü/日本語",
    "😀",
    "!table",
    "a+b",
    "tab\t",
    "~",
    "A",
]
NOWHERE = Version("etag", 1, bytes(16))
TOUCHES: dict[str, Callable[[Values], object]] = {
    "get": lambda table: table.get("k"),
    "find": lambda table: table.find("k"),
    "get_if_newer": lambda table: table.get_if_newer("k", NOWHERE),
    "create": lambda table: table.create("k", b""),
    "create_if_absent": lambda table: table.create_if_absent("k", b""),
    "update": lambda table: table.update("k", b"", NOWHERE),
    "change": lambda table: table.change("k", lambda _: b""),
    "change, left alone": lambda table: table.change("k", lambda _: None),
    "delete": lambda table: table.delete("k"),
    "delete a version": lambda table: table.delete("k", NOWHERE),
    "erase": lambda table: table.erase("k"),
    "keys": lambda table: list(table.keys()),
    "keys by prefix": lambda table: list(table.keys("x", after="xa")),
    "items": lambda table: list(items_of(table)),
}


# Tables


def test_without_its_marker_a_table_does_not_exist(world: World) -> None:
    for name, touch in TOUCHES.items():
        with pytest.raises(TableMissing, match="table 't'"):
            touch(world.tables().table("t"))
        assert list(world.store.list(TABLES_PREFIX)) == [], f"{name} wrote something"


def test_a_table_is_made_once_and_dropped_with_all_its_keys(world: World) -> None:
    tables = world.tables()
    assert [tables.create_table("t"), tables.create_table("t"), world.tables().create_table("t")] == [1, 0, 0]
    assert tables.table_exists("t")
    for key in ("a", "b/c", "gone"):
        tables.table("t").create(key, b"x")
    tables.table("t").delete("gone")
    tables.create_table("t2")
    tables.drop_table("t")
    tables.drop_table("t")
    assert not tables.table_exists("t")
    assert list(tables.table_names()) == ["t2"]
    assert [info.key for info in world.store.list(TABLES_PREFIX)] == ["accel/tables/t2/!table"]
    with pytest.raises(TableMissing):
        tables.table("t").get("a")
    assert tables.create_table("t"), "the client that dropped it does not believe that it is still there"
    with pytest.raises(DataNotFound):
        tables.table("t").get("a")


def test_a_drop_that_was_cut_short_is_finished_by_another(world: World) -> None:
    prepare(world.tables(), "t")
    with pytest.raises(Crash):
        world.tables(CrashStore(world.store, 1)).drop_table("t")
    tables = world.tables()
    assert not tables.table_exists("t")
    assert list(tables.table_names()) == []
    with pytest.raises(TableMissing):
        list(tables.table("t").keys())
    assert list(world.store.list("accel/tables/t/")), "the keys are still there"
    tables.drop_table("t")
    assert list(world.store.list(TABLES_PREFIX)) == []


def test_a_drop_leaves_what_no_table_writes_in_its_folder(world: World) -> None:
    prepare(world.tables(), "t")
    foreign = ["accel/tables/t/notes.txt/1", "accel/tables/t/not encoded"]
    for key in foreign:
        world.store.put(key, b"not ours")
    world.tables().drop_table("t")
    assert [info.key for info in world.store.list(TABLES_PREFIX)] == sorted(foreign)


def test_tables_are_named_in_the_order_of_their_folders(world: World) -> None:
    tables = world.tables()
    for name in ["b", "a", "a/b", "a-b", "a0", "ab", "Z", "z.z"]:
        tables.create_table(name)
        tables.table(name).create("k", b"")
    assert list(tables.table_names()) == ["Z", "a/b", "a-b", "a", "a0", "ab", "b", "z.z"]
    assert list(tables.table_names("a")) == ["a/b", "a-b", "a", "a0", "ab"]
    assert list(tables.table_names("a/")) == ["a/b"]
    assert list(tables.table_names("x")) == []


# One key


def test_what_is_written_is_read_and_every_write_is_another_version(world: World) -> None:
    table = world.table()
    first = table.create("k", b"")
    assert table.get("k") == (b"", first)
    second = table.update("k", b"\x00" * 100_000, first)
    assert table.get("k") == (b"\x00" * 100_000, second)
    assert (first.sequence, second.sequence) == (1, 2)
    assert len({first.etag, second.etag}) == len({first.nonce, second.nonce}) == 2
    assert table.find("k") is not None
    assert table.find("another") is None
    with pytest.raises(DataNotFound) as caught:
        table.get("another")
    assert not isinstance(caught.value, TableMissing)


def test_what_exists_cannot_be_created(world: World) -> None:
    table = world.table()
    version = table.create("k", b"1")
    with pytest.raises(DataExists):
        table.create("k", b"2")
    assert table.create_if_absent("k", b"2") == (b"1", version)
    assert table.create_if_absent("new", b"2") == table.get("new")
    assert table.get("k") == (b"1", version)


def test_only_the_version_that_was_read_can_be_updated(world: World) -> None:
    table = world.table()
    first = table.create("k", b"1")
    second = table.update("k", b"2", first)
    with pytest.raises(DataConflict) as caught:
        table.update("k", b"3", first)
    assert caught.value.entry == (b"2", second)
    assert caught.value.retryable
    with pytest.raises(DataConflict):
        table.delete("k", first)
    assert table.get("k") == (b"2", second)


def test_a_value_that_comes_back_is_another_version(world: World) -> None:
    table = world.table()
    empty = table.create("k", b"EMPTY")
    full = table.update("k", b"X", empty)
    again = table.update("k", b"EMPTY", full)
    assert table.get("k") == (b"EMPTY", again)
    for stale in (empty, full):
        with pytest.raises(DataConflict):
            table.update("k", b"Y", stale)


def test_what_is_deleted_is_gone_and_can_be_created_again(world: World) -> None:
    table = world.table()
    first = table.create("k", b"1")
    table.delete("k", first)
    assert table.find("k") is None
    assert list(table.keys()) == []
    with pytest.raises(DataNotFound):
        table.update("k", b"2", first)
    with pytest.raises(DataNotFound):
        table.get_if_newer("k", first)
    table.delete("k", first)
    table.delete("k")
    again = table.create("k", b"3")
    assert again.sequence == 3
    assert table.get("k") == (b"3", again)
    with pytest.raises(DataConflict):
        table.update("k", b"4", first)
    with pytest.raises(DataConflict):
        table.delete("k", first)
    table.delete("k")
    assert table.create_if_absent("k", b"5") == table.get("k")
    assert table.get("k").version.sequence == 5


def test_what_did_not_change_is_not_sent_again(world: World) -> None:
    table = world.table()
    first = table.create("k", b"1")
    assert table.get_if_newer("k", first) is None
    second = table.update("k", b"2", first)
    assert table.get_if_newer("k", first) == (b"2", second)
    assert table.get_if_newer("k", second) is None


def test_a_final_value_is_only_ever_erased(world: World) -> None:
    table = world.table()
    version = table.create("k", b"1", final=True)
    assert table.get("k").version.final
    for change in (
        lambda: table.update("k", b"2", version),
        lambda: table.update("k", b"2", table.get("k").version),
        lambda: table.change("k", lambda _: b"2"),
        lambda: table.delete("k"),
        lambda: table.delete("k", version),
    ):
        with pytest.raises(ValueError, match="final"):
            change()
    assert table.change("k", lambda _: None) == (b"1", version)
    table.erase("k")
    assert table.find("k") is None
    later = table.create("k2", b"1")
    assert table.update("k2", b"2", later, final=True).final


# Names and listings


def test_any_name_is_a_name_like_any_other(world: World) -> None:
    tables = world.tables()
    for name in ODD_NAMES:
        assert tables.create_table(name)
        for key in ODD_NAMES[2:5]:
            tables.table(name).create(key, f"{name}\0{key}".encode())
    assert sorted(tables.table_names()) == sorted(ODD_NAMES)
    for name in ODD_NAMES:
        found = {key: value for key, (value, _) in items_of(tables.table(name))}
        assert found == {key: f"{name}\0{key}".encode() for key in ODD_NAMES[2:5]}
    assert tables.table("../x").get(".").value == b"../x\0."


def test_one_listing_of_neighbouring_tables_tells_the_etag_of_each_key(world: World) -> None:
    tables = world.tables()
    names = ["node-lists", "node-lists-x", "nodes", "nodes-x", "node-list-history", "zone"]
    for name in names:
        tables.create_table(name)
        for key in ("a/b", "1"):
            tables.table(name).create(key, f"{name} {key}".encode())
    tables.table("nodes").change("1", lambda _: b"another one")
    found = tables.etags(["nodes", "node-lists"])
    assert found == {
        (name, key): tables.table(name).get(key).version.etag
        for name in ("node-lists", "nodes")
        for key in ("1", "a/b")
    }
    assert tables.etags(["zone"]).keys() == {("zone", "1"), ("zone", "a/b")}


def test_a_listing_shows_the_living_in_the_order_of_encoded_names(world: World) -> None:
    table = world.table()
    keys = ["10", "9", "a", "a.b", "a/b", "a-b", "ab", "B", "ä", "~", "_"]
    for key in keys:
        table.create(key, key.encode())
    table.create("gone", b"")
    table.delete("gone")
    table.create("a/gone", b"")
    table.delete("a/gone")
    ordered = ["ä", "10", "9", "B", "_", "a", "a.b", "a/b", "a-b", "ab", "~"]
    assert list(table.keys()) == ordered
    assert [key for key, _ in items_of(table)] == ordered
    assert list(table.keys("a")) == ["a", "a.b", "a/b", "a-b", "ab"]
    assert list(table.keys("a/")) == ["a/b"]
    assert list(table.keys(after="a/b")) == ["a-b", "ab", "~"]
    assert list(table.keys("a", after="a.b")) == ["a/b", "a-b", "ab"]
    assert list(table.keys("a", after="a/gone")) == ["a-b", "ab"]
    assert list(table.keys("gone")) == []
    assert {key: value for key, (value, _) in items_of(table, "a")} == {key: key.encode() for key in ordered[5:10]}
    assert dict(items_of(table))["9"] == table.get("9")


# Many at once


def test_increments_of_eight_threads_lose_none(world: World) -> None:
    tables = world.tables(waits=True)
    tables.create_table("t")
    count = 8 * examples(20)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(_increment, repeat(tables, count), range(count)))
    value, version = tables.table("t").get("counter")
    assert (int(value), version.sequence) == (count, count)


# Bad luck


def test_after_a_crash_before_any_write_a_repetition_ends_the_same(world: World) -> None:
    clean = world.tables()
    for verb, act in VERBS.items():
        whole = CrashStore(world.store, None)
        prepare(clean, verb)
        act(world.tables(whole), verb)
        expected = picture(clean, verb)
        for number in range(whole.writes):
            name = f"{verb}, crashed before write {number}"
            prepare(clean, name)
            with pytest.raises(Crash):
                act(world.tables(CrashStore(world.store, number)), name)
            act(world.tables(), name)
            assert picture(clean, name) == expected, name


def test_what_nobody_can_know_is_ambiguous(world: World) -> None:
    table = world.table()

    def ten_others() -> None:
        for _ in range(10):
            table.change("k", lambda old: (old or b"") + b".")

    for fault in (Fault.LOST_REPLY, Fault.TIMEOUT):
        version = table.create_if_absent("k", b"1").version
        with pytest.raises(AmbiguousWrite):
            world.unlucky(fault, third=ten_others).table("t").update("k", b"mine", version)
        with pytest.raises(AmbiguousWrite):
            world.unlucky(fault, third=ten_others).table("t").delete("k", table.get("k").version)
        table.delete("k")
    version = table.create("k", b"1")
    with pytest.raises(DataConflict):  # a refusal is an answer, however many wrote since
        world.unlucky(Fault.PRECONDITION, third=ten_others).table("t").update("k", b"mine", version)


def _increment(tables: ByteTables, _: int) -> None:
    tables.table("t").change("counter", lambda old: b"%d" % (int(old or b"0") + 1))
