"""Every promise of docs/operations/reliability.md and docs/operations/security.md names a test that is there."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, page_named, table_rows

PAGES = [page_named("reliability"), page_named("security")]


def promises() -> list[tuple[str, str]]:
    """The promises of the pages, each with the tests that it names."""
    found = [row for page in PAGES for row in table_rows(page) if row[-1].startswith("`tests/")]
    return [(row[0], each.strip("`")) for row in found for each in row[-1].split(", ")]


@cache
def names_of(path: Path) -> frozenset[str]:
    """Functions, classes and methods of a file, methods as ``Class::method``."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = (each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
            found |= {f"{node.name}::{each.name}" for each in methods}
    return frozenset(found)


@pytest.mark.parametrize(("promise", "test"), promises())
def test_each_promise_names_a_test_that_is_there(promise: str, test: str) -> None:
    path, _, name = test.partition("::")
    assert (ROOT / path).is_file(), promise
    assert not name or name in names_of(ROOT / path), f"{promise}: {name}"


def test_the_pages_make_promises() -> None:
    assert len(promises()) > 30
