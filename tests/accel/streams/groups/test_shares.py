"""How many segments each reader should have, who gives one up, and who takes one."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.streams.rules.shares import Shares
from tests.examples import examples

LAGS = st.one_of(st.sampled_from([0, 1, 2, 10]), st.integers(0, 2**63 - 1))


def shares(
    counts: list[int], lags: list[int] | None = None, *, free: int = 0, limits: list[int] | None = None
) -> Shares:
    behind = [0] * len(counts) if lags is None else lags
    bounds = [0] * len(counts) if limits is None else limits
    return Shares(np.array(counts, dtype=np.int64), np.array(behind, dtype=np.int64), free, np.array(bounds))


def portions(of: Shares) -> list[int]:
    return [of.portion(each) if of.is_due(each) else 0 for each in range(len(of.counts))]


def test_a_weight_is_segments_times_lag_over_the_highest_lag_of_a_reader() -> None:
    """Pitfall A25: lags by segment were taken for lags by reader."""
    assert shares([4, 2, 3], [10, 40, 20]).weights.tolist() == [4 * 10 / 40, 2 * 40 / 40, 3 * 20 / 40]


def test_nobody_weighs_anything_where_nobody_is_behind() -> None:
    assert shares([4, 2]).weights.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("counts", "free", "who"),
    [
        ([5, 0], 0, [True, False]),
        ([3, 2], 0, [False, False]),
        ([3, 2, 0], 0, [True, False, False]),
        ([2, 2, 0], 0, [True, True, False]),  # whoever calls first; then enough is free
        ([1, 2, 0], 1, [False, False, False]),
        ([4, 2, 1], 0, [True, False, False]),  # a's one is enough for c
        ([5, 3, 3, 0], 0, [True, False, False, False]),
        ([1, 1, 0], 0, [False, False, False]),
        ([0, 0], 7, [False, False]),
        ([6], 3, [False]),
    ],
)
def test_who_has_more_than_its_share_gives_up(counts: list[int], free: int, who: list[bool]) -> None:
    of = shares(counts, free=free)
    assert [of.has_too_much(each) for each in range(len(counts))] == who


@pytest.mark.parametrize(
    ("counts", "lags", "free", "expected"),
    [
        ([0], [0], 5, [5]),
        ([0, 0], [0, 0], 5, [3, 2]),  # names decide
        ([0, 0], [9, 1], 5, [2, 3]),  # who is further behind does not take more
        ([1, 0, 0], [0, 0, 0], 2, [0, 1, 1]),
        ([0, 0, 0], [9, 2**62 + 1, 2**62], 2, [1, 0, 1]),  # nobody weighs anything: lags decide, exactly
        ([9, 0, 0], [0, 5, 4], 1, [0, 0, 1]),
        ([2, 2, 1], [5, 9, 9], 2, [1, 0, 1]),
        ([3, 0, 0], [0, 0, 0], 1, [0, 1, 0]),
        ([3, 1, 0], [9, 9, 0], 2, [0, 0, 2]),  # b gets the one that a gives up
        ([7, 1, 0], [9, 9, 9], 1, [0, 0, 1]),  # c weighs 0, b 1
        ([7, 1, 0], [9, 0, 9], 1, [0, 1, 0]),  # both weigh 0
        ([8, 0, 0], [9, 3, 1], 2, [0, 1, 1]),  # once b has one it weighs 1/3, and c comes first
        ([8, 0, 0], [9, 0, 1], 2, [0, 2, 0]),  # b is not behind at all
        ([2, 2], [0, 0], 0, [0, 0]),
    ],
)
def test_who_is_due_takes_by_weight_then_by_lag_then_by_name(
    counts: list[int], lags: list[int], free: int, expected: list[int]
) -> None:
    assert portions(shares(counts, lags, free=free)) == expected


def test_what_others_lack_is_not_taken_by_those_who_have_enough() -> None:
    of = shares([1, 1, 0], free=2)  # 4 of 3: one is due to c, one is left over
    assert [of.is_due(each) for each in range(3)] == [True, True, True]
    of = shares([2, 1, 0], free=1)
    assert [of.is_due(each) for each in range(3)] == [False, False, True]


class Given(NamedTuple):
    counts: list[int]
    lags: list[int]
    free: int


groups = st.integers(1, 6).flatmap(
    lambda size: st.builds(
        Given,
        st.lists(st.integers(0, 9), min_size=size, max_size=size),
        st.lists(LAGS, min_size=size, max_size=size),
        st.integers(0, 20),
    )
)


@settings(max_examples=examples(500), deadline=None)
@given(groups)
def test_portions_are_all_that_is_free_and_leave_nobody_with_too_much(now: Given) -> None:
    of = shares(now.counts, now.lags, free=now.free)
    taken = portions(of)
    assert sum(taken) <= now.free
    rows = list(zip(now.counts, taken, of.most.tolist(), strict=True))
    assert all(count + each <= most for count, each, most in rows if each)
    if all(count <= most for count, _, most in rows):
        assert sum(taken) == now.free


@settings(max_examples=examples(300), deadline=None)
@given(groups)
def test_portions_are_what_one_after_the_other_would_take(now: Given) -> None:
    of = shares(now.counts, now.lags, free=now.free)
    counts, behind = list(now.counts), (of.lags / max(*now.lags, 1)).tolist()
    for _ in range(now.free):
        below = [each for each, count in enumerate(counts) if count < of.least[each]]
        candidates = below or [each for each, count in enumerate(counts) if count == of.least[each] < of.most[each]]
        if not candidates:
            break
        counts[min(candidates, key=lambda each: (counts[each] * behind[each], now.lags[each], each))] += 1
    assert portions(of) == [after - before for after, before in zip(counts, now.counts, strict=True)]


def test_thousands_of_readers_are_shared_out_at_once() -> None:
    counts = [0] * 10_000
    lags = list(itertools.islice(itertools.cycle(range(7)), 10_000))
    of = shares(counts, lags, free=15_000)
    assert sum(of.portion(each) for each in range(0, 10_000, 1_000)) in range(10, 21)
    assert of.portion(0) == 2  # lag 0
    assert of.portion(6) == 1
