"""The segments that a session writes: found in the history and the catalog, opened, and appended to.

    segment 0@0   durable |=========|  uploading |=====|   waiting |==|==|      end: where the next append begins
    segment 1@0   durable |====|                           waiting |=|

An append becomes a record batch and a record of the segment's time index at once, with the same clock value. Batches
wait in the `AppendBuffer` until an object is made of them; the code that takes batches out keeps them until they are
durable.

A host gets segments as arguments when it creates them. Segments that were created by another process, or before a
restart, are read from the history (`SegmentDirectory`). A segment that the catalog does not know is opened on the node.
A segment that is open on the node continues at the end of its data, with its time index restored. A closed segment is
sealed, and takes no appends. A segment that another node has open is left to that node.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from accel.catalog import NodeWriter, ObjectCatalog
from accel.catalog.records import NO_STREAM, TIME_RECORD, WRITER_NUMBER, Rows, no_rows
from accel.catalog.session import StreamEnds
from accel.errors import (
    AccelError,
    CommitRefused,
    IllegalState,
    InconsistentAnswer,
    StreamDeleted,
    UnknownStream,
)
from accel.history.rules.configuration import OffsetUnit
from accel.history.rules.values import INT64_MAX, Integers, epoch_of, segment_text
from accel.history.store.segment_host import StreamName
from accel.lookup.accelerator import ReadAccelerator
from accel.streams.rules.events import (
    HostClock,
    WriterRun,
    check_append,
    encode_events,
    offsets_of,
    span_of,
)
from accel.streams.rules.routing import Events, size_bytes_of
from accel.streams.segment_directory import SegmentDirectory, StreamSpan, refuse_elsewhere, refuse_lost, stream_spans
from accel.streams.settings import SegmentsSettings
from accel.streams.time_index import MOVED_RECORDS_MAX, SegmentTimeIndex, part_cache, records_of, restore_times, rows_of
from accel.streams.writer_numbers import REPEATED, NumberedEvents, NumberTables, SegmentNumbers, known_end
from accel.system import Components
from loaders.backoff import Backoff
from loaders.format import RecordBatch
from loaders.layout import parse_number_table_key, parse_time_part_key, time_part_prefix
from loaders.settings import MIB
from loaders.store import ObjectStore
from loaders.threads import Threads, map_bounded

PARALLEL_SEGMENTS: Final = 8
"""How many segments are opened, or have their time indexes moved, side by side."""

CACHE_BYTES: Final = 16 * MIB
"""Memory for parts of time indexes that are read."""

logger = logging.getLogger(__name__)
T = TypeVar("T")

# Appends that wait for an object


class SegmentSealed(IllegalState):
    """An append to a segment that no longer takes appends; nothing was appended.

    Args:
        name: scope and stream.
        segment_id: the segment.
    """

    advice = "it has successors: read the current epoch, and append to the segments that have these keys now"

    def __init__(self, name: StreamName, segment_id: int) -> None:
        super().__init__(f"{'/'.join(name)}: expected a segment that takes appends, found {segment_text(segment_id)}")
        self.name = name
        self.segment_id = segment_id


class TakesBack(NamedTuple):
    """A writer that takes events back.

    Args:
        source: the writer, an `EventSource`.
        events: the events that it wrote.
    """

    source: Any
    events: Events

    def chosen(self, places: Sequence[int]) -> TakesBack:
        """Return the same for the events at these indexes."""
        return TakesBack(self.source, self.events.chosen(places))


class Appended(NamedTuple):
    """Events of one append that are not known to be durable.

    Args:
        segment_id: their segment.
        offsets: the offset of each event.
        end: the end of the last event.
        futures: the future of each event; or none.
        size_bytes: their share of the room for events that are not durable.
        takes_back: the writer, if it takes the events back when another node takes the segment over before they are
            durable; None = they fail.
    """

    segment_id: int
    offsets: Sequence[int]
    end: int
    futures: Sequence[Any]
    size_bytes: int
    takes_back: TakesBack | None = None


@dataclass(slots=True, eq=False)
class OpenSegment:
    """A segment that this session may append to. Threads: its buffer's lock guards what changes.

    Args:
        name: scope and stream.
        segment_id: the segment.
        stream_id: the stream of the object layer.
        unit: the unit of its offsets.
        index: its time index.
        numbers: the numbers of its events of writers with ids.
        end: where the next append begins.
        is_sealed: whether it no longer takes appends.
        is_released: whether another node has taken it over; this node will not make more of its events durable.
        waiting: batches that are not in an object yet.
        unacknowledged: appends that are not known to be durable, in order.
        is_told: whether the catalog had all its time records when it was opened.
        appended_events: the number of events appended since it was opened here, by any writer;
        appended_bytes: the number of bytes of their batches. Both only grow; any thread may read them.
    """

    name: StreamName
    segment_id: int
    stream_id: int
    unit: OffsetUnit
    index: SegmentTimeIndex
    numbers: SegmentNumbers
    end: int
    is_sealed: bool = False
    is_released: bool = False
    waiting: list[RecordBatch] = field(default_factory=list)
    unacknowledged: deque[Appended] = field(default_factory=deque)
    is_told: bool = True
    appended_events: int = 0
    appended_bytes: int = 0


Append = tuple[OpenSegment, Sequence[bytes]]
Taken = dict[OpenSegment, list[RecordBatch]]


class AppendBuffer:
    """Batches that wait for an object. Threads: any; no method sends requests.

    Args:
        epoch: the session number, which is written to each batch.
    """

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._lock = Lock()
        self._waiting: dict[OpenSegment, None] = {}
        self._unacknowledged: dict[OpenSegment, None] = {}
        self._size_bytes = 0

    @property
    def size_bytes(self) -> int:
        """Payload bytes of all waiting batches."""
        with self._lock:
            return self._size_bytes

    def append(
        self,
        segment: OpenSegment,
        payloads: Sequence[bytes],
        futures: Sequence[Any] = (),
        size_bytes: int = 0,
        numbered: NumberedEvents | None = None,
        takes_back: TakesBack | None = None,
    ) -> Appended | None:
        """Append events as one batch. O(bytes).

        Args:
            segment: the segment to append to.
            payloads: the payloads of the events.
            futures: the futures of the events; `acknowledge` returns them.
            size_bytes: their share of the room for events that are not durable; `acknowledge` returns it.
            numbered: their writer and numbers; then there is a future for each event. Events that were appended before
                are skipped: `acknowledge` returns their futures when they are durable.
            takes_back: see `Appended`.

        Returns:
            Events that were durable before; None if there are none.

        Raises:
            SegmentSealed: the segment takes no appends; nothing was appended.
            FormatLimit: no event, or more than 1 GiB; nothing was appended.
            TypeError: events that are not bytes; nothing was appended.
        """
        check_append(payloads)
        with self._lock:
            if segment.is_sealed:
                raise SegmentSealed(segment.name, segment.segment_id)
            if numbered is not None:
                return self._append_new(segment, payloads, futures, numbered, takes_back)
            self._append_tracked(segment, payloads, futures, size_bytes, None, takes_back)
            return None

    def append_and_take(self, appends: Sequence[Append]) -> Taken:
        """Append to several segments, all or nothing, and take out all their waiting batches, as one atomic step.

        All appends have one clock value, which no segment of the host has exceeded; except that the values of a segment
        never fall, so that one with a value of a wrong clock, far ahead, keeps that value.

        Raises:
            As `append`.
        """
        for _, payloads in appends:
            check_append(payloads)
        with self._lock:
            for segment, _ in appends:
                if segment.is_sealed:
                    raise SegmentSealed(segment.name, segment.segment_id)
            value = appends[0][0].index.now() if appends else 0
            for segment, payloads in appends:
                self._append(segment, payloads, max(value, segment.index.last_value))
            return self._taken(dict.fromkeys(segment for segment, _ in appends))

    def take(self, most: int) -> list[Taken]:
        """Take out all waiting batches, in parts of at most this number of segments."""
        with self._lock:
            waiting = list(self._waiting)
            return [self._taken(waiting[at : at + most]) for at in range(0, len(waiting), most)]

    def seal(self, segments: Iterable[OpenSegment]) -> None:
        """Take no more appends to segments."""
        with self._lock:
            for segment in segments:
                segment.is_sealed = True

    def acknowledge(self, segment: OpenSegment, end: int) -> list[Appended]:
        """Take out and return the appends of a segment that are durable, up to an offset."""
        with self._lock:
            done = []
            segment.numbers.settle(end)
            while segment.unacknowledged and segment.unacknowledged[0].end <= end:
                done.append(segment.unacknowledged.popleft())
            if not segment.unacknowledged:
                self._unacknowledged.pop(segment, None)
            return done

    def unacknowledged(self, segment: OpenSegment) -> list[Appended]:
        """Return the appends of a segment that are not known to be durable."""
        with self._lock:
            return list(segment.unacknowledged)

    def give_up(self, segments: Collection[OpenSegment] | None = None) -> list[Appended]:
        """Take out and return the unacknowledged appends of some or all segments, durable or not."""
        with self._lock:
            left: list[Appended] = []
            for segment in list(self._unacknowledged) if segments is None else segments:
                left += segment.unacknowledged
                segment.unacknowledged.clear()
                self._unacknowledged.pop(segment, None)
            return left

    def release(self, segments: Collection[OpenSegment]) -> None:
        """Take no more appends to segments that another node has taken over."""
        with self._lock:
            for segment in segments:
                segment.is_sealed = segment.is_released = True

    def _append_new(
        self,
        segment: OpenSegment,
        payloads: Sequence[bytes],
        futures: Sequence[Any],
        numbered: NumberedEvents,
        takes_back: TakesBack | None,
    ) -> Appended | None:
        """Append the events that were not appended before; return the events that were durable before."""
        repeated = segment.numbers.repeated(numbered)
        if not repeated:
            self._append_tracked(segment, payloads, futures, size_bytes_of(payloads), numbered.run(), takes_back)
            return None
        durable = [at for at, is_durable in repeated.items() if is_durable]
        waiting = [at for at, is_durable in repeated.items() if not is_durable]
        new = [at for at in range(len(payloads)) if at not in repeated]

        def chosen(places: Sequence[int], end: int) -> Appended:
            size_bytes = size_bytes_of(payloads[at] for at in places)
            back = None if takes_back is None else takes_back.chosen(places)
            some = [futures[at] for at in places]
            return Appended(segment.segment_id, [REPEATED] * len(places), end, some, size_bytes, back)

        if waiting:
            self._track(segment, chosen(waiting, segment.end))
        if new:
            some = chosen(new, 0)
            run = numbered.chosen(new).run()
            left = [payloads[at] for at in new]
            self._append_tracked(segment, left, some.futures, some.size_bytes, run, some.takes_back)
        return chosen(durable, 0) if durable else None

    def _append_tracked(
        self,
        segment: OpenSegment,
        payloads: Sequence[bytes],
        futures: Sequence[Any],
        size_bytes: int,
        run: WriterRun | None,
        takes_back: TakesBack | None,
    ) -> None:
        start = segment.end
        self._append(segment, payloads, None, run)
        if futures or size_bytes:
            offsets = offsets_of(start, payloads, segment.unit)
            self._track(segment, Appended(segment.segment_id, offsets, segment.end, futures, size_bytes, takes_back))

    def _track(self, segment: OpenSegment, appended: Appended) -> None:
        segment.unacknowledged.append(appended)
        self._unacknowledged[segment] = None

    def _append(
        self, segment: OpenSegment, payloads: Sequence[bytes], value: int | None, run: WriterRun | None = None
    ) -> int:
        count = span_of(payloads, segment.unit)
        value = segment.index.append(segment.end + count, value)
        payload = encode_events(payloads, value, run)
        segment.waiting.append(RecordBatch(segment.stream_id, self._epoch, segment.end, count, payload))
        segment.end += count
        segment.appended_events += len(payloads)
        segment.appended_bytes += len(payload)
        if run is not None:
            segment.numbers.append(run, segment.end, value)
        self._waiting[segment] = None
        self._size_bytes += len(payload)
        return value

    def _taken(self, segments: Collection[OpenSegment]) -> Taken:
        taken = {}
        for segment in segments:
            taken[segment], segment.waiting = segment.waiting, []
            self._waiting.pop(segment, None)
            self._size_bytes -= sum(len(batch.payload) for batch in taken[segment])
        return taken


# Opening segments


class FoundSegments(NamedTuple):
    """Segments as they were found.

    Args:
        open: the segments that take appends, by id.
        sealed: the streams of sealed segments, by id of the segment.
        elsewhere: the streams of segments that another node has open, by id of the segment.
    """

    open: dict[int, OpenSegment]
    sealed: dict[int, StreamSpan]
    elsewhere: dict[int, StreamSpan]

    def refuse_elsewhere(self, what: str, name: StreamName) -> None:
        """Refuse a step of which other nodes must do a part.

        Raises:
            SegmentsElsewhere: another node has some of the segments open.
        """
        refuse_elsewhere(what, name, self.elsewhere)


@dataclass(eq=False)
class OpenSegments:
    """Opens segments, and keeps the open ones.

    Threads: any for `get`, `listed` and `forget`; one at a time for `find`, because it calls the node's session.

    Args:
        catalog: the catalog of the objects.
        node: the session.
        store: the store of objects, time indexes and histories.
        directory: looks up streams and segments.
        clock: the clock of the host.
        settings: bounds of the host.
        backoff: the pauses of writes with unknown outcome.
        system: clock, sleep and chance.
        move_records_min: the time index of a segment moves from memory to an object when it has this many records in
            memory whose data is durable; and whenever the segment is sealed or truncated, or the host is closed.
        moved_records_max: the limit of records in one such object.
    """

    catalog: ObjectCatalog
    node: NodeWriter
    store: ObjectStore
    directory: SegmentDirectory
    clock: HostClock
    settings: SegmentsSettings
    backoff: Backoff
    system: Components
    move_records_min: int = 1024
    moved_records_max: int = MOVED_RECORDS_MAX

    def __post_init__(self) -> None:
        self._lock = Lock()
        self._open: dict[tuple[StreamName, int], OpenSegment] = {}
        self._by_stream: dict[int, OpenSegment] = {}
        self._accelerator: ReadAccelerator | None = None
        self._cache = part_cache(CACHE_BYTES)
        self.tables = NumberTables(self.store, self.directory, self.backoff, self.settings, self.system)
        # Threads of its own: the work done here needs the catalog's threads, which would wait for themselves.
        self._executor = Threads(PARALLEL_SEGMENTS, "accel-segments")
        self.node.log_times(self)

    @property
    def accelerator(self) -> ReadAccelerator:
        """Reads data of earlier sessions; `find`, called by one thread at a time, makes it on first use."""
        if self._accelerator is None:
            self._accelerator = ReadAccelerator(self.catalog.images(), self.store, system=self.system)
        return self._accelerator

    def get(self, name: StreamName, segment_id: int) -> OpenSegment | None:
        """Return a segment that is open here; None if it is not."""
        with self._lock:
            return self._open.get((name, segment_id))

    def listed(self) -> list[OpenSegment]:
        """Return all segments that are open here."""
        with self._lock:
            return list(self._open.values())

    def forget(self, segments: Iterable[OpenSegment]) -> None:
        """Drop segments that are no longer written here."""
        with self._lock:
            for segment in segments:
                self._open.pop((segment.name, segment.segment_id), None)
                self._by_stream.pop(segment.stream_id, None)

    def find(self, name: StreamName, ids: Collection[int], *, is_step: bool = False) -> FoundSegments:
        """Open segments; sealed segments are returned separately.

        Args:
            name: scope and stream.
            ids: the ids of the segments.
            is_step: whether this is a step of a workflow, for which segments that another node has open are returned
                separately, too. For writers they are refused, before any segment is opened.

        Requests: 2 for each segment that is not open here yet, to the history and its time index, and 1 for each stream
        shard of the streams that the session has not open. If the catalog does not have all time records, also the
        requests to read the data after the index, and a checkpoint.

        Raises:
            CommitRefused: another node has a segment open.
            NotInHistory: there is no such segment.
        """
        segments = {segment_id: known for segment_id in ids if (known := self.get(name, segment_id)) is not None}
        stream_ids = {
            segment_id: self.directory.stream_id(name, segment_id) for segment_id in ids if segment_id not in segments
        }
        # The session knows its own streams; if it misses a take-over, its commit is refused.
        to_ask = [item for item in stream_ids.values() if is_step or self.node.end(item) is None]
        spans = stream_spans(self.catalog.parts, to_ask)
        known_spans = {item: spans[stream_id] for item, stream_id in stream_ids.items() if stream_id in spans}
        sealed = {item: span for item, span in known_spans.items() if not span.is_open}
        elsewhere = {item: span for item, span in known_spans.items() if span.is_open_beside(self.node.node_id)}
        if elsewhere and not is_step:
            first, span = next(iter(elsewhere.items()))
            expected = f"segments of {'/'.join(name)} that no node but {self.node.node_id} has open"
            raise CommitRefused(f"expected {expected}, found {segment_text(first)} open on node {span.node_id}")
        to_open = {
            segment_id: stream_ids[segment_id]
            for segment_id in stream_ids
            if segment_id not in sealed and segment_id not in elsewhere
        }
        try:
            self.begin(to_open.values())
        except CommitRefused:
            taken = self._taken_meanwhile(to_open) if is_step else {}
            if not taken:
                raise
            elsewhere |= taken
            to_open = {item: stream_id for item, stream_id in to_open.items() if item not in taken}
            self.begin(to_open.values())
        for segment_id, span in self._sealed_meanwhile(to_open).items():
            sealed[segment_id] = span
            del to_open[segment_id]
        opened = map_bounded(self._executor, lambda item: self._opened(name, *item), to_open.items())
        self._restore([segment for segment in opened if segment.index.end_offset < segment.end])
        self._read_numbers([segment for segment in opened if segment.end])
        segments |= {segment.segment_id: segment for segment in opened}
        with self._lock:
            self._open.update({(name, item): segment for item, segment in segments.items()})
            self._by_stream.update({segment.stream_id: segment for segment in segments.values()})
        if not all(segment.is_told for segment in opened):
            self._tell()
        return FoundSegments(segments, sealed, elsewhere)

    def _sealed_meanwhile(self, to_open: Mapping[int, int]) -> dict[int, StreamSpan]:
        """Return those of {segment id: stream id} whose stream a scale or a seal closed after it was looked up."""
        closed = {item: stream_id for item, stream_id in to_open.items() if self.node.end(stream_id) is None}
        spans = stream_spans(self.catalog.parts, closed.values())
        return {segment_id: spans[stream_id] for segment_id, stream_id in closed.items()}

    def _taken_meanwhile(self, to_open: Mapping[int, int]) -> dict[int, StreamSpan]:
        """Return those of {segment id: stream id} that another node has opened after they were looked up."""
        spans = stream_spans(self.catalog.parts, to_open.values())
        taken = {item: spans[stream_id] for item, stream_id in to_open.items() if stream_id in spans}
        return {item: span for item, span in taken.items() if span.is_open_beside(self.node.node_id)}

    def still_open(self, segments: Iterable[OpenSegment]) -> list[OpenSegment]:
        """Return the segments that are still open here: not those that another thread has sealed or let go."""
        with self._lock:
            return [segment for segment in segments if self._open.get((segment.name, segment.segment_id)) is segment]

    def begin(self, stream_ids: Collection[int]) -> None:
        """Open streams on the node, except those that were closed: a segment is sealed by closing its stream.

        Raises:
            CommitRefused: another node has a stream open.
        """
        absent = [segment_id for segment_id in stream_ids if self.node.end(segment_id) is None]
        if absent:
            self.node.open_streams(absent, reopens=False)

    def durable_end(self, segment: OpenSegment) -> int:
        """Return the end of a segment's durable data.

        Raises:
            CommitRefused: the node no longer writes the segment.
        """
        end = self.node.end(segment.stream_id)
        if end is None:
            found = f"{segment_text(segment.segment_id)} of {'/'.join(segment.name)}"
            raise CommitRefused(f"expected a stream that is open on node {self.node.node_id}, found {found}")
        return end

    def move_times(self, segments: Collection[OpenSegment]) -> None:
        """Move the time records of durable data to objects, side by side."""

        def move(segment: OpenSegment) -> int:
            return segment.index.move(self.durable_end(segment))

        map_bounded(self._executor, move, segments)

    def last_times(self, stream_ids: Mapping[int, int]) -> dict[int, int]:
        """Return the times of the last events of sealed segments, by id, given their streams; as `SegmentHost`.

        A time index that cannot be read does not stop a scale: its segment counts as written until now.
        """

        def read(item: tuple[int, int]) -> tuple[int, int] | None:
            segment_id, stream_id = item
            try:
                # No data is added here, so the clock is never read.
                index = SegmentTimeIndex.open(self.store, stream_id, HostClock(lambda: 0), cache=self._cache)
                return (segment_id, min(index.last_value, INT64_MAX)) if index.records else None
            except (AccelError, ValueError) as error:
                logger.warning("the times of segment %s are not known: %s", segment_text(segment_id), error)
                return segment_id, min(self.clock.now(), INT64_MAX)

        return dict(found for found in map_bounded(self._executor, read, stream_ids.items()) if found is not None)

    def delete_times(self, name: StreamName, stream_ids: Mapping[int, int]) -> None:
        """Delete the time indexes of segments, and their tables of numbers, which the segments that follow get before.

        1 listing and 1 request for 1,000 objects; see `NumberTables.hand_on` for segments with tables.

        Args:
            name: scope and stream.
            stream_ids: {segment id: its stream}.
        """
        for segment_id, stream_id in sorted(stream_ids.items()):  # predecessors before their successors
            listed = [info.key for info in self.store.list(time_part_prefix(stream_id))]
            tables = {key for key in listed if parse_number_table_key(stream_id, key) is not None}
            keys = [key for key in listed if key in tables or parse_time_part_key(stream_id, key) is not None]
            if tables:
                with suppress(StreamDeleted):  # the whole stream is being deleted: no segment follows
                    self.tables.hand_on(name, segment_id)
            erase_keys(self.store, keys[::-1])  # from the end: if this stops half-way, the rest is a valid chain

    # Numbers of writers

    def load_numbers(self, name: StreamName, ids: Collection[int]) -> None:
        """Load the numbers that open segments had on other nodes, and the numbers of their predecessors.

        No request for segments that have them, and for empty segments of a stream's first epoch; else
        `NumberTables.load`.
        """
        for segment_id in ids:
            segment = self.get(name, segment_id)
            if segment is None or segment.numbers.is_loaded:
                continue
            self.tables.load(name, segment_id, segment.numbers)

    def keep_taken(self, name: StreamName, segment_ids: Mapping[int, int], ends: Mapping[int, int], rows: Rows) -> None:
        """Write tables of segments that are taken over from another node; see `KeepNumbers`.

        Reads the data whose numbers are missing in that node's list.

        Args:
            name: scope and stream.
            segment_ids: {stream id: segment id}.
            ends: the ends of the streams, by id.
            rows: WRITER_NUMBER rows of the other node.
        """
        are_missing = bool((rows["stream_id"] == NO_STREAM).any())
        spans = stream_spans(self.catalog.parts, ends) if are_missing else {}

        def keep(stream_id: int) -> None:
            own, numbers = rows[rows["stream_id"] == stream_id], self.tables.new()
            numbers.inherit(own)
            if are_missing:
                self._note_data(stream_id, max(known_end(own), spans[stream_id].start), ends[stream_id], numbers)
            # Rows marked as complete may be older than the segment's time on other nodes: read the tables.
            self.tables.load(name, segment_ids[stream_id], numbers)
            self.tables.keep(stream_id, ends[stream_id], numbers)

        map_bounded(self._executor, keep, ends if are_missing else np.unique(rows["stream_id"]).tolist())

    def keep_numbers(self, segments: Collection[OpenSegment]) -> None:
        """Write the tables of segments that leave this node, at the end of their data. 1 request each."""

        def keep(segment: OpenSegment) -> None:
            end = self.durable_end(segment)
            if len(segment.numbers.rows(segment.stream_id, end)):
                self.load_numbers(segment.name, [segment.segment_id])
                self.tables.keep(segment.stream_id, end, segment.numbers)

        map_bounded(self._executor, keep, segments)

    # For the session's commits and checkpoints: see `TimeLog`

    def appended(self, stream_ids: Integers, starts: Integers, ends: Integers) -> Rows:
        """Return time records of appends within these ranges. O(streams)."""
        pieces = [no_rows(TIME_RECORD)]
        for stream_id, start, end in zip(stream_ids.tolist(), starts.tolist(), ends.tolist(), strict=True):
            if (segment := self._by_stream.get(stream_id)) is not None:
                within = segment.index.ended_within(start, end)
                if within.end_offset == end:  # only then the records contain the end of the stream
                    pieces.append(rows_of(stream_id, within))
        return np.concatenate(pieces)

    def kept(self, ends: StreamEnds) -> Rows:
        """Return time records in memory, up to these ends, and the last moved record of each segment."""
        pieces = [no_rows(TIME_RECORD)]
        known = [(segment, ends.end(segment.stream_id)) for segment in self.listed()]
        pieces += [segment.index.rows(segment.stream_id, end) for segment, end in known if end is not None]
        return np.concatenate(pieces)

    def numbered(self, stream_ids: Integers, starts: Integers, ends: Integers) -> Rows:
        """Return numbers of writers of appends within these ranges. O(streams)."""
        pieces = [no_rows(WRITER_NUMBER)]
        for stream_id, start, end in zip(stream_ids.tolist(), starts.tolist(), ends.tolist(), strict=True):
            if (segment := self._by_stream.get(stream_id)) is not None:
                pieces.append(segment.numbers.between(stream_id, start, end))
        return np.concatenate(pieces)

    def kept_numbers(self, ends: StreamEnds) -> Rows:
        """Return numbers of all known writers, up to these ends."""
        known = [(segment, ends.end(segment.stream_id)) for segment in self.listed()]
        pieces = [segment.numbers.rows(segment.stream_id, end) for segment, end in known if end is not None]
        return np.concatenate([no_rows(WRITER_NUMBER), *pieces])

    def stream_ids(self) -> Integers:
        """Return the streams of all segments that are open here."""
        return np.array([segment.stream_id for segment in self.listed()], dtype=np.int64)

    def close(self) -> None:
        """Stop its threads, and close its reader."""
        self._executor.shutdown(wait=True)
        if self._accelerator is not None:
            self._accelerator.close()

    def _opened(self, name: StreamName, segment_id: int, stream_id: int) -> OpenSegment:
        known, end = records_of(self.node.times(stream_id)), self.node.end(stream_id) or 0
        index = SegmentTimeIndex.open(
            self.store,
            stream_id,
            self.clock,
            cache=self._cache,
            backoff=self.backoff,
            moved_records_max=self.moved_records_max,
            memory=known,
            is_whole=known is not None and known.end_offset == end,
        )
        if index.end_offset > end:
            refuse_lost(self.catalog.parts, self.node.node_id, self.node.session_number, stream_id)
            found = f"one up to {index.end_offset}: was a commit undone?"
            raise InconsistentAnswer(f"stream {stream_id}: expected a time index up to its end {end}, found {found}")
        is_told = end == 0 or (known is not None and known.end_offset == index.end_offset == end)
        told, numbers = self.node.numbers(stream_id), self.tables.new()
        numbers.inherit(told.rows)
        numbers.is_loaded = known_end(told.rows) >= 0 or (end == 0 and not epoch_of(segment_id))
        is_told = is_told and (end == 0 or not told.are_missing)
        unit = self.directory.unit(name)
        return OpenSegment(name, segment_id, stream_id, unit, index, numbers, end, is_told=is_told)

    def _tell(self) -> None:
        """Write a checkpoint of records that were read from data at once, so that the next start is fast."""
        try:
            self.node.checkpoint()
        except AccelError:  # a checkpoint only saves work; the next one is written after some commits
            logger.warning("time indexes that were read again are not in a checkpoint yet", exc_info=True)

    def _restore(self, segments: Collection[OpenSegment]) -> None:
        if not segments:
            return
        accelerator = self.accelerator
        spans = stream_spans(self.catalog.parts, [segment.stream_id for segment in segments])

        def restore(segment: OpenSegment) -> int:
            start, noting = spans[segment.stream_id].start, segment.numbers.noting
            return self._read_to_end(
                lambda: restore_times(
                    segment.index, accelerator, segment.stream_id, segment.unit, start, segment.end, through=noting
                )
            )

        map_bounded(self._executor, restore, segments)

    def _read_numbers(self, segments: Collection[OpenSegment]) -> None:
        """Read the data whose numbers are missing in the catalog."""
        missing = [segment for segment in segments if self.node.numbers(segment.stream_id).are_missing]
        if not missing:
            return
        spans = stream_spans(self.catalog.parts, [segment.stream_id for segment in missing])

        def read(segment: OpenSegment) -> None:
            told = self.node.numbers(segment.stream_id)
            start = max(known_end(told.rows), told.start, spans[segment.stream_id].start)
            self._note_data(segment.stream_id, start, segment.end, segment.numbers)

        map_bounded(self._executor, read, missing)

    def _note_data(self, stream_id: int, start: int, end: int, numbers: SegmentNumbers) -> None:
        """Note the numbers of all events in a range of a stream."""
        accelerator = self.accelerator

        def note() -> None:
            found = start
            for batch in numbers.noting(accelerator.read(stream_id, start, end)):
                found = batch.end_offset
            if found < end:
                raise InconsistentAnswer(f"stream {stream_id}: expected batches up to {end}, found them up to {found}")

        if start < end:
            self._read_to_end(note)

    def refresh(self) -> None:
        """Let the next reads use the newest image.

        Raises:
            AccelError: it cannot be had.
        """
        accelerator = self.accelerator
        self.catalog.refresh()  # an accelerator whose refresh fails goes on with the image that it has
        accelerator.refresh()

    def _read_to_end(self, read: Callable[[], T]) -> T:
        """Read data up to the end of a stream; once more in the newest image, if the image of the reader is older.

        The session and the stream shards know the end. The reader is not used between two starts of segments, and its
        image may be older than the last commits. Any number of threads may do this at once.
        """
        try:
            return read()
        except (InconsistentAnswer, UnknownStream):
            self.refresh()
            return read()


def erase_keys(store: ObjectStore, keys: Sequence[str]) -> None:
    """Delete objects in order, 1,000 a request; missing objects count as deleted.

    Raises:
        StoreError: some objects were not deleted.
    """
    failures = store.delete_many(keys) if keys else []
    if failures:
        raise failures[0].error
