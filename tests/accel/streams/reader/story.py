"""A stream that grows event by event and scales now and then, kept whole in memory: what readers are compared with."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

import numpy as np

from accel.history.rules.segments import SegmentRecord, Segments
from accel.history.rules.values import make_id
from accel.streams.rules.events import Event, EventBatch
from accel.streams.rules.frontier import Frontier
from accel.streams.rules.reader_core import AskEnd, Fill, ReaderCore, SegmentEnd, SegmentEvents, Step
from accel.streams.rules.settings import ReaderSettings

KEYS = 16
"""Events have one of so many keys, each in the middle of its share of the key space."""


class Story:
    """A stream of which everything is known.

    Attributes:
        segments: all there ever were, by id.
        batches: what was appended to each, in order.
        sealed: sizes of sealed segments.
        following: successors of sealed segments.
        told: of each key, the payloads in the order in which they were written.
    """

    def __init__(self, segments: int = 2) -> None:
        self.segments: dict[int, SegmentRecord] = {}
        self.batches: dict[int, list[EventBatch]] = {}
        self.sealed: dict[int, int] = {}
        self.following: dict[int, list[int]] = {}
        self.told: dict[int, list[bytes]] = {key: [] for key in range(KEYS)}
        self.epoch = self.number = self.value = self.count = 0
        bounds = [each / segments for each in range(segments)] + [1.0]
        for start, end in itertools.pairwise(bounds):
            self._create(start, end)

    @property
    def active(self) -> list[SegmentRecord]:
        """Segments that take events."""
        return [each for number, each in self.segments.items() if number not in self.sealed]

    def append(self, keys: Iterable[int], later: int = 1) -> None:
        """Events of some keys arrive at once: one batch for each segment."""
        self.value += later
        by_segment: dict[int, list[bytes]] = {}
        for key in keys:
            payload = f"{key}:{self.count}".encode()
            self.count += 1
            self.told[key].append(payload)
            by_segment.setdefault(self._owner(key), []).append(payload)
        for segment_id, payloads in by_segment.items():
            start = self.size(segment_id)
            offsets = np.arange(start, start + len(payloads) + 1)
            bounds = np.cumsum([0, *map(len, payloads)])
            batch = EventBatch(segment_id, self.value, offsets, b"".join(payloads), bounds)
            self.batches[segment_id].append(batch)

    def split(self, segment: SegmentRecord) -> None:
        """Two segments take the place of one."""
        middle = (segment.key_start + segment.key_end) / 2
        self._scale([segment], [(segment.key_start, middle), (middle, segment.key_end)])

    def merge(self, one: SegmentRecord, other: SegmentRecord) -> None:
        """One takes the place of two that touch."""
        self._scale([one, other], [(min(one.key_start, other.key_start), max(one.key_end, other.key_end))])

    def act(self, random: Random) -> None:
        """Something happens."""
        what = random.random()
        active = sorted(self.active, key=lambda each: each.key_start)
        if what < 0.12 and active:
            self.split(random.choice(active))
        elif what < 0.22 and len(active) > 1:
            at = random.randrange(len(active) - 1)
            self.merge(active[at], active[at + 1])
        else:
            self.append(random.choices(range(KEYS), k=random.randint(1, 5)), random.randint(0, 3))

    def size(self, segment_id: int) -> int:
        """Where a segment ends now."""
        known = self.batches[segment_id]
        return known[-1].next_offset if known else 0

    def ends(self) -> dict[int, int]:
        """The cut at the stream's end."""
        return {each.id: self.size(each.id) for each in self.active}

    def beginning(self) -> dict[int, int]:
        """The cut at its beginning."""
        return {number: 0 for number, each in self.segments.items() if not each.creation_epoch}

    def frontier(self, cut: Mapping[int, int]) -> Frontier:
        """A reader's place at a cut."""
        return Frontier([self.segments[each] for each in sorted(cut)], cut)

    def answer(self, core: ReaderCore, step: Step, random: Random | None = None) -> None:
        """Answer a step truthfully; with chance, with part of what there is."""
        if isinstance(step, AskEnd):
            core.take_end(step, self.end(step.segment_id))
        else:
            core.take_events(step, self.fill(step, random))

    def answer_all(self, core: ReaderCore) -> list[Step]:
        """Answer all that is asked, until nothing more is; gives what was asked."""
        asked: list[Step] = []
        while steps := core.next_steps():
            asked += steps
            for step in steps:
                self.answer(core, step)
        return asked

    def fill(self, fill: Fill, random: Random | None = None) -> SegmentEvents:
        """What a read of a segment gives."""
        found: list[EventBatch] = []
        size_bytes = 0
        for batch in self.batches[fill.segment_id]:
            if batch.next_offset <= fill.offset or (fill.end is not None and batch.offset >= fill.end):
                continue
            if size_bytes >= fill.max_bytes or (random is not None and found and random.random() < 0.5):
                break
            found.append(batch)
            size_bytes += batch.size_bytes
        return SegmentEvents(tuple(found), found[-1].next_offset if found else fill.offset, len(found))

    def end(self, segment_id: int) -> SegmentEnd:
        """Whether a segment is sealed, and by what it is followed."""
        following = tuple(self.segments[each] for each in self.following.get(segment_id, ()))
        return SegmentEnd(self.sealed.get(segment_id), following)

    def _scale(self, sealed: list[SegmentRecord], ranges: list[tuple[float, float]]) -> None:
        self.epoch += 1
        for each in sealed:
            self.sealed[each.id] = self.size(each.id)
        new = [self._create(start, end) for start, end in ranges]
        for each in sealed:
            self.following[each.id] = [follower.id for follower in new if follower.overlaps(each)]

    def _create(self, start: float, end: float) -> SegmentRecord:
        segment = SegmentRecord(make_id(self.epoch, self.number), self.value, start, end)
        self.number += 1
        self.segments[segment.id] = segment
        self.batches[segment.id] = []
        return segment

    def _owner(self, key: int) -> int:
        position = (key + 0.5) / KEYS
        return next(each.id for each in self.active if each.key_start <= position < each.key_end)


def told(events: Iterable[Event]) -> dict[int, list[bytes]]:
    """Payloads by key, in the order in which a reader gave them."""
    by_key: dict[int, list[bytes]] = {key: [] for key in range(KEYS)}
    for event in events:
        by_key[int(event.payload.split(b":")[0])].append(event.payload)
    return by_key


def taken(core: ReaderCore) -> int | None:
    """Take the next batch; gives its segment."""
    batch = core.take()
    return None if batch is None else batch.segment_id


def fill_of(core: ReaderCore, segment_id: int | None = None) -> Fill:
    """The only read that is asked for, of one segment or of all."""
    [step] = [each for each in core.next_steps() if segment_id is None or each.segment_id == segment_id]
    assert isinstance(step, Fill)
    return step


def is_tiling(story: Story, cut: Mapping[int, int]) -> bool:
    """Whether the segments of a cut cover all keys, each key's oldest once."""
    known = Segments.of(story.segments[each] for each in sorted(cut))
    live = [each for each in known if cut[each.id] >= 0]
    ends = sorted((each.key_start, each.key_end) for each in live)
    overlapping = any(one[1] > other[0] for one, other in itertools.pairwise(ends))
    covered = all(any(each.key_start <= (key + 0.5) / KEYS < each.key_end for each in known) for key in range(KEYS))
    return covered and not overlapping


def small(**changes: Any) -> ReaderSettings:
    """Bounds that are met at once."""
    bounds = {"fill_bytes": 16, "buffer_bytes_max": 64, "requests_max": 3, **changes}
    return ReaderSettings(**bounds)
