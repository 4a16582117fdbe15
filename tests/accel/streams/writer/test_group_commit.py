"""Uploads beside those who write: futures tell what is so, order stays, memory is bounded, no thread is left."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

import pytest

from accel.errors import (
    AccelError,
    Closed,
    CommitRefused,
    NamespaceShared,
    SessionFenced,
    StreamsReleased,
    WriterStalled,
)
from accel.history.rules.configuration import OffsetUnit
from accel.history.store import Stream
from accel.streams import uploads
from accel.streams.acknowledgements import EventPlace, WriteFuture
from accel.streams.aio import AsyncStreamWriter
from accel.streams.rules.routing import KeyRouter, key_position
from accel.streams.settings import SegmentsSettings, StreamWriterSettings
from accel.testing import Crash, CrashStore, Fault, FaultStore
from loaders.layout import ObjectLayout
from loaders.store import CountingStore, ObjectStore
from loaders.store.decorated import DecoratedStore, StoreCall
from tests.accel.streams.writer.world import CATALOG, FORMAT, NODE, Process, World, created, ids_of
from tests.examples import examples

LONG = 20.0
"""Longer than anything here takes, in seconds."""

Answer = TypeVar("Answer")


class HeldStore(DecoratedStore):
    """Holds puts of objects until they are let go; counts those that it holds."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.changed = threading.Condition()
        self.is_holding = False
        self.held = 0

    def hold(self) -> None:
        self.is_holding = True

    def let_go(self) -> None:
        with self.changed:
            self.is_holding = False
            self.changed.notify_all()

    def wait_held(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.held >= count, LONG)

    def is_held(self, call: StoreCall) -> bool:
        return call.operation == "put" and not call.key.startswith("accel/")

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        if self.is_held(call):
            with self.changed:
                self.held += 1
                self.changed.notify_all()
                assert self.changed.wait_for(lambda: not self.is_holding, LONG)
                self.held -= 1
        return send()


@pytest.fixture
def world(segments: int, unit: OffsetUnit) -> Iterator[World]:
    """A bucket whose processes work beside their callers; they leave no thread behind."""
    made = created(segments, unit)
    made.work_beside()
    yield made
    names = [thread.name for thread in threading.enumerate()]
    assert [name for name in names if name.startswith("accel-uploads")] == []


def numbered(start: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, stop)]


# What a future says


@pytest.mark.parametrize("unit", OffsetUnit)
def test_a_future_gives_the_place_of_its_event_without_a_flush(world: World, process: Process) -> None:
    writer = process.writer(StreamWriterSettings(batch_events_max=3))
    futures = {each: writer.write(each, b"key-" + each) for each in numbered(0, 50)}
    many = [(b"many-%d" % number, b"%d" % number) for number in range(20)]
    futures |= dict(zip([each for each, _ in many], writer.write_many(many), strict=True))
    told = {payload: future.result(LONG) for payload, future in futures.items()}
    assert told == world.places()
    assert all(future.done() and future.exception() is None for future in futures.values())


def test_a_future_is_resolved_by_those_who_ask_for_it_where_nobody_works_beside_them() -> None:
    with created(segments=1).process() as process:
        writer = process.writer()
        futures = [writer.write(each, b"a") for each in numbered(0, 5)]
        assert not any(each.done() for each in futures)
        assert futures[2].result() == EventPlace(0, 2)
        assert all(each.done() for each in futures)


def test_a_write_waits_for_no_upload_and_events_gather_meanwhile(world: World) -> None:
    held = HeldStore(world.store)
    with world.process(held) as process:
        writer = process.writer()
        writer.write(b"-1", b"key-4").result(LONG)
        held.hold()
        futures = [writer.write(each, b"key-%d" % (int(each) % 5)) for each in numbered(0, 200)]
        held.wait_held(1)
        assert not any(each.done() for each in futures)
        with pytest.raises(TimeoutError, match="still under way"):
            futures[-1].result(0.001)
        held.let_go()
        writer.flush()
        assert all(each.done() for each in futures)
        places = world.places()
        assert [each.result() for each in futures] == [places[each] for each in numbered(0, 200)]
    check_order(world)


