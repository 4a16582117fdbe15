"""A view answers for one stream, entry by entry."""

from array import array
from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from range_index import Entry, StreamView
from range_index.runs import Run
from range_index.stream_view import LiveView

starts = st.lists(st.integers(0, 50), max_size=12).map(sorted)


def view_of(first_offsets: list[int], holed: frozenset[int] = frozenset()) -> StreamView:
    ends = [start + 5 for start in first_offsets]
    return StreamView(
        array("q", first_offsets), array("q", ends), array("q", range(len(first_offsets))), holed, version=1
    )


@given(starts, st.integers(-1, 60))
def test_the_floor_is_the_last_entry_that_starts_at_or_before_the_offset(first_offsets: list[int], offset: int) -> None:
    view = view_of(first_offsets)
    below = [entry for entry in view if entry.start <= offset]
    assert view.floor(offset) == (below[-1] if below else None)
    assert view.floor_position(offset) == len(below) - 1 == bisect_right(view.starts, offset) - 1
    assert [view.entry(position) for position in range(len(below) - 1, -1, -1)] == below[::-1]


@pytest.mark.parametrize("position", [-1, 2])
def test_there_is_no_entry_below_the_lowest_or_above_the_highest(position: int) -> None:
    with pytest.raises(IndexError):
        view_of([0, 5]).entry(position)


@pytest.mark.parametrize(
    ("first_offsets", "ends", "object_ids", "holed", "broken"),
    [
        ([5, 0], [9, 9], [1, 2], [], "starts ascend"),
        ([5], [4], [1], [], "no end before start"),
        ([0, 5], [5, 9], [1, 1], [], "each object once"),
        ([0], [5], [1], [2], "a hole flag is of an object"),
    ],
)
def test_a_check_finds_what_is_broken_and_shows_it(
    first_offsets: list[int], ends: list[int], object_ids: list[int], holed: list[int], broken: str
) -> None:
    view = StreamView(array("q", first_offsets), array("q", ends), array("q", object_ids), frozenset(holed), 1)
    with pytest.raises(AssertionError, match=f"{broken}.*state"):
        view.check()


def test_the_check_of_a_view_in_the_index_looks_at_its_entries_as_well() -> None:
    run = Run(array("q", [0, 4, 5, 9, 1, 1]), 2)
    view = LiveView(run, frozenset(), 1, version=1, revision=0, expires=0.0, used=0.0)
    with pytest.raises(AssertionError, match="each object once"):
        view.check()


def test_a_check_finds_a_view_that_is_not_whole() -> None:
    view = view_of([0, 5])
    view.rows = 1
    with pytest.raises(AssertionError, match="each entry has three numbers"):
        view.check()


def test_entries_follow_if_none_begins_before_the_last_one() -> None:
    empty = LiveView(Run(array("q"), 0), frozenset(), -1, version=1, revision=0, expires=0.0, used=0.0)
    assert empty.follow([Entry(0, 5, 1, holed=False)])
    view = LiveView(Run(array("q", [3, 8, 1]), 1), frozenset(), 1, version=1, revision=0, expires=0.0, used=0.0)
    assert view.follow([Entry(3, 9, 2, holed=False), Entry(9, 12, 3, holed=False)])
    assert not view.follow([Entry(2, 9, 2, holed=False)])
    assert not view.follow([Entry(9, 12, 2, holed=False), Entry(8, 9, 3, holed=False)])
