"""Cells of a notebook in a real browser: each draws by itself, asks for nothing, and runs nothing that a name says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Frame, Page, expect

from accel.drawing import cell_html
from accel.image import MetadataImage
from tests.accel.drawing.test_cells import HOSTILE, explained, large_node, moved_stream
from tests.accel.server.browsing import WAIT_MS, WITH_BROWSER, violations

NOTEBOOK = "<!doctype html><html lang='en'><title>notebook</title><main><h1>Notebook</h1>{}</main></html>"


@contextmanager
def notebook(browser: Browser, *cells: str, **options: object) -> Iterator[tuple[Page, list[Frame]]]:
    """A page with some cells, and their frames; nothing may be asked, and no dialogue opened, as long as it is open."""
    context = browser.new_context(**options)  # type: ignore[arg-type]  # as it takes them
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    expect.set_options(timeout=WAIT_MS)
    troubles: list[str] = []
    page.on("request", lambda asked: troubles.append(asked.url))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("console", lambda said: troubles.extend([said.text] * (said.type == "error")))
    page.on("dialog", lambda dialog: troubles.append(dialog.message))
    page.set_content(NOTEBOOK.format("".join(cells)))
    for number in range(len(cells)):
        page.frame_locator("iframe").nth(number).locator("main > *").first.wait_for()
    yield page, page.frames[1:]
    assert troubles == []
    context.close()


@WITH_BROWSER
def test_an_explanation_is_drawn_in_its_cell_and_accessible(browser: Browser) -> None:
    explanation = explained(20)
    with notebook(browser, explanation._repr_html_(), explanation._repr_html_(), color_scheme="dark") as (page, frames):
        for frame in frames:
            picked = [each.rpartition(" ")[2] for each in frame.locator(".picked title").all_text_contents()]
            assert [each.rpartition(" ")[2] for each in picked] == [
                str(each.object_id) for each in explanation.answer.objects
            ]
            assert frame.locator("h1").inner_text() == "Stream 7, offsets [105, 125), limit 9"
            assert frame.locator(".trace li").count() == len(explanation.trace.events)
            assert frame.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        assert violations(frames[0]) == []
        assert violations(page) == []
        page.get_by_text("as text").first.click()
        assert page.locator("pre").first.inner_text() == explanation.text()


@WITH_BROWSER
def test_an_image_of_millions_of_objects_is_drawn_on_a_narrow_page(browser: Browser) -> None:
    nodes = {node_id: large_node(node_id, 50_000) for node_id in range(60)}
    image = MetadataImage(7, "of a test", {each: moved_stream(each, 500) for each in range(100)}, nodes)
    with notebook(browser, image._repr_html_(), viewport={"width": 390, "height": 800}) as (_, [frame]):
        assert frame.locator("dd").first.inner_text() == "100"
        assert frame.get_by_role("table", name="Nodes").locator("tbody tr").count() == 50
        assert frame.locator("main > svg rect").count() == 20 * 20
        assert frame.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        assert violations(frame) == []


@WITH_BROWSER
def test_a_hostile_name_is_text_and_its_frame_reaches_nothing(browser: Browser) -> None:
    image = MetadataImage.from_dict({"streams": [], "nodes": []})
    data = {**image._overview([]), "namespace": HOSTILE}
    with notebook(browser, cell_html("image", data, title=HOSTILE, text=HOSTILE)) as (page, [frame]):
        assert HOSTILE in frame.locator("h1").inner_text()
        assert frame.locator("img").count() == page.locator("img").count() == 0
        assert frame.evaluate("origin") == "null", "a frame without an origin reaches neither notebook nor server"
        assert page.locator("pre").text_content() == HOSTILE
