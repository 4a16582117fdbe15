"""Tables of settings, counters, errors and policies name what the code has, all of it, with its defaults."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import accel.errors
from accel import ReadAccelerator, S3Settings, Settings, StaticImages, open_store
from accel.image import MetadataImage
from accel.lookup.stats import AcceleratorStats
from loaders.plan import POLICY_NAMES
from tests.docs.pages import ROOT, table_rows

OPERATIONS = ROOT / "docs" / "operations.md"
HOW_IT_WORKS = ROOT / "docs" / "how-it-works.md"


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
