"""Every promise of docs/operations/reliability.md and docs/operations/security.md names a test that is there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, page_named, prose

PAGES = [page_named("reliability"), page_named("security")]
WITHOUT_TESTS = {"All at once: the simulation", "What is not promised", "Trust"}
"""Sections whose lists are no promises with a test each."""


def items() -> Iterator[tuple[str, str, list[str]]]:
    """The items of the pages' lists: heading, text, and the tests that the item names."""
    for page in PAGES:
        for section in re.split(r"^#+ ", prose(page), flags=re.MULTILINE):
            heading, _, text = section.partition("\n")
            for item in re.findall(r"^- (.*?)(?=^- |^$|\Z)", text, re.MULTILINE | re.DOTALL):
                yield heading, " ".join(item.split()), re.findall(r"`(tests/[^`]+)`", item)


def promises() -> list[tuple[str, str]]:
    """The promises of the pages, each with the tests that it names."""
    return [(text.partition(" `tests/")[0], test) for _, text, tests in items() for test in tests]


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


def test_every_promise_names_a_test() -> None:
    assert [text for heading, text, tests in items() if heading not in WITHOUT_TESTS and not tests] == []


def test_the_pages_make_promises() -> None:
    assert len(promises()) > 120
