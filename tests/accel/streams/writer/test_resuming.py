"""A producer that numbers its events, dies anywhere and goes on where it was told to: each event once, in order."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.errors import AccelError, InvalidArgument, StreamsReleased
from accel.streams.acknowledgements import EventPlace
from accel.streams.aio import AsyncStreamWriter
from accel.streams.writer import StreamWriter
from accel.streams.writer_numbers import REPEATED
from accel.testing import Crash, CrashStore
from loaders.store import CountingStore, ObjectStore
from tests.accel.streams.writer.test_crashes import Recorder, Story, copy_of
from tests.accel.streams.writer.world import NODE, Process, World, ids_of
from tests.examples import examples

PRODUCER = UUID("6c8f9d7e-0000-4000-8000-00000000beef")
KEYS = 3
EVENTS = 16
FLUSHED = 3
NODES = (NODE, NODE + 1)


def key_of(number: int) -> bytes:
    return b"key-%d" % (number % KEYS)


def payload_of(number: int) -> bytes:
    return b"%d" % number


def writer_of(process: Process) -> StreamWriter:
    return StreamWriter(process.stream(), process.host, writer_id=PRODUCER)


def produce(process: Process, *, is_scaling: bool = True) -> None:
    """What every life of the producer does: all of its events, from where it was told to."""
    process.take_all()
    process.stream().recover()
    process.take_all()
    with writer_of(process) as writer:
        for number in range(writer.resume(), EVENTS):
            if is_scaling:
                scale(process, number)
            writer.write(payload_of(number), key_of(number), number=number)
            if number % FLUSHED == 0:
                writer.flush()


def scale(process: Process, number: int) -> None:
    """A split after some events, a merge after some more; neither twice."""
    stream = process.stream()
    epoch = stream.current_epoch().epoch
    if number >= 5 and epoch == 0:
        stream.scale(ids_of("0@0"), [(0.0, 0.25), (0.25, 0.5)])
    elif number >= 10 and epoch == 1:
        stream.scale(ids_of("2@1", "3@1", "1@0"), [(0.0, 1.0)])


def check(world: World) -> None:
    """Each event is there once; those of a key in the order of their numbers."""
    found = world.payloads()
    by_key: dict[bytes, list[int]] = {}
    for payload in found:
        by_key.setdefault(key_of(int(payload)), []).append(int(payload))
    assert by_key == {key_of(key): list(range(key, EVENTS, KEYS)) for key in range(KEYS)}


@pytest.mark.parametrize(("node_id", "step"), [(NODES[0], 6), (NODES[1], 9)], ids=["the same node", "another node"])
def test_a_producer_that_dies_before_any_write_goes_on_without_a_loss_or_a_repeat(node_id: int, step: int) -> None:
    step = step if examples(100) <= 100 else 1
    world = World().create()
    recorder = Recorder(world, Story())
    with world.process(recorder) as process:
        produce(process)
    check(world)
    assert 50 < len(recorder.moments) < 150
    for number, moment in list(enumerate(recorder.moments))[::step]:
        world.store, world.seconds = moment.store, moment.seconds
        with world.process(node_id=node_id) as process:
            produce(process)
        try:
            check(world)
        except AssertionError as error:
            raise AssertionError(f"crash before write {number}") from error


@settings(max_examples=examples(10), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.sampled_from(NODES)), max_size=4))
def test_many_lives_on_many_nodes_write_each_event_once(lives: list[tuple[int, int]]) -> None:
    world = World().create()
    for writes, node_id in [*lives, (10_000, NODE)]:
        try:
            live(world, CrashStore(world.store, writes), node_id)
        except Crash:
            world.seconds += 1.0
    check(world)


def live(world: World, store: ObjectStore, node_id: int) -> None:
    with world.process(store, node_id=node_id) as process:
        produce(process)


def test_a_producer_is_told_where_to_go_on_though_a_segment_gets_nothing() -> None:
    world = World().create()
    with world.process() as process, writer_of(process) as writer:
        assert writer.resume() == 0
        for number in range(20):
            writer.write(payload_of(number), b"one key", number=10 * number)
            writer.flush()
    with world.process() as process:
        writer = writer_of(process)
        assert writer.resume() == 190  # all below were durable when the last one was written
        repeated = writer.write(payload_of(19), b"one key", number=190).result()
        assert isinstance(repeated, EventPlace)
        assert repeated.offset == REPEATED
        assert writer.write(b"20", b"one key").result() is not None
    assert sorted(map(int, world.payloads())) == list(range(21))


def test_events_without_a_number_go_on_above_all_that_are_durable() -> None:
    world = World().create()
    for life in range(3):
        with world.process() as process, writer_of(process) as writer:
            writer.write_many([(b"%d-%d" % (life, number), b"key-%d" % number) for number in range(6)])
            writer.flush()
    assert sorted(world.payloads()) == sorted(b"%d-%d" % (life, number) for life in range(3) for number in range(6))


def test_numbers_of_one_writer_ascend_and_only_writers_with_ids_have_some() -> None:
    world = World().create()
    with world.process() as process, writer_of(process) as writer, process.writer() as other:
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


def test_after_an_event_is_lost_none_that_follows_is_written() -> None:
    world = World().create()
    with world.process() as process, world.process(node_id=NODES[1]) as other:
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
    world = World().create()
    with world.process() as process:
        produce(process, is_scaling=False)
    costs = []
    for writer_id in (None, PRODUCER):
        store = CountingStore(copy_of(world.store))
        with world.process(store) as process:
            stream = process.stream()
            store.reset()
            StreamWriter(stream, process.host, writer_id=writer_id)
            costs.append(store.reset().total.requests)
    assert costs[0] == costs[1]


def test_under_asyncio_a_producer_goes_on_likewise() -> None:
    async def write_all(process: Process) -> int:
        async with AsyncStreamWriter(process.stream(), process.host, writer_id=PRODUCER) as writer:
            first = await writer.resume()
            for number in range(EVENTS):
                await writer.write(payload_of(number), key_of(number), number=number)
            await writer.flush()
            return first

    world = World().create()
    world.work_beside()
    with world.process() as process:
        assert asyncio.run(write_all(process)) == 0
    with world.process() as process:
        assert asyncio.run(write_all(process)) <= EVENTS
    check(world)
