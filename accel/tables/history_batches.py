"""Histories of streams as Arrow batches, column by column.

    a stream's epochs, one after another            -> epochs, segments
    its recorded cuts, and the cut it begins with   -> cuts

A stream is read epoch by epoch, so that only one chunk of its history and two of its epochs are in memory at a time;
recorded cuts are read one by one. Batches of small streams are joined, so that a small stream does not cost a batch.

Sealed segments are in the order in which they were sealed, followed by the segments that take writes now. If the
columns `stream_id` or `size` of segments are requested, the requests of a batch are sent in parallel.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa

from accel.errors import NotInHistory, Sought, StreamDeleted
from accel.history.rules.epochs import EpochRecord, sealed_by
from accel.history.rules.segments import Segments, splits_and_merges
from accel.history.rules.values import IdMap, Integers, segment_text
from accel.history.store import Stream, StreamStore
from accel.tables.bounds import Bounds
from accel.tables.schemas import TABLES

BATCH_ROWS = 16_384
"""The approximate number of rows of a batch, and of segments whose stream ids are requested in parallel."""

BATCH_SIZE_BYTES = 8 << 20
"""The approximate limit of a batch with large rows."""

_NONE = -1
"""The value of a column of integers that does not apply; becomes null."""


def chosen_streams(streams: StreamStore, bounds: Bounds) -> Iterator[tuple[str, str]]:
    """Scope and name of the streams that may have rows. 1 call for 1,000 of each scope."""
    for scope in streams.scopes():
        if not bounds.allows_text("scope", scope):
            continue
        try:
            for name in streams.streams(scope):
                if bounds.allows_text("stream", name):
                    yield scope, name
        except NotInHistory as error:
            if error.sought is not Sought.SCOPE:
                raise  # a scope that was deleted meanwhile has no streams


def history_batches(
    streams: StreamStore, names: Iterable[tuple[str, str]], table: str, bounds: Bounds, needed: Collection[str]
) -> Iterator[pa.RecordBatch]:
    """Rows of a table of histories.

    A stream that is half created or deleted has no rows; a stream that is deleted meanwhile has the rows read before.

    Args:
        streams: the store of the histories.
        names: scope and name of each stream.
        table: the name of the table.
        bounds: epochs without requested rows are not read.
        needed: columns that are used; other columns that cost requests are null.
    """
    rows: Callable[[Stream, Bounds, Collection[str]], Iterator[dict[str, pa.Array]]]
    rows = {"epochs": _epochs, "segments": _segments, "cuts": _cuts}[table]
    return joined(_of_streams(streams, names, table, lambda stream: rows(stream, bounds, needed)))


def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of at least `BATCH_ROWS` rows or `BATCH_SIZE_BYTES`, except for the last batch."""
    waiting: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        waiting.append(batch)
        rows, size_bytes = rows + len(batch), size_bytes + batch.nbytes
        if rows >= BATCH_ROWS or size_bytes >= BATCH_SIZE_BYTES:
            yield from _one_of(waiting)
            waiting, rows, size_bytes = [], 0, 0
    if waiting:
        yield from _one_of(waiting)


