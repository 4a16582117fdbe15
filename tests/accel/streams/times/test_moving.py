"""Whatever happens while records move, and whatever stands in their place already: none is lost, none is wrong."""

from __future__ import annotations

import pytest

from accel.streams.time_index import SegmentTimeIndex
from accel.testing import Crash, CrashStore, Fault, FaultStore
from loaders.errors import PreconditionFailed, StoreError, StoreUnavailable, WriteConflict
from loaders.store import MemoryStore, ObjectStore
from loaders.store.decorated import WRITES
from tests.accel.streams.times.indexes import Plain, encoded_memory, everything, filled, open_index, plain

TENS = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
RECORDS = [(end, end // 10) for end in TENS]


def log(ends: list[int]) -> bytes:
    return encoded_memory(filled(MemoryStore(), ends))


def check_answers(index: SegmentTimeIndex, records: list[tuple[int, int]]) -> None:
    model = Plain(records)
    assert everything(index) == records
    for offset in range(0, model.end_offset + 5, 5):
        for token in (-1, 0, 4, len(records)):
            assert plain(index.read(offset, 23, token)) == model.read(offset, 23)


def life(store: ObjectStore) -> None:
    """Records are added and moved, some parts at a time."""
    index = open_index(store, moved_records_max=2)
    index.extend(log(TENS))
    index.move(35)
    index.move(90)


def test_after_a_crash_before_any_write_nothing_is_lost() -> None:
    whole = CrashStore(MemoryStore(), None)
    life(whole)
    assert whole.writes == 5
    for number in range(whole.writes):
        inner = MemoryStore()
        with pytest.raises(Crash):
            life(CrashStore(inner, number))
        check_answers(open_index(inner), RECORDS[: open_index(inner).records])
        index = open_index(inner, moved_records_max=3)
        index.extend(log(TENS))
        check_answers(index, RECORDS)
        index.move(1000)
        check_answers(index, RECORDS)
        check_answers(open_index(inner), RECORDS)


@pytest.mark.parametrize(
    "fault", [Fault.LOST_REPLY, Fault.SERVER_ERROR, Fault.CONFLICT, Fault.TIMEOUT, Fault.SLOW_DOWN]
)
@pytest.mark.parametrize("number", range(4))
def test_a_write_in_doubt_is_settled(fault: Fault, number: int) -> None:
    inner = MemoryStore()
    store = FaultStore(inner, operations=WRITES)
    index = filled(store, TENS, moved_records_max=3)
    store.schedule(*[None] * number, fault)
    assert index.move(100) == 10
    assert index.records_in_memory == 0
    assert store.injected[fault] == 1
    check_answers(index, RECORDS)
    check_answers(open_index(inner), RECORDS)


@pytest.mark.parametrize(
    ("fault", "error"),
    [(Fault.TIMEOUT, StoreUnavailable), (Fault.CONFLICT, WriteConflict), (Fault.PRECONDITION, PreconditionFailed)],
)
def test_what_cannot_be_settled_is_told_and_stays_in_memory(fault: Fault, error: type[StoreError]) -> None:
    store = FaultStore(MemoryStore(), operations=WRITES)
    index = filled(store, TENS, moved_records_max=3)
    store.schedule(None, *[fault] * 4)
    with pytest.raises(error):
        index.move(100)
    assert (index.parts, index.records_in_memory) == (1, 7)
    check_answers(index, RECORDS)
    assert index.move(100) == 7
    check_answers(index, RECORDS)


@pytest.mark.parametrize("there", [1, 2, 3])
def test_a_shorter_part_that_stands_there_counts_and_the_rest_moves_behind_it(there: int) -> None:
    store = MemoryStore()
    index = filled(store, TENS)
    filled(store, TENS).move(10 * there)
    assert index.move(45) == 4
    assert [each.size_bytes for each in store.list("")] == [16 * each for each in (there, 4 - there) if each]
    check_answers(index, RECORDS)


@pytest.mark.parametrize("there", [5, 9, 10])
def test_a_longer_part_that_stands_there_takes_more_out_of_memory(there: int) -> None:
    store = MemoryStore()
    index = filled(store, TENS)
    filled(store, TENS).move(10 * there)
    assert index.move(45) == there
    assert (index.parts, index.records_in_memory) == (1, 10 - there)
    check_answers(index, RECORDS)
    index.move(100)
    check_answers(open_index(store), RECORDS)


@pytest.mark.parametrize("moved_records_max", [1, 2, 3, 4, 100])
@pytest.mark.parametrize("refreshed_before", [True, False])
def test_where_the_store_knows_more_than_memory_the_index_goes_on_behind_it(
    moved_records_max: int, refreshed_before: bool
) -> None:
    store = MemoryStore()
    index = filled(store, TENS[:4])
    filled(store, TENS, moved_records_max=moved_records_max).move(100)
    if refreshed_before:
        index.refresh()
    else:
        index.move(40)
    assert (index.records, index.records_in_memory, index.end_offset, index.last_value) == (10, 0, 100, 10)
    assert index.append(110) == 10
    check_answers(index, [*RECORDS, (110, 10)])


@pytest.mark.parametrize("ends", [[10, 20, 31], [10, 20, 31, 40, 50, 60], [11], [10, 20, 30, 40, 51]])
def test_other_records_in_the_same_place_are_refused_and_nothing_is_lost(ends: list[int]) -> None:
    store = MemoryStore()
    index = filled(store, TENS)
    filled(store, ends).move(1000)
    with pytest.raises(PreconditionFailed, match="does another process write this segment"):
        index.move(50)
    assert (index.records_in_memory, index.parts) == (10, 0)
    check_answers(index, RECORDS)


def test_without_a_log_one_record_covers_what_came_after_the_last_move() -> None:
    store = MemoryStore()
    filled(store, TENS).move(40)
    index = open_index(store)
    data_end = 100
    assert index.merge(data_end) == 4
    check_answers(index, [*RECORDS[:4], (100, 4)])
