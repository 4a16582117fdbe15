"""Readers that share a stream: each segment is read by one reader, and the shares follow the readers' load.

Its readers are those of `group_readers`. Other readers call the group themselves: `join`, then `rebalance` every few
seconds and whenever a segment has ended, then `leave`.

A group is one value of a table beside the stream's history, and every change of it is one compare-and-set: any process
may make any call at any time, and may stop at any point. How often events are returned:

- A segment given up by `rebalance` or `leave` continues at the position of the same call: every event comes once.
- A reader that is silent for longer than its lease is dead. Others return again the events that it returned after its
  last reported position: no event is lost, an event may be returned twice.
- A call that raises `StoreError`, `DataConflict` or `AmbiguousWrite` may have been carried out. A `GroupReader` returns
  no event until a later call has succeeded, so every event is still returned once. Repeating a call is safe.

Events of one key come in their order, from any reader. Calls are table calls: 1 to read the state, 1 to change it.

`rebalance` is 1 call if nothing changed. Renewing a lease is a change, 4 times per lease: an idle reader makes 0.4
writes a second. A group of 10,000 readers and as many segments takes about 240 kB (fields: docs/reference/events.md).

Source: PDP-28; the state: `rules.group_state`; how segments are distributed: `rules.shares`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import msgspec
import numpy as np

from accel.errors import IllegalState, InvalidArgument, NotInHistory, Sought
from accel.history.columns import StoredSegments, check_within, make_rows, pack_segments, restore_segments
from accel.history.records import HistoryForm, plain
from accel.history.rules import retention
from accel.history.rules.cuts import PlacedCut, place_offsets
from accel.history.rules.epochs import offsets_at_start
from accel.history.rules.segments import SegmentRecord
from accel.history.rules.values import NOTHING, Cut, IdMap, checked_arguments, checked_id, checked_integer, segment_text
from accel.history.store import Stream, keys
from accel.history.store.cut_reading import as_cut
from accel.streams.rules.group_state import (
    ENDED,
    FREE,
    LAG_UNKNOWN,
    NO_LEASE,
    NO_LEASES,
    READERS_MAX,
    REPLACED_MAX,
    GroupMember,
    GroupState,
    Lease,
    Replaced,
)
from accel.streams.rules.shares import Assignment, after_rebalance, assignment
from accel.streams.segment_source import SegmentSource, cut_at
from loaders.errors import TableMissing
from loaders.tables import Table, TypedKey
from loaders.tables.columns import ROWS_MAX, pack_columns, unpack_columns
from loaders.tables.records import Converted

Answer = TypeVar("Answer")

# The stored form

PLACE: Final = np.dtype([("offset", "<i8"), ("owner", "<i8")])
REPORT: Final = np.dtype([(name, "<i8") for name in ("lag", "has_waited", "time_ms", "limit", "calm")])
LEASE: Final = np.dtype([("session", "<i8"), ("renewals", "<i8"), ("milliseconds", "<i8")])
REPLACED: Final = np.dtype([("reader", "<i8"), ("session", "<i8"), ("time_ms", "<i8")])

HOST_LENGTH_MAX: Final = 255
Host: TypeAlias = Annotated[str, msgspec.Meta(max_length=HOST_LENGTH_MAX)]


class StoredGroup(msgspec.Struct, frozen=True, omit_defaults=True):
    """The stored fields of a `GroupState`."""

    segments: StoredSegments
    places: bytes
    readers: Annotated[list[str], msgspec.Meta(max_length=READERS_MAX)]
    reports: bytes
    leases: bytes = b""
    hosts: Annotated[tuple[Host, ...], msgspec.Meta(max_length=READERS_MAX)] = ()
    replaced: bytes = b""
    replaced_hosts: Annotated[tuple[Host, ...], msgspec.Meta(max_length=READERS_MAX * REPLACED_MAX)] = ()
    moved: Annotated[tuple[int, ...], msgspec.Meta(max_length=ROWS_MAX)] = ()


def _stored(state: GroupState) -> StoredGroup:
    readers = state.readers
    columns = ([each.has_waited, each.reported_ms, each.limit, each.calm] for each in readers)
    reports = [(lag, *each) for lag, each in zip(state.lags.tolist(), columns, strict=True)]
    leases = [tuple(each.lease) for each in readers]
    replaced = [(at, *each) for at, reader in enumerate(readers) for each in reader.replaced]
    return StoredGroup(
        segments=pack_segments(state.segments),
        places=pack_columns(make_rows(PLACE, offset=state.offsets, owner=state.owners)),
        readers=[each.name for each in readers],
        reports=pack_columns(np.array(reports, dtype=REPORT)),
        leases=pack_columns(np.array(leases, dtype=LEASE)) if any(map(any, leases)) else b"",
        hosts=tuple(each.host for each in readers) if any(each.host for each in readers) else (),
        replaced=pack_columns(np.array([(at, session, ms) for at, session, _, ms in replaced], dtype=REPLACED))
        if replaced
        else b"",
        replaced_hosts=tuple(host for _, _, host, _ in replaced),
        moved=state.moved,
    )


def _restored(fields: StoredGroup, where: str) -> GroupState:
    places = unpack_columns(fields.places, PLACE, f"{where}, places")
    reports = unpack_columns(fields.reports, REPORT, f"{where}, reports", rows_max=READERS_MAX)
    check_within("marks of waiting", reports["has_waited"], 0, 1)
    leases = [NO_LEASE] * len(fields.readers)
    if fields.leases:
        stored = unpack_columns(fields.leases, LEASE, f"{where}, leases", rows_max=READERS_MAX)
        leases = [Lease(*row) for row in stored.tolist()]
    replaced = _restored_replaced(fields, where)
    hosts = fields.hosts or [""] * len(fields.readers)
    return GroupState(
        restore_segments(fields.segments, where),
        places["offset"].copy(),
        places["owner"].copy(),
        tuple(
            GroupMember(
                name,
                None if lag == LAG_UNKNOWN else lag,
                bool(has_waited),
                lease,
                host,
                time_ms,
                tuple(replaced.get(at, ())),
                limit,
                calm,
            )
            for at, (name, (lag, has_waited, time_ms, limit, calm), lease, host) in enumerate(
                zip(fields.readers, reports.tolist(), leases, hosts, strict=True)
            )
        ),
        fields.moved,
    )


def _restored_replaced(fields: StoredGroup, where: str) -> dict[int, list[Replaced]]:
    """The replaced readers, by the position of the one that has their name."""
    found: dict[int, list[Replaced]] = {}
    if fields.replaced:
        rows_max = READERS_MAX * REPLACED_MAX
        stored = unpack_columns(fields.replaced, REPLACED, f"{where}, replaced readers", rows_max=rows_max)
        check_within("positions of readers", stored["reader"], 0, len(fields.readers) - 1)
        for (at, session, time_ms), host in zip(stored.tolist(), fields.replaced_hosts, strict=True):
            found.setdefault(at, []).append(Replaced(session, host, time_ms))
    return found


class _GroupForm(HistoryForm[GroupState]):
    """The stored form of a group, which shows the owners of segments by their names. Threads: immutable."""

    def expand(self, fields: Any) -> object:
        state = _restored(fields, self.name)
        names = {FREE: None, ENDED: "ended"} | {at: {"reader": name} for at, name in enumerate(fields.readers)}
        return plain(
            {
                "position": state.position(),
                "owners": [names[owner] for owner in state.owners.tolist()],
                "readers": [_shown(each) for each in state.readers],
                "moved": [segment_text(each) for each in state.moved],
                "segments": state.segments,
            }
        )


def _shown(reader: GroupMember) -> dict[str, Any]:
    replaced = [each._asdict() for each in reader.replaced]
    return {**dataclasses.asdict(reader), "lease": reader.lease._asdict(), "replaced": replaced}


READER_GROUP: Final = _GroupForm("reader-group", 1, Converted(StoredGroup, _stored, _restored))


# The group


@checked_arguments
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
            PositionBeyondEnd: a cut after the end of a segment.
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
            begun = _begun(stream, from_cut)
            stream.parts.store.tables.create_table(table.name)
            key.create_if_absent(begun)
        return cls(stream, name, key)

    @staticmethod
    def names(stream: Stream) -> Iterator[str]:
        """Iterate over the names of a stream's groups, in the order of the encoded names. 1 call for 1,000."""
        try:
            for name in (table := _table_of(stream)).keys(""):
                try:
                    yield keys.checked_name("reader group", name)
                except InvalidArgument as error:
                    keys.pass_over(table.name, name, str(error))
        except TableMissing:
            return

    def delete(self) -> None:
        """Delete the group; a missing group counts as deleted. The next call of its readers raises `NotInHistory`."""
        self._key.delete()

    # For readers

    def join(self, reader: str, lease: Lease = NO_LEASE, *, host: str = "", before: int = 0) -> GroupMember:
        """Join the group. An earlier reader of this name hands over its segments at its reported positions. 2 calls.

        Each later call of the earlier reader raises `ReaderReplaced`, if it joined with a session.

        Args:
            reader: the reader's name: letters, digits, dots, dashes and underscores, as for scopes.
            lease: a session that no other reader of this name ever had, and how long this reader may be silent, in
                milliseconds; by default none: then only `reader_offline` declares the reader dead.
            host: the host of the reader, for messages; its first 255 characters count.
            before: the reader's last session, if it was in the group before: then it replaces none; 0 = it was not.

        Returns:
            The reader as the group has it, with the readers that it replaced.

        Raises:
            ReaderReplaced: another reader of this name joined since this one did.
            InvalidArgument: not a name, or more than 10,000 readers.
            NotInHistory: the group was deleted.
        """
        keys.checked_name("reader", reader)
        host, now_ms = host[:HOST_LENGTH_MAX], self._stream.parts.store.now_ms()
        joined = self._change(lambda now: now.after_join(reader, lease, host=host, now_ms=now_ms, before=before))
        return joined.readers[joined.index(reader, lease.session)]

    def rebalance(
        self,
        reader: str,
        positions: Mapping[int, int],
        lag: int | None,
        *,
        lease: Lease = NO_LEASE,
        renews: bool = False,
        silent: Mapping[str, Lease] = NO_LEASES,
        busy: Collection[int] = (),
        lags: Mapping[int, int] = NOTHING,
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
            lag: how far behind the reader is, in milliseconds; 0 or above; None = unknown.
            lease: the lease that it joined with.
            renews: whether to renew the lease, which is a change; do it a few times in each lease.
            silent: the readers that are dead by a `LeaseWatch`; they are removed, unless they renewed since.
            busy: ids of segments that are not to be given up now.
            lags: how far behind each of its segments is, in milliseconds, as far as it is known.

        Returns:
            Which segments to start and to stop. For a reader that reports no positions: all segments that it owns.

        Raises:
            IllegalState: the reader is not in the group: its lease expired, it left, or it was declared offline.
            ReaderReplaced: another reader joined under its name.
            NotInHistory: the group was deleted; TableMissing: the stream was deleted.
            DataConflict: too many other changes came first; call again later.
        """
        positions, lag = as_cut(positions), None if lag is None else checked_integer("a lag", lag, 0)
        now_ms = self._stream.parts.store.now_ms()

        def step(state: GroupState) -> GroupState:
            present = state.readers[state.index(reader, lease.session)]
            living = state.after_silence(silent)
            if renews:
                living = living.with_renewal(reader, lease)
            then = after_rebalance(living, reader, positions, lag, busy, lags)
            is_news = then != state or not present.reported_ms  # the time alone is not worth a write
            return then.with_report(reader, now_ms) if is_news else state

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

    def lag(self) -> int | None:
        """Return the largest lag that a reader reported, in milliseconds; None if it is unknown. 1 call.

        It is unknown if no reader reported its lag within its lease, or if segments belong to a reader that did not:
        then only `behind` says what is unread. The time is the store's.
        """
        return self.state().lag(self._stream.parts.store.now_ms())

    def behind(self, tail: Cut | None = None) -> int | None:
        """Return the size of the data that exists and that the group has not read, in the stream's offset unit.

        It is what follows the position that the readers reported, whether or not the group has readers. Truncated data
        does not count. Calls: 2, those of the tail, and those of the cuts and sizes in between.

        Args:
            tail: the end of the stream; None = as the host of the stream knows it.

        Returns:
            The size; None if the end of the stream is not known here.
        """
        position = self.position()
        end = self._stream.cuts.tail() if tail is None else tail
        return None if end is None else self._stream.cuts.unread_size(position, end)

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
            PositionBeyondEnd: a cut after the end of a segment; nothing was changed.
        """
        begun = _begun(self._stream, cut)

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

        Raises:
            InvalidArgument: a time that is more than 5 minutes from now.
        """
        if time_ms is not None:
            time_ms = self._stream.parts.store.time_ms("the time of a place", time_ms)
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


def _begun(stream: Stream, cut: Cut | None) -> GroupState:
    """Return a group at a cut, or at the stream's head."""
    if cut is None:
        return GroupState.at(_head(stream))
    placed = stream.cuts.place_valid(cut)
    stream.cuts.refuse_beyond(placed.cut)
    return GroupState.at(placed)


def _head(stream: Stream) -> PlacedCut:
    """Return the head of the stream. 1 call, 2 if the stream was never truncated."""
    cut = retention.place_truncation(stream.truncation())
    if cut is not None:
        return cut
    first = stream.epochs.epoch(0)
    return place_offsets(first.segments, offsets_at_start(first))
