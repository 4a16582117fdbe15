"""What is written is read: once, in the order of its key, with the values that the time index has."""

from __future__ import annotations

from array import array
from itertools import count
from typing import Any

import numpy as np
import pytest

from accel.errors import AccelError, CommitRefused, InvalidArgument, OperationNotAllowed, SegmentsElsewhere
from accel.history.rules.configuration import OffsetUnit
from accel.streams import uploads
from accel.streams.open_segments import SegmentSealed
from accel.streams.rules.events import HostClock
from accel.streams.settings import SegmentsSettings, StreamWriterSettings
from accel.streams.time_index import SegmentTimeIndex
from accel.streams.writer import StreamWriter
from accel.testing import Fault, FaultStore
from loaders.errors import FormatLimit
from tests.accel.streams.writer.world import NAME, Process, World, created, ids_of

OTHER = ("shop", "returns")


def numbered(start: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, stop)]


def by_number(payloads: list[bytes]) -> list[bytes]:
    return sorted(payloads, key=int)


def moved_records(world: World, process: Process, segment_id: int) -> list[tuple[int, int]]:
    """The records of a segment's time index that lie in objects."""
    stream_id = process.stream().segment_stream(segment_id)
    index = SegmentTimeIndex.open(world.store, stream_id, HostClock(lambda: 0))
    return [tuple(row) for piece in index.pieces() for row in piece.rows.tolist()]


@pytest.mark.parametrize("segments", [3])
def test_events_of_a_key_stay_in_order_and_one_call_makes_one_batch_a_segment(world: World, process: Process) -> None:
    with process.writer() as writer:
        writer.write(b"0", b"key-0")
        writer.write_many([(b"%d" % number, b"key-%d" % (number % 20)) for number in range(1, 50)])
        writer.write_many([])
        writer.flush()
        batches = world.batches()
    assert sorted(len(each) for each in batches.values()) == [1, 1, 2]
    for found in batches.values():
        numbers = [int(event.payload) for batch in found for event in batch]
        assert numbers == sorted(numbers)


def test_values_in_batches_and_index_agree_and_never_fall(world: World, process: Process) -> None:
    writer = process.writer(StreamWriterSettings(batch_events_max=2))
    for number in range(40):
        world.seconds += (-1) ** number * 3  # the clock is set back now and then
        writer.write(b"%d" % number, b"key-%d" % number)
    writer.close()
    process.host.close()
    for segment_id, batches in world.batches().items():
        logged = [(batch.next_offset, batch.value) for batch in batches]
        assert moved_records(world, process, segment_id) == logged
        assert [value for _, value in logged] == sorted(value for _, value in logged)


@pytest.mark.parametrize("unit", OffsetUnit)
def test_a_new_session_makes_the_index_again_from_the_data(world: World) -> None:
    settings = StreamWriterSettings(batch_events_max=2)
    with world.process() as process:
        writer = process.writer(settings)
        for number in range(30):
            world.seconds += 1
            writer.write(b"%d" % number, b"key-%d" % number)
            if number in (25, 29):
                writer.flush()
        before = {each.segment_id: each.index for each in process.host._segments.listed()}
        known = {each: b"".join(piece.encode() for piece in index.pieces()) for each, index in before.items()}
        assert all(index.parts for index in before.values())
        assert any(index.records_in_memory for index in before.values())
    world.seconds -= 200
    with world.process() as process:
        writer = process.writer(settings)
        after = {each.segment_id: each.index for each in process.host._segments.listed()}
        assert {each: b"".join(piece.encode() for piece in index.pieces()) for each, index in after.items()} == known
        highest = max(index.last_value for index in after.values())
        assert process.host.clock.now() == highest  # though the machine's clock was set back
        writer.write(b"30", b"key-30")
        writer.close()
    assert by_number(world.payloads()) == numbered(0, 31)


def test_offsets_count_bytes_where_the_stream_says_so() -> None:
    world = created(segments=1, unit=OffsetUnit.BYTES)
    with world.process() as process, process.writer() as writer:
        writer.write_many([(b"four", b"a"), (b"", b"b"), (b"seven77", b"c")])
        writer.flush()
        assert process.host.tails(NAME, process.stream().active_segments().ids) == {0: 11 + 3 * 4}
        [[batch]] = world.batches().values()
        assert batch.offsets.tolist() == [0, 8, 12, 23]


