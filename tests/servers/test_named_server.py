"""Which server the tests that take a real one get, and which tests those are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import __main__ as program
from tests.servers.__main__ import EXIT_NO_CREDENTIALS, EXIT_NO_SERVER, server
from tests.servers.fixtures import MARKER, VARIABLES

ROOT = Path(__file__).parent.parent.parent
URL = "http://127.0.0.1:9"
NAMED = dict(zip(VARIABLES, (URL, "access", "secret"), strict=True))
NOTHING_COLLECTED = 5
CEPH = "S3 server: a Ceph RADOS Gateway of our own"


@pytest.mark.parametrize(
    ("environment", "obstacle", "status", "words"),
    [
        (NAMED, "", 0, [f"S3 server: {URL}"]),
        (NAMED, "none", 0, [f"S3 server: {URL}"]),
        ({**NAMED, VARIABLES[1]: ""}, "", EXIT_NO_CREDENTIALS, [f"{VARIABLES[1]} must be set"]),
        ({VARIABLES[0]: URL, VARIABLES[1]: "access"}, "", EXIT_NO_CREDENTIALS, [f"{VARIABLES[2]} must be set"]),
        ({}, "", 0, [CEPH]),
        ({VARIABLES[0]: ""}, "", 0, [CEPH]),
        ({}, "Ceph is not installed", EXIT_NO_SERVER, ["Ceph is not installed", *VARIABLES]),
    ],
)
def test_a_named_server_is_taken_anywhere_and_else_ceph_where_it_can_be(
    environment: dict[str, str], obstacle: str, status: int, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "obstacle", lambda: obstacle)
    found, text = server(environment)
    assert found == status
    assert [word for word in words if word not in text] == []


def collected(environment: dict[str, str]) -> tuple[int, list[str]]:
    """The exit code of pytest, and the tests of stores that it finds by the marker."""
    stores = "tests/loaders/store/test_contract.py"
    command = [sys.executable, "-m", "pytest", "-m", MARKER, "--collect-only", "-q", stores]
    outside = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    done = subprocess.run(command, cwd=ROOT, env=outside | environment, capture_output=True, text=True, check=False)  # noqa: S603 - our own words
    return done.returncode, [line for line in done.stdout.splitlines() if "::" in line]


def test_the_marker_finds_the_cases_on_the_named_server_and_no_others() -> None:
    status, found = collected(NAMED)
    assert status == 0
    assert len(found) > 100
    assert [line for line in found if "-named" not in line] == []


def test_a_run_that_selects_nothing_fails() -> None:
    assert collected({}) == (NOTHING_COLLECTED, [])
