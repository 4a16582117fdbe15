"""What notebooks keep of an explanation and of an image: bounded, and no name in it is ever a tag."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.drawing import CELL_DATA_BYTES_MAX, FILES, cell_html, drawing_file, first_lines
from accel.image import MetadataImage, NodeImage, StreamImage, make_stream, node_of_columns
from accel.image import OwnershipRange as Owned
from accel.lookup.explain import Explanation
from tests.accel.lookup.cluster import NODE, STREAM, line_image, line_store, settled
from tests.examples import examples

HOSTILE = '</script></iframe><img src=x onerror="alert(1)">'


class Tags(HTMLParser):
    """The tags of a text, with their attributes; and the text of those that hold any."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        name = f"{self.found[-1][0]} {self.found[-1][1].get('type')}" if self.found else ""
        self.texts[name] = self.texts.get(name, "") + data

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.found]


CELL_TAGS = ["iframe", "details", "summary", "pre"]
DOCUMENT_TAGS = ["html", "head", "meta", "meta", "title", "style", "body", "main", "script", "script"]


def inside(html: str) -> Tags:
    """The document in a cell, whose tags are checked on the way."""
    cell = Tags(html)
    assert cell.names == CELL_TAGS
    frame = cell.found[0][1]
    assert frame["sandbox"] == "allow-scripts"
    document = Tags(frame["srcdoc"] or "")
    assert document.names == DOCUMENT_TAGS
    return document


def told_in(html: str) -> Any:
    return json.loads(inside(html).texts["script application/json"])


def explained(objects: int, *, start: int = 105, end: int = 125, **chosen: Any) -> Explanation:
    with settled(line_store(objects), line_image(list(range(objects))), **chosen) as one:
        return one.explain(STREAM, start, end, limit=9)


@given(st.text() | st.just(HOSTILE) | st.text(alphabet="<>&'\"/!-s\u2028"))
@settings(max_examples=examples(40))
def test_no_text_becomes_a_tag_and_each_arrives_as_it_was(text: str) -> None:
    html = cell_html("image", {"name": text, text: [text]}, title=text, text=text)
    assert told_in(html) == {"view": "image", "data": {"name": text, text: [text]}}


def test_a_cell_loads_nothing_and_allows_its_own_script_and_style_only() -> None:
    document = inside(explained(20)._repr_html_())
    policy = next(each["content"] for _, each in document.found if each.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert [each for _, each in document.found if {"src", "href", "onload"} & each.keys()] == []
    assert drawing_file("drawing.js").decode() in document.texts["script module"]
    assert document.texts["style None"] == drawing_file("drawing.css").decode()
    assert all(b"</script" not in drawing_file(name) and b"</style" not in drawing_file(name) for name in FILES)


def test_an_explanation_has_its_trace_and_the_map_of_then() -> None:
    explanation = explained(20)
    html = explanation._repr_html_()
    told = told_in(html)["data"]
    plain = json.loads(explanation.to_json())
    assert {**told["trace"], "hints": []} == {**plain, "hints": [], "events_left_out": 0}
    [node] = told["map"]["nodes"]
    assert {each[1] for each in node["known"]} >= {each["object_id"] for each in told["trace"]["answer"]["objects"]}
    assert "object 10 has [100, 110)" in Tags(html).texts["pre None"]
    assert repr(explanation) == (
        f"<Explanation of stream {STREAM}, offsets [105, 125): 3 objects hold [100, 130); the end is reached; 3 rounds>"
    )


def test_an_explanation_of_a_failure_is_shown_as_well() -> None:
    with settled(line_store(1), line_image([0, 1])) as one:
        failed = one.explain(STREAM, 0, 20)
    told = told_in(failed._repr_html_())["data"]
    assert (told["trace"]["answer"], told["trace"]["error"]["type"]) == (None, "ObjectLost")
    assert "ObjectLost" in repr(failed)


def test_what_opened_thousands_of_objects_is_cut_and_says_so() -> None:
    told = told_in(explained(1200, end=11_000, policy="load-all")._repr_html_())["data"]
    rounds = [each for each in told["trace"]["events"] if each["event"] == "round"]
    assert [(len(each["opened"]), each["left_out"]) for each in rounds] == [(500, 700)]
    assert len(told["trace"]["events"]) + told["trace"]["events_left_out"] > len(rounds)


def column(length: int, begin: int = 0) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.arange(begin, begin + length, dtype=np.int64)


def large_node(node_id: int, objects: int) -> NodeImage:
    ones = np.ones(objects, dtype=np.int64)
    return node_of_columns(
        node_id,
        object_ids=column(objects, node_id * objects),
        order_ids=column(objects),
        sizes_bytes=ones * 1000,
        index_sizes_bytes=ones,
        attributes=ones,
    )


def moved_stream(stream_id: int, moves: int) -> StreamImage:
    bounds = [*range(0, 100 * moves, 100), -1]
    owned = [Owned(at, start, end, at % 60) for at, (start, end) in enumerate(pairwise(bounds))]
    return make_stream(stream_id, 0, owned, [])


def test_an_image_of_millions_of_objects_is_a_page() -> None:
    nodes = {node_id: large_node(node_id, 50_000) for node_id in range(60)}
    streams = {stream_id: moved_stream(stream_id, 500) for stream_id in range(100)}
    image = MetadataImage(7, "namespace", streams, nodes)
    html = image._repr_html_()
    told = told_in(html)["data"]
    assert (told["objects"], told["bytes"], told["nodes"], told["streams"]) == (3_000_000, 3_000_000_000, 60, 100)
    assert (len(told["lists"]), len(told["shown_streams"])) == (50, 20)
    assert [(len(each["owned"]), each["left_out"]) for each in told["shown_streams"]] == [(20, 480)] * 20
    assert len(html) < 100_000
    assert repr(image) == "<MetadataImage 7 of namespace: 100 streams, 60 nodes>"


def test_an_image_tells_what_it_lists_and_which_sizes_it_lacks() -> None:
    image = line_image([0, 1, 2])
    told = told_in(image._repr_html_())["data"]
    assert (told["bytes"], told["lists"]) == (-1, [[NODE, 3, -1]])
    assert told["shown_streams"][0]["owned"] == [[0, -1, NODE]], "the last range has no end, whatever it says"
    nothing = MetadataImage.from_dict({"streams": [], "nodes": []})
    assert told_in(nothing._repr_html_())["data"]["objects"] == 0


def test_data_that_is_too_much_for_a_notebook_is_shown_as_text() -> None:
    html = cell_html("image", {"much": "x" * CELL_DATA_BYTES_MAX}, title="much", text="<as text>")
    assert html == "<pre>&lt;as text&gt;</pre>"


@pytest.mark.parametrize(
    ("lines", "last"), [(200, "199"), (201, "... and 1 more line"), (500, "... and 300 more lines")]
)
def test_a_text_is_cut_after_200_lines(lines: int, last: str) -> None:
    told = first_lines("\n".join(map(str, range(lines))))
    assert told.rpartition("\n")[2] == last
    assert told.count("\n") <= 200
