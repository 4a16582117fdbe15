"""Which server the tests that take a real one get, and which tests those are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.__main__ import EXIT_NO_CREDENTIALS, EXIT_NO_SERVER, server
from tests.servers.ceph import Machine
from tests.servers.ceph.packages import PROGRAMS
from tests.servers.fixtures import MARKER, VARIABLES

ROOT = Path(__file__).parent.parent.parent
NAMED = dict(zip(VARIABLES, ("http://127.0.0.1:9", "access", "secret"), strict=True))
EMPTY = Machine(frozenset(), root_prefix=None)
DEBIAN = Machine(frozenset({"apt-get"}), root_prefix=())
WITH_CEPH = Machine(frozenset(PROGRAMS), root_prefix=None)
NOTHING_COLLECTED = 5


def test_a_server_that_is_named_is_taken_on_any_machine() -> None:
    assert server(NAMED, EMPTY) == server(NAMED, WITH_CEPH) == (0, "S3 server: http://127.0.0.1:9")


@pytest.mark.parametrize("missing", VARIABLES[1:])
@pytest.mark.parametrize("value", [None, ""])
def test_a_server_that_is_named_without_credentials_is_a_mistake(missing: str, value: str | None) -> None:
    environment = {name: each for name, each in NAMED.items() if name != missing} | (
        {} if value is None else {missing: value}
    )
    status, text = server(environment, WITH_CEPH)
    assert status == EXIT_NO_CREDENTIALS
    assert f"{missing} must be set" in text


@pytest.mark.parametrize("machine", [DEBIAN, WITH_CEPH])
@pytest.mark.parametrize("environment", [{}, {VARIABLES[0]: ""}])
def test_ceph_is_taken_where_it_is_or_can_be(machine: Machine, environment: dict[str, str]) -> None:
    assert server(environment, machine) == (0, "S3 server: a Ceph RADOS Gateway of our own")


def test_where_there_is_no_server_the_code_is_its_own_and_the_text_says_how_to_go_on() -> None:
    status, text = server({}, EMPTY)
    assert status == EXIT_NO_SERVER
    assert "Ceph is not installed" in text
    assert [name for name in VARIABLES if name not in text] == []


def collected(environment: dict[str, str]) -> tuple[int, list[str]]:
    """The exit code of pytest, and the tests of stores that it finds by the marker."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-m",
        MARKER,
        "--collect-only",
        "-q",
        "tests/loaders/store/test_contract.py",
    ]
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
