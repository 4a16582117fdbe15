"""When did each part of a segment arrive? A list of 16-byte records says so.

Data of many segments can be put into the order of its arrival only if something remembers when it arrived. Every append
to a segment adds one record to the segment's time index: where the data ends now, and what the host's clock said:

    | at | bytes | type | field      | meaning                                                      |
    |----|-------|------|------------|--------------------------------------------------------------|
    | 0  | 8     | u8   | end offset | one past the last offset that it covers; higher than before  |
    | 8  | 8     | u8   | value      | of the clock, usually milliseconds; never lower than before  |

All integers are big endian, and nothing lies between the records: *concatenating two pieces of an index is merging
them*. A record covers what lies between the end of the one before it and its own end:

    offsets  0        10        20   24
             |-- 100 --|-- 100 --|130|         records 0, 1, 2: (10, 100) (20, 100) (24, 130)

A transaction's data comes into the segment at once, when it is committed; so it gets one record, with the clock value
of that moment, and a transaction of nothing gets none.

The bytes are all there is: what asks and searches reads them through a numpy view. Records have numbers, from 0 on;
pieces that follow one another number theirs on.

**Search.** The records lie end to end: record *i* covers the offsets from the end of record *i* - 1 up to its own end,
and the first one begins where the segment begins. So the question "which record covers this offset?" is "which is the
first record that ends behind it?".

Reading a record may mean reading an object, so what counts is how many are looked at: *probes*. The segment's own start
and end are known without one. If its records are of about equal length, the position of an offset within the segment
tells the position of its record within the index:

    1,000 records of 100, offset 85,050 of 100,000: look at record 850, which ends at 85,100; then at 849. Two probes.

Where a few records are huge, proportion misleads; so it is trusted less each time it does not at least halve what is
left. The first two failures are free; the third one costs one step of bisection before the next guess, the fourth one
two, and so on, and each success takes one failure back. Therefore never more than

    2 * log2(records) + 4 probes, and in practice log2(records) + 6

since each failure beyond the first two is paid for by a step that halved what is left.

Probes of a search, the mean and the most:

    | lengths of the records             | 1,000 records | 10,000   | 100,000  |
    |------------------------------------|---------------|----------|----------|
    | equal                              | 2 / 2         | 2 / 2    | 2 / 2    |
    | 50 to 150                          | 3.2 / 8       | 3.5 / 12 | 3.7 / 9  |
    | a huge one at the head or the tail | 9.7 / 16      | 11 / 21  | 12 / 25  |
    | Pareto, with exponent 0.5          | 11 / 16       | 16 / 21  | 20 / 24  |

What is searched is given by a `TimeSource`, so that records in memory and records in objects are searched, and read,
by the same few functions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

NO_TOKEN: Final = -1
"""In place of a token, by a caller that has none. No record has this number, so it needs no call of its own."""

NO_VALUE: Final = 0
"""The clock value of data from a peer that keeps no time index: before everything else."""

_FAILURES_FREE = 2


class RecordBounds(NamedTuple):
    """What is known of where a record lies: between these two, both included.

    Args:
        low: the first record that it may be.
        low_start: where that one begins.
        high: the last record that it may be.
        high_end: where that one ends.
    """

    low: int
    low_start: int
    high: int
    high_end: int


class LocatedRecord(NamedTuple):
    """A record that was found.

    Args:
        record: its number; where the index has no record for the offset, the number that the next one will have.
        start: the first offset that it covers.
        end: one past the last; the same as `start` where there is no record.
        probes: how many records were looked at.
    """

    record: int
    start: int
    end: int
    probes: int


class TimesRead(NamedTuple):
    """What the time index says about a range that is read.

    Args:
        covered: how many offsets of the range the index has records for, from its first one on.
        values: clock values of the records that cover these, one each, never falling; shape (records,), native u8.
        token: number of the record that covers the next offset, to be given with the next read.
    """

    covered: int
    values: NDArray[np.uint64]
    token: int

    @property
    def value(self) -> int:
        """The clock value of the first offset; `NO_VALUE` where the index covers none."""
        return int(self.values[0]) if len(self.values) else NO_VALUE


class TimeSource(Protocol):
    """The records of one segment, wherever they lie. Numbers count from the segment's first record on."""

    @property
    def records(self) -> int:
        """How many there are; also the number of the next one."""
        ...

    @property
    def end_offset(self) -> int:
        """Where the last one ends; known without looking at it."""
        ...

    def end_of(self, record: int) -> int:
        """Where a record ends. One probe."""
        ...

    def start_of(self, record: int) -> int:
        """Where a record begins. One probe, none for the first."""
        ...

    def values_of(self, first: int, after: int) -> NDArray[np.uint64]:
        """Clock values of the records from `first` up to, but without, `after`."""
        ...

    def bracket(self, offset: int) -> RecordBounds:
        """What is known without a probe about the record that covers an offset below `end_offset`."""
        ...


