"""Ids of segments and transactions."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from accel.errors import InvalidArgument
from accel.history.rules.values import (
    COUNTER_MAX,
    EPOCH_MAX,
    NUMBER_MAX,
    checked_numbers,
    checked_time,
    epoch_of,
    is_segment_id,
    make_id,
    make_transaction_id,
    number_of,
    parse_segment,
    segment_text,
    transaction_epoch,
)

EPOCHS = st.integers(0, EPOCH_MAX)
NUMBERS = st.integers(0, NUMBER_MAX)


@given(EPOCHS, NUMBERS)
def test_an_id_tells_its_epoch_and_number_and_reads_back(epoch: int, number: int) -> None:
    segment_id = make_id(epoch, number)
    assert (epoch_of(segment_id), number_of(segment_id)) == (epoch, number)
    assert segment_id == epoch << 32 | number
    assert parse_segment(segment_text(segment_id)) == segment_id
    assert is_segment_id(segment_id)


@given(EPOCHS, NUMBERS, EPOCHS, NUMBERS)
def test_ids_ascend_with_epochs_first(epoch: int, number: int, other_epoch: int, other: int) -> None:
    assert (make_id(epoch, number) < make_id(other_epoch, other)) == ((epoch, number) < (other_epoch, other))


@given(EPOCHS, st.integers(0, COUNTER_MAX))
def test_a_transaction_tells_the_epoch_in_which_it_began(epoch: int, counter: int) -> None:
    found = make_transaction_id(epoch, counter)
    assert transaction_epoch(found) == epoch
    assert found.int & COUNTER_MAX == counter


@pytest.mark.parametrize("text", ["", "3", "@1", "3@", "3@1@2", "-3@1", "03@1", "3@01", "٣@1", "3 @1", "2147483648@0"])
def test_what_is_no_segment_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="number"):
        parse_segment(text)


def test_numbers_beyond_31_bits_are_refused() -> None:
    for epoch, number in ((-1, 0), (0, -1), (EPOCH_MAX + 1, 0), (0, NUMBER_MAX + 1)):
        with pytest.raises(ValueError, match="expected"):
            make_id(epoch, number)
    with pytest.raises(ValueError, match="counter"):
        make_transaction_id(0, COUNTER_MAX + 1)
    assert not is_segment_id(2**63)
    assert not is_segment_id(2**31)
    assert not is_segment_id(-1)


def test_the_last_time_is_the_last_millisecond_of_the_year_5138() -> None:
    assert checked_time("a time", 99_999_999_999_999) == 99_999_999_999_999
    for wrong in (100_000_000_000_000, -1):
        with pytest.raises(InvalidArgument, match="expected a time"):
            checked_time("a time", wrong)


def test_a_segment_that_is_named_as_a_number_and_as_text_is_refused() -> None:
    assert dict(checked_numbers("a cut", {"1@0": 5, 2: 6})) == {1: 5, 2: 6}
    with pytest.raises(InvalidArgument, match="with each segment once, found one as a number and as text"):
        checked_numbers("a cut", {"1@0": 5, 1: 6})
