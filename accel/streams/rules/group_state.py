"""The state of a reader group, and how the segments are distributed over its readers.

    segment     offset   owner
    0@0         40       "a"      being read by a, which reported offset 40 last
    1@0         70       free     begun, and without a reader: its next reader continues at 70
    2@1         -1       free     waits until all older segments of its keys are read
    3@0         90       ended    read to its end, without successors: the stream is sealed

All offsets together are a stream cut: another group, or a single reader, can continue from it. A segment that was read
to its end and has successors is no longer in the state. Each segment has at most one owner, so two readers never read
the same segment. States are values: each change makes another state. A change that was already made returns the state
unchanged, so calls may be repeated after a lost reply.

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

**Leases.** A running reader increases a number in the state, its *renewals*, regularly. Clocks are not compared: each
other reader measures, by its own timer, for how long it has seen the same lease (`LeaseWatch`), and considers the
reader dead when this is longer than the stated duration of the lease. The change that removes the reader checks that
the lease is still the same, so a reader that renewed in time stays. If no reader could read the state for some time,
this time does not count in full, because no reader could renew. A *session* distinguishes successive readers of one
name: once another reader has joined, calls of the earlier one are refused.

Complexity: O(segments + readers · log(readers)) a call.

Source: PDP-28; Pravega issue 2298 for the weight. Which segments begin: `reader_core.Frontier`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from heapq import heapify, heapreplace
from itertools import islice, pairwise
from math import inf
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from accel.errors import IllegalState, InvalidArgument, ReaderStalled
from accel.history.rules.cuts import PlacedCut
from accel.history.rules.segments import NO_SEGMENTS, SegmentRecord, Segments
from accel.history.rules.values import NOTHING, IdMap, Integers, segment_text
from accel.streams.rules.frontier import FUTURE, Frontier, later, place_offsets
from accel.streams.rules.reader_core import Finished

FREE: Final = -1
"""The owner of a segment without a reader."""

ENDED: Final = -2
"""The owner of a segment that was read to its end and has no successors."""

READERS_MAX: Final = 10_000
"""Limit of readers of one group."""

LOOKS_MIN: Final = 3
"""How often at least, after the first look, a lease must be seen unchanged before it counts as expired."""

LAG_MAX: Final = 2**63 - 1


class Lease(NamedTuple):
    """The lease of a reader. All numbers are 0 or above.

    Args:
        session: distinguishes the reader from earlier and later readers of its name; 0 = no session.
        renewals: grows while the reader runs.
        milliseconds: the reader is dead when session and renewals have not changed for this time; 0 = no lease: only
            `reader_offline` declares it dead.
    """

    session: int = 0
    renewals: int = 0
    milliseconds: int = 0


NO_LEASE: Final = Lease()
"""The lease of a reader that does not renew: of an earlier release, or of a program with its own kind of reader."""

NO_LEASES: Final[Mapping[str, Lease]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One reader of a group.

    Args:
        name: the reader's name, unique in the group.
        lag: how far behind it is, as it reported; 0 or above, in any unit that all readers share.
        has_waited: whether it left a segment that was due to it to readers with precedence.
        lease: its lease.

    Raises:
        ValueError: a lag out of bounds.
    """

    name: str
    lag: int = 0
    has_waited: bool = False
    lease: Lease = NO_LEASE

    def __post_init__(self) -> None:
        if not 0 <= self.lag <= LAG_MAX:
            raise ValueError(f"reader {self.name!r}: expected a lag of 0 to {LAG_MAX}, found {self.lag}")
        if min(self.lease) < 0:
            raise ValueError(f"reader {self.name!r}: expected a lease of numbers from 0 on, found {self.lease}")


