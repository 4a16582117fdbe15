"""The wheel alone works: it holds what it should, and imports only what is declared. Extras: `make test-wheel`."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tests.wheel.environments import ROOT, Environment, built, linked, run, run_well
from tests.wheel.inside import PACKAGES
from tests.wheel.questions import BASE, faults

DATA = {
    "accel/server/page/console.css",
    "accel/server/page/console.js",
    "accel/server/page/index.html",
    "spark_jobs/log4j2.properties",
    *(f"{package}/py.typed" for package in PACKAGES),
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def alone(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the wheel and what it depends on."""
    return linked(wheel, tmp_path_factory.mktemp("alone"))


def test_the_wheel_holds_the_five_packages_and_nothing_else(wheel: Path) -> None:
    names = {each for each in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in each}
    files = (path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file())
    assert names == {str(path.relative_to(ROOT)) for path in files if path.suffix != ".pyc"}
    assert names >= DATA


def test_the_base_works_alone_and_imports_nothing_that_is_not_declared(alone: Environment) -> None:
    assert faults(alone, BASE, extra="", imports=True) == []
    assert alone.run("accel", "--version").stdout.startswith("accel 0.")


def test_a_dependency_that_is_not_declared_cannot_be_imported(alone: Environment) -> None:
    assert run(alone.folder / "bin" / "python", "-c", "import pytest", folder=alone.folder).returncode == 1
    assert run_well(alone.folder / "bin" / "python", "-c", "import boto3", folder=alone.folder) == ""
