"""Checks that a merge copied no damaged block and lost no data, from bytes and indexes alone.

**Blocks.** A merge moves blocks without reading the records in them. A reader that finds a damaged block in a merged
object could not determine whether it was damaged in the source. So the header of every block is checked, and the header
of the first batch in it, which contains the block's stream:

    row    | header | batch ... | header | batch ... | header | batch ... |
             magic    magic       +length              +length              = size of the row
             flags    stream      counts of all blocks add up to the row's
             count    base offset of the first one = start of the row

Most rows are one block, and the index determines every relevant byte of its headers, so all rows are compared at once.
Rows that differ may hold several blocks, and each block's start follows only from the block before it. These rows are
checked in step: the first block of each row at once, then the second block of each row that has one, and so on.

**Totals.** The plan assigns each row to an output; `check_conserved` compares sums: for each stream, the bytes, record
batches and offsets in all outputs and in the omitted rows must equal the sums of the sources. The check is independent
of the plan's algorithm, and uses the outputs' indexes as they were read back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from loaders.errors import FormatError
from loaders.format.index import (
    BATCH_HEADER_SIZE_BYTES,
    BLOCK_HEADER_SIZE_BYTES,
    BLOCK_SIZE_BYTES_MIN,
    BlockIndex,
    Numbers,
)
from loaders.format.records import BATCH_MAGIC, BLOCK_FLAGS, BLOCK_MAGIC
from loaders.merge.plan import Copies

_HEADERS = np.dtype(
    [
        ("magic", "u1"),
        ("flags", "u1"),
        ("record_count", ">i4"),
        ("data_length", ">i4"),
        ("batch_magic", "u1"),
        ("stream_id", ">i8"),
        ("epoch", ">i8"),
        ("base_offset", ">i8"),
        ("count", ">i4"),
        ("payload_length", ">i4"),
    ]
)
"""A block's header and the header of its first batch: 43 bytes, the size of the smallest block."""


class BadBlock(NamedTuple):
    """The first row whose blocks contradict the index.

    Attributes:
        copy: the number of the row.
        at: the position of the block in the row's bytes.
        expected: the expected value, as text.
        found: the value found, as text.
    """

    copy: int
    at: int
    expected: str
    found: str


def find_bad_block(data: bytes | memoryview, copies: Copies) -> BadBlock | None:
    """Check the headers of all blocks; None if all are correct.

    Complexity: O(blocks); no loop over rows in Python, a step for each block of the row with the most blocks.

    A block is accepted if its header and the header of its first batch agree with the row; later batches are not read.

    Args:
        data: begins with the bytes of the copies, end to end.
        copies: records of ``COPY_DTYPE``.
    """
    sizes = copies["size_bytes"].astype(np.int64)
    walk = _RowWalk(data, copies, np.cumsum(sizes) - sizes, sizes)
    walk.skip_single_blocks()
    while len(walk.open):
        bad = walk.step()
        if bad is not None:
            return bad
    return None


