"""Entries of an index snapshot: the offsets and the bytes of a stream in an object.

There is one entry for each stream of each object, in columns of equal length:

    | column       | type  | meaning                                                                           |
    |--------------|-------|-----------------------------------------------------------------------------------|
    | stream_id    | int64 | the stream                                                                        |
    | start_offset | int64 | its first offset in the object                                                    |
    | end_offset   | int64 | one past its last offset in the object                                            |
    | object_id    | int64 | the object                                                                        |
    | order_id     | int64 | orders the object in its node's list                                              |
    | position     | int64 | first byte of the stream's blocks in the object; -1: they are not adjacent        |
    | size_bytes   | int64 | bytes of these blocks, headers included; 0 if they are not adjacent               |
    | record_count | int64 | record batches of the stream in the object                                        |
    | holed        | bool  | some offsets between start and end are missing                                    |

In a snapshot entries are sorted by (stream_id, start_offset), so that all entries of a stream are adjacent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from loaders.format import BlockIndex

Numbers = NDArray[np.int64]

SCATTERED = -1
"""The position of a stream whose blocks are not adjacent in the object."""

COLUMN_NAMES = (
    "stream_id",
    "start_offset",
    "end_offset",
    "object_id",
    "order_id",
    "position",
    "size_bytes",
    "record_count",
    "holed",
)
"""The names of the columns in stored groups, in the order of the fields of `EntryColumns`."""


@dataclass(frozen=True, slots=True, eq=False)
class EntryColumns:
    """Entries as columns; see the table above. Threads: any, as the arrays are never changed.

    Raises:
        ValueError: columns of different lengths or types.
    """

    stream_ids: Numbers
    starts: Numbers
    ends: Numbers
    object_ids: Numbers
    order_ids: Numbers
    positions: Numbers
    sizes: Numbers
    record_counts: Numbers
    holed: NDArray[np.bool_]

    def __post_init__(self) -> None:
        shapes = {column.shape for column in self.columns()}
        kinds = [column.dtype.str for column in self.columns()]
        if len(shapes) != 1 or kinds != ["<i8"] * (len(kinds) - 1) + ["|b1"]:
            raise ValueError(f"expected 8 columns of int64 and one of bool, of one length, found {shapes} of {kinds}")

    @classmethod
    def from_mapping(cls, columns: Mapping[str, NDArray[Any]]) -> Self:
        """Build from columns by name, such as those of a table or a data frame; integers of any width.

        Raises:
            ValueError: a column is missing, or has another length.
        """
        missing = [name for name in COLUMN_NAMES if name not in columns]
        if missing:
            raise ValueError(f"expected columns {', '.join(COLUMN_NAMES)}, found none named {', '.join(missing)}")
        kinds: list[Any] = [np.int64] * (len(COLUMN_NAMES) - 1) + [np.bool_]
        return cls.of(columns[name].astype(kind, copy=False) for name, kind in zip(COLUMN_NAMES, kinds, strict=True))

    @classmethod
    def of(cls, columns: Iterable[NDArray[Any]]) -> Self:
        """Build from the arrays in the order of `COLUMN_NAMES`."""
        return cls(*columns)

    @classmethod
    def none(cls) -> Self:
        """No entries."""
        numbers: list[NDArray[Any]] = [np.empty(0, np.int64)] * (len(COLUMN_NAMES) - 1)
        return cls.of([*numbers, np.empty(0, np.bool_)])

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Concatenate the entries of all parts; O(entries)."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return cls.none()
        return cls.of(np.concatenate(pair) for pair in zip(*(part.columns() for part in parts), strict=True))

    def columns(self) -> tuple[NDArray[Any], ...]:
        """The arrays in the order of `COLUMN_NAMES`."""
        return tuple(getattr(self, column.name) for column in fields(self))

    def __len__(self) -> int:
        """The number of entries."""
        return len(self.stream_ids)

    @property
    def nbytes(self) -> int:
        """Memory of the arrays: 65 bytes an entry."""
        return sum(column.nbytes for column in self.columns())

    def take(self, rows: slice | NDArray[np.intp]) -> Self:
        """The entries of these rows; a slice makes no copy."""
        return self.of(column[rows] for column in self.columns())

    def with_order_ids(self, order_ids: Numbers) -> Self:
        """The same entries with other order ids."""
        return replace(self, order_ids=order_ids)

    def sorted(self) -> Self:
        """The entries in the order of a snapshot; of equal stream and offset by object id. O(n log n)."""
        return self.take(np.lexsort((self.object_ids, self.starts, self.stream_ids)))

    def find_flaw(self) -> str | None:
        """Check the entries as consecutive ones of a snapshot.

        Returns:
            What was expected and found; None if there is no fault.
        """
        if not len(self):
            return None
        for name, column in zip(COLUMN_NAMES, self.columns(), strict=True):
            least = SCATTERED if name == "position" else 0
            if column.min() < least:
                return f"expected a {name} of at least {least}, found {int(column.min())}"
        if (self.ends < self.starts).any():
            return "expected ends that are no lower than their starts, found others"
        steps = np.diff(self.stream_ids)
        if (steps < 0).any() or (np.diff(self.starts)[steps == 0] < 0).any():
            return "expected entries sorted by stream and offset, found others"
        if ((self.positions == SCATTERED) != (self.sizes == 0)).any():
            return "expected a size of 0 if and only if the position is -1, found others"
        return None


def object_entries(object_id: int, order_id: int, index: BlockIndex, *, composite: bool = False) -> EntryColumns:
    """The entries of one object, sorted by stream; O(rows of its index), no loop in Python.

    Args:
        object_id: the object.
        order_id: of the object in the list.
        index: its block index.
        composite: whether its rows describe bytes of other objects, so that entries have no byte spans.
    """
    if not len(index):
        return EntryColumns.none()
    rows, ranges = index.rows, index.object_ranges()
    stream_ids = rows["stream_id"].astype(np.int64)
    firsts = stream_ids.searchsorted(ranges.stream_ids)
    positions, sizes = rows["position"].astype(np.int64), rows["size_bytes"].astype(np.int64)
    breaks = np.ones(len(rows), dtype=np.int64)
    breaks[1:] = positions[1:] != positions[:-1] + sizes[:-1]
    breaks[firsts] = 0
    scattered = np.add.reduceat(breaks, firsts) > 0 if not composite else np.ones(len(firsts), dtype=np.bool_)
    holed = np.zeros(len(firsts), dtype=np.bool_)
    holed[ranges.holed] = True
    return EntryColumns(
        ranges.stream_ids,
        ranges.starts,
        ranges.ends,
        np.full(len(firsts), object_id, dtype=np.int64),
        np.full(len(firsts), order_id, dtype=np.int64),
        np.where(scattered, SCATTERED, positions[firsts]),
        np.where(scattered, 0, np.add.reduceat(sizes, firsts)),
        np.add.reduceat(rows["record_count"].astype(np.int64), firsts),
        holed,
    )
