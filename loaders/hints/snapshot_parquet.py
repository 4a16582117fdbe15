"""Entries of a snapshot as Parquet: the one module that imports pyarrow, and not before it is asked to.

A file of a snapshot is an ordinary Parquet file: any tool that reads Parquet reads it. Each of its row groups is small
and has, besides, a footer of its own in the snapshot's root, made as if the group were the whole file:

    "PAR1"  group's bytes  group's footer           is a Parquet file by itself

So whoever has a root decodes the bytes of one group without the file's footer, which at hundreds of groups is half a
megabyte, takes 7 ms to parse and ten times its size in memory. The writer encodes each group twice, once alone and once
in its file, and refuses to write if the two differ.

Numbers are stored as differences, bit-packed (DELTA_BINARY_PACKED), then compressed with zstd; columns are not
nullable; statistics stand only in the columns by which readers skip groups.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from loaders.hints.entry_columns import COLUMN_NAMES, EntryColumns

GROUP_MAGIC = b"PAR1"
GROUP_START = len(GROUP_MAGIC)
"""Where the first group of a file begins."""

GROUP_UNPACKED_SIZE_BYTES_MAX = 32 << 20
"""A group that says it is larger than this is not unpacked."""

_SKIPPING_COLUMNS = ("stream_id", "start_offset")
_BOOL_COLUMN = COLUMN_NAMES[-1]


class EncodedGroup(NamedTuple):
    """The bytes of a row group, and the footer that makes them a file."""

    body: bytes
    footer: bytes


def can_read_snapshots() -> bool:
    """Whether pyarrow is installed (the extras ``snapshot`` and ``spark`` bring it)."""
    try:
        _arrow()
    except ModuleNotFoundError:
        return False
    return True


def encode_group(columns: EntryColumns) -> EncodedGroup:
    """One row group alone; about 4 ms for 30,000 entries.

    Raises:
        ModuleNotFoundError: pyarrow is not installed.
    """
    sink = _Sink()
    with _writer(sink, {}) as writer:
        writer.write_table(_table(columns), row_group_size=len(columns))
        end = sink.position
    written = bytes(sink.taken())
    return EncodedGroup(written[GROUP_START:end], written[end:])


def decode_group(group: EncodedGroup, rows: int) -> EntryColumns:
    """The entries of a row group whose checksum is known to be right; about 2 ms for 30,000 entries.

    Args:
        group: its bytes.
        rows: how many entries it must have.

    Raises:
        ValueError: not what `encode_group` made.
        ModuleNotFoundError: pyarrow is not installed.
    """
    pa, pq = _arrow()
    try:
        data = b"".join((GROUP_MAGIC, group.body, group.footer))
        file = pq.ParquetFile(pa.BufferReader(data))
        _check_shape(file, rows)
        table = file.read(use_threads=False)
        if table.num_rows != rows:  # its pages may hold others than its footer says
            raise ValueError(f"expected {rows} entries in the pages of a row group, found {table.num_rows}")
        columns = [table.column(name).to_numpy() for name in COLUMN_NAMES]
    except (pa.ArrowException, OSError, TypeError, OverflowError) as error:
        raise ValueError(f"expected a row group in Parquet, found {error}") from error
    return EntryColumns(*(np.ascontiguousarray(column) for column in columns))


class SnapshotEncoder:
    """Encodes a file of a snapshot, group by group.

    Args:
        write: takes the file's bytes as they come.
        notes: key-value metadata of the file.

    Threads: one at a time.

    Raises:
        ModuleNotFoundError: pyarrow is not installed.
    """

    def __init__(self, write: Callable[[bytes], None], notes: Mapping[str, str]) -> None:
        self._write = write
        self._sink = _Sink()
        self._writer = _writer(self._sink, notes)

    @property
    def position(self) -> int:
        """Bytes so far: where the next group begins."""
        return self._sink.position

    def add(self, columns: EntryColumns, group: EncodedGroup) -> None:
        """Append a group that was encoded alone already.

        Raises:
            ValueError: its bytes in this file are others.
        """
        self._pass_on()
        self._writer.write_table(_table(columns), row_group_size=len(columns))
        body = self._sink.taken()
        if body != group.body:
            raise ValueError(f"expected {len(group.body)} equal bytes of the group in its file, found {len(body)}")
        self._write(body)

    def close(self) -> None:
        """Write the footer."""
        self._writer.close()
        self._pass_on()

    def _pass_on(self) -> None:
        if pending := self._sink.taken():
            self._write(pending)


class _Sink(io.RawIOBase):
    """A file that is written from start to end and keeps only what nobody has taken yet."""

    def __init__(self) -> None:
        super().__init__()
        self._pending: list[bytes] = []
        self.position = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.position

    def write(self, data: Any) -> int:
        self._pending.append(bytes(data))
        self.position += len(self._pending[-1])
        return len(self._pending[-1])

    def taken(self) -> bytes:
        taken, self._pending = b"".join(self._pending), []
        return taken


@cache
def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra, and slow to load: only for who uses snapshots
        import pyarrow.parquet as pq  # noqa: PLC0415 - likewise
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("index snapshots need pyarrow: pip install 'accel-streams[snapshot]'") from error
    return pa, pq


@cache
def _schema() -> Any:
    pa, _ = _arrow()
    kinds = {name: pa.bool_() if name == _BOOL_COLUMN else pa.int64() for name in COLUMN_NAMES}
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in kinds.items()])


def _table(columns: EntryColumns) -> Any:
    pa, _ = _arrow()
    return pa.table([pa.array(column) for column in columns.columns()], schema=_schema())


def _writer(sink: _Sink, notes: Mapping[str, str]) -> Any:
    _, pq = _arrow()
    writer = pq.ParquetWriter(
        sink,
        _schema(),
        compression="zstd",
        use_dictionary=False,
        column_encoding={name: "DELTA_BINARY_PACKED" for name in COLUMN_NAMES if name != _BOOL_COLUMN},
        write_statistics=list(_SKIPPING_COLUMNS),
        store_schema=False,
    )
    if notes:
        writer.add_key_value_metadata(dict(notes))
    return writer


def _check_shape(file: Any, rows: int) -> None:
    # The columns before any of them is unpacked: what a checksum does not tell is how large they become.
    if not file.schema_arrow.equals(_schema()):
        raise ValueError(f"expected columns {', '.join(COLUMN_NAMES)}, found {file.schema_arrow}")
    metadata = file.metadata
    if (metadata.num_row_groups, metadata.num_rows) != (1, rows) or rows < 1:
        found = f"{metadata.num_row_groups} of {metadata.num_rows}"
        raise ValueError(f"expected 1 row group of {max(1, rows)} entries, found {found}")
    size = metadata.row_group(0).total_byte_size
    if not 0 <= size <= GROUP_UNPACKED_SIZE_BYTES_MAX:
        raise ValueError(f"expected at most {GROUP_UNPACKED_SIZE_BYTES_MAX} unpacked bytes, found {size}")
