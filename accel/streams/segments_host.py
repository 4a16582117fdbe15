"""Segments in object storage: the host of a stream's segments, for one session of a node.

    with ObjectSegments(catalog, store, node_id=4) as host:
        streams = StreamStore.open(store, host=host)          workflows create, seal and merge segments by the host
        with StreamWriter(streams.stream("shop", "orders"), host) as writer:
            writer.write(b"...", key=b"order-17")

A segment is a stream of the object layer. Appended events wait in memory until one object with events of all segments
is written and committed (`group_commit`): then they are durable, and can be read. Once the data is durable, the records
of the segments' time indexes move to objects of their own.

A segment is sealed by closing its stream on the node, which all processes can see. A new session fences the older
sessions of its node, which fail with `SessionFenced`; data that they had not made durable is lost.

All calls of workflows (`SegmentHost`) may be repeated, also by another process. A call does this node's part, and
raises `SegmentsElsewhere` if other nodes have segments open.

Source: docs/explanation/history.md, "Workflows"; PDP-28.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Any, Final, Protocol
from uuid import UUID

from accel.catalog import ObjectCatalog
from accel.catalog.shard_writes import trim_streams
from accel.errors import AccelError, NotInHistory, OperationNotAllowed, StreamsReleased
from accel.history.rules.configuration import OffsetUnit
from accel.history.rules.segments import Segments
from accel.history.rules.transactions import TransactionContents
from accel.history.rules.values import IdMap, Integers, checked_arguments, segment_text, some_ids
from accel.history.store import Stream
from accel.history.store.segment_host import SegmentHost, StreamName
from accel.streams.acknowledgements import WriteFuture
from accel.streams.group_commit import EventSource, GroupCommit
from accel.streams.leases import TransactionLeases
from accel.streams.open_segments import (
    AppendBuffer,
    FoundSegments,
    OpenSegment,
    OpenSegments,
    SegmentSealed,
    TakesBack,
)
from accel.streams.rules.arrival_order import StreamSegmentInfo
from accel.streams.rules.events import HostClock, check_append
from accel.streams.rules.routing import Events, size_bytes_of
from accel.streams.rules.transaction_data import TransactionEvents
from accel.streams.segment_directory import SegmentDirectory, data_ends, refuse_elsewhere, stream_spans
from accel.streams.settings import SegmentsSettings
from accel.streams.uploads import (
    Group,
    MergeIntent,
    Merging,
    TransactionName,
    TransactionObjects,
    TransactionRecords,
    UploadParts,
    contents_of,
)
from accel.streams.writer_numbers import NumberedEvents, Progress, WriterHeld, progress_of
from accel.system import SYSTEM, Components, measured, of_store
from loaders.backoff import Backoff
from loaders.errors import DataNotFound
from loaders.lifetime import Closing, Lifetime
from loaders.settings import CLOCK_SKEW_SECONDS_MAX
from loaders.store import ObjectStore

logger = logging.getLogger(__name__)

ROOM_SECONDS: Final = 60.0
"""How long an append waits for room in memory."""

MERGE_ATTEMPTS: Final = 3
"""The number of attempts of a merge whose segments are taken over meanwhile."""


GiveBack = Callable[[int, Callable[[], Sequence[Events]]], object]
"""(segment id, function that ends the sending and returns the events that were not taken, in order): appends the events
again, before all later events. No event of the segment may be appended between the two steps."""


class Lanes(Protocol):
    """Sends events of one writer to other processes that have their segments. Threads: any."""

    @property
    def has_waiting(self) -> bool:
        """Whether events wait that the caller has to send by `pump`."""
        ...

    def open(self, owners: Mapping[int, Any]) -> None:
        """Send events of these segments to the owners that `Host.find` returned, from now on."""
        ...

    def add(self, segment_id: int, run: Events) -> bool:
        """Take events; returns False if another process does not have the segment. No request."""
        ...

    def are_idle(self, but: Collection[int]) -> bool:
        """Whether no events wait or are under way for segments other than these; if so, forgets the other segments."""
        ...

    def pump(self) -> bool:
        """Send waiting events, if there are no background threads; returns whether any request made progress."""
        ...

    def fail(self, error: BaseException) -> None:
        """Fail all waiting events, and send no more."""
        ...


class Host(SegmentHost, Protocol):
    """The segments of a stream as a writer knows them: those of this process, and perhaps those of others."""

    @property
    def own(self) -> ObjectSegments:
        """The segments of this process."""
        ...

    @property
    def are_shared(self) -> bool:
        """Whether other processes may have segments of the stream: then events that are not durable come back."""
        ...

    def find(
        self, stream: StreamName, ids: Collection[int], *, are_numbered: bool = False
    ) -> tuple[Mapping[int, Any], AccelError | None]:
        """Open segments here; return the owners of those of other processes, and the error of the last unreachable."""
        ...

    def outboxes(
        self,
        name: StreamName,
        source: EventSource,
        numbered: Callable[[Events], NumberedEvents],
        give_back: GiveBack,
    ) -> Lanes | None:
        """Return what sends a writer's events to other processes; None if nothing does."""
        ...

    def progress_of(self, stream: StreamName, segments: Segments, writer_id: bytes) -> Progress:
        """Return the progress of a writer with an id, in all segments."""
        ...


