"""Draws docs/img/cold-lookup-cost.svg: `python -m tests.docs.cost_picture`.

GETs of one cold lookup as the list of its node grows, and their price. Lookups in short lists are counted here; the
numbers of 5,000 and 20,000 objects are those of docs/operations/benchmarks.md, which a test compares with a count.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from accel.server.settings import SidecarSettings
from benchmarks.cold_requests import KINDS, LONG_LIST_OBJECTS, OBJECTS_MAX, PLACES, mean_of, nodes_of
from loaders.plan import Spread
from tests.docs.drawing import WIDTH, drawn, path, text
from tests.docs.pages import ROOT, listing_rows, page_named

PICTURE = ROOT / "docs" / "img" / "cold-lookup-cost.svg"
COST, MEASURED = page_named("cost"), page_named("benchmarks")
STREAMS = dict(zip(KINDS, ("dense", "in 10 %", "in 1 %", "in 1 %, bursty"), strict=True))
"""What the page calls the streams of the benchmark."""

POLICIES = ("load-all", "persisted index", "window", "window+preload", "spread", "spread, filters known")
LONG_POLICIES = ("load-all", "spread", "spread, filters known")
COUNTED: Final = (50, 100, 200, 500, 1000, 2000)
USD_PER_GET: Final = SidecarSettings().per_thousand_reads / 1000
LOOKUPS: Final = 1_000_000
STYLE: Final = """
    .grid { stroke: #d1d9e0; stroke-width: 1; }
    .line { fill: none; stroke-width: 2.2; }
    .without { stroke: #bc4c00; fill: #bc4c00; }
    .tenth { stroke: #0969da; fill: #0969da; stroke-dasharray: 6 3; }
    .dense { stroke: #0969da; fill: #0969da; }
    .snapshot { stroke: #1a7f37; fill: #1a7f37; }
    path.line { fill: none; }
    circle, text.label { stroke: none; stroke-dasharray: none; }
    text.label { font-weight: 600; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3; }
      .small { fill: #9198a1; }
      .grid { stroke: #3d444d; }
      .without { stroke: #f0883e; fill: #f0883e; }
      .tenth, .dense { stroke: #4493f8; fill: #4493f8; }
      .snapshot { stroke: #3fb950; fill: #3fb950; }
    }
  """


class Curve(NamedTuple):
    """GETs by objects of the node, under a name."""

    style: str
    label: str
    gets: Mapping[int, float]


@functools.cache
def cost_tables() -> list[dict[tuple[str, str], list[str]]]:
    """By stream and place the cells of the page: all policies, 20,000 objects, and an end that nobody tells.

    What load-all costs is the same everywhere, so the page has it in a sentence.
    """
    everything, long, foreign = (dict[tuple[str, str], list[str]]() for _ in range(3))
    sentence = r"load-all always costs\s+([0-9./]+); with 20,000 objects it costs\s+([0-9./]+):"
    found = re.search(sentence, MEASURED.read_text())
    if found is None:
        raise AssertionError("expected a sentence on what load-all costs")
    stream = ""
    for cells in listing_rows(MEASURED):
        if cells[1:2] and cells[1] in PLACES:
            stream = cells[0] or stream
            row = stream, cells[1]
            if row not in everything:
                everything[row] = [found[1], *cells[2:]]
            else:
                long[row], foreign[row] = [found[2], *cells[2:4]], cells[4:]
    return [everything, long, foreign]


def published_gets(stream: str, policy: str, objects: int = OBJECTS_MAX, place: str = "random") -> float:
    """GETs of a cold lookup as the page has them."""
    everything, long, _ = cost_tables()
    table, policies = (everything, POLICIES) if objects == OBJECTS_MAX else (long, LONG_POLICIES)
    return float(table[stream, place][policies.index(policy)].split("/")[0])


@functools.cache
def curves() -> list[Curve]:
    """Without Accel, with Accel in a tenth of the objects and in all, and with a snapshot."""
    sizes = (*COUNTED, OBJECTS_MAX, LONG_LIST_OBJECTS)
    found = re.search(r"^- Likewise with a \[snapshot\]\(\S+\) of the node: (\d+);", COST.read_text(), re.MULTILINE)
    if found is None:
        raise AssertionError("expected GETs with a snapshot")
    return [
        Curve("without", "without Accel: each object is opened", dict(zip(sizes, map(float, sizes), strict=True))),
        Curve("tenth", "Accel, the stream is in a tenth of the objects", _spread("10 %")),
        Curve("dense", "Accel, the stream is in all objects", _spread("dense")),
        Curve("snapshot", "Accel with a snapshot of the node", dict.fromkeys(sizes, float(found[1]))),
    ]


def _spread(kind: str) -> dict[int, float]:
    counted = {objects: mean_of(nodes_of(kind, objects), "random", Spread())[0] for objects in COUNTED}
    lengths = (OBJECTS_MAX, LONG_LIST_OBJECTS)
    return counted | {objects: published_gets(STREAMS[kind], "spread", objects) for objects in lengths}


# -- the drawing -------------------------------------------------------------------------------------------------------

LEFT, RIGHT, TOP, BOTTOM = 66, 694, 50, 350
GETS_MAX = 30_000
MARKS: Final = (1, 10, 100, 1000, 10_000)


def picture() -> str:
    """The curves as SVG, both scales logarithmic."""
    drawn_curves = curves()
    shapes = [
        text(LEFT - 50, 24, "GETs of a cold lookup", "name"),
        text(WIDTH - 16, 24, "USD for a million of them", "name", "end"),
    ]
    for gets in MARKS:
        shapes.append(f'<line class="grid" x1="{LEFT}" y1="{_y(gets):g}" x2="{RIGHT}" y2="{_y(gets):g}"/>')
        shapes.append(text(LEFT - 8, _y(gets) + 4, f"{gets:,}", "small", "end"))
        shapes.append(text(RIGHT + 8, _y(gets) + 4, dollars(gets), "small"))
    sizes = drawn_curves[0].gets
    shapes += [text(_x(objects), BOTTOM + 20, f"{objects:,}", "small", "middle") for objects in sizes]
    shapes.append(text((LEFT + RIGHT) / 2, BOTTOM + 40, "objects that the node lists", "small", "middle"))
    for curve in drawn_curves:
        shapes += _curve(curve)
    names = "; ".join(curve.label for curve in drawn_curves)
    counts = ((objects, [f"{curve.gets[objects]:,.0f}" for curve in drawn_curves]) for objects in sizes)
    told = " ".join(f"{objects:,} objects: {', '.join(each)}." for objects, each in counts)
    description = f"GETs of a cold lookup at a random offset by objects of the node, in this order: {names}. {told}"
    return drawn("GETs and price of a cold lookup by the length of the list", description, BOTTOM + 54, shapes, STYLE)


def dollars(gets: float) -> str:
    """The price of a million lookups with this number of GETs."""
    price = gets * USD_PER_GET * LOOKUPS
    return f"{price:,.2f}" if price < 1 else f"{price:,.0f}"


def _curve(curve: Curve) -> Iterator[str]:
    points = [(_x(objects), _y(gets)) for objects, gets in curve.gets.items()]
    yield path(f"line {curve.style}", "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in points))
    for x, y in points:
        yield f'<circle class="{curve.style}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>'
    objects, gets = list(curve.gets.items())[-1]
    x, y = _x(objects), _y(gets)
    y += 26 if curve.style == "dense" else -10
    yield text(x, y, f"{curve.label}: {gets:,.0f} GETs", f"label {curve.style}", "end")


def _x(objects: float) -> float:
    low, high = math.log(COUNTED[0]), math.log(LONG_LIST_OBJECTS)
    return LEFT + 14 + (RIGHT - LEFT - 28) * (math.log(objects) - low) / (high - low)


def _y(gets: float) -> float:
    return BOTTOM - (BOTTOM - TOP) * math.log(gets) / math.log(GETS_MAX)


if __name__ == "__main__":
    PICTURE.write_text(picture())
