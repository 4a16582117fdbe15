"""Owners of segments: which nodes write, at which addresses, until when each is believed to live, and how to ask one.

    owners = OwnersTable(catalog)
    with owners.register(address="http://10.0.0.7:8080") as registration:      # draws a node id
        host = ObjectSegments(catalog, store, registration.node_id)
        registration.keep_alive()

Each owner has one key, ``owners/<node>``, an `Owner`. It registers, renews the key while it lives, and gives it back at
its end; all by conditional writes, so of two processes that take one node id one is told (`OwnerReplaced`).

**A lease decides when to try, never who may write.** Whether a commit counts is decided by the node's list and the
ranges of its streams (`accel.catalog.takeover`). So a lease that is read with a clock that is wrong, or that a paused
process believes to have, costs moves of segments to and fro, and nothing else; and no allowance for clocks is made: a
dead owner is found when its lease is over, not a minute later.

**Node ids.** A process that has a name of its own, as a broker has, gives its node id, and takes the key over from the
process before it: it is the same node, started again. A process without one draws an id: that of an owner which also
drew its own, and whose lease is over for the longest time; otherwise one above all that the catalog and this table
know. So processes that come and go do not make the catalog grow by a list each. The session that is opened for a node
id that was taken over fences the older one, and its segments come with it.

Requests: registering 1 GET and 1 PUT with a node id; without one 1 listing, 1 GET for each owner, 1 for the directory,
and 1 PUT. Renewing 1 PUT, every third of the lease. `find` 1 GET; `owners` 1 listing and 1 GET for each owner.

Source: docs/decisions/0039-segments-have-owners.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import IntEnum
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from threading import Event, Lock
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Final, Self, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

import msgspec
from msgspec import Meta

from accel.catalog import ObjectCatalog
from accel.catalog.keys import node_key, parse_node_key
from accel.errors import (
    AccelError,
    CatalogDamaged,
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
from accel.streams.rules.events import WRITER_ID_SIZE_BYTES
from accel.streams.settings import ForwardingSettings
from accel.streams.writer_numbers import Held, Progress, WriterHeld, progress_of
from accel.system import Components
from loaders.errors import DataConflict, TableMissing
from loaders.lifetime import Lifetime, Threads
from loaders.parallel import map_bounded
from loaders.settings import check_settings
from loaders.tables import RecordForm, TypedKey
from loaders.versions import Versioned

if TYPE_CHECKING:
    from accel.streams.segments_host import ObjectSegments  # which looks owners up, where it scales beside them

OWNERS: Final = "owners"
"""The table; made when the first owner registers."""

ADDRESS_SIZE_MAX: Final = 2_000
TOKEN_SIZE_BYTES: Final = 16
OWNER_SIZE_BYTES_MAX: Final = 1 << 14
DRAWS_MAX: Final = 100
"""How many node ids are tried, if others draw at the same time."""

NODE_IDS_FROM: Final = 1
"""The first id that is drawn in an empty catalog."""

MILLISECONDS: Final = 1000
logger = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Owner:
    """What an owner tells. Threads: immutable.

    Args:
        node_id: the node whose session it writes by.
        token: 16 bytes that tell this process from others that had the node id before it.
        address: where it takes events of others, a URL; empty = nowhere.
        expires_ms: until when it is to be believed alive, milliseconds since 1970 by its clock; 0 = it has ended.
        is_drawn: whether the node id was drawn, so that others may take it over when it has expired.

    Raises:
        ValueError: a number below 0, another token, or an address of more than 2,000 characters.
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
        """Whether its lease is over by a clock that says so: then it is worth trying to take its segments over."""
        return now_ms >= self.expires_ms


OWNER: Final = RecordForm("segment-owner", 1, Owner)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnersSettings:
    """Choices of one owner.

    Args:
        lease_seconds: how long it is to be believed alive after it has said so; a third of that after it is due to say
            so again. 15 s.

    Raises:
        ValueError: not above 0.
    """

    lease_seconds: float = 15.0

    def __post_init__(self) -> None:
        check_settings(self)


