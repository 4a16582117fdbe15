"""Shapes of the pictures of docs, as SVG for light and dark pages."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

WIDTH = 760
FONT_STYLE = """
    text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328; }
    .small { font-size: 11.5px; fill: #59636e; }
    .name { font-weight: 600; }"""


def drawn(title: str, description: str, height: int, shapes: Iterable[str], style: str) -> str:
    """A whole picture as SVG; the style has what is not in `FONT_STYLE`, and the dark colours."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        f' role="img" aria-labelledby="title desc">\n  <title id="title">{escape(title)}</title>\n'
        f'  <desc id="desc">{escape(description)}</desc>\n  <style>{FONT_STYLE}{style}</style>\n  '
    )
    return head + "\n  ".join(shapes) + "\n</svg>\n"


def text(x: float, y: float, content: str, style: str = "", anchor: str = "start") -> str:
    """A line of text; y is its baseline."""
    return f'<text class="{style}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(content)}</text>'


def box(style: str, x: float, y: float, width: float, height: float, radius: int = 3) -> str:
    """A rectangle with round corners."""
    return f'<rect class="{style}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius}"/>'


def path(style: str, data: str, attributes: str = "") -> str:
    """A line."""
    return f'<path class="{style}" d="{data}"{attributes}/>'
