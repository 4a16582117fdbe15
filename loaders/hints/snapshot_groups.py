"""Groups of a snapshot's entries as bytes: packed columns, which need nothing but numpy and zstd to be read.

A file of a snapshot is groups end to end, and nothing else. Each is the packed columns (loaders/tables/columns.py) of
some neighbouring entries, all nine columns by their names, ``holed`` as 0 or 1. So a group speaks for itself, and any
tool that unpacks a table's columns unpacks it.

Releases before the second version of the root wrote Parquet instead, each group with a footer in the root. Such groups
are still read, where pyarrow is installed (`loaders.hints.snapshot_parquet`). What either costs, and why packed columns
are written: docs/decisions/0034-snapshots-as-packed-columns.md.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from loaders.errors import CorruptObject
from loaders.hints.entry_columns import COLUMN_NAMES, EntryColumns
from loaders.hints.snapshot_parquet import decode_parquet_group
from loaders.tables.columns import pack_columns, unpack_arrays

_BOOL_COLUMN = COLUMN_NAMES[-1]
_LEVEL = 3  # millions of entries: 1 % more bytes than at level 6, in half the time and less
_ENTRY = np.dtype([(name, "<i8") for name in COLUMN_NAMES])


class EncodedGroup(NamedTuple):
    """The bytes of a group; and of one in Parquet the footer that makes them a file, else nothing."""

    body: bytes
    footer: bytes = b""


def encode_group(columns: EntryColumns) -> bytes:
    """The bytes of a group; about 2 ms for 15,000 entries.

    Raises:
        FormatLimit: more than 1,048,576 entries.
    """
    rows = np.empty(len(columns), dtype=_ENTRY)
    for name, column in zip(COLUMN_NAMES, columns.columns(), strict=True):
        rows[name] = column
    return pack_columns(rows, level=_LEVEL)


def decode_group(group: EncodedGroup, rows: int, where: str) -> EntryColumns:
    """The entries of a group whose checksum is known to be right; about 0.5 ms for 15,000 entries.

    Nothing is allocated for more than ``rows`` entries, nor for more than the bytes allow (docs/formats.md, "Packed
    columns").

    Args:
        group: its bytes.
        rows: how many entries it must have.
        where: names the place in errors.

    Raises:
        ValueError: not what `encode_group` made.
        FormatTooNew: a newer release made it.
        ModuleNotFoundError: a group in Parquet, and pyarrow is not installed.
    """
    if group.footer:
        return decode_parquet_group(group.body, group.footer, rows)
    try:
        arrays = unpack_arrays(group.body, where, rows_max=rows)
    except CorruptObject as error:
        raise ValueError(f"expected {error.expected}, found {error.found}") from error
    found = {len(array) for array in arrays.values()}
    if found != {rows} or set(arrays) != set(COLUMN_NAMES):
        expected = f"{rows} entries in columns {', '.join(COLUMN_NAMES)}"
        raise ValueError(f"expected {expected}, found {found.pop()} in {', '.join(arrays)}")
    holed = arrays[_BOOL_COLUMN]
    if len(holed) and not 0 <= holed.min() <= holed.max() <= 1:
        raise ValueError(f"expected a {_BOOL_COLUMN} of 0 or 1, found {int(holed.min())} to {int(holed.max())}")
    return EntryColumns.from_mapping(arrays)
