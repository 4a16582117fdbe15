"""Lines of lookup explanations for a terminal: coloured, and folded to its width."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from rich.text import Text

from accel.lookup.explain import LABEL_WIDTH, MAP_EDGES
from accel.rendering import Folded

_STYLES: Final = {
    r"^(answer|cost) .*": "bold",
    r"^took .*": "green",
    r"^(warning|hole|again) .*": "yellow",
    r"^(─+|map .*)$": "dim",
    r"#": "bold green",
}


def explanation_lines(lines: Iterable[str]) -> Iterator[Folded]:
    """Lines of `Explanation.text`, or of a saved slow lookup."""
    for line in lines:
        styled = Text(line)
        for pattern, style in _STYLES.items():
            styled.highlight_regex(pattern, style)
        is_map = line.lstrip().startswith(MAP_EDGES[0])
        yield Folded(styled, LABEL_WIDTH + is_map, is_drawing=is_map)
