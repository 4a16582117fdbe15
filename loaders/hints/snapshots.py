"""Index snapshots for readers: the root of a node's snapshot, and all entries of a stream by one ranged GET.

    reader = SnapshotReader(store, namespace="_kafka_...", timer=...)
    reader.read_entries(node_id=7, stream_id=420000)           StreamEntries, or a HintProblem

The single steps, for a reader with its own I/O:

    known = roots.known(7)                                None: GET the root, known = roots.take(7, fetched)
    span = plan_entries(known.root, 420000)               None: no covered object holds the stream
    body = checked_body(span, fetched)                    fetched by a GET of span.key, bytes [span.start, span.end)
    decode_entries(known.root, span, body, 420000)

A reader keeps only the root. It is a record (form ``snapshot-root``, version 1) in the envelope of every root:

    | field                | meaning                                                                           |
    |----------------------|-----------------------------------------------------------------------------------|
    | namespace            | of the cluster's objects                                                          |
    | node_id              | the node of the list                                                              |
    | generation           | of the files; part of their keys                                                  |
    | covered              | packed columns object_id, size_bytes: objects whose entries are all included      |
    | files                | name and size_bytes of each file, in the order of their streams                   |
    | groups               | packed columns, below: the groups of all files, in order                          |

    | column of a group    | meaning                                                                           |
    |----------------------|-----------------------------------------------------------------------------------|
    | file                 | number of the file                                                                |
    | first_stream, first_start | its least entry                                                              |
    | last_stream, last_start   | its greatest entry                                                           |
    | byte_start, size_bytes    | its bytes in the file                                                        |
    | crc32                | of these bytes                                                                    |
    | rows                 | entries                                                                           |

A stream is in one file, and in adjacent groups of it. So all entries of a stream are in one range of bytes, found by
two binary searches; if no group may hold a stream, no covered object holds it, and nothing is read. Only a range longer
than 4 MiB is read in part, from the first group that may hold the offset. Then `StreamEntries.low` and ``high`` are the
bounds of the starts whose entries are all included.

All data is checked before use: length, checksum, shape, order, agreement with the keys in the root, and that each entry
is of a covered object and within its bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from loaders.errors import FormatTooNew
from loaders.hints.entry_columns import EntryColumns
from loaders.hints.roots import (
    ByteSpan,
    CoveredObjects,
    HintProblem,
    HintTrouble,
    RootCache,
    check_identity,
    damage_told,
    open_root,
    read_span,
    seal_root,
)
from loaders.hints.sorted_entries import decode_group
from loaders.layout import HINT_ROOT_NAME, HintKind, hint_file_key, hint_root_key
from loaders.settings import HINT_ROOTS_SIZE_BYTES_MAX, HINT_TTL_SECONDS
from loaders.store.base import ObjectStore
from loaders.tables.columns import pack_columns, unpack_columns
from loaders.tables.records import RecordForm

FILES_MAX = 10_000
GROUP_SIZE_BYTES_LIMIT = 4 << 20
"""A longer group is not read; writers keep to 128,000 bytes."""

GROUP_ROWS_LIMIT = 1 << 20

_COVERED = np.dtype([("object_id", "<i8"), ("size_bytes", "<i8")])
GROUP = np.dtype(
    [
        (name, "<i8")
        for name in (
            "file",
            "first_stream",
            "first_start",
            "last_stream",
            "last_start",
            "byte_start",
            "size_bytes",
            "crc32",
            "rows",
        )
    ]
)
"""A group in the root; ``file`` is the number of its file in the root."""


class SnapshotFileName(msgspec.Struct, frozen=True):
    """One file of a snapshot: the last segment of its key, and its length."""

    name: str
    size_bytes: int


class _StoredRoot(msgspec.Struct, frozen=True):
    namespace: str
    node_id: int
    generation: int
    covered: bytes
    files: list[SnapshotFileName]
    groups: bytes


SNAPSHOT_ROOT_FORM = RecordForm("snapshot-root", 1, _StoredRoot)
"""The stored form."""


@dataclass(frozen=True, slots=True, eq=False)
class SnapshotRoot:
    """The root of one node's snapshot, checked. Threads: immutable.

    Args:
        namespace: of the cluster's objects.
        node_id: the node of the list.
        generation: of its files.
        covered: all entries of these objects are included.
        files: in the order of their streams.
        groups: of dtype `GROUP`, in the order of their entries.
    """

    namespace: str
    node_id: int
    generation: int
    covered: CoveredObjects
    files: tuple[SnapshotFileName, ...]
    groups: NDArray[np.void]

    def __post_init__(self) -> None:
        if flaw := _find_flaw(self):
            raise ValueError(flaw)

    @property
    def key(self) -> str:
        """The key of the root."""
        return hint_root_key(HintKind.SNAPSHOTS, self.node_id)

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.covered.nbytes + self.groups.nbytes

    @property
    def entries(self) -> int:
        """Entries in all groups."""
        return int(self.groups["rows"].sum())

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size_bytes for file in self.files)

    def covers(self, object_ids: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """For each object, whether all its entries are included, size included; O(n log objects)."""
        return self.covered.covers(object_ids, sizes)

    def file_key(self, group: int) -> str:
        """The key of a group's file."""
        file = self.files[int(self.groups["file"][group])]
        return hint_file_key(HintKind.SNAPSHOTS, self.node_id, self.generation, file.name)

    def file_size_bytes(self, group: int) -> int:
        """The length of a group's file."""
        return self.files[int(self.groups["file"][group])].size_bytes

    def groups_of(self, stream_id: int) -> tuple[int, int]:
        """The groups that may hold the stream, as ``(first, stop)``; O(log groups)."""
        first = int(self.groups["last_stream"].searchsorted(stream_id, side="left"))
        stop = int(self.groups["first_stream"].searchsorted(stream_id, side="right"))
        return first, max(first, stop)

    def encode(self) -> bytes:
        """The encoded root.

        Raises:
            FormatLimit: more than 1,048,576 objects or groups, or 64 MiB.
        """
        covered = np.empty(len(self.covered), dtype=_COVERED)
        covered["object_id"], covered["size_bytes"] = self.covered.object_ids, self.covered.sizes
        stored = _StoredRoot(
            self.namespace,
            self.node_id,
            self.generation,
            pack_columns(covered),
            list(self.files),
            pack_columns(self.groups),
        )
        return seal_root(SNAPSHOT_ROOT_FORM.encode(stored))


