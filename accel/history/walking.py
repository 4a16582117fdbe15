"""Walking through a stream's epochs by what changed, without reading each epoch's record.

    first              the record of the epoch to begin with                           1 read
    chunks             what changed in the epochs after it, in order                    1 read a chunk
    epochs(number)     the record of a duplicate epoch, whose changes no chunk tells    1 read each

A walk holds one chunk and the segments of one epoch at a time, so its memory does not grow with the number of epochs.
Chunks may begin before the walk does and end after it. They are taken one by one: whoever provides them may read ahead.

Threads: a walk belongs to one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import numpy as np

from accel.errors import NotInHistory, Sought
from accel.history.cuts import NO_CUT, PlacedCut
from accel.history.epochs import record_of
from accel.history.history_chunk import HistoryChunk
from accel.history.id_columns import IdMap, Integers, positions_in, some_ids
from accel.history.ids import NUMBER_BITS
from accel.history.records import CutSpan, EpochRecord
from accel.history.segments import Segments

Epochs: TypeAlias = Callable[[int], EpochRecord]
"""The record of an epoch, which raises what fits if there is none."""


def chunk_numbers(low: int, high: int, chunk_size: int) -> range:
    """Which chunks tell what changed after one epoch, up to and including another."""
    return range((low + 1) // chunk_size, high // chunk_size + 1) if high > low else range(0)


def creation_epochs(cut: IdMap) -> tuple[int, int]:
    """In which epochs the oldest and the newest segment of a cut were created; (0, 0) of an empty one."""
    if not len(cut):
        return 0, 0
    return int(cut.ids[0]) >> NUMBER_BITS, int(cut.ids[-1]) >> NUMBER_BITS


def replay(first: EpochRecord, chunks: Iterable[HistoryChunk], epochs: Epochs, last: int) -> Iterator[EpochRecord]:
    """The records of all epochs from one to another, both included, one after the other.

    Complexity: O(segments) an epoch.

    Raises:
        NotInHistory: the chunks end before the last epoch, or leave one out.
    """
    now = first
    if now.epoch <= last:
        yield now
    for chunk in chunks:
        for number in range(max(now.epoch + 1, chunk.first_epoch), min(chunk.last_epoch, last) + 1):
            delta = chunk.delta(number)
            if delta is None or number != now.epoch + 1:
                raise NotInHistory(f"expected what changed in epoch {now.epoch + 1}, found epoch {number}")
            now = epochs(number) if delta.is_duplicate else record_of(delta, now, None)
            yield now
    if now.epoch < last:
        raise NotInHistory(f"expected history up to epoch {last}, found it up to {now.epoch}")


def segments_of(first: EpochRecord, chunks: Iterable[HistoryChunk], epochs: Epochs, last: int) -> Iterator[Segments]:
    """All segments that belong to any epoch from one to another, both included; each once, in parts.

    Complexity: O(segments) in all; no loop over epochs, except duplicates.
    """
    if first.epoch <= last:
        yield first.segments
    for chunk in chunks:
        created = chunk.created
        yield created.where((created.epochs > first.epoch) & (created.epochs <= last))
        duplicates = chunk.duplicates
        for number in duplicates[(duplicates > first.epoch) & (duplicates <= last)].tolist():
            yield epochs(number).segments


def place(cut: IdMap, first: EpochRecord, chunks: Iterable[HistoryChunk], epochs: Epochs) -> PlacedCut:
    """Find the segments of a cut, and up to which epoch each of them lasted.

    Complexity: O(n log m) for n changes in the chunks and m segments of the cut.

    Args:
        cut: offsets by segment id.
        first: the epoch in which its oldest segment was created (`creation_epochs`).
        chunks: what changed after that, up to the epoch in which its newest one was created (`chunk_numbers`).
        epochs: asked for duplicates in which segments of the cut were created.

    Raises:
        NotInHistory: a segment that the stream does not have.
    """
    if not len(cut):
        return NO_CUT
    created = cut.ids >> NUMBER_BITS
    last = int(created[-1])
    found = [_named(first.segments, cut.ids)]
    sealing = np.full(len(cut), last + 1, dtype=np.int64)
    for chunk in chunks:
        found.append(_named(chunk.created, cut.ids))
        repeated = np.intersect1d(chunk.duplicates, created).tolist()
        found += [_named(epochs(number).segments, cut.ids) for number in repeated]
        sealing = np.minimum(sealing, _sealing(chunk, cut.ids, created, last + 1))
    segments = Segments.joined(found).ascending()
    missing = positions_in(segments.ids, cut.ids) < 0
    if missing.any():
        raise NotInHistory(f"expected segments of this stream, found {some_ids(cut.ids[missing])}", Sought.SEGMENT)
    return PlacedCut(cut, CutSpan(segments, IdMap(cut.ids, sealing - 1)))


def _named(segments: Segments, ids: Integers) -> Segments:
    return segments.where(positions_in(ids, segments.ids) >= 0)


def _sealing(chunk: HistoryChunk, ids: Integers, created: Integers, never: int) -> Integers:
    """In which epoch of this chunk each segment was sealed: by name, or because a duplicate seals all before it."""
    sealing = np.full(len(ids), never, dtype=np.int64)
    positions = positions_in(ids, chunk.sealed.ids)
    np.minimum.at(sealing, positions[positions >= 0], chunk.sealing_epochs[positions >= 0])
    duplicates = np.append(chunk.duplicates, never)
    following: Integers = duplicates[np.searchsorted(duplicates[:-1], created, side="right")]
    return np.minimum(sealing, following)
