"""What the console asks besides: the map of a stream, prices, and its files; no browser is needed."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import accel
from accel.drawing import FILES, drawing_file
from accel.image import UNKNOWN
from accel.lookup.stream_map import _without, map_stream
from accel.server import Sidecar
from accel.server.guard import App
from loaders.format import RecordBatch
from loaders.store import MemoryStore
from tests.accel.lookup.cluster import STREAM as LINE_STREAM
from tests.accel.lookup.cluster import line_image, line_store, settled
from tests.accel.server.asking import NODE, STREAM, ask, filled, serving

PAGE = Path(accel.__file__).parent / "server" / "page"


def test_the_page_has_no_inline_code_and_loads_its_own_files_only() -> None:
    text = (PAGE / "index.html").read_text()
    own = {"/console.js", "/console.css", "/drawing.css", "data:,"}
    assert set(re.findall(r'(?:src|href)="([^"]*)"', text)) == own
    assert re.search(r"\son\w+=|style=|<style|<script(?![^>]*src=)", text) is None
    script = (PAGE / "console.js").read_text() + "".join(drawing_file(name).decode() for name in FILES)
    assert set(re.findall(r"https?://[^\"' ]+", script)) == {"http://www.w3.org/2000/svg"}
    assert set(re.findall(r'from "([^"]*)"', script)) == {"/drawing.js"}
    assert (
        re.search(r"innerHTML|outerHTML|insertAdjacent|eval\(|new Function|(local|session)Storage|cookie", script)
        is None
    )


def run(work: Any, store: MemoryStore, **settings: Any) -> None:
    async def main() -> None:
        async with serving(store, **settings) as (app, sidecar):
            await work(app, sidecar)

    asyncio.run(main())


def test_the_page_is_given_without_a_token_and_what_it_asks_is_not() -> None:
    async def work(app: App, _: Sidecar) -> None:
        for path in ("/", "/console.css", "/console.js", "/drawing.css", "/drawing.js"):
            reply = await ask(app, path)
            assert (reply.status, "script-src 'self'" in reply.headers["content-security-policy"]) == (200, True)
        assert (await ask(app, "/v1/map?stream_id=1")).status == 401
        assert (await ask(app, "/v1/prices")).status == 401

    run(work, filled(1), host="0.0.0.0")  # noqa: S104 - no port is opened


def test_a_map_tells_what_is_known_and_asks_the_store_nothing() -> None:
    async def work(app: App, sidecar: Sidecar) -> None:
        await ask(app, f"/v1/objects?stream_id={STREAM}&start=250&end=500")
        sidecar.store.reset()
        told = (await ask(app, f"/v1/map?stream_id={STREAM}")).json
        assert sidecar.store.snapshot().total.requests == 0
        [node] = told["nodes"]
        assert (node["node_id"], node["listed"], node["owned"], node["holes"]) == (NODE, 10, [[0, -1]], [])
        assert [row[0] for row in node["known"]] == [at for at, mark in enumerate(node["marks"]) if mark == "k"]
        assert all((start, end) == (100 * at, 100 * at + 100) for at, _, start, end in node["known"])
        missing = await ask(app, "/v1/map?stream_id=7")
        assert (missing.status, missing.json["type"]) == (404, "urn:accel:UnknownStream")
        assert (await ask(app, "/v1/prices")).json["per_thousand_reads"] == 2.5

    run(work, filled(), per_thousand_reads=2.5)


def test_a_map_shows_what_is_excluded_and_what_is_open_still() -> None:
    store = filled(1)
    with accel.ObjectCatalog.open(store) as catalog, catalog.open_node(NODE) as writer:
        writer.open_streams([STREAM, STREAM + 1])
        writer.upload({STREAM + 1: [RecordBatch(STREAM + 1, 1, 0, 10, b"other")]})
        writer.upload({STREAM: [RecordBatch(STREAM, 1, 100, 10, b"next")]})

    async def work(app: App, _: Sidecar) -> None:
        [before] = (await ask(app, f"/v1/map?stream_id={STREAM}")).json["nodes"]
        assert (before["marks"], before["known"]) == ("?x?", [])
        await ask(app, f"/v1/objects?stream_id={STREAM}&start=0&end=110")
        [node] = (await ask(app, f"/v1/map?stream_id={STREAM}")).json["nodes"]
        assert (node["marks"], [row[2:] for row in node["known"]]) == ("kxk", [[0, 100], [100, 110]])

    run(work, store)


def test_a_map_of_a_list_too_long_for_it_has_what_is_around_an_offset() -> None:
    with settled(line_store(40), line_image(list(range(40)))) as one:
        one.get_objects(LINE_STREAM, 105, 125, limit=9)
        engine = one._engine
        image, index_cache = engine.images.image, engine.index_cache
        maps = [map_stream(image, index_cache, LINE_STREAM, at, objects_max=8).nodes[0] for at in (None, 105, 0, 10**9)]
        whole = one.stream_map(LINE_STREAM, 105)
    assert [(node.listed, len(node.marks)) for node in maps] == [(40, 8)] * 4
    assert [node.first for node in maps if node.first + 8 <= 40] == [node.first for node in maps]
    assert maps[0].first == 32
    assert any(row[2] <= 105 < row[3] for row in maps[1].known)
    assert maps[2].first <= maps[1].first <= maps[3].first
    assert all(node.first <= row[0] < node.first + 8 for node in maps for row in node.known)
    assert (whole.nodes[0].first, len(whole.nodes[0].marks)) == (0, 40)


def test_a_map_tells_the_bytes_of_the_lists_or_that_the_image_lacks_them() -> None:
    async def work(app: App, sidecar: Sidecar) -> None:
        told = (await ask(app, f"/v1/map?stream_id={STREAM}")).json
        image = sidecar.accelerator._engine.images.image
        assert told["listed_bytes"] == sum(ref.size_bytes for ref in image.node(NODE).refs) > 0

    run(work, filled(3))
    with settled(line_store(2), line_image([0, 1])) as one:
        assert one.stream_map(LINE_STREAM).listed_bytes == UNKNOWN


def test_a_hole_is_on_the_map_once_it_is_proven() -> None:
    with settled(line_store(4), line_image([0, 1, 3])) as one:
        assert one.stream_map(LINE_STREAM).nodes[0].holes == []
        one.get_objects(LINE_STREAM, 5, 35, limit=9)
        [node] = one.stream_map(LINE_STREAM).nodes
    assert (node.marks, node.holes) == ("kkk", [(20, 30)])


def test_what_stream_objects_hold_is_no_hole() -> None:
    assert list(_without((20, 30), [(0, 5), (22, 25), (25, 26), (29, 40)])) == [(20, 22), (26, 29)]
    assert list(_without((20, 30), [(10, 30)])) == []
    assert list(_without((30, 20), [])) == []
