"""Segments follow the lags of readers: who is behind gives some up, and no segment moves to and fro."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.streams.rules.group_state import CALM, NO_LEASE, RENEWALS, GroupState, Lease
from accel.streams.rules.shares import BEHIND_SEGMENTS, Shares, after_rebalance, behind
from tests.accel.streams.groups.states import group, owners_of
from tests.accel.streams.groups.test_shares import shares
from tests.examples import examples

CALLS = 15
"""Calls of a reader in three leases, with the default settings."""

COUNTS = st.dictionaries(st.sampled_from("abcde"), st.integers(0, 5), min_size=1).filter(
    lambda each: sum(each.values())
)
SEEDS = st.integers(0, 2**32)
LEASES = st.sampled_from([NO_LEASE, Lease(7, 0, 10_000)])


@dataclass
class Walk:
    """A group whose readers call in random orders.

    Attributes:
        state: of the group.
        random: draws orders and lags.
        moves: how often each segment went from one reader to another one.
    """

    state: GroupState
    random: np.random.Generator
    moves: dict[str, int] = field(default_factory=dict)
    last: dict[str, str] = field(default_factory=dict)

    def calls(
        self,
        lag_of: Callable[[str], int | None],
        positions_of: Callable[[str], Mapping[int, int]] = lambda _: {},
        *,
        renews: bool = False,
    ) -> None:
        """One call of each reader, in any order."""
        names = [each.name for each in self.state.readers]
        for name in self.random.permutation(names).tolist():
            if renews:
                self.state = self.state.with_renewal(name, self.state.readers[self.state.index(name)].lease)
            self.state = after_rebalance(self.state, name, positions_of(name), lag_of(name))
            self.note()

    def note(self) -> None:
        """Count the segments that have another reader than before."""
        for segment, owner in owners_of(self.state).items():
            if owner is None:
                continue
            before = self.last.setdefault(segment, owner)
            self.moves[segment] = self.moves.get(segment, 0) + (before != owner)
            self.last[segment] = owner

    def begin(self) -> None:
        """Forget moves: their cause has changed."""
        self.moves.clear()
        self.note()


def leased(state: GroupState, lease: Lease) -> GroupState:
    for reader in state.readers if any(lease) else ():
        state = state.with_renewal(reader.name, reader.lease._replace(milliseconds=lease.milliseconds))
    return state


@settings(max_examples=examples(150), deadline=None)
@given(
    st.sampled_from([{"a": 8, "b": 0, "c": 0}, {"a": 3, "b": 3, "c": 2}, {"a": 0, "b": 8, "c": 0}]),
    st.integers(0, 7),
    SEEDS,
    LEASES,
)
def test_with_one_hot_segment_its_reader_keeps_one_other_after_three_leases_and_nothing_moves_twice(
    counts: dict[str, int], hot: int, seed: int, lease: Lease
) -> None:
    random = np.random.default_rng(seed)
    walk = Walk(leased(group(counts), lease), random)
    walk.begin()
    read = np.zeros(8, dtype=np.int64)

    def hot_reader() -> str | None:
        return list(owners_of(walk.state).values())[hot]

    def lag_of(name: str) -> int:
        return int(random.integers(60_000, 10**7) if name == hot_reader() else random.integers(1_000, 2_001))

    def positions_of(name: str) -> dict[int, int]:
        """All segments have some events, and the hot one has many."""
        read[:] += random.integers(0, 10, 8)
        read[hot] += int(random.integers(50, 1_000))
        return {each: int(read[each]) for each in walk.state.owned(name)}

    for _ in range(CALLS):
        walk.calls(lag_of, positions_of)
    state, name = walk.state, hot_reader()
    assert name is not None
    assert len(state.owned(name)) <= BEHIND_SEGMENTS
    assert hot in state.owned(name)
    assert max(walk.moves.values()) <= 1
    assert not len(state.free)
    others = [len(state.owned(each.name)) for each in state.readers if each.name != name]
    assert sorted(others) == [3, 3]
    walk.begin()
    for _ in range(CALLS):
        walk.calls(lambda _: 0)
    assert not any(walk.moves.values()), "its limit remains when it has caught up"


@settings(max_examples=examples(150), deadline=None)
@given(COUNTS, st.integers(0, 6), SEEDS, LEASES)
def test_whatever_lags_are_reported_no_segment_moves_twice_without_another_cause(
    counts: dict[str, int], free: int, seed: int, lease: Lease
) -> None:
    random = np.random.default_rng(seed)
    walk = Walk(leased(group(counts, free), lease), random)
    total = len(walk.state.segments)
    for _ in range(max(counts.values()) + 3):
        walk.calls(lambda _: 0)  # by numbers of segments
    walk.begin()
    for _ in range(3 * total + 10):
        walk.calls(lambda _: int(random.choice([0, 1, 3_000, 9_000, int(random.integers(0, 2**62))])))
    assert max(walk.moves.values()) <= 1
    free_since = [len(walk.state.free)]
    for _ in range(4):
        walk.calls(lambda _: 0)
        free_since.append(len(walk.state.free))
    assert free_since[-1] == 0, "what is free is taken in time"
    assert int(walk.state.counts.sum()) == total


@settings(max_examples=examples(150), deadline=None)
@given(COUNTS, st.integers(0, 6), SEEDS, LEASES)
def test_with_lags_that_stay_every_group_comes_to_rest_with_fair_shares(
    counts: dict[str, int], free: int, seed: int, lease: Lease
) -> None:
    random = np.random.default_rng(seed)
    walk = Walk(leased(group(counts, free), lease), random)
    lags = {name: int(random.choice([0, 10, 5_000, int(random.integers(0, 2**40))])) for name in counts}
    total = len(walk.state.segments)
    for _ in range(3 * total + max(counts.values()) + 10):
        walk.calls(lags.__getitem__)
    rested = walk.state
    for _ in range(3):
        walk.calls(lags.__getitem__)
    assert walk.state == rested
    assert not len(rested.free)
    is_behind = behind(rested)
    assert (rested.counts[is_behind] <= BEHIND_SEGMENTS).all()
    equal = rested.counts[~is_behind]
    limited = Shares.of(rested).limits[~is_behind] > 0
    assert not limited.any()
    assert equal.max() - equal.min() <= 1


def two(counts: dict[str, int], lease: Lease = NO_LEASE) -> GroupState:
    """Readers of which one reported that it is not behind."""
    return after_rebalance(leased(group(counts), lease), "b", {}, 0)


def test_a_reader_that_is_behind_gives_up_the_segments_that_do_not_keep_it_behind() -> None:
    state = two({"a": 4, "b": 4})
    lags = {0: 500_000, 1: 400_000, 2: 7, 3: 450_000}
    state = after_rebalance(state, "a", {1: 5, 0: 900}, 500_000, lags=lags)
    assert owners_of(state)["2@0"] is None
    assert state.moved == (2,)
    assert after_rebalance(state, "a", {}, 500_000, lags=lags) == state, "nothing more while a segment is free"
    state = after_rebalance(state, "b", {}, 0)
    state = after_rebalance(state, "a", {1: 10, 0: 1_800, 3: 100}, 500_000, lags=lags)
    assert owners_of(state)["1@0"] is None, "of similar lags, the one of which it read least"


def test_a_segment_in_work_is_not_given_up_because_of_lag() -> None:
    state = after_rebalance(two({"a": 3, "b": 3}), "a", {}, 500_000, busy=(1, 2))
    assert state.moved == (0,)
    busy = after_rebalance(two({"a": 3, "b": 3}), "a", {}, 500_000, busy=(0, 1, 2))
    assert (len(busy.free), busy.moved) == (0, ())


def test_lags_between_two_renewals_are_usual() -> None:
    state = two({"a": 4, "b": 4}, Lease(7, 0, 10_000))
    usual = 10_000 // RENEWALS
    assert not len(after_rebalance(state, "a", {}, usual).free)
    assert len(after_rebalance(state, "a", {}, usual + 1).free) == 1


@pytest.mark.parametrize(("lag", "gives_up"), [(20_000, False), (20_001, True)])
def test_who_is_not_further_behind_than_two_times_the_others_is_not_behind(lag: int, gives_up: bool) -> None:
    state = group({"a": 4, "b": 4}).with_lag("b", 10_000, has_waited=False)
    assert bool(len(after_rebalance(state, "a", {}, lag).free)) is gives_up


def test_after_six_leases_in_which_it_was_not_behind_a_reader_gives_up_what_it_had_received() -> None:
    state = after_rebalance(two({"a": 3, "b": 3}, Lease(7, 0, 10_000)), "a", {}, 10**6)
    state = after_rebalance(state, "b", {}, 0)
    assert [len(state.owned(each)) for each in "ab"] == [2, 4]
    state = after_rebalance(state, "a", {}, 0)
    for _ in range(CALM):
        for name in "ab":
            state = state.with_renewal(name, state.readers[state.index(name)].lease)
    assert state.moved == (2,)
    state = after_rebalance(state, "b", {}, 10**6)
    assert state.moved == (5,), "and begins with what it did not receive"
    assert 2 in after_rebalance(after_rebalance(state, "a", {}, 0), "b", {}, 10**6, busy=(3, 4)).moved


def test_who_has_not_reported_yet_is_not_taken_for_one_that_is_not_behind() -> None:
    state = after_rebalance(group({"a": 3, "b": 3}), "a", {}, 10**6)
    assert (len(state.free), state.readers[0].limit) == (0, 0)
    assert behind(after_rebalance(state, "b", {}, 0)).tolist() == [True, False]


def test_a_reader_whose_lag_is_unknown_is_neither_behind_nor_ahead_and_takes_last() -> None:
    state = two({"a": 3, "b": 3})
    state = after_rebalance(state, "a", {}, 10**6)
    assert (state.readers[0].limit, behind(state).tolist()) == (2, [True, False])
    unknown = after_rebalance(state, "a", {}, None)
    assert (unknown.readers[0].limit, behind(unknown).tolist()) == (2, [False, False])
    assert unknown.without_limits().readers[0].limit == 2, "its limit remains until it is known not to be behind"
    nobody = after_rebalance(group({"a": 4, "b": 2}), "b", {}, None)
    assert not behind(nobody.with_lag("a", 10**6, has_waited=False)).any()
    waiting = group({"a": 1, "b": 1}, free=1).with_lag("a", 5, has_waited=False)
    assert not len(after_rebalance(waiting, "a", {}, 5).free)
    assert len(after_rebalance(waiting, "b", {}, None).free), "a is not further behind, as far as anybody knows"


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 12)), min_size=1, max_size=7), st.integers(0, 20))
def test_shares_are_what_is_left_when_segments_are_dealt_one_by_one(rows: list[tuple[int, int]], free: int) -> None:
    counts, limits = [count for count, _ in rows], [limit for _, limit in rows]
    of, total = shares(counts, free=free, limits=limits), sum(counts) + free
    bounds = [limit or total for limit in limits]
    bounds = [total] * len(rows) if sum(bounds) < total else bounds
    dealt = [0] * len(rows)
    for _ in range(total):
        dealt[min((each for each in range(len(rows)) if dealt[each] < bounds[each]), key=lambda each: dealt[each])] += 1
    assert all(
        least <= each <= most for least, each, most in zip(of.least.tolist(), dealt, of.most.tolist(), strict=True)
    )
    assert int(of.least.sum()) <= total <= int(of.most.sum())
