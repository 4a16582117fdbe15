"""The console in a real browser: it loads, draws a read and a history, tells errors, and anybody can use it."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

import accel
from loaders.store import MemoryStore
from tests.accel.server.asking import STREAM, filled
from tests.accel.server.test_served import Served, served

BROWSER = os.environ.get("ACCEL_TEST_BROWSER") or shutil.which("chromium") or shutil.which("google-chrome")
WITH_BROWSER = pytest.mark.skipif(
    BROWSER is None, reason="no chromium in PATH, and ACCEL_TEST_BROWSER names none: make test-browser installs one"
)
WAIT_MS = 60_000


def example_store() -> MemoryStore:
    """40 objects of one stream, and a stream whose keys were split, merged and truncated."""
    store = filled(40)
    with accel.connect(store) as connection:
        connection.create_scope("shop")
        connection.create_stream("shop", "orders")
        stream = connection.stream("shop", "orders")
        stream.split("0@0")
        upper = stream.current_epoch().segments[1]
        stream.split(upper.id)
        stream.merge(*(each.id for each in stream.current_epoch().segments[1:]))
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

    def violations(self) -> list[str]:
        """What breaks rules of accessibility, as seen now."""
        told = Axe().run(self.page).response["violations"]
        return [f"{each['id']}: {each['nodes'][0]['html']}" for each in told]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield opened
        opened.close()


@contextmanager
def shown(browser: Browser, store: MemoryStore, **options: Any) -> Iterator[Shown]:
    with served(store) as sidecar:
        context = browser.new_context(**options)
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        expect.set_options(timeout=WAIT_MS)
        one = Shown(page, sidecar)
        page.on("pageerror", lambda error: one.troubles.append(str(error)))
        page.on("request", lambda asked: one.troubles.extend([asked.url] * (str(sidecar.port) not in asked.url)))
        page.goto(f"http://127.0.0.1:{sidecar.port}/")
        page.wait_for_selector("#figures div")
        yield one
        context.close()


@WITH_BROWSER
def test_a_read_is_explained_and_drawn_and_the_page_is_accessible(browser: Browser) -> None:
    with shown(browser, example_store()) as one:
        page = one.page
        expect(page.locator("#state")).to_have_text("ready")
        one.explain(STREAM, 1500, 1900)
        expect(page.locator("#answer")).to_contain_text("4 objects; end at 1,900")
        expect(page.locator("#map svg .picked").nth(3)).to_be_attached()  # the map comes after the answer
        drawn = page.locator("#map svg[role=img]").first
        rounds = page.locator("#map svg title").all_text_contents()
        assert any(re.fullmatch(r"round \d+ opened object \d+", each) for each in rounds)
        known = int(re.findall(r"(\d+) known", drawn.get_attribute("aria-label") or "")[0])
        assert 4 <= known < 40
        assert page.locator("#trace li").count() > 4
        assert one.violations() == []
        assert one.troubles == []


@WITH_BROWSER
def test_a_history_is_drawn_with_its_splits_merges_and_beginning(browser: Browser) -> None:
    with shown(browser, example_store(), color_scheme="dark", viewport={"width": 390, "height": 800}) as one:
        page = one.page
        page.get_by_label("Scope").fill("shop")
        page.locator("#history-form").get_by_label("Stream").fill("orders")
        page.keyboard.press("Enter")
        expect(page.locator("#epochs svg[role=img]")).to_be_visible()
        rows = [row.split() for row in page.locator("#epochs tbody tr").all_inner_texts()]
        assert [(row[2], row[3]) for row in rows[1:]] == [("1", "0"), ("1", "0"), ("0", "1")]
        assert page.locator("#epochs svg line.cut").count() == 2
        assert page.locator("#history-text").inner_text().startswith("4 epochs. It begins with")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert one.violations() == []
        assert one.troubles == []


@WITH_BROWSER
def test_errors_are_told_in_words_and_go_away_with_the_next_success(browser: Browser) -> None:
    with shown(browser, filled(3)) as one:
        alert = one.page.get_by_role("alert")
        one.explain(7, 0, 100)
        expect(alert).to_contain_text("stream 7")
        assert one.violations() == []
        one.explain(STREAM, 0, 100)
        expect(one.page.locator("#answer")).to_contain_text("1 object; end at 100")
        expect(alert).to_be_hidden()
        assert one.troubles == []


@WITH_BROWSER
def test_a_map_alone_opens_nothing_and_shows_all_as_unknown(browser: Browser) -> None:
    with shown(browser, filled(5)) as one:
        one.page.locator("#read").get_by_label("Stream").fill(str(STREAM))
        one.page.get_by_role("button", name="Map only").click()
        label = one.page.locator("#map figure svg[role=img]").get_attribute("aria-label") or ""
        assert "5 unknown" in label
        assert one.page.locator("#answer").inner_text() == ""
