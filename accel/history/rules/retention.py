"""Retention of a stream: recorded cuts, truncation to one of them, and the sizes that both use.

    RetentionSet          the times of recorded cuts, and the size before each cut
    StreamCutRecord       one recorded cut                                              written once
    TruncationRecord      the cut at which the stream begins now, and the data that is being deleted

**Retention.** Cuts are recorded from time to time, and the stream is truncated to one of them, by its limits:

    recorded cuts      0 ......... 100 ......... 200 ......... 300 .... now = 330
    minimum 150 ms                 ^ the newest that keeps 150 ms: the stream may be truncated here, and no further
    maximum 250 ms                 ^ the oldest that keeps no more than 250 ms

If no readers must be waited for, a stream is truncated to its minimum. Otherwise it is truncated to the position that
all readers have reached, but not beyond the minimum, and at least to the maximum, even past readers. If cuts are so far
apart that both limits contradict each other, the minimum decides: data within the minimum is never deleted.

**Truncation.** A truncation moves the beginning of a stream to a cut, and deletes the data before the cut. It begins
with the record of the cut, is carried out, and is completed. The data to be deleted is between the cut at which the
stream began and the new cut; the data before the former is already deleted. Queries about older times return the
segments at which the stream begins now instead of deleted segments of the same keys.

**Sizes.** The sizes of sealed segments are written into shards (an `IdMap` each) of many segments, so that a sum takes
one read for each shard and not one for each segment. A segment's shard follows from the epoch of its creation; or from
its number, as in the first draft, but then all duplicates of a segment are in one shard, which may grow without bound.
All sizes are in the stream's offset unit.

Threads: all records are immutable, any thread may read them.

Source: PDP-32; docs/explanation/history.md for the limits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, overload
from uuid import UUID

import numpy as np
from numpy.typing import ArrayLike

from accel.errors import InvalidArgument
from accel.history.rules.configuration import RetentionKind, RetentionPolicy, ShardBy
from accel.history.rules.cuts import NO_SPAN, CutSpan, PlacedCut, is_equal_or_after, is_valid, refuse_invalid
from accel.history.rules.epochs import EpochRecord, offsets_at_start
from accel.history.rules.segments import KeyProfile, Segments
from accel.history.rules.states import StreamState, refuse_sealed_truncation
from accel.history.rules.values import NOTHING, NUMBER_BITS, NUMBER_MASK, IdMap, Integers, check_least, integers


@dataclass(frozen=True, slots=True)
class TruncationRecord:
    """The cut at which a stream begins: all data before it is deleted, or is being deleted.

    The deleted segments, and those that are being deleted, follow from the cuts (`deleted_before`). A list of them
    would grow with the stream's age, beyond the size of a record after days of one scale a second.

    Args:
        cut: offsets by segment id; empty = the stream's creation.
        span: the segments of the cut.
        last_cut: while `updating`, the cut at which the stream began before; empty = the stream's creation.
        last_span: the segments of `last_cut`.
        deleted_count: number of deleted segments.
        to_delete_count: number of segments that are being deleted; 0 unless `updating`.
        size_till: size of the data before the cut since the stream's creation, in the stream's offset unit.
        updating: whether the truncation is still being carried out.
        workflow_id: the truncation that wrote this record last; None = the creation of the stream.

    Raises:
        ValueError: a span of other segments, a number below 0, or data to delete while no truncation is under way.
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
"""The record of a new stream."""


@dataclass(frozen=True, slots=True, order=True)
class RetentionEntry:
    """The time and size of a recorded cut.

    Args:
        recording_time_ms: time of its recording, milliseconds since 1970; its key.
        recorded_size: size of the stream before the cut since the stream's creation, in the stream's offset unit.
    """

    recording_time_ms: int
    recorded_size: int


