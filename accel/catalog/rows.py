"""The rows of the catalog: structured arrays of 64-bit integers, one type for each kind of thing that is listed.

    LIVE                     a stream set object in a node's list             ascending by order id
    PREPARED                 an id that was prepared for a writer             ascending by object id
    RETIRED                  a stream set object that compaction replaced     in the order in which they were retired
    STREAM                   a stream and its first kept offset               ascending by stream id
    OWNED_RANGE              from which offset on which node wrote a stream   ascending by (stream id, range index)
    STREAM_OBJECT            an object of one stream                          ascending by (stream id, start)
    RETIRED_STREAM_OBJECT    one that was replaced, trimmed or withdrawn      ascending by (stream id, object id)
    STREAM_END               where a stream ended                             ascending by stream id

Every commit to a node's list has a number: the list's counter shows it beforehand and one more afterwards. An uploaded
object's order id is the number of its commit. `added_by` and `retired_by` name the commits that listed and that retired
a row, so that an undo takes back a bad commit with all that was built on it, and nothing else.

Below the types stand the operations on rows, and the rules that hold for rows in a node's list as in a stream shard:
which new stream objects are refused, and how a retired row leaves (first `doomed`, which is delete pending: no undo
brings it back; then forgotten). Every column with its unit: docs/formats.md, "Rows".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accel.errors import CommitRefused
from accel.image import StreamObject
from loaders.object_ref import UNKNOWN, ObjectRef

Rows: TypeAlias = NDArray[np.void]
Dtype: TypeAlias = np.dtype[np.void]
Columns: TypeAlias = Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]]
"""(ids, numbers) of equal length, from several places."""

_FIELD = "<i8"
CHECKSUM_MAX: Final = 2**32 - 1
OPEN: Final = -1
"""As the end of a range: none yet. As a start that is asked for: wherever the stream ends."""

STREAMS_AN_OBJECT_MAX = 20_000
"""As in the production system: the most streams of one stream set object."""

NO_COMMIT: Final = -1
"""As `added_by`: no commit of a node's list brought this row, so none takes it away when it is undone.
As `retired_by`: an undo withdrew it, so it never comes back."""


def _dtype(*names: str) -> Dtype:
    return np.dtype([(name, _FIELD) for name in names])


_LIVE = (
    "object_id",
    "order_id",
    "last_order_id",
    "data_time_ms",
    "size_bytes",
    "index_size_bytes",
    "attributes",
    "tail_checksum",
    "added_by",
)
_STREAM_OBJECT = (
    "object_id",
    "stream_id",
    "start",
    "end",
    "size_bytes",
    "index_size_bytes",
    "attributes",
    "tail_checksum",
    "data_time_ms",
    "node_id",
    "added_by",
)

LIVE: Final = _dtype(*_LIVE)
PREPARED: Final = _dtype("object_id", "deadline_ms")
RETIRED: Final = _dtype(*_LIVE, "retired_at_ms", "retired_by", "doomed")
STREAM: Final = _dtype("stream_id", "start_offset")
OWNED_RANGE: Final = _dtype("stream_id", "range_index", "epoch", "start", "end", "node_id")
STREAM_OBJECT: Final = _dtype(*_STREAM_OBJECT)
RETIRED_STREAM_OBJECT: Final = _dtype(*_STREAM_OBJECT, "retired_at_ms", "doomed")
STREAM_END: Final = _dtype("stream_id", "end")


@dataclass(frozen=True, slots=True)
class ObjectFacts:
    """What a writer knows of a stream set object that it has written.

    Args:
        object_id: prepared for it.
        data_time_ms: when its oldest data was written, milliseconds since 1970; a compaction takes that of its sources.
        size_bytes: of the whole object.
        index_size_bytes: of its block index, so that opening it takes exactly one request.
        attributes: kind and placement bits, -1 where they are not set.
        tail_checksum: as of `loaders.format.tail_checksum`; -1 where nobody has computed it.
    """

    object_id: int
    data_time_ms: int
    size_bytes: int
    index_size_bytes: int
    attributes: int = UNKNOWN
    tail_checksum: int = UNKNOWN

    def checked(self) -> ObjectFacts:
        """The same, if every number can be true.

        Raises:
            CommitRefused: a negative one, or a checksum that is none.
        """
        for name in ("object_id", "data_time_ms", "size_bytes", "index_size_bytes"):
            if (value := getattr(self, name)) < 0:
                raise CommitRefused(f"object {self.object_id}: expected {name} of at least 0, found {value}")
        if not UNKNOWN <= self.tail_checksum <= CHECKSUM_MAX:
            found = f"{self.tail_checksum}"
            raise CommitRefused(f"object {self.object_id}: expected a checksum of -1 to 2^32 - 1, found {found}")
        return self


def no_rows(dtype: Dtype) -> Rows:
    """No rows of this type, read-only."""
    return frozen(np.empty(0, dtype=dtype))


def make_rows(dtype: Dtype, **columns: ArrayLike) -> Rows:
    """Rows from one column or one number for every field. Complexity: O(rows * fields).

    >>> make_rows(PREPARED, object_id=[3, 5], deadline_ms=60_000).tolist()
    [(3, 60000), (5, 60000)]

    Args:
        dtype: one of this module's types.
        columns: for each field a column of n int64 numbers, or one number for all rows; n = 1 if all are numbers.

    Raises:
        ValueError: a field without a column, a column without a field, or columns of different lengths.
        OverflowError: a number that 64 bits cannot say.
    """
    names = dtype.names or ()
    if set(names) != set(columns):
        raise ValueError(f"expected columns {', '.join(names)}, found {', '.join(columns)}")
    arrays = np.broadcast_arrays(*(np.atleast_1d(np.asarray(columns[name], dtype=np.int64)) for name in names))
    rows = np.empty(len(arrays[0]), dtype=dtype)
    for name, column in zip(names, arrays, strict=True):
        rows[name] = column
    return rows


def retyped(rows: Rows, dtype: Dtype, added: Mapping[str, ArrayLike] | None = None) -> Rows:
    """A copy of rows with the fields of another type. Complexity: O(rows * fields).

    Args:
        rows: of any of this module's types.
        dtype: of the copy; fields that only `rows` has are left out.
        added: field -> column of as many rows, or one number for all; it goes before what `rows` has.

    Raises:
        ValueError: a field that neither has.
    """
    columns = {name: rows[name] for name in rows.dtype.names or () if name in (dtype.names or ())}
    copied = np.empty(len(rows), dtype=dtype)
    for name in dtype.names or ():
        source = {**columns, **(added or {})}.get(name)
        if source is None:
            raise ValueError(f"expected a column {name}, found {', '.join(columns)}")
        copied[name] = source
    return copied


def frozen(rows: Rows) -> Rows:
    """The same rows, no longer writable: not a copy, so whoever made them must not write to them either."""
    rows.flags.writeable = False
    return rows


def joined(first: Rows, second: Rows) -> Rows:
    """A copy of both, one behind the other; of the same type. Complexity: O(n + m)."""
    return np.concatenate((first, second))


def by_stream(rows: Rows, then: str) -> Rows:
    """A copy of the rows, ascending by `stream_id`, and within a stream by the field `then`. Complexity: O(n log n)."""
    return rows[np.lexsort((rows[then], rows["stream_id"]))]


def positions_of(ids: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each wanted id stands among others; -1 if it does not. Complexity: O((n + m) log n).

    Args:
        ids: n ids in any order, each once.
        wanted: m ids in any order; they may repeat.

    Returns:
        m positions in `ids`, in the order of the wanted.
    """
    if not len(ids):
        return np.full(len(wanted), -1, dtype=np.int64)
    order = np.argsort(ids, kind="stable")
    slots = order[np.minimum(np.searchsorted(ids, wanted, sorter=order), len(ids) - 1)]
    return np.where(ids[slots] == wanted, slots, -1)


