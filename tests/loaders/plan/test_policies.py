"""Every policy keeps the contract of the interface, and each does what it is named for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaders.plan import (
    NO_GUESS,
    Bracket,
    Guess,
    LoadAll,
    Near,
    Policy,
    Spread,
    Trust,
    Window,
    WindowPreload,
    evenly,
    policy_of,
)

POLICIES: list[Policy] = [LoadAll(), Window(), Window(1), WindowPreload(), WindowPreload(1), Spread(), Spread(1, 1)]

contract = pytest.mark.parametrize("policy", POLICIES, ids=repr)


@st.composite
def brackets(draw: st.DrawFn) -> Bracket:
    size = draw(st.integers(1, 400))
    low = draw(st.integers(-1, size - 1))
    high = draw(st.integers(low + 1, size))
    possible = list(range(low + 1, high)) or [low + 1]
    candidates = sorted(draw(st.sets(st.sampled_from(possible), min_size=1)))
    beyond = sorted(draw(st.sets(st.integers(high + 1, high + 50), max_size=20)))
    return Bracket(
        low,
        max(high, low + 2),
        np.array(candidates, dtype=np.int64),
        np.array(beyond, dtype=np.int64),
        draw(st.integers(0, 1000)),
        draw(st.integers(0, 1000)),
        Guess(draw(st.sampled_from(Near)), draw(st.sampled_from(Trust))),
    )


def bracket(count: int, *, stuck: int = 0, guess: Guess = NO_GUESS) -> Bracket:
    return Bracket(-1, count, np.arange(count), np.array([], dtype=np.int64), stuck, stuck, guess)


def chosen(count: int, near: Near, trust: Trust, *, stuck: int = 0) -> list[int]:
    """What spread opens of so many candidates."""
    positions: list[int] = Spread().choose(bracket(count, stuck=stuck, guess=Guess(near, trust))).tolist()
    return positions


@contract
@given(one=brackets())
def test_a_policy_chooses_at_least_one_candidate_ascending_and_each_once(policy: Policy, one: Bracket) -> None:
    positions = policy.choose(one).tolist()
    assert positions == sorted(set(positions))
    assert set(positions) & set(one.candidates.tolist())
    assert set(positions) <= set(one.candidates.tolist()) | set(one.beyond.tolist())


@contract
@given(one=brackets())
def test_a_policy_chooses_the_same_again(policy: Policy, one: Bracket) -> None:
    assert policy.choose(one).tolist() == policy.choose(one).tolist()


def test_load_all_opens_everything_to_the_end_of_the_list() -> None:
    one = Bracket(2, 6, np.array([3, 5]), np.array([7, 9]))
    assert LoadAll().choose(one).tolist() == [3, 5, 7, 9]


def test_a_window_opens_the_next_five_in_order() -> None:
    assert Window().choose(bracket(21)).tolist() == [0, 1, 2, 3, 4]


def test_a_preloading_window_also_looks_into_the_middle() -> None:
    ahead = WindowPreload().choose(bracket(21)).tolist()
    assert ahead[:5] == [0, 1, 2, 3, 4]
    assert len(ahead) == 10
    assert max(ahead) < 20


def test_a_preloading_window_opens_the_last_five_for_a_read_at_the_tail() -> None:
    for trust in Trust:
        last = WindowPreload().choose(bracket(21, guess=Guess(Near.HIGH, trust))).tolist()
        assert last == [0, 1, 2, 3, 4, 16, 17, 18, 19, 20]


def test_a_preloading_window_that_knows_nothing_of_the_tail_looks_there_once() -> None:
    unknown = Guess(Near.ENDS, Trust.OPEN)
    assert WindowPreload().choose(bracket(21, guess=unknown)).tolist() == [0, 1, 2, 3, 4, 16, 17, 18, 19, 20]
    again = WindowPreload().choose(bracket(21, stuck=1, guess=unknown)).tolist()
    assert again == WindowPreload().choose(bracket(21)).tolist()
    assert WindowPreload().choose(bracket(21, guess=Guess(Near.LOW, Trust.SURE))).tolist() == again


def test_spread_opens_all_of_a_few() -> None:
    assert Spread().choose(bracket(8)).tolist() == list(range(8))


def test_spread_leaves_equal_gaps() -> None:
    even = Spread().choose(bracket(5000)).tolist()
    gaps = np.diff([-1, *even, 5000])
    assert len(even) == 8
    assert gaps.max() - gaps.min() <= 2


@given(st.integers(0, 100))
def test_spread_doubles_while_stuck_up_to_64(stuck: int) -> None:
    assert len(Spread().choose(bracket(5000, stuck=stuck))) == min(64, 8 * 2 ** min(stuck, 3))


def test_rounds_that_left_the_bracket_as_it_was_leave_no_gap_unopened() -> None:
    """Holders that stand side by side are found as soon as the gaps are as narrow as they are wide."""
    left = np.arange(5000)
    for turn in range(8):
        left = np.setdiff1d(left, evenly(left, 64, turn))
    opened = np.setdiff1d(np.arange(5000), left)
    assert len(opened) == 512
    assert np.diff([-1, *opened.tolist(), 5000]).max() <= 3 * 5000 / 512


def test_a_sure_guess_gets_whole_rounds_three_times_and_then_the_half_of_each() -> None:
    assert chosen(5000, Near.LOW, Trust.SURE) == [0, 1, 2, 3, 5, 7, 11, 19]
    assert chosen(5000, Near.LOW, Trust.SURE, stuck=1) == [*range(10), 11, 13, 17, 25, 41, 73]
    whole = chosen(5000, Near.LOW, Trust.SURE, stuck=2)
    assert whole == [*range(26), 27, 29, 33, 41, 57, 89]
    half = chosen(5000, Near.LOW, Trust.SURE, stuck=3)
    assert half[:32] == whole
    assert len(half) == 64
    assert np.diff(half[32:]).min() > 100


def test_a_likely_guess_gets_the_half_of_each_round() -> None:
    assert chosen(5000, Near.LOW, Trust.LIKELY) == [0, 1, 3, 5, 1000, 2000, 3000, 4000]
    assert chosen(5000, Near.LOW, Trust.LIKELY, stuck=2)[:18] == [*range(10), 11, 13, 17, 25, 41, 73, 386, 698]


def test_where_nothing_tells_a_guess_gets_the_half_of_the_first_round_and_a_quarter_of_the_others() -> None:
    assert chosen(5000, Near.ENDS, Trust.OPEN) == [0, 2, 1000, 2000, 3000, 4000, 4997, 4999]
    assert chosen(5000, Near.ENDS, Trust.OPEN, stuck=1)[:3] == [0, 2, 257]
    assert chosen(5000, Near.ENDS, Trust.OPEN, stuck=1)[-3:] == [4840, 4997, 4999]
    assert chosen(5000, Near.HIGH, Trust.OPEN, stuck=1)[-5:] == [4840, 4994, 4996, 4998, 4999]


@given(st.integers(200, 5000), st.integers(0, 5), st.sampled_from(Trust))
def test_spread_looks_at_the_high_end_as_it_looks_at_the_low_one(count: int, stuck: int, trust: Trust) -> None:
    low, high = (chosen(count, near, trust, stuck=stuck) for near in (Near.LOW, Near.HIGH))
    both = chosen(count, Near.ENDS, trust, stuck=stuck)
    assert low[0] == both[0] == 0
    assert high[-1] == both[-1] == count - 1
    if trust is Trust.SURE and stuck < 3:
        assert high == [count - 1 - position for position in reversed(low)]


@pytest.mark.parametrize("name", ["spread", "window", "window+preload", "load-all"])
def test_policies_are_found_by_name(name: str) -> None:
    assert policy_of(name).name == name


def test_a_size_may_follow_the_name() -> None:
    assert policy_of("window:2") == Window(2)
    assert policy_of("spread:100") == Spread(100, 100)


@pytest.mark.parametrize("name", ["", "fastest", "window:", "window:-1", "window:0", "load-all:3", "window:two"])
def test_unknown_names_and_sizes_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        policy_of(name)
