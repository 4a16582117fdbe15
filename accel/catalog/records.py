"""The records of the catalog, one a key of its tables: their rows, their fields, and so their bytes.

Rows are structured arrays of 64-bit integers, with one type for each kind of row:

    LIVE                     a stream set object in a node's list             ascending by order id
    PREPARED                 an id that was prepared for a writer             ascending by object id
    RETIRED                  a stream set object that compaction replaced     in the order in which they were retired
    STREAM                   a stream and its first kept offset               ascending by stream id
    OWNED_RANGE              the node that wrote a stream from an offset on   ascending by (stream id, range index)
    STREAM_OBJECT            an object of one stream                          ascending by (stream id, start)
    RETIRED_STREAM_OBJECT    the same, replaced, trimmed or withdrawn         ascending by (stream id, object id)
    STREAM_END               the end of a stream                              ascending by stream id
    SKETCH                   which streams an object certainly does not hold  ascending by object id
    SET_ASIDE                a live object that cannot be read                ascending by object id
    GIVEN_UP                 offsets of a stream that an object lost          ascending by (stream id, start)
    TIME_RECORD              when an append to a stream arrived               each stream's ascending by record
    RELEASED                 a range of a stream that another node takes over ascending by stream id
    WRITER_NUMBER            which events of a writer are durable             each stream's together

Every commit to a node's list has a number: the value of the list's counter before the commit, which adds one. The order
id of an uploaded object is the number of its commit. `added_by` and `retired_by` are the commits that listed and that
retired a row, so that an undo removes a bad commit with all commits built on it, and nothing else. No undo restores a
retired row whose `delete_pending` is 1. The rules that hold both for rows in a node's list and for rows in a stream
shard are here, too: which new stream objects are refused, and how a retired row leaves.

A record takes ownership of its rows and makes them read-only; a change of a list or a shard makes a new record
(`node_list`, `stream_shards`). Making a record checks the types and the order of its rows in O(n), because all searches
rely on the order. `check_list` and `check_shard` check the other rules. Any thread may read a record.

The bytes follow from the annotations (`loaders.tables.records`): numbers and names are MessagePack fields, rows are
packed columns. A list of 5,000 objects takes about 64 kB, 20 kB of it checksums of tails; sketches take up to 16 bytes
an object more. The maximum number of rows of a value follows from its bytes (`loaders.tables.columns`), or from its
key: a directory has at most 65,536 nodes. Every column and field with its unit: docs/reference/catalog-records.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import numpy as np
from msgspec import Meta
from numpy.typing import ArrayLike, NDArray

from accel.errors import CommitRefused
from accel.image import StreamObject
from bloom import StreamSketch
from loaders.errors import FormatLimit
from loaders.object_ref import UNKNOWN, ObjectRef
from loaders.tables.columns import ROWS_MAX
from loaders.tables.format_record import check_generation
from loaders.tables.records import Bounded, Columns, Listed, OneField, RecordForm

Rows: TypeAlias = NDArray[np.void]
Dtype: TypeAlias = np.dtype[np.void]
Numbered: TypeAlias = Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]]
"""(ids, numbers) of equal length, from several places."""

_FIELD = "<i8"
CHECKSUM_MAX: Final = 2**32 - 1
OPEN: Final = -1
"""As the end of a range: the range is open. As a requested start: the end of the stream."""

STREAMS_AN_OBJECT_MAX = 20_000
"""The maximum number of streams of one stream set object, as in the production system."""

NO_COMMIT: Final = -1
"""As `added_by`: no commit of a node's list added this row, so no undo removes it.
As `retired_by`: an undo withdrew the row, so it is never restored."""

NO_STREAM: Final = -1
"""In WRITER_NUMBER rows of a list: the rows of some commits up to the `commit` of this row were left out."""


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
RETIRED: Final = _dtype(*_LIVE, "retired_at_ms", "retired_by", "delete_pending")
STREAM: Final = _dtype("stream_id", "start_offset")
OWNED_RANGE: Final = _dtype("stream_id", "range_index", "epoch", "start", "end", "node_id")
STREAM_OBJECT: Final = _dtype(*_STREAM_OBJECT)
RETIRED_STREAM_OBJECT: Final = _dtype(*_STREAM_OBJECT, "retired_at_ms", "delete_pending")
STREAM_END: Final = _dtype("stream_id", "end")
SKETCH: Final = _dtype("object_id", "form", "low", "rest")
SET_ASIDE: Final = _dtype("object_id", "cause", "runs", "since_ms", "tag")
GIVEN_UP: Final = _dtype("stream_id", "start", "end", "object_id", "given_up_at_ms")
TIME_RECORD: Final = _dtype("stream_id", "record", "end", "value", "commit")
RELEASED: Final = _dtype("stream_id", "range_index")
WRITER_NUMBER: Final = _dtype(
    "stream_id", "writer_high", "writer_low", "keys_from", "keys_to", "number", "settled", "value", "commit"
)


@dataclass(frozen=True, slots=True)
class ObjectFacts:
    """The facts about a stream set object that its writer commits.

    Args:
        object_id: prepared for the object.
        data_time_ms: when its oldest data was written, milliseconds since 1970; a compaction takes that of its sources.
        size_bytes: of the whole object.
        index_size_bytes: of its block index, so that opening the object takes exactly one request.
        attributes: kind and placement bits, -1 where they are not set.
        tail_checksum: of `loaders.format.tail_checksum`; -1 where it was not computed.
        sketch: of the streams of the object; None where they are not known.
        times: TIME_RECORD rows of the appends in the object; the list sets their commit; None = the rows of the list
            stay as they are.
        counted: rows of commits up to this one are in the node's checkpoint, and leave the list.
        numbers: WRITER_NUMBER rows of the events in the object, likewise.
    """

    object_id: int
    data_time_ms: int
    size_bytes: int
    index_size_bytes: int
    attributes: int = UNKNOWN
    tail_checksum: int = UNKNOWN
    sketch: StreamSketch | None = None
    times: Rows | None = field(default=None, compare=False)
    counted: int = field(default=-1, compare=False)
    numbers: Rows | None = field(default=None, compare=False)

    def checked(self) -> ObjectFacts:
        """The same facts, if all numbers are in range.

        Raises:
            CommitRefused: a negative number, or a checksum out of range.
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
    return freeze(np.empty(0, dtype=dtype))


