"""Draws a process under load: memory, files, threads and latencies over time, one panel each, as SVG.

The scale of each panel begins at zero, so that changes have their true proportion. Used by
`benchmarks.sidecar_load --picture`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

WIDTH, HEIGHT, LEFT, GAP = 640, 96, 64, 44
POINTS_MAX: Final = 300
"""The maximum number of points of a line; of a longer line, the highest of neighbouring values is drawn."""
STYLE: Final = """
    text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328; }
    .small { font-size: 11.5px; fill: #59636e; }
    .name { font-weight: 600; }
    .grid { stroke: #d1d9e0; stroke-width: 1; }
    polyline { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
    .line-0 { stroke: #0969da; } .line-1 { stroke: #bc4c00; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3; }
      .small { fill: #9198a1; }
      .grid { stroke: #3d444d; }
      .line-0 { stroke: #4493f8; } .line-1 { stroke: #f0883e; }
    }
  """
TITLE: Final = "A sidecar under load while its images are replaced"
Points = Sequence[tuple[float, float]]


class Panel(NamedTuple):
    """A panel.

    Args:
        name: of the values, with their unit.
        lines: name -> (minutes, value) in the order of time; the name is empty if there is one line.
    """

    name: str
    lines: Mapping[str, Points]


def picture(panels: Sequence[Panel]) -> str:
    """The panels, from top to bottom."""
    width, height = LEFT + WIDTH + 60, len(panels) * (HEIGHT + GAP) + 24
    told = "; ".join(f"{panel.name}: at most {_highest(panel):,.0f}" for panel in panels)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            'role="img" aria-labelledby="title desc">'
        ),
        f'  <title id="title">{TITLE}</title>',
        f'  <desc id="desc">Lines over minutes, each panel from zero on. {told}.</desc>',
        f"  <style>{STYLE}</style>",
    ]
    for number, panel in enumerate(panels):
        parts += _drawn(panel, 24 + number * (HEIGHT + GAP))
    return "\n".join([*parts, "</svg>", ""])


def thinned(points: Points) -> list[tuple[float, float]]:
    """At most `POINTS_MAX` points: the highest of neighbouring ones."""
    step = -(-len(points) // POINTS_MAX) if points else 1
    return [max(points[at : at + step], key=lambda each: each[1]) for at in range(0, len(points), step)]


def _drawn(panel: Panel, top: int) -> list[str]:
    highest = _highest(panel) or 1.0
    minutes = max((at for points in panel.lines.values() for at, _ in points), default=1.0)
    parts = [
        f'  <text class="name" x="{LEFT}" y="{top - 7}">{panel.name}</text>',
        *(
            f'  <line class="grid" x1="{LEFT}" y1="{y}" x2="{LEFT + WIDTH}" y2="{y}"/>'
            f'<text class="small" x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{value:,.0f}</text>'
            for y, value in ((top, highest), (top + HEIGHT, 0.0))
        ),
        f'  <text class="small" x="{LEFT + WIDTH}" y="{top + HEIGHT + 15}" text-anchor="end">{minutes:.0f} min</text>',
    ]
    for number, (name, points) in enumerate(panel.lines.items()):
        places = [(LEFT + WIDTH * at / minutes, top + HEIGHT * (1 - value / highest)) for at, value in thinned(points)]
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'  <polyline class="line-{number}" points="{drawn}"/>')
        if name and places:
            parts.append(f'  <text class="small" x="{places[-1][0] + 6:.0f}" y="{places[-1][1] + 4:.0f}">{name}</text>')
    return parts


def _highest(panel: Panel) -> float:
    return max((value for points in panel.lines.values() for _, value in points), default=0.0)
