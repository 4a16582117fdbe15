"""The time index of one segment: its newest records are in memory, all others in immutable objects.

    accel/time/7/00000000000000000000   accel/time/7/00000000000000000003   memory
    48 bytes: records 0 1 2             64 bytes: records 3 4 5 6           7 8 9

"Parts" are these objects. Record numbers, and so tokens, continue across parts and memory. The key of a part contains
its first record number, so a listing alone shows the number of records and the part of each. A part begins where the
previous part ends, and is written only if its key does not exist; parts never change, so all parts form one chain
without a hole, even if several processes wrote them. A listing without this order is damaged. The records of a part are
read on demand and kept in a cache of bounded size; the first and last offsets of a part stay in 16 bytes (`Landmarks`),
so that usually no other part is read for an offset.

Records are added in memory. `move` writes the records that end at or before an offset as one part, and drops them from
memory *after* the part is written; results of queries do not change. The key of the part may exist already: the reply
to an earlier attempt was lost, or a late request of the segment's earlier process arrived. The part found is compared
with the records in memory:

    | the part has                         | result                                                        |
    |--------------------------------------|---------------------------------------------------------------|
    | fewer records than this write        | its records have moved; the next part begins after them       |
    | more, all of which are in memory     | all its records have moved                                    |
    | more than are in memory              | the index continues after the part                            |
    | other records                        | `PreconditionFailed`: two processes write one segment         |

Records in memory are lost with the process. But the data contains them, too: a batch is one append, ends where its
record ends, and contains its clock value. `restore_times` rebuilds the lost records identically from the batches after
the last moved record. A host that writes records also adds them to its commits and checkpoints, without a request
(`rows_of`), so that the next host begins with them (`records_of`) and reads no data.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from accel.catalog.records import TIME_RECORD, Rows, make_rows, no_rows
from accel.errors import InconsistentAnswer
from accel.history.rules.configuration import OffsetUnit
from accel.lookup.accelerator import ReadAccelerator
from accel.streams.rules.events import HostClock, decode_events
from accel.system import SYSTEM
from loaders.backoff import Backoff
from loaders.errors import CorruptObject, PreconditionFailed, StoreUnavailable, WriteConflict
from loaders.format import RecordBatch
from loaders.layout import parse_time_part_key, time_part_key, time_part_prefix
from loaders.settings import check_number
from loaders.shared_loads import SharedLoads
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

# Start offsets of parts


class Landmarks:
    """Numbers of records, ascending, and the offsets at which these records begin. Threads: one at a time."""

    def __init__(self) -> None:
        self._records = [0]
        self._starts = [0]

    def add(self, record: int, start: int) -> None:
        """Add the start offset of a record.

        Raises:
            ValueError: the offset contradicts the known ones.
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
        """Return the start offset of a record; None if it is not known."""
        at = bisect_left(self._records, record)
        return self._starts[at] if at < len(self._records) and self._records[at] == record else None

    def bracket(self, offset: int) -> RecordBounds:
        """Return the landmarks on both sides of an offset, which is before the last landmark."""
        at = bisect_right(self._starts, offset)
        return RecordBounds(self._records[at - 1], self._starts[at - 1], self._records[at] - 1, self._starts[at])


# Parts that were read

MOVED_RECORDS_MAX: Final = 65_536
"""Limit of records in one part of a time index: 1 MiB."""

CACHE_BYTES_MAX: Final = 64 << 20
ENTRY_OVERHEAD_BYTES: Final = 400


PartCache: TypeAlias = SharedLoads[str, TimeRecords]
"""Parts that were read, of any segments in one store, by key; the least recently used are dropped. Threads: any."""


def part_cache(size_bytes_max: int = CACHE_BYTES_MAX) -> PartCache:
    """Return a cache of parts with this limit of their total size."""
    return SharedLoads(size_bytes_max, lambda part: int(part.rows.nbytes) + ENTRY_OVERHEAD_BYTES)


# The chain of parts

PART_RECORDS_MAX: Final = 1 << 22
"""A part with more records than this (64 MiB) is refused; hosts write far smaller parts."""


class ListedPart(NamedTuple):
    """A part as the listing shows it."""

    first_record: int
    records: int

    @property
    def after(self) -> int:
        """The first record of the next part."""
        return self.first_record + self.records


class PartEnd(NamedTuple):
    """The last record of a part: its end offset, and its clock value."""

    end_offset: int
    value: int


