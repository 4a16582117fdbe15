"""Neighbouring bytes are read together, and nothing is left out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaders.format.index import join_spans


def joined(pieces: list[tuple[int, int]], objects: list[int] | None = None, **bounds: int) -> list[tuple[int, int]]:
    starts, ends = (np.array(column, dtype=np.int64) for column in zip(*pieces, strict=True))
    return join_spans(starts, ends, None if objects is None else np.array(objects), **bounds)


def test_nothing_is_no_span() -> None:
    nothing = np.empty(0, dtype=np.int64)
    assert join_spans(nothing, nothing) == []


@pytest.mark.parametrize(("gap", "spans"), [(0, [(0, 2), (2, 3)]), (4, [(0, 2), (2, 3)]), (5, [(0, 3)])])
def test_a_small_gap_is_read_along(gap: int, spans: list[tuple[int, int]]) -> None:
    assert joined([(0, 10), (10, 20), (25, 30)], gap_size_bytes_max=gap) == spans


def test_a_span_ends_with_its_object() -> None:
    assert joined([(0, 10), (10, 20), (20, 30)], [7, 7, 8]) == [(0, 2), (2, 3)]


def test_bytes_in_front_begin_another_span() -> None:
    assert joined([(10, 20), (0, 10), (10, 12)]) == [(0, 1), (1, 3)]


def test_one_item_alone_may_be_longer_than_a_span() -> None:
    assert joined([(0, 10), (10, 50), (50, 55), (55, 60)], span_size_bytes_max=12) == [(0, 1), (1, 2), (2, 4)]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), min_size=1, max_size=30),
    st.integers(0, 3),
    st.integers(1, 40),
)
def test_spans_follow_one_another_within_the_bounds(steps: list[tuple[int, int]], gap: int, most: int) -> None:
    pieces: list[tuple[int, int]] = []
    for skipped, size in steps:
        start = (pieces[-1][1] if pieces else 0) + skipped
        pieces.append((start, start + size))
    spans = joined(pieces, gap_size_bytes_max=gap, span_size_bytes_max=most)
    assert [number for first, stop in spans for number in range(first, stop)] == list(range(len(pieces)))
    for first, stop in spans:
        assert stop == first + 1 or pieces[stop - 1][1] - pieces[first][0] <= most
        assert all(pieces[at + 1][0] - pieces[at][1] <= gap for at in range(first, stop - 1))
