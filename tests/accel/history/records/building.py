"""Histories as brokers make them: segments split and merge."""

from __future__ import annotations

import random
from array import array
from itertools import pairwise

import numpy as np

from accel.history.rules.epochs import HistoryChunk, HistoryDelta
from accel.history.rules.segments import SegmentRecord, Segments
from accel.history.rules.values import IdMap, make_id

START_MS = 1_760_000_000_000


def jittered_times(count: int, *, seed: int = 1, start_ms: int = START_MS, step_ms: int = 1_000) -> array[int]:
    """An epoch a step, each up to a fifth of it early or late."""
    late = np.random.default_rng(seed).integers(-step_ms // 5, step_ms // 5 + 1, count)
    return array("q", (start_ms + np.arange(count) * step_ms + late).tobytes())


class Story:
    """A stream that goes from epoch to epoch.

    Args:
        seed: of all that happens.
        segments: at the beginning.
        halves: whether segments are split in the middle; else anywhere, so that no key resembles another.
    """

    def __init__(self, seed: int, segments: int, *, halves: bool = False) -> None:
        self.chance = random.Random(seed)
        self.halves = halves
        self.epoch = 0
        self.time_ms = START_MS
        self.next_number = segments
        ends = [*(each / segments for each in range(1, segments)), 1.0]
        self.live = [
            SegmentRecord(make_id(0, number), START_MS, number / segments, end) for number, end in enumerate(ends)
        ]

    def scale(self, operations: int) -> HistoryDelta:
        """One epoch in which so many segments split or pairs merge, of each about as many."""
        self._next_epoch()
        sealed: list[SegmentRecord] = []
        created: list[SegmentRecord] = []
        for _ in range(100 * operations):  # with few segments, all may be new before there were so many
            if sealed and len(sealed) >= operations * 3 // 2:
                break
            old, keys = self._merge() if self._may_merge() else self._split()
            if keys:
                new = [self._new(start, end) for start, end in pairwise(keys)]
                at = self.live.index(old[0])
                self.live[at : at + len(old)] = new
                sealed += old
                created += new
        return HistoryDelta(self.epoch, self.epoch, by_id(sealed), by_id(created), self.time_ms)

    def _next_epoch(self) -> None:
        self.epoch += 1
        self.time_ms += 1_000 + self.chance.randint(-200, 200)

    def _may_merge(self) -> bool:
        return len(self.live) > 2 and self.chance.random() < 0.5

    def _split(self) -> tuple[list[SegmentRecord], list[float]]:
        old = self.chance.choice(self.live)
        middle = (old.key_start + old.key_end) / 2
        key = middle if self.halves else self.chance.uniform(old.key_start, old.key_end)
        apart = old.key_start < key < old.key_end and old.creation_epoch < self.epoch
        return [old], [old.key_start, key, old.key_end] if apart else []

    def _merge(self) -> tuple[list[SegmentRecord], list[float]]:
        at = self.chance.randrange(len(self.live) - 1)
        old = self.live[at : at + 2]
        is_old = all(each.creation_epoch < self.epoch for each in old)
        return old, [old[0].key_start, old[1].key_end] if is_old else []

    def _new(self, start: float, end: float) -> SegmentRecord:
        self.next_number += 1
        return SegmentRecord(make_id(self.epoch, self.next_number - 1), self.time_ms, start, end)


def by_id(segments: list[SegmentRecord]) -> Segments:
    """Segments, ascending by id."""
    return Segments.of(sorted(segments, key=lambda each: each.id))


def chunk_of_scales(operations: int, *, segments: int, halves: bool = False, epochs: int = 1_000) -> HistoryChunk:
    """A chunk in which every epoch has so many operations, somewhere in the life of a stream."""
    story = Story(7, segments, halves=halves)
    return HistoryChunk.of([story.scale(operations) for _ in range(epochs)])


def shard_of_sizes(count: int) -> IdMap:
    """Sizes of so many segments, created one or two an epoch and sealed after some megabytes."""
    chance = np.random.default_rng(7)
    epochs = 31_000_000 + np.sort(chance.integers(0, 1_000, count))
    ids = epochs << 32 | np.arange(46_000_000, 46_000_000 + count)
    return IdMap(ids, chance.integers(1 << 20, 1 << 30, count))
