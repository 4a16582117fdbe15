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

The bytes are all there is: what asks and searches reads them through a numpy view. `time_search` says how an offset is
found and what a read tells. Records have numbers, from 0 on; pieces that follow one another number theirs on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from range_index.time_search import NO_TOKEN, Bracket, Located, TimesRead, locate, read

if TYPE_CHECKING:
    from numpy.typing import NDArray

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

    def bracket(self, offset: int) -> Bracket:
        """All of these records.

        Raises:
            ValueError: an offset that lies before them.
        """
        if offset < self.start_offset:
            raise ValueError(f"expected an offset from {self.start_offset} on, found {offset}")
        return Bracket(self.first_record, self.start_offset, self.records - 1, self.end_offset)

    def locate(self, offset: int) -> Located:
        """The record that covers an offset: `time_search.locate`."""
        return locate(self, offset)

    def read(self, offset: int, count: int, token: int = NO_TOKEN) -> TimesRead:
        """The clock values of a range, and where to go on: `time_search.read`."""
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
        self._value = value

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
            ValueError: there are not so many.
        """
        if not 0 <= records <= self._count:
            raise ValueError(f"expected 0 to {self._count} records to be dropped, found {records}")
        if records:
            self._start_offset = int(self._rows[records - 1, 0])
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