def decode_snapshot_root(data: bytes, *, namespace: str, node_id: int) -> SnapshotRoot:
    """Decode a root that `SnapshotRoot.encode` of this or of another release encoded. O(size).

    Args:
        data: all bytes of the object at the node's root key.
        namespace: of the reader's cluster.
        node_id: the node of the requested root.

    Raises:
        HintProblem: corrupt; or foreign: of another cluster, node, or a newer release.
    """
    where = hint_root_key(HintKind.SNAPSHOTS, node_id)
    stored = open_root(data, SNAPSHOT_ROOT_FORM, where)
    check_identity(where, (stored.namespace, stored.node_id), (namespace, node_id))
    with damage_told(where):
        covered = unpack_columns(stored.covered, _COVERED, where)
        groups = unpack_columns(stored.groups, GROUP, where)
        objects = CoveredObjects(covered["object_id"].copy(), covered["size_bytes"].copy())
        return SnapshotRoot(namespace, node_id, stored.generation, objects, tuple(stored.files), groups)


def _find_flaw(root: SnapshotRoot) -> str | None:
    if len(root.files) > FILES_MAX:
        return f"expected at most {FILES_MAX} files, found {len(root.files)}"
    # This call and those below raise for numbers and names that are invalid in keys.
    hint_file_key(HintKind.SNAPSHOTS, root.node_id, root.generation, HINT_ROOT_NAME)
    for file in root.files:
        hint_file_key(HintKind.SNAPSHOTS, root.node_id, root.generation, file.name)
    groups = root.groups
    for name, least, most in _bounds(root):
        if len(groups) and not (least <= groups[name].min() and groups[name].max() <= most):
            found = f"{int(groups[name].min())} to {int(groups[name].max())}"
            return f"expected a {name} of {least} to {most} in each group, found {found}"
    return _find_disorder(root) if len(groups) else None


def _bounds(root: SnapshotRoot) -> tuple[tuple[str, int, int], ...]:
    int64_max = 2**63 - 1
    return (
        ("file", 0, len(root.files) - 1),
        ("first_stream", 0, int64_max),
        ("first_start", 0, int64_max),
        ("last_stream", 0, int64_max),
        ("last_start", 0, int64_max),
        ("byte_start", 0, 1 << 50),
        ("size_bytes", 1, GROUP_SIZE_BYTES_LIMIT),
        ("crc32", 0, 2**32 - 1),
        ("rows", 1, GROUP_ROWS_LIMIT),
    )


