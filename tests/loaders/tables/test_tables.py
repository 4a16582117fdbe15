"""Tables that are dropped and created again, shared by threads, listed, and behind a store that does not answer."""

from __future__ import annotations

import pytest

from accel.testing import Fault, FaultStore
from loaders.errors import DataNotFound, StoreUnavailable
from loaders.store import CountingStore
from tests.loaders.tables.worlds import World


def test_tables_held_from_before_a_drop_in_the_same_client_see_the_new_one(memory: World) -> None:
    tables = memory.tables()
    held = tables.table("t")
    for generation in (b"1", b"2"):
        tables.create_table("t")
        held.create("k", generation, final=True)
        assert held.get("k").value == generation
        tables.drop_table("t")
        with pytest.raises(DataNotFound):
            held.get("k")


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