class Scaling(Protocol):
    """Follows the scaling policies of the streams whose segments a host has open. Threads: any."""

    def begin(self) -> None:
        """Start its thread, if the system has threads."""
        ...

    def stop(self) -> None:
        """Begin no more scales."""
        ...

    def wait_idle(self) -> None:
        """Wait for the end of the work under way; does nothing within this work."""
        ...


@checked_arguments
class ObjectSegments(Closing):
    """One session of a node that has segments open; a `Host` that shares no stream.

    Opening it fences older sessions of the node, and settles their unfinished merges. The host belongs to the process
    that opened it: elsewhere calls raise WrongProcess; after `close` they raise Closed.

    Args:
        catalog: the catalog of the store; close it after the host.
        store: the store of objects, histories and time indexes.
        node_id: the node.
        settings: bounds of the host.
        system: clock, sleep and chance.

    Threads: any. The session takes one call at a time. Appends and flushes do not wait for calls of other threads; an
    append waits if too much is in memory, or if it is the first to its segment. If the system has a `wait`, uploads
    have threads of their own, at most `uploads_at_once` + 2; what scales has one, and `leases` one while transactions
    are open. `close` and `stop` end them.

    Attributes:
        commits: makes appended events durable.
        lifetime: of the host, for its parts.
        leases: renews the leases of the open transactions of its writers.
    """

    are_shared: Final = False

    def __init__(
        self,
        catalog: ObjectCatalog,
        store: ObjectStore,
        node_id: int,
        *,
        settings: SegmentsSettings = SegmentsSettings(),  # noqa: B008 - immutable
        system: Components = SYSTEM,
    ) -> None:
        self.lifetime = Lifetime(f"segments of node {node_id}", system.process_id)
        self.settings = settings
        self.system = system = of_store(store, system)
        measured(system)
        self.clock = HostClock.of_seconds(system.clock, skew_seconds_max=CLOCK_SKEW_SECONDS_MAX)
        self._lock = Lock()  # held over calls of the session, which takes one call at a time
        self._ahead: set[int] = set()  # streams of segments that were named, as their last events are after now
        self._merges = Lock()  # held over a merge: a session has one intent at a time
        self._catalog, self._node = catalog, catalog.open_node(node_id)
        self._directory = SegmentDirectory(store, system)
        backoff = Backoff(system.sleep, system.jitter)
        self._transactions = TransactionObjects(store, backoff)
        self._segments = OpenSegments(
            catalog, self._node, store, self._directory, self.clock, settings, backoff, system
        )
        self._buffer = AppendBuffer(self._node.session_number)
        layout = catalog.parts.layout
        parts = UploadParts(store, layout, self._node, self._turn, self._transactions, settings, backoff, system.nonce)
        self.commits = GroupCommit(parts, self._segments, self._buffer, self.lifetime, system)
        self._merging = Merging(parts, self._segments, self._buffer)
        self.leases = TransactionLeases(self.lifetime, system, catalog.parts.executor)
        self._scaling: Scaling | None = None
        try:
            self._transactions.settle(node_id, self._merging.was_merged, self._records_of)
        except BaseException:
            self.stop()
            raise

    def _end_block(self, error: BaseException | None) -> None:
        if error is None:
            self.close()
        else:
            self.stop()

    def __repr__(self) -> str:
        return f"ObjectSegments({self._node!r}, {self.waiting_bytes} bytes waiting)"

    # For writers

    @property
    def waiting_bytes(self) -> int:
        """Bytes of events that wait for an object, without objects under way."""
        return self.commits.waiting_bytes

    def open_segments(
        self, stream: StreamName, ids: Collection[int], *, are_numbered: bool = False, is_shared: bool = False
    ) -> Mapping[int, int]:
        """Open segments before events are appended to them, side by side; sealed segments are skipped.

        The clock continues from the highest value of these segments.

        Args:
            stream: scope and stream.
            ids: the ids of the segments.
            are_numbered: whether a writer with an id will append to them; see `OpenSegments.load_numbers`.
            is_shared: whether segments that other nodes have open are skipped, too; they are refused otherwise.

        Returns:
            The nodes of skipped segments that other nodes have open, by segment id.

        Raises:
            AccelError: the errors of `OpenSegments.find`.
        """
        with self._turn():
            found = self._segments.find(stream, ids, is_step=is_shared)
            if are_numbered:
                self._segments.load_numbers(stream, [each for each in ids if each in found.open])
            self._name_ahead(found.open.values())
        return {segment_id: span.node_id for segment_id, span in found.elsewhere.items()}

    @property
    def own(self) -> ObjectSegments:
        """See `Host.own`."""
        return self

    def find(
        self, stream: StreamName, ids: Collection[int], *, are_numbered: bool = False
    ) -> tuple[Mapping[int, Any], AccelError | None]:
        """See `Host.find`; a segment that another node has open is refused, as by `open_segments`."""
        self.open_segments(stream, ids, are_numbered=are_numbered)
        return {}, None

    def outboxes(self, *_: object) -> None:
        """See `Host.outboxes`."""

    def _name_ahead(self, segments: Iterable[OpenSegment]) -> None:
        """Warn once of each segment whose last event has a time after now: its later events keep this time."""
        latest = self.clock.now() + int(CLOCK_SKEW_SECONDS_MAX * 1000)
        for segment in segments:
            if segment.index.last_value > latest and segment.stream_id not in self._ahead:
                self._ahead.add(segment.stream_id)
                name, value = segment_text(segment.segment_id), segment.index.last_value
                logger.warning(
                    "segment %s of %s: a process with a wrong clock wrote events at %d, after now, and later events of"
                    " the segment get this time: split or merge it, so that others begin",
                    *(name, "/".join(segment.name), value),
                )

    # For those who scale the streams

    def scale_by(self, scaling: Scaling) -> None:
        """Let the streams whose segments are open here be scaled, from now on until `close` or `stop`."""
        self.lifetime.check()
        self._scaling = scaling
        scaling.begin()

    def listed(self) -> list[OpenSegment]:
        """Return the segments that are open here. No request."""
        return self._segments.listed()

    def stream(self, name: StreamName) -> Stream:
        """Return a stream, opened with this host. 4 requests."""
        return self._directory.stream(name, self)

    @property
    def node_id(self) -> int:
        """The node of the session."""
        return self._node.node_id

    def take_over(self, stream: StreamName, owners: Mapping[int, int]) -> None:
        """Continue segments that other nodes have open; the caller considers these nodes dead.

        Args:
            stream: scope and stream.
            owners: {segment id: the node that loses it}.

        Raises:
            AccelError: the errors of `NodeWriter.take_over` and `OpenSegments.find`.
        """
        stream_ids = {segment_id: self._directory.stream_id(stream, segment_id) for segment_id in owners}
        with self._turn():
            segment_ids = {stream_id: segment_id for segment_id, stream_id in stream_ids.items()}
            keep = partial(self._segments.keep_taken, stream, segment_ids)
            self._node.take_over({stream_ids[segment_id]: node_id for segment_id, node_id in owners.items()}, keep)
            self._segments.refresh()  # time indexes are restored from the newest data of the other nodes
            self._segments.find(stream, owners)

    def append(self, stream: StreamName, segment_id: int, payloads: Sequence[bytes]) -> WriteFuture:
        """Append events as one batch, which stays in memory until it is in an object. Waits if too much is in memory.

        Args:
            stream: scope and stream.
            segment_id: the segment.
            payloads: the payloads of the events, at least one.

        Returns:
            A future: the place of the first event, once all events are durable; or `StreamsReleased` if another node
            takes the segment over before, an error that `flush` does not raise.

        Raises:
            SegmentSealed: the segment is sealed.
            FormatLimit: more bytes than fit into one batch.
            WriterStalled: the buffers stayed full for 60 s.
            AccelError: the errors of `flush` and `OpenSegments.find`.

        After any error these events were not appended.
        """
        self.lifetime.check()
        segment = self._segments.get(stream, segment_id) or self._opened(stream, segment_id)
        check_append(payloads)
        size_bytes = size_bytes_of(payloads)
        self.commits.await_room(size_bytes, ROOM_SECONDS)
        future = WriteFuture(self.commits.acks)
        self.commits.ask(partial(self._buffer.append, segment, payloads, [future], size_bytes), size_bytes)
        return future

    def append_open(
        self,
        stream: StreamName,
        segment_id: int,
        events: Events,
        numbered: NumberedEvents | None = None,
        source: EventSource | None = None,
    ) -> None:
        """Append events of writers, with reserved room, as one batch. No request.

        Args:
            stream: scope and stream.
            segment_id: the segment.
            events: the events, each with a future.
            numbered: their writer and numbers; events that were appended before are skipped, and their futures are
                settled when the events are durable, with `REPEATED` instead of the offset.
            source: the writer, if it takes back events that are not durable when another node takes the segment over;
                otherwise they fail with `StreamsReleased`.

        Raises:
            SegmentSealed: the segment is sealed, is not open here, or was not opened for events with numbers; nothing
                was appended.
            FormatLimit: more bytes than fit into one batch; nothing was appended.
        """
        segment = self._segments.get(stream, segment_id)
        if segment is None or (numbered is not None and not segment.numbers.is_loaded):
            raise SegmentSealed(stream, segment_id)
        takes_back = None if source is None else TakesBack(source, events)
        done = self._buffer.append(segment, events.payloads, events.futures, events.size_bytes, numbered, takes_back)
        if done is not None:
            self.commits.acknowledge_repeated(done)

    def append_numbered(
        self, stream: StreamName, segment_id: int, payloads: Sequence[bytes], numbered: NumberedEvents
    ) -> list[WriteFuture]:
        """Append those events of a writer with an id that were not appended before, as one batch.

        Waits if too much is in memory. O(bytes).

        Args:
            stream: scope and stream.
            segment_id: the segment.
            payloads: the payloads of the events, at least one.
            numbered: their writer and numbers.

        Returns:
            The future of each event: its place, once it is durable; with the offset `REPEATED` if it was appended
            before. Otherwise as `append`.

        Raises:
            ValueError: numbers that do not ascend, or a different number of them.
            AccelError: the errors of `append` and `OpenSegments.load_numbers`. After any error these events were not
                appended.
        """
        self.lifetime.check()
        check_append(payloads)
        numbered.check(len(payloads))
        segment = self._segments.get(stream, segment_id) or self._opened(stream, segment_id)
        if not segment.numbers.is_loaded:
            self.open_segments(stream, [segment_id], are_numbered=True)
        size_bytes = size_bytes_of(payloads)
        self.commits.await_room(size_bytes, ROOM_SECONDS)
        futures = [WriteFuture(self.commits.acks) for _ in payloads]

        def append() -> None:
            done = self._buffer.append(segment, payloads, futures, size_bytes, numbered)
            if done is not None:
                self.commits.acknowledge_repeated(done)

        self.commits.ask(append, size_bytes)
        return futures

    def progress_of(self, stream: StreamName, segments: Segments, writer_id: bytes) -> Progress:
        """Return the progress of a writer, given segments of all keys that this node writes, or that are now sealed.

        Requests: see `held_by`.

        Raises:
            AccelError: as `held_by`.
        """
        known = []
        for segment in segments:
            held = self.held_at(stream, segment.id, writer_id)
            known.append((segment.key_start, segment.key_end, held))
        return progress_of(known)

    def held_at(self, stream: StreamName, segment_id: int, writer_id: bytes) -> WriterHeld:
        """As `held_by`, also for a sealed segment."""
        try:
            return self.held_by(stream, segment_id, writer_id)
        except SegmentSealed:
            sealed = self._segments.tables.new()
            self._segments.tables.load(stream, segment_id, sealed)
            return sealed.held_by(writer_id)

    def held_by(self, stream: StreamName, segment_id: int, writer_id: bytes) -> WriterHeld:
        """Return the durable numbers of a writer in a segment that this node writes.

        No request if the segment is open for events with numbers; else the requests to open it.

        Raises:
            SegmentSealed: the segment is sealed.
            AccelError: the errors of `OpenSegments.find` and `OpenSegments.load_numbers`.
        """
        self.lifetime.check()
        segment = self._segments.get(stream, segment_id) or self._opened(stream, segment_id)
        if not segment.numbers.is_loaded:
            self.open_segments(stream, [segment_id], are_numbered=True)
        return segment.numbers.held_by(writer_id)

    def takes_appends(self, stream: StreamName, segment_id: int) -> bool:
        """Whether a segment is open here, and not sealed. No request."""
        segment = self._segments.get(stream, segment_id)
        return segment is not None and not segment.is_sealed

    def is_sealed(self, stream: StreamName, segment_id: int) -> bool:
        """Whether a segment is open here, and takes no more appends. No request."""
        segment = self._segments.get(stream, segment_id)
        return segment is not None and segment.is_sealed

    def is_settled(self, stream: StreamName, segment_id: int) -> bool:
        """Whether all events that were appended to a segment here are durable. No request."""
        segment = self._segments.get(stream, segment_id)
        return segment is None or not segment.unacknowledged

    def unit(self, stream: StreamName) -> OffsetUnit:
        """Return the unit of a stream's offsets. No request once a segment of the stream was opened here."""
        self.lifetime.check()
        return self._directory.unit(stream)

    def flush(self) -> None:
        """Make all appended events durable, except those of segments that another node takes over.

        Requests: 2 for each object, and those of its parts.

        Raises:
            SessionFenced: a newer session writes for this node; events in memory will never be durable.
            AccelError: with a note about the data that is not durable; the data stays in memory, and background
                threads, or without them the next flush, try again.
        """
        self.lifetime.check()
        self.commits.acks.check_outside()
        self.commits.flush_appended()

    def info(self, stream: StreamName, segment_id: int) -> StreamSegmentInfo:
        """Return the end of a segment's durable data, and a lower bound of the clock values after this end.

        Raises:
            AccelError: the errors of `OpenSegments.find`.
        """
        self.lifetime.check()
        segment = self._segments.get(stream, segment_id)
        if segment is None:
            located = self._found(stream, [segment_id])
            if segment_id in located.sealed:
                return StreamSegmentInfo(located.sealed[segment_id].end, self.clock.now(), is_sealed=True)
            segment = located.open[segment_id]
        end = self._segments.durable_end(segment)
        now = max(self.clock.now(), segment.index.last_value)  # read first: appends meanwhile get no lower value
        waiting = segment.index.read(end, 1)
        return StreamSegmentInfo(end, waiting.value if waiting.covered else now, is_sealed=segment.is_sealed)

    def keep_transaction(self, name: TransactionName, events: TransactionEvents) -> TransactionContents:
        """Write the data of a transaction, before the decision to commit it is recorded; nothing if it has no events.

        Returns:
            What was written: the decision names it, so that the merge misses nothing.

        Raises:
            DataConflict: other data of the transaction exists; StoreError, FormatLimit.
        """
        self.lifetime.check()
        if len(events):
            self._transactions.keep(name, events)
        return contents_of(events)

    def drop_transaction(self, name: TransactionName) -> None:
        """Delete the data of a transaction."""
        self.lifetime.check()
        self._transactions.erase([name])

    def close(self) -> None:
        """Flush all writers, move all time indexes to objects, write a checkpoint, and take no more appends.

        Raises:
            AccelError: the errors of `flush`; another call of `close` continues.
        """
        self.lifetime.check_process()
        self.commits.acks.check_outside()
        if self.lifetime.is_closed:
            return
        if self._scaling is not None:
            self._scaling.stop()
            self._scaling.wait_idle()
        self.commits.flush_all()
        with self._turn():
            self._segments.move_times(self._segments.listed())
            self._node.close()
            self.lifetime.close()
        self.stop()

    def stop(self) -> None:
        """End all threads, after the requests that are under way; data that is not durable is lost."""
        self.commits.acks.check_outside()
        self.lifetime.close()
        self.leases.stop()
        if self._scaling is not None:
            self._scaling.stop()
        self.commits.stop()
        if self._scaling is not None:
            self._scaling.wait_idle()
        self._segments.close()

    # For workflows

    def create(self, stream: StreamName, segments: Segments, stream_ids: Mapping[int, int]) -> None:
        """See `SegmentHost.create`: caches the segments; the node that first writes a segment opens it."""
        self.lifetime.check()
        self._directory.remember(stream, segments, stream_ids)

    def seal(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:
        """See `SegmentHost.seal`: makes appended events durable, and closes the streams on this node.

        Raises:
            SegmentsElsewhere: other nodes have some segments open; the others are sealed.
            AccelError: the errors of `flush` and `OpenSegments.find`.
        """
        with self._turn():
            located = self._segments.find(stream, ids.tolist(), is_step=True)
            segments = list(located.open.values())
            self._buffer.seal(segments)
        self.commits.flush_appended()  # these segments take no more appends
        with self._turn():
            left = self._segments.still_open(segments)
            self._segments.move_times(left)
            self._segments.keep_numbers(left)
            closed = self._node.close_streams(segment.stream_id for segment in left)
            self._segments.forget(left)
        self._directory.forget(stream, ids)
        located = self._without_gone(stream, located, left)
        located.refuse_elsewhere("seal", stream)
        ends = {segment.segment_id: closed[segment.stream_id] for segment in left}
        return ends | {segment_id: span.end for segment_id, span in located.sealed.items()}

    def last_times(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:
        """See `SegmentHost.last_times`: 2 requests a segment, also for segments that other nodes sealed."""
        self.lifetime.check()
        return self._segments.last_times(
            {segment_id: self._directory.stream_id(stream, segment_id) for segment_id in ids.tolist()}
        )

    def tails(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:
        """See `SegmentHost.tails`: returns the ends of durable data, also of segments that other nodes write."""
        self.lifetime.check()
        stream_ids = {segment_id: self._directory.stream_id(stream, segment_id) for segment_id in ids.tolist()}
        spans = stream_spans(self._catalog.parts, stream_ids.values())
        # Another node may have taken a stream over since this session wrote to it.
        here = [each.stream_id for each in spans.values() if each.is_open and each.node_id == self._node.node_id]
        ends = {stream_id: end for stream_id in here if (end := self._node.end(stream_id)) is not None}
        ends |= data_ends(self._catalog, [each for each in spans.values() if each.stream_id not in ends])
        return {segment_id: ends.get(stream_id, 0) for segment_id, stream_id in stream_ids.items()}

    def truncate(self, stream: StreamName, cut: IdMap) -> None:
        """See `SegmentHost.truncate`: drops the data before the cut.

        Raises:
            SegmentsElsewhere: other nodes have some segments open; only these nodes can move the time index records in
                memory before the data is dropped. The other segments are truncated.
            AccelError: the errors of `flush` and `OpenSegments.find`.
        """
        live = {segment_id: offset for segment_id, offset in cut.items() if offset > 0}
        with self._turn():
            located = self._segments.find(stream, live, is_step=True)
        self.commits.flush_appended()
        with self._turn():
            left = self._segments.still_open(located.open.values())
            self._segments.move_times(left)  # records in memory cannot be rebuilt without the data
            if any(self._node.numbers(each.stream_id).are_missing for each in left):
                self._node.checkpoint()  # nor can numbers of writers that the node's list does not have
            self._node.trim({segment.stream_id: live[segment.segment_id] for segment in left})
        located = self._without_gone(stream, located, left)
        trim_streams(
            self._catalog.parts, {span.stream_id: live[segment_id] for segment_id, span in located.sealed.items()}
        )
        located.refuse_elsewhere("truncate", stream)

    def _without_gone(self, stream: StreamName, located: FoundSegments, left: Sequence[OpenSegment]) -> FoundSegments:
        """Return what became of segments that another thread has sealed, or another node has taken, since.

        Raises:
            OperationNotAllowed: some are open here again.
        """
        gone = located.open.keys() - {segment.segment_id for segment in left}
        if not gone:
            return located
        with self._turn():
            now = self._segments.find(stream, gone, is_step=True)
        if now.open:
            expected = f"{some_ids(list(now.open))} of {'/'.join(stream)} sealed"
            raise OperationNotAllowed(f"expected {expected}, found them open again: try again")
        return FoundSegments({}, {**located.sealed, **now.sealed}, {**located.elsewhere, **now.elsewhere})

    def delete(self, stream: StreamName, ids: Integers) -> None:
        """See `SegmentHost.delete`: closes the streams, drops all data, and deletes the time indexes.

        Segments that follow get the writers' numbers first.

        Raises:
            SegmentsElsewhere: other nodes have some segments open; the others are deleted.
            AccelError: the errors of `flush`.
        """
        self.lifetime.check()
        opened = [known for segment_id in ids.tolist() if (known := self._segments.get(stream, segment_id)) is not None]
        found = {segment_id: self._directory.stream_id_to_delete(stream, segment_id) for segment_id in ids.tolist()}
        stream_ids = {segment_id: stream_id for segment_id, stream_id in found.items() if stream_id is not None}
        self._buffer.seal(opened)
        self.commits.flush_appended()
        with self._turn():
            spans = stream_spans(self._catalog.parts, stream_ids.values())
            beside = {stream_id: span for stream_id, span in spans.items() if span.is_open_beside(self._node.node_id)}
            ends = {stream_id: span.end for stream_id, span in spans.items() if not span.is_open}
            ends |= self._node.close_streams(set(spans) - set(ends) - set(beside))
            self._segments.forget(opened)
        self._directory.forget(stream, ids)
        trim_streams(self._catalog.parts, ends)
        self._segments.delete_times(stream, {item: at for item, at in stream_ids.items() if at not in beside})
        refuse_elsewhere(
            "delete", stream, {segment_id: beside[at] for segment_id, at in stream_ids.items() if at in beside}
        )

    def merge(self, stream: StreamName, ids: Integers, transactions: Sequence[UUID]) -> None:
        """See `SegmentHost.merge`: one batch for each segment that a transaction has events for.

        Raises:
            SegmentsElsewhere: other nodes have segments of its events open. All batches of a transaction are in one
                object, which one node writes: no part of it was merged.
            StreamsReleased, SegmentSealed: other nodes repeatedly took segments over: no part of the transactions
                concerned was merged; their data is kept, and the merge may be repeated.
            TransactionDamaged: the data of a transaction is missing, damaged, or not what its record says; those before
                it are merged.
            The errors of `flush`; and FormatLimit: events for more than 20,000 segments.
        """
        self.lifetime.check()
        unique_id, records = self._directory.transactions(stream)
        with self._merges:
            self.commits.flush_appended()  # also finishes an earlier merge
            for group in self._merging.groups(unique_id, records, transactions, self.settings.batch_bytes):
                segments = self._directory.segments(stream, ids)
                self._merge_group(stream, segments, group, records)

    def _merge_group(self, stream: StreamName, segments: Segments, group: Group, records: TransactionRecords) -> None:
        for attempt in range(MERGE_ATTEMPTS):
            try:
                make = self._merging.make(stream, segments, group, records)
                if make is not None:
                    self.commits.carry_out(make)
            except (StreamsReleased, SegmentSealed):  # look the segments up again: they may belong to another node
                if attempt == MERGE_ATTEMPTS - 1:
                    raise
            else:
                return

    def abort(self, stream: StreamName, transaction: UUID, *, is_given_up: bool = False) -> None:
        """See `SegmentHost.abort`. If it was given up, 1 request more, and 1 for each intent."""
        self.lifetime.check()
        name = TransactionName(self._directory.unique_id(stream), transaction)
        if is_given_up and (merge := self._transactions.merge_begun(name)) is not None:
            raise OperationNotAllowed(f"expected no merge of transaction {transaction}, given up, found {merge}")
        self.drop_transaction(name)

    # Inside

    def _records_of(self, intent: MergeIntent) -> TransactionRecords | None:
        """The records of the transactions of an intent; None if their stream was deleted."""
        try:
            unique_id, records = self._directory.transactions((intent.scope, intent.stream))
        except (NotInHistory, DataNotFound):
            return None
        return records if unique_id == intent.names[0].stream else None

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold the lock of the session, which takes one call at a time.

        Raises:
            WrongProcess: before the lock is taken, which may have been held when this process was forked.
            Closed: also if the host was closed while this call waited for the lock.
        """
        self.lifetime.check()
        with self._lock:
            self.lifetime.check()
            yield

    def _opened(self, stream: StreamName, segment_id: int) -> OpenSegment:
        located = self._found(stream, [segment_id])
        if segment_id in located.sealed:
            raise SegmentSealed(stream, segment_id)
        return located.open[segment_id]

    def _found(self, stream: StreamName, ids: Collection[int]) -> FoundSegments:
        with self._turn():
            return self._segments.find(stream, ids)
