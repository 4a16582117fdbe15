"""Forwarding: events are sent to the process that owns the segment of their key.

    one call  accel.connect(url, listen="10.0.0.7:8080", owners=["http://10.0.0.8:8080"], secret=Path("secret"))

    by parts  registration = owners.register(address="http://10.0.0.7:8080")
              host = ObjectSegments(catalog, store, registration.node_id)
              app = forwarding_app(SegmentService(host, registration.owner.token, streams), secret)      # for uvicorn

              segments = SharedSegments(host, owners, ForwardingClient({"http://10.0.0.8:8080"}, secret))
              with StreamWriter(StreamStore.open(store, host=segments).stream("shop", "orders"), segments) as writer:
                  writer.write(b"...", key=b"order-17")

A `StreamWriter` of `SharedSegments` appends events to segments that its own host has, or that no node has. For each
segment of another owner it has one request at a time under way (`Forwarding`), so events of one key are sent in order,
and each only after the result of the event before it is known. If an owner's lease has expired, its segment is taken
over. Events are routed again if a reply reports that their segment is sealed or has another owner, or if they were
appended here and another node took the segment over before they were durable.

**Format.** A request is one POST to ``<address>/accel/append``, with a shared secret in ``Authorization: Bearer``,
compared in constant time, and a MessagePack body:

    request   scope, stream, segment_id     the segment, by the history
              owner_token                   the registration of the owner: another process refuses the request
              writer_id                     16 bytes
              numbers, positions            of each event: ascending; its key's position; see `writer_numbers`
              settled                       all events of the writer below this number are durable
              payloads                      of the events; none = a query for the writer's numbers in the segment
    reply     status                        see `Status`
              offsets                       of each event; -1: it was durable before, and its offset is not known
              held, settled, has_forgotten  the writer's numbers in the segment: `writer_numbers.WriterHeld`

A second route, ``<address>/accel/carry-out`` with a `CarryOutRequest`, asks an owner to do its part of the stream's
workflow at once: so any process can request a scale of segments of several owners.

Requests are sent only to the addresses that the client was given, not to other addresses in the table of owners, and no
redirect is followed. Size, number of events, time, and concurrent requests are bounded on both sides.

**Once.** A writer that forwards numbers its events; if it has no id, it makes a random one. The numbers are stored with
the events, so an owner skips events that are durable, from any sender. A request whose reply was lost is sent again; if
its owner has died, it is sent to the next owner, which reads the numbers from the segment. A delayed copy is skipped
likewise. If an owner with a valid lease does not answer for `wait_seconds`, events are in doubt (`ForwardInDoubt`).

Source: docs/decisions/0015-owners-and-scaling.md.
"""

from __future__ import annotations

import hmac
import logging
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import IntEnum
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from accel.errors import (
    CommitRefused,
    ForwardInDoubt,
    InvalidArgument,
    MissingExtra,
    OperationNotAllowed,
    OwnerUnreachable,
)
from accel.history.rules.values import checked_text, segment_text
from accel.history.store import StreamStore
from accel.settings import LISTENING_CONNECTIONS_MAX, checked_secret
from accel.streams.open_segments import SegmentSealed
from accel.streams.rules.events import WRITER_ID_SIZE_BYTES
from accel.streams.segments_host import ObjectSegments
from accel.streams.settings import ForwardingSettings
from accel.streams.shared.owners import Owner
from accel.streams.writer_numbers import (
    REPEATED,
    Held,
    NumberedEvents,
)
from accel.system import Components
from loaders.lifetime import Lifetime
from loaders.settings import MIB

if TYPE_CHECKING:
    from socket import socket

    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

REQUESTS_MAX: Final = 64
"""The number of requests that an owner handles at one time; further requests are answered with BUSY."""

STOP_SECONDS: Final = 5
"""The time limit of requests under way when a server ends."""

logger = logging.getLogger(__name__)


# Requests and their bodies

PATH: Final = "/accel/append"
CARRY_OUT_PATH: Final = "/accel/carry-out"
HTTP_OK: Final = 200
HTTP_SERVER_ERROR: Final = 500
REPLY_SIZE_BYTES_MAX: Final = 1 << 18
DEFAULT_FORWARDING: Final = ForwardingSettings()

EVENTS_MAX: Final = 10_000
"""Limit of events in one request."""

BODY_BYTES_MAX: Final = 8 * MIB
"""Limit of bytes in one request. A larger event cannot be forwarded."""

