"""The bytes of all records of a stream's history: each kind has a named, versioned form (`loaders.tables.records`).

The stored fields follow from the records' classes: states, kinds and units by their names, UUIDs as 16 bytes, maps,
sets, segments and times as packed columns (`accel.history.columns`). For a stream with an epoch each second, give or
take 200 ms, a leaf of the index of times takes 125 kB, a part 1.4 kB, the root after a year 2.1 kB at most. A shard of
1,000 sizes takes 4.5 kB. Keys and rules: docs/reference/history-records.md.

Keys without a value (marks of epochs with transactions, marks of batches) have no form.
"""

from __future__ import annotations

from array import array
from collections.abc import Sized
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Annotated, Any, Final, TypeVar
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
)
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
from loaders.tables.columns import ROWS_MAX
from loaders.tables.records import (
    Bounded,
    Columns,
    Converted,
    Nested,
    OneField,
    Packing,
    RecordForm,
    RowsView,
)
from range_index.epoch_times import BlockTimes, EpochTimesRoot, Times
from range_index.runs import pack, unpack

T = TypeVar("T")

RANGE: Final = np.dtype([("start", "<i8"), ("end", "<i8")])
"""Bits of float64 keys, read as integers."""
TIME: Final = np.dtype([("time_ms", "<i8")])
RETENTION_ENTRY: Final = np.dtype([("recording_time_ms", "<i8"), ("recorded_size", "<i8")])
POSITION: Final = np.dtype([("position", "<i8")])

_VIEW = "\0view"  # a name that no field has


class HistoryForm(RecordForm[T]):
    """The form of a record of a history. Threads: immutable."""

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
    """Numbers by segment id as packed columns; an empty map as no bytes."""

    stored = bytes

    def pack(self, value: IdMap) -> bytes:
        """The packed columns."""
        return pack_map(value) if len(value) else b""

    def unpack(self, stored: bytes, where: str) -> IdMap:
        """The map."""
        return unpack_map(stored, where) if stored else NOTHING


class SetColumns(Packing[IdSet]):
    """Segment ids of one epoch as packed columns."""

    stored = bytes

    def pack(self, value: IdSet) -> bytes:
        """The packed columns."""
        return pack_set(value)

    def unpack(self, stored: bytes, where: str) -> IdSet:
        """The ids."""
        return unpack_set(stored, where, SEGMENTS_MAX)


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
TIMES: Final = Converted[Times](
    Columns(TIME), lambda times: unpack(times).view(TIME), lambda rows, _: pack(rows["time_ms"])
)
BY_TYPE: Final[dict[Any, Packing[Any]]] = {
    Segments: SegmentColumns(),
    IdMap: MapColumns(),
    IdSet: SetColumns(),
    KeyRanges: KEY_RANGES,
    array: TIMES,
    tuple[int, ...]: POSITIONS,
}
"""How fields of these types are stored."""


def _form(name: str, record: type[T], **by_field: Packing[Any]) -> HistoryForm[T]:
    return HistoryForm(name, 1, Nested(record, BY_TYPE, by_field=by_field))


EPOCH_RECORD: Final = _form("epoch-record", EpochRecord, segments=SegmentColumns(SEGMENTS_MAX))
EPOCH_TRANSITION: Final = _form("epoch-transition", EpochTransition)
SEALED_EPOCH: Final = number_form("sealed-epoch", "epoch", EPOCH_MAX)
HISTORY_CHUNK: Final = HistoryForm("history-chunk", 1, Converted(StoredChunk, pack_chunk, restore_chunk))
EPOCH_TIMES: Final = _form("epoch-times", EpochTimesRoot)
EPOCH_TIMES_BLOCK: Final = _form("epoch-times-block", BlockTimes)
TRUNCATION: Final = _form("truncation", TruncationRecord)
RETENTION_SET: Final = HistoryForm("retention-set", 1, OneField("entries", RETENTION_ENTRIES))
STREAM_CUT: Final = _form("stream-cut", StreamCutRecord)
SEALED_SIZES: Final = HistoryForm("sealed-sizes", 1, OneField("sizes", MapColumns()))

ACTIVE_TRANSACTION: Final = _form("active-transaction", ActiveTransaction)
COMPLETED_TRANSACTION: Final = _form("completed-transaction", CompletedTransaction)
COMMITTING_TRANSACTIONS: Final = _form("committing-transactions", CommittingTransactions)
COMMIT_ORDER: Final = _form("commit-order", CommitOrder, next_position=Bounded("a next position"))

