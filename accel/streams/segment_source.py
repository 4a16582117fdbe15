"""The source of a reader's events: the segments of a stream, read as streams of the object layer.

    segment  --history-->  stream of the object layer  --lookup-->  objects  -->  blocks  -->  batches  -->  events

The time index of a segment contains the arrival time of each batch. Records that are not in its objects yet are in the
memory of a host; for these, and if the index cannot be read, the value stored in the batch is used, which is the same.

| request                              | calls to the history                                                        |
|--------------------------------------|-----------------------------------------------------------------------------|
| events of a segment                  | 1 the first time: for the segment's stream of the object layer              |
| whether it is sealed; its successors | 2 and a newer image for all segments each second; 4 for a sealed segment     |
| the same, for readers that follow    | 2 for all segments when there is a newer image, and each 60 seconds; each    |
|                                      | second while a workflow is under way                                         |

Reading events costs the requests of `ReadAccelerator.read`. Batches of Accel's writers contain their arrival time, so
their index is not read; for other batches the index costs one listing a segment, and one read for each 65,536 appends.

Readers that follow do not poll: the future of `watch` is done when there is a newer image. New data and new segments
become visible with a newer image only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import pairwise
from threading import Lock
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
from cachetools import LRUCache

from accel.errors import AccelError, InvalidRequest, PositionBeyondEnd, PositionTruncated, ReaderStalled
from accel.history.rules.configuration import OffsetUnit
from accel.history.rules.cuts import later
from accel.history.rules.retention import place_truncation
from accel.history.rules.segments import KeyProfile, KeyRanges
from accel.history.rules.states import StreamState
from accel.history.rules.values import TIME_MS_END, IdMap, checked_arguments, checked_id, checked_integer, segment_text
from accel.history.store import Stream
from accel.image import OPEN_END, ImageVersion, MetadataImage, is_newer, version_number
from accel.lookup.accelerator import ReadAccelerator
from accel.lookup.answer import Ending
from accel.streams.rules.arrival_order import SegmentRead
from accel.streams.rules.events import EventColumns, HostClock, decode_columns
from accel.streams.rules.frontier import Frontier
from accel.streams.rules.reader_core import AskEnd, Fill, SegmentEnd, SegmentEvents
from accel.streams.time_index import PartCache, SegmentTimeIndex, part_cache
from accel.system import SYSTEM, Components
from loaders.format import BatchColumns
from loaders.lifetime import PerProcess
from loaders.shared_loads import SharedChunks, SharedLoads
from loaders.store import ObjectStore
from range_index.segment_times import NO_TOKEN

NEWEST_SECONDS: Final = 1.0
"""How long the image, and the list of segments that take writes, count as the newest after the answer: on a slow store
the answer alone takes longer, and each segment would ask anew."""

WATCH_SECONDS: Final = 5.0
"""The time limit of one wait for a newer image; a reader that follows then begins the next one."""

HISTORY_SECONDS: Final = 60.0
"""How long the list of segments that take writes is valid for readers that follow, if the image does not change."""

NEWEST: Final = "newest"

SEGMENTS_KNOWN_MAX: Final = 10_000
"""The number of segments whose data is cached; the least recently read segments are looked up again."""

log = logging.getLogger(__name__)


class SegmentSource(Protocol):
    """Answers the requests of a reader; any thread may call it."""

    def fill(self, fill: Fill) -> SegmentEvents:
        """Return events of a segment.

        Raises:
            PositionTruncated: the stream begins after the offset.
            AccelError: the events could not be read.
        """
        ...

    def ask_end(self, step: AskEnd) -> SegmentEnd:
        """Return the end and the successors of a segment, if it is sealed.

        Raises:
            PositionBeyondEnd: the segment ends before `begun_at`, by the newest metadata.
            AccelError: the history could not be read.
        """
        ...


@runtime_checkable
class WatchedSource(SegmentSource, Protocol):
    """A source that reports when there may be more events."""

    def watch(self) -> Future[bool]:
        """Return a future: true once there may be more events than now; false after some seconds if this is not known.

        Does not block and raises no error; any thread may call it.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Newest:
    """The segments that took writes at some time, and the image of this time.

    A workflow closes segments in the catalog before it changes the history: then the data here is not settled, and no
    newer image will report the rest of the change.
    """

    answered_seconds: float
    version: ImageVersion
    active: frozenset[int]
    is_settled: bool


