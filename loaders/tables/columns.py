"""Columns of numbers as compact bytes.

A record of thousands of objects contains them as rows of 64-bit integers with named fields. Stored row by row, a row
would take 64 bytes or more; but within a column neighbouring values are similar: ids ascend in small steps, sizes
differ little, most flags are equal. So each column is stored separately, as small numbers above a base:

    plain:  stored[i] = value[i] - base                         base = the least value
    delta:  stored[i] = (value[i] - value[i-1]) - base          base = the least step; stored[0] = 0

Each stored number has the number of bytes that the largest one needs (0 if all are equal). All lowest bytes are first,
then all second bytes and so on: similar bytes are adjacent, so that they compress well.

    | bytes | outside        | meaning                                          |
    |-------|----------------|--------------------------------------------------|
    | 4     | magic          | "ACol"                                           |
    | u1    | version        | 1                                                |
    | u4    | raw size       | bytes of the table below, before compression     |
    | rest  | frame          | one zstd frame; a skippable frame of zeros may   |
    |       |                | precede it, see below                            |

    | bytes | in the frame   | meaning                                          |
    |-------|----------------|--------------------------------------------------|
    | u4    | rows           | number of rows of every column                   |
    | u1    | columns        | number of columns                                |
    | u1 n  | name           | its length, then ASCII                           |
    | u1    | kind           | 0 plain, 1 delta                                 |
    | u1    | width          | bytes of a stored number, 0 to 8                 |
    | i8    | base           | see above                                        |
    | i8    | first          | delta: the first value; plain: 0                 |
    | ...   | the other heads| name, kind, width, base, first of each column    |
    | ...   | the columns    | width * rows bytes each, in the order of the heads|

**The number of rows is bounded by the bytes.** Regular columns compress to almost nothing: a million rows whose ids
ascend one by one take 100 bytes, so that 100 hostile bytes could make every reader unpack a million rows. Therefore
4,096 rows may take any number of bytes, and each further row needs at least one stored bit: rows <= 4,096 + 8 * bytes.
Rows of real lists take several bytes each; if they take less than the bound, the writer puts a skippable frame
(RFC 8878, 3.1.2) of zeros before the frame.

All integers are big endian, and all sums wrap at 64 bits, so columns of all int64 values can be stored. A reader finds
its fields by name, in any order. **A field that the reader does not know is refused**: a newer release wrote it, and
writing the rows back would lose it. Bytes with a missing field are corrupt. An example, byte by byte:
docs/reference/catalog-records.md, "Example record".
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
import zstandard
from numpy.typing import NDArray

from loaders.errors import CorruptObject, FormatLimit, FormatTooNew

ROWS_MAX = 1 << 20
"""Largest number of rows that are written, and that are read by default."""

ROWS_FREE = 1 << 12
"""Up to this number of rows, the number of bytes is not bounded."""

ROWS_A_BYTE = 8
"""Each stored byte allows this number of additional rows."""

LEVEL = 6
"""The level of zstd: a list of 5,000 objects takes 2 ms; higher levels hardly reduce numbers that look random."""

WINDOW_SIZE_BYTES_MAX = 8 << 20
"""Bound on the window of a zstd frame, the memory that its head requests. Source: RFC 8878, 3.1.1.1.2."""

COLUMNS_MAX = 32
MAGIC = b"ACol"
VERSION = 1

_OUTSIDE = struct.Struct(">4sBI")
_SHAPE = struct.Struct(">IB")
_HEAD = struct.Struct(">BBqq")
_PLAIN, _DELTA = 0, 1
_NAME_SIZE_BYTES_MAX = 63
_FIELD = np.dtype("<i8")
_HEADS_SIZE_BYTES_MAX = _SHAPE.size + COLUMNS_MAX * (1 + _NAME_SIZE_BYTES_MAX + _HEAD.size)
_SIZE_FACTOR = 10
"""If more than this number of bytes is unpacked for each stored byte, the heads are checked first."""

_WRAP = 1 << 64
_SKIPPED = struct.Struct("<II")
_SKIPPED_MAGIC = 0x184D2A50


class _Head(NamedTuple):
    """The description of one column, before the columns."""

    name: str
    kind: int
    width: int
    base: int
    first: int


def pack_columns(rows: NDArray[np.void], *, level: int = LEVEL) -> bytes:
    """Rows of named 64-bit integers as bytes. Complexity: O(rows * fields), no loop over rows in Python.

    Args:
        rows: a structured array, all of its fields ``<i8``.
        level: of zstd, 6 by default; readers do not depend on it.

    Raises:
        FormatLimit: more than 1,048,576 rows.
        ValueError: a field of another type, more than 32 fields, or a name that is not 1 to 63 ASCII characters.

    Source: docs/reference/catalog-records.md, "Packed columns".
    """
    names = _checked_names(rows.dtype)
    if len(rows) > ROWS_MAX:
        raise FormatLimit(f"expected at most {ROWS_MAX} rows in packed columns ({', '.join(names)}), found {len(rows)}")
    heads, columns = [_SHAPE.pack(len(rows), len(names))], []
    for name in names:
        head, stored = _narrowed(name, np.ascontiguousarray(rows[name]))
        heads += [bytes([len(name)]), name.encode("ascii"), _HEAD.pack(head.kind, head.width, head.base, head.first)]
        columns.append(stored)
    raw = b"".join(heads + columns)
    # The decompressor would allocate a size in the frame before the bounds of this module are checked.
    frame = zstandard.ZstdCompressor(level=level, write_content_size=False).compress(raw)
    return _OUTSIDE.pack(MAGIC, VERSION, len(raw)) + _padding(len(rows), _OUTSIDE.size + len(frame)) + frame


def rows_allowed(size_bytes: int, rows_max: int = ROWS_MAX) -> int:
    """The largest number of rows in packed columns of this number of bytes.

    >>> rows_allowed(100), rows_allowed(1 << 20)
    (4896, 1048576)
    """
    return min(rows_max, ROWS_FREE + ROWS_A_BYTE * size_bytes)


def unpack_columns(
    data: bytes | memoryview,
    dtype: np.dtype[np.void],
    where: str,
    *,
    rows_max: int = ROWS_MAX,
) -> NDArray[np.void]:
    """The rows in these bytes, with the fields of a given type.

    Complexity: O(rows * fields), no loop over rows in Python. No memory is allocated for more rows than ``rows_max``,
    or than the bytes allow: 4,096, and 8 more for each byte.

    Args:
        data: the result of `pack_columns`.
        dtype: the fields that the caller knows, all ``<i8``.
        where: the place, for errors.
        rows_max: more rows than this are refused before they are unpacked.

    Raises:
        CorruptObject: damage, too many rows, or a field that is missing.
        FormatTooNew: a newer form, or a field that the caller does not know.
        ValueError: a type with a field that is not ``<i8``, or whose name is not 1 to 63 ASCII characters.

    Source: docs/reference/catalog-records.md, "Packed columns".
    """
    stored = unpack_any(data, where, rows_max=rows_max)
    found_names, names = _checked_names(stored.dtype), _checked_names(dtype)
    unknown = sorted(set(found_names) - set(names))
    if unknown:
        raise FormatTooNew(f"{where}: expected columns among {', '.join(names)}, found also {', '.join(unknown)}")
    missing = sorted(set(names) - set(found_names))
    if missing:
        raise _corrupt(where, data, f"columns {', '.join(names)}", f"none named {', '.join(missing)}")
    rows = np.empty(len(stored), dtype=dtype)
    for name in names:
        rows[name] = stored[name]
    return rows


def unpack_any(data: bytes | memoryview, where: str, *, rows_max: int = ROWS_MAX) -> NDArray[np.void]:
    """The rows in these bytes, with the fields that the bytes name; for display.

    Complexity: as `unpack_columns`.

    Args:
        data: the result of `pack_columns`.
        where: the place, for errors.
        rows_max: more rows than this are refused before they are unpacked.

    Raises:
        CorruptObject, FormatTooNew: as `unpack_columns`.
    """
    columns = unpack_arrays(data, where, rows_max=rows_max)
    rows = np.empty(len(next(iter(columns.values()))), dtype=[(name, _FIELD) for name in columns])
    for name, values in columns.items():
        rows[name] = values
    return rows


def unpack_arrays(data: bytes | memoryview, where: str, *, rows_max: int = ROWS_MAX) -> dict[str, NDArray[np.int64]]:
    """The columns in these bytes by name, each a separate array: half the time of `unpack_any`.

    Complexity: as `unpack_columns`.

    Args:
        data: the result of `pack_columns`.
        where: the place, for errors.
        rows_max: more rows than this are refused before they are unpacked.

    Raises:
        CorruptObject, FormatTooNew: as `unpack_columns`.
    """
    allowed = rows_allowed(len(data), rows_max)
    size, frame = _frame(data, where, allowed)
    if size > _SIZE_FACTOR * len(data):
        _read_shape(_unpacked_heads(frame, size, where, data), size, where, data, rows_max)
    raw = _unpacked(frame, size, where, data)
    count, heads, at = _read_shape(raw, size, where, data, rows_max)
    columns = {}
    for head in heads:
        stop = at + count * head.width
        columns[head.name] = _widened(head, raw[at:stop], count)
        at = stop
    return columns


def is_packed(data: bytes | memoryview) -> bool:
    """Whether these bytes begin with the magic of packed columns."""
    return bytes(data[: len(MAGIC)]) == MAGIC


def _narrowed(name: str, values: NDArray[np.int64]) -> tuple[_Head, bytes]:
    if not len(values):
        return _Head(name, _PLAIN, 0, 0, 0), b""
    low, high = int(values.min()), int(values.max())
    # Steps of a column that spans more than 63 bits would wrap, and wrapped steps are not small.
    steps = np.diff(values) if high - low < 1 << 63 else None
    if steps is not None and len(steps):
        step_low, step_high = int(steps.min()), int(steps.max())
        if step_high - step_low < high - low:
            width = _width(step_high - step_low)
            stored = np.zeros(len(values), dtype=np.uint64)
            stored[1:] = steps.view(np.uint64) - np.uint64(step_low % _WRAP)
            return _Head(name, _DELTA, width, step_low, int(values[0])), _shuffled(stored, width)
    width = _width(high - low)
    return _Head(name, _PLAIN, width, low, 0), _shuffled(values.view(np.uint64) - np.uint64(low % _WRAP), width)


def _widened(head: _Head, stored: bytes, count: int) -> NDArray[np.int64]:
    wide = np.zeros((count, _FIELD.itemsize), dtype=np.uint8)
    wide[:, : head.width] = np.frombuffer(stored, dtype=np.uint8).reshape(head.width, count).T
    numbers = wide.view("<u8").reshape(count) + np.uint64(head.base % _WRAP)
    if head.kind == _DELTA and count:
        numbers[0] = head.first % _WRAP
        numbers = np.cumsum(numbers, dtype=np.uint64)
    values: NDArray[np.int64] = numbers.view(np.int64)
    return values


def _shuffled(stored: NDArray[np.uint64], width: int) -> bytes:
    as_bytes = stored.astype("<u8").view(np.uint8).reshape(len(stored), _FIELD.itemsize)
    return as_bytes[:, :width].T.tobytes()


def _width(span: int) -> int:
    return (span.bit_length() + 7) // 8


def _frame(data: bytes | memoryview, where: str, rows_max: int) -> tuple[int, bytes]:
    """The number of unpacked bytes, and the frame that contains them."""
    if len(data) < _OUTSIDE.size:
        raise _corrupt(where, data, f"packed columns of at least {_OUTSIDE.size} bytes", f"{len(data)}")
    magic, version, size = _OUTSIDE.unpack_from(data)
    if magic != MAGIC:
        raise _corrupt(where, data, f"packed columns that begin with {MAGIC!r}", f"{magic!r}")
    if version > VERSION:
        raise FormatTooNew(f"{where}: expected packed columns of version {VERSION} or lower, found {version}")
    size_max = _HEADS_SIZE_BYTES_MAX + rows_max * COLUMNS_MAX * _FIELD.itemsize
    if not _SHAPE.size <= size <= size_max:
        raise _corrupt(where, data, f"an unpacked size of {_SHAPE.size} to {size_max} bytes", f"{size}")
    frame = _without_padding(data, where)
    try:
        if zstandard.frame_content_size(frame) not in (-1, size):
            raise _corrupt(where, data, f"a frame of {size} bytes", f"{zstandard.frame_content_size(frame)}")
    except zstandard.ZstdError as error:
        raise _corrupt(where, data, f"a zstd frame of {size} bytes", str(error)) from error
    return size, frame


def _unpacked_heads(frame: bytes, size: int, where: str, data: bytes | memoryview) -> bytes:
    """The beginning of the unpacked bytes, with all heads: its row count is checked before the rest is unpacked."""
    try:
        decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW_SIZE_BYTES_MAX)
        return decompressor.stream_reader(frame).read(min(size, _HEADS_SIZE_BYTES_MAX))
    except zstandard.ZstdError as error:
        raise _corrupt(where, data, f"a zstd frame of {size} bytes", str(error)) from error


def _unpacked(frame: bytes, size: int, where: str, data: bytes | memoryview) -> bytes:
    try:
        raw = decompressed_frame(frame, size)
    except zstandard.ZstdError as error:
        raise _corrupt(where, data, f"a zstd frame of {size} bytes", str(error)) from error
    if len(raw) != size:
        raise _corrupt(where, data, f"{size} unpacked bytes", f"{len(raw)}")
    return raw


def decompressed_frame(frame: bytes, size_bytes: int) -> bytes:
    """The unpacked bytes of one zstd frame; takes at most `size_bytes` and `WINDOW_SIZE_BYTES_MAX` of memory.

    Raises:
        ZstdError: it is not a frame, unpacks to more, needs a larger window, or is followed by other bytes.
    """
    decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW_SIZE_BYTES_MAX)
    return decompressor.decompress(frame, max_output_size=size_bytes, allow_extra_data=False)


def _padding(rows: int, size_bytes: int) -> bytes:
    missing = -(-(rows - ROWS_FREE) // ROWS_A_BYTE) - size_bytes
    return b"" if missing <= 0 else _SKIPPED.pack(_SKIPPED_MAGIC, missing) + bytes(missing)


def _without_padding(data: bytes | memoryview, where: str) -> bytes:
    rest = memoryview(data)[_OUTSIDE.size :]
    if len(rest) < _SKIPPED.size:
        return bytes(rest)
    magic, size = _SKIPPED.unpack_from(rest)
    if magic != _SKIPPED_MAGIC:
        return bytes(rest)
    if size > len(rest) - _SKIPPED.size:
        raise _corrupt(where, data, f"{size} bytes to skip and a frame", f"{len(rest) - _SKIPPED.size} bytes")
    return bytes(rest[_SKIPPED.size + size :])


def _read_shape(
    raw: bytes, size_bytes: int, where: str, data: bytes | memoryview, rows_max: int
) -> tuple[int, list[_Head], int]:
    """Rows, heads, and where the columns begin, checked against `size_bytes`. ``raw`` may end after the heads."""
    count, heads, at = _read_heads(raw, where, data)
    allowed = rows_allowed(len(data), rows_max)
    if count > allowed:
        why = " in this number of bytes" if allowed < rows_max else ""
        raise _corrupt(where, data, f"at most {allowed} rows{why}", f"{count}")
    size = at + count * sum(head.width for head in heads)
    if size != size_bytes:
        raise _corrupt(where, data, f"{size} bytes of heads and columns", f"{size_bytes}")
    return count, heads, at


def _read_heads(raw: bytes, where: str, data: bytes | memoryview) -> tuple[int, list[_Head], int]:
    if len(raw) < _SHAPE.size:
        raise _corrupt(where, data, f"{_SHAPE.size} unpacked bytes", f"{len(raw)}")
    rows, columns = _SHAPE.unpack_from(raw)
    if not 1 <= columns <= COLUMNS_MAX:
        raise _corrupt(where, data, f"1 to {COLUMNS_MAX} columns", f"{columns}")
    heads: dict[str, _Head] = {}
    at = _SHAPE.size
    for number in range(columns):
        name_end = at + 1 + (raw[at] if at < len(raw) else len(raw))
        if name_end + _HEAD.size > len(raw):
            raise _corrupt(where, data, f"a head of column {number} of {columns}", f"{len(raw) - at} bytes")
        name = raw[at + 1 : name_end].decode("ascii", errors="replace")
        head = _Head(name, *_HEAD.unpack_from(raw, name_end))
        known = head.kind in (_PLAIN, _DELTA) and head.width <= _FIELD.itemsize
        if not known or not _is_name(name) or name in heads:
            raise _corrupt(where, data, "columns named once each, plain or delta, of at most 8 bytes", f"{head}")
        heads[name] = head
        at = name_end + _HEAD.size
    return rows, list(heads.values()), at


def _is_name(name: str) -> bool:
    return name.isascii() and name.isprintable() and 1 <= len(name) <= _NAME_SIZE_BYTES_MAX


def _checked_names(dtype: np.dtype[np.void]) -> tuple[str, ...]:
    names = dtype.names or ()
    wrong = [name for name in names if dtype[name] != _FIELD or not _is_name(name)]
    if wrong or not 1 <= len(names) <= COLUMNS_MAX:
        raise ValueError(f"expected 1 to {COLUMNS_MAX} fields of type <i8 with ASCII names, found {dtype}")
    return names


def _corrupt(where: str, data: bytes | memoryview, expected: str, found: str) -> CorruptObject:
    return CorruptObject(where, len(data), expected=expected, found=found)
