"""Readers that share a stream: each segment is read by one reader, and the shares follow the readers' load.

    group = ReaderGroup.open(stream, "billing")              # new: at the stream's head; else at its last position
    with GroupReader(stream, source, group, "reader-1") as reader:
        for event in reader:
            ...

Every few seconds, before it returns the next event, a `GroupReader` reports the positions that its caller has
processed, and gets its segments from the group; so does `AsyncGroupReader`. Other readers call the group themselves:
`join`, then `rebalance` every few seconds and whenever a segment has ended, then `leave`.

A group is one value of a table beside the stream's history, and every change of it is one compare-and-set: any process
may make any call at any time, and may stop at any point. How often events are returned:

- A segment given up by `rebalance` or `leave` continues at the position of the same call: every event comes once.
- A reader that is silent for longer than its lease is dead. Others return again the events that it returned after its
  last reported position: no event is lost, an event may be returned twice.
- A call that raises `StoreError`, `DataConflict` or `AmbiguousWrite` may have been carried out. A `GroupReader` returns
  no event until a later call has succeeded, so every event is still returned once. Repeating a call is safe.

Events of one key come in their order, from any reader. Calls are table calls: 1 to read the state, 1 to change it.

    | when                                             | calls of a `GroupReader`                                      |
    |--------------------------------------------------|---------------------------------------------------------------|
    | its first event is requested                     | `join`, `rebalance`                                           |
    | `rebalance_seconds` have passed                  | `rebalance`                                                   |
    | it has nothing to read, `idle_seconds` later     | the same; also `state` if it might be at the end              |
    | its caller has processed a sealed segment        | `finish`, `rebalance`, at once                                |
    | `commit` or `rebalance` is called                | the same                                                      |
    | `leave`, `close`, the end                        | `leave`                                                       |

`rebalance` is 1 call if nothing changed. Renewing a lease is a change, 4 times per lease: an idle reader makes 0.4
writes a second. A group of 10,000 readers and as many segments takes about 240 kB (fields: docs/reference/events.md).

Source: PDP-28; how segments are distributed: `rules.group_state`.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, TypeVar

import msgspec
import numpy as np

from accel.errors import IllegalState, NotInHistory, Sought
from accel.history.columns import StoredSegments, check_within, make_rows, pack_segments, restore_segments
from accel.history.records import HistoryForm, plain
from accel.history.rules import retention
from accel.history.rules.cuts import PlacedCut
from accel.history.rules.epochs import offsets_at_start
from accel.history.rules.segments import SegmentRecord
from accel.history.rules.values import NOTHING, Cut, IdMap, checked_id, checked_integer
from accel.history.store import Stream, keys
from accel.history.store.cut_reading import as_cut
from accel.streams.reader import AsyncReader, ReaderBase, ThreadReader
from accel.streams.rules.events import Event, EventBatch
from accel.streams.rules.frontier import Frontier, place_offsets
from accel.streams.rules.group_state import (
    ENDED,
    FREE,
    NO_LEASE,
    NO_LEASES,
    READERS_MAX,
    REBALANCE_SECONDS,
    Assignment,
    GroupMember,
    GroupState,
    Lease,
    Membership,
    after_rebalance,
    assignment,
)
from accel.streams.rules.reader_core import ReaderCore
from accel.streams.rules.settings import ReaderSettings
from accel.streams.segment_source import SegmentSource, cut_at
from accel.system import SYSTEM, Components
from loaders.errors import TableMissing
from loaders.tables import Table, TypedKey
from loaders.tables.columns import pack_columns, unpack_columns
from loaders.tables.records import Converted

Answer = TypeVar("Answer")

# The stored form

PLACE: Final = np.dtype([("offset", "<i8"), ("owner", "<i8")])
REPORT: Final = np.dtype([("lag", "<i8"), ("has_waited", "<i8")])
LEASE: Final = np.dtype([("session", "<i8"), ("renewals", "<i8"), ("milliseconds", "<i8")])


class StoredGroup(msgspec.Struct, frozen=True, omit_defaults=True):
    """The stored fields of a `GroupState`. Earlier releases ignore `leases`, and omit it when they write."""

    segments: StoredSegments
    places: bytes
    readers: Annotated[list[str], msgspec.Meta(max_length=READERS_MAX)]
    reports: bytes
    leases: bytes = b""


def _stored(state: GroupState) -> StoredGroup:
    has_waited = [reader.has_waited for reader in state.readers]
    return StoredGroup(
        segments=pack_segments(state.segments),
        places=pack_columns(make_rows(PLACE, offset=state.offsets, owner=state.owners)),
        readers=[reader.name for reader in state.readers],
        reports=pack_columns(make_rows(REPORT, lag=state.lags, has_waited=has_waited)),
        leases=_stored_leases(state.readers),
    )


def _stored_leases(readers: Sequence[GroupMember]) -> bytes:
    leases = [tuple(reader.lease) for reader in readers]
    return pack_columns(np.array(leases, dtype=LEASE)) if any(map(any, leases)) else b""


def _restored(fields: StoredGroup, where: str) -> GroupState:
    places = unpack_columns(fields.places, PLACE, f"{where}, places")
    reports = unpack_columns(fields.reports, REPORT, f"{where}, reports", rows_max=READERS_MAX)
    check_within("marks of waiting", reports["has_waited"], 0, 1)
    leases = [NO_LEASE] * len(fields.readers)
    if fields.leases:
        stored = unpack_columns(fields.leases, LEASE, f"{where}, leases", rows_max=READERS_MAX)
        leases = [Lease(*row) for row in stored.tolist()]
    rows = zip(fields.readers, reports["lag"].tolist(), reports["has_waited"].tolist(), leases, strict=True)
    return GroupState(
        restore_segments(fields.segments, where),
        places["offset"].copy(),
        places["owner"].copy(),
        tuple(GroupMember(name, lag, bool(has_waited), lease) for name, lag, has_waited, lease in rows),
    )


class _GroupForm(HistoryForm[GroupState]):
    """The stored form of a group, which shows the owners of segments by their names. Threads: immutable."""

    def expand(self, fields: Any) -> object:
        state = _restored(fields, self.name)
        names = {FREE: None, ENDED: "ended"} | {at: {"reader": name} for at, name in enumerate(fields.readers)}
        return plain(
            {
                "position": state.position(),
                "owners": [names[owner] for owner in state.owners.tolist()],
                "readers": [{**dataclasses.asdict(each), "lease": each.lease._asdict()} for each in state.readers],
                "segments": state.segments,
            }
        )


READER_GROUP: Final = _GroupForm("reader-group", 1, Converted(StoredGroup, _stored, _restored))


# The group


class ReaderGroup:
    """One group of readers of a stream. Threads: any; the object contains only the place of the group.

    Args:
        stream: the stream that the group reads.
        name: the name of the group.
        key: the key of its state, as `ReaderGroup.open` makes it.
    """

    def __init__(self, stream: Stream, name: str, key: TypedKey[GroupState]) -> None:
        self._stream = stream
        self._key = key
        self.name = name

    def __repr__(self) -> str:
        return f"ReaderGroup({self._stream.name!r}, {self.name!r})"

    @classmethod
    def open(cls, stream: Stream, name: str, from_cut: Cut | None = None) -> ReaderGroup:
        """Open a group, or create it. 1 call; for a new group at most 5 more, and those of the cut.

        Args:
            stream: the stream that the group reads.
            name: the name of the group; letters, digits, dots, dashes and underscores, as for scopes.
            from_cut: where a new group begins, offsets by segment id; None = at the stream's head. The position of an
                existing group does not change.

        Raises:
            InvalidArgument: not a name, or a cut that is no valid position.
            NotInHistory: a cut of segments that the stream does not have.
        """
        keys.checked_name("reader group", name)
        table = _table_of(stream)
        key = TypedKey(table, name, READER_GROUP)
        try:
            is_new = key.read() is None
        except TableMissing:
            is_new = True
        if is_new:
            begun = GroupState.at(_head(stream) if from_cut is None else stream.cuts.place_valid(from_cut))
            stream.parts.store.tables.create_table(table.name)
            key.create_if_absent(begun)
        return cls(stream, name, key)

    @staticmethod
    def names(stream: Stream) -> Iterator[str]:
        """Iterate over the names of a stream's groups, in the order of the encoded names. 1 call for 1,000."""
        try:
            yield from _table_of(stream).keys()
        except TableMissing:
            return

    def delete(self) -> None:
        """Delete the group; a missing group counts as deleted. The next call of its readers raises `NotInHistory`."""
        self._key.delete()

    # For readers

    def join(self, reader: str, lease: Lease = NO_LEASE) -> None:
        """Join the group. An earlier reader of this name hands over its segments at its reported positions. 2 calls.

        Args:
            reader: the reader's name: letters, digits, dots, dashes and underscores, as for scopes.
            lease: a session that no other reader of this name ever had, and how long this reader may be silent, in
                milliseconds; by default none: then only `reader_offline` declares the reader dead.

        Raises:
            InvalidArgument: not a name, or more than 10,000 readers.
            NotInHistory: the group was deleted.
        """
        keys.checked_name("reader", reader)
        self._change(lambda now: now.after_join(reader, lease))

    def rebalance(
        self,
        reader: str,
        positions: Mapping[int, int],
        lag: int,
        *,
        lease: Lease = NO_LEASE,
        renews: bool = False,
        silent: Mapping[str, Lease] = NO_LEASES,
        busy: Collection[int] = (),
    ) -> Assignment:
        """Report the reader's positions, and return which segments to read from now on. 2 calls; 1 if nothing changed.

        Call it every few seconds, sooner if nothing is left to read, and directly after `finish`: segments that are due
        to a reader wait for its call. A call gives up one segment at most, so a new reader gets its share after some
        calls of the others. With many readers, call it less often: all of them change one value, and S3 accepts about
        ten writes of a value a second.

        Args:
            reader: the reader's name.
            positions: offsets of its segments, after the last record that its caller has processed. Later events of
                segments that it has to stop are returned by other readers, also those that it has returned.
            lag: how far behind the reader is, in milliseconds; 0 or above.
            lease: the lease that it joined with.
            renews: whether to renew the lease, which is a change; do it a few times in each lease.
            silent: the readers that are dead by a `LeaseWatch`; they are removed, unless they renewed since.
            busy: ids of segments that are not to be given up now.

        Returns:
            Which segments to start and to stop. For a reader that reports no positions: all segments that it owns.

        Raises:
            IllegalState: the reader is not in the group: its lease expired, or another reader joined under its name.
            NotInHistory: the group was deleted; TableMissing: the stream was deleted.
            DataConflict: too many other changes came first; call again later.
        """
        positions, lag = as_cut(positions), checked_integer("a lag", lag, 0)

        def step(state: GroupState) -> GroupState:
            state.index(reader, lease.session)
            living = state.after_silence(silent)
            if renews:
                living = living.with_renewal(reader, lease)
            return after_rebalance(living, reader, positions, lag, busy)

        return assignment(self._change(step), reader, positions)

    def finish(
        self, reader: str, segment_id: int, successors: Iterable[SegmentRecord], *, offset: int, session: int = 0
    ) -> None:
        """Report that a segment was read to its end; a successor begins once all its predecessors are read. 2 calls.

        Does not change a segment that no longer belongs to the reader. Until this call has succeeded, report the
        segment to `rebalance` at its end.

        Args:
            reader: the reader's name.
            segment_id: the segment that was read.
            successors: the segments that follow it in the history; none = the stream is sealed, and the group's
                position stays at the end of this segment.
            offset: the end of the segment.
            session: the session of the reader's lease, if it has one.

        Raises:
            IllegalState, NotInHistory, DataConflict: as `rebalance`.
        """
        following = tuple(successors)
        segment_id, offset = checked_id(segment_id), checked_integer("an offset", offset)

        def step(state: GroupState) -> GroupState:
            state.index(reader, session)
            return state.after_finish(reader, segment_id, following, offset=offset)

        self._change(step)

    def leave(self, reader: str, positions: Mapping[int, int] = NOTHING, *, session: int = 0) -> None:
        """Leave the group: others continue at these positions, for other segments at the last reported one. 2 calls.

        Does nothing for a reader that is not in the group. Arguments are those of `rebalance` and `finish`.
        """
        told = as_cut(positions)
        self._change(lambda now: now.after_leave(reader, told, session=session))

    def reader_offline(self, reader: str) -> None:
        """Declare a reader dead: others read its segments, from its last reported positions. 2 calls.

        Needed only for readers without a lease, or if the end of the lease is too late. If the reader still runs, its
        next call raises IllegalState, and others return again the events that it has returned since its last report.
        """
        self._change(lambda now: now.after_leave(reader))

    # For any caller

    def state(self) -> GroupState:
        """Return segments, offsets, owners and readers. 1 call.

        Raises:
            NotInHistory: the group was deleted.
        """
        seen = self._key.read()
        return self._found(None if seen is None else seen.value)

    def position(self) -> IdMap:
        """Return the stream cut that the readers together have reported; other readers can begin there. 1 call."""
        return self.state().position()

    def lag(self) -> int:
        """Return the largest lag that a reader reported, in milliseconds; 0 if there is no report. 1 call."""
        return int(self.state().lags.max(initial=0))

    def skip_to_head(self) -> IdMap:
        """Move the group to the head where the stream was truncated beyond it; returns its position. 3 calls.

        The group skips truncated data. Readers get their new positions from their next `rebalance`.
        """
        head = retention.place_truncation(self._stream.truncation())
        if head is None:
            return self.position()
        return self._change(lambda now: now.after_skip(head)).position()

    # Moving the group

    def reset(self, cut: Cut | None = None, *, evict: bool = False) -> IdMap:
        """Move the group to another position, before or after its present one; returns its position.

        Calls: those of placing the cut, and 2.

        Args:
            cut: offsets by segment id; None = the stream's head, so that all data that still exists is read again.
            evict: whether to remove the readers of the group, dead ones included. The next call of each raises
                IllegalState, before any of its positions is stored; a `GroupReader` then joins again.

        Raises:
            IllegalState: there are readers in the group; nothing was changed.
            InvalidArgument, NotInHistory: not a cut of this stream, or the group was deleted.
        """
        begun = GroupState.at(_head(self._stream) if cut is None else self._stream.cuts.place_valid(cut))

        def step(now: GroupState) -> GroupState:
            if now.readers and not evict:
                names = ", ".join(reader.name for reader in now.readers[:10])
                expected = f"a group {self.name!r} of {self._stream.name} without readers, or evict=True"
                raise IllegalState(f"expected {expected}, found {len(now.readers)}: {names}")
            return begun

        return self._change(step).position()

    def reset_to_time(self, source: SegmentSource, time_ms: int | None, *, evict: bool = False) -> IdMap:
        """Move the group to before the first events that arrived at a time or later; see `segment_source.cut_at`.

        Args:
            source: reads the stream.
            time_ms: milliseconds since 1970; None = the tail, after all events that the source knows.
            evict: as for `reset`.
        """
        return self.reset(cut_at(self._stream, source, time_ms), evict=evict)

    # Inside

    def _change(self, step: Callable[[GroupState], GroupState]) -> GroupState:
        def changed(now: GroupState | None) -> GroupState | None:
            state = self._found(now)
            then = step(state)
            return None if then == state else then

        return self._key.change(changed).value

    def _found(self, state: GroupState | None) -> GroupState:
        if state is None:
            text = f"expected a reader group of {self._stream.name}, found none named {self.name!r}"
            raise NotInHistory(text, Sought.GROUP)
        return state


