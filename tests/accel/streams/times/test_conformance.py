"""The cases that everybody can read, in memory and on S3."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loaders.store import PrefixedStore
from tests.conformance import time_order
from tests.conformance.__main__ import run_file
from tests.conformance.report import Report
from tests.conformance.time_order import World
from tests.servers.stores import ON_S3, store_on_s3

FOLDER = Path(__file__).parents[3] / "data"
FILES = [FOLDER / "time_order.json", FOLDER / "time_order_more.json"]


def read(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(path.read_bytes())
    return data


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_all_cases_pass_in_memory(path: Path) -> None:
    report = run_file(path)
    assert report.failures == []
    assert report.passed == sum(len(case["steps"]) for case in read(path)["cases"])


@pytest.mark.parametrize("name", ON_S3)
def test_all_cases_pass_on_s3(request: pytest.FixtureRequest, name: str) -> None:
    report = Report()
    with store_on_s3(request, name) as store:
        for case in [case for path in FILES for case in read(path)["cases"]]:
            time_order.run_case(case["name"], case, World(PrefixedStore(store, case["name"])), report)
    assert report.failures == []


def test_the_further_cases_use_every_step_there_is() -> None:
    used = {step[0] for case in read(FILES[1])["cases"] for step in case["steps"]}
    assert used == set(time_order.OPS)


def test_wrong_answers_and_too_many_probes_are_found() -> None:
    steps = [
        ["bulk", "a", 10, 10, 1],
        ["locate", "a", 50, 0, {"expect": 5}],
        ["locate", "a", 50, 3, {"expect": 4}],
        ["flush", "a", 35, {"expect": 4}],
        ["read", "a", 0, 10, 7, {"expect": [10, [1], 1]}],
        ["reader", ["a"]],
        ["next", 1, {"expect": None}],
        ["unknown", "a"],
    ]
    report = Report()
    time_order.run(FILES[0], {"cases": [{"name": "wrong", "steps": steps}]}, report)
    assert (report.passed, len(report.failures)) == (2, 6)
