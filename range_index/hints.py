"""Entries of a stream that somebody else knew: checked before an index believes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from range_index.range_chunk import Rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike, NDArray

_INT64_MAX: Final = 2**63 - 1


def hint_rows(starts: ArrayLike, ends: ArrayLike, object_ids: ArrayLike, holed_object_ids: Iterable[int]) -> Rows:
    """Check entries given as columns; of several entries of one object keep the last.

    Complexity: O(n log n), no loop in Python.

    Raises:
        ValueError: columns of different lengths, numbers that are no 63-bit integers, an end before its start.
    """
    columns = [_column(values) for values in (starts, ends, object_ids)]
    lengths = [len(column) for column in columns]
    if len(set(lengths)) != 1:
        raise ValueError(f"expected starts, ends and objects of one number, found {lengths}")
    inverted = columns[1] < columns[0]
    if inverted.any():
        at = int(inverted.argmax())
        raise ValueError(
            f"expected entries that do not end before they start, found [{columns[0][at]}, {columns[1][at]})"
        )
    # The first of the reversed column is the last of the column.
    _, last_places = np.unique(columns[2][::-1], return_index=True)
    kept = np.sort(lengths[0] - 1 - last_places)
    holed = frozenset(holed_object_ids).intersection(columns[2].tolist())
    return Rows(columns[0][kept], columns[1][kept], columns[2][kept], holed)


def _column(values: ArrayLike) -> NDArray[np.int64]:
    column = np.atleast_1d(np.asarray(values))
    if not column.size:
        return np.empty(0, dtype=np.int64)
    if column.ndim != 1 or column.dtype.kind not in "iu" or column.min() < 0 or column.max() > _INT64_MAX:
        raise ValueError(f"expected integers of 0 to 2**63 - 1, found {column!r}")
    return column.astype(np.int64)