def _one_of(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    joined_batches: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined_batches


def _of_streams(
    streams: StreamStore,
    names: Iterable[tuple[str, str]],
    table: str,
    rows_of: Callable[[Stream], Iterator[dict[str, pa.Array]]],
) -> Iterator[pa.RecordBatch]:
    schema = TABLES[table].columns
    for scope, name in names:
        try:
            stream = streams.stream(scope, name)
        except (NotInHistory, StreamDeleted):
            continue
        try:
            for rows in rows_of(stream):
                count = len(next(iter(rows.values())))
                named = {"scope": pa.repeat(scope, count), "stream": pa.repeat(name, count), **rows}
                yield pa.RecordBatch.from_pydict(named, schema=schema)
        except StreamDeleted:
            continue


def _epochs(stream: Stream, bounds: Bounds, _needed: Collection[str]) -> Iterator[dict[str, pa.Array]]:
    low, high = bounds.span("epoch")
    low, high = max(low, 0), min(high, stream.current_epoch().epoch)
    if low > high:
        return
    # The splits and merges of the first epoch follow from the epoch before it.
    records = stream.epochs.between(max(low - 1, 0), high)
    rows: list[tuple[int, ...]] = []
    before: EpochRecord | None = None
    for record in records:
        if record.epoch >= low:
            rows.append((*_epoch_row(record), *_changes(before, record), len(record.segments)))
        before = record
        if len(rows) == BATCH_ROWS:
            yield _epoch_columns(rows)
            rows = []
    if rows:
        yield _epoch_columns(rows)


def _epoch_row(record: EpochRecord) -> tuple[int, int, int]:
    return record.epoch, record.reference_epoch, record.creation_time_ms


def _changes(before: EpochRecord | None, record: EpochRecord) -> tuple[int, int]:
    return (0, 0) if before is None else splits_and_merges(before.segments.ranges, record.segments.ranges)


def _epoch_columns(rows: list[tuple[int, ...]]) -> dict[str, pa.Array]:
    epochs, references, times_ms, splits, merges, counts = np.array(rows, dtype=np.int64).T
    return {
        "epoch": pa.array(epochs),
        "reference_epoch": pa.array(references),
        "begin_time": times(times_ms),
        "splits": pa.array(splits),
        "merges": pa.array(merges),
        "segment_count": pa.array(counts),
    }


def _segments(stream: Stream, _bounds: Bounds, needed: Collection[str]) -> Iterator[dict[str, pa.Array]]:
    for segments, sealed_epochs, sealed_times_ms in _by_sealing(stream):
        for first in range(0, len(segments), BATCH_ROWS):
            part = slice(first, first + BATCH_ROWS)
            yield {
                **_segment_columns(segments.where(part)),
                "sealed_epoch": _or_null(sealed_epochs[part]),
                "sealed_time": times(sealed_times_ms[part]),
                **_asked_columns(stream, segments.where(part), needed),
            }


def _by_sealing(stream: Stream) -> Iterator[tuple[Segments, Integers, Integers]]:
    """All segments of a stream, each once, in parts: with the epoch that sealed each, and the epoch's start time."""
    waiting: list[tuple[Segments, EpochRecord]] = []
    last: EpochRecord | None = None
    for before, record in pairwise(_all_epochs(stream)):
        waiting.append((sealed_by(record, before), record))
        last = record
        if sum(len(segments) for segments, _ in waiting) >= BATCH_ROWS:
            yield _sealed(waiting)
            waiting = []
    if waiting:
        yield _sealed(waiting)
    active = (stream.epochs.epoch(0) if last is None else last).segments
    nothing = np.full(len(active), _NONE, dtype=np.int64)
    yield active, nothing, nothing


def _all_epochs(stream: Stream) -> Iterator[EpochRecord]:
    return stream.epochs.between(0, stream.current_epoch().epoch)


def _sealed(parts: list[tuple[Segments, EpochRecord]]) -> tuple[Segments, Integers, Integers]:
    counts = [len(segments) for segments, _ in parts]
    epochs = np.repeat(np.array([record.epoch for _, record in parts], dtype=np.int64), counts)
    times_ms = np.repeat(np.array([record.creation_time_ms for _, record in parts], dtype=np.int64), counts)
    return Segments.join(segments for segments, _ in parts), epochs, times_ms


def _segment_columns(segments: Segments) -> dict[str, pa.Array]:
    return {
        "segment_id": pa.array(segments.ids),
        "segment": pa.array([segment_text(each) for each in segments.ids.tolist()], pa.string()),
        "creation_epoch": pa.array(segments.epochs),
        "creation_time": times(segments.creation_times_ms),
        "key_start": pa.array(segments.key_starts),
        "key_end": pa.array(segments.key_ends),
    }


def _asked_columns(stream: Stream, segments: Segments, needed: Collection[str]) -> dict[str, pa.Array]:
    ids, nothing = segments.ids, pa.nulls(len(segments), pa.int64())
    columns = {"size": nothing, "stream_id": nothing}
    if "size" in needed:  # those of the last epoch have sizes once the stream is sealed
        sizes = stream.cuts.sealed_sizes(ids)
        columns["size"] = pa.array([sizes.get(each) for each in ids.tolist()], pa.int64())
    if "stream_id" in needed:
        columns["stream_id"] = pa.array(stream.segment_streams(ids), pa.int64())
    return columns


def _cuts(stream: Stream, _bounds: Bounds, _needed: Collection[str]) -> Iterator[dict[str, pa.Array]]:
    for entry in stream.retention.read():
        try:
            record = stream.retention.cut(entry.recording_time_ms)
        except NotInHistory:
            continue  # purged meanwhile
        yield _cut_columns("recorded", record.cut, entry.recording_time_ms, entry.recorded_size)
    yield _cut_columns("head", stream.head(), _NONE, stream.truncation().size_till)


def _cut_columns(kind: str, cut: IdMap, time_ms: int, size_before: int) -> dict[str, pa.Array]:
    count, ids = len(cut), cut.ids.tolist()
    return {
        "kind": pa.repeat(kind, count),
        "recording_time": times(np.full(count, time_ms, dtype=np.int64)),
        "size_before": pa.repeat(pa.scalar(size_before, pa.int64()), count),
        "segment_id": pa.array(ids, pa.int64()),
        "segment": pa.array([segment_text(each) for each in ids], pa.string()),
        "offset": pa.array([cut[each] for each in ids], pa.int64()),
    }


def times(times_ms: Integers) -> pa.Array:
    """Milliseconds since 1970 as Arrow timestamps; a negative number becomes null."""
    return pa.array(times_ms * 1000, mask=times_ms < 0).cast(pa.timestamp("us", tz="UTC"))


def _or_null(column: Integers) -> pa.Array:
    return pa.array(column, mask=column < 0)