def _find_disorder(root: SnapshotRoot) -> str | None:
    groups = root.groups
    ends = groups["byte_start"] + groups["size_bytes"]
    file_sizes = np.array([file.size_bytes for file in root.files], dtype=np.int64)
    if (ends > file_sizes[groups["file"]]).any():
        return "expected groups within their files, found others"
    if _falls(groups["first_stream"], groups["first_start"], groups["last_stream"], groups["last_start"]).any():
        return "expected groups whose first entry is not after their last, found others"
    before, after = groups[:-1], groups[1:]
    steps = after["file"] - before["file"]
    if (steps < 0).any() or (after["byte_start"] < ends[:-1])[steps == 0].any():
        return "expected groups in the order of files and of bytes, found others"
    falls = _falls(before["last_stream"], before["last_start"], after["first_stream"], after["first_start"])
    if falls.any() or (before["last_stream"] == after["first_stream"])[steps > 0].any():
        return "expected groups in the order of their entries, and each stream in one file, found others"
    return None


def _falls(
    stream: NDArray[np.int64], start: NDArray[np.int64], next_stream: NDArray[np.int64], next_start: NDArray[np.int64]
) -> NDArray[np.bool_]:
    falls: NDArray[np.bool_] = (stream > next_stream) | ((stream == next_stream) & (start > next_start))
    return falls


SPAN_SIZE_BYTES_MAX = 4 << 20
SCAN_SIZE_BYTES_MAX = 16 << 20
START_END = 2**63 - 1
"""An upper bound above all starts."""


@dataclass(frozen=True, slots=True, eq=False)
class StreamEntries:
    """Entries of one stream in one node, by ascending start; each entry is valid for the object that it names.

    Args:
        stream_id: the stream.
        columns: its entries.
        low: all entries of covered objects with a start in ``[low, high)`` are included; other entries may be missing.
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
        """The number of entries."""
        return len(self.columns)


def no_entries(stream_id: int) -> StreamEntries:
    """The entries of a stream for which `plan_entries` returned None: there are none in the covered objects."""
    return StreamEntries(stream_id, EntryColumns.none())


def plan_entries(
    root: SnapshotRoot, stream_id: int, offset: int = 0, *, span_size_bytes_max: int = SPAN_SIZE_BYTES_MAX
) -> ByteSpan | None:
    """The bytes to read for a stream; None if no covered object holds it. O(log groups).

    Args:
        root: the node's root.
        stream_id: the stream.
        offset: the reader's start; used only if the stream is too large to be read whole.
        span_size_bytes_max: bound of the span; a single group of any size is read.
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
    """The entries of a stream in the bytes of a span of `plan_entries`.

    Complexity: O(entries of the groups read), about 0.5 ms a group of 15,000.

    Args:
        root: the root that the span was planned with.
        span: the plan.
        body: exactly its bytes.
        stream_id: the stream.

    Raises:
        HintProblem: corrupt; foreign (of a newer release).
    """
    if len(body) != span.size_bytes:
        raise _corrupt(span, f"expected {span.size_bytes} bytes, found {len(body)}")
    parts = [_decode_group(root, span, body, group) for group in range(span.first, span.stop)]
    columns = EntryColumns.join([_rows_of(part, stream_id) for part in parts])
    if flaw := _find_contradiction(root, columns):
        raise _corrupt(span, flaw)
    return StreamEntries(stream_id, columns, *_complete_starts(root, span, stream_id))


def read_snapshot(store: ObjectStore, root: SnapshotRoot) -> Iterator[EntryColumns]:
    """All entries of a snapshot, in order, a group at a time, to be copied. A request for 16 MiB.

    Complexity: O(entries), about 35 ns each; memory holds 16 MiB and a group.

    Args:
        store: the store of its files.
        root: the node's root.

    Raises:
        HintProblem: a file is gone or was replaced, or a group is corrupt or foreign.
        StoreError: a request failed.
    """
    for span in _scan_spans(root):
        body = read_span(store, span)
        for group in range(span.first, span.stop):
            columns = _decode_group(root, span, body, group)
            if flaw := _find_uncovered(root, columns):
                raise _corrupt(span, flaw)
            yield columns