class TimeParts:
    """The known part of the chain of one segment. It only grows. Threads: any.

    Args:
        store: the store of the parts.
        stream_id: the segment's stream of the object layer.
        cache: keeps parts that are read.
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
        """Return the number of parts."""
        return len(self._firsts)

    @property
    def records(self) -> int:
        """The number of records of all parts; also the number of the next part's first record."""
        return self._records

    def key(self, first_record: int) -> str:
        """Return the key of the part that begins with a record."""
        return time_part_key(self._stream_id, first_record)

    def newer(self) -> Iterator[ListedPart]:
        """Iterate over the parts in the store after the known ones. One request for each 1,000.

        Raises:
            CorruptObject: a part does not begin at the end of the previous part, or contains a fraction of a record.
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
        """Write a part whose key does not exist; `add` makes it known here. One request.

        Raises:
            PreconditionFailed: the key exists.
            WriteConflict, StoreUnavailable: the part may or may not have been written.
        """
        self._store.put(self.key(first_record), body, condition=CreateOnly())

    def add(self, parts: Iterable[ListedPart], end_offset: int) -> None:
        """Add parts that continue the chain; the last of them ends at an offset."""
        with self._lock:
            for part in parts:
                self._firsts.append(part.first_record)
                self._records = part.after
            self._landmarks.add(self._records, end_offset)

    def end_of_part(self, part: ListedPart) -> PartEnd:
        """Return the last record of a part. One request for its 16 bytes, none for a part in the cache.

        Raises:
            CorruptObject: the part does not have the size that was listed.
        """
        key = self.key(part.first_record)
        kept = self._cache.peek(key)
        if kept is None:
            tail = self._store.get_tail(key, RECORD_SIZE_BYTES)
            _check_size(key, tail, part.records, RECORD_SIZE_BYTES)
            kept = _decode(key, part.after - 1, tail.body)
        self._check_end(key, part, kept.end_offset)
        return PartEnd(kept.end_offset, int(kept.rows[-1, 1]))

    def read(self, part: ListedPart) -> TimeRecords:
        """Return the records of a part. One request, none for a part in the cache.

        Raises:
            CorruptObject: its bytes do not have the format of a part, or contradict the neighbouring parts.
        """
        key = self.key(part.first_record)

        def load() -> TimeRecords:
            fetched = self._store.get(key, size_bytes_max=part.records * RECORD_SIZE_BYTES)
            _check_size(key, fetched, part.records, part.records * RECORD_SIZE_BYTES)
            return self._decoded(key, part, fetched.body)

        return self._cache.get(key, load)

    def end_of(self, record: int) -> int:
        """Return the end offset of a record."""
        return self._part_of(record).end_of(record)

    def start_of(self, record: int) -> int:
        """Return the start offset of a record."""
        with self._lock:
            start = self._landmarks.start_of(record)
        return self.end_of(record - 1) if start is None else start

    def values_of(self, first: int, after: int) -> Iterator[NDArray[np.uint64]]:
        """Iterate over the clock values of the records in [first, after), part by part."""
        while first < after:
            part = self._part_of(first)
            end = min(after, part.records)
            yield part.values_of(first, end)
            first = end

    def pieces(self, after: int) -> Iterator[TimeRecords]:
        """Iterate over the parts with the records before number `after`."""
        record = 0
        while record < after:
            part = self._part_of(record)
            yield part
            record = part.records

    def bracket(self, offset: int) -> RecordBounds:
        """Return the known bounds of the record that covers an offset."""
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
        least = start + part.after - self._records  # each record covers at least one offset
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
    """A `TimeSource`: the index as it was at one time. Threads: any; later changes of the index do not change it.

    Args:
        parts: the parts, of which only records before those in memory are used; they never change.
        memory: the records in memory at that time.
    """

    parts: TimeParts
    memory: TimeRecords

    @property
    def records(self) -> int:
        """The number of records."""
        return self.memory.records

    @property
    def end_offset(self) -> int:
        """The end offset of the last record."""
        return self.memory.end_offset

    def end_of(self, record: int) -> int:
        """Return the end offset of a record."""
        is_moved = record < self.memory.first_record
        return self.parts.end_of(record) if is_moved else self.memory.end_of(record)

    def start_of(self, record: int) -> int:
        """Return the start offset of a record."""
        is_moved = record < self.memory.first_record
        return self.parts.start_of(record) if is_moved else self.memory.start_of(record)

    def values_of(self, first: int, after: int) -> NDArray[np.uint64]:
        """Return the clock values of the records in [first, after)."""
        border = self.memory.first_record
        pieces = list(self.parts.values_of(first, min(after, border)))
        if after > border:
            pieces.append(self.memory.values_of(max(first, border), after))
        return np.concatenate(pieces)

    def bracket(self, offset: int) -> RecordBounds:
        """Return the known bounds of the record that covers an offset."""
        is_moved = offset < self.memory.start_offset
        return self.parts.bracket(offset) if is_moved else self.memory.bracket(offset)


def check_same(key: str, piece: TimeRecords, memory: TimeRecords) -> None:
    """Compare a part with the records in memory, for the records that both have.

    Raises:
        PreconditionFailed: the records differ.
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
    """Adds, finds and moves the records of one segment. Threads: any; only calls that move wait for a move.

    Made by `open`. Only one process at a time should add to a segment; any number may read.

    Args:
        parts: the chain in the store, without known parts.
        clock: returns the values.
        backoff: the attempts and pauses of a write with unknown outcome.
        moved_records_max: the limit of records in one part.
    """

    def __init__(self, parts: TimeParts, clock: HostClock, backoff: Backoff, moved_records_max: int) -> None:
        check_number("moved_records_max", moved_records_max, is_integer=True)
        self._parts = parts
        self._clock = clock
        self.now = clock.now  # the value of an append that arrives now, if the last value here is not higher
        self._backoff = backoff
        self._moved_records_max = moved_records_max
        self._moving = Lock()  # held over requests to the store
        self._lock = Lock()  # guards memory; never held over a request
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
        """Open the index of a segment as stored; no later value of it is lower than its highest (see `HostClock`).

        One listing for each 1,000 parts, none if `memory` is whole; one request for 16 bytes if there are other parts.

        Args:
            store: the store of the parts.
            stream_id: the segment's stream of the object layer.
            clock: the clock of the host.
            cache: keeps parts that are read; best shared by all segments of the store. None = a cache of its own.
            backoff: the pauses of writes with unknown outcome. None = the pauses of tables.
            moved_records_max: the limit of records in one part.
            memory: records in the memory of an earlier process, as its commits stored them; the index continues with
                them. If the parts end before these records begin, the records are ignored.
            is_whole: whether these records are the last ones. A part that is not known is found at its next write.

        Raises:
            CorruptObject: the parts have gaps or overlap; and StoreError.
        """
        parts = TimeParts(store, stream_id, part_cache() if cache is None else cache)
        index = cls(parts, clock, backoff or Backoff(SYSTEM.sleep, SYSTEM.jitter), moved_records_max)
        if memory is None or not index._resumed(memory, is_listed=not is_whole or memory.view().first_record > 0):
            index.refresh()
        return index

    @property
    def records(self) -> int:
        """The number of records; also the token for the end."""
        return self._view().records

    @property
    def records_in_memory(self) -> int:
        """The number of records that have not moved."""
        return len(self._view().memory)

    @property
    def parts(self) -> int:
        """The number of objects with moved records."""
        return len(self._parts)

    @property
    def end_offset(self) -> int:
        """The end offset of the last record."""
        return self._view().end_offset

    @property
    def last_value(self) -> int:
        """The highest clock value; 0 before the first record."""
        return self._memory.last_value

    def append(self, end_offset: int, value: int | None = None) -> int:
        """Add the record of one append, after which the segment ends at `end_offset`; returns its clock value.

        Args:
            end_offset: one past its last offset.
            value: the clock value of all appends that arrive together; None = read the clock.

        Raises:
            ValueError: the end is not after the last end, or the value is lower than the last value.
        """
        with self._lock:  # also over reading the clock, so that the values of records never fall
            value = max(self._clock.now(), self._memory.last_value) if value is None else value
            self._memory.append(end_offset, value)
            return value

    def merge(self, end_offset: int) -> int | None:
        """Add the record of a committed transaction; returns its clock value, None if it has no events here.

        Raises:
            ValueError: the segment would end before the last end.
        """
        return None if end_offset == self.end_offset else self.append(end_offset)

    def extend(self, data: bytes) -> int:
        """Add records in their stored form, from a log; records that the index has already are skipped.

        Args:
            data: consecutive records of this segment; the first new record follows the last known one.

        Returns:
            The number of records added.

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
        """Return the record that covers an offset; the number of records for an offset at or past the end.

        Each probe may read a part from the store, if it is neither in memory nor in the cache.

        Raises:
            ValueError: a negative offset; and as `refresh`.
        """
        return locate(self._view(), offset)

    def read(self, offset: int, count: int, token: int = NO_TOKEN) -> TimesRead:
        """Return the clock values of a range, and the token for the next read; see `range_index.segment_times.read`.

        Reads in order fetch each part once.

        Raises:
            ValueError: a negative offset or count; and as `refresh`.
        """
        return read(self._view(), offset, count, token)

    def pieces(self) -> Iterator[TimeRecords]:
        """Iterate over all records in order: part by part, then those in memory. One part at a time is read."""
        view = self._view()
        yield from self._parts.pieces(view.memory.first_record)
        if len(view.memory):
            yield view.memory

    def move(self, up_to_offset: int) -> int:
        """Move the records that end at or before an offset from memory to the store.

        One request for each `moved_records_max` records, none without records. May be repeated after any error: records
        that did not move are still in memory.

        Returns:
            By how many records the known part of the chain has grown.

        Raises:
            PreconditionFailed: the store has other records.
            StoreUnavailable, WriteConflict: the outcome of a write could not be found out.

        Source: PDP-28, "When StorageWriter moves data to Tier-2".
        """
        with self._moving:
            before = self._parts.records
            while due := self._view().memory.ended_by(up_to_offset):
                self._move(min(due, self._moved_records_max))
            return self._parts.records - before

    def ended_within(self, start: int, end: int) -> TimeRecords:
        """Return the records in memory that end in (start, end]. O(log records)."""
        memory = self._view().memory
        first, after = memory.ended_by(start), memory.ended_by(end)
        begin = int(memory.rows[first - 1, 0]) if first else memory.start_offset
        return TimeRecords(memory.rows[first:after], memory.first_record + first, begin)

    def rows(self, stream_id: int, end: int) -> Rows:
        """Return rows for a checkpoint: the records in memory up to an end, and the last moved record."""
        with self._lock:
            memory, value = self._memory.view(), self._memory.start_value
        due = memory.rows[: memory.ended_by(end)]
        rows = rows_of(stream_id, TimeRecords(due, memory.first_record, memory.start_offset))
        if memory.first_record == 0 or not _fit(value):
            return rows
        moved = np.array([(memory.start_offset, value)], dtype=">u8")
        return np.concatenate((rows_of(stream_id, TimeRecords(moved, memory.first_record - 1)), rows))

    def refresh(self) -> int:
        """Find parts that other processes wrote. One listing for each 1,000; more requests only if there are new parts.

        Returns:
            The number of new parts.

        Raises:
            PreconditionFailed: their records differ from those in memory here.
            CorruptObject: the parts have gaps or overlap, or are damaged; and StoreError.
        """
        with self._moving:
            return self._learn()

    def _resumed(self, memory: SegmentTimes, *, is_listed: bool) -> bool:
        """Continue with records of an earlier process; false if the listed parts do not end within them."""
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
        """Write a part; false if a part was found at its key, which is then adopted."""
        body = due.encode()
        last = self._backoff.settle_attempts
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
        """Drop records that other parts contain; false if one more part must first be read and compared with memory."""
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


# Records in commits and checkpoints


def rows_of(stream_id: int, records: TimeRecords) -> Rows:
    """Return records as TIME_RECORD rows, without commits; none if a number does not fit into 63 bits. O(records)."""
    if not len(records) or not _fit(int(records.rows.max())):
        return no_rows(TIME_RECORD)
    numbers = np.arange(records.first_record, records.records)
    ends, values = records.rows.astype(np.int64).T
    return make_rows(TIME_RECORD, stream_id=stream_id, record=numbers, end=ends, value=values, commit=0)


def records_of(rows: Rows) -> SegmentTimes | None:
    """Return the records of consecutive TIME_RECORD rows of one stream; None if there are none. O(records).

    If the first row is not record 0, this record has moved to a part, and the records in memory begin after it.
    """
    if not len(rows):
        return None
    first = rows[0]
    is_moved = int(first["record"] != 0)
    start = (int(first["record"]) + 1, int(first["end"]), int(first["value"])) if is_moved else (0, 0, 0)
    try:
        memory = SegmentTimes(*start)
        memory.extend(np.stack((rows["end"], rows["value"]), axis=1)[is_moved:].astype(">u8").tobytes())
    except ValueError:  # a damaged record
        return None
    return memory


def _fit(number: int) -> bool:
    return number <= np.iinfo(np.int64).max


# Restoring the end from the data


def times_of(
    batches: Iterable[RecordBatch], unit: OffsetUnit, end_offset: int = 0, value: int = 0
) -> Iterator[tuple[int, int]]:
    """Iterate over the time index records of batches: one (end offset, clock value) for each batch.

    Args:
        batches: the batches of one stream, in order.
        unit: the unit of its offsets.
        end_offset: the end of the last known record; batches up to there are skipped.
        value: the clock value of this record. Batches without a stored value get the value of the previous batch.

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
    """Add the records of data after the end of an index to the index.

    Reads this data once; keeps 16 bytes a batch.

    Args:
        index: the index of the stream.
        accelerator: reads the data.
        stream_id: the stream.
        unit: the unit of its offsets.
        start: the stream's first kept offset.
        end: the end of the data.
        through: a function that all batches are passed through.

    Returns:
        The number of records.

    Raises:
        InconsistentAnswer: the data ends before `end`.
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
