"""The promises on cold requests: counts are exact, so they are asserted, as means over a fixed seed."""

from __future__ import annotations

import pytest

from benchmarks.lookups import (
    OBJECTS_MAX,
    SEED,
    STREAM_ID,
    Node,
    empty_knowledge,
    filters_known,
    make_cold_node,
    mean_cost,
    measure,
    offsets,
    persisted_cost,
)
from loaders.plan import LoadAll, Spread

QUERIES = 40
PLACES = ("head", "middle", "tail", "random")


@pytest.fixture(scope="module")
def dense() -> Node:
    return make_cold_node(OBJECTS_MAX, 1.0, SEED)


@pytest.fixture(scope="module")
def tenth() -> Node:
    return make_cold_node(OBJECTS_MAX, 0.1, SEED + 1)


@pytest.fixture(scope="module")
def hundredth() -> Node:
    return make_cold_node(OBJECTS_MAX, 0.01, SEED + 2)


def spread_cost(node: Node, place: str, count: int = QUERIES) -> tuple[float, float, float]:
    return mean_cost(measure(node, Spread(), offsets(node, place, count, SEED), empty_knowledge()))


def test_in_a_dense_list_spread_needs_at_most_32_gets_and_5_rounds(dense: Node) -> None:
    gets, rounds, _ = spread_cost(dense, "random")
    assert gets <= 32
    assert rounds <= 5


def test_where_one_in_ten_holds_the_stream_spread_needs_at_most_130_gets_and_12_rounds(tenth: Node) -> None:
    gets, rounds, _ = spread_cost(tenth, "random")
    assert gets <= 130
    assert rounds <= 12


@pytest.mark.parametrize("name", ["tenth", "hundredth"])
def test_with_all_filters_known_spread_needs_at_most_30_gets_and_6_rounds(
    name: str, request: pytest.FixtureRequest
) -> None:
    node: Node = request.getfixturevalue(name)
    places = offsets(node, "random", 8, SEED)
    gets, rounds, _ = mean_cost(measure(node, Spread(), places, filters_known(node)))
    assert gets <= 30
    assert rounds <= 6


@pytest.mark.parametrize("name", ["dense", "tenth", "hundredth"])
@pytest.mark.parametrize("place", PLACES)
def test_spread_never_costs_more_than_opening_everything(name: str, place: str, request: pytest.FixtureRequest) -> None:
    node: Node = request.getfixturevalue(name)
    starts = offsets(node, place, 6, SEED)
    everything = measure(node, LoadAll(), starts[:1], empty_knowledge())[0]
    assert everything.gets == OBJECTS_MAX
    for cost in measure(node, Spread(), starts, empty_knowledge()):
        assert cost.gets <= everything.gets
        assert cost.latencies <= everything.latencies


def test_the_production_way_opens_everything_from_the_floor_to_the_end(dense: Node) -> None:
    third = dense.holders[2]
    assert persisted_cost(dense, third[1]).gets == 1 + OBJECTS_MAX - third[0]
    assert persisted_cost(dense, dense.end - 1).gets == 2


def test_a_node_is_what_its_name_says(tenth: Node) -> None:
    assert 0.08 * OBJECTS_MAX < len(tenth.holders) < 0.12 * OBJECTS_MAX
    assert all(held.range_of(STREAM_ID) for held in (tenth.ranges[position] for position, *_ in tenth.holders))