class OwnersTable:
    """The owners of one catalog. Threads: any; no lock is held over I/O.

    Args:
        catalog: where they write. Its tables and its system are used.
        settings: choices of those that register here.
    """

    def __init__(
        self,
        catalog: ObjectCatalog,
        *,
        settings: OwnersSettings = OwnersSettings(),
    ) -> None:
        self._catalog = catalog
        self.settings = settings

    def now_ms(self) -> int:
        """Milliseconds since 1970, by the clock that leases are read with."""
        return self._catalog.parts.now_ms()

    def find(self, node_id: int) -> Owner | None:
        """What an owner has told last; None if that node never registered. 1 request."""
        try:
            seen = self._key(node_id).read()
        except TableMissing:
            return None
        return None if seen is None else seen.value

    def owners(self) -> tuple[Owner, ...]:
        """All that ever registered, ascending by node id. 1 request for 1,000 of them, and 1 for each."""
        return tuple(seen.value for seen in self._all())

    def register(self, node_id: int | None = None, *, address: str = "") -> Registration:
        """Register as an owner. It may be repeated after a failure.

        Args:
            node_id: of this process, also if another one had it before; None = one is drawn.
            address: where this process takes events of others, a URL of at most 2,000 characters.

        Raises:
            InvalidArgument: an address that is too long, or a node id that is none.
            AmbiguousWrite, StoreError, DataConflict: it may have happened.
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
        """The key of an owner that has drawn its node id: that of a dead one, or a new one."""
        known = self._all()
        dead = [seen for seen in known if seen.value.is_drawn and seen.value.is_expired(self.now_ms())]
        for seen in sorted(dead, key=lambda seen: seen.value.expires_ms):
            node_id = seen.value.node_id
            try:
                return self._key(node_id).write(replace(wanted, node_id=node_id), seen)
            except DataConflict:
                continue  # somebody else took it over, or it lives
        node_ids = [seen.value.node_id for seen in known]
        directory = self._catalog.parts.keys.directory().get().value
        first = max([NODE_IDS_FROM - 1, *node_ids, *directory.node_ids.tolist()]) + 1
        for node_id in range(first, first + DRAWS_MAX):
            owner = replace(wanted, node_id=node_id)
            seen = self._key(node_id).create_if_absent(owner)
            if seen.value == owner:
                return seen
        raise DataConflict(OWNERS, node_key(first), f"expected a node id that nobody has, found {DRAWS_MAX} taken")

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
        return TypedKey(table, node_key(node_id), OWNER)


class Registration:
    """That this process is an owner; `OwnersTable.register` makes it.

    Threads: any; renewals are made by one at a time. It is of the process that registered: elsewhere its calls raise
    WrongProcess.

    Args:
        owners: where it is registered.
        key: its key there.
        seen: what stands there.
        system: clock, threads.

    Attributes:
        node_id: the node.
    """

    def __init__(self, owners: OwnersTable, key: TypedKey[Owner], seen: Versioned[Owner], system: Components) -> None:
        self._lifetime = Lifetime(f"registration of node {seen.value.node_id}", system.process_id)
        self._owners, self._key, self._system = owners, key, system
        self._lock = Lock()  # guards what follows; never held over a request
        self._seen = seen
        self._stopped = Event()
        self.node_id = seen.value.node_id

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
    def owner(self) -> Owner:
        """What was told last."""
        with self._lock:
            return self._seen.value

    def is_due(self) -> bool:
        """Whether a third of the lease is over."""
        left_ms = self.owner.expires_ms - self._owners.now_ms()
        return left_ms <= self._owners.settings.lease_seconds * MILLISECONDS * 2 / 3

    def renew(self) -> Owner:
        """Tell that this process lives. 1 request as a rule.

        Raises:
            OwnerReplaced: another process has registered for the node.
            StoreError, AmbiguousWrite, DataConflict: it may not have been told; renew again.
        """
        expires_ms = self._owners.now_ms() + int(self._owners.settings.lease_seconds * MILLISECONDS)
        return self._tell(lambda now: replace(now, expires_ms=max(expires_ms, now.expires_ms)))

    def keep_alive(self) -> None:
        """Renew from now on beside the caller, in a thread that does not keep the process alive, until `end` or `stop`.

        What goes wrong is logged, and tried again; it ends when another process has registered for the node. Nothing is
        done where the system cannot wait (simulated time): renew when it is due.
        """
        self._lifetime.check()
        if self._system.wait is not None:
            self._system.start(self._renew_again, f"accel-owner-{self.node_id}")

    def end(self) -> None:
        """Tell that this process is no owner any more: others may take its segments over at once. 1 request.

        Raises:
            As `renew`, but for `OwnerReplaced`.
        """
        self.stop()
        try:
            self._tell(lambda now: replace(now, expires_ms=0))
        except OwnerReplaced:
            logger.debug("node %d: registered by another process", self.node_id)

    def stop(self) -> None:
        """Renew no more, and tell nothing: the lease runs out."""
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

    def _renew_again(self) -> None:
        pause_seconds = self._owners.settings.lease_seconds / 3
        while self._system.wait is not None and not self._stopped.is_set():
            self._system.wait(self._stopped, pause_seconds)
            if self._stopped.is_set():
                return
            try:
                self.renew()
            except OwnerReplaced:
                logger.warning("node %d: another process has registered for it", self.node_id)
                return
            except AccelError:
                logger.warning("node %d: its lease could not be renewed", self.node_id, exc_info=True)


# Asking owners: what is said, and by whom (`accel.streams.forwarding` has the meaning)

PATH: Final = "/accel/append"
CARRY_OUT_PATH: Final = "/accel/carry-out"
HTTP_OK: Final = 200
HTTP_SERVER_ERROR: Final = 500
REPLY_SIZE_BYTES_MAX: Final = 1 << 18
DEFAULT_FORWARDING: Final = ForwardingSettings()


class Status(IntEnum):
    """What became of a request.

    Attributes:
        DURABLE: all of it is durable.
        SEALED: the segment takes no more.
        ELSEWHERE: another node has the segment.
        BUSY: too many requests are under way; nothing of this one was taken.
        OTHER_OWNER: another registration was meant.
    """

    DURABLE = 0
    SEALED = 1
    ELSEWHERE = 2
    BUSY = 3
    OTHER_OWNER = 4


Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class AppendRequest(msgspec.Struct, frozen=True):
    """Events for one segment; the module has the fields."""

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
    """A stream whose workflow waits for an owner, and the registration that is meant. The reply is a `Status` alone."""

    scope: str
    stream: str
    owner_token: bytes


class AppendReply(msgspec.Struct, frozen=True):
    """What became of it; the module has the fields."""

    status: Status
    offsets: list[int] = msgspec.field(default_factory=list)
    held: list[Held] = msgspec.field(default_factory=list)
    settled: int = 0


def checked_secret(secret: str) -> bytes:
    """What owners and those who ask them share.

    Raises:
        InvalidArgument: fewer than 16 characters.
    """
    if len(secret) < 16:
        raise InvalidArgument(f"expected a secret of at least 16 characters, found {len(secret)}")
    return secret.encode()


def checked_address(address: str) -> str:
    """Where an owner is reached.

    Raises:
        InvalidArgument: no scheme of HTTP, no host, or more than these and a port.
    """
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path or parts.query:
        raise InvalidArgument(f"expected an address as http://host:port, found {address!r}")
    return address


Send = Callable[[str, bytes, dict[str, str], float], tuple[int, bytes]]
"""(URL, body, headers, seconds) -> HTTP status and body of the reply. Raises OSError or HTTPException if there is none;
ConnectionRefusedError says that nothing was sent."""


def http_post(url: str, body: bytes, headers: dict[str, str], timeout_seconds: float) -> tuple[int, bytes]:
    """One POST, on a connection of its own; no redirect is followed."""
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
        addresses: that may be asked: http or https, host and port, without a path.
        secret: that the owners were given.
        settings: bounds.
        send: makes the requests.

    Raises:
        InvalidArgument: another address, or a secret of fewer than 16 characters.
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
        """Whether the owner's address is one of those that may be asked."""
        return owner.address in self._addresses

    def append(self, owner: Owner, request: AppendRequest) -> AppendReply:
        """Send events to an owner; again if the reply is lost, as it leaves out what it has.

        Raises:
            OwnerUnreachable: it is not there, does not know the secret, or refuses the request; nothing was taken.
            ForwardInDoubt: no reply came: whether they were taken is not known.
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
        """Ask an owner to do its part of a workflow; whether it did, and nobody else has to.

        Raises:
            OwnerUnreachable: it cannot be asked, or could not do it.
        """
        headers = {"Authorization": f"Bearer {self._secret}", "Content-Type": "application/msgpack"}
        body = msgspec.msgpack.encode(request)
        where = f"segments of {request.scope}/{request.stream}"
        if not self.may_ask(owner):
            raise OwnerUnreachable(owner.node_id, owner.address, where, "no address that may be asked")
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
    """Segments of which this process has some, and other owners the rest; a `SegmentHost`.

    Each order of a workflow is carried out here for the segments that this process has; then the other owners are asked
    to do their parts, and those whose lease is over lose their segments to this process. Where an owner cannot be
    asked, the order raises `SegmentsElsewhere`, which names it, and the workflow goes on when that owner looks for it.

    Args:
        host: of this process. It is not closed with this.
        owners: where owners are looked up.
        client: asks them; None = nobody is asked.

    Threads: any; no lock is held over I/O. Requests of writers are made by threads of its own, at most
    `ForwardingSettings.connections_max`, where the system of the host can wait. It is of the process that opened it.

    Attributes:
        host, owners, client: likewise.
        settings: those of the client.
    """

    def __init__(self, host: ObjectSegments, owners: OwnersTable, client: ForwardingClient | None = None) -> None:
        self.host, self.owners, self.client = host, owners, client
        self.settings = DEFAULT_FORWARDING if client is None else client.settings
        self._threads: Threads | None = None
        if host.system.wait is not None:
            most = self.settings.connections_max
            self._threads = Threads(most, "accel-forwarding", process_id=host.system.process_id)

    def __repr__(self) -> str:
        return f"SharedSegments({self.host!r})"

    def close(self) -> None:
        """Begin to send nothing more; requests that are under way end by themselves."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    # For writers

    @property
    def is_beside(self) -> bool:
        """Whether events are sent beside the callers."""
        return self._threads is not None

    def submit(self, work: Callable[[], object]) -> None:
        """Do this beside the caller.

        Raises:
            Closed, WrongProcess: it was closed; another process opened it.
        """
        if self._threads is not None:
            self._threads.submit(work)

    def find(
        self, stream: StreamName, ids: Collection[int], *, are_numbered: bool = False
    ) -> tuple[dict[int, Owner], AccelError | None]:
        """Open segments that this process has, or nobody, or owners whose lease is over; give the owners of the rest.

        Returns:
            The owners that may be asked, by segment id; and why others have no part in this: what stands in the way of
            the last of them. A segment that is sealed, or that another process took over at the same time, is in none.

        Raises:
            What `ObjectSegments.open_segments` and `OwnersTable.find` raise.
        """
        found: dict[int, Owner] = {}
        trouble: AccelError | None = None
        by_node: dict[int, list[int]] = {}
        try:
            elsewhere = self.host.open_segments(stream, ids, are_numbered=are_numbered, is_shared=True)
        except CommitRefused:  # another process has opened some of them at the same time: the next look tells which
            return {}, None
        for segment_id, node_id in elsewhere.items():
            by_node.setdefault(node_id, []).append(segment_id)
        for node_id, theirs in by_node.items():
            owner = self.owners.find(node_id)
            if owner is not None and owner.is_expired(self.owners.now_ms()):
                with suppress(CommitRefused):  # another one came first, or the owner has opened it anew
                    self.host.take_over(stream, dict.fromkeys(theirs, node_id))
            elif owner is not None and self.client is not None and self.client.may_ask(owner):
                found |= dict.fromkeys(theirs, owner)
            else:
                trouble = self._unreachable(node_id, owner, f"{some_ids(theirs)} of {'/'.join(stream)}")
        return found, trouble

    def progress_of(self, stream: StreamName, segments: Segments, writer_id: bytes) -> Progress:
        """How far a writer has come, wherever its segments are; see `ObjectSegments.progress_of`.

        Waits for an owner that does not tell until its lease must be over: it may be what this process was before.

        Raises:
            OwnerUnreachable, ForwardInDoubt: an owner that lives does not tell.
            CommitRefused: others took segments from each other for so long.
            What `find` and `ObjectSegments.held_at` raise.
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
        """What the owner of a segment says that it has; None if it has the segment no more."""
        if self.client is None:
            return None
        reply = self.client.append(owner, AppendRequest(*stream, segment_id, owner.token, writer_id, [], [], 0, []))
        return WriterHeld(tuple(reply.held), reply.settled) if reply.status is Status.DURABLE else None

    # For workflows

    def create(self, stream: StreamName, segments: Segments, stream_ids: Mapping[int, int]) -> None:
        """See `SegmentHost.create`."""
        self.host.create(stream, segments, stream_ids)

    def seal(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:
        """See `SegmentHost.seal`."""
        return self._carried_through(stream, lambda: self.host.seal(stream, ids))

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
        """See `SegmentHost.merge`. One node merges a transaction: an owner of all segments that it has events for.

        If there is none, this process takes those of them over that others have, also from owners that live.
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
                with suppress(CommitRefused):  # another one came first: the merge tells
                    self.host.take_over(stream, {segment_id: node_id})
            self.host.merge(stream, ids, transactions)

    def abort(self, stream: StreamName, transaction: UUID) -> None:
        """See `SegmentHost.abort`."""
        self.host.abort(stream, transaction)

    # Inside

    def _carried_through(self, stream: StreamName, act: Callable[[], T]) -> T:
        """An order, with the owners of its segments: they are asked to do their parts, and it is given again."""
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
        """Ask an owner to do its part of a workflow; False if it cannot be asked, which is noted with the error."""
        owner = self.owners.find(node_id)
        try:
            if owner is not None and owner.is_expired(self.owners.now_ms()):
                theirs = {each: node for each, node in error.owners.items() if node == node_id}
                with suppress(CommitRefused):  # another process came first
                    self.host.take_over(stream, theirs)
            elif owner is None or self.client is None or not self.client.may_ask(owner):
                raise self._unreachable(node_id, owner, f"{error.segments} of {'/'.join(stream)}")
            else:
                self.client.carry_out(owner, CarryOutRequest(*stream, owner.token))
        except OwnerUnreachable as unreachable:
            error.add_note(str(unreachable))
            return False
        return True

    @staticmethod
    def _unreachable(node_id: int, owner: Owner | None, segments: str) -> OwnerUnreachable:
        address = "" if owner is None else owner.address
        return OwnerUnreachable(node_id, address, segments, "no address that may be asked")


def own_segments(host: ObjectSegments | SharedSegments) -> ObjectSegments:
    """The segments of this process."""
    return host.host if isinstance(host, SharedSegments) else host
