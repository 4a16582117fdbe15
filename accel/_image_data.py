"""Plain data (a dict, as read from JSON) -> the parts of an image, with an error that names the place that is wrong."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from accel.errors import ImageRefused
from accel.image_parts import (
    NodeImage,
    OwnershipRange,
    StreamImage,
    StreamObject,
    make_node,
    make_stream,
)
from loaders.errors import NameRefused
from loaders.layout import check_namespace
from loaders.object_ref import UNKNOWN, ObjectRef

INT64_MAX = 2**63 - 1

_IMAGE = frozenset({"version", "namespace", "streams", "nodes", "unordered_streams"})
_STREAM = frozenset({"stream_id", "start_offset", "ranges", "stream_objects"})
_RANGE = frozenset({"range_index", "start", "end", "node_id"})
_OBJECT = frozenset({"object_id", "size", "index_size", "attributes"})
_STREAM_OBJECT = _OBJECT | {"start", "end"}
_NODE = frozenset({"node_id", "stream_set_objects"})
_SET_OBJECT = _OBJECT | {"order_id", "ranges"}  # cases and fixtures tell what an object holds; its index is what counts


@dataclass(frozen=True, slots=True)
class ImageParts:
    """What a metadata image is made of."""

    version: int
    namespace: str
    streams: dict[int, StreamImage]
    nodes: dict[int, NodeImage]
    unordered_streams: frozenset[int]


def read_image(metadata: Mapping[str, Any], version: int, namespace: str) -> ImageParts:
    """The checked parts of an image; see `MetadataImage.from_dict` for the form.

    Raises:
        ImageRefused: something is missing, of the wrong type, or contradicts something else.
    """
    if not isinstance(metadata, Mapping):
        raise ImageRefused(f"expected an image as an object with streams and nodes, found {type(metadata).__name__}")
    _check_fields(metadata, _IMAGE, "image")
    if not metadata.keys() & {"streams", "nodes"}:
        raise ImageRefused("image: expected streams or nodes, which may be empty, found neither")
    return ImageParts(
        version=_integer(metadata, "version", "image", default=version),
        namespace=_namespace(metadata, namespace),
        streams=_streams(metadata),
        nodes=_nodes(metadata),
        unordered_streams=_stream_ids(metadata, "unordered_streams"),
    )


def _streams(metadata: Mapping[str, Any]) -> dict[int, StreamImage]:
    streams: dict[int, StreamImage] = {}
    for where, row in _rows(metadata, "streams", "image", _STREAM):
        stream = _stream(row, where)
        if stream.stream_id in streams:
            raise ImageRefused(f"expected each stream once, found stream {stream.stream_id} twice")
        streams[stream.stream_id] = stream
    return streams


def _nodes(metadata: Mapping[str, Any]) -> dict[int, NodeImage]:
    nodes: dict[int, NodeImage] = {}
    for where, row in _rows(metadata, "nodes", "image", _NODE):
        node_id = _integer(row, "node_id", where)
        if node_id in nodes:
            raise ImageRefused(f"expected each node once, found node {node_id} twice")
        objects = _rows(row, "stream_set_objects", f"node {node_id}", _SET_OBJECT)
        nodes[node_id] = make_node(node_id, [(_integer(each, "order_id", at), _ref(each, at)) for at, each in objects])
    return nodes


def _stream(row: Mapping[str, Any], where: str) -> StreamImage:
    stream_id = _integer(row, "stream_id", where)
    where = f"stream {stream_id}"
    ranges = [
        OwnershipRange(
            _integer(each, "range_index", at),
            _integer(each, "start", at),
            _integer(each, "end", at, least=-1),
            _integer(each, "node_id", at),
        )
        for at, each in _rows(row, "ranges", where, _RANGE)
    ]
    objects = [
        StreamObject(_ref(each, at), _integer(each, "start", at), _integer(each, "end", at))
        for at, each in _rows(row, "stream_objects", where, _STREAM_OBJECT)
    ]
    return make_stream(stream_id, _integer(row, "start_offset", where), ranges, objects)


def _ref(row: Mapping[str, Any], where: str) -> ObjectRef:
    return ObjectRef(
        _integer(row, "object_id", where),
        _integer(row, "size", where, default=UNKNOWN, least=UNKNOWN),
        _integer(row, "index_size", where, default=UNKNOWN, least=UNKNOWN),
        _integer(row, "attributes", where, default=UNKNOWN, least=-(2**31)),
    )


def _rows(
    parent: Mapping[str, Any], name: str, where: str, fields: frozenset[str]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    rows = parent.get(name, [])
    if not isinstance(rows, list | tuple):
        raise ImageRefused(f"{where}: expected {name} as a list, found {type(rows).__name__}")
    for number, row in enumerate(rows):
        place = f"{where}, {name}[{number}]"
        if not isinstance(row, Mapping):
            raise ImageRefused(f"{place}: expected an object, found {type(row).__name__}")
        _check_fields(row, fields, place)
        yield place, row


def _check_fields(row: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    # A misspelt field would otherwise be left out without a word, and with it whatever it lists.
    if unknown := row.keys() - known:
        raise ImageRefused(f"{where}: expected fields among {', '.join(sorted(known))}, found {_named(unknown)}")


def _named(names: Iterable[object]) -> str:
    shown = sorted(map(reprlib.repr, names))
    return ", ".join(shown[:5]) + (", ..." if len(shown) > 5 else "")


def _integer(row: Mapping[str, Any], name: str, where: str, *, default: int | None = None, least: int = 0) -> int:
    value = row.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= INT64_MAX:
        found = "nothing" if value is None else reprlib.repr(value)
        raise ImageRefused(f"{where}: expected {name} as an integer of at least {least}, found {found}")
    return value


def _namespace(row: Mapping[str, Any], default: str) -> str:
    value = row.get("namespace", default)
    if not isinstance(value, str):
        raise ImageRefused(f"image: expected namespace as a text, found {reprlib.repr(value)}")
    try:
        check_namespace(value)
    except NameRefused as error:
        raise ImageRefused(f"image: {error}") from error
    return value


def _stream_ids(row: Mapping[str, Any], name: str) -> frozenset[int]:
    values = row.get(name, [])
    if not isinstance(values, list | tuple) or not all(type(value) is int for value in values):
        raise ImageRefused(f"image: expected {name} as a list of integers, found {reprlib.repr(values)}")
    return frozenset(values)
