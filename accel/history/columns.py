"""Segments, maps and sets of their ids, and chunks of history as packed columns.

**Segments.** A key range ends where another one begins, and a sealed segment has the same keys as at its creation; so
the same few keys occur many times, and each is eight bytes that do not compress. The keys are stored once, ascending,
and segments refer to them by position:

    keys       0.0   0.25   0.5   0.75   1.0

    segment              2@0           3@1            4@1
    key range            [0.5, 1.0)    [0.0, 0.25)    [0.25, 0.5)
    start                2             0              1
    span                 2             1              1            the end is at start + span

| columns          | meaning                                                                             |
|------------------|-------------------------------------------------------------------------------------|
| number           | low half of the id                                                                  |
| creation_epoch   | high half of the id; ids ascend, so most steps are small                            |
| creation_time_ms | milliseconds since 1970                                                             |
| start            | position of the lowest key                                                          |
| span             | distance from `start` to the position of one past the highest key                   |
| key              | in keys: the bits of a float64, read as an integer; ascending, each once            |
| value            | in a map by segment id: an offset, a size or an epoch                               |

**Chunks.** Most sealed segments were created shortly before, usually by an epoch of the same chunk. Such a segment is
not stored again: the chunk contains the number of created segments to go back. Only segments from before the chunk are
stored in full. A created segment has the next number and usually its epoch's time, so its columns are nearly constant.

    epoch              40             41            42
    created            7@40, 8@40     9@41          10@42, 11@42
    sealed             3@12           7@40, 8@40    9@41
    back               0              2, 1          1
    older              3@12 in full

| field            | meaning                                                                                     |
|------------------|---------------------------------------------------------------------------------------------|
| first_epoch      | the epoch of the first row of epochs; the other epochs follow it                            |
| columns epochs   | reference_back: epoch - reference epoch; time_ms; sealed and created: numbers of segments;  |
|                  | late_ms                                                                                     |
| columns created  | number; lead_ms: time of the epoch - creation time; start and span of its keys              |
| columns sealed   | back: number of rows before the first row of this epoch in created; 0 = the next of older   |
| columns older    | segments in full, with positions in the keys of the chunk                                   |
| columns keys     | all keys of created and older, ascending                                                    |

Epochs of one split or merge take 7 to 16 bytes each, epochs of thirty 230 to 305. All epochs of a chunk together seal
and create at most 1,048,576 segments (`accel.history.rules.scaling`, "Chunk capacity").
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from accel.history.rules.epochs import HistoryChunk
from accel.history.rules.segments import Keys, Segments
from accel.history.rules.values import (
    EPOCH_MAX,
    NUMBER_BITS,
    NUMBER_MASK,
    NUMBER_MAX,
    IdMap,
    IdSet,
    Integers,
    check_epoch,
)
from loaders.tables.columns import ROWS_MAX, pack_columns, unpack_columns

ROW: Final = np.dtype([(name, "<i8") for name in ("number", "creation_epoch", "creation_time_ms", "start", "span")])
KEY: Final = np.dtype([("key", "<i8")])


class StoredSegments(msgspec.Struct, frozen=True):
    """The stored fields of `Segments`."""

    rows: bytes
    keys: bytes


def pack_segments(segments: Segments) -> StoredSegments:
    """Segments in any order as packed columns; O(n log n)."""
    keys = key_table(segments)
    return StoredSegments(pack_columns(rows_of_segments(segments, keys)), pack_keys(keys))


def restore_segments(fields: StoredSegments, where: str, rows_max: int = ROWS_MAX) -> Segments:
    """The segments in packed columns, in the stored order. O(n), no loop in Python.

    Args:
        fields: the result of `pack_segments`.
        where: the place, for errors.
        rows_max: more segments are refused before they are unpacked.

    Raises:
        CorruptObject: bytes that are not packed columns.
        FormatTooNew: columns that this release does not know.
        ValueError: rows that are not valid segments, or positions of missing keys.
    """
    rows = unpack_columns(fields.rows, ROW, f"{where}, rows", rows_max=rows_max)
    return segments_of_rows(rows, unpack_keys(fields.keys, f"{where}, keys"))


def rows_of_segments(segments: Segments, keys: Integers) -> NDArray[np.void]:
    """Segments as rows of type ROW; `keys` is a table that contains their keys."""
    start, span = place_keys(segments, keys)
    return make_rows(
        ROW,
        number=segments.numbers,
        creation_epoch=segments.epochs,
        creation_time_ms=segments.creation_times_ms,
        start=start,
        span=span,
    )


def segments_of_rows(rows: NDArray[np.void], keys: Integers) -> Segments:
    """The segments of rows of type ROW.

    Raises:
        ValueError: rows that are not valid segments, or positions of missing keys.
    """
    ids = make_ids(rows["creation_epoch"], rows["number"])
    return Segments.make(ids, rows["creation_time_ms"], *keys_at(keys, rows["start"], rows["span"]))


def key_table(*parts: Segments) -> Integers:
    """The bits of all keys of some segments, ascending, each once."""
    columns = [key_bits(column) for part in parts for column in (part.key_starts, part.key_ends)]
    return np.unique(np.concatenate(columns))


def place_keys(segments: Segments, keys: Integers) -> tuple[Integers, Integers]:
    """Start position and span of each segment's key range in a table that contains their keys."""
    start = np.searchsorted(keys, key_bits(segments.key_starts))
    return start, np.searchsorted(keys, key_bits(segments.key_ends)) - start


