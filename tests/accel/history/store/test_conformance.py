"""The cases that everybody can read, in memory and on S3."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import stream_history
from tests.conformance.history_world import World
from tests.conformance.report import Report
from tests.examples import examples
from tests.servers.stores import ON_S3, store_on_s3

FOLDER = Path(__file__).parents[3] / "data"
CASES = FOLDER / "stream_history.json"
PITFALLS = FOLDER / "stream_history_pitfalls.json"


def read(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(path.read_bytes())
    return data


@pytest.mark.parametrize("path", [CASES, PITFALLS], ids=lambda path: path.stem)
def test_all_cases_pass_in_memory(path: Path) -> None:
    data, report = read(path), Report()
    stream_history.run(path, data, report)
    assert report.failures == []
    assert report.passed == sum(len(case["steps"]) for case in data["cases"])


@pytest.mark.parametrize("name", ON_S3[:1])
def test_cases_pass_on_s3(request: pytest.FixtureRequest, name: str) -> None:
    report, step = Report(), 1 if examples(1) > 1 else 4  # all of them pass in memory
    for case in read(CASES)["cases"][::step]:
        with store_on_s3(request, name) as store:
            stream_history.run_case(case["name"], case, World.of(case["config"], store), report)
    assert report.failures == []


def test_a_wrong_answer_a_missing_error_and_too_many_calls_are_found() -> None:
    steps = [
        {"op": "create", "args": {"segments": 1, "time": 5}},
        {"op": "query", "name": "state", "args": {}, "expect": "SEALED"},
        {"op": "query", "name": "state", "args": {}, "error": "ILLEGAL_STATE"},
        {"op": "query", "name": "state", "args": {}, "calls": 0},
        {"op": "query", "name": "segment", "args": {"id": "1@1"}},
        {"op": "query", "name": "segment", "args": {"id": "1@1"}, "error": "ILLEGAL_STATE"},
    ]
    report = Report()
    stream_history.run(CASES, {"cases": [{"name": "wrong", "config": {}, "steps": steps}]}, report)
    assert (report.passed, len(report.failures)) == (1, 5)
