"""The epochs of a stream in its tables: queries about epochs and segments, the walk through epochs, and writing.

Calls of the queries without a cache; immutable records are cached decoded and take no call the second time:

    | query                           | calls                                                                       |
    |---------------------------------|-----------------------------------------------------------------------------|
    | current epoch, active segments  | 1                                                                           |
    | epoch, segment                  | 1: a segment's id contains the epoch of its creation                        |
    | successors                      | 3: the number of the sealing epoch, that epoch, the epoch before            |
    | predecessors                    | 2: the epoch of its creation, the epoch before                              |
    | epoch at a time                 | 2: root and a block of the index of times; 1 if the root suffices           |
    | segments at a time              | 4: as for the epoch at a time, the epoch, the truncation; if clocks were    |
    |                                 | wrong, also 2 for each doubling of the number of epochs to go back          |
    | head                            | 1: the truncation; 2 if there was no truncation: also epoch 0               |
    | epochs between two times        | 3; 1 more for each 1,000 epochs, 1 more for each duplicate                  |

An epoch is written, and the stream moved to it, in this order:

    1. the stream of the object layer of each new segment         immutable
    -- here the old segments are sealed, so that the times of their last events are known --
    2. the epoch's record                                         immutable; read back, the next steps follow from it
    3. its changes: the chunk of history                          versioned until it is full
    4. its time: the index of times                               versioned; not visible yet
    5. the sealing epoch of each old segment                      immutable
    6. the sizes of the old segments, shard by shard              versioned
    7. the current epoch                                          versioned; only moves forward
    8. the index of times shows the epoch                         versioned

Each step first checks whether it is done. So the sequence can be repeated, and two processes may run it at once. No
reader ever sees a current epoch without its records, nor the time of an epoch that is not current yet.

Source: PDP-32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from accel.errors import AccelError, IllegalState, NotInHistory, Sought
from accel.history.rules import epochs as rules
from accel.history.rules.epochs import (
    EpochRecord,
    EpochSummary,
    HistoryChunk,
    HistoryDelta,
    LastEvents,
    after_advance,
    chunk_numbers,
    delta_of,
    replay,
    sealed_by,
)
from accel.history.rules.retention import TruncationRecord, by_shard, head, segments_at, with_sizes
from accel.history.rules.segments import SegmentRecord, Segments
from accel.history.rules.states import StreamState, refuse_uncreated
from accel.history.rules.values import (
    EPOCH_MAX,
    TIME_MS_END,
    IdMap,
    Integers,
    SegmentId,
    checked_integer,
    checked_numbers,
    checked_time,
    epoch_of,
    is_segment_id,
    read_id,
    segment_text,
)
from accel.history.store import keys
from accel.history.store.parts import StreamParts, record_size_bytes
from loaders.errors import DataNotFound
from loaders.tables import Versioned
from loaders.threads import Reader, read_ahead
from range_index.epoch_times import (
    Block,
    BlockTimes,
    EpochTimesRoot,
    Merge,
    append,
    epoch_in_block,
    first_root,
    locate,
    merge_blocks,
    merge_due,
    show_epochs,
    with_leaf,
)

Found = TypeVar("Found")

LAST_MS_MAX = TIME_MS_END - 2
"""Times of events count up to this one, so that all events are before the last time that can be asked for."""

ROOT_READS_MAX = 8
"""Maximum number of times that the root is read because a block was merged into a leaf since."""


class _BlockGone(Exception):
    """A block in the root was merged into a leaf since the root was read."""


@dataclass(frozen=True, slots=True, eq=False)
class EpochReading:
    """Answers queries about epochs and segments of one stream. Threads: any.

    Args:
        parts: the parts of the stream.
    """

    _parts: StreamParts

    def current(self) -> EpochRecord:
        """The current epoch. 1 call.

        Raises:
            IllegalState: the stream is still being created.
            DataNotFound: the stream is deleted.
        """
        versioned = self._parts.keys.current_epoch().read()
        if versioned is None:
            state = self._parts.keys.state().read()
            refuse_uncreated(StreamState.UNKNOWN if state is None else state.value.state)
            raise IllegalState("expected a current epoch, found a stream without one")
        return versioned.value

    def epoch(self, number: int) -> EpochRecord:
        """An epoch. 1 call.

        Raises:
            NotInHistory: the stream has no such epoch.
        """
        number = checked_integer("an epoch", number)
        versioned = self._parts.keys.epoch(number).read() if 0 <= number <= EPOCH_MAX else None
        if versioned is None:
            raise NotInHistory(f"expected an epoch of stream {self._parts.stream}, found {number}")
        return versioned.value

    def chunks(self, low: int, high: int) -> Iterator[HistoryChunk]:
        """The chunks with the changes after epoch `low`, up to `high`. 1 call a chunk.

        Chunks are read on demand; with an executor, up to 8 chunks or 16 MiB ahead. A cached chunk is used if it
        reaches the needed epoch, though it may still grow: the changes in it are immutable.

        Raises:
            NotInHistory: the history ends before `high`.
        """
        numbers = chunk_numbers(low, high, self._chunk_size)
        reader: Reader[int, HistoryChunk] = Reader(
            read=lambda number: self._chunk(number, high),
            size_of=record_size_bytes,
            has=lambda number: self._parts.keys.chunk(number, self._chunk_size).has(self._reaching(number, high)),
        )
        return read_ahead(reader, numbers, self._parts.store.executor)

    def records(self, numbers: Integers) -> Iterator[EpochRecord]:
        """Epochs in the order of `numbers`, which is any. 1 call each; read ahead like chunks.

        Raises:
            NotInHistory: in the place of a missing epoch.
        """
        reader = Reader(self.epoch, record_size_bytes, lambda number: self._parts.keys.epoch(number).has())
        return read_ahead(reader, numbers.tolist(), self._parts.store.executor)

    def walk(self, low: int, high: int) -> EpochWalk:
        """A walk from epoch `low` to `high` by chunks, with all duplicates. 1 call a chunk, 1 a duplicate."""
        return EpochWalk(self, low, high)

    def segment(self, segment_id: SegmentId) -> SegmentRecord:
        """A segment. 1 call.

        Raises:
            NotInHistory: the stream has no such segment.
        """
        segment_id = read_id(segment_id)
        return rules.segment_in(self._epoch_of(segment_id), segment_id)

    def sealed_epoch(self, segment_id: int) -> int | None:
        """The epoch that sealed a segment; None if the segment is active or does not exist. 1 call."""
        versioned = self._parts.keys.sealed_epoch(segment_id).read()
        return None if versioned is None else versioned.value

    def successors(self, segment_id: SegmentId) -> dict[int, list[int]]:
        """The segments that follow a segment, each with all its predecessors; empty if it is active. 3 calls, 2 then.

        While a scale is under way, they are returned as soon as the new epoch is recorded.

        Raises:
            NotInHistory: the stream has no such segment.
        """
        segment_id = read_id(segment_id)
        sealing = self.sealed_epoch(segment_id) if is_segment_id(segment_id) else None
        if sealing is None:
            self.segment(segment_id)
            return {}
        return rules.successors(segment_id, self.epoch(sealing), self.epoch(sealing - 1))

    def predecessors(self, segment_id: SegmentId) -> dict[int, list[int]]:
        """The segments that a segment follows, each with all its successors. 2 calls.

        Raises:
            NotInHistory: the stream has no such segment.
        """
        segment_id = read_id(segment_id)
        created = self._epoch_of(segment_id)
        before = self.epoch(created.epoch - 1) if created.epoch else None
        return rules.predecessors(segment_id, created, before)

    def epoch_at(self, time_ms: int) -> int:
        """The epoch that was current at a time; 0 before the first epoch. 2 calls at most.

        For a time in the future, or during a scale that is under way, it is the current epoch.

        Args:
            time_ms: milliseconds since 1970.
        """
        time_ms = checked_time("a time", time_ms)
        return self._in_index(lambda root: self._located(root, time_ms))

    def segments_at(self, time_ms: int) -> IdMap:
        """The segments at a time that still exist, each with its first offset. 4 calls.

        No event of this time or later is in an older segment. If hosts with wrong clocks wrote such events, these are
        the segments of an older epoch: 2 more calls for each doubling of the number of epochs in between.
        """
        return segments_at(self._epoch_before(time_ms), self.truncation())

    def _epoch_before(self, time_ms: int) -> EpochRecord:
        """The last epoch before which all events are older than a time."""
        record = self.epoch(self.epoch_at(time_ms))
        too_late, step = record.epoch, 1
        while record.epoch and record.sealed_until_ms > time_ms:  # nothing is sealed before epoch 0
            too_late = record.epoch
            record, step = self.epoch(max(too_late - step, 0)), 2 * step
        while too_late - record.epoch > 1:
            middle = self.epoch((record.epoch + too_late) // 2)
            if middle.sealed_until_ms > time_ms:
                too_late = middle.epoch
            else:
                record = middle
        return record

    def truncation(self) -> TruncationRecord:
        """The truncation record, with the cut at which the stream begins. 1 call."""
        return self._parts.keys.truncation().get().value

    def head(self) -> IdMap:
        """The cut at which the stream begins. 1 call, 2 if it was never truncated."""
        truncation = self.truncation()
        return truncation.cut if len(truncation.cut) else head(truncation, self.epoch(0))

    def active_segments(self) -> Segments:
        """The segments that take writes now, ascending by id. 1 call."""
        return self.current().segments

    def between(self, low: int, high: int) -> Iterator[EpochRecord]:
        """The epochs from `low` to `high`, both included, in order.

        Calls: 1, 1 a chunk, 1 a duplicate. Memory: one chunk and one epoch at a time.

        Raises:
            NotInHistory: the stream has no such epochs.
        """
        low, high = checked_integer("an epoch", low), checked_integer("an epoch", high)
        walk = self.walk(low, high)
        return replay(self.epoch(low), walk.chunks(), walk.epoch, high)

    def scales(self, from_ms: int, to_ms: int) -> Iterator[EpochSummary]:
        """The epoch that was current at the first time, and all epochs that began by the second.

        The numbers of splits and merges are missing for the first epoch. Calls: as `between`, and 3 for the times.
        """
        from_ms, to_ms = checked_time("a time", from_ms), checked_time("a time", to_ms)
        low, high = self._in_index(lambda root: (self._located(root, from_ms), self._located(root, to_ms)))
        return rules.summaries(self.between(low, high))

    @property
    def _chunk_size(self) -> int:
        return self._parts.layout.chunk_size

    def _chunk(self, number: int, high: int) -> HistoryChunk:
        versioned = self._parts.keys.chunk(number, self._chunk_size).read(self._reaching(number, high))
        if versioned is None:
            raise NotInHistory(f"expected history up to epoch {high}, found none from {number * self._chunk_size} on")
        return versioned.value

    def _reaching(self, number: int, high: int) -> Callable[[HistoryChunk], bool]:
        last = min(high, (number + 1) * self._chunk_size - 1)
        return lambda chunk: chunk.last_epoch >= last

    def _epoch_of(self, segment_id: int) -> EpochRecord:
        try:
            return self.epoch(epoch_of(segment_id))
        except NotInHistory as error:
            name = segment_text(segment_id)
            raise NotInHistory(
                f"expected a segment of stream {self._parts.stream}, found {name}", Sought.SEGMENT
            ) from error

    def _in_index(self, ask: Callable[[EpochTimesRoot], Found]) -> Found:
        # Blocks are merged from time to time: if a block is missing, the root is out of date, and is read again.
        for _ in range(ROOT_READS_MAX):
            try:
                return ask(self._parts.keys.times().get().value)
            except _BlockGone:
                continue
        detail = "expected all blocks of times that the root lists, found one missing"
        raise DataNotFound(self._parts.stream.metadata_table, keys.TIMES_ROOT, detail)

    def _located(self, root: EpochTimesRoot, time_ms: int) -> int:
        block = locate(root, time_ms)
        if not isinstance(block, Block):
            return block
        versioned = self._parts.keys.times_block(block).read()
        if versioned is None:
            raise _BlockGone(f"{block.kind.value} {block.number}")
        return epoch_in_block(root, versioned.value, time_ms)


class EpochSource(Protocol):
    """Reads epochs and chunks for a walk."""

    def epoch(self, number: int) -> EpochRecord:
        """The record of one epoch."""
        ...

    def records(self, numbers: Integers) -> Iterator[EpochRecord]:
        """The records of several epochs, in this order."""
        ...

    def chunks(self, low: int, high: int) -> Iterator[HistoryChunk]:
        """The chunks with the changes after epoch `low`, up to `high`."""
        ...


class EpochWalk:
    """One walk from epoch to epoch that reads each duplicate in between. Threads: one.

    Args:
        source: reads epochs and chunks.
        low: the first epoch.
        high: the last epoch.
    """

    def __init__(self, source: EpochSource, low: int, high: int) -> None:
        self._source = source
        self._low = low
        self._high = high
        self._repeated: Iterator[EpochRecord] = iter(())

    def chunks(self) -> Iterator[HistoryChunk]:
        """The chunks with the changes after the first epoch, up to the last epoch."""
        for chunk in self._source.chunks(self._low, self._high):
            numbers = chunk.duplicates
            self._repeated = self._source.records(numbers[(numbers > self._low) & (numbers <= self._high)])
            yield chunk

    def epoch(self, number: int) -> EpochRecord:
        """The record of a duplicate in the last chunk: the next record read ahead, or it is read separately."""
        record = next(self._repeated, None)
        return record if record is not None and record.epoch == number else self._source.epoch(number)


@dataclass(frozen=True, slots=True, eq=False)
class EpochWriting:
    """Writes epochs of one stream. Threads: any.

    Args:
        parts: the parts of the stream.
    """

    _parts: StreamParts

    def bind(self, segments: Segments) -> dict[int, int]:
        """Assign a stream of the object layer to each segment without one; return all by segment id.

        Calls: 1 a segment, and 2 for each block of ids.
        """
        stream_ids = self._parts.store.segment_streams.take(len(segments)) if len(segments) else []
        pairs = list(zip(segments.ids.tolist(), stream_ids, strict=True))
        versioned = self._parts.each(
            lambda pair: self._parts.keys.segment_stream(pair[0]).create_if_absent(pair[1]), pairs
        )
        bound = {segment_id: stored.value for (segment_id, _), stored in zip(pairs, versioned, strict=True)}
        self._parts.store.segment_streams.note(max(bound.values(), default=-1))
        return bound

    def create_segments(self, record: EpochRecord) -> None:
        """Bind the segments that are new in an epoch, and let the host create them."""
        new = record.segments.where(record.segments.epochs == record.epoch)
        self._parts.host.create(self._parts.name, new, self.bind(new))

    def write(self, wanted: EpochRecord, before: EpochRecord | None) -> EpochRecord:
        """Do steps 1 to 4.

        Args:
            wanted: the epoch that this process wants to write.
            before: the previous epoch; None for the first.

        Returns:
            The stored record, which another process may have written with another time; later steps must use it.
        """
        known = self._parts.keys.epoch(wanted.epoch).read()
        if known is None:
            self.bind(wanted.segments.where(wanted.segments.epochs == wanted.epoch))
            known = self._parts.keys.epoch(wanted.epoch).create_if_absent(wanted)
        record = known.value
        self._append_history(delta_of(record, before))
        self._append_time(record)
        return record

    def last_events(self, ids: Integers) -> LastEvents:
        """The last events of sealed segments, as their host reports them.

        Raises:
            InvalidArgument: invalid times from the host.
        """
        times = checked_numbers("times of events from the host", self._parts.host.last_times(self._parts.name, ids), 0)
        last_ms = max(times.values(), default=None)
        return LastEvents(None if last_ms is None else min(last_ms, LAST_MS_MAX), self._parts.store.now_ms())

    def seal_epochs(self, record: EpochRecord, before: EpochRecord) -> None:
        """Do step 5: record the epoch that seals each old segment. 1 call each."""
        ids = sealed_by(record, before).ids.tolist()
        self._parts.each(
            lambda segment_id: self._parts.keys.sealed_epoch(segment_id).create_if_absent(record.epoch), ids
        )

    def write_sizes(self, sizes: Mapping[int, int]) -> None:
        """Do step 6. 2 calls a shard. A stored size stays unchanged.

        Raises:
            InvalidArgument: invalid sizes from the host; no size is written.
        """
        known = checked_numbers("sizes from the host", sizes, 0)
        layout = self._parts.layout
        for number, part in by_shard(known, layout.shard_size, layout.shard_by).items():
            self._parts.keys.shard(number).change(partial(_with_sizes, part))

    def advance(self, record: EpochRecord) -> None:
        """Do steps 7 and 8."""

        def moved(now: EpochRecord | None) -> EpochRecord | None:
            return record if now is None else after_advance(now, record)

        current = self._parts.keys.current_epoch().change(moved).value
        self.show(current)

    def show(self, current: EpochRecord) -> None:
        """Do step 8 only: the index shows all epochs up to the current one. 2 calls, 1 if it does already."""

        def shown(root: EpochTimesRoot | None) -> EpochTimesRoot | None:
            if root is None:
                return None
            changed = show_epochs(root, current.epoch + 1)
            return None if changed is root else changed

        self._parts.keys.times().change(shown)

    def merge_times(self) -> int:
        """Merge parts of the index of times into leaves, if there are enough parts; return the number of new leaves.

        It runs between workflows; readers see the same times before and after. 1 call if no merge is due.
        """
        count = 0
        while (merge := merge_due(self._parts.keys.times().get().value)) is not None:
            self._merge(merge)
            count += 1
        return count

    def merge_times_after(self) -> None:
        """Merge after a workflow that has ended, and ignore errors: a later workflow merges the remaining parts."""
        with suppress(AccelError):
            self.merge_times()

    def erase_merged(self) -> bool:
        """Erase parts of the last leaf that remain because a process died. 2 calls if there are none."""
        root = self._parts.keys.times().get().value
        if not root.leaf_starts:
            return False
        parts = [root.part(root.first_part - behind) for behind in range(1, root.leaf_parts + 1)]
        is_left = self._parts.keys.times_block(parts[-1]).read() is not None
        if is_left:
            self._erase(parts[::-1])
        return is_left

    def _append_history(self, delta: HistoryDelta) -> None:
        size = self._parts.layout.chunk_size

        def longer(chunk: HistoryChunk | None) -> HistoryChunk | None:
            return HistoryChunk.of([delta]) if chunk is None else chunk.with_delta(delta)

        self._parts.keys.chunk(delta.epoch // size, size).change(longer)

    def _append_time(self, record: EpochRecord) -> None:
        settings = self._parts.store.settings

        def longer(root: EpochTimesRoot | None) -> EpochTimesRoot | None:
            if root is None:
                sizes = {"part_epochs": settings.part_epochs, "leaf_parts": settings.leaf_parts}
                return first_root(record.creation_time_ms, **sizes)
            plan = append(root, record.epoch, record.creation_time_ms)
            if plan.part is not None:
                self._parts.keys.times_block(plan.part.block).create_if_absent(plan.part)
            return None if plan.root is root else plan.root

        self._parts.keys.times().change(longer)

    def _merge(self, merge: Merge) -> None:
        blocks: list[Versioned[BlockTimes] | None] = self._parts.each(
            lambda block: self._parts.keys.times_block(block).read(), merge.parts
        )
        parts = [block.value for block in blocks if block is not None]
        if len(parts) == len(merge.parts):
            leaf = merge_blocks(merge, parts)
            self._parts.keys.times_block(leaf.block).create_if_absent(leaf)

            def named(root: EpochTimesRoot | None) -> EpochTimesRoot | None:
                if root is None:
                    return None
                changed = with_leaf(root, merge)
                return None if changed is root else changed

            self._parts.keys.times().change(named)
        # If a part is missing, another process merged the parts, and the root contains the leaf by now.
        self._erase(merge.parts)

    def _erase(self, parts: Sequence[Block]) -> None:
        # The first part is erased last: if it exists, other parts may exist.
        for part in reversed(parts):
            self._parts.keys.times_block(part).erase()


def _with_sizes(part: IdMap, shard: IdMap | None) -> IdMap | None:
    return part if shard is None else with_sizes(shard, part)
