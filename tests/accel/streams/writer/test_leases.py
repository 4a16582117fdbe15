"""Writers renew the leases of what they work on; what nobody works on ends by itself."""

from __future__ import annotations

import gc
from dataclasses import replace
from threading import Barrier, Event
from uuid import UUID

import pytest

from accel.errors import IllegalState
from accel.history.rules.transactions import TransactionStatus
from accel.streams.leases import TransactionLeases
from accel.streams.settings import StreamWriterSettings
from accel.streams.writer import StreamWriter
from accel.system import SYSTEM
from loaders.store import CountingStore
from loaders.store.decorated import StoreCall
from tests.accel.streams.writer.world import NODE, Process, Watched, World, ids_of

LOOKING = StreamWriterSettings(requests_seconds=30.0)
LEASE_SECONDS = 60.0
LONGEST_SECONDS = 24 * 3600.0


def status(world: World, transaction: UUID) -> TransactionStatus:
    return world.asking().transactions.status(transaction)


def act_once(writer: StreamWriter, name: str, transaction: UUID) -> None:
    """Something that a writer does."""
    if name == "write":
        writer.write(b"more", b"key", transaction=transaction)
    elif name == "flush":
        writer.flush()
    elif name == "another transaction":
        writer.abort_transaction(writer.begin_transaction())
    else:
        writer.carry_out_requests()


@pytest.mark.parametrize("name", ["write", "flush", "another transaction", "look"])
def test_a_transaction_of_a_writer_that_works_outlives_its_lease(world: World, name: str, process: Process) -> None:
    """Without threads the calls of the writer renew; others look for expired transactions all the time."""
    with world.process(node_id=NODE + 1) as other, process.writer(LOOKING) as writer:
        transaction = writer.begin_transaction()
        writer.write(b"first", b"key", transaction=transaction)
        for _ in range(20):
            world.seconds += LEASE_SECONDS / 2.5
            act_once(writer, name, transaction)
            assert other.stream().carry_out_requests() == []
            assert other.stream().transactions.abort_expired() == []
        writer.commit_transaction(transaction)
    assert world.payloads() == [b"first"] + [b"more"] * 20 * (name == "write")


def test_a_look_of_a_writer_does_not_end_transactions_of_writers_of_its_process(world: World, process: Process) -> None:
    """All time goes by in one step, before any thread could renew."""
    with process.writer(LOOKING) as idle, process.writer(LOOKING) as other:
        transaction = idle.begin_transaction()
        world.seconds += 10 * LEASE_SECONDS
        other.write(b"x", b"key")
        other.flush()
        other.abort_transaction(other.begin_transaction())
        other.carry_out_requests()
        idle.commit_transaction(transaction)
        assert status(world, transaction) is TransactionStatus.COMMITTED


def test_leases_are_renewed_by_a_thread_while_the_writer_is_idle(world: World) -> None:
    """The thread waits a third of a lease; here each wait is one, and the clock goes on by as much."""
    waits = 0
    is_enough = Event()

    def wait(event: Event, seconds: float) -> None:
        nonlocal waits
        assert seconds <= 10
        waits += 1
        world.seconds += seconds
        if waits == 20:
            is_enough.set()
        if waits >= 20:
            event.wait()

    with world.process() as process:
        stream = process.stream()
        transaction = stream.transactions.begin(lease_ms=30_000)
        record = stream.workflows.transactions.read(transaction)
        assert record is not None
        beside = replace(world.system, wait=wait, start=SYSTEM.start)
        leases = TransactionLeases(process.host.lifetime, beside, process.catalog.parts.executor)
        holder = process.writer()
        leases.hold(stream, transaction, 30_000, holder)
        assert is_enough.wait(30)
        now_ms = int(world.seconds * 1000)
        renewed = stream.workflows.transactions.read(transaction)
        assert renewed is not None
        assert now_ms > record.lease_expiry_ms
        assert renewed.lease_expiry_ms > now_ms
        leases.stop()


def test_no_lease_is_renewed_beyond_the_longest_life(world: World, process: Process) -> None:
    with process.writer(LOOKING) as writer:
        transaction = writer.begin_transaction()
        begun = world.seconds
        while world.seconds < begun + LONGEST_SECONDS + 1:
            world.seconds += LEASE_SECONDS
            writer.flush()
        writer.carry_out_requests()
        with pytest.raises(IllegalState, match=r"its maximum lifetime of 86400000 ms expired at 1970-"):
            writer.commit_transaction(transaction)


@pytest.mark.parametrize("name", ["flush", "commit", "abort"])
def test_transactions_of_a_dead_writer_end_within_minutes_of_what_others_do(world: World, name: str) -> None:
    with world.process() as dead:
        writer = dead.writer()
        lost = [writer.begin_transaction(lease_ms=1000) for _ in range(3)]
        writer.write(b"lost", b"key", transaction=lost[0])
    with world.process(node_id=NODE + 1) as process:
        process.host.take_over(("shop", "orders"), {0: NODE, 1: NODE})
        process.stream().split(ids_of("0@0")[0])  # the transactions have a table of an older epoch
        with process.writer(LOOKING) as other:
            for _ in range(6):
                world.seconds += 20
                if name == "flush":
                    other.flush()
                else:
                    transaction = other.begin_transaction()
                    (other.commit_transaction if name == "commit" else other.abort_transaction)(transaction)
        assert [status(world, each) for each in lost] == [TransactionStatus.ABORTED] * 3
        stream = process.stream()
        assert not any(
            each < stream.current_epoch().reference_epoch for each in stream.transactions.epochs_with_table()
        )
        with pytest.raises(IllegalState, match=r"found ABORTED: its lease of 1000 ms expired at 1970-"):
            stream.transactions.seal(lost[0], commit=True)
    assert world.transaction_keys() == []


def test_a_writer_that_is_gone_keeps_nothing_alive(world: World, process: Process) -> None:
    writer = process.writer()
    transaction = writer.begin_transaction(lease_ms=1000)
    del writer
    gc.collect()
    with process.writer(LOOKING) as other:
        world.seconds += 61
        other.flush()
    assert status(world, transaction) is TransactionStatus.ABORTED


def open_transactions(process: Process, count: int) -> StreamWriter:
    writer = process.writer()
    for _ in range(count):
        writer.write(b"x", b"key", transaction=writer.begin_transaction())
    return writer


@pytest.mark.parametrize("count", [1, 20, 40])
def test_closing_a_writer_takes_ten_requests_for_each_open_transaction(world: World, count: int) -> None:
    store = CountingStore(world.store)
    with world.process(store) as process:
        writer = open_transactions(process, count)
        store.reset()
        writer.close()
        assert store.reset().total.requests <= 50 + 10 * count


def test_leases_of_several_transactions_are_renewed_side_by_side(world: World) -> None:
    """One after the other, those of a thousand transactions expired on a slow store before it was their turn."""
    store, pair = Watched(world.store), Barrier(2)

    def wait_for_each_other(call: StoreCall) -> None:
        if call.operation == "put" and "transactionsInEpoch" in call.key:
            pair.wait(10)

    with world.process(store) as process:
        writer = process.writer(LOOKING)
        transactions = [writer.begin_transaction() for _ in range(2)]
        world.seconds += LEASE_SECONDS / 2
        store.before = wait_for_each_other
        process.host.leases.renew_due()
        store.before = lambda _: None
        for transaction in transactions:
            record = process.stream().workflows.transactions.read(transaction)
            assert record is not None
            assert record.lease_expiry_ms == int((world.seconds + LEASE_SECONDS) * 1000)
