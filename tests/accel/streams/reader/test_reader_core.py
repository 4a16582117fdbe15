"""The reader's decisions against a stream of which everything is known, whatever comes when."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.errors import InvalidArgument
from accel.streams.rules.arrival_order import PassCause
from accel.streams.rules.events import Event, EventBatch
from accel.streams.rules.frontier import Frontier
from accel.streams.rules.reader_core import AskEnd, Fill, ReaderCore, SegmentEnd, SegmentEvents, Step
from accel.streams.rules.settings import ReaderSettings
from tests.accel.streams.reader.story import KEYS, Story, is_tiling, small, told
from tests.examples import examples

TURNS_MAX = 5_000


def grown(random: Random, acts: int) -> Story:
    story = Story(random.randint(1, 3))
    for _ in range(acts):
        story.act(random)
    return story


def run(
    story: Story,
    core: ReaderCore,
    random: Random,
    *,
    events_max: int | None = None,
    under_way: list[Step] | None = None,
    between: Callable[[], object] = lambda: None,
) -> list[Event]:
    """Read to the end, or so many events, answering in any order; what is under way then stays unanswered."""
    given_events: list[Event] = []
    under_way = [] if under_way is None else under_way
    for _ in range(TURNS_MAX):
        if core.is_finished or (events_max is not None and len(given_events) >= events_max):
            return given_events
        under_way.extend(core.next_steps())
        assert len(under_way) <= core.settings.requests_max
        between()
        if under_way and random.random() < 0.6:
            story.answer(core, under_way.pop(random.randrange(len(under_way))), random)
        batch = core.take()
        if batch is not None:
            given_events += batch
        elif not under_way:
            core.retry_idle()
    raise AssertionError("expected the reader to come to an end")


def reader(story: Story, cut: Mapping[int, int], stop: Mapping[int, int] | None = None, **bounds: int) -> ReaderCore:
    return ReaderCore(story.frontier(cut), small(**bounds), stop=stop, follow=False)


@settings(max_examples=examples(80), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 60))
def test_every_event_comes_once_and_each_key_in_its_order(random: Random, acts: int) -> None:
    story = grown(random, acts)
    core = reader(story, story.beginning(), requests_max=random.randint(1, 5))
    assert told(run(story, core, random)) == story.told
    assert dict(core.position()) == story.ends()


@settings(max_examples=examples(80), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 60))
def test_a_reader_that_begins_at_a_position_gives_the_rest(random: Random, acts: int) -> None:
    story = grown(random, acts)
    first = reader(story, story.beginning())
    before = run(story, first, random, events_max=random.randint(0, story.count))
    cut = dict(first.position())
    assert is_tiling(story, cut)
    rest = run(story, reader(story, cut), random)
    both, here = told(before), told(rest)
    assert {key: both[key] + here[key] for key in range(KEYS)} == story.told


@settings(max_examples=examples(40), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 60))
def test_a_reader_between_two_cuts_gives_what_lies_between(random: Random, acts: int) -> None:
    story = grown(random, acts)
    first = reader(story, story.beginning())
    before = run(story, first, random, events_max=random.randint(0, story.count))
    end = dict(first.position())
    second = reader(story, story.beginning(), stop=end)
    assert told(run(story, second, random)) == told(before)
    assert dict(second.position()) == end


@settings(max_examples=examples(40), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 40))
def test_a_reader_follows_a_stream_that_grows(random: Random, acts: int) -> None:
    story = Story(2)
    left = [acts]

    def grow() -> None:
        if left[0] and random.random() < 0.2:
            left[0] -= 1
            story.act(random)

    core = ReaderCore(story.frontier(story.beginning()), small(), follow=True)
    events: list[Event] = []
    under_way: list[Step] = []
    while left[0] or len(events) < story.count:
        grow()
        if len(events) < story.count:
            events += run(story, core, random, events_max=1, under_way=under_way, between=grow)
    assert told(events) == story.told
    assert not core.is_finished


@settings(max_examples=examples(40), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 60))
def test_where_everything_is_at_hand_events_come_in_the_order_of_time(random: Random, acts: int) -> None:
    story = Story(4)
    for _ in range(acts):
        story.append(random.choices(range(KEYS), k=3), random.randint(0, 3))
    core = ReaderCore(story.frontier(story.beginning()), ReaderSettings(), follow=False)
    given_events: list[Event] = []
    while not core.is_finished:
        for step in core.next_steps():
            story.answer(core, step)
        while (batch := core.take()) is not None:
            given_events += batch
    order = [(each.value, each.segment_id, each.offset) for each in given_events]
    assert order == sorted(order)


def in_order(
    story: Story, core: ReaderCore, random: Random, took_seconds: Callable[[], float] = lambda: 0.001
) -> Iterator[EventBatch]:
    """Read to the end as readers do: what is held back is not taken, and requests are answered when they are due."""
    now, due = 0.0, list[tuple[float, int, float, Step]]()
    for turn in range(TURNS_MAX):
        core.pass_time(now)
        for step in core.next_steps():
            seconds = took_seconds()
            heapq.heappush(due, (now + seconds, turn * 100 + len(due), seconds, step))
        if core.is_finished:
            return
        left = core.hold_seconds()
        batch = None if left > 0 else core.take()
        if batch is not None:
            yield batch
        elif due and (left == 0 or due[0][0] <= now + left):
            now, _, seconds, step = heapq.heappop(due)
            core.pass_time(now)
            found = story.fill(step, random) if isinstance(step, Fill) else story.end(step.segment_id)
            if isinstance(step, Fill) and isinstance(found, SegmentEvents):
                core.take_events(step, found, seconds)
            elif isinstance(step, AskEnd) and isinstance(found, SegmentEnd):
                core.take_end(step, found, seconds)
        else:
            assert left > 0, "nothing is held back, under way or at hand"
            now += left
    raise AssertionError("expected the reader to come to an end")


@settings(max_examples=examples(60), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 40))
def test_where_every_segment_answers_in_time_the_order_is_that_of_time(random: Random, acts: int) -> None:
    story = grown(random, acts)
    core = reader(story, story.beginning(), requests_max=random.randint(1, 5))
    batches = list(in_order(story, core, random, lambda: random.uniform(0.0, 9.0)))
    assert [batch.value for batch in batches] == sorted(batch.value for batch in batches)
    assert told(event for batch in batches for event in batch) == story.told
    assert set(core.passes.values()) == {0}


@settings(max_examples=examples(40), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 40))
def test_requests_that_hang_cost_order_and_neither_events_nor_the_end(random: Random, acts: int) -> None:
    story = grown(random, acts)
    core = reader(story, story.beginning(), requests_max=random.randint(1, 5))
    batches = list(in_order(story, core, random, lambda: random.choice((0.01, 5.0, 1000.0))))
    assert told(event for batch in batches for event in batch) == story.told
    values = [batch.value for batch in batches]
    assert values == sorted(values) or core.passes[PassCause.TIMED_OUT]


def test_a_segment_whose_request_timed_out_is_passed_until_one_is_in_time() -> None:
    story = Story(2)
    for _ in range(4):
        story.append([0])
        story.append([KEYS - 1])
    core = reader(story, story.beginning(), fill_bytes=1)
    wait = core.settings.reorder_wait_seconds
    slow, fast = core.next_steps()
    story.answer(core, fast)
    core.pass_time(wait - 1)
    assert core.hold_seconds() == 1
    core.pass_time(wait)
    assert core.hold_seconds() == 0
    assert core.passes[PassCause.TIMED_OUT] == 1
    assert isinstance(slow, Fill)
    core.take_events(slow, story.fill(slow), took_seconds=wait + 1)
    first = core.take()
    assert first is not None
    assert first.segment_id == slow.segment_id
    asked = {step.segment_id: step for step in core.next_steps()}
    story.answer(core, asked[fast.segment_id])
    assert core.hold_seconds() == 0
    again = asked[slow.segment_id]
    assert isinstance(again, Fill)
    core.take_events(again, story.fill(again), took_seconds=0.1)
    assert [batch.segment_id for batch in (core.take(), core.take()) if batch] == [fast.segment_id, slow.segment_id]
    core.next_steps()
    assert core.hold_seconds() == wait
    assert core.passes[PassCause.TIMED_OUT] == 2  # the one that was late, and the next one


def test_a_segment_whose_request_failed_is_passed_until_one_is_answered() -> None:
    story = Story(2)
    story.append([0, KEYS - 1])
    core = reader(story, story.beginning(), fill_bytes=1000, buffer_bytes_max=10_000)
    failing, other = core.next_steps()
    story.answer(core, other)
    assert core.hold_seconds() > 0
    core.note_failure(failing)
    assert core.hold_seconds() == 0
    assert core.passes[PassCause.FAILED] == 1


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
            self.core.take_end(step, self.story.end(step.segment_id), took_seconds)

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
    [again] = [step for step in tail.core.next_steps() if step.segment_id == tail.low]
    assert isinstance(again, Fill)
    tail.core.take_events(again, nothing)  # from a source that is behind: it is not asked for ever
    assert tail.core.hold_seconds() == 0


def test_the_successors_of_a_sealed_segment_are_filled_while_it_is_read() -> None:
    story = Story(1)
    [segment] = story.active
    story.append([0, KEYS - 1])
    story.split(segment)
    story.append([0, KEYS - 1])
    core = reader(story, story.beginning(), fill_bytes=1000, buffer_bytes_max=10_000)
    asked = []
    while steps := core.next_steps():
        asked += [step.segment_id for step in steps]
        for step in steps:
            story.answer(core, step)
    assert set(asked) == set(story.segments)
    assert dict(core.position()) == {segment.id: 0}
    events = [event for batch in iter(core.take, None) for event in batch]
    assert told(events) == story.told
    assert core.is_finished


def test_a_segment_is_let_go_when_more_is_wanted_than_its_last_events() -> None:
    """Who stands within these must be able to go on there."""
    story = Story(1)
    [segment] = story.active
    story.append([0])
    story.split(segment)
    core = reader(story, story.beginning(), fill_bytes=1000, buffer_bytes_max=10_000)
    while steps := core.next_steps():
        for step in steps:
            story.answer(core, step)
    assert core.take() is not None
    assert dict(core.position()) == {segment.id: 1}
    assert not core.is_finished
    assert core.take() is None
    assert set(core.position()) == set(story.following[segment.id])


@settings(max_examples=examples(40), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 60))
def test_a_reader_takes_what_the_orderer_chooses(random: Random, acts: int) -> None:
    story = grown(random, acts)
    core = ReaderCore(story.frontier(story.beginning()), ReaderSettings(), follow=False)
    at_hand: dict[int, deque[EventBatch]] = {}
    under_way: list[Step] = []
    for _ in range(TURNS_MAX):
        if core.is_finished:
            break
        under_way.extend(core.next_steps())
        if under_way and random.random() < 0.5:
            step = under_way.pop(random.randrange(len(under_way)))
            if isinstance(step, Fill):
                found = story.fill(step, random)
                core.take_events(step, found)
                at_hand.setdefault(step.segment_id, deque()).extend(found.batches)
            else:
                story.answer(core, step)
            continue
        begun = {each for each, offset in core.position().items() if offset >= 0}
        heads = ((batches[0].value, each) for each, batches in at_hand.items() if batches and each in begun)
        lowest = min(heads, default=None)
        batch = core.take()
        assert (None if batch is None else (batch.value, batch.segment_id)) == lowest
        if batch is None:
            core.retry_idle()
        else:
            at_hand[batch.segment_id].popleft()
    assert core.is_finished


def test_memory_is_bounded_however_much_there_is() -> None:
    story = Story(3)
    for turn in range(500):
        story.append([turn % KEYS] * 4)
    core = ReaderCore(story.frontier(story.beginning()), small(buffer_bytes_max=200), follow=False)
    most = 0
    while not core.is_finished:
        for step in core.next_steps():
            story.answer(core, step)
        most = max(most, core.buffered_bytes)
        core.take()
    assert most <= 200 + 3 * (16 + 4 * len(b"15:1999"))
    assert core.buffered_bytes == 0


@settings(max_examples=examples(40), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 60))
def test_memory_is_bounded_while_events_are_held_back_and_successors_filled_ahead(random: Random, acts: int) -> None:
    story = grown(random, acts)
    fill_bytes, most = random.choice((1, 16, 40)), random.choice((40, 64, 200))
    requests_max = random.randint(1, 5)
    core = reader(story, story.beginning(), fill_bytes=fill_bytes, buffer_bytes_max=most, requests_max=requests_max)
    largest = max((batch.size_bytes for batches in story.batches.values() for batch in batches), default=0)
    for _ in in_order(story, core, random, lambda: random.choice((0.01, 5.0, 100.0))):
        # Each segment may have one request whatever the bound says, and a fill ends with the batch that reaches it.
        each_once = len(core.position()) * (fill_bytes + largest)
        assert core.buffered_bytes <= most + requests_max * largest + each_once
    assert core.buffered_bytes == 0


def test_a_segment_that_gave_all_that_it_could_is_read_ahead_and_one_that_did_not_is_not() -> None:
    story = Story(2)
    for _ in range(5):
        story.append([0, KEYS - 1])
    core = ReaderCore(story.frontier(story.beginning()), small(read_ahead_bytes=100), follow=False)
    first = [step for step in core.next_steps() if isinstance(step, Fill)]
    assert [step.ahead_bytes for step in first] == [0, 0]
    for each in first:
        story.answer(core, each)
    ahead = []
    while not core.is_finished:
        for step in core.next_steps():
            ahead += [(step.offset, step.ahead_bytes)] if isinstance(step, Fill) else []
            story.answer(core, step)
        core.take()
    assert {size for _, size in ahead} == {0, 50}  # each of both segments has half
    assert all(size == 0 for offset, size in ahead if offset >= 5)


def test_a_segment_with_little_room_left_is_asked_for_as_much_and_not_for_next_to_nothing() -> None:
    story = Story(1)
    for _ in range(50):
        story.append([0])
    core = ReaderCore(story.frontier(story.beginning()), small(fill_bytes=20, buffer_bytes_max=40), follow=False)
    asked = []
    while not core.is_finished:
        for step in core.next_steps():
            asked += [step.max_bytes] if isinstance(step, Fill) else []
            story.answer(core, step)
        core.take()
    assert 15 <= min(asked) < 20  # batches are whole: an answer brings more than was asked for


def test_a_segment_that_is_not_ready_does_not_block_the_others() -> None:
    story = Story(2)
    story.append([0, KEYS - 1, 0, KEYS - 1])
    story.append([0])
    core = reader(story, story.beginning(), fill_bytes=1)
    [slow, fast] = core.next_steps()
    story.answer(core, fast)
    batch = core.take()
    assert batch is not None
    assert batch.segment_id == fast.segment_id
    assert core.is_awaited
    story.answer(core, slow)
    batch = core.take()
    assert batch is not None
    assert batch.segment_id == slow.segment_id


def test_an_idle_segment_does_not_hold_the_others_up() -> None:
    """Pitfall A24: what others may do while a segment has nothing was left open."""
    story = Story(2)
    story.append([0])
    core = ReaderCore(story.frontier(story.beginning()), small(), follow=True)
    while steps := core.next_steps():
        for step in steps:
            story.answer(core, step)
    assert set(core.idle) == {number for number in story.segments if not story.batches[number]}
    assert not core.is_awaited
    assert core.take() is not None


def test_a_segment_that_gave_nothing_while_it_has_events_at_hand_is_filled_ahead_again() -> None:
    story = Story(1)
    story.append([0])
    core = ReaderCore(story.frontier(story.beginning()), small(fill_bytes=1000, buffer_bytes_max=10_000), follow=True)
    for _ in range(3):  # events, none, and that the segment is not sealed
        [step] = core.next_steps()
        story.answer(core, step)
    assert core.next_steps() == []
    story.append([0])
    core.retry_idle()
    [step] = core.next_steps()
    assert isinstance(step, Fill)
    story.answer(core, step)
    assert [len(core.take() or ()) for _ in range(3)] == [1, 1, 0]


def test_grace_is_asked_for_by_each_segment_that_is_awaited() -> None:
    story = Story(2)
    story.append(range(KEYS))
    core = reader(story, story.beginning(), fill_bytes=1000, buffer_bytes_max=10_000)
    first, second = core.next_steps()
    assert core.awaited == [first.segment_id, second.segment_id]
    story.answer(core, second)
    assert core.awaited == [first.segment_id]


def test_a_drained_sealed_segment_is_let_go_at_once_though_others_have_older_events() -> None:
    """Pitfall A23: a sealed segment that was read to its end waited for its turn, and its successors with it."""
    story = Story(2)
    first, second = story.active
    story.append([KEYS - 1])
    story.split(first)
    core = ReaderCore(story.frontier(story.beginning()), small(requests_max=1), follow=False)
    while first.id in core.position():
        [step] = core.next_steps()
        story.answer(core, step)
    assert second.id in core.position()
    assert set(story.following[first.id]) <= set(core.position())


def test_what_failed_is_asked_again_and_nothing_is_lost() -> None:
    story = Story(2)
    story.append(range(KEYS))
    core = reader(story, story.beginning(), fill_bytes=10_000, buffer_bytes_max=100_000)
    for step in core.next_steps():
        core.note_failure(step)
    assert core.buffered_bytes == 0
    assert told(run(story, core, Random(1))) == story.told


def test_a_sealed_segment_whose_end_is_not_to_be_seen_yet_is_not_done() -> None:
    story = Story(1)
    [segment] = story.active
    story.append([0])
    story.split(segment)
    core = reader(story, story.beginning())
    [fill] = core.next_steps()
    assert isinstance(fill, Fill)
    core.take_events(fill, story.fill(fill._replace(offset=99))._replace(next_offset=0))
    [step] = core.next_steps()
    story.answer(core, step)
    assert core.idle == {segment.id: 0}
    assert not core.is_finished
    assert told(run(story, core, Random(1))) == story.told


def test_an_end_beyond_that_of_a_sealed_segment_lets_nothing_in_that_follows() -> None:
    story = Story(2)
    first, second = story.active
    story.append(range(KEYS))
    ends = {first.id: story.size(first.id) + 10, second.id: 3}
    story.split(first)
    story.append(range(KEYS))
    core = reader(story, story.beginning(), stop=ends)
    events = run(story, core, Random(1))
    assert {each.segment_id for each in events} == {first.id, second.id}
    assert dict(core.position()) == {first.id: story.size(first.id), second.id: 3}


def test_events_of_which_nobody_knows_the_time_say_nothing_about_lag() -> None:
    story = Story(1)
    story.append([0], later=0)
    core = reader(story, story.beginning())
    run(story, core, Random(1))
    assert (story.value, core.lag(1_000_000)) == (0, 0)


def test_a_member_of_a_group_tells_what_it_finished_and_begins_nothing() -> None:
    story = Story(2)
    first, second = story.active
    story.append(range(KEYS))
    story.split(first)
    core = ReaderCore(Frontier(), small(fill_bytes=1000, buffer_bytes_max=10_000), is_member=True)
    core.add(first, 0)
    core.add(second, 2)
    events = run(story, core, Random(1), events_max=KEYS - 2)
    while not (done := core.take_finished()):
        for step in core.next_steps():
            story.answer(core, step)
    assert [(each.segment_id, [follower.id for follower in each.successors]) for each in done] == [
        (first.id, story.following[first.id])
    ]
    assert core.take_finished() == []
    assert len(events) == KEYS - 2
    assert core.remove(second.id) == story.size(second.id)
    assert not core.position()
    with pytest.raises(InvalidArgument):
        core.remove(second.id)


def test_a_segment_that_was_given_up_gives_nothing_more() -> None:
    story = Story(2)
    first, _ = story.active
    story.append(range(KEYS))
    core = ReaderCore(Frontier(), small(fill_bytes=1000, buffer_bytes_max=10_000), is_member=True)
    core.add(first, 0)
    [early] = core.next_steps()
    assert core.remove(first.id) == 0
    story.answer(core, early)
    assert (core.take(), core.buffered_bytes) == (None, 0)
    core.add(first, 3)
    [late] = core.next_steps()
    story.answer(core, late)
    batch = core.take()
    assert batch is not None
    assert batch.offset == 3
    assert core.take() is None


def test_lag_is_that_of_the_last_events_given() -> None:
    story = Story(2)
    story.append([0], 10)
    story.append([KEYS - 1], 20)
    core = reader(story, story.beginning(), fill_bytes=1000, buffer_bytes_max=10_000)
    low, high = (each.id for each in story.active)
    assert (core.lag(100), core.lag(100, low)) == (0, 0)
    for step in core.next_steps():
        story.answer(core, step)
    core.take()
    assert (core.lag(100), core.lag(100, low), core.lag(100, high)) == (90, 90, 0)
    core.take()
    assert (core.lag(100), core.lags(100), core.lag(20)) == (70, {low: 90, high: 70}, 0)


@settings(max_examples=examples(40), deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 60))
def test_skipping_to_the_head_gives_what_lies_behind_both(random: Random, acts: int) -> None:
    story = grown(random, acts)
    one, other = reader(story, story.beginning()), reader(story, story.beginning())
    under_way: list[Step] = []
    read = told(run(story, one, random, events_max=random.randint(0, story.count), under_way=under_way))
    gone = told(run(story, other, random, events_max=random.randint(0, story.count)))
    one.skip(story.frontier(dict(other.position())))
    rest = told(run(story, one, random, under_way=under_way))
    for key in range(KEYS):
        skipped = max(len(read[key]), len(gone[key]))
        assert rest[key] == story.told[key][skipped:], key


def test_bounds_that_make_no_sense_are_refused() -> None:
    for wrong in ({"fill_bytes": 0}, {"requests_max": 0}, {"reorder_wait_seconds": -1.0}, {"idle_seconds": 0.0}):
        with pytest.raises(ValueError, match="expected"):
            ReaderSettings(**wrong)
