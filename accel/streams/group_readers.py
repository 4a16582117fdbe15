"""The readers of a group: each asks the group regularly which segments to read.

    group = ReaderGroup.open(stream, "billing")              # new: at the stream's head; else at its last position
    with GroupReader(stream, source, group, "reader-1") as reader:
        for event in reader:
            ...

Every few seconds, before it returns the next event, a reader reports to the group the positions that its caller has
processed, and gets its segments from the group:

    | when                                             | calls of a `GroupReader`                                      |
    |--------------------------------------------------|---------------------------------------------------------------|
    | its first event is requested                     | `join`, `rebalance`                                           |
    | `rebalance_seconds` have passed                  | `rebalance`                                                   |
    | it has nothing to read, `idle_seconds` later     | the same; also `state` if it might be at the end              |
    | its caller has processed a sealed segment        | `finish`, `rebalance`, at once                                |
    | `commit` or `rebalance` is called                | the same                                                      |
    | `leave`, `close`, the end                        | `leave`                                                       |

What the calls do: `groups`. What a reader remembers between two calls: `rules.membership`.

Source: PDP-28.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from socket import gethostname
from threading import RLock
from typing import Final
from weakref import WeakSet

from accel.errors import IllegalState, NotInHistory, ReaderReplaced
from accel.history.rules.values import IdMap, checked_arguments
from accel.history.store import Stream
from accel.streams.groups import ReaderGroup
from accel.streams.reader import MILLISECONDS, ReaderBase, ThreadReader
from accel.streams.rules.events import Event, EventBatch
from accel.streams.rules.frontier import Frontier
from accel.streams.rules.membership import REBALANCE_SECONDS, Membership
from accel.streams.rules.reader_core import ReaderCore
from accel.streams.rules.settings import ReaderSettings
from accel.streams.rules.shares import Assignment
from accel.streams.segment_source import SegmentSource
from accel.system import SYSTEM, Components
from loaders.errors import TableMissing
from loaders.settings import TimeLimit

SESSIONS: Final = 2**32 - 5
"""The number of different sessions: a prime, so that each byte of a nonce counts."""

REPLACEMENTS_MAX: Final = 3
"""If more readers of a name are replaced within a lease, a warning names the hosts."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GroupReaderStats:
    """What the readers of groups of one process did.

    Attributes:
        readers: how many are in their groups.
        replacing: how often one of them joined in place of another reader of its name: a restart, or a name used twice.
        replaced: how often another reader joined in place of one of them: a name used twice.
        lag_seconds: the largest lag that one of them reported within its lease; None if none did.
    """

    readers: int = 0
    replacing: int = 0
    replaced: int = 0
    lag_seconds: float | None = None


class GroupReaderCounts:
    """Counts what readers of groups do, for metrics. Threads: any."""

    def __init__(self) -> None:
        self._lock = RLock()  # guards the attributes below
        self._readers: WeakSet[GroupMember] = WeakSet()
        self._replacing = self._replaced = 0

    def add(self, reader: GroupMember) -> None:
        """Count a reader, as long as it exists."""
        with self._lock:
            self._readers.add(reader)

    def note_replacing(self) -> None:
        """Count a reader that joined in place of another one."""
        with self._lock:
            self._replacing += 1

    def note_replaced(self) -> None:
        """Count a reader that another one replaced."""
        with self._lock:
            self._replaced += 1

    def stats(self) -> GroupReaderStats:
        """Return the present counts."""
        with self._lock:
            readers, replacing, replaced = list(self._readers), self._replacing, self._replaced
        members = [each for each in readers if each.has_reported]
        lags = [lag for each in members if (lag := each.reported_lag_seconds()) is not None]
        return GroupReaderStats(len(members), replacing, replaced, max(lags, default=None))


