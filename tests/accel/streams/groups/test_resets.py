"""A group goes on elsewhere: at a cut, at the head, at the tail, at a time; and what its readers notice of it."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.errors import IllegalState
from accel.history.store import Stream
from accel.streams.rules.events import EventBatch
from accel.streams.rules.reader_core import AskEnd, Fill, SegmentEnd, SegmentEvents
from accel.streams.segment_source import cut_at
from tests.accel.history.store.bench import Bench
from tests.accel.streams.groups.team import NEVER_SECONDS, Team, one_batch, written
from tests.accel.streams.reader.streams import Shop, by_key
from tests.examples import examples


def test_a_group_without_readers_goes_back_and_forth(orders: Shop, readers: Team) -> None:
    written(orders, 24)
    assert by_key(readers.join("a", follow=False)) == orders.written
    tail = readers.group.position()
    assert readers.group.reset() == {0: 0, 1: 0}
    assert by_key(readers.join("b", follow=False)) == orders.written
    assert readers.group.reset() == {0: 0, 1: 0}
    assert readers.group.reset(tail) == tail == readers.group.position()
    assert list(readers.join("c", follow=False)) == []
    assert readers.group.reset_to_time(orders.source(), None) == tail


def test_a_group_with_readers_is_not_reset_unless_they_are_sent_away(orders: Shop, readers: Team) -> None:
    written(orders, 24)
    member = readers.join("a", every_seconds=NEVER_SECONDS)
    before = [next(member) for _ in range(5)]
    with pytest.raises(IllegalState, match=r"without readers, or evict=True, found 1: a"):
        readers.group.reset()
    assert [each.name for each in readers.group.state().readers] == ["a"]
    readers.group.reset(evict=True)
    with pytest.raises(IllegalState, match="join again"):
        member.commit()  # nothing of before is stored
    assert readers.group.position() == {0: 0, 1: 0}
    readers.read_all()
    assert by_key(readers.events) == orders.written
    assert set(before) <= set(readers.own("a"))


def test_a_group_goes_on_where_events_of_a_time_begin(orders: Shop, readers: Team) -> None:
    """Through a scale: those of segments that were sealed by then do not come again."""
    for _ in range(3):
        written(orders, 12)
    orders.split()
    written(orders, 12)
    with orders.reader() as reader:
        events = list(reader)
    times = sorted({event.value for event in events})
    for time_ms in (times[0], times[len(times) // 2], times[-1]):
        readers.group.reset_to_time(orders.source(), time_ms)
        name = f"reader-{time_ms}"
        found = list(readers.join(name, follow=False))
        assert {each for each in events if each.value >= time_ms} <= set(found)
        assert len(found) == len(set(found))
    readers.group.reset_to_time(orders.source(), times[-1] + 1)
    assert list(readers.join("late", follow=False)) == []


def test_where_that_time_was_truncated_it_goes_on_at_the_head(orders: Shop, readers: Team) -> None:
    one_batch(orders, b"0:1", b"0:2")
    written(orders, 12)
    with orders.reader() as reader:
        list(itertools.islice(reader, 6))
        cut = reader.position()
    orders.stream.truncate(cut)
    orders.catalog.refresh()
    orders.accelerator.refresh()
    assert readers.group.reset_to_time(orders.source(), 0) == cut


class Batches:
    """A source that has batches of one segment, each with its time."""

    def __init__(self, sizes: list[int], times: list[int]) -> None:
        ends = list(itertools.accumulate(sizes))
        self.rows = list(zip([0, *ends], ends, times, strict=False))
        self.fills = 0

    def fill(self, fill: Fill) -> SegmentEvents:
        self.fills += 1
        for start, end, value in self.rows:
            if start <= fill.offset < end:
                batch = EventBatch(
                    fill.segment_id, value, np.arange(start, end + 1), b"", np.zeros(end - start + 1, int)
                )
                return SegmentEvents((batch,), end)
        return SegmentEvents((), fill.offset)

    def ask_end(self, step: AskEnd) -> SegmentEnd:
        """It takes writes."""
        del step
        return SegmentEnd(None)


@cache
def quiet_stream() -> Stream:
    """One segment, of which only a source knows what it holds."""
    bench = Bench()
    bench.create(1)
    return bench.stream()


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3)), max_size=30), st.integers(0, 60))
def test_the_cut_at_a_time_is_that_of_a_walk_and_takes_few_reads(rows: list[tuple[int, int]], time_ms: int) -> None:
    times = list(itertools.accumulate(step for _, step in rows))
    source = Batches([size for size, _ in rows], times)
    expected = next((start for start, _, value in source.rows if value >= time_ms), sum(size for size, _ in rows))
    assert cut_at(quiet_stream(), source, time_ms) == {0: expected}
    assert source.fills <= 4 * (expected + 2).bit_length() + 4
    assert cut_at(quiet_stream(), source, None) == {0: sum(size for size, _ in rows)}
