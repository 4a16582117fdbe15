"""The browser of the console's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.accel.server.browsing import BROWSER


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for a module: as long as it is open, its thread runs an event loop, and tests of asyncio could not."""
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield opened
        opened.close()
