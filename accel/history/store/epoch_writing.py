"""Writing an epoch, and moving the stream to it.

    1. which stream of the object layer holds each new segment    immutable
    2. the epoch's record                                         immutable; read back, and all that follows uses that
    3. what changed: the chunk of history                         versioned until it is full
    4. when it began: the index of times                          versioned; not visible yet
    5. which epoch sealed each old segment                        immutable
    -- here the old segments are sealed --
    6. their sizes, shard by shard                                versioned
    7. the current epoch                                          versioned; only moves forward
    8. the index of times shows it                                versioned

Each step asks first whether it is done. So the whole can be repeated, and two processes may do it at once: no reader
ever sees a current epoch without its records, nor the time of an epoch that is not current yet.

Source: PDP-32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from accel.errors import AccelError
from accel.history.rules.checks import checked_numbers
from accel.history.rules.epochs import EpochRecord, HistoryChunk, HistoryDelta, advanced, delta_of, sealed_by
from accel.history.rules.ids import IdMap, Integers
from accel.history.rules.retention import by_shard, with_sizes
from accel.history.rules.segments import Segments
from accel.history.store.cell import Seen
from accel.history.store.parts import StreamParts
from range_index.epoch_appends import Merge, append, merge_due, merged, show_epochs, with_leaf
from range_index.epoch_times import Block, BlockTimes, EpochTimesRoot, first_root

MARK = b""
"""The value of keys that say by being there what they say."""


class EpochWriting:
    """Writes epochs of one stream. Threads: any.

    Args:
        parts: of the stream.
    """

    def __init__(self, parts: StreamParts) -> None:
        self._parts = parts
        self._cells = parts.cells

    def bind(self, segments: Segments) -> dict[int, int]:
        """Give each segment a stream of the object layer, unless it has one; gives them by segment id.

        Calls: 1 a segment, and 2 for each block of ids.
        """
        stream_ids = self._parts.store.segment_streams.take(len(segments)) if len(segments) else range(0)
        pairs = list(zip(segments.ids.tolist(), stream_ids, strict=True))
        seen = self._parts.each(lambda pair: self._cells.segment_stream(pair[0]).create(pair[1]), pairs)
        bound = {segment_id: each.value for (segment_id, _), each in zip(pairs, seen, strict=True)}
        self._parts.store.segment_streams.note(bound.values())
        return bound

    def create_segments(self, record: EpochRecord) -> None:
        """Let the host create the segments that are new in an epoch; they are bound before."""
        new = record.segments.where(record.segments.epochs == record.epoch)
        self._parts.host.create(self._parts.name, new, self.bind(new))

    def write(self, wanted: EpochRecord, before: EpochRecord | None) -> EpochRecord:
        """Steps 1 to 4.

        Args:
            wanted: the epoch, as this process would have it.
            before: the one before it; None for the first.

        Returns:
            What stands there, which another process may have written with another time. What follows is to follow from
            this one.
        """
        known = self._cells.epoch(wanted.epoch).read()
        if known is None:
            self.bind(wanted.segments.where(wanted.segments.epochs == wanted.epoch))
            known = self._cells.epoch(wanted.epoch).create(wanted)
        record = known.value
        self._append_history(delta_of(record, before))
        self._append_time(record)
        return record

    def seal_epochs(self, record: EpochRecord, before: EpochRecord) -> None:
        """Step 5: which segments an epoch seals. 1 call each."""
        ids = sealed_by(record, before).ids.tolist()
        self._parts.each(lambda each: self._cells.sealed_epoch(each).create(record.epoch), ids)

    def write_sizes(self, sizes: Mapping[int, int]) -> None:
        """Step 6. 2 calls a shard. A size that is known stays as it is.

        Raises:
            InvalidArgument: the host tells sizes that are none; no size is written.
        """
        known = checked_numbers("sizes that the host tells", sizes, 0)
        layout = self._parts.layout
        for number, part in by_shard(known, layout.shard_size, layout.shard_by).items():
            self._cells.shard(number).change(partial(_with_sizes, part))

    def remove_markers(self, ids: Integers) -> None:
        """Sealed segments have no load. 1 call each."""
        self._parts.each(lambda each: self._cells.marker(each).erase(), ids.tolist())

    def advance(self, record: EpochRecord) -> None:
        """Steps 7 and 8."""

        def moved(now: EpochRecord | None) -> EpochRecord | None:
            return record if now is None else advanced(now, record)

        current = self._cells.current_epoch().change(moved).value
        self.show(current)

    def show(self, current: EpochRecord) -> None:
        """Step 8 alone: the index shows all epochs up to the current one. 2 calls, 1 if it does already."""

        def shown(root: EpochTimesRoot | None) -> EpochTimesRoot | None:
            if root is None:
                return None
            changed = show_epochs(root, current.epoch + 1)
            return None if changed is root else changed

        self._cells.times().change(shown)

    def merge_times(self) -> int:
        """Merge parts of the index of times into leaves, where enough stand there; gives how many leaves were made.

        To be done between workflows; readers see the same times before and after. 1 call if nothing is due.
        """
        count = 0
        while (merge := merge_due(self._cells.times().get().value)) is not None:
            self._merge(merge)
            count += 1
        return count

    def merge_times_after(self) -> None:
        """Merge after a workflow that has ended: it does not fail for that. What is left is merged by a later one."""
        with suppress(AccelError):
            self.merge_times()

    def erase_merged(self) -> bool:
        """Erase parts of the last leaf that a process left behind which died meanwhile. 2 calls if there are none."""
        root = self._cells.times().get().value
        if not root.leaf_starts:
            return False
        parts = [root.part(root.first_part - behind) for behind in range(1, root.leaf_parts + 1)]
        is_left = self._cells.times_block(parts[-1]).read() is not None
        if is_left:
            self._erase(parts[::-1])
        return is_left

    def _append_history(self, delta: HistoryDelta) -> None:
        size = self._parts.layout.chunk_size

        def longer(chunk: HistoryChunk | None) -> HistoryChunk | None:
            return HistoryChunk.of([delta]) if chunk is None else chunk.with_delta(delta)

        self._cells.chunk(delta.epoch // size, size).change(longer)

    def _append_time(self, record: EpochRecord) -> None:
        settings = self._parts.store.settings

        def longer(root: EpochTimesRoot | None) -> EpochTimesRoot | None:
            if root is None:
                sizes = {"part_epochs": settings.part_epochs, "leaf_parts": settings.leaf_parts}
                return first_root(record.creation_time_ms, **sizes)
            plan = append(root, record.epoch, record.creation_time_ms)
            if plan.part is not None:
                self._cells.times_block(plan.part.block).create(plan.part)
            return None if plan.root is root else plan.root

        self._cells.times().change(longer)

    def _merge(self, merge: Merge) -> None:
        found: list[Seen[BlockTimes] | None] = self._parts.each(
            lambda block: self._cells.times_block(block).read(), merge.parts
        )
        parts = [each.value for each in found if each is not None]
        if len(parts) == len(merge.parts):
            leaf = merged(merge, parts)
            self._cells.times_block(leaf.block).create(leaf)

            def named(root: EpochTimesRoot | None) -> EpochTimesRoot | None:
                if root is None:
                    return None
                changed = with_leaf(root, merge)
                return None if changed is root else changed

            self._cells.times().change(named)
        # Parts that are gone were merged by another process, and the root names the leaf by now.
        self._erase(merge.parts)

    def _erase(self, parts: Sequence[Block]) -> None:
        # The first goes last: while it is there, others may be.
        for part in reversed(parts):
            self._cells.times_block(part).erase()


def _with_sizes(part: IdMap, shard: IdMap | None) -> IdMap | None:
    return part if shard is None else with_sizes(shard, part)
