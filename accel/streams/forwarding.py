"""Writing a stream whose segments several processes own: events go to the owner of their key's segment.

    owner     registration = owners.register(address="http://10.0.0.7:8080")
              host = ObjectSegments(catalog, store, registration.node_id)
              app = forwarding_app(SegmentService(host, registration.owner.token), secret)         # served by uvicorn

    writer    client = ForwardingClient({"http://10.0.0.7:8080", "http://10.0.0.8:8080"}, secret)
              with SharedStreamWriter(stream, host, owners, client) as writer:
                  writer.write(b"...", key=b"order-17")

`SharedStreamWriter` routes events as every writer does. Those of segments that its own host has open, or that nobody
has, are appended there; those of others are sent to the address that their owner has registered; where an owner's lease
is over, its segment is taken over. What comes back as sealed or as another node's is routed anew. Events of one key go
out in their order, and none before the one before it is known to be durable or to be refused.

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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

import msgspec

from accel.errors import (
    AccelError,
    CommitRefused,
    ForwardInDoubt,
    IllegalState,
    InvalidArgument,
    MissingExtra,
    OperationNotAllowed,
    OwnerUnreachable,
    SegmentsElsewhere,
    StreamsReleased,
)
from accel.history.rules.states import StreamState
from accel.history.rules.values import segment_text
from accel.history.store import Stream, StreamStore
from accel.streams.acknowledgements import WriteFuture
from accel.streams.open_segments import SegmentSealed
from accel.streams.owners import (
    CARRY_OUT_PATH,
    DEFAULT_FORWARDING,
    NOTHING_KNOWN,
    PATH,
    AppendReply,
    AppendRequest,
    CarryOutRequest,
    ForwardingClient,
    Owner,
    OwnersTable,
    Status,
    checked_secret,
)
from accel.streams.rules.routing import KeyRouter, grouped, key_position
from accel.streams.segments_host import ObjectSegments
from accel.streams.settings import ForwardingSettings
from loaders.lifetime import Lifetime

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

T = TypeVar("T")
logger = logging.getLogger(__name__)


# The owner's side


class _Place(NamedTuple):
    name: tuple[str, str]
    segment_id: int
    writer_id: bytes


@dataclass(slots=True)
class _Progress:
    """Of one writer and segment: `appended` and `durable` are the numbers of the next event.

    `futures` tell of what is in between, each with the number behind it. Events below `refused_to` are past: a request
    that has some of them is a copy of the one that was answered by `refusal`.
    """

    appended: int
    durable: int
    is_busy: bool = True
    futures: list[tuple[WriteFuture, int]] = field(default_factory=list)
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
                progress.futures[0][0].result(self.settings.timeout_seconds)
                progress.durable = progress.futures.pop(0)[1]
        except StreamsReleased:  # what was appended will never be durable
            status = Status.ELSEWHERE
            progress.futures.clear()
        reply = AppendReply(status, progress.durable)
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


class _Waiting(NamedTuple):
    position: float
    payload: bytes


class _Doubt(NamedTuple):
    """Events that were sent, and of which no reply has told what became of them."""

    owner: Owner
    request: AppendRequest
    events: list[_Waiting]


class SharedStreamWriter:
    """Writes events to one stream, whoever owns its segments.

    Args:
        stream: opened with this host.
        host: of this process; its own segments are written through it. It is not closed with the writer.
        owners: where owners are looked up.
        client: asks other owners; None = segments of others are refused with an error that names their owner.
        settings: bounds.

    Raises:
        InvalidArgument: the stream was opened with another host.

    Threads: any, but one call at a time; a second one at the same time raises RuntimeError. It is of the process that
    opened it.
    """

    def __init__(
        self,
        stream: Stream,
        host: ObjectSegments,
        owners: OwnersTable,
        client: ForwardingClient | None = None,
        *,
        settings: ForwardingSettings = DEFAULT_FORWARDING,
    ) -> None:
        if stream.parts.host is not host:
            raise InvalidArgument(f"expected {stream.name} opened with the host that its writer has, found another one")
        self._lifetime = Lifetime(f"a shared writer of {stream.name}", host.system.process_id)
        self._stream, self._host, self._owners, self._client = stream, host, owners, client
        self.settings = settings
        scope, _, name = stream.name.partition("/")
        self._name = scope, name
        self._writer_id = host.system.nonce()
        self._busy = Lock()
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._doubt: _Doubt | None = None
        self._here: deque[tuple[WriteFuture, Sequence[_Waiting]]] = deque()  # appended, perhaps not durable
        self._lost: list[_Waiting] = []  # of these, those whose segment was taken over before they were durable
        self._remote: dict[int, Owner] = {}
        self._numbers: dict[int, int] = {}  # of the next event of each segment that is forwarded; they never go back
        self._looked_seconds = host.system.timer()
        self._router = KeyRouter(stream.active_segments())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()

    def __repr__(self) -> str:
        return f"SharedStreamWriter({self._stream.name!r}, {len(self._waiting)} events waiting)"

    def write(self, payload: bytes, key: bytes | str) -> None:
        """Write an event; it is durable after `flush`.

        Args:
            payload: of the event.
            key: events of one key stay in the order of writing. Text is taken as UTF-8.

        Raises:
            As `flush`, when 16 MiB wait; the event waits all the same.
        """
        if type(payload) is not bytes:
            raise TypeError(f"expected events of bytes, found {type(payload).__name__}")
        self._lifetime.check()
        self._waiting.append(_Waiting(key_position(key.encode() if isinstance(key, str) else key), payload))
        self._waiting_bytes += len(payload)
        if self._waiting_bytes >= self.settings.waiting_bytes_max:
            self.flush()

    def flush(self) -> None:
        """Make everything durable that was written, here or at the owners. What is not still waits, in its order.

        Raises:
            OwnerUnreachable: an owner has no address that may be asked, or does not answer, and its lease lasts.
            ForwardInDoubt: an owner died, or does not answer, with events on their way; whether they are durable is not
                known. Flushing again asks the same owner again.
            OperationNotAllowed: owners or scales took longer than `wait_seconds`.
            IllegalState: the stream is sealed.
            What `ObjectSegments.flush` and `ObjectSegments.take_over` raise.
        """
        self._lifetime.check()
        if not self._busy.acquire(blocking=False):
            raise RuntimeError("expected one call at a time, found a second one")
        try:
            waited = 0
            while self._doubt is not None or self._waiting or self._here or self._lost:
                self._keep([*self._lost, *self._waiting])
                if self._doubt is not None:
                    has_gone_on = self._settle_doubt()
                elif self._waiting:
                    has_gone_on = self._send_all()
                else:
                    self._settle_here()
                    has_gone_on = True
                if not has_gone_on:
                    waited = self._pause(waited)
            is_due = self._host.system.timer() - self._looked_seconds >= self.settings.requests_seconds
            if is_due:
                self._looked_seconds = self._host.system.timer()
                self._look()
        finally:
            self._busy.release()

    def carry_through(self, act: Callable[[], T]) -> T:
        """Run a workflow of the stream to its end, with the owners of its segments: each does its part when asked.

        Segments of owners whose lease is over are taken over for it.

        Args:
            act: what to do, as ``lambda: stream.scale(...)``; it is called again after each owner that was asked.

        Raises:
            SegmentsElsewhere: owners were asked, and did not do their part within `wait_seconds`.
            OwnerUnreachable: one of them cannot be asked, and its lease lasts.
            What `act` raises.
        """
        waited = 0
        while True:
            try:
                return act()
            except SegmentsElsewhere as error:
                if waited * self.settings.pause_seconds >= self.settings.wait_seconds:
                    raise
                if waited:
                    self._host.system.sleep(self.settings.pause_seconds)
                waited += 1
                for node_id in error.nodes:
                    self._ask_for_its_part(node_id)

    def close(self) -> None:
        """Flush; it takes no more events then."""
        self._lifetime.check_process()
        if not self._lifetime.is_closed:
            self.flush()
            self._lifetime.close()

    # Inside; one call at a time

    def _ask_for_its_part(self, node_id: int) -> None:
        owner = self._owners.find(node_id)
        if owner is not None and owner.is_expired(self._owners.now_ms()):
            ids = self._stream.active_segments().ids.tolist()
            theirs = [each for each in ids if self._host.node_of(self._name, each) == node_id]
            with suppress(CommitRefused):  # another process came first
                self._host.take_over(self._name, dict.fromkeys(theirs, node_id))
        elif owner is None or self._client is None:
            address = "" if owner is None else owner.address
            raise OwnerUnreachable(node_id, address, f"segments of {self._stream.name}", "no address that may be asked")
        else:
            self._client.carry_out(owner, CarryOutRequest(*self._name, owner.token))

    def _look(self) -> None:
        try:
            self._stream.carry_out_requests()
        except AccelError:
            logger.warning("%s: requests of others are left to the next look", self._stream.name, exc_info=True)

    def _send_all(self) -> bool:
        """Send what waits, segment by segment; gives whether any of it went out."""
        waiting = list(self._waiting)
        routed = grouped(self._router.route([each.position for each in waiting]))
        gone: set[int] = set()
        try:
            for segment_id, places in routed:
                for count in self._sent(segment_id, [waiting[at] for at in places]):
                    gone.update(places[:count])
                if self._lost:  # they come before all others
                    break
        finally:
            self._keep([*self._lost, *(each for at, each in enumerate(waiting) if at not in gone)])
        return bool(gone)

    def _keep(self, waiting: Iterable[_Waiting]) -> None:
        self._waiting = deque(waiting)
        self._waiting_bytes = sum(len(each.payload) for each in self._waiting)
        self._lost = []

    def _sent(self, segment_id: int, events: Sequence[_Waiting]) -> Iterator[int]:
        """Send events of one segment; says again and again how many of them need not wait here any more."""
        owner = self._remote.get(segment_id) or self._owner(segment_id)
        if owner is None:
            yield self._append_here(segment_id, events)
            return
        self._settle_here()  # what was appended here goes before what is sent
        if self._lost:
            return
        self._remote[segment_id] = owner
        done = 0
        while done < len(events):
            part = self._part(events, done)
            number = self._numbers.get(segment_id, 0)
            payloads = [each.payload for each in part]
            request = AppendRequest(*self._name, segment_id, owner.token, self._writer_id, number, False, payloads)
            try:
                reply = self._asked(owner, request)
            except ForwardInDoubt:
                self._doubt = _Doubt(owner, request, part)
                yield done + len(part)
                raise
            if reply is None:
                return
            done += self._taken(request, reply)
            yield done
            if reply.status is Status.SEALED:
                self._follow(segment_id)
            if reply.status is not Status.DURABLE:
                return

    def _settle_doubt(self) -> bool:
        """Ask once more what became of events; those that were not taken wait again, before all others."""
        doubt = self._doubt
        if doubt is None or self._client is None:
            return True
        reply = self._client.append(doubt.owner, msgspec.structs.replace(doubt.request, is_repeat=True))
        if reply.status is Status.BUSY:
            return False
        count = self._taken(doubt.request, reply)
        self._doubt = None
        self._keep([*self._lost, *doubt.events[count:], *self._waiting])
        if reply.status is Status.SEALED:
            self._follow(doubt.request.segment_id)
        return True

    def _append_here(self, segment_id: int, events: Sequence[_Waiting]) -> int:
        try:
            future = self._host.append(self._name, segment_id, [each.payload for each in events])
        except SegmentSealed:
            self._follow(segment_id)
        except CommitRefused:
            return 0  # another node came first: it is looked up anew
        else:
            self._here.append((future, events))
            return len(events)
        return 0

    def _settle_here(self) -> None:
        """Make durable what was appended here; what another node's take-over came before is lost here.

        Raises:
            What `ObjectSegments.flush` raises; it goes on when it is called again.
        """
        if self._here:
            self._host.flush()
        while self._here:
            future, events = self._here[0]
            try:
                future.result(self.settings.timeout_seconds)
            except StreamsReleased:
                self._lost += events
            self._here.popleft()

    def _owner(self, segment_id: int) -> Owner | None:
        """The owner that events of a segment go to; None = this process.

        Raises:
            OwnerUnreachable: it has no address that may be asked, and its lease lasts.
        """
        node_id = self._host.node_of(self._name, segment_id)
        owner = None if node_id is None else self._owners.find(node_id)
        if node_id is not None and owner is not None and owner.is_expired(self._owners.now_ms()):
            node_id = self._after_take_over(segment_id, node_id)
            owner = None if node_id is None else self._owners.find(node_id)
        if node_id is None or node_id == self._host.node_id:
            return None
        if owner is None or self._client is None or not self._client.may_ask(owner):
            address = "" if owner is None else owner.address
            text = f"{segment_text(segment_id)} of {self._stream.name}"
            raise OwnerUnreachable(node_id, address, text, "no address that may be asked")
        return owner

    def _after_take_over(self, segment_id: int, node_id: int) -> int | None:
        """The node that has a segment, after it was tried to take it over from an owner whose lease is over."""
        if node_id != self._host.node_id:
            try:
                self._host.take_over(self._name, {segment_id: node_id})
            except CommitRefused:  # another one came first, or the owner has opened it anew
                return self._host.node_of(self._name, segment_id)
        return self._host.node_id

    def _asked(self, owner: Owner, request: AppendRequest) -> AppendReply | None:
        """Ask an owner; None if it is not there, and no owner any more."""
        if self._client is None:
            raise AssertionError("an owner is only looked up where there is a client")
        try:
            return self._client.append(owner, request)
        except OwnerUnreachable:
            now = self._owners.find(owner.node_id)
            if now is not None and now.token == owner.token and not now.is_expired(self._owners.now_ms()):
                raise
            del self._remote[request.segment_id]
            return None

    def _part(self, events: Sequence[_Waiting], start: int) -> list[_Waiting]:
        room = self.settings.body_bytes_max // 2  # the rest: lengths and the head
        part: list[_Waiting] = []
        for each in events[start : start + self.settings.events_max]:
            room -= len(each.payload) + 5
            if part and room < 0:
                break
            part.append(each)
        return part

    def _taken(self, request: AppendRequest, reply: AppendReply) -> int:
        """How many events a reply says to be durable; the others are looked up anew if they were refused."""
        segment_id = request.segment_id
        if reply.status not in (Status.DURABLE, Status.BUSY):
            self._remote.pop(segment_id, None)
        if reply.next_number == NOTHING_KNOWN:
            return 0
        if reply.status is not Status.BUSY:
            end = request.number + len(request.payloads)  # what was refused gets other numbers
            self._numbers[segment_id] = max(self._numbers.get(segment_id, 0), end)
        return min(max(0, reply.next_number - request.number), len(request.payloads))

    def _follow(self, segment_id: int) -> None:
        """A segment is sealed: its keys go to those that follow it, once there is an epoch without it."""
        self._settle_here()  # what was appended before goes the same way, and first
        segments = self._stream.active_segments()
        if segment_id not in segments.ids:
            self._router = KeyRouter(segments)
        elif self._stream.state() in (StreamState.SEALING, StreamState.SEALED):
            raise IllegalState(f"expected a stream that takes writes, found {self._stream.name} sealed")

    def _pause(self, waited: int) -> int:
        if waited * self.settings.pause_seconds >= self.settings.wait_seconds:
            raise OperationNotAllowed(
                f"expected owners that take {len(self._waiting)} events; waited {self.settings.wait_seconds} s for it"
            )
        self._host.system.sleep(self.settings.pause_seconds)
        return waited + 1
