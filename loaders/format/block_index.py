"""The block index of an object: one row for each run of data blocks, sorted by (stream, offset).

    | bytes | field         | meaning                                                         |
    |-------|---------------|-----------------------------------------------------------------|
    | 8     | stream id     | the stream of the records                                       |
    | 8     | start offset  | the first offset                                                |
    | 4     | end delta     | offsets covered; end = start + delta                            |
    | 4     | record count  | record batches in the blocks                                    |
    | 8     | position      | first byte of the blocks, counted from the start of the object  |
    | 4     | size          | bytes of the blocks, headers included                           |

All integers are big endian; a row is 36 bytes. A writer makes one row a block; compaction makes one row for several
adjacent blocks of one stream.

An object of 9,000 streams has at least 9,000 rows, and thousands of objects are opened, so no code here loops over rows
in Python. The bytes are *viewed* as an array of records, each rule is checked for all rows at once, and each stream's
rows are folded into one range by comparing every row with its neighbour:

    stream id   7     7     7     9     9          a stream begins where the id differs from the row before
    begins      x                 x
    range       [start of the first row, end of the last row) of each stretch
    holed             x                            within a stream, a row that starts after the one before it ended

The first arithmetic operation converts big-endian columns to native ones (numpy does so silently, also in
``concatenate``), so bytes are always kept and joined as bytes, never as the result of array arithmetic.

**Finding rows.** A read requests ``[start, end)`` of one stream, with a budget of bytes. The rows of a stream are
sorted by offset, so the answer is a run of rows, beginning with the first row that ends after ``start``:

* The run ends before a *hole*: a row that starts after the next requested offset does not help.
* A row costs its payload, but a row that starts before the requested offset is free. Only the first row can be such a
  row: the read uses a part of it, and the size of that part is unknown.
* The read is *fulfilled* once the run reaches ``end``, or once the budget is spent. Otherwise the object ends, or has a
  hole, and the caller continues from ``next_offset`` in another object.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from loaders.errors import CorruptObject
from range_index.object_ranges import ObjectRanges

ROW_SIZE_BYTES = 36
BLOCK_HEADER_SIZE_BYTES = 10
BATCH_HEADER_SIZE_BYTES = 33
BLOCK_SIZE_BYTES_MIN = BLOCK_HEADER_SIZE_BYTES + BATCH_HEADER_SIZE_BYTES
"""A block holds at least one record batch, whose payload may be empty."""

ROW_DTYPE = np.dtype(
    [
        ("stream_id", ">i8"),
        ("start", ">i8"),
        ("end_delta", ">i4"),
        ("record_count", ">i4"),
        ("position", ">i8"),
        ("size_bytes", ">i4"),
    ]
)

_ROW = struct.Struct(">qqiiqi")
_STREAM_ID = struct.Struct(">q")
_RANGE = struct.Struct(">qqi")
_INT64_MAX = 2**63 - 1


class BlockRow(NamedTuple):
    """One row of the index: ``[start, end)`` of a stream is in ``size_bytes`` bytes from ``position`` on."""

    stream_id: int
    start: int
    end: int
    record_count: int
    position: int
    size_bytes: int

    @property
    def payload_bytes(self) -> int:
        """Bytes of records, as read budgets count them: without all batch headers and one block header."""
        return self.size_bytes - BATCH_HEADER_SIZE_BYTES * self.record_count - BLOCK_HEADER_SIZE_BYTES

    def encode(self) -> bytes:
        """The row's 36 bytes; the numbers must fit their fields."""
        return _ROW.pack(
            self.stream_id, self.start, self.end - self.start, self.record_count, self.position, self.size_bytes
        )


