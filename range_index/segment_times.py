"""The time index of a segment: 16-byte records of the times at which its parts arrived.

Data of many segments can be sorted by arrival only if the times of arrival are stored. Every append to a segment adds
one record to the segment's time index, with the new end of the data and the value of the host's clock:

    | at | bytes | type | field      | meaning                                                      |
    |----|-------|------|------------|--------------------------------------------------------------|
    | 0  | 8     | u8   | end offset | one past the last offset that it covers; higher than before  |
    | 8  | 8     | u8   | value      | of the clock, usually milliseconds; never lower than before  |

All integers are big endian, and there are no bytes between the records: *concatenating two pieces of an index merges
them*. A record covers the offsets from the end of the previous record to its own end:

    offsets  0        10        20   24
             |-- 100 --|-- 100 --|130|         records 0, 1, 2: (10, 100) (20, 100) (24, 130)

A transaction's data is added to the segment at once, when the transaction is committed; so it gets one record, with the
clock value of the commit, and an empty transaction gets none.

The bytes are the only form: searches read them through a numpy view. Records are numbered from 0 on; each piece
continues the numbers of the previous one.

**Search.** The records are contiguous: record *i* covers the offsets from the end of record *i* - 1 up to its own end,
and the first record begins at the start of the segment. So the record that covers an offset is the first record that
ends after it.

Reading a record may mean reading an object, so the cost is the number of records read: *probes*. The segment's own
start and end are known without a probe. If its records have about equal lengths, the position of an offset in the
segment determines the position of its record in the index:

    1,000 records of 100, offset 85,050 of 100,000: read record 850, which ends at 85,100; then 849. Two probes.

If a few records are huge, proportion is misleading; so it is used less often each time it does not at least halve the
remaining range. The first two failures are free; the third one adds one step of bisection before the next guess, the
fourth one two, and so on, and each success cancels one failure. Therefore a search takes at most

    2 * log2(records) + 4 probes, and in practice log2(records) + 6

since for each failure beyond the first two there is a step that halves the remaining range.

Probes of a search, the mean and the maximum:

    | lengths of the records             | 1,000 records | 10,000   | 100,000  |
    |------------------------------------|---------------|----------|----------|
    | equal                              | 2 / 2         | 2 / 2    | 2 / 2    |
    | 50 to 150                          | 3.2 / 8       | 3.5 / 12 | 3.7 / 9  |
    | a huge one at the head or the tail | 9.7 / 16      | 11 / 21  | 12 / 25  |
    | Pareto, with exponent 0.5          | 11 / 16       | 16 / 21  | 20 / 24  |

A `TimeSource` supplies the records, so that records in memory and records in objects are searched and read by the same
functions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

NO_TOKEN: Final = -1
"""The token of a caller that has none. No record has this number."""

NO_VALUE: Final = 0
"""The clock value of data from a peer without a time index: before all other values."""

_FAILURES_FREE = 2


class RecordBounds(NamedTuple):
    """The known bounds of a record: it is between these two records, both included.

    Args:
        low: the first record that it may be.
        low_start: the start of record `low`.
        high: the last record that it may be.
        high_end: the end of record `high`.
    """

    low: int
    low_start: int
    high: int
    high_end: int


class LocatedRecord(NamedTuple):
    """The result of a search.

    Args:
        record: its number; if the index has no record for the offset, the number of the next record.
        start: the first offset that it covers.
        end: one past the last offset that it covers; the same as `start` if there is no record.
        probes: the number of records read.
    """

    record: int
    start: int
    end: int
    probes: int


class TimesRead(NamedTuple):
    """The clock values of a range.

    Args:
        covered: the number of offsets that the index has records for, from the start of the range on.
        values: clock values of the records that cover these, one each, never falling; shape (records,), native u8.
        token: number of the record that covers the next offset, to be passed to the next read.
    """

    covered: int
    values: NDArray[np.uint64]
    token: int

    @property
    def value(self) -> int:
        """The clock value of the first offset; `NO_VALUE` if the index covers none."""
        return int(self.values[0]) if len(self.values) else NO_VALUE


class TimeSource(Protocol):
    """The records of one segment, in any storage. Numbers count from the segment's first record on."""

    @property
    def records(self) -> int:
        """The number of records; also the number of the next record."""
        ...

    @property
    def end_offset(self) -> int:
        """The end of the last record; known without a probe."""
        ...

    def end_of(self, record: int) -> int:
        """The end of a record. One probe."""
        ...

    def start_of(self, record: int) -> int:
        """The start of a record. One probe, none for the first."""
        ...

    def values_of(self, first: int, after: int) -> NDArray[np.uint64]:
        """Clock values of the records from `first` up to, but without, `after`."""
        ...

    def bracket(self, offset: int) -> RecordBounds:
        """The bounds, known without a probe, of the record that covers an offset below `end_offset`."""
        ...


