"""Epochs: their records, the changes from one epoch to the next, and walks along the changes.

An *epoch* is a time during which a stream's segments did not change; its segments tile the key space [0, 1). Its
*reference epoch* is itself, unless it is a duplicate. A commit of an older epoch's transactions may add two duplicates:
the first repeats the segments of the older epoch, the second those that were active, with the old numbers and new ids.

    EpochRecord         the segments of one epoch                                     written once
    EpochTransition     a scale that was requested and is not finished
    HistoryDelta        the segments that one epoch sealed and created
    HistoryChunk        the deltas of up to 1,000 consecutive epochs, as columns

An epoch is written before it becomes the current one: first its record, then its changes in the chunk of the history,
then the sealing epoch of each old segment, and last the current epoch. All these writes follow from two records, so a
process that repeats them writes the same.

Queries about stream cuts walk through the epochs between two cuts. To read each epoch's record would take a read for
each epoch, of all its segments; a chunk is one read, and contains only the changes:

    first              the record of the first epoch                                   1 read
    chunks             the changes in the epochs after it, in order                    1 read a chunk
    epochs(number)     the record of a duplicate epoch, whose changes no chunk has     1 read each

A walk keeps one chunk and the segments of one epoch in memory, so its memory does not grow with the number of epochs.
Chunks may begin before the walk does and end after it. They are consumed one by one: the caller may read ahead.

**Times.** An epoch is written after the segments before it were sealed, so it begins after their last events. If a host
with a wrong clock wrote events of the future, the epoch begins at its own time, and `late_ms` says by how much it is
earlier than the last of these events:

    epoch              4           5           6           7
    last event sealed  -           1,050       9,000       1,400
    begins             1,000       1,100       1,200       1,500
    late_ms            0           0           7,801       7,501
    sealed_until_ms    1,000       1,100       9,001       9,001

All events of the segments that an epoch or an earlier one sealed are before `sealed_until_ms`, which never falls. So a
search by time finds the last epoch before which no event of that time or later can be.

The constructor of a record checks it, so bytes from outside are checked by the same code as the program's own records.

Threads: records are immutable, any thread may read them; a walk belongs to one thread.

Source: PDP-32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accel.errors import NotInHistory, Sought
from accel.history.rules.cuts import NO_CUT, CutSpan, PlacedCut
from accel.history.rules.segments import NO_SEGMENTS, KeyRanges, SegmentRecord, Segments, splits_and_merges
from accel.history.rules.values import (
    NO_IDS,
    NUMBER_BITS,
    NUMBER_MAX,
    IdMap,
    IdSet,
    Integers,
    check_ascending,
    check_epoch,
    check_least,
    integers,
    make_id,
    positions_in,
    segment_text,
    some_ids,
)

UNKNOWN_COUNT: Final = -1
"""Value of splits or merges: a release that did not count them wrote the record."""


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """The segments of a stream in one epoch.

    Args:
        epoch: its number.
        reference_epoch: itself, or for a duplicate the epoch that it repeats.
        segments: ascending by id; together they tile [0, 1).
        creation_time_ms: time at which it began, milliseconds since 1970; later than all epochs before it.
        splits: number of segments that were split in this and all earlier epochs; -1 = unknown.
        merges: number of segments that were merged from several, likewise.
        late_ms: how much later than all events of the segments that this and earlier epochs sealed its beginning would
            have to be; 0 = it is later than all that are known.

    Raises:
        ValueError: segments that do not tile the key space, of later epochs, or (in a duplicate) of earlier epochs.
    """

    epoch: int
    reference_epoch: int
    segments: Segments
    creation_time_ms: int
    splits: int = UNKNOWN_COUNT
    merges: int = UNKNOWN_COUNT
    late_ms: int = 0

    def __post_init__(self) -> None:
        where = f"epoch {self.epoch}"
        check_epoch(where, self.epoch, self.reference_epoch)
        check_least(where, 0, creation_time_ms=self.creation_time_ms, late_ms=self.late_ms)
        check_least(where, UNKNOWN_COUNT, splits=self.splits, merges=self.merges)
        check_ascending(self.segments.ids)
        _check_tiles(where, self.segments)
        epochs = self.segments.epochs
        if epochs[-1] > self.epoch or (self.is_duplicate and epochs[0] < self.epoch):
            raise ValueError(f"{where}: expected segments that this epoch can have, found {self.segments}")

    @property
    def is_duplicate(self) -> bool:
        """Whether it repeats an older epoch."""
        return self.epoch != self.reference_epoch

    @property
    def sealed_until_ms(self) -> int:
        """All known events of the segments that this and earlier epochs sealed are before this time."""
        return self.creation_time_ms + self.late_ms

    def find(self, segment_id: int) -> SegmentRecord | None:
        """The segment with this id, if it belongs to this epoch. O(log n)."""
        return self.segments.find(segment_id)


@dataclass(frozen=True, slots=True)
class EpochTransition:
    """A scale that was requested and is not finished: the segments to seal, and the ranges that replace them.

    The new segments are numbered from `first_number` on, in the order of their ranges, and belong to the epoch after
    the active one.

    Args:
        active_epoch: the epoch whose segments are replaced.
        time_ms: time of the request, milliseconds since 1970; the new epoch begins no earlier.
        segments_to_seal: ids of segments of the active epoch.
        first_number: number of the first new segment.
        new_ranges: key ranges of the new segments, in the order of the request.

    Raises:
        ValueError: no segments to seal or no new ranges, a number out of bounds, or an invalid range.
    """

    active_epoch: int = 0
    time_ms: int = 0
    segments_to_seal: IdSet = NO_IDS
    first_number: int = 0
    new_ranges: KeyRanges = field(default_factory=KeyRanges)

    def __post_init__(self) -> None:
        check_epoch("transition", self.active_epoch + 1, 0)
        check_least("transition", 0, time_ms=self.time_ms, active_epoch=self.active_epoch)
        if bool(len(self.segments_to_seal)) != bool(len(self.new_ranges)):
            raise ValueError(f"transition: expected segments to seal and new ranges, found only one of both: {self}")
        if not 0 <= self.first_number <= NUMBER_MAX - len(self.new_ranges):
            raise ValueError(f"transition: expected a segment number, found {self.first_number}")
        starts, ends = self.new_ranges.starts, self.new_ranges.ends
        if not ((starts >= 0) & (starts < ends) & (ends <= 1)).all():
            raise ValueError(f"transition: expected key ranges within 0 to 1, found {self.new_ranges}")

    @property
    def is_empty(self) -> bool:
        """Whether no scale is under way."""
        return not len(self.new_ranges)

    @property
    def new_epoch(self) -> int:
        """The epoch of the new segments."""
        return self.active_epoch + 1

    @property
    def new_ids(self) -> Integers:
        """Ids of the new segments, in the order of their ranges."""
        first = make_id(self.new_epoch, self.first_number)
        return np.arange(first, first + len(self.new_ranges), dtype=np.int64)

    def new_segments(self, creation_time_ms: int) -> Segments:
        """The new segments, if their epoch begins at a time."""
        return Segments.make(self.new_ids, creation_time_ms, self.new_ranges.starts, self.new_ranges.ends)


NO_TRANSITION: Final = EpochTransition()
"""The record while no scale is under way."""


def _check_tiles(where: str, segments: Segments) -> None:
    order = np.argsort(segments.key_starts)
    starts, ends = segments.key_starts[order], segments.key_ends[order]
    if not len(starts) or starts[0] != 0.0 or ends[-1] != 1.0 or (starts[1:] != ends[:-1]).any():
        raise ValueError(f"{where}: expected segments that tile [0, 1), found {segments}")


@dataclass(frozen=True, slots=True)
class HistoryDelta:
    """The changes from one epoch to the next.

    Args:
        epoch: the later epoch.
        reference_epoch: itself, or for a duplicate the epoch that it repeats.
        sealed: segments of the previous epoch that are not in this one, ascending by id; empty for a duplicate.
        created: new segments, ascending by id; empty for a duplicate, whose segments follow from its reference.
        time_ms: time at which the epoch began, milliseconds since 1970.
        late_ms: as in `EpochRecord`.

    Raises:
        ValueError: a duplicate with segments, another epoch without created or (unless it is the first) sealed
            segments, or segments of other epochs.
    """

    epoch: int
    reference_epoch: int
    sealed: Segments
    created: Segments
    time_ms: int
    late_ms: int = 0

    def __post_init__(self) -> None:
        where = f"history of epoch {self.epoch}"
        check_epoch(where, self.epoch, self.reference_epoch)
        check_least(where, 0, time_ms=self.time_ms, late_ms=self.late_ms)
        check_ascending(self.sealed.ids)
        check_ascending(self.created.ids)
        sealed, created = len(self.sealed), len(self.created)
        if (sealed or created) if self.is_duplicate else (not created or bool(sealed) != bool(self.epoch)):
            kind = " of a duplicate" if self.is_duplicate else ""
            raise ValueError(f"{where}{kind}: expected segments sealed and created, found {sealed} and {created}")
        if (self.created.epochs != self.epoch).any() or (self.sealed.epochs >= self.epoch).any():
            raise ValueError(f"{where}: expected its own segments created and earlier segments sealed, found {self}")

    @property
    def is_duplicate(self) -> bool:
        """Whether the epoch repeats an older epoch."""
        return self.epoch != self.reference_epoch


class HistoryChunk:
    """The changes in each of several consecutive epochs, as columns.

    `sealed` and `created` have a row for each segment that an epoch sealed or created; the rows of an epoch end at its
    entry in `stops`:

        epoch              4              5 (a duplicate)   6
        created            7@4, 8@4                         9@6
        created_stops      2              2                 3

    Args:
        first_epoch: the first of the epochs.
        reference_epochs: the reference epoch of each epoch.
        times_ms: start of each epoch, milliseconds since 1970, strictly ascending.
        sealed: segments that the epochs sealed, in the order of the epochs, ascending by id within an epoch.
        sealed_stops: one past the last row of each epoch in `sealed`.
        created: segments that the epochs created, likewise.
        created_stops: one past the last row of each epoch in `created`.
        lates_ms: `late_ms` of each epoch; None = 0 for all.

    Raises:
        ValueError: no epoch, columns of different lengths, or an invalid entry (see `HistoryDelta`).
    """

    __slots__ = (
        *("created", "created_stops", "first_epoch", "lates_ms", "reference_epochs"),
        *("sealed", "sealed_stops", "times_ms"),
    )

    def __init__(
        self,
        first_epoch: int,
        reference_epochs: ArrayLike,
        times_ms: ArrayLike,
        *,
        sealed: Segments,
        sealed_stops: ArrayLike,
        created: Segments,
        created_stops: ArrayLike,
        lates_ms: ArrayLike | None = None,
    ) -> None:
        self.first_epoch = first_epoch
        self.reference_epochs = integers(reference_epochs)
        self.times_ms = integers(times_ms)
        self.lates_ms = np.zeros(len(self.times_ms), dtype=np.int64) if lates_ms is None else integers(lates_ms)
        self.sealed = sealed
        self.sealed_stops = integers(sealed_stops)
        self.created = created
        self.created_stops = integers(created_stops)
        self._check()

    @classmethod
    def of(cls, deltas: Sequence[HistoryDelta]) -> HistoryChunk:
        """Make a chunk from the deltas of consecutive epochs.

        Raises:
            ValueError: no deltas, or epochs that are not consecutive.
        """
        epochs = [delta.epoch for delta in deltas]
        if not epochs or epochs != list(range(epochs[0], epochs[0] + len(epochs))):
            raise ValueError(f"expected consecutive epochs, found {epochs[:5]}")
        return cls(
            epochs[0],
            [delta.reference_epoch for delta in deltas],
            [delta.time_ms for delta in deltas],
            sealed=Segments.join(delta.sealed for delta in deltas),
            sealed_stops=np.cumsum([len(delta.sealed) for delta in deltas]),
            created=Segments.join(delta.created for delta in deltas),
            created_stops=np.cumsum([len(delta.created) for delta in deltas]),
            lates_ms=[delta.late_ms for delta in deltas],
        )

    @property
    def last_epoch(self) -> int:
        """The last of its epochs."""
        return self.first_epoch + len(self) - 1

    @property
    def epochs(self) -> Integers:
        """Its epochs, ascending."""
        return np.arange(self.first_epoch, self.first_epoch + len(self), dtype=np.int64)

    @property
    def duplicates(self) -> Integers:
        """The epochs that repeat an older epoch, ascending."""
        duplicates: Integers = self.epochs[self.reference_epochs != self.epochs]
        return duplicates

    @property
    def sealing_epochs(self) -> Integers:
        """The sealing epoch of each row of `sealed`."""
        return np.repeat(self.epochs, np.diff(self.sealed_stops, prepend=0))

    def delta(self, epoch: int) -> HistoryDelta | None:
        """The changes of one epoch, if the chunk contains the epoch."""
        at = epoch - self.first_epoch
        if not 0 <= at < len(self):
            return None
        return HistoryDelta(
            epoch,
            int(self.reference_epochs[at]),
            self.sealed[_start(self.sealed_stops, at) : int(self.sealed_stops[at])],
            self.created[_start(self.created_stops, at) : int(self.created_stops[at])],
            int(self.times_ms[at]),
            int(self.lates_ms[at]),
        )

    def with_delta(self, delta: HistoryDelta) -> HistoryChunk | None:
        """The chunk with one more epoch; None if it has these changes already.

        Raises:
            ValueError: it is not the next epoch, or the chunk has other changes of the epoch.
        """
        known = self.delta(delta.epoch)
        if known is not None and known == delta:
            return None
        if delta.epoch != self.last_epoch + 1:
            raise ValueError(f"expected epoch {self.last_epoch + 1}, or the recorded {delta.epoch}, found {delta}")
        added = HistoryChunk.of([delta])
        return HistoryChunk(
            self.first_epoch,
            np.append(self.reference_epochs, added.reference_epochs),
            np.append(self.times_ms, added.times_ms),
            sealed=Segments.join((self.sealed, added.sealed)),
            sealed_stops=np.append(self.sealed_stops, len(self.sealed) + added.sealed_stops),
            created=Segments.join((self.created, added.created)),
            created_stops=np.append(self.created_stops, len(self.created) + added.created_stops),
            lates_ms=np.append(self.lates_ms, added.lates_ms),
        )

    def __len__(self) -> int:
        return len(self.times_ms)

    def __iter__(self) -> Iterator[HistoryDelta]:
        return (delta for epoch in self.epochs.tolist() if (delta := self.delta(epoch)) is not None)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HistoryChunk):
            return NotImplemented
        columns = ("reference_epochs", "times_ms", "lates_ms", "sealed_stops", "created_stops")
        return (
            self.first_epoch == other.first_epoch
            and all(np.array_equal(getattr(self, name), getattr(other, name)) for name in columns)
            and self.sealed == other.sealed
            and self.created == other.created
        )

    def __hash__(self) -> int:
        return hash((self.first_epoch, self.times_ms.tobytes(), self.created))

    def __repr__(self) -> str:
        return f"<history of epochs {self.first_epoch} to {self.last_epoch}>"

    def _check(self) -> None:
        where = f"history from epoch {self.first_epoch} on"
        count = len(self)
        columns = (self.reference_epochs, self.lates_ms, self.sealed_stops, self.created_stops)
        lengths = {len(column) for column in columns}
        if not count or lengths != {count}:
            raise ValueError(f"{where}: expected columns of one length, found {count} and {sorted(lengths)}")
        check_epoch(where, self.first_epoch + count - 1, 0)
        check_least(where, 0, first_epoch=self.first_epoch, time=int(self.times_ms[0]))
        if (self.times_ms[1:] <= self.times_ms[:-1]).any():
            raise ValueError(f"{where}: expected ascending times")
        if (self.lates_ms < 0).any():
            raise ValueError(f"{where}: expected late_ms of at least 0, found {self.lates_ms.min()}")
        if ((self.reference_epochs < 0) | (self.reference_epochs > self.epochs)).any():
            raise ValueError(f"{where}: expected references to the epoch itself or an earlier epoch")
        sealed = self._counts(where, self.sealed, self.sealed_stops)
        created = self._counts(where, self.created, self.created_stops)
        self._check_counts(where, sealed, created)
        if (self.created.epochs != np.repeat(self.epochs, created)).any():
            raise ValueError(f"{where}: expected each epoch to create its own segments")
        if (self.sealed.epochs >= np.repeat(self.epochs, sealed)).any():
            raise ValueError(f"{where}: expected each epoch to seal segments of earlier epochs")
        _check_rows_ascend(where, self.created, self.created_stops)
        _check_rows_ascend(where, self.sealed, self.sealed_stops)

    def _check_counts(self, where: str, sealed: Integers, created: Integers) -> None:
        is_duplicate = self.reference_epochs != self.epochs
        original = (created > 0) & ((sealed > 0) == (self.epochs > 0))
        wrong = ~np.where(is_duplicate, (sealed == 0) & (created == 0), original)
        if wrong.any():
            at = int(wrong.argmax())
            kind = " of a duplicate" if is_duplicate[at] else ""
            found = f"{sealed[at]} and {created[at]} in epoch {self.first_epoch + at}{kind}"
            raise ValueError(f"{where}: expected segments sealed and created, found {found}")

    @staticmethod
    def _counts(where: str, rows: Segments, stops: Integers) -> Integers:
        counts: Integers = np.diff(stops, prepend=0)
        if (counts < 0).any() or stops[-1] != len(rows):
            raise ValueError(f"{where}: expected rows that end at {len(rows)}, found ends up to {stops[-1]}")
        return counts


def _check_rows_ascend(where: str, rows: Segments, stops: Integers) -> None:
    falls: NDArray[np.bool_] = rows.ids[1:] <= rows.ids[:-1]
    falls[stops[(stops > 0) & (stops < len(rows))] - 1] = False  # another epoch begins here
    if falls.any():
        at = int(falls.argmax())
        raise ValueError(f"{where}: expected ascending ids within an epoch, found {rows.where(slice(at, at + 2))}")


def _start(stops: Integers, at: int) -> int:
    return int(stops[at - 1]) if at else 0


@dataclass(frozen=True, slots=True)
class EpochSummary:
    """An epoch in a listing of scales.

    Args:
        epoch: its number.
        time_ms: time at which it began, milliseconds since 1970.
        segments: its segments, ascending by id.
        splits: number of segments of the previous epoch that were split.
        merges: number of segments of this epoch that were merged from several.
    """

    epoch: int
    time_ms: int
    segments: Segments
    splits: int
    merges: int


def next_counts(before: EpochRecord, old: KeyRanges, new: KeyRanges) -> tuple[int, int]:
    """Splits and merges since the stream's creation, after an epoch that replaces ranges of the previous epoch."""
    if UNKNOWN_COUNT in (before.splits, before.merges):
        return UNKNOWN_COUNT, UNKNOWN_COUNT
    splits, merges = splits_and_merges(old, new)
    return before.splits + splits, before.merges + merges


