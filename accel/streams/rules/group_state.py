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

A reader keeps what it has, and what is due to it, until it gives it up, is silent for longer than its lease, or is
declared offline. Without other events every reader has its share after three calls each, and one more for each segment
too many.

**Leases.** A reader that lives changes a number in the state, its *renewals*, now and then. Clocks are not compared:
each of the others counts, by its own timer, for how long it has seen the same numbers (`LeaseWatch`), and takes the
reader for dead when that is longer than the lease that the reader told. It goes only if its numbers are still those
that were seen, so one that renewed in time stays. Where nobody could read the state for a while, that while does not
count in full: all had to be silent. A *session* tells one reader of a name from the next one of that name: once another
has joined, calls of the one before are refused.

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
"""As the owner of a segment: nobody."""

ENDED: Final = -2
"""As the owner of a segment: nobody any more. It was read to its end, and nothing follows it."""

READERS_MAX: Final = 10_000
"""Readers of one group."""

LOOKS_MIN: Final = 3
"""As often at least, after the first time, a lease is seen unchanged before it counts as over."""

LAG_MAX: Final = 2**63 - 1


class Lease(NamedTuple):
    """By what a reader shows that it lives. All numbers are 0 or above.

    Args:
        session: tells this reader from others that had, or will have, its name; 0 = it does not say.
        renewals: grows while it lives.
        milliseconds: it is dead when the two above have stood still for so long; 0 = only `reader_offline` says so.
    """

    session: int = 0
    renewals: int = 0
    milliseconds: int = 0


NO_LEASE: Final = Lease()
"""Of a reader that never said that it renews: one of an earlier release, or of a program with a reader of its own."""

