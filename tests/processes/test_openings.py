"""What is opened is whole or nothing: an opening that is interrupted or cancelled at any request leaves nothing behind.

Afterwards others listen at the same address and write the same segments at once, and no thread works on.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from queue import Queue
from socket import create_server
from typing import Any, NoReturn, TypeVar
from uuid import UUID

import pytest
from starlette.applications import Starlette

import accel
from accel import (
    AsyncConnection,
    AsyncReadAccelerator,
    AsyncStreamReader,
    CatalogSettings,
    Connection,
    ConnectionSettings,
    FormatRecord,
    ObjectCatalog,
    ReaderGroup,
    StreamWriter,
)
from accel.errors import Closed
from accel.history.rules.transactions import TransactionStatus
from accel.image_source import PolledImages
from accel.listening import Server, listening_config
from accel.lookup.engine import Engine
from accel.server import sidecar
from accel.streams import connection
from accel.streams.shared.owners import OwnersTable
from accel.system import SYSTEM, Components
from loaders.store import CountingStore, MemoryStore, ObjectStore
from loaders.store.decorated import DecoratedStore, StoreCall
from loaders.threads import start_thread
from tests.accel.lookup.cluster import line_image, line_store
from tests.accel.lookup.driving import Clock
from tests.accel.streams.reader.streams import QUICK
from tests.examples import swept
from tests.processes.test_owners import SECRET, free_port

Answer = TypeVar("Answer")

LIMIT_SECONDS = 60
"""No wait of these tests comes near it; it ends those that would hang."""


class Interrupted(KeyboardInterrupt):
    """What a signal handler raises."""


class Cut(DecoratedStore):
    """Does something before the request of this number, from 1 on; 0 = before none.

    Attributes:
        number: of the request.
        requests: how many there were.
    """

    def __init__(self, store: ObjectStore, number: int, before: Callable[[], object]) -> None:
        super().__init__(store)
        self.number, self._before = number, before
        self._lock = threading.Lock()
        self.requests = 0

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        del call
        with self._lock:
            self.requests += 1
            is_cut = self.requests == self.number
        if is_cut:
            self._before()
        return send()


@dataclass
class Beside:
    """Starts threads, and knows which of them are at work."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    at_work: list[str] = field(default_factory=list)
    started: set[str] = field(default_factory=set)

    def __call__(self, work: Callable[[], object], name: str) -> None:
        def counted() -> None:
            try:
                work()
            finally:
                with self.changed:
                    self.at_work.remove(name)
                    self.changed.notify_all()

        with self.changed:
            self.at_work.append(name)
            self.started.add(name)
            self.changed.notify_all()
        start_thread(counted, name)

    def system(self) -> Components:
        """The real world, with these threads."""
        return replace(SYSTEM, start=self)

    def wait(self) -> None:
        """Wait until none is at work."""
        with self.changed:
            assert self.changed.wait_for(lambda: not self.at_work, LIMIT_SECONDS), self.at_work


@dataclass
class World:
    """A stream, and the port at which its owner listens."""

    store: MemoryStore = field(default_factory=MemoryStore)
    port: int = field(default_factory=free_port)
    beside: Beside = field(default_factory=Beside)

    def connect(self, store: ObjectStore | None = None) -> Connection:
        """A connection that listens; not entered."""
        return accel.connect(
            self.store if store is None else store,
            create=FormatRecord(namespace="openings", stream_buckets=1),
            listen=f"127.0.0.1:{self.port}",
            secret=SECRET,
            settings=ConnectionSettings(catalog=CatalogSettings(parallel_requests=2)),
            system=self.beside.system(),
        )

    def use(self) -> None:
        """Another connection listens at the same address at once, and writes."""
        with self.connect() as streams:
            streams.create_scope("shop")
            streams.create_stream("shop", "orders", segments=1)
            with streams.writer("shop", "orders") as writer:
                writer.write(b"1", "key").result(LIMIT_SECONDS)

    def check_nothing_left(self) -> None:
        """No thread works on, and no lease is left."""
        self.beside.wait()
        with ObjectCatalog.open(self.store) as catalog:
            leases = [owner.expires_ms for owner in OwnersTable(catalog).owners()]
        assert set(leases) == {0}


@contextmanager
def world() -> Iterator[World]:
    """A world with a catalog, so that each opening has the same requests."""
    made = World()
    made.use()
    yield made


def entering_requests() -> int:
    """How many requests entering a connection that listens has."""
    with world() as made:
        counted = Cut(made.store, 0, lambda: None)
        with made.connect(counted):
            return counted.requests


REQUESTS = swept(range(1, entering_requests() + 1))


@pytest.mark.parametrize("number", REQUESTS)
def test_an_entering_that_is_interrupted_leaves_nothing_behind(number: int) -> None:
    def interrupt() -> NoReturn:
        raise Interrupted

    with world() as made:
        with pytest.raises(Interrupted), made.connect(Cut(made.store, number, interrupt)):
            pytest.fail("it was entered")
        made.use()
        made.check_nothing_left()