def delta_of(record: EpochRecord, before: EpochRecord | None) -> HistoryDelta:
    """The changes of an epoch, for the history.

    Args:
        record: the epoch.
        before: the previous epoch; None for the first.

    Raises:
        ValueError: the epochs are not consecutive.
    """
    if record.epoch != (0 if before is None else before.epoch + 1):
        raise ValueError(f"expected the epoch before {record.epoch}, found {before}")
    sealed = created = NO_SEGMENTS
    if not record.is_duplicate:
        created = record.segments.where(record.segments.epochs == record.epoch)
        sealed = NO_SEGMENTS if before is None else sealed_by(record, before)
    return HistoryDelta(record.epoch, record.reference_epoch, sealed, created, record.creation_time_ms, record.late_ms)


def record_of(delta: HistoryDelta, before: EpochRecord | None, reference: EpochRecord | None) -> EpochRecord:
    """The record of an epoch, from its changes: the inverse of `delta_of`. O(n log n).

    Args:
        delta: the changes.
        before: the previous epoch; None for the first.
        reference: for a duplicate, the epoch that it repeats.

    Raises:
        ValueError: the arguments do not fit together.
    """
    if delta.epoch != (0 if before is None else before.epoch + 1):
        raise ValueError(f"expected the epoch before {delta.epoch}, found {before}")
    if before is None:
        return EpochRecord(0, 0, delta.created, delta.time_ms, splits=0, merges=0, late_ms=delta.late_ms)
    if delta.is_duplicate:
        if reference is None or reference.reference_epoch != delta.reference_epoch:
            raise ValueError(f"expected epoch {delta.reference_epoch}, found {reference}")
        return duplicate_of(reference, before, EpochStart(delta.time_ms, delta.late_ms))
    kept = before.segments.where(positions_in(delta.sealed.ids, before.segments.ids) < 0)
    splits, merges = next_counts(before, delta.sealed.ranges, delta.created.ranges)
    segments = Segments.join((kept, delta.created))
    return EpochRecord(delta.epoch, delta.reference_epoch, segments, delta.time_ms, splits, merges, delta.late_ms)


