"""The cut of a time: no event of this time or later is before it, and no segment is read again without need.

Clocks of hosts, of who scales and of who commits are all different, and change. A naive model walks from the head.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import UUID

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.errors import IllegalState
from accel.history.rules.epochs import EpochRecord, LastEvents, start_after
from accel.history.rules.values import TIME_MS_END, Integers
from accel.history.store import Stream
from accel.history.store.segment_host import StreamName
from accel.streams.rules.events import EventBatch
from accel.streams.rules.frontier import Frontier
from accel.streams.rules.reader_core import AskEnd, Fill, SegmentEnd, SegmentEvents
from accel.streams.segment_source import SegmentSource, cut_at
from accel.testing import MemorySegments
from tests.accel.history.store.bench import NAME, START_MS, Bench
from tests.examples import examples

Seen = set[tuple[int, int]]
"""Segment and offset of events."""

HOUR_MS = 3_600_000
SHIFTS_MS = st.integers(-3 * HOUR_MS, 3 * HOUR_MS)


class TimedSegments(MemorySegments):
    """Segments in memory whose events have times, as a host gave them; an event is one offset."""

    def __init__(self) -> None:
        super().__init__()
        self.times: dict[int, list[int]] = {}
        self.merged_ms = START_MS

    def arrive(self, segment_id: int, time_ms: int) -> None:
        """An event arrives, at the time that the segment's host has; times of a segment never fall."""
        self.append(NAME, segment_id, 1)
        times = self.times.setdefault(segment_id, [])
        times.append(max([time_ms, *times[-1:]]))

    def merge(
        self, stream: StreamName, ids: Integers, transactions: Sequence[UUID]
    ) -> Mapping[UUID, Mapping[int, int]]:
        """See `SegmentHost.merge`: all events have one time, that of the host."""
        offsets = super().merge(stream, ids, transactions)
        for segment_id, size in self.tails(stream, ids).items():
            times = self.times.setdefault(segment_id, [])
            times += [max([self.merged_ms, *times[-1:]])] * (size - len(times))
        return offsets

    def last_times(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:
        """See `SegmentHost.last_times`."""
        del stream
        return {each: self.times[each][-1] for each in ids.tolist() if self.times.get(each)}


@dataclass
class Source:
    """Reads what the host has; events of one time are one batch."""

    stream: Stream
    host: TimedSegments
    fills: int = 0

    def fill(self, fill: Fill) -> SegmentEvents:
        """See `SegmentSource.fill`."""
        self.fills += 1
        times = self.host.times.get(fill.segment_id, [])
        if fill.offset >= len(times):
            return SegmentEvents((), fill.offset)
        time_ms = times[fill.offset]
        offsets = np.arange(bisect_left(times, time_ms), bisect_right(times, time_ms) + 1)
        batch = EventBatch(fill.segment_id, time_ms, offsets, b"", np.zeros(len(offsets), int))
        return SegmentEvents((batch,), batch.next_offset)

    def ask_end(self, step: AskEnd) -> SegmentEnd:
        """See `SegmentSource.ask_end`."""
        size = self.stream.cuts.sealed_size(step.segment_id)
        following = self.stream.epochs.successors(step.segment_id)
        if size is None or step.segment_id in self.stream.active_segments().ids:
            return SegmentEnd(None)
        return SegmentEnd(size, tuple(self.stream.epochs.segment(each) for each in sorted(following)))


def read_from(stream: Stream, source: SegmentSource, times: Mapping[int, list[int]], cut: Mapping[int, int]) -> Seen:
    """The events after a cut."""
    position, seen = Frontier(stream.cuts.span(cut).segments, cut), set()
    to_read = position.started
    while to_read:
        segment_id = to_read.pop()
        count = len(times.get(segment_id, []))
        seen |= {(segment_id, offset) for offset in range(position.offset(segment_id), count)}
        end = source.ask_end(AskEnd(segment_id))
        if end.size is not None:
            to_read += position.finish(segment_id, end.successors)
    return seen


def naive_cut(
    stream: Stream, source: SegmentSource, times: Mapping[int, list[int]], time_ms: int | None
) -> Mapping[int, int]:
    """Read from the head as long as events are older, segment by segment."""
    head = stream.head()
    position = Frontier(stream.cuts.span(head).segments, head)
    to_read = position.started
    while to_read:
        segment_id = to_read.pop()
        known = times.get(segment_id, [])
        older = [offset for offset, value in enumerate(known) if time_ms is None or value < time_ms]
        position.advance(segment_id, max(len(older), position.offset(segment_id)))
        end = source.ask_end(AskEnd(segment_id))
        if end.size is not None and position.offset(segment_id) == len(known):
            to_read += position.finish(segment_id, end.successors)
    return position.cut()


@dataclass
class Timed(Bench):
    """A stream with hosts, each with a clock of its own."""

    host: TimedSegments = field(default_factory=TimedSegments)

    def check(self, time_ms: int | None) -> int:
        """Compare a cut with the naive one; return the number of reads."""
        stream = self.stream()
        source = Source(stream, self.host)
        cut = cut_at(stream, source, time_ms)
        assert stream.cuts.is_valid(cut)
        seen = read_from(stream, source, self.host.times, cut)
        wanted = {
            (segment_id, offset)
            for segment_id, offset in read_from(stream, source, self.host.times, stream.head())
            if time_ms is not None and self.host.times[segment_id][offset] >= time_ms
        }
        assert wanted <= seen
        assert seen == read_from(stream, source, self.host.times, naive_cut(stream, source, self.host.times, time_ms))
        return source.fills

    def segments_at_hide_nothing(self, time_ms: int) -> None:
        """The segments of a time come before all events of this time or later."""
        stream = self.stream()
        source = Source(stream, self.host)
        seen = read_from(stream, source, self.host.times, stream.segments_at(time_ms))
        everything = read_from(stream, source, self.host.times, stream.head())
        assert {each for each in everything if self.host.times[each[0]][each[1]] >= time_ms} <= seen


Act = tuple[str, int, int]
ACTS = st.lists(
    st.tuples(
        st.sampled_from(["write"] * 6 + ["split", "merge", "ask", "look", "begin", "commit", "truncate"]),
        st.integers(0, 7),
        SHIFTS_MS,
    ),
    min_size=4,
    max_size=40,
)


def act(bench: Timed, what: str, number: int, shift_ms: int) -> None:
    """Do something, with a clock that is off."""
    true_ms = bench.tick(60_000)
    bench.now_ms = max(true_ms + shift_ms, 0)  # the clock of who acts now
    bench.host.merged_ms = bench.now_ms
    try:
        stream = bench.stream()
        active = sorted(stream.active_segments(), key=lambda each: each.key_start)
        chosen = active[number % len(active)]
        if what == "write":
            for segment in (chosen, active[0]):
                bench.host.arrive(segment.id, bench.now_ms)
        elif what == "split":
            stream.split(chosen.id)
        elif what == "merge" and len(active) > 1:
            at = number % (len(active) - 1)
            stream.merge(active[at].id, active[at + 1].id)
        elif what == "ask":
            stream.request_split(chosen.id)
        elif what == "look":
            stream.carry_out_requests()
        elif what == "begin":
            bench.transaction(f"{number}-{true_ms}", commit=None)
        elif what == "commit" and bench.transactions:
            name = min(bench.transactions)
            with suppress(IllegalState):  # its lease was over, by the clock of somebody who looked
                stream.transactions.seal(bench.transactions.pop(name), commit=True)
                stream.commit()
        elif what == "truncate":
            stream.truncate(cut_at(stream, Source(stream, bench.host), true_ms - 10 * 60_000))
    finally:
        bench.now_ms = true_ms


@settings(max_examples=examples(100, few=8), deadline=None)
@given(ACTS, st.data())
def test_a_cut_of_a_time_skips_no_event_and_passes_what_it_can_whatever_the_clocks_say(
    acts: list[Act], data: st.DataObject
) -> None:
    bench = Timed()
    bench.now_ms = 10 * HOUR_MS
    bench.create(1)
    for what, number, shift_ms in acts:
        act(bench, what, number, shift_ms)
    known = sorted({value + step for values in bench.host.times.values() for value in values for step in (0, 1)})
    begun = [bench.stream().epochs.epoch(each).creation_time_ms for each in range(bench.stream().current_epoch().epoch)]
    for time_ms in data.draw(st.lists(st.sampled_from([0, TIME_MS_END - 1, *known, *begun]), max_size=8)):
        bench.check(time_ms)
        bench.segments_at_hide_nothing(time_ms)
    bench.check(None)


def split_often(bench: Timed, count: int) -> None:
    """Replace the segments one after the other; each gets an event before it is sealed."""
    for _ in range(count):
        bench.tick(1_000)
        for each in bench.stream().active_segments().ids.tolist():
            bench.host.arrive(each, bench.now_ms)
        bench.tick(1_000)
        bench.scale_once()


def test_with_right_clocks_the_search_begins_at_the_epoch_of_the_time() -> None:
    """An event for each key, and the same number of reads after 5 scales and after 25."""
    counts = []
    for scales in (5, 25):
        bench = Timed()
        bench.create(1)
        split_often(bench, scales)
        counts.append([bench.check(bench.now_ms - 3_500), bench.check(START_MS + 2_500), bench.check(None)])
    assert counts[0] == counts[1]


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3)), max_size=30), st.integers(0, 60))
def test_a_cut_takes_few_reads(batches: list[tuple[int, int]], later_ms: int) -> None:
    bench = Timed()
    bench.create(1)
    time_ms = START_MS
    for size, step_ms in batches:
        time_ms += step_ms
        for _ in range(size):
            bench.host.arrive(0, time_ms)
    before = sum(each < START_MS + later_ms for each in bench.host.times.get(0, []))
    assert bench.check(START_MS + later_ms) <= 4 * (before + 2).bit_length() + 4