class _RowWalk:
    """All rows of a run of bytes, each with the position of its next block. One thread at a time."""

    def __init__(self, data: bytes | memoryview, copies: Copies, starts: Numbers, sizes: Numbers) -> None:
        windows = max(0, len(data) - BLOCK_SIZE_BYTES_MIN + 1)
        # Headers begin at any byte: a view of overlapping records, of which only the selected ones are copied.
        self._headers: NDArray[np.void] = np.ndarray((windows,), dtype=_HEADERS, buffer=data, strides=(1,))
        self._copies = copies
        self._starts = starts
        self._ends = starts + sizes
        self._left = copies["record_count"].astype(np.int64)
        self.open = np.arange(len(copies))
        self._at = starts.copy()

    def skip_single_blocks(self) -> None:
        """Accept the rows that are exactly one correct block."""
        copies, last = self._copies, len(self._headers) - 1
        if last < 0:
            return
        found = self._headers[np.minimum(self._starts, last)]
        is_other = (found["magic"] != BLOCK_MAGIC) | (found["flags"] != BLOCK_FLAGS)
        is_other |= found["record_count"] != copies["record_count"]
        is_other |= found["data_length"] != copies["size_bytes"] - BLOCK_HEADER_SIZE_BYTES
        is_other |= (found["batch_magic"] != BATCH_MAGIC) | (found["stream_id"] != copies["stream_id"])
        is_other |= found["base_offset"] != copies["start"]
        self.open = np.flatnonzero(is_other)
        self._at = self._starts[self.open]

    def step(self) -> BadBlock | None:
        """Check the next block of every open row, and advance to the block after it."""
        room = self._ends[self.open] - self._at
        if (bad := self._first(room < BLOCK_SIZE_BYTES_MIN)) is not None:
            return self._bad(bad, f"a block of at least {BLOCK_SIZE_BYTES_MIN} bytes", f"{room[bad]} bytes left")
        headers = self._headers[self._at]
        for is_wrong, expected, found in self._rules(headers, room):
            if (bad := self._first(is_wrong)) is not None:
                return self._bad(bad, expected, found(bad))
        self._at = self._at + BLOCK_HEADER_SIZE_BYTES + headers["data_length"]
        self._left[self.open] -= headers["record_count"]
        is_done = self._at == self._ends[self.open]
        if (bad := self._first(is_done & (self._left[self.open] != 0))) is not None:
            missing = self._left[self.open[bad]]
            return self._bad(bad, "the row's number of records", f"{missing} fewer at the end of the row")
        self.open, self._at = self.open[~is_done], self._at[~is_done]
        return None

    def _rules(
        self, headers: NDArray[np.void], room: Numbers
    ) -> Iterator[tuple[NDArray[np.bool_], str, Callable[[int], str]]]:
        copies = self._copies[self.open]
        is_wrong = (headers["magic"] != BLOCK_MAGIC) | (headers["flags"] != BLOCK_FLAGS)
        expected = f"block magic {BLOCK_MAGIC:#x} and flags {BLOCK_FLAGS:#x}"
        yield is_wrong, expected, lambda at: f"{headers['magic'][at]:#x}, {headers['flags'][at]:#x}"
        lengths = headers["data_length"].astype(np.int64)
        is_wrong = (lengths < BATCH_HEADER_SIZE_BYTES) | (lengths > room - BLOCK_HEADER_SIZE_BYTES)
        yield is_wrong, "a data length that fits the row", lambda at: f"{lengths[at]}"
        counts = headers["record_count"].astype(np.int64)
        most = np.minimum(lengths // BATCH_HEADER_SIZE_BYTES, self._left[self.open])
        yield (counts < 1) | (counts > most), "a record count that fits the row", lambda at: f"{counts[at]}"
        is_wrong = (headers["batch_magic"] != BATCH_MAGIC) | (headers["stream_id"] != copies["stream_id"])
        found = "{:#x}, {}".format
        expected = f"batch magic {BATCH_MAGIC:#x} and the row's stream"
        yield is_wrong, expected, lambda at: found(headers["batch_magic"][at], headers["stream_id"][at])
        bases = headers["base_offset"].astype(np.int64)
        is_first = self._at == self._starts[self.open]
        is_wrong = (bases < copies["start"]) | (bases > copies["end"]) | (is_first & (bases != copies["start"]))
        yield is_wrong, "a first batch within the row's offsets", lambda at: f"offset {bases[at]}"

    @staticmethod
    def _first(is_wrong: NDArray[np.bool_]) -> int | None:
        return int(is_wrong.argmax()) if is_wrong.any() else None

    def _bad(self, bad: int, expected: str, found: str) -> BadBlock:
        copy = int(self.open[bad])
        return BadBlock(copy, int(self._at[bad] - self._starts[copy]), expected, found)


class _Totals(NamedTuple):
    """Per stream, ascending by id: sums of its rows, its first start and its last end."""

    stream_ids: Numbers
    sizes: Numbers
    records: Numbers
    offsets: Numbers
    starts: Numbers
    ends: Numbers


def check_conserved(sources: Sequence[BlockIndex], outputs: Sequence[BlockIndex], left_out: Copies) -> None:
    """Compare the outputs with the sources, stream by stream.

    Complexity: O(n log n) in all rows, no loop over rows in Python.

    Args:
        sources: the indexes of the merged objects.
        outputs: the indexes of the outputs, as read from the store.
        left_out: records of ``COPY_DTYPE`` that were left out on purpose.

    Raises:
        FormatError: they differ; the message contains the first such stream.
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
