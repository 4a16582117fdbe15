"""Was everything kept? The indexes that were written, against those that were read.

The plan of a merge says where each row goes. This check does not look at where, only at how much: for each stream, the
bytes, the record batches and the offsets in all outputs and in what was left out are together those of the sources. It
knows nothing of how the plan was made, and takes the outputs' indexes from whoever read them back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from loaders.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loaders.format.block_index import BlockIndex
    from loaders.format.merging_rows import Copies, Numbers


class _Totals(NamedTuple):
    """Per stream, ascending by id: how much of it there is, and from where to where."""

    stream_ids: Numbers
    sizes: Numbers
    records: Numbers
    offsets: Numbers
    starts: Numbers
    ends: Numbers


def check_conserved(sources: Sequence[BlockIndex], outputs: Sequence[BlockIndex], left_out: Copies) -> None:
    """Compare what went in with what came out, stream by stream.

    Complexity: O(n log n) in all rows, no loop over rows in Python.

    Args:
        sources: the indexes of the objects that were merged.
        outputs: the indexes of what was made of them, as they stand in the store.
        left_out: records of ``COPY_DTYPE`` that were left out on purpose.

    Raises:
        FormatError: they differ; the first stream is named.
    """
    before = _totals([*map(_columns, sources)])
    after = _totals([*map(_columns, outputs), _columns_of_copies(left_out)])
    if len(before.stream_ids) != len(after.stream_ids) or (before.stream_ids != after.stream_ids).any():
        odd = np.setxor1d(before.stream_ids, after.stream_ids)
        raise FormatError(f"expected the streams of the sources in the outputs, found stream {odd[0]} on one side only")
    for name, expected, found in zip(before._fields, before, after, strict=True):
        wrong = np.flatnonzero(expected != found)
        if len(wrong):
            at = wrong[0]
            what = f"{name} of stream {before.stream_ids[at]}"
            raise FormatError(f"expected {what} as in the sources, {expected[at]}, found {found[at]}")


def _columns(index: BlockIndex) -> Numbers:
    rows = index.rows
    starts, deltas = rows["start"].astype(np.int64), rows["end_delta"].astype(np.int64)
    numbers = (rows["stream_id"], rows["size_bytes"], rows["record_count"], deltas, starts, starts + deltas)
    return np.array([each.astype(np.int64) for each in numbers])


def _columns_of_copies(copies: Copies) -> Numbers:
    deltas = copies["end"] - copies["start"]
    numbers = (
        copies["stream_id"],
        copies["size_bytes"],
        copies["record_count"],
        deltas,
        copies["start"],
        copies["end"],
    )
    return np.array([each.astype(np.int64) for each in numbers])


def _totals(parts: Sequence[Numbers]) -> _Totals:
    table = np.concatenate(parts, axis=1) if parts else np.empty((6, 0), dtype=np.int64)
    table = table[:, np.argsort(table[0], kind="stable")]
    if not table.shape[1]:
        return _Totals(*table)
    firsts = np.flatnonzero(np.diff(table[0], prepend=-1))
    sizes, records, offsets = np.add.reduceat(table[1:4], firsts, axis=1)
    return _Totals(
        table[0][firsts],
        sizes,
        records,
        offsets,
        np.minimum.reduceat(table[4], firsts),
        np.maximum.reduceat(table[5], firsts),
    )
