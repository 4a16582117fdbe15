"""Questions about epochs and segments.

| question                        | calls, with nothing cached                                                      |
|---------------------------------|---------------------------------------------------------------------------------|
| current epoch, active segments  | 1                                                                               |
| epoch, segment                  | 1: a segment's id tells the epoch of its creation                               |
| successors                      | 3: which epoch sealed it, that epoch, the one before                            |
| predecessors                    | 2: the epoch of its creation, the one before                                    |
| epoch at a time                 | 2: root and a block of the index of times; 1 if the root can tell               |
| segments at a time              | 4: these, the epoch, the truncation                                             |
| head                            | 1: the truncation; 2 if there was none: epoch 0                                 |
| epochs between two times        | 3, each 1,000 epochs one more, each duplicate one more                          |

What is immutable is kept decoded (`loaders.epoch_records`), and costs nothing the second time.

Source: PDP-32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from accel.errors import IllegalState, NotInHistory, Sought
from accel.history.rules import epochs as rules
from accel.history.rules.epochs import EpochRecord, EpochSummary, HistoryChunk, chunk_numbers, replay
from accel.history.rules.ids import EPOCH_MAX, IdMap, Integers, epoch_of, is_segment_id, segment_text
from accel.history.rules.retention import TruncationRecord, head, segments_at
from accel.history.rules.segments import SegmentRecord, Segments
from accel.history.rules.states import StreamState, refuse_uncreated
from accel.history.store import places
from accel.history.store.epoch_walk import EpochWalk
from accel.history.store.parts import StreamParts
from accel.history.store.record_sizes import record_size_bytes
from loaders.errors import DataNotFound
from loaders.parallel import Reader, read_ahead
from range_index.epoch_times import Block, EpochTimesRoot, epoch_in_block, locate

Found = TypeVar("Found")

ROOT_READS_MAX = 8
"""A block that was merged away since the root was read: so often the root is read again."""


class _BlockGone(Exception):
    """A block that the root names was merged away since."""


class EpochReading:
    """Asks the tables of one stream. Threads: any.

    Args:
        parts: of the stream.
    """

    def __init__(self, parts: StreamParts) -> None:
        self._parts = parts
        self._cells = parts.cells

    def current(self) -> EpochRecord:
        """The current epoch. 1 call.

        Raises:
            IllegalState: the stream is still being created.
            DataNotFound: it is deleted.
        """
        seen = self._cells.current_epoch().read()
        if seen is None:
            state = self._cells.state().read()
            refuse_uncreated(StreamState.UNKNOWN if state is None else state.value.state)
            raise IllegalState("expected a current epoch, found a stream without one")
        return seen.value

    def epoch(self, number: int) -> EpochRecord:
        """An epoch. 1 call.

        Raises:
            NotInHistory: the stream has no such epoch.
        """
        seen = self._cells.epoch(number).read() if 0 <= number <= EPOCH_MAX else None
        if seen is None:
            raise NotInHistory(f"expected an epoch of stream {self._parts.stream}, found {number}")
        return seen.value

    def chunks(self, low: int, high: int) -> Iterator[HistoryChunk]:
        """What changed after one epoch, up to another. 1 call a chunk.

        Chunks are read when they are asked for; with an executor, up to 8 ahead, and 16 MiB. One that is kept tells
        enough if it reaches so far, though it may still grow: what it tells of its epochs stays true.

        Raises:
            NotInHistory: the history does not go so far.
        """
        numbers = chunk_numbers(low, high, self._chunk_size)
        reader: Reader[int, HistoryChunk] = Reader(
            read=lambda number: self._chunk(number, high),
            size_of=record_size_bytes,
            has=lambda number: self._cells.chunk(number, self._chunk_size).has(self._reaching(number, high)),
        )
        return read_ahead(reader, numbers, self._parts.store.executor)

    def records(self, numbers: Integers) -> Iterator[EpochRecord]:
        """Epochs in any order. 1 call each; read ahead as chunks are.

        Raises:
            NotInHistory: in the place of an epoch that there is not.
        """
        reader = Reader(self.epoch, record_size_bytes, lambda number: self._cells.epoch(number).has())
        return read_ahead(reader, numbers.tolist(), self._parts.store.executor)

    def walk(self, low: int, high: int) -> EpochWalk:
        """The way from one epoch to another by chunks, through all duplicates. 1 call a chunk, 1 a duplicate."""
        return EpochWalk(self, low, high)

    def segment(self, segment_id: int) -> SegmentRecord:
        """A segment. 1 call.

        Raises:
            NotInHistory: the stream has no such segment.
        """
        return rules.segment_in(self._epoch_of(segment_id), segment_id)

    def sealed_epoch(self, segment_id: int) -> int | None:
        """Which epoch sealed a segment; None if it is active, or is none. 1 call."""
        seen = self._cells.sealed_epoch(segment_id).read()
        return None if seen is None else seen.value

    def successors(self, segment_id: int) -> dict[int, list[int]]:
        """The segments that follow one, each with all that it follows; none of an active one. 3 calls, 2 if active.

        While a scale is under way they are known as soon as the new epoch is recorded.

        Raises:
            NotInHistory: the stream has no such segment.
        """
        sealing = self.sealed_epoch(segment_id) if is_segment_id(segment_id) else None
        if sealing is None:
            self.segment(segment_id)
            return {}
        return rules.successors(segment_id, self.epoch(sealing), self.epoch(sealing - 1))

    def predecessors(self, segment_id: int) -> dict[int, list[int]]:
        """The segments that one follows, each with all that follow it. 2 calls.

        Raises:
            NotInHistory: the stream has no such segment.
        """
        created = self._epoch_of(segment_id)
        before = self.epoch(created.epoch - 1) if created.epoch else None
        return rules.predecessors(segment_id, created, before)

    def epoch_at(self, time_ms: int) -> int:
        """Which epoch it was at a time; 0 before the first. 2 calls at most.

        A time in the future, or during a scale that is under way, gives the current epoch.

        Args:
            time_ms: milliseconds since 1970.
        """
        return self._in_index(lambda root: self._located(root, time_ms))

    def segments_at(self, time_ms: int) -> IdMap:
        """The segments at a time as far as they are still there, each with the offset it begins with. 4 calls."""
        record = self.epoch(self.epoch_at(time_ms))
        return segments_at(record, self.truncation())

    def truncation(self) -> TruncationRecord:
        """Where the stream begins. 1 call."""
        return self._cells.truncation().get().value

    def head(self) -> IdMap:
        """The cut that the stream begins with. 1 call, 2 if it was never truncated."""
        truncation = self.truncation()
        return truncation.cut if len(truncation.cut) else head(truncation, self.epoch(0))

    def active_segments(self) -> Segments:
        """The segments that take writes now, ascending by id. 1 call."""
        return self.current().segments

    def epochs(self, low: int, high: int) -> Iterator[EpochRecord]:
        """The epochs from one to another, both included, one after the other.

        Calls: 1, 1 a chunk, 1 a duplicate. Memory: one chunk and one epoch at a time.

        Raises:
            NotInHistory: the stream has no such epochs.
        """
        walk = self.walk(low, high)
        return replay(self.epoch(low), walk.chunks(), walk.epoch, high)

    def scales(self, from_ms: int, to_ms: int) -> Iterator[EpochSummary]:
        """The epochs from one time to another: the one that it was at the first, and all that began by the second.

        Splits and merges of the first are not told. Calls: as `epochs`, and 3 for the times.
        """
        low, high = self._in_index(lambda root: (self._located(root, from_ms), self._located(root, to_ms)))
        return rules.summaries(self.epochs(low, high))

    @property
    def _chunk_size(self) -> int:
        return self._parts.layout.chunk_size

    def _chunk(self, number: int, high: int) -> HistoryChunk:
        seen = self._cells.chunk(number, self._chunk_size).read(self._reaching(number, high))
        if seen is None:
            raise NotInHistory(f"expected history up to epoch {high}, found none from {number * self._chunk_size} on")
        return seen.value

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
        # Blocks are merged now and then: who holds the root of before, and finds one gone, looks at the root again.
        for _ in range(ROOT_READS_MAX):
            try:
                return ask(self._cells.times().get().value)
            except _BlockGone:
                continue
        detail = "expected the blocks of times that its root names, found one missing"
        raise DataNotFound(self._parts.stream.metadata_table, places.TIMES_ROOT, detail)

    def _located(self, root: EpochTimesRoot, time_ms: int) -> int:
        found = locate(root, time_ms)
        if not isinstance(found, Block):
            return found
        seen = self._cells.times_block(found).read()
        if seen is None:
            raise _BlockGone(f"{found.kind.value} {found.number}")
        return epoch_in_block(root, seen.value, time_ms)
