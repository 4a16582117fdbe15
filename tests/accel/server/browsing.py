"""Drives the console in a real browser: what it shows, what goes wrong in it, what breaks rules of accessibility."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Frame, Page, expect

import accel
from accel.system import SYSTEM
from loaders.store import MemoryStore, ObjectStore
from tests.accel.server.asking import filled
from tests.accel.server.test_served import Served, served

BROWSER = os.environ.get("ACCEL_TEST_BROWSER") or shutil.which("chromium") or shutil.which("google-chrome")
WITH_BROWSER = pytest.mark.skipif(
    BROWSER is None, reason="no chromium in PATH, and ACCEL_TEST_BROWSER names none: make test-browser installs one"
)
WAIT_MS = 60_000
DAY_MS = 86_400_000


def example_store() -> MemoryStore:
    """40 objects of one stream; and a stream that was split, split and merged, a day each, with cuts, and truncated.

    Cut 1 is of the first day, cut 2 of the second; the stream begins with cut 2. Cut 3 is of the last day. A third
    stream, shop/returns, has neither.
    """
    store = filled(40)
    long_ago = replace(SYSTEM, clock=lambda: SYSTEM.clock() - 4 * DAY_MS / 1000)
    with accel.connect(store, system=long_ago) as connection:
        connection.create_scope("shop")
        connection.create_stream("shop", "orders")
        connection.create_stream("shop", "returns")
    with accel.connect(store) as connection:
        stream = connection.stream("shop", "orders")
        begun_ms = stream.creation_time_ms()

        def record(days: float, size: int) -> None:
            cut = {each.id: 0 for each in stream.current_epoch().segments}
            stream.retention.add(begun_ms + int(days * DAY_MS), size, cut)

        record(0.5, 0)
        stream.split("0@0", time_ms=begun_ms + DAY_MS)
        record(1.5, 70)
        upper = stream.current_epoch().segments[1]
        stream.split(upper.id, time_ms=begun_ms + 2 * DAY_MS)
        stream.merge(*(each.id for each in stream.current_epoch().segments[1:]), time_ms=begun_ms + 3 * DAY_MS)
        record(3.5, 500)
        stream.truncate({each.id: 0 for each in stream.epochs.epoch(1).segments})
    return store


@dataclass
class Shown:
    """The page in a browser, and what went wrong in it."""

    page: Page
    sidecar: Served
    troubles: list[str] = field(default_factory=list)

    def explain(self, stream: int, start: int, end: int) -> None:
        """Type a read and ask for it, with the keyboard alone."""
        for name, value in (("Stream", stream), ("Start", start), ("End, or -1", end)):
            self.page.locator("#read").get_by_label(name).fill(str(value))
        self.page.keyboard.press("Enter")

    def history(self, scope: str, stream: str) -> None:
        """The same of a history."""
        self.page.get_by_label("Scope").fill(scope)
        self.page.locator("#history-form").get_by_label("Stream").fill(stream)
        self.page.keyboard.press("Enter")

    def drawn_answer(self) -> set[int]:
        """Ids of the objects that are drawn as those of the answer."""
        titles = self.page.locator("#map .picked title").all_text_contents()
        return {int(found[1]) for each in titles if (found := re.fullmatch(r"the answer has object (\d+)", each))}

    def violations(self) -> list[str]:
        """What breaks rules of accessibility, as seen now."""
        return violations(self.page)


def violations(page: Page | Frame) -> list[str]:
    """What of a page or a frame breaks rules of accessibility."""
    told = Axe().run(page).response["violations"]
    return [f"{each['id']}: {each['nodes'][0]['html']}" for each in told]


@contextmanager
def shown(
    browser: Browser,
    store: ObjectStore,
    sidecar: dict[str, Any] | None = None,
    *,
    stops_clock: bool = False,
    **options: Any,
) -> Iterator[Shown]:
    """The page of a sidecar over a store.

    Args:
        browser: shows it.
        store: of the sidecar.
        sidecar: its settings.
        stops_clock: whether the page's timers go on with `page.clock` only.
        options: of the browser's context.
    """
    with ExitStack() as stack:
        serving = stack.enter_context(served(store, **(sidecar or {})))
        port = serving.port
        context = stack.enter_context(browser.new_context(**options))
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        expect.set_options(timeout=WAIT_MS)
        one = Shown(page, serving)
        page.on("pageerror", lambda error: one.troubles.append(str(error)))
        page.on("request", lambda asked: one.troubles.extend([asked.url] * (str(port) not in asked.url)))
        if stops_clock:
            page.clock.install()
        page.goto(f"http://127.0.0.1:{port}/")
        expect(page.locator("#state")).to_have_text("ready")
        yield one