NO_LEASES: Final[Mapping[str, Lease]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One reader of a group.

    Args:
        name: tells it from the others.
        lag: how far behind it said that it is; 0 or above, in any unit that all readers share.
        has_waited: whether a segment was due to it that it left to those who come first.
        lease: by what it shows that it lives.

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

    def index(self, reader: str, session: int = 0) -> int:
        """The position of a reader; O(log readers).

        Args:
            reader: its name.
            session: under which it joined; 0 = any will do. Releases that know no sessions leave them out of what they
                write; then any will do, too.

        Raises:
            IllegalState: it is not in the group, or another one of its name is.
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

    def after_join(self, reader: str, lease: Lease = NO_LEASE) -> GroupState:
        """A reader comes, without segments yet; one of its name that is there hands over what it has, at once.

        Raises:
            InvalidArgument: there are as many as there may be.
        """
        at = self._place(reader)
        if self._is_at(at, reader):
            return self if self.readers[at].lease.session == lease.session else self._with_member(at, lease=lease)
        if len(self.readers) >= READERS_MAX:
            raise InvalidArgument(f"expected at most {READERS_MAX} readers of a group, found one more: {reader!r}")
        readers = (*self.readers[:at], GroupMember(reader, lease=lease), *self.readers[at:])
        return replace(self, readers=readers, owners=np.where(self.owners >= at, self.owners + 1, self.owners))

    def after_leave(self, reader: str, positions: Mapping[int, int] = NOTHING, *, session: int = 0) -> GroupState:
        """A reader goes: others take its segments, from these positions or from those that it told last.

        One that is not in the group, or that another one of its name has replaced, has gone already.
        """
        at = self._place(reader)
        if not self._is_at(at, reader) or (session and self.readers[at].lease.session not in (0, session)):
            return self
        told = self.with_positions(reader, positions)
        owners = np.where(told.owners == at, FREE, told.owners)
        readers = (*self.readers[:at], *self.readers[at + 1 :])
        return replace(told, readers=readers, owners=np.where(owners > at, owners - 1, owners))

    def after_silence(self, silent: Mapping[str, Lease]) -> GroupState:
        """Readers that were silent for too long go, unless they did anything since; see `LeaseWatch`. O(n) for each."""
        state = self
        for reader, lease in silent.items():
            at = state._place(reader)
            if lease.milliseconds and state._is_at(at, reader) and state.readers[at].lease == lease:
                state = state.after_leave(reader)
        return state

    def with_renewal(self, reader: str, lease: Lease) -> GroupState:
        """A reader shows that it lives. Raises as `index`.

        Args:
            reader: who.
            lease: its session, and for how long it may be silent; the renewals are counted here.
        """
        at = self.index(reader, lease.session)
        return self._with_member(at, lease=lease._replace(renewals=self.readers[at].lease.renewals + 1))

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
        return self._with_member(at, lag=lag, has_waited=has_waited)

    def after_acquire(self, reader: str, segment_ids: Integers) -> GroupState:
        """A reader takes segments that have begun and are free.

        Raises:
            IllegalState: one of them is not, or the reader is not in the group.
        """
        at, wanted = self.index(reader), np.isin(self.segments.ids, segment_ids)
        if np.count_nonzero(wanted) != len(segment_ids) or not np.isin(segment_ids, self.free).all():
            raise IllegalState(f"expected segments that have begun and are free, found {_texts(segment_ids.tolist())}")
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

    def _with_member(self, at: int, **changes: Any) -> GroupState:
        member = replace(self.readers[at], **changes)
        return replace(self, readers=(*self.readers[:at], member, *self.readers[at + 1 :]))

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


def _texts(ids: Iterable[int]) -> str:
    return ", ".join(map(segment_text, islice(ids, 20))) or "none"


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
        readers: of the group, itself among them: what a `LeaseWatch` looks at.
    """

    start: tuple[Start, ...]
    stop: tuple[int, ...]
    readers: tuple[GroupMember, ...] = ()


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


def after_rebalance(
    state: GroupState, reader: str, positions: Mapping[int, int], lag: int, busy: Collection[int] = ()
) -> GroupState:
    """A reader tells how far it is, gives up what is too much, takes what is due to it.

    Args:
        state: of its group.
        reader: who.
        positions: offsets of the segments that it reads, behind the last events that its caller has finished with.
        lag: how far behind it is; 0 or above.
        busy: ids of segments that it does not give up now, since its caller has events of them in hand.

    Raises:
        IllegalState: it is not in the group.
        InvalidArgument: no positions, or no lag.
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
    """What a reader at some positions has to do to read what it owns. Raises IllegalState as `after_rebalance`.

    It follows from the state alone, so a reader whose reply was lost, or that comes back, learns the same again.
    """
    is_own = state.owners == state.index(reader)
    rows = zip(state.segments.where(is_own), state.offsets[is_own].tolist(), strict=True)
    start = tuple(Start(segment, offset) for segment, offset in rows if positions.get(segment.id, FUTURE) < offset)
    own = state.segments.ids[is_own].tolist()
    return Assignment(start, tuple(sorted(positions.keys() - own)), state.readers)


# Who lives


class LeaseWatch:
    """What one reader has seen of the others: for how long each was silent. Threads: one at a time.

    It looks whenever it has read the state. What counts between two looks is at most a third of the lease that it
    judges: so nobody is taken for dead by one look alone, and after an hour in which nobody reached the store everybody
    has the time to renew.

    Memory: O(readers of the group).
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Lease, float]] = {}
        self._looked_seconds: float | None = None

    def look(self, readers: Iterable[GroupMember], now_seconds: float) -> None:
        """Take notice of the readers as they stand.

        Args:
            readers: of the group.
            now_seconds: what this reader's own timer says; never falling.
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
        """Who was silent for longer than its lease, and the lease that stood still; never this reader itself."""
        return {
            name: lease
            for name, (lease, seconds) in self._seen.items()
            if 0 < lease.milliseconds <= 1000 * seconds and name != reader
        }


# One reader

REBALANCE_SECONDS: Final = 2.0
REBALANCE_SECONDS_MAX: Final = 3600.0

LEASE_SECONDS: Final = 10.0
"""The least that a lease is by default; else that of `REBALANCES_IN_LEASE` calls."""

LEASE_SECONDS_MAX: Final = 10 * 3600.0
REBALANCES_IN_LEASE: Final = 5

RENEWALS: Final = 4
"""A reader renews so often in its lease, if it is asked so often."""


@dataclass(slots=True, eq=False)
class Membership:
    """What one reader of a group knows of itself: how it stands to the group, and what its caller has in hand.

    Threads: one at a time.

    Args:
        name: of the reader.
        rebalance_seconds: how often it tells where it is.
        lease_seconds: for how long it may be silent.
        auto_commit: whether its caller has finished with what it was given when it asks for more.

    Attributes:
        lease: of its session; `NO_LEASE` before that begins.
        watch: of the others.
        untold: by id, segments that were read to their ends, and of which the group does not know it.
        held: by segment, where the first event begins that its caller was given and has not finished with.
        has_joined: whether it may be in the group.
        is_leaving: whether it has tried to leave, and does not know what came of it.
        is_certain: whether its last call went through.
        has_nothing: whether it had nothing to give when it looked last, and nothing on its way.
        has_passed: the same, since its caller asked last.
        has_all: whether all was given that there is for now.
        has_ended: whether nothing comes any more.

    Raises:
        InvalidArgument: times that make no sense.
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
        """One that has not joined yet; a lease of None is the default one. Raises as the class says."""
        if not 0 < rebalance_seconds <= REBALANCE_SECONDS_MAX:
            raise InvalidArgument(f"expected up to {REBALANCE_SECONDS_MAX} s between calls, found {rebalance_seconds}")
        if lease_seconds is None:
            lease_seconds = max(LEASE_SECONDS, REBALANCES_IN_LEASE * rebalance_seconds)
        if not 2 * rebalance_seconds <= lease_seconds <= LEASE_SECONDS_MAX:
            expected = f"a lease of at least {2 * rebalance_seconds} s, two times rebalance_seconds"
            raise InvalidArgument(f"expected {expected}, and at most {LEASE_SECONDS_MAX} s, found {lease_seconds}")
        return cls(name, rebalance_seconds, lease_seconds, auto_commit)

    # What its caller has in hand

    def note_asked(self) -> None:
        """The caller asks for more."""
        self.has_passed = False
        if self.auto_commit:
            self.held.clear()

    def note_given(self, segment_id: int, offset: int) -> None:
        """The caller was given events of a segment, of which the first begins at an offset."""
        self.held.setdefault(segment_id, offset)

    def note_taken(self, *, has_nothing: bool) -> None:
        """The reader looked for events to give: whether there are none, and none on their way."""
        self.has_nothing = self.has_passed = has_nothing
        self.has_all &= has_nothing

    def with_ends(self, position: IdMap) -> IdMap:
        """Where it stands in all that it owns, by where it stands in what it reads."""
        return IdMap.of({**position, **{segment_id: ended.offset for segment_id, ended in self.untold.items()}})

    def finished(self, position: IdMap) -> IdMap:
        """The same, but behind the last events that the caller has finished with: what the group may know."""
        return IdMap.of({**self.with_ends(position), **self.held})

    def tellable(self) -> list[Finished]:
        """The segments that were read to their ends, and of which the caller has nothing in hand."""
        return [ended for segment_id, ended in self.untold.items() if segment_id not in self.held]

    def uncommitted_ends(self) -> list[int]:
        """Ids of the others: what follows them does not begin before the caller commits."""
        return [segment_id for segment_id in self.untold if segment_id in self.held]

    def refuse_uncommitted(self, stream_name: str) -> None:
        """That the end of an iteration is one, and not the end of a segment.

        Raises:
            ReaderStalled: nothing comes any more before the caller commits.
        """
        if not self.has_ended and (ended := self.uncommitted_ends()):
            raise ReaderStalled(
                f"{stream_name}: expected a commit, found none since the end of {_texts(ended)} was given"
            )

    @property
    def must_commit(self) -> bool:
        """Whether nothing comes any more before the caller commits what it has in hand."""
        return bool(self.held) and self.has_passed and (self.has_all or bool(self.uncommitted_ends()))

    # When the group is asked

    def pause_seconds(self, now_seconds: float, idle_seconds: float) -> float:
        """For how long the group need not be asked; 0 or below = it is time."""
        if not self.is_certain or self.tellable():
            return 0.0
        pause = min(self.rebalance_seconds, idle_seconds) if self.has_nothing else self.rebalance_seconds
        return self._rebalanced_at + pause - now_seconds

    def renews(self, now_seconds: float) -> bool:
        """Whether it is time to show that it lives."""
        return now_seconds - self._renewed_at >= self.lease_seconds / RENEWALS

    def note_told(self, told: Assignment, now_seconds: float, *, renewed: bool) -> None:
        """A call of `rebalance` that was begun at this time has gone through."""
        self.watch.look(told.readers, now_seconds)
        self.is_certain, self._rebalanced_at = True, now_seconds
        if renewed:
            self._renewed_at = now_seconds

    def told_lag(self, lag: int) -> int:
        """What the group is told: nobody is behind who has read all that there is, and others are."""
        return 0 if self.has_nothing and not self.untold else max(1, lag)

    def is_all_read(self, state: GroupState, *, follows: bool) -> bool:
        """Whether a reader that has nothing to read will not have anything to read any more."""
        if (state.owners == ENDED).all():
            return True
        shares = Shares.of(state)
        is_owed = bool(shares.counts[state.index(self.name, self.lease.session)] < shares.least)
        return not (follows or shares.free or is_owed or state.lags.any())

    # Coming and going

    def begin(self, session: int) -> Lease:
        """The lease that it joins with: of this session, or of the one in which it has tried to join before."""
        if self.lease == NO_LEASE:
            self.lease = Lease(session, milliseconds=int(1000 * self.lease_seconds))
        return self.lease

    def leave(self) -> None:
        """It is about to leave."""
        self.is_certain, self.is_leaving = False, True

    def drop(self) -> None:
        """It is in the group no more, and others read what it read; it would join as another one."""
        self.untold.clear()
        self.held.clear()
        self.lease, self.watch = NO_LEASE, LeaseWatch()
        self.has_joined = self.is_leaving = self.is_certain = self.has_nothing = self.has_all = False