def search(bracket: RecordBounds, offset: int, end_of: Callable[[int], int]) -> LocatedRecord:
    """Find the record that covers an offset.

    Complexity: at most 2 * log2(records in the bracket) + 4 probes; 2 where all records have the same length.

    Args:
        bracket: what is known; `low_start` <= offset < `high_end`.
        offset: to be found.
        end_of: tells where a record ends.

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
    """Find the record that covers an offset; see `search` for the cost. At or past the end of the index: no probe.

    Raises:
        ValueError: a negative offset.
    """
    if offset < 0:
        raise ValueError(f"expected an offset of 0 or more, found {offset}")
    if offset >= source.end_offset:
        return LocatedRecord(source.records, source.end_offset, source.end_offset, 0)
    return search(source.bracket(offset), offset, source.end_of)


def read(source: TimeSource, offset: int, count: int, token: int = NO_TOKEN) -> TimesRead:
    """The clock values of a range, and where to go on.

    A token makes this quick and changes nothing else: one that does not name the record that covers `offset`, because
    it is old or came from elsewhere, is as good as none.

    Complexity: with a good token, two probes, and a search for the end of the range if it ends in another record.

    Args:
        source: the index.
        offset: the first one of the range. Past the end of the index nothing is covered, and the token is a good one
            for when it has grown.
        count: how many offsets; the range may go past the end of the index.
        token: what the read before gave, or `NO_TOKEN`.

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
    """The record that covers the last offset of a range which goes on behind its first record."""
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
    """Records that follow one another: an index as it stood at some time, or a piece of one.

    Args:
        rows: end offsets and clock values, shape (records, 2), big endian u8; a view over their stored form.
        first_record: number of the first one.
        start_offset: where the first one begins.

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
            data: records, one behind the other; may be empty.
            first_record: number of the first one.
            start_offset: where the piece before it ended.
            value: the last clock value of the piece before it.

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
        """How many records this piece has."""
        return len(self.rows)

    @property
    def records(self) -> int:
        """One past the number of the last record."""
        return self.first_record + len(self.rows)

    @property
    def end_offset(self) -> int:
        """Where the last record ends."""
        return int(self.rows[-1, 0]) if len(self.rows) else self.start_offset

    def end_of(self, record: int) -> int:
        """Where a record ends; O(1)."""
        return int(self.rows[self._row(record), 0])

    def start_of(self, record: int) -> int:
        """Where a record begins; O(1)."""
        row = self._row(record)
        return int(self.rows[row - 1, 0]) if row else self.start_offset

    def values_of(self, first: int, after: int) -> NDArray[np.uint64]:
        """Clock values of the records from `first` up to, but without, `after`; copied to native integers."""
        return self.rows[first - self.first_record : after - self.first_record, 1].astype(np.uint64)

    def bracket(self, offset: int) -> RecordBounds:
        """All of these records.

        Raises:
            ValueError: an offset that lies before them.
        """
        if offset < self.start_offset:
            raise ValueError(f"expected an offset from {self.start_offset} on, found {offset}")
        return RecordBounds(self.first_record, self.start_offset, self.records - 1, self.end_offset)

    def locate(self, offset: int) -> LocatedRecord:
        """The record that covers an offset: `locate`."""
        return locate(self, offset)

    def read(self, offset: int, count: int, token: int = NO_TOKEN) -> TimesRead:
        """The clock values of a range, and where to go on: `read`."""
        return read(self, offset, count, token)

    def ended_by(self, offset: int) -> int:
        """How many of these records end at or before an offset; at most `2 * log2(records) + 4` probes."""
        return 0 if offset < self.start_offset else self.locate(offset).record - self.first_record

    def _row(self, record: int) -> int:
        row = record - self.first_record
        if not 0 <= row < len(self.rows):
            raise ValueError(f"expected a record of {self.first_record} to {self.records - 1}, found {record}")
        return row


class SegmentTimes:
    """The records of one segment that are in memory, and the place where new ones are added.

    It may begin with any record, as those before it may have moved away; `drop` lets them go.

    Args:
        first_record: number of the first record that is added.
        start_offset: where it begins.
        value: no record may have a lower one.

    Raises:
        ValueError: numbers below 0 or beyond 64 bits.

    Threads: one at a time. What `view` gave may be read by others meanwhile.
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
        """How many records are here."""
        return self._count

    @property
    def records(self) -> int:
        """One past the number of the last record: the number of the next one."""
        return self._first_record + self._count

    @property
    def end_offset(self) -> int:
        """Where the last record ends, and the next one begins."""
        return self._end_offset

    @property
    def last_value(self) -> int:
        """The highest clock value so far; 0 before the first record."""
        return self._value

    @property
    def start_value(self) -> int:
        """The clock value of the record before the first one here; no record may have a lower one."""
        return self._start_value

    def append(self, end_offset: int, value: int) -> None:
        """Add the record of one append: the segment ends at `end_offset` now. Amortised O(1).

        Raises:
            ValueError: an end that is not behind the last one, a value below the last one, or more than 64 bits.

        Source: PDP-28, "StreamSegmentAppendOperation".
        """
        if not self._end_offset < end_offset <= UINT64_MAX:
            expected = f"an end offset above {self._end_offset}, the one before it, and below 2^64"
            raise ValueError(f"record {self.records}: expected {expected}, found {end_offset}")
        if not self._value <= value <= UINT64_MAX:
            expected = f"a value of at least {self._value}, the one before it, and below 2^64"
            raise ValueError(f"record {self.records}: expected {expected}, found {value}")
        self._reserve(1)
        self._rows[self._count, 0] = end_offset
        self._rows[self._count, 1] = value
        self._added(1, end_offset, value)

    def merge(self, end_offset: int, value: int) -> bool:
        """Add the one record of a transaction that was committed; none if it brought nothing.

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
        """Add records in their stored form: those of another piece, which follows.

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
        """All records, as they are now; O(1). Later changes of this index do not change it."""
        return TimeRecords(self._rows[: self._count], self._first_record, self._start_offset)

    def drop(self, records: int) -> None:
        """Let the first records go, and their memory: O(records that stay).

        Raises:
            ValueError: there are fewer.
        """
        if not 0 <= records <= self._count:
            raise ValueError(f"expected 0 to {self._count} records to be dropped, found {records}")
        if records:
            self._start_offset, self._start_value = map(int, self._rows[records - 1])
            self._first_record += records
            self._count -= records
            # Copied, as a shorter view of the same memory would keep all of it.
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
