"""Data blocks and the record batches in them.

A block is a header of 10 bytes and the record batches of one stream:

    | bytes | field        | meaning                                        |
    |-------|--------------|------------------------------------------------|
    | 1     | magic        | 0x5A                                           |
    | 1     | flags        | 0x02; anything else would be another encoding  |
    | 4     | record count | batches in the block                           |
    | 4     | data length  | bytes of the batches, without this header      |

A record batch is a header of 33 bytes and the bytes that the producer sent, which are not interpreted here:

    | bytes | field          | meaning                                              |
    |-------|----------------|------------------------------------------------------|
    | 1     | magic          | 0x22                                                 |
    | 8     | stream id      | the same in all batches of a block                   |
    | 8     | epoch          | of the writer                                        |
    | 8     | base offset    | the first offset                                     |
    | 4     | count          | offsets covered; 0 or less marks a *link* record     |
    | 4     | payload length | bytes that follow                                    |
    | n     | payload        |                                                      |

All integers are big endian. A batch covers ``[base, base + count)``; a link record, whose payload refers to other data,
covers ``-count`` offsets, so its end is ``base - count``.

A row of the index describes a run of bytes that holds one block, or after compaction several adjacent blocks. Stream,
offsets, number of batches and sizes are in the row and in the blocks; all of them must agree.

Batches are decoded as columns (`BatchColumns`): their headers are found one after another, read as one array and
checked at once. A batch becomes an object, and its payload is copied, only when a caller iterates over the batches.
Bytes that fail the check are read again batch by batch, to report the fault and its place.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from loaders.errors import CorruptObject
from loaders.format.index import BATCH_HEADER_SIZE_BYTES, BLOCK_HEADER_SIZE_BYTES, BlockRow
from loaders.settings import make_plain

BLOCK_MAGIC = 0x5A
BLOCK_FLAGS = 0x02
BATCH_MAGIC = 0x22

_BLOCK_HEADER = struct.Struct(">BBii")
_BATCH_HEADER = struct.Struct(">Bqqqii")
_LENGTH_AT: Final = 29
_LENGTH = struct.Struct(">i")
_HEADER_COLUMNS: Final = np.dtype(
    [("magic", "u1"), ("stream_id", ">i8"), ("epoch", ">i8"), ("base", ">i8"), ("count", ">i4"), ("length", ">i4")]
)
_HEADER_BYTES: Final = np.arange(BATCH_HEADER_SIZE_BYTES)
Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """One batch of records of a stream. Threads: immutable."""

    stream_id: int
    epoch: int
    base_offset: int
    count: int
    payload: bytes

    def __post_init__(self) -> None:
        are_integers = type(self.stream_id) is type(self.epoch) is type(self.base_offset) is type(self.count) is int
        if not (are_integers and type(self.payload) is bytes):  # quick, for a million batches
            make_plain(self)

    @property
    def end_offset(self) -> int:
        """One past the last offset that the batch covers."""
        return self.base_offset + abs(self.count)

    @property
    def is_link(self) -> bool:
        """Whether the payload refers to other data instead of being records."""
        return self.count <= 0

    def encode(self) -> bytes:
        """Header and payload; the numbers must fit their fields, which `ObjectEncoder` checks."""
        header = _BATCH_HEADER.pack(
            BATCH_MAGIC, self.stream_id, self.epoch, self.base_offset, self.count, len(self.payload)
        )
        return header + self.payload


@dataclass(frozen=True, slots=True, eq=False)
class BatchColumns:
    """Consecutive batches of one stream, as columns over their bytes. Threads: immutable.

    Attributes:
        stream_id: the stream of all batches.
        epochs: per batch, the writer's epoch.
        base_offsets: per batch, the first offset; ascending.
        counts: per batch, the count in its header.
        starts: per batch, the position of its payload in the data.
        ends: per batch, one past the last byte of its payload.
        data: holds the payloads; a view keeps the whole underlying bytes in memory.
    """

    stream_id: int
    epochs: Numbers
    base_offsets: Numbers
    counts: Numbers
    starts: Numbers
    ends: Numbers
    data: bytes | memoryview

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def end_offsets(self) -> Numbers:
        """Per batch, one past the last offset that it covers."""
        return self.base_offsets + np.abs(self.counts)

    def wanted(self, start: int, end: int | None, max_bytes: int) -> BatchColumns:
        """The batches with offsets from a start on that begin before an end. Complexity: O(batches), no loop in Python.

        Args:
            start: the reader's position; batches without an offset from here on are left out.
            end: None = no end.
            max_bytes: of payload; the batch that reaches it is the last. A batch without payload counts as a byte.
        """
        ends = self.end_offsets
        chosen = self
        if int(ends[0]) <= start or (end is not None and int(self.base_offsets[-1]) >= end) or not self.counts.all():
            is_new = ends > np.maximum(start, np.concatenate(([start], ends[:-1])))
            chosen = self.where(is_new if end is None else is_new & (self.base_offsets < end))
        stop = int(_budgeted(chosen).cumsum().searchsorted(max_bytes)) + 1 if max_bytes > 0 else 0
        return chosen if stop >= len(chosen) else chosen.where(slice(stop))

    @property
    def size_bytes(self) -> int:
        """Bytes of all payloads, as budgets count them: a batch without payload counts as a byte."""
        return int(_budgeted(self).sum())

    def after(self, number: int) -> BatchColumns:
        """The batches without the first ones.

        Args:
            number: of batches to leave out.
        """
        return self.where(slice(number, None)) if number else self

    def owned(self) -> BatchColumns:
        """The same batches over their own bytes: a copy of the bytes from the first payload to the last."""
        if isinstance(self.data, bytes) or not len(self):
            return self
        first, last = int(self.starts[0]), int(self.ends[-1])
        return replace(self, starts=self.starts - first, ends=self.ends - first, data=bytes(self.data[first:last]))

    def __iter__(self) -> Iterator[RecordBatch]:
        """Each batch as an object, which keeps only its own bytes in memory."""
        columns = (self.epochs, self.base_offsets, self.counts, self.starts, self.ends)
        for epoch, base, count, start, end in zip(*(column.tolist() for column in columns), strict=True):
            yield RecordBatch(self.stream_id, epoch, base, count, bytes(self.data[start:end]))

    def where(self, chosen: NDArray[np.bool_] | slice) -> BatchColumns:
        """The chosen batches, over the same bytes."""
        return BatchColumns(
            self.stream_id,
            self.epochs[chosen],
            self.base_offsets[chosen],
            self.counts[chosen],
            self.starts[chosen],
            self.ends[chosen],
            self.data,
        )


def _budgeted(columns: BatchColumns) -> Numbers:
    sizes: Numbers = np.maximum(1, columns.ends - columns.starts)
    return sizes


def encode_block(batches: Sequence[RecordBatch]) -> bytes:
    """One block of these batches, header first; the numbers must fit their fields."""
    body = [batch.encode() for batch in batches]
    header = _BLOCK_HEADER.pack(BLOCK_MAGIC, BLOCK_FLAGS, len(batches), sum(map(len, body)))
    return b"".join((header, *body))


def decode_block_bytes(
    data: bytes | memoryview, row: BlockRow, *, key: str, object_size_bytes: int
) -> list[RecordBatch]:
    """Read the batches of one row of the index, of one block or of several.

    Complexity: O(batches) and a copy of their payloads, so that no batch keeps the whole block in memory.

    Args and errors: as of `decode_block_columns`, for one row.
    """
    return list(decode_block_columns(data, [row], key=key, object_size_bytes=object_size_bytes))


def decode_block_columns(
    data: bytes | memoryview, rows: Sequence[BlockRow], *, key: str, object_size_bytes: int
) -> BatchColumns:
    """The batches of adjacent rows of the index as columns over the same bytes, without a copy.

    Complexity: O(batches); a loop in Python over their lengths, since each length determines where the next batch
    begins.

    Args:
        data: the bytes of the rows, end to end: of each row ``[position, position + size)``.
        rows: rows of the index, of one stream; at least one.
        key: the object's key, for the error.
        object_size_bytes: length of the whole object, for the error.

    Raises:
        CorruptObject: bytes that are no blocks of whole batches, or that contradict a row: another stream, other
            offsets, another number of batches, another size. Batches may leave offsets out, but their offsets must not
            decrease.

    Source: docs/reference/objects.md, "Data block".
    """
    columns = _columns(data, rows) if len(data) == sum(row.size_bytes for row in rows) else None
    if columns is None:
        corrupt = partial(CorruptObject, key, object_size_bytes)
        _refuse(memoryview(data), rows, corrupt)
        raise corrupt(expected=f"adjacent rows of one stream from {rows[0].position} on", found="other rows")
    return columns


def _columns(data: bytes | memoryview, rows: Sequence[BlockRow]) -> BatchColumns | None:
    """The batches; None if the bytes contradict the rows or the format."""
    heads: list[int] = []
    firsts: list[int] = []
    position = 0
    for row in rows:
        firsts.append(len(heads))
        position += row.size_bytes
        if not _find_heads(data, position - row.size_bytes, position, row, heads):
            return None
    at = np.array(heads, dtype=np.int64)
    headers = np.frombuffer(data, dtype=np.uint8)[at[:, None] + _HEADER_BYTES].view(_HEADER_COLUMNS).ravel()
    starts = at + BATCH_HEADER_SIZE_BYTES
    names = ("epoch", "base", "count")
    epochs, bases, counts = (headers[name].astype(np.int64) for name in names)
    stream_id = rows[0].stream_id
    columns = BatchColumns(stream_id, epochs, bases, counts, starts, starts + headers["length"], data)
    ends = columns.end_offsets
    lasts = [first - 1 for first in (*firsts[1:], len(heads))]
    is_right = (
        bool((headers["magic"] == BATCH_MAGIC).all() and (headers["stream_id"] == stream_id).all())
        and bases[firsts].tolist() == [row.start for row in rows]
        and ends[lasts].tolist() == [row.end for row in rows]
        and bool((bases <= ends).all() and (ends[:-1] <= bases[1:]).all())
    )
    return columns if is_right else None


def _find_heads(data: bytes | memoryview, position: int, end: int, row: BlockRow, heads: list[int]) -> bool:
    """Append the positions of a row's batch headers to `heads`.

    Returns:
        Whether blocks and lengths agree with each other and with the row.
    """
    before, length_at = len(heads), _LENGTH.unpack_from
    while position < end:
        start = position + BLOCK_HEADER_SIZE_BYTES
        if start > end:
            return False
        magic, flags, count, length = _BLOCK_HEADER.unpack_from(data, position)
        block_end, block_before = start + length, len(heads)
        if magic != BLOCK_MAGIC or flags != BLOCK_FLAGS or not start <= block_end <= end:
            return False
        position, last = start, block_end - BATCH_HEADER_SIZE_BYTES
        while position <= last:
            heads.append(position)
            (payload_bytes,) = length_at(data, position + _LENGTH_AT)
            if payload_bytes < 0:
                return False
            position += BATCH_HEADER_SIZE_BYTES + payload_bytes
        if position != block_end or not 0 < count == len(heads) - block_before:
            return False
    return len(heads) - before == row.record_count > 0


def _refuse(data: memoryview, rows: Sequence[BlockRow], corrupt: Callable[..., CorruptObject]) -> None:
    """Raise the error for the first fault in the bytes of rows."""
    end = 0
    for row in rows:
        piece, end = data[end : end + row.size_bytes], end + row.size_bytes
        if len(piece) != row.size_bytes or (row is rows[-1] and end < len(data)):
            found = len(piece) + max(0, len(data) - end)
            raise corrupt(expected=f"{row.size_bytes} bytes of blocks at {row.position}", found=f"{found} bytes")
        reader = _RowReader(piece, row, corrupt)
        while reader.position < len(piece):
            reader.read_block()
        reader.check_complete()


class _RowReader:
    """Reads the blocks of one row to find the fault; ``position`` is the next byte. One thread at a time."""

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
            raise self._refused(f"{row.record_count} batches, as in the row", f"{len(self.batches)}")
        if not self.batches or self.batches[0].base_offset != row.start or self._next_offset != row.end:
            found = f"[{self.batches[0].base_offset}, {self._next_offset})" if self.batches else "none"
            raise self._refused(f"offsets [{row.start}, {row.end}), as in the row", found)

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
        # The count is limited by the bytes of its batches and by the row's records.
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
