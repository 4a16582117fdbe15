"""The example of AutoMQ issue 2731: 21 objects, four reads, and what each policy opens for them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from accel.image import MetadataImage
from accel.lookup.answer import Request
from loaders.plan import LoadAll, Policy, Spread, Window, WindowPreload
from tests.accel.lookup.driving import Driver, index_cache, look_up, make_ranges

CASES = Path(__file__).parents[2] / "data" / "get_objects.json"
STREAM = 420_000
READS = {(100, 200): [0, 2, 3], (400, 600): [7, 9, 10], (1000, 1600): [18, 20, 22], (1980, -1): [42]}

COSTS: list[tuple[Policy, list[tuple[int, int]]]] = [
    (LoadAll(), [(21, 1), (21, 1), (21, 1), (21, 1)]),
    (Window(), [(5, 1), (10, 2), (15, 3), (21, 5)]),
    (WindowPreload(), [(10, 1), (12, 2), (12, 2), (10, 1)]),
    (Spread(), [(10, 2), (10, 2), (11, 3), (8, 1)]),
]
"""(GETs, rounds) of each read, cold. A change here is a change of the default's cost on small nodes: look twice."""


@pytest.mark.parametrize(("policy", "costs"), COSTS, ids=lambda value: getattr(value, "name", ""))
def test_the_four_reads_cost_what_is_published(policy: Policy, costs: list[tuple[int, int]]) -> None:
    cases = json.loads(CASES.read_bytes())["cases"]
    metadata = next(case["metadata"] for case in cases if case["id"] == "issue_2731_example")
    contents = {
        each["object_id"]: make_ranges([(row["stream_id"], row["start"], row["end"]) for row in each["ranges"]])
        for each in metadata["nodes"][0]["stream_set_objects"]
    }
    image = MetadataImage.from_dict(metadata)
    for ((start, end), expected), cost in zip(READS.items(), costs, strict=True):
        driver = Driver(contents, index_cache())
        answer = look_up(image, driver, Request(STREAM, start, end, 4), policy=policy)
        assert [each.object_id for each in answer.objects] == expected
        assert (driver.gets, len(driver.opened)) == cost
