"""What holds for rows of stream objects wherever they are committed: in a node's list or in a bucket."""

from __future__ import annotations

import numpy as np

from accel.catalog.rows import CHECKSUM_MAX, STREAM_OBJECT, Rows, positions_of
from accel.errors import CommitRefused
from loaders.object_ref import UNKNOWN

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
    wrong = (rows["tail_checksum"] < UNKNOWN) | (rows["tail_checksum"] > CHECKSUM_MAX)
    _refuse_first(rows, wrong, f"{where}: expected a checksum of -1 to 2^32 - 1")
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


def refuse_other_bytes(listed: Rows, added: Rows, where: str) -> None:
    """Check that objects which are listed already are the ones that are to be committed: same size, same tail.

    A checksum that one side does not know contradicts nothing.

    Args:
        listed: rows of objects of any type that has sizes and checksums.
        added: those that are to be committed; ids that `listed` does not have are skipped.
        where: names the place in errors.

    Raises:
        CommitRefused: naming the first that differs, with both sizes and checksums.
    """
    at = positions_of(listed["object_id"], added["object_id"])
    mine, there = added[at >= 0], listed[at[at >= 0]]
    known = (mine["tail_checksum"] != UNKNOWN) & (there["tail_checksum"] != UNKNOWN)
    differs = mine["size_bytes"] != there["size_bytes"]
    differs |= known & (mine["tail_checksum"] != there["tail_checksum"])
    for wanted, found in list(zip(mine[differs], there[differs], strict=True))[:1]:
        raise CommitRefused(
            f"{where}: expected object {wanted['object_id']} of {wanted['size_bytes']} bytes with a tail of checksum "
            f"{wanted['tail_checksum']}, found it listed with {found['size_bytes']} bytes and {found['tail_checksum']}"
        )


def described(row: np.void) -> str:
    """One stream object, for a person."""
    return f"object {row['object_id']} with [{row['start']}, {row['end']}) of stream {row['stream_id']}"


def _refuse_first(rows: Rows, wrong: np.ndarray[tuple[int], np.dtype[np.bool_]], expected: str) -> None:
    if wrong.any():
        raise CommitRefused(f"{expected}, found {described(rows[int(wrong.argmax())])}")
