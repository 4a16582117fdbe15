"""What runs before a commit is part of `make check`, and templates ask for what the rules of the house want."""

from __future__ import annotations

import yaml

from tests.docs.pages import ROOT


def test_hooks_before_a_commit_are_commands_of_make_check() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    makefile = (ROOT / "Makefile").read_text()
    _, _, recipe = makefile.partition("\ncheck: ")
    commands = {line.strip().replace("$(BIN)", ".venv/bin") for line in recipe.split("\n\n")[0].splitlines()[1:]}
    assert len(hooks) >= 4
    assert {each["entry"] for each in hooks} <= commands


def test_decisions_and_changes_state_their_requests() -> None:
    for name in ("DECISION_TEMPLATE.md", "PULL_REQUEST_TEMPLATE.md", "ISSUE_TEMPLATE/proposal.md"):
        text = (ROOT / ".github" / name).read_text()
        assert all(verb in text for verb in ("GET", "PUT", "LIST")), name
