"""A stream for each test, which a host writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from accel.system import SYSTEM
from loaders.store import MemoryStore
from tests.accel.streams.reader.streams import Shop, shop


@pytest.fixture
def orders() -> Iterator[Shop]:
    with shop(MemoryStore()) as opened:
        yield opened


@pytest.fixture
def steady_orders() -> Iterator[Shop]:
    """Without threads of the host, and without lingering.

    A flush has moved what is to be moved when it returns, and no write between two flushes makes an object because the
    machine was slow.
    """
    with shop(MemoryStore(), system=replace(SYSTEM, wait=None), linger_seconds=3600.0) as opened:
        yield opened


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are repeated after a thousandth of a second."""
    monkeypatch.setattr("accel.streams.reader.RETRY_PAUSE_SECONDS", 0.001)
