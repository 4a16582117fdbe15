"""The state of a reader group, and how its readers share the segments out.

    segment     offset   owner
    0@0         40       "a"      being read by a; 40 is what a told last
    1@0         70       free     begun, and without a reader: the next one goes on at 70
    2@1         -1       free     waits until nothing older is left at any of its keys
    3@0         90       ended    read to its end, and nothing follows: the stream is sealed

All offsets together are a stream cut: a group, or a single reader, that starts there goes on from here. A segment that
was read to its end and has successors is not in it any more. Each segment has at most one owner, so no two readers ever
read the same one. States are values: each change makes another state. A change that finds itself done returns the state
as it is, so it may be repeated after a lost reply.

With S segments that have begun and R readers each should have floor(S / R) or ceil(S / R) of them. One call of one
reader, `after_rebalance`, does its part:

    it has more than its share         it gives up one, the newest; not all at once, so that the others can follow
    it has less, and some are free     it takes what is due to it, the oldest first
    otherwise                          nothing changes but what it told

The weight of a reader is its segments * its lag / the highest lag of a reader. Where there is not enough for all, the
lowest weight comes first, so a reader that is far behind takes no more; where weights are equal the lower lag decides,
then the name. Lags change from call to call, so two readers might let each other go first for ever. Therefore a reader
that was passed over once takes at the second time.

    S = 4, R = 3: a 3, b 1, c 0        each should have 1 or 2
    a gives up one                     a 2, b 1, c 0, one free: due to c, which has less than 1
    b calls                            nothing
    c takes it                         a 2, b 1, c 1

Nothing is taken from a reader: a silent one keeps what it has, and what is due to it, until it is declared offline.
Without other events every reader has its share after three calls each and one more for each segment too many.

Complexity: O(segments + readers · log(readers)) a call.

Source: PDP-28; Pravega issue 2298 for the weight. Which segments begin: `reader_core.Frontier`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from heapq import heapify, heapreplace
from itertools import pairwise
from math import inf
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from accel.errors import IllegalState, InvalidArgument
from accel.history.rules.cuts import PlacedCut
from accel.history.rules.segments import NO_SEGMENTS, SegmentRecord, Segments
from accel.history.rules.values import NOTHING, IdMap, Integers, segment_text
from accel.streams.rules.reader_core import FUTURE, Frontier, later, place_offsets

FREE: Final = -1
"""As the owner of a segment: nobody."""

ENDED: Final = -2
"""As the owner of a segment: nobody any more. It was read to its end, and nothing follows it."""

READERS_MAX: Final = 10_000
"""Readers of one group."""

LAG_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One reader of a group.

    Args:
        name: tells it from the others.
        lag: how far behind it said that it is; 0 or above, in any unit that all readers share.
        has_waited: whether a segment was due to it that it left to those who come first.

    Raises:
        ValueError: a lag out of bounds.
    """

    name: str
    lag: int = 0
    has_waited: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.lag <= LAG_MAX:
            raise ValueError(f"reader {self.name!r}: expected a lag of 0 to {LAG_MAX}, found {self.lag}")


