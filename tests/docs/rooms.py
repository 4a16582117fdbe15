"""Draws docs/img/rooms.svg from the layers contracts of pyproject.toml: `python -m tests.docs.rooms`.

A row is a layer, a box a room in it; a room may import those in the rows below it, and no others. What a box says is
the first sentence of the docstring of its package or module. A test compares the picture with the contracts.
"""

from __future__ import annotations

import ast
import textwrap
import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "img" / "rooms.svg"
WIDTH, MARGIN, GAP, LINE_HEIGHT, TITLE_HEIGHT = 960, 12, 10, 14, 30
CHARACTER_WIDTH = 6.1
STYLE = """
    text { font: 11.5px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #59636e; }
    .name { font-size: 13px; font-weight: 600; fill: #1f2328; }
    .title { font-size: 13px; fill: #1f2328; }
    .box { fill: #f6f8fa; stroke: #8c959f; stroke-width: 1.2; rx: 6px; }
    @media (prefers-color-scheme: dark) {
      text { fill: #9198a1; }
      .name, .title { fill: #e6edf3; }
      .box { fill: #161b22; stroke: #6e7681; }
    }
  """


def layers_contracts() -> list[tuple[str, list[list[str]]]]:
    """The name of each contract about layers, and its rows of rooms, the upper ones first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    contracts = []
    for contract in settings["contracts"]:
        if contract["type"] == "layers":
            [container] = contract.get("containers", [""])
            rows = [[name.strip(" ()") for name in layer.replace(":", "|").split("|")] for layer in contract["layers"]]
            contracts.append((contract["name"], [[f"{container}.{room}".strip(".") for room in row] for row in rows]))
    return contracts


def first_sentence(room: str) -> str:
    """What the docstring of a room begins with."""
    folder = ROOT / room.replace(".", "/")
    path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(docstring.split("\n\n")[0].split()).split(". ")[0].rstrip(".:").replace("`", "")


def picture() -> str:
    """The whole picture as SVG."""
    shapes: list[str] = []
    top = MARGIN
    for name, rows in layers_contracts():
        shapes.append(f'<text class="title" x="{MARGIN}" y="{top + 16}">{escape(name)}</text>')
        top += TITLE_HEIGHT
        for row in rows:
            width = (WIDTH - 2 * MARGIN - GAP * (len(row) - 1)) / len(row)
            texts = [textwrap.wrap(first_sentence(room), int((width - 20) / CHARACTER_WIDTH)) for room in row]
            height = 28 + LINE_HEIGHT * max(map(len, texts))
            for column, (room, lines) in enumerate(zip(row, texts, strict=True)):
                shapes += box(room, lines, MARGIN + column * (width + GAP), top, width, height)
            top += height + GAP
    title = "The rooms of Accel, and which may import which"
    told = "A room may import those in the rows below it. Drawn from the layers contracts in pyproject.toml."
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" width="{WIDTH}" height="{top}" role="img"'
        ' aria-labelledby="title desc">\n'
        f'  <title id="title">{title}</title>\n  <desc id="desc">{told}</desc>\n  <style>{STYLE}</style>\n  '
    )
    return head + "\n  ".join(shapes) + "\n</svg>\n"


def box(room: str, lines: list[str], left: float, top: float, width: float, height: float) -> list[str]:
    name = room.replace(".", "/")
    shapes = [f'<rect class="box" x="{left:.1f}" y="{top}" width="{width:.1f}" height="{height}"/>']
    shapes.append(f'<text class="name" x="{left + 10:.1f}" y="{top + 18}">{name}</text>')
    for number, line in enumerate(lines):
        y = top + 34 + number * LINE_HEIGHT
        shapes.append(f'<text x="{left + 10:.1f}" y="{y}">{escape(line)}</text>')
    return shapes


if __name__ == "__main__":
    PICTURE.write_text(picture())