def make_rows(dtype: Dtype, **columns: ArrayLike) -> Rows:
    """Rows from one column or one number for every field. Complexity: O(rows * fields).

    >>> make_rows(PREPARED, object_id=[3, 5], deadline_ms=60_000).tolist()
    [(3, 60000), (5, 60000)]

    Args:
        dtype: one of this module's types.
        columns: for each field a column of n int64 numbers, or one number for all rows; n = 1 if all are numbers.

    Raises:
        ValueError: a field without a column, a column without a field, or columns of different lengths.
        OverflowError: a number of more than 64 bits.
    """
    names = dtype.names or ()
    if set(names) != set(columns):
        raise ValueError(f"expected columns {', '.join(names)}, found {', '.join(columns)}")
    arrays = np.broadcast_arrays(*(np.atleast_1d(np.asarray(columns[name], dtype=np.int64)) for name in names))
    rows = np.empty(len(arrays[0]), dtype=dtype)
    for name, column in zip(names, arrays, strict=True):
        rows[name] = column
    return rows


def retype_rows(rows: Rows, dtype: Dtype, added: Mapping[str, ArrayLike] | None = None) -> Rows:
    """A copy of rows with the fields of another type. Complexity: O(rows * fields).

    Args:
        rows: of any of this module's types.
        dtype: of the copy; fields that only `rows` has are left out.
        added: field -> column of the same length, or one number for all rows; it overrides the field of `rows`.

    Raises:
        ValueError: a field that neither `rows` nor `added` has.
    """
    columns = {name: rows[name] for name in rows.dtype.names or () if name in (dtype.names or ())}
    copied = np.empty(len(rows), dtype=dtype)
    for name in dtype.names or ():
        source = {**columns, **(added or {})}.get(name)
        if source is None:
            raise ValueError(f"expected a column {name}, found {', '.join(columns)}")
        copied[name] = source
    return copied


def freeze(rows: Rows) -> Rows:
    """The same rows, made read-only: not a copy, so the caller that made the rows must not write to them either."""
    rows.flags.writeable = False
    return rows


def join_rows(first: Rows, second: Rows) -> Rows:
    """A copy of the first rows followed by the second, both of the same type. Complexity: O(n + m)."""
    return np.concatenate((first, second))


