"""Sorts and merges any number of entries in the order of a snapshot, with bounded memory.

    with EntrySorter() as sorter:
        sorter.add(object_entries(...))                                  for each object, in any order
        for columns in merge_sorted([kept_entries, *sorter.runs()]):     by ascending (stream, start)
            writer.write(columns)

A node may have more entries than fit memory: 5,000 objects of 9,000 streams are 45 million, 2.9 GB as columns. So added
entries are collected up to a bound, sorted, and written as a *run* to a temporary file, in the packed groups of a
snapshot (6 to 9 bytes an entry). At the end all runs are read in parallel, together with the entries that are kept from
the previous snapshot, which are already sorted.

**Groups** of a snapshot's entries are stored as packed columns; numpy and zstd suffice to read them.

A file of a snapshot consists of groups end to end. Each group is the packed columns (loaders/tables/columns.py) of some
consecutive entries, all nine columns by their names, ``holed`` as 0 or 1. So a group is self-contained, and any tool
that unpacks a table's columns unpacks it.

The reasons for packed columns: docs/decisions/0005-hints-are-files-that-may-be-missing.md.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import IO, NamedTuple

import numpy as np

from loaders.errors import CorruptObject
from loaders.hints.entry_columns import COLUMN_NAMES, EntryColumns
from loaders.lifetime import Closing
from loaders.tables.columns import pack_columns, unpack_arrays

ENTRIES_SIZE_BYTES_MAX = 64 << 20
"""Bytes of columns that are collected for a run; sorting briefly needs three times as much memory."""

RUN_GROUP_ROWS = 1 << 14
_WHERE = "a run of entries in a temporary file"


def merge_sorted(sources: Iterable[Iterator[EntryColumns]]) -> Iterator[EntryColumns]:
    """The entries of all sources in the order of a snapshot.

    Complexity: O(n log n) for n entries, without a loop over entries in Python; memory holds one chunk of each source.

    Args:
        sources: each yields entries in the order of a snapshot, some at a time.
    """
    heads = [_Head(EntryColumns.none(), source) for source in sources]
    while heads := [head for head in map(_filled, heads) if len(head.columns)]:
        if len(heads) == 1:
            yield heads[0].columns
            yield from heads[0].rest
            return
        bound = min(_last_key(head.columns) for head in heads)
        counts = [_count_up_to(head.columns, *bound) for head in heads]
        parts = [head.columns.take(slice(0, count)) for head, count in zip(heads, counts, strict=True)]
        yield EntryColumns.join([part for part in parts if len(part)]).sorted()
        heads = [
            _Head(head.columns.take(slice(count, None)), head.rest) for head, count in zip(heads, counts, strict=True)
        ]


class _Head(NamedTuple):
    """The entries that were taken from a source and not merged yet, and the rest of the source."""

    columns: EntryColumns
    rest: Iterator[EntryColumns]


def _filled(head: _Head) -> _Head:
    columns = head.columns
    while not len(columns):
        following = next(head.rest, None)
        if following is None:
            break
        columns = following
    return _Head(columns, head.rest)


def _last_key(columns: EntryColumns) -> tuple[int, int]:
    return int(columns.stream_ids[-1]), int(columns.starts[-1])


def _count_up_to(columns: EntryColumns, stream_id: int, start: int) -> int:
    low = int(columns.stream_ids.searchsorted(stream_id, side="left"))
    high = int(columns.stream_ids.searchsorted(stream_id, side="right"))
    return low + int(columns.starts[low:high].searchsorted(start, side="right"))


class EntrySorter(Closing):
    """Sorts entries that are added in any order, with bounded memory; a context manager that is used once.

    Args:
        size_bytes_max: of the entries that are collected for a run: 64 MiB by default.
        folder: of the temporary files; by default the folder of the system. The files have no names, and the system
            deletes them when the process ends.

    Threads: one at a time.
    """

    def __init__(self, *, size_bytes_max: int = ENTRIES_SIZE_BYTES_MAX, folder: str | None = None) -> None:
        if size_bytes_max < 1:
            raise ValueError(f"expected at least 1 byte of entries, found {size_bytes_max}")
        self._size_bytes_max = size_bytes_max
        self._folder = folder
        self._pending: list[EntryColumns] = []
        self._pending_bytes = 0
        self._files = ExitStack()
        self._runs: list[_Run] = []
        self.entries = 0
        """The number of added entries."""

    def _end_block(self, _: BaseException | None) -> None:
        self._files.close()

    def add(self, columns: EntryColumns) -> None:
        """Add entries.

        Raises:
            OSError: the disk is full.
        """
        if not len(columns):
            return
        self.entries += len(columns)
        self._pending.append(columns)
        self._pending_bytes += columns.nbytes
        if self._pending_bytes >= self._size_bytes_max:
            self._put_aside()

    def runs(self) -> list[Iterator[EntryColumns]]:
        """All entries so far, as sources of one `merge_sorted` at a time; may be called again."""
        rest = EntryColumns.join(self._pending).sorted()
        self._pending = [rest]
        return [*(run.read() for run in self._runs), iter([rest])]

    def _put_aside(self) -> None:
        columns = EntryColumns.join(self._pending).sorted()
        self._pending, self._pending_bytes = [], 0
        file = self._files.enter_context(tempfile.TemporaryFile(dir=self._folder))  # noqa: SIM115 - closed by the stack
        self._runs.append(_write_run(file, columns))


class _Run:
    """Sorted entries in a temporary file."""

    def __init__(self, file: IO[bytes], groups: Sequence[tuple[int, int]]) -> None:
        self._file = file
        self._groups = groups

    def read(self) -> Iterator[EntryColumns]:
        """The entries of the run, a group at a time."""
        self._file.seek(0)
        for size, rows in self._groups:
            yield decode_group(self._file.read(size), rows, _WHERE)


def _write_run(file: IO[bytes], columns: EntryColumns) -> _Run:
    groups = []
    for start in range(0, len(columns), RUN_GROUP_ROWS):
        group = columns.take(slice(start, start + RUN_GROUP_ROWS))
        body = encode_group(group)
        file.write(body)
        groups.append((len(body), len(group)))
    return _Run(file, groups)


_BOOL_COLUMN = COLUMN_NAMES[-1]
_LEVEL = 3  # for millions of entries: 1 % more bytes than at level 6, in less than half the time
_ENTRY = np.dtype([(name, "<i8") for name in COLUMN_NAMES])


def encode_group(columns: EntryColumns) -> bytes:
    """The bytes of a group; about 2 ms for 15,000 entries.

    Raises:
        FormatLimit: more than 1,048,576 entries.
    """
    rows = np.empty(len(columns), dtype=_ENTRY)
    for name, column in zip(COLUMN_NAMES, columns.columns(), strict=True):
        rows[name] = column
    return pack_columns(rows, level=_LEVEL)


def decode_group(body: bytes, rows: int, where: str) -> EntryColumns:
    """The entries of a group whose checksum was verified; about 0.5 ms for 15,000 entries.

    Memory is allocated for at most ``rows`` entries, and for at most the number that the bytes allow
    (docs/reference/catalog-records.md, "Packed columns").

    Args:
        body: its bytes.
        rows: the number of entries that it must have.
        where: the place, for errors.

    Raises:
        ValueError: the bytes are no group of `encode_group`.
        FormatTooNew: a newer release encoded the group.
    """
    try:
        arrays = unpack_arrays(body, where, rows_max=rows)
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
