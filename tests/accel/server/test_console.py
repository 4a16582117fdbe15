"""The console in a real browser: it loads, draws a read and a history, tells errors, and anybody can use it."""

from __future__ import annotations

import re

from playwright.sync_api import Browser, expect

import accel
from loaders.store import MemoryStore
from tests.accel.server.asking import STREAM, filled
from tests.accel.server.browsing import WITH_BROWSER, example_store, shown


@WITH_BROWSER
def test_a_read_is_explained_and_drawn_and_the_page_is_accessible(browser: Browser) -> None:
    with shown(browser, example_store()) as one:
        page = one.page
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
def test_a_history_is_drawn_with_its_splits_merges_cuts_and_beginning(browser: Browser) -> None:
    with shown(browser, example_store(), color_scheme="dark", viewport={"width": 390, "height": 800}) as one:
        page = one.page
        one.history("shop", "orders")
        drawn = page.locator("#epochs svg[role=img]")
        expect(drawn).to_be_visible()
        rows = [row.split() for row in page.locator("#epochs table.epochs tbody tr").all_inner_texts()]
        assert [(row[2], row[3]) for row in rows[1:]] == [("1", "0"), ("1", "0"), ("0", "1")]
        assert drawn.get_attribute("aria-label") == (
            "4 epochs; the last has 2 segments; 3 recorded cuts; 1 truncated segment"
        )
        cuts = [row.split("\t") for row in page.locator("#epochs table.cuts tbody tr").all_inner_texts()]
        assert [(row[0], row[2], row[4]) for row in cuts] == [
            ("1", "0 records", ""),
            ("2", "70 records", "yes"),
            ("3", "500 records", ""),
        ]
        assert page.locator("#epochs svg path.recorded").count() == 2
        began = page.locator("#epochs svg path.cut title").all_text_contents()
        assert [re.sub(r"recorded \S+:", "recorded:", each) for each in began] == [
            "cut 2, recorded: 1@1 from 0, 2@1 from 0"
        ]
        gone = page.locator("#epochs svg rect[fill='url(#p-absent)'] title").all_text_contents()
        assert gone == ["segment 0@0: keys [0, 1)"]
        assert page.locator("#history-text").inner_text().startswith("4 epochs. 3 recorded cuts. It begins with 1@1")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert one.violations() == []
        assert one.troubles == []


@WITH_BROWSER
def test_cuts_lie_within_the_columns_of_the_times_at_which_they_were_recorded(browser: Browser) -> None:
    with shown(browser, example_store()) as one:
        one.history("shop", "orders")
        expect(one.page.locator("#epochs svg path.cut")).to_be_attached()
        boxes = {
            name: box
            for each in one.page.locator("#epochs svg rect[fill^='url(#p-'], #epochs svg path").all()
            if (name := each.text_content()) and (box := each.bounding_box()) is not None
        }
        by_cut = {name[:5]: box["x"] + box["width"] / 2 for name, box in boxes.items() if name.startswith("cut ")}
        first, lower = boxes["segment 0@0: keys [0, 1)"], boxes["segment 1@1: keys [0, 0.5)"]
        assert first["x"] < by_cut["cut 1"] < first["x"] + first["width"]
        assert first["x"] + first["width"] < by_cut["cut 2"] < by_cut["cut 3"] < lower["x"] + lower["width"] + 2
        heights = [box["height"] for name, box in boxes.items() if name.startswith("cut ")]
        assert min(heights) > 200, "a cut of all keys crosses the whole picture"


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


@WITH_BROWSER
def test_a_history_without_cuts_says_so(browser: Browser) -> None:
    store = MemoryStore()
    with accel.connect(store, create=True) as connection:
        connection.create_scope("shop")
        connection.create_stream("shop", "orders")
    with shown(browser, store) as one:
        one.history("shop", "orders")
        expect(one.page.locator("#epochs")).to_contain_text("retention has not run")
        assert one.page.locator("#epochs svg path.recorded").count() == 0
        assert one.violations() == []
