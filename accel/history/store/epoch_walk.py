"""A walk through epochs as the tables tell it: chunks one after the other, and of each chunk the records of duplicates.

What changed in a duplicate no chunk tells, so its record is read. A stream that commits many transactions after scales
has as many duplicates as epochs; one by one, each would cost the time of a call. The walk asks for them in the order in
which they stand in the chunk, and so they are read ahead as chunks are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from accel.history.rules.epochs import EpochRecord, HistoryChunk
from accel.history.rules.ids import Integers


class EpochSource(Protocol):
    """What the walk reads with."""

    def epoch(self, number: int) -> EpochRecord:
        """One record."""
        ...

    def records(self, numbers: Integers) -> Iterator[EpochRecord]:
        """Many, in this order."""
        ...

    def chunks(self, low: int, high: int) -> Iterator[HistoryChunk]:
        """What changed after one epoch, up to another."""
        ...


class EpochWalk:
    """One walk from epoch to epoch that asks for each duplicate in between. Threads: one.

    Args:
        source: reads.
        low: the epoch to begin with.
        high: the last one.
    """

    def __init__(self, source: EpochSource, low: int, high: int) -> None:
        self._source = source
        self._low = low
        self._high = high
        self._repeated: Iterator[EpochRecord] = iter(())

    def chunks(self) -> Iterator[HistoryChunk]:
        """What changed after the first epoch, up to the last one."""
        for chunk in self._source.chunks(self._low, self._high):
            numbers = chunk.duplicates
            self._repeated = self._source.records(numbers[(numbers > self._low) & (numbers <= self._high)])
            yield chunk

    def epoch(self, number: int) -> EpochRecord:
        """The record of a duplicate in the last chunk; the next one, or it is read by itself."""
        record = next(self._repeated, None)
        return record if record is not None and record.epoch == number else self._source.epoch(number)
