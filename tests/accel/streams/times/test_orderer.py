"""The segment with the lowest clock value is read next; drained ones go at once; idle ones block nobody."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.streams.rules.arrival_order import Lag, ObservedTimes, Orderer, SegmentRead, Standing, StreamSegmentInfo
from range_index.segment_times import NO_TOKEN, TimesRead

standings = st.lists(
    st.builds(Standing, st.integers(0, 20), st.none() | st.integers(0, 5), st.booleans()),
    max_size=8,
    unique_by=lambda standing: standing.segment,
)


def naive(given_standings: list[Standing[int]]) -> Standing[int] | None:
    by_id = sorted(given_standings, key=lambda standing: standing.segment)
    for standing in by_id:
        if standing.is_drained:
            return standing
    best = None
    for standing in by_id:
        if standing.value is not None and (best is None or best.value is None or standing.value < best.value):
            best = standing
    return best


@given(standings)
def test_the_choice_is_the_lowest_value_then_the_lowest_id_but_drained_ones_first(each: list[Standing[int]]) -> None:
    assert Orderer(each).choose() == naive(each)


@given(st.lists(standings, max_size=6))
def test_it_is_how_a_segment_stands_last_that_counts(changes: list[list[Standing[int]]]) -> None:
    orderer: Orderer[int] = Orderer()
    now: dict[int, Standing[int]] = {}
    for change in changes:
        for standing in change:
            orderer.put(standing)
            now[standing.segment] = standing
        assert orderer.choose() == naive(list(now.values()))
        if (chosen := orderer.choose()) is not None:
            orderer.forget(chosen.segment)
            del now[chosen.segment]
    assert orderer.choose() == naive(list(now.values()))


def test_the_wait_follows_requests_and_their_deviation() -> None:
    times = ObservedTimes()
    first = times.seconds
    for _ in range(100):
        times.observe(0.04)
    assert times.seconds == pytest.approx(0.04, rel=0.01)
    for seconds in (0.02, 0.06) * 50:
        times.observe(seconds)
    assert 0.06 < times.seconds < 0.16
    assert first == ObservedTimes().seconds


def test_lag_is_0_before_the_first_read_and_never_negative() -> None:
    lag = Lag()
    assert lag.at(100) == 0
    lag.read(40)
    assert [lag.at(now) for now in (100, 45, 40, 30)] == [60, 5, 0, 0]
    lag.read(50)
    assert lag.at(100) == 50


def test_a_reply_has_the_bytes_their_values_and_the_token() -> None:
    values = np.array([3, 4], dtype=np.uint64)
    reply = SegmentRead.of(b"ab", TimesRead(2, values, 9))
    assert (reply.data, reply.value, reply.values.tolist(), reply.token) == (b"ab", 3, [3, 4], 9)
    assert SegmentRead.of(b"", TimesRead(0, values[:0], 9)).value == 0


def test_a_peer_without_the_feature_has_value_0_and_no_token() -> None:
    reply = SegmentRead(b"ab", np.array([0], dtype=np.uint64))
    assert (reply.value, reply.token) == (0, NO_TOKEN)
    assert StreamSegmentInfo(17).value == 0
