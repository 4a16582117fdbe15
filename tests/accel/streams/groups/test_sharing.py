"""One call of one reader: what it tells, gives up and takes; and where that leads when all of them call."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from accel.errors import IllegalState, InvalidArgument
from accel.streams.rules.group_state import GroupState
from accel.streams.rules.shares import after_rebalance, assignment
from tests.accel.streams.groups.states import group, named, owners_of
from tests.examples import examples

COUNTS = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 12), min_size=1)


def test_the_first_reader_takes_everything() -> None:
    state = after_rebalance(group({"a": 0}, free=3), "a", {}, 0)
    assert owners_of(state) == {"0@0": "a", "1@0": "a", "2@0": "a"}


def test_a_reader_with_too_much_gives_up_one_at_a_time_the_newest_of_those_that_it_reads_least_first() -> None:
    state = after_rebalance(group({"a": 4, "b": 0}), "a", {0: 1}, 0)
    assert owners_of(state) == {"0@0": "a", "1@0": "a", "2@0": "a", "3@0": None}
    state = group({"a": 4, "b": 0}).with_positions("a", {3: 7})
    state = after_rebalance(state, "a", {0: 5, 1: 1, 2: 1, 3: 7}, 0)
    assert owners_of(state) == {"0@0": "a", "1@0": "a", "2@0": "a", "3@0": None}
    assert named(state.position()) == {"0@0": 5, "1@0": 1, "2@0": 1, "3@0": 7}
    state = after_rebalance(state, "a", {0: 6}, 0)
    assert named(state.owned("a")) == {"0@0": 6, "1@0": 1}
    assert after_rebalance(state, "a", {0: 6}, 0) == state


def test_what_was_given_up_goes_on_where_it_was_read_to() -> None:
    state = after_rebalance(group({"a": 2, "b": 0}), "a", {0: 8, 1: 7}, 3)
    state = after_rebalance(state, "b", {}, 0)
    [start] = assignment(state, "b", {}).start
    assert (str(start.segment), start.offset) == ("1@0", 7)
    assert assignment(state, "a", {0: 8, 1: 7}).stop == (1,)


def test_who_is_passed_over_once_takes_at_the_second_time() -> None:
    state = group({"a": 1, "b": 1}, free=1).with_lag("b", 40, has_waited=False)
    state = after_rebalance(state, "a", {}, 50)
    assert named(state.owned("a")) == {"0@0": 0}
    state = after_rebalance(state, "a", {}, 60)
    assert named(state.owned("a")) == {"0@0": 0, "2@0": 0}


def test_two_whose_lags_grow_do_not_wait_for_each_other_for_ever() -> None:
    """Whoever asks is the one further behind, so that by weight alone the other one would always come first."""
    state = group({"a": 1, "b": 1}, free=1)
    for lag, reader in enumerate("abab", start=10):
        state = after_rebalance(state, reader, {}, lag)
    assert not len(state.free)


def test_having_waited_counts_once() -> None:
    state = group({"a": 1, "b": 1}, free=1).with_lag("b", 40, has_waited=False)
    state = after_rebalance(state, "a", {}, 50)
    assert state.readers[0].has_waited
    state = after_rebalance(state, "b", {}, 40)
    assert not any(each.has_waited for each in after_rebalance(state, "a", {}, 50).readers)


def test_an_idle_segment_is_shared_out_like_any_other_and_holds_nobody_up() -> None:
    """Pitfall A24: nothing ever comes of 0@0; its owner and all others go on."""
    state = group({"a": 2, "b": 0})
    state = after_rebalance(after_rebalance(state, "a", {0: 0, 1: 9}, 0), "b", {}, 0)
    assert named(state.owned("b")) == {"0@0": 0}
    for offset in range(10, 13):
        state = after_rebalance(state, "a", {1: offset}, 0)
        assert named(state.position()) == {"0@0": 0, "1@0": offset}


def test_a_stranger_is_refused() -> None:
    with pytest.raises(IllegalState, match=r"'x'.*join again"):
        after_rebalance(group({"a": 1}), "x", {}, 0)


@pytest.mark.parametrize("lag", [-1, 2**63])
def test_a_lag_out_of_bounds_is_refused(lag: int) -> None:
    with pytest.raises(InvalidArgument, match="lag"):
        after_rebalance(group({"a": 1}), "a", {}, lag)


@pytest.mark.parametrize("positions", [{-1: 5}, {2**64: 5}, {0: 2**64}])
def test_positions_that_are_none_are_refused(positions: dict[int, int]) -> None:
    with pytest.raises(InvalidArgument):
        after_rebalance(group({"a": 1}), "a", positions, 0)


def test_a_reader_that_comes_back_with_nothing_learns_all_that_it_owns() -> None:
    state = group({"a": 2, "b": 2}).with_positions("b", {2: 5})
    todo = assignment(state, "b", {})
    assert [(str(each.segment), each.offset) for each in todo.start] == [("2@0", 5), ("3@0", 0)]
    assert todo.stop == ()


def test_a_reader_that_the_stream_was_truncated_past_is_told_to_go_on_there() -> None:
    state = group({"a": 2}).with_positions("a", {0: 8, 1: 3})
    [start] = assignment(state, "a", {0: 5, 1: 4}).start
    assert (str(start.segment), start.offset) == ("0@0", 8)


def everybody_calls(state: GroupState, random: np.random.Generator) -> GroupState:
    names = [each.name for each in state.readers]
    for at in random.permutation(len(names)).tolist():
        held = [set(state.owned(each)) for each in names]
        state = after_rebalance(state, names[at], {}, int(random.integers(50, 101)))
        after = [set(state.owned(each)) for each in names]
        # One reader's call changes what that reader has; it gives up one at most, or takes what was free.
        assert all(one == other for number, (one, other) in enumerate(zip(held, after, strict=True)) if number != at)
        assert len(held[at] - after[at]) <= 1
    return state


@settings(max_examples=examples(200), deadline=None)
@example({"a": 20, "b": 0}, 0, 0)
@example({"a": 0, "b": 0, "c": 0}, 1, 0)
@given(COUNTS, st.integers(0, 20), st.integers(0, 2**32))
def test_whatever_lags_are_told_where_nobody_is_behind_everybody_has_its_share_in_time(
    counts: dict[str, int], free: int, seed: int
) -> None:
    """After as many calls each as somebody has too much, and three more; in any order, with any lag at each call."""
    state, random = group(counts, free), np.random.default_rng(seed)
    least = len(state.segments) // len(counts)
    for _ in range(max(max(counts.values()) - least, 0) + 3):
        state = everybody_calls(state, random)
    assert not len(state.free)
    assert state.counts.max() - state.counts.min() <= 1
    assert int(state.counts.sum()) == len(state.segments)
    settled = everybody_calls(state, random)
    assert owners_of(settled) == owners_of(state)
