"""A stream of two segments with data in them."""

from __future__ import annotations

import pytest

from tests.accel.history.store.bench import Bench


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.create()
    made.append_all(7)
    return made
