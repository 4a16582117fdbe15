"""The time index of one segment: its newest records in memory, all others in immutable objects.

    accel/time/7/00000000000000000000   accel/time/7/00000000000000000003   memory
    48 bytes: records 0 1 2             64 bytes: records 3 4 5 6           7 8 9

Record numbers, and so tokens, go through all of them. The key of a part names its first record, so a listing alone
tells how many records there are and where each lies. A part is written only where the one before it ends, and only if
nothing lies there; none of them changes, so all parts form one chain without a hole, whichever process wrote them. A
listing that says otherwise is damage. The records of a part are read on demand and kept in a cache of bounded size; its
first and last offsets stay in 16 bytes (`Landmarks`), so that usually no other part is read for an offset.

Records are added in memory. `move` writes those that end at or before an offset as one part, and drops them in memory
*after* the part is there; questions and answers are the same before and after. Something may lie at the key already:
the reply to an earlier attempt was lost, or another process had the segment before and its request came late. The
records there are compared with those here:

    | it has                               | result                                                        |
    |--------------------------------------|---------------------------------------------------------------|
    | fewer records than this write        | those have moved; the next part begins behind them            |
    | more, all of which are in memory     | all of those have moved                                       |
    | more than are in memory              | the index goes on behind it: it had more than this process    |
    | other records                        | `PreconditionFailed`: two processes write one segment         |

Records in memory are lost with the process. They stand in the data as well: a batch is one append, ends where its
record ends, and has its clock value logged. `restore_times` makes the lost records again, the same as they were, from
the batches behind the last moved record. A host that writes them also tells its commits and checkpoints of them, at no
request (`rows_of`), so that the next one begins with these (`records_of`) and reads no data.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accel.catalog.records import TIME_RECORD, Rows, make_rows, no_rows
from accel.errors import InconsistentAnswer
from accel.history.rules.configuration import OffsetUnit
from accel.lookup.accelerator import ReadAccelerator
from accel.streams.rules.events import HostClock, decode_events
from accel.streams.settings import MOVED_RECORDS_MAX
from accel.system import SYSTEM
from loaders.backoff import Backoff, RetrySettings
from loaders.counting import CacheStats, CountedCache
from loaders.errors import CorruptObject, PreconditionFailed, StoreUnavailable, WriteConflict
from loaders.format import RecordBatch
from loaders.layout import parse_time_part_key, time_part_key, time_part_prefix
from loaders.lifetime import PerProcess
from loaders.settings import check_number
from loaders.store.base import CreateOnly, Fetched, ObjectStore
from range_index.segment_times import (
    NO_TOKEN,
    RECORD_SIZE_BYTES,
    LocatedRecord,
    RecordBounds,
    SegmentTimes,
    TimeRecords,
    TimesRead,
    locate,
    read,
)

# Where parts begin


class Landmarks:
    """Numbers of records, ascending, and where these begin. Threads: one at a time."""

    def __init__(self) -> None:
        self._records = [0]
        self._starts = [0]

    def add(self, record: int, start: int) -> None:
        """Remember where a record begins.

        Raises:
            ValueError: that contradicts what is known.
        """
        at = bisect_left(self._records, record)
        before = self._starts[at - 1] if at else -1
        if at < len(self._records) and self._records[at] == record:
            if self._starts[at] != start:
                raise ValueError(f"expected record {record} to begin at {self._starts[at]}, found {start}")
            return
        if start <= before or (at < len(self._starts) and start >= self._starts[at]):
            raise ValueError(f"expected record {record} to begin between its neighbours, found {start}")
        self._records.insert(at, record)
        self._starts.insert(at, start)

    def start_of(self, record: int) -> int | None:
        """Where a record begins, if that is known."""
        at = bisect_left(self._records, record)
        return self._starts[at] if at < len(self._records) and self._records[at] == record else None

    def bracket(self, offset: int) -> RecordBounds:
        """The landmarks on both sides of an offset, which lies before the last of them."""
        at = bisect_right(self._starts, offset)
        return RecordBounds(self._records[at - 1], self._starts[at - 1], self._records[at] - 1, self._starts[at])


# Parts that were read

CACHE_BYTES_MAX: Final = 64 << 20
ENTRY_OVERHEAD_BYTES: Final = 400


class PartCache:
    """Parts that were read, of any number of segments in one store; the least recently used ones go. Threads: any.

    Args:
        size_bytes_max: bound on what all of them take.
    """

    def __init__(self, size_bytes_max: int = CACHE_BYTES_MAX) -> None:
        check_number("size_bytes_max", size_bytes_max, 0, is_integer=True)
        self.size_bytes_max = size_bytes_max
        self._kept = PerProcess("parts of time indexes", lambda: _State(size_bytes_max))

    def get(self, key: str) -> TimeRecords | None:
        """The part at a key, if it is here."""
        with (kept := self._kept()).lock:
            return kept.parts.found(kept.parts.get(key))

    def keep(self, key: str, part: TimeRecords) -> None:
        """Keep a part, unless it alone is larger than the cache."""
        if _size_bytes(part) <= self.size_bytes_max:
            with (kept := self._kept()).lock:
                kept.parts[key] = part

    @property
    def size_bytes(self) -> int:
        """What all parts take."""
        with (kept := self._kept()).lock:
            return int(kept.parts.currsize)

    def stats(self) -> CacheStats:
        """What is kept now, and how the cache fared."""
        with (kept := self._kept()).lock:
            return kept.parts.stats()


class _State:
    """The parts that one process keeps."""

    def __init__(self, size_bytes_max: int) -> None:
        self.lock = Lock()
        self.parts: CountedCache[str, TimeRecords] = CountedCache(size_bytes_max, _size_bytes)


def _size_bytes(part: TimeRecords) -> int:
    return int(part.rows.nbytes) + ENTRY_OVERHEAD_BYTES


# The chain of parts

PART_RECORDS_MAX: Final = 1 << 22
"""A part with more records than this (64 MiB) is refused; ours write far smaller ones."""


class ListedPart(NamedTuple):
    """A part as the listing shows it."""

    first_record: int
    records: int

    @property
    def after(self) -> int:
        """The record that the next part begins with."""
        return self.first_record + self.records


class PartEnd(NamedTuple):
    """The last record of a part: where it ends, and its clock value."""

    end_offset: int
    value: int


class TimeParts:
    """The chain of parts of one segment, as far as it is known here. It only grows. Threads: any.

    Args:
        store: where they lie.
        stream_id: the stream that the segment is kept as.
        cache: keeps what is read.
    """

    def __init__(self, store: ObjectStore, stream_id: int, cache: PartCache) -> None:
        self._prefix = time_part_prefix(stream_id)
        self._store = store
        self._stream_id = stream_id
        self._cache = cache
        self._lock = Lock()
        self._firsts: list[int] = []
        self._records = 0
        self._landmarks = Landmarks()

    def __len__(self) -> int:
        """How many parts there are."""
        return len(self._firsts)

    @property
    def records(self) -> int:
        """How many records all parts have; also the number that the next part begins with."""
        return self._records

    def key(self, first_record: int) -> str:
        """Where the part lies that begins with a record."""
        return time_part_key(self._stream_id, first_record)

    def newer(self) -> Iterator[ListedPart]:
        """The parts that the store has behind those known here. One request for each 1,000.

        Raises:
            CorruptObject: one does not begin where the one before it ends, or has no whole records.
        """
        after = self._records
        for info in self._store.list(self._prefix, self.key(self._firsts[-1]) if self._firsts else ""):
            first = parse_time_part_key(self._stream_id, info.key)
            if first is None:
                continue
            records, rest = divmod(info.size_bytes, RECORD_SIZE_BYTES)
            if first != after:
                found = f"one that begins with record {first}"
                raise CorruptObject(info.key, info.size_bytes, expected=f"a part from record {after} on", found=found)
            if rest or not 1 <= records <= PART_RECORDS_MAX:
                expected = f"1 to {PART_RECORDS_MAX} records of {RECORD_SIZE_BYTES} bytes"
                raise CorruptObject(info.key, info.size_bytes, expected=expected, found=f"{info.size_bytes} bytes")
            yield ListedPart(first, records)
            after = first + records

    def create(self, first_record: int, body: bytes) -> None:
        """Write a part where none is yet; it is not known here before `add`. One request.

        Raises:
            PreconditionFailed: there is one.
            WriteConflict, StoreUnavailable: it may have been written or not.
        """
        self._store.put(self.key(first_record), body, condition=CreateOnly())

    def add(self, parts: Iterable[ListedPart], end_offset: int) -> None:
        """Take notice of parts that continue the chain, the last of which ends at an offset."""
        with self._lock:
            for part in parts:
                self._firsts.append(part.first_record)
                self._records = part.after
            self._landmarks.add(self._records, end_offset)

    def end_of_part(self, part: ListedPart) -> PartEnd:
        """The last record of a part. One request for its 16 bytes, none for a part in the cache.

        Raises:
            CorruptObject: the part is not as long as the listing says.
        """
        key = self.key(part.first_record)
        kept = self._cache.get(key)
        if kept is None:
            tail = self._store.get_tail(key, RECORD_SIZE_BYTES)
            _check_size(key, tail, part.records, RECORD_SIZE_BYTES)
            kept = _decode(key, part.after - 1, tail.body)
        self._check_end(key, part, kept.end_offset)
        return PartEnd(kept.end_offset, int(kept.rows[-1, 1]))

    def read(self, part: ListedPart) -> TimeRecords:
        """The records of a part. One request, none for a part in the cache.

        Raises:
            CorruptObject: its bytes are not what a part says, or contradict the parts beside it.
        """
        key = self.key(part.first_record)
        kept = self._cache.get(key)
        if kept is None:
            fetched = self._store.get(key, size_bytes_max=part.records * RECORD_SIZE_BYTES)
            _check_size(key, fetched, part.records, part.records * RECORD_SIZE_BYTES)
            kept = self._decoded(key, part, fetched.body)
            self._cache.keep(key, kept)
        return kept

    def end_of(self, record: int) -> int:
        """Where a record ends."""
        return self._part_of(record).end_of(record)

    def start_of(self, record: int) -> int:
        """Where a record begins."""
        with self._lock:
            start = self._landmarks.start_of(record)
        return self.end_of(record - 1) if start is None else start

    def values_of(self, first: int, after: int) -> Iterator[NDArray[np.uint64]]:
        """Clock values of the records from `first` up to, but without, `after`, part by part."""
        while first < after:
            part = self._part_of(first)
            end = min(after, part.records)
            yield part.values_of(first, end)
            first = end

    def pieces(self, after: int) -> Iterator[TimeRecords]:
        """The parts that hold the records before number `after`, one after the other."""
        record = 0
        while record < after:
            part = self._part_of(record)
            yield part
            record = part.records

    def bracket(self, offset: int) -> RecordBounds:
        """What is known of where the record lies that covers an offset."""
        with self._lock:
            return self._landmarks.bracket(offset)

    def _part_of(self, record: int) -> TimeRecords:
        with self._lock:
            at = bisect_right(self._firsts, record) - 1
            first = self._firsts[at]
            after = self._firsts[at + 1] if at + 1 < len(self._firsts) else self._records
        return self.read(ListedPart(first, after - first))

    def _decoded(self, key: str, part: ListedPart, body: bytes) -> TimeRecords:
        records = _decode(key, part.first_record, body)
        try:
            with self._lock:
                self._landmarks.add(part.first_record + 1, records.end_of(part.first_record))
                self._landmarks.add(part.after, records.end_offset)
        except ValueError as error:
            raise CorruptObject(key, len(body), expected="a part that fits its neighbours", found=str(error)) from error
        return records

    def _check_end(self, key: str, part: ListedPart, end_offset: int) -> None:
        with self._lock:
            start = self._landmarks.start_of(self._records) or 0
        least = start + part.after - self._records  # each record covers something
        if end_offset < least:
            size_bytes = part.records * RECORD_SIZE_BYTES
            raise CorruptObject(key, size_bytes, expected=f"a last end of {least} or more", found=str(end_offset))


def _decode(key: str, first_record: int, body: bytes) -> TimeRecords:
    try:
        return TimeRecords.decode(body, first_record=first_record)
    except ValueError as error:
        raise CorruptObject(key, len(body), expected="records that ascend", found=str(error)) from error


def _check_size(key: str, found: Fetched, records: int, body_bytes: int) -> None:
    size_bytes = found.object_size_bytes
    if size_bytes != records * RECORD_SIZE_BYTES or len(found.body) != body_bytes:
        expected = f"{records} records of {RECORD_SIZE_BYTES} bytes"
        raise CorruptObject(key, size_bytes, expected=expected, found=f"{len(found.body)} of {size_bytes} bytes")


# Parts and memory as one index


@dataclass(frozen=True, slots=True, eq=False)
class IndexView:
    """A `TimeSource`: the index as it stood at one time. Threads: any; later changes of the index do not change it.

    Args:
        parts: the parts, of which those before the records in memory count here; they never change.
        memory: what was in memory then.
    """

    parts: TimeParts
    memory: TimeRecords

    @property
    def records(self) -> int:
        """How many there are."""
        return self.memory.records

    @property
    def end_offset(self) -> int:
        """Where the last one ends."""
        return self.memory.end_offset

    def end_of(self, record: int) -> int:
        """Where a record ends."""
        is_moved = record < self.memory.first_record
        return self.parts.end_of(record) if is_moved else self.memory.end_of(record)

    def start_of(self, record: int) -> int:
        """Where a record begins."""
        is_moved = record < self.memory.first_record
        return self.parts.start_of(record) if is_moved else self.memory.start_of(record)

    def values_of(self, first: int, after: int) -> NDArray[np.uint64]:
        """Clock values of the records from `first` up to, but without, `after`."""
        border = self.memory.first_record
        pieces = list(self.parts.values_of(first, min(after, border)))
        if after > border:
            pieces.append(self.memory.values_of(max(first, border), after))
        return np.concatenate(pieces)

    def bracket(self, offset: int) -> RecordBounds:
        """What is known of where the record lies that covers an offset."""
        is_moved = offset < self.memory.start_offset
        return self.parts.bracket(offset) if is_moved else self.memory.bracket(offset)


def check_same(key: str, piece: TimeRecords, memory: TimeRecords) -> None:
    """Compare a part that was found with what is in memory, as far as both go.

    Raises:
        PreconditionFailed: they differ.
    """
    known = memory.rows[piece.first_record - memory.first_record :][: len(piece)]
    differs = (piece.rows[: len(known)] != known).any(axis=1)
    if differs.any():
        at = int(differs.argmax())
        detail = (
            f"record {piece.first_record + at} ends at {piece.rows[at, 0]} with value {piece.rows[at, 1]}, and in "
            f"memory at {known[at, 0]} with {known[at, 1]}: does another process write this segment?"
        )
        raise PreconditionFailed("put", key, detail)


# The index


class SegmentTimeIndex:
    """Adds, finds and moves the records of one segment. Threads: any; one moves at a time, and nobody waits for it.

    Made by `open`. One process at a time should add to a segment; any number may read.

    Args:
        parts: the chain in the store, none of it known yet.
        clock: gives the values.
        backoff: how often a write in doubt is settled, and the pauses.
        moved_records_max: records of one part.
    """

    def __init__(self, parts: TimeParts, clock: HostClock, backoff: Backoff, moved_records_max: int) -> None:
        check_number("moved_records_max", moved_records_max, is_integer=True)
        self._parts = parts
        self._clock = clock
        self._backoff = backoff
        self._moved_records_max = moved_records_max
        self._moving = Lock()  # around what is asked of the store
        self._lock = Lock()  # around memory; never held while the store is asked
        self._memory = SegmentTimes()

    @classmethod
    def open(
        cls,
        store: ObjectStore,
        stream_id: int,
        clock: HostClock,
        *,
        cache: PartCache | None = None,
        backoff: Backoff | None = None,
        moved_records_max: int = MOVED_RECORDS_MAX,
        memory: SegmentTimes | None = None,
        is_whole: bool = False,
    ) -> SegmentTimeIndex:
        """The index of a segment as the store has it; the clock is seeded with its highest value.

        One listing for each 1,000 parts, none if `memory` is whole; one request for 16 bytes if there are others still.

        Args:
            store: where the parts lie.
            stream_id: the stream that the segment is kept as.
            clock: of the host.
            cache: keeps parts that are read; best shared by all segments of the store. None = one of its own.
            backoff: for writes in doubt. None = that of tables.
            moved_records_max: records of one part.
            memory: records that were in the memory of an earlier process, and taken down there; the index goes on with
                them. If the parts end before they begin, they count for nothing.
            is_whole: whether no record follows these. A part that nobody told of is met when it would be written again.

        Raises:
            CorruptObject: parts that do not follow one another; and StoreError.
        """
        parts = TimeParts(store, stream_id, cache or PartCache())
        index = cls(parts, clock, backoff or Backoff(RetrySettings(), SYSTEM.sleep, SYSTEM.jitter), moved_records_max)
        if memory is None or not index._resumed(memory, is_listed=not is_whole or memory.view().first_record > 0):
            index.refresh()
        return index

    @property
    def records(self) -> int:
        """How many records there are; also the token for the end."""
        return self._view().records

    @property
    def records_in_memory(self) -> int:
        """How many of them have not moved."""
        return len(self._view().memory)

    @property
    def parts(self) -> int:
        """How many objects the others lie in."""
        return len(self._parts)

    @property
    def end_offset(self) -> int:
        """Where the last record ends."""
        return self._view().end_offset

    @property
    def last_value(self) -> int:
        """The highest clock value; 0 before the first record."""
        return self._memory.last_value

    def append(self, end_offset: int, value: int | None = None) -> int:
        """Add the record of one append, after which the segment ends at `end_offset`; gives its clock value.

        Args:
            end_offset: one past its last offset.
            value: what the clock said for all that arrives together with it; None = the clock is asked.

        Raises:
            ValueError: that is not behind the last end, or the value is lower than the last one.
        """
        with self._lock:  # the clock is asked under it, so that values stand in the order in which they were given
            value = self._clock.now() if value is None else value
            self._memory.append(end_offset, value)
            return value

    def merge(self, end_offset: int) -> int | None:
        """Add the record of a transaction that was committed; gives its clock value, None if it brought nothing.

        Raises:
            ValueError: the segment would end before the last end.
        """
        return None if end_offset == self.end_offset else self.append(end_offset)

    def extend(self, data: bytes) -> int:
        """Give back records in their stored form, from a log; those that the index has already are passed over.

        Args:
            data: consecutive records of this segment; the first of those that are not known follows the last known one.

        Returns:
            How many were added.

        Raises:
            ValueError: the bytes are not such records; nothing was added.
        """
        piece = TimeRecords.decode(data)
        with self._lock:
            known = piece.ended_by(self._memory.end_offset)
            self._memory.extend(TimeRecords(piece.rows[known:]).encode())
            self._clock.seed(self._memory.last_value)
        return len(piece) - known

    def locate(self, offset: int) -> LocatedRecord:
        """The record that covers an offset; the number of records for one at or past the end.

        Each probe may read a part from the store, if it is neither in memory nor in the cache.

        Raises:
            ValueError: a negative offset; and as `refresh`.
        """
        return locate(self._view(), offset)

    def read(self, offset: int, count: int, token: int = NO_TOKEN) -> TimesRead:
        """The clock values of a range, and where to go on; see `range_index.segment_times.read`.

        Read in order, each part is fetched once.

        Raises:
            ValueError: a negative offset or count; and as `refresh`.
        """
        return read(self._view(), offset, count, token)

    def pieces(self) -> Iterator[TimeRecords]:
        """All records in their order: part by part, then those in memory. One part at a time is read."""
        view = self._view()
        yield from self._parts.pieces(view.memory.first_record)
        if len(view.memory):
            yield view.memory

    def move(self, up_to_offset: int) -> int:
        """Move the records that end at or before an offset from memory to the store.

        One request for each `moved_records_max` of them, none if there are none. May be repeated after any error:
        whatever did not move is still here.

        Returns:
            How many records more the store has than before, as far as is known here.

        Raises:
            PreconditionFailed: other records stand there.
            StoreUnavailable, WriteConflict: and it was not to be settled.

        Source: PDP-28, "When StorageWriter moves data to Tier-2".
        """
        with self._moving:
            before = self._parts.records
            while due := self._view().memory.ended_by(up_to_offset):
                self._move(min(due, self._moved_records_max))
            return self._parts.records - before

    def ended_within(self, start: int, end: int) -> TimeRecords:
        """The records in memory that end behind an offset, and not behind another one. O(log records)."""
        memory = self._view().memory
        first, after = memory.ended_by(start), memory.ended_by(end)
        begin = int(memory.rows[first - 1, 0]) if first else memory.start_offset
        return TimeRecords(memory.rows[first:after], memory.first_record + first, begin)

    def rows(self, stream_id: int, end: int) -> Rows:
        """For a checkpoint, of `stream_id`: those in memory up to an end, and the last one that has moved."""
        with self._lock:
            memory, value = self._memory.view(), self._memory.start_value
        due = memory.rows[: memory.ended_by(end)]
        rows = rows_of(stream_id, TimeRecords(due, memory.first_record, memory.start_offset))
        if memory.first_record == 0 or not _fit(value):
            return rows
        moved = np.array([(memory.start_offset, value)], dtype=">u8")
        return np.concatenate((rows_of(stream_id, TimeRecords(moved, memory.first_record - 1)), rows))

    def refresh(self) -> int:
        """Take notice of parts that others wrote. One listing for each 1,000; more requests only if there are any.

        Returns:
            How many.

        Raises:
            PreconditionFailed: they have other records than are in memory here.
            CorruptObject: parts that do not follow one another, or are damaged; and StoreError.
        """
        with self._moving:
            return self._learn()

    def _resumed(self, memory: SegmentTimes, *, is_listed: bool) -> bool:
        """Go on with records from elsewhere; false if the parts, if they are listed, do not end among them."""
        with self._moving:
            new = list(self._parts.newer()) if is_listed else []
            after = new[-1].after if new else 0
            known = memory.view()
            if not known.first_record <= after <= known.records:
                return False
            with self._lock:
                if new:
                    self._parts.add(new, known.end_of(after - 1) if after > known.first_record else known.start_offset)
                memory.drop(after - known.first_record)
                self._memory = memory
                self._clock.seed(memory.last_value)
            return True

    def _view(self) -> IndexView:
        with self._lock:
            return IndexView(self._parts, self._memory.view())

    def _move(self, count: int) -> None:
        memory = self._view().memory
        due = TimeRecords(memory.rows[:count], memory.first_record, memory.start_offset)
        if self._write(due):
            with self._lock:
                self._parts.add([ListedPart(due.first_record, count)], due.end_offset)
                self._memory.drop(count)

    def _write(self, due: TimeRecords) -> bool:
        """Write a part; false if one was found there instead, of which notice is taken."""
        body = due.encode()
        last = self._backoff.settings.settle_attempts
        for attempt in self._backoff.attempts(last):
            try:
                self._parts.create(due.first_record, body)
                break
            except (PreconditionFailed, WriteConflict, StoreUnavailable):
                if self._learn():
                    return False
                if attempt == last:
                    raise
        return True

    def _learn(self) -> int:
        new = list(self._parts.newer())
        if new:
            end = self._parts.end_of_part(new[-1])
            pieces: list[TimeRecords] = []
            while not self._adopted(new, pieces, end):
                pieces.append(self._parts.read(new[len(pieces)]))
        return len(new)

    def _adopted(self, new: Sequence[ListedPart], pieces: Sequence[TimeRecords], end: PartEnd) -> bool:
        """Let go of what other parts hold; false if one more must be read first, to be compared with memory."""
        with self._lock:
            memory = self._memory.view()
            if len(pieces) < len(new) and new[len(pieces)].first_record < memory.records:
                return False
            for piece in pieces:
                check_same(self._parts.key(piece.first_record), piece, memory)
            self._parts.add(new, end.end_offset)
            after = new[-1].after
            if after <= memory.records:
                self._memory.drop(after - memory.first_record)
            else:
                self._memory = SegmentTimes(after, end.end_offset, end.value)
            self._clock.seed(end.value)
            return True


# What commits and checkpoints are told


def rows_of(stream_id: int, records: TimeRecords) -> Rows:
    """Records as TIME_RECORD rows, without their commit; none if a number does not fit into 63 bits. O(records)."""
    if not len(records) or not _fit(int(records.rows.max())):
        return no_rows(TIME_RECORD)
    numbers = np.arange(records.first_record, records.records)
    ends, values = records.rows.astype(np.int64).T
    return make_rows(TIME_RECORD, stream_id=stream_id, record=numbers, end=ends, value=values, commit=0)


def records_of(rows: Rows) -> SegmentTimes | None:
    """Records of TIME_RECORD rows of one stream that follow one another; None if there are none. O(records).

    Those are the records of its index from the first one on; a first one that is not record 0 has moved to a part.
    """
    if not len(rows):
        return None
    first = rows[0]
    is_moved = int(first["record"] != 0)
    start = (int(first["record"]) + 1, int(first["end"]), int(first["value"])) if is_moved else (0, 0, 0)
    try:
        memory = SegmentTimes(*start)
        memory.extend(np.stack((rows["end"], rows["value"]), axis=1)[is_moved:].astype(">u8").tobytes())
    except ValueError:  # numbers that a damaged record may have
        return None
    return memory


def _fit(number: int) -> bool:
    return number <= np.iinfo(np.int64).max


# Restoring the end from the data


def times_of(
    batches: Iterable[RecordBatch], unit: OffsetUnit, end_offset: int = 0, value: int = 0
) -> Iterator[tuple[int, int]]:
    """The records of a time index that batches stand for: (end offset, clock value), one each.

    Args:
        batches: of one stream, in order.
        unit: what its offsets count.
        end_offset: where the last known record ends; batches up to there are passed over.
        value: its clock value. Batches of producers that log none get that of the one before.

    Raises:
        CorruptObject: damaged events.
    """
    for batch in batches:
        if batch.end_offset > end_offset:
            value = max(value, decode_events(batch, 0, unit)[0].value)
            yield batch.end_offset, value


def restore_times(
    index: SegmentTimeIndex,
    accelerator: ReadAccelerator,
    stream_id: int,
    unit: OffsetUnit,
    start: int,
    end: int,
    *,
    through: Callable[[Iterable[RecordBatch]], Iterable[RecordBatch]] = iter,
) -> int:
    """Give an index the records that its data has behind its end.

    Reads that data once; keeps 16 bytes a batch.

    Args:
        index: of the stream.
        accelerator: reads the data.
        stream_id: the stream.
        unit: what its offsets count.
        start: the stream's first kept offset.
        end: where its data ends.
        through: all batches pass it.

    Returns:
        How many records.

    Raises:
        InconsistentAnswer: the data does not reach so far.
        CorruptObject, StoreError.
    """
    known = max(index.end_offset, start)
    if known >= end:
        return 0
    reading = through(accelerator.read(stream_id, known, end))
    rows = list(times_of(reading, unit, index.end_offset, index.last_value))
    if not rows or rows[-1][0] != end:
        end_offset = rows[-1][0] if rows else known
        raise InconsistentAnswer(
            f"stream {stream_id}: expected batches up to offset {end}, found them up to {end_offset}"
        )
    return index.extend(TimeRecords(np.array(rows, dtype=">u8")).encode())
