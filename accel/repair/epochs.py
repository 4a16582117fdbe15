"""Repair of a stream's epochs: compared with each other one by one, and rebuilt from each other.

    | record                | follows from                                                                  |
    |-----------------------|-------------------------------------------------------------------------------|
    | epoch record          | the previous epoch and the changes (the chunk); for the current epoch, its    |
    |                       | copy                                                                          |
    | chunk of history      | the records of its epochs                                                     |
    | sealed epoch          | two consecutive epoch records                                                 |
    | index of times        | the times in the epoch records                                                |
    | current epoch         | the epoch record of that number                                               |
    | shard of sealed sizes | sizes from the caller                                                         |
    | segment's stream      | no other record                                                               |

The walk (`EpochsRepair`) ends at the highest epoch in any record. All records of *settled* epochs, up to the current
one, must exist: they were complete before the current epoch moved to them, and never change. Existing records of later
epochs, which a workflow has written, are compared; missing ones are no error. So the walk reports no false finding
while a workflow is under way. It keeps in memory the records of one chunk's changes, a batch of epochs, one leaf of
times, and the ids of damaged shards.

The index of times (`TimesRepair`) is compared with the times in the epoch records during the walk. It keeps in memory
the times of one leaf, and the first time of each part: 8 bytes for 1,000 epochs. Only the root has the sizes of its
blocks. If the root cannot be read, the sizes follow from the existing blocks; without any block, the new root has the
sizes that this process uses for new streams.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final, TypeAlias, TypeVar

import numpy as np

from accel.history.rules.epochs import EpochRecord, HistoryChunk, HistoryDelta, delta_of, record_of, sealed_by
from accel.history.rules.retention import TruncationRecord, shard_numbers
from accel.history.rules.states import StreamState
from accel.history.rules.values import IdMap, Integers, segment_text
from accel.history.store import keys
from accel.history.store.parts import StreamParts
from accel.repair.findings import FINDINGS_MAX, Findings
from loaders.tables.typed_key import Inspected
from range_index.epoch_times import Block, BlockKind, BlockTimes, EpochTimesRoot
from range_index.runs import TYPE_CODE

T = TypeVar("T")

_SOURCE = "the times of the epoch records"


class TimesRepair:
    """Compares one stream's index of times. Threads: one.

    Args:
        parts: the parts of the stream.
        findings: collects wrong records.
        found: the root that was read.
        visible: the number of the stream's epochs, as far as it is known before the walk.

    Attributes:
        count: the number of epochs whose times were added.
    """

    def __init__(self, parts: StreamParts, findings: Findings, found: Inspected[EpochTimesRoot], visible: int) -> None:
        self._keys = parts.keys
        self._findings = findings
        self._found = found
        root = found.value
        self._root = root if root is not None and root.epochs >= visible else None
        self._part_epochs, self._leaf_parts = _pieces(parts) if root is None else (root.part_epochs, root.leaf_parts)
        self._starts = array(TYPE_CODE)
        self._times = array(TYPE_CODE)  # times of the leaf that is being filled
        self.count = 0

    def add(self, time_ms: int) -> None:
        """Add the time of the next epoch."""
        if len(self._times) == self._leaf_epochs:
            self._check_leaf()
            self._times = array(TYPE_CODE)
        if self.count % self._part_epochs == 0:
            self._starts.append(time_ms)
        self._times.append(time_ms)
        self.count += 1

    def finish(self, visible: int) -> None:
        """Check the last blocks and the root, after all epochs were added.

        Args:
            visible: the number of epochs up to the current one.
        """
        full_parts = (len(self._times) - 1) // self._part_epochs
        first = (self.count - len(self._times)) // self._part_epochs
        for number in range(first, first + full_parts):
            self._check_part(number)
        if self._root is None:
            leaves = first // self._leaf_parts
            self._rebuild_root(self._expected(leaves, first + full_parts, self.count, visible))
            return
        root, parts = self._root, self._root_parts
        if parts * self._part_epochs < self.count - len(self._times) and root.epochs < self.count:
            return  # a workflow under way has written more epochs than the root contains
        if root.epochs > self.count:
            self._rebuild_root(self._expected(first // self._leaf_parts, first + full_parts, self.count, visible))
            return
        expected = self._expected(len(root.leaf_starts), parts, root.epochs, max(visible, root.visible_epochs))
        if replace(expected, visible_epochs=root.visible_epochs) != root:
            self._rebuild_root(expected)

    @property
    def _root_parts(self) -> int:
        """The number of parts in the root, including those of its leaves."""
        return 0 if self._root is None else (self._root.epochs - 1) // self._part_epochs

    @property
    def _leaf_epochs(self) -> int:
        return self._part_epochs * self._leaf_parts

    def _rebuild_root(self, root: EpochTimesRoot) -> None:
        problem = "" if self._found.value is None else f"expected {root.epochs} epochs with their times, found others"
        self._findings.rebuild(self._keys.times(), self._found, root, _SOURCE, problem)

    def _expected(self, leaves: int, parts: int, epochs: int, visible: int) -> EpochTimesRoot:
        """The root with these numbers of leaves, parts in all, and epochs."""
        open_parts = self._starts[leaves * self._leaf_parts : parts]
        behind = self.count - len(self._times)  # number of epochs before those in memory
        return EpochTimesRoot(
            tail=self._times[parts * self._part_epochs - behind : epochs - behind],
            part_starts=open_parts,
            leaf_starts=self._starts[: leaves * self._leaf_parts : self._leaf_parts],
            visible_epochs=visible,
            part_epochs=self._part_epochs,
            leaf_parts=self._leaf_parts,
        )

    def _check_leaf(self) -> None:
        number = self.count // self._leaf_epochs - 1
        if self._root is None or number < len(self._root.leaf_starts):
            self._check(Block(BlockKind.LEAF, number, self._leaf_epochs), self._times)
            return
        for part in range(number * self._leaf_parts, (number + 1) * self._leaf_parts):
            self._check_part(part)

    def _check_part(self, number: int) -> None:
        if self._root is not None and number >= self._root_parts:
            return
        start = number * self._part_epochs - (self.count - len(self._times))
        self._check(Block(BlockKind.PART, number, self._part_epochs), self._times[start : start + self._part_epochs])

    def _check(self, block: Block, times: array[int]) -> None:
        key, wanted = self._keys.times_block(block), BlockTimes(block, times)
        found = key.inspect()
        if found.value != wanted:
            problem = "" if found.value is None else "expected the times of its epochs, found others"
            self._findings.rebuild(key, found, wanted, _SOURCE, problem)


def _pieces(parts: StreamParts) -> tuple[int, int]:
    """The sizes of the index: epochs of a part, and parts of a leaf."""
    settings = parts.store.settings
    sizes = {kind: _block_epochs(parts, kind) for kind in BlockKind}
    leaf, part = sizes[BlockKind.LEAF], sizes[BlockKind.PART] or settings.part_epochs
    return (part, settings.leaf_parts) if leaf is None or leaf % part else (part, leaf // part)


def _block_epochs(parts: StreamParts, kind: BlockKind) -> int | None:
    """The number of epochs in a block of a kind, from the first readable block; None if there is none."""
    prefix = f"{keys.TIMES_ROOT}-{kind.value}-"
    ends = (key.removeprefix(prefix) for key in parts.keys.metadata.keys(prefix))
    for number in map(int, filter(str.isdecimal, ends)):
        found = parts.keys.times_block(Block(kind, number, 0)).inspect().value
        if found is not None:
            return found.block.epochs
    return None


AT_REST: Final = (StreamState.ACTIVE, StreamState.SEALED)
"""States of streams without a workflow."""

Sizes: TypeAlias = Callable[[Integers], Mapping[int, int]]
"""Returns the known sizes of sealed segments, by id."""

EPOCHS_AHEAD_MAX: Final = 2
EPOCHS_AT_ONCE: Final = 16
KEYS_AT_ONCE: Final = 256
IDS_SHOWN_MAX: Final = 10

_FROM_COPY: Final = "restore the key from a version or a copy of the bucket"
_NO_STREAM: Final = f"{_FROM_COPY}; without it the segment's data cannot be found"


class EpochsRepair:
    """Compares the epochs of one stream. Threads: one.

    Args:
        parts: the parts of the stream, with the stored layout.
        findings: collects wrong records.
        truncation: the truncation record; None = unknown.
        sizes: returns the sizes of sealed segments that the caller knows.

    Attributes:
        current: the current epoch, stored or rebuilt; None = unknown.
        last: the highest epoch in any record; -1 = none.
        is_whole: whether each epoch's record exists or can be rebuilt.
        damaged_shards: numbers of the damaged or missing shards of sealed sizes, including those that can be rebuilt.
    """

    def __init__(
        self, parts: StreamParts, findings: Findings, truncation: TruncationRecord | None, sizes: Sizes
    ) -> None:
        self._parts = parts
        self._keys = parts.keys
        self._findings = findings
        self._truncation = truncation
        self._sizes = sizes
        self._root = self._keys.times().inspect()  # read before the current epoch, which is never behind it
        self._found = self._keys.current_epoch().inspect()
        self._rebuilt: dict[int, EpochRecord] = {}
        self._shards: dict[int, list[Integers]] = {}
        self._known_shards: set[int] = set()
        self.current = self._found.value
        self.last = -1
        self.is_whole = True
        self.damaged_shards: set[int] = set()

    def run(self, state: StreamState | None) -> None:
        """Walk through all epochs.

        Calls: 1 an epoch, 1 a segment that was created, 1 a segment that was sealed, 1 a chunk, a shard and a block.

        Args:
            state: the state of the stream; None = its key cannot be read.
        """
        self.last = self._last()
        known = self._settled(is_at_rest=state in AT_REST)
        # No workflow writes more than two epochs after the current one.
        settled = known if known >= 0 else max(-1, self.last - EPOCHS_AHEAD_MAX)
        times = TimesRepair(self._parts, self._findings, self._root, settled + 1)
        self._inspect_shards()
        before: EpochRecord | None = None
        for number in range(self.last // self._chunk_size + 1):
            before = self._chunk(number, settled, before, times)
        if self.is_whole and known >= 0:
            times.finish(known + 1)
        elif self._root.value is None:
            self._findings.lose(
                self._keys.times(), self._root, f"{_FROM_COPY}, or repair the other keys named here first"
            )
        self._check_current(known)
        if state is StreamState.SEALED and self.current is not None:
            self._note_sizes(self.current.segments.ids)
        self._check_shards(state, is_known=self.is_whole and known >= 0 and self.current is not None)

    # How far the epochs go

    @property
    def _chunk_size(self) -> int:
        return self._parts.layout.chunk_size

    def _last(self) -> int:
        chunk = self._highest(keys.chunk_key(0)[:-1])
        stored = self._keys.chunk(chunk, self._chunk_size).inspect().value if chunk >= 0 else None
        return max(
            self._highest(keys.epoch_key(0)[:-1]),
            -1 if self.current is None else self.current.epoch,
            -1 if self._root.value is None else self._root.value.visible_epochs - 1,
            -1 if stored is None else stored.last_epoch,
        )

    def _highest(self, prefix: str) -> int:
        """The highest number in keys with a prefix; a number far above their count is invalid, and left out."""
        most = sum(1 for _ in self._numbers(prefix)) + FINDINGS_MAX
        return max((number for number in self._numbers(prefix) if number < most), default=-1)

    def _numbers(self, prefix: str) -> Iterator[int]:
        ends = (key.removeprefix(prefix) for key in self._keys.metadata.keys(prefix))
        return (int(end) for end in ends if end.isdecimal())

    def _settled(self, *, is_at_rest: bool) -> int:
        """The current epoch's number; -1 if it is unknown."""
        root = self._root.value
        shown = -1 if root is None else root.visible_epochs - 1
        if self.current is not None:
            return max(self.current.epoch, shown)
        if root is None or (is_at_rest and root.epochs - 1 < self.last):
            return self.last if is_at_rest else -1
        return shown

    # A chunk of epochs

    def _chunk(self, number: int, settled: int, before: EpochRecord | None, times: TimesRepair) -> EpochRecord | None:
        """Check the epochs of one chunk; return the record of the last epoch."""
        key = self._keys.chunk(number, self._chunk_size)
        found = key.inspect()
        first = number * self._chunk_size
        deltas: list[HistoryDelta] = []
        is_known = True
        for epoch, versioned in self._epochs(first, min(first + self._chunk_size - 1, self.last)):
            record = self._record(epoch, versioned, before, found.value, settled)
            delta = self._delta(record, before)
            if delta is not None and is_known:
                deltas.append(delta)
            elif epoch <= settled or delta is not None:
                is_known = False
            if record is not None:
                if self.is_whole and times.count == epoch:
                    times.add(record.creation_time_ms)
                self._check_segments(record, before, settled)
            elif epoch <= settled:
                self.is_whole = False
            before = record
        if is_known:
            self._check_chunk(number, found, deltas, settled)
        elif found.value is None:
            self._findings.lose(key, found, f"{_FROM_COPY}: records of its epochs are lost, too")
        return before

    def _epochs(self, first: int, last: int) -> Iterator[tuple[int, Inspected[EpochRecord]]]:
        for start in range(first, last + 1, EPOCHS_AT_ONCE):
            numbers = range(start, min(start + EPOCHS_AT_ONCE, last + 1))
            yield from zip(
                numbers, self._parts.each(lambda number: self._keys.epoch(number).inspect(), numbers), strict=True
            )

    def _record(
        self,
        epoch: int,
        found: Inspected[EpochRecord],
        before: EpochRecord | None,
        chunk: HistoryChunk | None,
        settled: int,
    ) -> EpochRecord | None:
        if found.value is not None and found.value.epoch == epoch:
            return found.value
        key = self._keys.epoch(epoch)
        problem = "" if found.value is None else f"expected epoch {epoch}, found epoch {found.value.epoch}"
        record = self._followed(epoch, before, chunk)
        if record is not None:
            self._rebuilt[epoch] = record
            self._findings.rebuild(key, found, record, self._source(record), problem)
        elif epoch > settled >= 0 and not found.is_missing:
            self._findings.rebuild(key, found, None, "the workflow under way, which writes this record again", problem)
        elif epoch <= settled:
            self._findings.lose(key, found, f"{_FROM_COPY}: the changes of this epoch are lost, too", problem)
        return record

    def _source(self, record: EpochRecord) -> str:
        if record is self.current:
            return keys.CURRENT_EPOCH
        chunk = keys.chunk_key(record.epoch // self._chunk_size)
        return f"{keys.epoch_key(record.epoch - 1)} and {chunk}" if record.epoch else chunk

    def _followed(self, epoch: int, before: EpochRecord | None, chunk: HistoryChunk | None) -> EpochRecord | None:
        if self.current is not None and self.current.epoch == epoch:
            return self.current
        delta = None if chunk is None else chunk.delta(epoch)
        if delta is None or (epoch and before is None):
            return None
        try:
            return record_of(delta, before, self._reference(delta))
        except ValueError:
            return None

    def _reference(self, delta: HistoryDelta) -> EpochRecord | None:
        if not delta.is_duplicate:
            return None
        known = self._rebuilt.get(delta.reference_epoch)
        return self._keys.epoch(delta.reference_epoch).inspect().value if known is None else known

    def _delta(self, record: EpochRecord | None, before: EpochRecord | None) -> HistoryDelta | None:
        if record is None or (record.epoch and before is None):
            return None
        try:
            return delta_of(record, before)
        except ValueError as error:
            self.is_whole = False
            key = self._keys.epoch(record.epoch)
            problem = f"expected an epoch that follows the previous epoch, found: {error}"
            self._findings.lose(key, key.inspect(), _FROM_COPY, problem)
            return None

    def _check_chunk(
        self, number: int, found: Inspected[HistoryChunk], deltas: list[HistoryDelta], settled: int
    ) -> None:
        stored = found.value
        if not deltas or (stored is None and found.is_missing and deltas[0].epoch > settled):
            return
        wanted = HistoryChunk.of(deltas)
        if stored is not None and stored.first_epoch == wanted.first_epoch:
            reached = min(settled, wanted.last_epoch)
            if stored == wanted or (
                reached <= stored.last_epoch < wanted.last_epoch and stored == HistoryChunk.of(deltas[: len(stored)])
            ):
                return
        problem = "" if stored is None else "expected the changes between its epochs' records, found other changes"
        key = self._keys.chunk(number, self._chunk_size)
        self._findings.rebuild(key, found, wanted, "the records of its epochs", problem)

    # Segments

    def _check_segments(self, record: EpochRecord, before: EpochRecord | None, settled: int) -> None:
        created = record.segments.ids[record.segments.epochs == record.epoch].tolist()
        for segment_id, bound in self._inspected(lambda number: self._keys.segment_stream(number).inspect(), created):
            if bound.value is None and (record.epoch <= settled or not bound.is_missing):
                self._findings.lose(self._keys.segment_stream(segment_id), bound, _NO_STREAM)
        if before is None or before.epoch + 1 != record.epoch:
            return
        sealed = sealed_by(record, before).ids
        if record.epoch <= settled:
            self._note_sizes(sealed)
        for segment_id, found in self._inspected(
            lambda number: self._keys.sealed_epoch(number).inspect(), sealed.tolist()
        ):
            if found.value == record.epoch or (record.epoch > settled and found.is_missing):
                continue
            problem = "" if found.value is None else f"expected epoch {record.epoch}, found {found.value}"
            source = f"{keys.epoch_key(before.epoch)} and {keys.epoch_key(record.epoch)}"
            self._findings.rebuild(self._keys.sealed_epoch(segment_id), found, record.epoch, source, problem)

    def _inspected(
        self, inspect: Callable[[int], Inspected[T]], ids: Sequence[int]
    ) -> Iterator[tuple[int, Inspected[T]]]:
        rest = iter(ids)
        while some := list(islice(rest, KEYS_AT_ONCE)):
            yield from zip(some, self._parts.each(inspect, some), strict=True)

    # The current epoch

    def _check_current(self, settled: int) -> None:
        now, key = self.current, self._keys.current_epoch()
        wanted = None if settled < 0 else self._rebuilt.get(settled) or self._keys.epoch(settled).inspect().value
        if wanted is None:
            if now is None:
                self._findings.lose(key, self._found, "finish the workflow that has the stream, or restore the key")
            return
        if now != wanted:
            problem = "" if now is None else f"expected {keys.epoch_key(settled)}, found epoch {now.epoch}"
            self._findings.rebuild(key, self._found, wanted, keys.epoch_key(settled), problem)
            self.current = wanted

    # Sizes

    def _inspect_shards(self) -> None:
        prefix = keys.shard_key(0)[:-1]
        for number in self._numbers(prefix):
            self._known_shards.add(number)
            if self._keys.shard(number).inspect().value is None:
                self._shards[number] = []
        if 0 not in self._known_shards:
            self._shards[0] = []

    def _note_sizes(self, ids: Integers) -> None:
        layout = self._parts.layout
        numbers = shard_numbers(ids, layout.shard_size, layout.shard_by)
        for number in np.unique(numbers).tolist():
            if number in self._shards or number not in self._known_shards:
                self._shards.setdefault(number, []).append(ids[numbers == number])

    def _check_shards(self, state: StreamState | None, *, is_known: bool) -> None:
        for number, parts in sorted(self._shards.items()):
            key = self._keys.shard(number)
            found = key.inspect()
            if found.value is not None:
                continue
            self.damaged_shards.add(number)
            if state is None:
                self._findings.lose(key, found, "repair the state first: it says whether active segments are sealed")
                continue
            if not is_known:
                self._findings.lose(key, found, "repair the epochs first: they show which segments are sealed")
                continue
            ids = np.unique(np.concatenate([*parts, np.zeros(0, dtype=np.int64)]))
            needed = self._needed(ids)
            known = IdMap.of(self._sizes(needed))
            lacking = needed[known.positions_of(needed) < 0].tolist()
            if lacking:
                shown = ", ".join(map(segment_text, lacking[:IDS_SHOWN_MAX]))
                more = f" and {len(lacking) - IDS_SHOWN_MAX} more" if len(lacking) > IDS_SHOWN_MAX else ""
                self._findings.lose(key, found, f"pass the sizes of {shown}{more}, which the host has")
            else:
                left = len(ids) - len(known)
                gone = f"; the sizes of {left} deleted segments are 0 from now on" if left else ""
                self._findings.rebuild(key, found, known, f"sizes from the caller or the host{gone}")

    def _needed(self, ids: Integers) -> Integers:
        """The segments whose sizes may be needed: those that were not deleted before the stream's beginning."""
        begins = 0 if self._truncation is None else self._truncation.span.low
        gone = np.array([begins > 0 and self._ended_by(segment_id, begins) for segment_id in ids.tolist()], dtype=bool)
        kept: Integers = ids[~gone]
        return kept

    def _ended_by(self, segment_id: int, epoch: int) -> bool:
        sealing = self._keys.sealed_epoch(segment_id).inspect().value
        return sealing is not None and sealing <= epoch
