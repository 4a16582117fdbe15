"""What lookups on live streams cost, to the request: whatever decides where to look is pinned by these counts.

A count that changes is not wrong by itself. If it went down for a reason, write the new one here, and run
`python -m benchmarks cold_requests` for the tables of docs/operations/benchmarks.md.
"""

from __future__ import annotations

import functools

import pytest

from benchmarks.lookups import (
    KINDS,
    ColdReader,
    End,
    Node,
    cold_lookup,
    empty_knowledge,
    make_cold_node,
    offsets,
    with_end,
    with_snapshot,
)
from loaders.plan import Spread

OBJECTS, SEEDS = 800, 6

Total = tuple[int, int]
"""GETs and rounds, over all nodes of a kind."""

TOTALS: dict[tuple[str, str], tuple[Total, Total]] = {
    ("dense", "head"): ((48, 6), (48, 6)),
    ("dense", "middle"): ((144, 18), (152, 24)),
    ("dense", "tail"): ((64, 8), (48, 6)),
    ("10 %", "head"): ((134, 11), (249, 20)),
    ("10 %", "middle"): ((501, 43), (596, 55)),
    ("10 %", "tail"): ((176, 16), (229, 20)),
    ("1 %", "head"): ((698, 32), (1528, 56)),
    ("1 %", "middle"): ((1690, 65), (1632, 66)),
    ("1 %", "tail"): ((685, 28), (889, 36)),
    ("1 % bursty", "head"): ((1332, 45), (1837, 57)),
    ("1 % bursty", "middle"): ((1516, 49), (2067, 62)),
    ("1 % bursty", "tail"): ((2078, 57), (1545, 47)),
}
"""(kind, place) -> with the end told, and unknown."""


@functools.cache
def nodes_of(kind: str) -> list[Node]:
    share, clusters = KINDS[kind]
    return [make_cold_node(OBJECTS, share, seed, clusters=clusters) for seed in range(SEEDS)]


def total_of(nodes: list[Node], place: str, *, length: int = -1, limit: int = 1) -> Total:
    """What lookups at a place cost in all; of so many offsets, or with an open end."""
    gets = rounds = 0
    for node in nodes:
        (start,) = offsets(node, place, 1, seed=7)
        end = -1 if length < 0 else start + length
        answer, cost = cold_lookup(node, empty_knowledge(), Spread(), start, end, limit)
        assert answer.objects[0].start <= start < answer.objects[0].end
        gets, rounds = gets + cost.gets, rounds + cost.rounds
    return gets, rounds


@pytest.mark.parametrize(("kind", "place"), TOTALS)
def test_a_cold_lookup_costs_exactly_this(kind: str, place: str) -> None:
    told, unknown = TOTALS[kind, place]
    nodes = nodes_of(kind)
    assert total_of(nodes, place) == told
    assert total_of([with_end(node, End.UNKNOWN) for node in nodes], place) == unknown


@pytest.mark.parametrize(("kind", "place"), TOTALS)
def test_a_live_stream_costs_what_a_closed_range_costs_and_a_definite_end_what_an_open_one_does(
    kind: str, place: str
) -> None:
    nodes = nodes_of(kind)
    told, unknown = TOTALS[kind, place]
    assert total_of([with_end(node, End.CLOSED) for node in nodes], place) == told
    assert total_of(nodes, place, length=1) == told
    assert total_of([with_end(node, End.UNKNOWN) for node in nodes], place, length=1) == unknown


@pytest.mark.parametrize(
    ("kind", "expected"), [("dense", (144, 18)), ("10 %", (604, 55)), ("1 %", (2194, 85)), ("1 % bursty", (3100, 102))]
)
def test_what_follows_the_first_object_costs_exactly_this(kind: str, expected: Total) -> None:
    assert total_of(nodes_of(kind), "middle", limit=4) == expected


def hinted_cost(
    objects: int, at: int, *, newer: int = 0, root_known: bool, length: int = -1, end: End = End.TOLD
) -> Total:
    """What a lookup of the stream's object at a position costs, where a snapshot covers all but the newest objects."""
    node = with_end(make_cold_node(objects, 1.0, 3), end)
    _, start, _ = node.holders[at]
    reader = ColdReader(with_snapshot(node, newer), root_known=root_known)
    answer, cost = reader.look_up(start, -1 if length < 0 else start + length)
    assert answer.objects[0].start == start
    return cost.gets, cost.rounds


def test_a_root_is_worth_reading_for_more_than_32_candidates() -> None:
    assert hinted_cost(32, 16, root_known=False) == (10, 2)
    assert hinted_cost(33, 16, root_known=False) == (2, 2)


def test_entries_are_worth_asking_for_two_covered_candidates() -> None:
    assert hinted_cost(40, 20, newer=39, root_known=True) == (12, 2)
    assert hinted_cost(40, 20, newer=38, root_known=True) == (13, 3)


def test_up_to_16_objects_that_the_snapshot_does_not_cover_are_opened_in_one_round() -> None:
    assert hinted_cost(100, 100 - 16 + 2, newer=16, root_known=False) == (2 + 16, 3)
    assert hinted_cost(100, 100 - 17 + 2, newer=17, root_known=False) == (2 + 8, 4)


def test_where_nobody_tells_the_end_only_an_open_end_says_that_a_read_is_at_the_tail() -> None:
    for end, length, expected in ((End.UNKNOWN, -1, 5), (End.UNKNOWN, 1, 1), (End.TOLD, -1, 1), (End.TOLD, 1, 1)):
        assert hinted_cost(100, 50, newer=30, root_known=True, length=length, end=end) == (expected, 1)
