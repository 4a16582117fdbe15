"""Owners of segments: the nodes that write, their addresses and leases, and requests to other owners.

    owners = OwnersTable(catalog)
    with owners.register(address="http://10.0.0.7:8080") as registration:      # chooses a node id
        host = ObjectSegments(catalog, store, registration.node_id)
        registration.keep_alive()

Each owner has one key, ``owners/<node>``, with an `Owner` as its value. An owner registers, renews the key while it
runs, and ends its lease when it stops; all by conditional writes, so if two processes use one node id, the replaced
process gets an error (`OwnerReplaced`).

**A lease decides when another process may try a takeover, not which process may write.** The node's list and the ranges
of its streams decide whether a commit counts (`accel.catalog.takeover`). So if a lease is read with a wrong clock, or a
paused process relies on an expired lease, the only cost is that segments move between owners; and clocks get no
tolerance: a dead owner is found when its lease expires, not a minute later.

**Node ids.** A process with a fixed name, for example a broker, passes its node id, and takes the key over from the
earlier process: it is the same node, restarted. For a process without a node id one is chosen: the id with the oldest
expired lease among owners with chosen ids, otherwise an id above all ids of the catalog and this table. So the number
of node lists in the catalog does not grow with each new process. The session that is opened for a node id that was
taken over fences the older session, and takes over its segments.

Requests: registering 1 GET and 1 PUT with a node id; without a node id 1 listing, 1 GET for each owner, 1 for the
directory, and 1 PUT. Renewing 1 PUT, every third of the lease. `find` 1 GET; `owners` 1 listing and 1 GET for each
owner.

Source: docs/decisions/0015-owners-and-scaling.md.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from threading import Event, Lock
from types import TracebackType
from typing import Annotated, Final, Self, TypeVar
from urllib.parse import urlsplit
from uuid import UUID
from weakref import WeakValueDictionary, ref

import msgspec
from msgspec import Meta

from accel.catalog import ObjectCatalog
from accel.catalog.keys import node_key, parse_node_key
from accel.errors import (
    AccelError,
    CatalogDamaged,
    CatalogWentBack,
    CommitRefused,
    ForwardInDoubt,
    InvalidArgument,
    OwnerReplaced,
    OwnerUnreachable,
    SegmentsElsewhere,
)
from accel.history.rules.segments import Segments
from accel.history.rules.values import IdMap, Integers, segment_text, some_ids
from accel.history.store.hosts import StreamName
from accel.settings import checked_secret
from accel.streams.rules.events import WRITER_ID_SIZE_BYTES
from accel.streams.segments_host import ObjectSegments
from accel.streams.settings import OWNER_LEASE_SECONDS_MAX, ForwardingSettings, OwnersSettings
from accel.streams.writer_numbers import Held, Progress, WriterHeld, progress_of
from accel.system import Components
from loaders.errors import DataConflict, TableMissing
from loaders.lifetime import Lifetime
from loaders.settings import CLOCK_SKEW_SECONDS_MAX
from loaders.tables import RecordForm, TypedKey
from loaders.threads import Threads, map_bounded
from loaders.versions import Versioned

OWNERS: Final = "owners"
"""The name of the table, which is created when the first owner registers."""

ADDRESS_SIZE_MAX: Final = 2_000
TOKEN_SIZE_BYTES: Final = 16
OWNER_SIZE_BYTES_MAX: Final = 1 << 14
DRAWS_MAX: Final = 100
"""How many node ids are tried, if other processes choose ids at the same time."""

NODE_IDS_FROM: Final = 1
"""The first id that is chosen in an empty catalog."""

MILLISECONDS: Final = 1000

_SKEW_MS_MAX: Final = int(CLOCK_SKEW_SECONDS_MAX * MILLISECONDS)
_LEASE_MS_MAX: Final = int(OWNER_LEASE_SECONDS_MAX * MILLISECONDS) + _SKEW_MS_MAX
logger = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Owner:
    """The stored record of an owner. Threads: immutable.

    Args:
        node_id: the node of the owner's session.
        token: 16 bytes that distinguish this process from earlier processes with the same node id.
        address: the URL at which it takes events of other processes; empty = none.
        expires_ms: the end of its lease, milliseconds since 1970 by its clock; 0 = it has ended.
        is_drawn: whether the node id was chosen automatically, so that others may take it over when it has expired.

    Raises:
        ValueError: a number below 0, a token of another size, or an address of more than 2,000 characters.
    """

    node_id: int
    token: bytes
    address: Annotated[str, Meta(max_length=ADDRESS_SIZE_MAX)] = ""
    expires_ms: int = 0
    is_drawn: bool = False

    def __post_init__(self) -> None:
        if self.node_id < 0 or self.expires_ms < 0:
            raise ValueError(f"expected numbers of at least 0, found {self.node_id} and {self.expires_ms}")
        if len(self.token) != TOKEN_SIZE_BYTES or len(self.address) > ADDRESS_SIZE_MAX:
            raise ValueError(f"expected a token of {TOKEN_SIZE_BYTES} bytes and an address of at most 2,000 characters")

    def is_expired(self, now_ms: int) -> bool:
        """Whether its lease has expired at this time: then others may try to take its segments over.

        So has one that ends later than any lease can: a process with a wrong clock wrote it, and may be dead.
        """
        return now_ms >= self.expires_ms or self.expires_ms - now_ms > _LEASE_MS_MAX


OWNER: Final = RecordForm("segment-owner", 1, Owner)


class OwnersTable:
    """The owners of one catalog. Threads: any; no lock is held over I/O.

    Args:
        catalog: the catalog, whose tables and system are used.
        settings: the settings of owners that register by this object.
    """

    def __init__(
        self,
        catalog: ObjectCatalog,
        *,
        settings: OwnersSettings | None = None,
    ) -> None:
        self._catalog = catalog
        self.settings = settings or OwnersSettings()

    def now_ms(self) -> int:
        """Return milliseconds since 1970, by the clock to which leases are compared."""
        return self._catalog.parts.now_ms()

    def find(self, node_id: int) -> Owner | None:
        """Return the record of an owner; None if the node never registered. 1 request."""
        try:
            seen = self._key(node_id).read()
        except TableMissing:
            return None
        return None if seen is None else seen.value

    def owners(self) -> tuple[Owner, ...]:
        """Return all owners that ever registered, ascending by node id. 1 request for 1,000 owners, and 1 for each."""
        return tuple(seen.value for seen in self._all())

    def register(self, node_id: int | None = None, *, address: str = "") -> Registration:
        """Register this process as an owner. May be repeated after a failure.

        Args:
            node_id: the node id of this process, even if another process had it before; None = an id is chosen.
            address: the URL at which this process takes events of others, at most 2,000 characters.

        Raises:
            InvalidArgument: an address that is too long, or an invalid node id.
            AmbiguousWrite, StoreError, DataConflict: the registration may have been written.
        """
        if len(address) > ADDRESS_SIZE_MAX or (node_id is not None and not 0 <= node_id < 10**10):
            raise InvalidArgument("expected a node id of 0 to 9,999,999,999 and an address of at most 2,000 characters")
        self._catalog.parts.keys.tables.create_table(OWNERS)
        parts = self._catalog.parts
        wanted = Owner(0, parts.system.nonce(), address, self._expires_ms(), is_drawn=node_id is None)
        if node_id is not None:
            owner = replace(wanted, node_id=node_id)
            seen = self._key(node_id).change(lambda now: None if now == owner else owner)
        else:
            seen = self._drawn(wanted)
        return Registration(self, self._key(seen.value.node_id), seen, parts.system)

    def _expires_ms(self) -> int:
        return self.now_ms() + int(self.settings.lease_seconds * MILLISECONDS)

    def _drawn(self, wanted: Owner) -> Versioned[Owner]:
        """Register with a chosen node id: the id of a dead owner, or a new one."""
        known = self._all()
        dead = [seen for seen in known if seen.value.is_drawn and seen.value.is_expired(self.now_ms())]
        for seen in sorted(dead, key=lambda seen: seen.value.expires_ms):
            node_id = seen.value.node_id
            try:
                return self._key(node_id).write(replace(wanted, node_id=node_id), seen)
            except DataConflict:
                continue  # another process took it over, or its owner renewed
        node_ids = [seen.value.node_id for seen in known]
        directory = self._catalog.parts.keys.directory().get().value
        first = max([NODE_IDS_FROM - 1, *node_ids, *directory.node_ids.tolist()]) + 1
        for node_id in range(first, first + DRAWS_MAX):
            owner = replace(wanted, node_id=node_id)
            seen = self._key(node_id).create_if_absent(owner)
            if seen.value == owner:
                return seen
        raise DataConflict(OWNERS, node_key(first), f"expected a node id that no owner has, found {DRAWS_MAX} taken")

    def _all(self) -> list[Versioned[Owner]]:
        tables, executor = self._catalog.parts.keys.tables, self._catalog.parts.executor
        try:
            node_ids = [parse_node_key(key) for key in tables.table(OWNERS).keys()]  # noqa: SIM118 - no dict
        except TableMissing:
            return []
        seen = map_bounded(
            executor, lambda each: self._key(each).read(), [each for each in node_ids if each is not None]
        )
        return [each for each in seen if each is not None]

    def _key(self, node_id: int) -> TypedKey[Owner]:
        table = self._catalog.parts.keys.tables.table(OWNERS, value_size_bytes_max=OWNER_SIZE_BYTES_MAX)
        return TypedKey(table, node_key(node_id), OWNER, went_back=self._catalog.parts.keys.note_back)


class Registration:
    """The registration of this process as an owner; `OwnersTable.register` makes it.

    Threads: any; one renewal is made at a time. The registration belongs to the process that registered: elsewhere its
    calls raise WrongProcess.

    Args:
        owners: the table of owners.
        key: the owner's key in the table.
        seen: the value of the key.
        system: clock, threads.

    Attributes:
        node_id: the node.
    """

    def __init__(self, owners: OwnersTable, key: TypedKey[Owner], seen: Versioned[Owner], system: Components) -> None:
        self._lifetime = Lifetime(f"registration of node {seen.value.node_id}", system.process_id)
        self._owners, self._key, self._system = owners, key, system
        self._lock = Lock()  # guards the attributes below; never held over a request
        self._seen = seen
        self._stopped = Event()
        self.node_id = seen.value.node_id
        _HERE[seen.value.token] = self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.end()
        else:
            self.stop()

    def __repr__(self) -> str:
        return f"Registration({self.owner!r})"

    @property
    def is_here(self) -> bool:
        """Whether this process registered."""
        return self._lifetime.is_here

    @property
    def owner(self) -> Owner:
        """The record of this process, as last written."""
        with self._lock:
            return self._seen.value

    def is_due(self) -> bool:
        """Whether a third of the lease has passed."""
        left_ms = self.owner.expires_ms - self._owners.now_ms()
        lease_ms = self._owners.settings.lease_seconds * MILLISECONDS
        return left_ms <= lease_ms * 2 / 3 or left_ms > lease_ms + _SKEW_MS_MAX

    def renew(self) -> Owner:
        """Renew the lease. Usually 1 request.

        Raises:
            OwnerReplaced: another process has registered for the node.
            CatalogWentBack: the record was deleted, or put back from a copy; the sessions of this process have ended.
            StoreError, AmbiguousWrite, DataConflict: the lease may not be renewed; call again.
        """
        expires_ms = self._owners.now_ms() + int(self._owners.settings.lease_seconds * MILLISECONDS)

        def renewed(now: Owner) -> Owner:
            is_wrong = now.expires_ms - expires_ms > _SKEW_MS_MAX  # written when the clock was wrong
            return replace(now, expires_ms=expires_ms if is_wrong else max(expires_ms, now.expires_ms))

        return self._tell(renewed)

    def keep_alive(self) -> None:
        """Renew from now on, in a thread that does not keep the process alive, until `end` or `stop`.

        Errors are logged, and renewing is tried again; the thread ends when another process has registered for the
        node, or the record went back. Without a `wait` of the system (simulated time) there is no thread: the caller
        renews when it is due.
        """
        self._lifetime.check()
        if self._system.wait is not None:
            pause = partial(self._system.wait, self._stopped, self._owners.settings.lease_seconds / 3)
            self._system.start(partial(_renew_again, ref(self), self._stopped, pause), f"accel-owner-{self.node_id}")

    def end(self) -> None:
        """End the lease of this process: others may take its segments over at once. 1 request.

        Raises:
            As `renew`, except `OwnerReplaced`.
        """
        self.stop()
        try:
            self._tell(lambda now: replace(now, expires_ms=0))
        except OwnerReplaced:
            logger.debug("node %d: registered by another process", self.node_id)

    def stop(self) -> None:
        """Stop renewing, without a request: the lease expires."""
        self._stopped.set()

    def _tell(self, change: Callable[[Owner], Owner]) -> Owner:
        self._lifetime.check()
        with self._lock:
            seen = self._seen
        token = seen.value.token

        def rule(now: Owner | None) -> Owner | None:
            if now is None:
                raise CatalogDamaged(f"expected an owner in {self._key.where}, found none: it was deleted")
            if now.token != token:
                raise OwnerReplaced(self.node_id)
            return change(now)

        told = self._key.change(rule, seen=seen)
        with self._lock:
            if told.version.sequence >= self._seen.version.sequence:
                self._seen = told
            return self._seen.value

    def _is_renewed(self) -> bool:
        """Renew, and log errors; returns whether to renew again."""
        try:
            self.renew()
        except (OwnerReplaced, CatalogWentBack) as error:
            logger.warning("node %d: its lease is not renewed any more: %s", self.node_id, error)
            return False
        except AccelError as error:
            logger.warning("node %d: its lease could not be renewed: %s", self.node_id, error)
        return True


def _renew_again(registration: ref[Registration], stopped: Event, pause: Callable[[], object]) -> None:
    while True:
        pause()
        held = registration()  # only while it renews: a registration that was dropped is not renewed
        if stopped.is_set() or held is None or not held._is_renewed():  # noqa: SLF001 - its thread
            return
        del held


_HERE: Final[WeakValueDictionary[bytes, Registration]] = WeakValueDictionary()
"""The registrations of this process, by token."""


# Requests to owners and their bodies (`accel.streams.shared.forwarding` explains the fields)

PATH: Final = "/accel/append"
CARRY_OUT_PATH: Final = "/accel/carry-out"
HTTP_OK: Final = 200
HTTP_SERVER_ERROR: Final = 500
REPLY_SIZE_BYTES_MAX: Final = 1 << 18
DEFAULT_FORWARDING: Final = ForwardingSettings()


class Status(IntEnum):
    """The result of a request.

    Attributes:
        DURABLE: all its events are durable.
        SEALED: the segment is sealed.
        ELSEWHERE: another node has the segment.
        BUSY: too many requests are under way; no event of this one was taken.
        OTHER_OWNER: the request was meant for another registration.
    """

    DURABLE = 0
    SEALED = 1
    ELSEWHERE = 2
    BUSY = 3
    OTHER_OWNER = 4


Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class AppendRequest(msgspec.Struct, frozen=True):
    """Events for one segment; `accel.streams.shared.forwarding` explains the fields."""

    scope: str
    stream: str
    segment_id: Number
    owner_token: bytes
    writer_id: Annotated[bytes, Meta(min_length=WRITER_ID_SIZE_BYTES, max_length=WRITER_ID_SIZE_BYTES)]
    numbers: list[Number]
    positions: list[Annotated[float, Meta(ge=0, lt=1)]]
    settled: Number
    payloads: list[bytes]


class CarryOutRequest(msgspec.Struct, frozen=True):
    """A stream whose workflow waits for an owner, and the owner's registration. The reply has only a `Status`."""

    scope: str
    stream: str
    owner_token: bytes


