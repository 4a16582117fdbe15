"""The case file of stream histories, run on the pure rules over plain dicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.accel.history.rules.interpreter import Interpreter

CASES = json.loads((Path(__file__).parents[3] / "data" / "stream_history.json").read_text())["cases"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_the_rules_give_what_the_cases_expect(case: dict[str, Any]) -> None:
    interpreter = Interpreter(case.get("config", {}))
    wrong = [(step, said) for step in case["steps"] if (said := interpreter.run(step)) is not None]
    assert wrong == []