@dataclass(slots=True, eq=False)
class _Known:
    """Cached data of a segment: its stream of the object layer, the image of its last read, and its time index.

    `index_version` is the image with which the index was last refreshed; `empty_at` is the image and the offset at
    which the segment was empty though it was not truncated; `asked_version` the image when its end was last asked for.
    """

    stream_id: int
    version: ImageVersion | None = None
    is_opened: bool = False
    empty_at: tuple[ImageVersion | None, int] | None = None
    index: SegmentTimeIndex | None = None
    index_version: ImageVersion | None = None
    asked_version: ImageVersion | None = None


class _State:
    """The cached segments of one process; their indexes have locks of their own."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.segments: LRUCache[int, _Known] = LRUCache(SEGMENTS_KNOWN_MAX)


@checked_arguments
class ObjectSegmentSource:
    """Reads a stream from its objects. Threads: any; a forked process may continue to use its parent's source.

    Args:
        stream: the stream to read.
        accelerator: finds objects and reads batches.
        store: the store of the objects, which also contains the time indexes.
        cache: the cache of parts of time indexes.
        chunks: the chunks of objects, shared by the segments; None = chunks of its own.
        system: the timer.
    """

    def __init__(
        self,
        stream: Stream,
        accelerator: ReadAccelerator,
        store: ObjectStore,
        *,
        cache: PartCache | None = None,
        chunks: SharedChunks | None = None,
        system: Components = SYSTEM,
    ) -> None:
        self._stream = stream
        self._accelerator = accelerator
        self._store = store
        self._cache = part_cache() if cache is None else cache
        self._chunks = SharedChunks(store) if chunks is None else chunks
        self._timer = system.timer
        self._begun_seconds = system.timer()
        self._kept = PerProcess("segments", _State)
        self._unit: OffsetUnit | None = None
        self._watched: Future[Any] | None = None
        self._confirmed: ImageVersion | None = None  # an image with all data from before this source was made
        self._last: _Newest | None = None
        self._newest_of: SharedLoads[str, _Newest] = SharedLoads(1, lambda _: 1)

    def watch(self) -> Future[bool]:
        """See `WatchedSource.watch`."""
        told: Future[bool] = Future()
        try:
            asked = self._watched = self._accelerator.next_image(self._accelerator.image_version, WATCH_SECONDS)
        except AccelError:
            told.set_result(False)
        else:
            asked.add_done_callback(lambda done: told.set_result(_brought_more(done)))
        return told

    def image_changed(self) -> None:
        """Report a commit, so that readers that follow look for data at once. Never blocks.

        For callers with a channel that reports commits; it causes at most ten requests a second.
        """
        self._accelerator.image_changed()

    def fill(self, fill: Fill) -> SegmentEvents:
        """See `SegmentSource.fill`."""
        return self._read(fill)

    def _read(self, fill: Fill, *, wants_token: bool = False) -> SegmentEvents:
        end = OPEN_END if fill.end is None else fill.end
        known = self._segment(fill.segment_id)
        known.version = self._accelerator.image_version
        as_of = version_number(known.version)
        reading = self._accelerator.read(
            known.stream_id,
            fill.offset,
            end,
            max_bytes=fill.max_bytes,
            ranges=self._chunks,
            ahead_bytes=fill.ahead_bytes,
        )
        try:
            columns = list(reading.columns())
        except InvalidRequest:
            if known.empty_at != (known.version, fill.offset):
                self._refuse_truncated(fill)
                known.empty_at = known.version, fill.offset
            token = self._token(fill, known) if wants_token else fill.token
            return SegmentEvents((), fill.offset, token, as_of)  # nothing was written yet
        timed, token = self._timed(fill, known, columns, wants_token=wants_token)
        batches = tuple(batch for events in timed for batch in events.batches())
        newest = version_number(self._accelerator.image_version)  # a read may continue with a newer image
        return SegmentEvents(batches, reading.next_offset, token, as_of, newest, reading.ending is Ending.LIMIT)

    def columns(self, segment_id: int, start: int, end: int) -> Iterator[EventColumns]:
        """Return the events of a segment between two offsets as columns: for bulk reads that need no single events.

        Batches are whole: the first may begin before the start, the last may end after the end. Bytes are fetched ahead
        as far as `ReadAccelerator.read` does, whatever the range is.

        Args:
            segment_id: the segment.
            start: the first offset.
            end: one past the last offset; the data before it must be durable.

        Raises (while iterating):
            PositionTruncated: the stream begins after an offset.
            ReaderStalled: the newest image lacks data of the range.
            AccelError: as `fill`.
        """
        return self._columns(segment_id, start, end)

    def _columns(self, segment_id: int, start: int, end: int) -> Iterator[EventColumns]:
        known, fill, is_newest = self._segment(segment_id), Fill(segment_id, start, 1, end=end), False
        while fill.offset < end:
            with self._accelerator.read(known.stream_id, fill.offset, end) as reading:
                try:
                    for batches in reading.columns():
                        known.version, is_newest = self._accelerator.image_version, False
                        timed, token = self._timed(fill, known, [batches], wants_token=False)
                        fill = fill._replace(offset=reading.next_offset, token=token)
                        yield from timed
                except InvalidRequest:
                    self._refuse_truncated(fill)
                fill = fill._replace(offset=reading.next_offset)
            if fill.offset < end and is_newest:
                where = f"segment {segment_text(segment_id)} of {self._stream.name}"
                raise ReaderStalled(f"{where}: expected events from {fill.offset} to {end}, found none")
            if fill.offset < end:
                self._accelerator.refresh()
                is_newest = True

    def read(self, segment_id: int, offset: int, max_bytes: int, token: int = NO_TOKEN) -> SegmentRead:
        """Return the bytes of a segment's events from an offset on, for a peer.

        Args:
            segment_id: the segment.
            offset: the offset of an event.
            max_bytes: the approximate limit of payload.
            token: the token of the last read; `NO_TOKEN` = none: the result is the same, but costs more: if the offset
                is after the moved part of the time index, the data between is read and its batches are counted.

        Returns:
            The events' bytes, one after the other, a clock value for each append, and the token for the next read: the
            number of the record that covers the next offset. `NO_TOKEN` only if the time index cannot be read.

        Raises:
            AccelError: as `fill`.

        Source: PDP-28, "ReadSegment", "SegmentRead".
        """
        segment_id, offset = checked_id(segment_id), checked_integer("an offset", offset, 0)
        max_bytes, token = checked_integer("bytes", max_bytes, 1), checked_integer("a token", token)
        events = self._read(Fill(segment_id, offset, max_bytes, token), wants_token=True)
        batches = [part for batch in events.batches if len(part := batch.within(offset))]
        values = np.array([batch.value for batch in batches], dtype=np.uint64)
        return SegmentRead(b"".join(batch.payloads() for batch in batches), values, events.token)

    def ask_end(self, step: AskEnd) -> SegmentEnd:
        """See `SegmentSource.ask_end`."""
        segment_id = step.segment_id
        active = self._active(segment_id)
        if not step.begun_at and self._is_stale(segment_id):
            return SegmentEnd(None, is_stale=True)
        size = None if segment_id in active else self._stream.cuts.sealed_size(segment_id)
        if step.begun_at:
            self._refuse_beyond(segment_id, step.begun_at, size)
            if self._is_stale(segment_id):
                return SegmentEnd(None, is_stale=True)
        if size is None:
            return SegmentEnd(None)
        following = self._stream.epochs.successors(segment_id)
        if not following:
            # It has no successors for good only if the stream is sealed, and was sealed before this is read: sizes are
            # written while a scale is under way.
            is_over = self._stream.state() is StreamState.SEALED
            following = self._stream.epochs.successors(segment_id)
            if not following and not is_over:
                return SegmentEnd(None)
        successors = tuple(self._stream.epochs.segment(segment_id) for segment_id in sorted(following))
        is_stale = self._accelerator.image_version != self._segment(segment_id).version
        return SegmentEnd(size, successors, is_stale=is_stale)

    def _segment(self, segment_id: int) -> _Known:
        with (kept := self._kept()).lock:
            known = kept.segments.get(segment_id)
        if known is None:
            known = _Known(self._stream.segment_stream(segment_id))
            with kept.lock:
                known = kept.segments.setdefault(segment_id, known)
        return known

    def _active(self, segment_id: int) -> frozenset[int]:
        """Return segments that take writes, newer than needed to know whether this one does.

        A segment that was created and did not take writes is sealed for good, and the image since then has its data;
        nothing is asked about it unless that image was not enough.
        """
        known, image, last = self._segment(segment_id), self._accelerator.image_version, self._last
        is_over = last is not None and segment_id not in last.active and segment_id <= max(last.active, default=-1)
        active = frozenset[int]() if is_over and known.asked_version != image else self._newest()
        known.asked_version = self._accelerator.image_version
        return active

    def _newest(self) -> frozenset[int]:
        """Return the segments that take writes, at most `NEWEST_SECONDS` old; also installs the newest image.

        One thread reads them, the others wait for it. So a reader at the end finds all data that was committed before
        it began.
        """
        return self._newest_of.get(NEWEST, self._ask_newest, self._is_new).active

    def _is_new(self, known: _Newest) -> bool:
        age_seconds = self._timer() - known.answered_seconds
        if age_seconds < NEWEST_SECONDS:
            return True
        is_as_of_now = known.is_settled and known.version == self._accelerator.image_version
        return is_as_of_now and age_seconds < HISTORY_SECONDS and self._is_watched()

    def _is_watched(self) -> bool:
        return self._watched is not None and not self._watched.done()

    def _ask_newest(self) -> _Newest:
        version = self._accelerator.image_version
        state = self._stream.state()
        active = frozenset(() if state is StreamState.SEALED else self._stream.active_segments().ids.tolist())
        # Data that was committed before the reader began must be in the image; only a confirmed image certainly has it.
        # Following finds later data, at a fraction of the cost.
        if self._accelerator.image_age_seconds >= self._timer() - self._begun_seconds:
            self._accelerator.refresh()
        elif not self._is_watched():
            self._accelerator.follow()
        if self._confirmed is None:
            self._confirmed = self._accelerator.image_version
        self._last = _Newest(self._timer(), version, active, state in (StreamState.ACTIVE, StreamState.SEALED))
        return self._last

    def _timed(
        self, fill: Fill, known: _Known, columns: list[BatchColumns], *, wants_token: bool
    ) -> tuple[list[EventColumns], int]:
        """Return events with their stored values; if some have none, with those of the moved part of the time index.

        The index has the same values. It is also read if the caller needs the number of the next record.
        """
        if not columns:
            return [], self._token(fill, known) if wants_token else fill.token
        unit = self._offset_unit()
        decoded = [decode_columns(batches, fill.segment_id, unit) for batches in columns]
        ends = np.concatenate([batches.end_offsets for batches in columns])
        is_timed = all(events.are_timed for events in decoded)
        is_asked = wants_token or not is_timed
        index = self._index(fill.segment_id, known, int(ends[-1]), is_timed=is_timed) if is_asked else None
        count = 0 if index is None else int(ends.searchsorted(index.end_offset, side="right"))
        values: list[int] = []
        token = 0 if fill.offset == 0 else fill.token
        if index is not None and count:
            bounds = np.concatenate((columns[0].base_offsets[:1], ends[:count]))
            try:
                values, token = _values_in(index, bounds.tolist(), token)
            except (AccelError, ValueError) as error:
                _drop(fill.segment_id, known, error)
                count = 0
        if wants_token and not count:
            token = self._token(fill, known)
        # One append is one record: so the number of the next record is known even if the record has not moved yet.
        token = token if token == NO_TOKEN else token + len(ends) - count
        return _with_values(decoded, values), token

    def _token(self, fill: Fill, known: _Known) -> int:
        """Return the number of the record that covers the offset, or of the next record; `NO_TOKEN` without an index.

        Records after the moved part are counted in the data, one a batch, unless the caller's token can be right.
        """
        if fill.offset == 0:
            return 0
        index = self._index(fill.segment_id, known, fill.offset, is_timed=False)
        if index is None:
            return NO_TOKEN
        try:
            found = index.locate(fill.offset)
            if found.end > fill.offset or found.record <= fill.token <= found.record + fill.offset - found.end:
                return max(found.record, fill.token) if found.end <= fill.offset else found.record
            reading = self._accelerator.read(known.stream_id, found.end, fill.offset, ranges=self._chunks)
            ends = [batches.end_offsets for batches in reading.columns()]
        except (AccelError, ValueError) as error:
            log.warning("segment %s is read without a token: %s", segment_text(fill.segment_id), error)
            return NO_TOKEN
        return found.record + sum(int(each.searchsorted(fill.offset, side="right")) for each in ends)

    def _index(self, segment_id: int, known: _Known, end: int, *, is_timed: bool) -> SegmentTimeIndex | None:
        """Return the index, opened on first use; for data without stored times it is refreshed once per image."""
        try:
            if not known.is_opened:
                # No data is added here, so the clock is never read.
                clock = HostClock(lambda: 0)
                known.index = SegmentTimeIndex.open(self._store, known.stream_id, clock, cache=self._cache)
                known.is_opened, known.index_version = True, known.version
            elif (index := known.index) is not None and not is_timed and index.end_offset < end:
                if known.index_version != known.version:
                    index.refresh()
                known.index_version = known.version
        except (AccelError, ValueError) as error:
            _drop(segment_id, known, error)
        return known.index

    def _offset_unit(self) -> OffsetUnit:
        if self._unit is None:
            self._unit = self._stream.configuration().offset_unit
        return self._unit

    def _is_stale(self, segment_id: int) -> bool:
        """Whether the last read of a segment was of an image from before this source was made.

        Not of each older image: on a slow store there is a newer one by now whenever anything is written anywhere, and
        no end would be reached.
        """
        version = self._segment(segment_id).version
        return version is None or self._confirmed is None or is_newer(self._confirmed, version)

    def _refuse_beyond(self, segment_id: int, offset: int, size: int | None) -> None:
        """Refuse an offset after the end of a segment, which is its size if it is sealed."""
        if size is None and not self._reaches(segment_id, offset):
            self._accelerator.refresh()  # another process may have read what was stored a moment ago
            if not self._reaches(segment_id, offset):
                head = self._stream.head().get(segment_id, 0)
                size, _ = _first_offset(self, segment_id, max(head, 0), None)
        if size is not None and offset > size:
            raise PositionBeyondEnd(self._stream.name, segment_id, offset, size)

    def _reaches(self, segment_id: int, offset: int) -> bool:
        """Whether a segment has, or had, the data before an offset above 0."""
        stream_id = self._segment(segment_id).stream_id
        before = self._accelerator.read(stream_id, offset - 1, offset, max_bytes=1, ranges=self._chunks)
        try:
            return bool(list(before.columns()))
        except InvalidRequest:
            return self._head_after(segment_id, offset - 1) is not None

    def _refuse_truncated(self, fill: Fill) -> None:
        head = self._head_after(fill.segment_id, fill.offset)
        if head is not None:
            raise PositionTruncated(self._stream.name, fill.segment_id, fill.offset, dict(head))

    def _head_after(self, segment_id: int, offset: int) -> IdMap | None:
        """The head of the stream, if the stream begins after an offset of a segment."""
        head = place_truncation(self._stream.truncation())
        if head is None:
            return None
        if segment_id in head.cut:
            return head.cut if head.cut[segment_id] > offset else None
        segment = self._stream.epochs.segment(segment_id)
        profile = KeyProfile.of(head.segments.ranges, head.cut.ids)
        ranges = KeyRanges([segment.key_start], [segment.key_end])
        return head.cut if int(profile.highest_over(ranges)[0]) > segment.id else None


def _with_values(decoded: list[EventColumns], values: list[int]) -> list[EventColumns]:
    """Return the events with these clock values for the first appends."""
    if not values:
        return decoded
    stored = np.concatenate([columns.values for columns in decoded])
    stored[: len(values)] = values
    ends = np.cumsum([len(columns.values) for columns in decoded])
    parts = np.split(stored, ends[:-1])
    return [columns._replace(values=part) for columns, part in zip(decoded, parts, strict=True)]


def _values_in(index: SegmentTimeIndex, bounds: list[int], token: int) -> tuple[list[int], int]:
    """Return the clock values of batches between these offsets, and the token for the next read of the index."""
    start, end = bounds[0], bounds[-1]
    read = index.read(start, end - start, token)
    if len(read.values) == len(bounds) - 1:  # one append is one record, as Accel's writers make them
        return read.values.tolist(), read.token
    pieces = [index.read(first, after - first) for first, after in pairwise(bounds)]
    return [piece.value for piece in pieces], read.token


def _brought_more(asked: Future[Any]) -> bool:
    return asked.exception() is None and isinstance(asked.result(), MetadataImage)


def _drop(segment_id: int, known: _Known, error: Exception) -> None:
    log.warning("time index of segment %s is not used: %s", segment_text(segment_id), error)
    known.index, known.is_opened = None, True


# The cut of a time

PASSED_MAX: Final = 1_000
"""Segments that a search by time passes at most; its cut is then earlier than necessary, and skips nothing."""

SEARCHES_MAX: Final = 10
"""How often a search reads the end of a segment again because a newer image came meanwhile."""


def cut_at(stream: Stream, source: SegmentSource, time_ms: int | None) -> dict[int, int]:
    """Return the last cut after which all events of a time or later are.

    Events before this time come after the cut only if they are behind such an event in the order of reading: in the
    segments that follow an event of a wrong clock. In a sealed stream the last cut is that of the ends of its segments.

    The search begins at `Stream.segments_at`, before which no such event is, and passes each segment that is sealed and
    has none. Each of these segments costs O(log events) reads of one batch, and 5 calls if it is sealed.

    Args:
        stream: the stream.
        source: reads the stream.
        time_ms: milliseconds since 1970; None, or a time in the future = after all events that the source knows.

    Raises:
        AccelError: the history or an object could not be read.
    """
    begins: Mapping[int, int] = stream.segments_at(TIME_MS_END - 1 if time_ms is None else time_ms)
    if not stream.cuts.is_valid(begins):
        begins = stream.head()  # the data of that time was truncated
    elif (head := place_truncation(stream.truncation())) is not None:
        begins = later(stream.cuts.place(begins), head).cut  # some of it was
    position = Frontier(stream.cuts.span(begins).segments, begins)
    to_search, passed = position.started, 0
    while to_search:
        segment_id = to_search.pop()
        end = _search(source, position, segment_id, time_ms)
        if (
            end is not None and end.successors and passed < PASSED_MAX
        ):  # nothing follows the segments of a sealed stream
            to_search += position.finish(segment_id, end.successors)
            passed += 1
    return dict(position.cut())


def _search(source: SegmentSource, position: Frontier, segment_id: int, time_ms: int | None) -> SegmentEnd | None:
    """Move to the first event of a segment that did not arrive before a time; return its end if it has none."""
    for _ in range(SEARCHES_MAX):
        first, is_found = _first_offset(source, segment_id, position.offset(segment_id), time_ms)
        position.advance(segment_id, first)
        if is_found:
            return None
        end = source.ask_end(AskEnd(segment_id))
        if not end.is_stale:  # else there may be more events in a newer image
            return end if end.size == first else None
    return None


def _first_offset(source: SegmentSource, segment_id: int, low: int, time_ms: int | None) -> tuple[int, bool]:
    """Return the offset of the first batch, from an offset on, that did not arrive before a time: times never fall.

    Also whether there is one; if not, the offset is the end of the data that the source knows.
    """

    def earlier(offset: int) -> tuple[int | None, bool]:
        """Return the end of the batch at an offset, if it arrived before the time; and whether there is a batch."""
        batches = source.fill(Fill(segment_id, offset, 1)).batches
        is_earlier = bool(batches) and (time_ms is None or batches[0].value < time_ms)
        return batches[0].next_offset if is_earlier else None, bool(batches)

    width = 0
    end, is_there = earlier(low)
    while end is not None:
        low, width = end, max(1, 2 * width)
        end, is_there = earlier(low + width)
    high, is_found = low + width, is_there
    while low < high:
        middle = (low + high) // 2
        end, is_there = earlier(middle)
        if end is None:
            high, is_found = middle, is_there
        else:
            low = end
    return low, is_found
