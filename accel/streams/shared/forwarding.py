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
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import TYPE_CHECKING, Final

import msgspec

from accel.errors import (
    AccelError,
    CommitRefused,
    FormatLimit,
    ForwardInDoubt,
    MissingExtra,
    OperationNotAllowed,
    OwnerUnreachable,
)
from accel.history.rules.values import segment_text
from accel.history.store import StreamStore
from accel.history.store.hosts import StreamName
from accel.settings import LISTENING_CONNECTIONS_MAX, checked_secret
from accel.streams.acknowledgements import EventPlace
from accel.streams.group_commit import EventSource
from accel.streams.open_segments import SegmentSealed
from accel.streams.rules.routing import Events, first_events
from accel.streams.segments_host import ObjectSegments
from accel.streams.settings import ForwardingSettings
from accel.streams.shared.owners import (
    CARRY_OUT_PATH,
    DEFAULT_FORWARDING,
    PATH,
    AppendReply,
    AppendRequest,
    CarryOutRequest,
    Owner,
    SharedSegments,
    Status,
)
from accel.streams.writer_numbers import REPEATED, EventLostError, NumberedEvents
from accel.system import Components
from loaders.lifetime import Lifetime

if TYPE_CHECKING:
    from socket import socket

    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

STOP_SECONDS: Final = 5
"""The time limit of requests under way when a server ends."""

HEAD_SIZE_BYTES: Final = 4096
"""Bytes reserved in a request for all fields except the events."""

logger = logging.getLogger(__name__)


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
            if self._under_way >= self.settings.requests_max:
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
    most = service.settings.events_max

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
            body = await _bounded_body(request, settings.body_bytes_max)
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


# For writers


@dataclass(slots=True, eq=False)
class _Lane:
    """The events for the owner of one segment, which are sent in one request at a time.

    Attributes:
        runs: events that were not sent.
        sent: events that were sent, without a reply yet.
        is_busy: whether a thread sends events of this lane.
    """

    owner: Owner
    segment_id: int
    runs: deque[Events] = field(default_factory=deque)
    sent: Events | None = None
    is_busy: bool = False

    @property
    def is_idle(self) -> bool:
        return not self.is_busy and not self.runs and self.sent is None


GiveBack = Callable[[int, Callable[[], Sequence[Events]]], object]
"""(segment id, function that ends the sending and returns the events that were not taken, in order): appends the events
again, before all later events. No event of the segment may be appended between the two steps."""


