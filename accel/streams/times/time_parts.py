"""The parts of a segment's time index that have moved to objects.

Each part is an immutable object of whole records, and its key names the first of them:

    accel/time/7/00000000000000000000      48 bytes: records 0, 1, 2
    accel/time/7/00000000000000000003      64 bytes: records 3 to 6
                                           the next part will begin with record 7

So a listing alone, keys and sizes, tells how many records there are and where each one lies. A part is only ever
written where the one before it ends, and only if nothing is there; as none of them changes, all parts form one chain
without a hole, whoever wrote them. Where a listing says otherwise, something was damaged.

What a part holds is read when it is asked for, and kept in a cache of bounded size. What stays, in 16 bytes, is where
it begins and ends: these *landmarks* tell which part holds an offset, so that usually no other one is read.
"""

from __future__ import annotations

from bisect import bisect_right
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple

from accel.streams.times.landmarks import Landmarks
from loaders.errors import CorruptObject
from loaders.layout import parse_time_part_key, time_part_key, time_part_prefix
from loaders.store.base import CreateOnly
from range_index.segment_times import RECORD_SIZE_BYTES, TimeRecords

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from accel.streams.times.part_cache import PartCache
    from loaders.store.base import Fetched, ObjectStore
    from range_index.time_search import Bracket

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

    def bracket(self, offset: int) -> Bracket:
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
        found = _decode(key, part.first_record, body)
        try:
            with self._lock:
                self._landmarks.add(part.first_record + 1, found.end_of(part.first_record))
                self._landmarks.add(part.after, found.end_offset)
        except ValueError as error:
            raise CorruptObject(key, len(body), expected="a part that fits its neighbours", found=str(error)) from error
        return found

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
