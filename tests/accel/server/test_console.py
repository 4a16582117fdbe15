"""The console in a real browser: it loads, draws a read and a history, tells errors, and anybody can use it."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Browser, Page, expect

import accel
from accel import Settings
from accel.cli.demo import ISSUE_OBJECTS, ISSUE_READS
from accel.cli.demo import example_store as demo_store
from accel.compaction import CompactionSettings, compact, plan_compaction
from accel.rendering import Output
from tests.accel.lookup.test_seed_example import READS
from tests.accel.server.asking import STREAM, TOKEN, filled
from tests.accel.server.browsing import WITH_BROWSER, example_store, shown


@WITH_BROWSER
def test_a_read_is_explained_and_drawn_and_the_page_is_accessible(browser: Browser) -> None:
    with shown(browser, example_store()) as one:
        page = one.page
        one.explain(STREAM, 1500, 1900)
        expect(page.locator("#answer")).to_contain_text("4 objects; end at 1,900")
        expect(page.locator("#map figure .picked").nth(3)).to_be_attached()  # the map comes after the answer
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
        rows = [row.split("\t") for row in page.locator("#epochs table.epochs tbody tr").all_inner_texts()]
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
        assert [re.sub(r"recorded .*?\d: ", "", each) for each in began] == ["cut 2, 1@1 from 0, 2@1 from 0"]
        gone = page.locator("#epochs svg rect[fill='url(#p-absent)'] title").all_text_contents()
        assert gone == ["segment 0@0: keys [0, 1)"]
        assert page.locator("#history-text").inner_text().startswith("4 epochs. 3 recorded cuts. It begins with 1@1")
        check_places(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert one.violations() == []
        one.history("shop", "returns")
        expect(page.locator("#epochs")).to_contain_text("retention has not run")
        assert page.locator("#epochs svg path.recorded").count() == 0
        assert one.troubles == []


def check_places(page: Page) -> None:
    """Each cut is drawn within its epoch, as late in it as it was recorded, through all keys."""
    drawn = page.locator("#epochs svg rect[fill^='url(#p-'], #epochs svg path:not(.halo)")
    boxes = dict(drawn.evaluate_all("each => each.map(one => [one.textContent, one.getBoundingClientRect().toJSON()])"))
    cuts = {name[:5]: box for name, box in boxes.items() if name.startswith("cut ")}
    at = {name: (box["left"] + box["right"]) / 2 for name, box in cuts.items()}
    first, lower = boxes["segment 0@0: keys [0, 1)"], boxes["segment 1@1: keys [0, 0.5)"]
    assert first["left"] < at["cut 1"] < first["right"] <= lower["left"] < at["cut 2"] < at["cut 3"] < lower["right"]
    assert min(box["height"] for box in cuts.values()) > first["height"] - 2


@WITH_BROWSER
def test_errors_are_told_in_words_and_go_away_with_the_next_success(browser: Browser) -> None:
    with shown(browser, filled(3), viewport={"width": 360, "height": 640}) as one:
        alert = one.page.get_by_role("alert")
        one.explain(STREAM, 0, 100)
        expect(one.page.locator("#answer")).to_contain_text("1 object; end at 100")
        expect(one.page.locator("#map figure")).to_be_visible()
        one.explain(7, 0, 100)
        expect(alert).to_contain_text("stream 7")
        expect(alert).to_be_in_viewport()
        assert one.page.locator("#map *, #trace *, #comparison *").count() == 0, "nothing of another stream stays"
        assert one.page.locator("#answer").inner_text() == ""
        assert one.violations() == []
        one.explain(STREAM, 0, 100)
        expect(one.page.locator("#answer")).to_contain_text("1 object; end at 100")
        expect(alert).to_be_hidden()
        one.history("shop", "</script><b>" + "long" * 30)
        expect(alert).to_be_in_viewport()
        assert one.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
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
def test_the_four_reads_of_the_readme_are_drawn_on_the_map_of_the_demo(browser: Browser) -> None:
    spans = {object_id: [start, end] for object_id, start, end in ISSUE_OBJECTS}
    with demo_store(Output(is_quiet=True)) as store, shown(browser, store) as one:
        for start, end in ISSUE_READS:
            one.page.evaluate("document.getElementById('map').replaceChildren()")
            one.explain(STREAM, start, end)
            expect(one.page.locator("#map figure .picked")).to_have_count(len(READS[start, end]))
            told = json.loads(one.sidecar.get(f"/v1/objects?stream_id={STREAM}&start={start}&end={end}&limit=4")[1])
            assert [[each["start"], each["end"]] for each in told["objects"]] == [
                spans[each] for each in READS[start, end]
            ]
            assert one.drawn_answer() == {each["object_id"] for each in told["objects"]}
            assert one.page.locator("#map figure .read").count() == 1
        assert one.troubles == []


@WITH_BROWSER
def test_a_compaction_is_shown_before_and_after(browser: Browser) -> None:
    store = filled(40)
    with shown(browser, store, stops_clock=True) as one:
        page = one.page
        one.explain(STREAM, 1500, 1900)
        expect(page.locator("#map figure .picked")).to_have_count(4)
        before = json.loads(one.sidecar.get(f"/v1/map?stream_id={STREAM}")[1])
        with accel.ObjectCatalog.open(store) as catalog:
            settings = CompactionSettings(
                rewrite_all=True, max_objects_per_node=10, target_objects=5, min_age_seconds=0.0
            )
            assert compact(catalog, plan_compaction(catalog, settings)).groups
        assert one.sidecar.post("/v1/refresh")[0] == 200
        page.clock.run_for(5_000)
        expect(page.locator("#changed")).to_contain_text(f"This map is of image {before['image_version']}")
        assert page.locator("#comparison").inner_text() == ""
        one.explain(STREAM, 1500, 1900)
        expect(page.locator("#comparison table")).to_be_visible()
        expect(page.locator("#changed")).to_be_hidden()
        after = json.loads(one.sidecar.get(f"/v1/map?stream_id={STREAM}")[1])
        rows = [row.split("\t") for row in page.locator("#comparison tbody tr").all_inner_texts()]
        assert [row[0] for row in rows] == [
            "Version of the image",
            "Objects listed",
            "Their bytes",
            "Objects that the read [1,500, 1,900) takes",
            "Objects that its lookup opened",
        ]
        assert rows[0][1:] == [str(before["image_version"]), str(after["image_version"])]
        listed = [
            sum(node["listed"] for node in told["nodes"]) + len(told["stream_objects"]) for told in (before, after)
        ]
        assert rows[1][1:] == [str(each) for each in listed]
        assert listed[1] < listed[0] == 40
        assert int(rows[3][2]) < int(rows[3][1]) == 4
        assert int(rows[4][2]) < int(rows[4][1])
        page.get_by_text("The map before").click()
        expect(page.locator("#comparison figure")).to_be_visible()
        assert "40 objects" in page.locator("#comparison figcaption").inner_text()
        one.explain(STREAM, 100, 200)
        expect(page.locator("#comparison tbody tr").nth(3)).to_contain_text("not asked")
        assert one.violations() == []
        assert one.troubles == []


@WITH_BROWSER
def test_a_token_is_asked_for_and_kept_nowhere(browser: Browser, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    open_to_all = {"host": "0.0.0.0"}  # noqa: S104 - with a token
    with shown(browser, filled(3), open_to_all) as one:
        page, field = one.page, one.page.get_by_label("Token")
        expect(field).to_be_focused()
        expect(page.locator("#token-text")).to_have_text("This sidecar needs a token to read from it.")
        expect(page.get_by_role("alert")).to_be_hidden()
        assert one.violations() == []
        page.keyboard.type("a token that is wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("The sidecar refused this token.")
        assert page.locator("#figures div").count() == 0
        expect(page.locator("#read")).to_be_hidden()
        expect(field).to_be_focused()
        assert one.violations() == []
        with page.expect_request("**/v1/prices") as asked:
            page.keyboard.type(TOKEN)
            page.keyboard.press("Enter")
        expect(page.locator("#figures div").first).to_be_visible()
        expect(page.get_by_role("alert")).to_be_hidden()
        expect(field).to_be_hidden()
        assert asked.value.headers["authorization"] == f"Bearer {TOKEN}"
        one.explain(STREAM, 0, 100)
        expect(page.locator("#answer")).to_contain_text("1 object; end at 100")
        stored = page.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie, history.state])")
        kept = [page.url, stored, json.dumps(page.context.storage_state()), page.content(), caplog.text]
        assert [each for each in kept if TOKEN in each or "token of some" in each] == []
        assert stored == '[{},{},"",null]'
        assert field.input_value() == ""
        page.reload()
        expect(field).to_be_focused()
        assert one.troubles == []


LONG_MAP = """async () => {
  const {mapView} = await import("/drawing.js");
  const known = Array.from({length: 20000}, (_, at) => [80000 + at, at, 1000 * at, 1000 * at + 1000]);
  const node = {node_id: 4, owned: [[0, -1]], listed: 100000, first: 80000, marks: "k".repeat(20000), known, holes: []};
  const opened = known.map(([position, object_id, start, end]) => ({position, object_id, held: {start, end}}));
  const trace = {request: {start: 0, end: -1}, answer: null, events: [{node_id: 4, number: 1, opened}]};
  const own = Array.from({length: 20000}, (_, at) => [at, 100 * at, 100 * at + 100]);
  document.getElementById("map").replaceChildren(...mapView({nodes: [node], stream_objects: own}, trace, 1000));
  return document.querySelectorAll("#map *").length;
}"""

LONG_HISTORY = """async () => {
  const {historyView} = await import("/drawing.js");
  const segment = (at, n) => ({segment: `${n}@${at - (at + n) % 50}`, key_start: n / 50, key_end: (n + 1) / 50});
  const segments = (at) => Array.from({length: 50}, (_, n) => segment(at, n));
  const epoch = (at) => ({epoch: at, time_ms: 1000 * at, splits: at, merges: 0, segments: segments(at)});
  const epochs = Array.from({length: 1000}, (_, at) => epoch(at));
  const cuts = Array.from({length: 50}, (_, at) => ({recorded_ms: 20000 * at, size: at, cut: {}}));
  const view = historyView({epochs, more: true, cuts, unit: "records", head: {cut: {}}}, 1000);
  return view.find((each) => each.tagName === "svg").querySelectorAll("*").length;
}"""


@WITH_BROWSER
def test_long_maps_and_histories_are_drawn_with_a_bounded_number_of_shapes(browser: Browser) -> None:
    with shown(browser, filled(1)) as one:
        assert one.page.evaluate(LONG_MAP) < 25_000
        caption = one.page.locator("#map figcaption").last.inner_text()
        assert caption.startswith("Node 4, objects 80,001 to 100,000 of 100,000: 20,000 known")
        assert one.page.evaluate(LONG_HISTORY) < 25_000
        assert one.troubles == []


@WITH_BROWSER
def test_slow_lookups_and_hot_streams_are_listed(browser: Browser) -> None:
    with shown(browser, filled(5), {"lookups": Settings(slow_lookup_seconds=1e-9, hedge_percent=0)}) as one:
        one.explain(STREAM, 0, 100)
        listed = one.page.locator("#slow-list details")
        expect(listed.first).to_contain_text(f"stream {STREAM} from 0")
        listed.first.locator("summary").click()
        expect(listed.first.locator("pre")).to_contain_text("waited ")
        expect(one.page.get_by_role("table", name="Hot streams")).to_contain_text(str(STREAM))
        expect(one.page.get_by_role("table", name="Hot nodes")).to_be_visible()
        assert one.violations() == []
        assert one.troubles == []


BIG = 2**62 + 1


@WITH_BROWSER
def test_offsets_beyond_2_to_the_53_are_exact_and_a_url_shows_the_same_read(browser: Browser) -> None:
    image = {
        "streams": [
            {
                "stream_id": 2**60 + 1,
                "start_offset": BIG,
                "ranges": [{"range_index": 0, "start": BIG, "end": -1, "node_id": 4}],
                "stream_objects": [{"object_id": 2**61 + 3, "start": BIG, "end": BIG + 2}],
            }
        ],
        "nodes": [{"node_id": 4, "stream_set_objects": []}],
    }
    source = accel.StaticImages(accel.MetadataImage.from_dict(image))
    with shown(browser, filled(1), {"images": lambda: source}) as one:
        one.explain(2**60 + 1, BIG, BIG + 2)
        expect(one.page.locator("#answer")).to_contain_text(f"end at {BIG + 2:,}")
        expect(one.page.locator("#trace")).to_contain_text(f"Took object {2**61 + 3} with [{BIG:,}, {BIG + 2:,})")
        expect(one.page.locator("#map")).to_contain_text(f"offset {BIG:,}")
        expect(one.page.locator("#map .picked title")).to_have_text(f"the answer has object {2**61 + 3}")
        again = one.page.context.new_page()
        again.goto(one.page.url)
        expect(again.locator("#answer")).to_contain_text(f"end at {BIG + 2:,}")
        assert again.locator("#read").get_by_label("Start").input_value() == str(BIG)
        assert one.troubles == []


@WITH_BROWSER
def test_numbers_are_parsed_as_json_has_them(browser: Browser) -> None:
    text = (
        '{"a": "9007199254740993 \\" 1", "b": 0.12345678901234567, '
        '"c": [-9007199254740993, 9007199254740991], "d": "", "e": null}'
    )
    with shown(browser, filled(1)) as one:
        told = one.page.evaluate(
            "async (text) => JSON.stringify((await import('/drawing.js')).parseExact(text))",
            text,
        )
    expected = {**json.loads(text), "c": ["-9007199254740993", 9007199254740991]}
    assert json.loads(told) == expected
