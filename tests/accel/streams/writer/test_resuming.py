"""A producer that numbers its events goes on where it was told to, and each event is there once."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from accel.errors import AccelError, IllegalState, InvalidArgument, StreamsReleased
from accel.streams.acknowledgements import EventPlace
from accel.streams.aio import AsyncStreamWriter
from accel.streams.writer import StreamWriter
from accel.streams.writer_numbers import REPEATED
from loaders.store import CountingStore
from tests.accel.streams.writer.world import NODE, Process, World, created

PRODUCER = UUID("6c8f9d7e-0000-4000-8000-00000000beef")
EVENTS = [(b"%d" % number, b"key-%d" % (number % 3)) for number in range(16)]


def writer_of(process: Process) -> StreamWriter:
    return StreamWriter(process.stream(), process.host, writer_id=PRODUCER)


def test_a_producer_is_told_where_to_go_on_though_a_segment_gets_nothing(world: World) -> None:
    with world.process() as process, writer_of(process) as writer:
        assert writer.resume() == 0
        for number in range(20):
            writer.write(b"%d" % number, b"one key", number=10 * number)
            writer.flush()
    with world.process() as process:
        writer = writer_of(process)
        assert writer.resume() == 190  # all below were durable when the last one was written
        repeated = writer.write(b"19", b"one key", number=190).result()
        assert isinstance(repeated, EventPlace)
        assert repeated.offset == REPEATED
        assert writer.write(b"20", b"one key").result() is not None
    assert sorted(map(int, world.payloads())) == list(range(21))


def test_events_without_a_number_go_on_above_all_that_are_durable(world: World) -> None:
    for life in range(3):
        with world.process() as process, writer_of(process) as writer:
            writer.write_many([(b"%d-%d" % (life, number), b"key-%d" % number) for number in range(6)])
            writer.flush()
    assert sorted(world.payloads()) == sorted(b"%d-%d" % (life, number) for life in range(3) for number in range(6))


def test_numbers_of_one_writer_ascend_and_only_writers_with_ids_have_some(world: World, process: Process) -> None:
    with writer_of(process) as writer, process.writer() as other:
        writer.write(b"a", b"key", number=7)
        for number in (7, 3, -1, 2**63 - 1):
            with pytest.raises(InvalidArgument, match="expected a number of 8 to"):
                writer.write(b"b", b"key", number=number)
        for bad in (8.0, 8.5, True, "8", float("nan"), 2**63, 2**70):
            with pytest.raises(InvalidArgument, match="as number, found"):
                writer.write(b"b", b"key", number=bad)  # type: ignore[arg-type]  # callers without types
        with pytest.raises(InvalidArgument, match="before the first event"):
            writer.resume()
        with pytest.raises(InvalidArgument, match="found both"):
            writer.write(b"b", b"key", number=8, transaction=PRODUCER)
        for refused in (other.resume, lambda: other.write(b"c", b"key", number=1)):
            with pytest.raises(InvalidArgument, match="writer with an id"):
                refused()
        with pytest.raises(InvalidArgument, match="zeros"):
            StreamWriter(process.stream(), process.host, writer_id=UUID(int=0))
        writer.flush()
    assert world.payloads() == [b"a"]


def test_after_an_event_is_lost_none_that_follows_is_written(world: World, process: Process) -> None:
    with world.process(node_id=NODE + 1) as other:
        writer = writer_of(process)
        writer.write(b"durable", b"key", number=0)
        writer.flush()
        lost = writer.write(b"lost", b"key", number=1)
        writer.drain()
        other.take_all()
        with pytest.raises(AccelError):
            writer.flush()
        assert isinstance(lost.exception(), StreamsReleased)
        with pytest.raises(StreamsReleased):
            writer.write(b"after it", b"key", number=2)
        again = writer_of(other)
        assert again.resume() <= 1
        again.write_many([(b"durable", b"key"), (b"lost", b"key"), (b"after it", b"key")], number=0)
        again.flush()
    assert world.payloads() == [b"durable", b"lost", b"after it"]


def test_a_restart_asks_the_store_as_often_as_one_without_numbers() -> None:
    costs = []
    for writer_id in (None, PRODUCER):
        world = created()
        with world.process() as process, writer_of(process) as writer:
            for payload, key in EVENTS:
                writer.write(payload, key)
                writer.flush()
        store = CountingStore(world.store)
        with world.process(store) as process:
            stream = process.stream()
            store.reset()
            StreamWriter(stream, process.host, writer_id=writer_id)
            costs.append(store.reset().total.requests)
    assert costs[0] == costs[1]


@pytest.mark.parametrize("segments", [1])
def test_under_asyncio_a_producer_goes_on_likewise_and_is_refused_if_it_knows_more_than_the_stream(
    world: World,
) -> None:
    async def write_all(process: Process, expected: int) -> None:
        async with AsyncStreamWriter(process.stream(), process.host, writer_id=PRODUCER) as writer:
            with pytest.raises(IllegalState, match=rf"up to 99, .*, found them up to {expected}"):
                await writer.resume(expected=99)
            assert await writer.resume(expected=expected) == expected
            await writer.write_many(EVENTS, number=0)
            await writer.flush()

    world.work_beside()
    for expected in (0, len(EVENTS)):
        with world.process() as process:
            asyncio.run(write_all(process, expected))
    assert sorted(map(int, world.payloads())) == list(range(len(EVENTS)))
