"""The script for spark-submit runs the jobs of `accel catalog` on Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from spark_jobs import submit
from spark_jobs.session import find_java_home
from tests.docs.pages import ROOT


@pytest.mark.parametrize("program", ["python", "spark-submit"])
def test_the_script_runs_the_command_line(program: str, tmp_path: Path) -> None:
    home = find_java_home(os.environ)
    environment = {
        **os.environ,
        **({} if home is None else {"JAVA_HOME": home}),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    spark_submit = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[1]"]
    command = [*(spark_submit if program == "spark-submit" else [sys.executable]), submit.__file__, "compact", "--help"]
    done = subprocess.run(  # noqa: S603 - Spark's own
        command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Usage: accel catalog compact" in done.stdout
