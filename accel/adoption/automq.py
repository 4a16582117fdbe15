"""Converts AutoMQ's metadata, as JSON, to an image.

Two forms are read; field names are those of AutoMQ's metadata records, in camel case, as its dumps print them:

- *Records*: one JSON object a line, ``{"type": "S3_STREAM_RECORD", "version": 0, "data": {...}}``, as
  `kafka-dump-log --cluster-metadata-decoder` prints them after the word ``payload:``. They are replayed in order.
- *A document*: one JSON object with the lists ``streams``, ``nodes`` and ``objects``.

    | record                          | fields that are read                                               |
    |---------------------------------|--------------------------------------------------------------------|
    | S3_STREAM_RECORD                | streamId, startOffset                                              |
    | REMOVE_S3_STREAM_RECORD         | streamId                                                           |
    | RANGE_RECORD                    | streamId, rangeIndex, startOffset, endOffset, nodeId (or brokerId) |
    | REMOVE_RANGE_RECORD             | streamId, rangeIndex                                               |
    | S3_STREAM_OBJECT_RECORD         | streamId, objectId, startOffset, endOffset                         |
    | REMOVE_S3_STREAM_OBJECT_RECORD  | streamId, objectId                                                 |
    | S3_STREAM_SET_OBJECT_RECORD     | nodeId, objectId, orderId, dataTimeInMs                            |
    | REMOVE_STREAM_SET_OBJECT_RECORD | nodeId, objectId                                                   |
    | S3_OBJECT_RECORD                | objectId, objectSize, attributes                                   |
    | REMOVE_S3_OBJECT_RECORD         | objectId                                                           |

Other records and fields do not affect where offsets are, and are ignored: a newer broker may have more of both. A field
of the table that is missing or of another type is refused, with its place. The end of a stream's last range is not
read: that range is open (docs/explanation/lookup.md, "The rules of the answer").

Source of the names: the record schemas of AutoMQ (metadata/src/main/resources/common/metadata). No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from accel.errors import ImageRefused
from accel.image import OPEN_END, MetadataImage, OwnershipRange, StreamObject, make_node, make_stream
from loaders.object_ref import UNKNOWN, ObjectRef

Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Maybe = Annotated[int, Meta(ge=UNKNOWN, le=2**63 - 1)]

PAYLOAD: Final = b"payload:"
"""The text before a record in the lines of `kafka-dump-log`."""


class _Camel(Struct, rename="camel"):
    """Fields in camel case; unknown ones are ignored."""


class _StreamRow(_Camel):
    stream_id: Number
    start_offset: Number


class _RangeRow(_Camel):
    range_index: Number
    start_offset: Number
    end_offset: Maybe = UNKNOWN
    stream_id: Maybe = UNKNOWN
    node_id: Maybe = UNKNOWN
    broker_id: Maybe = UNKNOWN

    def owner(self) -> int:
        """The node; older releases called it a broker."""
        return self.node_id if self.node_id != UNKNOWN else self.broker_id


class _StreamObjectRow(_Camel):
    object_id: Number
    start_offset: Number
    end_offset: Number
    stream_id: Maybe = UNKNOWN


class _SetObjectRow(_Camel):
    object_id: Number
    order_id: Number
    node_id: Maybe = UNKNOWN
    data_time_in_ms: Maybe = UNKNOWN


class _ObjectRow(_Camel):
    object_id: Number
    object_size: Maybe = UNKNOWN
    attributes: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] = UNKNOWN


class _StreamPart(_StreamRow):
    ranges: list[_RangeRow] = []
    stream_objects: list[_StreamObjectRow] = []


class _NodePart(_Camel):
    node_id: Number
    stream_set_objects: list[_SetObjectRow] = []


class _Document(_Camel):
    streams: list[_StreamPart]
    nodes: list[_NodePart]
    objects: list[_ObjectRow] = []


class _Record(Struct):
    type: str
    data: msgspec.Raw


class _GoneStream(_Camel):
    stream_id: Number


class _GoneRange(_Camel):
    stream_id: Number
    range_index: Number


class _GoneObject(_Camel):
    object_id: Number


class _StreamObjectGone(_Camel):
    stream_id: Number
    object_id: Number


class _SetObjectGone(_Camel):
    node_id: Number
    object_id: Number


@dataclass(frozen=True, slots=True)
class ControllerMetadata:
    """The contents of a controller's metadata.

    Args:
        image: for lookups and jobs.
        data_times_ms: object id -> milliseconds since 1970 of its oldest data, for objects whose metadata contain it.
    """

    image: MetadataImage
    data_times_ms: MappingProxyType[int, int]


@dataclass(slots=True)
class _World:
    """The state after the records so far."""

    streams: dict[int, int] = field(default_factory=dict)
    ranges: dict[int, dict[int, _RangeRow]] = field(default_factory=dict)
    stream_objects: dict[int, dict[int, _StreamObjectRow]] = field(default_factory=dict)
    set_objects: dict[int, dict[int, _SetObjectRow]] = field(default_factory=dict)
    objects: dict[int, _ObjectRow] = field(default_factory=dict)

    def add_stream(self, row: _StreamRow) -> None:
        """Add a stream, or set its first kept offset."""
        self.streams[row.stream_id] = row.start_offset

    def remove_stream(self, row: _GoneStream) -> None:
        """Remove the stream, its ranges and its objects."""
        for known in (self.streams, self.ranges, self.stream_objects):
            known.pop(row.stream_id, None)

    def add_range(self, row: _RangeRow) -> None:
        """An owner."""
        self.ranges.setdefault(_required(row.stream_id, "streamId"), {})[row.range_index] = row

    def remove_range(self, row: _GoneRange) -> None:
        """It is gone."""
        self.ranges.get(row.stream_id, {}).pop(row.range_index, None)

    def add_stream_object(self, row: _StreamObjectRow) -> None:
        """Add an object of one stream."""
        self.stream_objects.setdefault(_required(row.stream_id, "streamId"), {})[row.object_id] = row

    def remove_stream_object(self, row: _StreamObjectGone) -> None:
        """It is gone."""
        self.stream_objects.get(row.stream_id, {}).pop(row.object_id, None)

    def add_set_object(self, row: _SetObjectRow) -> None:
        """Add an object to a node's list."""
        self.set_objects.setdefault(_required(row.node_id, "nodeId"), {})[row.object_id] = row

    def remove_set_object(self, row: _SetObjectGone) -> None:
        """It is gone."""
        self.set_objects.get(row.node_id, {}).pop(row.object_id, None)

    def add_object(self, row: _ObjectRow) -> None:
        """Set the size and attributes of an object."""
        self.objects[row.object_id] = row

    def remove_object(self, row: _GoneObject) -> None:
        """Nothing any more."""
        self.objects.pop(row.object_id, None)


