"""GETs of one cold lookup as the list of its node grows, and their price, as pages and cold-lookup-cost.svg say.

Lookups in short lists are counted here; the numbers of 5,000 and 20,000 objects are those of
docs/operations/benchmarks.md, which a test compares with a count.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from accel.server.settings import SidecarSettings
from benchmarks.lookups import KINDS, LONG_LIST_OBJECTS, OBJECTS_MAX, PLACES, mean_of, nodes_of
from loaders.plan import Spread
from tests.docs.pages import listing_rows, page_named

COST, MEASURED = page_named("cost"), page_named("benchmarks")
STREAMS = dict(zip(KINDS, ("dense", "in 10 %", "in 1 %", "in 1 %, bursty"), strict=True))
"""What the page calls the streams of the benchmark."""

POLICIES = ("load-all", "persisted index", "window", "window+preload", "spread", "spread, filters known")
LONG_POLICIES = ("load-all", "spread", "spread, filters known")
COUNTED: Final = (50, 100, 200, 500, 1000, 2000)
USD_PER_GET: Final = SidecarSettings().per_thousand_reads / 1000
LOOKUPS: Final = 1_000_000


class Curve(NamedTuple):
    """GETs by objects of the node, under a name."""

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
        Curve("without Accel: each object is opened", dict(zip(sizes, map(float, sizes), strict=True))),
        Curve("Accel, the stream is in a tenth of the objects", _spread("10 %")),
        Curve("Accel, the stream is in all objects", _spread("dense")),
        Curve("Accel with a snapshot of the node", dict.fromkeys(sizes, float(found[1]))),
    ]


def _spread(kind: str) -> dict[int, float]:
    counted = {objects: mean_of(nodes_of(kind, objects), "random", Spread())[0] for objects in COUNTED}
    lengths = (OBJECTS_MAX, LONG_LIST_OBJECTS)
    return counted | {objects: published_gets(STREAMS[kind], "spread", objects) for objects in lengths}
