"""Rows of several indexes as one table, and the rows of a new index made from it.

A *copy* is one row of a source's index together with the source it is of: these bytes, which hold these offsets. Blocks
are never opened by a merge, so a copy is the smallest thing that it moves.

Copies become rows of the new index by *coalescing*: a row may cover several blocks of one stream that lie end to end.
The rule is greedy, from the first copy of a run to the last: a copy joins the open row while the row stays below 1 MiB
and its count and offsets fit their fields.

    sizes, KiB   400   400   400   700   100           of copies of one run
    rows         |--- 800 --|  400   |--- 800 --|      800 + 400 and 400 + 700 are not below 1,024

Greedy sounds like a loop over copies. Instead, how far a row would reach is computed for every copy at once, by binary
searches in running sums; then all runs walk in step from row to row. That takes as many steps as the longest run has
rows, so one for half a mebibyte or more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loaders.format.block_index import ROW_DTYPE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loaders.format.block_index import BlockIndex

Copies: TypeAlias = NDArray[np.void]
"""Records of ``COPY_DTYPE``."""

Numbers: TypeAlias = NDArray[np.int64]

COPY_DTYPE = np.dtype(
    [
        ("source", np.int32),
        ("position", np.int64),
        ("size_bytes", np.int32),
        ("stream_id", np.int64),
        ("start", np.int64),
        ("end", np.int64),
        ("record_count", np.int32),
    ]
)
"""One row of a source: the number of the source, where the bytes lie in it, and what they hold."""

_INT32_MAX = 2**31 - 1


def copies_of(sources: Sequence[BlockIndex]) -> Copies:
    """The rows of all sources, by stream; those of one stream in the order of the sources, then of their offsets.

    Complexity: O(n log sources): sorted stretches are merged. No loop over rows in Python.
    """
    rows = np.frombuffer(b"".join(source.data for source in sources), dtype=ROW_DTYPE)
    stream_ids = rows["stream_id"].astype(np.int64)
    order = np.argsort(stream_ids, kind="stable")
    copies = np.empty(len(rows), dtype=COPY_DTYPE)
    copies["source"] = np.repeat(np.arange(len(sources)), [len(source) for source in sources])[order]
    copies["stream_id"] = stream_ids[order]
    rows = rows[order]  # big endian still: rows are moved, not computed with
    for name in ("position", "size_bytes", "start", "record_count"):
        copies[name] = rows[name]
    copies["end"] = copies["start"] + rows["end_delta"]
    return copies


def run_firsts(copies: Copies) -> Numbers:
    """Where the runs begin: stretches of copies of one stream, each of which starts where the one before it ended."""
    begins = np.ones(len(copies), dtype=np.bool_)
    begins[1:] = (copies["stream_id"][1:] != copies["stream_id"][:-1]) | (copies["start"][1:] != copies["end"][:-1])
    return np.flatnonzero(begins)


def sums(copies: Copies, column: str, firsts: Numbers) -> Numbers:
    """The sum of a column over each stretch of copies; the stretches begin at ``firsts`` and fill the table."""
    values = copies[column].astype(np.int64)
    found: Numbers = np.add.reduceat(values, firsts) if len(firsts) else np.empty(0, dtype=np.int64)
    return found


def lasts_of(firsts: Numbers, length: int) -> Numbers:
    """The last copy of each stretch of a table of this length."""
    return np.append(firsts[1:], length) - 1 if len(firsts) else firsts


def row_firsts(copies: Copies, firsts: Numbers, row_size_bytes_max: int) -> Numbers:
    """Where the rows of the new index begin, by the greedy rule above.

    Args:
        copies: in the order of the new index.
        firsts: where the stretches begin that no row may go beyond, such as runs.
        row_size_bytes_max: a row of several copies stays below it.

    Complexity: O(n log n), and a step for each row of the longest stretch.
    """
    ends = np.repeat(np.append(firsts[1:], len(copies)), np.diff(np.append(firsts, len(copies))))
    reach = np.minimum(ends, _reach(copies["size_bytes"].astype(np.int64), row_size_bytes_max - 1))
    reach = np.minimum(reach, _reach(copies["record_count"].astype(np.int64), _INT32_MAX))
    reach = np.minimum(reach, _reach(copies["end"] - copies["start"], _INT32_MAX))
    reach = np.maximum(reach, np.arange(1, len(copies) + 1))  # a row has one copy at least, however large
    begins = np.zeros(len(copies), dtype=np.bool_)
    front = firsts
    while len(front):
        begins[front] = True
        following = reach[front]
        front = following[following < ends[front]]
    return np.flatnonzero(begins)


def index_rows(copies: Copies, firsts: Numbers, positions: Numbers) -> Copies:
    """Rows of ``ROW_DTYPE``, one for each stretch of copies that begins at ``firsts``, at these positions."""
    rows = np.empty(len(firsts), dtype=ROW_DTYPE)
    rows["stream_id"] = copies["stream_id"][firsts]
    rows["start"] = copies["start"][firsts]
    rows["end_delta"] = copies["end"][lasts_of(firsts, len(copies))] - copies["start"][firsts]
    rows["record_count"] = sums(copies, "record_count", firsts)
    rows["position"] = positions
    rows["size_bytes"] = sums(copies, "size_bytes", firsts)
    return rows


def _reach(values: Numbers, most: int) -> Numbers:
    """For each value the end of the longest stretch from it on whose sum is at most this."""
    totals = np.concatenate(([0], np.cumsum(values)))
    if totals[-1] <= most:  # nearly always so for counts and offsets
        return np.full(len(values), len(values))
    return np.searchsorted(totals, totals[:-1] + most, side="right") - 1
