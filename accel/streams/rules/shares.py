"""How the segments of a reader group are distributed over its readers.

With S segments that have begun and R readers each reader should have floor(S / R) or ceil(S / R) segments, unless a
reader is behind (below). One call of one reader, `after_rebalance`, makes one step:

    it has more than its share         it gives up one; not all at once, so that the others can follow
    it is behind, others are not       it gives up one, and is limited to the rest: others take more
    it has less, and some are free     it takes the segments due to it, the oldest first
    otherwise                          only its reported positions and lag change

**Readers that are behind.** A reader is behind if its lag is more than two times the lowest lag of a reader, and more
than a quarter of its lease: between two renewals each reader has lags. Such a reader keeps the segment that keeps it
behind, and one other at most; readers that are not behind take the rest.

    S = 8, R = 3: a 3, b 3, c 2        a is behind: it gives up one
    a 2, limited to 2                  the others should have 3 each
    c takes it                         a 2, b 3, c 3

It gives up nothing because of lag while a segment is free. If all readers that are not behind have limits, the one with
the fewest segments may take one more. A reader whose lag is unknown is neither behind nor ahead: it has
not reported yet, or has just begun with a segment.

**Which one is given up.** The segment with the lowest lag; of similar lags, within a factor of two, the one of which
the reader read least since its last report; then the newest.

No segment moves to and fro, whatever the lags do from report to report: a segment that was given up because of lag is
not given up again because of lag (`GroupState.moved`), and the limits leave the others what they have. A limit remains
while a reader catches up: with its former share it would fall behind again. Limits of readers that are not behind, and
all marks, are removed when a reader joins or leaves, or segments begin or end. The marks of a reader's segments are
also removed when it was not behind for six leases and falls behind again. Lags of 0 fall back to numbers of segments.

**Precedence.** The weight of a reader is its segments * its lag / the highest lag of a reader. If there are too few
segments, readers with the lowest weight come first, so a reader that is far behind takes no more; at equal weights the
lower lag decides, then the name. An unknown lag counts as the highest one here. Lags change from call to call, so two
readers could give way to each other forever. Therefore a reader that was passed over once takes a segment the second
time.

    S = 4, R = 3: a 3, b 1, c 0        each should have 1 or 2
    a gives up one                     a 2, b 1, c 0, one free: due to c, which has less than 1
    b calls                            nothing
    c takes it                         a 2, b 1, c 1

A reader keeps its segments, and the segments due to it, until it gives them up, is silent for longer than its lease, or
is declared offline. Without other changes every reader has its share after three calls each, one more for each excess
segment, and two more for each segment that is given up because of lag.

Complexity: O(segments + readers · log(readers)) a call.

Source: PDP-28: lag as the measure; Pravega issue 2298 for the weight.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heapreplace
from math import inf
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from accel.history.rules.cuts import FUTURE
from accel.history.rules.segments import SegmentRecord
from accel.history.rules.values import NOTHING, Integers
from accel.streams.rules.group_state import LAG_MAX, LAG_UNKNOWN, RENEWALS, GroupMember, GroupState

Weights: TypeAlias = NDArray[np.float64]

BEHIND_SEGMENTS: Final = 2
"""How many segments a reader that is behind keeps: the one that keeps it behind, and one other."""


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
    """How many segments each reader has, and should have. Threads: immutable.

    Args:
        counts: the number of segments of each reader.
        lags: the lag of each reader, 0 or above.
        free: the number of segments without an owner.
        limits: the limit of each reader; 0 = none. Limits that leave segments to no reader do not count.

    Attributes:
        least: the number of segments that each reader should have at least.
        most: the number of segments that each reader should have at most; 1 more for some, the same for others.
    """

    counts: Integers
    lags: Integers
    free: int
    limits: Integers
    least: Integers = field(init=False)
    most: Integers = field(init=False)

    def __post_init__(self) -> None:
        segments, readers = int(self.counts.sum()) + self.free, len(self.counts)
        limits = np.where(self.limits > 0, self.limits, LAG_MAX)
        ascending = np.sort(limits)
        # The lowest limits count first: each that is below an equal share of what they leave. The others do not.
        before = np.concatenate([[0], np.cumsum(np.minimum(ascending, segments))[:-1]])
        left = np.arange(readers, 0, -1)
        is_low = np.minimum(ascending, segments + 1) * left < segments - before
        low = int(np.argmin(is_low)) if not is_low.all() else 0
        rest, others = segments - int(before[low]), readers - low
        is_limited = limits < ascending[low] if low else np.zeros(readers, dtype=bool)
        object.__setattr__(self, "least", np.where(is_limited, limits, rest // others))
        object.__setattr__(self, "most", np.where(is_limited, limits, -(-rest // others)))

    @classmethod
    def of(cls, state: GroupState) -> Shares:
        """Return the shares of a group; an unknown lag counts as the highest one."""
        lags = state.lags
        return cls(state.counts, np.where(lags < 0, lags.max(initial=0), lags), len(state.free), state.limits)

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
        count, most = int(self.counts[reader]), int(self.most[reader])
        if count > most:
            return True
        # Only as a last resort: not if enough segments are free, or will be once others have given up excess ones.
        others = int(np.maximum(self.counts - self.most, 0).sum())
        return count > self.least[reader] and self.missing > self.free + others

    def is_due(self, reader: int) -> bool:
        """Whether a reader should have one more segment, and a segment is free that no other reader needs more."""
        count, least = int(self.counts[reader]), int(self.least[reader])
        if count < least:
            return self.free > 0
        return count == least < self.most[reader] and self.free > self.missing

    def portion(self, reader: int) -> int:
        """How many of the free segments a reader takes, if readers with precedence take theirs."""
        missing = self.missing
        if missing > self.free:
            return self._contested(reader)
        filled = np.maximum(self.counts, self.least)
        candidates = np.flatnonzero((filled == self.least) & (self.least < self.most))
        # All candidates have the same number by then, so their lags decide, then their places.
        first = candidates[np.argsort(self.lags[candidates], kind="stable")][: self.free - missing]
        return max(int(self.least[reader] - self.counts[reader]), 0) + int(reader in first)

    def _contested(self, reader: int) -> int:
        """As `portion`, if there are too few segments for `least` each: one after the other, lowest weight first."""
        lags, behind, least, counts = (each.tolist() for each in (self.lags, self._behind, self.least, self.counts))
        below = np.flatnonzero(self.counts < self.least).tolist()
        queue = [(counts[at] * behind[at], lags[at], at, counts[at]) for at in below]
        heapify(queue)
        taken = 0
        for _ in range(self.free):
            _, lag, first, count = queue[0]
            taken += first == reader
            weight = (count + 1) * behind[first] if count + 1 < least[first] else inf
            heapreplace(queue, (weight, lag, first, count + 1))
        return taken


def behind(state: GroupState) -> NDArray[np.bool_]:
    """Which readers are behind. The one with the lowest lag is not, nor is one whose lag is unknown."""
    lags = state.lags
    is_known = lags != LAG_UNKNOWN
    low = lags[is_known].min(initial=LAG_MAX)
    usual = np.array([reader.lease.milliseconds // RENEWALS for reader in state.readers], dtype=np.int64)
    found: NDArray[np.bool_] = is_known & (lags - low > low) & (lags > usual)
    return found


def after_rebalance(
    state: GroupState,
    reader: str,
    positions: Mapping[int, int],
    lag: int | None,
    busy: Collection[int] = (),
    lags: Mapping[int, int] = NOTHING,
) -> GroupState:
    """Store a reader's positions and lag, and let it give up an excess segment or take the segments due to it.

    Args:
        state: the state of the group.
        reader: the reader's name.
        positions: offsets of the segments that it reads, after the last events that its caller has processed.
        lag: how far behind it is; 0 or above; None = unknown: then its limit does not change.
        busy: ids of segments that it does not give up now, because its caller is processing events of them.
        lags: how far behind each of its segments is, in the unit of `lag`. One without a lag has just begun: it is
            given up first.

    Raises:
        IllegalState: the reader is not in the group.
        ReaderReplaced: another reader of its name is in the group.
        InvalidArgument: invalid positions, or an invalid lag.
    """
    at, told = state.index(reader), state.with_positions(reader, positions)
    has_waited = state.readers[at].has_waited and len(told.free) > 0
    told = told.with_lag(reader, lag, has_waited=has_waited)
    is_behind = behind(told)
    if lag is not None:
        told = told.with_calm(reader, is_behind=bool(is_behind[at]))
    spare = [segment_id for segment_id in told.owned(reader).ids.tolist() if segment_id not in busy]
    shares = Shares.of(told)
    if shares.has_too_much(at):
        given = _least_behind(state, told, spare, lags)
        return told if given is None else told.after_release(reader, given)
    if is_behind[at]:
        count, eased = int(shares.counts[at]), _with_taker(told, shares, is_behind)
        if count > BEHIND_SEGMENTS and not shares.free:
            may_move = [each for each in spare if each not in told.moved]
            given = _least_behind(state, told, may_move, lags)
            return told if given is None else eased.with_limit(reader, count - 1, given).after_release(reader, given)
        if count >= BEHIND_SEGMENTS and shares.is_due(at) and not has_waited:
            return eased.with_limit(reader, count).with_lag(reader, lag, has_waited=True)
        if count < BEHIND_SEGMENTS and shares.is_due(at):
            told = eased.with_limit(reader, BEHIND_SEGMENTS)
            shares = Shares.of(told)
    if not shares.is_due(at):
        return told
    portion = max(shares.portion(at), int(has_waited))
    return told.after_acquire(reader, told.free[:portion]).with_lag(reader, lag, has_waited=not portion)


def _with_taker(state: GroupState, shares: Shares, is_behind: NDArray[np.bool_]) -> GroupState:
    """Let a reader that is not behind take one segment more, if all of those have limits: the one with the fewest."""
    others = np.flatnonzero((state.lags != LAG_UNKNOWN) & ~is_behind)
    if not shares.limits[others].all():
        return state
    taker = int(others[np.argmin(shares.counts[others])])
    return state.with_limit(state.readers[taker].name, int(shares.limits[taker]) + 1)


def _least_behind(before: GroupState, now: GroupState, ids: list[int], lags: Mapping[int, int]) -> int | None:
    """The segment that a reader gives up first; None if it has none to give up."""
    read = dict(zip(now.segments.ids.tolist(), (now.offsets - before.offsets).tolist(), strict=True))
    return min(ids, key=lambda each: (lags.get(each, 0).bit_length(), read[each], -each), default=None)


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
