"""Which runs of neighbours may be merged: judged against a naive look at every run."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.compaction.grouping import GroupLimits, MergeCandidate, StreamTrail, earliest_starts
from range_index import ObjectRanges
from tests.accel.lookup.driving import make_ranges
from tests.examples import examples

MANY = GroupLimits(size_bytes=10**9, index_size_bytes=10**9, streams=10**9, sources=10**9)

Held = dict[int, tuple[int, int]]
"""What one object holds: stream -> [start, end)."""


@dataclass(frozen=True)
class Node:
    """A node's list, and the first kept offsets of its streams."""

    objects: list[Held]
    trimmed: dict[int, int]

    def facts(self, *, split_holes: bool = False, excluded: frozenset[int] = frozenset()) -> list[MergeCandidate]:
        """What planning finds out; each object has 10 bytes, its index 1 a stream."""
        ids = np.array(sorted(self.trimmed), dtype=np.int64)
        starts = np.array([self.trimmed[each] for each in sorted(self.trimmed)], dtype=np.int64)
        trail = StreamTrail(ids, starts, split_holes=split_holes)
        return [
            MergeCandidate(10, is_excluded=True)
            if position in excluded
            else trail.add(position, ranges_of(held), 10, len(held))
            for position, held in enumerate(self.objects)
        ]

    def kept(self, stream_id: int, first: int, last: int) -> list[tuple[int, int]]:
        """The ranges of a stream in a run that are not wholly below its first kept offset."""
        spans = [each[stream_id] for each in self.objects[first : last + 1] if stream_id in each]
        return [span for span in spans if span[1] > self.trimmed.get(stream_id, -1)]

    def streams(self, first: int, last: int) -> set[int]:
        """The streams of a run that a merge would keep."""
        found = {stream_id for each in self.objects[first : last + 1] for stream_id in each}
        return {each for each in found if self.kept(each, first, last)}

    def has_hole(self, first: int, last: int) -> bool:
        """Whether some stream breaks off within a run and goes on further up."""
        return any(
            before[1] != after[0]
            for stream_id in self.streams(first, last)
            for before, after in pairwise(self.kept(stream_id, first, last))
        )


def ranges_of(held: Held) -> ObjectRanges:
    return make_ranges([(stream_id, *span) for stream_id, span in held.items()])


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """Lists in which streams ascend, mostly without a gap."""
    ends: dict[int, int] = {}
    objects = []
    for _ in range(draw(st.integers(1, 9))):
        held = {}
        for stream_id in draw(st.sets(st.integers(1, 5), max_size=5)):
            start = ends.get(stream_id, 0) + draw(st.sampled_from([0, 0, 0, 0, 3]))
            ends[stream_id] = start + draw(st.integers(1, 4))
            held[stream_id] = (start, ends[stream_id])
        objects.append(held)
    trimmed = draw(st.dictionaries(st.integers(1, 5), st.integers(1, 20), max_size=3))
    return Node(objects, trimmed)


@given(nodes(), st.integers(1, 5), st.integers(1, 6), st.integers(1, 12), st.integers(1, 6), st.data())
@settings(max_examples=examples(300))
def test_a_run_may_be_merged_if_it_has_no_hole_and_keeps_to_the_limits(
    node: Node, streams: int, objects: int, index_size_bytes: int, sources: int, data: st.DataObject
) -> None:
    excluded = frozenset(data.draw(st.sets(st.integers(0, len(node.objects)), max_size=2)))
    limits = GroupLimits(size_bytes=10 * objects, index_size_bytes=index_size_bytes, streams=streams, sources=sources)

    def is_permitted(first: int, last: int) -> bool:
        run = range(first, last + 1)
        return (
            not excluded.intersection(run)
            and not node.has_hole(first, last)
            and len(node.streams(first, last)) <= streams
            and len(run) <= min(objects, sources)
            and sum(len(node.objects[at]) for at in run) <= index_size_bytes
        )

    found = earliest_starts(node.facts(excluded=excluded), limits)
    for last, earliest in enumerate(found):
        expected = [first for first in range(last) if is_permitted(first, last)]
        assert earliest == min(expected, default=last)


@given(nodes())
def test_holes_end_no_group_if_their_runs_get_objects_of_their_own(node: Node) -> None:
    assert earliest_starts(node.facts(split_holes=True), MANY) == [0] * len(node.objects)


def test_a_stream_that_goes_back_ends_the_group_whatever_is_trimmed_or_split() -> None:
    node = Node([{1: (10, 20)}, {2: (0, 5)}, {1: (5, 15)}, {2: (5, 9)}], {1: 30})
    for split_holes in (False, True):
        assert earliest_starts(node.facts(split_holes=split_holes), MANY) == [0, 0, 1, 1]


def test_the_same_ranges_in_many_objects_are_counted_once() -> None:
    held = [dict.fromkeys(range(100), (at, at + 1)) for at in range(50)]
    assert earliest_starts(Node(held, {}).facts(), GroupLimits(10**9, 10**9, 100, 10**9)) == [0] * 50