def keys_at(keys: Integers, start: Integers, span: Integers) -> tuple[Keys, Keys]:
    """The key ranges with these start positions and spans.

    Raises:
        ValueError: a position that is not in the table.
    """
    # Ends are computed only from values within the table, so that no sum overflows.
    for positions in (start, span):
        check_within("positions of keys", positions, 0, len(keys) - 1)
    end = start + span
    check_within("positions of keys", end, 0, len(keys) - 1)
    values = keys_of_bits(keys)
    return values[start], values[end]


def pack_keys(keys: Integers) -> bytes:
    """A table of keys as bytes."""
    return pack_columns(keys.view(KEY))


def unpack_keys(data: bytes, where: str) -> Integers:
    """A table of keys from its bytes."""
    keys: Integers = np.ascontiguousarray(unpack_columns(data, KEY, where)["key"])
    return keys


def make_ids(epochs: Integers, numbers: Integers) -> Integers:
    """Segment ids of epochs and numbers.

    Raises:
        ValueError: an epoch or number out of bounds, which would yield the id of another segment.
    """
    check_within("epochs", epochs, 0, EPOCH_MAX)
    check_within("segment numbers", numbers, 0, NUMBER_MAX)
    return epochs << NUMBER_BITS | numbers


def check_within(what: str, column: Integers, low: int, high: int) -> None:
    """Check that all numbers of a column are within bounds.

    Raises:
        ValueError: a number is out of bounds.
    """
    if len(column) and not low <= int(column.min()) <= int(column.max()) <= high:
        raise ValueError(f"expected {what} of {low} to {high}, found {column.min()} to {column.max()}")


def make_rows(dtype: np.dtype[np.void], **columns: ArrayLike) -> NDArray[np.void]:
    """Rows from columns of one length; a single number is the value of every row."""
    arrays = np.broadcast_arrays(*(np.atleast_1d(columns[name]) for name in dtype.names or ()))
    rows = np.empty(len(arrays[0]), dtype=dtype)
    for name, column in zip(dtype.names or (), arrays, strict=True):
        rows[name] = column
    return rows


def key_bits(keys: Keys) -> Integers:
    """The bits of keys, read as integers; for keys of at least 0 they have the order of the keys."""
    return np.ascontiguousarray(keys).view(np.int64)


