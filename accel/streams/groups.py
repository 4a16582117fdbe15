"""Readers that share a stream: each segment is read by one of them, and the shares follow their load.

    group = ReaderGroup.open(stream, "billing")              # begins at the stream's head, or goes on where it was
    with GroupReader(stream, source, group, "reader-1") as reader:
        for event in reader:
            ...

A `GroupReader` tells the group every few seconds, and before it gives the next event, where it is, and then reads what
the group says. Other readers call the group themselves: `join`, then `rebalance` every few seconds and whenever a
segment has ended, then `leave`.

A group is one value of a table beside the stream's history, and every change of it is one compare-and-set: any process
may make any call at any time, and may die anywhere. How often events are given:

- A segment that is given up, by `rebalance` or `leave`, was read up to the position told in the same call, and the next
  reader goes on there: everything once.
- A reader that died is declared offline (`ReaderGroup.reader_offline`). Others give again what it gave since its last
  `rebalance`: nothing is lost, something may come twice.
- A call that raises `StoreError`, `DataConflict` or `AmbiguousWrite` may have been carried out. A `GroupReader` gives
  nothing until a later call has gone through, so everything still comes once. To repeat a call does no harm.

Events of one key come in their order, from any reader. Calls are table calls: 1 to read the state, 1 to change it.

    | a `GroupReader`                                  | calls                                                         |
    |--------------------------------------------------|---------------------------------------------------------------|
    | is asked for its first event                     | `join`, `rebalance`                                           |
    | after `rebalance_seconds`                        | `rebalance`                                                   |
    | has nothing to read, `idle_seconds` later        | the same; `state` too where it might be at the end            |
    | has given the last event of a sealed segment     | `finish`, `rebalance`, at once                                |
    | is told to `rebalance`                           | the same: what was given so far is not given again            |
    | `leave`, `close`, the end                        | `leave`                                                       |

The stored form of a group has the fields

    | field     | meaning                                                                                             |
    |-----------|-----------------------------------------------------------------------------------------------------|
    | segments  | rows and keys, as of any segments in a history; ascending by id                                     |
    | places    | columns offset (-1: it waits) and owner (position of a reader; -1: free, -2: ended); one row each   |
    | readers   | names, ascending                                                                                    |
    | reports   | columns lag, has_waited: one row for each reader                                                    |

A group of 10,000 readers and as many segments takes about 130 kB, most of it names.

Source: PDP-28; how segments are shared out: `rules.group_state`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, Final

import msgspec
import numpy as np

from accel.errors import IllegalState, InvalidArgument, NotInHistory
from accel.history.columns import (
    StoredSegments,
    check_within,
    make_rows,
    pack_segments,
    restore_segments,
)
from accel.history.records import HistoryForm, plain
from accel.history.rules import retention
from accel.history.rules.cuts import PlacedCut
from accel.history.rules.epochs import offsets_at_start
from accel.history.rules.segments import SegmentRecord
from accel.history.rules.values import NOTHING, IdMap, checked_id, checked_integer
from accel.history.store import Stream, keys
from accel.history.store.cut_reading import as_cut
from accel.history.store.parts import StoreParts
from accel.streams.reader import ThreadReader
from accel.streams.rules.events import Event, EventBatch
from accel.streams.rules.group_state import (
    ENDED,
    FREE,
    READERS_MAX,
    Assignment,
    GroupMember,
    GroupState,
    Shares,
    after_rebalance,
    assignment,
)
from accel.streams.rules.reader_core import Finished, Frontier, ReaderCore, ReaderSettings, place_offsets
from accel.streams.segment_source import SegmentSource
from accel.system import SYSTEM, Components
from loaders.errors import TableMissing
from loaders.tables import Table, TypedKey
from loaders.tables.columns import pack_columns, unpack_columns
from loaders.tables.records import Converted

# The stored form

PLACE: Final = np.dtype([("offset", "<i8"), ("owner", "<i8")])
REPORT: Final = np.dtype([("lag", "<i8"), ("has_waited", "<i8")])


class StoredGroup(msgspec.Struct, frozen=True):
    """The stored fields of a `GroupState`."""

    segments: StoredSegments
    places: bytes
    readers: Annotated[list[str], msgspec.Meta(max_length=READERS_MAX)]
    reports: bytes


def _stored(state: GroupState) -> StoredGroup:
    has_waited = [reader.has_waited for reader in state.readers]
    return StoredGroup(
        segments=pack_segments(state.segments),
        places=pack_columns(make_rows(PLACE, offset=state.offsets, owner=state.owners)),
        readers=[reader.name for reader in state.readers],
        reports=pack_columns(make_rows(REPORT, lag=state.lags, has_waited=has_waited)),
    )


def _restored(fields: StoredGroup, where: str) -> GroupState:
    places = unpack_columns(fields.places, PLACE, f"{where}, places")
    reports = unpack_columns(fields.reports, REPORT, f"{where}, reports", rows_max=READERS_MAX)
    check_within("marks of waiting", reports["has_waited"], 0, 1)
    rows = zip(fields.readers, reports["lag"].tolist(), reports["has_waited"].tolist(), strict=True)
    return GroupState(
        restore_segments(fields.segments, where),
        places["offset"].copy(),
        places["owner"].copy(),
        tuple(GroupMember(name, lag, bool(has_waited)) for name, lag, has_waited in rows),
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
                "readers": list(state.readers),
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
    def open(cls, stream: Stream, name: str, from_cut: Mapping[int, int] | None = None) -> ReaderGroup:
        """Open a group; a new one is made if there is none. 1 call; 3 more for a new one, and those of `from_cut`.

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
        parts = _parts_of(stream)
        table = _table_of(stream)
        key = TypedKey(table, name, READER_GROUP)
        try:
            is_new = key.read() is None
        except TableMissing:
            is_new = True
        if is_new:
            begun = GroupState.at(_head(stream) if from_cut is None else stream.cuts.place_valid(from_cut))
            parts.tables.create_table(table.name)
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

    def join(self, reader: str) -> None:
        """Come into the group. A reader that is in it stays as it is, with its segments where it told of them last.

        Args:
            reader: its name, of the same letters as the group's. No two that are alive may have the same.

        Raises:
            InvalidArgument: not a name, or there are 10,000 readers already.
            NotInHistory: the group was deleted.
        """
        keys.checked_name("reader", reader)
        self._change(lambda now: now.after_join(reader))

    def rebalance(self, reader: str, positions: Mapping[int, int], lag: int) -> Assignment:
        """Tell where the reader is, and learn what to read from now on. 2 calls; 1 if nothing changed.

        To be called every few seconds while reading, sooner where nothing is left to read, and right after `finish`:
        what is due to a reader waits for its call, and what it read since its last one is read twice should it die. A
        call gives up one segment at most, so a new reader has its share after some calls of the others. With many
        readers, less often: all calls change one value, which takes some ten changes a second on S3.

        Args:
            reader: its name.
            positions: offsets of the segments that it reads, behind the last record that it gave to its caller. What it
                has buffered beyond of those that it has to stop is to be thrown away.
            lag: how far behind it is, in milliseconds; 0 or above.

        Returns:
            Which segments to start and to stop. A reader that comes back with no positions learns all that it owns.

        Raises:
            IllegalState: it is not in the group, since somebody declared it offline, say: others read its segments.
            NotInHistory: the group was deleted; TableMissing: the stream was.
            DataConflict: too many others were faster; call again later.
        """
        positions, lag = as_cut(positions), checked_integer("a lag", lag, 0)
        now = self._change(lambda state: after_rebalance(state, reader, positions, lag))
        return assignment(now, reader, positions)

    def finish(self, reader: str, segment_id: int, successors: Iterable[SegmentRecord], *, offset: int) -> None:
        """A segment was read to its end; its successors begin when nothing older is left at any of their keys. 2 calls.

        A segment that is not the reader's any more stays as it is. Until this has gone through, the segment belongs
        into the positions for `rebalance`, at its end.

        Args:
            reader: its name.
            segment_id: which segment.
            successors: those that follow it in the history; none = the stream is sealed, and the group's position stays
                at the end of this segment.
            offset: where it ends.

        Raises:
            IllegalState, NotInHistory, DataConflict: as `rebalance`.
        """
        following = tuple(successors)
        segment_id, offset = checked_id(segment_id), checked_integer("an offset", offset)
        self._change(lambda now: now.after_finish(reader, segment_id, following, offset=offset))

    def leave(self, reader: str, positions: Mapping[int, int] = NOTHING) -> None:
        """Go, and let others read on from these positions. One that is not in the group has left. 2 calls.

        Args:
            reader: its name.
            positions: as for `rebalance`; of segments that are missing, those that were told last.
        """
        told = as_cut(positions)
        self._change(lambda now: now.after_leave(reader, told))

    def reader_offline(self, reader: str) -> None:
        """Declare a reader dead: others read its segments, from the positions that it told last. 2 calls.

        Should it live, its next `rebalance` tells it so. What it read in between comes twice.
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

    # Inside

    def _change(self, step: Callable[[GroupState], GroupState]) -> GroupState:
        def changed(now: GroupState | None) -> GroupState | None:
            state = self._found(now)
            then = step(state)
            return None if then == state else then

        return self._key.change(changed).value

    def _found(self, state: GroupState | None) -> GroupState:
        if state is None:
            raise NotInHistory(f"expected a reader group of {self._stream.name}, found none named {self.name!r}")
        return state


def groups_table(stream: Stream) -> str:
    """The name of the table of a stream's reader groups; the key is the group's name."""
    return f"{stream.name}/readerGroups.#.{stream.unique_id}"


def _parts_of(stream: Stream) -> StoreParts:
    return stream.parts.store


def _table_of(stream: Stream) -> Table:
    return _parts_of(stream).tables.table(groups_table(stream))


def _head(stream: Stream) -> PlacedCut:
    """Where the stream begins. 1 call, 2 if it was never truncated."""
    cut = retention.place_truncation(stream.truncation())
    if cut is not None:
        return cut
    first = stream.epochs.epoch(0)
    return place_offsets(first.segments, offsets_at_start(first))


# A reader of the group

REBALANCE_SECONDS: Final = 2.0
REBALANCE_SECONDS_MAX: Final = 3600.0


class GroupReader(ThreadReader):
    """One reader of a group. Threads: one at a time.

    It joins when the first event is asked for; until then it makes no call.

    One that does not follow comes to its end, and leaves, when it has nothing left to read as the stream stands, no
    segment is free, none is owed to it, and no other reader told that it is behind: those may come to successors that
    are to be shared. So when the last reader has ended, all was read that was there when it looked; of one that died
    the others wait until it is declared offline, if it was behind. One that follows ends when the stream is sealed, and
    was read to its end by all.

    An error leaves it as it was: asked for the next event again, it tries again, and gives no event twice.

    Args:
        stream: which; that of the group.
        source: where its events come from; several readers may share one.
        group: says which segments it reads.
        name: of this reader. No two that are alive may have the same.
        follow: whether to wait for events that are not there yet.
        settings: bounds.
        rebalance_seconds: how often it tells where it is; above 0.
        system: the timer, and the clock that `lag` is measured by.

    Raises:
        InvalidArgument: no such time; while iterating: no name, or too many readers.
        IllegalState (while iterating): it was declared offline, so others give again what it gave since it told of it
            last. It has dropped everything, and joins again when it is asked for the next event.
        PositionTruncated (while iterating): the stream begins behind the position; `skip_to_head` goes on.
        ReaderStalled (while iterating): what must be there could not be found for `stall_seconds`.
        NotInHistory (while iterating): the group was deleted.
        AccelError (while iterating): something could not be read, or the group not be asked.
    """

    def __init__(
        self,
        stream: Stream,
        source: SegmentSource,
        group: ReaderGroup,
        name: str,
        *,
        follow: bool = True,
        settings: ReaderSettings | None = None,
        rebalance_seconds: float = REBALANCE_SECONDS,
        system: Components = SYSTEM,
    ) -> None:
        if not 0 < rebalance_seconds <= REBALANCE_SECONDS_MAX:
            raise InvalidArgument(f"expected up to {REBALANCE_SECONDS_MAX} s between calls, found {rebalance_seconds}")
        core = ReaderCore(Frontier(), settings or ReaderSettings(), follow=follow, is_member=True)
        super().__init__(stream, source, core, system)
        self.name = name
        self._group = group
        self._rebalance_seconds = rebalance_seconds
        self._rebalanced_at = 0.0
        self._untold: dict[int, Finished] = {}
        self._has_joined = self._is_leaving = False
        self._is_certain = self._has_nothing = self._has_ended = False

    def __repr__(self) -> str:
        return f"GroupReader({self._group!r}, {self.name!r})"

    def __next__(self) -> Event:
        self._lifetime.check_process()
        self._attend()
        return super().__next__()

    def position(self) -> IdMap:
        """Where it stands in the segments that it reads: behind the last event that was given."""
        self._collect()
        ends = {finished.segment_id: finished.offset for finished in self._untold.values()}
        return IdMap.of({**super().position(), **ends})

    @property
    def is_finished(self) -> bool:
        """Whether it has come to its end: nothing comes any more."""
        return self._has_ended

    def rebalance(self) -> None:
        """Tell the group where this reader is, and read what it gives from now on; happens by itself now and then.

        What was given before is not given again, whatever happens to this reader. Nothing where it ended or was closed.

        Raises:
            IllegalState, NotInHistory, AccelError: as while iterating.
        """
        self._lifetime.check_process()
        if self._lifetime.is_closed or self._has_ended:
            return
        self._is_certain = False
        try:
            self._ask_group()
        except IllegalState:
            self._drop_all()
            raise

    def leave(self) -> None:
        """Let others read on from here; asked for the next event, it joins again. Nothing if it is not in the group.

        Raises:
            AccelError: it may be in the group still. It gives nothing until it has left, and joined again.
        """
        self._lifetime.check_process()  # another process would leave in the name of the one that reads
        if self._has_joined:
            self._is_certain, self._is_leaving = False, True
            self._group.leave(self.name, self.position())
            self._drop_all()

    def close(self) -> None:
        """Leave, and read no more; requests under way are not waited for. Raises as `leave`, which may be repeated."""
        try:
            self.leave()
        finally:
            self._close()

    def skip_to_head(self) -> IdMap:
        """Let the whole group go on at the stream's head wherever that lies behind it; gives this reader's position."""
        self._lifetime.check_process()
        self._group.skip_to_head()
        self.rebalance()
        return self.position()

    # Inside

    def _attend(self) -> None:
        self._collect()
        if self._lifetime.is_closed:
            self.leave()  # if that failed when it was closed: what it holds may be read by others
        elif self._pause_seconds() <= 0:
            self.rebalance()

    def _take(self) -> EventBatch | None:
        batch = super()._take()
        self._has_nothing = batch is None and not self._core.is_awaited
        return batch

    def _wait_seconds(self) -> float | None:
        wait, pause = super()._wait_seconds(), max(0.0, self._pause_seconds())
        return pause if wait is None else min(wait, pause)

    def _pause_seconds(self) -> float:
        """How long the group need not be asked."""
        if self._untold or not self._is_certain:
            return 0.0
        pause = self._rebalance_seconds
        if self._has_nothing:
            pause = min(pause, self.settings.idle_seconds)
        return self._rebalanced_at + pause - self._system.timer()

    def _collect(self) -> None:
        """Take note of what was read to its end; all of it was given, for no answer is looked at before."""
        self._untold.update((finished.segment_id, finished) for finished in self._core.take_finished())

    def _ask_group(self) -> None:
        if self._is_leaving:
            self.leave()  # whether the last attempt went through is not known
        if not self._has_joined:
            self._group.join(self.name)
            self._has_joined = True
        self._collect()
        for finished in list(self._untold.values()):
            self._group.finish(self.name, finished.segment_id, finished.successors, offset=finished.offset)
            del self._untold[finished.segment_id]
        self._carry_out(self._group.rebalance(self.name, self.position(), self._told_lag()))
        self._rebalanced_at, self._is_certain = self._system.timer(), True
        if self._has_nothing and self._is_all_read():
            self.leave()
            self._has_ended = True

    def _told_lag(self) -> int:
        """What the group is told, in milliseconds: nobody is behind who has read all that there is, and others are."""
        return 0 if self._has_nothing else max(1, self._core.lag(self._now_ms()))

    def _carry_out(self, todo: Assignment) -> None:
        known = self._core.position()
        for segment_id in todo.stop:
            self._give_up(segment_id)
        for segment, offset in todo.start:
            if segment.id in known:
                self._give_up(segment.id)
            self._core.add(segment, offset)
            self._has_nothing = False

    def _give_up(self, segment_id: int) -> None:
        if self._batch is not None and self._batch.segment_id == segment_id:
            self._rest()
        self._core.remove(segment_id)

    def _is_all_read(self) -> bool:
        """Whether this reader, which has nothing to read, will not have anything to read any more."""
        if self._core.idle or (self._core.follows and len(self._core.position())):
            return False
        state = self._group.state()
        if (state.owners == ENDED).all():
            return True
        shares = Shares.of(state)
        is_owed = bool(shares.counts[state.index(self.name)] < shares.least)
        return not (self._core.follows or shares.free or is_owed or state.lags.any())

    def _drop_all(self) -> None:
        """It is in the group no more, and others read what it read."""
        self._collect()
        self._untold.clear()
        for segment_id in self._core.position():
            self._give_up(segment_id)
        self._has_joined = self._is_leaving = self._is_certain = self._has_nothing = False
