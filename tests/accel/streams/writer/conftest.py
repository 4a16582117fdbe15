"""A bucket with one stream, and the process that writes it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from accel.history.rules.configuration import OffsetUnit
from tests.accel.streams.writer.world import Process, World, created


@pytest.fixture
def segments() -> int:
    """How many the stream has."""
    return 2


@pytest.fixture
def unit() -> OffsetUnit:
    """What its offsets count."""
    return OffsetUnit.RECORDS


@pytest.fixture
def world(segments: int, unit: OffsetUnit) -> World:
    return created(segments, unit)


@pytest.fixture
def process(world: World) -> Iterator[Process]:
    with world.process() as started:
        yield started
