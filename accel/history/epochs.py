"""From one epoch to the next: what changed, how often segments were split and merged, and who follows whom.

Epochs are written before the stream moves to them: first the record of the new epoch, then what changed in the chunk of
the history, then which epoch sealed each segment, and at last the current epoch. All of it follows from two records, so
that whoever repeats it writes the same.

Source: PDP-32.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from accel.errors import NotInHistory, Sought
from accel.history.history_chunk import HistoryDelta
from accel.history.id_columns import IdMap, positions_in
from accel.history.ids import make_id, segment_text
from accel.history.key_ranges import splits_and_merges
from accel.history.records import UNKNOWN_COUNT, EpochRecord
from accel.history.segments import NO_SEGMENTS, KeyRanges, SegmentRecord, Segments


@dataclass(frozen=True, slots=True)
class EpochSummary:
    """An epoch as its owner sees it.

    Args:
        epoch: its number.
        time_ms: when it began, milliseconds since 1970.
        segments: its segments, ascending by id.
        splits: segments of the epoch before that were split.
        merges: segments of this one that were merged from several.
    """

    epoch: int
    time_ms: int
    segments: Segments
    splits: int
    merges: int


def next_counts(before: EpochRecord, old: KeyRanges, new: KeyRanges) -> tuple[int, int]:
    """Splits and merges from the stream's beginning on, when an epoch replaces some ranges of the one before it."""
    if UNKNOWN_COUNT in (before.splits, before.merges):
        return UNKNOWN_COUNT, UNKNOWN_COUNT
    splits, merges = splits_and_merges(old, new)
    return before.splits + splits, before.merges + merges


def delta_of(record: EpochRecord, before: EpochRecord | None) -> HistoryDelta:
    """What changed in an epoch, as the history tells it.

    Args:
        record: the epoch.
        before: the one before it; None for the first.

    Raises:
        ValueError: they are not neighbours.
    """
    if record.epoch != (0 if before is None else before.epoch + 1):
        raise ValueError(f"expected the epoch before {record.epoch}, found {before}")
    sealed = created = NO_SEGMENTS
    if not record.is_duplicate:
        created = record.segments.where(record.segments.epochs == record.epoch)
        sealed = NO_SEGMENTS if before is None else sealed_by(record, before)
    return HistoryDelta(record.epoch, record.reference_epoch, sealed, created, record.creation_time_ms)


def record_of(delta: HistoryDelta, before: EpochRecord | None, reference: EpochRecord | None) -> EpochRecord:
    """The record of an epoch whose record is lost, from what changed in it: the inverse of `delta_of`. O(n log n).

    Args:
        delta: what changed.
        before: the epoch before it; None for the first.
        reference: of a duplicate, the epoch that it repeats.

    Raises:
        ValueError: they do not fit together.
    """
    if delta.epoch != (0 if before is None else before.epoch + 1):
        raise ValueError(f"expected the epoch before {delta.epoch}, found {before}")
    if before is None:
        return EpochRecord(0, 0, delta.created, delta.time_ms, splits=0, merges=0)
    if delta.is_duplicate:
        if reference is None or reference.reference_epoch != delta.reference_epoch:
            raise ValueError(f"expected epoch {delta.reference_epoch}, found {reference}")
        return duplicate_of(reference, before, delta.time_ms)
    kept = before.segments.where(positions_in(delta.sealed.ids, before.segments.ids) < 0)
    splits, merges = next_counts(before, delta.sealed.ranges, delta.created.ranges)
    segments = Segments.joined((kept, delta.created))
    return EpochRecord(delta.epoch, delta.reference_epoch, segments, delta.time_ms, splits, merges)


def sealed_by(record: EpochRecord, before: EpochRecord) -> Segments:
    """The segments that an epoch seals: those of the one before it that do not belong to it. O(n log n)."""
    return before.segments.where(positions_in(record.segments.ids, before.segments.ids) < 0)


def duplicate_of(repeated: EpochRecord, before: EpochRecord, time_ms: int) -> EpochRecord:
    """An epoch that repeats the segments of another one: the same numbers and key ranges, under ids of its own.

    Args:
        repeated: whose segments come once more.
        before: the epoch that it follows.
        time_ms: when it begins, milliseconds since 1970.
    """
    epoch = before.epoch + 1
    ids = repeated.segments.numbers + make_id(epoch, 0)
    segments = Segments.make(ids, time_ms, repeated.segments.key_starts, repeated.segments.key_ends).ascending()
    splits, merges = next_counts(before, before.segments.ranges, segments.ranges)
    return EpochRecord(epoch, repeated.reference_epoch, segments, time_ms, splits, merges)


def advanced(now: EpochRecord, record: EpochRecord) -> EpochRecord | None:
    """The current epoch to write; None if the stream has moved there or further already."""
    return record if record.epoch > now.epoch else None


def segment_in(record: EpochRecord, segment_id: int) -> SegmentRecord:
    """A segment of an epoch.

    Raises:
        NotInHistory: it does not belong to it.
    """
    found = record.find(segment_id)
    if found is None:
        raise NotInHistory(
            f"expected a segment of epoch {record.epoch}, found {segment_text(segment_id)}", Sought.SEGMENT
        )
    return found


def successors(segment_id: int, sealing: EpochRecord, before: EpochRecord) -> dict[int, list[int]]:
    """The segments that follow one, each with all that it follows; ids ascend.

    Args:
        segment_id: a sealed segment.
        sealing: the epoch that sealed it.
        before: the epoch before that.

    Raises:
        NotInHistory: the segment does not belong to the epoch before.
    """
    return _related(segment_in(before, segment_id), sealing.segments, before.segments)


def predecessors(segment_id: int, created: EpochRecord, before: EpochRecord | None) -> dict[int, list[int]]:
    """The segments that one follows, each with all that follow it; ids ascend.

    Args:
        segment_id: a segment.
        created: the epoch of its creation.
        before: the epoch before that; None for the first, in which no segment follows another.

    Raises:
        NotInHistory: the segment does not belong to the epoch of its creation.
    """
    segment = segment_in(created, segment_id)
    return {} if before is None else _related(segment, before.segments, created.segments)


def summaries(records: Iterable[EpochRecord]) -> Iterator[EpochSummary]:
    """Epochs in a row as their owner sees them; splits and merges of the first are not told.

    Complexity: O(n log n) an epoch; holds two of them.
    """
    before: EpochRecord | None = None
    for record in records:
        splits, merges = (0, 0) if before is None else splits_and_merges(before.segments.ranges, record.segments.ranges)
        yield EpochSummary(record.epoch, record.creation_time_ms, record.segments, splits, merges)
        before = record


def offsets_at_start(record: EpochRecord) -> IdMap:
    """The beginning of all segments of an epoch, as a cut."""
    return IdMap(record.segments.ids.copy(), np.zeros(len(record.segments), dtype=np.int64))


def _related(segment: SegmentRecord, others: Segments, own: Segments) -> dict[int, list[int]]:
    related = _overlapping(others, segment.key_start, segment.key_end)
    if not len(related):
        return {}
    # One segment may be split into thousands: each is compared with those around it, not with all of the epoch.
    near = _overlapping(own, float(related.key_starts.min()), float(related.key_ends.max()))
    return {each.id: _overlapping(near, each.key_start, each.key_end).ids.tolist() for each in related}


def _overlapping(segments: Segments, start: float, end: float) -> Segments:
    return segments.where((segments.key_starts < end) & (start < segments.key_ends))
