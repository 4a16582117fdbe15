"""The clock of a host never goes back, whatever is behind it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from accel.streams.rules.events import HostClock

UINT64_MAX = 2**64 - 1


@given(st.lists(st.integers(-5, UINT64_MAX)), st.integers(0, UINT64_MAX))
def test_now_is_the_highest_value_so_far(times: list[int], stored: int) -> None:
    source = iter(times)
    clock = HostClock(lambda: next(source), stored)
    assert [clock.now() for _ in times] == list(accumulate(times, max, initial=stored))[1:]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 10**6)), max_size=30), st.integers(0, 1000))
def test_a_value_of_a_wrong_clock_holds_no_longer_than_that_clock(steps: list[tuple[bool, int]], skew_max: int) -> None:
    source = [0]
    clock, last = HostClock(lambda: source[0], skew_max=skew_max), 0
    for is_stored, value in steps:
        if is_stored:
            clock.seed(value)
            last = max(last, value) if value - source[0] <= skew_max else last
        else:
            source[0] = value
        last = source[0] if last - source[0] > skew_max else max(last, source[0])
        assert clock.now() == last <= source[0] + skew_max


@given(st.integers(0, 10**14 - 1))
@example(1001)
def test_no_millisecond_is_lost_to_the_form_of_seconds(time_ms: int) -> None:
    assert HostClock.of_seconds(lambda: time_ms / 1000).now() == time_ms


@given(st.floats(0, 1e11))
def test_a_millisecond_is_over_when_the_next_one_begins(seconds: float) -> None:
    found = HostClock.of_seconds(lambda: seconds).now()
    assert found / 1000 <= seconds < (found + 1) / 1000


@pytest.mark.parametrize("value", [-1, 2**64])
def test_values_have_64_bits(value: int) -> None:
    with pytest.raises(ValueError, match=str(value)):
        HostClock(lambda: 0, value)
    with pytest.raises(ValueError, match=str(value)):
        HostClock(lambda: 0).seed(value)
    if value > 0:
        with pytest.raises(ValueError, match=str(value)):
            HostClock(lambda: value).now()


def test_what_one_thread_was_given_no_other_thread_goes_below() -> None:
    times = iter([*range(1000, 0, -1)] * 4)
    clock = HostClock(lambda: next(times))
    with ThreadPoolExecutor(4) as pool:
        given_to = list(pool.map(lambda _: [clock.now() for _ in range(200)], range(4)))
    assert all(earlier <= later for values in given_to for earlier, later in pairwise(values))