STREAM_STATE: Final = _form("stream-state", StreamStatus)
CONFIGURATION: Final = _form("configuration", ConfigurationRecord)
HISTORY_LAYOUT: Final = _form("history-layout", HistoryLayout)
CREATION_TIME: Final = number_form("creation-time", "time_ms")
SCOPE_ENTRY: Final = _form("scope-entry", ScopeEntry)
STREAM_ENTRY: Final = _form("stream-entry", StreamEntry)
LAST_NUMBER: Final = number_form("last-number", "number", NUMBER_MAX)
ID_COUNTER: Final = number_form("id-counter", "next_id")
SEGMENT_STREAM: Final = number_form("segment-stream", "stream_id")


@dataclass(frozen=True)
class StoredRequest:
    """The stored fields of a `WorkflowRequest`.

    Attributes:
        workflow_id: part of the key.
        status: `WAITING`, `CLAIMED`, `DONE` or `REFUSED`.
        base: 16 bytes, the nonce of the version of `state` that the plan was drawn up on; empty while it waits.
        is_kept: whether the request is kept after its end.
        reason: the reason of a refusal, at most 1,000 characters; otherwise empty.
        workflow: the state during the workflow: `SCALING`, `COMMITTING_TXN`, `TRUNCATING` or `UPDATING`.
        record: a record of form `epoch-transition`, `committing-transactions`, `truncation` or `configuration`, in
            this order of workflows.
        base_id: `TRUNCATING`, `UPDATING`: the `workflow_id` of the replaced record; nil if there was none.
        into_epoch: `COMMITTING_TXN`: the epoch whose segments take the data; otherwise 0.
        time_ms: `COMMITTING_TXN`: start of the first duplicate epoch, milliseconds since 1970; otherwise 0.
        is_manual: `SCALING`: whether a person requested it; otherwise true.
    """

    workflow_id: UUID
    status: RequestStatus
    base: bytes
    is_kept: bool
    reason: Annotated[str, msgspec.Meta(max_length=REASON_SIZE_MAX)]
    workflow: StreamState
    record: bytes
    base_id: UUID | None = None
    into_epoch: int = 0
    time_ms: int = 0
    is_manual: bool = True


def _convert_request(request: WorkflowRequest) -> StoredRequest:
    checked_integer("characters of a reason", len(request.reason), 0, REASON_SIZE_MAX)
    return StoredRequest(
        workflow_id=request.workflow_id,
        status=request.status,
        base=request.base,
        is_kept=request.is_kept,
        reason=request.reason,
        workflow=request.workflow,
        **_convert_plan(request.plan),
    )


def _convert_plan(plan: Plan) -> dict[str, Any]:
    if isinstance(plan, ScalePlan):
        record = EPOCH_TRANSITION.encode(plan.transition)
        return {"record": record, "is_manual": plan.is_manual}
    if isinstance(plan, CommitPlan):
        record = COMMITTING_TRANSACTIONS.encode(plan.committing)
        return {"record": record, "into_epoch": plan.into_epoch, "time_ms": plan.time_ms}
    if isinstance(plan, TruncationPlan):
        return {"record": TRUNCATION.encode(plan.record), "base_id": plan.base_id}
    return {"record": CONFIGURATION.encode(ConfigurationRecord(plan.configuration)), "base_id": plan.base_id}


def _restore_request(fields: StoredRequest, where: str) -> WorkflowRequest:
    return WorkflowRequest(
        workflow_id=fields.workflow_id,
        plan=_restore_plan(fields, f"{where}, record"),
        status=fields.status,
        base=fields.base,
        is_kept=fields.is_kept,
        reason=fields.reason,
    )


def _restore_plan(fields: StoredRequest, where: str) -> Plan:
    match fields.workflow:
        case StreamState.SCALING:
            transition = EPOCH_TRANSITION.decode(fields.record, where)
            return ScalePlan(transition, is_manual=fields.is_manual)
        case StreamState.COMMITTING_TXN:
            committing = COMMITTING_TRANSACTIONS.decode(fields.record, where)
            into_epoch = checked_integer("an epoch", fields.into_epoch, 0, EPOCH_MAX)
            return CommitPlan(committing, into_epoch, fields.time_ms)
        case StreamState.TRUNCATING:
            return TruncationPlan(TRUNCATION.decode(fields.record, where), fields.base_id)
        case StreamState.UPDATING:
            return UpdatePlan(CONFIGURATION.decode(fields.record, where).configuration, fields.base_id)
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
