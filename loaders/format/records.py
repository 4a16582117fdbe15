"""Data blocks and the record batches in them.

A block is a header of 10 bytes and the record batches of one stream:

    | bytes | field        | meaning                                        |
    |-------|--------------|------------------------------------------------|
    | 1     | magic        | 0x5A                                           |
    | 1     | flags        | 0x02; anything else would be another encoding  |
    | 4     | record count | batches in the block                           |
    | 4     | data length  | bytes of the batches, without this header      |

A record batch is a header of 33 bytes and the bytes that the producer sent, which mean nothing here:

    | bytes | field          | meaning                                              |
    |-------|----------------|------------------------------------------------------|
    | 1     | magic          | 0x22                                                 |
    | 8     | stream id      | the same in all batches of a block                   |
    | 8     | epoch          | of the writer                                        |
    | 8     | base offset    | the first offset                                     |
    | 4     | count          | offsets covered; 0 or less marks a *link* record     |
    | 4     | payload length | bytes that follow                                    |
    | n     | payload        |                                                      |

All integers are big endian. A batch covers ``[base, base + count)``; a link record, whose payload points elsewhere,
stands for ``-count`` offsets, so its end is ``base - count``.

A row of the index names a run of bytes that holds one block, or after compaction several of them end to end. The row
and the blocks say many things twice (stream, offsets, number of batches, sizes); all of them must agree.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from loaders.errors import CorruptObject
from loaders.format.block_index import BATCH_HEADER_SIZE_BYTES, BLOCK_HEADER_SIZE_BYTES, BlockRow

BLOCK_MAGIC = 0x5A
BLOCK_FLAGS = 0x02
BATCH_MAGIC = 0x22

_BLOCK_HEADER = struct.Struct(">BBii")
_BATCH_HEADER = struct.Struct(">Bqqqii")


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """One batch of records of a stream. Threads: immutable."""

    stream_id: int
    epoch: int
    base_offset: int
    count: int
    payload: bytes

    @property
    def end_offset(self) -> int:
        """One past the last offset that the batch stands for."""
        return self.base_offset + abs(self.count)

    @property
    def is_link(self) -> bool:
        """Whether the payload points elsewhere instead of being records."""
        return self.count <= 0

    def encode(self) -> bytes:
        """Header and payload; the numbers must fit their fields, which the encoder of objects checks."""
        header = _BATCH_HEADER.pack(
            BATCH_MAGIC, self.stream_id, self.epoch, self.base_offset, self.count, len(self.payload)
        )
        return header + self.payload


def encode_block(batches: Sequence[RecordBatch]) -> bytes:
    """One block of these batches, header first; the numbers must fit their fields."""
    body = [batch.encode() for batch in batches]
    header = _BLOCK_HEADER.pack(BLOCK_MAGIC, BLOCK_FLAGS, len(batches), sum(map(len, body)))
    return b"".join((header, *body))


def decode_block_bytes(
    data: bytes | memoryview, row: BlockRow, *, key: str, object_size_bytes: int
) -> list[RecordBatch]:
    """Read the batches of one row of the index, from however many blocks it covers.

    Complexity: O(batches) and a copy of their payloads, so that none keeps the whole block in memory.

    Args:
        data: the bytes ``[position, position + size)`` that the row names.
        row: the row of the index.
        key: the object's key, for the error's sake.
        object_size_bytes: length of the whole object, for the error's sake.

    Raises:
        CorruptObject: bytes that are no blocks of whole batches, or that say anything else than the row does: another
            stream, other offsets, another number of batches, another size. Batches may leave offsets out, but may not
            go back.

    Source: docs/formats.md, "Data block".
    """
    corrupt = partial(CorruptObject, key, object_size_bytes)
    if len(data) != row.size_bytes:
        expected = f"{row.size_bytes} bytes of blocks at {row.position}"
        raise corrupt(expected=expected, found=f"{len(data)} bytes")
    reader = _RowReader(memoryview(data), row, corrupt)
    while reader.position < len(data):
        reader.read_block()
    reader.check_complete()
    return reader.batches


class _RowReader:
    """Walks over the blocks of one row; ``position`` is the next byte to read. One thread at a time."""

    def __init__(self, data: memoryview, row: BlockRow, corrupt: Callable[..., CorruptObject]) -> None:
        self.batches: list[RecordBatch] = []
        self.position = 0
        self._next_offset = row.start
        self._data = data
        self._row = row
        self._corrupt = corrupt

    def read_block(self) -> None:
        count, block_end = self._read_block_header()
        for _ in range(count):
            self._read_batch(block_end)
        if self.position != block_end:
            raise self._refused(f"{count} batches to fill the block", f"{block_end - self.position} bytes more")

    def check_complete(self) -> None:
        row = self._row
        if len(self.batches) != row.record_count:
            raise self._refused(f"{row.record_count} batches, as the row says", f"{len(self.batches)}")
        if not self.batches or self.batches[0].base_offset != row.start or self._next_offset != row.end:
            found = f"[{self.batches[0].base_offset}, {self._next_offset})" if self.batches else "none"
            raise self._refused(f"offsets [{row.start}, {row.end}), as the row says", found)

    def _read_block_header(self) -> tuple[int, int]:
        start = self.position + BLOCK_HEADER_SIZE_BYTES
        room = len(self._data) - start
        if room < 0:
            raise self._refused(f"a block header of {BLOCK_HEADER_SIZE_BYTES} bytes", "the end of the row's bytes")
        magic, flags, count, length = _BLOCK_HEADER.unpack_from(self._data, self.position)
        if magic != BLOCK_MAGIC or flags != BLOCK_FLAGS:
            raise self._refused(f"block magic {BLOCK_MAGIC:#x} and flags {BLOCK_FLAGS:#x}", f"{magic:#x}, {flags:#x}")
        if not 0 <= length <= room:
            raise self._refused(f"a data length of 0 to {room}", f"{length}")
        # The count is believed no further than its batches have bytes, and the row has records.
        most = min(length // BATCH_HEADER_SIZE_BYTES, self._row.record_count - len(self.batches))
        if not 0 < count <= most:
            raise self._refused(f"a record count of 1 to {most}", f"{count}")
        self.position = start
        return count, start + length

    def _read_batch(self, block_end: int) -> None:
        start = self.position + BATCH_HEADER_SIZE_BYTES
        if start > block_end:
            raise self._refused(f"a batch header of {BATCH_HEADER_SIZE_BYTES} bytes", "the end of the block")
        magic, stream_id, epoch, base_offset, count, length = _BATCH_HEADER.unpack_from(self._data, self.position)
        if magic != BATCH_MAGIC or stream_id != self._row.stream_id:
            expected = f"batch magic {BATCH_MAGIC:#x} and stream {self._row.stream_id}"
            raise self._refused(expected, f"{magic:#x}, {stream_id}")
        if not 0 <= length <= block_end - start:
            raise self._refused(f"a payload length of 0 to {block_end - start}", f"{length}")
        batch = RecordBatch(stream_id, epoch, base_offset, count, bytes(self._data[start : start + length]))
        if not self._next_offset <= base_offset <= batch.end_offset <= self._row.end:
            expected = f"offsets within [{self._next_offset}, {self._row.end})"
            raise self._refused(expected, f"[{base_offset}, {batch.end_offset})")
        self.batches.append(batch)
        self._next_offset = batch.end_offset
        self.position = start + length

    def _refused(self, expected: str, found: str) -> CorruptObject:
        return self._corrupt(expected=f"{expected} at byte {self._row.position + self.position}", found=found)
