"""Which record of a time index covers an offset? Found by proportion, with bisection as the safety net.

The records of a segment lie end to end: record *i* covers the offsets from the end of record *i* - 1 up to its own end,
and the first one begins where the segment begins. So they are a partition of the segment, and the question "which
record covers this offset?" is "which is the first record that ends behind it?".

Reading a record may mean reading an object, so what counts is how many are looked at: *probes*. The segment's own start
and end are known without one. If its records are of about equal length, the position of an offset within the segment
tells the position of its record within the index:

    1,000 records of 100, offset 85,050 of 100,000: look at record 850, which ends at 85,100; then at 849. Two probes.

Where a few records are huge, proportion misleads; so it is trusted less each time it does not at least halve what is
left. The first two failures are free; the third one costs one step of bisection before the next guess, the fourth one
two, and so on, and each success takes one failure back. Therefore never more than

    2 * log2(records) + 4 probes, and in practice log2(records) + 6

since each failure beyond the first two is paid for by a step that halved what is left.

What is searched is given by a `TimeSource`, so that records in memory and records in objects are searched, and read,
by the same few functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

NO_TOKEN: Final = -1
"""In place of a token by whoever has none. No record has this number, so it needs no call of its own."""

NO_VALUE: Final = 0
"""The clock value of data from a peer that keeps no time index: before everything else."""

_FAILURES_FREE = 2


class Bracket(NamedTuple):
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


class Located(NamedTuple):
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

    def bracket(self, offset: int) -> Bracket:
        """What is known without a probe about the record that covers an offset below `end_offset`."""
        ...


def search(bracket: Bracket, offset: int, end_of: Callable[[int], int]) -> Located:
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
    return Located(low, low_start, high_end, probes)


def locate(source: TimeSource, offset: int) -> Located:
    """Find the record that covers an offset; see `search` for the cost. At or past the end of the index: no probe.

    Raises:
        ValueError: a negative offset.
    """
    if offset < 0:
        raise ValueError(f"expected an offset of 0 or more, found {offset}")
    if offset >= source.end_offset:
        return Located(source.records, source.end_offset, source.end_offset, 0)
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


def _covering(source: TimeSource, offset: int, token: int) -> Located:
    if offset == 0:
        token = 0  # found without a search
    if 0 <= token < source.records:
        start = source.start_of(token)
        if start <= offset < (end := source.end_of(token)):
            return Located(token, start, end, 2)
    return locate(source, offset)


def _last(source: TimeSource, first: Located, end: int) -> Located:
    """The record that covers the last offset of a range which goes on behind its first record."""
    known = source.bracket(end - 1)
    if known.low <= first.record:
        known = known._replace(low=first.record + 1, low_start=first.end)
    return search(known, end - 1, source.end_of)


def _values() -> NDArray[np.uint64]:
    return np.empty(0, dtype=np.uint64)
