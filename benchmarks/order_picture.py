"""Draws the picture in docs/ of how far out of order records come: `python -m benchmarks.order_picture FILE`."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.time_order import PERCENTILES, SCENARIOS, SECONDS, SEEDS, World, both

PANEL: Final = (230, 240)
LEFT, TOP, GAP = 62, 62, 14
MAX_MS: Final = 200_000
MARKS: Final = {1: "1 ms", 10: "10 ms", 100: "0.1 s", 1_000: "1 s", 10_000: "10 s", 100_000: "100 s"}
NAMES: Final = ("50 %", "90 %", "99 %", "99.9 %", "all")
STYLE: Final = """
    text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328; }
    .small { font-size: 11.5px; fill: #59636e; }
    .name { font-weight: 600; }
    .grid { stroke: #d1d9e0; stroke-width: 1; }
    .ours { stroke: #0969da; fill: #0969da; }
    .peer { stroke: #bc4c00; fill: #bc4c00; }
    polyline { fill: none !important; stroke-width: 2.2; }
    text.ours, text.peer { stroke: none; font-weight: 600; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3; }
      .small { fill: #9198a1; }
      .grid { stroke: #3d444d; }
      .ours { stroke: #4493f8; fill: #4493f8; }
      .peer { stroke: #f0883e; fill: #f0883e; }
    }
  """
TITLE: Final = "How far out of the order of time records come"
DESCRIPTION: Final = (
    "Three panels, one for a reader at the tail, one for a reader that is behind, one for a reader of history. In "
    "each, from left to right, how far out of order at most 50, 90, 99, 99.9 and 100 percent of the records come, on a "
    "scale from 1 millisecond to 100 seconds; two lines, ours below and the reader that takes most data first above."
)
Panel = tuple[str, list[float], list[float]]


def picture(panels: list[Panel]) -> str:
    """The picture as SVG.

    Args:
        panels: for each its name, and milliseconds at `PERCENTILES` of ours and of the peer.
    """
    width, height = LEFT + len(panels) * (PANEL[0] + GAP), TOP + PANEL[1] + 52
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            'role="img" aria-labelledby="title desc">'
        ),
        f'  <title id="title">{TITLE}</title>',
        f'  <desc id="desc">{DESCRIPTION}</desc>',
        f"  <style>{STYLE}</style>",
        f'  <text class="ours" x="{LEFT}" y="20">lowest time first (ours)</text>',
        f'  <text class="peer" x="{LEFT + PANEL[0] + GAP}" y="20">most data in memory first</text>',
    ]
    parts += [_text(LEFT - 8, _y(ms) + 4, text, "small", "end") for ms, text in MARKS.items()]
    for number, panel in enumerate(panels):
        parts += _panel(LEFT + number * (PANEL[0] + GAP), *panel)
    caption = (
        "this share of the records is out of order by at most this time; points on the lowest line: by less than 1 ms"
    )
    parts.append(_text(LEFT, height - 8, caption, "small"))
    return "\n".join([*parts, "</svg>", ""])


def _panel(left: int, name: str, ours: list[float], peer: list[float]) -> list[str]:
    parts = [_text(left, TOP - 14, name, "name")]
    parts += [
        f'  <line class="grid" x1="{left}" y1="{_y(ms):.0f}" x2="{left + PANEL[0]}" y2="{_y(ms):.0f}"/>' for ms in MARKS
    ]
    places = [left + 18 + number * (PANEL[0] - 40) / (len(NAMES) - 1) for number in range(len(NAMES))]
    parts += [_text(x, TOP + PANEL[1] + 18, text, "small", "middle") for x, text in zip(places, NAMES, strict=True)]
    for side, values in (("peer", peer), ("ours", ours)):
        points = [(x, _y(ms)) for x, ms in zip(places, values, strict=True)]
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'  <polyline class="{side}" points="{drawn}"/>')
        parts += [f'  <circle class="{side}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in points]
    return parts


def _y(ms: float) -> float:
    return TOP + PANEL[1] * (1 - math.log10(max(ms, 1.0)) / math.log10(MAX_MS))


def _text(x: float, y: float, text: str, kind: str, anchor: str = "start") -> str:
    return f'  <text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def panels() -> list[Panel]:
    """The panels: medians over all streams."""
    drawn: list[Panel] = []
    for scenario in SCENARIOS:
        pairs = [both(World(seed, SECONDS), scenario) for seed in SEEDS]
        ours, peer = (
            np.median([np.percentile(reading.out_of_order_ms(), PERCENTILES) for reading in side], axis=0).tolist()
            for side in zip(*pairs, strict=True)
        )
        drawn.append((scenario.name, ours, peer))
    return drawn


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(picture(panels()))
