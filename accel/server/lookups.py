"""Lookups over HTTP: objects, batches of lookups, traces, records, and the byte ranges of records.

A lookup that is answered from memory does no I/O and stays in its thread. Other lookups wait on the event loop for
loads, which run in the accelerator's threads. An answer is valid for one image, whose version is its ETag: a client
that sends the ETag back gets 304 while this image is the newest loaded one. An answer that ends at a hole or is partial
has no ETag, as the same request may return more later.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from hashlib import blake2b
from typing import Annotated, Final

from msgspec import Meta, Struct
from starlette.responses import Response, StreamingResponse

from accel.errors import AccelError
from accel.image import OPEN_END, ImageVersion, VersionVector, version_number
from accel.lookup.answer import Answer, Ending, Request
from accel.lookup.async_accelerator import AsyncReading
from accel.server.operations import BINARY, Asked, Operation, json_response
from accel.server.problems import Problem, Refused, problem_of
from accel.server.sidecar import Sidecar
from loaders.format import RecordBatch
from loaders.settings import MIB

Whole = Annotated[int, Meta(ge=0, le=2**63 - 1)]
End = Annotated[int, Meta(ge=-1, le=2**63 - 1)]
Limit = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Seconds = Annotated[float, Meta(ge=0, le=3600)]


class ObjectsQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The request of a lookup; offsets [start, end), an end of -1 is open."""

    stream_id: Whole
    start: Whole
    end: End = OPEN_END
    limit: Limit = 4
    deadline_seconds: Seconds | None = None
    max_fill_rounds: Whole | None = None


class FoundPlace(Struct, frozen=True):
    """An object that holds offsets [start, end) of the stream, and its key in the bucket, below the sidecar's prefix.

    `node_id` is the node that lists it; null for an object of one stream. `size_bytes` is -1 if not known.
    """

    object_id: int
    key: str
    start: int
    end: int
    kind: str
    node_id: int | None
    size_bytes: int


class Objects(Struct, frozen=True):
    """Objects in offset order, each starting where the one before it ends.

    `ending` is the reason why there are no more: limit, end, hole (the image lists no next object) or partial (a limit
    of the caller); continue at `resume_offset`. After all data of the stream, `stream_end` is its end, else it is null:
    a position after it is wrong, or data up to there is about to be committed. `rounds` and `objects_opened` are the
    cost; both are 0 from memory.
    """

    stream_id: int
    image_version: int
    ending: str
    resume_offset: int
    stream_end: int | None
    objects: list[FoundPlace]
    rounds: int
    objects_opened: int


class BatchLookup(Struct, frozen=True, forbid_unknown_fields=True):
    """One lookup of a batch."""

    stream_id: Whole
    start: Whole
    end: End = OPEN_END
    limit: Limit = 4


class Batch(Struct, frozen=True, forbid_unknown_fields=True):
    """Many lookups, whose loads share rounds."""

    lookups: list[BatchLookup]
    deadline_seconds: Seconds | None = None


class Outcome(Struct, frozen=True, omit_defaults=True):
    """The result of one lookup of a batch: an answer, or a problem."""

    answer: Objects | None = None
    problem: Problem | None = None


class BatchReply(Struct, frozen=True):
    """The results of a batch, in the order of its lookups; the failure of one does not affect the others."""

    outcomes: list[Outcome]


