"""Scaling a stream: some of its segments are sealed, and others take over their key ranges.

A request (`with_request`) stores a transition. The scale is then carried out in steps that can each be repeated, by the
same process or another one:

    | step                        | decided here                                                     |
    |-----------------------------|------------------------------------------------------------------|
    | 1 state SCALING             | `states.next_state`                                              |
    | 2 is it still valid?        | `after_start`                                                    |
    | 3 create the new segments   |                                                                  |
    | 4 seal the old segments     |                                                                  |
    | 5 record the new epoch      | `scaled_epoch`, `epochs.delta_of`, `epochs.sealed_by`            |
    | 6 sizes, then current epoch | `retention.with_sizes`, `epochs.after_advance`                   |
    | 7 transition empty          | `epochs.NO_TRANSITION`                                           |
    | 8 state ACTIVE              | `states.next_state`                                              |

Between the request and step 2, a commit of older transactions may have replaced all segments by duplicates. A scale
that a person requested continues with the duplicates; a scale because of measured load is dropped, as the load may
have changed.

**Chunk capacity.** A chunk of the history contains the changes of its epochs in columns of at most 1,048,576 rows. A
scale that does not fit could never finish its steps, so it is refused before its first write:

    | rows                    | of one chunk                                                                   |
    |-------------------------|--------------------------------------------------------------------------------|
    | of an epoch             | the segments that it seals, and those that it creates                          |
    | share of an epoch       | rows / 4 / epochs of a chunk: 262 for 1,000 epochs; such a scale always fits   |
    | left for larger scales  | all but the shares of the later epochs of the chunk                            |

So a scale of the usual size does not read the chunk. Duplicates take no rows.

Source: PDP-32 and the upstream system.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, unique
from heapq import heapify, heappop, heappush
from typing import Final

import numpy as np

from accel.errors import ScaleConflict, ScaleInputInvalid, ScalePrecondition
from accel.history.rules.configuration import SEGMENTS_MAX
from accel.history.rules.epochs import (
    NO_EVENTS,
    NO_TRANSITION,
    EpochRecord,
    EpochTransition,
    HistoryChunk,
    LastEvents,
    next_counts,
    segment_in,
    start_after,
)
from accel.history.rules.segments import KeyRanges, Segments, replaces, split_range
from accel.history.rules.states import StreamState, refuse_sealed
from accel.history.rules.values import (
    EPOCH_MAX,
    NUMBER_MASK,
    NUMBER_MAX,
    IdSet,
    Integers,
    checked_id,
    checked_keys,
    checked_time,
    make_id,
    positions_in,
    some_ids,
)


@dataclass(frozen=True, slots=True)
class ScaleRequest:
    """A requested scale.

    Args:
        seal: ids of the segments to seal, in the caller's order.
        new_ranges: key ranges that replace theirs, in the order of the numbers of the new segments.
        time_ms: time of the request, milliseconds since 1970.

    Raises:
        InvalidArgument: invalid ids, keys or time.
    """

    seal: tuple[int, ...]
    new_ranges: KeyRanges
    time_ms: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "seal", tuple(map(checked_id, self.seal)))
        object.__setattr__(self, "time_ms", checked_time("the time of a scale", self.time_ms))
        checked_keys(self.new_ranges)


@unique
class ScaleVerdict(Enum):
    """The decision about a transition when its scale starts."""

    PROCEED = "proceed"
    """Carry the transition out."""

    MIGRATED = "migrated"
    """Store the returned transition, and carry it out: all segments were replaced by duplicates since."""

    DONE = "done"
    """Its new epoch exists already; only the transition and the state remain to be reset."""

    DROPPED = "dropped"
    """The stream has another epoch by now: reset the transition and the state, and refuse the scale."""


@unique
class ScaleProgress(Enum):
    """The progress of a scale that was requested in an epoch."""

    NONE = "none"
    """The epoch is current, and no scale is under way."""

    UNDER_WAY = "under way"
    """A scale from this epoch, or the last steps of the scale that led to the next epoch, is being carried out."""

    DONE = "done"
    """Later epochs followed, and the next scale can begin."""


def is_outdated(request: ScaleRequest, current: EpochRecord) -> bool:
    """Whether a request contains a segment that is not active.

    The caller then read an old epoch. The empty transition is written again, so that other callers that read the same
    epoch fail on its version.
    """
    return bool((positions_in(current.segments.ids, _ids(request.seal)) < 0).any())


def with_request(
    request: ScaleRequest, state: StreamState, stored: EpochTransition, current: EpochRecord, min_segments: int
) -> EpochTransition:
    """The transition that carries a request out; the stored one if it is the same scale.

    Complexity: O(n log n).

    Args:
        request: the requested scale.
        state: the state of the stream.
        stored: the transition under way, or the empty transition.
        current: the current epoch.
        min_segments: minimum number of segments of the stream.

    Raises:
        IllegalState: the stream is sealed, or is being sealed.
        ScaleConflict: another scale is under way.
        ScalePrecondition: a segment is not active (see `is_outdated`), or too few or too many would remain.
        ScaleInputInvalid: the new ranges do not cover exactly the keys of the sealed segments.
    """
    refuse_sealed(state)
    if not stored.is_empty:
        refuse_conflict(request, stored)
        return stored
    if is_outdated(request, current):
        ids = _ids(request.seal)
        inactive = some_ids(ids[positions_in(current.segments.ids, ids) < 0])
        raise ScalePrecondition(f"expected segments of epoch {current.epoch} to seal, found {inactive}")
    _refuse_ranges(request, current)
    count = len(current.segments) - len(request.seal) + len(request.new_ranges)
    if count < min_segments:
        raise ScalePrecondition(f"expected at least {min_segments} segments after the scale, found {count}")
    if count > SEGMENTS_MAX:
        raise ScalePrecondition(f"expected at most {SEGMENTS_MAX} segments after the scale, found {count}")
    first_number = int(current.segments.numbers.max()) + 1
    if first_number > NUMBER_MAX - len(request.new_ranges) or current.epoch == EPOCH_MAX:
        raise ScalePrecondition("expected room for new segments, found all numbers of segments or epochs used")
    return EpochTransition(current.epoch, request.time_ms, IdSet.of(request.seal), first_number, request.new_ranges)


def was_carried_out(request: ScaleRequest, current: EpochRecord, before: EpochRecord) -> bool:
    """Whether an epoch is the result of a request in the previous epoch: the request was carried out.

    Complexity: O(n log n).
    """
    ids = _ids(request.seal)
    was_there = (positions_in(before.segments.ids, ids) >= 0).all()
    is_gone = (positions_in(current.segments.ids, ids) < 0).all()
    created = current.segments.where(current.segments.epochs == current.epoch)
    return bool(
        was_there
        and is_gone
        and len(current.segments) == len(before.segments) - len(ids) + len(created)
        and created.ranges == request.new_ranges
    )


def refuse_conflict(request: ScaleRequest, stored: EpochTransition, *, by_number: bool = False) -> None:
    """Refuse a request that differs from the scale under way.

    Args:
        request: the requested scale.
        stored: the transition under way.
        by_number: whether to compare numbers of segments, not ids: `after_start` may have moved the scale under way to
            duplicates of its segments.

    Raises:
        ScaleConflict: a range or a segment of the request is not in the stored transition.
    """
    known, asked = stored.segments_to_seal.ids, _ids(request.seal)
    if by_number:
        known, asked = np.sort(known & NUMBER_MASK), asked & NUMBER_MASK
    is_same = (positions_in(known, asked) >= 0).all() and set(request.new_ranges) <= set(stored.new_ranges)
    if not is_same:
        found = f"a scale of {some_ids(stored.segments_to_seal.ids)} under way"
        raise ScaleConflict(f"expected the scale of {some_ids(_ids(request.seal))}, found {found}")


def after_start(
    stored: EpochTransition, current: EpochRecord, epochs: Callable[[int], EpochRecord], *, is_manual: bool
) -> tuple[ScaleVerdict, EpochTransition]:
    """Check whether a scale that starts is still valid, and adapt its transition.

    Args:
        stored: its transition, not empty.
        current: the current epoch.
        epochs: called for the transition's active or new epoch, if that is not the current one any more.
        is_manual: whether a person requested it.

    Returns:
        The verdict, and the transition to carry out; the empty transition if there is none.
    """
    if current.epoch == stored.active_epoch:
        return ScaleVerdict.PROCEED, stored
    if current.epoch < stored.active_epoch:
        return ScaleVerdict.DROPPED, NO_TRANSITION
    reached = current if current.epoch == stored.new_epoch else epochs(stored.new_epoch)
    if is_reached(stored, reached):
        return ScaleVerdict.DONE, NO_TRANSITION
    if is_manual and epochs(stored.active_epoch).reference_epoch == current.reference_epoch:
        migrated = _after_migration(stored, current)
        if migrated is not None:
            return ScaleVerdict.MIGRATED, migrated
    return ScaleVerdict.DROPPED, NO_TRANSITION


def is_reached(transition: EpochTransition, record: EpochRecord) -> bool:
    """Whether an epoch is the result of a transition, so that another process has carried the transition out.

    The result has the new segments with their ranges, and none of the segments to seal. A duplicate epoch is never the
    result: its segments have older, and so lower, numbers.
    """
    if record.epoch != transition.new_epoch or record.is_duplicate:
        return False
    positions = positions_in(record.segments.ids, transition.new_ids)
    if (positions < 0).any() or record.segments.where(positions).ranges != transition.new_ranges:
        return False
    return not (positions_in(record.segments.ids, transition.segments_to_seal.ids) >= 0).any()


def scaled_epoch(transition: EpochTransition, active: EpochRecord, ended: LastEvents = NO_EVENTS) -> EpochRecord:
    """The new epoch of a scale: the remaining segments, then the new ones. Depends only on the arguments.

    Args:
        transition: the transition, not empty.
        active: its active epoch.
        ended: the last events of the segments to seal.

    Raises:
        ValueError: another epoch, or an epoch without the segments to seal.
    """
    sealed = active.segments.where(positions_in(transition.segments_to_seal.ids, active.segments.ids) >= 0)
    if active.epoch != transition.active_epoch or len(sealed) != len(transition.segments_to_seal):
        raise ValueError(f"expected epoch {transition.active_epoch} with {transition.segments_to_seal}, found {active}")
    time_ms, late_ms = start_after(active, transition.time_ms, ended)
    stays = active.segments.where(positions_in(sealed.ids, active.segments.ids) < 0)
    segments = Segments.join((stays, transition.new_segments(time_ms)))
    splits, merges = next_counts(active, sealed.ranges, transition.new_ranges)
    return EpochRecord(transition.new_epoch, transition.new_epoch, segments, time_ms, splits, merges, late_ms)


def splits_towards(min_segments: int, current: EpochRecord, time_ms: int, chunk_size: int) -> ScaleRequest | None:
    """The scale that splits the widest segments, until a stream has its minimum; None = it has, or has too few keys.

    It fits into any chunk, so another one may have to follow. Processes that read the same epoch want the same scale.

    Complexity: O(n log n) in the number of segments.

    Args:
        min_segments: minimum number of segments of the stream.
        current: the current epoch.
        time_ms: time of the request, milliseconds since 1970.
        chunk_size: number of epochs in a chunk.
    """
    missing, rows = min_segments - len(current.segments), _share(chunk_size)
    widest = [(each.key_start - each.key_end, each.id, 1) for each in current.segments] if missing > 0 else []
    heapify(widest)
    parts: dict[int, int] = {}
    while widest and missing > 0 and rows >= ROWS_OF_A_SPLIT:
        narrowed, segment_id, count = heappop(widest)
        segment = segment_in(current, segment_id)
        try:
            split_range(segment.key_start, segment.key_end, count + 1)
        except ValueError:  # too few keys
            continue
        parts[segment_id] = count + 1
        rows -= 1 if count > 1 else ROWS_OF_A_SPLIT
        missing -= 1
        heappush(widest, (narrowed * count / (count + 1), segment_id, count + 1))
    found = [segment_in(current, segment_id) for segment_id in sorted(parts)]
    ranges = [each for row in found for each in split_range(row.key_start, row.key_end, parts[row.id])]
    return ScaleRequest(tuple(sorted(parts)), KeyRanges.of(ranges), time_ms) if parts else None


def _refuse_ranges(request: ScaleRequest, current: EpochRecord) -> None:
    ids = _ids(request.seal)
    if len(np.unique(ids)) < len(ids):
        raise ScaleInputInvalid(f"expected each segment to seal once, found {some_ids(ids)}")
    sealed = current.segments.where(positions_in(current.segments.ids, ids)).ranges
    if not len(ids) or not replaces(request.new_ranges, sealed):
        found = list(request.new_ranges)[:5]
        raise ScaleInputInvalid(f"expected ranges that replace those of {some_ids(ids)} exactly, found {found}")


def _after_migration(stored: EpochTransition, current: EpochRecord) -> EpochTransition | None:
    ids = (stored.segments_to_seal.ids & NUMBER_MASK) + make_id(current.epoch, 0)
    if (positions_in(current.segments.ids, np.sort(ids)) < 0).any():
        return None
    return replace(stored, active_epoch=current.epoch, segments_to_seal=IdSet.of(ids))


def _ids(given: tuple[int, ...]) -> Integers:
    return np.array(given, dtype=np.int64)


CHUNK_ROWS_MAX: Final = 1 << 20
SHARED_PART: Final = 4
ROWS_OF_A_SPLIT: Final = 3


def needs_look(request: ScaleRequest, chunk_size: int) -> bool:
    """Whether a scale takes more rows than the share of one epoch, so that its chunk must be read.

    Args:
        request: the scale.
        chunk_size: number of epochs in a chunk.
    """
    return _rows(request) > _share(chunk_size)


def refuse_crowded(request: ScaleRequest, epoch: int, chunk: HistoryChunk | None, chunk_size: int) -> None:
    """Refuse a scale that does not fit into its chunk.

    Args:
        request: the scale.
        epoch: the new epoch of the scale.
        chunk: the chunk of this epoch; None = the epoch is the first in its chunk.
        chunk_size: number of epochs in a chunk.

    Raises:
        ScalePrecondition: the scale does not fit.
    """
    taken = 0 if chunk is None else len(chunk.created) + len(chunk.sealed)
    capacity = chunk_capacity_left(taken, epoch, chunk_size)
    if _rows(request) > capacity:
        last = epoch - epoch % chunk_size + chunk_size - 1
        limit = f"a scale of at most {capacity} segments sealed and created before epoch {last + 1}"
        raise ScalePrecondition(f"expected {limit}, found {_rows(request)}; nothing was changed")


def chunk_capacity_left(taken: int, epoch: int, chunk_size: int) -> int:
    """The number of rows that an epoch may take in its chunk.

    Args:
        taken: number of rows of earlier epochs in the chunk.
        epoch: the new epoch.
        chunk_size: number of epochs in a chunk.
    """
    to_come = chunk_size - 1 - epoch % chunk_size
    return max(CHUNK_ROWS_MAX - taken - to_come * _share(chunk_size), _share(chunk_size))


def _rows(request: ScaleRequest) -> int:
    return len(request.seal) + len(request.new_ranges)


def _share(chunk_size: int) -> int:
    return CHUNK_ROWS_MAX // SHARED_PART // chunk_size
