"""Carrying out a plan: what is done stays done, and one group's trouble is not another's."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate

import pytest

from accel.catalog.compact import CompactionRanges
from accel.compaction import CompactionPlan, CompactionReport, Group, GroupItem, GroupResult, Status, compact, work_on
from accel.compaction.attempts import ATTEMPTS_MAX, GroupOutcome, commit_outcome, merge_group
from accel.errors import AmbiguousWrite, CommitRefused
from accel.testing import Fault, FaultStore
from loaders.store import CountingStore, MemoryStore
from loaders.store.decorated import PrefixedStore
from tests.accel.compaction.world import Cluster, all_of_it, keys_of
from tests.world import Interrupted, World

NODE, OTHER = 4, 7
SETTINGS = all_of_it(max_sources_per_group=3)


@pytest.fixture
def cluster() -> Cluster:
    """A node with nine uploads: three groups of three."""
    found = Cluster()
    found.uploads(9, NODE, {1: 1, 2: 2})
    return found


def merged(cluster: Cluster, group: Group) -> GroupOutcome:
    """A group that is merged, and not committed."""
    return merge_group(cluster.catalog.parts, group, SETTINGS, partial(cluster.catalog.prepare, NODE))


def statuses(report: CompactionReport) -> list[Status]:
    """What became of each group."""
    return [each.status for each in report.groups]


def test_the_successor_takes_the_lowest_order_id_and_the_oldest_time_of_its_sources() -> None:
    cluster = Cluster()
    world = cluster.world
    for _ in range(4):
        cluster.upload(NODE, {1: 1})
        world.wait(60)
    before = cluster.node_list(NODE).live
    assert not cluster.compact(all_of_it(target_objects=2, nodes=frozenset({NODE}))).is_partial
    after = cluster.node_list(NODE).live
    merged = after[~(after["object_id"][:, None] == before["object_id"]).any(axis=1)]
    sources = before[~(before["object_id"][:, None] == after["object_id"]).any(axis=1)]
    assert len(sources) == 3
    for name in ("order_id", "data_time_ms"):
        assert merged[name].tolist() == [sources[name].min()]


def test_outputs_have_marks_and_an_object_of_another_system_fails_its_group_alone(cluster: Cluster) -> None:
    catalog = cluster.catalog
    plan = cluster.plan(SETTINGS)
    sources = {ref.object_id for group in plan.groups for ref in group.sources}
    layout = catalog.parts.layout
    theirs = layout.object_key(catalog.prepare(NODE, 1)[0] + 1)
    cluster.world.memory.put(theirs, b"theirs")
    report = compact(catalog, plan)
    assert sorted(statuses(report)) == sorted([Status.COMMITTED] * 2 + [Status.FAILED])
    assert [each.reason[:15] for each in report.groups if each.is_failure] == ["NamespaceShared"]
    assert cluster.world.memory.get(theirs).body == b"theirs"
    outputs = set(catalog.refresh_state().lists[NODE].value.live["object_id"].tolist()) - sources
    assert len(outputs) == 2
    for object_id in outputs:
        assert layout.is_ours(object_id, cluster.world.memory.get(layout.object_key(object_id)).mark)


def test_a_plan_that_is_carried_out_again_finds_all_done_and_merges_nothing(cluster: Cluster) -> None:
    plan = cluster.plan(SETTINGS)
    assert statuses(compact(cluster.catalog, plan)) == [Status.COMMITTED] * 3
    before = keys_of(cluster.world)
    report = compact(cluster.catalog, plan)
    assert statuses(report) == [Status.DONE_BEFORE] * 3
    assert (report.is_partial, report.rewritten_objects, report.requests) == (False, 0, 0)
    assert keys_of(cluster.world) == before


def test_a_group_whose_source_is_gone_is_lost_alone_and_its_output_is_discarded(cluster: Cluster) -> None:
    plan = cluster.plan(SETTINGS)

    def meanwhile(items: Sequence[GroupItem]) -> Iterator[GroupResult]:
        for number, item in enumerate(items):
            act = compact_otherwise if number == 1 else lambda: None
            with cluster.world.open(Interrupted(cluster.store, act, 1)) as catalog:  # the output is written, not listed
                yield work_on(catalog, item, SETTINGS)

    def compact_otherwise() -> None:
        compact(cluster.catalog, cluster.plan(all_of_it(max_sources_per_group=2)))

    report = compact(cluster.catalog, plan, run=meanwhile)
    assert Status.COMMITTED in statuses(report)
    assert Status.LOST in statuses(report)
    assert any("gone" in each.reason for each in report.groups if each.status is Status.LOST)
    assert (report.is_partial, report.failed_groups) == (False, 0), "what another run took is no failure of this one"
    assert report.lost_groups == statuses(report).count(Status.LOST)
    cluster.check()
    retired = cluster.node_list(NODE).retired
    assert len(keys_of(cluster.world)) == len(cluster.listed_keys()) + len(retired)


def test_of_several_attempts_at_a_group_one_is_committed(cluster: Cluster) -> None:
    plan = cluster.plan(SETTINGS)

    def twins(items: Sequence[GroupItem]) -> Iterator[GroupResult]:
        for item in items:
            work_on(cluster.catalog, item, SETTINGS)  # it commits, and does not report it
            yield work_on(cluster.catalog, item, SETTINGS, attempt=1)

    report = compact(cluster.catalog, plan, run=twins)
    assert statuses(report) == [Status.DONE_ELSEWHERE] * 3
    assert (report.failed_groups, report.done_elsewhere_groups) == (0, 3)
    assert not report.is_partial
    assert len(keys_of(cluster.world)) == 9 + 3
    cluster.check()


@pytest.mark.parametrize("prefix", ["", "below/a prefix/"])
def test_a_source_that_is_deleted_before_it_is_read_is_set_aside_and_the_others_are_merged(prefix: str) -> None:
    cluster = Cluster(World(PrefixedStore(MemoryStore(), prefix)))
    cluster.uploads(9, NODE, {1: 1, 2: 2})
    plan = cluster.plan(SETTINGS)
    victim = cluster.live_ids(NODE)[4]
    cluster.world.memory.delete(cluster.catalog.parts.layout.object_key(victim))
    report = compact(cluster.catalog, plan)
    assert Counter(statuses(report)) == {Status.COMMITTED: len(report.groups) - 1, Status.SET_ASIDE: 1}
    assert len(report.groups) > 2
    assert "KeyMissing" in next(each.reason for each in report.groups if each.status is Status.SET_ASIDE)
    assert [each.object_id for each in report.set_aside] == [victim]


def test_a_commit_that_never_comes_through_is_given_up(cluster: Cluster) -> None:
    outcome = merged(cluster, cluster.plan(SETTINGS).groups[0])
    faults = FaultStore(cluster.world.store, operations={"put"})
    with cluster.world.open(faults) as catalog:
        faults.schedule(*[Fault.SLOW_DOWN] * 500)
        refusal = commit_outcome(catalog, outcome)
        faults.clear()
    assert isinstance(refusal, AmbiguousWrite)
    assert faults.injected[Fault.SLOW_DOWN] >= ATTEMPTS_MAX
    assert len(cluster.live_ids(NODE)) == 9
    cluster.check()


def test_committing_opens_no_object_again(cluster: Cluster) -> None:
    outcome = merged(cluster, cluster.plan(SETTINGS).groups[0])
    store = CountingStore(cluster.world.store)
    with cluster.world.open(store) as catalog:
        before = store.snapshot()
        assert commit_outcome(catalog, outcome) is None
        assert "get_range" not in (store.snapshot() - before).by_operation


def test_ranges_of_other_objects_are_refused_and_what_they_say_is_checked(cluster: Cluster) -> None:
    outcome = merged(cluster, cluster.plan(SETTINGS).groups[0])
    group = outcome.group
    fewer = CompactionRanges(outcome.ranges.sources[:2], outcome.ranges.output)
    with pytest.raises(ValueError, match=r"\(3, True\), found \(2, True\)"):
        cluster.catalog.commit_compaction(NODE, group.sources, outcome.added, ranges=fewer)
    wrong = CompactionRanges(outcome.ranges.sources[::-1], outcome.ranges.output)
    with pytest.raises(CommitRefused, match="ascending offsets"):
        cluster.catalog.commit_compaction(NODE, group.sources, outcome.added, ranges=wrong)


def test_a_report_is_a_row_and_plain_data(cluster: Cluster) -> None:
    told: list[tuple[int, int]] = []
    plan: CompactionPlan = cluster.plan(SETTINGS)
    report = compact(cluster.catalog, plan, progress=lambda done, in_all: told.append((done, in_all)))
    rewritten = [group.source_bytes for group in plan.groups]
    assert told == [(done, sum(rewritten)) for done in accumulate(rewritten)]
    row = report.row()
    assert (row["rewritten_objects"], row["added_objects"], row["failed_groups"]) == (9, 3, 0)
    assert row["requests"] >= 3 * (3 + 1)
    assert [each["status"] for each in json.loads(json.dumps(report.to_dict()))["groups"]] == ["committed"] * 3


def test_a_group_that_another_run_took_before_costs_nothing(cluster: Cluster) -> None:
    plan = cluster.plan(SETTINGS)
    cluster.compact(all_of_it(max_sources_per_group=2))
    before = keys_of(cluster.world)
    report = compact(cluster.catalog, plan)
    assert set(statuses(report)) == {Status.LOST}
    assert not report.is_partial
    assert keys_of(cluster.world) == before
