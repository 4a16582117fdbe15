"""Dependencies are used where they are declared, and what is imported is declared: base, extras, tools."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from loaders import host_limits
from tests.counting import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OURS = ("accel", "bloom", "loaders", "range_index", "spark_jobs")
TOOLS = ("tests", "benchmarks", "examples")

IMPORT = re.compile(
    r"^ *(?:import|from) +(\w+)(?= import |\.[\w.]+ import |[\w.]*(?: as \w+)?(?: +#.*)?$)", re.MULTILINE
)
TYPE_CHECKING_BLOCK = re.compile(r"^( *)if TYPE_CHECKING:\n(?:\1 +.*\n|\n)+", re.MULTILINE)

BASE = ""
PLACES: Mapping[str, tuple[str, ...]] = {
    BASE: ("accel", "bloom", "loaders", "range_index"),
    "spark": ("spark_jobs",),
    "connect": ("spark_jobs/session.py",),
    "jvm": ("spark_jobs/session.py",),
    "server": (
        "accel/server",
        "accel/streams/shared/forwarding.py",
        "accel/listening.py",
        "accel/streams/connection.py",
    ),
    "metrics": ("accel/metrics.py", "accel/server"),
    "obstore": ("loaders/store/clouds.py", "loaders/store/obstore_s3.py"),
    "arrow": ("accel/streams/rules/events.py", "accel/tables"),
    "demo": ("accel/cli/embedded_s3.py",),
    "dev": TOOLS,
}
"""Where what a group declares is to be imported: folders and modules. Those of extras may not import others' things."""

NOT_IMPORTED: Mapping[tuple[str, str], str] = {
    ("spark", "pandas"): "PySpark imports it where rows pass through Arrow",
    ("connect", "grpcio-status"): "PySpark imports it for Spark Connect",
    ("connect", "googleapis-common-protos"): "likewise",
    ("connect", "zstandard"): "likewise; the base imports it, and asks for less",
    ("server", "httptools"): "uvicorn imports it, and parses HTTP in Python without it",
    ("metrics", "opentelemetry-api"): "taken from sys.modules, if the application has imported it (loaders/tracing.py)",
    ("demo", "flask"): "moto's server imports it; moto[s3] does not ask for it",
    ("demo", "flask-cors"): "likewise",
    ("dev", "hatchling"): "run: builds the wheel",
    ("dev", "duckdb"): "imported by the lines of docs/how-to/querying.md",
    ("dev", "polars"): "likewise",
    ("dev", "pytest-timeout"): "pytest finds it",
    ("dev", "pytest-xdist"): "pytest finds it",
    ("dev", "ruff"): "run: make check",
    ("dev", "mypy"): "likewise",
    ("dev", "import-linter"): "likewise",
    ("dev", "codespell"): "likewise",
    ("dev", "mkdocs-material"): "mkdocs.yml names it; brings mkdocs",
    ("dev", "mkdocstrings"): "mkdocs.yml names it",
    ("dev", "mkdocs-click"): "mkdocs.yml names it",
    ("dev", "types-boto3"): "mypy reads it",
    ("dev", "types-pyyaml"): "mypy reads it",
    ("dev", "types-cachetools"): "mypy reads it",
}
"""What is declared and not imported by us, and why."""

BROUGHT: Mapping[str, str] = {
    "botocore": "boto3",  # boto3 is a face of it, of the same version; its errors and settings are its own
    "werkzeug": "flask",
    "mkdocs": "mkdocs-material",
    "py4j": "pyspark",
}
"""What is imported, and asked for by something that is declared."""


def groups() -> dict[str, list[str]]:
    """The names of the projects that each group declares, without those of our own extras."""
    texts = {BASE: PROJECT["dependencies"], **PROJECT["optional-dependencies"]}
    named = {group: [canonicalize_name(Requirement(each).name) for each in found] for group, found in texts.items()}
    return {group: [each for each in found if each != PROJECT["name"]] for group, found in named.items()}


GROUPS = groups()
DECLARED = [(group, name) for group, names in GROUPS.items() for name in names]


@cache
def projects_of_packages() -> dict[str, set[str]]:
    """What is imported -> the projects that bring it."""
    return {top: {*map(canonicalize_name, names)} for top, names in metadata.packages_distributions().items()}


