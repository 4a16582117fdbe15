"""A world for each test."""

from __future__ import annotations

import pytest

from tests.world import World


@pytest.fixture
def world() -> World:
    return World()
