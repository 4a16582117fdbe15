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
from accel.history.rules.epochs import NO_TRANSITION, EpochTransition
from accel.history.rules.scaling import ScaleRequest, ScaleVerdict
from accel.history.rules.segments import KeyRanges, SegmentRecord, split_range
from accel.history.rules.states import StreamState, first_epoch
from accel.history.rules.values import make_id, parse_segment
from tests.accel.history.rules.streams import Stream, new, replacing, some_scale, streams, whole
from tests.examples import examples

SPLIT = ScaleRequest((1,), split_range(0.5, 1.0, 2), 1001)
HALVES = first_epoch(2, 1000)
SUBMITTED = scaling.with_request(SPLIT, StreamState.ACTIVE, NO_TRANSITION, HALVES, 1)


def submit(
    request: ScaleRequest, stored: EpochTransition = NO_TRANSITION, state: StreamState = StreamState.ACTIVE
) -> EpochTransition:
    """Ask for a scale of two halves."""
    return scaling.with_request(request, state, stored, HALVES, 1)


def rolled() -> Stream:
    """A scale, and then a commit of transactions that began before it."""
    stream = new(2)
    stream.scale(replacing(["0@0"], 0.0, 0.5))
    stream.commit(0, 1003)
    return stream


def test_asking_twice_gives_the_stored_transition() -> None:
    assert submit(replace(SPLIT, time_ms=9999), SUBMITTED) is SUBMITTED


@pytest.mark.parametrize("other", [replace(SPLIT, seal=(0,)), replace(SPLIT, new_ranges=split_range(0.5, 1.0, 3))])
def test_another_scale_is_a_conflict_while_one_is_under_way(other: ScaleRequest) -> None:
    with pytest.raises(ScaleConflict) as caught:
        submit(other, SUBMITTED)
    assert (caught.value.code, caught.value.retryable) == ("SCALE_CONFLICT", True)


@pytest.mark.parametrize(
    ("seal", "ranges", "problem"),
    [((0,), [(0.0, 0.0), (0.0, 0.5)], "expected"), ((0, 0), [(0.0, 0.5)], "once"), ((), [], "expected")],
    ids=["an empty range", "a segment twice", "nothing"],
)
def test_scale_input_holes_upstream(seal: tuple[int, ...], ranges: list[tuple[float, float]], problem: str) -> None:
    """Pitfall D6: An empty range, and a segment that is named twice, once passed."""
    with pytest.raises(ScaleInputInvalid, match=problem):
        submit(ScaleRequest(seal, KeyRanges.of(ranges), 1001))


def test_segments_that_are_not_active_fail_before_ranges_are_looked_at() -> None:
    request = ScaleRequest((make_id(3, 7),), KeyRanges.of([]), 1001)
    assert scaling.is_outdated(request, HALVES)
    assert not scaling.is_outdated(SPLIT, HALVES)
    with pytest.raises(ScalePrecondition, match="7@3"):
        submit(request)


def test_too_few_segments_are_refused_after_the_ranges() -> None:
    with pytest.raises(ScalePrecondition, match="at least 2"):
        scaling.with_request(whole(HALVES, 1, 1001), StreamState.ACTIVE, NO_TRANSITION, HALVES, 2)


@pytest.mark.parametrize("state", [StreamState.SEALING, StreamState.SEALED])
def test_a_sealed_stream_is_not_scaled(state: StreamState) -> None:
    with pytest.raises(IllegalState):
        submit(SPLIT, state=state)


def test_new_segments_are_numbered_in_the_order_of_the_request_and_begin_later_than_the_epoch_before() -> None:
    ranges = KeyRanges.of([(0.75, 1.0), (0.5, 0.75)])
    record = scaling.scaled_epoch(submit(ScaleRequest((1,), ranges, 5)), HALVES)
    assert record.creation_time_ms == 1001
    assert record.find(parse_segment("2@1")) == SegmentRecord(parse_segment("2@1"), 1001, 0.75, 1.0)