def sealed_by(record: EpochRecord, before: EpochRecord) -> Segments:
    """The segments that an epoch seals: those of the previous epoch that do not belong to it. O(n log n)."""
    return before.segments.where(positions_in(record.segments.ids, before.segments.ids) < 0)


class LastEvents(NamedTuple):
    """What is known of the times of segments after they were sealed.

    Attributes:
        last_ms: the time of their last event, milliseconds since 1970; None = they have none, or it is not known.
        now_ms: the present time; a later event was written by a host with a wrong clock.
    """

    last_ms: int | None = None
    now_ms: int = 0


NO_EVENTS: Final = LastEvents()


class EpochStart(NamedTuple):
    """The time of an epoch: see `EpochRecord`.

    Attributes:
        time_ms: its beginning, milliseconds since 1970.
        late_ms: as in `EpochRecord`.
    """

    time_ms: int
    late_ms: int = 0


def start_after(before: EpochRecord, time_ms: int, ended: LastEvents = NO_EVENTS) -> EpochStart:
    """The time of the next epoch: after the previous epoch, and after the last events before it.

    An event of the future does not move the epoch into the future, as all later epochs would begin later still.

    Args:
        before: the previous epoch.
        time_ms: the epoch begins no earlier; milliseconds since 1970.
        ended: the last events of the segments that it seals.
    """
    start_ms = max(time_ms, before.creation_time_ms + 1)
    until_ms = before.sealed_until_ms
    if ended.last_ms is not None:
        start_ms = max(start_ms, min(ended.last_ms, ended.now_ms) + 1)
        until_ms = max(until_ms, ended.last_ms + 1)
    return EpochStart(start_ms, max(until_ms - start_ms, 0))


