"""Reads groups of entries in Parquet, which releases before version 2 of the snapshot's root wrote.

Only this module imports pyarrow, and only when such a group is to be read. Each group has its own footer in the
snapshot's root, made as if the group were the whole file:

    "PAR1"  group's bytes  group's footer           is a complete Parquet file

so that a reader with the root decodes the bytes of one group without the footer of the group's file.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from loaders.hints.entry_columns import COLUMN_NAMES, EntryColumns

GROUP_MAGIC = b"PAR1"
GROUP_START = len(GROUP_MAGIC)
"""The position of the first group of a file."""

GROUP_UNPACKED_SIZE_BYTES_MAX = 32 << 20
"""A group whose metadata contain a larger size is not unpacked."""

_BOOL_COLUMN = COLUMN_NAMES[-1]


def can_read_parquet() -> bool:
    """Whether pyarrow is installed (the extra ``spark`` installs it)."""
    try:
        _arrow()
    except ModuleNotFoundError:
        return False
    return True


def decode_parquet_group(body: bytes, footer: bytes, rows: int) -> EntryColumns:
    """The entries of a row group whose checksum was verified; about 1 ms for 30,000 entries.

    Args:
        body: its bytes.
        footer: completes the bytes to a file.
        rows: the number of entries that it must have.

    Raises:
        ValueError: the bytes are no group of those releases.
        ModuleNotFoundError: pyarrow is not installed.
    """
    pa, pq = _arrow()
    try:
        data = b"".join((GROUP_MAGIC, body, footer))
        file = pq.ParquetFile(pa.BufferReader(data))
        _check_shape(file, rows)
        table = file.read(use_threads=False)
        if table.num_rows != rows:  # the pages may contradict the footer
            raise ValueError(f"expected {rows} entries in the pages of a row group, found {table.num_rows}")
        columns = [table.column(name).to_numpy() for name in COLUMN_NAMES]
    except (pa.ArrowException, OSError, TypeError, OverflowError) as error:
        raise ValueError(f"expected a row group in Parquet, found {error}") from error
    return EntryColumns(*(np.ascontiguousarray(column) for column in columns))


@cache
def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra, and slow to load: only for snapshots of older releases
        import pyarrow.parquet as pq  # noqa: PLC0415 - likewise
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("expected pyarrow to read Parquet of older releases, found none installed") from error
    return pa, pq


@cache
def _schema() -> Any:
    pa, _ = _arrow()
    kinds = {name: pa.bool_() if name == _BOOL_COLUMN else pa.int64() for name in COLUMN_NAMES}
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in kinds.items()])


def _check_shape(file: Any, rows: int) -> None:
    # Checks the columns before any is unpacked: the checksum does not cover their unpacked sizes.
    if not file.schema_arrow.equals(_schema()):
        raise ValueError(f"expected columns {', '.join(COLUMN_NAMES)}, found {file.schema_arrow}")
    metadata = file.metadata
    if (metadata.num_row_groups, metadata.num_rows) != (1, rows) or rows < 1:
        found = f"{metadata.num_row_groups} of {metadata.num_rows}"
        raise ValueError(f"expected 1 row group of {max(1, rows)} entries, found {found}")
    size = metadata.row_group(0).total_byte_size
    if not 0 <= size <= GROUP_UNPACKED_SIZE_BYTES_MAX:
        raise ValueError(f"expected at most {GROUP_UNPACKED_SIZE_BYTES_MAX} unpacked bytes, found {size}")