def test_objects_are_written_side_by_side_and_listed_in_their_order_by_few_writes(world: World) -> None:
    held, counted = HeldStore(world.store), CountingStore(world.store)
    held._store = counted
    bounds = SegmentsSettings(linger_seconds=0, uploads_at_once=3)
    with world.process(held, bounds) as process:
        writer = process.writer()
        for _ in range(2):
            writer.write(b"0", b"a").result(LONG)  # from here on ids are there
        before = len(process.catalog.refresh().nodes[4].refs)
        held.hold()
        futures = []
        for number in range(3):
            futures.append(writer.write(b"%d" % number, b"a"))
            held.wait_held(number + 1)
        counted.reset()
        held.let_go()
        offsets = [place.offset for each in futures if (place := each.result(LONG)) is not None]
        assert offsets == [2, 3, 4]
        writes = counted.snapshot().of("put").requests
        assert 3 + 1 <= writes <= 3 + 3
        assert len(process.catalog.refresh().nodes[4].refs) == before + 3


class SlowCommits(HeldStore):
    """Commits take a tenth of a second each, by a clock that stands still otherwise."""

    seconds = 1_000.0

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        if call.operation == "put" and call.key.startswith("accel/tables/"):
            self.seconds += 0.1
        return super()._around(call, send)


def test_events_gather_for_the_time_of_a_commit_while_an_object_is_on_its_way(world: World) -> None:
    slow = SlowCommits(world.store)
    world.system = replace(world.system, timer=lambda: slow.seconds)
    with world.process(slow, SegmentsSettings(linger_seconds=0, uploads_at_once=4)) as process:
        writer = process.writer()
        for _ in range(4):  # one by one: nothing is on its way, so nothing is waited for
            writer.write(b"before", b"a").result(LONG)
        before = len(process.catalog.refresh().nodes[NODE].refs)
        slow.hold()
        futures = [writer.write(b"first", b"a")]
        slow.wait_held(1)
        futures += [writer.write(each, b"a") for each in numbered(0, 20)]
        slow.seconds += 1.0
        slow.wait_held(2)
        futures += [writer.write(each, b"a") for each in numbered(20, 40)]
        slow.seconds += 1.0
        slow.wait_held(3)
        slow.let_go()
        assert [future.result(LONG) for future in futures] == [EventPlace(0, 4 + at) for at in range(41)]
        assert len(process.catalog.refresh().nodes[NODE].refs) == before + 3


def test_a_checkpoint_holds_up_no_acknowledgement(world: World) -> None:
    held = HeldCheckpoints(world.store)
    world.create(segments=1, name=("shop", "held"))
    with world.process(held) as process:
        writer = process.writer(name=("shop", "held"))
        held.hold()
        for number in range(CATALOG.checkpoint_commits):
            assert writer.write(b"%d" % number, b"a").result(LONG) == EventPlace(0, number)
        held.wait_held(1)
        held.let_go()


class HeldCheckpoints(HeldStore):
    """Holds checkpoints instead."""

    def is_held(self, call: StoreCall) -> bool:
        return call.operation == "put" and "heckpoint" in call.key


def test_a_flush_waits_for_what_was_written_before_it_only(world: World) -> None:
    held = HeldStore(world.store)
    with world.process(held, SegmentsSettings(linger_seconds=0)) as process, ThreadPoolExecutor(1) as other:
        writer = process.writer()
        first = writer.write(b"0", b"a")
        writer.flush()
        assert first.done()
        held.hold()
        second = writer.write(b"1", b"a")
        held.wait_held(1)
        flushing = other.submit(writer.flush)
        third = process.writer().write(b"2", b"a")  # another writer of the same host
        held.let_go()
        flushing.result(LONG)
        assert second.done()
        assert third.result(LONG) is not None


# asyncio


def test_a_future_can_be_awaited_and_who_is_cancelled_while_waiting_loses_no_event(world: World) -> None:
    held = HeldStore(world.store)

    async def run() -> None:
        with world.process(held) as process:
            writer = process.writer()
            await writer.write(b"0", b"a")
            held.hold()
            future = writer.write(b"1", b"a")

            async def wait() -> object:
                return await future

            waiting = asyncio.ensure_future(wait())
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            held.let_go()
            assert await future == world.places()[b"1"]
            assert await future == future.result()

    asyncio.run(run())
    assert sorted(world.payloads()) == [b"0", b"1"]