def duplicate_of(repeated: EpochRecord, before: EpochRecord, start: EpochStart) -> EpochRecord:
    """An epoch that repeats the segments of another epoch: the same numbers and key ranges, with new ids.

    Args:
        repeated: the epoch whose segments are repeated.
        before: the previous epoch.
        start: the time of the new epoch.
    """
    epoch = before.epoch + 1
    ids = repeated.segments.numbers + make_id(epoch, 0)
    segments = Segments.make(ids, start.time_ms, repeated.segments.key_starts, repeated.segments.key_ends).ascending()
    splits, merges = next_counts(before, before.segments.ranges, segments.ranges)
    reference = repeated.reference_epoch
    return EpochRecord(epoch, reference, segments, start.time_ms, splits, merges, start.late_ms)


def after_advance(now: EpochRecord, record: EpochRecord) -> EpochRecord | None:
    """The current epoch to write; None if it, or a later epoch, is current already."""
    return record if record.epoch > now.epoch else None


def segment_in(record: EpochRecord, segment_id: int) -> SegmentRecord:
    """A segment of an epoch.

    Raises:
        NotInHistory: the segment does not belong to the epoch.
    """
    segment = record.find(segment_id)
    if segment is None:
        raise NotInHistory(
            f"expected a segment of epoch {record.epoch}, found {segment_text(segment_id)}", Sought.SEGMENT
        )
    return segment


