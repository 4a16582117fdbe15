"""Objects of other writers may have holes inside; this catalog's own uploads never have."""

from __future__ import annotations

import pytest

from accel.compaction import CompactionSettings
from tests.accel.compaction.world import Cluster, all_of_it
from tests.builders import batches
from tests.world import HOUR_SECONDS

NODE = 4
HOLE = 5


@pytest.fixture
def cluster() -> Cluster:
    """Five uploads of two streams; offset 5 of stream 1 is missing inside the last object, which ends at 8."""
    found = Cluster()
    for length in (1, 1, 1, 1, 3):
        found.upload(NODE, {1: length, 2: 1})
    last = found.live_ids(NODE)[-1]
    found.world.put(last, [(1, 4, 5), (1, 6, 7), (1, 7, 8), (2, 4, 5)])  # as large as before
    del found.written[1, HOLE]
    [whole] = batches(1, 7, 8)
    found.written[1, 7] = (whole.base_offset, whole.count, whole.payload)
    return found


def test_an_object_with_a_hole_inside_stays_as_it_is(cluster: Cluster) -> None:
    plan = cluster.plan()
    assert [(each.position, len(each.sources)) for each in plan.groups] == [(0, 4)]
    assert [each.reason for each in plan.skipped] == ["1 of its streams have holes inside"]


def test_its_runs_may_get_objects_of_their_own_so_that_nobody_finds_the_hole(cluster: Cluster) -> None:
    settings = all_of_it(split_holes=True)
    [group] = cluster.plan(settings).groups
    assert (len(group.sources), group.set_objects, group.stream_objects) == (5, 1, 2)
    assert not cluster.compact(settings).is_partial
    cluster.check()


@pytest.mark.parametrize("first_kept", [5, 6, 7])
def test_a_hole_below_the_first_kept_offset_is_none_after_merging(cluster: Cluster, first_kept: int) -> None:
    cluster.trim(1, first_kept)
    report = cluster.compact(all_of_it(split_holes=True))
    assert (report.failed_groups, report.added_objects, report.added_stream_objects) == (0, 1, 0)
    cluster.check()


def test_an_object_whose_hole_would_remain_is_not_rewritten(cluster: Cluster) -> None:
    cluster.trim(2, 5)
    holed = cluster.live_ids(NODE)[-1]
    for _ in range(7):
        cluster.world.wait(24 * HOUR_SECONDS)
        cluster.compact(CompactionSettings(dead_share=0.1))
    assert holed in cluster.live_ids(NODE)