def test_two_streams_in_one_host_share_objects_and_nothing_else(world: World, process: Process) -> None:
    world.create(name=OTHER, by=process)
    with process.writer() as orders, process.writer(name=OTHER) as returns:
        for number in range(20):
            (orders if number % 2 else returns).write(b"%d" % number, b"%d" % number)
        orders.flush()
        returns.flush()
    process.stream().scale(ids_of("0@0"), [(0.0, 0.5)])
    assert by_number(world.payloads()) == numbered(0, 20)[1::2]
    assert by_number(world.payloads(OTHER)) == numbered(0, 20)[::2]


# Scaling while it is written


def test_a_write_waits_for_a_scale_that_is_under_way(world: World, process: Process) -> None:
    writer, stream = process.writer(), process.stream()
    ids = stream.active_segments().ids
    writer.write(b"0", b"a")
    process.host.seal(NAME, ids)
    waits = count(1)

    def scale_at_the_third_wait() -> None:
        if next(waits) == 3:
            stream.scale(ids.tolist(), [(0.0, 1.0)])

    world.on_sleep = scale_at_the_third_wait
    writer.flush()
    assert next(waits) == 4
    assert world.payloads() == [b"0"]


def test_a_scale_that_does_not_end_is_not_waited_for_for_ever_and_nothing_is_lost(
    world: World, process: Process
) -> None:
    writer = process.writer(StreamWriterSettings(wait_seconds=2, pause_seconds=0.5))
    writer.write(b"0", b"a")
    ids = process.stream().active_segments().ids
    process.host.seal(NAME, ids)
    started = world.seconds
    with pytest.raises(OperationNotAllowed, match="sealed"):
        writer.flush()
    assert world.seconds - started == pytest.approx(2)
    process.stream().scale(ids.tolist(), [(0.0, 1.0)])
    writer.flush()
    assert world.payloads() == [b"0"]


# The host, as workflows use it


@pytest.mark.parametrize("segments", [1])
def test_orders_of_workflows_may_be_repeated_by_another_process(world: World) -> None:
    with world.process() as process, process.writer() as writer:
        writer.write_many([(b"%d" % number, b"a") for number in range(10)])
        ids = process.stream().active_segments().ids
        assert process.host.tails(NAME, ids) == {0: 0}
        assert process.host.seal(NAME, ids) == {0: 0}
        with pytest.raises(SegmentSealed):
            process.host.append(NAME, 0, [b"late"])
        process.stream().scale([0], [(0.0, 1.0)])
        writer.flush()
        [new] = process.stream().active_segments().ids.tolist()
        sealed = process.host.seal(NAME, process.stream().active_segments().ids)
        assert sealed == {new: 10}
    with world.process() as process:
        ids = process.stream().active_segments().ids
        stream_ids = {new: process.stream().segment_stream(new)}
        process.host.create(NAME, process.stream().active_segments(), stream_ids)
        assert process.host.seal(NAME, ids) == process.host.tails(NAME, ids) == {new: 10}
        assert process.host.info(NAME, new).is_sealed
        with pytest.raises(SegmentSealed):
            process.host.append(NAME, new, [b"late"])
        foreign = f"accel/time/{stream_ids[new]}/notes.txt"
        world.store.put(foreign, b"not ours")
        for _ in range(2):
            process.host.delete(NAME, ids)
        assert [info.key for info in world.store.list(f"accel/time/{stream_ids[new]}/")] == [foreign]
    assert world.payloads() == []


@pytest.mark.parametrize("segments", [1])
def test_truncation_lets_data_go_and_the_index_stays_whole(world: World) -> None:
    with world.process() as process:
        writer = process.writer(StreamWriterSettings(batch_events_max=4))
        for number in range(20):
            writer.write(b"%d" % number, b"a")
        writer.flush()
        process.stream().truncate({0: 8})
        assert by_number(world.payloads()) == numbered(8, 20)
        assert [end for end, _ in moved_records(world, process, 0)] == [4, 8, 12, 16, 20]
    with world.process() as process:
        with process.writer() as writer:
            writer.write(b"20", b"a")
        process.stream().scale([0], [(0.0, 1.0)])
        process.stream().truncate({1 << 32 | 1: 0})
        assert world.payloads() == []
        assert process.stream().truncation().deleted_count == 1


@pytest.mark.parametrize("segments", [1])
def test_information_tells_where_durable_data_ends_and_the_least_value_of_what_follows(
    world: World, process: Process
) -> None:
    world.seconds = 2_000.0
    assert process.host.info(NAME, 0) == (0, 2_000_000, False)
    process.host.append(NAME, 0, [b"x", b"y"])
    world.seconds = 2_001.0
    assert process.host.info(NAME, 0) == (0, 2_000_000, False)
    process.host.flush()
    assert process.host.info(NAME, 0) == (2, 2_001_000, False)


# Bounds, and stores that fail


