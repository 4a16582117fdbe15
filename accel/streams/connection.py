"""A connection to the streams of a bucket: what they need is wired, opened when it is first used, and closed together.

    with accel.connect("s3://bucket", create=True) as streams:     async with accel.connect("s3://bucket") as streams:
        streams.create_scope("shop")                                   await streams.create_scope("shop")
        streams.create_stream("shop", "orders")                        await streams.create_stream("shop", "orders")
        with streams.reader("shop", "orders") as reader:               async with streams.reader("shop", "orders") as r:
            for event in reader:                                           async for event in r:
                ...                                                            ...

    | part             | is                                               | opened by                               |
    |------------------|--------------------------------------------------|-----------------------------------------|
    | `store`          | the store                                        | `connect`; sends nothing                |
    | `catalog`        | `ObjectCatalog`: which objects there are         | entering, or the first use; 1 request   |
    | `stream_store`   | `StreamStore`: scopes, streams, their histories  | likewise; none besides                  |
    | `accelerator`    | `ReadAccelerator`: finds and reads objects       | the first reader                        |
    | `host`           | `ObjectSegments`: the session of a node          | the first writer, or workflow           |
    | `registration`   | `Registration`: the node id and its lease        | likewise                                |
    | `segments`       | `SharedSegments`: `host`, and the other owners   | likewise                                |
    | `source(stream)` | `ObjectSegmentSource`: events of segments        | each reader has its own                 |

So a process that reads needs no right to write, no node id, and fences nobody.

**Several processes that write one stream** share its segments: each has some, and sends events of the others to their
owners, which listen for that:

    accel.connect("s3://bucket", listen="10.0.0.7:8080", owners=["http://10.0.0.8:8080"], secret=Path("secret"))

Source: docs/decisions/0039-segments-have-owners.md, docs/decisions/0044-one-call-connects.md.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from socket import AF_INET, AF_INET6, create_server, socket
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Self, TypedDict, TypeVar, Unpack
from uuid import UUID
from weakref import WeakSet

from accel.catalog import CatalogSettings, ObjectCatalog
from accel.errors import AccelError, CatalogMissing, Closed, InvalidArgument
from accel.history.rules.configuration import StreamConfiguration
from accel.history.rules.segments import Segments
from accel.history.rules.values import (
    Cut,
    IdMap,
    Integers,
)
from accel.history.store import HistorySettings, Stream, StreamStore
from accel.history.store.hosts import SegmentHost, StreamName
from accel.lookup.accelerator import ReadAccelerator
from accel.settings import Settings
from accel.streams.async_writer import AsyncStreamWriter
from accel.streams.auto_scale import AutoScaleStats
from accel.streams.forwarding import ForwardingServer, SegmentService, forwarding_app
from accel.streams.groups import AsyncGroupReader, GroupReader, ReaderGroup
from accel.streams.owners import (
    ForwardingClient,
    OwnersSettings,
    OwnersTable,
    Registration,
    SharedSegments,
    checked_address,
    checked_secret,
)
from accel.streams.reader import AsyncStreamReader, Order, StreamReader
from accel.streams.rules.reader_core import ReaderSettings
from accel.streams.segment_source import ObjectSegmentSource
from accel.streams.segments_host import ObjectSegments
from accel.streams.settings import ForwardingSettings, SegmentsSettings, StreamWriterSettings
from accel.streams.time_index import PartCache
from accel.streams.writer import StreamWriter
from accel.system import SYSTEM, Components
from loaders.counting import CacheStats
from loaders.lifetime import Lifetime
from loaders.shared_loads import SharedLoads
from loaders.store import ObjectStore, S3Settings, open_store
from loaders.tables import FormatRecord

if TYPE_CHECKING:
    from starlette.applications import Starlette

DEFAULT_NAMESPACE: Final = "accel"
"""In the keys of objects, where `create=True` makes a catalog."""

PARTS_MAX: Final = 16

Part = TypeVar("Part")
CutReaders = TypeVar("CutReaders", StreamReader, AsyncStreamReader)
Opened = TypeVar("Opened", bound=AbstractAsyncContextManager[Any])


class ReaderOptions(TypedDict, total=False):
    """What a reader may be told; see `StreamReader`."""

    from_cut: Cut | None
    to_cut: Cut | None
    follow: bool
    order: Order
    settings: ReaderSettings | None


class GroupReaderOptions(TypedDict, total=False):
    """What a reader of a group may be told; see `GroupReader`."""

    follow: bool
    settings: ReaderSettings | None
    rebalance_seconds: float
    lease_seconds: float | None
    auto_commit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """Choices of one connection, part by part. Threads: immutable.

    Args:
        catalog: of the catalog.
        segments: of the session that writes.
        history: of histories of streams.
        lookups: of the accelerator.
        owners: of the registration.
        forwarding: of what is sent to other owners, and taken for them.
    """

    owners: OwnersSettings = field(default_factory=OwnersSettings)
    forwarding: ForwardingSettings = field(default_factory=ForwardingSettings)
    catalog: CatalogSettings = field(default_factory=CatalogSettings)
    segments: SegmentsSettings = field(default_factory=SegmentsSettings)
    history: HistorySettings = field(default_factory=HistorySettings)
    lookups: Settings = field(default_factory=Settings)


def connect(  # noqa: PLR0913 - by name, each of its own kind
    url: str | ObjectStore,
    *,
    node_id: int | None = None,
    create: bool | FormatRecord = False,
    listen: str = "",
    address: str = "",
    owners: Collection[str] = (),
    secret: str | Path | None = None,
    s3: S3Settings | None = None,
    settings: ConnectionSettings | None = None,
    system: Components = SYSTEM,
) -> Connection:
    """Connect to the streams of a bucket. Sends nothing: ``with`` and ``async with`` do, or the first use.

    Args:
        url: ``s3://bucket/prefix``, ``file:///folder`` or ``memory://name``; or a store that is open already.
        node_id: of this process. Older sessions of the node are fenced, and their segments come with it.
            For processes that have a name of their own. None = one that nobody has is drawn when this first writes.
        create: whether to make a catalog where none is; or which. One that was made with other choices is refused
            then; with True any will do.
        listen: ``host:port`` where this process takes events of others for its segments, from `__enter__` on, or the
            first writer; port 0 = any that is free. Empty = it does not listen: `Connection.forwarding_app` may.
        address: where others reach that, as ``http://10.0.0.7:8080``; by default what `listen` says.
        owners: addresses of other processes that may be sent events, and the secret with them. Empty = none: events for
            their segments fail with `OwnerUnreachable`, which names the owner, until its lease is over.
        secret: that all of them share, at least 16 characters; or the file that has it. By default what the environment
            says: ``ACCEL_FORWARDING_SECRET``, or ``ACCEL_FORWARDING_SECRET_FILE``.
        s3: how to reach S3; by default as AWS's configuration chain says.
        settings: bounds of its parts.
        system: clock, sleep and chance.

    Returns:
        A connection: of threads if entered by ``with``, of asyncio if entered by ``async with``.

    Raises:
        ValueError: not such a URL.
        InvalidArgument: no secret, a shorter one, or an address that is none.
        OSError: the file of the secret cannot be read.
    """
    peers = Peers.of(listen, address, owners, secret, (settings or ConnectionSettings()).forwarding)
    store = open_store(url, s3) if isinstance(url, str) else url
    made = settings or ConnectionSettings()
    return Connection(store, node_id=node_id, create=create, peers=peers, settings=made, system=system)


SECRET_VARIABLE: Final = "ACCEL_FORWARDING_SECRET"  # noqa: S105 - a name
SECRET_FILE_VARIABLE: Final = "ACCEL_FORWARDING_SECRET_FILE"  # noqa: S105 - a name


@dataclass(frozen=True, slots=True)
class Peers:
    """How a process and the other owners reach each other. Threads: immutable.

    Args:
        listen: host and port; None = it does not listen.
        address: of this process; empty = what `listen` says.
        secret: that all share; empty = there is none.
        client: asks other owners; None = nobody is asked.
    """

    listen: tuple[str, int] | None = None
    address: str = ""
    secret: str = field(default="", repr=False)
    client: ForwardingClient | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls, listen: str, address: str, owners: Collection[str], secret: str | Path | None, settings: ForwardingSettings
    ) -> Peers:
        """Check what `connect` is told.

        Raises:
            As `connect`.
        """
        found = _secret_of(secret)
        if not found and (listen or address or owners):
            raise InvalidArgument(
                f"expected a secret for other owners: secret=..., {SECRET_VARIABLE}"
                f" or {SECRET_FILE_VARIABLE}, found none"
            )
        if found:
            checked_secret(found)
        host, _, port = listen.rpartition(":")
        if listen and not (host and port.isdecimal() and int(port) < 1 << 16):
            raise InvalidArgument(f"expected host:port to listen at, found {listen!r}")
        if host in ("0.0.0.0", "[::]", "::") and not address:  # noqa: S104 - that others cannot ask there is the point
            raise InvalidArgument(f"expected an address by which others reach {listen}: address=..., found none")
        if address:
            checked_address(address)
        client = ForwardingClient(owners, found, settings=settings) if owners else None
        return cls((host.strip("[]"), int(port)) if listen else None, address, found, client)


def _secret_of(given: str | Path | None) -> str:
    if isinstance(given, Path):
        return given.read_text().strip()
    if given is not None:
        return given
    path = os.environ.get(SECRET_FILE_VARIABLE)
    return os.environ.get(SECRET_VARIABLE) or (Path(path).read_text().strip() if path else "")


class Connection:
    """The streams of a bucket, for threads; `connect` makes it. ``async with`` gives an `AsyncConnection` to the same.

    Threads: any; a part that several ask for first is opened once, and no lock is held meanwhile. It is of the process
    that made it: elsewhere its calls raise WrongProcess; once it is closed, Closed.

    Args:
        store: where everything lies.
        node_id, create, settings, system: as of `connect`.
        peers: how it reaches other owners.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        node_id: int | None,
        create: bool | FormatRecord,
        peers: Peers,
        settings: ConnectionSettings,
        system: Components,
    ) -> None:
        self._peers = peers
        self._lifetime = Lifetime("a connection", system.process_id)
        self.store = store
        self.settings = settings
        self._wanted_node, self._create, self._system = node_id, create, system
        self._parts: SharedLoads[str, Any] = SharedLoads(PARTS_MAX, lambda _: 1)
        self._time_parts = PartCache()
        self._lock = Lock()  # guards what follows
        self._closing, self._stopping = ExitStack(), ExitStack()
        self._writers: WeakSet[StreamWriter] = WeakSet()
        self._readers: WeakSet[_Closed] = WeakSet()
        self._for_tasks = AsyncConnection(self)

    def __enter__(self) -> Self:
        _ = self.stream_store
        if self._peers.listen is not None:
            _ = self.segments
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.stop()

    async def __aenter__(self) -> AsyncConnection:
        await asyncio.to_thread(self.__enter__)
        return self._for_tasks

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._for_tasks.close_given(is_failed=kind is not None)
        finally:
            await asyncio.to_thread(self.__exit__, kind, error, trace)

    def __repr__(self) -> str:
        return f"Connection({self.store!r})"

    def close(self) -> None:
        """Close readers, flush and close writers, end the session. What fails does not keep the rest from being closed.

        Raises:
            AccelError: what `StreamWriter.close`, `GroupReader.close` and `ObjectSegments.close` raise: what was not
                durable by then is lost. Nothing if it is closed already.
        """
        readers, writers = self._end()
        with self._closing as closing:
            for opened in (*writers, *readers):
                closing.callback(opened.close)

    def stop(self) -> None:
        """Let go of threads, and make nothing durable: what was not flushed is lost, and the lease runs out."""
        readers, _ = self._end()
        for reader in readers:
            with suppress(AccelError):
                reader.close()
        self._stopping.close()

    # Parts

    @property
    def catalog(self) -> ObjectCatalog:
        """The catalog.

        Raises:
            CatalogMissing: none is there, and none is to be made.
            CommitRefused: another one is there than the one that is to be made.
        """
        return self._part("catalog", self._open_catalog, ObjectCatalog.close, ObjectCatalog.close)

    @property
    def stream_store(self) -> StreamStore:
        """Scopes and streams. Workflows of streams that it opens are carried out by `host`, which is opened then."""
        return self._part("stream store", self._open_streams)

    @property
    def accelerator(self) -> ReadAccelerator:
        """Finds and reads objects, by an image that follows the catalog."""
        close = ReadAccelerator.close
        return self._part("accelerator", self._open_accelerator, close, close)

    @property
    def registration(self) -> Registration:
        """The node id of this process, and its lease, which is renewed beside the callers."""
        return self._part("registration", self._register, Registration.end, Registration.stop)

    def cache_stats(self) -> dict[str, CacheStats]:
        """Caches beside those of lookups: records of tables, and parts of time indexes. Opens nothing."""
        caches = {"time_parts": self._time_parts.stats()}
        streams: StreamStore | None = self._parts.peek("stream store")
        return caches if streams is None else caches | {"tables": streams.cache_stats()}

    def scaling_stats(self) -> AutoScaleStats | None:
        """What this process has done for scaling policies; None while it holds no segments. Opens nothing."""
        host: ObjectSegments | None = self._parts.peek("host")
        return None if host is None else host.scaling.stats()

    @property
    def host(self) -> ObjectSegments:
        """The session that holds segments here. It fences older ones of its node id.

        Raises:
            AccelError: what `ObjectSegments` and `OwnersTable.register` raise.
        """
        return self._part("host", self._open_host, _close_host, ObjectSegments.stop)

    @property
    def segments(self) -> SharedSegments:
        """The segments of this process, `host`, and those of other owners. From now on it listens, if it was told to.

        Raises:
            As `host`; OSError: it cannot listen there.
            MissingExtra: it is to listen, and Starlette or uvicorn is not installed.
        """
        return self._part("segments", self._open_segments, SharedSegments.close, SharedSegments.close)

    def forwarding_app(self) -> Starlette:
        """An ASGI application by which this process takes events of others, for a server of the caller.

        It answers ``/accel/append`` and ``/accel/carry-out``; mount it at the root of `address`.

        Raises:
            InvalidArgument: there is no secret.
            AccelError: as `segments`.
        """
        streams = self._open_stream_store(self.host)
        token, settings = self.registration.owner.token, self.settings.forwarding
        return forwarding_app(SegmentService(self.host, token, streams, settings=settings), self._peers.secret)

    @property
    def node_id(self) -> int:
        """By which this process writes; one is drawn if none was given."""
        return self.registration.node_id if self._wanted_node is None else self._wanted_node

    def source(self, stream: Stream) -> ObjectSegmentSource:
        """Where a reader of a stream gets its events from; one for each reader, as it knows when that began."""
        return ObjectSegmentSource(stream, self.accelerator, self.store, cache=self._time_parts, system=self._system)

    # Streams

    def create_scope(self, scope: str) -> bool:
        """Make a scope; False if it was there. See `StreamStore.create_scope`."""
        return self.stream_store.create_scope(scope)

    def create_stream(
        self, scope: str, name: str, wanted: StreamConfiguration | None = None, *, segments: int | None = None
    ) -> Stream:
        """Create a stream; `Stream.is_new` tells whether it was not there. See `StreamStore.create_stream`."""
        return self.stream_store.create_stream(scope, name, wanted, segments=segments)

    def stream(self, scope: str, name: str) -> Stream:
        """Open a stream: for questions, and for workflows, which are carried out by `host`.

        Raises:
            NotInHistory: there is no such stream.
            StreamDeleted: it is being deleted.
        """
        return self.stream_store.stream(scope, name)

    def writer(
        self,
        scope: str,
        name: str,
        *,
        writer_id: UUID | None = None,
        settings: StreamWriterSettings | None = None,
    ) -> StreamWriter:
        """A writer of a stream; it is closed with the connection if not before.

        Events for segments that another process has go there, if `connect` was told how.

        Args:
            scope, name: of the stream.
            writer_id: of a producer that writes each event once, also after it was killed: see `StreamWriter.resume`.
            settings: bounds of the writer.

        Raises:
            AccelError: as `stream` and `host`.
        """
        segments = self.segments
        stream = self.stream_store.stream(scope, name, host=segments)
        writer = StreamWriter(stream, segments, settings=settings or StreamWriterSettings(), writer_id=writer_id)
        self._know(self._writers, writer)
        return writer

    def reader(self, scope: str, name: str, **options: Unpack[ReaderOptions]) -> StreamReader:
        """A reader of a stream, from cut to cut; see `StreamReader`. It is closed with the connection if not before.

        Args:
            scope, name: of the stream.
            options: `from_cut`, `to_cut`, `follow`, `order` and `settings`, as of `StreamReader`.

        Raises:
            As `stream`; InvalidArgument, NotInHistory: a cut that is none of this stream.
        """
        return self.open_reader(StreamReader, scope, name, **options)

    def open_reader(
        self, kind: type[CutReaders], scope: str, name: str, **options: Unpack[ReaderOptions]
    ) -> CutReaders:
        """A reader of this class; see `reader`."""
        stream = self.stream(scope, name)
        reader = kind(stream, self.source(stream), system=self._system, **options)
        self._know(self._readers, reader)
        return reader

    def group(self, scope: str, name: str, group: str, from_cut: Cut | None = None) -> ReaderGroup:
        """A group of readers of a stream, made if there is none; see `ReaderGroup.open`."""
        return ReaderGroup.open(self.stream(scope, name), group, from_cut)

    def group_reader(
        self, scope: str, name: str, group: str, reader: str, **options: Unpack[GroupReaderOptions]
    ) -> GroupReader:
        """A reader of a group, which is made if there is none; see `GroupReader`.

        Args:
            scope, name: of the stream.
            group: of which readers share the stream.
            reader: its name; no two of a group that are alive may have the same.
            options: `follow`, `settings`, `rebalance_seconds`, `lease_seconds` and `auto_commit`, as of `GroupReader`.

        Raises:
            AccelError: as `stream` and `ReaderGroup.open`.
        """
        stream = self.stream(scope, name)
        shared = ReaderGroup.open(stream, group)
        opened = GroupReader(stream, self.source(stream), shared, reader, system=self._system, **options)
        self._know(self._readers, opened)
        return opened

    # Inside

    def _open_catalog(self) -> ObjectCatalog:
        settings, system = self.settings.catalog, self._system
        if isinstance(self._create, FormatRecord):
            ObjectCatalog.init(self.store, self._create, settings=settings, system=system)
        try:
            return ObjectCatalog.open(self.store, settings=settings, system=system)
        except CatalogMissing:
            if not self._create:
                raise
        ObjectCatalog.init(self.store, FormatRecord(namespace=DEFAULT_NAMESPACE), settings=settings, system=system)
        return ObjectCatalog.open(self.store, settings=settings, system=system)

    def _open_streams(self) -> StreamStore:
        return self._open_stream_store(_HostWhenNeeded(self))

    def _open_stream_store(self, host: SegmentHost) -> StreamStore:
        tables, settings = self.catalog.parts.keys.tables, self.settings.history
        return StreamStore(tables, system=self._system, settings=settings, host=host, is_initialised=True)

    def _open_accelerator(self) -> ReadAccelerator:
        return ReadAccelerator(self.catalog.images(), self.store, settings=self.settings.lookups, system=self._system)

    def _register(self) -> Registration:
        address = self._peers.address
        if self._peers.listen is not None and not address:
            host, port = self._listening.getsockname()[:2]
            address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        registration = self._owners().register(self._wanted_node, address=address)
        registration.keep_alive()
        return registration

    def _owners(self) -> OwnersTable:
        return OwnersTable(self.catalog, settings=self.settings.owners)

    def _open_segments(self) -> SharedSegments:
        shared = SharedSegments(self.host, self._owners(), self._peers.client)
        if self._peers.listen is not None:
            self._part("server", self._serve, ForwardingServer.stop, ForwardingServer.stop)
        return shared

    @property
    def _listening(self) -> socket:
        """Bound before this process registers, as its address may name the port that was free."""
        where = self._peers.listen or ("127.0.0.1", 0)
        family = AF_INET6 if ":" in where[0] else AF_INET
        return self._part("listening", lambda: create_server(where, family=family), socket.close, socket.close)

    def _serve(self) -> ForwardingServer:
        return ForwardingServer(self.forwarding_app(), self._listening, self._system)

    def _open_host(self) -> ObjectSegments:
        node_id = self.registration.node_id
        return ObjectSegments(self.catalog, self.store, node_id, settings=self.settings.segments, system=self._system)

    def _part(
        self,
        name: str,
        opened: Callable[[], Part],
        close: Callable[[Part], object] = lambda _: None,
        stop: Callable[[Part], object] = lambda _: None,
    ) -> Part:
        """A part: opened by one thread, for which the others wait."""
        self._lifetime.check()
        part: Part = self._parts.get(name, lambda: self._kept(opened(), close, stop))
        return part

    def _kept(self, part: Part, close: Callable[[Part], object], stop: Callable[[Part], object]) -> Part:
        with self._lock:
            is_closed = self._lifetime.is_closed
            if not is_closed:  # what a part is made of was opened before it, and is closed after it
                self._closing.callback(partial(close, part))
                self._stopping.callback(partial(stop, part))
        if is_closed:
            stop(part)
            raise Closed("expected a connection that is open, found it closed meanwhile")
        return part

    def _know(self, kept: WeakSet[Any], opened: _Closed) -> None:
        with self._lock:
            is_closed = self._lifetime.is_closed
            if not is_closed:
                kept.add(opened)
        if is_closed:
            opened.close()
            raise Closed("expected a connection that is open, found it closed meanwhile")

    def _end(self) -> tuple[Sequence[_Closed], Sequence[StreamWriter]]:
        """Open nothing from now on; gives what is to be closed first."""
        self._lifetime.check_process()
        with self._lock:
            self._lifetime.close()
            given = list(self._readers), list(self._writers)
            self._readers.clear()
            self._writers.clear()
        return given


