"""Counters: ids are given out once, whoever asks, and a counter that was lost gives none."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.testing import Fault, FaultStore
from loaders.errors import AccelError
from loaders.store import MemoryStore, ObjectStore
from loaders.store.decorated import WRITES, CountingStore
from loaders.tables import IdBlocks, RecordCache, RecordForm, Tables, TypedKey
from loaders.tables.counters import IDS_AT_ONCE_MAX
from loaders.tables.records import Bounded, OneField
from tests.loaders.tables.worlds import new_nonce

FORM = RecordForm("counter", 1, OneField("next_id", Bounded("next_id")))
THREADS = 8


class Damaged(AccelError):
    """A counter that gives no ids."""


def tables_in(store: ObjectStore) -> Tables:
    return Tables(store, nonce=new_nonce, sleep=lambda _: None, jitter=float)


def made(store: ObjectStore) -> TypedKey[int]:
    tables = tables_in(store)
    tables.create_table("counters")
    key = TypedKey(tables.table("counters"), "ids", FORM)
    key.create_if_absent(0)
    return key


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 12)), max_size=40), st.integers(1, 7))
def test_no_id_is_given_twice_and_each_take_ascends(asked: list[tuple[int, int]], block: int) -> None:
    key = made(MemoryStore())
    takers = [IdBlocks(key, block, Damaged) for _ in range(3)]
    taken = [takers[taker].take(count) for taker, count in asked]
    assert [len(ids) for ids in taken] == [count for _, count in asked]
    assert all(ids == list(range(ids[0], ids[0] + len(ids))) for ids in taken)
    given_out = [each for ids in taken for each in ids]
    assert len(set(given_out)) == len(given_out)
    assert max(given_out, default=-1) < key.get().value


def test_threads_get_ids_of_their_own() -> None:
    ids = IdBlocks(made(MemoryStore()), 5, Damaged)
    together = Barrier(THREADS)

    def take(_: int) -> list[int]:
        together.wait()
        return [each for count in (1, 3, 7) for each in ids.take(count)]

    with ThreadPoolExecutor(THREADS) as executor:
        taken = [each for part in executor.map(take, range(THREADS)) for each in part]
    assert len(set(taken)) == len(taken) == THREADS * 11


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.CONFLICT, Fault.PRECONDITION])
def test_a_write_that_went_wrong_gives_no_id_twice(fault: Fault) -> None:
    faulty = FaultStore(MemoryStore(), operations=WRITES)
    key = made(faulty)
    first, second = IdBlocks(key, 4, Damaged), IdBlocks(key, 4, Damaged)
    taken = first.take(4)
    faulty.schedule(fault)
    taken += second.take(4) + first.take(4)
    assert len(set(taken)) == 12


def test_the_rest_of_a_block_stays_for_smaller_takes() -> None:
    ids = IdBlocks(made(MemoryStore()), 10, Damaged)
    assert ids.free_now() == 0
    assert ids.take(4) == [0, 1, 2, 3]
    assert ids.free_now() == 6
    assert ids.take(7) == list(range(10, 17))
    assert ids.take(6) == list(range(4, 10))


def test_a_block_costs_two_requests_and_its_ids_none() -> None:
    counting = CountingStore(MemoryStore())
    ids = IdBlocks(made(counting), 10, Damaged)
    before = counting.snapshot().total.requests
    ids.take(1)
    assert counting.snapshot().total.requests == before + 2
    ids.take(9)
    assert counting.snapshot().total.requests == before + 2


def test_a_counter_that_is_not_above_ids_in_use_gives_none() -> None:
    ids = IdBlocks(made(MemoryStore()), 10, Damaged)
    ids.refuse_lost()
    ids.note(0)
    ids.note(-1)
    for refused in (ids.refuse_lost, ids.take):
        with pytest.raises(Damaged, match="'ids': expected a number above 0, the highest id in use, found 0: it went"):
            refused()


def test_a_counter_that_is_gone_gives_none() -> None:
    store = MemoryStore()
    key = made(store)
    key.delete()
    ids = IdBlocks(key, 10, Damaged)
    for refused in (ids.refuse_lost, ids.take):
        with pytest.raises(Damaged, match="expected a counter in table 'counters', key 'ids', found none: it was del"):
            refused()
    tables_in(store).drop_table("counters")
    for cache in (None, RecordCache(1000, lambda _: 0)):
        key = TypedKey(tables_in(store).table("counters"), "ids", FORM, cache=cache)
        with pytest.raises(Damaged, match="found no such table"):
            IdBlocks(key, 10, Damaged).take()


@pytest.mark.parametrize("count", [0, -1, IDS_AT_ONCE_MAX + 1])
def test_counts_out_of_bounds_take_nothing(count: int) -> None:
    key = made(MemoryStore())
    with pytest.raises(ValueError, match=f"expected 1 to 1048576 ids at once, found {count}"):
        IdBlocks(key, 10, Damaged).take(count)
    assert key.get().value == 0
