"""A stream that ends, or a part of it, while work for it comes: at each request of the ending, from another thread.

    row  = one object that ends, by one call, and one kind of work that comes meanwhile
    near = the process whose objects the row uses; far = the process of another node, which has all segments where the
           near one forwards its events

Each row is run with the objects for threads and with those for asyncio, plain and forwarded, by the same code: `InLoop`
calls a coroutine in an event loop, and waits for it in the caller's thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotDone
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from inspect import iscoroutine
from itertools import count
from typing import Any

from accel import CatalogSettings, Connection, ConnectionSettings, FormatRecord, ReaderSettings, connect
from accel.errors import AccelError, OperationNotAllowed
from accel.history.rules.transactions import TransactionStatus
from accel.history.store import StreamStore
from accel.streams.acknowledgements import WriteFuture
from accel.streams.settings import ForwardingSettings, StreamWriterSettings
from accel.streams.shared.forwarding import ForwardingClient, Peers, SegmentService
from accel.system import SYSTEM
from loaders.errors import StoreError
from loaders.store import MemoryStore
from loaders.store.decorated import WRITES, StoreCall
from tests.accel.streams.writer.network import SECRET, Network
from tests.accel.streams.writer.world import Watched

NAME = ("shop", "orders")
NEAR, FAR = 4, 5
LONG_SECONDS = 20.0
"""Longer than anything takes: what is not done by then hangs."""

BLINK_SECONDS = 0.01
"""For so long a request waits for the work that comes at it: work that needs the request's lock goes on after it."""

SHORT_SECONDS = 0.001

WORKS_MAX = 24
"""The work of one ending."""

QUICK = ReaderSettings(idle_seconds=0.005, reorder_wait_seconds=0.02)
WRITER = StreamWriterSettings(wait_seconds=10.0, pause_seconds=0.005)
FORWARDING = ForwardingSettings(wait_seconds=10.0)
SETTINGS = ConnectionSettings(catalog=CatalogSettings(parallel_requests=2), scaling=False, forwarding=FORWARDING)
FORMAT = FormatRecord(namespace="test", stream_buckets=2)