_RECORDS: dict[str, tuple[type[Struct], Callable[[_World, Any], None]]] = {
    "S3_STREAM_RECORD": (_StreamRow, _World.add_stream),
    "REMOVE_S3_STREAM_RECORD": (_GoneStream, _World.remove_stream),
    "RANGE_RECORD": (_RangeRow, _World.add_range),
    "REMOVE_RANGE_RECORD": (_GoneRange, _World.remove_range),
    "S3_STREAM_OBJECT_RECORD": (_StreamObjectRow, _World.add_stream_object),
    "REMOVE_S3_STREAM_OBJECT_RECORD": (_StreamObjectGone, _World.remove_stream_object),
    "S3_STREAM_SET_OBJECT_RECORD": (_SetObjectRow, _World.add_set_object),
    "REMOVE_STREAM_SET_OBJECT_RECORD": (_SetObjectGone, _World.remove_set_object),
    "S3_OBJECT_RECORD": (_ObjectRow, _World.add_object),
    "REMOVE_S3_OBJECT_RECORD": (_GoneObject, _World.remove_object),
}
_DECODERS = {name: msgspec.json.Decoder(form) for name, (form, _) in _RECORDS.items()}
_RECORD = msgspec.json.Decoder(_Record)
_DOCUMENT = msgspec.json.Decoder(_Document)
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Errors of the decoder: JSON of another form, no UTF-8, nested too deeply."""


def read_automq(data: bytes, *, namespace: str, version: int = 0) -> ControllerMetadata:
    """AutoMQ's metadata, in either form. O(n log n) in records.

    Args:
        data: the dump.
        namespace: of the objects' keys, such as ``_kafka_<cluster id>``; dumps do not contain it.
        version: of the image; by default 0, so that no image is newer than another, or the number of records.

    Raises:
        ImageRefused: the text is neither form, or a field is missing, of another type, or contradicts another one. The
            text names its line or path.
    """
    is_record = b'"type"' in data[:4096] and b'"data"' in data[:65536]
    if is_record:
        world, count = _replayed(data)
        return _metadata(world, namespace, version or count)
    return _metadata(_listed(data), namespace, version)


def _replayed(data: bytes) -> tuple[_World, int]:
    world, count = _World(), 0
    for number, line in _record_lines(data):
        try:
            record = _RECORD.decode(line)
            if known := _RECORDS.get(record.type):
                known[1](world, _DECODERS[record.type].decode(record.data))
        except (*_UNREADABLE, ImageRefused) as error:
            raise ImageRefused(f"AutoMQ metadata, line {number}: {error}") from error
        count += 1
    return world, count


def _record_lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(data.splitlines(), 1):
        text = line.partition(PAYLOAD)[2] if PAYLOAD in line else line
        if (text := text.strip()).startswith(b"{"):
            yield number, text


def _listed(data: bytes) -> _World:
    try:
        document = _DOCUMENT.decode(data)
    except _UNREADABLE as error:
        raise ImageRefused(f"AutoMQ metadata: {error}") from error
    world = _World()
    for stream in document.streams:
        world.add_stream(stream)
        world.ranges[stream.stream_id] = {row.range_index: row for row in stream.ranges}
        world.stream_objects[stream.stream_id] = {row.object_id: row for row in stream.stream_objects}
    for node in document.nodes:
        world.set_objects[node.node_id] = {row.object_id: row for row in node.stream_set_objects}
    for row in document.objects:
        world.add_object(row)
    return world


def _metadata(world: _World, namespace: str, version: int) -> ControllerMetadata:
    streams = {
        stream_id: make_stream(
            stream_id,
            start,
            list(_owners(stream_id, world.ranges.get(stream_id, {}).values())),
            [
                StreamObject(_ref(world, row.object_id), row.start_offset, row.end_offset)
                for row in world.stream_objects.get(stream_id, {}).values()
            ],
        )
        for stream_id, start in world.streams.items()
    }
    nodes = {
        node_id: make_node(node_id, [(row.order_id, _ref(world, row.object_id)) for row in rows.values()])
        for node_id, rows in world.set_objects.items()
    }
    listed = (row for rows in world.set_objects.values() for row in rows.values())
    times = {row.object_id: row.data_time_in_ms for row in listed if row.data_time_in_ms != UNKNOWN}
    return ControllerMetadata(MetadataImage(version, namespace, streams, nodes), MappingProxyType(times))


def _owners(stream_id: int, rows: Iterable[_RangeRow]) -> Iterator[OwnershipRange]:
    ordered = sorted(rows, key=lambda row: row.range_index)
    for row in ordered:
        end = OPEN_END if row is ordered[-1] else _required(row.end_offset, "endOffset", f"stream {stream_id}: ")
        yield OwnershipRange(
            row.range_index, row.start_offset, end, _required(row.owner(), "nodeId", f"stream {stream_id}: ")
        )


def _ref(world: _World, object_id: int) -> ObjectRef:
    known = world.objects.get(object_id)
    if known is None:
        return ObjectRef(object_id)
    return ObjectRef(object_id, known.object_size, attributes=known.attributes)


def _required(value: int, name: str, what: str = "") -> int:
    if value == UNKNOWN:
        raise ImageRefused(f"{what}expected the field {name}, found none")
    return value
