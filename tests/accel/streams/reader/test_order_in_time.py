"""Events are held back for segments that may have older ones: in history until they are there, at the tail shortly."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.history.rules.segments import SegmentRecord
from accel.history.rules.values import make_id
from accel.streams.rules.arrival_order import PassCause
from accel.streams.rules.events import EventBatch
from accel.streams.rules.frontier import Frontier
from accel.streams.rules.reader_core import NEAR_TAIL_SECONDS, AskEnd, Fill, ReaderCore, SegmentEnd, SegmentEvents, Step
from accel.streams.rules.settings import ReaderSettings
from accel.testing import LatencyModel
from tests.accel.streams.reader.story import KEYS, Story, fill_of, taken, told
from tests.accel.streams.reader.test_reader_core import grown, reader
from tests.examples import examples, swept

TURNS_MAX = 200_000


@dataclass
class Reading:
    """Reads to the end as readers do: what is held back is not taken, and requests are answered when they are due.

    Attributes:
        answer: gives the answer to a request, which takes so many seconds.
        now: the time that it took.
        most_bytes: that were in memory.
    """

    core: ReaderCore
    answer: Callable[[Step], SegmentEvents | SegmentEnd]
    seconds_of: Callable[[Step], float] = lambda _: 0.001
    now: float = 0.0
    most_bytes: int = 0

    @classmethod
    def of(
        cls, story: Story, core: ReaderCore, random: Random, seconds: Callable[[], float] = lambda: 0.001
    ) -> Reading:
        """Of a story, whose answers are short at random."""

        def answer(step: Step) -> SegmentEvents | SegmentEnd:
            return story.fill(step, random) if isinstance(step, Fill) else story.end(step.segment_id)

        return cls(core, answer, lambda _: seconds())

    def __iter__(self) -> Iterator[EventBatch]:
        due: list[tuple[float, int, float, Step]] = []
        for turn in range(TURNS_MAX):
            self.core.pass_time(self.now)
            for number, step in enumerate(self.core.next_steps()):
                seconds = self.seconds_of(step)
                heapq.heappush(due, (self.now + seconds, turn * 10_000 + number, seconds, step))
            self.most_bytes = max(self.most_bytes, self.core.buffered_bytes)
            if self.core.is_finished:
                return
            left = self.core.hold_seconds()
            batch = None if left > 0 else self.core.take()
            if batch is not None:
                yield batch
            elif due and (left == 0 or due[0][0] <= self.now + left):
                self.now, _, seconds, step = heapq.heappop(due)
                self.core.pass_time(self.now)
                found = self.answer(step)
                if isinstance(step, Fill) and isinstance(found, SegmentEvents):
                    self.core.take_events(step, found, seconds)
                elif isinstance(step, AskEnd) and isinstance(found, SegmentEnd):
                    self.core.take_end(step, found)
            else:
                assert left > 0, "nothing is held back, under way or at hand"
                self.now += left
        raise AssertionError("expected the reader to come to an end")


LATENCIES: dict[str, Callable[[Random], float]] = {
    "in time": lambda random: random.uniform(0.0, 9.0),
    "some hang": lambda random: random.choice((0.01, 5.0, 1000.0)),
}


@pytest.mark.parametrize("latency", LATENCIES)
@settings(max_examples=examples(50), deadline=None)
@given(random=st.randoms(use_true_random=False), acts=st.integers(0, 40))
def test_however_long_requests_take_the_order_is_that_of_time_and_no_event_is_lost(
    latency: str, random: Random, acts: int
) -> None:
    story = grown(random, acts)
    core = reader(story, story.beginning(), requests_max=random.randint(1, 5))
    batches = list(Reading.of(story, core, random, lambda: LATENCIES[latency](random)))
    values = [batch.value for batch in batches]
    assert values == sorted(values)
    assert told(event for batch in batches for event in batch) == story.told
    assert set(core.passes.values()) == {0}


@settings(max_examples=examples(40), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 40))
def test_a_reader_that_may_pass_late_segments_counts_what_it_passed(random: Random, acts: int) -> None:
    story = grown(random, acts)
    core = reader(story, story.beginning(), requests_max=random.randint(1, 5), passes_late_segments=True)
    batches = list(Reading.of(story, core, random, lambda: LATENCIES["some hang"](random)))
    assert told(event for batch in batches for event in batch) == story.told
    values = [batch.value for batch in batches]
    assert values == sorted(values) or core.passes[PassCause.TIMED_OUT]
    assert not core.take_overdue()


class Held:
    """A reader of two segments in history: one was answered, the request of the other runs."""

    def __init__(self, *, passes_late_segments: bool = False) -> None:
        self.story = Story(2)
        for _ in range(4):
            self.story.append([0])
            self.story.append([KEYS - 1])
        beginning = self.story.beginning()
        self.core = reader(self.story, beginning, fill_bytes=1, passes_late_segments=passes_late_segments)
        self.wait_seconds = self.core.settings.history_wait_seconds
        slow, fast = self.core.next_steps()
        self.slow, self.fast = slow, fast
        self.story.answer(self.core, fast)


def test_a_segment_in_history_is_waited_for_until_it_is_overdue() -> None:
    held = Held()
    core = held.core
    assert core.hold_seconds() == held.wait_seconds == 120
    core.pass_time(held.wait_seconds - 1)
    assert core.hold_seconds() == 1
    assert not core.take_overdue()
    core.pass_time(held.wait_seconds)
    assert core.hold_seconds() > 0
    assert core.take_overdue() == {held.slow.segment_id: 0}
    assert not core.take_overdue()
    assert core.hold_seconds() == held.wait_seconds  # the caller asks again
    held.story.answer(core, held.slow)
    assert core.hold_seconds() == 0
    assert taken(core) == held.slow.segment_id
    assert set(core.passes.values()) == {0}


def test_a_late_segment_is_passed_until_it_is_answered_where_the_reader_may_pass_it() -> None:
    held = Held(passes_late_segments=True)
    core = held.core
    assert core.hold_seconds() == held.wait_seconds
    core.pass_time(held.wait_seconds)
    assert core.hold_seconds() == 0
    assert core.hold_seconds() == 0
    assert core.passes[PassCause.TIMED_OUT] == 1
    assert not core.take_overdue()
    held.story.answer(core, held.slow)
    assert taken(core) == held.slow.segment_id
    fill_of(core, held.slow.segment_id)
    assert core.hold_seconds() == held.wait_seconds  # it is waited for again
    assert core.passes[PassCause.TIMED_OUT] == 1


@pytest.mark.parametrize("may_pass", [False, True])
def test_a_segment_in_history_is_waited_for_while_its_failed_request_is_repeated(may_pass: bool) -> None:
    held = Held(passes_late_segments=may_pass)
    core = held.core
    assert core.hold_seconds() == held.wait_seconds
    for second in range(1, 50):
        core.pass_time(second)
        core.note_failure(held.slow)
        held.slow = fill_of(core, held.slow.segment_id)
        assert core.hold_seconds() == held.wait_seconds - second  # all repetitions together
    assert set(core.passes.values()) == {0}


def test_a_segment_whose_request_failed_for_good_is_passed_only_where_the_reader_may() -> None:
    for may_pass in (False, True):
        held = Held(passes_late_segments=may_pass)
        core = held.core
        assert core.hold_seconds() > 0
        core.note_lost(held.slow)
        assert (core.hold_seconds() == 0) is may_pass
        core.note_failure(held.slow)
        again = fill_of(core, held.slow.segment_id)
        assert (core.hold_seconds() == 0) is may_pass
        assert core.passes[PassCause.FAILED] == 2 * may_pass  # each request
        held.story.answer(core, again)
        assert taken(core) == held.slow.segment_id
        core.next_steps()
        assert core.hold_seconds() == held.wait_seconds


def test_a_sealed_segment_that_has_more_than_is_visible_is_waited_for() -> None:
    story = Story(2)
    first, second = story.active
    story.append([0])
    story.append([KEYS - 1])
    story.split(first)
    core = reader(story, story.beginning(), fill_bytes=1000, buffer_bytes_max=10_000)
    for step in core.next_steps():
        if step.segment_id == second.id:
            story.answer(core, step)
        elif isinstance(step, Fill):
            core.take_events(step, SegmentEvents((), 0))
    for step in core.next_steps():
        story.answer(core, step)
    assert core.idle == {first.id: 0}
    assert core.hold_seconds() == core.settings.history_wait_seconds
    core.pass_time(core.settings.history_wait_seconds)
    core.hold_seconds()
    assert core.take_overdue() == {first.id: 0}
    core.retry_idle()
    story.answer(core, fill_of(core, first.id))
    assert core.hold_seconds() == 0


def test_a_segment_that_waits_for_a_free_request_is_not_late_while_others_are_answered() -> None:
    story = Story(4)
    story.append(range(KEYS))
    core = reader(story, story.beginning(), fill_bytes=1000, buffer_bytes_max=10_000, requests_max=1)
    for turn in range(4):
        [step] = core.next_steps()
        core.hold_seconds()
        core.pass_time(turn * 100.0 + 100)
        core.hold_seconds()
        assert not core.take_overdue()
        story.answer(core, step)
        assert (core.hold_seconds() > 0) is (turn < 3)
    assert core.take() is not None


def test_a_segment_that_waits_for_a_free_request_is_late_where_nobody_is_answered() -> None:
    story = Story(2)
    story.append(range(KEYS))
    core = reader(story, story.beginning(), fill_bytes=1000, buffer_bytes_max=10_000, requests_max=1)
    [step] = core.next_steps()
    story.answer(core, step)
    core.next_steps()  # the end of this segment is asked for, and never answered
    assert core.hold_seconds() == core.settings.history_wait_seconds
    core.pass_time(core.settings.history_wait_seconds)
    core.hold_seconds()
    [waiting] = set(story.segments) - {step.segment_id}
    assert core.take_overdue() == {waiting: 0}


def test_a_follower_that_was_not_called_for_an_hour_waits_as_in_history() -> None:
    tail = Tail()
    tail.story.append([0])
    tail.story.append([KEYS - 1])
    tail.core.pass_time(3600.0)
    asked = tail.fill_both()
    tail.answer(asked[tail.high], 2)
    assert tail.core.hold_seconds() == tail.core.settings.history_wait_seconds
    tail.answer(asked[tail.low], 2)
    assert tail.core.hold_seconds() == 0
    assert taken(tail.core) == tail.low


def test_a_follower_that_looked_a_moment_ago_waits_as_at_the_tail() -> None:
    tail = Tail()
    tail.story.append([KEYS - 1])
    tail.core.pass_time(NEAR_TAIL_SECONDS)
    asked = tail.fill_both()
    tail.answer(asked[tail.high], 2)
    assert 0 < tail.core.hold_seconds() <= 0.1
    tail.core.pass_time(3600.0)  # while its request runs
    assert tail.core.hold_seconds() == 0
    assert tail.core.passes[PassCause.TAIL] == 1


def test_at_the_tail_a_segment_whose_request_failed_is_passed_until_one_is_answered() -> None:
    tail = Tail()
    tail.story.append([KEYS - 1])
    asked = tail.fill_both()
    tail.answer(asked[tail.high], 2)
    for second in range(20):
        tail.core.pass_time(float(second))
        tail.core.note_failure(asked[tail.low])
        asked[tail.low] = fill_of(tail.core, tail.low)
        assert tail.core.hold_seconds() == 0
    assert tail.core.passes[PassCause.FAILED] == 20


@settings(max_examples=examples(40), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 60))
def test_memory_is_bounded_while_events_are_held_back_and_successors_filled_ahead(random: Random, acts: int) -> None:
    story = grown(random, acts)
    fill_bytes, most = random.choice((1, 16, 40)), random.choice((40, 64, 200))
    requests_max = random.randint(1, 5)
    core = reader(story, story.beginning(), fill_bytes=fill_bytes, buffer_bytes_max=most, requests_max=requests_max)
    largest = max((batch.size_bytes for batches in story.batches.values() for batch in batches), default=0)
    for _ in Reading.of(story, core, random, lambda: random.choice((0.01, 5.0, 100.0))):
        # Each segment may have one request whatever the bound says, and a fill ends with the batch that reaches it.
        each_once = len(core.position()) * (fill_bytes + largest)
        assert core.buffered_bytes <= most + requests_max * largest + each_once
    assert core.buffered_bytes == 0


# However slow the store is

REQUESTS = {Fill: 5, AskEnd: 4}  # one after the other, for each step


class History:
    """Segments of many events, which arrived at other places in time; half way each was sealed and followed by another.

    Args:
        segments: how many at a time.
        batches: how many in all, of an event each.
        weight: of a segment: its part of the batches.
    """

    def __init__(self, segments: int, batches: int, weight: Callable[[int], float] = lambda _: 1.0) -> None:
        random, total = Random(1), sum(map(weight, range(segments)))
        counts = [max(2, round(batches * weight(number) / total)) for number in range(segments)]
        moments = ((each, number) for number, count in enumerate(counts) for each in range(count))
        turns = sorted(((each + random.random()) / counts[number], number) for each, number in moments)
        bounds = list(pairwise(number / segments for number in range(segments + 1)))
        pairs = [
            (SegmentRecord(make_id(0, number), 0, *keys), SegmentRecord(make_id(1, segments + number), 1, *keys))
            for number, keys in enumerate(bounds)
        ]
        self.begun = [one for one, _ in pairs]
        self.following = {one.id: (other,) for one, other in pairs}
        self.batches: dict[int, list[EventBatch]] = {each.id: [] for pair in pairs for each in pair}
        for value, (moment, number) in enumerate(turns, 1):
            batches_of = self.batches[segment_id := pairs[number][moment >= 0.5].id]
            offsets, data = np.arange(len(batches_of), len(batches_of) + 2), np.array([0, 100])
            batches_of.append(EventBatch(segment_id, value, offsets, bytes(100), data))
        self.values = list(range(1, 1 + len(turns)))

    def reading(self, bounds: ReaderSettings, seconds_of: Callable[[Step], float], *, by_time: bool = True) -> Reading:
        frontier = Frontier(self.begun, dict.fromkeys(self.following, 0))
        core = ReaderCore(frontier, bounds, follow=False, by_time=by_time)
        return Reading(core, self.answer, seconds_of)

    def answer(self, step: Step) -> SegmentEvents | SegmentEnd:
        batches = self.batches[step.segment_id]
        if isinstance(step, AskEnd):
            following = self.following.get(step.segment_id, ())
            return SegmentEnd(len(batches) if following else None, following)
        found = tuple(batches[step.offset : step.offset + max(1, step.max_bytes // 100)])
        return SegmentEvents(found, step.offset + len(found), as_of=1)


WEIGHTS: dict[str, Callable[[int], float]] = {
    "even": lambda _: 1.0,
    "uneven": lambda number: 0.2 + number * 7 % 10 / 5,
    "few are hot": lambda number: (1 + number) ** -0.7,
}


@pytest.mark.parametrize(("segments", "weight"), swept(product([4, 8, 16, 17, 32, 64, 128], WEIGHTS)))
def test_the_order_of_time_costs_less_than_a_fifth_of_the_time_for_every_number_and_size_of_segments(
    segments: int, weight: str
) -> None:
    history = History(segments, 2560, WEIGHTS[weight])
    bounds = ReaderSettings(fill_bytes=800, buffer_bytes_max=64 * 800)  # in the proportion of the defaults
    model, seconds = LatencyModel(), {}

    def seconds_of(step: Step) -> float:
        random = Random(f"{step.segment_id} {step.offset if isinstance(step, Fill) else None}")
        return sum(model.seconds(random, 0) for _ in range(REQUESTS[type(step)]))

    for by_time in (True, False):
        reading = history.reading(bounds, seconds_of, by_time=by_time)
        values = [batch.value for batch in reading]
        assert (values if by_time else sorted(values)) == history.values
        assert reading.most_bytes <= bounds.buffer_bytes_max
        assert not reading.core.take_overdue()
        seconds[by_time] = reading.now
    assert seconds[True] <= 1.18 * seconds[False]


@pytest.mark.parametrize("segments", [8, 64, 250])
def test_what_is_read_ahead_of_one_slow_segment_stays_within_the_bound(segments: int) -> None:
    history = History(segments, segments * 20)
    bounds = ReaderSettings(fill_bytes=400, buffer_bytes_max=16_000, history_wait_seconds=10_000.0)
    slow = min(history.batches)
    reading = history.reading(bounds, lambda step: 3000.0 if step.segment_id == slow else 0.1)
    assert [batch.value for batch in reading] == history.values
    batch_bytes = 100  # a request returns whole batches, at least one
    assert reading.most_bytes <= max(bounds.buffer_bytes_max, segments * batch_bytes)
    assert not reading.core.take_overdue()


def test_the_end_of_a_segment_in_history_is_asked_for_with_its_last_events_though_the_buffer_is_full() -> None:
    """An empty answer, which needs room, comes when most of them were taken; then all would wait for successors."""
    story = Story(1)
    [segment] = story.active
    for _ in range(3):
        story.append([0])
    story.split(segment)
    story.append([0])
    core = reader(story, story.beginning(), fill_bytes=20, buffer_bytes_max=20)
    asked = [(type(step), step.segment_id) for step in story.answer_all(core)]
    assert (AskEnd, segment.id) in asked
    assert core.position() == {segment.id: 0}
    events = [event for batch in Reading.of(story, core, Random(1)) for event in batch]
    assert told(events) == story.told


def test_the_end_is_not_asked_for_after_an_answer_that_contains_as_much_as_it_could() -> None:
    """A source counts the bytes of whole batches, so the payload of a full answer may be less than was requested."""
    story = Story(1)
    for _ in range(3):
        story.append([0])
    core = ReaderCore(story.frontier(story.beginning()), ReaderSettings(), follow=False)
    fill = fill_of(core)
    first = tuple(story.batches[fill.segment_id][:1])
    core.take_events(fill, story.fill(fill, None)._replace(batches=first, next_offset=1, has_more=True))
    following = fill_of(core)
    assert (following.offset, following.ahead_bytes > 0) == (1, True)


def test_an_early_question_for_the_end_makes_no_segment_idle() -> None:
    """An answer may be short for other reasons than the end."""
    story = Story(1)
    for _ in range(3):
        story.append([0])
    core = ReaderCore(story.frontier(story.beginning()), ReaderSettings(), follow=False)
    fill = fill_of(core)
    core.take_events(
        fill, story.fill(fill, None)._replace(batches=tuple(story.batches[fill.segment_id][:1]), next_offset=1)
    )
    [end] = core.next_steps()
    assert isinstance(end, AskEnd)
    story.answer(core, end)
    assert not core.idle
    assert not core.is_finished
    events = [event for batch in Reading.of(story, core, Random(1)) for event in batch]
    assert told(events) == story.told


# How far behind a reader is


def test_lag_is_the_age_of_the_first_event_that_was_not_taken() -> None:
    story = Story(2)
    story.append([0], 10)
    story.append([KEYS - 1], 20)
    story.append([0], 30)
    core = reader(story, story.beginning(), fill_bytes=1000, buffer_bytes_max=10_000)
    low, high = (each.id for each in story.active)
    assert (core.lag(100), core.lags(100)) == (None, {low: None, high: None})  # nothing is known yet
    asked = {step.segment_id: step for step in core.next_steps()}
    story.answer(core, asked[low])
    assert (core.lag(100), core.lags(100)) == (None, {low: 90, high: None})
    story.answer(core, asked[high])
    assert (core.lag(100), core.lags(100)) == (90, {low: 90, high: 70})
    core.take()
    assert (core.lag(100), core.lags(100)) == (70, {low: 40, high: 70})
    core.take()
    assert core.lags(100) == {low: 40, high: 70}  # whether this segment has more is not known yet
    story.answer_all(core)
    assert (core.lag(100), core.lags(100)) == (40, {low: 40, high: 0})
    core.take()
    assert (core.lag(100), core.lag(10**9)) == (0, 0)
    assert core.lag(5) == 0  # the clock of the reader is behind


def test_the_lag_of_a_follower_that_has_read_all_is_the_time_since_it_looked() -> None:
    tail = Tail()
    tail.story.append([0, KEYS - 1], 10)
    asked = tail.fill_both()
    for segment_id in (tail.low, tail.high):
        tail.answer(asked[segment_id], 2)
    while tail.core.take() is not None:
        pass
    tail.core.pass_time(100.0)
    for _ in range(2):  # no more events; not sealed
        for step in tail.core.next_steps():
            tail.answer(step, 2)
    assert tail.core.lag(8 * 3600 * 1000) == 0
    tail.core.pass_time(101.5)
    assert tail.core.lag(8 * 3600 * 1000) == 1500
    tail.fill_both()  # the next requests hang
    tail.core.pass_time(3600.0)
    assert tail.core.lag(10**12) == 3_500_000
    assert tail.core.lag(1010) == 1000  # the last event that was taken arrived later than the last look


def test_events_of_which_nobody_knows_the_time_say_nothing_about_lag() -> None:
    story = Story(1)
    story.append([0], later=0)
    core = reader(story, story.beginning(), fill_bytes=1000, buffer_bytes_max=10_000)
    story.answer(core, fill_of(core))
    assert (story.value, core.lag(1_000_000)) == (0, None)
    core.take()
    assert core.lag(1_000_000) is None
    story.answer_all(core)
    assert core.lag(1_000_000) == 0


def test_a_reader_without_segments_knows_no_lag() -> None:
    core = ReaderCore(Frontier(), ReaderSettings(), is_member=True)
    assert (core.lag(100), core.lags(100)) == (None, {})


def test_a_segment_that_has_nothing_older_is_not_waited_for() -> None:
    story = Story(2)
    story.append([0], later=5)
    story.append([KEYS - 1], later=0)
    core = reader(story, story.beginning(), fill_bytes=1)
    for step in core.next_steps():
        story.answer(core, step)
    assert core.take() is not None
    assert core.is_awaited
    assert core.hold_seconds() == 0


def test_who_waits_for_nothing_takes_what_is_at_hand() -> None:
    story = Story(2)
    story.append([0, KEYS - 1])
    frontier = story.frontier
    never = ReaderSettings(reorder_wait_seconds=0)
    for core in (
        ReaderCore(frontier(story.beginning()), never),
        ReaderCore(frontier(story.beginning()), ReaderSettings(), by_time=False),
    ):
        _, second = core.next_steps()
        story.answer(core, second)
        assert core.hold_seconds() == 0


class Tail:
    """A reader of two segments that was at the end of both, in picture 1; what comes now comes in a later one."""

    def __init__(self) -> None:
        self.story = Story(2)
        self.core = ReaderCore(self.story.frontier(self.story.beginning()), ReaderSettings(), follow=True)
        self.low, self.high = (each.id for each in self.story.active)
        for picture in (1, 1):
            for step in self.core.next_steps():
                self.answer(step, picture)
        assert set(self.core.idle) == {self.low, self.high}

    def answer(self, step: Step, picture: int, took_seconds: float = 0.02) -> None:
        if isinstance(step, Fill):
            self.core.take_events(step, self.story.fill(step)._replace(as_of=picture), took_seconds)
        else:
            self.core.take_end(step, self.story.end(step.segment_id))

    def fill_both(self) -> dict[int, Step]:
        self.core.retry_idle()
        return {step.segment_id: step for step in self.core.next_steps()}


def test_at_the_tail_a_segment_is_waited_for_as_long_as_requests_take() -> None:
    tail = Tail()
    for _ in range(40):  # requests that bring events take 20 ms
        tail.story.append([KEYS - 1])
        asked = tail.fill_both()
        tail.answer(asked[tail.low], 2)
        tail.answer(asked[tail.high], 2)
        for step in tail.core.next_steps():
            tail.answer(step, 2)
        while tail.core.take() is not None:
            pass
        for step in tail.core.next_steps():
            tail.answer(step, 2)
        for step in tail.core.next_steps():
            tail.answer(step, 2)
    tail.story.append([KEYS - 1])
    asked = tail.fill_both()
    tail.answer(asked[tail.high], 3)
    assert 0.02 <= tail.core.hold_seconds() < 0.05
    tail.core.pass_time(0.05)
    assert tail.core.hold_seconds() == 0
    assert tail.core.passes[PassCause.TAIL] == 1


def test_at_the_tail_what_was_found_in_one_picture_waits_for_nobody() -> None:
    tail = Tail()
    tail.story.append([KEYS - 1])
    asked = tail.fill_both()
    tail.answer(asked[tail.high], 2)
    assert tail.core.hold_seconds() > 0
    tail.answer(asked[tail.low], 2)
    assert tail.core.is_awaited  # whether the other one is sealed is asked
    assert tail.core.hold_seconds() == 0


def test_at_the_tail_what_may_come_from_a_newer_picture_than_it_is_complete_for_waits() -> None:
    tail = Tail()
    tail.story.append([KEYS - 1])
    asked = tail.fill_both()
    tail.answer(asked[tail.low], 2)
    high = asked[tail.high]
    assert isinstance(high, Fill)
    tail.core.take_events(high, tail.story.fill(high)._replace(as_of=2, newest=3), 0.02)
    assert tail.core.hold_seconds() > 0


def test_an_idle_segment_is_asked_anew_once_others_have_news_of_a_newer_picture() -> None:
    tail = Tail()
    tail.story.append([KEYS - 1, 0])
    tail.core.retry_idle()
    both = {step.segment_id: step for step in tail.core.next_steps()}
    nothing = SegmentEvents((), 0, as_of=1)
    low = both[tail.low]
    assert isinstance(low, Fill)
    tail.core.take_events(low, nothing)
    [end] = tail.core.next_steps()
    tail.answer(end, 1)
    assert tail.low in tail.core.idle
    tail.answer(both[tail.high], 2)
    assert tail.core.hold_seconds() > 0
    again = fill_of(tail.core, tail.low)
    tail.core.take_events(again, nothing)  # from a source that is behind: it is not asked for ever
    assert tail.core.hold_seconds() == 0
