"""Merging ten objects of 10 MB in memory, without a store: 9,000 streams of small blocks, 900 and 90 of larger ones.

Three lines a shape:

* `compaction_copy`: plan, copy, and make the new index. The peer is a simple loop over the rows of `BlockIndex`: merged
  by a heap, each block cut out and appended, rows coalesced and encoded one by one.
* `compaction_join`: only the copying, from the plan to the joined parts. The peer is the minimum work of any merge:
  `bytes.join` over the same blocks, as slices that were cut out beforehand. 0.5 means twice its time.
* `compaction_checked`: as the first, and both sides check the header of every block and hash the bytes read and the
  bytes to be sent. This is the whole work of a merge besides requests.

Each round of the first and the third must produce the same object on both sides, byte for byte.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

import numpy as np
from xxhash import xxh3_64

from benchmarks.harness import Comparison, interleave
from loaders.format import BlockIndex, BlockRow, ObjectEncoder, RecordBatch, open_tail
from loaders.format.tail import Footer
from loaders.merge.merger import cut_pieces, join_copies
from loaders.merge.plan import Copies, MergedOutput, MergeLimits, plan_merge
from loaders.merge.reading import Source, SourceSpan, divide, locate
from loaders.merge.sending import PartBuffer
from loaders.object_ref import ObjectRef
from loaders.settings import MergeSettings
from loaders.store import Body

OBJECTS: Final = 10
OBJECT_SIZE_BYTES: Final = 10_000_000
SHAPES: Final = ((9_000, 1_100), (900, 2_780), (90, 13_900))
"""Streams of each object, and bytes of a block."""

LIMITS: Final = MergeLimits()
WHOLE: Final = MergeSettings(band_size_bytes=1 << 30)
NO_STREAMS: Final = np.empty(0, dtype=np.int64)

_HEADER = struct.Struct(">BBiiB")


class Group(NamedTuple):
    """Objects to merge, opened."""

    sources: list[Source]
    spans: list[SourceSpan]
    chunks: list[memoryview]
    buffers: dict[int, PartBuffer]

    @property
    def indexes(self) -> list[BlockIndex]:
        """The indexes of all sources."""
        return [source.index for source in self.sources]


def run(rounds: int = 7) -> list[Comparison]:
    """Each shape against a loop over rows, and against a join; the values are those of the whole group."""
    return [line for streams, block_size_bytes in SHAPES for line in _compare(streams, block_size_bytes, rounds)]


def _compare(streams: int, block_size_bytes: int, rounds: int) -> Iterator[Comparison]:
    group = make_group(streams, block_size_bytes)
    megabytes = sum(source.ref.size_bytes for source in group.sources) / 1e6
    shape = f"{megabytes:,.0f} MB of {streams:,} streams, blocks of {block_size_bytes:,} bytes"

    for name, checked, goal in (("copy", False, 3.0), ("checked", True, None)):
        merging = interleave(
            partial(merged, group, checked=checked),
            partial(merged_by_row_loop, group, checked=checked),
            rounds=rounds,
            same=_same_bytes,
        )
        yield merging.compare(f"compaction_{name}_{streams}", peer=f"row by row, {shape}", unit="ms", goal=goal)

    (output,) = plan_merge(group.indexes, NO_STREAMS, NO_STREAMS, LIMITS).outputs
    parts = [copies for copies, _ in _parts(output)]
    blocks = [_blocks(group, copies) for copies in parts]
    copying = interleave(
        lambda: [_copied(group, number, copies, b"") for number, copies in enumerate(parts)],
        lambda: [b"".join(pieces) for pieces in blocks],
        rounds=rounds,
        same=_same_bytes,
    )
    peer = f"bytes.join over the same blocks, {shape}"
    yield copying.compare(f"compaction_join_{streams}", peer=peer, unit="ms", goal=0.5)


def make_group(streams: int, block_size_bytes: int) -> Group:
    """Objects that hold the same streams one after another, like the uploads of a node."""
    generator = np.random.default_rng(5)
    batches = OBJECT_SIZE_BYTES // (streams * block_size_bytes)
    sources = []
    for number in range(OBJECTS):
        payload = generator.bytes(block_size_bytes - 43)
        encoder = ObjectEncoder(1)
        parts = [
            encoder.write(stream_id, [RecordBatch(stream_id, 1, 10 * offset, 10, payload) for offset in offsets])
            for offsets in [range(number * batches, (number + 1) * batches)]
            for stream_id in range(streams)
        ]
        sources.append(_opened(number, b"".join([*parts, encoder.finish()])))
    spans = [SourceSpan(number, 0, source.ref.size_bytes) for number, source in enumerate(sources)]
    return Group(sources, spans, [memoryview(source.body or b"") for source in sources], {})


def _opened(number: int, body: bytes) -> Source:
    index = open_tail(body, object_size_bytes=len(body), key="benchmark")
    assert isinstance(index, BlockIndex)
    return Source(ObjectRef(number, len(body), index.nbytes), "benchmark", index, body, 0, 0)


def merged(group: Group, *, checked: bool) -> list[memoryview]:
    """Ours: the parts of the merged object."""
    (output,) = plan_merge(group.indexes, NO_STREAMS, NO_STREAMS, LIMITS).outputs
    join = _checked if checked else _copied
    return [join(group, number, copies, tail) for number, (copies, tail) in enumerate(_parts(output))]


def _parts(output: MergedOutput) -> Iterator[tuple[Copies, bytes]]:
    for part in (part for band in divide([output], WHOLE) for part in band):
        yield output.copies[part.first : part.end], output.tail if part.is_last else b""


def _copied(group: Group, number: int, copies: Copies, tail: bytes) -> memoryview:
    located = locate(group.spans, copies["source"], copies["position"])
    return _buffer(group, number).fill([*cut_pieces(copies, located, group.chunks), tail])


def _checked(group: Group, number: int, copies: Copies, tail: bytes) -> memoryview:
    located = locate(group.spans, copies["source"], copies["position"])
    return join_copies(_buffer(group, number), group.sources, copies, located, group.chunks, tail).data


def _buffer(group: Group, number: int) -> PartBuffer:
    # A merge reuses two or three buffers; here each part has its own, as all parts are compared afterwards.
    buffer = group.buffers.setdefault(number, PartBuffer())
    buffer.clear()
    return buffer


def _blocks(group: Group, copies: Copies) -> list[memoryview]:
    columns = (copies["source"].tolist(), copies["position"].tolist(), copies["size_bytes"].tolist())
    return [group.chunks[source][at : at + size] for source, at, size in zip(*columns, strict=True)]


def merged_by_row_loop(group: Group, *, checked: bool) -> list[Body]:
    """The same object by a loop over the sorted rows of all sources."""
    numbered = [[(row, number) for row in index] for number, index in enumerate(group.indexes)]
    data, index, read = bytearray(), bytearray(), xxh3_64()
    last: BlockRow | None = None
    for row, number in heapq.merge(*numbered):
        block = group.chunks[number][row.position : row.position + row.size_bytes]
        if checked:
            assert _HEADER.unpack_from(block) == (0x5A, 2, row.record_count, row.size_bytes - 10, 0x22)
            read.update(block)
        if last and joins(last, row):
            records, size_bytes = last.record_count + row.record_count, last.size_bytes + row.size_bytes
            last = last._replace(end=row.end, record_count=records, size_bytes=size_bytes)
        else:
            index += last.encode() if last else b""
            last = row._replace(position=len(data))
        data += block
    assert last is not None
    index += last.encode()
    if checked:
        assert xxh3_64(data).intdigest() == read.intdigest()
    return [data, index, Footer(len(data), len(index)).encode()]


def joins(last: BlockRow, row: BlockRow) -> bool:
    """Whether a row may be coalesced with the one before it."""
    is_next = last.stream_id == row.stream_id and last.end == row.start
    return is_next and last.size_bytes + row.size_bytes < LIMITS.row_size_bytes_max


def _same_bytes(ours: object, theirs: object) -> bool:
    return _digest(ours) == _digest(theirs)


def _digest(parts: object) -> int:
    # Joining the parts would need so much memory that the next round would have to allocate it from the system again.
    assert isinstance(parts, list)
    digest = xxh3_64()
    for part in parts:
        digest.update(part)
    return digest.intdigest()