def search(bracket: RecordBounds, offset: int, end_of: Callable[[int], int]) -> LocatedRecord:
    """Find the record that covers an offset.

    Complexity: at most 2 * log2(records in the bracket) + 4 probes; 2 if all records have the same length.

    Args:
        bracket: the known bounds; `low_start` <= offset < `high_end`.
        offset: the searched offset.
        end_of: returns the end of a record.

    Source: PDP-28, "locate the correct offset with a binary or better yet a Newtonian search".
    """
    low, low_start, high, high_end = bracket
    probes = failures = bisections_due = 0
    while low < high:
        left = high - low
        is_by_proportion = not bisections_due
        step = (offset - low_start) * (left + 1) // (high_end - low_start) if is_by_proportion else left // 2
        guess = low + min(step, left - 1)
        end = end_of(guess)
        probes += 1
        if end <= offset:
            low, low_start = guess + 1, end
        else:
            high, high_end = guess, end
        if not is_by_proportion:
            bisections_due -= 1
        elif 2 * (high - low) <= left:
            failures = max(0, failures - 1)
        else:
            failures += 1
            bisections_due = max(0, failures - _FAILURES_FREE)
    return LocatedRecord(low, low_start, high_end, probes)


def locate(source: TimeSource, offset: int) -> LocatedRecord:
    """Find the record that covers an offset; see `search` for the cost. No probe at or after the end of the index.

    Raises:
        ValueError: a negative offset.
    """
    if offset < 0:
        raise ValueError(f"expected an offset of 0 or more, found {offset}")
    if offset >= source.end_offset:
        return LocatedRecord(source.records, source.end_offset, source.end_offset, 0)
    return search(source.bracket(offset), offset, source.end_of)


def read(source: TimeSource, offset: int, count: int, token: int = NO_TOKEN) -> TimesRead:
    """The clock values of a range, and the token for the next read.

    A token makes this faster and changes nothing else: a token that is not the number of the record that covers
    `offset`, because it is old or of another index, is ignored.

    Complexity: with a correct token two probes, and a search for the end of the range if it ends in another record.

    Args:
        source: the index.
        offset: the start of the range. After the end of the index no offset is covered, and the token is the number
            of the next record.
        count: the number of offsets; the range may extend beyond the end of the index.
        token: the token of the previous read, or `NO_TOKEN`.

    Raises:
        ValueError: a negative offset or count.

    Source: PDP-28, "ReadSegment" and "SegmentRead".
    """
    if offset < 0 or count < 0:
        raise ValueError(f"expected an offset and a count of 0 or more, found {offset} and {count}")
    if offset >= source.end_offset:
        return TimesRead(0, _values(), source.records)
    first = _covering(source, offset, token)
    end = min(offset + count, source.end_offset)
    if end == offset:
        return TimesRead(0, _values(), first.record)
    last = first if end <= first.end else _last(source, first, end)
    values = source.values_of(first.record, last.record + 1)
    return TimesRead(end - offset, values, last.record + (end == last.end))


def _covering(source: TimeSource, offset: int, token: int) -> LocatedRecord:
    if offset == 0:
        token = 0  # found without a search
    if 0 <= token < source.records:
        start = source.start_of(token)
        if start <= offset < (end := source.end_of(token)):
            return LocatedRecord(token, start, end, 2)
    return locate(source, offset)


def _last(source: TimeSource, first: LocatedRecord, end: int) -> LocatedRecord:
    """The record that covers the last offset of a range which extends beyond its first record."""
    known = source.bracket(end - 1)
    if known.low <= first.record:
        known = known._replace(low=first.record + 1, low_start=first.end)
    return search(known, end - 1, source.end_of)


def _values() -> NDArray[np.uint64]:
    return np.empty(0, dtype=np.uint64)


RECORD_SIZE_BYTES: Final = 16
UINT64_MAX: Final = 2**64 - 1

_NUMBER = np.dtype(">u8")
_ROWS_MIN = 16


