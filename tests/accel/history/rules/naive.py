"""The rules of cuts once more, segment by segment and epoch by epoch, with all epochs at hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from accel.history.rules.epochs import EpochRecord
from accel.history.rules.segments import SegmentRecord
from accel.history.rules.values import epoch_of

Cut = Mapping[int, int]


@dataclass
class Reader:
    """Somebody who reads a stream from its beginning, and where they stand.

    A segment is followed by its successors; one that continues a segment which is still being read must wait.
    """

    records: Sequence[EpochRecord]
    finished: set[int] = field(default_factory=set)
    offsets: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.known = {each.id: each for record in self.records for each in record.segments}
        self.offsets = {each.id: 0 for each in self.records[0].segments}

    def live(self) -> list[int]:
        return sorted(each for each, offset in self.offsets.items() if offset >= 0)

    def read(self, segment_id: int, count: int) -> None:
        self.offsets[segment_id] += count

    def finish(self, segment_id: int) -> bool:
        """Read a segment to its end, if it has one."""
        following, before = self.around(segment_id)
        if not following:
            return False
        del self.offsets[segment_id]
        self.finished.add(segment_id)
        for each in following:
            awaited = {other.id for other in before if other.overlaps(each)} - self.finished
            self.offsets[each.id] = -1 if awaited else 0
        return True

    def around(self, segment_id: int) -> tuple[list[SegmentRecord], Sequence[SegmentRecord]]:
        """The segments that follow one, and the epoch before theirs."""
        last = max(record.epoch for record in self.records if record.find(segment_id))
        if last + 1 == len(self.records):
            return [], []
        segment = self.known[segment_id]
        return [x for x in self.records[last + 1].segments if x.overlaps(segment)], self.records[last].segments


def span(records: Sequence[EpochRecord], cut: Cut) -> dict[int, int]:
    """Each segment with the highest epoch that has it, from the newest of the cut's epochs down."""
    found = {}
    for number in range(max(map(epoch_of, cut)), -1, -1):
        for each in cut:
            if each not in found and records[number].find(each) is not None:
                found[each] = number
    return found


def segments_at(records: Sequence[EpochRecord], epoch: int, cut: Cut) -> dict[int, int]:
    """An epoch's segments seen through a truncation, pair by pair."""
    known = {each.id: each for record in records for each in record.segments}
    epochs = span(records, cut).values()
    if epoch < min(epochs):
        return dict(cut)
    if epoch > max(epochs):
        return {x.id: 0 for x in records[epoch].segments}
    found = {}
    for x in records[epoch].segments:
        for each in cut:
            if known[each].overlaps(x):
                chosen = max(each, x.id)
                found[chosen] = cut.get(chosen, 0)
    return found


def reachable(records: Sequence[EpochRecord], states_max: int) -> list[frozenset[int]] | None:
    """Every set of segments that a reader may have read to their ends; None if there are more than this."""
    found = [frozenset[int]()]
    known = set(found)
    for finished in found:
        reader = Reader(records)
        for each in sorted(finished):
            reader.finish(each)
        for each in reader.live():
            then = finished | {each}
            if reader.around(each)[0] and then not in known:
                known.add(then)
                found.append(then)
        if len(found) > states_max:
            return None
    return found


def is_possible(records: Sequence[EpochRecord], cut: Cut, states: Iterable[frozenset[int]]) -> bool:
    """Whether some reader is at a cut: at each key at the oldest segment that it has not read to its end."""
    known = {each.id: each for record in records for each in record.segments}
    keys = sorted({each.key_start for each in known.values()})
    for finished in states:
        left = [each for each in known.values() if each.id not in finished]
        position = {key: min(each.id for each in left if holds(each, key)) for key in keys}
        is_named = all(each in cut for each in position.values())
        has_begun = all(
            position[key] == each
            for each, offset in cut.items()
            if offset >= 0
            for key in keys
            if holds(known[each], key)
        )
        if is_named and has_begun and not finished & set(cut):
            return True
    return False


def has_idle(records: Sequence[EpochRecord], cut: Cut) -> bool:
    """Whether a cut has a future segment that is the position at none of its keys."""
    known = {each.id: each for record in records for each in record.segments}
    keys = sorted({each.key_start for each in known.values()})

    def position(key: float) -> int:
        here = sorted((offset < 0, each) for each, offset in cut.items() if holds(known[each], key))
        return here[0][1] if here else -1

    return any(offset < 0 and each not in set(map(position, keys)) for each, offset in cut.items())


def is_valid(records: Sequence[EpochRecord], cut: Cut) -> bool:
    """Key by key: at each bound, as nothing changes between two of them."""
    known = {each.id: each for record in records for each in record.segments}
    if not set(cut) <= set(known):
        return False
    live = [known[each] for each, offset in cut.items() if offset >= 0]
    future = [known[each] for each, offset in cut.items() if offset < 0]
    if any(a.id < b.id and a.overlaps(b) for a in live for b in live):
        return False
    if any(f.overlaps(each) and each.id > f.id for f in future for each in live):
        return False
    gaps, read = {}, set()
    for key in sorted({each.key_start for each in known.values()} | {each.key_end for each in known.values()} - {1.0}):
        held = [each.id for each in live if holds(each, key)]
        read |= {x.id for x in known.values() if held and holds(x, key) and x.id < held[0]}
        if not held:
            gaps[key] = sorted(each.id for each in future if holds(each, key))
    if not all(gaps.values()):
        return False
    positions = {waiting[0] for waiting in gaps.values()}
    for key, waiting in gaps.items():
        counting = [waiting[0], *(each for each in waiting if each not in positions)]
        read |= {x.id for x in known.values() if holds(x, key) and x.id < max(counting) and x.id not in cut}
    return not any(each < x and known[each].overlaps(known[x]) for x in read for each in cut)


def holds(segment: SegmentRecord, key: float) -> bool:
    return segment.key_start <= key < segment.key_end
