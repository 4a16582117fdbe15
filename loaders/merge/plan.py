"""Plans the outputs of a merge of several objects, from their indexes alone.

    sources, in list order         A: stream 3 [0, 10)  5 [7, 9)   B: stream 3 [10, 25)  4 [0, 8)   C: stream 4 [20, 30)
    one stream set object          3 [0, 25)   5 [7, 9)              streams whose rows join up, sorted
    a stream object for each run   4 [0, 8)    and    4 [20, 30)     stream 4 has a hole

The invariant: **an output never claims an offset that it does not hold.** An object has one range a stream, from the
first row to the end of the last, so the range would include a hole. Therefore:

* Rows below the first kept offset of their stream are left out. A row that contains that offset is kept whole.
* A stream with a hole, between two sources or within one, goes to stream objects, one for each run.
* A stream that grew large goes to stream objects too: there it no longer adds to the cost of other streams.
* All others go to one stream set object, sorted by (stream, offset).
* A run without any offset (only link records of 0 offsets) beside other runs of its stream is left out: no object could
  claim it, and no read would ever request it.

**Copies and rows.** A *copy* is one row of a source's index together with its source: these bytes, which hold these
offsets. Blocks are never decoded, so a copy is the smallest unit that is moved. Copies become rows of the new index by
*coalescing*: a row may cover several adjacent blocks of one stream. The rule is greedy, from the first copy of a run to
the last: a copy joins the open row while the row stays below 1 MiB and its count and offsets fit their fields.

    sizes, KiB   400   400   400   700   100           of copies of one run
    rows         |--- 800 --|  400   |--- 800 --|      800 + 400 and 400 + 700 are not below 1,024

A loop over copies is not needed: binary searches in running sums compute for all copies at once where a row that begins
there would end; then all runs advance in step from row to row. The number of steps is the number of rows of the longest
run: one for half a mebibyte or more.

**Sections.** A store that can copy bytes by itself puts the data sections of the sources end to end, and only the new
index passes through this process: rows are sorted by (stream, offset), but their positions need not ascend. The
distances between a stream's blocks stay the same, so a read of it takes as many requests as before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from loaders.errors import FormatError, FormatLimit
from loaders.format.index import FOOTER_SIZE_BYTES, ROW_DTYPE, ROW_SIZE_BYTES, BlockIndex, Footer
from loaders.format.object_encoder import STREAMS_MAX
from loaders.settings import check_settings
from range_index.object_ranges import ObjectRanges

Copies: TypeAlias = NDArray[np.void]
"""Records of ``COPY_DTYPE``."""

Numbers: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class MergeLimits:
    """Limits by which a merge divides streams and refuses outputs. Threads: immutable.

    Args:
        split_size_bytes: a stream of at least this many bytes gets stream objects; 8 MiB.
        row_size_bytes_max: rows are coalesced as long as they stay below it; 1 MiB.
        streams_max: of one stream set object; other readers are built for 20,000.
        index_size_bytes_max: of one output; the size field has 31 bits.

    Raises:
        ValueError: a limit below 1.
    """

    split_size_bytes: int = 8 << 20
    row_size_bytes_max: int = 1 << 20
    streams_max: int = STREAMS_MAX
    index_size_bytes_max: int = 2**31 - 1

    def __post_init__(self) -> None:
        check_settings(self)


DEFAULT_LIMITS = MergeLimits()


@dataclass(frozen=True, slots=True, eq=False)
class MergedOutput:
    """One object to be written. Threads: immutable.

    Args:
        stream_id: the stream of a stream object; None = the stream set object.
        copies: records of ``COPY_DTYPE``; their bytes end to end, in this order, are the data section.
        index: the coalesced rows.
        data_size_bytes: of all copies.
    """

    stream_id: int | None
    copies: Copies
    index: BlockIndex
    data_size_bytes: int

    @property
    def tail(self) -> bytes:
        """The bytes after the data: index and footer."""
        return self.index.data + Footer(self.data_size_bytes, self.index.nbytes).encode()

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole object."""
        return self.data_size_bytes + self.index.nbytes + FOOTER_SIZE_BYTES

    @property
    def records(self) -> int:
        """The number of its record batches."""
        return int(self.copies["record_count"].sum(dtype=np.int64))

    @property
    def ranges(self) -> ObjectRanges:
        """The ranges of the object; computed on each call, in O(rows)."""
        return self.index.object_ranges()


