"""What is opened is whole or nothing: an opening that is interrupted or cancelled at any request leaves nothing behind.

Afterwards others listen at the same address and write the same segments at once, and no thread works on.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NoReturn, TypeVar

import pytest

import accel
from accel import CatalogSettings, Connection, ConnectionSettings, FormatRecord, ObjectCatalog
from accel.streams import connection
from accel.streams.owners import OwnersTable
from accel.system import SYSTEM, Components
from loaders.lifetime import start_thread
from loaders.store import MemoryStore, ObjectStore
from loaders.store.decorated import DecoratedStore, StoreCall
from tests.examples import swept
from tests.processes.test_owners import SECRET, free_port

Answer = TypeVar("Answer")

LIMIT_SECONDS = 60
"""No wait of these tests comes near it; it ends those that would hang."""


class Interrupted(KeyboardInterrupt):
    """What a signal handler raises."""


class Cut(DecoratedStore):
    """Does something before the request of this number, from 1 on; 0 = before none."""

    def __init__(self, store: ObjectStore, number: int, before: Callable[[], object]) -> None:
        super().__init__(store)
        self._number, self._before = number, before
        self._lock = threading.Lock()
        self.requests = 0

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        del call
        with self._lock:
            self.requests += 1
            is_cut = self.requests == self._number
        if is_cut:
            self._before()
        return send()


@dataclass
class Beside:
    """Starts threads, and knows which of them are at work."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    at_work: list[str] = field(default_factory=list)

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

    def check_nothing_left(self, *, is_ended: bool = True) -> None:
        """No thread works on, so no lease is renewed; those that had begun have ended, if so asked."""
        self.beside.wait()
        with ObjectCatalog.open(self.store) as catalog:
            leases = [owner.expires_ms for owner in OwnersTable(catalog).owners()]
        assert not is_ended or set(leases) == {0}


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


@pytest.mark.parametrize("number", REQUESTS)
def test_an_entering_that_is_cancelled_leaves_nothing_behind(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
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
        await asyncio.to_thread(made.use)  # while the request of the first one is under way
        may_go_on.set()

    with world() as made:
        asyncio.run(run(made))
        made.check_nothing_left(is_ended=False)


def test_a_cancelled_entering_has_ended_its_lease_when_the_task_ends() -> None:
    async def run(made: World) -> None:
        reached = threading.Event()

        def hold() -> None:
            reached.set()
            with made.beside.changed:
                assert made.beside.changed.wait_for(lambda: "accel-closing" in made.beside.at_work, LIMIT_SECONDS)

        entering = made.connect(Cut(made.store, entering_requests(), hold)).__aenter__()
        task = asyncio.create_task(entering)
        await asyncio.to_thread(reached.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        made.check_nothing_left()

    with world() as made:
        asyncio.run(run(made))