def test_memory_is_bounded_by_flushing_and_a_store_that_fails_stops_the_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "COMMIT_ATTEMPTS", 1)
    monkeypatch.setattr("accel.streams.writer.BATCH_BYTES_MAX", 100)
    world = created(segments=1)
    faults = FaultStore(world.store)
    bounds = SegmentsSettings(batch_bytes=1000)
    with world.process(faults, bounds) as process:
        writer = process.writer()
        for number in range(100):
            writer.write(b"%090d" % number, b"a")
            assert process.host.waiting_bytes < 1000 + 200
        durable = len(world.payloads())
        assert durable > 80
        faults.schedule(*[Fault.SLOW_DOWN] * 10_000)
        outcomes = [refusal(writer, b"%090d" % number) for number in range(100, 300)]
        taken = [each for each in outcomes if each is None]
        assert len(taken) * 90 < 2 * (1000 + 300)
        assert None not in outcomes[-100:]
        assert outcomes[-1] is not None
        assert "not durable" in outcomes[-1].__notes__[0]
        faults.clear()
        writer.flush()
    wanted = [*range(100), *(number for number, each in zip(range(100, 300), outcomes, strict=True) if each is None)]
    assert by_number(world.payloads()) == [b"%090d" % number for number in wanted]


def refusal(writer: StreamWriter, payload: bytes) -> AccelError | None:
    """What a write raises, if anything."""
    try:
        writer.write(payload, b"a")
    except AccelError as error:
        return error
    return None


@pytest.mark.parametrize("segments", [1])
def test_old_events_are_sent_on_by_those_that_follow(world: World) -> None:
    with world.process(settings=SegmentsSettings(linger_seconds=2)) as process:
        writer = process.writer()
        writer.write(b"0", b"a")
        world.seconds += 1
        writer.write(b"1", b"a")
        assert process.host.waiting_bytes > 0
        world.seconds += 2
        writer.write(b"2", b"a")
        assert world.payloads() == [b"0", b"1"]


def test_a_stream_opened_with_another_host_is_refused(world: World, process: Process) -> None:
    with world.process(node_id=5) as other, pytest.raises(InvalidArgument, match="host"):
        StreamWriter(other.stream(), process.host)


@pytest.mark.parametrize("segments", [1])
def test_what_is_no_bytes_is_refused_and_leaves_nothing_behind(world: World, process: Process) -> None:
    with process.writer() as writer:
        no_payloads: list[Any] = ["text", 5, None, [b"0"], np.zeros(3, np.uint8)]
        for refused in no_payloads:
            with pytest.raises(InvalidArgument, match="expected bytes as payload, found"):
                writer.write(refused, b"a")
            with pytest.raises(InvalidArgument, match="expected bytes as payload, found"):
                writer.write_many([(b"1", b"a"), (refused, b"a")])
            with pytest.raises(TypeError, match="expected events of bytes"):
                process.host.append(NAME, 0, [refused])
        no_keys: list[Any] = [5, None, 1.5, [b"a"], "half of a pair: \ud800"]
        for refused in no_keys:
            with pytest.raises(InvalidArgument, match="key"):
                writer.write(b"1", refused)
        with pytest.raises(FormatLimit):
            process.host.append(NAME, 0, [])
        writer.write(b"0", b"a")
        writer.flush()
    assert world.payloads() == [b"0"]


@pytest.mark.parametrize("segments", [1])
def test_bytes_that_change_after_the_call_are_written_as_they_were(world: World, process: Process) -> None:
    changing: Any = bytearray(b"first")
    every_second: Any = memoryview(b"s-e-c-o-n-d")[::2]
    numbers: Any = memoryview(array("H", [0x3030]))
    key: Any = bytearray(b"a")
    with process.writer() as writer:
        writer.write(changing, b"a")
        writer.write(every_second, key)
        writer.write_many([(changing, b"a"), (numbers, key)])
        changing[:] = b"later"
        writer.flush()
    assert world.payloads() == [b"first", b"second", b"first", b"00"]


@pytest.mark.parametrize("segments", [1])
def test_tails_are_told_of_segments_that_another_node_writes(world: World, process: Process) -> None:
    with process.writer() as writer:
        writer.write_many([(b"0", b"a"), (b"1", b"a")])
        writer.flush()
        ids = process.stream().active_segments().ids
        with world.process(node_id=5) as other:
            assert other.host.tails(NAME, ids) == {0: 2}
            with pytest.raises(CommitRefused, match="no node but 5"):
                other.host.append(NAME, 0, [b"x"])
            with pytest.raises(SegmentsElsewhere, match="found 0@0 on node 4"):
                other.host.seal(NAME, ids)
