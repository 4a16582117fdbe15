"""What holds for rows of stream objects wherever they are committed: in a node's list or in a bucket."""

from __future__ import annotations

import numpy as np

from accel.catalog.rows import STREAM_OBJECT, Rows
from accel.errors import CommitRefused

_LEAST = {"object_id": 0, "stream_id": 0, "start": 0, "size_bytes": 0, "index_size_bytes": 0, "data_time_ms": 0}


def check_new_rows(rows: Rows, where: str) -> None:
    """Check stream objects that are to be committed, each by itself.

    Raises:
        ValueError: rows of another type.
        CommitRefused: an id twice, a negative number or an empty range.
    """
    if rows.dtype != STREAM_OBJECT:
        raise ValueError(f"{where}: expected rows of stream objects with {STREAM_OBJECT.names}, found {rows.dtype}")
    for name, least in _LEAST.items():
        _refuse_first(rows, rows[name] < least, f"{where}: expected {name} of at least {least}")
    _refuse_first(rows, rows["end"] <= rows["start"], f"{where}: expected an end above the start")
    if len(np.unique(rows["object_id"])) < len(rows):
        raise CommitRefused(f"{where}: expected each object once, found {rows['object_id'].tolist()[:20]}")


def refuse_overlaps(rows: Rows, where: str) -> None:
    """Check that no two stream objects claim the same offsets.

    Args:
        rows: STREAM_OBJECT rows, ascending by (stream id, start).
        where: names the place in errors.

    Raises:
        CommitRefused: naming both.
    """
    overlaps = overlapping(rows)
    if len(overlaps):
        before, after = rows[overlaps[0]], rows[overlaps[0] + 1]
        raise CommitRefused(
            f"{where}: expected objects of a stream that do not overlap, found {described(before)} and "
            f"{described(after)}"
        )


def overlapping(rows: Rows) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Positions whose row overlaps the next one, of rows ascending by (stream id, start)."""
    same = rows["stream_id"][1:] == rows["stream_id"][:-1]
    found: np.ndarray[tuple[int], np.dtype[np.int64]] = np.flatnonzero(same & (rows["end"][:-1] > rows["start"][1:]))
    return found


def described(row: np.void) -> str:
    """One stream object, for a person."""
    return f"object {row['object_id']} with [{row['start']}, {row['end']}) of stream {row['stream_id']}"


def _refuse_first(rows: Rows, wrong: np.ndarray[tuple[int], np.dtype[np.bool_]], expected: str) -> None:
    if wrong.any():
        raise CommitRefused(f"{expected}, found {described(rows[int(wrong.argmax())])}")
