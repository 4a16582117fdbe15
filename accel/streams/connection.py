"""A connection to the streams of a bucket: makes their parts, opens each on first use, and closes all together.

    with accel.connect("s3://bucket", create=True) as streams:     async with accel.connect("s3://bucket") as streams:
        streams.create_scope("shop")                                   await streams.create_scope("shop")
        streams.create_stream("shop", "orders")                        await streams.create_stream("shop", "orders")
        with streams.reader("shop", "orders") as reader:               async with streams.reader("shop", "orders") as r:
            for event in reader:                                           async for event in r:
                ...                                                            ...

    | part             | is                                               | opened by                               |
    |------------------|--------------------------------------------------|-----------------------------------------|
    | `store`          | the store                                        | `connect`; sends nothing                |
    | `catalog`        | `ObjectCatalog`: which objects there are         | entering, or the first use; 2 requests  |
    | `stream_store`   | `StreamStore`: scopes, streams, their histories  | as `catalog`; no further request        |
    | `accelerator`    | `ReadAccelerator`: finds and reads objects       | the first reader                        |
    | `host()`         | `ObjectSegments`: the session of a node          | the first writer, or workflow           |
    | `registration()` | `Registration`: the node id and its lease        | as `host`                               |
    | `segments()`     | `SharedSegments`: `host`, and the other owners   | as `host`                               |
    | (`maintain`)     | `Maintainer`: compacts, builds hints, collects   | with `catalog`, if `connect` says so    |
    | `source(stream)` | `ObjectSegmentSource`: events of segments        | each reader has its own                 |

So a process that only reads needs no permission to write and no node id, and fences no session.

**Several processes that write one stream** share its segments: each process has some, and sends events of the other
segments to their owners, which listen for these events:

    accel.connect("s3://bucket", listen="10.0.0.7:8080", owners=["http://10.0.0.8:8080"], secret=Path("secret"))

Source: docs/decisions/0015-owners-and-scaling.md.
"""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from socket import AF_INET, AF_INET6, create_server, socket
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypedDict, TypeVar, Unpack
from uuid import UUID
from weakref import WeakSet, finalize

from accel.catalog import ObjectCatalog
from accel.errors import AccelError, CatalogMissing, Closed, InvalidArgument
from accel.history.rules.configuration import StreamConfiguration
from accel.history.rules.values import Cut, Integers, checked_arguments
from accel.history.store import Stream, StreamStore
from accel.history.store.segment_host import HostWhenNeeded, SegmentHost, StreamName
from accel.lookup.accelerator import ReadAccelerator
from accel.streams.aio import AsyncGroupReader, AsyncStreamReader, AsyncStreamWriter, Opening
from accel.streams.group_readers import GroupReader, GroupReaderCounts, GroupReaderStats
from accel.streams.groups import ReaderGroup
from accel.streams.reader import Order, StreamReader
from accel.streams.rules.settings import ReaderSettings
from accel.streams.segment_directory import segment_tails
from accel.streams.segment_source import ObjectSegmentSource
from accel.streams.segments_host import ObjectSegments
from accel.streams.settings import ConnectionSettings, StreamWriterSettings
from accel.streams.shared.auto_scale import AutoScaler, AutoScaleStats
from accel.streams.shared.forwarding import ForwardingServer, Peers, SegmentService, forwarding_app
from accel.streams.shared.owners import OwnersTable, Registration
from accel.streams.shared.segments import SharedSegments
from accel.streams.time_index import part_cache
from accel.streams.writer import StreamWriter
from accel.system import SYSTEM, Components, measured, of_store, skew_seconds
from loaders.awaiting import ended, in_thread, opened, outcome
from loaders.counting import CacheStats
from loaders.lifetime import Closing, Lifetime, unpickled
from loaders.settings import taker
from loaders.shared_loads import SharedLoads
from loaders.store import CountingStore, ObjectStore, StoreSettings, open_store
from loaders.tables import FormatRecord
from loaders.threads import settle

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from accel.maintenance import Maintainer, MaintenanceSettings

logger = logging.getLogger(__name__)

DEFAULT_NAMESPACE: Final = "accel"
"""The namespace of a catalog that `create=True` makes; it is part of the keys of objects."""

PARTS_MAX: Final = 16

ABANDONING_SECONDS: Final = 1.0
"""How long a cancelled task that enters a connection waits until it is closed; a thread closes it in any case."""

