"""The promises on hints at 5,000 objects, and that docs/reference/hints.md says of them what a run says."""

from __future__ import annotations

import re

import numpy as np
import pytest

from accel import MetadataImage
from accel.image import make_node
from benchmarks.lookups import (
    OBJECTS_MAX,
    PERSISTED,
    PERSISTED_OLDER,
    PLACES,
    SNAPSHOT_OLDER,
    HintMeans,
    hinted_nodes,
    measure_node,
)
from bloom import StreamFilter
from loaders.hints import write_pack
from loaders.object_ref import ObjectRef
from loaders.store import CountingStore, MemoryStore
from tests.accel.lookup.cluster import NODE, accelerator
from tests.docs.pages import cost_text, listing_rows, page_named

WAYS = ("no hints", "pack", PERSISTED, SNAPSHOT_OLDER, PERSISTED_OLDER)
CONSTANT_WAYS = ("snapshot", "snapshot, root known")


@pytest.fixture(scope="module")
def measured() -> dict[str, HintMeans]:
    return {name: measure_node(node) for name, node in hinted_nodes().items()}


@pytest.mark.parametrize("place", PLACES)
def test_a_cold_lookup_costs_what_was_promised(place: str, measured: dict[str, HintMeans]) -> None:
    for means in measured.values():
        assert means[place, "snapshot"][:2] == (2, 2)
        assert means[place, "snapshot, root known"][:2] == (1, 1)
        assert means[place, "pack"][0] <= 30
        assert means[place, "pack"][1] <= 6
        gets, rounds, _ = means[place, PERSISTED]
        assert means[place, "snapshot"][0] <= gets + (4 if place == "tail" else 0)
        assert means[place, "snapshot"][1] <= rounds
        assert means[place, SNAPSHOT_OLDER][0] <= means[place, PERSISTED_OLDER][0]


def test_the_page_on_hints_says_what_a_run_says(measured: dict[str, HintMeans]) -> None:
    rows = [row for row in listing_rows(page_named("hints")) if len(row) == 7 and row[1] in PLACES]
    expected = [[cost_text(*means[place, way][:2]) for way in WAYS] for means in measured.values() for place in PLACES]
    assert [row[2:] for row in rows] == expected
    constant = {
        tuple(cost_text(*means[place, way][:2]) for way in CONSTANT_WAYS)
        for means in measured.values()
        for place in PLACES
    }
    text = " ".join(page_named("hints").read_text().split())
    assert constant == set(re.findall(r"A snapshot always costs (\d/\d), and (\d/\d) if its root is in memory", text))


def test_the_filters_of_5000_objects_of_9000_streams_are_loaded_by_at_most_ten_requests() -> None:
    store = CountingStore(MemoryStore())
    one_filter = StreamFilter.build(np.arange(9_000, dtype=np.int64))
    refs = [ObjectRef(object_id, 10_000_000) for object_id in range(OBJECTS_MAX)]
    write_pack(store, namespace="DEFAULT", node_id=NODE, generation=1, added=((ref, one_filter) for ref in refs))
    image = MetadataImage(0, "DEFAULT", {}, {NODE: make_node(NODE, list(enumerate(refs)))})
    store.reset()
    with accelerator(store, image) as one:
        report = one.warm()
        assert (report.packs, report.filters) == (1, OBJECTS_MAX)
        assert store.snapshot().total.requests == report.requests <= 10