ATTEMPTS: Final = 3
"""How often a request whose reply is lost is sent before flushes raise the error."""


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
        for _ in range(ATTEMPTS):
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


SECRET_VARIABLE: Final = "ACCEL_FORWARDING_SECRET"  # noqa: S105 - a name
SECRET_FILE_VARIABLE: Final = "ACCEL_FORWARDING_SECRET_FILE"  # noqa: S105 - a name


@dataclass(frozen=True, slots=True)
class Peers:
    """How a process and the other owners reach each other. Threads: immutable.

    Args:
        listen: host and port; None = it does not listen.
        address: the URL of this process; empty = made of `listen`.
        secret: the secret that all processes share; empty = none.
        client: sends requests to other owners; None = no requests.
    """

    listen: tuple[str, int] | None = None
    address: str = ""
    secret: str = field(default="", repr=False)
    client: ForwardingClient | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls, listen: str, address: str, owners: Collection[str], secret: str | Path | None, settings: ForwardingSettings
    ) -> Peers:
        """Check the arguments of `connect`.

        Raises:
            As `connect`.
        """
        found, owners = _secret_of(secret), [checked_text("an address of an owner", each) for each in owners]
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
        if host in ("0.0.0.0", "[::]", "::") and not address:  # noqa: S104 - refused: others cannot connect to it
            raise InvalidArgument(f"expected an address by which others reach {listen}: address=..., found none")
        if address:
            checked_address(address)
        client = ForwardingClient(owners, found, settings=settings) if owners else None
        return cls((host.strip("[]"), int(port)) if listen else None, address, found, client)


def _secret_of(given: str | Path | None) -> str:
    if isinstance(given, Path):
        return given.read_text().strip()
    if given is not None:
        return checked_text("secret", given)
    path = os.environ.get(SECRET_FILE_VARIABLE)
    return os.environ.get(SECRET_VARIABLE) or (Path(path).read_text().strip() if path else "")


# For owners


class SegmentService:
    """Takes events of other processes for the segments of a host. Threads: any; no lock is held over I/O.

    Args:
        host: the host of the segments. Closing the service does not close it.
        owner_token: the token of this process's registration; each registration has a service of its own.
        streams: opened with this host, to carry out workflows; None = no workflows.
        settings: bounds of requests.
    """

    def __init__(
        self,
        host: ObjectSegments,
        owner_token: bytes,
        streams: StreamStore | None = None,
        *,
        settings: ForwardingSettings = DEFAULT_FORWARDING,
    ) -> None:
        self._streams = streams
        self._lifetime = Lifetime("a service of segments", host.system.process_id)
        self._host, self._owner_token = host, owner_token
        self.settings = settings
        self._lock = Lock()
        self._under_way = 0

    def take(self, request: AppendRequest) -> AppendReply:
        """Append new events of a request and make them durable; without events, return the writer's numbers.

        Raises:
            ValueError: invalid numbers or positions.
            The errors of `ObjectSegments.append_numbered` and `flush`, except those of a sealed segment or another
                node's: the next request shows whether the events are durable.
        """
        self._lifetime.check()
        if request.owner_token != self._owner_token:
            return AppendReply(Status.OTHER_OWNER)
        with self._lock:
            if self._under_way >= REQUESTS_MAX:
                return AppendReply(Status.BUSY)
            self._under_way += 1
        try:
            return self._taken(request)
        except SegmentSealed:
            return AppendReply(Status.SEALED)
        except CommitRefused:  # before the append; or after it, and then this node will never make it durable
            return AppendReply(Status.ELSEWHERE)
        finally:
            with self._lock:
                self._under_way -= 1

    def carry_out(self, request: CarryOutRequest) -> AppendReply:
        """Do this owner's part of the stream's workflow: DURABLE if it is finished, BUSY if it waits for others.

        Raises:
            The errors of `Stream.recover`, except that other owners have to do their parts.
        """
        self._lifetime.check()
        if self._streams is None or request.owner_token != self._owner_token:
            return AppendReply(Status.OTHER_OWNER)
        try:
            self._streams.stream(request.scope, request.stream).recover()
        except OperationNotAllowed:
            return AppendReply(Status.BUSY)
        return AppendReply(Status.DURABLE)

    def _taken(self, request: AppendRequest) -> AppendReply:
        name = request.scope, request.stream
        if not request.payloads:
            held = self._host.held_by(name, request.segment_id, request.writer_id)
            return AppendReply(Status.DURABLE, [], list(held.held), held.settled, held.has_forgotten)
        numbered = NumberedEvents(request.writer_id, request.numbers, request.positions, request.settled)
        futures = self._host.append_numbered(name, request.segment_id, request.payloads, numbered)
        self._host.flush()
        places = [future.result(self.settings.timeout_seconds) for future in futures]
        return AppendReply(Status.DURABLE, [REPEATED if place is None else place.offset for place in places])


