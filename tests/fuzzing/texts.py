"""Decoders of texts: images, dumps, swaps, HTTP parameters and bodies, what the command line takes, names and keys.

Threads: none is shared.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from tempfile import gettempdir
from types import SimpleNamespace
from typing import Any

import click
import msgspec
from starlette.requests import Request

from accel import units
from accel.adoption.automq import read_automq
from accel.adoption.controller import Swap, SwapOutput, SwapSource, _digest, swaps_from_json, swaps_to_json
from accel.catalog import keys
from accel.cli import config_file
from accel.cli.stream import events as event_options
from accel.cli.stream import notation, options
from accel.errors import ImageRefused
from accel.history.rules import values
from accel.image import MetadataImage
from accel.image_source import load_image_file
from accel.server.app import OPERATIONS
from accel.server.operations import _body, _query
from accel.server.problems import Refused
from loaders import layout
from loaders.layout import HintKind, ObjectLayout
from loaders.store import file, open_store
from loaders.store.base import parse_content_range
from loaders.store.file import FileStore
from tests.fuzzing.judging import Decoder, of

TEXT_ERRORS = (ValueError,)
NAMESPACE = "_kafka_test"


def as_text(data: bytes) -> str:
    """Bytes as text, as the command line gives them: what is no UTF-8 becomes halves of surrogate pairs."""
    return data.decode("utf-8", "surrogateescape")


def seeds_of(*texts: str) -> Callable[[], Mapping[str, bytes]]:
    """One seed a text."""
    return lambda: {str(number): text.encode() for number, text in enumerate(texts)}


# -- JSON --------------------------------------------------------------------------------------------------------------

IMAGE: dict[str, Any] = {
    "version": 3,
    "namespace": "shop",
    "streams": [
        {
            "stream_id": 1,
            "start_offset": 0,
            "ranges": [{"range_index": 0, "start": 0, "end": 9, "node_id": 4}],
            "stream_objects": [{"object_id": 5, "start": 0, "end": 4, "size": 100}],
        }
    ],
    "nodes": [{"node_id": 4, "stream_set_objects": [{"object_id": 6, "order_id": 1, "index_size": 36}]}],
    "unordered_streams": [1],
}
LINES = (
    ("S3_STREAM_RECORD", {"streamId": 233, "startOffset": 0}),
    ("RANGE_RECORD", {"streamId": 233, "rangeIndex": 0, "startOffset": 0, "endOffset": 128, "nodeId": 4}),
    ("S3_OBJECT_RECORD", {"objectId": 0, "objectSize": 1000, "attributes": 0}),
    ("S3_STREAM_SET_OBJECT_RECORD", {"nodeId": 4, "objectId": 0, "orderId": 0, "dataTimeInMs": 1_700_000_000_000}),
    ("S3_STREAM_OBJECT_RECORD", {"streamId": 233, "startOffset": 0, "endOffset": 64, "objectId": 9}),
    ("REMOVE_S3_OBJECT_RECORD", {"objectId": 0}),
)
DOCUMENT: dict[str, Any] = {
    "streams": [
        {
            "streamId": 233,
            "startOffset": 0,
            "ranges": [{"rangeIndex": 0, "startOffset": 0, "endOffset": 128, "nodeId": 4}],
            "streamObjects": [{"objectId": 9, "startOffset": 0, "endOffset": 64}],
        }
    ],
    "nodes": [{"nodeId": 4, "streamSetObjects": [{"objectId": 0, "orderId": 0, "dataTimeInMs": -1}]}],
    "objects": [{"objectId": 0, "objectSize": 1000, "attributes": 0}],
}
_MEMORY = Path("/dev/shm")  # noqa: S108 - each process has a file of its own there
SCRATCH = _MEMORY if _MEMORY.is_dir() else Path(gettempdir())
"""A hundred thousand small files are better not written to a disk."""


def _scratch(data: bytes) -> Path:
    """A file with these bytes; one a process."""
    path = SCRATCH / f"accel-fuzzing-{os.getpid()}"
    path.write_bytes(data)
    return path


def _parts(image: MetadataImage) -> object:
    """What an image says, without what it makes of it when it is asked."""
    nodes = {node_id: [node.order_ids, *node._columns_of_refs()] for node_id, node in image.nodes.items()}
    return (image.version, image.namespace, dict(image.streams), nodes, image.unordered_streams)


def _read_image(data: bytes) -> object:
    return _parts(load_image_file(_scratch(data)))


def _read_image_text(data: bytes) -> object:
    try:
        return _parts(MetadataImage.from_json(data))
    except RecursionError as error:
        raise ImageRefused("nested too deeply, as its documentation says") from error


def _automq() -> Mapping[str, bytes]:
    lines = [json.dumps({"type": kind, "version": 0, "data": data}) for kind, data in LINES]
    dump = ["Dumping 0.log", *(f"| offset: {at} payload: {line}" for at, line in enumerate(lines))]
    return {
        "lines": "\n".join(lines).encode(),
        "dump": "\n".join(dump).encode(),
        "document": json.dumps(DOCUMENT).encode(),
    }


def _read_automq(data: bytes) -> object:
    found = read_automq(data, namespace=NAMESPACE)
    return (_parts(found.image), dict(found.data_times_ms))


def _swaps() -> Mapping[str, bytes]:
    sources = (SwapSource(5, 1, 100), SwapSource(6, 2, 200))
    bare = Swap("", "shop", 4, sources, SwapOutput(9, 1, 300, 36, -1, 77, 1_700_000_000_000, 2), ())
    return {"one": swaps_to_json([msgspec.structs.replace(bare, swap_id=_digest(bare))])}


def _seal_swaps(data: bytes) -> bytes:
    try:
        document = msgspec.json.decode(data)
        for swap in document["swaps"]:
            made = msgspec.convert({**swap, "swap_id": ""}, Swap)
            swap["swap_id"] = _digest(made)
        return msgspec.json.encode(document)
    except (msgspec.MsgspecError, TypeError, KeyError, RecursionError, OverflowError, ValueError):
        return data


def _json(name: str, functions: Iterable[Any], read: Any, seeds: Any, errors: Any, **more: Any) -> Decoder:
    return Decoder(name, tuple(map(of, functions)), read, seeds, errors, is_text=True, **more)


def _cut_file(data: bytes) -> dict[int, int]:
    return notation.read_cut(str(_scratch(data)))


def _settings_file(data: bytes) -> object:
    return config_file.read_file(str(_scratch(data)))


# -- HTTP --------------------------------------------------------------------------------------------------------------

QUERIES = {each.name: each.query for each in OPERATIONS if each.query is not None}
BODIES = {each.name: each.body for each in OPERATIONS if each.body is not None}
EXAMPLES = {
    "objects": "stream_id=7&start=0&end=-1&limit=4",
    "explain": "stream_id=7&start=0&limit=4",
    "records": "stream_id=7&start=10&max_bytes=1024",
    "places": "stream_id=7&start=10&max_bytes=1024",
    "map": "stream_id=7",
    "stream_segments": "at_ms=1700000000000",
    "stream_epochs": "from_ms=0&to_ms=1700000000000&limit=5",
    "stream_successors": "segment=3%401",
    "stream_predecessors": "segment=3%401",
    "stream_cuts": "limit=5",
    "stream_lag": "group=billing",
    "scopes": "limit=5",
    "streams": "limit=5",
}
BODY_EXAMPLES = {
    "stream_cuts_compare": '{"cut": {"3@1": 120}, "other": {"0@0": 0}}',
    "objects_committed": '{"node_id": 4, "object_id": 9, "ranges": [[7, 0, 9]], "size_bytes": 100}',
    "stream_cuts_between": '{"start": {"3@1": 120}, "end": {}}',
}
LOOKUPS = '{"lookups": [{"stream_id": 7, "start": 0, "end": -1, "limit": 2}], "deadline_seconds": 1.5}'


def _request(query: bytes) -> Request:
    return Request({"type": "http", "query_string": query, "headers": [(b"content-type", b"application/json")]})


def _example_of(kind: type[msgspec.Struct]) -> str:
    """A query with the parameters that have to be there; texts are segments."""
    needed = [each for each in msgspec.structs.fields(kind) if each.required]
    return "&".join(f"{each.encode_name}={'3%401' if 'str' in str(each.type) else 1}" for each in needed)


def _query_decoder(name: str) -> Decoder:
    return _json(
        f"query-{name}",
        (),
        lambda data: _query(QUERIES[name], _request(data)),
        seeds_of(EXAMPLES.get(name) or _example_of(QUERIES[name])),
        (Refused,),
        declared_bytes=len,  # the parts that the server's library makes of them, before we see any
    )


def _read_body(kind: type[msgspec.Struct], data: bytes) -> object:
    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": data, "more_body": False}

    request = Request({"type": "http", "headers": [(b"content-type", b"application/json")]}, receive)
    waiting = _body(kind, request, 1 << 20)
    try:
        waiting.send(None)
    except StopIteration as done:
        return done.value
    raise TypeError("expected a body at once")


def _body_decoder(name: str) -> Decoder:
    kind = BODIES[name]
    seed = BODY_EXAMPLES.get(name) or (LOOKUPS if "lookups" in kind.__struct_fields__ else _empty_of(kind))
    return _json(f"body-{name}", (), lambda data: _read_body(kind, data), seeds_of(seed), (Refused,))


def _empty_of(kind: type[msgspec.Struct]) -> str:
    return json.dumps(dict.fromkeys(kind.__struct_fields__, 0))


# -- command line, names, keys -----------------------------------------------------------------------------------------


def _text(
    name: str, function: Any, *seeds: str, write: Callable[[Any], str] | None = None, read: Any = None
) -> Decoder:
    """A decoder of a short text that raises ValueError; `read` is another form of the function."""
    reader, back = read or function, None
    if write is not None:
        back = lambda value: write(value).encode("utf-8", "surrogateescape")  # noqa: E731 - for `Decoder`
    return Decoder(
        name, (of(function),), lambda data: reader(as_text(data)), seeds_of(*seeds), TEXT_ERRORS, back, is_text=True
    )


def _key(name: str, function: Any, write: Callable[[Any], str], seed: Any, *before: Any) -> Decoder:
    """A parser of keys: None for all but those that another function makes, so what is read is written the same.

    Args:
        name: of the decoder.
        function: takes what stands before, and the text.
        write: makes the key.
        seed: of which it makes one.
        before: what the function takes besides.
    """

    def parsed(text: str) -> object:
        found = function(*before, text)
        if found is None:
            raise ValueError("no key of this kind")
        if write(found) != text:
            raise TypeError(f"expected only what is made for {found}, found {text!r}")
        return found

    return _text(name, function, write(seed), write=write, read=parsed)


def _cut_text(cut: Mapping[int, int]) -> str:
    return " ".join(f"{values.segment_text(each)}={offset}" for each, offset in cut.items())


def _decoded_name(text: str) -> str:
    name = layout.decode_name(text)
    if layout.encode_name(name) != text:
        raise TypeError("expected only what is made of a name")
    return name


FILE_NAME_MAX = 255
"""No file system of this machine has longer ones."""


def _entry_name(text: str) -> object:
    """A file's name in a folder of a store; an object's key leads to the file again. What is no UTF-8 is not listed."""
    found = file.entry_of(text, is_folder=False) if len(text) <= FILE_NAME_MAX else None
    if found is None:
        raise ValueError("no name of a store")
    key = found.text.decode()
    if file.place_of(key)[1] != text:
        raise TypeError(f"expected only the name that is made for {key!r}, found {text!r}")
    return found


def _folder_name(text: str) -> object:
    found = file.entry_of(text, is_folder=True) if len(text) <= FILE_NAME_MAX else None
    if found is None:
        raise ValueError("no name of a store")
    return found


def _file_url(text: str) -> Path:
    """The folder of a store, which is not made before something is written to it."""
    store = open_store("file:" + text)
    assert isinstance(store, FileStore)
    return store.folder


def _content_range(text: str) -> tuple[int, int, int]:
    start, end, size = parse_content_range(text)
    return start, end, size


def _content_range_text(found: tuple[int, int, int]) -> str:
    return f"bytes {found[0]}-{found[1] - 1}/{found[2]}"


HINT_FILE = SimpleNamespace(generation=1_700_000_000_000, name="filters-0-00000")


def _hint_file_key(found: Any) -> str:
    return layout.hint_file_key(HintKind.PACKS, 7, found.generation, found.name)


def _moment_text(moment: int | notation.Age) -> str:
    return f"{moment.milliseconds}ms ago" if isinstance(moment, notation.Age) else str(moment)


def _texts() -> list[Decoder]:
    objects = ObjectLayout(namespace="shop")
    moments = ("1800000000500", "2027-01-15T08:00:00.500Z", "1970-01-01 00:01", "1h ago")
    places = ("tail", "head", "0@0=120 1@0=7", "1970-01-01 00:01")
    urls = ("///tmp/objects", "///tmp/a%20b", "//localhost/tmp/x")
    return [
        _text("cli-size", units.parse_size, "64MiB", "1.5 GiB", "512", "64MB", write=str),
        _text("cli-time", units.parse_time, "10m", "500ms", "1h30m", "2.5"),
        _text("cli-moment", notation.parse_moment, *moments, write=_moment_text),
        _text("cli-number", notation.parse_number, "3@0=-1", "0@5=120", write=lambda found: _cut_text(dict([found]))),
        _text("cli-range", notation.parse_range, "0.25:0.5", "0:1", write=lambda found: f"{found[0]!r}:{found[1]!r}"),
        _text("cli-cut", notation.parse_cut, "0@0=120 1@0=7", "0@0=1,1@0=2", write=_cut_text),
        _text("cli-place", notation.parse_place, *places),
        _text("cli-name", options.parse_name, "orders", write=str),
        _text("cli-fields", event_options.parse_fields, "time,offset", "all", write=",".join),
        _text("segment", values.parse_segment, "3@1", "0@0", write=values.segment_text),
        _text(
            "table-name", layout.decode_name, "stream%2F42%2Ea", "plain", write=layout.encode_name, read=_decoded_name
        ),
        _text("content-range", parse_content_range, "bytes 0-9/100", write=_content_range_text, read=_content_range),
        _text("file-name", file.entry_of, "a%20b%object", "format%object", "%2E%2E%object", read=_entry_name),
        _text("folder-name", file.entry_of, "accel", "%empty", "a" * 64 + "%more", read=_folder_name),
        _text("file-url", open_store, *urls, write=lambda each: each.as_uri().removeprefix("file:"), read=_file_url),
        _key("node-key", keys.parse_node_key, keys.node_key, 4),
        _key("list-version-key", keys.parse_list_version_key, lambda found: keys.list_version_key(*found), (4, 17)),
        _key("hint-file-key", layout.parse_hint_file_key, _hint_file_key, HINT_FILE, HintKind.PACKS, 7),
        _key("time-part-key", layout.parse_time_part_key, lambda found: layout.time_part_key(7, found), 65536, 7),
        _key(
            "number-table-key", layout.parse_number_table_key, lambda found: layout.number_table_key(7, found), 100, 7
        ),
        _key("upload-key", layout.parse_upload_key, lambda found: layout.upload_key(*found), (42, "2~a.b")),
        _key("mark", layout.Mark.of, str, f"{'0a' * 16}.42.{'f9' * 16}"),
        _key("object-key", objects.parse_object_key, objects.object_key, 42),
    ]


def decoders() -> list[Decoder]:
    """All of them."""
    image, of_image = seeds_of(json.dumps(IMAGE)), (MetadataImage.from_json, MetadataImage.from_dict)
    cuts, settings = ('{"0@0": 120, "1@0": 7}', '{"cut": {"0@0": 1}}'), 'profile = "a"\n[commands.read]\nlimit = 5\n'
    size_max = config_file.FILE_SIZE_BYTES_MAX  # it is read into a buffer of that size
    refusals, usage = (ImageRefused,), (click.UsageError,)
    return [
        _json("image-file", (load_image_file,), _read_image, image, refusals),
        _json("image-text", of_image, _read_image_text, image, (ImageRefused, ValueError)),
        _json("automq", (read_automq,), _read_automq, _automq, refusals),
        _json("swaps", (swaps_from_json,), swaps_from_json, _swaps, refusals, write=swaps_to_json, seal=_seal_swaps),
        _json("cut-file", (notation.read_cut,), _cut_file, seeds_of(*cuts), TEXT_ERRORS),
        _json(
            "settings-file",
            (config_file.read_file,),
            _settings_file,
            seeds_of(settings),
            usage,
            declared_bytes=lambda _: size_max,
        ),
        *map(_query_decoder, sorted(QUERIES)),
        *map(_body_decoder, sorted(BODIES)),
        *_texts(),
    ]
