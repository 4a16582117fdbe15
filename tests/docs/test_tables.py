"""Settings, counters, errors and policies of the code are explained, all of them.

The tables of what a cold lookup costs are compared with a run. Counts are the same on every machine, so a row that is
stale fails; those rows are run that take a moment, and `python -m benchmarks cold_requests` prints the others.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

import accel.errors
from accel import ReadAccelerator, StaticImages, open_store
from accel.image import MetadataImage
from accel.lookup.stats import AcceleratorStats
from benchmarks.lookups import (
    KINDS,
    LONG_LIST_OBJECTS,
    OBJECTS_MAX,
    PLACES,
    End,
    Means,
    Node,
    mean_of,
    mean_production,
    nodes_of,
    with_end,
)
from loaders.plan import POLICY_NAMES, LoadAll, Policy, Spread, Window, WindowPreload
from tests.docs.costs import POLICIES, STREAMS, cost_tables
from tests.docs.pages import cost_text, page_named, table_rows
from tests.docs.site import COUNTERS, SETTINGS, _errors

OPERATIONS = page_named("operations")
LOOKUP = page_named("lookup")


def first_cells(page: Any) -> dict[str, list[str]]:
    """Rows by their first cell, where that is code."""
    return {row[0].split("`")[1]: row[1:] for row in table_rows(page) if row[0].startswith("`")}


def named(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def test_every_setting_is_documented_where_it_is_declared() -> None:
    lacking = []
    for _, path in SETTINGS:
        settings = named(path)
        docs = "\n".join(inspect.getdoc(each) or "" for each in settings.__mro__ if dataclasses.is_dataclass(each))
        documented = set(re.findall(r"^ +([a-z_, ]+): ", docs, re.MULTILINE))
        names = {each for group in documented for each in group.split(", ")}
        lacking += [(path, each.name) for each in dataclasses.fields(settings) if each.name not in names]
    assert lacking == []


def counters(stats: Any, prefix: str = "") -> Iterator[str]:
    """The names of all numbers, as paths."""
    for each in dataclasses.fields(stats):
        value = getattr(stats, each.name)
        name = f"{prefix}{each.name}"
        if dataclasses.is_dataclass(value):
            yield from counters(value, f"{name}.")
        else:
            yield name


def test_every_counter_that_the_operations_page_names_exists() -> None:
    image = MetadataImage.from_dict({"streams": []})
    with ReadAccelerator(StaticImages(image), open_store("memory://test-tables")) as accelerator:
        stats: AcceleratorStats = accelerator.stats()
    names = set(counters(stats))
    told = set(re.findall(r"`((?:lookups|knowledge|loader|hints|hedging)\.[a-z_.]+)`", OPERATIONS.read_text()))
    assert len(told) >= 15
    assert told <= names


def test_every_counter_is_documented_where_it_is_declared() -> None:
    found = [(path, each.name) for path in COUNTERS for each in dataclasses.fields(named(path))]
    assert [each for each in found if not re.search(rf"\b{each[1]}\b", inspect.getdoc(named(each[0])) or "")] == []


def test_every_error_has_a_meaning_and_advice() -> None:
    page = _errors()
    bases = {base.__name__ for name in accel.errors.__all__ for base in getattr(accel.errors, name).__bases__}
    for name in set(accel.errors.__all__) - bases:
        [row] = [row for row in page.splitlines() if row.startswith(f"| `{name}` |")]
        _, _, meaning, _, advice, _ = row.split("|", 5)
        assert min(len(meaning.split()), len(advice.split())) >= 2, row


def test_every_policy_is_explained() -> None:
    rows = first_cells(LOOKUP)
    assert [each for each in POLICY_NAMES if each not in rows] == []


# -- what a cold lookup costs ------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=2)
def nodes(kind: str, objects: int) -> list[Node]:
    return nodes_of(kind, objects)


def unknown(kind: str, objects: int) -> list[Node]:
    return [with_end(node, End.UNKNOWN) for node in nodes(kind, objects)]


def told(means: Means) -> str:
    gets, _, latencies = means
    return cost_text(gets, latencies)


def test_the_tables_of_costs_have_a_row_for_each_stream_and_place() -> None:
    whole = [(stream, place) for stream in STREAMS.values() for place in PLACES]
    assert [list(table) for table in cost_tables()] == [whole] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_the_tables_say_what_spread_costs_on_5000_objects(kind: str) -> None:
    everything, _, foreign = cost_tables()
    for place in PLACES:
        row = STREAMS[kind], place
        assert (*row, everything[row][4]) == (*row, told(mean_of(nodes(kind, OBJECTS_MAX), place, Spread())))
        assert (*row, foreign[row][0]) == (*row, told(mean_of(unknown(kind, OBJECTS_MAX), place, Spread())))
        assert (*row, everything[row][1]) == (*row, told(mean_production(nodes(kind, OBJECTS_MAX), place)))


@pytest.mark.parametrize("place", ["head", "tail"])
def test_the_table_says_what_spread_costs_on_20000_objects(place: str) -> None:
    _, long, foreign = cost_tables()
    row = STREAMS["10 %"], place
    measured = nodes("10 %", LONG_LIST_OBJECTS)
    assert long[row][:2] == [told(mean_of(measured[:1], place, LoadAll())), told(mean_of(measured, place, Spread()))]
    assert foreign[row][1] == told(mean_of(unknown("10 %", LONG_LIST_OBJECTS), place, Spread()))


@pytest.mark.parametrize(
    ("kind", "place", "policy"),
    [
        ("10 %", "head", LoadAll()),
        ("10 %", "head", Window()),
        ("1 %", "head", Window()),
        ("10 %", "head", WindowPreload()),
        ("10 %", "random", WindowPreload()),
        ("1 %", "tail", WindowPreload()),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_the_table_says_what_other_policies_cost(kind: str, place: str, policy: Policy) -> None:
    measured = nodes(kind, OBJECTS_MAX)
    cell = cost_tables()[0][STREAMS[kind], place][POLICIES.index(policy.name)]
    assert cell == told(mean_of(measured[:1] if policy.name == "load-all" else measured, place, policy))


@pytest.mark.parametrize("place", ["middle", "tail"])
def test_the_table_says_what_spread_costs_with_filters(place: str) -> None:
    cell = cost_tables()[0][STREAMS["1 %"], place][POLICIES.index("spread, filters known")]
    assert cell == told(mean_of(nodes("1 %", OBJECTS_MAX), place, Spread(), filters=True))