def groups_table(stream: Stream) -> str:
    """Return the name of the table of a stream's reader groups; its keys are the groups' names."""
    return f"{stream.name}/readerGroups.#.{stream.unique_id}"


def _table_of(stream: Stream) -> Table:
    return stream.parts.store.tables.table(groups_table(stream))


def _head(stream: Stream) -> PlacedCut:
    """Return the head of the stream. 1 call, 2 if the stream was never truncated."""
    cut = retention.place_truncation(stream.truncation())
    if cut is not None:
        return cut
    first = stream.epochs.epoch(0)
    return place_offsets(first.segments, offsets_at_start(first))


# Readers of the group

SESSION_SIZE_BYTES: Final = 4


class _Member(ReaderBase):
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
    ) -> None:
        self._member = Membership.of(name, rebalance_seconds, lease_seconds, auto_commit=auto_commit)
        core = ReaderCore(Frontier(), settings or ReaderSettings(), follow=follow, is_member=True)
        super().__init__(stream, source, core, system)
        self.name = name
        self._group = group

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._group!r}, {self.name!r})"

    def position(self) -> IdMap:
        """The position in the segments that it reads: after the last returned event."""
        self._collect()
        return self._member.with_ends(super().position())

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

    # Calls of the group; each blocks

    def _due(self) -> Callable[[], None] | None:
        """Return the call of the group that is due before the next event; None if no call is due."""
        self._collect()
        if self._lifetime.is_closed:
            return self._leave  # if leaving failed at the close: other readers need its segments
        return self._rebalance if self._pause_seconds() <= 0 else None

    def _rebalance(self) -> None:
        self._lifetime.check_process()
        if self._lifetime.is_closed or self._member.has_ended:
            return
        self._member.is_certain = False
        try:
            self._ask_group()
        except IllegalState:
            self._drop_all()
            raise

    def _commit(self) -> None:
        self._check()
        self._member.held.clear()
        if self._member.has_joined:
            self._rebalance()

    def _leave(self) -> None:
        self._lifetime.check_process()  # another process would leave under the name of the reading one
        if self._member.has_joined:
            self._member.leave()
            self._group.leave(self.name, self._finished(), session=self._member.lease.session)
            self._drop_all()

    def _skip_to_head(self) -> IdMap:
        self._lifetime.check_process()
        self._group.skip_to_head()
        self._rebalance()
        return self.position()

    def _ask_group(self) -> None:
        member = self._member
        if member.is_leaving:
            self._leave()  # the last attempt may have failed
        if not member.has_joined:
            session = int.from_bytes(self._system.nonce()[:SESSION_SIZE_BYTES]) or 1
            self._group.join(self.name, member.begin(session))
            member.has_joined = True
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

    def _tell(self) -> None:
        """Report this reader's positions and renew its lease; then carry out the group's assignment."""
        member, now = self._member, self._system.timer()
        renews = member.renews(now)
        told = self._group.rebalance(
            self.name,
            self._finished(),
            member.told_lag(self._core.lag(self._now_ms())),
            lease=member.lease,
            renews=renews,
            silent=member.watch.silent(self.name),
            busy=member.held,
        )
        self._carry_out(told)
        member.note_told(told, now, renewed=renews)

    # Inside

    def _finished(self) -> IdMap:
        self._collect()
        return self._member.finished(super().position())

    def _take(self) -> EventBatch | None:
        batch = super()._take()
        self._member.note_taken(has_nothing=batch is None and not self._core.is_awaited)
        return batch

    def _wait_seconds(self) -> float | None:
        wait, pause = super()._wait_seconds(), max(0.0, self._pause_seconds())
        return pause if wait is None else min(wait, pause)

    def _pause_seconds(self) -> float:
        return self._member.pause_seconds(self._system.timer(), self.settings.idle_seconds)

    def _collect(self) -> None:
        """Note segments that were read to their ends; all their events were returned before."""
        self._member.untold.update((ended.segment_id, ended) for ended in self._core.take_finished())

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
            self._rest()
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


