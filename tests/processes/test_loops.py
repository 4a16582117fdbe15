"""Objects for asyncio outlive loops and tasks: what was cancelled, or ended with its loop, stops nothing later."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any, TypeVar

import pytest

import accel
from accel import AsyncReadAccelerator, CatalogSettings, ConnectionSettings, FormatRecord, ObjectCatalog, Settings
from accel.errors import AccelError
from accel.image import MetadataImage
from accel.image_source import PolledImages
from accel.lookup.answer import Request
from accel.streams.aio import AsyncReader
from accel.streams.settings import SegmentsSettings
from accel.streams.shared.owners import OwnersTable
from loaders.store import MemoryStore
from loaders.threads import start_thread
from tests.accel.lookup.cluster import STREAM, line_image, line_store, system
from tests.accel.lookup.driving import Clock
from tests.accel.streams.reader.streams import QUICK
from tests.examples import examples
from tests.processes.test_openings import Beside
from tests.processes.test_owners import SECRET

Answer = TypeVar("Answer")

LIMIT_SECONDS = 60
"""No wait of these tests comes near it; it ends those that would hang."""


def in_a_loop(work: Callable[[], Awaitable[Answer]]) -> Answer:
    """Run this in a loop of its own."""

    async def limited() -> Answer:
        async with asyncio.timeout(LIMIT_SECONDS):
            return await work()

    return asyncio.run(limited())


# Lookups


class Held:
    """A source of images that answers when it may."""

    def __init__(self) -> None:
        self.asked, self.may_answer = threading.Semaphore(0), threading.Event()
        self.may_answer.set()
        self.queries = 0
        self.source = PolledImages(self, timer=Clock(), sleep=lambda _: None)
        self.asked.acquire()

    def __call__(self) -> MetadataImage:
        self.queries += 1
        self.asked.release()
        assert self.may_answer.wait(LIMIT_SECONDS)
        return line_image([0, 1, 2], version=self.queries)

    def accelerator(self) -> AsyncReadAccelerator:
        """An accelerator of three objects."""
        settings = Settings(hedge_percent=0, parallel_loads=4)
        threads = replace(system(), start=start_thread)
        return AsyncReadAccelerator(self.source, line_store(3), settings=settings, system=threads)


async def found(accelerator: AsyncReadAccelerator) -> list[int]:
    return [each.object_id for each in (await accelerator.get_objects(STREAM, 0, 30, 9)).objects]


def test_refreshes_that_were_all_cancelled_stop_no_later_one() -> None:
    held = Held()

    async def scenario() -> None:
        async with held.accelerator() as one:
            held.may_answer.clear()
            first = [asyncio.create_task(one.refresh()) for _ in range(3)]
            await asyncio.to_thread(held.asked.acquire)
            second = [asyncio.create_task(one.refresh()) for _ in range(3)]  # wait for the query after that one
            await asyncio.sleep(0)
            for task in asyncio.all_tasks() - {asyncio.current_task()}:  # as at the end of `asyncio.run`
                task.cancel()
            ends = await asyncio.gather(*first, *second, return_exceptions=True)
            assert [type(each) for each in ends] == [asyncio.CancelledError] * 6
            held.may_answer.set()
            assert await one.refresh()
            assert await one.refresh()
            assert one.image_version == held.queries

    in_a_loop(scenario)


@pytest.mark.parametrize("waits", [False, True], ids=["at once", "while it waits"])
def test_a_refresh_whose_loop_ended_stops_none_in_the_next_loop(*, waits: bool) -> None:
    held = Held()
    one = held.accelerator()

    async def ended_early() -> None:
        held.may_answer.clear()
        task = asyncio.create_task(one.refresh())
        await (asyncio.to_thread(held.asked.acquire) if waits else asyncio.sleep(0))
        held.may_answer.set()
        del task  # `asyncio.run` cancels it

    async def later() -> None:
        before = held.queries
        await asyncio.gather(*(one.refresh() for _ in range(4)))
        assert held.queries - before <= 2
        assert await found(one) == [0, 1, 2]

    for _ in range(2):
        in_a_loop(ended_early)
        in_a_loop(later)
    in_a_loop(one.close)


def test_loops_in_several_threads_share_an_accelerator() -> None:
    one = Held().accelerator()

    async def many() -> None:
        for _ in range(50):
            assert await found(one) == [0, 1, 2]
            await one.refresh()

    with ThreadPoolExecutor(4) as threads:
        for running in [threads.submit(in_a_loop, many) for _ in range(4)]:
            running.result()
    in_a_loop(one.close)


def test_a_call_that_ends_after_its_loop_was_closed_troubles_nobody(caplog: pytest.LogCaptureFixture) -> None:
    held = Held()
    one = held.accelerator()
    held.may_answer.clear()
    loop = asyncio.new_event_loop()
    task: asyncio.Task[Any] = loop.create_task(one.refresh())
    loop.run_until_complete(asyncio.sleep(0))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()
    held.may_answer.set()
    in_a_loop(one.refresh)
    in_a_loop(one.close)
    assert caplog.records == []


# All together


@dataclass
class Program:
    """A program that keeps its objects for asyncio, and uses them in the loops of many `asyncio.run`.

    Attributes:
        taken: payloads of the events that a writer has taken.
        given: the payloads that each reader has returned.
    """

    chance: Random
    store: MemoryStore = field(default_factory=MemoryStore)
    beside: Beside = field(default_factory=Beside)
    taken: list[bytes] = field(default_factory=list)
    given: dict[str, list[bytes]] = field(default_factory=lambda: {"reader": [], "member": []})
    problems: list[str] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    version: Any = 0
    count: int = 0

    def __post_init__(self) -> None:
        settings = ConnectionSettings(
            catalog=CatalogSettings(parallel_requests=2), segments=SegmentsSettings(linger_seconds=0.001)
        )
        create = FormatRecord(namespace="loops", stream_buckets=1)
        self.connection = accel.connect(self.store, create=create, settings=settings, system=self.beside.system())
        self.streams = self.run(self.connection.__aenter__)
        self.run(self._make)
        self.accelerator = Held().accelerator()
        self.reading = self.accelerator.read(STREAM, 0, 30)
        self.images = self.accelerator.newer_images()

    async def _make(self) -> None:
        await self.streams.create_scope("shop")
        await self.streams.create_stream("shop", "orders", segments=2)
        self.writer = await self.streams.writer("shop", "orders")
        self.reader = await self.streams.reader("shop", "orders", follow=True, settings=QUICK)
        self.member = await self.streams.group_reader("shop", "orders", "team", "one", settings=QUICK)
        await self.member.rebalance()  # from the beginning on

    def run(self, work: Callable[[], Awaitable[Answer]]) -> Answer:
        """Run this in a loop of its own, which says what it did not like."""

        async def heard() -> Answer:
            asyncio.get_running_loop().set_exception_handler(lambda _, told: self.problems.append(str(told)))
            return await work()

        return in_a_loop(heard)

    # What is disturbed

    async def write(self) -> None:
        self.count += 1
        payload = b"%d" % self.count
        future = await self.writer.write(payload, payload)
        self.taken.append(payload)
        await future

    async def begin(self) -> None:
        transaction = await self.writer.begin_transaction()
        await self.writer.write(b"aborted", "key", transaction=transaction)
        await self.writer.abort_transaction(transaction)

    async def read(self, name: str) -> None:
        reader: AsyncReader = getattr(self, name)
        while (event := await reader.next_event()) is not None:
            self.given[name].append(event.payload)

    async def read_member(self) -> None:
        await self.read("member")

    async def read_batches(self) -> None:
        """All batches of the reading in order, however often it is continued; then it begins anew."""
        async for batch in self.reading:
            self.offsets.append(batch.base_offset)
        assert self.offsets == [0, 10, 20]
        self.reading, self.offsets = self.accelerator.read(STREAM, 0, 30), []

    async def follow_images(self) -> None:
        """Each image is newer than the one before."""
        before = self.version
        self.version = (await anext(self.images)).version
        assert before < self.version

    async def open_writer(self) -> None:
        async with self.streams.writer("shop", "orders") as writer:
            await writer.flush()

    async def open_member(self) -> None:
        async with self.streams.group_reader("shop", "orders", "others", "one", settings=QUICK) as reader:
            await reader.next_event()

    async def open_reader(self) -> None:
        async with self.streams.reader("shop", "orders", follow=True, settings=QUICK) as reader:
            await reader.next_event()

    async def connect(self) -> None:
        async with accel.connect(self.store, listen="127.0.0.1:0", secret=SECRET, system=self.beside.system()):
            pass

    def shared(self) -> list[Callable[[], Awaitable[object]]]:
        """What several loops may do at one time."""
        one = self.accelerator
        return [
            lambda: one.get_objects(STREAM, 0, 30, 9),
            lambda: one.get_objects_many([Request(STREAM, at, at + 5) for at in range(0, 30, 5)]),
            lambda: one.explain(STREAM, 0, 30, 9),
            lambda: one.fetch(STREAM, 0, 90, 9, timeout_seconds=1),
            lambda: anext(one.read(STREAM, 0, 30)),
            lambda: anext(one.newer_images()),
            *(one.refresh, one.follow, one.warm),
            *(self.write, self.begin, self.writer.flush, self.writer.carry_out_requests),
            *(self.open_writer, self.open_member, self.open_reader, self.connect, self.streams.refresh),
        ]

    def alone(self) -> list[Callable[[], Awaitable[object]]]:
        """What one task at a time does: one of each object."""
        member = self.member
        others = self.chance.choice([self.read_batches, self.follow_images])
        return [
            lambda: self.read("reader"),
            others,
            self.chance.choice([member.commit, member.rebalance, self.read_member]),
        ]

    async def disturbed(self, acts: list[Callable[[], Awaitable[object]]], chance: Random) -> None:
        """Begin these, cancel some of them, and leave the others to the end of the loop."""

        async def act(each: Callable[[], Awaitable[object]], steps: int | None) -> None:
            with suppress(TimeoutError, AccelError):
                async with asyncio.timeout(None if steps is None else steps / 1000):
                    await each()

        tasks = [asyncio.create_task(act(each, chance.choice([None, 0, 1, 3]))) for each in acts]
        for _ in range(chance.randrange(60)):
            await asyncio.sleep(0)
        for task in chance.sample(tasks, chance.randrange(len(tasks))):
            task.cancel()
            await asyncio.sleep(0)

    # What is right afterwards

    async def check(self) -> None:
        """Undisturbed calls answer, and rightly."""
        assert await found(self.accelerator) == [0, 1, 2]
        assert await self.accelerator.refresh()
        await self.read_batches()
        await self.follow_images()
        await self.write()
        await self.writer.flush()
        await self.streams.refresh()
        for name in self.given:
            reader: AsyncReader = getattr(self, name)
            while len(self.given[name]) < len(self.taken):
                event = await reader.next_event()
                assert event is not None
                self.given[name].append(event.payload)
            assert sorted(self.given[name]) == sorted(self.taken)

    async def close(self) -> None:
        await self.accelerator.close()
        self.reader.close()
        await self.connection.__aexit__(None, None, None)


@pytest.mark.parametrize("seed", range(examples(20)))
def test_whatever_was_cancelled_or_ended_with_its_loop_the_next_calls_answer(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    chance = Random(seed)
    program = Program(chance)
    for _ in range(6):
        acts = chance.sample(program.shared(), 4) + program.alone()
        if chance.random() < 0.5:
            program.run(partial(program.disturbed, acts, chance))
        else:
            with ThreadPoolExecutor(2) as threads:
                parts = [(acts[::2], Random(chance.random())), (acts[1::2], Random(chance.random()))]
                ends = [threads.submit(program.run, partial(program.disturbed, *part)) for part in parts]
                for end in ends:
                    end.result()
        program.run(program.check)
    program.run(program.close)
    program.beside.wait()
    with ObjectCatalog.open(program.store) as catalog:
        assert {owner.expires_ms for owner in OwnersTable(catalog).owners()} == {0}
    gc.collect()
    assert program.problems == []
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
