"""Forwarding: events go to the owner of their key's segment, whichever process that is.

    one call  accel.connect(url, listen="10.0.0.7:8080", owners=["http://10.0.0.8:8080"], secret=Path("secret"))

    by parts  registration = owners.register(address="http://10.0.0.7:8080")
              host = ObjectSegments(catalog, store, registration.node_id)
              app = forwarding_app(SegmentService(host, registration.owner.token, streams), secret)      # for uvicorn

              segments = SharedSegments(host, owners, ForwardingClient({"http://10.0.0.8:8080"}, secret))
              with StreamWriter(StreamStore.open(store, host=segments).stream("shop", "orders"), segments) as writer:
                  writer.write(b"...", key=b"order-17")

A `StreamWriter` of `SharedSegments` appends events of segments that its own host has, or that nobody has. For each
segment of another owner it has one request at a time under way (`Forwarding`), so events of one key go out in their
order, and none before the one before it is known to be durable or to be refused. Where an owner's lease is over, its
segment is taken over. What comes back as sealed or as another node's is routed anew, and so is what was appended here,
and is not durable, when another node takes the segment over.

**What is sent** is one POST to ``<address>/accel/append``, with a shared secret in ``Authorization: Bearer``, compared
in constant time, and a MessagePack body:

    request   scope, stream, segment_id     the segment, by the history
              owner_token                   of the registration that is meant: another process refuses it
              writer_id, number             16 bytes, and the number of the first event: 0 for the first one that this
                                            writer sends to this segment, and one more for each that follows; an event
                                            that was refused gets another number when it is sent again
              is_repeat                     whether some of it was sent before
              payloads                      of the events
    reply     status                        see `Status`
              next_number                   events of this writer below it are durable; -1: nothing is known of it
              placed_number, placed_offset  that event stands at that offset, and behind it, without a gap, those that
                                            follow up to `next_number`; -1: not known

A second route, ``<address>/accel/carry-out`` with a `CarryOutRequest`, asks an owner to do its part of the workflow
that has a stream, at once: so a scale of segments of several owners ends whichever process asked for it.

Only addresses that the client is given are asked, whatever stands in the table of owners, and no redirect is followed.
Size, number of events, time, and requests at one time are bounded on both sides.

**Once.** The owner keeps the next number of each writer and segment, and leaves out what it has appended already; so a
request whose reply was lost is sent again. It keeps that in memory, for as long as its registration lasts: a process
that comes after it knows nothing of it, and says so. What was on its way to an owner that died is then in doubt
(`ForwardInDoubt`): the writer does not send it again by itself, as that may bring it twice. The segment tells.

Source: docs/decisions/0039-segments-have-owners.md.
"""

from __future__ import annotations

import hmac
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from accel.errors import (
    AccelError,
    CommitRefused,
    FormatLimit,
    ForwardInDoubt,
    MissingExtra,
    OperationNotAllowed,
    OwnerUnreachable,
    StreamsReleased,
)
from accel.history.rules.values import segment_text
from accel.history.store import StreamStore
from accel.history.store.hosts import StreamName
from accel.streams.acknowledgements import EventPlace, WriteFuture
from accel.streams.group_commit import EventSource
from accel.streams.open_segments import SegmentSealed, offsets_of
from accel.streams.owners import (
    CARRY_OUT_PATH,
    DEFAULT_FORWARDING,
    NOTHING_KNOWN,
    PATH,
    AppendReply,
    AppendRequest,
    CarryOutRequest,
    Owner,
    SharedSegments,
    Status,
    checked_secret,
)
from accel.streams.rules.routing import Events, first_events
from accel.streams.segments_host import ObjectSegments
from accel.streams.settings import ForwardingSettings
from accel.streams.writer_numbers import REPEATED
from accel.system import Components
from loaders.lifetime import Lifetime

if TYPE_CHECKING:
    from socket import socket

    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

STOP_SECONDS: Final = 5
"""How long requests under way may take when a server ends."""

HEAD_SIZE_BYTES: Final = 4096
"""Room in a request for all but the events."""

logger = logging.getLogger(__name__)


# The owner's side


class _Place(NamedTuple):
    name: tuple[str, str]
    segment_id: int
    writer_id: bytes