def test_the_asynchronous_writer_does_what_the_other_one_does(world: World) -> None:
    async def run() -> dict[bytes, object]:
        with world.process() as process:
            async with AsyncStreamWriter(process.stream(), process.host) as writer:
                futures = {each: await writer.write(each, b"key-" + each) for each in numbered(0, 30)}
                many = await writer.write_many([(each, each) for each in numbered(30, 40)])
                told: dict[bytes, object] = {payload: await future for payload, future in futures.items()}
                told |= {each: await future for each, future in zip(numbered(30, 40), many, strict=True)}
                kept, gone = await writer.begin_transaction(), await writer.begin_transaction()
                within = await writer.write(b"40", b"a", transaction=kept)
                await writer.write_many([(b"41", b"a")], transaction=gone)
                await writer.commit_transaction(kept)
                await writer.abort_transaction(gone)
                assert await within is None
                assert await writer.carry_out_requests() == []
                await writer.write(b"42", b"a")
                await writer.flush()
            with pytest.raises(Closed):
                await writer.write(b"43", b"a")
            return told

    told = asyncio.run(run())
    found = world.places()
    assert {each: found[each] for each in told} == told
    assert sorted(map(int, found)) == [*range(41), 42]


def test_a_task_that_waits_for_room_stalls_nobody_and_takes_nothing_if_it_is_cancelled(world: World) -> None:
    held = HeldStore(world.store)

    async def run() -> None:
        with world.process(held, SegmentsSettings(waiting_bytes_max=100)) as process:
            settings = StreamWriterSettings(room_seconds=0.01)
            impatient = AsyncStreamWriter(process.stream(), process.host, settings=settings)
            async with impatient, AsyncStreamWriter(process.stream(), process.host) as writer:
                await (await writer.write(b"-1", b"a"))
                held.hold()
                first = await writer.write(b"%088d" % 0, b"a")
                with pytest.raises(WriterStalled, match="found 100 taken"):
                    await impatient.write(b"2", b"a")
                cancelled = asyncio.ensure_future(writer.write(b"3", b"a"))
                waiting = asyncio.ensure_future(writer.write(b"4", b"a"))
                for _ in range(5):
                    await asyncio.sleep(0)  # both wait now
                cancelled.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await cancelled
                assert len(process.host.commits._room_listeners) == 1, "nothing is kept of those who wait no more"
                held.let_go()
                assert await first is not None
                assert await (await waiting) is not None

    asyncio.run(run())
    assert sorted(map(int, world.payloads())) == [-1, 0, 4]


# What goes wrong


def test_what_another_node_takes_over_fails_and_the_other_segments_go_on(world: World) -> None:
    held = HeldStore(world.store)
    with world.process(held) as old, world.process(node_id=9) as new:
        writer, stream = old.writer(), old.stream()
        keys = {segment_of(stream, b"key-%d" % number): b"key-%d" % number for number in range(20)}
        (gone_id, gone_key), (stays_id, stays_key) = sorted(keys.items())
        for key in (gone_key, stays_key):
            writer.write(b"0", key).result(LONG)
        held.hold()
        lost = writer.write(b"1", gone_key)
        kept = writer.write(b"2", stays_key)
        held.wait_held(1)
        new.host._node.take_over({stream.segment_stream(gone_id): NODE})
        held.let_go()
        assert kept.result(LONG) == EventPlace(stays_id, 1)
        with pytest.raises(StreamsReleased):
            lost.result(LONG)
        with pytest.raises(CommitRefused, match="open on node 9"):
            writer.write(b"3", gone_key).result(LONG)
        assert writer.write(b"4", stays_key).result(LONG) == EventPlace(stays_id, 2)
        with suppress(CommitRefused):
            writer.flush()
        writer.close()
    assert sorted(world.payloads()) == [b"0", b"0", b"2", b"4"]


def segment_of(stream: Stream, key: bytes) -> int:
    """The segment that holds a key."""
    return KeyRouter(stream.active_segments()).segment_at(key_position(key))


