"""The index of an object: its rows, the footer behind it, links to other objects, and the spans of bytes to read.

**Rows.** The block index has one row for each run of data blocks, sorted by (stream, offset):

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

**Footer.** The last 48 bytes of an object are the footer. It contains the position of the block index and the kind of
the object:

    | bytes | field          | meaning                                                              |
    |-------|----------------|----------------------------------------------------------------------|
    | 8     | index position | first byte of the block index, counted from the start of the object  |
    | 4     | index size     | its length in bytes, a multiple of 36                                |
    | 28    | reserved       | zero; without meaning, and not checked                               |
    | 8     | magic          | 0x88E241B785F4CFF7, or ...F8 for a composite object                  |

All integers are big endian. The footer follows the index directly, so the two numbers and the size of the object must
agree to the byte. This check finds an index that runs past the end or into the footer, and a size in metadata that is
not the size of this object.

**How much to read.** Only the footer, behind the index, contains the size of the index. So a reader guesses: it reads
the last bytes of the object in one request, which usually hold the whole index.

    object  |  data blocks ...                 | block index              | footer |
                                                        |<---- tail, as guessed -->|
                                               |<-gap ->|   missing bytes

If they do not, the footer in them determines the missing bytes, which one more request reads; the tail need not be read
again. Nothing here reads a store: ``open_tail`` returns either the index or the range of the missing bytes.

**Composite objects** are an index over the blocks of other objects. Compaction of one long stream need not copy any
bytes: it writes a small object that links the old ones.

    | bytes | field    | meaning                                                       |
    |-------|----------|---------------------------------------------------------------|
    | 1     | magic    | 0x52                                                          |
    | 4     | count    | linked objects                                                |
    | 14 n  | links    | one for each, see below                                       |
    | 36 m  | index    | rows as in a normal object; positions are in the linked one   |
    | 48    | footer   | magic 0x88E241B785F4CFF8, index position = 5 + 14 n           |

    | bytes | field     | meaning                                                      |
    |-------|-----------|--------------------------------------------------------------|
    | 8     | object id | the linked object                                            |
    | 4     | first row | the first row of the index with blocks of it                 |
    | 2     | bucket    | the bucket of the linked object                              |

All integers are big endian. Row k belongs to the link with the greatest first row <= k. The size of such an object in
metadata is the sum of the linked blocks, not its own size: read the object whole, never by its tail.

**Spans.** Neighbouring bytes of objects are joined into few spans, each of them one ranged GET. A request costs about
as much as a few hundred kilobytes of transfer. So bytes that are close to each other are read together, and the bytes
in between are discarded, as long as the gaps and the spans stay small:

    needed   |== 0 ==|== 1 ==|  |= 2 =|                 |== 3 ==|== 4 ==|
    spans    |=======================|                  |===============|      (0, 3) and (3, 5)
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from operator import attrgetter
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


FOOTER_SIZE_BYTES = 48
MAGIC = 0x88E241B785F4CFF7
COMPOSITE_MAGIC = 0x88E241B785F4CFF8

_LAYOUT = struct.Struct(">qi28xQ")


@dataclass(frozen=True, slots=True)
class Footer:
    """The position of the block index in one object. Threads: immutable."""

    index_position: int
    index_size_bytes: int
    composite: bool = False

    @property
    def index_end(self) -> int:
        """One past the last byte of the block index; the footer starts here."""
        return self.index_position + self.index_size_bytes

    def encode(self) -> bytes:
        """The last 48 bytes of the object."""
        magic = COMPOSITE_MAGIC if self.composite else MAGIC
        return _LAYOUT.pack(self.index_position, self.index_size_bytes, magic)


def decode_footer(tail: bytes | memoryview, *, object_size_bytes: int, key: str) -> Footer:
    """Read the footer at the end of ``tail``, the last bytes of an object.

    Complexity: O(1); the index itself is not touched.

    Args:
        tail: at least the last 48 bytes of the object, at most the whole object.
        object_size_bytes: length of the whole object; the index must end where the footer starts.
        key: the object's key, for the error.

    Raises:
        CorruptObject: too short, wrong magic, or an index that does not fill whole rows up to the footer.

    Source: docs/reference/objects.md, "Footer".
    """
    if not FOOTER_SIZE_BYTES <= len(tail) <= object_size_bytes:
        expected = f"a tail of {FOOTER_SIZE_BYTES} to {object_size_bytes} bytes"
        raise CorruptObject(key, object_size_bytes, expected=expected, found=f"{len(tail)} bytes")
    position, size_bytes, magic = _LAYOUT.unpack_from(tail, len(tail) - FOOTER_SIZE_BYTES)
    if magic not in (MAGIC, COMPOSITE_MAGIC):
        raise CorruptObject(key, object_size_bytes, expected=f"footer magic {MAGIC:#x}", found=f"{magic:#x}")
    footer = Footer(position, size_bytes, magic == COMPOSITE_MAGIC)
    _check(footer, object_size_bytes, key)
    return footer


def _check(footer: Footer, object_size_bytes: int, key: str) -> None:
    footer_start = object_size_bytes - FOOTER_SIZE_BYTES
    if footer.index_position < 0 or footer.index_size_bytes < 0:
        expected = "an index at a position and of a size of at least 0"
        found = f"position {footer.index_position}, size {footer.index_size_bytes}"
        raise CorruptObject(key, object_size_bytes, expected=expected, found=found)
    if footer.index_end != footer_start:
        expected = f"an index that ends at {footer_start}, where the footer starts"
        raise CorruptObject(key, object_size_bytes, expected=expected, found=_misplaced(footer, object_size_bytes))
    if footer.index_size_bytes % ROW_SIZE_BYTES:
        expected = f"an index of whole {ROW_SIZE_BYTES}-byte rows"
        raise CorruptObject(key, object_size_bytes, expected=expected, found=f"{footer.index_size_bytes} bytes")


def _misplaced(footer: Footer, object_size_bytes: int) -> str:
    where = f"[{footer.index_position}, {footer.index_end})"
    if footer.index_end > object_size_bytes:
        return f"{where}, which runs past the end of the object"
    if footer.index_end > object_size_bytes - FOOTER_SIZE_BYTES:
        return f"{where}, which runs into the footer"
    return f"{where}, which leaves a gap: a size that is not this object's, or lost bytes"


_MEBIBYTE = 1 << 20


class MissingBytes(NamedTuple):
    """The bytes ``[start, end)`` of the object that are missing before the tail, so that it holds the whole index."""

    start: int
    end: int


def guess_tail_size_bytes(object_size_bytes: int) -> int:
    """The number of bytes to read from the end if the index size is unknown: 8 KiB, and one row for each whole MiB.

    The guess holds 226 rows of a small object and 242 rows of an object of 16 MiB; an object of 9,000 streams needs
    324,048 bytes.

    >>> guess_tail_size_bytes(16 << 20), guess_tail_size_bytes(48)
    (8768, 48)

    Source: the production reader, docs/reference/objects.md, "Opening an object".
    """
    return min(object_size_bytes, 8192 + object_size_bytes // _MEBIBYTE * ROW_SIZE_BYTES)


def open_tail(tail: bytes | memoryview, *, object_size_bytes: int, key: str) -> BlockIndex | MissingBytes:
    """Read the block index of a normal object from its last bytes.

    After ``MissingBytes``, fetch these bytes, put them before the tail, and call again: the second call always returns
    the index.

    Complexity: O(rows), no loop in Python; O(1) if bytes are missing.

    Args:
        tail: at least the last 48 bytes of the object, at most the whole object; not kept.
        object_size_bytes: length of the whole object.
        key: the object's key, for the error.

    Raises:
        CorruptObject: the footer or a row of the index is wrong, or the object is a composite one, whose index
            describes bytes of other objects (read it whole, with ``decode_composite``).
    """
    footer = decode_footer(tail, object_size_bytes=object_size_bytes, key=key)
    if footer.composite:
        raise CorruptObject(key, object_size_bytes, expected="a normal object", found="the footer of a composite one")
    _check_rows_plausible(footer, object_size_bytes, key)
    tail_start = object_size_bytes - len(tail)
    if footer.index_position < tail_start:
        return MissingBytes(footer.index_position, min(tail_start, footer.index_end))
    index = memoryview(tail)[footer.index_position - tail_start : -FOOTER_SIZE_BYTES]
    return decode_block_index(
        index, data_size_bytes=footer.index_position, key=key, object_size_bytes=object_size_bytes
    )


def tail_checksum(tail: bytes | memoryview, *, object_size_bytes: int, index_size_bytes: int) -> int:
    """A CRC-32 of an object's size, block index and footer, which every reader fetches.

    The bytes of an object do not contain its key. A list with this number of each object detects that an object was
    replaced by another, unless both hold blocks of the same streams, offsets and sizes. The checksum does not cover the
    blocks' payload.

    Complexity: O(size of the index).

    Args:
        tail: the last bytes of the object, at least index and footer.
        object_size_bytes: length of the whole object; its 8 bytes, big endian, come first.
        index_size_bytes: of its block index.

    Returns:
        0 to 2^32 - 1.
    """
    size = object_size_bytes.to_bytes(8, "big")
    return zlib.crc32(memoryview(tail)[len(tail) - index_size_bytes - FOOTER_SIZE_BYTES :], zlib.crc32(size))


def check_tail(expected: int, found: int, *, object_size_bytes: int, key: str) -> None:
    """Refuse an object whose tail is not the committed one.

    Args:
        expected: the checksum in the metadata; -1 if there is none, and then nothing is refused.
        found: the checksum of the bytes, by `tail_checksum`.
        object_size_bytes: length of the whole object, for the error.
        key: the object's key, for the error.

    Raises:
        CorruptObject: the checksums differ.
    """
    if expected not in (-1, found):
        wanted = f"the index and footer that were committed under this key, with CRC-32 {expected:#010x}"
        seen = f"those of another object, with CRC-32 {found:#010x}"
        raise CorruptObject(key, object_size_bytes, expected=wanted, found=seen)


def _check_rows_plausible(footer: Footer, object_size_bytes: int, key: str) -> None:
    # Prevents that a reader fetches half an object because of a false footer.
    rows = footer.index_size_bytes // ROW_SIZE_BYTES
    if not footer.composite and rows * BLOCK_SIZE_BYTES_MIN > footer.index_position:
        expected = f"an index of at most {footer.index_position // BLOCK_SIZE_BYTES_MIN} rows"
        found = f"{rows} rows for {footer.index_position} bytes of blocks"
        raise CorruptObject(key, object_size_bytes, expected=expected, found=found)


LINKS_MAGIC = 0x52

_HEADER = struct.Struct(">Bi")
_LINK = struct.Struct(">qih")


class LinkedObject(NamedTuple):
    """An object whose blocks a composite object uses, from row ``first_row`` of its index on."""

    object_id: int
    first_row: int
    bucket: int


@dataclass(frozen=True, slots=True, eq=False)
class CompositeObject:
    """The links of a composite object and its index; positions in the index are positions in the linked objects.

    Threads: immutable, so any thread may read it.
    """

    links: tuple[LinkedObject, ...]
    index: BlockIndex

    def locate(self, row_number: int) -> LinkedObject:
        """The object that holds the blocks of a row of the index; O(log links).

        Raises:
            IndexError: there is no such row.
        """
        if not 0 <= row_number < len(self.index):
            raise IndexError(f"expected a row below {len(self.index)}, found {row_number}")
        return self.links[bisect_right(self.links, row_number, key=attrgetter("first_row")) - 1]


def decode_composite(data: bytes | memoryview, *, key: str) -> CompositeObject:
    """Read a whole composite object.

    Complexity: O(links + rows), no loop in Python over rows.

    Args:
        data: the whole object.
        key: the object's key, for the error.

    Raises:
        CorruptObject: the footer of another kind of object; links that do not fill the space before the index, or do
            not divide its rows among them; rows that ``decode_block_index`` refuses.

    Source: docs/reference/objects.md, "Composite object".
    """
    size_bytes = len(data)
    corrupt = partial(CorruptObject, key, size_bytes)
    footer = decode_footer(data, object_size_bytes=size_bytes, key=key)
    if not footer.composite:
        raise corrupt(expected="a composite object", found="the footer of a normal one")
    view = memoryview(data)
    links = _decode_links(view[: footer.index_position], corrupt)
    rows = view[footer.index_position : size_bytes - FOOTER_SIZE_BYTES]
    index = decode_block_index(rows, data_size_bytes=None, key=key, object_size_bytes=size_bytes)
    _check_links(links, len(index), corrupt)
    return CompositeObject(links, index)


def _decode_links(data: memoryview, corrupt: Callable[..., CorruptObject]) -> tuple[LinkedObject, ...]:
    if len(data) < _HEADER.size:
        raise corrupt(expected=f"{_HEADER.size} bytes or more before the index", found=f"{len(data)}")
    magic, count = _HEADER.unpack_from(data)
    if magic != LINKS_MAGIC:
        raise corrupt(expected=f"links magic {LINKS_MAGIC:#x}", found=f"{magic:#x}")
    if len(data) != _HEADER.size + count * _LINK.size:
        found = f"{len(data)} bytes before the index"
        raise corrupt(expected=f"{_HEADER.size} bytes and {_LINK.size} for each of {count} links", found=found)
    return tuple(map(LinkedObject._make, _LINK.iter_unpack(data[_HEADER.size :])))


def _check_links(links: tuple[LinkedObject, ...], row_count: int, corrupt: Callable[..., CorruptObject]) -> None:
    for link in links:
        if link.object_id < 0 or not 0 <= link.first_row < row_count:
            raise corrupt(expected=f"links to objects from rows below {row_count} on", found=f"{link}")
    if row_count and (not links or links[0].first_row):
        raise corrupt(expected="a link that begins at row 0", found=f"{links[0] if links else 'no links'}")
    for earlier, later in pairwise(links):
        if later.first_row <= earlier.first_row:
            raise corrupt(expected="links ascending by first row", found=f"{earlier}, then {later}")


Numbers = NDArray[np.int64]


def join_spans(
    starts: Numbers,
    ends: Numbers,
    objects: NDArray[np.integer] | None = None,
    *,
    gap_size_bytes_max: int = 0,
    span_size_bytes_max: int | None = None,
) -> list[tuple[int, int]]:
    """Choose the neighbours to read together, as numbers ``(first, stop)``.

    A span reaches from ``starts[first]`` to ``ends[stop - 1]``. It ends before an item of another object, before an
    item that starts below the span's end, and at the bounds.

    Complexity: O(n), a loop in Python over the few resulting spans.

    Args:
        starts: first byte of each item.
        ends: one past the last byte of each item.
        objects: the number of each item's object; None = one object.
        gap_size_bytes_max: unneeded bytes that may be read between two neighbours.
        span_size_bytes_max: length of a span; a single item may be longer. None = any.
    """
    gaps = starts[1:] - ends[:-1]
    is_break = (gaps < 0) | (gaps > gap_size_bytes_max)
    if objects is not None:
        is_break |= objects[1:] != objects[:-1]
    stops = [*(np.flatnonzero(is_break) + 1).tolist(), len(starts)] if len(starts) else []
    if span_size_bytes_max is None:
        return list(zip([0, *stops[:-1]], stops, strict=True)) if stops else []
    spans: list[tuple[int, int]] = []
    first = 0
    for neighbours_stop in stops:
        while first < neighbours_stop:
            limit = int(starts[first]) + span_size_bytes_max
            # Not numpy's search, which releases the GIL: beside busy threads each call would wait for the GIL again.
            fitting = bisect_right(ends, limit, first, neighbours_stop)
            spans.append((first, max(fitting, first + 1)))
            first = spans[-1][1]
    return spans


def block_spans(
    index: BlockIndex, composite: CompositeObject | None, numbers: Sequence[int], span_size_bytes_max: int
) -> Iterator[tuple[int | None, list[BlockRow]]]:
    """Spans of adjacent blocks: the id of the linked object that holds them (None = the object itself), and their rows.

    Args:
        index: of the object.
        composite: the links of the object, if it has no blocks of its own.
        numbers: of the rows.
        span_size_bytes_max: of the blocks of a span; a single row may be longer.
    """
    chosen = index.rows[np.asarray(numbers, dtype=np.int64)]
    starts = chosen["position"].astype(np.int64)
    linked = None if composite is None else [composite.locate(number).object_id for number in numbers]
    objects = None if linked is None else np.array(linked, dtype=np.int64)
    joined = join_spans(starts, starts + chosen["size_bytes"], objects, span_size_bytes_max=span_size_bytes_max)
    for first, stop in joined:
        yield None if linked is None else linked[first], [index.row(number) for number in numbers[first:stop]]
