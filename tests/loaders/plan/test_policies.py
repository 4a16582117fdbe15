"""Every policy keeps the contract of the interface, and each does what it is named for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaders.plan import Bracket, LoadAll, Near, Policy, Spread, Window, WindowPreload, policy_of

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
        draw(st.sampled_from(Near)),
    )


def bracket(count: int, *, stuck: int = 0, near: Near = Near.UNKNOWN) -> Bracket:
    return Bracket(-1, count, np.arange(count), np.array([], dtype=np.int64), stuck, stuck, near)


@contract
@given(one=brackets())
def test_a_policy_chooses_at_least_one_candidate_ascending_and_each_once(policy: Policy, one: Bracket) -> None:
    chosen = policy.choose(one).tolist()
    assert chosen == sorted(set(chosen))
    assert set(chosen) & set(one.candidates.tolist())
    assert set(chosen) <= set(one.candidates.tolist()) | set(one.beyond.tolist())


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
    chosen = WindowPreload().choose(bracket(21)).tolist()
    assert chosen[:5] == [0, 1, 2, 3, 4]
    assert len(chosen) == 10
    assert max(chosen) < 20


def test_a_preloading_window_opens_the_last_five_for_a_read_at_the_tail() -> None:
    assert WindowPreload().choose(bracket(21, near=Near.HIGH)).tolist() == [0, 1, 2, 3, 4, 16, 17, 18, 19, 20]


def test_spread_opens_all_of_a_few() -> None:
    assert Spread().choose(bracket(8)).tolist() == list(range(8))


def test_spread_leaves_equal_gaps() -> None:
    chosen = Spread().choose(bracket(5000)).tolist()
    gaps = np.diff([-1, *chosen, 5000])
    assert len(chosen) == 8
    assert gaps.max() - gaps.min() <= 2


@given(st.integers(0, 100))
def test_spread_doubles_while_stuck_up_to_64(stuck: int) -> None:
    assert len(Spread().choose(bracket(5000, stuck=stuck))) == min(64, 8 * 2 ** min(stuck, 3))


@given(st.integers(9, 5000), st.integers(0, 5))
def test_spread_looks_next_to_the_end_where_the_offset_is_expected(count: int, stuck: int) -> None:
    low = Spread().choose(bracket(count, stuck=stuck, near=Near.LOW)).tolist()
    high = Spread().choose(bracket(count, stuck=stuck, near=Near.HIGH)).tolist()
    assert low[:4] == [0, 1, 2, 3]
    assert high == [count - 1 - each for each in reversed(low)]


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
