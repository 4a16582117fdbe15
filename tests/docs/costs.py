"""GETs of a cold lookup, and their price, as docs/operations/benchmarks.md has them; tests compare them with counts."""

from __future__ import annotations

import functools
import re
from typing import Final

from accel.server.settings import SidecarSettings
from benchmarks.lookups import KINDS, OBJECTS_MAX, PLACES
from tests.docs.pages import listing_rows, page_named

COST, MEASURED = page_named("cost"), page_named("benchmarks")
STREAMS = dict(zip(KINDS, ("dense", "in 10 %", "in 1 %", "in 1 %, bursty"), strict=True))
"""What the page calls the streams of the benchmark."""

POLICIES = ("load-all", "persisted index", "window", "window+preload", "spread", "spread, filters known")
LONG_POLICIES = ("load-all", "spread", "spread, filters known")
USD_PER_GET: Final = SidecarSettings().per_thousand_reads / 1000


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