def successors(segment_id: int, sealing: EpochRecord, before: EpochRecord) -> dict[int, list[int]]:
    """The segments that follow a segment, each with all its predecessors; ids ascend.

    Args:
        segment_id: a sealed segment.
        sealing: the epoch that sealed it.
        before: the epoch before `sealing`.

    Raises:
        NotInHistory: the segment does not belong to the epoch `before`.
    """
    return _related(segment_in(before, segment_id), sealing.segments, before.segments)


def predecessors(segment_id: int, created: EpochRecord, before: EpochRecord | None) -> dict[int, list[int]]:
    """The segments that a segment follows, each with all its successors; ids ascend.

    Args:
        segment_id: a segment.
        created: the epoch of its creation.
        before: the epoch before `created`; None for the first epoch, whose segments follow no other.

    Raises:
        NotInHistory: the segment does not belong to the epoch of its creation.
    """
    segment = segment_in(created, segment_id)
    return {} if before is None else _related(segment, before.segments, created.segments)


def summaries(records: Iterable[EpochRecord]) -> Iterator[EpochSummary]:
    """Summaries of consecutive epochs; splits and merges of the first are 0.

    Complexity: O(n log n) an epoch; keeps two epochs in memory.
    """
    before: EpochRecord | None = None
    for record in records:
        splits, merges = (0, 0) if before is None else splits_and_merges(before.segments.ranges, record.segments.ranges)
        yield EpochSummary(record.epoch, record.creation_time_ms, record.segments, splits, merges)
        before = record


