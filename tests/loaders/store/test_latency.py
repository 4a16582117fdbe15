"""Simulated latency follows its model, and simulated time adds up as real time would."""

from __future__ import annotations

from random import Random
from statistics import quantiles

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accel.testing import LatencyModel, LatencyStore, VirtualClock
from loaders.store import MemoryStore


def test_first_bytes_have_the_median_and_the_99th_percentile_of_the_model() -> None:
    rng, model = Random(7), LatencyModel()
    cuts = quantiles((model.seconds(rng, 0) for _ in range(50_000)), n=100)
    assert cuts[49] == pytest.approx(0.015, rel=0.03)
    assert cuts[98] == pytest.approx(0.100, rel=0.06)


def test_a_body_takes_its_time_in_either_direction() -> None:
    instant = LatencyModel(1e-9, 1e-9, bytes_per_second=1000)
    clock = VirtualClock()
    store = LatencyStore(MemoryStore(), Random(1), clock.sleep, instant)
    store.put("k", b"x" * 500)
    assert clock.now_seconds == pytest.approx(0.5)
    store.get_range("k", 0, 250)
    assert clock.now_seconds == pytest.approx(0.75)


@given(st.lists(st.integers(1, 100), max_size=20), st.integers(1, 8))
def test_a_round_takes_as_long_as_its_busiest_connection(waits: list[int], connections: int) -> None:
    clock = VirtualClock(connections)
    with clock.round():
        for wait in waits:
            clock.sleep(wait)
            assert clock.now_seconds == 0, "within a round no time passes"
    free_at = [0] * connections
    for wait in waits:
        free_at[free_at.index(min(free_at))] += wait
    assert clock.now_seconds == max(free_at)


def test_rounds_follow_one_another_and_do_not_nest() -> None:
    clock = VirtualClock(connections=2)
    for _ in range(2):
        with clock.round():
            for seconds in (1.0, 2.0, 1.5):
                clock.sleep(seconds)
    assert clock.now_seconds == 5.0
    with clock.round(), pytest.raises(RuntimeError, match="nest"), clock.round():
        pass


@pytest.mark.parametrize("model", [(0.0, 0.1, 1e6), (0.2, 0.1, 1e6), (0.1, 0.2, 0.0)])
def test_a_model_that_makes_no_sense_is_refused(model: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="LatencyModel"):
        LatencyModel(*model)


def test_a_clock_has_a_connection() -> None:
    with pytest.raises(ValueError, match="connection"):
        VirtualClock(0)
