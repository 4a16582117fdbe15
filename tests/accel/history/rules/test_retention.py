"""Retention: recording cuts, finding one, and which one satisfies a policy."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from accel.history.rules import retention
from accel.history.rules.configuration import RetentionKind, RetentionPolicy
from accel.history.rules.retention import RetentionEntry, RetentionSet

ENTRIES = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), max_size=8, unique_by=lambda each: each[0])
RECORDED = RetentionSet([0, 100, 200, 300], [0, 10, 20, 30])


def recorded(entries: list[tuple[int, int]]) -> RetentionSet:
    ascending = sorted(entries)
    return RetentionSet([time for time, _ in ascending], [size for _, size in ascending])


def time_of(entry: RetentionEntry | None) -> int | None:
    return None if entry is None else entry.recording_time_ms


@given(ENTRIES, st.integers(-1, 51))
def test_the_greatest_at_or_below_is_found_and_of_several_the_last(entries: list[tuple[int, int]], value: int) -> None:
    """Pitfall D8: of several cuts of the same size any one was found."""
    now = recorded(entries)
    times = [time for time, _ in entries if time <= value]
    assert time_of(retention.find_by_time(now, value)) == max(times, default=None)
    sizes = [(size, time) for time, size in entries if size <= value]
    assert time_of(retention.find_by_size(now, value)) == max(sizes, default=(0, None))[1]


@given(ENTRIES, st.integers(-1, 51))
def test_deleting_up_to_a_time_takes_that_time_along(entries: list[tuple[int, int]], time_ms: int) -> None:
    now = recorded(entries)
    gone, left = retention.entries_up_to(now, time_ms), retention.without_up_to(now, time_ms)
    assert list(gone) == [each for each in now if each.recording_time_ms <= time_ms]
    assert (left is None) == (not len(gone))
    if left is not None:
        assert [*gone, *left] == list(now)


def test_a_cut_that_was_not_recorded_last_is_left_out() -> None:
    assert retention.with_entry(RECORDED, RetentionEntry(300, 31)) is None
    assert retention.with_entry(RECORDED, RetentionEntry(301, 31)) == RetentionSet(
        [0, 100, 200, 300, 301], [0, 10, 20, 30, 31]
    )


def test_an_empty_set_finds_nothing() -> None:
    """Pitfall D8: a search in an empty set of cuts was an error."""
    empty = RetentionSet()
    assert retention.find_by_time(empty, 5) is None
    assert retention.find_by_size(empty, 5) is None
    assert retention.first_by_time(empty, 5) is None
    assert retention.first_by_size(empty, 5) is None
    assert retention.reference_before(empty, lambda _: True) is None


def test_the_last_cut_that_a_cut_is_not_before_is_its_reference() -> None:
    now = RetentionSet([1, 2, 3, 4], [5, 7, 7, 9])
    for size, expected in ((4, None), (5, 1), (6, 1), (7, 3), (8, 3), (9, 4), (10, 4)):
        found = retention.reference_before(now, lambda entry: entry.recorded_size <= size)  # noqa: B023 - at once
        assert time_of(found) == expected


@pytest.mark.parametrize(
    ("minimum", "maximum", "read", "has_readers", "expected"),
    [
        (150, None, None, False, 100),
        (130, None, None, False, 200),
        (131, None, None, False, 100),
        (331, None, None, False, None),
        (0, None, None, False, 300),
        (150, None, None, True, None),
        (150, None, 0, True, 0),
        (150, None, 300, True, 100),
        (30, 250, 0, True, 100),
        (30, 250, None, True, 100),
        (30, 230, None, True, 100),
        (30, 229, None, True, 200),
        (30, 250, 200, True, 200),
        (150, 160, None, True, 100),
        (150, 330, None, True, None),
        (150, 1000, None, True, None),
    ],
)
def test_retention_bound_table(
    minimum: int, maximum: int | None, read: int | None, expected: int | None, *, has_readers: bool
) -> None:
    """Pitfall A21: the upper bound looked on the wrong side (pravega issue 5622).

    At 330: the minimum looks for the cut before, the maximum for the one after; and the minimum wins.
    """
    policy = RetentionPolicy(RetentionKind.TIME, minimum, maximum)
    by_all = None if read is None else retention.find_by_time(RECORDED, read)
    found = retention.truncation_point(RECORDED, policy, 330, 33, by_all, has_readers=has_readers)
    assert time_of(found) == expected


def test_the_maximum_counts_back_from_now_and_not_from_1970() -> None:
    """A clock shows milliseconds since 1970, so that it is larger than any maximum."""
    now_ms = 1_800_000_000_330
    recorded = RetentionSet(RECORDED.times_ms + now_ms - 330, RECORDED.sizes)
    for minimum, maximum, expected in ((150, 1000, None), (150, 331, None), (30, 250, 100), (150, 330, 0)):
        policy = RetentionPolicy(RetentionKind.TIME, minimum, maximum)
        found = retention.truncation_point(recorded, policy, now_ms, 33, None, has_readers=True)
        assert time_of(found) == (None if expected is None else now_ms - 330 + expected), maximum


@pytest.mark.parametrize(("minimum", "expected"), [(13, 200), (14, 100), (33, 0), (34, None), (3, 300)])
def test_retention_by_size_keeps_at_least_the_minimum(minimum: int, expected: int | None) -> None:
    policy = RetentionPolicy(RetentionKind.SIZE, minimum)
    assert time_of(retention.truncation_point(RECORDED, policy, 10**12, 33)) == expected
    limited = RetentionPolicy(RetentionKind.SIZE, minimum, minimum)
    assert time_of(retention.truncation_point(RECORDED, limited, 10**12, 33)) == expected
