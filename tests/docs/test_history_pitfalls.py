"""Each pitfall that tests/accel/history/pitfalls.md names is held by the tests that it names."""

from __future__ import annotations

import ast
import re

from tests.docs.pages import ROOT

PAGE = (ROOT / "tests/accel/history/pitfalls.md").read_text()
ROW = re.compile(r"^\| ([AD]\d+) \|.*\| ([^|]+) \|$", re.MULTILINE)
HELD_BY = dict(ROW.findall(PAGE))


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
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef):
                continue
            said = re.match(r"Pitfall ([AD]\d+)", ast.get_docstring(node) or "")
            if said and said[1] in HELD_BY:
                assert f"`{path.relative_to(ROOT / 'tests')}::{node.name}`" in HELD_BY[said[1]]
