"""Transactions: begun, decided, committed in their order, remembered for a while."""

from __future__ import annotations

from uuid import UUID

import pytest

from accel.errors import (
    IllegalState,
    NotInHistory,
)
from accel.history.records import NO_COMMIT
from accel.history.states import StreamState
from accel.history.store import HistorySettings
from accel.history.store.places import completed_table
from accel.history.transactions import TransactionStatus
from loaders.store import Crash, CrashStore, ObjectStore
from tests.conformance.history_world import SCOPE, STREAM
from tests.history_store.acts import WORKS
from tests.history_store.bench import NAME, START_MS, Bench, ids

# Transactions


def test_a_transaction_is_committed_into_the_segments_that_it_began_with(bench: Bench) -> None:
    bench.transaction("first", size=3)
    bench.scale_once()
    bench.append_all(2)
    bench.transaction("second", size=5)
    assert bench.stream().commit(bench.tick()).active_epoch is None
    stream = bench.stream()
    assert stream.epoch(2).segments.ids.tolist() == ids("0@2", "1@2")
    assert dict(stream.workflows.cuts.shard(1)) == {**dict.fromkeys(ids("0@2", "1@2"), 3)}
    assert stream.current_epoch().segments.ids.tolist() == ids("1@3", "2@3")
    stream.commit(bench.tick())
    assert stream.current_epoch().epoch == 3
    assert bench.host.tails(NAME, stream.active_segments().ids) == dict.fromkeys(ids("1@3", "2@3"), 5)


def test_a_transaction_that_begins_while_its_epoch_ends_is_not_lost(bench: Bench) -> None:
    # The client reads the current epoch, and before its entry is there the stream is scaled and the table dropped.
    store = bench.streams().stream(SCOPE, STREAM).workflows.transactions
    bench.transaction("other")
    opened = bench.stream()
    current = opened.current_epoch()
    bench.scale_once()
    bench.stream().commit(bench.tick())
    assert store.epochs() == []
    reading = opened.workflows.epochs
    answers = iter([current])
    original = reading.current
    reading.current = lambda: next(answers, None) or original()  # type: ignore[method-assign]  # an old answer first
    transaction = opened.begin_transaction()
    assert transaction.int >> 96 == bench.stream().current_epoch().reference_epoch == 1
    assert list(bench.stream().workflows.transactions.active()) == [transaction]


def test_a_stream_without_transactions_has_no_tables_for_them(bench: Bench) -> None:
    for _ in range(5):
        bench.scale_once()
    assert bench.stream().workflows.transactions.epochs() == []
    assert not [each for each in bench.live_keys() if "transactionsInEpoch" in each]


def test_the_same_decision_twice_is_one_and_the_opposite_is_refused(bench: Bench) -> None:
    stream = bench.stream()
    transaction = stream.begin_transaction()
    assert stream.end_transaction(transaction, commit=True) is TransactionStatus.COMMITTING
    assert stream.end_transaction(transaction, commit=True) is TransactionStatus.COMMITTING
    with pytest.raises(IllegalState):
        stream.end_transaction(transaction, commit=False)
    stream.commit()
    assert stream.end_transaction(transaction, commit=True) is TransactionStatus.COMMITTED
    with pytest.raises(IllegalState):
        stream.end_transaction(transaction, commit=False)


def test_a_transaction_whose_time_is_up_is_aborted(bench: Bench) -> None:
    stream = bench.stream()
    kept, left = stream.begin_transaction(lease_ms=50), stream.begin_transaction(lease_ms=50)
    bench.tick(40)
    assert stream.abort_transactions() == []
    stream.workflows.transactions.ping(kept, 100)
    bench.tick(40)
    assert stream.abort_transactions() == [left]
    assert stream.transaction_status(left) is TransactionStatus.ABORTED
    assert stream.transaction_status(kept) is TransactionStatus.OPEN
    with pytest.raises(NotInHistory):
        stream.workflows.transactions.ping(left, 100)


def test_ends_of_transactions_are_remembered_for_two_batches() -> None:
    bench = Bench(HistorySettings(completed_batch_seconds=1))
    bench.create()
    ended: list[UUID] = []
    for _ in range(3):
        ended.append(bench.transaction(f"t{len(ended)}"))
        bench.stream().commit()
        assert bench.stream().transaction_status(ended[0]) is not TransactionStatus.UNKNOWN or len(ended) == 3
        bench.tick(1000)
    statuses = [bench.stream().transaction_status(each) for each in ended]
    assert statuses == [TransactionStatus.UNKNOWN, TransactionStatus.COMMITTED, TransactionStatus.COMMITTED]


def test_commits_are_limited_and_keep_their_order(bench: Bench) -> None:
    wanted = [bench.transaction(f"t{number}") for number in range(5)]
    committed = []
    while not (done := bench.stream().commit(bench.tick(), limit=2)).is_empty:
        committed.append(list(done.transaction_ids))
    assert committed == [wanted[:2], wanted[2:4], wanted[4:]]


# Transactions and crashes


def test_a_commit_is_finished_even_if_nobody_remembers_its_transactions(bench: Bench) -> None:
    bench.transaction("first")
    workflows = bench.stream().workflows
    committing = workflows.commits.start()
    for each in committing.transaction_ids:
        workflows.transactions.end(each)
    tables = bench.streams()._parts.tables
    tables.drop_table(completed_table(START_MS // (24 * 3600 * 1000)))
    assert bench.stream().commit() == committing
    stream = bench.stream()
    assert (stream.state(), stream.workflows.commits.stored().value) == (StreamState.ACTIVE, NO_COMMIT)


@pytest.mark.parametrize("commit", [None, True, False])
def test_who_dies_over_a_transaction_leaves_a_stream_that_can_be_sealed(commit: bool | None) -> None:
    def act(bench: Bench, store: ObjectStore) -> None:
        stream = bench.stream(around=store)
        transaction = stream.begin_transaction()
        if commit is not None:
            stream.end_transaction(transaction, commit=commit)
            stream.abort_transactions()

    ready = WORKS["scale"]
    whole = ready.bench()
    counted = CrashStore(whole.store, None)
    act(whole, counted)
    for number in range(counted.writes):
        bench = ready.bench()
        with pytest.raises(Crash):
            act(bench, CrashStore(bench.store, number))
        act(bench, bench.store)
        bench.stream().seal()
        assert bench.stream().workflows.transactions.active() == {}
        assert bench.stream().workflows.transactions.order.read().positions == ()
        bench.streams().delete_stream(SCOPE, STREAM)
        assert not [each for each in bench.live_keys() if "scope%2Fstream%2F" in each and "completed" not in each]