class RetentionSet(Sequence[RetentionEntry]):
    """All recorded cuts, as two columns; reads as a sequence of entries.

    Args:
        times_ms: time of each cut's recording, strictly ascending.
        sizes: size before each cut, in the stream's offset unit.

    Raises:
        ValueError: times that do not ascend, or another number of sizes.
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
        recording_time_ms: time of its recording, milliseconds since 1970; its key.
        recorded_size: size of the stream before the cut since the stream's creation, in the stream's offset unit.
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
        """Its entry in the retention set."""
        return RetentionEntry(self.recording_time_ms, self.recorded_size)


def with_entry(now: RetentionSet, entry: RetentionEntry) -> RetentionSet | None:
    """The set with one more cut; None if the cut was not recorded after all cuts of the set."""
    if len(now) and entry.recording_time_ms <= now[-1].recording_time_ms:
        return None
    return RetentionSet(np.append(now.times_ms, entry.recording_time_ms), np.append(now.sizes, entry.recorded_size))


def without_ahead(now: RetentionSet, latest_ms: int) -> tuple[RetentionSet, Integers]:
    """The set without the cuts that a wrong clock recorded, and their times: those after the latest possible time."""
    known = entries_up_to(now, latest_ms)
    return known, now.times_ms[len(known) :]


def entries_up_to(now: RetentionSet, time_ms: int) -> RetentionSet:
    """The cuts that were recorded at or before a time."""
    return now[: int(np.searchsorted(now.times_ms, time_ms, side="right"))]


def without_up_to(now: RetentionSet, time_ms: int) -> RetentionSet | None:
    """The set without the cuts that were recorded at or before a time; None if there are none."""
    count = len(entries_up_to(now, time_ms))
    return now[count:] if count else None


def find_by_time(now: RetentionSet, time_ms: int) -> RetentionEntry | None:
    """The last cut that was recorded at or before a time. O(log n)."""
    return now[-1] if len(now := entries_up_to(now, time_ms)) else None


def find_by_size(now: RetentionSet, size: int) -> RetentionEntry | None:
    """The cut with the greatest size that is at most `size`; the last of several. O(n), as sizes have no order."""
    return _greatest(now, np.where(now.sizes <= size, now.sizes, -1))


def first_by_time(now: RetentionSet, time_ms: int) -> RetentionEntry | None:
    """The first cut that was recorded at or after a time. O(log n)."""
    at = int(np.searchsorted(now.times_ms, time_ms, side="left"))
    return now[at] if at < len(now) else None


def first_by_size(now: RetentionSet, size: int) -> RetentionEntry | None:
    """The first cut with a size of at least `size`. O(n)."""
    enough = np.flatnonzero(now.sizes >= size)
    return now[int(enough[0])] if len(enough) else None


def reference_before(now: RetentionSet, is_before: Callable[[RetentionEntry], bool]) -> RetentionEntry | None:
    """The last recorded cut that a cut is equal to or after.

    Complexity: O(log n) calls of `is_before`: each recorded cut was the stream's end, so it is after all earlier cuts.

    Args:
        now: the recorded cuts.
        is_before: returns whether the cut is equal to or after a recorded cut (`cuts.is_equal_or_after`).
    """
    low, high = 0, len(now)
    while low < high:
        middle = (low + high) // 2
        if is_before(now[middle]):
            low = middle + 1
        else:
            high = middle
    return now[low - 1] if low else None


def truncation_point(
    now: RetentionSet,
    policy: RetentionPolicy,
    now_ms: int,
    tail_size: int,
    read_by_all: RetentionEntry | None = None,
    *,
    has_readers: bool = False,
) -> RetentionEntry | None:
    """The recorded cut to which a stream is to be truncated.

    Args:
        now: the recorded cuts.
        policy: the limits of the data that is kept.
        now_ms: milliseconds since 1970.
        tail_size: size of the stream since its creation, in its offset unit.
        read_by_all: the last recorded cut that all readers have passed (`reference_before`); None = there is none.
        has_readers: whether there are readers to wait for.

    Returns:
        The cut, perhaps one to which the stream was truncated before; None if no data may be deleted.
    """
    by_time = policy.kind is RetentionKind.TIME
    end = now_ms if by_time else tail_size
    find, find_first = (find_by_time, first_by_time) if by_time else (find_by_size, first_by_size)
    newest = find(now, end - policy.minimum)
    if newest is None or not has_readers:
        return newest
    wanted = [cut for cut in (read_by_all, _limit(policy, now, end, find_first)) if cut is not None]
    return min(newest, max(wanted)) if wanted else None


def _limit(
    policy: RetentionPolicy,
    now: RetentionSet,
    end: int,
    find_first: Callable[[RetentionSet, int], RetentionEntry | None],
) -> RetentionEntry | None:
    # The first cut that keeps no more than the maximum: the cut before it would keep more. None if all data is within
    # the maximum, and by time also if no cut was recorded so long ago: the age of older data is then unknown.
    if policy.maximum is None or end <= policy.maximum:
        return None
    if policy.kind is RetentionKind.TIME and find_by_time(now, end - policy.maximum) is None:
        return None
    return find_first(now, end - policy.maximum)


def _greatest(now: RetentionSet, values: Integers) -> RetentionEntry | None:
    if not len(now) or values.max() < 0:
        return None
    return now[int(np.flatnonzero(values == values.max())[-1])]


def place_truncation(truncation: TruncationRecord) -> PlacedCut | None:
    """The cut at which a stream begins; None if it was never truncated."""
    return PlacedCut(truncation.cut, truncation.span) if len(truncation.cut) else None


def refuse_truncation(now: TruncationRecord, cut: PlacedCut, state: StreamState, *, is_valid: bool) -> None:
    """Refuse a truncation if one is under way, if the cut is not valid, or if it is before the stream's beginning.

    Args:
        now: the current record.
        cut: the new beginning of the stream.
        state: the state of the stream.
        is_valid: whether this cut is a valid position (`cuts.is_valid`).

    Raises:
        InvalidArgument: one of these reasons.
        IllegalState: the stream is sealed.
    """
    if now.updating:
        raise InvalidArgument(f"expected no truncation under way, found one to {now.cut}")
    refuse_invalid(cut, is_valid=is_valid)
    before = place_truncation(now)
    if before is not None and not is_equal_or_after(cut, before):
        raise InvalidArgument(f"expected a cut at or after {now.cut}, found {cut.cut}")
    refuse_sealed_truncation(state)


def with_truncation(
    now: TruncationRecord, cut: PlacedCut, to_delete_count: int, size: int, workflow_id: UUID
) -> TruncationRecord:
    """The record of a truncation that begins.

    Args:
        now: the current record, not updating.
        cut: the new beginning of the stream.
        to_delete_count: number of segments that end before that cut (`ending_before`).
        size: size of the data between the stream's present beginning and this cut, in its offset unit.
        workflow_id: the id of this truncation.
    """
    return TruncationRecord(
        cut=cut.cut,
        span=cut.span,
        last_cut=now.cut,
        last_span=now.span,
        deleted_count=now.deleted_count,
        to_delete_count=to_delete_count,
        size_till=now.size_till + size,
        updating=True,
        workflow_id=workflow_id,
    )


def with_planned_truncation(
    now: TruncationRecord, wanted: TruncationRecord, base_id: UUID | None
) -> TruncationRecord | None:
    """The record of a truncation that begins; None if it has begun already, or another truncation followed it.

    Args:
        now: the current record.
        wanted: the record to write.
        base_id: the workflow id in the record when the truncation was planned; a record with another id stays.
    """
    return wanted if now.workflow_id == base_id else None


def after_truncation_by(now: TruncationRecord, workflow_id: UUID) -> TruncationRecord | None:
    """As `after_truncation`, if the record was written by this truncation; None otherwise."""
    return after_truncation(now) if now.workflow_id == workflow_id else None


def without_truncation(
    now: TruncationRecord, workflow_id: UUID, base_id: UUID | None, size: int
) -> TruncationRecord | None:
    """The record of a truncation that is given up before it deletes data; None if the record is not its own.

    The record keeps the id of this truncation, so that a late process does not begin it again.

    Args:
        now: the current record.
        workflow_id: the id of this truncation.
        base_id: the workflow id in the record when the truncation was planned.
        size: size of the data between the previous beginning of the stream and the cut, in its offset unit.
    """
    if not now.updating:
        return replace(now, workflow_id=workflow_id) if now.workflow_id == base_id else None
    if now.workflow_id not in (workflow_id, base_id):
        return None
    return replace(
        now,
        cut=now.last_cut,
        span=now.last_span,
        last_cut=NOTHING,
        last_span=NO_SPAN,
        to_delete_count=0,
        size_till=now.size_till - size,
        updating=False,
        workflow_id=workflow_id,
    )


def after_truncation(now: TruncationRecord) -> TruncationRecord | None:
    """The record of a truncation that was carried out; None if no truncation is under way."""
    if not now.updating:
        return None
    deleted_count = now.deleted_count + now.to_delete_count
    return replace(
        now,
        last_cut=NOTHING,
        last_span=NO_SPAN,
        deleted_count=deleted_count,
        to_delete_count=0,
        updating=False,
    )


def deleted_before(truncation: TruncationRecord) -> PlacedCut | None:
    """The cut before which all data is deleted; None if no data is deleted.

    The deleted segments are those between the stream's creation and this cut, without those of the cut. The segments
    being deleted are those between this cut and the cut at which the stream begins, without those of the latter.
    """
    if not truncation.updating:
        return place_truncation(truncation)
    return PlacedCut(truncation.last_cut, truncation.last_span) if len(truncation.last_cut) else None


def ending_before(cut: PlacedCut, between: Iterable[Segments]) -> Iterator[Segments]:
    """Those of some segments that end before a cut.

    Args:
        cut: the new beginning of the stream.
        between: segments between an earlier cut (or the stream's creation) and this one, in parts (`cuts.between`).
    """
    for part in between:
        ending = part.where(cut.cut.positions_of(part.ids) < 0)
        if len(ending):
            yield ending


def head(truncation: TruncationRecord, first: EpochRecord) -> IdMap:
    """The cut at which a stream begins: that of its truncation, or the beginning of its first epoch."""
    return truncation.cut if len(truncation.cut) else offsets_at_start(first)


def segments_at(record: EpochRecord, truncation: TruncationRecord) -> IdMap:
    """The segments of an epoch that still exist, each with its first offset.

    At the keys of a deleted segment, the segments at which the stream begins now are returned. O(n log n).

    Args:
        record: the epoch.
        truncation: the stream's truncation.

    Raises:
        InvalidArgument: the stream begins at a cut that no reader can be at, as this epoch shows.
    """
    cut, span = truncation.cut, truncation.span
    if not len(cut) or record.epoch > span.high:
        return offsets_at_start(record)
    begins = PlacedCut(cut, span)
    refuse_invalid(begins, is_valid=is_valid(begins, [record.segments]))
    if record.epoch < span.low:
        return cut
    of_cut = KeyProfile.of(span.segments.ranges, cut.ids)
    of_epoch = KeyProfile.of(record.segments.ranges, record.segments.ids)
    own = record.segments
    is_kept = (of_cut.lowest_over(own.ranges) < own.ids) | (cut.positions_of(own.ids) >= 0)
    kept = own.ids[is_kept]
    is_instead = of_epoch.lowest_over(span.segments.ranges) < cut.ids
    ids = np.union1d(kept, cut.ids[is_instead])
    return IdMap(ids, cut.get_many(ids, 0))


UNKNOWN_SIZE: Final = -1


def shard_numbers(ids: Integers, shard_size: int, shard_by: ShardBy = ShardBy.EPOCH) -> Integers:
    """The shard that contains the size of each segment."""
    values = ids >> NUMBER_BITS if shard_by is ShardBy.EPOCH else ids & NUMBER_MASK
    return values // shard_size


def by_shard(sizes: IdMap, shard_size: int, shard_by: ShardBy = ShardBy.EPOCH) -> dict[int, IdMap]:
    """Sizes by shard number, ascending."""
    shards = shard_numbers(sizes.ids, shard_size, shard_by)
    return {
        shard: IdMap(sizes.ids[shards == shard], sizes.values_array[shards == shard])
        for shard in np.unique(shards).tolist()
    }


def with_sizes(shard: IdMap, sizes: IdMap) -> IdMap | None:
    """A shard with sizes added; None if it has all of them already.

    Existing sizes are kept: sizes are read after the segments are sealed, and do not change any more.
    """
    new = shard.positions_of(sizes.ids) < 0
    if not new.any():
        return None
    ids = np.concatenate((shard.ids, sizes.ids[new]))
    order = np.argsort(ids)
    return IdMap(ids[order], np.concatenate((shard.values_array, sizes.values_array[new]))[order])


def unsized(segments: Segments, end: IdMap) -> Integers:
    """Ids of segments whose sealed sizes are needed for the size before a cut: those that are not in the cut."""
    return segments.ids[end.positions_of(segments.ids) < 0]


def size_of(segments: Segments, start: IdMap, end: IdMap, sizes: IdMap) -> int:
    """The size of some segments between two cuts.

    | a segment of | its part that counts                   |
    |--------------|----------------------------------------|
    | both cuts    | from the start's to the end's offset   |
    | the end only | up to the end's offset                 |
    | the start    | from the start's offset to the end     |
    | neither cut  | the whole segment                      |

    An unknown size counts as 0, and so does a negative part.

    Args:
        segments: the segments between the cuts (`cuts.between`), or a part of them.
        start: offsets by segment id.
        end: offsets by segment id.
        sizes: known sizes of sealed segments, by id.
    """
    begins = np.maximum(start.get_many(segments.ids, 0), 0)
    is_ended = end.positions_of(segments.ids) >= 0
    ends = np.where(is_ended, end.get_many(segments.ids, 0), sizes.get_many(segments.ids, UNKNOWN_SIZE))
    return int(np.maximum(ends - begins, 0).sum())


def size_between(
    parts: Iterable[Segments], start: IdMap, end: IdMap, read_sizes: Callable[[Integers], Mapping[int, int]]
) -> int:
    """The size of a stream between two cuts.

    Args:
        parts: the segments between the cuts, in parts (`cuts.between`).
        start: offsets by segment id.
        end: offsets by segment id.
        read_sizes: returns known sealed sizes by segment id; called once a part.
    """
    total = 0
    for part in parts:
        asked = unsized(part, end)
        total += size_of(part, start, end, IdMap.of(read_sizes(asked)) if len(asked) else IdMap())
    return total


def size_till(between: int, recorded_size: int) -> int:
    """The size before a cut: the size between it and an earlier cut, and the size before the earlier cut.

    Raises:
        InvalidArgument: a recorded size below 0.
    """
    if recorded_size < 0:
        raise InvalidArgument(f"expected a recorded size of at least 0, found {recorded_size}")
    return between + recorded_size