@dataclass(frozen=True, slots=True, eq=False)
class GroupState:
    """A reader group. Threads: immutable.

    Args:
        segments: the segments that were not read to their ends, or that end the stream; ascending by id.
        offsets: how far each segment was read; `FUTURE` = it waits.
        owners: the reader of each segment, as a position in `readers`; or `FREE`, `ENDED`.
        readers: ascending by name, each once.

    Raises:
        ValueError: columns of different lengths, or an owner that does not exist.
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
            raise ValueError("expected offsets from -1 on, and no owner of a segment that has not begun")
        if len(shape) and ((self.owners < ENDED) | (self.owners >= len(names))).any():
            raise ValueError(f"expected owners among {len(names)} readers, found {self.owners.max(initial=FREE)}")

    @classmethod
    def at(cls, cut: PlacedCut) -> GroupState:
        """A new group at a stream cut, without readers."""
        frontier = Frontier(cut.segments, cut.cut)
        frontier.begin()
        return _with_frontier(cls(NO_SEGMENTS, _column(()), _column(())), frontier)

    # Queries

    def position(self) -> IdMap:
        """The stream cut of the group's position."""
        return IdMap(self.segments.ids, self.offsets)

    def index(self, reader: str, session: int = 0) -> int:
        """The position of a reader; O(log readers).

        Args:
            reader: the reader's name.
            session: the session of the reader's lease; 0 = any session. Older releases do not write sessions; then any
                session is accepted, too.

        Raises:
            IllegalState: the reader is not in the group, or another reader of its name is.
        """
        at = self._place(reader)
        if not self._is_at(at, reader):
            found = f"found {reader!r}, which never joined, has left, was silent for longer than its lease, or was "
            raise IllegalState(f"expected a reader of the group, {found}declared offline: join again")
        if session and self.readers[at].lease.session not in (0, session):
            raise IllegalState(f"expected one reader of each name, found another {reader!r} that joined later")
        return at

    def owned(self, reader: str) -> IdMap:
        """The segments of a reader, with their offsets. Raises as `index`."""
        is_own = self.owners == self.index(reader)
        return IdMap(self.segments.ids[is_own], self.offsets[is_own])

    @property
    def free(self) -> Integers:
        """Ids of the segments that have begun and have no owner, ascending."""
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

    # Changes

    def after_join(self, reader: str, lease: Lease = NO_LEASE) -> GroupState:
        """Add a reader without segments; a present reader of its name is replaced, and its segments go to the new one.

        Raises:
            InvalidArgument: the group has the largest number of readers.
        """
        at = self._place(reader)
        if self._is_at(at, reader):
            return self if self.readers[at].lease.session == lease.session else self._with_member(at, lease=lease)
        if len(self.readers) >= READERS_MAX:
            raise InvalidArgument(f"expected at most {READERS_MAX} readers of a group, found one more: {reader!r}")
        readers = (*self.readers[:at], GroupMember(reader, lease=lease), *self.readers[at:])
        return replace(self, readers=readers, owners=np.where(self.owners >= at, self.owners + 1, self.owners))

    def after_leave(self, reader: str, positions: Mapping[int, int] = NOTHING, *, session: int = 0) -> GroupState:
        """Remove a reader: its segments become free, at these positions or at its last reported ones.

        A reader that is not in the group, or was replaced by another reader of its name, counts as removed.
        """
        at = self._place(reader)
        if not self._is_at(at, reader) or (session and self.readers[at].lease.session not in (0, session)):
            return self
        told = self.with_positions(reader, positions)
        owners = np.where(told.owners == at, FREE, told.owners)
        readers = (*self.readers[:at], *self.readers[at + 1 :])
        return replace(told, readers=readers, owners=np.where(owners > at, owners - 1, owners))

    def after_silence(self, silent: Mapping[str, Lease]) -> GroupState:
        """Remove readers that were silent for too long, unless they renewed since; see `LeaseWatch`. O(n) for each."""
        state = self
        for reader, lease in silent.items():
            at = state._place(reader)
            if lease.milliseconds and state._is_at(at, reader) and state.readers[at].lease == lease:
                state = state.after_leave(reader)
        return state

    def with_renewal(self, reader: str, lease: Lease) -> GroupState:
        """Renew a reader's lease. Raises as `index`.

        Args:
            reader: the reader's name.
            lease: the reader's session, and the duration of its lease; this method counts the renewals.
        """
        at = self.index(reader, lease.session)
        return self._with_member(at, lease=lease._replace(renewals=self.readers[at].lease.renewals + 1))

    def with_positions(self, reader: str, positions: Mapping[int, int]) -> GroupState:
        """Store a reader's positions. Ignores segments that it does not own, and positions lower than the stored ones.

        Raises:
            IllegalState: the reader is not in the group.
            InvalidArgument: keys that are not segment ids.
        """
        told = _as_map(positions).get_many(self.segments.ids, FUTURE)
        offsets = np.where(self.owners == self.index(reader), np.maximum(self.offsets, told), self.offsets)
        return self if np.array_equal(offsets, self.offsets) else replace(self, offsets=offsets)

    def with_lag(self, reader: str, lag: int, *, has_waited: bool) -> GroupState:
        """Store a reader's lag. Raises IllegalState as `index`; InvalidArgument for a lag below 0."""
        at = self.index(reader)
        if not 0 <= lag <= LAG_MAX:
            raise InvalidArgument(f"expected a lag of 0 to {LAG_MAX}, found {lag}")
        return self._with_member(at, lag=lag, has_waited=has_waited)

    def after_acquire(self, reader: str, segment_ids: Integers) -> GroupState:
        """Make a reader the owner of free segments that have begun.

        Raises:
            IllegalState: a segment has not begun or is not free, or the reader is not in the group.
        """
        at, wanted = self.index(reader), np.isin(self.segments.ids, segment_ids)
        if np.count_nonzero(wanted) != len(segment_ids) or not np.isin(segment_ids, self.free).all():
            raise IllegalState(f"expected segments that have begun and are free, found {_texts(segment_ids.tolist())}")
        return replace(self, owners=np.where(wanted, at, self.owners))

    def after_release(self, reader: str, segment_id: int, offset: int = FUTURE) -> GroupState:
        """Free a segment of a reader at an offset; a segment that the reader does not own stays as it is."""
        told = self.with_positions(reader, {segment_id: offset})
        return _with_owner(told, segment_id, self.index(reader), FREE)

    def after_finish(
        self, reader: str, segment_id: int, successors: Iterable[SegmentRecord], *, offset: int
    ) -> GroupState:
        """Finish a segment that a reader has read to its end; a segment that the reader does not own stays as it is.

        Complexity: O(segments); `Frontier` finds the segments that begin.

        Args:
            reader: the reader's name.
            segment_id: the segment.
            successors: the segments that follow; none = the stream is sealed.
            offset: the end of the segment.

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
        """Move positions before the stream's head to the head; other positions do not change.

        Segments before the head leave the state; their successors begin if all older segments of their keys are read.
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

    def _with_member(self, at: int, **changes: Any) -> GroupState:
        member = replace(self.readers[at], **changes)
        return replace(self, readers=(*self.readers[:at], member, *self.readers[at + 1 :]))

    def _place(self, reader: str) -> int:
        return bisect_left(self.readers, reader, key=lambda member: member.name)

    def _is_at(self, at: int, reader: str) -> bool:
        return at < len(self.readers) and self.readers[at].name == reader