@dataclass(frozen=True, slots=True, eq=False)
class MergePlan:
    """The outputs of a merge of several objects. Threads: immutable.

    Args:
        outputs: the stream set object first, if there is one; then the stream objects by (stream, offset).
        left_out: records of ``COPY_DTYPE`` in no output: below the first kept offset, or without any offset.
        source_count: the number of sources.
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
        """The number of outputs that are stream objects."""
        return sum(output.stream_id is not None for output in self.outputs)

    def kept_ranges(self) -> tuple[ObjectRanges, ...]:
        """For each source, the ranges that go to the outputs, marked as holed only if these rows have holes.

        Rows without an offset do not count, so that no range begins or ends with an offset that does not exist.

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
    """Plan the merge of a group of objects.

    Complexity: O(n log n) in the rows of all sources, without a loop over rows or streams in Python; a step for each
    stream object. Memory: about 140 bytes a row during the call, 50 bytes a row for the plan.

    Args:
        sources: the indexes of normal objects, in the order of the node's list.
        trimmed_ids: streams, each once, in any order.
        trimmed_starts: the first kept offset of each of these streams; that of all other streams is 0.
        limits: by which streams are divided and outputs refused.

    Raises:
        FormatError: the offsets of a stream do not ascend through the sources.
        FormatLimit: an output would have too many streams, or too large an index.
        ValueError: trimmed columns of different lengths.

    Source: docs/reference/objects.md, "What compaction writes".
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
    """The chosen copies, and the others; without a copy if all are chosen, as nearly always."""
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
    # A row without an offset is kept by its start.
    kept: NDArray[np.bool_] = (copies["end"] > first_kept) | (copies["start"] >= first_kept)
    return kept


def _is_nowhere(copies: Copies) -> NDArray[np.bool_]:
    """Select the copies of runs without an offset that are beside other runs of their stream."""
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
    # The runs of the stream set object, then the runs with an object each.
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
    """Select the runs that get stream objects: those of streams of several runs, and of large streams."""
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
    # All rows at once, as bytes: slices of bytes stay big endian, the results of array arithmetic would not.
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
"""One row of a source: the number of the source, the place of the bytes in it, their stream, offsets and records."""

_INT32_MAX = 2**31 - 1


def copies_of(sources: Sequence[BlockIndex]) -> Copies:
    """The rows of all sources, by stream; those of one stream in the order of the sources, then of their offsets.

    Complexity: O(n log sources): sorted sequences are merged. No loop over rows in Python.
    """
    rows = np.frombuffer(b"".join(source.data for source in sources), dtype=ROW_DTYPE)
    stream_ids = rows["stream_id"].astype(np.int64)
    order = np.argsort(stream_ids, kind="stable")
    copies = np.empty(len(rows), dtype=COPY_DTYPE)
    copies["source"] = np.repeat(np.arange(len(sources)), [len(source) for source in sources])[order]
    copies["stream_id"] = stream_ids[order]
    rows = rows[order]  # still big endian: indexing does not convert
    for name in ("position", "size_bytes", "start", "record_count"):
        copies[name] = rows[name]
    copies["end"] = copies["start"] + rows["end_delta"]
    return copies


def run_firsts(copies: Copies) -> Numbers:
    """The first copies of runs: sequences of copies of one stream in which each copy starts at the end of the last."""
    begins = np.ones(len(copies), dtype=np.bool_)
    begins[1:] = (copies["stream_id"][1:] != copies["stream_id"][:-1]) | (copies["start"][1:] != copies["end"][:-1])
    return np.flatnonzero(begins)


def sums(copies: Copies, column: str, firsts: Numbers) -> Numbers:
    """The sum of a column over each sequence of copies; the sequences begin at ``firsts`` and fill the table."""
    values = copies[column].astype(np.int64)
    sums: Numbers = np.add.reduceat(values, firsts) if len(firsts) else np.empty(0, dtype=np.int64)
    return sums


def lasts_of(firsts: Numbers, length: int) -> Numbers:
    """The last copy of each sequence in a table of this length."""
    return np.append(firsts[1:], length) - 1 if len(firsts) else firsts


def row_firsts(copies: Copies, firsts: Numbers, row_size_bytes_max: int) -> Numbers:
    """The first copies of the rows of the new index, by the greedy rule above.

    Args:
        copies: in the order of the new index.
        firsts: the first copies of sequences, such as runs; no row extends beyond its sequence.
        row_size_bytes_max: a row of several copies stays below it.

    Complexity: O(n log n), and a step for each row of the longest sequence.
    """
    ends = np.repeat(np.append(firsts[1:], len(copies)), np.diff(np.append(firsts, len(copies))))
    reach = np.minimum(ends, _reach(copies["size_bytes"].astype(np.int64), row_size_bytes_max - 1))
    reach = np.minimum(reach, _reach(copies["record_count"].astype(np.int64), _INT32_MAX))
    reach = np.minimum(reach, _reach(copies["end"] - copies["start"], _INT32_MAX))
    reach = np.maximum(reach, np.arange(1, len(copies) + 1))  # a row has at least one copy, of any size
    begins = np.zeros(len(copies), dtype=np.bool_)
    front = firsts
    while len(front):
        begins[front] = True
        following = reach[front]
        front = following[following < ends[front]]
    return np.flatnonzero(begins)


def index_rows(copies: Copies, firsts: Numbers, positions: Numbers) -> Copies:
    """Rows of ``ROW_DTYPE``, one for each sequence of copies that begins at ``firsts``, at these positions."""
    rows = np.empty(len(firsts), dtype=ROW_DTYPE)
    rows["stream_id"] = copies["stream_id"][firsts]
    rows["start"] = copies["start"][firsts]
    rows["end_delta"] = copies["end"][lasts_of(firsts, len(copies))] - copies["start"][firsts]
    rows["record_count"] = sums(copies, "record_count", firsts)
    rows["position"] = positions
    rows["size_bytes"] = sums(copies, "size_bytes", firsts)
    return rows


def _reach(values: Numbers, most: int) -> Numbers:
    """For each value, the end of the longest sequence that begins with it and whose sum is at most `most`."""
    totals = np.concatenate(([0], np.cumsum(values)))
    if totals[-1] <= most:  # nearly always so for counts and offsets
        return np.full(len(values), len(values))
    return np.searchsorted(totals, totals[:-1] + most, side="right") - 1


def index_of_sections(
    sources: Sequence[BlockIndex], data_sizes: Sequence[int], plan: MergePlan, limits: MergeLimits
) -> BlockIndex | None:
    """The index of an output whose data is that of the sources end to end, or None if that is not possible.

    It is possible if all rows of all sources are kept, there are no stream objects, and every byte of a section belongs
    to a row: the index must describe all bytes, since the store copies them unchecked.

    Complexity: O(n log n) in the rows of all sources, no loop over rows in Python.

    Args:
        sources: the indexes of the sources, in list order.
        data_sizes: bytes of each source's data section.
        plan: made of these sources.
        limits: of the plan.
    """
    if len(plan.left_out) or len(plan.outputs) != 1 or plan.outputs[0].stream_id is not None:
        return None
    if not all(_fills(index, size_bytes) for index, size_bytes in zip(sources, data_sizes, strict=True)):
        return None
    copies = plan.outputs[0].copies
    section_starts = np.concatenate(([0], np.cumsum(np.array(data_sizes, dtype=np.int64))))
    positions = section_starts[copies["source"]] + copies["position"]
    begins = np.zeros(len(copies), dtype=np.bool_)
    begins[run_firsts(copies)] = True
    begins[1:] |= positions[1:] != positions[:-1] + copies["size_bytes"][:-1]
    firsts = row_firsts(copies, np.flatnonzero(begins), limits.row_size_bytes_max)
    index = BlockIndex(index_rows(copies, firsts, positions[firsts]).tobytes())
    return index if index.nbytes <= limits.index_size_bytes_max else None


def _fills(index: BlockIndex, data_size_bytes: int) -> bool:
    """Whether the rows are end to end, in any order, and fill the section."""
    rows = index.rows
    starts = rows["position"].astype(np.int64)
    order = np.argsort(starts, kind="stable")
    ends = np.concatenate(([0], (starts + rows["size_bytes"])[order]))
    return bool((starts[order] == ends[:-1]).all()) and int(ends[-1]) == data_size_bytes
