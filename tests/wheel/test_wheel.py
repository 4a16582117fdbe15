"""The wheel alone works: it holds what it should, imports only what is declared, and says which extra is missing."""

from __future__ import annotations

import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.examples import swept
from tests.wheel.environments import ROOT, Environment, built, linked, needed, run, run_well, with_links
from tests.wheel.inside import PACKAGES
from tests.wheel.questions import BASE, EXTRAS, faults

DATA = {
    "accel/server/page/console.css",
    "accel/server/page/console.js",
    "accel/server/page/index.html",
    "spark_jobs/log4j2.properties",
    *(f"{package}/py.typed" for package in PACKAGES),
}
REFUSALS = tuple(each for questions in EXTRAS.values() for each in questions if each.refusal)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    return built("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def alone(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the wheel and what it depends on."""
    return linked(wheel, tmp_path_factory.mktemp("alone"))


def test_the_wheel_holds_the_five_packages_and_nothing_else(wheel: Path) -> None:
    names = {each for each in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in each}
    files = (path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file())
    assert names == {str(path.relative_to(ROOT)) for path in files if path.suffix != ".pyc"}
    assert names >= DATA


def test_the_sdist_holds_what_the_wheel_is_built_of_and_the_tests(wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(built("sdist", tmp_path)) as archive:
        names = {each.name.partition("/")[2] for each in archive}
    assert {each for each in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in each} <= names
    held = {each.partition("/")[0] for each in names}
    files = {"README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml"}
    assert held >= {*files, "tests", "docs", "examples"}
    assert not held & {".venv", ".git", ".ci"}


def test_the_base_works_alone_and_imports_nothing_that_is_not_declared(alone: Environment) -> None:
    assert faults(alone, BASE, extra="", imports=True) == []
    assert alone.run("accel", "--version").stdout.startswith("accel 0.")


def test_what_needs_an_extra_says_which(alone: Environment) -> None:
    assert faults(alone, REFUSALS, extra=None, imports=False) == []


@pytest.mark.parametrize("extra", swept(EXTRAS))  # `make test-wheel` installs and asks each
def test_an_extra_brings_all_that_it_is_for(extra: str, alone: Environment, tmp_path: Path) -> None:
    environment = with_links(alone, extra, tmp_path / "extra")
    assert faults(environment, EXTRAS[extra], extra=extra, imports=False) == []


def test_each_extra_is_asked_for_what_it_brings(alone: Environment) -> None:
    base = needed("", alone.site)
    assert {extra for extra in EXTRAS if needed(extra, alone.site) <= base} == set()
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {name for extra in EXTRAS for name in extra.split(",")} == set(declared) - {
        "dev",
        "fuzz",
    }  # tools of the tests


def test_a_dependency_that_is_not_declared_cannot_be_imported(alone: Environment) -> None:
    assert run(alone.folder / "bin" / "python", "-c", "import pytest", folder=alone.folder).returncode == 1
    assert run_well(alone.folder / "bin" / "python", "-c", "import boto3", folder=alone.folder) == ""
