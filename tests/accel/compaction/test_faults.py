"""Whatever the store does to its requests: compactions that are repeated come through, and harm nothing on the way."""

from __future__ import annotations

from random import Random

import pytest

from accel.compaction import CompactionReport, compact, plan_compaction
from accel.errors import AccelError
from accel.testing import Fault, FaultStore
from tests.accel.compaction.world import ONE_AT_A_TIME, Cluster, all_of_it, keys_of
from tests.world import World

NODE, OTHER = 4, 7
ATTEMPTS_MAX = 200

PROBABILITIES = {
    Fault.SLOW_DOWN: 0.02,
    Fault.TIMEOUT: 0.02,
    Fault.SHORT_BODY: 0.02,
    Fault.LOST_REPLY: 0.04,
    Fault.CONFLICT: 0.02,
}


def repeated_until_nothing_is_left(world: World, faults: FaultStore) -> list[CompactionReport]:
    """Run compactions, each by a new process, until one finds nothing to do."""
    settings = all_of_it(max_sources_per_group=3, split_size_bytes=400, target_objects=3)
    reports: list[CompactionReport] = []
    for _ in range(ATTEMPTS_MAX):
        try:
            with world.open(faults) as catalog:
                plan = plan_compaction(catalog, settings)
                if not plan.groups:
                    return reports
                reports.append(compact(catalog, plan))
        except AccelError:
            continue
    pytest.fail(f"expected to come through in {ATTEMPTS_MAX} attempts")


@pytest.mark.parametrize("seed", range(5))
def test_a_compaction_comes_through_at_last_and_nothing_is_lost_or_left(seed: int) -> None:
    world = World(settings=ONE_AT_A_TIME)
    cluster = Cluster(world, world.open())
    for number in range(8):
        cluster.upload(NODE, {1: 1, 2: 4} | ({3: 1} if number < 4 else {}))
    for _ in range(4):
        cluster.upload(OTHER, {3: 1, 4: 1})
    cluster.trim(1, 2)
    faults = FaultStore(world.store, rng=Random(seed), probabilities=PROBABILITIES)
    assert repeated_until_nothing_is_left(world, faults)
    assert faults.injected.total() > 0
    cluster.check()
    cluster.collect_later()
    cluster.check()
    assert keys_of(world) == cluster.listed_keys()