def keys_of_bits(bits: Integers) -> Keys:
    """The keys with these bits."""
    keys: Keys = np.ascontiguousarray(bits).view(np.float64)
    return keys


SET_ROW: Final = np.dtype([(name, "<i8") for name in ("creation_epoch", "number")])
MAP_ROW: Final = np.dtype([(name, "<i8") for name in ("creation_epoch", "number", "value")])


def pack_map(values: IdMap) -> bytes:
    """A map from segment ids to numbers as bytes; O(n)."""
    epochs, numbers = _halves(values.ids)
    return pack_columns(make_rows(MAP_ROW, creation_epoch=epochs, number=numbers, value=values.values_array))


def unpack_map(data: bytes, where: str) -> IdMap:
    """The map in packed bytes; O(n).

    Raises:
        CorruptObject: bytes that are not packed columns.
        FormatTooNew: columns that this release does not know.
        ValueError: rows that are not valid segment ids, or do not ascend.
    """
    rows = unpack_columns(data, MAP_ROW, where)
    return IdMap(make_ids(rows["creation_epoch"], rows["number"]), np.ascontiguousarray(rows["value"]))


def pack_set(ids: IdSet) -> bytes:
    """A set of segment ids as bytes; O(n)."""
    epochs, numbers = _halves(ids.ids)
    return pack_columns(make_rows(SET_ROW, creation_epoch=epochs, number=numbers))


def unpack_set(data: bytes, where: str, rows_max: int = ROWS_MAX) -> IdSet:
    """The set in packed bytes; O(n). More than ``rows_max`` ids are refused before they are unpacked.

    Raises:
        CorruptObject, FormatTooNew, ValueError: as `unpack_map`.
    """
    rows = unpack_columns(data, SET_ROW, where, rows_max=rows_max)
    return IdSet(make_ids(rows["creation_epoch"], rows["number"]))


def _halves(ids: Integers) -> tuple[Integers, Integers]:
    return ids >> NUMBER_BITS, ids & NUMBER_MASK


EPOCH_ROW: Final = np.dtype([(name, "<i8") for name in ("reference_back", "time_ms", "sealed", "created", "late_ms")])
CREATED_ROW: Final = np.dtype([(name, "<i8") for name in ("number", "lead_ms", "start", "span")])
SEALED_ROW: Final = np.dtype([("back", "<i8")])


class StoredChunk(msgspec.Struct, frozen=True):
    """The stored fields of a `HistoryChunk`.

    Attributes:
        first_epoch: the epoch of the first row of `epochs`; the other epochs follow it.
        epochs: `reference_back` = epoch - reference epoch, `time_ms`, numbers of sealed and created rows, `late_ms`.
        created: created segments, by epoch, then ascending by number; created at the epoch's time - `lead_ms`.
        sealed: sealed segments, by epoch, then ascending by id. `back` above 0: the row of `created` this many rows
            before the first of the epoch; 0: the next row of `older`.
        older: sealed segments that no earlier epoch of this chunk created.
        keys: all keys of `created` and `older`.
    """

    first_epoch: int
    epochs: bytes
    created: bytes
    sealed: bytes
    older: bytes
    keys: bytes


def pack_chunk(chunk: HistoryChunk) -> StoredChunk:
    """A chunk as packed columns; O(n log n)."""
    back = _back(chunk)
    older = chunk.sealed.where(back == 0)
    keys = key_table(chunk.created, older)
    return StoredChunk(
        first_epoch=chunk.first_epoch,
        epochs=pack_columns(
            make_rows(
                EPOCH_ROW,
                reference_back=chunk.epochs - chunk.reference_epochs,
                time_ms=chunk.times_ms,
                sealed=_counts(chunk.sealed_stops),
                created=_counts(chunk.created_stops),
                late_ms=chunk.lates_ms,
            )
        ),
        created=_pack_created(chunk, keys),
        sealed=pack_columns(make_rows(SEALED_ROW, back=back)),
        older=pack_columns(rows_of_segments(older, keys)),
        keys=pack_keys(keys),
    )


