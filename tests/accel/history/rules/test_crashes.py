"""Whoever takes a workflow up after a crash comes to where an undisturbed one does, whatever their clock says."""

from __future__ import annotations

from typing import Any

import pytest

from accel.errors import IllegalState
from accel.history.rules import transactions
from accel.history.rules.epochs import EpochRecord, delta_of, record_of
from accel.history.rules.scaling import ScaleRequest
from accel.history.rules.segments import split_range
from accel.history.rules.states import first_epoch
from accel.history.rules.transactions import (
    CommittingTransactions,
    needs_rolling,
    repeat_active_epoch,
    repeat_transaction_epoch,
    with_rolling,
)
from accel.history.rules.values import EPOCH_MAX, make_transaction_id
from tests.accel.history.rules.interpreter import Interpreter
from tests.accel.history.rules.world import World

SCALE = {"seal": ["1@0"], "ranges": [[0.5, 0.75], [0.75, 1.0]], "time": 1001, "sizes": {"1@0": 7}}


def swept(chunk_size: int, sweep: dict[str, Any]) -> Interpreter:
    case = Interpreter({"chunk_size": chunk_size, "shard_size": 2})
    steps: list[dict[str, Any]] = [
        {"op": "create", "args": {"segments": 2, "time": 1000, "min_segments": 1}},
        {"op": "txn_create", "args": {"id": "a"}},
        {"op": "txn_create", "args": {"id": "b"}},
        {"op": "txn_seal", "args": {"id": "b", "commit": True}},
        {"op": "txn_seal", "args": {"id": "a", "commit": True}},
        {"op": "scale", "args": {**SCALE, "seal": ["0@0"], "ranges": [[0.0, 0.5]]}},
        {"op": "crash_sweep", "args": sweep, "expect": "same_final_state"},
    ]
    assert [said for step in steps if (said := case.run(step)) is not None] == []
    return case


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
    world = World()
    world.initialize(2, 1000, min_segments=1)
    world.scale(ScaleRequest((0, 1), split_range(0.0, 1.0, 3), 1001), {})
    old, active = world.epoch(0), world.current
    again = repeat_transaction_epoch(active, old, 1500)
    assert [(str(each), each.key_start, each.key_end) for each in again.segments] == [
        ("0@2", 0.0, 0.5),
        ("1@2", 0.5, 1.0),
    ]
    assert (again.reference_epoch, again.creation_time_ms) == (0, 1500)
    both: list[EpochRecord] = [active, repeat_active_epoch(active, again)]
    assert both[1].reference_epoch == 1
    assert both[0].segments.ranges == both[1].segments.ranges
    assert (again.splits, again.merges) == (active.splits + 1, active.merges + 2)
    assert needs_rolling(active, old)
    assert not needs_rolling(again, old)


def test_the_record_of_an_epoch_follows_from_what_changed_in_it() -> None:
    world = World()
    world.initialize(2, 1000, min_segments=1)
    world.scale(ScaleRequest((0, 1), split_range(0.0, 1.0, 3), 1001), {})
    first, scaled = world.epoch(0), world.current
    rolled = repeat_transaction_epoch(scaled, first, 1500)
    for record, before, reference in ((first, None, None), (scaled, first, None), (rolled, scaled, first)):
        assert record_of(delta_of(record, before), before, reference) == record
    for wrong in (None, scaled):
        with pytest.raises(ValueError, match="expected epoch 0"):
            record_of(delta_of(rolled, scaled), scaled, wrong)
    with pytest.raises(ValueError, match="expected the epoch before 2"):
        record_of(delta_of(rolled, scaled), first, first)


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
