"""The records of a stream's history, one a key of its tables.

    EpochRecord               the segments of one epoch                                     written once
    TruncationRecord          where the stream begins now, and what is being deleted
    EpochTransition           a scale that was asked for and is not finished
    CommittingTransactions    transactions that are being committed
    RetentionSet              when cuts were recorded, and the size before each
    StreamCutRecord           one of these cuts                                             written once

Others: `history_chunk`, `configuration`, `states`, `transactions`. A sealed-size shard is an `IdMap`.

An *epoch* is a time during which a stream's segments did not change; its segments tile the key space [0, 1). Its
*reference epoch* is itself, unless it is a duplicate: committing transactions of an older epoch repeats that epoch's
segments, and then those that were active, as two epochs of their own, with the old numbers under new ids.

Making a record checks it, so bytes from outside are checked by the same code as the program's own. What can only be
seen by comparing records, whoever has both checks.

Threads: all records are immutable, any thread may read them.

Source: PDP-32 and PDP-35.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, overload
from uuid import UUID

import numpy as np
from numpy.typing import ArrayLike

from accel.history.checks import check_epoch, check_least, integers
from accel.history.id_columns import NO_IDS, NOTHING, IdMap, IdSet, Integers, check_ascending
from accel.history.ids import EPOCH_MAX, NUMBER_MAX, make_id
from accel.history.segments import NO_SEGMENTS, KeyRanges, SegmentRecord, Segments

UNKNOWN_COUNT: Final = -1
"""As splits or merges: written by a release that did not count them."""

COMMITTED_AT_ONCE_MAX: Final = 10_000
"""Transactions in one `CommittingTransactions`; the rest waits for the next commit."""


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """The segments of a stream in one epoch.

    Args:
        epoch: its number.
        reference_epoch: itself, or for a duplicate the epoch that it repeats.
        segments: ascending by id; together they tile [0, 1).
        creation_time_ms: when it began, milliseconds since 1970; later than all epochs before it.
        splits: segments that were split in this and all earlier epochs; -1 = unknown.
        merges: likewise merges.

    Raises:
        ValueError: segments that do not tile the key space, of later epochs, or (in a duplicate) of earlier ones.
    """

    epoch: int
    reference_epoch: int
    segments: Segments
    creation_time_ms: int
    splits: int = UNKNOWN_COUNT
    merges: int = UNKNOWN_COUNT

    def __post_init__(self) -> None:
        where = f"epoch {self.epoch}"
        check_epoch(where, self.epoch, self.reference_epoch)
        check_least(where, 0, creation_time_ms=self.creation_time_ms)
        check_least(where, UNKNOWN_COUNT, splits=self.splits, merges=self.merges)
        check_ascending(self.segments.ids)
        _check_tiles(where, self.segments)
        epochs = self.segments.epochs
        if epochs[-1] > self.epoch or (self.is_duplicate and epochs[0] < self.epoch):
            raise ValueError(f"{where}: expected segments of its time, found {self.segments}")

    @property
    def is_duplicate(self) -> bool:
        """Whether it repeats an older epoch."""
        return self.epoch != self.reference_epoch

    def find(self, segment_id: int) -> SegmentRecord | None:
        """The segment with this id, if it belongs to this epoch. O(log n)."""
        return self.segments.find(segment_id)


@dataclass(frozen=True, slots=True)
class CutSpan:
    """The segments of a stream cut, and the highest epoch that each belongs to, up to that of the newest of them.

    Args:
        segments: ascending by id.
        epochs: an epoch for each of their ids.

    Raises:
        ValueError: other ids, or an epoch before the creation of its segment.
    """

    segments: Segments = NO_SEGMENTS
    epochs: IdMap = NOTHING

    def __post_init__(self) -> None:
        if not np.array_equal(self.segments.ids, self.epochs.ids):
            raise ValueError(f"expected an epoch for each of {self.segments}, found {self.epochs}")
        if (self.epochs.values_array < self.segments.epochs).any():
            raise ValueError(f"expected epochs from the creation of each segment on, found {self.epochs}")

    @property
    def low(self) -> int:
        """The lowest of the epochs; 0 without segments."""
        return int(self.epochs.values_array.min(initial=EPOCH_MAX)) if len(self.epochs) else 0

    @property
    def high(self) -> int:
        """The highest of the epochs; 0 without segments."""
        return int(self.epochs.values_array.max(initial=0))


NO_SPAN: Final = CutSpan()


@dataclass(frozen=True, slots=True)
class TruncationRecord:
    """Where a stream begins now: the cut before which everything is deleted, or is about to be.

    Which segments are gone, and which are being deleted, follows from the cuts (`truncation.deleted_before`): written
    out they would grow with the stream's age, to more than a record can hold after days of one scale a second.

    Args:
        cut: offsets by segment id; empty = at the very beginning.
        span: the segments of the cut.
        last_cut: while `updating`, the cut that the stream began with before; empty = at the very beginning.
        last_span: the segments of that one.
        deleted_count: how many segments are gone.
        to_delete_count: how many are being deleted; 0 unless `updating`.
        size_till: how much lay before the cut, in the stream's offset unit, since the stream began.
        updating: whether the truncation is still being carried out.
        workflow_id: the truncation that wrote this record last; None = none has.

    Raises:
        ValueError: a span of other segments, a number below 0, or something to delete that nobody deletes.
    """

    cut: IdMap = NOTHING
    span: CutSpan = NO_SPAN
    last_cut: IdMap = NOTHING
    last_span: CutSpan = NO_SPAN
    deleted_count: int = 0
    to_delete_count: int = 0
    size_till: int = 0
    updating: bool = False
    workflow_id: UUID | None = None

    def __post_init__(self) -> None:
        for cut, span in ((self.cut, self.span), (self.last_cut, self.last_span)):
            if not np.array_equal(cut.ids, span.segments.ids):
                raise ValueError(f"truncation: expected the span of {cut}, found that of {span.segments}")
        if (self.to_delete_count or len(self.last_cut)) and not self.updating:
            raise ValueError(f"truncation: expected nothing to delete unless it is updating, found {self}")
        numbers = {"deleted_count": self.deleted_count, "to_delete_count": self.to_delete_count}
        check_least("truncation", 0, size_till=self.size_till, **numbers)


NO_TRUNCATION: Final = TruncationRecord()
"""As a stream is created."""


@dataclass(frozen=True, slots=True)
class EpochTransition:
    """A scale that was asked for and is not finished: which segments are replaced by what.

    The new segments are numbered from `first_number` on, in the order of their ranges, and belong to the epoch after
    the active one.

    Args:
        active_epoch: the epoch whose segments are replaced.
        time_ms: when it was asked for, milliseconds since 1970; the new epoch begins no earlier.
        segments_to_seal: ids of segments of the active epoch.
        first_number: number of the first new segment.
        new_ranges: their key ranges, in the order that they were asked for in.

    Raises:
        ValueError: one of both sides is empty, or a number out of bounds.
    """

    active_epoch: int = 0
    time_ms: int = 0
    segments_to_seal: IdSet = NO_IDS
    first_number: int = 0
    new_ranges: KeyRanges = field(default_factory=KeyRanges)

    def __post_init__(self) -> None:
        check_epoch("transition", self.active_epoch + 1, 0)
        check_least("transition", 0, time_ms=self.time_ms, active_epoch=self.active_epoch)
        if bool(len(self.segments_to_seal)) != bool(len(self.new_ranges)):
            raise ValueError(f"transition: expected segments to seal and new ranges, found one of them: {self}")
        if not 0 <= self.first_number <= NUMBER_MAX - len(self.new_ranges):
            raise ValueError(f"transition: expected a segment number, found {self.first_number}")

    @property
    def is_empty(self) -> bool:
        """Whether no scale is under way."""
        return not len(self.new_ranges)

    @property
    def new_epoch(self) -> int:
        """The epoch that it leads to."""
        return self.active_epoch + 1

    @property
    def new_ids(self) -> Integers:
        """Ids of the new segments, in the order of their ranges."""
        first = make_id(self.new_epoch, self.first_number)
        return np.arange(first, first + len(self.new_ranges), dtype=np.int64)

    def new_segments(self, creation_time_ms: int) -> Segments:
        """The segments that it creates, when their epoch begins at a time."""
        return Segments.make(self.new_ids, creation_time_ms, self.new_ranges.starts, self.new_ranges.ends)


NO_TRANSITION: Final = EpochTransition()
"""While no scale is under way."""


@dataclass(frozen=True, slots=True)
class CommittingTransactions:
    """Transactions of one epoch that are being committed, in this order.

    Args:
        epoch: the epoch in which they began.
        transaction_ids: in the order to commit; none = no commit is under way.
        active_epoch: if they began with other segments than those of today: the epoch that was active when this was
            found out. Two duplicate epochs follow it, and the transactions go into the first.

    Raises:
        ValueError: too many, one twice, or an active epoch while nothing is committed.
    """

    epoch: int = 0
    transaction_ids: tuple[UUID, ...] = ()
    active_epoch: int | None = None

    def __post_init__(self) -> None:
        check_epoch("committing transactions", self.epoch, 0)
        if len(set(self.transaction_ids)) < len(self.transaction_ids):
            raise ValueError("committing transactions: expected each once")
        if len(self.transaction_ids) > COMMITTED_AT_ONCE_MAX:
            found = len(self.transaction_ids)
            raise ValueError(f"committing transactions: expected at most {COMMITTED_AT_ONCE_MAX}, found {found}")
        if self.active_epoch is not None and (self.is_empty or not 0 <= self.active_epoch <= EPOCH_MAX - 2):
            raise ValueError(f"committing transactions: expected an active epoch of a commit, found {self}")

    @property
    def is_empty(self) -> bool:
        """Whether no commit is under way."""
        return not self.transaction_ids

    @property
    def is_rolling(self) -> bool:
        """Whether the transactions began with other segments than those of today."""
        return self.active_epoch is not None

    def rolling(self, active_epoch: int) -> CommittingTransactions:
        """The same, as a rolling commit after this active epoch."""
        return replace(self, active_epoch=active_epoch)


NO_COMMIT: Final = CommittingTransactions()
"""While no commit is under way."""


@dataclass(frozen=True, slots=True, order=True)
class RetentionEntry:
    """A recorded cut, without the cut.

    Args:
        recording_time_ms: when it was recorded, milliseconds since 1970; its key.
        recorded_size: how much lay before it, in the stream's offset unit.
    """

    recording_time_ms: int
    recorded_size: int


class RetentionSet(Sequence[RetentionEntry]):
    """All recorded cuts, as two columns; reads as a sequence of entries.

    Args:
        times_ms: when each was recorded, strictly ascending.
        sizes: how much lay before each, in the stream's offset unit.

    Raises:
        ValueError: times that do not ascend, or another count of sizes.
    """

    __slots__ = ("sizes", "times_ms")

    def __init__(self, times_ms: ArrayLike = (), sizes: ArrayLike = ()) -> None:
        self.times_ms = integers(times_ms)
        self.sizes = integers(sizes)
        if self.times_ms.shape != self.sizes.shape or (self.times_ms[1:] <= self.times_ms[:-1]).any():
            raise ValueError("retention set: expected ascending times, and a size for each")

    def __len__(self) -> int:
        return len(self.times_ms)

    @overload
    def __getitem__(self, index: int) -> RetentionEntry: ...
    @overload
    def __getitem__(self, index: slice) -> RetentionSet: ...
    def __getitem__(self, index: int | slice) -> RetentionEntry | RetentionSet:
        if isinstance(index, slice):
            return RetentionSet(self.times_ms[index].copy(), self.sizes[index].copy())
        return RetentionEntry(int(self.times_ms[index]), int(self.sizes[index]))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RetentionSet):
            return NotImplemented
        return np.array_equal(self.times_ms, other.times_ms) and np.array_equal(self.sizes, other.sizes)

    def __hash__(self) -> int:
        return hash((self.times_ms.tobytes(), self.sizes.tobytes()))

    def __repr__(self) -> str:
        return f"<{len(self)} recorded cuts>"


@dataclass(frozen=True, slots=True)
class StreamCutRecord:
    """A recorded cut.

    Args:
        recording_time_ms: when it was recorded, milliseconds since 1970; its key.
        recorded_size: how much lay before it, in the stream's offset unit.
        cut: offsets by segment id.

    Raises:
        ValueError: a size below 0.
    """

    recording_time_ms: int
    recorded_size: int
    cut: IdMap

    def __post_init__(self) -> None:
        check_least("stream cut", 0, recorded_size=self.recorded_size)

    @property
    def entry(self) -> RetentionEntry:
        """What the retention set says of it."""
        return RetentionEntry(self.recording_time_ms, self.recorded_size)


def _check_tiles(where: str, segments: Segments) -> None:
    order = np.argsort(segments.key_starts)
    starts, ends = segments.key_starts[order], segments.key_ends[order]
    if not len(starts) or starts[0] != 0.0 or ends[-1] != 1.0 or (starts[1:] != ends[:-1]).any():
        raise ValueError(f"{where}: expected segments that tile [0, 1), found {segments}")
