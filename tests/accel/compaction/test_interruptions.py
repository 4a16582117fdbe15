"""Whatever comes between the writes of a compaction, nothing is lost, the next run ends it, and nothing is left behind.

It dies, something else happens (another compaction, an upload, a trim, a collection), or the store fails.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from random import Random

import pytest

from accel.compaction import CompactionPlan, CompactionReport, Status, compact, plan_compaction
from accel.errors import AccelError
from accel.testing import Fault, FaultStore
from loaders.store import ObjectStore
from tests.accel.compaction.world import ONE_AT_A_TIME, Cluster, all_of_it
from tests.examples import is_whole
from tests.world import Interrupted, World, each_crash

NODE, OTHER = 4, 7
SETTINGS = all_of_it(max_sources_per_group=3, split_size_bytes=400)
ATTEMPTS_MAX = 200


def two_nodes() -> Cluster:
    """One of the streams is large enough to be split off, one moves, one is trimmed."""
    cluster = Cluster(World(settings=ONE_AT_A_TIME))
    for number in range(5):
        cluster.upload(NODE, {1: 1, 2: 4} | ({3: 1} if number < 3 else {}))
    cluster.upload(OTHER, {3: 1, 4: 1})
    cluster.upload(OTHER, {3: 1, 4: 2})
    cluster.trim(1, 2)
    return cluster


@pytest.mark.parametrize("again", ["another plan", "the same plan"])
def test_a_compaction_that_died_before_any_of_its_writes_is_finished_by_the_next_one(again: str) -> None:
    plans: list[CompactionPlan] = []

    def run(cluster: Cluster, store: ObjectStore) -> None:
        plans.append(cluster.plan(SETTINGS))
        assert {group.stream_objects for group in plans[-1].groups} == {0, 1}
        with cluster.world.open(store) as catalog:
            compact(catalog, plans[-1])

    for cluster, has_died in each_crash(two_nodes, run, writes_min=11, every=3):
        cluster.check()
        with cluster.world.open() as catalog:
            plan = plans[-1] if again == "the same plan" else plan_compaction(catalog, SETTINGS)
            assert not has_died or not compact(catalog, plan).is_partial
        cluster.settle()
        if again == "the same plan":
            assert len(cluster.live_ids(NODE)) + len(cluster.live_ids(OTHER)) == len(plan.groups)


# Something else happens


def another_compaction(cluster: Cluster) -> None:
    with cluster.world.open() as catalog:
        compact(catalog, plan_compaction(catalog, all_of_it(max_sources_per_group=2, nodes=frozenset({NODE}))))
    cluster.check()


def the_same_compaction(cluster: Cluster) -> None:
    with cluster.world.open() as catalog:
        compact(catalog, plan_compaction(catalog, SETTINGS))
    cluster.check()


def an_upload(cluster: Cluster) -> None:
    cluster.upload(NODE, {1: 1, 5: 1}, own={2: 2})


def a_trim_and_a_move(cluster: Cluster) -> None:
    cluster.trim(1, 4)
    cluster.move(2, OTHER)
    cluster.upload(OTHER, {2: 1})


def a_trim_of_all_there_is(cluster: Cluster) -> None:
    cluster.trim(1, 5)
    cluster.trim(2, 20)


def a_late_collection(cluster: Cluster) -> None:
    """The compactor was suspended for days: its promises have run out."""
    cluster.collect_later()


NOTHING_ELSE, TAKEN = {Status.COMMITTED}, {Status.COMMITTED, Status.LOST}
SAME = {Status.COMMITTED, Status.DONE_BEFORE, Status.DONE_ELSEWHERE}
INTERRUPTS: dict[str, tuple[Callable[[Cluster], None], set[Status], set[Status]]] = {
    each.__name__: (each, seen, unseen)
    for each, seen, unseen in (
        (another_compaction, TAKEN, {Status.FAILED}),  # what the other one did is no failure
        (the_same_compaction, SAME, {Status.FAILED}),
        (an_upload, NOTHING_ELSE, set(Status) - NOTHING_ELSE),
        (a_trim_and_a_move, NOTHING_ELSE, set(Status) - NOTHING_ELSE),
        (a_trim_of_all_there_is, NOTHING_ELSE, set(Status) - NOTHING_ELSE),
        (a_late_collection, NOTHING_ELSE, set(Status) - NOTHING_ELSE),  # the next attempt takes other ids
    )
}
"""What happens; what becomes of some group of the compaction then, and of none."""


@pytest.mark.parametrize("interrupt", INTERRUPTS)
def test_what_happens_between_two_writes_does_no_harm(interrupt: str) -> None:
    act, expected, unexpected = INTERRUPTS[interrupt]
    found: set[Status] = set()
    for number in count(0, 1 if is_whole() else 2):
        cluster = Cluster(World(settings=ONE_AT_A_TIME))
        cluster.uploads(5, NODE, {1: 1, 2: 4})
        cluster.trim(1, 2)
        store = Interrupted(cluster.store, lambda it=cluster: act(it), number)  # type: ignore[misc]  # bound now
        with cluster.world.open(store) as catalog:
            report = compact(catalog, plan_compaction(catalog, SETTINGS))
        cluster.settle()
        cluster.check_ends()
        found |= {each.status for each in report.groups}
        if store.fitting <= number:
            assert number > 5
            break
    assert expected <= found
    assert not found & unexpected


# The store fails

PROBABILITIES = {
    **dict.fromkeys((Fault.SLOW_DOWN, Fault.TIMEOUT, Fault.SHORT_BODY, Fault.CONFLICT), 0.02),
    Fault.LOST_REPLY: 0.04,
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
    cluster = Cluster(World(settings=ONE_AT_A_TIME))
    for number in range(8):
        cluster.upload(NODE, {1: 1, 2: 4} | ({3: 1} if number < 4 else {}))
    cluster.uploads(4, OTHER, {3: 1, 4: 1})
    cluster.trim(1, 2)
    faults = FaultStore(cluster.store, rng=Random(seed), probabilities=PROBABILITIES)
    assert repeated_until_nothing_is_left(cluster.world, faults)
    assert faults.injected.total() > 0
    cluster.settle()
