"""Drawings of maps, lookups, histories and images: one module of JavaScript, for the console and for notebooks.

    drawing.js      plain data -> SVG and tables; sends no request, keeps no state
    drawing.css     its colours and patterns, light and dark
    cell_html       the value of an object's `_repr_html_`: the same module, with the object's data inside

The sidecar serves both files to its page. A cell of a notebook is a document in an `iframe`: it contains both files and
the data, loads nothing, and is drawn wherever the notebook is opened. Names come from a bucket, where other users may
have written them, so three measures prevent names from being run as code. The document receives them as JSON in which
no tag can begin, and shows them as text, never as HTML. The frame is sandboxed: it has no origin, and cannot reach the
notebook or its server. Its content security policy allows only its own script and style, by their hashes, and no
request.

Below the frame is the same content as text, for viewers that remove scripts, such as those of untrusted notebooks.

Threads: any; the files are read once.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from html import escape
from typing import Any, Final

__all__ = ["CELL_DATA_BYTES_MAX", "FILES", "cell_html", "drawing_file", "first_lines"]

FILES: Final = ("drawing.css", "drawing.js")

CELL_DATA_BYTES_MAX: Final = 1 << 19
"""Limit of one cell's data, as JSON: a notebook stores each cell. Larger data is shown only as text."""

TEXT_LINES_MAX: Final = 200

_DRAW: Final = """
const told = parseExact(document.getElementById("data").textContent);
document.body.append(patterns());
const main = document.querySelector("main");
const draw = () => main.replaceChildren(...CELLS[told.view](told.data, Math.max(280, main.clientWidth)));
draw();
window.addEventListener("resize", draw);
"""

_NO_TAG: Final = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def cell_html(view: str, data: Mapping[str, Any], *, title: str, text: str, height: int = 560) -> str:
    """The HTML of an object in a notebook: the drawing in a frame, and below it the text.

    Args:
        view: the entry of `CELLS` in drawing.js that draws the object.
        data: for that view; plain, and limited by the caller.
        title: of the frame, for screen readers.
        text: the same content as lines; the first 200 are used.
        height: of the frame, in pixels; it scrolls.

    Complexity: O(size of the data and the text).
    """
    lines = f"<pre>{escape(first_lines(text))}</pre>"
    told = json.dumps({"view": view, "data": data}, separators=(",", ":"))
    if len(told) > CELL_DATA_BYTES_MAX:
        return lines
    document = escape(_document(told.translate(_NO_TAG), title))
    frame = (
        f'<iframe title="{escape(title)}" sandbox="allow-scripts" width="100%" height="{height}" frameborder="0" '
        f'srcdoc="{document}"></iframe>'
    )
    return f"{frame}<details><summary>as text</summary>{lines}</details>"


def first_lines(text: str) -> str:
    """The first 200 lines of a text, and the number of further lines."""
    lines = text.split("\n", TEXT_LINES_MAX)
    if len(lines) <= TEXT_LINES_MAX:
        return text
    more = lines.pop().count("\n") + 1
    return "\n".join([*lines, f"... and {more} more {'line' if more == 1 else 'lines'}"])


@cache
def drawing_file(name: str) -> bytes:
    """The contents of one of `FILES`."""
    from importlib import resources  # noqa: PLC0415 - images import this module, and few are drawn

    return resources.files(__name__).joinpath(name).read_bytes()


def _document(told: str, title: str) -> str:
    style, script = drawing_file("drawing.css").decode(), drawing_file("drawing.js").decode() + _DRAW
    policy = f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}"
    head = (
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{escape(title)}</title><style>{style}</style>"
    )
    data = f'<script type="application/json" id="data">{told}</script>'
    body = f'<main></main>{data}<script type="module">{script}</script>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>'


def _hash(inline: str) -> str:
    return f"'sha256-{b64encode(sha256(inline.encode()).digest()).decode()}'"
