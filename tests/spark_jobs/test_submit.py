"""The script for spark-submit runs the jobs of `accel catalog` on Spark, with the environment of an archive."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from spark_jobs import submit
from spark_jobs.tasks import StoreSpec
from tests.counting import ROOT
from tests.docs.pages import blocks, page_named
from tests.spark_jobs.clusters import HANG_SECONDS, HOME, executors_of_their_own
from tests.spark_jobs.worlds import fill, make_catalog

PACKAGES = ("accel", "bloom", "loaders", "range_index", "spark_jobs")
PYTHON = """#!/bin/sh
export PYTHONPATH="$PWD/environment/packages:$PYTHONPATH"
exec {python} "$@"
"""
WHICH = """
import accel, pathlib
pathlib.Path({found!r}).write_text(accel.__file__)
"""


def test_the_script_runs_the_command_line(tmp_path: Path) -> None:
    command = [sys.executable, submit.__file__, "compact", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)  # noqa: S603 - our own
    assert done.returncode == 0, done.stderr
    assert "Usage: accel catalog compact" in done.stdout


def pack(folder: Path, found: Path) -> None:
    """An archive with this checkout and a command `python`, which takes other packages from the present environment.

    The first process of an executor writes where its `accel` is.
    """
    source = folder / "source"
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / "packages" / name, ignore=shutil.ignore_patterns("__pycache__"))
    (source / "packages" / "sitecustomize.py").write_text(WHICH.format(found=str(found)))
    python = source / "bin" / "python"
    python.parent.mkdir()
    python.write_text(PYTHON.format(python=sys.executable))
    python.chmod(0o700)
    with tarfile.open(folder / "environment.tar.gz", "w:gz", compresslevel=1) as archive:
        for each in source.iterdir():
            archive.add(each, each.name)


def test_executors_run_the_environment_of_an_archive_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket, found = StoreSpec(f"file://{tmp_path}/store"), tmp_path / "found"
    make_catalog(bucket.open())
    fill(bucket.open(), 4, [[(1, at, at + 1)] for at in range(6)])
    pack(tmp_path, found)
    [text] = [block.text for block in blocks(page_named("jobs"), "sh") if "spark-submit" in block.text]
    settings = executors_of_their_own(monkeypatch, tmp_path)
    conf = " ".join(f"--conf '{name}={value}'" for name, value in settings.items())
    changes = {
        "venv-pack --output environment.tar.gz": "set -e",
        ".venv/bin/python": sys.executable,
        "yarn": "'local-cluster[1,1,1024]'",
        "--archives": f"{conf} --archives",
        "s3://bucket/prefix": f"{bucket.url} --max-objects-per-node 2 --min-age 0s --output json",
    }
    for before, after in changes.items():
        assert before in text
        text = text.replace(before, after)
    monkeypatch.setenv("PATH", f"{HOME / 'bin'}:{os.environ['PATH']}")
    done = subprocess.run(  # noqa: S603 - the page's program
        ["sh", "-c", text],  # noqa: S607
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
        timeout=HANG_SECONDS,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout[done.stdout.index("{") :])["report"]["failed_groups"] == 0
    assert "/work/app-" in found.read_text()  # the folder of an executor
    assert found.read_text().endswith("environment/packages/accel/__init__.py")
