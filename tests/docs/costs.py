"""GETs of a cold lookup, as docs/operations/benchmarks.md has them; tests compare them with counts."""

from __future__ import annotations

import functools
import re

from benchmarks.lookups import KINDS, PLACES
from tests.docs.pages import listing_rows, page_named

MEASURED = page_named("benchmarks")
STREAMS = dict(zip(KINDS, ("dense", "in 10 %", "in 1 %", "in 1 %, bursty"), strict=True))
"""What the page calls the streams of the benchmark."""

POLICIES = ("load-all", "persisted index", "window", "window+preload", "spread", "spread, filters known")


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
