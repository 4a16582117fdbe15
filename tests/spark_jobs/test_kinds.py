"""The tests of the jobs pass on executors of their own, and on Spark Connect, where there is no SparkContext."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.counting import ROOT
from tests.spark_jobs.clusters import HANG_SECONDS, KIND

CASES = (
    "test_tasks.py",
    "test_hints.py::test_tasks_build_what_one_process_builds",
    "test_hints.py::test_tasks_that_fail_are_counted_and_told",
    "test_compact.py::test_objects_become_as_few_as_planned_and_every_record_reads_back",
    "test_compact.py::test_a_damaged_source_is_set_aside_and_its_neighbours_are_merged_by_further_tasks",
    "test_compact.py::test_a_stop_cancels_the_query_and_the_report_has_what_was_done",
    "test_event_source.py::test_any_session_reads_events_and_writes_those_that_follow_into_files",
)
"""All tests of `run_items`, as jobs know the kind of their session only by it; of the jobs one of each thing that they
do with it, which is results, errors, a further query and a stop; and the source."""


@pytest.mark.skipif(KIND != "local", reason="runs in such a process")
@pytest.mark.parametrize("kind", ["local-cluster", "connect"])
def test_the_same_tests_pass_on_another_kind_of_session(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    cases = [f"{ROOT}/tests/spark_jobs/{case}" for case in CASES]
    where = ["--rootdir", str(ROOT), "--config-file", str(ROOT / "pyproject.toml"), "--basetemp", str(tmp_path / "of")]
    found = request.getfixturevalue("server") if kind == "connect" else {}
    done = subprocess.run(  # noqa: S603 - our own
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *where, *cases],
        cwd=tmp_path,
        env={**os.environ, **found, "ACCEL_TEST_SPARK": kind, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert re.search(r"\d+ passed", done.stdout)
