"""How the readers of a group share its segments out, each by itself and at its own time.

With S segments that have begun and R readers everybody should have floor(S / R) or ceil(S / R) of them. One call of one
reader, `rebalanced`, does its part of that:

    it has more than its share         it gives up one, the newest; not all at once, so that the others can follow
    it has less, and some are free     it takes what is due to it, the oldest first
    otherwise                          nothing changes but what it told

A reader's weight is its segments * its lag / the highest lag of a reader. Where there is not enough for all, who has
the lowest weight comes first, so a reader that is far behind does not take yet more; where weights are equal the lower
lag decides, then the name. But lags change from call to call, so that two might let each other go first for ever. Hence
one that was passed over once takes at the second time.

    S = 4, R = 3: a 3, b 1, c 0        each should have 1 or 2
    a gives up one                     a 2, b 1, c 0, one free: due to c, which has less than 1
    b calls                            nothing
    c takes it                         a 2, b 1, c 1

Nothing is taken from anybody: a reader that is silent keeps what it has, and what is due to it, until it is declared
offline. Without other events everyone has its share after as many calls each as somebody had too much, and three more.

Complexity: O(segments + readers · log(readers)) a call.

Source: Pravega issue 2298 for the weight; the rest is ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heapify, heapreplace
from math import inf
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from accel.history.rules.ids import Integers
from accel.history.rules.segments import SegmentRecord
from accel.streams.frontier import FUTURE
from accel.streams.groups.group_state import GroupState

Weights: TypeAlias = NDArray[np.float64]


class Start(NamedTuple):
    """A segment to read.

    Args:
        segment: which.
        offset: from where on.
    """

    segment: SegmentRecord
    offset: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a reader is to do after a call.

    Attributes:
        start: segments to read, ascending by id. Most are new to it; one that it reads already is to be read on from
            the offset that stands here, which is higher than its own, since the stream was truncated.
        stop: ids of segments that it reads and that are not its own any more, ascending.
    """

    start: tuple[Start, ...]
    stop: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Shares:
    """Who has how many segments. Threads: immutable.

    Args:
        counts: of each reader.
        lags: of each reader, 0 or above.
        free: segments that nobody has.
    """

    counts: Integers
    lags: Integers
    free: int

    @classmethod
    def of(cls, state: GroupState) -> Shares:
        """Those of a group."""
        return cls(state.counts, state.lags, len(state.free))

    @property
    def least(self) -> int:
        """What everybody should have at least: floor(S / R)."""
        return (int(self.counts.sum()) + self.free) // len(self.counts)

    @property
    def most(self) -> int:
        """What nobody should have more of: ceil(S / R)."""
        return -(-(int(self.counts.sum()) + self.free) // len(self.counts))

    @property
    def missing(self) -> int:
        """How many segments it takes for everybody to have the least."""
        return int(np.maximum(self.least - self.counts, 0).sum())

    @property
    def weights(self) -> Weights:
        """Segments * lag / the highest lag of a reader; 0 where nobody is behind."""
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
        # Only if nothing else will do: not while enough is free, or will be once others gave up what is too much.
        others = int(np.maximum(self.counts - most, 0).sum())
        return count > self.least and self.missing > self.free + others

    def is_due(self, reader: int) -> bool:
        """Whether a reader should have one more, and there is one that nobody needs more urgently."""
        count, least = int(self.counts[reader]), self.least
        return self.free > (0 if count < least else self.missing) and count <= least

    def portion(self, reader: int) -> int:
        """How many of the free segments a reader takes if those who come first take theirs."""
        least, missing = self.least, self.missing
        if missing > self.free:
            return self._contested(reader)
        filled = np.maximum(self.counts, least)
        candidates = np.flatnonzero(filled == least)
        # All of them have the same number by then, so that their lags decide, and their places after that.
        first = candidates[np.argsort(self.lags[candidates], kind="stable")][: self.free - missing]
        return max(least - int(self.counts[reader]), 0) + int(reader in first)

    def _contested(self, reader: int) -> int:
        """The same where not everybody gets the least: one after the other, lowest weight first."""
        lags, behind = self.lags.tolist(), self._behind.tolist()
        least = self.least
        below = np.flatnonzero(self.counts < least).tolist()
        queue = [(int(self.counts[each]) * behind[each], lags[each], each, int(self.counts[each])) for each in below]
        heapify(queue)
        taken = 0
        for _ in range(self.free):
            _, lag, each, count = queue[0]
            taken += each == reader
            weight = (count + 1) * behind[each] if count + 1 < least else inf
            heapreplace(queue, (weight, lag, each, count + 1))
        return taken


def rebalanced(state: GroupState, reader: str, positions: Mapping[int, int], lag: int) -> GroupState:
    """A reader tells how far it is, gives up what is too much, takes what is due to it.

    Args:
        state: of its group.
        reader: who.
        positions: offsets of the segments that it reads; it has given nothing behind them to anybody.
        lag: how far behind it is; 0 or above.

    Raises:
        IllegalState: it is not in the group.
        InvalidArgument: no positions, or no lag.
    """
    at, told = state.index(reader), state.checkpointed(reader, positions)
    told = told.reported(reader, lag, has_waited=state.readers[at].has_waited)
    shares = Shares.of(told)
    if shares.has_too_much(at):
        return told.released(reader, int(told.owned(reader).ids[-1])).reported(reader, lag, has_waited=False)
    if not shares.is_due(at):
        return told.reported(reader, lag, has_waited=False)
    count = max(shares.portion(at), int(told.readers[at].has_waited))
    return told.acquired(reader, told.free[:count]).reported(reader, lag, has_waited=not count)


def assignment(state: GroupState, reader: str, positions: Mapping[int, int]) -> Assignment:
    """What a reader that stands at some positions has to do to read what it owns. Raises IllegalState as `rebalanced`.

    It follows from the state alone, so a reader whose reply was lost, or that comes back, learns the same again.
    """
    is_own = state.owners == state.index(reader)
    rows = zip(state.segments.where(is_own), state.offsets[is_own].tolist(), strict=True)
    start = tuple(Start(each, offset) for each, offset in rows if positions.get(each.id, FUTURE) < offset)
    own = state.segments.ids[is_own].tolist()
    return Assignment(start, tuple(sorted(positions.keys() - own)))
