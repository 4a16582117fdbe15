"""The bytes of stream cuts and of what belongs to them: truncation, retention, sealed sizes.

    | form              | fields                                                                                      |
    |-------------------|---------------------------------------------------------------------------------------------|
    | truncation        | segments of the cut, and of the last one while updating; for each columns places (offset,   |
    |                   | epoch of the span); deleted_count, to_delete_count, size_till, updating, workflow_id (16    |
    |                   | bytes, or none)                                                                             |
    | retention-set     | column entries (recording_time_ms, recorded_size)                                           |
    | stream-cut        | recording_time_ms, recorded_size; column cut (value = offset)                               |
    | sealed-sizes      | column sizes (value = size at the time of sealing): one shard                               |

Maps and sets of segment ids are packed as `id_columns` says. A shard of 1,000 sizes takes 4.5 kB.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from accel.history.codecs.history_form import HistoryForm
from accel.history.codecs.id_columns import packed_map, unpacked_map
from accel.history.codecs.numbers import optional_uuid, optional_uuid_bytes
from accel.history.codecs.segment_columns import (
    StoredSegments,
    make_rows,
    restored_segments,
    stored_segments,
)
from accel.history.rules.cuts import CutSpan
from accel.history.rules.ids import IdMap
from accel.history.rules.retention import RetentionSet, StreamCutRecord, TruncationRecord
from loaders.tables.columns import pack_columns, unpack_columns

PLACE: Final = np.dtype([("offset", "<i8"), ("epoch", "<i8")])
RETENTION_ENTRY: Final = np.dtype([("recording_time_ms", "<i8"), ("recorded_size", "<i8")])


class StoredTruncation(msgspec.Struct, frozen=True):
    """The stored fields of a `TruncationRecord`."""

    segments: StoredSegments
    places: bytes
    last_segments: StoredSegments
    last_places: bytes
    deleted_count: int
    to_delete_count: int
    size_till: int
    updating: bool
    workflow_id: bytes


class StoredRetention(msgspec.Struct, frozen=True):
    """The stored fields of a `RetentionSet`."""

    entries: bytes


class StoredCut(msgspec.Struct, frozen=True):
    """The stored fields of a `StreamCutRecord`."""

    recording_time_ms: int
    recorded_size: int
    cut: bytes


class StoredSizes(msgspec.Struct, frozen=True):
    """The stored fields of a shard of sealed sizes."""

    sizes: bytes


def _stored_truncation(record: TruncationRecord) -> StoredTruncation:
    return StoredTruncation(
        segments=stored_segments(record.span.segments),
        places=_packed_places(record.cut, record.span),
        last_segments=stored_segments(record.last_span.segments),
        last_places=_packed_places(record.last_cut, record.last_span),
        deleted_count=record.deleted_count,
        to_delete_count=record.to_delete_count,
        size_till=record.size_till,
        updating=record.updating,
        workflow_id=optional_uuid_bytes(record.workflow_id),
    )


def _restored_truncation(fields: StoredTruncation, where: str) -> TruncationRecord:
    cut, span = _restored_places(fields.segments, fields.places, where)
    last_cut, last_span = _restored_places(fields.last_segments, fields.last_places, f"{where}, last")
    return TruncationRecord(
        cut=cut,
        span=span,
        last_cut=last_cut,
        last_span=last_span,
        deleted_count=fields.deleted_count,
        to_delete_count=fields.to_delete_count,
        size_till=fields.size_till,
        updating=fields.updating,
        workflow_id=optional_uuid(fields.workflow_id),
    )


def _packed_places(cut: IdMap, span: CutSpan) -> bytes:
    # Cut and span are of the same segments, in the same order: their ids stand there once.
    return pack_columns(make_rows(PLACE, offset=cut.values_array, epoch=span.epochs.values_array))


def _restored_places(stored: StoredSegments, packed: bytes, where: str) -> tuple[IdMap, CutSpan]:
    segments = restored_segments(stored, where)
    places = unpack_columns(packed, PLACE, f"{where}, places")
    epochs = IdMap(segments.ids.copy(), places["epoch"].copy())
    return IdMap(segments.ids.copy(), places["offset"].copy()), CutSpan(segments, epochs)


def _stored_retention(entries: RetentionSet) -> StoredRetention:
    rows = make_rows(RETENTION_ENTRY, recording_time_ms=entries.times_ms, recorded_size=entries.sizes)
    return StoredRetention(pack_columns(rows))


def _restored_retention(fields: StoredRetention, where: str) -> RetentionSet:
    rows = unpack_columns(fields.entries, RETENTION_ENTRY, f"{where}, entries")
    return RetentionSet(rows["recording_time_ms"].copy(), rows["recorded_size"].copy())


def _stored_cut(record: StreamCutRecord) -> StoredCut:
    return StoredCut(record.recording_time_ms, record.recorded_size, packed_map(record.cut))


def _restored_cut(fields: StoredCut, where: str) -> StreamCutRecord:
    return StreamCutRecord(fields.recording_time_ms, fields.recorded_size, unpacked_map(fields.cut, f"{where}, cut"))


def _stored_sizes(sizes: IdMap) -> StoredSizes:
    return StoredSizes(packed_map(sizes))


def _restored_sizes(fields: StoredSizes, where: str) -> IdMap:
    return unpacked_map(fields.sizes, f"{where}, sizes")


TRUNCATION: Final = HistoryForm("truncation", 1, StoredTruncation, _stored_truncation, _restored_truncation)
RETENTION_SET: Final = HistoryForm("retention-set", 1, StoredRetention, _stored_retention, _restored_retention)
STREAM_CUT: Final = HistoryForm("stream-cut", 1, StoredCut, _stored_cut, _restored_cut)
SEALED_SIZES: Final = HistoryForm("sealed-sizes", 1, StoredSizes, _stored_sizes, _restored_sizes)