@checked_arguments
class GroupMember(ReaderBase):
    """The common part of the two readers of a group, which differ only in how they wait. Arguments: `GroupReader`."""

    def __init__(  # noqa: PLR0913 - all choices of a user for a reader of a group
        self,
        stream: Stream,
        source: SegmentSource,
        group: ReaderGroup,
        name: str,
        *,
        follow: bool = True,
        settings: ReaderSettings | None = None,
        rebalance_seconds: float = REBALANCE_SECONDS,
        lease_seconds: float | None = None,
        auto_commit: bool = True,
        system: Components = SYSTEM,
        counts: GroupReaderCounts | None = None,
    ) -> None:
        self._member = Membership.of(name, rebalance_seconds, lease_seconds, auto_commit=auto_commit)
        self._counts = GroupReaderCounts() if counts is None else counts
        core = ReaderCore(Frontier(), settings or ReaderSettings(), follow=follow, is_member=True)
        super().__init__(stream, source, core, system)
        self.name = name
        self._group = group
        self._counts.add(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._group!r}, {self.name!r})"

    def position(self) -> IdMap:
        """The position in the segments that it reads: after the last returned event."""
        self._collect()
        return self._member.with_ends(super().position())

    @property
    def has_reported(self) -> bool:
        """Whether it is in the group, and reported within its lease."""
        return self._member.has_reported(self._system.timer())

    def reported_lag_seconds(self) -> float | None:
        """The lag that it reported last; None if it was unknown, or the reader did not report within its lease."""
        lag = self._member.lag if self.has_reported else None
        return None if lag is None else lag / MILLISECONDS

    @property
    def is_finished(self) -> bool:
        """Whether the reader is at its end: all its events were returned and committed."""
        return self._member.has_ended

    @property
    def _is_waited_for(self) -> bool:
        return not (self._member.has_ended or self._member.must_commit)

    def _note_asked(self) -> None:
        self._lifetime.check_process()
        self._member.note_asked()

    def _note_given(self, given: Event | EventBatch) -> None:
        self._member.note_given(given.segment_id, given.offset)

    def _next_event(self) -> Event | None:
        try:
            if (event := next(self._events, None)) is not None:
                self._note_given(event)
        except BaseException:  # interrupted: the event is the next one again
            self._events = iter(()) if self._batch is None else iter(self._batch.within(self._at))
            raise
        if event is not None:
            self._at = event.next_offset
        return event

    # Calls of the group; each blocks

    def _due(self) -> Callable[[], None] | None:
        """Return the call of the group that is due before the next event; None if no call is due."""
        self._collect()
        if self._lifetime.is_closed:
            return self._leave_for_good  # if leaving failed at the close: other readers need its segments
        self._member.refuse_replaced()
        return self._rebalance if self._pause_seconds() <= 0 else None

    def _rebalance(self) -> None:
        self._lifetime.check_process()
        if self._lifetime.is_closed or self._member.has_ended:
            return
        self._member.refuse_replaced()
        self._member.is_certain = False
        try:
            self._ask_group()
        except IllegalState:
            self._drop_all()
            raise
        except ReaderReplaced as error:
            self._drop_all()
            self._member.replaced = f"{self._group!r}, on host {gethostname()}: {error}"
            self._counts.note_replaced()
            raise ReaderReplaced(self._member.replaced) from error

    def _commit(self) -> None:
        self._check()
        self._member.refuse_replaced()
        self._member.held.clear()
        if self._member.has_joined:
            self._rebalance()

    def _leave(self) -> None:
        self._lifetime.check_process()  # another process would leave under the name of the reading one
        if self._member.has_joined:
            self._member.leave()
            self._group.leave(self.name, self._finished(), session=self._member.lease.session)
            self._drop_all()

    def _leave_for_good(self) -> None:
        """Leave before the reader is closed; no error if the group or the stream was deleted: it has no readers."""
        try:
            self._leave()
        except (NotInHistory, TableMissing):
            self._drop_all()

    def _skip_to_head(self) -> IdMap:
        self._lifetime.check_process()
        self._member.refuse_replaced()
        self._group.skip_to_head()
        self._rebalance()
        return self.position()

    def _ask_group(self) -> None:
        member = self._member
        if member.is_leaving:
            self._leave()  # the last attempt may have failed
        if not member.has_joined:
            self._join()
        self._collect()
        for ended in member.tellable():
            offset, session = ended.offset, member.lease.session
            self._group.finish(self.name, ended.segment_id, ended.successors, offset=offset, session=session)
            del member.untold[ended.segment_id]
        self._tell()
        if member.has_nothing and self._is_all_read():
            member.has_all = True
            if not member.held:
                self._leave()
                member.has_ended = True

    def _join(self) -> None:
        member = self._member
        lease = member.begin(1 + int.from_bytes(self._system.nonce()) % SESSIONS)
        host, before = gethostname(), member.last_session
        joined = self._group.join(self.name, lease, host=host, before=before)
        member.note_joined()
        if joined.replaced and not before:
            self._counts.note_replacing()
            count = joined.replacements(joined.replaced[-1].time_ms)
            if count > REPLACEMENTS_MAX:
                logger.warning(
                    "%r: expected one reader named %r, found %d that replaced one another within its lease of %g s, on"
                    " hosts %s and %s",
                    *(self._group, self.name, count, member.lease_seconds, joined.replaced[-1].host, host),
                )

    def _tell(self) -> None:
        """Report this reader's positions and renew its lease; then carry out the group's assignment."""
        member, now = self._member, self._system.timer()
        lags, renews = self._core.lags(self._now_ms()), member.renews(now)
        told = self._group.rebalance(
            self.name,
            self._finished(),
            member.told_lag(lags.values()),
            lease=member.lease,
            renews=renews,
            silent=member.watch.silent(self.name),
            busy=member.held,
            lags={number: lag for number, lag in lags.items() if lag is not None},
        )
        self._carry_out(told)
        member.note_told(told, now, renewed=renews)

    # Inside

    def _finished(self) -> IdMap:
        self._collect()
        return self._member.finished(super().position())

    def _take(self) -> EventBatch | None:
        batch = super()._take()
        self._member.note_taken(has_nothing=batch is None and not self._left_seconds and not self._core.is_awaited)
        return batch

    def _wait_seconds(self) -> float | None:
        wait, pause = super()._wait_seconds(), max(0.0, self._pause_seconds())
        return pause if wait is None else min(wait, pause)

    def _pause_seconds(self) -> float:
        return self._member.pause_seconds(self._system.timer(), self.settings.idle_seconds)

    def _collect(self) -> None:
        """Note segments that were read to their ends; all their events were returned before."""
        self._core.take_finished(lambda done: self._member.untold.update((each.segment_id, each) for each in done))

    def _carry_out(self, todo: Assignment) -> None:
        known = self._core.position().keys() | self._member.untold.keys()
        for segment_id in todo.stop:
            self._give_up(segment_id)
        for segment, offset in todo.start:
            if segment.id in known:
                self._give_up(segment.id)
            self._core.add(segment, offset)
            self._member.has_nothing = self._member.has_all = False

    def _give_up(self, segment_id: int) -> None:
        self._member.held.pop(segment_id, None)
        if self._member.untold.pop(segment_id, None) is not None:
            return
        if self._batch is not None and self._batch.segment_id == segment_id:
            self._batch, self._events = None, iter(())
        self._failing.pop(segment_id, None)  # if the segment comes back, its failures are new ones
        self._core.remove(segment_id)

    def _is_all_read(self) -> bool:
        """Whether this reader, which has no segment to read, will never get another one."""
        core = self._core
        if self._member.untold or core.idle or (core.follows and len(core.position())):
            return False
        return self._member.is_all_read(self._group.state(), follows=core.follows)

    def _drop_all(self) -> None:
        """Drop all segments: the reader has left the group, and others read its segments."""
        self._collect()
        self._member.drop()
        for segment_id in self._core.position():
            self._give_up(segment_id)


