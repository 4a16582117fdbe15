"""The reader's decisions against a stream of which everything is known, whatever comes when."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.errors import InvalidArgument
from accel.streams.rules.events import Event
from accel.streams.rules.frontier import Frontier
from accel.streams.rules.reader_core import Fill, ReaderCore, Step
from accel.streams.rules.settings import ReaderSettings
from tests.accel.streams.reader.story import KEYS, Story, fill_of, is_tiling, small, taken, told
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


def reader(story: Story, cut: Mapping[int, int], stop: Mapping[int, int] | None = None, **bounds: Any) -> ReaderCore:
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


def test_the_successors_of_a_sealed_segment_are_filled_while_it_is_read() -> None:
    story = Story(1)
    [segment] = story.active
    story.append([0, KEYS - 1])
    story.split(segment)
    story.append([0, KEYS - 1])
    core = reader(story, story.beginning(), fill_bytes=1000, buffer_bytes_max=10_000)
    assert {step.segment_id for step in story.answer_all(core)} == set(story.segments)
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
    story.answer_all(core)
    assert core.take() is not None
    assert dict(core.position()) == {segment.id: 1}
    assert not core.is_finished
    assert core.take() is None
    assert set(core.position()) == set(story.following[segment.id])


def test_a_segment_that_gave_all_that_it_could_is_read_ahead_and_one_that_did_not_is_not() -> None:
    story = Story(2)
    for _ in range(5):
        story.append([0, KEYS - 1])
    core = ReaderCore(story.frontier(story.beginning()), small(buffer_bytes_max=64), follow=False)
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
    assert {size for _, size in ahead} == {0, 16}  # each of both segments has half of what half of the buffers is
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
    assert taken(core) == fast.segment_id
    assert core.is_awaited
    story.answer(core, slow)
    assert taken(core) == slow.segment_id


def test_an_idle_segment_does_not_hold_the_others_up() -> None:
    """Pitfall A24: what others may do while a segment has nothing was left open."""
    story = Story(2)
    story.append([0])
    core = ReaderCore(story.frontier(story.beginning()), small(), follow=True)
    story.answer_all(core)
    assert set(core.idle) == {number for number in story.segments if not story.batches[number]}
    assert not core.is_awaited
    assert core.take() is not None


def test_a_segment_that_gave_nothing_while_it_has_events_at_hand_is_filled_ahead_again() -> None:
    story = Story(1)
    story.append([0])
    core = ReaderCore(story.frontier(story.beginning()), small(fill_bytes=1000, buffer_bytes_max=10_000), follow=True)
    for _ in range(4):  # events, that the segment is not sealed; none, and that again
        [step] = core.next_steps()
        story.answer(core, step)
    assert core.next_steps() == []
    story.append([0])
    core.retry_idle()
    story.answer(core, fill_of(core))
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
    """Also of successors, which are filled ahead while their predecessor is read."""
    story = Story(2)
    story.append(range(KEYS))
    story.split(story.active[0])
    story.append(range(KEYS))
    core = reader(story, story.beginning(), fill_bytes=10_000, buffer_bytes_max=100_000)
    failed: set[int] = set()
    while steps := core.next_steps():
        for step in steps:
            if step.segment_id in failed:
                story.answer(core, step)
            else:
                failed.add(step.segment_id)
                core.note_failure(step)
    assert failed == {*story.segments}
    assert told(run(story, core, Random(1))) == story.told
    assert core.buffered_bytes == 0


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
