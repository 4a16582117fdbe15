"""Readers that share a stream: each segment is read by one of them, and who reads which follows their load.

    group = ReaderGroup.open(stream, "billing")              # begins at the stream's head, or goes on where it was
    group.join("reader-1")
    while reading:                                           # every few seconds, and whenever a segment has ended
        todo = group.rebalance("reader-1", positions, lag)
        ...                                                  # stop todo.stop, start todo.start at its offsets
    group.leave("reader-1", positions)

A group is one value of a table beside the stream's history, and every change of it is one compare-and-set: several
processes may do anything at any time, and each of them may die anywhere.

What is read how often:

- A segment that is given up, by `rebalance` or `leave`, was read up to the position that was told with the same call,
  and whoever takes it goes on there: everything once.
- A reader that died is declared offline. What it read since it told its position last is read again by others: nothing
  is lost, something may come twice.
- A call that raises `StoreError`, `DataConflict` or `AmbiguousWrite` may have been carried out. Whoever wants
  everything once gives nothing to anybody until a later `rebalance` has gone through; to repeat a call does no harm.

Calls are table calls: 1 to read the state, 1 to change it.

Source: PDP-28; how segments are shared out: `accel.streams.groups.sharing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from accel.errors import NotInHistory
from accel.history import truncation
from accel.history.checks import checked_id, checked_integer
from accel.history.cuts import PlacedCut
from accel.history.epochs import offsets_at_start
from accel.history.id_columns import NOTHING, IdMap
from accel.history.segments import SegmentRecord
from accel.history.store import Stream, keys
from accel.history.store.cell import Cell
from accel.history.store.cut_reading import as_cut
from accel.history.store.parts import StoreParts
from accel.streams.groups.group_form import READER_GROUP
from accel.streams.groups.group_state import GroupState
from accel.streams.groups.sharing import Assignment, assignment, rebalanced
from accel.streams.later import placed
from loaders.errors import TableMissing
from loaders.tables import Table


class ReaderGroup:
    """One group of readers of a stream. Threads: any; it keeps nothing but where the group lies.

    Args:
        stream: what it reads.
        name: of the group.
        cell: where its state lies; `ReaderGroup.open` knows.
    """

    def __init__(self, stream: Stream, name: str, cell: Cell[GroupState]) -> None:
        self._stream = stream
        self._cell = cell
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
        cell = Cell(table, name, READER_GROUP, parts.backoff)
        try:
            is_new = cell.read() is None
        except TableMissing:
            is_new = True
        if is_new:
            begun = GroupState.at(_head(stream) if from_cut is None else stream.cuts.place_valid(from_cut))
            parts.tables.create_table(table.name)
            cell.create(begun)
        return cls(stream, name, cell)

    @staticmethod
    def names(stream: Stream) -> Iterator[str]:
        """The groups of a stream, in the order of their encoded names. 1 call for 1,000."""
        try:
            yield from _table_of(stream).keys()
        except TableMissing:
            return

    def delete(self) -> None:
        """Delete the group; one that is not there counts as deleted. Its readers are told so by `NotInHistory`."""
        self._cell.delete()

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
        self._change(lambda now: now.joined(reader))

    def rebalance(self, reader: str, positions: Mapping[int, int], lag: int) -> Assignment:
        """Tell where the reader is, and learn what to read from now on. 2 calls; 1 if nothing changed.

        To be called every few seconds while reading, sooner where nothing is left to read, and right after `finished`:
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
        now = self._change(lambda state: rebalanced(state, reader, positions, lag))
        return assignment(now, reader, positions)

    def finished(self, reader: str, segment_id: int, successors: Iterable[SegmentRecord], *, offset: int) -> None:
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
        self._change(lambda now: now.finished(reader, segment_id, following, offset=offset))

    def leave(self, reader: str, positions: Mapping[int, int] = NOTHING) -> None:
        """Go, and let others read on from these positions. One that is not in the group has left. 2 calls.

        Args:
            reader: its name.
            positions: as for `rebalance`; of segments that are missing, those that were told last.
        """
        told = as_cut(positions)
        self._change(lambda now: now.left(reader, told))

    def reader_offline(self, reader: str) -> None:
        """Declare a reader dead: others read its segments, from the positions that it told last. 2 calls.

        Should it live, its next `rebalance` tells it so. What it read in between comes twice.
        """
        self._change(lambda now: now.left(reader))

    # What anybody may ask

    def state(self) -> GroupState:
        """Segments, offsets, owners and readers. 1 call.

        Raises:
            NotInHistory: the group was deleted.
        """
        seen = self._cell.read()
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
        head = truncation.placed(self._stream.truncation())
        if head is None:
            return self.position()
        return self._change(lambda now: now.skipped(head)).position()

    # Inside

    def _change(self, step: Callable[[GroupState], GroupState]) -> GroupState:
        def changed(now: GroupState | None) -> GroupState | None:
            found = self._found(now)
            then = step(found)
            return None if then == found else then

        return self._cell.change(changed).value

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
    cut = truncation.placed(stream.truncation())
    if cut is not None:
        return cut
    first = stream.epochs.epoch(0)
    return placed(first.segments, offsets_at_start(first))