def test_a_server_that_ends_as_soon_as_it_has_begun_gives_its_address_back() -> None:
    async def run() -> None:
        with create_server(("127.0.0.1", 0)) as listening:
            address = listening.getsockname()
            server = Server(listening_config(Starlette(), 16, lifespan="off"))
            server.config.load()
            server.lifespan = server.config.lifespan_class(server.config)
            await server.startup([listening])
            await server.shutdown([listening])
        create_server(address).close()

    asyncio.run(run())


@pytest.mark.parametrize("used", [False, True], ids=["alone", "another takes over"])
@pytest.mark.parametrize("number", REQUESTS)
def test_an_entering_that_is_cancelled_leaves_nothing_behind(
    number: int, monkeypatch: pytest.MonkeyPatch, *, used: bool
) -> None:
    monkeypatch.setattr(connection, "ABANDONING_SECONDS", 0.1)
    reached, may_go_on = threading.Event(), threading.Event()

    def hold() -> None:
        reached.set()
        assert may_go_on.wait(LIMIT_SECONDS)

    async def run(made: World) -> None:
        async def enter() -> None:
            async with made.connect(Cut(made.store, number, hold)):
                pytest.fail("it was entered")

        task = asyncio.create_task(enter())
        await asyncio.to_thread(reached.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        if used:
            await asyncio.to_thread(made.use)  # while the request of the first one is under way
        may_go_on.set()

    with world() as made:
        asyncio.run(run(made))
        made.check_nothing_left()


def test_a_cancelled_entering_has_ended_its_lease_when_the_task_ends() -> None:
    async def run(made: World) -> None:
        reached = threading.Event()

        def hold() -> None:
            reached.set()
            with made.beside.changed:
                assert made.beside.changed.wait_for(lambda: "accel-closing" in made.beside.started, LIMIT_SECONDS)

        entering = made.connect(Cut(made.store, entering_requests(), hold)).__aenter__()
        task = asyncio.create_task(entering)
        await asyncio.to_thread(reached.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        made.check_nothing_left()

    with world() as made:
        asyncio.run(run(made))


# Parts


class Holding(Cut):
    """Holds a request until it may go on: the next one after `hold`."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store, 0, self._wait)
        self._reached, self.may_go_on = threading.Event(), threading.Event()

    def hold(self) -> None:
        """Hold the next request."""
        self.number = self.requests + 1

    async def reached(self) -> None:
        """Wait until the request is held."""
        assert await asyncio.to_thread(self._reached.wait, LIMIT_SECONDS)

    def _wait(self) -> None:
        self._reached.set()
        assert self.may_go_on.wait(LIMIT_SECONDS)


@contextmanager
def held() -> Iterator[tuple[Holding, AsyncConnection]]:
    """A store that may be held, and a connection over it, to a stream."""
    store = Holding(MemoryStore())
    with accel.connect(store, create=True) as streams:
        streams.create_scope("shop")
        streams.create_stream("shop", "orders", segments=1)
        with streams.writer("shop", "orders") as writer:
            writer.write_many([(b"%d" % number, "key") for number in range(3)])
            writer.flush()
            writer.write(b"3", "key")
        yield store, AsyncConnection(streams)


async def cancelled(store: Holding, work: Coroutine[Any, Any, object]) -> None:
    """Cancel this while its first request is under way."""
    store.hold()
    task = asyncio.create_task(work)
    await store.reached()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_transaction_whose_beginning_was_cancelled_is_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    aborted: Queue[UUID] = Queue()
    abort = StreamWriter.abort_transaction

    def abort_and_tell(writer: StreamWriter, transaction: UUID) -> None:
        abort(writer, transaction)
        aborted.put(transaction)

    monkeypatch.setattr(StreamWriter, "abort_transaction", abort_and_tell)

    async def run(store: Holding, streams: AsyncConnection) -> None:
        async with streams.writer("shop", "orders") as writer:
            await cancelled(store, writer.begin_transaction())
            store.may_go_on.set()
            transaction = await asyncio.to_thread(aborted.get, timeout=LIMIT_SECONDS)
            transactions = (await streams.stream("shop", "orders")).transactions
            assert await asyncio.to_thread(transactions.status, transaction) is TransactionStatus.ABORTED

    with held() as (store, streams):
        asyncio.run(run(store, streams))


@pytest.mark.parametrize("kind", [AsyncStreamReader, StreamWriter])
def test_what_was_opened_for_a_cancelled_task_is_closed(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: Queue[object] = Queue()
    close = kind.close

    def close_and_tell(this: Any) -> None:
        close(this)
        closed.put(this)

    async def run(store: Holding, streams: AsyncConnection) -> None:
        writer = await streams.writer("shop", "orders")
        reader = streams.reader("shop", "orders", follow=True)
        await cancelled(store, (writer if kind is StreamWriter else reader).__aenter__())
        store.may_go_on.set()
        assert isinstance(await asyncio.to_thread(closed.get, timeout=LIMIT_SECONDS), kind)

    with held() as (store, streams):
        monkeypatch.setattr(kind, "close", close_and_tell)
        asyncio.run(run(store, streams))


def test_a_reader_that_is_closed_by_a_cancelled_task_leaves_its_group_once_it_has_joined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left: Queue[str] = Queue()
    leave = ReaderGroup.leave

    def leave_and_tell(group: ReaderGroup, name: str, *args: Any, **options: Any) -> None:
        leave(group, name, *args, **options)
        left.put(name)

    monkeypatch.setattr(ReaderGroup, "leave", leave_and_tell)

    async def run(store: Holding, streams: AsyncConnection) -> None:
        group = await streams.group("shop", "orders", "team")
        reader = await streams.group_reader("shop", "orders", "team", "one", follow=False)
        await cancelled(store, reader.next_event())  # while it joins
        closing = asyncio.create_task(reader.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        store.may_go_on.set()
        assert await asyncio.to_thread(left.get, timeout=LIMIT_SECONDS) == "one"
        assert (await asyncio.to_thread(group.state)).readers == ()

    with held() as (store, streams):
        asyncio.run(run(store, streams))


def test_a_connection_whose_end_is_cancelled_at_once_leaves_its_groups() -> None:
    async def run(streams: AsyncConnection) -> None:
        group = await streams.group("shop", "orders", "team")
        reader = await streams.group_reader("shop", "orders", "team", "one")
        await reader.rebalance()
        assert len((await asyncio.to_thread(group.state)).readers) == 1
        closing = asyncio.create_task(streams.close_given())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert (await asyncio.to_thread(group.state)).readers == ()

    with held() as (_, streams):
        asyncio.run(run(streams))


async def cancelled_while_threads_are_busy(work: Coroutine[Any, Any, object]) -> None:
    """Cancel this, often, while the only thread of the loop's pool has other work."""
    loop, may_go_on = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(1))
    loop.run_in_executor(None, may_go_on.wait, LIMIT_SECONDS)
    task = asyncio.create_task(work)
    while not task.done():
        await asyncio.sleep(0)
        task.cancel()
    may_go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_connection_whose_end_is_cancelled_before_its_thread_begins_is_closed() -> None:
    async def run(made: World) -> None:
        opened = made.connect()
        await opened.__aenter__()
        await cancelled_while_threads_are_busy(opened.__aexit__(None, None, None))

    with world() as made:
        asyncio.run(run(made))
        made.check_nothing_left()


def test_an_accelerator_whose_end_is_cancelled_before_its_thread_begins_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        one = AsyncReadAccelerator(
            PolledImages(lambda: line_image([0]), timer=Clock(), sleep=lambda _: None), line_store(1)
        )
        await cancelled_while_threads_are_busy(one.close())

    closed: list[Engine] = []
    close = Engine.close

    def close_and_tell(engine: Engine) -> None:
        close(engine)
        closed.append(engine)

    monkeypatch.setattr(Engine, "close", close_and_tell)
    asyncio.run(run())  # ends when the pool has done its work
    assert len(closed) == 1


def test_a_reader_gives_no_event_while_it_skips_for_a_cancelled_task() -> None:
    async def run(store: Holding, streams: AsyncConnection) -> None:
        async with streams.reader("shop", "orders", follow=True, settings=QUICK) as reader:
            first = await reader.next_event()
            assert first is not None
            stream = await streams.stream("shop", "orders")
            await asyncio.to_thread(stream.truncate, {first.segment_id: 3})
            await cancelled(store, reader.skip_to_head())
            asking = asyncio.create_task(anext(reader))
            await asyncio.sleep(0)
            assert not asking.done()  # the reader has the next event at hand, but it is before the head
            store.may_go_on.set()
            assert (await asking).offset == 3

    with held() as (store, streams):
        asyncio.run(run(store, streams))


def test_a_sidecar_that_ends_while_it_opens_leaves_no_accelerator_open(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[AsyncReadAccelerator] = []

    class Noted(AsyncReadAccelerator):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            made.append(self)

    monkeypatch.setattr(sidecar, "AsyncReadAccelerator", Noted)

    async def run(store: Holding) -> None:
        one = sidecar.Sidecar(CountingStore(store))
        store.hold()
        await one.open()
        await store.reached()
        closing = asyncio.create_task(one.close())
        await asyncio.sleep(0)
        store.may_go_on.set()
        await closing
        with pytest.raises(Closed):
            await made[0].get_objects(1, 0)

    with held() as (store, _):
        asyncio.run(run(store))