def test_a_session_that_is_fenced_fails_all_futures_and_all_later_calls(world: World) -> None:
    held = HeldStore(world.store)
    with world.process(held) as old:
        writer = old.writer()
        safe = writer.write(b"0", b"a")
        safe.result(LONG)
        held.hold()
        lost = [writer.write(each, b"a") for each in numbered(1, 40)]
        held.wait_held(1)
        with world.process() as new, new.writer() as other:
            other.write(b"after", b"a").result(LONG)
        held.let_go()
        for each in lost:
            with pytest.raises(SessionFenced):
                each.result(LONG)
        assert isinstance(lost[0].exception(), SessionFenced)
        for call in (writer.flush, old.host.flush, lambda: writer.write(b"x", b"a")):
            with pytest.raises(SessionFenced):
                call()
        assert safe.result() is not None
    assert sorted(world.payloads()) == [b"0", b"after"]


STRANGE = b"of another system"


def settle_beside(world: World) -> list[str]:
    """Another system writes objects to all keys of the namespace that are free; returns them."""
    layout = ObjectLayout(namespace=FORMAT.namespace)
    ours = {info.key for info in world.store.list("")}
    keys = [key for key in map(layout.object_key, range(200)) if key not in ours]
    for key in keys:
        world.store.put(key, STRANGE)
    return keys


@pytest.mark.parametrize("is_transaction", [False, True])
def test_an_object_of_another_system_fails_all_futures_and_all_later_calls(
    world: World, is_transaction: bool, process: Process
) -> None:
    writer = process.writer()
    safe = writer.write(b"0", b"a")
    safe.result(LONG)
    theirs = settle_beside(world)
    if is_transaction:
        transaction = writer.begin_transaction()
        writer.write(b"1", b"a", transaction=transaction)
        with pytest.raises(NamespaceShared):
            writer.commit_transaction(transaction)
    else:
        lost = [writer.write(each, b"a") for each in numbered(1, 40)]
        for each in lost:
            with pytest.raises(NamespaceShared):
                each.result(LONG)
    for call in (process.host.flush, lambda: writer.write(b"x", b"a"), writer.flush):
        if is_transaction and call == writer.flush:
            continue  # nothing of this writer waits
        with pytest.raises(NamespaceShared, match="did not write: it has no mark"):
            call()
    assert safe.result() is not None
    assert {world.store.get(key).body for key in theirs} == {STRANGE}
    assert world.payloads() == [b"0"]


def test_an_object_of_another_system_ends_a_session_that_uploads_in_its_callers_thread() -> None:
    world = created()
    with world.process() as process:
        writer = process.writer()
        writer.write(b"0", b"a")
        writer.flush()
        theirs = settle_beside(world)
        writer.write(b"1", b"a")
        for _ in range(3):
            with pytest.raises(NamespaceShared):
                writer.flush()
        for key in theirs:
            world.store.delete(key)
        with pytest.raises(NamespaceShared):
            writer.flush()
    assert world.payloads() == [b"0"]


def test_memory_is_bounded_and_a_write_waits_for_room_only_so_long(world: World) -> None:
    held = HeldStore(world.store)
    bounds = SegmentsSettings(waiting_bytes_max=1000)
    with world.process(held, bounds) as process:
        writer = process.writer(StreamWriterSettings(room_seconds=0.01))
        writer.write(bytes(5000), b"a").result(LONG)  # one that is larger than the bound goes alone
        held.hold()
        taken = [writer.write(bytes(88), b"a") for _ in range(10)]
        with pytest.raises(WriterStalled, match="found 1000 taken"):
            writer.write(bytes(88), b"a")
        held.let_go()
        taken[-1].result(LONG)
        writer.write(bytes(88), b"a").result(LONG)
    assert len(world.payloads()) == 12


def test_threads_that_wait_for_room_go_on_when_there_is_some(world: World) -> None:
    with world.process(settings=SegmentsSettings(waiting_bytes_max=300)) as process, ThreadPoolExecutor(4) as threads:
        writer = process.writer()

        def write(thread: int) -> list[WriteFuture]:
            return [writer.write(b"%d" % (thread + 4 * number), b"%d" % thread) for number in range(40)]

        futures = [each for written in threads.map(write, range(4)) for each in written]
        assert {each.result(LONG) is None for each in futures} == {False}
    assert sorted(map(int, world.payloads())) == list(range(160))


