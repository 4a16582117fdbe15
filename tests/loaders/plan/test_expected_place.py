"""Where an offset is expected: next to a holder that ends shortly before it, at the head, or at the tail."""

from __future__ import annotations

import pytest

from loaders.plan import NO_GUESS, Guess, Near, Trust, expected_place
from range_index import StreamRange

HEAD, TAIL = 1_000, 11_000
LOW, HIGH, ENDS = Near.LOW, Near.HIGH, Near.ENDS
SURE, LIKELY, OPEN = Trust.SURE, Trust.LIKELY, Trust.OPEN


def held(start: int, end: int) -> StreamRange:
    return StreamRange(start, end, holed=False)


BEFORE, AFTER = held(4_990, 5_000), held(6_000, 6_010)
"""Neighbours of ten offsets each."""


@pytest.mark.parametrize("tail", [TAIL, None])
def test_what_continues_a_holder_is_surely_next_to_it(tail: int | None) -> None:
    assert expected_place(5_000, BEFORE, None, HEAD, tail) == (LOW, SURE)
    assert expected_place(5_000, BEFORE, held(5_001, 5_002), HEAD, tail) == (LOW, SURE)


@pytest.mark.parametrize("tail", [TAIL, None])
def test_the_first_offset_of_all_is_surely_at_the_head(tail: int | None) -> None:
    assert expected_place(HEAD, None, None, HEAD, tail) == (LOW, SURE)
    assert expected_place(HEAD - 5, None, AFTER, HEAD, tail) == (LOW, SURE)


@pytest.mark.parametrize(
    ("offset", "near"),
    [
        (HEAD + 1, LOW),
        (HEAD + 100, LOW),
        (HEAD + 101, None),
        (TAIL - 101, None),
        (TAIL - 100, HIGH),
        (TAIL, HIGH),
        (TAIL + 5_000, HIGH),
    ],
)
def test_the_first_and_the_last_hundredth_are_head_and_tail(offset: int, near: Near | None) -> None:
    expected = NO_GUESS if near is None else Guess(near, SURE)
    assert expected_place(offset, None, None, HEAD, TAIL) == expected


def test_between_known_holders_there_is_no_head_and_no_tail() -> None:
    assert expected_place(HEAD + 90, held(HEAD, HEAD + 1), None, HEAD, TAIL) == NO_GUESS
    assert expected_place(TAIL - 90, None, held(TAIL - 1, TAIL), HEAD, TAIL) == NO_GUESS


@pytest.mark.parametrize(
    ("offset", "near"), [(5_001, LOW), (5_040, LOW), (5_041, None), (5_959, None), (5_960, HIGH), (5_999, HIGH)]
)
def test_few_offsets_from_a_known_holder_are_few_objects(offset: int, near: Near | None) -> None:
    expected = NO_GUESS if near is None else Guess(near, LIKELY)
    assert expected_place(offset, BEFORE, AFTER, HEAD, TAIL) == expected
    assert expected_place(offset, BEFORE, AFTER, HEAD, None) == expected


def test_both_neighbours_may_be_near() -> None:
    assert expected_place(5_010, BEFORE, held(5_020, 5_030), HEAD, TAIL) == (ENDS, LIKELY)
    assert expected_place(TAIL - 10, held(TAIL - 30, TAIL - 20), None, HEAD, TAIL) == (ENDS, LIKELY)
    assert expected_place(HEAD + 10, None, held(HEAD + 20, HEAD + 30), HEAD, TAIL) == (ENDS, LIKELY)


def test_where_nobody_tells_the_end_the_tail_may_be_anywhere() -> None:
    assert expected_place(HEAD + 1, None, None, HEAD, None) == (ENDS, OPEN)
    assert expected_place(9_999, None, None, HEAD, None) == (ENDS, OPEN)
    assert expected_place(9_999, BEFORE, None, HEAD, None) == (HIGH, OPEN)
    assert expected_place(5_010, BEFORE, None, HEAD, None) == (ENDS, LIKELY)
