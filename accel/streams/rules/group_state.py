"""The state of a reader group: how far each segment was read, and by which reader.

    segment     offset   owner
    0@0         40       "a"      being read by a, which reported offset 40 last
    1@0         70       free     begun, and without a reader: its next reader continues at 70
    2@1         -1       free     waits until all older segments of its keys are read
    3@0         90       ended    read to its end, without successors: the stream is sealed

All offsets together are a stream cut: another group, or a single reader, can continue from it. A segment that was read
to its end and has successors is no longer in the state. Each segment has at most one owner, so two readers never read
the same segment. States are values: each change makes another state. A change that was already made returns the state
unchanged, so calls may be repeated after a lost reply.

How the segments are distributed: `shares`. How readers find out that another one is dead: `membership`.

Source: PDP-28. Which segments begin: `reader_core.Frontier`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np

from accel.errors import IllegalState, InvalidArgument, ReaderReplaced
from accel.history.rules.cuts import FUTURE, PlacedCut, later, place_offsets
from accel.history.rules.segments import NO_SEGMENTS, SegmentRecord, Segments
from accel.history.rules.values import NOTHING, IdMap, Integers, segment_text
from accel.streams.rules.frontier import Frontier

FREE: Final = -1
"""The owner of a segment without a reader."""

ENDED: Final = -2
"""The owner of a segment that was read to its end and has no successors."""

READERS_MAX: Final = 10_000
"""Limit of readers of one group."""

LAG_MAX: Final = 2**63 - 1

LAG_UNKNOWN: Final = -1
"""An unknown lag in a column of lags."""

RENEWALS: Final = 4
"""How often a reader renews in the time of one lease, if its caller requests events as often."""

CALM: Final = 6 * RENEWALS
"""How often a reader renews its lease, six leases long, until it counts as one that has not been behind."""


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

REPORT_SECONDS: Final = 10.0
"""For how long the report of a reader without a lease counts."""

REPORT_SLACK_SECONDS: Final = 1.0
"""Times of reports may differ by this much without an error: stores report their time in whole seconds."""

REPLACED_MAX: Final = 8
"""How many replaced readers of one name the state remembers."""


class Replaced(NamedTuple):
    """A reader that was replaced by another reader of its name.

    Args:
        session: the session of its lease.
        host: the host that it ran on.
        time_ms: when it was replaced, milliseconds since 1970. It decides nothing; messages use it.
    """

    session: int
    host: str
    time_ms: int


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One reader of a group.

    Args:
        name: the reader's name, unique in the group.
        lag: how far behind it is, as it reported; 0 or above, in any unit that all readers share. None = unknown: it
            has not reported yet, or did not know.
        has_waited: whether it left a segment that was due to it to readers with precedence.
        lease: its lease.
        host: the host that it runs on, for messages.
        reported_ms: when it reported last, milliseconds since 1970; 0 = it has not reported yet. No lease depends on
            this time.
        replaced: earlier readers of its name that did not leave the group, the last one last.
        limit: how many segments it has at most because it is behind; 0 = as many as its share. See `shares`.
        calm: how many renewals ago it was behind last, at most `CALM`; 0 = it is behind, or has not
            reported.

    Raises:
        ValueError: a number out of bounds.
    """

    name: str
    lag: int | None = None
    has_waited: bool = False
    lease: Lease = NO_LEASE
    host: str = ""
    reported_ms: int = 0
    replaced: tuple[Replaced, ...] = ()
    limit: int = 0
    calm: int = 0

    def __post_init__(self) -> None:
        if self.lag is not None and not 0 <= self.lag <= LAG_MAX:
            raise ValueError(f"reader {self.name!r}: expected a lag of 0 to {LAG_MAX}, found {self.lag}")
        if min(self.lease) < 0:
            raise ValueError(f"reader {self.name!r}: expected a lease of numbers from 0 on, found {self.lease}")
        if min(self.reported_ms, self.limit, self.calm) < 0 or len(self.replaced) > REPLACED_MAX:
            raise ValueError(f"reader {self.name!r}: expected numbers from 0 on, found {self}")

    def lag_at(self, now_ms: int) -> int | None:
        """Its lag, if it reported one within its lease; without a lease, within the last 10 seconds. Else None."""
        lease_ms = self.lease.milliseconds or 1000 * REPORT_SECONDS
        is_new = self.reported_ms > 0 and abs(now_ms - self.reported_ms) <= lease_ms + 1000 * REPORT_SLACK_SECONDS
        return self.lag if is_new else None

    def replacements(self, now_ms: int) -> int:
        """How many readers of its name were replaced within its lease."""
        return sum(now_ms - each.time_ms <= self.lease.milliseconds for each in self.replaced)