def starts_of(streams: Rows, stream_ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first kept offset of each stream; -1 for streams that are not known. Complexity: O(m log n).

    Args:
        streams: n STREAM rows, ascending by stream id, each once.
        stream_ids: m ids in any order.

    Returns:
        m offsets, in the order of the ids.
    """
    if not len(streams):
        return np.full(len(stream_ids), -1, dtype=np.int64)
    slots = np.minimum(np.searchsorted(streams["stream_id"], stream_ids), len(streams) - 1)
    return np.where(streams["stream_id"][slots] == stream_ids, streams["start_offset"][slots], -1)


def highest_of_each(columns: Columns) -> list[tuple[int, int]]:
    """Each id once, ascending, with the highest number that stands beside it. Complexity: O(n log n).

    >>> highest_of_each([(np.array([4, 7]), np.array([1, 5])), (np.array([4]), np.array([3]))])
    [(4, 3), (7, 5)]

    Args:
        columns: (ids, numbers) pairs of equal length, in any order.
    """
    none = np.empty(0, dtype=np.int64)
    ids = np.concatenate([none, *(ids for ids, _ in columns)])
    numbers = np.concatenate([none, *(numbers for _, numbers in columns)])
    order = np.lexsort((numbers, ids))
    ids, numbers = ids[order], numbers[order]
    last = np.append(ids[1:] != ids[:-1], True) if len(ids) else np.empty(0, dtype=np.bool_)
    return list(zip(ids[last].tolist(), numbers[last].tolist(), strict=True))


def refs_of(rows: Rows) -> tuple[ObjectRef, ...]:
    """The objects that LIVE, RETIRED or STREAM_OBJECT rows list, for whoever opens them; one Python object a row."""
    names = ("object_id", "size_bytes", "index_size_bytes", "attributes", "tail_checksum")
    return tuple(ObjectRef(*facts) for facts in zip(*(rows[name].tolist() for name in names), strict=True))


def some(ids: NDArray[np.int64] | list[int]) -> str:
    """Ids for an error's text: the first few, and how many there are."""
    shown = ", ".join(str(number) for number in list(ids)[:5])
    return shown if len(ids) <= 5 else f"{shown}, ... ({len(ids)} in all)"


# Stream objects: the same rules in a node's list and in a stream shard

_NOT_NEGATIVE = ("object_id", "stream_id", "start", "size_bytes", "index_size_bytes", "data_time_ms")


def check_new_rows(rows: Rows, where: str) -> None:
    """Check stream objects that are to be committed, each by itself.

    Raises:
        ValueError: rows of another type.
        CommitRefused: an id twice, a negative number or an empty range.
    """
    if rows.dtype != STREAM_OBJECT:
        raise ValueError(f"{where}: expected rows of stream objects with {STREAM_OBJECT.names}, found {rows.dtype}")
    for name in _NOT_NEGATIVE:
        _refuse_first(rows, rows[name] < 0, f"{where}: expected {name} of at least 0")
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
    positions: np.ndarray[tuple[int], np.dtype[np.int64]] = np.flatnonzero(
        same & (rows["end"][:-1] > rows["start"][1:])
    )
    return positions


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


# Retired rows on their way out: first delete pending, then forgotten


def doomed(retired: Rows, retired_before_ms: int) -> tuple[Rows | None, NDArray[np.int64]]:
    """Doom what was retired before a time.

    Args:
        retired: rows with `retired_at_ms` and `doomed`.
        retired_before_ms: what was retired at that very time is spared.

    Returns:
        The rows with the marks (None: all that is old enough has them), and the ids of all doomed objects, those of
        earlier rounds among them.
    """
    is_doomed = retired["doomed"] != 0
    fresh = ~is_doomed & (retired["retired_at_ms"] < retired_before_ms)
    ids: NDArray[np.int64] = retired["object_id"][is_doomed | fresh]
    if not fresh.any():
        return None, ids
    marked = retired.copy()
    marked["doomed"][fresh] = 1
    return marked, ids


def without_deleted(
    retired: Rows, live_ids: NDArray[np.int64], object_ids: Iterable[int] | NDArray[np.int64], where: str
) -> Rows | None:
    """Forget doomed objects that are deleted. Ids that do not stand there any more count as done; None if all do.

    Args:
        retired: rows with `doomed`.
        live_ids: of what is live in the same place.
        object_ids: of what was deleted.
        where: the list or bucket, for the error's sake.

    Raises:
        CommitRefused: an id that is not doomed.
    """
    ids = np.fromiter(object_ids, dtype=np.int64)
    gone = np.isin(retired["object_id"], ids)
    spared = retired["object_id"][gone & (retired["doomed"] == 0)]
    spared = np.concatenate((spared, ids[np.isin(ids, live_ids)]))
    if len(spared):
        raise CommitRefused(f"{where}: expected deleted objects to be doomed before, found {some(spared)} that are not")
    return retired[~gone] if gone.any() else None


def facts_of(ref: ObjectRef, data_time_ms: int) -> ObjectFacts:
    """What a list says of an object.

    Raises:
        CommitRefused: its size or the size of its index is unknown.
    """
    _check_sizes(ref)
    sizes = (ref.size_bytes, ref.index_size_bytes)
    return ObjectFacts(ref.object_id, data_time_ms, *sizes, ref.attributes, ref.tail_checksum)


def stream_object_rows(own: Iterable[tuple[int, StreamObject]], node_id: int, time_ms: int) -> Rows:
    """STREAM_OBJECT rows of (stream id, object) pairs.

    Raises:
        CommitRefused: the size of an object or of its index is unknown.
    """
    pairs = list(own)
    refs = [stream_object.ref for _, stream_object in pairs]
    for ref in refs:
        _check_sizes(ref)
    return make_rows(
        STREAM_OBJECT,
        object_id=[ref.object_id for ref in refs],
        stream_id=[stream_id for stream_id, _ in pairs],
        start=[stream_object.start for _, stream_object in pairs],
        end=[stream_object.end for _, stream_object in pairs],
        size_bytes=[ref.size_bytes for ref in refs],
        index_size_bytes=[ref.index_size_bytes for ref in refs],
        attributes=[ref.attributes for ref in refs],
        tail_checksum=[ref.tail_checksum for ref in refs],
        data_time_ms=np.full(len(pairs), time_ms),
        node_id=np.full(len(pairs), node_id),
        added_by=np.full(len(pairs), NO_COMMIT),
    )


def _check_sizes(ref: ObjectRef) -> None:
    if UNKNOWN in (ref.size_bytes, ref.index_size_bytes):
        raise CommitRefused(
            f"object {ref.object_id}: expected its size and index size, so that readers open it with one request, "
            f"found {ref.size_bytes} and {ref.index_size_bytes}"
        )
