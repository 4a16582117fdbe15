"""The tutorial works word for word: its commands run in its order, and its numbers are those that they print."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path

import pytest
from click.testing import Result

from tests.accel.cli.worlds import run
from tests.docs.pages import Block, blocks, page_named

PAGE = page_named("tutorial")


def told(*words: str) -> Result:
    """What a command does with the store of the tutorial."""
    return run(*words, environment={"ACCEL_STORE": os.environ["ACCEL_STORE"]})


def carry_out(block: Block) -> str:
    """Run a block of the page, commands of a shell or a program; returns what they print."""
    if block.language == "python":
        exec(compile(block.text, str(PAGE), "exec"), {"__name__": "__page__"})  # noqa: S102 - our own page
        return ""
    printed = ""
    for line in block.text.splitlines():
        words = shlex.split(line)
        if words[0] == "accel":
            done = told(*words[1:])
            assert done.exit_code == 0, f"{line}\n{done.output}"
            printed += done.stdout
        else:
            assert line == "export ACCEL_STORE=file:///tmp/accel-tutorial"
    return printed


def status() -> tuple[int, int]:
    """Live and retired objects of the node."""
    [node] = json.loads(told("catalog", "status", "--output", "json").stdout)["nodes"]
    return node["live"], node["retired"]


def test_the_tutorial_runs_from_its_beginning_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCEL_STORE", f"file://{tmp_path}/store")
    met, explained = [], []
    for block in blocks(PAGE, "sh", "python"):
        printed = carry_out(block)
        met += [status()] if "catalog status" in block.text else []
        explained += [printed] if "accel explain" in block.text else []
    text = " ".join(PAGE.read_text().split())
    [(uploaded, none), (left, retired), _] = met
    assert none == 0
    assert f"The node has {uploaded} live objects" in text
    assert f"{retired} objects became one; {left} are live" in text
    assert "excludes 150 objects by their sketches; a few rounds open about a dozen of the other 50" in text
    assert "200 listed - 150 by the list = 50 candidates" in explained[0]
    assert "opening everything: 200 requests" in explained[0]
    opened = sum(int(each) for each in re.findall(r"opened (?:all )?(\d+)", explained[0]))
    assert 1 <= opened <= 24  # how many a round has depends on which answers come first
    assert "snapshot" in explained[1]