class InLoop:
    """An object for asyncio, whose coroutines are called from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, inner: Any) -> None:
        self.loop, self.inner = loop, inner

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def run(*given: Any, **options: Any) -> Any:
            answer = getattr(self.inner, name)(*given, **options)
            return await answer if iscoroutine(answer) else answer

        def call(*given: Any, **options: Any) -> Any:
            return asyncio.run_coroutine_threadsafe(run(*given, **options), self.loop).result(LONG_SECONDS)

        return call


@dataclass
class Promise:
    """An event that was accepted, or refused.

    Attributes:
        payload: the event.
        future: of the event; None if it was refused.
        error: why it was refused.
    """

    payload: bytes
    future: WriteFuture | None = None
    error: BaseException | None = None


@dataclass
class Bench:
    """One stream, a near process with a row's objects, a far one, and all that was promised; `at` is each request."""

    loop: asyncio.AbstractEventLoop | None
    is_forwarded: bool
    store: Watched = field(default_factory=lambda: Watched(MemoryStore()))
    at: Callable[[], object] = lambda: None
    is_away: Callable[[StoreCall], bool] = lambda _: False
    promises: list[Promise] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    ending_errors: list[BaseException] = field(default_factory=list)
    network: Network = field(default_factory=Network)
    numbers: Iterator[int] = field(default_factory=count)
    opened: list[Connection] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.network.before = lambda _: self.at()
        self.store.before = self._requested
        self.near = self.connect(NEAR, client=self.is_forwarded)
        self.near.create_scope(NAME[0])
        self.stream = self.near.create_stream(*NAME, segments=2)
        self.tasks = None if self.loop is None else InLoop(self.loop, self.near._for_tasks)  # as `async with` gives it
        self.far = self.connect(FAR)
        if self.is_forwarded:
            self.serve(self.far)
            self.far.host().open_segments(NAME, self.stream.active_segments().ids.tolist())
        else:
            self.near.host().open_segments(NAME, self.stream.active_segments().ids.tolist())

    # Processes

    def _requested(self, call: StoreCall) -> None:
        self.at()
        if call.operation in WRITES and self.is_away(call):
            raise StoreError(call.operation, call.key, "the store is away")

    def connect(self, node_id: int, *, client: bool = False) -> Connection:
        sends = ForwardingClient([f"http://node-{FAR}"], SECRET, settings=FORWARDING, send=self.network.send)
        peers = Peers(None, f"http://node-{node_id}", SECRET, sends if client else None)
        made = Connection(self.store, node_id=node_id, create=FORMAT, peers=peers, settings=SETTINGS, system=SYSTEM)
        self.opened.append(made)
        return made

    def serve(self, owner: Connection) -> None:
        """Let a process take events of others."""
        streams = StreamStore.open(self.store, host=owner.host())
        token = owner.registration().owner.token
        service = SegmentService(owner.host(), token, streams, settings=FORWARDING)
        self.network.services[owner.registration().owner.address] = service

    # Objects of the near process

    def made(self, kind: str, *given: Any, **options: Any) -> Any:
        """A writer or a reader, for threads or for asyncio."""
        if self.loop is None:
            return getattr(self.near, kind)(*given, **options)

        async def opened() -> Any:
            return await getattr(self.near._for_tasks, kind)(*given, **options)

        return InLoop(self.loop, asyncio.run_coroutine_threadsafe(opened(), self.loop).result(LONG_SECONDS))

    def writer(self) -> Any:
        return self.made("writer", *NAME, settings=WRITER)

    # Work

    def wrote(self, write: Callable[[bytes, bytes], Any]) -> None:
        """Write one event, of a key that changes, and keep what is promised."""
        number = next(self.numbers)
        promise = Promise(b"%d" % number)
        self.promises.append(promise)
        try:
            answer = write(promise.payload, b"key %d" % (number % 5))
        except AccelError as error:
            promise.error = error
        else:
            promise.future = answer[0] if isinstance(answer, list) else answer

    def tried(self, act: Callable[[], object], errors: list[BaseException] | None = None) -> None:
        """Do other work, and keep its error."""
        try:
            act()
        except AccelError as error:
            (self.errors if errors is None else errors).append(error)

    def run(self, end: Callable[[], object], work: Callable[[], object], *, first: int | None) -> None:
        """End something while work comes at each request; and once after it.

        Args:
            end: the ending.
            work: what comes.
            first: how many requests come before the first work; None = the work comes only after the ending.
        """
        requests = count()
        working: list[Future[object]] = []
        mine = threading.local()

        def worked() -> object:
            mine.works = True
            try:
                return work()
            finally:
                mine.works = False

        with ThreadPoolExecutor(WORKS_MAX) as pool, ThreadPoolExecutor(1) as ending:

            def at_request() -> None:
                is_due = first is not None and next(requests) >= first
                if is_due and len(working) < WORKS_MAX and not getattr(mine, "works", False):
                    done: Future[object] = pool.submit(worked)
                    working.append(done)
                    with suppress(NotDone):
                        done.result(BLINK_SECONDS)

            self.at = at_request
            ended = ending.submit(self.tried, end, self.ending_errors)
            try:
                ended.result(LONG_SECONDS)
            finally:
                self.at = lambda: None
            work()
            for each in working:
                each.result(LONG_SECONDS)

    # What is left

    def outcomes(self) -> dict[bytes, BaseException | None]:
        """What became of each event: None if it is durable. Fails if that of an event is not known."""
        return {each.payload: _outcome(each) for each in self.promises}

    def payloads(self) -> list[bytes]:
        """All events of the stream."""
        with connect(self.store, settings=SETTINGS) as other, other.reader(*NAME, settings=QUICK) as reader:
            return [event.payload for event in reader]

    def finish(self) -> None:
        """Let another process end what is left: as after the leases of transactions, when the next one looks."""
        with self.connect(FAR + 2) as other:
            stream = other.stream(*NAME)
            for _ in range(1000):
                try:
                    for transaction, known in stream.transactions.active().items():
                        if known.status is TransactionStatus.OPEN:
                            stream.transactions.abort(transaction)
                    stream.transactions.end_aborting()
                    stream.recover()
                    while not stream.commit().is_empty:
                        pass
                except OperationNotAllowed:
                    continue
                return

    def transaction_keys(self) -> list[str]:
        return [info.key for info in self.store.list("accel/transactions/")]

    def stop(self) -> None:
        """End everything that still runs."""
        for each in self.opened:
            each.stop()


def _outcome(promise: Promise) -> BaseException | None:
    return promise.error if promise.future is None else promise.future.exception(LONG_SECONDS)


@contextmanager
def bench(*, is_async: bool, is_forwarded: bool) -> Iterator[Bench]:
    """A bench, and the event loop of its objects."""
    loop = asyncio.new_event_loop() if is_async else None
    thread = None if loop is None else threading.Thread(target=loop.run_forever, name="loop")
    if thread is not None:
        thread.start()
    made = Bench(loop, is_forwarded)
    try:
        yield made
    finally:
        made.stop()
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(LONG_SECONDS)
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()


def durable(outcomes: dict[bytes, BaseException | None]) -> set[bytes]:
    """The events that were acknowledged."""
    return {payload for payload, error in outcomes.items() if error is None}


def kinds(errors: Sequence[BaseException | None]) -> set[type]:
    """The classes of errors."""
    return {type(error) for error in errors if error is not None}