_MISSED: Final = {"listening", "maintenance", "registration", "host", "server"}
"""The parts that others wait for, when a connection was dropped without `close`."""

_ENDS: Final = (SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError)
"""What ends a block without an error: its writers are flushed. After any other exception they are not."""

Part = TypeVar("Part")
Given = TypeVar("Given", AsyncStreamWriter, AsyncGroupReader)
CutReaders = TypeVar("CutReaders", StreamReader, AsyncStreamReader)
GroupReaders = TypeVar("GroupReaders", GroupReader, AsyncGroupReader)


class ReaderOptions(TypedDict, total=False):
    """The options of a reader; see `StreamReader`."""

    from_cut: Cut | None
    to_cut: Cut | None
    follow: bool
    order: Order
    settings: ReaderSettings | None


class GroupReaderOptions(TypedDict, total=False):
    """The options of a reader of a group; see `GroupReader`."""

    follow: bool
    settings: ReaderSettings | None
    rebalance_seconds: float
    lease_seconds: float | None
    auto_commit: bool


@checked_arguments
def connect(  # noqa: PLR0913 - keyword arguments of different kinds
    url: str | ObjectStore,
    *,
    node_id: int | None = None,
    create: bool | FormatRecord = False,
    listen: str = "",
    address: str = "",
    owners: Collection[str] = (),
    secret: str | Path | None = None,
    s3: StoreSettings | None = None,
    maintain: bool | MaintenanceSettings = False,
    settings: ConnectionSettings | None = None,
    system: Components = SYSTEM,
) -> Connection:
    """Connect to the streams of a bucket. Sends no request: ``with``, ``async with`` or the first use does.

    Args:
        url: ``s3://bucket/prefix``, ``file:///folder`` or ``memory://name``; or an open store.
        node_id: the node id of this process, for processes with a fixed name. Older sessions of the node are fenced,
            and this process takes over their segments. None = at the first write an unused node id is chosen.
        create: whether to make a catalog if there is none; or its `FormatRecord`: then a catalog that was made with
            another record is refused; with True any catalog is accepted.
        listen: ``host:port`` at which this process takes events of others for its segments, from `__enter__` or the
            first writer on; port 0 = any free port. Empty = it does not listen; see `Connection.forwarding_app`.
        address: the URL of this listener for other processes, as ``http://10.0.0.7:8080``; by default made of `listen`.
        owners: addresses of the processes to which events, and with them the secret, may be sent. Empty = none: events
            for segments of others fail with `OwnerUnreachable`, which names the owner, until its lease expires.
        secret: the secret that all processes share, at least 16 characters; or the path of its file. By default the
            value of ``ACCEL_FORWARDING_SECRET``, or the file of ``ACCEL_FORWARDING_SECRET_FILE``.
        s3: how to reach S3; by default AWS's configuration chain.
        maintain: whether a thread compacts, builds hints and collects garbage when it is due, from `__enter__` or the
            first use on (`accel.maintenance`); or its budget and limits. It needs permission to write and to delete.
        settings: settings of its parts.
        system: clock, sleep and chance.

    Returns:
        A connection: for threads if entered by ``with``, for asyncio if entered by ``async with``.

    Raises:
        ValueError: an invalid URL.
        InvalidArgument: no secret, a secret that is too short, or an invalid address.
        OSError: the file of the secret cannot be read.
    """
    peers = Peers.of(listen, address, owners, secret, (settings or ConnectionSettings()).forwarding)
    store = open_store(url, s3) if isinstance(url, str) else url
    if not hasattr(store, "get_tail"):
        raise InvalidArgument(f"expected a URL or a store as url, found {type(url).__name__}")
    made = settings or ConnectionSettings()
    maintenance = _maintenance_of(maintain)
    if maintenance is not None and not isinstance(store, CountingStore):
        store = CountingStore(store, system.timer)  # so that its maintenance sees the requests of others, and yields
    return Connection(
        store, node_id=node_id, create=create, peers=peers, maintenance=maintenance, settings=made, system=system
    )


