"""Tables of settings, counters, errors and policies name what the code has, all of it, with its defaults.

The tables of what a cold lookup costs are compared with a run. Counts are the same on every machine, so a row that is
stale fails; those rows are run that take a moment, and `python -m benchmarks cold_requests` prints the others.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import pytest

import accel.errors
from accel import ReadAccelerator, S3Settings, Settings, StaticImages, open_store
from accel.image import MetadataImage
from accel.lookup.stats import AcceleratorStats
from benchmarks.cold_requests import (
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
from tests.docs.pages import cost_text, page_named, table_rows

OPERATIONS = page_named("operations")
HOW_IT_WORKS = page_named("how-it-works")


def first_cells(page: Any) -> dict[str, list[str]]:
    """Rows by their first cell, where that is code."""
    return {row[0].split("`")[1]: row[1:] for row in table_rows(page) if row[0].startswith("`")}


def shown(value: Any) -> str:
    """A default as a person writes it."""
    mebibytes, rest = divmod(value, 1 << 20) if type(value) is int else (0, 1)
    if mebibytes and not rest:
        return f"{mebibytes} MiB"
    if isinstance(value, float):
        return f"{value:g} s"
    return f"{value:,}" if type(value) is int else str(value)


def test_every_setting_stands_in_the_operations_page_with_its_default() -> None:
    rows = first_cells(OPERATIONS)
    for settings in (Settings, S3Settings):
        expected = {each.name: shown(each.default) for each in dataclasses.fields(settings)}
        assert {name: rows.get(name, [""])[0].strip("`") for name in expected} == expected


def counters(stats: Any, prefix: str = "") -> Iterator[str]:
    """The names of all numbers, as paths."""
    for each in dataclasses.fields(stats):
        value = getattr(stats, each.name)
        name = f"{prefix}{each.name}"
        if dataclasses.is_dataclass(value):
            yield from counters(value, f"{name}.")
        else:
            yield name


def test_every_counter_stands_in_the_operations_page_and_nothing_else_does() -> None:
    image = MetadataImage.from_dict({"streams": []})
    with ReadAccelerator(StaticImages(image), open_store("memory://test-tables")) as accelerator:
        stats: AcceleratorStats = accelerator.stats()
    rows = first_cells(OPERATIONS)
    names = set(counters(stats))
    assert names - rows.keys() == set()
    parts = {name.partition(".")[0] for name in names if "." in name}
    assert {row for row in rows if row.partition(".")[0] in parts and "." in row} - names == set()


def test_every_error_of_a_lookup_stands_in_the_runbook() -> None:
    text = OPERATIONS.read_text()
    kinds = set(accel.errors.__all__) - {"AccelError", "StoreError", "FormatError"}
    assert [each for each in sorted(kinds) if f"`{each}`" not in text] == []


def test_every_policy_is_explained() -> None:
    rows = first_cells(HOW_IT_WORKS)
    assert [each for each in POLICY_NAMES if each not in rows] == []


# -- what a cold lookup costs ------------------------------------------------------------------------------------------

STREAMS = dict(zip(KINDS, ("dense", "in 10 %", "in 1 %", "in 1 %, bursty"), strict=True))
"""What the page calls the streams of the benchmark."""

POLICIES = ("load-all", "persisted index", "window", "window+preload", "spread", "spread, filters known")


@functools.cache
def cost_tables() -> list[dict[tuple[str, str], list[str]]]:
    """By stream and place the cells of the tables: all policies, 20,000 objects, and an end that nobody tells."""
    tables: list[dict[tuple[str, str], list[str]]] = []
    stream = ""
    for cells in table_rows(HOW_IT_WORKS):
        if cells[:2] == ["stream", "read"]:
            tables.append({})
        elif tables and cells[1:2] and cells[1] in PLACES:
            stream = cells[0] or stream
            tables[-1][stream, cells[1]] = cells[2:]
    return tables


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
