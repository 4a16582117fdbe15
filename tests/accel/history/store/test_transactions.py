"""Transactions: begun, decided, committed in their order, remembered for a while."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from accel.errors import IllegalState, NotInHistory
from accel.history.rules.requests import CommitPlan
from accel.history.rules.states import StreamState
from accel.history.rules.transactions import ActiveTransaction, TransactionStatus
from accel.history.store import transaction_store
from accel.history.store.epoch_store import EpochReading
from accel.history.store.keys import completed_table
from accel.history.store.leftovers import Leftovers
from accel.history.store.parts import StreamParts
from accel.testing import MemorySegments
from loaders.store import ObjectStore
from loaders.store.base import ListPage
from loaders.store.decorated import DecoratedStore
from tests.accel.history.store.bench import START_MS, Bench, ids
from tests.accel.history.store.workflows import WORKS, Work, two_segments
from tests.conformance.history_world import SCOPE, STREAM, CallCounter
from tests.conformance.steps import begin_commit
from tests.world import Watched

# Transactions


def test_a_transaction_that_begins_while_its_epoch_ends_is_not_lost(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pitfall A17: the table of an older epoch was dropped under one that began in it (pravega issue 1725)."""
    # The client reads the current epoch, and before its entry is there the stream is scaled and the table dropped.
    store = bench.streams().stream(SCOPE, STREAM).workflows.transactions
    bench.transaction("other")
    opened = bench.stream()
    current = opened.current_epoch()
    bench.scale_once()
    bench.stream().commit(bench.tick())
    assert store.epochs() == []
    answers, original = iter([current]), EpochReading.current
    monkeypatch.setattr(
        EpochReading, "current", lambda self: next(answers, None) or original(self)
    )  # an old answer first
    transaction = opened.transactions.begin()
    assert transaction.int >> 96 == bench.stream().current_epoch().reference_epoch == 1
    assert list(bench.stream().workflows.transactions.active()) == [transaction]


def test_a_stream_without_transactions_has_no_tables_for_them(bench: Bench) -> None:
    for _ in range(5):
        bench.scale_once()
    assert bench.stream().workflows.transactions.epochs() == []
    assert not [each for each in bench.live_keys() if "transactionsInEpoch" in each]


def test_the_same_decision_twice_is_one_and_the_opposite_is_refused(bench: Bench) -> None:
    stream = bench.stream()
    transaction = stream.transactions.begin()
    assert stream.transactions.seal(transaction, commit=True) is TransactionStatus.COMMITTING
    assert stream.transactions.seal(transaction, commit=True) is TransactionStatus.COMMITTING
    with pytest.raises(IllegalState):
        stream.transactions.seal(transaction, commit=False)
    stream.commit()
    assert stream.transactions.seal(transaction, commit=True) is TransactionStatus.COMMITTED
    with pytest.raises(IllegalState):
        stream.transactions.seal(transaction, commit=False)


def test_ends_of_transactions_are_remembered_for_two_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_store, "COMPLETED_BATCH_MS", 1000)
    bench = Bench()
    bench.create()
    ended: list[UUID] = []
    for _ in range(3):
        ended.append(bench.transaction(f"t{len(ended)}"))
        bench.stream().commit()
        assert bench.stream().transactions.status(ended[0]) is not TransactionStatus.UNKNOWN or len(ended) == 3
        bench.tick(1000)
    statuses = [bench.stream().transactions.status(each) for each in ended]
    assert statuses == [TransactionStatus.UNKNOWN, TransactionStatus.COMMITTED, TransactionStatus.COMMITTED]


def test_transactions_that_have_not_ended_are_listed_in_the_order_of_their_ids(bench: Bench) -> None:
    begun = [bench.transaction(f"t{number}", commit=[None, True, False][number % 3]) for number in range(5)]
    bench.scale_once()
    begun += [bench.transaction("new", commit=None)]
    listed = list(bench.stream().transactions.each_active())
    assert [each for each, _ in listed] == begun == sorted(begun)
    assert [value.status.name for _, value in listed] == [
        "OPEN",
        "COMMITTING",
        "ABORTING",
        "OPEN",
        "COMMITTING",
        "OPEN",
    ]


def test_a_listing_of_transactions_holds_a_thousand_at_a_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_store, "READ_AT_ONCE_MAX", 2)
    begun = [bench.transaction(f"t{number}", commit=None) for number in range(5)]
    counter = CallCounter(bench.store)
    listing = bench.stream(around=counter).transactions.each_active()
    counter.calls = 0
    assert next(listing)[0] == begun[0]
    assert counter.calls == 4  # epochs, keys, two transactions
    assert [each for each, _ in listing] == begun[1:]


def test_a_single_transaction_is_given_time_or_aborted(bench: Bench) -> None:
    stream = bench.stream()
    first, second = bench.transaction("first", commit=None), bench.transaction("second")
    assert stream.transactions.ping(first, 500).lease_expiry_ms == bench.now_ms + 500
    for _ in range(2):
        assert stream.transactions.abort(first) is TransactionStatus.ABORTED
    assert [each for each, _ in stream.transactions.each_active()] == [second]
    with pytest.raises(IllegalState, match="COMMITTING"):
        stream.transactions.abort(second)
    stream.commit(bench.tick())
    with pytest.raises(IllegalState, match="COMMITTED"):
        stream.transactions.abort(second)
    with pytest.raises(NotInHistory):
        stream.transactions.abort(UUID(int=7))


# Where transactions are merged


