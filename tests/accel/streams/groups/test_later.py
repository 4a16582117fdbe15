"""The later of two positions at each key."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.history.rules.cuts import CutOrder, PlacedCut, compare, is_valid, later, place_offsets
from accel.history.rules.segments import SegmentRecord, Segments
from accel.history.rules.values import make_id
from accel.streams.rules.frontier import Frontier
from tests.accel.streams.groups.states import CREATED_MS, cut, named, segment
from tests.examples import examples

KEYS = 8
SIZE = 10

A, B, SPLIT, ALL = segment("0@0", 0.0, 0.5), segment("1@0", 0.5, 1.0), segment("2@1", 0.0, 0.5), segment("3@2", 0, 1.0)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ({"0@0": 3, "1@0": 5}, {"0@0": 4, "1@0": 2}, {"0@0": 4, "1@0": 5}),
        ({"0@0": 3, "1@0": 5}, {"2@1": 4, "1@0": 2}, {"2@1": 4, "1@0": 5}),
        ({"0@0": 3, "1@0": 5}, {"3@2": 1}, {"3@2": 1}),
        # One waits for 3@2 behind 0@0, and does not know of 2@1 yet, in which the other one is.
        ({"0@0": 3, "3@2": -1}, {"2@1": 4, "1@0": 2}, {"2@1": 4, "3@2": -1}),
        ({"0@0": 3, "3@2": -1}, {"2@1": 4, "3@2": -1}, {"2@1": 4, "3@2": -1}),
        # Nothing is left that 3@2 waits for.
        ({"2@1": 3, "3@2": -1}, {"1@0": 2, "3@2": -1}, {"3@2": -1}),
        ({"2@1": 3, "3@2": -1}, {"3@2": 0}, {"3@2": 0}),
    ],
)
def test_the_later_position_counts_key_by_key(
    one: dict[str, int], other: dict[str, int], expected: dict[str, int]
) -> None:
    first, second = (cut(each, A, B, SPLIT, ALL) for each in (one, other))
    assert named(later(first, second).cut) == expected
    assert named(later(second, first).cut) == expected


class Past:
    """A stream whose segments split and merge at a few keys, and those who follow each."""

    def __init__(self, random: Random, epochs: int) -> None:
        self.random = random
        self.active = [SegmentRecord(make_id(0, each), CREATED_MS, each / 4, (each + 1) / 4) for each in range(4)]
        self.begin = list(self.active)
        self.all = list(self.active)
        self.following: dict[int, list[SegmentRecord]] = {}
        for epoch in range(1, epochs + 1):
            self.scale(epoch)

    def scale(self, epoch: int) -> None:
        at = self.random.randrange(len(self.active))
        old = self.active[at : at + self.random.randint(1, 3)]
        start, end = old[0].key_start, old[-1].key_end
        inner = {self.random.randrange(int(start * KEYS), int(end * KEYS)) / KEYS for _ in range(2)} - {start}
        bounds = sorted({start, end} | inner)
        pairs = enumerate(pairwise(bounds))
        new = [SegmentRecord(make_id(epoch, number), CREATED_MS, *keys) for number, keys in pairs]
        self.active[at : at + len(old)] = new
        self.all += new
        for each in old:
            self.following[each.id] = [other for other in new if other.overlaps(each)]

    def walk(self, steps: int) -> PlacedCut:
        """Where a reader is after so many steps."""
        frontier = Frontier(self.begin, dict.fromkeys((each.id for each in self.begin), 0))
        for _ in range(steps):
            each = self.random.choice(frontier.started)
            frontier.reach(each, self.random.randint(0, SIZE))
            if frontier.offset(each) == SIZE and each in self.following:
                frontier.finish(each, self.following[each])
        return place_offsets(Segments.of(map(frontier.segment, frontier.cut())), frontier.cut())

    def at(self, cut: PlacedCut, key: float) -> tuple[int, int]:
        """The segment in which a position is at one key, and the offset: none that is read, then the lowest."""
        here = [each.id for each in cut.segments if each.key_start <= key < each.key_end]
        read = [each for each in here if cut.cut[each] >= 0]
        found = min(read or here)
        return found, cut.cut[found]


@settings(max_examples=examples(300), deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 8), st.integers(0, 80), st.integers(0, 80))
def test_it_is_a_position_that_is_nowhere_before_either_and_no_further_than_both(
    seed: int, epochs: int, steps: int, others: int
) -> None:
    past = Past(Random(seed), epochs)
    one, other = past.walk(steps), past.walk(others)
    found = later(one, other)
    assert is_valid(found, [Segments.of(past.all)])
    assert compare(found, one) is compare(found, other) is CutOrder.EQUAL_OR_AFTER
    for key in (each / KEYS for each in range(KEYS)):
        assert past.at(found, key) == max(past.at(one, key), past.at(other, key))
    assert later(other, one) == found
    assert later(found, one) == found