@dataclass(frozen=True, slots=True, eq=False)
class BlockIndex:
    """The rows of one object, as bytes of the object: 36 bytes a row, and nothing else is kept.

    Made by ``decode_block_index`` (or by the encoder), which has checked every rule: the values need no further check.

    Threads: immutable, so any thread may read it.
    """

    data: bytes

    @property
    def rows(self) -> NDArray[np.void]:
        """A read-only view of the bytes as records of ``ROW_DTYPE``, big endian; O(1)."""
        return np.frombuffer(self.data, dtype=ROW_DTYPE)

    @property
    def nbytes(self) -> int:
        """Bytes kept in memory."""
        return len(self.data)

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.data) // ROW_SIZE_BYTES

    def __iter__(self) -> Iterator[BlockRow]:
        """All rows in order, by a loop in Python; for displays and tests."""
        return (self.row(number) for number in range(len(self)))

    def row(self, number: int) -> BlockRow:
        """Row ``number``, counted from 0; O(1).

        Raises:
            IndexError: there is no such row; rows are not counted from the end.
        """
        if not 0 <= number < len(self):
            raise IndexError(f"expected a row below {len(self)}, found {number}")
        stream_id, start, end_delta, *rest = _ROW.unpack_from(self.data, number * ROW_SIZE_BYTES)
        return BlockRow(stream_id, start, start + end_delta, *rest)

    def stream_rows(self, stream_id: int) -> range:
        """The numbers of the rows of one stream, an empty range if the object does not hold the stream; O(log rows)."""
        numbers = range(len(self))
        first = bisect_left(numbers, stream_id, key=self._stream_id)
        return range(first, bisect_right(numbers, stream_id, lo=first, key=self._stream_id))

    def first_row_beyond(self, stream_id: int, offset: int) -> int:
        """The number of the first row that is of a later stream, or ends after ``offset`` of this one; O(log rows)."""
        return bisect_right(range(len(self)), (stream_id, offset), key=self._stream_and_end)

    def object_ranges(self) -> ObjectRanges:
        """Fold the rows into one range a stream; streams with a hole between two of their rows are marked.

        Complexity: O(rows), no loop in Python.
        """
        return _folded(self.rows)

    def _stream_id(self, number: int) -> int:
        stream_id: int = _STREAM_ID.unpack_from(self.data, number * ROW_SIZE_BYTES)[0]
        return stream_id

    def _stream_and_end(self, number: int) -> tuple[int, int]:
        stream_id, start, end_delta = _RANGE.unpack_from(self.data, number * ROW_SIZE_BYTES)
        return stream_id, start + end_delta


def decode_block_index(
    data: bytes | memoryview, *, data_size_bytes: int | None, key: str, object_size_bytes: int
) -> BlockIndex:
    """Check the bytes of a block index and keep a copy of them (``bytes`` are kept without a copy).

    Complexity: O(rows), no loop in Python.

    Args:
        data: exactly the index, without the footer.
        data_size_bytes: the blocks are in ``[0, data_size_bytes)`` of the object; None if the rows describe bytes of
            other objects, as in a composite object.
        key: the object's key, for the error.
        object_size_bytes: length of the whole object, for the error.

    Raises:
        CorruptObject: a size that is no multiple of 36; rows that are not sorted by (stream, offset) or overlap; a
            negative number; an end beyond 64 bits; a row with no records or more than its bytes can hold; blocks
            outside the data section, or more of them than it holds. The error shows the first such row.

    Source: docs/reference/objects.md, "Index row".
    """
    if len(data) % ROW_SIZE_BYTES:
        expected = f"an index of whole {ROW_SIZE_BYTES}-byte rows"
        raise CorruptObject(key, object_size_bytes, expected=expected, found=f"{len(data)} bytes")
    index = BlockIndex(bytes(data))
    if len(index):
        columns = _Columns.of(index.rows)
        section_end = _INT64_MAX if data_size_bytes is None else data_size_bytes
        corrupt = partial(CorruptObject, key, object_size_bytes)
        for rule in _rules(columns, section_end):
            if rule.values.min() < rule.least:
                first = int((rule.values < rule.least).argmax())
                raise corrupt(expected=rule.text, found=_described(index, first, rule.rows_concerned))
        # Bytes of two rows at once would be read twice: this bounds the cost of reading by a false index.
        if (total := int(columns.sizes.sum())) > section_end:
            raise corrupt(expected=f"at most {section_end} bytes in all blocks", found=f"{total}")
    return index


class _Columns(NamedTuple):
    """The columns of an index as native 64-bit numbers, so that no product or difference below overflows."""

    stream_ids: NDArray[np.int64]
    starts: NDArray[np.int64]
    end_deltas: NDArray[np.int64]
    record_counts: NDArray[np.int64]
    positions: NDArray[np.int64]
    sizes: NDArray[np.int64]

    @classmethod
    def of(cls, rows: NDArray[np.void]) -> Self:
        return cls(*(rows[name].astype(np.int64) for name in ROW_DTYPE.names or ()))


class _Rule(NamedTuple):
    """A rule for every row (or for every two neighbours): no value is below the least one."""

    text: str
    values: NDArray[np.int64]
    least: int = 0
    rows_concerned: int = 1