def _with_owner(state: GroupState, segment_id: int, before: int, after: int) -> GroupState:
    """Change the owner of a segment from `before` to `after`; no change if the owner is not `before`."""
    is_given = (state.segments.ids == segment_id) & (state.owners == before)
    return replace(state, owners=np.where(is_given, after, state.owners)) if is_given.any() else state


def _with_frontier(state: GroupState, frontier: Frontier) -> GroupState:
    """Return the group with the segments of the frontier; segments that it had before keep their owners."""
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


def _texts(ids: Iterable[int]) -> str:
    return ", ".join(map(segment_text, islice(ids, 20))) or "none"


# Distribution of segments

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


# Leases


class LeaseWatch:
    """Measures, for one reader, how long each other reader was silent. Threads: one at a time.

    It looks whenever the reader has read the state. Between two looks at most a third of a lease is counted: so no
    reader is considered dead after one look, and after an hour in which no reader reached the store all readers have
    the time to renew.

    Memory: O(readers of the group).
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Lease, float]] = {}
        self._looked_seconds: float | None = None

    def look(self, readers: Iterable[GroupMember], now_seconds: float) -> None:
        """Note the present leases of the readers.

        Args:
            readers: the readers of the group.
            now_seconds: the time by this reader's own timer; never falling.
        """
        passed = 0.0 if self._looked_seconds is None else now_seconds - self._looked_seconds
        self._looked_seconds = now_seconds
        before, self._seen = self._seen, {}
        for member in readers:
            lease, silent_seconds = before.get(member.name, (NO_LEASE, 0.0))
            is_silent = lease == member.lease
            counted = min(passed, member.lease.milliseconds / (1000 * LOOKS_MIN))
            self._seen[member.name] = (member.lease, silent_seconds + counted if is_silent else 0.0)

    def silent(self, reader: str) -> dict[str, Lease]:
        """Return the readers that were silent for longer than their leases, with these leases; without `reader`."""
        return {
            name: lease
            for name, (lease, seconds) in self._seen.items()
            if 0 < lease.milliseconds <= 1000 * seconds and name != reader
        }


# One reader

REBALANCE_SECONDS: Final = 2.0
REBALANCE_SECONDS_MAX: Final = 3600.0

LEASE_SECONDS: Final = 10.0
"""The shortest default lease; the default is `REBALANCES_IN_LEASE` intervals of calls if that is longer."""

LEASE_SECONDS_MAX: Final = 10 * 3600.0
REBALANCES_IN_LEASE: Final = 5

RENEWALS: Final = 4
"""How often a reader renews in the time of one lease, if its caller requests events as often."""


@dataclass(slots=True, eq=False)
class Membership:
    """One reader's view of its membership in a group, and of the events that its caller is processing.

    Threads: one at a time.

    Args:
        name: the name of the reader.
        rebalance_seconds: how often it reports its positions.
        lease_seconds: for how long it may be silent.
        auto_commit: whether returned events count as processed when the caller requests more.

    Attributes:
        lease: the lease of its session; `NO_LEASE` before the session begins.
        watch: measures the silence of the other readers.
        untold: by id, segments that were read to their ends, which was not yet reported to the group.
        held: by segment, the offset of the first event that was returned and that the caller has not processed.
        has_joined: whether it may be in the group.
        is_leaving: whether it has tried to leave, with unknown outcome.
        is_certain: whether its last call succeeded.
        has_nothing: whether at its last look it had no events to return, and no request for events under way.
        has_passed: the same, since the last request of its caller.
        has_all: whether all events that exist for now were returned.
        has_ended: whether it is at its end.

    Raises:
        InvalidArgument: invalid times.
    """

    name: str
    rebalance_seconds: float
    lease_seconds: float
    auto_commit: bool
    lease: Lease = NO_LEASE
    watch: LeaseWatch = field(default_factory=LeaseWatch)
    untold: dict[int, Finished] = field(default_factory=dict)
    held: dict[int, int] = field(default_factory=dict)
    has_joined: bool = False
    is_leaving: bool = False
    is_certain: bool = False
    has_nothing: bool = False
    has_passed: bool = False
    has_all: bool = False
    has_ended: bool = False
    _rebalanced_at: float = -inf
    _renewed_at: float = -inf

    @classmethod
    def of(cls, name: str, rebalance_seconds: float, lease_seconds: float | None, *, auto_commit: bool) -> Membership:
        """Return a membership that has not joined yet; a lease of None is the default lease. Raises as the class."""
        if not 0 < rebalance_seconds <= REBALANCE_SECONDS_MAX:
            raise InvalidArgument(f"expected up to {REBALANCE_SECONDS_MAX} s between calls, found {rebalance_seconds}")
        if lease_seconds is None:
            lease_seconds = max(LEASE_SECONDS, REBALANCES_IN_LEASE * rebalance_seconds)
        if not 2 * rebalance_seconds <= lease_seconds <= LEASE_SECONDS_MAX:
            expected = f"a lease of at least {2 * rebalance_seconds} s, two times rebalance_seconds"
            raise InvalidArgument(f"expected {expected}, and at most {LEASE_SECONDS_MAX} s, found {lease_seconds}")
        return cls(name, rebalance_seconds, lease_seconds, auto_commit)

    # Events that the caller is processing

    def note_asked(self) -> None:
        """Note that the caller requests more events."""
        self.has_passed = False
        if self.auto_commit:
            self.held.clear()

    def note_given(self, segment_id: int, offset: int) -> None:
        """Note that events of a segment were returned to the caller, the first of them at this offset."""
        self.held.setdefault(segment_id, offset)

    def note_taken(self, *, has_nothing: bool) -> None:
        """Note whether the reader, at its last look, had no events to return and no requests under way."""
        self.has_nothing = self.has_passed = has_nothing
        self.has_all &= has_nothing

    def with_ends(self, position: IdMap) -> IdMap:
        """Return the positions in all its segments, given the positions in those that it still reads."""
        return IdMap.of({**position, **{segment_id: ended.offset for segment_id, ended in self.untold.items()}})

    def finished(self, position: IdMap) -> IdMap:
        """Return the positions after the last events that the caller has processed, which the reader may report."""
        return IdMap.of({**self.with_ends(position), **self.held})

    def tellable(self) -> list[Finished]:
        """Return the segments that were read to their ends and whose events the caller has processed."""
        return [ended for segment_id, ended in self.untold.items() if segment_id not in self.held]

    def uncommitted_ends(self) -> list[int]:
        """Return ids of segments read to their ends with unprocessed events: successors begin after a commit."""
        return [segment_id for segment_id in self.untold if segment_id in self.held]

    def refuse_uncommitted(self, stream_name: str) -> None:
        """Check that an iteration ends at the end of the stream, and not because a commit is missing.

        Raises:
            ReaderStalled: the reader returns no more events before the caller commits.
        """
        if not self.has_ended and (ended := self.uncommitted_ends()):
            raise ReaderStalled(
                f"{stream_name}: expected a commit, found none since the end of {_texts(ended)} was returned"
            )

    @property
    def must_commit(self) -> bool:
        """Whether the reader returns no more events before the caller commits the returned ones."""
        return bool(self.held) and self.has_passed and (self.has_all or bool(self.uncommitted_ends()))

    # Calls of the group

    def pause_seconds(self, now_seconds: float, idle_seconds: float) -> float:
        """Return the time until the next call of the group is due; 0 or below = it is due now."""
        if not self.is_certain or self.tellable():
            return 0.0
        pause = min(self.rebalance_seconds, idle_seconds) if self.has_nothing else self.rebalance_seconds
        return self._rebalanced_at + pause - now_seconds

    def renews(self, now_seconds: float) -> bool:
        """Whether the lease is due for renewal."""
        return now_seconds - self._renewed_at >= self.lease_seconds / RENEWALS

    def note_told(self, told: Assignment, now_seconds: float, *, renewed: bool) -> None:
        """Note that a call of `rebalance`, begun at this time, has succeeded."""
        self.watch.look(told.readers, now_seconds)
        self.is_certain, self._rebalanced_at = True, now_seconds
        if renewed:
            self._renewed_at = now_seconds

    def told_lag(self, lag: int) -> int:
        """Return the lag to report: 0 for a reader that has read all existing events, else at least 1."""
        return 0 if self.has_nothing and not self.untold else max(1, lag)

    def is_all_read(self, state: GroupState, *, follows: bool) -> bool:
        """Whether a reader without segments will never get another one."""
        if (state.owners == ENDED).all():
            return True
        shares = Shares.of(state)
        is_owed = bool(shares.counts[state.index(self.name, self.lease.session)] < shares.least)
        return not (follows or shares.free or is_owed or state.lags.any())

    # Joining and leaving

    def begin(self, session: int) -> Lease:
        """Return the lease to join with: of this session, or of the session in which it tried to join before."""
        if self.lease == NO_LEASE:
            self.lease = Lease(session, milliseconds=int(1000 * self.lease_seconds))
        return self.lease

    def leave(self) -> None:
        """Note that the reader is about to leave."""
        self.is_certain, self.is_leaving = False, True

    def drop(self) -> None:
        """Reset the membership: the reader has left the group; it would join again with a new session."""
        self.untold.clear()
        self.held.clear()
        self.lease, self.watch = NO_LEASE, LeaseWatch()
        self.has_joined = self.is_leaving = self.is_certain = self.has_nothing = self.has_all = False
