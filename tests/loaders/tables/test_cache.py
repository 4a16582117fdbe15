"""A cache saves bodies and requests, and never an answer that is out of date."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.testing import Fault, FaultStore
from loaders.errors import DataConflict, DataNotFound, StoreUnavailable
from loaders.store import CountingStore
from loaders.store.decorated import WRITES
from loaders.tables import Entry, RetrySettings, ValueCache, Version
from loaders.tables.cache import ENTRY_OVERHEAD_BYTES
from tests.loaders.tables.worlds import Recorder, World

if TYPE_CHECKING:
    from loaders.tables import Table

BODY = b"x" * 10_000


def cached_table(world: World, size_bytes_max: int = 1 << 20) -> tuple[Table, CountingStore, ValueCache]:
    """A table that exists, behind a cache of its own, and counts from now on."""
    world.table()
    counting, cache = CountingStore(world.store), ValueCache(size_bytes_max)
    table = world.tables(counting, cache=cache).table("t")
    table.find("missing")  # now the marker has been seen
    counting.reset()
    return table, counting, cache


def test_a_value_that_stands_still_costs_no_body(memory: World) -> None:
    table, counting, _ = cached_table(memory)
    memory.table().create("k", BODY)
    first = table.get("k")
    assert counting.reset().total.received_bytes > len(BODY)
    assert table.get("k") == first
    assert table.exists("k")
    assert table.get_if_newer("k", first.version) is None
    counts = counting.reset()
    assert (counts.of("get_if_changed").requests, counts.total.requests, counts.total.received_bytes) == (3, 3, 0)


def test_what_was_written_here_costs_no_body_either(memory: World) -> None:
    table, counting, _ = cached_table(memory)
    version = table.create("k", BODY)
    table.update("k", BODY + b"2", version)
    counting.reset()
    assert table.get("k").value == BODY + b"2"
    assert counting.reset().total.received_bytes == 0


def test_a_final_value_costs_no_request(memory: World) -> None:
    table, counting, _ = cached_table(memory)
    memory.table().create("k", BODY, final=True)
    first = table.get("k")
    counting.reset()
    assert table.get("k") == first
    assert table.exists("k")
    assert table.get_if_newer("k", first.version) is None
    assert table.create_if_absent("k", b"other", final=True) == first
    assert table.create("mine", BODY, final=True) == table.get("mine").version
    assert counting.reset().total.requests == 1


def test_what_others_changed_is_seen_at_once(memory: World) -> None:
    table, _, _ = cached_table(memory)
    other = memory.table()
    version = other.create("k", b"1")
    assert table.get("k").value == b"1"
    version = other.update("k", b"2", version)
    assert table.get("k") == (b"2", version)
    other.delete("k")
    with pytest.raises(DataNotFound):
        table.get("k")
    other.create("k", b"3", final=True)
    assert table.get("k").value == b"3"


@pytest.mark.parametrize("final", [False, True])
def test_bytes_are_bounded_and_the_least_used_goes_first(memory: World, final: bool) -> None:
    table, counting, cache = cached_table(memory, 5 * (len(BODY) + ENTRY_OVERHEAD_BYTES + 10))
    other = memory.table()
    for number in range(9):
        other.create(f"{number}", BODY, final=final)
        table.get(f"{number}")
        table.get("0")
    assert (len(cache), cache.size_bytes) == (5, 5 * (len(BODY) + ENTRY_OVERHEAD_BYTES + len("t0")))
    counting.reset()
    for number in (0, 5, 6, 7, 8):
        table.get(f"{number}")
    assert counting.reset().total.received_bytes == 0
    table.get("3")
    assert counting.reset().total.received_bytes > len(BODY)


def test_a_value_larger_than_the_cache_is_not_kept(memory: World) -> None:
    table, counting, cache = cached_table(memory, 2000)
    table.create("k", b"small")
    assert len(cache) == 1
    table.update_with("k", lambda _: BODY)
    assert (len(cache), cache.size_bytes) == (0, 0)
    assert table.get("k").value == BODY
    counting.reset()
    assert table.get("k").value == BODY
    assert counting.reset().total.received_bytes > len(BODY)


@pytest.mark.parametrize("fault", [Fault.TIMEOUT, Fault.LOST_REPLY, Fault.CONFLICT])
def test_after_a_failed_write_the_value_is_fetched_again(memory: World, fault: Fault) -> None:
    memory.table().create("k", b"1")
    faults, cache = FaultStore(memory.store, operations=WRITES), ValueCache(1 << 20)
    counting = CountingStore(faults)
    table = memory.tables(counting, cache=cache, retry=RetrySettings(settle_attempts=1)).table("t")
    version = table.get("k").version
    faults.schedule(fault)
    try:
        table.update("k", b"2", version)
    except Exception:  # noqa: BLE001 - how it fails is not the point here
        assert len(cache) == 0
        counting.reset()
        assert table.get("k") == memory.table().get("k")
        assert counting.reset().of("get").requests == 1
    else:
        assert fault is Fault.LOST_REPLY


def test_after_a_lost_race_the_winner_is_seen(memory: World) -> None:
    table, _, cache = cached_table(memory)
    version = table.create("k", b"1")
    memory.table().update("k", b"2", version)
    with pytest.raises(DataConflict):
        table.update("k", b"3", version)
    assert len(cache) == 0
    assert table.get("k").value == b"2"
    table.delete("k")
    assert len(cache) == 0
    assert table.find("k") is None


def test_an_erased_value_is_gone_from_the_cache_too(memory: World) -> None:
    table, _, cache = cached_table(memory)
    table.create("k", b"1", final=True)
    table.erase("k")
    assert len(cache) == 0
    assert table.find("k") is None


def test_a_table_made_again_has_nothing_of_the_one_before(memory: World) -> None:
    cache = ValueCache(1 << 20)
    tables = memory.tables(cache=cache)
    for generation in (b"1", b"2", b"3"):
        tables.create_table("t")
        tables.table("t").create("k", generation, final=True)
        assert memory.tables(cache=cache).table("t").get("k").value == generation, "without the marker seen"
        assert tables.table("t").get("k").value == generation
        another = memory.tables(cache=cache).table("t")
        another.find("missing")
        assert another.get("k").value == generation, "with the marker seen"
        (tables if generation == b"1" else memory.tables(cache=cache)).drop_table("t")
        tables = memory.tables(cache=cache)


def test_tables_held_from_before_a_drop_in_the_same_client_see_the_new_one(memory: World) -> None:
    tables = memory.tables(cache=ValueCache(1 << 20))
    held = tables.table("t")
    for generation in (b"1", b"2"):
        tables.create_table("t")
        held.create("k", generation, final=True)
        assert held.get("k").value == generation
        tables.drop_table("t")
        with pytest.raises(DataNotFound):
            held.get("k")


def test_a_read_that_was_overtaken_by_a_write_is_not_kept() -> None:
    cache, key = ValueCache(1 << 20), ("t", b"id", "k")
    entry = Entry(b"old", Version("e", 1, bytes(16), final=True))
    ticket = cache.ticket(key)
    cache.forget(key)
    cache.keep(key, entry, ticket)
    assert cache.get(key) is None
    cache.keep(key, entry, cache.ticket(key))
    assert cache.get(key) == entry


def test_a_read_under_way_during_an_erase_does_not_bring_the_value_back(memory: World) -> None:
    table, _, cache = cached_table(memory)
    table.create("k", b"1", final=True)
    recorder = Recorder()
    slow = memory.tables(recorder.around(memory.store), cache=cache).table("t")
    cache.forget(("t", slow._folder.state.cache_id, "k"))
    ticket = slow._folder.ticket("k")
    stored = slow._folder.look("k")
    slow._folder.forget("k")
    slow._folder.keep("k", stored, ticket)
    assert slow._folder.kept("k") is None


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 3000), st.booleans()), max_size=60))
def test_the_bound_holds_whatever_happens(steps: list[tuple[str, int, bool]]) -> None:
    cache = ValueCache(4000)
    for name, size, forgets in steps:
        key = ("t", b"id", name)
        if forgets:
            cache.forget(key)
        else:
            cache.keep(key, Entry(bytes(size), Version("e", 1, bytes(16))), cache.ticket(key))
        assert 0 <= cache.size_bytes <= 4000
        assert (len(cache) == 0) == (cache.size_bytes == 0)


def test_a_cache_without_room_keeps_nothing() -> None:
    cache = ValueCache(0)
    cache.keep(("t", b"", "k"), Entry(b"", Version("e", 1, bytes(16))), cache.ticket(("t", b"", "k")))
    assert len(cache) == 0
    with pytest.raises(ValueError, match="at least 0"):
        ValueCache(-1)


def test_eight_threads_share_a_cache(memory: World) -> None:
    table, _, _ = cached_table(memory)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: table.update_with("k", lambda old: b"%d" % (int(old or b"0") + 1)), range(400)))
    assert int(table.get("k").value) == 400


def test_a_listing_of_more_than_a_thousand_keys_is_complete(memory: World) -> None:
    table = memory.table()
    for number in range(1100):
        table.create(f"{number:04}", b"")
    for number in range(0, 1100, 2):
        table.delete(f"{number:04}")
    memory.table("u")
    memory.table("v").create("k", b"")
    assert list(table.keys()) == [f"{number:04}" for number in range(1, 1100, 2)]
    counting = CountingStore(memory.store)
    assert list(memory.tables(counting).table_names()) == ["t", "u", "v"]
    assert counting.snapshot().total.requests == 2, "the rest of a large table is skipped"
    memory.tables().drop_table("t")
    assert [info.key for info in memory.store.list("")] == [
        "accel/tables/u/!table",
        "accel/tables/v/!table",
        "accel/tables/v/k",
    ]


def test_a_store_that_does_not_answer_is_not_taken_for_a_missing_value(memory: World) -> None:
    table = memory.table()
    table.create("k", b"1")
    faults = FaultStore(memory.store, operations={"get", "list"})
    faults.schedule(Fault.SLOW_DOWN, Fault.RESET)
    other = memory.tables(faults).table("t")
    with pytest.raises(StoreUnavailable):
        other.find("k")
    with pytest.raises(StoreUnavailable):
        list(other.keys())
