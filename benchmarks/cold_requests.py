"""How many requests a cold lookup costs, under each policy and with or without filters, on nodes of 5,000 objects.

Counts are exact, not measured: they are the same on every machine. The peer is to open everything at once, as was done
before; beside it stands the production system's own way. Rows are means over random offsets of one node each:

- *dense*: every object holds the stream; *10 %* and *1 %*: so many do; *1 % bursty*: they lie in five clusters.
- *head*, *middle*, *tail*: offsets in the first, the middle and the last object of the stream; *random*: anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.cold_nodes import (
    OBJECTS_MAX,
    Node,
    empty_knowledge,
    filters_known,
    make_cold_node,
    mean_cost,
    measure,
    offsets,
    production_cost,
)
from benchmarks.harness import Comparison
from loaders.plan import LoadAll, Policy, Spread, Window, WindowPreload

PLACES = ("head", "middle", "tail", "random")
SEED = 20261121
RANDOM_OFFSETS = 8

STATELESS: tuple[Policy, ...] = (Window(), WindowPreload(), Spread())


def nodes() -> dict[str, Node]:
    """The nodes that are measured, by name."""
    return {
        "dense": make_cold_node(OBJECTS_MAX, 1.0, SEED),
        "10 %": make_cold_node(OBJECTS_MAX, 0.1, SEED + 1),
        "1 %": make_cold_node(OBJECTS_MAX, 0.01, SEED + 2),
        "1 % bursty": make_cold_node(OBJECTS_MAX, 0.01, SEED + 3, clusters=5),
    }


def run(rounds: int = 7) -> list[Comparison]:  # noqa: ARG001 - counts are exact, so there is nothing to repeat
    """Mean GETs and latencies of each policy against opening everything, at the same offsets for all."""
    return [row for name, node in nodes().items() for row in _of_node(name, node)]


def _of_node(name: str, node: Node) -> Iterator[Comparison]:
    known = filters_known(node)
    for place in PLACES:
        starts = offsets(node, place, RANDOM_OFFSETS if place == "random" else 3, SEED)
        everything = mean_cost(measure(node, LoadAll(), starts[:1], empty_knowledge()))
        for policy in STATELESS:
            ours = mean_cost(measure(node, policy, starts, empty_knowledge()))
            yield from _rows(f"{name}, {place}, {policy.name}", ours, everything)
        filtered = mean_cost(measure(node, Spread(), starts, known))
        yield from _rows(f"{name}, {place}, spread + filters", filtered, everything)
        production = mean_cost([production_cost(node, start) for start in starts])
        yield from _rows(f"{name}, {place}, persisted sparse index", production, everything)


def _rows(name: str, ours: tuple[float, float, float], everything: tuple[float, float, float]) -> Iterator[Comparison]:
    for column, unit in ((0, "GETs"), (2, "latencies")):
        yield Comparison(
            name=f"cold_requests: {name}",
            value=ours[column],
            unit=unit,
            peer="load-all",
            peer_value=everything[column],
            ratio=everything[column] / ours[column],
            runs=1,
        )