def by_stream(rows: Rows, then: str) -> Rows:
    """A copy of the rows, ascending by `stream_id`, and within a stream by the field `then`. Complexity: O(n log n)."""
    return rows[np.lexsort((rows[then], rows["stream_id"]))]


def joined_ids(parts: Iterable[NDArray[np.int64]]) -> NDArray[np.int64]:
    """All ids, ascending, each once."""
    return np.unique(np.concatenate([np.empty(0, dtype=np.int64), *parts]))


def positions_of(ids: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """The position of each wanted id in `ids`, in their order; -1 for an id that is not there. O((n + m) log n).

    Args:
        ids: n ids in any order, each once.
        wanted: m ids in any order; they may repeat.
    """
    if not len(ids):
        return np.full(len(wanted), -1, dtype=np.int64)
    order = np.argsort(ids, kind="stable")
    slots = order[np.minimum(np.searchsorted(ids, wanted, sorter=order), len(ids) - 1)]
    return np.where(ids[slots] == wanted, slots, -1)


def starts_of(streams: Rows, stream_ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first kept offset of each stream, in the order of the ids; -1 for streams without a row. O(m log n).

    Args:
        streams: n STREAM rows, ascending by stream id, each once.
        stream_ids: m ids in any order.
    """
    if not len(streams):
        return np.full(len(stream_ids), -1, dtype=np.int64)
    slots = np.minimum(np.searchsorted(streams["stream_id"], stream_ids), len(streams) - 1)
    return np.where(streams["stream_id"][slots] == stream_ids, streams["start_offset"][slots], -1)


def highest_of_each(columns: Numbered) -> list[tuple[int, int]]:
    """Each id of (ids, numbers) pairs once, ascending, with the highest of its numbers. Complexity: O(n log n).

    >>> highest_of_each([(np.array([4, 7]), np.array([1, 5])), (np.array([4]), np.array([3]))])
    [(4, 3), (7, 5)]
    """
    none = np.empty(0, dtype=np.int64)
    ids = np.concatenate([none, *(ids for ids, _ in columns)])
    numbers = np.concatenate([none, *(numbers for _, numbers in columns)])
    order = np.lexsort((numbers, ids))
    ids, numbers = ids[order], numbers[order]
    last = np.append(ids[1:] != ids[:-1], True) if len(ids) else np.empty(0, dtype=np.bool_)
    return list(zip(ids[last].tolist(), numbers[last].tolist(), strict=True))


def refs_of(rows: Rows) -> tuple[ObjectRef, ...]:
    """The objects that LIVE, RETIRED or STREAM_OBJECT rows list, for opening them; one Python object a row."""
    names = ("object_id", "size_bytes", "index_size_bytes", "attributes", "tail_checksum")
    return tuple(ObjectRef(*facts) for facts in zip(*(rows[name].tolist() for name in names), strict=True))


def some(ids: NDArray[np.int64] | list[int]) -> str:
    """Ids for an error's text: the first five, and the number of all."""
    shown = ", ".join(str(number) for number in list(ids)[:5])
    return shown if len(ids) <= 5 else f"{shown}, ... ({len(ids)} in all)"


# Stream objects: the same rules in a node's list and in a stream shard

_NOT_NEGATIVE = ("object_id", "stream_id", "start", "size_bytes", "index_size_bytes", "data_time_ms")


def check_new_rows(rows: Rows, where: str) -> None:
    """Check each stream object that is to be committed.

    Raises:
        ValueError: rows of another type.
        CommitRefused: an id twice, a negative number or an empty range.
    """
    if rows.dtype != STREAM_OBJECT:
        raise ValueError(f"{where}: expected rows of stream objects with {STREAM_OBJECT.names}, found {rows.dtype}")
    if not len(rows):
        return
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
        CommitRefused: two objects overlap; the error names both.
    """
    overlaps = overlapping(rows)
    if len(overlaps):
        before, after = rows[overlaps[0]], rows[overlaps[0] + 1]
        raise CommitRefused(
            f"{where}: expected objects of a stream that do not overlap, found {describe_row(before)} and "
            f"{describe_row(after)}"
        )


def overlapping(rows: Rows) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Positions whose row overlaps the next one, of rows ascending by (stream id, start)."""
    same = rows["stream_id"][1:] == rows["stream_id"][:-1]
    positions: np.ndarray[tuple[int], np.dtype[np.int64]] = np.flatnonzero(
        same & (rows["end"][:-1] > rows["start"][1:])
    )
    return positions


def refuse_other_bytes(listed: Rows, added: Rows, where: str) -> None:
    """Check that the added objects which are already listed have the listed size and tail checksum.

    Unknown checksums are not compared.

    Args:
        listed: rows of objects of any type that has sizes and checksums.
        added: rows of the objects that are to be committed; ids that `listed` does not have are skipped.
        where: names the place in errors.

    Raises:
        CommitRefused: an object differs; the error names the first, with both sizes and checksums.
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


def describe_row(row: np.void) -> str:
    """One stream object, as the text of an error."""
    return f"object {row['object_id']} with [{row['start']}, {row['end']}) of stream {row['stream_id']}"


def _refuse_first(rows: Rows, wrong: np.ndarray[tuple[int], np.dtype[np.bool_]], expected: str) -> None:
    if wrong.any():
        raise CommitRefused(f"{expected}, found {describe_row(rows[int(wrong.argmax())])}")


def facts_of(ref: ObjectRef, data_time_ms: int, stream_ids: NDArray[np.int64] | None = None) -> ObjectFacts:
    """The facts of an object for a list.

    Args:
        ref: the object.
        data_time_ms: as in `ObjectFacts`.
        stream_ids: all streams of the object, ascending; empty or None if they are not known.

    Raises:
        CommitRefused: its size or the size of its index is unknown.
    """
    _check_sizes(ref)
    sizes = (ref.size_bytes, ref.index_size_bytes)
    sketch = None if stream_ids is None or not len(stream_ids) else StreamSketch.build(stream_ids)
    return ObjectFacts(ref.object_id, data_time_ms, *sizes, ref.attributes, ref.tail_checksum, sketch)


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


# Records

INT64_MAX = 2**63 - 1

NODES_MAX = 1 << 16
"""The maximum number of nodes in one catalog; a refresh reads the list of each."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeList:
    """A node's stream set objects, the ids prepared for new ones, and the objects that will be deleted.

    Args:
        node_id: the node.
        epoch: the session number of the node's newest session; 0 = never opened.
        next_order_id: the number of the next commit; above every order id in the list.
        live: LIVE rows, ascending by order id; the spans [order_id, last_order_id] do not overlap.
        prepared: PREPARED rows, ascending by object id.
        retired: RETIRED rows; rows with `delete_pending` set are delete pending and never restored.
        stream_objects: STREAM_OBJECT rows that were committed here and have not been moved to their shards yet.
        withdrawn_commits: undone commits whose stream objects are not withdrawn from the shards yet.
        sketches: SKETCH rows of live objects, ascending by object id; an object without a sketch may hold any stream. A
            row belongs to the live object of its id, and so of its size.
        released: RELEASED rows, ascending by stream id: streams that the newest session may not commit, because another
            node takes over their range of this index. A new session begins without any.
        times: TIME_RECORD rows of the commits since the node's checkpoint, ascending by commit; some may be missing.
        numbers: WRITER_NUMBER rows of these commits, ascending by commit. A row of `NO_STREAM` means that some rows are
            missing.
        emptied: `next_order_id` after the last commit that left no live object; 0 = there was none.
        set_aside: SET_ASIDE rows of live objects, ascending by object id (`bad_objects`).

    Raises:
        ValueError: rows of the wrong type or out of order, or a number below 0.
    """

    node_id: int
    epoch: int = 0
    next_order_id: int = 0
    live: Annotated[Rows, Columns(LIVE)] = field(default_factory=lambda: no_rows(LIVE))
    prepared: Annotated[Rows, Columns(PREPARED)] = field(default_factory=lambda: no_rows(PREPARED))
    retired: Annotated[Rows, Columns(RETIRED)] = field(default_factory=lambda: no_rows(RETIRED))
    stream_objects: Annotated[Rows, Columns(STREAM_OBJECT)] = field(default_factory=lambda: no_rows(STREAM_OBJECT))
    withdrawn_commits: Annotated[tuple[int, ...], Meta(max_length=ROWS_MAX)] = ()
    sketches: Annotated[Rows, Columns(SKETCH)] = field(default_factory=lambda: no_rows(SKETCH))
    released: Annotated[Rows, Columns(RELEASED)] = field(default_factory=lambda: no_rows(RELEASED))
    times: Annotated[Rows, Columns(TIME_RECORD)] = field(default_factory=lambda: no_rows(TIME_RECORD))
    numbers: Annotated[Rows, Columns(WRITER_NUMBER)] = field(default_factory=lambda: no_rows(WRITER_NUMBER))
    emptied: int = 0
    set_aside: Annotated[Rows, Columns(SET_ASIDE)] = field(default_factory=lambda: no_rows(SET_ASIDE))

    @property
    def where(self) -> str:
        """The name of the list in errors."""
        return f"list of node {self.node_id}"

    @property
    def is_empty_as_known(self) -> bool:
        """Whether it has no live object, because of its commits: else an empty list lost its objects."""
        return not len(self.live) and self.emptied == self.next_order_id

    def emptied_after(self, live: Rows) -> int:
        """`emptied` after the next commit, which leaves these LIVE rows."""
        is_emptied = not len(live) and (len(self.live) > 0 or self.is_empty_as_known)
        return self.next_order_id + 1 if is_emptied else self.emptied

    def __post_init__(self) -> None:
        where = self.where
        _check_least(where, 0, node_id=self.node_id, epoch=self.epoch)
        _check_least(where, 0, next_order_id=self.next_order_id, emptied=self.emptied)
        _take_over(where, live=(self.live, LIVE), prepared=(self.prepared, PREPARED), retired=(self.retired, RETIRED))
        _take_over(where, stream_objects=(self.stream_objects, STREAM_OBJECT), sketches=(self.sketches, SKETCH))
        _take_over(where, times=(self.times, TIME_RECORD), numbers=(self.numbers, WRITER_NUMBER))
        _take_over(where, released=(self.released, RELEASED), set_aside=(self.set_aside, SET_ASIDE))
        _check_order(f"{where}, sketches", self.sketches["object_id"])
        _check_order(f"{where}, released", self.released["stream_id"])
        _check_order(f"{where}, set aside", self.set_aside["object_id"])
        _check_order(f"{where}, live", self.live["order_id"])
        _check_order(f"{where}, prepared", self.prepared["object_id"])
        _check_stream_order(f"{where}, stream objects", self.stream_objects, "start")
        if len(self.live) and int(self.live["order_id"][-1]) >= self.next_order_id:
            found = f"{self.next_order_id} after order id {int(self.live['order_id'][-1])}"
            raise ValueError(f"{where}: expected next_order_id above all order ids, found {found}")


@dataclass(frozen=True, slots=True, eq=False)
class ListVersion:
    """A kept version of a node's list.

    Args:
        sequence: the sequence number of the list's key at that time, 1 or above.
        node_list: the whole list.

    Raises:
        ValueError: a sequence below 1.
    """

    sequence: int
    node_list: NodeList

    def __post_init__(self) -> None:
        _check_least("list version", 1, sequence=self.sequence)


@dataclass(frozen=True, slots=True, eq=False)
class StreamShard:
    """The streams whose ids hash to one shard.

    Args:
        bucket: its number, from 0.
        streams: STREAM rows, ascending by stream id.
        ranges: OWNED_RANGE rows, ascending by (stream id, range index); an end of -1 is open.
        stream_objects: STREAM_OBJECT rows, ascending by (stream id, start).
        retired: RETIRED_STREAM_OBJECT rows, ascending by (stream id, object id).
        given_up: GIVEN_UP rows, ascending by (stream id, start), above first kept offsets (`lost_objects`).

    Raises:
        ValueError: rows of the wrong type or out of order.
    """

    bucket: int
    streams: Annotated[Rows, Columns(STREAM)] = field(default_factory=lambda: no_rows(STREAM))
    ranges: Annotated[Rows, Columns(OWNED_RANGE)] = field(default_factory=lambda: no_rows(OWNED_RANGE))
    stream_objects: Annotated[Rows, Columns(STREAM_OBJECT)] = field(default_factory=lambda: no_rows(STREAM_OBJECT))
    retired: Annotated[Rows, Columns(RETIRED_STREAM_OBJECT)] = field(
        default_factory=lambda: no_rows(RETIRED_STREAM_OBJECT)
    )
    given_up: Annotated[Rows, Columns(GIVEN_UP)] = field(default_factory=lambda: no_rows(GIVEN_UP))

    @property
    def where(self) -> str:
        """The name of the shard in errors."""
        return f"stream shard {self.bucket}"

    def __post_init__(self) -> None:
        where = self.where
        _check_least(where, 0, bucket=self.bucket)
        _take_over(where, streams=(self.streams, STREAM), ranges=(self.ranges, OWNED_RANGE))
        _take_over(where, stream_objects=(self.stream_objects, STREAM_OBJECT))
        _take_over(where, retired=(self.retired, RETIRED_STREAM_OBJECT), given_up=(self.given_up, GIVEN_UP))
        _check_order(f"{where}, streams", self.streams["stream_id"])
        _check_stream_order(f"{where}, ranges", self.ranges, "range_index")
        _check_stream_order(f"{where}, stream objects", self.stream_objects, "start")
        _check_stream_order(f"{where}, retired stream objects", self.retired, "object_id")
        _check_stream_order(f"{where}, given up", self.given_up, "start")


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """The ends of a node's streams after some commit.

    Args:
        node_id: the node.
        order_id: the checkpoint covers all objects whose last order id is at most this; -1 = it covers none.
        ends: STREAM_END rows, ascending by stream id.
        times: TIME_RECORD rows, ascending by (stream id, record): the appends to a stream that have not moved to a part
            of its time index, and the last append that has; no rows of streams without times.
        numbers: WRITER_NUMBER rows of the writers that have numbers, each stream's together.

    Raises:
        ValueError: rows of the wrong type or out of order, or an order id below -1.
    """

    node_id: int
    order_id: int
    ends: Annotated[Rows, Columns(STREAM_END)] = field(default_factory=lambda: no_rows(STREAM_END))
    times: Annotated[Rows, Columns(TIME_RECORD)] = field(default_factory=lambda: no_rows(TIME_RECORD))
    numbers: Annotated[Rows, Columns(WRITER_NUMBER)] = field(default_factory=lambda: no_rows(WRITER_NUMBER))

    def __post_init__(self) -> None:
        where = f"checkpoint of node {self.node_id}"
        _check_least(where, 0, node_id=self.node_id)
        _check_least(where, -1, order_id=self.order_id)
        _take_over(where, ends=(self.ends, STREAM_END), times=(self.times, TIME_RECORD))
        _take_over(where, numbers=(self.numbers, WRITER_NUMBER))
        _check_order(f"{where}, ends", self.ends["stream_id"])
        _check_stream_order(f"{where}, times", self.times, "record")


@dataclass(frozen=True, slots=True, eq=False)
class NodeDirectory:
    """The nodes that have a list.

    Args:
        node_ids: ascending, each once, 0 or above.
        generation: the catalog's generation, as in the format record; readers read it here, because they read the
            directory at each refresh anyhow.

    Raises:
        FormatLimit: more than 65,536 nodes.
        ValueError: ids out of order, or an invalid generation.
    """

    node_ids: Annotated[NDArray[np.int64], Listed(NODES_MAX)] = field(
        default_factory=lambda: np.empty(0, dtype=np.int64)
    )
    generation: Annotated[str, Meta(max_length=47)] = ""

    def __post_init__(self) -> None:
        self.node_ids.flags.writeable = False
        if len(self.node_ids) > NODES_MAX:
            raise FormatLimit(f"expected at most {NODES_MAX} nodes in one catalog, found {len(self.node_ids)}")
        _check_order("directory of nodes", self.node_ids)
        check_generation(self.generation)


def ids_of(record: NodeList | StreamShard) -> NDArray[np.int64]:
    """All object ids in a list or a shard, in no order. O(rows)."""
    rows = [record.stream_objects, record.retired]
    if isinstance(record, NodeList):
        rows += [record.live, record.prepared]
    return np.concatenate([some_rows["object_id"] for some_rows in rows])


def highest_id(*records: NodeList | StreamShard) -> int:
    """The highest object id in lists and shards; -1 if there is none. O(rows)."""
    return max((int(ids_of(record).max(initial=-1)) for record in records), default=-1)


# How retired rows leave a list or a shard: first they are marked as delete pending, then removed

Record = TypeVar("Record", bound=NodeList | StreamShard)


def with_delete_pending(now: Record, retired_before_ms: int) -> tuple[Record | None, NDArray[np.int64]]:
    """Mark the rows that were retired before a time as delete pending: from then on no undo restores them.

    Args:
        now: the list or the shard.
        retired_before_ms: rows retired exactly at this time are left alone. The format record's `retired_seconds` ago.

    Returns:
        The marked record (None: all rows that are old enough are marked already), and the ids of all objects that are
        delete pending, including those of earlier rounds.
    """
    is_pending = now.retired["delete_pending"] != 0
    fresh = ~is_pending & (now.retired["retired_at_ms"] < retired_before_ms)
    ids: NDArray[np.int64] = now.retired["object_id"][is_pending | fresh]
    if not fresh.any():
        return None, ids
    marked = now.retired.copy()
    marked["delete_pending"][fresh] = 1
    return replace(now, retired=marked), ids


def without_collected(now: Record, object_ids: Iterable[int] | NDArray[np.int64]) -> Record | None:
    """Remove the rows of objects that were delete pending and are deleted.

    Ids that are not there any more count as removed. Returns None if no row is left to remove.

    Raises:
        CommitRefused: an id that is not delete pending.
    """
    live = now.live if isinstance(now, NodeList) else now.stream_objects
    ids = np.fromiter(object_ids, dtype=np.int64)
    gone = np.isin(now.retired["object_id"], ids)
    others = now.retired["object_id"][gone & (now.retired["delete_pending"] == 0)]
    others = np.concatenate((others, ids[np.isin(ids, live["object_id"])]))
    if len(others):
        expected = "deleted objects to be delete pending before"
        raise CommitRefused(f"{now.where}: expected {expected}, found {some(others)} that are not")
    return replace(now, retired=now.retired[~gone]) if gone.any() else None


NODE_LIST: Final = RecordForm("node-list", 1, NodeList)
LIST_VERSION: Final = RecordForm("list-version", 1, ListVersion)
STREAM_SHARD: Final = RecordForm("stream-bucket", 1, StreamShard)
CHECKPOINT: Final = RecordForm("node-checkpoint", 1, Checkpoint)
NODE_DIRECTORY: Final = RecordForm("node-directory", 1, NodeDirectory)
OBJECT_ID_COUNTER: Final = RecordForm("object-id-counter", 1, OneField("next_object_id", Bounded("next_object_id")))

ALL_FORMS: Final[tuple[RecordForm[Any], ...]] = (
    NODE_LIST,
    LIST_VERSION,
    STREAM_SHARD,
    CHECKPOINT,
    NODE_DIRECTORY,
    OBJECT_ID_COUNTER,
)


def _check_least(where: str, least: int, **numbers: int) -> None:
    for name, number in numbers.items():
        if not least <= number <= INT64_MAX:
            raise ValueError(f"{where}: expected {name} of {least} to {INT64_MAX}, found {number}")


def _take_over(where: str, **fields: tuple[Rows, Dtype]) -> None:
    for name, (rows, dtype) in fields.items():
        if rows.dtype != dtype or rows.ndim != 1:
            raise ValueError(f"{where}: expected {name} with the fields {dtype.names}, found {rows.dtype}")
        freeze(rows)


def _check_order(where: str, keys: NDArray[np.int64]) -> None:
    wrong = np.flatnonzero(keys[1:] <= keys[:-1])
    if len(wrong):
        before, after = keys[wrong[0] : wrong[0] + 2].tolist()
        raise ValueError(f"{where}: expected ascending keys, each once, found {before} before {after}")
    if len(keys) and keys[0] < 0:
        raise ValueError(f"{where}: expected keys of at least 0, found {int(keys[0])}")


def _check_stream_order(where: str, rows: Rows, then: str) -> None:
    streams, keys = rows["stream_id"], rows[then]
    steps = streams[1:] - streams[:-1]
    wrong = np.flatnonzero((steps < 0) | ((steps == 0) & (keys[1:] <= keys[:-1])))
    if len(wrong):
        pairs = [(int(streams[at]), int(keys[at])) for at in (wrong[0], wrong[0] + 1)]
        raise ValueError(f"{where}: expected ascending (stream_id, {then}), found {pairs[0]} before {pairs[1]}")
