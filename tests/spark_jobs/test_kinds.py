"""The tests of the jobs pass on executors of their own, and on Spark Connect, where there is no SparkContext."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.counting import ROOT
from tests.spark_jobs.clusters import KIND

MODULES = (
    "test_tasks.py",
    "test_hints.py",
    "test_compact.py",
    "test_event_source.py::test_any_session_reads_events_and_writes_those_that_follow_into_files",
)
KIND_SECONDS = 280


@pytest.mark.skipif(KIND != "local", reason="runs in such a process")
@pytest.mark.parametrize("kind", ["local-cluster", "connect"])
def test_the_same_tests_pass_on_another_kind_of_session(kind: str, tmp_path: Path) -> None:
    paths = [str(ROOT / "tests" / "spark_jobs" / name) for name in MODULES]
    where = ["--rootdir", str(ROOT), "--config-file", str(ROOT / "pyproject.toml"), "--basetemp", str(tmp_path / "of")]
    done = subprocess.run(  # noqa: S603 - our own
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *where, *paths],
        cwd=tmp_path,
        env={**os.environ, "ACCEL_TEST_SPARK": kind, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=KIND_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert re.search(r"\d+ passed", done.stdout)