@cache
def imports_by_file() -> dict[str, set[str]]:
    """Our modules, and what each imports from outside the project and the standard library."""
    files = [path for folder in (*OURS, *TOOLS) for path in (ROOT / folder).rglob("*.py")]
    return {str(path.relative_to(ROOT)): imported(path) for path in files}


def imported(path: Path) -> set[str]:
    """The first part of each name that a module imports when it runs, or that code in one of its texts does.

    Found by lines, of which each import has its own (ruff, E401 and E702): to parse the tests takes seconds.
    """
    running = TYPE_CHECKING_BLOCK.sub("", path.read_text())
    return set(IMPORT.findall(running)).difference(sys.stdlib_module_names, OURS, TOOLS)


def is_in(file: str, places: tuple[str, ...]) -> bool:
    """Whether a module is one of these, or lies in one of these folders."""
    return any(file == place or file.startswith(f"{place}/") for place in places)


def groups_of(file: str) -> list[str]:
    """The groups whose dependencies a module may import: the base, and extras of which it is a part."""
    return [BASE, *(group for group, places in PLACES.items() if group != BASE and is_in(file, places))]


def test_each_group_has_a_place() -> None:
    assert set(PLACES) == set(GROUPS)


@pytest.mark.parametrize(("group", "name"), DECLARED, ids=[f"{group or 'base'}-{name}" for group, name in DECLARED])
def test_what_is_declared_is_imported_where_it_is_declared(group: str, name: str) -> None:
    users = [
        file
        for file, tops in imports_by_file().items()
        if any(name in projects_of_packages().get(top, ()) for top in tops)
    ]
    own = [file for file in users if is_in(file, PLACES[group]) and (group != BASE or groups_of(file) == [BASE])]
    assert bool(own) is ((group, name) not in NOT_IMPORTED), f"imported by {own}, elsewhere by {users}"


def test_what_is_imported_is_declared_by_the_base_or_the_extra_of_the_module() -> None:
    undeclared = []
    for file, tops in imports_by_file().items():
        allowed = {name for group in groups_of(file) for name in GROUPS[group]}
        if is_in(file, TOOLS):  # tools may try every extra
            allowed |= {name for names in GROUPS.values() for name in names}
        for top in tops:
            bringing = projects_of_packages().get(top, set())
            if BROUGHT.get(top) not in allowed and not bringing & allowed:
                undeclared.append(f"{file} imports {top}")
    assert undeclared == []


def test_each_exception_is_still_one() -> None:
    assert set(NOT_IMPORTED) <= set(DECLARED)
    assert set(BROUGHT) <= {top for tops in imports_by_file().values() for top in tops}


CONSTRAINTS = (ROOT / "constraints.txt").read_text()


def test_the_tested_versions_are_pinned_with_hashes_and_without_the_address_of_an_index() -> None:
    pinned = {
        canonicalize_name(name): (version, text.count("--hash=sha256:"))
        for name, version, text in re.findall(
            r"^([\w.-]+)==([\w.+!-]+)((?: \\\n +--hash=sha256:[0-9a-f]{64})+)$", CONSTRAINTS, re.MULTILINE
        )
    }
    assert len(pinned) == CONSTRAINTS.count("==") > 100
    assert min(hashes for _, hashes in pinned.values()) >= 1
    assert "://" not in CONSTRAINTS
    assert "index" not in CONSTRAINTS
    asked = [each for group in [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()] for each in group]
    for requirement in map(Requirement, asked):
        if canonicalize_name(requirement.name) != canonicalize_name(PROJECT["name"]):
            assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)][0]), requirement


@pytest.mark.parametrize("module", ["accel", "accel.cli.__main__", "accel.lookup.search"])
def test_an_import_on_windows_says_what_works(module: str) -> None:
    code = f"import sys; sys.platform = 'win32'; import {module}"
    found = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60)  # noqa: S603 - our own program
    assert found.stderr.splitlines()[-1].startswith("ImportError: Accel runs on Linux and macOS: ")


def test_processors_are_counted_where_there_are_no_affinities(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    assert host_limits.processors() >= 1
