"""A stream and a team of readers, for each test anew."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from accel import GroupReader
from loaders.store import MemoryStore
from tests.accel.streams.groups.team import Team, team
from tests.accel.streams.reader.streams import Shop, shop


@pytest.fixture
def segments() -> int:
    """How many segments the stream has at first."""
    return 2


@pytest.fixture
def orders(segments: int) -> Iterator[Shop]:
    with shop(MemoryStore(), segments=segments) as opened:
        yield opened


@pytest.fixture
def readers(request: pytest.FixtureRequest, orders: Shop) -> Iterator[Team]:
    """Readers of one group, for threads if nothing else is asked for."""
    with team(orders, getattr(request, "param", GroupReader)) as made:
        yield made