class GroupReader(_Member, ThreadReader):
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
        name: the reader's name. A reader that joins under a name replaces the earlier reader of that name.
        follow: whether to wait for future events.
        settings: bounds of the reader.
        rebalance_seconds: how often it reports its positions; above 0.
        lease_seconds: for how long it may be silent, the application's work on an event or batch included; at least two
            times `rebalance_seconds`. None, the default: 10 s, or five times `rebalance_seconds` if that is more.
        auto_commit: whether events count as read when the next one is requested; if not, when `commit` is called.
        system: the timer, the clock by which `lag` is measured, and the nonce of its session.

    Raises:
        InvalidArgument: an invalid time; while iterating: an invalid name, or too many readers.
        IllegalState (while iterating): its lease expired, it was declared offline, the group was reset, or another
            reader joined under its name: unreported events are returned again. The next call joins again.
        PositionTruncated (while iterating): the stream now begins after the position; `skip_to_head` continues.
        ReaderStalled (while iterating): data that must exist was not found for `stall_seconds`; and see above.
        NotInHistory (while iterating): the group was deleted.
        AccelError (while iterating): the stream or the group could not be read.
    """

    def next_event(self, timeout_seconds: float | None = None) -> Event | None:
        """Return the next event; None at the end or after the time-out. ReaderStalled if it waits for a commit."""
        self._note_asked()
        self._attend()
        event = super().next_event(timeout_seconds)
        if event is None:
            self._member.refuse_uncommitted(self._stream.name)
        else:
            self._note_given(event)
        return event

    def next_batch(self, timeout_seconds: float | None = None) -> EventBatch | None:
        """Return the next batch; None at the end, after the time-out, or if it waits for a commit.

        If the first events of a batch were returned one by one, the result is the rest of the batch.

        Args:
            timeout_seconds: how long to wait at most; None = without limit.
        """
        self._note_asked()
        batch = super().next_batch(timeout_seconds)
        if batch is not None:
            self._note_given(batch)
        return batch

    def commit(self) -> None:
        """Report to the group that the caller has processed all returned events: no reader returns them again.

        2 calls, and 2 more for each segment that was read to its end.

        Raises:
            IllegalState: the reader was considered dead; others return again the events since its last report.
            NotInHistory, AccelError: as while iterating. The report may or may not be stored; the next call repeats it.
        """
        self._commit()

    def rebalance(self) -> None:
        """Report positions to the group, renew the lease, and read the assigned segments from now on.

        Requests for events call it regularly. An application that works on an event for longer than the lease calls it
        meanwhile; events in work do not count as read. Does nothing after the end or `close`.

        Raises:
            IllegalState, NotInHistory, AccelError: as while iterating.
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
        """Leave, and stop reading, without waiting for requests under way. Raises as `leave`, which may be repeated."""
        try:
            self._leave()
        finally:
            self._close()

    def skip_to_head(self) -> IdMap:
        """Move the whole group to the stream's head where it is before the head; returns this reader's position."""
        return self._skip_to_head()

    def _attend(self) -> None:
        if (work := self._due()) is not None:
            work()