def offsets_at_start(record: EpochRecord) -> IdMap:
    """The cut at the beginning of all segments of an epoch."""
    return IdMap(record.segments.ids.copy(), np.zeros(len(record.segments), dtype=np.int64))


def _related(segment: SegmentRecord, others: Segments, own: Segments) -> dict[int, list[int]]:
    related = _overlapping(others, segment.key_start, segment.key_end)
    if not len(related):
        return {}
    # A segment may be split into thousands: each is compared with nearby segments, not with all of the epoch.
    near = _overlapping(own, float(related.key_starts.min()), float(related.key_ends.max()))
    return {segment.id: _overlapping(near, segment.key_start, segment.key_end).ids.tolist() for segment in related}


def _overlapping(segments: Segments, start: float, end: float) -> Segments:
    return segments.where((segments.key_starts < end) & (start < segments.key_ends))


Epochs: TypeAlias = Callable[[int], EpochRecord]
"""Returns the record of an epoch; raises an error if there is none."""


def chunk_numbers(low: int, high: int, chunk_size: int) -> range:
    """Numbers of the chunks with the changes after epoch `low`, up to and including `high`."""
    return range((low + 1) // chunk_size, high // chunk_size + 1) if high > low else range(0)


def creation_epochs(cut: IdMap) -> tuple[int, int]:
    """The creation epochs of the oldest and the newest segment of a cut; (0, 0) for an empty cut."""
    if not len(cut):
        return 0, 0
    return int(cut.ids[0]) >> NUMBER_BITS, int(cut.ids[-1]) >> NUMBER_BITS


def replay(first: EpochRecord, chunks: Iterable[HistoryChunk], epochs: Epochs, last: int) -> Iterator[EpochRecord]:
    """The records of all epochs from `first` to `last`, both included, in order.

    Complexity: O(segments) an epoch.

    Raises:
        NotInHistory: the chunks end before the last epoch, or an epoch is missing in them.
    """
    now = first
    if now.epoch <= last:
        yield now
    for chunk in chunks:
        for number in range(max(now.epoch + 1, chunk.first_epoch), min(chunk.last_epoch, last) + 1):
            delta = chunk.delta(number)
            if delta is None or number != now.epoch + 1:
                raise NotInHistory(f"expected the changes in epoch {now.epoch + 1}, found epoch {number}")
            now = epochs(number) if delta.is_duplicate else record_of(delta, now, None)
            yield now
    if now.epoch < last:
        raise NotInHistory(f"expected history up to epoch {last}, found it up to epoch {now.epoch}")


def segments_of(first: EpochRecord, chunks: Iterable[HistoryChunk], epochs: Epochs, last: int) -> Iterator[Segments]:
    """All segments of the epochs from `first` to `last`, both included; each once, in parts.

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
    """Find the segments of a cut, and the highest epoch of each.

    Complexity: O(n log m) for n changes in the chunks and m segments of the cut.

    Args:
        cut: offsets by segment id.
        first: the creation epoch of its oldest segment (`creation_epochs`).
        chunks: the changes after that epoch, up to the creation epoch of its newest segment (`chunk_numbers`).
        epochs: called for duplicates in which segments of the cut were created.

    Raises:
        NotInHistory: the cut contains a segment that the stream does not have.
    """
    if not len(cut):
        return NO_CUT
    created = cut.ids >> NUMBER_BITS
    last = int(created[-1])
    parts = [_named(first.segments, cut.ids)]
    sealing = np.full(len(cut), last + 1, dtype=np.int64)
    for chunk in chunks:
        parts.append(_named(chunk.created, cut.ids))
        repeated = np.intersect1d(chunk.duplicates, created).tolist()
        parts += [_named(epochs(number).segments, cut.ids) for number in repeated]
        sealing = np.minimum(sealing, _sealing(chunk, cut.ids, created, last + 1))
    segments = Segments.join(parts).ascending()
    missing = positions_in(segments.ids, cut.ids) < 0
    if missing.any():
        raise NotInHistory(f"expected segments of this stream, found {some_ids(cut.ids[missing])}", Sought.SEGMENT)
    return PlacedCut(cut, CutSpan(segments, IdMap(cut.ids, sealing - 1)))


def _named(segments: Segments, ids: Integers) -> Segments:
    return segments.where(positions_in(ids, segments.ids) >= 0)


def _sealing(chunk: HistoryChunk, ids: Integers, created: Integers, never: int) -> Integers:
    """The epoch of this chunk that sealed each segment: by a row in `sealed`, or as a duplicate, which seals all."""
    sealing = np.full(len(ids), never, dtype=np.int64)
    positions = positions_in(ids, chunk.sealed.ids)
    np.minimum.at(sealing, positions[positions >= 0], chunk.sealing_epochs[positions >= 0])
    duplicates = np.append(chunk.duplicates, never)
    following: Integers = duplicates[np.searchsorted(duplicates[:-1], created, side="right")]
    return np.minimum(sealing, following)