@checked_arguments
class GroupReader(GroupMember, ThreadReader):
    """One reader of a group. Threads: one at a time. It joins when the first event is requested.

    **Which events count as read.** By default an event, or a batch, counts when the caller requests the next one: by
    then the caller has processed it. An application that collects events before it stores them uses
    ``auto_commit=False``: then only events before a `commit` count. `commit` always includes the last event.

    **The lease.** The reader renews its lease while events are requested, and by `rebalance` and `commit`. If it is
    silent for longer, others continue at its last reported positions. If it still runs, its next call raises
    IllegalState before any of its positions is stored.

    A reader that does not follow ends, and leaves, when it has read its segments to their present ends, no segment is
    free or due to it, and no other reader reported that it is behind: such a reader may reach successors that are to be
    shared. A reader that follows ends when the stream is sealed and all segments were read to their ends. Successors of
    a segment begin when the end of the segment is committed: if nothing else is left, `next_batch` returns None at
    once, `next` raises ReaderStalled, and reading continues after `commit`.

    An error does not change the position: the next call tries again, and no event is returned twice.

    Args:
        stream: the stream of the group.
        source: reads the events of segments; readers may share a source.
        group: decides which segments the reader reads.
        name: the reader's name. A reader that joins under a name replaces the earlier reader of that name at once: a
            restarted process does not wait for its own lease. Running readers need different names.
        follow: whether to wait for future events.
        settings: bounds of the reader.
        rebalance_seconds: how often it reports its positions; above 0.
        lease_seconds: for how long it may be silent, the application's work on an event or batch included; at least two
            times `rebalance_seconds`. None, the default: 10 s, or five times `rebalance_seconds` if that is more.
        auto_commit: whether events count as read when the next one is requested; if not, when `commit` is called.
        system: the timer, the clock by which `lag` is measured, and the nonce of its session.
        counts: counts this reader, for metrics; None = not counted.

    Raises:
        InvalidArgument: an invalid time; while iterating: an invalid name, or too many readers.
        IllegalState (while iterating): its lease expired, it was declared offline, or the group was reset: unreported
            events are returned again. The next call joins again.
        ReaderReplaced (while iterating): another reader joined under its name, and returns unreported events again.
            Each later call raises this, too; the reader never joins again.
        PositionTruncated (while iterating): the stream now begins after the position; `skip_to_head` continues.
        PositionBeyondEnd (while iterating): a segment ends before the group's position, as in a bucket that was
            restored; `ReaderGroup.reset` moves the group.
        ReaderStalled (while iterating): data that must exist was not found for `stall_seconds`; and see above.
        NotInHistory (while iterating): the group was deleted.
        AccelError (while iterating): the stream or the group could not be read.
    """

    def next_event(self, timeout_seconds: TimeLimit = None) -> Event | None:
        """Return the next event; None at the end or after the time-out. ReaderStalled if it waits for a commit."""
        self._note_asked()
        self._attend()
        event = super().next_event(timeout_seconds)
        if event is None:
            self._member.refuse_uncommitted(self._stream.name)
        return event

    def next_batch(self, timeout_seconds: TimeLimit = None) -> EventBatch | None:
        """Return the next batch; None at the end, after the time-out, or if it waits for a commit.

        If the first events of a batch were returned one by one, the result is the rest of the batch.

        Args:
            timeout_seconds: how long to wait at most; None = without limit.
        """
        self._note_asked()
        return super().next_batch(timeout_seconds)

    def commit(self) -> None:
        """Report to the group that the caller has processed all returned events: no reader returns them again.

        2 calls, and 2 more for each segment that was read to its end.

        Raises:
            IllegalState: the reader was considered dead; others return again the events since its last report.
            ReaderReplaced: another reader joined under its name; nothing was reported.
            NotInHistory, AccelError: as while iterating. The report may or may not be stored; the next call repeats it.
        """
        self._commit()

    def rebalance(self) -> None:
        """Report positions to the group, renew the lease, and read the assigned segments from now on.

        Requests for events call it regularly. An application that works on an event for longer than the lease calls it
        meanwhile; events in work do not count as read. Does nothing after the end or `close`.

        Raises:
            IllegalState, ReaderReplaced, NotInHistory, AccelError: as while iterating.
        """
        self._rebalance()

    def leave(self) -> None:
        """Leave the group: others continue after the events that count as read. The next request joins again.

        The last returned event counts only if `commit` was called. Does nothing if the reader is not in the group.

        Raises:
            AccelError: the reader may still be in the group. It returns no event until it has left and joined again.
        """
        self._leave()

    def close(self) -> None:
        """Leave, and stop reading, without waiting for requests under way. Raises as `leave`; may be repeated.

        Does not raise if the group or the stream was deleted: then no reader continues after this one.
        """
        try:
            self._leave_for_good()
        finally:
            self._close()

    def skip_to_head(self) -> IdMap:
        """Move the whole group to the stream's head where it is before the head; returns this reader's position."""
        return self._skip_to_head()

    def _attend(self) -> None:
        if (work := self._due()) is not None:
            work()