class _Closed(Protocol):
    """What can be closed."""

    def close(self) -> object:
        """Close it."""
        ...


def _close_host(host: ObjectSegments) -> None:
    try:
        host.close()
    except BaseException:
        host.stop()
        raise


class _HostWhenNeeded:
    """The host of streams that a connection opens: its segments, opened by the first order that needs them.

    Args:
        connection: has the session.

    Threads: any.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def create(self, stream: StreamName, segments: Segments, stream_ids: Mapping[int, int]) -> None:
        """Nothing to do: the node that first writes a segment opens it."""

    def seal(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:
        """See `SegmentHost.seal`."""
        return self._connection.segments.seal(stream, ids)

    def tails(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:
        """See `SegmentHost.tails`."""
        return self._connection.segments.tails(stream, ids)

    def truncate(self, stream: StreamName, cut: IdMap) -> None:
        """See `SegmentHost.truncate`."""
        self._connection.segments.truncate(stream, cut)

    def delete(self, stream: StreamName, ids: Integers) -> None:
        """See `SegmentHost.delete`."""
        self._connection.segments.delete(stream, ids)

    def merge(self, stream: StreamName, ids: Integers, transactions: Sequence[UUID]) -> None:
        """See `SegmentHost.merge`."""
        self._connection.segments.merge(stream, ids, transactions)

    def abort(self, stream: StreamName, transaction: UUID) -> None:
        """See `SegmentHost.abort`."""
        self._connection.segments.abort(stream, transaction)


# For asyncio


class AsyncConnection:
    """The streams of a bucket, for asyncio: ``async with accel.connect(...)`` gives it. Tasks: any.

    What asks the store is done in threads; readers and writers wait in the event loop. What it gave is closed with it:
    writers are flushed, readers leave their groups. After an error in the block writers are not flushed.

    Args:
        connection: the same for threads; its parts are reached there.

    Attributes:
        connection: likewise.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._given: WeakSet[AsyncStreamWriter | AsyncGroupReader] = WeakSet()

    async def close_given(self, *, is_failed: bool = False) -> None:
        """Close the writers and the readers of groups that it gave, side by side; the end of the block does.

        Args:
            is_failed: whether writers are left alone, so that nothing more is made durable, and errors passed over.

        Raises:
            AccelError: as `AsyncStreamWriter.close` and `AsyncGroupReader.close`; the first error, after all were
                closed.
        """
        closing = [each for each in self._given if not (is_failed and isinstance(each, AsyncStreamWriter))]
        self._given.clear()
        ends = await asyncio.gather(*(each.close() for each in closing), return_exceptions=True)
        failed = next((end for end in ends if isinstance(end, BaseException)), None)
        if failed is not None and not is_failed:
            raise failed

    def __repr__(self) -> str:
        return f"AsyncConnection({self.connection.store!r})"

    async def create_scope(self, scope: str) -> bool:
        """See `Connection.create_scope`."""
        return await asyncio.to_thread(self.connection.create_scope, scope)

    async def create_stream(
        self, scope: str, name: str, wanted: StreamConfiguration | None = None, *, segments: int | None = None
    ) -> Stream:
        """See `Connection.create_stream`."""
        return await asyncio.to_thread(self.connection.create_stream, scope, name, wanted, segments=segments)

    async def stream(self, scope: str, name: str) -> Stream:
        """See `Connection.stream`. Calls of a stream ask the store: make them by `asyncio.to_thread`."""
        return await asyncio.to_thread(self.connection.stream, scope, name)

    async def refresh(self) -> bool:
        """Have readers know of all that was committed before; whether that was news. See `ReadAccelerator.refresh`."""

        def refreshed() -> bool:
            return self.connection.accelerator.refresh()  # which may be opened here

        return await asyncio.to_thread(refreshed)

    def reader(self, scope: str, name: str, **options: Unpack[ReaderOptions]) -> Opening[AsyncStreamReader]:
        """A reader, by ``async with`` or ``await``; see `Connection.reader`."""
        return Opening(partial(self.connection.open_reader, AsyncStreamReader, scope, name, **options))

    def writer(
        self,
        scope: str,
        name: str,
        *,
        writer_id: UUID | None = None,
        settings: StreamWriterSettings | None = None,
    ) -> Opening[AsyncStreamWriter]:
        """A writer, by ``async with`` or ``await``; see `Connection.writer`."""
        connection = self.connection

        def opened() -> AsyncStreamWriter:
            segments = connection.segments
            stream = connection.stream_store.stream(scope, name, host=segments)
            return AsyncStreamWriter(stream, segments, settings=settings or StreamWriterSettings(), writer_id=writer_id)

        return Opening(opened, self._given.add)

    def group_reader(
        self, scope: str, name: str, group: str, reader: str, **options: Unpack[GroupReaderOptions]
    ) -> Opening[AsyncGroupReader]:
        """A reader of a group, by ``async with`` or ``await``; see `Connection.group_reader`."""
        connection = self.connection

        def opened() -> AsyncGroupReader:
            stream = connection.stream(scope, name)
            shared = ReaderGroup.open(stream, group)
            return AsyncGroupReader(stream, connection.source(stream), shared, reader, **options)

        return Opening(opened, self._given.add)

    async def group(self, scope: str, name: str, group: str, from_cut: Cut | None = None) -> ReaderGroup:
        """See `Connection.group`."""
        return await asyncio.to_thread(self.connection.group, scope, name, group, from_cut)


class Opening(Generic[Opened]):
    """Something that is opened in a thread: ``async with`` opens it, and closes it; ``await`` opens it. Once.

    Args:
        opened: opens it.
        keep: is told of it, in the event loop.
    """

    def __init__(self, opened: Callable[[], Opened], keep: Callable[[Opened], object] = lambda _: None) -> None:
        self._open = opened
        self._keep = keep
        self._opened: Opened | None = None

    def __await__(self) -> Generator[Any, None, Opened]:
        return self._in_thread().__await__()

    async def _in_thread(self) -> Opened:
        opened = await asyncio.to_thread(self._open)
        self._keep(opened)
        return opened

    async def __aenter__(self) -> Opened:
        self._opened = await self
        await self._opened.__aenter__()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if self._opened is None:
            return None
        return await self._opened.__aexit__(kind, error, trace)