@dataclass(frozen=True, slots=True, eq=False)
class GroupState:
    """A reader group. Threads: immutable.

    Args:
        segments: those that were not read to their ends, or that end the stream; ascending by id.
        offsets: how far each was read; `FUTURE` = it waits.
        owners: who reads it, as a position in the readers; `FREE`, `ENDED`.
        readers: ascending by name, each once.

    Raises:
        ValueError: columns that do not fit, or an owner that there is not.
    """

    segments: Segments
    offsets: Integers
    owners: Integers
    readers: tuple[GroupMember, ...] = ()

    def __post_init__(self) -> None:
        shape = self.segments.ids.shape
        if self.offsets.shape != shape or self.owners.shape != shape:
            raise ValueError(f"expected an offset and an owner for each of {self.segments}")
        self.owners.setflags(write=False)
        self.position()  # freezes the offsets, and refuses ids that do not ascend
        names = [reader.name for reader in self.readers]
        if len(names) > READERS_MAX or any(one >= other for one, other in pairwise(names)):
            raise ValueError(f"expected at most {READERS_MAX} readers, ascending by name, found {len(names)}")
        if (self.offsets < FUTURE).any() or (self.owners[self.offsets < 0] != FREE).any():
            raise ValueError("expected offsets from -1 on, and no owner of what has not begun")
        if len(shape) and ((self.owners < ENDED) | (self.owners >= len(names))).any():
            raise ValueError(f"expected owners among {len(names)} readers, found {self.owners.max(initial=FREE)}")

    @classmethod
    def at(cls, cut: PlacedCut) -> GroupState:
        """A new group at a stream cut, without readers."""
        frontier = Frontier(cut.segments, cut.cut)
        frontier.begin()
        return _with_frontier(cls(NO_SEGMENTS, _column(()), _column(())), frontier)

    # What it tells

    def position(self) -> IdMap:
        """The stream cut that the group stands at."""
        return IdMap(self.segments.ids, self.offsets)

    def index(self, reader: str) -> int:
        """The position of a reader; O(log readers).

        Raises:
            IllegalState: it is not in the group.
        """
        at = self._place(reader)
        if not self._is_at(at, reader):
            found = f"found {reader!r}, which never joined, has left or was declared offline: join again"
            raise IllegalState(f"expected a reader of the group, {found}")
        return at

    def owned(self, reader: str) -> IdMap:
        """The segments of a reader, with their offsets. Raises as `index`."""
        is_own = self.owners == self.index(reader)
        return IdMap(self.segments.ids[is_own], self.offsets[is_own])

    @property
    def free(self) -> Integers:
        """Ids of the segments that have begun and are nobody's, ascending."""
        free: Integers = self.segments.ids[(self.owners == FREE) & (self.offsets >= 0)]
        return free

    @property
    def counts(self) -> Integers:
        """How many segments each reader has."""
        return np.bincount(self.owners[self.owners >= 0], minlength=len(self.readers)).astype(np.int64)

    @property
    def lags(self) -> Integers:
        """The lag of each reader."""
        return _column(reader.lag for reader in self.readers)

    # What happens to it

    def after_join(self, reader: str) -> GroupState:
        """A reader comes, without segments yet; one that is there stays as it is.

        Raises:
            InvalidArgument: there are as many as there may be.
        """
        at = self._place(reader)
        if self._is_at(at, reader):
            return self
        if len(self.readers) >= READERS_MAX:
            raise InvalidArgument(f"expected at most {READERS_MAX} readers of a group, found one more: {reader!r}")
        readers = (*self.readers[:at], GroupMember(reader), *self.readers[at:])
        return replace(self, readers=readers, owners=np.where(self.owners >= at, self.owners + 1, self.owners))

    def after_leave(self, reader: str, positions: Mapping[int, int] = NOTHING) -> GroupState:
        """A reader goes: others take its segments, from these positions or from those that it told last."""
        at = self._place(reader)
        if not self._is_at(at, reader):
            return self
        told = self.with_positions(reader, positions)
        owners = np.where(told.owners == at, FREE, told.owners)
        readers = (*self.readers[:at], *self.readers[at + 1 :])
        return replace(told, readers=readers, owners=np.where(owners > at, owners - 1, owners))

    def with_positions(self, reader: str, positions: Mapping[int, int]) -> GroupState:
        """A reader tells how far it is. Of segments that are not its own nothing is believed, and nothing goes back.

        Raises:
            IllegalState: it is not in the group.
            InvalidArgument: no segment ids.
        """
        told = _as_map(positions).get_many(self.segments.ids, FUTURE)
        offsets = np.where(self.owners == self.index(reader), np.maximum(self.offsets, told), self.offsets)
        return self if np.array_equal(offsets, self.offsets) else replace(self, offsets=offsets)

    def with_lag(self, reader: str, lag: int, *, has_waited: bool) -> GroupState:
        """A reader tells how far behind it is. Raises IllegalState as `index`; InvalidArgument for a lag below 0."""
        at = self.index(reader)
        if not 0 <= lag <= LAG_MAX:
            raise InvalidArgument(f"expected a lag of 0 to {LAG_MAX}, found {lag}")
        readers = (*self.readers[:at], GroupMember(reader, lag, has_waited), *self.readers[at + 1 :])
        return replace(self, readers=readers)

    def after_acquire(self, reader: str, segment_ids: Integers) -> GroupState:
        """A reader takes segments that have begun and are free.

        Raises:
            IllegalState: one of them is not, or the reader is not in the group.
        """
        at, wanted = self.index(reader), np.isin(self.segments.ids, segment_ids)
        if np.count_nonzero(wanted) != len(segment_ids) or not np.isin(segment_ids, self.free).all():
            raise IllegalState(f"expected segments that have begun and are free, found {_texts(segment_ids)}")
        return replace(self, owners=np.where(wanted, at, self.owners))

    def after_release(self, reader: str, segment_id: int, offset: int = FUTURE) -> GroupState:
        """A reader gives a segment back, having read so far; nothing happens to one that is not its own."""
        told = self.with_positions(reader, {segment_id: offset})
        return _with_owner(told, segment_id, self.index(reader), FREE)

    def after_finish(
        self, reader: str, segment_id: int, successors: Iterable[SegmentRecord], *, offset: int
    ) -> GroupState:
        """A reader has read a segment of its own to the end; a segment that is not its own stays as it is.

        Complexity: O(segments); those that begin are found by `Frontier`.

        Args:
            reader: who.
            segment_id: which.
            successors: the segments that follow; none = the stream is sealed.
            offset: where it ends.

        Raises:
            IllegalState: the reader is not in the group.
        """
        told = self.with_positions(reader, {segment_id: offset})
        following = tuple(successors)
        if segment_id not in self.owned(reader):
            return self
        if not following:
            return _with_owner(told, segment_id, self.index(reader), ENDED)
        frontier = Frontier(told.segments, told.position())
        frontier.finish(segment_id, following)
        return _with_frontier(told, frontier)

    def after_skip(self, head: PlacedCut) -> GroupState:
        """The group goes on at the stream's head wherever it stands before it; elsewhere it stays where it is.

        Segments that are gone are nobody's, and their successors begin if nothing older is left at their keys.
        """
        ahead = later(place_offsets(self.segments, self.position()), head)
        frontier = Frontier(ahead.segments, ahead.cut)
        frontier.begin()
        return _with_frontier(self, frontier)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GroupState):
            return NotImplemented
        columns = (self.offsets, other.offsets), (self.owners, other.owners)
        is_same = self.readers == other.readers and self.segments == other.segments
        return is_same and all(np.array_equal(one, two) for one, two in columns)

    def __hash__(self) -> int:
        return hash((self.segments, self.offsets.tobytes(), self.owners.tobytes(), self.readers))

    # Inside

    def _place(self, reader: str) -> int:
        return bisect_left(self.readers, reader, key=lambda member: member.name)

    def _is_at(self, at: int, reader: str) -> bool:
        return at < len(self.readers) and self.readers[at].name == reader