@checked_arguments
class Connection(Closing):
    """The streams of a bucket, for threads; `connect` makes it. ``async with`` returns an `AsyncConnection` to them.

    Threads: any; a part that several threads request is opened once, and no lock is held meanwhile. The connection
    belongs to the process that made it: elsewhere its calls raise WrongProcess; after `close` they raise Closed.

    If entering fails, or is interrupted or cancelled, the connection is closed, and others may listen at its address.

    Args:
        store: the store of all data.
        node_id, create, settings, system: as for `connect`.
        peers: how it reaches other owners.
        maintenance: budget and limits of maintenance; None = it maintains nothing.
    """

    __reduce__ = unpickled("a connection")

    def __init__(
        self,
        store: ObjectStore,
        *,
        node_id: int | None,
        create: bool | FormatRecord,
        peers: Peers,
        settings: ConnectionSettings,
        system: Components,
        maintenance: MaintenanceSettings | None = None,
    ) -> None:
        self._peers = peers
        self._maintenance = maintenance
        self._lifetime = Lifetime("a connection", system.process_id)
        self.store = store
        self.settings = settings
        taken = create if isinstance(create, FormatRecord) else taker("create", "bool", InvalidArgument)(create)
        self._wanted_node, self._create, self._system = node_id, taken, of_store(store, system)
        self._parts: SharedLoads[str, Any] = SharedLoads(PARTS_MAX, lambda _: 1)
        self._time_parts = part_cache()
        self._group_counts = GroupReaderCounts()
        self._lock = Lock()  # guards the attributes below
        self._closing, self._stopping = ExitStack(), ExitStack()
        self._is_abandoned = False
        self._scaler: AutoScaler | None = None
        self._left: list[Callable[[], object]] = []
        finalize(self, _dropped, self._lifetime, self._left, self._system, repr(self)).atexit = False
        self._writers: WeakSet[StreamWriter] = WeakSet()
        self._readers: WeakSet[_Closed] = WeakSet()
        self._for_tasks = AsyncConnection(self)

    def __enter__(self) -> Self:
        try:
            self._enter()
        except BaseException:
            self._abandon()
            raise
        return self

    def _end_block(self, error: BaseException | None) -> None:
        if error is None or isinstance(error, _ENDS):
            self.close()
        else:
            self.stop()

    async def __aenter__(self) -> AsyncConnection:
        entering = in_thread(self._enter)
        try:
            await outcome(entering)
        except BaseException as error:  # the thread that enters may continue: it finds the connection closed
            abandoned: Future[None] = Future()
            self._system.start(partial(settle, abandoned, self._abandon), "accel-closing")
            if not isinstance(error, GeneratorExit):  # then no loop runs this any more
                await ended([abandoned], ABANDONING_SECONDS)
            raise
        return self._for_tasks

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._for_tasks.close_given(is_failed=not (kind is None or issubclass(kind, _ENDS)))
        finally:
            await outcome(in_thread(partial(self.__exit__, kind, error, trace)))  # begins, also if this is cancelled

    def __repr__(self) -> str:
        return f"Connection({self.store!r})"

    def close(self) -> None:
        """Close readers, flush and close writers, end the session. After an error the other parts are still closed.

        Does nothing if the connection is closed.

        Raises:
            AccelError: the errors of `StreamWriter.close`, `GroupReader.close` and `ObjectSegments.close`: data that is
                not durable by then is lost.
        """
        readers, writers = self._end()
        with self._closing as closing:
            for opened in (*writers, *readers):
                closing.callback(opened.close)

    def stop(self) -> None:
        """End all threads without flushing: events that are not durable are lost, and the lease expires."""
        readers, _ = self._end()
        for reader in readers:
            with suppress(AccelError):
                reader.close()
        self._stopping.close()

    # Parts

    @property
    def catalog(self) -> ObjectCatalog:
        """The catalog. To look at this and the other properties sends requests for reading, and writes nothing.

        Raises:
            CatalogMissing: there is no catalog; entering the connection, or a call of it, makes one if `create` is set.
            Closed: the connection is closed.
        """
        try:
            return self._opened_catalog(self._find_catalog)
        except CatalogMissing as error:
            raise _NotMade(str(error)) from None

    @property
    def stream_store(self) -> StreamStore:
        """Scopes and streams; errors as `catalog`. Workflows of its streams open `host`."""
        _ = self.catalog
        return self._streams()

    @property
    def accelerator(self) -> ReadAccelerator:
        """Finds and reads objects, by an image that follows the catalog; errors as `catalog`."""
        close = ReadAccelerator.close
        return self._part("accelerator", self._open_accelerator, close, close)

    def registration(self) -> Registration:
        """The node id of this process, and its lease, which a thread renews."""
        return self._part("registration", self._register, Registration.end, self._stop_registration)

    def cache_stats(self) -> dict[str, CacheStats]:
        """Return statistics of the caches of table records and of time index parts. Opens nothing."""
        caches = {"time_parts": self._time_parts.cache_stats()}
        streams: StreamStore | None = self._parts.peek("stream store")
        return caches if streams is None else caches | {"tables": streams.cache_stats()}

    def clock_skew_seconds(self) -> float:
        """Return how far the host's clock was ahead of the store's when the store was last asked (`accel.system`).

        Below 0 = behind; 0 = within a second, or not asked yet. No request.
        """
        return skew_seconds(self._system)

    def scaling_stats(self) -> AutoScaleStats | None:
        """Return what this process has done for scaling policies; None while `host` is not open. Opens nothing."""
        return None if self._scaler is None else self._scaler.stats()

    def group_stats(self) -> GroupReaderStats:
        """Return what the readers of groups of this connection did: replacements, and their lag. Opens nothing."""
        return self._group_counts.stats()

    def host(self) -> ObjectSegments:
        """The session that has the segments of this process open. It fences older sessions of its node id.

        Raises:
            AccelError: the errors of `ObjectSegments` and `OwnersTable.register`.
        """
        return self._part("host", self._open_host, _close_host, ObjectSegments.stop)

    def segments(self) -> SharedSegments:
        """The segments of this process, `host`, and those of other owners. Starts the listener, if `listen` was set.

        Raises:
            As `host`; OSError: it cannot listen at this address.
            MissingExtra: `listen` was set, and Starlette or uvicorn is not installed.
        """
        return self._part("segments", self._open_segments, SharedSegments.close, SharedSegments.close)

    def tails(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:
        """Return the ends of the durable data of segments, by id; 0 for segments without data. Opens no session."""
        segments: SharedSegments | None = self._parts.peek("segments")
        if segments is not None:
            return segments.tails(stream, ids)
        return segment_tails(self.catalog, self.stream(*stream), ids)

    def forwarding_app(self) -> Starlette:
        """Return an ASGI application that takes events of other processes, for a server of the caller.

        It answers ``/accel/append`` and ``/accel/carry-out``; mount it at the root of `address`.

        Raises:
            InvalidArgument: there is no secret.
            AccelError: as `segments`.
        """
        streams = self._open_stream_store(self.host())
        token, settings = self.registration().owner.token, self.settings.forwarding
        return forwarding_app(SegmentService(self.host(), token, streams, settings=settings), self._peers.secret)

    def node_id(self) -> int:
        """The node id with which this process writes; if none was passed, one is chosen."""
        return self.registration().node_id if self._wanted_node is None else self._wanted_node

    def source(self, stream: Stream) -> ObjectSegmentSource:
        """Return a source of a stream's events, for one reader, because it contains the reader's start time."""
        return ObjectSegmentSource(stream, self.accelerator, self.store, cache=self._time_parts, system=self._system)

    # Streams

    def create_scope(self, scope: str) -> bool:
        """Create a scope; returns False if it exists. See `StreamStore.create_scope`."""
        return self._streams().create_scope(scope)

    def create_stream(
        self, scope: str, name: str, wanted: StreamConfiguration | None = None, *, segments: int | None = None
    ) -> Stream:
        """Create a stream; `Stream.is_new` is False if it existed. See `StreamStore.create_stream`."""
        return self._streams().create_stream(scope, name, wanted, segments=segments)

    def stream(self, scope: str, name: str) -> Stream:
        """Open a stream: for queries, and for workflows, which `host` carries out.

        Raises:
            NotInHistory: there is no such stream.
            StreamDeleted: the stream is being deleted.
        """
        return self._streams().stream(scope, name)

    def writer(
        self,
        scope: str,
        name: str,
        *,
        writer_id: UUID | None = None,
        settings: StreamWriterSettings | None = None,
    ) -> StreamWriter:
        """Return a writer of a stream; the connection closes it, if it is still open.

        Events for segments of another process are sent to that process, if `owners` of `connect` includes its address.

        Args:
            scope, name: scope and name of the stream.
            writer_id: the id of a producer that writes each event once, even after a crash: see `StreamWriter.resume`.
            settings: bounds of the writer.

        Raises:
            AccelError: as `stream` and `host`.
        """
        segments = self.segments()
        stream = self._streams().stream(scope, name, host=segments)
        writer = StreamWriter(stream, segments, settings=settings or StreamWriterSettings(), writer_id=writer_id)
        self._know(self._writers, writer)
        return writer

    def reader(self, scope: str, name: str, **options: Unpack[ReaderOptions]) -> StreamReader:
        """Return a reader of a stream between two cuts; see `StreamReader`. The connection closes it, if still open.

        Args:
            scope, name: scope and name of the stream.
            options: `from_cut`, `to_cut`, `follow`, `order` and `settings`, as for `StreamReader`.

        Raises:
            As `stream`; InvalidArgument, NotInHistory: not a cut of this stream.
        """
        return self.open_reader(StreamReader, scope, name, **options)

    def open_reader(
        self, kind: type[CutReaders], scope: str, name: str, **options: Unpack[ReaderOptions]
    ) -> CutReaders:
        """Return a reader of this class; see `reader`."""
        stream = self.stream(scope, name)
        reader = kind(stream, self.source(stream), system=self._system, **options)
        self._know(self._readers, reader)
        return reader

    def group(self, scope: str, name: str, group: str, from_cut: Cut | None = None) -> ReaderGroup:
        """Return a group of readers of a stream, created if there is none; see `ReaderGroup.open`."""
        return ReaderGroup.open(self.stream(scope, name), group, from_cut)

    def group_reader(
        self, scope: str, name: str, group: str, reader: str, **options: Unpack[GroupReaderOptions]
    ) -> GroupReader:
        """Return a reader of a group, which is created if there is none; see `GroupReader`.

        Args:
            scope, name: scope and name of the stream.
            group: the name of the group whose readers share the stream.
            reader: the reader's name; running readers of a group must have different names.
            options: `follow`, `settings`, `rebalance_seconds`, `lease_seconds` and `auto_commit`, as for `GroupReader`.

        Raises:
            AccelError: as `stream` and `ReaderGroup.open`.
        """
        opened = self.open_group_reader(GroupReader, scope, name, group, reader, **options)
        self._know(self._readers, opened)
        return opened

    def open_group_reader(
        self,
        kind: type[GroupReaders],
        scope: str,
        name: str,
        group: str,
        reader: str,
        **options: Unpack[GroupReaderOptions],
    ) -> GroupReaders:
        """Return a reader of a group of this class, which the connection does not close; see `group_reader`."""
        stream = self.stream(scope, name)
        shared, source, counts = ReaderGroup.open(stream, group), self.source(stream), self._group_counts
        return kind(stream, source, shared, reader, system=self._system, counts=counts, **options)

    # Inside

    def _enter(self) -> None:
        self._streams()
        if self._peers.listen is not None:
            self.segments()

    def _abandon(self) -> None:
        """Close what was opened before entering failed, so that others have the address and the segments at once."""
        self._is_abandoned = True
        self.stop()

    def _opened_catalog(self, opened: Callable[[], ObjectCatalog]) -> ObjectCatalog:
        catalog = self._part("catalog", opened, ObjectCatalog.close, ObjectCatalog.close)
        if self._maintenance is not None:  # its lease ends after an error, too: others need not wait
            self._part("maintenance", self._open_maintainer, lambda made: made.close(), lambda made: made.close())
        return catalog

    def _open_maintainer(self) -> Maintainer:
        from accel.maintenance import Maintainer  # noqa: PLC0415 - few connections maintain

        maintainer = Maintainer(self.store, self._maintenance, system=self._system)
        maintainer.start()
        return maintainer

    def _find_catalog(self) -> ObjectCatalog:
        measured(self._system)
        return ObjectCatalog.open(self.store, settings=self.settings.catalog, system=self._system)

    def _open_catalog(self) -> ObjectCatalog:
        if isinstance(self._create, FormatRecord):
            self._make_catalog(self._create)
        try:
            return self._find_catalog()
        except CatalogMissing:
            if not self._create:
                raise
        self._make_catalog(FormatRecord(namespace=DEFAULT_NAMESPACE))
        return self._find_catalog()

    def _make_catalog(self, wanted: FormatRecord) -> None:
        notes = ObjectCatalog.init(self.store, wanted, settings=self.settings.catalog, system=self._system)
        for note in notes:
            logger.warning("a new catalog: %s", note)

    def _streams(self) -> StreamStore:
        """As `stream_store`; makes the catalog if there is none, and `create` is set."""
        self._opened_catalog(self._open_catalog)
        return self._part("stream store", self._open_streams)

    def _open_streams(self) -> StreamStore:
        return self._open_stream_store(HostWhenNeeded(self.segments, self.tails))

    def _open_stream_store(self, host: SegmentHost) -> StreamStore:
        tables, settings = self.catalog.parts.keys.tables, self.settings.history
        return StreamStore(tables, system=self._system, settings=settings, host=host, is_initialised=True)

    def _open_accelerator(self) -> ReadAccelerator:
        return ReadAccelerator(self.catalog.images(), self.store, settings=self.settings.lookups, system=self._system)

    def _register(self) -> Registration:
        address = self._peers.address
        if self._peers.listen is not None and not address:
            host, port = self._listening().getsockname()[:2]
            address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        registration = self._owners().register(self._wanted_node, address=address)
        registration.keep_alive()
        return registration

    def _stop_registration(self, registration: Registration) -> None:
        registration.stop()
        if self._is_abandoned:
            with suppress(AccelError):  # then the lease expires
                registration.end()

    def _owners(self) -> OwnersTable:
        return OwnersTable(self.catalog, settings=self.settings.forwarding)

    def _open_segments(self) -> SharedSegments:
        shared = SharedSegments(self.host(), self._owners(), self._peers.client, keeps=self)
        if self._peers.listen is not None:
            self._part("server", self._make_server, ForwardingServer.stop, ForwardingServer.stop).begin()
        return shared

    def _listening(self) -> socket:
        """The socket, bound before this process registers, because the address may contain the free port."""
        where = self._peers.listen or ("127.0.0.1", 0)
        family = AF_INET6 if ":" in where[0] else AF_INET
        return self._part("listening", lambda: create_server(where, family=family), socket.close, socket.close)

    def _make_server(self) -> ForwardingServer:
        return ForwardingServer(self.forwarding_app(), self._listening(), self._system)

    def _open_host(self) -> ObjectSegments:
        node_id = self.registration().node_id
        settings = self.settings
        host = ObjectSegments(self.catalog, self.store, node_id, settings=settings.segments, system=self._system)
        self._scaler = AutoScaler(host, is_on=settings.scaling)
        host.scale_by(self._scaler)
        return host

    def _part(
        self,
        name: str,
        opened: Callable[[], Part],
        close: Callable[[Part], object] = lambda _: None,
        stop: Callable[[Part], object] = lambda _: None,
    ) -> Part:
        """Return a part, which one thread opens while the others wait."""
        self._lifetime.check()
        part: Part = self._parts.get(name, lambda: self._kept(name, opened(), close, stop))
        return part

    def _kept(self, name: str, part: Part, close: Callable[[Part], object], stop: Callable[[Part], object]) -> Part:
        try:
            with self._lock:
                self._lifetime.check()  # it may have been closed meanwhile
                # The dependencies of a part were opened before it, and are closed after it.
                self._stopping.callback(partial(stop, part))
                self._closing.callback(partial(close, part))
                if name in _MISSED:
                    self._left.append(partial(close, part))
        except BaseException:
            stop(part)
            raise
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
        """Open no more parts; return the readers and writers to close first."""
        self._lifetime.check_process()
        host: ObjectSegments | None = self._parts.peek("host")
        if host is not None:
            host.commits.acks.check_outside()
        with self._lock:
            self._lifetime.close()
            given = list(self._readers), list(self._writers)
            self._readers.clear()
            self._writers.clear()
        return given


@checked_arguments
class AsyncConnection:
    """The streams of a bucket, for asyncio, as returned by ``async with accel.connect(...)``. Tasks: any.

    Requests to the store are made in threads; readers and writers wait in the event loop. At the end of the block its
    writers are flushed, and its readers leave their groups; also if its task is cancelled. After an error in the block
    writers are not flushed.

    Args:
        connection: the connection for threads, which has the parts.

    Attributes:
        connection: as the argument.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._given: WeakSet[AsyncStreamWriter | AsyncGroupReader] = WeakSet()
        self._lifetime = Lifetime("a connection")

    async def close_given(self, *, is_failed: bool = False) -> None:
        """Close its writers and readers of groups, side by side; the end of the block calls this.

        Args:
            is_failed: whether writers stay unflushed and errors are ignored.

        Raises:
            AccelError: as `AsyncStreamWriter.close` and `AsyncGroupReader.close`; the first error, after all were
                closed.
        """
        self._lifetime.close()
        closing = [each for each in self._given if not (is_failed and isinstance(each, AsyncStreamWriter))]
        begun = [asyncio.ensure_future(each.close()) for each in closing]
        try:
            await asyncio.sleep(0)  # all of them begin, also if this task is cancelled now
        finally:
            ends = await asyncio.gather(*begun, return_exceptions=True)
        failed = next((end for end in ends if isinstance(end, BaseException)), None)
        if failed is not None and not is_failed:
            raise failed

    def __repr__(self) -> str:
        return f"AsyncConnection({self.connection.store!r})"

    async def _kept(self, opening: Callable[[], Given]) -> Given:
        made = await asyncio.to_thread(opening)
        self._lifetime.check()  # it would not be closed; it has sent nothing yet
        self._given.add(made)
        return made

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
        """Load the newest image for readers; returns whether it was new. See `ReadAccelerator.refresh`."""

        def refreshed() -> bool:
            return self.connection.accelerator.refresh()  # this may open the accelerator

        return await asyncio.to_thread(refreshed)

    def reader(self, scope: str, name: str, **options: Unpack[ReaderOptions]) -> Opening[AsyncStreamReader]:
        """A reader, by ``async with`` or ``await``; see `Connection.reader`."""
        opening = partial(self.connection.open_reader, AsyncStreamReader, scope, name, **options)
        return Opening(partial(opened, opening, AsyncStreamReader.close))

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

        def opening() -> AsyncStreamWriter:
            segments = connection.segments()
            stream = connection.stream_store.stream(scope, name, host=segments)
            return AsyncStreamWriter(stream, segments, settings=settings or StreamWriterSettings(), writer_id=writer_id)

        return Opening(partial(self._kept, opening))

    def group_reader(
        self, scope: str, name: str, group: str, reader: str, **options: Unpack[GroupReaderOptions]
    ) -> Opening[AsyncGroupReader]:
        """A reader of a group, by ``async with`` or ``await``; see `Connection.group_reader`."""
        opening = partial(self.connection.open_group_reader, AsyncGroupReader, scope, name, group, reader, **options)
        return Opening(partial(self._kept, opening))

    async def group(self, scope: str, name: str, group: str, from_cut: Cut | None = None) -> ReaderGroup:
        """See `Connection.group`."""
        return await asyncio.to_thread(self.connection.group, scope, name, group, from_cut)


def _maintenance_of(maintain: bool | MaintenanceSettings) -> MaintenanceSettings | None:
    if maintain is False:
        return None
    from accel.maintenance import MaintenanceSettings  # noqa: PLC0415 - few connections maintain

    if isinstance(maintain, MaintenanceSettings):
        return maintain
    return MaintenanceSettings() if taker("maintain", "bool", InvalidArgument)(maintain) else None


class _NotMade(CatalogMissing, AttributeError):
    """No catalog, at an attribute: for `hasattr`, `inspect.getmembers` and doubles the attribute is not there yet."""


def _dropped(lifetime: Lifetime, left: list[Callable[[], object]], system: Components, name: str) -> None:
    """End the lease of a connection that the collector has found; in a thread, because the collector must not wait.

    Its writers keep it, and are kept by events that are not durable; so all events are, except those of transactions.
    """
    if left and not lifetime.is_closed and lifetime.is_here and system.wait is not None:
        lifetime.close()
        system.start(partial(_end_left, left, name), "accel-dropped")
        text = f"{name} was dropped without close; its segments are given back now"
        warnings.warn(text, ResourceWarning, stacklevel=2, source=lifetime)


def _end_left(left: list[Callable[[], object]], name: str) -> None:
    while left:
        try:
            left.pop()()
        except Exception:
            logger.warning("%s was dropped without close, and a part of it could not be closed", name, exc_info=True)


class _Closed(Protocol):
    """An object that can be closed."""

    def close(self) -> object:
        """Close it."""
        ...


def _close_host(host: ObjectSegments) -> None:
    try:
        host.close()
    except BaseException:
        host.stop()
        raise