@dataclass(frozen=True, slots=True, eq=False)
class TimeRecords:
    """Consecutive records: the state of an index at some time, or a piece of an index.

    Args:
        rows: end offsets and clock values, shape (records, 2), big endian u8; a view over their stored form.
        first_record: number of the first record.
        start_offset: start of the first record.

    Threads: never changes; any thread may read it.
    """

    rows: NDArray[np.uint64]
    first_record: int = 0
    start_offset: int = 0

    @classmethod
    def decode(cls, data: bytes, *, first_record: int = 0, start_offset: int = 0, value: int = 0) -> TimeRecords:
        """Read the stored form of a piece; the bytes are checked and not copied.

        Complexity: O(records), without a loop in Python.

        Args:
            data: records, one after the other; may be empty.
            first_record: number of the first record.
            start_offset: the end of the previous piece.
            value: the last clock value of the previous piece.

        Raises:
            ValueError: bytes that are not whole records, end offsets that do not ascend, values that fall.
        """
        if len(data) % RECORD_SIZE_BYTES:
            raise ValueError(f"expected whole records of {RECORD_SIZE_BYTES} bytes, found {len(data)} bytes")
        rows: NDArray[np.uint64] = np.frombuffer(data, dtype=_NUMBER).reshape(-1, 2)
        _check(rows, first_record, start_offset, value)
        return cls(rows, first_record, start_offset)

    def encode(self) -> bytes:
        """The stored form: 16 bytes a record."""
        return self.rows.tobytes()

    def __len__(self) -> int:
        """The number of records in this piece."""
        return len(self.rows)

    @property
    def records(self) -> int:
        """One past the number of the last record."""
        return self.first_record + len(self.rows)

    @property
    def end_offset(self) -> int:
        """The end of the last record."""
        return int(self.rows[-1, 0]) if len(self.rows) else self.start_offset

    def end_of(self, record: int) -> int:
        """The end of a record; O(1)."""
        return int(self.rows[self._row(record), 0])

    def start_of(self, record: int) -> int:
        """The start of a record; O(1)."""
        row = self._row(record)
        return int(self.rows[row - 1, 0]) if row else self.start_offset

    def values_of(self, first: int, after: int) -> NDArray[np.uint64]:
        """Clock values of the records from `first` up to, but without, `after`; copied to native integers."""
        return self.rows[first - self.first_record : after - self.first_record, 1].astype(np.uint64)

    def bracket(self, offset: int) -> RecordBounds:
        """The bounds of all these records.

        Raises:
            ValueError: an offset before the first record.
        """
        if offset < self.start_offset:
            raise ValueError(f"expected an offset from {self.start_offset} on, found {offset}")
        return RecordBounds(self.first_record, self.start_offset, self.records - 1, self.end_offset)

    def locate(self, offset: int) -> LocatedRecord:
        """The record that covers an offset; see the function `locate`."""
        return locate(self, offset)

    def read(self, offset: int, count: int, token: int = NO_TOKEN) -> TimesRead:
        """The clock values of a range, and the token for the next read; see the function `read`."""
        return read(self, offset, count, token)

    def ended_by(self, offset: int) -> int:
        """The number of these records that end at or before an offset; at most `2 * log2(records) + 4` probes."""
        return 0 if offset < self.start_offset else self.locate(offset).record - self.first_record

    def _row(self, record: int) -> int:
        row = record - self.first_record
        if not 0 <= row < len(self.rows):
            raise ValueError(f"expected a record of {self.first_record} to {self.records - 1}, found {record}")
        return row


