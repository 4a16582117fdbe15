"""Readers that share a stream: each segment is read by one of them, and the shares follow their load.

    group = ReaderGroup.open(stream, "billing")              # begins at the stream's head, or goes on where it was
    with GroupReader(stream, source, group, "reader-1") as reader:
        for event in reader:
            ...

A `GroupReader` tells the group every few seconds, before it gives the next event, what its caller has finished with,
and then reads what the group says; so does `AsyncGroupReader`. Other readers call the group themselves: `join`, then
`rebalance` every few seconds and whenever a segment has ended, then `leave`.

A group is one value of a table beside the stream's history, and every change of it is one compare-and-set: any process
may make any call at any time, and may die anywhere. How often events are given:

- A segment that is given up, by `rebalance` or `leave`, goes on at the position told in the same call: everything once.
- A reader that is silent for longer than its lease is dead. Others give again what it gave behind the position that it
  told last: nothing is lost, something may come twice.
- A call that raises `StoreError`, `DataConflict` or `AmbiguousWrite` may have been carried out. A `GroupReader` gives
  nothing until a later call has gone through, so everything still comes once. To repeat a call does no harm.

Events of one key come in their order, from any reader. Calls are table calls: 1 to read the state, 1 to change it.

    | a `GroupReader`                                  | calls                                                         |
    |--------------------------------------------------|---------------------------------------------------------------|
    | is asked for its first event                     | `join`, `rebalance`                                           |
    | after `rebalance_seconds`                        | `rebalance`                                                   |
    | has nothing to read, `idle_seconds` later        | the same; `state` too where it might be at the end            |
    | has finished with a sealed segment               | `finish`, `rebalance`, at once                                |
    | is told to `commit`, `rebalance`                 | the same                                                      |
    | `leave`, `close`, the end                        | `leave`                                                       |

`rebalance` is 1 call where nothing changed. Renewing is a change, 4 times in a lease: 0.4 writes a second of an idle
reader. A group of 10,000 readers and as many segments takes about 240 kB. Its fields stand in
docs/reference/events.md.

Source: PDP-28; how segments are shared out: `rules.group_state`.
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
from accel.streams.rules.reader_core import ReaderCore, ReaderSettings
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
    """The stored fields of a `GroupState`. Earlier releases read past `leases`, and leave it out when they write."""

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
    """Shows the owners of segments by their names. Threads: immutable."""

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
    """One group of readers of a stream. Threads: any; it keeps nothing but where the group lies.

    Args:
        stream: what it reads.
        name: of the group.
        key: where its state lies; `ReaderGroup.open` knows.
    """

    def __init__(self, stream: Stream, name: str, key: TypedKey[GroupState]) -> None:
        self._stream = stream
        self._key = key
        self.name = name

    def __repr__(self) -> str:
        return f"ReaderGroup({self._stream.name!r}, {self.name!r})"

    @classmethod
    def open(cls, stream: Stream, name: str, from_cut: Cut | None = None) -> ReaderGroup:
        """Open a group; a new one is made if there is none. 1 call; for a new one at most 5 more, and those of the cut.

        Args:
            stream: what it reads.
            name: of the group; letters, digits, dots, dashes and underscores, as of scopes.
            from_cut: where a new group begins, offsets by segment id; None = at the stream's head. A group that is
                there stays where it is.

        Raises:
            InvalidArgument: not a name, or a cut that nobody can stand at.
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
        """The groups of a stream, in the order of their encoded names. 1 call for 1,000."""
        try:
            yield from _table_of(stream).keys()
        except TableMissing:
            return

    def delete(self) -> None:
        """Delete the group; one that is not there counts as deleted. Its readers are told so by `NotInHistory`."""
        self._key.delete()

    # What a reader does

    def join(self, reader: str, lease: Lease = NO_LEASE) -> None:
        """Come into the group. A reader of this name hands over what it has, where it told last. 2 calls.

        Args:
            reader: letters, digits, dots, dashes and underscores, as of scopes.
            lease: a session that no other reader of this name ever had, and how long this one may be silent, in
                milliseconds; by default it has none, and only `reader_offline` says that it is dead.

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
        """Tell where the reader is, and learn what to read from now on. 2 calls; 1 if nothing changed.

        To be called every few seconds, sooner where nothing is left to read, and right after `finish`: what is due to a
        reader waits for its call. A call gives up one segment at most, so a new reader has its share after some calls
        of the others. With many readers, less often: all change one value, which S3 takes some ten times a second.

        Args:
            reader: its name.
            positions: offsets of its segments, behind the last record that its caller has finished with. What it has
                given or buffered beyond, of those that it has to stop, is given again by others.
            lag: how far behind it is, in milliseconds; 0 or above.
            lease: as it joined with.
            renews: whether to show that it lives, which is a change; to be done a few times in each lease.
            silent: of which readers a `LeaseWatch` says that they are dead; they go, unless they renewed since.
            busy: ids of segments that are not to be given up now.

        Returns:
            Which segments to start and to stop. A reader that comes back with no positions learns all that it owns.

        Raises:
            IllegalState: it is not in the group; its lease was over, say, or another one of its name has joined.
            NotInHistory: the group was deleted; TableMissing: the stream was.
            DataConflict: too many others were faster; call again later.
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
        """A segment was read to its end; its successors begin when nothing older is left at any of their keys. 2 calls.

        A segment that is not the reader's any more stays as it is. Until this has gone through, the segment belongs
        into the positions for `rebalance`, at its end.

        Args:
            reader: its name.
            segment_id: which segment.
            successors: those that follow it in the history; none = the stream is sealed, and the group's position stays
                at the end of this segment.
            offset: where it ends.
            session: under which it joined, if it has one.

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
        """Go, and let others read on from these positions; where none is given, from the one told last. 2 calls.

        One that is not in the group has left. Arguments are those of `rebalance` and `finish`.
        """
        told = as_cut(positions)
        self._change(lambda now: now.after_leave(reader, told, session=session))

    def reader_offline(self, reader: str) -> None:
        """Declare a reader dead: others read its segments, from the positions that it told last. 2 calls.

        Needed only where one must not wait for the end of its lease, or for readers that have none. Should it live, its
        next call tells it so. What it read in between comes twice.
        """
        self._change(lambda now: now.after_leave(reader))

    # What anybody may ask

    def state(self) -> GroupState:
        """Segments, offsets, owners and readers. 1 call.

        Raises:
            NotInHistory: the group was deleted.
        """
        seen = self._key.read()
        return self._found(None if seen is None else seen.value)

    def position(self) -> IdMap:
        """The stream cut up to which all readers together told that they have read; others can begin there. 1 call."""
        return self.state().position()

    def lag(self) -> int:
        """How far behind the reader is that is furthest behind; 0 if nobody told. 1 call."""
        return int(self.state().lags.max(initial=0))

    def skip_to_head(self) -> IdMap:
        """Where the stream was truncated beyond the group, let it go on at the head; gives its position. 3 calls.

        What was truncated is not read. Readers learn it from their next `rebalance`.
        """
        head = retention.place_truncation(self._stream.truncation())
        if head is None:
            return self.position()
        return self._change(lambda now: now.after_skip(head)).position()

    # Going elsewhere

    def reset(self, cut: Cut | None = None, *, evict: bool = False) -> IdMap:
        """Let the group go on elsewhere, before or behind where it stands; gives its position.

        Calls: those of placing the cut, and 2.

        Args:
            cut: offsets by segment id; None = the stream's head, so that all is read again that is still there.
            evict: whether to send away the readers that are in the group, dead ones included. Each learns it from its
                next call, as IllegalState, before any position of it is stored; a `GroupReader` then joins again.

        Raises:
            IllegalState: there are readers in the group; nothing was changed.
            InvalidArgument, NotInHistory: no cut of this stream, or the group was deleted.
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
        """`reset` to before the first events that arrived at a time or later; see `segment_source.cut_at`.

        Args:
            source: reads the stream.
            time_ms: milliseconds since 1970; None = the tail, behind all events that the source knows.
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
    """The name of the table of a stream's reader groups; the key is the group's name."""
    return f"{stream.name}/readerGroups.#.{stream.unique_id}"


def _table_of(stream: Stream) -> Table:
    return stream.parts.store.tables.table(groups_table(stream))


def _head(stream: Stream) -> PlacedCut:
    """Where the stream begins. 1 call, 2 if it was never truncated."""
    cut = retention.place_truncation(stream.truncation())
    if cut is not None:
        return cut
    first = stream.epochs.epoch(0)
    return place_offsets(first.segments, offsets_at_start(first))


# Readers of the group

SESSION_SIZE_BYTES: Final = 4


class _Member(ReaderBase):
    """What the two readers of a group share: all but how they wait for the group, and for events. As `GroupReader`."""

    def __init__(  # noqa: PLR0913 - what a user chooses of a reader of a group stands side by side
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
        """Where it stands in the segments that it reads: behind the last event that was given."""
        self._collect()
        return self._member.with_ends(super().position())

    @property
    def is_finished(self) -> bool:
        """Whether it has come to its end: nothing comes any more, and what was given is committed."""
        return self._member.has_ended

    @property
    def _is_waited_for(self) -> bool:
        return not (self._member.has_ended or self._member.must_commit)

    def _note_asked(self) -> None:
        self._lifetime.check_process()
        self._member.note_asked()

    def _note_given(self, given: Event | EventBatch) -> None:
        self._member.note_given(given.segment_id, given.offset)

    # What is asked of the group; each blocks

    def _due(self) -> Callable[[], None] | None:
        """What is to be asked of the group before anything is given."""
        self._collect()
        if self._lifetime.is_closed:
            return self._leave  # if that failed when it was closed: what it holds may be read by others
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
        self._lifetime.check_process()  # another process would leave in the name of the one that reads
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
            self._leave()  # whether the last attempt went through is not known
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
        """Tell where this reader is, and that it lives; and carry out what the group says."""
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
        """Take note of what was read to its end; all of it was given, for no answer is looked at before."""
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
        """Whether this reader, which has nothing to read, will not have anything to read any more."""
        core = self._core
        if self._member.untold or core.idle or (core.follows and len(core.position())):
            return False
        return self._member.is_all_read(self._group.state(), follows=core.follows)

    def _drop_all(self) -> None:
        """It is in the group no more, and others read what it read."""
        self._collect()
        self._member.drop()
        for segment_id in self._core.position():
            self._give_up(segment_id)


class GroupReader(_Member, ThreadReader):
    """One reader of a group. Threads: one at a time. It joins when it is first asked for an event.

    **What counts as read.** By default an event, or a batch, counts when the next one is asked for: by then its caller
    has finished with it. An application that collects events before it stores them takes ``auto_commit=False``: then
    nothing counts but what was given before `commit`, which counts the last event in either case.

    **What keeps it alive.** It renews its lease while it is asked for events, and by `rebalance` and `commit`. Where it
    is silent for longer, others go on where it told last. Should it live, its next call raises IllegalState before any
    position of it is stored.

    One that does not follow comes to its end, and leaves, when it has nothing left to read as the stream stands, no
    segment is free, none is owed to it, and no other reader told that it is behind: those may come to successors that
    are to be shared. One that follows ends when the stream is sealed, and was read to its end by all. What follows a
    segment begins when its end is committed: where nothing else is left, `next_batch` gives None at once, `next` raises
    ReaderStalled, and `commit` goes on.

    An error leaves it as it was: asked for the next event again, it tries again, and gives no event twice.

    Args:
        stream: which; that of the group.
        source: where its events come from; several readers may share one.
        group: says which segments it reads.
        name: of this reader. One that joins under a name takes the place of the one before.
        follow: whether to wait for events that are not there yet.
        settings: bounds.
        rebalance_seconds: how often it tells where it is; above 0.
        lease_seconds: for how long it may be silent, the application's work on an event or batch included; at least two
            times `rebalance_seconds`. None, the default: 10 s, or five times `rebalance_seconds` if that is more.
        auto_commit: whether what was given counts as read when more is asked for; if not, when `commit` is called.
        system: the timer, the clock that `lag` is measured by, and the nonce of its session.

    Raises:
        InvalidArgument: no such time; while iterating: no name, or too many readers.
        IllegalState (while iterating): its lease was over, it was declared offline, the group was reset, or another
            joined by its name: what it had not told comes again. It joins again when it is asked once more.
        PositionTruncated (while iterating): the stream begins behind the position; `skip_to_head` goes on.
        ReaderStalled (while iterating): what must be there could not be found for `stall_seconds`; and see above.
        NotInHistory (while iterating): the group was deleted.
        AccelError (while iterating): something could not be read, or the group not be asked.
    """

    def next_event(self, timeout_seconds: float | None = None) -> Event | None:
        """The next event; None at the end, or when the time is over. ReaderStalled where a commit is waited for."""
        self._note_asked()
        self._attend()
        event = super().next_event(timeout_seconds)
        if event is None:
            self._member.refuse_uncommitted(self._stream.name)
        else:
            self._note_given(event)
        return event

    def next_batch(self, timeout_seconds: float | None = None) -> EventBatch | None:
        """The events that were appended together next; None at the end, when the time is over, or before a commit.

        Of a batch whose first events were given one by one, these are the others.

        Args:
            timeout_seconds: how long to wait at most; None = as long as it takes.
        """
        self._note_asked()
        batch = super().next_batch(timeout_seconds)
        if batch is not None:
            self._note_given(batch)
        return batch

    def commit(self) -> None:
        """Tell the group that the caller has finished with all that was given so far: nobody gives any of it again.

        2 calls, and 2 more for each segment that was read to its end.

        Raises:
            IllegalState: it was taken for dead; what it gave since it told of it last comes again, from others.
            NotInHistory, AccelError: as while iterating. It may have been stored, or not; the next call tells it again.
        """
        self._commit()

    def rebalance(self) -> None:
        """Tell the group where this reader is and that it lives, and read what it gives from now on.

        Happens by itself now and then while events are asked for. An application that works longer on one than its
        lease calls it meanwhile; what it has not finished with does not count. Nothing where it ended or was closed.

        Raises:
            IllegalState, NotInHistory, AccelError: as while iterating.
        """
        self._rebalance()

    def leave(self) -> None:
        """Let others read on behind what its caller has finished with; asked for the next event, it joins again.

        The last event that was given counts only if `commit` was called. Nothing if it is not in the group.

        Raises:
            AccelError: it may be in the group still. It gives nothing until it has left, and joined again.
        """
        self._leave()

    def close(self) -> None:
        """Leave, and read no more; requests under way are not waited for. Raises as `leave`, which may be repeated."""
        try:
            self._leave()
        finally:
            self._close()

    def skip_to_head(self) -> IdMap:
        """Let the whole group go on at the stream's head wherever that lies behind it; gives this reader's position."""
        return self._skip_to_head()

    def _attend(self) -> None:
        if (work := self._due()) is not None:
            work()


class AsyncGroupReader(_Member, AsyncReader):
    """One reader of a group, for ``async for``; arguments, promises and errors are those of `GroupReader`.

    One task at a time. The group is asked in a thread, and events are decoded in the reader's own threads. A task that
    was cancelled while it waited may ask again, and misses nothing: a call to the group that is under way goes on, and
    is waited for first.
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
        """Do this beside the loop, after what a task that was cancelled had begun; it goes on if this one is, too."""
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