def _pack_created(chunk: HistoryChunk, keys: Integers) -> bytes:
    times = np.repeat(chunk.times_ms, _counts(chunk.created_stops))
    start, span = place_keys(chunk.created, keys)
    lead = times - chunk.created.creation_times_ms
    return pack_columns(make_rows(CREATED_ROW, number=chunk.created.numbers, lead_ms=lead, start=start, span=span))


def _back(chunk: HistoryChunk) -> Integers:
    """For each sealed segment, the number of created segments to go back from its epoch; 0 if it is not among them."""
    first = np.repeat(chunk.created_stops - _counts(chunk.created_stops), _counts(chunk.sealed_stops))
    at = chunk.created.positions_of(chunk.sealed.ids)
    inside = (at >= 0) & (at < first)
    inside[inside] = chunk.created.rows[at[inside]] == chunk.sealed.rows[inside]
    return np.where(inside, first - at, 0)


def restore_chunk(fields: StoredChunk, where: str) -> HistoryChunk:
    """The chunk in packed columns. O(n), no loop in Python.

    Raises:
        CorruptObject, FormatTooNew: as `restore_segments`.
        ValueError: columns that contradict each other.
    """
    epochs = unpack_columns(fields.epochs, EPOCH_ROW, f"{where}, epochs")
    created = unpack_columns(fields.created, CREATED_ROW, f"{where}, created")
    back = unpack_columns(fields.sealed, SEALED_ROW, f"{where}, sealed")["back"]
    older = unpack_columns(fields.older, ROW, f"{where}, older")
    keys = unpack_keys(fields.keys, f"{where}, keys")
    # Checked before epochs are numbered from `first_epoch`, and before rows are repeated by these counts.
    check_epoch(where, fields.first_epoch + len(epochs), 0)
    check_epoch(where, fields.first_epoch, 0)
    _check_counts("segments created", epochs["created"], len(created))
    _check_counts("segments sealed", epochs["sealed"], len(back))
    numbers = np.arange(fields.first_epoch, fields.first_epoch + len(epochs), dtype=np.int64)
    created_stops = np.cumsum(epochs["created"])
    ids = make_ids(np.repeat(numbers, epochs["created"]), created["number"])
    times = np.repeat(epochs["time_ms"], epochs["created"]) - created["lead_ms"]
    created_segments = Segments.make(ids, times, *keys_at(keys, created["start"], created["span"]))
    first = np.repeat(created_stops - epochs["created"], epochs["sealed"])
    return HistoryChunk(
        first_epoch=fields.first_epoch,
        reference_epochs=numbers - epochs["reference_back"],
        times_ms=epochs["time_ms"].copy(),
        sealed=_sealed(created_segments, segments_of_rows(older, keys), first, back),
        sealed_stops=np.cumsum(epochs["sealed"]),
        created=created_segments,
        created_stops=created_stops,
        lates_ms=epochs["late_ms"].copy(),
    )


def _sealed(created: Segments, older: Segments, first: Integers, back: Integers) -> Segments:
    if (back < 0).any() or (back > first).any():
        raise ValueError("expected sealed segments that the chunk created before, found rows outside")
    is_older = back == 0
    if np.count_nonzero(is_older) != len(older):
        raise ValueError(f"expected {np.count_nonzero(is_older)} segments from before the chunk, found {len(older)}")
    rows = np.empty(len(back), dtype=created.rows.dtype)
    rows[is_older] = older.rows
    rows[~is_older] = created.rows[(first - back)[~is_older]]
    return Segments(rows)


def _counts(stops: Integers) -> Integers:
    counts: Integers = np.diff(stops, prepend=0)
    return counts


def _check_counts(what: str, counts: Integers, rows: int) -> None:
    check_within(what, counts, 0, rows)
    if int(counts.sum()) != rows:
        raise ValueError(f"expected {rows} {what}, found counts of {counts.sum()}")
