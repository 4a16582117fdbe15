"""What somebody remembers of a stream who watched all of it: every epoch whole, every segment's size, every cut.

Nothing here asks the stream, nor uses what decides in it: the next epoch follows from the rules as the documents say
them, segment by segment and key by key.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from accel.history.rules.configuration import RetentionKind, RetentionPolicy
from accel.history.rules.epochs import EpochRecord
from accel.history.rules.segments import SegmentRecord, Segments
from accel.history.rules.transactions import TransactionStatus
from accel.history.rules.values import epoch_of, make_id, number_of
from tests.accel.history.rules import naive
from tests.accel.history.rules.naive import Cut, holds

EQUAL_OR_AFTER = "EqualOrAfter"
LEASE_MS = 60_000


@dataclass
class RememberedTransaction:
    """A transaction, and how much it writes to each segment."""

    epoch: int
    size: int
    expires_ms: int
    status: TransactionStatus = TransactionStatus.OPEN


@dataclass
class Remembered:
    """A stream from its creation on."""

    records: list[EpochRecord]
    least: int
    policy: RetentionPolicy | None
    sizes: dict[int, int] = field(default_factory=dict)
    transactions: dict[UUID, RememberedTransaction] = field(default_factory=dict)
    order: list[UUID] = field(default_factory=list)
    cut: dict[int, int] = field(default_factory=dict)
    deleted: set[int] = field(default_factory=set)
    size_till: int = 0
    recorded: dict[int, tuple[int, dict[int, int]]] = field(default_factory=dict)
    """By time: the size before a cut, and the cut."""
    is_sealed: bool = False
    _segments: dict[int, SegmentRecord] = field(default_factory=dict)
    _last_epochs: dict[int, int] = field(default_factory=dict)
    _segments_of: int = 0

    # Epochs

    @property
    def current(self) -> EpochRecord:
        return self.records[-1]

    @property
    def known(self) -> dict[int, SegmentRecord]:
        """All segments that there ever were."""
        for record in self.records[self._segments_of :]:
            self._segments |= {each.id: each for each in record.segments}
            self._last_epochs |= dict.fromkeys(record.segments.ids.tolist(), record.epoch)
        self._segments_of = len(self.records)
        return self._segments

    @property
    def last_epochs(self) -> dict[int, int]:
        """The newest epoch that has each segment."""
        return self._last_epochs if self.known else {}

    @property
    def tail(self) -> dict[int, int]:
        return {each.id: self.size(each.id) for each in self.current.segments}

    def size(self, segment_id: int) -> int:
        return self.sizes.get(segment_id, 0)

    def scale(self, sealed: Collection[int], ranges: Sequence[tuple[float, float]], time_ms: int) -> None:
        """Survivors, and the new ones numbered on from the highest number of today."""
        epoch, time_ms = self.current.epoch + 1, max(time_ms, self.current.creation_time_ms + 1)
        number = 1 + max(each.number for each in self.current.segments)
        stays = [each for each in self.current.segments if each.id not in sealed]
        new = [
            SegmentRecord(make_id(epoch, number + at), time_ms, start, end) for at, (start, end) in enumerate(ranges)
        ]
        self._add(epoch, stays + new, time_ms)

    def repeat(self, repeated: EpochRecord, time_ms: int) -> None:
        """The numbers and keys of an older epoch, under ids of a new one."""
        epoch = self.current.epoch + 1
        rows = [
            SegmentRecord(make_id(epoch, each.number), time_ms, each.key_start, each.key_end)
            for each in repeated.segments
        ]
        self._add(repeated.reference_epoch, sorted(rows, key=lambda each: each.id), time_ms)

    def _add(self, reference: int, segments: list[SegmentRecord], time_ms: int) -> None:
        before = self.current
        splits, merges = changes(before.segments, segments)
        counts = before.splits + splits, before.merges + merges
        self.records.append(EpochRecord(before.epoch + 1, reference, Segments.of(segments), time_ms, *counts))

    def epoch_at(self, time_ms: int) -> int:
        return max((each.epoch for each in self.records if each.creation_time_ms <= time_ms), default=0)

    def segments_at(self, time_ms: int) -> dict[int, int]:
        epoch = self.epoch_at(time_ms)
        if not self.cut:
            return dict.fromkeys(self.records[epoch].segments.ids.tolist(), 0)
        return naive.segments_at(self.records, epoch, self.cut)

    def head(self) -> dict[int, int]:
        return self.cut or dict.fromkeys(self.records[0].segments.ids.tolist(), 0)

    def successors(self, segment_id: int) -> dict[int, list[int]]:
        last = self.last_epochs[segment_id]
        return self._related(segment_id, last, last + 1) if last < self.current.epoch else {}

    def predecessors(self, segment_id: int) -> dict[int, list[int]]:
        created = epoch_of(segment_id)
        return self._related(segment_id, created, created - 1) if created else {}

    def _related(self, segment_id: int, own: int, other: int) -> dict[int, list[int]]:
        segment = self.known[segment_id]
        return {
            each.id: [mine.id for mine in self.records[own].segments if mine.overlaps(each)]
            for each in self.records[other].segments
            if each.overlaps(segment)
        }

    # Transactions

    def with_status(self, status: TransactionStatus) -> list[UUID]:
        return [each for each, value in self.transactions.items() if value.status is status]

    def next_commit(self, limit: int | None = None) -> list[UUID]:
        waiting = [each for each in self.order if self.transactions[each].status is TransactionStatus.COMMITTING]
        if not waiting:
            return []
        oldest = min(self.transactions[each].epoch for each in waiting)
        return [each for each in waiting if self.transactions[each].epoch == oldest][:limit]

    def commit(self, time_ms: int, limit: int | None = None) -> list[UUID]:
        chosen = self.next_commit(limit)
        if not chosen:
            return []
        active, epoch = self.current, self.transactions[chosen[0]].epoch
        rolls = active.reference_epoch != epoch
        if rolls:
            self.repeat(self.records[epoch], max(active.creation_time_ms + 1, time_ms))
        for each in self.current.segments.ids.tolist():
            self.sizes[each] = self.size(each) + sum(self.transactions[one].size for one in chosen)
        if rolls:
            self.repeat(active, self.current.creation_time_ms + 1)
        for one in chosen:
            self.transactions[one].status = TransactionStatus.COMMITTED
        return chosen

    def abort_expired(self, now_ms: int) -> set[UUID]:
        expired = {each for each in self.with_status(TransactionStatus.OPEN) if self.expires(each) <= now_ms}
        for each in expired | set(self.with_status(TransactionStatus.ABORTING)):
            self.transactions[each].status = TransactionStatus.ABORTED
        return expired

    def expires(self, transaction_id: UUID) -> int:
        return self.transactions[transaction_id].expires_ms

    def seal(self, time_ms: int) -> None:
        for each in self.with_status(TransactionStatus.OPEN) + self.with_status(TransactionStatus.ABORTING):
            self.transactions[each].status = TransactionStatus.ABORTED
        while self.commit(time_ms):
            pass

    # Cuts

    def position(self, cut: Cut, key: float) -> set[int]:
        """Live segments at a key; without one, the oldest that is awaited there."""
        here = [each for each in cut if holds(self.known[each], key)]
        live = {each for each in here if cut[each] >= 0}
        return live or ({min(here)} if here else set())

    def keys(self, cuts: Sequence[Cut]) -> list[float]:
        return sorted({self.known[each].key_start for cut in cuts for each in cut})

    def compare(self, one: Cut, other: Cut) -> str:
        signs = {(one[each] > other[each]) - (one[each] < other[each]) for each in set(one) & set(other)}
        for key in self.keys((one, other)):
            mine, yours = self.position(one, key), self.position(other, key)
            if mine and yours:
                signs |= {-1} if min(mine) < max(yours) else set()
                signs |= {1} if max(mine) > min(yours) else set()
        if -1 in signs:
            return "Overlaps" if 1 in signs else "Before"
        return EQUAL_OR_AFTER

    def is_after(self, one: Cut, other: Cut) -> bool:
        return not other or self.compare(one, other) == EQUAL_OR_AFTER

    def between(self, one: Cut, other: Cut) -> set[int]:
        """For valid cuts; an empty one is the stream's beginning, or its end."""
        return {
            x.id
            for x in self.known.values()
            if (x.id in one or all(each <= x.id for each in self._around(one, x)))
            and (x.id in other or all(each >= x.id for each in self._around(other, x)))
        }

    def _around(self, cut: Cut, x: SegmentRecord) -> set[int]:
        keys = [x.key_start, *(key for key in self.keys((cut,)) if holds(x, key))]
        return {each for key in keys for each in self.position(cut, key)}

    def size_between(self, one: Cut, other: Cut) -> int:
        total = 0
        for each in self.between(one, other):
            whole = 0 if self.current.find(each) and not self.is_sealed else self.size(each)
            total += max(0, other.get(each, whole) - max(one.get(each, 0), 0))
        return total

    def truncate(self, cut: Cut) -> bool:
        """False if the stream must refuse it."""
        if not naive.is_valid(self.records, cut) or not self.is_after(cut, self.cut):
            return False
        if any(offset > self.size(segment_id) for segment_id, offset in cut.items()):
            return False
        self.deleted |= self.between(self.cut, cut) - set(cut)
        self.size_till += self.size_between(self.cut, cut)
        self.cut = dict(cut)
        return True

    # Retention

    def record_tail(self, time_ms: int) -> int:
        """Gives the size before the stream's end; recorded only if nothing was at that time or later."""
        newest = max(self.recorded, default=-1)
        size, last = self.recorded.get(newest, (0, {}))
        size += self.size_between(last, self.tail)
        if time_ms > newest:
            self.recorded[time_ms] = size, self.tail
        return size

    def reference_before(self, cut: Cut) -> int | None:
        passed = [time for time, (_, known) in self.recorded.items() if self.is_after(cut, known)]
        return max(passed, default=None)

    def retain(self, time_ms: int, read_by_all: Cut | None) -> int | None:
        """Gives when the cut was recorded that the stream was truncated to."""
        if self.policy is None:
            return None
        size = self.record_tail(time_ms)
        point = self._point(self.policy, time_ms, size, read_by_all)
        if point is None:
            return None
        wanted = self.recorded[point][1]
        self.recorded = {time: value for time, value in self.recorded.items() if time >= point}
        if wanted == self.cut or not self.is_after(wanted, self.cut):
            return None
        self.truncate(wanted)
        return point

    def _point(self, policy: RetentionPolicy, now_ms: int, size: int, read_by_all: Cut | None) -> int | None:
        is_time = policy.kind is RetentionKind.TIME
        end = now_ms if is_time else size
        marks = {time: time if is_time else recorded for time, (recorded, _) in self.recorded.items()}
        keeping = [(mark, time) for time, mark in marks.items() if mark <= end - policy.minimum]
        if not keeping:
            return None
        newest = max(keeping)[1]
        if read_by_all is None:
            return newest
        reached = [self.reference_before(read_by_all)]
        if policy.maximum is not None and end > policy.maximum:
            maximum = policy.maximum
            # By time all is taken to fit while no cut was recorded as long ago as that.
            if not is_time or any(mark <= end - maximum for mark in marks.values()):
                reached.append(min((time for time, mark in marks.items() if mark >= end - maximum), default=None))
        found = [each for each in reached if each is not None]
        return min(newest, max(found)) if found else None

    # Somebody who reads

    def some_cut(self, random: Random) -> dict[int, int]:
        """All segments of an epoch, or where a reader may stand."""
        if random.random() < 0.5:
            chosen = random.choice(self.records).segments.ids.tolist()
            return {each: random.randint(0, self.size(each)) for each in chosen}
        return self._reading(random)

    def _reading(self, random: Random) -> dict[int, int]:
        """Somebody who has read all before an epoch, and goes on for a while."""
        start = random.randrange(len(self.records))
        offsets = dict.fromkeys(self.records[start].segments.ids.tolist(), 0)
        finished = {each for each, last in self.last_epochs.items() if last < start}
        for _ in range(random.randint(0, 8)):
            chosen = random.choice(sorted(each for each, offset in offsets.items() if offset >= 0))
            last = self.last_epochs[chosen]
            if last == self.current.epoch or random.random() < 0.3:
                offsets[chosen] = random.randint(offsets[chosen], self.size(chosen))
                continue
            del offsets[chosen]
            finished.add(chosen)
            before = [each for each in self.records[last].segments if each.id not in finished]
            for each in self.records[last + 1].segments:
                if each.overlaps(self.known[chosen]):
                    offsets[each.id] = -1 if any(other.overlaps(each) for other in before) else 0
        return offsets

    def odd_cut(self, random: Random) -> dict[int, int]:
        """One that is likely not valid."""
        cut = self.some_cut(random)
        if len(cut) > 1 and random.random() < 0.5:
            del cut[random.choice(sorted(cut))]
        cut[random.choice(sorted(self.known))] = random.choice([-1, 0, 1])
        return cut


def first_record(segments: int, number: int, time_ms: int) -> EpochRecord:
    """Equal parts; the last one ends at 1."""
    ends = [(at + 1) * (1.0 / segments) for at in range(segments - 1)] + [1.0]
    starts = [0.0, *ends[:-1]]
    rows = [
        SegmentRecord(number + at, time_ms, start, end)
        for at, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]
    return EpochRecord(0, 0, Segments.of(rows), time_ms, 0, 0)


def changes(old: Collection[SegmentRecord], new: Collection[SegmentRecord]) -> tuple[int, int]:
    """How many were split, and how many were merged."""
    splits = sum(sum(each.overlaps(other) for other in new) > 1 for each in old)
    merges = sum(sum(each.overlaps(other) for other in old) > 1 for each in new)
    return splits, merges


def last_number(record: EpochRecord) -> int:
    """The highest number of an epoch."""
    return max(number_of(each) for each in record.segments.ids.tolist())