def forwarding_app(service: SegmentService, secret: str) -> Starlette:
    """Return an ASGI application with the routes of a service.

    Args:
        service: handles the requests.
        secret: the secret that clients must send; at least 16 characters.

    Raises:
        MissingExtra: Starlette is not installed.
        InvalidArgument: a shorter secret.
    """
    try:
        from starlette.applications import Starlette  # noqa: PLC0415 - part of the extra `server`
        from starlette.routing import Route  # noqa: PLC0415 - part of the extra `server`
    except ImportError as error:
        raise MissingExtra("forwarding needs Starlette: pip install 'accel-streams[server]'") from error
    known = checked_secret(secret)
    most = EVENTS_MAX

    def append(body: bytes) -> AppendReply | None:
        wanted = msgspec.msgpack.decode(body, type=AppendRequest)
        return service.take(wanted) if len(wanted.payloads) <= most else None

    def carry_out(body: bytes) -> AppendReply:
        return service.carry_out(msgspec.msgpack.decode(body, type=CarryOutRequest))

    routes = {PATH: append, CARRY_OUT_PATH: carry_out}
    settings = service.settings
    return Starlette(
        routes=[Route(path, _endpoint(settings, known, act), methods=["POST"]) for path, act in routes.items()]
    )


class ForwardingServer:
    """Serves an application in a thread, by uvicorn, from `begin` on. Threads: any; only in the process that made it.

    Args:
        app: the application.
        listening: the socket to listen at; it is closed with the server.
        system: starts the thread.

    Raises:
        MissingExtra: uvicorn is not installed.
    """

    def __init__(self, app: Starlette, listening: socket, system: Components) -> None:
        try:
            from accel.listening import Server, listening_config  # noqa: PLC0415 - need uvicorn
        except ImportError as error:
            raise MissingExtra("listening needs uvicorn: pip install 'accel-streams[server]'") from error
        most, patience = LISTENING_CONNECTIONS_MAX, STOP_SECONDS
        config = listening_config(app, most, lifespan="off", timeout_graceful_shutdown=patience)
        self._server, self._ended = Server(config), Event()
        self._listening, self._system = listening, system
        self._serving = Lock()  # acquired for good by the thread that serves
        self._lifetime = Lifetime("a server of segments", system.process_id)

    def begin(self) -> None:
        """Serve from now on, in a thread. May be repeated."""
        self._system.start(self._serve, "accel-forwarding-server")

    def stop(self) -> None:
        """Accept no more requests, and wait up to 10 s for the end of requests under way."""
        if self._lifetime.is_here:
            self._server.should_exit = True
            if self._serving.locked():
                self._ended.wait(2 * STOP_SECONDS)

    def _serve(self) -> None:
        if not self._serving.acquire(blocking=False):
            return
        try:
            if not self._server.should_exit:
                self._server.run(sockets=[self._listening])
        finally:
            self._ended.set()


def _endpoint(
    settings: ForwardingSettings, secret: bytes, act: Callable[[bytes], AppendReply | None]
) -> Callable[[Request], object]:
    import asyncio  # noqa: PLC0415 - only a server needs it

    from starlette.concurrency import run_in_threadpool  # noqa: PLC0415 - part of the extra `server`
    from starlette.responses import Response  # noqa: PLC0415 - part of the extra `server`

    async def answer(request: Request) -> Response:
        given = request.headers.get("authorization", "").removeprefix("Bearer ").encode("utf-8", "replace")
        if not hmac.compare_digest(given, secret):
            return Response(status_code=401)
        async with asyncio.timeout(settings.timeout_seconds):
            body = await _bounded_body(request, BODY_BYTES_MAX)
        if body is None:
            return Response(status_code=413)
        try:
            reply = await run_in_threadpool(act, body)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            return Response(str(error), status_code=400)
        if reply is None:
            return Response(status_code=413)
        return Response(msgspec.msgpack.encode(reply), media_type="application/msgpack")

    return answer


async def _bounded_body(request: Request, most: int) -> bytes | None:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > most:
            return None
    return bytes(body)
