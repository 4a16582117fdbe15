"""Transactions: what may become of them, and in which order they are committed."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import hypothesis.strategies as st
import pytest
from hypothesis import given

from accel.errors import IllegalState, InvalidArgument, NotInHistory
from accel.history.rules import transactions
from accel.history.rules.states import StreamState, first_epoch
from accel.history.rules.transactions import ActiveTransaction, CommitOrder, CompletedTransaction, TransactionStatus
from accel.history.rules.values import IdMap, make_transaction_id

OPEN = transactions.opened(1000, 50, 200)
COMMITTING = transactions.after_commit_start(OPEN, 0)
ABORTING = transactions.after_abort_start(OPEN)


@pytest.mark.parametrize(
    ("status", "commit", "expected"),
    [
        ("OPEN", True, False),
        ("OPEN", False, False),
        ("COMMITTING", True, True),
        ("COMMITTED", True, True),
        ("ABORTING", False, True),
        ("ABORTED", False, True),
        ("COMMITTING", False, None),
        ("COMMITTED", False, None),
        ("ABORTING", True, None),
        ("ABORTED", True, None),
        ("UNKNOWN", True, None),
    ],
)
def test_sealing_twice_gives_the_same_answer_and_the_opposite_is_refused(
    status: str, expected: bool | None, *, commit: bool
) -> None:
    now = TransactionStatus(status)
    if expected is None:
        with pytest.raises(IllegalState, match=status):
            transactions.is_sealed(now, commit=commit)
    else:
        assert transactions.is_sealed(now, commit=commit) is expected


def test_a_transaction_that_is_gone_tells_how_it_ended_while_somebody_knows() -> None:
    known = CompletedTransaction(5, TransactionStatus.COMMITTED)
    assert transactions.refuse_other_end(known, commit=True) is TransactionStatus.COMMITTED
    with pytest.raises(IllegalState):
        transactions.refuse_other_end(known, commit=False)
    with pytest.raises(NotInHistory):
        transactions.refuse_other_end(None, commit=True)


def test_only_sealed_transactions_end() -> None:
    assert transactions.completion_of(COMMITTING, 7) == CompletedTransaction(7, TransactionStatus.COMMITTED)
    assert transactions.completion_of(ABORTING, 7) == CompletedTransaction(7, TransactionStatus.ABORTED)
    with pytest.raises(IllegalState):
        transactions.completion_of(OPEN, 7)


def test_a_lease_is_prolonged_within_the_longest_time() -> None:
    assert (OPEN.lease_expiry_ms, OPEN.max_execution_expiry_ms) == (1050, 1200)
    assert transactions.with_lease(OPEN, 1040, 60).lease_expiry_ms == 1100
    with pytest.raises(InvalidArgument, match="1 to 10 ms"):
        transactions.with_lease(OPEN, 1190, 50)
    with pytest.raises(InvalidArgument):
        transactions.opened(1000, 0, 200)
    with pytest.raises(IllegalState):
        transactions.with_lease(ABORTING, 1040, 60)
    assert not transactions.is_expired(OPEN, 1050)
    assert transactions.is_expired(OPEN, 1051)
    assert not transactions.is_expired(COMMITTING, 9999)


def test_where_a_transaction_was_merged_is_kept() -> None:
    assert transactions.with_commit_offsets(COMMITTING, IdMap([0], [70])).commit_offsets == {0: 70}


def test_transactions_of_duplicates_carry_the_epoch_that_is_repeated() -> None:
    record = first_epoch(1, 1000)
    assert transactions.epoch_to_begin_in(StreamState.ACTIVE, record) == 0
    with pytest.raises(IllegalState):
        transactions.epoch_to_begin_in(StreamState.SEALING, record)
    assert transactions.droppable_epochs([0, 3, 1], record) == []


def test_completed_batches_are_kept_two_deep() -> None:
    assert transactions.droppable_batches([5, 3, 4, 9]) == [3, 4]
    assert transactions.droppable_batches([5]) == []


STATUSES = st.sampled_from(["OPEN", "COMMITTING", "ABORTING", "gone"])


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=10), st.data(), st.integers(1, 5))
def test_the_oldest_epoch_with_something_to_commit_comes_first_and_in_order(
    entries: list[tuple[int, int]], data: st.DataObject, limit: int
) -> None:
    order = CommitOrder()
    places: dict[UUID, list[int]] = {}
    for epoch, counter in entries:
        transaction_id = make_transaction_id(epoch, counter)
        order, position = transactions.with_transaction(order, transaction_id)
        places.setdefault(transaction_id, []).append(position)
    known: dict[UUID, ActiveTransaction] = {}
    for transaction_id, positions in places.items():
        status = data.draw(STATUSES)
        if status == "COMMITTING":
            known[transaction_id] = transactions.after_commit_start(OPEN, data.draw(st.sampled_from(positions)))
        elif status != "gone":
            known[transaction_id] = OPEN if status == "OPEN" else ABORTING
    read: list[UUID] = []

    def read_transactions(ids: Sequence[UUID]) -> dict[UUID, ActiveTransaction]:
        read.extend(ids)
        return {each: known[each] for each in ids if each in known}

    found = transactions.next_commit(order, read_transactions, limit)
    wanted = sorted(
        (each.int >> 96, now.commit_position or 0, each)
        for each, now in known.items()
        if now.status is TransactionStatus.COMMITTING
    )
    oldest = [each for epoch, _, each in wanted if epoch == wanted[0][0]]
    assert list(found.committing.transaction_ids) == oldest[:limit]
    for transaction_id, positions in places.items():
        now = known.get(transaction_id)
        for position in positions:
            is_kept = now is not None and (now is OPEN or now.commit_position == position)
            assert (position in found.to_purge) == (transaction_id in read and not is_kept)


def test_positions_never_come_twice() -> None:
    order, first = transactions.with_transaction(CommitOrder(), make_transaction_id(0, 1))
    emptied = transactions.without_positions(order, {first})
    assert emptied == CommitOrder(1)
    assert emptied is not None
    assert transactions.with_transaction(emptied, make_transaction_id(0, 1))[1] == 1
    assert transactions.without_positions(emptied, {first}) is None


def test_a_limit_makes_sense() -> None:
    for limit in (0, 10_001):
        with pytest.raises(InvalidArgument):
            transactions.next_commit(CommitOrder(), lambda _: {}, limit)
