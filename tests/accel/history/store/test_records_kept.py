"""Records are read and decoded once for all who ask, long walks stay small, and what is gone is not given out."""

from __future__ import annotations

import tracemalloc
from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from threading import Barrier
from typing import Any

import numpy as np
import pytest

from accel.history import records as codecs
from accel.history.rules.configuration import HistoryLayout
from accel.history.rules.cuts import CutOrder
from accel.history.rules.retention import StreamCutRecord
from accel.history.rules.values import IdMap
from accel.history.store import Stream, StreamStore
from accel.history.store.parts import record_size_bytes
from loaders.store import MemoryStore
from loaders.store.decorated import StoreCall
from loaders.tables import Tables
from loaders.tables.records import Codec
from loaders.tables.typed_key import RECORD_OVERHEAD_BYTES, RecordCache, TypedKey, always
from range_index.epoch_times import Block, BlockKind, BlockTimes, first_root
from tests.accel.history.store.bench import SETTINGS, START_MS, Bench
from tests.accel.history.store.long_history import LongHistory
from tests.conformance.history_world import SCOPE, STREAM, CallCounter
from tests.loaders.tables.worlds import new_nonce, no_sleep
from tests.world import Watched

EPOCHS = 10_000
MEMORY_MAX_BYTES = 64 * 2**20
WALKS: dict[str, Callable[[LongHistory, Stream], object]] = {
    "segments between": lambda history, stream: len(
        stream.cuts.segments_between(history.cut(0), history.cut(EPOCHS - 1))
    ),
    "size between": lambda history, stream: stream.cuts.size_between(history.cut(0), history.cut(EPOCHS - 1)) > 0,
    "compare": lambda history, stream: stream.cuts.compare(
        history.cut(0), history.cut(0) | dict.fromkeys(history.ids(EPOCHS - 1, EPOCHS - 1).tolist(), -1)
    ),
}


@cache
def long_history(segments: int) -> LongHistory:
    return LongHistory.write(EPOCHS, segments)


def leaf() -> BlockTimes:
    """A block of 50,000 times."""
    times = array("q", range(START_MS, START_MS + 50_000))
    return BlockTimes(Block(BlockKind.LEAF, 0, len(times)), times)


def grown() -> Bench:
    """A stream at epoch 7, in chunks of 2."""
    bench = Bench(SETTINGS)
    bench.create()
    bench.append_all(5)
    for _ in range(7):
        bench.scale_once()
    return bench


# Long walks


@pytest.mark.parametrize("segments", [1, 30])
@pytest.mark.parametrize("threads", [0, 4])
@pytest.mark.parametrize("walk", WALKS)
def test_walking_ten_thousand_epochs_takes_less_than_64_mb(walk: str, threads: int, segments: int) -> None:
    """With nothing cached; all caches count that the client fills meanwhile."""
    history = long_history(segments)
    expected = {"segments between": EPOCHS * segments, "size between": True, "compare": CutOrder.EQUAL_OR_AFTER}
    with ThreadPoolExecutor(max(1, threads)) as executor:
        tracemalloc.start()
        try:
            stream = history.opened(StreamStore.open(history.store, executor=executor if threads else None))
            assert WALKS[walk](history, stream) == expected[walk]
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak_bytes < MEMORY_MAX_BYTES


@pytest.mark.parametrize("threads", [0, 4])
def test_many_who_walk_at_once_make_the_calls_of_one(threads: int) -> None:
    history, walkers = long_history(1), 6
    counter = CallCounter(history.store)
    barrier = Barrier(walkers)

    def walk() -> int:
        barrier.wait(60)
        return len(stream.cuts.segments_between(history.cut(0), history.cut(EPOCHS - 1)))

    with ThreadPoolExecutor(max(1, threads)) as executor, ThreadPoolExecutor(walkers) as many:
        stream = history.opened(StreamStore.open(counter, executor=executor if threads else None))
        counter.calls = 0
        found = [many.submit(walk) for _ in range(walkers)]
        assert {each.result(60) for each in found} == {EPOCHS}
        # 10 chunks, epochs 0 and 9,999
        assert counter.calls == EPOCHS // 1000 + 2


def test_a_walk_that_is_left_early_reads_no_more_than_the_window() -> None:
    history = long_history(1)
    counter = CallCounter(history.store)
    with ThreadPoolExecutor(2) as executor:
        stream = history.opened(StreamStore.open(counter, executor=executor))
        counter.calls = 0
        epochs = stream.epochs.between(0, EPOCHS - 1)
        assert [next(epochs).epoch for _ in range(3)] == [0, 1, 2]
        del epochs
    assert counter.calls <= 1 + 1 + 8


