"""One reader's membership in a group: its lease, the leases that it sees, and the events that its caller processes.

**Leases.** A running reader increases a number in the state, its *renewals*, regularly. Clocks are not compared: each
other reader measures, by its own timer, for how long it has seen the same lease (`LeaseWatch`), and considers the
reader dead when this is longer than the stated duration of the lease. The change that removes the reader checks that
the lease is still the same, so a reader that renewed in time stays. If no reader could read the state for some time,
this time does not count in full, because no reader could renew.

**Replacement.** A *session* distinguishes successive readers of one name. A reader that joins takes over from an
earlier one at once, as a restarted process cannot wait for its own lease. The state remembers the replaced sessions, so
that the earlier one finds out, whatever became of its own join: it raises `ReaderReplaced` for good. A reader that
left, or was removed because of its lease, joins again, unless another reader of its name is there by then.

Source: PDP-28.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Final

from accel.errors import InvalidArgument, ReaderReplaced, ReaderStalled
from accel.history.rules.values import IdMap
from accel.streams.rules.group_state import ENDED, NO_LEASE, RENEWALS, GroupMember, GroupState, Lease, segment_texts
from accel.streams.rules.reader_core import Finished
from accel.streams.rules.shares import Assignment, Shares

LOOKS_MIN: Final = 3
"""How often at least, after the first look, a lease must be seen unchanged before it counts as expired."""


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
        last_session: the last session in which it was in the group; 0 = it was not.
        replaced: the text of the error that it raises for good, because another reader of its name joined after it.
        lag: the lag that it reported last; None = unknown.
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
    last_session: int = 0
    replaced: str | None = None
    lag: int | None = None
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
                f"{stream_name}: expected a commit, found none since the end of {segment_texts(ended)} was returned"
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

    def told_lag(self, lags: Collection[int | None]) -> int | None:
        """Return the lag to report: 0 for a reader that has read all existing events, else at least 1; None = unknown.

        Args:
            lags: the lags of the segments that it reads; None = unknown.
        """
        known = [lag for lag in lags if lag is not None]
        if self.has_nothing and not self.untold:
            self.lag = 0
        else:
            self.lag = max(1, *known) if known and len(known) == len(lags) else None
        return self.lag

    def has_reported(self, now_seconds: float) -> bool:
        """Whether it is in the group, and reported within its lease."""
        return self.has_joined and now_seconds - self._rebalanced_at <= self.lease_seconds

    def is_all_read(self, state: GroupState, *, follows: bool) -> bool:
        """Whether a reader without segments will never get another one."""
        if (state.owners == ENDED).all():
            return True
        shares = Shares.of(state)
        at = state.index(self.name, self.lease.session)
        is_owed = bool(shares.counts[at] < shares.least[at])
        return not (follows or shares.free or is_owed or state.lags[state.counts > 0].any())

    # Joining and leaving

    def begin(self, session: int) -> Lease:
        """Return the lease to join with: of this session, or of the session in which it tried to join before."""
        if self.lease == NO_LEASE:
            self.lease = Lease(session, milliseconds=int(1000 * self.lease_seconds))
        return self.lease

    def note_joined(self) -> None:
        """Note that the reader is in the group."""
        self.has_joined, self.last_session = True, self.lease.session

    def refuse_replaced(self) -> None:
        """Check that no other reader of its name joined after it, as far as it knows. Raises ReaderReplaced."""
        if self.replaced is not None:
            raise ReaderReplaced(self.replaced)

    def leave(self) -> None:
        """Note that the reader is about to leave."""
        self.is_certain, self.is_leaving = False, True

    def drop(self) -> None:
        """Reset the membership: the reader has left the group; it would join again with a new session."""
        self.untold.clear()
        self.held.clear()
        self.lease, self.watch = NO_LEASE, LeaseWatch()
        self.has_joined = self.is_leaving = self.is_certain = self.has_nothing = self.has_all = False
