"""Where some records of a time index begin, so that not all of it must be searched.

    records  0      3      7      10
    starts   0      30     70     100

    offset 45 lies in one of the records 3 to 6, which cover 30 up to 70

What is known of a part of an index is kept here in 16 bytes when its records are not.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from range_index.time_search import Bracket


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

    def bracket(self, offset: int) -> Bracket:
        """The landmarks on both sides of an offset, which lies before the last of them."""
        at = bisect_right(self._starts, offset)
        return Bracket(self._records[at - 1], self._starts[at - 1], self._records[at] - 1, self._starts[at])
