"""Walking through epochs by their changes gives the same as their records, in bounded memory."""

from __future__ import annotations

import tracemalloc
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings

from accel.errors import NotInHistory
from accel.history.rules import epochs
from accel.history.rules.cuts import between
from accel.history.rules.segments import NO_SEGMENTS
from accel.history.rules.values import IdMap
from loaders.store import MemoryStore
from tests.accel.history.rules.streams import Stream, new, streams, whole
from tests.accel.history.store.long_history import LongHistory
from tests.examples import examples

EXAMPLES = settings(max_examples=examples(100), deadline=None)


@EXAMPLES
@given(streams())
def test_a_walk_gives_each_epoch_as_it_was_recorded(given_stream: tuple[Stream, Random]) -> None:
    """Pitfall A1: the first epoch came twice, and later chunks from a wrong start (pravega issue 3058)."""
    stream, random = given_stream
    records = stream.records
    low = random.randrange(len(records))
    high = random.randrange(low, len(records))
    assert list(stream.walk(low, high)) == records[low : high + 1]
    found = [each for part in stream.segments_of(low, high) for each in part.ids.tolist()]
    assert sorted(found) == sorted({each.id for record in records[low : high + 1] for each in record.segments})


def test_predecessors_are_the_same_relation_seen_from_the_other_side() -> None:
    stream = new(2)
    stream.scale(whole(stream.current, 3, 1001))
    assert epochs.predecessors(3 | 1 << 32, stream.current, stream.epoch(0)) == {
        0: [2 | 1 << 32, 3 | 1 << 32],
        1: [3 | 1 << 32, 4 | 1 << 32],
    }
    assert epochs.predecessors(0, stream.epoch(0), None) == {}
    with pytest.raises(NotInHistory):
        epochs.predecessors(9, stream.epoch(0), None)


def test_a_walk_beyond_what_is_recorded_is_refused_and_a_gap_in_it_is_noticed() -> None:
    stream = new(1, chunk_size=1)
    for step in range(1, 4):
        stream.scale(whole(stream.current, 1, 1000 + step))
    with pytest.raises(NotInHistory, match="up to epoch 5"):
        list(stream.walk(0, 5))
    chunks = [each for each in stream.chunks(0, 3) if each.first_epoch != 2]
    with pytest.raises(NotInHistory, match="in epoch 2"):
        list(epochs.replay(stream.epoch(0), chunks, stream.epoch, 3))


def test_epoch_counts() -> None:
    stream = new(2)
    for count in (3, 1, 4):
        stream.scale(whole(stream.current, count, 1001))
    assert [(each.splits, each.merges) for each in stream.records] == [(0, 0), (2, 1), (2, 2), (3, 2)]
    assert [(each.splits, each.merges) for each in epochs.summaries(stream.walk(1, 3))] == [(0, 0), (0, 1), (1, 0)]


def test_walking_ten_thousand_epochs_holds_one_chunk_and_one_epoch() -> None:
    """Pitfall A6: a question about cuts built the record of every epoch in memory (pravega issue 5885)."""
    history = LongHistory(10_000, 10, MemoryStore())
    first = history.record(0)
    tracemalloc.start()
    try:
        start = epochs.place(IdMap(first.segments.ids, np.zeros(10)), first, [], history.record)
        parts = between(epochs.segments_of(first, map(history.chunk, range(10)), history.record, 9_999), start, None)
        count = sum(len(part) for part in parts)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 100_000
    assert peak_bytes < 4 * 2**20


def test_no_segments_are_a_part_like_any_other() -> None:
    assert list(between([NO_SEGMENTS], None, None)) == []
