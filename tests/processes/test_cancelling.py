"""A task that is cancelled at any await loses nothing, doubles nothing and leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from threading import Event
from types import coroutine
from typing import Any, NoReturn

import pytest

import accel
from accel import AsyncGroupReader, AsyncReadAccelerator, AsyncStreamReader, AsyncStreamWriter, ReaderGroup, Settings
from accel.errors import Closed, InvalidArgument
from accel.lookup.answer import Request
from loaders.store import MemoryStore
from tests.accel.lookup.cluster import STREAM, line_image, line_store, system
from tests.accel.lookup.test_accelerator import PushOnWait
from tests.accel.streams.reader.streams import QUICK, Shop, shop
from tests.examples import examples
from tests.processes.children import Held

AWAITS_MAX = 400
IS_SAMPLED = examples(1000) <= 1000
"""The further from the beginning, the more awaits are passed over, others as it waits than as it wakes; a longer run
passes over none."""

OBJECTS = 12


@dataclass
class Tried:
    """What is done, and how it is looked at afterwards.

    Attributes:
        act: is cancelled at one of its awaits.
        may_go_on: is set while the task waits, and from its end on.
        check: is awaited afterwards, in the same loop; raises where something was lost, or is there twice.
    """

    act: Callable[[], Coroutine[Any, Any, object]]
    check: Callable[[], Awaitable[None]]
    may_go_on: Event = field(default_factory=Event)


World = Callable[[], AbstractAsyncContextManager[Tried]]


@dataclass
class Cut:
    """Cancels its task at the await of this number, and counts awaits.

    Args:
        number: from 1 on.
        may_go_on: is set while the task waits.
        is_ready: whether what was waited for is there when the task is cancelled, so that both come at once.
    """

    number: int
    is_ready: bool
    may_go_on: Event
    awaits: int = field(default=0, init=False)

    @coroutine
    def drive(self, work: Coroutine[Any, Any, object]) -> Generator[Any, Any, object]:
        """Run this."""
        error: BaseException | None = None
        while True:
            try:
                waited = work.send(None) if error is None else work.throw(error)
            except StopIteration as stop:
                return stop.value
            self.awaits += 1
            self.may_go_on.set()
            if self.awaits == self.number:
                self._cancel(waited)
            try:
                yield waited
                self.may_go_on.clear()
                error = None
            except BaseException as raised:  # noqa: BLE001 - it is the work that decides
                error = raised
                self.may_go_on.set()

    def _cancel(self, waited: object) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self.is_ready and isinstance(waited, asyncio.Future):
            waited.add_done_callback(lambda _: task.cancel())  # before the task is told
        else:
            asyncio.get_running_loop().call_soon(task.cancel)


async def cut(world: World, number: int, *, is_ready: bool) -> bool:
    """Whether the task had so many awaits; it was cancelled at that one, then."""
    problems: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: problems.append(str(told)))
    async with world() as tried:
        here = Cut(number, is_ready, tried.may_go_on)
        task = asyncio.get_running_loop().create_task(_driven(here, tried.act()))
        [outcome] = await asyncio.gather(task, return_exceptions=True)
        if isinstance(outcome, BaseException) and not isinstance(outcome, asyncio.CancelledError):
            raise outcome
        here.may_go_on.set()
        await tried.check()
    del task, outcome, tried
    gc.collect()
    await asyncio.sleep(0)
    assert problems == []
    assert asyncio.all_tasks() == {asyncio.current_task()}
    return here.awaits >= number


def cut_at(world: World, number: int, *, is_ready: bool) -> bool:
    """As `cut`, in a loop of its own."""
    return asyncio.run(cut(world, number, is_ready=is_ready))


async def _driven(here: Cut, work: Coroutine[Any, Any, object]) -> object:
    return await here.drive(work)


# Lookups


def reading(act: str) -> World:
    """An accelerator, of which one thing is asked."""

    @asynccontextmanager
    async def world() -> AsyncIterator[Tried]:
        counted, images = line_store(OBJECTS), list(range(OBJECTS))
        store = Held(counted)
        source = PushOnWait(line_image(images[:-1]), line_image(images, version=1))
        settings = Settings(hedge_percent=0, parallel_loads=4)
        made = AsyncReadAccelerator(source, store, settings=settings, system=system())
        batches: list[int] = []
        under_way = made.read(STREAM, 0, 50)

        async def read() -> None:
            async for batch in under_way:
                batches.append(batch.base_offset)  # noqa: PERF401 - what was given before the task was cancelled counts

        acts: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
            "get_objects": lambda: made.get_objects(STREAM, 5, 45, 9),
            "get_objects_many": lambda: made.get_objects_many([Request(STREAM, at, at + 5) for at in range(0, 90, 10)]),
            "explain": lambda: made.explain(STREAM, 5, 45, 9),
            "fetch": lambda: made.fetch(STREAM, 0, 120, 20, timeout_seconds=5),
            "read": read,
            "refresh": made.refresh,
            "follow": made.follow,
            "next_newer": lambda: made.next_newer(0),
            "newer_images": lambda: anext(made.newer_images(0)),
            "warm": made.warm,
            "close": made.close,
        }

        async def check() -> None:
            if act != "close":
                answer = await made.get_objects(STREAM, 5, 45, 9)
                assert [each.object_id for each in answer.objects] == [0, 1, 2, 3, 4]
                await made.refresh()
                await read()
                assert batches == [0, 10, 20, 30, 40]
            await made.close()
            assert counted.snapshot().gets <= 2 * OBJECTS

        yield Tried(acts[act], check, store.may_go_on)

    return world


READING = (
    "get_objects",
    "get_objects_many",
    "explain",
    "fetch",
    "read",
    "refresh",
    "follow",
    "next_newer",
    "newer_images",
    "warm",
    "close",
)


# Streams


def writing(act: str) -> World:
    """A writer, of which one thing is asked."""

    @asynccontextmanager
    async def world() -> AsyncIterator[Tried]:
        with shop(MemoryStore()) as orders:
            writer = AsyncStreamWriter(orders.stream, orders.host)
            taken: list[bytes] = []
            transactions: list[Any] = []
            if act != "open":
                await writer.carry_out_requests()
            if act in {"commit_transaction", "abort_transaction"}:
                transactions.append(await writer.begin_transaction())
                await writer.write(b"1:t", "key 1", transaction=transactions[0])

            async def write() -> None:
                for at in range(3):
                    future = await writer.write(b"0:%d" % at, "key 0")
                    taken.append(b"0:%d" % at)
                    await future

            async def write_many() -> None:
                futures = await writer.write_many([(b"0:%d" % at, "key 0") for at in range(3)])
                taken.extend(b"0:%d" % at for at in range(3))
                await writer.flush()
                assert all(each.done() for each in futures)

            acts: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
                "open": write,
                "write": write,
                "write_many": write_many,
                "flush": writer.flush,
                "resume": lambda: refused(writer.resume()),
                "begin_transaction": writer.begin_transaction,
                "commit_transaction": lambda: writer.commit_transaction(transactions[0]),
                "abort_transaction": lambda: writer.abort_transaction(transactions[0]),
                "carry_out_requests": writer.carry_out_requests,
                "close": writer.close,
            }

            async def check() -> None:
                last = writer if act != "close" else AsyncStreamWriter(orders.stream, orders.host)
                if act == "close":
                    await writer.close()
                if transactions:
                    await getattr(last, act)(transactions[0])
                await (await last.write(b"0:last", "key 0"))
                await last.close()
                await asyncio.to_thread(orders.catalog.refresh)
                async with AsyncStreamReader(orders.stream, orders.source(), follow=False, settings=QUICK) as reader:
                    found = [event.payload async for event in reader]
                expected = [*taken, b"0:last", *([b"1:t"] if act == "commit_transaction" else [])]
                assert sorted(found) == sorted(expected)
                assert [each for each in found if each != b"1:t"] == [*taken, b"0:last"]

            yield Tried(acts[act], check)

    return world


WRITING = (
    "open",
    "write",
    "write_many",
    "flush",
    "resume",
    "begin_transaction",
    "commit_transaction",
    "abort_transaction",
    "carry_out_requests",
    "close",
)


async def refused(work: Coroutine[Any, Any, object]) -> None:
    """The writer of this test has no id."""
    with pytest.raises(InvalidArgument):
        await work


def refuse_lost(act: str, given: list[bytes], expected: list[bytes]) -> None:
    """That all was given once; of what was given last before it left, or skipped, the reader says otherwise."""
    if act == "skip_to_head":
        assert set(given) <= set(expected)
        return
    assert sorted(set(given)) == expected
    assert len(given) - len(set(given)) <= int(act == "leave")


def reader_of(orders: Shop, group: ReaderGroup, kind: type[object]) -> AsyncStreamReader | AsyncGroupReader:
    """Of the stream, or of the group."""
    if kind is AsyncStreamReader:
        return AsyncStreamReader(orders.stream, orders.source(), follow=False, settings=QUICK)
    return AsyncGroupReader(orders.stream, orders.source(), group, "a", follow=False, settings=QUICK)


def giving(kind: type[object], act: str) -> World:
    """A reader of a stream or of a group, of which one thing is asked, and then all that is left."""

    @asynccontextmanager
    async def world() -> AsyncIterator[Tried]:
        with shop(MemoryStore()) as orders:
            with accel.StreamWriter(orders.stream, orders.host) as writer:
                orders.write(writer, 24)
            group = ReaderGroup.open(orders.stream, "team")
            given: list[bytes] = []
            reader = reader_of(orders, group, kind)

            async def read() -> None:
                while (event := await reader.next_event()) is not None:
                    given.append(event.payload)

            async def read_batches() -> None:
                while (batch := await reader.next_batch()) is not None:
                    given.extend(event.payload for event in batch)

            async def act_once() -> None:
                event = await reader.next_event()
                assert event is not None
                given.append(event.payload)
                await getattr(reader, act)()

            async def check() -> None:
                if act in {"close", "leave"} and isinstance(reader, AsyncGroupReader):
                    await getattr(reader, act)()
                    assert group.state().readers == ()
                if act == "close":
                    return
                await read()
                expected = sorted(each for events in orders.written.values() for each in events)
                refuse_lost(act, given, expected)

            acts = {"next_event": read, "next_batch": read_batches}
            async with reader:
                yield Tried(acts.get(act, act_once), check)

    return world


GIVING = {
    AsyncStreamReader: ("next_event", "next_batch", "skip_to_head"),
    AsyncGroupReader: ("next_event", "next_batch", "commit", "rebalance", "leave", "skip_to_head", "close"),
}


# Connections


def connected(act: str) -> World:
    """A connection, of which one thing is asked."""

    @asynccontextmanager
    async def world() -> AsyncIterator[Tried]:
        async with accel.connect(MemoryStore(), node_id=4, create=True) as streams:
            await streams.create_scope("shop")
            await streams.create_stream("shop", "orders", segments=1)

            async def entered(opening: AbstractAsyncContextManager[object]) -> None:
                async with opening:
                    pass

            acts: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
                "create_scope": lambda: streams.create_scope("books"),
                "create_stream": lambda: streams.create_stream("shop", "orders", segments=1),
                "stream": lambda: streams.stream("shop", "orders"),
                "refresh": streams.refresh,
                "reader": lambda: entered(streams.reader("shop", "orders", settings=QUICK)),
                "writer": lambda: entered(streams.writer("shop", "orders")),
                "group_reader": lambda: entered(streams.group_reader("shop", "orders", "team", "one", follow=False)),
                "group": lambda: streams.group("shop", "orders", "team"),
                "close_given": streams.close_given,
            }
            given = await streams.group_reader("shop", "orders", "team", "one") if act == "close_given" else None

            async def check() -> None:
                if given is not None:
                    await streams.close_given()
                    with pytest.raises(Closed):
                        await given.next_event()
                    return
                await acts[act]()
                async with streams.writer("shop", "orders") as writer:
                    await (await writer.write(b"1", "key"))
                async with streams.reader("shop", "orders", settings=QUICK) as reader:
                    assert [event.payload async for event in reader] == [b"1"]

            yield Tried(acts[act], check)

    return world


CONNECTED = (
    "create_scope",
    "create_stream",
    "stream",
    "refresh",
    "reader",
    "writer",
    "group_reader",
    "group",
    "close_given",
)


@asynccontextmanager
async def whole_life() -> AsyncIterator[Tried]:
    """A process that connects, writes, reads in a group, and ends."""
    store = MemoryStore()
    acknowledged: list[bytes] = []
    sent: list[bytes] = []

    async def live() -> None:
        async with accel.connect(store, node_id=4, create=True) as streams:
            await streams.create_scope("shop")
            await streams.create_stream("shop", "orders", segments=1)
            async with streams.writer("shop", "orders") as writer:
                for at in range(2):
                    sent.append(b"%d" % at)
                    await (await writer.write(b"%d" % at, "key"))
                    acknowledged.append(b"%d" % at)
            async with streams.group_reader("shop", "orders", "team", "one", follow=False, settings=QUICK) as reader:
                await reader.next_event()

    async def check() -> None:
        async with accel.connect(store, node_id=4, create=True) as streams:
            await streams.create_scope("shop")
            await streams.create_stream("shop", "orders", segments=1)
            async with streams.writer("shop", "orders") as writer:
                await (await writer.write(b"last", "key"))
            async with streams.reader("shop", "orders", follow=False, settings=QUICK) as reader:
                found = [event.payload async for event in reader]
        assert len(found) == len(set(found))
        assert found[:-1] in (acknowledged, sent)
        assert found[-1] == b"last"

    yield Tried(live, check)


@pytest.fixture
def _little_to_collect() -> None:
    """What other tests left behind is not gone through at each cancellation."""
    gc.collect()
    gc.freeze()


WORLDS: dict[str, World] = {
    **{f"AsyncReadAccelerator.{act}": reading(act) for act in READING},
    **{f"AsyncStreamWriter.{act}": writing(act) for act in WRITING},
    **{f"{kind.__name__}.{act}": giving(kind, act) for kind, acts in GIVING.items() for act in acts},
    **{f"AsyncConnection.{act}": connected(act) for act in CONNECTED},
    "connection": whole_life,
}


def test_each_coroutine_of_a_public_class_is_cancelled() -> None:
    kinds = [each for name in accel.__all__ if inspect.isclass(each := getattr(accel, name)) and name[:5] == "Async"]
    coroutines = {
        f"{kind.__name__}.{name}"
        for kind in kinds
        for name, _ in inspect.getmembers(kind, inspect.iscoroutinefunction)
        if not name.startswith("_")
    }
    assert len(kinds) == len({name.partition(".")[0] for name in coroutines})
    assert coroutines - WORLDS.keys() == set()


@pytest.mark.usefixtures("_little_to_collect")
@pytest.mark.parametrize("is_ready", [False, True], ids=["waiting", "waking"])
@pytest.mark.parametrize("name", WORLDS)
def test_whichever_await_a_task_is_cancelled_at(name: str, *, is_ready: bool) -> None:
    number, cancelled = 1, 0
    while cut_at(WORLDS[name], number, is_ready=is_ready):
        cancelled += 1
        number = 3 * number - is_ready if IS_SAMPLED else number + 1
        assert number < AWAITS_MAX
    assert cancelled


def test_an_opening_that_fails_after_its_task_was_cancelled_is_made_again() -> None:
    begun, may_fail = Event(), Event()

    async def run() -> None:
        with shop(MemoryStore()) as orders:
            writer = AsyncStreamWriter(orders.stream, orders.host)
            really = writer._open

            def fail() -> NoReturn:
                begun.set()
                may_fail.wait()
                raise Closed("expected a host that is open, found it closed")

            writer._open = fail  # type: ignore[assignment]  # it opens nothing
            task = asyncio.ensure_future(writer.write(b"1", "key"))
            await asyncio.to_thread(begun.wait)
            opening = writer._opening
            assert opening is not None
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            may_fail.set()
            assert await asyncio.to_thread(opening.exception) is not None
            writer._open = really
            assert await (await writer.write(b"2", "key")) is not None
            await writer.close()

    asyncio.run(run())
