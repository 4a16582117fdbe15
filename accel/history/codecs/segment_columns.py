"""Segments as packed columns, their keys in a table of their own.

A key range ends where another one begins, and a segment that is sealed had its keys from its creation on; so the same
few keys come again and again, each of them eight bytes that no compressor makes smaller. They are kept once, ascending,
and segments name them by position:

    keys       0.0   0.25   0.5   0.75   1.0

    segment              2@0           3@1            4@1
    key range            [0.5, 1.0)    [0.0, 0.25)    [0.25, 0.5)
    start                2             0              1
    span                 2             1              1            the end is at start + span

| columns of rows  | meaning                                                                             |
|------------------|-------------------------------------------------------------------------------------|
| number           | low half of the id                                                                  |
| creation_epoch   | high half of the id                                                                 |
| creation_time_ms | milliseconds since 1970                                                             |
| start            | position of the lowest key                                                          |
| span             | from there to the position of the key behind the highest                            |

| column of keys   | meaning                                                                             |
|------------------|-------------------------------------------------------------------------------------|
| key              | the bits of a float64, read as an integer; ascending, each once                     |
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from accel.history.rules.ids import EPOCH_MAX, NUMBER_BITS, NUMBER_MAX, Integers
from accel.history.rules.segments import Keys, Segments
from loaders.tables.columns import ROWS_MAX, pack_columns, unpack_columns

ROW: Final = np.dtype([(name, "<i8") for name in ("number", "creation_epoch", "creation_time_ms", "start", "span")])
KEY: Final = np.dtype([("key", "<i8")])


class StoredSegments(msgspec.Struct, frozen=True):
    """The stored fields of `Segments`."""

    rows: bytes
    keys: bytes


def stored_segments(segments: Segments) -> StoredSegments:
    """Segments in any order as packed columns; O(n log n)."""
    keys = key_table(segments)
    return StoredSegments(pack_columns(rows_of_segments(segments, keys)), packed_keys(keys))


def restored_segments(fields: StoredSegments, where: str, rows_max: int = ROWS_MAX) -> Segments:
    """The same segments in the same order. O(n), no loop in Python.

    Args:
        fields: what `stored_segments` made.
        where: names the place in errors.
        rows_max: more segments are refused before they are unpacked.

    Raises:
        CorruptObject: bytes that are no packed columns.
        FormatTooNew: columns that this release does not know.
        ValueError: rows that are no segments, or name keys that are not there.
    """
    rows = unpack_columns(fields.rows, ROW, f"{where}, segments", rows_max=rows_max)
    return segments_of_rows(rows, unpacked_keys(fields.keys, f"{where}, keys"))


def rows_of_segments(segments: Segments, keys: Integers) -> NDArray[np.void]:
    """Segments as rows of type ROW, with a table that has their keys."""
    start, span = placed_keys(segments, keys)
    return make_rows(
        ROW,
        number=segments.numbers,
        creation_epoch=segments.epochs,
        creation_time_ms=segments.creation_times_ms,
        start=start,
        span=span,
    )


def segments_of_rows(rows: NDArray[np.void], keys: Integers) -> Segments:
    """The segments of such rows.

    Raises:
        ValueError: rows that are no segments, or name keys that are not there.
    """
    ids = make_ids(rows["creation_epoch"], rows["number"])
    return Segments.make(ids, rows["creation_time_ms"], *keys_at(keys, rows["start"], rows["span"]))


def key_table(*parts: Segments) -> Integers:
    """The bits of all keys of some segments, ascending, each once."""
    columns = [key_bits(column) for each in parts for column in (each.key_starts, each.key_ends)]
    return np.unique(np.concatenate(columns))


def placed_keys(segments: Segments, keys: Integers) -> tuple[Integers, Integers]:
    """Where the key ranges of segments start in a table that has their keys, and how far they span."""
    start = np.searchsorted(keys, key_bits(segments.key_starts))
    return start, np.searchsorted(keys, key_bits(segments.key_ends)) - start


def keys_at(keys: Integers, start: Integers, span: Integers) -> tuple[Keys, Keys]:
    """The key ranges that start and span there.

    Raises:
        ValueError: a position that is not in the table.
    """
    # The end is only computed of what lies within the table, so that no sum wraps.
    for positions in (start, span):
        check_within("positions of keys", positions, 0, len(keys) - 1)
    end = start + span
    check_within("positions of keys", end, 0, len(keys) - 1)
    values = keys_of_bits(keys)
    return values[start], values[end]


def packed_keys(keys: Integers) -> bytes:
    """A table of keys as bytes."""
    return pack_columns(keys.view(KEY))


def unpacked_keys(data: bytes, where: str) -> Integers:
    """A table of keys from its bytes."""
    keys: Integers = np.ascontiguousarray(unpack_columns(data, KEY, where)["key"])
    return keys


def make_ids(epochs: Integers, numbers: Integers) -> Integers:
    """Segment ids of epochs and numbers.

    Raises:
        ValueError: one that is out of bounds; joined, it would look like another segment.
    """
    check_within("epochs", epochs, 0, EPOCH_MAX)
    check_within("segment numbers", numbers, 0, NUMBER_MAX)
    return epochs << NUMBER_BITS | numbers


def check_within(what: str, column: Integers, low: int, high: int) -> None:
    """Do nothing if all numbers of a column are within bounds.

    Raises:
        ValueError: one is not.
    """
    if len(column) and not low <= int(column.min()) <= int(column.max()) <= high:
        raise ValueError(f"expected {what} of {low} to {high}, found {column.min()} to {column.max()}")


def make_rows(dtype: np.dtype[np.void], **columns: ArrayLike) -> NDArray[np.void]:
    """Rows of columns of one length; a single number stands for a whole column."""
    arrays = np.broadcast_arrays(*(np.atleast_1d(columns[name]) for name in dtype.names or ()))
    rows = np.empty(len(arrays[0]), dtype=dtype)
    for name, column in zip(dtype.names or (), arrays, strict=True):
        rows[name] = column
    return rows


def key_bits(keys: Keys) -> Integers:
    """The bits of keys, read as integers; those of keys of at least 0 ascend as the keys do."""
    return np.ascontiguousarray(keys).view(np.int64)


def keys_of_bits(bits: Integers) -> Keys:
    """The keys with these bits."""
    keys: Keys = np.ascontiguousarray(bits).view(np.float64)
    return keys
