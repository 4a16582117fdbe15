"""Fixtures of the commands' tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.accel.cli.worlds import World, make_world
from tests.servers.fixtures import aws_environment, moto_endpoint

__all__ = ["aws_environment", "moto_endpoint"]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)
