"""Commits that roll: two epochs repeat older segments under new ids, whatever the clock of whoever writes them says."""

from __future__ import annotations

import pytest

from accel.errors import IllegalState
from accel.history.rules import transactions
from accel.history.rules.epochs import delta_of, record_of
from accel.history.rules.states import first_epoch
from accel.history.rules.transactions import (
    CommittingTransactions,
    needs_rolling,
    repeat_active_epoch,
    repeat_transaction_epoch,
    with_rolling,
)
from accel.history.rules.values import EPOCH_MAX, make_transaction_id
from tests.accel.history.rules.streams import Stream, new, whole


def scaled() -> Stream:
    """Halves, replaced by thirds."""
    stream = new(2)
    stream.scale(whole(stream.current, 3, 1001))
    return stream


def test_times_of_a_roll_follow_from_the_epoch_that_was_read_back() -> None:
    """The first process wrote the transactions' epoch at 1010; the second one's clock says 995."""
    active = first_epoch(2, 1000)
    stored = repeat_transaction_epoch(active, active, 1010)
    late = repeat_transaction_epoch(active, active, 995)
    assert (stored.creation_time_ms, late.creation_time_ms) == (1010, 1001)
    assert repeat_active_epoch(active, stored).creation_time_ms == 1011
    with pytest.raises(ValueError, match="epoch 1"):
        repeat_active_epoch(active, active)


def test_duplicates_have_the_old_numbers_and_ranges_under_ids_of_their_own() -> None:
    old, active = scaled().records
    again = repeat_transaction_epoch(active, old, 1500)
    assert [(str(each), each.key_start, each.key_end) for each in again.segments] == [
        ("0@2", 0.0, 0.5),
        ("1@2", 0.5, 1.0),
    ]
    assert (again.reference_epoch, again.creation_time_ms) == (0, 1500)
    both = [active, repeat_active_epoch(active, again)]
    assert both[1].reference_epoch == 1
    assert both[0].segments.ranges == both[1].segments.ranges
    assert (again.splits, again.merges) == (active.splits + 1, active.merges + 2)
    assert needs_rolling(active, old)
    assert not needs_rolling(again, old)


def test_the_record_of_an_epoch_follows_from_what_changed_in_it() -> None:
    first, second = scaled().records
    rolled = repeat_transaction_epoch(second, first, 1500)
    for record, before, reference in ((first, None, None), (second, first, None), (rolled, second, first)):
        assert record_of(delta_of(record, before), before, reference) == record
    for wrong in (None, second):
        with pytest.raises(ValueError, match="expected epoch 0"):
            record_of(delta_of(rolled, second), second, wrong)
    with pytest.raises(ValueError, match="expected the epoch before 2"):
        record_of(delta_of(rolled, second), first, first)


def test_a_commit_rolls_from_one_epoch_only() -> None:
    committing = CommittingTransactions(0, (make_transaction_id(0, 1),))
    started = with_rolling(committing, 4)
    assert started == committing.with_active_epoch(4)
    assert started is not None
    assert with_rolling(started, 4) is None
    with pytest.raises(IllegalState, match="from epoch 5"):
        with_rolling(started, 5)
    with pytest.raises(IllegalState):
        with_rolling(CommittingTransactions(), 4)


def test_a_commit_rolls_while_two_epoch_numbers_are_left() -> None:
    committing = CommittingTransactions(0, (make_transaction_id(0, 1),))
    assert with_rolling(committing, EPOCH_MAX - 2) is not None
    with pytest.raises(IllegalState):
        with_rolling(committing, EPOCH_MAX - 1)


def test_a_roll_is_over_once_the_stream_has_moved_on() -> None:
    committing = CommittingTransactions(0, (make_transaction_id(0, 1),), active_epoch=0)
    first = first_epoch(1, 1000)
    assert not transactions.is_rolled(committing, first)
    assert transactions.is_rolled(committing, repeat_transaction_epoch(first, first, 1001))
