"""An index answers as a plain list does, wherever its records lie."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from accel.streams.time_index import part_cache
from loaders.layout import parse_time_part_key, time_part_key
from loaders.store import CountingStore, MemoryStore
from range_index.segment_times import NO_TOKEN, RECORD_SIZE_BYTES
from tests.accel.streams.times.indexes import (
    STREAM_ID,
    Plain,
    Source,
    encoded_memory,
    everything,
    filled,
    open_index,
    plain,
)
from tests.examples import examples

TENS = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]


class IndexMachine(RuleBasedStateMachine):
    """Appends, moves, restarts and reads in any order, against a list of all records."""

    @initialize(moved_records_max=st.sampled_from([1, 3, 1000]), size_bytes_max=st.sampled_from([0, 1000, 1 << 20]))
    def begin(self, moved_records_max: int, size_bytes_max: int) -> None:
        self.store = MemoryStore()
        self.source = Source()
        self.cache = part_cache(size_bytes_max)
        self.moved_records_max = moved_records_max
        self.model = Plain()
        self.log = b""
        self.offset = 0
        self.token = NO_TOKEN
        self.open()

    def open(self) -> None:
        self.index = open_index(self.store, self.source, moved_records_max=self.moved_records_max, cache=self.cache)

    @rule(lengths=st.lists(st.integers(1, 30) | st.integers(1, 10**6), max_size=6), step=st.integers(-4, 9))
    def append(self, lengths: list[int], step: int) -> None:
        self.source.time = max(0, self.source.time + step)
        for length in lengths:
            end = self.model.end_offset + length
            value = self.index.append(end)
            assert value == max(self.source.time, self.model.records[-1][1] if self.model.records else 0)
            self.model.records.append((end, value))
            self.log += end.to_bytes(8, "big") + value.to_bytes(8, "big")

    @rule(length=st.integers(0, 40))
    def merge(self, length: int) -> None:
        end = self.model.end_offset + length
        value = self.index.merge(end)
        assert (value is None) == (length == 0)
        if value is not None:
            self.model.records.append((end, value))
            self.log += end.to_bytes(8, "big") + value.to_bytes(8, "big")

    @rule(back=st.integers(-5, 300))
    def move(self, back: int) -> None:
        up_to = max(0, self.model.end_offset - back)
        before, in_memory = self.index.parts, self.index.records_in_memory
        moved = self.index.move(up_to)
        assert moved == in_memory - self.index.records_in_memory
        assert self.index.records - self.index.records_in_memory >= self.model.locate(up_to)
        assert self.index.parts - before == -(-moved // self.moved_records_max)

    @rule()
    def restart(self) -> None:
        self.open()
        self.index.extend(self.log)

    @rule(offset=st.integers(0, 500) | st.integers(0, 10**7), count=st.integers(0, 200), token=st.integers(-2, 40))
    def read(self, offset: int, count: int, token: int) -> None:
        assert plain(self.index.read(offset, count)) == self.model.read(offset, count)
        assert plain(self.index.read(offset, count, token)) == self.model.read(offset, count)
        found = self.index.locate(offset)
        assert found.record == self.model.locate(offset)
        assert offset >= self.model.end_offset or found.start <= offset < found.end

    @rule(count=st.integers(0, 100))
    def read_on(self, count: int) -> None:
        answer = self.index.read(self.offset, count, self.token)
        assert plain(answer) == self.model.read(self.offset, count)
        self.offset, self.token = self.offset + answer.covered, answer.token

    @invariant()
    def all_is_there(self) -> None:
        assert everything(self.index) == self.model.records
        assert self.index.records == len(self.model.records)
        assert self.index.end_offset == self.model.end_offset
        assert self.log.endswith(encoded_memory(self.index))
        assert self.cache.cache_stats().size_bytes <= self.cache.cache_stats().size_bytes_max


TestIndexMachine = IndexMachine.TestCase
TestIndexMachine.settings = settings(max_examples=examples(100), stateful_step_count=25)


def test_a_move_with_nothing_new_writes_nothing() -> None:
    store = CountingStore(MemoryStore())
    index = filled(store, TENS)
    index.move(35)
    store.reset()
    assert (index.move(35), index.move(39), index.move(0)) == (0, 0, 0)
    assert store.snapshot().total.requests == 0


def test_parts_lie_at_the_number_of_their_first_record_and_have_nothing_but_records() -> None:
    store = MemoryStore()
    index = filled(store, TENS, moved_records_max=4)
    whole = encoded_memory(index)
    assert index.move(100) == 10
    listed = list(store.list(""))
    assert [parse_time_part_key(STREAM_ID, each.key) for each in listed] == [0, 4, 8]
    assert b"".join(store.get(each.key).body for each in listed) == whole


def test_opening_takes_one_listing_and_sixteen_bytes_and_reads_no_part() -> None:
    inner = MemoryStore()
    filled(inner, TENS, moved_records_max=3).move(90)
    store = CountingStore(inner)
    index = open_index(store)
    counts = store.snapshot().total
    assert (counts.requests, counts.received_bytes) == (2, RECORD_SIZE_BYTES)
    assert (index.records, index.parts, index.end_offset, index.last_value) == (9, 3, 90, 9)


def test_an_index_without_parts_takes_one_listing() -> None:
    store = CountingStore(MemoryStore())
    open_index(store)
    assert store.snapshot().total.requests == 1


def test_a_part_is_read_once_while_the_cache_has_room() -> None:
    inner = MemoryStore()
    filled(inner, list(range(10, 10_010, 10)), moved_records_max=100).move(10_000)
    store = CountingStore(inner)
    index = open_index(store)
    store.reset()
    token = NO_TOKEN
    for offset in range(0, 10_000, 25):
        token = index.read(offset, 25, token).token
    assert store.snapshot().total.requests == 10


def test_a_cold_look_up_in_many_uniform_parts_reads_few_of_them() -> None:
    inner = MemoryStore()
    filled(inner, list(range(10, 20_010, 10)), moved_records_max=10).move(20_000)
    store = CountingStore(inner)
    index = open_index(store)
    store.reset()
    assert index.locate(13_335).record == 1333
    assert store.snapshot().total.requests <= 2


def test_where_parts_end_is_remembered_when_they_leave_memory() -> None:
    store = CountingStore(MemoryStore())
    index = filled(store, [2**each for each in range(40)], moved_records_max=4)
    index.move(2**40)
    store.reset()
    assert index.locate(2**20).record == 21
    assert store.snapshot().total.requests == 1


def test_the_clock_goes_on_from_the_highest_value_that_a_segment_stored() -> None:
    store = MemoryStore()
    source = Source(500)
    first = open_index(store, source)
    first.append(10)
    first.move(10)
    source.time = 90
    index = open_index(store, source)
    assert (index.last_value, index.append(20)) == (500, 500)


def test_a_reader_elsewhere_follows_what_moves() -> None:
    store = MemoryStore()
    writer = filled(store, TENS)
    reader = open_index(store)
    assert plain(reader.read(0, 100)) == (0, [], 0)
    writer.move(35)
    assert reader.refresh() == 1
    answer = reader.read(0, 100)
    assert plain(answer) == (30, [1, 2, 3], 3)
    writer.move(100)
    assert (reader.refresh(), reader.refresh()) == (1, 0)
    assert plain(reader.read(30, 100, answer.token)) == (70, [4, 5, 6, 7, 8, 9, 10], 10)


def test_records_from_a_log_that_the_index_has_are_passed_over() -> None:
    store = MemoryStore()
    index = filled(store, TENS)
    log = encoded_memory(index)
    index.move(35)
    again = open_index(store)
    assert (again.extend(log), again.extend(log), again.extend(b"")) == (7, 0, 0)
    assert everything(again) == everything(index)
    with pytest.raises(ValueError, match="whole records"):
        again.extend(b"x")


def test_other_keys_below_the_prefix_are_nobody_s() -> None:
    store = MemoryStore()
    index = filled(store, TENS)
    index.move(35)
    for name in ("accel/time/7/x", "accel/time/7/00000000000000000003/x", "accel/time/70/00000000000000000003"):
        store.put(name, b"something")
    assert everything(open_index(store)) == everything(index)[:3]


@pytest.mark.parametrize(("stream_id", "record"), [(-1, 0), (2**63, 0), (0, -1), (0, 2**63)])
def test_keys_have_ids_and_numbers_of_64_bits(stream_id: int, record: int) -> None:
    with pytest.raises(ValueError, match="found"):
        time_part_key(stream_id, record)


@pytest.mark.parametrize("key", ["00000000000000000003", "accel/time/8/00000000000000000003", "accel/time/7/3", ""])
def test_a_key_that_is_almost_right_names_no_part(key: str) -> None:
    assert parse_time_part_key(7, key) is None


def test_bounds_are_refused_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="moved_records_max"):
        open_index(MemoryStore(), moved_records_max=0)
    with pytest.raises(ValueError, match="bound of 0 or more"):
        part_cache(-1)
