"""How the segments of a reader group are distributed over its readers.

With S segments that have begun and R readers each reader should have floor(S / R) or ceil(S / R) segments. One call of
one reader, `after_rebalance`, makes one step:

    it has more than its share         it gives up one, the newest; not all at once, so that the others can follow
    it has less, and some are free     it takes the segments due to it, the oldest first
    otherwise                          only its reported positions and lag change

The weight of a reader is its segments * its lag / the highest lag of a reader. If there are too few segments, readers
with the lowest weight come first, so a reader that is far behind takes no more; at equal weights the lower lag decides,
then the name. Lags change from call to call, so two readers could give way to each other forever. Therefore a reader
that was passed over once takes a segment the second time.

    S = 4, R = 3: a 3, b 1, c 0        each should have 1 or 2
    a gives up one                     a 2, b 1, c 0, one free: due to c, which has less than 1
    b calls                            nothing
    c takes it                         a 2, b 1, c 1

A reader keeps its segments, and the segments due to it, until it gives them up, is silent for longer than its lease, or
is declared offline. Without other changes every reader has its share after three calls each, and one more for each
excess segment.

Complexity: O(segments + readers · log(readers)) a call.

Source: PDP-28; Pravega issue 2298 for the weight.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from heapq import heapify, heapreplace
from math import inf
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from accel.history.rules.cuts import FUTURE
from accel.history.rules.segments import SegmentRecord
from accel.history.rules.values import Integers
from accel.streams.rules.group_state import GroupMember, GroupState

Weights: TypeAlias = NDArray[np.float64]


class Start(NamedTuple):
    """A segment to read.

    Args:
        segment: the segment.
        offset: the offset to start at.
    """

    segment: SegmentRecord
    offset: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """The segments that a reader is to start and to stop after a call.

    Attributes:
        start: segments to read, ascending by id. Most are new to the reader; a segment that it reads already continues
            at the offset given here, which is higher than the reader's own because the stream was truncated.
        stop: ids of segments that it reads and no longer owns, ascending.
        readers: the readers of the group, itself included, for `LeaseWatch`.
    """

    start: tuple[Start, ...]
    stop: tuple[int, ...]
    readers: tuple[GroupMember, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Shares:
    """How many segments each reader has. Threads: immutable.

    Args:
        counts: the number of segments of each reader.
        lags: the lag of each reader, 0 or above.
        free: the number of segments without an owner.
    """

    counts: Integers
    lags: Integers
    free: int

    @classmethod
    def of(cls, state: GroupState) -> Shares:
        """Return the shares of a group."""
        return cls(state.counts, state.lags, len(state.free))

    @property
    def least(self) -> int:
        """The number of segments that each reader should have at least: floor(S / R)."""
        return (int(self.counts.sum()) + self.free) // len(self.counts)

    @property
    def most(self) -> int:
        """The number of segments that each reader should have at most: ceil(S / R)."""
        return -(-(int(self.counts.sum()) + self.free) // len(self.counts))

    @property
    def missing(self) -> int:
        """How many segments are missing until each reader has `least` segments."""
        return int(np.maximum(self.least - self.counts, 0).sum())

    @property
    def weights(self) -> Weights:
        """Segments * lag / the highest lag of a reader; 0 if no reader is behind."""
        return self.counts * self._behind

    @property
    def _behind(self) -> Weights:
        """Lag / the highest lag of a reader."""
        return self.lags / max(int(self.lags.max(initial=0)), 1)

    def has_too_much(self, reader: int) -> bool:
        """Whether a reader should give up a segment, by its position among the readers."""
        count, most = int(self.counts[reader]), self.most
        if count > most:
            return True
        # Only as a last resort: not if enough segments are free, or will be once others have given up excess ones.
        others = int(np.maximum(self.counts - most, 0).sum())
        return count > self.least and self.missing > self.free + others

    def is_due(self, reader: int) -> bool:
        """Whether a reader should have one more segment, and a segment is free that no other reader needs more."""
        count, least = int(self.counts[reader]), self.least
        return self.free > (0 if count < least else self.missing) and count <= least

    def portion(self, reader: int) -> int:
        """How many of the free segments a reader takes, if readers with precedence take theirs."""
        least, missing = self.least, self.missing
        if missing > self.free:
            return self._contested(reader)
        filled = np.maximum(self.counts, least)
        candidates = np.flatnonzero(filled == least)
        # All candidates have the same number by then, so their lags decide, then their places.
        first = candidates[np.argsort(self.lags[candidates], kind="stable")][: self.free - missing]
        return max(least - int(self.counts[reader]), 0) + int(reader in first)

    def _contested(self, reader: int) -> int:
        """As `portion`, if there are too few segments for `least` each: one after the other, lowest weight first."""
        lags, behind = self.lags.tolist(), self._behind.tolist()
        least = self.least
        below = np.flatnonzero(self.counts < least).tolist()
        queue = [
            (
                int(self.counts[reader_index]) * behind[reader_index],
                lags[reader_index],
                reader_index,
                int(self.counts[reader_index]),
            )
            for reader_index in below
        ]
        heapify(queue)
        taken = 0
        for _ in range(self.free):
            _, lag, first, count = queue[0]
            taken += first == reader
            weight = (count + 1) * behind[first] if count + 1 < least else inf
            heapreplace(queue, (weight, lag, first, count + 1))
        return taken


def after_rebalance(
    state: GroupState, reader: str, positions: Mapping[int, int], lag: int, busy: Collection[int] = ()
) -> GroupState:
    """Store a reader's positions and lag, and let it give up an excess segment or take the segments due to it.

    Args:
        state: the state of the group.
        reader: the reader's name.
        positions: offsets of the segments that it reads, after the last events that its caller has processed.
        lag: how far behind it is; 0 or above.
        busy: ids of segments that it does not give up now, because its caller is processing events of them.

    Raises:
        IllegalState: the reader is not in the group.
        InvalidArgument: invalid positions, or an invalid lag.
    """
    at, told = state.index(reader), state.with_positions(reader, positions)
    told = told.with_lag(reader, lag, has_waited=state.readers[at].has_waited)
    shares = Shares.of(told)
    if shares.has_too_much(at):
        spare = [segment_id for segment_id in told.owned(reader).ids.tolist() if segment_id not in busy]
        given = told.after_release(reader, spare[-1]) if spare else told
        return given.with_lag(reader, lag, has_waited=False)
    if not shares.is_due(at):
        return told.with_lag(reader, lag, has_waited=False)
    count = max(shares.portion(at), int(told.readers[at].has_waited))
    return told.after_acquire(reader, told.free[:count]).with_lag(reader, lag, has_waited=not count)


def assignment(state: GroupState, reader: str, positions: Mapping[int, int]) -> Assignment:
    """Return which segments a reader with these positions has to start and stop. Errors as `after_rebalance`.

    The result depends on the state and the positions only, so a reader whose reply was lost, or that returns, gets it
    again.
    """
    is_own = state.owners == state.index(reader)
    rows = zip(state.segments.where(is_own), state.offsets[is_own].tolist(), strict=True)
    start = tuple(Start(segment, offset) for segment, offset in rows if positions.get(segment.id, FUTURE) < offset)
    own = state.segments.ids[is_own].tolist()
    return Assignment(start, tuple(sorted(positions.keys() - own)), state.readers)