def _scan_spans(root: SnapshotRoot) -> Iterator[ByteSpan]:
    """Spans of adjacent groups of a file, each of up to 16 MiB."""
    starts = root.groups["byte_start"]
    ends = starts + root.groups["size_bytes"]
    first = 0
    while first < len(root.groups):
        in_file = int(root.groups["file"].searchsorted(root.groups["file"][first], side="right"))
        fitting = int(ends[first:in_file].searchsorted(int(starts[first]) + SCAN_SIZE_BYTES_MAX, side="right"))
        stop = first + max(1, fitting)
        size = root.file_size_bytes(first)
        yield ByteSpan(root.file_key(first), int(starts[first]), int(ends[stop - 1]), size, first, stop)
        first = stop


def _floor_group(root: SnapshotRoot, first: int, stop: int, stream_id: int, offset: int) -> int:
    """The group of the last entry that starts at or before the offset, or an earlier one if that holds equal starts."""
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
        columns = decode_group(stored, int(row["rows"]), span.key)
    except ValueError as error:
        raise _corrupt(span, f"group {group}: {error}") from error
    except FormatTooNew as error:
        raise HintProblem(HintTrouble.FOREIGN, span.key, f"group {group}: {error}") from error
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
    if len(columns) and _has_twins(columns.object_ids):
        return "expected one entry of the stream in each object, found two"
    return _find_uncovered(root, columns)


def _find_uncovered(root: SnapshotRoot, columns: EntryColumns) -> str | None:
    places = root.covered.positions(columns.object_ids)
    if (places < 0).any():
        return f"expected entries of covered objects, found one of {int(columns.object_ids[places < 0][0])}"
    sizes = root.covered.sizes[places] if len(columns) else columns.sizes
    if (columns.positions > sizes - columns.sizes)[columns.positions >= 0].any():
        return "expected blocks within their objects, found others"
    return None


def _has_twins(numbers: NDArray[np.int64]) -> bool:
    ordered = np.sort(numbers)
    return bool((ordered[1:] == ordered[:-1]).any())


def _corrupt(span: ByteSpan, detail: str) -> HintProblem:
    return HintProblem(HintTrouble.CORRUPT, span.key, detail)


class SnapshotReader:
    """Reads the snapshots of any number of nodes.

    Args:
        store: the store of the snapshots.
        namespace: of the cluster; roots of another namespace are foreign.
        timer: seconds, from any start.
        size_bytes_max: bound of the roots in memory, 64 MiB by default.
        ttl_seconds: the time after which a root is requested again, 60 by default.

    Threads: any.
    """

    def __init__(
        self,
        store: ObjectStore,
        namespace: str,
        timer: Callable[[], float],
        *,
        size_bytes_max: int = HINT_ROOTS_SIZE_BYTES_MAX,
        ttl_seconds: float = HINT_TTL_SECONDS,
    ) -> None:
        self._store = store
        self.roots: RootCache[SnapshotRoot] = RootCache(
            self.root_key,
            lambda data, node_id: decode_snapshot_root(data, namespace=namespace, node_id=node_id),
            timer,
            size_bytes_max=size_bytes_max,
            ttl_seconds=ttl_seconds,
        )
        """The roots in memory."""

    @staticmethod
    def root_key(node_id: int) -> str:
        """The key of a node's root."""
        return hint_root_key(HintKind.SNAPSHOTS, node_id)

    def read_root(self, node_id: int) -> SnapshotRoot:
        """A node's root, from memory or by one request.

        Raises:
            HintProblem: there is no usable root.
            StoreError: the request failed.
        """
        known = self.roots.read(self._store, node_id)
        if known.root is None:
            raise known.problem or HintProblem(HintTrouble.MISSING, self.root_key(node_id), "no root")
        return known.root

    def read_entries(self, node_id: int, stream_id: int, offset: int = 0) -> StreamEntries:
        """The entries of a stream in a node: two requests cold, one with the root in memory, none for an absent stream.

        Raises:
            HintProblem: there is no usable snapshot. A stale or mixed one's root is read again after a few seconds.
            StoreError: a request failed.
        """
        root = self.read_root(node_id)
        span = plan_entries(root, stream_id, offset)
        if span is None:
            return no_entries(stream_id)
        try:
            return decode_entries(root, span, read_span(self._store, span), stream_id)
        except HintProblem as problem:
            if problem.kind in {HintTrouble.STALE, HintTrouble.MIXED}:
                self.roots.give_up(node_id, problem)
            raise
