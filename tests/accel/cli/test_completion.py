"""Shells complete commands, options and choices, at once: no command is loaded for its name."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import CompletionItem, ShellComplete

from accel.cli.main import main
from loaders.plan import policy_of
from tests.docs.pages import page_named

ROOT = Path(__file__).parents[3]
SCRIPT = """
eval "$(_ACCEL_COMPLETE=bash_source accel)"
COMP_WORDS=({words}) COMP_CWORD={position}
_accel_completion accel
echo "${{COMPREPLY[@]}}"
"""
PROGRAM = "import sys; from accel.cli.main import main; sys.argv[0] = 'accel'; main()"


def completed(*words: str) -> list[CompletionItem]:
    """What a shell is offered for the last word."""
    return ShellComplete(main, {}, "accel", "_ACCEL_COMPLETE").get_completions([*words[:-1]], words[-1])


def values(*words: str) -> list[str]:
    return [each.value for each in completed(*words)]


def test_commands_come_with_what_they_do() -> None:
    found = {each.value: each.help for each in completed("")}
    assert set(found) >= {"catalog", "doctor", "get-objects", "read"}
    assert found["get-objects"] == "Find the objects that hold a stream's offsets."
    assert values("get-") == ["get-objects"]
    assert values("catalog", "re") == ["restored"]


def test_options_and_choices_are_completed() -> None:
    assert values("get-objects", "--st") == ["--stream", "--start", "--store"]
    assert values("get-objects", "--client", "") == ["boto3", "obstore"]
    policies = values("get-objects", "--policy", "")
    assert [policy_of(name).name for name in policies] == ["spread", "window", "window+preload", "load-all"]
    assert values("get-objects", "--policy", "sp") == ["spread"]


def test_completing_a_command_loads_none() -> None:
    code = (
        "import sys; from click.shell_completion import ShellComplete; from accel.cli.main import main;"
        "ShellComplete(main, {}, 'accel', '_ACCEL_COMPLETE').get_completions([], '');"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603 - our own
    loaded = set(done.stdout.split())
    assert loaded.isdisjoint({"numpy", "boto3", "rich", "accel.rendering", "accel.cli.doctor", "accel.cli.options"})


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_the_line_of_the_page_works_in_bash(tmp_path: Path) -> None:
    program = tmp_path / "accel"
    program.write_text(f"#!{sys.executable}\n{PROGRAM}\n")
    program.chmod(0o700)
    script = SCRIPT.format(words="accel catalog build-h", position=2)
    paths = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", script], env=os.environ | paths, capture_output=True, text=True, check=True)  # noqa: S603, S607 - our own
    assert done.stdout.split() == ["build-hints"]
    page = page_named("operations").read_text()
    assert 'eval "$(_ACCEL_COMPLETE=bash_source accel)"' in page
