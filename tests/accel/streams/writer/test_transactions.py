"""Events of a transaction come all at once when it is committed, once, and never if it is aborted."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from uuid import UUID

import pytest

from accel import ReadAccelerator, StreamReader
from accel.errors import Closed, IllegalState, InvalidArgument, NotInHistory, OperationNotAllowed, SessionFenced
from accel.history.rules.configuration import OffsetUnit
from accel.history.rules.states import StreamState
from accel.history.rules.transactions import TransactionStatus
from accel.streams.acknowledgements import WriteFuture
from accel.streams.segment_source import ObjectSegmentSource
from accel.streams.segments_host import ObjectSegments
from accel.streams.settings import SegmentsSettings, StreamWriterSettings
from accel.streams.uploads import TransactionName
from accel.streams.writer import StreamWriter
from loaders.errors import DataConflict
from loaders.store.base import CreateOnly
from tests.accel.streams.writer.world import NAME, NO_REPEATS, NODE, Process, World, ids_of
from tests.conformance.steps import set_state


def numbered(start: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, stop)]


def by_number(payloads: list[bytes]) -> list[bytes]:
    return sorted(payloads, key=int)


def put(writer: StreamWriter, transaction: UUID, start: int, stop: int) -> None:
    writer.write_many([(b"%d" % number, b"key-%d" % number) for number in range(start, stop)], transaction=transaction)


def put_plainly(writer: StreamWriter, events: int) -> None:
    for number in range(events):
        writer.write(b"%d" % number, b"key-%d" % number)
        writer.flush()


@pytest.mark.parametrize("unit", OffsetUnit)
def test_a_transaction_is_one_batch_and_one_record_a_segment_with_the_value_of_its_commit(
    world: World, process: Process
) -> None:
    writer = process.writer()
    transaction = writer.begin_transaction()
    put(writer, transaction, 0, 20)
    put(writer, transaction, 20, 40)
    world.seconds = 2_000.0
    writer.commit_transaction(transaction)
    assert process.stream().transactions.status(transaction) is TransactionStatus.COMMITTED
    batches = world.batches()
    assert [len(each) for each in batches.values()] == [1, 1]
    assert {batch.value for each in batches.values() for batch in each} == {2_000_000}
    assert {each.index.records for each in process.host._segments.listed()} == {1}
    writer.commit_transaction(transaction)  # again, as after a lost reply
    assert by_number(world.payloads()) == numbered(0, 40)
    assert world.transaction_keys() == []


def test_a_transaction_has_one_time_however_fast_the_clock_goes() -> None:
    world = World()
    times = count(1_000_000)
    world.system = replace(world.system, clock=lambda: next(times))  # another second each time it is asked
    world.create(segments=8)
    with world.process() as process:
        writer = process.writer()
        for _ in range(3):
            transaction = writer.begin_transaction()
            put(writer, transaction, 0, 60)
            writer.commit_transaction(transaction)
            put_plainly(writer, 10)
        by_segment = world.batches().values()
        shared = [{batch.value for batch in batches if len(batch) > 1} for batches in by_segment]
    values = set.union(*shared)
    assert len(values) == 3
    assert all(each == values for each in shared)
    assert all([batch.value for batch in batches] == sorted(batch.value for batch in batches) for batches in by_segment)


def test_transactions_of_neighbouring_milliseconds_come_in_one_piece_each() -> None:
    world = World()
    ticks = count(1000)
    system = replace(world.system, clock=lambda: next(ticks) / 1000)  # 1.001 * 1000 is less than 1001
    world.create(segments=8)
    with world.process() as process:
        host = ObjectSegments(process.catalog, world.store, NODE, settings=world.settings, system=system)
        writer = StreamWriter(process.streams.stream(*NAME, host=host), host)
        for number in range(20):
            transaction = writer.begin_transaction()
            writer.write_many([(b"%d" % number, f"key {each}") for each in range(40)], transaction=transaction)
            writer.commit_transaction(transaction)
        with ReadAccelerator(process.catalog.images(), world.store, settings=NO_REPEATS) as accelerator:
            source = ObjectSegmentSource(process.stream(), accelerator, world.store)
            with StreamReader(process.stream(), source) as reader:
                given = [int(event.payload) for event in reader]
        host.stop()
    assert given == sorted(given)
    assert len(given) == 20 * 40


@pytest.mark.parametrize("segments", [1])
def test_events_before_a_commit_come_before_those_of_the_transaction(world: World, process: Process) -> None:
    writer = process.writer()
    transaction = writer.begin_transaction()
    writer.write(b"2", b"a", transaction=transaction)
    writer.write(b"1", b"a")
    writer.commit_transaction(transaction)
    writer.write(b"3", b"a")
    writer.flush()
    assert world.payloads() == [b"1", b"2", b"3"]


def test_an_aborted_transaction_is_never_seen(world: World, process: Process) -> None:
    writer = process.writer()
    aborted, forgotten = writer.begin_transaction(), writer.begin_transaction()
    put(writer, aborted, 0, 5)
    put(writer, forgotten, 5, 10)
    writer.abort_transaction(aborted)
    writer.abort_transaction(aborted)
    with pytest.raises(IllegalState):
        writer.commit_transaction(aborted)
    with pytest.raises(InvalidArgument, match="began"):
        writer.write(b"x", b"a", transaction=aborted)
    writer.close()
    statuses = [process.stream().transactions.status(each) for each in (aborted, forgotten)]
    assert statuses == [TransactionStatus.ABORTED] * 2
    assert world.payloads() == []
    assert world.transaction_keys() == []


def test_a_transaction_begun_before_a_scale_rolls_and_the_writer_goes_on(world: World, process: Process) -> None:
    writer = process.writer()
    transaction = writer.begin_transaction()
    put(writer, transaction, 0, 20)
    process.stream().scale(ids_of("0@0"), [(0.0, 0.25), (0.25, 0.5)])
    for number in range(20, 40):
        writer.write(b"%d" % number, b"key-%d" % number)
    writer.commit_transaction(transaction)
    assert process.stream().current_epoch().epoch == 3
    for number in range(40, 60):
        writer.write(b"%d" % number, b"key-%d" % number)
    writer.close()
    sizes = {each: sum(map(len, batches)) for each, batches in world.batches().items()}
    sealed = {each: process.stream().cuts.sealed_size(each) for each in sizes}
    active = set(process.stream().active_segments().ids.tolist())
    assert {each: size for each, size in sizes.items() if each not in active} == {
        each: size for each, size in sealed.items() if each not in active
    }
    assert by_number(world.payloads()) == numbered(0, 60)


@pytest.mark.parametrize("segments", [1])
def test_several_transactions_are_merged_in_their_order_by_objects_of_bounded_size(world: World) -> None:
    with world.process(settings=SegmentsSettings(batch_bytes=1000)) as process:
        writer, stream = process.writer(), process.stream()
        ids = [writer.begin_transaction() for _ in range(6)]
        for at, each in enumerate(ids):
            writer.write_many([(b"%0100d" % (at * 4 + number), b"a") for number in range(4)], transaction=each)
            process.host.keep_transaction(TransactionName(stream.unique_id, each), writer._transactions.events(each))
            stream.transactions.seal(each, commit=True)
        assert len(stream.commit().transaction_ids) == 6
        objects = len(process.catalog.refresh().nodes[4].refs)
        assert objects == 3
    assert list(map(int, world.payloads())) == list(range(24))
    assert world.transaction_keys() == []


def test_open_transactions_have_a_bound(world: World, process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accel.streams.writer_transactions.TRANSACTIONS_BYTES_MAX", 1000)
    writer = process.writer()
    one, other = writer.begin_transaction(), writer.begin_transaction()
    writer.write(bytes(600), b"a", transaction=one)
    with pytest.raises(InvalidArgument, match="at most 1000 bytes"):
        writer.write(bytes(600), b"a", transaction=other)
    writer.abort_transaction(one)
    writer.write(bytes(600), b"a", transaction=other)
    writer.commit_transaction(other)
    assert world.payloads() == [bytes(600)]


def test_other_data_of_a_transaction_is_refused_until_it_is_aborted(world: World, process: Process) -> None:
    writer = process.writer()
    transaction = writer.begin_transaction()
    future = writer.write(b"1", b"a", transaction=transaction)
    name = TransactionName(process.stream().unique_id, transaction)
    world.store.put(name.key, b"of another writer", condition=CreateOnly())
    for _ in range(2):
        with pytest.raises(DataConflict, match="one writer"):
            writer.commit_transaction(transaction)
    writer.abort_transaction(transaction)
    with pytest.raises(IllegalState, match="aborted"):
        future.result()
    again = writer.begin_transaction()
    writer.write(b"2", b"a", transaction=again)
    writer.commit_transaction(again)
    assert world.payloads() == [b"2"]
    assert world.transaction_keys() == []


def half_committed(process: Process) -> tuple[StreamWriter, UUID, WriteFuture]:
    """A transaction that will be committed, whose commit found the stream taken."""
    writer = process.writer(StreamWriterSettings(wait_seconds=1.0))
    transaction = writer.begin_transaction()
    future = writer.write(b"1", b"a", transaction=transaction)
    set_state(process.stream(), StreamState.TRUNCATING)
    with pytest.raises(OperationNotAllowed, match="durable"):
        writer.commit_transaction(transaction)
    set_state(process.stream(), StreamState.ACTIVE)
    return writer, transaction, future


def test_an_abort_that_comes_after_the_decision_leaves_the_events_to_the_commit(world: World, process: Process) -> None:
    writer, transaction, future = half_committed(process)
    with pytest.raises(IllegalState):
        writer.abort_transaction(transaction)
    assert not future.done()
    writer.commit_transaction(transaction)
    assert future.result() is None
    assert world.payloads() == [b"1"]


def test_a_writer_that_is_closed_after_the_decision_says_that_the_events_come_later(
    world: World, process: Process
) -> None:
    writer, _, future = half_committed(process)
    writer.close()
    with pytest.raises(OperationNotAllowed, match="closed before"):
        future.result()
    process.stream().commit()
    assert world.payloads() == [b"1"]


def test_a_host_that_stops_settles_the_futures_of_transactions(process: Process) -> None:
    writer = process.writer()
    transaction = writer.begin_transaction()
    future = writer.write(b"1", b"a", transaction=transaction)
    process.die()
    with pytest.raises(Closed):
        future.result(10)
    with pytest.raises(Closed):
        writer.write(b"2", b"a", transaction=transaction)
    with pytest.raises(Closed):
        writer.begin_transaction()


def test_a_transaction_that_nobody_knows_is_refused(process: Process) -> None:
    with process.writer() as writer:
        with pytest.raises(NotInHistory):
            writer.commit_transaction(UUID(int=77))
        with pytest.raises(NotInHistory):
            writer.abort_transaction(UUID(int=77))


@pytest.mark.parametrize("segments", [1])
def test_a_session_that_was_fenced_while_it_merged_has_merged_nothing(world: World) -> None:
    """Its intent is found by the next session, and by one that comes when other data stands at those offsets."""
    with world.process() as old:
        writer = old.writer()
        transaction = writer.begin_transaction()
        put(writer, transaction, 0, 2)
        with world.process() as new:
            with pytest.raises(SessionFenced):
                writer.commit_transaction(transaction)
            with new.writer() as other:  # the intent came too late for this session
                other.write_many([(b"2", b"a"), (b"3", b"a")])
            assert any("node-4" in each for each in world.transaction_keys())
    with world.process() as process:
        assert not any("node-4" in each for each in world.transaction_keys())
        process.stream().recover()
        process.stream().commit()
        assert process.stream().transactions.status(transaction) is TransactionStatus.COMMITTED
        assert process.host.tails(NAME, process.stream().active_segments().ids) == {0: 4}
    assert by_number(world.payloads()) == numbered(0, 4)
    assert world.transaction_keys() == []
