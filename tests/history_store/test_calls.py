"""How many table operations each question and each workflow makes; of what never changes, none the second time.

Source of the numbers: PDP-32.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from accel.history.store import Stream, StreamStore
from loaders.store import MemoryStore
from tests.conformance.history_world import SCOPE, STREAM, CallCounter, components
from tests.history_store.bench import START_MS, Bench, cut, ids

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
    "active segments": (lambda stream: stream.active_segments(), 1, 1),
    "segments at a time": (lambda stream: stream.segments_at(START_MS + 35), 4, 2),
    "successors": (lambda stream: stream.successors(ids("1@0")[0]), 3, 0),
    "predecessors": (lambda stream: stream.predecessors(ids("4@3")[0]), 2, 0),
    "segment": (lambda stream: stream.segment(ids("4@3")[0]), 1, 0),
    "epoch": (lambda stream: stream.epoch(3), 1, 0),
    "epoch at a time": (lambda stream: stream.epoch_at(START_MS + 35), 2, 1),
    "epoch now": (lambda stream: stream.epoch_at(START_MS + 1000), 1, 1),
    "head": (lambda stream: stream.head(), 1, 1),
    "compare": (lambda stream: stream.compare(cut(s0_0=1, s1_0=1), cut(s1_0=1, s2_1=2)), 2, 0),
    "valid": (lambda stream: stream.is_valid(cut(s0_0=1, s1_0=1)), 1, 0),
    "between, 3 chunks": (lambda stream: stream.segments_between(cut(s0_0=1, s1_0=1), cut(s4_3=1, s5_4=2)), 5, 0),
    "size, 3 chunks, 2 shards": (lambda stream: stream.size_between(cut(s0_0=1, s1_0=1), cut(s4_3=1, s5_4=2)), 7, 2),
    "all epochs, 4 chunks": (lambda stream: list(stream.epochs(0, 7)), 5, 0),
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


@pytest.mark.parametrize("count", [1, 2, 8])
def test_a_scale_makes_calls_in_proportion_to_the_segments_it_seals(count: int) -> None:
    counter = CallCounter(MemoryStore())
    store = StreamStore.open(counter, system=components())
    store.create_scope(SCOPE)
    stream = store.create_stream(SCOPE, STREAM, segments=count)
    ranges = [(each.key_start, each.key_end) for each in stream.active_segments()]
    stream.scale(range(count), ranges)
    counter.calls = 0
    stream.scale(stream.active_segments().ids.tolist(), ranges)
    assert counter.calls <= 30 + 3 * count + count + 2


def test_a_read_after_a_write_by_another_client_sees_it() -> None:
    bench = Bench()
    stream = bench.create()
    assert stream.current_epoch().epoch == 0
    assert stream.segments_between({}, {}).tolist() == ids("0@0", "1@0")
    bench.scale_once()
    assert stream.current_epoch().epoch == 1
    assert stream.segments_between({}, {}).tolist() == ids("0@0", "1@0", "2@1")