def test_auto_scale_discarded_after_rolling_txn() -> None:
    stream = rolled()
    asked = ScaleRequest((1,), split_range(0.5, 1.0, 2), 1002)
    stored = scaling.with_request(asked, StreamState.ACTIVE, NO_TRANSITION, stream.epoch(1), 1)
    found = scaling.after_start(stored, stream.current, stream.epoch, is_manual=False)
    assert found == (ScaleVerdict.DROPPED, NO_TRANSITION)
    verdict, transition = scaling.after_start(stored, stream.current, stream.epoch, is_manual=True)
    assert verdict is ScaleVerdict.MIGRATED
    assert transition.segments_to_seal == {parse_segment("1@3")}
    record = scaling.scaled_epoch(transition, stream.current)
    assert {str(each) for each in record.segments} == {"2@3", "3@4", "4@4"}
    scaling.refuse_conflict(asked, transition, by_number=True)
    with pytest.raises(ScaleConflict):
        scaling.refuse_conflict(asked, transition)


def test_a_manual_scale_of_other_segments_than_todays_is_dropped() -> None:
    stream = new(2)
    stream.scale(replacing(["0@0"], 0.0, 0.5, 3))
    found = scaling.after_start(SUBMITTED, stream.current, stream.epoch, is_manual=True)
    assert found == (ScaleVerdict.DROPPED, NO_TRANSITION)


@pytest.mark.parametrize("is_manual", [True, False])
def test_a_scale_that_was_carried_out_is_recognised(*, is_manual: bool) -> None:
    """A process died after it moved the stream, and before it reset the transition."""
    stream = new(2)
    stream.scale(SPLIT)
    found = scaling.after_start(SUBMITTED, stream.current, stream.epoch, is_manual=is_manual)
    assert found == (ScaleVerdict.DONE, NO_TRANSITION)


@settings(max_examples=60, deadline=None)
@given(streams())
def test_any_scale_replaces_what_it_seals(given_stream: tuple[Stream, Random]) -> None:
    stream, random = given_stream
    before = stream.current
    request = some_scale(random, before, 5000)
    stream.scale(request)
    kept = set(before.segments.ids.tolist()) - set(request.seal)
    assert kept < set(stream.current.segments.ids.tolist())
    assert len(stream.current.segments) == len(kept) + len(request.new_ranges)
    times = [each.creation_time_ms for each in stream.records]
    assert times == sorted(set(times))
    assert stream.current.segments.numbers.max() == before.segments.numbers.max() + len(request.new_ranges)


def test_an_epoch_is_planned_only_for_its_own_transition() -> None:
    with pytest.raises(ValueError, match="epoch 0"):
        scaling.scaled_epoch(SUBMITTED, replace(HALVES, epoch=1, reference_epoch=1))
    assert SUBMITTED.new_ids.tolist() == [parse_segment("2@1"), parse_segment("3@1")]


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(1, 6), st.lists(st.integers(0, 5), max_size=6), st.integers(1, 40), st.sampled_from([1_000, 20_000]))
def test_the_widest_segments_are_split_until_a_stream_has_its_minimum(
    segments: int, splits: list[int], least: int, chunk_size: int
) -> None:
    stream = new(segments)
    for at in splits:
        row = stream.current.segments[at % len(stream.current.segments)]
        stream.scale(ScaleRequest((row.id,), split_range(row.key_start, row.key_end, 2), 1001))
    widest_before = max(stream.current.segments.key_ends - stream.current.segments.key_starts)
    rows_max = 2**20 // 4 // chunk_size
    scales = 0
    while (request := scaling.splits_towards(least, stream.current, 1001, chunk_size)) is not None:
        assert request == scaling.splits_towards(least, stream.current, 1001, chunk_size)
        assert not scaling.needs_look(request, chunk_size)
        before = stream.current.segments
        stream.scale(request)
        widths = before.key_ends - before.key_starts
        sealed = widths[before.positions_of(request.seal)]
        kept = widths[~np.isin(before.ids, request.seal)]
        assert not len(kept) or scales or len(request.seal) == rows_max // 3 or sealed.min() >= kept.max() * 0.999
        scales += 1
    assert len(stream.current.segments) == max(least, segments + len(splits))
    assert scales <= -(-max(least - segments - len(splits), 0) // max(rows_max // 3, 1))
    assert max(stream.current.segments.key_ends - stream.current.segments.key_starts) <= widest_before


def test_a_segment_with_too_few_keys_is_not_split_for_a_minimum() -> None:
    stream = new(1)
    least = float(np.nextafter(0.0, 1.0))
    ranges = KeyRanges.of([(0.0, least), (least, 1.0)])
    stream.scale(ScaleRequest((0,), ranges, 1001))
    request = scaling.splits_towards(4, stream.current, 1002, 1_000)
    assert request is not None
    assert request.seal == (make_id(1, 2),)
    assert len(request.new_ranges) == 3
