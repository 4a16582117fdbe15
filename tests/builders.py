"""Builds small objects for tests, with the project's own writer."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from loaders.format import BlockIndex, Footer, LinkedObject, ObjectEncoder, RecordBatch

COUNT_MAX = 2**31 - 1


def write_set_object(
    ranges: Iterable[tuple[int, int, int]], *, gaps: dict[int, tuple[int, int]] | None = None
) -> bytes:
    """An object that holds (stream id, start, end) ranges, one block each; two around a gap of [start, end)."""
    encoder = ObjectEncoder()
    parts = []
    for stream_id, start, end in sorted(ranges):
        gap = (gaps or {}).get(stream_id)
        pieces = [(start, gap[0]), (gap[1], end)] if gap else [(start, end)]
        parts += [encoder.write(stream_id, batches(stream_id, *piece)) for piece in pieces]
    return b"".join([*parts, encoder.finish()])


def encode_composite(links: tuple[LinkedObject, ...], index: BlockIndex) -> bytes:
    """A composite object, as other systems write it; the links divide the rows among them."""
    head = struct.pack(">Bi", 0x52, len(links)) + b"".join(struct.pack(">qih", *link) for link in links)
    return head + index.data + Footer(len(head), len(index.data), composite=True).encode()


def batches(stream_id: int, start: int, end: int) -> list[RecordBatch]:
    """Batches that cover [start, end), each with a payload that tells what it is."""
    return [
        RecordBatch(stream_id, 1, base, stop - base, b"%d:%d-%d" % (stream_id, base, stop))
        for base, stop in _steps(start, end)
    ]


def _steps(start: int, end: int) -> Iterator[tuple[int, int]]:
    yield start, min(end, start + COUNT_MAX)
    for base in range(start + COUNT_MAX, end, COUNT_MAX):
        yield base, min(end, base + COUNT_MAX)
