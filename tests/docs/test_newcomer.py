"""The path of a newcomer, as `python -m tests.docs.newcomer` walks it, without the installation."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest

from tests.counting import ROOT
from tests.docs.newcomer import STEPS

SECONDS = 300.0


@pytest.mark.skipif(not shutil.which("prometheus"), reason="Prometheus is not installed: Debian's package prometheus")
def test_the_path_of_a_newcomer_takes_its_steps() -> None:
    command = [sys.executable, "-m", "tests.docs.newcomer"]
    walked = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)  # noqa: S603 - our own program
    assert walked.returncode == 0, walked.stdout + walked.stderr
    assert re.findall(r"^== (.*): ", walked.stdout, re.MULTILINE) == list(STEPS)
    assert '"alertname":"AccelDown"' in walked.stdout
