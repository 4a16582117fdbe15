"""What becomes of several objects when they are merged: which bytes go where, decided from their indexes alone.

    sources, in list order         A: stream 3 [0, 10)  5 [7, 9)   B: stream 3 [10, 25)  4 [0, 8)   C: stream 4 [20, 30)
    one stream set object          3 [0, 25)   5 [7, 9)              streams whose rows join up, sorted
    a stream object for each run   4 [0, 8)    and    4 [20, 30)     stream 4 has a hole

The one promise: **an output never claims an offset that it does not hold.** An object has one range a stream, from the
first row to the end of the last, so a hole inside would be claimed with the rest. Therefore:

* What lies below the first kept offset of its stream is left out, row by row. A row that straddles it is kept whole.
* A stream with a hole, between two sources or within one, goes to stream objects, one for each run.
* A stream that grew large goes to stream objects too: there it costs other streams nothing any more.
* All others go to one stream set object, sorted by (stream, offset).
* A run without a single offset (only link records that stand for none) beside other runs of its stream is left out: no
  object could claim it, and no read would ever ask for it.

Rows are moved whole and coalesced on the way, see `merging_rows`. Nothing here reads a block.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from loaders.errors import FormatError, FormatLimit
from loaders.format.block_index import BlockIndex
from loaders.format.footer import FOOTER_SIZE_BYTES, ROW_SIZE_BYTES, Footer
from loaders.format.merging_rows import (
    copies_of,
    index_rows,
    lasts_of,
    row_firsts,
    run_firsts,
    sums,
)
from loaders.format.object_encoder import STREAMS_MAX
from range_index.object_ranges import ObjectRanges

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from loaders.format.merging_rows import Copies, Numbers


@dataclass(frozen=True, slots=True)
class MergeLimits:
    """Where a merge divides, and what it refuses. Threads: immutable.

    Args:
        split_size_bytes: a stream of at least so many bytes gets stream objects; 8 MiB.
        row_size_bytes_max: rows are coalesced as long as they stay below it; 1 MiB.
        streams_max: of one stream set object; other readers are sized for 20,000.
        index_size_bytes_max: of one output; its field has 31 bits.

    Raises:
        ValueError: a limit below 1.
    """

    split_size_bytes: int = 8 << 20
    row_size_bytes_max: int = 1 << 20
    streams_max: int = STREAMS_MAX
    index_size_bytes_max: int = 2**31 - 1

    def __post_init__(self) -> None:
        if min(self.split_size_bytes, self.row_size_bytes_max, self.streams_max, self.index_size_bytes_max) < 1:
            raise ValueError(f"expected limits of at least 1, found {self}")


DEFAULT_LIMITS = MergeLimits()


@dataclass(frozen=True, slots=True, eq=False)
class MergedOutput:
    """One object to be written. Threads: immutable.

    Args:
        stream_id: whose stream object it is; None = the stream set object.
        copies: records of ``COPY_DTYPE``; their bytes end to end, in this order, are the data section.
        index: its rows, coalesced.
        data_size_bytes: of all copies.
    """

    stream_id: int | None
    copies: Copies
    index: BlockIndex
    data_size_bytes: int

    @property
    def tail(self) -> bytes:
        """What stands behind the data: index and footer."""
        return self.index.data + Footer(self.data_size_bytes, self.index.nbytes).encode()

    @property
    def size_bytes(self) -> int:
        """Of the whole object."""
        return self.data_size_bytes + self.index.nbytes + FOOTER_SIZE_BYTES

    @property
    def records(self) -> int:
        """How many record batches it holds."""
        return int(self.copies["record_count"].sum(dtype=np.int64))

    @property
    def ranges(self) -> ObjectRanges:
        """What it will claim to hold; computed anew on each call, in O(rows)."""
        return self.index.object_ranges()


@dataclass(frozen=True, slots=True, eq=False)
class MergePlan:
    """What a group of objects is merged into. Threads: immutable.

    Args:
        outputs: the stream set object first, if there is one; then the stream objects by (stream, offset).
        left_out: records of ``COPY_DTYPE`` that go nowhere: below the first kept offset, or without any offset.
        source_count: how many sources there are.
    """

    outputs: tuple[MergedOutput, ...]
    left_out: Copies
    source_count: int

    @property
    def kept_bytes(self) -> int:
        """Bytes of blocks in all outputs."""
        return sum(output.data_size_bytes for output in self.outputs)

    @property
    def dropped_bytes(self) -> int:
        """Bytes of blocks that are left out."""
        return int(self.left_out["size_bytes"].sum(dtype=np.int64))

    @property
    def records(self) -> int:
        """Record batches in all outputs."""
        return sum(output.records for output in self.outputs)

    @property
    def stream_object_count(self) -> int:
        """How many outputs are stream objects."""
        return sum(output.stream_id is not None for output in self.outputs)

    def kept_ranges(self) -> tuple[ObjectRanges, ...]:
        """What of each source goes into the outputs, as ranges: a hole that only what is left out made is none here.

        Rows without an offset do not count, so that no range begins or ends with an offset that is not there.

        Complexity: O(n log n) in the rows of all sources.
        """
        copies = np.concatenate([self.left_out[:0], *(output.copies for output in self.outputs)])
        copies = copies[copies["end"] > copies["start"]]
        copies = copies[np.lexsort((copies["stream_id"], copies["source"]))]
        bounds = np.searchsorted(copies["source"], np.arange(self.source_count + 1))
        return tuple(_ranges(copies[bounds[at] : bounds[at + 1]]) for at in range(self.source_count))


def plan_merge(
    sources: Sequence[BlockIndex],
    trimmed_ids: NDArray[np.int64],
    trimmed_starts: NDArray[np.int64],
    limits: MergeLimits = DEFAULT_LIMITS,
) -> MergePlan:
    """Decide what becomes of a group of objects.

    Complexity: O(n log n) in the rows of all sources, without a loop over rows or streams in Python; a step for each
    stream object. About 140 bytes of memory a row while it runs, 50 of the plan.

    Args:
        sources: the indexes of normal objects, in the order of the node's list.
        trimmed_ids: streams, each once, in any order.
        trimmed_starts: the first kept offset of each of them; that of all other streams is 0.
        limits: where to divide, and what to refuse.

    Raises:
        FormatError: the offsets of a stream do not ascend through the sources.
        FormatLimit: an output would have too many streams, or too large an index.
        ValueError: trimmed columns of different lengths.

    Source: docs/formats.md, "What compaction writes".
    """
    if len(trimmed_ids) != len(trimmed_starts):
        raise ValueError(f"expected columns of one length, found {len(trimmed_ids)} and {len(trimmed_starts)}")
    copies = copies_of(sources)
    _check_ascending(copies)
    copies, trimmed = _divided(copies, _is_kept(copies, trimmed_ids, trimmed_starts))
    copies, empty = _divided(copies, ~_is_nowhere(copies))
    left_out = np.concatenate((trimmed, empty))
    outputs = tuple(_outputs(copies, limits)) if len(copies) else ()
    for output in outputs:
        _check_limits(output, limits)
    return MergePlan(outputs, left_out, len(sources))


def _divided(copies: Copies, chosen: NDArray[np.bool_]) -> tuple[Copies, Copies]:
    """Those that are chosen, and the others; nothing is moved if all are, as nearly always."""
    return (copies, copies[:0]) if chosen.all() else (copies[chosen], copies[~chosen])


def _check_ascending(copies: Copies) -> None:
    same = copies["stream_id"][1:] == copies["stream_id"][:-1]
    wrong = np.flatnonzero(same & (copies["start"][1:] < copies["end"][:-1]))
    if len(wrong):
        found = " before ".join(_described(copies[at]) for at in (wrong[0], wrong[0] + 1))
        raise FormatError(f"expected ascending offsets through the sources, found {found}")


def _described(copy: np.void) -> str:
    return f"[{copy['start']}, {copy['end']}) of stream {copy['stream_id']} in source {copy['source']}"


def _is_kept(copies: Copies, ids: NDArray[np.int64], starts: NDArray[np.int64]) -> NDArray[np.bool_]:
    if not len(ids):
        return np.ones(len(copies), dtype=np.bool_)
    order = np.argsort(ids)
    at = np.minimum(np.searchsorted(ids, copies["stream_id"], sorter=order), len(ids) - 1)
    first_kept = np.where(ids[order][at] == copies["stream_id"], starts[order][at], 0)
    # A row without an offset lies where it starts.
    kept: NDArray[np.bool_] = (copies["end"] > first_kept) | (copies["start"] >= first_kept)
    return kept


def _is_nowhere(copies: Copies) -> NDArray[np.bool_]:
    """Which copies are of runs without an offset, beside other runs of their stream."""
    firsts = run_firsts(copies)
    lasts = lasts_of(firsts, len(copies))
    is_empty = copies["start"][firsts] == copies["end"][lasts]
    if not is_empty.any():
        return np.zeros(len(copies), dtype=np.bool_)
    _, of_run, counts = np.unique(copies["stream_id"][firsts], return_inverse=True, return_counts=True)
    return np.repeat(is_empty & (counts[of_run] > 1), lasts - firsts + 1)


def _outputs(copies: Copies, limits: MergeLimits) -> Iterator[MergedOutput]:
    firsts = run_firsts(copies)
    lengths = np.diff(np.append(firsts, len(copies)))
    alone = _go_alone(copies, firsts, limits)
    if alone.any():
        copies = np.concatenate(_divided(copies, ~np.repeat(alone, lengths)))
    # The runs of the stream set object, then those that get an object each.
    shared, own = lengths[~alone], lengths[alone]
    firsts = np.cumsum(np.concatenate(([0], shared, own)))[:-1]
    bounds = np.append(firsts[len(shared) :], len(copies))
    if len(shared):
        bounds = np.append(0, bounds)
    indexes = _indexes(copies, firsts, bounds, limits)
    for number, index in enumerate(indexes):
        mine = copies[bounds[number] : bounds[number + 1]]
        stream_id = None if len(shared) and not number else int(mine["stream_id"][0])
        yield MergedOutput(stream_id, mine, index, int(mine["size_bytes"].sum(dtype=np.int64)))


def _go_alone(copies: Copies, firsts: Numbers, limits: MergeLimits) -> NDArray[np.bool_]:
    """Which runs get stream objects: those of streams of several runs, and of large streams."""
    _, streams, of_run, counts = np.unique(
        copies["stream_id"][firsts], return_index=True, return_inverse=True, return_counts=True
    )
    sizes = np.add.reduceat(sums(copies, "size_bytes", firsts), streams)
    holds_some = copies["end"][lasts_of(firsts, len(copies))] > copies["start"][firsts]
    alone: NDArray[np.bool_] = ((counts > 1) | (sizes >= limits.split_size_bytes))[of_run] & holds_some
    return alone


def _indexes(copies: Copies, firsts: Numbers, bounds: Numbers, limits: MergeLimits) -> Iterator[BlockIndex]:
    rows = row_firsts(copies, firsts, limits.row_size_bytes_max)
    totals = np.concatenate(([0], np.cumsum(copies["size_bytes"], dtype=np.int64)))
    output_of_row = np.searchsorted(bounds, rows, side="right") - 1
    # All rows at once, as bytes: cutting bytes keeps their order, array arithmetic would not.
    data = index_rows(copies, rows, totals[rows] - totals[bounds[output_of_row]]).tobytes()
    cuts = (np.searchsorted(rows, bounds) * ROW_SIZE_BYTES).tolist()
    return (BlockIndex(data[start:end]) for start, end in pairwise(cuts))


def _check_limits(output: MergedOutput, limits: MergeLimits) -> None:
    if output.index.nbytes > limits.index_size_bytes_max:
        found = f"{output.index.nbytes}: merge fewer objects"
        raise FormatLimit(f"expected an index of at most {limits.index_size_bytes_max} bytes, found {found}")
    if output.stream_id is None and (streams := len(output.ranges)) > limits.streams_max:
        found = f"{streams}: merge fewer objects"
        raise FormatLimit(f"expected at most {limits.streams_max} streams in an object, found {found}")


def _ranges(copies: Copies) -> ObjectRanges:
    firsts = np.flatnonzero(np.diff(copies["stream_id"], prepend=-1))
    runs = run_firsts(copies)
    holed = np.diff(np.append(np.searchsorted(runs, firsts), len(runs))) > 1
    lasts = lasts_of(firsts, len(copies))
    return ObjectRanges.from_columns(
        copies["stream_id"][firsts], copies["start"][firsts], copies["end"][lasts], holed if holed.any() else None
    )