def _with_owner(state: GroupState, segment_id: int, before: int, after: int) -> GroupState:
    """A segment goes from one owner to another; if it has that owner."""
    is_given = (state.segments.ids == segment_id) & (state.owners == before)
    return replace(state, owners=np.where(is_given, after, state.owners)) if is_given.any() else state


def _with_frontier(state: GroupState, frontier: Frontier) -> GroupState:
    """The group stands at other segments; those that it had before keep their owners."""
    cut, owners = frontier.cut(), IdMap(state.segments.ids, state.owners)
    segments = Segments.of(map(frontier.segment, cut))
    return replace(state, segments=segments, offsets=cut.values_array, owners=owners.get_many(cut.ids, FREE))


def _column(values: Iterable[int]) -> Integers:
    return np.array(list(values), dtype=np.int64)


def _as_map(positions: Mapping[int, int]) -> IdMap:
    try:
        return IdMap.of(positions)
    except (ValueError, OverflowError, TypeError) as error:
        raise InvalidArgument(f"expected offsets by segment id: {error}") from error


def _texts(ids: Integers) -> str:
    return ", ".join(map(segment_text, ids.tolist()[:20])) or "none"


# Sharing segments out

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


def after_rebalance(state: GroupState, reader: str, positions: Mapping[int, int], lag: int) -> GroupState:
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
    at, told = state.index(reader), state.with_positions(reader, positions)
    told = told.with_lag(reader, lag, has_waited=state.readers[at].has_waited)
    shares = Shares.of(told)
    if shares.has_too_much(at):
        return told.after_release(reader, int(told.owned(reader).ids[-1])).with_lag(reader, lag, has_waited=False)
    if not shares.is_due(at):
        return told.with_lag(reader, lag, has_waited=False)
    count = max(shares.portion(at), int(told.readers[at].has_waited))
    return told.after_acquire(reader, told.free[:count]).with_lag(reader, lag, has_waited=not count)


def assignment(state: GroupState, reader: str, positions: Mapping[int, int]) -> Assignment:
    """What a reader at some positions has to do to read what it owns. Raises IllegalState as `after_rebalance`.

    It follows from the state alone, so a reader whose reply was lost, or that comes back, learns the same again.
    """
    is_own = state.owners == state.index(reader)
    rows = zip(state.segments.where(is_own), state.offsets[is_own].tolist(), strict=True)
    start = tuple(Start(segment, offset) for segment, offset in rows if positions.get(segment.id, FUTURE) < offset)
    own = state.segments.ids[is_own].tolist()
    return Assignment(start, tuple(sorted(positions.keys() - own)))
