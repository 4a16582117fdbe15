"""How many table operations each question and each workflow makes; of what never changes, none the second time.

Source of the numbers: PDP-32.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache

import pytest

from accel.history.rules.configuration import HistoryLayout
from accel.history.rules.segments import split_range
from accel.history.store import GivenSizes, HistorySettings, Stream, StreamStore
from loaders.store import MemoryStore
from tests.accel.history.store.bench import START_MS, Bench, cut, ids
from tests.conformance.history_world import SCOPE, STREAM, CallCounter, components
from tests.world import Watched

Ask = Callable[[Stream], object]


def grown() -> Bench:
    """A stream at epoch 7, with chunks, parts and leaves of small sizes, truncated in epoch 1."""
    bench = Bench()
    bench.create()
    bench.append_all(5)
    for _ in range(7):
        bench.scale_once()
        bench.append_all(5)
    bench.stream().truncate(cut(s1_0=2, s2_1=1))
    return bench


BENCH = grown()


def opened() -> tuple[Stream, CallCounter]:
    counter = CallCounter(BENCH.store)
    stream = BENCH.stream(around=counter)
    counter.calls = 0
    return stream, counter


QUESTIONS: dict[str, tuple[Ask, int, int]] = {
    "predecessors": (lambda stream: stream.epochs.predecessors(ids("4@3")[0]), 2, 0),
    "epoch at a time": (lambda stream: stream.epochs.epoch_at(START_MS + 35), 2, 1),
    "epoch now": (lambda stream: stream.epochs.epoch_at(START_MS + 1000), 1, 1),
    "head": (lambda stream: stream.head(), 1, 1),
    "compare": (lambda stream: stream.cuts.compare(cut(s0_0=1, s1_0=1), cut(s1_0=1, s2_1=2)), 2, 0),
    "valid": (lambda stream: stream.cuts.is_valid(cut(s0_0=1, s1_0=1)), 1, 0),
    "between, 3 chunks": (lambda stream: stream.cuts.segments_between(cut(s0_0=1, s1_0=1), cut(s4_3=1, s5_4=2)), 5, 0),
    "size, 3 chunks, 2 shards": (
        lambda stream: stream.cuts.size_between(cut(s0_0=1, s1_0=1), cut(s4_3=1, s5_4=2)),
        7,
        2,
    ),
    "all epochs, 4 chunks": (lambda stream: list(stream.epochs.between(0, 7)), 5, 0),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_makes_no_more_calls_than_promised(name: str) -> None:
    ask, cold, warm = QUESTIONS[name]
    stream, counter = opened()
    answer = ask(stream)
    assert 0 < counter.calls <= cold
    counter.calls = 0
    assert str(ask(stream)) == str(answer)
    assert counter.calls <= warm


# As PDP-32 promises, by number and not by bound


@cache
def long_ago() -> Bench:
    """A stream of 35 epochs in chunks and shards of 10, truncated in epoch 2; a leaf and parts in its index."""
    bench = Bench(HistorySettings(layout=HistoryLayout(10, 10), part_epochs=5, leaf_parts=3))
    bench.create()
    for _ in range(35):
        bench.scale_once()
    bench.stream().truncate(cut(s2_1=0, s3_2=0))
    return bench


PROMISED: dict[str, tuple[Ask, int, int]] = {
    "active segments now": (lambda stream: stream.active_segments(), 1, 1),
    "segments at a time": (lambda stream: stream.segments_at(START_MS + 75), 4, 2),
    "successors": (lambda stream: stream.epochs.successors(ids("4@3")[0]), 3, 0),
    "segment": (lambda stream: stream.epochs.segment(ids("4@3")[0]), 1, 0),
    "epoch": (lambda stream: stream.epochs.epoch(3), 1, 0),
}


@pytest.mark.parametrize("name", PROMISED)
def test_the_promised_numbers_of_calls_are_exact(name: str) -> None:
    ask, cold, warm = PROMISED[name]
    counter = CallCounter(long_ago().store)
    stream = long_ago().stream(around=counter)
    for calls in (cold, warm):
        counter.calls = 0
        assert ask(stream)
        assert counter.calls == calls


@pytest.mark.parametrize(("low", "high"), [(3, 4), (3, 9), (9, 10), (3, 19), (15, 34), (3, 34)])
@pytest.mark.parametrize("name", ["segments", "size", "truncate"])
def test_walks_read_each_chunk_and_shard_once_however_many_epochs_they_have(name: str, low: int, high: int) -> None:
    """From one cut to another, and the record of an epoch only where one of both, or the walk, begins."""
    bench = long_ago().clone()
    known = bench.stream()
    start, end = (dict.fromkeys(known.epochs.epoch(number).segments.ids.tolist(), 0) for number in (low, high))
    if name == "truncate":
        bench.stream().truncate(start)
    asked: Counter[str] = Counter()
    watched = Watched(bench.store, lambda call: asked.update([call.key.rpartition("/")[2].rpartition("-")[0]]))
    stream = bench.stream(around=watched)
    ask: dict[str, Callable[[], object]] = {
        "segments": lambda: stream.cuts.segments_between(start, end),
        "size": lambda: stream.cuts.size_between(start, end),
        "truncate": lambda: stream.truncate(end),
    }
    asked.clear()
    ask[name]()
    chunks = high // 10 - (low - 1) // 10 + 1
    assert asked["historyTimeSeriesChunk"] <= chunks
    assert asked["segmentsSealedSizeMapShard"] <= (chunks if name != "segments" else 0)
    assert asked["epochRecord"] <= 3
    assert asked["segmentSealedEpochPath"] == 0


def scale_calls(sealed: int, created: int) -> int:
    """Calls of a scale by a client that has read nothing before."""
    counter = CallCounter(MemoryStore())
    store = StreamStore.open(counter, system=components())
    store.create_scope(SCOPE)
    store.create_stream(SCOPE, STREAM, segments=sealed)
    stream = StreamStore.open(counter, system=components(), host=GivenSizes()).stream(SCOPE, STREAM)
    counter.calls = 0
    stream.scale(range(sealed), list(split_range(0.0, 1.0, created)))
    return counter.calls


@pytest.mark.parametrize(("sealed", "created"), [(1, 1), (1, 2), (2, 1), (8, 1), (1, 8), (30, 30)])
def test_a_scale_takes_28_calls_and_one_for_each_sealed_and_each_created_segment(sealed: int, created: int) -> None:
    """Besides two for a block of ids, and two for the one shard of sizes."""
    assert scale_calls(sealed, created) <= 28 + sealed + created + 2 + 2


def test_each_further_segment_of_a_scale_costs_the_same() -> None:
    assert scale_calls(31, 1) - scale_calls(1, 1) == 30
    assert scale_calls(1, 31) - scale_calls(1, 1) == 30