@dataclass(slots=True)
class _Progress:
    """Of one writer and segment: `appended` and `durable` are the numbers of the next event.

    `futures` tell of what is in between, each with the number behind it; `placed` has the number and the offset of the
    first event that the last of them told of. Events below `refused_to` are past: a request
    that has some of them is a copy of the one that was answered by `refusal`.
    """

    appended: int
    durable: int
    is_busy: bool = True
    futures: list[tuple[WriteFuture, int]] = field(default_factory=list)
    placed: tuple[int, int] = (NOTHING_KNOWN, NOTHING_KNOWN)
    refused_to: int = 0
    refusal: AppendReply | None = None


class SegmentService:
    """Takes events of other processes for the segments of a host. Threads: any; no lock is held over I/O.

    Args:
        host: it is not closed with this.
        owner_token: of the registration of this process; each registration has a service of its own.
        streams: opened with this host, to carry workflows out; None = it does none.
        settings: bounds.
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
        self._writers: OrderedDict[_Place, _Progress] = OrderedDict()
        self._under_way = 0
        self._has_forgotten = False

    def take(self, request: AppendRequest) -> AppendReply:
        """Append events, and make them durable; those that were appended before are left out.

        Raises:
            What `ObjectSegments.append` and `flush` raise, but for a segment that is sealed or another node's: whether
                they are durable the next request tells.
        """
        self._lifetime.check()
        if request.owner_token != self._owner_token:
            return AppendReply(Status.OTHER_OWNER)
        place = _Place((request.scope, request.stream), request.segment_id, request.writer_id)
        progress = self._begin(place, request)
        if isinstance(progress, AppendReply):
            return progress
        try:
            return self._taken(place, request, progress)
        finally:
            with self._lock:
                progress.is_busy = False
                self._under_way -= 1

    def carry_out(self, request: CarryOutRequest) -> AppendReply:
        """Do this owner's part of the workflow that has a stream: DURABLE if it is over, BUSY if it waits for others.

        Raises:
            What `Stream.recover` raises, but that other owners have to do their parts.
        """
        self._lifetime.check()
        if self._streams is None or request.owner_token != self._owner_token:
            return AppendReply(Status.OTHER_OWNER)
        try:
            self._streams.stream(request.scope, request.stream).recover()
        except OperationNotAllowed:
            return AppendReply(Status.BUSY)
        return AppendReply(Status.DURABLE)

    def _taken(self, place: _Place, request: AppendRequest, progress: _Progress) -> AppendReply:
        status = self._append(place, request, progress)
        try:
            if progress.futures:
                self._host.flush()
            while progress.futures:
                first = progress.futures[0][0].result(self.settings.timeout_seconds)
                if first is not None:
                    progress.placed = (progress.durable, first.offset)
                progress.durable = progress.futures.pop(0)[1]
        except StreamsReleased:  # what was appended will never be durable
            status = Status.ELSEWHERE
            progress.futures.clear()
        reply = AppendReply(status, progress.durable, *progress.placed)
        if status is not Status.DURABLE:
            # The writer gives other numbers to what was refused: copies of this request get the same reply, for ever.
            progress.refused_to, progress.refusal = request.number + len(request.payloads), reply
            progress.appended = progress.durable = progress.refused_to
        return reply

    def _begin(self, place: _Place, request: AppendRequest) -> _Progress | AppendReply:
        with self._lock:
            known = self._writers.get(place)
            if known is None and request.is_repeat:
                return AppendReply(Status.OTHER_OWNER if self._has_forgotten else Status.UNKNOWN)
            if self._under_way >= self.settings.requests_max or (known is not None and known.is_busy):
                return AppendReply(Status.BUSY, NOTHING_KNOWN if known is None else known.durable)
            if known is not None and known.refusal is not None and request.number < known.refused_to:
                return known.refusal
            if known is not None and request.number > known.appended:  # those between went to another owner meanwhile
                known.appended = known.durable = request.number
            if known is None:
                known = self._writers[place] = _Progress(request.number, request.number)
                self._forget_idle()
            known.is_busy = True
            self._writers.move_to_end(place)
            self._under_way += 1
            return known

    def _append(self, place: _Place, request: AppendRequest, progress: _Progress) -> Status:
        new = request.payloads[progress.appended - request.number :]
        if new:
            try:
                future = self._host.append(place.name, place.segment_id, new)
            except SegmentSealed:
                return Status.SEALED
            except CommitRefused:
                return Status.ELSEWHERE
            progress.appended += len(new)
            progress.futures.append((future, progress.appended))
        return Status.DURABLE

    def _forget_idle(self) -> None:
        while len(self._writers) > self.settings.writers_max:
            idle = next((place for place, progress in self._writers.items() if not progress.is_busy), None)
            if idle is None:
                return
            del self._writers[idle]
            self._has_forgotten = True


def forwarding_app(service: SegmentService, secret: str) -> Starlette:
    """An ASGI application with the one route of a service.

    Args:
        service: what answers.
        secret: that clients must have; at least 16 characters.

    Raises:
        MissingExtra: Starlette is not installed.
        InvalidArgument: a shorter secret.
    """
    try:
        from starlette.applications import Starlette  # noqa: PLC0415 - the extra `server` brings it
        from starlette.routing import Route  # noqa: PLC0415 - likewise
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
    """Serves an application beside the caller, by uvicorn. Threads: any; it is of the process that opened it.

    Args:
        app: what answers.
        listening: where; closed with this.
        system: starts the thread.

    Raises:
        MissingExtra: uvicorn is not installed.
    """

    def __init__(self, app: Starlette, listening: socket, system: Components) -> None:
        try:
            import uvicorn  # noqa: PLC0415 - the extra `server` brings it
        except ImportError as error:
            raise MissingExtra("listening needs uvicorn: pip install 'accel-streams[server]'") from error
        config = uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=STOP_SECONDS
        )
        self._server, self._ended = uvicorn.Server(config), Event()
        self._lifetime = Lifetime("a server of segments", system.process_id)

        def serve() -> None:
            try:
                self._server.run(sockets=[listening])
            finally:
                self._ended.set()

        system.start(serve, "accel-forwarding-server")

    def stop(self) -> None:
        """Take nothing more, and end, after requests that are under way; at the latest after 10 s."""
        if self._lifetime.is_here:
            self._server.should_exit = True
            self._ended.wait(2 * STOP_SECONDS)


def _endpoint(
    settings: ForwardingSettings, secret: bytes, act: Callable[[bytes], AppendReply | None]
) -> Callable[[Request], object]:
    import asyncio  # noqa: PLC0415 - only a server needs it

    from starlette.concurrency import run_in_threadpool  # noqa: PLC0415 - the extra `server` brings it
    from starlette.responses import Response  # noqa: PLC0415 - likewise

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
        except msgspec.DecodeError as error:
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


# The writer's side


@dataclass(slots=True, eq=False)
class _Sent:
    """Events that an owner was asked to take, and that no reply has told of."""

    request: AppendRequest
    events: Events


@dataclass(slots=True, eq=False)
class _Lane:
    """What goes to the owner of one segment, a request at a time.

    Attributes:
        runs: events that were not sent.
        sent: those that were.
        is_busy: whether a thread works on it.
    """

    owner: Owner
    segment_id: int
    runs: deque[Events] = field(default_factory=deque)
    sent: _Sent | None = None
    is_busy: bool = False

    @property
    def is_idle(self) -> bool:
        return not self.is_busy and not self.runs and self.sent is None


GiveBack = Callable[[int, Callable[[], Sequence[Events]]], object]
"""(segment id, gives its events that were not taken, in their order, and from then on none is sent): they are written
again, before all that was written later. Nothing of the segment may be appended between the two."""


class Forwarding:
    """Sends events of one writer to the owners of their segments, one request at a time for each segment.

    An owner that does not answer is asked again until its lease is over, or for `wait_seconds`; a flush tells of it.
    What a reply says not to be taken goes back to the writer, which finds the segment's new owner.

    Threads: any; its lock is held for memory alone.

    Args:
        shared: has the client.
        name: scope and stream.
        source: the writer, for those who flush.
        give_back: see `GiveBack`.
    """

    def __init__(self, shared: SharedSegments, name: StreamName, source: EventSource, give_back: GiveBack) -> None:
        self._shared, self._name, self._source, self._give_back = shared, name, source, give_back
        self._commits, self._system = shared.host.commits, shared.host.system
        self._writer_id = self._system.nonce()
        self._lock = Lock()  # guards what follows
        self._lanes: dict[int, _Lane] = {}
        self._numbers: dict[int, int] = {}  # of the next event of each segment that is forwarded; they never go back
        self._since: dict[int, float] = {}  # when each segment's events began to wait in vain
        self._stopped = Event()

    def open(self, owners: Mapping[int, Owner]) -> None:
        """From now on events of these segments go to their owners."""
        with self._lock:
            for segment_id, owner in owners.items():
                self._lanes.setdefault(segment_id, _Lane(owner, segment_id))

    def add(self, segment_id: int, run: Events) -> bool:
        """Take events that go to an owner; False if the segment has none here. No request."""
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
        """Whether nothing is on its way, or waits, for any segment but these; forgets those which are not of these."""
        with self._lock:
            others = [segment_id for segment_id in self._lanes if segment_id not in but]
            if not all(self._lanes[segment_id].is_idle for segment_id in others):
                return False
            for segment_id in others:
                del self._lanes[segment_id]
            for segment_id in [each for each in self._numbers if each not in but]:
                del self._numbers[segment_id]
                self._since.pop(segment_id, None)
            return True

    @property
    def has_waiting(self) -> bool:
        """Whether the caller has something to send: only where nothing is sent beside the callers."""
        with self._lock:
            return not self._shared.is_beside and not all(lane.is_idle for lane in self._lanes.values())

    def pump(self) -> bool:
        """Send what waits, where nothing is sent beside the callers; gives whether anything has gone on.

        Raises:
            OwnerUnreachable, ForwardInDoubt: an owner does not answer; it is to be done again.
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
        """Nothing that waits here will be sent any more."""
        self._stopped.set()
        for segment_id in list(self._lanes):
            self._fail_lane(segment_id, error)

    # One segment

    def _holds(self, lane: _Lane) -> bool:
        with self._lock:
            return self._lanes.get(lane.segment_id) is lane and (lane.sent is not None or bool(lane.runs))

    def _work(self, lane: _Lane) -> None:
        """Send what waits for a segment, until nothing does."""
        while self._goes_on(lane):
            try:
                has_gone_on = self._step(lane)
            except AccelError as error:
                self._commits.troubled(self._source, error)
                has_gone_on = False
            except BaseException as error:  # goes to those who wrote the events, as nobody waits for this thread
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
        """One request; gives whether the next one may follow at once.

        Raises:
            OwnerUnreachable, ForwardInDoubt: no reply, and its lease lasts.
            AccelError: the table of owners could not say.
        """
        sent = self._next(lane)
        client = self._shared.client
        if sent is None or client is None:
            return False
        if sent.events.size_bytes > self._shared.settings.body_bytes_max - HEAD_SIZE_BYTES:
            self._fail_sent(lane, sent, FormatLimit(self._too_large(sent.events.size_bytes)))
            return True
        try:
            reply = client.append(lane.owner, sent.request)
            if reply.status is Status.OTHER_OWNER:
                raise self._unreachable(lane, "another process there")
        except (OwnerUnreachable, ForwardInDoubt) as error:
            return self._heed(lane, sent, error)
        return self._taken(lane, sent, reply)

    def _next(self, lane: _Lane) -> _Sent | None:
        settings = self._shared.settings
        with self._lock:
            if lane.sent is None and lane.runs:
                events = first_events(lane.runs, settings.events_max, settings.body_bytes_max // 2)
                number = self._numbers.get(lane.segment_id, 0)
                token = lane.owner.token
                request = AppendRequest(
                    *self._name, lane.segment_id, token, self._writer_id, number, False, events.payloads
                )
                lane.sent = _Sent(request, events)
            return lane.sent

    def _taken(self, lane: _Lane, sent: _Sent, reply: AppendReply) -> bool:
        request, events = sent.request, sent.events
        if reply.status is Status.BUSY:  # perhaps with a copy of this one
            self._check_waited(lane, self._unreachable(lane, "it busy"))
            with self._lock:
                sent.request = msgspec.structs.replace(request, is_repeat=True)
            return False
        count = min(max(0, reply.next_number - request.number), len(events.payloads))
        done, rest = events.chosen(range(count)), events.chosen(range(count, len(events.payloads)))
        with self._lock:
            self._pass_numbers(sent)
            lane.sent = None
            if rest.payloads:
                lane.runs.appendleft(rest)
            if count:
                self._since.pop(lane.segment_id, None)
        offsets = self._offsets(request.number, done.payloads, reply)
        places = (EventPlace(lane.segment_id, offset) for offset in offsets)
        self._commits.conclude(zip(done.futures, places, strict=True), done.size_bytes)
        if reply.status is not Status.DURABLE:
            self._end(lane)
        return True

    def _offsets(self, number: int, payloads: Sequence[bytes], reply: AppendReply) -> Sequence[int]:
        """Where events stand; those before the one that the reply places are durable since an earlier request."""
        if not payloads or reply.placed_offset < 0 or not 0 <= reply.placed_number - number < len(payloads):
            return [REPEATED] * len(payloads)
        unknown = reply.placed_number - number
        known = offsets_of(reply.placed_offset, payloads[unknown:], self._shared.host.unit(self._name))
        return [*[REPEATED] * unknown, *known]

    def _heed(self, lane: _Lane, sent: _Sent, error: OwnerUnreachable | ForwardInDoubt) -> bool:
        """No reply: the error again, if the owner is to be asked again; else its segment is looked up anew."""
        is_doubtful = isinstance(error, ForwardInDoubt)
        if is_doubtful:
            with self._lock:
                sent.request = msgspec.structs.replace(sent.request, is_repeat=True)
        now = self._shared.owners.find(lane.owner.node_id)
        if now is not None and now.token == lane.owner.token and not now.is_expired(self._shared.owners.now_ms()):
            self._check_waited(lane, error)
            raise error
        if is_doubtful:
            self._fail_sent(lane, sent, error)
        self._end(lane)
        return True

    def _fail_sent(self, lane: _Lane, sent: _Sent, error: AccelError) -> None:
        with self._lock:
            self._pass_numbers(sent)
            lane.sent = None
        self._commits.fail(sent.events.futures, error, sent.events.size_bytes)

    def _pass_numbers(self, sent: _Sent) -> None:
        """What was sent and is not durable gets other numbers if it is sent again."""
        end = sent.request.number + len(sent.events.payloads)
        self._numbers[sent.request.segment_id] = max(end, self._numbers.get(sent.request.segment_id, 0))

    def _unreachable(self, lane: _Lane, found: str) -> OwnerUnreachable:
        segment = f"{segment_text(lane.segment_id)} of {'/'.join(self._name)}"
        return OwnerUnreachable(lane.owner.node_id, lane.owner.address, segment, found)

    def _too_large(self, size_bytes: int) -> str:
        most = self._shared.settings.body_bytes_max - HEAD_SIZE_BYTES
        return f"expected an event of at most {most} bytes for a segment of another owner, found {size_bytes}"

    def _check_waited(self, lane: _Lane, error: AccelError) -> None:
        """Fail what waits for a segment, if it has waited for too long."""
        now = self._system.timer()
        with self._lock:
            since = self._since.setdefault(lane.segment_id, now)
        if now - since >= self._shared.settings.wait_seconds:
            self._fail_lane(lane.segment_id, error)

    def _end(self, lane: _Lane) -> None:
        """The owner takes no more for this segment: what is left goes back to the writer."""

        def left() -> list[Events]:
            with self._lock:
                return self._closed(lane.segment_id)

        self._give_back(lane.segment_id, left)

    def _closed(self, segment_id: int) -> list[Events]:
        lane = self._lanes.pop(segment_id, None)
        if lane is None:
            return []
        if lane.sent is None:
            return list(lane.runs)
        self._pass_numbers(lane.sent)
        return [lane.sent.events, *lane.runs]

    def _fail_lane(self, segment_id: int, error: BaseException) -> None:
        with self._lock:
            runs = self._closed(segment_id)
            self._since.pop(segment_id, None)
        futures = [future for run in runs for future in run.futures]
        self._commits.fail(futures, error, sum(run.size_bytes for run in runs))
