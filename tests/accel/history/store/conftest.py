"""A stream of two segments with data in them."""

from __future__ import annotations

import pytest

from tests.accel.history.store.bench import Bench
from tests.accel.history.store.workflows import prepared, two_segments


@pytest.fixture
def bench() -> Bench:
    return prepared(two_segments)
