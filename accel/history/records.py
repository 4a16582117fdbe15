"""The bytes of all records of a stream's history: each kind has a named, versioned form with a checksum.

    | bytes | field         | meaning                                                        |
    |-------|---------------|----------------------------------------------------------------|
    | 1     | name's length | 1 to 255                                                       |
    | n     | name          | the form's name                                                |
    | 2     | version       | the form's version                                             |
    | 4     | CRC-32        | of the name, the version (2 bytes) and the fields              |
    | rest  | fields        | a MessagePack map from field names to values                   |

All integers are big endian. A table stores a checksum around each value already. These records have a separate
checksum because they are also used without their table: immutable values of a history stay in caches as bytes for
hours, and are decoded several times.

The stored fields follow from the records' classes (`loaders.tables.records`): states, kinds and units by their names,
UUIDs as 16 bytes (no bytes for None), ids of transactions concatenated, maps, sets and segments as packed columns
(`accel.history.columns`). Times of epochs are packed columns, too, as they ascend in steps that differ little. For a
stream with an epoch each second, give or take 200 ms, a leaf of the index of times takes 125 kB, a part 1.4 kB, the
root after a year 2.1 kB at most. A shard of 1,000 sizes takes 4.5 kB.
Keys and rules: docs/reference/history-records.md.

Keys without a value (marks of epochs with transactions, marks of batches) have no form.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Sized
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec
import numpy as np
from numpy.typing import NDArray

from accel.errors import InvalidArgument
from accel.history.columns import (
    StoredChunk,
    StoredSegments,
    key_bits,
    keys_of_bits,
    make_rows,
    pack_chunk,
    pack_map,
    pack_segments,
    pack_set,
    restore_chunk,
    restore_segments,
    unpack_map,
    unpack_set,
)
from accel.history.rules.configuration import (
    SEGMENTS_MAX,
    ConfigurationRecord,
    HistoryLayout,
    OffsetUnit,
    RetentionKind,
    RetentionPolicy,
    ScalingKind,
    ScalingPolicy,
    StreamConfiguration,
)
from accel.history.rules.cuts import CutSpan
from accel.history.rules.epochs import EpochRecord, EpochTransition, HistoryChunk
from accel.history.rules.requests import (
    REASON_SIZE_MAX,
    CommitPlan,
    Plan,
    RequestStatus,
    ScalePlan,
    TruncationPlan,
    UpdatePlan,
    WorkflowRequest,
)
from accel.history.rules.retention import RetentionSet, StreamCutRecord, TruncationRecord
from accel.history.rules.segments import KeyRanges, Segments
from accel.history.rules.states import ScopeEntry, StreamEntry, StreamState, StreamStatus
from accel.history.rules.transactions import (
    ActiveTransaction,
    CommitOrder,
    CommittingTransactions,
    CompletedTransaction,
)
from accel.history.rules.values import (
    EPOCH_MAX,
    INT64_MAX,
    NOTHING,
    NUMBER_MAX,
    IdMap,
    IdSet,
    checked_integer,
    segment_text,
)
from loaders.errors import CorruptObject, FormatLimit
from loaders.tables.columns import ROWS_MAX, pack_columns, unpack_columns
from loaders.tables.records import (
    Bounded,
    ByName,
    Columns,
    Converted,
    Nested,
    OneField,
    OptionalUuidBytes,
    Packing,
    RecordForm,
    RowsView,
)
from range_index.epoch_times import Block, BlockKind, BlockTimes, EpochTimesRoot
from range_index.runs import pack, unpack

T = TypeVar("T")

UUID_SIZE_BYTES: Final = 16
RANGE: Final = np.dtype([("start", "<i8"), ("end", "<i8")])
"""Bits of float64 keys, read as integers."""
TIME: Final = np.dtype([("time_ms", "<i8")])
PLACE: Final = np.dtype([("offset", "<i8"), ("epoch", "<i8")])
RETENTION_ENTRY: Final = np.dtype([("recording_time_ms", "<i8"), ("recorded_size", "<i8")])
POSITION: Final = np.dtype([("position", "<i8")])

_CHECKSUM = struct.Struct(">I")
_VERSION = struct.Struct(">H")
_UUID = OptionalUuidBytes()
_VIEW = "\0view"  # a name that no field has


class HistoryForm(RecordForm[T]):
    """The form of a record of a history, with a checksum before its fields. Threads: immutable."""

    def encode(self, value: T) -> bytes:
        """The record as bytes, which are decoded again: an unreadable record is never written. O(size), twice.

        Raises:
            InvalidArgument: the bytes would be refused, or decoded as another record.
            FormatLimit: more than 1,048,576 rows of one kind.
        """
        try:
            data = super().encode(value)
            same = self.decode(data, f"a record to be written, form {self.name!r}") == value
        except FormatLimit:
            raise
        except (ValueError, TypeError, OverflowError, CorruptObject, msgspec.ValidationError) as error:
            raise InvalidArgument(
                f"expected a record of form {self.name!r} that can be read, found: {error}"
            ) from error
        if not same:
            raise InvalidArgument(f"expected a record of form {self.name!r} that is decoded unchanged, found {value!r}")
        return data

    def expand(self, fields: Any) -> object:
        """The record as dicts, lists, text and numbers, for output; packed columns are unpacked."""
        value = self.restore(fields, self.name)
        return plain(fields if isinstance(value, int | str | UUID) else value)

    def _enclose(self, stored: bytes) -> bytes:
        return _CHECKSUM.pack(self._checksum(self.version, stored)) + stored

    def _disclose(self, data: bytes, version: int, where: str) -> bytes:
        if len(data) < _CHECKSUM.size:
            raise CorruptObject(where, len(data), expected="a checksum of 4 bytes", found=f"{len(data)}")
        stored = data[_CHECKSUM.size :]
        expected, found = _CHECKSUM.unpack_from(data)[0], self._checksum(version, stored)
        if expected != found:
            raise CorruptObject(where, len(data), expected=f"a CRC-32 of {expected:#010x}", found=f"{found:#010x}")
        return stored

    def _checksum(self, version: int, stored: bytes) -> int:
        return zlib.crc32(stored, zlib.crc32(self.name.encode() + _VERSION.pack(version)))


def plain(value: object) -> object:
    """A record, or its fields, as values that JSON can express, its rows as `RowsView`s. O(size) without the rows."""
    views: list[RowsView] = []

    def viewed(rows: object) -> object:
        views.append(_view(rows))
        return {_VIEW: len(views) - 1}

    return _placed(msgspec.json.decode(msgspec.json.encode(value, enc_hook=viewed)), views)


def _placed(value: object, views: list[RowsView]) -> object:
    if isinstance(value, dict):
        if _VIEW in value:
            return views[value[_VIEW]]
        return {name: _placed(item, views) for name, item in value.items()}
    return [_placed(item, views) for item in value] if isinstance(value, list) else value


def _view(rows: object) -> RowsView:
    if not isinstance(rows, Sized):
        raise TypeError(f"expected a value that JSON can express, found {type(rows).__name__}")
    return RowsView(len(rows), partial(_first, rows))


def _first(rows: object, count: int) -> object:
    return msgspec.json.decode(msgspec.json.encode(_shown_rows(rows, count), enc_hook=_shown_rows))


def _shown_rows(value: object, count: int | None = None) -> object:
    if isinstance(value, Segments):
        return [_segment(*row) for row in value.rows[:count].tolist()]
    if isinstance(value, IdMap):
        return {segment_text(item): number for item, number in islice(value.items(), count)}
    if isinstance(value, IdSet):
        return [segment_text(item) for item in islice(value, count)]
    if isinstance(value, KeyRanges | HistoryChunk | RetentionSet | array):
        return list(islice(value, count))
    raise TypeError(f"expected a value that JSON can express, found {type(value).__name__}")


def _segment(segment_id: int, creation_time_ms: int, key_start: float, key_end: float) -> dict[str, object]:
    name = segment_text(segment_id)
    return {"id": name, "creation_time_ms": creation_time_ms, "key_start": key_start, "key_end": key_end}


class SegmentColumns(Packing[Segments]):
    """Segments as packed columns; more than `rows_max` segments are refused before they are unpacked."""

    stored = StoredSegments

    def __init__(self, rows_max: int = ROWS_MAX) -> None:
        self.rows_max = rows_max

    def pack(self, value: Segments) -> StoredSegments:
        """The packed columns."""
        return pack_segments(value)

    def unpack(self, stored: StoredSegments, where: str) -> Segments:
        """The segments."""
        return restore_segments(stored, where, self.rows_max)


class MapColumns(Packing[IdMap]):
    """Numbers by segment id as packed columns.

    Args:
        may_be_missing: whether an empty map is stored as no bytes.
    """

    stored = bytes

    def __init__(self, *, may_be_missing: bool = False) -> None:
        self.may_be_missing = may_be_missing

    def pack(self, value: IdMap) -> bytes:
        """The packed columns."""
        return b"" if self.may_be_missing and not len(value) else pack_map(value)

    def unpack(self, stored: bytes, where: str) -> IdMap:
        """The map."""
        return NOTHING if self.may_be_missing and not stored else unpack_map(stored, where)


class SetColumns(Packing[IdSet]):
    """Segment ids of one epoch as packed columns."""

    stored = bytes

    def pack(self, value: IdSet) -> bytes:
        """The packed columns."""
        return pack_set(value)

    def unpack(self, stored: bytes, where: str) -> IdSet:
        """The ids."""
        return unpack_set(stored, where, SEGMENTS_MAX)


class UuidRow(Packing[tuple[UUID, ...]]):
    """Concatenated UUIDs, 16 bytes each."""

    stored = bytes

    def pack(self, value: tuple[UUID, ...]) -> bytes:
        """The concatenated bytes."""
        return b"".join(unique_id.bytes for unique_id in value)

    def unpack(self, stored: bytes, where: str) -> tuple[UUID, ...]:  # noqa: ARG002 - the others' arguments
        """The ids."""
        if len(stored) % UUID_SIZE_BYTES:
            raise ValueError(f"expected ids of {UUID_SIZE_BYTES} bytes each, found {len(stored)} bytes")
        return tuple(UUID(bytes=stored[at : at + UUID_SIZE_BYTES]) for at in range(0, len(stored), UUID_SIZE_BYTES))


def number_form(name: str, field: str, high: int = INT64_MAX) -> HistoryForm[int]:
    """The form of records with one number of 0 to `high`, in a field named `field`."""
    return HistoryForm(name, 1, OneField(field, Bounded(name, high)))


def _rows_of_ranges(ranges: KeyRanges) -> NDArray[np.void]:
    return make_rows(RANGE, start=key_bits(ranges.starts), end=key_bits(ranges.ends))


KEY_RANGES: Final = Converted[KeyRanges](
    Columns(RANGE, SEGMENTS_MAX),
    _rows_of_ranges,
    lambda rows, _: KeyRanges(keys_of_bits(rows["start"]), keys_of_bits(rows["end"])),
)
POSITIONS: Final = Converted[tuple[int, ...]](
    Columns(POSITION),
    lambda positions: make_rows(POSITION, position=np.array(positions, dtype=np.int64)),
    lambda rows, _: tuple(rows["position"].tolist()),
)
RETENTION_ENTRIES: Final = Converted[RetentionSet](
    Columns(RETENTION_ENTRY),
    lambda entries: make_rows(RETENTION_ENTRY, recording_time_ms=entries.times_ms, recorded_size=entries.sizes),
    lambda rows, _: RetentionSet(rows["recording_time_ms"].copy(), rows["recorded_size"].copy()),
)
BY_TYPE: Final[dict[Any, Packing[Any]]] = {
    Segments: SegmentColumns(),
    IdMap: MapColumns(),
    IdSet: SetColumns(),
    KeyRanges: KEY_RANGES,
    tuple[UUID, ...]: UuidRow(),
}


class StoredTimesRoot(msgspec.Struct, frozen=True):
    """The stored fields of an `EpochTimesRoot`. The times of the three columns ascend, one column after the other.

    Attributes:
        part_epochs: number of times in a part.
        leaf_parts: number of parts in a leaf.
        visible_epochs: number of the oldest epochs that queries may return.
        leaf_starts: the first time of each leaf.
        part_starts: the first time of each part after the leaves; their numbers continue those of the leaves' parts.
        tail: the times after the parts.
    """

    part_epochs: int
    leaf_parts: int
    visible_epochs: int
    leaf_starts: bytes
    part_starts: bytes
    tail: bytes


class StoredTimesBlock(msgspec.Struct, frozen=True):
    """The stored fields of a `BlockTimes`.

    Attributes:
        kind: `part` or `leaf`.
        number: the block's number; its first time is that of epoch `number` * `epochs`.
        epochs: number of times in the block.
        times: the times of the epochs.
    """

    kind: str
    number: int
    epochs: int
    times: bytes


def _pack_times(times: array[int]) -> bytes:
    return pack_columns(unpack(times).view(TIME))


def _unpack_times(data: bytes, where: str, rows_max: int = ROWS_MAX) -> array[int]:
    return pack(unpack_columns(data, TIME, where, rows_max=rows_max)["time_ms"])


def _convert_root(root: EpochTimesRoot) -> StoredTimesRoot:
    return StoredTimesRoot(
        part_epochs=root.part_epochs,
        leaf_parts=root.leaf_parts,
        visible_epochs=root.visible_epochs,
        leaf_starts=_pack_times(root.leaf_starts),
        part_starts=_pack_times(root.part_starts),
        tail=_pack_times(root.tail),
    )


def _restore_root(fields: StoredTimesRoot, where: str) -> EpochTimesRoot:
    rows_max = min(max(0, fields.part_epochs), ROWS_MAX)
    return EpochTimesRoot(
        tail=_unpack_times(fields.tail, f"{where}, tail", rows_max),
        part_starts=_unpack_times(fields.part_starts, f"{where}, part starts"),
        leaf_starts=_unpack_times(fields.leaf_starts, f"{where}, leaf starts"),
        visible_epochs=fields.visible_epochs,
        part_epochs=fields.part_epochs,
        leaf_parts=fields.leaf_parts,
    )


def _convert_block(found: BlockTimes) -> StoredTimesBlock:
    block = found.block
    return StoredTimesBlock(block.kind.value, block.number, block.epochs, _pack_times(found.times))


def _restore_block(fields: StoredTimesBlock, where: str) -> BlockTimes:
    if not 1 <= fields.epochs <= ROWS_MAX or fields.number < 0:
        raise ValueError(f"expected a block of 1 to {ROWS_MAX} epochs, numbered from 0 on, found {fields.epochs}")
    block = Block(BlockKind(fields.kind), fields.number, fields.epochs)
    return BlockTimes(block, _unpack_times(fields.times, f"{where}, times", fields.epochs))


class StoredTruncation(msgspec.Struct, frozen=True):
    """The stored fields of a `TruncationRecord`. The deleted segments follow from the cuts.

    Attributes:
        segments: the segments of the cut.
        places: offset in the cut and epoch in the span, for each segment of the cut.
        last_segments: the segments of the cut at which the stream began before; empty unless `updating`.
        last_places: offset and epoch of each of `last_segments`.
        deleted_count: number of deleted segments.
        to_delete_count: number of segments that are being deleted.
        size_till: size of the data before the cut since the stream's creation, in the stream's offset unit.
        updating: whether the truncation is still being carried out.
        workflow_id: 16 bytes, the truncation that wrote the record last; empty = the creation of the stream.
    """

    segments: StoredSegments
    places: bytes
    last_segments: StoredSegments
    last_places: bytes
    deleted_count: int
    to_delete_count: int
    size_till: int
    updating: bool
    workflow_id: bytes


def _convert_truncation(record: TruncationRecord) -> StoredTruncation:
    return StoredTruncation(
        segments=pack_segments(record.span.segments),
        places=_pack_places(record.cut, record.span),
        last_segments=pack_segments(record.last_span.segments),
        last_places=_pack_places(record.last_cut, record.last_span),
        deleted_count=record.deleted_count,
        to_delete_count=record.to_delete_count,
        size_till=record.size_till,
        updating=record.updating,
        workflow_id=_UUID.pack(record.workflow_id),
    )


def _restore_truncation(fields: StoredTruncation, where: str) -> TruncationRecord:
    cut, span = _restore_places(fields.segments, fields.places, where)
    last_cut, last_span = _restore_places(fields.last_segments, fields.last_places, f"{where}, last")
    return TruncationRecord(
        cut=cut,
        span=span,
        last_cut=last_cut,
        last_span=last_span,
        deleted_count=fields.deleted_count,
        to_delete_count=fields.to_delete_count,
        size_till=fields.size_till,
        updating=fields.updating,
        workflow_id=_UUID.unpack(fields.workflow_id, ""),
    )


def _pack_places(cut: IdMap, span: CutSpan) -> bytes:
    # Cut and span have the same segments, in the same order: their ids are stored once.
    return pack_columns(make_rows(PLACE, offset=cut.values_array, epoch=span.epochs.values_array))


def _restore_places(stored: StoredSegments, packed: bytes, where: str) -> tuple[IdMap, CutSpan]:
    segments = restore_segments(stored, where)
    places = unpack_columns(packed, PLACE, f"{where}, places")
    epochs = IdMap(segments.ids.copy(), places["epoch"].copy())
    return IdMap(segments.ids.copy(), places["offset"].copy()), CutSpan(segments, epochs)


class StoredConfiguration(msgspec.Struct, frozen=True):
    """The stored fields of a `ConfigurationRecord`.

    Attributes:
        min_segments: the number of segments at first, and the minimum later.
        scaling_kind: `FIXED`, `EVENTS` or `BYTES`.
        target_rate: events or kilobytes a second of a segment.
        scale_factor: number of segments that a hot segment is split into.
        retention_kind: `TIME` or `SIZE`; nil = all data is kept.
        retention_minimum: milliseconds or size.
        retention_maximum: milliseconds or size; nil = no maximum.
        offset_unit: `RECORDS` or `BYTES`.
        tags: words to search for, ascending.
        workflow_id: 16 bytes, the change that wrote the record last; empty = the creation of the stream.
    """

    min_segments: int
    scaling_kind: str
    target_rate: int
    scale_factor: int
    retention_kind: str | None
    retention_minimum: int
    retention_maximum: int | None
    offset_unit: str
    tags: list[str]
    workflow_id: bytes


def _convert_configuration(record: ConfigurationRecord) -> StoredConfiguration:
    wanted = record.configuration
    retention = wanted.retention
    return StoredConfiguration(
        min_segments=wanted.min_segments,
        scaling_kind=wanted.scaling.kind.name,
        target_rate=wanted.scaling.target_rate,
        scale_factor=wanted.scaling.scale_factor,
        retention_kind=None if retention is None else retention.kind.name,
        retention_minimum=0 if retention is None else retention.minimum,
        retention_maximum=None if retention is None else retention.maximum,
        offset_unit=wanted.offset_unit.name,
        tags=list(wanted.tags),
        workflow_id=_UUID.pack(record.workflow_id),
    )


def _restore_configuration(fields: StoredConfiguration, _: str) -> ConfigurationRecord:
    kind = fields.retention_kind
    retention = None
    if kind is not None:
        retention = RetentionPolicy(
            ByName(RetentionKind).unpack(kind, ""), fields.retention_minimum, fields.retention_maximum
        )
    wanted = StreamConfiguration(
        min_segments=fields.min_segments,
        scaling=ScalingPolicy(
            ByName(ScalingKind).unpack(fields.scaling_kind, ""), fields.target_rate, fields.scale_factor
        ),
        retention=retention,
        offset_unit=ByName(OffsetUnit).unpack(fields.offset_unit, ""),
        tags=tuple(fields.tags),
    )
    return ConfigurationRecord(wanted, _UUID.unpack(fields.workflow_id, ""))


EPOCH_RECORD: Final = HistoryForm(
    "epoch-record",
    1,
    Nested(
        EpochRecord,
        by_field={"segments": SegmentColumns(SEGMENTS_MAX)},
        order=("epoch", "reference_epoch", "creation_time_ms", "splits", "merges", "segments", "late_ms"),
    ),
)
EPOCH_TRANSITION: Final = HistoryForm("epoch-transition", 1, Nested(EpochTransition, BY_TYPE))
SEALED_EPOCH: Final = number_form("sealed-epoch", "epoch", EPOCH_MAX)
HISTORY_CHUNK: Final = HistoryForm("history-chunk", 1, Converted(StoredChunk, pack_chunk, restore_chunk))
EPOCH_TIMES: Final = HistoryForm("epoch-times", 1, Converted(StoredTimesRoot, _convert_root, _restore_root))
EPOCH_TIMES_BLOCK: Final = HistoryForm(
    "epoch-times-block", 1, Converted(StoredTimesBlock, _convert_block, _restore_block)
)
TRUNCATION: Final = HistoryForm("truncation", 1, Converted(StoredTruncation, _convert_truncation, _restore_truncation))
RETENTION_SET: Final = HistoryForm("retention-set", 1, OneField("entries", RETENTION_ENTRIES))
STREAM_CUT: Final = HistoryForm("stream-cut", 1, Nested(StreamCutRecord, BY_TYPE))
SEALED_SIZES: Final = HistoryForm("sealed-sizes", 1, OneField("sizes", MapColumns()))

ACTIVE_TRANSACTION: Final = HistoryForm(
    "active-transaction",
    1,
    Nested(
        ActiveTransaction,
        by_field={"commit_offsets": MapColumns(may_be_missing=True)},
        order=(
            *("created_ms", "lease_expiry_ms", "max_execution_expiry_ms", "status", "writer_id"),
            *("commit_time_ms", "commit_position", "commit_offsets"),
            *("lease_ms", "event_count", "size_bytes", "is_merged", "reason"),
        ),
        added={"lease_ms": 0, "event_count": None, "size_bytes": None, "is_merged": False, "reason": ""},
    ),
)
COMPLETED_TRANSACTION: Final = HistoryForm(
    "completed-transaction",
    1,
    Nested(CompletedTransaction, BY_TYPE, added={"event_count": None, "size_bytes": None, "reason": ""}),
)
COMMITTING_TRANSACTIONS: Final = HistoryForm("committing-transactions", 1, Nested(CommittingTransactions, BY_TYPE))
COMMIT_ORDER: Final = HistoryForm(
    "commit-order",
    1,
    Nested(
        CommitOrder,
        BY_TYPE,
        by_field={"next_position": Bounded("a next position"), "positions": POSITIONS},
        order=("next_position", "positions", "transaction_ids"),
    ),
)

STREAM_STATE: Final = HistoryForm("stream-state", 1, StreamStatus)
CONFIGURATION_FIELDS: Final = Converted[ConfigurationRecord](
    StoredConfiguration, _convert_configuration, _restore_configuration
)
CONFIGURATION: Final = HistoryForm("configuration", 1, CONFIGURATION_FIELDS)
HISTORY_LAYOUT: Final = HistoryForm("history-layout", 1, HistoryLayout)
CREATION_TIME: Final = number_form("creation-time", "time_ms")
SCOPE_ENTRY: Final = HistoryForm("scope-entry", 1, Nested(ScopeEntry, names={"unique_id": "id"}))
STREAM_ENTRY: Final = HistoryForm(
    "stream-entry",
    1,
    Nested(
        StreamEntry,
        by_field={
            "wanted": Converted(CONFIGURATION_FIELDS, ConfigurationRecord, lambda record, _: record.configuration)
        },
        order=("id", "phase", "time_ms", "first_number", "segments", "last_number", "wanted"),
        names={"unique_id": "id"},
    ),
)
LAST_NUMBER: Final = number_form("last-number", "number", NUMBER_MAX)
ID_COUNTER: Final = number_form("id-counter", "next_id")
SEGMENT_STREAM: Final = number_form("segment-stream", "stream_id")


class StoredRequest(msgspec.Struct, frozen=True):
    """The stored fields of a `WorkflowRequest`.

    Attributes:
        workflow_id: 16 bytes; part of the key.
        status: `WAITING`, `CLAIMED`, `DONE` or `REFUSED`.
        base: 16 bytes, the nonce of the version of `state` that the plan was drawn up on; empty while it waits.
        is_kept: whether the request is kept after its end.
        reason: the reason of a refusal, at most 1,000 characters; otherwise empty.
        workflow: the state during the workflow: `SCALING`, `COMMITTING_TXN`, `TRUNCATING` or `UPDATING`.
        record: a record of form `epoch-transition`, `committing-transactions`, `truncation` or `configuration`, in
            this order of workflows.
        base_id: `TRUNCATING`, `UPDATING`: the `workflow_id` of the replaced record, 16 bytes or none.
        into_epoch: `COMMITTING_TXN`: the epoch whose segments take the data; otherwise 0.
        time_ms: `COMMITTING_TXN`: start of the first duplicate epoch, milliseconds since 1970; otherwise 0.
        is_manual: `SCALING`: whether a person requested it; otherwise true.
    """

    workflow_id: bytes
    status: str
    base: bytes
    is_kept: bool
    reason: str
    workflow: str
    record: bytes
    base_id: bytes = b""
    into_epoch: int = 0
    time_ms: int = 0
    is_manual: bool = True


def _convert_request(request: WorkflowRequest) -> StoredRequest:
    checked_integer("characters of a reason", len(request.reason), 0, REASON_SIZE_MAX)
    return msgspec.structs.replace(
        _convert_plan(request.plan),
        workflow_id=request.workflow_id.bytes,
        status=request.status.name,
        base=request.base,
        is_kept=request.is_kept,
        reason=request.reason,
        workflow=request.workflow.name,
    )


def _convert_plan(plan: Plan) -> StoredRequest:
    empty = StoredRequest(b"", "", b"", is_kept=False, reason="", workflow="", record=b"")
    if isinstance(plan, ScalePlan):
        record = EPOCH_TRANSITION.encode(plan.transition)
        own: dict[str, object] = {"is_manual": plan.is_manual}
    elif isinstance(plan, CommitPlan):
        record = COMMITTING_TRANSACTIONS.encode(plan.committing)
        own = {"into_epoch": plan.into_epoch, "time_ms": plan.time_ms}
    elif isinstance(plan, TruncationPlan):
        record = TRUNCATION.encode(plan.record)
        own = {"base_id": _UUID.pack(plan.base_id)}
    else:
        record = CONFIGURATION.encode(ConfigurationRecord(plan.configuration))
        own = {"base_id": _UUID.pack(plan.base_id)}
    return msgspec.structs.replace(empty, record=record, **own)


def _restore_request(fields: StoredRequest, where: str) -> WorkflowRequest:
    workflow_id = _UUID.unpack(fields.workflow_id, "")
    if workflow_id is None:
        raise ValueError("expected the id of a workflow, found none")
    checked_integer("characters of a reason", len(fields.reason), 0, REASON_SIZE_MAX)
    return WorkflowRequest(
        workflow_id=workflow_id,
        plan=_restore_plan(fields, f"{where}, record"),
        status=ByName(RequestStatus).unpack(fields.status, ""),
        base=fields.base,
        is_kept=fields.is_kept,
        reason=fields.reason,
    )


def _restore_plan(fields: StoredRequest, where: str) -> Plan:
    base_id = _UUID.unpack(fields.base_id, "")
    match ByName(StreamState).unpack(fields.workflow, ""):
        case StreamState.SCALING:
            transition = EPOCH_TRANSITION.decode(fields.record, where)
            return ScalePlan(transition, is_manual=fields.is_manual)
        case StreamState.COMMITTING_TXN:
            committing = COMMITTING_TRANSACTIONS.decode(fields.record, where)
            into_epoch = checked_integer("an epoch", fields.into_epoch, 0, EPOCH_MAX)
            return CommitPlan(committing, into_epoch, fields.time_ms)
        case StreamState.TRUNCATING:
            return TruncationPlan(TRUNCATION.decode(fields.record, where), base_id)
        case StreamState.UPDATING:
            return UpdatePlan(CONFIGURATION.decode(fields.record, where).configuration, base_id)
        case other:
            raise ValueError(f"expected a state of a workflow, found {other.name}")


WORKFLOW_REQUEST: Final = HistoryForm(
    "workflow-request", 1, Converted(StoredRequest, _convert_request, _restore_request)
)

ALL_FORMS: Final[tuple[HistoryForm[Any], ...]] = (
    EPOCH_RECORD,
    EPOCH_TRANSITION,
    SEALED_EPOCH,
    HISTORY_CHUNK,
    EPOCH_TIMES,
    EPOCH_TIMES_BLOCK,
    TRUNCATION,
    RETENTION_SET,
    STREAM_CUT,
    SEALED_SIZES,
    ACTIVE_TRANSACTION,
    COMPLETED_TRANSACTION,
    COMMITTING_TRANSACTIONS,
    COMMIT_ORDER,
    STREAM_STATE,
    CONFIGURATION,
    HISTORY_LAYOUT,
    CREATION_TIME,
    SCOPE_ENTRY,
    STREAM_ENTRY,
    LAST_NUMBER,
    ID_COUNTER,
    SEGMENT_STREAM,
    WORKFLOW_REQUEST,
)