class SegmentTimes:
    """The records of one segment that are in memory, where new ones are added.

    It may begin with any record, as earlier records may have been stored elsewhere and removed by `drop`.

    Args:
        first_record: number of the first record to be added.
        start_offset: start of that record.
        value: the minimum clock value of all records.

    Raises:
        ValueError: numbers below 0 or beyond 64 bits.

    Threads: one at a time. A result of `view` may be read by other threads meanwhile.
    """

    def __init__(self, first_record: int = 0, start_offset: int = 0, value: int = 0) -> None:
        if first_record < 0 or not 0 <= start_offset <= UINT64_MAX or not 0 <= value <= UINT64_MAX:
            found = f"{first_record}, {start_offset} and {value}"
            raise ValueError(f"expected a record number, an offset and a value of 64 bits from 0 on, found {found}")
        self._rows: NDArray[np.uint64] = np.empty((_ROWS_MIN, 2), dtype=_NUMBER)
        self._count = 0
        self._first_record = first_record
        self._start_offset = start_offset
        self._end_offset = start_offset
        self._start_value = self._value = value

    def __len__(self) -> int:
        """The number of records in memory."""
        return self._count

    @property
    def records(self) -> int:
        """One past the number of the last record: the number of the next one."""
        return self._first_record + self._count

    @property
    def end_offset(self) -> int:
        """The end of the last record, where the next one begins."""
        return self._end_offset

    @property
    def last_value(self) -> int:
        """The highest clock value so far; 0 before the first record."""
        return self._value

    @property
    def start_value(self) -> int:
        """The clock value of the record before the first one in memory; no record may have a lower value."""
        return self._start_value

    def append(self, end_offset: int, value: int) -> None:
        """Add the record of one append, after which the segment ends at `end_offset`. Amortised O(1).

        Raises:
            ValueError: an end that is not after the last end, a value below the last value, or more than 64 bits.

        Source: PDP-28, "StreamSegmentAppendOperation".
        """
        if not self._end_offset < end_offset <= UINT64_MAX:
            expected = f"an end offset above {self._end_offset}, the previous one, and below 2^64"
            raise ValueError(f"record {self.records}: expected {expected}, found {end_offset}")
        if not self._value <= value <= UINT64_MAX:
            expected = f"a value of at least {self._value}, the previous one, and below 2^64"
            raise ValueError(f"record {self.records}: expected {expected}, found {value}")
        self._reserve(1)
        self._rows[self._count, 0] = end_offset
        self._rows[self._count, 1] = value
        self._added(1, end_offset, value)

    def merge(self, end_offset: int, value: int) -> bool:
        """Add the one record of a transaction that was committed; no record if the transaction was empty.

        Returns:
            Whether a record was added.

        Raises:
            ValueError: as `append`.

        Source: PDP-28, "MergeTransactionOperation".
        """
        if end_offset == self._end_offset:
            return False
        self.append(end_offset, value)
        return True

    def extend(self, data: bytes) -> None:
        """Add records in their stored form: those of the next piece.

        Complexity: O(records), without a loop in Python.

        Raises:
            ValueError: as `TimeRecords.decode`; nothing was added.
        """
        piece = TimeRecords.decode(
            data, first_record=self.records, start_offset=self._end_offset, value=self._value
        ).rows
        self._reserve(len(piece))
        self._rows[self._count : self._count + len(piece)] = piece
        if len(piece):
            self._added(len(piece), int(piece[-1, 0]), int(piece[-1, 1]))

    def view(self) -> TimeRecords:
        """All current records; O(1). Later changes of this index do not change the result."""
        return TimeRecords(self._rows[: self._count], self._first_record, self._start_offset)

    def drop(self, records: int) -> None:
        """Remove the first records, and free their memory; O(records that are kept).

        Raises:
            ValueError: there are fewer records.
        """
        if not 0 <= records <= self._count:
            raise ValueError(f"expected 0 to {self._count} records to be dropped, found {records}")
        if records:
            self._start_offset, self._start_value = map(int, self._rows[records - 1])
            self._first_record += records
            self._count -= records
            # Copied, as a view of a part would keep the whole memory.
            self._rows = _roomy(self._rows[records : records + self._count], self._count)

    def _added(self, records: int, end_offset: int, value: int) -> None:
        self._count += records
        self._end_offset = end_offset
        self._value = value

    def _reserve(self, records: int) -> None:
        needed = self._count + records
        if needed > len(self._rows):
            self._rows = _roomy(self._rows[: self._count], max(needed, 2 * self._count))


def _roomy(rows: NDArray[np.uint64], room: int) -> NDArray[np.uint64]:
    longer: NDArray[np.uint64] = np.empty((max(room, _ROWS_MIN), 2), dtype=_NUMBER)
    longer[: len(rows)] = rows
    return longer


def _check(rows: NDArray[np.uint64], first_record: int, start_offset: int, value: int) -> None:
    if not len(rows):
        return
    ends, values = rows[:, 0], rows[:, 1]
    if int(ends[0]) <= start_offset:
        raise ValueError(f"record {first_record}: expected an end offset above {start_offset}, found {ends[0]}")
    if int(values[0]) < value:
        raise ValueError(f"record {first_record}: expected a value of at least {value}, found {values[0]}")
    ascends = (ends[1:] > ends[:-1]) & (values[1:] >= values[:-1])
    if not ascends.all():
        at = int(ascends.argmin()) + 1
        expected = f"an end offset above {ends[at - 1]} and a value of at least {values[at - 1]}"
        raise ValueError(f"record {first_record + at}: expected {expected}, found {ends[at]} and {values[at]}")
