"""The script for spark-submit runs the jobs' command line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from spark_jobs.session import find_java_home
from tests.accel.cli.worlds import run
from tests.docs.pages import ROOT


def test_spark_submit_runs_the_command_line(tmp_path: Path) -> None:
    script = run("job", "script").stdout.strip()
    home = find_java_home(os.environ)
    environment = {
        **os.environ,
        **({} if home is None else {"JAVA_HOME": home}),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    command = [str(submit), "--master", "local[1]", script, "compact", "--help"]
    done = subprocess.run(  # noqa: S603 - Spark's own
        command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Usage: accel job compact" in done.stdout


@pytest.mark.parametrize("command", ["compact", "build-filters", "build-snapshot", "verify", "gc"])
def test_each_job_explains_itself(command: str) -> None:
    result = run("job", command, "--help")
    assert result.exit_code == 0
    assert "--master" in result.stdout
    assert "Examples:" in result.stdout
