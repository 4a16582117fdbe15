"""A key lies in the segment that holds its position: the same as a loop over all segments says."""

from __future__ import annotations

import math
from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.history.rules.segments import Segments
from accel.streams.rules.routing import Events, KeyRouter, first_events, grouped, key_position, route, size_bytes_of
from accel.streams.rules.transaction_data import EVENT_OVERHEAD_BYTES
from tests.examples import examples

JUST_BELOW_ONE = math.nextafter(1.0, 0.0)
POSITIONS = st.floats(0.0, JUST_BELOW_ONE)


@st.composite
def epochs(draw: st.DrawFn) -> Segments:
    """Segments that share out all keys, in any order."""
    bounds = sorted(draw(st.sets(st.floats(0.0, 1.0, exclude_min=True, exclude_max=True), max_size=20)))
    ranges = list(zip([0.0, *bounds], [*bounds, 1.0], strict=True))
    ids = draw(st.permutations(range(len(ranges))))
    starts, ends = zip(*ranges, strict=True)
    segments = Segments.make(ids, 0, starts, ends)
    return segments.where(draw(st.permutations(range(len(ranges)))))


@settings(max_examples=examples(200))
@given(epochs(), st.lists(POSITIONS, max_size=20))
def test_routing_finds_what_a_loop_finds(segments: Segments, positions: list[float]) -> None:
    edges = [*segments.key_starts.tolist(), *(math.nextafter(each, 0.0) for each in segments.key_ends.tolist())]
    asked = [*positions, *edges]
    wanted = [next(each.id for each in segments if each.key_start <= at < each.key_end) for at in asked]
    assert route(segments, asked).tolist() == wanted
    router = KeyRouter(segments)
    assert [router.segment_at(each) for each in asked] == wanted


@given(st.binary(max_size=40))
def test_every_key_has_a_position_from_0_up_to_1_and_always_the_same(key: bytes) -> None:
    assert 0.0 <= key_position(key) < 1.0
    assert key_position(bytes(key)) == key_position(key)


def test_positions_do_not_change_between_releases() -> None:
    assert [key_position(each) for each in (b"", b"order-17")] == [0.8931675160897388, 0.4723156719831122]


def test_keys_are_spread_evenly() -> None:
    found = np.array([key_position(b"%d" % number) for number in range(4000)])
    shares = np.bincount((found * 8).astype(np.int64), minlength=8) / len(found)
    assert abs(shares - 1 / 8).max() < 0.02


@pytest.mark.parametrize(
    ("starts", "ends"), [([0.0, 0.5], [0.4, 1.0]), ([0.1], [1.0]), ([0.0], [0.9]), ([0.0, 0.4], [0.5, 1.0])]
)
def test_segments_that_do_not_cover_all_keys_once_are_refused(starts: list[float], ends: list[float]) -> None:
    with pytest.raises(ValueError, match="cover the keys"):
        KeyRouter(Segments.make(range(len(starts)), 0, starts, ends))


@given(st.lists(st.integers(0, 5), max_size=30))
def test_groups_are_places_by_id(ids: list[int]) -> None:
    wanted = {each: [at for at, found in enumerate(ids) if found == each] for each in sorted(set(ids))}
    assert dict(grouped(np.array(ids, dtype=np.int64))) == wanted


def test_events_count_their_payloads_and_an_overhead_each() -> None:
    assert size_bytes_of([b"", b"four"]) == 4 + 2 * EVENT_OVERHEAD_BYTES


def test_the_first_events_are_as_many_as_the_limit_says_across_runs() -> None:
    payloads = [b"%d" % number for number in range(7)]
    runs = deque(Events([0.0] * len(part), part, [None] * len(part)) for part in (payloads[:3], payloads[3:]))
    assert first_events(runs, 5, 10**6).payloads == payloads[:5]
    assert [run.payloads for run in runs] == [payloads[5:]]
