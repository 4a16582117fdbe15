"""From a snapshot's root to the entries of one stream: which bytes to read, and what they say. Pure.

    span = plan_entries(root, stream_id, offset)        None: no covered object holds the stream
    body = <read span.key, bytes [span.start, span.end)>
    found = decode_entries(root, span, body, stream_id)

The span holds all groups that may hold the stream, so a stream costs one request. Only one whose groups are larger than
4 MiB is read in part: the groups from the one on that may hold the offset. Then `StreamEntries.low` and ``high`` say of
which starts all entries are included.

Everything that is read is checked before it is believed: length, checksum, shape, order, keys as the root gives them,
and that each entry is of a covered object and within its bytes.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from loaders.hints.byte_span import ByteSpan
from loaders.hints.entry_columns import EntryColumns
from loaders.hints.errors import HintProblem, HintTrouble
from loaders.hints.snapshot_parquet import decode_group

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from loaders.hints.snapshot_root import SnapshotRoot

SPAN_SIZE_BYTES_MAX = 4 << 20
START_END = 2**63 - 1
"""An end of starts that no start reaches."""


@dataclass(frozen=True, slots=True, eq=False)
class StreamEntries:
    """Entries of one stream in one node, by ascending start; each true of the object that it names.

    Args:
        stream_id: the stream.
        columns: its entries.
        low: all entries that start in ``[low, high)`` are included, of all covered objects; of the others some may be.
        high: see ``low``.

    Threads: immutable.
    """

    stream_id: int
    columns: EntryColumns
    low: int = 0
    high: int = START_END

    @property
    def complete(self) -> bool:
        """Whether all entries of the stream are included: a covered object without one lacks the stream."""
        return self.low == 0 and self.high == START_END

    def __len__(self) -> int:
        """How many entries."""
        return len(self.columns)


def no_entries(stream_id: int) -> StreamEntries:
    """What is known of a stream for which `plan_entries` has nothing to read: it is in no covered object."""
    return StreamEntries(stream_id, EntryColumns.none())


def plan_entries(
    root: SnapshotRoot, stream_id: int, offset: int = 0, *, span_size_bytes_max: int = SPAN_SIZE_BYTES_MAX
) -> ByteSpan | None:
    """Which bytes to read for a stream; None if none of the covered objects holds it. O(log groups).

    Args:
        root: the node's root.
        stream_id: the stream.
        offset: where the reader wants to begin; counts only if the stream is too large to be read whole.
        span_size_bytes_max: bound of the span; one group is read whatever its size.
    """
    first, stop = root.groups_of(stream_id)
    if first == stop:
        return None
    starts = root.groups["byte_start"]
    ends = starts + root.groups["size_bytes"]
    if int(ends[stop - 1] - starts[first]) > span_size_bytes_max:
        first = _floor_group(root, first, stop, stream_id, offset)
        fitting = int(ends[first:stop].searchsorted(int(starts[first]) + span_size_bytes_max, side="right"))
        stop = first + max(1, fitting)
    key, size = root.file_key(first), root.file_size_bytes(first)
    return ByteSpan(key, int(starts[first]), int(ends[stop - 1]), size, first, stop)


def decode_entries(root: SnapshotRoot, span: ByteSpan, body: bytes, stream_id: int) -> StreamEntries:
    """The entries of a stream in the bytes that `plan_entries` asked for.

    Complexity: O(entries of the groups read), about 3 ms a group of 30,000.

    Args:
        root: the root that the span was planned with.
        span: the plan.
        body: exactly its bytes.
        stream_id: the stream.

    Raises:
        HintProblem: corrupt.
        ModuleNotFoundError: pyarrow is not installed.
    """
    if len(body) != span.size_bytes:
        raise _corrupt(span, f"expected {span.size_bytes} bytes, found {len(body)}")
    parts = [_decode_group(root, span, body, group) for group in range(span.first, span.stop)]
    columns = EntryColumns.joined([_rows_of(part, stream_id) for part in parts])
    if flaw := _find_contradiction(root, columns):
        raise _corrupt(span, flaw)
    return StreamEntries(stream_id, columns, *_complete_starts(root, span, stream_id))


def _floor_group(root: SnapshotRoot, first: int, stop: int, stream_id: int, offset: int) -> int:
    """The group of the last entry that starts at or before the offset; a stretch of equal starts is not cut."""
    group = stop - 1
    while group > first and _starts_at(root, group, stream_id) > offset:
        group -= 1
    while group > first and _starts_at(root, group, stream_id) == int(root.groups["last_start"][group - 1]):
        group -= 1
    return group


def _starts_at(root: SnapshotRoot, group: int, stream_id: int) -> int:
    row = root.groups[group]
    return int(row["first_start"]) if int(row["first_stream"]) == stream_id else -1


def _complete_starts(root: SnapshotRoot, span: ByteSpan, stream_id: int) -> tuple[int, int]:
    first, stop = root.groups_of(stream_id)
    low = 0
    if span.first > first:
        low = _starts_at(root, span.first, stream_id)
        low += int(root.groups["last_start"][span.first - 1]) == low
    high = START_END if span.stop == stop else _starts_at(root, span.stop, stream_id)
    return low, max(low, high)


def _decode_group(root: SnapshotRoot, span: ByteSpan, body: bytes, group: int) -> EntryColumns:
    row = root.groups[group]
    start = int(row["byte_start"]) - span.start
    stored = body[start : start + int(row["size_bytes"])]
    if (found := zlib.crc32(stored)) != row["crc32"]:
        raise _corrupt(span, f"expected a CRC-32 of {int(row['crc32']):#010x} of group {group}, found {found:#010x}")
    try:
        columns = decode_group(root.encoded_group(group, stored), int(row["rows"]))
    except ValueError as error:
        raise _corrupt(span, f"group {group}: {error}") from error
    if flaw := columns.find_flaw():
        raise _corrupt(span, f"group {group}: {flaw}")
    keys = tuple(int(column[end]) for end in (0, -1) for column in (columns.stream_ids, columns.starts))
    expected = tuple(int(row[name]) for name in ("first_stream", "first_start", "last_stream", "last_start"))
    if keys != expected:
        raise _corrupt(span, f"expected keys {expected} of group {group}, found {keys}")
    return columns


def _rows_of(columns: EntryColumns, stream_id: int) -> EntryColumns:
    first, stop = columns.stream_ids.searchsorted(stream_id), columns.stream_ids.searchsorted(stream_id, side="right")
    return columns.take(slice(int(first), int(stop)))


def _find_contradiction(root: SnapshotRoot, columns: EntryColumns) -> str | None:
    places = root.covered.positions(columns.object_ids)
    if (places < 0).any():
        return f"expected entries of covered objects, found one of {int(columns.object_ids[places < 0][0])}"
    if len(columns) and _has_twins(columns.object_ids):
        return "expected one entry of the stream in each object, found two"
    sizes = root.covered.sizes[places] if len(columns) else columns.sizes
    if (columns.positions > sizes - columns.sizes)[columns.positions >= 0].any():
        return "expected blocks within their objects, found others"
    return None


def _has_twins(numbers: NDArray[np.int64]) -> bool:
    ordered = np.sort(numbers)
    return bool((ordered[1:] == ordered[:-1]).any())


def _corrupt(span: ByteSpan, detail: str) -> HintProblem:
    return HintProblem(HintTrouble.CORRUPT, span.key, detail)