@pytest.mark.parametrize("rolls", [False, True])
def test_where_a_transaction_was_merged_is_noted_before_its_commit_is_told(*, rolls: bool) -> None:
    work = WORKS["rolling commit" if rolls else "commit"]
    bench = work.bench()
    first, second = (bench.transactions[each] for each in ("first", "second"))
    starts = dict.fromkeys(ids("0@2", "1@2"), 0) if rolls else dict.fromkeys(ids("0@0", "1@0"), 7)
    expected = {first: starts, second: {each: offset + 3 for each, offset in starts.items()}}
    noted: dict[UUID, dict[int, int]] = {}

    def look() -> None:
        stream = bench.stream()
        noted.update(
            {
                each: dict(found.commit_offsets)
                for each, found in stream.transactions.each_active()
                if found.commit_offsets
            }
        )
        for each in (first, second):
            assert stream.transactions.status(each) is not TransactionStatus.COMMITTED or noted[each] == expected[each]

    work.act(bench, Watched(bench.store, lambda _: look()), bench.now_ms)
    look()
    assert noted == expected


@pytest.mark.parametrize("rolls", [False, True])
def test_where_a_transaction_was_merged_is_noted_once_whoever_goes_on_after_a_crash(*, rolls: bool) -> None:
    work = WORKS["rolling commit" if rolls else "commit"]
    for _, bench in work.crashed():
        before = dict(bench.stream().transactions.each_active())
        seen: list[dict[UUID, ActiveTransaction]] = []
        watched = Watched(bench.store, lambda _: seen.append(dict(bench.stream().transactions.each_active())))  # noqa: B023 - at once
        work.act(bench, watched, bench.tick())
        for each, found in before.items():
            later = [transactions[each].commit_offsets for transactions in seen if each in transactions]
            assert not found.commit_offsets or all(offsets == found.commit_offsets for offsets in later)


def test_a_host_that_does_not_tell_costs_no_call(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def calls(here: Bench) -> int:
        counter = CallCounter(here.store)
        stream = here.stream(around=counter)
        counter.calls = 0
        stream.commit(here.tick())
        return counter.calls

    bench.transaction("first")
    bench.transaction("second")
    telling = calls(bench.clone())
    monkeypatch.setattr(MemorySegments, "merge", lambda *_: None)
    assert calls(bench.clone()) == telling - 2 * 2


# Transactions and crashes


def test_a_commit_is_finished_even_if_nobody_remembers_its_transactions(bench: Bench) -> None:
    bench.transaction("first")
    workflows = bench.stream().workflows
    committing = begin_commit(bench.stream(), START_MS).plan_of(CommitPlan).committing
    for each in committing.transaction_ids:
        workflows.transactions.end(each)
    tables = bench.streams()._parts.tables
    tables.drop_table(completed_table(START_MS // (24 * 3600 * 1000)))
    assert bench.stream().commit() == committing
    stream = bench.stream()
    assert stream.state() is StreamState.ACTIVE


@pytest.mark.parametrize("commit", [None, True, False])
def test_who_dies_over_a_transaction_leaves_a_stream_that_can_be_sealed(commit: bool | None) -> None:
    def act(bench: Bench, store: ObjectStore, _: int) -> None:
        stream = bench.stream(around=store)
        transaction = stream.transactions.begin()
        if commit is not None:
            stream.transactions.seal(transaction, commit=commit)
            stream.transactions.abort_expired()

    for _, bench in Work(two_segments, act).crashed():
        act(bench, bench.store, 0)
        bench.stream().seal()
        assert bench.stream().workflows.transactions.active() == {}
        assert bench.stream().workflows.transactions.order.read().positions == ()
        bench.streams().delete_stream(SCOPE, STREAM)
        assert not [each for each in bench.live_keys() if "scope%2Fstream%2F" in each and "completed" not in each]


def test_a_merge_that_is_noted_while_a_transaction_is_being_aborted_is_not_forgotten(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who ends a transaction that was given up has read its record before it looks for merges under way."""
    transaction = bench.transaction("first")
    transactions = bench.stream().workflows.transactions
    with monkeypatch.context() as hostless:
        hostless.setattr(StreamParts, "has_host", False)
        assert transactions.give_up(transaction) is TransactionStatus.ABORTING

    def noted(*_: object, **__: object) -> None:
        transactions.record_merged({transaction: None})

    monkeypatch.setattr(bench.host, "abort", noted)
    assert transactions.end(transaction) is TransactionStatus.COMMITTED
    assert transactions.status(transaction) is TransactionStatus.COMMITTED


class Forgetful(DecoratedStore):
    """Its listings leave out the first mark of a batch."""

    def list_page(self, prefix: str, start_after: str = "", limit: int = 1000, token: str = "") -> ListPage:
        page = super().list_page(prefix, start_after, limit, token)
        marks = [info for info in page.objects if "Batches/" in info.key and "!" not in info.key]
        return replace(page, objects=[info for info in page.objects if info not in marks[:1]])


def test_a_batch_whose_mark_a_listing_leaves_out_is_not_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_store, "COMPLETED_BATCH_MS", 1000)
    bench = Bench()
    bench.create()
    ended: list[UUID] = []
    for _ in range(2):
        ended.append(bench.transaction(f"t{len(ended)}"))
        bench.stream().commit()
        bench.tick(1000)
    assert Leftovers(bench.streams(Forgetful(bench.store))._parts).drop_batches() == []
    assert [bench.stream().transactions.status(each).name for each in ended] == ["COMMITTED", "COMMITTED"]