def _rules(columns: _Columns, section_end: int) -> Iterator[_Rule]:
    # The order matters: the arithmetic of a rule could overflow if a rule before it were broken.
    yield _Rule("stream ids of at least 0", columns.stream_ids)
    yield _Rule("start offsets of at least 0", columns.starts)
    yield _Rule("end deltas of at least 0", columns.end_deltas)
    ends = columns.starts + columns.end_deltas
    yield _Rule("end offsets below 2**63", ends)  # past it they wrap to negative numbers
    yield _Rule("at least one record a row", columns.record_counts, 1)
    payloads = columns.sizes - BATCH_HEADER_SIZE_BYTES * columns.record_counts
    yield _Rule("a size that can hold the row's records", payloads, BLOCK_HEADER_SIZE_BYTES)
    yield _Rule("positions of at least 0", columns.positions)
    behind = section_end - columns.positions
    yield _Rule(f"positions within the data section [0, {section_end})", behind)
    yield _Rule(f"blocks within the data section [0, {section_end})", behind - columns.sizes)
    yield from _rules_between(columns, ends)


def _rules_between(columns: _Columns, ends: NDArray[np.int64]) -> Iterator[_Rule]:
    steps = columns.stream_ids[1:] - columns.stream_ids[:-1]
    if not len(steps):
        return
    yield _Rule("rows sorted by stream id", steps, rows_concerned=2)
    if not steps.all():
        gaps = (columns.starts[1:] - ends[:-1]) * (steps == 0)
        yield _Rule("rows of a stream sorted by offset, without overlap", gaps, rows_concerned=2)


def _described(index: BlockIndex, first: int, rows_concerned: int) -> str:
    numbers = range(first, first + rows_concerned)
    return ", then ".join(f"row {number} of {len(index)}: {index.row(number)}" for number in numbers)


def _folded(rows: NDArray[np.void]) -> ObjectRanges:
    stream_ids = rows["stream_id"].astype(np.int64)
    starts = rows["start"].astype(np.int64)
    ends = starts + rows["end_delta"]
    begins = stream_ids[1:] != stream_ids[:-1]
    if begins.all():
        return ObjectRanges.from_columns(stream_ids, starts, ends)
    firsts = np.concatenate(([0], np.flatnonzero(begins) + 1))
    lasts = np.append(firsts[1:], len(rows)) - 1
    jumps = ~begins & (starts[1:] != ends[:-1])
    holed = None
    if jumps.any():
        holed = np.zeros(len(firsts), dtype=np.bool_)
        holed[firsts.searchsorted(np.flatnonzero(jumps), side="right") - 1] = True
    return ObjectRanges.from_columns(stream_ids[firsts], starts[firsts], ends[lasts], holed)


OPEN_END = -1


class FoundRows(NamedTuple):
    """The rows that a read needs, and the read's position after them.

    Attributes:
        rows: numbers of rows of the index, ascending.
        fulfilled: whether the end was reached or the budget spent; if not, this object has no more rows for the read.
        next_offset: the offset to continue from; the requested start, if there are no rows.
        bytes_left: the rest of the budget.
    """

    rows: tuple[int, ...]
    fulfilled: bool
    next_offset: int
    bytes_left: int


def find(index: BlockIndex, stream_id: int, start: int, end: int, max_bytes: int) -> FoundRows:
    """Choose the rows for ``[start, end)`` of a stream within a budget; the last one may reach beyond either.

    Complexity: O(log rows) and O(1) for each chosen row.

    Args:
        index: the rows of one object.
        stream_id: the stream to read.
        start: the first requested offset.
        end: one past the last requested offset, or ``OPEN_END`` (-1): until the budget or the object ends.
        max_bytes: payload bytes to read at most, at least 0; the row that uses up the budget is still chosen.

    Raises:
        ValueError: a negative budget.

    Source: the production reader's answers; docs/reference/objects.md, "Finding blocks".
    """
    if max_bytes < 0:
        raise ValueError(f"expected a budget of at least 0 bytes, found {max_bytes}")
    chosen: list[int] = []
    next_offset, bytes_left = start, max_bytes
    for number in range(index.first_row_beyond(stream_id, start), len(index)):
        row = index.row(number)
        if row.stream_id != stream_id or row.start > next_offset:
            break
        if row.end == next_offset:  # no offsets in it
            continue
        if row.start == next_offset:
            bytes_left -= min(bytes_left, row.payload_bytes)
        chosen.append(number)
        next_offset = row.end
        if (end != OPEN_END and next_offset >= end) or not bytes_left:
            return FoundRows(tuple(chosen), fulfilled=True, next_offset=next_offset, bytes_left=bytes_left)
    return FoundRows(tuple(chosen), fulfilled=False, next_offset=next_offset, bytes_left=bytes_left)
