"""Scaling: what may be asked for, what becomes of it, and what it leads to."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.errors import IllegalState, ScaleConflict, ScaleInputInvalid, ScalePrecondition
from accel.history.rules import scaling
from accel.history.rules.epochs import NO_TRANSITION
from accel.history.rules.scaling import ScaleRequest, ScaleVerdict
from accel.history.rules.segments import KeyRanges, split_range
from accel.history.rules.states import StreamState
from accel.history.rules.values import make_id, parse_segment
from tests.accel.history.rules.interpreter import by_id, increases
from tests.accel.history.rules.streams import Stream, some_scale, streams
from tests.accel.history.rules.world import World
from tests.examples import examples

SPLIT = ScaleRequest((1,), split_range(0.5, 1.0, 2), 1001)


def rolled(world: World, now_ms: int) -> None:
    """Commit a transaction of an older epoch, so that all segments are replaced by duplicates."""
    world.commit(now_ms, {}, {})


def with_old_transaction() -> World:
    """A stream in epoch 1, with a transaction of epoch 0 that waits for its commit."""
    world = World()
    world.initialize(2, 1000, min_segments=1)
    world.seal_transaction(world.create_transaction(), commit=True)
    world.scale(ScaleRequest((0,), split_range(0.0, 0.5, 1), 1001), {})
    return world


def two() -> World:
    world = World()
    world.initialize(2, 1000, min_segments=1)
    return world


def test_asking_twice_gives_the_stored_transition() -> None:
    world = two()
    assert world.submit_scale(SPLIT) is world.submit_scale(replace(SPLIT, time_ms=9999))


@pytest.mark.parametrize("other", [replace(SPLIT, seal=(0,)), replace(SPLIT, new_ranges=split_range(0.5, 1.0, 3))])
def test_another_scale_is_a_conflict_while_one_is_under_way(other: ScaleRequest) -> None:
    world = two()
    world.submit_scale(SPLIT)
    with pytest.raises(ScaleConflict) as caught:
        world.submit_scale(other)
    assert (caught.value.code, caught.value.retryable) == ("SCALE_CONFLICT", True)


def test_scale_input_holes_upstream() -> None:
    """Pitfall D6: An empty range, and a segment that is named twice, once passed."""
    world = two()
    with pytest.raises(ScaleInputInvalid):
        world.submit_scale(ScaleRequest((0,), KeyRanges.of([(0.0, 0.0), (0.0, 0.5)]), 1001))
    with pytest.raises(ScaleInputInvalid, match="once"):
        world.submit_scale(ScaleRequest((0, 0), KeyRanges.of([(0.0, 0.5)]), 1001))
    with pytest.raises(ScaleInputInvalid):
        world.submit_scale(ScaleRequest((), KeyRanges.of([]), 1001))


def test_segments_that_are_not_active_fail_before_ranges_are_looked_at() -> None:
    world = two()
    with pytest.raises(ScalePrecondition, match="7@3"):
        world.submit_scale(ScaleRequest((make_id(3, 7),), KeyRanges.of([]), 1001))


def test_too_few_segments_are_refused_after_the_ranges() -> None:
    world = World()
    world.initialize(2, 1000)
    with pytest.raises(ScalePrecondition, match="at least 2"):
        world.submit_scale(ScaleRequest((0, 1), split_range(0.0, 1.0, 1), 1001))


@pytest.mark.parametrize("state", [StreamState.SEALING, StreamState.SEALED])
def test_a_sealed_stream_is_not_scaled(state: StreamState) -> None:
    world = two()
    world.put("one", "state", state)
    with pytest.raises(IllegalState):
        world.submit_scale(SPLIT)


def test_new_segments_are_numbered_in_the_order_of_the_request() -> None:
    world = two()
    ranges = KeyRanges.of([(0.75, 1.0), (0.5, 0.75)])
    world.scale(ScaleRequest((1,), ranges, 1001), {})
    assert world.epoch(1).find(parse_segment("2@1")) == replace(
        world.current.segments[1], key_start=0.75, key_end=1.0, creation_time_ms=1001
    )


def test_an_epoch_begins_later_than_the_one_before_it() -> None:
    world = two()
    world.scale(replace(SPLIT, time_ms=5), {})
    assert world.current.creation_time_ms == 1001
    assert increases(world)


def test_auto_scale_discarded_after_rolling_txn() -> None:
    world = with_old_transaction()
    world.submit_scale(ScaleRequest((1,), split_range(0.5, 1.0, 2), 1002))
    rolled(world, 1003)
    world.set_state(StreamState.SCALING)
    with pytest.raises(IllegalState, match="dropped"):
        world.start_scale(is_manual=False)
    assert world.transition.is_empty
    assert world.state is StreamState.ACTIVE


def test_a_manual_scale_goes_on_with_the_duplicates_of_its_segments() -> None:
    world = with_old_transaction()
    world.submit_scale(ScaleRequest((1,), split_range(0.5, 1.0, 2), 1002))
    rolled(world, 1003)
    verdict, transition = world.start_scale(is_manual=True)
    assert verdict is ScaleVerdict.MIGRATED
    assert world.transition is transition
    assert transition.segments_to_seal == {parse_segment("1@3")}
    assert [each & 0xFF for each in transition.new_ids.tolist()] == [3, 4]
    world.create_new_epoch(transition)
    world.old_segments_sealed(transition, {})
    assert {str(each) for each in world.current.segments} == {"2@3", "3@4", "4@4"}
    scaling.refuse_conflict(ScaleRequest((1,), split_range(0.5, 1.0, 2), 1), transition, by_number=True)
    with pytest.raises(ScaleConflict):
        scaling.refuse_conflict(ScaleRequest((1,), split_range(0.5, 1.0, 2), 1), transition)


def test_a_manual_scale_of_other_segments_than_todays_is_dropped() -> None:
    world = two()
    world.submit_scale(SPLIT)
    stored = world.transition
    world.put("one", "transition", NO_TRANSITION)
    world.scale(ScaleRequest((0,), split_range(0.0, 0.5, 3), 1001), {})
    world.put("one", "transition", stored)
    world.set_state(StreamState.SCALING)
    with pytest.raises(IllegalState):
        world.start_scale(is_manual=True)


@pytest.mark.parametrize("is_manual", [True, False])
def test_a_scale_that_was_carried_out_is_recognised_and_finished(*, is_manual: bool) -> None:
    """A process died after it moved the stream, and before it reset the transition."""
    world = two()
    transition = world.submit_scale(SPLIT)
    world.set_state(StreamState.SCALING)
    world.create_new_epoch(transition)
    world.old_segments_sealed(transition, {})
    assert world.start_scale(is_manual=is_manual) == (ScaleVerdict.DONE, NO_TRANSITION)
    world.scale(SPLIT, {}, is_manual=is_manual)
    assert (world.current.epoch, world.state, world.transition) == (1, StreamState.ACTIVE, NO_TRANSITION)


@settings(max_examples=60, deadline=None)
@given(streams())
def test_any_scale_replaces_what_it_seals_and_may_be_repeated(given_stream: tuple[Stream, Random]) -> None:
    stream, random = given_stream
    world, before = stream.world, stream.world.current
    request = some_scale(random, before, 5000)
    world.scale(request, {})
    kept = set(before.segments.ids.tolist()) - set(request.seal)
    assert kept < set(world.current.segments.ids.tolist())
    assert len(world.current.segments) == len(kept) + len(request.new_ranges)
    assert increases(world)
    assert world.current.segments.numbers.max() == before.segments.numbers.max() + len(request.new_ranges)


def test_an_epoch_is_planned_only_for_its_own_transition() -> None:
    world = two()
    transition = world.submit_scale(SPLIT)
    with pytest.raises(ValueError, match="epoch 0"):
        scaling.scaled_epoch(transition, replace(world.current, epoch=1, reference_epoch=1))
    assert by_id({"2@1": 0, "3@1": 0}).keys() == set(transition.new_ids.tolist())


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(1, 6), st.lists(st.integers(0, 5), max_size=6), st.integers(1, 40), st.sampled_from([1_000, 20_000]))
def test_the_widest_segments_are_split_until_a_stream_has_its_minimum(
    segments: int, splits: list[int], least: int, chunk_size: int
) -> None:
    world = World()
    world.initialize(segments, 1000, min_segments=1)
    for at in splits:
        row = world.current.segments[at % len(world.current.segments)]
        world.scale(ScaleRequest((row.id,), split_range(row.key_start, row.key_end, 2), 1001), {})
    widest_before = max(world.current.segments.key_ends - world.current.segments.key_starts)
    rows_max = 2**20 // 4 // chunk_size
    scales = 0
    while (request := scaling.splits_towards(least, world.current, 1001, chunk_size)) is not None:
        assert request == scaling.splits_towards(least, world.current, 1001, chunk_size)
        assert not scaling.needs_look(request, chunk_size)
        before = world.current.segments
        world.scale(request, {})
        widths = before.key_ends - before.key_starts
        sealed = widths[before.positions_of(request.seal)]
        kept = widths[~np.isin(before.ids, request.seal)]
        assert not len(kept) or scales or len(request.seal) == rows_max // 3 or sealed.min() >= kept.max() * 0.999
        scales += 1
    assert len(world.current.segments) == max(least, segments + len(splits))
    assert scales <= -(-max(least - segments - len(splits), 0) // max(rows_max // 3, 1))
    assert max(world.current.segments.key_ends - world.current.segments.key_starts) <= widest_before


def test_a_segment_with_too_few_keys_is_not_split_for_a_minimum() -> None:
    world = World()
    world.initialize(1, 1000, min_segments=1)
    least = float(np.nextafter(0.0, 1.0))
    ranges = KeyRanges.of([(0.0, least), (least, 1.0)])
    world.scale(ScaleRequest((0,), ranges, 1001), {})
    request = scaling.splits_towards(4, world.current, 1002, 1_000)
    assert request is not None
    assert request.seal == (make_id(1, 2),)
    assert len(request.new_ranges) == 3