class AsyncGroupReader(_Member, AsyncReader):
    """One reader of a group, for ``async for``; arguments, guarantees and errors are those of `GroupReader`.

    One task at a time. Calls of the group are made in a thread, and events are decoded in the reader's own threads. A
    task that was cancelled while it waited may call again, and misses no event: a call of the group that is under way
    continues, and the next request waits for it first.
    """

    _asking: asyncio.Future[Any] | None = None

    async def _end(self) -> None:
        await self.close()

    async def next_event(self, timeout_seconds: float | None = None) -> Event | None:
        """See `GroupReader.next_event`."""
        self._note_asked()
        await self._attend()
        event = await super().next_event(timeout_seconds)
        if event is None:
            self._member.refuse_uncommitted(self._stream.name)
        else:
            self._note_given(event)
        return event

    async def next_batch(self, timeout_seconds: float | None = None) -> EventBatch | None:
        """See `GroupReader.next_batch`."""
        self._note_asked()
        batch = await super().next_batch(timeout_seconds)
        if batch is not None:
            self._note_given(batch)
        return batch

    async def commit(self) -> None:
        """See `GroupReader.commit`."""
        await self._ask_in_thread(self._commit)

    async def rebalance(self) -> None:
        """See `GroupReader.rebalance`."""
        await self._ask_in_thread(self._rebalance)

    async def leave(self) -> None:
        """See `GroupReader.leave`."""
        await self._ask_in_thread(self._leave)

    async def close(self) -> None:
        """See `GroupReader.close`."""
        try:
            await self._ask_in_thread(self._leave)
        finally:
            self._close()

    async def skip_to_head(self) -> IdMap:
        """See `GroupReader.skip_to_head`."""
        return await self._ask_in_thread(self._skip_to_head)

    async def _attend(self) -> None:
        await self._settle()
        if (work := self._due()) is not None:
            await self._ask_in_thread(work)

    async def _ask_in_thread(self, work: Callable[[], Answer]) -> Answer:
        """Run work in a thread, after the work of a cancelled task has ended; cancelling this task does not stop it."""
        await self._settle()
        self._lifetime.check_process()
        asking = self._asking = asyncio.get_running_loop().run_in_executor(None, work)
        await self._settle()
        answer: Answer = asking.result()
        return answer

    async def _settle(self) -> None:
        asking = self._asking
        if asking is None:
            return
        try:
            await asyncio.shield(asking)
        finally:
            if asking.done():
                self._asking = None
