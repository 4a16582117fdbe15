"""The runner of mutants: what it makes of a module, that tests meet the mistake, and that the list by hand is true."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import pytest

from tests.mutants.areas import AREAS, ROOT, Area
from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.mutations import Module

SOURCE = '''
def floor(keys: list[int], key: int) -> int:
    """The position of the last key at or before."""
    found = -1
    while found + 1 < len(keys) and keys[found + 1] <= key:
        found += 1
    return found
'''


def test_each_mutant_is_one_edit_and_names_it() -> None:
    module = Module("floor.py", SOURCE)
    mutants = [module[number] for number in range(len(module))]
    keys = [each.key for each in mutants]
    assert len(keys) == len({each.source for each in mutants})
    both = "found + 1 < len(keys) and keys[found + 1] {} key"
    assert f"floor.py::floor: {both.format('<=')} -> {both.format('<')}" in keys
    assert "floor.py::floor: found += 1 -> pass" in keys
    assert "floor.py::floor: return found -> return None" in keys
    assert not any("docstring" in each or "list[int]" in each for each in keys)


@pytest.mark.parametrize("area", AREAS, ids=[each.name for each in AREAS])
def test_what_an_area_names_is_there(area: Area) -> None:
    assert area.paths
    missing = [each for each in area.tests if not (ROOT / each).exists()]
    assert not missing


RUN = """
import sys
from tests.mutants.areas import ROOT
from tests.mutants.mutations import Module
from tests.mutants.running import run_all

path = ROOT / "range_index/runs.py"
module = Module("range_index/runs.py", path.read_text())
wanted = "range_index/runs.py::floor: bisect_right(packed, key, 0, rows) - 1 -> bisect_right(packed, key, 0, rows) + 1"
[mutant] = [module[at] for at in range(len(module)) if module[at].key == wanted]
tests = ["tests/range_index/test_runs.py::test_the_floor_is_the_last_row_at_or_before_the_key"]
jobs = [(path, source, [tests]) for source in (path.read_text(), mutant.source)]
print({number: outcome.name for number, outcome, _ in run_all(jobs, [60.0, 60.0], 2)})
"""


def test_a_child_runs_the_tests_with_the_mutant_and_no_other_process_does() -> None:
    """In a process of its own: children are forked from one that has imported nothing of ours."""
    ran = subprocess.run([sys.executable, "-c", RUN], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603 - our own words
    assert ast.literal_eval(ran.stdout) == {0: "SURVIVED", 1: "DIED"}


def test_equivalent_mutants_exist_and_have_a_reason() -> None:
    for key, reason in EQUIVALENT.items():
        path, function = re.fullmatch(r"(.+?)::(.*?): .+", key, re.DOTALL).groups()  # type: ignore[union-attr]
        module = Module(path, (ROOT / path).read_text())
        assert key in {each.key for each in module.of_function(function)}
        assert len(reason.split()) >= 5
    assert {path for area in AREAS for path in area.paths} >= {ROOT / key.partition("::")[0] for key in EQUIVALENT}
