"""The segments of several owners: those of this process, and what sends events to the owners of the others.

Source: docs/decisions/0015-owners-and-scaling.md.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import Final, TypeVar
from uuid import UUID

from accel.errors import (
    AccelError,
    CommitRefused,
    FormatLimit,
    ForwardInDoubt,
    OwnerUnreachable,
    SegmentsElsewhere,
)
from accel.history.rules.segments import Segments
from accel.history.rules.values import IdMap, Integers, segment_text, some_ids
from accel.history.store.segment_host import StreamName
from accel.streams.acknowledgements import EventPlace
from accel.streams.group_commit import EventSource
from accel.streams.rules.routing import Events, first_events
from accel.streams.segments_host import GiveBack, ObjectSegments
from accel.streams.shared.forwarding import (
    BODY_BYTES_MAX,
    DEFAULT_FORWARDING,
    EVENTS_MAX,
    AppendRequest,
    CarryOutRequest,
    ForwardingClient,
    Status,
)
from accel.streams.shared.owners import Owner, OwnersTable, is_registered_here
from accel.streams.writer_numbers import (
    EventLostError,
    NumberedEvents,
    Progress,
    WriterHeld,
    progress_of,
)
from loaders.threads import Threads

HEAD_SIZE_BYTES: Final = 4096
"""Bytes reserved in a request for all fields except the events."""

CONNECTIONS_MAX: Final = 16
"""Limit of requests that a process has under way to other owners, one for each segment."""

PAUSE_SECONDS: Final = 0.2
"""The pause before the next request to the same owner."""

T = TypeVar("T")


# The segments of several owners


class SharedSegments:
    """Segments of this process together with the segments of other owners; a `Host`.

    A call of a workflow is carried out here for the segments that this process has; then the other owners are asked to
    do their parts, and this process takes over segments of owners whose leases have expired. If an owner cannot be
    reached, the call raises `SegmentsElsewhere`, and the workflow continues when the owner looks for it.

    Args:
        host: the host of this process. Closing this object does not close the host.
        owners: the table of owners.
        client: sends requests to other owners; None = no requests.
        keeps: what has to live as long as a writer of these segments: the connection that closes the host.

    Threads: any; no lock is held over I/O. Requests of writers are made by threads of its own, at most
    `CONNECTIONS_MAX`, if the system of the host has a `wait`. Of the process that opened it.

    Attributes:
        own: the host; owners, client, keeps: as the arguments; settings: those of the client.
    """

    are_shared: Final = True

    def __init__(
        self,
        host: ObjectSegments,
        owners: OwnersTable,
        client: ForwardingClient | None = None,
        *,
        keeps: object = None,
    ) -> None:
        self.own, self.owners, self.client, self.keeps = host, owners, client, keeps
        self.settings = DEFAULT_FORWARDING if client is None else client.settings
        self._threads: Threads | None = None
        self._collects_seconds, self._collects_pause = 0.0, 0.25
        if host.system.wait is not None:
            self._threads = Threads(CONNECTIONS_MAX, "accel-forwarding", process_id=host.system.process_id)

    def __repr__(self) -> str:
        return f"SharedSegments({self.own!r})"

    def close(self) -> None:
        """Start no more requests; does not wait for requests under way."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    # For writers

    @property
    def has_threads(self) -> bool:
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
            elsewhere = self.own.open_segments(stream, ids, are_numbered=are_numbered, is_shared=True)
        except CommitRefused:  # another process opened some at the same time: the next look shows which
            return {}, None
        for segment_id, node_id in elsewhere.items():
            by_node.setdefault(node_id, []).append(segment_id)
        for node_id, theirs in by_node.items():
            owner = self.owners.find(node_id)
            if owner is not None and owner.is_expired(self.owners.now_ms()):
                with suppress(CommitRefused):  # another process was first, or the owner opened it again
                    self.own.take_over(stream, dict.fromkeys(theirs, node_id))
            elif owner is not None and self.client is not None and self.client.may_ask(owner):
                found |= dict.fromkeys(theirs, owner)
            else:
                trouble = self._unreachable(node_id, owner, f"{some_ids(theirs)} of {'/'.join(stream)}")
        return found, trouble

    def outboxes(
        self,
        name: StreamName,
        source: EventSource,
        numbered: Callable[[Events], NumberedEvents],
        give_back: GiveBack,
    ) -> Forwarding | None:
        """Return what sends a writer's events to other owners; None without a client."""
        return None if self.client is None else Forwarding(self, name, source, numbered, give_back)

    def progress_of(self, stream: StreamName, segments: Segments, writer_id: bytes) -> Progress:
        """Return the progress of a writer in the segments of all owners; see `ObjectSegments.progress_of`.

        Waits for an owner that does not answer until its lease must have expired: it may be a dead predecessor of this
        process.

        Raises:
            OwnerUnreachable, ForwardInDoubt: an owner with a valid lease does not answer.
            CommitRefused: other processes kept taking segments over for this time.
            The errors of `find` and `ObjectSegments.held_at`.
        """
        system = self.own.system
        deadline = system.timer() + self.owners.settings.lease_seconds + PAUSE_SECONDS
        while True:
            try:
                return self._progress_of(stream, segments, writer_id)
            except (OwnerUnreachable, ForwardInDoubt, CommitRefused):
                if system.timer() >= deadline:
                    raise
            system.sleep(PAUSE_SECONDS)

    def _progress_of(self, stream: StreamName, segments: Segments, writer_id: bytes) -> Progress:
        owners, trouble = self.find(stream, segments.ids.tolist(), are_numbered=True)
        if trouble is not None:
            raise trouble
        known = []
        for segment in segments:
            owner = owners.get(segment.id)
            held = None if owner is None else self._held_by(stream, segment.id, owner, writer_id)
            if held is None:
                held = self.own.held_at(stream, segment.id, writer_id)
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
        self.own.create(stream, segments, stream_ids)

    def seal(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:
        """See `SegmentHost.seal`."""
        return self._carried_through(stream, lambda: self.own.seal(stream, ids))

    def last_times(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:
        """See `SegmentHost.last_times`."""
        return self.own.last_times(stream, ids)

    def tails(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:
        """See `SegmentHost.tails`."""
        return self.own.tails(stream, ids)

    def truncate(self, stream: StreamName, cut: IdMap) -> None:
        """See `SegmentHost.truncate`."""
        self._carried_through(stream, lambda: self.own.truncate(stream, cut))

    def delete(self, stream: StreamName, ids: Integers) -> None:
        """See `SegmentHost.delete`."""
        self._carried_through(stream, lambda: self.own.delete(stream, ids))

    def merge(self, stream: StreamName, ids: Integers, transactions: Sequence[UUID]) -> None:
        """See `SegmentHost.merge`. One node merges a transaction: an owner of all segments with events of it.

        If no owner has all of them, this process takes over the segments of other owners, even with valid leases.
        """
        try:
            self.own.merge(stream, ids, transactions)
        except SegmentsElsewhere as error:
            owners = error.owners
            if len(error.nodes) == 1 and self._has_asked(stream, error.nodes[0], error):
                with suppress(SegmentsElsewhere):  # this process has some of them
                    self.own.merge(stream, ids, transactions)
                    return
            for segment_id, node_id in owners.items():
                with suppress(CommitRefused):  # another process was first: then the merge raises
                    self.own.take_over(stream, {segment_id: node_id})
            self.own.merge(stream, ids, transactions)

    def abort(self, stream: StreamName, transaction: UUID, *, is_given_up: bool = False) -> None:
        """See `SegmentHost.abort`."""
        self.own.abort(stream, transaction, is_given_up=is_given_up)

    # Inside

    def _carried_through(self, stream: StreamName, act: Callable[[], T]) -> T:
        """Make a call of a workflow; while other owners have segments, ask them for their parts and repeat the call."""
        system, settings = self.own.system, self.settings
        deadline = system.timer() + settings.wait_seconds
        is_first = True
        while True:
            try:
                return act()
            except SegmentsElsewhere as error:
                if system.timer() >= deadline:
                    raise
                if not is_first:
                    system.sleep(PAUSE_SECONDS)
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
                    self.own.take_over(stream, theirs)
            elif owner is None or self.client is None or not self.client.may_ask(owner):
                raise self._unreachable(node_id, owner, f"{error.segments} of {'/'.join(stream)}")
            else:
                self.client.carry_out(owner, CarryOutRequest(*stream, owner.token))
        except OwnerUnreachable as unreachable:
            error.add_note(str(unreachable))
            return False
        return True

    def _unreachable(self, node_id: int, owner: Owner | None, segments: str) -> OwnerUnreachable:
        is_here = owner is not None and is_registered_here(owner)
        if is_here and self.own.system.timer() >= self._collects_seconds:
            self._collects_pause *= 2
            self._collects_seconds = self.own.system.timer() + self._collects_pause
            gc.collect()  # a connection that was dropped without `close` has cycles: this gives its segments back
        why = "another connection of this process: close it" if is_here else "no permitted address"
        return OwnerUnreachable(node_id, owner.address if owner else "", segments, why)


# For writers


@dataclass(slots=True, eq=False)
class _Outbox:
    """The events for the owner of one segment, which are sent in one request at a time.

    Attributes:
        runs: events that were not sent.
        sent: events that were sent, without a reply yet.
        is_busy: whether a thread sends events of this outbox.
    """

    owner: Owner
    segment_id: int
    runs: deque[Events] = field(default_factory=deque)
    sent: Events | None = None
    is_busy: bool = False

    @property
    def is_idle(self) -> bool:
        return not self.is_busy and not self.runs and self.sent is None


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
        self._commits, self._system = shared.own.commits, shared.own.system
        self._lock = Lock()  # guards the attributes below
        self._outboxes: dict[int, _Outbox] = {}
        self._since: dict[int, float] = {}  # when each segment's events began to wait in vain
        self._stopped = Event()

    def open(self, owners: Mapping[int, Owner]) -> None:
        """Send events of these segments to their owners from now on."""
        with self._lock:
            for segment_id, owner in owners.items():
                self._outboxes.setdefault(segment_id, _Outbox(owner, segment_id))

    def add(self, segment_id: int, run: Events) -> bool:
        """Take events for the owner of a segment; returns False if no owner was set. No request."""
        with self._lock:
            outbox = self._outboxes.get(segment_id)
            if outbox is None:
                return False
            outbox.runs.append(run)
            begins = not outbox.is_busy and self._shared.has_threads
            outbox.is_busy = outbox.is_busy or begins
        if begins:
            self._shared.submit(lambda: self._work(outbox))
        return True

    def are_idle(self, but: Collection[int]) -> bool:
        """Whether no events wait or are under way for segments other than these; if so, forgets the other segments."""
        with self._lock:
            others = [segment_id for segment_id in self._outboxes if segment_id not in but]
            if not all(self._outboxes[segment_id].is_idle for segment_id in others):
                return False
            for segment_id in others:
                del self._outboxes[segment_id]
                self._since.pop(segment_id, None)
            return True

    @property
    def has_waiting(self) -> bool:
        """Whether events wait that the caller has to send; False with background threads."""
        with self._lock:
            return not self._shared.has_threads and not all(outbox.is_idle for outbox in self._outboxes.values())

    def pump(self) -> bool:
        """Send waiting events, if there are no background threads; returns whether any request made progress.

        Raises:
            OwnerUnreachable, ForwardInDoubt: an owner does not answer; call again.
        """
        if self._shared.has_threads:
            return True
        with self._lock:
            outboxes = [outbox for outbox in self._outboxes.values() if not outbox.is_idle]
        gone_on = not outboxes
        for outbox in outboxes:
            while self._holds(outbox) and self._step(outbox):
                gone_on = True
        return gone_on

    def fail(self, error: BaseException) -> None:
        """Fail all waiting events, and send no more; events of a request under way are in doubt."""
        self._stopped.set()
        for outbox in list(self._outboxes.values()):
            if outbox.is_busy and outbox.sent is not None:
                owner, segment = outbox.owner, f"{segment_text(outbox.segment_id)} of {'/'.join(self._name)}"
                self._fail_sent(outbox, outbox.sent, ForwardInDoubt(owner.node_id, owner.address, segment))
            self._fail_outbox(outbox.segment_id, error)

    # One segment

    def _holds(self, outbox: _Outbox) -> bool:
        with self._lock:
            return self._outboxes.get(outbox.segment_id) is outbox and (outbox.sent is not None or bool(outbox.runs))

    def _work(self, outbox: _Outbox) -> None:
        """Send the events of a segment, until none wait."""
        while self._goes_on(outbox):
            try:
                has_gone_on = self._step(outbox)
            except AccelError as error:
                self._commits.troubled(self._source, error)
                has_gone_on = False
            except BaseException as error:  # set as result of the events, because no caller waits for this thread
                self._fail_outbox(outbox.segment_id, error)
                raise
            if not has_gone_on and self._system.wait is not None:
                self._system.wait(self._stopped, PAUSE_SECONDS)

    def _goes_on(self, outbox: _Outbox) -> bool:
        with self._lock:
            is_held = self._outboxes.get(outbox.segment_id) is outbox
            outbox.is_busy = is_held and (outbox.sent is not None or bool(outbox.runs))
            return outbox.is_busy

    def _step(self, outbox: _Outbox) -> bool:
        """Send one request; returns whether the next one may follow at once.

        Raises:
            OwnerUnreachable, ForwardInDoubt: no reply, and the owner's lease is valid.
            AccelError: the table of owners could not be read.
        """
        events, client = self._next(outbox), self._shared.client
        if events is None or client is None:
            return False
        try:
            request = self._request(outbox, events)
        except EventLostError as lost:
            self._fail_sent(outbox, events, lost.error)
            return True
        try:
            reply = client.append(outbox.owner, request)
            if reply.status is Status.OTHER_OWNER:
                raise self._unreachable(outbox, "another process there")
        except (OwnerUnreachable, ForwardInDoubt) as error:
            return self._heed(outbox, error)
        if reply.status is Status.BUSY:
            self._check_waited(outbox, self._unreachable(outbox, "it busy"))
            return False
        if reply.status is Status.DURABLE and len(reply.offsets) == len(events.payloads):
            self._conclude(outbox, events, reply.offsets)
        else:
            self._end(outbox)
        return True

    def _next(self, outbox: _Outbox) -> Events | None:
        with self._lock:
            if outbox.sent is None and outbox.runs:
                outbox.sent = first_events(outbox.runs, EVENTS_MAX, BODY_BYTES_MAX // 2)
            return outbox.sent

    def _request(self, outbox: _Outbox, events: Events) -> AppendRequest:
        """Return the request for events.

        Raises:
            EventLostError: no event may be sent.
        """
        most = BODY_BYTES_MAX - HEAD_SIZE_BYTES
        if len(events.payloads[0]) > most:
            segment = f"{segment_text(outbox.segment_id)}, which another owner has"
            found = len(events.payloads[0])
            raise EventLostError(FormatLimit(f"expected an event of at most {most} bytes for {segment}, found {found}"))
        said = self._numbered(events)
        return AppendRequest(
            *self._name,
            outbox.segment_id,
            outbox.owner.token,
            said.writer_id,
            list(said.numbers),
            list(said.positions),
            said.settled,
            events.payloads,
        )

    def _conclude(self, outbox: _Outbox, events: Events, offsets: Sequence[int]) -> None:
        with self._lock:
            outbox.sent = None
            self._since.pop(outbox.segment_id, None)
        places = (EventPlace(outbox.segment_id, offset) for offset in offsets)
        self._commits.conclude(zip(events.futures, places, strict=True), events.size_bytes)

    def _heed(self, outbox: _Outbox, error: OwnerUnreachable | ForwardInDoubt) -> bool:
        """Handle a missing reply: raise the error if the owner's lease is valid, else give the events back."""
        now = self._shared.owners.find(outbox.owner.node_id)
        if now is not None and now.token == outbox.owner.token and not now.is_expired(self._shared.owners.now_ms()):
            self._check_waited(outbox, error)
            raise error
        self._end(outbox)
        return True

    def _fail_sent(self, outbox: _Outbox, events: Events, error: BaseException) -> None:
        with self._lock:
            outbox.sent = None
        self._commits.fail(events.futures, error, events.size_bytes)

    def _unreachable(self, outbox: _Outbox, found: str) -> OwnerUnreachable:
        segment = f"{segment_text(outbox.segment_id)} of {'/'.join(self._name)}"
        return OwnerUnreachable(outbox.owner.node_id, outbox.owner.address, segment, found)

    def _check_waited(self, outbox: _Outbox, error: AccelError) -> None:
        """Fail the events of a segment that have waited for too long."""
        now = self._system.timer()
        with self._lock:
            since = self._since.setdefault(outbox.segment_id, now)
        if now - since >= self._shared.settings.wait_seconds:
            self._fail_outbox(outbox.segment_id, error)

    def _end(self, outbox: _Outbox) -> None:
        """Give the remaining events of a segment back to the writer, because its owner takes no more."""

        def left() -> list[Events]:
            with self._lock:
                return self._closed(outbox.segment_id)

        self._give_back(outbox.segment_id, left)

    def _closed(self, segment_id: int) -> list[Events]:
        outbox = self._outboxes.pop(segment_id, None)
        if outbox is None:
            return []
        return [*([] if outbox.sent is None else [outbox.sent]), *outbox.runs]

    def _fail_outbox(self, segment_id: int, error: BaseException) -> None:
        with self._lock:
            runs = self._closed(segment_id)
            self._since.pop(segment_id, None)
        futures = [future for run in runs for future in run.futures]
        self._commits.fail(futures, error, sum(run.size_bytes for run in runs))
