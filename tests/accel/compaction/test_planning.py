"""What is planned: enough, not too much, and nothing that would not be true."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from accel.compaction import (
    CompactionSettings,
    Group,
    assemble_plan,
    compact,
    plan_compaction,
    plan_node,
    survey_catalog,
)
from accel.compaction.grouping import TOO_LARGE
from accel.errors import MaintenanceRefused
from accel.testing import Fault, FaultStore
from tests.accel.compaction.world import Cluster, all_of_it
from tests.world import HOUR_SECONDS

NODE, OTHER = 4, 7


def cluster_of(uploads: int, *, streams: int = 2) -> Cluster:
    """A node with so many uploads of a few streams."""
    cluster = Cluster()
    cluster.uploads(uploads, NODE, dict.fromkeys(range(1, streams + 1), 1))
    return cluster


def spans(group: Group) -> tuple[int, int]:
    """Positions [first, end) of a group."""
    return group.position, group.position + len(group.sources)


def test_nothing_is_planned_until_there_are_too_many_and_then_down_to_the_target() -> None:
    cluster = cluster_of(40)
    settings = CompactionSettings(max_objects_per_node=40, min_age_seconds=0)
    cluster.world.wait(HOUR_SECONDS)
    assert cluster.plan(settings).groups == ()
    cluster.upload(NODE, {1: 1})
    plan = cluster.plan(settings)
    assert [node.objects_after for node in plan.nodes] == [32]
    assert not compact(cluster.catalog, plan).is_partial
    assert len(cluster.live_ids(NODE)) == 32
    for _ in range(2):
        assert cluster.plan(settings).groups == ()
        cluster.upload(NODE, {1: 1})


def test_a_dry_run_says_what_a_run_does() -> None:
    cluster = cluster_of(9)
    cluster.trim(1, 5)
    plan = cluster.plan(all_of_it(target_objects=3))
    promised = plan.to_dict()
    report = compact(cluster.catalog, plan)
    assert {name: value for name, value in report.row().items() if name in promised} == {
        name: promised[name]
        for name in ("rewritten_objects", "rewritten_bytes", "added_objects", "added_stream_objects", "added_bytes")
    }
    assert json.loads(json.dumps(promised))["groups"][0]["trimmed_streams"] == 1
    assert promised["groups"][0]["dropped_bytes"] > 0


def test_planning_opens_each_object_once() -> None:
    cluster = cluster_of(12)
    cluster.catalog.refresh()
    before = cluster.world.store.snapshot()
    cluster.plan()
    asked = cluster.world.store.snapshot() - before
    keys = 2 + 4  # directory, list and buckets, and the objects
    assert asked.gets == keys + 12
    assert asked.total.requests == asked.gets


def test_young_objects_are_left_alone() -> None:
    cluster = cluster_of(4)
    cluster.world.wait(2 * HOUR_SECONDS)
    young = [cluster.upload(NODE, {1: 1}).object_id for _ in range(3)]
    [group] = cluster.plan(all_of_it(min_age_seconds=HOUR_SECONDS)).groups
    assert spans(group) == (0, 4)
    assert not set(young) & {ref.object_id for ref in group.sources}
    assert spans(cluster.plan().groups[0]) == (0, 7)


def test_a_group_that_would_not_have_fewer_objects_is_left_out() -> None:
    cluster = cluster_of(3, streams=4)
    plan = cluster.plan(all_of_it(split_size_bytes=1))
    assert plan.groups == ()
    assert [each.reason for each in plan.skipped] == ["3 objects would become 0 of many streams and 4 of one"]


def test_a_plan_that_makes_many_objects_of_one_stream_is_refused() -> None:
    cluster = cluster_of(7, streams=6)
    settings = all_of_it(split_size_bytes=1, max_stream_objects=5)
    with pytest.raises(MaintenanceRefused, match=r"max_stream_objects = 5 .* found 6 from 7 objects"):
        cluster.plan(settings)
    assert cluster.plan(all_of_it(split_size_bytes=1, max_stream_objects=6)).stream_objects == 6


def test_an_object_that_the_store_does_not_answer_for_once_is_opened_again() -> None:
    cluster = cluster_of(3)
    faults = FaultStore(cluster.store, operations={"get_range"})
    faults.schedule(None, Fault.TIMEOUT)
    with cluster.world.open(faults) as catalog:
        plan = plan_compaction(catalog, all_of_it())
    assert faults.injected.total() == 1
    assert [len(group.sources) for group in plan.groups] == [3]
    assert not plan.skipped


def test_no_more_bytes_are_rewritten_than_allowed_and_the_cheapest_go_first() -> None:
    cluster = Cluster()
    for node, blocks in ((NODE, 1), (OTHER, 9)):
        cluster.uploads(4, node, {node: blocks})
    small = cluster.plan(all_of_it(nodes=frozenset({NODE}))).source_bytes
    whole = cluster.plan().source_bytes
    plan = cluster.plan(all_of_it(max_bytes=whole - 1))
    assert small == plan.source_bytes < whole
    assert plan.groups[0].node_id == NODE
    only = cluster.plan(all_of_it(max_bytes=small))
    assert [each.node_id for each in only.groups] == [NODE]
    assert cluster.plan(all_of_it(max_bytes=1)).groups == ()


def test_a_budget_is_shared_by_all_nodes() -> None:
    cluster = Cluster()
    for node in (NODE, OTHER):
        cluster.uploads(4, node, {node: 1})
    settings = all_of_it()
    surveys = survey_catalog(cluster.catalog, settings).nodes
    nodes = tuple(plan_node(cluster.catalog.parts, each, settings) for each in surveys)
    budget = nodes[0].groups[0].source_bytes
    plan = assemble_plan(0, all_of_it(max_bytes=budget + 1), nodes)
    assert [each.node_id for each in plan.groups] == [NODE]
    assert [(each.node_id, len(each.object_ids)) for each in plan.skipped] == [(OTHER, 4)]


def test_one_node_at_a_time_can_be_planned_elsewhere() -> None:
    cluster = cluster_of(5)
    settings = all_of_it()
    [survey] = survey_catalog(cluster.catalog, settings).nodes
    sent = pickle.loads(pickle.dumps((survey, settings)))  # noqa: S301 - made in the line itself
    with cluster.world.open() as elsewhere:
        node = pickle.loads(pickle.dumps(plan_node(elsewhere.parts, *sent)))  # noqa: S301 - likewise
    plan = pickle.loads(pickle.dumps(assemble_plan(0, settings, (node,))))  # noqa: S301 - likewise
    assert plan.to_dict()["groups"] == cluster.plan(settings).to_dict()["groups"]


def test_a_node_that_will_be_above_its_limit_within_an_hour_is_compacted_before() -> None:
    cluster = cluster_of(50)
    settings = CompactionSettings(max_objects_per_node=60)
    cluster.world.wait(2 * HOUR_SECONDS)
    cluster.uploads(5, NODE, {1: 1})
    assert cluster.plan(settings).groups == ()
    cluster.uploads(4, NODE, {1: 1})
    assert [node.objects_after <= 48 for node in cluster.plan(settings).nodes] == [True]


SIZE = "target_object_size_bytes"
ENOUGH_BYTES = 2 * 12 * 217 // 8
"""Of 12 uploads of two streams, for 8 groups; pairs then join up to this size."""


@pytest.mark.parametrize(
    ("choices", "reason"),
    [
        ({}, "it has no more than max_objects_per_node = 1000, and in an hour, too"),
        ({"nodes": frozenset()}, "it is not among the given nodes"),
        (
            {"max_objects_per_node": 10, "target_object_size_bytes": 200},
            f"its target is 8; pairs of neighbours that stay: 11 {TOO_LARGE} ({SIZE} = {ENOUGH_BYTES} leaves none)",
        ),
        (
            {"max_objects_per_node": 10, "min_age_seconds": 1e9},
            "its target is 8; pairs of neighbours that stay: 11 with an object that is left alone",
        ),
    ],
)
def test_a_plan_with_nothing_to_do_says_why(choices: dict[str, Any], reason: str) -> None:
    assert_nothing_to_do(CompactionSettings(**choices), reason)


def test_a_plan_says_that_indexes_are_too_large_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accel.compaction.planning.GROUP_INDEX_SIZE_BYTES_MAX", 100)
    assert_nothing_to_do(
        CompactionSettings(max_objects_per_node=10),
        "its target is 8; pairs of neighbours that stay: 11 above the limit of its index or its streams together",
    )


def assert_nothing_to_do(settings: CompactionSettings, reason: str) -> None:
    cluster = cluster_of(12)
    cluster.world.wait(2 * HOUR_SECONDS)
    plan = cluster.plan(settings)
    assert plan.groups == ()
    assert plan.reasons == (f"node 4, 12 objects: {reason}",)
    assert plan.to_dict()["reasons"] == list(plan.reasons)
    report = compact(cluster.catalog, plan)
    assert report.reasons == plan.reasons
    assert report.to_dict()["reasons"] == list(plan.reasons)


def test_a_list_with_holes_says_so() -> None:
    cluster = Cluster()
    for at in range(24):
        cluster.upload(NODE if at % 2 else OTHER, {1: 1})
    cluster.world.wait(2 * HOUR_SECONDS)
    [reason, _] = cluster.plan(CompactionSettings(max_objects_per_node=10)).reasons
    assert reason.endswith("11 with a hole or a step back between them")


def test_a_node_below_its_limits_says_that_its_objects_were_looked_at() -> None:
    cluster = cluster_of(7)
    cluster.trim(1, 1)
    cluster.world.wait(2 * HOUR_SECONDS)
    [reason] = cluster.plan(CompactionSettings(dead_share=0.9)).reasons
    assert reason.startswith("node 4, 7 objects: it has few enough; 1 of them were looked at")


def test_progress_is_told_object_by_object() -> None:
    cluster = cluster_of(4)
    told: list[tuple[int, int]] = []
    plan_compaction(cluster.catalog, all_of_it(), progress=lambda done, in_all: told.append((done, in_all)))
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]