class Forwarding:
    """Sends events of one writer to the owners of their segments, one request at a time for each segment.

    A request without an answer is repeated until the owner's lease expires, or for `wait_seconds`; a flush raises the
    error. Events that the owner refuses go back to the writer, which finds the segment's new owner.

    Threads: any; its lock is held for memory accesses only.

    Args:
        shared: contains the client.
        name: scope and stream.
        source: the writer, whose flushes raise errors.
        numbered: returns the numbers of events.
        give_back: see `GiveBack`.
    """

    def __init__(
        self,
        shared: SharedSegments,
        name: StreamName,
        source: EventSource,
        numbered: Callable[[Events], NumberedEvents],
        give_back: GiveBack,
    ) -> None:
        self._shared, self._name, self._source, self._give_back = shared, name, source, give_back
        self._numbered = numbered
        self._commits, self._system = shared.host.commits, shared.host.system
        self._lock = Lock()  # guards the attributes below
        self._lanes: dict[int, _Lane] = {}
        self._since: dict[int, float] = {}  # when each segment's events began to wait in vain
        self._stopped = Event()

    def open(self, owners: Mapping[int, Owner]) -> None:
        """Send events of these segments to their owners from now on."""
        with self._lock:
            for segment_id, owner in owners.items():
                self._lanes.setdefault(segment_id, _Lane(owner, segment_id))

    def add(self, segment_id: int, run: Events) -> bool:
        """Take events for the owner of a segment; returns False if no owner was set. No request."""
        with self._lock:
            lane = self._lanes.get(segment_id)
            if lane is None:
                return False
            lane.runs.append(run)
            begins = not lane.is_busy and self._shared.is_beside
            lane.is_busy = lane.is_busy or begins
        if begins:
            self._shared.submit(lambda: self._work(lane))
        return True

    def are_idle(self, but: Collection[int]) -> bool:
        """Whether no events wait or are under way for segments other than these; if so, forgets the other segments."""
        with self._lock:
            others = [segment_id for segment_id in self._lanes if segment_id not in but]
            if not all(self._lanes[segment_id].is_idle for segment_id in others):
                return False
            for segment_id in others:
                del self._lanes[segment_id]
                self._since.pop(segment_id, None)
            return True

    @property
    def has_waiting(self) -> bool:
        """Whether events wait that the caller has to send; False with background threads."""
        with self._lock:
            return not self._shared.is_beside and not all(lane.is_idle for lane in self._lanes.values())

    def pump(self) -> bool:
        """Send waiting events, if there are no background threads; returns whether any request made progress.

        Raises:
            OwnerUnreachable, ForwardInDoubt: an owner does not answer; call again.
        """
        if self._shared.is_beside:
            return True
        with self._lock:
            lanes = [lane for lane in self._lanes.values() if not lane.is_idle]
        gone_on = not lanes
        for lane in lanes:
            while self._holds(lane) and self._step(lane):
                gone_on = True
        return gone_on

    def fail(self, error: BaseException) -> None:
        """Fail all waiting events, and send no more; events of a request under way are in doubt."""
        self._stopped.set()
        for lane in list(self._lanes.values()):
            if lane.is_busy and lane.sent is not None:
                owner, segment = lane.owner, f"{segment_text(lane.segment_id)} of {'/'.join(self._name)}"
                self._fail_sent(lane, lane.sent, ForwardInDoubt(owner.node_id, owner.address, segment))
            self._fail_lane(lane.segment_id, error)

    # One segment

    def _holds(self, lane: _Lane) -> bool:
        with self._lock:
            return self._lanes.get(lane.segment_id) is lane and (lane.sent is not None or bool(lane.runs))

    def _work(self, lane: _Lane) -> None:
        """Send the events of a segment, until none wait."""
        while self._goes_on(lane):
            try:
                has_gone_on = self._step(lane)
            except AccelError as error:
                self._commits.troubled(self._source, error)
                has_gone_on = False
            except BaseException as error:  # set as result of the events, because no caller waits for this thread
                self._fail_lane(lane.segment_id, error)
                raise
            if not has_gone_on and self._system.wait is not None:
                self._system.wait(self._stopped, self._shared.settings.pause_seconds)

    def _goes_on(self, lane: _Lane) -> bool:
        with self._lock:
            is_held = self._lanes.get(lane.segment_id) is lane
            lane.is_busy = is_held and (lane.sent is not None or bool(lane.runs))
            return lane.is_busy

    def _step(self, lane: _Lane) -> bool:
        """Send one request; returns whether the next one may follow at once.

        Raises:
            OwnerUnreachable, ForwardInDoubt: no reply, and the owner's lease is valid.
            AccelError: the table of owners could not be read.
        """
        events, client = self._next(lane), self._shared.client
        if events is None or client is None:
            return False
        try:
            request = self._request(lane, events)
        except EventLostError as lost:
            self._fail_sent(lane, events, lost.error)
            return True
        try:
            reply = client.append(lane.owner, request)
            if reply.status is Status.OTHER_OWNER:
                raise self._unreachable(lane, "another process there")
        except (OwnerUnreachable, ForwardInDoubt) as error:
            return self._heed(lane, error)
        if reply.status is Status.BUSY:
            self._check_waited(lane, self._unreachable(lane, "it busy"))
            return False
        if reply.status is Status.DURABLE and len(reply.offsets) == len(events.payloads):
            self._conclude(lane, events, reply.offsets)
        else:
            self._end(lane)
        return True

    def _next(self, lane: _Lane) -> Events | None:
        settings = self._shared.settings
        with self._lock:
            if lane.sent is None and lane.runs:
                lane.sent = first_events(lane.runs, settings.events_max, settings.body_bytes_max // 2)
            return lane.sent

    def _request(self, lane: _Lane, events: Events) -> AppendRequest:
        """Return the request for events.

        Raises:
            EventLostError: no event may be sent.
        """
        most = self._shared.settings.body_bytes_max - HEAD_SIZE_BYTES
        if len(events.payloads[0]) > most:
            segment = f"{segment_text(lane.segment_id)}, which another owner has"
            found = len(events.payloads[0])
            raise EventLostError(FormatLimit(f"expected an event of at most {most} bytes for {segment}, found {found}"))
        said = self._numbered(events)
        return AppendRequest(
            *self._name,
            lane.segment_id,
            lane.owner.token,
            said.writer_id,
            list(said.numbers),
            list(said.positions),
            said.settled,
            events.payloads,
        )

    def _conclude(self, lane: _Lane, events: Events, offsets: Sequence[int]) -> None:
        with self._lock:
            lane.sent = None
            self._since.pop(lane.segment_id, None)
        places = (EventPlace(lane.segment_id, offset) for offset in offsets)
        self._commits.conclude(zip(events.futures, places, strict=True), events.size_bytes)

    def _heed(self, lane: _Lane, error: OwnerUnreachable | ForwardInDoubt) -> bool:
        """Handle a missing reply: raise the error if the owner's lease is valid, else give the events back."""
        now = self._shared.owners.find(lane.owner.node_id)
        if now is not None and now.token == lane.owner.token and not now.is_expired(self._shared.owners.now_ms()):
            self._check_waited(lane, error)
            raise error
        self._end(lane)
        return True

    def _fail_sent(self, lane: _Lane, events: Events, error: BaseException) -> None:
        with self._lock:
            lane.sent = None
        self._commits.fail(events.futures, error, events.size_bytes)

    def _unreachable(self, lane: _Lane, found: str) -> OwnerUnreachable:
        segment = f"{segment_text(lane.segment_id)} of {'/'.join(self._name)}"
        return OwnerUnreachable(lane.owner.node_id, lane.owner.address, segment, found)

    def _check_waited(self, lane: _Lane, error: AccelError) -> None:
        """Fail the events of a segment that have waited for too long."""
        now = self._system.timer()
        with self._lock:
            since = self._since.setdefault(lane.segment_id, now)
        if now - since >= self._shared.settings.wait_seconds:
            self._fail_lane(lane.segment_id, error)

    def _end(self, lane: _Lane) -> None:
        """Give the remaining events of a segment back to the writer, because its owner takes no more."""

        def left() -> list[Events]:
            with self._lock:
                return self._closed(lane.segment_id)

        self._give_back(lane.segment_id, left)

    def _closed(self, segment_id: int) -> list[Events]:
        lane = self._lanes.pop(segment_id, None)
        if lane is None:
            return []
        return [*([] if lane.sent is None else [lane.sent]), *lane.runs]

    def _fail_lane(self, segment_id: int, error: BaseException) -> None:
        with self._lock:
            runs = self._closed(segment_id)
            self._since.pop(segment_id, None)
        futures = [future for run in runs for future in run.futures]
        self._commits.fail(futures, error, sum(run.size_bytes for run in runs))
