"""Sorted runs: rows ascending by a key, packed column by column, for the query "the last row at or before this key".

This query, *floor*, is the main query of the package. A run contains its rows in one array of 64-bit integers, 8 bytes
a value: first all keys, ascending, then one column of values after the other. A stream's entries in a node are such a
run, keyed by their start offsets:

    |              | row 0 | row 1 | row 2 | row 3 |
    | keys: starts | 0     | 100   | 180   | 400   |
    | ends         | 100   | 180   | 250   | 460   |
    | objects      | 7     | 9     | 12    | 31    |

    packed as 0 100 180 400 100 180 250 460 7 9 12 31, of 4 rows

    floor of 190 = 2: the row [180, 250) of object 12

It is one array instead of three, because the processor's caches usually do not hold a run: the cost of a query is its
number of accesses to memory.

A run is never changed. ``seal`` makes a run from rows in any order, ``append`` makes a longer one from a run and rows
after its end; so a run may be read while other threads make new ones.

Rows with equal keys are in order of arrival, and the floor of their key is the last of them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

TYPE_CODE: Final = "q"
"""The type of every value: signed, 64 bits. Python's bisect reads such an array without converting it to a list."""

_ZERO: Final = array(TYPE_CODE, [0])


class Run(NamedTuple):
    """Rows ascending by key: value ``i`` of column ``c`` is ``packed[c * rows + i]``, and column 0 has the keys."""

    packed: array[int]
    rows: int


def floor(packed: array[int], rows: int, key: int) -> int:
    """The position of the last row whose key is at most ``key``, or -1 if there is none; O(log rows).

    Args:
        packed: of a run; only the keys are read.
        rows: of that run.
        key: the searched key.

    >>> floor(array("q", [0, 100, 180, 400]), 4, 190)
    2
    """
    return bisect_right(packed, key, 0, rows) - 1


def seal(keys: NDArray[np.int64], *values: NDArray[np.int64]) -> Run:
    """Make a run from rows in order of arrival: sort them by key and pack them.

    Complexity: O(n) if the keys ascend already, else O(n log n); no loop in Python.

    Args:
        keys: of the rows, in any order.
        values: columns as long as ``keys``.

    Raises:
        ValueError: columns of different lengths.
    """
    if any(len(column) != len(keys) for column in values):
        raise ValueError(f"expected columns of {len(keys)} rows, found {[len(column) for column in values]}")
    columns: Sequence[NDArray[np.int64]] = (keys, *values)
    if not (keys[1:] >= keys[:-1]).all():
        order = keys.argsort(kind="stable")
        columns = [column[order] for column in columns]
    return Run(pack(np.concatenate(columns)), len(keys))


def append(run: Run, rows: Sequence[Sequence[int]]) -> Run:
    """Make a run with further rows at its end; the given run does not change.

    Complexity: one copy of the packed columns, a few microseconds for some hundred rows.

    Args:
        run: to be continued.
        rows: a key and one value for each column; the keys ascend from the run's last one on.

    Raises:
        ValueError: a key below the previous one, or not one value for each column.

    >>> append(Run(array("q", [0, 100]), 1), [(100, 180)])
    Run(packed=array('q', [0, 100, 100, 180]), rows=2)
    """
    last = run.packed[run.rows - 1] if run.rows else None
    for row in rows:
        if last is not None and row[0] < last:
            raise ValueError(f"expected a key of at least {last}, the previous key, found {row[0]}")
        last = row[0]
    new_columns = list(zip(*rows, strict=True))
    if run.rows and rows and len(new_columns) * run.rows != len(run.packed):
        raise ValueError(f"expected rows of {len(run.packed) // run.rows} numbers, found {rows[0]}")
    return _with_columns(run, new_columns, len(rows)) if rows else run


def _with_columns(run: Run, new_columns: Sequence[Sequence[int]], new_rows: int) -> Run:
    rows = run.rows + new_rows
    longer = _ZERO * (rows * len(new_columns))
    target, source = memoryview(longer), memoryview(run.packed)
    for number, new in enumerate(new_columns):
        begin, end = number * rows, (number + 1) * rows
        target[begin : begin + run.rows] = source[number * run.rows : (number + 1) * run.rows]
        target[begin + run.rows : end] = array(TYPE_CODE, new)
    return Run(longer, rows)


def pack(column: NDArray[np.int64]) -> array[int]:
    """The same numbers as a packed array, copied."""
    # A product of an array has exactly the requested size; an array made from bytes would reserve more.
    packed = _ZERO * len(column)
    unpack(packed)[:] = column
    return packed


def unpack(column: array[int]) -> NDArray[np.int64]:
    """The same numbers as a numpy array over the same memory; while it exists, the packed array cannot be resized."""
    return np.frombuffer(column, dtype=np.int64) if column else np.empty(0, dtype=np.int64)


def require(holds: bool, invariant: str, *state: object) -> None:
    """Do nothing if the invariant holds.

    Unlike the statement ``assert`` it also works under ``python -O``.

    Args:
        holds: whether the invariant holds.
        invariant: a description of the invariant.
        state: the values that are needed to find the cause.

    Raises:
        AssertionError: the invariant does not hold.
    """
    if not holds:
        raise AssertionError(f"broken: {invariant}; state: {', '.join(map(repr, state))}")
