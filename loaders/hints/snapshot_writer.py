"""Writes index snapshots: files of sorted entries, then the root that names them.

    with SnapshotFileWriter(store, node_id=7, generation=g, name="00000-a1") as writer:     in each task
        writer.write(columns)                                   # sorted; any number of times
    finish_snapshot(store, namespace=..., node_id=7, generation=g, files=[writer.file, ...], covered=...)

A file is uploaded while it grows: a group is encoded as soon as there are enough entries, and its bytes are added to a
multipart upload. Memory holds the entries of one group (about 20,000), those of one call of ``write``, and one part of
16 MiB.

The number of entries in a group is unknown before they are compressed. The writer takes the number that would fill nine
tenths of the limit at the rate of the group before, and halves it if the group is too large: so the limit holds for
every group except a group of a single entry.

No process reads a file before the root is swapped, so tasks may fail, and run twice under other names; files that no
root names are deleted with the old generations.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loaders.hints.entry_columns import EntryColumns
from loaders.hints.roots import CoveredObjects, swap_root
from loaders.hints.snapshots import GROUP, SnapshotFileName, SnapshotRoot
from loaders.hints.sorted_entries import encode_group
from loaders.layout import HINT_ROOT_NAME, HintKind, hint_file_key
from loaders.lifetime import Closing
from loaders.object_writer import StreamedObject
from loaders.settings import PART_SIZE_BYTES
from loaders.store.base import ObjectStore

GROUP_SIZE_BYTES_MAX = 128_000
"""Smaller groups are read and unpacked faster; larger ones make the root smaller. Most streams need 1 to 50 kB."""

GROUP_ROWS_MAX = 1 << 16
_GROUP_ROWS_FIRST = 1 << 13
_FILL_SHARE = 0.9


@dataclass(frozen=True, slots=True, eq=False)
class SnapshotFile:
    """The root's fields of a written file; small enough to be sent from a task to the driver.

    Args:
        file: its name and length.
        groups: of dtype `GROUP`; `finish_snapshot` sets the number of the file.
    """

    file: SnapshotFileName
    groups: NDArray[np.void]


class SnapshotFileWriter(Closing):
    """Writes one file of a snapshot; a context manager that is used once.

    Args:
        store: the store of the snapshot.
        node_id: the node of the snapshot.
        generation: of the snapshot (`next_generation`).
        name: last segment of the file's key; different for each task and for each attempt of a task.
        group_size_bytes_max: bytes of a group, 128,000 by default.
        group_rows_max: entries of a group, 65,536 by default, which a reader unpacks in about 2 ms.
        part_size_bytes: of the upload.

    Threads: one at a time.

    Raises:
        ValueError: an id or a name that is invalid in a key.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        node_id: int,
        generation: int,
        name: str,
        group_size_bytes_max: int = GROUP_SIZE_BYTES_MAX,
        group_rows_max: int = GROUP_ROWS_MAX,
        part_size_bytes: int = PART_SIZE_BYTES,
    ) -> None:
        if min(group_size_bytes_max, group_rows_max) < 1:
            raise ValueError(f"expected groups of at least 1, found {group_size_bytes_max}, {group_rows_max}")
        if name == HINT_ROOT_NAME:
            raise ValueError(f"expected a name other than that of the root, found {name!r}")
        key = hint_file_key(HintKind.SNAPSHOTS, node_id, generation, name)
        self._name = name
        self._object = StreamedObject(store, key, part_size_bytes=part_size_bytes)
        self._position = 0
        self._group_size_bytes_max = group_size_bytes_max
        self._group_rows_max = group_rows_max
        self._rows_wanted = min(_GROUP_ROWS_FIRST, group_rows_max)
        self._pending: list[EntryColumns] = []
        self._rows_pending = 0
        self._last: EntryColumns | None = None
        self._groups: list[tuple[int, ...]] = []
        self._file: SnapshotFile | None = None

    def _end_block(self, error: BaseException | None) -> None:
        if error is not None:
            self._object.abort(error)
            return
        try:
            self._finish()
        except BaseException as failure:
            self._object.abort(failure)
            raise

    @property
    def file(self) -> SnapshotFile | None:
        """The written file, set at the end of the context; None if there were no entries, and so no file."""
        return self._file

    def write(self, columns: EntryColumns) -> None:
        """Append entries.

        Complexity: O(entries), about 0.4 us each, and a request for each part that they fill.

        Args:
            columns: sorted by (stream, start), after the entries of the last call.

        Raises:
            ValueError: entries out of order, or with invalid values.
            StoreError: a part could not be sent; leave the context.
        """
        if not len(columns):
            return
        seam = columns if self._last is None else EntryColumns.join([self._last, columns.take(slice(0, 1))])
        if flaw := seam.find_flaw() or columns.find_flaw():
            raise ValueError(flaw)
        self._last = columns.take(np.array([len(columns) - 1]))
        self._pending.append(columns)
        self._rows_pending += len(columns)
        if self._rows_pending >= self._rows_wanted:
            self._write_groups(self._drained())

    def _drained(self) -> EntryColumns:
        pending, self._pending, self._rows_pending = EntryColumns.join(self._pending), [], 0
        return pending

    def _write_groups(self, columns: EntryColumns, *, all_of_them: bool = False) -> None:
        start = 0
        while len(columns) - start >= self._rows_wanted or (all_of_them and start < len(columns)):
            start += self._write_group(columns.take(slice(start, start + self._rows_wanted)))
        if start < len(columns):
            self._pending = [columns.take(slice(start, None))]
            self._rows_pending = len(columns) - start

    def _write_group(self, columns: EntryColumns) -> int:
        """Write the first entries that fit a group, and return their number."""
        body = encode_group(columns)
        while len(body) > self._group_size_bytes_max and len(columns) > 1:
            columns = columns.take(slice(0, len(columns) // 2))
            body = encode_group(columns)
        self._object.write(body)
        rows, size = len(columns), len(body)
        keys = [int(column[end]) for end in (0, -1) for column in (columns.stream_ids, columns.starts)]
        self._groups.append((0, *keys, self._position, size, zlib.crc32(body), rows))
        self._position += size
        filling = int(rows * self._group_size_bytes_max * _FILL_SHARE / size)
        self._rows_wanted = max(1, min(filling, self._group_rows_max))
        return rows

    def _finish(self) -> None:
        if self._rows_pending:
            self._write_groups(self._drained(), all_of_them=True)
        if not self._groups:
            return
        self._object.finish()
        file = SnapshotFileName(self._name, self._object.size_bytes)
        self._file = SnapshotFile(file, np.array(self._groups, dtype=GROUP))


def finish_snapshot(
    store: ObjectStore,
    *,
    namespace: str,
    node_id: int,
    generation: int,
    files: Iterable[SnapshotFile | None],
    covered: CoveredObjects,
) -> SnapshotRoot:
    """Write and swap the root of a snapshot of these files. Two requests.

    Args:
        store: the store of the files.
        namespace: of the cluster's objects.
        node_id: the node of the snapshot.
        generation: of the files.
        files: in any order; None for a task that had no entries.
        covered: the objects whose entries are all in the files.

    Raises:
        ValueError: two files have the same stream, or groups are invalid.
        FormatLimit: the root is too large.
        StoreError: the root may or may not have been swapped.
    """
    present = [file for file in files if file is not None]
    present.sort(key=lambda each: (int(each.groups["first_stream"][0]), int(each.groups["first_start"][0])))
    tables = []
    for number, each in enumerate(present):
        tables.append(each.groups.copy())
        tables[-1]["file"] = number
    groups = np.concatenate(tables) if tables else np.empty(0, dtype=GROUP)
    root = SnapshotRoot(namespace, node_id, generation, covered, tuple(each.file for each in present), groups)
    swap_root(store, HintKind.SNAPSHOTS, node_id, generation, root.encode())
    return root