class RecordsQuery(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The record batches to read; `max_bytes` limits their payload."""

    stream_id: Whole
    start: Whole
    end: End = OPEN_END
    max_bytes: Limit = 1 << 20


class Place(Struct, frozen=True):
    """Bytes [start_byte, end_byte) of an object, which hold blocks of offsets [start, end) of the stream."""

    object_id: int
    key: str
    start_byte: int
    end_byte: int
    start: int
    end: int


class Places(Struct, frozen=True):
    """The byte ranges of a range, for a client with access to the bucket; continue at `next_offset`.

    `stream_end` is as in an answer with objects.
    """

    stream_id: int
    image_version: int
    next_offset: int
    stream_end: int | None
    ending: str
    places: list[Place]


OBJECTS_MAX: Final = 10_000
"""The limit of one lookup."""

BATCH_MAX: Final = 10_000
"""Lookups of one batch."""

BATCH_OBJECTS_MAX: Final = 100_000
"""The limits of all lookups of a batch together."""

RECORDS_BYTES_MAX: Final = 64 * MIB
"""Payload of one answer with records."""

PLACES_OBJECTS: Final = 64
"""The maximum number of objects in one answer with places."""

STREAMED_BYTES: Final = 1 << 18
"""Batches are sent together up to this number of bytes."""


class _Etags:
    """The ETag of the version that was requested last. One event loop."""

    def __init__(self) -> None:
        self._version: ImageVersion | None = None
        self._etag = ""

    def of(self, version: ImageVersion) -> str:
        """The ETag of an image of this version; O(keys) for a new one, else O(1)."""
        if version is not self._version:
            text = str(version)
            if isinstance(version, VersionVector):
                text = f"{version.generation} {sorted(version.items())}"
            self._version, self._etag = version, f'"{blake2b(text.encode(), digest_size=12).hexdigest()}"'
        return self._etag


_etags = _Etags()


def _unchanged(sidecar: Sidecar, asked: Asked) -> Response | None:
    given = asked.headers.get("if-none-match")
    if given is None:
        return None
    version = sidecar.accelerator.version_at_hand()
    if version is None or given.removeprefix("W/") != (etag := _etags.of(version)):
        return None
    return Response(status_code=304, headers={"etag": etag})


def _told(sidecar: Sidecar, answer: Answer) -> Objects:
    key_of = sidecar.key_of
    found = [
        FoundPlace(ref.object_id, key_of(ref.object_id), start, end, kind._value_, node_id, ref.size_bytes)
        for kind, ref, start, end, node_id in answer.objects
    ]
    version = version_number(answer.image_version)
    ending, stream_id = answer.ending.value, answer.request.stream_id
    reached = (answer.resume_offset, answer.stream_end)
    return Objects(stream_id, version, ending, *reached, found, answer.rounds, answer.objects_opened)


def _check_limit(limit: int) -> None:
    if limit > OBJECTS_MAX:
        found = f"expected a limit of at most {OBJECTS_MAX}, found {limit}"
        raise Refused("InvalidRequest", 400, "The request makes no sense.", found)


async def find_objects(sidecar: Sidecar, asked: Asked) -> Response:
    """`GET /v1/objects`."""
    if (unchanged := _unchanged(sidecar, asked)) is not None:
        return unchanged
    query: ObjectsQuery = asked.query
    _check_limit(query.limit)
    answer = await sidecar.accelerator.get_objects(
        query.stream_id,
        query.start,
        query.end,
        query.limit,
        deadline_seconds=query.deadline_seconds,
        max_fill_rounds=query.max_fill_rounds,
    )
    is_final = answer.ending in (Ending.LIMIT, Ending.END)
    headers = {"etag": _etags.of(answer.image_version)} if is_final else None
    return json_response(_told(sidecar, answer), headers=headers)


async def find_many(sidecar: Sidecar, asked: Asked) -> Response:
    """`POST /v1/objects:batch`."""
    batch: Batch = asked.body
    if len(batch.lookups) > BATCH_MAX:
        found = f"expected at most {BATCH_MAX} lookups in a batch, found {len(batch.lookups)}"
        raise Refused("InvalidRequest", 400, "The request makes no sense.", found)
    limits = [each.limit for each in batch.lookups]
    _check_limit(max(limits, default=0))
    if sum(limits) > BATCH_OBJECTS_MAX:
        found = f"expected limits of at most {BATCH_OBJECTS_MAX} together, found {sum(limits)}"
        raise Refused("InvalidRequest", 400, "The request makes no sense.", found)
    requests = [Request(each.stream_id, each.start, each.end, each.limit) for each in batch.lookups]
    outcomes = await sidecar.accelerator.get_objects_many(requests, deadline_seconds=batch.deadline_seconds)
    told = [
        Outcome(None, problem_of(each)) if isinstance(each, AccelError) else Outcome(_told(sidecar, each))
        for each in outcomes
    ]
    return json_response(BatchReply(told))


async def explain(sidecar: Sidecar, asked: Asked) -> Response:
    """`GET /v1/explain`."""
    query: ObjectsQuery = asked.query
    _check_limit(query.limit)
    explanation = await sidecar.accelerator.explain(
        query.stream_id,
        query.start,
        query.end,
        query.limit,
        deadline_seconds=query.deadline_seconds,
        max_fill_rounds=query.max_fill_rounds,
    )
    return json_response(explanation.to_dict())


async def read_records(sidecar: Sidecar, asked: Asked) -> Response:
    """`GET /v1/records`: reads the first batch before the answer begins, so that an error is still a problem."""
    query = _checked_records(asked)
    reading = sidecar.accelerator.read(query.stream_id, query.start, query.end, max_bytes=query.max_bytes)
    try:
        first = await anext(reading, None)
    except BaseException:
        reading.close()
        raise
    if first is None:
        reading.close()
        headers = {} if reading.stream_end is None else {"accel-stream-end": str(reading.stream_end)}
        return Response(b"", media_type=BINARY, headers=headers)
    return StreamingResponse(_streamed(reading, first), media_type=BINARY)


async def _streamed(reading: AsyncReading, first: RecordBatch) -> AsyncIterator[bytes]:
    async with reading:
        parts, size_bytes = [first.encode()], len(first.payload)
        async for batch in reading:
            parts.append(batch.encode())
            size_bytes += len(batch.payload)
            if size_bytes >= STREAMED_BYTES:
                yield b"".join(parts)
                parts, size_bytes = [], 0
        yield b"".join(parts)


async def find_places(sidecar: Sidecar, asked: Asked) -> Response:
    """`GET /v1/records/places`: does the lookup on the event loop, and opens the objects in a thread."""
    query = _checked_records(asked)
    accelerator = sidecar.accelerator
    answer = await accelerator.get_objects(query.stream_id, query.start, query.end, PLACES_OBJECTS)
    found = await sidecar.in_thread(accelerator.places, answer, max_bytes=query.max_bytes)
    key_of = sidecar.key_of
    places = [
        Place(each.object_id, key_of(each.object_id), each.start_byte, each.end_byte, each.start, each.end)
        for each in found
    ]
    reached = max((each.end for each in places), default=query.start)
    is_whole = reached >= answer.resume_offset
    ending, end = (answer.ending.value, answer.stream_end) if is_whole else (Ending.LIMIT.value, None)
    version = version_number(answer.image_version)
    return json_response(Places(query.stream_id, version, reached, end, ending, places))


def _checked_records(asked: Asked) -> RecordsQuery:
    query: RecordsQuery = asked.query
    if query.max_bytes > RECORDS_BYTES_MAX:
        found = f"expected max_bytes of at most {RECORDS_BYTES_MAX}, found {query.max_bytes}"
        raise Refused("InvalidRequest", 400, "The request makes no sense.", found)
    return query


OPERATIONS: Final = (
    Operation(
        "GET",
        "/v1/objects",
        "objects",
        "The objects that hold offsets of a stream, in order and without a gap.",
        find_objects,
        query=ObjectsQuery,
        reply=Objects,
        is_conditional=True,
    ),
    Operation(
        "POST",
        "/v1/objects:batch",
        "objects_batch",
        "The same for many streams; their loads share rounds.",
        find_many,
        body=Batch,
        reply=BatchReply,
    ),
    Operation("GET", "/v1/explain", "explain", "A lookup with its trace.", explain, query=ObjectsQuery),
    Operation(
        "GET",
        "/v1/records",
        "records",
        "Record batches in their stored form, one after another (docs/reference/objects.md).",
        read_records,
        query=RecordsQuery,
        media_type=BINARY,
    ),
    Operation(
        "GET",
        "/v1/records/places",
        "places",
        "The byte ranges of a range of offsets, for a client that reads them itself.",
        find_places,
        query=RecordsQuery,
        reply=Places,
    ),
)
