"""The byte ranges of an answer in its objects, for clients that fetch the bytes themselves.

A lookup returns the objects that hold offsets of a stream; the block index of each object contains the byte ranges.
Indexes are opened in parallel, and indexes in memory cost no request. Threads: any.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from accel.lookup.answer import Answer
from loaders.format import find
from loaders.format.index import block_spans
from loaders.object_index import ObjectIndexLoader


@dataclass(frozen=True, slots=True)
class BytePlace:
    """Bytes of one object that hold whole blocks of a stream, one after another.

    Args:
        object_id: the object; for a composite object, the linked object.
        start_byte, end_byte: [start, end) in that object.
        start, end: the offsets in these blocks; they may extend beyond the request at both ends.
    """

    object_id: int
    start_byte: int
    end_byte: int
    start: int
    end: int


def places_of(loader: ObjectIndexLoader, answer: Answer, max_bytes: int, span_size_bytes_max: int) -> list[BytePlace]:
    """The byte ranges of an answer, in the order of offsets. Blocks until the indexes are open.

    Args:
        loader: opens indexes.
        answer: of a lookup.
        max_bytes: of payload; the block that reaches it is the last one.
        span_size_bytes_max: of one place; a single block may be longer.

    Raises:
        StoreError, CorruptObject: an object could not be opened.
    """
    return list(_places(loader, answer, max_bytes, span_size_bytes_max))


def _places(loader: ObjectIndexLoader, answer: Answer, max_bytes: int, span_size_bytes_max: int) -> Iterator[BytePlace]:
    request = answer.request
    offset, bytes_left = request.start, max_bytes
    loads = [loader.open(-1 if each.node_id is None else each.node_id, each.ref) for each in answer.objects]
    for found, load in zip(answer.objects, loads, strict=True):
        if bytes_left <= 0:
            return
        opened = load.result.result()
        chosen = find(opened.index, request.stream_id, offset, request.end, bytes_left)
        for link, rows in block_spans(opened.index, opened.composite, chosen.rows, span_size_bytes_max):
            object_id = found.object_id if link is None else link
            first, last = rows[0], rows[-1]
            yield BytePlace(object_id, first.position, last.position + last.size_bytes, first.start, last.end)
        offset, bytes_left = found.end, chosen.bytes_left