# Scaling, and transactions, beside uploads


def test_keys_stay_in_order_through_scales_while_threads_write(world: World, process: Process) -> None:
    with ThreadPoolExecutor(4) as threads:
        writer = process.writer(StreamWriterSettings(batch_events_max=7))
        stop = threading.Event()

        def write(thread: int) -> list[WriteFuture]:
            futures, number = [], 0
            while not stop.is_set() and number < 3000:
                futures.append(writer.write(b"%d:%d" % (thread, number), b"key-%d" % thread))
                number += 1
                if number % 50 == 0:
                    futures[-1].result(LONG)
            return futures

        writing = [threads.submit(write, thread) for thread in range(4)]
        for _ in range(3):
            process.stream().split(process.stream().active_segments()[0].id)
        stop.set()
        futures = [each.result(LONG) for each in writing]
        for written in futures:
            for future in written:
                assert future.result(LONG) is not None
        writer.close()
        process.host.close()
    found = defaultdict(list)
    for payload in world.payloads():
        thread, number = map(int, payload.split(b":"))
        found[thread].append(number)
    assert dict(found) == {thread: list(range(len(written))) for thread, written in enumerate(futures)}
    world.check_times()


# Faults, and crashes before any write


def check_order(world: World) -> None:
    """Events of one key, of five, stand in the order of their numbers, each once."""
    seen: dict[int, list[int]] = defaultdict(list)
    for payload in world.payloads():
        seen[int(payload) % 5].append(int(payload))
    for numbers in seen.values():
        assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("seed", range(examples(10)))
def test_with_any_faults_each_event_is_there_once_in_order_and_each_future_tells_its_place(
    world: World, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.work_beside()
    broken = FaultStore(world.store, rng=random.Random(seed), probabilities=dict.fromkeys(Fault, 0.03))
    passing = [None] * 100_000
    broken.schedule(*passing)
    bounds = SegmentsSettings(uploads_at_once=3, linger_seconds=0)
    monkeypatch.setattr(uploads, "COMMIT_ATTEMPTS", 2)
    with world.process(broken, bounds, moves=(2, 100)) as process:
        writer = process.writer()
        broken.clear()
        futures = []
        for number in range(60):
            futures.append(writer.write(b"%d" % number, b"key-%d" % (number % 5)))
            if number % 6 == 0:
                with suppress(AccelError):
                    writer.flush()
        told = {b"%d" % number: future.result(LONG) for number, future in enumerate(futures)}
        broken.schedule(*passing)
        assert told == world.places()
    check_order(world)


def test_nothing_acknowledged_is_lost_wherever_a_process_dies_beside_its_callers() -> None:
    def run(around: ObjectStore, world: World) -> dict[bytes, WriteFuture]:
        futures: dict[bytes, WriteFuture] = {}
        with suppress(Crash, CommitRefused), world.process(around) as process:
            writer = process.writer(StreamWriterSettings(batch_events_max=4))
            for number in range(30):
                futures[b"%d" % number] = writer.write(b"%d" % number, b"key-%d" % (number % 5))
                if number == 15:
                    process.stream().scale(ids_of("0@0"), [(0.0, 0.25), (0.25, 0.5)])
                if number % 5 == 4:
                    writer.flush()
            writer.close()
            process.host.close()
        return futures

    def made() -> World:
        fresh = created()
        fresh.work_beside()
        return fresh

    whole = made()
    counted = CrashStore(whole.store, None)
    assert len(run(counted, whole)) == 30
    assert counted.writes > 20
    for number in range(0, counted.writes, max(1, round(counted.writes / examples(8)))):
        world = made()
        futures = run(CrashStore(world.store, number), world)
        acknowledged = {payload for payload, each in futures.items() if each.done() and each.exception() is None}
        with world.process() as process:
            process.stream().recover()
            with process.writer() as writer:
                writer.write(b"99", b"key-4").result(LONG)
            process.host.close()
        found = world.places()
        assert acknowledged <= set(found), number
        assert {payload: futures[payload].result() for payload in acknowledged} == {
            payload: found[payload] for payload in acknowledged
        }
        check_order(world)
