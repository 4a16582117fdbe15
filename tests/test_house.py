"""Rules of the house that no linter knows: what is exported exists, and nothing grows too long."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.budget import figures
from tests.counting import ROOT, parsed

PACKAGES = ("accel", "bloom", "range_index", "loaders", "spark_jobs")
MODULE_LINES_MAX = 800
MODULE_LINES_MIN = 60
SMALL_MODULES_MAX = 20
FUNCTION_LINES_MAX = 70
BUDGET = {
    "code lines": 61_454,
    "code lines without benchmarks and optional rooms": 54_554,
    "files outside tests": 316,
    "circles of imports": 0,
    "arrows that run up": 0,
    "commands": 47,
    "settings: classes": 13,
    "settings: fields": 96,
    "names of accel.__all__": 43,
    "lines of tests": 101_521,
    "decision records": 19,
    "words of decision records": 9_000,
    "words of the changelog": 202,
}
"""The largest figures of the tree, as `python -m tests.budget` counts them. They only fall: who takes something away
lowers them. A change that raises one says in its message what the project gets for it."""


def modules() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize(
    "name",
    [
        "accel",
        "accel.compaction",
        "accel.testing",
        "bloom",
        "range_index",
        "loaders.format",
        "loaders.hints",
        "loaders.store",
    ],
)
def test_what_a_package_exports_exists_and_is_sorted(name: str) -> None:
    package = importlib.import_module(name)
    exported = list(package.__all__)
    assert exported == sorted(set(exported), key=lambda each: (not each.isupper(), not each[0].isupper(), each))
    assert [each for each in exported if not hasattr(package, each)] == []


def test_no_module_is_longer_than_a_person_can_hold_in_mind() -> None:
    long = {str(path): count for path in modules() if (count := len(path.read_text().splitlines())) > MODULE_LINES_MAX}
    assert long == {}


def test_few_modules_are_too_small_to_hold_an_idea() -> None:
    small = [path for path in modules() if len(path.read_text().splitlines()) < MODULE_LINES_MIN]
    assert len([path for path in small if path.name != "__init__.py"]) <= SMALL_MODULES_MAX


def test_the_tree_keeps_its_budget() -> None:
    found = figures()
    assert found.keys() == BUDGET.keys()
    assert {name: figure for name, figure in found.items() if figure > BUDGET[name]} == {}


def test_no_function_is_longer_than_a_page() -> None:
    long = [
        f"{path}:{each.lineno} {each.name}"
        for path in modules()
        for each in functions(path)
        if (each.end_lineno or 0) - each.lineno >= FUNCTION_LINES_MAX
    ]
    assert long == []


def modules_loaded_by(code: str) -> set[str]:
    told = f"{code}\nimport sys\nprint('\\n', *sys.modules)"
    run = subprocess.run([sys.executable, "-c", told], cwd=ROOT, check=True, capture_output=True, text=True)  # noqa: S603 - our own words
    return set(run.stdout.splitlines()[-1].split())


HEAVY = {"boto3", "obstore", "pyarrow", "pyspark", "moto", "click", "rich", "pybloom_live", "asyncio"}


def test_importing_accel_loads_nothing_but_the_errors() -> None:
    loaded = modules_loaded_by("import accel")
    assert loaded.isdisjoint(HEAVY | {"numpy", "msgspec", "logging", "concurrent.futures"})
    assert {name for name in loaded if name.startswith("accel.")} == {"accel.errors"}


def test_a_reader_loads_what_reads_and_no_more() -> None:
    loaded = modules_loaded_by("from accel import MetadataImage, ReadAccelerator, Settings, StaticImages, open_store")
    assert loaded.isdisjoint(HEAVY)
    unneeded = ("accel.catalog", "accel.streams", "accel.history", "accel.lookup.explain", "loaders.store.s3")
    assert {name for name in loaded if name.startswith(unneeded)} == set()


def test_the_list_of_commands_loads_none_of_them() -> None:
    code = "from accel.cli.main import main; main(['--help'], standalone_mode=False)"
    loaded = modules_loaded_by(code)
    assert loaded.isdisjoint(HEAVY - {"click"} | {"numpy", "msgspec", "accel.rendering", "accel.image"})
    cli = {name for name in loaded if name.startswith(("accel.cli.", "spark_jobs."))}
    assert cli == {f"accel.cli.{name}" for name in ("main", "ending", "groups", "config_file", "standard_streams")}


RUNS_CODE = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "yaml", "jsonpickle"}
RUNS_TEXT = {"eval", "exec", "compile", "__import__"}


def imported_by(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_no_package_runs_code_that_it_reads() -> None:
    found = []
    for path in modules():
        text = path.read_text()
        found += [f"{path}: allow_pickle"] * ("allow_pickle=True" in text)
        if {*re.findall(r"\w+", text)}.isdisjoint(RUNS_CODE | RUNS_TEXT):
            continue
        tree = parsed(path)
        found += [f"{path}: {name}" for name in imported_by(tree) if name.partition(".")[0] in RUNS_CODE]
        called = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
        names = {each.id for each in called if isinstance(each, ast.Name)}
        found += [f"{path}: {name}()" for name in names & RUNS_TEXT]
    assert found == []


SECURITY_EXCEPTIONS = {
    ("accel/image_source.py", "S310"),
    ("accel/cli/doctor.py", "S603"),
    ("spark_jobs/session.py", "S603"),
    ("accel/cli/serving.py", "S104"),
    ("accel/cli/serving.py", "S105"),
    ("accel/streams/shared/forwarding.py", "S105"),
    ("accel/streams/shared/forwarding.py", "S104"),
    ("accel/cli/demo.py", "S311"),
}
"""Modules that do not keep a rule of security; the comment there has the reason."""


def test_exceptions_from_rules_of_security_are_these_and_have_a_reason() -> None:
    found = set()
    for path in modules():
        for codes, reason in re.findall(r"# noqa: ([A-Z0-9, ]*[0-9])(.*)", path.read_text()):
            for code in re.findall(r"\bS\d{3}\b", codes):
                assert re.fullmatch(r" - .+", reason), f"{path}: {code}"
                found.add((str(path.relative_to(ROOT)), code))
    assert found == SECURITY_EXCEPTIONS