def test_an_event_of_the_future_hides_nothing_and_does_not_move_later_epochs() -> None:
    bench = Timed()
    bench.create(2)
    split_often(bench, 3)
    year_ms = 365 * 24 * HOUR_MS
    bench.host.arrive(bench.stream().active_segments().ids.tolist()[0], bench.now_ms + year_ms)
    split_often(bench, 4)
    current = bench.stream().current_epoch()
    assert current.creation_time_ms <= bench.now_ms + 1
    assert current.sealed_until_ms > START_MS + year_ms
    for time_ms in range(START_MS, bench.now_ms + 2_000, 700):
        bench.check(time_ms)
    bench.check(bench.now_ms + year_ms // 2)


def test_an_epoch_begins_after_the_last_event_it_seals_though_the_clock_of_the_scale_is_behind() -> None:
    bench = Timed()
    bench.create(1)
    bench.tick(60_000)
    bench.host.arrive(0, bench.now_ms - 5)
    bench.stream().split(0, time_ms=START_MS + 7)
    assert bench.stream().current_epoch().creation_time_ms == bench.now_ms - 4


@given(
    st.integers(1, 100),
    st.integers(0, 50),
    st.integers(0, 200),
    st.one_of(st.none(), st.integers(0, 300)),
    st.integers(0, 200),
)
def test_the_next_epoch_begins_later_and_no_sealed_event_is_as_late_as_it_says(
    began_ms: int, late_ms: int, time_ms: int, last_ms: int | None, now_ms: int
) -> None:
    bench_segments = Timed().create(1).current_epoch().segments
    before = EpochRecord(0, 0, bench_segments, began_ms, late_ms=late_ms)
    start = start_after(before, time_ms, LastEvents(last_ms, now_ms))
    assert start.time_ms > began_ms
    assert start.time_ms >= time_ms
    assert start.late_ms >= 0
    until_ms = start.time_ms + start.late_ms
    assert until_ms >= before.sealed_until_ms
    assert last_ms is None or until_ms > last_ms
    assert start.time_ms <= max(began_ms + 1, time_ms, now_ms + 1)
