"""A compaction may die before any of its writes: nothing is lost, the next run ends it, and nothing is left behind."""

from __future__ import annotations

import pytest

from accel.compaction import compact, plan_compaction
from accel.testing import Crash, CrashStore
from tests.accel.compaction.world import ONE_AT_A_TIME, Cluster, all_of_it, keys_of
from tests.world import World

NODE, OTHER = 4, 7
SETTINGS = all_of_it(max_sources_per_group=3, split_size_bytes=400)
WRITES_MAX = 100


def a_cluster(world: World) -> Cluster:
    """Two nodes; one of the streams is large enough to be split off, one moves, one is trimmed."""
    cluster = Cluster(world, world.open())
    for number in range(5):
        cluster.upload(NODE, {1: 1, 2: 4} | ({3: 1} if number < 3 else {}))
    cluster.upload(OTHER, {3: 1, 4: 1})
    cluster.upload(OTHER, {3: 1, 4: 2})
    cluster.trim(1, 2)
    return cluster


@pytest.mark.parametrize("again", ["another plan", "the same plan"])
def test_a_compaction_that_died_before_any_of_its_writes_is_finished_by_the_next_one(again: str) -> None:
    for number in range(WRITES_MAX):
        world = World(settings=ONE_AT_A_TIME)
        cluster = a_cluster(world)
        plan = cluster.plan(SETTINGS)
        assert {group.stream_objects for group in plan.groups} == {0, 1}
        store = CrashStore(world.store, number)
        try:
            with world.open(store) as catalog:
                compact(catalog, plan)
        except Crash:
            cluster.check()
            with world.open() as catalog:
                repeated = compact(catalog, plan if again == "the same plan" else plan_compaction(catalog, SETTINGS))
                assert not repeated.is_partial
        cluster.check()
        cluster.collect_later()
        cluster.check()
        assert keys_of(world) == cluster.listed_keys(), f"crash before write {number}"
        if again == "the same plan":
            assert len(cluster.live_ids(NODE)) + len(cluster.live_ids(OTHER)) == len(plan.groups)
        if not store.has_crashed:
            assert number > 10
            return
    pytest.fail(f"expected fewer than {WRITES_MAX} writes")
