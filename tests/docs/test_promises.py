"""Each promise and pitfall of a page names tests that are there; each finding of a verification has a next step."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from accel.catalog.problems import ProblemKind
from accel.cli.objects import verify as object_verification
from tests.docs.pages import ROOT, page_named, prose

PROMISES = [page_named("reliability"), page_named("security")]
WITHOUT_TESTS = {"All at once: the simulation", "What is not promised", "Trust"}
"""Sections whose lists are no promises with a test each."""


def items() -> Iterator[tuple[str, str, list[str]]]:
    """The items of the pages' lists: heading, text, and the tests that the item names."""
    for page in PROMISES:
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


def is_there(test: str) -> bool:
    """Whether there is a file of this path, and a test of this name in it, if one is named."""
    path, _, name = test.partition("::")
    return (ROOT / path).is_file() and (not name or name in names_of(ROOT / path))


def test_each_promise_names_a_test_that_is_there() -> None:
    assert [(promise, test) for promise, test in promises() if not is_there(test)] == []


def test_every_promise_names_a_test() -> None:
    assert [text for heading, text, tests in items() if heading not in WITHOUT_TESTS and not tests] == []


def test_the_pages_make_promises() -> None:
    assert len(promises()) > 120


PITFALLS = (ROOT / "tests/accel/history/pitfalls.md").read_text()
ROW = re.compile(r"^\| ([AD]\d+) \|.*\| ([^|]+) \|$", re.MULTILINE)
HELD_BY = dict(ROW.findall(PITFALLS))


def first_line_of(name: str) -> str:
    """What a test, named by file and function, says of itself."""
    path, test = name.split("::")
    tree = ast.parse((ROOT / "tests" / path).read_text())
    (found,) = (each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == test)
    return (ast.get_docstring(found) or "").split("\n")[0]


def test_every_pitfall_is_named() -> None:
    assert list(HELD_BY) == [*(f"A{number}" for number in range(1, 26)), *(f"D{number}" for number in range(1, 10))]


def test_the_tests_that_hold_a_pitfall_say_so_in_their_first_line() -> None:
    for pitfall, tests in HELD_BY.items():
        names = re.findall(r"`([^`]+)`", tests)
        assert names, pitfall
        for name in names:
            assert first_line_of(name).startswith(f"Pitfall {pitfall}: "), name


def test_no_other_test_says_so() -> None:
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if re.search(r"\bPitfall [AD]\d", text) else ():
            if not isinstance(node, ast.FunctionDef):
                continue
            said = re.match(r"Pitfall ([AD]\d+)", ast.get_docstring(node) or "")
            if said and said[1] in HELD_BY:
                assert f"`{path.relative_to(ROOT / 'tests')}::{node.name}`" in HELD_BY[said[1]]


REPAIR = page_named("repair").read_text()


def findings(heading: str) -> set[str]:
    """What stands between backticks before the colon in each item of the list below a heading."""
    below = REPAIR[REPAIR.index(f"## {heading}") :]
    items = re.findall(r"^- (`[^:]*`): \S", below[: below.find("\n## ", 3)], re.MULTILINE)
    return {name for item in items for name in re.findall(r"`([^`]+)`", item)}


def test_each_finding_of_a_catalog_has_a_next_step() -> None:
    assert findings("What verify finds in a catalog") == {*ProblemKind, "UNCHECKED", "orphan"}


def test_each_check_of_an_object_has_a_next_step() -> None:
    source = inspect.getsource(object_verification)
    checks = set(re.findall(r"(?:\.problem\(|_compare\(checked, )\"([a-z-]+)\"", source))
    assert len(checks) >= 6
    assert findings("What verify finds in objects") == {*checks, "ORDER", "UNCHECKED"}