class AppendReply(msgspec.Struct, frozen=True):
    """The result of an `AppendRequest`; `accel.streams.shared.forwarding` explains the fields."""

    status: Status
    offsets: list[int] = msgspec.field(default_factory=list)
    held: list[Held] = msgspec.field(default_factory=list)
    settled: int = 0
    has_forgotten: bool = False


def checked_address(address: str) -> str:
    """Check the address of an owner, and return it.

    Raises:
        InvalidArgument: not http or https, no host, or more than scheme, host and port.
    """
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path or parts.query:
        raise InvalidArgument(f"expected an address as http://host:port, found {address!r}")
    return address


Send = Callable[[str, bytes, dict[str, str], float], tuple[int, bytes]]
"""(URL, body, headers, seconds) -> HTTP status and body of the reply. Raises OSError or HTTPException without a reply;
after a ConnectionRefusedError nothing was sent."""


def http_post(url: str, body: bytes, headers: dict[str, str], timeout_seconds: float) -> tuple[int, bytes]:
    """Send one POST, on a connection of its own; no redirect is followed."""
    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=timeout_seconds)
    try:
        connection.request("POST", parts.path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read(REPLY_SIZE_BYTES_MAX)
    finally:
        connection.close()


class ForwardingClient:
    """Sends events to owners. Threads: any; each request has a connection of its own.

    Args:
        addresses: the permitted addresses: http or https, host and port, without a path.
        secret: the secret of the owners.
        settings: bounds of requests.
        send: makes the requests.

    Raises:
        InvalidArgument: an invalid address, or a secret of fewer than 16 characters.
    """

    def __init__(
        self,
        addresses: Collection[str],
        secret: str,
        *,
        settings: ForwardingSettings = DEFAULT_FORWARDING,
        send: Send = http_post,
    ) -> None:
        self.settings = settings
        self._post = send
        self._secret = checked_secret(secret).decode()
        self._addresses = frozenset(map(checked_address, addresses))

    def may_ask(self, owner: Owner) -> bool:
        """Whether the owner's address is one of the permitted addresses."""
        return owner.address in self._addresses

    def append(self, owner: Owner, request: AppendRequest) -> AppendReply:
        """Send events to an owner; again if the reply is lost, because the owner skips events that it has.

        Raises:
            OwnerUnreachable: the owner does not listen, has another secret, or refuses the request; no event was taken.
            ForwardInDoubt: no reply came: the events may or may not have been taken.
        """
        was_sent = False
        headers = {"Authorization": f"Bearer {self._secret}", "Content-Type": "application/msgpack"}
        body = msgspec.msgpack.encode(request)
        error: Exception | None = None
        for _ in range(self.settings.attempts):
            try:
                status, told = self._post(owner.address + PATH, body, headers, self.settings.timeout_seconds)
                if status == HTTP_OK:
                    return msgspec.msgpack.decode(told, type=AppendReply)
            except ConnectionRefusedError as refused:
                error = refused
                break
            except (OSError, HTTPException, msgspec.MsgspecError, RecursionError) as lost:
                error, was_sent = lost, True
                continue
            error = OSError(f"HTTP status {status}: {told[:200]!r}")
            was_sent = was_sent or status >= HTTP_SERVER_ERROR
            if status < HTTP_SERVER_ERROR:
                break
        segment = f"{segment_text(request.segment_id)} of {request.scope}/{request.stream}"
        if was_sent:
            raise ForwardInDoubt(owner.node_id, owner.address, segment) from error
        raise OwnerUnreachable(owner.node_id, owner.address, segment, str(error)) from error

    def carry_out(self, owner: Owner, request: CarryOutRequest) -> bool:
        """Ask an owner to do its part of a workflow; returns whether the workflow is finished.

        Raises:
            OwnerUnreachable: the owner cannot be reached, or failed.
        """
        headers = {"Authorization": f"Bearer {self._secret}", "Content-Type": "application/msgpack"}
        body = msgspec.msgpack.encode(request)
        where = f"segments of {request.scope}/{request.stream}"
        if not self.may_ask(owner):
            raise OwnerUnreachable(owner.node_id, owner.address, where, "no permitted address")
        try:
            status, told = self._post(owner.address + CARRY_OUT_PATH, body, headers, self.settings.timeout_seconds)
        except (OSError, HTTPException) as error:
            raise OwnerUnreachable(owner.node_id, owner.address, where, str(error)) from error
        if status != HTTP_OK:
            raise OwnerUnreachable(owner.node_id, owner.address, where, f"HTTP status {status}: {told[:200]!r}")
        try:
            return msgspec.msgpack.decode(told, type=AppendReply).status is Status.DURABLE
        except (msgspec.MsgspecError, RecursionError) as error:
            raise OwnerUnreachable(owner.node_id, owner.address, where, f"no reply of an owner: {error}") from error


# The segments of several owners


class SharedSegments:
    """Segments of this process together with the segments of other owners; a `SegmentHost`.

    A call of a workflow is carried out here for the segments that this process has; then the other owners are asked to
    do their parts, and this process takes over segments of owners whose leases have expired. If an owner cannot be
    reached, the call raises `SegmentsElsewhere`, and the workflow continues when the owner looks for it.

    Args:
        host: the host of this process. Closing this object does not close the host.
        owners: the table of owners.
        client: sends requests to other owners; None = no requests.
        keeps: what has to live as long as a writer of these segments: the connection that closes the host.

    Threads: any; no lock is held over I/O. Requests of writers are made by threads of its own, at most
    `ForwardingSettings.connections_max`, if the system of the host has a `wait`. Of the process that opened it.

    Attributes:
        host, owners, client, keeps: as the arguments; settings: those of the client.
    """

    def __init__(
        self,
        host: ObjectSegments,
        owners: OwnersTable,
        client: ForwardingClient | None = None,
        *,
        keeps: object = None,
    ) -> None:
        self.host, self.owners, self.client, self.keeps = host, owners, client, keeps
        self.settings = DEFAULT_FORWARDING if client is None else client.settings
        self._threads: Threads | None = None
        self._collects_seconds, self._collects_pause = 0.0, 0.25
        if host.system.wait is not None:
            most = self.settings.connections_max
            self._threads = Threads(most, "accel-forwarding", process_id=host.system.process_id)

    def __repr__(self) -> str:
        return f"SharedSegments({self.host!r})"

    def close(self) -> None:
        """Start no more requests; does not wait for requests under way."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    # For writers

    @property
    def is_beside(self) -> bool:
        """Whether background threads send events."""
        return self._threads is not None

    def submit(self, work: Callable[[], object]) -> None:
        """Run work in a background thread.

        Raises:
            Closed, WrongProcess: the object was closed, or another process opened it.
        """
        if self._threads is not None:
            self._threads.submit(work)

    def find(
        self, stream: StreamName, ids: Collection[int], *, are_numbered: bool = False
    ) -> tuple[dict[int, Owner], AccelError | None]:
        """Open segments of this process, of no owner or of expired owners; return the owners of the other segments.

        Returns:
            The owners with permitted addresses, by segment id; and the error of the last other owner, None without one.
            Segments that are sealed, or that another process took over at the same time, have no owner here.

        Raises:
            The errors of `ObjectSegments.open_segments` and `OwnersTable.find`.
        """
        found: dict[int, Owner] = {}
        trouble: AccelError | None = None
        by_node: dict[int, list[int]] = {}
        try:
            elsewhere = self.host.open_segments(stream, ids, are_numbered=are_numbered, is_shared=True)
        except CommitRefused:  # another process opened some at the same time: the next look shows which
            return {}, None
        for segment_id, node_id in elsewhere.items():
            by_node.setdefault(node_id, []).append(segment_id)
        for node_id, theirs in by_node.items():
            owner = self.owners.find(node_id)
            if owner is not None and owner.is_expired(self.owners.now_ms()):
                with suppress(CommitRefused):  # another process was first, or the owner opened it again
                    self.host.take_over(stream, dict.fromkeys(theirs, node_id))
            elif owner is not None and self.client is not None and self.client.may_ask(owner):
                found |= dict.fromkeys(theirs, owner)
            else:
                trouble = self._unreachable(node_id, owner, f"{some_ids(theirs)} of {'/'.join(stream)}")
        return found, trouble

    def progress_of(self, stream: StreamName, segments: Segments, writer_id: bytes) -> Progress:
        """Return the progress of a writer in the segments of all owners; see `ObjectSegments.progress_of`.

        Waits for an owner that does not answer until its lease must have expired: it may be a dead predecessor of this
        process.

        Raises:
            OwnerUnreachable, ForwardInDoubt: an owner with a valid lease does not answer.
            CommitRefused: other processes kept taking segments over for this time.
            The errors of `find` and `ObjectSegments.held_at`.
        """
        system = self.host.system
        deadline = system.timer() + self.owners.settings.lease_seconds + self.settings.pause_seconds
        while True:
            try:
                return self._progress_of(stream, segments, writer_id)
            except (OwnerUnreachable, ForwardInDoubt, CommitRefused):
                if system.timer() >= deadline:
                    raise
            system.sleep(self.settings.pause_seconds)

    def _progress_of(self, stream: StreamName, segments: Segments, writer_id: bytes) -> Progress:
        owners, trouble = self.find(stream, segments.ids.tolist(), are_numbered=True)
        if trouble is not None:
            raise trouble
        known = []
        for segment in segments:
            owner = owners.get(segment.id)
            held = None if owner is None else self._held_by(stream, segment.id, owner, writer_id)
            if held is None:
                held = self.host.held_at(stream, segment.id, writer_id)
            known.append((segment.key_start, segment.key_end, held))
        return progress_of(known)

    def _held_by(self, stream: StreamName, segment_id: int, owner: Owner, writer_id: bytes) -> WriterHeld | None:
        """Ask the owner of a segment for the writer's numbers; None if it no longer has the segment."""
        if self.client is None:
            return None
        reply = self.client.append(owner, AppendRequest(*stream, segment_id, owner.token, writer_id, [], [], 0, []))
        if reply.status is not Status.DURABLE:
            return None
        return WriterHeld(tuple(reply.held), reply.settled, reply.has_forgotten)

    # For workflows

    def create(self, stream: StreamName, segments: Segments, stream_ids: Mapping[int, int]) -> None:
        """See `SegmentHost.create`."""
        self.host.create(stream, segments, stream_ids)

    def seal(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:
        """See `SegmentHost.seal`."""
        return self._carried_through(stream, lambda: self.host.seal(stream, ids))

    def last_times(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:
        """See `SegmentHost.last_times`."""
        return self.host.last_times(stream, ids)

    def tails(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:
        """See `SegmentHost.tails`."""
        return self.host.tails(stream, ids)

    def truncate(self, stream: StreamName, cut: IdMap) -> None:
        """See `SegmentHost.truncate`."""
        self._carried_through(stream, lambda: self.host.truncate(stream, cut))

    def delete(self, stream: StreamName, ids: Integers) -> None:
        """See `SegmentHost.delete`."""
        self._carried_through(stream, lambda: self.host.delete(stream, ids))

    def merge(self, stream: StreamName, ids: Integers, transactions: Sequence[UUID]) -> None:
        """See `SegmentHost.merge`. One node merges a transaction: an owner of all segments with events of it.

        If no owner has all of them, this process takes over the segments of other owners, even with valid leases.
        """
        try:
            self.host.merge(stream, ids, transactions)
        except SegmentsElsewhere as error:
            owners = error.owners
            if len(error.nodes) == 1 and self._has_asked(stream, error.nodes[0], error):
                with suppress(SegmentsElsewhere):  # this process has some of them
                    self.host.merge(stream, ids, transactions)
                    return
            for segment_id, node_id in owners.items():
                with suppress(CommitRefused):  # another process was first: then the merge raises
                    self.host.take_over(stream, {segment_id: node_id})
            self.host.merge(stream, ids, transactions)

    def abort(self, stream: StreamName, transaction: UUID, *, is_given_up: bool = False) -> None:
        """See `SegmentHost.abort`."""
        self.host.abort(stream, transaction, is_given_up=is_given_up)

    # Inside

    def _carried_through(self, stream: StreamName, act: Callable[[], T]) -> T:
        """Make a call of a workflow; while other owners have segments, ask them for their parts and repeat the call."""
        system, settings = self.host.system, self.settings
        deadline = system.timer() + settings.wait_seconds
        is_first = True
        while True:
            try:
                return act()
            except SegmentsElsewhere as error:
                if system.timer() >= deadline:
                    raise
                if not is_first:
                    system.sleep(settings.pause_seconds)
                is_first = False
                asked = [self._has_asked(stream, node_id, error) for node_id in error.nodes]
                if not all(asked):
                    raise

    def _has_asked(self, stream: StreamName, node_id: int, error: SegmentsElsewhere) -> bool:
        """Ask an owner to do its part of a workflow; False if it cannot be reached, which is added to the error."""
        owner = self.owners.find(node_id)
        try:
            if owner is not None and owner.is_expired(self.owners.now_ms()):
                theirs = {each: node for each, node in error.owners.items() if node == node_id}
                with suppress(CommitRefused):  # another process was first
                    self.host.take_over(stream, theirs)
            elif owner is None or self.client is None or not self.client.may_ask(owner):
                raise self._unreachable(node_id, owner, f"{error.segments} of {'/'.join(stream)}")
            else:
                self.client.carry_out(owner, CarryOutRequest(*stream, owner.token))
        except OwnerUnreachable as unreachable:
            error.add_note(str(unreachable))
            return False
        return True

    def _unreachable(self, node_id: int, owner: Owner | None, segments: str) -> OwnerUnreachable:
        is_here = owner is not None and (here := _HERE.get(owner.token)) is not None and here.is_here
        if is_here and self.host.system.timer() >= self._collects_seconds:
            self._collects_pause *= 2
            self._collects_seconds = self.host.system.timer() + self._collects_pause
            gc.collect()  # a connection that was dropped without `close` has cycles: this gives its segments back
        why = "another connection of this process: close it" if is_here else "no permitted address"
        return OwnerUnreachable(node_id, owner.address if owner else "", segments, why)


def own_segments(host: ObjectSegments | SharedSegments) -> ObjectSegments:
    """Return the segments of this process."""
    return host.host if isinstance(host, SharedSegments) else host
