"""The bytes of a chunk of history: what up to 1,000 epochs sealed and created.

Nearly every segment that is sealed was created a little earlier, most often by an epoch of the same chunk. Such a one
is not written out again: the chunk says how many created segments to go back. Only those from before the chunk are kept
in full. What is created takes the next number and has its epoch's time, so its columns are nearly constant; keys are
kept once (see segment_columns).

    epoch              40             41            42
    created            7@40, 8@40     9@41          10@42, 11@42
    sealed             3@12           7@40, 8@40    9@41
    back               0              2, 1          1
    older              3@12 in full

| field            | meaning                                                                                     |
|------------------|---------------------------------------------------------------------------------------------|
| first_epoch      | that of the first row of epochs; the others follow it                                       |
| columns epochs   | reference_back: epoch - reference epoch; time_ms; sealed and created: how many segments     |
| columns created  | number; lead_ms: time of the epoch - creation time; start and span: of its keys             |
| columns sealed   | back: so many rows of created before the first of this epoch; 0 = the next one of older     |
| columns older    | segments in full, their keys among those of the chunk                                       |
| columns keys     | all keys of created and older, ascending                                                    |

Epochs of one split or merge take 7 to 16 bytes each, those of thirty 230 to 305. What all epochs of a chunk together
seal and create is at most 1,048,576 segments: a scale that would make it more is refused before it begins (see
`accel.history.rules.scaling`).
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from accel.history.codecs.history_form import HistoryForm
from accel.history.codecs.segment_columns import (
    ROW,
    check_within,
    key_table,
    keys_at,
    make_ids,
    make_rows,
    packed_keys,
    placed_keys,
    rows_of_segments,
    segments_of_rows,
    unpacked_keys,
)
from accel.history.rules.checks import check_epoch
from accel.history.rules.epochs import HistoryChunk
from accel.history.rules.ids import Integers
from accel.history.rules.segments import Segments
from loaders.tables.columns import pack_columns, unpack_columns

EPOCH_ROW: Final = np.dtype([(name, "<i8") for name in ("reference_back", "time_ms", "sealed", "created")])
CREATED_ROW: Final = np.dtype([(name, "<i8") for name in ("number", "lead_ms", "start", "span")])
SEALED_ROW: Final = np.dtype([("back", "<i8")])


class StoredChunk(msgspec.Struct, frozen=True):
    """The stored fields of a `HistoryChunk`."""

    first_epoch: int
    epochs: bytes
    created: bytes
    sealed: bytes
    older: bytes
    keys: bytes


def _stored_chunk(chunk: HistoryChunk) -> StoredChunk:
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
            )
        ),
        created=_packed_created(chunk, keys),
        sealed=pack_columns(make_rows(SEALED_ROW, back=back)),
        older=pack_columns(rows_of_segments(older, keys)),
        keys=packed_keys(keys),
    )


def _packed_created(chunk: HistoryChunk, keys: Integers) -> bytes:
    times = np.repeat(chunk.times_ms, _counts(chunk.created_stops))
    start, span = placed_keys(chunk.created, keys)
    lead = times - chunk.created.creation_times_ms
    return pack_columns(make_rows(CREATED_ROW, number=chunk.created.numbers, lead_ms=lead, start=start, span=span))


def _back(chunk: HistoryChunk) -> Integers:
    """How many created segments to go back from its epoch to each sealed one; 0 for those that are not found there."""
    first = np.repeat(chunk.created_stops - _counts(chunk.created_stops), _counts(chunk.sealed_stops))
    at = chunk.created.positions_of(chunk.sealed.ids)
    found = (at >= 0) & (at < first)
    found[found] = chunk.created.rows[at[found]] == chunk.sealed.rows[found]
    return np.where(found, first - at, 0)


def _restored_chunk(fields: StoredChunk, where: str) -> HistoryChunk:
    epochs = unpack_columns(fields.epochs, EPOCH_ROW, f"{where}, epochs")
    created = unpack_columns(fields.created, CREATED_ROW, f"{where}, created")
    back = unpack_columns(fields.sealed, SEALED_ROW, f"{where}, sealed")["back"]
    older = unpack_columns(fields.older, ROW, f"{where}, older")
    keys = unpacked_keys(fields.keys, f"{where}, keys")
    # Checked before anything is counted on from there, or repeated so many times.
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
    )


def _sealed(created: Segments, older: Segments, first: Integers, back: Integers) -> Segments:
    if (back < 0).any() or (back > first).any():
        raise ValueError("expected to go back to a segment that was created earlier in the chunk")
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
        raise ValueError(f"expected {rows} {what}, found {counts.sum()} counted")


HISTORY_CHUNK: Final = HistoryForm("history-chunk", 1, StoredChunk, _stored_chunk, _restored_chunk)
