"""The bytes of what a stream has once: its state, its configuration, names and counters.

    | form               | fields                                                                                     |
    |--------------------|--------------------------------------------------------------------------------------------|
    | stream-state       | state; workflow_id: 16 bytes, empty while the state belongs to no workflow with a name      |
    | configuration      | min_segments, scaling_kind, target_rate, scale_factor, retention_kind, retention_minimum,  |
    |                    | retention_maximum, offset_unit, tags; workflow_id: the change that wrote it last, or empty |
    | history-layout     | chunk_size: epochs in a chunk; shard_size: epochs or numbers in a shard; shard_by: EPOCH   |
    |                    | or NUMBER                                                                                  |
    | creation-time      | time_ms: when the stream was created                                                       |
    | cold-marker        | time_ms: until when a segment has little load                                              |
    | waiting-processor  | name: of the processor that waits for the stream                                           |
    | scope-entry        | id: 16 bytes that tell a scope from earlier ones of its name; phase                        |
    | stream-entry       | id, phase, likewise of a stream; and how it is created: time_ms, first_number, segments,   |
    |                    | last_number; wanted: the fields of a configuration                                         |
    | last-number        | number: of the last segment of a deleted stream, so that the next of that name goes on     |
    | id-counter         | next_id: the first that was not given out yet                                              |
    | segment-stream     | stream_id: of the objects that hold a segment's data                                       |

States, kinds and units are stored by their names; what is not there is null.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

import msgspec

from accel.history.codecs.history_form import HistoryForm
from accel.history.codecs.numbers import (
    UUID_SIZE_BYTES,
    checked,
    member,
    number_form,
    optional_uuid,
    optional_uuid_bytes,
)
from accel.history.rules.configuration import (
    ConfigurationRecord,
    HistoryLayout,
    OffsetUnit,
    RetentionKind,
    RetentionPolicy,
    ScalingKind,
    ScalingPolicy,
    ShardBy,
    StreamConfiguration,
)
from accel.history.rules.creation import NamePhase, ScopeEntry, StreamEntry
from accel.history.rules.ids import NUMBER_MAX
from accel.history.rules.states import StreamState, StreamStatus


class StoredState(msgspec.Struct, frozen=True):
    """The stored fields of a `StreamStatus`."""

    state: str
    workflow_id: bytes


class StoredConfiguration(msgspec.Struct, frozen=True):
    """The stored fields of a `ConfigurationRecord`."""

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


class StoredLayout(msgspec.Struct, frozen=True):
    """The stored fields of a `HistoryLayout`."""

    chunk_size: int
    shard_size: int
    shard_by: str


class StoredTime(msgspec.Struct, frozen=True):
    """A time, in milliseconds since 1970."""

    time_ms: int


class StoredName(msgspec.Struct, frozen=True):
    """A name."""

    name: str


class StoredScopeEntry(msgspec.Struct, frozen=True):
    """The stored fields of a `ScopeEntry`: the 16 bytes of a UUID, the name of a phase."""

    id: bytes
    phase: str


class StoredStreamEntry(msgspec.Struct, frozen=True):
    """The stored fields of a `StreamEntry`."""

    id: bytes
    phase: str
    time_ms: int
    first_number: int
    segments: int
    last_number: int
    wanted: StoredConfiguration


class StoredLastNumber(msgspec.Struct, frozen=True):
    """A segment number."""

    number: int


class StoredCounter(msgspec.Struct, frozen=True):
    """The next id."""

    next_id: int


class StoredStreamId(msgspec.Struct, frozen=True):
    """A stream of the object layer."""

    stream_id: int


def _stored_state(status: StreamStatus) -> StoredState:
    return StoredState(status.state.name, optional_uuid_bytes(status.workflow_id))


def _restored_state(fields: StoredState, _: str) -> StreamStatus:
    return StreamStatus(member(StreamState, fields.state), optional_uuid(fields.workflow_id))


def _stored_configuration(record: ConfigurationRecord) -> StoredConfiguration:
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
        workflow_id=optional_uuid_bytes(record.workflow_id),
    )


def _restored_configuration(fields: StoredConfiguration, _: str) -> ConfigurationRecord:
    kind = fields.retention_kind
    retention = None
    if kind is not None:
        retention = RetentionPolicy(member(RetentionKind, kind), fields.retention_minimum, fields.retention_maximum)
    wanted = StreamConfiguration(
        min_segments=fields.min_segments,
        scaling=ScalingPolicy(member(ScalingKind, fields.scaling_kind), fields.target_rate, fields.scale_factor),
        retention=retention,
        offset_unit=member(OffsetUnit, fields.offset_unit),
        tags=tuple(fields.tags),
    )
    return ConfigurationRecord(wanted, optional_uuid(fields.workflow_id))


def _stored_layout(layout: HistoryLayout) -> StoredLayout:
    return StoredLayout(layout.chunk_size, layout.shard_size, layout.shard_by.name)


def _restored_layout(fields: StoredLayout, _: str) -> HistoryLayout:
    return HistoryLayout(fields.chunk_size, fields.shard_size, member(ShardBy, fields.shard_by))


def _stored_name(name: str) -> StoredName:
    return StoredName(name)


def _restored_name(fields: StoredName, _: str) -> str:
    return fields.name


def _stored_scope_entry(entry: ScopeEntry) -> StoredScopeEntry:
    return StoredScopeEntry(entry.unique_id.bytes, entry.phase.name)


def _restored_scope_entry(fields: StoredScopeEntry, _: str) -> ScopeEntry:
    return ScopeEntry(_unique_id(fields.id), member(NamePhase, fields.phase))


def _stored_stream_entry(entry: StreamEntry) -> StoredStreamEntry:
    return StoredStreamEntry(
        id=entry.unique_id.bytes,
        phase=entry.phase.name,
        time_ms=entry.time_ms,
        first_number=entry.first_number,
        segments=entry.segments,
        last_number=entry.last_number,
        wanted=_stored_configuration(ConfigurationRecord(entry.wanted)),
    )


def _restored_stream_entry(fields: StoredStreamEntry, where: str) -> StreamEntry:
    return StreamEntry(
        unique_id=_unique_id(fields.id),
        phase=member(NamePhase, fields.phase),
        wanted=_restored_configuration(fields.wanted, where).configuration,
        time_ms=fields.time_ms,
        first_number=fields.first_number,
        segments=fields.segments,
        last_number=fields.last_number,
    )


def _unique_id(data: bytes) -> UUID:
    checked("bytes of an id", len(data), UUID_SIZE_BYTES, UUID_SIZE_BYTES)
    return UUID(bytes=data)


STREAM_STATE: Final = HistoryForm("stream-state", 1, StoredState, _stored_state, _restored_state)
CONFIGURATION: Final = HistoryForm(
    "configuration", 1, StoredConfiguration, _stored_configuration, _restored_configuration
)
HISTORY_LAYOUT: Final = HistoryForm("history-layout", 1, StoredLayout, _stored_layout, _restored_layout)
CREATION_TIME: Final = number_form("creation-time", StoredTime)
COLD_MARKER: Final = number_form("cold-marker", StoredTime)
WAITING_PROCESSOR: Final = HistoryForm("waiting-processor", 1, StoredName, _stored_name, _restored_name)
SCOPE_ENTRY: Final = HistoryForm("scope-entry", 1, StoredScopeEntry, _stored_scope_entry, _restored_scope_entry)
STREAM_ENTRY: Final = HistoryForm("stream-entry", 1, StoredStreamEntry, _stored_stream_entry, _restored_stream_entry)
LAST_NUMBER: Final = number_form("last-number", StoredLastNumber, NUMBER_MAX)
ID_COUNTER: Final = number_form("id-counter", StoredCounter)
SEGMENT_STREAM: Final = number_form("segment-stream", StoredStreamId)