@dataclass(frozen=True, slots=True, eq=False)
class GroupState:
    """A reader group. Threads: immutable.

    Args:
        segments: the segments that were not read to their ends, or that end the stream; ascending by id.
        offsets: how far each segment was read; `FUTURE` = it waits.
        owners: the reader of each segment, as a position in `readers`; or `FREE`, `ENDED`.
        readers: ascending by name, each once.
        moved: ids of segments that a reader gave up because it was behind, ascending. See `shares`.

    Raises:
        ValueError: columns of different lengths, or an owner that does not exist.
    """

    segments: Segments
    offsets: Integers
    owners: Integers
    readers: tuple[GroupMember, ...] = ()
    moved: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        shape = self.segments.ids.shape
        if self.offsets.shape != shape or self.owners.shape != shape:
            raise ValueError(f"expected an offset and an owner for each of {self.segments}")
        self.owners.setflags(write=False)
        self.position()  # freezes the offsets, and refuses ids that do not ascend
        names = [reader.name for reader in self.readers]
        if len(names) > READERS_MAX or any(one >= other for one, other in pairwise(names)):
            raise ValueError(f"expected at most {READERS_MAX} readers, ascending by name, found {len(names)}")
        if any(one >= other for one, other in pairwise(self.moved)):
            raise ValueError(f"expected moved segments ascending by id, found {self.moved[:20]}")
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
            session: the session of the reader's lease; 0 = any session.

        Raises:
            IllegalState: the reader is not in the group.
            ReaderReplaced: another reader of its name is in the group.
        """
        at = self._place(reader)
        if not self._is_at(at, reader):
            found = f"found {reader!r}, which never joined, has left, was silent for longer than its lease, or was "
            raise IllegalState(f"expected a reader of the group, {found}declared offline: join again")
        if session and self.readers[at].lease.session != session:
            raise _replaced(self.readers[at])
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
        """The lag of each reader; `LAG_UNKNOWN` = unknown."""
        return _column(LAG_UNKNOWN if reader.lag is None else reader.lag for reader in self.readers)

    @property
    def limits(self) -> Integers:
        """The limit of each reader; 0 = none."""
        return _column(reader.limit for reader in self.readers)

    def lag(self, now_ms: int) -> int | None:
        """The largest lag of a reader; None if it is unknown.

        It is unknown if no reader reported its lag within its lease, or if segments belong to a reader that did not.

        Args:
            now_ms: the present time, milliseconds since 1970.
        """
        lags = [reader.lag_at(now_ms) for reader in self.readers]
        if any(lag is None and count for lag, count in zip(lags, self.counts.tolist(), strict=True)):
            return None
        return max((lag for lag in lags if lag is not None), default=None)

    # Changes

    def after_join(
        self, reader: str, lease: Lease = NO_LEASE, *, host: str = "", now_ms: int = 0, before: int = 0
    ) -> GroupState:
        """Add a reader without segments; a present reader of its name is replaced, and its segments go to the new one.

        Args:
            reader: the reader's name.
            lease: the session of the reader, and the duration of its lease.
            host: the host that it runs on.
            now_ms: the present time, milliseconds since 1970.
            before: its last session, if it was in the group before: then it replaces none; 0 = it was not.

        Raises:
            ReaderReplaced: it was in the group before, and another reader of its name joined since.
            InvalidArgument: the group has the largest number of readers.
        """
        at = self._place(reader)
        if self._is_at(at, reader):
            present = self.readers[at]
            if present.lease.session == lease.session:
                return self
            if before and present.lease.session == before:
                return self._with_member(at, lease=lease)
            if before or (lease.session and any(each.session == lease.session for each in present.replaced)):
                raise _replaced(present)
            replaced = (*present.replaced, Replaced(present.lease.session, present.host, now_ms))[-REPLACED_MAX:]
            return self._with_member(at, lag=None, lease=lease, host=host, reported_ms=0, replaced=replaced)
        if len(self.readers) >= READERS_MAX:
            raise InvalidArgument(f"expected at most {READERS_MAX} readers of a group, found one more: {reader!r}")
        readers = (*self.readers[:at], GroupMember(reader, lease=lease, host=host), *self.readers[at:])
        owners = np.where(self.owners >= at, self.owners + 1, self.owners)
        return replace(self, readers=readers, owners=owners).without_limits()

    def after_leave(self, reader: str, positions: Mapping[int, int] = NOTHING, *, session: int = 0) -> GroupState:
        """Remove a reader: its segments become free, at these positions or at its last reported ones.

        A reader that is not in the group, or was replaced by another reader of its name, counts as removed.
        """
        at = self._place(reader)
        if not self._is_at(at, reader) or (session and self.readers[at].lease.session != session):
            return self
        told = self.with_positions(reader, positions)
        owners = np.where(told.owners == at, FREE, told.owners)
        readers = (*self.readers[:at], *self.readers[at + 1 :])
        return replace(told, readers=readers, owners=np.where(owners > at, owners - 1, owners)).without_limits()

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
        present = self.readers[at]
        calm = min(present.calm + 1, CALM) if present.calm else 0
        return self._with_member(at, lease=lease._replace(renewals=present.lease.renewals + 1), calm=calm)

    def with_report(self, reader: str, now_ms: int) -> GroupState:
        """Store when a reader reported, milliseconds since 1970. Raises IllegalState as `index`."""
        return self._with_member(self.index(reader), reported_ms=max(now_ms, 0))

    def with_positions(self, reader: str, positions: Mapping[int, int]) -> GroupState:
        """Store a reader's positions. Ignores segments that it does not own, and positions lower than the stored ones.

        Raises:
            IllegalState: the reader is not in the group.
            InvalidArgument: keys that are not segment ids.
        """
        told = _as_map(positions).get_many(self.segments.ids, FUTURE)
        offsets = np.where(self.owners == self.index(reader), np.maximum(self.offsets, told), self.offsets)
        return self if np.array_equal(offsets, self.offsets) else replace(self, offsets=offsets)

    def with_lag(self, reader: str, lag: int | None, *, has_waited: bool) -> GroupState:
        """Store a reader's lag, None = unknown. Raises IllegalState as `index`; InvalidArgument for a lag below 0."""
        at = self.index(reader)
        if lag is not None and not 0 <= lag <= LAG_MAX:
            raise InvalidArgument(f"expected a lag of 0 to {LAG_MAX}, found {lag}")
        return self._with_member(at, lag=lag, has_waited=has_waited)

    def with_calm(self, reader: str, *, is_behind: bool) -> GroupState:
        """Note whether a reader is behind. Raises IllegalState as `index`.

        If it was not behind for long, its segments may be moved once more.
        """
        at = self.index(reader)
        present = self.readers[at].calm
        state = self._with_member(at, calm=0 if is_behind else max(present, 1))
        if not is_behind or present < CALM:
            return state
        own = set(self.segments.ids[self.owners == at].tolist())
        return replace(state, moved=tuple(each for each in self.moved if each not in own))

    def with_limit(self, reader: str, limit: int, moved: int | None = None) -> GroupState:
        """Limit the segments of a reader, and note one that it gives up for it. Raises IllegalState as `index`."""
        marked = self.moved if moved is None else tuple(sorted({*self.moved, moved}))
        return replace(self._with_member(self.index(reader), limit=limit), moved=marked)

    def without_limits(self) -> GroupState:
        """Remove the limits of readers that are not behind, and the marks of moved segments: the cause changed."""
        readers = tuple(replace(each, limit=0) if each.limit and each.calm else each for each in self.readers)
        return replace(self, readers=readers, moved=())

    def after_acquire(self, reader: str, segment_ids: Integers) -> GroupState:
        """Make a reader the owner of free segments that have begun.

        Raises:
            IllegalState: a segment has not begun or is not free, or the reader is not in the group.
        """
        at, wanted = self.index(reader), np.isin(self.segments.ids, segment_ids)
        if np.count_nonzero(wanted) != len(segment_ids) or not np.isin(segment_ids, self.free).all():
            raise IllegalState(
                f"expected segments that have begun and are free, found {segment_texts(segment_ids.tolist())}"
            )
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
        is_same = (self.readers, self.moved, self.segments) == (other.readers, other.moved, other.segments)
        return is_same and all(np.array_equal(one, two) for one, two in columns)

    def __hash__(self) -> int:
        return hash((self.segments, self.offsets.tobytes(), self.owners.tobytes(), self.readers, self.moved))

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
    then = replace(state, segments=segments, offsets=cut.values_array, owners=owners.get_many(cut.ids, FREE))
    is_same = np.array_equal(_begun(then), _begun(state))
    return then if is_same else then.without_limits()


def _begun(state: GroupState) -> Integers:
    begun: Integers = state.segments.ids[state.offsets >= 0]
    return begun


def _replaced(present: GroupMember) -> ReaderReplaced:
    where = f" on host {present.host}" if present.host else ""
    return ReaderReplaced(
        f"expected one reader of each name in the group, found another {present.name!r} that joined later{where}"
    )


def _column(values: Iterable[int]) -> Integers:
    return np.array(list(values), dtype=np.int64)


def _as_map(positions: Mapping[int, int]) -> IdMap:
    try:
        return IdMap.of(positions)
    except (ValueError, OverflowError, TypeError) as error:
        raise InvalidArgument(f"expected offsets by segment id: {error}") from error


def segment_texts(ids: Iterable[int]) -> str:
    """Return up to 20 segment ids as text, for messages."""
    return ", ".join(map(segment_text, islice(ids, 20))) or "none"
