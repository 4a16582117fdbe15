"""Truncating a stream: it begins at a cut from now on, and what lies before is deleted.

A truncation is begun with the record of the cut, carried out, and completed. What is to be deleted lies between the cut
that the stream began with and the new one; what is gone lies before the former. Questions about older times see through
it: whatever was deleted is replaced by what the stream begins with now at those keys.

Source: PDP-32.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from uuid import UUID

import numpy as np

from accel.errors import InvalidArgument
from accel.history.cuts import PlacedCut, is_equal_or_after
from accel.history.epochs import offsets_at_start
from accel.history.id_columns import NOTHING, IdMap
from accel.history.key_profile import KeyProfile
from accel.history.records import NO_SPAN, EpochRecord, TruncationRecord
from accel.history.segments import Segments
from accel.history.states import StreamState, refuse_sealed_truncation


def placed(truncation: TruncationRecord) -> PlacedCut | None:
    """The cut that a stream begins with; None if it was never truncated."""
    return PlacedCut(truncation.cut, truncation.span) if len(truncation.cut) else None


def refuse_truncation(now: TruncationRecord, cut: PlacedCut, state: StreamState, *, is_valid: bool) -> None:
    """A truncation can begin if none is under way, at a valid cut that is not before the last one.

    Args:
        now: the record as it stands.
        cut: where the stream is to begin.
        state: where the stream stands.
        is_valid: whether one can stand at this cut (`cuts.is_valid`).

    Raises:
        InvalidArgument: one of that is not so.
        IllegalState: the stream is sealed.
    """
    if now.updating:
        raise InvalidArgument(f"expected no truncation under way, found one to {now.cut}")
    if not is_valid:
        raise InvalidArgument(f"expected a cut that covers all keys once, found {cut.cut}")
    before = placed(now)
    if before is not None and not is_equal_or_after(cut, before):
        raise InvalidArgument(f"expected a cut at or after {now.cut}, found {cut.cut}")
    refuse_sealed_truncation(state)


def begun(
    now: TruncationRecord, cut: PlacedCut, to_delete_count: int, size: int, workflow_id: UUID
) -> TruncationRecord:
    """The record of a truncation that begins.

    Args:
        now: the record as it stands, not updating.
        cut: where the stream is to begin.
        to_delete_count: how many segments end before that (`ending_before`).
        size: how much lies between the last cut (or the stream's beginning) and this one, in its offset unit.
        workflow_id: of this truncation.
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


def begun_by(now: TruncationRecord, wanted: TruncationRecord, base_id: UUID | None) -> TruncationRecord | None:
    """The record of a truncation that begins; None if it has begun already, or another one came after it.

    Args:
        now: the record as it stands.
        wanted: the record to write.
        base_id: what the record named when the truncation was planned: no other one is replaced.
    """
    return wanted if now.workflow_id == base_id else None


def completed_by(now: TruncationRecord, workflow_id: UUID) -> TruncationRecord | None:
    """As `completed`, if the record was written by this truncation; None otherwise."""
    return completed(now) if now.workflow_id == workflow_id else None


def completed(now: TruncationRecord) -> TruncationRecord | None:
    """The record of a truncation that was carried out; None if that is written already."""
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
    """The cut before which all is gone; None if nothing is.

    Segments of a stream that are gone: those between its beginning and this cut, less the cut's own. Those that are
    being deleted: between this cut and the one that the stream begins with, less that one's own.
    """
    if not truncation.updating:
        return placed(truncation)
    return PlacedCut(truncation.last_cut, truncation.last_span) if len(truncation.last_cut) else None


def ending_before(cut: PlacedCut, between: Iterable[Segments]) -> Iterator[Segments]:
    """Those of some segments that end before a cut.

    Args:
        cut: where the stream is to begin.
        between: segments between an earlier cut (or the stream's beginning) and this one, in parts (`cuts.between`).
    """
    for part in between:
        ending = part.where(cut.cut.positions_of(part.ids) < 0)
        if len(ending):
            yield ending


def head(truncation: TruncationRecord, first: EpochRecord) -> IdMap:
    """Where a stream begins: its truncation, or the beginning of its first epoch."""
    return truncation.cut if len(truncation.cut) else offsets_at_start(first)


def segments_at(record: EpochRecord, truncation: TruncationRecord) -> IdMap:
    """The segments of an epoch as far as they are still there, each with the offset that it begins with.

    Where a segment was deleted, those that the stream begins with instead at its keys are given. O(n log n).

    Args:
        record: the epoch.
        truncation: the stream's.
    """
    cut, span = truncation.cut, truncation.span
    if not len(cut) or record.epoch > span.high:
        return offsets_at_start(record)
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
