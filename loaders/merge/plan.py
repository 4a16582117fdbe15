"""Plans the outputs of a merge of several objects from their indexes alone, and checks what was copied.

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

**Checks** that a merge copied no damaged block and lost no data: also from bytes and indexes alone.

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
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loaders.errors import FormatError, FormatLimit
from loaders.format.index import (
    BATCH_HEADER_SIZE_BYTES,
    BLOCK_HEADER_SIZE_BYTES,
    BLOCK_SIZE_BYTES_MIN,
    FOOTER_SIZE_BYTES,
    ROW_DTYPE,
    ROW_SIZE_BYTES,
    BlockIndex,
    Footer,
)
from loaders.format.object_encoder import STREAMS_MAX
from loaders.format.records import BATCH_MAGIC, BLOCK_FLAGS, BLOCK_MAGIC
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