def test_records_of_duplicates_are_read_side_by_side() -> None:
    """Of six duplicates two are read at a time: one by one, the first would wait for another for ever."""
    bench = Bench(replace(SETTINGS, layout=HistoryLayout(1000, 2)))
    bench.create()
    for number in range(3):
        bench.transaction(f"{number}")
        bench.scale_once()
        bench.stream().commit(bench.tick())
    expected = list(bench.stream().epochs.between(0, 9))
    duplicates = [each.epoch for each in expected if each.is_duplicate]
    assert len(duplicates) == 6
    names, both = {f"epochRecord-{number}" for number in duplicates}, Barrier(2)

    def meet(call: StoreCall) -> None:
        if call.key.rpartition("/")[2] in names:
            both.wait(60)

    segments = {each for record in expected for each in record.segments.ids.tolist()}
    with ThreadPoolExecutor(2) as executor:
        around = Watched(bench.store, meet)
        stores = StreamStore.open(around, system=bench.components(), settings=bench.settings, executor=executor)
        assert list(stores.stream(SCOPE, STREAM).epochs.between(0, 9)) == expected
        counter = CallCounter(bench.store)
        stream = StreamStore.open(counter, settings=bench.settings, executor=executor).stream(SCOPE, STREAM)
        counter.calls = 0
        assert stream.cuts.segments_between({}, {}).tolist() == sorted(segments)
        # The current epoch, the first one, the chunk, the duplicates
        assert counter.calls == 3 + 6


# What is kept


def test_what_never_changes_is_decoded_once() -> None:
    bench = grown()
    stream = bench.stream()
    assert stream.epochs.epoch(3) is stream.epochs.epoch(3)
    first, again = (list(stream.workflows.epochs.chunks(0, 7)) for _ in range(2))
    assert len(first) == 4
    assert all(one is other for one, other in zip(first, again, strict=True))
    assert stream.epochs.epoch(3) is not bench.stream().epochs.epoch(3)


def test_streams_of_one_store_share_what_they_read() -> None:
    streams = grown().streams()
    one, other = (streams.stream(SCOPE, STREAM) for _ in range(2))
    assert one.epochs.epoch(3) is other.epochs.epoch(3)


def test_without_memory_for_records_the_answers_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = grown()
    expected = list(bench.stream().epochs.between(0, 7))
    monkeypatch.setattr("accel.history.store.parts.RECORDS_CACHE_BYTES", 0)
    stream = bench.stream()
    assert list(stream.epochs.between(0, 7)) == expected
    assert stream.epochs.epoch(3) == expected[3]
    assert stream.epochs.epoch(3) is not stream.epochs.epoch(3)


# Sizes


@pytest.mark.parametrize("name", ["epoch", "chunk", "leaf", "root", "sizes", "cut"])
def test_the_size_of_a_record_is_what_it_takes(name: str) -> None:
    history = long_history(30)
    ids = history.ids(0, 999)
    made: dict[str, tuple[Codec[Any], object]] = {
        "epoch": (codecs.EPOCH_RECORD, LongHistory(1, 5_000, MemoryStore()).record(0)),
        "chunk": (codecs.HISTORY_CHUNK, history.chunk(3)),
        "leaf": (codecs.EPOCH_TIMES_BLOCK, leaf()),
        "root": (codecs.EPOCH_TIMES, first_root(START_MS)),
        "sizes": (codecs.SEALED_SIZES, IdMap(ids, np.arange(len(ids)))),
        "cut": (codecs.STREAM_CUT, StreamCutRecord(5, 5, IdMap(ids, np.arange(len(ids))))),
    }
    codec, record = made[name]
    taken_bytes = measured(codec, record)
    claimed_bytes = RECORD_OVERHEAD_BYTES + record_size_bytes(record)
    assert 0.9 * taken_bytes <= claimed_bytes <= 1.1 * taken_bytes + RECORD_OVERHEAD_BYTES


def measured(codec: Codec[Any], record: object) -> int:
    """Bytes that keeping a record adds, on the average of several."""
    tables = Tables(MemoryStore(), nonce=new_nonce, sleep=no_sleep, jitter=float)
    tables.create_table("t")
    count = 5
    for number in range(count + 1):
        TypedKey(tables.table("t"), f"{number}", codec, is_final=always).create(record)
    records = RecordCache(1 << 30, record_size_bytes)

    def read(number: int) -> None:
        TypedKey(tables.table("t"), f"{number}", codec, is_final=always, cache=records).read()

    read(count)  # whatever is made once only
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(count):
        read(number)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (after - before) // count
